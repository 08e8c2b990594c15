// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries as people write them for osquery. These are our own, in the style of published packs:
//! incident response, reverse shells, deleted programs, odd paths, listening ports, environments.
//! `docs/use/sql.md` says how published ones fared.

mod common;

use std::net::TcpListener;

use common::{Sleeper, plan_with, rows_with, run, status};
use serde_json::json;

const OSQUERY: &[&str] = &["--osquery"];

/// Queries that run.
const RUN: &[&str] = &[
    "SELECT * FROM processes LIMIT 5;",
    "SELECT pid, name, resident_size FROM processes ORDER BY resident_size DESC LIMIT 10;",
    "SELECT name, path, pid FROM processes WHERE on_disk = 0;",
    "SELECT name, path, cmdline FROM processes WHERE on_disk != 1 AND path != \"\";",
    "SELECT pid, cmdline FROM processes WHERE cmdline LIKE '%/TMP/%' OR cmdline LIKE \"%/dev/shm/%\";",
    "SELECT pid, name FROM processes WHERE name LIKE 'SLEEP';",
    "SELECT COUNT(*) AS n, state FROM processes GROUP BY state HAVING n > 0 ORDER BY n DESC;",
    "SELECT uid, COUNT(pid) AS total FROM processes GROUP BY uid ORDER BY total DESC;",
    "SELECT p.pid, p.name, u.username FROM processes p JOIN users u ON p.uid = u.uid WHERE u.username = 'root' LIMIT 5;",
    "SELECT p.name, u.username FROM processes AS p LEFT JOIN users AS u ON u.uid = p.uid ORDER BY start_time DESC LIMIT 20;",
    "SELECT p.pid, p.name, pp.name AS parent_name, pp.cmdline AS parent_cmdline FROM processes p LEFT JOIN processes pp ON p.parent = pp.pid;",
    "SELECT c.pid, p.pid AS parent, g.pid AS grandparent FROM processes c JOIN processes p ON c.parent = p.pid JOIN processes g ON p.parent = g.pid;",
    "SELECT DISTINCT process.name, listening.port, listening.address, process.pid FROM processes AS process JOIN listening_ports AS listening ON process.pid = listening.pid;",
    "SELECT * FROM listening_ports WHERE protocol = 6 AND address NOT IN ('127.0.0.1', '::1') AND port != 0;",
    "SELECT DISTINCT pid, family, protocol, local_address, local_port, remote_address, remote_port, path FROM process_open_sockets WHERE path <> '' OR remote_address <> '';",
    "SELECT p.name, s.remote_address, s.remote_port FROM process_open_sockets s LEFT JOIN processes p ON s.pid = p.pid WHERE s.remote_port != 0 AND s.remote_address NOT IN ('', '0.0.0.0', '::') AND s.remote_address NOT LIKE '10.%';",
    "SELECT remote_port, COUNT(*) AS n FROM process_open_sockets WHERE protocol == 6 GROUP BY remote_port;",
    "SELECT DISTINCT pid, path FROM process_open_files WHERE path NOT LIKE '/usr/lib%' AND path NOT IN ('/dev/null', '/dev/urandom');",
    "SELECT p.name, f.path, COUNT(*) AS fds FROM process_open_files f JOIN processes p USING (pid) GROUP BY p.name, f.path ORDER BY fds DESC LIMIT 10;",
    "SELECT pid, key, value FROM process_envs WHERE key = 'LD_PRELOAD';",
    "SELECT process_envs.pid AS source_process_id, processes.name, process_envs.key, process_envs.value FROM process_envs JOIN processes USING (pid) WHERE key = \"LD_PRELOAD\" OR key LIKE 'DYLD%';",
    "SELECT pid, permissions, offset, inode, path, pseudo FROM process_memory_map WHERE path != \"\" GROUP BY pid, permissions, offset, inode, path, pseudo LIMIT 5;",
    "SELECT m.pid, p.name FROM process_memory_map AS m JOIN processes p ON p.pid = m.pid WHERE m.permissions LIKE '%wx%' AND m.pseudo = 1;",
    "SELECT DISTINCT(processes.pid), processes.parent, processes.name, s.remote_address, (SELECT cmdline FROM processes AS parent_cmdline WHERE pid = processes.parent) AS parent_cmdline FROM processes JOIN process_open_sockets AS s USING (pid) LEFT OUTER JOIN process_open_files ON processes.pid = process_open_files.pid WHERE (name = 'sh' OR name = 'bash') AND remote_address NOT IN ('0.0.0.0', '::', '') AND remote_address NOT LIKE '10.%';",
    "SELECT p.pid, n.pid_namespace, n.mnt_namespace FROM process_namespaces n JOIN processes p ON p.pid = n.pid;",
    "SELECT pid, name FROM processes WHERE pid NOT IN (SELECT parent FROM processes) AND parent != 2;",
    "SELECT pid, name, (user_time + system_time) AS cpu FROM processes ORDER BY cpu DESC LIMIT 5;",
    "SELECT name, ROUND((total_size * 1.0) / 1048576, 1) AS mb FROM processes ORDER BY total_size DESC LIMIT 5;",
    "SELECT pid, datetime(start_time, 'unixepoch') AS began FROM processes WHERE start_time > (strftime('%s', 'now') - 86400);",
    "SELECT p.pid, p.start_time, t.unix_time - p.start_time AS age FROM processes p, time t WHERE t.unix_time - p.start_time < 600;",
    "SELECT name, group_concat(pid) AS pids FROM processes WHERE threads > 1 GROUP BY name;",
    "SELECT CASE WHEN euid = 0 THEN 'root' ELSE 'other' END AS who, COUNT(*) FROM processes GROUP BY who;",
    "WITH shells AS (SELECT pid, parent FROM processes WHERE name IN ('sh', 'bash', 'dash')) SELECT p.name FROM shells s JOIN processes p ON p.pid = s.parent;",
    "SELECT pid FROM processes WHERE uid != euid OR gid != egid;",
    "SELECT pid, cgroup_path FROM processes WHERE cgroup_path LIKE '/system.slice/%' LIMIT 5;",
    "SELECT IFNULL(SUM(disk_bytes_written), 0) AS written, MAX(nice) FROM processes WHERE state = 'S';",
    "SELECT u.username, ug.gid, g.groupname FROM users u JOIN user_groups ug ON ug.uid = u.uid JOIN groups g ON g.gid = ug.gid;",
];

/// Queries that are refused, and their errors.
const DO_NOT_RUN: &[(&str, &str)] = &[
    (
        "SELECT p.name, h.sha256 FROM processes p JOIN hash h ON p.path = h.path;",
        "there is no table 'hash'",
    ),
    ("SELECT * FROM process_events;", "there is no table 'process_events'"),
    ("SELECT pid, name, COUNT(*) FROM processes GROUP BY name;", "GROUP BY"),
    ("SELECT p.pid FROM processes p LEFT JOIN users u;", "join condition"),
    ("SELECT COUNT(*) AS n FROM processes WHERE n > 1;", "there is no column 'n'"),
    ("SELECT pid FROM processes WHERE name GLOB 'a*';", "GLOB"),
];

#[test]
fn queries_run_as_they_are() {
    assert!(RUN.len() >= 30);
    for sql in RUN {
        let ran = run(&["--osquery", "-o", "json", "-c", sql]);
        assert!([0, 1, 3].contains(&ran.code), "{sql}\n{}: {}", ran.code, ran.err);
        let rows: serde_json::Value = serde_json::from_str(&ran.out).expect("it is JSON");
        assert!(rows.is_array(), "{sql}");
    }
}

#[test]
fn queries_that_do_not_run_are_refused() {
    for (sql, want) in DO_NOT_RUN {
        let ran = run(&["--osquery", "-c", sql]);
        assert_eq!(ran.code, 2, "{sql}: {}", ran.err);
        assert!(ran.err.contains(want), "{sql}: {}", ran.err);
    }
}

#[test]
fn values_have_the_units_of_osquery() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let sql = format!(
        "SELECT pid, name, path, cmdline, state, uid, euid, on_disk, resident_size, total_size, parent, threads, nice, \
         start_time FROM processes WHERE pid = {pid}"
    );
    let rows = rows_with(OSQUERY, &sql);
    let row = &rows[0];
    assert_eq!(row["name"], json!("sleep"));
    assert_eq!(row["cmdline"], json!("sleep 600"));
    assert_eq!(row["parent"], json!(std::process::id()));
    assert_eq!(row["on_disk"], json!(1));
    assert_eq!(row["resident_size"], json!(status(pid, "VmRSS") * 1024));
    assert_eq!(row["total_size"], json!(status(pid, "VmSize") * 1024));
    assert_eq!(row["uid"], json!(status(pid, "Uid")));
    assert_eq!((&row["threads"], &row["state"]), (&json!(1), &json!("S")));
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it is our own");
    assert_eq!(row["path"], json!(exe.to_str().expect("UTF-8")));
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a clock")
        .as_secs();
    let start = row["start_time"].as_u64().expect("seconds");
    assert!(start <= now + 1 && start + 600 > now, "{start} {now}");
    // Text is compared with numbers as SQLite does.
    let text = format!("SELECT COUNT(*) AS n FROM processes WHERE pid = '{pid}'");
    assert_eq!(rows_with(OSQUERY, &text), [json!({"n": 1})]);
}

#[test]
fn a_deleted_program_is_not_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("gone");
    std::fs::copy("/bin/sleep", &copy).expect("there is sleep");
    let child = std::process::Command::new(&copy).arg("600").spawn().expect("it starts");
    let child = Sleeper(child);
    while std::fs::read_to_string(format!("/proc/{}/comm", child.pid()))
        .expect("it is there")
        .trim()
        != "gone"
    {
        std::thread::yield_now();
    }
    std::fs::remove_file(&copy).expect("it is there");
    let sql = format!("SELECT on_disk, path FROM processes WHERE pid = {}", child.pid());
    assert_eq!(
        rows_with(OSQUERY, &sql),
        [json!({"on_disk": 0, "path": copy.to_str().expect("UTF-8")})]
    );
}

#[test]
fn ports_and_environments_are_those_of_the_process() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let own = std::process::id();
    let sql = format!(
        "SELECT pid, port, protocol, family, address FROM listening_ports WHERE port = {port} AND pid = {own}"
    );
    let want =
        json!({"pid": own, "port": port, "protocol": 6, "family": 2, "address": "127.0.0.1"});
    assert_eq!(rows_with(OSQUERY, &sql), [want]);
    let path = std::env::var("PATH").expect("it has one");
    let sql = format!("SELECT value FROM process_envs WHERE pid = {own} AND key = 'PATH'");
    assert_eq!(rows_with(OSQUERY, &sql), [json!({"value": path})]);
    let maps = format!("SELECT start FROM process_memory_map WHERE pid = {own} LIMIT 1");
    let first = common::proc(own, "maps").split('-').next().expect("an address").to_owned();
    assert_eq!(rows_with(OSQUERY, &maps), [json!({"start": format!("0x{first:0>16}")})]);
}

#[test]
fn conditions_reach_the_machine_through_views() {
    let sql = "SELECT name, cmdline FROM processes WHERE pid = 7";
    let plan = plan_with(OSQUERY, sql);
    assert!(plan.contains("request=[processes of pids 7, groups base|cmdline]"), "{plan}");
    let rss = plan_with(
        OSQUERY,
        "SELECT pid, name, resident_size FROM processes ORDER BY resident_size DESC LIMIT 10",
    );
    assert!(rss.contains("request=[all processes, groups base|statm]"), "{rss}");
    let joined = plan_with(
        OSQUERY,
        "SELECT * FROM processes p JOIN process_open_sockets s USING (pid) WHERE p.pid = 7",
    );
    assert_eq!(joined.matches("shared by 2 tables").count(), 2, "{joined}");
}
