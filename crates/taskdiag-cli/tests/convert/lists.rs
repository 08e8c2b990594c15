//! Each frame can be restored from `sockets.parquet` and `mapped_files.parquet`, and missing data
//! does not count as ended.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use taskdiag::recording::{Options, Writer};
use taskdiag::wire::{Done, Info, StreamWriter, build};
use taskdiag::{Base, Group, Groups, Reason, Snapshot, Strategy, Vma, VmaKind};

use super::made::{
    ESTABLISHED, LISTEN, Made, Process, Sock, head, lists, mapped, mapped_of, put_files, put_maps,
    socket, sockets_of,
};
use super::table::{Batch, Row, at};
use super::{BEGIN, MINUTE, SECOND_NS, micros, text};

/// A hundred minutes in which sockets come and go, a descriptor is used again, and a library is
/// replaced.
fn frames() -> Vec<Vec<Process>> {
    let libc = ("/usr/lib/libc.so.6", 100, false);
    (0..100)
        .map(|minute| {
            let ssl = ("/usr/lib/libssl.so.3", 200, minute >= 25);
            let new_ssl = ("/usr/lib/libssl.so.3", 201, false);
            let mut listens = vec![(3, (LISTEN, 443, 1000))];
            // Connections of a minute each, which reuse one descriptor.
            if minute % 3 != 0 {
                listens.push((4, (ESTABLISHED, 443, 2000 + minute)));
            }
            // A process that listens only between two full frames.
            let mut odd = vec![(5, (ESTABLISHED, 4444, 3000))];
            if (13..17).contains(&minute) {
                odd = vec![(5, (LISTEN, 4444, 3001)), (6, (LISTEN, 4445, 3002))];
            }
            let mut processes = vec![
                Process::new(10, &listens, &[libc, ssl]),
                Process::new(20, &odd, &[libc]),
                Process::new(30, &[], &[]),
            ];
            // This process has begun after the library was replaced.
            if minute >= 31 {
                processes.push(Process::new(40, &[], &[libc, new_ssl]));
            }
            // The process ends, and so do its sockets and libraries.
            if minute >= 68 {
                processes.remove(1);
            }
            processes
        })
        .collect()
}

#[test]
fn files_and_sockets_of_every_frame_can_be_had_again() {
    let frames = frames();
    let made = Made::of(&frames);
    let ran = made.convert(&[]);
    assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(0), String::new()));
    let said = text(&ran.stdout);
    for name in ["processes", "sockets", "mapped_files"] {
        let lines = said.lines().filter(|l| l.contains(&format!("/{name}.parquet: ")));
        assert_eq!(lines.count(), 2, "{name} of two hours: {said}");
    }
    let (mut written, mut all) = (0, 0);
    for hour in [3, 4] {
        let sockets = made.rows(hour, "sockets.parquet", socket);
        let maps = made.rows(hour, "mapped_files.parquet", mapped);
        assert!(sockets.is_sorted_by_key(|r| (r.pid, r.value.0, r.ts)), "in order of descriptors");
        assert!(maps.is_sorted_by_key(|r| r.pid));
        written += sockets.len() + maps.len();
        // Each file is complete by itself.
        let minutes = if hour == 3 { 0..50 } else { 50..100 };
        for (minute, processes) in (0..).zip(&frames).filter(|(m, _)| minutes.contains(m)) {
            let (found, known) = (at(&sockets, micros(minute), |r| r.0), sockets_of(processes));
            assert!(found == known, "minute {minute}: {found:?} and not {known:?}");
            let found = at(&maps, micros(minute), |r| (r.0.clone(), r.1));
            let known = mapped_of(processes);
            assert!(found == known, "minute {minute}: {found:?} and not {known:?}");
            all += sockets_of(processes).len() + known.len();
        }
        for name in ["full", "new", "changed", "ended"] {
            // The second hour has no socket that changes and stays, and no new library.
            let is_there = sockets.iter().any(|r| r.change == name);
            assert!(is_there || hour == 4, "{name} in hour {hour}");
        }
    }
    assert!(written * 2 < all, "{written} rows of {all}");
}

#[test]
fn a_recording_without_lists_has_no_such_files() {
    let frames = frames();
    let groups = Groups::BASE;
    let made = Made::new(frames.iter().map(|processes| (groups, &processes[..])));
    made.convert_all(&[]);
    assert_eq!(made.names(), ["processes.parquet"]);
    // Hours that are over are not read again, although they have no file of this table.
    assert_eq!(text(&made.convert(&[]).stdout), "");
    // A request for such a table reports it.
    let ran = made.convert(&["--tables", "sockets,maps", "--again"]);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains("table sockets is not written, because the recording has no open files"));
    assert!(said.contains("--groups default,vma"), "{said}");
    assert_eq!(made.names(), ["processes.parquet"]);
}

#[test]
fn tables_that_were_not_written_make_an_hour_be_written_again() {
    let made = Made::of(&frames());
    made.convert_all(&["--tables", "none"]);
    assert_eq!(made.names(), ["processes.parquet"]);
    made.convert_all(&["--tables", "sockets"]);
    assert_eq!(made.names(), ["processes.parquet", "sockets.parquet"]);
    assert_eq!(text(&made.convert(&["--tables", "none"]).stdout), "", "it has more than that");
    // A file that a killed command has left is no obstacle, and is removed.
    fs::write(made.file(3, ".sockets-7.parquet.part"), "torn").expect("there is room");
    made.convert_all(&["--tables", "files,maps"]);
    assert_eq!(
        made.names(),
        ["files.parquet", "maps.parquet", "processes.parquet", "sockets.parquet"]
    );
    let files = made.rows(3, "files.parquet", |of, i| {
        (of.number("fdnum", i), of.word("kind", i), of.word("path", i))
    });
    let is_log = |r: &Row<(Option<u64>, Option<String>, Option<String>)>| {
        r.value.0 == Some(0) && r.value.2.as_deref() == Some("/var/log/syslog")
    };
    assert!(files.iter().any(is_log), "{files:?}");
    assert!(files.iter().any(|r| r.value.1.as_deref() == Some("socket")));
    let maps = made.rows(3, "maps.parquet", |of, i| (of.number("address", i), of.word("kind", i)));
    let of_ten = |r: &&Row<(Option<u64>, Option<String>)>| r.pid == 10 && r.ts == micros(0);
    // Each of two files is mapped twice, and one mapping has no file.
    assert_eq!(maps.iter().filter(of_ten).count(), 5, "{maps:?}");
    assert!(maps.iter().any(|r| r.value.1.as_deref() == Some("anon")));
}

#[test]
fn entries_that_could_not_be_read_have_not_ended() {
    let mut frames: Vec<Vec<Process>> = (0..16)
        .map(|_| {
            let sockets = [(3, (LISTEN, 443, 1000)), (4, (LISTEN, 80, 1001))];
            vec![
                Process::new(10, &sockets, &[("/usr/lib/libc.so.6", 100, false)]),
                Process::new(20, &sockets, &[]),
            ]
        })
        .collect();
    let known = frames.clone();
    // The lists of a process are not read for some frames, among them a full one. It closes a
    // socket in between.
    for frame in &mut frames[8..12] {
        frame[0].sockets = Err(Reason::Denied);
        frame[0].mapped = Err(Reason::Blocked);
    }
    for frame in &mut frames[12..] {
        frame[0].sockets.as_mut().expect("it is known").remove(&4);
    }
    let made = Made::of(&frames);
    let ran = made.convert(&[]);
    let said = text(&ran.stderr);
    // The recorder could not see these lists.
    assert_eq!(ran.status.code(), Some(0), "{said}");
    for line in [
        "open files of a process could not be read 4 times (denied): the table sockets",
        "mappings of a process could not be read 4 times (blocked): the table mapped_files",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let sockets = made.rows(3, "sockets.parquet", socket);
    let maps = made.rows(3, "mapped_files.parquet", mapped);
    // Frame 10 is full, and lacks these lists.
    for minute in [0, 7, 8, 9] {
        let found = at(&sockets, micros(minute), |r| r.0);
        assert!(found == sockets_of(&known[0]), "minute {minute}: {found:?}");
    }
    for minute in [12, 15] {
        let found = at(&sockets, micros(minute), |r| r.0);
        assert!(found == sockets_of(&frames[12]), "minute {minute}: {found:?}");
        let found = at(&maps, micros(minute), |r| (r.0.clone(), r.1));
        assert!(found == mapped_of(&frames[12]), "minute {minute}: {found:?}");
    }
    let ended: Vec<(u64, u64, i64)> =
        sockets.iter().filter(|r| r.change == "ended").map(|r| (r.pid, r.value.0, r.ts)).collect();
    assert_eq!(ended, [(10, 4, micros(12))], "only what is known to be closed");
}

#[test]
fn answers_without_the_list_are_reported() {
    let frames = frames();
    let groups = |minute: usize| if minute < 20 { lists() } else { Groups::BASE | Groups::VMA };
    let made = Made::new(frames.iter().enumerate().map(|(m, p)| (groups(m), &p[..])));
    let ran = made.convert(&[]);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains("80 of 100 answers were recorded without open files"), "{said}");
    assert!(!said.contains("mappings"), "{said}");
    assert!(!made.file(4, "sockets.parquet").exists());
    assert!(made.file(4, "mapped_files.parquet").exists());
    let sockets = made.rows(3, "sockets.parquet", socket);
    assert!(at(&sockets, micros(15), |r| r.0) == sockets_of(&frames[15]));
    assert!(sockets.iter().all(|r| r.ts < micros(20)));
}

#[test]
fn each_table_has_its_columns_and_the_chosen_ones() {
    let made = Made::of(&frames());
    made.convert_all(&["-o", "comm", "-o", "sockets:lport, exe", "--args"]);
    let names = |name: &str| {
        let file = File::open(made.file(3, name)).expect("it is there");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("it is a Parquet file");
        let names: Vec<String> =
            reader.schema().fields().iter().map(|f| f.name().clone()).collect();
        names.join(",")
    };
    assert_eq!(names("processes.parquet"), "ts,change,pid,start_ticks,boot_id,comm,args");
    assert_eq!(names("sockets.parquet"), "ts,change,pid,start_ticks,boot_id,fdnum,lport,exe");
    assert_eq!(
        names("mapped_files.parquet"),
        "ts,change,pid,start_ticks,boot_id,device,inode,path,comm,user,unit,container,deleted"
    );
    for (options, said) in [
        (&["--tables", "socket"][..], "there is no table 'socket'"),
        (&["-o", "files:path"], "add it to --tables"),
        (&["-o", "nosuch:path"], "there is no table 'nosuch'"),
        (&["-o", "sockets:nosuch"], "there is no column 'nosuch'"),
    ] {
        let ran = made.convert(options);
        assert_eq!(ran.status.code(), Some(2), "{options:?}");
        assert!(text(&ran.stderr).contains(said), "{options:?}: {}", text(&ran.stderr));
    }
}

#[test]
fn threads_share_the_files_and_mappings_of_their_process() {
    let mut w = StreamWriter::new();
    w.info(&head(0, lists(), Strategy::AllThread));
    for tid in [10, 11, 12] {
        w.begin_task(tid, 10);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        base.start_time_ns = u64::from(tid) * 10_000_000;
        w.put_base(&base, b"many");
        // The last one has a table of open files of its own.
        match tid {
            11 => w.shared(Group::Fd, 10),
            _ => put_files(&mut w, tid, &[(5, (LISTEN, 443, u64::from(tid)))].into()),
        }
        match tid {
            10 => put_maps(&mut w, tid, &[("/usr/lib/libc.so.6", 100, false)]),
            _ => w.shared(Group::Vma, 10),
        }
        w.end_task();
    }
    let snapshot = Snapshot::parse(w.finish(Done::default())).expect("it is whole");
    let dir = tempfile::tempdir().expect("there is room");
    let options = Options::new(Duration::from_secs(MINUTE));
    let mut writer = Writer::open(dir.path().join("recording"), options).expect("it is new");
    writer.append(&snapshot).expect("there is room");
    let made = Made { dir };
    made.convert_all(&[]);
    assert_eq!(made.names(), ["mapped_files.parquet", "sockets.parquet", "threads.parquet"]);
    let tids = |name: &str| -> Vec<(u64, Option<u64>)> {
        let rows = made.rows(3, name, |of, i| of.number("tid", i));
        rows.iter().map(|r| (r.pid, r.value)).collect()
    };
    assert_eq!(tids("threads.parquet"), [10, 11, 12].map(|tid| (10, Some(tid))));
    assert_eq!(tids("sockets.parquet"), [10, 12].map(|tid| (10, Some(tid))));
    assert_eq!(made.rows(3, "mapped_files.parquet", mapped).len(), 1);
}

#[test]
fn a_table_that_does_not_fit_on_the_disk_leaves_what_was_there() {
    // Each has an inode of its own, so that they take more room than the processes.
    let inode = |fd: u32| u64::from(fd).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sockets: Vec<(u32, Sock)> = (1..15_000).map(|fd| (fd, (LISTEN, 80, inode(fd)))).collect();
    let made = Made::of(&[vec![Process::new(10, &sockets, &[("/usr/lib/libc.so.6", 100, false)])]]);
    made.convert_all(&["--tables", "none"]);
    let before = fs::read(made.file(3, "processes.parquet")).expect("it is there");
    let mut small = Command::new("sh");
    // 32 or 64 KiB, as the shell counts. A write beyond this size is an error, as on a full disk.
    small.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"]);
    small.arg(env!("CARGO_BIN_EXE_taskdiag"));
    let ran = made.convert_with(small, &["--tables", "mapped_files,sockets"]);
    let said = text(&ran.stderr);
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(1), String::new()), "{said}");
    assert!(said.contains("sockets.parquet: "), "{said}");
    assert_eq!(made.names(), ["processes.parquet"]);
    assert!(fs::read(made.file(3, "processes.parquet")).is_ok_and(|now| now == before));
    made.convert_all(&[]);
    assert_eq!(made.names(), ["mapped_files.parquet", "processes.parquet", "sockets.parquet"]);
    let size = made.file(3, "sockets.parquet").metadata().expect("it is there").len();
    assert!(size > 64 << 10, "{size} bytes would have fitted");
}

#[test]
fn very_many_rows_are_several_files() {
    // 40,000 sockets in each of nine frames that are all full.
    let sockets: Vec<(u32, Sock)> =
        (0..1000).map(|fd| (fd + 1, (LISTEN, fd as u16 + 1, u64::from(fd)))).collect();
    let processes: Vec<Process> = (1..=40).map(|pid| Process::new(pid, &sockets, &[])).collect();
    let made = Made::of(&vec![processes.clone(); 9]);
    let tables = ["--tables", "sockets", "-o", "sockets:lport"];
    made.convert_all(&[&tables[..], &["--full-every", "0"]].concat());
    assert_eq!(made.names(), ["processes.parquet", "sockets-1.parquet", "sockets.parquet"]);
    let port = |of: &Batch<'_>, i: usize| (of.number("fdnum", i), of.number("lport", i));
    let rows = [made.rows(3, "sockets.parquet", port), made.rows(3, "sockets-1.parquet", port)];
    assert_eq!(rows.iter().map(Vec::len).sum::<usize>(), 9 * 40_000);
    assert!(rows.iter().all(|rows| !rows.is_empty()));
    for minute in 0..9 {
        let of_minute = rows.iter().flatten().filter(|r| r.ts == micros(minute));
        assert_eq!(of_minute.count(), 40_000, "minute {minute}");
    }
    // A conversion that needs one file leaves no second one, whose rows would count twice.
    made.convert_all(&[&tables[..], &["--again"]].concat());
    assert_eq!(made.names(), ["processes.parquet", "sockets.parquet"]);
    assert_eq!(made.rows(3, "sockets.parquet", port).len(), 40_000);
}

/// Processes that map the same files, whose paths have 4000 bytes each. A path is in the recording
/// once, and in each row of the table.
fn with_long_paths(processes: u32, files: u32) -> Snapshot {
    let mut w = StreamWriter::new();
    w.info(&build!(Info {
        realtime_ns: BEGIN * SECOND_NS,
        boottime_ns: 100_000 * SECOND_NS,
        show_flags: (Groups::BASE | Groups::VMA).bits(),
        dump_strategy: Strategy::All as u64,
        clk_tck: 100,
        ..StreamWriter::blank_info()
    }));
    for pid in 1..=processes {
        w.begin_task(pid, pid);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        base.start_time_ns = u64::from(pid) * 10_000_000;
        w.put_base(&base, b"long");
        let entry = |n: u32| {
            let (start, inode) = (0x1000 * u64::from(n), u64::from(n));
            build!(Vma {
                start,
                end: start + 0x1000,
                inode,
                dev: 2049,
                name: n,
                kind: VmaKind::File as u32,
                ..Vma::default()
            })
        };
        w.put_list(Vma::ALL_VALID, &(1..=files).map(entry).collect::<Vec<_>>());
        if pid == 1 {
            (1..=files).for_each(|n| w.put_name(n, 0, long_path(n).as_bytes()));
        }
        w.end_task();
    }
    Snapshot::parse(w.finish(Done::default())).expect("it is whole")
}

fn long_path(n: u32) -> String {
    format!("/{n:05}/{}", "d".repeat(4000 - 7))
}

#[test]
fn memory_does_not_grow_with_the_length_of_paths() {
    const PROCESSES: u32 = 40;
    const FILES: u32 = 1500;
    // The paths of all rows together have 240 MB.
    const ALLOWED: u64 = 300 << 20;
    let dir = tempfile::tempdir().expect("there is room");
    let options = Options::new(Duration::from_secs(MINUTE));
    let mut writer = Writer::open(dir.path().join("recording"), options).expect("it is new");
    writer.append(&with_long_paths(PROCESSES, FILES)).expect("there is room");
    drop(writer);
    let made = Made { dir };
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiag"));
    let limit = libc::rlimit { rlim_cur: ALLOWED, rlim_max: ALLOWED };
    let set = move || {
        // SAFETY: the struct is valid.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only a system call.
    unsafe { command.pre_exec(set) };
    let ran = made.convert_with(command, &["--tables", "mapped_files"]);
    assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(0), String::new()));
    let names = made.names();
    let files: Vec<&String> = names.iter().filter(|n| n.starts_with("mapped_files")).collect();
    assert!(files.len() > 2, "{names:?}");
    // A part of each path is enough to tell them apart.
    let value = |of: &Batch<'_>, i: usize| {
        let path = of.word("path", i).expect("each has one");
        (of.number("inode", i), path.len(), path[..7].to_owned())
    };
    let mut rows = Vec::new();
    for file in files {
        rows.extend(made.rows(3, file, value).into_iter().map(|r| (r.pid, r.value)));
    }
    rows.sort_unstable();
    let path = |n: u32| (Some(u64::from(n)), 4000, long_path(n)[..7].to_owned());
    let want = (1..=PROCESSES).flat_map(|p| (1..=FILES).map(move |n| (u64::from(p), path(n))));
    assert_eq!(rows.len(), (PROCESSES * FILES) as usize);
    assert!(rows.into_iter().eq(want), "each file of each process is there once");
}
