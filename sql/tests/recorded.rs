// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings as tables: the frames, the selected moment, and data that was not recorded.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{plan_with, rows_with, run};
use serde_json::json;
use taskdiag::recording::{Options, Writer};
use taskdiag::wire::{
    AlignedBuf, CG_IS_V2, CG_UNLIMITED, CgroupList, CgroupMember, CgroupMsg, CgroupValue, Done,
    Fixed, Info, StreamWriter, build,
};
use taskdiag::{Base, Groups, Snapshot, Statm};

/// 2026-11-22 at 03:10:00 UTC.
const BEGIN: u64 = 1_795_317_000;

/// An answer at this second about three processes, whose memory grows by a page each second.
fn snapshot(second: u64) -> Snapshot {
    snapshot_of(second, b"")
}

/// An answer of a host with this name at this second. An empty name means an unknown host.
fn snapshot_of(second: u64, host: &[u8]) -> Snapshot {
    let mut w = StreamWriter::new();
    w.info(&build!(Info {
        nodename: Fixed::new(host),
        show_flags: (Groups::BASE | Groups::STATM).bits(),
        realtime_ns: second * 1_000_000_000,
        boottime_ns: (second - BEGIN / 2) * 1_000_000_000,
        page_size: 4096,
        ..StreamWriter::blank_info()
    }));
    for pid in 1..=3 {
        w.begin_task(pid, pid);
        let mut base = Base::new();
        (base.valid, base.ppid) = (Base::ALL_VALID, pid / 2);
        base.comm[..4].copy_from_slice(&[b't', b'a', b's', b'0' + pid as u8]);
        w.put(&base);
        let mut statm = Statm::new();
        (statm.valid, statm.rss_bytes) = (Statm::ALL_VALID, 4096 * (second - BEGIN + 1));
        w.put(&statm);
        w.end_task();
    }
    Snapshot::parse(w.finish(Done::default())).expect("it is well formed")
}

/// Three frames, ten seconds apart.
fn recording(directory: &Path) {
    let mut writer =
        Writer::open(directory, Options::new(Duration::from_secs(10))).expect("it is empty");
    for second in [0, 10, 20] {
        writer.append(&snapshot(BEGIN + second)).expect("there is room");
    }
}

#[test]
fn frames_have_their_moment_and_host() {
    let directory = tempfile::tempdir().expect("a directory");
    recording(directory.path());
    let at = ["--recording", directory.path().to_str().expect("UTF-8"), "--host", "web1"];
    let all = rows_with(&at, "select ts, host, pid, comm, rss from processes order by ts, pid");
    assert_eq!(all.len(), 9);
    assert_eq!(
        all[4],
        json!({"ts": "2026-11-22T03:10:10Z", "host": "web1", "pid": 2, "comm": "tas2", "rss": 11 * 4096})
    );
    let grown = "select max(rss) - min(rss) as grown from processes where pid = 3 and ts >= '2026-11-22 03:10:10Z'";
    assert_eq!(rows_with(&at, grown), [json!({"grown": 40_960})]);
    let plan = plan_with(&at, grown);
    assert!(plan.contains("pids=[3], frames=2 of 3"), "{plan}");
    // Live data is there, too.
    let live =
        format!("select count(*) as n from live.processes where pid = {}", std::process::id());
    assert_eq!(rows_with(&at, &live), [json!({"n": 1})]);
    let own = rows_with(&at[..2], "select distinct host from processes");
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it has a name");
    assert_eq!(own, [json!({"host": name.trim()})]);
}

#[test]
fn rows_are_of_the_host_that_was_recorded() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("r");
    let mut writer =
        Writer::open(&path, Options::new(Duration::from_secs(10))).expect("it is empty");
    for (second, host) in [(0, "web1"), (10, "renamed")] {
        writer.append(&snapshot_of(BEGIN + second, host.as_bytes())).expect("there is room");
    }
    let at = ["--recording", path.to_str().expect("UTF-8"), "--host", "given"];
    let sql = "select host, count(*) as n from processes group by host order by host";
    let of = |host: &str, n: u32| json!({"host": host, "n": n});
    assert_eq!(rows_with(&at[..2], sql), [of("renamed", 3), of("web1", 3)]);
    assert_eq!(rows_with(&at, sql), [of("given", 6)]);
    // The tables of live processes have the column, too.
    let live = format!("select host from live.processes where pid = {}", std::process::id());
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it has a name");
    assert_eq!(rows_with(&at, &live), [json!({"host": name.trim()})]);
}

#[test]
fn a_moment_selects_the_last_frame_before_it() {
    let directory = tempfile::tempdir().expect("a directory");
    recording(directory.path());
    let path = directory.path().to_str().expect("UTF-8");
    let sql = "select distinct ts from processes";
    for (at, want) in [
        ("2026-11-22 03:10:15Z", "2026-11-22T03:10:10Z"),
        ("2026-11-22 03:10:00Z", "2026-11-22T03:10:00Z"),
        ("@1795317020", "2026-11-22T03:10:20Z"),
    ] {
        assert_eq!(
            rows_with(&["--recording", path, "--at", at], sql),
            [json!({"ts": want})],
            "{at}"
        );
    }
    let before = run(&["--recording", path, "--at", "@1795316999", "-c", sql]);
    assert_eq!(before.code, 4, "{}", before.err);
    assert!(before.err.contains("nothing was recorded at"), "{}", before.err);
    assert_eq!(run(&["--recording", path, "--at", "noon", "-c", sql]).code, 2);
    assert_eq!(run(&["--at", "03:10", "-c", sql]).code, 2);
}

#[test]
fn values_that_were_not_recorded_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    let empty = run(&["--recording", path, "-c", "select 1"]);
    assert_eq!(empty.code, 4, "{}", empty.err);
    assert!(empty.err.contains("taskdiag record"), "{}", empty.err);
    recording(directory.path());
    let lacking = run(&[
        "--recording",
        path,
        "-o",
        "csv",
        "-c",
        "select pid, \"user\" from processes where pid = 1",
    ]);
    assert_eq!((lacking.code, lacking.out.as_str()), (3, "pid,user\n1,\n1,\n1,\n"));
    assert!(
        lacking.err.contains("3 rows of processes without user: it was not recorded"),
        "{}",
        lacking.err
    );
    let files = run(&["--recording", path, "-c", "select count(*) from files"]);
    assert_eq!(files.code, 3, "{}", files.err);
}

/// The same with two cgroups, whose memory is the number of the second. `left_out` more were not
/// recorded.
fn snapshot_with_cgroups(second: u64, left_out: u64) -> Snapshot {
    let bytes = AlignedBuf::copy_of(snapshot(BEGIN + second).stream().bytes());
    let (mut w, done) = StreamWriter::reopen(bytes).expect("it is well formed");
    w.cgroup_list(&build!(CgroupList { most: 2000, levels: 100, left_out }));
    let memory = build!(CgroupValue { value: second, member: CgroupMember::Memory as u32 });
    let member = CgroupMember::MemoryMax as u32;
    let unlimited = build!(CgroupValue { flags: CG_UNLIMITED, member });
    for (id, path) in [(1, "/"), (2, "/a.service")] {
        let head = CgroupMsg { id, flags: CG_IS_V2, ..CgroupMsg::default() };
        w.cgroup(&head, path.as_bytes(), &[memory, unlimited]);
    }
    Snapshot::parse(w.finish(done)).expect("it is well formed")
}

#[test]
fn recorded_cgroups_have_the_moment_of_their_frame_and_frames_without_them_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    let mut writer =
        Writer::open(directory.path(), Options::new(Duration::from_secs(10))).expect("it is empty");
    writer.append(&snapshot_with_cgroups(0, 0)).expect("there is room");
    writer.append(&snapshot(BEGIN + 10)).expect("there is room");
    writer.append(&snapshot_with_cgroups(20, 5)).expect("there is room");
    writer.append(&snapshot_with_cgroups(30, 7)).expect("there is room");
    let at = ["--recording", path, "--host", "web1"];
    let sql = "select ts, host, path, id, memory from cgroups where path like '/a%' order by ts";
    let row = |ts: &str, memory: u64| {
        json!({"ts": format!("2026-11-22T03:10:{ts}Z"), "host": "web1", "path": "/a.service",
            "id": 2, "memory": memory})
    };
    assert_eq!(rows_with(&at, sql), [row("00", 0), row("20", 20), row("30", 30)]);
    // A missing limit is no NULL.
    let limit = "select count(*) as n from cgroups where memory_max > 1000000";
    assert_eq!(rows_with(&at, limit), [json!({"n": 6})]);
    // The frames without cgroups are a gap, and the one that lacks most is described.
    let all = run(&[&at[..2], &["-c", sql]].concat());
    assert_eq!(all.code, 3, "{}", all.err);
    for part in [
        "1 of 4 answers have no rows in cgroups, since their cgroups were not recorded",
        "7 cgroups or more are not in this recorded answer",
        "cgroups are missing in 2 answers, and this one lacks most",
    ] {
        assert!(all.err.contains(part), "{part}: {}", all.err);
    }
    assert!(!all.err.contains("5 cgroups"), "{}", all.err);
    // A condition on the moment leaves the gap out, as does --at.
    let first = "select memory from cgroups where ts < '2026-11-22 03:10:05Z' and path = '/'";
    let ran = run(&[&at[..2], &["-o", "csv", "-c", first]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, "memory\n0\n"), "{}", ran.err);
    assert!(plan_with(&at, first).contains("frames=1 of 4"));
    let one = ["--recording", path, "--at", "@1795317010", "-c", "select path from cgroups"];
    let none = run(&one);
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(none.err.contains("1 of 1 answers have no rows"), "{}", none.err);
    // A value that a recorder does not read.
    let unread = "select path, pids_max from cgroups where ts < '2026-11-22 03:10:05Z'";
    let unread = run(&[&at[..2], &["-c", unread]].concat());
    assert_eq!(unread.code, 3, "{}", unread.err);
    assert!(unread.err.contains("without pids_max: it was not recorded"), "{}", unread.err);
    // The present ones are there, too.
    let live = "select count(*) as n from live.cgroups where path = '/'";
    assert_eq!(rows_with(&at, live), [json!({"n": 1})]);
}
