//! Looking on while a request is answered, and ending it early.
//!
//! A [`Watch`] is shared between the caller of an engine and the engine: the engine counts the
//! tasks that it has done, the caller may say that it has waited long enough. The engine then ends
//! the walk, and the stream with what it has, its DONE carrying `-EINTR`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far an answer is, and whether it is to end.
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Watch {
    /// Nothing done, not stopped.
    pub const fn new() -> Watch {
        Watch { stop: AtomicBool::new(false), done: AtomicU64::new(0), total: AtomicU64::new(0) }
    }
    /// End the walk soon. Safe to call in a signal handler.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Was it stopped?
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    /// Tasks done so far, and about how many there are; 0: not known.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
    /// For engines: this many tasks are to be done besides those already known.
    pub fn expect(&self, tasks: u64) {
        self.total.fetch_add(tasks, Ordering::Relaxed);
    }
    /// For engines: this many more are done.
    pub fn advance(&self, tasks: u64) {
        self.done.fetch_add(tasks, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_stops() {
        static WATCH: Watch = Watch::new();
        WATCH.expect(3);
        WATCH.advance(2);
        assert_eq!((WATCH.progress(), WATCH.is_stopped()), ((2, 3), false));
        WATCH.stop();
        assert!(WATCH.is_stopped());
    }
}
