//! Tests the patches of the kernel series as text. The copy of the ABI header in them must be the
//! header of this repository, which BPF programs and the Rust crates use, or an older one that is
//! still valid. Each series must be ready to be sent: it has a cover letter that names its patches,
//! and each patch continues with the files as the previous one left them. The series for a newer
//! kernel are made from these and from the differences that are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

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

/// `git am -3` looks for the file that a patch was made from. So each patch must name the blob that
/// the patch before it has left, and series that apply alone must name the same blob of the base.
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
                        "{name}: {file} is not as the patches before leave it; kernel/README.md says how to change a patch"
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

/// Runs `kernel/newer` of a copy of `kernel/`, with the directory of the patches for Linux 7.3.
/// Returns the output if it failed.
fn newer(kernel: &Path, verb: &str, dir: &Path) -> Result<(), String> {
    let done = Command::new(kernel.join("newer")).arg(verb).arg(dir).output();
    let done = done.expect("kernel/newer runs; it needs python3");
    if done.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&done.stderr).into_owned())
}

/// The patches for Linux 7.3 in their order, as (name, text), and the names of the patches that
/// differ from the older series.
fn made() -> (Vec<(String, String)>, BTreeSet<String>) {
    let (dir, kernel) = (tempfile::tempdir().expect("a directory"), root().join("kernel"));
    newer(&kernel, "make", dir.path()).unwrap_or_else(|e| panic!("{e}"));
    let order = fs::read_to_string(dir.path().join("series")).expect("the list of patches");
    let names = order.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let read =
        |n: &str| fs::read_to_string(dir.path().join(n)).unwrap_or_else(|e| panic!("{n}: {e}"));
    let patches = names.map(|n| (n.to_owned(), read(n))).collect();
    let differences = fs::read_to_string(kernel.join("series-7.3.diff")).expect("the differences");
    let own = differences.lines().filter_map(|l| l.strip_prefix("+++ series-7.3/"));
    (patches, own.map(str::to_owned).collect())
}

/// A copy of `kernel/` with the files that `kernel/newer` reads.
fn copied() -> TempDir {
    let to = tempfile::tempdir().expect("a directory");
    let copy = |n: &str| {
        let target = to.path().join(n);
        fs::create_dir_all(target.parent().expect("a parent")).expect("a directory");
        fs::copy(root().join("kernel").join(n), target).unwrap_or_else(|e| panic!("{n}: {e}"));
    };
    ["newer", "series-7.3.diff", "series/series"].into_iter().for_each(copy);
    series().values().flatten().for_each(|(name, _)| copy(&format!("series/{name}")));
    to
}

/// The effect of a patch without the places: the lines of its hunks.
fn changes(patch: &str) -> Vec<&str> {
    let lines = patch.lines().skip_while(|l| !l.starts_with("diff --git "));
    lines
        .map(|l| if l.starts_with("@@ ") { "@@" } else { l })
        .filter(|l| !l.starts_with("index ") && *l != "-- ")
        .collect()
}

#[test]
fn the_newer_kernel_has_the_same_patches_in_the_same_order() {
    let (patches, own) = made();
    let order = fs::read_to_string(root().join("kernel/series/series")).expect("the list");
    let due: Vec<_> = order.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert_eq!(patches.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), due);
    assert!(own.len() > 20 && own.iter().all(|n| due.contains(&n.as_str())), "{own:?}");
}

/// A patch for the newer kernel has the number, title, author and date of the patch that it
/// replaces, and differs in its effect; otherwise no difference would be needed.
#[test]
fn patches_for_the_newer_kernel_stand_for_older_ones() {
    let (patches, own) = made();
    for (name, new) in patches.iter().filter(|(n, _)| own.contains(n)) {
        let old = fs::read_to_string(root().join("kernel/series").join(name)).expect("a patch");
        let head = |t: &str| t.split("\n\n").next().expect("a head").to_owned();
        assert_eq!(head(new), head(&old), "{name}");
        assert!(!new.contains("Signed-off-by:"), "{name}");
        assert_ne!(changes(new), changes(&old), "{name} is no other than the one of kernel/series");
    }
}

/// Between two patches for the newer kernel that touch a file, `git am -3` finds the blobs that it
/// needs. It does not if a shared patch is between them, because the blobs in it belong to the
/// older kernel.
#[test]
fn blobs_of_the_newer_series_chain() {
    let (patches, own) = made();
    let mut now: HashMap<(String, String), String> = HashMap::new();
    let mut compared = 0;
    for (name, text) in &patches {
        let dir = name.split('/').next().expect("the directory of a series");
        let mut file = "";
        for l in text.lines() {
            if let Some(names) = l.strip_prefix("diff --git a/") {
                file = names.split(" b/").next().expect("a name");
            }
            let Some(ids) = l.strip_prefix("index ") else { continue };
            let (from, to) = ids.split(' ').next().and_then(|i| i.split_once("..")).expect("blobs");
            let key = (dir.to_owned(), file.to_owned());
            if !own.contains(name) {
                now.remove(&key);
            } else if let Some(had) = now.insert(key, to.to_owned()) {
                assert_eq!(had, from, "{name}: {file} is not as the patches before leave it");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no file is touched twice");
}

#[test]
fn keeping_made_patches_writes_the_same_differences() {
    let (kernel, dir) = (copied(), tempfile::tempdir().expect("a directory"));
    let differences = kernel.path().join("series-7.3.diff");
    let before = fs::read_to_string(&differences).expect("the differences");
    newer(kernel.path(), "make", dir.path()).unwrap_or_else(|e| panic!("{e}"));
    newer(kernel.path(), "keep", dir.path()).unwrap_or_else(|e| panic!("{e}"));
    assert!(
        fs::read_to_string(&differences).expect("the differences") == before,
        "run kernel/newer"
    );
}

/// A line of the message holds for both kernels, and the blob of a file is another one on Linux
/// 7.3.
#[test]
fn a_change_of_an_older_patch_reaches_the_newer_one_or_is_a_conflict() {
    let name = "readdir/0004-pid-mark-the-pids-of-thread-group-leaders.patch";
    let (_, own) = made();
    assert!(own.contains(name), "{name} does not differ: take another patch here");
    let (kernel, dir) = (copied(), tempfile::tempdir().expect("a directory"));
    let (carried, conflict) = (dir.path().join("carried"), dir.path().join("conflict"));
    let path = kernel.path().join("series").join(name);
    let text = fs::read_to_string(&path).expect("the patch");

    let reworded = text.replacen("\n\n", "\n\nThis line is new.\n", 1);
    fs::write(&path, &reworded).expect("written");
    newer(kernel.path(), "make", &carried).unwrap_or_else(|e| panic!("{e}"));
    let new = fs::read_to_string(carried.join(name)).expect("the newer patch");
    assert!(new.contains("\nThis line is new.\n"), "{new}");
    assert_ne!(new, reworded, "it is still the patch for the newer kernel");

    let index = text.lines().find(|l| l.starts_with("index ")).expect("a blob");
    fs::write(&path, text.replacen(index, "index 1..2 100644", 1)).expect("written");
    let said =
        newer(kernel.path(), "make", &conflict).expect_err("a line that differs has changed");
    assert!(said.contains(name) && said.contains("kernel/newer keep"), "{said}");
    let said = newer(kernel.path(), "keep", &conflict).expect_err("it is not fixed");
    assert!(said.contains("conflict markers"), "{said}");
}

/// Writes the mails of a directory of `kernel/send`, and checks that they have the name and the
/// sign-off of the sender, count their own patches, and are patches that git understands. Returns
/// the texts of the patches.
fn written_to_be_sent(name: &str, patches: usize, cover: bool) -> Vec<String> {
    let (me, dir) = ("A Person <a@person.example>", tempfile::tempdir().expect("a directory"));
    let to = dir.path().join("patches");
    let config = [("user.name", "A Person"), ("user.email", "a@person.example")];
    let mut mail = Command::new(root().join("kernel/send/mail"));
    mail.args([name, "--write"]).arg(&to).env("GIT_CONFIG_COUNT", "2");
    for (at, (key, value)) in config.into_iter().enumerate() {
        mail.env(format!("GIT_CONFIG_KEY_{at}"), key);
        mail.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    let done = mail.output().expect("kernel/send/mail runs; it needs python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let written = String::from_utf8(done.stdout).expect("paths");
    let paths: Vec<_> = written.lines().collect();
    assert_eq!(paths.len(), patches + usize::from(cover), "{written}");
    let mut texts: Vec<_> =
        paths.iter().map(|path| fs::read_to_string(path).expect("a patch")).collect();
    if cover {
        let text = texts.remove(0);
        assert!(text.contains(&format!("\nFrom: {me}\n")), "{text}");
        assert!(text.contains(&format!("PATCH 0/{patches}] ")), "{text}");
        assert!(!text.contains("Signed-off-by") && !text.contains("taskdiag ("), "{text}");
    }
    for (at, text) in texts.iter().enumerate() {
        let path = paths[at + usize::from(cover)];
        let (message, _) = text.split_once("\n---\n").expect("a message");
        assert!(message.contains(&format!("\nFrom: {me}\n")), "{path}: {message}");
        assert!(message.contains(&format!("PATCH {}/{patches}] ", at + 1)), "{path}");
        assert!(message.ends_with(&format!("\nSigned-off-by: {me}")), "{path}: {message}");
        assert!(!message.contains("taskdiag"), "{path}: {message}");
        // Not in a directory of a repository, where git would look for the files below it.
        let mut apply = Command::new("git");
        let read = apply.args(["apply", "--numstat", path]).current_dir(dir.path());
        let read = read.output().expect("git");
        assert!(read.status.success() && !read.stdout.is_empty(), "{path}: git reads no patch");
    }
    texts
}

#[test]
fn a_fix_goes_out_in_the_name_of_its_sender() {
    let texts = written_to_be_sent("smaps-swap", 2, false);
    let fix = &texts[0];
    assert!(fix.contains("\nFixes: ") && fix.contains("\nCc: stable@vger.kernel.org\n"), "{fix}");
}

#[test]
fn a_new_interface_goes_out_with_its_cover_letter() {
    let texts = written_to_be_sent("task-ioctl", 6, true);
    assert!(texts.iter().any(|t| t.contains("+++ b/include/uapi/linux/proc_tasks.h")));
}
