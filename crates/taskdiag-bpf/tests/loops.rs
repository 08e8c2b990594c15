//! Each loop of the BPF programs is in the table of `docs/operate/safety.md`, which has the most
//! turns of each.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The functions that are loops in a source: the steps of `LOOP()` and `LONG_LOOP()`, callbacks of
/// `bpf_loop()`, and functions with other loops.
fn loops(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut function = String::new();
    let mut is_macro = false;
    for line in source.lines() {
        // Macros are looked at where they are used.
        let was_macro = is_macro;
        is_macro = line.ends_with('\\');
        if was_macro || line.starts_with('#') {
            continue;
        }
        let is_head = line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_head = is_head && line.ends_with(')');
        if let Some((head, _)) = line.split_once('(').filter(|_| is_head) {
            function = head.rsplit([' ', '*']).next().unwrap_or("").to_owned();
            if let Some((name, _)) = line.strip_prefix("STEP(").and_then(|l| l.split_once(", ")) {
                function = name.to_owned();
            }
        }
        if !line.starts_with('\t') {
            continue;
        }
        for call in line.split("bpf_loop(").skip(1) {
            let arguments = call.split_once(", NULL, 0)").expect("no callback has data").0;
            found.insert(arguments.rsplit(", ").next().unwrap_or("").to_owned());
        }
        for call in line.split("LOOP(").skip(1) {
            let mut depth = 1;
            let end = call.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            let arguments = &call[..end.expect("a call is on one line")];
            found.insert(arguments.rsplit(", ").next().unwrap_or("").to_owned());
        }
        let code = line.trim_start();
        if ["for (", "while (", "bpf_for(", "EACH("].iter().any(|word| code.starts_with(word)) {
            found.insert(function.clone());
        }
    }
    found
}

#[test]
fn docs_safety_has_each_loop_of_the_programs() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(&dir).expect("the sources").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".h") || name.ends_with(".bpf.c") {
            all.extend(loops(&fs::read_to_string(entry.path()).expect("a text")));
        }
    }
    // That runs in test builds only.
    all.remove("gap_step");
    assert!(all.len() > 30, "{all:?}");
    for function in ["sum_next", "find_place", "append_path"] {
        assert!(all.contains(function), "{all:?}");
    }
    let table = taskdiag_bpf::SAFETY.split_once("## How long a run is").expect("the table").1;
    let table = table.split_once("`tests/tests/runs.rs`").expect("an end").0;
    let rows = table.lines().filter_map(|l| l.strip_prefix("| ")?.split_once(" | "));
    let told: BTreeSet<String> = rows
        .flat_map(|row| row.0.split('`').skip(1).step_by(2).collect::<Vec<_>>())
        .filter_map(|name| Some(name.strip_suffix("()")?.to_owned()))
        .collect();
    let lacking: Vec<_> = all.difference(&told).collect();
    assert!(lacking.is_empty(), "docs/operate/safety.md has no row for these loops: {lacking:?}");
    let gone: Vec<_> = told.difference(&all).collect();
    assert!(gone.is_empty(), "docs/operate/safety.md names these, which are no loops: {gone:?}");
}

#[test]
fn loops_of_all_kinds_are_found() {
    let source = "\
#define LOOP(n, step) ({ \\
\tfor (i = 0; i < n; i++) \\
\t\tstep(i); \\
})
static long a_step(u32 i, void *unused)
{
\treturn 0;
}

STEP(with_a_loop, i)
{
\tfor (n = 0; n < 8; n++)
\t\treturn 1;
}

GROUP_FN walk(void)
{
\tif (x)
\t\tbpf_loop(A + (B / 2), a_step, NULL, 0);
\treturn down ? LOOP((4 + 3) / 2, go_left) : LONG_LOOP(st.up, UP_MAX, go_right);
}

__noinline u64 other(u64 a)
{
\tEACH(i, 0, 4, 4) {
\t}
}
";
    assert_eq!(
        loops(source),
        ["a_step", "with_a_loop", "go_left", "go_right", "other"].map(str::to_owned).into()
    );
}
