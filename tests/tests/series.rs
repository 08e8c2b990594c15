//! Tests the patches of the kernel series as text. The copy of the ABI header in them must be that of this repository, which BPF
//! programs and the Rust crates use, or an older one that is still valid. Each series must be fit to be sent: it has a cover
//! letter that names its patches, and each patch continues with the files as the one before it left them. The series for a newer
//! kernel have the patches that differ there, and share all others with those for the older one.

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

/// The directory of the patches that differ on Linux 7.3, and the list of all patches for it.
fn newer() -> (PathBuf, Vec<String>) {
    let home = root().join("kernel");
    let order = fs::read_to_string(home.join("series-7.3/series")).expect("the list of patches");
    let names = order.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned);
    (home, names.collect())
}

/// What a patch does, without the places: the lines of its hunks.
fn changes(patch: &str) -> Vec<&str> {
    let lines = patch.lines().skip_while(|l| !l.starts_with("diff --git "));
    lines
        .map(|l| if l.starts_with("@@ ") { "@@" } else { l })
        .filter(|l| !l.starts_with("index ") && *l != "-- ")
        .collect()
}

#[test]
fn the_list_for_the_newer_kernel_has_the_same_patches_and_no_other() {
    let (home, names) = newer();
    let short = |n: &String| n.split_once('/').expect("a directory").1.to_owned();
    let order = fs::read_to_string(home.join("series/series")).expect("the list of patches");
    let listed: Vec<_> = names.iter().map(short).collect();
    let due = order.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    assert_eq!(listed, due.collect::<Vec<_>>(), "the order of the patches");
    let mut there = BTreeSet::new();
    for dir in fs::read_dir(home.join("series-7.3")).expect("the directory").flatten() {
        for file in fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            let (dir, file) = (dir.file_name(), file.file_name());
            there.insert(format!(
                "series-7.3/{}/{}",
                dir.to_string_lossy(),
                file.to_string_lossy()
            ));
        }
    }
    let own = names.iter().filter(|n| n.starts_with("series-7.3/")).cloned();
    assert_eq!(own.collect::<BTreeSet<_>>(), there);
}

/// A patch for the newer kernel has the number, title, author and date of the one that it is in the place of, and differs from it
/// in what it does; or the list would name that one.
#[test]
fn patches_for_the_newer_kernel_stand_for_older_ones() {
    let (home, names) = newer();
    for name in names.iter().filter(|n| n.starts_with("series-7.3/")) {
        let read =
            |n: &str| fs::read_to_string(home.join(n)).unwrap_or_else(|e| panic!("{n}: {e}"));
        let (new, old) = (read(name), read(&name.replacen("-7.3", "", 1)));
        let head = |t: &str| t.split("\n\n").next().expect("a head").to_owned();
        assert_eq!(head(&new), head(&old), "{name}");
        assert!(!new.contains("Signed-off-by:"), "{name}");
        assert_ne!(
            changes(&new),
            changes(&old),
            "{name} is no other than the one of kernel/series"
        );
    }
}

/// Between two patches for the newer kernel that touch a file, `git am -3` finds what it needs, unless one that is shared is
/// between them: its blobs are those of the older kernel.
#[test]
fn blobs_of_the_newer_series_chain() {
    let (home, names) = newer();
    let mut now: HashMap<(String, String), String> = HashMap::new();
    let mut compared = 0;
    for name in &names {
        let text = fs::read_to_string(home.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let dir = name.split('/').nth(1).expect("the directory of a series");
        let mut file = "";
        for l in text.lines() {
            if let Some(names) = l.strip_prefix("diff --git a/") {
                file = names.split(" b/").next().expect("a name");
            }
            let Some(ids) = l.strip_prefix("index ") else { continue };
            let (from, to) = ids.split(' ').next().and_then(|i| i.split_once("..")).expect("blobs");
            let key = (dir.to_owned(), file.to_owned());
            if !name.starts_with("series-7.3/") {
                now.remove(&key);
            } else if let Some(had) = now.insert(key, to.to_owned()) {
                assert_eq!(had, from, "{name}: {file} is not as the patches before leave it");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no file is touched twice");
}
