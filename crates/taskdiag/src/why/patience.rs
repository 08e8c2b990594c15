//! Runs something that may wait for a file system or for the memory of another process, and gives
//! it up if it takes too long.
//!
//! A thread that waits is left behind, as the engine for /proc does it: such a wait ends at
//! SIGKILL, so the program still ends at once. There are never more than a few of them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How many threads may be left behind.
const LEFT_MAX: u32 = 16;

type Task = Box<dyn FnOnce() + Send>;

/// A thread that does one thing after another.
#[derive(Debug, Default)]
pub(super) struct Patience {
    worker: Option<Sender<Task>>,
    left: u32,
}

impl Patience {
    /// The result of `what`, or `None` if it did not come within this time.
    pub(super) fn within<T: Send + 'static>(
        &mut self,
        limit: Duration,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.left >= LEFT_MAX {
            return None;
        }
        let (to, from) = channel();
        let task: Task = Box::new(move || _ = to.send(what()));
        self.worker()?.send(task).ok()?;
        match from.recv_timeout(limit) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.worker = None;
                self.left += 1;
                None
            }
        }
    }

    /// Does something for each of many items, without a turn between two threads for each of them.
    /// `take` gets the result of each item, or `None` if it did not come within this time. Ends at
    /// `end`, after which the other items get no result.
    pub(super) fn each<I: Send + Sync + 'static, T: Send + 'static>(
        &mut self,
        items: Vec<I>,
        limit: Duration,
        end: Instant,
        what: impl Fn(&I) -> T + Send + Sync + 'static,
        mut take: impl FnMut(&I, Option<T>),
    ) {
        let (items, what) = (Arc::new(items), Arc::new(what));
        let mut next = 0;
        while next < items.len() && self.left < LEFT_MAX {
            let (to, from) = channel();
            let task: Task = {
                let (items, what) = (Arc::clone(&items), Arc::clone(&what));
                // It ends when nobody wants its results any more.
                Box::new(move || _ = items[next..].iter().try_for_each(|i| to.send(what(i))))
            };
            if self.worker().is_none_or(|worker| worker.send(task).is_err()) {
                return;
            }
            while next < items.len() {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                let result = from.recv_timeout(limit.min(left)).ok();
                let is_late = result.is_none();
                take(&items[next], result);
                next += 1;
                if is_late {
                    self.worker = None;
                    self.left += 1;
                    break;
                }
            }
        }
    }

    fn worker(&mut self) -> Option<&Sender<Task>> {
        if self.worker.is_none() {
            let (to, from): (Sender<Task>, Receiver<Task>) = channel();
            let work = move || from.into_iter().for_each(|task| task());
            thread::Builder::new().name(String::from("why")).spawn(work).ok()?;
            self.worker = Some(to);
        }
        self.worker.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_takes_too_long_is_left_behind_and_the_next_is_done() {
        let mut patience = Patience::default();
        let long = Duration::from_secs(60);
        assert_eq!(patience.within(long, || 1), Some(1));
        let stuck = patience.within(Duration::from_millis(10), move || thread::sleep(long));
        assert_eq!((stuck, patience.left), (None, 1));
        assert_eq!(patience.within(long, || 2), Some(2));
    }

    #[test]
    fn an_item_that_takes_too_long_does_not_keep_the_others() {
        let mut patience = Patience::default();
        let work = |n: &u32| {
            if *n == 3 {
                thread::sleep(Duration::from_secs(60));
            }
            n * 2
        };
        let mut results = Vec::new();
        let end = Instant::now() + Duration::from_secs(60);
        let limit = Duration::from_secs(2);
        patience.each(vec![1, 2, 3, 4], limit, end, work, |n, r| results.push((*n, r)));
        assert_eq!(results, [(1, Some(2)), (2, Some(4)), (3, None), (4, Some(8))]);
        assert_eq!(patience.left, 1);
    }

    #[test]
    fn only_so_many_threads_are_left_behind() {
        let mut patience = Patience::default();
        for _ in 0..LEFT_MAX {
            patience.within(Duration::ZERO, || thread::sleep(Duration::from_secs(60)));
        }
        assert_eq!(patience.within(Duration::from_secs(60), || 1), None);
    }
}
