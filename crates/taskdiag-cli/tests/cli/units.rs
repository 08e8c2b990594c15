//! Sizes: one way to choose how they look for every command, by options or by a file.

use std::fs;
use std::path::Path;

use super::common::{Saved, Task, parts, taskdiag};

fn saved() -> Saved {
    let large = Task { rss: Some(3 << 20), ..Task::new(10, 1, "large") };
    Saved::tasks(&[large])
}

fn run(saved: &Saved, home: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = taskdiag();
    command.args(args).arg("--from").arg(saved.path());
    command.env("HOME", home).env_remove("XDG_CONFIG_HOME");
    parts(&command.output().expect("it runs"))
}

#[test]
fn every_command_with_sizes_has_the_same_options() {
    let saved = saved();
    let home = tempfile::tempdir().expect("a directory");
    for (command, plain) in [("ps", "3072"), ("memory", "3072")] {
        for (options, want) in [
            (&[][..], plain),
            (&["--human"], "3.0M"),
            (&["--units", "human"], "3.0M"),
            (&["--units=kib"], "3072"),
            (&["--units", "bytes"], "3145728"),
            (&["--units", "bytes", "--json"], "3145728"),
            (&["--human", "--csv"], "3145728"),
        ] {
            let (code, out, err) =
                run(&saved, home.path(), &[&[command, "-o", "rss", "-p", "10"], options].concat());
            assert!(code == 0 && out.contains(want), "{command} {options:?}: {out}{err}");
        }
    }
    for command in ["files", "maps", "top"] {
        let (_, out, _) = parts(&taskdiag().args([command, "--help"]).output().expect("it runs"));
        assert!(out.contains("--units") && out.contains("--human"), "{command}: {out}");
    }
}

#[test]
fn a_header_names_kib_only_if_sizes_are_in_kib() {
    let pid = std::process::id().to_string();
    for (view, kib) in [(&["-x"][..], "Kbytes"), (&["--by", "path"], "Kbytes"), (&[], "Kbytes")] {
        for (units, header) in [("kib", kib), ("auto", kib), ("human", "Size"), ("bytes", "Size")] {
            let args = [&["maps", "--units", units], view, &[&pid]].concat();
            let (code, out, err) = parts(&taskdiag().args(&args).output().expect("it runs"));
            let head = out.lines().find(|l| l.contains("Path") || l.contains("Mapping"));
            let head: Vec<&str> = head.unwrap_or_default().split_whitespace().collect();
            assert!(code == 0 && head.contains(&header), "{args:?}: {head:?}{err}");
        }
    }
}

#[test]
fn a_default_stands_in_a_file_of_the_user_and_an_option_beats_it() {
    let saved = saved();
    let home = tempfile::tempdir().expect("a directory");
    let config = home.path().join(".config");
    fs::create_dir(&config).expect("made");
    let file = config.join("taskdiag.toml");
    let ps = |more: &[&str]| run(&saved, home.path(), &[&["ps", "-o", "rss="], more].concat());
    fs::write(&file, "# mine\nunits = \"human\"\n").expect("written");
    let (code, out, err) = ps(&[]);
    assert_eq!((code, out.trim(), err.as_str()), (0, "3.0M", ""));
    assert_eq!(ps(&["--units", "kib"]).1.trim(), "3072");
    assert_eq!(ps(&["--json"]).1.matches("3145728").count(), 1);
    for (text, word) in [("units = \"miles\"", "line 1"), ("theme = \"dark\"", "only key")] {
        fs::write(&file, text).expect("written");
        let (code, out, err) = ps(&[]);
        assert!(code == 2 && out.is_empty(), "{err}");
        assert!(err.contains("taskdiag.toml") && err.contains(word), "{err}");
    }
    fs::write(&file, vec![b'#'; 1 << 20]).expect("written");
    assert!(ps(&[]).2.contains("larger than 64 KiB"), "{:?}", ps(&[]));
    fs::remove_file(&file).expect("removed");
    // A FIFO has no writer, so a program that opens it to read would wait.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("made");
    assert!(ps(&[]).2.contains("not a regular file"), "{:?}", ps(&[]));
    fs::remove_file(&file).expect("removed");
    if rustix::process::geteuid().is_root() {
        // The file of another user, as with a HOME that sudo kept.
        fs::write(&file, "units = \"human\"\n").expect("written");
        std::os::unix::fs::chown(&file, Some(65534), None).expect("we are root");
        let (code, out, err) = ps(&[]);
        assert_eq!((code, out.trim()), (0, "3072"), "{err}");
        assert!(err.contains("belongs to uid 65534, so it is not used"), "{err}");
    } else {
        eprintln!("SKIPPED units: only root can make a file of another user");
    }
}

#[test]
fn columns_are_found_in_any_case() {
    let saved = saved();
    let home = tempfile::tempdir().expect("a directory");
    for args in [
        &["ps", "-o", "PID, User"][..],
        &["ps", "-eo", "Pid,USER", "--sort", "-RSS"],
        &["memory", "-o", "PID,user", "--sort", "-Rss"],
        &["memory", "--by", "USER", "-o", "user"],
        &["ps", "-o", "pid", "--where", "RSS > 1M and Comm == large"],
    ] {
        let (code, out, err) = run(&saved, home.path(), args);
        assert!(code == 0 && out.lines().count() >= 2, "{args:?}: {out}{err}");
    }
}

#[test]
fn columns_are_found_by_a_word() {
    let fields =
        |words: &[&str]| parts(&taskdiag().arg("fields").args(words).output().expect("it runs"));
    let (code, out, _) = fields(&["resident"]);
    assert!(code == 0 && out.contains("\nrss ") && !out.contains("\ncomm "), "{out}");
    let (_, out, _) = fields(&["RSS", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(all.as_array().is_some_and(|a| a.iter().any(|f| f["name"] == "rss")), "{out}");
    let (code, _, err) = fields(&["nosuchword"]);
    assert!(code == 2 && err.contains("no column has 'nosuchword'"), "{err}");
}
