//! The `taskdiag` command: arguments in, text out. Everything that knows about tasks is in the
//! library; everything here is made from its field table and this crate's option tables.

mod answer;
mod args;
mod by;
mod columns;
mod commands;
mod exit;
mod files;
mod interrupt;
mod maps;
mod memory;
mod nearest;
mod order;
mod output;
mod plan;
mod progress;
mod ps;
mod select;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    few_memory_calls();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let result = match argv.get(1).and_then(|a| a.to_str()) {
        // The main job does not pay for building the other commands' options.
        Some("ps") => args::ps::parse(argv[2..].to_vec()).and_then(|a| ps::run(&a)),
        Some("files") => args::files::parse(&argv[2..]).and_then(|a| files::run(&a)),
        _ => args::parse(argv).and_then(|c| commands::run(&c)),
    };
    exit::report(result)
}

/// Take memory from the system in large steps and keep it: a command soon ends, and each of its
/// buffers would be mapped and unmapped for itself. What is not used takes no memory. Before there
/// are threads.
fn few_memory_calls() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in [
        (libc::M_TOP_PAD, 1 << 20),
        (libc::M_TRIM_THRESHOLD, 1 << 26),
        (libc::M_MMAP_THRESHOLD, 1 << 20),
    ] {
        // SAFETY: sets a number in the allocator; one that it refuses changes nothing.
        unsafe { libc::mallopt(what, bytes) };
    }
}
