//! Joins the open files of an answer: the process, the descriptor, data from other lists of the
//! answer (socket, details, name), and the processes at the other end of a pipe or socket.
//!
//! A table of open files that threads share is listed once, with the number of these threads.
//! Working directory, root, executable and mapped files of a process are rows, too, if the answer
//! has them, because they keep a file in use like a descriptor. This module only reads the answer,
//! and prints nothing.

mod detail;
mod ends;
mod holders;
mod locks;
mod name;
mod row;
mod socket;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use taskdiag_wire::{
    Entry, Fd, FdDetail, FileStat, FileUse, Group, Groups, Net, PathKind, Reason, Socket, TaskView,
    Vma, VmaKind,
};

use crate::field::Row;
use crate::snapshot::Snapshot;

pub use crate::engine::numbering::is_numbered_as_proc;
pub use crate::engine::procfs::{BoundSocket, bound_sockets, unix_addresses};
pub(crate) use detail::{bpf_type, clock, watches};
pub use ends::{End, Ends};
pub use holders::{Gap, Holder, Holders, holders};
pub use locks::{Lock, Locked, Locks};
pub(crate) use row::never_linked;
pub use row::{Access, OpenFile, PathName, What, major_minor};
pub(crate) use socket::write_inet;
pub use socket::{
    Side, address, address_text, is_inet, is_multipath, protocol, scope, state, write_address,
};
pub use words::{TYPES, family_name, protocol_name, state_name, state_number};

/// A process, or a thread with files of its own, and the data to list its files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Owner<'a> {
    /// The process or thread, and its records.
    pub row: Row<'a>,
    /// The table of open files, and the number of tasks that share it. `None` if the answer lacks
    /// it.
    pub table: Option<Holder<'a>>,
    /// The sockets in the order of fd.
    sockets: Vec<Entry<'a, Socket>>,
    details: Vec<Entry<'a, FdDetail>>,
    /// The traffic of the sockets, in the same order.
    net: Vec<Entry<'a, Net>>,
    /// The task that has the paths and the mappings of the process. Only the first owner of a
    /// process has it, because paths and mappings belong to the process and not to a table.
    paths: Option<TaskView<'a>>,
    memory: Option<TaskView<'a>>,
    /// Is this a thread whose directory differs from that of its process?
    has_own_paths: bool,
    /// Has /proc the same numbers as the answer?
    is_in_proc: bool,
}

/// The open files of an answer.
#[derive(Debug)]
pub struct Files<'a> {
    owners: Vec<Owner<'a>>,
    gaps: Vec<Gap<'a>>,
    doubts: Vec<Gap<'a>>,
    ends: OnceLock<Ends>,
    /// Whether the engine lacks FILE_STAT, as `/proc/task_diag` does. Paths and mappings then have
    /// no file type.
    pub(crate) without_stat: bool,
    /// The mapped files, by device and inode.
    mapped: HashMap<(u32, u64), Entry<'a, FileStat>>,
    /// The network namespace that is left out of the names of sockets. `None`: all names show
    /// theirs.
    pub own_netns: Option<u32>,
    /// The locks on files. `None` if they are not known, as for a saved answer.
    pub locks: Option<Locks>,
}

impl<'a> Files<'a> {
    /// The groups whose rows this lists, and those that describe the rows. The set is written by
    /// hand: it is what `new()` reads.
    pub const GROUPS: Groups =
        Groups::FD.union(Groups::PATHS).union(Groups::VMA).union(Groups::FILE_STAT);

    /// Joins the lists of an answer. It costs a pass over the answer, and memory for each process,
    /// socket and detail, but not for each file.
    pub fn new(snapshot: &'a Snapshot) -> Files<'a> {
        let (mut doubts, mut tables, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        if snapshot.stream().asked().has(Group::Fd) {
            let holders;
            (holders, gaps) = Holders::new(snapshot, Group::Fd);
            doubts.extend_from_slice(holders.doubts());
            tables.extend(holders.iter());
        }
        let mut owners: Vec<Owner<'a>> = tables
            .into_iter()
            .map(|table| Owner {
                sockets: sorted(table.owner.list::<Socket>(), |s| s.raw.fd),
                details: sorted(table.owner.list::<FdDetail>(), |d| d.raw.fd),
                net: sorted(net_of(&table), |n| n.raw.fd),
                ..Owner::new(table.task, Some(table))
            })
            .collect();
        // Processes without descriptors in the answer may have paths and mappings in it.
        let listed: HashSet<u32> = owners.iter().map(|o| o.row.view.tgid()).collect();
        let rest = snapshot.tasks().filter(|t| t.is_leader() && !listed.contains(&t.tgid()));
        owners.extend(rest.map(|t| Owner::new(t, None)));
        let (wanderers, proxies) = wanderers(snapshot);
        if !wanderers.is_empty() || !proxies.is_empty() {
            let own_table: HashSet<u32> = owners.iter().map(|o| o.row.view.pid()).collect();
            let others = wanderers.iter().chain(&proxies);
            let others: Vec<_> = others.filter(|t| !own_table.contains(&t.pid())).collect();
            owners.extend(others.into_iter().map(|t| Owner::new(*t, None)));
        }
        owners.sort_by_key(|o| {
            let t = &o.row.view;
            (t.tgid(), !t.is_leader(), t.pid())
        });
        if snapshot.stream().asked().has(Group::Paths) {
            first_of_process(&mut owners, |o| {
                o.paths = Some(o.row.view).filter(has_paths);
                o.paths.is_some()
            });
            let elsewhere: HashSet<u32> = wanderers.iter().map(|t| t.pid()).collect();
            for o in owners.iter_mut().filter(|o| elsewhere.contains(&o.row.view.pid())) {
                (o.paths, o.has_own_paths) = (Some(o.row.view), true);
            }
            let leaders = snapshot.tasks().filter(|t| t.is_leader());
            gaps.extend(leaders.filter_map(|task| {
                let reason = task.reason(Group::Paths)?;
                Some(Gap { task, group: Group::Paths, reason })
            }));
        }
        let mut of_mapped = HashMap::new();
        if snapshot.stream().asked().contains(Groups::VMA | Groups::FILE_STAT) {
            let lists = snapshot.tasks().filter_map(|t| t.list::<FileStat>()).flatten();
            let mapped = lists.filter(|s| s.raw.r#as == FileUse::Mapped as u32);
            of_mapped.extend(mapped.map(|s| ((s.raw.dev, s.raw.inode), s)));
        }
        if snapshot.stream().asked().has(Group::Vma) {
            let (memory, lacking) = holders(snapshot, Group::Vma);
            let memory: HashMap<u32, TaskView<'a>> =
                memory.into_iter().map(|m| (m.task.tgid(), m.owner)).collect();
            first_of_process(&mut owners, |o| {
                o.memory = memory.get(&o.row.view.tgid()).copied();
                o.memory.is_some()
            });
            gaps.extend(lacking);
        }
        gaps.retain(|g| g.reason != Reason::Absent);
        let is_in_proc = is_numbered_as_proc(snapshot);
        owners.iter_mut().for_each(|o| o.is_in_proc = is_in_proc);
        let asked = snapshot.stream().asked();
        let by_kernel = snapshot.stream().info().kernel_groups != 0;
        Files {
            owners,
            gaps,
            doubts,
            ends: OnceLock::new(),
            without_stat: by_kernel && !asked.has(Group::FileStat),
            mapped: of_mapped,
            own_netns: None,
            locks: None,
        }
    }
    /// The processes, and the threads that have files of their own, by pid.
    pub fn owners(&self) -> &[Owner<'a>] {
        &self.owners
    }
    /// The threads that may or may not share the files of their process, and why that is not known.
    pub fn doubts(&self) -> &[Gap<'a>] {
        &self.doubts
    }
    /// The tasks whose files are not in the answer, with the reason. A task may appear once for
    /// each group. Tasks that cannot have files are left out.
    pub fn gaps(&self) -> &[Gap<'a>] {
        &self.gaps
    }
    /// The network namespaces of the sockets, starting with the one of the first process. Some may
    /// be repeated.
    pub fn netns(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.owners.iter().flat_map(|o| &o.sockets).filter_map(|s| s.netns());
        let mut last = None;
        all.filter(move |n| *n != 0 && last.replace(*n) != Some(*n))
    }
    /// The files of an owner: paths, mapped files, descriptors.
    pub fn of(&'a self, owner: &'a Owner<'a>) -> impl Iterator<Item = OpenFile<'a>> + use<'a> {
        let program = program(owner);
        // The program belongs to the process, even if a thread has a directory of its own.
        let of_process = !owner.has_own_paths;
        let paths = owner.paths.into_iter().flat_map(move |task| {
            let kinds = [PathKind::Cwd, PathKind::Root, PathKind::Exe].into_iter();
            let kinds = kinds.filter(move |k| of_process || *k != PathKind::Exe);
            kinds.filter_map(move |kind| {
                let mapping = program.filter(|_| kind == PathKind::Exe);
                let path = PathName::of_path(&task, kind)?;
                Some((What::Path(kind, mapping), Some(path), stat_of(&task, kind)))
            })
        });
        // Neighbours often have the same name.
        let task = owner.row.view;
        let mut last: (u32, Option<PathName<'a>>) = (0, None);
        let mut named = move |number: Option<u32>| {
            let number = number.unwrap_or(0);
            if number != last.0 {
                last = (number, PathName::find(&task, number));
            }
            last.1
        };
        let mut also = named;
        let mapped = owner.memory.into_iter().flat_map(|t| mapped(&t));
        // As in lsof, a mapping of the program is left out, because the program has a row of its
        // own.
        let file = |v: &Entry<'_, Vma>| (v.raw.dev, v.raw.inode, v.raw.name);
        let mapped = mapped.filter(move |v| program.is_none_or(|p| file(&p) != file(v)));
        let mapped = mapped.map(move |vma| {
            let stat = self.mapped.get(&(vma.raw.dev, vma.raw.inode)).copied();
            (What::Mapped(vma), also(vma.name()), stat)
        });
        let fds = owner.table.iter().filter_map(|t| t.owner.list::<Fd>()).flatten();
        let fds = fds.map(move |fd| (What::Fd(fd), named(fd.name()), None));
        let all = paths.chain(mapped).chain(fds);
        all.map(move |(what, path, stat)| OpenFile { owner, what, path, stat })
    }
    /// The ends of each pipe and socket. The index is made on first use.
    pub fn ends(&self) -> &Ends {
        self.ends.get_or_init(|| Ends::new(&self.owners))
    }
}

impl<'a> Owner<'a> {
    fn new(task: TaskView<'a>, table: Option<Holder<'a>>) -> Owner<'a> {
        Owner {
            row: Row::new(task),
            table,
            sockets: Vec::new(),
            details: Vec::new(),
            net: Vec::new(),
            paths: None,
            memory: None,
            has_own_paths: false,
            is_in_proc: false,
        }
    }
    /// The directory of the task in /proc. `None` if its number may be that of another task there:
    /// the answer was saved, or its numbers are those of our pid namespace and /proc belongs to
    /// another one.
    pub fn proc_dir(&self) -> Option<String> {
        self.is_in_proc.then(|| format!("/proc/{}", self.row.view.pid()))
    }
    /// The directory of the process of the task in /proc, under the same condition.
    pub fn proc_dir_of_process(&self) -> Option<String> {
        self.is_in_proc.then(|| format!("/proc/{}", self.row.view.tgid()))
    }
    /// Whether this thread has files or directories of its own, which threads usually share.
    pub fn is_unshared(&self) -> bool {
        self.has_own_paths || self.table.as_ref().is_some_and(Holder::is_unshared)
    }
    /// Whether this thread has a working or root directory of its own.
    pub fn has_own_paths(&self) -> bool {
        self.has_own_paths
    }
    /// The sockets, in the order of their descriptors.
    pub(crate) fn sockets(&self) -> &[Entry<'a, Socket>] {
        &self.sockets
    }
    /// The socket of a descriptor.
    pub fn socket(&self, fd: u32) -> Option<Entry<'a, Socket>> {
        let at = self.sockets.partition_point(|s| s.raw.fd < fd);
        self.sockets.get(at).filter(|s| s.raw.fd == fd).copied()
    }
    /// The traffic of the socket of a descriptor, if it is still the socket with this inode.
    pub fn net(&self, fd: u32, inode: u64) -> Option<Entry<'a, Net>> {
        let at = self.net.partition_point(|n| n.raw.fd < fd);
        self.net.get(at).filter(|n| n.raw.fd == fd && n.raw.inode == inode).copied()
    }
    /// The details of a descriptor.
    pub fn details(&self, fd: u32) -> &[Entry<'a, FdDetail>] {
        let from = self.details.partition_point(|d| d.raw.fd < fd);
        let to = self.details.partition_point(|d| d.raw.fd <= fd);
        &self.details[from..to]
    }
}

/// The traffic of the sockets of a table. The task with the NET group may be another one than the
/// task with the files.
fn net_of<'a>(table: &Holder<'a>) -> Option<impl Iterator<Item = Entry<'a, Net>> + use<'a>> {
    table.owner.owner(Group::Net)?.list::<Net>()
}

/// Whether it has directories. A first thread that has ended has no paths, and each of them is
/// marked as absent.
fn has_paths(task: &TaskView<'_>) -> bool {
    task.blobs(Group::Paths as u16).any(|(hdr, _)| hdr.reason != Reason::Absent as u16)
}

/// The threads with another working or root directory than their process, because they unshared it
/// (`CLONE_FS`). Where the first thread of a process has ended, also a thread that still has its
/// directories.
fn wanderers<'a>(snapshot: &'a Snapshot) -> (Vec<TaskView<'a>>, Vec<TaskView<'a>>) {
    let threads = snapshot.stream().strategy().is_threads();
    if !threads || !snapshot.stream().asked().has(Group::Paths) {
        return (Vec::new(), Vec::new());
    }
    let places = |t: &TaskView<'a>| {
        let of = |kind| PathName::of_path(t, kind).filter(|p| p.reason.is_none());
        let inode = |kind| stat_of(t, kind).and_then(|s| s.dev().zip(s.inode()));
        [PathKind::Cwd, PathKind::Root].map(|kind| (of(kind), inode(kind)))
    };
    // The leader, or else the first thread that has directories.
    let mut first: HashMap<u32, TaskView<'a>> = HashMap::new();
    for t in snapshot.tasks().filter(has_paths) {
        let rank = |t: &TaskView<'_>| (!t.is_leader(), t.pid());
        let best = first.entry(t.tgid()).or_insert(t);
        if rank(&t) < rank(best) {
            *best = t;
        }
    }
    let of_process: HashMap<u32, _> = first.iter().map(|(tgid, t)| (*tgid, places(t))).collect();
    let differ = |t: &TaskView<'a>| {
        let Some(process) = of_process.get(&t.tgid()) else { return false };
        places(t).iter().zip(process).any(|(own, its)| {
            let path = own.0.zip(its.0).is_some_and(|(a, b)| a != b);
            path || own.1.zip(its.1).is_some_and(|(a, b)| a != b)
        })
    };
    let wanderers = snapshot.tasks().filter(|t| !t.is_leader()).filter(differ).collect();
    (wanderers, first.into_values().filter(|t| !t.is_leader()).collect())
}

/// Calls `take` for the owners of each process in turn, until one of them accepts.
fn first_of_process<'a>(owners: &mut [Owner<'a>], mut take: impl FnMut(&mut Owner<'a>) -> bool) {
    let mut done = None;
    for o in owners {
        let tgid = o.row.view.tgid();
        if done != Some(tgid) && take(o) {
            done = Some(tgid);
        }
    }
}

/// The FILE_STAT data for a path of a process.
fn stat_of<'a>(task: &TaskView<'a>, kind: PathKind) -> Option<Entry<'a, FileStat>> {
    let r#as = match kind {
        PathKind::Exe => FileUse::Exe,
        PathKind::Cwd => FileUse::Cwd,
        PathKind::Root => FileUse::Root,
        _ => return None,
    };
    task.list::<FileStat>()?.find(|s| s.raw.r#as == r#as as u32)
}

/// A list sorted by descriptor. The engines write it sorted, but an untrusted stream may not be.
fn sorted<'a, T>(
    list: Option<impl Iterator<Item = Entry<'a, T>>>,
    fd: impl Fn(&Entry<'a, T>) -> u32,
) -> Vec<Entry<'a, T>> {
    let mut all: Vec<_> = list.into_iter().flatten().collect();
    if !all.is_sorted_by_key(&fd) {
        all.sort_by_key(&fd);
    }
    all
}

/// A mapping of the program that a process runs. It has the same path as the program and is usually
/// the first one. It has the device and the inode of the program.
fn program<'a>(owner: &Owner<'a>) -> Option<Entry<'a, Vma>> {
    let exe = PathName::of_path(owner.paths.as_ref()?, PathKind::Exe)?;
    let memory = owner.memory.as_ref()?;
    let files = mapped(memory).filter(|v| v.inode().is_some_and(|i| i != 0));
    let mut named = files.filter_map(|v| Some((v, PathName::find(memory, v.name()?)?)));
    named.find(|(_, name)| exe.reason.is_none() && !exe.cut && *name == exe).map(|(v, _)| v)
}

/// The mapped files of a process, each once, with its first mapping.
fn mapped<'a>(task: &TaskView<'a>) -> impl Iterator<Item = Entry<'a, Vma>> + use<'a> {
    let mut seen = HashSet::new();
    let files = task.list::<Vma>().into_iter().flatten();
    files.filter(move |v| {
        v.raw.kind == VmaKind::File as u32 && seen.insert((v.raw.dev, v.raw.inode, v.raw.name))
    })
}
