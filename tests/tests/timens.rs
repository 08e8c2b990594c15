//! Tests a time namespace that is younger than its tasks: the tasks began before its boot time, and
//! the kernel shows the negative start time as an unsigned number.

use std::process::{Command, Stdio};

use serde_json::Value;
use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::{Ended, engines, skip};

#[test]
fn a_task_older_than_its_time_namespace_has_its_age() {
    let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep runs");
    let child = Ended(child);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let uptime = std::fs::read_to_string("/proc/uptime").expect("readable");
    let (seconds, _) = uptime.split_once('.').expect("a number");
    let offset = format!("-{seconds}");
    let through = ["unshare", "--time", "--boottime", &offset, "--fork", "--"];
    let sandbox = Sandbox::new().through(&through);
    let pid = child.0.id().to_string();
    let probe = Command::new(through[0]).args(&through[1..]).arg("true").status();
    if !probe.is_ok_and(|s| s.success()) {
        skip("time namespaces", "unshare(1) or the kernel has none here");
    } else {
        let mut ids: Vec<_> = engines().iter().map(|e| e.id()).collect();
        ids.dedup();
        for engine in ids {
            let name = engine.to_string();
            let ran = sandbox.run(&[
                "ps",
                "--json",
                "--engine",
                &name,
                "-p",
                &pid,
                "-o",
                "etimes,lstart,pcpu",
            ]);
            let rows: Value =
                serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran}"));
            let row = &rows[0];
            let age = row["etimes"].as_f64().expect("a number");
            assert!((2.0..100.0).contains(&age), "{engine}: {row}");
            let now =
                std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
            let start = row["lstart"].as_f64().expect("a number");
            assert!((now - start - age).abs() < 60.0, "{engine}: {row} at {now}");
        }
    }
}
