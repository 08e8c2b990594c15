//! A test that cannot run here says so where nobody can miss it: on stderr, past libtest's
//! capture, and in `target/taskdiag-skips.txt`, which `make test` prints at its end.
//! `TASKDIAG_REQUIRE=procfs,bpf,...` turns the absence of an engine into a failure.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where skips are collected; one line each, appended.
pub fn file() -> PathBuf {
    target_dir().join("taskdiag-skips.txt")
}

/// The directory that cargo builds into.
pub fn target_dir() -> PathBuf {
    // target/PROFILE/deps/TEST-HASH
    let exe = std::env::current_exe().expect("a test has an executable");
    exe.ancestors().nth(3).unwrap_or_else(|| Path::new("target")).to_path_buf()
}

/// Say that a test, or a part of it, does not run here and why.
pub fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    // print! and eprint! would be swallowed by the capture of a passing test.
    let _ = std::io::stderr().write_all(format!("SKIPPED {line}").as_bytes());
    let file = OpenOptions::new().append(true).create(true).open(file());
    let _ = file.and_then(|mut f| f.write_all(line.as_bytes()));
}

/// Must this engine be there (`TASKDIAG_REQUIRE`)?
pub fn is_required(engine: &str) -> bool {
    let list = std::env::var("TASKDIAG_REQUIRE").unwrap_or_default();
    list.split(',').any(|e| e.trim() == engine)
}
