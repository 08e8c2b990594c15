//! Compares the Python package: its tables with the commands, and `taskdiag.psutil` with psutil
//! (`python.py`).

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use taskdiag_tests::skip;
use taskdiag_tests::skips::target_dir;

use crate::Found;
use crate::faces::{Rows, Shown, add, names};

/// How the differences that are found here begin.
pub const FACES: [&str; 2] = ["snapshot", "python"];

/// A Python that has the package and psutil. `TASKDIAG_WALK_PYTHON` names it, and `make python`
/// makes one.
fn python() -> Option<&'static PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let given = std::env::var_os("TASKDIAG_WALK_PYTHON").map(PathBuf::from);
        let path = given.unwrap_or_else(|| target_dir().join("python-venv/bin/python"));
        let ran = Command::new(&path).args(["-c", "import taskdiag, psutil"]).output();
        if ran.is_ok_and(|ran| ran.status.success()) {
            return Some(path);
        }
        skip(
            "Python in the random walk",
            &format!("{} has no taskdiag and psutil: 'make python' makes it", path.display()),
        );
        None
    };
    PYTHON.get_or_init(find).as_ref()
}

/// The tables of both engines. Differences between `taskdiag.psutil` and psutil are added to
/// `found`.
pub fn shown(pids: &[u32], found: &mut Found) -> Vec<Shown> {
    let Some(python) = python() else { return Vec::new() };
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let names = names();
    let ran = Command::new(python)
        .args(["-c", include_str!("python.py"), &list, &names.join(",")])
        .env_remove("TASKDIAG_ENGINE")
        .stdin(Stdio::null())
        .output()
        .expect("it ran before");
    let said: Value = match serde_json::from_slice(&ran.stdout) {
        Ok(said) => said,
        Err(e) => {
            let why = String::from_utf8_lossy(&ran.stderr);
            found.insert((0, format!("python: {e}: {why}")));
            return Vec::new();
        }
    };
    for item in said["psutil"].as_array().into_iter().flatten() {
        let pid = item[0].as_u64().unwrap_or(0) as u32;
        found.insert((pid, format!("python: {pid}: {}", item[1].as_str().unwrap_or_default())));
    }
    let table = |engine: &&'static str| {
        let mut rows = Rows::new();
        for row in said["snapshot"][*engine].as_array().into_iter().flatten() {
            let row = row.as_object().expect("a row");
            add(row.iter().map(|(k, v)| (k.clone(), v.clone())).collect(), &mut rows);
        }
        Shown { engine, face: "snapshot", rows }
    };
    names.iter().map(table).collect()
}
