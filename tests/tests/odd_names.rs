//! Tests names that are hard to read, of files, mappings, threads, mounts, sockets and control
//! groups: each engine must report them to the byte, and so must the faces that promise it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use taskdiag::wire::{Base, Fd, ListEntry, Socket, Vma};
use taskdiag::{Group, Groups, Request};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::rows::{Row, owner, rows};
use taskdiag_tests::state::parity_near;
use taskdiag_tests::{Answer, Mktask, Value, plain_dir, read};

/// The entries of a list by the number that this member has.
fn by<T: ListEntry>(a: &Answer, pid: u32, group: Group, member: &str) -> BTreeMap<i128, Row> {
    let key = |row: &Row| match row.get(member) {
        Some(Value::Num(n)) => *n,
        other => panic!("{a}: {member} is {other:?}"),
    };
    rows::<T>(&owner(a, pid, group)).into_iter().map(|r| (key(&r), r)).collect()
}

/// The name and whether it is deleted.
fn name(row: &Row) -> (String, bool) {
    match (row.get("name"), row.get("name.deleted")) {
        (Some(Value::Bytes(b)), deleted) => {
            (b.escape_ascii().to_string(), deleted == Some(&Value::Num(1)))
        }
        other => panic!("{other:?} in {row:?}"),
    }
}

/// The expected names of the state: by descriptor, and by the address of the mapping.
struct Want {
    fds: BTreeMap<i128, (String, bool)>,
    maps: BTreeMap<i128, (String, bool)>,
}

fn wanted(m: &Mktask, dir: &str) -> Want {
    let mut want = Want { fds: BTreeMap::new(), maps: BTreeMap::new() };
    let names: usize = m.num("names");
    for i in 0..names + 2 {
        let path = (m.bytes(&format!("name{i}")).escape_ascii().to_string(), false);
        want.fds.insert(m.num(&format!("fd{i}")), path.clone());
        want.maps.insert(m.num(&format!("map{i}")), path);
    }
    for i in 0..names {
        let bare = m.bytes(&format!("bare{i}"));
        for (key, path) in [
            ("gone", [format!("{dir}/gone/").as_bytes(), &bare].concat()),
            ("mem", [b"/memfd:", &bare[..]].concat()),
        ] {
            let path = (path.escape_ascii().to_string(), true);
            want.fds.insert(m.num(&format!("{key}fd{i}")), path.clone());
            want.maps.insert(m.num(&format!("{key}map{i}")), path);
        }
    }
    want
}

fn names_are_exact(args: &[&str], dir: &str) {
    let Some(m) = Mktask::if_possible(args) else { return };
    let want = wanted(&m, dir);
    assert!(want.fds.len() > 70 && want.maps.len() > 70);
    let mut wrong = BTreeSet::new();
    let mut check = |what: String, got: Option<&Row>, want: &(String, bool)| {
        let got = got.map(name);
        if got.as_ref() != Some(want) {
            wrong.insert(format!("{what}: {got:?}, which is {want:?}"));
        }
    };
    for source in engines_with(Group::Vma) {
        for groups in [Groups::VMA, Groups::VMA | Groups::VMA_STAT, Groups::VMA | Groups::FILE_STAT]
        {
            let Ok(a) = read(source, &Request::one(m.pid(), groups)) else { continue };
            let list = by::<Vma>(&a, m.pid(), Group::Vma, "start");
            for (at, want) in &want.maps {
                check(format!("{source}: mapping, {groups:?}"), list.get(at), want);
            }
        }
    }
    for source in engines_with(Group::Fd) {
        let a = read(source, &Request::one(m.pid(), Groups::FD)).expect("an answer");
        let list = by::<Fd>(&a, m.pid(), Group::Fd, "fd");
        for (fd, want) in &want.fds {
            check(format!("{source}: descriptor"), list.get(fd), want);
        }
    }
    let threads: BTreeSet<Vec<u8>> = (0..m.num::<usize>("names"))
        .map(|i| m.bytes(&format!("bare{i}")))
        .map(|bare| bare[..bare.len().min(15)].to_vec())
        .collect();
    for source in engines_with(Group::Base) {
        let a = read(source, &Request::threads(m.pid(), Groups::BASE)).expect("an answer");
        let comms = a.snapshot.tasks().filter_map(|t| {
            let comm = t.record::<Base>()?.comm()?;
            Some(comm.split(|b| *b == 0).next().unwrap_or_default().to_vec())
        });
        let comms: BTreeSet<_> = comms.collect();
        let lacking: Vec<_> =
            threads.difference(&comms).map(|c| c.escape_ascii().to_string()).collect();
        assert!(lacking.is_empty(), "{source}: no thread {lacking:?}");
    }
    let list: Vec<_> = wrong.into_iter().collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
}

#[test]
fn names_of_files_mappings_and_threads_are_exact() {
    let (_dir, path) = plain_dir();
    names_are_exact(&["odd-names", &path], &path);
}

/// Where no path leads to the files for us.
#[test]
fn names_in_another_mount_namespace_are_exact() {
    let (_dir, path) = plain_dir();
    names_are_exact(&["odd-names", &path, "elsewhere"], &path);
}

#[test]
fn all_engines_agree_on_odd_names() {
    let (_dir, path) = plain_dir();
    let (_other, below) = plain_dir();
    parity_near("odd names", &["odd-names", &path], |_, _, _| {});
    parity_near("odd places", &["odd-places", &below], |_, _, _| {});
}

#[test]
fn names_of_mounts_directories_and_sockets_are_exact() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["odd-places", &path]) else { return };
    let file = (m.bytes("file_name").escape_ascii().to_string(), false);
    for source in engines_with(Group::Vma) {
        let a = read(source, &Request::one(m.pid(), Groups::VMA)).expect("an answer");
        let list = by::<Vma>(&a, m.pid(), Group::Vma, "start");
        assert_eq!(name(&list[&m.num("map")]), file, "{a}");
    }
    for source in engines_with(Group::Fd) {
        let a = read(source, &Request::one(m.pid(), Groups::FD)).expect("an answer");
        assert_eq!(name(&by::<Fd>(&a, m.pid(), Group::Fd, "fd")[&m.num("file")]), file, "{a}");
        let sockets = by::<Socket>(&a, m.pid(), Group::Fd, "fd");
        let socket = (m.bytes("socket_name").escape_ascii().to_string(), false);
        assert_eq!(name(&sockets[&m.num("socket")]), socket, "{a}");
    }
}

#[test]
fn names_of_control_groups_are_exact() {
    for name in ["odd", "long"] {
        parity_near("odd cgroups", &["cgroup", name], |m, a, t| {
            if m.has("v2") {
                let path = m.bytes("v2");
                let got = t.bytes("cgroup.0");
                let end = got.strip_prefix(b":").unwrap_or(got);
                assert!(end.ends_with(&path), "{a}: {}", got.escape_ascii());
            }
        });
    }
}

/// JSON has each byte: a name that is not text is in a member of its own.
#[test]
fn json_tells_odd_names_of_mappings_and_files_apart() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["odd-names", &path]) else { return };
    let pid = m.pid().to_string();
    let engines: BTreeSet<String> =
        engines_with(Group::Vma).iter().map(|s| s.id().to_string()).collect();
    for engine in engines {
        let maps = ["maps", "--engine", &engine, "--json", "-o", "start,mapping", &pid];
        let files = [
            "files",
            "--engine",
            &engine,
            "--json",
            "-a",
            "-d",
            "0-190",
            "-o",
            "fdnum,name",
            "-p",
            &pid,
        ];
        for (args, column) in [(&maps[..], "mapping"), (&files, "name")] {
            let ran = Sandbox::new().run(args);
            let Ok(Json::Array(list)) = serde_json::from_str(&ran.stdout) else { panic!("{ran}") };
            let texts: BTreeSet<&str> = list.iter().filter_map(|r| r[column].as_str()).collect();
            for bare in [
                "a\nb",
                "a\\012b",
                "\\134012",
                "tail\\",
                "x (deleted)",
                "bidi\u{202e}",
                "csi\u{9b}31m",
            ] {
                let want = format!("{path}/{bare}");
                assert!(texts.contains(want.as_str()), "{engine}: no {want:?} in {texts:?}");
            }
            let bytes = format!("{column}_bytes");
            assert!(list.iter().any(|r| !r[&bytes].is_null()), "{engine}: no bytes in {ran}");
        }
    }
}

/// pmap prints names as the kernel writes them in maps, where two names look the same.
#[test]
fn as_pmap_odd_names_are_those_of_maps() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["odd-names", &path]) else { return };
    let pid = m.pid().to_string();
    let ran = Sandbox::new().run(&["--as", "pmap", "-p", &pid]);
    let same = ran.stdout.lines().filter(|l| l.ends_with(&format!("{path}/a\\012b"))).count();
    assert_eq!(same, 2, "{ran}");
}

/// Linux before 6.11 cannot be asked for a name without escapes, and only root may read the links
/// in map_files.
#[test]
fn names_of_mappings_are_exact_where_the_kernel_cannot_be_asked_for_them() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["odd-names", &path]) else { return };
    let pid = m.pid().to_string();
    let args = ["maps", "--engine", "procfs", "--json", "-o", "start,mapping", &pid];
    let old = || Sandbox::new().deny(libc::SYS_ioctl, libc::ENOTTY);
    for sandbox in [old(), old().deny(libc::SYS_readlinkat, libc::EPERM)] {
        let ran = sandbox.run(&args);
        let Ok(Json::Array(list)) = serde_json::from_str(&ran.stdout) else { panic!("{ran}") };
        let texts: BTreeSet<&str> = list.iter().filter_map(|r| r["mapping"].as_str()).collect();
        for bare in ["a\nb", "a\\012b", "x (deleted)", "lit\\012 (deleted)"] {
            let want = format!("{path}/{bare}");
            assert!(texts.contains(want.as_str()), "no {want:?} in {texts:?}");
        }
    }
}
