//! Makes the row of a task: each requested item has its value from our records, from the real
//! library, or from the difference to the last fetch.

use std::ffi::c_int;

use taskdiag::{Snapshot, TaskView};

use super::{Fetch, Past};
use crate::abi::{Abi, PidsResult};
use crate::fill::{Common, Task};
use crate::guard::Failed;
use crate::item::Item;
use crate::memory;
use crate::old::Old;
use crate::plan::Plan;
use crate::real::{Real, Version};
use crate::rows::Rows;
use crate::sources::Refused;
use crate::stats;

/// The items that are added to the requested ones in whole rows of the real library.
const BESIDES: [Item; 4] = [Item::STATE, Item::TICS_ALL, Item::FLT_MAJ, Item::FLT_MIN];

/// Makes rows.
pub(super) struct Maker<'a> {
    pub(super) common: &'a mut Common,
    pub(super) whole: &'a mut Option<Old>,
    pub(super) real: &'static Real,
    pub(super) version: Version,
    pub(super) plan: &'a Plan,
    pub(super) fetch: &'a Fetch,
    /// The counters of tasks at the last fetch. `None`: no item needs them.
    pub(super) past: Option<&'a Past>,
}

/// Data about a row in addition to its values.
pub(super) struct RowFacts {
    pub(super) state: u8,
    pub(super) used: Option<[u64; 3]>,
}

impl Maker<'_> {
    /// Makes the next row, which is about this task. `None`: the task has no row.
    pub(super) fn row(
        &mut self,
        view: TaskView<'_>,
        processes: Option<&Snapshot>,
        rows: &mut Rows,
    ) -> Result<Option<RowFacts>, Refused> {
        let (fetch, plan, abi) = (self.fetch, self.plan, self.version.abi());
        let (own, threads, reaps) = (&fetch.own, fetch.threads, self.past.is_some());
        let id = view.pid();
        let is_own = own.pid == Some(view.tgid());
        if is_own && threads && !own.threads.contains(&id) {
            return Ok(None);
        }
        let is_first = id == view.tgid();
        let is_process = !threads || (is_first && self.version.shows_sums_in_first_threads());
        let task = match processes.map(|p| p.task(view.tgid())) {
            // The task began between the two answers.
            Some(None) => None,
            Some(process) => Some(Task::new(view, process, is_process)),
            None => Some(Task::new(view, None, is_process)),
        };
        let task = task.map(|t| if is_own { t.own(own) } else { t });
        let used = task.as_ref().filter(|_| plan.has_delta);
        let used = used.and_then(|t| t.used(self.common.tick_ns));
        let before = self.past.filter(|_| plan.has_delta).and_then(|past| past.get(&id));
        let values = if plan.old.is_empty() { None } else { fetch.old.get(&id) };
        if !plan.old.is_empty() && values.is_none() {
            // The task has ended.
            return Ok(None);
        }
        let (row, arena) = rows.next_with_arena()?;
        let is_made = task.as_ref().is_some_and(|task| {
            fetch.cells.iter().zip(row.iter_mut()).all(|(cell, result)| {
                result.item = cell.number;
                let value = match cell.from {
                    Origin::Nowhere => return true,
                    Origin::Difference => used.map(|used| delta(cell.item, used, before, reaps)),
                    Origin::Real(at) => values.map(|v| v[at]),
                    Origin::Task => self.common.value(cell.item, task, arena),
                };
                value.map(|v| result.value = v).is_some()
            })
        });
        let mut made = RowFacts { state: task.as_ref().and_then(Task::state).unwrap_or(0), used };
        if !is_made {
            if arena.is_short() || memory::is_short() {
                return Err(Failed::Memory.into());
            }
            if self.version.leaks_in_select() {
                return Err(Refused::Missing);
            }
            stats::whole_row();
            if self.whole.is_none() {
                let items = plan.items.iter().copied().chain(BESIDES);
                *self.whole = Old::new(self.real, self.version, items);
            }
            let whole = self.whole.as_mut().ok_or(Refused::Old)?;
            let Some(mut values) = whole.one(view.tgid(), threads, arena)?.remove(&id) else {
                return Ok(None);
            };
            let [state, ticks, major, minor] = values
                .split_off(plan.items.len())
                .try_into()
                .expect("the number that was requested");
            made = RowFacts { state: state as u8, used: Some([ticks, major, minor]) };
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
        if arena.is_short() || memory::is_short() {
            return Err(Failed::Memory.into());
        }
        end(row, abi);
        Ok(Some(made))
    }
}

/// The source of an item's value.
#[derive(Clone, Copy)]
enum Origin {
    /// The value is used as it is.
    Nowhere,
    /// The value is the difference to the last fetch.
    Difference,
    /// The real library has the item, at this index of its requested items.
    Real(usize),
    /// The records of the task.
    Task,
}

/// A requested item, and the data that every row shares.
pub(super) struct Cell {
    item: Item,
    number: c_int,
    from: Origin,
}

impl Cell {
    pub(super) fn new(item: Item, plan: &Plan, abi: Abi) -> Cell {
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

/// The difference to the last fetch. A task that was not in it has used all its time since then,
/// and no page faults.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_since_the_previous_row_of_the_task() {
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
