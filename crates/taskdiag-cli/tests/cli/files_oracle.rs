//! The conditions and the locks of `taskdiag files` against lsof. `peers` and `peers_of_lists` of
//! taskdiag-tests compare rows and sockets with lsof, lsfd and ss.

use std::io::{BufRead, BufReader, Lines};
use std::os::fd::AsRawFd;
use std::process::{ChildStdout, Command, Stdio};

use super::common::{Ended, parts, run, skip, taskdiag};

/// The engines that list open files here.
fn engines() -> Vec<&'static str> {
    let all = ["bpf", "procfs", "kernel"];
    let there = |e: &&str| {
        matches!(run(&["files", "--engine", e, "-p", "1"]).status.code(), Some(0 | 1 | 3))
    };
    all.into_iter().filter(there).collect()
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let o = Command::new(program).env("LC_ALL", "C").args(args).output().ok()?;
    Some(String::from_utf8_lossy(&o.stdout).into_owned())
}

#[test]
fn users_of_a_directory_match_lsof() {
    let Some(_) = output("lsof", &["-v"]) else {
        return skip("files_oracle::users_of_a_directory_match_lsof", "lsof is not installed");
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (inner, other) = (dir.path().join("a/inner"), dir.path().join("other"));
    std::fs::create_dir_all(&inner).expect("made");
    std::fs::create_dir(&other).expect("made");
    let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
    let (above, inner, other) = (path(&dir.path().join("a")), path(&inner), path(&other));
    let sleep = |program: &str, args: &[&str], cwd: &str| {
        let mut c = Command::new(program);
        let null = std::process::Stdio::null;
        c.args(args).current_dir(cwd).stdin(null()).stdout(null()).stderr(null());
        Ended(c.spawn().expect("it is there"))
    };
    let agree = |args: &[&str], who: &[&Ended]| {
        let mut who: Vec<u32> = who.iter().map(|p| p.0.id()).collect();
        who.sort_unstable();
        let pids = |s: &str| {
            let mut all: Vec<u32> = s.split_whitespace().filter_map(|p| p.parse().ok()).collect();
            all.sort_unstable();
            all
        };
        let theirs = pids(&output("lsof", &[&["-t", "-n", "-P"], args].concat()).unwrap());
        assert_eq!(theirs, who, "lsof {args:?}");
        for engine in engines() {
            let ours = [&["files", "-t", "--engine", engine], args].concat();
            let (_, own, err) = parts(&run(&ours));
            assert_eq!(pids(&own), theirs, "{engine} {args:?}: {err}");
        }
    };
    let first = sleep("sleep", &["1000"], &inner);
    for args in [&["+D", &*above][..], &["+d", &*inner], &[&*inner]] {
        agree(args, &[&first]);
    }
    // The same directory under another name, recognizable only by its inode.
    let script =
        format!("mount --bind {inner} {other} && cd {other} && touch up && exec sleep 1000");
    let mut second = sleep("unshare", &["-m", "sh", "-c", &script], "/");
    let up = dir.path().join("a/inner/up");
    let comm = format!("/proc/{}/comm", second.0.id());
    let is_up = || up.exists() && std::fs::read_to_string(&comm).is_ok_and(|c| c == "sleep\n");
    // If a step of the script is refused, the process ends.
    while !is_up() && second.0.try_wait().expect("it is ours").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    if !is_up() {
        return skip("who is in a directory of two names", "unshare -m or mount --bind is refused");
    }
    // /proc/task_diag has no FILE_STAT.
    if !engines().contains(&"kernel") {
        agree(&["+d", &inner], &[&first, &second]);
        agree(&[&inner], &[&first, &second]);
    }
}

/// A path that now leads to another file does not match the file that was there before. A file
/// matches a directory by whatever name it was opened.
#[test]
fn files_are_identified_as_in_lsof() {
    let Some(_) = output("lsof", &["-v"]) else {
        return skip("files_oracle::files_are_identified_as_in_lsof", "lsof is not installed");
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::create_dir_all(path("d/sub")).expect("made");
    let (again, name, within) = (path("again"), path("name"), path("d/sub/name"));
    std::fs::write(&again, "before").expect("written");
    std::fs::write(&within, "two names").expect("written");
    std::fs::hard_link(&within, &name).expect("linked");
    let held = [&again, &name].map(|p| std::fs::File::open(p).expect("it is there"));
    std::fs::remove_file(&again).expect("removed");
    let pid = std::process::id().to_string();
    let rows = |engine: &str, args: &[&str]| {
        let ours = [&["files", "-t", "--engine", engine, "-a", "-p", &pid], args].concat();
        let (_, out, err) = parts(&run(&ours));
        let theirs = output("lsof", &[&["-t", "-a", "-p", &pid], args].concat()).unwrap();
        (out.trim() == pid, theirs.trim() == pid, format!("{engine} {args:?}: {out}{err}"))
    };
    for engine in engines() {
        // No file exists at this path now. Only its name is left, which lsof does not look for.
        let (ours, _, what) = rows(engine, &[&again]);
        assert!(ours, "{what}");
    }
    std::fs::write(&again, "after").expect("written");
    for engine in engines() {
        for (args, is) in [
            (&[&*again][..], false),
            (&[&*within], true),
            (&["+D", &*path("d")], true),
            (&["+d", &*path("d")], false),
            (&["+d", &*path("d/sub")], true),
        ] {
            let (ours, theirs, what) = rows(engine, args);
            assert_eq!((ours, theirs), (is, is), "{what}");
        }
    }
    drop(held);
}

/// Locks of this process, and the letters for them in the column FD.
#[test]
fn locks_as_lsof_has_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| {
        let mut options = std::fs::File::options();
        options.read(true).write(true).create(true).truncate(true);
        options.open(dir.path().join(name)).expect("a new file")
    };
    let part = |file: &std::fs::File, kind: libc::c_int| {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 10,
            l_len: 10,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the struct outlives the call.
        let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &mut lock) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    };
    let files = ["r", "w", "R", "W", "free"].map(file);
    part(&files[0], libc::F_RDLCK);
    part(&files[1], libc::F_WRLCK);
    rustix::fs::flock(&files[2], rustix::fs::FlockOperation::LockShared).expect("locked");
    rustix::fs::fcntl_lock(&files[3], rustix::fs::FlockOperation::LockExclusive).expect("locked");
    // A process that waits for a lock holds none.
    let mut waits = Command::new("flock").arg(dir.path().join("R")).arg("true").spawn();
    let pid = std::process::id().to_string();
    // In lsof the column is the fourth.
    let rows = |out: &str, column: usize| {
        let ours = out.lines().filter(|l| l.contains(dir.path().to_str().expect("UTF-8")));
        let mut rows: Vec<(String, String)> = ours
            .map(|l| {
                let words: Vec<&str> = l.split_whitespace().collect();
                let name = words.last().expect("a name").rsplit('/').next().expect("a path");
                (name.to_owned(), words[column].trim_start_matches(char::is_numeric).to_owned())
            })
            .collect();
        rows.sort();
        rows
    };
    let (_, own, err) = parts(&run(&["files", "-nP", "-p", &pid]));
    let wanted = [("R", "uR"), ("W", "uW"), ("free", "u"), ("r", "ur"), ("w", "uw")];
    let wanted = wanted.map(|(name, fd)| (name.to_owned(), fd.to_owned()));
    assert_eq!(rows(&own, 4), wanted, "{own} {err}");
    let (_, own, _) = parts(&run(&["files", "-p", &pid, "-o", "lock,name", "--no-headers"]));
    let of = |name: &str| own.lines().find(|l| l.ends_with(&format!("/{name}")));
    assert!(of("W").expect("a row").trim_start().starts_with("W "), "{own}");
    if let Some(theirs) = output("lsof", &["-nP", "-p", &pid]) {
        assert_eq!(rows(&theirs, 3), wanted, "{theirs}");
    } else {
        skip("files_oracle::locks_as_lsof_has_them", "lsof is not installed");
    }
    let dump = super::common::Saved::bytes(&run(&["dump", "--pid", &pid]).stdout);
    // A saved answer has no locks, and the present locks of the machine do not belong to it.
    let path = dump.path();
    let path = path.to_str().expect("UTF-8");
    let (code, out, err) = parts(&run(&["files", "--from", path, "-o", "fd,lock,name"]));
    assert!(code == 0 && err.contains("lock of 1 process was not known"), "{out} {err}");
    let (code, out, err) = parts(&run(&["files", "--from", path]));
    assert!(code == 0 && out.contains("/free") && !out.contains("uW"), "{out} {err}");
    drop(files);
    if let Ok(waits) = &mut waits {
        let _ = waits.wait();
    }
}

/// `-r` repeats until it is stopped, `+r` until there is nothing to list.
#[test]
fn lists_are_repeated_as_in_lsof() {
    let target = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
    let target = Ended(target);
    let pid = target.0.id().to_string();
    let start = |repeat: &str| {
        let mut command = taskdiag();
        command.args(["files", repeat, "-p", &pid, "-t"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        (Ended(child), lines)
    };
    let next =
        |lines: &mut Lines<BufReader<ChildStdout>>| lines.next().expect("a line").expect("text");
    let (_ever, mut of_ever) = start("-r1");
    let (mut while_any, mut of_while_any) = start("+r1");
    for lines in [&mut of_ever, &mut of_while_any] {
        let four: Vec<String> = (0..4).map(|_| next(lines)).collect();
        assert_eq!(four, [pid.as_str(), "=======", pid.as_str(), "======="]);
    }
    drop(target);
    // The child may have been listed once more before it ended.
    let rest: Vec<String> = of_while_any.map(|l| l.expect("text")).collect();
    assert!(rest.is_empty() || rest == [pid.as_str(), "======="], "{rest:?}");
    assert_eq!(while_any.0.wait().expect("ours").code(), Some(0));
    assert_eq!(start("+r1").0.0.wait().expect("ours").code(), Some(1));
    // Empty lists have the line, too.
    let more: Vec<String> = (0..4).map(|_| next(&mut of_ever)).collect();
    assert!(more.windows(2).any(|two| two == ["=======", "======="]), "{more:?}");
}
