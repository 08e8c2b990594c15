//! Finds holders that an answer does not name: in the memory of the waiting process, in the
//! kernel's list of file locks, among the open files, and among the children.
//!
//! Each look begins and ends by reading where the thread waits. Only if the thread has not run in
//! between does the holder belong to this wait.

mod files;
mod names;
mod sockets;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use taskdiag_wire::{Groups, WaitKind};

use super::call::Call;
use super::graph::Graph;
use super::lockword::{self, Futex, Wanted};
use super::patience::Patience;
use super::task::{Place, Process, Stand};
use super::wait::{Holder, How, NoHolder, Wait, Waits};
use crate::engine::numbering;
use crate::{Choice, Request, query_with};

/// How long a look may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The time for one thread. The memory of a process may be a file whose server is gone.
    pub each: Duration,
    /// For all of them.
    pub all: Duration,
    /// Whether the other ends of sockets are looked up, for which the open files of all processes
    /// are read. Most processes of most machines wait for a socket.
    pub has_sockets: bool,
}

impl Default for Limits {
    /// One second for each thread, ten seconds for all, without sockets.
    fn default() -> Limits {
        let (each, all) = (Duration::from_secs(1), Duration::from_secs(10));
        Limits { each, all, has_sockets: false }
    }
}

/// From this many waits of one process on, they are looked up together.
const MANY: usize = 16;
/// How many processes are remembered, and how many mappings of all of them: any user can have
/// thousands of processes with 65,000 mappings each.
const PROCESSES: usize = 1024;
const MAPPINGS: usize = 1 << 20;

impl Waits {
    /// Looks up the holders of these waits, as indexes into [`all`](Self::all), of the holders'
    /// own waits, and so on to the heads of their chains. The waits must be of this machine, and
    /// just read. `choice` is who answers for the open files of all processes, which are read only
    /// if one of the waits is for a pipe or for the lock of an open file.
    pub fn look_up(&mut self, of: impl IntoIterator<Item = usize>, choice: Choice, limits: Limits) {
        let mut look = Look::new(self, choice, limits);
        let mut todo: Vec<usize> = of.into_iter().collect();
        let done = look.futexes(&todo);
        todo.extend(done.into_iter().filter_map(|at| look.onward(at)));
        let mut rounds = 0..sockets::ROUNDS;
        loop {
            while let Some(at) = todo.pop() {
                if !std::mem::replace(&mut look.is_done[at], true) {
                    look.one(at);
                    todo.extend(look.onward(at));
                }
            }
            if look.for_sockets.is_empty() || rounds.next().is_none() {
                break;
            }
            let done = look.sockets();
            todo.extend(done.into_iter().filter_map(|at| look.onward(at)));
        }
        look.leave_sockets(0);
        look.confirm_cycles();
    }
}

struct Look<'w> {
    waits: &'w mut Waits,
    choice: Choice,
    limits: Limits,
    end: Instant,
    patience: Patience,
    processes: HashMap<u32, Result<Arc<Process>, NoHolder>>,
    /// How many mappings these have together.
    mappings: usize,
    /// The places in programs from which the C library, and not the program, called futex(2).
    by_library: HashSet<(u32, u64)>,
    /// Processes whose memory or files could not be read in time.
    stuck: HashSet<u32>,
    /// The places where the threads were found waiting.
    stands: HashMap<usize, Stand>,
    children: Option<HashMap<u32, Vec<usize>>>,
    is_done: Vec<bool>,
    has_files: bool,
    /// The waits for sockets that are still to be looked up.
    for_sockets: Vec<usize>,
    has_numbers: bool,
    names: names::Seen,
}

impl<'w> Look<'w> {
    fn new(waits: &'w mut Waits, choice: Choice, limits: Limits) -> Look<'w> {
        Look {
            is_done: vec![false; waits.all.len()],
            waits,
            choice,
            limits,
            end: Instant::now() + limits.all,
            patience: Patience::default(),
            processes: HashMap::new(),
            mappings: 0,
            by_library: HashSet::new(),
            stuck: HashSet::new(),
            stands: HashMap::new(),
            children: None,
            has_files: false,
            for_sockets: Vec::new(),
            has_numbers: numbering::proc_is_own(),
            names: names::Seen::default(),
        }
    }

    /// The thread to look at after this one: the holder, if it alone can end the wait.
    fn onward(&self, at: usize) -> Option<usize> {
        let holder = self.waits.all[at].holder.ok()?;
        self.waits.find(holder.tid).filter(|_| self.waits.is_alone(&holder))
    }

    /// Does something that may wait for this process.
    fn within<T: Send + 'static>(
        &mut self,
        tgid: u32,
        what: impl FnOnce() -> Result<T, NoHolder> + Send + 'static,
    ) -> Result<T, NoHolder> {
        if self.stuck.contains(&tgid) {
            return Err(NoHolder::Blocked);
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoHolder::NotLookedAt);
        }
        self.patience.within(self.limits.each.min(left), what).unwrap_or_else(|| {
            self.stuck.insert(tgid);
            Err(NoHolder::Blocked)
        })
    }

    fn process(&mut self, tgid: u32) -> Result<Arc<Process>, NoHolder> {
        if let Some(known) = self.processes.get(&tgid) {
            return known.clone();
        }
        if self.processes.len() >= PROCESSES || self.mappings >= MAPPINGS {
            return Err(NoHolder::NotLookedAt);
        }
        let found = self.within(tgid, move || Process::read(tgid).map(Arc::new));
        self.mappings += found.as_ref().map_or(0, |process| process.mappings());
        self.processes.insert(tgid, found.clone());
        found
    }

    fn wait(&self, at: usize) -> (Place, Option<Call>) {
        let wait = &self.waits.all[at];
        (Place { tgid: wait.tgid, tid: wait.tid }, wait.call)
    }

    fn one(&mut self, at: usize) {
        use WaitKind::*;
        let wait = &self.waits.all[at];
        // The engine already knows the holder, or why there is none.
        if wait.holder != Err(NoHolder::NotKept) {
            return;
        }
        let Some(kind) = wait.kind else { return };
        let found = match kind {
            Futex | FutexLock | FutexCondition | FutexPi => self.futex(at),
            PosixLock | OfdLock | Flock | PipeRead | PipeWrite => {
                if !std::mem::replace(&mut self.has_files, true) {
                    self.by_files();
                }
                return;
            }
            Receive | Send | Accept | Connect => {
                self.for_sockets.extend(Some(at).filter(|_| self.limits.has_sockets));
                return;
            }
            Child | Vfork => self.child(at),
            Pidfd if self.wait(at).1.is_some_and(|call| call.is(libc::SYS_waitid)) => {
                self.child(at)
            }
            Traced => self.tracer(at),
            Ended => self.parent(at),
            Fuse | Netfs => return self.name_file(at),
            Frozen | Throttled => return self.name_cgroup(at),
            _ => return,
        };
        self.waits.all[at].holder = found;
    }

    /// Looks up many waits at once: those for locks that only the threads of one process use. The
    /// other waits are left to [`futex`](Self::futex). Returns the waits that were looked up.
    fn futexes(&mut self, of: &[usize]) -> Vec<usize> {
        use WaitKind::{Futex as Any, FutexCondition, FutexLock, FutexPi};
        if of.len() < MANY || !self.has_numbers {
            return Vec::new();
        }
        let mut items = Vec::new();
        for at in of {
            let wait = &self.waits.all[*at];
            let is_futex = matches!(wait.kind, Some(Any | FutexLock | FutexCondition | FutexPi));
            let (place, call) = self.wait(*at);
            let call = call.filter(|c| is_futex && c.is(libc::SYS_futex));
            let wanted = call.and_then(|c| lockword::of_call(&c.args));
            let (Some(call), Some(wanted)) = (call, wanted) else { continue };
            if self.waits.all[*at].holder != Err(NoHolder::NotKept) {
                continue;
            }
            let Ok(process) = self.process(place.tgid) else { continue };
            let is_own = wanted.is_private || process.shared(wanted.address).is_none();
            let is_plausible = wanted.what == Futex::Pi || process.is_in_library(call.code);
            if is_own && is_plausible && process.has_our_numbers {
                items.push((*at, place, call, wanted, self.waits.all[*at].switches));
            }
        }
        if items.len() < MANY {
            return Vec::new();
        }
        let stuck = Arc::new(Mutex::new(std::mem::take(&mut self.stuck)));
        let stuck = || Arc::clone(&stuck);
        let is_stuck = {
            let stuck = stuck();
            move |tgid| stuck.lock().unwrap_or_else(PoisonError::into_inner).contains(&tgid)
        };
        let look = move |item: &(usize, Place, Call, Wanted, Option<u64>)| {
            let (_, place, call, wanted, before) = item;
            if is_stuck(place.tgid) {
                return Err(NoHolder::Blocked);
            }
            let stand = place.stand_in(call, *before)?;
            if wanted.what != Futex::Pi && is_by_hand(*place, call)? {
                return Err(NoHolder::NotKept);
            }
            let id = holder_id(*place, wanted, call)?;
            let owner = Place { tgid: place.tgid, tid: id };
            is_still_held(*place, &stand, wanted, call, owner, id)?;
            Ok((id, stand))
        };
        let mut done = Vec::with_capacity(items.len());
        let (waits, stands, is_done) = (&mut self.waits, &mut self.stands, &mut self.is_done);
        self.patience.each(items, self.limits.each, self.end, look, |item, found| {
            let (at, place, _, wanted, _) = item;
            let found = found.unwrap_or_else(|| {
                stuck().lock().unwrap_or_else(PoisonError::into_inner).insert(place.tgid);
                Err(NoHolder::Blocked)
            });
            waits.all[*at].holder = found.map(|(id, stand)| {
                stands.insert(*at, stand);
                let how = wanted.how();
                Holder { tid: id, tgid: place.tgid, is_process: false, is_sure: true, how }
            });
            is_done[*at] = true;
            done.push(*at);
        });
        self.stuck = stuck().lock().unwrap_or_else(PoisonError::into_inner).clone();
        done
    }

    fn futex(&mut self, at: usize) -> Result<Holder, NoHolder> {
        let (place, call) = self.wait(at);
        let call = call.filter(|c| c.is(libc::SYS_futex)).ok_or(NoHolder::NotKept)?;
        let wanted = lockword::of_call(&call.args).ok_or(NoHolder::NotKept)?;
        if !self.has_numbers {
            return Err(NoHolder::OtherNumbers);
        }
        let process = self.process(place.tgid)?;
        let is_defined_by_kernel = wanted.what == Futex::Pi;
        if !is_defined_by_kernel && !process.is_in_library(call.code) {
            return Err(NoHolder::NotKept);
        }
        let shared = process.shared(wanted.address).filter(|_| !wanted.is_private);
        let is_own = shared.is_none() && process.has_our_numbers;
        let code = (place.tgid, call.code);
        let is_known = is_defined_by_kernel || self.by_library.contains(&code);
        let before = self.waits.all[at].switches;
        let (id, stand) = self.within(place.tgid, move || {
            let stand = place.stand_in(&call, before)?;
            if !is_known && is_by_hand(place, &call)? {
                return Err(NoHolder::NotKept);
            }
            let id = holder_id(place, &wanted, &call)?;
            if is_own {
                let owner = Place { tgid: place.tgid, tid: id };
                is_still_held(place, &stand, &wanted, &call, owner, id)?;
            }
            Ok((id, stand))
        })?;
        // The word of a futex with priority inheritance does not depend on which function called.
        if !is_defined_by_kernel {
            self.by_library.insert(code);
        }
        // Find the holder's process. It is the waiting one, unless other processes share this
        // memory.
        let owner = match (shared, process.has_our_numbers) {
            (None, true) => Place { tgid: place.tgid, tid: id },
            (None, false) => {
                let tid = self.within(place.tgid, move || Ok(place.thread_with_own_id(id)))?;
                Place { tgid: place.tgid, tid: tid.ok_or(NoHolder::NotKept)? }
            }
            (Some(_), false) => return Err(NoHolder::OtherNumbers),
            (Some(_), true) => {
                let thread = self.within(place.tgid, move || Ok(Place::of_thread(id)))?;
                thread.ok_or(NoHolder::NotKept)?
            }
        };
        if owner.tgid != place.tgid {
            let other = self.process(owner.tgid)?;
            let maps = shared.is_some_and(|shared| other.maps(&shared));
            if !maps || !other.has_our_numbers {
                return Err(NoHolder::NotKept);
            }
        }
        if !is_own {
            let check = move || is_still_held(place, &stand, &wanted, &call, owner, id);
            self.within(place.tgid, check)?;
        }
        self.stands.insert(at, stand);
        let how = wanted.how();
        Ok(Holder { tid: owner.tid, tgid: owner.tgid, is_process: false, is_sure: true, how })
    }

    fn tracer(&mut self, at: usize) -> Result<Holder, NoHolder> {
        let (place, _) = self.wait(at);
        let tracer = self.within(place.tgid, move || Ok(place.tracer()))?;
        let Place { tgid, tid } = tracer.ok_or(NoHolder::NotKnown)?;
        Ok(Holder { tid, tgid, is_process: false, is_sure: true, how: How::Tracer })
    }

    fn parent(&self, at: usize) -> Result<Holder, NoHolder> {
        let wait = &self.waits.all[at];
        // The first thread of a process that still runs is no zombie that a parent could reap.
        let is_whole = wait.tid == wait.tgid && self.waits.threads_of(wait.tgid) == 1;
        let parent = wait.parent;
        if !is_whole || self.waits.find(parent).is_none() {
            return Err(NoHolder::Nobody);
        }
        Ok(Holder { tid: parent, tgid: parent, is_process: true, is_sure: true, how: How::Parent })
    }

    /// The child that a process waits for.
    fn child(&mut self, at: usize) -> Result<Holder, NoHolder> {
        let (place, call) = self.wait(at);
        let wanted = self.wanted_child(at)?;
        let all = &self.waits.all;
        let children = self.children.get_or_insert_with(|| {
            let mut of: HashMap<u32, Vec<usize>> = HashMap::new();
            for (i, w) in all.iter().enumerate().filter(|(_, w)| w.tid == w.tgid) {
                of.entry(w.parent).or_default().push(i);
            }
            of
        });
        let all = children.get(&place.tgid).into_iter().flatten();
        let fits: Vec<u32> =
            all.map(|i| &self.waits.all[*i]).filter(|w| wanted.fits(w)).map(|w| w.tgid).collect();
        let child = match fits[..] {
            [] => return Err(NoHolder::NotKnown),
            [child] => child,
            _ => return Err(NoHolder::Several(fits.len() as u32)),
        };
        let Some(call) = call else { return Err(NoHolder::NotKnown) };
        let before = self.waits.all[at].switches;
        let stand = self.within(place.tgid, move || {
            let stand = place.stand_in(&call, before)?;
            if !(Place { tgid: child, tid: child }).is_child_of(place.tgid) {
                return Err(NoHolder::Changed);
            }
            place.is_still(&stand)?;
            Ok(stand)
        })?;
        self.stands.insert(at, stand);
        Ok(Holder { tid: child, tgid: child, is_process: true, is_sure: true, how: How::Child })
    }

    fn wanted_child(&mut self, at: usize) -> Result<WantedChild, NoHolder> {
        let (place, call) = self.wait(at);
        let own_group = self.waits.all[at].pgid;
        let Some(call) = call else { return Ok(WantedChild::Any) };
        if call.is(libc::SYS_wait4) {
            return Ok(match call.args[0] as i32 {
                -1 => WantedChild::Any,
                0 => WantedChild::Group(own_group),
                n if n < 0 => WantedChild::Group(n.unsigned_abs()),
                n => WantedChild::Process(n as u32),
            });
        }
        if call.is(libc::SYS_waitid) {
            let [kind, id, ..] = call.args;
            return Ok(match kind as libc::idtype_t {
                libc::P_ALL => WantedChild::Any,
                libc::P_PID => WantedChild::Process(id as u32),
                libc::P_PGID if id == 0 => WantedChild::Group(own_group),
                libc::P_PGID => WantedChild::Group(id as u32),
                libc::P_PIDFD => {
                    let pid = self.within(place.tgid, move || Ok(place.pidfd(id as u32)))?;
                    WantedChild::Process(pid.ok_or(NoHolder::NotKnown)?)
                }
                _ => return Err(NoHolder::NotKnown),
            });
        }
        Ok(WantedChild::Any)
    }

    /// The waits of a cycle were looked at one after another. It is a deadlock only if they were
    /// there at the same time. So each holder is looked up once more, and none of the threads may
    /// have run from before the first of these looks until after the last one.
    fn confirm_cycles(&mut self) {
        self.open_cycles_of_sockets();
        let cycles = self.in_cycles();
        let stand = |look: &mut Look<'_>, at| {
            let (place, _) = look.wait(at);
            look.within(place.tgid, move || place.stand())
        };
        let stands: Vec<_> = cycles.iter().map(|at| stand(self, *at)).collect();
        let files: HashMap<_, _> = self.files_held(&cycles).into_iter().collect();
        let mut answers = HashMap::new();
        let again: Vec<_> = cycles
            .iter()
            .map(|at| files.get(at).copied().unwrap_or_else(|| self.again(*at, &mut answers)))
            .collect();
        for ((at, stand), again) in cycles.iter().zip(stands).zip(again) {
            let (place, _) = self.wait(*at);
            let is_still =
                stand.and_then(|stand| self.within(place.tgid, move || place.is_still(&stand)));
            let wait = &mut self.waits.all[*at];
            wait.holder = match is_still {
                Err(why) => Err(why),
                Ok(()) if again != wait.holder => Err(NoHolder::Changed),
                Ok(()) => again,
            };
        }
    }

    /// The waits that are part of a cycle.
    fn in_cycles(&self) -> Vec<usize> {
        let graph = Graph::new(self.waits);
        graph.cycles().iter().flatten().map(|at| graph.node(*at).wait).collect()
    }

    /// The holder at a second look. It is not about files, which are looked up together. `answers`
    /// has the new answers about processes, as far as they were needed.
    fn again(
        &mut self,
        at: usize,
        answers: &mut HashMap<u32, Option<Waits>>,
    ) -> Result<Holder, NoHolder> {
        let before = self.waits.all[at].holder?;
        match before.how {
            How::Kernel => {
                let (tid, tgid) = (self.waits.all[at].tid, self.waits.all[at].tgid);
                let now = answers.entry(tgid).or_insert_with(|| self.answer_about(tgid)).as_ref();
                let found = now.and_then(|now| Some(&now.all[now.find(tid)?]));
                found.ok_or(NoHolder::Changed)?.holder
            }
            How::Child => self.child(at),
            How::Tracer => self.tracer(at),
            // A zombie does not run, and keeps its parent as long as that lives.
            How::Parent => Ok(before),
            _ => self.futex(at),
        }
    }

    /// A new answer about the threads of a process, if there is time.
    fn answer_about(&self, tgid: u32) -> Option<Waits> {
        let request = Request::threads(tgid, Groups::BASE | Groups::WAIT);
        let has_time = Instant::now() < self.end;
        has_time.then(|| query_with(&request, self.choice).ok().map(|a| Waits::of(&a))).flatten()
    }
}

/// The children that a call waits for.
enum WantedChild {
    Any,
    Process(u32),
    Group(u32),
}

impl WantedChild {
    fn fits(&self, child: &Wait) -> bool {
        match self {
            WantedChild::Any => true,
            WantedChild::Process(pid) => child.tgid == *pid,
            WantedChild::Group(pgid) => child.pgid == *pgid,
        }
    }
}

/// Whether the program made the call itself, by the function `syscall()`.
fn is_by_hand(place: Place, call: &Call) -> Result<bool, NoHolder> {
    let ours = lockword::SYSCALL;
    let Some(begin) = call.code.checked_sub(ours.len() as u64) else { return Ok(true) };
    Ok(ours.is_empty() || place.memory(begin, ours.len())? == ours)
}

/// Whether a second look finds the same living holder, and the thread still waits.
fn is_still_held(
    place: Place,
    stand: &Stand,
    wanted: &Wanted,
    call: &Call,
    owner: Place,
    id: u32,
) -> Result<(), NoHolder> {
    let is_same = || Ok(holder_id(place, wanted, call)? == id);
    if !owner.lives() || !is_same()? {
        return Err(NoHolder::Changed);
    }
    place.is_still(stand)
}

/// The id in the lock, as the process has it.
fn holder_id(place: Place, wanted: &Wanted, call: &Call) -> Result<u32, NoHolder> {
    let (address, len) = wanted.window().ok_or(NoHolder::NotKept)?;
    let bytes = place.memory(address, len)?;
    wanted.holder(&bytes, call.args[2] as u32).ok_or(NoHolder::NotKept)
}
