//! Compares answers about a task. A reading of one engine is compared with two readings of another
//! one, before and after it, so that counters may rise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;

use taskdiag::wire::{FdDetailKind, OwnerHow};
use taskdiag::{Group, Reason, WaitKind};

use crate::answer::is_not_in_proc_tasks;
use crate::rows::{Row, differences};
use crate::{Task, Value};

/// Fields that some engines can never have, and why. They are compared if both engines have them.
/// Any other field that one engine knows and another does not is a difference.
const NOT_EVERYWHERE: &[(&str, &str)] = &[
    ("cred.securebits", "not in /proc"),
    ("stat.flags", "not in /proc/PID/stat"),
    ("ns.pid_for_children", "/proc shows one only once it has had a process"),
    ("ns_id.pid_for_children", "/proc shows one only once it has had a process"),
    ("fd_count.size", "in /proc/PID/status, which is not read for FD_COUNT alone"),
    // tests/settings.rs says where they must be known.
    ("stat.guest_ns", "the kernel series has the header from before these"),
    ("stat.cguest_ns", "the kernel series has the header from before these"),
    // tests/usage.rs says where they must be known.
    ("sched.nvcsw", "/proc has none of threads that have ended"),
    ("sched.nivcsw", "/proc has none of threads that have ended"),
    // tests/waits.rs says where they must be known.
    ("wait.ready_ns", "not in /proc"),
    ("wait.user_fp", "not in /proc"),
    ("wait.user_lr", "not in /proc"),
    ("wait.object", "/proc does not know the locks of the kernel"),
    ("wait.owner_tid", "/proc does not know the locks of the kernel"),
    ("wait.owner_tgid", "not in /proc"),
    ("wait.last_ran_ns", "the kernel notes 0 when it moves a task, and may note another time, too"),
    ("wait.ran_error_ns", "as the time"),
    ("wait.ran_by", "as the time"),
];

/// Members of list entries that some engines cannot have.
fn is_not_everywhere(list: &str, member: &str, entry: &Row) -> bool {
    let is = |key: &str, n: i32| entry.get(key) == Some(&Value::Num(n.into()));
    match (list, member) {
        // The flags come from smaps, which is read for VMA_STAT only.
        ("task_diag_vma", "flags") => true,
        // The kernel lists no sockets of some families. Only the name of their protocol is known.
        ("task_diag_socket", "netns" | "protocol" | "state" | "type")
            if is("family", libc::AF_VSOCK) || is("family", libc::AF_XDP) =>
        {
            true
        }
        ("task_diag_socket", "state") => is("family", libc::AF_PACKET),
        // The sum over a list that may be long, which BPF does not walk.
        ("task_diag_socket", "recv_queue_bytes") => {
            is("family", libc::AF_UNIX) && !is("type", libc::SOCK_DGRAM)
        }
        // /proc/net/raw does not have the interface. It is read if the kernel has no other list of
        // raw sockets.
        ("task_diag_socket", "ifindex") => is("type", libc::SOCK_RAW),
        _ => false,
    }
}

/// Fields that only grow.
fn rises(key: &str) -> bool {
    let group = key.split('.').next();
    matches!(group, Some("io" | "delays"))
        || key.starts_with("sched.") && key != "sched.flags"
        || key.starts_with("statm.peak")
        || key.ends_with("flt")
        || is_time(key) && key.starts_with("stat.")
}

/// Is this a time that /proc has in ticks?
fn is_time(key: &str) -> bool {
    key == "base.start_time_ns" || key.starts_with("stat.") && key.ends_with("_ns")
}

/// The two parts of a task's CPU time. The kernel knows their sum exactly, but splits it by the
/// samples of its timer ticks. While a task runs, the division changes, and time that was in one
/// part may be in the other at the next reading. Only /proc remembers the values that it has shown,
/// and lets no part decrease.
const PARTS: [&str; 2] = ["stat.utime_ns", "stat.stime_ns"];

/// CPU time in ticks, each part rounded down.
fn cpu_ticks(t: &Task) -> Option<i128> {
    let part = |key: &&str| match t.get(key).map(|v| common(key, v)) {
        Some(Value::Num(n)) => Some(n),
        _ => None,
    };
    PARTS.iter().map(part).sum()
}

/// Is this memory that is divided by the number of its users? It is not a whole number of pages,
/// and /proc rounds it down to KiB.
fn is_share(key: &str) -> bool {
    key.contains("pss") || key.ends_with("locked_bytes") && !key.starts_with("statm.")
}

/// By how much a sum over memory may differ, because /proc leaves out what each CPU has not yet
/// added to it (see `sizes.rs` of the procfs engine).
fn held_back(key: &str) -> i128 {
    static MOST: OnceLock<i128> = OnceLock::new();
    if !key.starts_with("statm.") || !key.contains("rss") && key != "statm.swap_bytes" {
        return 0;
    }
    *MOST.get_or_init(|| {
        if !leaves_out_batches() {
            return 0;
        }
        // The batch of percpu_counter_add(), for each CPU and each of the three counters of a sum.
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        (3 * cpus * 32.max(2 * cpus) * page_bytes()) as i128
    })
}

fn page_bytes() -> usize {
    // SAFETY: the call takes no pointer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Does /proc leave out the last changes of such sums? This process then does not grow by the pages
/// that it touches, in no attempt.
fn leaves_out_batches() -> bool {
    const PAGES: usize = 20;
    let page = page_bytes();
    // Before Linux 6.2, BPF leaves them out, too.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is there");
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let is_older = (numbers.next(), numbers.next()) < (Some(6), Some(2));
    let anon_kb = || {
        let status = fs::read_to_string("/proc/self/status").expect("it is there");
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("since 4.5");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
    };
    let grows = |_| {
        let before = anon_kb();
        let mut memory = Vec::<u8>::with_capacity(PAGES * page + (1 << 20));
        for at in 0..PAGES {
            memory.spare_capacity_mut()[at * page].write(1);
        }
        let after = anon_kb();
        std::hint::black_box(&memory);
        after.wrapping_sub(before) == PAGES * page / 1024
    };
    !is_older && !(0..20).any(grows)
}

/// The value with the precision that every engine has: times in ticks of 10 ms, shares of memory in
/// KiB. The name of a kworker loses the work that it does, which is different at each reading.
fn common(key: &str, v: &Value) -> Value {
    match v {
        Value::Bytes(name) if key == "base.comm" && name.starts_with(b"kworker/") => {
            let end = name.iter().position(|b| matches!(b, b'-' | b'+')).unwrap_or(name.len());
            Value::Bytes(name[..end].to_vec())
        }
        // /proc shows neither locks of the kernel nor whether a task has a CPU.
        Value::Num(n) if key == "wait.kind" && is_of_bpf(*n) => Value::Num(-1),
        Value::Num(n) if key == "wait.owner_how" && is_owner_of_bpf(*n) => {
            Value::Num(OwnerHow::NotLookedUp as i128)
        }
        Value::Num(n) if is_time(key) => Value::Num(n.div_euclid(10_000_000)),
        Value::Num(n) if is_share(key) => Value::Num(n.div_euclid(1024)),
        v => v.clone(),
    }
}

/// Is this a kind of wait for which /proc has another one?
fn is_of_bpf(kind: i128) -> bool {
    let known = u32::try_from(kind).ok().and_then(WaitKind::from_number);
    known.is_some_and(|kind| {
        matches!(kind, WaitKind::Runnable | WaitKind::OnCpu | WaitKind::Cpu | WaitKind::Throttled)
            || matches!(
                kind,
                WaitKind::Mutex | WaitKind::RwsemRead | WaitKind::RwsemWrite | WaitKind::Semaphore
            )
            || matches!(kind, WaitKind::RtMutex | WaitKind::Other)
    })
}

/// Each engine finds this time in its own way, and only BPF sees the number of a lock.
/// `tests/waits.rs` compares them.
fn is_of_its_own(key: &str) -> bool {
    matches!(key, "wait.last_ran_ns" | "wait.ran_error_ns" | "wait.ran_by" | "wait.object")
}

/// Is this an owner of a lock that /proc does not show?
fn is_owner_of_bpf(how: i128) -> bool {
    let known = u32::try_from(how).ok().and_then(OwnerHow::from_number);
    let is = |how| matches!(how, OwnerHow::Lock | OwnerHow::None | OwnerHow::Readers);
    known.is_some_and(|how| is(how) || how == OwnerHow::NotKept)
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Fields that were compared.
    pub compared: usize,
    /// `pid field: error`.
    pub differences: BTreeSet<String>,
    /// Groups with a value that was compared.
    pub groups: BTreeSet<Group>,
    /// Tasks that were compared.
    pub tasks: usize,
    /// For each group, the number of tasks for which all engines report it as missing.
    pub missing: BTreeMap<Group, usize>,
}

impl Outcome {
    /// Add another one.
    pub fn add(&mut self, other: Outcome) {
        self.compared += other.compared;
        self.differences.extend(other.differences);
        self.groups.extend(other.groups);
        self.tasks += other.tasks;
        for (group, tasks) in other.missing {
            *self.missing.entry(group).or_default() += tasks;
        }
    }
}

/// Compare `b` with the readings `a1` before and `a2` after it, all of the same task.
///
/// If a field is the same before and after, `b` must have the same value. If it has risen, the
/// value of `b` must lie between. If it has changed otherwise, it is not compared.
pub fn compare(a1: &Task, b: &Task, a2: &Task) -> Outcome {
    let mut out = Outcome { tasks: 1, ..Outcome::default() };
    for group in Group::ALL {
        if a1.missing(group.name()).is_some() && b.missing(group.name()).is_some() {
            out.missing.insert(*group, 1);
        }
    }
    let keys: BTreeSet<&String> = a1.fields.keys().chain(b.fields.keys()).collect();
    // How far a part of the CPU time may lie outside of the readings. It may not if the task did
    // not run.
    let mut apart = 0;
    if let (Some(lo), Some(n), Some(hi)) = (cpu_ticks(a1), cpu_ticks(b), cpu_ticks(a2)) {
        if has_run(a1, a2) || lo != hi {
            apart = hi - lo + 2;
        }
        out.compared += 1;
        // Each part of the sum is rounded.
        if !(lo - 1..=hi + 1).contains(&n) {
            out.differences.insert(format!(
                "task {} CPU time in ticks: {n}, elsewhere {lo} before and {hi} after",
                b.pid
            ));
        }
    }
    for key in keys {
        let one_only = a1.get(key).is_none() || b.get(key).is_none();
        let is_elsewhere = NOT_EVERYWHERE.iter().any(|n| n.0 == key) || is_not_in_proc_tasks(key);
        if one_only && is_elsewhere
            || fewer_threads_counted(key, a1, b)
            || is_unread_text(key, a1, b)
            || is_without_delay(key, a1, b)
            || is_of_its_own(key)
        {
            continue;
        }
        let get = |t: &Task| t.get(key).map(|v| common(key, v));
        let (before, here, after) = (get(a1), get(b), get(a2));
        let right = match (&before, &here, &after) {
            (Some(Value::Num(lo)), Some(Value::Num(n)), Some(Value::Num(hi))) if rises(key) => {
                let apart = if PARTS.contains(&key.as_str()) { apart } else { held_back(key) };
                lo - apart <= *n && *n <= hi + apart
            }
            (Some(Value::Num(lo)), Some(Value::Num(n)), Some(Value::Num(_)))
                if before == after && held_back(key) > 0 =>
            {
                (n - lo).abs() <= held_back(key)
            }
            _ if before == after => here == before || is_of_running(key) && has_run(a1, a2),
            _ => continue,
        };
        out.compared += 1;
        let known = |t: &Task| t.get(key).is_some_and(|v| !matches!(v, Value::Missing(_)));
        if known(a1) && known(b) {
            out.groups.extend(key.split('.').next().and_then(Group::from_name));
        }
        if !right {
            out.differences.insert(format!(
                "task {} {key}: {here:?}, elsewhere {before:?} before and {after:?} after",
                b.pid
            ));
        }
    }
    let lists: BTreeSet<_> = a1.lists.keys().chain(b.lists.keys()).collect();
    for key in lists {
        compare_lists(*key, a1, b, a2, &mut out);
    }
    out
}

/// A list of `b` must have the same entries as before and after it, as far as both know them. A
/// list that has changed between the readings is not compared.
fn compare_lists(key: (Group, &'static str), a1: &Task, b: &Task, a2: &Task, out: &mut Outcome) {
    let get = |t: &Task| t.lists.get(&key).map(|rows| steady(rows));
    let (before, here, after) = (get(a1), get(b), get(a2));
    if before != after {
        return;
    }
    let mut wrong = |what: String| {
        out.differences.insert(format!("task {} {}: {what}", b.pid, key.1));
    };
    let (Some(mut before), Some(mut here)) = (before.clone(), here.clone()) else {
        let has = |rows: &Option<Vec<Row>>| if rows.is_some() { "a list" } else { "no list" };
        return wrong(format!("{}, elsewhere {}", has(&here), has(&before)));
    };
    // Before Linux 5.16, /proc shows nothing of a ring. `mappings_and_files.rs` looks at it.
    let has_ring = |rows: &[Row]| rows.iter().any(|row| is_of(row, FdDetailKind::IoUring));
    if has_ring(&before) != has_ring(&here) {
        before.retain(|row| !is_of(row, FdDetailKind::IoUring));
        here.retain(|row| !is_of(row, FdDetailKind::IoUring));
    }
    if before.len() != here.len() {
        return wrong(format!("{} entries, elsewhere {}", here.len(), before.len()));
    }
    out.compared += 1;
    for (theirs, ours) in before.iter().zip(&here) {
        let both: BTreeSet<_> = theirs.keys().filter(|k| ours.contains_key(*k)).collect();
        if !both.is_empty() {
            out.groups.insert(key.0);
        }
        for what in differences(theirs, ours, &[]) {
            out.differences.insert(format!("task {} {} {what}", b.pid, key.1));
        }
        // A value that only one engine knows is a difference, as it is for a record.
        let alone = theirs.keys().chain(ours.keys()).filter(|k| !both.contains(k));
        for member in alone.filter(|k| !is_not_everywhere(key.1, k, theirs)) {
            out.differences.insert(format!(
                "task {} {} {member}: one does not know it of {theirs:?}",
                b.pid, key.1
            ));
        }
    }
}

/// Prepares the entries of a list for a comparison: removes the values that change by themselves,
/// and rounds the others to the precision that all engines have.
fn steady(rows: &[Row]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    for row in &mut rows {
        // The fourth value is the time until a timer expires, or the memory of a map.
        let changes = is_of(row, FdDetailKind::Timerfd) || is_of(row, FdDetailKind::BpfMap);
        if let Some(Value::Bytes(values)) = row.get_mut("value").filter(|_| changes) {
            values[24..32].fill(0);
        }
        for (key, value) in row.iter_mut() {
            *value = common(key, value);
        }
    }
    rows.sort();
    rows
}

/// Is it an entry of this kind of file?
fn is_of(row: &Row, kind: FdDetailKind) -> bool {
    row.get("kind") == Some(&Value::Num(i128::from(kind as u32)))
}

/// Does only one of the two sums leave out ended threads? Then they cannot be compared.
fn fewer_threads_counted(key: &str, a: &Task, b: &Task) -> bool {
    key.starts_with("sched.") && a.get("sched.flags") != b.get("sched.flags")
}

/// Does only one engine know DELAYS? In netlink, a thread without a delay looks like a thread whose
/// delays are not counted. `tests/delays.rs` compares the engines where both know DELAYS.
fn is_without_delay(key: &str, a: &Task, b: &Task) -> bool {
    let lacks = |t: &Task| t.missing("delays") == Some(Reason::Unsupported);
    key.split('.').next() == Some("delays") && lacks(a) != lacks(b)
}

/// Is this a part of a text that the BPF programs do not find on this processor (see
/// [`crate::Source::finds`])?
fn is_unread_text(key: &str, a: &Task, b: &Task) -> bool {
    let group = key.split('.').next().unwrap_or(key);
    let is_blocked = |t: &Task| t.missing(group) == Some(Reason::Blocked);
    !cfg!(target_arch = "x86_64")
        && matches!(group, "cmdline" | "environ")
        && is_blocked(a) != is_blocked(b)
}

/// Whether this is a field that changes while a task runs, and may have the same value again
/// afterwards.
fn is_of_running(key: &str) -> bool {
    matches!(key, "base.state" | "stat.processor")
}

/// Has the task run between two readings? A reader makes kernel threads free BPF programs, so each
/// answer of BPF may have these threads while they run.
fn has_run(a1: &Task, a2: &Task) -> bool {
    let keys = ["sched.nvcsw", "sched.nivcsw", "sched.run_time_ns", "sched.timeslices"];
    keys.iter().any(|key| a1.get(key) != a2.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task with the two parts of its CPU time, in ticks, and this number of context switches.
    fn task(utime: i128, stime: i128, switches: i128) -> Task {
        let mut t = Task { pid: 7, tgid: 7, ..Task::default() };
        for (key, n) in [
            (PARTS[0], utime * 10_000_000),
            (PARTS[1], stime * 10_000_000),
            ("sched.nvcsw", switches),
        ] {
            t.fields.insert(key.into(), Value::Num(n));
        }
        t
    }
    fn differences(a1: &Task, b: &Task, a2: &Task) -> usize {
        let o = compare(a1, b, a2);
        assert!(o.compared >= 4, "{o:?}");
        o.differences.len()
    }

    #[test]
    fn parts_of_cpu_time_may_shift_if_the_task_ran() {
        let (before, after) = (task(5, 5, 1), task(6, 5, 2));
        assert_eq!(differences(&before, &task(5, 5, 1), &after), 0);
        assert_eq!(differences(&before, &task(4, 7, 1), &after), 0);
        // The parts differ by more than the task can have run.
        assert_eq!(differences(&before, &task(1, 9, 1), &after), 2);
        // The sum is larger or smaller than before and after.
        assert_eq!(differences(&before, &task(6, 8, 1), &after), 1);
        assert_eq!(differences(&before, &task(4, 4, 1), &after), 1);
    }

    #[test]
    fn parts_of_cpu_time_do_not_shift_if_the_task_did_not_run() {
        let t = task(5, 5, 1);
        assert_eq!(differences(&t, &task(5, 5, 1), &t), 0);
        assert_eq!(differences(&t, &task(4, 6, 1), &t), 2);
    }
}
