//! Text as the real library makes it from what the kernel says: without bytes that a terminal would not show.

use std::ffi::CStr;

/// The size of the real library's buffers (`MAX_BUFSZ`).
pub const BUFFER: usize = 128 << 10;
/// The size of its buffer for a command name.
pub const COMM: usize = 64;

/// How bytes that are no text are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape {
    /// Is the character set UTF-8?
    pub utf8: bool,
    /// As in 4.0.2 and 4.0.3: from the first byte that is no UTF-8 on, all bytes count as ASCII. Later versions replace
    /// just this byte.
    pub gives_up: bool,
}

impl Escape {
    /// For the locale of this process.
    pub fn of_locale(gives_up: bool) -> Escape {
        // SAFETY: it returns a string that stays valid at least until the next call of setlocale.
        let name = unsafe {
            let name = libc::nl_langinfo(libc::CODESET);
            if name.is_null() { c"" } else { CStr::from_ptr(name) }
        };
        Escape { utf8: name.to_bytes().eq_ignore_ascii_case(b"UTF-8"), gives_up }
    }

    /// Replaces in place what cannot be shown (`escape_str`).
    pub fn replace(self, text: &mut [u8]) {
        if !self.utf8 {
            return ascii(text);
        }
        let mut i = 0;
        while i < text.len() {
            // Nearly all text is this, and many bytes are looked at together.
            if text[i..]
                .first_chunk::<32>()
                .is_some_and(|c| c.iter().fold(true, |all, b| all & is_plain(*b)))
            {
                i += 32;
                continue;
            }
            let n = match text[i] {
                0..=0x7f => 1,
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 0,
            };
            if n == 0 || i + n > text.len() {
                if self.gives_up {
                    return ascii(&mut text[i..]);
                }
                text[i] = b'?';
                i += 1;
                continue;
            }
            let is_control = text[i] == 0xc2 && (0x80..=0x9f).contains(&text[i + 1]);
            let is_cut = text[i + 1..i + n].iter().any(|b| !(0x80..=0xbf).contains(b));
            if !self.gives_up && (is_control || is_cut) {
                text[i] = b'?';
                i += 1;
                continue;
            }
            if text[i] < 0x20 || text[i] == 0x7f {
                text[i] = b'?';
            }
            i += n;
        }
    }

    /// Appends a string up to its first NUL, with at most `room - 1` bytes, as `escape_str` does.
    pub fn append(self, out: &mut Vec<u8>, text: &[u8], room: usize) {
        let text = &text[..until_nul(text).min(room.saturating_sub(1))];
        let at = out.len();
        out.extend_from_slice(text);
        self.replace(&mut out[at..]);
    }
}

/// Is it printable ASCII?
fn is_plain(b: u8) -> bool {
    (0x20..0x7f).contains(&b)
}

/// Everything that is not printable ASCII (`esc_all`).
fn ascii(text: &mut [u8]) {
    for b in text {
        match *b {
            0..0x20 | 0x7f => *b = b'.',
            0x80.. => *b = b'?',
            _ => {}
        }
    }
}

/// The length of a C string.
pub fn until_nul(text: &[u8]) -> usize {
    CStr::from_bytes_until_nul(text).map_or(text.len(), |s| s.to_bytes().len())
}

/// A file as one string: `separator` between its parts (`read_unvectored`). Returns how many bytes of the file it had
/// room for, which includes NULs at the end.
pub fn in_one(out: &mut Vec<u8>, file: &[u8], separator: u8) -> usize {
    out.clear();
    let n = if file.len() < BUFFER { file.len() } else { BUFFER - 1 };
    out.extend_from_slice(&file[..n]);
    let end = out.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    for b in &mut out[..end] {
        // Without a branch, many bytes are looked at together.
        *b = if matches!(*b, b'\n' | 0) { separator } else { *b };
    }
    if out.last() == Some(&b' ') {
        out[n - 1] = 0;
    }
    n
}

/// A file as text in which each part ends with NUL (`file2strvec`). The file is not empty.
pub fn in_parts(out: &mut Vec<u8>, file: &[u8]) {
    out.clear();
    out.extend_from_slice(file);
    if out.last() != Some(&0) {
        out.push(0);
    }
    for b in out {
        if *b == b'\n' {
            *b = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Escape = Escape { utf8: true, gives_up: true };
    const NEW: Escape = Escape { utf8: true, gives_up: false };
    const PLAIN: Escape = Escape { utf8: false, gives_up: false };

    fn of(e: Escape, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        e.append(&mut out, text, BUFFER);
        out
    }

    #[test]
    fn bytes_that_are_no_text() {
        for e in [OLD, NEW] {
            assert_eq!(of(e, b"a\tb\x7f"), b"a?b?");
            assert_eq!(of(e, "grün €".as_bytes()), "grün €".as_bytes());
        }
        assert_eq!(of(PLAIN, "a\tü".as_bytes()), b"a.??");
        // The rest counts as ASCII from the odd byte on, and what stood before stays.
        assert_eq!(of(OLD, b"\xc3\xbc \xff \xc3\xbc\t"), b"\xc3\xbc ? ??.");
        assert_eq!(of(NEW, b"\xc3\xbc \xff \xc3\xbc\t"), b"\xc3\xbc ? \xc3\xbc?");
        // Control characters of two bytes, and characters that are cut.
        assert_eq!(of(OLD, b"\xc2\x85"), b"\xc2\x85");
        assert_eq!(of(NEW, b"\xc2\x85"), b"??");
        assert_eq!(of(NEW, b"\xe2\x82"), b"??");
        assert_eq!(of(OLD, b"\xe2\x82"), b"??");
        assert_eq!(of(NEW, b"\xc3a"), b"?a");
        // At each place of a long text.
        for at in 0..100 {
            let mut text = vec![b'x'; 100];
            text[at] = 1;
            let mut shown = vec![b'x'; 100];
            shown[at] = b'?';
            assert_eq!((of(OLD, &text), of(NEW, &text)), (shown.clone(), shown));
        }
    }

    #[test]
    fn files_in_one_string() {
        let one = |file: &[u8], sep| {
            let mut out = Vec::new();
            let n = in_one(&mut out, file, sep);
            (n, out)
        };
        assert_eq!(one(b"a\0b\0", b' '), (4, b"a b\0".to_vec()));
        assert_eq!(one(b"title   ", b' '), (8, b"title  \0".to_vec()));
        assert_eq!(one(b"\0\0", b' '), (2, b"\0\0".to_vec()));
        assert_eq!(one(b"a\nb", b' '), (3, b"a b".to_vec()));
        assert_eq!(one(&vec![b'x'; BUFFER + 5], b' ').0, BUFFER - 1);
    }

    #[test]
    fn files_in_parts() {
        let parts = |file: &[u8]| {
            let mut out = Vec::new();
            in_parts(&mut out, file);
            out
        };
        assert_eq!(parts(b"a\0b\0"), b"a\0b\0");
        assert_eq!(parts(b"0::/x\n"), b"0::/x\0\0");
    }
}
