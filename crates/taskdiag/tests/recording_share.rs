//! One user's tasks cannot take the recording from others: simulated hours in which a user rewrites
//! random arguments, starts thousands of processes with random names, or opens files with random
//! paths.

#![cfg(feature = "record")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taskdiag::cgroups::Cgroups;
use taskdiag::recording::{Options, Recording, Writer, Written};
use taskdiag::wire::{
    CG_HAS_OWNER, CUT_OTHERS, CgroupList, CgroupMember, CgroupMsg, CgroupValue, ContainerPart,
    Cred, Cut, Done, Fd, FdCount, Info, Stat, StreamWriter, build,
};
use taskdiag::{Base, Error, Group, Groups, Reason, Snapshot};

const EVERY: Duration = Duration::from_secs(60);
const HOUR: u64 = 60;
const BEGIN: u64 = 1_795_317_000;
const HOSTILE: u32 = 1000;

/// Numbers that do not compress.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ self.0 >> 33;
        x.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..n.div_ceil(8)).flat_map(|_| self.next().to_ne_bytes()).collect();
        bytes.truncate(n);
        bytes.iter_mut().for_each(|b| *b = (*b).max(1));
        bytes
    }
}

/// Activity of the hostile user in a frame.
#[derive(Clone, Copy, Default)]
struct Hostile {
    processes: u32,
    arguments: usize,
    /// Files that each has open, with random names.
    files: u32,
    /// Do they end and start again, with other names?
    are_new: bool,
    /// Control groups of the user, with random names and values.
    cgroups: u32,
}

fn arguments_of(pid: u32) -> Vec<u8> {
    format!("/usr/lib/some/program-{pid}\0--option\0value-{}\0", pid * 7919).into_bytes()
}

/// A frame: 100 processes of five harmless users, and the processes of the hostile user.
fn frame(n: u64, hostile: Hostile, random: &mut Random) -> Snapshot {
    let mut w = StreamWriter::new();
    let groups = Groups::BASE
        | Groups::CRED
        | Groups::STAT
        | Groups::CMDLINE
        | Groups::FD
        | Groups::FD_COUNT;
    w.info(&build!(Info {
        realtime_ns: (BEGIN + 60 * n) * 1_000_000_000,
        boottime_ns: (5000 + 60 * n) * 1_000_000_000,
        show_flags: groups.bits(),
        ..StreamWriter::blank_info()
    }));
    let mut task = |pid: u32,
                    uid: u32,
                    comm: &[u8],
                    start: u64,
                    arguments: &[u8],
                    files: u32,
                    random: &mut Random| {
        w.begin_task(pid, pid);
        let base =
            build!(Base { valid: Base::ALL_VALID, ppid: 1, start_time_ns: start, ..Base::new() });
        w.put_base(&base, comm);
        w.put(&build!(Cred { valid: Cred::ALL_VALID, uid, euid: uid, ..Cred::new() }));
        let utime_ns = if pid % 10 == 0 { n * u64::from(pid) * 1_000_003 } else { u64::from(pid) };
        w.put(&build!(Stat { valid: Stat::ALL_VALID, utime_ns, ..Stat::new() }));
        w.put_blob(Group::Cmdline as u16, 0, 0, arguments, arguments.len());
        w.put(&build!(FdCount { valid: FdCount::ALL_VALID, open: files, ..FdCount::new() }));
        let names: Vec<u32> = (0..files).map(|i| 0x3000_0000 + pid * 1000 + i).collect();
        for name in &names {
            w.put_name(*name, 0, &random.bytes(300));
        }
        let fds: Vec<Fd> =
            names.iter().map(|name| build!(Fd { name: *name, fd: name % 1000 })).collect();
        w.put_list(Fd::ALL_VALID, &fds);
        w.end_task();
    };
    for pid in 1..=100 {
        task(pid, pid % 5, b"program", u64::from(pid), &arguments_of(pid), 0, random);
    }
    for i in 0..hostile.processes {
        let (arguments, comm) = (random.bytes(hostile.arguments), random.bytes(15));
        let anew = if hostile.are_new { n as u32 * hostile.processes } else { 0 };
        task(
            1000 + anew + i,
            HOSTILE,
            &comm,
            u64::from(anew + i),
            &arguments,
            hostile.files,
            random,
        );
    }
    let name = (ContainerPart::Name, Ok(&b"web"[..]));
    w.container(&[(ContainerPart::Path, Ok(b"/docker/a")), name]);
    w.cgroup_list(&CgroupList::default());
    let mut group = |id: u64, path: &str, random: Option<&mut Random>| {
        let mut random = random;
        let value = |member: &CgroupMember| {
            let value = random.as_mut().map_or(4096, |random| random.next());
            build!(CgroupValue { value, member: *member as u32 })
        };
        let values: Vec<_> = CgroupMember::ALL.iter().map(value).collect();
        let uid = if path.contains("/run-") { HOSTILE } else { 0 };
        let head = CgroupMsg { id, flags: CG_HAS_OWNER, uid, ..CgroupMsg::default() };
        w.cgroup(&head, path.as_bytes(), &values);
    };
    OTHERS.iter().for_each(|path| group(1, path, None));
    for i in 0..hostile.cgroups {
        let path = format!("/user.slice/user-1000.slice/run-{:x}-{i}", random.next());
        group(random.next(), &path, Some(random));
    }
    Snapshot::parse(w.finish(Done::default())).expect("it is whole")
}

/// Control groups of others.
const OTHERS: [&str; 5] =
    ["/", "/system.slice", "/system.slice/web.service", "/user.slice", "/kubepods.slice/a/b/c/d"];

fn size(dir: &Path) -> u64 {
    let sizes = std::fs::read_dir(dir)
        .expect("it is there")
        .map(|e| e.expect("it is there").metadata().expect("it is there").len());
    sizes.sum()
}

fn options(max: u64, floor: Option<Duration>) -> Options {
    let mut options = Options::new(EVERY);
    (options.max_bytes, options.keep_at_least) = (Some(max), floor);
    options
}

/// Records these frames, and checks after each that the files are not too large.
struct Run {
    dir: tempfile::TempDir,
    random: Random,
    max: u64,
    floor: Option<Duration>,
    n: u64,
    written: BTreeMap<u64, Written>,
}

impl Run {
    fn new(max: u64, floor: Option<Duration>) -> Run {
        let dir = tempfile::tempdir().expect("there is room");
        Run { dir, random: Random(1), max, floor, n: 0, written: BTreeMap::new() }
    }
    /// A writer of its own, as after a restart.
    fn frames(&mut self, frames: u64, hostile: Hostile) {
        let mut writer =
            Writer::open(self.dir.path(), options(self.max, self.floor)).expect("it opens");
        for _ in 0..frames {
            let frame = frame(self.n, hostile, &mut self.random);
            self.written.insert(self.n, writer.append(&frame).expect("it is written"));
            self.n += 1;
            assert!(size(self.dir.path()) <= self.max + 64, "{} bytes", size(self.dir.path()));
        }
    }
    /// How many of the last frames have all of the processes of others, with their arguments.
    fn whole(&self, last: u64) -> u64 {
        let recording = Recording::open(self.dir.path()).expect("it opens");
        let is_whole = |snapshot: &Snapshot| {
            (1..=100).all(|pid| {
                let task = snapshot.task(pid);
                task.and_then(|t| t.cmdline())
                    .is_some_and(|c| !c.is_cut() && *c.data == arguments_of(pid))
            })
        };
        let first = UNIX_EPOCH + Duration::from_secs(BEGIN + 60 * (self.n - last));
        let frames =
            recording.iter().map(|f| f.expect("it is whole")).filter(|f| f.info.time >= first);
        frames.filter(|f| is_whole(&f.snapshot)).count() as u64
    }
    fn last(&self) -> Snapshot {
        let recording = Recording::open(self.dir.path()).expect("it opens");
        recording
            .at(SystemTime::now() + Duration::from_secs(1 << 30))
            .expect("whole")
            .expect("there")
            .snapshot
    }
    fn left_out(&self) -> usize {
        self.written.values().filter(|w| w.is_left_out).count()
    }
}

const FLOOR: Duration = Duration::from_secs(6 * 3600);

#[test]
fn random_arguments_of_one_user_leave_the_history_of_others() {
    let hostile = Hostile { processes: 30, arguments: 4096, ..Hostile::default() };
    // Without a time that has to stay, the hour before is gone.
    let mut run = Run::new(4 << 20, None);
    run.frames(HOUR, Hostile::default());
    run.frames(HOUR, hostile);
    assert!(run.whole(2 * HOUR) < HOUR, "{} frames are still there", run.whole(2 * HOUR));

    let mut run = Run::new(4 << 20, Some(FLOOR));
    run.frames(6 * HOUR, Hostile::default());
    run.frames(HOUR / 2, hostile);
    run.frames(HOUR / 2, hostile);
    assert_eq!((run.left_out(), run.whole(6 * HOUR)), (0, 6 * HOUR));
    let last = run.last();
    assert_eq!(last.tasks().len(), 130, "the rows of all are there");
    let names: Vec<_> = last.stream().containers().map(|c| c.part(ContainerPart::Name)).collect();
    assert_eq!(names, [Some(Ok(&b"web"[..]))], "names of containers stay");
    let cut = last.task(1010).and_then(|t| t.cmdline()).expect("it is there");
    assert!(cut.is_cut() && cut.total == 4096 && cut.data.len() < 2000, "{} bytes", cut.data.len());
    let [note] = last.stream().cuts() else { panic!("one user: {:?}", last.stream().cuts()) };
    assert_eq!((note.uid, note.tasks, note.cut_tasks), (HOSTILE, 0, 30));
    assert_eq!(last.stream().done().truncated, 30);
    let said = run.written.values().next_back().expect("there is one");
    assert_eq!(said.cuts, [*note]);
    // When it is over, all is recorded again.
    run.frames(20, Hostile::default());
    assert_eq!(run.last().stream().cuts(), []);
}

#[test]
fn arguments_of_megabytes_leave_the_history_of_others() {
    let hostile = Hostile { processes: 3, arguments: 1 << 20, ..Hostile::default() };
    let mut run = Run::new(4 << 20, Some(FLOOR));
    run.frames(HOUR, Hostile::default());
    run.frames(30, hostile);
    assert_eq!((run.left_out(), run.whole(HOUR + 30)), (0, HOUR + 30));
}

#[test]
fn thousands_of_new_processes_of_one_user_leave_the_history_of_others() {
    let hostile = Hostile { processes: 1000, arguments: 40, are_new: true, ..Hostile::default() };
    let mut run = Run::new(4 << 20, Some(FLOOR));
    run.frames(HOUR, Hostile::default());
    run.frames(40, hostile);
    assert_eq!(run.whole(HOUR + 40) + run.left_out() as u64, HOUR + 40);
    assert!(run.left_out() <= 2, "{} answers", run.left_out());
    let last = run.last();
    let note = last.stream().cuts().iter().find(|c| c.uid == HOSTILE).expect("it is named");
    assert_eq!(last.tasks().len() as u64 + note.tasks, 1100, "left out, and counted");
    assert!(note.tasks > 500);
}

#[test]
fn thousands_of_control_groups_of_one_user_leave_the_history_of_others() {
    let hostile = Hostile { cgroups: 2000, ..Hostile::default() };
    let mut run = Run::new(4 << 20, Some(FLOOR));
    run.frames(6 * HOUR, Hostile::default());
    run.frames(HOUR, hostile);
    assert_eq!((run.left_out(), run.whole(6 * HOUR)), (0, 6 * HOUR));
    let last = run.last();
    let all = Cgroups::of(&last).expect("there are some");
    let paths: Vec<_> = all.list().iter().map(|c| String::from_utf8_lossy(c.path())).collect();
    assert!(OTHERS.iter().all(|path| paths.contains(&(*path).into())), "{paths:?}");
    let left = all.left_out().no_room;
    assert!(left > 1900 && left as usize + paths.len() == 2005, "{left} and {}", paths.len());
    let remarks = all.remarks();
    assert!(remarks.iter().any(|r| r.starts_with(&format!("{left} cgroups"))), "{remarks:?}");
    assert_eq!(all.left_out_by_owner(), [(HOSTILE, left)]);
    // The tasks of others lost nothing.
    let cgroups = u32::try_from(left).expect("it is small");
    assert_eq!(last.stream().cuts(), [build!(Cut { uid: HOSTILE, cgroups })]);
}

#[test]
fn names_of_open_files_are_left_out_before_tasks() {
    let hostile = Hostile { processes: 20, arguments: 40, files: 40, ..Hostile::default() };
    let mut run = Run::new(4 << 20, Some(FLOOR));
    run.frames(HOUR, Hostile::default());
    run.frames(60, hostile);
    assert_eq!(run.whole(HOUR + 60) + run.left_out() as u64, HOUR + 60);
    assert!(run.left_out() <= 1, "{} answers", run.left_out());
    let last = run.last();
    assert_eq!(last.tasks().len(), 120);
    let of = |pid| last.task(pid).expect("it is there");
    let lost =
        (1000..1020).filter(|pid| of(*pid).reason(Group::Fd) == Some(Reason::Truncated)).count();
    assert!(lost > 0, "the lists of some are left out");
    // An existing list has its names, maybe cut.
    let entries = last.tasks().filter_map(|t| Some((t, t.list::<Fd>()?)));
    for (task, name) in entries.flat_map(|(t, l)| l.map(move |e| (t, e.raw.name))) {
        assert!(task.name(name).is_some_and(|n| n.total == 300), "{name} of {}", task.pid());
    }
}

#[test]
fn answers_without_any_room_are_counted_in_the_next_frame() {
    // The recording may be so small that the key frames of 100 processes take more than half of a
    // day's share. So fewer answers are recorded.
    let mut run = Run::new(50_000, Some(Duration::from_secs(43_200)));
    run.frames(720, Hostile::default());
    assert!(run.left_out() > 25, "{}", run.left_out());
    let first = &run.written[&0];
    assert!(!first.is_left_out, "the first answer is written");
    let recording = Recording::open(run.dir.path()).expect("it opens");
    let oldest = recording.info(0).expect("it is there").time;
    assert_eq!(oldest, UNIX_EPOCH + Duration::from_secs(BEGIN), "all of the time is there");
    let snapshots: Vec<_> = recording.iter().map(|f| f.expect("whole").snapshot).collect();
    let said: u64 = snapshots.iter().flat_map(|s| s.stream().cuts()).map(|c| c.answers).sum();
    let after = run.written.values().rev().take_while(|w| w.is_left_out).count();
    assert_eq!(said as usize + after, run.left_out());
    let other = |c: &&Cut| c.answers > 0 && c.uid != CUT_OTHERS;
    assert_eq!(snapshots.iter().flat_map(|s| s.stream().cuts()).find(other), None);
    // After that time, old files are removed again, and recording continues.
    let before = run.left_out();
    run.frames(400, Hostile::default());
    assert!(run.left_out() - before < 400, "it has stopped");
}

#[test]
fn a_size_that_holds_no_answer_is_an_error_that_says_what_to_do() {
    let dir = tempfile::tempdir().expect("there is room");
    let mut writer = Writer::open(dir.path(), options(500, Some(FLOOR))).expect("it opens");
    let e = writer.append(&frame(0, Hostile::default(), &mut Random(1))).expect_err("no room");
    assert!(matches!(&e, Error::Recording(why) if why.contains("raise --max-size")), "{e}");
}

#[test]
fn a_clock_that_was_wrong_does_not_stop_the_recording() {
    let mut run = Run::new(400_000, Some(Duration::from_secs(3600)));
    // A year ahead, for an hour, and then right again.
    run.n = 525_600;
    run.frames(HOUR, Hostile::default());
    run.n = 0;
    run.frames(3 * HOUR, Hostile::default());
    let late = run.written.iter().filter(|(n, w)| **n < 3 * HOUR && w.is_left_out).count();
    assert!(late < HOUR as usize, "{late} answers were left out");
}
