//! Where members of kernel structs are, from the kernel's own type information (BTF).
//!
//! One pass over all types finds any number of structs, in about the time that the kernel takes
//! to find two for a CO-RE relocation. Pure: bytes in, offsets out; `offsets.rs` reads the file.
//! Only what that takes: structs, their members, and the types that lead from one to the other.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const RESTRICT: u32 = 11;
const TYPE_TAG: u32 = 18;

/// The types of a kernel, and where the wanted ones are.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type is in `types`, by its id.
    at: Vec<u32>,
    /// Ids of the wanted structs.
    named: HashMap<&'a [u8], Vec<u32>>,
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Find the structs for which `wanted` is true. `None`: not well formed, or newer than this
    /// knows.
    pub fn parse(file: &'a [u8], wanted: impl Fn(&[u8]) -> bool) -> Option<Btf<'a>> {
        if file.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let header = u32_at(file, 4)? as usize;
        let part = |at: usize| {
            let (off, len) = (u32_at(file, at)? as usize, u32_at(file, at + 4)? as usize);
            file.get(header + off..)?.get(..len)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut btf =
            Btf { types, strings, at: Vec::with_capacity(types.len() / 24), named: HashMap::new() };
        btf.at.push(0);
        let mut at = 0;
        while at < types.len() {
            let (name, info) = (u32_at(types, at)?, u32_at(types, at + 4)?);
            let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            if kind == STRUCT && name != 0 {
                let name = btf.string(name)?;
                if wanted(name) {
                    btf.named.entry(name).or_default().push(btf.at.len() as u32);
                }
            }
            btf.at.push(at as u32);
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,
                    ARRAY => 12,
                    STRUCT | UNION | 15 | 19 => vlen * 12,
                    6 | 13 => vlen * 8,
                    PTR | 7..=12 | 16 | TYPE_TAG => 0,
                    _ => return None,
                };
        }
        Some(btf)
    }

    /// Offset in bytes of a member, given as a path of names joined by dots, or the size of the
    /// struct for the path `sizeof`.
    pub fn offset(&self, name: &str, path: &str) -> Option<u32> {
        self.named.get(name.as_bytes())?.iter().find_map(|id| {
            if path == "sizeof" {
                return u32_at(self.types, *self.at.get(*id as usize)? as usize + 8);
            }
            let (mut id, mut offset) = (*id, 0);
            for name in path.split('.') {
                let (of, within) = self.member(id, name.as_bytes(), 0)?;
                (id, offset) = (of, offset + within);
            }
            Some(offset)
        })
    }

    fn string(&self, at: u32) -> Option<&'a [u8]> {
        let s = self.strings.get(at as usize..)?;
        Some(&s[..s.iter().position(|b| *b == 0)?])
    }

    /// The type and offset of a member, which may be in an unnamed struct or union.
    fn member(&self, id: u32, name: &[u8], depth: usize) -> Option<(u32, u32)> {
        if depth > 8 {
            return None;
        }
        let at = self.structure(id)?;
        let info = u32_at(self.types, at + 4)?;
        let bitfields = info >> 31 != 0;
        (0..(info & 0xffff) as usize).find_map(|i| {
            let at = at + 12 + i * 12;
            let member = self.string(u32_at(self.types, at)?)?;
            let of = u32_at(self.types, at + 4)?;
            let mut bits = u32_at(self.types, at + 8)?;
            if bitfields {
                if bits >> 24 != 0 {
                    return None;
                }
                bits &= 0xff_ffff;
            }
            if member == name {
                Some((of, bits / 8))
            } else if member.is_empty() {
                self.member(of, name, depth + 1).map(|(of, within)| (of, bits / 8 + within))
            } else {
                None
            }
        })
    }

    /// Where the struct or union is that this type stands for.
    fn structure(&self, mut id: u32) -> Option<usize> {
        for _ in 0..16 {
            let at = *self.at.get(id as usize)? as usize;
            match u32_at(self.types, at + 4)? >> 24 & 0x1f {
                STRUCT | UNION => return Some(at),
                TYPEDEF | VOLATILE..=RESTRICT | TYPE_TAG => id = u32_at(self.types, at + 8)?,
                _ => return None,
            }
        }
        None
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
        let btf = Btf::parse(&file, |n| n == b"wanted").unwrap();
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
        for n in 0..file.len() {
            if let Some(btf) = Btf::parse(&file[..n], |_| true) {
                btf.offset("wanted", "inner");
            }
        }
    }
}
