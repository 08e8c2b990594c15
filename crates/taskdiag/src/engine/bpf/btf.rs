//! Where members of kernel structs are, from the kernel's own type information (BTF).
//!
//! One pass over all types finds any number of structs, in about the time that the kernel takes
//! to find two for a CO-RE relocation. Pure: bytes in, offsets out; `offsets.rs` reads the file.
//! Only what that takes: structs, their members, and the types that lead from one to the other.

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

/// Names of structs, unions and functions to find. Most others differ in their first eight bytes.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// In order.
    names: Vec<&'a [u8]>,
    starts: Box<[u64; 1024]>,
}

impl<'a> Wanted<'a> {
    /// These.
    pub fn new(names: impl IntoIterator<Item = &'a [u8]>) -> Wanted<'a> {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let mut starts = Box::new([0u64; 1024]);
        for n in &names {
            let bit = start(n);
            starts[bit / 64] |= 1 << (bit % 64);
        }
        Wanted { names, starts }
    }
    /// The name that begins here, ended by NUL, if it is one of them.
    fn find<'b>(&self, text: &'b [u8]) -> Option<&'b [u8]> {
        let bit = start(text);
        if self.starts[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        let name = &text[..text.iter().position(|b| *b == 0)?];
        self.names.binary_search(&name).is_ok().then_some(name)
    }
}

/// A number below 65536 made of the first eight bytes of a name, up to the NUL that may end it.
fn start(text: &[u8]) -> usize {
    let mut word = match text.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => text.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b)),
    };
    // The lowest byte that is zero has its high bit set here.
    let zeros =
        word.wrapping_sub(u64::from_ne_bytes([1; 8])) & !word & u64::from_ne_bytes([0x80; 8]);
    if zeros != 0 {
        word &= (1 << (zeros.trailing_zeros() & !7)) - 1;
    }
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// The types of a kernel or of a program, and where the wanted ones are.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where every [`STEP`]th type is in `types`, from the first on. All would be memory that costs
    /// more than a few steps, for some hundred types that are looked at of 150,000.
    at: Vec<u32>,
    /// How many types there are.
    count: u32,
    /// Ids of the wanted structs and unions.
    structs: BTreeMap<&'a [u8], Vec<u32>>,
    /// Ids of the wanted functions.
    functions: BTreeMap<&'a [u8], u32>,
}

const STEP: u32 = 16;

/// How long a type is, with what follows its header. `None`: it is of no known kind.
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
    /// Find what is wanted. `None`: not well formed, or newer than this knows.
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
            count: 0,
            structs: BTreeMap::new(),
            functions: BTreeMap::new(),
        };
        let (mut at, mut id) = (0, 0);
        while at < types.len() {
            if id % STEP == 0 {
                btf.at.push(at as u32);
            }
            id += 1;
            let (name, info) = (u32_at(types, at)?, u32_at(types, at + 4)?);
            let kind = info >> 24 & 0x1f;
            if matches!(kind, STRUCT | UNION | FUNC) && name != 0 {
                if let Some(name) = wanted.find(strings.get(name as usize..)?) {
                    match kind {
                        FUNC => drop(btf.functions.entry(name).or_insert(id)),
                        _ => btf.structs.entry(name).or_default().push(id),
                    }
                }
            }
            at += length(info)?;
        }
        btf.count = id;
        Some(btf)
    }

    /// Ids of the structs and unions of this name.
    pub fn structs(&self, name: &[u8]) -> &[u32] {
        self.structs.get(name).map_or(&[], Vec::as_slice)
    }

    /// Id of the function of this name.
    pub fn function(&self, name: &[u8]) -> Option<u32> {
        self.functions.get(name).copied()
    }

    /// Where a type is in `types`. There is no type 0.
    fn place(&self, id: u32) -> Option<usize> {
        let n = id.checked_sub(1).filter(|n| *n < self.count)?;
        let mut at = *self.at.get((n / STEP) as usize)? as usize;
        for _ in 0..n % STEP {
            at += length(u32_at(self.types, at + 4)?)?;
        }
        Some(at)
    }

    /// Kind and place of a type.
    fn kind(&self, id: u32) -> Option<(u32, usize)> {
        let at = self.place(id)?;
        Some((u32_at(self.types, at + 4)? >> 24 & 0x1f, at))
    }

    /// The type below names and qualifiers.
    pub fn plain(&self, mut id: u32) -> Option<u32> {
        for _ in 0..16 {
            match self.kind(id)? {
                (TYPEDEF | VOLATILE..=RESTRICT | TYPE_TAG, at) => id = u32_at(self.types, at + 8)?,
                _ => return Some(id),
            }
        }
        None
    }

    /// Size in bytes of a type that is plain.
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

    /// Is a plain type a pointer or an unsigned number, which may be loaded with another size?
    pub fn is_unsigned(&self, id: u32) -> bool {
        match self.kind(id) {
            Some((PTR, _)) => true,
            // The encoding's first bit says that it is signed.
            Some((INT, at)) => u32_at(self.types, at + 12).is_some_and(|e| e >> 24 & 1 == 0),
            _ => false,
        }
    }

    /// May a plain type stand for one of other type information, as a member's type?
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
        self.structs.get(name.as_bytes())?.iter().find_map(|id| {
            if path == "sizeof" {
                return u32_at(self.types, self.place(*id)? + 8);
            }
            let (mut id, mut offset) = (*id, 0);
            for name in path.split('.') {
                let (of, within) = self.member(id, name.as_bytes(), 0)?;
                (id, offset) = (of, offset + within);
            }
            Some(offset)
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

    /// Where the struct or union is that this type stands for.
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

    /// struct wanted { long plain; union { struct wanted *; long inner; }; inside (bit 70, 3 wide) }
    fn example() -> Vec<u8> {
        let mut types = Vec::new();
        words(&mut types, &[27, 1 << 24, 8, 64]); // 1: long
        words(&mut types, &[1, 1 << 31 | STRUCT << 24 | 3, 24]); // 2: struct wanted
        words(&mut types, &[8, 1, 0, 0, 3, 64, 20, 1, 3 << 24 | 70]);
        words(&mut types, &[0, TYPEDEF << 24, 4]); // 3: a name for 4
        words(&mut types, &[0, UNION << 24 | 1, 8]); // 4: union
        words(&mut types, &[14, 1, 0]);
        let mut file = MAGIC.to_ne_bytes().to_vec();
        file.extend([1, 0]);
        let n = types.len() as u32;
        words(&mut file, &[24, 0, n, n, STRINGS.len() as u32]);
        file.extend(&types);
        file.extend(STRINGS);
        file
    }

    #[test]
    fn finds_members() {
        let file = example();
        let btf = Btf::parse(&file, &Wanted::new([&b"wanted"[..]])).unwrap();
        assert_eq!(btf.offset("wanted", "plain"), Some(0));
        assert_eq!(btf.offset("wanted", "inner"), Some(8));
        assert_eq!(btf.offset("wanted", "sizeof"), Some(24));
        // a bit field, a member that is not there, a struct that was not wanted
        assert_eq!(btf.offset("wanted", "inside"), None);
        assert_eq!(btf.offset("wanted", "plain.x"), None);
        assert_eq!(btf.offset("other", "plain"), None);
    }

    #[test]
    fn takes_no_harm_from_a_cut_file() {
        let file = example();
        let wanted = Wanted::new([&b"wanted"[..]]);
        for n in 0..file.len() {
            if let Some(btf) = Btf::parse(&file[..n], &wanted) {
                btf.offset("wanted", "inner");
            }
        }
    }
}
