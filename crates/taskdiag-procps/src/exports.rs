//! The nine functions that replace those of libproc2. The other functions of the library are not
//! replaced.
//!
//! All nine must be here, because the library itself calls some of them through the symbol table,
//! with its own contexts. A context that was not created here is passed through. `xtra_pids_val`,
//! which programs call in debug builds, is not here: no version looks at the context that it gets,
//! and libproc2.so.1 has one argument less.
//!
//! Nothing here ends the program. A panic, a failure of an engine, or too little memory makes the
//! real library answer the call.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::{Abi, PidsFetch, PidsInfo, PidsStack, TASKS_ONLY, THREADS_TOO};
use crate::context::Context;
use crate::item::Item;
use crate::memory;
use crate::real::{Real, real};
use crate::sources::Refused;
use crate::stats;

/// The contexts that were created here, by address.
static GIVEN: Mutex<Option<HashMap<usize, Box<Context>>>> = Mutex::new(None);

fn with_given<T>(f: impl FnOnce(&mut HashMap<usize, Box<Context>>) -> T) -> T {
    f(GIVEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The context of a pointer, if it was created here.
///
/// # Safety
/// No other thread uses the context, as the header demands, and the caller has no other reference
/// to it.
unsafe fn ours<'a>(info: *mut PidsInfo) -> Option<&'a mut Context> {
    let at = with_given(|g| g.get_mut(&(info as usize)).map(|c| std::ptr::from_mut(&mut **c)))?;
    // SAFETY: it lives until the caller gives it back, and the caller promises that it has no other
    // user.
    Some(unsafe { &mut *at })
}

/// The pointer to pass to the real library: its own context in the place of ours.
///
/// # Safety
/// As [`ours`].
unsafe fn theirs(info: *mut PidsInfo) -> *mut PidsInfo {
    // SAFETY: the caller promises it.
    unsafe { ours(info) }.map_or(info, |c| c.info)
}

/// The reason why all calls must be passed through, if there is one.
fn bypass(real: &Real) -> Option<&'static str> {
    static HIDES: OnceLock<bool> = OnceLock::new();
    if real.version.is_none() {
        return Some("its version is not known");
    }
    // SAFETY: the name is a string, and the result is only compared with NULL.
    let hides = || unsafe { !libc::getenv(c"LIBPROC_HIDE_KERNEL".as_ptr()).is_null() };
    HIDES.get_or_init(hides).then_some("LIBPROC_HIDE_KERNEL is set")
}

fn set_errno(number: c_int) {
    // SAFETY: the address of a number of this thread.
    unsafe { *libc::__errno_location() = number };
}

/// Runs code that may panic, without printing the message of a panic.
fn quiet<T>(f: impl FnOnce() -> Result<T, Refused>) -> Option<T> {
    static HOOK: OnceLock<()> = OnceLock::new();
    // This library has its own copy of the standard library, so no other code uses the hook.
    HOOK.get_or_init(|| std::panic::set_hook(Box::new(|_| {})));
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Some(value),
        Ok(Err(why)) => {
            stats::passed(&why.to_string());
            None
        }
        Err(_) => {
            stats::passed("a panic, which is a fault of taskdiag: please report it");
            None
        }
    }
}

/// The items of an array that the real library has accepted.
///
/// # Safety
/// The array has this many numbers.
unsafe fn items(numbers: *const c_int, len: c_int, abi: Abi) -> Option<Vec<Item>> {
    let len = usize::try_from(len).ok().filter(|_| !numbers.is_null())?;
    // SAFETY: the caller promises it.
    let numbers = unsafe { std::slice::from_raw_parts(numbers, len) };
    numbers.iter().map(|n| Item::of(*n, abi)).collect()
}

/// Makes a context.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_new(
    info: *mut *mut PidsInfo,
    numbers: *const c_int,
    len: c_int,
) -> c_int {
    let _host = memory::host();
    let Some(real) = real() else { return -libc::ENOSYS };
    // SAFETY: the arguments are those of the caller.
    let made = unsafe { (real.new)(info, numbers, len) };
    if made < 0 || info.is_null() {
        return made;
    }
    if let Some(why) = bypass(real) {
        stats::passed(why);
        return made;
    }
    let Some(version) = real.version else { return made };
    // SAFETY: the real library has put its context there.
    let theirs = unsafe { *info };
    let given = quiet(|| {
        let mut context = Context::new(real, version, theirs);
        if len > 0 && !numbers.is_null() {
            // SAFETY: the real library has read the same number of items.
            match unsafe { items(numbers, len, version.abi()) } {
                Some(items) => context.set(items)?,
                None => {
                    context.info = null_mut();
                    return Ok(theirs);
                }
            }
        }
        let at: *mut PidsInfo = std::ptr::from_mut(&mut *context).cast();
        with_given(|g| g.insert(at as usize, context));
        Ok(at)
    });
    // SAFETY: as above.
    unsafe { *info = given.unwrap_or(theirs) };
    made
}

/// Adds a user of a context.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_ref(info: *mut PidsInfo) -> c_int {
    let _host = memory::host();
    let Some(real) = real() else { return -libc::ENOSYS };
    // SAFETY: the caller's argument is passed on.
    unsafe { (real.r#ref)(theirs(info)) }
}

/// Removes a user of a context, and frees it with the last one.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_unref(info: *mut *mut PidsInfo) -> c_int {
    let _host = memory::host();
    let Some(real) = real() else { return -libc::ENOSYS };
    // SAFETY: the caller has a pointer there, or passes NULL.
    let at = if info.is_null() { null_mut() } else { unsafe { *info } };
    // SAFETY: the caller promises that it has no other user.
    let Some(context) = (unsafe { ours(at) }) else {
        // SAFETY: the argument is that of the caller.
        return unsafe { (real.unref)(info) };
    };
    // SAFETY: it is the context of the real library.
    let left = unsafe { (real.unref)(&mut context.info) };
    if context.info.is_null() {
        let gone = with_given(|g| g.remove(&(at as usize)));
        let _ = quiet(|| {
            drop(gone);
            Ok(())
        });
        // SAFETY: it is not NULL.
        unsafe { *info = null_mut() };
    }
    left
}

/// Sets other items.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_reset(
    info: *mut PidsInfo,
    numbers: *const c_int,
    len: c_int,
) -> c_int {
    let _host = memory::host();
    let Some(real) = real() else { return -libc::ENOSYS };
    // SAFETY: the arguments are those of the caller.
    let done = unsafe { (real.reset)(theirs(info), numbers, len) };
    // SAFETY: the caller promises that it has no other user.
    if let (0, Some(context)) = (done, unsafe { ours(info) }) {
        // SAFETY: the real library has read as many.
        if let Some(items) = unsafe { items(numbers, len, context.version.abi()) } {
            let _ = quiet(|| context.set(items));
        }
    }
    done
}

/// Reports an error if /proc is missing, and returns this process.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fatal_proc_unmounted(
    info: *mut PidsInfo,
    return_self: c_int,
) -> *mut PidsStack {
    let _host = memory::host();
    let Some(real) = real() else { return null_mut() };
    // SAFETY: the arguments are those of the caller. It calls `procps_pids_select` here, with its
    // own context.
    unsafe { (real.fatal)(theirs(info), return_self) }
}

/// The next task.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_get(info: *mut PidsInfo, which: c_int) -> *mut PidsStack {
    let _host = memory::host();
    let Some(real) = real() else { return null_mut() };
    // SAFETY: the caller says that nobody else uses it.
    if let Some(context) = usable(unsafe { ours(info) }, which) {
        if let Some((stack, is_ours)) = quiet(|| Ok(context.get(which))) {
            // The real library has set it for a row of its own.
            if is_ours {
                set_errno(0);
            }
            return stack;
        }
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { (real.get)(theirs(info), which) }
}

/// The context, if the real library would accept the call.
fn usable(context: Option<&mut Context>, which: c_int) -> Option<&mut Context> {
    context.filter(|c| matches!(which, TASKS_ONLY | THREADS_TOO) && c.has_items())
}

/// All tasks.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_reap(info: *mut PidsInfo, which: c_int) -> *mut PidsFetch {
    let _host = memory::host();
    let Some(real) = real() else { return null_mut() };
    // SAFETY: the caller says that nobody else uses it.
    if let Some(context) = usable(unsafe { ours(info) }, which) {
        if let Some(fetch) = quiet(|| context.reap(which)) {
            set_errno(0);
            return fetch;
        }
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { (real.reap)(theirs(info), which) }
}

/// Selects some tasks. The real library does this: it reads only the files of these tasks, so an
/// engine would not be faster.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_select(
    info: *mut PidsInfo,
    these: *const c_uint,
    len: c_int,
    which: c_int,
) -> *mut PidsFetch {
    let _host = memory::host();
    let Some(real) = real() else { return null_mut() };
    // SAFETY: the arguments are those of the caller.
    unsafe { (real.select)(theirs(info), these, len, which) }
}

/// Sorts rows. This function only reads the rows, which have the layout of the real library.
///
/// # Safety
/// As in `<libproc2/pids.h>`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn procps_pids_sort(
    info: *mut PidsInfo,
    stacks: *mut *mut PidsStack,
    len: c_int,
    item: c_int,
    order: c_int,
) -> *mut *mut PidsStack {
    let _host = memory::host();
    let Some(real) = real() else { return null_mut() };
    // SAFETY: the arguments are those of the caller.
    unsafe { (real.sort)(theirs(info), stacks, len, item, order) }
}
