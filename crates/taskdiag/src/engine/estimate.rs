//! Estimates the number of tasks without looking at any of them.

use rustix::fs::{CWD, Mode, OFlags};
use taskdiag_wire::Strategy;

/// The number of processes on the machine. The link count of /proc is this number plus a small
/// constant.
pub(crate) fn processes() -> usize {
    rustix::fs::stat("/proc").map_or(0, |s| s.st_nlink as usize)
}

/// The number of threads on the machine, from "running/all" in /proc/loadavg. sysinfo(2) has it,
/// too, but modulo 65536.
pub(crate) fn threads() -> usize {
    read().unwrap_or(0).max(usize::from(rustix::system::sysinfo().procs)).max(processes())
}

/// The number of tasks in an answer about all processes, or about all threads.
pub(crate) fn of(strategy: Strategy) -> usize {
    if strategy.is_threads() { threads() } else { processes() }
}

/// The number of threads of a process, from the link count of its directory `task`. `None`: there
/// is no such process, or it is hidden.
pub(crate) fn threads_of(pid: u32) -> Option<usize> {
    let links = rustix::fs::stat(format!("/proc/{pid}/task")).ok()?.st_nlink as usize;
    // The directory counts twice, like all directories.
    Some(links.saturating_sub(2).max(1))
}

fn read() -> Option<usize> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/loadavg", flags, Mode::empty()).ok()?;
    let mut buf = [0; 128];
    let n = rustix::io::read(fd, &mut buf).ok()?;
    parse(&buf[..n])
}

fn parse(loadavg: &[u8]) -> Option<usize> {
    let field = std::str::from_utf8(loadavg).ok()?.split(' ').nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_is_read_from_loadavg() {
        assert_eq!(parse(b"2.48 2.10 1.24 3/105125 18288\n"), Some(105125));
        for bad in [&b""[..], b"1 2 3", b"1 2 3 4 5", b"1 2 3 4/x 5", b"\xff"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn threads_of_a_process_are_counted() {
        let own = std::process::id();
        let before = threads_of(own).expect("it is there");
        let gate = std::sync::RwLock::new(());
        std::thread::scope(|s| {
            let closed = gate.write().expect("nobody panics");
            for _ in 0..200 {
                s.spawn(|| gate.read().map(drop).expect("nobody panics"));
            }
            // Other tests begin and end threads meanwhile.
            let now = threads_of(own).expect("it is there");
            assert!(now.abs_diff(before + 200) < 100, "{before}, {now}");
            drop(closed);
        });
        assert_eq!(threads_of(u32::MAX), None);
    }

    #[test]
    fn there_are_more_threads_than_processes() {
        assert!(processes() > 0);
        assert!(threads() >= processes());
    }
}
