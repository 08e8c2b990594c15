//! Tests which sockets and files the selections of `taskdiag files` match, on each engine. The
//! expected values come from the kernel, about the file itself (stat, fdinfo, the socket's own
//! options).

use serde_json::Value;
use taskdiag::files::bound_sockets;
use taskdiag::{EngineId, Group};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::{Ran, Sandbox};
use taskdiag_tests::{Mktask, plain_dir, skip};

/// The engines that list open and mapped files here, which `files` shows together.
fn engines() -> Vec<&'static str> {
    let mapped = engines_with(Group::Vma);
    let both = engines_with(Group::Fd).into_iter().filter(|s| mapped.contains(s));
    let mut all: Vec<_> = both.map(|s| s.id()).collect();
    all.sort_by_key(|e| *e as u32);
    all.dedup();
    let name = |e: EngineId| match e {
        EngineId::Bpf => Some("bpf"),
        EngineId::Procfs => Some("procfs"),
        EngineId::Kernel => {
            skip(
                "open files of the kernel engine",
                "the series does not look at mounts, links and dead first threads as the others do",
            );
            None
        }
        _ => None,
    };
    let names: Vec<_> = all.into_iter().filter_map(name).collect();
    assert!(!names.is_empty(), "no engine lists open files");
    names
}

fn files(engine: &str, args: &[&str]) -> Ran {
    Sandbox::new().run(&[&["files", "--engine", engine][..], args].concat())
}

/// The rows of a process in JSON.
fn rows(engine: &str, pid: u32, args: &[&str]) -> Vec<Value> {
    let pid = pid.to_string();
    let ran = files(engine, &[&["--json", "-a", "-p", &pid][..], args].concat());
    match serde_json::from_str(&ran.stdout) {
        Ok(Value::Array(rows)) => rows,
        other => panic!("{engine}: {other:?} of {ran}"),
    }
}

/// The descriptors of a process that a selection finds, in order.
fn found(engine: &str, pid: u32, args: &[&str]) -> Vec<u64> {
    let args = [args, &["-o", "fdnum"]].concat();
    let fds = rows(engine, pid, &args);
    // Descriptors from 200 on are mktask's own.
    fds.iter().filter_map(|r| r["fdnum"].as_u64()).filter(|fd| *fd < 200).collect()
}

#[test]
fn a_listener_with_multipath_tcp_is_one_of_tcp() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["files", &path]) else { return };
    if !m.has("mptcp_listen") {
        return skip("multipath TCP", "the kernel has no CONFIG_MPTCP, or net.mptcp.enabled is 0");
    }
    let port = m.text("mptcp_port");
    let (listener, client) = (m.num::<u64>("mptcp_listen"), m.num::<u64>("mptcp_client"));
    for engine in engines() {
        for args in [
            &["-iTCP", "-sTCP:LISTEN"][..],
            &["-i", "-sTCP:LISTEN"],
            &["-i", "-sMPTCP:LISTEN"],
            &["-iMPTCP", "-sTCP:LISTEN"],
            &["-iTCP", "--where", "protocol == TCP and sockstate == LISTEN"],
        ] {
            assert!(found(engine, m.pid(), args).contains(&listener), "{engine}: {args:?}");
        }
        let not = found(engine, m.pid(), &["-i", "-sTCP:^LISTEN"]);
        assert!(!not.contains(&listener) && not.contains(&client), "{engine}: {not:?}");
        let of_port = found(engine, m.pid(), &[&format!("-iTCP:{port}")]);
        assert!(of_port.contains(&listener) && of_port.contains(&client), "{engine}: {of_port:?}");
        let multipath = found(engine, m.pid(), &["-iMPTCP"]);
        assert!(!multipath.contains(&m.num::<u64>("tcp_listen")), "{engine}: {multipath:?}");
        let fd = listener.to_string();
        let row = &rows(engine, m.pid(), &["-d", &fd, "-o", "protocol,sockstate,recvq,sendq"])[0];
        assert_eq!(row["protocol"], "TCP", "{engine}");
        assert_eq!(row["recvq"], 1, "{engine}: {row}");
        if row["sendq"].is_null() && bound_sockets().is_err() {
            skip("the backlog of a listener", "sock_diag(7) lists no such sockets here");
            assert_eq!(row["missing"]["sendq"], "unsupported", "{engine}: {row}");
            continue;
        }
        assert_eq!(row["sendq"], 7, "{engine}: {row}");
    }
}

#[test]
fn a_link_local_address_has_its_interface() {
    let Some(m) = Mktask::if_possible(&["link-local"]) else { return };
    let tcp = ["tcp", "tcp_client", "tcp_server", "mptcp", "mptcp_client", "mptcp_server"];
    let kinds = tcp.into_iter().chain(["udp", "raw", "raw_client"]);
    let made = kinds.filter(|kind| m.has(kind));
    if !m.has("mptcp") {
        skip("multipath TCP", "the kernel has no CONFIG_MPTCP, or net.mptcp.enabled is 0");
    }
    for (kind, engine) in made.flat_map(|kind| engines().into_iter().map(move |e| (kind, e))) {
        let fd = m.num::<u64>(kind).to_string();
        let row = &rows(engine, m.pid(), &["-d", &fd, "-o", "laddr,raddr"])[0];
        assert_eq!(row["laddr"], "fe80::77%1", "{engine} {kind}: {row}");
        let has_peer = kind.contains('_');
        assert_eq!(row["raddr"] == "fe80::77%1", has_peer, "{engine} {kind}: {row}");
    }
}

#[test]
fn a_connected_udp_socket_is_established() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["files", &path]) else { return };
    for engine in engines() {
        let up = found(engine, m.pid(), &["-iUDP", "-sUDP:ESTABLISHED"]);
        assert_eq!(up, [m.num::<u64>("udp_connected")], "{engine}");
    }
}

#[test]
fn a_file_with_a_name_left_is_not_deleted() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["links", &path]) else { return };
    let of = |facts: &[&str]| -> Vec<u64> {
        let mut all: Vec<_> = facts.iter().filter(|f| m.has(f)).map(|f| m.num(f)).collect();
        all.sort_unstable();
        all
    };
    for fact in ["named_later", "secret"].iter().filter(|f| !m.has(f)) {
        skip(&format!("deleted: {fact}"), "this machine does not make one");
    }
    let deleted = of(&["gone", "replaced", "nameless"]);
    for engine in engines() {
        for args in [&["--deleted"][..], &["+L1"], &["--where", "deleted"]] {
            assert_eq!(found(engine, m.pid(), args), deleted, "{engine}: {args:?}");
        }
        for fd in of(&["one_of_two", "named_later", "secret"]) {
            let row = &rows(engine, m.pid(), &["-d", &fd.to_string(), "-o", "deleted,nlink"])[0];
            assert_eq!(
                (&row["deleted"], &row["nlink"]),
                (&false.into(), &1.into()),
                "{engine}: {fd}"
            );
        }
        let mapped = rows(engine, m.pid(), &["--mem", "--deleted", "-o", "fd,name"]);
        let names: Vec<_> = mapped.iter().filter(|r| r["fd"] == "DEL").collect();
        assert!(names.is_empty(), "{engine}: {names:?}");
    }
}

#[test]
fn a_lock_is_that_of_the_descriptor() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["locks", &path]) else { return };
    for engine in engines() {
        for (fact, lock) in [
            ("ofd", Some("W")),
            ("second", None),
            ("posix", Some("r")),
            ("inherited", Some("W")),
            ("free", None),
            ("lease", Some("R")),
        ] {
            if !m.has(fact) {
                skip(&format!("locks: {fact}"), "this file system has none");
                continue;
            }
            let fd = m.text(fact);
            let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", m.pid()));
            assert_eq!(info.expect("it is open").contains("\nlock:"), lock.is_some(), "{fact}");
            let row = &rows(engine, m.pid(), &["-d", fd, "-o", "lock,fd_lock"])[0];
            assert_eq!(row.get("lock").and_then(Value::as_str), lock, "{engine}: {fact}: {row}");
            let letter = lock.unwrap_or(" ");
            let shown = row["fd_lock"].as_str().expect("text");
            assert!(shown.ends_with(letter), "{engine}: {fact}: {row}");
        }
    }
}

/// Whether a selection of places finds the process, and by which rows.
fn labels(engine: &str, pid: u32, args: &[&str]) -> Vec<String> {
    let rows = rows(engine, pid, &[args, &["-o", "fdnum,fd"]].concat());
    // Descriptors from 200 on are mktask's own.
    let rows = rows.iter().filter(|r| r["fdnum"].as_u64().is_none_or(|fd| fd < 200));
    let label =
        |r: &Value| r["fd"].as_str().expect("text").trim_end_matches(['r', 'w', 'u']).to_owned();
    rows.map(label).collect()
}

#[test]
fn a_path_of_another_mount_namespace_is_another_file() {
    let (_dir, path) = plain_dir();
    let at = format!("{path}/at");
    std::fs::create_dir(&at).expect("made");
    std::fs::write(format!("{at}/file"), "ours").expect("written");
    let Some(m) = Mktask::if_possible(&["elsewhere-dir", &at]) else { return };
    let file = format!("{at}/file");
    for engine in engines() {
        for args in [&["+D", &path][..], &["+D", &at], &["+d", &at], &[&at], &[&file]] {
            let found = labels(engine, m.pid(), args);
            assert!(found.is_empty(), "{engine}: {args:?}: {found:?}");
        }
        // Seen from its own root, it is.
        let inside = format!("/proc/{}/root{at}/file", m.pid());
        let found = labels(engine, m.pid(), &[&inside]);
        assert_eq!(found, ["mem", m.text("file")], "{engine}");
    }
}

#[test]
fn a_file_system_that_was_unmounted_has_no_path() {
    let (_dir, path) = plain_dir();
    let at = format!("{path}/at");
    std::fs::create_dir(&at).expect("made");
    let Some(m) = Mktask::if_possible(&["unmounted", &at]) else { return };
    for engine in engines() {
        for args in [&["+D", &path][..], &["+d", &at], &[&at]] {
            let found = labels(engine, m.pid(), args);
            assert!(found.is_empty(), "{engine}: {args:?}: {found:?}");
        }
    }
}

#[test]
fn a_copy_of_our_mounts_leads_to_the_same_files() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["copied-mounts", &path]) else { return };
    for engine in engines() {
        // The file lies on a file system that is mounted below the directory, in both namespaces.
        let found = labels(engine, m.pid(), &["+D", &path]);
        assert_eq!(found, [m.text("file")], "{engine}");
    }
}

#[test]
fn a_working_directory_of_a_thread_is_found() {
    for dead in [&[][..], &["dead"]] {
        let (_dir, path) = plain_dir();
        let Some(m) = Mktask::if_possible(&[&["wanderer", &path][..], dead].concat()) else {
            continue;
        };
        for engine in engines() {
            for args in [&["-d", "cwd", &path][..], &["-d", "cwd", "+D", &path], &[&path]] {
                let found = labels(engine, m.pid(), args);
                assert_eq!(found, ["cwd"], "{engine}: {dead:?}: {args:?}");
            }
            let all = labels(engine, m.pid(), &["-d", "cwd"]);
            assert_eq!(all, ["cwd", "cwd"], "{engine}: {dead:?}: that of the process, too");
        }
    }
}

#[test]
fn a_socket_bound_by_a_relative_path_is_found_by_its_file() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["bound", &path]) else { return };
    let socket = format!("{path}/sock");
    for engine in engines() {
        for args in [&[&socket[..]][..], &["+d", &path], &["+D", &path]] {
            if bound_sockets().is_err() {
                skip("sockets by a relative path", "sock_diag(7) does not list unix sockets here");
                let pid = m.pid().to_string();
                let ran = files(engine, &[&["--json", "-a", "-p", &pid], args].concat());
                assert!(ran.stderr.contains("a relative path are missing"), "{engine}: {ran}");
                continue;
            }
            let found = labels(engine, m.pid(), args);
            assert_eq!(found, [m.text("socket")], "{engine}: {args:?}");
        }
        let other = labels(engine, m.pid(), &[&format!("{path}/elsewhere")]);
        assert!(other.is_empty(), "{engine}: {other:?}");
    }
}

/// A btrfs in a file, mounted as long as the value lives.
struct Btrfs {
    dir: tempfile::TempDir,
    at: String,
}

fn done(program: &str, args: &[&str]) -> Result<String, String> {
    let out = std::process::Command::new(program).args(args).output();
    let out = out.map_err(|e| format!("{program}: {e}"))?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).trim().to_owned();
    if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
}

impl Btrfs {
    fn new() -> Result<Btrfs, String> {
        let (dir, path) = plain_dir();
        let (image, at) = (format!("{path}/image"), format!("{path}/at"));
        let made = std::fs::File::create(&image).and_then(|f| f.set_len(300 << 20));
        made.and_then(|()| std::fs::create_dir(&at)).map_err(|e| e.to_string())?;
        done("mkfs.btrfs", &["-q", &image])?;
        done("mount", &["-o", "loop", &image, &at])?;
        Ok(Btrfs { dir, at })
    }
    /// A new subvolume.
    fn subvolume(&self, name: &str) -> Result<String, String> {
        let path = format!("{}/{name}", self.at);
        done("btrfs", &["subvolume", "create", &path]).map(|_| path)
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let _ = done("umount", &["-l", &self.at]);
        let _ = self.dir.path();
    }
}

#[test]
fn a_file_on_btrfs_is_found_by_its_mount_its_device_and_its_links() {
    let fs = match Btrfs::new() {
        Ok(fs) => fs,
        Err(why) => return skip("files on btrfs", &why),
    };
    let (a, b) = match (fs.subvolume("a"), fs.subvolume("b")) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => return skip("files on btrfs", &format!("{a:?} {b:?}")),
    };
    let Some(m) = Mktask::if_possible(&["links", &a]) else { return };
    let Some(locks) = Mktask::if_possible(&["locks", &b]) else { return };
    let block = done("findmnt", &["-no", "SOURCE", &fs.at]).expect("it is mounted");
    // Subvolumes number their files alike.
    let inode =
        |path: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("a file"));
    assert_eq!(inode(&format!("{a}/two")), inode(&format!("{b}/ofd")), "one inode in each");
    let fd = m.text("one_of_two");
    let mut devices = Vec::new();
    for engine in engines() {
        for place in [&fs.at, &block] {
            let all = labels(engine, m.pid(), &[place]);
            for label in [fd, m.text("gone"), m.text("named_later"), "DEL"] {
                assert!(all.iter().any(|l| l == label), "{engine}: {place}: no {label} in {all:?}");
            }
        }
        assert_eq!(labels(engine, m.pid(), &[&format!("{a}/two")]), ["DEL", fd], "{engine}");
        let other = labels(engine, m.pid(), &[&format!("{b}/ofd")]);
        assert!(other.is_empty(), "{engine}: a file of another subvolume: {other:?}");
        let row = &rows(engine, locks.pid(), &["-d", locks.text("ofd"), "-o", "lock,dev"])[0];
        assert_eq!(row["lock"], "W", "{engine}");
        devices.push(row["dev"].clone());
    }
    devices.dedup();
    assert_eq!(devices.len(), 1, "engines differ: {devices:?}");
}

#[test]
fn memory_and_files_that_processes_share_count_once() {
    let Some(m) = Mktask::if_possible(&["sharers"]) else { return };
    let (sharer, copy) = (m.num::<u32>("sharer"), m.num::<u32>("copy"));
    let run = |engine: &str, args: &[&str]| -> Vec<Value> {
        let ran = Sandbox::new().run(&[args, &["--json", "--engine", engine]].concat());
        match serde_json::from_str(&ran.stdout) {
            Ok(Value::Array(rows)) => rows,
            other => panic!("{engine}: {other:?} of {ran}"),
        }
    };
    let list = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let (both, all) = (list(&[m.pid(), sharer]), list(&[m.pid(), sharer, copy]));
    for engine in engines() {
        let size = |pids: &str| {
            let rows = run(engine, &["maps", "-p", pids, "--by", "user", "-o", "procs,size"]);
            (rows[0]["procs"].as_u64().unwrap(), rows[0]["size"].as_u64().unwrap())
        };
        let (own, copied) = (size(&list(&[m.pid()])), size(&list(&[copy])));
        assert_eq!(size(&both), (2, own.1), "{engine}: the memory of two is that of one");
        assert_eq!(size(&all), (3, own.1 + copied.1), "{engine}: a copy is not shared");
        let named: Vec<Value> =
            run(engine, &["maps", "-C", "mktask", "-o", "pid,size,shared_with"]);
        let of =
            |pid: u32| named.iter().filter(move |r| r["pid"] == pid && r["shared_with"].is_u64());
        assert!(
            of(m.pid()).chain(of(sharer)).next().is_some(),
            "{engine}: one refers to the other"
        );
        assert!(of(copy).next().is_none(), "{engine}: a copy refers to nobody");
        let files = run(engine, &["files", "-p", &all, "-o", "pid,sharers"]);
        let sharers =
            |pid: u32| files.iter().find(|r| r["pid"] == pid).expect("a row")["sharers"].clone();
        assert_eq!(sharers(m.pid()), Value::from(vec![sharer]), "{engine}");
        assert_eq!(sharers(sharer), Value::from(vec![m.pid()]), "{engine}");
        // It is not known whether a process shares its table with a process that was not selected.
        for (command, column) in [("files", "sharers"), ("maps", "shared_with")] {
            let (alone, columns) = (list(&[m.pid()]), format!("pid,{column}"));
            let args = [command, "-p", &alone, "-o", &columns, "--json", "--engine", engine];
            let ran = Sandbox::new().run(&args);
            let rows: Vec<Value> = serde_json::from_str(&ran.stdout).expect("rows");
            assert!(!rows.is_empty(), "{engine}: {ran}");
            for row in &rows {
                assert_eq!(row[column], Value::Null, "{engine}: {ran}");
                assert_eq!(row["missing"][column], "not_asked", "{engine}: {ran}");
            }
            assert!(ran.stderr.contains("without -p, all are"), "{engine}: {ran}");
        }
        let everyone = run(engine, &["files", "-o", "pid,sharers"]);
        let of = |pid: u32| &everyone.iter().find(|r| r["pid"] == pid).expect("a row")["sharers"];
        assert_eq!(*of(m.pid()), Value::from(vec![sharer]), "{engine}");
        assert_eq!(*of(copy), Value::from(Vec::<u32>::new()), "{engine}");
    }
    // Only the procfs engine has sums over pages.
    let sum = |pids: &str| {
        run("procfs", &["memory", "-p", pids, "--by", "user", "-o", "pss,rss"])[0].clone()
    };
    // A share of a page grows when another process with this program ends, and those of other tests
    // may end between the two readings. But a value that is counted twice is too large in each pair
    // of readings.
    let pair = || (sum(&list(&[m.pid()])), sum(&both));
    let of = |row: &Value, column: &str| row[column].as_u64().expect("a number");
    let is_once = |(one, two): &(Value, Value)| {
        ["pss", "rss"].iter().all(|c| of(two, c) < of(one, c) * 3 / 2)
    };
    let mut looks = (0..10).map(|_| pair()).inspect(|(one, two)| println!("one {one}, two {two}"));
    assert!(looks.any(|look| is_once(&look)), "the memory of two is more than that of one");
}

#[test]
fn a_process_whose_first_thread_has_ended_has_what_its_threads_have() {
    let Some(m) = Mktask::if_possible(&["leader-gone"]) else { return };
    let pid = m.pid().to_string();
    let columns = "s,exe,cwd,root,fds,netns,mntns,cgroup,nspid";
    let thread = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    let mut tids = thread.flatten().map(|e| e.file_name().into_string().expect("a number"));
    let tid = tids.find(|tid| *tid != pid).expect("a living thread");
    let link = |file: &str| {
        let link = std::fs::read_link(format!("/proc/{tid}/{file}")).expect("a living thread");
        link.into_os_string().into_string().expect("a plain path")
    };
    let open = std::fs::read_dir(format!("/proc/{tid}/fd")).expect("a living thread").count();
    for engine in engines() {
        let args = ["ps", "--json", "--engine", engine, "-p", &pid, "-o", columns];
        let ran = Sandbox::new().run(&args);
        let rows: Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran}"));
        let row = &rows[0];
        assert_eq!(row["s"], "Z", "{engine}: {ran}");
        for file in ["exe", "cwd", "root"] {
            assert_eq!(row[file], link(file), "{engine}: {file}");
        }
        assert_eq!(row["fds"], open, "{engine}");
        assert_eq!(format!("net:[{}]", row["netns"]), link("ns/net"), "{engine}");
        assert_eq!(format!("mnt:[{}]", row["mntns"]), link("ns/mnt"), "{engine}");
        assert_eq!(row["nspid"][0], m.pid(), "{engine}: the ids are those of the process");
        let found = labels(engine, m.pid(), &["-d", "0,cwd,txt"]);
        assert_eq!(found, ["cwd", "txt", "0"], "{engine}");
    }
}

#[test]
fn a_directory_of_proc_has_the_links_of_stat() {
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;
    let links = |path: &str| std::fs::metadata(path).expect("it is there").nlink();
    let own = format!("/proc/{}/task", std::process::id());
    // The links of /proc count the processes of the machine, which change meanwhile.
    for (directory, may_change) in [("/proc", true), (&*own, false)] {
        let mut sleeper = Command::new("sleep").arg("60").current_dir(directory).spawn().unwrap();
        for engine in engines() {
            let same = || {
                let before = links(directory);
                let all = rows(engine, sleeper.id(), &["-d", "cwd", "-o", "fd,nlink"]);
                let seen = all[0]["nlink"].as_u64().expect("it is known");
                (before, seen, before == links(directory))
            };
            let mut tries = (0..100).map(|_| same());
            let (want, seen, _) = tries.find(|t| t.2 || !may_change).expect("a quiet moment");
            // A process may have begun and another one ended meanwhile.
            let most = if may_change { 5 } else { 0 };
            let is_it = want > 2 && seen.abs_diff(want) <= most;
            assert!(is_it, "{engine}: {directory}: {seen}, stat {want}");
        }
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it is ours");
    }
}

#[test]
fn a_directory_of_open_files_has_the_size_of_stat() {
    use std::process::Command;
    let mut sleepers = Vec::new();
    let mut sleep_in = |directory: &str| {
        let sleeper = Command::new("sleep").arg("60").current_dir(directory).spawn().unwrap();
        let pid = sleeper.id();
        sleepers.push(sleeper);
        pid
    };
    let with_files = format!("/proc/{}/fd", sleep_in("/"));
    let pid = sleep_in(&with_files);
    let mut file = Command::new("sh");
    file.args(["-c", "exec 3<.; exec sleep 60"]).current_dir(&with_files);
    let mut file = file.spawn().expect("a shell");
    let size = || std::fs::metadata(&with_files).expect("it is there").len();
    // The first program has begun when it has the files that it keeps.
    std::thread::sleep(std::time::Duration::from_millis(300));
    for engine in engines() {
        for (pid, label) in [(pid, "cwd"), (file.id(), "3")] {
            let all = rows(engine, pid, &["-d", label, "-o", "fd,size"]);
            assert_eq!(all[0]["size"].as_u64(), Some(size()), "{engine}: {label}");
        }
    }
    for sleeper in sleepers.iter_mut().chain([&mut file]) {
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it is ours");
    }
}
