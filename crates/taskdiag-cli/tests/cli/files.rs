//! `taskdiag files` on saved answers with known content: rows, forms, selections, missing data.

use serde_json::{Value, json};

use super::common::{Ended, NOW_S, Saved, parts, run, skip};
use taskdiag::wire::{BLOB_DELETED, Done, StreamWriter, build};
use taskdiag::{
    Base, Cred, Fd, FdCount, FdDetail, FdDetailKind, FdType, Group, Groups, PathKind, Reason,
    Socket, Strategy, Vma, VmaKind,
};

const R: u32 = 0;
const W: u32 = 1;
const U: u32 = 2;

fn fd(n: u32, kind: FdType, inode: u64, flags: u32) -> Fd {
    let fs = match kind {
        FdType::Reg | FdType::Dir => 0x801,
        FdType::Chr => 6,
        _ => 8,
    };
    build!(Fd { fd: n, r#type: kind as u32, inode, flags, dev: fs, nlink: 1, ..Fd::default() })
}

fn file(n: u32, name: u32, inode: u64, flags: u32, size: u64) -> Fd {
    build!(Fd { name, size_bytes: size, ..fd(n, FdType::Reg, inode, flags) })
}

fn null(n: u32, flags: u32) -> Fd {
    build!(Fd { name: 1, rdev: 0x103, ..fd(n, FdType::Chr, 5, flags) })
}

fn tcp(n: u32, state: u16, local: u16, peer: u16) -> Socket {
    let mut s = build!(Socket {
        fd: n,
        inode: 1000 + u64::from(n),
        netns: 77,
        family: 2,
        r#type: 1,
        protocol: 6,
        state,
        local_port: local,
        peer_port: peer,
        ..Socket::default()
    });
    if peer != 0 {
        s.local_addr[..4].copy_from_slice(&[127, 0, 0, 1]);
        s.peer_addr[..4].copy_from_slice(&[10, 0, 0, 9]);
    }
    s
}

const GROUPS: Groups = Groups::BASE
    .union(Groups::CRED)
    .union(Groups::FD)
    .union(Groups::PATHS)
    .union(Groups::VMA)
    .union(Groups::FD_COUNT);

struct Made(StreamWriter);

impl Made {
    fn new(groups: Groups, strategy: Strategy) -> Made {
        let mut w = StreamWriter::new();
        let mut info = StreamWriter::blank_info();
        (info.show_flags, info.dump_strategy) = (groups.bits(), strategy as u64);
        info.realtime_ns = NOW_S * 1_000_000_000;
        info.procfs_groups = groups.bits();
        w.info(&info);
        Made(w)
    }
    fn task(
        &mut self,
        ids: (u32, u32),
        uid: u32,
        comm: &[u8],
        more: impl FnOnce(&mut StreamWriter),
    ) {
        self.0.begin_task(ids.0, ids.1);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        self.0.put_base(&base, comm);
        let mut cred = Cred::new();
        (cred.valid, cred.euid, cred.uid) = (Cred::ALL_VALID, uid, uid);
        self.0.put(&cred);
        more(&mut self.0);
        self.0.end_task();
    }
    fn saved(self) -> Saved {
        Saved::bytes(self.0.finish(Done::default()).as_bytes())
    }
}

fn count(w: &mut StreamWriter, open: u32) {
    let mut c = FdCount::new();
    (c.valid, c.open, c.size) = (FdCount::ALL_VALID, open, 256);
    w.put(&c);
}

fn list(w: &mut StreamWriter, fds: &[Fd]) {
    w.put_list(Fd::ALL_VALID, fds);
    count(w, fds.len() as u32);
}

/// Writes a task with neither paths nor mappings, like a kernel thread.
fn bare(w: &mut StreamWriter) {
    w.missing(Group::Paths, Reason::Absent);
    w.missing(Group::Vma, Reason::Absent);
}

fn none(w: &mut StreamWriter, reason: Reason) {
    for g in [Group::Fd, Group::FdCount, Group::Paths, Group::Vma] {
        w.missing(g, reason);
    }
}

/// A small machine.
fn machine() -> Saved {
    let mut m = Made::new(GROUPS, Strategy::AllThread);
    m.task((1, 1), 0, b"init", |w| {
        list(w, &[null(0, R), file(3, 2, 12, W, 4096), fd(4, FdType::Epoll, 9, U)]);
        let epoll = |t| {
            build!(FdDetail { fd: 4, kind: FdDetailKind::Epoll as u32, value: [t, 0, 0, 0, 0] })
        };
        w.put_list(FdDetail::ALL_VALID, &[epoll(3), epoll(7)]);
        w.put_name(1, 0, b"/dev/null");
        w.put_name(2, 0, b"/var/log/init.log");
        let paths = [(PathKind::Cwd, "/"), (PathKind::Root, "/"), (PathKind::Exe, "/sbin/init")];
        for (kind, path) in paths {
            w.put_blob(Group::Paths as u16, kind as u32, 0, path.as_bytes(), path.len());
        }
        let vma = build!(Vma {
            start: 4096,
            end: 8192,
            inode: 40,
            dev: 0x801,
            name: 3,
            kind: VmaKind::File as u32,
            ..Vma::default()
        });
        w.put_list(Vma::ALL_VALID, &[vma, build!(Vma { start: 8192, name: 4, ..vma })]);
        w.put_name(3, 0, b"/lib/libc.so");
        w.put_name(4, BLOB_DELETED, b"/lib/old.so");
    });
    m.task((10, 10), 0, b"sshd", |w| {
        list(w, &[fd(3, FdType::Socket, 1003, U), fd(4, FdType::Socket, 1004, U)]);
        w.put_list(Socket::ALL_VALID, &[tcp(3, 10, 22, 0), tcp(4, 1, 22, 5000)]);
        for g in [Group::Paths, Group::Vma] {
            w.missing(g, Reason::Denied);
        }
    });
    // Three threads with one table, one with its own.
    m.task((20, 20), 33, b"web", |w| {
        let deleted = build!(Fd { nlink: 0, ..file(5, 5, 77, U, 1 << 20) });
        list(w, &[null(0, U), deleted, fd(6, FdType::Socket, 2006, U)]);
        let peer = build!(Socket {
            fd: 6,
            inode: 2006,
            family: 1,
            r#type: 1,
            state: 1,
            peer_inode: 3001,
            ..Socket::default()
        });
        w.put_list(Socket::ALL_VALID, &[peer]);
        w.put_name(5, BLOB_DELETED, b"/tmp/cache");
        bare(w);
    });
    for tid in [21, 22] {
        m.task((tid, 20), 33, b"worker", |w| {
            w.shared(Group::Fd, 20);
            w.shared(Group::FdCount, 20);
            bare(w);
        });
    }
    m.task((23, 20), 33, b"loner", |w| {
        list(w, &[file(9, 6, 78, R, 10)]);
        w.put_name(6, 0, b"/srv/www/index");
        bare(w);
    });
    m.task((30, 30), 33, b"cat", |w| {
        list(w, &[fd(1, FdType::Pipe, 500, W)]);
        bare(w);
    });
    m.task((31, 31), 33, b"less", |w| {
        list(w, &[fd(0, FdType::Pipe, 500, R), fd(1, FdType::Socket, 3001, U)]);
        let s = build!(Socket {
            fd: 1,
            inode: 3001,
            family: 1,
            r#type: 1,
            state: 1,
            peer_inode: 2006,
            netns: 78,
            name: 7,
            ..Socket::default()
        });
        w.put_list(Socket::ALL_VALID, &[s]);
        w.put_name(7, 0, b"/run/less.sock");
        bare(w);
    });
    m.task((40, 40), 0, b"shut", |w| none(w, Reason::Denied));
    m.task((50, 50), 0, b"zombie", |w| none(w, Reason::Absent));
    m.saved()
}

fn files(saved: &Saved, args: &[&str]) -> (i32, String, String) {
    let path = saved.path();
    let path = path.to_str().expect("UTF-8");
    parts(&run(&[&["files", "--from", path], args].concat()))
}

/// `pid:fd` of the rows.
fn ids(saved: &Saved, args: &[&str]) -> String {
    let (_, out, err) = files(saved, &[&["--no-headers", "-o", "pid,fd"], args].concat());
    let rows = out.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(":"));
    let rows = rows.collect::<Vec<_>>().join(" ");
    if rows.is_empty() { err } else { rows }
}

#[test]
fn the_default_view_of_files_is_printed_byte_for_byte() {
    let (code, out, err) = files(&machine(), &[]);
    let want = "\
COMMAND   PID TID THR USER   FD    TYPE DEVICE SIZE/OFF     NODE NAME
init        1       1 root   0r     CHR    1,3      0t0        5 /dev/null
init        1       1 root   3w     REG    8,1     4096       12 /var/log/init.log
init        1       1 root   4u a_inode    0,8      0t0        9 [eventpoll:3,7]
sshd       10       1 root   3u    IPv4   1003      0t0      TCP *:22 (LISTEN)
sshd       10       1 root   4u    IPv4   1004      0t0      TCP 127.0.0.1:22->10.0.0.9:5000 (ESTABLISHED)
web        20       3 www-data   0u     CHR    1,3      0t0        5 /dev/null
web        20       3 www-data   5u     REG    8,1  1048576       77 /tmp/cache (deleted)
web        20       3 www-data   6u    unix    0,8      0t0     2006 type=STREAM (CONNECTED) ->INO=3001 31,less,1u
loner      20  23   1 www-data   9r     REG    8,1       10       78 /srv/www/index
cat        30       1 www-data   1w    FIFO    0,8      0t0      500 pipe 31,less,0r
less       31       1 www-data   0r    FIFO    0,8      0t0      500 pipe 30,cat,1w
less       31       1 www-data   1u    unix    0,8      0t0     3001 /run/less.sock type=STREAM (CONNECTED) ->INO=2006 20,web,6u net:[78]
";
    let squeeze = |s: &str| {
        let line = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ");
        s.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(squeeze(&out), squeeze(want), "{out}");
    assert_eq!(code, 0);
    assert!(err.contains("open files of 1 process were not shown"), "{err}");
}

#[test]
fn a_denied_process_counts_once_and_not_per_thread() {
    let mut m = Made::new(GROUPS, Strategy::AllThread);
    for tid in [40, 41, 42] {
        m.task((tid, 40), 0, b"shut", |w| none(w, Reason::Denied));
    }
    let saved = m.saved();
    for (args, what) in [
        (&["-p", "40"][..], "open files of 1 process were not shown"),
        (&["--count"], "fds of 1 process were not shown"),
    ] {
        let (code, _, err) = files(&saved, args);
        // The second command names no process, so it has found nothing.
        let want = if args[0] == "-p" { 3 } else { 1 };
        assert!(code == want && err.contains(what), "{args:?}: {err}");
    }
}

#[test]
fn a_denied_list_is_reported_once_in_each_format() {
    let saved = machine();
    for form in [&[][..], &["--json"], &["--csv"]] {
        let (code, _, err) = files(&saved, form);
        assert!(code == 0 && err.matches(" not shown ").count() == 1, "{form:?}: {code} {err}");
    }
}

#[test]
fn selections_are_those_of_lsof() {
    let m = machine();
    for (args, want) in [
        (&["-p", "1"][..], "1:0r 1:3w 1:4u"),
        (&["-p", "1,31"], "1:0r 1:3w 1:4u 31:0r 31:1u"),
        (&["-p", "^1,^10,^20,^31"], "30:1w"),
        (&["-c", "ss"], "10:3u 10:4u"),
        (&["-c", "^w,^i,^l,^s"], "30:1w"),
        (&["-u", "33", "-a", "-d", "0"], "20:0u 31:0r"),
        (&["-u", "^33", "-d", "0"], "1:0r"),
        // One of several kinds of conditions is enough.
        (&["-p", "30", "-d", "4"], "1:4u 10:4u 30:1w"),
        (&["-a", "-p", "1", "-d", "3-4"], "1:3w 1:4u"),
        (&["-a", "-p", "1", "-d", "^3"], "1:0r 1:4u"),
        (&["-i"], "10:3u 10:4u"),
        (&["-i", ":22"], "10:3u 10:4u"),
        (&["-i", ":5000"], "10:4u"),
        (&["-i4TCP@10.0.0.9"], "10:4u"),
        (&["-nP", "-iTCP", "-sTCP:LISTEN"], "10:3u"),
        (&["-U"], "20:6u 31:1u"),
        (&["-i", "-U", "-p", "30"], "10:3u 10:4u 20:6u 30:1w 31:1u"),
        (&["--type", "fifo,a_inode"], "1:4u 30:1w 31:0r"),
        (&["--type", "epoll"], "1:4u"),
        (&["--type", "inet"], "10:3u 10:4u"),
        (&["--net", "78"], "31:1u"),
        (&["--net", "net:[77]"], "10:3u 10:4u"),
        (&["/var/log/init.log"], "1:3w"),
        (&["/run/less.sock"], "31:1u"),
        (&["+D", "/var"], "1:3w"),
        (&["+d", "/var/log"], "1:3w"),
        (&["+D", "/dev", "-a", "-c", "web"], "20:0u"),
        // Deleted files are looked for among all uses that keep a file.
        (&["+L1"], "1:DEL 20:5u"),
        (&["--deleted"], "1:DEL 20:5u"),
        (&["/lib/libc.so"], "1:mem"),
        (&["/sbin/init"], "1:txt"),
        (&["/"], "1:cwd 1:rtd"),
        (&["-d", "cwd"], "1:cwd"),
        (&["-d", "mem"], "1:mem"),
        (&["-a", "-p", "1", "--paths"], "1:cwd 1:rtd 1:txt 1:0r 1:3w 1:4u"),
        (&["-a", "-p", "1", "--mem"], "1:mem 1:DEL 1:0r 1:3w 1:4u"),
        (&["-p", "23"], "20:9r"),
    ] {
        assert_eq!(ids(&m, args), want, "{args:?}");
    }
}

#[test]
fn missing_values_are_reported_only_if_they_matter() {
    let m = machine();
    // Exit code, and words of the message.
    for (args, want, words) in [
        (&["-p", "1"][..], 0, ""),
        (&["-p", "40"], 3, "open files of 1 process were not shown"),
        (&["-p", "50"], 1, ""),
        (&["-i", ":443"], 1, "open files of 1 process were not shown"),
        (&["-a", "-i", ":443", "-c", "sshd"], 1, ""),
        (&["-u", "33"], 0, ""),
        (&["-t", "-U"], 0, "not shown"),
        // Nor does it hold the files that these lead to.
        (&["-d", "cwd"], 3, "paths (cwd, rtd, txt) of 2 processes were not shown"),
        (
            &["+L1", "-a", "-c", "sshd"],
            3,
            "paths (cwd, rtd, txt), mapped files of 1 process were not shown",
        ),
    ] {
        let (code, _, err) = files(&m, args);
        assert_eq!(code, want, "{args:?}: {err}");
        assert!(err.contains(words) && err.is_empty() == words.is_empty(), "{args:?}: {err}");
    }
    let mut less = Made::new(Groups::BASE, Strategy::All);
    less.task((1, 1), 0, b"a", |_| {});
    let less = less.saved();
    // An answer that has paths, but no data about the files that they lead to.
    let (code, out, err) = files(&m, &["-a", "-p", "1", "-d", "cwd", "-o", "fd,size,path"]);
    assert_eq!((code, out.lines().last()), (3, Some(" cwd        ? /")), "{err}");
    assert!(err.contains("file_stat'"), "{err}");
    let with =
        [(&[][..], "base,fd'"), (&["-d", "txt"], "base,paths'"), (&["--count"], "base,fd_count'")];
    for (args, groups) in with {
        let (code, _, err) = files(&less, args);
        assert_eq!(code, 3, "{args:?}");
        assert!(err.contains(&format!("taskdiag dump --groups {groups}")), "{err}");
    }
}

#[test]
fn t_prints_each_pid_once() {
    assert_eq!(files(&machine(), &["-t", "-u", "33"]), (0, "20\n30\n31\n".into(), String::new()));
    assert_eq!(files(&machine(), &["-t", "-a", "-u", "33", "-i"]).1, "");
}

#[test]
fn count_prints_open_files_by_process() {
    let m = machine();
    let (code, out, err) = files(&m, &["--count"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    let want: [&[&str]; 8] = [
        &["PID", "TID", "THR", "FDS", "COMMAND"],
        &["1", "1", "1", "3", "init"],
        &["10", "10", "1", "2", "sshd"],
        &["20", "20", "3", "3", "web"],
        &["20", "23", "1", "1", "loner"],
        &["30", "30", "1", "1", "cat"],
        &["31", "31", "1", "2", "less"],
        &[],
    ];
    assert_eq!(rows, want[..7]);
    assert!(code == 0 && err.contains("fds of 1 process were not shown"), "{err}");
    let (code, out, _) = files(&m, &["--count", "-u", "33", "--sort", "-fds", "-o", "pid=,fds="]);
    let rows: Vec<&str> = out.split_whitespace().collect();
    assert_eq!((code, rows.join(" ").as_str()), (0, "20 3 31 2 20 1 30 1"));
    let (code, _, err) = files(&m, &["--count", "-i"]);
    assert!(code == 2 && err.contains("--count"), "{err}");
    // ps also shows the number for threads that share the table.
    let (_, out, _) = m.ps(&["-o", "tid=,fds=", "-p", "20"]);
    let rows: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(rows.join(" "), "20 3 21 3 22 3 23 1");
}

#[test]
fn json_of_files_has_the_values_of_each_file() {
    let m = machine();
    let (_, out, _) = files(&m, &["--json", "-i", ":5000"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    let row = &all.as_array().expect("an array")[0];
    for (key, want) in [
        ("pid", json!(10)),
        ("command", json!("sshd")),
        ("fd", json!("4u")),
        ("type", json!("IPv4")),
        ("kind", json!("socket")),
        ("protocol", json!("TCP")),
        ("sockstate", json!("ESTABLISHED")),
        ("laddr", json!("127.0.0.1")),
        ("lport", json!(22)),
        ("raddr", json!("10.0.0.9")),
        ("rport", json!(5000)),
        ("path", Value::Null),
        ("deleted", json!(false)),
        ("threads", json!(1)),
        ("sock_netns", json!(77)),
    ] {
        assert_eq!(row[key], want, "{key}");
    }
    // The descriptor has no path, so there is no key.
    assert!(row.get("path").is_none() && row.get("missing").is_none(), "{row}");
    let (_, out, _) = files(&m, &["--jsonl", "-p", "30,40", "-o", "pid,fd,ends,flags"]);
    let rows: Vec<&str> = out.lines().collect();
    assert_eq!(rows[0], r#"{"pid":30,"fd":"1w","ends":["31,less,0r"],"flags":"wronly"}"#);
    let denied: Value = serde_json::from_str(rows[1]).expect("valid JSON");
    assert_eq!((&denied["pid"], &denied["fd"]), (&json!(40), &Value::Null));
    assert_eq!(denied["missing"]["fd"], "denied");
    let (code, out, _) = files(&m, &["--csv", "-p", "1", "-o", "pid,size,offset,name"]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "pid,size,offset,name\n1,,0,/dev/null\n1,4096,0,/var/log/init.log\n1,,0,\"[eventpoll:3,7]\"\n"
    );
}

#[test]
fn files_are_sorted_by_any_columns() {
    assert_eq!(ids(&machine(), &["--sort", "-size,-pid", "-d", "3,5,9"]), "20:5u 1:3w 20:9r 10:3u");
}

#[test]
fn hostile_names_are_escaped_in_files() {
    let mut m = Made::new(Groups::BASE | Groups::FD, Strategy::All);
    m.task((7, 7), 0, b"a\nb\x1b[2J", |w| {
        w.put_list(Fd::ALL_VALID, &[file(0, 1, 1, R, 1)]);
        w.put_name(1, 0, b"/tmp/\xff\n\x1b]0;x\x07 (deleted)");
    });
    let m = m.saved();
    let (_, out, _) = files(&m, &["--no-headers", "-o", "command,name"]);
    assert_eq!(out, "a\\nb\\x1b[2J /tmp/\\xff\\n\\x1b]0;x\\x07 (deleted)\n");
    let (_, out, _) = files(&m, &["--json", "-o", "path,deleted"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(all[0]["path_bytes"], "L3RtcC//ChtdMDt4ByAoZGVsZXRlZCk=");
    assert_eq!(all[0]["path"], "/tmp/\u{fffd}\n\u{1b}]0;x\u{7} (deleted)");
    assert_eq!(all[0]["deleted"], false);
    // Processes alone do not show which tasks share a table: a message reports that, and the column
    // is not 1.
    let (code, out, err) = files(&m, &["--no-headers", "-o", "threads"]);
    assert!(
        code == 0 && out.trim() == "?" && err.contains("not known to the engine"),
        "{out} {err}"
    );
}

#[test]
fn unsupported_options_of_lsof_name_a_replacement() {
    for (args, word) in [
        (&["-Fq"][..], "no field 'q'"),
        (&["+fg"], "columns flags"),
        (&["-r0"], "--repeat"),
        (&["-r", "--json"], "--json"),
        (&["-r", "--jsonl"], "--jsonl"),
        (&["-t", "--json"], "--json"),
        (&["--csv", "-t"], "--csv"),
        (&["-F", "--json"], "--json"),
        (&["-Fpn", "--jsonl"], "--jsonl"),
        (&["-r", "--from", "-"], "--from"),
        (&["-u", ""], "at least one value"),
        (&["--type", ""], "at least one value"),
        (&["--net", ""], "at least one value"),
        (&["--net", "/etc/passwd"], "no network namespace"),
        (&["-d", "x"], "descriptors"),
        (&["-d", "5-2"], "descriptors"),
        (&["-i", "TPC:22"], "TPC"),
        (&["-i", ":nosuchservice"], "nosuchservice"),
        (&["-s", "LISTEN"], "TCP:LISTEN"),
        (&["--type", "RGE"], "did you mean 'REG'"),
        (&["--net", "/no/such/file"], "/no/such/file"),
        (&["-u", "no-such-user-here"], "there is no user"),
        (&["+D"], "directory"),
        (&["-o", "nmae"], "did you mean 'name'"),
    ] {
        let (code, out, err) = parts(&run(&[&["files"], args].concat()));
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(word), "{args:?}: {err}");
    }
}

#[test]
fn a_word_that_is_no_file_finds_processes_by_name_or_arguments() {
    use std::os::unix::process::CommandExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("word-of-a-file");
    let kept = std::fs::File::create(&path).expect("made");
    std::fs::remove_file(&path).expect("removed");
    let mut sleep = std::process::Command::new("sleep");
    let child = Ended(sleep.arg0("word-of-a-program").arg("1000").spawn().expect("sleep"));
    for engine in ["auto", "procfs"] {
        let list = |args: &[&str]| {
            let mut command = super::common::taskdiag();
            command.args(["files", "--engine", engine]).args(args).current_dir(dir.path());
            parts(&command.output().expect("it runs"))
        };
        let (code, out, err) = list(&["-t", "word-of-a-program"]);
        assert_eq!((code, out.trim()), (0, child.pid().as_str()), "{engine}: {err}");
        assert!(err.contains("no such file: word-of-a-program; looking for processes"), "{err}");
        let fds = |args: &[&str]| {
            let (_, out, _) = list(&[&["-o", "fd="], args].concat());
            out.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let (open, with_paths) = (fds(&["of-a-prog"]), fds(&["of-a-prog", "--paths"]));
        assert!(
            !open.is_empty() && open.iter().all(|fd| fd.starts_with(|c: char| c.is_ascii_digit())),
            "{open:?}"
        );
        assert!(with_paths.contains(&String::from("cwd")), "{with_paths:?}");
        assert_eq!(fds(&["-a", "-p", "2", "of-a-prog"]), Vec::<String>::new());
        // A deleted file of that name is found, too.
        let (_, out, _) = list(&["-t", "word-of-a-file"]);
        assert_eq!(out.trim(), std::process::id().to_string(), "{engine}");
        // A path is never a word, and neither is one in lsof's form.
        let (code, out, _) = list(&["-t", "./word-of-a-program"]);
        assert!(code != 0 && out.is_empty(), "{out}");
    }
    drop(kept);
    drop(child);
    let (code, out, _) = parts(&run(&["--as", "lsof", "-t", "word-of-a-program"]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(ids(&machine(), &["sshd"]), "10:3u 10:4u");
}

#[test]
fn many_threads_and_files_stay_small() {
    let mut m = Made::new(Groups::BASE | Groups::CRED | Groups::FD, Strategy::AllThread);
    let open: Vec<Fd> = (0..16_384).map(|n| null(n, R)).collect();
    m.task((100, 100), 0, b"big", |w| {
        w.put_list(Fd::ALL_VALID, &open);
        w.put_name(1, 0, b"/dev/null");
    });
    for tid in 101..100 + 4096 {
        m.task((tid, 100), 0, b"big", |w| w.shared(Group::Fd, 100));
    }
    let (code, out, _) = files(&m.saved(), &["-o", "pid=,threads=,fd=,name="]);
    assert_eq!((code, out.lines().count()), (0, 16_384));
    let last: Vec<&str> = out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["100", "4096", "16383r", "/dev/null"]);
}

#[test]
fn details_of_descriptors_are_columns_and_files_are_counted() {
    use std::os::fd::AsRawFd as _;
    let make = |fd: i32| {
        assert!(fd >= 0, "it is made");
        // SAFETY: a new descriptor, which nobody else has.
        unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }
    };
    // SAFETY: these take numbers, and pointers to values that live as long as the calls.
    let (event, epoll, timer, signals, watcher) = unsafe {
        let event = make(libc::eventfd(7, 0));
        let epoll = make(libc::epoll_create1(0));
        let mut of = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
        let fd = event.as_raw_fd();
        assert_eq!(libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut of), 0);
        let timer = make(libc::timerfd_create(libc::CLOCK_MONOTONIC, 0));
        let time = libc::timespec { tv_sec: 1000, tv_nsec: 0 };
        let every = libc::itimerspec { it_interval: time, it_value: time };
        let none = std::ptr::null_mut();
        assert_eq!(libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const every, none), 0);
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut mask, libc::SIGUSR1);
        let signals = make(libc::signalfd(-1, &raw const mask, 0));
        let watcher = make(libc::inotify_init1(0));
        assert!(libc::inotify_add_watch(watcher.as_raw_fd(), c"/".as_ptr(), libc::IN_CREATE) > 0);
        (event, epoll, timer, signals, watcher)
    };
    let me = std::process::id().to_string();
    let columns = "fdnum,eventfd_count,epoll_count,epoll_fds,timer_clock,timer_left,timer_interval,\
         signalfd_mask,inotify_count,inotify_inodes,pidfd_pid";
    for engine in ["procfs", "bpf"] {
        let (code, out, err) =
            parts(&run(&["files", "-p", &me, "--json", "-o", columns, "--engine", engine]));
        if engine == "bpf" && code == 4 {
            skip("details_of_descriptors_are_columns_and_files_are_counted", "no BPF here");
            continue;
        }
        let all: Vec<serde_json::Value> = serde_json::from_str(&out).expect("JSON");
        let of = |fd: &std::os::fd::OwnedFd| {
            let mut rows = all.iter();
            rows.find(|r| r["fdnum"] == fd.as_raw_fd()).unwrap_or_else(|| panic!("{out} {err}"))
        };
        assert_eq!(of(&event)["eventfd_count"], 7, "{engine}");
        assert_eq!(of(&event).get("epoll_count"), None, "{engine}: it is no epoll");
        assert_eq!(of(&epoll)["epoll_count"], 1, "{engine}");
        assert_eq!(of(&epoll)["epoll_fds"][0], event.as_raw_fd(), "{engine}");
        assert_eq!(of(&timer)["timer_clock"], "monotonic", "{engine}");
        assert_eq!(of(&timer)["timer_interval"], 1000.0, "{engine}");
        let left = of(&timer)["timer_left"].as_f64().expect("a number");
        assert!((900.0..=1000.0).contains(&left), "{engine}: {left}");
        let mask = of(&signals)["signalfd_mask"].to_string();
        assert!(mask.contains("200") || mask.contains("USR1"), "{engine}: {mask}");
        assert_eq!(of(&watcher)["inotify_count"], 1, "{engine}");
        assert_eq!(of(&watcher)["inotify_inodes"].as_array().map(Vec::len), Some(1), "{engine}");
        // They filter.
        let with = ["--where", "eventfd_count == 7", "-o", "fdnum", "--no-headers"];
        let (_, out, _) =
            parts(&run(&[&["files", "-p", &me, "--engine", engine], &with[..]].concat()));
        assert_eq!(out.trim(), event.as_raw_fd().to_string(), "{engine}");
    }
    let (code, out, err) = parts(&run(&["files", "-p", &me, "--summary", "--json"]));
    assert_eq!(code, 0, "{err}");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out).expect("JSON");
    let timers = rows.iter().find(|r| r["kind"] == "timerfd").expect("there is one");
    assert_eq!((&timers["files"], &timers["procs"]), (&1.into(), &1.into()), "{out}");
    let (_, out, _) = parts(&run(&["files", "-p", &me, "--summary=user", "--json"]));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out).expect("JSON");
    assert!(rows.len() == 1 && rows[0]["files"].as_u64() >= Some(5), "{out}");
}
