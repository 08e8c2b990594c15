//! `taskdiag record`: appends an answer to a recording every few seconds, until a signal ends it.

use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use taskdiag::cgroups::{self, Bounds, Files};
use taskdiag::recording::{Options, Writer, Written};
use taskdiag::{Error, Session, Snapshot, Watch};

use crate::args::record::RecordArgs;
use crate::exit::{Exit, say};
use crate::interrupt;
use crate::moment;
use crate::output::Sink;
use crate::recorded;

/// Run it.
pub fn run(args: &RecordArgs) -> Result<(), Exit> {
    if args.show {
        return show(args);
    }
    let mut options = Options::new(args.every);
    (options.keep, options.max_bytes) = (Some(args.keep), Some(args.max_size.get()));
    options.keep_at_least = Some(args.keep_at_least);
    crate::aside::answers(&args.dir)
        .map_err(|e| Exit::Failed(format!("{}: {e}", crate::exit::shown(&args.dir))))?;
    let mut writer = Writer::open(&args.dir, options).map_err(|e| match &e {
        Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Exit::Failed(format!("{e}; run it as root, or name a directory that you may write to"))
        }
        _ => e.into(),
    })?;
    if let Some(repair) = writer.repaired() {
        say(format_args!("taskdiag: {repair}"));
    }
    let watch = Arc::new(Watch::new());
    let end = End::catch(&watch)?;
    let mut session = Session::open(args.request().with_watch(watch.clone()), args.engine)?;
    let mut cgroups = Cgroups::new(args);
    let mut trouble = Trouble::default();
    let mut less = Less::default();
    let mut written = 0;
    loop {
        match frame(&mut session, &mut cgroups, &mut writer, &watch) {
            Ok(Frame::Stopped) => return Ok(()),
            Ok(Frame::Written(told)) => {
                if written == 0 {
                    begin(args, &session, told.bytes);
                }
                trouble.is_over();
                less.see(&told);
                written += 1;
            }
            // The disk may be full now and have room later. If not even the first answer can be
            // written, it is an error.
            Err(e @ Error::Io { .. }) if written > 0 => trouble.is_there(&e),
            Err(e) => return Err(e.into()),
        }
        if args.count.is_some_and(|n| written >= n) || end.wait(until_next(args.every))? {
            return Ok(());
        }
    }
}

/// The longest list of gaps that is printed.
const GAPS: usize = 10;

/// Prints what a recording holds.
fn show(args: &RecordArgs) -> Result<(), Exit> {
    let recording = recorded::open(&args.dir)?;
    let infos = || recording.infos();
    let (Some(first), Some(last)) = (recording.info(0), recording.info(recording.len() - 1)) else {
        return Err(Exit::NoMatch);
    };
    let newest = recording.read(recording.len() - 1).ok();
    let stream = newest.as_ref().map(|frame| frame.snapshot.stream());
    let tasks = || infos().map(|i| i.tasks);
    let (least, most) = (tasks().min().unwrap_or(0), tasks().max().unwrap_or(0));
    let what = match stream.map(|s| s.strategy().is_threads()) {
        Some(true) => "threads",
        Some(false) => "processes",
        None => "tasks",
    };
    let bytes: u64 = infos().map(|i| i.stored_bytes).fold(0, u64::saturating_add);
    let groups: Vec<&str> =
        stream.map(|s| s.asked().iter().map(|g| g.name()).collect()).unwrap_or_default();
    let gaps: Vec<(usize, Duration)> =
        (1..recording.len()).filter_map(|n| Some((n, recording.gap_before(n)?))).collect();
    let mut sink = Sink::stdout();
    let mut line = |key: &str, value: String| {
        sink.buf().extend_from_slice(format!("{key:<8} {value}\n").as_bytes());
    };
    line("from", moment::zoned(first.time));
    line("to", moment::zoned(last.time));
    line("answers", format!("{}, the last ones every {:?}", recording.len(), last.every));
    line("tasks", format!("{least} to {most} {what} in an answer"));
    line("size", format!("{} kB", bytes.div_ceil(1000)));
    if !groups.is_empty() {
        line("groups", groups.join(" "));
    }
    let cgroups = stream.filter(|s| s.cgroup_list().is_some()).map(|s| s.cgroups().len());
    line("cgroups", cgroups.map_or_else(|| String::from("none"), |n| n.to_string()));
    match gaps.is_empty() {
        true => line("gaps", String::from("none")),
        false => line("gaps", gaps.len().to_string()),
    }
    let mut longest = gaps;
    longest.sort_by_key(|(_, gap)| std::cmp::Reverse(*gap));
    for (n, gap) in longest.iter().take(GAPS) {
        if let Some(info) = recording.info(*n) {
            line("", format!("{} up to {}", moment::length(*gap), moment::shown(info.time)));
        }
    }
    if longest.len() > GAPS {
        line("", format!("and {} shorter ones", longest.len() - GAPS));
    }
    sink.finish()?;
    Ok(())
}

enum Frame {
    /// The answer was written, or left out because there was no room.
    Written(Written),
    /// The answer was stopped half-way, and is not recorded.
    Stopped,
}

fn frame(
    session: &mut Session,
    cgroups: &mut Cgroups,
    writer: &mut Writer,
    watch: &Watch,
) -> Result<Frame, Error> {
    let snapshot = session.refresh()?;
    if watch.is_stopped() {
        return Ok(Frame::Stopped);
    }
    let with_cgroups = cgroups.add_to(snapshot);
    Ok(Frame::Written(writer.append(with_cgroups.as_ref().unwrap_or(snapshot))?))
}

/// The files of cgroups that are recorded: those of the columns that `taskdiag cgroups` shows.
const CGROUP_FILES: Files = Files::TASK_COUNT
    .union(Files::CPU_STAT)
    .union(Files::CPU_MAX)
    .union(Files::MEMORY_CURRENT)
    .union(Files::MEMORY_HIGH)
    .union(Files::MEMORY_MAX)
    .union(Files::SWAP_CURRENT)
    .union(Files::MEMORY_EVENTS)
    .union(Files::MEMORY_STAT)
    .union(Files::IO_STAT)
    .union(Files::CPU_PRESSURE)
    .union(Files::MEMORY_PRESSURE)
    .union(Files::IO_PRESSURE);

/// The most cgroups in an answer. Any user may make more below their own.
const CGROUPS: usize = 2_000;
/// The most bytes of their paths.
const CGROUP_PATHS: usize = 1 << 20;
/// The most files of cgroups that stay open. For each, the kernel keeps a page, and a recorder runs
/// for months.
const CGROUP_DESCRIPTORS: usize = 1024;
/// The times at which cgroups were read are recorded as multiples of this part of the interval.
const GRAIN: u32 = 1000;

/// The cgroups that are recorded.
struct Cgroups {
    /// `None`: they are not recorded.
    session: Option<cgroups::Session>,
    grain: Duration,
    is_lost: bool,
}

impl Cgroups {
    fn new(args: &RecordArgs) -> Cgroups {
        let mut bounds = Bounds::default();
        (bounds.cgroups, bounds.path_bytes) = (CGROUPS, CGROUP_PATHS);
        let descriptors = cgroups::Session::descriptors().min(CGROUP_DESCRIPTORS);
        let open = || cgroups::Session::new(CGROUP_FILES, bounds, descriptors);
        let session = args.cgroups.then(open).and_then(|session| {
            let lost = |e| say(format_args!("taskdiag: {e}: no cgroups are recorded"));
            session.map_err(lost).ok()
        });
        Cgroups { session, grain: args.every / GRAIN, is_lost: false }
    }
    /// The answer with its cgroups. `None`: there are none to add.
    fn add_to(&mut self, snapshot: &Snapshot) -> Option<Snapshot> {
        match self.session.as_mut()?.list() {
            Ok(all) => {
                self.is_lost = false;
                snapshot.with_cgroups(&all, self.grain)
            }
            Err(e) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    say(format_args!(
                        "taskdiag: {e}: answers are without cgroups until this is fixed"
                    ));
                }
                None
            }
        }
    }
}

/// Prints a description of the recording that starts.
fn begin(args: &RecordArgs, session: &Session, bytes: u64) {
    let Some(snapshot) = session.snapshot() else { return };
    let engines: Vec<&str> = snapshot.served().iter().map(|s| s.engine.name()).collect();
    let what = if args.threads { "threads" } else { "processes" };
    say(format_args!(
        "taskdiag: recording to {} every {:?}; the first answer has {} {what}, takes {} kB and comes from {}",
        crate::exit::shown(&args.dir),
        args.every,
        snapshot.tasks().len(),
        bytes.div_ceil(1000),
        engines.join(" and ")
    ));
    for caveat in snapshot.caveats() {
        say(format_args!("taskdiag: {caveat}"));
    }
}

/// The time to the next multiple of the interval, so that answers are made at 03:10:00 and
/// 03:10:10.
fn until_next(every: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let every = every.as_nanos();
    Duration::from_nanos((every - now % every) as u64)
}

/// Counts answers that could not be written. Reports the first one, and their number when one is
/// written again.
#[derive(Default)]
struct Trouble {
    lost: u32,
}

impl Trouble {
    fn is_there(&mut self, why: &Error) {
        if self.lost == 0 {
            say(format_args!("taskdiag: {why}: answers are lost until this is fixed"));
        }
        self.lost += 1;
    }
    fn is_over(&mut self) {
        if self.lost > 0 {
            say(format_args!("taskdiag: recording again; {} answers were lost", self.lost));
        }
        self.lost = 0;
    }
}

/// After this many complete answers, the recorder reports that everything is recorded again. Key
/// frames take more room than others, so there may be only a few complete answers between two cut
/// ones.
const WHOLE: u32 = 60;

/// Reports when `--keep-at-least` leaves too little room for complete answers, and when this ends.
#[derive(Default)]
struct Less {
    /// The number of complete answers since the last cut one. `None`: no report is open.
    whole: Option<u32>,
}

impl Less {
    fn see(&mut self, told: &Written) {
        let is_less = told.is_left_out || !told.cuts.is_empty();
        self.whole = match (self.whole, is_less) {
            (None, false) => None,
            (None, true) => {
                let what = match told.is_left_out {
                    true => String::from("an answer is left out"),
                    false => recorded::cuts(&told.cuts),
                };
                say(format_args!(
                    "taskdiag: recording less until there is room again, because --max-size has to hold the time of \
                     --keep-at-least: {what}; each answer says what it lacks"
                ));
                Some(0)
            }
            (Some(_), true) => Some(0),
            (Some(n), false) if n + 1 >= WHOLE => {
                say(format_args!("taskdiag: recording all again"));
                None
            }
            (Some(n), false) => Some(n + 1),
        };
    }
}

/// The signals that end it. They also end the answer that is being made.
struct End {
    woken: UnixStream,
}

impl End {
    fn catch(watch: &Arc<Watch>) -> Result<End, Exit> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // If nohup or a shell has set it to be ignored, it stays ignored.
            if interrupt::is_ignored(signal) {
                continue;
            }
            let watch = watch.clone();
            // SAFETY: the handler only writes to an atomic.
            unsafe { signal_hook::low_level::register(signal, move || watch.stop()) }?;
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        interrupt::hand_over();
        Ok(End { woken })
    }
    /// Waits for this time. True: a signal came.
    fn wait(&self, time: Duration) -> Result<bool, Exit> {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Exit::Failed(format!("waiting: {e}"))),
        }
        Ok(matches!((&self.woken).read(&mut [0; 8]), Ok(n) if n > 0))
    }
}
