//! Are two answers about a task the same? A reading of one engine is compared with two readings of
//! another, before and after, so that what rises may rise.

use std::collections::BTreeSet;

use crate::{Task, Value};

/// Fields that only one engine can tell, and why.
const NOT_EVERYWHERE: &[(&str, &str)] =
    &[("cred.securebits", "not in /proc"), ("stat.flags", "not in /proc/PID/stat")];

/// Fields that only grow.
fn rises(key: &str) -> bool {
    let group = key.split('.').next();
    matches!(group, Some("io"))
        || key.starts_with("sched.") && key != "sched.flags"
        || key.starts_with("statm.peak")
        || key.ends_with("flt")
        || is_time(key) && key.starts_with("stat.")
}

/// Times that /proc has in ticks.
fn is_time(key: &str) -> bool {
    key == "base.start_time_ns" || key.starts_with("stat.") && key.ends_with("_ns")
}

/// As precise as every engine can be: times in ticks of 10 ms. The name of a kworker without the
/// work it does, which is another one at every look.
fn common(key: &str, v: &Value) -> Value {
    match v {
        Value::Bytes(name) if key == "base.comm" && name.starts_with(b"kworker/") => {
            let end = name.iter().position(|b| matches!(b, b'-' | b'+')).unwrap_or(name.len());
            Value::Bytes(name[..end].to_vec())
        }
        Value::Num(n) if is_time(key) => Value::Num(n.div_euclid(10_000_000)),
        v => v.clone(),
    }
}

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Fields that were compared.
    pub compared: usize,
    /// `pid field: what is wrong`.
    pub differences: BTreeSet<String>,
}

impl Outcome {
    /// Add another one.
    pub fn add(&mut self, other: Outcome) {
        self.compared += other.compared;
        self.differences.extend(other.differences);
    }
}

/// Compare `b` with the readings `a1` before and `a2` after it, all of the same task.
///
/// A field that is the same before and after must be that; one that rises must lie between; one
/// that changed otherwise is not compared.
pub fn compare(a1: &Task, b: &Task, a2: &Task) -> Outcome {
    let mut out = Outcome::default();
    let keys: BTreeSet<&String> = a1.fields.keys().chain(b.fields.keys()).collect();
    for key in keys {
        if NOT_EVERYWHERE.iter().any(|n| n.0 == key) || fewer_threads_counted(key, a1, b) {
            continue;
        }
        let get = |t: &Task| t.get(key).map(|v| common(key, v));
        let (before, here, after) = (get(a1), get(b), get(a2));
        let right = match (&before, &here, &after) {
            (Some(Value::Num(lo)), Some(Value::Num(n)), Some(Value::Num(hi))) if rises(key) => {
                lo <= n && n <= hi
            }
            _ if before == after => here == before || is_of_running(key) && has_run(a1, a2),
            _ => continue,
        };
        out.compared += 1;
        if !right {
            out.differences.insert(format!(
                "task {} {key}: {here:?}, elsewhere {before:?} before and {after:?} after",
                b.pid
            ));
        }
    }
    out
}

/// Sums that leave out ended threads say so; they cannot be compared with sums that do not.
fn fewer_threads_counted(key: &str, a: &Task, b: &Task) -> bool {
    key.starts_with("sched.") && a.get("sched.flags") != b.get("sched.flags")
}

/// What changes as a task runs, and may be the same again when it has run.
fn is_of_running(key: &str) -> bool {
    matches!(key, "base.state" | "stat.processor")
}

/// Has it run between two readings? Threads of the kernel that free BPF programs run for a reader,
/// so that every reading by BPF may meet them at work.
fn has_run(a1: &Task, a2: &Task) -> bool {
    ["sched.nvcsw", "sched.nivcsw"].iter().any(|key| a1.get(key) != a2.get(key))
}
