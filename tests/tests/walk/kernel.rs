//! Compares the output of the commands with the results of system calls about the processes and
//! about duplicates of their open files. No other code of ours reads these values in that way.

use std::collections::BTreeMap;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use taskdiag_tests::Mktask;

use crate::Found;
use crate::faces::{Row, Shown};

/// Compares one row with the true values. `None`: the true value is not known here.
struct Check<'a> {
    pid: u32,
    who: String,
    row: &'a Row,
    found: &'a mut Found,
}

impl Check<'_> {
    fn is(&mut self, column: &str, truth: Option<Value>) {
        let Some(truth) = truth else { return };
        let shown = self.row.get(column).unwrap_or(&Value::Null);
        if *shown != truth {
            let text = format!("{}: {column} {shown}, the kernel says {truth}", self.who);
            self.found.insert((self.pid, text));
        }
    }
}

fn number(row: &Row, column: &str) -> Option<i32> {
    row.get(column).and_then(Value::as_i64).map(|n| n as i32)
}

/// Adds the differences from the kernel's own values.
pub fn differs(subjects: &[&Mktask], shown: &[Shown], found: &mut Found) {
    for Shown { engine, face, rows } in shown {
        for row in rows.values() {
            let Some(pid) = number(row, "pid") else { continue };
            let tid = number(row, "tid").unwrap_or(pid);
            let who =
                format!("{face} {engine}: {pid} {tid} {}", row.get("fd").unwrap_or(&Value::Null));
            let mut check = Check { pid: pid as u32, who, row, found };
            match *face {
                "ps --threads" => {
                    of_thread(tid, &mut check);
                    if let Some(m) = subjects.iter().find(|m| m.pid() as i32 == tid) {
                        of_subject(m, &mut check);
                    }
                }
                "files" => of_file(pid, &mut check),
                "maps" => of_mapping(pid, &mut check),
                _ => (),
            }
        }
        if *face == "files" {
            sharing(engine, rows.values(), found);
        }
    }
}

const LIMITS: [&str; 16] = [
    "cpu",
    "fsize",
    "data",
    "stack",
    "core",
    "rss",
    "nproc",
    "nofile",
    "memlock",
    "as",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
];

/// The link of a namespace names its inode.
fn namespace(tid: i32, file: &str) -> Option<Value> {
    std::fs::metadata(format!("/proc/{tid}/ns/{file}")).ok().map(|st| json!(st.ino()))
}

fn of_thread(tid: i32, check: &mut Check<'_>) {
    // An ended thread has no directories and limits of its own. The kernel shows the values of
    // other threads instead.
    let lives = check.row.get("s").is_some_and(|s| s != "Z" && s != "X");
    for (i, name) in LIMITS.iter().enumerate() {
        // SAFETY: the struct is ours.
        let limit = unsafe {
            let mut limit: libc::rlimit64 = zeroed();
            (libc::prlimit64(tid, i as _, std::ptr::null(), &mut limit) == 0).then_some(limit)
        };
        let value = |n| if n == libc::RLIM64_INFINITY { json!("unlimited") } else { json!(n) };
        check.is(&format!("rlimit_{name}"), limit.filter(|_| lives).map(|l| value(l.rlim_cur)));
        check
            .is(&format!("rlimit_{name}_hard"), limit.filter(|_| lives).map(|l| value(l.rlim_max)));
    }
    // SAFETY: system calls with numbers and structs of ours.
    unsafe {
        let policy = libc::sched_getscheduler(tid);
        let mut param: libc::sched_param = zeroed();
        let known = policy >= 0 && libc::sched_getparam(tid, &mut param) == 0;
        check.is("sched", known.then(|| json!(policy & !libc::SCHED_RESET_ON_FORK)));
        if matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER | libc::SCHED_BATCH) {
            check.is("ni", Some(json!(libc::getpriority(libc::PRIO_PROCESS, tid as u32))));
        } else if param.sched_priority > 0 {
            check.is("rtprio", known.then(|| json!(param.sched_priority)));
        }
        let id = |n: i32| (n >= 0).then(|| json!(n));
        check.is("pgid", id(libc::getpgid(tid)));
        check.is("sid", id(libc::getsid(tid)));
        let mut head = [0x2008_0522u32, tid as u32];
        let mut caps = [0u32; 6];
        if libc::syscall(libc::SYS_capget, head.as_mut_ptr(), caps.as_mut_ptr()) == 0 {
            for (i, name) in ["cap_eff", "cap_prm", "cap_inh"].iter().enumerate() {
                let all = u64::from(caps[i + 3]) << 32 | u64::from(caps[i]);
                check.is(name, Some(json!(format!("{all:016x}"))));
            }
        }
    }
    for (column, file) in [
        ("cgroupns", "cgroup"),
        ("ipcns", "ipc"),
        ("mntns", "mnt"),
        ("netns", "net"),
        ("pidns", "pid"),
        ("timens", "time"),
        ("timens_children", "time_for_children"),
        ("userns", "user"),
        ("utsns", "uts"),
    ] {
        check.is(column, namespace(tid, file).filter(|_| lives));
    }
}

/// Checks the facts that the task reported about itself.
fn of_subject(m: &Mktask, check: &mut Check<'_>) {
    let offset = |key| if m.has(key) { m.num::<i64>(key) } else { 0 };
    for (fact, key, names) in [
        ("uids", "uid_offset", ["ruid", "uid", "suid"]),
        ("gids", "gid_offset", ["rgid", "gid", "sgid"]),
    ] {
        let offset = offset(key);
        for (name, id) in names.iter().zip(m.list(fact)) {
            // An id that is not mapped is the overflow id in the namespace.
            let known = offset == 0 || offset > 0 && id != 65534;
            check.is(name, known.then(|| json!(i64::from(id) + offset)));
        }
    }
    check.is("nnp", Some(json!(m.num::<u32>("no_new_privs"))));
    check.is("seccomp", Some(json!(["off", "strict", "filter"][m.num::<usize>("seccomp")])));
}

/// Open files that were compared with duplicates. A walk that compared none has failed.
pub static FILES_ASKED: AtomicUsize = AtomicUsize::new(0);

/// Whether a file is one of the process, and not of a thread with files of its own.
fn is_of_process(row: &Row) -> bool {
    row.get("task").is_none_or(|task| task.is_null() || task == "")
}

/// Duplicates an open file of another process.
fn duplicate(pid: i32, fd: i32) -> Option<OwnedFd> {
    // SAFETY: each descriptor is new, and only ours.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let process = (process >= 0).then(|| OwnedFd::from_raw_fd(process as i32))?;
        let copy = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        (copy >= 0).then(|| OwnedFd::from_raw_fd(copy as i32))
    }
}

/// Whether its size is a constant of the kernel: that of a message queue and of a namespace.
fn has_constant_size(fd: i32) -> bool {
    const MQUEUE: u64 = 0x1980_0202;
    const NSFS: u64 = 0x6e73_6673;
    // SAFETY: the struct is ours.
    unsafe {
        let mut fs: libc::statfs = zeroed();
        libc::fstatfs(fd, &mut fs) == 0 && matches!(fs.f_type as u64, MQUEUE | NSFS)
    }
}

fn option(fd: i32, name: i32) -> Option<i32> {
    let (mut value, mut len) = (0i32, 4);
    // SAFETY: the number is ours, and as long as `len` says.
    let rc =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &mut len) };
    (rc == 0).then_some(value)
}

fn of_file(pid: i32, check: &mut Check<'_>) {
    let own = is_of_process(check.row);
    let Some(fd) = number(check.row, "fdnum").filter(|_| own) else { return };
    let Some(copy) = duplicate(pid, fd) else { return };
    FILES_ASKED.fetch_add(1, Ordering::Relaxed);
    let raw = copy.as_raw_fd();
    // SAFETY: system calls with our own descriptor and structs.
    let (st, flags, x) = unsafe {
        let (mut st, mut x): (libc::stat, libc::statx) = (zeroed(), zeroed());
        if libc::fstat(raw, &mut st) != 0 {
            return;
        }
        let how = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        let known = libc::statx(raw, c"".as_ptr(), how, libc::STATX_MNT_ID, &mut x) == 0;
        (st, libc::fcntl(raw, libc::F_GETFL), known.then_some(x))
    };
    let device = |d| json!(format!("{},{}", libc::major(d), libc::minor(d)));
    let kind = st.st_mode & libc::S_IFMT;
    check.is("inode", Some(json!(st.st_ino)));
    check.is("nlink", Some(json!(st.st_nlink)));
    check.is("mode", Some(json!(st.st_mode)));
    check.is("dev", Some(device(st.st_dev)));
    check.is("rdev", matches!(kind, libc::S_IFCHR | libc::S_IFBLK).then(|| device(st.st_rdev)));
    let has_size = kind == libc::S_IFREG && !has_constant_size(raw);
    check.is("size", has_size.then(|| json!(st.st_size)));
    check.is(
        "mnt_id",
        x.filter(|x| x.stx_mask & libc::STATX_MNT_ID != 0).map(|x| json!(x.stx_mnt_id)),
    );
    let access = ["r", "w", "u"].get((flags & libc::O_ACCMODE) as usize);
    check.is("access", access.filter(|_| flags & libc::O_PATH == 0).map(|a| json!(a)));
    if matches!(kind, libc::S_IFREG | libc::S_IFDIR) && flags & libc::O_PATH == 0 {
        // SAFETY: a system call that changes nothing.
        let at = unsafe { libc::lseek(raw, 0, libc::SEEK_CUR) };
        check.is("offset", (at >= 0).then(|| json!(at)));
    }
    if let (libc::S_IFSOCK, Some(family)) = (kind, option(raw, libc::SO_DOMAIN)) {
        of_socket(raw, family, check);
    }
}

fn of_socket(raw: i32, family: i32, check: &mut Check<'_>) {
    let (protocol, listens) = (option(raw, libc::SO_PROTOCOL), option(raw, libc::SO_ACCEPTCONN));
    if !matches!(family, libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX) {
        return;
    }
    let state = check.row.get("sockstate").and_then(Value::as_str);
    if listens.is_some_and(|l| (l == 1) != (state == Some("LISTEN"))) {
        let who = &check.who;
        let text =
            format!("{who}: sockstate {state:?}, the kernel says that it listens: {listens:?}");
        check.found.insert((check.pid, text));
    }
    if family == libc::AF_UNIX {
        return;
    }
    let name = match protocol {
        Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP) => Some("TCP"),
        Some(libc::IPPROTO_UDP) => Some("UDP"),
        _ => None,
    };
    check.is("protocol", name.map(|n| json!(n)));
    // SAFETY: the struct is ours, and large enough for both families, of which each has the port in
    // one place.
    let port = unsafe {
        let mut a: libc::sockaddr_in6 = zeroed();
        let mut len = size_of::<libc::sockaddr_in6>() as u32;
        (libc::getsockname(raw, (&raw mut a).cast(), &mut len) == 0)
            .then(|| u16::from_be(a.sin6_port))
    };
    check.is("lport", port.filter(|p| *p != 0 && name.is_some()).map(|p| json!(p)));
}

fn of_mapping(pid: i32, check: &mut Check<'_>) {
    let hex =
        |c| check.row.get(c).and_then(Value::as_str).and_then(|t| u64::from_str_radix(t, 16).ok());
    let (Some(from), Some(to)) = (hex("address"), hex("end")) else { return };
    check.who = format!("{} {from:x}", check.who);
    let Ok(st) = std::fs::metadata(format!("/proc/{pid}/map_files/{from:x}-{to:x}")) else {
        return;
    };
    check.is("inode", Some(json!(st.ino())));
    check.is(
        "device",
        Some(json!(format!("{:02x}:{:02x}", libc::major(st.dev()), libc::minor(st.dev())))),
    );
}

/// Which processes share their table of open files, which kcmp(2) knows.
fn sharing<'a>(engine: &str, rows: impl Iterator<Item = &'a Row>, found: &mut Found) {
    let lists: BTreeMap<i32, Value> = rows
        .filter(|r| is_of_process(r))
        .filter_map(|r| Some((number(r, "pid")?, r.get("sharers")?.clone())))
        .collect();
    for a in lists.keys() {
        for b in lists.keys().filter(|b| *b > a) {
            // KCMP_FILES
            // SAFETY: a system call with numbers.
            let same = unsafe { libc::syscall(libc::SYS_kcmp, *a, *b, 2, 0, 0) };
            let says = lists[a].as_array().is_some_and(|l| l.contains(&json!(b)));
            if same >= 0 && (same == 0) != says {
                let text = format!(
                    "files {engine}: {a} has the sharers {}, kcmp with {b} says {same}",
                    lists[a]
                );
                found.insert((*a as u32, text));
            }
        }
    }
}

/// Whether the kernel lists sockets of this family and protocol (CONFIG_UNIX_DIAG,
/// CONFIG_INET_UDP_DIAG and others). The files in /proc/net have less data about each socket.
pub fn lists_sockets(family: i32, protocol: i32) -> bool {
    // struct nlmsghdr for SOCK_DIAG_BY_FAMILY as a dump, and a request for all states. The request
    // for the internet families is longer, and its second byte is the protocol.
    // A number that is larger than a byte is in an attribute (INET_DIAG_REQ_PROTOCOL).
    let is_local = family == libc::AF_UNIX;
    let len = if is_local {
        40
    } else if protocol > 255 {
        80
    } else {
        72
    };
    let mut request = [0u32; 20];
    request[..3].copy_from_slice(&[len, 20 | 0x301 << 16, 1]);
    request[4..6].copy_from_slice(&[(family | (protocol & 255) << 8) as u32, u32::MAX]);
    request[18..].copy_from_slice(&[8 | 3 << 16, protocol as u32]);
    // SAFETY: system calls with a descriptor and memory of ours.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 4);
        let fd = OwnedFd::from_raw_fd(fd);
        let mut answer = [0u32; 1024];
        libc::send(fd.as_raw_fd(), request.as_ptr().cast(), len as usize, 0);
        let room = size_of_val(&answer);
        let got = libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), room, 0);
        // NLMSG_ERROR is 2.
        got >= 16 && answer[1] & 0xffff != 2
    }
}

/// Whether pidfd_open(2) makes descriptors of threads (`PIDFD_THREAD`).
pub fn has_pidfds_of_threads() -> bool {
    let thread = || {
        // SAFETY: system calls with numbers; the descriptor is new, and only ours.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, libc::gettid(), libc::O_EXCL);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32)).is_some()
        }
    };
    std::thread::spawn(thread).join().expect("it only asks")
}
