//! Writes the lines of the default view of `maps` directly. The lines are the same as those of
//! [`text`](super::text), byte for byte. Unusual rows are left to that module.
//!
//! With values and cells, the command takes 6 % more CPU time for 30,000 mappings of one process,
//! and 4 to 6 % more for 70,000 mappings of all processes (2026-11-27, by turns, not a kept run).
//! Case k of the benchmark has less than that to spare.

use taskdiag::VmaKind;
use taskdiag::field::{self, Map, Part, Row, escape};
use taskdiag::files::PathName;

/// Writes lines.
#[derive(Debug)]
pub struct MapLines {
    /// Width of the pid, or `None` if it is not shown.
    pid: Option<usize>,
    /// The pid of the last line, and its text with the blanks around it.
    last_pid: (u32, Vec<u8>),
    /// The address of the last name, and its text with the end of the line.
    last_name: (*const u8, Vec<u8>),
}

/// Two hexadecimal digits for each byte.
const HEX: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = [field::HEX[i >> 4], field::HEX[i & 15]];
        i += 1;
    }
    table
};

/// The mode for each set of permissions, with the blanks around it.
const MODES: [&[u8; 7]; 16] = [
    b" ----- ", b" r---- ", b" -w--- ", b" rw--- ", b" --x-- ", b" r-x-- ", b" -wx-- ", b" rwx-- ",
    b" ---s- ", b" r--s- ", b" -w-s- ", b" rw-s- ", b" --xs- ", b" r-xs- ", b" -wxs- ", b" rwxs- ",
];

impl MapLines {
    /// Lines with a pid of this width, or without one.
    pub fn new(pid: Option<usize>) -> MapLines {
        MapLines { pid, last_pid: (0, Vec::new()), last_name: (std::ptr::null(), Vec::new()) }
    }
    /// Append the line of a mapping. Returns the size of the mapping in bytes, or `None` if the row
    /// is unusual and nothing was appended.
    #[inline]
    pub fn line(&mut self, out: &mut Vec<u8>, row: &Row<'_>) -> Option<u64> {
        let Part::Map(Map { vma, name, .. }) = &row.part else { return None };
        let (start, end) = (vma.start()?, vma.end()?);
        let (perms, kind) = (vma.perms()?, VmaKind::from_number(vma.kind()?)?);
        match (kind, name) {
            (VmaKind::Anon | VmaKind::Heap | VmaKind::Stack | VmaKind::Vdso, _) => {}
            (VmaKind::File | VmaKind::Special, Some(name)) if !name.cut => self.name(name),
            _ => return None,
        }
        // A size with more digits than the column counts as unusual, too.
        let (bytes, mode) = (end.checked_sub(start)?, *MODES.get(perms as usize)?);
        let kib = bytes / 1024;
        if kib > 9_999_999 {
            return None;
        }
        let mut head = [b' '; 24];
        for (i, byte) in start.to_be_bytes().into_iter().enumerate() {
            head[i * 2..i * 2 + 2].copy_from_slice(&HEX[usize::from(byte)]);
        }
        field::digits_at_end(&mut head, kib);
        if let Some(width) = self.pid {
            let pid = row.view.tgid();
            if pid != self.last_pid.0 || self.last_pid.1.is_empty() {
                self.last_pid = (pid, format!("{pid:>width$} ").into_bytes());
            }
            out.extend_from_slice(&self.last_pid.1);
        }
        out.extend_from_slice(&head);
        out.extend_from_slice(mode);
        out.extend_from_slice(match kind {
            VmaKind::Heap => b"[heap]\n",
            VmaKind::Stack => b"[stack]\n",
            VmaKind::Vdso => b"[vdso]\n",
            VmaKind::Anon => b"[anon]\n",
            _ => &self.last_name.1,
        });
        Some(bytes)
    }
    /// Prepare the text of a name. A name is in the stream once, so its address identifies it.
    fn name(&mut self, name: &PathName<'_>) {
        let (at, text) = &mut self.last_name;
        if *at == name.bytes.as_ptr() {
            return;
        }
        *at = name.bytes.as_ptr();
        text.clear();
        escape(text, name.bytes);
        if name.deleted {
            text.extend_from_slice(b" (deleted)");
        }
        text.push(b'\n');
    }
}
