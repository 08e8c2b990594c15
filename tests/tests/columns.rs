//! Compares every column of the field table between the engines, on scenes that are hard to read.
//!
//! `parity` compares the members of the format. A column may be made of several of them, of data
//! from the caller's machine, or of a member that is known on some file systems only. So here each
//! column of tasks, mappings and files is compared as it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::LazyLock;

use taskdiag::field::{Context, FILES, Field, MAPS, OpenRow, Part, Row, Set, TASKS, Value};
use taskdiag::files::{Files, Locks};
use taskdiag::wire::device::device;
use taskdiag::wire::{Entry, Fd, FileStat, FileUse, Vma};
use taskdiag::{EngineId, Group, Groups, Request};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::{Answer, Mktask, Source, mounts, read, skip};

/// How often a comparison is repeated before a difference counts.
const TRIES: u64 = 6;

/// Columns that need not be the same, and why.
const NOT_THE_SAME: &[(&str, &str, &str)] = &[
    ("tasks", "securebits", "not in /proc"),
    ("tasks", "last_ran", "each engine has another source; tests/waits.rs compares the two"),
    ("tasks", "waited", "as last_ran"),
    ("maps", "vmflags", "in smaps, which is read for VMA_STAT only"),
];

/// Columns of files that may differ between engines. No list of the kernel has sockets of these
/// families, only their protocol's name; only /proc shows the memory of a BPF map; and only BPF
/// shows the interface of a raw socket on a kernel without raw_diag.
fn need_not_be_the_same(row: &Cells, column: &str) -> bool {
    let is = |column: &str, start: &str| row.get(column).is_some_and(|v| v.starts_with(start));
    match column {
        "name" | "bpf_memory" if is("kind", "Word(\"bpf_map\")") => true,
        "ifindex" if is("protocol", "\"RAW\"") => true,
        "name" | "protocol" | "sockstate" | "sock_netns" | "ifindex" | "type" => {
            is("name", "\"vsock ") || is("name", "\"xdp ")
        }
        _ => false,
    }
}

/// One row: its subject, and its columns.
type Cells = BTreeMap<&'static str, String>;

/// A value with the precision that every engine has.
fn shown(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Nanos(ns) => Some(format!("{} ticks", ns / 10_000_000)),
        Value::Instant(ns) => Some(format!("at {} ticks", ns / 10_000_000)),
        // A percentage is computed from times and the moment of the answer.
        Value::Percent(_) => None,
        Value::Bytes { data, cut } => {
            Some(format!("{:?}{}", data.escape_ascii().to_string(), if *cut { " cut" } else { "" }))
        }
        Value::Short(s) => Some(format!("{:?}", s.as_bytes().escape_ascii().to_string())),
        other => Some(format!("{other:?}")),
    }
}

struct Table {
    set: &'static Set,
    columns: Vec<&'static Field>,
    rows: BTreeMap<String, Cells>,
}

impl Table {
    /// The columns that both engines can know.
    fn new(set: &'static Set, known: Groups) -> Table {
        let is_compared = |f: &&Field| {
            (f.groups - known).is_empty()
                && !NOT_THE_SAME.iter().any(|n| (n.0, n.1) == (set.name, f.name))
        };
        Table { set, columns: set.own().filter(is_compared).collect(), rows: BTreeMap::new() }
    }
    fn add(&mut self, cx: &Context, label: &str, row: &Row<'_>) {
        let cells = self.columns.iter();
        let cells: Cells =
            cells.filter_map(|f| Some((f.name, shown(&(f.get)(cx, row))?))).collect();
        let mut n = 0;
        let mut key = label.to_owned();
        while self.rows.contains_key(&key) {
            n += 1;
            key = format!("{label} #{n}");
        }
        self.rows.insert(key, cells);
    }
}

fn text(cx: &Context, set: &Set, name: &str, row: &Row<'_>) -> String {
    let field = set.find(name).expect("a column").field;
    shown(&(field.get)(cx, row)).unwrap_or_default()
}

/// The rows of an answer: of the tasks, of their mappings, of their files.
fn tables(a: &Answer, known: Groups) -> Vec<Table> {
    let cx = Context::of(&a.snapshot, false);
    let mut tasks = Table::new(&TASKS, known);
    let mut maps = Table::new(&MAPS, known);
    let mut open = Table::new(&FILES, known);
    for view in a.snapshot.tasks() {
        let row = Row::new(view);
        let of = format!("task {}", view.pid());
        tasks.add(&cx, &of, &row);
        let Ok(_) = row.each_map(|row| {
            maps.add(&cx, &format!("{of} {}", text(&cx, &MAPS, "start", row)), row);
            Ok::<(), Infallible>(())
        });
    }
    let mut files = Files::new(&a.snapshot);
    let fdinfo = |path: &str| std::fs::read(path).ok();
    files.locks = Some(Locks::find(&files, |_| true, None, fdinfo));
    for owner in files.owners() {
        for file in files.of(owner) {
            let row = owner.row.with_part(Part::File(OpenRow::new(&file, &files)));
            let of = owner.row.view.pid();
            let [number, fd, path] = ["fdnum", "fd", "path"].map(|c| text(&cx, &FILES, c, &row));
            let is_numbered = !number.starts_with("Missing");
            let which = if is_numbered { number } else { format!("{fd} {path}") };
            open.add(&cx, &format!("task {of} {which}"), &row);
        }
    }
    vec![tasks, maps, open]
}

/// The differences between a reading and two of another engine, before and after it.
fn differences(a1: &Table, b: &Table, a2: &Table) -> (usize, BTreeSet<String>) {
    let (mut compared, mut wrong) = (0, BTreeSet::new());
    let keys: BTreeSet<_> = a1.rows.keys().chain(b.rows.keys()).collect();
    for key in keys {
        let (Some(before), Some(here)) = (a1.rows.get(key), b.rows.get(key)) else {
            let who = if b.rows.contains_key(key) { "the second" } else { "the first" };
            wrong.insert(format!("{}: only {who} has a row {key}", b.set.name));
            continue;
        };
        let Some(after) = a2.rows.get(key) else { continue };
        for (column, value) in before {
            if after.get(column) != Some(value) {
                continue;
            }
            if need_not_be_the_same(before, column) {
                continue;
            }
            compared += 1;
            if here.get(column) != Some(value) {
                let here = here.get(column);
                let set = b.set.name;
                wrong.insert(format!("{set} {column} of {key}: {value} and {here:?}"));
            }
        }
    }
    (compared, wrong)
}

/// Compares all columns of a state.
fn compare(scene: &str, m: &Mktask, pair: [Source; 2], known: Groups) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for req in [Request::one(m.pid(), known), Request::threads(m.pid(), known)] {
        let mut last = BTreeSet::new();
        for attempt in 0..TRIES {
            std::thread::sleep(std::time::Duration::from_millis(30 * attempt));
            let ask =
                |s| tables(&read(s, &req).unwrap_or_else(|e| panic!("{scene}: {s}: {e}")), known);
            let (a1, b, a2) = (ask(pair[0]), ask(pair[1]), ask(pair[0]));
            last.clear();
            let mut total = 0;
            for ((a1, b), a2) in a1.iter().zip(&b).zip(&a2) {
                let (compared, wrong) = differences(a1, b, a2);
                total += compared;
                last.extend(wrong);
            }
            assert!(total > 100, "{scene}: only {total} cells of {} were compared", m.state());
            if last.is_empty() {
                break;
            }
        }
        all.extend(last.into_iter().map(|d| format!("{scene}: {d}")));
    }
    all
}

/// The engines, and the groups that both have. The kernel's stack of a task that wakes up is not
/// the same for long.
static PAIR: LazyLock<Option<([Source; 2], Groups)>> = LazyLock::new(|| {
    let ids = [EngineId::Procfs, EngineId::Bpf];
    let of = |g: Group| ids.map(|id| engines_with(g).into_iter().find(|s| s.id() == id));
    let [Some(a), Some(b)] = of(Group::Base) else { return None };
    let both = |g: &Group| of(*g).iter().all(|s| s.is_some_and(|s| s.finds(*g)));
    let known: Groups = Group::ALL.iter().copied().filter(both).collect();
    Some(([a, b], known - Groups::KSTACK))
});

fn check(scene: &str, states: &[(&str, &[&str])], dir: &Path) -> BTreeSet<String> {
    let mut wrong = BTreeSet::new();
    let Some((pair, known)) = *PAIR else {
        skip("columns", "one engine only is here, so there is nothing to compare");
        return wrong;
    };
    for (n, (name, more)) in states.iter().enumerate() {
        let own = dir.join(format!("state{n}"));
        std::fs::create_dir(&own).expect("a new directory");
        let own = own.to_str().expect("a plain path").to_owned();
        let more: Vec<&str> = more.iter().map(|a| if *a == "DIR" { &own[..] } else { a }).collect();
        let Some(m) =
            Mktask::or_skip(&format!("columns of {scene} {name}"), &[&[*name][..], &more].concat())
        else {
            continue;
        };
        wrong.extend(compare(&format!("{scene} {name}"), &m, pair, known));
    }
    wrong
}

fn none(wrong: &BTreeSet<String>) {
    let list: Vec<&str> = wrong.iter().map(String::as_str).collect();
    assert!(
        list.is_empty(),
        "engines differ in {} cells (one that need not be the same belongs in NOT_THE_SAME):\n{}",
        list.len(),
        list[..list.len().min(60)].join("\n")
    );
}

const DIR: &[&str] = &["DIR"];

#[test]
fn columns_of_processes_are_the_same_on_all_engines() {
    let dir = tempfile::tempdir().expect("a directory");
    none(&check(
        "processes",
        &[
            ("threads", &["3"]),
            ("creds", &[]),
            ("zombie", &[]),
            ("leader-gone", &[]),
            ("namespaces", &[]),
            ("cgroup", &["odd"]),
            ("odd-places", DIR),
            ("sharers", &[]),
            ("undumpable", &[]),
            ("wanderer", DIR),
        ],
        dir.path(),
    ));
}

const OF_FILES: &[(&str, &[&str])] = &[
    ("links", DIR),
    ("locks", DIR),
    ("mappings", DIR),
    ("files", DIR),
    ("bound", DIR),
    ("elsewhere-dir", DIR),
    ("odd-names", DIR),
];

#[test]
fn columns_of_files_and_mappings_are_the_same_on_all_engines() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut wrong = check("files", OF_FILES, dir.path());
    let other = tempfile::tempdir().expect("a directory");
    let more: &[(&str, &[&str])] =
        &[("unmounted", DIR), ("copied-mounts", DIR), ("odd-names", &["DIR", "elsewhere"])];
    wrong.extend(check("files", more, other.path()));
    none(&wrong);
}

/// A directory of a lower layer with a file.
const OF_LOWER: &str = "of-lower";

fn of_lower(lower: &str) -> std::io::Result<()> {
    let dir = Path::new(lower).join(OF_LOWER);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("file"), "text")
}

/// The values of stat(2) for the descriptors and mappings of a state, compared with the answers of
/// each engine. The device of a mapping is the one of the file system, as in maps. Its inode, and
/// the device of its file, are as in stat(2).
fn as_stat(state: &str, dir: &Path) -> (usize, BTreeSet<String>) {
    let own = dir.join(format!("stat-{state}"));
    std::fs::create_dir(&own).expect("a new directory");
    match Mktask::start(&[state, own.to_str().expect("a plain path")]) {
        Ok(m) => of_process_as_stat(m.pid(), state),
        Err(why) => {
            skip(&format!("stat(2) of {state}"), &why);
            (0, BTreeSet::new())
        }
    }
}

fn of_process_as_stat(pid: u32, state: &str) -> (usize, BTreeSet<String>) {
    let (mut compared, mut wrong) = (0, BTreeSet::new());
    let groups = Groups::FD | Groups::VMA | Groups::FILE_STAT;
    for source in engines_with(Group::Fd).into_iter().filter(|s| s.id() != EngineId::Kernel) {
        let a = read(source, &Request::one(pid, groups)).expect("an answer");
        let task = a.snapshot.tasks().find(|t| t.pid() == pid).expect("the task");
        for fd in task.list::<Fd>().expect("a list") {
            let Ok(s) = std::fs::metadata(format!("/proc/{}/fd/{}", pid, fd.raw.fd)) else {
                continue;
            };
            let dev = device(libc::major(s.dev()), libc::minor(s.dev()));
            compared += 1;
            let (got, want) = ((fd.dev(), fd.inode()), (Some(dev), Some(s.ino())));
            if got != want {
                wrong.insert(format!("{source}: {state} fd {}: {got:x?}, is {want:x?}", fd.raw.fd));
            }
        }
        for vma in task.list::<Vma>().expect("a list").filter(|v| v.raw.inode != 0) {
            let range = format!("{:x}-{:x}", vma.raw.start, vma.raw.end);
            let Ok(s) = std::fs::metadata(format!("/proc/{}/map_files/{range}", pid)) else {
                continue;
            };
            compared += 1;
            let is_it = |f: &Entry<'_, FileStat>| {
                let key = (f.raw.r#as, f.dev(), f.inode());
                key == (FileUse::Mapped as u32, vma.dev(), vma.inode())
            };
            let mut files = a.snapshot.tasks().filter_map(|t| t.list::<FileStat>()).flatten();
            let dev = device(libc::major(s.dev()), libc::minor(s.dev()));
            let got = (vma.inode(), files.find(is_it).map(|f| f.stat_dev()));
            let want = (Some(s.ino()), Some(Some(dev)));
            if got != want {
                wrong.insert(format!("{source}: {state} {range}: {got:x?}, is {want:x?}"));
            }
        }
    }
    (compared, wrong)
}

/// Runs on a file system in a mount namespace of our own.
fn on(scene: &str, make: impl FnOnce(&Path) -> Result<String, String> + Send) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = std::fs::canonicalize(dir.path()).expect("it exists");
    let test = || {
        make(&path).map(|at| {
            let wrong = check(scene, OF_FILES, Path::new(&at));
            let mut all = (0, BTreeSet::new());
            let mut add = |(compared, wrong): (usize, BTreeSet<String>)| {
                all.0 += compared;
                all.1.extend(wrong);
            };
            for state in ["links", "locks", "files", "mappings", "odd-names"] {
                add(as_stat(state, Path::new(&at)));
            }
            // A file of a lower layer, before and after it is copied to the upper one, and a
            // directory of it.
            let lower = Path::new(&at).join(OF_LOWER);
            if lower.exists() {
                let read = File::open(lower.join("file")).expect("a file");
                let _directory = File::open(&lower).expect("a directory");
                add(of_process_as_stat(std::process::id(), "of a lower layer"));
                let both = File::options().append(true).open(lower.join("file"));
                add(of_process_as_stat(std::process::id(), "copied from a lower layer"));
                drop((read, both));
            }
            (wrong, all)
        })
    };
    match mounts::in_own_mounts(test) {
        Ok(Ok((wrong, (compared, other)))) => {
            none(&wrong);
            assert!(compared > 100, "only {compared} files were compared with stat(2)");
            assert!(other.is_empty(), "not as stat(2) on {scene}: {other:#?}");
        }
        Err(why) | Ok(Err(why)) => skip(&format!("columns on {scene}"), &why),
    }
}

#[test]
fn columns_are_the_same_on_btrfs() {
    on("btrfs", mounts::btrfs);
}

#[test]
fn columns_are_the_same_on_an_overlay_of_one_file_system() {
    on("overlay", |dir| {
        let tmpfs = mounts::tmpfs(dir, "tmpfs")?;
        let lower = format!("{tmpfs}/lower");
        of_lower(&lower).map_err(|e| e.to_string())?;
        mounts::overlay(dir, &lower, &tmpfs, "")
    });
}

/// Files of such an overlay have device numbers of their lower layers.
#[test]
fn columns_are_the_same_on_an_overlay_of_several() {
    on("overlay of several", |dir| {
        let (lower, upper) = (mounts::tmpfs(dir, "lower")?, mounts::tmpfs(dir, "upper")?);
        of_lower(&lower).map_err(|e| e.to_string())?;
        mounts::overlay(dir, &lower, &upper, ",xino=off")
    });
}
