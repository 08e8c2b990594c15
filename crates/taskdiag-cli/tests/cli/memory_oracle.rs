//! `maps` and `memory` against what users trust: pmap, smaps, smaps_rollup, and psutil and smem
//! where they are, on a process that stands still. What the kernel says may change between two
//! readings (a page is used, a neighbour ends), so a pair that differs is read again.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use super::common::{parts, run, wait_for_sleep};
use super::oracle::skip;

/// What the program prints.
fn taskdiag(args: &[&str]) -> String {
    let (code, out, err) = parts(&run(args));
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    out
}

/// A process that stands still, ended with the value. Its program is its own file, so that no
/// neighbour shares it.
struct Still {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Still {
    fn new() -> Still {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = dir.path().join("still");
        // By another process: while a thread of this one forks, a file that it writes is busy.
        let sleep = output("sh", &["-c", "command -v sleep"]).expect("sleep is there");
        let program_text = program.to_str().expect("UTF-8");
        output("cp", &["-L", sleep.trim(), program_text]).expect("it can be copied");
        let mut command = Command::new(&program);
        command.arg("1000").env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        let still = Still { child: command.spawn().expect("it runs"), _dir: dir };
        wait_for_sleep(still.child.id(), "still");
        still
    }
    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let o = Command::new(program).env("LC_ALL", "C.UTF-8").args(args).output().ok()?;
    o.status.success().then(|| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// Both sides until they agree; the last pair if they do not.
fn settled<T: PartialEq>(ours: impl FnMut() -> T, theirs: impl FnMut() -> T) -> (T, T) {
    settled_when(|a, b| a == b, ours, theirs)
}

/// The same for values that need not be the same to agree.
fn settled_when<T>(
    agree: impl Fn(&T, &T) -> bool,
    mut ours: impl FnMut() -> T,
    mut theirs: impl FnMut() -> T,
) -> (T, T) {
    let mut pair = (ours(), theirs());
    // Others that map the same files change what is shared, on a busy machine all the time.
    for _ in 0..40 {
        if agree(&pair.0, &pair.1) {
            break;
        }
        pair = (ours(), theirs());
    }
    pair
}

fn words(text: &str) -> Vec<Vec<String>> {
    let line = |l: &str| l.split_whitespace().map(str::to_owned).collect();
    text.lines().map(line).collect()
}

#[test]
fn maps_as_pmap_has_them() {
    let still = Still::new();
    let pid = still.pid();
    if output("pmap", &[&pid]).is_none() {
        return skip("maps_as_pmap_has_them", "pmap (procps) is not installed");
    }
    // Address, size, mode; pmap has other words for names, and a K behind sizes.
    let rows = |text: &str, columns: usize| -> Vec<Vec<String>> {
        let mut rows = words(text);
        rows.retain(|w| w.first().is_some_and(|a| a.len() == 16 && !a.contains('-')));
        let cell = |c: &String| c.strip_suffix('K').unwrap_or(c).to_owned();
        rows.iter().map(|w| w.iter().take(columns).map(cell).collect()).collect()
    };
    for (ours, theirs, columns) in [(&["maps"][..], &[][..], 3), (&["maps", "-x"], &["-x"], 5)] {
        let (got, want) = settled(
            || rows(&taskdiag(&[ours, &[&pid]].concat()), columns),
            || rows(&output("pmap", &[theirs, &[&pid]].concat()).unwrap_or_default(), columns),
        );
        assert!(got.len() > 10);
        assert_eq!(got, want, "pmap {theirs:?}");
    }
    // The totals, in the order of pmap -x: size, resident, dirty.
    let total = |text: String| -> Vec<String> {
        let last = words(&text).pop().unwrap_or_default();
        last.into_iter().filter(|w| w.parse::<u64>().is_ok()).take(3).collect()
    };
    let (got, want) = settled(
        || total(taskdiag(&["maps", "-x", &pid])),
        || total(output("pmap", &["-x", &pid]).unwrap_or_default()),
    );
    assert_eq!((got.len(), &got), (3, &want));
}

/// The figures of smaps in KiB: for each mapping, by the name that they have there.
fn smaps(pid: &str) -> Vec<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("readable");
    let mut all: Vec<BTreeMap<String, String>> = Vec::new();
    for line in text.lines() {
        let (key, value) = line.split_once(' ').expect("two words");
        match key.strip_suffix(':') {
            None => all.push(BTreeMap::from([(
                String::from("Address"),
                format!("{:0>16}", key.split('-').next().unwrap_or("")),
            )])),
            Some(key) => {
                let value = value.trim().trim_end_matches(" kB").to_owned();
                all.last_mut().expect("a mapping").insert(key.to_owned(), value);
            }
        }
    }
    all
}

#[test]
fn everything_as_smaps_has_it() {
    let still = Still::new();
    let pid = still.pid();
    // The columns are named as in smaps, but for those before the figures.
    let ours = || {
        let text = taskdiag(&["maps", "-X", &pid]);
        let rows = words(&text);
        let header = rows[1].clone();
        let figures = header.iter().position(|h| h == "VmFlags").expect("a column");
        let row = |w: &Vec<String>| {
            let cells = header.iter().zip(w).take(figures);
            let named =
                cells.filter(|(h, _)| !["Perm", "Offset", "Device", "Inode"].contains(&h.as_str()));
            named.map(|(h, c)| (h.clone(), c.clone())).collect::<BTreeMap<_, _>>()
        };
        rows[2..rows.len() - 1].iter().map(row).collect::<Vec<_>>()
    };
    let compared = ours()[0].len();
    assert!(compared > 15, "only {compared} columns");
    let theirs = || {
        let keys: Vec<String> = ours()[0].keys().cloned().collect();
        let mut all = smaps(&pid);
        all.iter_mut().for_each(|m| m.retain(|k, _| keys.contains(k)));
        all
    };
    // Shares depend on who else has the page: we do, while we run.
    let exact = |mut all: Vec<BTreeMap<String, String>>| {
        all.iter_mut().for_each(|m| m.retain(|k, _| !k.contains("Pss")));
        all
    };
    let (got, want) = settled(|| exact(ours()), || exact(theirs()));
    assert_eq!(got, want);
    let shares = |all: Vec<BTreeMap<String, String>>| -> u64 {
        all.iter().map(|m| m["Pss"].parse::<u64>().expect("a number")).sum()
    };
    let _users = users_of_libraries();
    let (got, want) = settled_when(|a, b| near(*a, *b), || shares(ours()), || shares(theirs()));
    assert!(near(got, want), "{got} KiB, in smaps {want}");
}

/// Processes that have pages of the C library: one more or less of them, such as our program while
/// it runs, then changes the share of each little, also on a machine that does nothing else.
fn users_of_libraries() -> Vec<Still> {
    (0..8).map(|_| Still::new()).collect()
}

/// As near as the share of a page is while processes come and go.
fn near(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= a.max(b) / 5
}

/// Do the parts agree that can settle, and is the share near?
fn agree(got: (u64, (u64, u64)), want: (u64, (u64, u64))) {
    assert_eq!(got.1, want.1, "uss and swap");
    assert!(got.0 > 0 && near(got.0, want.0), "pss: {} {}", got.0, want.0);
}

/// Bytes of pss, and of uss and swap, as `memory` has them.
fn memory(pid: &str) -> (u64, (u64, u64)) {
    let text = taskdiag(&["memory", "--csv", "--no-headers", "-o", "pss,uss,swap", pid]);
    let n: Vec<u64> = text.trim().split(',').map(|n| n.parse().expect("a number")).collect();
    (n[0], (n[1], n[2]))
}

#[test]
fn memory_as_smaps_rollup_has_it() {
    let still = Still::new();
    let pid = still.pid();
    let theirs = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("readable");
        let kib = |key: &str| -> u64 {
            let line = text.lines().find(|l| l.starts_with(&format!("{key}:"))).expect("a line");
            line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
        };
        let uss = kib("Private_Clean") + kib("Private_Dirty");
        (kib("Pss") * 1024, (uss * 1024, kib("Swap") * 1024))
    };
    let (got, want) = settled_when(|a, b| a.1 == b.1 && near(a.0, b.0), || memory(&pid), theirs);
    assert!(got.1.0 > 0);
    agree(got, want);
}

#[test]
fn memory_as_psutil_has_it() {
    let still = Still::new();
    let pid = still.pid();
    let code = format!(
        "import psutil; m = psutil.Process({pid}).memory_full_info(); print(m.pss, m.uss, m.swap)"
    );
    let theirs = || {
        // That of PATH need not be the one that Debian's python3-psutil is for.
        let args = ["-c", &code];
        let text = output("python3", &args).or_else(|| output("/usr/bin/python3", &args))?;
        let n: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        Some((n[0], (n[1], n[2])))
    };
    if theirs().is_none() {
        return skip("memory_as_psutil_has_it", "psutil (python3-psutil) is not installed");
    }
    let theirs = || theirs().expect("it just did");
    let (got, want) = settled_when(|a, b| a.1 == b.1 && near(a.0, b.0), || memory(&pid), theirs);
    agree(got, want);
}

#[test]
fn memory_as_smem_has_it() {
    let still = Still::new();
    let pid = still.pid();
    // In KiB.
    let theirs = || {
        let text = output("smem", &["-H", "-c", "pid pss uss swap"])?;
        let line = words(&text).into_iter().find(|w| w[0] == pid)?;
        let n: Vec<u64> = line[1..].iter().filter_map(|n| n.parse().ok()).collect();
        Some((n[0], (n[1], n[2])))
    };
    if theirs().is_none() {
        return skip("memory_as_smem_has_it", "smem is not installed, or sees nothing");
    }
    let ours = || {
        let (pss, (uss, swap)) = memory(&pid);
        (pss / 1024, (uss / 1024, swap / 1024))
    };
    let theirs = || theirs().expect("it just did");
    // smem adds up shares that are each rounded down to KiB.
    let is_near = |a: u64, b: u64| a.abs_diff(b) <= 64;
    let (got, want) = settled_when(|a, b| a.1 == b.1 && is_near(a.0, b.0), ours, theirs);
    assert!(is_near(got.0, want.0), "{got:?} {want:?}");
    assert_eq!(got.1, want.1);
}
