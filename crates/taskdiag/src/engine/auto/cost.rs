//! The cost model: facts about machine and request go in, and a plan comes out. It is pure, and it
//! is the only place where engines are compared.
//!
//! All numbers are nanoseconds of CPU time, measured by `bench/` on a virtual machine with 2 CPUs.
//! Only their ratios matter, because a machine that is twice as fast is twice as fast for every
//! engine. The cost of each group is in its row of the registry
//! ([`Price`](taskdiag_wire::properties::Price)); this file has the parts that depend on the
//! request. bpf takes milliseconds to load and next to nothing for each task, while procfs takes
//! microseconds for each task. So the number of tasks decides.

use taskdiag_wire::properties::{FILE, STATUS_FILE};
use taskdiag_wire::{Group, Groups, Strategy};

use crate::engine::EngineId;
use crate::engine::procfs::{SizesFrom, names_locked};
use crate::request::Request;

/// Facts that are known before the request runs.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The approximate number of processes in the request.
    pub processes: u64,
    /// The approximate number of their threads, at least `processes`.
    pub threads: u64,
    /// The approximate number of mappings of the request's process, if it is known to be large.
    pub mappings: Option<u64>,
    /// The groups that this engine can answer here, or `None` if it cannot be used.
    pub kernel: Option<Groups>,
    /// As `kernel`.
    pub bpf: Option<Groups>,
    /// As `kernel`.
    pub procfs: Option<Groups>,
    /// The groups that the service can answer for this request, or `None` if there is no service.
    pub service: Option<Groups>,
    /// Does /proc belong to another pid namespace, so that its process ids are not ours?
    pub foreign_proc: bool,
    /// Groups that /proc denies to the caller, or does not have whole, for at least some tasks.
    pub denied: Groups,
    /// Is the request repeated, so that the BPF program is loaded once for many answers?
    pub is_session: bool,
}

/// One engine's part of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnginePart {
    /// Who answers.
    pub engine: EngineId,
    /// Which groups.
    pub groups: Groups,
    /// Why, for a person.
    pub why: String,
}

/// Which engine answers which groups. Every group of the request is in exactly one part, or in
/// `nobody`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The first part decides which tasks are in the answer. The others add their groups to these
    /// tasks.
    pub parts: Vec<EnginePart>,
    /// Groups that no engine can answer here.
    pub nobody: Groups,
}

/// The cost of loading the program and closing it: maps, relocations, verifier. This number, the
/// next three and `bpf_load_ns` of each group are medians of CPU time over 21 rounds, as ratios to
/// [`FILE`]. The measurements ran `dump --engine bpf` of one process, for each group and some sets
/// of groups by turns, next to `--engine procfs` of the same process and of 500 processes.
const BPF_LOAD: u64 = 1_000_000;
/// The cost of clearing the state of a program that stays loaded, opening its iterator, and closing
/// that.
const BPF_RESTART: u64 = 15_000;
/// The cost of asking the service, on both sides: the connection, the checks of the caller, and the
/// work of the service apart from the walk.
const SERVICE_ASK: u64 = 300_000;
/// The cost of loading the larger program that the rarer groups need.
const BPF_LOAD_LARGE: u64 = 1_400_000;
/// For each memory mapping of a process beyond the usual 40. Measured with 2,000 to 60,000 mappings
/// of one process; both engines take the same time for 19,000.
const BPF_MAPPING: u64 = 90;
const PROC_MAPPING: u64 = 240;
/// For each thread when /proc is listed, because the kernel steps over every thread.
const PROC_LIST_THREAD: u64 = 120;
/// For each thread of a process, because its `stat` is always a sum over the threads. BPF sums only
/// if STAT is requested.
const PROC_SUM_THREAD: u64 = 300;
const BPF_SUM_THREAD: u64 = 200;

fn bpf_load(asked: Groups) -> u64 {
    let program = if asked.intersects(Groups::BPF_RARE) { BPF_LOAD_LARGE } else { BPF_LOAD };
    program + asked.iter().map(|g| g.properties().price.bpf_load_ns).sum::<u64>()
}

/// For groups that BPF does not have, this is the cost of the kernel engine, which walks over the
/// pages as a read of the text in /proc does.
fn bpf_task(g: Group) -> u64 {
    g.properties().price.bpf_ns
}

/// The cost of reading `statm`, for which the kernel collects less than for other files. Measured
/// as [`STATUS_FILE`].
const PROC_STATM: u64 = 3_200;

/// CPU time of procfs for one group of one task. The measurement ran `dump --engine procfs` for one
/// group of 2,000 processes with 28 mappings or 7 files each; the numbers are medians of 17
/// interleaved rounds. The machine was busy, so these are ratios to BASE, which was measured on a
/// quiet one. To find the dependence on mappings and resident pages, `maps`, `smaps` and
/// `smaps_rollup` of programs with 250 to 10,000 pages were read next to `stat`: VMA_STAT takes 1.9
/// µs for each mapping and 0.09 µs for each page.
fn procfs_task(g: Group, req: &Request) -> u64 {
    let asked = req.groups;
    // Of the groups that come from one file, the first requested one reads it.
    let reads = |of_file: Groups| (asked & of_file).iter().next() == Some(g);
    match g {
        // STAT and BASE are in the same file, `stat`; STATM and CRED are both in `status`.
        Group::Stat => {
            let stat = if reads(Groups::IN_STAT) { FILE } else { 0 };
            // FD_COUNT alone does not cause a read of `status`.
            let others = Groups::IN_STATUS - Groups::FD_COUNT;
            let reads_status = names_locked(asked, req.members) && !asked.intersects(others);
            stat + if reads_status { STATUS_FILE } else { 0 }
        }
        Group::Statm if asked.has(Group::Cred) => 0,
        Group::Statm => match SizesFrom::of(asked, req.members) {
            SizesFrom::Stat => 0,
            SizesFrom::Statm => PROC_STATM,
            SizesFrom::Status => STATUS_FILE,
        },
        // LAYOUT is in `stat`, too.
        Group::Layout if asked.has(Group::Base) || asked.has(Group::Stat) => 0,
        Group::Signals | Group::Swap if asked.has(Group::Cred) || asked.has(Group::Statm) => 0,
        Group::Swap if asked.has(Group::Signals) => 0,
        Group::Vma if asked.has(Group::VmaStat) => 0,
        _ if Groups::IN_STAT.has(g) && !reads(Groups::IN_STAT) => 0,
        // For about 40 mappings, 1,000 resident pages and 6 files.
        _ => g.properties().price.procfs_ns,
    }
}

/// The least number of kernel threads on a machine. They have no memory and no files.
const KERNEL_THREADS: u64 = 60;
/// How much less procfs takes because some tasks are kernel threads.
fn kernel_threads(req: &Request, answer: u64) -> u64 {
    let some = match req.strategy {
        Strategy::All | Strategy::AllThread => KERNEL_THREADS.min(answer),
        _ => 0,
    };
    let less = |g| procfs_task(g, req).saturating_sub(FILE);
    // These groups are empty, or nearly so, for a kernel thread.
    let of_users = Groups::SHARED | Groups::TEXTS;
    some * (req.groups & of_users).iter().map(less).sum::<u64>()
}

/// The number of tasks that an engine must visit, and the number in the answer.
fn work(req: &Request, f: &Facts) -> (u64, u64) {
    match req.strategy {
        Strategy::All => (f.processes, f.processes),
        Strategy::AllThread => (f.threads, f.threads),
        Strategy::One => (1, 1),
        Strategy::Children => (f.processes, (f.processes / 16).max(1)),
        Strategy::Thread => (1, f.threads),
    }
}

/// The cost of a process's mappings beyond the usual number, if they are listed. Sums over their
/// pages are not counted, because they always come from procfs.
fn more_mappings(req: &Request, f: &Facts, each: u64) -> u64 {
    match f.mappings {
        Some(n) if req.groups.has(Group::Vma) => n.saturating_sub(40) * each,
        _ => 0,
    }
}

/// From this number on, the mappings of one process are read faster through BPF. `None` if their
/// number does not matter for this request.
pub fn many_mappings(req: &Request) -> Option<u64> {
    let one = matches!(req.strategy, Strategy::One | Strategy::Thread);
    if !one || !req.groups.has(Group::Vma) || req.groups.has(Group::VmaStat) {
        return None;
    }
    // The other groups of one process are then read through /proc, see `aside`.
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
        EngineId::Service => {
            // The walk, a copy without private values, and a copy here.
            let sum = match req.groups.has(Group::Stat) {
                true => f.threads * BPF_SUM_THREAD,
                false => 0,
            };
            let each = 300 + groups().map(bpf_task).sum::<u64>();
            SERVICE_ASK + look * 150 + answer * each + sum
        }
        EngineId::Procfs => {
            let each = groups().map(|g| procfs_task(g, req)).sum::<u64>();
            // CHILDREN reads the parent's pid of every process.
            let find = match req.strategy {
                Strategy::Children => look * FILE,
                Strategy::All if req.groups.has(Group::Base) || req.groups.has(Group::Stat) => {
                    f.threads * (PROC_LIST_THREAD + PROC_SUM_THREAD)
                }
                Strategy::All => f.threads * PROC_LIST_THREAD,
                _ => 0,
            };
            // SCHED and DELAYS of a process are sums over its threads.
            let sums = (req.groups & (Groups::SCHED | Groups::DELAYS)).iter();
            let threads = match req.strategy {
                Strategy::All => {
                    let more = f.threads - f.processes.min(f.threads);
                    more * sums.map(|g| procfs_task(g, req)).sum::<u64>()
                }
                _ => 0,
            };
            find + threads + answer * (1_000 + each) + more_mappings(req, f, PROC_MAPPING)
                - kernel_threads(req, answer)
        }
    }
}

/// Estimated CPU time of the cheapest engine for a request in ns. `None` if no engine has any of
/// its groups.
#[cfg(feature = "view")]
pub fn cheapest(req: &Request, f: &Facts) -> Option<u64> {
    let has = |groups: Option<Groups>| groups.is_some_and(|g| g.intersects(req.groups));
    let engines = [
        (EngineId::Kernel, f.kernel),
        (EngineId::Bpf, f.bpf),
        (EngineId::Service, f.service),
        (EngineId::Procfs, f.procfs),
    ];
    engines
        .into_iter()
        .filter(|(_, groups)| has(*groups))
        .map(|(engine, _)| estimate(engine, req, f))
        .min()
}

/// Decide which engines answer. It never chooses an engine whose estimate is higher than that of
/// procfs, except for groups that /proc denies.
pub fn decide(req: &Request, f: &Facts) -> Split {
    let plain = without_service(req, f);
    with_service(req, f, &plain).unwrap_or(plain)
}

/// The plan in which the service answers the groups that it may show, and other engines answer the
/// rest, if it costs less than `plain`.
fn with_service(req: &Request, f: &Facts, plain: &Split) -> Option<Split> {
    let groups = f.service? & req.groups;
    if groups.is_empty() {
        return None;
    }
    let of = |engine, groups| estimate(engine, &Request { groups, ..req.clone() }, f);
    let all = |parts: &[EnginePart]| parts.iter().map(|p| of(p.engine, p.groups)).sum::<u64>();
    let rest = req.groups - groups;
    let mut plan = match rest.is_empty() {
        true => Split { parts: Vec::new(), nobody: Groups::NONE },
        false => without_service(&Request { groups: rest, ..req.clone() }, f),
    };
    // An engine that has to walk over all tasks for the rest answers everything.
    let walks = |p: &EnginePart| matches!(p.engine, EngineId::Kernel | EngineId::Bpf);
    if plan.parts.iter().any(walks) && plain.nobody.is_empty() {
        return None;
    }
    let ns = of(EngineId::Service, groups) + all(&plan.parts);
    let others = match plain.parts.is_empty() || !plain.nobody.is_empty() {
        true => None,
        false => Some(all(&plain.parts)),
    };
    if others.is_some_and(|others| others <= ns) {
        return None;
    }
    let against = plain.parts.iter().map(|p| p.engine.name()).collect::<Vec<_>>().join(" and ");
    let why = match others {
        Some(o) => format!("estimate {} against {against} {}", milliseconds(ns), milliseconds(o)),
        None => String::from("no other engine has all of it here"),
    };
    plan.parts.insert(0, EnginePart { engine: EngineId::Service, groups, why });
    Some(plan)
}

fn without_service(req: &Request, f: &Facts) -> Split {
    // BPF does not deny what /proc denies.
    let denied = f.denied & f.bpf.unwrap_or(Groups::NONE);
    let can = |e: EngineId| match e {
        EngineId::Kernel => f.kernel,
        EngineId::Bpf => f.bpf,
        EngineId::Service => None,
        EngineId::Procfs => f.procfs.map(|all| all - denied),
    };
    let mut left = req.groups;
    let mut parts = Vec::new();
    let mut candidates: Vec<(u64, EngineId)> = EngineId::ALL
        .into_iter()
        .filter(|e| can(*e).is_some())
        .map(|e| (estimate(e, req, f), e))
        .collect();
    candidates.sort_by_key(|c| c.0);
    // Engines without any of the groups are left out of the comparison.
    let has_some = |e| req.groups.is_empty() || can(e).is_some_and(|g| g.intersects(req.groups));
    for (i, (ns, engine)) in candidates.iter().enumerate() {
        let mut groups = left & can(*engine).unwrap_or(Groups::NONE);
        // The engine that lists the mappings also reports the mapped files.
        let both = |c: &(u64, EngineId)| can(c.1).is_some_and(|g| g.contains(MAPPED));
        if left.contains(MAPPED) && !groups.contains(MAPPED) && candidates.iter().any(both) {
            groups = groups - MAPPED;
        }
        // A request without any group still has an answer: the pids.
        if groups.is_empty() && !(req.groups.is_empty() && parts.is_empty()) {
            continue;
        }
        let others: Vec<String> = candidates
            .iter()
            .filter(|c| c.1 != *engine && has_some(c.1))
            .map(|c| format!("{} {}", c.1, milliseconds(c.0)))
            .collect();
        let why = if others.is_empty() && f.foreign_proc {
            String::from("/proc belongs to another pid namespace, whose pids BPF does not have")
        } else if others.is_empty() && candidates.len() > 1 {
            String::from("no other engine here has it")
        } else if others.is_empty() {
            String::from("the only engine that works here")
        } else if i == 0 {
            format!("estimate {} against {}", milliseconds(*ns), others.join(", "))
        } else if *engine == EngineId::Bpf && groups.intersects(denied) {
            let is_denied = groups.intersects(denied & Groups::GUARDED);
            String::from(if is_denied { "/proc denies it" } else { "/proc lacks a part of it" })
        } else {
            String::from("the faster engine does not have it")
        };
        parts.push(EnginePart { engine: *engine, groups, why });
        left = left - groups;
    }
    aside(req, f, &mut parts);
    Split { parts, nobody: left }
}

/// Groups that must come from one engine, because [`FILE_STAT`](Groups::FILE_STAT) has an entry for
/// each mapped file that its engine lists. The set is written by hand, because it is about how two
/// groups refer to each other.
const MAPPED: Groups = Groups::VMA.union(Groups::FILE_STAT);

/// If BPF is chosen for a process with many mappings, /proc is faster for its other groups, because
/// the BPF code for them need not be loaded.
fn aside(req: &Request, f: &Facts, parts: &mut Vec<EnginePart>) {
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
        let why = String::from("for one process, faster than loading the code for it");
        parts.push(EnginePart { engine: EngineId::Procfs, groups: rest, why });
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
            service: None,
            foreign_proc: false,
            denied: Groups::NONE,
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
    fn large_machines_are_read_through_bpf() {
        assert_eq!(first(&Request::all(VIEW), &machine(2_000, 2_000)), EngineId::Bpf);
        assert_eq!(first(&Request::all(Groups::BASE), &machine(100, 100_000)), EngineId::Bpf);
        assert_eq!(first(&Request::all_threads(VIEW), &machine(100, 20_000)), EngineId::Bpf);
        assert_eq!(first(&Request::threads(7, VIEW), &machine(1, 100_000)), EngineId::Bpf);
    }

    #[test]
    fn many_mappings_of_a_process_are_read_through_bpf() {
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
        // The mappings are not requested, or the file with the sums has the list, too.
        assert_eq!(many_mappings(&Request::one(7, VIEW)), None);
        assert_eq!(many_mappings(&Request::all(Groups::VMA)), None);
        assert_eq!(many_mappings(&Request::one(7, Groups::VMA | Groups::VMA_STAT)), None);
        let view = Request::one(7, VIEW);
        assert_eq!(first(&view, &facts(Some(1 << 20))), EngineId::Procfs);
    }

    #[test]
    fn mapped_files_come_from_the_engine_that_lists_the_mappings() {
        let all = VIEW | MAPPED;
        let owner =
            |plan: &Split, g| plan.parts.iter().find(|p| p.groups.contains(g)).unwrap().engine;
        let kernel = Facts { kernel: Some(all - Groups::FILE_STAT), ..machine(5_000, 5_000) };
        for bpf in [None, Some(all)] {
            let f = Facts { bpf, procfs: Some(all), ..kernel };
            let plan = decide(&Request::all(all), &f);
            assert_eq!(owner(&plan, Groups::BASE), EngineId::Kernel);
            assert_eq!(owner(&plan, Groups::VMA), owner(&plan, Groups::FILE_STAT), "{plan:?}");
            // Requested alone, each group stays with the fastest engine.
            let plan = decide(&Request::all(Groups::VMA | Groups::BASE), &f);
            assert_eq!(owner(&plan, Groups::VMA), EngineId::Kernel);
            // This engine was not chosen for its estimate.
            let plan = decide(&Request::all(MAPPED), &f);
            assert_eq!(plan.parts[0].why, "the faster engine does not have it", "{plan:?}");
        }
        let many =
            Facts { mappings: Some(1 << 20), bpf: Some(all), procfs: Some(all), ..machine(1, 1) };
        let plan = decide(&Request::one(7, MAPPED | Groups::BASE), &many);
        assert_eq!(plan.parts.len(), 2);
        assert_eq!(owner(&plan, MAPPED), EngineId::Bpf);
        // If no engine has both, each answers what it can.
        let f = Facts { bpf: None, procfs: Some(VIEW | Groups::FILE_STAT), ..kernel };
        assert_eq!(decide(&Request::all(MAPPED), &f).nobody, Groups::NONE);
    }

    #[test]
    fn engines_without_the_groups_are_not_compared() {
        let f = Facts { bpf: Some(VIEW), procfs: Some(VIEW | Groups::ROLLUP), ..machine(10, 10) };
        let why = |groups| decide(&Request::all(groups), &f).parts.remove(0).why;
        assert_eq!(why(Groups::ROLLUP), "no other engine here has it");
        assert!(why(Groups::BASE).starts_with("estimate "));
    }

    #[test]
    fn groups_denied_by_proc_are_planned_for_bpf() {
        let req = Request::one(7, Groups::BASE | Groups::PATHS | Groups::IO);
        let parts = |f: &Facts| {
            let plan = decide(&req, f);
            assert_eq!(plan.nobody, Groups::NONE);
            plan.parts.into_iter().map(|p| (p.engine, p.groups, p.why)).collect::<Vec<_>>()
        };
        let f = Facts { denied: Groups::PATHS, ..machine(10, 10) };
        let [procfs, bpf] = &parts(&f)[..] else { panic!("two parts") };
        assert_eq!((procfs.0, procfs.1), (EngineId::Procfs, Groups::BASE | Groups::IO));
        assert_eq!(
            (bpf.0, bpf.1, bpf.2.as_str()),
            (EngineId::Bpf, Groups::PATHS, "/proc denies it")
        );
        // If BPF does not have the group, procfs answers: the values of some tasks are better than
        // none.
        for bpf in [None, Some(Groups::BASE)] {
            let all = parts(&Facts { bpf, ..f });
            assert_eq!((all.len(), all[0].0, all[0].1), (1, EngineId::Procfs, req.groups));
        }
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
    fn the_service_answers_public_groups_if_that_is_cheaper() {
        let shown = VIEW;
        let f = |n, bpf| Facts { service: Some(shown), bpf, ..machine(n, n) };
        let owners = |req: &Request, f: &Facts| -> Vec<_> {
            decide(req, f).parts.iter().map(|p| (p.engine, p.groups)).collect()
        };
        let view = Request::all(VIEW);
        for n in [200, 2_000, 50_000] {
            assert_eq!(owners(&view, &f(n, None)), [(EngineId::Service, VIEW)], "{n}");
        }
        assert_eq!(owners(&view, &f(3, None)), [(EngineId::Procfs, VIEW)]);
        // A program that is loaded already is cheaper.
        let kept = Facts { is_session: true, ..f(200, Some(VIEW)) };
        assert_eq!(owners(&view, &kept), [(EngineId::Bpf, VIEW)]);
        // Private groups are joined. A caller that has to load a program for them uses it for
        // everything.
        let io = Request::all(VIEW | Groups::IO);
        let joined = [(EngineId::Service, VIEW), (EngineId::Procfs, Groups::IO)];
        assert_eq!(owners(&io, &f(5_000, None)), joined);
        let bpf = Some(VIEW | Groups::IO);
        assert_eq!(owners(&io, &f(5_000, bpf)), [(EngineId::Bpf, VIEW | Groups::IO)]);
    }

    #[test]
    fn groups_without_an_engine_are_reported() {
        let plan = decide(&Request::all(Groups::BASE | Groups::VMA), &machine(10, 10));
        assert_eq!(plan.nobody, Groups::VMA);
        let nothing = Facts { bpf: None, procfs: None, ..machine(10, 10) };
        assert!(decide(&Request::all(VIEW), &nothing).parts.is_empty());
    }

    #[test]
    fn a_request_without_groups_has_an_engine() {
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
