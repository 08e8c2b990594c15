//! Tests when missing data makes the command fail: an ordinary user's scripts work, and no user can
//! make the scripts of others fail.

use taskdiag_tests::cli::{Ran, Sandbox};
use taskdiag_tests::{Mktask, needs_root};

const NOBODY: u32 = 65534;

/// The sentences that report hidden data.
fn said(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().filter(|l| l.contains("not shown")).collect()
}

#[test]
fn lists_of_an_ordinary_user_succeed_and_say_once_what_is_not_shown() {
    if !needs_root("lists_of_an_ordinary_user_succeed_and_say_once_what_is_not_shown") {
        return;
    }
    let other = Mktask::start(&["idle"]).expect("always possible");
    let pid = other.pid().to_string();
    let own = Mktask::start(&["user", &NOBODY.to_string()]).expect("we are root");
    let sandbox = Sandbox::new().user(NOBODY);
    for args in [
        &["files"][..],
        &["files", "--json"],
        &["files", "-t"],
        &["files", "-Fpn"],
        &["files", "--count"],
        &["maps"],
        &["maps", "--jsonl"],
        &["memory"],
        &["memory", "--by", "user"],
        &["memory", "--csv"],
        &["dump"],
        &["report"],
        &["report", "--files"],
        &["ps", "-eo", "pid,exe,cwd,wchan,read_bytes"],
        &["ps", "--json", "-eo", "pid,exe"],
    ] {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(0), "{ran}");
        let said = said(&ran);
        let is_short = |l: &&str| l.len() < 160 && l.ends_with("not shown: run as root");
        assert!(!said.is_empty() && said.iter().all(is_short), "{ran}");
        assert!(said.len() <= 2, "{ran}");
        if !args.contains(&"--jsonl") {
            let strict = sandbox.run(&[args, &["--strict"]].concat());
            assert_eq!(strict.code, Some(3), "{strict}");
        }
    }
    for args in [
        &["ps", "aux"][..],
        &["ps", "--tree"],
        &["tree"],
        &["tree", "-a"],
        &["top", "--once", "-d", "100ms"],
        &["files", "-p", &own.pid().to_string()],
        &["maps", &own.pid().to_string()],
    ] {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(0), "{ran}");
    }
    // A process that was named and is missing is a failure.
    for args in [
        &["files", "-p", &pid][..],
        &["files", "-u", "root"],
        &["files", "-t", "-p", &pid],
        &["files", "/proc/1/no-such-file"],
        &["maps", &pid],
        &["memory", "-p", &pid],
        &["memory", "-u", "root"],
        &["ps", "-p", &pid, "-o", "pid,exe"],
        &["dump", "-p", &pid, "-g", "fd"],
    ] {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(3), "{ran}");
        assert!(!said(&ran).is_empty(), "{ran}");
    }
    // Under the names of other tools, the exit codes are those of the tools.
    let tools = [
        (&["--as", "ps", "-eo", "pid,exe"][..], 0),
        (&["--as", "pmap", &pid], 1),
        (&["--as", "lsof"], 0),
    ];
    for (args, code) in tools {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(code), "{ran}");
    }
}
