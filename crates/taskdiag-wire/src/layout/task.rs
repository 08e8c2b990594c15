//! The records of a task that are about neither its memory nor its files.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::frame::NlAttr;
use crate::table::{Attribute, CStruct, GroupRecord, Member, Record, bit, c_name};

record! {
    /// BASE: the identity of the task. Source: `/proc/PID/stat`, `task_struct`. Only kernel threads
    /// have command names of more than 15 bytes. The whole of such a name is in an attribute of its
    /// own, and [`TaskView::comm`](crate::TaskView::comm) returns it.
    Base = "task_diag_base", least 56;
    {
        /// Parent process. 0: none is visible to the reader.
        ppid: u32,
        /// Process group.
        pgid: u32,
        /// Session.
        sid: u32,
        /// `TASK_KTHREAD`, `TASK_EXITING`.
        flags: u32,
        /// `PF_*`.
        task_flags: u32,
        /// State letter, as in `/proc/PID/stat`.
        state: u8,
    } pad { reserved: [u8; 3], } then {
        /// Start time since boot, suspended time included, ns.
        start_time_ns: u64,
        /// Command name, filled with NULs, the last byte always NUL.
        comm: [u8; 16],
    }
}

impl Base {
    /// The bit of `valid` for the command name.
    pub const KNOWS_COMM: u32 = bit(Base::MEMBERS, "comm");
}

record! {
    /// CRED: its owner and its rights. Source: `/proc/PID/status`, `task->real_cred`.
    Cred = "task_diag_cred", least 104;
    {
        /// Real uid.
        uid: u32,
        /// Effective uid.
        euid: u32,
        /// Saved uid.
        suid: u32,
        /// File-system uid.
        fsuid: u32,
        /// Real gid.
        gid: u32,
        /// Effective gid.
        egid: u32,
        /// Saved gid.
        sgid: u32,
        /// File-system gid.
        fsgid: u32,
        /// Thread id of the ptracer, or 0.
        tracer_pid: u32,
        /// `SECBIT_*`; not in /proc.
        securebits: u32,
        /// 0 or 1.
        no_new_privs: u32,
        /// 0 off, 1 strict, 2 filter.
        seccomp: u32,
        /// Inheritable capability set.
        cap_inheritable: u64,
        /// Permitted capability set.
        cap_permitted: u64,
        /// Effective capability set.
        cap_effective: u64,
        /// Capability bounding set.
        cap_bounding: u64,
        /// Ambient capability set.
        cap_ambient: u64,
        /// Number of supplementary gids.
        ngroups: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// STAT: the resources that it has used, and how it is scheduled. Source: `/proc/PID/stat`,
    /// `task_struct`, `signal_struct`.
    Stat = "task_diag_stat", least 112;
    {
        /// Minor faults.
        minflt: u64,
        /// Major faults.
        majflt: u64,
        /// Minor faults of waited-for children.
        cminflt: u64,
        /// Major faults of waited-for children.
        cmajflt: u64,
        /// User CPU time, ns.
        utime_ns: u64,
        /// System CPU time, ns.
        stime_ns: u64,
        /// User CPU time of waited-for children, ns.
        cutime_ns: u64,
        /// System CPU time of waited-for children, ns.
        cstime_ns: u64,
        /// -20 to 19.
        nice: i32,
        /// 20 + nice, or negative for real-time policies.
        priority: i32,
        /// Real-time priority, 0 to 99.
        rt_priority: u32,
        /// `SCHED_*`.
        policy: u32,
        /// CPU it last ran on.
        processor: u32,
        /// Threads of the process.
        num_threads: u32,
        /// Device number of the controlling terminal, 0: none.
        tty_nr: u32,
        /// Foreground process group of the terminal, -1: none.
        tty_pgrp: i32,
        /// Signal sent to the parent at exit, -1 for a thread.
        exit_signal: i32,
        /// `STAT_LOCKED`; not in `/proc/PID/stat`.
        flags: u32,
        /// The part of `utime_ns` that virtual processors have used, ns.
        guest_ns: u64,
        /// The part of `cutime_ns`, ns.
        cguest_ns: u64,
    }
}

record! {
    /// IO: bytes and calls of input and output. Source: `/proc/PID/io`, `task->ioac`.
    Io = "task_diag_io", least 64;
    {
        /// Bytes through read calls.
        rchar: u64,
        /// Bytes through write calls.
        wchar: u64,
        /// Read calls.
        syscr: u64,
        /// Write calls.
        syscw: u64,
        /// Bytes fetched from storage.
        read_bytes: u64,
        /// Bytes sent to storage.
        write_bytes: u64,
        /// Bytes of dirty page cache that were dropped before they were written.
        cancelled_write_bytes: u64,
    }
}

record! {
    /// SCHED: times on and waiting for a CPU. Source: `/proc/PID/schedstat`, `/proc/PID/status`,
    /// `task->sched_info`.
    Sched = "task_diag_sched", least 56;
    {
        /// Time on a CPU, ns.
        run_time_ns: u64,
        /// Time ready but waiting for a CPU, ns; live threads only.
        run_delay_ns: u64,
        /// Times it was given a CPU; live threads only.
        timeslices: u64,
        /// Voluntary context switches. If threads of a process have ended, its switches are not
        /// known from /proc.
        nvcsw: u64,
        /// Involuntary context switches.
        nivcsw: u64,
        /// `SCHED_LIVE_ONLY`.
        flags: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// NS: inode numbers of the namespaces. Source: `/proc/PID/ns`, `task->nsproxy`.
    Ns = "task_diag_ns", least 48;
    {
        /// Cgroup namespace.
        cgroup: u32,
        /// IPC namespace.
        ipc: u32,
        /// Mount namespace.
        mnt: u32,
        /// Network namespace.
        net: u32,
        /// Pid namespace.
        pid: u32,
        /// Pid namespace of its future children.
        pid_for_children: u32,
        /// Time namespace.
        time: u32,
        /// Time namespace of its future children.
        time_for_children: u32,
        /// User namespace.
        user: u32,
        /// UTS namespace.
        uts: u32,
    }
}

record! {
    /// CGROUP: the v2 cgroup's id. Source: `/proc/PID/cgroup`, `task->cgroups`.
    Cgroup = "task_diag_cgroup", least 16;
    {
        /// Inode number of the directory of its v2 cgroup.
        id: u64,
    }
}

record! {
    /// LIMITS: resource limits by the number of `RLIMIT_*`. All ones mean unlimited. Source:
    /// `/proc/PID/limits`.
    Limits = "task_diag_limits", least 264;
    {
        /// Soft limits.
        soft: [u64; 16],
        /// Hard limits.
        hard: [u64; 16],
    }
}

record! {
    /// SIGNALS: bit n-1 stands for signal n. Source: `/proc/PID/status`.
    Signals = "task_diag_signals", least 56;
    {
        /// Pending for the thread.
        pending: u64,
        /// Pending for the process.
        shared_pending: u64,
        /// Blocked.
        blocked: u64,
        /// Ignored.
        ignored: u64,
        /// Caught.
        caught: u64,
        /// Signals queued for the real uid.
        queued: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// OOM: how soon it is killed when memory runs out. Source: `/proc/PID/oom_score`,
    /// `/proc/PID/oom_score_adj`.
    Oom = "task_diag_oom", least 16;
    {
        /// The kernel's score: 0 to 2000, the highest is killed first.
        score: u32,
        /// The user's adjustment: -1000 (never) to 1000.
        score_adj: i32,
    }
}

record! {
    /// AUTOGROUP: the group of tasks that it shares CPU time with. Source: `/proc/PID/autogroup`,
    /// `signal->autogroup`.
    Autogroup = "task_diag_autogroup", least 24;
    {
        /// Number of the group.
        id: u64,
        /// Nice value of the group.
        nice: i32,
    } pad { reserved: u32, } then {}
}

record! {
    /// LOGIN: the user of the login, even if the process has changed its ids since. All ones: it
    /// belongs to no login. Source: `/proc/PID/loginuid`, `/proc/PID/sessionid`, `task->loginuid`.
    Login = "task_diag_login", least 16;
    {
        /// Uid of the login.
        uid: u32,
        /// Audit session.
        session: u32,
    }
}

record! {
    /// LAYOUT: addresses in its memory. Source: `/proc/PID/stat` (26 to 28), `mm_struct`.
    Layout = "task_diag_layout", least 32;
    {
        /// Where the program's code begins.
        start_code: u64,
        /// Where the program's code ends.
        end_code: u64,
        /// Where the first thread's stack began.
        start_stack: u64,
    }
}

record! {
    /// WAIT: what a thread waits for, since when, and who keeps it waiting. Source:
    /// `/proc/PID/task/TID/syscall`, `wchan` and `sched`; `task_struct`, `struct pt_regs` and the
    /// kernel's stack.
    Wait = "task_diag_wait", least 176;
    {
        /// [`WaitKind`](crate::WaitKind).
        kind: u32,
        /// `WAIT_UNINTERRUPTIBLE`, `WAIT_COMPAT`.
        flags: u32,
        /// When it last ran on a CPU, since boot, suspended time included, ns.
        last_ran_ns: u64,
        /// By how much `last_ran_ns` may be wrong, either way, ns.
        ran_error_ns: u64,
        /// Since when it waits for a CPU, as `last_ran_ns`; not in /proc.
        ready_ns: u64,
        /// Tasks that wait for the same object have the same number. It is no address.
        object: u64,
        /// [`RanBy`](crate::RanBy).
        ran_by: u32,
        /// [`OwnerHow`](crate::OwnerHow).
        owner_how: u32,
        /// Thread that has what it waits for.
        owner_tid: u32,
        /// Process of that thread.
        owner_tgid: u32,
        /// Number of the system call, -1: it is in none.
        syscall_nr: i32,
        /// State letter when this was read.
        state: u8,
    } pad { reserved: [u8; 3], } then {
        /// Arguments of the system call.
        args: [u64; 6],
        /// Stack pointer of user space.
        user_sp: u64,
        /// Instruction pointer of user space.
        user_pc: u64,
        /// Kernel function that it waits in, at most 39 bytes, filled with NULs.
        function: [u8; 40],
        /// How often it has left a CPU, if it sleeps. Two records with the same number are of the
        /// same wait.
        switches: u64,
        /// Frame pointer of user space; not in /proc.
        user_fp: u64,
        /// Link register of user space, on arm64; not in /proc.
        user_lr: u64,
    }
}

record! {
    /// DELAYS: how long it has waited since it began; for a process, the sums over its live
    /// threads. Source: netlink `TASKSTATS`; `task->delays`, `task->sched_info`.
    Delays = "task_diag_delays", least 264;
    {
        /// Ready, waiting for a CPU, ns.
        cpu_ns: u64,
        /// Waiting for block I/O, ns.
        io_ns: u64,
        /// Waiting for pages to come from swap, ns.
        swapin_ns: u64,
        /// Waiting for memory to be freed, ns.
        reclaim_ns: u64,
        /// Waiting for pages that were dropped a moment ago, ns.
        thrashing_ns: u64,
        /// Waiting for memory to be compacted, ns.
        compact_ns: u64,
        /// Waiting for copies of pages, as after `fork(2)`, ns.
        wpcopy_ns: u64,
        /// Interrupts that took its time, ns.
        irq_ns: u64,
        /// How often `cpu_ns` grew.
        cpu_count: u64,
        /// How often `io_ns` grew.
        io_count: u64,
        /// How often `swapin_ns` grew.
        swapin_count: u64,
        /// How often `reclaim_ns` grew.
        reclaim_count: u64,
        /// How often `thrashing_ns` grew.
        thrashing_count: u64,
        /// How often `compact_ns` grew.
        compact_count: u64,
        /// How often `wpcopy_ns` grew.
        wpcopy_count: u64,
        /// How often `irq_ns` grew.
        irq_count: u64,
        /// The longest delay of each kind, ns, in the order of the times above.
        max_ns: [u64; 8],
        /// The shortest delay of each kind, ns, 0 where there was none.
        min_ns: [u64; 8],
    }
}

record! {
    /// PIDFD: inode numbers of its pidfds, which no other task gets before the next boot. Source:
    /// `pidfd_open(2)`, `struct pid`; since Linux 6.9.
    Pidfd = "task_diag_pidfd", least 24;
    {
        /// Inode of the pidfd of this thread. In a record of a process, that of the process.
        ino: u64,
        /// Inode of the pidfd of its process.
        process_ino: u64,
    }
}

record! {
    /// SETTINGS: what a task has set for itself, or others have set for it. Source:
    /// `ioprio_get(2)`, `/proc/PID/status`, `task_struct`. The processors and NUMA nodes that it
    /// may use are in attributes of their own: [`TaskView::cpus`](crate::TaskView::cpus) and
    /// [`TaskView::mems`](crate::TaskView::mems).
    Settings = "task_diag_settings", least 32;
    {
        /// Class of its priority of I/O in the bits from 13 on, level in the lowest three. 0: none
        /// is set.
        ioprio: u32,
        /// Permissions that files which it creates do not get.
        umask: u32,
        /// Number of its seccomp filters.
        seccomp_filters: u32,
        /// 0: it gets no transparent huge pages.
        thp_enabled: u32,
        /// 1: it is writing a core dump.
        coredumping: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// PERSONA: how the kernel treats it. Source: `/proc/PID/personality`,
    /// `/proc/PID/timerslack_ns`, `task_struct`. The maps of ids of its user namespace are in
    /// attributes of their own: [`TaskView::id_map`](crate::TaskView::id_map).
    Persona = "task_diag_persona", least 24;
    {
        /// By how much its timers may be late, ns.
        timer_slack_ns: u64,
        /// `PER_*` and flags of `personality(2)`.
        personality: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// NS_ID: numbers of the namespaces that no other namespace gets before the next boot. Source:
    /// `NS_GET_ID` of `ioctl_nsfs(2)`, `ns_common`; since Linux 6.18.
    NsId = "task_diag_ns_id", least 88;
    {
        /// Cgroup namespace.
        cgroup: u64,
        /// IPC namespace.
        ipc: u64,
        /// Mount namespace.
        mnt: u64,
        /// Network namespace.
        net: u64,
        /// Pid namespace.
        pid: u64,
        /// Pid namespace of its future children.
        pid_for_children: u64,
        /// Time namespace.
        time: u64,
        /// Time namespace of its future children.
        time_for_children: u64,
        /// User namespace.
        user: u64,
        /// UTS namespace.
        uts: u64,
    }
}
