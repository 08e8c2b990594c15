//! Cgroups as rows: the limits of each, its use of resources, and how often it had to wait for
//! them.
//!
//! [`Cgroups::read`] reads the cgroups that this process sees, from the files of version 2, and of
//! version 1 where a controller is still there. A [`Session`] keeps the files open, and its
//! listings know how much each counter has grown. Only the [`Files`] that are asked for are read.
//!
//! - `members` has the values, and the file of each;
//! - `parse` turns the text of files into values;
//! - `hierarchy` finds the mounted hierarchies;
//! - `kept` puts a listing into a stream, for a recording, and takes it out again;
//! - `walk` goes through the directories, in the order of `queue`, and `read` reads one of them.
//!
//! The module [`cgroup`](crate::cgroup) is about the meaning of a path. Which cgroup a task is in
//! is a column of tasks.
//!
//! ```
//! use taskdiag::cgroups::{Bounds, Cgroups, Files, Member};
//!
//! let files = Files::CPU_STAT.union(Files::MEMORY_CURRENT);
//! if let Ok(all) = Cgroups::read(files, Bounds::default()) {
//!     for cgroup in all.list() {
//!         let path = String::from_utf8_lossy(cgroup.path());
//!         println!("{path} {:?}", cgroup.get(Member::Memory));
//!     }
//! }
//! ```

mod hierarchy;
mod members;
mod parse;
mod queue;
mod read;
mod saved;
mod value;
mod walk;

pub use members::{Files, Member, TYPES};
pub use value::Known;
pub use walk::{Bounds, LeftOut};

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use taskdiag_wire::Reason;

use self::hierarchy::Hierarchy;
use self::read::Reader;
use self::value::Values;
use self::walk::{List, OpenCgroups, Walk, bit, is_about_us, since_boot};
use crate::error::Error;
use crate::snapshot::Snapshot;

/// A cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: Vec<u8>,
    id: u64,
    /// The uid of its owner. `None`: a recording does not have it.
    owner: Option<u32>,
    /// As in [`walk::ReadCgroup`].
    hierarchies: u64,
    is_v2: bool,
    level: usize,
    parent: Option<usize>,
    /// When its files were read, since boot.
    at: Duration,
    values: Arc<Values>,
    earlier: Option<(Duration, Arc<Values>)>,
}

impl Cgroup {
    /// The path of the cgroup from the root that this process sees, as in `/proc/PID/cgroup`. It
    /// may have any bytes but NUL.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
    /// The last part of the path; `/` for the root.
    pub fn name(&self) -> &[u8] {
        match self.path.iter().rposition(|b| *b == b'/') {
            Some(at) if self.path.len() > 1 => &self.path[at + 1..],
            _ => &self.path,
        }
    }
    /// The inode number of its directory, in version 2 also the id that BPF programs see. 0: not
    /// known, because the directory cannot be opened.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The uid of the user who could have made it. On the path from the root to it, this is the
    /// owner of the first directory that does not belong to the owner of the root. Owners have
    /// equal shares of a bounded listing. `None`: it is of a recording that does not have it.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }
    /// How many levels it is below the root.
    pub fn level(&self) -> usize {
        self.level
    }
    /// The place of its parent in the list. `None`: the parent is not in the list.
    pub fn parent(&self) -> Option<usize> {
        self.parent
    }
    /// Does version 2 have it? Otherwise only hierarchies of version 1 do.
    pub fn is_of_version_2(&self) -> bool {
        self.is_v2
    }
    /// A value.
    pub fn get(&self, member: Member) -> Known {
        self.values.get(member)
    }
    /// Processes in it and below; needs [`Files::PROCS`].
    pub fn processes(&self) -> Known {
        self.get(Member::AllProcs)
    }
    /// Tasks, which are threads, in it and below; needs [`Files::TASK_COUNT`]. Where the controller
    /// `pids` does not count them, they are counted in `cgroup.threads`.
    pub fn tasks(&self) -> Known {
        self.get(Member::AllTasks)
    }
    fn set(&mut self, member: Member, known: Known) {
        Arc::make_mut(&mut self.values).set(member, known);
    }
    /// The growth of a counter since the previous listing of the session, and the time between
    /// both. `None`: this is the first listing that has it, or a value is not known.
    pub fn growth(&self, member: Member) -> Option<(u64, Duration)> {
        let (time, earlier) = self.earlier.as_ref()?;
        let (new, old) = (self.get(member).number()?, earlier.get(member).number()?);
        // A counter that is smaller now began again, as after its controller was disabled.
        Some((new.checked_sub(old)?, *time))
    }
}

/// Cgroups at one moment.
#[derive(Debug)]
pub struct Cgroups {
    list: Vec<Cgroup>,
    left: LeftOut,
    left_by_owner: Vec<(u32, u64)>,
    bounds: Bounds,
    syscalls: u64,
    took: Duration,
    has_v1: bool,
    /// When the first cgroup was read, since boot.
    at: Duration,
    /// For cgroups that were kept with an answer: its head and the names of its containers.
    kept_with: Option<Snapshot>,
}

impl Cgroups {
    /// Reads these files of all cgroups.
    ///
    /// # Errors
    /// [`Error::Io`]: no cgroup file system is mounted, or this process may open no more files.
    pub fn read(files: Files, bounds: Bounds) -> Result<Cgroups, Error> {
        Session::new(files, bounds, 0)?.once()
    }
    /// All cgroups. Descendants follow their ancestor, in the order of their names.
    pub fn list(&self) -> &[Cgroup] {
        &self.list
    }
    /// The number of cgroups and values that the bounds left out.
    pub fn left_out(&self) -> LeftOut {
        self.left
    }
    /// The uids of the owners whose cgroups the bounds left out, each with their number, the
    /// largest number first. A recording names only those with the largest numbers.
    pub fn left_out_by_owner(&self) -> &[(u32, u64)] {
        &self.left_by_owner
    }
    /// Whose cgroups were left out, to be added to a sentence.
    fn whose(&self) -> String {
        let shown = self.left_by_owner.iter().take(OWNERS_NAMED);
        let mut whose: Vec<String> = shown.map(|(uid, n)| format!("{n} of uid {uid}")).collect();
        if let Some(more) = self.left_by_owner.len().checked_sub(OWNERS_NAMED).filter(|n| *n > 0) {
            whose.push(format!("some of {more} more users"));
        }
        match whose.is_empty() {
            true => String::new(),
            false => format!(" ({})", whose.join(", ")),
        }
    }
    /// The same as sentences, for users.
    pub fn remarks(&self) -> Vec<String> {
        let (left, bounds) = (self.left, self.bounds);
        let mut remarks = Vec::new();
        if self.kept_with.is_some() {
            return self.remarks_of_kept();
        }
        if left.cgroups > 0 {
            remarks.push(format!(
                "{} cgroups or more are not shown{}, because only {} are read: name those to show",
                left.cgroups,
                self.whose(),
                bounds.cgroups
            ));
        }
        if left.deep > 0 {
            remarks.push(format!(
                "cgroups below {} others are not shown, because these are {} levels deep: name those to show",
                left.deep, bounds.levels
            ));
        }
        remarks
    }
    /// The system calls that were made.
    pub fn syscalls(&self) -> u64 {
        self.syscalls
    }
    /// How long it took.
    pub fn took(&self) -> Duration {
        self.took
    }
    /// For cgroups that were [kept with an answer](Self::of): this answer without its tasks. It has
    /// the time, the machine, and the names of containers.
    pub fn kept_with(&self) -> Option<&Snapshot> {
        self.kept_with.as_ref()
    }
    /// Were hierarchies of version 1 read?
    pub fn has_version_1(&self) -> bool {
        self.has_v1
    }
}

/// Lists the same cgroups repeatedly, and keeps their files open.
#[derive(Debug)]
pub struct Session {
    hierarchies: Vec<Hierarchy>,
    files: Files,
    bounds: Bounds,
    below: Vec<Vec<u8>>,
    is_single: bool,
    kept: OpenCgroups,
    reader: Reader,
    /// The previous listing.
    earlier: Earlier,
}

/// The values of cgroups by path, each with the id of the cgroup and when they were read.
type Earlier = HashMap<Vec<u8>, (u64, Duration, Arc<Values>)>;

/// The most owners that a sentence about left-out cgroups names.
const OWNERS_NAMED: usize = 3;

/// The most descriptors that a session should use. The kernel keeps a page for the text of each
/// open file.
const DESCRIPTORS: usize = 8192;

impl Session {
    /// A session for these files. It keeps at most `descriptors` of them open, and opens the others
    /// at each listing; 0 keeps none, and [`Session::descriptors`] is a good number.
    ///
    /// # Errors
    /// [`Error::Io`]: no cgroup file system is mounted.
    pub fn new(files: Files, bounds: Bounds, descriptors: usize) -> Result<Session, Error> {
        Ok(Session::of(hierarchy::find()?, files, bounds, descriptors))
    }
    /// A session for hierarchies in these directories: that of version 2, and those of version 1,
    /// each with the names of its controllers, such as `cpu,cpuacct`. This is for cgroup file
    /// systems that are mounted for another root, such as that of a host in a container.
    ///
    /// # Errors
    /// [`Error::Io`]: a directory cannot be opened.
    pub fn at(
        v2: Option<&Path>,
        v1: &[(&str, &Path)],
        files: Files,
        bounds: Bounds,
        descriptors: usize,
    ) -> Result<Session, Error> {
        Ok(Session::of(hierarchy::at(v2, v1)?, files, bounds, descriptors))
    }
    fn of(
        mut hierarchies: Vec<Hierarchy>,
        files: Files,
        bounds: Bounds,
        descriptors: usize,
    ) -> Session {
        hierarchy::sort(&mut hierarchies);
        Session {
            hierarchies,
            files,
            bounds,
            below: vec![b"/".to_vec()],
            is_single: false,
            kept: OpenCgroups::new(descriptors),
            reader: Reader::default(),
            earlier: Earlier::new(),
        }
    }
    /// Lists the cgroups, and ends the session.
    ///
    /// # Errors
    /// As [`Session::list`].
    pub fn once(mut self) -> Result<Cgroups, Error> {
        self.is_single = true;
        self.list()
    }
    /// Half of the descriptors that this process may have, and not more than 8,192.
    pub fn descriptors() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit
            .map_or(DESCRIPTORS, |n| usize::try_from(n / 2).unwrap_or(DESCRIPTORS))
            .min(DESCRIPTORS)
    }
    /// Lists only these cgroups and their descendants.
    ///
    /// # Errors
    /// A path that is not one of a cgroup: empty, or with a part that is empty, `.` or `..`.
    pub fn below<'a>(
        mut self,
        paths: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Session, Error> {
        self.below = checked_paths(paths)?;
        Ok(self)
    }
    /// Descriptors that are open.
    pub fn open_descriptors(&self) -> usize {
        self.kept.descriptors()
    }
    /// Lists the cgroups.
    ///
    /// # Errors
    /// [`Error::Io`]: a named cgroup does not exist, or this process may open no more files.
    pub fn list(&mut self) -> Result<Cgroups, Error> {
        match self.list_once() {
            // The program may have used up its descriptors meanwhile. Then this session keeps no
            // file open.
            Err(Error::Io { source, .. })
                if Errno::from_io_error(&source).is_some_and(is_about_us)
                    && self.kept.give_up() =>
            {
                self.list_once()
            }
            done => done,
        }
    }
    fn list_once(&mut self) -> Result<Cgroups, Error> {
        let (begin, at) = (Instant::now(), since_boot());
        let before = self.reader.syscalls;
        self.kept.begin();
        let files = self.files.expanded();
        let mut list = List::new(&self.hierarchies, files, self.bounds);
        for path in &self.below {
            let mut is_there = false;
            for (number, hierarchy) in self.hierarchies.iter().enumerate() {
                let mut walk = Walk {
                    hierarchy,
                    number,
                    sources: hierarchy.sources(files),
                    spares_threads: !self.files.has(Files::THREADS),
                    kept: &mut self.kept,
                    reader: &mut self.reader,
                    list: &mut list,
                };
                let failed = |e: Errno| Error::io("reading cgroups", e);
                is_there |= walk.run(path).map_err(failed)?;
            }
            if !is_there {
                return Err(no_cgroup(path));
            }
        }
        self.kept.end();
        let left_by_owner = list.left_by_owner();
        let mut left = list.left;
        left.cgroups = left_by_owner.iter().map(|(_, n)| n).sum();
        let v2 = self.hierarchies.iter().position(|h| h.version == 2).map_or(0, bit);
        let mut list = arranged(list, v2);
        sum_up(&mut list, self.files, left);
        self.compare(&mut list);
        let has_v1 = self.hierarchies.iter().any(|h| h.version == 1);
        let syscalls = self.reader.syscalls - before;
        let (bounds, took) = (self.bounds, begin.elapsed());
        Ok(Cgroups {
            list,
            left,
            left_by_owner,
            bounds,
            syscalls,
            took,
            has_v1,
            at,
            kept_with: None,
        })
    }
    /// Gives each cgroup its values of the previous listing, and remembers the new ones.
    fn compare(&mut self, list: &mut [Cgroup]) {
        // A single listing compares nothing.
        if self.is_single {
            return;
        }
        compare_with(list, std::mem::take(&mut self.earlier));
        self.earlier = by_path(list);
    }
}

/// The values of these cgroups, for a later listing.
fn by_path(list: &[Cgroup]) -> Earlier {
    list.iter().map(|c| (c.path.clone(), (c.id, c.at, c.values.clone()))).collect()
}

/// Gives each cgroup its earlier values.
fn compare_with(list: &mut [Cgroup], mut earlier: Earlier) {
    for cgroup in list.iter_mut() {
        // A new cgroup may have the path of one that was removed.
        let old = earlier.remove(&cgroup.path).filter(|(id, ..)| *id == cgroup.id);
        // The first listing opens the files and is slower, so each has a time of its own.
        cgroup.earlier =
            old.and_then(|(_, then, values)| Some((cgroup.at.checked_sub(then)?, values)));
    }
}

/// Paths of cgroups that a user has named, in the form that listings have, without those below
/// others of them.
fn checked_paths<'a>(paths: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, Error> {
    let mut below: Vec<Vec<u8>> = Vec::new();
    for path in paths {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let is_bad = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
        let bad = path.contains(&0) || path.split(|b| *b == b'/').any(is_bad);
        if bad && !path.is_empty() {
            let text = String::from_utf8_lossy(path);
            return Err(Error::io(
                format!(
                    "{text} is not the path of a cgroup, because a part of it is empty, . or .."
                ),
                Errno::INVAL,
            ));
        }
        below.push([b"/", path].concat());
    }
    below.sort();
    below.dedup();
    let all = below.clone();
    // A path below another one is listed with it.
    below.retain(|path| !all.iter().any(|other| other != path && is_below(path, other)));
    Ok(below)
}

/// The error for a named cgroup that is not there.
fn no_cgroup(path: &[u8]) -> Error {
    let name = String::from_utf8_lossy(path);
    Error::io(format!("looking for the cgroup {name}"), Errno::NOENT)
}

/// The path of a cgroup that a user has named by it, or by its directory below `/sys/fs/cgroup`.
pub fn path_of(given: &[u8]) -> &[u8] {
    for mount in [&b"/sys/fs/cgroup/unified"[..], b"/sys/fs/cgroup"] {
        match given.strip_prefix(mount) {
            Some(b"") => return b"/",
            Some(rest) if rest.starts_with(b"/") => return rest,
            _ => {}
        }
    }
    given
}

/// Is a path that of a cgroup below another one?
fn is_below(path: &[u8], other: &[u8]) -> bool {
    other == b"/" || path.strip_prefix(other).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The cgroups that were found, in the order of a tree. `v2`: the bit of version 2.
fn arranged(list: List, v2: u64) -> Vec<Cgroup> {
    let cgroup = |one: walk::ReadCgroup| Cgroup {
        path: one.path,
        id: one.id,
        owner: Some(one.owner),
        hierarchies: one.hierarchies,
        is_v2: one.hierarchies & v2 != 0,
        level: 0,
        parent: None,
        at: one.at,
        values: one.values,
        earlier: None,
    };
    let mut all: Vec<Cgroup> = list.found.into_iter().map(cgroup).collect();
    arrange(&mut all);
    all
}

/// Sorts cgroups into the order of a tree, and finds the level and the parent of each.
fn arrange(list: &mut [Cgroup]) {
    // For the order, a slash must come before every byte of a name. The byte 0 does, and is in no
    // name.
    let swap = |path: &mut Vec<u8>, from: u8, to: u8| {
        path.iter_mut().filter(|b| **b == from).for_each(|b| *b = to);
    };
    list.iter_mut().for_each(|one| swap(&mut one.path, b'/', 0));
    list.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    list.iter_mut().for_each(|one| swap(&mut one.path, 0, b'/'));
    let mut line: Vec<usize> = Vec::new();
    for at in 0..list.len() {
        let path = &list[at].path;
        while line.last().is_some_and(|above| !is_below(path, &list[*above].path)) {
            line.pop();
        }
        let level = path.iter().filter(|b| **b == b'/').count();
        let level = if path == b"/" { 0 } else { level };
        // A parent that vanished, or that was left out, is not in the list.
        let parent = line.last().copied().filter(|above| list[*above].level + 1 == level);
        line.push(at);
        (list[at].level, list[at].parent) = (level, parent);
    }
}

/// Adds up the processes and tasks below each cgroup.
fn sum_up(list: &mut [Cgroup], files: Files, left: LeftOut) {
    let is_cut = left != LeftOut::default();
    let plus = |a: Known, b: Known| match (a, b) {
        (Known::Number(a), Known::Number(b)) => Known::Number(a.saturating_add(b)),
        // A cgroup that vanished meanwhile has nothing any more, and a threaded one counts as its
        // threads.
        (a, Known::Missing(Reason::Vanished | Reason::Absent)) => a,
        (Known::Missing(Reason::Vanished | Reason::Absent), b) => b,
        (missing @ Known::Missing(_), _) | (_, missing) => missing,
    };
    // What is summed up, and what it is of a cgroup without those below it.
    let sums = [
        (Member::AllProcs, Member::Procs, Files::PROCS),
        (Member::AllTasks, Member::Threads, Files::TASK_COUNT),
    ];
    let sums = || sums.into_iter().filter(|(.., file)| files.has(*file));
    for cgroup in list.iter_mut() {
        sums().for_each(|(sum, own, _)| cgroup.set(sum, cgroup.get(own)));
    }
    for at in (0..list.len()).rev() {
        let pids = list[at].get(Member::Pids);
        if files.has(Files::TASK_COUNT) && pids.is_known() {
            list[at].set(Member::AllTasks, pids);
        }
        if let Some(above) = list[at].parent {
            // A task may have a different path in each hierarchy. The processes of a cgroup are
            // counted in the first hierarchy that has it.
            if list[at].hierarchies & bit(list[above].hierarchies.trailing_zeros() as usize) == 0 {
                continue;
            }
            for (sum, ..) in sums() {
                let all = plus(list[above].get(sum), list[at].get(sum));
                list[above].set(sum, all);
            }
        }
    }
    if is_cut {
        // A sum of only a part would be too low, so none is shown.
        for cgroup in list.iter_mut() {
            let counted = cgroup.get(Member::Pids).is_known();
            for (sum, ..) in sums().filter(|(sum, ..)| !counted || *sum != Member::AllTasks) {
                if cgroup.get(sum).is_known() {
                    cgroup.set(sum, Known::Missing(Reason::Truncated));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_its_cgroup() {
        for (given, want) in [
            ("/sys/fs/cgroup/a/b", "/a/b"),
            ("/sys/fs/cgroup", "/"),
            ("/sys/fs/cgroup/", "/"),
            ("/sys/fs/cgroup/unified/a", "/a"),
            ("/sys/fs/cgroups", "/sys/fs/cgroups"),
            ("a/b", "a/b"),
            ("/", "/"),
        ] {
            assert_eq!(path_of(given.as_bytes()), want.as_bytes(), "{given}");
        }
    }
}
