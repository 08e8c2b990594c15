//! The NUMA node of each processor of this machine.
//!
//! sysfs is read once, when the first node is needed. A stream does not contain the nodes, so they
//! are not known for answers from another machine.

use std::cell::OnceCell;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::cpulist::ranges;

/// The nodes of this machine.
#[derive(Debug, Default)]
pub struct Nodes {
    found: OnceCell<Vec<(RangeInclusive<u32>, u32)>>,
}

impl Nodes {
    /// The node of a processor. `None` if sysfs does not have it: the processor is offline, the
    /// kernel was built without NUMA, or sysfs is not mounted.
    pub fn of(&self, cpu: u32) -> Option<u32> {
        let all = self.found.get_or_init(|| read(Path::new("/sys/devices/system/node")));
        all.iter().find(|(cpus, _)| cpus.contains(&cpu)).map(|(_, node)| *node)
    }
}

/// The processors of the directories `node0`, `node1`, … with their nodes.
fn read(dir: &Path) -> Vec<(RangeInclusive<u32>, u32)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let node = name.to_str().and_then(|n| n.strip_prefix("node")?.parse().ok());
        let list = || ranges(&fs::read(entry.path().join("cpulist")).ok()?);
        if let Some(node) = node {
            all.extend(list().into_iter().flatten().map(|cpus| (cpus, node)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_the_node_whose_list_has_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Node 2 has memory and no processor.
        for (node, list) in [("node0", "0-3,8-11\n"), ("node1", "4-7\n"), ("node2", "\n")] {
            fs::create_dir(dir.path().join(node)).expect("a new directory");
            fs::write(dir.path().join(node).join("cpulist"), list).expect("a new directory");
        }
        fs::write(dir.path().join("online"), "0-2\n").expect("a new directory");
        let nodes = Nodes { found: OnceCell::from(read(dir.path())) };
        for (cpu, node) in
            [(0, Some(0)), (5, Some(1)), (7, Some(1)), (9, Some(0)), (12, None), (u32::MAX, None)]
        {
            assert_eq!(nodes.of(cpu), node, "{cpu}");
        }
    }

    #[test]
    fn a_machine_without_nodes_has_no_node_to_show() {
        assert_eq!(read(Path::new("/nonexistent")), []);
    }
}
