//! What stands behind a `struct pids_info` that this library gave out: the real one, and what is known besides.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::ptr::null_mut;

use taskdiag::{Choice, Error, Repeated, TaskView};

use crate::abi::{Abi, PidsCounts, PidsFetch, PidsInfo, PidsResult, PidsStack, THREADS_TOO};
use crate::fill::{Common, Own, Task, fd_has_size};
use crate::item::Item;
use crate::old::Old;
use crate::plan::Plan;
use crate::real::{Real, Version};
use crate::rows::Rows;
use crate::stats;
use crate::text::Escape;
use crate::tty::Ttys;

/// Why a call is not answered here. Then the real library answers it.
#[derive(Debug)]
pub enum Refused {
    /// An engine failed.
    Engine(Error),
    /// The real library would not make a context for items.
    Old,
    /// A value is missing, and the real library cannot be asked for one task without a loss.
    Missing,
}

impl From<Error> for Refused {
    fn from(e: Error) -> Refused {
        Refused::Engine(e)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Engine(e) => e.fmt(f),
            Refused::Old => f.write_str("it refuses some of its own items"),
            Refused::Missing => f.write_str(
                "a value is missing, and its function for single processes leaves files open",
            ),
        }
    }
}

/// What a task had used at the last fetch: clock ticks, major and minor faults.
type Past = HashMap<u32, [u64; 3]>;

/// A context.
pub struct Context {
    pub real: &'static Real,
    pub version: Version,
    /// The context of the real library.
    pub info: *mut PidsInfo,
    plan: Option<Plan>,
    /// For `reap`: of processes, and of threads.
    sources: [(Repeated, Repeated); 2],
    reaped: Rows,
    past: Past,
    counts: Box<PidsCounts>,
    fetch: Box<PidsFetch>,
    /// For `get`.
    got: Rows,
    got_type: Option<c_int>,
    /// How many of its rows were given out, or `None` if the real library gives them.
    given: Option<usize>,
    /// Tasks that were given out before the items changed. They do not come again in this walk.
    passed: HashSet<u32>,
    /// Are the rows of `get` to be made anew?
    is_stale: bool,
    common: Common,
    old: Option<Old>,
    whole: Option<Old>,
}

// SAFETY: a context is used by one thread at a time, as the real library demands of its callers. The pointers in it lead
// to memory of its own.
unsafe impl Send for Context {}

/// The items that a whole row of the real library has besides those that were asked.
const BESIDES: [Item; 4] = [Item::STATE, Item::TICS_ALL, Item::FLT_MAJ, Item::FLT_MIN];

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
            sources: Default::default(),
            reaped: Rows::default(),
            past: Past::new(),
            fetch: Box::new(PidsFetch { counts: &mut *counts, stacks: null_mut() }),
            counts,
            got: Rows::default(),
            got_type: None,
            given: None,
            passed: HashSet::new(),
            is_stale: false,
            common: Common {
                version,
                escape: Escape::of_locale(version),
                ttys: Ttys::default(),
                hertz,
                tick_ns: 1_000_000_000 / hertz,
                page_bytes: number(libc::_SC_PAGESIZE).max(1),
                boot_ticks: 0,
                has_comm: false,
                fd_has_size: fd_has_size(),
                file: Vec::new(),
                text: Vec::new(),
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
    pub fn set(&mut self, items: Vec<Item>) {
        let Some(plan) = &self.plan else {
            self.plan = Some(Plan::new(items, self.version));
            return;
        };
        if plan.items == items {
            return;
        }
        let grows = plan.items.len() < items.len();
        self.plan = Some(Plan::new(items, self.version));
        self.sources = Default::default();
        self.reaped.retire();
        self.old = None;
        self.whole = None;
        // The rest of a walk has the new items, as with the real library. It begins anew if there are more of them.
        if grows {
            self.got.retire();
            self.got_type = None;
            self.given = None;
        } else if let Some(given) = &mut self.given {
            self.passed.extend(&self.got.ids[..*given]);
            self.got.retire();
            *given = 0;
            self.is_stale = true;
        }
    }

    /// All tasks at once.
    pub fn reap(&mut self, which: c_int) -> Result<*mut PidsFetch, Refused> {
        *self.counts = PidsCounts::default();
        let mut rows = std::mem::take(&mut self.reaped);
        let filled = self.fill(which, &mut rows, true);
        self.reaped = rows;
        filled?;
        self.fetch.stacks = self.reaped.shown.as_mut_ptr();
        Ok(if self.reaped.len > 0 { &mut *self.fetch } else { null_mut() })
    }

    /// The next task. `Ok(None)`: the real library has the rest.
    pub fn get(&mut self, which: c_int) -> Result<Option<*mut PidsStack>, Refused> {
        if self.got_type != Some(which) {
            self.got_type = Some(which);
            self.passed.clear();
            self.is_stale = true;
        }
        if self.is_stale {
            self.is_stale = false;
            self.given = None;
            let mut rows = std::mem::take(&mut self.got);
            let filled = self.fill(which, &mut rows, false);
            self.got = rows;
            filled?;
            self.given = Some(0);
        }
        let Some(given) = &mut self.given else { return Ok(None) };
        let next = self.got.shown[*given];
        if !next.is_null() {
            *given += 1;
        }
        Ok(Some(next))
    }

    /// Makes the rows of all tasks.
    fn fill(&mut self, which: c_int, rows: &mut Rows, reaps: bool) -> Result<(), Refused> {
        let plan = self.plan.clone().expect("the caller has looked");
        let threads = which == THREADS_TOO;
        let abi = self.version.abi();
        self.common.boot_ticks = boot_ticks(self.common.hertz, self.version);
        self.common.escape = Escape::of_locale(self.version);
        self.common.has_comm = plan.has_comm;
        let own = Own::now();
        let (source, process_source) = &mut self.sources[usize::from(threads)];
        let snapshot = source.ask(&plan.request(threads), Choice::Auto)?;
        let processes = match plan.processes(threads, self.version) {
            Some(request) => Some(process_source.ask(&request, Choice::Auto)?),
            None => None,
        };
        stats::answered(snapshot);
        let mut tasks: Vec<TaskView<'_>> = snapshot.tasks().collect();
        if !tasks.is_sorted_by_key(TaskView::tgid) {
            // The order of /proc. Threads stay in the order in which they began.
            tasks.sort_by_key(TaskView::tgid);
        }
        rows.begin(plan.items.len(), tasks.len());
        let old = match plan.old.is_empty() {
            true => HashMap::new(),
            false => {
                if self.old.is_none() {
                    self.old = Old::new(self.real, self.version, plan.old.iter().copied());
                }
                for item in &plan.old {
                    stats::old(*item, tasks.len());
                }
                self.old.as_mut().ok_or(Refused::Old)?.all(threads, &mut rows.arena)
            }
        };
        let cells: Vec<Cell> = plan.items.iter().map(|item| Cell::new(*item, &plan, abi)).collect();
        let mut present = Past::new();
        for view in tasks {
            let id = view.pid();
            let is_own = own.pid == Some(view.tgid());
            if is_own && threads && !own.threads.contains(&id) {
                continue;
            }
            if !reaps && self.passed.contains(&id) {
                continue;
            }
            let is_first = id == view.tgid();
            let is_process = !threads || (is_first && self.version.shows_sums_in_first_threads());
            let task = match processes.map(|p| p.task(view.tgid())) {
                // It has begun between the two answers.
                Some(None) => None,
                Some(process) => Some(Task::new(view, process, is_process)),
                None => Some(Task::new(view, None, is_process)),
            };
            let task = task.map(|t| if is_own { t.own(&own) } else { t });
            let used = task.as_ref().filter(|_| plan.has_delta);
            let used = used.and_then(|t| t.used(self.common.tick_ns));
            let before = self.past.get(&id).filter(|_| reaps && plan.has_delta);
            let values = if plan.old.is_empty() { None } else { old.get(&id) };
            if !plan.old.is_empty() && values.is_none() {
                // It has ended.
                continue;
            }
            let mut state = task.as_ref().and_then(Task::state).unwrap_or(0);
            let mut past = used;
            let (row, arena) = rows.next_with_arena();
            let made = task.as_ref().is_some_and(|task| {
                cells.iter().zip(row.iter_mut()).all(|(cell, result)| {
                    result.item = cell.number;
                    let value = match cell.from {
                        Origin::Nowhere => return true,
                        Origin::Difference => {
                            used.map(|used| delta(cell.item, used, before, reaps))
                        }
                        Origin::Real(at) => values.map(|v| v[at]),
                        Origin::Task => self.common.value(cell.item, task, arena),
                    };
                    value.map(|v| result.value = v).is_some()
                })
            });
            if !made {
                if self.version.leaks_in_select() {
                    return Err(Refused::Missing);
                }
                stats::whole_row();
                if self.whole.is_none() {
                    let items = plan.items.iter().copied().chain(BESIDES);
                    self.whole = Old::new(self.real, self.version, items);
                }
                let whole = self.whole.as_mut().ok_or(Refused::Old)?;
                let Some(mut values) = whole.one(view.tgid(), threads, arena).remove(&id) else {
                    continue;
                };
                let [s, ticks, major, minor] =
                    values.split_off(plan.items.len()).try_into().expect("as many as were asked");
                state = s as u8;
                past = Some([ticks, major, minor]);
                for ((item, result), value) in plan.items.iter().zip(row.iter_mut()).zip(values) {
                    result.item = item.number(abi);
                    match *item {
                        Item::NOOP => {}
                        item if item.need().is_delta => {
                            result.value = delta(item, [ticks, major, minor], before, reaps);
                        }
                        _ => result.value = value,
                    }
                }
            }
            end(row, abi);
            rows.keep(id);
            if reaps {
                self.counts.add(if plan.has_comm { state } else { 0 }, abi);
                if let Some(past) = past.filter(|_| plan.has_delta) {
                    present.insert(id, past);
                }
            }
        }
        rows.end();
        if reaps {
            self.past = present;
        }
        Ok(())
    }
}

/// Where the value of an item comes from.
#[derive(Clone, Copy)]
enum Origin {
    /// It stays as it is.
    Nowhere,
    /// It is the difference to the last fetch.
    Difference,
    /// The real library has it, at this place among the items that it was asked for.
    Real(usize),
    /// The records of the task.
    Task,
}

/// An item of the rows, with what is the same in all of them.
struct Cell {
    item: Item,
    number: c_int,
    from: Origin,
}

impl Cell {
    fn new(item: Item, plan: &Plan, abi: Abi) -> Cell {
        let from = if item == Item::NOOP {
            Origin::Nowhere
        } else if item.need().is_delta {
            Origin::Difference
        } else if let Some(at) = plan.old.iter().position(|i| *i == item) {
            Origin::Real(at)
        } else {
            Origin::Task
        };
        Cell { item, number: item.number(abi), from }
    }
}

/// Marks the end of a row, with the number after the last item.
fn end(row: &mut [PidsResult], abi: Abi) {
    if let Some(last) = row.last_mut() {
        last.item = Item::all(abi).len() as c_int;
    }
}

/// The difference to the last fetch. A task that was not in it has used all its time since, and no faults.
fn delta(item: Item, used: [u64; 3], before: Option<&[u64; 3]>, reaps: bool) -> u64 {
    if !reaps {
        return 0;
    }
    let since = |n: usize| before.map(|b| used[n].wrapping_sub(b[n]));
    let value = match item {
        Item::TICS_ALL_DELTA => since(0).unwrap_or(used[0]),
        Item::FLT_MAJ_DELTA => since(1).unwrap_or(0),
        _ => since(2).unwrap_or(0),
    };
    // They are ints.
    value & 0xffff_ffff
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
    use crate::abi::TASKS_ONLY;
    use std::ffi::c_uint;

    /// A library that nobody is to call.
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
        let stack = context.get(TASKS_ONLY).expect("an engine").expect("not the real library");
        // SAFETY: it is NULL, or a row of two items.
        unsafe {
            let head = stack.as_ref()?.head;
            Some(((*head).value as u32, (*head.add(1)).item))
        }
    }

    #[test]
    fn a_walk_goes_on_with_other_items() {
        let mut context = Context::new(nobody(), Version::V404, null_mut());
        let sets = [vec![Item::ID_PID, Item::ID_TGID], vec![Item::ID_PID, Item::ID_PPID]];
        context.set(sets[0].clone());
        // Processes may come and go meanwhile, but not thousands.
        let most = 1000 + std::fs::read_dir("/proc").expect("it is mounted").count();
        let mut seen = Vec::new();
        while let Some((id, second)) = next(&mut context) {
            assert_eq!(second, sets[seen.len() % 2][1].number(Abi::So0));
            assert!(!seen.contains(&id), "{id} came twice");
            seen.push(id);
            assert!(seen.len() < most, "the walk does not end");
            context.set(sets[seen.len() % 2].clone());
            // Twice the same between two rows changes nothing.
            context.set(sets[1 - seen.len() % 2].clone());
            context.set(sets[seen.len() % 2].clone());
        }
        assert!(seen.contains(&1) && seen.contains(&std::process::id()), "{seen:?}");
        // More items begin it anew.
        context.set(vec![Item::ID_PID, Item::ID_TGID, Item::ID_PPID]);
        context.set(sets[0].clone());
        assert_eq!(next(&mut context).map(|row| row.0), seen.first().copied());
    }

    #[test]
    fn differences() {
        let used = [100, 10, 1];
        let before = Some(&[40, 10, 0]);
        assert_eq!(delta(Item::TICS_ALL_DELTA, used, before, true), 60);
        assert_eq!(delta(Item::FLT_MAJ_DELTA, used, before, true), 0);
        assert_eq!(delta(Item::FLT_MIN_DELTA, used, before, true), 1);
        assert_eq!(delta(Item::TICS_ALL_DELTA, used, None, true), 100);
        assert_eq!(delta(Item::FLT_MIN_DELTA, used, None, true), 0);
        assert_eq!(delta(Item::TICS_ALL_DELTA, used, before, false), 0);
    }
}
