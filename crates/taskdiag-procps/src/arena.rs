//! Memory for the strings of one fetch. The caller never frees a string, and all of them become
//! invalid at the next fetch. So strings are stored one after the other and freed together.

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::{CStr, c_char};

use crate::memory::{grow, tried};

/// Bytes of one piece.
const PIECE: usize = 1 << 18;
/// Longer strings have their own pieces, which are freed when the arena is cleared.
const LONG: usize = PIECE / 4;

/// The memory.
#[derive(Default)]
pub struct Arena {
    pieces: Vec<Box<[u64]>>,
    /// The piece that is being filled.
    piece: usize,
    /// The number of its words in use.
    taken: usize,
    long: Vec<Box<[u64]>>,
    /// The value of a string that could not be allocated.
    none: [u64; 1],
    is_short: bool,
}

impl Arena {
    /// Drops all strings, and keeps the memory.
    pub fn clear(&mut self) {
        self.piece = 0;
        self.taken = 0;
        self.long.clear();
        self.is_short = false;
    }

    /// Could a string not be allocated since the arena was cleared? Such a string is empty.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// Uninitialized memory for this many words. `None`: there is no memory.
    fn words(&mut self, n: usize) -> Option<&mut [u64]> {
        if n > LONG / 8 {
            grow(&mut self.long, 1).ok()?;
            self.long.push(zeroes(n)?);
            return self.long.last_mut().map(|words| &mut **words);
        }
        while self.pieces.get(self.piece).is_some_and(|p| self.taken + n > p.len()) {
            self.piece += 1;
            self.taken = 0;
        }
        if self.piece == self.pieces.len() {
            grow(&mut self.pieces, 1).ok()?;
            self.pieces.push(zeroes(PIECE / 8)?);
        }
        let at = self.taken;
        self.taken += n;
        Some(&mut self.pieces[self.piece][at..at + n])
    }

    /// As [`words`](Self::words), but returns a shared word of zeroes if there is no memory.
    fn words_or_none(&mut self, n: usize) -> *mut u64 {
        if let Some(words) = self.words(n) {
            return words.as_mut_ptr();
        }
        self.is_short = true;
        self.none = [0];
        self.none.as_mut_ptr()
    }

    /// Copies a string and appends a NUL. The caller of the library may write to it.
    pub fn str(&mut self, text: &[u8]) -> *mut c_char {
        let to = self.words_or_none(text.len() / 8 + 1).cast::<u8>();
        if !self.is_short {
            // SAFETY: the words have room for the text and one byte more, and they are not the
            // text.
            unsafe {
                to.copy_from_nonoverlapping(text.as_ptr(), text.len());
                to.add(text.len()).write(0);
            }
        }
        to.cast()
    }

    /// Makes a list of the strings of a text. Each string ends with NUL, and the list ends with
    /// NULL.
    pub fn strv(&mut self, text: &[u8]) -> *mut *mut c_char {
        let at = self.str(text);
        let ends = memchr_all(text);
        let list = self.words_or_none(ends.clone().count() + 1);
        if !self.is_short {
            let mut begin = 0;
            let mut n = 0;
            for end in ends {
                // SAFETY: the list has an entry for each NUL, and one more.
                unsafe { list.add(n).write(at.wrapping_add(begin) as u64) };
                begin = end + 1;
                n += 1;
            }
            // SAFETY: as above.
            unsafe { list.add(n).write(0) };
        }
        list.cast()
    }

    /// Copies a list of strings.
    ///
    /// # Safety
    /// The list ends with NULL, and all before that are strings.
    pub unsafe fn copy_strv(&mut self, list: *const *const c_char) -> *mut *mut c_char {
        // SAFETY: the caller promises it.
        let n = (0..).take_while(|n| unsafe { !(*list.add(*n)).is_null() }).count();
        let to = self.words_or_none(n + 1);
        for at in 0..n {
            if self.is_short {
                return to.cast();
            }
            // SAFETY: it is one of the strings.
            let copied = self.str(unsafe { CStr::from_ptr(*list.add(at)) }.to_bytes());
            // SAFETY: there is room for all of them and one more.
            unsafe { to.add(at).write(copied as u64) };
        }
        if !self.is_short {
            // SAFETY: as above.
            unsafe { to.add(n).write(0) };
        }
        to.cast()
    }
}

/// This many words of zeroes. Pages that are not used cost nothing.
fn zeroes(n: usize) -> Option<Box<[u64]>> {
    let layout = Layout::array::<u64>(n.max(1)).ok()?;
    // SAFETY: there is at least one word.
    let at = tried(|| unsafe { alloc_zeroed(layout) }).cast::<u64>();
    // SAFETY: it was allocated with the layout of this slice, and all zeroes are words.
    (!at.is_null())
        .then(|| unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, n.max(1))) })
}

/// Where the NULs are.
fn memchr_all(text: &[u8]) -> impl Iterator<Item = usize> + Clone + '_ {
    text.iter().enumerate().filter(|(_, b)| **b == 0).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(p: *const c_char) -> Vec<u8> {
        // SAFETY: the arena made it.
        unsafe { CStr::from_ptr(p) }.to_bytes().to_vec()
    }

    #[test]
    fn strings_stay_until_it_is_cleared() {
        let mut arena = Arena::default();
        let long = vec![b'x'; 3 * PIECE];
        let texts: Vec<Vec<u8>> =
            (0..40_000).map(|n| format!("text {n}").into_bytes()).chain([long]).collect();
        for _ in 0..2 {
            let all: Vec<_> = texts.iter().map(|t| arena.str(t)).collect();
            for (at, text) in all.iter().zip(&texts) {
                assert_eq!(read(*at), *text);
            }
            arena.clear();
        }
    }

    #[test]
    fn lists_of_strings_end_with_null() {
        let mut arena = Arena::default();
        for (text, parts) in
            [(&b"a\0bc\0"[..], &["a", "bc"][..]), (b"\0", &[""]), (b"0::/\0\0", &["0::/", ""])]
        {
            let list = arena.strv(text);
            for (n, part) in parts.iter().enumerate() {
                // SAFETY: the list has as many entries as there are NULs.
                assert_eq!(read(unsafe { *list.add(n) }), part.as_bytes());
            }
            // SAFETY: and one more entry.
            assert!(unsafe { *list.add(parts.len()) }.is_null());
        }
    }
}
