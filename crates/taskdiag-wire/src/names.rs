//! Groups, strategies and reasons as Rust types.
//!
//! The enums have the values that this version of the format knows. A later version, or a later
//! kernel, may have more, so all of them but [`Strategy`] are `#[non_exhaustive]`, and a number
//! that is not known is `None`.

use std::fmt;

macro_rules! named {
    ($(#[$m:meta])* $name:ident: $repr:ty { $($(#[$vm:meta])* $v:ident = $n:literal $s:literal,)* }) => {
        named! { @type $(#[$m])* $name: $repr { $($(#[$vm])* $v = $n $s,)* } }
        impl $name {
            /// All of them, in order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$v,)*];
        }
    };
    (@type $(#[$m:meta])* $name:ident: $repr:ty { $($(#[$vm:meta])* $v:ident = $n:literal $s:expr,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vm])* $v = $n,)* }
        impl $name {
            /// The name that users type and see.
            pub fn name(self) -> &'static str {
                match self { $($name::$v => $s,)* }
            }
            /// From its number in `uapi/task_diag.h`.
            pub const fn from_number(n: $repr) -> Option<$name> {
                match n { $($n => Some($name::$v),)* _ => None }
            }
            /// From its name.
            pub fn from_name(s: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|v| v.name() == s)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

/// [`Group`], from the registry.
macro_rules! group {
    ([] records { $($(#[$rm:meta])* $r:ident = $rn:literal $rs:ident $rc:ident $rp:tt,)* }
     lists { $($(#[$lm:meta])* $l:ident = $ln:literal $ls:ident $lc:ident $lp:tt,)* }
     blobs { $($(#[$bm:meta])* $b:ident = $bn:literal $bs:ident $bc:ident $bp:tt,)* }
     attribute_records $ar:tt attribute_lists $al:tt attribute_blobs $ab:tt) => {
        named! { @type
            /// A set of attributes that are read and requested together.
            #[non_exhaustive]
            Group: u32 {
                $($(#[$rm])* $r = $rn stringify!($rs),)*
                $($(#[$lm])* $l = $ln stringify!($ls),)*
                $($(#[$bm])* $b = $bn stringify!($bs),)*
            }
        }
        impl Group {
            /// All of them, in order of their numbers, which have no gap.
            pub const ALL: &'static [Group] = {
                const LEN: usize = [$($rn,)* $($ln,)* $($bn,)*].len();
                const ALL: [Group; LEN] = {
                    let mut all = [Group::Base; LEN];
                    let mut n = 0;
                    while n < LEN {
                        all[n] = Group::from_number(n as u32).expect("numbers have no gap");
                        n += 1;
                    }
                    all
                };
                &ALL
            };
        }
    };
}
crate::registry!(group);

named! {
    /// Which tasks a request is about.
    ///
    /// The enum is exhaustive: a reader refuses a stream with an unknown strategy, so a new
    /// strategy needs a new version of the format.
    Strategy: u64 {
        /// All processes.
        All = 0 "all",
        /// One process.
        One = 1 "one",
        /// All threads of all processes.
        AllThread = 2 "all-thread",
        /// The children of a process.
        Children = 3 "children",
        /// The threads of a process.
        Thread = 4 "thread",
    }
}

named! {
    /// Why something that was requested is not in the answer.
    #[non_exhaustive]
    Reason: u32 {
        /// The engine or the kernel does not provide it.
        Unsupported = 1 "unsupported",
        /// The reader lacks the right to read it.
        Denied = 2 "denied",
        /// The task ended first.
        Vanished = 3 "vanished",
        /// Reading would have waited for the task.
        Blocked = 4 "blocked",
        /// The value did not fit.
        Truncated = 5 "truncated",
        /// The task does not have it.
        Absent = 6 "absent",
        /// A limit in the request left it out.
        OverBudget = 7 "over_budget",
        /// The reading of this group ended early: [`Done::error`](crate::Done) has the reason.
        Stopped = 8 "stopped",
    }
}

named! {
    /// Which path a blob of PATHS is.
    #[non_exhaustive]
    PathKind: u32 {
        /// The executable.
        Exe = 0 "exe",
        /// The working directory.
        Cwd = 1 "cwd",
        /// The root directory.
        Root = 2 "root",
    }
}

named! {
    /// The kind of value that a blob of MSG_CONTAINER has.
    #[non_exhaustive]
    ContainerPart: u32 {
        /// The path of the control group.
        Path = 0 "path",
        /// The runtime.
        Runtime = 1 "runtime",
        /// The name of the container.
        Name = 2 "name",
        /// The name of the image.
        Image = 3 "image",
        /// The name of the pod.
        PodName = 4 "pod_name",
        /// The namespace of the pod in Kubernetes.
        PodNamespace = 5 "pod_namespace",
    }
}

named! {
    /// Which value of a control group an entry of MSG_CGROUP has. Counts include the groups below
    /// it, as the kernel counts, unless the comment of a value names others.
    #[non_exhaustive]
    CgroupMember: u32 {
        /// Processes in the cgroup itself.
        Procs = 0 "procs",
        /// Threads in the cgroup itself.
        Threads = 1 "threads",
        /// The type: domain, domain threaded, domain invalid, threaded, from 0 on.
        Type = 2 "type",
        /// Is there a process in it or below? 1 or 0.
        Populated = 3 "populated",
        /// Is everything in it frozen by now? 1 or 0.
        Frozen = 4 "frozen",
        /// Is it to be frozen? 1 or 0.
        Freeze = 5 "freeze",
        /// Cgroups below it.
        Descendants = 6 "descendants",
        /// Removed cgroups below it that are still in use by something, such as pages in the cache.
        Dying = 7 "dying",
        /// CPU time, ns.
        CpuUsage = 8 "cpu_usage",
        /// CPU time in user mode, ns.
        CpuUser = 9 "cpu_user",
        /// CPU time in the kernel, ns.
        CpuSystem = 10 "cpu_system",
        /// Periods of the CPU limit in which something ran.
        Periods = 11 "periods",
        /// Periods in which the CPU time of the limit was used up.
        Throttles = 12 "throttles",
        /// The time for which its tasks had to wait then, summed over CPUs, ns.
        Throttled = 13 "throttled",
        /// CPU time that may be used in each period, ns.
        CpuQuota = 14 "cpu_quota",
        /// The period, ns.
        CpuPeriod = 15 "cpu_period",
        /// Share of CPU time in relation to siblings, 1 to 10,000.
        CpuWeight = 16 "cpu_weight",
        /// The weight for CPU time in version 1, where 1024 is usual.
        CpuShares = 17 "cpu_shares",
        /// Memory in use, bytes.
        Memory = 18 "memory",
        /// The most memory that was ever in use, bytes.
        MemoryPeak = 19 "memory_peak",
        /// Memory that is never taken away, bytes.
        MemoryMin = 20 "memory_min",
        /// Memory that is taken away only if no other is left, bytes.
        MemoryLow = 21 "memory_low",
        /// Memory from which on its tasks are slowed down, bytes.
        MemoryHigh = 22 "memory_high",
        /// The limit of memory, bytes.
        MemoryMax = 23 "memory_max",
        /// Swap in use, bytes.
        Swap = 24 "swap",
        /// The limit of swap, bytes.
        SwapMax = 25 "swap_max",
        /// How often memory below the low mark was taken away.
        EventsLow = 26 "events_low",
        /// How often its tasks were slowed down.
        EventsHigh = 27 "events_high",
        /// How often it would have exceeded its limit.
        EventsMax = 28 "events_max",
        /// How often there was no memory left.
        EventsOom = 29 "events_oom",
        /// Processes that were killed because no memory was left.
        OomKills = 30 "oom_kills",
        /// How often all processes of the cgroup were killed because no memory was left.
        OomGroupKills = 31 "oom_group_kills",
        /// Anonymous memory, bytes.
        Anon = 32 "anon",
        /// Memory of files in the page cache, with shared memory, bytes.
        File = 33 "file",
        /// Memory of the kernel, bytes.
        Kernel = 34 "kernel",
        /// Memory of the kernel for its objects, bytes.
        Slab = 35 "slab",
        /// Memory for the network, bytes.
        Sock = 36 "sock",
        /// Shared memory and tmpfs, bytes.
        Shmem = 37 "shmem",
        /// Pages of files that are mapped, bytes.
        FileMapped = 38 "file_mapped",
        /// Pages of files that must be written yet, bytes.
        FileDirty = 39 "file_dirty",
        /// Pages of files that are being written, bytes.
        FileWriteback = 40 "file_writeback",
        /// Page faults.
        Faults = 41 "faults",
        /// Page faults that had to wait for storage.
        MajorFaults = 42 "major_faults",
        /// Tasks in it and below.
        Pids = 43 "pids",
        /// The most tasks that were ever in it and below.
        PidsPeak = 44 "pids_peak",
        /// The limit of tasks.
        PidsMax = 45 "pids_max",
        /// Bytes read, of all devices.
        ReadBytes = 46 "read_bytes",
        /// Bytes written.
        WriteBytes = 47 "write_bytes",
        /// Reads.
        Reads = 48 "reads",
        /// Writes.
        Writes = 49 "writes",
        /// Bytes discarded.
        DiscardBytes = 50 "discard_bytes",
        /// Share of the last ten seconds in which some task waited for a CPU, in hundredths of a
        /// percent.
        CpuSome10 = 51 "cpu_some10",
        /// Time in which some task waited for a CPU, ns.
        CpuSome = 52 "cpu_some",
        /// As `CpuSome10`, but for the time in which all tasks that were not idle waited.
        CpuFull10 = 53 "cpu_full10",
        /// Time in which all of them waited for a CPU, ns.
        CpuFull = 54 "cpu_full",
        /// As `CpuSome10`, for memory.
        MemorySome10 = 55 "memory_some10",
        /// As `CpuSome`, for memory.
        MemorySome = 56 "memory_some",
        /// As `CpuFull10`, for memory.
        MemoryFull10 = 57 "memory_full10",
        /// As `CpuFull`, for memory.
        MemoryFull = 58 "memory_full",
        /// As `CpuSome10`, for I/O.
        IoSome10 = 59 "io_some10",
        /// As `CpuSome`, for I/O.
        IoSome = 60 "io_some",
        /// As `CpuFull10`, for I/O.
        IoFull10 = 61 "io_full10",
        /// As `CpuFull`, for I/O.
        IoFull = 62 "io_full",
        /// Processes in it and below, summed up over `Procs`.
        AllProcs = 63 "all_procs",
        /// Tasks in it and below: `Pids`, or summed up over `Threads`.
        AllTasks = 64 "all_tasks",
    }
}

named! {
    /// How a task uses a file of FILE_STAT.
    #[non_exhaustive]
    FileUse: u32 {
        /// Its executable.
        Exe = 0 "exe",
        /// Its working directory.
        Cwd = 1 "cwd",
        /// Its root directory.
        Root = 2 "root",
        /// The file is mapped.
        Mapped = 3 "mapped",
    }
}

named! {
    /// The content of a mapping.
    #[non_exhaustive]
    VmaKind: u32 {
        /// Anonymous memory without a name.
        Anon = 0 "anon",
        /// A file, shared memory object or memfd; its name is the path.
        File = 1 "file",
        /// `[heap]`.
        Heap = 2 "heap",
        /// `[stack]`.
        Stack = 3 "stack",
        /// `[vdso]`.
        Vdso = 4 "vdso",
        /// Anonymous memory that the process named.
        Named = 5 "named",
        /// A mapping that the kernel made. Its name in /proc.
        Special = 6 "special",
    }
}

named! {
    /// The type of an open file.
    #[non_exhaustive]
    FdType: u32 {
        /// An anonymous inode of another kind; its name says which.
        Other = 0 "other",
        /// A regular file.
        Reg = 1 "reg",
        /// A directory.
        Dir = 2 "dir",
        /// A character device.
        Chr = 3 "chr",
        /// A block device.
        Blk = 4 "blk",
        /// A named pipe.
        Fifo = 5 "fifo",
        /// A symbolic link.
        Lnk = 6 "lnk",
        /// A socket.
        Socket = 7 "socket",
        /// A pipe.
        Pipe = 8 "pipe",
        /// `eventfd(2)`.
        Eventfd = 9 "eventfd",
        /// `epoll_create(2)`.
        Epoll = 10 "epoll",
        /// `timerfd_create(2)`.
        Timerfd = 11 "timerfd",
        /// `signalfd(2)`.
        Signalfd = 12 "signalfd",
        /// `inotify_init(2)`.
        Inotify = 13 "inotify",
        /// `fanotify_init(2)`.
        Fanotify = 14 "fanotify",
        /// `pidfd_open(2)`.
        Pidfd = 15 "pidfd",
        /// `memfd_create(2)`.
        Memfd = 16 "memfd",
        /// `io_uring_setup(2)`.
        IoUring = 17 "io_uring",
        /// A BPF map.
        BpfMap = 18 "bpf_map",
        /// A BPF program.
        BpfProg = 19 "bpf_prog",
        /// A BPF link.
        BpfLink = 20 "bpf_link",
        /// `userfaultfd(2)`.
        Userfaultfd = 21 "userfaultfd",
        /// `perf_event_open(2)`.
        PerfEvent = 22 "perf_event",
        /// A namespace.
        Ns = 23 "ns",
        /// A POSIX message queue.
        Mqueue = 24 "mqueue",
    }
}

named! {
    /// The meaning of the values of a [`FdDetail`](crate::FdDetail).
    #[non_exhaustive]
    FdDetailKind: u32 {
        /// Counter, id.
        Eventfd = 1 "eventfd",
        /// A target: its fd, events, data, inode, device.
        Epoll = 2 "epoll",
        /// Clock, ticks, `TFD_*` flags, ns to expiration, interval in ns.
        Timerfd = 3 "timerfd",
        /// Signal mask.
        Signalfd = 4 "signalfd",
        /// A watch: its descriptor, inode, device, mask.
        Inotify = 5 "inotify",
        /// Pid. 0: not visible to the reader; all ones: the process has ended.
        Pidfd = 6 "pidfd",
        /// Id, type, maximum number of entries, memory in bytes.
        BpfMap = 7 "bpf_map",
        /// Id, type, memory in bytes.
        BpfProg = 8 "bpf_prog",
        /// Id, type, id of the program.
        BpfLink = 9 "bpf_link",
        /// Entries of the submission queue, of the completion queue.
        IoUring = 10 "io_uring",
    }
}

named! {
    /// What a task waits for.
    #[non_exhaustive]
    WaitKind: u32 {
        /// A wait of none of the other kinds.
        Other = 0 "other",
        /// On a CPU, or ready: /proc cannot tell.
        Runnable = 1 "runnable",
        /// On a CPU.
        OnCpu = 2 "on-cpu",
        /// Ready, waiting for a CPU.
        Cpu = 3 "cpu",
        /// A zombie, which waits for its parent.
        Ended = 4 "ended",
        /// A kernel thread without work.
        Idle = 5 "idle",
        /// A mutex of the kernel.
        Mutex = 6 "mutex",
        /// A semaphore of the kernel for readers and writers, to read.
        RwsemRead = 7 "rwsem-read",
        /// A semaphore of the kernel for readers and writers, to write.
        RwsemWrite = 8 "rwsem-write",
        /// A semaphore of the kernel.
        Semaphore = 9 "semaphore",
        /// A mutex of the kernel with priority inheritance.
        RtMutex = 10 "rt-mutex",
        /// A futex whose purpose is not known.
        Futex = 11 "futex",
        /// A lock of user space.
        FutexLock = 12 "futex-lock",
        /// A condition of user space.
        FutexCondition = 13 "futex-condition",
        /// A lock of user space with priority inheritance.
        FutexPi = 14 "futex-pi",
        /// A lock of a file that belongs to a process.
        PosixLock = 15 "posix-lock",
        /// A lock of a file that belongs to an open file.
        OfdLock = 16 "ofd-lock",
        /// A lock by `flock(2)`.
        Flock = 17 "flock",
        /// The end of a lease on a file.
        Lease = 18 "lease",
        /// Data in a pipe.
        PipeRead = 19 "pipe-read",
        /// Room in a pipe.
        PipeWrite = 20 "pipe-write",
        /// The other end of a named pipe.
        FifoOpen = 21 "fifo-open",
        /// Input from a terminal.
        TtyRead = 22 "tty-read",
        /// Output to a terminal.
        TtyWrite = 23 "tty-write",
        /// A connection to a socket.
        Accept = 24 "accept",
        /// The answer to a connection.
        Connect = 25 "connect",
        /// Data from a socket.
        Receive = 26 "receive",
        /// Room in a socket.
        Send = 27 "send",
        /// `epoll_wait(2)`.
        Epoll = 28 "epoll",
        /// `poll(2)`.
        Poll = 29 "poll",
        /// `select(2)`.
        Select = 30 "select",
        /// An eventfd.
        Eventfd = 31 "eventfd",
        /// An event of inotify or fanotify.
        Inotify = 32 "inotify",
        /// A signal from a signalfd.
        Signalfd = 33 "signalfd",
        /// A timerfd.
        Timerfd = 34 "timerfd",
        /// The end of a process, by its pidfd.
        Pidfd = 35 "pidfd",
        /// A page of a file that is being read or written.
        PageIo = 36 "page-io",
        /// A block device.
        BlockIo = 37 "block-io",
        /// Dirty pages to be written.
        Writeback = 38 "writeback",
        /// The journal of a file system.
        Journal = 39 "journal",
        /// The server of a FUSE file system.
        Fuse = 40 "fuse",
        /// A server of NFS, SMB or another such file system.
        Netfs = 41 "netfs",
        /// A page that it touched.
        PageFault = 42 "page-fault",
        /// The handler of a userfaultfd.
        Userfaultfd = 43 "userfaultfd",
        /// A child to change its state.
        Child = 44 "child",
        /// A child to call exec or to end.
        Vfork = 45 "vfork",
        /// Stopped by a signal.
        Stopped = 46 "stopped",
        /// Stopped by its tracer.
        Traced = 47 "traced",
        /// The listener of seccomp notifications.
        Seccomp = 48 "seccomp",
        /// Frozen with its cgroup.
        Frozen = 49 "frozen",
        /// The cgroup of the task has used up its CPU time.
        Throttled = 50 "throttled",
        /// The cgroup of the task is above memory.high.
        MemoryHigh = 51 "memory-high",
        /// Memory to be freed.
        Reclaim = 52 "reclaim",
        /// A time.
        Sleep = 53 "sleep",
        /// A signal.
        Signal = 54 "signal",
        /// A completion of io_uring.
        IoUring = 55 "io_uring",
        /// A System V semaphore.
        SysvSem = 56 "sysv-sem",
        /// A System V message queue.
        SysvMsg = 57 "sysv-msg",
        /// A POSIX message queue.
        Mqueue = 58 "mqueue",
        /// Data from another file.
        Read = 59 "read",
        /// Room in another file.
        Write = 60 "write",
        /// A core dump of the task's process.
        Coredump = 61 "coredump",
    }
}

named! {
    /// How it is known when a task last ran.
    #[non_exhaustive]
    RanBy: u32 {
        /// It runs.
        Now = 0 "now",
        /// `se.exec_start`: when it last left a CPU.
        ExecStart = 1 "exec-start",
        /// `sched_info.last_arrival`, and how long it ran then.
        LastArrival = 2 "last-arrival",
    }
}

named! {
    /// How the owner of the object that a task waits for is known.
    #[non_exhaustive]
    OwnerHow: u32 {
        /// Nobody looked.
        NotLookedUp = 0 "not-looked-up",
        /// Nothing records an owner, as for a condition variable.
        NotKept = 1 "not-kept",
        /// No task owns the object at this moment.
        None = 2 "none",
        /// Readers have the lock, and nothing records which.
        Readers = 3 "readers",
        /// The kernel's lock names the owner.
        Lock = 4 "lock",
        /// The owner is the tracer.
        Tracer = 5 "tracer",
        /// The owner is a child.
        Child = 6 "child",
        /// The futex has its thread id.
        FutexWord = 7 "futex-word",
        /// The mutex of glibc names it.
        Pthread = 8 "pthread",
        /// `/proc/locks` names it.
        FileLock = 9 "file-lock",
        /// No other process has the other end open.
        OtherEnd = 10 "other-end",
    }
}

/// A bit of a mapping's `flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VmaFlag {
    /// The bit.
    pub bit: u32,
    /// The two letters in VmFlags of /proc/PID/smaps.
    pub letters: &'static str,
    /// Its name in the header, in lower case.
    pub name: &'static str,
}

macro_rules! vma_flags {
    ($($bit:literal $letters:literal $name:literal,)*) => {
        /// The bits of a mapping's `flags`, lowest first.
        pub const VMA_FLAGS: &[VmaFlag] =
            &[$(VmaFlag { bit: $bit, letters: $letters, name: $name },)*];
    };
}
vma_flags! {
    0x1 "gd" "growsdown",
    0x2 "pf" "pfnmap",
    0x4 "lo" "locked",
    0x8 "io" "io",
    0x10 "sr" "seq_read",
    0x20 "rr" "rand_read",
    0x40 "dc" "dontcopy",
    0x80 "de" "dontexpand",
    0x100 "ac" "account",
    0x200 "nr" "noreserve",
    0x400 "ht" "hugetlb",
    0x800 "sf" "sync",
    0x1000 "wf" "wipeonfork",
    0x2000 "dd" "dontdump",
    0x4000 "sd" "softdirty",
    0x8000 "mm" "mixedmap",
    0x10000 "hg" "hugepage",
    0x20000 "nh" "nohugepage",
    0x40000 "mg" "mergeable",
    0x80000 "um" "uffd_missing",
    0x100000 "uw" "uffd_wp",
    0x200000 "ui" "uffd_minor",
    0x400000 "sl" "sealed",
    0x800000 "lf" "lockonfault",
}

impl FdType {
    /// The type of a file that has a path, from the mode of its inode.
    pub fn of_mode(mode: u32) -> FdType {
        // `S_IFMT` and the rest of linux/stat.h.
        match mode & 0o170_000 {
            0o100_000 => FdType::Reg,
            0o040_000 => FdType::Dir,
            0o020_000 => FdType::Chr,
            0o060_000 => FdType::Blk,
            0o010_000 => FdType::Fifo,
            0o120_000 => FdType::Lnk,
            0o140_000 => FdType::Socket,
            _ => FdType::Other,
        }
    }
}

impl Strategy {
    /// Is each message about a single thread, with the times of only that thread?
    pub fn is_threads(self) -> bool {
        matches!(self, Strategy::AllThread | Strategy::Thread)
    }
    /// Is the request about one given pid?
    pub fn takes_pid(self) -> bool {
        matches!(self, Strategy::One | Strategy::Children | Strategy::Thread)
    }
}
