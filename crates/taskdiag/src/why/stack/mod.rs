//! The stack of a sleeping thread in its program: which functions have called each other.
//!
//! The thread is neither stopped nor traced. While it sleeps, its registers and its stack do not
//! change. So they are read without stopping it, and count only if the thread has not run
//! meanwhile. This is the work of this module and not of an engine, because it needs the memory and
//! the files of a process, which no engine may wait for. All engines get the same stacks: the stack
//! pointer and the program counter come from `/proc/PID/task/TID/syscall`. The frame pointer is not
//! in /proc. BPF is asked for it if a function needs it, and if the caller's choice of engine
//! allows that.
//!
//! **A wrong frame is worse than none.** The tables for unwinding (`.eh_frame`) say where the
//! caller of a function continues. Nothing is guessed: where there is no table, where a register is
//! not known, or where the next address is not in executable memory of the process, the stack ends
//! with a [`StackEnd`].
//!
//! # Bounds
//!
//! A stack has at most [`FRAMES`] frames. At most 512 KiB of a stack are read, and of each file
//! only the tables, each up to 64 MiB. A thread may need 16 files and an answer 256 MiB. Files are
//! read into memory and not mapped, because a mapped file that somebody cuts off ends the reader by
//! SIGBUS. Everything that may wait has the limits of time of [`Limits`](super::Limits).

#[cfg(feature = "user-stack")]
mod elf;
#[cfg(feature = "user-stack")]
mod files;
#[cfg(feature = "user-stack")]
mod look;
#[cfg(feature = "user-stack")]
mod unwind;

#[cfg(feature = "user-stack")]
pub use look::Stacks;

#[cfg(not(feature = "user-stack"))]
pub use without::Stacks;

/// The largest number of frames of a stack.
pub const FRAMES: usize = 64;

/// The stack of a thread in its program, from the innermost function on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserStack {
    /// The functions, each called by the next one.
    pub frames: Vec<Frame>,
    /// Why there are no more.
    pub end: StackEnd,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// Its name as the linker knows it, which may be mangled. `None`: the file does not name it, or
    /// its table of names is too large.
    pub function: Option<Function>,
    /// The path of the file with its code, as `/proc/PID/maps` has it, or `[vdso]`.
    pub file: Vec<u8>,
    /// The address at which it continues, as the file counts: `addr2line -e FILE` takes it.
    pub address: u64,
}

/// A place in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// The name of its symbol, any bytes but NUL.
    pub name: Vec<u8>,
    /// How far the place is from its beginning, in bytes.
    pub offset_bytes: u64,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

/// Why a stack has no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StackEnd {
    /// The last frame is where the thread began.
    Complete,
    /// The task has no program: it is a kernel thread, or has ended.
    NoProgram,
    /// The thread runs, so its registers change.
    Runs,
    /// The thread ran while it was looked at, or no longer waits as the answer says.
    Changed,
    /// The reader has no right to look.
    NoRight,
    /// The memory or a file did not come in time.
    Blocked,
    /// The limit of time, files or memory was reached.
    NotLookedAt,
    /// `/proc` is of another pid namespace.
    OtherNumbers,
    /// Deeper than [`FRAMES`], or than the part of the stack that is read.
    TooDeep,
    /// A 32-bit program, or a kind of processor that is not known here.
    OtherMachine,
    /// The code is in no file, as that of a just-in-time compiler.
    NoFile,
    /// The file cannot be opened, or its path now names another file.
    OtherFile,
    /// The file is no ELF file that can be used, or its tables are too large.
    BadFile,
    /// The file has no table for unwinding that covers the code, as with programs in Go.
    NoTable,
    /// The next frame depends on a register that is not known. BPF knows the frame pointer.
    NoRegister,
    /// The memory of the stack cannot be read.
    NoMemory,
    /// The next address is no code, so a table or the stack is wrong.
    NoCode,
    /// This build has no reader of stacks: the feature `user-stack`.
    NotBuilt,
}

impl StackEnd {
    /// The name in output for programs.
    pub fn name(self) -> &'static str {
        match self {
            StackEnd::Complete => "complete",
            StackEnd::NoProgram => "no_program",
            StackEnd::Runs => "runs",
            StackEnd::Changed => "changed",
            StackEnd::NoRight => "no_right",
            StackEnd::Blocked => "blocked",
            StackEnd::NotLookedAt => "not_looked_at",
            StackEnd::OtherNumbers => "other_pid_namespace",
            StackEnd::TooDeep => "too_deep",
            StackEnd::OtherMachine => "other_machine",
            StackEnd::NoFile => "no_file",
            StackEnd::OtherFile => "other_file",
            StackEnd::BadFile => "bad_file",
            StackEnd::NoTable => "no_table",
            StackEnd::NoRegister => "no_register",
            StackEnd::NoMemory => "no_memory",
            StackEnd::NoCode => "no_code",
            StackEnd::NotBuilt => "not_built",
        }
    }
}

impl UserStack {
    /// A stack without frames, for this reason.
    fn none(end: StackEnd) -> UserStack {
        UserStack { frames: Vec::new(), end }
    }
}

#[cfg(not(feature = "user-stack"))]
mod without {
    use super::super::{Limits, Wait};
    use super::{StackEnd, UserStack};
    use crate::Choice;

    /// Stands in for the reader of stacks, which this build does not have.
    #[derive(Debug)]
    pub struct Stacks(());

    impl Stacks {
        /// Has no stacks.
        pub fn new(_: Choice, _: Limits) -> Stacks {
            Stacks(())
        }
        /// No frames, and [`StackEnd::NotBuilt`].
        pub fn of(&mut self, _: &Wait) -> UserStack {
            UserStack::none(StackEnd::NotBuilt)
        }
    }
}
