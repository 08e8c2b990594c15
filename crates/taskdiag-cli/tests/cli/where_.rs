//! `--where`: the same language for every kind of rows.

use super::common::{Saved, Task, machine, parts, run, taskdiag};
use taskdiag::Group;

/// The pids of the small machine that pass the filter.
fn pids(expression: &str) -> (i32, Vec<u32>, String) {
    let saved = Saved::tasks(&machine());
    let (code, out, err) = saved.ps(&["-o", "pid=", "--where", expression]);
    (code, out.split_whitespace().map(|p| p.parse().expect("a pid")).collect(), err)
}

#[test]
fn expressions_select_processes() {
    for (expression, want) in [
        ("comm == sleep", &[11][..]),
        ("comm in (sh, sleep)", &[10, 11]),
        ("ppid == 10 and not state == Z", &[11]),
        ("state == zombie", &[12]),
        ("rss >= 10M and args ~ '^/bin/s'", &[10, 11]),
        // Kernel threads and zombies have no memory, and do not match as 0.
        ("rss < 5M", &[1]),
        ("rss missing", &[2, 3, 12]),
        ("user == 3999999999", &[10]),
        ("time > 10m30s", &[11, 12]),
        ("ppid in (0, 2) or comm ~ '^sl'", &[1, 2, 3, 11]),
        ("start < '2025-12-31 08:13:25Z'", &[1, 2, 3]),
    ] {
        assert_eq!(pids(expression), (0, want.to_vec(), String::new()), "{expression}");
    }
    assert_eq!(pids("comm == nosuch"), (1, vec![], String::new()));
}

/// The word is in its own arguments only.
#[test]
fn an_expression_about_arguments_leaves_out_this_program() {
    let word = format!("word-of-{}", std::process::id());
    let (code, out, _) = parts(&run(&["ps", "-o", "pid=", "--where", &format!("args ~ '{word}'")]));
    assert_eq!((code, out.as_str()), (1, ""));
    let mut shell = std::process::Command::new("sh")
        .args(["-c", "read line", &word])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let condition = format!("args ~ '{word}' and comm == sh");
    let (code, out, err) = parts(&run(&["ps", "-o", "pid=", "--where", &condition]));
    let (id, _) = (shell.id(), shell.kill());
    shell.wait().unwrap();
    assert_eq!((code, out.trim()), (0, id.to_string().as_str()), "{err}");
}

#[test]
fn where_combines_with_other_selections() {
    let saved = Saved::tasks(&machine());
    let run = |args: &[&str]| saved.ps(&[args, &["-o", "pid="]].concat()).1;
    assert_eq!(run(&["--ppid", "10", "--where", "rss known"]).trim(), "11");
    assert_eq!(
        run(&["--where", "pid > 1", "--where", "rss known", "--sort=-pid"]),
        "   11\n   10\n"
    );
    assert_eq!(run(&["-N", "-C", "sh", "--where", "rss known"]), "    1\n   11\n");
}

#[test]
fn rows_with_unknown_values_are_left_out_with_a_message() {
    let denied = Task { denied: vec![Group::Statm], ..Task::new(20, 1, "secret") };
    let saved = Saved::tasks(&[machine(), vec![denied]].concat());
    for (expression, rows) in [("rss > 0", 3), ("not rss > 0", 0), ("rss == 0 or comm == sh", 1)] {
        let (code, out, err) = saved.ps(&["-o", "pid=", "--where", expression]);
        assert_eq!((code, out.lines().count()), (i32::from(rows == 0), rows), "{expression} {err}");
        let said =
            "left out by --where: rss of 1 process was not shown to the user who saved the answer";
        assert!(err.contains(said), "{err}");
    }
    // The values in the condition are known.
    let (code, _, err) = saved.ps(&["-o", "pid=", "--where", "rss > 0 and pid < 20"]);
    assert_eq!((code, err.as_str()), (0, ""));
    // Columns that the answer does not hold are unknown for every task.
    let (code, out, err) = saved.ps(&["-o", "pid=", "--where", "exe ~ x"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("does not hold exe: make it with 'taskdiag dump --groups"), "{err}");
}

#[test]
fn wrong_expressions_are_marked() {
    // The mistake is found before anything is read.
    for command in ["ps", "maps", "files", "memory", "tree"] {
        let args = [command, "--from", "/nowhere", "--where", "pid == 1 and etime > 5x"];
        let (code, out, err) = parts(&run(&args));
        assert_eq!((code, out.as_str()), (2, ""), "{command}");
        let lines: Vec<&str> = err.lines().collect();
        assert!(lines[0].starts_with("taskdiag: --where: 'etime' is a duration"), "{err}");
        assert_eq!(lines[1..], ["  pid == 1 and etime > 5x", "                       ^^"]);
    }
    let (code, _, err) = parts(&run(&["ps", "--where", "comm == \u{1b}[2J"]));
    assert_eq!(code, 2);
    assert!(!err.contains('\u{1b}') && err.contains("comm == \\x1b[2J"), "{err}");
}

/// An answer about this machine, with everything that the commands show.
fn dump() -> Saved {
    let groups = "base,cred,stat,statm,cmdline,paths,vma,fd,fd_count,file_stat";
    let args = ["dump", "--strategy", "all-thread", "--engine", "procfs", "--groups", groups];
    let out = taskdiag().args(args).output().expect("the program runs");
    assert!(matches!(out.status.code(), Some(0 | 3)), "{out:?}");
    Saved::bytes(&out.stdout)
}

#[test]
fn where_selects_the_same_as_the_older_options() {
    let saved = dump();
    let path = saved.path();
    let path = path.to_str().expect("a path of ours");
    for (command, option, expression) in [
        ("ps", &["-u", "root"][..], "user == root"),
        ("ps", &["--ppid", "1"], "ppid == 1"),
        ("ps", &["-N", "--ppid", "1,2"], "ppid not in (1, 2)"),
        ("files", &["--type", "REG"], "type == REG"),
        ("files", &["-d", "0-2"], "fdnum <= 2"),
        ("files", &["--deleted", "-d", "0-9999", "-a"], "fdnum <= 9999 and deleted"),
        ("maps", &["--path", "libc"], "path ~ libc"),
        ("maps", &["--deleted"], "deleted"),
        ("maps", &["--by", "user", "--path", "/"], "path ~ /"),
        ("memory", &["-u", "root"], "user == root"),
    ] {
        let out = |args: &[&str]| {
            let by = if option[0] == "--by" { &option[..2] } else { &[] };
            // The default columns of ps depend on how rows are selected.
            let view = if command == "ps" { &["-o", "pid,tid,user,args"][..] } else { &[] };
            let form = ["--csv", "--from", path];
            let out = parts(&run(&[&[command], by, args, view, &form].concat()));
            assert!(matches!(out.0, 0 | 1 | 3), "{out:?}");
            // A row reports that mappings are denied; whether they match is not known.
            let rows = out.1.lines().filter(|l| !l.ends_with(",,,,,,,,"));
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let older = out(option);
        assert!(older.len() > 1 || option.contains(&"--deleted"), "{option:?}: {older:?}");
        assert_eq!(out(&["--where", expression]), older, "{command} {expression}");
    }
}

/// Columns of the process that have a group of their own are asked for.
#[test]
fn open_files_by_the_program_that_has_them() {
    let me = std::process::id().to_string();
    let files = |what: &[&str]| {
        let args = ["files", "--engine", "procfs", "-p", &me, "-o", "pid,fd,exe"];
        parts(&run(&[&args[..], what].concat()))
    };
    let (code, all, err) = files(&[]);
    assert_eq!((code, err.as_str()), (0, ""));
    let exe = std::env::current_exe().expect("it has one");
    let exe = exe.to_str().expect("a path of ours");
    assert!(all.lines().skip(1).all(|l| l.trim_end().ends_with(exe)), "{all}");
    // Other threads of this test open files, too; 0 stays.
    let (code, some, err) = files(&["--where", &format!("exe == '{exe}' and fdnum == 0")]);
    assert_eq!((code, some.lines().count(), err.as_str()), (0, 2, ""), "{some}");
    assert_eq!(files(&["--where", "exe == '/no/such'"]).0, 1);
    let (code, _, err) = parts(&run(&["files", "--count", "--where", "fds > 1 and type == REG"]));
    assert!(code == 2 && err.contains("'type': --count looks at no file"), "{err}");
}

/// The examples of the reference are understood.
#[test]
fn the_examples_of_the_document_run() {
    let saved = Saved::tasks(&machine());
    let path = saved.path();
    let mut count = 0;
    for line in include_str!("../../../../docs/reference/where.md").lines() {
        let Some(example) = line.strip_prefix("taskdiag ").filter(|l| l.contains("--where '"))
        else {
            continue;
        };
        let (before, rest) = example.split_once("--where '").expect("it has one");
        let (expression, after) = rest.split_once('\'').expect("it ends");
        let mut command = taskdiag();
        command.args(before.split_whitespace()).args(["--where", expression]);
        command.args(after.split_whitespace()).arg("--from").arg(&path);
        let (code, _, err) = parts(&command.output().expect("the program runs"));
        assert!(matches!(code, 0 | 1 | 3), "{example}: {err}");
        count += 1;
    }
    assert!(count > 5, "{count}");
}

#[test]
fn trees_begin_at_matching_processes() {
    let saved = Saved::tasks(&machine());
    let path = saved.path();
    let tree = |args: &[&str]| {
        let from = ["tree", "-A", "-p", "--from", path.to_str().expect("a path of ours")];
        parts(&run(&[&from[..], args].concat()))
    };
    assert_eq!(tree(&["--where", "comm == sh"]).1, tree(&["10"]).1);
    // The sleep is in the tree of the shell.
    assert_eq!(tree(&["--where", "comm in (sh, sleep)"]).1, tree(&["10"]).1);
    assert_eq!(tree(&["--where", "pid == 2"]).1, tree(&["2"]).1);
    assert_eq!(tree(&["--where", "comm == nosuch"]).0, 1);
    let (code, _, err) = tree(&["--where", "comm == sh", "10"]);
    assert!(code == 2 && err.contains("give one of them"), "{err}");
}

#[test]
fn a_word_finds_processes_by_name_or_argument_in_each_command() {
    let saved = Saved::tasks(&machine());
    for (word, want) in [("sleep", &["11"][..]), ("bin/s", &["10", "11"]), ("nosuchword", &[])] {
        let (_, out, err) = saved.ps(&["-o", "pid=", word]);
        assert_eq!(out.split_whitespace().collect::<Vec<_>>(), want, "{word}: {err}");
    }
    // The argument is a word, and not an expression.
    let (code, out, _) = saved.ps(&["-o", "pid=", "sl.ep"]);
    assert_eq!((code, out.as_str()), (1, ""));
    // The word may be in the arguments of taskdiag alone, which would not be the expected row.
    let word = format!("a-word-that-nobody-has-{}", std::process::id());
    for command in ["ps", "memory"] {
        let (code, out, err) = parts(&run(&[command, "--no-headers", &word]));
        assert_eq!((code, out.as_str()), (1, ""), "{command}: {err}");
    }
    // So have the programs that run it.
    let program = env!("CARGO_BIN_EXE_taskdiag");
    for script in [
        format!("{program} ps -o args= {word}; exit $?"),
        format!("timeout 60 {program} ps -o args= --where 'args ~ \"{word}\"'; exit $?"),
        format!("{program} ps -o 'args=' \"{word}\" | cat; exit 1"),
        format!("{program} files --no-headers {word} 2> /dev/null; exit 1"),
    ] {
        let (code, out, err) = parts(&super::common::output("sh", &["-c", &script]));
        assert_eq!((code, out.as_str()), (1, ""), "{script}: {err}");
    }
    // A program is found if the word is only a part of one of its arguments.
    let script = format!("{program} ps -o args= {word}; exit $?");
    let (code, out, _) = parts(&super::common::output("sh", &["-c", "sh -c \"$0\" x", &script]));
    assert_eq!(code, 1, "{out}");
    let script = format!("{program} ps -o args= \"$0\"; exit $?");
    let (code, out, _) = parts(&super::common::output("sh", &["-c", &script, &word]));
    assert_eq!((code, out.lines().count()), (0, 1), "{out}");
}
