//! Data that lsof reads from the kernel in addition to the lists of open files: the numbers that
//! stand for the addresses of unix sockets, the terminals of masters, and the file systems of
//! message queues. It is read only where a row needs it.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use taskdiag::files::OpenFile;

/// The data read so far. For a saved answer, nothing is read.
#[derive(Default)]
pub(super) struct Kernel {
    saved: bool,
    unix: OnceCell<HashMap<u64, String>>,
    queues: OnceCell<HashSet<u32>>,
}

impl Kernel {
    /// `saved`: the answer was saved, so the kernel of this machine knows nothing about it.
    pub(super) fn new(saved: bool) -> Kernel {
        Kernel { saved, ..Kernel::default() }
    }
    /// The number that /proc/net/unix shows instead of the address of a unix socket. It only stays
    /// the same until the next boot, and users without the right see a useless one.
    pub(super) fn unix_address(&self, inode: u64) -> Option<&str> {
        let read =
            || if self.saved { HashMap::new() } else { unix_addresses().unwrap_or_default() };
        self.unix.get_or_init(read).get(&inode).map(String::as_str)
    }
    /// Is this the device of a file system of message queues that is mounted?
    pub(super) fn is_of_queues(&self, dev: u32) -> bool {
        let read = || if self.saved { HashSet::new() } else { queues().unwrap_or_default() };
        self.queues.get_or_init(read).contains(&dev)
    }
    /// The number of the terminal whose master this is.
    pub(super) fn terminal(file: &OpenFile<'_>) -> Option<u32> {
        let path = format!("{}/fdinfo/{}", file.owner.proc_dir()?, file.fd()?.raw.fd);
        let text = std::fs::read(path).ok()?;
        let mut lines = text.split(|b| *b == b'\n');
        let value = lines.find_map(|l| l.strip_prefix(b"tty-index:"))?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    }
    /// The kernel's name of the protocol of a socket.
    pub(super) fn protocol(file: &OpenFile<'_>) -> Option<String> {
        let fd = file.fd()?;
        let path = format!("{}/fd/{}", file.owner.proc_dir()?, fd.raw.fd);
        let mut name = [0u8; 64];
        let len = rustix::fs::getxattr(&path, "system.sockprotoname", &mut name[..]).ok()?;
        // The descriptor may be another file by now.
        let target = std::fs::read_link(path).ok()?;
        if target.to_str() != Some(&format!("socket:[{}]", fd.inode()?)) {
            return None;
        }
        let name = name.get(..len)?.split(|b| *b == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

fn unix_addresses() -> Option<HashMap<u64, String>> {
    let all = taskdiag::files::unix_addresses().ok()?;
    Some(all.into_iter().map(|(inode, address)| (inode, format!("0x{address}"))).collect())
}

fn queues() -> Option<HashSet<u32>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = |line: &str| {
        let (mount, source) = line.split_once(" - ")?;
        source.starts_with("mqueue ").then_some(())?;
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        u32::try_from(device).ok()
    };
    Some(text.lines().filter_map(device).collect())
}
