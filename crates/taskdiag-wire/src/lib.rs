//! The task_diag wire format: the structs of `uapi/task_diag.h`, an encoder and a zero-copy
//! decoder. It does no I/O, and does not care where the bytes come from.
//!
//! - [`mod@registry`]: which groups and attributes there are;
//! - [`properties`]: what each group is, and the sets that follow from that;
//! - [`layout`]: their structs;
//! - [`encode`]: [`StreamWriter`] makes a stream, [`encode_request`] a request;
//! - [`decode`]: [`Stream`] checks untrusted bytes once and then gives typed views into them.
//!
//! ```
//! use taskdiag_wire::{Base, Done, Groups, Info, Stream, StreamWriter, build};
//!
//! let mut w = StreamWriter::new();
//! w.info(&build!(Info { show_flags: Groups::BASE.bits(), ..StreamWriter::blank_info() }));
//! w.begin_task(42, 42);
//! let mut base = Base::new();
//! base.ppid = 1;
//! base.valid = 1;
//! w.put_base(&base, b"init");
//! w.end_task();
//! let bytes = w.finish(Done::default());
//!
//! let stream = Stream::parse(bytes.as_bytes()).unwrap();
//! let task = stream.tasks().next().unwrap();
//! assert_eq!(task.pid(), 42);
//! assert_eq!(task.record::<Base>().unwrap().ppid(), Some(1));
//! assert_eq!(task.record::<Base>().unwrap().sid(), None);
//! assert_eq!(task.comm(), Some(&b"init"[..]));
//! assert_eq!(stream.done().tasks, 1);
//! ```

// These come first, because the other modules use their macros.
#[macro_use]
mod plain;
#[macro_use]
mod table;

pub mod buf;
pub mod decode;
pub mod device;
pub mod encode;
mod fixed;
mod groups;
mod grow;
pub mod layout;
mod names;
pub mod properties;
pub mod registry;
pub mod view;

pub use buf::AlignedBuf;
pub use decode::{Error, Stream, decode_request};
pub use encode::{StreamWriter, encode_features_request, encode_request};
pub use fixed::{BootId, Fixed};
pub use groups::Groups;
pub use layout::{
    ArrayHdr, Attribute, BlobHdr, CgroupList, CgroupMsg, Cut, Done, Entry, Features, GroupRecord,
    Info, ListEntry, MissingEntry, MissingHdr, NlAttr, NlMsgHdr, Record, Req, TaskMsg,
};
pub use names::{
    CgroupMember, ContainerPart, FdDetailKind, FdType, FileUse, Group, OwnerHow, PathKind, RanBy,
    Reason, Strategy, VMA_FLAGS, VmaFlag, VmaKind, WaitKind,
};
pub use plain::Plain;
pub use registry::{A_MISSING, Shape, Struct};
pub use view::{Blob, CgroupView, ContainerView, TaskView};

/// Makes a struct of the format from some of its members, like a struct expression with `..`.
///
/// Structs that may get more members are `#[non_exhaustive]`, so that a struct expression works in
/// this crate only. Members that are not named are those of the base, or of [`Default`] without
/// one.
///
/// ```
/// use taskdiag_wire::{Done, Info, StreamWriter, Vma, build};
///
/// let (start, end) = (0x1000, 0x3000);
/// let vma = build!(Vma { start, end, name: 7 });
/// assert_eq!((vma.end - vma.start, vma.perms), (0x2000, 0));
/// let info = build!(Info { show_flags: 1, ..StreamWriter::blank_info() });
/// assert_eq!(info.version, taskdiag_wire::VERSION);
/// let done = build!(Done { tasks: 3 });
/// assert_eq!((done.tasks, done.error), (3, 0));
/// ```
#[macro_export]
macro_rules! build {
    (@value $member:ident) => { $member };
    (@value $member:ident $value:expr) => { $value };
    (@base $name:path) => { <$name as ::core::default::Default>::default() };
    (@base $name:path, $base:expr) => { $base };
    ($name:path { $($member:ident $(: $value:expr)?),* $(, ..$base:expr)? $(,)? }) => {{
        let mut it: $name = $crate::build!(@base $name $(, $base)?);
        $(it.$member = $crate::build!(@value $member $($value)?);)*
        it
    }};
}

/// The structs and attribute types of the registry.
macro_rules! exports {
    ([] records { $($(#[$rm:meta])* $r:ident = $rn:literal $rs:ident $rc:ident $rp:tt,)* }
     lists { $($(#[$lm:meta])* $l:ident = $ln:literal $ls:ident $lc:ident $lp:tt,)* }
     blobs $blobs:tt
     attribute_records { $($(#[$arm:meta])* $ar:ident = $arn:literal $arc:ident $arg:tt,)* }
     attribute_lists { $($(#[$alm:meta])* $al:ident = $aln:literal $alc:ident $alg:tt,)* }
     attribute_blobs { $($(#[$abm:meta])* $abn:literal $abc:ident $abg:tt,)* }) => {
        pub use layout::{$($r,)* $($l,)* $($ar,)* $($al,)*};
        pub use registry::{$($arc,)* $($alc,)* $($abc,)*};
    };
}
registry!(exports);

/// `TASK_DIAG_VERSION`.
pub const VERSION: u32 = 1;
/// `TASK_DIAG_MAGIC`.
pub const MAGIC: u32 = 0x4744_4154;
/// `TASK_DIAG_BLOB_MAX`: the most data bytes in one attribute.
pub const BLOB_MAX: usize = 32768;

/// Message type of filler.
pub const NLMSG_NOOP: u16 = 1;
/// Message type of the end of a stream.
pub const NLMSG_DONE: u16 = 3;
/// Message type of a request.
pub const CMD_GET: u16 = 16;
/// Message type of the supported-features request.
pub const CMD_FEATURES: u16 = 17;
/// Message type of the head of a stream.
pub const MSG_INFO: u16 = 18;
/// Message type of a task.
pub const MSG_TASK: u16 = 19;
/// Message type of the answer to [`CMD_FEATURES`].
pub const MSG_FEATURES: u16 = 20;
/// Message type: what was removed from the stream ([`Cut`]).
pub const MSG_CUT: u16 = 21;
/// Message type: the names of a container, as blobs of [`A_CONTAINER`].
pub const MSG_CONTAINER: u16 = 22;
/// Message type: the head of the list of control groups ([`CgroupList`]).
pub const MSG_CGROUP_LIST: u16 = 23;
/// Message type: a control group ([`CgroupMsg`], then attributes).
pub const MSG_CGROUP: u16 = 24;
/// In [`CgroupList`]: hierarchies of version 1 were read, too.
pub const CG_HAS_V1: u32 = 1;
/// In [`CgroupMsg`]: version 2 has the group.
pub const CG_IS_V2: u32 = 1;
/// In [`CgroupMsg`]: the uid of its owner is known.
pub const CG_HAS_OWNER: u32 = 2;
/// In [`CgroupValue`]: there is no limit.
pub const CG_UNLIMITED: u16 = 1;
/// The uid in a [`Cut`] for users that are not named, or for data of several users.
pub const CUT_OTHERS: u32 = u32::MAX;

/// The message continues the task of the previous message.
pub const FLAG_CONT: u32 = 1;

/// The value is longer, but is cut here.
pub const BLOB_CUT: u16 = 1;
/// The process wrote over its arguments.
pub const BLOB_REWRITTEN: u16 = 2;
/// The file is no longer in the directory tree.
pub const BLOB_DELETED: u16 = 4;
/// The text that d_path() of the kernel appends to the path of such a file. A text with
/// [`BLOB_DELETED`] ends with it.
pub const DELETED: &[u8] = b" (deleted)";

/// A kernel thread.
pub const TASK_KTHREAD: u32 = 1;
/// In `do_exit()`, or a zombie.
pub const TASK_EXITING: u32 = 2;
/// The task has pages locked into memory.
pub const STAT_LOCKED: u32 = 1;
/// Threads that have ended are not in the sums of SCHED.
pub const SCHED_LIVE_ONLY: u32 = 1;
/// Signals do not end the wait, except fatal ones, which may.
pub const WAIT_UNINTERRUPTIBLE: u32 = 1;
/// The system call is one of a 32-bit program.
pub const WAIT_COMPAT: u32 = 2;

/// A mapping that can be read.
pub const VMA_READ: u32 = 1;
/// A mapping that can be written.
pub const VMA_WRITE: u32 = 2;
/// A mapping that can be executed.
pub const VMA_EXEC: u32 = 4;
/// A mapping that may be shared.
pub const VMA_SHARED: u32 = 8;
