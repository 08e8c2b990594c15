//! `taskdiag run`. Programs with the drop-in itself are in the test `dropin` of the package of
//! tests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::{parts, taskdiag};

/// Runs a command with a file in the place of the library. An empty file is enough, because the
/// program does not use libproc2; the dynamic linker only complains about it.
fn run(library: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = taskdiag();
    command.arg("run").args(args).env("TASKDIAG_PROCPS_LIB", library);
    parts(&command.output().expect("the program runs"))
}

#[test]
fn the_program_takes_the_place_of_taskdiag() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let library = dir.path().join("lib.so");
    std::fs::write(&library, "").expect("written");
    for args in [
        &["sh", "-c", "echo $0 $LD_PRELOAD; exit 7", "a"][..],
        &["--", "sh", "-c", "echo a $LD_PRELOAD; exit 7"],
    ] {
        let (code, out, _) = run(&library, args);
        assert_eq!((code, out), (7, format!("a {}\n", library.display())), "{args:?}");
    }
    // A closed pipe ends it, and the program keeps its own options.
    let (code, out, _) = run(&library, &["sh", "-c", "sh -c 'kill -PIPE $$; echo lives'; echo $?"]);
    assert_eq!((code, &*out), (0, "141\n"));
    let (code, out, _) = run(&library, &["echo", "--help", "-n", "--"]);
    assert_eq!((code, &*out), (0, "--help -n --\n"));
}

#[test]
fn refusals_say_why() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let library = dir.path().join("lib.so");
    let (code, _, err) = run(&library, &["true"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("there is no such file"), "{err}");
    std::fs::write(&library, "").expect("written");
    let (code, _, err) = run(&library, &["no-such-program-anywhere"]);
    assert_eq!((code, err.contains("there is no program")), (127, true), "{err}");
    let odd = dir.path().join("a b.so");
    std::fs::write(&odd, "").expect("written");
    let (code, _, err) = run(&odd, &["true"]);
    assert_eq!((code, err.contains("blanks")), (4, true), "{err}");
    let (code, _, err) = run(&library, &[]);
    assert_eq!(code, 2, "{err}");
    // A setuid program of somebody else.
    let setuid = dir.path().join("setuid");
    std::fs::copy("/bin/true", &setuid).expect("copied");
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&setuid, Some(12), None).expect("root may");
        std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755))
            .expect("root may");
        let (code, _, err) = run(&library, &[setuid.to_str().expect("text")]);
        assert_eq!((code, err.contains("setuid")), (4, true), "{err}");
    }
}

#[test]
fn a_missing_library_is_reported_with_its_usual_places() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let copy = dir.path().join("bin").join("taskdiag");
    std::fs::create_dir(dir.path().join("bin")).expect("a new directory");
    // Another process makes the copy, so that no other test's child has it open for writing when it
    // starts.
    let status =
        std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_taskdiag")).arg(&copy).status();
    assert!(status.expect("cp runs").success());
    let out = std::process::Command::new(&copy).args(["run", "true"]).output().expect("it runs");
    let (code, _, err) = parts(&out);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("lib/taskdiag/libtaskdiag-procps.so"), "{err}");
}
