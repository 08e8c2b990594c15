//! The properties of each group: its form, the owner of its value, the way in which it is read, its
//! readers and its cost.
//!
//! The properties stand in the group's row of the [registry](crate::registry!). Code that needs a
//! set of groups, such as all lists, takes one of the sets in this file, so that a new group is in
//! the right sets as soon as it has its row. No other place lists groups by their properties; the
//! test `sets` of this crate finds one that does.

use crate::groups::Groups;
use crate::names::Group;

/// The form of a group's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// One struct.
    Record,
    /// A list of structs.
    List,
    /// Text of any length.
    Text,
    /// Paths.
    Path,
}

/// The object of the kernel that has the values. Tasks that share the object have the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// The task, so that each thread has values of its own.
    Task,
    /// The `signal_struct`, which all threads of a process share.
    Process,
    /// The `mm_struct`, which all threads of a process share, and sometimes several processes.
    Memory,
    /// The `files_struct`. Threads share it unless one has called `unshare(CLONE_FILES)`.
    Files,
    /// The `fs_struct`, with the executable of the memory. Threads share it unless one has called
    /// `unshare(CLONE_FS)`.
    Directories,
}

/// The part of an address space that must be read for one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Walk {
    /// Nothing.
    Nothing,
    /// Every mapping.
    Mappings,
    /// Every page. Such a walk may take seconds, counts against the budget of a request, and is not
    /// done twice.
    Pages,
}

/// Whom /proc shows the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// Every user who sees the process may read it.
    Nothing,
    /// Readers that `ptrace_may_access()` or a capability lets in.
    Ptrace,
}

/// In which of the BPF programs a group is. Each program has the groups of those before it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Program {
    /// No program: BPF does not answer the group.
    Nowhere,
    /// The program that loads fastest.
    Lite,
    /// The program that reads members by offset as well.
    More,
    /// The program that names kernel types which take long to find.
    Rare,
}

/// In which lists the service shows a group to every user. Such a group needs a row in
/// `service/shown.rs` of `taskdiag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Public {
    /// In no program: the group is private.
    Never,
    /// In lists of processes and of threads.
    Always,
    /// In lists of processes only.
    OfProcesses,
    /// In lists of threads only.
    OfThreads,
}

/// The properties of a group.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Properties {
    /// The form of its value.
    pub form: Form,
    /// Which object has the value.
    pub owner: Owner,
    /// Whether an answer has the value once, and refers to it ([`Shared`](crate::Shared)) for the
    /// other tasks with the same object.
    pub shared: bool,
    /// Whether there may be data of any length after the record: ids of groups, pids of nested
    /// namespaces, paths.
    pub list_beside: bool,
    /// Whether the value of a process is a sum over its threads.
    pub sums: bool,
    /// The objects that must be read for a value.
    pub walk: Walk,
    /// Whether a read in /proc may wait for a lock of the target, or for a server of files.
    pub waits: bool,
    /// Whether `/proc/PID/stat` has the value.
    pub in_stat: bool,
    /// Whether `/proc/PID/status` has the value, or a part of it.
    pub in_status: bool,
    /// Whether the value rarely changes except by an exec.
    pub steady: bool,
    /// Whether it is in a usual table of processes. Each engine answers these groups on every
    /// kernel that it supports.
    pub usual: bool,
    /// The users to whom /proc shows the group.
    pub guard: Guard,
    /// The users to whom the service shows the group.
    pub public: Public,
    /// The BPF program that has the group.
    pub program: Program,
    /// The cost of the group. Only the ratios matter; `engine/auto/cost.rs` of `taskdiag` describes
    /// how they were measured.
    pub price: Price,
}

/// The cost of a group: CPU time in ns, and bytes of an answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Price {
    /// Time to read its file of one task in /proc. Groups that are read from one file each have the
    /// price of that file.
    pub procfs_ns: u64,
    /// Time for one task in BPF, or in the kernel engine.
    pub bpf_ns: u64,
    /// Time to verify its code when the BPF program is loaded.
    pub bpf_load_ns: u64,
    /// The usual number of bytes for one task.
    pub bytes: usize,
}

/// Time to open, read and close one file of /proc, in ns.
pub const FILE: u64 = 4_500;
/// The cost of reading `status`, for which the kernel collects more. Measured was `ps --engine
/// procfs -o pid,comm` of 5,000 processes, with and without sizes from each of them.
pub const STATUS_FILE: u64 = 7_000;
/// The cost of verifying the code of a group with text or paths.
const LOAD_TEXT: u64 = 1_000_000;

/// The properties that a row of the registry may set, with the usual value of each.
#[derive(Clone, Copy)]
struct Row {
    form: Form,
    owner: Owner,
    shared: bool,
    list_beside: bool,
    sums: bool,
    walk: Walk,
    waits: bool,
    in_stat: bool,
    in_status: bool,
    steady: bool,
    usual: bool,
    guard: Guard,
    public: Public,
    program: Program,
    procfs_ns: u64,
    bpf_ns: u64,
    bpf_load_ns: u64,
    /// The usual number of entries of a list.
    entries: usize,
    /// Bytes in addition to the record or the entries.
    more_bytes: usize,
}

impl Row {
    const fn usual(form: Form) -> Row {
        Row {
            form,
            owner: Owner::Task,
            shared: false,
            list_beside: false,
            sums: false,
            walk: Walk::Nothing,
            waits: false,
            in_stat: false,
            in_status: false,
            steady: false,
            usual: false,
            guard: Guard::Nothing,
            public: Public::Never,
            program: Program::Nowhere,
            procfs_ns: FILE,
            bpf_ns: 100,
            bpf_load_ns: 400_000,
            entries: 1,
            more_bytes: 0,
        }
    }
    /// The properties of a group whose struct has this many bytes.
    const fn properties(self, struct_bytes: usize) -> Properties {
        Properties {
            form: self.form,
            owner: self.owner,
            shared: self.shared,
            list_beside: self.list_beside,
            sums: self.sums,
            walk: self.walk,
            waits: self.waits,
            in_stat: self.in_stat,
            in_status: self.in_status,
            steady: self.steady,
            usual: self.usual,
            guard: self.guard,
            public: self.public,
            program: self.program,
            price: Price {
                procfs_ns: self.procfs_ns,
                bpf_ns: self.bpf_ns,
                bpf_load_ns: self.bpf_load_ns,
                bytes: self.entries * struct_bytes + self.more_bytes,
            },
        }
    }
}

macro_rules! properties {
    ([] records { $($(#[$rm:meta])* $r:ident = $rn:literal $rs:ident $rc:ident { $($rk:ident: $rv:expr,)* },)* }
     lists { $($(#[$lm:meta])* $l:ident = $ln:literal $ls:ident $lc:ident { $($lk:ident: $lv:expr,)* },)* }
     blobs { $($(#[$bm:meta])* $b:ident = $bn:literal $bs:ident $bc:ident { $($bk:ident: $bv:expr,)* },)* }
     attribute_records $ar:tt attribute_lists $al:tt attribute_blobs $ab:tt) => {
        /// The properties of each group, by its number.
        static ALL: [Properties; Group::ALL.len()] = OF_ALL;
        const OF_ALL: [Properties; Group::ALL.len()] = {
            let mut all = [Row::usual(Form::Record).properties(0); Group::ALL.len()];
            $(all[$rn] = Row { $($rk: $rv,)* ..Row::usual(Form::Record) }.properties(size_of::<crate::$r>());)*
            $(all[$ln] = Row { $($lk: $lv,)* ..Row::usual(Form::List) }.properties(size_of::<crate::$l>());)*
            $(all[$bn] = Row { $($bk: $bv,)* ..Row::usual(Form::Text) }.properties(0);)*
            all
        };
    };
}
crate::registry!(properties);

impl Group {
    /// The properties of this group.
    pub fn properties(self) -> &'static Properties {
        &ALL[self as usize]
    }
}

/// `NAME = |p| condition` makes the set of the groups whose properties meet the condition.
macro_rules! sets {
    ($($(#[$m:meta])* $name:ident = |$p:ident| $test:expr;)*) => {
        impl Groups {
            $($(#[$m])* pub const $name: Groups = {
                let (mut all, mut n) = (0, 0);
                while n < Group::ALL.len() {
                    let $p = &OF_ALL[n];
                    if $test {
                        all |= 1 << n;
                    }
                    n += 1;
                }
                Groups::from_bits(all)
            };)*
        }
    };
}
sets! {
    /// The groups that are lists.
    LISTS = |p| matches!(p.form, Form::List);
    /// The groups that need a look at all mappings or at all pages of a process.
    WALKS = |p| !matches!(p.walk, Walk::Nothing);
    /// The groups that need a look at all pages.
    WALKS_PAGES = |p| matches!(p.walk, Walk::Pages);
    /// The groups that may take long for one process: lists and [`WALKS`](Groups::WALKS).
    SLOW = |p| matches!(p.form, Form::List) || !matches!(p.walk, Walk::Nothing);
    /// The groups whose value is in an answer once for all tasks that share it.
    SHARED = |p| p.shared;
    /// The shared groups that belong to the memory.
    SHARED_MEMORY = |p| p.shared && matches!(p.owner, Owner::Memory);
    /// The shared groups that belong to the table of open files.
    SHARED_FILES = |p| p.shared && matches!(p.owner, Owner::Files);
    /// The lists of open files, which have sockets.
    LISTS_OF_FILES = |p| matches!(p.owner, Owner::Files) && matches!(p.form, Form::List);
    /// The groups about the memory of a task: tasks that share it have the same values.
    OF_MEMORY = |p| matches!(p.owner, Owner::Memory);
    /// The groups whose values all threads of a process share, unless one has called `unshare(2)`.
    OF_PROCESS = |p| !matches!(p.owner, Owner::Task);
    /// As [`OF_PROCESS`](Groups::OF_PROCESS), without the open files, in which a thread with its
    /// own table often differs.
    OF_ALL_THREADS = |p| !matches!(p.owner, Owner::Task | Owner::Files);
    /// The groups that are text in the memory of the task, which may have been swapped out.
    TEXTS = |p| matches!(p.form, Form::Text) && matches!(p.owner, Owner::Memory);
    /// The groups whose read in /proc may wait.
    WAITS = |p| p.waits;
    /// The groups whose read in /proc may wait for the lock of the address space.
    WAITS_FOR_MEMORY = |p| p.waits && matches!(p.owner, Owner::Memory);
    /// The groups that `/proc/PID/stat` has.
    IN_STAT = |p| p.in_stat;
    /// The groups that `/proc/PID/status` has a part of.
    IN_STATUS = |p| p.in_status;
    /// The groups whose value for a process is a sum over its threads.
    SUMS = |p| p.sums;
    /// The groups that are one struct without a list.
    FIXED_SIZE = |p| matches!(p.form, Form::Record) && !p.list_beside;
    /// The groups that /proc shows only to readers with a right.
    GUARDED = |p| matches!(p.guard, Guard::Ptrace);
    /// The groups whose values rarely change except by an exec.
    STEADY = |p| p.steady;
    /// The groups of a usual table of processes, which each engine answers.
    USUAL = |p| p.usual;
    /// The usual groups that cost at most two files of /proc.
    CHEAP = |p| p.usual && p.price.procfs_ns <= 2 * FILE;
    /// The records that the smallest BPF program writes for each task.
    LITE_RECORDS = |p| matches!(p.program, Program::Lite) && matches!(p.form, Form::Record) && !p.shared;
    /// The groups that BPF answers.
    BPF = |p| !matches!(p.program, Program::Nowhere);
    /// The groups that the smallest program has.
    BPF_LITE = |p| matches!(p.program, Program::Lite);
    /// The groups that the programs read by offset.
    BPF_MORE = |p| matches!(p.program, Program::More);
    /// The groups that need kernel types which take long to find.
    BPF_RARE = |p| matches!(p.program, Program::Rare);
    /// The groups that the service shows everyone in a list of processes.
    PUBLIC_OF_PROCESSES = |p| matches!(p.public, Public::Always | Public::OfProcesses);
    /// The groups that the service shows everyone in a list of threads.
    PUBLIC_OF_THREADS = |p| matches!(p.public, Public::Always | Public::OfThreads);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_size_as_its_usual_bytes() {
        assert_eq!(Group::Io.properties().price.bytes, size_of::<crate::Io>());
        assert_eq!(Group::Vma.properties().price.bytes, 30 * size_of::<crate::Vma>());
        assert!(Group::ALL.iter().all(|g| g.properties().price.bytes > 0));
    }

    #[test]
    fn properties_do_not_contradict_each_other() {
        for g in Group::ALL {
            let p = g.properties();
            let is_memory = p.owner == Owner::Memory;
            assert!(
                p.walk == Walk::Nothing || is_memory,
                "{g}: only memory has mappings and pages"
            );
            assert!(!p.shared || p.owner != Owner::Task, "{g}: tasks do not share what one has");
            assert!(!p.sums || p.owner == Owner::Task, "{g}: what threads share is not added up");
            assert!(!p.usual || p.walk == Walk::Nothing, "{g}: a usual table walks over nothing");
            assert!(!p.list_beside || p.form == Form::Record, "{g}: a list is not beside a list");
            let is_public = p.public != Public::Never;
            assert!(!is_public || p.guard == Guard::Nothing, "{g}: strangers may not see it");
            assert!(!is_public || p.program != Program::Nowhere, "{g}: the service asks BPF");
        }
    }

    #[test]
    fn sets_have_the_groups_of_the_earlier_lists() {
        let set = |of: &[Groups]| of.iter().fold(Groups::NONE, |all, g| all | *g);
        let usual = [Groups::BASE, Groups::CRED, Groups::STAT, Groups::STATM, Groups::CMDLINE];
        let usual = set(&usual) | Groups::PATHS | Groups::IO | Groups::SCHED;
        assert_eq!(Groups::CHEAP, usual | Groups::CGROUP);
        assert_eq!(Groups::USUAL, usual | Groups::CGROUP | Groups::NS);
        assert_eq!(Groups::TEXTS, Groups::CMDLINE | Groups::ENVIRON);
        let sums = Groups::STAT | Groups::IO | Groups::SCHED;
        assert_eq!(Groups::SUMS, sums | Groups::DELAYS);
        let memory = Groups::VMA | Groups::VMA_STAT | Groups::ROLLUP | Groups::SWAP;
        assert_eq!(Groups::SHARED_MEMORY, memory);
        assert_eq!(Groups::SHARED_FILES, Groups::FD | Groups::FD_COUNT | Groups::NET | Groups::GPU);
        assert_eq!(Groups::LISTS_OF_FILES, Groups::FD | Groups::NET | Groups::GPU);
        assert_eq!(Groups::WAITS, memory | Groups::TEXTS | Groups::LISTS_OF_FILES);
        assert_eq!(Groups::WAITS_FOR_MEMORY, memory | Groups::TEXTS);
        assert_eq!(Groups::SLOW, memory | Groups::FILE_STAT | Groups::LISTS_OF_FILES);
        let lite = set(&[Groups::BASE, Groups::CRED, Groups::STAT, Groups::STATM]);
        assert_eq!(Groups::LITE_RECORDS, lite | Groups::IO | Groups::SCHED);
        assert_eq!(Groups::OF_MEMORY & Groups::BPF_LITE, Groups::STATM | Groups::CMDLINE);
        assert_eq!(Groups::BPF_RARE, Groups::NS | Groups::CGROUP);
    }

    #[test]
    fn groups_that_the_earlier_lists_lacked_are_in_their_sets() {
        // Two sets were called WALKS. One had the groups that read all pages; the other one also
        // had the groups that read all mappings.
        assert_eq!(Groups::WALKS_PAGES, Groups::VMA_STAT | Groups::ROLLUP);
        assert_eq!(Groups::WALKS, Groups::WALKS_PAGES | Groups::VMA | Groups::SWAP);
        // Values that threads share need not be requested from each thread.
        assert!(Groups::OF_ALL_THREADS.contains(Groups::OOM | Groups::AUTOGROUP));
        assert!(!Groups::OF_ALL_THREADS.intersects(Groups::LABEL | Groups::LOGIN | Groups::FD));
        let steady = Groups::LABEL | Groups::LOGIN | Groups::AUTOGROUP;
        assert!(Groups::STEADY.contains(steady));
        // The score follows the use of memory.
        assert!(!Groups::STEADY.contains(Groups::OOM));
        assert!(Groups::GUARDED.contains(Groups::KSTACK | Groups::WALKS_PAGES));
        let records = Groups::LIMITS | Groups::SIGNALS | Groups::AUTOGROUP | Groups::LOGIN;
        assert!(Groups::FIXED_SIZE.contains(records));
        assert!(Groups::BPF_MORE.contains(Groups::PATHS));
    }

    #[test]
    fn every_bpf_group_is_in_one_program() {
        let programs = [Groups::BPF_LITE, Groups::BPF_MORE, Groups::BPF_RARE];
        assert_eq!(programs.into_iter().fold(Groups::NONE, |a, g| a | g), Groups::BPF);
        for (i, a) in programs.iter().enumerate() {
            assert!(programs[i + 1..].iter().all(|b| !a.intersects(*b)));
        }
    }
}
