//! Parses /proc/PID/stat and /proc/PID/task/TID/stat into BASE, STAT, LAYOUT, the virtual size of
//! STATM, and a fact about the arguments.

use taskdiag_wire::{Base, Layout, Reason, STAT_LOCKED, Stat, Statm, TASK_EXITING, TASK_KTHREAD};

use super::{Fields, set};

/// The task is in `do_exit()`.
const PF_EXITING: u32 = 0x4;
/// The task is a kernel thread.
const PF_KTHREAD: u32 = 0x20_0000;

/// The content of a stat file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFile {
    /// The record BASE.
    pub base: Base,
    /// The record STAT.
    pub stat: Stat,
    /// The virtual size in bytes. It is 0 where the task has no memory.
    pub size_bytes: Option<u64>,
    /// The record LAYOUT, or why there is none.
    pub layout: Result<Layout, Reason>,
    /// How long the first thread has waited for block devices, if the kernel counts that.
    pub io_wait_ns: Option<u64>,
    /// The number of bytes between the kernel's marks of the start and the end of the arguments.
    /// `None` if the reader may not know them, or there are none.
    pub args_len: Option<u64>,
    /// As `args_len`, for the environment.
    pub environ_len: Option<u64>,
    comm: [u8; COMM_MAX],
    comm_len: usize,
}

/// The kernel has no longer names than this (`struct proc_task_name` in fs/proc/array.c has 64
/// bytes with the NUL).
const COMM_MAX: usize = 63;

impl StatFile {
    /// The command name.
    pub fn comm(&self) -> &[u8] {
        &self.comm[..self.comm_len]
    }
    /// Whether an empty command line means that the task has none. This is so for a kernel thread,
    /// a zombie, and a task in `do_exit()`.
    pub fn has_no_memory(&self) -> bool {
        self.base.flags & (TASK_KTHREAD | TASK_EXITING) != 0
    }
    /// STAT with the flag for locked pages, if the status file has their number.
    pub fn stat_with_locked(&self, locked_bytes: Option<u64>) -> Stat {
        let mut stat = self.stat;
        let locked = locked_bytes.or(self.has_never_memory().then_some(0));
        set!(stat, Stat.flags, locked.map(|bytes| if bytes > 0 { STAT_LOCKED } else { 0 }));
        stat
    }
    /// STATM with the members that this file has.
    pub fn statm(&self) -> Statm {
        let mut statm = Statm::new();
        set!(statm, Statm.size_bytes, self.size_bytes);
        statm
    }
    /// Whether the task is a kernel thread or a zombie. A task in `do_exit()` may still have its
    /// memory.
    pub fn has_never_memory(&self) -> bool {
        self.base.flags & TASK_KTHREAD != 0 || self.base.state == b'Z'
    }
    /// Was the task reaped while the file was read? Then the kernel shows a task without a process.
    pub fn is_reaped(&self) -> bool {
        self.stat.known().num_threads() == Some(0) && self.base.known().sid().is_none()
    }
}

/// Parses a stat file. `tick_ns` is the length of a clock tick.
///
/// Returns `None` if not even name and state are there. The name is between the first `(` and the
/// last `)`, because it may itself contain brackets, blanks, newlines and invalid UTF-8.
pub fn stat(bytes: &[u8], tick_ns: u64) -> Option<StatFile> {
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = memchr::memrchr(b')', bytes).filter(|c| *c > open)?;
    let mut f = Fields::new(&bytes[close + 1..]);
    let state = f.next().filter(|s| s.len() == 1)?[0];

    let mut base = Base::new();
    set!(base, Base.state, Some(state));
    let name = &bytes[open + 1..close];
    let comm_len = name.len().min(COMM_MAX);
    let mut comm = [0; COMM_MAX];
    comm[..comm_len].copy_from_slice(&name[..comm_len]);
    // -1 means that the task is being reaped.
    set!(base, Base.ppid, f.u32());
    set!(base, Base.pgid, f.u32());
    set!(base, Base.sid, f.u32());

    let mut stat = Stat::new();
    // The kernel prints the device number as a signed int.
    set!(stat, Stat.tty_nr, f.i32().map(|n| n as u32));
    set!(stat, Stat.tty_pgrp, f.i32());
    let flags = f.u32();
    set!(base, Base.task_flags, flags);
    let dead = matches!(state, b'Z' | b'X' | b'x');
    set!(base, Base.flags, flags.map(|pf| our_flags(pf, dead)));
    set!(stat, Stat.minflt, f.u64());
    set!(stat, Stat.cminflt, f.u64());
    set!(stat, Stat.majflt, f.u64());
    set!(stat, Stat.cmajflt, f.u64());
    let ns = |ticks: Option<u64>| ticks.and_then(|t| t.checked_mul(tick_ns));
    set!(stat, Stat.utime_ns, ns(f.u64()));
    set!(stat, Stat.stime_ns, ns(f.u64()));
    set!(stat, Stat.cutime_ns, ns(f.u64()));
    set!(stat, Stat.cstime_ns, ns(f.u64()));
    set!(stat, Stat.priority, f.i32());
    set!(stat, Stat.nice, f.i32());
    set!(stat, Stat.num_threads, f.u32());
    f.skip(1); // itrealvalue
    set!(base, Base.start_time_ns, ns(f.u64()));
    let size_bytes = f.u64();
    f.skip(2); // rss, rsslim
    let layout = layout(f.u64(), f.u64(), f.u64());
    f.skip(9); // kstkesp to cnswap
    set!(stat, Stat.exit_signal, f.i32());
    set!(stat, Stat.processor, f.u32());
    set!(stat, Stat.rt_priority, f.u32());
    set!(stat, Stat.policy, f.u32());
    let io_wait_ns = ns(f.u64());
    set!(stat, Stat.guest_ns, ns(f.u64()));
    set!(stat, Stat.cguest_ns, ns(f.u64()));
    f.skip(3); // start_data to start_brk
    let mut between = || match (f.u64(), f.u64()) {
        (Some(start), Some(end)) if start != 0 && end != 0 => end.checked_sub(start),
        _ => None,
    };
    let (args_len, environ_len) = (between(), between());
    Some(StatFile {
        base,
        stat,
        size_bytes,
        layout,
        io_wait_ns,
        args_len,
        environ_len,
        comm,
        comm_len,
    })
}

/// LAYOUT of these addresses. A task without memory has zeros. To a reader who may not trace the
/// task, the kernel shows 1 for both ends of the code, and no stack.
fn layout(
    start_code: Option<u64>,
    end_code: Option<u64>,
    start_stack: Option<u64>,
) -> Result<Layout, Reason> {
    match (start_code, end_code, start_stack) {
        (Some(0), Some(0), Some(0)) => Err(Reason::Absent),
        (Some(1), Some(1), Some(0)) => Err(Reason::Denied),
        (None, None, None) => Err(Reason::Unsupported),
        _ => {
            let mut layout = Layout::new();
            set!(layout, Layout.start_code, start_code);
            set!(layout, Layout.end_code, end_code);
            set!(layout, Layout.start_stack, start_stack);
            Ok(layout)
        }
    }
}

fn our_flags(pf: u32, dead: bool) -> u32 {
    let mut flags = 0;
    if pf & PF_KTHREAD != 0 {
        flags |= TASK_KTHREAD;
    }
    if pf & PF_EXITING != 0 || dead {
        flags |= TASK_EXITING;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 10_000_000;
    const TAIL: &[u8] = b" S 1 5057 3481 34816 -1 4194304 104 5 6 7 8 9 10 11 -51 -20 3 0 155633 \
        3133440 388 18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 1 50 2 12 0 0 4 5 6 \
        100 120 120 130 0\n";

    fn line(name: &[u8]) -> Vec<u8> {
        [b"5064 (", name, b")", TAIL].concat()
    }

    #[test]
    fn stat_gives_every_member() {
        let s = stat(&line(b"cat"), TICK).unwrap();
        let b = s.base;
        assert_eq!(s.comm(), b"cat");
        assert_eq!((b.state, b.ppid, b.pgid, b.sid), (b'S', 1, 5057, 3481));
        assert_eq!((b.task_flags, b.flags), (4194304, 0));
        assert_eq!(b.start_time_ns, 1_556_330_000_000);
        assert_eq!(b.valid, Base::ALL_VALID & !Base::KNOWS_COMM, "the name is put beside it");
        let t = s.stat;
        assert_eq!((t.tty_nr, t.tty_pgrp), (34816, -1));
        assert_eq!((t.minflt, t.cminflt, t.majflt, t.cmajflt), (104, 5, 6, 7));
        assert_eq!((t.utime_ns, t.stime_ns), (8 * TICK, 9 * TICK));
        assert_eq!((t.cutime_ns, t.cstime_ns), (10 * TICK, 11 * TICK));
        assert_eq!((t.priority, t.nice, t.num_threads), (-51, -20, 3));
        assert_eq!((t.exit_signal, t.processor, t.rt_priority, t.policy), (17, 1, 50, 2));
        assert_eq!(t.valid, Stat::ALL_VALID & !super::super::bit(Stat::MEMBERS, "flags"));
        assert_eq!((s.size_bytes, s.args_len), (Some(3133440), Some(20)));
        assert_eq!(s.io_wait_ns, Some(12 * TICK));
        let l = s.layout.unwrap();
        assert_eq!((l.start_code, l.end_code, l.start_stack), (1, 2, 3));
        assert_eq!(l.valid, Layout::ALL_VALID);
    }

    #[test]
    fn hidden_addresses_are_told_from_missing_ones() {
        let of = |addresses: &str| {
            let text = String::from_utf8(line(b"x")).unwrap().replace(" 1 2 3 0 ", addresses);
            stat(text.as_bytes(), TICK).unwrap().layout
        };
        assert_eq!(of(" 0 0 0 0 "), Err(Reason::Absent));
        assert_eq!(of(" 1 1 0 0 "), Err(Reason::Denied));
        assert_eq!(of(" 1 1 9 0 ").unwrap().known().start_stack(), Some(9));
        assert_eq!(of(" 7 z 9 0 ").unwrap().known().end_code(), None);
        let cut = stat(b"1 (x) S 0 0 0 0 -1 4 0 ", TICK).unwrap();
        assert_eq!(cut.layout, Err(Reason::Unsupported));
    }

    #[test]
    fn locked_pages_set_the_flag_of_stat() {
        let s = stat(&line(b"cat"), TICK).unwrap();
        assert_eq!(s.stat_with_locked(None).known().flags(), None);
        assert_eq!(s.stat_with_locked(Some(0)).known().flags(), Some(0));
        assert_eq!(s.stat_with_locked(Some(4096)).known().flags(), Some(STAT_LOCKED));
        assert_eq!(s.stat_with_locked(Some(4096)).valid, Stat::ALL_VALID);
        let zombie = stat(b"1 (x) Z 0 0 0 0 -1 4 0 \n", TICK).unwrap();
        assert_eq!(zombie.stat_with_locked(None).known().flags(), Some(0));
    }

    #[test]
    fn hostile_names_do_not_shift_fields_of_stat() {
        let long = [b'k'; 64];
        let names: [&[u8]; 8] = [
            b"",
            b")",
            b"a) S 1 (b",
            b"((",
            b"new\nline) R 9 9",
            b"\xff\xfe\x80",
            b"a b\tc",
            &long[..63],
        ];
        for name in names {
            let s = stat(&line(name), TICK).unwrap();
            assert_eq!(s.comm(), name);
            assert_eq!((s.base.state, s.base.ppid), (b'S', 1));
        }
        // A kernel might give a longer name than the record holds. The name is cut and still ends
        // with a NUL.
        assert_eq!(stat(&line(&long), TICK).unwrap().comm(), &long[..63]);
    }

    #[test]
    fn flags_tell_kernel_threads_and_ending_tasks() {
        let of = |state: char, pf: u32| {
            let text = format!("1 (x) {state} 0 0 0 0 -1 {pf} 0 \n");
            stat(text.as_bytes(), TICK).unwrap()
        };
        assert_eq!(of('S', 0x200040).base.flags, TASK_KTHREAD);
        assert_eq!(of('R', 0x400004).base.flags, TASK_EXITING);
        assert_eq!(of('Z', 0x40000c).base.flags, TASK_EXITING);
        assert!(of('Z', 0).has_no_memory() && of('S', 0x200000).has_no_memory());
        assert!(!of('S', 0).has_no_memory());
    }

    #[test]
    fn a_stat_file_may_be_cut_anywhere() {
        let whole = line(b"a) b");
        let full = stat(&whole, TICK).unwrap();
        for n in 0..whole.len() {
            let Some(s) = stat(&whole[..n], TICK) else { continue };
            // Every value that is marked as known must be right.
            if s.comm() == b"a) b" {
                for (known, value) in [
                    (s.base.known().ppid(), full.base.ppid),
                    (s.base.known().pgid(), full.base.pgid),
                    (s.base.known().task_flags(), full.base.task_flags),
                    (s.stat.known().policy(), full.stat.policy),
                ] {
                    assert!(known.is_none_or(|k| k == value), "cut at {n}");
                }
            }
        }
    }

    #[test]
    fn garbage_in_stat_is_refused_or_not_known() {
        for bad in
            [&b""[..], b"(", b")", b")(", b"1 (x", b"1 (x)", b"1 (x) ", b"1 (x) SS 1 ", b"\0\0"]
        {
            assert_eq!(stat(bad, TICK), None, "{bad:?}");
        }
        let s = stat(b"1 (x) S a -1 99999999999 z z z \n", TICK).unwrap();
        assert_eq!(
            (s.base.known().ppid(), s.base.known().pgid(), s.base.known().sid()),
            (None, None, None)
        );
        assert_eq!(s.base.known().flags(), None);
        assert_eq!(s.args_len, None);
    }

    #[test]
    fn a_reaped_task_is_recognised() {
        let text = b"7 (x) X 0 -1 -1 0 -1 4194316 0 0 0 0 0 0 0 0 20 0 0 0 5 0 0 \n";
        assert!(stat(text, TICK).unwrap().is_reaped());
        assert!(!stat(&line(b"x"), TICK).unwrap().is_reaped());
    }
}
