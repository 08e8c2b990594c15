//! The command beside the tools whose habits it takes over: procps `ps` and `pmap`, lsof, psmisc `pstree`.
//!
//! Some forty processes stand still in a pid namespace of their own ([`World`]). Each invocation runs once
//! with the peer and once with taskdiag, from the same shell with the same terminal, and with the same
//! process id, so that even the row of the tool itself is in the same place. Output and exit code must be
//! the same to the byte; whether something is said on standard error must be, too, but not its words. What
//! differs on purpose is in [`cases::MEANT`], each with its reason, and must differ: a difference that is
//! gone must leave the list.

mod cases;
mod world;

use std::fmt::Write as _;
use std::time::Duration;

use taskdiag_tests::skip;
use world::{Ran, World};

/// How often a pair that differs is run again: a clock may have ticked between the two, or someone else mapped the
/// same library, which changes Pss.
const TRIES: usize = 4;
/// How often, a second apart, it is run again after all others: procps counts CPU time in clock ticks, taskdiag
/// in nanoseconds, which shows in the share of the CPU that young processes used, and no longer when they are
/// older.
const LATER: usize = 12;

/// Rows of the tool itself are not compared: it is another program.
fn others_rows(case: &cases::Case, out: &str) -> String {
    let own = world::OWN_PID.to_string();
    let is_compared = |l: &&str| {
        !l.split(|c: char| !c.is_ascii_digit()).any(|w| w == own)
            && case.without.is_none_or(|text| !l.contains(text))
    };
    out.split_inclusive('\n').filter(is_compared).collect()
}

/// What a comparison looks at.
fn compared(case: &cases::Case, ran: &Ran) -> (i32, bool, String) {
    (ran.code, ran.stderr.is_empty(), others_rows(case, &ran.stdout))
}

/// `None`: the same; else what each says.
fn difference(world: &mut World, case: &cases::Case, tries: usize) -> Option<String> {
    let mut last = (world.run(&case.peer), world.run(&case.ours));
    for _ in 0..tries {
        if compared(case, &last.0) == compared(case, &last.1) {
            return None;
        }
        last.0 = world.run(&case.peer);
        if compared(case, &last.0) == compared(case, &last.1) {
            return None;
        }
        last.1 = world.run(&case.ours);
    }
    Some(show(case, &last.0, &last.1))
}

/// The same for a case that differed when all processes were younger.
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

/// Compare all cases of one tool, and panic with what differs.
fn compare(tool: &str) {
    let mut world = match World::new() {
        Ok(world) => world,
        Err(why) => return skip(&format!("peers::{tool}"), &why),
    };
    let cases = cases::of(tool);
    let (mut identical, mut meant, mut wrong) = (0, 0, String::new());
    let mut again = Vec::new();
    for case in &cases {
        let is_this = |(of, what, _): &(&str, &str, &str)| (*of, *what) == (tool, case.typed);
        let is_meant = cases::MEANT.iter().any(is_this);
        match (difference(&mut world, case, TRIES), is_meant) {
            (None, false) => identical += 1,
            (Some(_), true) => meant += 1,
            (Some(_), false) => again.push(case),
            (None, true) => {
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
fn taskdiag_ps_with_words_of_procps() {
    compare("taskdiag ps");
}

#[test]
fn as_psmisc_pstree() {
    compare("pstree");
}

#[test]
fn files_as_lsof_has_them() {
    compare("lsof");
}

#[test]
fn as_procps_pmap() {
    compare("pmap");
}
