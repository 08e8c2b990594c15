//! Requests: what an engine must refuse, because nothing unknown may be ignored.

use taskdiag_wire::decode::{Command, Error};
use taskdiag_wire::*;

const SUPPORTED: Groups = Groups::BASE.union(Groups::STAT).union(Groups::CMDLINE);

/// Bytes of the shortest request: the header and the members of the first version.
const FIRST: usize = 16 + 24;

fn decode(bytes: &[u8]) -> Result<Command, Error> {
    decode_request(bytes, SUPPORTED)
}

fn refused(bytes: &[u8], with: &str) {
    match decode(bytes) {
        Err(Error::BadRequest(why)) if why.contains(with) => {}
        other => panic!("want BadRequest with {with:?}, got {other:?}"),
    }
}

/// A good request with its length field corrected.
fn grown(mut bytes: Vec<u8>, more: &[u8]) -> Vec<u8> {
    bytes.extend(more);
    let n = bytes.len() as u32;
    bytes[..4].copy_from_slice(&n.to_ne_bytes());
    bytes
}

fn good() -> Vec<u8> {
    encode_request(&Req::new(Strategy::One, 7, Groups::BASE))
}

#[test]
fn every_strategy_is_decoded() {
    for s in Strategy::ALL {
        let pid = if s.takes_pid() { 4711 } else { 0 };
        let bytes = encode_request(&Req::new(*s, pid, SUPPORTED));
        let Ok(Command::Get(req)) = decode(&bytes) else { panic!("{s} is refused") };
        assert_eq!((req.strategy(), req.pid, req.groups()), (Some(*s), pid, SUPPORTED));
        let limits = (req.max_rss_bytes, req.budget_ns, req.skip_base, req.skip_stat);
        assert_eq!(limits, (0, 0, 0, 0));
        // Strategies that take no pid refuse one, and the others require one.
        let wrong = Req::new(*s, if s.takes_pid() { 0 } else { 1 }, SUPPORTED);
        refused(&encode_request(&wrong), "pid");
    }
    assert_eq!(decode(&encode_features_request()), Ok(Command::Features));
}

#[test]
fn no_groups_is_a_request_for_pids_alone() {
    let bytes = encode_request(&Req::new(Strategy::All, 0, Groups::NONE));
    assert!(matches!(decode(&bytes), Ok(Command::Get(r)) if r.groups().is_empty()));
}

#[test]
fn every_truncation_is_refused() {
    let bytes = good();
    for len in 0..bytes.len() {
        refused(&bytes[..len], ""); // nlmsg_len is not the length of the write
        if (16..FIRST).contains(&len) {
            refused(&grown(bytes[..len].to_vec(), &[]), "shorter than task_diag_req");
        }
    }
}

#[test]
fn the_length_is_that_of_the_write() {
    for wrong in [0, 1, 16, 55, 57, u32::MAX] {
        let mut bytes = good();
        bytes[..4].copy_from_slice(&wrong.to_ne_bytes());
        refused(&bytes, "nlmsg_len");
    }
}

#[test]
fn members_missing_from_a_short_request_are_zero() {
    let mut req = Req::new(Strategy::All, 0, Groups::BASE);
    (req.max_rss_bytes, req.budget_ns) = (1 << 40, 7);
    (req.skip_base, req.skip_stat) = (Base::KNOWS_COMM, 9);
    let bytes = encode_request(&req);
    for (len, want) in [
        (FIRST, (0, 0, 0, 0)),
        (FIRST + 8, (1 << 40, 0, 0, 0)),
        (FIRST + 16, (1 << 40, 7, 0, 0)),
        (FIRST + 20, (1 << 40, 7, Base::KNOWS_COMM, 0)),
        (FIRST + 24, (1 << 40, 7, Base::KNOWS_COMM, 9)),
    ] {
        match decode(&grown(bytes[..len].to_vec(), &[])) {
            Ok(Command::Get(r)) => {
                assert_eq!((r.max_rss_bytes, r.budget_ns, r.skip_base, r.skip_stat), want);
            }
            other => panic!("{len}: {other:?}"),
        }
    }
}

#[test]
fn trailing_bytes_must_be_zero() {
    assert!(decode(&grown(good(), &[0; 24])).is_ok(), "a newer, longer request");
    for at in [0, 11, 23] {
        let mut more = [0; 24];
        more[at] = 1;
        refused(&grown(good(), &more), "trailing");
    }
    assert!(decode(&grown(encode_features_request(), &[0; 8])).is_ok());
    refused(&grown(encode_features_request(), &[0, 1]), "trailing");
}

#[test]
fn unknown_bits_and_values_are_refused() {
    for bit in 0..64 {
        let groups = Groups::from_bits(1 << bit);
        let bytes = encode_request(&Req::new(Strategy::All, 0, groups));
        assert_eq!(decode(&bytes).is_ok(), SUPPORTED.contains(groups), "bit {bit}");
    }
    refused(&encode_request(&Req::new(Strategy::All, 0, SUPPORTED | Groups::CRED)), "show_flags");
    for strategy in [5u64, 255, u64::MAX, 1 << 32] {
        let mut bytes = good();
        bytes[24..32].copy_from_slice(&strategy.to_ne_bytes());
        refused(&bytes, "dump_strategy");
    }
    let mut bytes = good();
    bytes[36] = 1;
    refused(&bytes, "reserved");
    for kind in [0, NLMSG_DONE, MSG_INFO, MSG_TASK, 99, u16::MAX] {
        let mut bytes = good();
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        refused(&bytes, "message type");
    }
}

#[test]
fn any_alignment_is_accepted() {
    let mut room = vec![0];
    room.extend(good());
    assert!(decode(&room[1..]).is_ok());
}
