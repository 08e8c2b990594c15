//! `taskdiag tree`: drawings of saved answers with known content, JSON, and pstree as oracle.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::common::{Saved, Task, machine, parts, run, skip, stream};
use taskdiag::Strategy;
use taskdiag::wire::Done;

fn tree(saved: &Saved, args: &[&str]) -> (i32, String, String) {
    let path = saved.path();
    let path = path.to_str().expect("UTF-8");
    parts(&run(&[&["tree", "--from", path], args].concat()))
}

/// init with two workers that look alike, a third one with a child, and a kernel thread.
fn workers() -> Vec<Task> {
    vec![
        Task::new(1, 0, "init"),
        Task { ppid: 0, ..Task::kthread(2, "kthreadd") },
        Task::kthread(3, "kworker"),
        Task { uid: 33, ..Task::new(10, 1, "worker") },
        Task { uid: 33, ..Task::new(11, 1, "worker") },
        Task { uid: 33, ..Task::new(12, 1, "worker") },
        Task { uid: 33, ..Task::new(13, 12, "sh") },
        Task { uid: 33, ..Task::new(14, 1, "worker") },
        Task { uid: 33, ..Task::new(15, 14, "sh") },
        Task::new(20, 1, "cron"),
    ]
}

#[test]
fn trees_are_drawn_as_in_pstree() {
    let saved = Saved::tasks(&workers());
    for (args, want) in [
        (
            &[][..],
            "\
init-+-cron
     |-2*[worker]
     `-2*[worker---sh]
",
        ),
        (
            &["-c"],
            "\
init-+-cron
     |-worker
     |-worker
     |-worker---sh
     `-worker---sh
",
        ),
        (
            &["-p", "-n"],
            "\
init(1)-+-worker(10)
        |-worker(11)
        |-worker(12)---sh(13)
        |-worker(14)---sh(15)
        `-cron(20)
",
        ),
        (
            &["-u", "-U"],
            "\
init─┬─cron
     ├─2*[worker(www-data)]
     └─2*[worker(www-data)───sh]
",
        ),
        (
            &["-a"],
            "\
init -x
  |-cron -x
  |-worker -x
  |-worker -x
  |-worker -x
  |   `-sh -x
  `-worker -x
      `-sh -x
",
        ),
        (&["-s", "13"], "init---worker---sh\n"),
        (&["-s", "12", "-p"], "init(1)---worker(12)---sh(13)\n"),
        (&["12", "14"], "worker---sh\nworker---sh\n"),
        (&["2"], "kthreadd---kworker\n"),
        (&["-k", "-c", "2"], "kthreadd---kworker\n"),
        (&["33"], ""),
        // Kernel threads belong to root, too, and are shown with -k only.
        (
            &["-c", "root"],
            "init-+-cron\n     |-worker\n     |-worker\n     |-worker---sh\n     `-worker---sh\n",
        ),
        (&["-k", "--where", "pid == 2"], "kthreadd---kworker\n"),
        (&["www-data"], "worker\n\nworker\n\nworker---sh\n\nworker---sh\n"),
        // The user of the topmost process is compared with root, or with the requested user, and
        // not with the user of its parent.
        (&["-u", "13"], "sh(www-data)\n"),
        (&["-u", "12"], "worker(www-data)---sh\n"),
        (&["-u", "12", "13"], "worker(www-data)---sh\nsh(www-data)\n"),
        (&["-u", "-s", "13"], "init---worker(www-data)---sh\n"),
        (&["-u", "www-data"], "worker\n\nworker\n\nworker---sh\n\nworker---sh\n"),
        (&["--columns", "12"], "init-+-cron\n     |-2*[w+\n     `-2*[w+\n"),
    ] {
        let (_, out, err) = tree(&saved, args);
        assert_eq!(out, want, "{args:?}: {err}");
    }
    assert!(tree(&saved, &["-k"]).1.contains("kthreadd---kworker\n"));
    let (code, out, err) = tree(&saved, &["99"]);
    assert!(code == 1 && out.is_empty() && err.contains("no process 99"), "{err}");
}

#[test]
fn the_line_of_a_marked_process_is_bold() {
    let saved = Saved::tasks(&workers());
    let (_, out, _) = tree(&saved, &["-H", "13", "--color", "always"]);
    let bold = |s: &str| format!("\x1b[1m{s}\x1b[0m");
    assert!(out.contains(&format!("{}---{}", bold("worker"), bold("sh"))), "{out:?}");
    assert_eq!(out.matches("\x1b[1m").count(), 3, "{out:?}");
    assert!(!tree(&saved, &["-H", "13"]).1.contains('\x1b'));
}

#[test]
fn threads_are_drawn_in_braces() {
    let thread = |pid, comm: &str| Task { tgid: 10, ..Task::new(pid, 1, comm) };
    let tasks = [
        Task::new(1, 0, "init"),
        Task::new(10, 1, "web"),
        thread(11, "io"),
        thread(12, "io"),
        thread(13, "gc"),
        Task::new(20, 10, "cgi"),
    ];
    let saved = Saved::bytes(&stream(Strategy::AllThread, &tasks, Done::default()));
    let want = "\
init---web-+-cgi
           |-{gc}
           `-2*[{io}]
";
    assert_eq!(tree(&saved, &["-t"]).1, want);
    assert_eq!(tree(&saved, &["-T"]).1, "init---web---cgi\n");
    let (_, out, _) = tree(&saved, &["--json"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(all[0]["children"][0]["threads"].as_array().map(Vec::len), Some(3));
    assert_eq!(all[0]["children"][0]["threads"][2]["comm"], "gc");
    let (code, _, err) = tree(&Saved::tasks(&machine()), &["-t"]);
    assert!(code == 4 && err.contains("all-thread"), "{err}");
    // A process that is shown only as an ancestor shows no threads.
    assert_eq!(tree(&saved, &["-s", "20"]).1, "init---web---cgi\n");
    assert_eq!(tree(&saved, &["-s", "10", "20", "-t"]).1, want);
    let (_, out, _) = tree(&saved, &["--json", "-s", "20"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(all[0]["children"][0]["threads"], Value::Array(vec![]));
    assert_eq!(all[0]["children"][0]["children"][0]["pid"], 20);
}

#[test]
fn threads_with_one_name_are_in_the_order_of_their_ids() {
    let thread = |pid| Task { tgid: 9, ..Task::new(pid, 1, if pid == 10 { "z" } else { "io" }) };
    let mut tasks = vec![Task::new(1, 0, "init"), Task::new(9, 1, "web")];
    tasks.extend([10, 99, 100, 1000].map(thread));
    let saved = Saved::bytes(&stream(Strategy::AllThread, &tasks, Done::default()));
    let order = |args: &[&str]| {
        let out = tree(&saved, args).1;
        let ids = out.split(['(', ')']).skip(5).step_by(2);
        ids.map(|id| id.parse().expect("an id")).collect::<Vec<u32>>()
    };
    assert_eq!(order(&["-p"]), [10, 99, 100, 1000]);
    assert_eq!(order(&["-p", "-t"]), [99, 100, 1000, 10]);
    assert_eq!(order(&["-p", "-n", "-t"]), [10, 99, 100, 1000]);
}

#[test]
fn nested_json_has_the_whole_tree() {
    let saved = Saved::tasks(&machine());
    let (code, out, _) = tree(&saved, &["--json", "-u", "-o", "pid,user,rss"]);
    assert_eq!(code, 0);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    let init = &all[0];
    assert_eq!((&init["pid"], &init["rss"]), (&Value::from(1), &Value::from(1 << 20)));
    let zombie = &init["children"][0]["children"][1];
    assert_eq!((&zombie["pid"], &zombie["rss"]), (&12.into(), &0.into()));
    assert_eq!(zombie["children"], Value::Array(vec![]));
}

/// The largest number of levels in a document whose names have no brackets, and the number of its
/// processes.
fn levels(document: &str) -> (usize, usize) {
    let (mut open, mut deepest) = (0_usize, 0);
    for b in document.bytes() {
        match b {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open -= 1,
            _ => {}
        }
        deepest = deepest.max(open);
    }
    assert_eq!(open, 0, "{document}");
    (deepest, document.matches("\"pid\"").count())
}

#[test]
fn generations_nest_to_a_hundred_levels_and_the_rest_is_counted() {
    let of = |n: u32| {
        // Each process has the next generation, and one more child.
        let two = |n: u32| [Task::new(n, n - 1, "x"), Task::new(10_000 + n, n, "y")];
        Saved::tasks(&(1..=n).flat_map(two).collect::<Vec<_>>())
    };
    let mut read = Vec::new();
    for (n, deeper) in [(48, None), (49, Some(1)), (300, Some(503))] {
        let (code, out, err) = tree(&of(n), &["--json", "-T"]);
        let (deepest, all) = levels(&out);
        assert_eq!((code, deepest), (0, 99), "{n} {err}");
        assert_eq!(all + deeper.unwrap_or(0), 2 * n as usize, "{n}");
        // Only the row of the last generation reports this, once.
        let last = deeper.map(|d| format!("\"deeper\":{d},\"children\":[]"));
        let cut: Vec<&str> = out.lines().filter(|l| l.contains("deeper")).collect();
        assert_eq!(cut.len(), usize::from(deeper.is_some()), "{n}");
        assert!(
            last.is_none_or(|l| cut[0].contains("\"pid\":49,") && cut[0].contains(&l)),
            "{cut:?}"
        );
        assert_eq!(err.contains("--flat"), deeper.is_some(), "{n} {err}");
        read.push(out);
    }
    let with_threads = tree(&of(300), &["--json"]).1;
    assert_eq!(levels(&with_threads).0, 99, "an answer without threads");
    // The subtree of one of them has as many levels again.
    assert_eq!(levels(&tree(&of(300), &["--json", "-T", "260"]).1), (85, 82));
    for reader in [
        &["jq", ".[0].pid"][..],
        &["python3", "-c", "import json, sys; print(json.load(sys.stdin)[0]['pid'])"],
    ] {
        let mut command = Command::new(reader[0]);
        command.args(&reader[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            skip("generations_nest_to_a_hundred_levels_and_the_rest_is_counted", reader[0]);
            continue;
        };
        child.stdin.take().expect("piped").write_all(read[2].as_bytes()).expect("it reads");
        let out = child.wait_with_output().expect("it ends").stdout;
        assert_eq!(out, b"1\n", "{reader:?}");
    }
}

#[test]
fn a_flat_document_has_each_process_with_its_depth() {
    let chain: Vec<Task> = (1..=300).map(|n| Task::new(n, n - 1, "x")).collect();
    let saved = Saved::tasks(&chain);
    let rows = |args: &[&str]| {
        let (code, out, err) = tree(&saved, args);
        assert_eq!((code, &*err), (0, ""), "{args:?}");
        serde_json::from_str::<Vec<Value>>(&out).expect("a list of rows")
    };
    for args in [&["--flat"][..], &["--json", "--flat"], &["--flat", "-T", "-o", "comm"]] {
        let all = rows(args);
        assert_eq!(all.len(), 300, "{args:?}");
        for (n, row) in all.iter().enumerate() {
            let of = ["pid", "ppid", "depth"].map(|key| row[key].as_u64());
            assert_eq!(of, [n + 1, n, n].map(|n| Some(n as u64)), "{args:?}");
            assert!(row["comm"] == "x" && row.get("children").is_none(), "{row}");
        }
    }
    // Like the nested document, the flat one begins at the requested process.
    let depths = |args: &[&str]| rows(args).iter().map(|r| r["depth"].as_u64()).collect::<Vec<_>>();
    assert_eq!(depths(&["--flat", "299"]), [Some(0), Some(1)]);
    assert_eq!(depths(&["--flat", "-s", "3"]).len(), 300);
    let keys: Vec<String> = rows(&["--flat", "-T", "-o", "ppid,comm"])[0]
        .as_object()
        .expect("a row")
        .keys()
        .cloned()
        .collect();
    assert_eq!(keys, ["comm", "depth", "pid", "ppid"]);
}

#[test]
fn odd_trees_end() {
    let circle = [Task::new(5, 6, "a"), Task::new(6, 5, "b"), Task::new(7, 7, "c")];
    let (code, out, _) = tree(&Saved::tasks(&circle), &[]);
    assert_eq!((code, out.as_str()), (0, "c\na---b\n"));
    // A chain is one line. The lines of a comb must not grow longer and longer.
    let chain: Vec<Task> = (1..5000).map(|n| Task::new(n, n - 1, "x")).collect();
    assert_eq!(tree(&Saved::tasks(&chain), &[]).1.lines().count(), 1);
    let comb: Vec<Task> = (1..5000).map(|n| Task::new(n, n.saturating_sub(2) | 1, "x")).collect();
    let (code, out, _) = tree(&Saved::tasks(&comb), &["-p"]);
    assert!(code == 0 && out.len() < 5000 * 1000, "{}", out.len());
    for args in [&["-a"][..], &["--json"], &["-c"]] {
        assert_eq!(tree(&Saved::tasks(&chain), args).0, 0, "{args:?}");
    }
    let evil = Task { comm: b"a\n\x1b[2J\xff".to_vec(), ..Task::new(7, 0, "evil") };
    assert_eq!(tree(&Saved::tasks(&[evil]), &[]).1, "a\\n\\x1b[2J\\xff\n");
}

#[test]
fn invalid_combinations_of_options_are_refused() {
    for (args, word) in [
        (&["-s"][..], "pid"),
        (&["-o", "pid"], "--json"),
        (&["no.such.user", "1"], "one user, or words"),
        (&["1", "root"], "one user"),
    ] {
        let (code, _, err) = parts(&run(&[&["tree"], args].concat()));
        assert!(code == 2 && err.contains(word), "{args:?} {err}");
    }
}

#[test]
fn a_word_finds_trees_by_name_or_arguments() {
    let by_args =
        Task { args: Some(b"java\0-jar\0/srv/shop.jar\0".to_vec()), ..Task::new(30, 1, "java") };
    let tasks = [workers(), vec![by_args, Task::new(31, 30, "helper")]].concat();
    let saved = Saved::tasks(&tasks);
    for (words, want) in [
        (&["shop.jar"][..], "java---helper\n"),
        (&["bin/worke"], "worker\nworker\nworker---sh\nworker---sh\n"),
        (&["java", "shop"], "java---helper\n"),
    ] {
        let (code, out, err) = tree(&saved, words);
        assert_eq!((code, out.as_str(), err.as_str()), (0, want, ""), "{words:?}");
    }
    // A word that is the name of a user selects the user's trees.
    assert_eq!(tree(&saved, &["root"]).1.lines().next(), Some("init-+-cron"));
    let (code, out, err) = tree(&saved, &["nosuchword"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("no user 'nosuchword', and no process with this in its name"), "{err}");
    let (code, _, err) = parts(&run(&["--as", "pstree", "nosuchword"]));
    assert!(code == 1 && err.contains("nosuchword"), "{code} {err}");
}

#[test]
fn the_age_of_a_process_chooses_its_colour() {
    let aged = |pid, ppid, start_s| Task { start_s, ..Task::new(pid, ppid, "x") };
    // The answer was made 100,000 s after boot.
    let saved = Saved::tasks(&[aged(1, 0, 10), aged(2, 1, 99_000), aged(3, 2, 99_990)]);
    let colored = |code: u32| format!("\x1b[{code}mx\x1b[0m");
    let want = format!("{}---{}---{}\n", colored(31), colored(33), colored(32));
    assert_eq!(tree(&saved, &["-C", "age", "--color", "always"]).1, want);
    assert_eq!(tree(&saved, &["-C", "age"]).1, "x---x---x\n");
}

#[test]
fn values_missing_from_a_saved_answer_are_reported() {
    let saved = Saved::tasks(&workers()[..1]);
    let (code, out, err) = tree(&saved, &["-Z"]);
    assert!(code == 3 && out == "init(`?')\n" && err.contains("label"), "{code} {out} {err}");
    assert_eq!(tree(&saved, &["-N", "net"]).1, "[0]\ninit\n");
    let (code, _, err) = tree(&saved, &["-N", "nosuch"]);
    assert!(code == 2 && err.contains("cgroup"), "{err}");
}

#[test]
fn as_pstree_changes_version_mark_and_help() {
    let pstree = |args: &[&str]| parts(&run(&[&["--as", "pstree"], args].concat()));
    let (code, out, _) = pstree(&["-V"]);
    assert!(code == 0 && out.starts_with("taskdiag "), "{out}");
    // The line of the process itself.
    let (code, out, err) = pstree(&["-h", "--color", "always"]);
    assert!(code == 0 && out.contains("\x1b[1mtaskdiag\x1b[0m"), "{err}{out}");
    let (code, out, _) = parts(&run(&["--as", "ps", "--help", "simple"]));
    assert!(code == 0 && out.contains("Usage:"), "{out}");
}

#[test]
fn a_link_with_the_name_of_another_tool_says_what_to_use() {
    use std::os::unix::process::CommandExt as _;
    let o = super::common::taskdiag().arg0("/usr/local/bin/fuser").arg("-v").output();
    let (code, _, err) = parts(&o.expect("it runs"));
    assert!(code == 2 && err.contains("fuser: taskdiag can stand in for ps"), "{code} {err}");
    assert!(err.contains("'taskdiag files FILE' says who uses a file"), "{err}");
}

/// Dropping the value ends it, and the processes that it started.
struct Family(Child);

impl Drop for Family {
    fn drop(&mut self) {
        // The shell ends its children; it may have ended already.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn our_tree_is_that_of_pstree_with_the_same_options() {
    let pstree = |args: &[&str]| {
        let o = Command::new("pstree").env("LC_ALL", "C").args(args).output().ok()?;
        o.status.success().then(|| String::from_utf8_lossy(&o.stdout).into_owned())
    };
    if Command::new("pstree").arg("-V").stderr(Stdio::null()).status().is_err() {
        return skip(
            "our_tree_is_that_of_pstree_with_the_same_options",
            "pstree (psmisc) is not installed",
        );
    }
    let script = "trap 'kill $(jobs -p); exit' TERM; sleep 1000 & sleep 1000 & \
                  (trap 'kill $!; exit' TERM; sleep 1001 & wait) & tail -f /dev/null & wait";
    let shell = Command::new("bash").args(["-c", script]).stdin(Stdio::null()).spawn();
    let family = Family(shell.expect("bash is there"));
    let pid = family.0.id().to_string();
    // All of them must have started.
    let drawn = ["bash---sleep", "2*[sleep]", "tail"];
    for _ in 0..3000 {
        if pstree(&["-A", "-T", &pid]).is_some_and(|t| drawn.iter().all(|d| t.contains(d))) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for args in [&[][..], &["-p"], &["-c"], &["-a"], &["-n"], &["-p", "-n"], &["-u"]] {
        let want = pstree(&[&["-A", "-T", "-l"], args, &[&pid]].concat()).expect("pstree answers");
        let got = parts(&run(&[&["tree", "-A", "-T"], args, &[&pid]].concat())).1;
        assert_eq!(got, want, "{args:?}");
        assert!(want.lines().count() > 2, "{want}");
    }
}
