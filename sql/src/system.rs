// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data of the system that queries about processes are joined with: users, groups, and the time, as
//! tables of osquery.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::Result;

/// The calls iterate over a list that the C library has only once.
static LIST: Mutex<()> = Mutex::new(());

/// The text at a pointer of the C library.
fn text(at: *const libc::c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: entries of the C library end with a NUL, and stay valid until the next call, which
    // the lock prevents.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// The users.
///
/// # Errors
/// The table cannot be made, which does not happen.
pub fn users() -> Result<Arc<dyn TableProvider>> {
    let _one = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut ids, mut texts) = ([Vec::new(), Vec::new()], [const { Vec::new() }; 4]);
    // SAFETY: the lock is held, so no other thread of this program moves through the list.
    unsafe {
        libc::setpwent();
        while let Some(entry) = libc::getpwent().as_ref() {
            ids[0].push(i64::from(entry.pw_uid));
            ids[1].push(i64::from(entry.pw_gid));
            let of = [entry.pw_name, entry.pw_gecos, entry.pw_dir, entry.pw_shell];
            texts.iter_mut().zip(of).for_each(|(column, at)| column.push(text(at)));
        }
        libc::endpwent();
    }
    let [uid, gid] = ids;
    let [name, gecos, directory, shell] = texts;
    table(vec![
        ("uid", numbers(uid.clone())),
        ("gid", numbers(gid.clone())),
        ("uid_signed", numbers(signed(&uid))),
        ("gid_signed", numbers(signed(&gid))),
        ("username", strings(name)),
        ("description", strings(gecos)),
        ("directory", strings(directory)),
        ("shell", strings(shell)),
        // Linux has none.
        ("uuid", strings(vec![String::new(); uid.len()])),
    ])
}

/// Which user is in which group.
///
/// # Errors
/// The table cannot be made, which does not happen.
pub fn user_groups() -> Result<Arc<dyn TableProvider>> {
    let _one = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut users: Vec<(String, i64)> = Vec::new();
    let mut pairs = BTreeSet::new();
    // SAFETY: the lock is held, so no other thread of this program moves through the lists. The
    // members of a group are pointers to text, of which the last one is null.
    unsafe {
        libc::setpwent();
        while let Some(entry) = libc::getpwent().as_ref() {
            users.push((text(entry.pw_name), entry.pw_uid.into()));
            pairs.insert((i64::from(entry.pw_uid), i64::from(entry.pw_gid)));
        }
        libc::endpwent();
        libc::setgrent();
        while let Some(entry) = libc::getgrent().as_ref() {
            let mut member = entry.gr_mem;
            while !member.is_null() && !(*member).is_null() {
                let name = text(*member);
                let uid = users.iter().find(|(user, _)| *user == name).map(|(_, uid)| *uid);
                pairs.extend(uid.map(|uid| (uid, i64::from(entry.gr_gid))));
                member = member.add(1);
            }
        }
        libc::endgrent();
    }
    let (uid, gid) = pairs.into_iter().unzip();
    table(vec![("uid", numbers(uid)), ("gid", numbers(gid))])
}

/// How long the machine has run.
///
/// # Errors
/// The table cannot be made, which does not happen.
pub fn uptime() -> Result<Arc<dyn TableProvider>> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the struct, which lives as long as it.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    let total = time.tv_sec;
    let parts = [
        ("days", total / 86_400),
        ("hours", total / 3600 % 24),
        ("minutes", total / 60 % 60),
        ("seconds", total % 60),
        ("total_seconds", total),
    ];
    table(parts.map(|(name, value)| (name, numbers(vec![value]))).to_vec())
}

/// The groups.
///
/// # Errors
/// The table cannot be made, which does not happen.
pub fn groups() -> Result<Arc<dyn TableProvider>> {
    let _one = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut gid, mut name) = (Vec::new(), Vec::new());
    // SAFETY: as above.
    unsafe {
        libc::setgrent();
        while let Some(entry) = libc::getgrent().as_ref() {
            gid.push(i64::from(entry.gr_gid));
            name.push(text(entry.gr_name));
        }
        libc::endgrent();
    }
    let signed = numbers(signed(&gid));
    table(vec![("gid", numbers(gid)), ("gid_signed", signed), ("groupname", strings(name))])
}

/// Ids as numbers of 32 bits with a sign.
fn signed(ids: &[i64]) -> Vec<i64> {
    ids.iter().map(|id| i64::from(*id as i32)).collect()
}

fn numbers(all: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(all))
}

fn strings(all: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(all))
}

fn table(columns: Vec<(&str, ArrayRef)>) -> Result<Arc<dyn TableProvider>> {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let batch =
        RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, a)| a).collect())?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}
