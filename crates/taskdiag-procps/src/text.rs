//! Converts text of the kernel as the real library does: without bytes that a terminal would not
//! show.

use std::ffi::{CStr, c_int};

use crate::real::Version;

/// The size of the real library's buffers (`MAX_BUFSZ`).
pub const BUFFER: usize = 128 << 10;
/// The size of its buffer for a command name.
pub const COMM: usize = 64;

/// How invalid bytes are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape {
    /// Is the character set UTF-8?
    pub utf8: bool,
    /// The version of the rules.
    pub rules: Rules,
}

/// The differences between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// After the first invalid UTF-8 byte, every byte is treated as ASCII.
    GiveUp,
    /// Each invalid byte is replaced. Control characters of two bytes count as invalid.
    EachByte,
    /// As `EachByte`, but surrogates, overlong characters and characters for private use are
    /// invalid, too. In other character sets, the locale decides what can be printed.
    Strict,
}

impl Rules {
    fn of(version: Version) -> Rules {
        match version {
            Version::V402 => Rules::GiveUp,
            Version::V404 => Rules::EachByte,
            Version::V405 | Version::V406 | Version::V407 => Rules::Strict,
        }
    }
}

impl Escape {
    /// For the locale of this process.
    pub fn of_locale(version: Version) -> Escape {
        // SAFETY: it returns a string that stays valid at least until the next call of setlocale.
        let name = unsafe {
            let name = libc::nl_langinfo(libc::CODESET);
            if name.is_null() { c"" } else { CStr::from_ptr(name) }
        };
        let utf8 = name.to_bytes().eq_ignore_ascii_case(b"UTF-8");
        Escape { utf8, rules: Rules::of(version) }
    }

    /// Replaces unprintable bytes in place (`escape_str`).
    pub fn replace(self, text: &mut [u8]) {
        match self.rules {
            Rules::Strict if !self.utf8 => return printable(text),
            _ if !self.utf8 => return ascii(text),
            _ => {}
        }
        let mut i = 0;
        while i < text.len() {
            // Nearly all text is printable ASCII, and many bytes are checked together.
            if text[i..]
                .first_chunk::<32>()
                .is_some_and(|c| c.iter().fold(true, |all, b| all & is_plain(*b)))
            {
                i += 32;
                continue;
            }
            let n = self.character(&text[i..]);
            if n == 0 && self.rules == Rules::GiveUp {
                return ascii(&mut text[i..]);
            }
            if n == 0 || text[i] < 0x20 || text[i] == 0x7f {
                text[i] = b'?';
            }
            i += n.max(1);
        }
    }

    /// The length of the first character of a text in bytes. 0: it is not printable.
    fn character(self, text: &[u8]) -> usize {
        let n = match text[0] {
            0..=0x7f => return 1,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        let Some(bytes) = text.get(..n) else { return 0 };
        let is_shown = match self.rules {
            Rules::GiveUp => true,
            Rules::EachByte => bytes[1..].iter().all(|b| is_continuation(*b)) && !is_control(bytes),
            Rules::Strict => {
                std::str::from_utf8(bytes).is_ok_and(|s| !s.contains(is_private))
                    && !is_control(bytes)
            }
        };
        if is_shown { n } else { 0 }
    }

    /// Appends a string up to its first NUL, with at most `room - 1` bytes, as `escape_str` does.
    pub fn append(self, out: &mut Vec<u8>, text: &[u8], room: usize) {
        let text = &text[..until_nul(text).min(room.saturating_sub(1))];
        let at = out.len();
        out.extend_from_slice(text);
        self.replace(&mut out[at..]);
    }
}

/// Is it a later byte of a character?
fn is_continuation(b: u8) -> bool {
    (0x80..=0xbf).contains(&b)
}

/// Is it a control character of two bytes?
fn is_control(bytes: &[u8]) -> bool {
    bytes[0] == 0xc2 && bytes[1] <= 0x9f
}

/// Is it a character for private use?
fn is_private(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}' | '\u{100000}'..='\u{10fffd}')
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

/// Everything that the locale cannot print (`esc_all` since 4.0.5).
fn printable(text: &mut [u8]) {
    for b in text {
        // SAFETY: it looks at a table of the locale, which has an entry for each byte.
        if *b != 0 && unsafe { libc::isprint(c_int::from(*b)) } == 0 {
            *b = b'?';
        }
    }
}

/// The length of a C string.
pub fn until_nul(text: &[u8]) -> usize {
    CStr::from_bytes_until_nul(text).map_or(text.len(), |s| s.to_bytes().len())
}

/// A file as one string: `separator` between its parts (`read_unvectored`). Returns how many bytes
/// of the file it had room for, which includes NULs at the end.
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

/// A file as text in which each part ends with NUL (`file2strvec`). The file is not empty, and the
/// list has room for one byte more.
pub fn in_parts(file: &mut Vec<u8>) {
    if file.last() != Some(&0) {
        file.push(0);
    }
    for b in file {
        if *b == b'\n' {
            *b = 0;
        }
    }
}

/// Appends the parts of a file with odd bytes replaced, and with each part cut where the real
/// library's buffer ends.
pub fn in_escaped_parts(out: &mut Vec<u8>, file: &[u8], escape: Escape) {
    out.clear();
    for part in file.strip_suffix(&[0]).unwrap_or(file).split(|b| matches!(*b, 0 | b'\n')) {
        escape.append(out, part, BUFFER);
        out.push(0);
    }
}

/// The id of a Docker container in the text of a cgroup file: 64 digits after the first `/docker-`,
/// or else `/docker/`.
pub fn docker_id(cgroups: &[u8]) -> Option<&[u8]> {
    let after = |mark: &[u8]| {
        let at = cgroups.windows(mark.len()).position(|w| w == mark)?;
        Some(&cgroups[at + mark.len()..])
    };
    let rest = after(b"/docker-").or_else(|| after(b"/docker/"))?;
    let is_digit = |b: &&u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let digits = rest.iter().take_while(is_digit).count();
    (digits == 64).then(|| &rest[..64])
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Escape = Escape { utf8: true, rules: Rules::GiveUp };
    const NEW: Escape = Escape { utf8: true, rules: Rules::EachByte };
    const STRICT: Escape = Escape { utf8: true, rules: Rules::Strict };
    const PLAIN: Escape = Escape { utf8: false, rules: Rules::EachByte };
    const PLAIN_STRICT: Escape = Escape { utf8: false, rules: Rules::Strict };

    fn of(e: Escape, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        e.append(&mut out, text, BUFFER);
        out
    }

    #[test]
    fn bytes_that_are_not_text_are_escaped_as_in_procps() {
        for e in [OLD, NEW, STRICT] {
            assert_eq!(of(e, b"a\tb\x7f"), b"a?b?");
            assert_eq!(of(e, "grün €".as_bytes()), "grün €".as_bytes());
        }
        assert_eq!(of(PLAIN, "a\tü".as_bytes()), b"a.??");
        // The tests run in the locale C.
        assert_eq!(of(PLAIN_STRICT, "a\tü".as_bytes()), b"a???");
        // From the odd byte on, the rest counts as ASCII. The text before it stays.
        assert_eq!(of(OLD, b"\xc3\xbc \xff \xc3\xbc\t"), b"\xc3\xbc ? ??.");
        assert_eq!(of(NEW, b"\xc3\xbc \xff \xc3\xbc\t"), b"\xc3\xbc ? \xc3\xbc?");
        assert_eq!(of(STRICT, b"\xc3\xbc \xff \xc3\xbc\t"), b"\xc3\xbc ? \xc3\xbc?");
        // A surrogate, a character that is longer than need be, and characters for private use,
        // with their neighbours.
        for (text, shown) in [
            (&b"\xed\xa0\x80"[..], &b"???"[..]),
            (b"\xed\x9f\xbf", b"\xed\x9f\xbf"),
            (b"\xe0\x80\xaf", b"???"),
            (b"\xf4\x90\x80\x80", b"????"),
            (b"\xee\x80\x80", b"???"),
            (b"\xef\xa3\xbf", b"???"),
            (b"\xef\xa4\x80", b"\xef\xa4\x80"),
            (b"\xf3\xb0\x80\x80", b"????"),
            (b"\xf3\xbf\xbf\xbe", b"\xf3\xbf\xbf\xbe"),
            (b"\xf4\x8f\xbf\xbd", b"????"),
        ] {
            assert_eq!(of(STRICT, text), shown);
        }
        assert_eq!(of(NEW, b"\xed\xa0\x80\xee\x80\x80"), b"\xed\xa0\x80\xee\x80\x80");
        // Control characters of two bytes, and characters that are cut.
        assert_eq!(
            (of(STRICT, b"\xc2\x85"), of(STRICT, b"\xe2\x82")),
            (b"??".to_vec(), b"??".to_vec())
        );
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
            for e in [OLD, NEW, STRICT] {
                assert_eq!(of(e, &text), shown);
            }
        }
    }

    #[test]
    fn a_file_becomes_one_string_as_in_procps() {
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
    fn each_part_of_a_file_ends_with_nul() {
        let parts = |file: &[u8]| {
            let mut out = Vec::new();
            out.clear();
            out.extend_from_slice(file);
            in_parts(&mut out);
            out
        };
        assert_eq!(parts(b"a\0b\0"), b"a\0b\0");
        assert_eq!(parts(b"0::/x\n"), b"0::/x\0\0");
    }

    #[test]
    fn each_part_of_a_file_is_escaped_and_fits_the_buffer() {
        let parts = |file: &[u8]| {
            let mut out = Vec::new();
            in_escaped_parts(&mut out, file, STRICT);
            out
        };
        assert_eq!(parts(b"a\tb\0\0c\xff\0"), b"a?b\0\0c?\0");
        assert_eq!(parts(b"0::/x\n"), b"0::/x\0\0");
        assert_eq!(parts(&vec![b'x'; BUFFER + 5]).len(), BUFFER);
    }

    #[test]
    fn the_id_of_a_docker_container_is_found_in_a_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        for text in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("4:cpu:/docker/{id}\n0::/\n"),
            format!("1:a:/docker/x\n0::/docker-{id}\n"),
        ] {
            assert_eq!(docker_id(text.as_bytes()), Some(id.as_bytes()), "{text}");
        }
        for text in [
            String::from("0::/init.scope\n"),
            format!("0::/docker-{id}0.scope\n"),
            format!("0::/docker-{}\n", &id[1..]),
        ] {
            assert_eq!(docker_id(text.as_bytes()), None, "{text}");
        }
    }
}
