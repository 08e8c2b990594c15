//! Values that are computed once per process, without a lock.
//!
//! fork(2) copies only the thread that calls it. If another thread holds a lock at that moment, or
//! is inside a `OnceLock`, the child waits for that thread for ever. Here, every thread that needs
//! the value before it is known computes it, and the first result is kept.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is computed once.
#[derive(Debug)]
pub(crate) struct Found<T: 'static> {
    /// Null, or a pointer from `Box::into_raw()` that is never freed.
    value: AtomicPtr<T>,
    owns: PhantomData<T>,
}

// Without these bounds, a thread could use a value that must not leave its thread.
impl<T: Send + Sync + 'static> Found<T> {
    /// A value that is not known yet.
    pub(crate) const fn new() -> Found<T> {
        Found { value: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }
    /// The value, if it is known.
    pub(crate) fn get(&'static self) -> Option<&'static T> {
        // SAFETY: it is null, or was made by Box::into_raw() in `keep`, which wrote the value
        // before the pointer. It is never freed or borrowed mutably.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }
    /// Returns the value, and computes it first if it is not known.
    pub(crate) fn get_or_find(&'static self, find: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.keep(find()))
    }
    /// Keeps a value, unless there is one already. Returns the kept value.
    pub(crate) fn keep(&'static self, value: T) -> &'static T {
        let new = Box::into_raw(Box::new(value));
        let none = ptr::null_mut();
        match self.value.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it is from Box::into_raw() and is never freed from now on.
            Ok(_) => unsafe { &*new },
            Err(first) => {
                // SAFETY: no other code has seen the pointer.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `get`. It is not null, because the exchange would have succeeded
                // then.
                unsafe { &*first }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn all_threads_have_the_first_value() {
        static FOUND: Found<usize> = Found::new();
        assert_eq!(FOUND.get(), None);
        let begin = Barrier::new(8);
        let begin = &begin;
        let found: Vec<&usize> = std::thread::scope(|s| {
            let ask = |n| {
                begin.wait();
                FOUND.get_or_find(|| n)
            };
            let all: Vec<_> = (0..8).map(|n| s.spawn(move || ask(n))).collect();
            all.into_iter().map(|t| t.join().expect("it does not panic")).collect()
        });
        assert!(found.iter().all(|f| ptr::eq(*f, found[0])));
        assert_eq!(FOUND.get_or_find(|| 99), found[0]);
    }

    #[test]
    fn no_thread_waits_for_another_that_computes_the_value() {
        static FOUND: Found<u32> = Found::new();
        let (go, wait) = mpsc::channel::<()>();
        let (inside, is_inside) = mpsc::channel();
        let slow = std::thread::spawn(move || {
            *FOUND.get_or_find(|| {
                inside.send(()).expect("it is heard");
                let _ = wait.recv_timeout(Duration::from_secs(60));
                1
            })
        });
        is_inside.recv().expect("it begins");
        assert_eq!(*FOUND.get_or_find(|| 2), 2);
        drop(go);
        assert_eq!(slow.join().expect("it ends"), 2);
    }
}
