//! Reads the system call of one thread, its memory, and facts about its process. All of this may
//! wait, and is called within a [`Patience`](super::patience::Patience).

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;

use taskdiag_wire::VMA_SHARED;

use super::call::Call;
use super::filelocks::{self, Class};
use super::wait::NoHolder;
use crate::engine::numbering;
use crate::engine::procfs::parse;

/// At most this much is read of a small file.
const SMALL: u64 = 64 << 10;
/// At most this much is read of a list of mappings.
const MAPS: u64 = 64 << 20;
/// At most this much is read of a list of mounts.
const MOUNTS: u64 = 16 << 20;
/// The longest path, which is no longer than a page.
const PATH: u64 = 4096;
/// The largest number of threads that are looked at to find one by its id in another pid namespace.
const NUMBERS: usize = 512;

/// A thread of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) tgid: u32,
    pub(super) tid: u32,
}

/// The moment since which a thread waits: how often it has left a CPU. If that is still the same,
/// it has not run, and so is in the same call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    switches: u64,
}

/// Why a file could not be read.
pub(super) fn why(e: &io::Error) -> NoHolder {
    match e.kind() {
        io::ErrorKind::PermissionDenied => NoHolder::NoRight,
        _ => NoHolder::Changed,
    }
}

fn read(path: &str, at_most: u64) -> Result<Vec<u8>, NoHolder> {
    let mut text = Vec::new();
    let file = File::open(path).and_then(|f| f.take(at_most).read_to_end(&mut text));
    file.map_err(|e| why(&e))?;
    Ok(text)
}

fn maps(tgid: u32) -> Result<Vec<u8>, NoHolder> {
    read(&format!("/proc/{tgid}/maps"), MAPS)
}

/// The value of a line of a file like `status`.
fn value<'t>(text: &'t [u8], name: &str) -> Option<&'t str> {
    let mut lines = text.split(|b| *b == b'\n');
    let rest = lines.find_map(|l| l.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    Some(std::str::from_utf8(rest).ok()?.trim())
}

fn number<T: std::str::FromStr>(text: &[u8], name: &str) -> Option<T> {
    value(text, name)?.parse().ok()
}

impl Place {
    fn path(self, name: &str) -> String {
        format!("/proc/{}/task/{}/{name}", self.tgid, self.tid)
    }

    /// How often it has left a CPU.
    fn switches(self) -> Result<u64, NoHolder> {
        let status = read(&self.path("status"), SMALL)?;
        parse::sleep(&status).switches.ok_or(NoHolder::Changed)
    }

    /// The place where the thread waits, which must be in this system call. `before` is how often
    /// it had left a CPU according to the answer: many programs wait for one thing after another
    /// in the same call, and this look is about the wait that the answer has.
    pub(super) fn stand_in(self, call: &Call, before: Option<u64>) -> Result<Stand, NoHolder> {
        let stand = self.stand()?;
        if before.is_some_and(|before| before != stand.switches) {
            return Err(NoHolder::Changed);
        }
        match Call::of(parse::syscall(&read(&self.path("syscall"), SMALL)?)) {
            Some(now) if now == *call => Ok(stand),
            _ => Err(NoHolder::Changed),
        }
    }

    /// The place where the thread is now.
    pub(super) fn stand(self) -> Result<Stand, NoHolder> {
        Ok(Stand { switches: self.switches()? })
    }

    /// Where the thread sleeps, whether or not it is in a system call.
    #[cfg(feature = "user-stack")]
    pub(super) fn sleeps(self) -> Result<(Stand, Option<parse::SyscallText>), NoHolder> {
        Ok((self.stand()?, parse::syscall(&read(&self.path("syscall"), SMALL)?)))
    }

    /// The mappings of its process.
    #[cfg(feature = "user-stack")]
    pub(super) fn maps(self) -> Result<Vec<u8>, NoHolder> {
        maps(self.tgid)
    }

    /// Checks that the thread has not run since.
    pub(super) fn is_still(self, stand: &Stand) -> Result<(), NoHolder> {
        if self.switches()? == stand.switches { Ok(()) } else { Err(NoHolder::Changed) }
    }

    /// The state and the parent of a live task.
    fn stat(self) -> Option<(u8, u32)> {
        let stat = read(&self.path("stat"), SMALL).ok()?;
        let rest = &stat[stat.iter().rposition(|b| *b == b')')? + 2..];
        let text = std::str::from_utf8(rest).ok()?;
        let mut words = text.split(' ');
        Some((words.next()?.bytes().next()?, words.next()?.parse().ok()?))
    }

    /// Whether it is there and has not ended.
    pub(super) fn lives(self) -> bool {
        self.stat().is_some_and(|(state, _)| !matches!(state, b'Z' | b'X' | b'x'))
    }

    /// Whether this process is its parent.
    pub(super) fn is_child_of(self, parent: u32) -> bool {
        self.stat().is_some_and(|(_, of)| of == parent)
    }

    /// The thread that traces it.
    pub(super) fn tracer(self) -> Option<Place> {
        Place::of_thread(parse::sleep(&read(&self.path("status"), SMALL).ok()?).tracer?)
    }

    /// The place of a thread of any process.
    pub(super) fn of_thread(tid: u32) -> Option<Place> {
        let status = read(&format!("/proc/{tid}/status"), SMALL).ok()?;
        Some(Place { tgid: parse::tgid(&status)?, tid }).filter(|p| p.lives())
    }

    /// The inode of an open file. The kernel knows it, so no file server is asked.
    pub(super) fn inode(self, fd: u32) -> Result<Option<u64>, NoHolder> {
        Ok(number(&read(&self.path(&format!("fdinfo/{fd}")), SMALL)?, "ino"))
    }

    /// The mount that an open file was opened on, by its number in mountinfo.
    pub(super) fn mount_id(self, fd: u32) -> Option<u64> {
        number(&read(&self.path(&format!("fdinfo/{fd}")), SMALL).ok()?, "mnt_id")
    }

    /// The number of its mount namespace.
    pub(super) fn mount_namespace(self) -> Option<u32> {
        use std::os::unix::ffi::OsStrExt as _;
        parse::ns_inode(fs::read_link(self.path("ns/mnt")).ok()?.as_os_str().as_bytes())
    }

    /// The mounts that it sees.
    pub(super) fn mountinfo(self) -> Result<Vec<u8>, NoHolder> {
        read(&self.path("mountinfo"), MOUNTS)
    }

    /// Its cgroups.
    pub(super) fn cgroups(self) -> Result<Vec<u8>, NoHolder> {
        read(&self.path("cgroup"), SMALL)
    }

    /// The process that one of its descriptors, a pidfd, refers to.
    pub(super) fn pidfd(self, fd: u32) -> Option<u32> {
        number(&read(&self.path(&format!("fdinfo/{fd}")), SMALL).ok()?, "Pid")
    }

    /// The locks that an open file has on its inode.
    pub(super) fn locks(self, fd: u32) -> Vec<(Class, u64)> {
        let text = read(&self.path(&format!("fdinfo/{fd}")), SMALL).unwrap_or_default();
        filelocks::held(&String::from_utf8_lossy(&text))
    }

    /// The name of an open file.
    pub(super) fn link(self, fd: u32) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStringExt as _;
        Some(fs::read_link(self.path(&format!("fd/{fd}"))).ok()?.into_os_string().into_vec())
    }

    /// The thread of its process that has this id in the pid namespace of that process.
    pub(super) fn thread_with_own_id(self, id: u32) -> Option<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.tgid)).ok()?;
        let mut found = threads.flatten().take(NUMBERS).filter_map(|t| {
            let tid = t.file_name().to_str()?.parse().ok()?;
            let status = read(&Place { tid, ..self }.path("status"), SMALL).ok()?;
            let own = value(&status, "NSpid")?.split_ascii_whitespace().next_back()?;
            (own.parse() == Ok(id)).then_some(tid)
        });
        found.next()
    }

    /// The absolute path at this address in its memory, as far as its page.
    pub(super) fn text(self, address: u64) -> Option<Vec<u8>> {
        let len = (PATH - address % PATH).min(PATH) as usize;
        let mut bytes = self.memory(address, len).ok()?;
        let end = bytes.iter().position(|b| *b == 0)?;
        bytes.truncate(end);
        Some(bytes).filter(|path| path.starts_with(b"/"))
    }

    /// Bytes of its memory, as many as there are.
    ///
    /// Unlike /proc/PID/mem, this call never reads the memory of a device. It takes a number, which
    /// another process has here if /proc is of another pid namespace.
    pub(super) fn memory(self, address: u64, len: usize) -> Result<Vec<u8>, NoHolder> {
        if !numbering::proc_is_own() {
            return Err(NoHolder::OtherNumbers);
        }
        let mut bytes = vec![0u8; len];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let at = usize::try_from(address).map_err(|_| NoHolder::NotKept)?;
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        // SAFETY: the local vector is our buffer with its length, and the kernel checks the other.
        let n =
            unsafe { libc::process_vm_readv(self.tid as libc::pid_t, &local, 1, &remote, 1, 0) };
        let Ok(n) = usize::try_from(n) else {
            return Err(match io::Error::last_os_error().raw_os_error() {
                Some(libc::EPERM) => NoHolder::NoRight,
                // A kernel that was built without the call.
                Some(libc::ENOSYS) => NoHolder::NotKnown,
                // The lock ends before the window does, or begins after it.
                Some(libc::EFAULT) => NoHolder::NotKept,
                _ => NoHolder::Changed,
            });
        };
        bytes.truncate(n);
        Ok(bytes)
    }
}

/// The known properties of a process whose locks are looked up.
#[derive(Debug)]
pub(super) struct Process {
    /// The code of the GNU C library.
    library: Vec<(u64, u64)>,
    /// Mappings that other processes may share.
    shared: Vec<Shared>,
    /// Whether its threads have the same ids in its memory as in our /proc.
    pub(super) has_our_numbers: bool,
}

#[derive(Clone, Copy, Debug)]
struct Shared {
    start: u64,
    end: u64,
    offset: u64,
    file: (u32, u64),
}

/// A place in a file that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedPlace {
    file: (u32, u64),
    offset: u64,
}

impl Process {
    pub(super) fn read(tgid: u32) -> Result<Process, NoHolder> {
        let text = maps(tgid)?;
        let namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/pid")).map(|m| m.ino());
        let theirs = namespace(&tgid.to_string()).map_err(|e| why(&e))?;
        let has_our_numbers = namespace("self").is_ok_and(|ours| ours == theirs);
        let (mut library, mut shared) = (Vec::new(), Vec::new());
        for line in parse::maps_lines(&text) {
            let vma = line.vma;
            if vma.perms & taskdiag_wire::VMA_EXEC != 0 && is_c_library(line.text) {
                library.push((vma.start, vma.end));
            }
            if vma.perms & VMA_SHARED != 0 && vma.inode != 0 {
                let file = (vma.dev, vma.inode);
                let (start, end, offset) = (vma.start, vma.end, vma.offset_bytes);
                shared.push(Shared { start, end, offset, file });
            }
        }
        Ok(Process { library, shared, has_our_numbers })
    }

    /// How many mappings are remembered.
    pub(super) fn mappings(&self) -> usize {
        self.library.len() + self.shared.len()
    }

    /// Whether this address is in the code of the GNU C library.
    pub(super) fn is_in_library(&self, code: u64) -> bool {
        self.library.iter().any(|(start, end)| (*start..*end).contains(&code))
    }

    /// The place of this address in a file that other processes may map, too.
    pub(super) fn shared(&self, address: u64) -> Option<SharedPlace> {
        let mut all = self.shared.iter();
        let at = all.find(|s| (s.start..s.end).contains(&address))?;
        Some(SharedPlace { file: at.file, offset: at.offset + (address - at.start) })
    }

    /// Whether the process maps this place, shared with others.
    pub(super) fn maps(&self, place: &SharedPlace) -> bool {
        self.shared.iter().any(|s| {
            let end = s.offset.saturating_add(s.end - s.start);
            s.file == place.file && (s.offset..end).contains(&place.offset)
        })
    }
}

/// Whether this is the path of the GNU C library. musl, which has other locks, is
/// `ld-musl-ARCH.so.1` or `libc.so`.
fn is_c_library(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    [&b"libc.so.6"[..], b"libpthread.so.0"].contains(&name)
        || [&b"libc-2."[..], b"libpthread-2."].iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Place {
        Place { tgid: std::process::id(), tid: std::process::id() }
    }

    #[test]
    fn memory_that_exists_is_read_and_other_memory_is_an_error() {
        let bytes = [7u8; 100];
        let at = bytes.as_ptr() as u64;
        assert_eq!(me().memory(at, 100), Ok(bytes.to_vec()));
        assert_eq!(me().memory(8, 4), Err(NoHolder::NotKept));
    }

    #[test]
    fn only_the_gnu_library_counts() {
        for path in ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/lib/libpthread-2.28.so (deleted)"] {
            assert!(is_c_library(path.as_bytes()), "{path}");
        }
        for path in ["/lib/ld-musl-x86_64.so.1", "/lib/libc.so", "/usr/bin/libc.so.6x", ""] {
            assert!(!is_c_library(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_no_holder() {
        assert!(me().lives());
        let mut child = std::process::Command::new("true").spawn().expect("true is there");
        let place = Place { tgid: child.id(), tid: child.id() };
        while place.lives() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(place.is_child_of(std::process::id()));
        child.wait().expect("it is mine");
    }
}
