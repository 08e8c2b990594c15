//! Reads a text of a process from /proc, as the real library does. Engines are only asked for short
//! texts, so that a user with long arguments in many processes cannot make an answer large. Longer
//! texts are read here when their row is made.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};

use crate::memory::grow;

/// How much is read at first. Most of these texts are not much longer than the limit of an engine.
const FIRST: usize = 16 << 10;

/// Reads a file of a process that began at this clock tick, up to `most` bytes. `None`: the process
/// has ended, or no longer has such a text, or there is no memory.
pub fn read(text: &mut Vec<u8>, pid: u32, start: u64, name: &CStr, most: usize) -> Option<()> {
    text.clear();
    // Both files belong to the same process, even if another one has got its id since.
    let dir = File::open(format!("/proc/{pid}")).ok()?;
    let mut file = open(&dir, name)?;
    let mut size = FIRST;
    loop {
        let room = (text.len() + size).min(most) - text.len();
        if room == 0 {
            break;
        }
        grow(text, room).ok()?;
        let at = text.len();
        text.resize(at + room, 0);
        let n = file.read(&mut text[at..]).ok()?;
        text.truncate(at + n);
        if n == 0 {
            break;
        }
        size = text.len();
    }
    let mut stat = [0; 1024];
    let n = open(&dir, c"stat")?.read(&mut stat).ok()?;
    (!text.is_empty() && start_of(&stat[..n]) == Some(start)).then_some(())
}

fn open(dir: &File, name: &CStr) -> Option<File> {
    // SAFETY: the name is a string. Nobody else has the descriptor.
    unsafe {
        let fd = libc::openat(dir.as_raw_fd(), name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        (fd >= 0).then(|| File::from_raw_fd(fd))
    }
}

/// The clock tick at which a task began, from its file `stat`. Its name may have any bytes, so the
/// last parenthesis counts.
fn start_of(stat: &[u8]) -> Option<u64> {
    let after = stat.iter().rposition(|b| *b == b')')? + 2;
    let rest = std::str::from_utf8(stat.get(after..)?).ok()?;
    rest.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_start() -> u64 {
        start_of(&std::fs::read("/proc/self/stat").expect("it is there")).expect("a number")
    }

    #[test]
    fn a_text_is_that_of_the_process_that_was_seen() {
        let (mut text, pid) = (Vec::new(), std::process::id());
        let all = std::fs::read("/proc/self/cmdline").expect("it is there");
        let mut read =
            |start, most| read(&mut text, pid, start, c"cmdline", most).map(|()| text.clone());
        assert_eq!(read(own_start(), usize::MAX), Some(all.clone()));
        assert_eq!(read(own_start(), 5).as_deref(), Some(&all[..5]));
        assert_eq!(read(own_start() - 1, usize::MAX), None);
    }

    #[test]
    fn a_start_time_is_found_after_a_name_with_parentheses() {
        let stat = b"7 (a) b ) 1) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 0";
        assert_eq!(start_of(stat), Some(4242));
        assert_eq!(start_of(b"7 (a"), None);
    }
}
