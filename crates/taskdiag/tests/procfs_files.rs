//! The open files of the procfs engine, against those that this process opens.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};

use taskdiag::engine::procfs::Procfs;
use taskdiag::{Engine, Fd, FdCount, FdType, Group, Groups, Request, Snapshot, Socket, TaskView};

fn ask(req: &Request) -> Snapshot {
    Snapshot::parse(Procfs::new().unwrap().run(req).unwrap().stream).unwrap()
}
fn me(groups: Groups) -> Snapshot {
    ask(&Request::one(std::process::id(), groups))
}
fn fd_of(t: &TaskView<'_>, f: &impl AsRawFd) -> Fd {
    let fd = f.as_raw_fd() as u32;
    let e = t.list::<Fd>().unwrap().find(|e| e.raw.fd == fd).unwrap();
    assert_eq!(e.valid, Fd::ALL_VALID);
    *e.raw
}
fn socket_of(t: &TaskView<'_>, f: &impl AsRawFd) -> Socket {
    let fd = f.as_raw_fd() as u32;
    *t.list::<Socket>().unwrap().find(|e| e.raw.fd == fd).unwrap().raw
}
fn name(t: &TaskView<'_>, number: u32) -> String {
    String::from_utf8(t.name(number).unwrap().data.into_owned()).unwrap()
}

#[test]
fn an_open_file_has_its_position_flags_and_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a b (deleted)");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"0123456789").unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    let gone = File::create(dir.path().join("gone")).unwrap();
    fs::remove_file(dir.path().join("gone")).unwrap();
    let s = me(Groups::FD);
    let t = s.tasks().next().unwrap();
    let (f, meta) = (fd_of(&t, &file), file.metadata().unwrap());
    assert_eq!(f.r#type, FdType::Reg as u32);
    assert_eq!((f.pos_bytes, f.size_bytes, f.inode, f.nlink), (4, 10, meta.ino(), 1));
    assert_eq!((f.mode, f.flags & 3), (meta.mode(), 1));
    assert!(f.flags & libc::O_CLOEXEC as u32 != 0);
    assert_eq!(f.dev, (meta.dev() & 0xff | (meta.dev() & 0xfff00)) as u32, "small numbers");
    let real = fs::canonicalize(&path).unwrap();
    assert_eq!(name(&t, f.name), real.to_str().unwrap());
    assert_eq!(t.name(f.name).unwrap().flags, 0);
    let g = fd_of(&t, &gone);
    assert!(name(&t, g.name).ends_with("/gone"));
    assert_eq!((t.name(g.name).unwrap().flags, g.nlink), (taskdiag::wire::BLOB_DELETED, 0));
}

#[test]
fn open_sockets_have_addresses_states_and_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let udp = UdpSocket::bind("[::1]:0");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let bound = UnixListener::bind(&path).unwrap();
    let (a, b) = UnixStream::pair().unwrap();
    let s = me(Groups::FD);
    let t = s.tasks().next().unwrap();
    let l = socket_of(&t, &listener);
    assert_eq!((l.local_port, l.state, i32::from(l.family)), (port, 10, libc::AF_INET));
    assert_eq!(l.local_addr[..4], [127, 0, 0, 1]);
    let (c, d) = (socket_of(&t, &client), socket_of(&t, &server));
    assert_eq!((c.peer_port, d.local_port, c.state, d.state), (port, port, 1, 1));
    assert_eq!((c.local_port, c.local_addr), (d.peer_port, d.peer_addr));
    assert_eq!(i32::from(c.protocol), libc::IPPROTO_TCP);
    if let Ok(udp) = udp {
        let u = socket_of(&t, &udp);
        assert_eq!(u.local_port, udp.local_addr().unwrap().port());
        assert_eq!(u.local_addr, std::net::Ipv6Addr::LOCALHOST.octets());
    }
    assert_eq!(name(&t, socket_of(&t, &bound).name), path.to_str().unwrap());
    let (a, b) = (socket_of(&t, &a), socket_of(&t, &b));
    assert_eq!((a.peer_inode, b.peer_inode), (b.inode, a.inode));
    assert_eq!(a.netns, fs::metadata("/proc/self/ns/net").unwrap().ino() as u32);
}

#[test]
fn lists_of_files_are_as_long_as_their_counts() {
    let s = ask(&Request::all(Groups::FD | Groups::FD_COUNT));
    let mut compared = 0;
    for t in s.tasks() {
        let Some(list) = t.list::<Fd>() else {
            assert!(t.reason(Group::Fd).is_some());
            continue;
        };
        let mut fds = BTreeSet::new();
        for e in list {
            assert!(fds.insert(e.raw.fd) && fds.last() == Some(&e.raw.fd), "in order");
            assert!(e.raw.name == 0 || t.name(e.raw.name).is_some());
        }
        let dir = fs::read_dir(format!("/proc/{}/fd", t.pid()));
        let Ok(dir) = dir else { continue };
        let now: BTreeSet<u32> = dir
            .map_while(Result::ok)
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .collect();
        if now == fds && t.pid() != std::process::id() {
            compared += 1;
            assert_eq!(
                t.record::<FdCount>().unwrap().open() as Option<u32>,
                Some(fds.len() as u32)
            );
        }
    }
    assert!(compared > 3);
}

#[test]
fn a_descriptor_costs_a_bounded_number_of_calls() {
    let cost = || {
        let mut p = Procfs::new().unwrap();
        p.run(&Request::one(std::process::id(), Groups::FD)).unwrap().cost.syscalls
    };
    // Other tests of this file open and close files at the same time.
    let growth = (0..20).map(|_| {
        let before = cost();
        let _files: Vec<File> = (0..1000).map(|_| File::open("/dev/null").unwrap()).collect();
        (cost() - before) / 10
    });
    assert!(growth.min().unwrap().abs_diff(500) < 20);
}
