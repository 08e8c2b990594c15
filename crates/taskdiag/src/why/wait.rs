//! The waits of an answer, and who holds what they wait for.

use std::collections::HashMap;

use taskdiag_wire::{
    Base, Group, OwnerHow, Reason, Record, TASK_KTHREAD, TaskView, WAIT_COMPAT,
    WAIT_UNINTERRUPTIBLE, WaitKind,
};

use super::call::Call;
use crate::snapshot::Snapshot;

/// A thread, and what it waits for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wait {
    /// The id of the thread.
    pub tid: u32,
    /// The id of its process.
    pub tgid: u32,
    /// The parent of the process; 0: none is visible.
    pub parent: u32,
    /// The process group.
    pub pgid: u32,
    /// The name of the thread, with any bytes but NUL.
    pub comm: Vec<u8>,
    /// The letter of its state, `?` if it is not known.
    pub state: u8,
    /// Whether the task is a kernel thread.
    pub is_kthread: bool,
    /// The kind of the wait. `None`: not known, and `holder` has the reason.
    pub kind: Option<WaitKind>,
    /// Whether the wait cannot be ended by signals.
    pub is_uninterruptible: bool,
    /// How long the task has not run, ns.
    pub waited_ns: Option<u64>,
    /// The possible error of `waited_ns` in either direction, ns.
    pub waited_error_ns: Option<u64>,
    /// How often the task had left a CPU. If that is still the same, it is the same wait.
    pub switches: Option<u64>,
    /// A number for the kernel object that the task waits for. Tasks that wait for the same object
    /// have the same number.
    pub object: Option<u64>,
    /// The system call that the task is in.
    pub call: Option<Call>,
    /// The kernel function that the task waits in.
    pub function: Vec<u8>,
    /// The file that the task waits for, where that was looked up.
    pub file: Option<Vec<u8>>,
    /// The mount whose server the task waits for, where that was looked up.
    pub mount: Option<Mount>,
    /// The cgroup whose freezer or CPU limit stops the task, where that was looked up.
    pub cgroup: Option<Vec<u8>>,
    /// The holder of the object that the task waits for.
    pub holder: Result<Holder, NoHolder>,
}

/// A mount of a file system that asks a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Mount {
    /// The directory that it is mounted on, as the waiting process sees it.
    pub point: Vec<u8>,
    /// The type of the file system.
    pub kind: Vec<u8>,
    /// What is mounted, such as `server:/export`.
    pub source: Vec<u8>,
}

/// The holder of the object that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the thread, or of the process if any of its threads can end the wait.
    pub tid: u32,
    /// The id of its process.
    pub tgid: u32,
    /// Whether it is the process as a whole.
    pub is_process: bool,
    /// Whether no other task can end the wait. Another process, which the reader has no right to
    /// see, may have the same end of a pipe.
    pub is_sure: bool,
    /// How this is known.
    pub how: How,
}

/// How the holder is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum How {
    /// The kernel names the owner of its lock.
    Kernel,
    /// The kernel keeps the thread in the word of a futex with priority inheritance.
    FutexWord,
    /// `__owner` of a mutex of the GNU C library.
    Mutex,
    /// `__cur_writer` of a read-write lock of the GNU C library.
    RwlockWriter,
    /// The holder is the thread whose end is waited for.
    Thread,
    /// `/proc/locks` names the process that has the lock on the file.
    PosixLock,
    /// The holder is the process that has the open file with the lock.
    OpenFileLock,
    /// The holder took the lock by `flock(2)`, and still has the open file with the lock.
    Flock,
    /// The holder is the process that can write to the pipe.
    Writer,
    /// The holder is the process that can read from the pipe.
    Reader,
    /// The holder has the other end of the socket, and can send.
    Sender,
    /// The holder has the other end of the socket, and does not receive.
    Receiver,
    /// The holder is the child that is waited for.
    Child,
    /// The holder traces the thread.
    Tracer,
    /// The holder is the parent of the zombie, which has to reap it.
    Parent,
}

impl How {
    /// The name in output for programs.
    pub fn name(self) -> &'static str {
        match self {
            How::Kernel => "kernel",
            How::FutexWord => "futex_word",
            How::Mutex => "pthread_mutex",
            How::RwlockWriter => "pthread_rwlock",
            How::Thread => "thread_end",
            How::PosixLock => "posix_lock",
            How::OpenFileLock => "ofd_lock",
            How::Flock => "flock",
            How::Writer => "writer",
            How::Reader => "reader",
            How::Sender => "sender",
            How::Receiver => "receiver",
            How::Child => "child",
            How::Tracer => "tracer",
            How::Parent => "parent",
        }
    }
    /// Whether such waits are usual where nothing is wrong: a shell waits for its child, and the
    /// end of a pipeline for its beginning.
    pub fn is_usual(self) -> bool {
        matches!(self, How::Child | How::Writer | How::Sender | How::Parent | How::Thread)
    }
}

/// Why no holder is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoHolder {
    /// The task waits for no other task.
    Nobody,
    /// Nothing records a holder, as for a condition variable.
    NotKept,
    /// Several processes share it: this many.
    Several(u32),
    /// The reader has no right to look.
    NoRight,
    /// The memory or the files did not come in time.
    Blocked,
    /// The wait ended or changed while it was looked at.
    Changed,
    /// The wait was not looked up, because the limit of time or memory was reached.
    NotLookedAt,
    /// The ids in the memory of the task belong to another pid namespace.
    OtherNumbers,
    /// The engine does not know what the task waits for.
    NotKnown,
}

impl NoHolder {
    /// The name in output for programs.
    pub fn name(self) -> &'static str {
        match self {
            NoHolder::Nobody => "nobody",
            NoHolder::NotKept => "not_kept",
            NoHolder::Several(_) => "several",
            NoHolder::NoRight => "no_right",
            NoHolder::Blocked => "blocked",
            NoHolder::Changed => "changed",
            NoHolder::NotLookedAt => "not_looked_at",
            NoHolder::OtherNumbers => "other_pid_namespace",
            NoHolder::NotKnown => "not_known",
        }
    }
}

impl Wait {
    /// Whether this kind of wait is unusual enough to be in a report of the whole machine, even if
    /// no other task waits for this one.
    pub fn is_odd(&self) -> bool {
        use WaitKind::*;
        matches!(
            self.kind,
            Some(
                Stopped
                    | Traced
                    | Frozen
                    | Throttled
                    | Fuse
                    | Netfs
                    | MemoryHigh
                    | Seccomp
                    | Userfaultfd
                    | Ended
            )
        ) || self.state == b'D' && !matches!(self.kind, Some(Idle | Vfork))
    }
    /// How long the task has not run, ns. `None`: that is not known, or not more than its possible
    /// error.
    pub fn waited(&self) -> Option<u64> {
        let is_close = |ns: &u64| self.waited_error_ns.is_none_or(|e| e <= (*ns).max(ERROR_NS));
        self.waited_ns.filter(is_close)
    }
    /// Whether it is not known what the thread waits for, or the reader has no right to see the
    /// holder. A thread that ended while it was read has nothing to show.
    pub fn is_unseen(&self) -> bool {
        let has_ended = self.holder == Err(NoHolder::Changed);
        self.kind.is_none() && !has_ended || self.holder == Err(NoHolder::NoRight)
    }
    /// Whether the task waits: it does not run and is not about to.
    pub fn is_waiting(&self) -> bool {
        use WaitKind::{Cpu, Idle, OnCpu, Runnable, Throttled};
        // A throttled task is runnable, so its state is that of running tasks.
        self.kind == Some(Throttled)
            || !matches!(self.kind, Some(Cpu | Idle | OnCpu | Runnable)) && self.state != b'R'
    }
}

/// All threads of an answer, with what they wait for.
#[derive(Debug)]
pub struct Waits {
    pub(super) all: Vec<Wait>,
    pub(super) by_tid: HashMap<u32, u32>,
    /// The number of threads of each process.
    pub(super) threads: HashMap<u32, u32>,
}

impl Waits {
    /// The waits of an answer that has BASE and WAIT of all threads. If the answer lacks a holder,
    /// there is [`NoHolder::NotKept`] or a more exact reason.
    pub fn of(snapshot: &Snapshot) -> Waits {
        let info = snapshot.stream().info();
        let all: Vec<Wait> = snapshot.tasks().map(|t| wait(&t, info.boottime_ns)).collect();
        Waits::new(all)
    }

    /// Adapts waits of a saved answer, whose holders cannot be looked up any more. If the engine
    /// did not know a holder, it is not known whether one is recorded anywhere.
    pub fn leave_as_saved(&mut self) {
        for wait in &mut self.all {
            if wait.holder == Err(NoHolder::NotKept) {
                wait.holder = Err(NoHolder::NotKnown);
            }
        }
    }

    pub(super) fn new(all: Vec<Wait>) -> Waits {
        let by_tid = all.iter().zip(0..).map(|(w, i)| (w.tid, i)).collect();
        let mut threads = HashMap::new();
        for wait in &all {
            *threads.entry(wait.tgid).or_insert(0) += 1;
        }
        Waits { all, by_tid, threads }
    }

    /// In the order of the answer.
    pub fn all(&self) -> &[Wait] {
        &self.all
    }

    /// The index of a thread in [`all`](Self::all).
    pub fn find(&self, tid: u32) -> Option<usize> {
        self.by_tid.get(&tid).map(|i| *i as usize)
    }

    /// Whether this thread alone can end the wait: it is a thread, or the only one of its process.
    pub fn is_alone(&self, holder: &Holder) -> bool {
        holder.is_sure && (!holder.is_process || self.threads_of(holder.tgid) == 1)
    }

    /// The number of threads of a process in the answer.
    pub fn threads_of(&self, tgid: u32) -> u32 {
        self.threads.get(&tgid).copied().unwrap_or(0)
    }
}

/// An error that does not matter, even for a short time.
const ERROR_NS: u64 = 100_000_000;

fn wait(task: &TaskView<'_>, now_ns: u64) -> Wait {
    let base = task.record::<Base>();
    let record = task.record::<taskdiag_wire::Wait>();
    let known = record.as_ref();
    let state = base.and_then(|b| b.state()).or(known.and_then(|w| w.state()));
    let kind = known.and_then(|w| w.kind()).and_then(WaitKind::from_number);
    let flags = known.and_then(|w| w.flags()).unwrap_or(0);
    let number = known.and_then(|w| w.syscall_nr()).and_then(|n| u32::try_from(n).ok());
    let call = number.filter(|_| flags & WAIT_COMPAT == 0).and_then(|number| {
        let w = known?;
        let (stack, code) = (w.user_sp().unwrap_or(0), w.user_pc().unwrap_or(0));
        Some(Call { number, args: w.args()?, stack, code })
    });
    let holder = match known {
        None => Err(match task.reason(Group::Wait) {
            Some(Reason::Denied) => NoHolder::NoRight,
            Some(Reason::Blocked) => NoHolder::Blocked,
            Some(Reason::Vanished) => NoHolder::Changed,
            _ => NoHolder::NotKnown,
        }),
        Some(w) => of_record(*w),
    };
    let last_ran = known.and_then(|w| w.last_ran_ns());
    let error_ns = known.and_then(|w| w.ran_error_ns());
    let waited_ns = last_ran.map(|at| now_ns.saturating_sub(at));
    Wait {
        tid: task.pid(),
        tgid: task.tgid(),
        parent: base.and_then(|b| b.ppid()).unwrap_or(0),
        pgid: base.and_then(|b| b.pgid()).unwrap_or(0),
        comm: task.comm().unwrap_or(b"?").to_vec(),
        state: state.unwrap_or(b'?'),
        is_kthread: base.and_then(|b| b.flags()).is_some_and(|f| f & TASK_KTHREAD != 0),
        kind,
        is_uninterruptible: flags & WAIT_UNINTERRUPTIBLE != 0,
        waited_ns,
        waited_error_ns: error_ns,
        switches: known.and_then(|w| w.switches()),
        object: known.and_then(|w| w.object()),
        call,
        function: known.and_then(|w| w.function()).map_or(Vec::new(), |f| text(&f)),
        file: None,
        mount: None,
        cgroup: None,
        holder,
    }
}

/// A text up to its first NUL.
fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|b| *b != 0).collect()
}

/// The holder, as far as the engine knows it.
pub(super) fn of_record(wait: Record<'_, taskdiag_wire::Wait>) -> Result<Holder, NoHolder> {
    let kind = wait.kind().and_then(WaitKind::from_number);
    let (how, tid, tgid) = (wait.owner_how(), wait.owner_tid(), wait.owner_tgid());
    use WaitKind::{Cpu, Idle, Mutex, OnCpu, RtMutex, Runnable, RwsemRead, RwsemWrite, Semaphore};
    let is_kernel_lock = matches!(kind, Some(Mutex | RtMutex | RwsemRead | RwsemWrite | Semaphore));
    let how = how.and_then(OwnerHow::from_number);
    let known = match how {
        Some(OwnerHow::Lock) => Some(How::Kernel),
        Some(OwnerHow::Tracer) => Some(How::Tracer),
        Some(OwnerHow::Child) => Some(How::Child),
        Some(OwnerHow::FutexWord) => Some(How::FutexWord),
        Some(OwnerHow::Pthread) => Some(How::Mutex),
        Some(OwnerHow::FileLock) => Some(How::PosixLock),
        Some(OwnerHow::OtherEnd) => match kind {
            Some(WaitKind::PipeWrite) => Some(How::Reader),
            _ => Some(How::Writer),
        },
        _ => None,
    };
    let ids = tid.zip(tgid).filter(|(tid, tgid)| *tid != 0 && *tgid != 0);
    match (known, ids) {
        (Some(how), Some((tid, tgid))) => {
            let is_process = matches!(
                how,
                How::Child | How::PosixLock | How::Reader | How::Writer | How::Parent
            );
            Ok(Holder { tid, tgid, is_process, is_sure: true, how })
        }
        _ if matches!(kind, Some(Cpu | Idle | OnCpu | Runnable)) => Err(NoHolder::Nobody),
        // The kernel keeps the owner, and /proc does not show it.
        _ if is_kernel_lock && how != Some(OwnerHow::NotKept) => Err(NoHolder::NotKnown),
        _ if kind.is_none() => Err(NoHolder::NotKnown),
        _ => Err(NoHolder::NotKept),
    }
}
