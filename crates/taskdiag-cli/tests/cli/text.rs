//! The table as text, from saved answers with known content.

use super::common::{Saved, Task, machine, parts, run};

#[test]
fn the_default_view_is_printed_byte_for_byte() {
    let (code, out, err) = Saved::tasks(&machine()).ps(&[]);
    let want = "\
USER       PID  PPID S NLWP     TIME   RSS START COMMAND
root         1     0 S    1 00:01:01  1024  2025 /bin/init -x
root         2     0 S    1 00:02:02     0  2025 [kthreadd]
root         3     2 S    1 00:03:03     0  2025 [kworker/0:0]
3999999+    10     1 S    1 00:10:10 10240  2025 /bin/sh -x
root        11    10 S    1 00:11:11 11264  2025 /bin/sleep -x
root        12    10 Z    1 00:12:12     0  2025 [gone] <defunct>
";
    assert_eq!((code, out.as_str(), err.as_str()), (0, want, ""));
}

#[test]
fn human_sizes_have_units_and_programs_get_bytes() {
    let rss = |args: &[&str]| {
        let (code, out, _) = Saved::tasks(&machine()).ps(&[args, &["--human"]].concat());
        assert_eq!(code, 0);
        let of = |l: &str| l.split_whitespace().nth(1).map(String::from);
        out.lines().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(rss(&["-p", "1,2,10", "-o", "pid,rss"]), ["RSS", "1.0M", "0", "10.0M"]);
    // Programs get bytes in any case.
    let (_, json, _) = Saved::tasks(&machine()).ps(&["-p", "10", "-o", "rss", "--human", "--json"]);
    assert!(json.contains(r#""rss":10485760"#), "{json}");
}

#[test]
fn times_and_dates_are_printed_as_in_procps() {
    let old = Task { cpu_ns: 90_061_000_000_000, start_s: 0, ..Task::new(1, 0, "a") };
    let new = Task { cpu_ns: 59_999_999_999, start_s: 99_995, ..Task::new(2, 0, "b") };
    let saved = Saved::tasks(&[old, new]);
    let columns = "time=,bsdtime=,cputimes=,etime=,etimes=,start=,lstart=,bsdstart=,%cpu=,%mem=";
    let (_, out, _) = saved.ps(&["-o", columns]);
    let words: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(
        words[0].join(" "),
        "1-01:01:01 1501:01 90061 1-03:46:40 100000 Dec 31 \
                                    Wed Dec 31 08:13:20 2025 Dec 31 90.0 0.0"
    );
    assert_eq!(
        words[1].join(" "),
        "00:00:59 0:59 59 00:05 5 11:59:55 \
                                    Thu Jan 1 11:59:55 2026 11:59 999 0.1"
    );
    // %CPU is more than the remaining thread can have used in 5 s, so it is as small as is possible
    // for an answer that took a second.
}

#[test]
fn hostile_bytes_keep_a_line_a_line() {
    let evil = Task {
        comm: b"a\nb\x1b[2J\xff".to_vec(),
        args: Some("x\u{202e}y\0caf\u{e9}\0\t\r\x7f\0\u{9b}31m\0a\\n\0".into()),
        ..Task::new(7, 0, "evil")
    };
    let (_, out, _) = Saved::tasks(&[evil]).ps(&["-o", "comm=,args="]);
    assert_eq!(out, "a\\nb\\x1b[2J\\xff x\\u{202e}y caf\u{e9} \\t\\r\\x7f \\u{9b}31m a\\n\n");
}

#[test]
fn arguments_are_printed_as_in_procps_in_odd_states() {
    let task = |pid, args: &[u8]| Task { args: Some(args.to_vec()), ..Task::new(pid, 0, "c") };
    let title = Task { rewritten: true, ..task(4, b"nginx: worker\0\0\0") };
    let tasks = [task(1, b""), task(2, b"a\0\0b\0\0"), task(3, b"no end"), title];
    let (code, out, _) = Saved::tasks(&tasks).ps(&["-o", "args="]);
    assert_eq!((code, out.as_str()), (0, "[c]\na  b\nno end\nnginx: worker\n"));
}

#[test]
fn headers_and_widths_can_be_chosen() {
    let saved = Saved::tasks(&machine());
    let first = |args: &[&str]| saved.ps(args).1.lines().next().unwrap_or("").to_owned();
    assert_eq!(first(&["-o", "pid=Number,comm"]), "Number COMMAND");
    assert_eq!(first(&["-o", "user:12,pid"]), "USER           PID");
    assert_eq!(first(&["-o", "pid,ppid", "-o", "comm=NAME"]), "  PID  PPID NAME");
    assert_eq!(first(&["-o", "pid= comm="]), "    1 init");
    assert_eq!(first(&["--no-headers", "-o", "pid"]), "    1");
    assert_eq!(first(&["h", "o", "pid"]), "    1");
    assert_eq!(first(&["--no-header", "-q", "1", "-o", "pid"]), "    1");
    // Headers are complete; the last column is cut at the edge.
    let (_, out, _) = saved.ps(&["--cols", "12", "-o", "pid,args"]);
    assert_eq!(out.lines().nth(1), Some("    1 /bin/i"));
}

#[test]
fn a_long_number_moves_the_row_and_long_text_is_cut() {
    let long = Task { uid: 3_999_999_999, ..Task::new(400_000, 1, "x") };
    let saved = Saved::tasks(&[long]);
    // The pid is 1 character too long: the next cell moves, and the one after it is in line again.
    // A name that is cut ends in +.
    let (_, out, _) = saved.ps(&["-o", "user,pid,ppid,comm"]);
    assert_eq!(out, "USER        PID   PPID COMMAND\n3999999+ 400000      1 x\n");
    let (_, out, _) = saved.ps(&["-o", "user:4,pid:3,ppid:3,comm"]);
    assert_eq!(out, "USER PID PPID COMMAND\n399+ 400000 1 x\n");
    let (_, out, _) = saved.ps(&["-o", "args:5,comm"]);
    assert_eq!(out, "COMMAND COMMAND\n/bin/ x\n");
}

#[test]
fn views_have_the_columns_of_procps() {
    let saved = Saved::tasks(&machine());
    let (_, out, _) = saved.ps(&["aux"]);
    let mut lines = out.lines();
    assert_eq!(
        lines.next().unwrap(),
        "USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND"
    );
    assert_eq!(
        lines.next().unwrap(),
        "root         1  0.0  0.0   2048  1024 ?        Ss    2025   1:01 /bin/init -x"
    );
    let (_, out, _) = saved.ps(&["-ef"]);
    assert!(out.starts_with("UID        PID  PPID  C STIME TTY          TIME CMD\n"), "{out}");
}

#[test]
fn a_forest_is_drawn_below_its_parents() {
    let (_, out, _) = Saved::tasks(&machine()).ps(&["--tree", "-o", "pid=,args="]);
    let want = [
        "    1 /bin/init -x",
        "   10  \\_ /bin/sh -x",
        "   11      \\_ /bin/sleep -x",
        "   12      \\_ [gone] <defunct>",
        "    2 [kthreadd]",
        "    3  \\_ [kworker/0:0]",
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), want);
}

#[test]
fn a_tree_of_parents_in_a_circle_ends() {
    let tasks = [Task::new(5, 6, "a"), Task::new(6, 5, "b"), Task::new(7, 7, "c")];
    let (code, out, _) = Saved::tasks(&tasks).ps(&["--tree", "-o", "pid="]);
    assert_eq!((code, out.lines().count()), (0, 3));
}

#[test]
fn a_deep_tree_stays_small() {
    let tasks: Vec<Task> = (1..5000).map(|n| Task::new(n, n - 1, "x")).collect();
    let (code, out, _) = Saved::tasks(&tasks).ps(&["--tree", "-o", "pid=,comm="]);
    assert_eq!((code, out.lines().count()), (0, 4999));
    assert!(out.len() < 5000 * 300, "{}", out.len());
}

#[test]
fn rows_are_sorted_by_any_key() {
    let saved = Saved::tasks(&machine());
    let order = |key: &str| {
        let out = saved.ps(&["-o", "pid=", "--sort", key]).1;
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order("-rss"), "11 10 1 2 3 12");
    assert_eq!(order("rss,-pid"), "12 3 2 1 10 11");
    assert_eq!(order("comm"), "12 1 2 3 10 11");
    assert_eq!(order("-pid"), "12 11 10 3 2 1");
    assert_eq!(order("user,-time"), "10 12 11 3 2 1");
}

#[test]
fn options_select_processes() {
    let saved = Saved::tasks(&machine());
    let pids = |args: &[&str]| {
        let mut all = vec!["-o", "pid="];
        all.extend(args);
        let (code, out, err) = saved.ps(&all);
        assert_eq!(err, "");
        (code, out.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    for (args, want) in [
        (&["-p", "1,11"][..], "1 11"),
        (&["-p", "1", "-p", "11 12"], "1 11 12"),
        (&["1"], "1"),
        (&["--ppid", "10"], "11 12"),
        (&["-C", "sh"], "10"),
        (&["-C", "sh,init", "-p", "3"], "1 3 10"),
        (&["-u", "3999999999"], "10"),
        (&["-u", "root"], "1 2 3 11 12"),
        (&["-N", "-u", "root"], "10"),
        (&["-p", "1", "-e"], "1 2 3 10 11 12"),
        (&["-s", "12"], "12"),
    ] {
        assert_eq!(pids(args), (0, want.to_owned()), "{args:?}");
    }
    assert_eq!(pids(&["-p", "999"]), (1, String::new()));
    assert_eq!(pids(&["-C", "nobody"]), (1, String::new()));
    assert_eq!(pids(&["--running"]), (1, String::new()));
}

/// A saved answer may come from another machine, whose NUMA nodes differ.
#[test]
fn nodes_are_of_this_machine_only() {
    let pid = std::process::id().to_string();
    let live = run(&["ps", "-p", &pid, "-o", "numa="]);
    let (code, node, err) = parts(&live);
    if std::path::Path::new("/sys/devices/system/node/node0").exists() {
        assert!(code == 0 && node.trim().parse::<u32>().is_ok(), "{node} {err}");
    } else {
        assert_eq!((code, node.trim()), (3, "?"), "{err}");
    }
    let dump = Saved::bytes(&run(&["dump", "--pid", &pid]).stdout);
    let (code, node, err) = dump.ps(&["-o", "numa="]);
    assert_eq!((code, node.trim()), (0, "?"), "{err}");
    assert!(err.contains("numa of 1 process was not known"), "{err}");
}
