//! Streams for the decoder's tests: one good sample, and messages put together by hand, so that
//! they can be wrong.

use taskdiag_wire::*;

/// A small generator (xorshift64*), the same on every run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}

pub fn put32(bytes: &mut [u8], at: usize, v: u32) {
    bytes[at..at + 4].copy_from_slice(&v.to_ne_bytes());
}

pub fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub fn all_groups() -> Info {
    let asked = Groups::BASE | Groups::CRED | Groups::STAT | Groups::CMDLINE | Groups::PATHS;
    let asked = asked | Groups::IO | Groups::NS | Groups::CGROUP;
    build!(Info { show_flags: asked.bits(), ..StreamWriter::blank_info() })
}

/// The name of the tasks here.
pub const COMM: &[u8] = b"a) \n\xff";

pub fn base(ppid: u32) -> Base {
    let mut b = Base::new();
    b.valid = Base::ALL_VALID;
    b.ppid = ppid;
    b
}

/// Four tasks with every kind of attribute.
pub fn sample() -> AlignedBuf {
    let mut w = StreamWriter::new();
    w.info(&all_groups());
    w.begin_task(42, 42);
    w.put_base(&base(1), COMM);
    w.put(&build!(Cred { ngroups: 3, valid: Cred::ALL_VALID, ..Cred::new() }));
    let ids = |v: &[u32]| v.iter().flat_map(|i| i.to_ne_bytes()).collect::<Vec<u8>>();
    w.put_blob(A_GROUPS, 0, 0, &ids(&[4, 24, 27]), 12);
    w.put(&Stat::new());
    w.put(&Ns::new());
    w.put_blob(A_NSPID, 0, 0, &ids(&[42, 1]), 8);
    w.put_blob(Group::Cmdline as u16, 0, 0, b"a\0b\0", 4);
    w.put_blob(Group::Paths as u16, PathKind::Exe as u32, BLOB_DELETED, b"/bin/a (deleted)", 16);
    w.put_blob_missing(Group::Paths as u16, PathKind::Cwd as u32, Reason::Denied);
    w.put(&Cgroup::new());
    w.put_blob(A_CGROUP_PATH, 0, 0, b":/a", 3);
    w.put_blob(A_CGROUP_PATH, 3, 0, b"cpu:/b", 6);
    w.missing(Group::Io, Reason::Denied);
    w.end_task();
    w.begin_task(43, 42);
    w.put_base(&base(1), COMM);
    w.missing(Group::Cmdline, Reason::Vanished);
    w.end_task();
    w.begin_task(44, 44);
    w.put(&Sched::new());
    w.put(&Statm::new());
    w.put_name(7, BLOB_DELETED, b"/lib/a");
    w.put_list(
        Vma::ALL_VALID,
        &[build!(Vma { start: 4096, end: 8192, name: 7, ..Vma::default() }); 3],
    );
    w.put_list(Fd::ALL_VALID - 1, &[build!(Fd { name: 7, ..Fd::default() })]);
    w.put_list::<Socket>(Socket::ALL_VALID, &[]);
    w.shared(Group::Fd, 42);
    w.put(&Limits::new());
    w.end_task();
    w.continue_task(44, 44);
    w.put(&Io::new());
    w.end_task();
    w.begin_task(45, 45);
    w.end_task();
    w.finish(build!(Done { vanished: 2, ..Done::default() }))
}

/// A message with this payload, padded.
pub fn msg(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut b = AlignedBuf::new();
    b.push(&NlMsgHdr { kind, ..NlMsgHdr::default() });
    b.extend_padded(payload);
    let mut v = b.as_bytes().to_vec();
    let n = v.len() as u32;
    put32(&mut v, 0, n);
    v
}

pub fn task_msg(pid: u32, flags: u32, attrs: &[u8]) -> Vec<u8> {
    let head = TaskMsg { pid, tgid: 7, flags, reserved: 0 };
    msg(MSG_TASK, &[head.as_bytes(), attrs].concat())
}

pub fn info_msg() -> Vec<u8> {
    msg(MSG_INFO, all_groups().as_bytes())
}

pub fn done_msg(tasks: u64, more: &[u8]) -> Vec<u8> {
    let done = build!(Done { tasks, ..Done::default() });
    msg(NLMSG_DONE, &[done.as_bytes(), more].concat())
}

pub fn done_with_error(error: i32) -> Vec<u8> {
    msg(NLMSG_DONE, build!(Done { error, ..Done::default() }).as_bytes())
}

/// INFO, these messages, DONE with this count.
pub fn stream(messages: &[Vec<u8>], tasks: u64) -> Vec<u8> {
    [info_msg(), messages.concat(), done_msg(tasks, &[])].concat()
}

/// An attribute with this payload after its `nlattr`, padded.
pub fn attr(kind: u16, payload: &[u8]) -> Vec<u8> {
    let len = (4 + payload.len()).next_multiple_of(8);
    let mut v = raw_attr(len as u16, kind, len);
    v[4..4 + payload.len()].copy_from_slice(payload);
    v
}

/// An attribute that claims to have `says` bytes and has `len`.
pub fn raw_attr(says: u16, kind: u16, len: usize) -> Vec<u8> {
    let mut v = vec![0; len];
    v[..4].copy_from_slice(NlAttr { len: says, kind }.as_bytes());
    v
}

pub fn base_attr(ppid: u32) -> Vec<u8> {
    let mut whole = base(ppid);
    whole.comm[..COMM.len()].copy_from_slice(COMM);
    whole.as_bytes().to_vec()
}

pub fn blob_attr(attr_kind: u16, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    let hdr = BlobHdr { kind, len, total: len, ..BlobHdr::default() };
    attr(attr_kind, &[&hdr.as_bytes()[4..], data].concat())
}

/// Calls every accessor of a checked stream.
pub fn walk<B: AsRef<[u8]>>(s: &Stream<B>) -> usize {
    let mut n = 0;
    let _ = (s.info(), s.done(), s.strategy(), s.asked().to_string());
    for t in s.tasks() {
        n += t.attrs().map(|(_, b)| b.len()).sum::<usize>();
        n += t.comm().map_or(0, <[u8]>::len);
        macro_rules! records {
            ($($t:ident)*) => { $(n += t.record::<$t>().map_or(0, |r| r.raw().valid as usize);)* };
        }
        for_each_record!(records);
        macro_rules! lists {
            ($($t:ident)*) => { $(
                n += t.list::<$t>().map_or(0, |l| l.map(|e| e.valid as usize).sum());
            )* };
        }
        for_each_list!(lists);
        n += t
            .list::<Fd>()
            .map_or(0, |l| l.map(|e| t.name(e.raw.name).map_or(0, |n| n.data.len())).sum());
        n += Group::ALL.iter().filter_map(|g| t.reason(*g)).count();
        n += Group::ALL.iter().filter_map(|g| t.shared(*g)).count();
        n += PathKind::ALL.iter().filter_map(|k| t.path(*k)).map(|b| b.data.len()).sum::<usize>();
        n += t.cmdline().map_or(0, |b| b.data.len());
        n += t.groups().map_or(0, |v| v.len()) + t.nspid().map_or(0, |v| v.len());
        n += t.cgroups().map(|(_, d)| d.len()).sum::<usize>();
        n += format!("{t:?}{}", t.is_leader()).len();
    }
    for group in s.cgroups() {
        n += group.path().len() + group.values().count() + group.head().id as usize % 2;
    }
    n
}
