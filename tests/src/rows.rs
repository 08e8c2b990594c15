//! Turns lists of an answer into plain values: a map of named members for each entry, with names in
//! place of their numbers, so that the lists of two engines can be compared.

use std::collections::BTreeMap;

use taskdiag::wire::{BLOB_DELETED, ListEntry};
use taskdiag::{Group, TaskView};

use crate::{Answer, Value};

/// The known members of an entry. `name` is its text, `name.deleted` is 1 for a deleted file.
pub type Row = BTreeMap<&'static str, Value>;

/// The task, or the task that it shares a group with, which must exist.
///
/// # Panics
/// If it is not there.
pub fn owner(answer: &Answer, pid: u32, group: Group) -> TaskView<'_> {
    let find = |pid| answer.snapshot.tasks().find(|t| t.pid() == pid);
    let t = find(pid).unwrap_or_else(|| panic!("{answer} has no task {pid}"));
    match t.shared(group) {
        Some(other) => {
            let o = find(other).unwrap_or_else(|| panic!("{answer}: {pid} shares with no task"));
            assert_eq!(o.shared(group), None, "{answer}: {pid} shares with one that shares");
            o
        }
        None => t,
    }
}

/// The entries of a task's list. There are no rows if the task does not have the list.
///
/// # Panics
/// If an entry has a number without a name.
pub fn rows<T: ListEntry>(view: &TaskView<'_>) -> Vec<Row> {
    let list = view.list::<T>().into_iter().flatten();
    list.map(|e| row(view, e.raw, e.valid)).collect()
}

fn row<T: ListEntry>(view: &TaskView<'_>, raw: &T, valid: u32) -> Row {
    let bytes = raw.as_bytes();
    let mut row = Row::new();
    for (_, m) in (0..).zip(T::TABLE.valid).filter(|(bit, _)| valid & (1u32 << bit) != 0) {
        let (key, size) = (m.name, m.size);
        let raw = &bytes[m.offset..m.offset + size];
        let number = || {
            let mut word = [0; 8];
            word[..raw.len()].copy_from_slice(raw);
            u64::from_le_bytes(word)
        };
        if key == "name" {
            let Some(number) = u32::try_from(number()).ok().filter(|n| *n != 0) else {
                row.insert(key, Value::Bytes(Vec::new()));
                continue;
            };
            let blob = view.name(number).unwrap_or_else(|| panic!("no name {number:#x}"));
            row.insert(key, Value::Bytes(blob.data.into_owned()));
            row.insert("name.deleted", Value::Num(i128::from(blob.flags & BLOB_DELETED != 0)));
        } else if size <= 8 {
            row.insert(key, Value::Num(number().into()));
        } else {
            row.insert(key, Value::Bytes(raw.to_vec()));
        }
    }
    row
}

/// The members that both entries know and that differ, except those in `not`.
pub fn differences(a: &Row, b: &Row, not: &[&str]) -> Vec<String> {
    let both = a.iter().filter_map(|(k, v)| Some((k, v, b.get(k)?)));
    both.filter(|(k, v, w)| v != w && !not.contains(k))
        .map(|(k, v, w)| format!("{k}: {v:?} and {w:?}"))
        .collect()
}
