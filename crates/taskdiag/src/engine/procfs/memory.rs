//! Reads the groups about the memory of a process: VMA, VMA_STAT and ROLLUP, and STATM
//! where the file `status` is not read for it.
//!
//! It reads the text of maps and does not use PROCMAP_QUERY, except for a name that has a newline,
//! or looks as if it had one. Measured on 6.18, a mapping costs the same either way (0.4 µs, with
//! or without a name) in a process with 60,000 mappings, and three times as much by query in a
//! process with 25.

use std::borrow::Cow;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::makedev;
use rustix::io::Errno;
use taskdiag_wire::{DELETED, Group, Groups, Reason, Vma, VmaKind, VmaStat};

use super::lists::{Lists, NAME_PIECE};
use super::parse::{self, MapLine, StatFile};
use super::path::TaskDir;
use super::read::{FileId, Reader};
use super::sizes::SizesFrom;
use super::stop::Stop;
use super::worker::Worker;
use crate::engine::{LEAST_WALK, mappings};

/// The length of a mapping with a usual name in smaps and in maps. See [`Reader::live_parts`].
const SMAPS_RECORD: usize = 780;
const MAPS_RECORD: usize = 120;

/// All members except the flags.
const FROM_MAPS: u32 = Vma::ALL_VALID & !parse::NOT_IN_MAPS;

impl Worker<'_> {
    /// Writes STATM from `stat` or `statm`.
    pub(super) fn sizes(&mut self, at: TaskDir<'_>, stat: Option<&StatFile>) -> Result<(), Stop> {
        match self.sizes_of(at, stat, true) {
            Err(Stop::Gap(Reason::Absent)) => {
                self.of_live_thread(at, stat, |w, at, stat| w.sizes_of(at, stat, false))
            }
            got => got,
        }
    }

    /// Reads the sizes of the task at this place. `is_own` says whether this is the directory of
    /// the task itself, whose files may stay open.
    fn sizes_of(
        &mut self,
        mut at: TaskDir<'_>,
        stat: Option<&StatFile>,
        is_own: bool,
    ) -> Result<(), Stop> {
        if stat.is_some_and(StatFile::has_never_memory) {
            return Err(Stop::Gap(Reason::Absent));
        }
        let in_stat = stat.filter(|_| self.run.sizes_from == SizesFrom::Stat);
        let statm = if let Some(stat) = in_stat {
            stat.statm()
        } else {
            let held = self.run.held.as_ref().filter(|_| is_own);
            let got = match held {
                Some(held) => held.read(&mut self.reader, at, "statm"),
                None => self.reader.file(at.dir, at.path.file("statm")).map(<[u8]>::len),
            };
            match got {
                Ok(len) => parse::statm(self.reader.text(len), self.run.page_size),
                Err(e) => return Err(self.meaning(at, e)),
            }
        };
        match statm.known().size_bytes() {
            Some(0) => Err(Stop::Gap(Reason::Absent)),
            Some(_) => {
                self.out.put(&statm);
                Ok(())
            }
            None => Err(Stop::Gap(Reason::Unsupported)),
        }
    }

    /// Writes VMA and VMA_STAT. smaps has both.
    pub(super) fn mappings(
        &mut self,
        at: TaskDir<'_>,
        stat: Option<&StatFile>,
    ) -> Result<(), Stop> {
        let left = self.unshared(at, Groups::VMA | Groups::VMA_STAT)?;
        if left.has(Group::VmaStat) {
            let got = self.of_memory(at, stat, |w, at, _| {
                w.within_limits(at).and_then(|()| w.smaps(at, left))
            });
            // A limit leaves out the sums, but not the list of mappings.
            if !matches!(got, Err(Stop::Gap(Reason::OverBudget))) {
                return self.settle_own(at, left, got);
            }
            self.settle_own(at, Groups::VMA_STAT, got)?;
        }
        if left.has(Group::Vma) {
            let got = self.of_memory(at, stat, |w, at, _| w.maps(at));
            self.settle_own(at, Groups::VMA, got)?;
        }
        Ok(())
    }

    fn maps(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let mut lists = std::mem::take(&mut self.lists);
        let (room, full) = (self.list_room(at), Cell::new(false));
        let (place, path) = (at, at.path.file("maps"));
        let mut all = |r: &mut Reader| {
            lists.clear();
            r.live_parts(
                at.dir,
                path,
                MAPS_RECORD,
                || !full.get(),
                |text, is_last| {
                    let last = || memchr::memrchr(b'\n', text).map_or(0, |end| end + 1);
                    let whole = if is_last { text.len() } else { last() };
                    for line in parse::maps_lines(&text[..whole]) {
                        if lists.is_full(room) {
                            full.set(true);
                            break;
                        }
                        lists.vmas.push(line.vma);
                        lists.keep(line.text);
                    }
                    whole
                },
            )
        };
        let got = self.risky(place, Groups::VMA, |r| match all(r) {
            // The task may have become another program.
            Err(Errno::SRCH) => all(r),
            got => got,
        })?;
        match got {
            Ok(()) => {}
            Err(Errno::TIMEDOUT) if full.get() => {}
            Err(e) => return Err(self.no_memory(at, e)),
        }
        let before = self.out.len();
        self.name_vmas(at, &mut lists)?;
        let got = self.put_vmas(FROM_MAPS, &lists);
        self.list_added(at, before, lists.count());
        if full.get() {
            self.out.missing(Group::Vma, Reason::Truncated);
        }
        self.lists = lists;
        got.and_then(|()| self.mapped_stats(at))
    }

    /// Gives mappings the numbers of their names. A piece of the names is freed when these are in
    /// the answer.
    fn name_vmas(&mut self, at: TaskDir<'_>, lists: &mut Lists) -> Result<(), Stop> {
        let mut vmas = lists.vmas.iter_mut();
        let mut asked = NameQuery::default();
        for mut piece in std::mem::take(&mut lists.names) {
            let mut names = LastName { asked, ..LastName::default() };
            for (span, vma) in piece.spans.iter().zip(&mut vmas) {
                let line = MapLine { vma: *vma, text: &piece.text[span.clone()] };
                vma.name = self.vma_name(at, &line, &mut names)?;
            }
            asked = names.asked;
            if piece.text.len() > NAME_PIECE / 2 {
                self.look_at_mapped(at)?;
            } else if lists.names.is_empty() {
                piece.spans.clear();
                piece.text.clear();
                lists.names.push(piece);
            }
        }
        Ok(())
    }

    fn put_vmas(&mut self, valid: u32, lists: &Lists) -> Result<(), Stop> {
        if lists.vmas.is_empty() {
            return Err(Stop::Gap(Reason::Absent));
        }
        self.out.put_list(valid, &lists.vmas);
        Ok(())
    }

    fn smaps(&mut self, mut at: TaskDir<'_>, groups: Groups) -> Result<(), Stop> {
        let (start, left) = (Instant::now(), self.run.limits.left());
        let in_time = || left.is_none_or(|left| start.elapsed() < left);
        let mut lists = std::mem::take(&mut self.lists);
        let (room, full) = (self.list_room(at), Cell::new(false));
        let in_time = || in_time() && !full.get();
        let (mut valid, mut has_flags) = (VmaStat::ALL_VALID, true);
        // The text has about 700 bytes for each mapping. To have all of it in memory took as long
        // as to parse it.
        let (place, path) = (at, at.path.file("smaps"));
        let mut all = |r: &mut Reader| {
            lists.clear();
            r.live_parts(at.dir, path, SMAPS_RECORD, in_time, |text, is_last| {
                let whole = if is_last { text.len() } else { parse::whole_smaps_entries(text) };
                for e in parse::smaps_entries(&text[..whole]) {
                    if lists.is_full(room) {
                        full.set(true);
                        break;
                    }
                    if groups.has(Group::Vma) {
                        lists.vmas.push(e.line.vma);
                        lists.keep(e.line.text);
                        has_flags &= e.has_flags;
                    }
                    lists.stats.push(e.stat);
                    valid &= e.valid;
                }
                whole
            })
        };
        let got = self.risky(place, Groups::VMA_STAT, |r| match all(r) {
            // The task may have become another program.
            Err(Errno::SRCH) => all(r),
            got => got,
        })?;
        self.run.limits.spend(start);
        match got {
            Ok(()) => {}
            Err(Errno::TIMEDOUT) if full.get() => {}
            Err(Errno::TIMEDOUT) => return Err(Stop::Gap(Reason::OverBudget)),
            Err(e) => return Err(self.no_memory(at, e)),
        }
        let mut got = Ok(());
        let before = self.out.len();
        if groups.has(Group::Vma) {
            self.name_vmas(at, &mut lists)?;
            got = self.put_vmas(if has_flags { Vma::ALL_VALID } else { FROM_MAPS }, &lists);
        }
        if lists.stats.is_empty() {
            got = Err(Stop::Gap(Reason::Absent));
        } else {
            self.out.put_list(valid, &lists.stats);
        }
        self.list_added(at, before, lists.count());
        if full.get() {
            groups.iter().for_each(|g| self.out.missing(g, Reason::Truncated));
        }
        self.lists = lists;
        got.and_then(|()| self.mapped_stats(at))
    }

    pub(super) fn rollup(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        self.within_limits(at)?;
        let start = Instant::now();
        let got = self.risky(at, Groups::ROLLUP, |r| {
            r.file(at.dir, at.path.file("smaps_rollup")).map(<[u8]>::len)
        })?;
        self.run.limits.spend(start);
        match got {
            Ok(0) => Err(Stop::Gap(Reason::Absent)),
            Ok(len) => {
                let r = parse::rollup(self.reader.text(len));
                self.out.put(&r.ok_or(Stop::Gap(Reason::Unsupported))?);
                Ok(())
            }
            Err(e) => Err(self.no_memory(at, e)),
        }
    }

    /// As `meaning`, for files that are made from the task's memory. An existing task without
    /// memory is a kernel thread, a zombie, or about to become one of these.
    pub(super) fn no_memory(&mut self, at: TaskDir<'_>, e: Errno) -> Stop {
        match e {
            Errno::SRCH if self.reader.exists(at) => Stop::Gap(Reason::Absent),
            e => self.meaning(at, e),
        }
    }

    /// Checks that the sums over the memory of this process may be made.
    fn within_limits(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let limits = &self.run.limits;
        if limits.left().is_some_and(|left| left < LEAST_WALK) {
            return Err(Stop::Gap(Reason::OverBudget));
        }
        let Some(max) = limits.max_rss_bytes else { return Ok(()) };
        let rss = match self.reader.file(at.dir, at.path.file("statm")) {
            Ok(text) => {
                parse::statm(text, self.run.page_size).known().rss_bytes().unwrap_or(u64::MAX)
            }
            Err(e) => return Err(self.meaning(at, e)),
        };
        if rss > max { Err(Stop::Gap(Reason::OverBudget)) } else { Ok(()) }
    }

    /// The number of a mapping's name, or 0 if it has none.
    fn vma_name<'t>(
        &mut self,
        at: TaskDir<'_>,
        line: &MapLine<'t>,
        last: &mut LastName<'t>,
    ) -> Result<u32, Stop> {
        // Mappings of one file follow each other.
        if (last.text, last.kind) == (line.text, line.vma.kind) && last.inode == line.vma.inode {
            return Ok(last.number);
        }
        let mut exact = None;
        if line.is_ambiguous() {
            let (asked, threads) = (&mut last.asked, self.run.threads);
            let ask = |r: &mut Reader| asked.name(r, at, &line.vma, threads);
            exact = self.risky(at, Groups::VMA, ask)?;
            if exact.is_none() {
                exact = self.risky(at, Groups::VMA, |r| by_file(r, at, line, threads))?;
            }
        }
        let mut name = match &exact {
            Some(name) => Cow::Borrowed(name.strip_suffix(DELETED).unwrap_or(name)),
            None => match line.name() {
                Some(name) => name,
                None => {
                    self.note_mapped(line, None);
                    return Ok(0);
                }
            },
        };
        let mut deleted = line.is_deleted();
        self.note_mapped(line, Some(&*name).filter(|_| !deleted));
        if deleted {
            let whole = [&name[..], DELETED].concat();
            let threads = self.run.threads;
            let ask = |r: &mut Reader| is_odd_name(r, at, line, &whole, threads);
            if self.risky(at, Groups::VMA, ask)? {
                (name, deleted) = (whole.into(), false);
            }
        }
        let number =
            self.known.number(&self.run.names, &name, self.name_most, deleted, &mut self.out);
        // Another name of the same file may look the same.
        if exact.is_none() {
            let (text, kind, inode) = (line.text, line.vma.kind, line.vma.inode);
            (last.text, last.kind, last.inode, last.number) = (text, kind, inode, number);
        }
        Ok(number)
    }
}

/// The name of the previous mapping, and its number.
#[derive(Default)]
struct LastName<'t> {
    text: &'t [u8],
    kind: u32,
    inode: u64,
    number: u32,
    asked: NameQuery,
}

/// How the kernel is asked for the name of a mapping of this task in a form that has no escapes.
#[derive(Default)]
struct NameQuery {
    maps: Option<OwnedFd>,
    /// The kernel has no PROCMAP_QUERY.
    no_query: bool,
    /// Links in map_files may not be read.
    no_link: bool,
}

impl NameQuery {
    /// The name, with ` (deleted)` after it if the kernel adds that. `None`: the kernel cannot be
    /// asked. This costs two calls for each mapping, and one more for each task.
    fn name(
        &mut self,
        reader: &mut Reader,
        mut at: TaskDir<'_>,
        vma: &Vma,
        threads: bool,
    ) -> Option<Vec<u8>> {
        if self.maps.is_none() && !self.no_query {
            self.maps = reader.open_read(at.dir, at.path.file("maps")).ok();
            reader.syscalls += 1; // close
        }
        if let Some(maps) = &self.maps {
            reader.syscalls += 1;
            match mappings::name(maps, vma.start, vma.inode) {
                Ok(name) => return name,
                Err(Errno::NOTTY) => (self.maps, self.no_query) = (None, true),
                Err(_) => {}
            }
        }
        if self.no_link {
            return None;
        }
        match reader.link(at.dir, &at.path.map_file(threads, at.pid, vma.start..vma.end)) {
            Ok(text) => Some(text.to_vec()),
            Err(e) => {
                self.no_link = matches!(e, Errno::ACCESS | Errno::PERM);
                None
            }
        }
    }
}

/// The name with the characters `\012` as they are, if that leads to the mapped file.
fn by_file(
    reader: &mut Reader,
    at: TaskDir<'_>,
    line: &MapLine<'_>,
    threads: bool,
) -> Option<Vec<u8>> {
    if !line.text.starts_with(b"/") {
        return None;
    }
    let file = mapped_id(reader, at, line, threads);
    reader.leads_to(at, line.text, file).then(|| line.text.to_vec())
}

/// Whether the ` (deleted)` is part of the name of a file that is still there.
fn is_odd_name(
    reader: &mut Reader,
    at: TaskDir<'_>,
    line: &MapLine<'_>,
    path: &[u8],
    threads: bool,
) -> bool {
    let inner: [&[u8]; 3] = [b"/memfd:", b"/SYSV", b"/dev/zero"];
    if line.vma.kind != VmaKind::File as u32
        || !path.starts_with(b"/")
        || inner.iter().any(|p| path.starts_with(p))
    {
        return false;
    }
    let file = mapped_id(reader, at, line, threads);
    reader.leads_to(at, path, file)
}

/// Device and inode of a mapped file as stat(2) has them. On btrfs and overlay, maps may have other
/// numbers, which are better than none if the link in map_files may not be followed.
fn mapped_id(reader: &mut Reader, at: TaskDir<'_>, line: &MapLine<'_>, threads: bool) -> FileId {
    let path = at.path.map_file(threads, at.pid, line.vma.start..line.vma.end);
    match reader.statx(at.dir, &path) {
        Ok(s) => FileId::of(&s),
        Err(_) => {
            let (major, minor) = taskdiag_wire::device::major_minor(line.vma.dev);
            FileId { dev: makedev(major, minor), ino: line.vma.inode }
        }
    }
}
