//! Removes line information from an object. The compiler adds it for messages of the verifier,
//! which are not requested here. It is more than half of the type information that each load passes
//! to the kernel.
//!
//! An object is an ELF file. `.BTF` has types and all strings, and `.BTF.ext` has the source line
//! of each instruction. Both become shorter in place. Documentation/bpf/btf.rst of the kernel has
//! the layouts.
//!
//! libbpf then warns that it finds no line for the main program, which is expected.

use std::collections::BTreeMap;

/// The part of an ELF file of 64 bits that is read here.
mod elf {
    pub const SECTIONS_AT: usize = 0x28;
    pub const SECTION_SIZE_AT: usize = 0x3a;
    pub const SECTIONS_LEN_AT: usize = 0x3c;
    pub const NAMES_INDEX_AT: usize = 0x3e;
    pub const NAME: usize = 0;
    pub const OFFSET: usize = 0x18;
    pub const SIZE: usize = 0x20;
}

/// The offset of the length in a header of `.BTF` or `.BTF.ext`.
const HEADER_LEN_AT: usize = 4;

fn number(bytes: &[u8], at: usize, len: usize) -> Result<usize, String> {
    let mut n = [0; 8];
    let from = bytes.get(at..at + len).ok_or("the object is cut")?;
    n[..len].copy_from_slice(from);
    Ok(u64::from_le_bytes(n) as usize)
}

fn word(bytes: &[u8], at: usize) -> Result<usize, String> {
    number(bytes, at, 4)
}

fn set_word(bytes: &mut [u8], at: usize, n: usize) -> Result<(), String> {
    let to = bytes.get_mut(at..at + 4).ok_or("the object is cut")?;
    to.copy_from_slice(&(n as u32).to_le_bytes());
    Ok(())
}

/// The offsets of a section and of its header.
fn section(object: &[u8], wanted: &[u8]) -> Result<(std::ops::Range<usize>, usize), String> {
    let table = number(object, elf::SECTIONS_AT, 8)?;
    let size = number(object, elf::SECTION_SIZE_AT, 2)?;
    let header = |i: usize| table + i * size;
    let names = number(object, header(number(object, elf::NAMES_INDEX_AT, 2)?) + elf::OFFSET, 8)?;
    for i in 0..number(object, elf::SECTIONS_LEN_AT, 2)? {
        let name = names + word(object, header(i) + elf::NAME)?;
        if object.get(name..).is_some_and(|n| n.starts_with(&[wanted, b"\0"].concat())) {
            let at = number(object, header(i) + elf::OFFSET, 8)?;
            return Ok((at..at + number(object, header(i) + elf::SIZE, 8)?, header(i)));
        }
    }
    Err(format!("the object has no section {}", wanted.escape_ascii()))
}

/// The places of the names in the types, which begin at `at`.
fn names_of_types(btf: &[u8], mut at: usize, end: usize) -> Result<Vec<usize>, String> {
    let mut names = Vec::new();
    while at < end {
        let info = word(btf, at + 4)?;
        let (kind, entries) = (info >> 24 & 0x1f, info & 0xffff);
        names.push(at);
        at += 12;
        // The bytes of an entry, how many there are, and whether each begins with a name.
        let (size, many, named) = match kind {
            // INT, VAR, DECL_TAG
            1 | 14 | 17 => (4, 1, false),
            // ARRAY
            3 => (12, 1, false),
            // STRUCT, UNION, ENUM64
            4 | 5 | 19 => (12, entries, true),
            // ENUM, FUNC_PROTO
            6 | 13 => (8, entries, true),
            // DATASEC
            15 => (12, entries, false),
            // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
            2 | 7..=12 | 16 | 18 => (0, 0, false),
            _ => return Err(format!("a type of the unknown kind {kind}")),
        };
        names.extend((0..many).filter(|_| named).map(|i| at + i * size));
        at += many * size;
    }
    Ok(names)
}

/// The places of the names in a part of `.BTF.ext` that has records for each section. `in_record`
/// are their places in a record.
fn names_of_part(
    ext: &[u8],
    at: usize,
    len: usize,
    in_record: &[usize],
) -> Result<Vec<usize>, String> {
    let mut names = Vec::new();
    if len == 0 {
        return Ok(names);
    }
    let record = word(ext, at)?;
    let (mut here, end) = (at + 4, at + len);
    while here < end {
        let records = word(ext, here + 4)?;
        names.push(here);
        here += 8;
        names.extend(
            (0..records).flat_map(|i| in_record.iter().map(move |at| here + i * record + at)),
        );
        here += records * record;
    }
    Ok(names)
}

/// Removes the lines, and the strings that only they use, from the object.
pub fn strip(object: &mut [u8]) -> Result<(), String> {
    let (btf_at, btf_header) = section(object, b".BTF")?;
    let (ext_at, _) = section(object, b".BTF.ext")?;

    let ext = &mut object[ext_at.clone()];
    let begin = word(ext, HEADER_LEN_AT)?;
    let part = |ext: &[u8], i: usize| {
        Ok::<_, String>((begin + word(ext, 8 + i * 8)?, word(ext, 12 + i * 8)?))
    };
    let (functions, relocations) = (part(ext, 0)?, part(ext, 2)?);
    // The part with the lines becomes empty.
    set_word(ext, 20, 0)?;
    let mut ext_names = names_of_part(ext, functions.0, functions.1, &[])?;
    // A relocation has the path to a member as a string.
    ext_names.extend(names_of_part(ext, relocations.0, relocations.1, &[8])?);

    let btf = &object[btf_at.clone()];
    let begin = word(btf, HEADER_LEN_AT)?;
    let types = begin + word(btf, 8)?;
    let btf_names = names_of_types(btf, types, types + word(btf, 12)?)?;
    let (strings, strings_len) = (begin + word(btf, 16)?, word(btf, 20)?);
    if strings + strings_len != btf.len() {
        return Err("the strings are not at the end of .BTF".into());
    }
    let old = btf[strings..].to_vec();

    let mut new = vec![0];
    let mut places = BTreeMap::from([(0, 0)]);
    let absolute = btf_names.iter().map(|n| btf_at.start + n);
    for at in absolute.chain(ext_names.iter().map(|n| ext_at.start + n)) {
        let was = word(object, at)?;
        let place = match places.get(&was) {
            Some(place) => *place,
            None => {
                let text = old.get(was..).ok_or("a name beyond the strings")?;
                let text =
                    text.split_inclusive(|b| *b == 0).next().ok_or("a name beyond the strings")?;
                places.insert(was, new.len());
                new.extend_from_slice(text);
                new.len() - text.len()
            }
        };
        set_word(object, at, place)?;
    }
    let at = btf_at.start + strings;
    object[at..at + new.len()].copy_from_slice(&new);
    set_word(object, btf_at.start + 20, new.len())?;
    set_word(object, btf_header + elf::SIZE, strings + new.len())
}
