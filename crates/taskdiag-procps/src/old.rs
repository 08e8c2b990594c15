//! Gets values from the real library: those of items that taskdiag does not have, for all tasks, and whole rows of tasks of
//! which a value is missing.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr::null_mut;

use crate::abi::{
    PidsFetch, PidsInfo, PidsResult, SELECT_PID, SELECT_PID_THREADS, TASKS_ONLY, THREADS_TOO,
};
use crate::arena::Arena;
use crate::item::{Item, Kind};
use crate::real::{Real, Version};

/// A context of the real library that asks for some items.
pub struct Old {
    real: &'static Real,
    info: *mut PidsInfo,
    /// The items, the first of which is the id of the task.
    items: Vec<Item>,
}

impl Drop for Old {
    fn drop(&mut self) {
        // SAFETY: the real library made it, and nobody else has it.
        unsafe { (self.real.unref)(&mut self.info) };
    }
}

impl Old {
    /// A context for these items. `None`: the real library refuses it.
    pub fn new(
        real: &'static Real,
        version: Version,
        items: impl IntoIterator<Item = Item>,
    ) -> Option<Old> {
        let items: Vec<Item> = std::iter::once(Item::ID_TID).chain(items).collect();
        let numbers: Vec<c_int> = items.iter().map(|i| i.number(version.abi())).collect();
        let mut info = null_mut();
        // SAFETY: the array has this many items.
        let made = unsafe { (real.new)(&mut info, numbers.as_ptr(), numbers.len() as c_int) };
        (made == 0 && !info.is_null()).then(|| Old { real, info, items })
    }

    /// The values of all tasks, by their ids: those of processes, or of threads. Strings are copied to the arena.
    pub fn all(&mut self, threads: bool, arena: &mut Arena) -> HashMap<u32, Vec<u64>> {
        let which = if threads { THREADS_TOO } else { TASKS_ONLY };
        // SAFETY: the context is ours.
        let fetched = unsafe { (self.real.reap)(self.info, which) };
        self.values(fetched, arena)
    }

    /// The same of one process, or of its threads. Nothing if it has ended.
    pub fn one(&mut self, pid: u32, threads: bool, arena: &mut Arena) -> HashMap<u32, Vec<u64>> {
        let which = if threads { SELECT_PID_THREADS } else { SELECT_PID };
        let ids: [c_uint; 1] = [pid];
        // SAFETY: the context is ours, and the array has one id.
        let fetched = unsafe { (self.real.select)(self.info, ids.as_ptr(), 1, which) };
        self.values(fetched, arena)
    }

    /// The values of a result that the real library has just given.
    fn values(&self, fetched: *mut PidsFetch, arena: &mut Arena) -> HashMap<u32, Vec<u64>> {
        let mut found = HashMap::new();
        // SAFETY: it is NULL, or a result that is valid until the next call.
        let Some(fetched) = (unsafe { fetched.as_ref() }) else { return found };
        let mut at = fetched.stacks;
        // SAFETY: the array ends with NULL, and each row has as many results as there are items.
        while let Some(stack) = unsafe { (*at).as_ref() } {
            // SAFETY: as above.
            let row = unsafe { std::slice::from_raw_parts(stack.head, self.items.len()) };
            let values = self.items.iter().zip(row).skip(1).map(|(i, r)| copied(*i, r, arena));
            found.insert(row[0].value as u32, values.collect());
            at = at.wrapping_add(1);
        }
        found
    }
}

/// A value that does not depend on memory of the real library.
fn copied(item: Item, result: &PidsResult, arena: &mut Arena) -> u64 {
    match item.need().kind {
        Kind::Number => result.value,
        _ if result.value == 0 => 0,
        Kind::Str => {
            // SAFETY: the real library put a string there.
            arena.str(unsafe { CStr::from_ptr(result.as_str()) }.to_bytes()) as u64
        }
        Kind::Strv => {
            let mut text = Vec::new();
            let mut at = result.as_strv();
            // SAFETY: the real library put a list of strings there, which ends with NULL.
            while let Some(part) = unsafe { (*at).as_ref() } {
                // SAFETY: as above.
                text.extend_from_slice(unsafe { CStr::from_ptr(part) }.to_bytes_with_nul());
                at = at.wrapping_add(1);
            }
            arena.strv(&text) as u64
        }
    }
}
