//! Tests a mapping of each kind and an open file of each type on every engine: against the values
//! that mktask made, and the engines against each other.

use std::collections::BTreeMap;

use taskdiag::wire::{
    Fd, FdDetail, FdDetailKind, FileStat, FileUse, Layout, ListEntry, Net, Socket, Vma, VmaStat,
};
use taskdiag::{EngineId, FdCount, FdType, Group, Groups, Reason, Request, VmaKind};
use taskdiag_tests::answer::{by_proc_tasks, engines, engines_with};
use taskdiag_tests::rows::{Row, differences, owner, rows};
use taskdiag_tests::{Answer, Mktask, Value, plain_dir, read, skip};

fn num(row: &Row, key: &str) -> i128 {
    match row.get(key) {
        Some(Value::Num(n)) => *n,
        other => panic!("{key} is {other:?} in {row:?}"),
    }
}

fn name(row: &Row) -> (Vec<u8>, bool) {
    match (row.get("name"), row.get("name.deleted")) {
        (Some(Value::Bytes(b)), deleted) => (b.clone(), deleted == Some(&Value::Num(1))),
        other => panic!("{other:?} in {row:?}"),
    }
}

/// The answers to ONE about a process, from the engines that have a group.
fn answers(m: &Mktask, group: Group) -> Vec<Answer> {
    let ask = |e| read(e, &Request::one(m.pid(), group.into())).expect("an answer");
    engines_with(group).into_iter().map(ask).collect()
}

/// Checks that the lists of any two engines are the same, entry by entry.
fn same_lists<T: ListEntry>(m: &Mktask, answers: &[Answer], group: Group, not: &[&str]) {
    for pair in answers.windows(2) {
        let [a, b] = [&pair[0], &pair[1]].map(|a| rows::<T>(&owner(a, m.pid(), group)));
        assert_eq!(a.len(), b.len(), "{} and {}", pair[0], pair[1]);
        for (a, b) in a.iter().zip(&b) {
            let different = differences(a, b, not);
            assert!(different.is_empty(), "{} and {}: {different:?} of {a:?}", pair[0], pair[1]);
        }
    }
}

const R: i128 = 1;
const RW: i128 = 3;
const SHARED: i128 = 8;

#[test]
fn each_kind_of_mapping_is_listed_as_it_was_made() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["mappings", &path]) else { return };
    let all = answers(&m, Group::Vma);
    assert!(!all.is_empty(), "no engine has mappings");
    let text = |fact: &str| (m.bytes(fact), false);
    let none = || (Vec::new(), false);
    let lit = |s: &str, deleted| (s.as_bytes().to_vec(), deleted);
    for a in &all {
        let list = rows::<Vma>(&owner(a, m.pid(), Group::Vma));
        let of = |fact: &str| -> &Row {
            let at = m.num::<i128>(fact);
            let holds = |r: &&Row| num(r, "start") <= at && at < num(r, "end");
            list.iter().find(holds).unwrap_or_else(|| panic!("{a}: no {fact}"))
        };
        for (fact, kind, perms, named) in [
            ("anon", VmaKind::Anon, RW, none()),
            ("exec", VmaKind::Anon, 5, none()),
            ("locked", VmaKind::Anon, RW, none()),
            ("dontdump", VmaKind::Anon, RW, none()),
            ("shared_anon", VmaKind::File, RW | SHARED, lit("/dev/zero", true)),
            ("file_shared", VmaKind::File, RW | SHARED, text("file_name")),
            ("file_private", VmaKind::File, R, text("file_name")),
            ("deleted", VmaKind::File, R, (m.bytes("deleted_name"), true)),
            ("memfd", VmaKind::File, RW | SHARED, lit("/memfd:mk mem", true)),
            ("sysv", VmaKind::File, RW | SHARED, lit("/SYSV00000000", true)),
        ] {
            let r = of(fact);
            assert_eq!(num(r, "start"), m.num::<i128>(fact), "{a}: {fact}");
            assert_eq!(num(r, "end") - num(r, "start"), m.num::<i128>("size"), "{a}: {fact}");
            assert_eq!(num(r, "kind"), kind as i128, "{a}: {fact}");
            assert_eq!(num(r, "perms"), perms, "{a}: {fact}");
            assert_eq!(name(r), named, "{a}: {fact}");
            assert_eq!(num(r, "offset_bytes"), 0, "{a}: {fact}");
        }
        assert_eq!(num(of("stack"), "kind"), VmaKind::Stack as i128, "{a}");
        let heaps = list.iter().filter(|r| num(r, "kind") == VmaKind::Heap as i128);
        assert_eq!(heaps.map(|r| num(r, "end")).max(), Some(m.num("heap")), "{a}");
        assert!(list.iter().any(|r| num(r, "kind") == VmaKind::Vdso as i128), "{a}");
        assert_eq!(num(of("file_private"), "inode"), m.num::<i128>("file_inode"), "{a}");
        if m.num::<u8>("has_names") == 1 {
            assert_eq!(num(of("named"), "kind"), VmaKind::Named as i128, "{a}");
            assert_eq!(name(of("named")), lit("mk task:1", false), "{a}");
        } else {
            skip("names of anonymous memory", "the kernel has no CONFIG_ANON_VMA_NAME");
        }
        let flags = |fact: &str, bit: i128| {
            if let Some(Value::Num(n)) = of(fact).get("flags") {
                assert_eq!(n & bit, bit, "{a}: {fact}");
            }
        };
        let g = of("growsdown");
        assert_eq!((num(g, "start"), num(g, "kind")), (m.num("growsdown"), VmaKind::Anon as i128));
        assert_eq!(num(g, "end") - num(g, "start"), m.num::<i128>("size"), "{a}");
        flags("growsdown", 0x1);
        flags("dontdump", 0x2000);
        if m.has("hugetlb") {
            let h = of("hugetlb");
            assert_eq!(num(h, "start"), m.num::<i128>("hugetlb"), "{a}");
            assert_eq!(num(h, "end") - num(h, "start"), m.num::<i128>("huge"), "{a}");
            assert_eq!(num(h, "kind"), VmaKind::File as i128, "{a}");
            assert_eq!(name(h), lit("/anon_hugepage", true), "{a}");
            flags("hugetlb", 0x400);
        } else {
            skip("a mapping of huge pages", "the kernel has no hugetlbfs or other sizes");
        }
        if m.num::<u8>("is_locked") == 1 {
            flags("locked", 0x4);
        }
    }
    same_lists::<Vma>(&m, &all, Group::Vma, &[]);
}

#[test]
fn addresses_of_code_and_stack_are_those_of_the_process() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["mappings", &path]) else { return };
    let sources = engines_with(Group::Layout);
    assert!(!sources.is_empty(), "no engine has addresses");
    let facts = ["start_code", "end_code", "start_stack"].map(|f| m.num::<u64>(f));
    assert!(facts.iter().all(|v| *v > 4096), "{facts:?}");
    for source in sources {
        for req in [
            Request::one(m.pid(), Groups::LAYOUT),
            Request::threads(m.pid(), Groups::LAYOUT | Groups::STAT),
            Request::all(Groups::BASE | Groups::LAYOUT),
        ] {
            let answer = read(source, &req).expect("an answer");
            let task = answer.snapshot.tasks().find(|t| t.pid() == m.pid()).expect("the task");
            let l = task.record::<Layout>().unwrap_or_else(|| panic!("{answer}: no addresses"));
            let got = [l.start_code(), l.end_code(), l.start_stack()];
            assert_eq!(got, facts.map(Some), "{answer}");
        }
    }
}

#[test]
fn sums_of_mappings_are_those_of_smaps() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["mappings", &path]) else { return };
    for engine in engines_with(Group::VmaStat) {
        let req = Request::one(m.pid(), Groups::VMA | Groups::VMA_STAT);
        let a = read(engine, &req).expect("an answer");
        let t = owner(&a, m.pid(), Group::VmaStat);
        let (maps, stats) = (rows::<Vma>(&t), rows::<VmaStat>(&t));
        assert_eq!(maps.len(), stats.len(), "{a}");
        let size = m.num::<i128>("size");
        let of = |fact: &str| {
            let i =
                maps.iter().position(|r| num(r, "start") == m.num::<i128>(fact)).expect("it is");
            (&maps[i], &stats[i])
        };
        for fact in ["anon", "locked", "shared_anon", "memfd"] {
            let (_, s) = of(fact);
            assert_eq!(num(s, "rss_bytes"), size, "{a}: {fact}");
            assert_eq!(num(s, "pss_bytes"), size, "{a}: {fact}");
            assert_eq!(num(s, "private_dirty_bytes"), size, "{a}: {fact}");
            let anon = if ["anon", "locked"].contains(&fact) { size } else { 0 };
            assert_eq!(num(s, "anonymous_bytes"), anon, "{a}: {fact}");
        }
        assert_eq!(num(of("exec").1, "rss_bytes"), 0, "{a}");
        assert_eq!(num(of("locked").1, "locked_bytes"), size, "{a}");
        if m.has("protection_key") {
            assert_eq!(num(of("anon").1, "protection_key"), 0, "{a}");
            assert_eq!(num(of("keyed").1, "protection_key"), m.num("protection_key"), "{a}");
        } else {
            skip("keys of mappings", "the processor has none");
            assert_eq!(of("anon").1.get("protection_key"), None, "{a}");
        }
        // The flags are known, because smaps is read.
        assert_eq!(num(of("dontdump").0, "flags") & 0x2000, 0x2000, "{a}");
        assert_eq!(num(of("locked").0, "flags") & 0x4, 0x4, "{a}");
    }
}

fn fds(m: &Mktask, a: &Answer) -> BTreeMap<i128, Row> {
    let list = rows::<Fd>(&owner(a, m.pid(), Group::Fd));
    list.into_iter().map(|r| (num(&r, "fd"), r)).collect()
}

#[test]
fn each_kind_of_file_is_listed_as_it_was_opened() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["files", &path]) else { return };
    let all = answers(&m, Group::Fd);
    assert!(!all.is_empty(), "no engine has files");
    // If the kernel has the file, the group comes from it, and no other engine is asked.
    if engines().iter().any(|s| s.id() == EngineId::Kernel) && !by_proc_tasks() {
        assert!(all.iter().any(|a| a.source.id() == EngineId::Kernel), "the kernel has no files");
        let a = taskdiag::query(&Request::all(Groups::FD)).expect("an answer");
        let by = |e: EngineId| a.served().iter().any(|s| s.engine == e);
        assert!(by(EngineId::Kernel) && !by(EngineId::Bpf) && !by(EngineId::Procfs), "auto joins");
    }
    let types = [
        ("reg", FdType::Reg),
        ("dir", FdType::Dir),
        ("chr", FdType::Chr),
        ("fifo", FdType::Fifo),
        ("lnk", FdType::Lnk),
        ("deleted", FdType::Reg),
        ("pipe_read", FdType::Pipe),
        ("pipe_write", FdType::Pipe),
        ("memfd", FdType::Memfd),
        ("ns", FdType::Ns),
        ("unix_listen", FdType::Socket),
        ("eventfd", FdType::Eventfd),
        ("epoll", FdType::Epoll),
        ("timerfd", FdType::Timerfd),
        ("signalfd", FdType::Signalfd),
        ("inotify", FdType::Inotify),
        ("fanotify", FdType::Fanotify),
        ("pidfd", FdType::Pidfd),
        ("io_uring", FdType::IoUring),
        ("bpf_map", FdType::BpfMap),
        ("bpf_prog", FdType::BpfProg),
        ("bpf_link", FdType::BpfLink),
        ("vsock", FdType::Socket),
        ("xdp", FdType::Socket),
        ("userfaultfd", FdType::Userfaultfd),
        ("perf_event", FdType::PerfEvent),
        ("mqueue", FdType::Mqueue),
        ("tcp_listen", FdType::Socket),
        ("netlink", FdType::Socket),
    ];
    for (fact, _) in types.iter().filter(|t| !m.has(t.0)) {
        skip(&format!("files: {fact}"), "this machine does not make one");
    }
    for a in &all {
        let fds = fds(&m, a);
        let of = |fact: &str| &fds[&m.num::<i128>(fact)];
        for (fact, kind) in types.iter().filter(|t| m.has(t.0)) {
            assert_eq!(num(of(fact), "type"), *kind as i128, "{a}: {fact}: {:?}", of(fact));
        }
        let reg = of("reg");
        assert_eq!(name(reg), (m.bytes("reg_name"), false), "{a}");
        assert_eq!((num(reg, "pos_bytes"), num(reg, "size_bytes")), (5, 65536), "{a}");
        assert_eq!((num(reg, "inode"), num(reg, "nlink")), (m.num("reg_inode"), 1), "{a}");
        let want = libc::O_RDWR | libc::O_APPEND | libc::O_CLOEXEC;
        assert_eq!(num(reg, "flags") & i128::from(want), want.into(), "{a}");
        assert_eq!(num(reg, "mode"), 0o100640, "{a}");
        assert_eq!(num(of("dir"), "flags") & i128::from(libc::O_CLOEXEC), 0, "{a}");
        assert_eq!(num(of("chr"), "rdev"), 0x103, "{a}: /dev/null");
        assert_eq!(name(of("chr")).0, b"/dev/null", "{a}");
        assert_eq!(name(of("deleted")), (m.bytes("deleted_name"), true), "{a}");
        assert_eq!(num(of("deleted"), "nlink"), 0, "{a}");
        assert_eq!(name(of("memfd")), (b"/memfd:mk mem".to_vec(), true), "{a}");
        for end in ["pipe_read", "pipe_write"] {
            assert_eq!(num(of(end), "inode"), m.num::<i128>("pipe_inode"), "{a}");
        }
    }
    same_lists::<Fd>(&m, &all, Group::Fd, &[]);
}

#[test]
fn details_of_files_are_those_that_were_set() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["files", &path]) else { return };
    let mut seen = BTreeMap::new();
    for a in answers(&m, Group::Fd) {
        let fds = fds(&m, &a);
        let t = owner(&a, m.pid(), Group::Fd);
        let details: Vec<FdDetail> =
            t.list::<FdDetail>().into_iter().flatten().map(|e| *e.raw).collect();
        let mut of = |fact: &str, kind: FdDetailKind| -> Option<[u64; 5]> {
            let fd = m.has(fact).then(|| m.num::<u32>(fact))?;
            let mut all = details.iter().filter(|d| (d.fd, d.kind) == (fd, kind as u32));
            let d = all.next()?;
            *seen.entry(kind).or_insert(0) += 1;
            Some(d.value)
        };
        let dev = num(&fds[&m.num("reg")], "dev") as u64;
        if let Some(v) = of("eventfd", FdDetailKind::Eventfd) {
            assert_eq!(v[0], 7, "{a}");
        }
        if let Some(v) = of("epoll", FdDetailKind::Epoll) {
            let e = &fds[&m.num("eventfd")];
            assert_eq!(v[..3], [m.num("eventfd"), 0x19, 0x1234], "{a}: EPOLLIN, ERR, HUP");
            assert_eq!(v[3], num(e, "inode") as u64, "{a}");
        }
        if let Some(v) = of("timerfd", FdDetailKind::Timerfd) {
            assert_eq!((v[0], v[1], v[4]), (1, 0, 5_000_000_500), "{a}");
            assert!(v[3] > 90_000_000_000_000 && v[3] <= 100_000_000_000_000, "{a}: {v:?}");
        }
        if let Some(v) = of("signalfd", FdDetailKind::Signalfd) {
            assert_eq!(v[0], 1 << (libc::SIGUSR1 - 1), "{a}");
        }
        if let Some(v) = of("inotify", FdDetailKind::Inotify) {
            let dir = num(&fds[&m.num("dir")], "inode") as u64;
            assert_eq!((v[1], v[2]), (dir, dev), "{a}");
            assert_eq!(v[3] & 0x300, 0x300, "{a}: IN_CREATE and IN_DELETE");
        }
        if let Some(v) = of("pidfd", FdDetailKind::Pidfd) {
            assert_eq!(v[0], m.num::<u64>("ppid"), "{a}");
        }
        if let Some(v) = of("io_uring", FdDetailKind::IoUring) {
            assert_eq!(v[..2], [8, 16], "{a}");
        }
        if let Some(v) = of("bpf_map", FdDetailKind::BpfMap) {
            assert_eq!(v[1..3], [2, 10], "{a}: an array of 10");
        }
        if let Some(v) = of("bpf_prog", FdDetailKind::BpfProg) {
            assert_eq!(v[1], 1, "{a}: a socket filter");
            assert!(v[0] > 0 && v[2] > 0 && v[2] % 4096 == 0, "{a}: id, memory {v:?}");
        }
        if let Some(v) = of("bpf_link", FdDetailKind::BpfLink) {
            assert_eq!(v[1], 1, "{a}: of a raw tracepoint");
            assert!(v[0] > 0 && v[2] > 0, "{a}: id, program {v:?}");
        }
    }
    assert!(seen.len() >= 6, "too few kinds of details were seen: {seen:?}");
    same_details(&m);
}

/// Checks that all engines give the same details of a descriptor, except for times.
fn same_details(m: &Mktask) {
    let mut all: Vec<_> = answers(m, Group::Fd)
        .into_iter()
        .map(|a| {
            let t = owner(&a, m.pid(), Group::Fd);
            let entries = t.list::<FdDetail>().into_iter().flatten();
            let mut list: Vec<FdDetail> = entries.map(|e| *e.raw).collect();
            for d in &mut list {
                match FdDetailKind::from_number(d.kind) {
                    Some(FdDetailKind::Timerfd) => d.value[3] = 0,
                    // only some engines know the memory, and not to the byte
                    Some(FdDetailKind::BpfMap) => d.value[3] = 0,
                    _ => {}
                }
            }
            // The order for an epoll and an inotify is the engine's own.
            list.sort_by_key(|d| (d.fd, d.kind, d.value));
            (a.to_string(), list.iter().map(|d| (d.fd, d.kind, d.value)).collect::<Vec<_>>())
        })
        .collect();
    // Before Linux 5.16, /proc shows nothing of a ring.
    let is_ring = |kind: u32| kind == FdDetailKind::IoUring as u32;
    if !all.iter().all(|a| a.1.iter().any(|d| is_ring(d.1))) {
        skip("details of a ring", "an engine does not know them, or there is none");
        all.iter_mut().for_each(|a| a.1.retain(|d| !is_ring(d.1)));
    }
    for pair in all.windows(2) {
        assert_eq!(pair[0].1, pair[1].1, "{} and {}", pair[0].0, pair[1].0);
    }
}

#[test]
fn each_kind_of_socket_is_listed_as_it_was_made() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["files", &path]) else { return };
    let all = answers(&m, Group::Fd);
    for a in &all {
        let list = rows::<Socket>(&owner(a, m.pid(), Group::Fd));
        let of = |fact: &str| {
            let fd = m.num::<i128>(fact);
            list.iter().find(|r| num(r, "fd") == fd).unwrap_or_else(|| panic!("{a}: no {fact}"))
        };
        let addr = |r: &Row, key: &str| match &r[key] {
            Value::Bytes(b) => b.clone(),
            other => panic!("{other:?}"),
        };
        let port = m.num::<i128>("tcp_port");
        let l = of("tcp_listen");
        assert_eq!((num(l, "state"), num(l, "local_port")), (10, port), "{a}");
        assert_eq!((num(l, "family"), num(l, "type"), num(l, "protocol")), (2, 1, 6), "{a}");
        assert_eq!(addr(l, "local_addr")[..4], [127, 0, 0, 1], "{a}");
        let (c, s) = (of("tcp_client"), of("tcp_server"));
        assert_eq!((num(c, "state"), num(s, "state")), (1, 1), "{a}");
        assert_eq!((num(c, "peer_port"), num(s, "local_port")), (port, port), "{a}");
        assert_eq!(num(c, "local_port"), num(s, "peer_port"), "{a}");
        assert_eq!(num(s, "recv_queue_bytes"), 5, "{a}");
        let waiting =
            |fact: &str| (num(of(fact), "recv_queue_bytes"), num(of(fact), "send_queue_bytes"));
        if a.source.id() == EngineId::Kernel {
            skip("queues of listeners on the kernel engine", "the series does not have them");
        } else {
            assert_eq!(
                waiting("tcp_listen"),
                (2, 5),
                "{a}: connections that wait, and how many may"
            );
            assert_eq!(waiting("unix_listen"), (0, 3), "{a}");
        }
        assert_eq!(num(of("udp_connected"), "state"), 1, "{a}");
        if m.has("mptcp_listen") {
            let l = of("mptcp_listen");
            let port = m.num::<i128>("mptcp_port");
            assert_eq!(
                (num(l, "type"), num(l, "state"), num(l, "local_port")),
                (1, 10, port),
                "{a}"
            );
            assert_eq!(num(l, "protocol"), 262, "{a}");
            assert_eq!(waiting("mptcp_listen"), (1, 7), "{a}");
            let (c, s) = (of("mptcp_client"), of("mptcp_server"));
            assert_eq!((num(c, "peer_port"), num(s, "local_port")), (port, port), "{a}");
            assert_eq!(num(c, "local_port"), num(s, "peer_port"), "{a}");
        } else {
            skip(
                "sockets: multipath TCP",
                "the kernel has no CONFIG_MPTCP, or net.mptcp.enabled is 0",
            );
        }
        if m.has("udp6") {
            let u = of("udp6");
            assert_eq!((num(u, "family"), num(u, "type")), (10, 2), "{a}");
            assert_eq!(num(u, "local_port"), m.num::<i128>("udp6_port"), "{a}");
            assert_eq!(addr(u, "local_addr"), std::net::Ipv6Addr::LOCALHOST.octets(), "{a}");
        }
        if m.has("raw") {
            let r = of("raw");
            assert_eq!((num(r, "type"), num(r, "protocol")), (3, 1), "{a}: ICMP");
            assert_eq!((num(r, "local_port"), num(r, "peer_port")), (1, 0), "{a}: ICMP");
            assert_eq!(addr(r, "local_addr"), [0; 16], "{a}");
        }
        let (x, y) = (of("unix_a"), of("unix_b"));
        assert_eq!((num(x, "family"), num(x, "type")), (1, 5), "{a}: SOCK_SEQPACKET");
        if x.contains_key("peer_inode") {
            assert_eq!(num(x, "peer_inode"), num(y, "inode"), "{a}");
            assert_eq!(num(y, "peer_inode"), num(x, "inode"), "{a}");
        } else {
            skip(
                &format!("peers of unix sockets of {a}"),
                "the kernel has no CONFIG_UNIX_DIAG here",
            );
        }
        assert_eq!(name(of("unix_listen")).0, m.bytes("unix_name"), "{a}");
        assert_eq!(num(of("unix_listen"), "state"), 10, "{a}");
        assert_eq!(name(of("unix_abstract")).0, m.bytes("abstract_name"), "{a}");
        let n = of("netlink");
        assert_eq!((num(n, "family"), num(n, "protocol")), (16, 0), "{a}");
        assert_eq!(num(n, "portid"), m.num::<i128>("netlink_portid"), "{a}");
        for (fact, family) in [("vsock", 40), ("xdp", 44)] {
            if m.has(fact) {
                assert_eq!(num(of(fact), "family"), family, "{a}: {fact}");
            } else {
                skip(&format!("sockets: {fact}"), "this machine does not make one");
            }
        }
        if m.has("packet") {
            let p = of("packet");
            assert_eq!((num(p, "family"), num(p, "protocol")), (17, 3), "{a}");
            assert_eq!(num(p, "ifindex"), m.num::<i128>("packet_ifindex"), "{a}");
        }
    }
    same_lists::<Socket>(&m, &all, Group::Fd, &[]);
    let all = answers(&m, Group::Net);
    for a in &all {
        let list = rows::<Net>(&owner(a, m.pid(), Group::Net));
        let of = |fact: &str| {
            let fd = m.num::<i128>(fact);
            list.iter().find(|r| num(r, "fd") == fd).unwrap_or_else(|| panic!("{a}: no {fact}"))
        };
        // The client has sent five bytes, and the server has not read them.
        let (c, s) = (of("tcp_client"), of("tcp_server"));
        assert_eq!(num(c, "sent_bytes") - num(c, "retrans_bytes"), 5, "{a}");
        assert_eq!((num(s, "received_bytes"), num(s, "sent_bytes")), (5, 0), "{a}");
        let udp = of("udp_connected");
        assert!(!udp.contains_key("sent_bytes") && udp.contains_key("drops"), "{a}: {udp:?}");
    }
    // These counters grow while the engines look.
    same_lists::<Net>(&m, &all, Group::Net, &["since_sent_ns", "since_received_ns"]);
}

/// The values of stat(2) for a file, as a row of FILE_STAT without its mount.
fn stat_row(path: &str) -> Option<BTreeMap<&'static str, i128>> {
    use std::os::unix::fs::MetadataExt;
    let s = std::fs::metadata(path).ok()?;
    let dev = |d: u64| (d & 0xff) | (d >> 8 & 0xfff) << 8 | (d >> 20 & 0xfff) << 20;
    Some(BTreeMap::from([
        ("dev", dev(s.dev()).into()),
        ("stat_dev", dev(s.dev()).into()),
        ("inode", s.ino().into()),
        ("size_bytes", s.size().into()),
        ("mode", s.mode().into()),
        ("nlink", s.nlink().into()),
        ("rdev", dev(s.rdev()).into()),
    ]))
}

#[test]
fn files_without_a_descriptor_are_those_of_stat() {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::if_possible(&["mappings", &path]) else { return };
    let groups = Groups::FILE_STAT | Groups::VMA;
    let ask = |e| read(e, &Request::one(m.pid(), groups)).expect("an answer");
    let mapped = engines_with(Group::Vma);
    let both = engines_with(Group::FileStat).into_iter().filter(|s| mapped.contains(s));
    let all: Vec<Answer> = both.map(ask).collect();
    assert!(!all.is_empty(), "no engine has file_stat");
    let proc = |file: &str| format!("/proc/{}/{file}", m.pid());
    let root = stat_row(&proc("map_files")).is_some_and(|_| {
        let first = std::fs::read_dir(proc("map_files")).ok().and_then(|mut d| d.next());
        first.is_some_and(|f| f.is_ok_and(|f| std::fs::metadata(f.path()).is_ok()))
    });
    for a in &all {
        let t = owner(a, m.pid(), Group::FileStat);
        let list = rows::<FileStat>(&t);
        let of = |what: FileUse| list.iter().filter(move |r| num(r, "as") == what as i128);
        for (what, file) in [(FileUse::Exe, "exe"), (FileUse::Cwd, "cwd"), (FileUse::Root, "root")]
        {
            let got: Vec<&Row> = of(what).collect();
            assert_eq!(got.len(), 1, "{a}: {what}");
            for (key, want) in stat_row(&proc(file)).expect("it lives") {
                assert_eq!(num(got[0], key), want, "{a}: {key} of {what}");
            }
        }
        // Each mapped file is found by device and inode.
        let mut compared = 0;
        for v in rows::<Vma>(&t).iter().filter(|v| num(v, "dev") != 0) {
            let range = format!("map_files/{:x}-{:x}", num(v, "start"), num(v, "end"));
            let key = |r: &Row| (num(r, "dev"), num(r, "inode"));
            let got = of(FileUse::Mapped).find(|r| key(r) == key(v));
            let want = stat_row(&proc(&range));
            let (Some(got), Some(want)) = (got, want) else {
                // A reader who may not read map_files finds mapped files by their names, if they
                // have one.
                assert!(!root, "{a}: {v:?}");
                continue;
            };
            for (key, want) in want {
                assert_eq!(num(got, key), want, "{a}: {key} of {v:?}");
            }
            compared += 1;
        }
        assert!(compared > 3 || !root, "{a}: only {compared} were compared");
        let twice = of(FileUse::Mapped).map(|r| (num(r, "dev"), num(r, "inode")));
        let mut seen: Vec<_> = twice.collect();
        seen.sort_unstable();
        let n = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), n, "{a}: a file is there once");
    }
    let sorted = |a: &Answer| {
        let mut list = rows::<FileStat>(&owner(a, m.pid(), Group::FileStat));
        list.sort_by_key(|r| (num(r, "as"), num(r, "dev"), num(r, "inode")));
        list
    };
    for pair in all.windows(2) {
        let (a, b) = (sorted(&pair[0]), sorted(&pair[1]));
        let lists = || format!("{} and {}:\n{a:?}\n{b:?}", pair[0], pair[1]);
        assert!(a.len() == b.len() || !root, "{}", lists());
        for (a, b) in a.iter().zip(&b).filter(|_| root) {
            let different = differences(a, b, &[]);
            assert!(different.is_empty(), "{} and {}: {different:?} of {a:?}", pair[0], pair[1]);
        }
    }
    // If engines share the work, the engine that lists mappings also describes their files.
    let shared = taskdiag::query(&Request::one(m.pid(), groups)).expect("an answer");
    let n = rows::<FileStat>(&shared.tasks().next().expect("it lives")).len();
    assert_eq!(n, sorted(&all[0]).len(), "by {:?}", shared.served());
}

#[test]
fn threads_share_their_files() {
    let Some(m) = Mktask::if_possible(&["threads", "4000"]) else { return };
    for engine in engines_with(Group::Fd) {
        let has = |g: &Group| engines_with(*g).contains(&engine);
        let groups: Groups = [Group::Fd, Group::Vma].into_iter().filter(has).collect();
        let a = read(engine, &Request::threads(m.pid(), groups)).expect("one");
        for (group, kind) in [(Group::Fd, Group::Fd as u16), (Group::Vma, Group::Vma as u16)] {
            if !engines_with(group).contains(&engine) {
                continue;
            }
            let lists = a.snapshot.tasks().filter(|t| t.attrs().any(|x| x.0 == kind));
            assert_eq!(lists.count(), 1, "{a}: {group} is there once");
            let first = owner(&a, m.pid(), group).pid();
            let sharing = a.snapshot.tasks().filter(|t| t.shared(group) == Some(first));
            assert_eq!(sharing.count(), 4000, "{a}: {group}");
        }
    }
}

#[test]
fn a_thread_with_its_own_files_has_its_own_list() {
    let ((_one, one), (_other, other)) = (plain_dir(), plain_dir());
    let Some(m) = Mktask::if_possible(&["unshared-files", &one, &other]) else { return };
    for engine in engines_with(Group::Fd) {
        let groups = Groups::FD | Groups::FD_COUNT;
        let a = read(engine, &Request::threads(m.pid(), groups)).expect("an answer");
        let thread = m.num("other_tid");
        let t = owner(&a, thread, Group::Fd);
        assert_eq!(t.pid(), thread, "{a}: it does not share");
        let links = |tid: u32| {
            std::fs::read_dir(format!("/proc/{}/task/{tid}/fd", m.pid())).expect("it lives").count()
        };
        for tid in [m.pid(), thread] {
            let t = owner(&a, tid, Group::Fd);
            assert_eq!(rows::<Fd>(&t).len(), links(tid), "{a} of {tid}");
            let t = owner(&a, tid, Group::FdCount);
            let open = t.record::<FdCount>().and_then(|n| n.open());
            assert_eq!(open, Some(links(tid) as u32), "{a} of {tid}");
        }
    }
}

#[test]
fn a_zombie_has_nothing() {
    let Some(m) = Mktask::if_possible(&["zombie"]) else { return };
    for (group, file) in [
        (Group::Fd, "fd"),
        (Group::FdCount, "fd"),
        (Group::Vma, "maps"),
        (Group::VmaStat, "smaps"),
        (Group::Rollup, "smaps_rollup"),
        (Group::Environ, "environ"),
        (Group::FileStat, "exe"),
        (Group::Layout, "stat"),
    ] {
        // The files of a process without memory belong to root, and others may not open some of
        // them.
        let path = format!("/proc/{}/{file}", m.pid());
        let why = match std::fs::File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Reason::Denied,
            _ => Reason::Absent,
        };
        for a in answers(&m, group) {
            let t = a.snapshot.tasks().next().expect("the task");
            assert_eq!(t.reason(group), Some(why), "{a}: {group}");
        }
    }
}

/// The memory of a process belongs to all its threads, even if the first of them has ended.
#[test]
fn a_process_has_its_memory_when_its_first_thread_has_ended() {
    const NAME: &str = "a_process_has_its_memory_when_its_first_thread_has_ended";
    let Some(m) = Mktask::or_skip(NAME, &["leader-gone"]) else { return };
    let groups =
        [Group::Vma, Group::VmaStat, Group::Rollup, Group::Swap, Group::Environ, Group::Layout];
    let mut seen = 0;
    for group in groups {
        for source in engines_with(group).into_iter().filter(|s| s.finds(group)) {
            for req in [Request::one(m.pid(), group.into()), Request::all(group.into())] {
                let answer = read(source, &req).unwrap_or_else(|e| panic!("{source}: {e}"));
                let task = answer.snapshot.tasks().find(|t| t.pid() == m.pid());
                let task = task.unwrap_or_else(|| panic!("{source}: it is not there"));
                let what = format!("{group} of {source}, {:?}", req.strategy);
                assert_eq!(task.reason(group), None, "{what}");
                assert!(task.attrs().any(|a| a.0 == group as u16), "{what}");
                if group == Group::Vma {
                    assert!(task.list::<Vma>().expect("mappings").count() > 5, "{what}");
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "nothing was looked at");
}
