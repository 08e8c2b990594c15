//! Names of users and groups are the same as in the C library, even if the files have odd lines.
//! Each file is put over /etc/passwd and /etc/group in a mount namespace of its own, and `getent`
//! judges.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use super::common::{Ended, Saved, Task, skip};

const FILES: usize = 200;
const IDS: [u32; 8] = [0, 5, 8, 4242, 4243, 4244, 70_000, u32::MAX];

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.roll(all.len())]
    }
}

/// Different ends of lines. getent refuses to print an entry whose last field has a colon.
const USERS: [&str; 4] = [":gecos:/:/bin/sh", "::/:", ":", ""];
const GROUPS: [&str; 4] = ["", "", ",b,c", "l"];

/// A file that programs and people have spoiled.
fn odd(dice: &mut Dice, tails: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for n in 0..dice.roll(25) {
        let mut line = String::from(
            dice.of(&["", "", "", "", "", "", "#", " ", "\t ", " #", "+", "-", "\u{b}"]),
        );
        let names = ["u", "user", "a b", "ü", "x.y-z", "n$", "UPPER", "u#v", "1234", ""];
        write!(line, "{}{n}", dice.of(&names)).unwrap();
        if dice.roll(12) == 0 {
            line = line.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        }
        line.push_str(dice.of(&[":x:", ":x:", ":x:", ":x:", "::", ":", "", ":x", "::x:"]));
        let id = |dice: &mut Dice| {
            let id = IDS[dice.roll(IDS.len())];
            match dice.roll(16) {
                0 => format!("+{id}"),
                1 => format!(" {id}"),
                2 => format!("{id} "),
                3 => format!("00{id}"),
                4 => format!("{id}x"),
                5 => format!("0x{id}"),
                6 => String::new(),
                7 => String::from("-1"),
                8 => String::from("4294967296"),
                9 => String::from("99999999999999999999999999"),
                _ => id.to_string(),
            }
        };
        line.push_str(&id(dice));
        line.push_str(dice.of(&[":", ":", ":", ":", "", ":x", " :"]));
        if dice.roll(4) > 0 {
            line.push_str(&id(dice));
        }
        line.push_str(dice.of(tails));
        if dice.roll(40) == 0 {
            line.push_str(&"l".repeat(5000));
        }
        out.extend_from_slice(line.as_bytes());
        if dice.roll(30) == 0 {
            out.extend_from_slice(b"\0z:x:5:5::/:");
        }
        out.extend_from_slice(dice.of(&["\n", "\n", "\n", "\n", "\n\n", "\r\n"]).as_bytes());
    }
    if dice.roll(4) == 0 {
        out.pop();
    }
    out
}

/// The names by id that lines of getent have, or that ours have.
fn by_id(lines: &[u8], name: usize, id: usize) -> BTreeMap<u32, Vec<u8>> {
    let mut map = BTreeMap::new();
    for line in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        let number = std::str::from_utf8(fields[id]).unwrap().trim().parse().unwrap();
        map.insert(number, fields[name].to_vec());
    }
    map
}

/// Whether the tools and the rights are available.
fn cannot(test: &str) -> bool {
    // SAFETY: no arguments, cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has_getent = Command::new("getent").args(["passwd", "0"]).output().is_ok();
    if !is_root || !has_getent {
        skip(test, "it needs root and getent");
    }
    !is_root || !has_getent
}

/// The output of this shell script, with these files in place of those in /etc.
fn beside(dir: &tempfile::TempDir, script: &str, binds: &[(&str, &str)]) -> Vec<u8> {
    let mut whole = String::from("set -e\n");
    for (file, over) in binds {
        writeln!(whole, "mount --bind {}/{file} {over}", dir.path().display()).unwrap();
    }
    whole.push_str(script);
    let o =
        Command::new("unshare").args(["--mount", "sh", "-c", &whole]).env("LC_ALL", "C").output();
    let o = o.unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    o.stdout
}

const ETC: [(&str, &str); 2] = [("passwd", "/etc/passwd"), ("group", "/etc/group")];

fn tasks() -> Saved {
    let task = |(n, uid): (usize, &u32)| Task { uid: *uid, ..Task::new(n as u32 + 1, 0, "t") };
    Saved::tasks(&IDS.iter().enumerate().map(task).collect::<Vec<_>>())
}

#[test]
fn names_are_those_of_getent_in_odd_files() {
    if cannot("names_are_those_of_getent_in_odd_files") {
        return;
    }
    let mut dice = Dice(0x5eed_1234_abcd_0001);
    let dir = tempfile::tempdir().unwrap();
    let saved = tasks();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let ids = IDS.map(|id| id.to_string()).join(" ");
    let from = saved.path();
    let script = format!(
        "getent passwd {ids} || true; echo ==; getent group {ids} || true; echo ==; \
         {program} ps --from {} --csv -o uid,user; echo ==; grep -vn '^$' {}/passwd | wc -l",
        from.display(),
        dir.path().display()
    );
    let mut named = 0;
    for n in 0..FILES {
        let text = odd(&mut dice, &USERS);
        std::fs::write(dir.path().join("passwd"), &text).unwrap();
        std::fs::write(dir.path().join("group"), odd(&mut dice, &GROUPS)).unwrap();
        let out = beside(&dir, &script, &ETC);
        let mut pieces = vec![Vec::new()];
        for line in out.split_inclusive(|b| *b == b'\n') {
            match line {
                b"==\n" => pieces.push(Vec::new()),
                line => pieces.last_mut().unwrap().extend_from_slice(line),
            }
        }
        let theirs = by_id(&pieces[0], 0, 2);
        let ours = String::from_utf8(pieces[2].clone()).unwrap();
        for (id, line) in IDS.iter().zip(ours.lines().skip(1)) {
            let name = line.split_once(',').unwrap().1.trim_matches('"');
            let is = theirs.get(id).filter(|name| !name.is_empty());
            named += usize::from(is.is_some());
            let is = is.map_or(id.to_string(), |n| String::from_utf8_lossy(n).into_owned());
            assert_eq!(name, is, "uid {id} in file {n}:\n{}", String::from_utf8_lossy(&text));
        }
    }
    assert!(named > FILES, "the files have so few names that nothing was tested: {named}");
}

#[test]
fn groups_are_those_of_getent_and_where_selects_users_as_u_does() {
    if cannot("groups_are_those_of_getent_and_where_selects_users_as_u_does") {
        return;
    }
    let mut dice = Dice(0x5eed_1234_abcd_0002);
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    // Processes of this machine, as they have groups. The program reads a saved answer about them.
    let mut sleepers: Vec<Ended> = Vec::new();
    for id in ["5", "8", "4242", "70000"] {
        let words = ["--reuid", id, "--regid", id, "--clear-groups", "sleep", "3000"];
        sleepers.push(Ended(Command::new("setpriv").args(words).spawn().expect("setpriv")));
    }
    for sleeper in &sleepers {
        super::common::wait_for_sleep(sleeper.0.id(), "sleep");
    }
    let pids: Vec<String> = sleepers.iter().map(|s| s.0.id().to_string()).collect();
    let pids = pids.join(",");
    let ids = IDS.map(|id| id.to_string()).join(" ");
    let script = format!(
        "getent group {ids} || true; echo ==; {program} ps -p {pids} --csv -o gid,group; echo ==; \
         name=$(getent passwd 5 | cut -d: -f1); \
         case \"$name\" in *[!0-9]*) {program} ps -p {pids} -o pid= --where \"user == '$name'\"; echo --; \
         {program} ps -o pid= --where \"pid in ({pids})\" -u \"$name\";; esac"
    );
    let (mut named, mut compared) = (0, 0);
    for n in 0..FILES / 8 {
        let text = odd(&mut dice, &GROUPS);
        std::fs::write(dir.path().join("group"), &text).unwrap();
        let mut users = odd(&mut dice, &USERS);
        users.extend_from_slice(b"\nlast:x:5:5::/:\n");
        std::fs::write(dir.path().join("passwd"), users).unwrap();
        let out = beside(&dir, &script, &ETC);
        let out = String::from_utf8_lossy(&out);
        let mut pieces = out.split("==\n");
        let theirs = by_id(pieces.next().unwrap().as_bytes(), 0, 2);
        for line in pieces.next().unwrap().lines().skip(1) {
            let (id, name) = line.split_once(',').unwrap();
            let is = theirs.get(&id.parse().unwrap()).filter(|name| !name.is_empty());
            named += usize::from(is.is_some());
            let is = is.map_or(id.to_owned(), |n| String::from_utf8_lossy(n).into_owned());
            assert_eq!(
                name.trim_matches('"'),
                is,
                "gid {id} in file {n}:\n{}",
                String::from_utf8_lossy(&text)
            );
        }
        if let Some((by_name, by_user)) = pieces.next().unwrap_or_default().split_once("--\n") {
            assert_eq!(by_name, by_user, "file {n}");
            compared += 1;
        }
    }
    assert!(named > 10 && compared > 3, "too little was tested: {named} {compared}");
}

#[test]
fn the_c_library_is_asked_where_it_asks_others_first() {
    if cannot("the_c_library_is_asked_where_it_asks_others_first") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let write = |name, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("passwd", "one:x:4242:1::/:/bin/sh\n");
    write("group", "one:x:4242:\n");
    // The file decides unless there are sources other than files.
    write("nsswitch.conf", "passwd: nosuchmodule\n");
    let saved = tasks();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let script = format!(
        "getent passwd 4242 || true; {program} ps --from {} -o user= -p 4",
        saved.path().display()
    );
    let binds = [ETC[0], ETC[1], ("nsswitch.conf", "/etc/nsswitch.conf")];
    assert_eq!(String::from_utf8(beside(&dir, &script, &binds)).unwrap().trim(), "4242");
    write("nsswitch.conf", "passwd: files\n");
    let out = String::from_utf8(beside(&dir, &script, &binds)).unwrap();
    assert_eq!(out.lines().last().map(str::trim), Some("one"), "{out}");
}

#[test]
fn a_name_service_that_hangs_is_not_waited_for() {
    if cannot("a_name_service_that_hangs_is_not_waited_for") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("passwd");
    // The C library opens it and waits for a writer. Our own reader does not, as nsswitch.conf
    // lacks the file.
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    std::fs::write(dir.path().join("nsswitch.conf"), "passwd: compat\ngroup: files\n").unwrap();
    let saved = tasks();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let script = format!("{program} ps --from {} --csv -o uid,user 2>&1", saved.path().display());
    let begun = Instant::now();
    let out = beside(&dir, &script, &[ETC[0], ("nsswitch.conf", "/etc/nsswitch.conf")]);
    let out = String::from_utf8_lossy(&out);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(out.contains("4242,4242") || out.contains("4242,\"4242\""), "{out}");
    assert!(out.contains("does not answer in time"), "{out}");
}
