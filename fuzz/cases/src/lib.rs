//! What each fuzz target does with its bytes, without the fuzzer, so that `cargo test` can replay
//! seeds and past findings with any compiler. A case fails by panicking.

use std::hint::black_box;

use taskdiag::Snapshot;
use taskdiag_wire::decode::Request;
use taskdiag_wire::{
    A_CGROUP_PATH, A_GROUPS, A_NSPID, AlignedBuf, Base, Cgroup, Cred, Group, Groups, Io, Ns,
    PathKind, Sched, Stat, Statm, Stream, TaskView, decode_request, encode_features_request,
    encode_request,
};

pub mod seeds;

/// A case: does something with any bytes and must not panic.
pub type Case = fn(&[u8]);

/// Every target by name.
pub const TARGETS: &[(&str, Case)] = &[("stream", stream), ("request", request)];

/// Untrusted bytes as a stream: refused, or every view works and what it says adds up.
pub fn stream(data: &[u8]) {
    let _ = black_box(Snapshot::read_from(data));
    let whole = AlignedBuf::copy_of(&data[..data.len() / 8 * 8]);
    let Ok(stream) = Stream::parse(whole.as_bytes()) else { return };
    assert_eq!(stream.len() as u64, stream.done().tasks);
    black_box((stream.info(), stream.asked(), stream.strategy()));
    for (i, task) in stream.tasks().enumerate() {
        walk(&task);
        assert_eq!(stream.get(i).map(|t| t.pid()), Some(task.pid()));
    }
    assert!(stream.get(stream.len()).is_none());
    // DONE ends a stream and nothing else does: no cut one may pass.
    let cut = AlignedBuf::copy_of(&data[..whole.len() - 8]);
    assert!(Stream::parse(cut.as_bytes()).is_err());
}

fn walk(task: &TaskView<'_>) {
    for (_, attr) in task.attrs() {
        assert!(attr.len() >= 4 && attr.len() % 8 == 0);
    }
    macro_rules! records {
        ($($t:ident)*) => { $(black_box(task.record::<$t>());)* };
    }
    records!(Base Cred Stat Statm Io Sched Ns Cgroup);
    if let Some(base) = task.record::<Base>() {
        black_box(base.comm_bytes());
    }
    for group in Group::ALL {
        black_box(task.reason(*group));
    }
    for kind in PathKind::ALL {
        black_box(task.path(*kind));
    }
    for attr in [A_CGROUP_PATH, A_GROUPS, A_NSPID, Group::Cmdline as u16, Group::Environ as u16] {
        for (header, piece) in task.blobs(attr) {
            assert_eq!(header.len as usize, piece.len());
        }
    }
    if let Some(line) = task.cmdline() {
        assert!(line.data.len() <= line.total);
        assert!(line.is_cut() || line.data.len() == line.total || line.reason.is_some());
    }
    black_box((task.groups(), task.nspid(), task.cgroups().count()));
}

/// Untrusted bytes as a request: refused, or it means what its encoding means.
pub fn request(data: &[u8]) {
    for supported in [Groups::NONE, Groups::BASE | Groups::CRED, Groups::from_bits(u64::MAX)] {
        match decode_request(data, supported) {
            Ok(Request::Get { strategy, pid, groups }) => {
                assert!(supported.contains(groups));
                assert_eq!(strategy.takes_pid(), pid != 0);
                let again = decode_request(&encode_request(strategy, pid, groups), supported);
                assert_eq!(again, Ok(Request::Get { strategy, pid, groups }));
            }
            Ok(Request::Features) => {
                let again = decode_request(&encode_features_request(), supported);
                assert_eq!(again, Ok(Request::Features));
            }
            Err(_) => {}
        }
    }
}
