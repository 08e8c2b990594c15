//! Ends the program if a memory limit is reached, with a message and the exit code for "no answer".
//! Rust would abort, which looks like a fault of the program and leaves a core file.

use std::alloc::{GlobalAlloc, Layout, System};

/// The exit code for "no answer", as in `exit.rs`.
const NO_ANSWER: i32 = 4;

/// The system's allocator, which ends the program if there is no memory.
pub struct OrEnd;

fn given(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        end();
    }
    memory
}

fn end() -> ! {
    let word =
        b"taskdiag: out of memory: raise the limit (ulimit -v, or that of the cgroup), or ask for \
        fewer tasks or columns\n";
    // SAFETY: system calls on static bytes. Nothing is unwound or allocated.
    unsafe {
        libc::write(2, word.as_ptr().cast(), word.len());
        libc::_exit(NO_ANSWER)
    }
}

/// The largest size of the stack of the main thread, with room to spare: a build without
/// optimisation takes a quarter of it.
const STACK: usize = 512 << 10;

/// Grows the stack to the size that the program needs, if address space is limited (`ulimit -v`).
/// The kernel ends a program with SIGSEGV if its stack cannot grow, which would look like a fault,
/// too.
pub fn grow_stack() {
    let limit = |of| {
        let mut limit =
            libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is a valid place for the answer.
        unsafe { libc::getrlimit(of, &raw mut limit) };
        limit.rlim_cur
    };
    if limit(libc::RLIMIT_AS) == libc::RLIM_INFINITY || limit(libc::RLIMIT_STACK) < 2 * STACK as u64
    {
        return;
    }
    // SAFETY: a new mapping, which nothing uses, is made and removed.
    unsafe {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let room = libc::mmap(std::ptr::null_mut(), STACK + (64 << 10), access, kind, -1, 0);
        if room == libc::MAP_FAILED {
            end();
        }
        libc::munmap(room, STACK + (64 << 10));
    }
    take_stack();
}

/// Takes the stack: compilers touch each page of so large a variable.
#[inline(never)]
fn take_stack() {
    let mut stack = [0_u8; STACK];
    std::hint::black_box(&mut stack);
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
