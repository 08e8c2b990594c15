//! Recordings with sockets and mapped files, and the rows that their tables must have.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use taskdiag::recording::{Options, Writer};
use taskdiag::wire::{BLOB_DELETED, Done, Info, StreamWriter, build};
use taskdiag::{Base, Fd, FdType, Group, Groups, Reason, Snapshot, Socket, Strategy, Vma, VmaKind};

use super::table::{self, Batch, Row};
use super::{BEGIN, MINUTE, SECOND_NS, text};

pub const ESTABLISHED: u16 = 1;
pub const LISTEN: u16 = 10;
const TCP: u16 = 6;

/// A socket: state, local port, inode.
pub type Sock = (u16, u16, u64);
/// A file that is mapped: path, inode, deleted.
pub type Mapped = (&'static str, u64, bool);

/// A process in a frame. A list that is an error is not in the frame for this reason.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub start_ticks: u64,
    pub sockets: Result<BTreeMap<u32, Sock>, Reason>,
    pub mapped: Result<Vec<Mapped>, Reason>,
}

impl Process {
    pub fn new(pid: u32, sockets: &[(u32, Sock)], mapped: &[Mapped]) -> Process {
        let sockets = Ok(sockets.iter().copied().collect());
        Process { pid, start_ticks: u64::from(pid) * 10, sockets, mapped: Ok(mapped.to_vec()) }
    }
}

/// A number that no other name of the stream has.
fn name(pid: u32, n: u32) -> u32 {
    pid * 10 + n
}

pub fn put_files(w: &mut StreamWriter, pid: u32, sockets: &BTreeMap<u32, Sock>) {
    let file = |fd, kind: FdType, inode| {
        let (r#type, nlink) = (kind as u32, 1);
        build!(Fd { fd, r#type, inode, nlink, dev: 14, flags: 2, ..Fd::default() })
    };
    // A file that is no socket, which has a path.
    let mut fds = vec![build!(Fd { name: name(pid, 9), ..file(0, FdType::Reg, 77) })];
    fds.extend(sockets.iter().map(|(fd, (.., inode))| file(*fd, FdType::Socket, *inode)));
    w.put_list(Fd::ALL_VALID, &fds);
    let socket = |(fd, (state, local_port, inode)): (&u32, &Sock)| {
        build!(Socket {
            fd: *fd,
            inode: *inode,
            netns: 4026531840,
            family: 2,
            r#type: 1,
            protocol: TCP,
            state: *state,
            local_port: *local_port,
            local_addr: [127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ..Socket::default()
        })
    };
    w.put_list(Socket::ALL_VALID, &sockets.iter().map(socket).collect::<Vec<_>>());
    w.put_name(name(pid, 9), 0, b"/var/log/syslog");
}

pub fn put_maps(w: &mut StreamWriter, pid: u32, mapped: &[Mapped]) {
    let mut vmas = Vec::new();
    for (n, (_, inode, _)) in (0..).zip(mapped) {
        // Code and data of a library.
        for part in 0..2 {
            let start = 0x1000 * (1 + 4 * u64::from(n) + part);
            let (end, kind) = (start + 0x1000, VmaKind::File as u32);
            vmas.push(build!(Vma {
                start,
                end,
                inode: *inode,
                dev: 2049,
                name: name(pid, n),
                kind,
                ..Vma::default()
            }));
        }
    }
    let kind = VmaKind::Anon as u32;
    vmas.push(build!(Vma { start: 1 << 30, end: 1 << 31, kind, ..Vma::default() }));
    w.put_list(Vma::ALL_VALID, &vmas);
    for (n, (path, _, is_deleted)) in (0..).zip(mapped) {
        w.put_name(name(pid, n), if *is_deleted { BLOB_DELETED } else { 0 }, path.as_bytes());
    }
}

/// The head of an answer of this minute.
pub fn head(minute: u64, groups: Groups, strategy: Strategy) -> Info {
    build!(Info {
        realtime_ns: (BEGIN + minute * MINUTE) * SECOND_NS,
        boottime_ns: (100_000 + minute * MINUTE) * SECOND_NS,
        show_flags: groups.bits(),
        dump_strategy: strategy as u64,
        clk_tck: 100,
        ..StreamWriter::blank_info()
    })
}

fn snapshot(minute: u64, groups: Groups, processes: &[Process]) -> Snapshot {
    let mut w = StreamWriter::new();
    w.info(&head(minute, groups, Strategy::All));
    for process in processes {
        w.begin_task(process.pid, process.pid);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        base.start_time_ns = process.start_ticks * 10_000_000;
        w.put_base(&base, format!("comm{}", process.pid).as_bytes());
        if groups.has(Group::Fd) {
            match &process.sockets {
                Ok(sockets) => put_files(&mut w, process.pid, sockets),
                Err(reason) => w.missing(Group::Fd, *reason),
            }
        }
        if groups.has(Group::Vma) {
            match &process.mapped {
                Ok(mapped) => put_maps(&mut w, process.pid, mapped),
                Err(reason) => w.missing(Group::Vma, *reason),
            }
        }
        w.end_task();
    }
    Snapshot::parse(w.finish(Done::default())).expect("it is whole")
}

pub fn lists() -> Groups {
    Groups::BASE | Groups::FD | Groups::VMA
}

/// A recording, and the files converted from it.
pub struct Made {
    pub dir: tempfile::TempDir,
}

impl Made {
    /// A frame each minute, with these groups and processes.
    pub fn new<'p>(frames: impl IntoIterator<Item = (Groups, &'p [Process])>) -> Made {
        let dir = tempfile::tempdir().expect("there is room");
        let options = Options::new(Duration::from_secs(MINUTE));
        let mut writer = Writer::open(dir.path().join("recording"), options).expect("it is new");
        for (minute, (groups, processes)) in (0..).zip(frames) {
            writer.append(&snapshot(minute, groups, processes)).expect("there is room");
        }
        Made { dir }
    }
    pub fn of(frames: &[Vec<Process>]) -> Made {
        Made::new(frames.iter().map(|processes| (lists(), &processes[..])))
    }
    pub fn convert(&self, options: &[&str]) -> Output {
        self.convert_with(Command::new(env!("CARGO_BIN_EXE_taskdiag")), options)
    }
    pub fn convert_with(&self, mut command: Command, options: &[&str]) -> Output {
        command
            .arg("convert")
            .args([self.dir.path().join("recording"), self.dir.path().join("lake")])
            .args(["--host", "web1"])
            .args(options)
            .output()
            .expect("the program runs")
    }
    /// Converts it. Nothing is lacking.
    pub fn convert_all(&self, options: &[&str]) {
        let ran = self.convert(options);
        assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(0), String::new()), "{options:?}");
    }
    pub fn file(&self, hour: u32, name: &str) -> PathBuf {
        let directory = format!("lake/date=2026-11-22/hour={hour:02}/host=web1");
        self.dir.path().join(directory).join(name)
    }
    /// The names of the files of the first hour.
    pub fn names(&self) -> Vec<String> {
        let directory = self.file(3, "");
        let entries = fs::read_dir(directory).expect("it is there").flatten();
        let mut names: Vec<String> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    pub fn rows<V>(&self, hour: u32, name: &str, value: fn(&Batch<'_>, usize) -> V) -> Vec<Row<V>> {
        table::rows(&self.file(hour, name), value)
    }
}

/// fd, state, local address and port, inode.
pub type SocketRow = (u64, String, String, u64, u64);

pub fn socket(of: &Batch<'_>, i: usize) -> SocketRow {
    assert_eq!(of.word("family", i).as_deref(), Some("inet"));
    assert_eq!(of.word("protocol", i).as_deref(), Some("TCP"));
    let number = |name| of.number(name, i).expect(name);
    let word = |name| of.word(name, i).expect(name);
    (number("fdnum"), word("sockstate"), word("laddr"), number("lport"), number("inode"))
}

/// Path, inode, deleted.
pub type MappedRow = (String, u64, bool);

pub fn mapped(of: &Batch<'_>, i: usize) -> MappedRow {
    let path = of.word("path", i).expect("each has one");
    (path, of.number("inode", i).expect("inode"), of.bool("deleted", i))
}

pub fn sockets_of(processes: &[Process]) -> BTreeMap<(u64, u64), SocketRow> {
    let mut all = BTreeMap::new();
    for process in processes {
        for (fd, (state, port, inode)) in process.sockets.as_ref().expect("it is known") {
            let fd = u64::from(*fd);
            let state = if *state == LISTEN { "LISTEN" } else { "ESTABLISHED" }.to_owned();
            let row = (fd, state, "127.0.0.1".to_owned(), u64::from(*port), *inode);
            all.insert((u64::from(process.pid), fd), row);
        }
    }
    all
}

pub fn mapped_of(processes: &[Process]) -> BTreeMap<(u64, (String, u64)), MappedRow> {
    let mut all = BTreeMap::new();
    for process in processes {
        for (path, inode, is_deleted) in process.mapped.as_ref().expect("it is known") {
            let key = (u64::from(process.pid), ((*path).to_owned(), *inode));
            all.insert(key, ((*path).to_owned(), *inode, *is_deleted));
        }
    }
    all
}
