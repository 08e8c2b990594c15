//! Names of terminals from device numbers.
//!
//! The common ones follow from the number; the others are looked up once each in sysfs. The task
//! itself is not looked at, so this also works for a saved answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use taskdiag_wire::device::major_minor;

use super::number::write_uint;

/// Names that had to be looked up.
#[derive(Debug, Default)]
pub struct Ttys {
    odd: RefCell<HashMap<u32, Arc<[u8]>>>,
}

impl Ttys {
    /// Append the name of a terminal without `/dev/`, `?` for none, or `major:minor`.
    pub fn write(&self, out: &mut Vec<u8>, dev: u32) {
        let (major, minor) = major_minor(dev);
        let mut numbered = |name: &[u8], n| {
            out.extend_from_slice(name);
            write_uint(out, u64::from(n));
        };
        match (major, minor) {
            (0, 0) => out.push(b'?'),
            (136..=143, _) => numbered(b"pts/", (major - 136) * 256 + minor),
            (4, 0..=63) => numbered(b"tty", minor),
            (4, _) => numbered(b"ttyS", minor - 64),
            (5, 1) => out.extend_from_slice(b"console"),
            _ => {
                let mut odd = self.odd.borrow_mut();
                let name = odd.entry(dev).or_insert_with(|| look_up(major, minor));
                out.extend_from_slice(name);
            }
        }
    }
}

fn look_up(major: u32, minor: u32) -> Arc<[u8]> {
    let id = format!("{major}:{minor}");
    let uevent = fs::read(format!("/sys/dev/char/{id}/uevent")).unwrap_or_default();
    let mut lines = uevent.split(|b| *b == b'\n');
    lines.find_map(|l| l.strip_prefix(b"DEVNAME=")).unwrap_or(id.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_have_the_names_of_procps() {
        let t = Ttys::default();
        let name = |dev| {
            let mut out = Vec::new();
            t.write(&mut out, dev);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(name(0), "?");
        assert_eq!(name(136 << 8 | 3), "pts/3");
        assert_eq!(name(136 << 8 | (300 & 0xff) | (300 & 0xfff00) << 12), "pts/300");
        assert_eq!(name(4 << 8 | 1), "tty1");
        assert_eq!(name(4 << 8 | 64), "ttyS0");
        assert_eq!(name(0xffe << 8 | 1), "4094:1");
    }
}
