//! The data for a `struct pids_info` that this library handed out: the real one, and our own state.
//!
//! `reap` makes the rows of all tasks at once. `get` makes one row at a time, as in the real
//! library, so that a walk over many processes with long arguments needs memory for one of them.

mod maker;

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::ptr::null_mut;

use taskdiag::{Processes, Snapshot, TaskView, Tick};

use self::maker::{Cell, Maker};
use crate::abi::{PidsCounts, PidsFetch, PidsInfo, PidsStack, THREADS_TOO};
use crate::fill::{Common, Own, fd_has_size};
use crate::guard::Failed;
use crate::item::Item;
use crate::memory::{self, Room, grow, tried};
use crate::old::{Old, Values};
use crate::parts::Parts;
use crate::plan::Plan;
use crate::real::{Real, Version};
use crate::rows::Rows;
use crate::sources::{self, Refused, Sources};
use crate::stats;
use crate::text::Escape;
use crate::tty::Ttys;

/// The counters of a task at the last fetch: clock ticks, major and minor faults.
type Past = HashMap<u32, [u64; 3]>;

/// A context.
pub struct Context {
    pub real: &'static Real,
    pub version: Version,
    /// The context of the real library.
    pub info: *mut PidsInfo,
    plan: Option<Plan>,
    /// For `reap`.
    sources: Sources,
    reaped: Rows,
    past: Past,
    counts: Box<PidsCounts>,
    fetch: Box<PidsFetch>,
    /// For `get`.
    walk: Option<Walk>,
    walk_sources: Sources,
    got: Rows,
    got_type: Option<c_int>,
    /// Tasks that were returned before the items changed. They are not returned again in this walk.
    passed: HashSet<u32>,
    /// Whether a walk must begin, or continue with other items.
    is_stale: bool,
    common: Common,
    old: Option<Old>,
    whole: Option<Old>,
}

// SAFETY: a context is used by one thread at a time, as the real library demands of its callers.
// The pointers in it lead to memory of its own.
unsafe impl Send for Context {}

/// The data that all rows of a fetch share.
#[derive(Default)]
struct Fetch {
    threads: bool,
    own: Own,
    cells: Vec<Cell>,
    /// The values that the real library has.
    old: Values,
    /// All memory must be freed after the call.
    is_limited: bool,
    /// Allocations may fail.
    is_guarded: bool,
    /// The parts in which the processes are requested, and the number of parts requested so far.
    parts: Vec<Processes>,
    part: usize,
}

impl Fetch {
    /// Whether there is an answer about the last part.
    fn is_last(&self) -> bool {
        self.part >= self.parts.len()
    }
}

/// A walk of `get`.
struct Walk {
    fetch: Fetch,
    /// The ids of the tasks of the parts so far, in the order in which they are given out.
    order: Vec<u32>,
    /// How many of them are done.
    at: usize,
    /// Whether the real library returns the rest.
    is_passed_on: bool,
}

impl Context {
    /// Around a context of the real library.
    pub fn new(real: &'static Real, version: Version, info: *mut PidsInfo) -> Box<Context> {
        // SAFETY: plain calls that return numbers.
        let number = |name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0);
        let hertz = number(libc::_SC_CLK_TCK).max(1);
        let mut counts = Box::new(PidsCounts::default());
        Box::new(Context {
            real,
            version,
            info,
            plan: None,
            sources: Sources::default(),
            reaped: Rows::default(),
            past: Past::new(),
            fetch: Box::new(PidsFetch { counts: &mut *counts, stacks: null_mut() }),
            counts,
            walk: None,
            walk_sources: Sources::default(),
            got: Rows::default(),
            got_type: None,
            passed: HashSet::new(),
            is_stale: false,
            common: Common {
                version,
                escape: Escape::of_locale(version),
                ttys: Ttys::default(),
                hertz,
                tick_ns: Tick::here().ns(),
                page_bytes: number(libc::_SC_PAGESIZE).max(1),
                boot_ticks: 0,
                has_comm: false,
                fd_has_size: fd_has_size(),
                file: Vec::new(),
                text: Vec::new(),
                line: Vec::new(),
            },
            old: None,
            whole: None,
        })
    }

    /// Whether items were set.
    pub fn has_items(&self) -> bool {
        self.plan.is_some()
    }

    /// Sets the items, which the real library has accepted.
    pub fn set(&mut self, items: Vec<Item>) -> Result<(), Refused> {
        let Some(plan) = &self.plan else {
            self.plan = Some(Plan::new(items, self.version));
            return Ok(());
        };
        if plan.items == items {
            return Ok(());
        }
        let grows = plan.items.len() < items.len();
        self.plan = Some(Plan::new(items, self.version));
        self.sources = Sources::default();
        self.walk_sources = Sources::default();
        self.reaped.retire();
        self.old = None;
        self.whole = None;
        // The rest of a walk has the new items, as with the real library. The walk starts again if
        // there are more items than before.
        self.got.retire();
        let walk = self.walk.take();
        if grows {
            self.got_type = None;
        } else if let Some(walk) = walk {
            if walk.is_passed_on {
                self.walk = Some(walk);
                return Ok(());
            }
            self.is_stale = true;
            let done = &walk.order[..walk.at];
            tried(|| self.passed.try_reserve(done.len()))?;
            self.passed.extend(done);
        }
        Ok(())
    }

    /// All tasks at once.
    pub fn reap(&mut self, which: c_int) -> Result<*mut PidsFetch, Refused> {
        *self.counts = PidsCounts::default();
        let filled = self.fill(which);
        if let Err(Refused::Failed(_)) = filled {
            self.sources = Sources::default();
            self.reaped = Rows::default();
        }
        filled?;
        self.fetch.stacks = self.reaped.shown.as_mut_ptr();
        Ok(if self.reaped.len > 0 { &mut *self.fetch } else { null_mut() })
    }

    /// The next task, and whether we make its row. If not, the real library makes this call and all
    /// later ones.
    pub fn get(&mut self, which: c_int) -> (*mut PidsStack, bool) {
        if self.got_type != Some(which) {
            self.got_type = Some(which);
            self.passed.clear();
            self.is_stale = true;
        }
        if self.is_stale {
            self.is_stale = false;
            self.walk = None;
            self.walk = Some(self.begin_walk(which).unwrap_or_else(|why| {
                stats::passed(&why.to_string());
                Walk::default()
            }));
        }
        let mut walk = self.walk.take().unwrap_or_default();
        let next = self.next(&mut walk, which);
        if next.is_null() && (walk.fetch.is_limited || walk.is_passed_on) {
            self.walk_sources = Sources::default();
        } else if next.is_null() && walk.fetch.parts.len() > 1 {
            self.walk_sources.end_parts(walk.fetch.threads);
        }
        let is_ours = !walk.is_passed_on;
        self.walk = Some(walk);
        (next, is_ours)
    }

    fn begin_walk(&mut self, which: c_int) -> Result<Walk, Refused> {
        let mut rows = std::mem::take(&mut self.got);
        let fetch = self.begin(which, true, &mut rows);
        self.got = rows;
        let fetch = match fetch {
            Ok(fetch) => fetch,
            Err(why) => {
                self.walk_sources = Sources::default();
                return Err(why);
            }
        };
        let mut walk = Walk { fetch, order: Vec::new(), at: 0, is_passed_on: false };
        self.list(&mut walk)?;
        Ok(walk)
    }

    /// Adds the tasks of a part to those of a walk.
    fn list(&self, walk: &mut Walk) -> Result<(), Refused> {
        let (snapshot, _) = self.walk_sources.answers(walk.fetch.threads)?;
        let tasks = ordered(snapshot)?;
        grow(&mut walk.order, tasks.len())?;
        walk.order.extend(tasks.iter().map(TaskView::pid));
        Ok(())
    }

    /// Asks for the next part of a walk.
    fn go_on(&mut self, walk: &mut Walk) -> Result<(), Refused> {
        let plan = self.plan.as_ref().expect("the caller has looked");
        ask_next(plan, &mut self.walk_sources, &mut walk.fetch, self.version, true)?;
        self.list(walk)
    }

    /// The next row of a walk, or NULL at its end.
    fn next(&mut self, walk: &mut Walk, which: c_int) -> *mut PidsStack {
        while !walk.is_passed_on {
            let Some(&id) = walk.order.get(walk.at) else {
                if walk.fetch.is_last() {
                    return null_mut();
                }
                if let Err(why) = self.go_on(walk) {
                    stats::passed(&why.to_string());
                    walk.is_passed_on = true;
                }
                continue;
            };
            if !self.passed.contains(&id) {
                match self.one(&walk.fetch, id) {
                    Ok(None) => {}
                    Ok(Some(stack)) => {
                        walk.at += 1;
                        return stack;
                    }
                    Err(why) => {
                        stats::passed(&why.to_string());
                        walk.is_passed_on = true;
                        break;
                    }
                }
            }
            walk.at += 1;
        }
        self.rest(walk, which)
    }

    /// The next row of the real library whose task was not returned yet.
    fn rest(&mut self, walk: &Walk, which: c_int) -> *mut PidsStack {
        let items = self.plan.as_ref().map_or(&[][..], |plan| &plan.items);
        let is_id = |item: &Item| match which {
            THREADS_TOO => matches!(*item, Item::ID_PID | Item::ID_TID),
            _ => matches!(*item, Item::ID_PID | Item::ID_TID | Item::ID_TGID),
        };
        let at = items.iter().position(is_id);
        loop {
            // SAFETY: it is the context of the real library.
            let stack = unsafe { (self.real.get)(self.info, which) };
            let (Some(at), false) = (at, stack.is_null()) else { return stack };
            // SAFETY: the row has as many results as there are items.
            let id = unsafe { (*(*stack).head.add(at)).value } as u32;
            if !self.passed.contains(&id) && !walk.order[..walk.at].contains(&id) {
                return stack;
            }
        }
    }

    /// The row of one task of a walk. `None`: the task has ended.
    fn one(&mut self, fetch: &Fetch, id: u32) -> Result<Option<*mut PidsStack>, Refused> {
        let plan = self.plan.as_ref().expect("the caller has looked");
        let (snapshot, processes) = self.walk_sources.answers(fetch.threads)?;
        let Some(view) = snapshot.task(id) else { return Ok(None) };
        self.got.begin(plan.items.len(), 1)?;
        let mut maker = Maker {
            common: &mut self.common,
            whole: &mut self.whole,
            real: self.real,
            version: self.version,
            plan,
            fetch,
            past: None,
        };
        Ok(maker.row(view, processes, &mut self.got)?.map(|_| {
            self.got.keep(id);
            self.got.first()
        }))
    }

    /// Makes the requests, and prepares everything for the first row.
    fn begin(&mut self, which: c_int, walks: bool, rows: &mut Rows) -> Result<Fetch, Refused> {
        let plan = self.plan.as_ref().expect("the caller has looked");
        let threads = which == THREADS_TOO;
        let abi = self.version.abi();
        let room = memory::room();
        if room == Room::TooLittle || memory::is_short() {
            return Err(Failed::Memory.into());
        }
        self.common.boot_ticks = boot_ticks(self.common.hertz, self.version);
        self.common.escape = Escape::of_locale(self.version);
        self.common.has_comm = plan.has_comm;
        self.common.make_room()?;
        let own = Own::now()?;
        let Parts { parts, count } = Parts::now(|| sources::divides(plan, threads, self.version))?;
        let mut fetch = Fetch {
            threads,
            own,
            cells: plan.items.iter().map(|item| Cell::new(*item, plan, abi)).collect(),
            old: Values::new(),
            is_limited: room == Room::Limited,
            is_guarded: room != Room::Free,
            parts,
            part: 0,
        };
        let sources = if walks { &mut self.walk_sources } else { &mut self.sources };
        ask_next(plan, sources, &mut fetch, self.version, walks)?;
        let (snapshot, _) = sources.answers(threads)?;
        let expected = snapshot.tasks().len().max(count);
        rows.begin(plan.items.len(), if walks { 1 } else { expected })?;
        rows.kept.clear();
        if !plan.old.is_empty() {
            if self.old.is_none() {
                self.old = Old::new(self.real, self.version, plan.old.iter().copied());
            }
            for item in &plan.old {
                stats::old(*item, expected);
            }
            fetch.old = self.old.as_mut().ok_or(Refused::Old)?.all(threads, &mut rows.kept)?;
        }
        Ok(fetch)
    }

    /// Makes the rows of all tasks.
    fn fill(&mut self, which: c_int) -> Result<(), Refused> {
        let mut rows = std::mem::take(&mut self.reaped);
        let fetch = self.begin(which, false, &mut rows);
        self.reaped = rows;
        let mut fetch = fetch?;
        let rows = &mut self.reaped;
        let plan = self.plan.as_ref().expect("the caller has looked");
        let mut present = Past::new();
        loop {
            let (snapshot, processes) = self.sources.answers(fetch.threads)?;
            if plan.has_delta {
                tried(|| present.try_reserve(snapshot.tasks().len()))?;
            }
            let mut maker = Maker {
                common: &mut self.common,
                whole: &mut self.whole,
                real: self.real,
                version: self.version,
                plan,
                fetch: &fetch,
                past: Some(&self.past),
            };
            for view in ordered(snapshot)? {
                let Some(made) = maker.row(view, processes, rows)? else { continue };
                rows.keep(view.pid());
                self.counts.add(if plan.has_comm { made.state } else { 0 }, self.version.abi());
                if let Some(used) = made.used.filter(|_| plan.has_delta) {
                    present.insert(view.pid(), used);
                }
            }
            if fetch.is_last() {
                break;
            }
            ask_next(plan, &mut self.sources, &mut fetch, self.version, false)?;
        }
        rows.end();
        self.past = present;
        if fetch.is_limited {
            self.sources = Sources::default();
        } else if fetch.parts.len() > 1 {
            self.sources.end_parts(fetch.threads);
        }
        Ok(())
    }
}

/// Asks for the next part.
fn ask_next(
    plan: &Plan,
    sources: &mut Sources,
    fetch: &mut Fetch,
    version: Version,
    walks: bool,
) -> Result<(), Refused> {
    let part = fetch.parts[fetch.part];
    fetch.part += 1;
    sources.ask(plan, fetch.is_guarded, fetch.threads, version, walks, part)?;
    let (snapshot, _) = sources.answers(fetch.threads)?;
    match fetch.part {
        1 => stats::answered(snapshot),
        _ => stats::continued(snapshot),
    }
    Ok(())
}

impl Default for Walk {
    /// A walk that the real library does.
    fn default() -> Walk {
        Walk { fetch: Fetch::default(), order: Vec::new(), at: 0, is_passed_on: true }
    }
}

/// The tasks in the order of /proc. Threads stay in the order in which they began.
fn ordered(snapshot: &Snapshot) -> Result<Vec<TaskView<'_>>, Refused> {
    let mut tasks: Vec<TaskView<'_>> = Vec::new();
    grow(&mut tasks, snapshot.tasks().len())?;
    tasks.extend(snapshot.tasks());
    if tasks.is_sorted_by_key(TaskView::tgid) {
        return Ok(tasks);
    }
    // A stable sort would also allocate memory, and could not report a failure.
    let mut order: Vec<(u32, usize)> = Vec::new();
    grow(&mut order, tasks.len())?;
    order.extend(tasks.iter().enumerate().map(|(at, task)| (task.tgid(), at)));
    order.sort_unstable();
    let mut sorted = Vec::new();
    grow(&mut sorted, tasks.len())?;
    sorted.extend(order.into_iter().map(|(_, at)| tasks[at]));
    Ok(sorted)
}

/// The time since boot in clock ticks, rounded as in the real library.
fn boot_ticks(hertz: u64, version: Version) -> u64 {
    let ticks = |seconds: f64| (seconds * hertz as f64) as u64;
    if version.has_fine_uptime() {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a struct of our own, which the call fills.
        let said = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
        return if said == 0 { ticks(now.tv_sec as f64 + now.tv_nsec as f64 * 1.0e-9) } else { 0 };
    }
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: Option<f64> = text.split_whitespace().next().and_then(|s| s.parse().ok());
    seconds.map_or(0, ticks)
}

impl Drop for Context {
    fn drop(&mut self) {
        debug_assert!(self.info.is_null(), "the real context goes first");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{Abi, TASKS_ONLY};
    use std::ffi::c_uint;

    /// A library whose functions must not be called.
    fn nobody() -> &'static Real {
        unsafe extern "C" fn new(_: *mut *mut PidsInfo, _: *const c_int, _: c_int) -> c_int {
            panic!("new")
        }
        unsafe extern "C" fn more(_: *mut PidsInfo) -> c_int {
            panic!("ref")
        }
        unsafe extern "C" fn less(_: *mut *mut PidsInfo) -> c_int {
            panic!("unref")
        }
        unsafe extern "C" fn get(_: *mut PidsInfo, _: c_int) -> *mut PidsStack {
            panic!("get")
        }
        unsafe extern "C" fn reap(_: *mut PidsInfo, _: c_int) -> *mut PidsFetch {
            panic!("reap")
        }
        unsafe extern "C" fn reset(_: *mut PidsInfo, _: *const c_int, _: c_int) -> c_int {
            panic!("reset")
        }
        unsafe extern "C" fn select(
            _: *mut PidsInfo,
            _: *const c_uint,
            _: c_int,
            _: c_int,
        ) -> *mut PidsFetch {
            panic!("select")
        }
        unsafe extern "C" fn sort(
            _: *mut PidsInfo,
            _: *mut *mut PidsStack,
            _: c_int,
            _: c_int,
            _: c_int,
        ) -> *mut *mut PidsStack {
            panic!("sort")
        }
        Box::leak(Box::new(Real {
            new,
            r#ref: more,
            unref: less,
            fatal: get,
            get,
            reap,
            reset,
            select,
            sort,
            version: Some(Version::V404),
            path: "/libproc2.so.0.0.2".into(),
        }))
    }

    /// The id and the second item of the next row of a walk.
    fn next(context: &mut Context) -> Option<(u32, c_int)> {
        let (stack, is_ours) = context.get(TASKS_ONLY);
        assert!(is_ours);
        // SAFETY: it is NULL, or a row of two items.
        unsafe {
            let head = stack.as_ref()?.head;
            Some(((*head).value as u32, (*head.add(1)).item))
        }
    }

    #[test]
    fn a_walk_continues_with_other_items() {
        let mut context = Context::new(nobody(), Version::V404, null_mut());
        let sets = [vec![Item::ID_PID, Item::ID_TGID], vec![Item::ID_PID, Item::ID_PPID]];
        context.set(sets[0].clone()).expect("it is set");
        // Processes may come and go during this, but not thousands.
        let most = 1000 + std::fs::read_dir("/proc").expect("it is mounted").count();
        let mut seen = Vec::new();
        while let Some((id, second)) = next(&mut context) {
            assert_eq!(second, sets[seen.len() % 2][1].number(Abi::So0));
            assert!(!seen.contains(&id), "{id} came twice");
            seen.push(id);
            assert!(seen.len() < most, "the walk does not end");
            context.set(sets[seen.len() % 2].clone()).expect("it is set");
            // A repetition between two rows changes nothing.
            context.set(sets[1 - seen.len() % 2].clone()).expect("it is set");
            context.set(sets[seen.len() % 2].clone()).expect("it is set");
        }
        assert!(seen.contains(&1) && seen.contains(&std::process::id()), "{seen:?}");
        // More items start it again.
        context.set(vec![Item::ID_PID, Item::ID_TGID, Item::ID_PPID]).expect("it is set");
        context.set(sets[0].clone()).expect("it is set");
        assert_eq!(next(&mut context).map(|row| row.0), seen.first().copied());
    }
}
