//! A session that stays open between two calls of a program that does not know about it, as in a
//! library with another library's interface.
//!
//! A program may close all file descriptors that it does not know, as daemons do when they start,
//! and its next files get the same numbers. Then using the session would read the program's files,
//! and dropping it would close them. So each descriptor is compared with its state after the last
//! answer. If one differs, the session is never used or dropped again.
//!
//! A program may also give up its rights, or change its root. A loaded BPF program or an open file
//! of /proc would still show the same as before, so the session ends when the caller has changed.

use std::ffi::c_long;
use std::mem::{ManuallyDrop, MaybeUninit, size_of};
use std::os::fd::RawFd;

use rustix::thread::CapabilitySet;

use super::choice::Choice;
use super::engines::Engines;
use super::session::Session;
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// A session, and the identities of its descriptors.
#[derive(Debug)]
pub struct GuardedSession {
    session: ManuallyDrop<Session>,
    noted: Vec<(RawFd, Option<Identity>)>,
    caller: Caller,
}

impl GuardedSession {
    /// Opens a session with these engines.
    pub fn open(
        request: Request,
        choice: Choice,
        engines: Engines,
    ) -> Result<GuardedSession, Error> {
        let session = ManuallyDrop::new(Session::with(request, choice, engines)?);
        Ok(GuardedSession { session, noted: Vec::new(), caller: Caller::now() })
    }

    /// Does it still have all its descriptors? Otherwise it must not be used.
    pub fn is_whole(&self) -> bool {
        self.noted.iter().all(|(fd, was)| was.is_some() && Identity::of(*fd) == *was)
    }

    /// Does the process still have the rights and the view of the machine that it had?
    pub fn is_of_caller(&self) -> bool {
        self.caller == Caller::now()
    }

    /// Repeats the request, with the observer and the largest age of `request`, which is otherwise
    /// the same.
    pub fn refresh(&mut self, request: &Request) -> Result<&Snapshot, Error> {
        self.session.set_watch(request.watch.clone());
        self.session.accept_age(request.max_age);
        // The program looks at the last answer only.
        let done = self.session.refresh_part(request.processes).map(drop);
        let fds = self.session.descriptors();
        self.noted = fds.into_iter().map(|fd| (fd, Identity::of(fd))).collect();
        done?;
        Ok(self.session.snapshot().expect("there is an answer"))
    }

    /// For tests: pretends that the program has another file under one of the descriptors.
    #[cfg(test)]
    pub fn rob_for_test(&mut self) {
        self.noted[0].1 = None;
    }

    /// For tests: pretends that a process with other rights has opened it.
    #[cfg(test)]
    pub fn change_caller_for_test(&mut self) {
        self.caller.user = !self.caller.user;
    }

    /// The last answer.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.session.snapshot()
    }

    /// Gives up the last answer with its memory.
    pub fn forget(&mut self) {
        drop(self.session.take());
    }

    /// Gives the last answer away.
    pub fn take(&mut self) -> Option<Snapshot> {
        self.session.take()
    }
}

impl Drop for GuardedSession {
    fn drop(&mut self) {
        if self.is_whole() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.session) };
        }
    }
}

/// The identity of the caller: everything that decides which tasks and values the engines may show.
#[derive(Debug, PartialEq, Eq)]
struct Caller {
    pid: u32,
    user: u32,
    group: u32,
    capabilities: Option<CapabilitySet>,
    /// Device and inode of the namespaces, the root directory and /proc.
    places: [Option<(u64, u64)>; 5],
}

impl Caller {
    fn now() -> Caller {
        let place = |path| rustix::fs::stat(path).ok().map(|s| (s.st_dev, s.st_ino));
        Caller {
            pid: std::process::id(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            capabilities: rustix::thread::capabilities(None).ok().map(|c| c.effective),
            places: [
                place("/"),
                place("/proc"),
                place("/proc/self/ns/user"),
                place("/proc/self/ns/pid"),
                place("/proc/self/ns/cgroup"),
            ],
        }
    }
}

/// The identity of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// BPF objects share an inode, so they are distinguished by kind and id.
    object: Option<(ObjectKind, u32)>,
}

/// The kind of a BPF object. The kernel numbers the objects of each kind separately, so a number
/// alone does not tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectKind {
    Map,
    Program,
    Link,
}

impl Identity {
    /// The identity of a descriptor. `None`: it is not open, or has no identity.
    fn of(fd: RawFd) -> Option<Identity> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: there is room for the answer, which is complete where the call succeeds.
        let stat = unsafe {
            if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
                return None;
            }
            stat.assume_init()
        };
        let object = match stat.st_mode & libc::S_IFMT {
            // A file without a type has no inode of its own.
            0 => Some((kind(fd)?, number(fd)?)),
            _ => None,
        };
        Some(Identity { device: stat.st_dev, inode: stat.st_ino, object })
    }
}

/// The kind of BPF object of a descriptor.
fn kind(fd: RawFd) -> Option<ObjectKind> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    // The kernel writes "bpf-map", but "bpf_link".
    match link.to_str()?.strip_prefix("anon_inode:bpf")?.trim_start_matches(['-', '_']) {
        "map" => Some(ObjectKind::Map),
        "prog" => Some(ObjectKind::Program),
        "link" => Some(ObjectKind::Link),
        _ => None,
    }
}

/// The number of an object of BPF.
fn number(fd: RawFd) -> Option<u32> {
    const BPF_OBJ_GET_INFO_BY_FD: c_long = 15;
    /// This part of `union bpf_attr`.
    #[repr(C)]
    struct Attr {
        fd: u32,
        len: u32,
        info: u64,
    }
    // `struct bpf_map_info`, `struct bpf_prog_info` and `struct bpf_link_info` begin with a type
    // and the number.
    let mut info = [0_u32; 2];
    let len = size_of::<[u32; 2]>() as u32;
    let attr = Attr { fd: fd as u32, len, info: info.as_mut_ptr() as u64 };
    // SAFETY: the kernel reads the attributes, and writes as many bytes as they say.
    let done = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &raw const attr, size_of::<Attr>())
    };
    // The kernel has written to the struct at that address.
    let [_, number] = std::hint::black_box(info);
    (done == 0 && number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineId;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use taskdiag_wire::Groups;

    fn request() -> Request {
        Request::all(Groups::BASE | Groups::STAT)
    }
    fn kept(engine: EngineId) -> GuardedSession {
        GuardedSession::open(request(), Choice::Only(engine), Engines::kept()).expect("it opens")
    }

    /// Puts another file under the number, as a program does that closes everything and opens a
    /// file.
    fn replace(fd: RawFd, by: RawFd) {
        // SAFETY: this makes a descriptor. The previous one belongs to the session, which must
        // notice the change.
        assert_eq!(unsafe { libc::dup3(by, fd, libc::O_CLOEXEC) }, fd);
    }

    #[test]
    fn files_of_the_program_are_left_alone() {
        let mut kept = kept(EngineId::Procfs);
        assert!(kept.refresh(&request()).expect("an answer").tasks().len() > 0);
        let (fd, _) = *kept.noted.first().expect("it keeps files");
        assert!(kept.is_whole());
        assert!(kept.refresh(&request()).expect("an answer").tasks().len() > 0 && kept.is_whole());
        let file = tempfile();
        replace(fd, file.as_raw_fd());
        assert!(!kept.is_whole());
        drop(kept);
        assert_eq!(Identity::of(fd), Identity::of(file.as_raw_fd()), "it was closed");
        // SAFETY: it is the descriptor that was made above.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }

    #[test]
    fn maps_of_the_program_are_left_alone() {
        let (mut ours, mut theirs) = (kept(EngineId::Bpf), kept(EngineId::Bpf));
        for kept in [&mut ours, &mut theirs] {
            if let Err(e) = kept.refresh(&request()) {
                eprintln!("SKIPPED: {e}");
                return;
            }
            assert!(kept.noted.len() > 5 && kept.is_whole(), "{:?}", kept.noted);
        }
        let a_map = |kept: &GuardedSession| {
            let is_map = |i: Identity| i.object.is_some_and(|(kind, _)| kind == ObjectKind::Map);
            kept.noted.iter().find(|(_, i)| i.is_some_and(is_map)).expect("there are maps").0
        };
        let (fd, other) = (a_map(&ours), a_map(&theirs));
        replace(fd, other);
        assert!(!ours.is_whole() && theirs.is_whole());
        drop(ours);
        assert_eq!(Identity::of(fd), Identity::of(other), "it was closed");
        // SAFETY: it is the descriptor that was made above.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }

    fn tempfile() -> OwnedFd {
        // SAFETY: the name is a string, and the descriptor is new.
        unsafe {
            let fd = libc::memfd_create(c"taskdiag-test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        }
    }
}
