//! Finds the offsets of members of kernel structs in the kernel's type information (BTF).
//!
//! One pass over all types finds any number of structs, in about the time that the kernel takes
//! to find two for a CO-RE relocation. This module is pure: bytes go in and offsets come out, and
//! `offsets.rs` reads the file. It knows only the kinds of types that this needs: structs, their
//! members, and the types that lead from one to the other.

use std::collections::BTreeMap;

const MAGIC: u16 = 0xeb9f;
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const RESTRICT: u32 = 11;
/// `BTF_KIND_FUNC`.
pub const FUNC: u32 = 12;
const FLOAT: u32 = 16;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// The names to search for: structs, unions and functions.
#[derive(Debug)]
pub struct Wanted<'a> {
    types: NameSet<'a>,
    functions: NameSet<'a>,
    /// Types that exist in each kernel that has all of the functions.
    expected: Vec<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// Search for these.
    pub fn new(
        types: impl IntoIterator<Item = &'a [u8]>,
        functions: impl IntoIterator<Item = &'a [u8]>,
    ) -> Wanted<'a> {
        let (types, functions) = (NameSet::new(types), NameSet::new(functions));
        Wanted { types, functions, expected: Vec::new() }
    }
    /// Do not end the search before these types and all of the functions were found.
    pub fn expecting(self, types: impl IntoIterator<Item = &'a [u8]>) -> Wanted<'a> {
        Wanted { expected: types.into_iter().collect(), ..self }
    }
}

/// A set of names. Most other names differ from them in the first eight bytes, which a bit map of
/// hashes shows quickly.
#[derive(Debug)]
struct NameSet<'a> {
    /// Sorted.
    names: Vec<&'a [u8]>,
    starts: Box<[u64; 1024]>,
}

impl<'a> NameSet<'a> {
    fn new(names: impl IntoIterator<Item = &'a [u8]>) -> NameSet<'a> {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let mut starts = Box::new([0u64; 1024]);
        for n in &names {
            let bit = hash(begin(n));
            starts[bit / 64] |= 1 << (bit % 64);
        }
        NameSet { names, starts }
    }
    /// The name at the start of `text`, up to its NUL, if it is one of the set. `begin` has its
    /// first bytes.
    fn find<'b>(&self, text: &'b [u8], begin: u64) -> Option<&'b [u8]> {
        let bit = hash(begin);
        if self.starts[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        let name = &text[..text.iter().position(|b| *b == 0)?];
        self.names.binary_search(&name).is_ok().then_some(name)
    }
}

/// The first eight bytes of a name, or fewer if it ends before, as a number. These numbers sort as
/// the names do, except that names with the same first eight bytes are equal.
fn begin(text: &[u8]) -> u64 {
    let mut word = match text.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => text.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b)),
    };
    // The lowest zero byte of `word` has its high bit set in `zeros`.
    let zeros =
        word.wrapping_sub(u64::from_ne_bytes([1; 8])) & !word & u64::from_ne_bytes([0x80; 8]);
    if zeros != 0 {
        word &= (1 << (zeros.trailing_zeros() & !7)) - 1;
    }
    word.swap_bytes()
}

/// A hash below 65536 of the number that stands for the beginning of a name.
fn hash(begin: u64) -> usize {
    (begin.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// Decides when no wanted type can follow any more. pahole adds the functions of a kernel last,
/// sorted by name, after the types of all of its objects. So if at least a thousand functions came
/// in this order, without a struct between them, then all structs have come before, and all
/// functions up to the present name. (Since about Linux 7.0 all types are sorted, and then there
/// are structs between the first thousand functions.) If pahole worked in several threads, as for
/// Ubuntu's 6.8, each thread has added types and sorted functions of its own. So everything that is
/// expected must have been found, too.
#[derive(Debug)]
struct Tail {
    /// The beginning of the last wanted function's name.
    last: u64,
    before: u64,
    functions: u32,
    /// Does the order differ? It does if a function was out of order, if a struct followed a
    /// function, or if something expected was not found before the end of the wanted functions.
    other: bool,
}

const SURE: u32 = 1000;

impl Tail {
    fn new(functions: &NameSet<'_>) -> Tail {
        let last = functions.names.last().map_or(0, |n| begin(n));
        Tail { last, before: 0, functions: 0, other: false }
    }
    /// Note a struct.
    fn structure(&mut self) {
        self.other |= self.functions != 0;
    }
    /// Notes a function with this prefix of its name. Returns whether all wanted functions come
    /// before it.
    fn function(&mut self, begin: u64) -> bool {
        self.other |= begin < self.before;
        self.before = begin;
        self.functions += 1;
        begin > self.last && self.functions >= SURE && !self.other
    }
}

/// The types of a kernel or of a program, and an index of the wanted ones.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// The offset in `types` of every [`STEP`]th type, beginning with the first. An index of all
    /// 150,000 types would take more time than the few steps to each of the hundred or so types
    /// that are used.
    at: Vec<u32>,
    /// Ids of the wanted structs and unions.
    structs: BTreeMap<&'a [u8], Vec<u32>>,
    /// Ids of the wanted functions.
    functions: BTreeMap<&'a [u8], u32>,
}

const STEP: u32 = 16;

/// The length of a type including the data after its header, or `None` if its kind is not known.
fn length(info: u32) -> Option<usize> {
    let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
    Some(
        12 + match kind {
            INT | 14 | 17 => 4,
            ARRAY => 12,
            STRUCT | UNION | 15 | ENUM64 => vlen * 12,
            ENUM | 13 => vlen * 8,
            PTR | 7..=FUNC | FLOAT | TYPE_TAG => 0,
            _ => return None,
        },
    )
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Finds the wanted types. `None` if the file is malformed, or has newer kinds of types.
    pub fn parse(file: &'a [u8], wanted: &Wanted<'_>) -> Option<Btf<'a>> {
        if file.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let header = u32_at(file, 4)? as usize;
        let part = |at: usize| {
            let (off, len) = (u32_at(file, at)? as usize, u32_at(file, at + 4)? as usize);
            file.get(header + off..)?.get(..len)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut btf = Btf {
            types,
            strings,
            at: Vec::with_capacity(types.len() / 24 / STEP as usize),
            structs: BTreeMap::new(),
            functions: BTreeMap::new(),
        };
        let (mut at, mut id) = (0, 0);
        let mut tail = Tail::new(&wanted.functions);
        while at < types.len() {
            if id % STEP == 0 {
                btf.at.push(at as u32);
            }
            id += 1;
            let (name, info) = (u32_at(types, at)?, u32_at(types, at + 4)?);
            match info >> 24 & 0x1f {
                FUNC => {
                    let text = strings.get(name as usize..)?;
                    let begin = begin(text);
                    if let Some(name) = wanted.functions.find(text, begin) {
                        btf.functions.entry(name).or_insert(id);
                    }
                    if tail.function(begin) {
                        if btf.has_met(wanted) {
                            break;
                        }
                        tail.other = true;
                    }
                }
                STRUCT | UNION => {
                    tail.structure();
                    let text = strings.get(name as usize..)?;
                    if let Some(name) = wanted.types.find(text, begin(text)) {
                        btf.structs.entry(name).or_default().push(id);
                    }
                }
                _ => {}
            }
            at += length(info)?;
        }
        Some(btf)
    }

    fn has_met(&self, wanted: &Wanted<'_>) -> bool {
        self.functions.len() == wanted.functions.names.len()
            && wanted.expected.iter().all(|t| self.structs.contains_key(t))
    }

    /// Ids of the structs and unions of this name.
    pub fn structs(&self, name: &[u8]) -> &[u32] {
        self.structs.get(name).map_or(&[], Vec::as_slice)
    }

    /// Id of the function of this name.
    pub fn function(&self, name: &[u8]) -> Option<u32> {
        self.functions.get(name).copied()
    }

    /// The offset of a type in `types`. There is no type 0.
    fn place(&self, id: u32) -> Option<usize> {
        let n = id.checked_sub(1)?;
        // A type after those that `parse` met is found by a walk from the last known place.
        let from = (n / STEP).min((self.at.len() as u32).checked_sub(1)?);
        let mut at = self.at[from as usize] as usize;
        for _ in 0..n - from * STEP {
            at += length(u32_at(self.types, at + 4)?)?;
        }
        (at < self.types.len()).then_some(at)
    }

    /// Kind and place of a type.
    fn kind(&self, id: u32) -> Option<(u32, usize)> {
        let at = self.place(id)?;
        Some((u32_at(self.types, at + 4)? >> 24 & 0x1f, at))
    }

    /// The plain type: the one below typedefs and qualifiers.
    pub fn plain(&self, mut id: u32) -> Option<u32> {
        for _ in 0..16 {
            match self.kind(id)? {
                (TYPEDEF | VOLATILE..=RESTRICT | TYPE_TAG, at) => id = u32_at(self.types, at + 8)?,
                _ => return Some(id),
            }
        }
        None
    }

    /// Size in bytes of a plain type.
    pub fn size(&self, id: u32) -> Option<u32> {
        match self.kind(id)? {
            (PTR, _) => Some(8),
            (ARRAY, at) => {
                let of = self.plain(u32_at(self.types, at + 12)?)?;
                self.size(of)?.checked_mul(u32_at(self.types, at + 20)?)
            }
            (INT | STRUCT | UNION | ENUM | FLOAT | ENUM64, at) => u32_at(self.types, at + 8),
            _ => None,
        }
    }

    /// Whether a plain type is a pointer or an unsigned number, which may be loaded with another
    /// size.
    pub fn is_unsigned(&self, id: u32) -> bool {
        match self.kind(id) {
            Some((PTR, _)) => true,
            // The encoding's first bit says that it is signed.
            Some((INT, at)) => u32_at(self.types, at + 12).is_some_and(|e| e >> 24 & 1 == 0),
            _ => false,
        }
    }

    /// Whether this plain type has the same kind as the type of a member in other type information.
    pub fn is_like(&self, id: u32, other: &Btf<'_>, of: u32) -> bool {
        let class = |k: u32| match k {
            UNION => STRUCT,
            ENUM64 => ENUM,
            k => k,
        };
        match (self.kind(id), other.kind(of)) {
            (Some((a, _)), Some((b, _))) => class(a) == class(b),
            _ => false,
        }
    }

    /// The plain type of the elements of an array.
    pub fn element(&self, id: u32) -> Option<u32> {
        match self.kind(id)? {
            (ARRAY, at) => self.plain(u32_at(self.types, at + 12)?),
            _ => None,
        }
    }

    /// Name and plain type of a member of a plain struct or union by its number.
    pub fn nth_member(&self, id: u32, n: u32) -> Option<(&'a [u8], u32)> {
        let at = self.structure(id)?;
        if n >= u32_at(self.types, at + 4)? & 0xffff {
            return None;
        }
        let at = at + 12 + n as usize * 12;
        Some((self.string(u32_at(self.types, at)?)?, self.plain(u32_at(self.types, at + 4)?)?))
    }

    /// Name of a struct or union.
    pub fn struct_name(&self, id: u32) -> Option<&'a [u8]> {
        self.string(u32_at(self.types, self.structure(id)?)?)
    }

    /// Offset in bytes of a member, given as a path of names joined by dots, or the size of the
    /// struct for the path `sizeof`.
    pub fn offset(&self, name: &str, path: &str) -> Option<u32> {
        self.structs.get(name.as_bytes())?.iter().find_map(|id| match path {
            "sizeof" => u32_at(self.types, self.place(*id)? + 8),
            path => Some(self.follow(*id, path)?.1),
        })
    }

    /// The size of a member in bytes.
    #[cfg(any(test, feature = "testing"))]
    pub fn width(&self, name: &str, path: &str) -> Option<u32> {
        let ids = self.structs.get(name.as_bytes())?;
        ids.iter().find_map(|id| self.size(self.plain(self.follow(*id, path)?.0)?))
    }

    /// Type and offset of a member of a struct.
    fn follow(&self, id: u32, path: &str) -> Option<(u32, u32)> {
        path.split('.').try_fold((id, 0), |(id, offset), step| {
            let (name, back) = match step.strip_suffix(']').and_then(|s| s.split_once("[-")) {
                Some((name, back)) => (name, back.parse::<u32>().ok()),
                None => (step, None),
            };
            let (of, within) = self.member(id, name.as_bytes(), 0)?;
            let Some(back) = back else { return Some((of, offset + within)) };
            // An element, counted from the end of the array.
            let array = self.plain(of)?;
            let element = self.element(array)?;
            let end = offset + within + self.size(array)?;
            Some((element, end.checked_sub(self.size(element)?.checked_mul(back)?)?))
        })
    }

    /// Text by its offset.
    pub fn string(&self, at: u32) -> Option<&'a [u8]> {
        let s = self.strings.get(at as usize..)?;
        Some(&s[..s.iter().position(|b| *b == 0)?])
    }

    /// The type and offset of a member, which may be in an unnamed struct or union.
    pub fn member(&self, id: u32, name: &[u8], depth: usize) -> Option<(u32, u32)> {
        if depth > 8 {
            return None;
        }
        let at = self.structure(id)?;
        let info = u32_at(self.types, at + 4)?;
        let bitfields = info >> 31 != 0;
        (0..(info & 0xffff) as usize).find_map(|i| {
            let at = at + 12 + i * 12;
            let text = self.strings.get(u32_at(self.types, at)? as usize..)?;
            let of = u32_at(self.types, at + 4)?;
            let mut bits = u32_at(self.types, at + 8)?;
            if bitfields {
                if bits >> 24 != 0 {
                    return None;
                }
                bits &= 0xff_ffff;
            }
            if text.get(name.len()) == Some(&0) && text.starts_with(name) {
                Some((of, bits / 8))
            } else if text.first() == Some(&0) {
                self.member(of, name, depth + 1).map(|(of, within)| (of, bits / 8 + within))
            } else {
                None
            }
        })
    }

    /// The offset of the struct or union that this type resolves to.
    fn structure(&self, id: u32) -> Option<usize> {
        match self.kind(self.plain(id)?)? {
            (STRUCT | UNION, at) => Some(at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRINGS: &[u8] = b"\0wanted\0plain\0inner\0inside\0long\0";

    fn words(out: &mut Vec<u8>, words: &[u32]) {
        out.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
    }

    /// struct wanted { long plain; union { struct wanted *; long inner; }; inside (bit 70, 3 wide)
    /// }
    fn example() -> Vec<u8> {
        let mut types = Vec::new();
        words(&mut types, &[27, 1 << 24, 8, 64]); // 1: long
        words(&mut types, &[1, 1 << 31 | STRUCT << 24 | 3, 24]); // 2: struct wanted
        words(&mut types, &[8, 1, 0, 0, 3, 64, 20, 1, 3 << 24 | 70]);
        words(&mut types, &[0, TYPEDEF << 24, 4]); // 3: a name for 4
        words(&mut types, &[0, UNION << 24 | 1, 8]); // 4: union
        words(&mut types, &[14, 1, 0]);
        whole(&types)
    }

    /// A file with these types.
    fn whole(types: &[u8]) -> Vec<u8> {
        let mut file = MAGIC.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        let n = types.len() as u32;
        words(&mut file, &[24, 0, n, n, STRINGS.len() as u32]);
        file.extend(types);
        file.extend(STRINGS);
        file
    }

    #[test]
    fn members_of_structs_are_found() {
        let file = example();
        let btf = Btf::parse(&file, &Wanted::new([&b"wanted"[..]], [])).unwrap();
        assert_eq!(btf.offset("wanted", "plain"), Some(0));
        assert_eq!(btf.offset("wanted", "inner"), Some(8));
        assert_eq!(btf.offset("wanted", "sizeof"), Some(24));
        assert_eq!(btf.width("wanted", "inner"), Some(8));
        assert_eq!(btf.width("wanted", "plain.x"), None);
        // a bit field, a member that does not exist, and a struct that was not searched for
        assert_eq!(btf.offset("wanted", "inside"), None);
        assert_eq!(btf.offset("wanted", "plain.x"), None);
        assert_eq!(btf.offset("other", "plain"), None);
    }

    /// struct wanted { long plain; long inner[6]; }
    #[test]
    fn elements_are_counted_from_the_end_of_an_array() {
        let mut types = Vec::new();
        words(&mut types, &[27, 1 << 24, 8, 64]); // 1: long
        words(&mut types, &[0, ARRAY << 24, 0, 1, 1, 6]); // 2: long[6]
        words(&mut types, &[1, STRUCT << 24 | 2, 56, 8, 1, 0, 14, 2, 64]); // 3: struct wanted
        let file = whole(&types);
        let btf = Btf::parse(&file, &Wanted::new([&b"wanted"[..]], [])).unwrap();
        assert_eq!(btf.offset("wanted", "inner[-4]"), Some(8 + 2 * 8));
        assert_eq!(btf.width("wanted", "inner[-4]"), Some(8));
        // an index beyond the end, and a member that is no array
        assert_eq!(btf.offset("wanted", "inner[-8]"), None);
        assert_eq!(btf.offset("wanted", "plain[-1]"), None);
    }

    /// The wanted struct and function follow this many others, whose names are in order, or not.
    fn with_functions(count: u32, sorted: bool, between: bool) -> Vec<u8> {
        let (mut types, mut strings) = (Vec::new(), STRINGS.to_vec());
        let mut function = |types: &mut Vec<u8>, name: &str| {
            let at = strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            words(types, &[at, FUNC << 24, 0]);
        };
        function(&mut types, "+first");
        if between {
            words(&mut types, &[0, STRUCT << 24, 24]);
        }
        (0..count)
            .map(|i| format!("{:05}", if sorted { i } else { i ^ 1 }))
            .for_each(|name| function(&mut types, &name));
        function(&mut types, "zz");
        words(&mut types, &[1, STRUCT << 24, 24]); // struct wanted
        words(&mut types, &[0, PTR << 24, 1]);
        let mut file = MAGIC.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        let n = types.len() as u32;
        words(&mut file, &[24, 0, n, n, strings.len() as u32]);
        [file, types, strings].concat()
    }

    #[test]
    fn a_search_does_not_go_beyond_sorted_functions() {
        let some = [&b"00777"[..], b"+first", b"zzz"];
        for (count, sorted, between, functions, structs) in [
            (2_000, true, false, &some[..], 1),
            (2_000, true, false, &some[..2], 0),
            (2_000, true, true, &some[..2], 1),
            (2_000, false, false, &some[..2], 1),
            (900, true, false, &some[..2], 1),
        ] {
            let file = with_functions(count, sorted, between);
            let wanted = Wanted::new([&b"wanted"[..]], functions.iter().copied());
            let btf = Btf::parse(&file, &wanted).unwrap();
            assert_eq!(btf.structs(b"wanted").len(), structs, "{count} {sorted} {between}");
            assert_eq!(btf.function(b"+first"), Some(1));
            let place = 779 + u32::from(between) - u32::from(!sorted);
            assert_eq!(btf.function(b"00777"), Some(place));
            assert_eq!(btf.function(b"zzz"), None);
            // A type after the end of the search, and one that does not exist.
            let last = count + 4 + u32::from(between);
            assert_eq!(btf.size(last), Some(8));
            assert_eq!(btf.size(last + 1), None);
        }
    }

    #[test]
    fn a_search_continues_for_an_expected_type() {
        let file = with_functions(2_000, true, false);
        let structs = |functions: &[&'static [u8]], expected: Option<&'static [u8]>| {
            let wanted = Wanted::new([&b"wanted"[..]], functions.iter().copied());
            let btf = Btf::parse(&file, &wanted.expecting(expected)).unwrap();
            btf.structs(b"wanted").len()
        };
        assert_eq!(structs(&[b"00777"], None), 0);
        assert_eq!(structs(&[b"00777"], Some(b"wanted")), 1);
        // A function that would have come earlier, and is missing.
        assert_eq!(structs(&[b"00777", b"00777a"], None), 1);
    }

    #[test]
    fn a_cut_file_of_types_makes_no_panic() {
        let file = example();
        let wanted = Wanted::new([&b"wanted"[..]], []);
        for n in 0..file.len() {
            if let Some(btf) = Btf::parse(&file[..n], &wanted) {
                btf.offset("wanted", "inner");
            }
        }
    }
}
