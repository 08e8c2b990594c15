//! The system call that a thread is in.

use crate::engine::procfs::parse::SyscallText;

/// A 32-bit program has all its addresses below this. Its system calls have other numbers.
const LOW: u64 = 1 << 32;

/// A system call of a sleeping thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Its number.
    pub number: u32,
    /// The arguments of the call, as they are in the registers.
    pub args: [u64; 6],
    /// The stack pointer of the program.
    pub stack: u64,
    /// The address at which the program will continue.
    pub code: u64,
}

impl Call {
    /// Parses the text of `/proc/PID/task/TID/syscall`. `None`: the thread is in no system call, or
    /// runs.
    pub(super) fn of(text: Option<SyscallText>) -> Option<Call> {
        let Some(SyscallText::Asleep { nr, args: Some(args), sp, pc }) = text else { return None };
        Some(Call { number: u32::try_from(nr).ok()?, args, stack: sp, code: pc })
    }

    /// Whether it is surely a call of a 64-bit program. The kernel prints the numbers of 32-bit
    /// programs in the same way, and the same number means different calls.
    pub fn is_native(&self) -> bool {
        cfg!(target_pointer_width = "64") && self.stack >= LOW
    }

    /// Whether it is this call.
    pub fn is(&self, number: libc::c_long) -> bool {
        self.is_native() && i64::from(self.number) == number
    }

    /// The address of the path argument, if the system call has one.
    pub fn path(&self) -> Option<u64> {
        let after_directory = [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_readlinkat,
            libc::SYS_faccessat,
            libc::SYS_faccessat2,
            libc::SYS_mkdirat,
            libc::SYS_mknodat,
            libc::SYS_unlinkat,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_fchmodat,
            libc::SYS_fchownat,
            libc::SYS_utimensat,
        ];
        if after_directory.iter().any(|n| self.is(*n)) {
            return Some(self.args[1]);
        }
        let first = [
            libc::SYS_execve,
            libc::SYS_chdir,
            libc::SYS_statfs,
            libc::SYS_truncate,
            libc::SYS_getxattr,
            libc::SYS_lgetxattr,
        ];
        #[cfg(target_arch = "x86_64")]
        let old = [
            libc::SYS_open,
            libc::SYS_stat,
            libc::SYS_lstat,
            libc::SYS_access,
            libc::SYS_readlink,
            libc::SYS_creat,
            libc::SYS_mkdir,
            libc::SYS_rmdir,
            libc::SYS_unlink,
            libc::SYS_rename,
            libc::SYS_chmod,
            libc::SYS_chown,
        ];
        // Later machines have no calls without a directory.
        #[cfg(not(target_arch = "x86_64"))]
        let old: [libc::c_long; 0] = [];
        let mut first = first.iter().chain(&old);
        first.any(|n| self.is(*n)).then_some(self.args[0])
    }

    /// The descriptor for which the call waits, if its first argument is a descriptor.
    pub fn descriptor(&self) -> Option<u32> {
        let all = [
            libc::SYS_read,
            libc::SYS_write,
            libc::SYS_readv,
            libc::SYS_writev,
            libc::SYS_pread64,
            libc::SYS_pwrite64,
            libc::SYS_flock,
            libc::SYS_fcntl,
            libc::SYS_ioctl,
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_getdents64,
            libc::SYS_recvfrom,
            libc::SYS_recvmsg,
            libc::SYS_sendto,
            libc::SYS_sendmsg,
            libc::SYS_connect,
            libc::SYS_accept,
            libc::SYS_accept4,
        ];
        all.iter().any(|n| self.is(*n)).then_some(self.args[0] as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_32_bit_program_is_not_decoded() {
        let of = |nr: libc::c_long, sp| {
            let args = Some([1, 0, 2, 0, 0, 0]);
            let text = SyscallText::Asleep { nr: nr as i32, args, sp, pc: 0xf7f2_b549 };
            Call::of(Some(text)).expect("a call")
        };
        assert!(of(libc::SYS_futex, 0x7f2b_f379_de78).is(libc::SYS_futex));
        assert_eq!(of(libc::SYS_read, 0x7f2b_f379_de78).descriptor(), Some(1));
        assert!(!of(libc::SYS_futex, 0xffd0_b5a0).is(libc::SYS_futex));
        assert_eq!(of(libc::SYS_read, 0xffd0_b5a0).descriptor(), None);
    }
}
