//! Compiles `mktask`, the C helper that makes odd tasks, with the system's C compiler. It is in C,
//! because it must control its stack, its threads and its arguments to the byte.

use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 16] = [
    "mktask.c", "life.c", "name.c", "who.c", "use.c", "held.c", "have.c", "link.c", "lock.c",
    "odd.c", "walk.c", "walkfd.c", "wait.c", "stuck.c", "stack.c", "storm.c",
];

fn main() {
    let dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo")).join("mktask");
    let exe = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo")).join("mktask");
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&cc)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"])
        .args(["-Wno-unused-parameter", "-pthread", "-o"])
        .arg(&exe)
        .args(SOURCES.map(|s| dir.join(s)))
        .status()
        .unwrap_or_else(|e| panic!("no C compiler {cc:?} ({e}): install gcc, or set CC"));
    assert!(status.success(), "mktask does not compile");
    println!("cargo:rustc-env=MKTASK={}", exe.display());
    println!("cargo:rerun-if-env-changed=CC");
    println!("cargo:rerun-if-changed=mktask");
}
