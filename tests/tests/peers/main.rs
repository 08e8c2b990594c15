//! Compares the command with the tools whose behaviour it follows: procps `ps` and `pmap`, lsof,
//! psmisc `pstree`.
//!
//! Some forty processes stand still in a pid namespace of their own ([`World`]). Each invocation
//! runs once with the peer and once with taskdiag, from the same shell with the same terminal and
//! the same process id, so that even the row of the tool itself is in the same place. Output and
//! exit code must be the same to the byte. Standard error must be empty for both or for neither,
//! but its words may differ. Intended differences are in [`cases::MEANT`], each with its reason,
//! and must exist: a difference that is gone must leave the list.

mod cases;
mod moving;
mod typed;
mod world;

use std::fmt::Write as _;
use std::time::Duration;

use taskdiag_tests::skip;
use world::{Ran, World};

/// How often a pair that differs is run again: someone else may have mapped the same library, which
/// changes Pss.
const TRIES: usize = 4;
/// The number of times that a case is run again after all others, a second apart. procps counts CPU
/// time in clock ticks and taskdiag in nanoseconds, so the CPU shares of young processes differ,
/// and those of older ones do not.
const LATER: usize = 12;

/// Rows of the tool itself are not compared: it is another program.
fn others_rows(case: &cases::Case, out: &str) -> String {
    let own = world::OWN_PID.to_string();
    let is_compared = |l: &&str| {
        !l.split(|c: char| !c.is_ascii_digit()).any(|w| w == own)
            && case.without.is_none_or(|text| !l.contains(text))
    };
    let mut before = "";
    let lines = out.split_inclusive('\n').filter(is_compared);
    let lines = lines.filter(|l| !is_offset_beside_size(std::mem::replace(&mut before, l), l));
    let mut user_ends = None;
    let lines = lines.map(without_state_of_udp);
    lines.map(|l| with_narrow_descriptors(&mut user_ends, l)).collect()
}

/// lsof before 4.99 has room for four digits in the column FD of its table, and newer ones have as
/// much as is needed. So blanks on both sides of the descriptor count as one.
fn with_narrow_descriptors(user_ends: &mut Option<usize>, line: String) -> String {
    if line.starts_with("COMMAND ") && line.contains(" FD ") {
        *user_ends = line.find("USER ").map(|at| at + "USER".len());
    }
    let Some((before, after)) = user_ends.and_then(|at| line.split_at_checked(at)) else {
        return line;
    };
    match after.trim_start().split_once(' ') {
        Some((descriptor, rest)) => format!("{before} {descriptor} {}", rest.trim_start()),
        None => line,
    }
}

/// lsof before 4.99 has no offset in the lines for programs where there is a size.
fn is_offset_beside_size(before: &str, line: &str) -> bool {
    let is_value = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    before.strip_prefix('s').is_some_and(is_value) && line.strip_prefix("o0").is_some()
}

/// lsof before 4.99 does not have the state of UDP sockets that are connected.
fn without_state_of_udp(line: &str) -> String {
    match line.contains(" UDP ") {
        true => format!("{}\n", line.trim_end().trim_end_matches(" (ESTABLISHED)")),
        false => line.to_owned(),
    }
}

/// The subject of a comparison.
fn compared(case: &cases::Case, ran: &Ran) -> (i32, bool, String) {
    (ran.code, ran.stderr.is_empty(), others_rows(case, &ran.stdout))
}

/// `None`: both tools print the same. Otherwise, both outputs.
fn difference(world: &mut World, case: &cases::Case, tries: usize) -> Option<String> {
    let mut theirs = world.run(&case.peer);
    let mut last = None;
    for _ in 0..=tries {
        let own = world.run(&case.ours);
        let b = compared(case, &own);
        let after = world.run(&case.peer);
        let (a, c) = (compared(case, &theirs), compared(case, &after));
        let is_between = || moving::is_between(&a.2, &b.2, &c.2);
        if b == a || b == c || [(a.0, a.1), (c.0, c.1)].contains(&(b.0, b.1)) && is_between() {
            return None;
        }
        last = Some(show(case, &after, &own));
        theirs = after;
    }
    last
}

/// The difference in a case that differed when all processes were younger.
fn later(world: &mut World, case: &cases::Case) -> Option<String> {
    let mut last = None;
    for _ in 0..LATER {
        std::thread::sleep(Duration::from_secs(1));
        last = difference(world, case, 1);
        last.as_ref()?;
    }
    last
}

/// The lines that only one of them has.
fn show(case: &cases::Case, theirs: &Ran, own: &Ran) -> String {
    let (a, b) = (others_rows(case, &theirs.stdout), others_rows(case, &own.stdout));
    let mut out = format!("{}\n{}\n", case.peer, case.ours);
    if theirs.code != own.code {
        let _ = writeln!(out, "  exit {} against {}", theirs.code, own.code);
    }
    for ran in [theirs, own] {
        let _ = writeln!(out, "  stderr: {}", ran.stderr.lines().next().unwrap_or(""));
    }
    let (a, b): (Vec<_>, Vec<_>) = (a.lines().collect(), b.lines().collect());
    let first = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let _ = writeln!(out, "  {} lines against {}; from line {first} on:", a.len(), b.len());
    for (sign, lines) in [('-', &a), ('+', &b)] {
        for line in lines.iter().skip(first).take(4) {
            let _ = writeln!(out, "  {sign}{line}");
        }
    }
    out
}

/// Is a reason for a difference about another version of procps than the installed one? Other
/// versions need not differ in the same way.
fn is_of_another_version(why: &str) -> bool {
    let Some(version) = why.split("procps ").nth(1).and_then(|w| w.split(' ').next()) else {
        return false;
    };
    if !version.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let said = std::process::Command::new("/usr/bin/ps").arg("--version").output();
    let said = String::from_utf8_lossy(&said.expect("ps runs").stdout).into_owned();
    !said.trim_end().ends_with(version)
}

/// Compare all cases of one tool, and panic with the differences.
fn compare(tool: &str) {
    compare_in(tool, |_| Ok(()));
}

/// Compares a tool after an addition to the processes; `Err` gives the reason if that is not
/// possible here.
fn compare_in(tool: &str, prepare: impl FnOnce(&mut World) -> Result<(), String>) {
    let made = World::new().and_then(|mut world| prepare(&mut world).map(|()| world));
    let mut world = match made {
        Ok(world) => world,
        Err(why) => return skip(&format!("peers::{tool}"), &why),
    };
    let cases = cases::of(tool);
    let (mut identical, mut meant, mut wrong) = (0, 0, String::new());
    let mut again = Vec::new();
    for case in &cases {
        let is_this = |(of, what, _): &(&str, &str, &str)| (*of, *what) == (tool, case.typed);
        let reason = cases::MEANT.iter().find(|m| is_this(m)).map(|m| m.2);
        match (difference(&mut world, case, TRIES), reason) {
            (None, None) => identical += 1,
            (Some(_), Some(_)) => meant += 1,
            (Some(_), None) => again.push(case),
            (None, Some(why)) if is_of_another_version(why) => identical += 1,
            (None, Some(_)) => {
                let _ =
                    writeln!(wrong, "{}: is the same, so it must leave the list MEANT", case.typed);
            }
        }
    }
    for case in again {
        match later(&mut world, case) {
            None => identical += 1,
            Some(what) => wrong += &what,
        }
    }
    let all = cases.len();
    println!("{tool}: {all} invocations, {identical} identical, {meant} differ on purpose");
    assert!(wrong.is_empty(), "{tool}: of {all} invocations {identical} are identical:\n{wrong}");
}

#[test]
fn as_procps_ps() {
    compare("ps");
}

#[test]
fn by_bpf_as_procps_ps() {
    if taskdiag_tests::engines().iter().any(|e| e.id().name() == "bpf") {
        compare("ps by bpf");
    } else {
        skip("peers::ps by bpf", "BPF cannot be used here");
    }
}

#[test]
fn by_another_user_as_procps_ps() {
    compare("ps by another user");
}

#[test]
fn by_bpf_as_procps_pmap() {
    if taskdiag_tests::engines().iter().any(|e| e.id().name() == "bpf") {
        compare("pmap by bpf");
    } else {
        skip("peers::pmap by bpf", "BPF cannot be used here");
    }
}

#[test]
fn threads_as_procps_ps() {
    compare_in("ps of threads", |world| {
        let facts = world.add("dead-threads 3000", "burn");
        facts.then_some(()).ok_or_else(|| String::from("the threads do not start"))
    });
}

/// Processes of user 4243 with odd names, and without arguments, and one of a user with a wide
/// number.
fn odd_names(world: &mut World) -> Result<(), String> {
    let start = "run bash -c 'cd $SCRATCH && chmod 755 . || exit 1; \
         as() { setpriv --reuid $1 --regid 4243 --clear-groups \"${@:2}\" >/dev/null 2>&1 & }; number=7041; \
         while IFS= read -r -d \"\" name; do \
         cp /bin/sleep \"$name\"; chmod 755 \"$name\"; as 4243 \"./$name\" $number; number=$((number + 1)); \
         done <names; \
         as 1999999999 sleep 7060; \
         (sleep 100000 | exec setpriv --reuid 4243 --clear-groups bash -c \"exec -a \\\"\\\" cat\") >/dev/null 2>&1 & \
         (sleep 100000 | exec setpriv --reuid 4243 --clear-groups sh -c \"read x; true\" a \"\" \"\") >/dev/null 2>&1 & \
         for i in $(seq 600); do [ $(pgrep -cu 4243 -x \"cat|sh\") = 2 ] && exit 0; sleep 0.1; done; exit 1'";
    let names: &[&str] = &[
        "line\ntw\x1bab",
        "a\u{200d}b\u{200c}c",
        "abcdefg\u{e9}xyz",
        "1234567\u{1f600}",
        "\u{3000}\u{4e00}\u{4e00}\u{4e00}\u{4e00}",
        "back\\sl\tash",
    ];
    let mut bytes: Vec<u8> = names.iter().flat_map(|n| [n.as_bytes(), b"\0"].concat()).collect();
    bytes.extend_from_slice(b"\xff\xfe.\0abcdefg\xc3\0");
    world.write_file("names", &bytes);
    let ran = world.run(start);
    (ran.code == 0).then_some(()).ok_or_else(|| format!("they do not start: {}", ran.stderr))
}

#[test]
fn odd_names_as_procps_ps() {
    compare_in("ps of odd names", odd_names);
}

#[test]
fn odd_names_as_procps_pmap() {
    compare_in("pmap of odd names", odd_names);
}

#[test]
fn nodes_as_procps_ps() {
    let said = std::process::Command::new("ps").args(["-p", "1", "-o", "numa="]).output();
    match said.map(|o| String::from_utf8_lossy(&o.stdout).trim().parse::<u32>()) {
        Ok(Ok(_)) => compare("ps of nodes"),
        _ => skip("peers::ps of nodes", "procps knows no node here, for which it needs libnuma"),
    }
}

#[test]
fn a_kernel_thread_as_procps_ps() {
    let name = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name != "kthreadd\n" || !std::path::Path::new("/proc/2/autogroup").exists() {
        let why = "process 2 is no thread of the kernel here, or the kernel has no autogroups";
        return skip("peers::ps of a kernel thread", why);
    }
    compare("ps of a kernel thread");
}

#[test]
fn taskdiag_ps_with_words_of_procps() {
    compare("taskdiag ps");
}

#[test]
fn as_psmisc_pstree() {
    compare_in("pstree", |world| {
        let facts = world.add("named-family", "family");
        facts.then_some(()).ok_or_else(|| String::from("the threads do not start"))
    });
}

#[test]
fn files_as_lsof_has_them() {
    compare("lsof");
}

#[test]
fn as_lsof() {
    compare_in("lsof table", |world| {
        let files = world.add("files .", "files");
        files.then_some(()).ok_or_else(|| String::from("no process has files of all types here"))
    });
}

#[test]
fn as_procps_pmap() {
    compare("pmap");
}
