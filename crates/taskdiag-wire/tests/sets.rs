//! Looks for sets of groups that are written by hand. The row of a group in the registry has its
//! properties, and sets follow from them (`properties.rs`). A list of groups elsewhere lacks each
//! group that is added later, and nothing reports that.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use taskdiag_wire::Group;

/// The sets that are written by hand, each with a comment that gives the reason. These sets name
/// the groups that one place reads or shows, and not a property of groups. To add one, remove one.
const BY_HAND: [(&str, &str); 5] = [
    ("crates/taskdiag/src/engine/auto/cost.rs", "MAPPED"),
    ("crates/taskdiag/src/files/mod.rs", "GROUPS"),
    ("crates/taskdiag-export/src/tracker.rs", "GROUPS"),
    ("crates/taskdiag-export/src/tracker.rs", "IDENTITY"),
    ("crates/taskdiag-cli/src/saved.rs", "COMMANDS"),
];

/// The constants of this source that name at least two groups, and whose type is made of groups.
/// Its tests are left out.
fn sets_in(text: &str) -> Vec<(String, String)> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let mut words = line.split_whitespace().skip_while(|w| w.starts_with("pub"));
        if !matches!(words.next(), Some("const" | "static")) {
            continue;
        }
        let Some(name) = words.next().and_then(|w| w.strip_suffix(':')) else { continue };
        // The item ends with the first `;` at the end of a line that is not indented deeper, or of
        // a chain of calls.
        let is_end = |l: &str| {
            let depth = l.len() - l.trim_start().len();
            l.ends_with(';') && (depth <= indent || !l.trim_start().starts_with("let "))
        };
        let len = lines[n..].iter().position(|l| is_end(l)).map_or(1, |len| len + 1);
        let item = lines[n..n + len].join("\n");
        let (kind, value) = item.split_once(" =").unwrap_or((&item, ""));
        if kind.contains("Group") && names(value) >= 2 {
            found.push((name.to_owned(), comment(&lines[..n])));
        }
    }
    found
}

/// How many different groups the text names.
fn names(text: &str) -> usize {
    let is_in = |word: String| {
        text.match_indices(&word).any(|(at, _)| {
            let next = text[at + word.len()..].chars().next();
            !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    };
    let is_named = |g: &&Group| {
        is_in(format!("Groups::{}", g.name().to_uppercase())) || is_in(format!("Group::{g:?}"))
    };
    Group::ALL.iter().filter(is_named).count()
}

/// The comment above an item, in one line.
fn comment(before: &[&str]) -> String {
    let lines = before.iter().rev().map(|l| l.trim_start());
    let mut lines: Vec<&str> = lines.take_while(|l| l.starts_with("//")).collect();
    lines.reverse();
    let words = lines.iter().map(|l| l.trim_start_matches('/').trim());
    words.collect::<Vec<_>>().join(" ")
}

/// The sources below a directory, without tests and build outputs.
fn sources(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_left_out = ["tests", "target", "tests.rs"].iter().any(|n| name == **n);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !is_left_out => sources(&path, all),
            Ok(kind) if kind.is_file() && !is_left_out => all.push(path),
            _ => {}
        }
    }
}

#[test]
fn at_most_five_sets_of_groups_are_written_by_hand() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for dir in ["crates", "python", "sql", "fuzz", "bench"] {
        sources(&root.join(dir), &mut all);
    }
    all.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    assert!(all.len() > 300, "only {} sources are there", all.len());
    let mut found = BTreeSet::new();
    for path in all {
        let file = path.strip_prefix(&root).expect("it is below the root").display().to_string();
        for (name, comment) in sets_in(&fs::read_to_string(&path).expect("a source can be read")) {
            assert!(
                !BY_HAND.contains(&(&*file, &*name)) || comment.contains("written by hand"),
                "{file}: the comment of {name} does not say why it is written by hand"
            );
            found.insert((file.clone(), name));
        }
    }
    let listed = BY_HAND.map(|(file, name)| (file.to_owned(), name.to_owned()));
    let new: Vec<_> = found.iter().filter(|f| !listed.contains(f)).collect();
    let gone: Vec<_> = listed.iter().filter(|f| !found.contains(f)).collect();
    assert!(new.is_empty(), "take these sets from properties.rs: {new:?}");
    assert!(gone.is_empty(), "these are no longer written by hand: {gone:?}");
}

#[test]
fn a_set_that_lists_groups_is_found() {
    let source = "/// Why.\npub(super) const A: Groups = Groups::VMA\n    .union(Groups::FD)\n    .union(Groups::NS);\n\
                  const B: Groups = Groups::LISTS;\n\
                  const C: &[Group] = &[Group::Fd, Group::FdCount];\n\
                  const D: [(&str, Groups); 2] = {\n    let a = Groups::BASE.union(Groups::CRED);\n    a\n};\n\
                  const E: u32 = Groups::FD.bits() | Groups::VMA.bits();\n\
                  #[cfg(test)]\nmod tests {\n    const F: Groups = Groups::FD.union(Groups::NS);\n}\n";
    let names: Vec<String> = sets_in(source).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["A", "C", "D"]);
}
