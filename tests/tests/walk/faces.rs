//! Compares the output of the commands with each engine: the same keys with the same values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde_json::Value;
use taskdiag::{EngineId, Group};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::engines;

/// Columns that are more exact with one engine, or that only one can know.
const NOT: &[&str] = &[
    "time",
    "bsdtime",
    "bsdtime_all",
    "cputimes",
    "usertime",
    "systime",
    "cutime",
    "cstime",
    "pcpu",
    "c",
    "cp",
    "cuu",
    "cuc",
    "etime",
    "etimes",
    "start",
    "lstart",
    "stime",
    "bsdstart",
    "task_flags",
    "securebits",
    "run_time",
    "run_delay",
    "timeslices",
    "kstack",
    "wchan",
    "referenced",
    "vmflags",
    "sigqueued",
];

/// The columns of tasks, maps or files, which the program lists.
fn columns(of: &str) -> String {
    static WITH: OnceLock<BTreeSet<Group>> = OnceLock::new();
    let with = WITH.get_or_init(|| {
        let everywhere = |g: &Group| engines_with(*g).len() == engines().len();
        Group::ALL.iter().copied().filter(everywhere).collect()
    });
    let ran = Sandbox::new().run(&["fields", "--json"]);
    let fields: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran}"));
    // Those of a group that an engine does not have are compared nowhere.
    let everywhere = |g: &Value| {
        let group = g.as_str().and_then(Group::from_name);
        group.is_none_or(|g| with.contains(&g))
    };
    let is_of = |f: &&Value| {
        let groups = f["groups"].as_array().expect("a list");
        let name = f["name"].as_str().expect("a name");
        f["of"] == of && !NOT.contains(&name) && groups.iter().all(everywhere)
    };
    let all: Vec<&str> = fields
        .as_array()
        .expect("a list")
        .iter()
        .filter(is_of)
        .filter_map(|f| f["name"].as_str())
        .collect();
    assert!(!all.is_empty(), "no columns of {of}");
    // Rows of tables with one row for several processes count these processes only.
    all.into_iter()
        .filter(|name| !matches!(*name, "procs" | "lacking" | "maps"))
        .collect::<Vec<_>>()
        .join(",")
}

/// Rows by the values that distinguish them.
pub type Rows = BTreeMap<String, Row>;
/// One of them, by column.
pub type Row = BTreeMap<String, Value>;

/// The rows of one command with one engine.
pub struct Shown {
    pub engine: &'static str,
    pub face: &'static str,
    pub rows: Rows,
}

fn flat(rows: &[Value], into: &mut Rows) {
    for row in rows {
        let row = row.as_object().expect("a row");
        let id: Vec<String> = ["pid", "tid", "task", "address", "fdnum", "fd"]
            .iter()
            .filter_map(|k| row.get(*k))
            .map(Value::to_string)
            .collect();
        let mut key = id.join(" ");
        while into.contains_key(&key) {
            key.push('+');
        }
        into.insert(key, row.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
    }
}

/// The output of a command about these processes.
fn rows(engine: &str, args: &[&str], pids: &str) -> Rows {
    let ran = Sandbox::new().run(&[args, &["--json", "--engine", engine, "-p", pids]].concat());
    let mut all = Rows::new();
    match serde_json::from_str(&ran.stdout) {
        Ok(Value::Array(rows)) => flat(&rows, &mut all),
        // All of them have ended.
        _ if ran.stdout.is_empty() && ran.code == Some(1) => (),
        other => panic!("{other:?} of {ran}"),
    }
    all
}

/// The engines by the names that commands know.
fn names() -> Vec<&'static str> {
    let has = |id: EngineId| engines().iter().any(|s| s.id() == id);
    [(EngineId::Bpf, "bpf"), (EngineId::Procfs, "procfs")]
        .iter()
        .filter(|e| has(e.0))
        .map(|e| e.1)
        .collect()
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The columns that the engine cannot know of this row.
fn unsupported(row: &Row) -> impl Iterator<Item = &String> {
    let missing = row.get("missing").and_then(Value::as_object).into_iter().flatten();
    missing.filter(|(_, why)| *why == "unsupported").map(|(column, _)| column)
}

/// Adds the differences between the engines, and returns the output with each.
pub fn differ(family: &[u32], found: &mut BTreeSet<String>) -> Vec<Shown> {
    let pids = list(family);
    static COLUMNS: OnceLock<[String; 3]> = OnceLock::new();
    let [tasks, maps, files] = COLUMNS.get_or_init(|| ["tasks", "maps", "files"].map(columns));
    let maps = format!("pid,{maps}");
    let files = format!("pid,{files}");
    let faces: [(&'static str, &[&str]); 4] = [
        ("ps", &["ps", "-o", tasks]),
        ("ps --threads", &["ps", "--threads", "-o", tasks]),
        ("maps", &["maps", "-o", &maps]),
        ("files", &["files", "-o", &files]),
    ];
    let mut shown = Vec::new();
    let names = names();
    for (face, args) in faces {
        let [one, other] = names[..] else {
            let rows = rows(names[0], args, &pids);
            shown.push(Shown { engine: names[0], face, rows });
            continue;
        };
        let (a1, b, a2) =
            (rows(other, args, &pids), rows(one, args, &pids), rows(other, args, &pids));
        let keys: BTreeSet<&String> = a1.keys().chain(b.keys()).collect();
        for key in keys.into_iter().filter(|k| a1.contains_key(*k) == a2.contains_key(*k)) {
            let (Some(x1), Some(y), Some(x2)) = (a1.get(key), b.get(key), a2.get(key)) else {
                let who = if b.contains_key(key) { one } else { other };
                found.insert(format!("{face}: {key}: only {who}"));
                continue;
            };
            let columns: BTreeSet<&String> = x1.keys().chain(y.keys()).collect();
            // Values that an engine reports as unknowable are compared by parity, member by member.
            let gaps: BTreeSet<&String> = [x1, y].into_iter().flat_map(unsupported).collect();
            let is_gap = |c: &&String| {
                gaps.contains(*c) || !gaps.is_empty() && matches!(c.as_str(), "missing" | "name")
            };
            let is_other = |c: &&String| x1.get(*c) == x2.get(*c) && x1.get(*c) != y.get(*c);
            for c in columns.into_iter().filter(|c| !is_gap(c)).filter(is_other) {
                let says = |row: &Row| row.get(c).map_or("nothing".into(), Value::to_string);
                found.insert(format!(
                    "{face}: {key}: {c}: {one} {}, {other} {}",
                    says(y),
                    says(x1)
                ));
            }
        }
        shown.push(Shown { engine: one, face, rows: b });
        shown.push(Shown { engine: other, face, rows: a2 });
    }
    shown
}
