//! Memory for the strings of one fetch. The caller never frees a string, and the next fetch makes all of them void, so
//! they are laid one behind the other and given up together.

use std::ffi::c_char;

/// Bytes of one piece.
const PIECE: usize = 1 << 18;

/// The memory.
#[derive(Default)]
pub struct Arena {
    pieces: Vec<Box<[u64]>>,
    /// The piece that is being filled.
    piece: usize,
    /// How many words of it are taken.
    taken: usize,
}

impl Arena {
    /// Gives all strings up, and keeps the memory.
    pub fn clear(&mut self) {
        self.piece = 0;
        self.taken = 0;
    }

    /// Memory for this many words, with anything in it.
    fn words(&mut self, n: usize) -> &mut [u64] {
        while self.pieces.get(self.piece).is_some_and(|p| self.taken + n > p.len()) {
            self.piece += 1;
            self.taken = 0;
        }
        if self.piece == self.pieces.len() {
            self.pieces.push(vec![0; n.max(PIECE / 8)].into());
        }
        let at = self.taken;
        self.taken += n;
        &mut self.pieces[self.piece][at..at + n]
    }

    /// Copies a string and puts a NUL behind it. The caller of the library may write to it.
    pub fn str(&mut self, text: &[u8]) -> *mut c_char {
        let words = self.words(text.len() / 8 + 1);
        let to = words.as_mut_ptr().cast::<u8>();
        // SAFETY: the words have room for the text and one byte more, and they are not the text.
        unsafe {
            to.copy_from_nonoverlapping(text.as_ptr(), text.len());
            to.add(text.len()).write(0);
        }
        to.cast()
    }

    /// Makes a list of strings, which ends with NULL, of a text in which each of them ends with NUL.
    pub fn strv(&mut self, text: &[u8]) -> *mut *mut c_char {
        let at = self.str(text);
        let ends = memchr_all(text);
        let list = self.words(ends.clone().count() + 1);
        let mut begin = 0;
        let mut n = 0;
        for end in ends {
            list[n] = at.wrapping_add(begin) as u64;
            begin = end + 1;
            n += 1;
        }
        list[n] = 0;
        list.as_mut_ptr().cast()
    }
}

/// Where the NULs are.
fn memchr_all(text: &[u8]) -> impl Iterator<Item = usize> + Clone + '_ {
    text.iter().enumerate().filter(|(_, b)| **b == 0).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

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
    fn lists() {
        let mut arena = Arena::default();
        for (text, parts) in
            [(&b"a\0bc\0"[..], &["a", "bc"][..]), (b"\0", &[""]), (b"0::/\0\0", &["0::/", ""])]
        {
            let list = arena.strv(text);
            for (n, part) in parts.iter().enumerate() {
                // SAFETY: the list has as many entries as there are NULs.
                assert_eq!(read(unsafe { *list.add(n) }), part.as_bytes());
            }
            // SAFETY: and one more.
            assert!(unsafe { *list.add(parts.len()) }.is_null());
        }
    }
}
