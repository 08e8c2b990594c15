//! The drop-in for libproc2: running one program with it, and installing it for all programs.
//!
//! The library itself is `taskdiag-procps`, a file that is loaded into other programs. This program
//! does not link to it; it only tells the dynamic linker where the library is.

mod elf;
pub mod machine;
pub mod run;
mod stub;

use std::path::{Path, PathBuf};

use crate::exit::Exit;

/// The environment variable with the path of the library, if it is not in the usual place.
const ENV: &str = "TASKDIAG_PROCPS_LIB";
/// The file names of the library when installed and in cargo's target directory.
const NAMES: [&str; 2] = ["libtaskdiag-procps.so", "libtaskdiag_procps.so"];

/// The library: that of [`ENV`], or else the first one in the directory of this program or in
/// `../lib/taskdiag`.
pub fn library() -> Result<PathBuf, Exit> {
    if let Some(path) = std::env::var_os(ENV).filter(|p| !p.is_empty()).map(PathBuf::from) {
        return match path.is_file() {
            true => absolute(&path),
            false => Err(Exit::Usage(format!("{ENV}={}: there is no such file", path.display()))),
        };
    }
    let exe = std::env::current_exe().map_err(|e| Exit::Failed(unknown(&e)))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let beside = NAMES.map(|name| dir.join(name));
    let installed = dir.with_file_name("lib").join("taskdiag").join(NAMES[0]);
    let mut places = beside.into_iter().chain([installed.clone()]);
    match places.find(|p| p.is_file()) {
        Some(path) => absolute(&path),
        None => Err(Exit::Failed(format!(
            "the library is not there: neither {} next to this program nor {}; Debian's package \
             libtaskdiag-procps or 'make install' puts it there, or {ENV} names it",
            NAMES[0],
            installed.display()
        ))),
    }
}

/// The reason why the library cannot be searched for, or `None`. Only a mounted `/proc` or [`ENV`]
/// helps.
pub fn hindrance() -> Option<String> {
    match std::env::var_os(ENV).is_some_and(|p| !p.is_empty()) {
        true => None,
        false => std::env::current_exe().err().map(|e| unknown(&e)),
    }
}

fn unknown(e: &std::io::Error) -> String {
    format!(
        "the library is in the directory of this program, which cannot be found without /proc ({e}): set {ENV} to its path"
    )
}

fn absolute(path: &Path) -> Result<PathBuf, Exit> {
    path.canonicalize().map_err(|e| Exit::Failed(format!("{}: {e}", path.display())))
}
