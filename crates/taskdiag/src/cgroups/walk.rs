//! Walks the directories of a hierarchy, and reads the files of each cgroup.
//!
//! The walk goes from level to level, and each owner has a share of a bounded list ([`Queue`]). So
//! a user who makes thousands of cgroups below their own takes no room from cgroups of others,
//! however deep these are. The walk has one directory and one file open at a time. A
//! [`OpenCgroups`] has more: a session reads the same files again from their start.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use taskdiag_wire::Reason;

use super::hierarchy::{Hierarchy, open_below};
use super::members::{Files, Form, Member, Source};
use super::parse;
use super::queue::{Next, Queue};
use super::read::Reader;
use super::value::{Known, Values};

/// The bounds of a listing. [`LeftOut`] counts what they leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// The most cgroups.
    pub cgroups: usize,
    /// The most levels below the root.
    pub levels: usize,
    /// The most bytes of paths.
    pub path_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { cgroups: 50_000, levels: 100, path_bytes: 16 << 20 }
    }
}

/// The numbers of cgroups and values that the bounds left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Cgroups that were seen and not read, because there are too many. There may be more below
    /// them.
    pub cgroups: u64,
    /// Cgroups that were seen and not read, because they are too many levels below the root, or
    /// their path is longer than the kernel takes.
    pub deep: u64,
    /// Cgroups that a recorder left out of its answer, to keep room for the data of others.
    pub no_room: u64,
}

/// The longest path that the kernel takes in one call.
const PATH_BYTES: usize = 4095;

/// A cgroup that was read.
#[derive(Debug)]
pub(super) struct ReadCgroup {
    /// From the root on, with a slash at its start.
    pub path: Vec<u8>,
    pub id: u64,
    /// The uid of its owner, as in [`Queue`].
    pub owner: u32,
    /// The hierarchies that have it, by number, as bits.
    pub hierarchies: u64,
    /// When its files were begun to be read, since boot.
    pub at: Duration,
    /// By themselves, because they are large and the list is sorted.
    pub values: Arc<Values>,
}

/// The cgroups that were read, of all hierarchies.
#[derive(Debug)]
pub(super) struct List {
    pub found: Vec<ReadCgroup>,
    /// The place of each path, where several hierarchies have the same paths.
    by_path: Option<HashMap<Vec<u8>, usize>>,
    pub left: LeftOut,
    /// The cgroups that were left out, by hierarchy and owner.
    left_by: HashMap<(usize, u32), u64>,
    pub bounds: Bounds,
    /// All values, missing.
    blank: Values,
}

impl List {
    /// An empty list. Values of files that no hierarchy has are [`Reason::Unsupported`].
    pub fn new(hierarchies: &[Hierarchy], asked: Files, bounds: Bounds) -> List {
        let sources = hierarchies.iter().flat_map(|h| h.sources(asked));
        let offered = sources.fold(Files::NONE, |all, s| all.union(s.file));
        let blank = Values::missing(asked, |file| match offered.has(file) {
            true => Reason::Absent,
            false => Reason::Unsupported,
        });
        List {
            found: Vec::new(),
            by_path: (hierarchies.len() > 1).then(HashMap::new),
            left: LeftOut::default(),
            left_by: HashMap::new(),
            bounds,
            blank,
        }
    }
    /// Returns the place of a cgroup in the list, and adds it if no other hierarchy has it. `None`:
    /// there is no room.
    fn place(&mut self, path: Vec<u8>, id: u64, owner: u32, number: usize) -> Option<usize> {
        if let Some(at) = self.by_path.as_ref().and_then(|by| by.get(&path)) {
            self.found[*at].hierarchies |= bit(number);
            return Some(*at);
        }
        if self.found.len() >= self.bounds.cgroups {
            return None;
        }
        if let Some(by) = &mut self.by_path {
            by.insert(path.clone(), self.found.len());
        }
        let values = Arc::new(self.blank.clone());
        let (hierarchies, at) = (bit(number), since_boot());
        self.found.push(ReadCgroup { path, id, owner, hierarchies, at, values });
        Some(self.found.len() - 1)
    }
    /// Counts cgroups of an owner that are left out.
    pub fn leave_out(&mut self, number: usize, owner: u32, cgroups: u64) {
        if cgroups > 0 {
            *self.left_by.entry((number, owner)).or_default() += cgroups;
        }
    }
    /// The cgroups that were left out, by the uid of their owner, with the largest number first.
    /// Most cgroups are in several hierarchies, so only the hierarchy with the most cgroups counts.
    pub fn left_by_owner(&self) -> Vec<(u32, u64)> {
        let mut all: HashMap<u32, u64> = HashMap::new();
        for ((_, owner), n) in &self.left_by {
            let most = all.entry(*owner).or_default();
            *most = (*most).max(*n);
        }
        let mut all: Vec<(u32, u64)> = all.into_iter().collect();
        all.sort_unstable_by_key(|(owner, n)| (std::cmp::Reverse(*n), *owner));
        all
    }
}

/// The time since boot, with suspended time. It is read in user space.
pub(super) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// The bit of a hierarchy. There are not more than 64 that matter: one of version 2, six of
/// version 1, and those with a name.
pub(super) fn bit(number: usize) -> u64 {
    1 << number.min(63)
}

/// A directory that stays open, with its files.
#[derive(Debug)]
struct OpenDirectory {
    dir: OwnedFd,
    /// In the order of the sources; `None` is a file that is opened at each listing.
    files: Vec<Option<OwnedFd>>,
    /// The listing in which it was last seen.
    turn: u64,
}

/// Directories and files that stay open, by hierarchy and id of the cgroup.
#[derive(Debug)]
pub(super) struct OpenCgroups {
    places: HashMap<(usize, u64), OpenDirectory>,
    /// The ids of the roots, which no directory lists.
    roots: HashMap<usize, u64>,
    open: usize,
    most: usize,
    turn: u64,
}

impl OpenCgroups {
    /// At most this many descriptors.
    pub fn new(most: usize) -> OpenCgroups {
        OpenCgroups { places: HashMap::new(), roots: HashMap::new(), open: 0, most, turn: 0 }
    }
    /// Begins a listing.
    pub fn begin(&mut self) {
        self.turn += 1;
    }
    /// Closes the files of cgroups that this listing has not seen.
    pub fn end(&mut self) {
        let turn = self.turn;
        self.places.retain(|_, place| place.turn == turn);
        let descriptors = |p: &OpenDirectory| 1 + p.files.iter().flatten().count();
        self.open = self.places.values().map(descriptors).sum();
    }
    /// Closes all files, and keeps none open from now on. `false`: nothing was kept.
    pub fn give_up(&mut self) -> bool {
        let had = self.open > 0;
        self.places.clear();
        (self.open, self.most) = (0, 0);
        had
    }
    /// Descriptors that are open.
    pub fn descriptors(&self) -> usize {
        self.open
    }
    /// Is there room for one more?
    fn has_room(&mut self) -> bool {
        let has = self.open < self.most;
        self.open += usize::from(has);
        has
    }
}

/// The reason for an error of a file that is there.
fn why(e: Errno, form: Form) -> Reason {
    match e {
        Errno::NODEV => Reason::Vanished,
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::FBIG => Reason::Truncated,
        // A threaded cgroup has no processes of its own.
        Errno::OPNOTSUPP if matches!(form, Form::Lines(_)) => Reason::Absent,
        _ => Reason::Unsupported,
    }
}

/// Whether the error is about this process, which lacks files or memory, and not about the cgroup.
pub(super) fn is_about_us(e: Errno) -> bool {
    matches!(e, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

fn is_gone(e: Errno) -> bool {
    matches!(e, Errno::NOENT | Errno::NODEV)
}

/// A walk over a hierarchy.
pub(super) struct Walk<'a> {
    pub hierarchy: &'a Hierarchy,
    /// The number of the hierarchy.
    pub number: usize,
    pub sources: Vec<&'static Source>,
    /// Are threads counted only where there is no `pids.current`?
    pub spares_threads: bool,
    pub kept: &'a mut OpenCgroups,
    pub reader: &'a mut Reader,
    pub list: &'a mut List,
}

impl Walk<'_> {
    /// Reads the cgroup with this path and its descendants. `false`: there is no such cgroup.
    ///
    /// # Errors
    /// Only errors that are not about a single cgroup, such as too many open files.
    pub fn run(&mut self, path: &[u8]) -> Result<bool, Errno> {
        let level = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).count();
        let first = Next { path: path.to_vec(), level, id: None, owner: 0 };
        let mut next = Queue::new(first, self.list.bounds.cgroups, self.list.bounds.path_bytes);
        let mut is_there = false;
        while let Some(one) = next.pop() {
            is_there |= self.visit(one, &mut next)?;
        }
        for (owner, cgroups) in next.left_out() {
            self.list.leave_out(self.number, owner, cgroups);
        }
        Ok(is_there)
    }

    /// Reads a cgroup, and adds its children to `next`. `false`: the cgroup has been removed.
    fn visit(&mut self, one: Next, next: &mut Queue) -> Result<bool, Errno> {
        let is_top = one.path == b"/";
        let id = one.id.or_else(|| self.kept.roots.get(&self.number).copied().filter(|_| is_top));
        let key = id.map(|id| (self.number, id));
        let mut place = key.and_then(|key| self.kept.places.remove(&key));
        if place.is_none() {
            match self.open(&one.path) {
                Ok(dir) => {
                    let files = self.sources.iter().map(|_| None).collect();
                    place = Some(OpenDirectory { dir, files, turn: 0 });
                }
                Err(e) if is_gone(e) => return Ok(false),
                Err(e) if is_about_us(e) => return Err(e),
                Err(e) => {
                    let owner = next.owner(one.owner);
                    self.deny(one, owner, why(e, Form::CpuMax));
                    return Ok(true);
                }
            }
        }
        let Some(mut place) = place else { return Ok(false) };
        self.reader.syscalls += 1;
        let stat = rustix::fs::fstat(&place.dir)?;
        if is_top {
            self.kept.roots.insert(self.number, stat.st_ino);
        }
        let is_root = one.level == 0 && self.hierarchy.is_whole;
        if next.is_first() {
            next.begin(stat.st_uid);
        }
        let owner = next.owner(one.owner);
        let Some(at) = self.list.place(one.path.clone(), stat.st_ino, owner, self.number) else {
            self.list.leave_out(self.number, owner, 1);
            return Ok(true);
        };
        let done = self.read(&mut place, is_root, at);
        // The number of links of a directory is 2 plus the number of directories in it. Some file
        // systems, which are not those of cgroups, have 1.
        if stat.st_nlink != 2 {
            let owner = next.owner_below(one.owner, stat.st_uid);
            self.below(place.dir.as_fd(), &one, owner, next)?;
        }
        self.keep(place, stat.st_ino);
        done.map(|()| true)
    }

    fn open(&mut self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.reader.syscalls += 2;
        let below = match path.strip_prefix(b"/").unwrap_or(path) {
            b"" => b".",
            below => below,
        };
        let below = CString::new(below).map_err(|_| Errno::NOENT)?;
        open_below(self.hierarchy.root.as_fd(), &below)
    }

    /// Adds a cgroup whose directory cannot be opened.
    fn deny(&mut self, one: Next, owner: u32, why: Reason) {
        let Some(at) = self.list.place(one.path, one.id.unwrap_or(0), owner, self.number) else {
            self.list.leave_out(self.number, owner, 1);
            return;
        };
        for source in &self.sources {
            miss(Arc::make_mut(&mut self.list.found[at].values), source, why);
        }
    }

    /// Keeps a directory open, if there is room.
    fn keep(&mut self, mut place: OpenDirectory, id: u64) {
        let is_new = place.turn == 0;
        if is_new && (self.kept.most == 0 || !self.kept.has_room()) {
            return;
        }
        place.turn = self.kept.turn;
        self.kept.places.insert((self.number, id), place);
    }

    /// Reads the files of a cgroup.
    fn read(&mut self, place: &mut OpenDirectory, is_root: bool, at: usize) -> Result<(), Errno> {
        let mut controllers = None;
        for (i, source) in self.sources.iter().enumerate() {
            let values = Arc::make_mut(&mut self.list.found[at].values);
            if source.file == Files::THREADS
                && self.spares_threads
                && values.get(Member::Pids).is_known()
            {
                continue;
            }
            let mut is_known = true;
            parse::members(source.form, |m| is_known &= values.get(m).is_known());
            if is_known {
                continue;
            }
            let dir = place.dir.as_fd();
            let held = place.files[i].take();
            let result = match held {
                Some(fd) => match self.reader.read(fd.as_fd(), source.form, values) {
                    Ok(()) => {
                        place.files[i] = Some(fd);
                        continue;
                    }
                    // The controller may have been disabled and enabled again.
                    Err(_) => {
                        self.kept.open -= 1;
                        self.reader.open(dir, source.name)
                    }
                },
                None => self.reader.open(dir, source.name),
            };
            let result = result.and_then(|fd| {
                self.reader.read(fd.as_fd(), source.form, values)?;
                if self.kept.has_room() {
                    place.files[i] = Some(fd);
                }
                Ok(())
            });
            match result {
                Ok(()) => {}
                Err(e) if is_about_us(e) => return Err(e),
                Err(Errno::NOENT) => {
                    let why = lack(self.reader, dir, source, is_root, &mut controllers);
                    miss(Arc::make_mut(&mut self.list.found[at].values), source, why);
                }
                Err(e) => miss(values, source, why(e, source.form)),
            }
        }
        Ok(())
    }

    /// Adds the child cgroups of a directory to `next`, as those of the owner with this number.
    fn below(
        &mut self,
        dir: BorrowedFd<'_>,
        one: &Next,
        owner: usize,
        next: &mut Queue,
    ) -> Result<(), Errno> {
        let list = &mut *self.list;
        let listed = self.reader.children(dir, |name, id| {
            let long = one.path.len() + name.len() + 1 > PATH_BYTES;
            if one.level >= list.bounds.levels || long {
                list.left.deep += 1;
                return;
            }
            let mut path = Vec::with_capacity(one.path.len() + name.len() + 1);
            path.extend_from_slice(one.path.strip_suffix(b"/").unwrap_or(&one.path));
            path.push(b'/');
            path.extend_from_slice(name);
            next.push(Next { path, level: one.level + 1, id: Some(id), owner });
        });
        match listed {
            Err(e) if is_about_us(e) => return Err(e),
            Err(e) if is_gone(e) => {}
            // The descendants are not known, and sums without them would be too low.
            Err(_) => self.list.leave_out(self.number, next.owner(owner), 1),
            Ok(_) => {}
        }
        Ok(())
    }
}

/// Says why the values of a file are missing.
fn miss(values: &mut Values, source: &Source, why: Reason) {
    parse::members(source.form, |m| values.put(m, Known::Missing(why)));
}

/// The reason why a file is not in the directory of a cgroup. `controllers` caches what was read to
/// find out.
fn lack(
    reader: &mut Reader,
    dir: BorrowedFd<'_>,
    source: &Source,
    is_root: bool,
    controllers: &mut Option<Result<Vec<String>, Errno>>,
) -> Reason {
    if is_root {
        return Reason::Absent;
    }
    // Version 1 has no `cgroup.controllers`.
    let is_of_v1 = |e: Errno| e == Errno::NOENT && is_alive(dir);
    match controllers.get_or_insert_with(|| reader.controllers(dir)) {
        // PSI of a cgroup can be turned off (`cgroup.pressure`).
        Ok(_) if source.name.to_bytes().ends_with(b".pressure") => Reason::Absent,
        Ok(all) if source.controller.is_empty() || all.iter().any(|c| c == source.controller) => {
            Reason::Unsupported
        }
        Ok(_) => Reason::Absent,
        Err(e) if is_of_v1(*e) => Reason::Unsupported,
        Err(e) if is_gone(*e) => Reason::Vanished,
        Err(e) => why(*e, source.form),
    }
}

/// Is the cgroup still there?
fn is_alive(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::statat(dir, c"cgroup.procs", AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
