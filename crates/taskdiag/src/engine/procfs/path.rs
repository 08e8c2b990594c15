//! Paths of the files of a task, relative to the directory of /proc, made without an allocation.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The location of a task's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskDir<'a> {
    pub(super) dir: BorrowedFd<'a>,
    /// The path of the task's directory, relative to `dir`.
    pub(super) path: Path,
    pub(super) pid: u32,
    pub(super) tgid: u32,
}

/// A relative path on the stack: ids first, then the name of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    bytes: [u8; Path::MAX],
    /// Length of the part that all files of a task share. It ends with `/`.
    prefix: usize,
}

impl Path {
    /// The longest path, `4294967295/task/4294967295/ns/time_for_children` with its NUL, fits.
    const MAX: usize = 64;

    /// A path without ids.
    pub(super) fn new() -> Path {
        Path { bytes: [0; Path::MAX], prefix: 0 }
    }
    /// The path `ID/`.
    pub(super) fn id(id: u32) -> Path {
        Path::new().join_id(id)
    }
    /// This path with `ID/` appended.
    pub(super) fn join_id(mut self, id: u32) -> Path {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = id;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
        self.push(b"/");
        self
    }
    /// This path with `task/` appended.
    pub(super) fn join_task(mut self) -> Path {
        self.push(b"task/");
        self
    }
    /// The path of a file in the directory of the process. `thread` says whether this is the path
    /// of a thread.
    pub(super) fn of_process(&self, thread: bool, name: &str) -> CString {
        let ids = &self.bytes[..self.prefix];
        let up: &[u8] = if thread { b"../../" } else { b"" };
        CString::new([ids, up, name.as_bytes()].concat()).expect("ids and names contain no NUL")
    }
    /// The path of a file that the directory of a thread lacks. It leads to the directory that the
    /// task `tid` has directly in /proc.
    pub(super) fn of_task(&self, thread: bool, tid: u32, name: &str) -> CString {
        let ids = &self.bytes[..self.prefix];
        let up = if thread { format!("../../../{tid}/") } else { String::new() };
        CString::new([ids, up.as_bytes(), name.as_bytes()].concat()).expect("no NUL")
    }
    /// The link of a mapping. The directory of a thread has no such file, and in the directory of a
    /// process whose first thread has ended it is empty. So the path leads through the directory of
    /// the thread `tid` that is directly in /proc.
    pub(super) fn map_file(&self, thread: bool, tid: u32, mapping: Range<u64>) -> CString {
        self.of_task(thread, tid, &format!("map_files/{:x}-{:x}", mapping.start, mapping.end))
    }
    /// The last id in the path, which is the id of the task.
    pub(super) fn last_id(&self) -> Option<u32> {
        let ids = self.bytes[..self.prefix].strip_suffix(b"/")?;
        let last = ids.rsplit(|b| *b == b'/').next()?;
        std::str::from_utf8(last).ok()?.parse().ok()
    }
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.prefix..][..part.len()].copy_from_slice(part);
        self.prefix += part.len();
    }
    /// The path of a file in the directory that the ids name.
    pub(super) fn file(&mut self, name: &'static str) -> &CStr {
        let end = self.prefix + name.len();
        self.bytes[self.prefix..end].copy_from_slice(name.as_bytes());
        self.bytes[end] = 0;
        CStr::from_bytes_with_nul(&self.bytes[..=end]).expect("ids and names contain no NUL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_longest_ids_fit() {
        let mut p = Path::id(u32::MAX).join_task().join_id(u32::MAX);
        let want = c"4294967295/task/4294967295/ns/time_for_children";
        assert_eq!(p.file("ns/time_for_children"), want);
        assert_eq!(p.file("io"), c"4294967295/task/4294967295/io");
        assert_eq!(Path::id(7).file("stat"), c"7/stat");
        assert_eq!(Path::new().file("."), c".");
        assert_eq!([p.last_id(), Path::id(7).last_id()], [Some(u32::MAX), Some(7)]);
        assert_eq!(Path::new().last_id(), None);
        assert_eq!(Path::id(7).of_process(false, "a").as_c_str(), c"7/a");
        assert_eq!(Path::id(7).of_process(true, "a").as_c_str(), c"7/../../a");
        assert_eq!(Path::id(7).map_file(false, 8, 16..32).as_c_str(), c"7/map_files/10-20");
        let thread = Path::id(7).join_task().join_id(8);
        let other = thread.map_file(true, 8, 16..32);
        assert_eq!(other.as_c_str(), c"7/task/8/../../../8/map_files/10-20");
    }
}
