//! The cost model: facts about machine and request in, a plan out. Pure, and the only place where
//! engines are weighed against each other.
//!
//! All numbers are nanoseconds of CPU time, measured by `bench/` on a 2-CPU virtual machine. Only
//! their ratios matter: a machine twice as fast is so on both sides. bpf costs milliseconds to
//! load and next to nothing a task; procfs costs microseconds a task. So the question is how many
//! tasks there are.

use taskdiag_wire::{Group, Groups, Strategy};

use crate::engine::EngineId;
use crate::request::Request;

/// What is known before the request runs.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Processes on the machine, about.
    pub processes: u64,
    /// Threads on the machine, about; at least `processes`.
    pub threads: u64,
    /// Memory mappings of the process asked about, about, where these are known to be many.
    pub mappings: Option<u64>,
    /// Groups that each engine can answer here; `None`: it cannot be used.
    pub kernel: Option<Groups>,
    /// As `kernel`.
    pub bpf: Option<Groups>,
    /// As `kernel`.
    pub procfs: Option<Groups>,
    /// Is /proc of another pid namespace, so that process ids are, too?
    pub foreign_proc: bool,
    /// Is the same asked again and again, so that the load of the BPF program is paid once for many answers?
    pub is_session: bool,
}

/// One engine's part of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who answers.
    pub engine: EngineId,
    /// Which groups.
    pub groups: Groups,
    /// Why, for a person.
    pub why: String,
}

/// Who answers what. Every asked group is in exactly one part, or in `nobody`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first part's tasks are the answer's tasks; the others add their groups to them.
    pub parts: Vec<Part>,
    /// Groups that no engine here can answer.
    pub nobody: Groups,
}

/// Loading the program and closing it: maps, relocations, verifier. This and the next six measured:
/// `dump --engine bpf` of one process, each group and some sets of them by turns, beside `--engine procfs`
/// of the same and of 500 processes; CPU time, 21 rounds, medians, as ratios to [`PROC_FILE`].
const BPF_LOAD: u64 = 1_000_000;
/// Clearing the state of a program that stays loaded, opening its iterator, and closing that.
const BPF_RESTART: u64 = 15_000;
/// The same for the larger program that the rarer groups need.
const BPF_LOAD_LARGE: u64 = 1_400_000;
/// Checking the code of one group.
const BPF_LOAD_GROUP: u64 = 400_000;
/// The same where it follows strings or the tree of cgroups; mappings; files.
const BPF_LOAD_TEXT: u64 = 1_000_000;
const BPF_LOAD_VMA: u64 = 2_000_000;
const BPF_LOAD_FD: u64 = 3_000_000;
/// A memory mapping of a process with more than the usual 40. Measured: 2,000 to 60,000 of one
/// process; both ways take as long for 19,000.
const BPF_MAPPING: u64 = 90;
const PROC_MAPPING: u64 = 240;
/// Opening, reading and closing one file of /proc.
const PROC_FILE: u64 = 4_500;
/// A listing of /proc steps over every thread.
const PROC_LIST_THREAD: u64 = 120;
/// A process's `stat` is the sum over its threads, whatever of it is asked for. In BPF too where
/// STAT is asked for.
const PROC_SUM_THREAD: u64 = 300;
const BPF_SUM_THREAD: u64 = 200;

fn bpf_load(asked: Groups) -> u64 {
    let large = asked.intersects(Groups::PATHS | Groups::NS | Groups::CGROUP);
    let program = if large { BPF_LOAD_LARGE } else { BPF_LOAD };
    let group = |g| match g {
        Group::Vma => BPF_LOAD_VMA,
        Group::Fd => BPF_LOAD_FD,
        Group::Cmdline | Group::Environ | Group::Paths | Group::Cgroup => BPF_LOAD_TEXT,
        _ => BPF_LOAD_GROUP,
    };
    program + asked.iter().map(group).sum::<u64>()
}

fn bpf_task(g: Group) -> u64 {
    match g {
        Group::Cmdline | Group::Paths => 1_500,
        Group::Cgroup => 4_000,
        Group::Ns | Group::FileStat => 300,
        Group::Environ | Group::Kstack => 1_500,
        Group::Vma => 6_000,
        Group::Fd => 3_000,
        // The kernel's: its walk over the pages, as reading its text of them takes.
        Group::VmaStat => 100_000,
        Group::Rollup => 25_000,
        _ => 100,
    }
}

/// The same for `status`, which the kernel makes of more.
const PROC_STATUS: u64 = 7_000;

/// Measured: `dump --engine procfs` of one group of 2,000 processes, with 28 mappings or with 7 files
/// each, and the CPU time of it; groups alternately, 17 rounds, medians, on a busy machine and
/// therefore as a ratio to BASE, which a quiet one gave. For mappings and resident pages in other
/// numbers, reading `maps`, `smaps` and `smaps_rollup` of programs of 250 to 10,000 pages beside
/// `stat` of the same: VMA_STAT is 1.9 µs a mapping and 0.09 µs a page.
fn procfs_task(g: Group, asked: Groups) -> u64 {
    match g {
        // both are in `stat`, and both in `status`
        Group::Stat if asked.has(Group::Base) => 0,
        Group::Statm if asked.has(Group::Cred) => 0,
        Group::Signals | Group::Swap if asked.has(Group::Cred) || asked.has(Group::Statm) => 0,
        Group::Swap if asked.has(Group::Signals) => 0,
        Group::Vma if asked.has(Group::VmaStat) => 0,
        Group::Cred | Group::Statm | Group::Signals | Group::Swap => PROC_STATUS,
        Group::FdCount => 1_800,
        // of some 40 mappings, of some 1,000 resident pages, of some 6 files
        Group::Vma => 25_000,
        Group::VmaStat => 165_000,
        Group::Rollup => 32_000,
        Group::Fd => 33_000,
        Group::Environ => 5_800,
        Group::Limits => 5_500,
        Group::Kstack => 5_300,
        Group::Wchan => 3_700,
        Group::FileStat => 4_300,
        Group::Paths => 4_200,
        Group::Io => 3_300,
        Group::Sched | Group::Oom | Group::Login => PROC_FILE * 2,
        Group::Ns => PROC_FILE * 4,
        _ => PROC_FILE,
    }
}

/// What a machine has of tasks without memory and files at the least: kernel threads.
const KERNEL_THREADS: u64 = 60;
/// The groups that such a task has nothing of, or next to nothing.
const OF_USERS: Groups = Groups::VMA
    .union(Groups::VMA_STAT)
    .union(Groups::ROLLUP)
    .union(Groups::FD)
    .union(Groups::ENVIRON);

/// What procfs pays less for kernel threads than for other tasks.
fn kernel_threads(req: &Request, answer: u64) -> u64 {
    let some = match req.strategy {
        Strategy::All | Strategy::AllThread => KERNEL_THREADS.min(answer),
        _ => 0,
    };
    let less = |g| procfs_task(g, req.groups).saturating_sub(PROC_FILE);
    some * (req.groups & OF_USERS).iter().map(less).sum::<u64>()
}

/// Tasks that an engine must look at, and tasks in the answer.
fn work(req: &Request, f: &Facts) -> (u64, u64) {
    match req.strategy {
        Strategy::All => (f.processes, f.processes),
        Strategy::AllThread => (f.threads, f.threads),
        Strategy::One => (1, 1),
        Strategy::Children => (f.processes, (f.processes / 16).max(1)),
        // One process may have all threads of the machine, but not those of the others.
        Strategy::Thread => (1, f.threads.saturating_sub(f.processes) / 4 + 1),
    }
}

/// More mappings than a process is thought to have: what those that are listed cost beyond the
/// usual. Sums over their pages come from procfs in any case.
fn more_mappings(req: &Request, f: &Facts, each: u64) -> u64 {
    match f.mappings {
        Some(n) if req.groups.has(Group::Vma) => n.saturating_sub(40) * each,
        _ => 0,
    }
}

/// So many mappings of one process are read through BPF in less time; `None`: it does not matter
/// how many there are.
pub fn many_mappings(req: &Request) -> Option<u64> {
    let one = matches!(req.strategy, Strategy::One | Strategy::Thread);
    if !one || !req.groups.has(Group::Vma) || req.groups.has(Group::VmaStat) {
        return None;
    }
    // Other groups of one process are read through /proc then, see `aside`.
    let load = bpf_load(if req.strategy == Strategy::One { Groups::VMA } else { req.groups });
    Some(load / (PROC_MAPPING - BPF_MAPPING))
}

/// Estimated CPU time of an engine for a request, ns.
pub fn estimate(engine: EngineId, req: &Request, f: &Facts) -> u64 {
    let (look, answer) = work(req, f);
    let groups = || req.groups.iter();
    match engine {
        EngineId::Kernel => 50_000 + look * 50 + answer * groups().map(bpf_task).sum::<u64>(),
        EngineId::Bpf => {
            let begin = if f.is_session { BPF_RESTART } else { bpf_load(req.groups) };
            begin
                + look * 150
                + answer * (100 + groups().map(bpf_task).sum::<u64>())
                + more_mappings(req, f, BPF_MAPPING)
                + match req.strategy {
                    Strategy::All if req.groups.has(Group::Stat) => f.threads * BPF_SUM_THREAD,
                    _ => 0,
                }
        }
        EngineId::Procfs => {
            let each = groups().map(|g| procfs_task(g, req.groups)).sum::<u64>();
            // CHILDREN reads every parent's pid.
            let find = match req.strategy {
                Strategy::Children => look * PROC_FILE,
                Strategy::All if req.groups.has(Group::Base) || req.groups.has(Group::Stat) => {
                    f.threads * (PROC_LIST_THREAD + PROC_SUM_THREAD)
                }
                Strategy::All => f.threads * PROC_LIST_THREAD,
                _ => 0,
            };
            // SCHED of a process is the sum over its threads' files.
            let threads = match req.strategy {
                Strategy::All if req.groups.has(Group::Sched) => {
                    (f.threads - f.processes.min(f.threads)) * procfs_task(Group::Sched, req.groups)
                }
                _ => 0,
            };
            find + threads + answer * (1_000 + each) + more_mappings(req, f, PROC_MAPPING)
                - kernel_threads(req, answer)
        }
    }
}

/// Estimated CPU time of the engine that is the cheapest for a request, ns; `None`: no engine has any of its
/// groups.
#[cfg(feature = "view")]
pub fn cheapest(req: &Request, f: &Facts) -> Option<u64> {
    let has = |groups: Option<Groups>| groups.is_some_and(|g| g.intersects(req.groups));
    [(EngineId::Kernel, f.kernel), (EngineId::Bpf, f.bpf), (EngineId::Procfs, f.procfs)]
        .into_iter()
        .filter(|(_, groups)| has(*groups))
        .map(|(engine, _)| estimate(engine, req, f))
        .min()
}

/// Who should answer. Never an engine that is dearer than procfs by the estimate.
pub fn decide(req: &Request, f: &Facts) -> Plan {
    let can = |e: EngineId| match e {
        EngineId::Kernel => f.kernel,
        EngineId::Bpf => f.bpf,
        EngineId::Procfs => f.procfs,
    };
    let mut left = req.groups;
    let mut parts = Vec::new();
    let mut candidates: Vec<(u64, EngineId)> = EngineId::ALL
        .into_iter()
        .filter(|e| can(*e).is_some())
        .map(|e| (estimate(e, req, f), e))
        .collect();
    candidates.sort_by_key(|c| c.0);
    for (i, (ns, engine)) in candidates.iter().enumerate() {
        let mut groups = left & can(*engine).unwrap_or(Groups::NONE);
        // Mapped files are told of by who lists the mappings.
        let both = |c: &(u64, EngineId)| can(c.1).is_some_and(|g| g.contains(MAPPED));
        if left.contains(MAPPED) && !groups.contains(MAPPED) && candidates.iter().any(both) {
            groups = groups - MAPPED;
        }
        // A request for no group at all still has an answer: the pids.
        if groups.is_empty() && !(req.groups.is_empty() && parts.is_empty()) {
            continue;
        }
        let others: Vec<String> = candidates
            .iter()
            .filter(|c| c.1 != *engine)
            .map(|c| format!("{} {}", c.1, milliseconds(c.0)))
            .collect();
        let why = if others.is_empty() && f.foreign_proc {
            String::from("/proc is of another pid namespace, whose numbers BPF does not have")
        } else if others.is_empty() {
            String::from("the only engine that works here")
        } else if i == 0 {
            format!("estimate {} against {}", milliseconds(*ns), others.join(", "))
        } else {
            String::from("the faster engine does not have it")
        };
        parts.push(Part { engine: *engine, groups, why });
        left = left - groups;
    }
    aside(req, f, &mut parts);
    Plan { parts, nobody: left }
}

/// [`FILE_STAT`](Groups::FILE_STAT) has an entry for each mapped file that its engine lists.
const MAPPED: Groups = Groups::VMA.union(Groups::FILE_STAT);

/// Where BPF is chosen for the many mappings of one process, what else is asked of that is read in less
/// time through /proc than the code for it is loaded in.
fn aside(req: &Request, f: &Facts, parts: &mut Vec<Part>) {
    let (Some(_), Some(procfs), [part]) = (f.mappings, f.procfs, &mut parts[..]) else { return };
    let mapped = part.groups & MAPPED;
    let rest = part.groups - MAPPED;
    if req.strategy != Strategy::One
        || part.engine != EngineId::Bpf
        || !part.groups.contains(Groups::VMA)
        || rest.is_empty()
        || !procfs.contains(rest)
    {
        return;
    }
    let of = |engine, groups| estimate(engine, &Request { groups, ..req.clone() }, f);
    let both = of(EngineId::Bpf, mapped) + of(EngineId::Procfs, rest);
    if both < of(EngineId::Bpf, part.groups) {
        part.groups = mapped;
        let why = String::from("for one process faster than loading the code for it");
        parts.push(Part { engine: EngineId::Procfs, groups: rest, why });
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: Groups = Groups::BASE
        .union(Groups::CRED)
        .union(Groups::STAT)
        .union(Groups::STATM)
        .union(Groups::CMDLINE);

    fn machine(processes: u64, threads: u64) -> Facts {
        let all = Some(VIEW.union(Groups::IO).union(Groups::SCHED).union(Groups::PATHS));
        Facts {
            processes,
            threads,
            mappings: None,
            kernel: None,
            bpf: all,
            procfs: all,
            foreign_proc: false,
            is_session: false,
        }
    }
    fn first(req: &Request, f: &Facts) -> EngineId {
        decide(req, f).parts[0].engine
    }

    #[test]
    fn small_machines_are_read_through_procfs() {
        assert_eq!(first(&Request::all(VIEW), &machine(100, 150)), EngineId::Procfs);
        assert_eq!(first(&Request::one(1, VIEW), &machine(50_000, 90_000)), EngineId::Procfs);
    }

    #[test]
    fn large_machines_through_bpf() {
        assert_eq!(first(&Request::all(VIEW), &machine(2_000, 2_000)), EngineId::Bpf);
        assert_eq!(first(&Request::all(Groups::BASE), &machine(100, 100_000)), EngineId::Bpf);
        assert_eq!(first(&Request::all_threads(VIEW), &machine(100, 20_000)), EngineId::Bpf);
        assert_eq!(first(&Request::threads(7, VIEW), &machine(100, 100_000)), EngineId::Bpf);
    }

    #[test]
    fn a_process_with_many_mappings_through_bpf() {
        let all = Some(VIEW | Groups::VMA | Groups::VMA_STAT);
        let facts = |mappings| Facts { mappings, bpf: all, procfs: all, ..machine(1, 1) };
        for groups in [Groups::VMA, Groups::VMA | Groups::BASE | Groups::CMDLINE] {
            let req = Request::one(7, groups);
            let many = many_mappings(&req).unwrap();
            assert_eq!(first(&req, &facts(None)), EngineId::Procfs);
            assert_eq!(first(&req, &facts(Some(many / 2))), EngineId::Procfs);
            let parts = decide(&req, &facts(Some(many * 2))).parts;
            let owners: Vec<_> = parts.iter().map(|p| (p.engine, p.groups)).collect();
            let rest = groups - Groups::VMA;
            let of_rest = (EngineId::Procfs, rest);
            let wanted: Vec<_> = [(EngineId::Bpf, Groups::VMA)]
                .into_iter()
                .chain((!rest.is_empty()).then_some(of_rest))
                .collect();
            assert_eq!(owners, wanted);
            let no_procfs = Facts { procfs: None, ..facts(Some(many * 2)) };
            assert_eq!(decide(&req, &no_procfs).parts.len(), 1);
        }
        // Nobody asks, or the text that has the sums has the list, too.
        assert_eq!(many_mappings(&Request::one(7, VIEW)), None);
        assert_eq!(many_mappings(&Request::all(Groups::VMA)), None);
        assert_eq!(many_mappings(&Request::one(7, Groups::VMA | Groups::VMA_STAT)), None);
        let view = Request::one(7, VIEW);
        assert_eq!(first(&view, &facts(Some(1 << 20))), EngineId::Procfs);
    }

    #[test]
    fn mapped_files_are_told_of_by_who_lists_the_mappings() {
        let all = VIEW | MAPPED;
        let owner =
            |plan: &Plan, g| plan.parts.iter().find(|p| p.groups.contains(g)).unwrap().engine;
        let kernel = Facts { kernel: Some(all - Groups::FILE_STAT), ..machine(5_000, 5_000) };
        for bpf in [None, Some(all)] {
            let f = Facts { bpf, procfs: Some(all), ..kernel };
            let plan = decide(&Request::all(all), &f);
            assert_eq!(owner(&plan, Groups::BASE), EngineId::Kernel);
            assert_eq!(owner(&plan, Groups::VMA), owner(&plan, Groups::FILE_STAT), "{plan:?}");
            // Each by itself stays with the fastest.
            let plan = decide(&Request::all(Groups::VMA | Groups::BASE), &f);
            assert_eq!(owner(&plan, Groups::VMA), EngineId::Kernel);
            // It did not win by its estimate.
            let plan = decide(&Request::all(MAPPED), &f);
            assert_eq!(plan.parts[0].why, "the faster engine does not have it", "{plan:?}");
        }
        let many =
            Facts { mappings: Some(1 << 20), bpf: Some(all), procfs: Some(all), ..machine(1, 1) };
        let plan = decide(&Request::one(7, MAPPED | Groups::BASE), &many);
        assert_eq!(plan.parts.len(), 2);
        assert_eq!(owner(&plan, MAPPED), EngineId::Bpf);
        // Where nobody has both, each has what it can.
        let f = Facts { bpf: None, procfs: Some(VIEW | Groups::FILE_STAT), ..kernel };
        assert_eq!(decide(&Request::all(MAPPED), &f).nobody, Groups::NONE);
    }

    #[test]
    fn a_missing_engine_is_never_chosen_and_all_groups_have_an_owner() {
        for strategy in Strategy::ALL {
            for n in [1, 100, 1_000, 100_000] {
                for bpf in [None, Some(Groups::NONE), Some(Groups::BASE), Some(VIEW)] {
                    let f = Facts { bpf, ..machine(n, n * 2) };
                    let req = Request::new(*strategy, 1, VIEW);
                    let plan = decide(&req, &f);
                    let mut seen = Groups::NONE;
                    for p in &plan.parts {
                        assert!(!seen.intersects(p.groups), "{plan:?}");
                        seen |= p.groups;
                        assert!(
                            p.engine != EngineId::Bpf || bpf.is_some_and(|b| b.contains(p.groups))
                        );
                        assert!(p.engine != EngineId::Kernel);
                    }
                    assert_eq!(seen, VIEW);
                    assert_eq!(plan.nobody, Groups::NONE);
                }
            }
        }
    }

    #[test]
    fn what_nobody_has_is_said() {
        let plan = decide(&Request::all(Groups::BASE | Groups::VMA), &machine(10, 10));
        assert_eq!(plan.nobody, Groups::VMA);
        let nothing = Facts { bpf: None, procfs: None, ..machine(10, 10) };
        assert!(decide(&Request::all(VIEW), &nothing).parts.is_empty());
    }

    #[test]
    fn no_groups_is_still_a_question() {
        assert_eq!(decide(&Request::all(Groups::NONE), &machine(10, 10)).parts.len(), 1);
    }

    #[test]
    fn the_choice_is_never_dearer_than_procfs() {
        for n in (0..20).map(|i| 1u64 << i) {
            let f = machine(n, n + n / 2);
            for strategy in Strategy::ALL {
                let req = Request::new(*strategy, 1, VIEW);
                let chosen = estimate(first(&req, &f), &req, &f);
                assert!(chosen <= estimate(EngineId::Procfs, &req, &f));
            }
        }
    }
}
