//! Watches a request while it is answered, and ends it early.
//!
//! The caller shares a [`Watch`] with the engine that answers. The engine counts the tasks that it
//! has done, and the caller may stop it. The engine then ends the walk and the stream with the
//! tasks so far, and DONE has `-EINTR`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of an answer, and a request to stop it.
///
/// A watch is shared as an `Arc` between the thread that makes the request and its observers, see
/// [`Request`](crate::Request).
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Watch {
    /// A watch with no progress that is not stopped.
    pub const fn new() -> Watch {
        Watch { stop: AtomicBool::new(false), done: AtomicU64::new(0), total: AtomicU64::new(0) }
    }
    /// Ends the walk soon. It may be called in a signal handler.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether the walk was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    /// The number of finished tasks, and the approximate total, or 0 if that is not known.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
    /// Announces this many more tasks.
    pub(crate) fn expect(&self, tasks: u64) {
        self.total.fetch_add(tasks, Ordering::Relaxed);
    }
    /// Counts this many more tasks as done.
    pub(crate) fn advance(&self, tasks: u64) {
        self.done.fetch_add(tasks, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_counts_and_stops() {
        let watch = Watch::new();
        watch.expect(3);
        watch.advance(2);
        assert_eq!((watch.progress(), watch.is_stopped()), ((2, 3), false));
        watch.stop();
        assert!(watch.is_stopped());
    }
}
