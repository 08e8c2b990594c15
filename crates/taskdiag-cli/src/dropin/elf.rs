//! Reads the needed libraries and the symbol versions of an ELF file. Only 64-bit files in this
//! machine's byte order are supported, because the drop-in does not exist for others.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
/// The flag of the version that names the file itself.
const VER_FLG_BASE: u16 = 1;
/// The largest number of versions that are read.
const MOST_VERSIONS: u64 = 64;
/// The largest number of bytes of a table that are read.
const MOST: u64 = 1 << 20;

/// How a file is linked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// Does a dynamic linker load it?
    pub is_dynamic: bool,
    /// The libraries that it needs.
    pub needed: Vec<String>,
    /// The library's own name (soname).
    pub soname: Option<String>,
    /// The symbol versions that it defines.
    pub versions: Vec<String>,
}

/// How a file is linked. `None`: it is not an ELF file, but a script, for example, or it is for
/// another kind of machine.
///
/// # Errors
/// It cannot be read.
pub fn linked(path: &Path) -> io::Result<Option<Linked>> {
    let file = File::open(path)?;
    let head = part(&file, 0, 64)?;
    if head.len() < 64 {
        return Ok(None);
    }
    let native = if cfg!(target_endian = "little") { 1 } else { 2 };
    if head[..4] != *b"\x7fELF" || head[4] != 2 || head[5] != native {
        return Ok(None);
    }
    let (at, size, count) = (u64_at(&head, 32), u16_at(&head, 54), u16_at(&head, 56));
    if size != 56 {
        return Ok(None);
    }
    let table = part(&file, at, u64::from(count) * 56)?;
    let headers: Vec<Segment> = table.chunks_exact(56).map(Segment::new).collect();
    let mut found =
        Linked { is_dynamic: headers.iter().any(|s| s.kind == PT_INTERP), ..Linked::default() };
    let Some(dynamic) = headers.iter().find(|s| s.kind == PT_DYNAMIC) else {
        return Ok(Some(found));
    };
    let entries = part(&file, dynamic.offset, dynamic.size)?;
    let entries: Vec<(u64, u64)> =
        entries.chunks_exact(16).map(|e| (u64_at(e, 0), u64_at(e, 8))).collect();
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Ok(Some(found));
    };
    // The offset in the file of an address.
    let place = |at: u64| {
        let is_in =
            |s: &&Segment| s.kind == PT_LOAD && (s.address..s.address + s.size).contains(&at);
        headers.iter().find(is_in).map(|s| (at - s.address).saturating_add(s.offset))
    };
    let Some(offset) = place(*strings) else { return Ok(Some(found)) };
    let text = |at: u64| -> io::Result<String> {
        let bytes = part(&file, offset.saturating_add(at), 256)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    for (tag, value) in &entries {
        match *tag {
            DT_NEEDED => found.needed.push(text(*value)?),
            DT_SONAME => found.soname = Some(text(*value)?),
            0 => break,
            _ => {}
        }
    }
    let value = |tag: u64| entries.iter().find(|e| e.0 == tag).map(|e| e.1);
    let Some(mut at) = value(DT_VERDEF).and_then(place) else { return Ok(Some(found)) };
    for _ in 0..value(DT_VERDEFNUM).unwrap_or(0).min(MOST_VERSIONS) {
        let entry = part(&file, at, 20)?;
        let Some(next) = entry.get(16..20).map(|b| u32_at(b, 0)) else { break };
        let name = part(&file, at.saturating_add(u64::from(u32_at(&entry, 12))), 4)?;
        if u16_at(&entry, 2) & VER_FLG_BASE == 0 && name.len() == 4 {
            found.versions.push(text(u64::from(u32_at(&name, 0)))?);
        }
        at = at.saturating_add(u64::from(next));
    }
    Ok(Some(found))
}

/// A program header.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    fn new(bytes: &[u8]) -> Segment {
        let kind = u32::from_ne_bytes(bytes[..4].try_into().expect("4 bytes"));
        let (offset, address, size) = (u64_at(bytes, 8), u64_at(bytes, 16), u64_at(bytes, 32));
        // An address that does not fit into the address space does not exist.
        let size = size.min(u64::MAX - address);
        Segment { kind, offset, address, size }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

/// Bytes of a file; fewer at its end.
fn part(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len.min(MOST) as usize];
    let mut n = 0;
    while n < bytes.len() {
        match file.read_at(&mut bytes[n..], at.saturating_add(n as u64)) {
            Ok(0) => break,
            Ok(more) => n += more,
            // No file can have such an offset, so the file ends before it.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => break,
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(n);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_recognised_as_an_elf_file() {
        let own = linked(&std::env::current_exe().expect("it runs")).expect("it is read");
        let own = own.expect("it is an ELF file");
        assert!(own.is_dynamic);
        assert!(own.needed.iter().any(|n| n.starts_with("libc.so")), "{own:?}");
        assert_eq!((own.soname, own.versions), (None, Vec::new()));
    }

    #[test]
    fn versions_of_the_c_library_are_read_from_its_file() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
        let path =
            maps.lines().find_map(|l| l.split_once('/').filter(|(_, p)| p.ends_with("libc.so.6")));
        let libc = linked(Path::new(&format!("/{}", path.expect("this test uses it").1)));
        let libc = libc.expect("it is read").expect("it is an ELF file");
        assert_eq!(libc.soname.as_deref(), Some("libc.so.6"));
        assert!(libc.versions.iter().any(|v| v == "GLIBC_2.34"), "{:?}", libc.versions);
        assert!(!libc.versions.iter().any(|v| v == "libc.so.6"), "{:?}", libc.versions);
    }

    #[test]
    fn scripts_and_foreign_files_are_not_elf() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        for text in [&b"#!/bin/sh\n"[..], b"", &[0x7f, b'E', b'L', b'F'], &[0xff; 200]] {
            std::fs::write(&path, text).expect("written");
            assert_eq!(linked(&path).expect("it is read"), None);
        }
        assert!(linked(&dir.path().join("none")).is_err());
    }

    #[test]
    fn damaged_headers_are_no_fault() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        let good = std::fs::read(std::env::current_exe().expect("it runs")).expect("it is read");
        let mut bytes = good[..good.len().min(1 << 16)].to_vec();
        // Each byte of the head and the program headers, one after the other.
        for at in 0..600 {
            let was = bytes[at];
            bytes[at] = 0xff;
            std::fs::write(&path, &bytes).expect("written");
            let _ = linked(&path).expect("it is read");
            bytes[at] = was;
        }
    }
}
