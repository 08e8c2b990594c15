//! Tells the crate which directory its BPF programs are included from. It is `skel`, or, in a test
//! build, the directory that `TASKDIAG_SKEL_DIR` names. The choice is made when the crate is built
//! and never when it runs, because a program from elsewhere would run in the kernel.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=TASKDIAG_SKEL_DIR");
    println!("cargo::rerun-if-changed=build.rs");
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dir = match std::env::var_os("TASKDIAG_SKEL_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => here.join("skel"),
    };
    assert!(
        dir.is_absolute() && dir.join("lite.lskel").exists(),
        "{} has no BPF programs: unset TASKDIAG_SKEL_DIR, or make them there with bpf/gen --out",
        dir.display()
    );
    println!("cargo::rustc-env=TASKDIAG_SKELETONS={}", dir.display());
}
