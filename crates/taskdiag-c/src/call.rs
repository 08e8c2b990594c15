//! Calls from C: pointers, panics, and the thread in which an answer is made.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use taskdiag::without_signals;

use crate::failure::{Failure, code};

/// Runs a call, and returns its code. An error is left in `*error`, unless that is NULL.
///
/// # Safety
/// `error` is NULL, or a pointer may be stored there.
pub unsafe fn run(
    error: *mut *mut Failure,
    work: impl FnOnce() -> Result<c_int, Failure>,
) -> c_int {
    let failure = match quiet(work) {
        Ok(code) => {
            // SAFETY: the caller promises it.
            unsafe { store(error, null_mut()) };
            return code;
        }
        Err(failure) => failure,
    };
    let code = failure.code;
    if !error.is_null() {
        // SAFETY: as above.
        unsafe { store(error, Box::into_raw(Box::new(failure))) };
    }
    code
}

/// Runs a call that has only a value to return: `instead` after an error.
pub fn value<T>(instead: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    quiet(work).unwrap_or(instead)
}

/// A panic becomes an error, and its message is not printed.
fn quiet<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // A Once would block a child that another thread forks meanwhile. This library has its own copy
    // of the standard library, so no other code uses the hook.
    static IS_SET: AtomicBool = AtomicBool::new(cfg!(test));
    if !IS_SET.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|_| {}));
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(internal(&*panic)))
}

fn internal(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Failure::new(code::INTERNAL, format!("a fault of taskdiag, please report it: {said}"))
}

/// Runs the work in a thread of its own, and waits for it. Signals are blocked there and in the
/// threads that it starts, because handlers of the program expect its own threads. The thread also
/// has the stack that an engine needs, whatever that of the caller is.
pub fn apart<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    /// The size of the stack, as large as that of any thread of an engine.
    const STACK: usize = 2 << 20;
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("taskdiag".into()).stack_size(STACK);
        let thread = without_signals(|| builder.spawn_scoped(scope, work));
        let thread = thread.map_err(|e| {
            Failure::new(code::SYSTEM, format!("no thread can be made for the answer: {e}"))
        })?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Stores a value for the caller, unless the pointer is NULL.
///
/// # Safety
/// The pointer is NULL, or a value may be stored there.
pub unsafe fn store<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the caller promises it.
        unsafe { at.write(value) };
    }
}

/// The object of a handle.
///
/// # Safety
/// The handle is NULL, or was given out and not freed, and nobody changes the object meanwhile.
pub unsafe fn handle<'a, T>(at: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller promises it.
    unsafe { at.as_ref() }.ok_or_else(|| Failure::argument(&format!("{what} is NULL")))
}

/// The object of a handle that the call changes.
///
/// # Safety
/// As [`handle`], and nobody else uses the object meanwhile.
pub unsafe fn handle_mut<'a, T>(at: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller promises it.
    unsafe { at.as_mut() }.ok_or_else(|| Failure::argument(&format!("{what} is NULL")))
}

/// Gives an object to the caller.
///
/// # Safety
/// `at` is NULL, or a pointer may be stored there.
pub unsafe fn give<T>(
    at: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<c_int, Failure> {
    if at.is_null() {
        return Err(Failure::argument("the place for the result is NULL"));
    }
    // SAFETY: it is not NULL. After an error there is nothing to free.
    unsafe { at.write(null_mut()) };
    let object = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { at.write(object) };
    Ok(code::OK)
}

/// Frees an object.
///
/// # Safety
/// The handle is NULL, or was given out, and nobody uses it any more.
pub unsafe fn free<T>(at: *mut T) {
    value((), || {
        if !at.is_null() {
            // SAFETY: it is from `give`, and not NULL.
            drop(unsafe { Box::from_raw(at) });
        }
        Ok(())
    });
}

/// A text of the caller.
///
/// # Safety
/// The pointer is NULL, or of a text that ends with a NUL.
pub unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(Failure::argument(&format!("{what} is NULL")));
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Failure::query(format!("{what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_call_from_c_is_an_error_with_its_text() {
        let mut error = null_mut();
        // SAFETY: the error may be stored.
        let returned = unsafe { run(&mut error, || apart(|| panic!("number {}", 7))) };
        assert_eq!(returned, code::INTERNAL);
        // SAFETY: it was stored just now.
        let failure = unsafe { Box::from_raw(error) };
        assert!(failure.text.to_str().is_ok_and(|t| t.ends_with(": number 7")), "{failure:?}");
        assert_eq!(value(5, || panic!("this")), 5);
    }
}
