//! The bpf engine: a BPF iterator program walks the kernel's own task list and writes the answer
//! in wire format into memory that is mapped here.
//!
//! No /proc file is opened, except that the devices of files on an overlay, or on a btrfs that is a
//! module, are read from the links there (see `devices`). Nothing stays behind: maps, program, link
//! and iterator are closed when the answer is complete, or when the session that keeps them ends.
//! There is no ptrace or hidepid check on this path. It works only for callers with CAP_BPF and
//! CAP_PERFMON, and these may read all kernel memory anyway.
//!
//! This module does not decide whether the load time is worth it (see `auto`).

mod attrs;
mod btf;
mod core;
mod devices;
mod machine;
mod mapped;
mod offsets;
#[cfg(test)]
mod order;
mod ram;
mod resolve;
mod run;
mod seccomp;
mod shared;
mod sizes;
mod skel;
mod sys;
mod trim;
mod waits;

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::thread::CapabilitySet;
use taskdiag_wire::{AlignedBuf, Group, Groups, Info, Strategy};

use self::run::{IS_LEGACY, LoadedProgram};
use self::shared::CHUNK_FULL;
use self::sizes::Sizes;
use self::skel::{Failed, Skeleton};
use crate::bytes::Bytes;
use crate::engine::{Answer, Cost, Engine, EngineId, Support, info};
use crate::error::{Cause, Error};
use crate::large;
use crate::request::{ByteLimits, Members, Request};

static SNAPSHOT: Skeleton = Skeleton::parse(taskdiag_bpf::SNAPSHOT);
/// With [`Groups::BPF_LITE`] only, so it loads faster.
static LITE: Skeleton = Skeleton::parse(taskdiag_bpf::LITE);
/// The program without [`Groups::BPF_RARE`], which needs none of the kernel types that take long to
/// find.
static MORE: Skeleton = Skeleton::parse(taskdiag_bpf::MORE);
/// For kernels before 6.8.
static LEGACY: Skeleton = Skeleton::parse(taskdiag_bpf::LEGACY);
static SKELETONS: [&Skeleton; 4] = [&LITE, &MORE, &SNAPSHOT, &LEGACY];

/// The groups that this engine answers.
pub const GROUPS: Groups = Groups::BPF;

/// Whether this build has the engine.
pub(crate) const IS_BUILT: bool = true;

/// The engine that walks the task list with a BPF program.
#[derive(Debug, Default)]
pub struct Bpf {
    legacy: bool,
    /// The approximate number of mappings of the request's process.
    mappings: u64,
    /// For tests: load the code that looks ahead, even for a short list.
    ahead: bool,
    /// For tests: remember two tasks, end each run soon, and rest after it.
    forgetful: bool,
    /// How often a walk lost its place and was repeated.
    repeats: u64,
    /// The longest processor time that one run of a program took.
    #[cfg(feature = "testing")]
    longest: std::time::Duration,
    /// Whether the loaded program is kept for the next request.
    keep: bool,
    kept: Option<LoadedRequest>,
    /// Memory for the next answer.
    spare: AlignedBuf,
    /// The limit of the stream's length.
    most: Option<usize>,
}

/// A loaded program, and the request that it was loaded for.
#[derive(Debug)]
struct LoadedRequest {
    run: LoadedProgram,
    strategy: Strategy,
    pid: u32,
    groups: Groups,
    members: Members,
    limits: ByteLimits,
    /// The process that loaded it: a child may be in another pid namespace, which the program would
    /// not know.
    loaded_by: u32,
    /// The approximate size of an answer in bytes.
    expected: usize,
}

impl LoadedRequest {
    fn is_for(&self, req: &Request) -> bool {
        (self.strategy, self.pid, self.groups, self.members, self.limits)
            == (req.strategy, req.pid, req.groups, req.members, req.limits)
            && self.loaded_by == std::process::id()
    }
}

impl Bpf {
    /// Tries the real program on a small request. If it works, this process does not try again. If
    /// it fails, the next call tries again, because the reason may be gone.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the step that failed and what would help.
    pub fn new() -> Result<Bpf, Error> {
        static WORKS: AtomicBool = AtomicBool::new(false);
        let mut engine = Bpf::default();
        if !WORKS.load(Ordering::Relaxed) {
            let mut try_all = || engine.run(&Request::one(std::process::id(), groups(GROUPS)));
            // After the first try it is known which groups need a newer kernel.
            let tried = match try_all() {
                Err(Error::Unsupported { .. }) => try_all(),
                tried => tried,
            };
            tried.map_err(|e| match e {
                e @ Error::Unavailable { .. } => e,
                e => Error::Unavailable {
                    engine: EngineId::Bpf,
                    cause: Cause::Other,
                    why: e.to_string(),
                },
            })?;
            WORKS.store(true, Ordering::Relaxed);
        }
        Ok(engine)
    }

    /// An engine that was not probed, for a caller that falls back when [`run`](Engine::run) fails.
    /// The first request is the probe then, at its real size.
    pub fn untried() -> Bpf {
        Bpf::default()
    }

    /// An engine that always uses the program for kernels before 6.8, so that it can be tested on
    /// newer ones.
    #[cfg(feature = "testing")]
    pub fn legacy() -> Bpf {
        Bpf { legacy: true, ..Bpf::default() }
    }

    /// Looks ahead in lists of any length, so that a test does not need thousands of tasks.
    #[cfg(feature = "testing")]
    pub fn looking_ahead(self) -> Bpf {
        Bpf { ahead: true, ..self }
    }

    /// At first, it remembers only two tasks of a walk, and its runs are short with pauses between
    /// them, so that it often loses its place.
    #[cfg(feature = "testing")]
    pub fn forgetful(self) -> Bpf {
        Bpf { forgetful: true, ..self }
    }

    /// How often a walk lost its place and was repeated.
    #[cfg(feature = "testing")]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// The longest processor time of a run of a program so far. If the kernel is not preemptible,
    /// nothing else runs on that processor during this time.
    #[cfg(feature = "testing")]
    pub fn longest_run(&self) -> std::time::Duration {
        self.longest
    }

    /// For requests that are themselves the test. With `keep`, programs stay loaded for the next
    /// request. There is room for this many mappings of one process. This cannot fail.
    pub(crate) fn open(keep: bool, mappings: u64) -> Result<Bpf, Error> {
        Ok(Bpf { keep, mappings, ..Bpf::default() })
    }

    /// Prepares for a request about one process with approximately this many memory mappings, so
    /// that the memory of the answer does not have to grow.
    pub fn expecting(self, mappings: u64) -> Bpf {
        Bpf { mappings, ..self }
    }

    /// Keep program, maps and link loaded, so that the same request needs no load the next time.
    /// They take some descriptors and about 3 MB of kernel memory, and nothing runs between two
    /// requests.
    pub fn keeping(self) -> Bpf {
        Bpf { keep: true, ..self }
    }

    /// An engine whose walk ends with an error ([`Cause::Limit`]) when the stream is longer than
    /// this. Programs have to be [kept](Self::keeping) loaded.
    #[must_use]
    pub fn at_most(self, bytes: usize) -> Bpf {
        Bpf { most: Some(bytes), ..self }
    }

    /// Give back the memory of an answer that is not needed any more, so that the next answer can
    /// use it.
    pub fn recycle(&mut self, memory: AlignedBuf) {
        if self.keep {
            self.spare = memory;
        }
    }

    /// Adds the file descriptors that are open until the next request.
    pub(crate) fn descriptors(&self, all: &mut Vec<RawFd>) {
        if let Some(kept) = &self.kept {
            kept.run.descriptors(all);
        }
    }

    /// Does this process use the program for kernels before 6.8, because the newer one did not
    /// load? This is known after its first request.
    pub fn fell_back() -> bool {
        IS_LEGACY.load(Ordering::Relaxed)
    }

    /// The members that the programs read by offset and this kernel has, by their names in
    /// `bpf/offsets.h`, with their sizes in bytes.
    #[cfg(feature = "testing")]
    pub fn member_widths() -> Vec<(&'static str, u32)> {
        offsets::widths()
    }

    /// Walk the tasks and only count them. No answer can be faster, so benchmarks compare with it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] as for a request.
    #[cfg(feature = "testing")]
    pub fn count(&mut self, strategy: Strategy) -> Result<u64, Error> {
        let req = Request::new(strategy, 0, Groups::NONE);
        let sizes = Sizes { chunks: shared::CHUNKS_RESERVE + 1, ..Sizes::estimate(&req, 0) };
        may_be_called()?;
        let mut run = LoadedProgram::start(&req, sizes, true, self.legacy).map_err(unavailable)?;
        run.steps().map_err(unavailable)?;
        Ok(u64::from(run.state().counted))
    }
}

impl Engine for Bpf {
    fn id(&self) -> EngineId {
        EngineId::Bpf
    }

    fn support(&self) -> Support {
        let groups = groups(GROUPS);
        let note = "page tables of this architecture are not read, so the text comes from /proc";
        let text = (groups & Groups::TEXTS).iter().filter(|_| !ram::is_understood());
        let lacking = offsets::known().into_iter().flat_map(offsets::Offsets::needs);
        let notes = text.map(|g| (g, note.to_owned())).chain(lacking).collect();
        Support { groups, strategies: Strategy::ALL.to_vec(), notes }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        supports(req.groups)?;
        if req.strategy.takes_pid() && (req.pid == 0 || req.pid > i32::MAX as u32) {
            return Err(Error::NoSuchProcess(req.pid));
        }
        let begin = Instant::now();
        let mut head = info::info(req);
        head.bpf_groups = req.groups.bits();
        let (mut stream, mut syscalls) = match self.kept.take().filter(|k| k.is_for(req)) {
            Some(kept) => match self.again(kept, &head, req)? {
                Some(answered) => answered,
                None => self.load_and_answer(&head, req)?,
            },
            None => self.load_and_answer(&head, req)?,
        };
        if req.groups.intersects(Groups::FD | Groups::FILE_STAT) {
            syscalls += devices::complete(stream.bytes_mut());
        }
        if req.groups.has(Group::Wait) {
            syscalls += waits::complete(stream.bytes_mut());
        }
        let syscalls = info::SYSCALLS + syscalls;
        let cost = Cost { syscalls, wall: begin.elapsed(), ..Cost::default() };
        Ok(Answer { stream, cost })
    }
}

impl Bpf {
    /// Answers with the loaded program. `None` if it has to be loaded again.
    fn again(
        &mut self,
        mut kept: LoadedRequest,
        head: &Info,
        req: &Request,
    ) -> Result<Option<(Bytes, u64)>, Error> {
        if !kept.run.restart(req).map_err(unavailable)? {
            return Ok(None);
        }
        let memory = self.memory(kept.expected);
        let answered = match kept.run.answer(head, req, 0, Some(memory)) {
            // The loaded program can still be used.
            Err(e @ Error::NoSuchProcess(_)) => {
                self.kept = Some(kept);
                return Err(e);
            }
            answered => answered?,
        };
        let Some(stream) = answered else {
            self.repeats += 1;
            return Ok(None);
        };
        let syscalls = kept.run.syscalls;
        self.kept = Some(kept);
        Ok(Some((stream, syscalls)))
    }

    /// Memory for an answer that the caller keeps while the next one is made: that of an older
    /// answer, or new memory.
    fn memory(&mut self, expected: usize) -> AlignedBuf {
        match std::mem::take(&mut self.spare) {
            none if none.is_empty() => large::buffer(expected),
            older => older,
        }
    }

    /// Load the program for this request and answer it. Returns the stream and the number of system
    /// calls.
    fn load_and_answer(&mut self, head: &Info, req: &Request) -> Result<(Bytes, u64), Error> {
        may_be_called()?;
        if req.groups.intersects(Groups::BPF_MORE) {
            offsets::offsets().map_err(|e| unavailable((STRUCTS, io::Error::other(e))))?;
            supports(req.groups)?;
        }
        let mut sizes = Sizes::estimate(req, self.mappings);
        if self.ahead && req.strategy != Strategy::One {
            sizes.ahead = shared::AHEAD_OF_PROCESSES | shared::AHEAD_OF_THREADS;
        }
        // The number of tasks in a part is not known, so its memory starts small and grows.
        let chunks = if req.processes.is_all() { sizes.chunks } else { 1 };
        let expected = chunks * CHUNK_FULL;
        sizes.chunks = sizes.chunks.min(sizes::most(req.groups));
        if self.forgetful {
            sizes = Sizes { seen: 2, forgetful: true, ..sizes };
        }
        let mut syscalls = 0;
        loop {
            // A walk that starts again visits all tasks again.
            if matches!(req.strategy, Strategy::All | Strategy::AllThread) {
                req.expect(sizes.tasks);
            }
            let mut run =
                LoadedProgram::start(req, sizes, false, self.legacy).map_err(unavailable)?;
            run.most = self.most.unwrap_or(usize::MAX);
            let memory = self.keep.then(|| self.memory(expected));
            let answered = run.answer(head, req, expected, memory)?;
            syscalls += run.syscalls;
            #[cfg(feature = "testing")]
            {
                self.longest = self.longest.max(run.longest);
            }
            if let Some(stream) = answered {
                if self.keep {
                    let &Request { strategy, pid, groups, members, limits, .. } = req;
                    let loaded_by = std::process::id();
                    let kept = LoadedRequest {
                        run,
                        strategy,
                        pid,
                        groups,
                        members,
                        limits,
                        loaded_by,
                        expected,
                    };
                    self.kept = Some(kept);
                }
                return Ok((stream, syscalls));
            }
            // All tasks that it remembered have ended.
            sizes.seen *= 2;
            self.repeats += 1;
        }
    }
}

/// Fails if this engine cannot answer all of these groups here.
fn supports(asked: Groups) -> Result<(), Error> {
    let lacks = asked - groups(asked);
    if lacks.is_empty() {
        return Ok(());
    }
    let needs = offsets::known().into_iter().flat_map(offsets::Offsets::needs);
    let why: String = needs.filter(|(g, _)| lacks.has(*g)).map(|(_, n)| format!(": {n}")).collect();
    Err(Error::Unsupported { engine: EngineId::Bpf, groups: lacks, why })
}

/// The groups of `asked` that the engine can answer for this process. In a cgroup namespace, paths
/// of cgroups are relative to its root, which only the kernel's text shows, so CGROUP is left out
/// there. Which groups an older kernel lacks is known only after the first request that needs them.
/// Finding it out takes a millisecond, which a request that /proc will answer should not cost.
pub(super) fn groups(asked: Groups) -> Groups {
    // PROC_CGROUP_INIT_INO, the same on every machine.
    const FIRST: u64 = 0xefff_fffb;
    let elsewhere = || rustix::fs::stat("/proc/self/ns/cgroup").is_ok_and(|s| s.st_ino != FIRST);
    let all = (asked & GROUPS) - offsets::known().map_or(Groups::NONE, offsets::Offsets::lacking);
    if asked.has(Group::Cgroup) && elsewhere() { all - Groups::CGROUP } else { all }
}

/// The name of the step that fails if the kernel lacks types that the programs need.
const STRUCTS: &str = "finding the kernel's structs";

/// The hint for missing rights.
const RIGHTS: &str =
    "; it needs root, or CAP_BPF and CAP_PERFMON, and no seccomp filter that denies bpf()";

/// The hint if the kernel refuses although the process has these rights.
const REFUSAL: &str = "; this process has CAP_BPF and CAP_PERFMON, so a seccomp filter, a security module (also a BPF program that \
                       is one) or a user namespace denies bpf(): allow the call, or run it outside of the container";

/// Where the kernel shows how far it is locked down, with brackets around the word that holds.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// The hint if a security module refuses.
const POLICY: &str = "; a security module such as SELinux, or a seccomp filter, denies bpf() to this process: look for a denial in the \
                      audit log (ausearch -m avc)";

fn is_no_memory(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ENOMEM)
}

/// Did a signal arrive, which makes the verifier give up?
fn is_signal(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EAGAIN)
}

/// Does this process have the capabilities that the programs need? If they belong to another user
/// namespace, the kernel still refuses the load.
fn is_capable() -> bool {
    // If they cannot be read, the kernel decides.
    rustix::thread::capabilities(None).map_or(true, |c| {
        let has = |one| c.effective.intersects(one | CapabilitySet::SYS_ADMIN);
        has(CapabilitySet::BPF) && has(CapabilitySet::PERFMON)
    })
}

/// Fails if a call of bpf(2) would end this process. Also fails early if the call would be refused,
/// before the types of the kernel are read.
fn may_be_called() -> Result<(), Error> {
    let (cause, why) = match is_capable().then(seccomp::kills) {
        None => (Cause::NoPermission, format!("this process may not load programs{RIGHTS}")),
        Some(Ok(false)) => return Ok(()),
        Some(Ok(true)) => (
            Cause::NoPermission,
            "a seccomp filter ends programs that call bpf(2); it has to allow the call (in a unit of systemd: \
             SystemCallFilter=bpf)"
                .to_owned(),
        ),
        Some(Err(e)) => {
            (Cause::Limit, format!("asking a child process whether the seccomp filter allows bpf(2): {e}"))
        }
    };
    Err(Error::Unavailable { engine: EngineId::Bpf, cause, why })
}

/// Does this kernel let no program read its memory? It then has no helper that does, and the
/// verifier rejects the programs as it would on a kernel that is too old.
fn is_locked_down() -> bool {
    let states = std::fs::read_to_string(LOCKDOWN).or_else(|_| {
        // Where securityfs is not mounted, the parameter of the boot is known.
        let line = std::fs::read_to_string("/proc/cmdline")?;
        let words = line.split_whitespace().filter_map(|w| w.strip_prefix("lockdown="));
        io::Result::Ok(words.map(|state| format!("[{state}]")).collect())
    });
    states.is_ok_and(|s| s.contains("[confidentiality]"))
}

fn unavailable((step, e): Failed) -> Error {
    if e.raw_os_error().is_some_and(|errno| errno != libc::ENOMEM) && is_locked_down() {
        let why = "the kernel is locked down (confidentiality), so no program may read its memory; boot without \
                   lockdown=confidentiality (integrity is no hindrance)";
        let (cause, why) = (Cause::NoPermission, why.to_owned());
        return Error::Unavailable { engine: EngineId::Bpf, cause, why };
    }
    let name = if step == skel::REFUSED { skel::PROGRAMS } else { step };
    // A kernel that is too old may refuse anything: before Linux 5.11, maps count as locked memory.
    if let (Some(libc::EPERM | libc::EINVAL), Err(why)) = (e.raw_os_error(), offsets::offsets()) {
        return unavailable((STRUCTS, io::Error::other(why)));
    }
    let (cause, advice) = match e.raw_os_error() {
        Some(libc::EACCES) if step == skel::REFUSED => {
            let why = "this kernel's verifier refused it; please report the kernel version";
            let why = format!("{}: {why}", skel::PROGRAMS);
            return Error::Unavailable { engine: EngineId::Bpf, cause: Cause::NotSupported, why };
        }
        Some(libc::EPERM) => (Cause::NoPermission, REFUSAL),
        // bpf(2) itself returns EPERM if rights are missing.
        Some(libc::EACCES) => (Cause::NoPermission, POLICY),
        Some(libc::ENOSYS) => {
            (Cause::NotSupported, "; the kernel lacks bpf(), or a seccomp filter denies it")
        }
        Some(libc::ENOMEM) => (Cause::Limit, "; is there a memory limit on this cgroup?"),
        Some(libc::EMFILE | libc::ENFILE) => (Cause::Limit, "; raise the limit with ulimit -n"),
        Some(libc::EINVAL | libc::ENOENT | libc::EOPNOTSUPP | libc::ESRCH) => {
            let why = format!(
                "{name}: {e}; it needs Linux {} or newer with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_JIT",
                offsets::OLDEST
            );
            return Error::Unavailable { engine: EngineId::Bpf, cause: Cause::NotSupported, why };
        }
        None if step == STRUCTS => (Cause::NotSupported, ""),
        _ => (Cause::Other, ""),
    };
    let why = format!("{name}: {e}{advice}");
    Error::Unavailable { engine: EngineId::Bpf, cause, why }
}
