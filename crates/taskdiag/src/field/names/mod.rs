//! Names of users and groups.
//!
//! `/etc/passwd` and `/etc/group` are read once, when the first name is needed, by the rules of the
//! C library. The C library's name service loads modules and may use the network. So it is asked
//! only about ids that are not in these files, and once for each id. If nsswitch.conf puts another
//! source before the files, it is asked about all ids.

mod ask;
mod files;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

pub use ask::name_service_is_slow;
use files::AccountKind;

type FoundName = Option<Arc<[u8]>>;
type NameMap = HashMap<u32, FoundName>;

/// A cache of names. Ids without a name are remembered too.
#[derive(Debug, Default)]
pub struct OwnerNames {
    users: NameTable,
    groups: NameTable,
    /// The time spent waiting for the name service.
    waited: Cell<Duration>,
}

#[derive(Debug, Default)]
struct NameTable {
    map: OnceCell<RefCell<NameMap>>,
    /// Most neighbours in an answer have the same owner.
    last: RefCell<Option<(u32, FoundName)>>,
}

impl NameTable {
    fn map(&self, kind: AccountKind) -> &RefCell<NameMap> {
        self.map.get_or_init(|| {
            RefCell::new(match files::come_first(kind) {
                true => files::read(&fs::read(kind.file()).unwrap_or_default(), kind),
                false => NameMap::new(),
            })
        })
    }
    /// The cached result, if there is one.
    fn get(&self, kind: AccountKind, id: u32) -> Option<FoundName> {
        if let Some((last, name)) = &*self.last.borrow() {
            if *last == id {
                return Some(name.clone());
            }
        }
        let name = self.map(kind).borrow().get(&id)?.clone();
        *self.last.borrow_mut() = Some((id, name.clone()));
        Some(name)
    }
}

impl OwnerNames {
    /// Name of a user, `None` for a uid without one.
    pub fn user(&self, uid: u32) -> Option<Arc<[u8]>> {
        self.name(AccountKind::User, uid)
    }
    /// Name of a group, `None` for a gid without one.
    pub fn group(&self, gid: u32) -> Option<Arc<[u8]>> {
        self.name(AccountKind::Group, gid)
    }
    fn table(&self, kind: AccountKind) -> &NameTable {
        match kind {
            AccountKind::User => &self.users,
            AccountKind::Group => &self.groups,
        }
    }
    fn name(&self, kind: AccountKind, id: u32) -> FoundName {
        self.table(kind).get(kind, id).unwrap_or_else(|| {
            for (kind, id, name) in ask::ask(kind, id, &self.waited) {
                self.table(kind).map(kind).borrow_mut().insert(id, name);
            }
            self.table(kind).get(kind, id).flatten()
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
