//! Runs every example of the library: each ends by itself, and prints something.

use std::path::Path;
use std::process::Command;

#[test]
fn every_example_runs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This test is in PROFILE/deps, and the examples are in PROFILE/examples.
    let me = std::env::current_exe().expect("it has a path");
    let built = me.parent().and_then(Path::parent).expect("a profile").join("examples");
    // `cargo test` has built them, unless it was asked for this test alone. Then the profile is the
    // test profile, whose directory is that of the development profile.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    if built.ends_with("debug/examples") {
        let build = Command::new(cargo)
            .args(["build", "--quiet", "--package", "taskdiag", "--examples"])
            .arg("--target-dir")
            .arg(built.ancestors().nth(2).expect("the directory of all profiles"))
            .current_dir(here)
            .status();
        assert!(build.expect("cargo is there").success(), "the examples do not compile");
    }
    let mut count = 0;
    for entry in std::fs::read_dir(here.join("examples")).expect("they are there") {
        let source = entry.expect("a file").path();
        let name = source.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
        let program = built.join(&name);
        let saved = std::env::temp_dir().join(format!("taskdiag-example-{}", std::process::id()));
        let mut run = Command::new(&program);
        if name == "save" {
            run.arg(&saved);
        }
        let ran = run.output().expect("it runs");
        let _ = std::fs::remove_file(&saved);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.is_empty(), "{name}: {} {said}", ran.status);
        assert!(!ran.stdout.is_empty(), "{name} prints nothing");
        count += 1;
    }
    assert!(count >= 12, "{count} examples");
}
