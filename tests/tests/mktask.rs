//! Tests mktask itself: it makes each state here, or gives the reason why it cannot, and nothing of
//! the state remains.

use std::time::Duration;

use taskdiag_tests::Mktask;
use taskdiag_tests::busy::Patience;

/// The letter of the state that /proc shows.
fn state(pid: u32) -> Option<char> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = text.iter().rposition(|b| *b == b')')?;
    text.get(close + 2).map(|b| char::from(*b))
}

/// The start time of a task in ticks, because its pid alone may belong to another task by now.
/// `None` if the task has gone.
fn began(pid: u32) -> Option<String> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let rest = String::from_utf8_lossy(&text[close..]).into_owned();
    // This is the 22nd field. The second field ends at the bracket.
    rest.split(' ').nth(20).map(str::to_string)
}

#[test]
fn every_state_is_reached_and_ends() {
    let dir = tempfile::tempdir().expect("dir");
    let path = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).expect("made");
        path.to_str().expect("a plain path").to_string()
    };
    let plain = [
        ("idle", 'S'),
        ("lock-abba", 'S'),
        ("lock-across", 'S'),
        ("lock-owners", 'S'),
        ("lock-no-owners", 'S'),
        ("lock-ends", 'S'),
        ("lock-crowd", 'S'),
        ("lock-no-memory", 'S'),
        ("stacks", 'S'),
        ("stack-no-memory", 'S'),
        ("rare-waits", 'S'),
        ("zombie", 'Z'),
        ("leader-gone", 'Z'),
        ("exec-thread", 'S'),
        ("stopped", 'T'),
        ("traced-running", 'S'),
        ("traced-stopped", 't'),
        ("vfork", 'D'),
        ("orphan", 'S'),
        ("family", 'S'),
        ("pid-wrap", 'S'),
        ("pid-wrap-ns", 'S'),
        ("odd-comm", 'S'),
        ("exe-memfd", 'S'),
        ("argc0", 'S'),
        ("cmdline-none", 'S'),
        ("cmdline-wiped", 'S'),
        ("cmdline-rewritten", 'S'),
        ("cmdline-titled", 'S'),
        ("creds", 'S'),
        ("user", 'S'),
        ("thread-creds", 'S'),
        ("seccomp-filter", 'S'),
        ("seccomp-strict", 'S'),
        ("undumpable", 'S'),
        ("namespaces", 'S'),
        ("pidns", 'S'),
        ("userns", 'S'),
        ("tty", 'S'),
        ("cgroup", 'S'),
        ("io", 'S'),
        ("memory", 'S'),
    ];
    let one = ["threads", "cmdline", "burn", "children", "dead-threads"];
    let mut cases: Vec<(Vec<String>, char)> =
        plain.iter().map(|(name, letter)| (vec![name.to_string()], *letter)).collect();
    cases.extend(one.iter().map(|name| (vec![name.to_string(), "40".into()], 'S')));
    cases.push((vec!["crowd".into(), "300000".into(), "3".into()], 'S'));
    cases.push((vec!["exe-deleted".into(), path("exe")], 'S'));
    cases.push((vec!["unshared-files".into(), path("a"), path("b")], 'S'));
    cases.push((vec!["cwd".into(), path("cwd")], 'S'));
    cases.push((vec!["mappings".into(), path("mappings")], 'S'));
    cases.push((vec!["files".into(), path("files")], 'S'));
    cases.push((vec!["held-lock".into(), path("held")], 'S'));
    cases.push((vec!["stuck-lock".into(), path("stuck")], 'D'));
    cases.push((vec!["stuck-position".into(), path("position")], 'D'));
    cases.push((vec!["waits".into(), path("waits")], 'S'));
    // The first version of cgroups freezes a task in state D.
    cases.push((vec!["frozen".into(), "v1".into(), path("frozen-v1")], 'D'));
    cases.push((vec!["frozen".into(), "v2".into(), path("frozen-v2")], 'S'));
    cases.push((vec!["uffd-arguments".into()], 'S'));
    cases.push((vec!["cwd-deleted".into(), path("gone")], 'S'));
    cases.push((vec!["root".into(), path("root")], 'S'));
    for policy in ["other", "batch", "idle", "fifo", "rr"] {
        let n = if matches!(policy, "fifo" | "rr") { "3" } else { "0" };
        cases.push((vec!["sched".into(), policy.into(), n.into()], 'S'));
    }
    for (args, letter) in cases {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let Some(m) = Mktask::or_skip(&format!("state {}", args.join(" ")), &args) else {
            continue;
        };
        // The task may still be on its way into the sleep.
        let mut wait = Patience::new(Duration::from_secs(20));
        while state(m.pid()) != Some(letter) {
            assert!(!wait.is_over(), "{args:?} is in state {:?}", state(m.pid()));
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut all = m.list("tids");
        all.extend(m.list("children"));
        all.push(m.pid());
        let all: Vec<_> = all.into_iter().filter_map(|pid| Some((pid, began(pid)?))).collect();
        assert!(!all.is_empty(), "{args:?} has no task");
        drop(m);
        let mut wait = Patience::new(Duration::from_secs(20));
        while all.iter().any(|(pid, when)| began(*pid).as_ref() == Some(when)) {
            assert!(!wait.is_over(), "of {args:?}, one of {all:?} lives on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
#[should_panic(expected = "usage")]
fn a_state_that_fails_says_so() {
    let _ = Mktask::start(&["cwd"]);
}
