//! Compares the output of the commands: each engine must give the same keys and values, and two
//! commands must show the same values of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::OnceLock;

use serde_json::Value;
use taskdiag::{EngineId, Group};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::engines;

use crate::{Found, How, python};

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
    "kstack",
    "wchan",
    // The answer has the possible error of these times, and tests of waits compare the times within
    // it.
    "last_ran",
    "waited",
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
    // Columns of a group that one engine lacks are not compared.
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
    // Some columns exist only in tables with one row for several processes.
    all.into_iter()
        .filter(|name| !matches!(*name, "procs" | "lacking" | "maps"))
        .collect::<Vec<_>>()
        .join(",")
}

/// How the output of a command is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Json,
    Csv,
    Metrics,
}

/// A command that is compared. In its arguments, PIDS stands for the processes, TASKS, MAPS and
/// FILES for the columns that are compared, and CONFIG for a configuration file.
struct Face {
    name: &'static str,
    args: &'static [&'static str],
    form: Form,
    /// The face that has the same values. It may have more rows, such as those of processes without
    /// memory.
    like: Option<&'static str>,
}

/// Later faces are compared with the first ones.
const FACES: &[Face] = &[
    Face {
        name: "ps",
        args: &["ps", "--json", "-p", "PIDS", "-o", "TASKS"],
        form: Form::Json,
        like: None,
    },
    Face {
        name: "ps --threads",
        args: &["ps", "--threads", "--json", "-p", "PIDS", "-o", "TASKS"],
        form: Form::Json,
        like: None,
    },
    Face {
        name: "maps",
        args: &["maps", "--json", "-p", "PIDS", "-o", "MAPS"],
        form: Form::Json,
        like: None,
    },
    Face {
        name: "files",
        args: &["files", "--json", "-p", "PIDS", "-o", "FILES"],
        form: Form::Json,
        like: None,
    },
    Face {
        name: "ps --csv",
        args: &["ps", "--csv", "-p", "PIDS", "-o", "TASKS"],
        form: Form::Csv,
        like: Some("ps"),
    },
    Face {
        name: "maps --csv",
        args: &["maps", "--csv", "-p", "PIDS", "-o", "MAPS"],
        form: Form::Csv,
        like: Some("maps"),
    },
    Face {
        name: "files --csv",
        args: &["files", "--csv", "-p", "PIDS", "-o", "FILES"],
        form: Form::Csv,
        like: Some("files"),
    },
    Face {
        name: "tree",
        args: &["tree", "--flat", "--json", "--where", "pid in (PIDS)", "-o", "TASKS"],
        form: Form::Json,
        like: Some("ps"),
    },
    Face {
        name: "memory",
        args: &["memory", "--json", "-p", "PIDS", "-o", "TASKS"],
        form: Form::Json,
        like: Some("ps"),
    },
    Face {
        name: "export",
        args: &["export", "--once", "--families", "groups", "--config", "CONFIG"],
        form: Form::Metrics,
        like: Some("ps"),
    },
];

/// Metrics of a group of one process: the name, the further labels, and the column of `ps` with the
/// same value.
const METRICS: &[(&str, &str, &str)] = &[
    ("num_threads", "", "nlwp"),
    ("memory_bytes", ",memtype=\"resident\"", "rss"),
    ("memory_bytes", ",memtype=\"virtual\"", "vsz_bytes"),
    ("memory_bytes", ",memtype=\"swapped\"", "swap"),
    ("open_filedesc", "", "fds"),
    ("major_page_faults_total", "", "majflt"),
    ("minor_page_faults_total", "", "minflt"),
    ("read_bytes_total", "", "read_bytes"),
    ("write_bytes_total", "", "write_bytes"),
    ("context_switches_total", ",ctxswitchtype=\"voluntary\"", "nvcsw"),
    ("context_switches_total", ",ctxswitchtype=\"nonvoluntary\"", "nivcsw"),
];

/// A group for each process, whose name is the pid.
const CONFIG: &str = "process_names:\n- name: '{{.PID}}'\n  cmdline: ['.*']\n";

/// Rows by the key that identifies them.
pub type Rows = BTreeMap<String, Row>;
/// The values of a row, by column.
pub type Row = BTreeMap<String, Value>;

/// The rows of one command with one engine.
pub struct Shown {
    pub engine: &'static str,
    pub face: &'static str,
    pub rows: Rows,
}

/// The process that a row is of, or 0.
pub fn pid_of(row: &Row) -> u32 {
    match row.get("pid") {
        Some(Value::String(cell)) => cell.parse().unwrap_or(0),
        value => value.and_then(Value::as_u64).unwrap_or(0) as u32,
    }
}

/// Adds a row under a key that is the same whatever the form.
pub fn add(row: Row, into: &mut Rows) {
    let mut key = String::new();
    for column in ["pid", "tid", "task", "address", "fdnum", "fd"] {
        match row.get(column) {
            Some(Value::String(text)) if text.is_empty() => (),
            Some(Value::String(text)) => write!(key, "{column} {text} ").expect("a string"),
            None | Some(Value::Null) => (),
            Some(other) => write!(key, "{column} {other} ").expect("a string"),
        }
    }
    while into.contains_key(&key) {
        key.push('+');
    }
    into.insert(key, row);
}

fn from_json(text: &str, not: &[&str], into: &mut Rows) -> Result<(), String> {
    let Value::Array(rows) = serde_json::from_str(text).map_err(|e| e.to_string())? else {
        return Err("no list".into());
    };
    for row in rows {
        let Value::Object(row) = row else { return Err("no row".into()) };
        add(row.into_iter().filter(|(k, _)| !not.contains(&k.as_str())).collect(), into);
    }
    Ok(())
}

/// The cells of each line, in which quotation marks may hold commas.
fn from_csv(text: &str, into: &mut Rows) -> Result<(), String> {
    let cells = |line: &str| {
        let (mut cells, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => {
                    quoted = !quoted;
                    // A doubled mark stands for one mark of the text, and counts here as an end and
                    // a beginning.
                    let last = cells.last_mut().expect("one");
                    last.push('"');
                }
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().expect("one").push(c),
            }
        }
        let bare = |cell: String| match cell.strip_prefix('"').and_then(|c| c.strip_suffix('"')) {
            Some(inside) => inside.replace("\"\"", "\""),
            None => cell,
        };
        cells.into_iter().map(bare).collect::<Vec<_>>()
    };
    let mut lines = text.lines();
    let names = cells(lines.next().ok_or("no header")?);
    for line in lines {
        let all = cells(line);
        if all.len() != names.len() {
            return Err(format!("{} cells of {}: {line}", all.len(), names.len()));
        }
        add(names.iter().cloned().zip(all.into_iter().map(Value::String)).collect(), into);
    }
    Ok(())
}

/// The value that a program reads from a cell (docs/reference/csv.md).
fn unescaped(cell: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = cell.chars();
    let hex = |digits: &str| u32::from_str_radix(digits, 16).expect("hexadecimal digits");
    while let Some(c) = rest.next() {
        let c = match (c, if c == '\\' { rest.next() } else { None }) {
            (_, Some('x')) => {
                bytes.push(hex(&rest.by_ref().take(2).collect::<String>()) as u8);
                continue;
            }
            (_, Some('u')) => {
                let digits: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                char::from_u32(hex(&digits)).expect("a character")
            }
            (_, Some('n')) => '\n',
            (_, Some('t')) => '\t',
            (_, Some('r')) => '\r',
            (_, Some(other)) => other,
            (c, None) => c,
        };
        bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a cell has the same value as JSON.
fn is_cell(cell: &str, json: Option<&Value>) -> bool {
    match json {
        None | Some(Value::Null) => cell.is_empty(),
        Some(Value::String(text)) => unescaped(cell) == *text,
        Some(Value::Array(items)) if items.is_empty() => cell.is_empty(),
        Some(Value::Array(items)) => {
            let parts: Vec<&str> = cell.split(' ').collect();
            parts.len() == items.len() && parts.iter().zip(items).all(|(p, i)| is_cell(p, Some(i)))
        }
        Some(other) => {
            let text = other.to_string();
            // CSV has zeros at the end of fractions, and no exponents.
            let number = |t: &str| t.contains(['.', 'e']).then(|| t.parse::<f64>().ok()).flatten();
            cell == text || number(cell).zip(number(&text)).is_some_and(|(a, b)| a == b)
        }
    }
}

fn from_metrics(text: &str, into: &mut Rows, pids: &[u32]) {
    for pid in pids {
        let mut row = Row::from([("pid".into(), (*pid).into())]);
        for (metric, labels, column) in METRICS {
            let head = format!("namedprocess_namegroup_{metric}{{groupname=\"{pid}\"{labels}}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&head));
            if let Some(n) = value.and_then(|v| v.parse::<u64>().ok()) {
                row.insert((*column).into(), n.into());
            }
        }
        if row.len() > 1 {
            add(row, into);
        }
    }
}

/// The rows of a face about these processes, or `None` if the engine cannot know them.
fn rows(engine: &str, face: &Face, pids: &[u32], found: &mut Found) -> Option<Rows> {
    static COLUMNS: OnceLock<[String; 3]> = OnceLock::new();
    let [tasks, maps, files] = COLUMNS.get_or_init(|| {
        ["tasks", "maps", "files"]
            .map(|of| format!("{}{}", if of == "tasks" { "" } else { "pid," }, columns(of)))
    });
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let config = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(config.path(), CONFIG).expect("it is ours");
    let word = |arg: &&str| match *arg {
        "TASKS" => tasks.clone(),
        "MAPS" => maps.clone(),
        "FILES" => files.clone(),
        "CONFIG" => config.path().to_str().expect("plain").to_owned(),
        other => other.replace("PIDS", &list),
    };
    let args: Vec<String> =
        face.args.iter().map(word).chain(["--engine".into(), engine.into()]).collect();
    let ran = Sandbox::new().run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    if ran.stderr.contains(&format!("the {engine} engine does not provide ")) {
        return None;
    }
    let mut all = Rows::new();
    let read = match face.form {
        // All of them have ended.
        _ if ran.stdout.is_empty() && ran.code == Some(1) => Ok(()),
        // A tree has its threads in the rows.
        Form::Json if face.name == "tree" => {
            from_json(&ran.stdout, &["threads", "depth"], &mut all)
        }
        Form::Json => from_json(&ran.stdout, &[], &mut all),
        Form::Csv => from_csv(&ran.stdout, &mut all),
        Form::Metrics => {
            from_metrics(&ran.stdout, &mut all, pids);
            Ok(())
        }
    };
    if let Err(why) = read {
        found.insert((0, format!("{}: {why} of {ran}", face.name)));
    }
    // A tree has descendants, too.
    all.retain(|_, row| pids.contains(&pid_of(row)));
    Some(all)
}

/// The engines by the names that commands know.
pub fn names() -> Vec<&'static str> {
    let has = |id: EngineId| engines().iter().any(|s| s.id() == id);
    [(EngineId::Bpf, "bpf"), (EngineId::Procfs, "procfs")]
        .iter()
        .filter(|e| has(e.0))
        .map(|e| e.1)
        .collect()
}

/// The columns that the engine cannot know of this row.
fn unsupported(row: &Row) -> impl Iterator<Item = &String> {
    let missing = row.get("missing").and_then(Value::as_object).into_iter().flatten();
    missing.filter(|(_, why)| *why == "unsupported").map(|(column, _)| column)
}

/// Adds the differences between two engines, one of which was asked before and after the other.
fn engines_differ(face: &str, names: [&str; 2], [a1, b, a2]: [&Rows; 3], found: &mut Found) {
    let [one, other] = names;
    let keys: BTreeSet<&String> = a1.keys().chain(b.keys()).collect();
    for key in keys.into_iter().filter(|k| a1.contains_key(*k) == a2.contains_key(*k)) {
        let (Some(x1), Some(y), Some(x2)) = (a1.get(key), b.get(key), a2.get(key)) else {
            let (who, row) =
                if let Some(row) = b.get(key) { (one, row) } else { (other, &a1[key]) };
            found.insert((pid_of(row), format!("{face}: {key}: only {who}")));
            continue;
        };
        let columns: BTreeSet<&String> = x1.keys().chain(y.keys()).collect();
        // Values that an engine reports as unknown are compared by parity, member by member.
        let gaps: BTreeSet<&String> = [x1, y].into_iter().flat_map(unsupported).collect();
        let is_gap = |c: &&String| {
            gaps.contains(*c) || !gaps.is_empty() && matches!(c.as_str(), "missing" | "name")
        };
        let is_other = |c: &&String| x1.get(*c) == x2.get(*c) && x1.get(*c) != y.get(*c);
        for c in columns.into_iter().filter(|c| !is_gap(c)).filter(is_other) {
            let says = |row: &Row| row.get(c).map_or("nothing".into(), Value::to_string);
            let text = format!("{face}: {key}: {c}: {one} {}, {other} {}", says(y), says(x1));
            found.insert((pid_of(y), text));
        }
    }
}

/// Whether two faces mean the same value. Python and the metrics have numbers for some words of
/// JSON.
fn means(form: Form, shown: &Value, like: Option<&Value>) -> bool {
    match (shown, like) {
        (Value::String(cell), like) if form == Form::Csv => is_cell(cell, like),
        (Value::Null, None) => true,
        // A metric is a sum, so it is 0 for a process that cannot have the value.
        (Value::Number(n), None) if form == Form::Metrics => n.as_u64() == Some(0),
        (Value::Number(n), Some(Value::String(text))) => {
            let number =
                if text == "unlimited" { Ok(u64::MAX) } else { u64::from_str_radix(text, 16) };
            n.as_u64().is_some_and(|n| number == Ok(n))
        }
        (shown, like) => Some(shown) == like,
    }
}

/// Adds the differences between a face and the face that it is compared with.
fn faces_differ(of: &Shown, form: Form, like: &Shown, found: &mut Found) {
    let Shown { engine, face, .. } = of;
    for (key, row) in &of.rows {
        // Not all have the ids of threads.
        let pid = format!("pid {} ", pid_of(row));
        let other = like.rows.get(key).or_else(|| {
            let mut same = like.rows.iter().filter(|(k, _)| k.starts_with(&pid));
            same.next().map(|(_, row)| row).filter(|_| same.next().is_none())
        });
        let Some(other) = other else {
            // The process may have ended, or just begun.
            found.insert((pid_of(row), format!("{face} {engine}: {key}: not in {}", like.face)));
            continue;
        };
        let is_compared = |c: &str| c != "missing" && !NOT.contains(&c);
        for (column, shown) in row.iter().filter(|(c, _)| is_compared(c)) {
            if !means(form, shown, other.get(column)) {
                let says = other.get(column).map_or("nothing".into(), Value::to_string);
                found.insert((
                    pid_of(row),
                    format!("{face} {engine}: {key}: {column}: {shown}, {} {says}", like.face),
                ));
            }
        }
    }
    if form == Form::Metrics {
        for row in of.rows.values() {
            let pid = pid_of(row);
            let is_it = |r: &&Row| pid_of(r) == pid;
            let other = like.rows.values().find(is_it);
            for (_, _, column) in METRICS.iter().filter(|m| !row.contains_key(m.2)) {
                let known = other.and_then(|r| r.get(*column)).filter(|v| !v.is_null());
                if let Some(known) = known {
                    let text = format!("{face} {engine}: {pid}: {column}: nothing, ps {known}");
                    found.insert((pid, text));
                }
            }
        }
    }
    if form == Form::Csv {
        for (key, row) in like.rows.iter().filter(|(key, _)| !of.rows.contains_key(*key)) {
            found.insert((pid_of(row), format!("{face} {engine}: {key}: only in {}", like.face)));
        }
    }
}

/// Adds the differences between the engines and between the faces, and returns the rows of each.
pub fn differ(family: &[u32], how: &How, found: &mut Found) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    let names = names();
    let wanted = |face: &Face| {
        let is_like = |f: &Face| f.like == Some(face.name) && how.has_face(f.name);
        how.has_face(face.name)
            || FACES.iter().any(is_like)
            || face.name == "ps" && python::FACES.iter().any(|f| how.has_face(f))
    };
    for face in FACES.iter().filter(|f| wanted(f)) {
        let mut ask = |engine| rows(engine, face, family, found);
        let first: Vec<_> = names.iter().filter_map(|e| Some((*e, ask(e)?))).collect();
        let now = match &first[..] {
            // A face that is compared with another face of the same engine need not be compared
            // between engines.
            [(one, b), (other, a1)] if face.like.is_none() => {
                // Asking one engine twice shows which values have changed meanwhile.
                let again = if a1 == b { None } else { ask(one).zip(ask(other)) };
                let (b, a2) = again.as_ref().map_or((b, a1), |(b, a2)| (b, a2));
                engines_differ(face.name, [one, other], [a1, b, a2], found);
                vec![(*one, b.clone()), (*other, a2.clone())]
            }
            _ => first,
        };
        for (engine, rows) in now {
            let now = Shown { engine, face: face.name, rows };
            let is_like = |s: &&Shown| s.engine == engine && Some(s.face) == face.like;
            if let Some(like) = shown.iter().find(is_like) {
                faces_differ(&now, face.form, like, found);
            }
            shown.push(now);
        }
    }
    if !python::FACES.iter().any(|f| how.has_face(f)) {
        return shown;
    }
    for now in python::shown(family, found) {
        let like = shown.iter().find(|s| s.engine == now.engine && s.face == "ps");
        faces_differ(&now, Form::Json, like.expect("it was asked"), found);
    }
    shown
}
