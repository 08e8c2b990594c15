//! Tests the copy of the ABI header in a patch of the kernel series. It must be that of this repository,
//! which BPF programs and the Rust crates use, or an older one that is still valid.

use std::fs;
use std::path::Path;

const HEADER: &str = "include/uapi/linux/task_diag.h";

/// The lines that a patch adds to a file which it creates. `None` if it does not touch the file.
fn added(patch: &str, file: &str) -> Option<String> {
    let mut lines = patch.lines().skip_while(|l| *l != format!("+++ b/{file}"));
    lines.next()?;
    let body = lines.skip(1).take_while(|l| !l.starts_with("diff ") && *l != "--");
    let line = |l: &str| l.strip_prefix('+').map(|l| format!("{l}\n"));
    Some(body.filter_map(line).collect())
}

#[test]
fn the_header_in_the_series_is_ours_or_an_older_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let series = root.join("kernel/series");
    let order = fs::read_to_string(series.join("series")).expect("the list of patches");
    let names = order.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let patches = names.map(|n| fs::read_to_string(series.join(n)).expect("a patch of the list"));
    let copies: Vec<String> = patches.filter_map(|p| added(&p, HEADER)).collect();
    assert_eq!(copies.len(), 1, "patches that touch {HEADER}");
    let ours = fs::read_to_string(root.join("uapi/task_diag.h")).expect("the header");
    // The format only grows, so everything in the kernel's copy must be in ours, in the same order.
    let mut rest = ours.lines();
    for line in copies[0].lines() {
        assert!(
            rest.any(|l| l == line),
            "uapi/task_diag.h has changed what the series adds, here: {line:?}; make the patch again"
        );
    }
}
