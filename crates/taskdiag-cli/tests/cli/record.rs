//! `taskdiag record`, and `--from DIR --at TIME`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taskdiag::recording::{Options, Recording, Writer};
use taskdiag::wire::{
    AlignedBuf, CG_IS_V2, CG_UNLIMITED, CUT_OTHERS, CgroupList, CgroupMember, CgroupMsg,
    CgroupValue, ContainerPart, Cut, Done, StreamWriter, build,
};
use taskdiag::{Reason, Snapshot, Strategy};

use crate::common::{NOW_S, Saved, Task, parts, run, stream, taskdiag};

/// An answer of this second after noon of 2026-01-01 UTC. It has process 1, and a process whose pid
/// is the second of the answer.
fn answer(second: u32) -> Snapshot {
    let cpu_ns = u64::from(second) * 500_000_000;
    let init = Task { cpu_ns, ..Task::new(1, 0, "init") };
    let tasks = [init, Task { cpu_ns: 0, ..Task::new(1000 + second, 1, "worker") }];
    let mut bytes = stream(Strategy::All, &tasks, Done::default());
    // The two clocks are one after the other in the first message.
    let clocks =
        |at: u64| [NOW_S + at, 100_000 + at].map(|s| (s * 1_000_000_000).to_ne_bytes()).concat();
    let place = bytes.windows(16).position(|w| w == clocks(0)).expect("INFO has the clocks");
    bytes[place..place + 16].copy_from_slice(&clocks(second.into()));
    Snapshot::read_from(&bytes[..]).expect("it is whole")
}

/// A recording for another test: process 1000 + n is there only at second n, and process 1 uses
/// half of a CPU.
pub struct Replayed {
    recorded: Recorded,
}

impl Replayed {
    pub fn new() -> Replayed {
        Replayed { recorded: Recorded::new(&[0, 10, 20, 30, 600]) }
    }
    pub fn path(&self) -> PathBuf {
        self.recorded.path()
    }
}

struct Recorded(tempfile::TempDir);

impl Recorded {
    /// With answers at these seconds. The interval is ten seconds.
    fn new(seconds: &[u32]) -> Recorded {
        let recorded = Recorded(tempfile::tempdir().expect("there is room"));
        let options = Options::new(Duration::from_secs(10));
        let mut writer = Writer::open(recorded.path(), options).expect("it opens");
        for second in seconds {
            writer.append(&answer(*second)).expect("it is written");
        }
        recorded
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("r")
    }
    fn ps(&self, at: &[&str]) -> (i32, String, String) {
        let path = self.path();
        let mut command = taskdiag();
        command.args(["ps", "-o", "pid", "--no-headers", "--from"]).arg(&path);
        parts(&command.args(at).output().expect("it runs"))
    }
    /// The second of the answer that is shown, and the messages.
    fn second(&self, at: &[&str]) -> (u32, String) {
        let (code, out, err) = self.ps(at);
        assert_eq!(code, 0, "{at:?}: {err}");
        let pids: Vec<u32> = out.lines().map(|l| l.trim().parse().expect("a pid")).collect();
        let [1, pid] = pids[..] else { panic!("{at:?}: {out}") };
        (pid - 1000, err)
    }
}

#[test]
fn a_time_selects_the_last_answer_before_it() {
    let recorded = Recorded::new(&[0, 10, 20, 30, 600, 610]);
    for (at, second) in [
        ("2026-01-01 12:00:00", 0),
        ("2026-01-01T12:00:19Z", 10),
        ("2026-01-01 12:00:20", 20),
        ("12:00:35", 30),
        ("12:10", 600),
        ("12:10:10", 610),
        ("12:00:35Z", 30),
        // The next frame does not exist yet, but the moment is in its interval.
        ("12:10:20", 610),
        ("@1767268811", 10),
    ] {
        assert_eq!(recorded.second(&["--at", at]), (second, String::new()), "{at}");
    }
    let (second, err) = recorded.second(&["--at", "12:05"]);
    assert_eq!(second, 30);
    let want = "nothing was recorded for 4 min before 2026-01-01 12:05:00 UTC: this is of 2026-01-01 12:00:30 UTC";
    assert!(err.contains(want), "{err}");
    let path = recorded.path();
    let mut elsewhere = taskdiag();
    elsewhere.env("TZ", "EST5").args(["ps", "--at", "12:05Z", "--from"]).arg(path);
    let (_, _, err) = parts(&elsewhere.output().expect("it runs"));
    assert!(
        err.contains("before 2026-01-01 07:05:00 EST: this is of 2026-01-01 07:00:30 EST"),
        "{err}"
    );
    // Without a time, the newest. It is old.
    let (second, err) = recorded.second(&[]);
    assert_eq!(second, 610);
    assert!(err.contains("the newest answer is of 2026-01-01 12:10:10"), "{err}");
    assert!(err.contains("still running"), "{err}");
    // One hour ago is long after the end of the recording.
    let (second, err) = recorded.second(&["--at", "-1h"]);
    assert!(second == 610 && err.contains("nothing was recorded for"), "{err}");
    // A day file alone.
    let file = recorded.path().join("2026-01-01.000.tdr");
    let path = file.to_str().expect("a path of ours");
    let (code, out, err) = parts(&run(&["ps", "-o", "pid=", "--from", path, "--at", "12:00:10"]));
    assert!(code == 0 && out.contains("1010"), "{out}{err}");
}

/// At half past twelve, UTC, this clock is set back from 13:30 to 12:30.
const BACK: &str = "AAA0BBB,J200/0,J1/13:30";
/// At that time, this one is set forward from 12:30 to 13:30.
const FORWARD: &str = "AAA0BBB,J1/12:30,J200/0";

/// Commands that take a time of a recording: the words before the path.
const WITH_A_TIME: [&[&str]; 5] = [
    &["ps", "-o", "pid", "--no-headers", "--from"],
    &["tree", "--from"],
    &["report", "--from"],
    &["cgroups", "--from"],
    #[cfg(feature = "top")]
    &["top", "--once", "--replay"],
];

fn in_zone(zone: &str, args: &[&str], path: &Path, more: &[&str]) -> (i32, String, String) {
    let mut command = taskdiag();
    command.env("TZ", zone).args(args).arg(path).args(more);
    parts(&command.output().expect("it runs"))
}

#[test]
fn a_time_in_the_night_when_the_clock_is_set_back_is_the_one_that_was_recorded() {
    let before = Recorded::new(&[0, 600, 1200, 1500]);
    let after = Recorded::new(&[0, 600, 1200, 1500, 1800, 2400, 3600, 4200, 5400]);
    let ps = WITH_A_TIME[0];
    for (recorded, at, second) in [
        // The clock has shown this time only once so far.
        (&before, "13:11", 600),
        (&before, "13:00:30", 0),
        // One frame has only the second time, the other only the first, in UTC.
        (&after, "12:11Z", 600),
        (&after, "13:11Z", 4200),
        (&after, "2026-01-01 13:11Z", 4200),
        // The clock shows only this hour twice.
        (&after, "2026-01-01 13:30", 5400),
    ] {
        let (code, out, err) = in_zone(BACK, ps, &recorded.path(), &["--at", at]);
        let pid = (1000 + second).to_string();
        assert!(code == 0 && out.lines().any(|l| l.trim() == pid), "{at}: {code} {out}{err}");
    }
    for at in ["13:11", "2026-01-01 13:11", "2026-01-01T13:11:00"] {
        for command in WITH_A_TIME {
            let (code, out, err) = in_zone(BACK, command, &after.path(), &["--at", at]);
            assert_eq!((code, &out[..]), (2, ""), "{command:?} {at}: {err}");
            for name in ["twice", "2026-01-01 12:11:00Z", "2026-01-01 13:11:00Z"] {
                assert!(err.contains(name), "{command:?} {at}: {err}");
            }
        }
    }
}

#[test]
fn a_time_that_the_clock_skips_is_an_error() {
    let recorded = Recorded::new(&[0, 600, 1200, 1800, 2400]);
    let ps = WITH_A_TIME[0];
    for (at, second) in [("12:29", 1200), ("13:30", 1800), ("13:40", 2400), ("12:35Z", 1800)] {
        let (code, out, err) = in_zone(FORWARD, ps, &recorded.path(), &["--at", at]);
        let pid = (1000 + second).to_string();
        assert!(code == 0 && out.lines().any(|l| l.trim() == pid), "{at}: {code} {out}{err}");
    }
    for at in ["12:45", "13:29:59", "2026-01-01 12:45"] {
        for command in WITH_A_TIME {
            let (code, out, err) = in_zone(FORWARD, command, &recorded.path(), &["--at", at]);
            assert_eq!((code, &out[..]), (2, ""), "{command:?} {at}: {err}");
            for name in ["never shows 2026-01-01 1", "2026-01-01 12:30:00Z"] {
                assert!(err.contains(name), "{command:?} {at}: {err}");
            }
        }
    }
}

#[test]
fn a_time_in_an_expression_is_one_moment_or_an_error() {
    let recorded = Recorded::new(&[0]);
    let of = |zone, time: &str| {
        let wanted = format!("start > \"{time}\"");
        in_zone(zone, WITH_A_TIME[0], &recorded.path(), &["--where", &wanted])
    };
    for (zone, time, says) in [
        (BACK, "2026-01-01 13:11", &["twice", "'2026-01-01 12:11:00Z'", "13:11:00Z"][..]),
        (FORWARD, "2026-01-01 12:45", &["never shows 2026-01-01 12:45:00", "12:30:00Z"]),
    ] {
        let (code, out, err) = of(zone, time);
        assert_eq!((code, &out[..]), (2, ""), "{err}");
        assert!(says.iter().all(|s| err.contains(s)), "{err}");
    }
    for (zone, time) in [
        (BACK, "2026-01-01 13:11Z"),
        (BACK, "2026-01-01"),
        (FORWARD, "2026-01-01 13:30"),
        // A day begins when the clock skips its midnight, too.
        ("AAA0BBB,J1/0,J200/0", "2026-01-01"),
        ("AAA0BBB,J200/0,J1/0:30", "2026-01-01"),
    ] {
        let (code, _, err) = of(zone, time);
        assert_ne!(code, 2, "{zone} {time}: {err}");
    }
}

#[test]
fn a_time_before_the_recording_or_of_no_form_is_an_error() {
    let recorded = Recorded::new(&[0, 10]);
    for at in ["2026-01-01 11:59:59", "11:59", "2020-01-01 00:00", "@5"] {
        let (code, out, err) = recorded.ps(&["--at", at]);
        assert_eq!((code, &out[..]), (4, ""), "{at}: {err}");
        assert!(err.contains("the recording begins at 2026-01-01 12:00:00"), "{at}: {err}");
    }
    for at in ["", "noon", "25:00", "2026-01-01", "2026-02-30 00:00", "-", "--json"] {
        let (code, _, err) = recorded.ps(&["--at", at]);
        assert!(code == 2 && err.contains("a time is 03:10"), "{at}: {code} {err}");
    }
    let (code, _, err) = parts(&run(&["ps", "--at", "12:00"]));
    assert!(code == 2 && err.contains("--from"), "{err}");
    let saved = Saved::bytes(&stream(Strategy::All, &[Task::new(1, 0, "init")], Done::default()));
    let (code, _, err) = saved.ps(&["--at", "12:00"]);
    assert!(code == 2 && err.contains("leave --at out"), "{err}");
    let empty = tempfile::tempdir().expect("there is room");
    let path = empty.path().to_str().expect("a path of ours");
    for command in ["ps", "tree", "memory", "files", "maps"] {
        let (code, out, err) = parts(&run(&[command, "--from", path]));
        assert_eq!((code, &out[..]), (4, ""), "{err}");
        assert!(err.contains("holds no recording") && err.contains("taskdiag record"), "{err}");
    }
}

#[test]
fn every_command_shows_what_was_recorded() {
    let recorded = Recorded::new(&[0, 10]);
    let path = recorded.path();
    let path = path.to_str().expect("a path of ours");
    let at = ["--from", path, "--at", "12:00:00"];
    for command in
        [&["tree", "-p"][..], &["memory", "-o", "pid,rss"], &["ps", "--json"], &["ps", "-ef"]]
    {
        let (code, out, err) = parts(&run(&[command, &at].concat()));
        assert!(
            code == 0 && out.contains("1000") && !out.contains("1010"),
            "{command:?} {out}{err}"
        );
    }
    // A message names the missing data, and what to record.
    let (code, _, err) = parts(&run(&[&["ps", "-o", "pid,exe"], &at[..]].concat()));
    assert!(code == 3 && err.contains("'taskdiag record'"), "{err}");
    let (code, _, err) = parts(&run(&[&["ps", "--threads"], &at[..]].concat()));
    assert!(code == 4 && err.contains("'taskdiag record --threads'"), "{err}");
}

#[test]
fn damage_in_a_recording_is_reported_once() {
    let recorded = Recorded::new(&[0, 10, 20]);
    let file = recorded.path().join("2026-01-01.000.tdr");
    let mut bytes = fs::read(&file).expect("read");
    let len = bytes.len();
    bytes.truncate(len - 5);
    fs::write(&file, &bytes).expect("write");
    let (second, err) = recorded.second(&["--at", "12:00:20"]);
    assert!(second == 10 && err.contains("the last frame is incomplete"), "{err}");
    // The command for a page prints the message, too, and only once.
    let page = recorded.0.path().join("page.html");
    let mut command = taskdiag();
    command.args(["report", "--from"]).arg(recorded.path()).arg("-o").arg(&page);
    let (code, _, err) = parts(&command.output().expect("it runs"));
    let tail = "the last frame is incomplete";
    assert!(code == 3 && err.matches(tail).count() == 1, "{code} {err}");
    assert!(fs::read_to_string(&page).expect("it is there").contains(tail));
    // The first frame is the key frame of the others.
    bytes[64 + 64 + 20] ^= 1;
    fs::write(&file, &bytes).expect("write");
    let (code, out, err) = recorded.ps(&["--at", "12:00:10"]);
    assert!(code == 4 && out.is_empty() && err.contains("is damaged"), "{err}");
}

#[test]
fn the_last_whole_answer_is_shown() {
    let recorded = Recorded::new(&[0, 10]);
    let file = recorded.path().join("2026-01-01.000.tdr");
    let whole = fs::metadata(&file).expect("it is there").len() as usize;
    // Another writer begins with another key frame. Its clock is set back once.
    let options = Options::new(Duration::from_secs(10));
    let mut writer = Writer::open(recorded.path(), options).expect("it opens");
    for second in [20, 30, 15, 25] {
        writer.append(&answer(second)).expect("it is written");
    }
    drop(writer);
    let mut bytes = fs::read(&file).expect("read");
    bytes[whole + 64 + 20] ^= 1;
    fs::write(&file, &bytes).expect("write");
    for at in [&["--at", "12:00:22"][..], &[]] {
        #[cfg(feature = "top")]
        {
            let path = recorded.path();
            let (code, out, err) = in_zone("UTC", &["top", "--once", "--replay"], &path, at);
            assert!(code == 0 && out.contains("worker"), "{at:?}: {code} {out}{err}");
            assert!(err.contains("this is the last whole answer before it"), "{at:?}: {err}");
        }
        let (second, err) = recorded.second(at);
        assert_eq!(second, 10, "{err}");
        let want = "this is the last whole answer before it, of 2026-01-01 12:00:10";
        assert!(err.contains(want) && err.matches("is damaged").count() == 1, "{err}");
        assert!(!err.contains("nothing was recorded"), "{err}");
    }
    assert_eq!(recorded.second(&["--at", "12:00:19"]).0, 10);
    assert_eq!(recorded.second(&["--at", "12:00:12"]), (10, String::new()));
}

#[cfg(feature = "top")]
#[test]
fn top_prints_a_frame() {
    let recorded = Recorded::new(&[0, 10, 20]);
    let path = recorded.path();
    let path = path.to_str().expect("a path of ours");
    let once = ["top", "--once", "--replay", path];
    let (code, out, err) =
        parts(&run(&[&once[..], &["--at", "12:00:10", "-o", "pid,cpu_now,comm"]].concat()));
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("2026-01-01 12:00:10, frame 2 of 3\n"), "{out}");
    assert!(out.contains("CPU % 50.0 of one CPU by these tasks") && out.contains("+1 -1"), "{out}");
    assert!(out.contains("Ended worker 1000"), "{out}");
    let row = out.lines().find(|l| l.contains("init")).expect("there is a row");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["1", "50.0", "init"]);
    // The first frame has no rates yet.
    let first = ["--at", "12:00:00", "-o", "pid,cpu_now,comm", "--json"];
    let (code, out, err) = parts(&run(&[&once[..], &first].concat()));
    assert_eq!(code, 0, "{err}");
    let rows: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(rows.to_string().contains("null"), "{out}");
    // A column that was not recorded.
    let (code, _, err) = parts(&run(&[&once[..], &["-o", "pid,exe"]].concat()));
    assert!(code == 3 && err.contains("does not hold exe"), "{err}");
    // The other commands call it --from.
    let (code, out, err) =
        parts(&run(&["top", "--once", "--from", path, "--at", "12:00:10", "-o", "pid,cpu_now"]));
    assert!(code == 0 && out.starts_with("2026-01-01 12:00:10, frame 2 of 3\n"), "{out}{err}");
    let (code, _, err) = parts(&run(&[&once[..], &["--threads"]].concat()));
    assert!(code == 4 && err.contains("holds processes, not threads"), "{err}");
    for (args, want) in [
        (&["top", "--at", "12:00"][..], "--replay"),
        (&["top", "--once", "--replay", path, "--engine", "bpf"], "does not go with"),
        (&["top", "--once", "--replay", path, "--at", "noon"], "a time is 03:10"),
    ] {
        let (code, _, err) = parts(&run(args));
        assert!(code == 2 && err.contains(want), "{args:?}: {err}");
    }
    let (code, _, err) = parts(&run(&[&once[..], &["--at", "11:00"]].concat()));
    assert!(code == 4 && err.contains("begins at 2026-01-01 12:00:00"), "{err}");
    // An answer of `dump` is no damaged recording.
    let saved = Saved::tasks(&[Task::new(1, 0, "init")]);
    let path = saved.path();
    let path = path.to_str().expect("a path of ours");
    let (code, _, err) = parts(&run(&["top", "--once", "--from", path]));
    assert!(code == 4 && err.contains("'taskdiag dump' and no recording"), "{err}");
    assert!(!err.contains("damaged"), "{err}");
}

fn frames(dir: &Path) -> Recording {
    let recording = Recording::open(dir).expect("it opens");
    assert_eq!(recording.damage(), []);
    for frame in recording.iter() {
        frame.expect("it is whole");
    }
    recording
}

/// The answer of this second with cgroups. That of the container has used half of a CPU so far, and
/// as many megabytes as seconds have passed.
fn answer_with_cgroups(second: u32) -> Snapshot {
    let old = answer(second);
    let (mut w, done) =
        StreamWriter::reopen(AlignedBuf::copy_of(old.stream().bytes())).expect("it is whole");
    w.container(&[
        (ContainerPart::Path, Ok(CONTAINER.as_bytes())),
        (ContainerPart::Name, Ok(b"web".as_slice())),
    ]);
    let boottime_ns = (100_000 + u64::from(second)) * 1_000_000_000;
    w.cgroup_list(&build!(CgroupList { boottime_ns, most: 2000, levels: 100, left_out: 7 }));
    let value = |member: CgroupMember, value| build!(CgroupValue { value, member: member as u32 });
    let unlimited =
        build!(CgroupValue { member: CgroupMember::MemoryMax as u32, flags: CG_UNLIMITED });
    let denied = build!(CgroupValue {
        member: CgroupMember::OomKills as u32,
        reason: Reason::Denied as u16
    });
    // A member of a newer version.
    let newer = build!(CgroupValue { member: 60_000, value: 1 });
    let values = [
        value(CgroupMember::CpuUsage, u64::from(second) * 500_000_000),
        value(CgroupMember::Memory, u64::from(second) << 20),
        value(CgroupMember::AllTasks, 3),
        unlimited,
        denied,
        newer,
    ];
    let head = |id| CgroupMsg { id, flags: CG_IS_V2, ..CgroupMsg::default() };
    w.cgroup(&head(1), b"/", &values[..3]);
    w.cgroup(&head(2), b"/docker", &values);
    w.cgroup(&head(3), CONTAINER.as_bytes(), &values);
    // A new one with this path each time.
    w.cgroup(&head(1000 + u64::from(second)), b"/new", &values[..1]);
    Snapshot::parse(w.finish(done)).expect("it is whole")
}

const CONTAINER: &str = "/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn cgroups_of_a_recording_are_those_of_a_time_with_rates_since_the_answer_before() {
    let dir = tempfile::tempdir().expect("there is room");
    let options = Options::new(Duration::from_secs(10));
    let mut writer = Writer::open(dir.path().join("r"), options).expect("it opens");
    for second in [0, 10, 20] {
        writer.append(&answer_with_cgroups(second)).expect("it is written");
    }
    writer.append(&answer(30)).expect("it is written");
    let path = dir.path().join("r");
    let path = path.to_str().expect("a path of ours");
    let cgroups = |args: &[&str]| parts(&run(&[&["cgroups", "--from", path], args].concat()));
    let columns = "path,id,version,cpu_now,memory,memory_max,oom_kills,tasks,container_name";
    let rows = |args: &[&str]| {
        let (_, out, err) = cgroups(&[&["--json", "-o", columns], args].concat());
        let rows: Vec<serde_json::Value> = serde_json::from_str(&out).expect("JSON");
        (rows, err)
    };
    let (all, err) = rows(&["--at", "12:00:10"]);
    let paths: Vec<_> = all.iter().map(|row| row["path"].as_str().expect("a path")).collect();
    assert_eq!(paths, ["/", "/docker", CONTAINER, "/new"]);
    let of = &all[2];
    assert_eq!((&of["id"], &of["version"], &of["tasks"]), (&3.into(), &2.into(), &3.into()));
    assert_eq!((&of["cpu_now"], &of["memory"]), (&50.0.into(), &(10 << 20).into()));
    assert_eq!((&of["memory_max"], &of["container_name"]), (&"unlimited".into(), &"web".into()));
    assert!(of["oom_kills"].is_null(), "{of}");
    assert!(err.contains("oom_kills of 2 cgroups were not shown to the user who"), "{err}");
    assert!(err.contains("7 cgroups or more are not in this recorded answer"), "{err}");
    // Another cgroup with the same path has no rate yet.
    assert!(all[3].get("cpu_now").is_none_or(serde_json::Value::is_null), "{}", all[3]);
    let (later, _) = rows(&["--at", "12:00:29", "/docker"]);
    assert_eq!((later.len(), &later[1]["memory"]), (2, &(20 << 20).into()));
    // The first answer has no rates, and its view has none.
    let (first, err) = rows(&["--at", "12:00:00"]);
    assert!(first[2]["cpu_now"].is_null() && err.contains("there are no rates"), "{err}");
    let (_, out, err) = cgroups(&["--at", "12:00:00"]);
    assert!(out.contains(" TIME ") && !err.contains("no rates"), "{out}{err}");
    let (_, out, _) = cgroups(&["--at", "12:00:20", "--where", "memory > 1M", "--no-headers"]);
    assert!(out.contains("50.0") && out.contains("docker") && !out.contains("new"), "{out}");
    // What is not in the recording.
    for (args, want) in [
        (&["--at", "12:00:30"][..], "has no cgroups: 'taskdiag record --cgroups DIR' records them"),
        (&["--at", "12:00:10", "/nowhere"], "looking for the cgroup /nowhere"),
        (&["--at", "12:00:10", "a//b"], "is not the path of a cgroup"),
        (&["--at", "12:00:10", "-d", "1s"], "--from does not go with --delay"),
        (&["--at", "12:00:10", "-o", "path,pids_max"], "pids_max of cgroups is not recorded"),
    ] {
        let (code, _, err) = cgroups(args);
        assert!(code != 0 && err.contains(want), "{args:?}: {code} {err}");
    }
    let (_, out, _) = parts(&run(&["record", "--show", path]));
    assert!(out.contains("cgroups  none"), "{out}");
    // The answer of 'dump' has none.
    let saved = Saved::tasks(&[Task::new(1, 0, "init")]);
    let path = saved.path();
    let (code, _, err) = parts(&run(&["cgroups", "--from", path.to_str().expect("a path")]));
    assert!(code == 4 && err.contains("has no cgroups"), "{code} {err}");
}

#[test]
fn record_keeps_the_cgroups_of_this_machine_and_none_without_the_option() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().join("r");
    let name = path.to_str().expect("a path of ours");
    let columns = "path,id,version,cpu_max,memory_high,memory_max,oom_kills";
    let live = parts(&run(&["cgroups", "--csv", "-o", columns]));
    let record = |more: &[&str]| {
        let args = [&["record", "--every", "100ms", "-n", "2", name], more].concat();
        let (code, _, err) = parts(&run(&args));
        assert_eq!(code, 0, "{err}");
    };
    record(&[]);
    let (code, _, err) = parts(&run(&["cgroups", "--from", name]));
    assert!(code == 4 && err.contains("has no cgroups"), "{code} {err}");
    record(&["--cgroups"]);
    let kept = parts(&run(&["cgroups", "--csv", "-o", columns, "--from", name]));
    // Other tests make and remove cgroups meanwhile.
    let others = |csv: &str| {
        let lines = csv.lines().filter(|l| !l.contains("taskdiag"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(others(&kept.1).len() > 1, "{}", kept.2);
    assert_eq!(others(&kept.1), others(&live.1), "{}", kept.2);
    let (_, out, err) = parts(&run(&["cgroups", "--from", name]));
    assert!(out.contains("%CPU") && out.lines().count() > 1, "{out}{err}");
}

#[test]
fn record_writes_answers_of_this_machine() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().join("r");
    let name = path.to_str().expect("a path of ours");
    let (code, out, err) = parts(&run(&["record", "--every", "100ms", "-n", "5", name]));
    assert_eq!((code, &out[..]), (0, ""), "{err}");
    assert!(err.contains("recording to") && err.contains("every 100ms"), "{err}");
    let recording = frames(&path);
    assert_eq!(recording.len(), 5);
    let own = std::process::id();
    let last = recording.read(4).expect("it is whole");
    assert!(last.snapshot.task(own).is_some());
    // Moments are multiples of the interval except for the first, and the scan itself takes some
    // time.
    let infos: Vec<_> = recording.infos().collect();
    assert!(infos.windows(2).all(|w| w[0].time < w[1].time && w[0].boottime < w[1].boottime));
    // Another run continues, with threads and other columns.
    let args = ["record", "-n", "1", "--threads", "-o", "pid,tid,comm", "--engine", "procfs", name];
    let (code, _, err) = parts(&run(&args));
    assert!(code == 0 && err.contains("threads") && err.contains("from procfs"), "{err}");
    assert_eq!(frames(&path).len(), 6);
    let (code, out, err) = parts(&run(&["ps", "--from", name, "-o", "pid,tid,comm", "--threads"]));
    assert!(code == 0 && out.contains(&own.to_string()), "{err}");
    let (code, _, err) = parts(&run(&["ps", "--from", name, "--threads", "--at", "@1"]));
    assert!(code == 4 && err.contains("begins at"), "{err}");
}

#[test]
fn wrong_arguments_of_record_are_refused() {
    let dir = tempfile::tempdir().expect("there is room");
    let name = dir.path().to_str().expect("a path of ours");
    for (args, want) in [
        (&["record"][..], "DIR"),
        (&["record", name, "--every", "1ms"], "100ms to 1d"),
        (&["record", name, "--every", "0"], "above 0"),
        (&["record", name, "--keep", "x"], "such as 500ms"),
        (&["record", name, "--keep", "7"], "write 7d for days"),
        (&["record", name, "--max-size", "0"], "such as 2G"),
        (&["record", name, "-g", "bse"], "did you mean 'base'"),
        (&["record", name, "-o", "rsss"], "rss"),
        (&["record", name, "-o", "rss", "-g", "base"], "does not go with"),
    ] {
        let (code, _, err) = parts(&run(args));
        assert!(code == 2 && err.contains(want), "{args:?}: {code} {err}");
    }
    for wrong in ["/proc/nowhere/r", "/etc/passwd"] {
        let (code, _, err) = parts(&run(&["record", "-n", "1", wrong]));
        assert!(code == 4 && err.contains(wrong), "{err}");
    }
    assert!(parts(&run(&["record", "-n", "1", "/etc/passwd"])).2.contains("is not a directory"));
    let (code, _, err) = parts(&run(&["record", "-n", "1", "--max-size", "1K", name]));
    assert!(code == 4 && err.contains("raise --max-size"), "{err}");
}

#[test]
fn an_answer_that_a_user_filled_says_whose_tasks_it_lacks() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().join("r");
    let whole = AlignedBuf::copy_of(answer(0).stream().bytes());
    let with = |cuts: &[Cut]| {
        let (mut w, done) = StreamWriter::reopen(whole.clone()).expect("it is a stream");
        cuts.iter().for_each(|cut| w.cut(cut));
        Snapshot::parse(w.finish(done)).expect("it is whole")
    };
    let shown = |cuts: &[Cut]| {
        let _ = fs::remove_dir_all(&path);
        let mut writer =
            Writer::open(&path, Options::new(Duration::from_secs(10))).expect("it opens");
        writer.append(&with(cuts)).expect("it is written");
        let path = path.to_str().expect("a path of ours");
        parts(&run(&["ps", "-o", "pid=", "--from", path, "--at", "2026-01-01 12:00:00"]))
    };
    let text = build!(Cut { uid: 1000, cut_tasks: 30, cut_bytes: 119_640 });
    let (code, out, err) = shown(&[text]);
    assert_eq!((code, out.lines().count()), (0, 2), "{err}");
    assert!(err.contains("left out: 120 kB of values of 30 tasks of uid 1000\n"), "{err}");
    let rows = build!(Cut { uid: 1001, tasks: 7000 });
    let (code, _, err) = shown(&[rows, build!(Cut { uid: CUT_OTHERS, answers: 4 })]);
    assert_eq!(code, 0, "others filled the room: {err}");
    assert!(err.contains("left out: 7000 tasks of uid 1001, 4 earlier answers\n"), "{err}");
    assert!(err.contains("7000 tasks are not in this recorded answer"), "{err}");
    // A damaged or forged file may contain any numbers.
    let odd = build!(Cut { uid: 1, tasks: u64::MAX, cut_bytes: u64::MAX, answers: u64::MAX });
    let (code, ..) = shown(&[odd; 40]);
    assert_eq!(code, 0);
}

#[test]
fn keep_at_least_may_not_exceed_keep_or_max_size() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("a path of ours");
    let (code, _, err) =
        parts(&run(&["record", "-n", "1", "--keep", "1d", "--keep-at-least", "25h", path]));
    assert!(code == 2 && err.contains("--keep-at-least is longer than --keep"), "{err}");
    let small = ["record", "-n", "1", "--max-size", "1K", "--keep-at-least", "1h", path];
    let (code, _, err) = parts(&run(&small));
    assert!(code == 4 && err.contains("raise --max-size, or lower --keep-at-least"), "{err}");
}

#[test]
fn a_recording_says_what_it_holds() {
    let replayed = Replayed::new();
    let path = replayed.path();
    let path = path.to_str().expect("a plain path");
    let o = taskdiag().args(["record", "--show", path]).env("TZ", "UTC").output().expect("it runs");
    let (code, out, err) = parts(&o);
    assert_eq!((code, err.as_str()), (0, ""));
    for line in [
        "from     2026-01-01 12:00:00 UTC",
        "to       2026-01-01 12:10:00 UTC",
        "answers  5, the last ones every 10s",
        "gaps     1",
        "         9 min up to 2026-01-01 12:10:00",
    ] {
        assert!(out.lines().any(|l| l == line), "{line}:\n{out}");
    }
    assert!(out.contains("\ngroups   base "), "{out}");
    let (code, _, err) = parts(&run(&["record", "--show", "/no/such/directory"]));
    assert_eq!(code, 4, "{err}");
    assert!(!std::path::Path::new("/no/such/directory").exists());
}
