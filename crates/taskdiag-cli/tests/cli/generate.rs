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

/// The names of the commands, and the long options of each.
fn commands() -> Vec<(String, Vec<String>)> {
    let (_, help, _) = parts(&run(&["--help"]));
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let lines = list.expect("there is a list of commands").lines();
    // A line that continues the one above begins with more blanks.
    let names =
        lines.filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|n| !n.is_empty()));
    let options = |name: &str| {
        let (_, help, _) = parts(&run(&[name, "--help"]));
        let options = help.lines().filter_map(|l| {
            l.trim_start().split_once("--").filter(|(before, _)| before.len() <= 4)
        });
        options
            .map(|(_, l)| {
                l.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap().to_owned()
            })
            .collect()
    };
    names.filter(|n| *n != "help").map(|n| (n.to_owned(), options(n))).collect()
}

#[test]
fn every_command_and_option_is_in_the_man_page_and_the_completions() {
    let commands = commands();
    for name in ["ps", "files", "report", "dump", "dropin"] {
        assert!(commands.iter().any(|(n, options)| n == name && !options.is_empty()), "{name}");
    }
    let (_, man, _) = parts(&run(&["generate", "man"]));
    let man = man.replace("\\-", "-");
    for (name, options) in &commands {
        let heading = format!(".SH TASKDIAG {}\n", name.to_uppercase());
        let section = man.split(&heading).nth(1).unwrap_or_else(|| panic!("man: {name}"));
        let section = section.split("\n.SH ").next().unwrap();
        for option in options {
            assert!(section.contains(&format!("--{option}")), "man: {name} --{option}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = parts(&run(&["generate", shell]));
        assert_eq!(code, 0);
        for (name, options) in &commands {
            assert!(out.contains(name.as_str()), "{shell}: {name}");
            for option in options {
                assert!(out.contains(option.as_str()), "{shell}: {name} --{option}");
            }
        }
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
