//! The man page, the completions and the page of columns hold all that the program knows.

use super::common::{parts, run};

#[test]
fn the_man_page_is_complete() {
    let (code, man, _) = parts(&run(&["generate", "man"]));
    assert_eq!(code, 0);
    let man = man.replace("\\-", "-");
    let (_, help, _) = parts(&run(&["ps", "--help"]));
    let options = help.split_whitespace().filter_map(|w| w.strip_prefix("--"));
    let mut seen = 0;
    for option in options.map(|o| o.trim_end_matches("...")) {
        assert!(man.contains(&format!("--{option}")), "--{option}");
        seen += 1;
    }
    assert!(seen > 20, "only {seen} options");
    let (_, fields, _) = parts(&run(&["fields"]));
    for name in fields.lines().skip(1).take_while(|l| !l.is_empty()) {
        let name = name.split(' ').next().unwrap();
        assert!(man.contains(&format!("\\fB{name}\\fR")), "{name}");
    }
    assert!(man.contains(".SH EXIT STATUS"));
}

#[test]
fn completions_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = parts(&run(&["generate", shell]));
        assert_eq!(code, 0);
        assert!(out.contains("no-headers") && out.contains("engines"), "{shell}");
    }
}

#[test]
fn the_page_of_columns_is_what_the_field_table_gives() {
    let (code, page, _) = parts(&run(&["generate", "columns"]));
    assert_eq!(code, 0);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/columns.md");
    let kept = std::fs::read_to_string(path).expect("docs/columns.md");
    let differs = page.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(
        page == kept,
        "docs/columns.md differs from the field table, run `make docs` and commit it; the first difference: {differs:?}"
    );
    // A row of each set of columns, so that an empty table is not taken for a good one.
    for name in ["ppid", "inode", "procs", "peer_inode"] {
        assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
    }
}
