//! The place of a process: its systemd unit and slice, and its container, from the path of the
//! control group.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use taskdiag::cgroup;
use taskdiag::containers::{self, ContainerNames};
use taskdiag::field::Row;

use super::ledger::{Counts, Id, Ledger, OTHER};
use super::text::label;
use super::values::Gauges;
use crate::args::{Families, GroupLabels};

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
    /// By the labels of the account of a container: a path of its control group, and its names.
    names: HashMap<String, (Box<[u8]>, String)>,
}

fn unit_labels(unit: &[u8], slice: &[u8]) -> String {
    format!("{},{}", label("unit", unit), label("slice", slice))
}

fn container_labels(id: &[u8], runtime: &str, pod: &[u8]) -> String {
    let (id, runtime) = (label("container", id), label("runtime", runtime.as_bytes()));
    format!("{id},{runtime},{}", label("pod", pod))
}

/// The path that systemd uses, and the path of a container or a pod, where there is one.
fn paths<'a>(row: &Row<'a>) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
    let of_systemd = cgroup::of_systemd(row.view.cgroups());
    let all = row.view.cgroups().filter_map(|(_, entry)| cgroup::path_of(entry));
    let contained = of_systemd.into_iter().chain(all).find(|path| containers::is_contained(path));
    (of_systemd, contained)
}

/// The labels that the group of a process has in addition to its name. A label without a value has
/// empty text, which counts as no label for Prometheus.
pub fn group_labels(row: &Row<'_>, wanted: GroupLabels) -> String {
    if wanted == GroupLabels::default() {
        return String::new();
    }
    let (of_systemd, contained) = paths(row);
    let names = contained.and_then(containers::of_host);
    let name = |get: fn(&ContainerNames) -> &containers::Named| {
        names.as_deref().and_then(|n| get(n).as_deref().ok())
    };
    let mut all = Vec::new();
    if wanted.unit {
        all.push(label("unit", of_systemd.and_then(cgroup::unit).unwrap_or_default()));
    }
    if wanted.container {
        let id = contained.and_then(cgroup::container).map(|c| c.id).unwrap_or_default();
        all.push(label("container", name(|n| &n.name).unwrap_or(&id)));
    }
    if wanted.pod {
        let uid = contained.and_then(cgroup::pod).unwrap_or_default();
        all.push(label("pod", name(|n| &n.pod_name).unwrap_or(&uid)));
    }
    if wanted.namespace {
        all.push(label("namespace", name(|n| &n.pod_namespace).unwrap_or_default()));
    }
    all.join(",")
}

fn name_labels(names: &ContainerNames) -> String {
    let of = |name, named: &containers::Named| label(name, named.as_deref().unwrap_or_default());
    [
        of("container_name", &names.name),
        of("image", &names.image),
        of("pod_name", &names.pod_name),
        of("namespace", &names.pod_namespace),
    ]
    .join(",")
}

impl Places {
    /// No accounts yet.
    pub fn new(limit: usize) -> Places {
        let ledger = |other| Ledger::new(limit, other, Some(KEEP));
        Places {
            units: ledger(unit_labels(OTHER, OTHER)),
            slices: ledger(label("slice", OTHER)),
            containers: ledger(container_labels(OTHER, "", b"")),
            names: HashMap::new(),
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
            if !self.names.contains_key(&labels) {
                if let Some(names) = containers::of_host(path) {
                    self.names.insert(labels.clone(), (path.into(), name_labels(&names)));
                }
            }
            found.container = Some(self.containers.join(labels));
        }
        found
    }
    fn each(&mut self, place: &Where, mut f: impl FnMut(&mut Ledger, Id)) {
        let Places { units, slices, containers, .. } = self;
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
        // Containers that are counted with others, or have ended, need no names.
        let kept: HashSet<&str> = self.containers.all().map(|a| a.labels.as_str()).collect();
        self.names.retain(|labels, _| kept.contains(labels.as_str()));
        // A container may have been renamed.
        for (path, text) in self.names.values_mut() {
            if let Some(names) = containers::of_host(path) {
                *text = name_labels(&names);
            }
        }
    }
    /// The labels with the names of the container that has these labels.
    pub fn names(&self, labels: &str) -> Option<&str> {
        self.names.get(labels).map(|(_, text)| text.as_str())
    }
    /// Adds the counters and the present values of a process.
    pub fn add(&mut self, place: &Where, by: &Counts, gauges: &Gauges) {
        self.each(place, |ledger, id| gauges.add_to(ledger.account(id), by));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use taskdiag::wire::decode::Stream;
    use taskdiag::wire::{A_CGROUP_PATH, Cgroup, Done, StreamWriter};

    use super::*;

    #[test]
    fn a_renamed_container_has_its_new_name_in_the_next_answer() {
        let id = format!("{:064x}", 77);
        let dir = std::env::temp_dir().join(format!("taskdiag-places-{}", std::process::id()));
        let file = dir.join(format!("var/lib/docker/containers/{id}/config.v2.json"));
        fs::create_dir_all(file.parent().expect("it has one")).expect("a directory");
        let named = |name: &str| {
            let text = format!(r#"{{"Config":{{"Image":"i:1"}},"Name":"/{name}"}}"#);
            fs::write(&file, text).expect("a file");
        };
        containers::set_host_root(&dir);
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        w.begin_task(7, 7);
        w.put(&Cgroup::new());
        let path = format!(":/docker/{id}");
        w.put_blob(A_CGROUP_PATH, 0, 0, path.as_bytes(), path.len());
        w.end_task();
        let stream = Stream::parse(w.finish(Done::default())).expect("it is well formed");
        let row = Row::new(stream.get(0).expect("one task"));
        let mut places = Places::new(10);
        let families = Families { containers: true, ..Families::default() };
        let labels = container_labels(id.as_bytes(), "docker", b"");
        named("one");
        places.find(&row, families);
        for name in ["one", "second"] {
            named(name);
            places.begin();
            let names = places.names(&labels).expect("they are known");
            assert!(names.contains(&format!("container_name=\"{name}\"")), "{names}");
        }
        fs::remove_dir_all(dir).expect("it is removed");
    }
}
