//! Says where the BPF programs are that the library includes: in `bpf/skel`, or, for tests, in the directory that
//! `TASKDIAG_SKEL_DIR` names while it is built. Never when it runs: programs from elsewhere would run in the kernel.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=TASKDIAG_SKEL_DIR");
    println!("cargo::rerun-if-changed=build.rs");
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dir = match std::env::var_os("TASKDIAG_SKEL_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => here.join("../../bpf/skel"),
    };
    assert!(
        dir.is_absolute() && dir.join("lite.lskel").exists(),
        "{} has no BPF programs: unset TASKDIAG_SKEL_DIR, or make them there with bpf/gen --out",
        dir.display()
    );
    println!("cargo::rustc-env=TASKDIAG_SKELETONS={}", dir.display());
}
