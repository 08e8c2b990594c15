//! Parses /proc/PID/smaps and /proc/PID/smaps_rollup: how much of each mapping, and of all, is in
//! memory. Each mapping has about 25 lines there, so this parser has the most work.

use taskdiag_wire::{Plain, Rollup, VMA_FLAGS, VmaStat};
use zerocopy::IntoBytes;

use super::maps::{MapLine, map_line};
use super::number;
use super::small::complete_lines;

/// The keys, in the order of the members of [`VmaStat`] after `start` and `end`, and the first
/// [`SIZES`] of [`Rollup`] after `valid`. The kernel writes them in about this order.
const KEYS: [&[u8]; 24] = [
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
    b"THPeligible:",
    b"ProtectionKey:",
];
/// How many of the keys are sizes in KiB. The others are plain numbers.
const SIZES: usize = 22;

/// The values of one mapping, or the sums of all, in bytes, and which of them are known.
#[derive(Clone, Copy, Debug, Default)]
struct SmapsValues {
    values: [u64; KEYS.len()],
    known: u32,
    /// The key that is tried first, which is the one after the last match.
    next: usize,
}

impl SmapsValues {
    /// Reads a line. Returns the index of its key, if it is one of the keys.
    #[inline]
    fn line(&mut self, line: &[u8]) -> Option<usize> {
        for i in (self.next..KEYS.len()).chain(0..self.next) {
            if let Some(text) = line.strip_prefix(KEYS[i]) {
                self.next = (i + 1) % KEYS.len();
                let value = if i < SIZES { kib(text) } else { padded(text) };
                if let Some(value) = value {
                    self.values[i] = value;
                    self.known |= 1 << i;
                }
                return Some(i);
            }
        }
        None
    }
}

/// Parses `                1640 kB` into bytes.
#[inline]
fn kib(text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b" kB")?;
    let blanks = digits.iter().position(|b| *b != b' ')?;
    number(&digits[blanks..])?.checked_mul(1024)
}

/// A mapping of smaps.
#[derive(Clone, Copy, Debug)]
pub struct SmapsEntry<'a> {
    /// The line as in maps. Its flags are set if [`has_flags`](Self::has_flags) is true.
    pub line: MapLine<'a>,
    /// Whether there was a line of flags.
    pub has_flags: bool,
    /// How much of the mapping is in memory.
    pub stat: VmaStat,
    /// The members of `stat` that are known.
    pub valid: u32,
}

/// The mappings of a smaps file, in order. A mapping that is cut by the end of the data has the
/// values before the cut.
pub fn smaps_entries(bytes: &[u8]) -> impl Iterator<Item = SmapsEntry<'_>> {
    let mut rest = &bytes[..memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1)];
    let mut following = None;
    let mut layout = Layout::default();
    std::iter::from_fn(move || {
        let mut head: MapLine<'_> = loop {
            match following.take().or_else(|| map_line(take_line(&mut rest)?)) {
                Some(head) => break head,
                None if rest.is_empty() => return None,
                None => {}
            }
        };
        let (mut sums, mut has_flags, mut at) = (SmapsValues::default(), false, 0);
        while !rest.is_empty() {
            if layout.line(at, &mut rest, &mut sums) {
                at += 1;
                continue;
            }
            let line = take_line(&mut rest).unwrap_or_default();
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
                layout.learn(at, line, sums.line(line));
                at += 1;
            }
        }
        let mut words = [0; KEYS.len() + 2];
        words[..2].copy_from_slice(&[head.vma.start, head.vma.end]);
        words[2..].copy_from_slice(&sums.values);
        let (stat, _) = VmaStat::read_from_prefix(words.as_bytes()).expect("of the same size");
        Some(SmapsEntry { line: head, has_flags, stat, valid: sums.known << 2 | 0b11 })
    })
}

/// The length of the beginning of a smaps file whose mappings are complete, up to the last line
/// that begins a mapping. It is 0 if no mapping is complete.
pub fn whole_smaps_entries(bytes: &[u8]) -> usize {
    let mut end = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
    while let Some(before) = end.checked_sub(1) {
        let begin = memchr::memrchr(b'\n', &bytes[..before]).map_or(0, |n| n + 1);
        // Keys begin with a capital letter, addresses do not.
        if !bytes[begin].is_ascii_uppercase() {
            return begin;
        }
        end = begin;
    }
    0
}

/// The next line without its newline, or `None` if there is none.
fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(b'\n', rest)?;
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Some(line)
}

/// The lines of a mapping, learnt from the previous mapping. The kernel writes the same lines for
/// each mapping, with the same lengths. So the parser need not search for the end of a line or for
/// its key.
#[derive(Debug, Default)]
struct Layout(Vec<KnownLine>);

#[derive(Debug)]
struct KnownLine {
    /// The key with its colon.
    key: Vec<u8>,
    /// The length of the line with its newline.
    len: usize,
    /// The index in [`KEYS`], or `None` for another key.
    member: Option<usize>,
}

impl Layout {
    /// Reads the line at the start of `rest`, if it is the expected one, which is the `at`-th.
    #[inline]
    fn line(&self, at: usize, rest: &mut &[u8], sums: &mut SmapsValues) -> bool {
        let Some(known) = self.0.get(at) else { return false };
        let Some((line, after)) = rest.split_at_checked(known.len) else { return false };
        let Some(text) = line.strip_prefix(&known.key[..]) else { return false };
        match known.member {
            Some(i) => {
                let (unit, scale): (&[u8], _) =
                    if i < SIZES { (b" kB\n", 1024) } else { (b"\n", 1) };
                let Some(n) = text.strip_suffix(unit).and_then(padded) else {
                    return false;
                };
                sums.values[i] = n * scale;
                sums.known |= 1 << i;
            }
            None if memchr::memchr(b'\n', text) == Some(text.len() - 1) => {}
            None => return false,
        }
        *rest = after;
        true
    }
    /// Learns that the `at`-th line of a mapping has this key.
    #[cold]
    fn learn(&mut self, at: usize, line: &[u8], member: Option<usize>) {
        let Some(colon) = memchr::memchr(b':', line) else { return };
        let known = KnownLine { key: line[..=colon].into(), len: line.len() + 1, member };
        if let Some(slot) = self.0.get_mut(at) {
            *slot = known;
        } else if at == self.0.len() {
            self.0.push(known);
        }
    }
}

/// A number with blanks before it. It has so few digits that its KiB fit into a number of bytes.
#[inline]
fn padded(text: &[u8]) -> Option<u64> {
    let (mut n, mut scale, mut at) = (0, 1, text.len());
    while let Some(digit) = at.checked_sub(1).map(|i| text[i]).filter(u8::is_ascii_digit) {
        n += u64::from(digit - b'0') * scale;
        scale *= 10;
        at -= 1;
        if text.len() - at > 15 {
            return None;
        }
    }
    (at < text.len() && text[..at].iter().fold(true, |all, b| all & (*b == b' '))).then_some(n)
}

/// The bits of VmFlags. Each flag is two letters.
fn flag_bits(text: &[u8]) -> u32 {
    let bit = |word: &[u8]| VMA_FLAGS.iter().find(|f| f.letters.as_bytes() == word);
    text.split(|b| *b == b' ').filter_map(bit).fold(0, |all, f| all | f.bit)
}

/// Parses a smaps_rollup file. `None` if nothing of it is known.
pub fn rollup(bytes: &[u8]) -> Option<Rollup> {
    let mut sums = SmapsValues::default();
    complete_lines(bytes).for_each(|line| {
        sums.line(line);
    });
    let mut words = [0u64; SIZES + 1];
    words[1..].copy_from_slice(&sums.values[..SIZES]);
    let (mut r, _) = Rollup::read_from_prefix(words.as_bytes()).expect("of the same size");
    (r.nla, r.valid) = (Rollup::new().nla, sums.known & ((1 << SIZES) - 1));
    (r.valid != 0).then_some(r)
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
THPeligible:           1
ProtectionKey:         3
VmFlags: rd mr mw me lo dd um 
7000-9000 rw-p 00000000 00:00 0
Rss:         123456789012 kB
Rss2:                  1 kB
Locked:                1 MB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Rss:                   5 kB
";

    #[test]
    fn entries_of_smaps_are_parsed() {
        let e: Vec<_> = smaps_entries(FILE.as_bytes()).collect();
        assert_eq!(e.len(), 3);
        let s = e[0].stat;
        assert_eq!((s.start, s.end), (0x55b4a18ab000, 0x55b4a18ad000));
        assert_eq!((s.thp_eligible, s.protection_key, e[0].valid >> 24), (1, 3, 0b11));
        let words =
            <[u64; 26] as zerocopy::FromBytes>::read_from_bytes(Plain::as_bytes(&s)).unwrap();
        for (i, (member, word)) in VmaStat::MEMBERS[..24].iter().zip(words).enumerate().skip(2) {
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
        assert_eq!(e[0].line.vma.flags, want.iter().sum::<u32>());
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

    /// A single mapping proves nothing. After several mappings, all lines are expected, or none is.
    #[test]
    fn two_parts_parse_as_the_whole() {
        let shown =
            |bytes: &[u8]| -> Vec<_> { smaps_entries(bytes).map(|e| format!("{e:?}")).collect() };
        let whole = shown(FILE.as_bytes());
        for size in 1..FILE.len() {
            // The text is read in two parts: one of this size, and the rest.
            let text = &FILE.as_bytes()[..size];
            let done = whole_smaps_entries(text);
            assert!(done <= size);
            let parts = [shown(&text[..done]), shown(&FILE.as_bytes()[done..])].concat();
            assert_eq!(parts, whole, "{size}");
        }
        assert_eq!(whole_smaps_entries(FILE.as_bytes()), FILE.find("ffffffffff").unwrap());
        assert_eq!((whole_smaps_entries(b""), whole_smaps_entries(b"Rss: 1 kB\n")), (0, 0));
    }

    #[test]
    fn learnt_lines_do_not_change_the_result() {
        let (first, rest) = FILE.split_once("7000-9000").unwrap();
        let (second, third) = rest.split_once("ffffffffff").unwrap();
        let second = format!("7000-9000{second}");
        let third = format!("ffffffffff{third}");
        let odd =
            first.replace("Pss:                   2 kB", "Pss:\n               2 kB\nNew:  1 kB");
        let large = first.replace("   6 kB", "12345678901234567 kB").replace("kB", "MB");
        let wide = first.replace(" 10 kB", " 1234567890 kB").replace("THP", "XHP");
        let entries = [first, &second, &third, &odd, &large, &wide];
        let order = [0, 0, 3, 0, 1, 0, 4, 2, 5, 0, 5, 5, 3, 3, 1, 1, 0, 2, 4, 0];
        let text: String = order.iter().map(|i| entries[*i]).collect();
        let alone = order.iter().flat_map(|i| smaps_entries(entries[*i].as_bytes()));
        let together: Vec<_> = smaps_entries(text.as_bytes()).map(|e| format!("{e:?}")).collect();
        assert_eq!(together, alone.map(|e| format!("{e:?}")).collect::<Vec<_>>());
    }

    #[test]
    fn smaps_rollup_is_parsed() {
        let r = rollup(FILE.as_bytes()).unwrap();
        assert_eq!(r.nla.kind, Group::Rollup as u16);
        assert_eq!(
            (r.known().rss_bytes(), r.known().swap_pss_bytes()),
            (Some(5120), Some(21 * 1024))
        );
        assert_eq!((r.known().pss_anon_bytes(), r.known().locked_bytes()), (None, Some(22 * 1024)));
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
}
