//! The one declaration of everything that a task's message can hold: groups and the attributes
//! beside them, with their numbers, and whether each is a record, a list or a blob.
//!
//! The row of a group also sets its properties: [`properties`](crate::properties) lists them, with
//! the usual value of each.
//!
//! Everything that must know all of them is made from it by a macro that
//! [`registry!`](crate::registry!) calls: the types [`Group`] and [`Groups`](crate::Groups), the
//! `A_*` constants, the decoder's checks, the crate's exports, the tests of the layout and of the
//! columns, the comparison of engines, the fuzzer, and the BPF programs' constants. So none of
//! these can miss a group: a group without its struct does not compile, and a struct without its
//! group does not, either.
//!
//! The numbers are those of `uapi/task_diag.h`; `tests/layout.rs` compares them.
//!
//! # A new member or group
//!
//! `CONTRIBUTING.md` lists the places. For the values:
//!
//! - `least` of a struct stays what it is. A member that takes the place of padding goes after the
//!   others, and `pad {}` gets empty.
//! - A member of BASE, CRED, STAT or STATM is read through `IF_BASE()` and the like, and its column
//!   names it, as in `[STAT(policy)]`.
//! - If a kernel lacks a member, assign 0 and clear its bit of `valid` (`bpf_core_field_exists()`,
//!   or `HAVE()` for a `MAY()`).
//! - A public group needs a row in `service/shown.rs` of the library. A member that /proc does not
//!   show everyone is cleared there, as `securebits` is.
//! - The kernel engine leaves a new group to the other engines until the series of `kernel/` has
//!   it.
//! - Parity of two zeros proves nothing. So a new member gets a state of mktask (`tests/mktask/`)
//!   in which it is not 0, with its `fact()` in `FACTS` of `tests/src/state.rs`. A member that one
//!   engine can never know belongs in `NOT_EVERYWHERE` of `tests/src/compare.rs`. A new parser is
//!   fuzzed from `fuzz/cases/src/lib.rs`.

/// Call `macro! { [arguments] records {...} lists {...} blobs {...} attribute_records {...}
/// attribute_lists {...} attribute_blobs {...} }` with the whole registry. A group is
/// `Type = number member CONSTANT { property: value, ... },`.
#[macro_export]
macro_rules! registry {
    ($then:path $(, $argument:tt)*) => {
        $then! {
            [$($argument)*]
            // Groups that are one struct of a fixed size.
            records {
                /// Ids, state, start time, command name.
                Base = 0 base BASE {
                    program: Program::Lite, usual: true, public: Public::Always, in_stat: true,
                },
                /// Uids, gids, capabilities, tracer.
                Cred = 1 cred CRED {
                    program: Program::Lite, usual: true, public: Public::Always, in_status: true,
                    list_beside: true, procfs_ns: STATUS_FILE, more_bytes: 24,
                },
                /// Faults, CPU time, scheduling parameters, terminal.
                Stat = 4 stat STAT {
                    program: Program::Lite, usual: true, public: Public::Always, in_stat: true,
                    sums: true,
                },
                /// Size of the address space.
                Statm = 5 statm STATM {
                    owner: Owner::Memory, program: Program::Lite, usual: true,
                    public: Public::Always, in_status: true, procfs_ns: STATUS_FILE,
                },
                /// Bytes and calls of I/O.
                Io = 8 io IO {
                    guard: Guard::Ptrace, program: Program::Lite, usual: true, sums: true,
                    procfs_ns: 3_300,
                },
                /// Run time, run delay, context switches.
                Sched = 9 sched SCHED {
                    program: Program::Lite, usual: true, public: Public::OfThreads, in_status: true,
                    sums: true, procfs_ns: 2 * FILE,
                },
                /// Namespaces.
                Ns = 10 ns NS {
                    guard: Guard::Ptrace, program: Program::Rare, usual: true, steady: true,
                    in_status: true, list_beside: true, bpf_ns: 300, procfs_ns: 4 * FILE,
                },
                /// Control groups.
                Cgroup = 11 cgroup CGROUP {
                    program: Program::Rare, usual: true, steady: true, list_beside: true,
                    bpf_ns: 4_000, bpf_load_ns: LOAD_TEXT, more_bytes: 320,
                },
                /// Resource limits.
                Limits = 14 limits LIMITS {
                    owner: Owner::Process, program: Program::More, public: Public::Always,
                    steady: true, procfs_ns: 5_500,
                },
                /// Signal masks.
                Signals = 15 signals SIGNALS {
                    program: Program::More, public: Public::Always, in_status: true,
                    procfs_ns: STATUS_FILE,
                },
                /// Number of open files.
                FdCount = 16 fd_count FD_COUNT {
                    owner: Owner::Files, shared: true, program: Program::Lite,
                    in_status: true, procfs_ns: 1_800,
                },
                /// Memory use of all mappings together.
                Rollup = 17 rollup ROLLUP {
                    owner: Owner::Memory, shared: true, walk: Walk::Pages, waits: true,
                    guard: Guard::Ptrace, bpf_ns: 25_000, procfs_ns: 32_000,
                },
                /// Amount of swapped-out memory.
                Swap = 18 swap SWAP {
                    owner: Owner::Memory, shared: true, walk: Walk::Mappings, waits: true,
                    in_status: true, procfs_ns: STATUS_FILE,
                },
                /// How soon it is killed when memory runs out.
                Oom = 22 oom OOM {
                    owner: Owner::Process, procfs_ns: 2 * FILE,
                },
                /// The group of tasks that it shares CPU time with.
                Autogroup = 24 autogroup AUTOGROUP {
                    owner: Owner::Process, program: Program::More, steady: true,
                },
                /// Who logged in, and the number of the audit session.
                Login = 25 login LOGIN {
                    program: Program::More, public: Public::Always, steady: true,
                    procfs_ns: 2 * FILE,
                },
                /// Addresses of the program's code and of its stack.
                Layout = 26 layout LAYOUT {
                    owner: Owner::Memory, guard: Guard::Ptrace, program: Program::More,
                    steady: true, procfs_ns: FILE,
                },
                /// Why it does not run, since when, and who keeps it waiting.
                Wait = 27 wait WAIT {
                    guard: Guard::Ptrace, program: Program::More, bpf_ns: 1_500,
                    procfs_ns: 4 * FILE,
                },
                /// How long it has waited for a CPU, disks and memory.
                Delays = 28 delays DELAYS {
                    program: Program::More, sums: true, procfs_ns: 2 * FILE,
                },
                /// Inode numbers of its pidfds.
                Pidfd = 31 pidfd PIDFD {
                    program: Program::More, steady: true,
                },
                /// What it has set for itself, or was set for it.
                Settings = 32 settings SETTINGS {
                    program: Program::More, in_status: true, list_beside: true,
                    procfs_ns: STATUS_FILE, more_bytes: 64,
                },
                /// Personality, timer slack, maps of ids.
                Persona = 33 persona PERSONA {
                    guard: Guard::Ptrace, program: Program::More, steady: true, list_beside: true,
                    procfs_ns: 4 * FILE, more_bytes: 96,
                },
                /// Numbers of its namespaces that are not used again.
                NsId = 35 ns_id NS_ID {
                    guard: Guard::Ptrace, program: Program::More, steady: true,
                    procfs_ns: 10 * FILE,
                },
            }
            // Groups that are a list of such structs.
            lists {
                /// Memory mappings.
                Vma = 2 vma VMA {
                    owner: Owner::Memory, shared: true, walk: Walk::Mappings, waits: true,
                    guard: Guard::Ptrace, program: Program::More, bpf_ns: 6_000,
                    bpf_load_ns: 2_000_000, procfs_ns: 25_000, entries: 30,
                },
                /// Memory use per mapping.
                VmaStat = 3 vma_stat VMA_STAT {
                    owner: Owner::Memory, shared: true, walk: Walk::Pages, waits: true,
                    guard: Guard::Ptrace, bpf_ns: 100_000, procfs_ns: 165_000, entries: 30,
                },
                /// Open files.
                Fd = 12 fd FD {
                    owner: Owner::Files, shared: true, waits: true, guard: Guard::Ptrace,
                    program: Program::More, bpf_ns: 3_000, bpf_load_ns: 3_000_000,
                    procfs_ns: 33_000, entries: 12,
                },
                /// Device, inode and size of executable, working directory, root and mapped files.
                FileStat = 21 file_stat FILE_STAT {
                    owner: Owner::Directories, guard: Guard::Ptrace, program: Program::More,
                    bpf_ns: 300, procfs_ns: 4_300, entries: 3, more_bytes: 24,
                },
                /// What has gone over each open socket.
                Net = 29 net NET {
                    owner: Owner::Files, shared: true, waits: true, guard: Guard::Ptrace,
                    program: Program::More, bpf_ns: 800, bpf_load_ns: 1_500_000,
                    procfs_ns: 16_000, entries: 2,
                },
                /// Engines and memory of graphics processors that it uses.
                Gpu = 30 gpu GPU {
                    owner: Owner::Files, shared: true, waits: true, guard: Guard::Ptrace,
                    procfs_ns: 12_000,
                },
            }
            // Groups that are data of variable length.
            blobs {
                /// Arguments.
                Cmdline = 6 cmdline CMDLINE {
                    owner: Owner::Memory, waits: true, program: Program::Lite, usual: true,
                    public: Public::OfProcesses, steady: true, bpf_ns: 1_500,
                    bpf_load_ns: LOAD_TEXT, more_bytes: 96,
                },
                /// Executable, working directory, root.
                Paths = 7 paths PATHS {
                    form: Form::Path, owner: Owner::Directories, guard: Guard::Ptrace,
                    program: Program::More, usual: true, steady: true, bpf_ns: 1_500,
                    bpf_load_ns: 1_400_000, procfs_ns: 4_200, more_bytes: 160,
                },
                /// Environment.
                Environ = 13 environ ENVIRON {
                    owner: Owner::Memory, waits: true, guard: Guard::Ptrace, program: Program::More,
                    steady: true, bpf_ns: 1_500, bpf_load_ns: LOAD_TEXT, procfs_ns: 5_800,
                    more_bytes: 1024,
                },
                /// The kernel function it sleeps in.
                Wchan = 19 wchan WCHAN {
                    guard: Guard::Ptrace, program: Program::More, procfs_ns: 3_700, more_bytes: 80,
                },
                /// The kernel's stack.
                Kstack = 20 kstack KSTACK {
                    guard: Guard::Ptrace, program: Program::More, bpf_ns: 1_500, procfs_ns: 5_300,
                    more_bytes: 80,
                },
                /// Its domain in the security module.
                Label = 23 label LABEL {
                    steady: true, more_bytes: 80,
                },
                /// The path of its cpuset.
                Cpuset = 34 cpuset CPUSET {
                    steady: true, more_bytes: 40,
                },
            }
            // Other attributes, each with the group whose value it is a part of. An attribute that
            // is not a part of a value has no group.
            attribute_records {
                /// Attribute type of [`Shared`](crate::Shared).
                Shared = 69 A_SHARED [],
            }
            attribute_lists {
                /// Attribute type of the list of sockets.
                Socket = 70 A_SOCKET [Fd],
                /// Attribute type of the list of details of descriptors.
                FdDetail = 71 A_FD_DETAIL [Fd],
                /// Attribute type of the list of values of a control group.
                CgroupValue = 78 A_CGROUP_VALUE [],
            }
            attribute_blobs {
                /// Attribute type of the supplementary gids.
                65 A_GROUPS [Cred],
                /// Attribute type of the chain of pids.
                66 A_NSPID [Ns],
                /// Attribute type of a cgroup path.
                67 A_CGROUP_PATH [Cgroup],
                /// Attribute type of a name that others refer to by number.
                68 A_NAME [],
                /// Attribute type of a command name that BASE has no room for.
                72 A_COMM [Base],
                /// Attribute type of a value about a container.
                73 A_CONTAINER [],
                /// Attribute type of the processors that it may run on.
                74 A_CPUS [Settings],
                /// Attribute type of the NUMA nodes that it may have memory of.
                75 A_MEMS [Settings],
                /// Attribute type of the map of uids of its user namespace.
                76 A_UID_MAP [Persona],
                /// Attribute type of the map of gids of its user namespace.
                77 A_GID_MAP [Persona],
                /// Attribute type of the path of a control group in MSG_CGROUP.
                79 A_CGROUP_NAME [],
            }
        }
    };
}

/// Call `macro!(Base Cred ...)` with the structs of all groups that are records.
#[macro_export]
macro_rules! for_each_record {
    ($then:path) => {
        $crate::registry!($crate::__only_records, $then);
    };
}

/// Call `macro!(Vma Socket ...)` with the entries of all lists, including those of attributes.
#[macro_export]
macro_rules! for_each_list {
    ($then:path) => {
        $crate::registry!($crate::__only_lists, $then);
    };
}

// `for_each_record!` and `for_each_list!` call these two in the crate that uses them, so they must
// be exported, too. They are not meant to be called by hand.
#[doc(hidden)]
#[macro_export]
macro_rules! __only_records {
    ([$then:path] records { $($(#[$m:meta])* $r:ident = $n:literal $s:ident $c:ident $p:tt,)* } $($rest:tt)*) => {
        $then!($($r)*);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __only_lists {
    ([$then:path] records $records:tt
     lists { $($(#[$m:meta])* $l:ident = $n:literal $s:ident $c:ident $p:tt,)* } blobs $blobs:tt
     attribute_records $ar:tt
     attribute_lists { $($(#[$am:meta])* $al:ident = $an:literal $ac:ident $ag:tt,)* } $($rest:tt)*) => {
        $then!($($l)* $($al)*);
    };
}

use crate::layout::{Attribute, CStruct};
use crate::names::Group;

/// The structs of an attribute.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Shape {
    /// A struct with an `nlattr` at its beginning.
    Record(&'static CStruct),
    /// A list of such entries.
    List(&'static CStruct),
    /// Data of variable length.
    Blob,
}

/// A struct of the registry, for code that looks at any of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Struct {
    /// Type of its attribute.
    pub kind: u16,
    /// Its name in Rust.
    pub name: &'static str,
    /// Its members and sizes.
    pub table: &'static CStruct,
    /// Is it the entry of a list?
    pub is_list: bool,
}

macro_rules! shapes {
    ([] records { $($(#[$rm:meta])* $r:ident = $rn:literal $rs:ident $rc:ident $rp:tt,)* }
     lists { $($(#[$lm:meta])* $l:ident = $ln:literal $ls:ident $lc:ident $lp:tt,)* }
     blobs { $($(#[$bm:meta])* $b:ident = $bn:literal $bs:ident $bc:ident $bp:tt,)* }
     attribute_records { $($(#[$arm:meta])* $ar:ident = $arn:literal $arc:ident [$($arg:ident)?],)* }
     attribute_lists { $($(#[$alm:meta])* $al:ident = $aln:literal $alc:ident [$($alg:ident)?],)* }
     attribute_blobs { $($(#[$abm:meta])* $abn:literal $abc:ident [$($abg:ident)?],)* }) => {
        $($(#[$arm])* pub const $arc: u16 = $arn;)*
        $($(#[$alm])* pub const $alc: u16 = $aln;)*
        $($(#[$abm])* pub const $abc: u16 = $abn;)*

        $(impl Attribute for crate::$r {
            const TYPE: u16 = $rn;
            const TABLE: &'static CStruct = &crate::$r::C;
        })*
        $(impl Attribute for crate::$l {
            const TYPE: u16 = $ln;
            const TABLE: &'static CStruct = &crate::$l::C;
        })*
        $(impl Attribute for crate::$ar {
            const TYPE: u16 = $arn;
            const TABLE: &'static CStruct = &crate::$ar::C;
        })*
        $(impl Attribute for crate::$al {
            const TYPE: u16 = $aln;
            const TABLE: &'static CStruct = &crate::$al::C;
        })*

        /// The structs of an attribute of this type. `None` if the type is not known, or is
        /// MISSING, which is a list of another kind.
        pub const fn shape(kind: u16) -> Option<Shape> {
            Some(match kind {
                $($rn => Shape::Record(&crate::$r::C),)*
                $($ln => Shape::List(&crate::$l::C),)*
                $($bn => Shape::Blob,)*
                $($arn => Shape::Record(&crate::$ar::C),)*
                $($aln => Shape::List(&crate::$al::C),)*
                $($abn => Shape::Blob,)*
                _ => return None,
            })
        }

        /// The group whose value an attribute of this type is, or is a part of. `None`: the type is
        /// not known, or the attribute says something about values (MISSING, SHARED) or about the
        /// stream (NAME).
        pub const fn group_of(kind: u16) -> Option<Group> {
            match kind {
                $($rn => Some(Group::$r),)*
                $($ln => Some(Group::$l),)*
                $($bn => Some(Group::$b),)*
                $($($arn => Some(Group::$arg),)?)*
                $($($aln => Some(Group::$alg),)?)*
                $($($abn => Some(Group::$abg),)?)*
                _ => None,
            }
        }

        /// All records and entries of lists, with the groups first.
        pub const STRUCTS: &[Struct] = &[
            $(Struct { kind: $rn, name: stringify!($r), table: &crate::$r::C, is_list: false },)*
            $(Struct { kind: $ln, name: stringify!($l), table: &crate::$l::C, is_list: true },)*
            $(Struct { kind: $arn, name: stringify!($ar), table: &crate::$ar::C, is_list: false },)*
            $(Struct { kind: $aln, name: stringify!($al), table: &crate::$al::C, is_list: true },)*
        ];

        /// The types of attributes in addition to the groups, with their names in the header.
        pub const ATTRIBUTES: &[(&str, u16)] = &[
            ("A_MISSING", A_MISSING),
            $((stringify!($arc), $arn),)* $((stringify!($alc), $aln),)* $((stringify!($abc), $abn),)*
        ];
    };
}
registry!(shapes);

/// Attribute type of the list of missing groups.
pub const A_MISSING: u16 = 64;
