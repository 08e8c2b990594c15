//! Lists of ids and names, as `ps` takes them: with commas or blanks between the items.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use rustix::process::PidfdFlags;
use taskdiag::view::PidfdInodes;
pub use taskdiag_face::options::items;

use crate::aside;
use crate::exit::Exit;

/// The items of a list, with procps' rule that an empty item is an error.
pub fn strict(list: &str) -> Result<Vec<&str>, Exit> {
    let items: Vec<&str> = list.split([',', ' ', '\t']).collect();
    match items.iter().any(|i| i.is_empty()) {
        true => {
            Err(Exit::Usage(format!("the list '{list}' lacks an item before or after a comma")))
        }
        false => Ok(items),
    }
}

/// The first of the private-use characters that stand for bytes that are not UTF-8. If a program
/// has such characters in its name, its bytes are encoded in the same way.
const BYTES: u32 = 0x10_ff00;

fn stands_for(c: char) -> Option<u8> {
    u32::from(c).checked_sub(BYTES).and_then(|b| u8::try_from(b).ok()).filter(|b| *b >= 0x80)
}

/// The text of a word that may contain bytes that are not UTF-8, such as the name of a program.
/// [`bytes`] is the inverse.
pub fn with_bytes(word: &OsStr) -> String {
    let mut out = String::with_capacity(word.len());
    let byte =
        |b: &u8| char::from_u32(BYTES + u32::from(*b)).unwrap_or(char::REPLACEMENT_CHARACTER);
    for chunk in word.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match stands_for(c) {
                Some(_) => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(byte)),
                None => out.push(c),
            }
        }
        out.extend(chunk.invalid().iter().map(byte));
    }
    out
}

/// Does it contain a byte that is not valid UTF-8?
pub fn has_bytes(text: &str) -> bool {
    text.chars().any(|c| stands_for(c).is_some())
}

/// The original bytes of such a text.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match stands_for(c) {
            Some(b) => out.push(b),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// The device number of the terminal that this process is on; 0: none.
pub fn own_tty() -> u32 {
    // This is the only descriptor that cannot be redirected.
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    let after_comm = stat.iter().rposition(|b| *b == b')').map_or(&stat[..0], |i| &stat[i + 1..]);
    let tty =
        String::from_utf8_lossy(after_comm).split_whitespace().nth(4).and_then(|n| n.parse().ok());
    tty.unwrap_or(0)
}

/// The names of commands. If the option is there, it needs at least one.
pub fn commands<'a>(args: impl IntoIterator<Item = &'a String>) -> Result<Vec<Vec<u8>>, Exit> {
    let mut args = args.into_iter().peekable();
    let given = args.peek().is_some();
    let list: Vec<Vec<u8>> = items(args).into_iter().map(|s| s.as_bytes().to_vec()).collect();
    if given && list.is_empty() {
        return Err(Exit::Usage(String::from("--command needs at least one value")));
    }
    Ok(list)
}

/// A process id. 0 is allowed: it is the parent of the first process.
pub fn pid(option: &str, s: &str) -> Result<u32, Exit> {
    s.parse()
        .ok()
        .filter(|p| *p <= i32::MAX as u32)
        .ok_or_else(|| Exit::Usage(format!("{option} takes process ids such as 1,42, not '{s}'")))
}

/// Process ids, and the inodes that some of them stand with.
#[derive(Clone, Debug, Default)]
pub struct Pids {
    /// In their order.
    pub ids: Vec<u32>,
    /// As in `PID:INODE`.
    pub inodes: PidfdInodes,
}

/// Process ids such as `1` and `42:1234`.
pub fn pids<'a>(option: &str, items: impl IntoIterator<Item = &'a str>) -> Result<Pids, Exit> {
    let mut all = Pids::default();
    for item in items {
        let (id, inode) = pid_and_inode(option, item)?;
        all.ids.push(id);
        inode.into_iter().for_each(|inode| all.inodes.add(id, inode));
    }
    Ok(all)
}

/// A process id, with the inode of its pidfd if that stands after a colon, as util-linux has it.
pub fn pid_and_inode(option: &str, item: &str) -> Result<(u32, Option<u64>), Exit> {
    let Some((id, inode)) = item.split_once(':') else { return Ok((pid(option, item)?, None)) };
    let number = inode.parse().ok().filter(|_| inode.bytes().all(|b| b.is_ascii_digit()));
    let Some(inode) = number else {
        let text = format!("{option}: '{item}' is not PID:INODE, such as 42:1234");
        return Err(Exit::Usage(text));
    };
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    match own.ok().and_then(|own| taskdiag::pidfd_inode(own).ok()?) {
        Some(_) => Ok((pid(option, id)?, Some(inode))),
        None => Err(Exit::Failed(format!("{option}: {item} needs the pidfds of Linux 6.9"))),
    }
}

/// A uid, from a name or a number.
pub fn uid(option: &str, s: &str) -> Result<u32, Exit> {
    if let Ok(n) = s.parse() {
        return Ok(n);
    }
    uzers::get_user_by_name(s)
        .map(|u| u.uid())
        .ok_or_else(|| Exit::Usage(format!("{option}: there is no user '{s}' on this machine")))
}

/// A gid, from a name or a number.
pub fn gid(option: &str, s: &str) -> Result<u32, Exit> {
    if let Ok(n) = s.parse() {
        return Ok(n);
    }
    uzers::get_group_by_name(s)
        .map(|g| g.gid())
        .ok_or_else(|| Exit::Usage(format!("{option}: there is no group '{s}' on this machine")))
}

/// The device number of a terminal: `pts/0` or `0`, `tty1`, `/dev/tty1`, `S0` for ttyS0; `?` or `-`
/// for none.
pub fn tty(option: &str, s: &str) -> Result<u32, Exit> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    if s == "?" || s == "-" {
        return Ok(0);
    }
    let paths = match s.strip_prefix('/') {
        Some(_) => vec![s.to_owned()],
        // The order of procps.
        None => vec![format!("/dev/pts/{s}"), format!("/dev/{s}"), format!("/dev/tty{s}")],
    };
    let device = |p: &String| {
        let look = || {
            let meta = std::fs::metadata(p)?;
            let is_terminal = meta.file_type().is_char_device();
            io::Result::Ok(if is_terminal { new_encode_dev(meta.rdev()) } else { 0 })
        };
        let found = match p.starts_with("/dev/") {
            true => look().ok()?,
            // It may be anywhere.
            false => {
                let (said, end) = aside::ask(|to| to.write_all(&look()?.to_ne_bytes()));
                end.ok()?;
                u32::from_ne_bytes(said.try_into().ok()?)
            }
        };
        (found != 0).then_some(found)
    };
    paths
        .iter()
        .find_map(device)
        .ok_or_else(|| Exit::Usage(format!("{option}: there is no terminal '{s}' on this machine")))
}

/// The kernel's 32-bit form of a device number, which STAT has.
fn new_encode_dev(dev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were_typed() {
        for typed in [
            b"plain".as_slice(),
            "\u{e9}t\u{e9}".as_bytes(),
            b"\xff\xfe.",
            b"cut\xc3",
            // A character that stands for a byte is typed itself.
            "\u{10ff80}".as_bytes(),
        ] {
            let text = with_bytes(OsStr::from_bytes(typed));
            assert_eq!(bytes(&text), typed);
            let is_plain = std::str::from_utf8(typed).is_ok_and(|s| s == text);
            assert_eq!(has_bytes(&text), !is_plain, "{typed:?}");
        }
    }
}
