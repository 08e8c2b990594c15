//! `taskdiag convert`: each frame of a made-up recording can be restored from the files.

#![cfg(all(feature = "arrow", feature = "record"))]

mod lists;
mod made;
mod table;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, TimestampMicrosecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use table::Row;
use taskdiag::recording::{Options, Writer};
use taskdiag::wire::{BootId, Done, Fixed, Info, StreamWriter, build};
use taskdiag::{Base, Snapshot, Stat, Strategy};

/// 2026-11-22 at 03:10:00 UTC.
const BEGIN: u64 = 1_795_317_000;
const MINUTE: u64 = 60;
const SECOND_NS: u64 = 1_000_000_000;

/// Pid and start in ticks → command name and CPU time in user mode.
type Tasks = BTreeMap<(u64, u64), (String, i64)>;
/// The time in us → the tasks then.
type Truth = BTreeMap<i64, Tasks>;

/// The tasks that ran in this minute. Some tasks change, end, and have their pid used again.
fn tasks(minute: u64) -> Tasks {
    let mut tasks = Tasks::new();
    for pid in 1..=40u64 {
        // A life of this many minutes, one life after the other, with a minute between them.
        let life = 3 + pid * 7 % 50;
        let (number, age) = (minute / (life + 1), minute % (life + 1));
        if age == life {
            continue;
        }
        let start_ticks = pid * 10 + number * (life + 1) * MINUTE * 100;
        let used = if pid % 5 == 0 { age as i64 * 250_000_000 } else { 0 };
        // An exec in the middle of a life.
        let name = if pid % 4 == 0 && age > life / 2 { "after" } else { "before" };
        tasks.insert((pid, start_ticks), (format!("{name}{pid}"), used));
    }
    tasks
}

fn snapshot(second: u64, boottime: u64, tasks: &Tasks) -> Snapshot {
    snapshot_of(Strategy::All, second, boottime, tasks)
}

/// The boot of a frame: the second one is up for less time.
fn boot_id(boottime: u64) -> BootId {
    BootId::new([if boottime < 100_000 { 2 } else { 1 }; 16])
}

/// The recording of threads also has another thread of each process, whose id is larger by 1000.
fn snapshot_of(strategy: Strategy, second: u64, boottime: u64, tasks: &Tasks) -> Snapshot {
    let mut w = StreamWriter::new();
    let head = StreamWriter::blank_info();
    let (realtime_ns, boottime_ns) = (second * SECOND_NS, boottime * SECOND_NS);
    w.info(&build!(Info {
        realtime_ns,
        boottime_ns,
        dump_strategy: strategy as u64,
        clk_tck: 100,
        boot_id: boot_id(boottime),
        nodename: Fixed::new(b"recorded-1"),
        release: Fixed::new(b"6.12.9"),
        machine: Fixed::new(b"riscv64"),
        ..head
    }));
    for ((pid, start_ticks), (comm, utime_ns)) in tasks {
        let pid = *pid as u32;
        let tids = [pid, pid + 1000];
        for tid in &tids[..1 + usize::from(strategy.is_threads())] {
            w.begin_task(*tid, pid);
            let mut base = Base::new();
            base.valid = Base::ALL_VALID;
            base.start_time_ns = start_ticks * 10_000_000;
            w.put_base(&base, comm.as_bytes());
            let mut stat = Stat::new();
            stat.valid = Stat::ALL_VALID;
            stat.utime_ns = *utime_ns as u64;
            w.put(&stat);
            w.end_task();
        }
    }
    Snapshot::parse(w.finish(Done::default())).expect("it is whole")
}

struct Lake {
    dir: tempfile::TempDir,
    truth: Truth,
}

impl Lake {
    /// A recording of a hundred minutes. The machine boots after 73 of them.
    fn new() -> Lake {
        let dir = tempfile::tempdir().expect("there is room");
        let options = Options::new(Duration::from_secs(MINUTE));
        let mut writer = Writer::open(dir.path().join("recording"), options).expect("it is new");
        let mut truth = Truth::new();
        for minute in 0..100 {
            let second = BEGIN + minute * MINUTE;
            let boottime =
                if minute < 73 { 100_000 + minute * MINUTE } else { (minute - 60) * MINUTE };
            let tasks = tasks(minute);
            writer.append(&snapshot(second, boottime, &tasks)).expect("there is room");
            truth.insert((second * 1_000_000) as i64, tasks);
        }
        Lake { dir, truth }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn convert(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_taskdiag"))
            .arg("convert")
            .args([self.path("recording"), self.path("lake")])
            .args(["-o", "comm,usertime"])
            .args(if options.contains(&"--host") { &[][..] } else { &["--host", "web1"] })
            .args(options)
            .output()
            .expect("the program runs")
    }
    fn hour(&self, hour: u32) -> PathBuf {
        self.path("lake")
            .join(format!("date=2026-11-22/hour={hour:02}/host=web1/processes.parquet"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The time of a frame in us.
fn micros(minute: u64) -> i64 {
    ((BEGIN + minute * MINUTE) * 1_000_000) as i64
}

/// Start in ticks, command name, and CPU time in user mode.
type Value = (u64, String, i64);

fn rows(file: &Path) -> Vec<Row<Value>> {
    table::rows(file, |of, i| {
        let start = of.number("start_ticks", i).expect("each has one");
        (start, of.word("comm", i).expect("each has one"), of.ns("usertime", i))
    })
}

/// The tasks that ran at a moment.
fn at(rows: &[Row<Value>], ts: i64) -> Tasks {
    let all = table::at(rows, ts, |value| value.0);
    all.into_iter().map(|(key, (_, comm, used))| (key, (comm, used))).collect()
}

#[test]
fn every_frame_can_be_had_again() {
    let lake = Lake::new();
    let ran = lake.convert(&[]);
    assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(0), String::new()));
    assert_eq!(text(&ran.stdout).lines().count(), 2, "a line for each file: {}", text(&ran.stdout));
    let (third, fourth) = (rows(&lake.hour(3)), rows(&lake.hour(4)));
    let four = ((BEGIN + 50 * MINUTE) * 1_000_000) as i64;
    for (ts, tasks) in &lake.truth {
        // Each file is complete by itself.
        let hour = if *ts < four { &third } else { &fourth };
        let found = at(hour, *ts);
        let first = found.iter().zip(tasks).find(|(found, true_one)| found != true_one);
        assert!(found == *tasks, "at {ts}: {} tasks of {}, {first:?}", found.len(), tasks.len());
    }
    for hour in [&third, &fourth] {
        assert!(hour.is_sorted_by_key(|r| (r.pid, r.value.0, r.ts)), "in order of the tasks");
        let full = hour.iter().filter(|r| r.change == "full").map(|r| r.ts);
        let mut full: Vec<i64> = full.collect();
        full.sort_unstable();
        full.dedup();
        // Each ten minutes, and one after the boot.
        assert_eq!(full.len(), if hour.len() == third.len() { 5 } else { 6 });
    }
    let all: usize = lake.truth.values().map(BTreeMap::len).sum();
    let written = third.len() + fourth.len();
    assert!(written * 2 < all, "{written} rows of {all}");
    for name in ["full", "new", "changed", "ended"] {
        assert!(third.iter().any(|r| r.change == name), "{name}");
    }
    assert_eq!(lake.hour(3).metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn files_are_of_the_host_and_the_boots_that_were_recorded() {
    let lake = Lake::new();
    let ran = Command::new(env!("CARGO_BIN_EXE_taskdiag"))
        .arg("convert")
        .args([lake.path("recording"), lake.path("lake")])
        .output()
        .expect("the program runs");
    assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(0), String::new()));
    // Not of the host on which the test runs.
    let file = lake.path("lake/date=2026-11-22/hour=04/host=recorded-1").join("processes.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&file).expect("it is there"))
        .expect("it is a Parquet file");
    let pairs = reader.metadata().file_metadata().key_value_metadata().expect("it has some");
    let value = |key: &str| pairs.iter().find(|p| p.key == key).and_then(|p| p.value.as_deref());
    assert_eq!(value("taskdiag.host"), Some("recorded-1"));
    assert_eq!(
        (value("taskdiag.kernel"), value("taskdiag.arch")),
        (Some("6.12.9"), Some("riscv64"))
    );
    // The machine boots at minute 73.
    let boot = ((BEGIN + 73 * MINUTE) * 1_000_000) as i64;
    let mut seen = [0, 0];
    for batch in reader.build().expect("it can be read") {
        use arrow_array::ArrayAccessor;
        let batch = batch.expect("it can be read");
        let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}"));
        let ts = column("ts").as_primitive::<TimestampMicrosecondType>();
        let ids = column("boot_id").as_dictionary::<Int32Type>();
        let ids = ids.downcast_dict::<arrow_array::StringArray>().expect("text");
        let change = column("change").as_dictionary::<Int8Type>();
        let change = change.downcast_dict::<arrow_array::StringArray>().expect("text");
        for i in 0..batch.num_rows() {
            let is_second = ts.value(i) >= boot;
            // Rows of tasks that ended with the first boot belong to that boot.
            let uptime = if is_second && change.value(i) != "ended" { 0 } else { 100_000 };
            if change.value(i) != "ended" || ts.value(i) <= boot {
                assert_eq!(
                    ids.value(i),
                    boot_id(uptime).to_string(),
                    "row {i} {}",
                    change.value(i)
                );
            }
            seen[usize::from(is_second)] += 1;
        }
    }
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
}

#[test]
fn an_hour_that_is_over_is_written_once() {
    let lake = Lake::new();
    assert_eq!(text(&lake.convert(&[]).stdout).lines().count(), 2);
    let before = fs::read(lake.hour(3)).expect("it is there");
    let is_as = |bytes: &[u8]| fs::read(lake.hour(3)).is_ok_and(|b| b == bytes);
    let again = lake.convert(&[]);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(0), String::new()));
    // A file that is no longer complete is replaced.
    fs::write(lake.hour(3), &before[..before.len() / 2]).expect("there is room");
    assert_eq!(text(&lake.convert(&[]).stdout).lines().count(), 1);
    assert!(is_as(&before), "the same rows give the same file");
    // A file that a killed command has left is no obstacle.
    let part = lake.hour(3).with_file_name(".processes.parquet.part");
    fs::write(&part, "torn").expect("there is room");
    assert_eq!(text(&lake.convert(&["--again"]).stdout).lines().count(), 2);
    assert!(!part.exists());
    assert!(is_as(&before));
}

#[test]
fn an_hour_that_has_more_frames_by_now_is_written_again() {
    let lake = Lake::new();
    let lines = || text(&lake.convert(&[]).stdout).lines().count();
    assert_eq!(lines(), 2);
    // The clock was ahead when it was converted.
    let options = Options::new(Duration::from_secs(MINUTE));
    let mut writer = Writer::open(lake.path("recording"), options).expect("it opens");
    let second = BEGIN + 100 * MINUTE;
    writer.append(&snapshot(second, 40 * MINUTE, &tasks(100))).expect("there is room");
    drop(writer);
    assert_eq!(lines(), 1);
    assert!(at(&rows(&lake.hour(4)), (second * 1_000_000) as i64) == tasks(100));
    // Old frames are removed from the recording, and stay in the files.
    let before = fs::read(lake.hour(4)).expect("it is there");
    fs::remove_dir_all(lake.path("recording")).expect("it is ours");
    let mut writer = Writer::open(lake.path("recording"), options).expect("it opens");
    writer.append(&snapshot(second, 40 * MINUTE, &tasks(100))).expect("there is room");
    drop(writer);
    assert_eq!(lines(), 0);
    assert!(fs::read(lake.hour(4)).expect("it is there") == before);
}

#[test]
fn processes_and_threads_do_not_share_a_table() {
    let dir = tempfile::tempdir().expect("there is room");
    let lake = Lake { dir, truth: Truth::new() };
    let micros = |minute| ((BEGIN + minute * MINUTE) * 1_000_000) as i64;
    let is_threads = |minute: &u64| (5..10).contains(minute);
    for minutes in [0..5, 5..10, 10..15] {
        let options = Options::new(Duration::from_secs(MINUTE));
        let mut writer = Writer::open(lake.path("recording"), options).expect("it opens");
        let mut append = |strategy, minute: u64| {
            let (second, boottime) = (BEGIN + minute * MINUTE, 100_000 + minute * MINUTE);
            let answer = snapshot_of(strategy, second, boottime, &tasks(minute));
            writer.append(&answer).expect("there is room");
        };
        for minute in minutes {
            append(if is_threads(&minute) { Strategy::AllThread } else { Strategy::All }, minute);
            if minute == 14 {
                // In the next hour, an answer of threads that no recorder would write there.
                append(Strategy::All, 50);
                append(Strategy::AllThread, 51);
            }
        }
    }
    let ran = lake.convert(&[]);
    let (said, threads) = (text(&ran.stderr), lake.hour(3).with_file_name("threads.parquet"));
    assert_eq!(ran.status.code(), Some(3), "{said}");
    for want in [
        "5 of 16 answers are of threads",
        "10 of 15 answers are of processes",
        "1 answers of the recording are not in the files",
    ] {
        assert!(said.contains(want), "{said}");
    }
    assert!(rows(&lake.hour(4)).iter().all(|r| r.ts == micros(50)));
    let (processes, threads) = (rows(&lake.hour(3)), rows(&threads));
    for minute in 0..15 {
        let of = |rows: &[Row<Value>]| rows.iter().filter(|r| r.ts == micros(minute)).count();
        if is_threads(&minute) {
            assert_eq!(of(&processes), 0, "{minute}");
            // The two threads of a process have the same key here.
            assert!(at(&threads, micros(minute)) == tasks(minute), "{minute}");
        } else {
            assert_eq!(of(&threads), 0, "{minute}");
            assert!(at(&processes, micros(minute)) == tasks(minute), "{minute}");
        }
    }
    let full = threads.iter().filter(|r| r.ts == micros(5) && r.change == "full").count();
    assert_eq!(full, 2 * tasks(5).len());
    assert!(lake.convert(&[]).stdout.is_empty(), "it is written once");
}

#[test]
fn each_frame_has_all_rows_if_each_is_full() {
    let lake = Lake::new();
    assert_eq!(lake.convert(&["--full-every", "0"]).status.code(), Some(0));
    let full = [3, 4].map(|h| rows(&lake.hour(h))).concat();
    let full = full.iter().filter(|r| r.change == "full").count();
    assert_eq!(full, lake.truth.values().map(BTreeMap::len).sum::<usize>());
}

#[test]
fn damage_is_reported_and_the_rest_is_converted() {
    let lake = Lake::new();
    let file = fs::read_dir(lake.path("recording")).expect("it is there").flatten();
    let file = file.map(|e| e.path()).find(|p| p.extension().is_some_and(|e| e == "tdr"));
    let file = File::options().write(true).open(file.expect("a day file")).expect("it is ours");
    let end = file.metadata().expect("it is there").len();
    file.write_all_at(b"????", end - 100).expect("there is room");
    let ran = lake.convert(&[]);
    assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains(".tdr"), "{}", text(&ran.stderr));
    let first = lake.truth.first_key_value().expect("there are some");
    assert!(at(&rows(&lake.hour(3)), *first.0) == *first.1);
}

#[test]
fn two_at_once_and_bad_names_are_refused() {
    let lake = Lake::new();
    fs::create_dir(lake.path("lake")).expect("there is room");
    let held = File::open(lake.path("lake")).expect("it is there");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    let ran = lake.convert(&[]);
    assert_eq!(ran.status.code(), Some(4));
    assert!(text(&ran.stderr).contains("another 'taskdiag convert'"), "{}", text(&ran.stderr));
    drop(held);
    // Other users could put links there, through which root would write.
    fs::set_permissions(lake.path("lake"), Permissions::from_mode(0o1777)).expect("it is ours");
    let ran = lake.convert(&[]);
    assert_eq!(ran.status.code(), Some(4));
    assert!(text(&ran.stderr).contains("chmod go-w"), "{}", text(&ran.stderr));
    fs::set_permissions(lake.path("lake"), Permissions::from_mode(0o755)).expect("it is ours");
    if rustix::process::geteuid().is_root() {
        chown(lake.path("lake"), Some(65534), None).expect("root may");
        let ran = lake.convert(&[]);
        assert_eq!(ran.status.code(), Some(4));
        assert!(text(&ran.stderr).contains("belongs to another user (uid 65534)"));
        chown(lake.path("lake"), Some(0), None).expect("root may");
    }
    for host in ["../x", "a b", "", ".x"] {
        assert_eq!(lake.convert(&["--host", host]).status.code(), Some(2), "{host}");
    }
    fs::remove_dir_all(lake.path("lake")).expect("it is ours");
    fs::write(lake.path("lake"), "a file").expect("there is room");
    let ran = lake.convert(&[]);
    assert_eq!(ran.status.code(), Some(4));
    assert!(text(&ran.stderr).contains("is not a directory"), "{}", text(&ran.stderr));
}
