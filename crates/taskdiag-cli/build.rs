//! Links the library that walks up the stack for the report of a panic (libgcc_eh) statically, if
//! the compiler has it as an archive. Finding and mapping the shared library takes a tenth of the
//! start of a short command.

use std::path::Path;
use std::process::Command;
use std::{env, str};

const ARCHIVE: &str = "libgcc_eh.a";

/// Names the commit for `taskdiag --version`. Builds for tests do not name it, because they would
/// compile everything again after each commit. A package has no repository, so its maintainer may
/// set `TASKDIAG_COMMIT`.
fn name_commit() {
    println!("cargo:rerun-if-env-changed=TASKDIAG_COMMIT");
    let git = |args: &[&str]| {
        let said = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
        Some(str::from_utf8(&said.stdout).ok()?.trim().to_owned()).filter(|s| !s.is_empty())
    };
    let given = env::var("TASKDIAG_COMMIT").ok().filter(|c| !c.is_empty());
    let commit = given.or_else(|| {
        let is_release = env::var("PROFILE").is_ok_and(|p| p == "release");
        // A package that is unpacked in another repository does not belong to that repository.
        let is_ours = Path::new("../../uapi/task_diag.h").exists();
        let commit =
            (is_release && is_ours).then(|| git(&["rev-parse", "--short=12", "HEAD"]))??;
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo:rerun-if-changed={log}");
        }
        Some(commit)
    });
    let commit = commit.unwrap_or_else(|| String::from("not known"));
    println!("cargo:rustc-env=TASKDIAG_COMMIT={commit}");
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    name_commit();
    let var = |name| env::var(name).unwrap_or_default();
    // A build for an older C library names the archive that goes with it (packaging/build).
    println!("cargo:rerun-if-env-changed=TASKDIAG_LIBGCC_EH");
    let native = var("HOST") == var("TARGET");
    let archive = match var("TASKDIAG_LIBGCC_EH") {
        _ if var("CARGO_CFG_TARGET_ENV") != "gnu" => return,
        given if !given.is_empty() => given,
        _ if !native => return,
        _ => match Command::new("cc").arg(format!("-print-file-name={ARCHIVE}")).output() {
            // A compiler without the archive prints the bare name.
            Ok(said) => str::from_utf8(&said.stdout).unwrap_or_default().trim().to_owned(),
            Err(_) => return,
        },
    };
    let path = Path::new(&archive);
    if let (true, Some(directory)) = (path.is_absolute() && path.exists(), path.parent()) {
        println!("cargo:rustc-link-search=native={}", directory.display());
        println!("cargo:rustc-link-lib=static=gcc_eh");
    }
}
