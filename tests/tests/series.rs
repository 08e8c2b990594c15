//! Tests the patches of the kernel series as text. The copy of the ABI header in them must be that of this repository, which BPF
//! programs and the Rust crates use, or an older one that is still valid. Each series must be fit to be sent: it has a cover
//! letter that names its patches, and each patch continues with the files as the one before it left them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

const HEADER: &str = "include/uapi/linux/task_diag.h";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Series → its patches in their order, as (name, text).
fn series() -> BTreeMap<String, Vec<(String, String)>> {
    let home = root().join("kernel/series");
    let order = fs::read_to_string(home.join("series")).expect("the list of patches");
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for name in order.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let text = fs::read_to_string(home.join(name)).expect("a patch of the list");
        let dir = name.split('/').next().expect("the directory");
        found.entry(dir.to_owned()).or_default().push((name.to_owned(), text));
    }
    found
}

/// The lines of a file after a patch that makes it or only adds to it.
fn grown(before: &[String], patch: &str, file: &str) -> Option<Vec<String>> {
    let mut lines = patch.lines().skip_while(|l| *l != format!("+++ b/{file}"));
    lines.next()?;
    let mut rest = before.iter();
    let (mut after, mut read) = (Vec::new(), 0);
    for l in lines.take_while(|l| !l.starts_with("diff ") && *l != "--") {
        if let Some(at) = l.strip_prefix("@@ -") {
            let first: usize = at.split([',', ' ']).next()?.parse().ok()?;
            while read + 1 < first {
                after.push(rest.next()?.clone());
                read += 1;
            }
        } else if let Some(added) = l.strip_prefix('+') {
            after.push(added.to_owned());
        } else {
            let same = l.strip_prefix(' ').unwrap_or_else(|| panic!("{file}: the patch has {l:?}"));
            let had = rest.next().unwrap_or_else(|| panic!("{file} ends before {same:?}"));
            assert_eq!(had, same, "{file}: context of the patch");
            read += 1;
            after.push(same.to_owned());
        }
    }
    after.extend(rest.cloned());
    Some(after)
}

#[test]
fn the_header_in_the_series_is_ours_or_an_older_one() {
    let mut copy = Vec::new();
    let mut touched = 0;
    for (_, patch) in series().values().flatten() {
        if let Some(after) = grown(&copy, patch, HEADER) {
            copy = after;
            touched += 1;
        }
    }
    assert_eq!(touched, 2, "patches that touch {HEADER}");
    let ours = fs::read_to_string(root().join("uapi/task_diag.h")).expect("the header");
    // The format only grows, so everything in the kernel's copy must be in ours, in the same order.
    let mut rest = ours.lines();
    for line in &copy {
        assert!(
            rest.any(|l| l == line),
            "uapi/task_diag.h has changed what the series adds, here: {line:?}; run kernel/update-header"
        );
    }
}

#[test]
fn the_list_has_all_patches_and_no_other() {
    let home = root().join("kernel/series");
    let listed: BTreeSet<String> = series().into_values().flatten().map(|(name, _)| name).collect();
    let mut there = BTreeSet::new();
    for dir in fs::read_dir(&home).expect("the directory of the series").flatten() {
        for file in fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            let name = file.file_name().into_string().expect("a name in UTF-8");
            if !name.starts_with("0000-") {
                there.insert(format!("{}/{name}", dir.file_name().to_string_lossy()));
            }
        }
    }
    assert_eq!(listed, there);
}

#[test]
fn cover_letters_name_their_patches() {
    for (dir, patches) in series() {
        let cover = root().join("kernel/series").join(&dir).join("0000-cover-letter.patch");
        let cover =
            fs::read_to_string(&cover).unwrap_or_else(|e| panic!("{}: {e}", cover.display()));
        let count = patches.len();
        assert!(
            cover.contains(&format!(
                "\nSubject: [PATCH {}/{count}] ",
                if count > 9 { "00" } else { "0" }
            )),
            "{dir}"
        );
        for (at, (name, text)) in patches.iter().enumerate() {
            let head = text.split("\n\n").next().expect("a head").replace("\n ", " ");
            let subject =
                head.lines().find_map(|l| l.strip_prefix("Subject: ")).expect("a subject");
            let (number, title) = subject.split_once("] ").expect("a number");
            let due = number
                .trim_start_matches("[PATCH ")
                .split('/')
                .map(|n| n.parse::<usize>().expect("a number"));
            assert!(due.eq([at + 1, count]), "{name}: {number}] is not {} of {count}", at + 1);
            assert!(
                cover.replace("\n    ", " ").contains(&format!("\n  {title}\n")),
                "{dir}: the cover letter lacks {title:?}"
            );
        }
    }
}

/// `git am -3` looks for the file that a patch was made from. So each patch must name the blob that the patch before it
/// has left, and series that apply alone must name the same blob of the base.
#[test]
fn blobs_of_a_series_chain() {
    let mut base: HashMap<String, String> = HashMap::new();
    for (dir, patches) in series() {
        let mut now: HashMap<&str, &str> = HashMap::new();
        let mut compared = 0;
        for (name, text) in &patches {
            let mut file = "";
            for l in text.lines() {
                if let Some(names) = l.strip_prefix("diff --git a/") {
                    file = names.split(" b/").next().expect("a name");
                }
                let Some(ids) = l.strip_prefix("index ") else { continue };
                let (from, to) =
                    ids.split(' ').next().and_then(|i| i.split_once("..")).expect("two blobs");
                match now.insert(file, to) {
                    Some(had) => assert_eq!(
                        had, from,
                        "{name}: {file} is not as the patches before leave it; CONTRIBUTING.md says how to change a patch"
                    ),
                    None if dir == "joint" => {}
                    None => assert_eq!(
                        base.entry(file.to_owned()).or_insert(from.to_owned()),
                        from,
                        "{name}: {file}"
                    ),
                }
                compared += 1;
            }
        }
        assert!(compared >= patches.len(), "{dir}: some patch has no blobs");
    }
}
