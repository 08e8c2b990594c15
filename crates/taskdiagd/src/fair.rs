//! Limits how much of the service each user may use. The kernel does not charge the CPU time of the
//! service to the caller, as it does for a read of /proc. So each user has an account of CPU time.
//! It fills with time, and requests and connections are paid from it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The connections that one user may have.
pub const CONNECTIONS: usize = 64;
/// The share of a CPU that one user may use in the long run.
const SHARE: f64 = 0.25;
/// The CPU time that one user may use at once.
pub const BURST: Duration = Duration::from_millis(500);
/// The largest debt of a user, so that it is paid within minutes.
const DEBT: Duration = Duration::from_secs(60);
/// The assumed cost of a connection, which is too short to measure each time.
const CONNECTION: Duration = Duration::from_micros(50);

/// The accounts of all users that ask.
#[derive(Debug, Default)]
pub struct Fair {
    users: HashMap<u32, Account>,
}

#[derive(Debug)]
struct Account {
    connections: usize,
    /// Seconds of CPU time. It may be negative, because the cost of a question is only known
    /// afterwards.
    balance: f64,
    at: Instant,
}

impl Account {
    fn fill(&mut self, now: Instant) {
        self.balance = Fair::filled(self.balance, now.saturating_duration_since(self.at));
        self.at = now;
    }
}

impl Fair {
    /// The balance of an account after this time.
    pub fn filled(balance: f64, time: Duration) -> f64 {
        let balance = balance.max(-DEBT.as_secs_f64());
        (balance + time.as_secs_f64() * SHARE).min(BURST.as_secs_f64())
    }

    /// Restores an account from an earlier service.
    pub fn restore(&mut self, uid: u32, balance: f64, now: Instant) {
        let balance = Fair::filled(balance, Duration::ZERO);
        self.users.insert(uid, Account { connections: 0, balance, at: now });
    }

    /// The users whose accounts are not full, and their balances.
    pub fn accounts(&mut self, now: Instant) -> Vec<(u32, f64)> {
        let full = BURST.as_secs_f64();
        let all = self.users.iter_mut().map(|(uid, account)| {
            account.fill(now);
            (*uid, account.balance)
        });
        all.filter(|(_, balance)| *balance < full).collect()
    }

    fn account(&mut self, uid: u32, now: Instant) -> &mut Account {
        let new = || Account { connections: 0, balance: BURST.as_secs_f64(), at: now };
        let account = self.users.entry(uid).or_insert_with(new);
        account.fill(now);
        account
    }

    /// May this user connect? If so, the connection is counted until [`leave`](Self::leave).
    pub fn enter(&mut self, uid: u32, now: Instant) -> bool {
        let account = self.account(uid, now);
        account.balance -= CONNECTION.as_secs_f64();
        let may = account.connections < CONNECTIONS && account.balance > 0.0;
        account.connections += usize::from(may);
        may
    }

    /// A connection has ended.
    pub fn leave(&mut self, uid: u32, now: Instant) {
        let account = self.account(uid, now);
        account.connections = account.connections.saturating_sub(1);
    }

    /// The connections that this user has.
    pub fn connections(&self, uid: u32) -> usize {
        self.users.get(&uid).map_or(0, |account| account.connections)
    }

    /// A question of this user took this much CPU time.
    pub fn charge(&mut self, uid: u32, cpu: Duration, now: Instant) {
        self.account(uid, now).balance -= cpu.as_secs_f64();
    }

    /// How long this user must wait before the next question. `None`: never.
    pub fn wait(&mut self, uid: u32, now: Instant) -> Option<Duration> {
        let lack = -self.account(uid, now).balance;
        (lack >= 0.0).then(|| Duration::from_secs_f64(lack / SHARE + 0.001))
    }

    /// Forgets users who have no connection and have used nothing for long.
    pub fn tidy(&mut self, now: Instant) {
        self.users.retain(|_, account| {
            account.fill(now);
            account.connections > 0 || account.balance < BURST.as_secs_f64()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_asks_for_much_waits_and_others_do_not() {
        let (mut fair, now) = (Fair::default(), Instant::now());
        assert!(fair.enter(1, now) && fair.enter(2, now));
        assert_eq!(fair.wait(1, now), None);
        fair.charge(1, Duration::from_secs(1), now);
        let wait = fair.wait(1, now).expect("it has to wait");
        assert!(wait > Duration::from_secs(1) && wait < Duration::from_secs(3), "{wait:?}");
        assert!(!fair.enter(1, now), "nor may it connect");
        assert_eq!(fair.wait(2, now), None);
        assert_eq!(fair.wait(1, now + wait), None);
    }

    #[test]
    fn connections_are_counted_for_each_user() {
        let (mut fair, now) = (Fair::default(), Instant::now());
        let many = (0..CONNECTIONS + 5).filter(|_| fair.enter(1, now)).count();
        assert_eq!(many, CONNECTIONS);
        assert!(fair.enter(2, now));
        fair.leave(1, now);
        assert!(fair.enter(1, now) && !fair.enter(1, now));
    }

    #[test]
    fn accounts_of_those_who_left_are_forgotten() {
        let (mut fair, now) = (Fair::default(), Instant::now());
        fair.enter(1, now);
        fair.enter(2, now);
        fair.leave(2, now);
        fair.tidy(now);
        assert_eq!(fair.users.len(), 2, "user 2 has paid for a connection");
        fair.tidy(now + Duration::from_secs(5));
        assert_eq!(fair.users.keys().collect::<Vec<_>>(), [&1]);
    }
}
