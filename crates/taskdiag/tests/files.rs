//! The join of the lists about open files, on answers with known content: shared tables, details of
//! descriptors, other ends, names. No engine is asked.

use taskdiag::field::{Context, FILES, Missing, OpenRow, Part};
use taskdiag::files::{Files, holders};
use taskdiag::wire::{BLOB_DELETED, Done, StreamWriter, build};
use taskdiag::{
    Base, Fd, FdDetail, FdDetailKind, FdType, FileStat, FileUse, Group, Groups, PathKind, Reason,
    Snapshot, Socket, Strategy, Vma, VmaKind,
};

const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;

fn fd(n: u32, kind: FdType, inode: u64, flags: u32) -> Fd {
    build!(Fd { fd: n, r#type: kind as u32, inode, flags, dev: 14, nlink: 1, ..Fd::default() })
}

fn unix(n: u32, inode: u64, peer_inode: u64, name: u32) -> Socket {
    build!(Socket {
        fd: n,
        inode,
        peer_inode,
        name,
        family: 1,
        r#type: 1,
        state: 1,
        ..Socket::default()
    })
}

struct Made(StreamWriter);

impl Made {
    fn new(groups: Groups) -> Made {
        let mut w = StreamWriter::new();
        let mut info = StreamWriter::blank_info();
        (info.show_flags, info.dump_strategy) = (groups.bits(), Strategy::AllThread as u64);
        w.info(&info);
        Made(w)
    }
    fn task(&mut self, pid: u32, tgid: u32, comm: &str, more: impl FnOnce(&mut StreamWriter)) {
        self.0.begin_task(pid, tgid);
        self.0.put_base(&Base::new(), comm.as_bytes());
        more(&mut self.0);
        self.0.end_task();
    }
    fn snapshot(self) -> Snapshot {
        Snapshot::parse(self.0.finish(Done::default())).expect("it is well formed")
    }
}

fn fds(list: &[Fd]) -> impl FnOnce(&mut StreamWriter) + '_ {
    |w| w.put_list(Fd::ALL_VALID, list)
}

/// `pid/tid label name` of each file.
fn lines(snapshot: &Snapshot) -> Vec<String> {
    let mut files = Files::new(snapshot);
    files.own_netns = Some(100);
    let mut out = Vec::new();
    for owner in files.owners() {
        for file in files.of(owner) {
            let mut name = Vec::new();
            files.write_name(&mut name, &file);
            let task = owner.row.view;
            let letter = file.access().map_or("", |a| a.letter());
            out.push(format!(
                "{}/{} {}{letter} {} {}",
                task.tgid(),
                task.pid(),
                file.label(),
                file.lsof_type(),
                String::from_utf8_lossy(&name)
            ));
        }
    }
    out
}

#[test]
fn a_shared_table_is_there_once() {
    let mut m = Made::new(Groups::BASE | Groups::FD);
    // A thread with a lower id than its leader has the list; ids wrap.
    m.task(5, 10, "worker", fds(&[fd(0, FdType::Chr, 1, 0), fd(1, FdType::Chr, 1, O_WRONLY)]));
    m.task(10, 10, "main", |w| w.shared(Group::Fd, 5));
    m.task(11, 10, "other", |w| w.shared(Group::Fd, 5));
    m.task(12, 10, "own", fds(&[fd(7, FdType::Chr, 1, O_RDWR)]));
    // Another process with the table of the first, before and after it is known.
    m.task(13, 13, "vfork", |w| w.shared(Group::Fd, 5));
    m.task(14, 14, "stray", |w| w.shared(Group::Fd, 999));
    m.task(15, 15, "shut", |w| w.missing(Group::Fd, Reason::Denied));
    m.task(16, 16, "zombie", |w| w.missing(Group::Fd, Reason::Absent));
    let snapshot = m.snapshot();
    let (tables, gaps) = holders(&snapshot, Group::Fd);
    let seen: Vec<_> = tables
        .iter()
        .map(|h| (h.task.tgid(), h.task.pid(), h.owner.pid(), h.threads, h.others().collect()))
        .collect();
    let want: Vec<(u32, u32, u32, u32, Vec<u32>)> =
        vec![(10, 10, 5, 3, vec![13]), (10, 12, 12, 1, vec![]), (13, 13, 5, 1, vec![10])];
    assert_eq!(seen, want);
    assert!(tables[1].is_unshared() && !tables[0].is_unshared());
    let gaps: Vec<_> = gaps.iter().map(|g| (g.task.pid(), g.reason)).collect();
    let want = [(14, Reason::Unsupported), (15, Reason::Denied), (16, Reason::Absent)];
    assert_eq!(gaps, want);
    // Processes that have no files lack nothing.
    assert_eq!(Files::new(&snapshot).gaps().len(), 2);
    let want =
        ["10/10 0r CHR ", "10/10 1w CHR ", "10/12 7u CHR ", "13/13 0r CHR ", "13/13 1w CHR "];
    assert_eq!(lines(&snapshot), want);
}

#[test]
fn ends_are_found() {
    let mut m = Made::new(Groups::BASE | Groups::FD);
    m.task(1, 1, "a", |w| {
        w.put_list(
            Fd::ALL_VALID,
            &[
                fd(1, FdType::Pipe, 77, O_WRONLY),
                fd(2, FdType::Pipe, 77, O_WRONLY),
                fd(3, FdType::Socket, 50, O_RDWR),
                fd(4, FdType::Socket, 60, O_RDWR),
                fd(5, FdType::Fifo, 77, 0),
            ],
        );
        // A foreign stream that is not in the order of descriptors.
        w.put_list(Socket::ALL_VALID, &[unix(4, 60, 0, 9), unix(3, 50, 51, 0)]);
        w.put_name(9, 0, b"/run/s");
    });
    m.task(2, 2, "b", |w| {
        w.put_list(Fd::ALL_VALID, &[fd(0, FdType::Pipe, 77, 0), fd(9, FdType::Socket, 51, O_RDWR)]);
        w.put_list(Socket::ALL_VALID, &[unix(9, 51, 50, 9)]);
    });
    let snapshot = m.snapshot();
    let want = [
        "1/1 1w FIFO pipe 2,b,0r",
        "1/1 2w FIFO pipe 2,b,0r",
        "1/1 3u unix type=STREAM (CONNECTED) ->INO=51 2,b,9u",
        "1/1 4u unix /run/s type=STREAM (CONNECTED)",
        "1/1 5r FIFO ",
        "2/2 0r FIFO pipe 1,a,1w 1,a,2w",
        "2/2 9u unix /run/s type=STREAM (CONNECTED) ->INO=50 1,a,3u",
    ];
    assert_eq!(lines(&snapshot), want);
    let files = Files::new(&snapshot);
    let first = files.of(&files.owners()[0]).next().expect("a file");
    let ends = files.other_ends(&first).expect("a pipe has ends");
    assert_eq!(ends, [b"2,b,0r".to_vec(), b"1,a,2w".to_vec()]);
}

#[test]
fn ends_of_a_unix_socket_are_unknown_where_its_peer_is() {
    let mut m = Made::new(Groups::BASE | Groups::FD);
    m.task(1, 1, "a", |w| {
        let list = [(3, 50), (4, 60), (5, 70)].map(|(n, i)| fd(n, FdType::Socket, i, O_RDWR));
        w.put_list(Fd::ALL_VALID, &list);
        // The file /proc/net/unix has no peers, and the last socket is in another namespace.
        let no_peer = Socket::MEMBERS.iter().position(|n| *n == "peer_inode").expect("a member");
        w.put_list(Socket::ALL_VALID & !(1 << no_peer), &[unix(3, 50, 0, 0)]);
        w.put_list(Socket::ALL_VALID, &[unix(4, 60, 0, 0)]);
    });
    let snapshot = m.snapshot();
    let cx = Context::of(&snapshot, false);
    let files = Files::new(&snapshot);
    let ends = FILES.find("ends").expect("a column");
    let missing: Vec<_> = files
        .of(&files.owners()[0])
        .map(|file| {
            let part = Part::File(OpenRow::new(&file, &files));
            (ends.field.get)(&cx, &file.owner.row.with_part(part)).missing()
        })
        .collect();
    let unknown = Some(Missing::Reason(Reason::Unsupported));
    assert_eq!(missing, [unknown, None, unknown]);
}

#[test]
fn a_pipe_of_many_names_a_few() {
    let mut m = Made::new(Groups::BASE | Groups::FD);
    m.task(1, 1, "log", fds(&[fd(0, FdType::Pipe, 7, 0)]));
    for pid in 2..=10 {
        m.task(pid, pid, "p", fds(&[fd(2, FdType::Pipe, 7, O_WRONLY)]));
    }
    let out = lines(&m.snapshot());
    assert_eq!(out[0], "1/1 0r FIFO pipe 2,p,2w 3,p,2w 4,p,2w 5,p,2w and 5 more");
    assert_eq!(out[9], "10/10 2w FIFO pipe 1,log,0r");
}

#[test]
fn sockets_and_details_are_shown_in_words() {
    let inet = |n, family, protocol, state, ports: (u16, u16), a: [u8; 16], b: [u8; 16]| {
        build!(Socket {
            fd: n,
            inode: u64::from(n),
            family,
            r#type: if protocol == 17 { 2 } else { 1 },
            protocol,
            state,
            local_port: ports.0,
            peer_port: ports.1,
            local_addr: a,
            peer_addr: b,
            netns: if n == 5 { 200 } else { 100 },
            ..Socket::default()
        })
    };
    let v4 = |a, b, c, d| {
        let mut x = [0; 16];
        x[..4].copy_from_slice(&[a, b, c, d]);
        x
    };
    let mut v6 = [0; 16];
    v6[15] = 1;
    let none = [0; 16];
    let sockets = [
        inet(0, 2, 6, 1, (80, 5000), v4(127, 0, 0, 1), v4(10, 0, 0, 2)),
        inet(1, 2, 6, 10, (22, 0), none, none),
        inet(2, 10, 6, 10, (22, 0), none, none),
        inet(3, 10, 6, 1, (443, 9), v6, v6),
        inet(4, 2, 17, 7, (68, 0), none, none),
        inet(5, 2, 17, 1, (0, 53), none, v4(8, 8, 8, 8)),
        build!(Socket {
            fd: 6,
            inode: 6,
            family: 16,
            r#type: 3,
            protocol: 15,
            portid: 9,
            ..Socket::default()
        }),
        build!(Socket { fd: 7, inode: 7, family: 17, r#type: 3, protocol: 3, ..Socket::default() }),
        build!(Socket { fd: 8, inode: 8, family: 38, r#type: 5, protocol: 0, ..Socket::default() }),
    ];
    let detail =
        |n, kind: FdDetailKind, value| build!(FdDetail { fd: n, kind: kind as u32, value });
    let mut m = Made::new(Groups::BASE | Groups::FD);
    m.task(1, 1, "net", |w| {
        let mut list: Vec<Fd> =
            (0..10).map(|n| fd(n, FdType::Socket, u64::from(n), O_RDWR)).collect();
        list.push(fd(20, FdType::Epoll, 3, O_RDWR));
        list.push(fd(21, FdType::Pidfd, 3, O_RDWR));
        list.push(build!(Fd { name: 1, ..fd(22, FdType::Other, 3, O_RDWR) }));
        list.push(fd(23, FdType::BpfMap, 3, O_RDWR));
        w.put_list(Fd::ALL_VALID, &list);
        w.put_list(Socket::ALL_VALID, &sockets);
        let epoll = |fd| detail(20, FdDetailKind::Epoll, [fd, 0, 0, 0, 0]);
        w.put_list(
            FdDetail::ALL_VALID,
            &[epoll(3), epoll(5), detail(21, FdDetailKind::Pidfd, [1, 0, 0, 0, 0])],
        );
        w.put_name(1, 0, b"anon_inode:[fscontext]");
    });
    let want = [
        "0u IPv4 127.0.0.1:80->10.0.0.2:5000 (ESTABLISHED)",
        "1u IPv4 *:22 (LISTEN)",
        "2u IPv6 *:22 (LISTEN)",
        "3u IPv6 [::1]:443->[::1]:9 (ESTABLISHED)",
        "4u IPv4 *:68",
        "5u IPv4 *:*->8.8.8.8:53 (ESTABLISHED) net:[200]",
        "6u netlink KOBJECT_UEVENT port=9",
        "7u pack ALL type=RAW",
        "8u sock alg 0 type=SEQPACKET",
        "9u sock ",
        "20u a_inode [eventpoll:3,5]",
        "21u a_inode [pidfd:1] net",
        "22u a_inode anon_inode:[fscontext]",
        "23u a_inode [bpf-map]",
    ];
    let got = lines(&m.snapshot());
    let got: Vec<&str> = got.iter().map(|l| l.strip_prefix("1/1 ").expect("pid 1")).collect();
    assert_eq!(got, want);
}

#[test]
fn paths_and_mappings_are_of_the_process() {
    let mut m = Made::new(Groups::BASE | Groups::FD | Groups::PATHS | Groups::VMA);
    let path = |w: &mut StreamWriter, kind: PathKind, flags, path: &[u8]| {
        w.put_blob(Group::Paths as u16, kind as u32, flags, path, path.len());
    };
    m.task(1, 1, "main", |w| {
        w.put_list(Fd::ALL_VALID, &[build!(Fd { nlink: 0, name: 1, ..fd(3, FdType::Reg, 5, 0) })]);
        path(w, PathKind::Exe, BLOB_DELETED, b"/bin/old (deleted)");
        // Here, " (deleted)" is a part of the name of the directory.
        path(w, PathKind::Cwd, 0, b"/home/x (deleted)");
        w.put_blob_missing(Group::Paths as u16, PathKind::Root as u32, Reason::Denied);
        let vma = |start, name, kind: VmaKind, inode| {
            build!(Vma {
                start,
                end: start + 4096,
                name,
                kind: kind as u32,
                inode,
                ..Vma::default()
            })
        };
        w.put_list(
            Vma::ALL_VALID,
            &[
                vma(4096, 2, VmaKind::File, 7),
                vma(8192, 2, VmaKind::File, 7),
                vma(16384, 0, VmaKind::Heap, 0),
                vma(65536, 3, VmaKind::File, 8),
            ],
        );
        w.put_name(1, 0, b"/tmp/x");
        w.put_name(2, 0, b"/lib/libc.so");
        w.put_name(3, BLOB_DELETED, b"/lib/old.so");
    });
    m.task(2, 1, "own", |w| {
        w.put_list::<Fd>(Fd::ALL_VALID, &[]);
        path(w, PathKind::Cwd, 0, b"/home/x (deleted)");
        w.shared(Group::Vma, 1);
    });
    m.task(3, 3, "shut", |w| {
        for g in [Group::Fd, Group::Paths, Group::Vma] {
            w.missing(g, Reason::Denied);
        }
    });
    let snapshot = m.snapshot();
    let want = [
        "1/1 cwd DIR /home/x (deleted)",
        "1/1 rtd DIR (denied)",
        "1/1 txt REG /bin/old (deleted)",
        "1/1 mem REG /lib/libc.so",
        "1/1 DEL REG /lib/old.so (deleted)",
        "1/1 3r REG /tmp/x (deleted)",
    ];
    assert_eq!(lines(&snapshot), want);
    assert_eq!(Files::new(&snapshot).gaps().len(), 3);
}

/// `label type dev inode size mode nlink mnt_id rdev` of each file; `-`: not known.
fn known(snapshot: &Snapshot) -> Vec<String> {
    let files = Files::new(snapshot);
    let number = |n: Option<u64>| n.map_or_else(|| String::from("-"), |n| n.to_string());
    let line = |f: taskdiag::files::OpenFile<'_>| {
        let of = [
            f.dev().map(u64::from),
            f.inode(),
            f.size_bytes(),
            f.mode().map(u64::from),
            f.nlink().map(u64::from),
            f.mnt_id().map(u64::from),
            f.rdev().map(u64::from),
        ];
        format!("{} {} {}", f.label(), f.lsof_type(), of.map(number).join(" "))
    };
    files.owners().iter().flat_map(|o| files.of(o)).map(line).collect()
}

#[test]
fn files_without_a_descriptor_have_values_of_file_stat() {
    let groups = Groups::BASE | Groups::PATHS | Groups::VMA;
    let stat = |r#as: FileUse, dev, inode, mode| {
        build!(FileStat {
            r#as: r#as as u32,
            dev,
            inode,
            mode,
            size_bytes: 100,
            nlink: 2,
            mnt_id: 9,
            rdev: 0,
            stat_dev: if r#as == FileUse::Mapped { 30 } else { dev },
        })
    };
    let made = |groups: Groups| {
        let mut m = Made::new(groups);
        let task = |inode, stats: &'static [(FileUse, u32, u64, u32)]| {
            move |w: &mut StreamWriter| {
                for kind in [PathKind::Exe, PathKind::Cwd, PathKind::Root] {
                    w.put_blob(Group::Paths as u16, kind as u32, 0, b"/x", 2);
                }
                let vma = |start, dev, inode| {
                    build!(Vma {
                        start,
                        end: start + 1,
                        dev,
                        inode,
                        name: 1,
                        kind: VmaKind::File as u32,
                        ..Vma::default()
                    })
                };
                // The program; a file that another task has listed; a file that no task has listed.
                w.put_list(Vma::ALL_VALID, &[vma(1, 1, inode), vma(2, 3, 7), vma(3, 4, 8)]);
                if groups.has(Group::FileStat) {
                    let list: Vec<_> =
                        stats.iter().map(|(u, d, i, m)| stat(*u, *d, *i, *m)).collect();
                    w.put_list(FileStat::ALL_VALID, &list[..1]);
                    w.put_list(FileStat::ALL_VALID & !(1 << 6), &list[1..]);
                }
            }
        };
        const DIR: u32 = 0o040755;
        m.task(
            1,
            1,
            "a",
            task(
                30,
                &[
                    (FileUse::Cwd, 1, 10, DIR),
                    (FileUse::Root, 1, 2, DIR),
                    (FileUse::Exe, 1, 30, 0o100755),
                ],
            ),
        );
        m.task(
            2,
            2,
            "b",
            task(
                31,
                &[
                    (FileUse::Cwd, 1, 11, DIR),
                    (FileUse::Mapped, 3, 7, 0o020666),
                    (FileUse::Mapped, 3, 70, 0o100644),
                ],
            ),
        );
        m.0.begin_task(3, 3);
        m.0.put_name(1, 0, b"/y");
        m.0.end_task();
        m.snapshot()
    };
    let want = [
        "cwd DIR 1 10 100 16877 2 9 -",
        "rtd DIR 1 2 100 16877 2 - -",
        "txt REG 1 30 100 33261 2 - -",
        "mem REG 1 30 - - - - -",
        "mem CHR 30 7 - 8630 2 - 0",
        "mem REG 4 8 - - - - -",
        "cwd DIR 1 11 100 16877 2 9 -",
        "rtd DIR - - - - - - -",
        "txt REG - - - - - - -",
        "mem REG 1 31 - - - - -",
        "mem CHR 30 7 - 8630 2 - 0",
        "mem REG 4 8 - - - - -",
    ];
    assert_eq!(known(&made(groups | Groups::FILE_STAT)), want);
    // A stream without them.
    let none = known(&made(groups));
    assert_eq!(none[..2], ["cwd DIR - - - - - - -", "rtd DIR - - - - - - -"]);
    assert_eq!(none.len(), want.len());
}

#[test]
fn a_thread_in_another_directory_has_rows_of_its_own() {
    let mut m = Made::new(Groups::BASE | Groups::FD | Groups::PATHS);
    let paths = |w: &mut StreamWriter, cwd: &[u8]| {
        for (kind, path) in [(PathKind::Cwd, cwd), (PathKind::Root, b"/"), (PathKind::Exe, b"/x")] {
            w.put_blob(Group::Paths as u16, kind as u32, 0, path, path.len());
        }
    };
    m.task(1, 1, "main", |w| {
        w.put_list(Fd::ALL_VALID, &[fd(0, FdType::Chr, 5, 0)]);
        paths(w, b"/a");
    });
    for (tid, cwd) in [(2, b"/a"), (3, b"/b"), (4, b"/c")] {
        m.task(tid, 1, "thread", |w| {
            match tid {
                4 => w.put_list(Fd::ALL_VALID, &[fd(7, FdType::Chr, 5, 0)]),
                _ => w.shared(Group::Fd, 1),
            }
            paths(w, cwd);
        });
    }
    let snapshot = m.snapshot();
    let want = [
        "1/1 cwd DIR /a",
        "1/1 rtd DIR /",
        "1/1 txt REG /x",
        "1/1 0r CHR ",
        "1/3 cwd DIR /b",
        "1/3 rtd DIR /",
        "1/4 cwd DIR /c",
        "1/4 rtd DIR /",
        "1/4 7r CHR ",
    ];
    assert_eq!(lines(&snapshot), want);
    let unshared =
        Files::new(&snapshot).owners().iter().map(|o| o.is_unshared()).collect::<Vec<_>>();
    assert_eq!(unshared, [false, true, true]);
}

#[test]
fn files_with_odd_values_make_no_panic() {
    let mut m = Made::new(Groups::BASE | Groups::FD);
    m.task(1, 1, "odd", |w| {
        let odd = |n| {
            build!(Fd { fd: n, r#type: n.wrapping_mul(7), name: n, ..fd(n, FdType::Other, 0, !0) })
        };
        let list: Vec<Fd> = (0..40).rev().chain([u32::MAX]).map(odd).collect();
        w.put_list(Fd::ALL_VALID, &list);
        // No member of these is known.
        w.put_list(0, &list);
        let raw =
            |n| build!(Socket { fd: n, family: 9 + n as u16, state: 99, ..Socket::default() });
        w.put_list(Socket::ALL_VALID, &(0..40).map(raw).collect::<Vec<_>>());
        w.put_list(0, &[unix(1, 2, 3, 4)]);
        let odd = |n| build!(FdDetail { fd: n, kind: n % 12, value: [u64::MAX; 5] });
        w.put_list(FdDetail::ALL_VALID, &(0..40).map(odd).collect::<Vec<_>>());
    });
    let snapshot = m.snapshot();
    assert_eq!(lines(&snapshot).len(), 82);
}
