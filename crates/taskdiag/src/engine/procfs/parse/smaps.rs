//! /proc/PID/smaps and /proc/PID/smaps_rollup: what is in memory of each mapping, and of all.
//! A mapping has some 25 lines there, so this is the parser with the most to do.

use taskdiag_wire::{Rollup, VMA_FLAGS, VmaStat};
use zerocopy::{FromBytes, IntoBytes};

use super::maps::{MapLine, map_line};
use super::number;
use super::small::complete_lines;

/// The keys, in the order of the members of [`VmaStat`] after `start` and `end`, and of
/// [`Rollup`] after `valid`. The kernel writes them in about this order.
const KEYS: [&[u8]; 22] = [
    b"Rss:",
    b"Pss:",
    b"Pss_Dirty:",
    b"Pss_Anon:",
    b"Pss_File:",
    b"Pss_Shmem:",
    b"Shared_Clean:",
    b"Shared_Dirty:",
    b"Private_Clean:",
    b"Private_Dirty:",
    b"Referenced:",
    b"Anonymous:",
    b"KSM:",
    b"LazyFree:",
    b"AnonHugePages:",
    b"ShmemPmdMapped:",
    b"FilePmdMapped:",
    b"Shared_Hugetlb:",
    b"Private_Hugetlb:",
    b"Swap:",
    b"SwapPss:",
    b"Locked:",
];

/// The sums of one mapping or of all, in bytes, and which of them are known.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    values: [u64; KEYS.len()],
    known: u32,
    /// The key that is looked for first: that after the last one.
    next: usize,
}

impl Sums {
    #[inline]
    fn line(&mut self, line: &[u8]) {
        for i in (self.next..KEYS.len()).chain(0..self.next) {
            if let Some(text) = line.strip_prefix(KEYS[i]) {
                self.next = (i + 1) % KEYS.len();
                if let Some(bytes) = kib(text) {
                    self.values[i] = bytes;
                    self.known |= 1 << i;
                }
                return;
            }
        }
    }
}

/// `                1640 kB`, in bytes.
#[inline]
fn kib(text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b" kB")?;
    let blanks = digits.iter().position(|b| *b != b' ')?;
    number(&digits[blanks..])?.checked_mul(1024)
}

/// A mapping of smaps.
#[derive(Clone, Copy, Debug)]
pub struct SmapsEntry<'a> {
    /// As in maps; here with its flags, where [`has_flags`](Self::has_flags) says so.
    pub line: MapLine<'a>,
    /// There was a line of flags.
    pub has_flags: bool,
    /// What is in memory.
    pub stat: VmaStat,
    /// The members of `stat` that are known.
    pub valid: u32,
}

/// The mappings of a smaps file, in order. Of one that the end of the data cuts, what is there.
pub fn smaps_entries(bytes: &[u8]) -> impl Iterator<Item = SmapsEntry<'_>> {
    let mut lines = complete_lines(bytes);
    let mut following = None;
    std::iter::from_fn(move || {
        let mut head: MapLine<'_> =
            following.take().or_else(|| lines.by_ref().find_map(map_line))?;
        let (mut sums, mut has_flags) = (Sums::default(), false);
        for line in lines.by_ref() {
            // Keys begin with a capital letter, addresses do not.
            if !line.first().is_some_and(u8::is_ascii_uppercase) {
                following = map_line(line);
                if following.is_some() {
                    break;
                }
            } else if let Some(flags) = line.strip_prefix(b"VmFlags:") {
                head.vma.flags = flag_bits(flags);
                has_flags = true;
            } else {
                sums.line(line);
            }
        }
        let mut stat = VmaStat::default();
        (stat.start, stat.end) = (head.vma.start, head.vma.end);
        stat.as_mut_bytes()[16..].copy_from_slice(sums.values.as_bytes());
        Some(SmapsEntry { line: head, has_flags, stat, valid: sums.known << 2 | 0b11 })
    })
}

/// The bits of VmFlags, which are two letters each.
fn flag_bits(text: &[u8]) -> u32 {
    let bit = |word: &[u8]| VMA_FLAGS.iter().find(|f| f.letters.as_bytes() == word);
    text.split(|b| *b == b' ').filter_map(bit).fold(0, |all, f| all | f.bit)
}

/// A smaps_rollup file. `None`: nothing of it is known.
pub fn rollup(bytes: &[u8]) -> Option<Rollup> {
    let mut sums = Sums::default();
    complete_lines(bytes).for_each(|line| sums.line(line));
    let mut words = [0u64; KEYS.len() + 1];
    words[1..].copy_from_slice(&sums.values);
    let mut r = Rollup::read_from_bytes(words.as_bytes()).expect("of the same size");
    (r.nla, r.valid) = (Rollup::new().nla, sums.known);
    (r.valid != 0).then_some(r)
}

/// Resident memory of /proc/PID/statm, in pages.
pub fn statm_rss_pages(bytes: &[u8]) -> Option<u64> {
    let mut f = super::Fields::new(bytes);
    f.skip(1);
    f.u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::Group;

    const FILE: &str = "\
55b4a18ab000-55b4a18ad000 r--p 00000000 fe:00 247026                     /usr/bin/cat
Size:                  8 kB
KernelPageSize:        4 kB
Rss:                   1 kB
Pss:                   2 kB
Pss_Dirty:             3 kB
Shared_Clean:          7 kB
Shared_Dirty:          8 kB
Private_Clean:         9 kB
Private_Dirty:        10 kB
Referenced:           11 kB
Anonymous:            12 kB
KSM:                  13 kB
LazyFree:             14 kB
AnonHugePages:        15 kB
ShmemPmdMapped:       16 kB
FilePmdMapped:        17 kB
Shared_Hugetlb:       18 kB
Private_Hugetlb:      19 kB
Swap:                 20 kB
SwapPss:              21 kB
Locked:               22 kB
THPeligible:           0
VmFlags: rd mr mw me lo dd um 
7000-9000 rw-p 00000000 00:00 0
Rss:         123456789012 kB
Rss2:                  1 kB
Locked:                1 MB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Rss:                   5 kB
";

    #[test]
    fn entries() {
        let e: Vec<_> = smaps_entries(FILE.as_bytes()).collect();
        assert_eq!(e.len(), 3);
        let s = e[0].stat;
        assert_eq!((s.start, s.end), (0x55b4a18ab000, 0x55b4a18ad000));
        let words = <[u64; 24]>::read_from_bytes(s.as_bytes()).unwrap();
        for (i, (member, word)) in VmaStat::MEMBERS.iter().zip(words).enumerate().skip(2) {
            let none = ["pss_anon_bytes", "pss_file_bytes", "pss_shmem_bytes"].contains(member);
            let asked = if none { 0 } else { i as u64 - 1 };
            assert_eq!(
                (word, e[0].valid >> i & 1),
                (asked * 1024, u32::from(asked != 0)),
                "{member}"
            );
        }
        let want =
            ["lo", "dd", "um"].map(|l| VMA_FLAGS.iter().find(|f| f.letters == l).unwrap().bit);
        assert_eq!(e[0].line.vma.flags, want.iter().sum());
        assert_eq!(e[0].line.text, b"/usr/bin/cat");
        assert!(e[0].has_flags && !e[1].has_flags);
        assert_eq!((e[1].stat.rss_bytes, e[1].valid), (123456789012 * 1024, 0b111));
        assert_eq!((e[2].stat.rss_bytes, e[2].line.vma.start), (5120, 0xffffffffff600000));
        for n in 0..FILE.len() {
            let cut: Vec<_> = smaps_entries(&FILE.as_bytes()[..n]).collect();
            for (c, whole) in cut.iter().zip(&e) {
                assert_eq!(c.valid & !whole.valid, 0, "cut at {n}");
                assert!(c.stat.rss_bytes == whole.stat.rss_bytes || c.valid & 4 == 0);
            }
        }
    }

    #[test]
    fn rollups() {
        let r = rollup(FILE.as_bytes()).unwrap();
        assert_eq!(r.nla.kind, Group::Rollup as u16);
        assert_eq!((r.rss_bytes(), r.swap_pss_bytes()), (Some(5120), Some(21 * 1024)));
        assert_eq!((r.pss_anon_bytes(), r.locked_bytes()), (None, Some(22 * 1024)));
        assert_eq!(rollup(b""), None);
        assert_eq!(rollup(b"Rss: 5 MB\nPss:\n"), None);
        for (key, member) in KEYS.iter().zip(Rollup::MEMBERS) {
            let line = [key, &b" 7 kB\n"[..]].concat();
            let r = rollup(&line).unwrap();
            assert!(
                r.knows(member).unwrap() && format!("{r:?}").contains(&format!("{member}: 7168"))
            );
        }
    }

    #[test]
    fn statm() {
        assert_eq!(statm_rss_pages(b"100 23 3 4 0 5 0\n"), Some(23));
        assert_eq!(statm_rss_pages(b"100 23"), None);
    }
}
