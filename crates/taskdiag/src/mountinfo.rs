//! The text of /proc/PID/mountinfo.

/// A mount: `41 31 0:38 / /mnt/a rw,relatime [optional…] - fuse.sshfs host:/dir rw`.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The number of the mount.
    pub id: &'a [u8],
    /// Device number of the file system, as `major:minor`.
    pub dev: &'a [u8],
    /// The directory of the file system that is mounted. Like the mount point, it must be
    /// unescaped.
    pub root: &'a [u8],
    /// Where it is mounted.
    pub point: &'a [u8],
    /// The type of the file system.
    pub kind: &'a [u8],
    /// The source of the mount, such as a device, which must be unescaped.
    pub source: &'a [u8],
    /// The options of the file system.
    pub options: &'a [u8],
}

/// The complete and well-formed lines.
pub fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split_inclusive(|b| *b == b'\n').filter_map(|line| {
        let mut words = line.strip_suffix(b"\n")?.split(|b| *b == b' ');
        let (id, dev) = (words.next()?, words.nth(1)?);
        let (root, point) = (words.next()?, words.next()?);
        words.find(|w| *w == b"-")?;
        let (kind, source, options) = (words.next()?, words.next()?, words.next()?);
        Some(Line { id, dev, root, point, kind, source, options })
    })
}

/// mountinfo writes blank, tab, newline and backslash as a backslash and three octal digits.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let code = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(code.unwrap_or(first));
        rest = if code.is_some() { &rest[4..] } else { tail };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_is_left_out() {
        let text =
            b"41 31 0:38 / /a\\040b rw shared:5 master:1 - fuse.sshfs h:/d rw\n42 31 0:39 / /c";
        let all: Vec<_> = lines(text).collect();
        assert_eq!(all.len(), 1);
        let Line { id, dev, root, point, kind, source, options } = all[0];
        let words: [&[u8]; 7] = [b"41", b"0:38", b"/", b"/a\\040b", b"fuse.sshfs", b"h:/d", b"rw"];
        assert_eq!([id, dev, root, point, kind, source, options], words);
    }

    #[test]
    fn only_whole_escapes_are_read() {
        assert_eq!(unescape(b"/a\\040b\\134"), b"/a b\\");
        assert_eq!(unescape(b"\\04"), b"\\04");
        assert_eq!(unescape(b"\\777"), b"\\777");
    }
}
