//! A growing byte buffer whose address and length are always multiples of 8.

use zerocopy::{FromBytes, IntoBytes};

use crate::plain::Plain;

/// Bytes aligned for every struct of the format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlignedBuf {
    words: Vec<u64>,
}

impl AlignedBuf {
    /// An empty buffer.
    pub fn new() -> AlignedBuf {
        AlignedBuf::default()
    }
    /// An empty buffer with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> AlignedBuf {
        AlignedBuf { words: Vec::with_capacity(bytes.div_ceil(8)) }
    }
    /// A copy of `bytes`, zero-padded to a multiple of 8.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut b = AlignedBuf::with_capacity(bytes.len());
        b.extend_padded(bytes);
        b
    }
    /// A buffer of `bytes` zero bytes, rounded up to a multiple of 8, to read into.
    pub fn zeroed(bytes: usize) -> AlignedBuf {
        AlignedBuf { words: vec![0; bytes.div_ceil(8)] }
    }
    /// Make it at least `bytes` long. The added bytes are zero.
    pub fn grow(&mut self, bytes: usize) {
        self.words.resize(bytes.div_ceil(8).max(self.words.len()), 0);
    }
    /// Room for `bytes` more, as memory that may never have been touched.
    pub fn spare(&mut self, bytes: usize) -> &mut [std::mem::MaybeUninit<u64>] {
        let words = bytes.div_ceil(8);
        self.words.reserve(words);
        &mut self.words.spare_capacity_mut()[..words]
    }
    /// Length in bytes, a multiple of 8.
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }
    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.words.as_bytes()
    }
    /// The bytes, writable.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        self.words.as_mut_bytes()
    }
    /// Append a struct of the format (aligned to 8 or less, size a multiple of 8).
    pub fn push<T: Plain>(&mut self, v: &T) {
        debug_assert!(size_of::<T>() % 8 == 0);
        self.extend_padded(Plain::as_bytes(v));
    }
    /// Append bytes and zero-pad to a multiple of 8.
    pub fn extend_padded(&mut self, bytes: &[u8]) {
        if let Ok(words) = <[u64]>::ref_from_bytes(bytes) {
            self.words.extend_from_slice(words);
            return;
        }
        let chunks = bytes.chunks_exact(8);
        let rest = chunks.remainder();
        self.words.reserve(bytes.len().div_ceil(8));
        self.words.extend(chunks.map(|c| u64::from_ne_bytes(c.try_into().expect("8 bytes"))));
        if !rest.is_empty() {
            let mut w = [0; 8];
            w[..rest.len()].copy_from_slice(rest);
            self.words.push(u64::from_ne_bytes(w));
        }
    }
    /// Remove everything after the first `bytes` (a multiple of 8).
    pub fn truncate(&mut self, bytes: usize) {
        debug_assert!(bytes % 8 == 0);
        self.words.truncate(bytes / 8);
    }
}
