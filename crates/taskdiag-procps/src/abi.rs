//! The structs of `<libproc2/pids.h>`. They are the same in both binary interfaces of the library,
//! except for the counts.

use std::ffi::{c_char, c_int, c_void};

/// A binary interface of the library. The functions about processes have the same names, symbol
/// versions and arguments in both, so only the file that was loaded tells which one a program
/// expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// libproc2.so.0.
    So0,
    /// libproc2.so.1. It has five items more, so that most have other numbers, and counts processes
    /// in disk sleep apart.
    So1,
}

/// `struct pids_result`. The value is a union of numbers and pointers, all of at most eight bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PidsResult {
    pub item: c_int,
    pub value: u64,
}

impl PidsResult {
    /// The value as a string.
    pub fn as_str(&self) -> *const c_char {
        self.value as usize as *const c_char
    }
    /// The value as a list of strings, which ends with NULL.
    pub fn as_strv(&self) -> *const *const c_char {
        self.value as usize as *const *const c_char
    }
}

/// `struct pids_stack`: the results of one task.
#[repr(C)]
pub struct PidsStack {
    pub head: *mut PidsResult,
}

/// `struct pids_counts`: how many tasks there are, and in which states. The last number is not used
/// in libproc2.so.0.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PidsCounts([c_int; 7]);

impl PidsCounts {
    /// Counts a task of this state. The item is 0 if it was not requested.
    pub fn add(&mut self, state: u8, abi: Abi) {
        // total, running, sleeping, disk_sleep (of libproc2.so.1), stopped, zombied, other
        let at = match (abi, state) {
            (_, b'R') => 1,
            (_, b'S') | (Abi::So0, b'D') => 2,
            (Abi::So1, b'D') => 3,
            (_, b't' | b'T') => 4,
            (_, b'Z') => 5,
            _ => 6,
        };
        self.0[0] += 1;
        self.0[if abi == Abi::So0 && at > 3 { at - 1 } else { at }] += 1;
    }
}

/// `struct pids_fetch`.
#[repr(C)]
pub struct PidsFetch {
    pub counts: *mut PidsCounts,
    pub stacks: *mut *mut PidsStack,
}

/// `enum pids_fetch_type`.
pub const TASKS_ONLY: c_int = 0;
/// `enum pids_fetch_type`.
pub const THREADS_TOO: c_int = 1;
/// `enum pids_select_type`.
pub const SELECT_PID: c_int = 0x10000;
/// `enum pids_select_type`.
pub const SELECT_PID_THREADS: c_int = 0x10001;

/// `struct pids_info`, which is opaque to callers.
pub type PidsInfo = c_void;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_counted_where_the_headers_have_them() {
        let count = |abi| {
            let mut counts = PidsCounts::default();
            b"RSSDDDTtZZZZZI\0".iter().for_each(|state| counts.add(*state, abi));
            counts.0
        };
        assert_eq!(count(Abi::So0), [15, 1, 5, 2, 5, 2, 0]);
        assert_eq!(count(Abi::So1), [15, 1, 2, 3, 2, 5, 2]);
    }
}
