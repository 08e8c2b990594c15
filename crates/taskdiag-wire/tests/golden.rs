//! Streams of each released version, which every later version must read. `golden/VERSION.stream`
//! has a value of each member that the format had in that version, and `golden/VERSION.txt` the
//! values that were written. A later version has `golden/VERSION.diff` in place of the text: what
//! diff(1) prints for [`FIRST`] and that text.
//!
//! `TASKDIAG_WRITE=1 cargo test -p taskdiag-wire --test golden` makes the files of this version
//! where they are not there. Existing files are never written again, because users have saved such
//! streams. The text is made from the values that go into the stream, not from the stream.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use taskdiag_wire::layout::{CStruct, Member};
use taskdiag_wire::registry::{STRUCTS, shape};
use taskdiag_wire::*;

/// The text of the first version.
const FIRST: &str = "0.1.0-first.txt";

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The bytes of a member, different for each.
fn fill(bytes: &mut [u8], seed: usize) {
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (seed * 37 + i * 11 + 3) as u8;
    }
}

/// A struct with a value in each member.
fn filled(s: &Struct, seed: usize) -> Vec<u8> {
    let mut bytes = vec![0; s.table.size];
    for (i, m) in s.table.valid.iter().enumerate() {
        fill(&mut bytes[m.offset..m.offset + m.size], seed + usize::from(s.kind) + i);
    }
    bytes
}

/// A line for a member: integers as numbers, anything longer as bytes.
fn line(out: &mut String, of: &str, m: &Member, bytes: &[u8]) {
    let raw = &bytes[m.offset..m.offset + m.size];
    if m.size > 8 {
        writeln!(out, "{of}.{} {}", m.name, raw.escape_ascii()).unwrap();
        return;
    }
    let mut word = [0; 8];
    word[..m.size].copy_from_slice(raw);
    writeln!(out, "{of}.{} {}", m.name, u64::from_ne_bytes(word)).unwrap();
}

/// Lines for the members that these bits say are known.
fn known(out: &mut String, of: &str, table: &CStruct, valid: u32, bytes: &[u8]) {
    let members = (0..).zip(table.valid).filter(|(bit, _)| valid & (1u32 << bit) != 0);
    members.for_each(|(_, m)| line(out, of, m, bytes));
}

fn whole(out: &mut String, of: &str, table: &CStruct, bytes: &[u8]) {
    table.members.iter().for_each(|m| line(out, of, m, bytes));
}

fn blob_line(out: &mut String, attr: u16, kind: u32, flags: u16, total: usize, data: &[u8]) {
    let data = data.escape_ascii();
    writeln!(out, "blob {attr} kind {kind} flags {flags} total {total}: {data}").unwrap();
}

/// A stream and its content as text.
struct Made {
    w: StreamWriter,
    text: String,
}

impl Made {
    fn task(&mut self, pid: u32, tgid: u32) {
        self.w.begin_task(pid, tgid);
        writeln!(self.text, "task {pid} {tgid}").unwrap();
    }
    fn record(&mut self, s: &Struct, valid: u32, seed: usize) {
        let mut bytes = filled(s, seed);
        let nla = NlAttr { len: bytes.len() as u16, kind: s.kind };
        bytes[..4].copy_from_slice(nla.as_bytes());
        bytes[4..8].copy_from_slice(&valid.to_ne_bytes());
        if s.kind == Base::TYPE {
            let (base, _) = <Base as zerocopy::FromBytes>::mut_from_prefix(&mut bytes)
                .expect("the size is right");
            base.comm = *b"gold) \n\xff\0\0\0\0\0\0\0\0";
        }
        known(&mut self.text, s.table.name, s.table, valid, &bytes);
        self.w.raw_attr(&bytes);
    }
    fn list(&mut self, s: &Struct, valid: u32, count: usize) {
        let size = s.table.size;
        let mut bytes = ArrayHdr {
            nla: NlAttr { len: (16 + size * count) as u16, kind: s.kind },
            valid,
            size: size as u32,
            count: count as u32,
        }
        .as_bytes()
        .to_vec();
        writeln!(self.text, "list {}", s.table.name).unwrap();
        for i in 0..count {
            let entry = filled(s, i * 100);
            known(&mut self.text, &format!("{}[{i}]", s.table.name), s.table, valid, &entry);
            bytes.extend(entry);
        }
        self.w.raw_attr(&bytes);
    }
    fn blob(&mut self, attr: u16, kind: u32, flags: u16, data: &[u8], total: usize) {
        self.w.put_blob(attr, kind, flags, data, total);
        let flags = if data.len() < total { flags | BLOB_CUT } else { flags };
        blob_line(&mut self.text, attr, kind, flags, total, data);
    }
}

/// Types of all blobs, groups and others.
fn blobs() -> impl Iterator<Item = u16> {
    (0..128).filter(|kind| matches!(shape(*kind), Some(Shape::Blob)))
}

/// A stream with everything that the format has.
fn make() -> (AlignedBuf, String) {
    let mut m = Made { w: StreamWriter::new(), text: String::new() };
    let mut info = StreamWriter::blank_info();
    fill(&mut zerocopy::IntoBytes::as_mut_bytes(&mut info)[8..], 1);
    info.show_flags = (1 << Group::ALL.len()) - 1;
    info.dump_strategy = Strategy::Children as u64;
    whole(&mut m.text, "info", &Info::C, info.as_bytes());
    m.w.info(&info);

    let structs = || STRUCTS.iter().filter(|s| !s.table.valid.is_empty());
    m.task(42, 42);
    for s in structs().filter(|s| !s.is_list) {
        m.record(s, s.table.valid_within(s.table.size), 0);
    }
    for s in structs().filter(|s| s.is_list) {
        m.list(s, s.table.valid_within(s.table.size), 3);
    }
    for attr in blobs() {
        let ids = [1u32, 2, 4_000_000_000].map(u32::to_ne_bytes).concat();
        let is_ids = matches!(attr, A_GROUPS | A_NSPID | A_UID_MAP | A_GID_MAP);
        let data = if is_ids { ids } else { format!("a value of {attr}\0\u{ff}").into_bytes() };
        m.blob(attr, 7, if attr == A_NAME { BLOB_DELETED } else { 0 }, &data, data.len());
    }
    m.w.end_task();

    m.task(43, 42);
    for s in structs().filter(|s| !s.is_list) {
        m.record(s, 0x5555_5555 & s.table.valid_within(s.table.size), 50);
    }
    for s in structs().filter(|s| s.is_list) {
        m.list(s, 0, 0);
    }
    m.blob(A_COMM, 0, 0, b"kworker/u257:3-events_unbound", 29);
    m.blob(Group::Cmdline as u16, 0, BLOB_REWRITTEN, b"cut", 300);
    m.blob(Group::Environ as u16, 0, 0, b"", 0);
    m.w.put_blob_missing(Group::Paths as u16, PathKind::Exe as u32, Reason::Denied);
    writeln!(m.text, "blob {} kind 0 reason {}", Group::Paths as u16, Reason::Denied).unwrap();
    m.w.end_task();

    m.task(44, 44);
    for (group, reason) in Group::ALL.iter().zip(Reason::ALL.iter().cycle()) {
        m.w.missing(*group, *reason);
        writeln!(m.text, "missing {group} {reason}").unwrap();
    }
    m.w.end_task();
    m.w.continue_task(44, 44);
    m.w.shared(Group::Fd, 42);
    writeln!(m.text, "shared fd 42").unwrap();
    m.w.end_task();

    let w = std::mem::take(&mut m.w);
    let extra = build!(Done { error: -4, vanished: 5, over_budget: 6, ..Done::default() });
    let stream = w.finish(extra);
    let done = build!(Done {
        error: -4,
        reserved: 0,
        tasks: 3,
        denied: 1,
        vanished: 6,
        blocked: 1,
        truncated: 2,
        over_budget: 7,
    });
    whole(&mut m.text, "done", &Done::C, done.as_bytes());
    (stream, m.text)
}

/// The text of a stream, in the order in which `make` writes it.
fn read(stream: &Stream<AlignedBuf>) -> String {
    let mut out = String::new();
    whole(&mut out, "info", &Info::C, stream.info().as_bytes());
    for t in stream.tasks() {
        writeln!(out, "task {} {}", t.pid(), t.tgid()).unwrap();
        for (kind, attr) in t.attrs() {
            let name = || STRUCTS.iter().find(|s| s.kind == kind).expect("it is a struct");
            match shape(kind) {
                Some(Shape::Record(table)) if !table.valid.is_empty() => {
                    let valid = u32::from_ne_bytes(attr[4..8].try_into().expect("4"));
                    known(&mut out, name().table.name, table, valid, attr);
                }
                Some(Shape::List(table)) => {
                    let (hdr, data) = ArrayHdr::read_from_prefix(attr).expect("checked");
                    writeln!(out, "list {}", table.name).unwrap();
                    let entries = data.chunks_exact(hdr.size as usize).take(hdr.count as usize);
                    for (i, e) in entries.enumerate() {
                        known(&mut out, &format!("{}[{i}]", table.name), table, hdr.valid, e);
                    }
                }
                Some(Shape::Blob) => {
                    let (hdr, data) = BlobHdr::read_from_prefix(attr).expect("checked");
                    if hdr.reason != 0 {
                        let why = Reason::from_number(hdr.reason.into()).expect("a reason");
                        writeln!(out, "blob {kind} kind {} reason {why}", hdr.kind).unwrap();
                        continue;
                    }
                    let data = &data[..hdr.len as usize];
                    blob_line(&mut out, kind, hdr.kind, hdr.flags, hdr.total as usize, data);
                }
                _ => {}
            }
        }
        for g in Group::ALL {
            if let Some(reason) = t.reason(*g) {
                writeln!(out, "missing {g} {reason}").unwrap();
            }
        }
        for g in Group::ALL {
            if let Some(pid) = t.shared(*g) {
                writeln!(out, "shared {g} {pid}").unwrap();
            }
        }
    }
    whole(&mut out, "done", &Done::C, stream.done().as_bytes());
    out
}

/// Members added to INFO and DONE after this text have no line in it.
fn of_its_time(text: &str, want: &str) -> String {
    let key = |l: &str| l.split(' ').next().unwrap_or(l).to_string();
    let keys: Vec<String> = want.lines().map(key).collect();
    let is_head = |l: &str| l.starts_with("info.") || l.starts_with("done.");
    let lines = text.lines().filter(|l| !is_head(l) || keys.contains(&key(l)));
    lines.map(|l| format!("{l}\n")).collect()
}

/// The text that diff(1) compared with `old`.
fn patched(old: &str, diff: &str) -> String {
    let old: Vec<&str> = old.lines().collect();
    let (mut out, mut at) = (Vec::new(), 0);
    for line in diff.lines() {
        if let Some(new) = line.strip_prefix("> ") {
            out.push(new);
        } else if let Some(gone) = line.strip_prefix("< ") {
            assert!(old[..at].contains(&gone), "{gone} is not in {FIRST}");
        } else if let Some(sign) = line.find(['a', 'c', 'd']) {
            let (first, last) =
                line[..sign].split_once(',').unwrap_or((&line[..sign], &line[..sign]));
            let [first, last]: [usize; 2] = [first, last].map(|n| n.parse().expect("a line"));
            // Added lines follow a line that stays.
            let stays = if &line[sign..=sign] == "a" { first } else { first - 1 };
            out.extend(&old[at..stays]);
            at = last;
        }
    }
    out.extend(&old[at..]);
    out.iter().map(|line| format!("{line}\n")).collect()
}

fn check(stream: &[u8], want: &str, name: &str) {
    let parsed = Stream::parse(AlignedBuf::copy_of(stream));
    let parsed = parsed.unwrap_or_else(|e| panic!("{name} cannot be read any more: {e}"));
    let got = of_its_time(&read(&parsed), want);
    for (got, want) in got.lines().zip(want.lines()) {
        assert_eq!(got, want, "in {name}");
    }
    assert_eq!(got.lines().count(), want.lines().count(), "in {name}");
    for t in parsed.tasks() {
        let found = parsed.task(t.pid()).map(|t| t.messages());
        assert_eq!(found, Some(t.messages()), "task {} in {name}", t.pid());
    }
    let first = parsed.get(0).expect("a task");
    assert_eq!(first.record::<Base>().expect("BASE").comm().map(|c| c[15]), Some(0));
    // BASE has a name of less than 15 bytes as a whole. A longer name is complete in its attribute
    // only.
    assert_eq!(first.comm(), Some(&b"gold) \n\xff"[..]), "in {name}");
    assert!(parsed.name(7).is_some_and(|n| n.flags == BLOB_DELETED), "in {name}");
}

#[test]
fn streams_of_all_versions_are_read() {
    let (stream, text) = make();
    check(stream.as_bytes(), &text, "the stream of this version");
    let version = env!("CARGO_PKG_VERSION");
    let (file, described) =
        (dir().join(format!("{version}.stream")), dir().join(format!("{version}.txt")));
    if std::env::var_os("TASKDIAG_WRITE").is_some() && !file.exists() {
        fs::create_dir_all(dir()).expect("the directory");
        fs::write(&file, stream.as_bytes()).expect("the stream is written");
        fs::write(&described, &text).expect("the text is written");
    }
    assert!(
        file.exists(),
        "there is no stream of version {version}: run TASKDIAG_WRITE=1 cargo test \
         -p taskdiag-wire --test golden, and commit it"
    );
    let mut seen = 0;
    for entry in fs::read_dir(dir()).expect("the streams") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|e| e == "stream") {
            let bytes = fs::read(&path).expect("a stream");
            let text = |path: PathBuf| fs::read_to_string(path).expect("values");
            let want = match path.with_extension("diff") {
                diff if diff.exists() => patched(&text(dir().join(FIRST)), &text(diff)),
                _ => text(path.with_extension("txt")),
            };
            check(&bytes, &want, &path.display().to_string());
            seen += 1;
        }
    }
    assert!(seen > 0, "no stream was read");
}
