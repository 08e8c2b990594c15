//! The bpf engine: a BPF iterator program walks the kernel's own task list and writes the answer
//! in wire format into memory that is mapped here.
//!
//! No /proc file is opened and nothing stays behind: maps, program, link and iterator are closed
//! when the answer is there. There is no ptrace or hidepid check on this path. It works for
//! callers with CAP_BPF and CAP_PERFMON only, and these may read all kernel memory anyway.
//!
//! What it does not do: decide whether it is worth its load time (see `auto`).

mod shared;
mod skel;
mod sys;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Instant;

use taskdiag_wire::{Done, Group, Groups, Strategy, StreamWriter};
use zerocopy::IntoBytes;

use self::shared::*;
use self::skel::{Loaded, MapInit, Skeleton};
use self::sys::Mapping;
use crate::engine::{Answer, Cost, Engine, EngineId, Support, info};
use crate::error::Error;
use crate::request::Request;

static SNAPSHOT: Skeleton =
    Skeleton::parse(include_bytes!("../../../../../bpf/skel/snapshot.lskel"));
/// Without the groups in [`NOT_LITE`]: loads faster.
static LITE: Skeleton = Skeleton::parse(include_bytes!("../../../../../bpf/skel/lite.lskel"));
const NOT_LITE: Groups = Groups::PATHS.union(Groups::NS).union(Groups::CGROUP);

const GROUPS: Groups = Groups::BASE
    .union(Groups::CRED)
    .union(Groups::STAT)
    .union(Groups::STATM)
    .union(Groups::CMDLINE)
    .union(Groups::PATHS)
    .union(Groups::IO)
    .union(Groups::SCHED)
    .union(Groups::NS)
    .union(Groups::CGROUP);

/// The engine that walks the task list with a BPF program.
#[derive(Debug)]
pub struct Bpf {}

impl Bpf {
    /// Tries the real program on a small request, once per process; the answer is remembered.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the step that failed and what would help.
    pub fn new() -> Result<Bpf, Error> {
        static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
        let mut engine = Bpf {};
        let probe = || {
            let me = std::process::id();
            engine.run(&Request::one(me, GROUPS)).map(drop).map_err(|e| match e {
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
        Bpf {}
    }

    /// Walk the tasks and only count them: what no answer can be faster than. For benchmarks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] as for a request.
    pub fn count(&mut self, strategy: Strategy) -> Result<u64, Error> {
        let req = Request { strategy, pid: 0, groups: Groups::NONE };
        let mut run = Run::start(&req, Sizes { chunks: CHUNKS_RESERVE + 1, pids: 1 }, true)?;
        run.step()?;
        Ok(u64::from(run.state().npids))
    }
}

impl Engine for Bpf {
    fn id(&self) -> EngineId {
        EngineId::Bpf
    }

    fn support(&self) -> Support {
        Support { groups: GROUPS, strategies: Strategy::ALL.to_vec(), notes: Vec::new() }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        let unsupported = req.groups - GROUPS;
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
        let mut sizes = Sizes::estimate(req);
        loop {
            let mut run = Run::start(req, sizes, false)?;
            let mut w = StreamWriter::with_capacity(0);
            w.info(&head);
            run.step()?;
            if run.state().overflow != 0 {
                // More tasks than the list holds, and the walk has counted them.
                sizes.pids = run.state().npids + run.state().npids / 4;
                syscalls += run.syscalls;
                continue;
            }
            if req.strategy.takes_pid() && run.state().target == 0 {
                return Err(Error::NoSuchProcess(req.pid));
            }
            loop {
                run.take(&mut w);
                if run.state().done != 0 {
                    break;
                }
                run.step()?;
            }
            let s = run.state();
            let done = Done {
                tasks: s.tasks,
                vanished: s.vanished,
                truncated: s.truncated,
                ..Done::default()
            };
            syscalls += run.syscalls;
            let cost = Cost { syscalls, wall: begin.elapsed() };
            return Ok(Answer { stream: w.finish(done), cost });
        }
    }
}

/// What [`Run::start`] calls: map, update, loader, run; two mappings; link, its close, iterator;
/// and at the end two unmappings and a close of all else.
const LOAD_SYSCALLS: u64 = 19;

/// How large to make the maps.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    chunks: usize,
    pids: u32,
}

impl Sizes {
    /// From the number of tasks on the machine. Too few pids is noticed and repeated; chunks are
    /// emptied and reused, so their number is only a matter of speed.
    fn estimate(req: &Request) -> Sizes {
        if matches!(req.strategy, Strategy::One) {
            return Sizes { chunks: CHUNKS_RESERVE + 1, pids: 1 };
        }
        // sysinfo(2) has the number of tasks modulo 65536.
        let tasks = usize::from(rustix::system::sysinfo().procs);
        let each = 40 + req.groups.iter().map(typical_bytes).sum::<usize>();
        let chunks = (tasks * each).div_ceil(CHUNK_FULL) + CHUNKS_RESERVE;
        Sizes {
            chunks: chunks.clamp(CHUNKS_RESERVE + 1, CHUNKS_MAX),
            pids: tasks as u32 + tasks as u32 / 4 + 1024,
        }
    }
}

fn typical_bytes(g: Group) -> usize {
    match g {
        Group::Base | Group::Cred | Group::Stat | Group::Statm => 128,
        Group::Cmdline => 120,
        Group::Paths => 180,
        Group::Cgroup => 300,
        _ => 80,
    }
}

/// A loaded program and its memory.
struct Run {
    _loaded: Loaded,
    iter: OwnedFd,
    state: Mapping,
    out: Mapping,
    chunks: usize,
    syscalls: u64,
}

impl Run {
    fn start(req: &Request, sizes: Sizes, count_only: bool) -> Result<Run, Error> {
        let config = Config {
            groups: req.groups.bits(),
            strategy: req.strategy as u32,
            pid: req.pid,
            nchunks: sizes.chunks as u32,
            count_only: u32::from(count_only),
            page_shift: rustix::param::page_size().trailing_zeros(),
            pad: 0,
        };
        let init = [
            MapInit { name: ".rodata", max_entries: 0, value: config.as_bytes() },
            MapInit { name: "out", max_entries: sizes.chunks as u32, value: &[] },
            MapInit { name: "pids", max_entries: sizes.pids, value: &[] },
        ];
        let skeleton = if req.groups.intersects(NOT_LITE) { &SNAPSHOT } else { &LITE };
        let loaded = skeleton.load(&init).map_err(|(step, e)| unavailable(step, &e))?;
        let at = |step: &'static str| move |e: io::Error| unavailable(step, &e);
        let page = rustix::param::page_size();
        let state_len = size_of::<State>().next_multiple_of(page);
        let state = Mapping::new(loaded.map(".bss"), state_len).map_err(at("mapping the state"))?;
        let out_len = (sizes.chunks * CHUNK_SIZE).next_multiple_of(page);
        let out = Mapping::new(loaded.map("out"), out_len).map_err(at("mapping the output"))?;
        let iter = sys::iterator(&loaded.programs[0]).map_err(at("attaching the iterator"))?;
        Ok(Run { _loaded: loaded, iter, state, out, chunks: sizes.chunks, syscalls: LOAD_SYSCALLS })
    }

    fn state(&self) -> &State {
        use zerocopy::FromBytes;
        State::ref_from_bytes(self.state.slice(0, size_of::<State>())).expect("page-aligned")
    }

    fn state_mut(&mut self) -> &mut State {
        // SAFETY: the mapping is page-aligned and at least as large as State, any bytes are a
        // State, and the program writes to it only during step().
        unsafe { &mut *self.state.as_ptr().cast::<State>() }
    }

    /// Let the program write until the output is full or all is written.
    fn step(&mut self) -> Result<(), Error> {
        let mut byte = [0u8];
        loop {
            self.syscalls += 1;
            // SAFETY: one byte of room at a valid address.
            let r = unsafe { libc::read(self.iter.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
            if r >= 0 {
                // The iterator came to its end without calling the program: no task to begin on.
                return Err(unavailable("walking", &io::Error::other("no task is visible to BPF")));
            }
            match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(unavailable("walking", &e)),
            }
        }
    }

    /// Move what was written to the stream.
    fn take(&mut self, w: &mut StreamWriter) {
        let used = self.state().used;
        for (i, used) in used.iter().enumerate().take(self.chunks) {
            w.raw(self.out.slice(i * CHUNK_SIZE, *used as usize));
        }
        self.state_mut().used = [0; CHUNKS_MAX];
    }
}

fn unavailable(step: &str, e: &io::Error) -> Error {
    let why = match e.raw_os_error() {
        // The maps were made, so it is not for want of rights: the verifier refused the program.
        Some(libc::EACCES) if step == "loading the programs" => {
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
                "{step}: {e}; it needs Linux 6.8 or newer with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_JIT"
            )
        }
        _ => format!("{step}: {e}"),
    };
    Error::Unavailable { engine: EngineId::Bpf, why }
}
