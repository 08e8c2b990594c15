//! The files that say what a task waits for: `syscall`, `sched`, and some lines of `status`.

use taskdiag_wire::Wait;

use super::{lone_number, set};

/// /proc/PID/syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallText {
    /// The task runs, or is ready to.
    Running,
    /// The task sleeps: number, stack pointer and instruction pointer; arguments if it is in a
    /// call.
    Asleep {
        /// Number of the system call, -1 if the thread is in none.
        nr: i32,
        /// Arguments.
        args: Option<[u64; 6]>,
        /// Stack pointer of user space.
        sp: u64,
        /// Instruction pointer of user space.
        pc: u64,
    },
}

fn hex(field: &str) -> Option<u64> {
    u64::from_str_radix(field.strip_prefix("0x")?, 16).ok()
}

/// Parses /proc/PID/syscall. `None` if the text is not understood, or cut.
pub fn syscall(bytes: &[u8]) -> Option<SyscallText> {
    let text = std::str::from_utf8(bytes.strip_suffix(b"\n")?).ok()?;
    if text == "running" {
        return Some(SyscallText::Running);
    }
    let (nr, rest) = text.split_once(' ')?;
    let mut numbers = [0; 8];
    let mut n = 0;
    for field in rest.split(' ') {
        *numbers.get_mut(n)? = hex(field)?;
        n += 1;
    }
    let nr = nr.parse().ok()?;
    match n {
        2 => Some(SyscallText::Asleep { nr, args: None, sp: numbers[0], pc: numbers[1] }),
        8 => {
            let args = numbers[..6].try_into().ok();
            Some(SyscallText::Asleep { nr, args, sp: numbers[6], pc: numbers[7] })
        }
        _ => None,
    }
}

impl SyscallText {
    /// Enters it into a record. The registers of a thread of the kernel are zero, and it is in no
    /// call.
    pub fn put(self, wait: &mut Wait) {
        let SyscallText::Asleep { nr, args, sp, pc } = self else { return };
        let has_user_space = sp != 0 || pc != 0;
        set!(wait, Wait.syscall_nr, Some(if has_user_space { nr } else { -1 }));
        set!(wait, Wait.user_sp, Some(sp));
        set!(wait, Wait.user_pc, Some(pc));
        set!(wait, Wait.args, args.filter(|_| has_user_space && nr >= 0));
    }
}

/// Of /proc/PID/sched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedText {
    /// When the task last left a CPU, on the clock of the scheduler, ns.
    pub exec_start_ns: Option<u64>,
    /// How often it did.
    pub switches: Option<u64>,
}

/// Milliseconds with six decimals, as ns.
fn ns_of_ms(text: &str) -> Option<u64> {
    let (ms, rest) = text.split_once('.')?;
    let rest = rest.parse::<u64>().ok().filter(|_| rest.len() == 6)?;
    ms.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(rest)
}

/// Parses /proc/PID/sched. Only whole lines count.
pub fn sched(bytes: &[u8]) -> SchedText {
    let mut s = SchedText::default();
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let value = || std::str::from_utf8(&line[colon + 1..]).ok().map(str::trim);
        match line[..colon].trim_ascii_end() {
            // The value is 0 after the task was moved to another CPU.
            b"se.exec_start" => {
                s.exec_start_ns = value().and_then(ns_of_ms).filter(|ns| *ns > 0);
            }
            b"nr_switches" => {
                s.switches = value().and_then(|v| v.parse().ok());
                break;
            }
            _ => {}
        }
    }
    s
}

/// The values of /proc/PID/status that show whether a task has slept all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepText {
    /// State letter.
    pub state: Option<u8>,
    /// Tid of the tracer, or 0.
    pub tracer: Option<u32>,
    /// How often it left a CPU.
    pub switches: Option<u64>,
}

/// Parses /proc/PID/status for [`SleepText`].
pub fn sleep(bytes: &[u8]) -> SleepText {
    let mut s = SleepText::default();
    let mut switches = [None; 2];
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        if let Some(rest) = line.strip_prefix(b"State:\t") {
            s.state = rest.first().copied();
        } else if let Some(rest) = line.strip_prefix(b"TracerPid:\t") {
            s.tracer = lone_number(rest);
        } else if let Some(rest) = line.strip_prefix(b"voluntary_ctxt_switches:\t") {
            switches[0] = lone_number::<u64>(rest);
        } else if let Some(rest) = line.strip_prefix(b"nonvoluntary_ctxt_switches:\t") {
            switches[1] = lone_number::<u64>(rest);
        }
    }
    if let [Some(a), Some(b)] = switches {
        s.switches = a.checked_add(b);
    }
    s
}

/// The longest time, in ticks, that a CPU has lost to interrupts and to a hypervisor, from
/// /proc/stat.
pub fn lost_ticks(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let of_cpu = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let is_one = fields.next()?.strip_prefix("cpu")?.parse::<u32>().is_ok();
        // user nice system idle iowait irq softirq steal
        let mut lost = fields.skip(5).take(3).map(|f| f.parse::<u64>().ok());
        let sum = lost.try_fold(0u64, |sum, n| sum.checked_add(n?));
        sum.filter(|_| is_one)
    };
    text.lines().filter_map(of_cpu).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_call_with_its_arguments() {
        let text = b"230 0x1 0x0 0x7ffeab702330 0x3 0x0 0x9 0x7ffeab702318 0x7f9d6535d503\n";
        let args = Some([1, 0, 0x7ffe_ab70_2330, 3, 0, 9]);
        let (sp, pc) = (0x7ffe_ab70_2318, 0x7f9d_6535_d503);
        assert_eq!(syscall(text), Some(SyscallText::Asleep { nr: 230, args, sp, pc }));
        let none = SyscallText::Asleep { nr: -1, args: None, sp: 0x10, pc: 0x20 };
        assert_eq!(syscall(b"-1 0x10 0x20\n"), Some(none));
        assert_eq!(syscall(b"running\n"), Some(SyscallText::Running));
        for bad in [&b""[..], b"running", b"0 0x0\n", b"0 0x0 0x1 0x2\n", b"x 0x0 0x0\n"] {
            assert_eq!(syscall(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_thread_of_the_kernel_is_in_no_call() {
        let mut w = Wait::new();
        syscall(b"0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n").unwrap().put(&mut w);
        assert_eq!((w.syscall_nr, w.user_sp), (-1, 0));
        assert_eq!(w.valid & super::super::bit(Wait::MEMBERS, "args"), 0);
    }

    #[test]
    fn reads_when_it_last_ran() {
        let text = b"sleep (22588, #threads: 1)\n-----\nse.exec_start   :  62467939.216527\n\
            se.vruntime  :   114278.702593\nnr_switches      :     17\nnr_involuntary_switches : 0\n";
        let want = SchedText { exec_start_ns: Some(62_467_939_216_527), switches: Some(17) };
        assert_eq!(sched(text), want);
        let moved = b"se.exec_start : 0.000000\nnr_switches : 1\n";
        assert_eq!(sched(moved), SchedText { exec_start_ns: None, switches: Some(1) });
        // Only whole numbers count.
        assert_eq!(sched(b"se.exec_start : 12.5\n"), SchedText::default());
        assert_eq!(sched(b"se.exec_start : 12.500000"), SchedText::default());
    }

    #[test]
    fn reads_state_tracer_and_switches() {
        let text = b"Name:\tx\nState:\tt (tracing stop)\nTracerPid:\t7\n\
            voluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        let want = SleepText { state: Some(b't'), tracer: Some(7), switches: Some(7) };
        assert_eq!(sleep(text), want);
        assert_eq!(sleep(b"State:\tS\nvoluntary_ctxt_switches:\t3\n").switches, None);
    }

    #[test]
    fn the_cpu_that_lost_most_counts() {
        let text = b"cpu  1 1 1 1 1 50 50 50 0 0\ncpu0 1 1 1 1 1 2 3 4 0 0\ncpu1 1 1 1 1 1 5 6 7 0 0\nintr 5\n";
        assert_eq!(lost_ticks(text), Some(18));
        assert_eq!(lost_ticks(b"cpu 1\n"), None);
    }
}
