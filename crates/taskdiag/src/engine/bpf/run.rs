//! A loaded program, its memory, and the answers that it writes.
//!
//! It decides neither how much memory there is (`sizes`) nor whether a program is kept for later
//! answers (the engine).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taskdiag_wire::{
    AlignedBuf, Cred, Done, Group, Groups, Info, Statm, Strategy, StreamWriter, build,
};
use zerocopy::{FromBytes, IntoBytes};

use super::mapped::{self, HEAD, MappedStream};
use super::offsets::{self, OFFSET_NONE, OFFSETS_MAX};
use super::shared::*;
use super::sizes::{Sizes, reserve};
use super::skel::{self, Failed, Loaded, MapInit};
use super::sys::{self, Mapping};
use super::{LEGACY, LITE, MORE, SNAPSHOT, ram};
use super::{is_no_memory, is_signal, unavailable};
use crate::bytes::{Bytes, populate};
use crate::cpulist;
use crate::engine::{EngineId, estimate};
use crate::error::{Cause, Error};
use crate::large;
use crate::request::{Processes, Request};

/// The system calls of a load, from [`LoadedProgram::start`] to the close: four for the kernel's
/// types, five for the namespace, the program's type information and its close, five maps, two
/// values, a freeze, the program, a mapping, the link and its close, and the iterator; and at the
/// end the mapping of the output, two unmappings and seven closes.
const LOAD_SYSCALLS: u64 = 34;

/// How long the program runs before it returns. On a kernel without preemption, nothing else runs
/// on that CPU during this time. The start of a run costs some microseconds.
const SLICE_NS: u64 = 1_000_000;

/// For tests: how long a walk that should lose its place rests after each run.
const REST: Duration = Duration::from_millis(1);

/// How long to wait for the end of an exec that moves the task at which the walk rests. The exec
/// only takes some instructions, unless its thread gets no processor.
const EXEC_PAUSE: Duration = Duration::from_millis(1);

/// A loaded program and its memory. It may answer the same request any number of times.
#[derive(Debug)]
pub struct LoadedProgram {
    loaded: Loaded,
    pub legacy: bool,
    link: OwnedFd,
    /// Closed when the answer is complete.
    iter: Option<OwnedFd>,
    state: Mapping,
    /// All of the output, mapped for as long as the program is kept.
    out: Option<Mapping>,
    chunks: usize,
    forgetful: bool,
    /// The limit of the stream's length, if it is copied. A longer one is an error.
    pub most: usize,
    /// System calls for the current answer.
    pub syscalls: u64,
    /// The longest processor time that one run of the program took.
    #[cfg(feature = "testing")]
    pub longest: Duration,
}

/// After this many runs the program is loaded again, because it counts its runs in 32 bits.
const SLICES_MAX: u32 = 1 << 31;

impl LoadedProgram {
    /// Load the program for this request.
    pub fn start(
        req: &Request,
        sizes: Sizes,
        count_only: bool,
        legacy: bool,
    ) -> Result<LoadedProgram, Failed> {
        let by_offset = req.groups.intersects(Groups::BPF_MORE);
        let offsets = if by_offset {
            offsets::offsets().map_err(|e| (super::STRUCTS, io::Error::other(e)))?.of
        } else {
            [OFFSET_NONE; OFFSETS_MAX]
        };
        let gate = req.groups.contains(Groups::VMA).then(offsets::gate).flatten();
        let (gate_start, gate_end, gate_perms) = gate.unwrap_or_default();
        let (skip_base, skip_stat) = req.members.skipped();
        let text = req.groups.intersects(Groups::TEXTS);
        let (ram_end, pte_address) = if text { ram::limits() } else { (0, 0) };
        // Entries that do not fit into these tables are written again, so their sizes only matter
        // for speed. One process has fewer names than all processes together, and shares none.
        // There are no more shared objects than processes. The table of names is no larger, because
        // the kernel clears a map in one go (see `sizes::most`).
        let one = req.strategy == Strategy::One;
        let table = |of: Groups, n: u32| if req.groups.intersects(of) { n } else { 1 };
        let names =
            table(Groups::SHARED & Groups::LISTS, if one { NAMES_MAX / 8 } else { NAMES_MAX / 2 });
        let shared = match req.groups.intersects(Groups::SHARED) && !one {
            true => {
                estimate::processes().next_power_of_two().clamp(256, SHARED_MAX as usize) as u32
            }
            false => 1,
        };
        let (cpus, nodes, has_thp) =
            if req.groups.has(Group::Settings) { sysfs() } else { (0, 0, 0) };
        let config = Config {
            groups: req.groups.bits(),
            strategy: req.strategy as u32,
            pid: req.pid,
            nchunks: sizes.chunks as u32,
            count_only: u32::from(count_only),
            page_shift: rustix::param::page_size().trailing_zeros(),
            gate_perms,
            skip_base,
            skip_stat,
            reserve: reserve(req.groups) as u32,
            first_ns: u32::from(in_first_pid_namespace()),
            names_mask: names - 1,
            shared_mask: shared - 1,
            seen_mask: sizes.seen - 1,
            ahead: if count_only { 0 } else { sizes.ahead },
            skip_statm: !req.members.statm & Statm::ALL_VALID,
            skip_cred: !req.members.cred & Cred::ALL_VALID,
            slice_ns: if sizes.forgetful { 0 } else { SLICE_NS },
            ram_end,
            pte_address,
            gate_start,
            gate_end,
            text_total: req.limits.all_text_bytes,
            list_total: req.limits.all_list_bytes,
            text_max: req.limits.text_bytes,
            frame_format: *b"[<0>] %pB\n\0\0\0\0\0\0",
            symbol_format: *b"%ps\0\0\0\0\0",
            number_format: *b"%llu\0\0\0\0",
            // x86-64 keeps loads in the order of the program.
            orders_loads: u32::from(!cfg!(target_arch = "x86_64")),
            skip_cgroup_roots: u32::from(!req.members.cgroup_roots),
            jiffy_ns: jiffy_ns(),
            cpus,
            nodes,
            has_thp,
            short_workers: u32::from(offsets::shortens_workers()),
            offsets,
        };
        let init = [
            MapInit { name: skel::RODATA, max_entries: 0, value: config.as_bytes() },
            MapInit { name: "out", max_entries: sizes.chunks as u32, value: &[] },
            MapInit { name: "seen", max_entries: sizes.seen, value: &[] },
            MapInit { name: "names", max_entries: names, value: &[] },
            MapInit { name: "shared", max_entries: shared, value: &[] },
        ];
        let (loaded, legacy) = load(req.groups, &init, legacy)?;
        let at = |step: &'static str| move |e: io::Error| (step, e);
        let state = STATE_SIZE.next_multiple_of(rustix::param::page_size());
        let state = Mapping::new(loaded.map(".bss"), state).map_err(at("mapping the state"))?;
        let link = sys::link(&loaded.programs[0]).map_err(at("attaching the iterator"))?;
        let (iter, out, chunks) = (None, None, sizes.chunks);
        let forgetful = sizes.forgetful;
        let mut run = LoadedProgram {
            loaded,
            legacy,
            most: usize::MAX,
            link,
            iter,
            state,
            out,
            chunks,
            forgetful,
            syscalls: LOAD_SYSCALLS,
            #[cfg(feature = "testing")]
            longest: Duration::ZERO,
        };
        run.begin(req)?;
        Ok(run)
    }

    /// Adds the file descriptors that it has open.
    pub fn descriptors(&self, all: &mut Vec<RawFd>) {
        let own = self.iter.iter().chain([&self.link]);
        all.extend(own.chain(self.loaded.descriptors()).map(AsRawFd::as_raw_fd));
    }

    /// Prepare for the same request once more. Returns false if the program has to be loaded again.
    pub fn restart(&mut self, req: &Request) -> Result<bool, Failed> {
        let slice = self.state().slice;
        if slice > SLICES_MAX {
            return Ok(false);
        }
        self.state.slice_mut(0, STATE_SIZE).fill(0);
        self.set(offset_of!(State, slice), slice);
        self.syscalls = 2;
        self.begin(req)?;
        Ok(true)
    }

    /// Open the iterator on a cleared state.
    fn begin(&mut self, req: &Request) -> Result<(), Failed> {
        self.set(offset_of!(State, off), HEAD as u32);
        let is_list = !matches!(req.strategy, Strategy::One | Strategy::Thread);
        let written = if is_list { req.processes } else { Processes::ALL };
        self.set(offset_of!(State, first), written.first);
        self.set(offset_of!(State, last), written.last);
        let own = self.state.slice(0, STATE_SIZE).as_ptr() as u64;
        self.state.slice_mut(offset_of!(State, own), 8).copy_from_slice(&own.to_ne_bytes());
        self.open_iterator()?;
        if self.legacy && req.strategy.takes_pid() {
            // The first pass only finds the process of the pid.
            self.steps()?;
            self.set(offset_of!(State, done), 0);
            self.set(offset_of!(State, walking), 1);
            self.open_iterator()?;
        }
        Ok(())
    }

    fn open_iterator(&mut self) -> Result<(), Failed> {
        let iter = sys::iterator(&self.link).map_err(|e| ("opening the iterator", e))?;
        self.iter = Some(iter);
        Ok(())
    }

    /// The state that the program shares with this process.
    pub fn state(&self) -> &State {
        State::ref_from_bytes(self.state.slice(0, size_of::<State>())).expect("page-aligned")
    }

    /// Sets a u32 of the state. The program must not run during this.
    fn set(&mut self, offset: usize, value: u32) {
        self.state.slice_mut(offset, 4).copy_from_slice(&value.to_ne_bytes());
    }

    /// The progress of the program.
    fn place(&self) -> [u32; 8] {
        let s = self.state();
        [s.nseen, s.counted, s.walking, s.part, s.chunk, s.off, s.done, s.full]
    }

    /// Let the program write until the output is full, its time is over, or everything is written.
    ///
    /// If the run made no progress, an exec is moving the task at which the walk rests. Then this
    /// thread sleeps for a moment, because that task may need this processor.
    fn step(&mut self) -> Result<(), Failed> {
        let before = self.place();
        let mut byte = [0u8];
        let iter = self.iter.as_ref().expect("it is open until the answer is there").as_raw_fd();
        loop {
            self.syscalls += 1;
            #[cfg(feature = "testing")]
            let begin = processor_time();
            // SAFETY: one byte of room at a valid address.
            let r = unsafe { libc::read(iter, byte.as_mut_ptr().cast(), 1) };
            let error = io::Error::last_os_error();
            #[cfg(feature = "testing")]
            {
                self.longest = self.longest.max(processor_time().saturating_sub(begin));
            }
            if r >= 0 && self.legacy {
                // The kernel's own iterator has ended.
                self.set(offset_of!(State, done), 1);
                return Ok(());
            }
            if r >= 0 {
                // The iterator ended without a call of the program, so it has no task to begin
                // with.
                return Err(("walking", io::Error::other("no task is visible to BPF")));
            }
            match error {
                e if e.raw_os_error() == Some(libc::EAGAIN) => {
                    if self.place() == before {
                        std::thread::sleep(EXEC_PAUSE);
                    }
                    return Ok(());
                }
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(("walking", e)),
            }
        }
    }

    /// Runs the program to its end, without output.
    pub fn steps(&mut self) -> Result<(), Failed> {
        while self.state().done == 0 {
            self.step()?;
        }
        Ok(())
    }

    /// The whole stream, or `None` if the list of seen tasks was too short. `expected` is about how
    /// many bytes it has.
    ///
    /// The stream stays in place if all of it is in the output at the end and `keep` is `None`.
    /// Otherwise, it is copied chunk by chunk; if the program will answer again, `keep` has the
    /// memory for that.
    ///
    /// If the caller stops the request, the stream ends after the current task.
    pub fn answer(
        &mut self,
        head: &Info,
        req: &Request,
        expected: usize,
        keep: Option<AlignedBuf>,
    ) -> Result<Option<Bytes>, Error> {
        let begun = |buf| {
            let mut w = StreamWriter::reusing(buf);
            w.info(head);
            w
        };
        let mut copied = keep.map(begun);
        // The space in the first chunk for the head of the stream.
        let mut from = HEAD;
        let (mut seen, mut stopped) = (0, false);
        loop {
            self.step().map_err(unavailable)?;
            if self.forgetful {
                std::thread::sleep(REST);
            }
            let State { done, overflow, full, target, tasks, .. } = *self.state();
            if overflow != 0 {
                return Ok(None);
            }
            if done != 0 && req.strategy.takes_pid() && target == 0 {
                return Err(Error::NoSuchProcess(req.pid));
            }
            if req.strategy.takes_pid() {
                // The number of tasks is only known now.
                req.expect((tasks - seen) as usize);
            }
            req.advance((tasks - seen) as usize);
            seen = tasks;
            if done != 0 || full != 0 {
                let error = if stopped { -libc::EINTR } else { 0 };
                let totals = build!(Done { error, ..self.totals() });
                let used = self.state().used;
                if done != 0 && copied.is_none() {
                    let out = self.output(mapped::extent(&used[..self.chunks]).1)?;
                    let mut first = StreamWriter::new();
                    first.info(head);
                    let first = first.finish(Done::default());
                    let head = &first.as_bytes()[..HEAD];
                    match MappedStream::new(out, &used[..self.chunks], head, &totals) {
                        Ok(m) => return Ok(Some(Bytes::of_memory(m))),
                        Err(memory) => self.out = Some(memory),
                    }
                }
                let out = match self.out.take() {
                    Some(out) => out,
                    None => self.output(self.chunks * CHUNK_SIZE)?,
                };
                let w = copied.get_or_insert_with(|| begun(large::buffer(expected)));
                let bytes = used[..self.chunks].iter().sum::<u32>() as usize;
                populate(w.spare(bytes));
                for (i, used) in used.iter().enumerate().take(self.chunks).filter(|u| *u.1 != 0) {
                    w.raw(out.slice(i * CHUNK_SIZE + from, *used as usize - from));
                    from = 0;
                }
                self.out = Some(out);
                if w.len() > self.most {
                    let (engine, cause) = (EngineId::Bpf, Cause::Limit);
                    let why = format!("the answer is longer than {} MiB", self.most >> 20);
                    return Err(Error::Unavailable { engine, cause, why });
                }
                if done != 0 {
                    self.iter = None;
                    let w = copied.take().expect("made above");
                    return Ok(Some(w.finish(totals).into()));
                }
                self.state.slice_mut(offset_of!(State, used), size_of_val(&used)).fill(0);
                self.set(offset_of!(State, chunk), 0);
                self.set(offset_of!(State, off), 0);
            }
            if req.is_stopped() && !stopped {
                stopped = true;
                self.set(offset_of!(State, stop), 1);
            }
        }
    }

    /// Map the first `len` bytes of the output, and a little more. Not all of it is mapped, because
    /// each page costs time and most answers are shorter than the output.
    fn output(&self, len: usize) -> Result<Mapping, Error> {
        let all = self.chunks * CHUNK_SIZE;
        let len = (len + mapped::SPARE).min(all).next_multiple_of(rustix::param::page_size());
        Mapping::new(self.loaded.map("out"), len)
            .map_err(|e| unavailable(("mapping the output", e)))
    }

    fn totals(&self) -> Done {
        let s = self.state();
        build!(Done {
            tasks: s.tasks,
            vanished: s.vanished,
            truncated: s.truncated,
            blocked: s.blocked,
            ..Done::default()
        })
    }
}

/// Processor time of this thread. Unlike the time of day, it leaves out other work of the
/// processor.
#[cfg(feature = "testing")]
fn processor_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// True after the newer program has failed to load here and the older one has loaded.
pub static IS_LEGACY: AtomicBool = AtomicBool::new(false);

/// Loads the program for this kernel: the newer one, or else the older one, which is then also used
/// for later requests.
fn load(groups: Groups, init: &[MapInit<'_>], legacy: bool) -> Result<(Loaded, bool), Failed> {
    let skeleton = match (groups.intersects(Groups::BPF_RARE), groups.intersects(Groups::BPF_MORE))
    {
        (true, _) => &SNAPSHOT,
        (false, true) => &MORE,
        (false, false) => &LITE,
    };
    let failed = if legacy || IS_LEGACY.load(Ordering::Relaxed) {
        None
    } else {
        match skeleton.load(init) {
            Ok(loaded) => return Ok((loaded, false)),
            // With too few rights, too little memory or many signals, the other program would fail,
            // too.
            Err(e)
                if ![skel::PROGRAMS, skel::REFUSED].contains(&e.0)
                    || is_no_memory(&e.1)
                    || is_signal(&e.1) =>
            {
                return Err(e);
            }
            Err(e) => Some(e),
        }
    };
    match LEGACY.load(init) {
        Ok(loaded) => {
            IS_LEGACY.fetch_or(!legacy, Ordering::Relaxed);
            Ok((loaded, true))
        }
        // A kernel without the functions that the newer program calls reports those, whatever keeps
        // the older one from being loaded.
        Err(e) => Err(failed.filter(|first| first.0 == skel::REFUSED).unwrap_or(e)),
    }
}

/// How many numbers processors and NUMA nodes may have, and whether the kernel has transparent huge
/// pages. 0: that is not known, as where sysfs is hidden.
fn sysfs() -> (u32, u32, u32) {
    let numbers = |list: &str| {
        let list = cpulist::ranges(&std::fs::read(list).ok()?)?;
        list.last().map(|last| last.end().saturating_add(1))
    };
    let cpus = numbers("/sys/devices/system/cpu/possible").unwrap_or(0);
    let nodes = match Path::new("/sys/devices/system/node").exists() {
        true => numbers("/sys/devices/system/node/possible").unwrap_or(0),
        // A kernel without NUMA has one node.
        false => u32::from(cpus != 0),
    };
    (cpus, nodes, u32::from(Path::new("/sys/kernel/mm/transparent_hugepage").exists()))
}

/// How long a tick of the kernel is. The coarse clocks advance once in a tick.
fn jiffy_ns() -> u32 {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the result.
    let r = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    if r == 0 { u32::try_from(tick.tv_nsec).unwrap_or(0) } else { 0 }
}

/// Is this process in the initial pid namespace, whose inode has had this number since Linux 3.8?
/// Before Linux 6.11, the program has to find that out. /proc/self/ns/pid would show it, but makes
/// the kernel create inodes.
fn in_first_pid_namespace() -> bool {
    const FIRST: u64 = 0xefff_fffc;
    sys::own_pid_namespace().is_ok_and(|inode| inode == FIRST)
}
