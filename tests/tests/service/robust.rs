//! No client can keep the service from serving others, and its end harms no client.

use std::collections::HashMap;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use taskdiag_tests::busy::Patience;
use taskdiag_tests::memcg::{Memcg, memory_max};
use taskdiag_tests::{Mktask, skip};

use crate::daemon::{Daemon, NOBODY, text};
use crate::helper::{ARGS, WHAT};

fn start(daemon: &Daemon, what: &str, uid: u32) -> Child {
    let user = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let before = ["setpriv", &user[0], &user[1], "--clear-groups"];
    let mut command = daemon.command(&before, "helper", ARGS);
    command.env(WHAT, what).env("TASKDIAG_TEST_SECONDS", "8");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("setpriv runs")
}

/// Kilobytes of memory of the service.
fn rss(pid: u32) -> u64 {
    kilobytes(pid, "VmRSS:")
}

/// The largest amount of memory that it had.
fn peak(pid: u32) -> u64 {
    kilobytes(pid, "VmHWM:")
}

fn kilobytes(pid: u32, of: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|l| l.strip_prefix(of)).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("we are root").count()
}

/// Tests that keep a service busy run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 9 users with 56 well-behaved clients each, and 12 with 40 hostile ones each, which keep
/// reconnecting.
#[test]
fn hostile_clients_keep_no_answer_from_the_others() {
    let _alone = alone();
    let Some(mut daemon) = Daemon::start("hostile_clients_keep_no_answer_from_the_others") else {
        return;
    };
    let files = open_files(daemon.pid());
    let hostile: Vec<Child> = (0..12).map(|n| start(&daemon, "hostile", 50_000 + n)).collect();
    let good: Vec<Child> = (0..9).map(|n| start(&daemon, "good", 51_000 + n)).collect();
    let (mut answers, mut refusals, mut why) = (0u64, 0u64, String::new());
    for child in good {
        let out = child.wait_with_output().expect("it ends");
        let said = text(&out.stdout);
        assert!(out.status.success(), "{said} {}", text(&out.stderr));
        let line = said.lines().find_map(|l| l.split_once("answers ")).expect("it counts").1;
        let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        answers += numbers[0];
        refusals += numbers[1];
        why.extend(said.lines().filter(|l| l.contains("refusal:")).map(|l| format!("{l}\n")));
    }
    for child in hostile {
        let out = child.wait_with_output().expect("it ends");
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
    assert!(daemon.is_running(), "the service has ended");
    println!("{answers} answers, {refusals} refusals\n{why}");
    // A refused client reads /proc. On a crowded machine some have to, but most are answered.
    assert!(
        answers > 9 * 56 && answers > 3 * refusals,
        "{answers} answers, {refusals} refusals\n{why}"
    );
    let memory = rss(daemon.pid());
    assert!(memory < 400 << 10, "{memory} KiB");
    // Objects that clients have left behind are removed.
    let mut patience = Patience::new(Duration::from_secs(30));
    // A program that is loaded has some descriptors.
    while open_files(daemon.pid()) > files + 120 {
        assert!(!patience.is_over(), "{} open files", open_files(daemon.pid()));
        std::thread::sleep(Duration::from_millis(100));
    }
    let out = daemon.taskdiag(NOBODY, &["ps", "-e", "--engine", "service", "-o", "pid"]);
    assert!(text(&out.stdout).lines().count() > 3, "{}", text(&out.stderr));
}

/// A user has so many processes with long arguments that most of them are cut in an answer. The
/// service shows the cut ones once it has read them, so clients do not have to read /proc each
/// time.
#[test]
fn arguments_that_are_cut_in_a_crowd_are_shown() {
    let _alone = alone();
    let test = "arguments_that_are_cut_in_a_crowd_are_shown";
    let Some(daemon) = Daemon::start(test) else { return };
    let Some(m) = Mktask::or_skip(test, &["crowd", "8192", "2500", "54323"]) else { return };
    let crowd: Vec<String> = m.list("crowd").iter().map(u32::to_string).collect();
    assert_eq!(crowd.len(), 2500);
    let mut patience = Patience::new(Duration::from_secs(40));
    let args = ["ps", "-e", "--engine", "service", "-o", "pid,args", "--csv"];
    loop {
        let out = daemon.taskdiag(NOBODY, &args);
        let said = text(&out.stdout);
        let rows = said.lines().filter_map(|l| l.split_once(','));
        let shown: HashMap<&str, usize> =
            rows.map(|(pid, args)| (pid, args.trim().len())).collect();
        let len = |pid: &String| shown.get(pid.as_str()).copied().unwrap_or(0);
        let whole = crowd.iter().filter(|pid| len(pid) > 8000).count();
        let cut = crowd.iter().filter(|pid| (250..4200).contains(&len(pid))).count();
        if whole + cut == crowd.len() {
            assert!(whole > 300 && cut > 500, "{whole} whole, {cut} cut");
            break;
        }
        let err = text(&out.stderr);
        assert!(!patience.is_over(), "{} shown, {whole} whole, {cut} cut\n{err}", shown.len());
        // Wait until the account of this user is full, and the service retries texts that it could
        // not read.
        std::thread::sleep(Duration::from_millis(2200));
    }
    let memory = peak(daemon.pid());
    assert!(memory < 96 << 10, "{memory} KiB");
}

/// The service ends at every moment, and every client has a whole answer.
#[test]
fn a_killed_service_leaves_no_client_without_an_answer() {
    let Some(mut daemon) = Daemon::start("a_killed_service_leaves_no_client_without_an_answer")
    else {
        return;
    };
    let me = std::process::id().to_string();
    for round in 0..6 {
        let ps = |_| {
            let mut ps =
                daemon.command(NOBODY, "taskdiag", &["ps", "-e", "-o", "pid,args", "--no-headers"]);
            ps.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
        };
        let clients: Vec<Child> = (0..6).map(ps).collect();
        std::thread::sleep(Duration::from_millis(3 * round * round));
        daemon.kill();
        for client in clients {
            let out = client.wait_with_output().expect("it ends");
            let said = text(&out.stdout);
            // Some process of this machine may make readers of its arguments wait, or have very
            // many, which is exit 3.
            let err = text(&out.stderr);
            let is_whole = match out.status.code() {
                Some(0) => true,
                Some(3) => {
                    err.lines().all(|l| l.contains("would have blocked") || l.contains("cut short"))
                }
                _ => false,
            };
            assert!(is_whole, "{said} {err}");
            let has = |pid: &str| said.lines().any(|l| l.split_whitespace().next() == Some(pid));
            for pid in [me.as_str(), "1"] {
                let rows = said.lines().count();
                let how = out.status;
                assert!(has(pid), "round {round}: {pid} of {rows} is missing, {how} {err}\n{said}");
            }
        }
        daemon.restart();
    }
    let mut patience = Patience::new(Duration::from_secs(20));
    while !daemon.taskdiag(NOBODY, &["ps", "--engine", "service", "-o", "pid"]).status.success() {
        // Process 1 may be hidden from BPF here, which is exit 3.
        let out = daemon.taskdiag(NOBODY, &["ps", "--engine", "service", "-o", "pid"]);
        if out.status.code() == Some(3) {
            break;
        }
        assert!(!patience.is_over(), "{}", text(&out.stderr));
    }
}

/// The brake of the machine and the environment turn the service off as any other engine.
#[test]
fn the_brake_and_the_environment_apply() {
    let Some(daemon) = Daemon::start("the_brake_and_the_environment_apply") else { return };
    let mut command = daemon.command(NOBODY, "taskdiag", &["ps", "-e", "--stats", "-o", "pid"]);
    let out = command.env("TASKDIAG_ENGINE", "procfs").output().expect("it runs");
    assert!(text(&out.stderr).contains("engine procfs"), "{}", text(&out.stderr));
    let script = "mount --make-rprivate / && mount -t tmpfs none /etc && echo engine = procfs >/etc/taskdiag.conf && exec \"$@\"";
    let before: Vec<&str> = ["unshare", "--mount", "sh", "-c", script, "sh"]
        .into_iter()
        .chain(NOBODY.iter().copied())
        .collect();
    let out = daemon.taskdiag(&before, &["ps", "-e", "--stats", "-o", "pid"]);
    assert!(text(&out.stderr).contains("engine procfs"), "{}", text(&out.stderr));
    let out = daemon.taskdiag(&before, &["ps", "--engine", "service"]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
}

/// The caller gets an answer although another user has 200 processes with 6 MB of arguments each.
#[test]
fn the_service_lives_in_the_memory_of_its_unit() {
    let test = "the_service_lives_in_the_memory_of_its_unit";
    // The group can be removed only when the service has ended, so it is declared first.
    let group = match Memcg::new(memory_max("taskdiagd.service")) {
        Ok(group) => group,
        Err(why) => return skip(test, &why),
    };
    let Some(mut daemon) = Daemon::start(test) else { return };
    group.take(daemon.pid());
    let Some(_crowd) = Mktask::or_skip(test, &["crowd", "6000000", "200", "54321"]) else { return };
    for args in [
        &["ps", "-e", "-o", "pid,args", "--engine", "service"][..],
        &["ps", "-e", "-L", "-o", "pid,stat", "--engine", "service"],
        &["ps", "-e", "-o", "pid,args,stat,rss", "--engine", "service"],
    ] {
        let out = daemon.taskdiag(NOBODY, args);
        let lines = text(&out.stdout).lines().count();
        assert!(lines > 200, "{args:?}: {lines} lines, {}", text(&out.stderr));
    }
    assert!(daemon.is_running() && group.killed() == 0, "the service was killed");
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
    let status = status.expect("it lives");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("it has memory");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    println!("taskdiagd: {peak} KiB");
    assert!(peak <= 128 << 10, "{peak} KiB");
}
