//! `taskdiag maps` from saved answers with known content.

use serde_json::{Value, json};
use taskdiag::wire::{BLOB_DELETED, Done, StreamWriter, build};
use taskdiag::{Base, Cred, Group, Groups, Reason, Strategy, Vma, VmaKind, VmaStat};

use super::common::{Saved, parts, taskdiag};

/// A mapping of a made-up process.
#[derive(Clone, Copy)]
pub struct Mapping {
    pub start: u64,
    pub kib: u64,
    pub perms: u32,
    pub name: u32,
    pub kind: VmaKind,
    /// Resident and swapped, KiB; `None`: without VMA_STAT.
    pub stat: Option<(u64, u64)>,
}

pub const NAMES: &[(u32, u16, &[u8])] = &[
    (1, 0, b"/usr/bin/prog"),
    (2, BLOB_DELETED, b"/usr/lib/libold.so.1"),
    (3, 0, b"/tmp/a\nb\x1b[2J\xff"),
    (4, BLOB_DELETED, b"/memfd:secret"),
    (5, 0, b"arena \xe2\x82\xac"),
    (6, 0, b"[vvar]"),
];

fn map(start: u64, kib: u64, perms: u32, name: u32, kind: VmaKind) -> Mapping {
    Mapping { start, kib, perms, name, kind, stat: Some((kib / 2, 0)) }
}

/// The mappings of process 10.
fn mappings() -> Vec<Mapping> {
    vec![
        map(0x5500_0000_0000, 8, 5, 1, VmaKind::File),
        map(0x5500_1000_0000, 132, 3, 0, VmaKind::Heap),
        map(0x7f00_0000_0000, 100, 5, 2, VmaKind::File),
        map(0x7f00_1000_0000, 4, 1, 3, VmaKind::File),
        map(0x7f00_2000_0000, 1024, 11, 4, VmaKind::File),
        map(0x7f00_3000_0000, 64, 3, 5, VmaKind::Named),
        map(0x7f00_4000_0000, 20, 3, 0, VmaKind::Anon),
        Mapping { stat: None, ..map(0x7f00_5000_0000, 16, 1, 6, VmaKind::Special) },
        map(0x7ffe_0000_0000, 132, 3, 0, VmaKind::Stack),
        map(0x7ffe_1000_0000, 8, 5, 0, VmaKind::Vdso),
    ]
}

/// The content of a made-up process.
pub enum Has {
    Maps(Vec<Mapping>),
    SharesWith(u32),
    Lacks(Reason),
    StatLacks(Reason, Vec<Mapping>),
}

pub const GROUPS: Groups = Groups::BASE
    .union(Groups::CRED)
    .union(Groups::CMDLINE)
    .union(Groups::VMA)
    .union(Groups::VMA_STAT);

pub fn stream(tasks: &[(u32, &str, Has)], done: Done) -> Vec<u8> {
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    info.show_flags = GROUPS.bits();
    info.dump_strategy = Strategy::All as u64;
    info.page_size = 4096;
    info.procfs_groups = GROUPS.bits();
    w.info(&info);
    for (i, (pid, comm, has)) in tasks.iter().enumerate() {
        w.begin_task(*pid, *pid);
        let base = build!(Base { valid: Base::ALL_VALID, ppid: 1, state: b'S', ..Base::new() });
        w.put_base(&base, comm.as_bytes());
        w.put(&build!(Cred { valid: Cred::ALL_VALID, ..Cred::new() }));
        let args = format!("/bin/{comm}\0-x\0");
        w.put_blob(Group::Cmdline as u16, 0, 0, args.as_bytes(), args.len());
        match has {
            Has::Maps(m) => put(&mut w, m, None),
            Has::StatLacks(why, m) => put(&mut w, m, Some(*why)),
            Has::SharesWith(pid) => {
                w.shared(Group::Vma, *pid);
                w.shared(Group::VmaStat, *pid);
            }
            Has::Lacks(why) => {
                w.missing(Group::Vma, *why);
                w.missing(Group::VmaStat, *why);
            }
        }
        if i + 1 == tasks.len() {
            // After their uses, as the format allows.
            NAMES.iter().for_each(|(n, flags, name)| w.put_name(*n, *flags, name));
        }
        w.end_task();
    }
    w.finish(done).as_bytes().to_vec()
}

fn put(w: &mut StreamWriter, mappings: &[Mapping], no_stat: Option<Reason>) {
    let vma = |m: &Mapping| {
        build!(Vma {
            start: m.start,
            end: m.start + m.kib * 1024,
            offset_bytes: 0x1000,
            inode: u64::from(m.name) * 7,
            dev: 0xfe01,
            name: m.name,
            perms: m.perms,
            flags: 0x100,
            kind: m.kind as u32,
            ..Vma::default()
        })
    };
    let vmas: Vec<Vma> = mappings.iter().map(vma).collect();
    w.put_list(Vma::ALL_VALID, &vmas);
    if let Some(why) = no_stat {
        return w.missing(Group::VmaStat, why);
    }
    let stat = |m: &Mapping| {
        let (rss, swap) = m.stat?;
        Some(build!(VmaStat {
            start: m.start,
            end: m.start + m.kib * 1024,
            rss_bytes: rss * 1024,
            pss_bytes: rss * 512,
            private_dirty_bytes: rss * 256,
            swap_bytes: swap * 1024,
            ..VmaStat::default()
        }))
    };
    let stats: Vec<VmaStat> = mappings.iter().filter_map(stat).collect();
    // KSM is not known, as on older kernels.
    let ksm = VmaStat::MEMBERS.iter().position(|m| *m == "ksm_bytes").unwrap();
    w.put_list(VmaStat::ALL_VALID & !(1 << ksm), &stats);
}

/// A process with mappings, one that shares them, a kernel thread, one that denies.
fn machine() -> Saved {
    Saved::bytes(&stream(
        &[
            (2, "kthreadd", Has::Lacks(Reason::Absent)),
            (10, "prog", Has::Maps(mappings())),
            (11, "vfork", Has::SharesWith(10)),
            (12, "other", Has::Maps(vec![map(0x5500_0000_0000, 8, 5, 1, VmaKind::File)])),
        ],
        Done::default(),
    ))
}

fn maps(saved: &Saved, args: &[&str]) -> (i32, String, String) {
    let o = taskdiag().arg("maps").arg("--from").arg(saved.path()).args(args).output();
    parts(&o.expect("the program runs"))
}

#[test]
fn maps_of_one_process_have_a_total() {
    let want = "\
10:   /bin/prog -x
Address             Size Mode  Mapping
0000550000000000       8 r-x-- /usr/bin/prog
0000550010000000     132 rw--- [heap]
00007f0000000000     100 r-x-- /usr/lib/libold.so.1 (deleted)
00007f0010000000       4 r---- /tmp/a\\nb\\x1b[2J\\xff
00007f0020000000    1024 rw-s- /memfd:secret (deleted)
00007f0030000000      64 rw--- [anon:arena \u{20ac}]
00007f0040000000      20 rw--- [anon]
00007f0050000000      16 r---- [vvar]
00007ffe00000000     132 rw--- [stack]
00007ffe10000000       8 r-x-- [vdso]
total               1508
";
    let want = want.replace("  Size", "Kbytes");
    assert_eq!(maps(&machine(), &["10"]), (0, want.clone(), String::new()));
    // A process that shares the memory has the same mappings.
    let same = want.replace("10:   /bin/prog", "11:   /bin/vfork");
    assert_eq!(maps(&machine(), &["-p", "11"]).1, same);
    let (_, out, _) = maps(&machine(), &["10", "--no-headers"]);
    assert_eq!(out.lines().count(), mappings().len());
}

#[test]
fn maps_of_all_processes_name_the_process() {
    let (code, out, err) = maps(&machine(), &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), 1 + 2 * mappings().len() + 1 + 1);
    assert_eq!(out.lines().nth(1), Some("   10 0000550000000000       8 r-x-- /usr/bin/prog"));
    // Process 11 has the memory of process 10, which counts once.
    assert_eq!(out.lines().last(), Some("total                     1516"));
}

/// The default view is written in a faster way to a pipe. Its lines are the same.
#[test]
fn the_fast_lines_of_maps_are_those_of_the_default_view() {
    let mut odd = mappings();
    odd.extend([
        map(0x7fff_0000_0000, 1 << 40, 3, 0, VmaKind::Anon),
        map(0x7fff_1000_0000, 0, 0, 0, VmaKind::Special),
        map(0x7fff_2000_0000, 4, 77, 1, VmaKind::File),
        map(0x7fff_3000_0000, 4, 1, 5000, VmaKind::File),
        map(0x7fff_4000_0000, 4, 0, 0, VmaKind::Named),
    ]);
    let tasks = [(9, "a", Has::Maps(mappings())), (4_000_000, "b", Has::Maps(odd))];
    let saved = Saved::bytes(&stream(&tasks, Done::default()));
    for args in [&[][..], &["-p", "4000000"], &["--path", "lib"]] {
        let by_hand = maps(&saved, args);
        assert_eq!(by_hand, maps(&saved, &[args, &["--columns", "60000"]].concat()));
        assert!(by_hand.1.lines().count() > 3);
    }
}

#[test]
fn extended_maps_show_resident_and_dirty_memory() {
    let (code, out, err) = maps(&machine(), &["-x", "10"]);
    // A mapping that came after the walk over the pages has no figures, and that is no failure.
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[1], "Address           Kbytes     RSS   Dirty Mode  Mapping");
    assert_eq!(lines[2], "0000550000000000       8       4       1 r-x-- /usr/bin/prog");
    assert_eq!(lines[9], "00007f0050000000      16       ?       ? r---- [vvar]");
    assert_eq!(lines.last().unwrap().split_whitespace().nth(2), Some("746"));
    let (code, out, err) = maps(&machine(), &["-X", "10"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let header = out.lines().nth(1).unwrap();
    assert!(header.contains("Private_Dirty") && header.contains("VmFlags"), "{header}");
    assert!(!header.contains("KSM"), "not known to that kernel: {header}");
    assert!(out.lines().nth(2).unwrap().contains("rd ex ac"), "{out}");
}

#[test]
fn json_is_lossless() {
    let columns = "pid,start,size,perms,kind,mapping,path,deleted,rss,swap";
    let (_, out, _) = maps(&machine(), &["--json", "-o", columns, "10"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(
        all[0],
        json!({"pid": 10, "address": "0000550000000000", "size": 8192, "perms": "r-xp",
               "kind": "file", "mapping": "/usr/bin/prog", "path": "/usr/bin/prog",
               "deleted": false, "rss": 4096, "swap": 0})
    );
    assert_eq!(all[2]["path"], "/usr/lib/libold.so.1");
    assert_eq!((&all[2]["deleted"], &all[4]["deleted"]), (&json!(true), &json!(false)));
    assert_eq!(all[3]["path_bytes"], "L3RtcC9hCmIbWzJK/w==");
    assert_eq!(all[5]["mapping"], "[anon:arena \u{20ac}]");
    assert_eq!(all[7]["missing"], json!({"rss": "vanished", "swap": "vanished"}));
}

#[test]
fn rows_for_programs_have_one_value_in_each_member() {
    let (_, out, _) = maps(&machine(), &["--json", "12"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    let want = json!([{"pid": 12, "address": "0000550000000000", "end": "0000550000002000",
        "size": 8192, "perms": "r-xp", "offset": 4096, "device": "fe:01", "inode": 7,
        "kind": "file", "path": all[0]["path"], "deleted": false}]);
    assert_eq!(all, want);
    assert!(all[0]["path"].as_str().is_some_and(|p| p.starts_with('/')), "{out}");
    let (_, out, _) = maps(&machine(), &["--csv", "-x", "12"]);
    assert!(out.starts_with("pid,address,end,size,rss,dirty,perms,"), "{out}");
}

#[test]
fn columns_of_the_task_are_there_too() {
    let (code, out, _) =
        maps(&machine(), &["--csv", "-o", "task.pid,user,comm,address,task.f", "12"]);
    assert_eq!(code, 0);
    assert_eq!(out, "task.pid,user,comm,address,task.f\n12,root,other,0000550000000000,0\n");
    let (code, _, err) = maps(&machine(), &["-o", "adress"]);
    assert_eq!(code, 2);
    assert!(err.contains("did you mean 'address'"), "{err}");
}

#[test]
fn conditions_select_mappings() {
    let count = |args: &[&str]| {
        let (code, out, err) = maps(&machine(), &[args, &["--no-headers"]].concat());
        // Only a process without any mapping gets the message that it has no memory.
        let want = match args {
            ["2"] => "taskdiag: process 2 has no memory: it is a kernel thread, or it has ended\n",
            _ => "",
        };
        assert_eq!(err, want, "{args:?}");
        (code, out.lines().count())
    };
    let n = mappings().len();
    assert_eq!(count(&["-C", "other"]), (0, 1));
    assert_eq!(count(&["-u", "root"]), (0, 2 * n + 1));
    assert_eq!(count(&["10", "12"]), (0, n + 1));
    assert_eq!(count(&["--path", "libold"]), (0, 2));
    assert_eq!(count(&["--path", "libold,prog", "10"]), (0, 2));
    assert_eq!(count(&["--deleted"]), (0, 2));
    assert_eq!(count(&["--deleted", "12"]), (1, 0));
    assert_eq!(count(&["2"]), (1, 0));
}

#[test]
fn sorting_goes_across_processes() {
    let (_, out, _) = maps(&machine(), &["--sort", "-size,pid", "-o", "pid,size", "--no-headers"]);
    let first: Vec<&str> = out.lines().take(2).map(str::trim).collect();
    assert_eq!(first, ["10    1024", "11    1024"]);
    let (_, out, _) = maps(&machine(), &["--sort", "task.comm", "-o", "comm", "--no-headers"]);
    assert_eq!(out.lines().next().map(str::trim), Some("other"));
}

#[test]
fn users_of_a_library_are_listed() {
    let (code, out, err) = maps(&machine(), &["--by", "path", "-x"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "Procs   Maps  Kbytes     RSS   Dirty Path");
    let prog = lines.iter().find(|l| l.ends_with("/usr/bin/prog")).unwrap();
    // A process that shares its memory is counted, but the memory is not added again.
    assert_eq!(*prog, "    3      2      16       8       2 /usr/bin/prog");
    let (_, out, _) = maps(&machine(), &["--by", "kind", "--json", "-o", "kind,procs,maps"]);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(all[0], json!({"kind": "file", "procs": 3, "maps": 5}));
}

#[test]
fn threads_have_no_mappings_of_their_own() {
    let mut w = StreamWriter::new();
    let info = wire_info();
    w.info(&build!(taskdiag::wire::Info {
        dump_strategy: taskdiag::Strategy::AllThread as u64,
        show_flags: (Groups::BASE | Groups::VMA).bits(),
        ..info
    }));
    for tid in [20, 21, 22] {
        w.begin_task(tid, 20);
        w.put_base(&Base::new(), b"web");
        match tid {
            20 => {
                w.put_name(1, 0, b"/lib/libc.so");
                let vma = build!(Vma {
                    start: 4096,
                    end: 8192,
                    inode: 7,
                    dev: 1,
                    name: 1,
                    kind: 1,
                    ..Vma::default()
                });
                w.put_list(Vma::ALL_VALID, &[vma]);
            }
            _ => w.shared(Group::Vma, 20),
        }
        w.end_task();
    }
    let saved = Saved::bytes(w.finish(Done::default()).as_bytes());
    let (code, out, err) =
        maps(&saved, &["--by", "path", "--no-headers", "-o", "procs,maps,mapping"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!((code, words), (0, vec!["1", "1", "/lib/libc.so"]), "{err}");
    let (_, out, _) = maps(&saved, &["--no-headers", "-o", "pid,mapping"]);
    assert_eq!(out.lines().count(), 1, "{out}");
}

#[test]
fn gaps_are_reported() {
    let saved = Saved::bytes(&stream(
        &[
            (2, "kthreadd", Has::Lacks(Reason::Absent)),
            (20, "secret", Has::Lacks(Reason::Denied)),
            (21, "stuck", Has::StatLacks(Reason::Blocked, mappings())),
            (22, "large", Has::StatLacks(Reason::OverBudget, mappings())),
        ],
        Done::default(),
    ));
    let (code, out, err) = maps(&saved, &["-x"]);
    assert_eq!(code, 0, "nobody named these processes");
    // The message counts one task, for any number and order of its mappings.
    let blocked = "reading rss, dirty of 1 process would have blocked";
    for words in [
        "mappings of 1 process were not shown",
        blocked,
        "rss, dirty of 1 process were not read",
        "--budget",
    ] {
        assert!(err.contains(words), "{words}: {err}");
    }
    for form in [&["-x", "--sort", "size"][..], &["-x", "--csv"]] {
        let (_, _, err) = maps(&saved, form);
        assert!(err.contains(blocked), "{form:?}: {err}");
    }
    assert!(out.contains("   21 0000550000000000       8       ?       ? r-x-- "), "{out}");
    let (code, out, _) = maps(&saved, &["--jsonl", "-o", "pid,size,rss"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * mappings().len(), "{out}");
    assert_eq!(
        lines[0],
        r#"{"pid":20,"size":null,"rss":null,"missing":{"size":"denied","rss":"denied"}}"#
    );
    assert!(lines[1].contains(r#""missing":{"rss":"blocked"}"#), "{out}");
    // An answer that was made without mappings.
    let (code, _, err) = maps(&Saved::tasks(&super::common::machine()), &[]);
    assert_eq!(code, 3);
    assert!(err.contains("--groups base,cred,vma,"), "{err}");
}

#[test]
fn a_walk_that_was_stopped_is_partial() {
    let stopped = build!(Done { error: -4, ..Done::default() });
    let bytes = stream(&[(12, "x", Has::Maps(mappings()))], stopped);
    let (code, out, err) = maps(&Saved::bytes(&bytes), &["--no-headers"]);
    assert_eq!((code, out.lines().count()), (3, mappings().len()));
    assert!(err.contains("ended early"), "{err}");
}

#[test]
fn a_list_that_ends_early_is_not_taken_for_whole() {
    let mut w = StreamWriter::new();
    let mut info = wire_info();
    info.show_flags |= Groups::VMA_STAT.bits();
    w.info(&info);
    w.begin_task(5, 5);
    let vma = |start| build!(Vma { start, end: start + 4096, kind: 2, ..Vma::default() });
    w.put_list(Vma::ALL_VALID, &[vma(4096), vma(8192)]);
    w.missing(Group::Vma, Reason::Blocked);
    let stat = build!(VmaStat { start: 4096, end: 8192, rss_bytes: 4096, ..VmaStat::default() });
    w.put_list(VmaStat::ALL_VALID, &[stat]);
    w.missing(Group::VmaStat, Reason::OverBudget);
    w.end_task();
    let saved = Saved::bytes(w.finish(Done::default()).as_bytes());
    let (code, out, err) = maps(&saved, &["--no-headers", "-o", "size,rss"]);
    let words: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!((code, words), (0, vec![vec!["4", "4"], vec!["4", "?"]]), "{out}");
    assert!(err.contains("reading mappings of 1 process would have blocked"), "{err}");
    assert!(err.contains("rss of 1 process was not read, over a limit"), "{err}");
    let (code, out, _) = maps(&saved, &["--jsonl", "-o", "pid,size"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len()), (0, 3), "{out}");
    assert_eq!(lines[2], r#"{"pid":5,"size":null,"missing":{"size":"blocked"}}"#);
}

#[test]
fn shared_memory_counts_for_the_first_selected_process() {
    let mut w = StreamWriter::new();
    w.info(&wire_info());
    let vma = build!(Vma { start: 4096, end: 12288, kind: 2, ..Vma::default() });
    w.begin_task(5, 5);
    w.put_list(Vma::ALL_VALID, &[vma]);
    w.end_task();
    for pid in [6, 7] {
        w.begin_task(pid, pid);
        w.shared(Group::Vma, 5);
        w.end_task();
    }
    let saved = Saved::bytes(w.finish(Done::default()).as_bytes());
    let sums = |pids| {
        let (code, out, _) =
            maps(&saved, &["--by", "kind", "-p", pids, "--no-headers", "-o", "procs,maps,kbytes"]);
        (code, out.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    for (pids, procs) in [("5,6,7", "3"), ("6,7", "2"), ("7", "1")] {
        assert_eq!(
            sums(pids),
            (0, vec![procs.to_owned(), "1".to_owned(), "8".to_owned()]),
            "{pids}"
        );
    }
}

#[test]
fn odd_streams_of_mappings_are_printed() {
    // Names that do not exist, members that are not known, and a value shared with a task that does
    // not exist.
    let mut w = StreamWriter::new();
    w.info(&wire_info());
    w.begin_task(5, 5);
    let vma = build!(Vma { start: 5, end: 1, name: 99, kind: 1, perms: 7, ..Vma::default() });
    w.put_list(Vma::ALL_VALID, &[vma, build!(Vma { kind: 77, ..vma })]);
    w.put_list(0, &[vma]);
    w.end_task();
    w.begin_task(6, 6);
    w.shared(Group::Vma, 4_000_000);
    w.end_task();
    let saved = Saved::bytes(w.finish(Done::default()).as_bytes());
    let (code, out, _) = maps(&saved, &["--no-headers", "-o", "pid,size,mapping,path,kind"]);
    assert_eq!(code, 0);
    let words: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
    let want = [["5", "0", "?", "?", "file"], ["5", "0", "?", "?", "?"], ["5", "?", "?", "?", "?"]];
    assert_eq!(words, want, "{out}");
}

fn wire_info() -> taskdiag::wire::Info {
    let mut info = StreamWriter::blank_info();
    info.show_flags = Groups::VMA.bits();
    info
}
