//! Accounts of the groups of the configuration, whose metrics have the names of process-exporter.

use std::time::Duration;

use super::ledger::{Counts, Id, Ledger, OTHER};
use super::text::label;
use super::values::Gauges;

/// Groups of processes.
#[derive(Debug)]
pub struct Accounts(Ledger);

impl Accounts {
    /// No groups yet.
    pub fn new(limit: usize, keep: Option<Duration>) -> Accounts {
        Accounts(Ledger::new(limit, label("groupname", OTHER), keep))
    }
    /// Counts a new member of the group with this name, and gives the group's account.
    pub fn join(&mut self, name: &[u8]) -> Id {
        self.0.join(label("groupname", name))
    }
    /// Counts one more member of a group.
    pub fn hold(&mut self, id: Id) {
        let labels = self.0.account(id).labels.clone();
        self.0.join(labels);
    }
    /// A member has ended.
    pub fn leave(&mut self, id: Id) {
        self.0.leave(id);
    }
    /// Prepares for the next answer.
    pub fn begin(&mut self) {
        self.0.begin();
    }
    /// Adds the counters and the present values of a process. `state` is the index of its state in
    /// `STATES`.
    pub fn add(&mut self, id: Id, by: &Counts, gauges: &Gauges, state: usize) {
        let account = self.0.account(id);
        gauges.add_to(account, by);
        account.now.states[state] += 1;
    }
    /// The states of threads, which replace those of processes.
    pub fn put_states(&mut self, id: Id, states: [u64; super::ledger::STATES.len()]) {
        self.0.account(id).now.states = states;
    }
    /// The labels of a group.
    pub fn labels(&mut self, id: Id) -> &str {
        &self.0.account(id).labels
    }
    /// All of them.
    pub fn ledger(&self) -> &Ledger {
        &self.0
    }
}
