//! Text that cannot control a terminal, written as in lsof: characters that the locale cannot print
//! are escaped byte by byte.

use std::ffi::CStr;

/// The part of the caller's locale that decides which characters can be printed.
pub(super) struct Locale {
    /// The locale; `None`: the locale C.
    handle: Option<libc::locale_t>,
    is_utf8: bool,
}

// The C library has it, and the crate libc does not declare it.
unsafe extern "C" {
    fn iswprint_l(c: libc::c_uint, locale: libc::locale_t) -> libc::c_int;
}

impl Locale {
    /// The locale of the environment, or the locale C if that one is not installed.
    pub(super) fn of_environment() -> Locale {
        // SAFETY: the name is a string, and no locale is changed by this.
        let handle =
            unsafe { libc::newlocale(libc::LC_CTYPE_MASK, c"".as_ptr(), std::ptr::null_mut()) };
        if handle.is_null() {
            return Locale::c();
        }
        // SAFETY: the locale was just made. The string lives as long as it does, and is read at
        // once.
        let is_utf8 = unsafe {
            let name = libc::nl_langinfo_l(libc::CODESET, handle);
            !name.is_null() && CStr::from_ptr(name).to_bytes().eq_ignore_ascii_case(b"UTF-8")
        };
        Locale { handle: Some(handle), is_utf8 }
    }
    /// The locale C, in which only ASCII can be printed.
    pub(super) fn c() -> Locale {
        Locale { handle: None, is_utf8: false }
    }
    /// Can this be printed? It is no character of ASCII.
    fn is_print(&self, c: char) -> bool {
        match self.handle {
            // SAFETY: the locale lives until `self` is dropped.
            Some(handle) if self.is_utf8 => unsafe { iswprint_l(c.into(), handle) != 0 },
            _ => false,
        }
    }
    /// The text of a name. Characters of the locale stand for themselves.
    pub(super) fn name(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                let mut bytes = [0; 4];
                let bytes = c.encode_utf8(&mut bytes).as_bytes();
                match bytes {
                    [b] => byte(&mut out, *b, false),
                    bytes if self.is_print(c) => out.extend_from_slice(bytes),
                    bytes => bytes.iter().for_each(|b| unsafe_byte(&mut out, *b)),
                }
            }
            chunk.invalid().iter().for_each(|b| unsafe_byte(&mut out, *b));
        }
        out
    }
}

impl Drop for Locale {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // SAFETY: it was made by newlocale, and is not used any more.
            unsafe { libc::freelocale(handle) };
        }
    }
}

/// The name of a command in the table: cut after `most` cells, but not within the escape of a byte.
/// lsof escapes single bytes there, and also blanks.
pub(super) fn command(text: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for b in text {
        let before = out.len();
        byte(&mut out, *b, true);
        if out.len() > most {
            out.truncate(before);
            break;
        }
    }
    out
}

/// As lsof reads the name of a command: in one line.
pub(super) fn one_line(comm: &[u8]) -> Vec<u8> {
    comm.iter().map(|b| if *b == b'\n' { b'?' } else { *b }).collect()
}

fn byte(out: &mut Vec<u8>, b: u8, blanks: bool) {
    match b {
        b' ' if blanks => unsafe_byte(out, b),
        b' '..=b'~' if b != b'\\' => out.push(b),
        b => unsafe_byte(out, b),
    }
}

fn unsafe_byte(out: &mut Vec<u8>, b: u8) {
    match b {
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0..0x20 => out.extend_from_slice(&[b'^', b + 0x40]),
        _ => out.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_in_lsof() {
        let c = Locale::c();
        for (text, want) in [
            (&b"a b"[..], "a b"),
            (b"a\nb\\n", "a\\nb\\\\n"),
            (b"\x01\x1b\x7f", "^A^[\\x7f"),
            ("\u{9b}é".as_bytes(), "\\xc2\\x9b\\xc3\\xa9"),
            (b"\xffx\xc3", "\\xffx\\xc3"),
        ] {
            assert_eq!(String::from_utf8_lossy(&c.name(text)), want, "{text:?}");
        }
        assert_eq!(command("a é\\".as_bytes(), 30), b"a\\x20\\xc3\\xa9\\\\");
        // An escape sequence is never cut.
        assert_eq!(command(b"a b", 4), b"a");
        assert_eq!(one_line(b"a\nb"), b"a?b");
    }

    #[test]
    fn a_locale_of_utf8_prints_its_characters_but_no_controls() {
        // SAFETY: the name is a string.
        let handle = unsafe {
            libc::newlocale(libc::LC_CTYPE_MASK, c"C.UTF-8".as_ptr(), std::ptr::null_mut())
        };
        if handle.is_null() {
            eprintln!("skipped: the locale C.UTF-8 is not installed");
            return;
        }
        let utf8 = Locale { handle: Some(handle), is_utf8: true };
        let name = |text: &str| String::from_utf8_lossy(&utf8.name(text.as_bytes())).into_owned();
        assert_eq!(name("é\u{feff}😀"), "é\u{feff}😀");
        assert_eq!(name("\u{9b}\u{2028}"), "\\xc2\\x9b\\xe2\\x80\\xa8");
    }
}
