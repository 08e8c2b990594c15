//! One file that a process has in use. Headers follow lsof.

use taskdiag_wire::{Entry, Fd, FdType, Group, Groups, Reason, Socket};

use super::super::part::{OpenRow, Part};
use super::super::*;
use crate::files::{self, Holder, Locked, OpenFile, PathName, Side, What};

/// The file of the row, or why there is none.
fn open<'a>(row: &Row<'a>) -> Result<OpenRow<'a>, Value<'static>> {
    match row.part {
        Part::File(open) => Ok(open),
        _ => Err(row.missing(Group::Fd)),
    }
}

/// A value of the file. A value that the file cannot have is absent, which is not an error.
fn of_file<'a>(
    row: &Row<'a>,
    get: impl FnOnce(&'a OpenFile<'a>) -> Option<Value<'a>>,
) -> Value<'a> {
    match open(row) {
        Ok(open) => get(open.file).unwrap_or(Value::ABSENT),
        Err(missing) => missing,
    }
}

/// A value of the file itself, from the descriptor's entry, or from FILE_STAT for other files.
fn of_inode<'a>(
    row: &Row<'a>,
    get: impl FnOnce(&'a OpenFile<'a>) -> Option<Value<'a>>,
) -> Value<'a> {
    of_file(row, |f| get(f).or_else(|| Some(not_known(row, f))))
}

/// The reason if the answer lacks something that each file has.
fn not_known(row: &Row<'_>, f: &OpenFile<'_>) -> Value<'static> {
    match (f.what, f.path.and_then(|p| p.reason)) {
        (What::Fd(_), _) => Value::UNKNOWN,
        (_, Some(why)) => Value::Missing(Missing::Reason(why)),
        _ if open(row).is_ok_and(|open| open.files.without_stat) => Value::UNKNOWN,
        _ => row.missing(Group::FileStat),
    }
}

/// The reason for a missing size: the file has none, or it is not known.
fn no_size(row: &Row<'_>, f: &OpenFile<'_>) -> Value<'static> {
    if f.fd().is_some() || f.stat.is_some() { Value::ABSENT } else { not_known(row, f) }
}

/// A value of the descriptor that the file is open as.
fn of_fd<'a>(row: &Row<'a>, get: impl FnOnce(&Entry<'a, Fd>) -> Option<Value<'a>>) -> Value<'a> {
    of_file(row, |f| f.fd().map(|fd| get(&fd).unwrap_or(Value::UNKNOWN)))
}

/// Can sockets of this family be bound to an interface?
fn has_interface(family: i32) -> bool {
    matches!(family, libc::AF_INET | libc::AF_INET6 | libc::AF_PACKET | libc::AF_CAN | libc::AF_XDP)
}

/// A value of a socket.
fn of_socket<'a>(
    row: &Row<'a>,
    get: impl FnOnce(&Entry<'a, Socket>) -> Option<Value<'a>>,
) -> Value<'a> {
    of_file(row, |f| {
        if f.fd_type() != Some(FdType::Socket) {
            return None;
        }
        Some(f.socket().as_ref().and_then(get).unwrap_or(Value::UNKNOWN))
    })
}

/// As [`of_socket`], for values of sockets of the internet families only.
fn of_inet<'a>(
    row: &Row<'a>,
    get: impl FnOnce(&Entry<'a, Socket>) -> Option<Value<'a>>,
) -> Value<'a> {
    of_socket(row, |s| if files::is_inet(s.raw) { get(s) } else { Some(Value::ABSENT) })
}

/// As [`of_socket`], for values of sockets of this family only.
fn of_family<'a>(
    row: &Row<'a>,
    family: i32,
    get: impl FnOnce(&Entry<'a, Socket>) -> Option<Value<'a>>,
) -> Value<'a> {
    of_socket(row, |s| match i32::from(s.family()?) == family {
        true => get(s),
        false => Some(Value::ABSENT),
    })
}

fn text(text: impl Into<String>) -> Value<'static> {
    Value::Bytes { data: text.into().into_bytes().into(), cut: false }
}

/// Text around a number; a table has many, and few have more than 15 characters.
fn number(before: &str, v: u64, after: &str) -> Value<'static> {
    let digits = v.checked_ilog10().unwrap_or(0) as usize + 1;
    if before.len() + digits + after.len() > Short::ROOM {
        return text(format!("{before}{v}{after}"));
    }
    let mut short = Short::default();
    short.push_bytes(before.as_bytes());
    short.push_uint(v);
    short.push_bytes(after.as_bytes());
    Value::Short(short)
}

fn word(word: Option<&'static str>) -> Option<Value<'static>> {
    word.map(Value::Word)
}

fn uint(v: impl Into<u64>) -> Value<'static> {
    Value::Uint(v.into())
}

/// 4094,1048575 at most.
fn device_text(dev: u32) -> Value<'static> {
    let (major, minor) = files::major_minor(dev);
    let mut short = Short::default();
    short.push_uint(major.into());
    short.push(b',');
    short.push_uint(minor.into());
    Value::Short(short)
}

/// The descriptor and the letter of its access.
fn fd<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| {
        let letter = f.access().map_or("", |a| a.letter());
        Some(match f.fd() {
            Some(fd) => number("", fd.raw.fd.into(), letter),
            None => text(f.label()),
        })
    })
}

fn lock<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    match open(row).map(|open| open.files.locks.as_ref().map(|locks| locks.of(open.file))) {
        Ok(Some(Locked::By(lock))) => Value::Word(lock.letter()),
        Ok(Some(Locked::No)) => Value::ABSENT,
        Ok(Some(Locked::Unknown) | None) => Value::UNKNOWN,
        Err(missing) => missing,
    }
}

/// As in lsof: the descriptor, the letter of its access and the letter of its lock, with a blank
/// for each missing one. For a lock without a descriptor, the access is a dash.
fn fd_lock<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| {
        let access = f.access().map_or("", |a| a.letter());
        let lock = match open(row).ok()?.files.locks.as_ref().map(|locks| locks.of(f)) {
            Some(Locked::By(lock)) => Some(lock.letter()),
            _ => None,
        };
        let (access, lock) = match (access, lock) {
            ("", None) => (" ", " "),
            ("", Some(lock)) => ("-", lock),
            (access, lock) => (access, lock.unwrap_or(" ")),
        };
        // 12 characters at most.
        let mut short = Short::default();
        match f.fd() {
            Some(fd) => short.push_uint(fd.raw.fd.into()),
            None => short.push_bytes(f.label().as_bytes()),
        }
        short.push_bytes(access.as_bytes());
        short.push_bytes(lock.as_bytes());
        Some(Value::Short(short))
    })
}

/// As in lsof: the device number of a device file, and the inode of an internet socket.
fn device<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| {
        let inet = f.socket().filter(|s| files::is_inet(s.raw));
        match (inet, f.rdev().or_else(|| f.dev())) {
            (Some(s), _) => s.inode().map(|i| number("", i, "")),
            (None, Some(dev)) => Some(device_text(dev)),
            (None, None) => Some(not_known(row, f)),
        }
    })
}

/// As in lsof: the protocol of an internet socket.
fn node<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| {
        let inet = f.socket().filter(|s| files::is_inet(s.raw));
        match inet.and_then(|s| files::protocol(&s)) {
            Some(protocol) => Some(text(protocol)),
            None => Some(f.inode().map_or_else(|| not_known(row, f), |i| number("", i, ""))),
        }
    })
}

/// As in lsof: the size if there is one, else the position.
fn size_off<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| match (f.size_bytes(), f.pos_bytes()) {
        (Some(size), _) => Some(number("", size, "")),
        (None, Some(pos)) => Some(number("0t", pos, "")),
        (None, None) => Some(no_size(row, f)),
    })
}

fn name<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    let open = match open(row) {
        Ok(open) => open,
        Err(missing) => return missing,
    };
    let file = open.file;
    match file.path {
        // Most names are only the path.
        Some(p) if file.has_plain_name() => Value::Bytes { data: p.bytes.into(), cut: false },
        path => {
            let mut out = Vec::with_capacity(64);
            open.files.write_name(&mut out, file);
            // A socket whose address and protocol are not known.
            if matches!(&out[..], b"" | b"?") && file.socket().is_some() {
                return Value::Missing(Missing::Reason(Reason::Unsupported));
            }
            // A path that is too long for readlink().
            if out.is_empty() && matches!(file.what, What::Fd(fd) if fd.name().is_none()) {
                return Value::Missing(Missing::Reason(Reason::Truncated));
            }
            Value::Bytes { data: out.into(), cut: path.is_some_and(|p| p.cut) }
        }
    }
}

fn path<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| {
        let socket = f.socket().and_then(|s| s.name()).filter(|n| *n != 0);
        let path = match socket {
            Some(n) => PathName::find(&f.owner.row.view, n),
            None => f.path,
        }?;
        Some(match path.reason {
            Some(why) => Value::Missing(Missing::Reason(why)),
            None => Value::Bytes { cut: path.cut, data: path.bytes.into() },
        })
    })
}

fn kind<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_file(row, |f| match f.what {
        What::Fd(_) => Some(f.fd_type().map_or(Value::UNKNOWN, |t| Value::Word(t.name()))),
        _ => None,
    })
}

/// Names of the bits of `O_*`, in the order of the header.
const FLAGS: &[(i32, &str)] = &[
    (libc::O_CREAT, "creat"),
    (libc::O_EXCL, "excl"),
    (libc::O_NOCTTY, "noctty"),
    (libc::O_TRUNC, "trunc"),
    (libc::O_APPEND, "append"),
    (libc::O_NONBLOCK, "nonblock"),
    (libc::O_ASYNC, "async"),
    (libc::O_DIRECT, "direct"),
    // The kernel's own bit: the C library has it as 0 on 64-bit machines.
    (0o100000, "largefile"),
    (libc::O_DIRECTORY, "directory"),
    (libc::O_NOFOLLOW, "nofollow"),
    (libc::O_NOATIME, "noatime"),
    (libc::O_CLOEXEC, "cloexec"),
    (libc::O_PATH, "path"),
];

fn flags<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_fd(row, |fd| {
        let bits = fd.flags()? as i32;
        let mut words = vec![match bits & libc::O_ACCMODE {
            libc::O_RDONLY => "rdonly",
            libc::O_WRONLY => "wronly",
            libc::O_RDWR => "rdwr",
            _ => "noaccess",
        }];
        words.extend(FLAGS.iter().filter(|(b, _)| bits & b != 0).map(|(_, name)| *name));
        // O_SYNC is O_DSYNC and a bit.
        match bits & libc::O_SYNC {
            libc::O_SYNC => words.push("sync"),
            libc::O_DSYNC => words.push("dsync"),
            _ => {}
        }
        Some(text(words.join(",")))
    })
}

fn side<'a>(
    row: &Row<'a>,
    side: Side,
    get: impl FnOnce(&Entry<'a, Socket>, std::net::IpAddr, u16) -> Value<'a>,
) -> Value<'a> {
    of_inet(row, |s| match files::address(s, side)? {
        // An end that is not there.
        (ip, 0) if side == Side::Peer && ip.is_unspecified() => Some(Value::ABSENT),
        (ip, port) => Some(get(s, ip, port)),
    })
}

fn address<'a>(row: &Row<'a>, which: Side) -> Value<'a> {
    side(row, which, |s, ip, _| text(files::address_text(s, ip)))
}

fn port<'a>(row: &Row<'a>, which: Side) -> Value<'a> {
    side(row, which, |_, _, port| uint(port))
}

fn ends<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    match open(row) {
        Ok(open) => match open.files.other_ends(open.file) {
            Some(ends) => Value::Args { data: ends.join(&0).into(), cut: false },
            None if has_unknown_peer(open.file) => Value::UNKNOWN,
            None => Value::ABSENT,
        },
        Err(missing) => missing,
    }
}

/// Is it a unix socket whose peer is not known, as in /proc where the kernel lists no peers?
fn has_unknown_peer(file: &OpenFile<'_>) -> bool {
    let is_local = |s: Entry<'_, Socket>| s.family().is_none_or(|f| i32::from(f) == libc::AF_UNIX);
    file.fd_type() == Some(FdType::Socket) && file.socket().is_none_or(is_local)
}

/// The table of open files that the row describes, or that has its descriptor.
fn table<'a>(row: &Row<'a>) -> Result<&'a Holder<'a>, Value<'static>> {
    match row.part {
        Part::Table(table) => Ok(table),
        Part::File(open) => open.file.owner.table.as_ref().ok_or(Value::ABSENT),
        _ => Err(row.missing(Group::Fd)),
    }
}

fn threads<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    match table(row) {
        Ok(table) if cx.threads => uint(table.threads),
        // An answer with processes only.
        Ok(_) => Value::UNKNOWN,
        Err(missing) => missing,
    }
}

fn sharers<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    match table(row) {
        Ok(table) => {
            let others: Vec<u32> = table.others().collect();
            if others.is_empty() { cx.shared_with_nobody() } else { Value::Ids(others) }
        }
        Err(missing) => missing,
    }
}

pub const FIELDS: &[Field] = &[
    row!("command" "COMMAND" 9 Left [BASE(comm state)] Text None Comm, "/proc/PID/comm",
    "Command name; the arguments are task.args", {}, |_, row| {
        row.comm.map_or_else(|| row.missing(Group::Base), Value::bytes)
    }),
    row!("threads" "THR" 3 Right [FD] Integer Count Plain, "kcmp(2), task_struct.files",
        "Threads of the process that share this table of open files", {"thr" "THR"}, threads),
    row!("task" "TID" 5 Right [] Text None Pid, "task_struct.pid",
    "Thread id of a thread with files of its own; empty if it shares those of the process", {},
    |_, row| {
        let mut tid = Short::default();
        if row.view.pid() != row.view.tgid() {
            tid.push_uint(row.view.pid().into());
        }
        Value::Short(tid)
    }),
    row!("sharers" "SHARERS" 7 Left [FD] IntegerList None Plain, "kcmp(2), task_struct.files",
        "Other processes of the answer that share this table of open files", {}, sharers),
    row!("fd" "FD" 4 Right [FD] Text None Plain, "/proc/PID/fd, /proc/PID/fdinfo",
        "Descriptor, and r read, w write, u both; or cwd, rtd (root), txt, mem, DEL (mem, deleted)",
        {}, fd),
    row!("fdnum" "FDNUM" 5 Right [FD] Integer None Plain, "/proc/PID/fd",
        "Descriptor as a number", {}, |_, row| of_fd(row, |fd| fd.fd().map(uint))),
    row!("access" "ACCESS" 6 Left [FD] Text None Plain, "/proc/PID/fdinfo flags",
        "r, w, or u for both; absent with O_PATH", {},
        |_, row| of_file(row, |f| word(f.access().map(|a| a.letter()).filter(|l| !l.is_empty())))),
    row!("lock" "LOCK" 4 Left [FD FILE_STAT] Text None Plain, "/proc/PID/fdinfo lock",
        "Lock that the descriptor has on its file: r or w on a part of it, R or W on all of it", {}, lock),
    row!("fd_lock" "FD  " 6 Right [FD FILE_STAT] Text None Plain, "/proc/PID/fd, /proc/PID/fdinfo",
        "FD as in lsof: fd, and lock after it, with a blank for no access or lock", {}, fd_lock),
    row!("type" "TYPE" 7 Right [FD] Text None Plain, "/proc/PID/fd, struct file",
        "Type as in lsof: REG DIR CHR BLK FIFO LINK IPv4 IPv6 unix netlink pack sock a_inode PSXMQ NS",
        {}, |_, row| of_file(row, |f| Some(Value::Word(f.lsof_type())))),
    row!("kind" "KIND" 9 Left [FD] Text None Plain, "/proc/PID/fd, struct file",
        "Type of the descriptor: reg, dir, pipe, socket, eventfd, epoll, memfd, io_uring and so on",
        {}, kind),
    row!("device" "DEVICE" 6 Right [FD FILE_STAT] Text None Plain, "/proc/PID/fd, struct inode",
        "major,minor of the file system or the device file; inode of an internet socket",
        {}, device),
    row!("dev" "DEV" 6 Right [FD FILE_STAT] Text None Plain, "struct super_block",
        "major,minor of the file system", {},
        |_, row| of_inode(row, |f| f.dev().map(device_text))),
    row!("rdev" "RDEV" 6 Right [FD FILE_STAT] Text None Plain, "struct inode",
        "major,minor of a device file", {},
        |_, row| of_file(row, |f| f.rdev().map(device_text))),
    row!("size_off" "SIZE/OFF" 8 Right [FD FILE_STAT] Text None Plain, "struct inode, /proc/PID/fdinfo pos",
        "Size of the file in bytes, or 0t and the position if there is no size", {}, size_off),
    row!("size" "SIZE" 8 Right [FD FILE_STAT] Integer Bytes Plain, "struct inode",
        "Size of the file; text in bytes", {},
        |_, row| of_file(row, |f| Some(f.size_bytes().map_or_else(|| no_size(row, f), uint)))),
    row!("offset" "OFFSET" 8 Right [FD] Integer Bytes Plain, "/proc/PID/fdinfo pos",
        "Position in the file; text in bytes", {"pos" "OFFSET"},
        |_, row| of_fd(row, |fd| fd.pos_bytes().map(uint))),
    row!("node" "NODE" 8 Right [FD FILE_STAT] Text None Plain, "struct inode",
        "Inode; for an internet socket, its protocol", {}, node),
    row!("inode" "INODE" 8 Right [FD FILE_STAT] Integer None Plain, "struct inode",
        "Inode", {}, |_, row| of_inode(row, |f| f.inode().map(uint))),
    row!("nlink" "NLINK" 5 Right [FD FILE_STAT] Integer None Plain, "struct inode",
        "Hard links; 0: deleted", {}, |_, row| of_inode(row, |f| f.nlink().map(uint))),
    row!("mnt_id" "MNT_ID" 6 Right [FD FILE_STAT] Integer None Plain, "/proc/PID/fdinfo mnt_id",
        "Mount, as in /proc/PID/mountinfo", {},
        |_, row| of_inode(row, |f| f.mnt_id().map(uint))),
    row!("mode" "MODE" 6 Right [FD FILE_STAT] Integer None Octal, "struct inode",
        "Kind of file and permissions; text is octal", {},
        |_, row| of_inode(row, |f| f.mode().map(uint))),
    row!("flags" "FLAGS" 12 Left [FD] Text None Plain, "/proc/PID/fdinfo flags",
        "How it was opened, O_* in words", {}, flags),
    row!("deleted" "DELETED" 7 Right [FD] Boolean None Plain, "struct inode, /proc/PID/fd",
        "Deleted: it has no hard links left", {},
        |_, row| of_file(row, |f| Some(Value::Bool(f.is_deleted())))),
    row!("path" "PATH" 20 Left [FD] Text None Plain, "/proc/PID/fd",
        "Path alone; for a unix socket, its path, or @ and its abstract name", {}, path),
    row!("family" "FAMILY" 7 Left [FD] Text None Plain, "sock_diag(7), struct sock",
    "Address family of a socket", {}, |_, row| of_socket(row, |s| {
        let family = s.family()?;
        let number = || text(family.to_string());
        Some(files::family_name(family).map_or_else(number, Value::Word))
    })),
    row!("protocol" "PROTO" 9 Left [FD] Text None Plain, "sock_diag(7), struct sock",
        "Protocol of a socket, TCP also with multipath TCP; for a unix socket, its type", {"proto" "PROTO"},
        |_, row| of_socket(row, |s| files::protocol(s).map(text))),
    row!("sockstate" "STATE" 11 Left [FD] Text None Plain, "sock_diag(7), struct sock",
    "State of a socket: ESTABLISHED, LISTEN and so on", {},
    |_, row| of_socket(row, |s| {
        // The others have none.
        if matches!(i32::from(s.family()?), libc::AF_UNIX | libc::AF_INET | libc::AF_INET6) {
            s.state()?;
        }
        Some(word(files::state(s)).unwrap_or(Value::ABSENT))
    })),
    row!("laddr" "LADDR" 15 Left [FD] Text None Plain, "sock_diag(7), struct sock",
        "Local address, fe80:: with the number of its interface: fe80::1%2", {}, |_, row| address(row, Side::Local)),
    row!("lport" "LPORT" 5 Right [FD] Integer None Plain, "sock_diag(7), struct sock",
        "Local port", {}, |_, row| port(row, Side::Local)),
    row!("raddr" "RADDR" 15 Left [FD] Text None Plain, "sock_diag(7), struct sock",
        "Remote address", {"paddr" "PADDR"}, |_, row| address(row, Side::Peer)),
    row!("rport" "RPORT" 5 Right [FD] Integer None Plain, "sock_diag(7), struct sock",
        "Remote port", {"pport" "PPORT"}, |_, row| port(row, Side::Peer)),
    row!("recvq" "RECVQ" 6 Right [FD] Integer Bytes Plain, "sock_diag(7), struct sock",
        "Bytes received and not read yet; for a listener, waiting connections", {},
        |_, row| of_socket(row, |s| s.recv_queue_bytes().map(uint))),
    row!("sendq" "SENDQ" 6 Right [FD] Integer Bytes Plain, "sock_diag(7), struct sock",
        "Bytes written and not acknowledged; for a listener, the limit of waiting connections", {},
        |_, row| of_socket(row, |s| s.send_queue_bytes().map(uint))),
    row!("sock_netns" "NETNS" 10 Right [FD] Integer None Plain, "sock_diag(7), struct sock",
        "Network namespace of a socket", {},
        |_, row| of_socket(row, |s| s.netns().map(uint))),
    row!("portid" "PORTID" 6 Right [FD] Integer None Plain, "sock_diag(7), struct netlink_sock",
        "Port of a netlink socket", {}, |_, row| of_family(row, libc::AF_NETLINK, |s| s.portid().map(uint))),
    row!("ifindex" "IFINDEX" 7 Right [FD] Integer None Plain, "sock_diag(7), struct sock",
    "Number of the interface that a socket is bound to", {},
    |_, row| of_socket(row, |s| {
        if s.family().is_some_and(|f| !has_interface(i32::from(f))) {
            return Some(Value::ABSENT);
        }
        s.ifindex().map(|n| if n == 0 { Value::ABSENT } else { uint(n) })
    })),
    row!("peer_inode" "PEER" 8 Right [FD] Integer None Plain, "sock_diag(7), struct unix_sock",
    "Inode of the other end of a unix socket", {},
    |_, row| of_socket(row, |s| {
        if s.family().is_some_and(|f| i32::from(f) != libc::AF_UNIX) {
            return Some(Value::ABSENT);
        }
        s.peer_inode().map(|p| if p == 0 { Value::ABSENT } else { uint(p) })
    })),
    row!("ends" "ENDS" 12 Left [FD BASE(comm)] TextList None Plain, "the other tasks in the answer",
        "Other ends of a pipe or unix socket, each pid,command,fd; after a hundred, the number of the rest", {}, ends),
    row!("name" "NAME" 4 Left [FD BASE(comm)] Text None Plain, "all of these",
        "Path, addresses and state, other ends, details of special descriptors", {}, name),
];
