//! Memory for a library that must not end its host.
//!
//! Rust ends the process where an allocation fails. Here, if an allocation fails, the real library
//! answers instead, which needs much less memory. There are three kinds of allocation:
//!
//! - An engine runs in a separate thread (see `guard`) if allocations can fail. If one fails, that
//!   thread and the other threads of the engine stop for ever, and the caller is notified. On most
//!   machines no allocation fails, and a thread costs half a millisecond, so there is none then.
//! - Large allocations in the threads of the host use `tried`, and may fail.
//! - All other allocations in these threads are small. It comes from a reserve, and the caller
//!   looks at [`is_short`] for each row.
//!
//! After a failure, all calls are passed to the real library.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::collections::TryReserveError;
use std::ffi::CStr;
use std::num::NonZero;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::guard;

/// The allocator of this library. The host uses another one.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

/// The context of a failed allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AllocationContext {
    /// An engine.
    Engine,
    /// A call of the host.
    Host,
    /// A call of the host that can do without this memory.
    Tried,
}

thread_local! {
    /// Threads of an engine do not set their place.
    static PLACE: Cell<AllocationContext> = const { Cell::new(AllocationContext::Engine) };
}

/// Was there too little memory?
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Has any allocation failed in this process, or in the threads of an engine?
pub fn is_short() -> bool {
    IS_SHORT.load(Ordering::Acquire)
}

/// Says that there was too little memory.
pub fn set_short() {
    IS_SHORT.store(true, Ordering::Release);
}

/// While it is alive, this thread is in a call of the host.
pub struct InContext(AllocationContext);

impl Drop for InContext {
    fn drop(&mut self) {
        PLACE.set(self.0);
    }
}

/// Says that this thread is in a call of the host. Each function that the host calls begins with
/// it.
#[must_use]
pub fn host() -> InContext {
    InContext(PLACE.replace(AllocationContext::Host))
}

/// Runs code whose allocations may fail, and returns an error if one does.
pub fn tried<T>(f: impl FnOnce() -> T) -> T {
    let _place = InContext(PLACE.replace(AllocationContext::Tried));
    f()
}

/// Makes room for this many more entries, if there is memory.
pub fn grow<T>(list: &mut Vec<T>, more: usize) -> Result<(), TryReserveError> {
    if list.capacity() - list.len() >= more {
        return Ok(());
    }
    tried(|| list.try_reserve(more))
}

/// The size of the reserve. The largest value that is made in one piece is the list of
/// supplementary groups of a task, which has at most 65,536 entries. Its pages take no memory until
/// they are used.
const RESERVE: usize = 1 << 20;

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

// SAFETY: it is only handed out in pieces, each to one caller.
unsafe impl Sync for Reserve {}

static RESERVED: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));
/// The number of bytes of the reserve that were handed out.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

fn reserve() -> *mut u8 {
    RESERVED.0.get().cast()
}

fn is_reserve(at: *mut u8) -> bool {
    (reserve() as usize..reserve() as usize + RESERVE).contains(&(at as usize))
}

/// A piece of the reserve. The reserve is never given back: when its first piece is handed out,
/// this library stops its work in this process.
fn piece(layout: Layout) -> *mut u8 {
    let end = |taken: usize| {
        let begin = taken.next_multiple_of(layout.align());
        (layout.align() <= 4096).then(|| begin.checked_add(layout.size()))?
    };
    let fits = |taken: usize| end(taken).filter(|end| *end <= RESERVE);
    match TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
        // SAFETY: it is inside of the reserve.
        Ok(taken) => unsafe { reserve().add(taken.next_multiple_of(layout.align())) },
        Err(_) => null_mut(),
    }
}

/// The memory for a failed allocation.
#[cold]
fn failed(layout: Layout) -> *mut u8 {
    match PLACE.get() {
        AllocationContext::Tried => null_mut(),
        AllocationContext::Engine if guard::is_used() => guard::stop(),
        AllocationContext::Host | AllocationContext::Engine => {
            set_short();
            piece(layout)
        }
    }
}

// SAFETY: memory comes from the system, or is a piece of the reserve that is handed out once.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules.
        let at = unsafe { take(layout, false) };
        if at.is_null() { failed(layout) } else { at }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules.
        let at = unsafe { take(layout, true) };
        // Each piece of the reserve is handed out once, and is all zeroes until then.
        if at.is_null() { failed(layout) } else { at }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !is_reserve(at) {
            // SAFETY: it was taken with this layout.
            unsafe { release(at, layout) };
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller has checked the size.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let is_ours = is_reserve(at);
        if !is_ours && has_pages(layout) == has_pages(new) {
            // SAFETY: it was taken with this layout, and the caller keeps the rules.
            let to = unsafe { resize(at, layout, size) };
            if !to.is_null() {
                return to;
            }
        }
        // SAFETY: the caller keeps the rules.
        let to = unsafe { self.alloc(new) };
        if !to.is_null() {
            // SAFETY: both have as many bytes, and one was handed out just now.
            unsafe { to.copy_from_nonoverlapping(at, layout.size().min(size)) };
            if !is_ours {
                // SAFETY: it was allocated with this layout, and a failed call does not change it.
                unsafe { release(at, layout) };
            }
        }
        to
    }
}

/// From this size on, memory comes from the kernel in pages of its own and goes back there at once.
/// The C library would keep such memory after the first time, and the buffers of answers, which
/// grow, would leave holes in its heap.
const LARGE: usize = 256 << 10;

fn has_pages(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= 4096
}

/// Memory with this layout, or null.
///
/// # Safety
/// As [`GlobalAlloc::alloc`].
unsafe fn take(layout: Layout, zeroed: bool) -> *mut u8 {
    if !has_pages(layout) {
        // SAFETY: the caller keeps the rules.
        return unsafe { if zeroed { System.alloc_zeroed(layout) } else { System.alloc(layout) } };
    }
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which only the caller has.
    let at = unsafe { libc::mmap(null_mut(), layout.size(), access, kind, -1, 0) };
    if at == libc::MAP_FAILED { null_mut() } else { at.cast() }
}

/// Gives memory back.
///
/// # Safety
/// It was [taken](take) with this layout, and has no other user.
unsafe fn release(at: *mut u8, layout: Layout) {
    // SAFETY: the caller promises it.
    unsafe {
        if has_pages(layout) {
            // The memory is kept if the process has too many mappings to divide one.
            libc::munmap(at.cast(), layout.size());
        } else {
            System.dealloc(at, layout);
        }
    }
}

/// Resizes memory. Large memory stays large. Null: that failed, and the memory is unchanged.
///
/// # Safety
/// It was [taken](take) with this layout.
unsafe fn resize(at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    if !has_pages(layout) {
        // SAFETY: the caller promises it.
        return unsafe { System.realloc(at, layout, size) };
    }
    // SAFETY: these are whole pages without another owner.
    let to = unsafe { libc::mremap(at.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
    if to == libc::MAP_FAILED { null_mut() } else { to.cast() }
}

/// The memory that an engine may need in addition to the tasks: its tables and the stacks of its
/// threads.
const NEEDED: usize = 32 << 20;
/// The address space that the C library reserves for each allocating thread, and does not release
/// (`HEAP_MAX_SIZE`).
const NEEDED_PER_THREAD: usize = 64 << 20;
/// The largest number of threads of an engine, without the one that it runs in.
const MOST_THREADS: usize = 8;
/// The memory that each task may need, in a growing answer of an engine and in the rows.
const NEEDED_PER_TASK: usize = 4096;

/// Does this process have a memory limit?
fn is_limited() -> bool {
    let has_limit = |which| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: there is room for the answer.
        let said = unsafe { libc::getrlimit(which, &mut limit) };
        said != 0 || limit.rlim_cur != libc::RLIM_INFINITY
    };
    has_limit(libc::RLIMIT_AS) || has_limit(libc::RLIMIT_DATA)
}

/// Does the kernel refuse memory that it does not have (`vm.overcommit_memory` is 2)? Otherwise it
/// grants all requests.
fn is_strict() -> bool {
    let mut text = [0; 8];
    let n = read(c"/proc/sys/vm/overcommit_memory", &mut text);
    n.is_none_or(|n| text[..n].first() == Some(&b'2'))
}

/// The known facts about the memory for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// No allocation fails, because the kernel overcommits.
    Free,
    /// The kernel does not overcommit.
    Strict,
    /// This process has a limit, and enough memory below it. No
    /// memory may be kept from one call to the next.
    Limited,
    /// There may be too little.
    TooLittle,
}

/// Checks whether there is room for an answer about all tasks before any memory is used, so that we
/// leave the real library as much as it would have without us.
pub fn room() -> Room {
    let (room, bytes) = match (is_limited(), is_strict()) {
        (true, _) => {
            let cpus = std::thread::available_parallelism().map_or(MOST_THREADS, NonZero::get);
            (Room::Limited, needed() + NEEDED_PER_THREAD * (1 + cpus.min(MOST_THREADS)))
        }
        (false, true) => (Room::Strict, needed()),
        // If there are too many mappings, the kernel refuses even a little memory.
        (false, false) => (Room::Free, NEEDED),
    };
    // SAFETY: new memory, which only this function has.
    unsafe {
        let at = libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if at == libc::MAP_FAILED {
            return Room::TooLittle;
        }
        libc::munmap(at, bytes);
    }
    room
}

fn needed() -> usize {
    NEEDED + NEEDED_PER_TASK * tasks().unwrap_or(1 << 16)
}

/// Reads a short file without an allocation.
fn read(name: &CStr, text: &mut [u8]) -> Option<usize> {
    // SAFETY: the name is a string, the buffer has as many bytes, and the descriptor is closed.
    unsafe {
        let fd = libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let n = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        usize::try_from(n).ok()
    }
}

/// How many tasks there are, from /proc/loadavg.
pub fn tasks() -> Option<usize> {
    let mut text = [0; 128];
    let n = read(c"/proc/loadavg", &mut text)?;
    let word = std::str::from_utf8(&text[..n]).ok()?.split(' ').nth(3)?;
    word.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any address space has.
    const TOO_MUCH: usize = 1 << 60;

    #[test]
    fn a_tried_allocation_fails_without_side_effects() {
        let _host = host();
        assert!(grow(&mut Vec::<u8>::new(), TOO_MUCH).is_err());
        assert!(grow(&mut Vec::<u8>::new(), 10).is_ok());
    }

    #[test]
    fn memory_keeps_its_bytes_when_it_becomes_large_and_small_again() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        for size in [LARGE - 1, LARGE, 3 * LARGE + 1, 64 * LARGE, LARGE, 1000] {
            bytes.resize(size.max(bytes.len()), 7);
            bytes.truncate(size);
            bytes.shrink_to_fit();
            assert!(bytes.iter().enumerate().all(|(n, b)| *b == if n < 256 { n as u8 } else { 7 }));
        }
        let zeroes = vec![0_u64; LARGE];
        assert!(zeroes.iter().all(|n| *n == 0));
    }

    #[test]
    fn pieces_of_the_reserve_are_apart_and_end() {
        let layout = |size, align| Layout::from_size_align(size, align).expect("a layout");
        let mut end = 0;
        for (size, align) in [(1, 1), (100, 8), (3, 1), (10, 64), (4096, 4096)] {
            let at = piece(layout(size, align)) as usize;
            assert!(at % align == 0 && at >= end && is_reserve(at as *mut u8));
            end = at + size;
        }
        assert!(piece(layout(RESERVE, 1)).is_null() && piece(layout(1, 8192)).is_null());
    }

    #[test]
    fn tasks_are_counted() {
        assert!(tasks().expect("/proc/loadavg is there") > 1);
    }
}
