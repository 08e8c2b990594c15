//! An open file: the known data about it, in the library's units.

use std::borrow::Cow;

use taskdiag_wire::{
    BLOB_CUT, BLOB_DELETED, DELETED, Entry, Fd, FdType, FileStat, Group, Net, PathKind, Reason,
    Socket, TaskView, Vma,
};

use super::{Owner, words};
pub use taskdiag_wire::device::major_minor;

/// How a file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// The file is open for reading.
    Read,
    /// The file is open for writing.
    Write,
    /// The file is open for reading and writing.
    Both,
    /// The file is open for neither (`O_PATH`), or the access is not known.
    Path,
}

impl Access {
    /// The access that `O_*` flags stand for.
    pub fn of(flags: u32) -> Access {
        let flags = flags as i32;
        match flags & libc::O_ACCMODE {
            _ if flags & libc::O_PATH != 0 => Access::Path,
            libc::O_RDONLY => Access::Read,
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::Both,
            _ => Access::Path,
        }
    }
    /// The letter of lsof: r, w or u, and nothing for [`Access::Path`].
    pub fn letter(self) -> &'static str {
        match self {
            Access::Read => "r",
            Access::Write => "w",
            Access::Both => "u",
            Access::Path => "",
        }
    }
}

/// How a process uses a file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum What<'a> {
    /// The file is its working directory, root or executable. The entry is a mapping of the file,
    /// if the answer has one.
    Path(PathKind, Option<Entry<'a, Vma>>),
    /// The file is mapped into its memory.
    Mapped(Entry<'a, Vma>),
    /// A descriptor of the process refers to the file.
    Fd(Entry<'a, Fd>),
}

/// A path, or another name that the kernel has for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathName<'a> {
    /// The bytes of the name, without the mark ` (deleted)`. It may have any bytes but NUL.
    pub bytes: &'a [u8],
    /// Whether the file is no longer in the directory tree.
    pub deleted: bool,
    /// Whether this is only the beginning of the name.
    pub cut: bool,
    /// The reason for a missing name.
    pub reason: Option<Reason>,
}

impl<'a> PathName<'a> {
    /// The name with this number in the stream.
    pub fn find(task: &TaskView<'a>, number: u32) -> Option<PathName<'a>> {
        let blob = task.name(number)?;
        let (cut, deleted, reason) = (blob.is_cut(), blob.flags & BLOB_DELETED != 0, blob.reason);
        match blob.data {
            Cow::Borrowed(bytes) => Some(PathName { bytes, deleted, cut, reason }),
            Cow::Owned(_) => None,
        }
    }
    /// A path of the process itself. The kernel returns at most 4096 bytes, so it is in one piece.
    pub(super) fn of_path(task: &TaskView<'a>, kind: PathKind) -> Option<PathName<'a>> {
        let mut pieces = task.blobs(Group::Paths as u16);
        let (hdr, bytes) = pieces.find(|(h, _)| h.kind == kind as u32)?;
        let known = |n| Reason::from_number(n).unwrap_or(Reason::Unsupported);
        let deleted = hdr.flags & BLOB_DELETED != 0;
        // The text is the content of the link in /proc, which ends with the mark. Names of
        // descriptors and mappings do not.
        let bare = bytes.strip_suffix(DELETED).filter(|_| deleted);
        Some(PathName {
            bytes: bare.unwrap_or(bytes),
            deleted,
            cut: hdr.flags & BLOB_CUT != 0 || bytes.len() < hdr.total as usize,
            reason: (hdr.reason != 0).then(|| known(hdr.reason.into())),
        })
    }
}

/// A file that a process has in use. A member that is `None` is not known, or does not apply.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpenFile<'a> {
    /// The process or thread that has the file.
    pub owner: &'a Owner<'a>,
    /// How it uses the file.
    pub what: What<'a>,
    /// The path or other name of the file, as the kernel reports it.
    pub path: Option<PathName<'a>>,
    /// FILE_STAT data for files without a descriptor.
    pub stat: Option<Entry<'a, FileStat>>,
}

impl<'a> OpenFile<'a> {
    /// The entry of the descriptor.
    pub fn fd(&self) -> Option<Entry<'a, Fd>> {
        match &self.what {
            What::Fd(fd) => Some(*fd),
            _ => None,
        }
    }
    /// The text of lsof's column FD without the letter: the descriptor, or cwd, rtd, txt, mem, or
    /// DEL for a mapped file that is deleted.
    pub fn label(&self) -> Cow<'static, str> {
        match &self.what {
            What::Fd(fd) => Cow::Owned(fd.raw.fd.to_string()),
            What::Path(PathKind::Cwd, _) => Cow::Borrowed("cwd"),
            What::Path(PathKind::Root, _) => Cow::Borrowed("rtd"),
            What::Path(PathKind::Exe, _) => Cow::Borrowed("txt"),
            What::Path(kind, _) => Cow::Borrowed(kind.name()),
            What::Mapped(_) if self.has_mark() => Cow::Borrowed("DEL"),
            What::Mapped(_) => Cow::Borrowed("mem"),
        }
    }
    /// How the file is open.
    pub fn access(&self) -> Option<Access> {
        self.fd()?.flags().map(Access::of)
    }
    /// The type of the file, if it is a descriptor.
    pub fn fd_type(&self) -> Option<FdType> {
        FdType::from_number(self.fd()?.r#type()?)
    }
    /// The socket of the descriptor.
    pub fn socket(&self) -> Option<Entry<'a, Socket>> {
        let fd = self.fd().filter(|f| f.raw.r#type == FdType::Socket as u32)?;
        self.owner.socket(fd.raw.fd)
    }
    /// The traffic of the socket of the descriptor.
    pub fn net(&self) -> Option<Entry<'a, Net>> {
        let fd = self.fd()?;
        self.owner.net(fd.raw.fd, fd.inode()?)
    }
    /// The type in the words of lsof.
    pub fn lsof_type(&self) -> &'static str {
        match &self.what {
            What::Path(PathKind::Cwd | PathKind::Root, _) => "DIR",
            What::Path(..) | What::Mapped(_) => self.mode_type().map_or("REG", words::lsof_type),
            What::Fd(fd) => match FdType::from_number(fd.raw.r#type) {
                Some(FdType::Socket) => match self.socket() {
                    Some(s) => words::socket_type(s.raw.family),
                    None => "sock",
                },
                Some(t) => words::lsof_type(t),
                None => "unknown",
            },
        }
    }
    /// Is the file deleted? If its number of links is known, that decides: a file may still have
    /// another name, or may have got one later (`O_TMPFILE`), although the kernel calls its path
    /// deleted.
    pub fn is_deleted(&self) -> bool {
        let is_mark = self.has_mark();
        if self.fd().is_none() && is_mark && self.path.is_some_and(|p| never_linked(p.bytes)) {
            return false;
        }
        let links = match self.fd() {
            Some(fd) => fd.nlink().filter(|_| has_links(&fd)),
            None => self.of_stat(|s| s.nlink()),
        };
        links.map_or(is_mark, |n| n == 0)
    }
    /// Whether the name is marked as deleted, as in the kernel and lsof: this path does not exist
    /// any more, or leads to another file now.
    pub fn has_mark(&self) -> bool {
        let unlinked = self.fd().is_some_and(|f| f.nlink() == Some(0) && has_links(&f));
        unlinked || self.path.is_some_and(|p| p.deleted)
    }
    /// Is the name only the path?
    pub fn has_plain_name(&self) -> bool {
        let plain = self.path.is_some_and(|p| !p.cut && p.reason.is_none());
        let of_path = match &self.what {
            What::Fd(fd) => has_links(fd) && fd.raw.r#type != FdType::Fifo as u32,
            _ => true,
        };
        plain && of_path && !self.has_mark()
    }
    /// The device of the file system as `stat(2)` has it, in the encoding of `new_encode_dev()`. If
    /// the answer has no FILE_STAT of a mapped file, this is the device of the mapping, which
    /// differs on btrfs and on some overlays.
    pub fn dev(&self) -> Option<u32> {
        match &self.what {
            What::Path(_, vma) => self.of_stat(|s| s.dev()).or_else(|| vma.as_ref()?.dev()),
            What::Mapped(vma) => self.stat.as_ref().map_or_else(|| vma.dev(), |s| s.stat_dev()),
            What::Fd(fd) => fd.dev(),
        }
    }
    /// The device number of a device file.
    pub fn rdev(&self) -> Option<u32> {
        let is_device = |t: &FdType| matches!(t, FdType::Chr | FdType::Blk);
        self.fd_type().or_else(|| self.mode_type()).filter(is_device)?;
        match &self.what {
            What::Fd(fd) => fd.rdev(),
            _ => self.of_stat(|s| s.rdev()),
        }
    }
    /// Inode number.
    pub fn inode(&self) -> Option<u64> {
        match &self.what {
            What::Path(_, vma) => self.of_stat(|s| s.inode()).or_else(|| vma.as_ref()?.inode()),
            What::Mapped(vma) => vma.inode(),
            What::Fd(fd) => fd.inode(),
        }
    }
    /// The size in bytes, for files that have one.
    pub fn size_bytes(&self) -> Option<u64> {
        let sized = matches!(
            self.fd_type().or_else(|| self.mode_type())?,
            FdType::Reg | FdType::Dir | FdType::Lnk | FdType::Blk | FdType::Memfd
        );
        let size = match &self.what {
            What::Fd(fd) => fd.size_bytes(),
            _ => self.of_stat(|s| s.size_bytes()),
        };
        size.filter(|_| sized)
    }
    /// The kind of the file and its permissions, as in `st_mode`.
    pub fn mode(&self) -> Option<u32> {
        self.fd().map_or_else(|| self.of_stat(|s| s.mode()), |fd| fd.mode())
    }
    /// The number of hard links.
    pub fn nlink(&self) -> Option<u32> {
        self.fd().map_or_else(|| self.of_stat(|s| s.nlink()), |fd| fd.nlink())
    }
    /// The mount id, as in /proc/PID/mountinfo.
    pub fn mnt_id(&self) -> Option<u32> {
        self.fd().map_or_else(|| self.of_stat(|s| s.mnt_id()), |fd| fd.mnt_id())
    }
    fn of_stat<T>(&self, get: impl FnOnce(&Entry<'a, FileStat>) -> Option<T>) -> Option<T> {
        self.stat.as_ref().and_then(get)
    }
    /// The type from the mode, for files without a descriptor.
    fn mode_type(&self) -> Option<FdType> {
        self.of_stat(|s| s.mode()).map(FdType::of_mode)
    }
    /// The position in the file in bytes.
    pub fn pos_bytes(&self) -> Option<u64> {
        self.fd()?.pos_bytes()
    }
}

/// Is this an object that the kernel calls deleted, although it never was in a directory? Memory
/// that processes or drivers share is such an object.
pub(crate) fn never_linked(name: &[u8]) -> bool {
    const BEGIN: [&[u8]; 3] = [b"/memfd:", b"/SYSV", b"[anon_shmem:"];
    const WHOLE: [&[u8]; 8] = [
        b"/dev/zero",
        b"/[aio]",
        b"/anon_hugepage",
        b"/secretmem",
        b"/drm mm object",
        b"/i915",
        b"/ttm swap",
        b"/[perf_event]",
    ];
    BEGIN.iter().any(|b| name.starts_with(b)) || WHOLE.contains(&name)
}

/// Does this file have a number of links? Files in a file system do.
fn has_links(fd: &Entry<'_, Fd>) -> bool {
    use FdType::{Blk, Chr, Dir, Fifo, Lnk, Memfd, Reg};
    const LINKED: u32 = 1 << Reg as u32
        | 1 << Dir as u32
        | 1 << Chr as u32
        | 1 << Blk as u32
        | 1 << Fifo as u32
        | 1 << Lnk as u32
        | 1 << Memfd as u32;
    fd.raw.r#type < 32 && LINKED & 1 << fd.raw.r#type != 0
}
