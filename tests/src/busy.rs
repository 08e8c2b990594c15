//! Counts time on a busy machine. A test that waits for something gives it more time if many tasks
//! want each processor. tools/test-runner counts in the same way.

use std::time::{Duration, Instant};

/// The largest divisor of time on a busy machine.
const MOST_CROWDED: f64 = 10.0;

/// How many tasks want each processor now, from 1 to 10.
pub fn crowd() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    // In "0.50 0.40 0.30 3/120 4711", three tasks want to run.
    let running = text.split([' ', '/']).nth(3).and_then(|n| n.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (running.unwrap_or(1.0) / processors as f64).clamp(1.0, MOST_CROWDED)
}

/// How long the passed time would have been on a machine that has nothing else to do.
pub fn worth(passed: Duration) -> Duration {
    passed.div_f64(crowd())
}

/// A wait with an end.
#[derive(Debug)]
pub struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    /// A wait of this length on an idle machine.
    pub fn new(time: Duration) -> Patience {
        Patience { left: time, last: Instant::now() }
    }
    /// Whether the time has passed. Call it now and then.
    pub fn is_over(&mut self) -> bool {
        self.left = self.left.saturating_sub(worth(self.last.elapsed()));
        self.last = Instant::now();
        self.left.is_zero()
    }
}

/// Waits until a child that was just started runs its program and sleeps. `spawn()` returns in the
/// middle of execve(2), when the child has neither its new name and arguments nor its libraries.
///
/// # Panics
/// If that does not happen.
pub fn wait_for_sleep(pid: u32) {
    let me = std::fs::read_link("/proc/self/exe").expect("it has one");
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let sleeps = || stat().rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
    let mut patience = Patience::new(Duration::from_secs(20));
    while std::fs::read_link(format!("/proc/{pid}/exe")).map_or(true, |p| p == me) || !sleeps() {
        assert!(!patience.is_over(), "process {pid} does not begin to sleep: {}", stat());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_takes_time_and_ends() {
        assert!((1.0..=MOST_CROWDED).contains(&crowd()));
        let (begin, mut p) = (Instant::now(), Patience::new(Duration::from_millis(20)));
        while !p.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(begin.elapsed() >= Duration::from_millis(20));
    }
}
