//! Names of terminals, from the table of drivers in /proc/tty/drivers.
//!
//! Nearly all terminals are found in this way, and their name only depends on the device number.
//! For others, the real library looks at open files of the process, so it is asked for the name.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Driver {
    name: String,
    /// The name ended with `%d`.
    is_devfs: bool,
    major: u32,
    first: u32,
    last: u32,
}

/// The table, and the names found so far.
#[derive(Debug, Default)]
pub struct Ttys {
    drivers: Option<Vec<Driver>>,
    found: HashMap<u32, Option<String>>,
}

impl Ttys {
    /// The path of a terminal. `None`: it is not in the table. 0 means that there is no terminal.
    pub fn path(&mut self, dev: u32) -> Option<&str> {
        let drivers = self.drivers.get_or_insert_with(|| {
            parse(&String::from_utf8_lossy(&fs::read("/proc/tty/drivers").unwrap_or_default()))
        });
        self.found.entry(dev).or_insert_with(|| find(drivers, dev)).as_deref()
    }
}

/// Parses the table. The last line of it comes first, as in the real library.
fn parse(text: &str) -> Vec<Driver> {
    let mut drivers: Vec<Driver> = text.lines().filter_map(line).collect();
    drivers.reverse();
    drivers
}

fn line(line: &str) -> Option<Driver> {
    let rest = &line[line.find(" /dev/")? + 6..];
    let (name, rest) = rest.split_once(' ')?;
    let (name, is_devfs) = match name.strip_suffix("%d") {
        Some(name) if !name.is_empty() => (name, true),
        _ => (name, false),
    };
    let mut words = rest.split_whitespace();
    let major = words.next()?.parse().ok()?;
    let minors = words.next()?;
    let (first, last) = match minors.split_once('-') {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => (minors.parse().ok()?, minors.parse().ok()?),
    };
    // The buffer of the real library has 16 bytes.
    let name = name.get(..15).unwrap_or(name).to_owned();
    Some(Driver { name, is_devfs, major, first, last })
}

fn find(drivers: &[Driver], dev: u32) -> Option<String> {
    let (major, minor) = (libc::major(u64::from(dev)), libc::minor(u64::from(dev)));
    let driver =
        drivers.iter().find(|d| d.major == major && (d.first..=d.last).contains(&minor))?;
    let name = &driver.name;
    let with_number = [format!("/dev/{name}{minor}"), format!("/dev/{name}/{minor}")];
    let bare = (!driver.is_devfs).then(|| format!("/dev/{name}"));
    let (path, meta) = with_number
        .into_iter()
        .chain(bare)
        .find_map(|path| fs::metadata(&path).ok().map(|meta| (path, meta)))?;
    let rdev = meta.rdev();
    (libc::major(rdev) == major && libc::minor(rdev) == minor).then_some(path)
}

/// The name of a terminal in the form of a result (`dev_to_tty` with a buffer of 64 bytes).
/// `short`: without `tty` and `pts/`.
pub fn name(path: &str, short: bool) -> Vec<u8> {
    let without = |text: &'static str, name: &mut &str| {
        if let Some(rest) = name.strip_prefix(text).filter(|rest| !rest.is_empty()) {
            *name = rest;
        }
    };
    let mut name = path;
    without("/dev/", &mut name);
    if short {
        without("tty", &mut name);
        without("pts/", &mut name);
    }
    let odd = |b: u8| if (b'!'..=b'~').contains(&b) { b } else { b'?' };
    name.bytes().take(64).map(odd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
/dev/tty             /dev/tty        5       0 system:/dev/tty
/dev/console         /dev/console    5       1 system:console
/dev/vc/0            /dev/vc/0       4       0 system:vtmaster
serial               /dev/ttyS       4 64-67 serial
pty_slave            /dev/pts      136 0-1048575 pty:slave
pty_master           /dev/ptm      128 0-1048575 pty:master
unknown              /dev/tty        4 1-63 console
";

    #[test]
    fn the_table_of_terminal_drivers_is_parsed() {
        let drivers = parse(TABLE);
        assert_eq!(drivers.len(), 7);
        let pts = drivers.iter().find(|d| d.name == "pts").expect("it is there");
        assert_eq!((pts.major, pts.first, pts.last, pts.is_devfs), (136, 0, 1_048_575, false));
        assert_eq!(line("usb /dev/ttyUSB%d 188 0-511 serial").expect("a line").name, "ttyUSB");
        assert_eq!(line("nothing"), None);
    }

    #[test]
    fn terminals_of_this_machine_exist() {
        let mut ttys = Ttys::default();
        assert_eq!(ttys.path(0xffff_ffff), None);
        let found: Vec<u32> =
            (0..64).map(|n| 136 << 8 | n).filter(|d| ttys.path(*d).is_some()).collect();
        let there = |dev: &u32| fs::metadata(format!("/dev/pts/{}", dev & 0xff)).is_ok();
        assert_eq!(found.iter().filter(|d| there(d)).count(), found.len());
    }

    #[test]
    fn short_names_of_terminals_lack_their_directory() {
        assert_eq!(name("/dev/pts/3", false), b"pts/3");
        assert_eq!(name("/dev/pts/3", true), b"3");
        assert_eq!(name("/dev/ttyS0", true), b"S0");
        assert_eq!(name("/dev/tty", true), b"tty");
        assert_eq!(name("/dev/a b", false), b"a?b");
    }
}
