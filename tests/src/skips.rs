//! Reports skips. A test that cannot run here reports that visibly: on stderr, past libtest's
//! capture, and in `target/taskdiag-skips.txt`, which `make test` prints at its end.
//! `TASKDIAG_REQUIRE=procfs,bpf,...` turns the absence of an engine into a failure.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file in which skips are collected. Each appends one line.
pub fn file() -> PathBuf {
    target_dir().join("taskdiag-skips.txt")
}

/// The directory that cargo builds into.
pub fn target_dir() -> PathBuf {
    // target/PROFILE/deps/TEST-HASH
    let exe = std::env::current_exe().expect("a test has an executable");
    exe.ancestors().nth(3).unwrap_or_else(|| Path::new("target")).to_path_buf()
}

/// Reports that a test, or a part of it, does not run here, and why.
pub fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    // The capture of a passing test would swallow print! and eprint!.
    let _ = std::io::stderr().write_all(format!("SKIPPED {line}").as_bytes());
    let file = OpenOptions::new().append(true).create(true).open(file());
    let _ = file.and_then(|mut f| f.write_all(line.as_bytes()));
}

/// Whether this engine must be there (`TASKDIAG_REQUIRE`).
pub fn is_required(engine: &str) -> bool {
    let list = std::env::var("TASKDIAG_REQUIRE").unwrap_or_default();
    list.split(',').any(|e| e.trim() == engine)
}
