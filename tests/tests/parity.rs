//! Compares the values of every group between all engines that answer it here. The list of groups
//! comes from the registry, and each engine names the groups that it answers. A new group fails
//! here if none of its values was compared. It cannot find an engine that does not name the group
//! in its GROUPS, or a value that is 0 in every state.

use std::collections::{BTreeMap, BTreeSet};

use taskdiag::{EngineId, Group, Groups, Request};
use taskdiag_tests::answer::{Source, engines_with};
use taskdiag_tests::compare::{Outcome, compare};
use taskdiag_tests::{Mktask, engines, read, skip};

/// How often a comparison is repeated before a difference counts.
const TRIES: u64 = 10;

/// Starts states that together have a value of each group.
fn states(dir: &str) -> Vec<Mktask> {
    let odd = format!("{dir}/odd");
    std::fs::create_dir(&odd).expect("a new directory");
    let args: [&[&str]; 8] = [
        &["settings"],
        &["mappings", dir],
        &["files", dir],
        &["threads", "3"],
        &["creds"],
        &["odd-names", &odd],
        &["odd-places", dir],
        &["cgroup", "odd"],
    ];
    let start = |a: &&[&str]| Mktask::or_skip(a[0], a);
    args.iter().filter_map(start).collect()
}

/// Compares one group of a process and of its threads between two engines.
fn compared(m: &Mktask, group: Group, fast: Source, slow: Source) -> Outcome {
    let groups = Groups::BASE | group.into();
    let mut all = Outcome::default();
    for req in [Request::one(m.pid(), groups), Request::threads(m.pid(), groups)] {
        let mut last = Outcome::default();
        for attempt in 0..TRIES {
            std::thread::sleep(std::time::Duration::from_millis(20 * attempt));
            let ask = |e| read(e, &req).unwrap_or_else(|why| panic!("{group} of {e}: {why}"));
            let (a1, b, a2) = (ask(slow), ask(fast), ask(slow));
            last = Outcome::default();
            assert_eq!(a1.pids(), b.pids(), "{group}: {a1} and {b} of {}", m.state());
            for pid in a1.pids() {
                if a2.has(pid) {
                    last.add(compare(&a1.task(pid), &b.task(pid), &a2.task(pid)));
                }
            }
            if last.differences.is_empty() {
                break;
            }
        }
        all.add(last);
    }
    all
}

#[test]
fn every_group_has_the_same_values_on_all_engines() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = std::fs::canonicalize(dir.path()).expect("it exists");
    let states = states(path.to_str().expect("a plain path"));
    assert!(!states.is_empty(), "no state to compare");
    let mut bad = BTreeSet::new();
    let mut without: BTreeMap<Group, String> = BTreeMap::new();
    for group in Group::ALL {
        let with: Vec<Source> =
            engines_with(*group).into_iter().filter(|s| s.finds(*group)).collect();
        if with.len() < 2 && engines().len() > 1 {
            let whom = with.first().map_or("no engine".into(), ToString::to_string);
            let why = format!("{whom} has it alone here, or finds it alone");
            skip(&format!("parity of {group}"), &why);
        }
        for pair in with.windows(2) {
            let mut out = Outcome::default();
            for m in &states {
                out.add(compared(m, *group, pair[0], pair[1]));
            }
            if out.missing.get(group) == Some(&out.tasks) {
                let whom = format!("no task has it here, as {} and {} say", pair[0], pair[1]);
                skip(&format!("parity of {group}"), &whom);
            } else if !out.groups.contains(group) {
                without.insert(*group, format!("{} and {}", pair[0], pair[1]));
            }
            let name = |d| format!("{} and {}: {d}", pair[0], pair[1]);
            // The kernel series lacks some members of lists, such as the queues of listeners.
            // Values that both engines know are compared.
            let is_gap = |d: &String| d.contains(": one does not know it of ");
            let (gaps, differ): (Vec<_>, Vec<_>) = out
                .differences
                .into_iter()
                .partition(|d| is_gap(d) && pair.iter().any(|s| s.id() == EngineId::Kernel));
            if let Some(gap) = gaps.first() {
                let which = gap.split(": one").next().unwrap_or(gap);
                skip(&format!("{} members of {group} on the kernel engine", gaps.len()), which);
            }
            bad.extend(differ.into_iter().map(name));
        }
    }
    let list: Vec<_> = bad.into_iter().collect();
    assert!(
        list.is_empty(),
        "engines differ (None: that engine does not know the member; one that it can never know belongs in NOT_EVERYWHERE of \
         tests/src/compare.rs):\n{}",
        list.join("\n")
    );
    assert!(
        without.is_empty(),
        "no value of these groups was compared, so it is not known whether engines agree; add a \
         state that has one, or a comparer to tests/src/compare.rs: {without:?}"
    );
}
