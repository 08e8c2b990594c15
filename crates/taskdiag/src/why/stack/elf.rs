//! Reads the tables of an ELF file: where callers continue, and the names of functions.
//!
//! Anybody can make such a file. So every offset and length in it is checked, all that is read has
//! a limit, and nothing is mapped.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Function, StackEnd};

/// The largest table that is read.
const TABLE: u64 = 64 << 20;
/// The largest numbers of segments and sections. The linkers make a few dozen.
const SEGMENTS: u16 = 256;
const SECTIONS: u16 = 4096;
/// The longest name of a function.
const NAME: usize = 4096;
/// Without an index, the entries of a table are read one after another, so it must be small. Only
/// the vDSO and odd programs have none.
const UNINDEXED: usize = 1 << 20;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0;

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    ident: [u8; 16],
    kind: U16,
    machine: U16,
    version: U32,
    entry: U64,
    segments_at: U64,
    sections_at: U64,
    flags: U32,
    size: U16,
    segment_size: U16,
    segments: U16,
    section_size: U16,
    sections: U16,
    names: U16,
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SegmentHeader {
    kind: U32,
    flags: U32,
    offset: U64,
    address: U64,
    physical: U64,
    file_bytes: U64,
    memory_bytes: U64,
    alignment: U64,
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SectionHeader {
    name: U32,
    kind: U32,
    flags: U64,
    address: U64,
    offset: U64,
    bytes: U64,
    link: U32,
    info: U32,
    alignment: U64,
    entry_bytes: U64,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct SymbolEntry {
    name: U32,
    info: u8,
    other: u8,
    section: U16,
    value: U64,
    bytes: U64,
}

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u64 = 1 << 11;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// The bytes of a file.
pub(super) enum Source {
    /// A file, which is read in pieces.
    File(File),
    /// The memory of a process that has the whole file.
    Memory(Vec<u8>),
}

impl Source {
    /// These bytes. `left` is how many more may be read for an answer.
    fn bytes(&self, offset: u64, len: u64, left: &mut u64) -> Result<Vec<u8>, StackEnd> {
        if len > TABLE {
            return Err(StackEnd::BadFile);
        }
        *left = left.checked_sub(len).ok_or(StackEnd::NotLookedAt)?;
        let end = offset.checked_add(len).ok_or(StackEnd::BadFile)?;
        match self {
            Source::Memory(all) => {
                let (from, to) = (usize::try_from(offset), usize::try_from(end));
                let range = from.ok().zip(to.ok()).ok_or(StackEnd::BadFile)?;
                Ok(all.get(range.0..range.1).ok_or(StackEnd::BadFile)?.to_vec())
            }
            Source::File(file) => {
                // A file with a hole at its end can claim any size, and has no memory before it is
                // read.
                if end > file.metadata().map_err(|_| StackEnd::BadFile)?.len() {
                    return Err(StackEnd::BadFile);
                }
                let mut bytes = vec![0; usize::try_from(len).map_err(|_| StackEnd::BadFile)?];
                file.read_exact_at(&mut bytes, offset).map_err(|_| StackEnd::BadFile)?;
                Ok(bytes)
            }
        }
    }
}

/// A part of the file that is in memory while the program runs.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    address: u64,
    bytes: u64,
}

/// A table that is in memory while the program runs.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    bytes: u64,
    name: u32,
    /// The smallest of several at the same address counts.
    rank: u8,
}

/// The tables of a file.
#[derive(Debug, Default)]
pub(super) struct Elf {
    /// The parts with code.
    code: Vec<Segment>,
    /// `.eh_frame`.
    pub(super) frames: Table,
    /// `.eh_frame_hdr`; empty if there is none.
    pub(super) index: Table,
    /// Sorted by address and rank.
    symbols: Vec<Symbol>,
    names: Vec<u8>,
}

impl Elf {
    /// Reads a file. `left` is how many bytes may be read for the whole answer.
    pub(super) fn read(source: &Source, left: &mut u64) -> Result<Elf, StackEnd> {
        let bytes = source.bytes(0, size_of::<Header>() as u64, left)?;
        let header = Header::ref_from_bytes(&bytes).map_err(|_| StackEnd::BadFile)?;
        let [0x7f, b'E', b'L', b'F', class, order, ..] = header.ident else {
            return Err(StackEnd::BadFile);
        };
        if class != 2 || order != 1 || header.machine.get() != MACHINE {
            return Err(StackEnd::OtherMachine);
        }
        let mut elf = Elf { code: segments(source, header, left)?, ..Elf::default() };
        let sections = sections(source, header, left)?;
        let has_bytes =
            |s: &&SectionHeader| s.kind.get() != SHT_NOBITS && s.flags.get() & SHF_COMPRESSED == 0;
        let all = || sections.iter().filter(has_bytes);
        let names = match sections.get(usize::from(header.names.get())) {
            Some(names) => source.bytes(names.offset.get(), names.bytes.get(), left)?,
            None => Vec::new(),
        };
        for section in all() {
            let name = text(&names, section.name.get());
            let into = match name {
                Some(b".eh_frame") => &mut elf.frames,
                Some(b".eh_frame_hdr") => &mut elf.index,
                _ => continue,
            };
            let bytes = source.bytes(section.offset.get(), section.bytes.get(), left)?;
            *into = Table { address: section.address.get(), bytes };
        }
        if elf.index.bytes.is_empty() && elf.frames.bytes.len() > UNINDEXED {
            elf.frames = Table::default();
        }
        // The symbols of a program have all that the dynamic ones have, and functions that no other
        // file may call. They may be stripped.
        let of_kind = |kind| all().find(|s| s.kind.get() == kind && s.bytes.get() > 0);
        if let Some(symbols) = of_kind(SHT_SYMTAB).or_else(|| of_kind(SHT_DYNSYM)) {
            let names = sections.get(symbols.link.get() as usize).filter(has_bytes);
            let mut read = |section: &SectionHeader| {
                source.bytes(section.offset.get(), section.bytes.get(), left)
            };
            // Callers can be found without names, so names that cannot be read are left out.
            match names.map(|names| Ok::<_, StackEnd>((read(names)?, read(symbols)?))) {
                Some(Ok((names, bytes))) => {
                    elf.symbols = symbols_of(&bytes, &names);
                    elf.names = names;
                }
                None | Some(Err(StackEnd::BadFile)) => {}
                Some(Err(end)) => return Err(end),
            }
        }
        Ok(elf)
    }

    /// The address, as the file counts, of this place in the file, if it is code.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let part = self.code.iter().find(|s| {
            offset.checked_sub(s.offset).is_some_and(|from_start| from_start < s.bytes)
        })?;
        part.address.checked_add(offset - part.offset)
    }

    /// The function that this address is in.
    pub(super) fn function(&self, address: u64) -> Option<Function> {
        let end = self.symbols.partition_point(|s| s.address <= address);
        let nearest = self.symbols[..end].last()?.address;
        let begin = self.symbols[..end].partition_point(|s| s.address < nearest);
        let offset_bytes = address - nearest;
        let symbol = self.symbols[begin..end].iter().find(|s| offset_bytes < s.bytes)?;
        let name = text(&self.names, symbol.name)?.to_vec();
        Some(Function { name, offset_bytes, size_bytes: symbol.bytes })
    }
}

fn segments(source: &Source, header: &Header, left: &mut u64) -> Result<Vec<Segment>, StackEnd> {
    let n = header.segments.get();
    if usize::from(header.segment_size.get()) != size_of::<SegmentHeader>() || n > SEGMENTS {
        return Err(StackEnd::BadFile);
    }
    let len = u64::from(n) * size_of::<SegmentHeader>() as u64;
    let bytes = source.bytes(header.segments_at.get(), len, left)?;
    let all = <[SegmentHeader]>::ref_from_bytes(&bytes).map_err(|_| StackEnd::BadFile)?;
    let is_code = |s: &&SegmentHeader| s.kind.get() == PT_LOAD && s.flags.get() & PF_X != 0;
    let segment = |s: &SegmentHeader| Segment {
        offset: s.offset.get(),
        address: s.address.get(),
        bytes: s.file_bytes.get(),
    };
    Ok(all.iter().filter(is_code).map(segment).collect())
}

fn sections(
    source: &Source,
    header: &Header,
    left: &mut u64,
) -> Result<Vec<SectionHeader>, StackEnd> {
    let n = header.sections.get();
    if n == 0 {
        return Ok(Vec::new());
    }
    if usize::from(header.section_size.get()) != size_of::<SectionHeader>() || n > SECTIONS {
        return Err(StackEnd::BadFile);
    }
    let len = u64::from(n) * size_of::<SectionHeader>() as u64;
    let bytes = source.bytes(header.sections_at.get(), len, left)?;
    let all = <[SectionHeader]>::ref_from_bytes(&bytes).map_err(|_| StackEnd::BadFile)?;
    Ok(all.to_vec())
}

/// The functions of a table of symbols.
fn symbols_of(bytes: &[u8], names: &[u8]) -> Vec<Symbol> {
    let whole = bytes.len() - bytes.len() % size_of::<SymbolEntry>();
    let entries = <[SymbolEntry]>::ref_from_bytes(&bytes[..whole]).unwrap_or_default();
    let is_function = |s: &&SymbolEntry| {
        let is_code = matches!(s.info & 15, STT_FUNC | STT_GNU_IFUNC);
        is_code && s.section.get() != 0 && s.bytes.get() > 0
    };
    let symbol = |s: &SymbolEntry| Symbol {
        address: s.value.get(),
        bytes: s.bytes.get(),
        name: s.name.get(),
        rank: rank(s, names),
    };
    let mut all: Vec<Symbol> = entries.iter().filter(is_function).map(symbol).collect();
    all.sort_unstable_by_key(|s| (s.address, s.rank, s.name));
    all
}

/// The C library has `read`, `__read` and `__libc_read` at one address. People know the one without
/// underscores.
fn rank(symbol: &SymbolEntry, names: &[u8]) -> u8 {
    let at = symbol.name.get() as usize;
    let begins_with = |n: usize| names.get(at.saturating_add(n)) == Some(&b'_');
    let underscores = (0..3).take_while(|n| begins_with(*n)).count() as u8;
    let is_local = symbol.info >> 4 == 0;
    underscores << 1 | u8::from(is_local)
}

/// The text that begins here.
fn text(bytes: &[u8], at: u32) -> Option<&[u8]> {
    let rest = bytes.get(at as usize..)?;
    let end = rest.iter().take(NAME).position(|b| *b == 0)?;
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::unwind::{HERE, Memory, Registers, caller};
    use super::*;
    use crate::engine::procfs::parse;

    const MUCH: u64 = 1 << 30;

    /// A whole file of this machine: the code that the kernel puts into each process.
    fn vdso() -> Vec<u8> {
        let maps = std::fs::read("/proc/self/maps").expect("there is one");
        let vdso = parse::maps_lines(&maps).find(|m| m.text == b"[vdso]").expect("there is one");
        let len = (vdso.vma.end - vdso.vma.start) as usize;
        // SAFETY: the kernel maps these pages for as long as the process lives.
        unsafe { std::slice::from_raw_parts(vdso.vma.start as *const u8, len) }.to_vec()
    }

    /// Every address has the same word.
    struct Same(u64);

    impl Memory for Same {
        fn word(&mut self, _: u64) -> Result<u64, StackEnd> {
            Ok(self.0)
        }
    }

    /// Reads a file, and looks for a name and a caller at many addresses. Returns how many of these
    /// were found.
    fn try_all(bytes: Vec<u8>, seed: u64) -> [usize; 2] {
        let len = bytes.len() as u64;
        let Ok(elf) = Elf::read(&Source::Memory(bytes), &mut MUCH.clone()) else { return [0; 2] };
        let mut found = [0; 2];
        for address in (0..len).step_by(61).filter_map(|offset| elf.address(offset)) {
            found[0] += usize::from(elf.function(address).is_some());
            let at = Registers::new(&HERE, address, 0x8000, Some(seed), Some(seed));
            let next = caller(&HERE, &elf, 0, &at, &mut Same(seed));
            found[1] += usize::from(next.is_ok());
        }
        found
    }

    #[test]
    fn the_code_of_the_kernel_has_names_and_callers() {
        let [names, callers] = try_all(vdso(), 0x1238);
        assert!(names > 3 && callers > 3, "{names} {callers}");
    }

    #[test]
    fn a_file_that_is_cut_off_is_no_danger() {
        let whole = vdso();
        for len in (0..whole.len()).step_by(37) {
            try_all(whole[..len].to_vec(), 0x1238);
        }
    }

    #[test]
    fn a_file_with_wrong_bytes_is_no_danger() {
        let whole = vdso();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut read = 0;
        for round in 0..3000 {
            let mut bytes = whole.clone();
            // Half of them are in the header and near it, where offsets and lengths are.
            for n in 0..1 + round % 8 {
                let within = if n % 2 == 0 { bytes.len() as u64 } else { 0x200 };
                let at = (next() % within) as usize;
                bytes[at] = next() as u8;
            }
            let elf = Elf::read(&Source::Memory(bytes.clone()), &mut MUCH.clone());
            read += usize::from(elf.is_ok());
            try_all(bytes, next());
        }
        // Otherwise nothing but the header was tried.
        assert!(read > 500, "{read}");
    }

    /// A header that claims sections of a terabyte, in a file with a hole of that size.
    #[test]
    fn a_table_that_claims_to_be_huge_takes_no_memory() {
        let mut bytes = vdso();
        let header = Header::ref_from_prefix(&bytes).expect("a header").0;
        let (at, n) = (header.sections_at.get() as usize, usize::from(header.sections.get()));
        let whole = Elf::read(&Source::Memory(bytes.clone()), &mut MUCH.clone()).expect("good");
        assert!(!whole.symbols.is_empty());
        for section in 0..n {
            // The length in a section header.
            let at = at + section * size_of::<SectionHeader>() + 32;
            bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        }
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        file.set_len(1 << 41).expect("a hole");
        let mut left = MUCH;
        let found = Elf::read(&Source::File(file), &mut left);
        assert_eq!(found.err(), Some(StackEnd::BadFile));
        assert!(MUCH - left < 1 << 20, "{left}");
    }

    #[test]
    fn a_file_without_usable_names_still_has_callers() {
        let mut bytes = vdso();
        let header = Header::ref_from_prefix(&bytes).expect("a header").0;
        let (at, n) = (header.sections_at.get() as usize, usize::from(header.sections.get()));
        for section in 0..n {
            let at = at + section * size_of::<SectionHeader>();
            if bytes[at + 4..at + 8] == SHT_DYNSYM.to_le_bytes() {
                bytes[at + 32..at + 40].copy_from_slice(&(TABLE + 1).to_le_bytes());
            }
        }
        let [names, callers] = try_all(bytes, 0x1238);
        assert!(names == 0 && callers > 3, "{names} {callers}");
    }

    #[test]
    fn a_program_of_another_machine_is_not_read() {
        // A class of 32 bits, and a processor that no kernel has.
        for (at, byte) in [(4, 1), (18, 0xff)] {
            let mut bytes = vdso();
            bytes[at] = byte;
            let found = Elf::read(&Source::Memory(bytes), &mut MUCH.clone());
            assert_eq!(found.err(), Some(StackEnd::OtherMachine));
        }
    }

    #[test]
    fn an_answer_reads_no_more_than_its_share() {
        let mut left = 100;
        let found = Elf::read(&Source::Memory(vdso()), &mut left);
        assert_eq!(found.err(), Some(StackEnd::NotLookedAt));
    }

    #[test]
    fn the_plainest_of_several_names_counts() {
        let names = b"\0__read\0read\0_io\0";
        let entry = |name: u32, value: u64| SymbolEntry {
            name: name.into(),
            info: 1 << 4 | STT_FUNC,
            other: 0,
            section: 1.into(),
            value: value.into(),
            bytes: 16.into(),
        };
        let entries = [entry(1, 0x100), entry(8, 0x100), entry(13, 0x80)];
        let bytes = entries[..].as_bytes();
        let elf =
            Elf { symbols: symbols_of(bytes, names), names: names.to_vec(), ..Elf::default() };
        let name = |address| elf.function(address).map(|f| (f.name, f.offset_bytes));
        assert_eq!(name(0x104), Some((b"read".to_vec(), 4)));
        assert_eq!(name(0x8f), Some((b"_io".to_vec(), 15)));
        // Between functions there is none.
        assert_eq!((name(0x90), name(0x110), name(0x7f)), (None, None, None));
    }
}
