// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the program, and reads what it writes.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The program with these arguments. SIGINT ends it, even if a shell started the tests in the
/// background and made them ignore that signal.
pub fn program<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiag-sql"));
    command.args(args).stdin(Stdio::null());
    // SAFETY: the call is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    command
}

/// The result of a run.
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs it with these arguments.
pub fn run(args: &[&str]) -> Ran {
    ran(program(args).output().expect("it starts"))
}

/// The result of a program that has ended.
pub fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().expect("no signal ended it"),
        out: String::from_utf8(output.stdout).expect("output is UTF-8"),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The result of a program that must end within ten minutes, which is long enough for a busy
/// machine.
pub fn ended(mut child: Child) -> Ran {
    let end = Instant::now() + Duration::from_secs(600);
    while child.try_wait().expect("it is ours").is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ran(child.wait_with_output().expect("it has ended"))
}

/// The rows of a query as JSON. The answer may be partial, as some sandboxes hide process 1.
pub fn rows_with(args: &[&str], sql: &str) -> Vec<Value> {
    let ran = run(&[args, &["-o", "json", "-c", sql]].concat());
    assert!([0, 1, 3].contains(&ran.code), "{sql}: {} {}", ran.code, ran.err);
    match serde_json::from_str(&ran.out) {
        Ok(Value::Array(rows)) => rows,
        other => panic!("{sql}: {other:?}: {}", ran.out),
    }
}

/// The rows of a query about live processes.
pub fn rows(sql: &str) -> Vec<Value> {
    rows_with(&[], sql)
}

/// The text of a plan.
pub fn plan_with(args: &[&str], sql: &str) -> String {
    let ran = run(&[args, &["-c", &format!("explain {sql}")]].concat());
    assert_eq!(ran.code, 0, "{sql}: {}", ran.err);
    ran.out
}

/// The text of a plan over what runs.
pub fn plan(sql: &str) -> String {
    plan_with(&[], sql)
}

/// A process that sleeps until it is dropped.
pub struct Sleeper(pub Child);

impl Sleeper {
    /// Starts one.
    pub fn start() -> Sleeper {
        let child =
            Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("there is sleep");
        let path = format!("/proc/{}/comm", child.id());
        // Between fork and exec it has our name.
        while std::fs::read_to_string(&path).expect("it is there").trim() != "sleep" {
            std::thread::yield_now();
        }
        Sleeper(child)
    }
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The text of a file of a process.
pub fn proc(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it is our own")
}

/// A value of /proc/PID/status, in its own unit.
pub fn status(pid: u32, key: &str) -> u64 {
    let text = proc(pid, "status");
    let line =
        text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).expect("status has it");
    line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("it is a number")
}
