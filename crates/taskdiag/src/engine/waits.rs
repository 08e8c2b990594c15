//! The thing that a sleeping thread waits for, derived from its state, its system call, and the
//! kernel function in which it sleeps. Both engines use it, so that they agree.
//!
//! The function decides, because one system call waits for many things. If the list here lacks the
//! function, the system call decides, but only for waits that a signal ends. In other waits, a task
//! rarely waits for the object of its system call: it waits for a lock or for memory. Everything
//! else is [`WaitKind::Other`], and the record still names the function.
//!
//! Some functions wait for any file. Then the file of the descriptor decides, if the engine can
//! read its link in /proc while the thread waits.
//!
//! This module does not read memory of the thread. So a lock and a condition variable are both a
//! futex.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use taskdiag_wire::layout::bit;
use taskdiag_wire::{OwnerHow, WAIT_COMPAT, WAIT_UNINTERRUPTIBLE, Wait, WaitKind};

use crate::syscalls::Machine;

/// Kernel functions and the kind of wait in each, sorted by name. The suffix that the compiler
/// gives to a part of a function (`.isra.0`) is cut off before the search.
#[rustfmt::skip]
const FUNCTIONS: &[(&str, WaitKind)] = {
    use WaitKind::*;
    &[
        ("__bio_queue_enter", BlockIo),
        ("__blkdev_direct_IO", BlockIo),
        ("__blkdev_direct_IO_simple", BlockIo),
        ("__break_lease", Lease),
        ("__do_semtimedop", SysvSem),
        ("__do_wait", Child),
        ("__filemap_fdatawait_range", Writeback),
        ("__folio_lock", PageIo),
        ("__folio_lock_killable", PageIo),
        ("__folio_lock_or_retry", PageIo),
        ("__fuse_request_send", Fuse),
        ("__fuse_simple_request", Fuse),
        ("__inet_stream_connect", Connect),
        ("__iomap_dio_rw", BlockIo),
        ("__jbd2_log_wait_for_space", Journal),
        ("__lock_page", PageIo),
        ("__lock_page_killable", PageIo),
        ("__mem_cgroup_handle_over_high", MemoryHigh),
        ("__refrigerator", Frozen),
        ("__rpc_execute", Netfs),
        ("__seccomp_filter", Seccomp),
        ("__skb_recv_udp", Receive),
        ("__skb_wait_for_more_packets", Receive),
        ("__sync_dirty_buffer", BlockIo),
        ("__wait_on_buffer", BlockIo),
        ("__xfs_log_force_lsn", Journal),
        ("add_transaction_credits", Journal),
        ("alarmtimer_do_nsleep", Sleep),
        ("anon_pipe_read", PipeRead),
        ("anon_pipe_write", PipeWrite),
        ("balance_dirty_pages", Writeback),
        ("balance_dirty_pages_ratelimited", Writeback),
        ("balance_dirty_pages_ratelimited_flags", Writeback),
        ("blk_execute_rq", BlockIo),
        ("blk_io_schedule", BlockIo),
        ("blk_mq_freeze_queue_wait", BlockIo),
        ("blk_mq_get_tag", BlockIo),
        ("blk_queue_enter", BlockIo),
        ("blkdev_issue_flush", BlockIo),
        ("btrfs_commit_transaction", Journal),
        ("ceph_mdsc_wait_request", Netfs),
        ("ceph_osdc_wait_request", Netfs),
        ("common_nsleep", Sleep),
        ("common_nsleep_timens", Sleep),
        ("congestion_wait", Reclaim),
        ("core_sys_select", Select),
        ("coredump_task_exit", Coredump),
        ("coredump_wait", Coredump),
        ("dio_await_completion", BlockIo),
        ("do_blockdev_direct_IO", BlockIo),
        ("do_coredump", Coredump),
        ("do_epoll_wait", Epoll),
        ("do_freezer_trap", Frozen),
        ("do_get_write_access", Journal),
        ("do_mq_timedreceive", Mqueue),
        ("do_mq_timedsend", Mqueue),
        ("do_msgrcv", SysvMsg),
        ("do_msgsnd", SysvMsg),
        ("do_nanosleep", Sleep),
        ("do_poll", Poll),
        ("do_select", Select),
        ("do_semtimedop", SysvSem),
        ("do_sigtimedwait", Signal),
        ("do_sys_poll", Poll),
        ("do_wait", Child),
        ("ep_poll", Epoll),
        ("eventfd_read", Eventfd),
        ("eventfd_write", Eventfd),
        ("fanotify_read", Inotify),
        ("fifo_open", FifoOpen),
        ("fifo_pipe_read", PipeRead),
        ("fifo_pipe_write", PipeWrite),
        ("flock_lock_inode_wait", Flock),
        ("folio_wait_bit", PageIo),
        ("folio_wait_bit_common", PageIo),
        ("folio_wait_bit_killable", PageIo),
        ("folio_wait_stable", Writeback),
        ("folio_wait_writeback", Writeback),
        ("fuse_direct_io", Fuse),
        ("fuse_get_req", Fuse),
        ("fuse_set_nowrite", Fuse),
        ("fuse_simple_request", Fuse),
        ("fuse_wait_on_folio_writeback", Fuse),
        ("fuse_wait_on_page_writeback", Fuse),
        ("futex_do_wait", Futex),
        ("futex_lock_pi", FutexPi),
        ("futex_wait", Futex),
        ("futex_wait_multiple", Futex),
        ("futex_wait_queue", Futex),
        ("futex_wait_queue_me", Futex),
        ("futex_wait_requeue_pi", FutexCondition),
        ("get_signal", Frozen),
        ("handle_userfault", Userfaultfd),
        ("hrtimer_nanosleep", Sleep),
        ("inet_csk_accept", Accept),
        ("inet_csk_wait_for_connect", Accept),
        ("inet_stream_connect", Connect),
        ("inet_wait_for_connect", Connect),
        ("inotify_read", Inotify),
        ("io_cqring_schedule_timeout", IoUring),
        ("io_cqring_wait", IoUring),
        ("io_sq_thread", Idle),
        ("io_wq_worker", Idle),
        ("iomap_dio_rw", BlockIo),
        ("jbd2_log_wait_commit", Journal),
        ("kernel_clone", Vfork),
        ("mem_cgroup_handle_over_high", MemoryHigh),
        ("mem_cgroup_oom_synchronize", Reclaim),
        ("migration_entry_wait_on_locked", PageFault),
        ("n_tty_read", TtyRead),
        ("n_tty_write", TtyWrite),
        ("nfs4_wait_on_delegreturn", Netfs),
        ("nfs_iocounter_wait", Netfs),
        ("nfs_wait_bit_killable", Netfs),
        ("nfs_wait_client_init_complete", Netfs),
        ("nfs_wait_on_request", Netfs),
        ("p9_client_rpc", Netfs),
        ("pipe_read", PipeRead),
        ("pipe_wait_readable", PipeRead),
        ("pipe_wait_writable", PipeWrite),
        ("pipe_write", PipeWrite),
        ("posix_lock_inode_wait", PosixLock),
        ("reclaim_throttle", Reclaim),
        ("request_wait_answer", Fuse),
        ("rpc_wait_bit_killable", Netfs),
        ("rq_qos_wait", BlockIo),
        ("seccomp_do_user_notification", Seccomp),
        ("shrink_inactive_list", Reclaim),
        ("signalfd_dequeue", Signalfd),
        ("signalfd_read", Signalfd),
        ("signalfd_read_iter", Signalfd),
        ("sigsuspend", Signal),
        ("sk_stream_wait_memory", Send),
        ("sk_wait_data", Receive),
        ("softleaf_entry_wait_on_locked", PageFault),
        ("start_this_handle", Journal),
        ("submit_bio_wait", BlockIo),
        ("sync_inodes_sb", Writeback),
        ("throttle_direct_reclaim", Reclaim),
        ("timerfd_read", Timerfd),
        ("timerfd_read_iter", Timerfd),
        ("try_to_free_pages", Reclaim),
        ("tty_wait_until_sent", TtyWrite),
        ("unix_stream_data_wait", Receive),
        ("unix_stream_read_generic", Receive),
        ("userfaultfd_ctx_read", Read),
        ("vfs_coredump", Coredump),
        ("wait_current_trans", Journal),
        ("wait_for_commit", Journal),
        ("wait_for_partner", FifoOpen),
        ("wait_for_response", Netfs),
        ("wait_for_vfork_done", Vfork),
        ("wait_iff_congested", Reclaim),
        ("wait_on_page_bit", PageIo),
        ("wait_on_page_bit_common", PageIo),
        ("wait_on_page_writeback", Writeback),
        ("wait_sb_inodes", Writeback),
        ("wait_transaction_locked", Journal),
        ("wait_transaction_switching", Journal),
        ("wb_wait_for_completion", Writeback),
        ("wbt_wait", BlockIo),
        ("wq_sleep", Mqueue),
        ("xfs_buf_iowait", BlockIo),
        ("xlog_grant_head_wait", Journal),
        ("xlog_wait_on_iclog", Journal),
    ]
};

/// Functions in which version 1 of cgroups can freeze a sleeping thread, sorted by name. Since
/// Linux 6.1, the thread is in state D then, and only then: these functions sleep in state S.
const FREEZABLE: &[&str] = &[
    "__do_wait",
    "do_nanosleep",
    "do_signal_stop",
    "do_sigtimedwait",
    "do_wait",
    "futex_do_wait",
    "futex_wait_multiple",
    "futex_wait_queue",
    "get_signal",
    "hrtimer_nanosleep",
    "ptrace_stop",
    "unix_stream_data_wait",
    "unix_stream_read_generic",
];

/// Whether spinlocks of the kernel sleep, so that any function may be in state D for a moment.
fn has_sleeping_spinlocks() -> bool {
    static IS_SO: LazyLock<bool> = LazyLock::new(|| {
        let version = rustix::system::uname().version().to_bytes().to_vec();
        [&b"PREEMPT_RT"[..], b"PREEMPT RT"].iter().any(|w| version.windows(10).any(|v| v == *w))
    });
    *IS_SO
}

/// The kind of wait in a system call.
fn of_syscall(name: &str, args: Option<&[u64; 6]>) -> WaitKind {
    let arg = |n: usize| args.map(|a| a[n]);
    match name {
        "read" | "readv" | "pread64" | "preadv" | "preadv2" => WaitKind::Read,
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => WaitKind::Write,
        "accept" | "accept4" => WaitKind::Accept,
        "connect" => WaitKind::Connect,
        "recv" | "recvfrom" | "recvmsg" | "recvmmsg" | "recvmmsg_time64" => WaitKind::Receive,
        "send" | "sendto" | "sendmsg" | "sendmmsg" => WaitKind::Send,
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => WaitKind::Epoll,
        "poll" | "ppoll" | "ppoll_time64" => WaitKind::Poll,
        "select" | "_newselect" | "pselect6" | "pselect6_time64" => WaitKind::Select,
        "futex" | "futex_time64" => of_futex(arg(1)),
        "futex_wait" | "futex_waitv" => WaitKind::Futex,
        "wait4" | "waitpid" => WaitKind::Child,
        "waitid" => of_waitid(arg(0)),
        "flock" => WaitKind::Flock,
        "fcntl" | "fcntl64" => of_fcntl(arg(1)),
        "nanosleep" | "clock_nanosleep" | "clock_nanosleep_time64" => WaitKind::Sleep,
        "pause" | "sigsuspend" | "rt_sigsuspend" => WaitKind::Signal,
        "rt_sigtimedwait" | "rt_sigtimedwait_time64" => WaitKind::Signal,
        "io_uring_enter" => WaitKind::IoUring,
        "semop" | "semtimedop" | "semtimedop_time64" => WaitKind::SysvSem,
        "msgrcv" | "msgsnd" => WaitKind::SysvMsg,
        "mq_timedreceive" | "mq_timedreceive_time64" => WaitKind::Mqueue,
        "mq_timedsend" | "mq_timedsend_time64" => WaitKind::Mqueue,
        "vfork" => WaitKind::Vfork,
        _ => WaitKind::Other,
    }
}

/// From the operation: `FUTEX_LOCK_PI`, `FUTEX_WAIT_REQUEUE_PI`, `FUTEX_LOCK_PI2`.
fn of_futex(op: Option<u64>) -> WaitKind {
    match op.map(|op| op & 0x7f) {
        Some(6 | 13) => WaitKind::FutexPi,
        Some(11) => WaitKind::FutexCondition,
        _ => WaitKind::Futex,
    }
}

/// `P_PIDFD`.
fn of_waitid(which: Option<u64>) -> WaitKind {
    if which == Some(3) { WaitKind::Pidfd } else { WaitKind::Child }
}

/// From the command: `F_SETLKW`, its form for 64 bits, `F_OFD_SETLKW`.
fn of_fcntl(command: Option<u64>) -> WaitKind {
    match command {
        Some(7 | 14) => WaitKind::PosixLock,
        Some(38) => WaitKind::OfdLock,
        _ => WaitKind::Other,
    }
}

/// The known facts about a thread.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its state letter.
    pub state: u8,
    /// The function that it sleeps in. Empty: not known.
    pub function: &'a [u8],
    /// The name of its system call. `None`: it is in none, or in an unknown one.
    pub syscall: Option<&'a str>,
    /// The arguments of that.
    pub args: Option<&'a [u64; 6]>,
    /// Has it no user space, as a thread of the kernel?
    pub is_kernels: bool,
    /// Whether spinlocks of this kernel sleep.
    pub has_sleeping_spinlocks: bool,
}

impl Facts<'_> {
    /// Whether it was frozen where it slept.
    fn is_frozen_in_place(&self) -> bool {
        let is_known =
            || FREEZABLE.binary_search_by(|name| name.as_bytes().cmp(plain(self.function))).is_ok();
        self.state == b'D' && !self.is_kernels && !self.has_sleeping_spinlocks && is_known()
    }
}

/// The name of a function without the suffix that the compiler has added.
fn plain(function: &[u8]) -> &[u8] {
    let end = function.iter().position(|b| *b == b'.').filter(|n| *n > 0);
    &function[..end.unwrap_or(function.len())]
}

/// The kind of wait of a thread that sleeps, is stopped, or has ended.
pub fn kind(facts: &Facts<'_>) -> WaitKind {
    match facts.state {
        b'Z' | b'X' => return WaitKind::Ended,
        b'T' => return WaitKind::Stopped,
        b't' => return WaitKind::Traced,
        b'R' => return WaitKind::Runnable,
        b'I' | b'P' => return WaitKind::Idle,
        _ if facts.is_frozen_in_place() => return WaitKind::Frozen,
        _ => {}
    }
    let function = plain(facts.function);
    let found = FUNCTIONS.binary_search_by(|(name, _)| name.as_bytes().cmp(function));
    let by_syscall = facts.syscall.map_or(WaitKind::Other, |name| of_syscall(name, facts.args));
    match found.map(|n| FUNCTIONS[n].1) {
        // This function is used for several kinds of wait, which the system call tells apart.
        Ok(WaitKind::Futex) if by_syscall != WaitKind::Other => by_syscall,
        Ok(WaitKind::Receive) if by_syscall == WaitKind::Accept => WaitKind::Accept,
        Ok(WaitKind::Child) if by_syscall == WaitKind::Pidfd => WaitKind::Pidfd,
        Ok(WaitKind::PosixLock) if by_syscall == WaitKind::OfdLock => WaitKind::OfdLock,
        // The thread touched memory that is not present.
        Ok(WaitKind::PageIo) if facts.syscall.is_none() && !facts.is_kernels => WaitKind::PageFault,
        Ok(kind) => kind,
        Err(_) if facts.is_kernels && facts.state == b'S' => WaitKind::Idle,
        Err(_) if facts.state == b'S' => by_syscall,
        Err(_) => WaitKind::Other,
    }
}

/// A number that stands for an object, and from which the object cannot be found. It stays the same
/// while this process lives.
fn opaque(of: (u64, u64)) -> u64 {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SECRET.hash_one(of)
}

const KIND: u32 = bit(Wait::MEMBERS, "kind");
const OBJECT: u32 = bit(Wait::MEMBERS, "object");
const ARGS: u32 = bit(Wait::MEMBERS, "args");
const SYSCALL_NR: u32 = bit(Wait::MEMBERS, "syscall_nr");
const FUNCTION: u32 = bit(Wait::MEMBERS, "function");
const USER_SP: u32 = bit(Wait::MEMBERS, "user_sp");

/// Completes a record: the kind, unless the engine knows it from the kernel, the object of a futex,
/// and the fact that no owner is recorded for objects without one.
pub fn complete(wait: &mut Wait, tgid: u32) {
    // A lock of the kernel: until here, this is its address.
    if wait.valid & OBJECT != 0 {
        wait.object = opaque((0, wait.object));
    }
    let is_compat = wait.flags & WAIT_COMPAT != 0;
    let is_in_call = wait.valid & SYSCALL_NR != 0;
    let call = is_in_call.then(|| Machine::own()?.syscall(wait.syscall_nr, is_compat)).flatten();
    let args = (wait.valid & ARGS != 0).then_some(wait.args);
    let function = match wait.valid & FUNCTION {
        0 => &[][..],
        _ => wait.function.split(|b| *b == 0).next().unwrap_or_default(),
    };
    let by_facts = kind(&Facts {
        state: wait.state,
        function,
        syscall: call,
        args: args.as_ref(),
        is_kernels: wait.valid & USER_SP != 0 && wait.user_sp == 0 && wait.user_pc == 0,
        has_sleeping_spinlocks: has_sleeping_spinlocks(),
    });
    if wait.kind == WaitKind::Other as u32 {
        wait.kind = by_facts as u32;
    }
    let is_futex = matches!(call, Some("futex" | "futex_time64"));
    if is_futex && wait.kind == WaitKind::RtMutex as u32 {
        wait.kind = WaitKind::FutexPi as u32;
    }
    if wait.state == b'D' {
        wait.flags |= WAIT_UNINTERRUPTIBLE;
    }
    wait.valid |= KIND;
    match WaitKind::from_number(wait.kind) {
        Some(WaitKind::FutexCondition) => wait.owner_how = OwnerHow::NotKept as u32,
        _ if wait.valid & OBJECT != 0 => return,
        Some(WaitKind::Futex | WaitKind::FutexPi) => {}
        _ => return,
    }
    // A futex of one process: FUTEX_PRIVATE_FLAG.
    if let (true, Some([address, op, ..])) = (is_futex, args) {
        if op & 0x80 != 0 {
            wait.object = opaque((u64::from(tgid), address));
            wait.valid |= OBJECT;
        }
    }
}

/// The beginning of the target of `/proc/PID/fd/N`, and the kinds of waits to read and to write.
type ByLink = (&'static str, WaitKind, WaitKind);

/// Functions in which a thread waits until a file of any kind can be read or written, in order of
/// their names, each with the kinds of files that it waits for.
const ANY: &[(&str, &[ByLink])] = {
    use WaitKind::*;
    &[
        (
            "do_wait_intr_irq",
            &[("anon_inode:[eventfd]", Eventfd, Eventfd), ("anon_inode:[timerfd]", Timerfd, Write)],
        ),
        (
            "wait_woken",
            &[
                ("/dev/console", TtyRead, TtyWrite),
                ("/dev/pts/", TtyRead, TtyWrite),
                ("/dev/tty", TtyRead, TtyWrite),
                ("anon_inode:[fanotify]", Inotify, Write),
                ("anon_inode:inotify", Inotify, Write),
            ],
        ),
    ]
};

/// The descriptor that a thread reads or writes, if only its file tells what the thread waits for.
/// The kind of the record need not be known yet.
pub fn descriptor(wait: &Wait) -> Option<u32> {
    let known = FUNCTION | SYSCALL_NR | ARGS;
    let is_plain = wait.state == b'S' && wait.flags & WAIT_COMPAT == 0;
    if !is_plain || wait.valid & known != known {
        return None;
    }
    files_of(wait)?;
    let call = Machine::own()?.syscall(wait.syscall_nr, false)?;
    let kind = of_syscall(call, Some(&wait.args));
    // The kernel takes a descriptor as a number of 32 bits.
    matches!(kind, WaitKind::Read | WaitKind::Write).then_some(wait.args[0] as u32)
}

fn files_of(wait: &Wait) -> Option<&'static [ByLink]> {
    let function = wait.function.split(|b| *b == 0).next().unwrap_or_default();
    let at = ANY.binary_search_by(|(name, _)| name.as_bytes().cmp(plain(function))).ok()?;
    Some(ANY[at].1)
}

/// Sets the kind of a [completed](complete) record by the target of the link to its
/// [`descriptor`]. The link must have been read while the thread waited. If the function does not
/// wait for files of this kind, the record is unchanged: another thread may have replaced the
/// descriptor.
pub fn set_by_link(wait: &mut Wait, target: &[u8]) {
    let is = |begin: &str| target.starts_with(begin.as_bytes());
    let found = files_of(wait).and_then(|all| all.iter().find(|(begin, ..)| is(begin)));
    let Some((_, read, write)) = found else { return };
    match WaitKind::from_number(wait.kind) {
        Some(WaitKind::Read) => wait.kind = *read as u32,
        Some(WaitKind::Write) => wait.kind = *write as u32,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_what_a_function_for_any_file_waits_for() {
        let by_link = |function: &[u8], call: i64, target: &[u8]| {
            let mut w = Wait::new();
            w.valid = ARGS | SYSCALL_NR | FUNCTION;
            w.state = b'S';
            w.function[..function.len()].copy_from_slice(function);
            w.syscall_nr = call as i32;
            w.args[0] = 5;
            assert_eq!(descriptor(&w), Some(5));
            complete(&mut w, 7);
            set_by_link(&mut w, target);
            WaitKind::from_number(w.kind).expect("it is known")
        };
        let (read, write) = (libc::SYS_read, libc::SYS_write);
        let (any, woken) = (&b"do_wait_intr_irq"[..], &b"wait_woken"[..]);
        assert_eq!(by_link(any, read, b"anon_inode:[eventfd]"), WaitKind::Eventfd);
        assert_eq!(by_link(any, write, b"anon_inode:[eventfd]"), WaitKind::Eventfd);
        assert_eq!(by_link(any, read, b"anon_inode:[timerfd]"), WaitKind::Timerfd);
        assert_eq!(by_link(woken, read, b"anon_inode:inotify"), WaitKind::Inotify);
        assert_eq!(by_link(woken, read, b"/dev/pts/3"), WaitKind::TtyRead);
        assert_eq!(by_link(woken, write, b"/dev/tty1"), WaitKind::TtyWrite);
        // This function does not wait for a file of this kind, so the descriptor was replaced
        // meanwhile.
        assert_eq!(by_link(woken, read, b"anon_inode:[eventfd]"), WaitKind::Read);
        assert_eq!(by_link(any, read, b"/srv/file"), WaitKind::Read);
    }

    const NOTHING: Facts<'_> = Facts {
        state: b'S',
        function: b"",
        syscall: None,
        args: None,
        is_kernels: false,
        has_sleeping_spinlocks: false,
    };

    fn sleeping(function: &str, syscall: Option<&str>, args: [u64; 6]) -> WaitKind {
        kind(&Facts { function: function.as_bytes(), syscall, args: Some(&args), ..NOTHING })
    }

    #[test]
    fn functions_are_in_order() {
        assert!(FUNCTIONS.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(FREEZABLE.is_sorted());
        assert!(ANY.is_sorted_by_key(|any| any.0));
    }

    #[test]
    fn a_sleep_that_signals_end_is_frozen_if_it_is_in_state_d() {
        let nap = Facts { function: b"hrtimer_nanosleep", syscall: Some("nanosleep"), ..NOTHING };
        assert_eq!(kind(&nap), WaitKind::Sleep);
        assert_eq!(kind(&Facts { state: b'D', ..nap }), WaitKind::Frozen);
        assert_eq!(
            kind(&Facts { function: b"futex_do_wait", state: b'D', ..nap }),
            WaitKind::Frozen
        );
        // In state D, the thread may wait for a spinlock in this function, or sleep in a function
        // that is not listed.
        let in_d = Facts { state: b'D', has_sleeping_spinlocks: true, ..nap };
        assert_eq!(kind(&in_d), WaitKind::Sleep);
        let driver = Facts { state: b'D', function: b"some_driver", ..nap };
        assert_eq!(kind(&driver), WaitKind::Other);
        let trap = Facts { function: b"get_signal", syscall: Some("pause"), ..NOTHING };
        assert_eq!(kind(&trap), WaitKind::Frozen);
        assert_eq!(kind(&Facts { state: b'T', ..trap }), WaitKind::Stopped);
    }

    #[test]
    fn a_function_tells_more_than_the_system_call() {
        let none = [0; 6];
        assert_eq!(sleeping("anon_pipe_read", Some("read"), none), WaitKind::PipeRead);
        assert_eq!(sleeping("anon_pipe_read.isra.0", Some("splice"), none), WaitKind::PipeRead);
        assert_eq!(sleeping("a_driver_waits", Some("read"), none), WaitKind::Read);
        assert_eq!(sleeping("", Some("read"), none), WaitKind::Read);
        assert_eq!(sleeping("a_driver_waits", None, none), WaitKind::Other);
        assert_eq!(
            sleeping("__skb_wait_for_more_packets", Some("accept4"), none),
            WaitKind::Accept
        );
    }

    #[test]
    fn arguments_tell_calls_apart() {
        let futex = |op| sleeping("futex_do_wait", Some("futex"), [1, op, 0, 0, 0, 0]);
        assert_eq!(futex(0), WaitKind::Futex);
        assert_eq!(futex(128 + 9), WaitKind::Futex);
        assert_eq!(futex(128 + 6), WaitKind::FutexPi);
        assert_eq!(futex(11), WaitKind::FutexCondition);
        let fcntl = |cmd| sleeping("posix_lock_inode_wait", Some("fcntl"), [1, cmd, 0, 0, 0, 0]);
        assert_eq!((fcntl(7), fcntl(38)), (WaitKind::PosixLock, WaitKind::OfdLock));
        let waitid = |which| sleeping("do_wait", Some("waitid"), [which, 0, 0, 0, 0, 0]);
        assert_eq!((waitid(1), waitid(3)), (WaitKind::Child, WaitKind::Pidfd));
    }

    #[test]
    fn only_waits_that_signals_end_are_named_by_their_call() {
        let in_state = |state| {
            kind(&Facts { state, function: b"some_driver", syscall: Some("read"), ..NOTHING })
        };
        assert_eq!(in_state(b'S'), WaitKind::Read);
        assert_eq!(in_state(b'D'), WaitKind::Other);
        assert_eq!(in_state(b'T'), WaitKind::Stopped);
        assert_eq!(in_state(b'Z'), WaitKind::Ended);
    }

    #[test]
    fn waits_for_the_same_futex_have_the_same_object() {
        let futex = |tgid, address, op| {
            let mut w = Wait::new();
            w.valid = ARGS | SYSCALL_NR | FUNCTION;
            w.state = b'S';
            w.function[..13].copy_from_slice(b"futex_do_wait");
            w.syscall_nr = libc::SYS_futex as i32;
            w.args = [address, op, 0, 0, 0, 0];
            complete(&mut w, tgid);
            (w.valid & OBJECT != 0).then_some(w.object)
        };
        let one = futex(7, 0x7000_1000, 0x80).expect("a private futex is known");
        assert_eq!(futex(7, 0x7000_1000, 0x89), Some(one));
        assert_ne!(one, 0x7000_1000);
        assert_ne!(futex(8, 0x7000_1000, 0x80), Some(one));
        assert_ne!(futex(7, 0x7000_1008, 0x80), Some(one));
        // Other processes may map the page of a shared futex at another address.
        assert_eq!(futex(7, 0x7000_1000, 0), None);
    }
}
