// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parquet files of `taskdiag convert` as tables.

mod common;

use std::path::Path;
use std::process::Command;

use common::{ended, plan_with, program, rows_with, run};
use serde_json::json;

fn partition(lake: &Path, hour: &str, host: &str, values: &str) {
    let directory = lake.join(format!("date=2026-11-22/hour={hour}/host={host}"));
    std::fs::create_dir_all(&directory).expect("there is room");
    let file = directory.join("processes.parquet");
    let sql = format!(
        "copy (select * from (values {values}) as t(ts, pid, rss)) to '{}' stored as parquet",
        file.display()
    );
    let ran = run(&["-c", &sql]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn hosts_and_hours_are_columns_that_choose_files() {
    let lake = tempfile::tempdir().expect("a directory");
    let moment = |minute: u8| format!("timestamp '2026-11-22T03:{minute:02}:00'");
    partition(
        lake.path(),
        "03",
        "web1",
        &format!("({}, 7, 100), ({}, 8, 200)", moment(1), moment(2)),
    );
    partition(lake.path(), "03", "web2", &format!("({}, 7, 1000)", moment(1)));
    partition(lake.path(), "04", "web1", &format!("({}, 9, 10)", moment(3)));
    let at = ["--lake", lake.path().to_str().expect("UTF-8")];
    let sums = rows_with(
        &at,
        "select host, hour, sum(rss) as rss from processes group by host, hour order by 1, 2",
    );
    assert_eq!(
        sums,
        [
            json!({"host": "web1", "hour": 3, "rss": 300}),
            json!({"host": "web1", "hour": 4, "rss": 10}),
            json!({"host": "web2", "hour": 3, "rss": 1000}),
        ]
    );
    let plan = plan_with(
        &at,
        "select pid from processes where host = 'web2' and date = '2026-11-22' and hour = 3",
    );
    assert!(plan.contains("host=web2") && !plan.contains("host=web1"), "{plan}");
    let both = format!(
        "select count(*) as n from live.processes l left join processes p on l.pid = p.pid where l.pid = {}",
        std::process::id()
    );
    assert_eq!(rows_with(&at, &both), [json!({"n": 1})]);
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("there is mkfifo");
    assert!(made.success());
}

#[test]
fn a_pipe_among_the_files_is_not_opened() {
    let lake = tempfile::tempdir().expect("a directory");
    partition(lake.path(), "03", "web1", "(timestamp '2026-11-22T03:01:00', 7, 100)");
    let there = lake.path().join("date=2026-11-22/hour=03/host=web1");
    for name in ["processes.1.parquet", "sockets.parquet"] {
        pipe(&there.join(name));
    }
    let at = ["--lake", lake.path().to_str().expect("UTF-8")];
    assert_eq!(rows_with(&at, "select pid from processes"), [json!({"pid": 7})]);
}

#[test]
fn an_external_table_of_a_pipe_is_left_at_ctrl_c() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p.parquet");
    pipe(&path);
    let sql = format!("create external table t stored as parquet location '{}'", path.display());
    let mut command = program(["-c", &sql]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.as_mut().expect("a pipe"));
    said.read_line(&mut line).expect("it says something");
    assert!(line.contains("is not planned after 2 s"), "{line}");
    // SAFETY: our own child, which nobody has waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{}", ran.err);
}

#[test]
fn a_directory_without_such_files_is_refused() {
    let empty = tempfile::tempdir().expect("a directory");
    for path in [empty.path(), Path::new("/nonexistent")] {
        let ran = run(&["--lake", path.to_str().expect("UTF-8"), "-c", "select 1"]);
        assert_eq!(ran.code, 4, "{}", ran.err);
        assert!(ran.err.contains(path.to_str().expect("UTF-8")), "{}", ran.err);
    }
}

#[test]
fn files_written_by_convert_are_read() {
    let taskdiag = std::env::var("TASKDIAG_ARROW").expect(
        "TASKDIAG_ARROW names a taskdiag that was built with the feature arrow: 'make sql' builds one and runs the tests",
    );
    let directory = tempfile::tempdir().expect("a directory");
    let (recording, lake) = (directory.path().join("recording"), directory.path().join("lake"));
    let taskdiag = |args: &[&str], paths: &[&Path]| {
        let done = Command::new(&taskdiag).args(args).args(paths).output().expect("it starts");
        // 3: the files of some process could not be read.
        let code = done.status.code();
        assert!(matches!(code, Some(0 | 3)), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let listens = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listens.local_addr().expect("it has one").port();
    let groups = "default,fd,vma";
    taskdiag(&["record", "--every", "1s", "--count", "2", "--groups", groups], &[&recording]);
    taskdiag(&["convert", "--host", "web1"], &[&recording, &lake]);
    let at = ["--lake", lake.to_str().expect("UTF-8")];
    let own = format!(
        "select count(distinct ts) as frames, min(host) as host, min(comm) as comm, min(change) as change \
         from processes where pid = {}",
        std::process::id()
    );
    let comm = common::proc(std::process::id(), "comm");
    let rows = rows_with(&at, &own);
    assert_eq!(rows[0]["host"], json!("web1"));
    assert_eq!(rows[0]["comm"], json!(comm.trim()));
    assert!(rows[0]["frames"].as_u64() >= Some(1), "{rows:?}");
    let sums = rows_with(
        &at,
        "select sum(rss) > 0 as some, count(*) > 10 as many from processes where change = 'full'",
    );
    assert_eq!(sums, [json!({"some": true, "many": true})]);
    let who =
        format!("select pid, host from sockets where lport = {port} and sockstate = 'LISTEN'");
    assert_eq!(rows_with(&at, &who)[0], json!({"pid": std::process::id(), "host": "web1"}));
    let own = format!(
        "select count(*) > 0 as some from mapped_files where pid = {} and path like '%/libc%'",
        std::process::id()
    );
    assert_eq!(rows_with(&at, &own), [json!({"some": true})]);
}
