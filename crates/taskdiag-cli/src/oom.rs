//! Ends the program if a memory limit is reached, with a message and the exit code for "no answer".
//! Rust would abort, which looks like a fault of the program and leaves a core file.

use std::alloc::{GlobalAlloc, Layout, System};

/// The exit code for "no answer", as in `exit.rs`.
const NO_ANSWER: i32 = 4;

/// The system's allocator, which ends the program if there is no memory.
pub struct OrEnd;

fn given(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        let word = b"taskdiag: out of memory: raise the limit (ulimit -v, or that of the cgroup), or ask for \
            fewer tasks or columns\n";
        // SAFETY: system calls on bytes that live for ever. Nothing is unwound or allocated.
        unsafe {
            libc::write(2, word.as_ptr().cast(), word.len());
            libc::_exit(NO_ANSWER);
        }
    }
    memory
}

// SAFETY: every call goes to the system's allocator, and only its results are returned.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.alloc(layout) })
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.alloc_zeroed(layout) })
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.realloc(memory, layout, new_size) })
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
