//! Counters of this library in a process, printed at its end if `TASKDIAG_STATS=1` is in the
//! environment.
//!
//! A program that has more rights than its caller does not look at the environment.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use taskdiag::Snapshot;

use crate::item::Item;
use crate::memory;
use crate::real::real;

/// What was counted.
#[derive(Debug, Default)]
struct Counts {
    /// Calls that were answered here.
    answered: u64,
    rows: u64,
    /// The engines, their groups, and how often they answered.
    engines: BTreeMap<String, u64>,
    /// Items from the real library, with the number of rows.
    old: BTreeMap<&'static str, u64>,
    /// Rows that the real library made, because a value was missing.
    whole_rows: u64,
    /// Calls that were passed to the real library, by the reason.
    passed: BTreeMap<String, u64>,
}

static COUNTS: Mutex<Option<Counts>> = Mutex::new(None);

/// Should calls be counted?
fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        // SAFETY: this reads a number that the kernel gave to the process at its start.
        let is_elevated = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
        let is_set = !is_elevated && std::env::var_os("TASKDIAG_STATS").is_some_and(|v| v == "1");
        if is_set {
            // SAFETY: a function without arguments, which this library has as long as the process
            // lives.
            unsafe { libc::atexit(print) };
        }
        is_set
    })
}

fn count(f: impl FnOnce(&mut Counts)) {
    if wanted() {
        f(COUNTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(Counts::default));
    }
}

/// A call that was answered from this.
pub fn answered(snapshot: &Snapshot) {
    count(|c| {
        c.answered += 1;
        c.rows += snapshot.tasks().len() as u64;
        for served in snapshot.served() {
            let what = format!("{} ({}), because {}", served.engine, served.groups, served.why);
            *c.engines.entry(what).or_default() += 1;
        }
    });
}

/// Counts the tasks of a further part of an answer.
pub fn continued(snapshot: &Snapshot) {
    count(|c| c.rows += snapshot.tasks().len() as u64);
}

/// An item that was got from the real library.
pub fn old(item: Item, rows: usize) {
    count(|c| *c.old.entry(item.name()).or_default() += rows as u64);
}

/// A row that the real library made.
pub fn whole_row() {
    count(|c| c.whole_rows += 1);
}

/// A call that was passed to the real library.
pub fn passed(why: &str) {
    count(|c| *c.passed.entry(why.to_owned()).or_default() += 1);
}

extern "C" fn print() {
    let _host = memory::host();
    let Some(c) = COUNTS.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let mut out = String::new();
    let mut say = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "taskdiag-procps: {line}");
    };
    if let Some(real) = real() {
        let known = real.version.map_or("which is not known", |_| "which is known");
        say(format_args!("in front of {}, {known}", real.path.display()));
    }
    say(format_args!("calls answered: {}, with {} rows", c.answered, c.rows));
    for (engine, n) in &c.engines {
        say(format_args!("answers: {n} from {engine}"));
    }
    for (item, rows) in &c.old {
        say(format_args!("item {item} from the real library, in {rows} rows"));
    }
    if c.whole_rows > 0 {
        say(format_args!(
            "{} rows from the real library, because a value was missing",
            c.whole_rows
        ));
    }
    for (why, n) in &c.passed {
        say(format_args!("{n} calls passed to the real library: {why}"));
    }
    // SAFETY: the bytes of a string. Standard error may be closed, and then the output is not
    // wanted.
    unsafe { libc::write(2, out.as_ptr().cast(), out.len()) };
}
