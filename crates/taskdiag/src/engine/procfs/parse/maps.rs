//! /proc/PID/maps: mappings and their names.

use std::borrow::Cow;

use taskdiag_wire::device::device;
use taskdiag_wire::{DELETED, VMA_EXEC, VMA_READ, VMA_SHARED, VMA_WRITE, Vma, VmaKind, build};

use super::number;
use super::small::complete_lines;

/// The members of [`Vma`] that a line of maps does not have.
pub const NOT_IN_MAPS: u32 = super::bit(Vma::MEMBERS, "flags");

/// A line of maps: the whole record except for `name`, `flags` and `kind`.
#[derive(Clone, Copy, Debug)]
pub struct MapLine<'a> {
    /// The record, with [`kind`](Vma::kind) set.
    pub vma: Vma,
    /// The name as it is in the line; empty if there is none.
    pub text: &'a [u8],
}

/// The complete and well-formed lines of a maps file.
pub fn maps_lines(bytes: &[u8]) -> impl Iterator<Item = MapLine<'_>> {
    complete_lines(bytes).filter_map(map_line)
}

/// `7f40be1ef000-7f40be211000 rw-p 00000000 fe:00 247026                     /usr/bin/cat`
pub(super) fn map_line(line: &[u8]) -> Option<MapLine<'_>> {
    let mut c = Cursor { rest: line };
    let start = c.hex(b'-')?;
    let end = c.hex(b' ')?;
    let (perms, rest) = c.rest.split_first_chunk::<5>()?;
    if end < start || perms[4] != b' ' {
        return None;
    }
    c.rest = rest;
    let flag = |i: usize, letter, bit| if perms[i] == letter { bit } else { 0 };
    let offset_bytes = c.hex(b' ')?;
    let (major, minor) = (c.hex(b':')?, c.hex(b' ')?);
    let inode = c.decimal()?;
    let blanks = c.rest.iter().take_while(|b| **b == b' ').count();
    let text = &c.rest[blanks..];
    let dev = device(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    Some(MapLine {
        vma: build!(Vma {
            start,
            end,
            offset_bytes,
            inode,
            dev,
            perms: flag(0, b'r', VMA_READ)
                | flag(1, b'w', VMA_WRITE)
                | flag(2, b'x', VMA_EXEC)
                | flag(3, b's', VMA_SHARED),
            kind: kind(inode != 0 || dev != 0, text) as u32,
            ..Vma::default()
        }),
        text,
    })
}

/// The kind of a mapping, by its name. A name in brackets is not a path if the mapping has no file.
fn kind(has_file: bool, text: &[u8]) -> VmaKind {
    match text {
        _ if has_file => VmaKind::File,
        b"" => VmaKind::Anon,
        b"[heap]" => VmaKind::Heap,
        b"[stack]" => VmaKind::Stack,
        b"[vdso]" => VmaKind::Vdso,
        _ if text.starts_with(b"[anon:") => VmaKind::Named,
        _ if text.starts_with(b"[") => VmaKind::Special,
        _ => VmaKind::File,
    }
}

impl<'a> MapLine<'a> {
    /// The name as it goes on the wire, without the mark of a deleted file. `None` if the kind is
    /// enough. The kernel writes newlines as `\012` and does not mark a real backslash, so a name
    /// [with such a sequence](Self::is_ambiguous) may have been a different one.
    pub fn name(&self) -> Option<Cow<'a, [u8]>> {
        let text = match VmaKind::from_number(self.vma.kind)? {
            VmaKind::Anon | VmaKind::Heap | VmaKind::Stack | VmaKind::Vdso => return None,
            VmaKind::Named => {
                let inner = self.text.strip_prefix(b"[anon:")?;
                return Some(Cow::Borrowed(inner.strip_suffix(b"]").unwrap_or(inner)));
            }
            VmaKind::Special => return Some(Cow::Borrowed(self.text)),
            VmaKind::File if self.text.is_empty() => return None,
            _ => self.text.strip_suffix(DELETED).unwrap_or(self.text),
        };
        Some(newlines(text))
    }
    /// Whether the name has `\012`, which is a newline or these four characters.
    pub fn is_ambiguous(&self) -> bool {
        self.vma.kind == VmaKind::File as u32 && memchr::memmem::find(self.text, b"\\012").is_some()
    }
    /// Whether the name ends like that of a deleted file.
    pub fn is_deleted(&self) -> bool {
        self.vma.kind == VmaKind::File as u32 && self.text.ends_with(DELETED)
    }
}

/// A path with newlines in place of the escapes that maps has for them.
pub fn newlines(text: &[u8]) -> Cow<'_, [u8]> {
    let mut rest = text;
    let Some(mut at) = memchr::memmem::find(rest, b"\\012") else {
        return Cow::Borrowed(text);
    };
    let mut out = Vec::with_capacity(text.len());
    loop {
        out.extend_from_slice(&rest[..at]);
        out.push(b'\n');
        rest = &rest[at + 4..];
        match memchr::memmem::find(rest, b"\\012") {
            Some(next) => at = next,
            None => break,
        }
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// A hexadecimal number and the byte after it.
    #[inline]
    fn hex(&mut self, end: u8) -> Option<u64> {
        let mut n = 0u64;
        for (i, b) in self.rest.iter().enumerate() {
            let digit = match b {
                b'0'..=b'9' => b - b'0',
                b'a'..=b'f' => b - b'a' + 10,
                _ if *b == end && i > 0 => {
                    self.rest = &self.rest[i + 1..];
                    return Some(n);
                }
                _ => return None,
            };
            if i == 16 {
                return None;
            }
            n = n << 4 | u64::from(digit);
        }
        None
    }
    /// A decimal number, which may be the last of the line.
    fn decimal(&mut self) -> Option<u64> {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let n = number(&self.rest[..digits])?;
        self.rest = &self.rest[digits..];
        Some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> MapLine<'_> {
        map_line(line.as_bytes()).unwrap_or_else(|| panic!("{line}"))
    }
    fn name(line: &MapLine<'_>) -> Option<String> {
        line.name().map(|n| String::from_utf8(n.into_owned()).unwrap())
    }

    #[test]
    fn a_mapping_of_a_file_is_parsed() {
        let l = one(
            "7f40be1ef000-7f40be211000 rwxs 0000a000 103:1fe 247026      /usr/bin/a b (deleted)",
        );
        let v = l.vma;
        assert_eq!((v.start, v.end, v.offset_bytes), (0x7f40be1ef000, 0x7f40be211000, 0xa000));
        assert_eq!((v.inode, v.dev), (247026, 0x1fe & 0xff | 0x103 << 8 | 0x100 << 12));
        assert_eq!(v.perms, VMA_READ | VMA_WRITE | VMA_EXEC | VMA_SHARED);
        assert_eq!(v.kind, VmaKind::File as u32);
        assert_eq!(name(&l).as_deref(), Some("/usr/bin/a b"));
        assert!(l.is_deleted());
    }

    #[test]
    fn each_kind_of_mapping_is_recognised() {
        for (file, text, kind, want) in [
            ("00:00 0", "", VmaKind::Anon, None),
            ("00:00 0 ", "                      [heap]", VmaKind::Heap, None),
            ("00:00 0 ", " [stack]", VmaKind::Stack, None),
            ("00:00 0 ", " [vdso]", VmaKind::Vdso, None),
            ("00:00 0 ", " [vvar]", VmaKind::Special, Some("[vvar]")),
            ("00:00 0 ", " [anon:a b:c]", VmaKind::Named, Some("a b:c")),
            ("00:00 0 ", " [anon:", VmaKind::Named, Some("")),
            ("00:01 5 ", " [heap]", VmaKind::File, Some("[heap]")),
            ("00:01 5 ", " [anon_shmem:x]", VmaKind::File, Some("[anon_shmem:x]")),
            ("00:01 5 ", " /a\\012b\\012", VmaKind::File, Some("/a\nb\n")),
            ("00:01 5 ", " /a\\01", VmaKind::File, Some("/a\\01")),
            ("00:01 5", "", VmaKind::File, None),
            ("00:0f 5 ", " anon_inode:[x]", VmaKind::File, Some("anon_inode:[x]")),
        ] {
            let line = format!("1000-2000 r--p 00000000 {file}{text}");
            let l = one(&line);
            assert_eq!(VmaKind::from_number(l.vma.kind), Some(kind), "{line}");
            assert_eq!(name(&l).as_deref(), want, "{line}");
        }
        assert!(!one("1000-2000 r--p 00000000 00:00 0 [x (deleted)").is_deleted());
        assert_eq!(one("1000-2000 ---p 00000000 00:00 0").vma.perms, 0);
    }

    #[test]
    fn bad_lines_of_maps_are_refused() {
        for bad in [
            "",
            "1000",
            "1000-",
            "-1000 r--p 0 0:0 0",
            "2000-1000 r--p 0 0:0 0",
            "1000-2000 r--p0 0:0 0",
            "1000-2000 r-",
            "1000-2000 r--p 0 0:0 x",
            "1000-2000 r--p 0 0:0 ",
            "1000-2000 r--p 0 100000000:0 0",
            "10000000000000000-20000000000000000 r--p 0 0:0 0",
            "1000-2000 r--p 0 0:0 99999999999999999999",
        ] {
            assert!(map_line(bad.as_bytes()).is_none(), "{bad}");
        }
        let text = b"1000-2000 r--p 0 0:0 0\nbad\n3000-4000 r--p 0 0:0 0\n5000-6000 r--p 0 0:0 0";
        assert_eq!(maps_lines(text).count(), 2, "the last is cut");
    }
}
