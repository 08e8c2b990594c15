//! Limits the cost of sums over the memory of processes in one answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::request::Request;

/// The budget of a request for VMA_STAT and ROLLUP, and how much of it is used up. All readers
/// share it.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) max_rss_bytes: Option<u64>,
    budget: Option<Duration>,
    spent_ns: AtomicU64,
}

impl Budget {
    pub(super) fn of(req: &Request) -> Budget {
        Budget {
            max_rss_bytes: req.max_rss_bytes.map(std::num::NonZero::get),
            budget: req.budget,
            spent_ns: AtomicU64::new(0),
        }
    }
    /// The time that was used.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed))
    }
    /// The time that is left, or `None` if there is no limit.
    pub(super) fn left(&self) -> Option<Duration> {
        self.budget.map(|b| b.saturating_sub(self.spent()))
    }
    pub(super) fn spend(&self, since: Instant) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent_ns.fetch_add(ns, Ordering::Relaxed);
    }
}
