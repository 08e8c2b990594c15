//! Compares mappings, open files and sockets with programs that users trust today: pmap, lsof,
//! lsfd, ss and psutil, on the states of mktask that have one of each kind.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use taskdiag::wire::{Fd, Socket, Vma, VmaStat};
use taskdiag::{FdType, Group, Groups, Request, VmaKind};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::rows::{Row, owner, rows};
use taskdiag_tests::{Answer, Mktask, Value, plain_dir, read, skip};

/// The output of a program. `None`, after a loud message, if the program is not there.
fn run(program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).output() {
        Ok(out) if !out.stdout.is_empty() => {
            Some(String::from_utf8_lossy(&out.stdout).into_owned())
        }
        Ok(out) => {
            let why = String::from_utf8_lossy(&out.stderr).into_owned();
            skip(program, &format!("it says nothing: {}", why.lines().last().unwrap_or_default()));
            None
        }
        Err(e) => {
            skip(program, &e.to_string());
            None
        }
    }
}

/// A Python that has psutil: the Python in PATH, or the Python of Debian's python3-psutil.
fn python() -> &'static str {
    let has = |p: &&str| {
        let done = Command::new(p).args(["-c", "import psutil"]).output();
        done.is_ok_and(|o| o.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has).unwrap_or("python3")
}

fn start(state: &str) -> Option<(tempfile::TempDir, Mktask)> {
    let (dir, path) = plain_dir();
    Some((dir, Mktask::or_skip(state, &[state, &path])?))
}

fn answers(m: &Mktask, groups: Groups, needed: Group) -> Vec<Answer> {
    let ask = |e| read(e, &Request::one(m.pid(), groups)).expect("an answer");
    let all: Vec<Answer> = engines_with(needed).into_iter().map(ask).collect();
    assert!(!all.is_empty(), "no engine has {needed}");
    all
}

fn num(row: &Row, key: &str) -> Option<i128> {
    match row.get(key) {
        Some(Value::Num(n)) => Some(*n),
        _ => None,
    }
}

fn text(row: &Row) -> String {
    match row.get("name") {
        Some(Value::Bytes(b)) => String::from_utf8_lossy(b).into_owned(),
        _ => String::new(),
    }
}

#[test]
fn mappings_are_those_of_pmap() {
    let Some((_dir, m)) = start("mappings") else { return };
    // The columns are address, Kbytes, RSS, Dirty, mode and mapping.
    let Some(out) = run("pmap", &["-x", &m.pid().to_string()]) else { return };
    let mut want = BTreeMap::new();
    for line in out.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, kib, rss, _, mode, ..] = words[..] else { continue };
        let (Ok(start), Ok(kib)) = (i128::from_str_radix(address, 16), kib.parse::<i128>()) else {
            continue;
        };
        want.insert(start, (kib * 1024, rss.parse::<i128>().unwrap_or(0) * 1024, mode.to_string()));
    }
    for a in answers(&m, Groups::VMA, Group::Vma) {
        let list = rows::<Vma>(&owner(&a, m.pid(), Group::Vma));
        let got: BTreeMap<i128, (i128, String)> = list
            .iter()
            .map(|r| {
                let n = |key| num(r, key).expect("it is known");
                let perms = n("perms");
                let letter = |bit, c| if perms & bit != 0 { c } else { '-' };
                let mode: String =
                    [letter(1, 'r'), letter(2, 'w'), letter(4, 'x'), letter(8, 's'), '-']
                        .iter()
                        .collect();
                (n("start"), (n("end") - n("start"), mode))
            })
            .collect();
        let want: BTreeMap<_, _> =
            want.iter().map(|(k, (size, _, mode))| (*k, (*size, mode.clone()))).collect();
        assert_eq!(got, want, "{a}");
        assert!(got.len() > 20, "{a}");
    }
    for a in answers(&m, Groups::VMA_STAT, Group::VmaStat) {
        let list = rows::<VmaStat>(&owner(&a, m.pid(), Group::VmaStat));
        for r in &list {
            let n = |key| num(r, key).expect("it is known");
            assert_eq!(n("rss_bytes"), want[&n("start")].1, "{a}: rss at {:#x}", n("start"));
        }
        assert_eq!(list.len(), want.len(), "{a}");
    }
}

/// A table of mappings: for each address, the words before the last column by their headers.
/// Columns after one that may have several words are left out.
fn table(text: &str) -> BTreeMap<u64, BTreeMap<String, String>> {
    let mut lines = text.lines().skip_while(|l| !l.trim_start().starts_with("Address"));
    let headers: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let end = headers.iter().position(|h| matches!(*h, "VmFlags" | "Mapping"));
    let headers = &headers[..end.expect("the last column")];
    lines
        .filter_map(|l| {
            let words = l.split_whitespace();
            // The totals have fewer words.
            let all = words.clone().count() >= headers.len();
            let address = u64::from_str_radix(words.clone().next()?, 16).ok().filter(|_| all)?;
            Some((
                address,
                headers.iter().map(|h| h.to_string()).zip(words.map(Into::into)).collect(),
            ))
        })
        .collect()
}

/// Compares every column of pmap -X. Numbers that other processes change are left out, because they
/// may map the same library meanwhile.
#[test]
fn mappings_are_those_of_pmap_with_all_columns() {
    const MAY_CHANGE: [&str; 7] = [
        "Pss",
        "Pss_Dirty",
        "Referenced",
        "Shared_Clean",
        "Shared_Dirty",
        "Private_Clean",
        "Private_Dirty",
    ];
    let Some((_dir, m)) = start("mappings") else { return };
    let pid = m.pid().to_string();
    let Some(want) = run("pmap", &["-X", &pid]) else { return };
    let program = taskdiag().to_str().expect("a plain path");
    let got = run(program, &["maps", "-X", &pid]).expect("it says something");
    let (want, got) = (table(&want), table(&got));
    assert!(want.len() > 20 && want.keys().eq(got.keys()), "{:?} {:?}", want.keys(), got.keys());
    for (address, row) in &want {
        assert!(row.len() > 10, "{row:?}");
        for (header, value) in row {
            let ours = got[address].get(header);
            assert!(ours.is_some(), "there is no column {header}");
            // The rows were found by their addresses.
            if header != "Address" && !MAY_CHANGE.contains(&header.as_str()) {
                assert_eq!(ours, Some(value), "{header} of {address:x}");
            }
        }
    }
}

/// The fields that lsof has for each descriptor.
fn lsof(pid: u32) -> Option<BTreeMap<i128, BTreeMap<char, String>>> {
    let out = run("lsof", &["-n", "-P", "-w", "-F", "fatdDsion", "-p", &pid.to_string()])?;
    let mut all = BTreeMap::new();
    let mut fd = None;
    for line in out.lines().filter(|l| l.is_char_boundary(1)) {
        let (letter, value) = line.split_at(1);
        if letter == "f" {
            fd = value.parse::<i128>().ok();
        }
        if let (Some(fd), Some(letter)) = (fd, letter.chars().next()) {
            all.entry(fd).or_insert_with(BTreeMap::new).insert(letter, value.to_string());
        }
    }
    Some(all)
}

#[test]
fn files_are_those_of_lsof() {
    let Some((_dir, m)) = start("files") else { return };
    let Some(want) = lsof(m.pid()) else { return };
    for a in answers(&m, Groups::FD, Group::Fd) {
        let list = rows::<Fd>(&owner(&a, m.pid(), Group::Fd));
        let fds: BTreeSet<i128> = list.iter().filter_map(|r| num(r, "fd")).collect();
        assert_eq!(fds, want.keys().copied().collect(), "{a}");
        let (mut inodes, mut names) = (0, 0);
        for r in &list {
            let w = &want[&num(r, "fd").expect("it is known")];
            // For some sockets lsof shows a protocol in its node column and has another number in
            // this field.
            if let (Some(i), Some(n)) = (w.get(&'i').and_then(|i| i.parse().ok()), num(r, "inode"))
            {
                assert_eq!(n, i, "{a}: {r:?} and {w:?}");
                inodes += 1;
            }
            let kind = num(r, "type").and_then(|n| FdType::from_number(n as u32));
            let lsof_type = w.get(&'t').map(String::as_str);
            // lsof 4.99 (Debian 13) recognizes a message queue only if mqueue is mounted.
            let queue = lsof_type == Some("PSXMQ");
            assert!(!queue || kind == Some(FdType::Mqueue), "{a}: {r:?} and {w:?}");
            if let Some(t) = kind.and_then(|k| match k {
                FdType::Mqueue if queue => None,
                FdType::Reg | FdType::Memfd | FdType::Mqueue => Some("REG"),
                FdType::Dir => Some("DIR"),
                FdType::Chr => Some("CHR"),
                FdType::Pipe | FdType::Fifo => Some("FIFO"),
                _ => None,
            }) {
                assert_eq!(lsof_type, Some(t), "{a}: {r:?}");
            }
            if kind == Some(FdType::Chr) || kind == Some(FdType::Dir) {
                assert_eq!(w.get(&'n'), Some(&text(r)), "{a}");
                names += 1;
            }
        }
        assert!(inodes > 8 && names >= 2, "{a}: {inodes} inodes, {names} names");
    }
}

#[test]
fn types_of_files_are_those_of_lsfd() {
    let Some((_dir, m)) = start("files") else { return };
    let args = ["-r", "-n", "-p", &m.pid().to_string(), "-o", "FD,TYPE,INODE,POS"];
    let Some(out) = run("lsfd", &args) else { return };
    let want: BTreeMap<i128, Vec<&str>> = out
        .lines()
        .filter_map(|l| {
            let words: Vec<&str> = l.split_whitespace().collect();
            Some((words.first()?.parse().ok()?, words))
        })
        .collect();
    for a in answers(&m, Groups::FD, Group::Fd) {
        let mut compared = 0;
        for r in rows::<Fd>(&owner(&a, m.pid(), Group::Fd)) {
            let fd = num(&r, "fd").expect("it is known");
            let Some([_, kind, inode, pos]) = want.get(&fd).map(Vec::as_slice) else { continue };
            let number = |s: &str| s.parse::<i128>().ok();
            assert_eq!(num(&r, "inode"), number(inode), "{a}: {r:?}");
            if *kind == "REG" {
                assert_eq!(num(&r, "pos_bytes"), number(pos), "{a}: {r:?}");
            }
            compared += 1;
        }
        assert!(compared > 10, "{a}: {compared} of {}", want.len());
    }
}

#[test]
fn sockets_are_those_of_ss() {
    let Some((_dir, m)) = start("files") else { return };
    let Some(out) = run("ss", &["-H", "-a", "-n", "-t", "-e"]) else { return };
    // The columns are state, queues, local, peer, ..., ino:N.
    let mut want = BTreeMap::new();
    for line in out.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let inode = words.iter().find_map(|w| w.strip_prefix("ino:")?.parse::<i128>().ok());
        if let (Some(inode), [state, _, _, local, peer, ..]) = (inode, &words[..]) {
            want.insert(inode, (state.to_string(), local.to_string(), peer.to_string()));
        }
    }
    let links = std::fs::read_dir(format!("/proc/{}/fd", m.pid())).expect("our own task");
    let links = links.filter_map(|e| std::fs::read_link(e.ok()?.path()).ok());
    let inode = |link: std::path::PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<i128>().ok()
    };
    let all = links.filter_map(inode).filter(|i| want.contains_key(i)).count();
    assert!(all >= 3, "ss has {all} TCP sockets of the task");
    for a in answers(&m, Groups::FD, Group::Fd) {
        let mut compared = 0;
        for r in rows::<Socket>(&owner(&a, m.pid(), Group::Fd)) {
            let Some((state, local, peer)) = num(&r, "inode").and_then(|i| want.get(&i)) else {
                continue;
            };
            let port = |s: &str| s.rsplit(':').next().and_then(|p| p.parse::<i128>().ok());
            let states = ["", "ESTAB", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1"];
            let name = match num(&r, "state").expect("it is known") {
                10 => "LISTEN",
                n => states[n as usize],
            };
            assert_eq!(name, state, "{a}");
            assert_eq!(num(&r, "local_port"), port(local), "{a}");
            assert_eq!(num(&r, "peer_port"), Some(port(peer).unwrap_or(0)), "{a}");
            compared += 1;
        }
        assert_eq!(compared, all, "{a}: the TCP sockets of the task");
    }
}

#[test]
fn memory_is_that_of_psutil() {
    let Some((_dir, m)) = start("mappings") else { return };
    let code = "import psutil, sys; p = psutil.Process(int(sys.argv[1])); m = p.memory_full_info(); \
                print(m.rss, m.uss, m.pss, m.swap, p.num_fds(), len(p.memory_maps(grouped=False)))";
    let Some(out) = run(python(), &["-c", code, &m.pid().to_string()]) else { return };
    let n: Vec<i128> = out.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [_, uss, pss, swap, fds, maps] = n[..] else { return skip("psutil", &out) };
    for a in answers(&m, Groups::VMA_STAT | Groups::ROLLUP | Groups::FD_COUNT, Group::Rollup) {
        let t = owner(&a, m.pid(), Group::Rollup);
        let r = t.record::<taskdiag::Rollup>().expect("it is there");
        let private = r.private_clean_bytes().zip(r.private_dirty_bytes());
        let private = private.map(|(c, d)| i128::from(c) + i128::from(d)).expect("it is known");
        // Other processes that map the same libraries come and go.
        let slack = 1 << 20;
        assert!((private - uss).abs() < slack, "{a}: uss {private} and {uss}");
        let ours = i128::from(r.pss_bytes().expect("it is known"));
        assert!((ours - pss).abs() < slack, "{a}: pss {ours} and {pss}");
        assert_eq!(r.swap_bytes().map(i128::from), Some(swap), "{a}");
        assert_eq!(t.list::<VmaStat>().map(|l| l.count() as i128), Some(maps), "{a}");
        let open = t.record::<taskdiag::FdCount>().and_then(|c| c.open());
        assert_eq!(open.map(i128::from), Some(fds), "{a}");
    }
    let heap = VmaKind::Heap as i128;
    for a in answers(&m, Groups::VMA, Group::Vma) {
        let list = rows::<Vma>(&owner(&a, m.pid(), Group::Vma));
        assert_eq!(list.len() as i128, maps, "{a}");
        assert!(list.iter().any(|r| num(r, "kind") == Some(heap)), "{a}");
    }
}
