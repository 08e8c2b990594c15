//! Gets values from the real library: items that taskdiag does not have, for all tasks, and whole
//! rows of tasks with a missing value.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr::null_mut;

use crate::abi::{
    PidsFetch, PidsInfo, PidsResult, SELECT_PID, SELECT_PID_THREADS, TASKS_ONLY, THREADS_TOO,
};
use crate::arena::Arena;
use crate::guard::Failed;
use crate::item::{Item, ValueKind};
use crate::memory::{is_short, tried};
use crate::real::{Real, Version};

/// Values by the id of the task.
pub type Values = HashMap<u32, Vec<u64>>;

/// A context of the real library that asks for some items.
pub struct Old {
    real: &'static Real,
    info: *mut PidsInfo,
    /// The items, the first of which is the id of the task.
    items: Vec<Item>,
}

impl Drop for Old {
    fn drop(&mut self) {
        // SAFETY: the real library made it, and it has no other user.
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

    /// The values of all processes, or of all threads, by their ids. Strings are copied to the
    /// arena.
    pub fn all(&mut self, threads: bool, arena: &mut Arena) -> Result<Values, Failed> {
        let which = if threads { THREADS_TOO } else { TASKS_ONLY };
        // SAFETY: the context is ours.
        let fetched = unsafe { (self.real.reap)(self.info, which) };
        self.values(fetched, arena)
    }

    /// The values of one process, or of its threads. No values if the process has ended.
    pub fn one(&mut self, pid: u32, threads: bool, arena: &mut Arena) -> Result<Values, Failed> {
        let which = if threads { SELECT_PID_THREADS } else { SELECT_PID };
        let ids: [c_uint; 1] = [pid];
        // SAFETY: the context is ours, and the array has one id.
        let fetched = unsafe { (self.real.select)(self.info, ids.as_ptr(), 1, which) };
        self.values(fetched, arena)
    }

    /// The values of a result that the real library has just given.
    fn values(&self, fetched: *mut PidsFetch, arena: &mut Arena) -> Result<Values, Failed> {
        let mut found = Values::new();
        // SAFETY: it is NULL, or a result that is valid until the next call.
        let Some(fetched) = (unsafe { fetched.as_ref() }) else { return Ok(found) };
        // SAFETY: the array ends with NULL.
        let n = (0..).take_while(|n| unsafe { !(*fetched.stacks.add(*n)).is_null() }).count();
        tried(|| found.try_reserve(n)).map_err(|_| Failed::Memory)?;
        for at in 0..n {
            // SAFETY: it is one of the rows, and each has as many results as there are items.
            let row = unsafe {
                std::slice::from_raw_parts((**fetched.stacks.add(at)).head, self.items.len())
            };
            let values = self.items.iter().zip(row).skip(1).map(|(i, r)| copied(*i, r, arena));
            found.insert(row[0].value as u32, values.collect());
            if arena.is_short() || is_short() {
                return Err(Failed::Memory);
            }
        }
        Ok(found)
    }
}

/// A value that does not depend on memory of the real library.
fn copied(item: Item, result: &PidsResult, arena: &mut Arena) -> u64 {
    match item.need().kind {
        ValueKind::Number => result.value,
        _ if result.value == 0 => 0,
        ValueKind::Str => {
            // SAFETY: the real library put a string there.
            arena.str(unsafe { CStr::from_ptr(result.as_str()) }.to_bytes()) as u64
        }
        // SAFETY: the real library put a list of strings there, which ends with NULL.
        ValueKind::Strv => unsafe { arena.copy_strv(result.as_strv()) as u64 },
    }
}
