//! Accounts of the groups that the configuration names. Their metrics have the same names as in
//! process-exporter.

use std::time::Duration;

use super::ledger::{Counts, Id, Ledger, OTHER};
use super::text::label;
use super::values::Gauges;

fn joined(name: &str, more: &str) -> String {
    match more.is_empty() {
        true => name.to_owned(),
        false => format!("{name},{more}"),
    }
}

/// The first label, which is the name of the group.
fn name_of(labels: &str) -> &str {
    let begin = labels.find('"').map_or(labels.len(), |at| at + 1);
    let mut is_escaped = false;
    let end = labels[begin..].find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.map_or(labels, |end| &labels[..=begin + end])
}

/// Groups of processes.
#[derive(Debug)]
pub struct Accounts(Ledger);

impl Accounts {
    /// No groups yet.
    pub fn new(limit: usize, keep: Option<Duration>) -> Accounts {
        Accounts(Ledger::new(limit, label("groupname", OTHER), keep))
    }
    /// Counts a new member of the group with this name, and gives its account: that of the members
    /// with the same `more` labels, if there are any.
    pub fn join(&mut self, name: &[u8], more: &str) -> Id {
        self.0.join(joined(&label("groupname", name), more))
    }
    /// Counts one more member of the group that has this account.
    pub fn hold(&mut self, id: Id, more: &str) -> Id {
        let labels = joined(name_of(&self.0.account(id).labels), more);
        self.0.join(labels)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_heir_has_the_name_of_the_group_and_labels_of_its_own() {
        let mut accounts = Accounts::new(10, None);
        let a = accounts.join(b"a\"\\", "unit=\"x\"");
        let b = accounts.hold(a, "unit=\"y\"");
        assert_eq!(accounts.labels(b), r#"groupname="a\"\\",unit="y""#);
        assert_eq!(accounts.hold(b, "unit=\"x\""), a);
        let plain = accounts.join(b"a", "");
        assert_eq!(accounts.hold(plain, ""), plain);
        assert_eq!(accounts.labels(plain), r#"groupname="a""#);
    }
}
