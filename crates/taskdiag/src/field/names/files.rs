//! Reads `/etc/passwd` and `/etc/group` as glibc's name service module "files" does, so that a line
//! counts exactly if `getent passwd UID` shows its name. Blanks before a line do not count, a line
//! that begins with `#` is a comment, and a name that begins with `+` or `-` is for the module
//! "compat".

use std::fs;

use super::NameMap;

/// The number of ids that a line needs after its name and password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountKind {
    /// A uid and a gid: `/etc/passwd`.
    User,
    /// A gid: `/etc/group`.
    Group,
}

impl AccountKind {
    /// The file.
    pub fn file(self) -> &'static str {
        match self {
            AccountKind::User => "/etc/passwd",
            AccountKind::Group => "/etc/group",
        }
    }
    /// The name of the database in nsswitch.conf.
    fn database(self) -> &'static [u8] {
        match self {
            AccountKind::User => b"passwd",
            AccountKind::Group => b"group",
        }
    }
}

/// The names in a file. The first line of an id counts.
pub fn read(text: &[u8], kind: AccountKind) -> NameMap {
    let mut map = NameMap::new();
    for line in text.split(|b| *b == b'\n') {
        if let Some((name, id)) = entry(line, kind) {
            // The C library also accepts an empty name, and stops there. It is useless as a name.
            map.entry(id).or_insert_with(|| (!name.is_empty()).then(|| name.into()));
        }
    }
    map
}

/// The name and the id in a line, if it has them.
fn entry(line: &[u8], kind: AccountKind) -> Option<(&[u8], u32)> {
    let line = trim_start(line);
    // The C library reads a C string, which ends at a NUL.
    let line = line.split(|b| *b == 0).next().unwrap_or_default();
    if line.is_empty() || line[0] == b'#' {
        return None;
    }
    let (name, rest) = field(line);
    let (_, rest) = field(rest);
    if matches!(name.first(), Some(b'+' | b'-')) {
        return None;
    }
    let (id, rest) = number(rest)?;
    if kind == AccountKind::User {
        number(rest)?;
    }
    Some((name, id))
}

/// A field, and the text after its colon.
fn field(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b':', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

fn trim_start(text: &[u8]) -> &[u8] {
    // The characters that isspace(3) counts as blanks.
    let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    &text[text.iter().position(|b| !blank(b)).unwrap_or(text.len())..]
}

/// A number as strtoul(3) reads it, with blanks and a sign before it, up to a colon or the end. A
/// number that is too large for 32 bits is invalid. So are most negative ones, because they are
/// negated as unsigned 64-bit numbers.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let text = trim_start(text);
    let (is_negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let len = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    if len == 0 {
        return None;
    }
    let value = digits[..len]
        .iter()
        .try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')));
    let value = value.map(|n| if is_negative { n.wrapping_neg() } else { n });
    let value = value.and_then(|n| u32::try_from(n).ok())?;
    match digits.get(len) {
        None => Some((value, &[])),
        Some(b':') => Some((value, &digits[len + 1..])),
        Some(_) => None,
    }
}

/// Does nsswitch.conf name the file first, with final results? If not, or without such a line (the
/// default has changed), only the C library knows the name.
pub fn come_first(kind: AccountKind) -> bool {
    // Other C libraries have no such file.
    if !cfg!(target_env = "gnu") {
        return true;
    }
    says_files(&fs::read("/etc/nsswitch.conf").unwrap_or_default(), kind)
}

fn says_files(conf: &[u8], kind: AccountKind) -> bool {
    let mut found = conf.split(|b| *b == b'\n').filter_map(|line| {
        let line = line.split(|b| *b == b'#').next().unwrap_or_default().trim_ascii();
        let at = memchr::memchr(b':', line)?;
        (line[..at].trim_ascii() == kind.database()).then(|| line[at + 1..].to_ascii_lowercase())
    });
    // If there are two lines, it depends on the version which one counts.
    let (Some(line), None) = (found.next(), found.next()) else { return false };
    let Some(rest) = line.trim_ascii_start().strip_prefix(b"files") else { return false };
    match rest.trim_ascii_start() {
        // Such as [SUCCESS=merge].
        [b'[', action @ ..] => {
            let action = action.split(|b| *b == b']').next().unwrap_or_default();
            !action.windows(7).any(|w| w == b"success") && !action.contains(&b'!')
        }
        [] => true,
        _ => rest[0].is_ascii_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_the_c_library_skips_name_nobody() {
        let named = |line: &str, kind| entry(line.as_bytes(), kind).map(|(n, id)| (n.to_vec(), id));
        for no in [
            "#old:x:5:5::/:/bin/sh",
            "  # c:x:5:5",
            "+:x:5:5",
            "+u:x:5:5",
            "-u:x:5:5",
            "u",
            "u:x",
            "u:x:",
            "u:x:5",
            "u:x:5:",
            "u:x::5",
            "u:x:5a:5",
            "u:x:0x5:5",
            "u:x:5 :5",
            "u:x:5:5 :",
            "u:x:-:5",
            "",
            "  ",
            "u:x:-1:5",
            "u:x:4294967296:5",
            "u:x:99999999999999999999999:5",
            "u:x:5:4294967296",
            "u:x:5:-1::",
        ] {
            assert_eq!(named(no, AccountKind::User), None, "{no}");
        }
        for (yes, id) in [
            ("u:x:5:5", 5),
            ("\t u:x:5:5:g:/:", 5),
            ("u::+5:5", 5),
            ("u:x: 5:1::", 5),
            ("u:x:4294967295:5", u32::MAX),
            ("u:x:-0:5", 0),
            ("u:x:-18446744073709551615:5", 1),
            ("u:x:005:5\0junk", 5),
        ] {
            assert_eq!(named(yes, AccountKind::User), Some((b"u".to_vec(), id)), "{yes}");
        }
        assert_eq!(named("g:x:5", AccountKind::Group), Some((b"g".to_vec(), 5)));
        assert_eq!(named("g:x:5:a,b", AccountKind::Group), Some((b"g".to_vec(), 5)));
        let two = read(b"#a:x:7:7\nb:x:7:7\nc:x:7:7\n:x:8:8\nd:x:8:8", AccountKind::User);
        assert_eq!(two[&7].as_deref(), Some(&b"b"[..]));
        assert_eq!(two[&8], None);
    }

    #[test]
    fn names_come_from_files_if_nsswitch_names_them_first() {
        let says = |text: &str| says_files(text.as_bytes(), AccountKind::User);
        for yes in [
            "passwd: files",
            "group: db\n passwd :\tFILES systemd",
            "passwd:files [NOTFOUND=return] x # y",
        ] {
            assert!(says(yes), "{yes}");
        }
        for no in [
            "",
            "passwd:",
            "passwd: compat",
            "passwd: sss files",
            "passwd: files\npasswd: files",
            "passwd: filesx",
            "#passwd: files",
            "passwd: files [SUCCESS=merge] sss",
            "passwd: files [success=continue] sss",
            "passwd: files [!NOTFOUND=continue] sss",
        ] {
            assert!(!says(no), "{no}");
        }
    }
}
