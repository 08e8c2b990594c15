//! The place of a process: its systemd unit and slice, and its container, from the path of the
//! control group.

use std::time::Duration;

use taskdiag::cgroup;
use taskdiag::field::Row;

use super::ledger::{Counts, Id, Ledger, OTHER};
use super::text::label;
use super::values::Gauges;
use crate::args::Families;

/// How long an empty unit, slice or container is shown, so that its last counters are not missed.
const KEEP: Duration = Duration::from_secs(600);

/// Where one process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Where {
    unit: Option<Id>,
    slice: Option<Id>,
    container: Option<Id>,
}

/// The accounts.
#[derive(Debug)]
pub struct Places {
    /// Units of the system's manager.
    pub units: Ledger,
    /// Slices of the system's manager, each without the slices inside it.
    pub slices: Ledger,
    /// Containers.
    pub containers: Ledger,
}

fn unit_labels(unit: &[u8], slice: &[u8]) -> String {
    format!("{},{}", label("unit", unit), label("slice", slice))
}

fn container_labels(id: &[u8], runtime: &str, pod: &[u8]) -> String {
    let (id, runtime) = (label("container", id), label("runtime", runtime.as_bytes()));
    format!("{id},{runtime},{}", label("pod", pod))
}

impl Places {
    /// No accounts yet.
    pub fn new(limit: usize) -> Places {
        let ledger = |other| Ledger::new(limit, other, Some(KEEP));
        Places {
            units: ledger(unit_labels(OTHER, OTHER)),
            slices: ledger(label("slice", OTHER)),
            containers: ledger(container_labels(OTHER, "", b"")),
        }
    }
    /// Finds where a process runs, and counts it there until [`leave`](Self::leave).
    pub fn find(&mut self, row: &Row<'_>, families: Families) -> Where {
        let mut found = Where::default();
        let Some(path) = cgroup::of_systemd(row.view.cgroups()) else { return found };
        let slice = cgroup::slice(path);
        if families.slices {
            found.slice = Some(self.slices.join(label("slice", slice)));
        }
        if let Some(unit) = cgroup::unit(path).filter(|_| families.units) {
            found.unit = Some(self.units.join(unit_labels(unit, slice)));
        }
        if let Some(it) = cgroup::container(path).filter(|_| families.containers) {
            let pod = cgroup::pod(path).unwrap_or_default();
            let labels = container_labels(&it.id, it.runtime.unwrap_or(""), &pod);
            found.container = Some(self.containers.join(labels));
        }
        found
    }
    fn each(&mut self, place: &Where, mut f: impl FnMut(&mut Ledger, Id)) {
        let Places { units, slices, containers } = self;
        let all = [(units, place.unit), (slices, place.slice), (containers, place.container)];
        all.into_iter().for_each(|(ledger, id)| {
            if let Some(id) = id {
                f(ledger, id);
            }
        });
    }
    /// A process no longer runs there.
    pub fn leave(&mut self, place: &Where) {
        self.each(place, Ledger::leave);
    }
    /// Prepares for the next answer.
    pub fn begin(&mut self) {
        [&mut self.units, &mut self.slices, &mut self.containers]
            .into_iter()
            .for_each(Ledger::begin);
    }
    /// Adds the counters and the present values of a process.
    pub fn add(&mut self, place: &Where, by: &Counts, gauges: &Gauges) {
        self.each(place, |ledger, id| gauges.add_to(ledger.account(id), by));
    }
}
