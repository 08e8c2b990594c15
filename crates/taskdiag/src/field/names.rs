//! Names of users and groups.
//!
//! `/etc/passwd` and `/etc/group` are read once, when the first name is wanted; the C library's
//! name service, which loads modules and may talk to the network, is asked only about ids that
//! are not in them, and each id once.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

type FoundName = Option<Arc<[u8]>>;
type NameMap = HashMap<u32, FoundName>;

/// A cache of names. Ids without a name are remembered too.
#[derive(Debug, Default)]
pub struct OwnerNames {
    users: NameTable,
    groups: NameTable,
}

#[derive(Debug, Default)]
struct NameTable {
    map: OnceCell<RefCell<NameMap>>,
    /// Most neighbours in an answer have the same owner.
    last: RefCell<Option<(u32, FoundName)>>,
}

impl NameTable {
    fn get(&self, file: &str, id: u32, ask: impl FnOnce(u32) -> FoundName) -> FoundName {
        if let Some((last, name)) = &*self.last.borrow() {
            if *last == id {
                return name.clone();
            }
        }
        let map = self.map.get_or_init(|| RefCell::new(read(file)));
        let name = map.borrow_mut().entry(id).or_insert_with(|| ask(id)).clone();
        *self.last.borrow_mut() = Some((id, name.clone()));
        name
    }
}

/// `name:x:id:…` lines; the first line of an id counts.
fn read(file: &str) -> NameMap {
    let mut map = NameMap::new();
    for line in fs::read(file).unwrap_or_default().split(|b| *b == b'\n') {
        let mut parts = line.split(|b| *b == b':');
        let (Some(name), _, Some(id)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let id = std::str::from_utf8(id).ok().and_then(|s| s.parse().ok());
        if let (Some(id), false) = (id, name.is_empty()) {
            map.entry(id).or_insert_with(|| Some(name.into()));
        }
    }
    map
}

impl OwnerNames {
    /// Name of a user, `None` for a uid without one.
    pub fn user(&self, uid: u32) -> Option<Arc<[u8]>> {
        self.users.get("/etc/passwd", uid, |uid| {
            uzers::get_user_by_uid(uid).map(|u| u.name().as_bytes().into())
        })
    }
    /// Name of a group, `None` for a gid without one.
    pub fn group(&self, gid: u32) -> Option<Arc<[u8]>> {
        self.groups.get("/etc/group", gid, |gid| {
            uzers::get_group_by_gid(gid).map(|g| g.name().as_bytes().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_strays_have_none() {
        let names = OwnerNames::default();
        for _ in 0..2 {
            assert_eq!(names.user(0).as_deref(), Some(&b"root"[..]));
            assert_eq!(names.group(0).as_deref(), Some(&b"root"[..]));
            assert_eq!(names.user(3_999_999_999), None);
        }
    }
}
