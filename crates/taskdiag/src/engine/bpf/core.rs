//! CO-RE relocation: puts this kernel's offsets and sizes into the instructions that refer to
//! members of kernel structs. The kernel can do that itself while it loads a program, but it
//! searches all of its type information for each type; here one pass finds them all.
//!
//! This module is pure. An unknown case (another kind of relocation, a member whose size differs in
//! a way that changes its meaning) is an error, and the caller leaves all relocations to the
//! kernel.

use std::collections::BTreeMap;

use super::btf::Btf;

/// `struct bpf_core_relo`, in bytes: instruction, type, offset of the access string, kind.
pub const RELOCATION_SIZE: usize = 16;

// enum bpf_core_relo_kind
const FIELD_BYTE_OFFSET: u32 = 0;
const FIELD_EXISTS: u32 = 2;
const TYPE_ID_TARGET: u32 = 7;
const TYPE_SIZE: u32 = 9;

// Classes of instructions, and bits of their codes.
const LD: u8 = 0;
const LDX: u8 = 1;
const ST: u8 = 2;
const STX: u8 = 3;
const ALU: u8 = 4;
const ALU64: u8 = 7;
const SIZES: [(u32, u8); 4] = [(4, 0x00), (2, 0x08), (1, 0x10), (8, 0x18)];
const REGISTER: u8 = 0x08;

/// A call of a helper that does not exist. Like libbpf and the kernel, this module replaces
/// accesses to missing members by this call: the verifier refuses it, unless it is unreachable.
const POISON: [u8; 8] = [0x85, 0, 0, 0, 0x10, 0x23, 0xad, 0x0b];

/// The reason for leaving a relocation to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown(pub &'static str);

/// Relocate the instructions of a program. `local` has the types that it was compiled with,
/// `target` those of this kernel.
pub fn relocate(
    insns: &mut [u8],
    relocations: &[u8],
    local: &Btf<'_>,
    target: &Btf<'_>,
) -> Result<(), Unknown> {
    // Each type and member occurs many times, so results are kept.
    let mut known = BTreeMap::new();
    for r in relocations.chunks_exact(RELOCATION_SIZE) {
        let key = (word(r, 4), word(r, 8), word(r, 12));
        let found = match known.get(&key) {
            Some(found) => *found,
            None => *known.entry(key).or_insert(value(key.0, key.1, key.2, local, target)?),
        };
        let insn = insns.get_mut(word(r, 0) as usize..).ok_or(Unknown("no such instruction"))?;
        patch(insn, found)?;
    }
    Ok(())
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// A name without its suffix from three underscores on, which tells variants of a type apart.
pub fn essential(name: &[u8]) -> Option<&[u8]> {
    let end = name.windows(3).skip(1).position(|w| w == b"___").map_or(name.len(), |at| at + 1);
    Some(&name[..end]).filter(|n| !n.is_empty())
}

/// The value to put into an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Number(u32),
    /// An offset. A load of `from` bytes becomes one of `to` bytes if they differ.
    Offset {
        at: u32,
        from: u32,
        to: u32,
        resizable: bool,
    },
    /// The type has no such member.
    Nothing,
}

fn value(
    id: u32,
    access: u32,
    kind: u32,
    local: &Btf<'_>,
    target: &Btf<'_>,
) -> Result<Found, Unknown> {
    let bad = Unknown("a relocation that is not understood");
    let root = local.plain(id).ok_or(bad)?;
    let name = local.struct_name(root).and_then(essential).ok_or(bad)?;
    let candidates = target.structs(name);
    if kind == TYPE_ID_TARGET {
        return Ok(Found::Number(the_one(candidates.iter().copied())?.unwrap_or(0)));
    }
    if kind == TYPE_SIZE {
        let sizes = candidates.iter().filter_map(|id| target.size(*id));
        return Ok(Found::Number(the_one(sizes)?.unwrap_or(0)));
    }
    let access = local.string(access).ok_or(bad)?;
    let path = path(root, access, local).ok_or(bad)?;
    let there = the_one(candidates.iter().filter_map(|id| {
        let (of, at) = follow(*id, &path, local, target)?;
        Some((target.size(of)?, target.is_unsigned(of), at))
    }))?;
    match (kind, there) {
        (FIELD_EXISTS, there) => Ok(Found::Number(u32::from(there.is_some()))),
        (FIELD_BYTE_OFFSET, None) => Ok(Found::Nothing),
        (FIELD_BYTE_OFFSET, Some((to, unsigned, at))) => {
            let mine = path.last().map_or(root, |s| s.of);
            let from = local.size(mine).ok_or(bad)?;
            Ok(Found::Offset { at, from, to, resizable: unsigned && local.is_unsigned(mine) })
        }
        _ => Err(bad),
    }
}

/// The value, if it is the same in all structs of this name.
fn the_one<T: PartialEq>(mut of: impl Iterator<Item = T>) -> Result<Option<T>, Unknown> {
    let first = of.next();
    match of.all(|o| Some(&o) == first.as_ref()) {
        true => Ok(first),
        false => Err(Unknown("structs of the same name that differ")),
    }
}

/// A step from a struct to a member or from an array to an element.
#[derive(Clone, Copy, Debug)]
struct AccessStep<'a> {
    to: To<'a>,
    /// The id of the type, in the types of the program.
    of: u32,
}

#[derive(Clone, Copy, Debug)]
enum To<'a> {
    Member(&'a [u8]),
    Element(u32),
}

/// The steps of an access string. "0:3:1" means the first struct of the array that a pointer points
/// to, its fourth member, and the second member of that one. Unnamed members are no steps of their
/// own.
fn path<'a>(root: u32, access: &[u8], local: &Btf<'a>) -> Option<Vec<AccessStep<'a>>> {
    let mut numbers = std::str::from_utf8(access).ok()?.split(':').map(str::parse::<u32>);
    if numbers.next()?.ok()? != 0 {
        return None;
    }
    let (mut of, mut steps) = (root, Vec::new());
    for n in numbers {
        let n = n.ok()?;
        if let Some(element) = local.element(of) {
            of = element;
            steps.push(AccessStep { to: To::Element(n), of });
            continue;
        }
        let (name, member) = local.nth_member(of, n)?;
        of = member;
        if !name.is_empty() {
            steps.push(AccessStep { to: To::Member(name), of });
        }
    }
    Some(steps)
}

/// The plain type and the offset that the path leads to in the kernel's types.
fn follow(
    root: u32,
    path: &[AccessStep<'_>],
    local: &Btf<'_>,
    target: &Btf<'_>,
) -> Option<(u32, u32)> {
    let (mut of, mut at) = (root, 0u32);
    for step in path {
        let (next, within) = match step.to {
            To::Member(name) => target.member(of, name, 0)?,
            To::Element(n) => {
                let element = target.element(of)?;
                (element, target.size(element)?.checked_mul(n)?)
            }
        };
        (of, at) = (target.plain(next)?, at.checked_add(within)?);
        if !target.is_like(of, local, step.of) {
            return None;
        }
    }
    Some((of, at))
}

/// The targets of the relocations: the instruction, the struct, and the path of members, which is
/// empty unless the relocation is about an offset.
#[cfg(test)]
pub fn names(relocations: &[u8], local: &Btf<'_>) -> Vec<(usize, String, String)> {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let one = |r: &[u8]| {
        let root = local.plain(word(r, 4))?;
        let of = text(local.struct_name(root).and_then(essential)?);
        let steps = match word(r, 12) {
            FIELD_BYTE_OFFSET => path(root, local.string(word(r, 8))?, local)?,
            _ => Vec::new(),
        };
        let members = steps.iter().filter_map(|s| match s.to {
            To::Member(name) => Some(text(name)),
            To::Element(_) => None,
        });
        Some((word(r, 0) as usize / 8, of, members.collect::<Vec<_>>().join(".")))
    };
    relocations.chunks_exact(RELOCATION_SIZE).filter_map(one).collect()
}

fn patch(insn: &mut [u8], found: Found) -> Result<(), Unknown> {
    let bad = Unknown("a relocation of another instruction");
    let code = *insn.first().ok_or(bad)?;
    let class = code & 7;
    let wide = class == LD;
    let number = match found {
        Found::Number(n) => n,
        Found::Offset { at, .. } => at,
        Found::Nothing => {
            let len = if wide { 16 } else { 8 };
            insn.get_mut(..len).ok_or(bad)?.chunks_exact_mut(8).for_each(|i| {
                i.copy_from_slice(&POISON);
            });
            return Ok(());
        }
    };
    match class {
        ALU | ALU64 if code & REGISTER == 0 => {
            insn[4..8].copy_from_slice(&number.to_ne_bytes());
        }
        LDX | ST | STX => {
            let short = i16::try_from(number).map_err(|_| bad)?;
            insn[2..4].copy_from_slice(&short.to_ne_bytes());
            let Found::Offset { from, to, resizable, .. } = found else { return Err(bad) };
            if from != to {
                let code_of = |n: u32| SIZES.iter().find(|s| s.0 == n).map(|s| s.1);
                let (Some(old), Some(new)) = (code_of(from), code_of(to)) else { return Err(bad) };
                if !resizable || code & 0x18 != old {
                    return Err(bad);
                }
                insn[0] = code & !0x18 | new;
            }
        }
        LD if insn.len() >= 16 => {
            insn[4..8].copy_from_slice(&number.to_ne_bytes());
            insn[12..16].fill(0);
        }
        _ => return Err(bad),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::btf::Wanted;
    use super::*;

    const STRINGS: &[u8] =
        b"\0task\0task___old\0pid\0state\0inner\0deep\x000:0\x000:1\x000:2:1\x000:3:2\x000:4\0lost\0";
    const MAGIC: [u8; 4] = [0x9f, 0xeb, 1, 0];

    fn at(text: &str) -> u32 {
        let text = format!("\0{text}\0");
        STRINGS.windows(text.len()).position(|w| w == text.as_bytes()).unwrap() as u32 + 1
    }

    fn file(types: &[u32]) -> Vec<u8> {
        let n = types.len() as u32 * 4;
        let head = [24, 0, n, n, STRINGS.len() as u32];
        let words = head.iter().chain(types).flat_map(|w| w.to_ne_bytes());
        MAGIC.into_iter().chain(words).chain(STRINGS.iter().copied()).collect()
    }

    /// Type 1 is a number of this many bytes, type 2 an array of four of them.
    fn numbers(bytes: u32) -> Vec<u32> {
        vec![at("pid"), 1 << 24, bytes, bytes * 8, 0, 3 << 24, 0, 1, 1, 4]
    }

    /// struct NAME { pid; state; struct { inner; deep; }; deep[4]; lost; }
    fn local(name: &str) -> Vec<u8> {
        let mut t = numbers(4);
        t.extend([0, 4 << 24 | 2, 8, at("inner"), 1, 0, at("deep"), 1, 32]); // 3
        t.extend([at(name), 4 << 24 | 5, 36, at("pid"), 1, 0, at("state"), 1, 32]); // 4
        t.extend([0, 3, 64, at("state"), 2, 128, at("lost"), 1, 256]);
        file(&t)
    }

    /// struct task { union { deep; }; pid; state of another size }, at the offsets 16, 40 and 48.
    fn kernel(bytes: u32, twice: bool) -> Vec<u8> {
        let mut t = numbers(bytes);
        t.extend([0, 5 << 24 | 1, 8, at("deep"), 1, 0]); // 3
        for n in 0..=u32::from(twice) {
            t.extend([at("task"), 4 << 24 | 4, 64, 0, 3, 128, at("pid"), 1, 320 + n * 64]);
            t.extend([at("state"), 2, 384, at("inner"), 2, 0]);
        }
        file(&t)
    }

    /// The instruction after one relocation.
    fn after(
        insn: &[u8],
        access: &str,
        kind: u32,
        mine: &[u8],
        theirs: &[u8],
    ) -> Result<Vec<u8>, Unknown> {
        let local = Btf::parse(mine, &Wanted::new([], [])).unwrap();
        let target = Btf::parse(theirs, &Wanted::new([&b"task"[..]], [])).unwrap();
        let relocation = [0, 4, if access.is_empty() { 0 } else { at(access) }, kind];
        let relocation: Vec<u8> = relocation.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut insn = insn.to_vec();
        relocate(&mut insn, &relocation, &local, &target).map(|()| insn)
    }

    const LOAD: [u8; 8] = [0x61, 0x21, 99, 0, 0, 0, 0, 0]; // r1 = *(u32 *)(r2 + 99)
    const ADD: [u8; 8] = [0x07, 1, 0, 0, 99, 0, 0, 0]; // r1 += 99
    const MOVE: [u8; 8] = [0xb7, 1, 0, 0, 99, 0, 0, 0]; // r1 = 99

    #[test]
    fn offsets_are_those_of_the_kernel() {
        for name in ["task", "task___old"] {
            let (mine, theirs) = (local(name), kernel(4, false));
            let r = |insn: &[u8], access| after(insn, access, FIELD_BYTE_OFFSET, &mine, &theirs);
            assert_eq!(r(&LOAD, "0:0").unwrap()[2..4], [40, 0]);
            assert_eq!(r(&ADD, "0:0").unwrap()[4..8], [40, 0, 0, 0]);
            // in an unnamed union there, in an unnamed struct here; an element of an array
            assert_eq!(r(&ADD, "0:2:1").unwrap()[4..8], [16, 0, 0, 0]);
            assert_eq!(r(&LOAD, "0:3:2").unwrap()[2..4], [48 + 8, 0]);
        }
    }

    #[test]
    fn accesses_to_missing_members_are_poisoned_and_named() {
        let (mine, theirs) = (local("task"), kernel(4, false));
        let r = |insn: &[u8], access, kind| after(insn, access, kind, &mine, &theirs).unwrap();
        assert_eq!(r(&LOAD, "0:4", FIELD_BYTE_OFFSET), POISON);
        assert_eq!(r(&MOVE, "0:4", FIELD_EXISTS)[4], 0);
        assert_eq!(r(&MOVE, "0:0", FIELD_EXISTS)[4], 1);
        // A number here, an array there.
        assert_eq!(r(&MOVE, "0:1", FIELD_EXISTS)[4], 0);
        assert_eq!(r(&MOVE, "", TYPE_SIZE)[4], 64);
        let wide = [[0x18, 1, 0, 0, 99, 0, 0, 0], [0, 0, 0, 0, 99, 0, 0, 0]].concat();
        assert_eq!(r(&wide, "", TYPE_ID_TARGET), [[0x18, 1, 0, 0, 4, 0, 0, 0], [0; 8]].concat());
    }

    #[test]
    fn a_load_takes_the_size_of_the_member() {
        let r =
            |insn: &[u8]| after(insn, "0:0", FIELD_BYTE_OFFSET, &local("task"), &kernel(8, false));
        assert_eq!(r(&LOAD).unwrap(), [0x79, 0x21, 40, 0, 0, 0, 0, 0]);
        assert_eq!(r(&ADD).unwrap()[4], 40);
        // A load of a part of the member.
        assert!(r(&[0x71, 0x21, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn uncertain_relocations_are_left_to_the_kernel() {
        let (mine, twice) = (local("task"), kernel(4, true));
        let differ = Unknown("structs of the same name that differ");
        for (access, kind) in [("0:0", FIELD_BYTE_OFFSET), ("", TYPE_ID_TARGET)] {
            assert_eq!(after(&ADD, access, kind, &mine, &twice), Err(differ));
        }
        assert_eq!(after(&ADD, "0:2:1", FIELD_BYTE_OFFSET, &mine, &twice).unwrap()[4], 16);
        for kind in [1, 3, 4, 5, 6, 8, 10, 11, 12, 99] {
            assert!(after(&MOVE, "0:0", kind, &mine, &twice).is_err(), "{kind}");
        }
        let jump = [0x05, 0, 0, 0, 0, 0, 0, 0];
        assert!(after(&jump, "0:0", FIELD_BYTE_OFFSET, &mine, &kernel(4, false)).is_err());
    }
}
