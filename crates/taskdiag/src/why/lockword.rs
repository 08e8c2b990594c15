//! Finds the holder of a lock in the memory of a program, from the bytes of the lock. This module
//! does no I/O.
//!
//! The kernel defines the word of a priority-inheriting futex. The library that uses a futex
//! defines all other words. So a lock counts as one of the GNU C library only if the call has the
//! form that this library uses, and each member of the struct has a possible value. A futex of
//! Rust, Go or Java with the same value in its word fails one of these checks.

use super::wait::How;

/// `FUTEX_TID_MASK`.
const TID: u32 = 0x3fff_ffff;
/// `FUTEX_OWNER_DIED`.
const OWNER_DIED: u32 = 0x4000_0000;
/// `FUTEX_WAITERS`.
const WAITERS: u32 = 0x8000_0000;

/// `__kind` of a pthread mutex: the type, and flags.
const KIND_TYPE: u32 = 3;
const KIND_RECURSIVE: u32 = 1;
const KIND_ROBUST: u32 = 16;
const KIND_SHARED: u32 = 128;
/// Elision of locks, allowed and forbidden.
const KIND_ELISION: u32 = 256 | 512;

/// `__readers` of a pthread rwlock while somebody writes: `WRPHASE` and `WRLOCKED`.
const WRITER_HAS_IT: u32 = 3;

/// More waiters and holders than this are no plausible `__nusers` of a mutex.
const USERS_MAX: u32 = 1 << 20;

/// How a thread waits for a futex, which limits what kind of lock it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Futex {
    /// The kernel keeps the thread id in the word.
    Pi,
    /// A mutex of the C library.
    Mutex,
    /// A robust mutex of the C library.
    Robust,
    /// A read-write lock of the C library.
    Rwlock,
    /// The end of a thread, as `pthread_join()` waits for it.
    Thread,
}

/// The arguments of futex(2) that a decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The address of the word.
    pub(super) address: u64,
    /// The kind of lock that it may be.
    pub(super) what: Futex,
    /// Only threads that share the memory use the lock.
    pub(super) is_private: bool,
}

/// The kinds of waits that the arguments of futex(2) allow. `None`: nothing records the holder of
/// such a lock.
pub(super) fn of_call(args: &[u64; 6]) -> Option<Wanted> {
    const PRIVATE: u32 = 128;
    const REALTIME: u32 = 256;
    let [address, op, val, timeout, ..] = *args;
    let (op, val) = (op as u32, val as u32);
    let is_private = op & PRIVATE != 0;
    let is_bitset = op & !(PRIVATE | REALTIME) == 9;
    let is_plain = op & !PRIVATE == 0;
    let what = match op & !(PRIVATE | REALTIME) {
        6 | 13 => Futex::Pi,
        // The C library waits for a mutex with FUTEX_WAIT, and with FUTEX_WAIT_BITSET only until a
        // certain time. Rust's standard library uses the other one without a time.
        0 | 9 if val == 2 && (is_plain || timeout != 0) => Futex::Mutex,
        0 | 9 if val & WAITERS != 0 && val & OWNER_DIED == 0 && val & TID != 0 => Futex::Robust,
        9 if val == 3 => Futex::Rwlock,
        9 if is_bitset && !is_private && val & !TID == 0 && val > 3 => Futex::Thread,
        _ => return None,
    };
    Some(Wanted { address, what, is_private })
}

/// How the function `syscall()` of the C library ends, before the address at which the program
/// continues. The library's own locks do not call it, and locks of Rust and C++ do.
#[cfg(target_arch = "x86_64")]
pub(super) const SYSCALL: &[u8] = &[0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
pub(super) const SYSCALL: &[u8] = &[0xe6, 0x03, 0x07, 0xaa, 0x01, 0x00, 0x00, 0xd4];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const SYSCALL: &[u8] = &[];

impl Wanted {
    /// How its holder is known.
    pub(super) fn how(&self) -> How {
        match self.what {
            Futex::Pi => How::FutexWord,
            Futex::Mutex | Futex::Robust => How::Mutex,
            Futex::Rwlock => How::RwlockWriter,
            Futex::Thread => How::Thread,
        }
    }

    /// The first address to read and the number of bytes. `None`: there cannot be such a lock.
    pub(super) fn window(&self) -> Option<(u64, usize)> {
        match self.what {
            Futex::Pi | Futex::Thread => Some((self.address, 4)),
            Futex::Mutex | Futex::Robust => Some((self.address, 40)),
            // The word is the third or the fourth member.
            Futex::Rwlock => Some((self.address.checked_sub(12)?, 12 + 24)),
        }
    }

    /// The id of the thread that holds the lock, by the bytes of the window. The thread waits until
    /// the word is no longer `val`.
    pub(super) fn holder(&self, bytes: &[u8], val: u32) -> Option<u32> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        match self.what {
            Futex::Pi => {
                let word = word(0)?;
                (word & OWNER_DIED == 0).then_some(word & TID).filter(|tid| *tid != 0)
            }
            Futex::Thread => word(0).filter(|word| *word == val),
            Futex::Mutex => {
                let (tid, count) = mutex(&word, 2)?;
                let kind = word(16)?;
                let counts = kind & KIND_TYPE == KIND_RECURSIVE;
                // An ordinary mutex is in no list, because only robust mutexes are.
                let has_no_list = (24..40).step_by(4).all(|at| word(at) == Some(0));
                let is_it = kind & !(KIND_TYPE | KIND_SHARED | KIND_ELISION) == 0
                    && (kind & KIND_SHARED == 0) == self.is_private
                    && (count > 0) == counts
                    && has_no_list;
                is_it.then_some(tid)
            }
            Futex::Robust => {
                // The mutex is valid for every type.
                let (tid, count) = mutex(&word, val)?;
                let kind = word(16)? & !(KIND_TYPE | KIND_SHARED | KIND_ELISION);
                let is_it = kind == KIND_ROBUST && tid == val & TID && count > 0;
                is_it.then_some(tid)
            }
            Futex::Rwlock => {
                // With the word as the third member, and as the fourth.
                let [third, fourth] = [rwlock(&word, 4, self), rwlock(&word, 0, self)];
                match (third, fourth) {
                    (Some(tid), None) | (None, Some(tid)) => Some(tid),
                    _ => None,
                }
            }
        }
    }
}

/// `__owner` and `__count` of a mutex, whose first members are `__lock`, `__count`, `__owner` and
/// `__nusers`.
fn mutex(word: &impl Fn(usize) -> Option<u32>, lock: u32) -> Option<(u32, u32)> {
    let (count, owner, users) = (word(4)?, word(8)?, word(12)?);
    let is_it =
        word(0)? == lock && owner & !TID == 0 && owner != 0 && (1..USERS_MAX).contains(&users);
    is_it.then_some((owner, count))
}

/// `__readers`, `__writers`, `__wrphase_futex`, `__writers_futex`, two words that are 0,
/// `__cur_writer`, `__shared`. `base` is where it begins.
fn rwlock(word: &impl Fn(usize) -> Option<u32>, base: usize, wanted: &Wanted) -> Option<u32> {
    let at = |n: usize| word(base + 4 * n);
    let (readers, phase, writers) = (at(0)?, at(2)?, at(3)?);
    let (pad, other_pad, owner, shared) = (at(4)?, at(5)?, at(6)?, at(7)?);
    let is_it = readers & WRITER_HAS_IT == WRITER_HAS_IT
        && (phase | writers) & !3 == 0
        && phase & 1 == 1
        && (base == 4 || writers == 3)
        && (base == 0 || phase == 3)
        && (pad, other_pad) == (0, 0)
        && owner != 0
        && owner & !TID == 0
        && shared <= 1
        && (shared == 0) == wanted.is_private;
    is_it.then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x7f00_0000_1000;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn call(op: u64, val: u32, timeout: u64) -> Option<Futex> {
        of_call(&[ADDRESS, op, u64::from(val), timeout, 0, 0xffff_ffff]).map(|w| w.what)
    }

    #[test]
    fn the_arguments_of_the_wait_show_the_kind_of_lock() {
        assert_eq!(call(0x80, 2, 0), Some(Futex::Mutex));
        assert_eq!(call(0, 2, 0), Some(Futex::Mutex));
        assert_eq!(call(0x189, 2, 0x7ff0), Some(Futex::Mutex));
        assert_eq!(call(0, 0x8000_58d8, 0), Some(Futex::Robust));
        assert_eq!(call(0x86, 0, 0), Some(Futex::Pi));
        assert_eq!(call(0x8d, 0, 0), Some(Futex::Pi));
        assert_eq!(call(0x189, 3, 0), Some(Futex::Rwlock));
        assert_eq!(call(0x109, 0x58d8, 0), Some(Futex::Thread));
    }

    #[test]
    fn waits_that_no_single_thread_ends_have_no_holder() {
        // A condition variable, a semaphore, a mutex of Rust, a writer that waits for readers, a
        // read-write lock of Rust, a wait for many, a condition variable with a mutex that inherits
        // priorities.
        for (op, val) in
            [(0x189, 0), (0x189, 0), (0x89, 2), (0x189, 2), (0x89, 0xc000_0001), (0x8b, 7)]
        {
            assert_eq!(call(op, val, 0), None, "{op:#x} {val}");
        }
    }

    fn holder(op: u64, val: u32, words: &[u32]) -> Option<u32> {
        let wanted = of_call(&[ADDRESS, op, u64::from(val), 0, 0, 0]).expect("it may have one");
        wanted.holder(&bytes(words), val)
    }

    #[test]
    fn a_mutex_of_the_c_library_has_its_owner() {
        assert_eq!(holder(0x80, 2, &[2, 0, 4711, 1, 0, 0, 0, 0, 0, 0]), Some(4711));
        // A recursive mutex, an adaptive one whose member for spinning is not 0, and a shared one.
        assert_eq!(holder(0x80, 2, &[2, 3, 4711, 1, 1, 0, 0, 0, 0, 0]), Some(4711));
        assert_eq!(holder(0x80, 2, &[2, 0, 4711, 1, 3, 77, 0, 0, 0, 0]), Some(4711));
        assert_eq!(holder(0, 2, &[2, 0, 4711, 1, 128, 0, 0, 0, 0, 0]), Some(4711));
    }

    #[test]
    fn a_lookalike_of_a_mutex_has_no_owner() {
        for (why, words) in [
            ("it is free now", [0, 0, 4711, 1, 0, 0, 0, 0, 0, 0]),
            ("it was taken this moment", [2, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
            ("nobody uses it", [2, 0, 4711, 0, 0, 0, 0, 0, 0, 0]),
            ("a count without recursion", [2, 1, 4711, 1, 0, 0, 0, 0, 0, 0]),
            ("no such kind", [2, 0, 4711, 1, 0x4000, 0, 0, 0, 0, 0]),
            ("the kernel's kind of waiting differs", [2, 0, 4711, 1, 128, 0, 0, 0, 0, 0]),
            ("other data after it", [2, 0, 4711, 1, 0, 0, 0, 0, 9, 0]),
            ("a pointer, as in a lock of stdio", [2, 1, 0xf379_f740, 0x7f2b, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(holder(0x80, 2, &words), None, "{why}");
        }
        // The end of the mapping.
        assert_eq!(holder(0x80, 2, &[2, 0, 4711, 1, 0]), None);
    }

    #[test]
    fn a_robust_mutex_has_its_owner_twice() {
        let val = WAITERS | 4711;
        assert_eq!(holder(0, val, &[val, 1, 4711, 1, 0x290, 0, 8, 0, 8, 0]), Some(4711));
        assert_eq!(holder(0, val, &[val, 1, 4712, 1, 0x290, 0, 8, 0, 8, 0]), None);
        // A mutex of musl has its word second, and such a word for an ordinary mutex, too.
        assert_eq!(holder(0, val, &[val, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn the_kernel_keeps_the_owner_of_an_inheriting_futex() {
        assert_eq!(holder(0x86, 0, &[WAITERS | 4711]), Some(4711));
        assert_eq!(holder(0x86, 0, &[WAITERS | OWNER_DIED | 4711]), None);
        assert_eq!(holder(0x86, 0, &[WAITERS]), None);
    }

    #[test]
    fn a_reader_and_a_writer_wait_for_the_writer_of_a_lock() {
        let lock = |writers| [3, 1, 3, writers, 0, 0, 4711, 0];
        let window = |before: &[u32], words: &[u32]| {
            let all = [before, words].concat();
            holder(0x189, 3, &all[..9])
        };
        // The reader's word is the third, so the window begins one word before the lock.
        assert_eq!(window(&[77], &lock(1)), Some(4711));
        assert_eq!(window(&[], &[&lock(3)[..], &[9]].concat()), Some(4711));
        // Readers have it.
        assert_eq!(window(&[77], &[16, 1, 2, 1, 0, 0, 4711, 0]), None);
    }

    #[test]
    fn the_end_of_a_thread_is_that_of_the_thread_in_the_word() {
        assert_eq!(holder(0x109, 4711, &[4711]), Some(4711));
        assert_eq!(holder(0x109, 4711, &[0]), None);
    }
}
