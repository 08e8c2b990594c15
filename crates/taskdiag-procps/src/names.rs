//! Names of users and groups, each looked up once. The real library keeps them, too, as long as the process lives, and
//! its callers know that.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};

use crate::real::{Version, real};

/// The size of the real library's buffer for a name (`P_G_SZ`). A name that does not fit is shown as its number.
const LONGEST: usize = 33;

type Known = RefCell<HashMap<u32, *mut c_char>>;

thread_local! {
    static USERS: Known = Known::default();
    static GROUPS: Known = Known::default();
}

/// The name of a user.
pub fn user(uid: u32) -> *mut c_char {
    // SAFETY: it returns NULL, or an entry that is valid until the next call.
    let find = || unsafe { libc::getpwuid(uid).as_ref() }.map(|entry| entry.pw_name);
    USERS.with(|known| look_up(known, uid, find))
}

/// The name of a group.
pub fn group(gid: u32) -> *mut c_char {
    // SAFETY: it returns NULL, or an entry that is valid until the next call.
    let find = || unsafe { libc::getgrgid(gid).as_ref() }.map(|entry| entry.gr_name);
    GROUPS.with(|known| look_up(known, gid, find))
}

/// Does the real library show the number in the place of this name?
fn is_replaced(name: &CStr) -> bool {
    let marks_empty = || real().and_then(|r| r.version).is_some_and(Version::marks_empty_text);
    name.to_bytes().len() >= LONGEST || (name.is_empty() && marks_empty())
}

fn look_up(known: &Known, id: u32, find: impl FnOnce() -> Option<*mut c_char>) -> *mut c_char {
    *known.borrow_mut().entry(id).or_insert_with(|| {
        // SAFETY: the entry that was found has a name, and nobody looked up another one since.
        let name = find().map(|name| unsafe { CStr::from_ptr(name) });
        match name.filter(|n| !is_replaced(n)) {
            Some(name) => name.to_owned().into_raw(),
            None => CString::new(id.to_string()).expect("digits").into_raw(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        // SAFETY: the strings are kept.
        let text = |p| unsafe { CStr::from_ptr(p) }.to_str().expect("ASCII");
        assert_eq!((text(user(0)), text(group(0))), ("root", "root"));
        assert_eq!(text(user(4_000_000_001)), "4000000001");
        assert_eq!(user(0), user(0));
    }
}
