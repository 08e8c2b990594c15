//! The structs of `<libproc2/pids.h>`. They are the same in all versions of the library, but for the counts.

use std::ffi::{c_char, c_int, c_void};

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

/// `struct pids_counts` of libproc2.so.0.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PidsCounts {
    pub total: c_int,
    pub running: c_int,
    pub sleeping: c_int,
    pub stopped: c_int,
    pub zombied: c_int,
    pub other: c_int,
}

impl PidsCounts {
    /// Counts a task of this state, which is 0 where nobody asked for it.
    pub fn add(&mut self, state: u8) {
        self.total += 1;
        *match state {
            b'R' => &mut self.running,
            b'D' | b'S' => &mut self.sleeping,
            b't' | b'T' => &mut self.stopped,
            b'Z' => &mut self.zombied,
            _ => &mut self.other,
        } += 1;
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
/// The most ids of one call of `procps_pids_select`.
pub const SELECT_MOST: usize = 255;

/// `struct pids_info`, which only the library itself looks into.
pub type PidsInfo = c_void;
