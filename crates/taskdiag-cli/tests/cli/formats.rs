//! JSON, JSON lines and CSV: valid, lossless, in the library's units.

use super::common::{Saved, Task, machine, parts, run, skip};
use base64::Engine;
use serde_json::{Value, json};

fn document(saved: &Saved, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let (_, out, _) = saved.ps(&all);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

#[test]
fn json_has_units_and_reasons_of_missing_values() {
    let saved = Saved::tasks(&machine());
    let all = document(&saved, &["-o", "pid,user,time,rss,lstart,args,tty,pcpu"]);
    assert_eq!(
        all[0],
        json!({"pid": 1, "user": "root", "time": 61.0, "rss": 1 << 20,
               "lstart": 1_767_168_801.0, "args": ["/bin/init", "-x"], "pcpu": 0.061})
    );
    // Everything about a kernel thread is known, though it has no memory and no arguments.
    assert_eq!((&all[1]["rss"], &all[1]["args"]), (&json!(0), &json!([])));
    assert!(all[1].get("missing").is_none());
    assert_eq!(all[3]["user"], "3999999999");
    assert_eq!(all.as_array().unwrap().len(), 6);
}

#[test]
fn hostile_bytes_are_lossless() {
    let comm = b"a\"\n\x1b\xff\xfe".to_vec();
    let args = b"plain\0\xc3(\0\0tab\t\0".to_vec();
    let task = Task { comm: comm.clone(), args: Some(args), ..Task::new(5, 0, "x") };
    let saved = Saved::tasks(&[task]);
    let all = document(&saved, &["-o", "comm,args"]);
    let bytes =
        |v: &Value| base64::engine::general_purpose::STANDARD.decode(v.as_str().unwrap()).unwrap();
    assert_eq!(bytes(&all[0]["comm_bytes"]), comm);
    assert_eq!(all[0]["comm"], "a\"\n\u{1b}\u{fffd}\u{fffd}");
    let args: Vec<Vec<u8>> = all[0]["args_bytes"].as_array().unwrap().iter().map(bytes).collect();
    assert_eq!(args, [&b"plain"[..], b"\xc3(", b"", b"tab\t"]);
}

#[test]
fn keys_are_the_names_of_fields_or_the_requested_headers() {
    let saved = Saved::tasks(&machine());
    let first = |columns: &str| {
        let (_, out, _) = saved.ps(&["--jsonl", "-o", columns]);
        out.lines().next().unwrap().to_owned()
    };
    assert_eq!(first("%cpu,tname,rssize"), r#"{"pcpu":0.061,"rss":1048576}"#);
    assert_eq!(first("pid=ID,comm=NAME"), r#"{"ID":1,"NAME":"init"}"#);
    let (_, out, _) = saved.ps(&["--csv", "-o", "pid=ID,rssize"]);
    assert_eq!(out.lines().next(), Some("ID,rss"));
    // Views have headers for people, which are no keys.
    let (_, out, _) = saved.ps(&["--jsonl", "-ef"]);
    assert!(out.starts_with(r#"{"user":"root","pid":1,"ppid":0,"#), "{out}");
}

#[test]
fn a_process_is_known_by_its_pid_and_start_ticks() {
    let saved = Saved::tasks(&machine());
    let all = document(&saved, &[]);
    assert_eq!((&all[4]["pid"], &all[4]["start_ticks"]), (&json!(11), &json!(1100)));
    // A living process has the same number from all engines and in all runs, which is the kernel's
    // own.
    let pid = std::process::id().to_string();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().parse().unwrap();
    for engine in ["procfs", "bpf", "auto"] {
        let out = run(&["ps", "--jsonl", "--engine", engine, "-p", &pid, "-o", "start_ticks"]);
        if engine != "bpf" || out.status.success() {
            let text = String::from_utf8(out.stdout).unwrap();
            assert_eq!(text, format!("{{\"start_ticks\":{ticks}}}\n"), "{engine}");
        }
    }
}

#[test]
fn lines_are_objects() {
    let saved = Saved::tasks(&machine());
    let (code, out, _) = saved.ps(&["--jsonl", "-o", "pid,pid,comm"]);
    assert_eq!(code, 0);
    assert_eq!(out.lines().next().unwrap(), r#"{"pid":1,"comm":"init"}"#);
    for line in out.lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap().is_object());
    }
    assert_eq!(out.lines().count(), 6);
}

#[test]
fn an_empty_document_is_valid() {
    let saved = Saved::tasks(&machine());
    let o = saved.command(&["--json", "-p", "999"]).output().unwrap();
    let (code, out, _) = parts(&o);
    assert_eq!(code, 1);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!([]));
}

#[test]
fn csv_is_quoted_and_reads_back() {
    let odd = Task { args: Some(b"a,b\0\"q\"\nz\0".to_vec()), ..Task::new(5, 0, "x") };
    let mut tasks = machine();
    tasks.insert(4, odd);
    let (code, out, _) = Saved::tasks(&tasks).ps(&["--csv", "-o", "pid,rss,time,args"]);
    assert_eq!(code, 0);
    let mut reader = csv::Reader::from_reader(out.as_bytes());
    assert_eq!(reader.headers().unwrap(), vec!["pid", "rss", "time", "args"]);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 7);
    assert_eq!(rows[0], vec!["1", "1048576", "61.0", "/bin/init -x"]);
    assert_eq!(rows[1], vec!["2", "0", "122.0", ""]);
    let five = rows.iter().find(|r| &r[0] == "5").unwrap();
    assert_eq!(&five[3], "a,b \"q\"\\nz");
    assert_eq!(out.lines().count(), 8, "a row is a line: {out}");
}

/// The default build lacks some formats. It refuses them before it reads anything, and says what to
/// do.
#[cfg(not(feature = "arrow"))]
#[test]
fn a_build_without_arrow_refuses_its_formats() {
    for form in [&["--arrow"][..], &["--parquet", "x"]] {
        let (code, out, err) = Saved::tasks(&machine()).ps(form);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains("--features arrow"), "{err}");
    }
}

/// A Parquet file that cannot be made is named, with the words of the system.
#[cfg(feature = "arrow")]
#[test]
fn a_parquet_file_that_cannot_be_made_is_an_error() {
    for (file, why) in [("/proc/nowhere/x", "No such file or directory"), ("/", "Is a directory")] {
        let (code, out, err) = Saved::tasks(&machine()).ps(&["--parquet", file]);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains(&format!("--parquet {file}: {why}")), "{err}");
    }
}

/// Restores the bytes of a cell, as `docs/reference/csv.md` describes.
fn unescaped(cell: &str) -> Vec<u8> {
    let (mut out, mut chars) = (Vec::new(), cell.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.to_string().bytes());
            continue;
        }
        match chars.next().expect("something is escaped") {
            '\\' => out.push(b'\\'),
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            'r' => out.push(b'\r'),
            'x' => {
                let hex: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&hex, 16).expect("a byte"));
            }
            'u' => {
                let hex: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                let c = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                out.extend(c.expect("a character").to_string().bytes());
            }
            c => panic!("\\{c} in {cell}"),
        }
    }
    out
}

/// No form of output makes a terminal do something, and programs can have the bytes back.
#[test]
fn no_value_controls_a_terminal() {
    let names: &[&[u8]] = &[
        b"a\x1b[31m\x07",
        b"\x7f\x08\r\n\t",
        "\u{9b}31m\u{85}\u{202e}\u{2028}\u{e0001}é".as_bytes(),
        b"\x9b31m\xff",
        b"back\\slash\\n\\x1b",
        b",\"';",
    ];
    let task = |(pid, name): (u32, &&[u8])| Task {
        comm: name.to_vec(),
        args: Some([name, &b"\0"[..]].concat()),
        ..Task::new(pid, 0, "x")
    };
    let tasks: Vec<Task> = (1..).zip(names).map(task).collect();
    let saved = Saved::tasks(&tasks);
    for form in [&["--json"][..], &["--jsonl"], &["--csv"], &[], &["--tree"]] {
        let o = saved.command(&[form, &["-o", "comm,args"]].concat()).output().unwrap();
        let text = String::from_utf8(o.stdout).unwrap_or_else(|e| panic!("{form:?}: {e}"));
        let odd = text.chars().find(|c| *c != '\n' && taskdiag::field::is_odd(*c));
        assert_eq!(odd, None, "{form:?}: {text}");
        assert!(!text.is_empty());
    }
    let (_, out, _) = saved.ps(&["--csv", "-o", "comm,args"]);
    let mut reader = csv::Reader::from_reader(out.as_bytes());
    for (row, name) in reader.records().zip(names) {
        let row = row.expect("CSV");
        assert_eq!((unescaped(&row[0]), unescaped(&row[1])), (name.to_vec(), name.to_vec()));
    }
}

const ODD: &[&[u8]] = &[
    b"=1+1",
    b"-bash",
    b"@SUM(1)",
    b"+1",
    b"a;=cmd|' /C calc'!A0",
    b"a;b;-1",
    "\u{ff1d}1".as_bytes(),
    b"\\=1",
    b"\t=1",
    b"\n=1",
    b"a b",
    b" a",
    b"x\x9by",
    "x\u{9b}y".as_bytes(),
    b"\\x41",
    b"\"=1\"",
];

/// A saved answer about tasks with these names. The arguments of each are the name, an empty one,
/// and the name again.
fn odd_machine() -> Saved {
    let task = |(pid, name): (u32, &&[u8])| Task {
        comm: name.to_vec(),
        args: Some([name, &b"\0\0"[..], name, b"\0"].concat()),
        ..Task::new(pid, 0, "x")
    };
    Saved::tasks(&(1..).zip(ODD).map(task).collect::<Vec<_>>())
}

/// No cell starts a formula, even if a semicolon separates cells, and all bytes can be restored.
#[test]
fn csv_has_no_formula_and_loses_nothing() {
    let (_, out, _) = odd_machine().ps(&["--csv", "-o", "comm,args"]);
    let mut rows = 0;
    let mut reader = csv::Reader::from_reader(out.as_bytes());
    for (row, name) in reader.records().zip(ODD) {
        let row = row.expect("CSV");
        for cell in row.iter().flat_map(|cell| cell.split(';')) {
            let first = cell.chars().next();
            assert!(!first.is_some_and(|c| "=+-@\u{ff1d}".contains(c)), "{cell}");
        }
        assert_eq!(unescaped(&row[0]), *name, "{row:?}");
        let args: Vec<Vec<u8>> = row[1].split(' ').map(unescaped).collect();
        assert_eq!(args, [name, &b""[..], name], "{row:?}");
        rows += 1;
    }
    assert_eq!((rows, out.lines().count()), (ODD.len(), ODD.len() + 1), "{out}");
    // Text that the program itself makes is not escaped: numbers below 0, permissions.
    let nice = Saved::tasks(&[Task::new(1, 0, "a")]);
    let (_, out, _) = nice.ps(&["--csv", "-o", "tpgid,comm"]);
    assert_eq!(out.lines().nth(1), Some("-1,a"));
}

/// The program in docs/reference/csv.md does what that page describes.
#[test]
fn the_reader_of_the_page_gives_the_bytes() {
    let page = include_str!("../../../../docs/reference/csv.md");
    let code = page.split("```python\n").nth(1).and_then(|c| c.split("```").next()).expect("code");
    let mut child = match std::process::Command::new("python3")
        .args(["-c", code])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(e) => {
            return skip(
                "formats::the_reader_of_the_page_gives_the_bytes",
                &format!("python3: {e}"),
            );
        }
    };
    let (_, out, _) = odd_machine().ps(&["--csv", "-o", "comm,args"]);
    let mut stdin = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, out.as_bytes()).expect("it reads");
    drop(stdin);
    let read = child.wait_with_output().expect("it ends");
    let read = String::from_utf8(read.stdout).expect("ASCII");
    assert_eq!(read.lines().count(), ODD.len(), "{read}");
    for (line, name) in read.lines().zip(ODD) {
        // Python's form of bytes.
        let quote = if name.contains(&b'\'') { '"' } else { '\'' };
        let mut text = format!("b{quote}");
        for b in *name {
            match b {
                b'\\' => text.push_str("\\\\"),
                b'\n' => text.push_str("\\n"),
                b'\t' => text.push_str("\\t"),
                0x20..=0x7e => text.push(char::from(*b)),
                b => text.push_str(&format!("\\x{b:02x}")),
            }
        }
        text.push(quote);
        assert_eq!(line, format!("{text} [{text}, b'', {text}]"));
    }
}

#[test]
fn fields_and_engines_are_valid_json() {
    let fields: Value = serde_json::from_slice(&run(&["fields", "--json"]).stdout).unwrap();
    let rss = fields.as_array().unwrap().iter().find(|f| f["name"] == "rss").unwrap();
    assert_eq!(rss["unit"], "bytes");
    assert_eq!(rss["groups"], json!(["statm"]));
    let engines: Value = serde_json::from_slice(&run(&["engines", "--json"]).stdout).unwrap();
    let names =
        engines["engines"].as_array().unwrap().iter().map(|e| e["engine"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["kernel", "bpf", "service", "procfs"]);
    assert_eq!(engines["choice"].as_array().unwrap().len(), taskdiag::Group::ALL.len());
}
