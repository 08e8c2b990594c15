//! Valid inputs of each target, made by the encoder so that they follow the format as it grows.
//! A fuzzer starts from them; findings are kept as files in `fuzz/seeds/<target>/`.

use taskdiag_wire::{
    A_CGROUP_PATH, A_GROUPS, A_NSPID, BLOB_DELETED, BLOB_MAX, BLOB_REWRITTEN, Base, Cgroup, Cred,
    Done, Group, Groups, Info, Io, Ns, PathKind, Reason, Sched, Stat, Statm, Strategy,
    StreamWriter, encode_features_request, encode_request,
};

/// The seeds of a target, as (name, bytes). Empty for an unknown target.
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "stream" => streams(),
        "request" => requests(),
        _ => Vec::new(),
    }
}

fn requests() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![("features".to_owned(), encode_features_request())];
    for strategy in Strategy::ALL {
        let pid = u32::from(strategy.takes_pid()) * 42;
        let groups = Groups::BASE | Groups::CRED;
        out.push((strategy.name().to_owned(), encode_request(*strategy, pid, groups)));
    }
    // A longer request of a later version whose new part is zero.
    let mut longer = encode_request(Strategy::All, 0, Groups::BASE);
    longer.extend([0; 8]);
    let len = longer.len() as u32;
    longer[..4].copy_from_slice(&len.to_ne_bytes());
    out.push(("longer".to_owned(), longer));
    out
}

fn writer(groups: Groups, strategy: Strategy) -> StreamWriter {
    let mut w = StreamWriter::new();
    w.info(&Info {
        show_flags: groups.bits(),
        dump_strategy: strategy as u64,
        ..StreamWriter::blank_info()
    });
    w
}

fn streams() -> Vec<(String, Vec<u8>)> {
    let done = |w: StreamWriter| w.finish(Done::default()).as_bytes().to_vec();
    let mut out = vec![("empty".to_owned(), done(writer(Groups::NONE, Strategy::All)))];

    let mut w = writer(Groups::from_bits(u64::MAX), Strategy::AllThread);
    for pid in 1..4 {
        full_task(&mut w, pid);
    }
    out.push(("full".to_owned(), done(w)));

    let mut w = writer(Groups::BASE | Groups::CMDLINE, Strategy::All);
    w.begin_task(7, 7);
    w.missing(Group::Base, Reason::Vanished);
    w.missing(Group::Cmdline, Reason::Denied);
    w.end_task();
    w.begin_task(8, 8);
    w.abandon_task();
    out.push(("missing".to_owned(), done(w)));

    let mut w = writer(Groups::CMDLINE, Strategy::All);
    w.begin_task(9, 9);
    w.put_blob(Group::Cmdline as u16, 0, 0, &vec![b'a'; BLOB_MAX + 100], BLOB_MAX + 100);
    w.end_task();
    w.begin_task(10, 10);
    w.put_blob(Group::Cmdline as u16, 0, BLOB_REWRITTEN, b"cut", 300);
    w.end_task();
    out.push(("pieces".to_owned(), done(w)));

    let mut head = writer(Groups::BASE | Groups::STAT, Strategy::All);
    head.begin_task(11, 11);
    head.put(&Base::new());
    head.end_task();
    head.continue_task(11, 11);
    head.put(&Stat::new());
    head.end_task();
    out.push(("continued".to_owned(), done(head)));
    out
}

fn full_task(w: &mut StreamWriter, pid: u32) {
    w.begin_task(pid, 1);
    let mut base = Base::new();
    base.valid = u32::MAX;
    base.comm[..3].copy_from_slice(b"a\n)");
    w.put(&base);
    w.put(&Cred::new());
    w.put(&Stat::new());
    w.put(&Statm::new());
    w.put(&Io::new());
    w.put(&Sched::new());
    w.put(&Ns::new());
    w.put(&Cgroup::new());
    w.put_blob(A_GROUPS, 0, 0, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0], 12);
    w.put_blob(A_NSPID, 0, 0, &[1, 0, 0, 0], 4);
    w.put_blob(A_CGROUP_PATH, 0, 0, b"/a", 2);
    w.put_blob(A_CGROUP_PATH, 5, 0, b"cpu:/b", 6);
    w.put_blob(Group::Cmdline as u16, 0, 0, b"sh\0-c\0\xff\0", 8);
    w.put_blob(Group::Paths as u16, PathKind::Exe as u32, BLOB_DELETED, b"/bin/x", 6);
    w.put_blob_missing(Group::Paths as u16, PathKind::Cwd as u32, Reason::Denied);
    w.put_blob(Group::Environ as u16, 0, 0, b"A=1\0", 4);
    w.missing(Group::Vma, Reason::Unsupported);
    w.end_task();
}
