//! `memory` against smaps_rollup, on a process that stands still. Values of the kernel may change
//! between two readings (a page is used, a neighbour ends), so a pair that differs is read again.

use std::process::{Child, Command, Stdio};

use super::common::{parts, run, wait_for_sleep};

/// The output of the program.
fn taskdiag(args: &[&str]) -> String {
    let (code, out, err) = parts(&run(args));
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    out
}

/// A process that stands still. Dropping the value ends it. Its program is its own file, so that no
/// neighbour shares it.
struct Still {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Still {
    fn new() -> Still {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = dir.path().join("still");
        // Another process makes it: while a thread of this one forks, a file that it writes is
        // busy.
        let sleep = output("sh", &["-c", "command -v sleep"]).expect("sleep is there");
        let program_text = program.to_str().expect("UTF-8");
        output("cp", &["-L", sleep.trim(), program_text]).expect("it can be copied");
        let mut command = Command::new(&program);
        command.arg("1000").env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        let still = Still { child: command.spawn().expect("it runs"), _dir: dir };
        wait_for_sleep(still.child.id(), "still");
        still
    }
    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let o = Command::new(program).env("LC_ALL", "C.UTF-8").args(args).output().ok()?;
    o.status.success().then(|| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// Bytes of pss, and of uss and swap.
type Shares = (u64, (u64, u64));

/// What `memory` prints.
fn memory(pid: &str) -> Shares {
    let text = taskdiag(&["memory", "--csv", "--no-headers", "-o", "pss,uss,swap", pid]);
    let n: Vec<u64> = text.trim().split(',').map(|n| n.parse().expect("a number")).collect();
    (n[0], (n[1], n[2]))
}

#[test]
fn memory_as_smaps_rollup_has_it() {
    let still = Still::new();
    let pid = still.pid();
    let theirs = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("readable");
        let kib = |key: &str| -> u64 {
            let line = text.lines().find(|l| l.starts_with(&format!("{key}:"))).expect("a line");
            line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
        };
        let uss = kib("Private_Clean") + kib("Private_Dirty");
        (kib("Pss") * 1024, (uss * 1024, kib("Swap") * 1024))
    };
    // Processes that map the same files come and go, and change the share of each page.
    let near = |a: u64, b: u64| a.abs_diff(b) <= a.max(b) / 5;
    let mut pairs = (0..40).map(|_| (memory(&pid), theirs()));
    let settled = |(got, want): &(Shares, Shares)| got.1 == want.1 && near(got.0, want.0);
    let (got, want) = pairs.find(settled).unwrap_or_else(|| (memory(&pid), theirs()));
    assert!(got.1.0 > 0 && got.0 > 0);
    assert_eq!(got.1, want.1, "uss and swap");
    assert!(near(got.0, want.0), "pss: {} {}", got.0, want.0);
}
