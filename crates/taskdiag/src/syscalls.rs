//! Names of system calls. The numbers differ between machines, and 32-bit programs have their own,
//! so a name needs the machine that an answer is from.

use syscalls::{aarch64, arm, x86, x86_64};

/// An architecture whose system calls have names here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64, with 32-bit programs of i386.
    X86,
    /// arm64, with 32-bit programs of arm.
    Arm,
}

impl Machine {
    /// From the name that uname(2) has for it. `None`: another one.
    pub fn from_name(name: &[u8]) -> Option<Machine> {
        match name {
            b"x86_64" => Some(Machine::X86),
            b"aarch64" => Some(Machine::Arm),
            _ => None,
        }
    }

    /// This machine.
    pub const fn own() -> Option<Machine> {
        if cfg!(target_arch = "x86_64") {
            Some(Machine::X86)
        } else if cfg!(target_arch = "aarch64") {
            Some(Machine::Arm)
        } else {
            None
        }
    }

    /// The name of the system call with this number. `is_compat`: of a 32-bit program. `None`: it
    /// is newer than this list, or there is none.
    pub fn syscall(self, nr: i32, is_compat: bool) -> Option<&'static str> {
        // x32, the 32-bit pointers of x86-64, marks its numbers with this bit.
        const X32: usize = 1 << 30;
        let nr = usize::try_from(nr).ok()?;
        match (self, is_compat) {
            (Machine::X86, false) => x86_64::Sysno::new(nr & !X32).map(|s| s.name()),
            (Machine::X86, true) => x86::Sysno::new(nr).map(|s| s.name()),
            (Machine::Arm, false) => aarch64::Sysno::new(nr).map(|s| s.name()),
            (Machine::Arm, true) => arm::Sysno::new(nr).map(|s| s.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_another_call_on_another_machine() {
        assert_eq!(Machine::X86.syscall(0, false), Some("read"));
        assert_eq!(Machine::X86.syscall(3, true), Some("read"));
        assert_eq!(Machine::Arm.syscall(63, false), Some("read"));
        assert_eq!(Machine::Arm.syscall(3, true), Some("read"));
        assert_eq!(Machine::X86.syscall(-1, false), None);
        assert_eq!(Machine::X86.syscall(100_000, false), None);
        assert_eq!(Machine::from_name(b"aarch64"), Some(Machine::Arm));
        assert_eq!(Machine::from_name(b"riscv64"), None);
    }

    /// The list is as new as the headers of the C library here.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn names_are_those_of_the_c_library() {
        for (nr, name) in [
            (libc::SYS_futex, "futex"),
            (libc::SYS_ppoll, "ppoll"),
            (libc::SYS_clock_nanosleep, "clock_nanosleep"),
            (libc::SYS_epoll_pwait2, "epoll_pwait2"),
            (libc::SYS_futex_waitv, "futex_waitv"),
            (libc::SYS_pidfd_send_signal, "pidfd_send_signal"),
        ] {
            assert_eq!(Machine::X86.syscall(nr as i32, false), Some(name));
        }
    }
}
