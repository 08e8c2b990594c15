//! Keeps the names of files, so that each is in the answer only once, even if many tasks have it.
//! The readers of an answer share one table. The first reader that finds a name writes it, and
//! later readers use its number.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use taskdiag_wire::{A_NAME, BLOB_DELETED, StreamWriter};

/// The high bits of each number that this engine gives to a name.
const OURS: u32 = 3 << 28;

/// Stands for a name and whether it belongs to a deleted file. A name can have 4 KiB, and the
/// answer has it already, so the tables do not have it again. The hash has 128 bits and its keys
/// are random, so two names with the same hash cannot be made on purpose, and do not occur by
/// chance.
type NameKey = u128;

/// All names of an answer, with their numbers.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    numbers: Mutex<HashMap<NameKey, u32>>,
    hashes: [RandomState; 2],
}

impl FileNames {
    fn key(&self, name: &[u8], total: usize, deleted: bool) -> NameKey {
        let of = |hash: &RandomState| u128::from(hash.hash_one((name, total, deleted)));
        of(&self.hashes[0]) << 64 | of(&self.hashes[1])
    }
}

/// The names that one reader has met. It asks the shared table only about new ones.
#[derive(Debug, Default)]
pub(super) struct SeenNames(HashMap<NameKey, u32>);

impl SeenNames {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns the number of a name. A new name is written to `out`, which must stay in the answer,
    /// but not more of it than `most` bytes.
    pub(super) fn number(
        &mut self,
        all: &FileNames,
        name: &[u8],
        most: usize,
        deleted: bool,
        out: &mut StreamWriter,
    ) -> u32 {
        let total = name.len();
        let whole = all.key(name, total, deleted);
        if let Some(n) = self.0.get(&whole) {
            return *n;
        }
        let (shown, mut key) = (&name[..total.min(most)], whole);
        if shown.len() < total {
            key = all.key(shown, total, deleted);
            if let Some(n) = self.0.get(&key) {
                return *n;
            }
        }
        let mut numbers = all.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = OURS | (numbers.len() as u32 + 1);
        let number = match numbers.entry(key) {
            Entry::Occupied(e) => *e.get(),
            Entry::Vacant(e) => {
                e.insert(next);
                let flags = if deleted { BLOB_DELETED } else { 0 };
                out.put_blob(A_NAME, next, flags, shown, total);
                next
            }
        };
        self.0.insert(key, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Done, Stream};

    #[test]
    fn a_name_is_written_once() {
        let all = FileNames::default();
        let (mut a, mut b) = (SeenNames::default(), SeenNames::default());
        let mut out = StreamWriter::new();
        out.info(&StreamWriter::blank_info());
        out.begin_task(1, 1);
        let x = a.number(&all, b"x", 9, false, &mut out);
        assert_eq!(b.number(&all, b"x", 9, false, &mut out), x);
        assert_eq!(a.number(&all, b"x", 9, false, &mut out), x);
        let gone = b.number(&all, b"x", 9, true, &mut out);
        assert_ne!(gone, x);
        assert_eq!((x >> 28, gone >> 28), (3, 3));
        let long = a.number(&all, b"a long name", 6, false, &mut out);
        assert_eq!(b.number(&all, b"a long name", 6, false, &mut out), long);
        assert_ne!(b.number(&all, b"a long", 6, false, &mut out), long);
        out.end_task();
        let s = Stream::parse(out.finish(Done::default())).unwrap();
        assert_eq!(s.name_numbers().len(), 4);
        let name = s.name(long).unwrap();
        assert_eq!((&name.data[..], name.total, name.is_cut()), (&b"a long"[..], 11, true));
        assert_eq!(s.name(x).unwrap().data, &b"x"[..]);
        assert_eq!(s.name(gone).unwrap().flags, BLOB_DELETED);
    }
}
