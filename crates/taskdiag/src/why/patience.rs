//! Runs something that may wait for a file system or for the memory of another process, and gives
//! it up if it takes too long.
//!
//! A thread that does not return is abandoned, as in the engine for /proc. Such a wait ends at
//! SIGKILL, so the program can still end at once. There are never more than a few abandoned
//! threads.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many threads of this program may be left behind at a time, however often it looks.
const LEFT_MAX: u32 = 16;
/// How long results are gathered before they are passed on, because a switch between two threads
/// costs as much as a look.
const GATHERED: Duration = Duration::from_millis(2);

type Task = Box<dyn FnOnce() + Send>;

/// A thread that does one thing after another.
#[derive(Debug)]
struct Worker {
    tasks: Sender<Task>,
    is_left: Arc<AtomicBool>,
}

/// Does something that may wait, in a thread of its own.
#[derive(Debug)]
pub(super) struct Patience {
    worker: Option<Worker>,
    /// How many threads are left behind.
    left: Arc<AtomicU32>,
}

impl Default for Patience {
    fn default() -> Patience {
        static LEFT: LazyLock<Arc<AtomicU32>> = LazyLock::new(Arc::default);
        Patience { worker: None, left: Arc::clone(&LEFT) }
    }
}

impl Patience {
    /// The result of `what`, or `None` if it did not come within this time.
    pub(super) fn within<T: Send + 'static>(
        &mut self,
        limit: Duration,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.is_exhausted() {
            return None;
        }
        let (to, from) = channel();
        let task: Task = Box::new(move || _ = to.send(what()));
        self.tasks()?.send(task).ok()?;
        match from.recv_timeout(limit) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.leave();
                None
            }
        }
    }

    /// Does something for each of many items in another thread, which is cheaper than a call of
    /// [`within`](Self::within) for each. `take` gets the result of each item, or `None` if it did
    /// not come within this time. Ends at `end`, after which the other items get no result.
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
        while next < items.len() && !self.is_exhausted() {
            let results = Arc::new(Results::default());
            let (wake, woken) = channel();
            let task: Task = {
                let (items, what, results) = (Arc::clone(&items), what.clone(), results.clone());
                Box::new(move || {
                    for item in &items[next..] {
                        match results.add(what(item)) {
                            Added::First if wake.send(()).is_err() => return,
                            Added::GivenUp => return,
                            Added::First | Added::More => {}
                        }
                    }
                })
            };
            if self.tasks().is_none_or(|tasks| tasks.send(task).is_err()) {
                return;
            }
            while next < items.len() {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return results.give_up();
                }
                let is_woken = woken.recv_timeout(limit.min(left)).is_ok();
                if is_woken {
                    thread::sleep(GATHERED.min(left));
                }
                let come = results.take();
                let is_late = !is_woken && come.is_empty();
                for result in come {
                    take(&items[next], Some(result));
                    next += 1;
                }
                if is_late {
                    results.give_up();
                    take(&items[next], None);
                    next += 1;
                    self.leave();
                    break;
                }
            }
        }
    }

    fn is_exhausted(&self) -> bool {
        self.left.load(Ordering::SeqCst) >= LEFT_MAX
    }

    /// Leaves the thread behind. It ends when its task does.
    fn leave(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.left.fetch_add(1, Ordering::SeqCst);
            worker.is_left.store(true, Ordering::SeqCst);
        }
    }

    fn tasks(&mut self) -> Option<&Sender<Task>> {
        if self.worker.is_none() {
            let (tasks, from): (Sender<Task>, Receiver<Task>) = channel();
            let is_left = Arc::new(AtomicBool::new(false));
            let (left, was_left) = (Arc::clone(&self.left), Arc::clone(&is_left));
            let work = move || {
                from.into_iter().for_each(|task| task());
                if was_left.load(Ordering::SeqCst) {
                    left.fetch_sub(1, Ordering::SeqCst);
                }
            };
            thread::Builder::new().name(String::from("why")).spawn(work).ok()?;
            self.worker = Some(Worker { tasks, is_left });
        }
        self.worker.as_ref().map(|worker| &worker.tasks)
    }
}

/// Results on their way from one thread to another. `None`: nobody wants them any more.
struct Results<T>(Mutex<Option<Vec<T>>>);

enum Added {
    /// There was no earlier abandoned thread.
    First,
    More,
    GivenUp,
}

impl<T> Default for Results<T> {
    fn default() -> Results<T> {
        Results(Mutex::new(Some(Vec::new())))
    }
}

impl<T> Results<T> {
    fn add(&self, result: T) -> Added {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Added::GivenUp,
            Some(all) => {
                all.push(result);
                if all.len() == 1 { Added::First } else { Added::More }
            }
        }
    }

    fn take(&self) -> Vec<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn give_up(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A [`Patience`] whose threads are not counted with those of other tests.
    fn alone() -> Patience {
        Patience { worker: None, left: Arc::default() }
    }

    impl Patience {
        fn left(&self) -> u32 {
            self.left.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_call_that_takes_too_long_is_left_behind_and_the_next_is_done() {
        let mut patience = alone();
        let long = Duration::from_secs(60);
        assert_eq!(patience.within(long, || 1), Some(1));
        let stuck = patience.within(Duration::from_millis(10), move || thread::sleep(long));
        assert_eq!((stuck, patience.left()), (None, 1));
        assert_eq!(patience.within(long, || 2), Some(2));
    }

    #[test]
    fn an_item_that_takes_too_long_does_not_keep_the_others() {
        let mut patience = alone();
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
        assert_eq!(patience.left(), 1);
    }

    #[test]
    fn the_number_of_abandoned_threads_is_limited() {
        let mut patience = alone();
        for _ in 0..LEFT_MAX {
            patience.within(Duration::ZERO, || thread::sleep(Duration::from_secs(60)));
        }
        assert_eq!(patience.within(Duration::from_secs(60), || 1), None);
    }

    #[test]
    fn a_thread_that_was_left_behind_counts_until_its_call_ends() {
        let mut patience = alone();
        let (go, wait) = channel::<()>();
        assert_eq!(patience.within(Duration::ZERO, move || _ = wait.recv()), None);
        assert_eq!(patience.left(), 1);
        drop(go);
        let end = Instant::now() + Duration::from_secs(60);
        while patience.left() > 0 {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn many_results_come_in_order() {
        let mut results = Vec::new();
        let end = Instant::now() + Duration::from_secs(60);
        let items: Vec<u32> = (0..10_000).collect();
        let limit = Duration::from_secs(10);
        alone().each(items, limit, end, |n| n + 1, |n, r| results.push((*n, r)));
        assert!(results.iter().zip(0..).all(|((n, r), i)| *n == i && *r == Some(i + 1)));
        assert_eq!(results.len(), 10_000);
    }
}
