//! Names of users and groups, each looked up once. The real library also keeps them for the life of
//! the process, and its callers rely on that.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use crate::memory::tried;

use crate::real::{Version, real};

/// The size of the real library's buffer for a name (`P_G_SZ`). A name that does not fit is shown
/// as its number.
const LONGEST: usize = 33;

/// The addresses of the names, by the ids.
type NameCache = Mutex<Option<HashMap<u32, usize>>>;

static USERS: NameCache = NameCache::new(None);
static GROUPS: NameCache = NameCache::new(None);

/// The name of a user. `None`: there is no memory for it.
pub fn user(uid: u32) -> Option<*mut c_char> {
    // SAFETY: it returns NULL, or an entry that is valid until the next call.
    let find = || unsafe { libc::getpwuid(uid).as_ref() }.map(|entry| entry.pw_name);
    look_up(&USERS, uid, find)
}

/// The name of a group. `None`: there is no memory for it.
pub fn group(gid: u32) -> Option<*mut c_char> {
    // SAFETY: it returns NULL, or an entry that is valid until the next call.
    let find = || unsafe { libc::getgrgid(gid).as_ref() }.map(|entry| entry.gr_name);
    look_up(&GROUPS, gid, find)
}

/// Does the real library show the number instead of this name?
fn is_replaced(name: &CStr) -> bool {
    let marks_empty = || real().and_then(|r| r.version).is_some_and(Version::marks_empty_text);
    name.to_bytes().len() >= LONGEST || (name.is_empty() && marks_empty())
}

fn look_up(
    known: &NameCache,
    id: u32,
    find: impl FnOnce() -> Option<*mut c_char>,
) -> Option<*mut c_char> {
    let all = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = all().get_or_insert_default().get(&id) {
        return Some(*at as *mut c_char);
    }
    // Without the lock, because it may take long.
    // SAFETY: the entry that was found has a name, and no other look-up has happened since.
    let name = find().map(|name| unsafe { CStr::from_ptr(name) });
    let mut all = all();
    let all = all.get_or_insert_default();
    tried(|| all.try_reserve(1)).ok()?;
    let at = all.entry(id).or_insert_with(|| match name.filter(|n| !is_replaced(n)) {
        Some(name) => name.to_owned().into_raw() as usize,
        None => CString::new(id.to_string()).expect("digits").into_raw() as usize,
    });
    Some(*at as *mut c_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_a_name_is_its_number() {
        let text = |p: Option<*mut c_char>| {
            // SAFETY: the strings are kept.
            unsafe { CStr::from_ptr(p.expect("memory")) }.to_str().expect("ASCII")
        };
        assert_eq!((text(user(0)), text(group(0))), ("root", "root"));
        assert_eq!(text(user(4_000_000_001)), "4000000001");
        assert_eq!(user(0), user(0));
    }
}
