//! The bpf engine: a BPF iterator program walks the kernel's own task list and writes the answer
//! in wire format into memory that is mapped here.
//!
//! No /proc file is opened and nothing stays behind: maps, program, link and iterator are closed
//! when the answer is there. There is no ptrace or hidepid check on this path. It works for
//! callers with CAP_BPF and CAP_PERFMON only, and these may read all kernel memory anyway.
//!
//! What it does not do: decide whether it is worth its load time (see `auto`).

mod btf;
mod core;
mod machine;
mod mapped;
mod offsets;
mod ram;
mod resolve;
mod shared;
mod skel;
mod sys;
mod trim;

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use taskdiag_wire::{Done, Group, Groups, Info, Strategy, StreamWriter};
use zerocopy::IntoBytes;

use self::mapped::HEAD;
pub use self::mapped::Mapped;
use self::offsets::{OFFSET_NONE, OFFSETS_MAX};
use self::shared::*;
use self::skel::{Failed, Loaded, MapInit, Skeleton};
use self::sys::Mapping;
use crate::bytes::Bytes;
use crate::engine::{self, Answer, Cost, Engine, EngineId, Support, estimate, info};
use crate::error::Error;
use crate::request::Request;

/// A program that `build.rs` says where to find: in `bpf/skel`.
macro_rules! skeleton {
    ($file:literal) => {
        Skeleton::parse(include_bytes!(concat!(env!("TASKDIAG_SKELETONS"), "/", $file)))
    };
}
static SNAPSHOT: Skeleton = skeleton!("snapshot.lskel");
/// Without the groups in [`RARE`] and [`BY_OFFSET`]: loads faster.
static LITE: Skeleton = skeleton!("lite.lskel");
/// Without those in [`RARE`]: neither do these take types of the kernel that are long to find.
static MORE: Skeleton = skeleton!("more.lskel");
/// For kernels before 6.8.
static LEGACY: Skeleton = skeleton!("legacy.lskel");
static SKELETONS: [&Skeleton; 4] = [&LITE, &MORE, &SNAPSHOT, &LEGACY];
/// Groups that take types of the kernel that are long to find.
const RARE: Groups = Groups::NS.union(Groups::CGROUP);
/// Groups for which the programs read by offset, see [`offsets`].
const BY_OFFSET: Groups = NAMED
    .union(Groups::PATHS)
    .union(Groups::ENVIRON)
    .union(Groups::LIMITS)
    .union(Groups::SIGNALS)
    .union(Groups::WCHAN)
    .union(Groups::KSTACK)
    .union(Groups::FILE_STAT)
    .union(Groups::AUTOGROUP)
    .union(Groups::LOGIN);
/// Groups with names.
const NAMED: Groups = Groups::VMA.union(Groups::FD);
/// Groups that are text in the memory of the task.
const TEXT: Groups = Groups::CMDLINE.union(Groups::ENVIRON);
/// Groups with values that tasks share.
const SHARED: Groups = NAMED.union(Groups::FD_COUNT);

/// The groups that this engine answers.
pub const GROUPS: Groups = engine::GROUPS.union(BY_OFFSET).union(Groups::FD_COUNT);

/// The engine that walks the task list with a BPF program.
#[derive(Debug, Default)]
pub struct Bpf {
    legacy: bool,
    /// Do with the least memory that there may be.
    small: bool,
    /// Mappings of the one process asked about, about.
    mappings: u64,
}

impl Bpf {
    /// Tries the real program on a small request, once per process; the answer is remembered.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the step that failed and what would help.
    pub fn new() -> Result<Bpf, Error> {
        static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
        let mut engine = Bpf::default();
        let probe = || {
            let me = std::process::id();
            engine.run(&Request::one(me, groups(GROUPS))).map(drop).map_err(|e| match e {
                Error::Unavailable { why, .. } => why,
                e => e.to_string(),
            })
        };
        match PROBE.get_or_init(probe) {
            Ok(()) => Ok(engine),
            Err(why) => Err(Error::Unavailable { engine: EngineId::Bpf, why: why.clone() }),
        }
    }

    /// Without the probe, for a caller that falls back when [`run`](Engine::run) fails: the first
    /// request is the probe then, at its real size.
    pub fn untried() -> Bpf {
        Bpf::default()
    }

    /// With the program for kernels before 6.8, also where the newer one works: so that it can be
    /// tested there.
    pub fn legacy() -> Bpf {
        Bpf { legacy: true, ..Bpf::default() }
    }

    /// To be asked about one process with about so many memory mappings: has memory for them all at
    /// once, so that they need not be copied.
    pub fn expecting(self, mappings: u64) -> Bpf {
        Bpf { mappings, ..self }
    }

    /// As after a memory limit: a long answer takes several runs of the program. For tests.
    pub fn small(self) -> Bpf {
        Bpf { small: true, ..self }
    }

    /// Does this process use the program for kernels before 6.8 because the newer one did not load
    /// here? Known after its first request.
    pub fn fell_back() -> bool {
        IS_LEGACY.load(Ordering::Relaxed)
    }

    /// Walk the tasks and only count them: what no answer can be faster than. For benchmarks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] as for a request.
    pub fn count(&mut self, strategy: Strategy) -> Result<u64, Error> {
        let req = Request::new(strategy, 0, Groups::NONE);
        let tasks = Sizes::estimate(&req, 0).tasks;
        let sizes = Sizes { chunks: CHUNKS_RESERVE + 1, tasks };
        let mut run = Run::start(&req, sizes, true, self.legacy).map_err(unavailable)?;
        run.steps().map_err(unavailable)?;
        Ok(u64::from(run.state().counted))
    }
}

impl Engine for Bpf {
    fn id(&self) -> EngineId {
        EngineId::Bpf
    }

    fn support(&self) -> Support {
        Support { groups: groups(GROUPS), strategies: Strategy::ALL.to_vec(), notes: Vec::new() }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        let unsupported = req.groups - groups(req.groups);
        if !unsupported.is_empty() {
            return Err(Error::Unsupported { engine: EngineId::Bpf, groups: unsupported });
        }
        if req.strategy.takes_pid() && (req.pid == 0 || req.pid > i32::MAX as u32) {
            return Err(Error::NoSuchProcess(req.pid));
        }
        let begin = Instant::now();
        let mut head = info::info(req);
        head.bpf_groups = req.groups.bits();
        let mut syscalls = info::SYSCALLS;
        let mut sizes = Sizes::estimate(req, self.mappings);
        if let (Strategy::All | Strategy::AllThread, true) = (req.strategy, req.watch.is_some()) {
            req.expect(sizes.tasks as usize);
        }
        let expected = sizes.chunks * CHUNK_FULL;
        sizes.chunks = sizes.chunks.min(if self.small { FEW_CHUNKS } else { OUT_CHUNKS });
        loop {
            let mut run = match Run::start(req, sizes, false, self.legacy) {
                // A memory limit: the answer does not have to be in memory of the kernel's at once.
                Err((_, e)) if is_no_memory(&e) && sizes.chunks > FEW_CHUNKS => {
                    sizes.chunks = FEW_CHUNKS;
                    continue;
                }
                run => run.map_err(unavailable)?,
            };
            let answered = run.answer(&head, req, expected)?;
            syscalls += run.syscalls;
            if let Some(stream) = answered {
                let cost = Cost { syscalls, wall: begin.elapsed(), ..Cost::default() };
                return Ok(Answer { stream, cost });
            }
            // More tasks than were expected.
            sizes.tasks = run.state().nseen.saturating_mul(2);
        }
    }
}

/// What [`Run::start`] calls: four for the kernel's types, five for the namespace; type information and its close, five maps, two
/// values, a freeze, the program; a mapping, link, its close, iterator; and at the end the mapping of the
/// output, two unmappings and seven closes.
const LOAD_SYSCALLS: u64 = 34;

/// Chunks of output at most, 9 MB: to make, map and give back kernel memory holds a CPU, for 150 ms where it
/// was large enough for any answer. A larger answer is copied out whenever this is full.
const OUT_CHUNKS: usize = 16;

/// Chunks to do with where memory is limited.
const FEW_CHUNKS: usize = CHUNKS_RESERVE + 2;

/// How long the program runs before it gives the CPU back: nothing else may run on it meanwhile
/// where the kernel is not preemptible. What a run costs beside its work is some microseconds.
const SLICE_NS: u64 = 1_000_000;

/// How large to make the maps.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    chunks: usize,
    /// Tasks that the walk may see.
    tasks: u32,
}

impl Sizes {
    /// From the number of tasks on the machine, so that the whole answer fits if it is not huge.
    /// A wrong guess costs time only: chunks are emptied and reused, and too short a list of tasks
    /// is noticed and the walk repeated.
    fn estimate(req: &Request, mappings: u64) -> Sizes {
        let tasks = match req.strategy {
            Strategy::One => {
                let mappings = usize::try_from(mappings).unwrap_or(usize::MAX);
                // A third more than was estimated: what does not fit is copied, with all the rest.
                let bytes = mappings.saturating_mul(size_of::<taskdiag_wire::Vma>() * 4 / 3);
                let chunks = bytes / CHUNK_FULL + reserve(req.groups) + 1;
                return Sizes { chunks: chunks.min(CHUNKS_MAX), tasks: 2 };
            }
            Strategy::All | Strategy::Children => estimate::processes(),
            Strategy::AllThread | Strategy::Thread => estimate::threads(),
        };
        let size = |groups: Groups| groups.iter().map(typical_bytes).sum::<usize>();
        let part = |n: usize| match req.strategy {
            Strategy::All | Strategy::AllThread => n,
            _ => n / 4,
        };
        // Threads mostly share what they can share, and say so.
        let shared = req.groups & SHARED;
        let says = shared.iter().count() * size_of::<taskdiag_wire::Shared>();
        let processes = if shared.is_empty() { 0 } else { estimate::processes() };
        let answer =
            part(tasks) * (32 + size(req.groups - SHARED) + says) + part(processes) * size(shared);
        let chunks = answer.div_ceil(CHUNK_FULL) + reserve(req.groups) + 1;
        Sizes { chunks: chunks.min(CHUNKS_MAX), tasks: (2 * tasks + 2048) as u32 }
    }
}

/// Chunks to keep for a task that is begun, beside the one that it is begun in: a task may have many groups
/// of users and long paths; a value that is no list may begin a chunk; what is of a fixed size fits.
fn reserve(groups: Groups) -> usize {
    const FIXED: Groups = Groups::BASE
        .union(Groups::STAT)
        .union(Groups::STATM)
        .union(Groups::IO)
        .union(Groups::SCHED)
        .union(Groups::FD_COUNT);
    const IN_PIECES: Groups = Groups::CMDLINE.union(Groups::VMA);
    match (FIXED.contains(groups), FIXED.union(IN_PIECES).contains(groups)) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => CHUNKS_RESERVE,
    }
}

/// Those of `asked` that it has here: paths of cgroups are relative to the root of a cgroup namespace,
/// which is left to the kernel's text. Nothing is looked at for other groups.
pub(super) fn groups(asked: Groups) -> Groups {
    // PROC_CGROUP_INIT_INO, the same on every machine.
    const FIRST: u64 = 0xefff_fffb;
    let elsewhere = || rustix::fs::stat("/proc/self/ns/cgroup").is_ok_and(|s| s.st_ino != FIRST);
    let all = asked & GROUPS;
    if asked.has(Group::Cgroup) && elsewhere() { all - Groups::CGROUP } else { all }
}

/// Are we in the first pid namespace, whose inode has had this number since Linux 3.8? Where it cannot be
/// told (before Linux 6.11), the program asks itself. Not by /proc/self/ns/pid: that makes inodes.
fn in_first_pid_namespace() -> bool {
    const FIRST: u64 = 0xefff_fffc;
    sys::own_pid_namespace().is_ok_and(|inode| inode == FIRST)
}

fn typical_bytes(g: Group) -> usize {
    match g {
        Group::Base => size_of::<taskdiag_wire::Base>(),
        Group::Cred => size_of::<taskdiag_wire::Cred>() + 24,
        Group::Stat => size_of::<taskdiag_wire::Stat>(),
        Group::Statm => size_of::<taskdiag_wire::Statm>(),
        Group::FdCount => size_of::<taskdiag_wire::FdCount>(),
        Group::Cmdline => 96,
        Group::Paths => 160,
        Group::FileStat => 3 * size_of::<taskdiag_wire::FileStat>() + 24,
        Group::Cgroup => 360,
        Group::Vma => 30 * size_of::<taskdiag_wire::Vma>(),
        Group::Fd => 12 * size_of::<taskdiag_wire::Fd>(),
        _ => 80,
    }
}

/// A loaded program and its memory.
struct Run {
    loaded: Loaded,
    legacy: bool,
    iter: OwnedFd,
    state: Mapping,
    chunks: usize,
    syscalls: u64,
}

impl Run {
    fn start(req: &Request, sizes: Sizes, count_only: bool, legacy: bool) -> Result<Run, Failed> {
        let by_offset = req.groups.intersects(BY_OFFSET);
        let offsets = if by_offset {
            offsets::offsets().map_err(|e| ("finding the kernel's structs", io::Error::other(e)))?
        } else {
            [OFFSET_NONE; OFFSETS_MAX]
        };
        let gate = req.groups.contains(Groups::VMA).then(offsets::gate).flatten();
        let (gate_start, gate_end, gate_perms) = gate.unwrap_or_default();
        let (skip_base, skip_stat) = req.members.skipped();
        let text = req.groups.intersects(TEXT);
        let (ram_end, pte_address) = if text { ram::limits() } else { (0, 0) };
        // What is forgotten for want of room is written again. One process has fewer names than all, and
        // shares with none; no more is shared than there are processes.
        let one = req.strategy == Strategy::One;
        let table = |of: Groups, n: u32| if req.groups.intersects(of) { n } else { 1 };
        let names = table(NAMED, if one { NAMES_MAX / 8 } else { NAMES_MAX });
        let shared = match req.groups.intersects(SHARED) && !one {
            true => {
                estimate::processes().next_power_of_two().clamp(256, SHARED_MAX as usize) as u32
            }
            false => 1,
        };
        let config = Config {
            groups: req.groups.bits(),
            strategy: req.strategy as u32,
            pid: req.pid,
            nchunks: sizes.chunks as u32,
            count_only: u32::from(count_only),
            page_shift: rustix::param::page_size().trailing_zeros(),
            gate_perms,
            skip_base,
            skip_stat,
            reserve: reserve(req.groups) as u32,
            first_ns: u32::from(in_first_pid_namespace()),
            names_mask: names - 1,
            shared_mask: shared - 1,
            expected: sizes.tasks / 2,
            reserved: 0,
            slice_ns: SLICE_NS,
            ram_end,
            pte_address,
            gate_start,
            gate_end,
            frame_format: *b"[<0>] %pB\n\0\0\0\0\0\0",
            symbol_format: *b"%ps\0\0\0\0\0",
            number_format: *b"%llu\0\0\0\0",
            offsets,
        };
        let init = [
            MapInit { name: skel::RODATA, max_entries: 0, value: config.as_bytes() },
            MapInit { name: "out", max_entries: sizes.chunks as u32, value: &[] },
            MapInit { name: "seen", max_entries: sizes.tasks, value: &[] },
            MapInit { name: "names", max_entries: names, value: &[] },
            MapInit { name: "shared", max_entries: shared, value: &[] },
        ];
        let (loaded, legacy) = load(req.groups, &init, legacy)?;
        let at = |step: &'static str| move |e: io::Error| (step, e);
        let page = rustix::param::page_size();
        let state = Mapping::new(loaded.map(".bss"), page).map_err(at("mapping the state"))?;
        let link = sys::link(&loaded.programs[0]).map_err(at("attaching the iterator"))?;
        let iter = sys::iterator(&link).map_err(at("opening the iterator"))?;
        let mut run =
            Run { loaded, legacy, iter, state, chunks: sizes.chunks, syscalls: LOAD_SYSCALLS };
        run.set(offset_of!(State, off), HEAD as u32);
        if legacy && req.strategy.takes_pid() {
            // The first pass only finds the process that the pid belongs to.
            run.steps()?;
            run.set(offset_of!(State, done), 0);
            run.set(offset_of!(State, walking), 1);
            run.iter = sys::iterator(&link).map_err(at("opening the iterator"))?;
        }
        Ok(run)
    }

    fn state(&self) -> &State {
        use zerocopy::FromBytes;
        State::ref_from_bytes(self.state.slice(0, size_of::<State>())).expect("page-aligned")
    }

    /// Set a u32 of the state; the program does not run meanwhile.
    fn set(&mut self, offset: usize, value: u32) {
        self.state.slice_mut(offset, 4).copy_from_slice(&value.to_ne_bytes());
    }

    /// Let the program write until the output is full, its time is over, or all is written.
    fn step(&mut self) -> Result<(), Failed> {
        let mut byte = [0u8];
        loop {
            self.syscalls += 1;
            // SAFETY: one byte of room at a valid address.
            let r = unsafe { libc::read(self.iter.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
            if r >= 0 && self.legacy {
                // The kernel's own iterator came to its end.
                self.set(offset_of!(State, done), 1);
                return Ok(());
            }
            if r >= 0 {
                // It ended without calling the program: there is no task to begin on.
                return Err(("walking", io::Error::other("no task is visible to BPF")));
            }
            match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(("walking", e)),
            }
        }
    }

    /// Let the program run to its end, without output.
    fn steps(&mut self) -> Result<(), Failed> {
        while self.state().done == 0 {
            self.step()?;
        }
        Ok(())
    }

    /// The whole stream: in place if all of it is there at the end, else copied chunk by chunk.
    /// `None`: the list of tasks seen was too short. `expected`: about how many bytes it may have.
    ///
    /// Where the caller ends it between two runs, it is what there is so far, and the rest of the
    /// task that is begun.
    fn answer(
        &mut self,
        head: &Info,
        req: &Request,
        expected: usize,
    ) -> Result<Option<Bytes>, Error> {
        let (mut copied, mut whole) = (None::<StreamWriter>, None);
        let (mut seen, mut stopped) = (0, false);
        loop {
            self.step().map_err(unavailable)?;
            let State { done, overflow, full, target, tasks, .. } = *self.state();
            if overflow != 0 {
                return Ok(None);
            }
            if done != 0 && req.strategy.takes_pid() && target == 0 {
                return Err(Error::NoSuchProcess(req.pid));
            }
            if req.strategy.takes_pid() {
                // How many there are is known when they are there.
                req.expect((tasks - seen) as usize);
            }
            req.advance((tasks - seen) as usize);
            seen = tasks;
            if done != 0 || full != 0 {
                let error = if stopped { -libc::EINTR } else { 0 };
                let used = self.state().used;
                if done != 0 && copied.is_none() {
                    let out = self.output(mapped::extent(&used[..self.chunks]).1)?;
                    let totals = Done { error, ..self.totals() };
                    let mut first = StreamWriter::new();
                    first.info(head);
                    let first = first.finish(Done::default());
                    let head = &first.as_bytes()[..HEAD];
                    match Mapped::new(out, &used[..self.chunks], head, &totals) {
                        Ok(m) => return Ok(Some(m.into())),
                        Err(memory) => whole = Some(memory),
                    }
                }
                let out = match whole.take() {
                    Some(out) => out,
                    None => self.output(self.chunks * CHUNK_SIZE)?,
                };
                let mut from = if copied.is_none() { HEAD } else { 0 };
                let w = copied.get_or_insert_with(|| {
                    let mut w = StreamWriter::with_capacity(expected);
                    w.info(head);
                    w
                });
                for (i, used) in used.iter().enumerate().take(self.chunks).filter(|u| *u.1 != 0) {
                    w.raw(out.slice(i * CHUNK_SIZE + from, *used as usize - from));
                    from = 0;
                }
                whole = Some(out);
                if done != 0 {
                    let w = copied.take().expect("made above");
                    return Ok(Some(w.finish(Done { error, ..self.totals() }).into()));
                }
                self.state.slice_mut(offset_of!(State, used), size_of_val(&used)).fill(0);
                self.set(offset_of!(State, chunk), 0);
                self.set(offset_of!(State, off), 0);
            }
            if req.is_stopped() && !stopped {
                stopped = true;
                self.set(offset_of!(State, stop), 1);
            }
        }
    }

    /// The first `len` bytes of the output, and a little more: each page that is mapped costs time, and
    /// most answers are shorter than the memory that is there for them.
    fn output(&self, len: usize) -> Result<Mapping, Error> {
        let all = self.chunks * CHUNK_SIZE;
        let len = (len + mapped::SPARE).min(all).next_multiple_of(rustix::param::page_size());
        Mapping::new(self.loaded.map("out"), len)
            .map_err(|e| unavailable(("mapping the output", e)))
    }

    fn totals(&self) -> Done {
        let s = self.state();
        Done {
            tasks: s.tasks,
            vanished: s.vanished,
            truncated: s.truncated,
            blocked: s.blocked,
            ..Done::default()
        }
    }
}

/// Did the newer program not load here, and the older one did?
static IS_LEGACY: AtomicBool = AtomicBool::new(false);

/// The program for this kernel: the newest kind that loads, which is remembered.
fn load(groups: Groups, init: &[MapInit<'_>], legacy: bool) -> Result<(Loaded, bool), Failed> {
    let skeleton = match (groups.intersects(RARE), groups.intersects(BY_OFFSET)) {
        (true, _) => &SNAPSHOT,
        (false, true) => &MORE,
        (false, false) => &LITE,
    };
    let failed = if legacy || IS_LEGACY.load(Ordering::Relaxed) {
        None
    } else {
        match skeleton.load(init) {
            Ok(loaded) => return Ok((loaded, false)),
            // Too few rights or memory, or signal upon signal: the other program would fare no better.
            Err(e) if e.0 != skel::PROGRAMS || is_no_memory(&e.1) || is_signal(&e.1) => {
                return Err(e);
            }
            Err(e) => Some(e),
        }
    };
    match LEGACY.load(init) {
        Ok(loaded) => {
            IS_LEGACY.fetch_or(!legacy, Ordering::Relaxed);
            Ok((loaded, true))
        }
        Err(e) => Err(failed.unwrap_or(e)),
    }
}

fn is_no_memory(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ENOMEM)
}

/// The verifier gives up when one comes.
fn is_signal(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EAGAIN)
}

fn unavailable((step, e): Failed) -> Error {
    let why = match e.raw_os_error() {
        // The maps were made, so it is not for want of rights: the verifier refused the program.
        Some(libc::EACCES) if step == skel::PROGRAMS => {
            format!("{step}: this kernel's verifier refused it; please report the kernel version")
        }
        Some(libc::EPERM | libc::EACCES) => {
            format!(
                "{step}: {e}; it needs root, or CAP_BPF and CAP_PERFMON, and no seccomp filter that denies bpf()"
            )
        }
        Some(libc::ENOSYS) => format!("{step}: bpf() is not there or denied by a seccomp filter"),
        Some(libc::ENOMEM) => format!("{step}: {e}; is there a memory limit on this cgroup?"),
        Some(libc::EMFILE | libc::ENFILE) => format!("{step}: {e}; raise the limit with ulimit -n"),
        Some(libc::EINVAL | libc::ENOENT | libc::EOPNOTSUPP | libc::ESRCH) => {
            format!(
                "{step}: {e}; it needs Linux 6.1 or newer with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_JIT"
            )
        }
        _ => format!("{step}: {e}"),
    };
    Error::Unavailable { engine: EngineId::Bpf, why }
}
