//! Errors: the message says what to do, and the exit code names the kind of failure.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use super::common::{Saved, Task, machine, parts, run, stream, taskdiag};
use taskdiag::wire::{Done, build};
use taskdiag::{Group, Strategy};

fn fails(args: &[&str], code: i32, words: &[&str]) {
    let (got, out, err) = parts(&run(args));
    assert_eq!(got, code, "{args:?}: {err}");
    assert_eq!(out, "", "{args:?}");
    for word in words {
        assert!(err.contains(word), "{args:?} does not say {word:?}: {err}");
    }
}

#[test]
fn wrong_usage_gets_a_hint_and_exit_code_2() {
    fails(&["ps", "-o", "comand"], 2, &["'comand'", "did you mean 'command'", "taskdiag fields"]);
    fails(&["ps", "-o", "usr"], 2, &["'usr'", "did you mean 'user'"]);
    fails(&["ps", "--sort", "rrs"], 2, &["'rrs'", "did you mean"]);
    fails(&["ps", "-o", ""], 2, &["needs a list of columns"]);
    fails(&["ps", "-o", "pid:0"], 2, &["width"]);
    fails(&["ps", "--engine", "bfp"], 2, &["'bfp'", "procfs"]);
    fails(&["ps", "-p", "x"], 2, &["process ids", "'x'"]);
    fails(&["ps", "-p", ","], 2, &["lacks an item"]);
    fails(&["ps", "-u", "no-such-user-here"], 2, &["there is no user 'no-such-user-here'"]);
    fails(&["ps", "-G", "no-such-group-here"], 2, &["there is no group"]);
    fails(&["ps", "-t", "nowhere"], 2, &["there is no terminal"]);
    fails(&["ps", "--json", "--csv"], 2, &["--csv"]);
    fails(&["ps", "--jsn"], 2, &["--json"]);
    fails(&["ps", "by"], 2, &["letter 'b'", "help letters"]);
    fails(&["ps", "axo"], 2, &["needs a list of columns"]);
    fails(&["ps", "-C", ""], 2, &["needs a list of command names"]);
    fails(&["maps", "-C", ","], 2, &["--command needs at least one value"]);
    fails(&["files", "-c", "/(/i"], 2, &["-c /(/i", "unclosed group"]);
    fails(&["dump", "--groups", "bse"], 2, &["'bse'", "did you mean 'base'"]);
    fails(&["dump", "--strategy", "one"], 2, &["--pid"]);
    fails(&["dump", "--strategy", "all", "--pid", "1"], 2, &["--pid"]);
    fails(&["pss"], 2, &["ps"]);
}

#[test]
fn help_lists_the_exit_codes() {
    let (code, out, _) = parts(&run(&["help", "exit-codes"]));
    assert!(code == 0 && out.contains("Exit codes:") && out.contains("--strict"), "{out}");
    assert!(out.contains("\n  127 "), "{out}");
    let (code, _, err) = parts(&run(&["run", "no-such-program-here"]));
    assert_eq!(code, 127, "{err}");
    for command in COMMANDS {
        let (code, out, _) = parts(&help(command));
        assert_eq!(code, 0);
        let there = ["Examples:", "taskdiag help exit-codes"].iter().all(|w| out.contains(w));
        assert!(there && !out.contains("Exit codes:"), "{out}");
    }
}

const COMMANDS: &[&str] = &[
    "",
    "ps",
    "files",
    "maps",
    "memory",
    "tree",
    "fields",
    "engines",
    "dump",
    "wait",
    "report",
    "run",
    "dropin",
    #[cfg(feature = "record")]
    "record",
    #[cfg(feature = "top")]
    "top",
    #[cfg(feature = "export")]
    "export",
    #[cfg(all(feature = "arrow", feature = "record"))]
    "convert",
];

/// The help of a command, in a terminal of 80 columns.
fn help(command: &str) -> std::process::Output {
    let args = [command, "--help"].into_iter().filter(|w| !w.is_empty());
    taskdiag().args(args).env("COLUMNS", "80").output().unwrap()
}

#[test]
fn help_fits_a_terminal() {
    for command in COMMANDS {
        let (_, out, _) = parts(&help(command));
        let long: Vec<&str> = out.lines().filter(|l| l.chars().count() > 80).collect();
        assert!(long.is_empty(), "{command}: {long:#?}");
        // A continued example would start a new line and look like the next one.
        let examples = out.split("Examples:\n").nth(1).unwrap().split("\n\n").next().unwrap();
        for line in examples.lines() {
            // An explanation that does not fit next to its example is below it.
            let begins = ["  taskdiag ", "  sudo taskdiag ", "  sudo duckdb ", "      "];
            assert!(begins.iter().any(|b| line.starts_with(b)), "{command}: {line}");
        }
    }
}

#[test]
fn errors_suggest_the_likely_meaning() {
    fails(&["ps", "-o", "pid", "user"], 2, &["'user' stands alone", "write pid,user"]);
    fails(&["lsof", "-p", "1"], 2, &["taskdiag files"]);
    fails(&["pmap", "-x", "1"], 2, &["taskdiag maps", "taskdiag --as pmap"]);
    fails(&["pgrep", "sh"], 2, &["taskdiag ps -C"]);
    fails(&["maps", "--pmap", "1"], 2, &["'taskdiag --as pmap PID'"]);
    fails(&["maps", "1", "-d"], 2, &["'taskdiag --as pmap -d PID'"]);
    fails(&["maps", "-XX", "1"], 2, &["'taskdiag --as pmap -XX PID'"]);
    fails(&["ps", "-o", "resident"], 2, &["ps's column", "use rss"]);
    fails(&["ps", "-o", "mapping"], 2, &["a column of 'taskdiag maps'"]);
    fails(&["ps", "-b"], 2, &["'-b'", "--help"]);
    fails(&["--as", "top"], 2, &["ps, pmap, pstree"]);
    fails(&["--as", "fuser"], 2, &["ps, pmap, pstree, lsof", "taskdiag files"]);
    fails(&["--as", "lsof", "+c", "x"], 1, &["+c needs a number"]);
    fails(&["--as", "lsof", "-o", "-s"], 1, &["SIZE/OFF"]);
}

#[test]
fn incomplete_saved_answers_are_refused() {
    let whole = stream(Strategy::All, &machine(), Done::default());
    for (bytes, word) in [
        (&whole[..whole.len() - 8], "cut"),
        (&whole[..whole.len() / 16 * 8 + 3], "cut"),
        (&whole[..0], "cut"),
        (b"#!/bin/sh\necho not a stream at all, but long enough\n", "not a task_diag stream"),
    ] {
        let (code, out, err) = Saved::bytes(bytes).ps(&[]);
        assert_eq!((code, out.as_str()), (4, ""));
        assert!(err.contains(word), "{err}");
    }
    let (code, _, err) = parts(&run(&["ps", "--from", "/no/such/file"]));
    assert_eq!(code, 4);
    assert!(err.contains("/no/such/file") && err.contains("No such file"), "{err}");
}

#[test]
fn a_saved_answer_can_come_from_stdin() {
    let saved = Saved::tasks(&machine());
    let o = taskdiag()
        .args(["ps", "--from", "-", "-o", "pid="])
        .stdin(File::open(saved.path()).unwrap())
        .output()
        .unwrap();
    assert_eq!(parts(&o).1.lines().count(), 6);
}

#[test]
fn a_saved_answer_can_come_from_a_descriptor() {
    let saved = Saved::tasks(&machine());
    let path = saved.path();
    for (script, lines) in [
        ("\"$0\" ps --from <(cat \"$1\") -o pid=", 6),
        ("\"$0\" ps --from /dev/fd/7 -o pid= 7<\"$1\"", 6),
        ("cat \"$1\" | \"$0\" ps --from /proc/self/fd/0 -o pid=", 6),
        ("\"$0\" ps --from /dev/fd/7 -o pid= 7<&-", 0),
    ] {
        let program = taskdiag().get_program().to_owned();
        let o = Command::new("bash").args(["-c", script]).arg(program).arg(&path).output().unwrap();
        let (code, out, err) = parts(&o);
        assert_eq!(out.lines().count(), lines, "{script}: {err}");
        assert_eq!(code, if lines > 0 { 0 } else { 4 }, "{script}: {err}");
    }
}

#[test]
fn an_error_says_that_a_column_belongs_to_another_command() {
    for args in [&["-o", "cpu_now"][..], &["--sort", "-cpu_now"], &["--where", "cpu_now > 5"]] {
        let (code, _, err) = parts(&run(&[&["ps"], args].concat()));
        assert!(code == 2 && err.contains("'cpu_now' is a column of 'taskdiag top'"), "{err}");
    }
}

#[test]
fn a_word_for_a_column_names_the_column_wherever_columns_stand() {
    let faces: [(&str, &[&str]); 5] = [
        ("ps", &["-o", "threads"]),
        ("ps", &["--sort", "-threads"]),
        ("ps", &["--where", "threads > 5"]),
        ("memory", &["--by", "threads"]),
        ("top", &["--once", "--where", "threads > 5"]),
    ];
    for (command, args) in faces {
        let (code, _, err) = parts(&run(&[&[command], args].concat()));
        assert!(
            code == 2 && err.contains("the number of threads is nlwp"),
            "{command} {args:?}: {err}"
        );
    }
}

#[test]
fn names_of_other_tools_and_options_of_other_commands_lead_to_the_right_command() {
    for (args, hint) in [
        (&["ss"][..], "taskdiag files -nP -i"),
        (&["systemd-cgtop"], "taskdiag cgroups -d 1s"),
        (&["docker"], "taskdiag ps --container NAME"),
        (&["lslocks"], "taskdiag why PID"),
        (&["iotop"], "taskdiag top"),
        (&["cgroups", "-p", "1"], "taskdiag ps -p PID -o pid,cgroup_path"),
        (&["cgroups", "--tree"], "--flat prints a list"),
    ] {
        fails(args, 2, &[hint]);
    }
}

#[test]
fn an_error_of_the_system_has_no_number() {
    for args in [&["ps", "--from", "/nonexistent"][..], &["record", "/dev/null/x"]] {
        let (code, _, err) = parts(&run(args));
        assert!(code != 0 && err.ends_with('\n') && !err.contains("os error"), "{args:?}: {err}");
    }
    for args in [&["engines"][..], &["engines", "--json"]] {
        let (code, out, err) = parts(&run(args));
        assert!(code == 0 && out.contains("service") && !out.contains("os error"), "{out}{err}");
    }
}

#[test]
fn a_letter_that_ps_lacks_is_explained_by_a_list_of_all_letters() {
    let (code, _, err) = parts(&run(&["ps", "axz"]));
    assert!(code == 2 && err.contains("'taskdiag help letters'"), "{err}");
    let (code, out, err) = parts(&run(&["help", "letters"]));
    assert_eq!((code, err.as_str()), (0, ""));
    for letter in ["  a  ", "  u  ", "  x  "] {
        assert!(out.lines().any(|line| line.starts_with(letter)), "{letter}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn a_saved_answer_names_processes_without_memory() {
    let mut kthread = Task::kthread(2, "kthreadd");
    kthread.ppid = 0;
    let saved = Saved::tasks(&[Task::new(1, 0, "init"), kthread]);
    let path = saved.path();
    let o = taskdiag().args(["memory", "-p", "2", "--from"]).arg(path).output().unwrap();
    let (code, _, err) = parts(&o);
    assert!(code == 1 && err.contains("process 2 has no memory"), "{code} {err}");
}

#[test]
fn partial_answers_say_so() {
    let denied = Task { denied: vec![Group::Statm, Group::Cmdline], ..Task::new(20, 1, "secret") };
    let cut = Task { args_total: Some(99_999), ..Task::new(21, 1, "long") };
    let mut tasks = machine();
    tasks.extend([denied, cut]);
    let saved = Saved::tasks(&tasks);
    let (code, out, err) = saved.ps(&[]);
    assert_eq!(code, 0, "nobody named these");
    assert!(
        err.contains("rss, args of 1 process were not shown to the user who saved the answer"),
        "{err}"
    );
    assert!(
        err.contains("args of 1 process is cut short")
            || err.contains("args of 1 process are cut short"),
        "{err}"
    );
    assert!(out.contains("    ? "), "{out}");
    // A denied field that is not shown causes no message.
    let (code, _, err) = saved.ps(&["-o", "pid,comm"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let (code, out, _) = saved.ps(&["--jsonl", "-o", "rss", "-p", "20"]);
    assert_eq!((code, out.as_str()), (3, "{\"rss\":null,\"missing\":{\"rss\":\"denied\"}}\n"));
    // A group that the saved answer does not hold.
    let (code, _, err) = saved.ps(&["-o", "pid,read_bytes"]);
    assert_eq!(code, 3);
    assert!(err.contains("--groups base,cred,stat,statm,cmdline,io"), "{err}");
}

#[test]
fn a_walk_that_ended_early_is_partial() {
    let bytes = stream(Strategy::All, &machine(), build!(Done { error: -12, ..Done::default() }));
    let (code, out, err) = Saved::bytes(&bytes).ps(&["-o", "pid="]);
    assert_eq!((code, out.lines().count()), (3, 6));
    assert!(err.contains("ended early"), "{err}");
}

/// The reason is a negative errno; a file may hold any number.
#[test]
fn a_walk_that_ended_early_is_partial_for_any_errno() {
    for error in [5, -5000, i32::MIN, i32::MAX, -4095, -4096, -1, 1] {
        let bytes = stream(Strategy::All, &machine(), build!(Done { error, ..Done::default() }));
        let saved = Saved::bytes(&bytes);
        for form in [&["-o", "pid="][..], &["--jsonl", "-o", "pid"], &["--csv", "--no-headers"]] {
            let (code, out, err) = saved.ps(form);
            assert_eq!((code, out.lines().count()), (3, 6), "{error}: {err}");
            assert!(err.contains("ended early"), "{error}: {err}");
        }
    }
}

/// Names of files that others chose cannot control the terminal that shows the message.
#[test]
fn messages_are_escaped() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let odd = "a\x1b]0;owned\x07\n\u{9b}31m\u{202e}";
    let path = dir.path().join(odd);
    std::os::unix::fs::symlink("nowhere", &path).expect("linked");
    let path = path.to_str().expect("UTF-8");
    let option = format!("--{odd}");
    for args in [
        &["files", path][..],
        &["files", "+D", path],
        &["files", "--net", path],
        &["ps", "--from", path],
        &["ps", "-u", odd],
        &["ps", "-o", odd],
        &["ps", "-t", path],
        // The arguments that a shell makes of `*` in a directory with a file of this name.
        &["files", &option],
        &["files", "-p", &option],
        &["ps", &option],
        &[odd],
    ] {
        let (code, _, err) = parts(&run(args));
        assert!([1, 2, 3, 4].contains(&code), "{args:?}: {code} {err}");
        let is_plain = |c: char| c == '\n' || !taskdiag::field::is_odd(c);
        assert!(err.chars().all(is_plain), "{args:?}: {err:?}");
        // (Lists end an item at the end of a line.)
        assert!(err.contains("\\x1b"), "{args:?}: {err:?}");
    }
}

#[test]
fn threads_cannot_be_made_from_processes() {
    let (code, _, err) = Saved::tasks(&machine()).ps(&["-T"]);
    assert_eq!(code, 4);
    assert!(err.contains("--strategy all-thread"), "{err}");
    let bytes = stream(Strategy::AllThread, &machine(), Done::default());
    let (code, out, _) = Saved::bytes(&bytes).ps(&[]);
    assert_eq!(code, 0);
    assert!(out.starts_with("USER       PID   TID"), "{out}");
}

/// Many rows, so that the output does not fit into a pipe.
fn many() -> Saved {
    let tasks: Vec<Task> = (1..20_000).map(|n| Task::new(n, 0, "x")).collect();
    Saved::tasks(&tasks)
}

#[test]
fn a_closed_pipe_is_no_error() {
    let saved = many();
    let mut child =
        saved.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), o.stderr.len()), (Some(0), 0));
}

/// A JSON document that ends in the middle cannot be mistaken for a complete one.
#[test]
fn ctrl_c_leaves_no_document_that_looks_whole() {
    use std::os::unix::process::CommandExt;
    let saved = many();
    for form in ["--json", "--jsonl", "--csv"] {
        let mut command = saved.command(&[form]);
        // This also works if the tests run in the background of a shell. SAFETY: a system call,
        // before the program.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [0; 100];
        child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
        // There is more than a pipe holds, so it is not done.
        // SAFETY: our own child, which nobody has waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
        let o = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(130), "{form}: {err}");
        assert!(err.contains("Ctrl-C: the output is cut"), "{form}: {err}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for args in
        [&["ps", "--no-headers"][..], &["ps", "--json"], &["ps", "--csv"], &["fields"], &["dump"]]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, _, err) = parts(&taskdiag().args(args).stdout(full).output().unwrap());
        assert_eq!(code, 1, "{args:?}: {err}");
        assert!(err.contains("No space left"), "{args:?}: {err}");
    }
}

#[test]
fn a_dump_is_shown_by_ps() {
    let o = run(&["dump", "--groups", "base,stat"]);
    assert_eq!(o.status.code(), Some(0));
    let saved = Saved::bytes(&o.stdout);
    let (code, out, _) = saved.ps(&["-o", "pid=,nlwp="]);
    assert_eq!(code, 0);
    let me = std::process::id().to_string();
    assert!(out.lines().any(|l| l.split_whitespace().next() == Some(&me)), "{out}");
}

#[test]
fn ps_of_a_process_that_is_not_there_fails_as_in_procps() {
    // Above the largest pid that a kernel gives out.
    let nobody = "2147483647";
    for args in [&["-p", nobody][..], &["-p", "2147483646,2147483647"], &["--ppid", nobody]] {
        let all = |more: &[&'static str]| {
            let mut all = vec!["ps"];
            all.extend(args);
            all.extend(more);
            parts(&run(&all))
        };
        let said: String = args[1]
            .split(',')
            .map(|pid| format!("taskdiag: there is no process {pid}\n"))
            .collect();
        let (code, out, err) = all(&["-o", "pid"]);
        assert_eq!((code, out.trim_start(), &err), (1, "PID\n", &said), "{args:?}");
        assert_eq!(all(&["--json"]), (1, "[\n]\n".into(), said.clone()), "{args:?}");
        assert_eq!(all(&["--jsonl"]), (1, "".into(), said), "{args:?}");
    }
    let (code, out, err) = parts(&run(&["dump", "--pid", nobody]));
    assert_eq!(code, 1);
    assert!(out.contains("TADG"), "a stream of no task");
    assert!(err.contains("no process 2147483647"), "{err}");
}
