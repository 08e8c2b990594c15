//! `taskdiag cgroups` beside the files of the kernel, with cgroups that the tests make.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::common::{parts, run, skip, taskdiag};

/// A cgroup of version 2, or else of version 1, with others below it.
struct Made {
    name: String,
    dir: PathBuf,
    inner: Vec<Vec<u8>>,
}

impl Made {
    /// `inner`: the names of the cgroups below it.
    fn new(what: &str, inner: &[&[u8]]) -> Option<Made> {
        let name = format!("taskdiag-cli-{what}-{}", std::process::id());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let points = |kind: &str| {
            let lines = mounts.lines().filter(move |l| l.contains(kind) && !l.contains("cpuset"));
            lines.filter_map(|l| l.split(' ').nth(4)).map(PathBuf::from).collect::<Vec<_>>()
        };
        let all = [points(" - cgroup2 "), points(" - cgroup ")].concat();
        let made = all.iter().map(|p| p.join(&name)).find(|p| std::fs::create_dir(p).is_ok());
        let Some(dir) = made else {
            skip(&format!("cgroups::{what}"), "no cgroup can be made");
            return None;
        };
        let inner: Vec<Vec<u8>> = inner.iter().map(|name| name.to_vec()).collect();
        for name in &inner {
            std::fs::create_dir(dir.join(OsStr::from_bytes(name))).expect("made");
        }
        Some(Made { name, dir, inner })
    }
    fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for name in self.inner.iter().rev() {
            let _ = std::fs::remove_dir(self.dir.join(OsStr::from_bytes(name)));
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn json(args: &[&str]) -> Vec<Value> {
    let (code, out, err) = parts(&run(&[&["cgroups", "--json"], args].concat()));
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).expect("valid JSON")
}

#[test]
fn a_tree_has_each_cgroup_below_its_parent() {
    let Some(made) = Made::new("tree", &[b"b", b"b/x", b"a"]) else { return };
    let path = made.path();
    let text = |args: &[&str]| parts(&run(&[&["cgroups", &path], args].concat())).1;
    let lines = text(&["-o", "branch"]);
    assert_eq!(lines, format!("CGROUP\n{path}\n \\_ a\n \\_ b\n     \\_ x\n"));
    let lines = text(&["-o", "branch", "--sort", "-path", "--no-headers"]);
    assert_eq!(lines, format!("{path}\n \\_ b\n |   \\_ x\n \\_ a\n"));
    // Ancestors of a match are shown, so that its place is clear.
    let lines = text(&["-o", "branch", "--no-headers", "--where", "name == x"]);
    assert_eq!(lines, format!("{path}\n \\_ b\n     \\_ x\n"));
    let lines = text(&["-o", "path", "--no-headers", "--flat", "--where", "name == x"]);
    assert_eq!(lines, format!("{path}/b/x\n"));
    let rows = json(&[&path, "-o", "path,level", "--sort", "-level", "--where", "level > 1"]);
    let paths: Vec<&str> = rows.iter().filter_map(|r| r["path"].as_str()).collect();
    assert_eq!(paths, [format!("{path}/b/x"), format!("{path}/a"), format!("{path}/b")]);
    // A directory names its cgroup, with or without a slash at its end.
    let given = format!("{path}/b/");
    assert_eq!(json(&[&given, "-o", "path"]).len(), 2);
    if let Ok(below) = made.dir.strip_prefix("/sys/fs/cgroup") {
        let is_mount = below.components().count() == 1 || below.starts_with("unified");
        let dir = made.dir.to_str().expect("a path of ours");
        assert!(!is_mount || json(&[dir, "-o", "path"]).len() == 4);
    }
}

#[test]
fn rows_have_the_values_of_the_files() {
    let Some(made) = Made::new("values", &[]) else { return };
    let rows = json(&[&made.path(), "-o", "path,id,procs,own_procs,level,name,version,slice"]);
    let id = std::os::unix::fs::MetadataExt::ino(&made.dir.metadata().expect("it is there"));
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row["id"].as_u64(), row["procs"].as_u64()), (Some(id), Some(0)));
    assert_eq!((row["own_procs"].as_u64(), row["level"].as_u64()), (Some(0), Some(1)));
    assert_eq!(
        (row["name"].as_str(), row["slice"].as_str()),
        (Some(&made.name[..]), Some("-.slice"))
    );
    // The process itself is in some cgroup.
    let all = json(&["-o", "path,own_procs,procs,tasks"]);
    let sum: u64 = all.iter().filter_map(|r| r["own_procs"].as_u64()).sum();
    let (root, rest) = all.split_first().expect("there is a root");
    assert_eq!(root["path"], "/");
    assert!(sum > 0 && rest.iter().all(|r| r["path"] != "/"));
    assert!(root["tasks"].as_u64() >= root["procs"].as_u64(), "{root}");
}

#[test]
fn hostile_names_are_one_line_and_lossless() {
    let names = [&b"\x1b[31mred"[..], b"\xff", "\u{202e}abc".as_bytes(), b"\\x2d", b"=1+1"];
    let Some(made) = Made::new("names", &names) else { return };
    let (code, out, err) = parts(&run(&["cgroups", &made.path(), "--flat", "-o", "name"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), names.len() + 2, "{out:?}");
    assert!(!out.contains(['\x1b', '\u{202e}']), "{out:?}");
    let rows = json(&[&made.path(), "-o", "name"]);
    let odd = rows.iter().find(|r| r.get("name_bytes").is_some()).expect("one is not UTF-8");
    assert_eq!(odd["name_bytes"], "/w==");
    assert!(rows.iter().any(|r| r["name"] == "\x1b[31mred"));
    let (_, csv, _) = parts(&run(&["cgroups", &made.path(), "--csv", "-o", "name"]));
    assert!(csv.contains("\\x3d1+1") && !csv.contains('\x1b'), "{csv:?}");
}

#[test]
fn the_view_for_people_leaves_room_for_names() {
    if !Path::new("/sys/fs/cgroup").exists() {
        return skip("cgroups::view", "no cgroup file system is mounted");
    }
    for args in [&["cgroups"][..], &["cgroups", "-d", "20ms"], &["cgroups", "--flat"]] {
        let (code, out, err) = parts(&run(args));
        assert_eq!(code, 0, "{err}");
        let header = out.lines().next().expect("it has a header");
        let before = header.find("CGROUP").expect("the name comes last");
        assert!(before <= 70 && header.ends_with("CGROUP"), "{header:?}");
        assert!(header.contains("TASKS"), "{header:?}");
        assert!(args.len() != 3 || header.contains("%CPU"), "{header:?}");
    }
}

#[test]
fn errors_of_cgroups_name_the_wrong_word() {
    for (args, code, word) in [
        (&["cgroups", "/taskdiag/nosuch"][..], 1, "/taskdiag/nosuch"),
        (&["cgroups", "taskdiag-nosuch"], 1, "--unit taskdiag-nosuch shows"),
        (&["cgroups", "/a/../b"], 2, ".."),
        (&["cgroups", ""], 2, "empty"),
        (&["cgroups", "-d", "0"], 2, "--delay"),
        (&["cgroups", "-o", "pid"], 2, "'pid' is a column of 'taskdiag ps'"),
        (&["cgroups", "-o", "memroy"], 2, "memory"),
        (&["cgroups", "-o", "rss"], 2, "the memory of a cgroup is memory"),
        (&["cgroups", "--sort", "-nlwp"], 2, "the number of threads is tasks"),
        (&["cgroups", "--where", "limit > 0"], 2, "limits are memory_max"),
        (&["cgroups", "--where", "memory > x"], 2, "memory"),
    ] {
        let (got, out, err) = parts(&run(args));
        assert_eq!(got, code, "{args:?}: {err}");
        assert!(err.contains(word) && out.is_empty(), "{args:?}: {err}");
    }
}

/// The memory of each cgroup, as systemd-cgtop prints it.
fn cgtop() -> Option<HashMap<String, u64>> {
    let mut command = std::process::Command::new("systemd-cgtop");
    command.args(["--batch", "--iterations=1", "--raw", "--depth=9"]);
    let out = command.output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    // PATH TASKS %CPU MEMORY READ WRITTEN
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.nth(2)?.parse().ok()?))
    };
    Some(text.lines().filter_map(row).collect())
}

/// Compares the memory of cgroups with the output of systemd-cgtop from before and after. Returns
/// how many cgroups agree, and how many were compared.
fn like_cgtop() -> Option<(usize, usize)> {
    let before = cgtop().filter(|all| !all.is_empty())?;
    let ours = json(&["-o", "path,memory"]);
    let after = cgtop().expect("it ran before");
    let (mut equal, mut compared) = (0, 0);
    for row in &ours {
        let Some(path) = row["path"].as_str() else { continue };
        let (Some(before), Some(after)) = (before.get(path), after.get(path)) else { continue };
        let Some(value) = row["memory"].as_u64() else { continue };
        compared += 1;
        // Other processes use memory beside the test, and may also free some between the two looks
        // of systemd-cgtop.
        let (least, most) = (*before.min(after), *before.max(after));
        let some = (most - least).max(1 << 20);
        let is_near = (least.saturating_sub(some)..=most + some).contains(&value);
        equal += usize::from(is_near);
    }
    Some((equal, compared))
}

#[test]
fn memory_is_that_of_systemd_cgtop() {
    // The memory of a cgroup that works hard goes up and down, and there may be few others.
    for _ in 0..20 {
        match like_cgtop() {
            None => return skip("cgroups::cgtop", "there is no systemd-cgtop that shows cgroups"),
            Some((_, 0)) => {
                return skip("cgroups::cgtop", "systemd-cgtop shows the memory of no cgroup");
            }
            Some((equal, compared)) if equal * 10 >= compared * 8 => return,
            Some((equal, compared)) => {
                println!("{equal} of {compared} are as systemd-cgtop has them")
            }
        }
    }
    panic!("in none of 20 looks is memory as systemd-cgtop has it");
}

/// A size in another unit must not become 0 where there is none. Files have this, too.
#[test]
fn a_size_that_is_not_there_is_not_zero_in_any_unit() {
    let _pair = UnixStream::pair().expect("a pair");
    let own = std::process::id().to_string();
    for unit in ["human", "kib", "bytes", "auto"] {
        let mut command = taskdiag();
        command.args(["files", "-p", &own, "-o", "type,size", "--units", unit]);
        let (_, out, err) = parts(&command.output().expect("the program runs"));
        let sockets: Vec<&str> = out.lines().filter(|l| l.contains("unix")).collect();
        assert!(!sockets.is_empty(), "{out} {err}");
        assert!(sockets.iter().all(|l| l.trim_end().ends_with(" -")), "{unit}: {sockets:?}");
    }
}

#[test]
fn an_unknown_container_is_reported_with_a_command_that_lists_all() {
    for (option, name) in [("container", "no-such-name"), ("pod", "no-such/name")] {
        let (code, _, err) = parts(&run(&["cgroups", &format!("--{option}"), name]));
        let hint = "'taskdiag cgroups --flat -o container_name,pod_name,path'";
        assert!(code == 1 && err.contains(hint), "{code} {err}");
    }
}
