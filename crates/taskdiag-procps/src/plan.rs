//! Decides what is requested for a set of items.

use taskdiag::{Groups, Members, Processes, Request};

use crate::item::{File, Item};
use crate::real::Version;

/// The longest text that an engine is asked for. A longer one is read when its row is made, see
/// [`crate::proctext`].
const TEXT_BYTES: u32 = 4 << 10;
/// The limit for all texts in requests.
const ALL_TEXT_BYTES: u64 = 2 << 20;
/// The longest total of texts that an engine is asked for in a part of a long list.
const PART_TEXT_BYTES: u64 = 512 << 10;

/// The requests for a set of items.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The items, in the order of the caller.
    pub items: Vec<Item>,
    /// The items that come from the real library.
    pub old: Vec<Item>,
    groups: Groups,
    members: Members,
    /// The groups among these whose values are sums over the threads in the row of a process.
    sums: Groups,
    sum_members: Members,
    /// Does the real library read `stat` or `status` for these items? If not, it knows neither name
    /// nor state.
    pub has_comm: bool,
    /// Is there an item that is a difference to the last fetch?
    pub has_delta: bool,
}

impl Plan {
    /// For these items.
    pub fn new(items: Vec<Item>, version: Version) -> Plan {
        let state = Members::of(Groups::BASE, &["state"]);
        let mut plan = Plan {
            old: Vec::new(),
            // BASE is there always: the state is counted.
            groups: Groups::BASE,
            members: state,
            sums: Groups::NONE,
            sum_members: Members::NONE,
            has_comm: version.always_reads_stat(),
            has_delta: false,
            items,
        };
        for item in &plan.items {
            let need = item.need();
            plan.has_comm |= need.file != File::Other;
            plan.has_delta |= need.is_delta;
            if need.is_old {
                if !plan.old.contains(item) {
                    plan.old.push(*item);
                }
                continue;
            }
            plan.groups |= need.groups;
            plan.members = plan.members.union(need.members);
            if need.is_sum {
                plan.sums |= need.groups;
                plan.sum_members = plan.sum_members.union(need.members);
            }
        }
        if plan.has_text() {
            plan.members = plan.members.union(Members::of(Groups::BASE, &["start_time_ns"]));
        }
        if plan.has_delta {
            let used = Members::of(Groups::STAT, &["utime_ns", "stime_ns", "majflt", "minflt"]);
            plan.members = plan.members.union(used);
            plan.sum_members = plan.sum_members.union(used);
        }
        plan
    }

    /// Are there texts that are the same for all threads of a process?
    fn has_text(&self) -> bool {
        self.groups.intersects(Groups::TEXTS)
    }

    /// The request for all tasks.
    pub fn request(&self, threads: bool) -> Request {
        limited(match threads {
            false => Request::all(self.groups).with_members(self.members),
            true => Request::all_threads(self.groups - Groups::TEXTS).with_members(self.members),
        })
    }

    /// A second request in addition to the one for all threads, for values of processes: texts, and
    /// sums if the real library shows them in the rows of first threads.
    pub fn processes(&self, threads: bool, version: Version) -> Option<Request> {
        let sums = if version.shows_sums_in_first_threads() { self.sums } else { Groups::NONE };
        let texts = self.groups & Groups::TEXTS;
        let wanted = threads && !(sums | texts).is_empty();
        let (mut groups, mut members) = (sums | texts, self.sum_members);
        if self.has_text() {
            groups |= Groups::BASE;
            members = members.union(Members::of(Groups::BASE, &["start_time_ns"]));
        }
        wanted.then(|| limited(Request::all(groups).with_members(members)))
    }
}

/// Limits a request to a part of the processes.
pub fn part(request: Request, part: Processes) -> Request {
    match part.is_all() {
        true => request,
        false => request.with_all_text_bytes(PART_TEXT_BYTES).with_processes(part),
    }
}

/// Adds a limit to everything that a user can make large.
fn limited(request: Request) -> Request {
    request.with_text_bytes(TEXT_BYTES).with_all_text_bytes(ALL_TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(items: &[Item]) -> Plan {
        Plan::new(items.to_vec(), Version::V404)
    }

    #[test]
    fn only_requested_values_are_read() {
        let groups = |items: &[Item]| plan(items).request(false).groups;
        assert_eq!(groups(&[Item::ID_PID, Item::CMD]), Groups::BASE);
        assert_eq!(groups(&[Item::VM_RSS]), Groups::BASE | Groups::STATM);
        assert_eq!(groups(&[Item::EXE]), Groups::BASE);
        assert_eq!(plan(&[Item::EXE, Item::CMD]).old, [Item::EXE]);
    }

    #[test]
    fn effective_ids_are_those_of_the_task_also_where_status_is_not_read() {
        let owner = plan(&[Item::ID_EUID, Item::ID_EUSER, Item::CMD]);
        assert_eq!(
            (owner.old.clone(), owner.request(false).groups),
            (vec![], Groups::BASE | Groups::CRED)
        );
    }

    #[test]
    fn sums_are_asked_for_first_threads_of_4_0_2_only() {
        let with_sums = plan(&[Item::TICS_ALL, Item::ID_RUID]);
        let sums = with_sums.processes(true, Version::V402).expect("they are asked");
        assert_eq!(sums.groups, Groups::STAT);
        assert!(with_sums.processes(false, Version::V402).is_none());
        assert!(with_sums.processes(true, Version::V404).is_none());
        assert!(with_sums.processes(true, Version::V407).is_none());
        assert!(plan(&[Item::ID_RUID]).processes(true, Version::V402).is_none());
    }

    #[test]
    fn texts_are_requested_once_for_each_process() {
        let plan = plan(&[Item::CMDLINE, Item::ENVIRON]);
        assert_eq!(plan.request(true).groups, Groups::BASE);
        let processes = plan.processes(true, Version::V404).expect("they are asked");
        assert_eq!(processes.groups, Groups::TEXTS | Groups::BASE);
        assert_eq!(plan.request(false).groups, Groups::BASE | Groups::TEXTS);
        assert!(plan.processes(false, Version::V404).is_none());
    }

    #[test]
    fn the_name_is_known_if_a_file_with_it_is_read() {
        let without = vec![Item::ID_PID, Item::CMDLINE, Item::ID_EUSER];
        assert!(!plan(&without).has_comm);
        assert!(plan(&[Item::CMDLINE, Item::STATE]).has_comm);
        let has_comm = |version| Plan::new(without.clone(), version).has_comm;
        assert_eq!([Version::V405, Version::V406].map(has_comm), [false, true]);
    }
}
