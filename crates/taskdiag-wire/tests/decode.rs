//! The decoder on invalid bytes: every rule of `uapi/task_diag.h` about what is refused, skipped
//! and joined. Requests are in `request.rs`.

mod common;

use common::*;
use taskdiag_wire::decode::Error;
use taskdiag_wire::*;

fn parse(bytes: &[u8]) -> Result<Stream<AlignedBuf>, Error> {
    assert_eq!(bytes.len() % 8, 0, "tests of odd lengths use parse_slice");
    Stream::parse(AlignedBuf::copy_of(bytes))
}

/// Parse a prefix of an aligned buffer, whatever its length.
fn parse_slice(buf: &AlignedBuf, len: usize) -> Result<Stream<&[u8]>, Error> {
    Stream::parse(&buf.as_bytes()[..len])
}

fn malformed(bytes: &[u8], with: &str) {
    match parse(bytes) {
        Err(Error::Malformed(_, what)) if what.contains(with) => {}
        other => panic!("want Malformed with {with:?}, got {other:?}"),
    }
}

#[test]
fn a_good_stream_is_read_whole() {
    let good = sample();
    let s = parse(good.as_bytes()).expect("a good stream");
    assert_eq!(s.len(), 4);
    assert_eq!(s.tasks().map(|t| t.pid()).collect::<Vec<_>>(), [42, 43, 44, 45]);
    let t = s.get(0).expect("first");
    assert_eq!(t.record::<Base>().and_then(|b| b.ppid()), Some(1));
    assert_eq!(t.comm(), Some(COMM));
    assert_eq!(t.groups(), Some(vec![4, 24, 27]));
    assert_eq!(t.nspid(), Some(vec![42, 1]));
    assert_eq!(t.cmdline().expect("cmdline").data.as_ref(), b"a\0b\0");
    assert_eq!(t.path(PathKind::Exe).expect("exe").data.as_ref(), b"/bin/a (deleted)");
    assert_eq!(t.path(PathKind::Exe).expect("exe").flags, BLOB_DELETED);
    assert_eq!(t.path(PathKind::Cwd).expect("cwd").reason, Some(Reason::Denied));
    assert!(t.path(PathKind::Root).is_none());
    assert_eq!(t.cgroups().collect::<Vec<_>>(), [(0, &b":/a"[..]), (3, &b"cpu:/b"[..])]);
    assert_eq!(t.reason(Group::Io), Some(Reason::Denied));
    assert_eq!(t.reason(Group::Stat), None);
    assert_eq!(t.reason(Group::Sched), None, "not asked for");
    assert_eq!(s.done().tasks, 4);
    assert_eq!(s.done().denied, 1);
    assert_eq!(s.done().vanished, 3, "one in the stream, two left out");
    walk(&s);
}

#[test]
fn lists_names_and_sharing_are_read_back() {
    let good = sample();
    let s = parse(good.as_bytes()).expect("a good stream");
    let t = s.get(2).expect("third");
    let vmas: Vec<_> = t.list::<Vma>().expect("there").collect();
    assert_eq!(vmas.len(), 3);
    assert_eq!((vmas[2].start(), vmas[2].name()), (Some(4096), Some(7)));
    let fds: Vec<_> = t.list::<Fd>().expect("there").collect();
    assert_eq!((fds[0].fd(), fds[0].name()), (None, Some(7)), "fd is not known");
    assert_eq!(t.list::<Socket>().expect("empty, not missing").count(), 0);
    assert!(t.list::<VmaStat>().is_none());
    assert_eq!((t.shared(Group::Fd), t.shared(Group::Vma)), (Some(42), None));
    // A name belongs to the whole stream.
    for name in [s.name(7), t.name(7), s.get(0).expect("first").name(7)] {
        let name = name.expect("it is there");
        assert_eq!((name.data.as_ref(), name.flags), (&b"/lib/a"[..], BLOB_DELETED));
    }
    assert!(s.name(8).is_none());
}

#[test]
fn command_names_of_every_length_are_read_back() {
    for len in 0..80 {
        let comm = vec![b'x'; len];
        let mut w = StreamWriter::new();
        w.info(&all_groups());
        w.begin_task(1, 1);
        w.put_base(&base(1), &comm);
        w.put(&Stat::new());
        w.end_task();
        let bytes = w.finish(Done::default());
        let s = parse(bytes.as_bytes()).expect("well formed");
        let t = s.get(0).expect("one");
        assert_eq!(t.comm(), Some(&comm[..len.min(63)]));
        assert!(t.record::<Stat>().is_some());
    }
}

#[test]
fn a_name_ends_at_its_first_nul_wherever_it_is() {
    // The writer refuses such a name, so one of the right length is changed in the finished stream.
    let name = b"a-name-that-is-longer-than-sixteen-bytes";
    let mut w = StreamWriter::new();
    w.info(&all_groups());
    w.begin_task(1, 1);
    w.put_base(&base(1), name);
    w.end_task();
    let mut bytes = w.finish(Done::default());
    let at = bytes.as_bytes().windows(name.len()).position(|w| w == name).expect("whole in it");
    bytes.as_mut_bytes()[at + 20] = 0;
    let s = parse(bytes.as_bytes()).expect("well formed");
    assert_eq!(s.get(0).expect("one").comm(), Some(&name[..20]));
}

#[test]
fn a_long_list_is_in_several_attributes() {
    let many: Vec<Vma> = (0..5000).map(|i| build!(Vma { start: i, ..Vma::default() })).collect();
    let mut w = StreamWriter::new();
    w.info(&all_groups());
    w.begin_task(1, 1);
    w.put_list(Vma::ALL_VALID, &many);
    w.end_task();
    let bytes = w.finish(Done::default());
    let s = parse(bytes.as_bytes()).expect("well formed");
    let t = s.get(0).expect("one");
    assert!(t.attrs().all(|(_, a)| a.len() <= BLOB_MAX + 16) && t.attrs().count() > 8);
    assert!(t.list::<Vma>().expect("there").map(|e| *e.raw).eq(many));
}

/// A list's head after its `nlattr`, and room for entries.
fn list_attr(size: u32, count: u32, room: usize) -> Vec<u8> {
    let head = [u32::MAX, size, count].map(u32::to_ne_bytes).concat();
    attr(Group::Vma as u16, &[&head[..], &vec![1; room]].concat())
}

#[test]
fn a_list_stays_within_its_attribute() {
    let size = size_of::<Vma>() as u32;
    let list = |size, count, room| stream(&[task_msg(1, 0, &list_attr(size, count, room))], 1);
    malformed(&list(size - 8, 1, 100), "size of a list's entries");
    malformed(&list(size + 4, 1, 100), "size of a list's entries");
    malformed(&list(0, u32::MAX, 0), "size of a list's entries");
    malformed(&list(size, 3, 2 * size as usize), "counts more");
    malformed(&list(u32::MAX - 7, u32::MAX, 64), "counts more");
    // Longer entries of a later version: the part that is known is read.
    let s = parse(&list(size + 8, 3, 3 * (size as usize + 8))).expect("well formed");
    assert_eq!(s.get(0).expect("one").list::<Vma>().expect("there").count(), 3);
}

#[test]
fn every_truncation_is_an_error() {
    let good = sample();
    let n = good.len();
    for len in 0..n {
        match parse_slice(&good, len) {
            Err(Error::Cut(at)) => assert!(at <= len, "cut at {at} of {len}"),
            // Too short to show its type.
            Err(Error::Foreign) => assert!(len < 20, "{len}"),
            other => panic!("{len} of {n} bytes: {other:?}"),
        }
    }
    assert!(parse_slice(&good, n).is_ok());
}

#[test]
fn an_info_message_that_is_cut_short_by_its_own_length_is_refused() {
    // The payload ends before the end of the magic and version, which the bytes still contain.
    for len in [0, 8, 16, 24, 40, 88] {
        let mut bytes = sample().as_bytes().to_vec();
        put32(&mut bytes, 0, len);
        assert!(parse(&bytes).is_err(), "INFO of {len} bytes");
    }
}

#[test]
fn nothing_may_follow_the_end() {
    let good = sample();
    let mut bytes = good.as_bytes().to_vec();
    bytes.extend([0; 8]);
    assert_eq!(parse(&bytes).err(), Some(Error::Trailing(good.len())));
    let twice = [good.as_bytes(), good.as_bytes()].concat();
    assert_eq!(parse(&twice).err(), Some(Error::Trailing(good.len())));
}

#[test]
fn foreign_bytes_are_named_as_such() {
    let good = sample();
    assert_eq!(parse(&[]).err(), Some(Error::Cut(0)));
    assert_eq!(parse(b"\x7fELF\x02\x01\x01\x00").err(), Some(Error::Foreign));
    assert_eq!(parse(&[0; 64]).err(), Some(Error::Foreign));
    assert_eq!(parse(b"PID TTY TIME CMD\n   1 ?  0:01 in").err(), Some(Error::Foreign));
    // A stream that does not begin with INFO.
    let info = get32(good.as_bytes(), 0) as usize;
    assert_eq!(parse(&good.as_bytes()[info..]).err(), Some(Error::Foreign));
}

#[test]
fn the_other_byte_order_is_named_as_such() {
    let mut bytes = sample().as_bytes().to_vec();
    for (at, width) in [(0, 4), (4, 2), (6, 2), (16, 4), (20, 4), (24, 8)] {
        bytes[at..at + width].reverse();
    }
    assert_eq!(parse(&bytes).err(), Some(Error::OtherByteOrder));
}

#[test]
fn another_version_is_named() {
    for v in [0, VERSION + 1, u32::MAX] {
        let mut bytes = sample().as_bytes().to_vec();
        put32(&mut bytes, 20, v);
        assert_eq!(parse(&bytes).err(), Some(Error::Version(v)));
    }
}

#[test]
fn unaligned_bytes_are_refused() {
    let good = sample();
    let mut room = AlignedBuf::zeroed(good.len() + 8);
    room.as_mut_bytes()[4..4 + good.len()].copy_from_slice(good.as_bytes());
    let err = Stream::parse(&room.as_bytes()[4..4 + good.len()]).err();
    assert_eq!(err, Some(Error::Unaligned));
}

#[test]
fn an_unknown_strategy_is_refused() {
    let mut bytes = sample().as_bytes().to_vec();
    bytes[32] = 99;
    malformed(&bytes, "strategy");
}

#[test]
fn bad_message_lengths_are_refused() {
    let task = task_msg(7, 0, &[]);
    for (len, with) in [(0, "header"), (15, "header"), (17, ""), (28, "multiple of 8")] {
        let mut bad = task.clone();
        put32(&mut bad, 0, len);
        malformed(&stream(&[bad], 1), with);
    }
    // The message is longer than the bytes that follow, so the stream is cut.
    let mut bad = task.clone();
    put32(&mut bad, 0, 1 << 30);
    assert!(matches!(parse(&stream(&[bad], 1)), Err(Error::Cut(_))));
    let mut bad = task;
    put32(&mut bad, 0, !7);
    assert!(matches!(parse(&stream(&[bad], 1)), Err(Error::Cut(_))));
    // A header and no task_diag_msg.
    malformed(&stream(&[msg(MSG_TASK, &[])], 1), "too short");
    malformed(&stream(&[msg(MSG_TASK, &[0; 8])], 1), "too short");
}

#[test]
fn bad_attribute_lengths_are_refused() {
    for len in [0, 1, 3, 4, 12, 15] {
        malformed(&stream(&[task_msg(7, 0, &raw_attr(len, 200, 16))], 1), "length");
    }
    // It reaches over the end of its message, into the next.
    malformed(&stream(&[task_msg(7, 0, &raw_attr(24, 200, 16)), task_msg(8, 0, &[])], 2), "longer");
    malformed(&stream(&[task_msg(7, 0, &raw_attr(65528, 200, 16))], 1), "longer");
}

#[test]
fn a_struct_that_is_shorter_than_the_first_one_is_refused_and_a_longer_one_is_read() {
    macro_rules! check {
        ($($t:ident)*) => { $({
            let mut full = $t::new();
            full.valid = 1;
            let bytes = full.as_bytes().to_vec();
            let mut short = bytes.clone();
            short.truncate($t::C.least - 8);
            let n = short.len() as u16;
            short[..2].copy_from_slice(&n.to_ne_bytes());
            malformed(&stream(&[task_msg(7, 0, &short)], 1), "shorter than its struct");
            let mut long = bytes;
            long.extend([0xee; 24]);
            let n = long.len() as u16;
            long[..2].copy_from_slice(&n.to_ne_bytes());
            let bytes = stream(&[task_msg(7, 0, &long)], 1);
            let s = parse(&bytes).expect("a longer struct is a newer one");
            assert_eq!(s.get(0).and_then(|t| t.record::<$t>().map(|r| r.raw().valid)), Some(1));
        })* };
    }
    for_each_record!(check);
    for kind in [Group::Cmdline as u16, Group::Paths as u16, A_GROUPS, A_NSPID, A_CGROUP_PATH] {
        malformed(&stream(&[task_msg(7, 0, &attr(kind, &[0; 12]))], 1), "shorter than its struct");
    }
    // INFO and DONE grow the same way.
    let mut info = info_msg();
    info.extend([7; 16]);
    let n = info.len() as u32;
    put32(&mut info, 0, n);
    let bytes = [info, done_msg(0, &[9; 8])].concat();
    assert!(parse(&bytes).is_ok());
    let bytes = [info_msg(), msg(NLMSG_DONE, &[0; 40])].concat();
    malformed(&bytes, "DONE is too short");
}

#[test]
fn unknown_messages_and_attributes_are_skipped() {
    let attrs = [attr(999, b"whatever"), base_attr(3), attr(40, &[]), attr(63, &[1; 32])].concat();
    let bytes = stream(
        &[
            msg(NLMSG_NOOP, &[]),
            task_msg(7, 0, &attrs),
            msg(4711, &[0xff; 64]),
            msg(MSG_FEATURES, &[0; 24]),
            task_msg(8, 0, &[]),
            msg(NLMSG_NOOP, &[0; 8]),
        ],
        2,
    );
    let s = parse(&bytes).expect("unknown parts are skipped");
    assert_eq!(s.len(), 2);
    let t = s.get(0).expect("first");
    assert_eq!(t.record::<Base>().and_then(|b| b.ppid()), Some(3));
    assert!(s.get(1).expect("second").record::<Base>().is_none());
    walk(&s);
}

#[test]
fn cont_continues_the_task_directly_before_it() {
    let joined = stream(
        &[task_msg(7, 0, &base_attr(3)), task_msg(7, FLAG_CONT, &blob_attr(A_NSPID, 0, &[7; 4]))],
        1,
    );
    let s = parse(&joined).expect("CONT");
    assert_eq!(s.len(), 1);
    let t = s.get(0).expect("the task");
    assert!(t.record::<Base>().is_some() && t.nspid().is_some());
    // First of all, after another task, after another message, after another process's task.
    malformed(&stream(&[task_msg(7, FLAG_CONT, &[])], 1), "CONT");
    malformed(&stream(&[task_msg(7, 0, &[]), task_msg(8, FLAG_CONT, &[])], 1), "CONT");
    let parted = [task_msg(7, 0, &[]), msg(4711, &[]), task_msg(7, FLAG_CONT, &[])];
    malformed(&stream(&parted, 1), "CONT");
    let mut other_tgid = task_msg(7, FLAG_CONT, &[]);
    put32(&mut other_tgid, 20, 999);
    malformed(&stream(&[task_msg(7, 0, &[]), other_tgid], 1), "CONT");
}

#[test]
fn filler_does_not_split_a_task() {
    let parts = [
        task_msg(7, 0, &base_attr(3)),
        msg(NLMSG_NOOP, &[0xff; 32]),
        msg(NLMSG_NOOP, &[]),
        task_msg(7, FLAG_CONT, &blob_attr(A_NSPID, 0, &[7; 4])),
        msg(NLMSG_NOOP, &[]),
        task_msg(8, 0, &base_attr(4)),
    ];
    let s = parse(&stream(&parts, 2)).expect("filler");
    let t = s.get(0).expect("the task");
    assert!(t.record::<Base>().is_some() && t.nspid().is_some());
    assert_eq!(t.attrs().count(), 2);
    assert_eq!(s.get(1).map(|t| t.attrs().count()), Some(1));
    let first = [msg(NLMSG_NOOP, &[]), task_msg(7, FLAG_CONT, &[])];
    malformed(&stream(&first, 1), "CONT");
}

#[test]
fn done_must_count_the_tasks() {
    let t = [task_msg(7, 0, &[])];
    for n in [0, 2, u64::MAX] {
        malformed(&stream(&t, n), "wrong number of tasks");
    }
    assert!(parse(&stream(&t, 1)).is_ok());
    // An error that ended the walk is handed on.
    let bytes = [info_msg(), done_with_error(-4)].concat();
    assert_eq!(parse(&bytes).expect("an early end").done().error, -4);
}

#[test]
fn missing_must_have_as_many_entries_as_it_counts() {
    let entry = |g: Group, r: u32| [(g as u32).to_ne_bytes(), r.to_ne_bytes()].concat();
    let missing =
        |count: u32, entries: &[u8]| attr(A_MISSING, &[&count.to_ne_bytes()[..], entries].concat());
    let io = entry(Group::Io, Reason::Blocked as u32);
    for (count, n) in [(1, 0), (2, 1), (u32::MAX, 1), (1 << 29, 1)] {
        let bad = missing(count, &io.repeat(n));
        malformed(&stream(&[task_msg(7, 0, &bad)], 1), "MISSING");
    }
    let two = [io.clone(), entry(Group::Base, 77)].concat();
    let bytes = stream(&[task_msg(7, 0, &missing(2, &two))], 1);
    let s = parse(&bytes).expect("MISSING");
    let t = s.get(0).expect("the task");
    assert_eq!(t.reason(Group::Io), Some(Reason::Blocked));
    assert_eq!(t.reason(Group::Base), Some(Reason::Unsupported), "a reason of a newer writer");
    // If the count is too small, the rest is ignored.
    let bytes = stream(&[task_msg(7, 0, &missing(1, &two))], 1);
    let s = parse(&bytes).expect("MISSING");
    assert_eq!(s.get(0).and_then(|t| t.reason(Group::Base)), None);
    walk(&s);
}

#[test]
fn blobs_must_lie_in_their_value() {
    let bad = |len: u32, offset: u32, total: u32| {
        let mut a = blob_attr(Group::Cmdline as u16, 0, &[b'x'; 8]);
        put32(&mut a, 8, len);
        put32(&mut a, 12, offset);
        put32(&mut a, 16, total);
        stream(&[task_msg(7, 0, &a)], 1)
    };
    malformed(&bad(9, 0, 9), "longer than its attribute");
    malformed(&bad(u32::MAX, 0, u32::MAX), "longer than its attribute");
    malformed(&bad(8, 1, 8), "outside");
    malformed(&bad(8, u32::MAX, u32::MAX), "outside");
    malformed(&bad(8, 0, 7), "outside");
    assert!(parse(&bad(8, 0, 8)).is_ok());
    // A list of ids has a whole number of ids.
    for kind in [A_GROUPS, A_NSPID] {
        malformed(&stream(&[task_msg(7, 0, &blob_attr(kind, 0, &[1; 6]))], 1), "multiple of 4");
    }
}

#[test]
fn a_long_value_is_joined_from_its_pieces() {
    let cmdline: Vec<u8> = (0..3 * BLOB_MAX as u32 + 1001).map(|i| (i * 7 % 251) as u8).collect();
    let huge: Vec<u8> = (0..3u32 << 20).map(|i| (i * 13 % 241) as u8).collect();
    let mut w = StreamWriter::new();
    w.info(&all_groups());
    for data in [&cmdline, &huge] {
        w.begin_task(7, 7);
        w.put(&base(1));
        w.put_blob(Group::Cmdline as u16, 0, BLOB_REWRITTEN, data, data.len());
        w.put(&Io::new());
        w.end_task();
    }
    let bytes = w.finish(Done::default());
    let s = parse(bytes.as_bytes()).expect("long values");
    for (i, want) in [cmdline, huge].iter().enumerate() {
        let t = s.get(i).expect("a task");
        let got = t.cmdline().expect("cmdline");
        assert!(got.data.as_ref() == want.as_slice(), "task {i} differs");
        assert_eq!((got.total, got.flags, got.is_cut()), (want.len(), BLOB_REWRITTEN, false));
        assert!(t.record::<Io>().is_some(), "what follows the value is there");
        assert!(t.blobs(Group::Cmdline as u16).all(|(h, _)| h.len as usize <= BLOB_MAX));
    }
    assert!(bytes.len() < 4 << 20, "no copy is in the stream");
}

#[test]
fn a_value_with_a_gap_or_without_its_end_is_marked_as_cut() {
    let piece = |offset: u32, data: &[u8]| {
        let mut a = blob_attr(Group::Cmdline as u16, 0, data);
        put32(&mut a, 12, offset);
        put32(&mut a, 16, 24);
        a
    };
    let cases = [
        (vec![piece(0, b"aaaaaaaa")], "aaaaaaaa"),
        (vec![piece(0, b"aaaaaaaa"), piece(16, b"cccccccc")], "aaaaaaaa"),
        (vec![piece(0, b"aaaaaaaa"), piece(0, b"AAAAAAAA"), piece(8, b"b")], "aaaaaaaab"),
    ];
    for (pieces, want) in cases {
        let bytes = stream(&[task_msg(7, 0, &pieces.concat())], 1);
        let s = parse(&bytes).expect("well formed");
        let b = s.get(0).and_then(|t| t.cmdline().map(|b| (b.data.to_vec(), b.is_cut())));
        assert_eq!(b, Some((want.as_bytes().to_vec(), true)));
    }
    // A piece that names another total belongs to another value: it must not make this one too
    // long.
    let mut other = piece(8, &[b'x'; 64]);
    put32(&mut other, 16, 4096);
    let bytes = stream(&[task_msg(7, 0, &[piece(0, b"aaaaaaaa"), other].concat())], 1);
    let s = parse(&bytes).expect("well formed");
    let b = s.get(0).and_then(|t| t.cmdline().map(|b| (b.data.to_vec(), b.is_cut())));
    assert_eq!(b, Some((b"aaaaaaaa".to_vec(), true)));
    // A first piece must be the beginning of the value.
    let bytes = stream(&[task_msg(7, 0, &piece(8, b"bbbbbbbb"))], 1);
    let s = parse(&bytes).expect("well formed");
    let b = s.get(0).and_then(|t| t.cmdline().map(|b| (b.data.to_vec(), b.is_cut())));
    assert_eq!(b, Some((vec![], true)));
}

#[test]
fn values_cut_by_the_writer_are_counted() {
    let mut w = StreamWriter::new();
    w.info(&all_groups());
    w.begin_task(7, 7);
    w.put_blob(Group::Cmdline as u16, 0, 0, b"half", 8);
    w.missing(Group::Io, Reason::Truncated);
    w.end_task();
    w.begin_task(8, 8);
    w.abandon_task();
    let bytes = w.finish(build!(Done { blocked: 5, ..Done::default() }));
    let s = parse(bytes.as_bytes()).expect("stream");
    let d = s.done();
    assert_eq!((d.tasks, d.truncated, d.vanished, d.blocked), (1, 1, 1, 5));
    assert_eq!(s.get(0).and_then(|t| t.cmdline()).map(|b| b.is_cut()), Some(true));
    assert_eq!(s.len(), 1, "the task that was abandoned is not there");
}

#[test]
fn random_mutations_never_panic() {
    let good = sample();
    let mut rng = Rng(0x7a5c_d1a6_2026_1121);
    let (mut ok, mut err) = (0, 0);
    for _ in 0..20_000 {
        let mut buf = good.clone();
        let bytes = buf.as_mut_bytes();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len());
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next() as u8,
                2 => put32(bytes, at & !3, [0, 1, 8, 16, u32::MAX, 1 << 31][rng.below(6)]),
                _ => {
                    // A piece from elsewhere.
                    let len = 8 * rng.below(12);
                    let from = rng.below(bytes.len() - 96) & !7;
                    let to = rng.below(bytes.len() - 96) & !7;
                    bytes.copy_within(from..from + len, to);
                }
            }
        }
        let len = if rng.below(8) == 0 { rng.below(buf.len()) } else { buf.len() };
        match parse_slice(&buf, len) {
            Ok(s) => {
                ok += 1;
                walk(&s);
            }
            Err(e) => {
                err += 1;
                assert!(!e.to_string().is_empty());
            }
        }
    }
    assert!(ok > 500 && err > 500, "the mutations are too weak or too strong: {ok} ok, {err} bad");
}

#[test]
fn cut_messages_of_every_version_are_read() {
    let cut = |uid, tasks| build!(Cut { uid, tasks, cut_tasks: 3, cut_bytes: 1 << 40 });
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    w.begin_task(7, 7);
    w.end_task();
    w.cut(&cut(1000, 5));
    w.cut(&build!(Cut { uid: CUT_OTHERS, answers: 2 }));
    let bytes = w.finish(Done::default());
    let s = Stream::parse(bytes.as_bytes()).expect("it is whole");
    assert_eq!(s.cuts(), [cut(1000, 5), build!(Cut { uid: CUT_OTHERS, answers: 2 })]);
    assert_eq!((s.len(), s.done().tasks), (1, 1));

    // A newer one is longer. A struct that is too short is not part of a stream of any version.
    let longer = [cut(9, 1).as_bytes(), &[0xff; 16]].concat();
    let whole = stream(&[msg(MSG_CUT, &longer)], 0);
    assert_eq!(Stream::parse(whole).expect("it is whole").cuts(), [cut(9, 1)]);
    malformed(&stream(&[msg(MSG_CUT, &[0; 32])], 0), "CUT is too short");
}

#[test]
fn names_of_containers_are_read_back() {
    use taskdiag_wire::ContainerPart::{Image, Name, Path, PodName};
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    w.begin_task(7, 7);
    w.end_task();
    w.container(&[(Path, Ok(b"/docker/abc")), (Name, Ok(b"w\xffb")), (Image, Err(Reason::Denied))]);
    w.container(&[(Path, Ok(b"/docker/def")), (Name, Ok(&[b'x'; BLOB_MAX + 9]))]);
    w.cut(&build!(Cut { uid: 9 }));
    let bytes = w.finish(Done::default());
    let s = Stream::parse(bytes.as_bytes()).expect("it is whole");
    assert_eq!((s.len(), s.cuts().len(), s.containers().len()), (1, 1, 2));
    let all: Vec<_> = s.containers().collect();
    assert_eq!(all[0].part(Path), Some(Ok(&b"/docker/abc"[..])));
    assert_eq!(all[0].part(Name), Some(Ok(&b"w\xffb"[..])));
    assert_eq!(all[0].part(Image), Some(Err(Reason::Denied)));
    assert_eq!(all[0].part(PodName), None);
    assert_eq!(all[1].part(Name), Some(Ok(&[b'x'; BLOB_MAX][..])));
    // The payload must consist of attributes.
    malformed(&stream(&[msg(MSG_CONTAINER, &[0; 8])], 0), "attribute length is wrong");
    // All values are whole, or the stream is refused.
    let whole = bytes.as_bytes();
    let at = whole.windows(11).position(|w| w == b"/docker/abc").expect("it is there");
    let mut bad = whole.to_vec();
    bad[at - 16..at - 12].copy_from_slice(&4096u32.to_ne_bytes());
    malformed(&bad, "data is longer than its attribute");
}

#[test]
fn control_groups_are_read_back() {
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    w.begin_task(7, 7);
    w.end_task();
    w.cgroup_list(&build!(CgroupList { boottime_ns: 5, left_out: 3, most: 9 }));
    let value = |member: u32, value| build!(CgroupValue { value, member });
    let head = CgroupMsg { id: 1, after_ns: 2, flags: CG_IS_V2, uid: 0 };
    let all = [
        value(CgroupMember::Memory as u32, 4096),
        build!(CgroupValue { member: CgroupMember::PidsMax as u32, flags: CG_UNLIMITED }),
        build!(CgroupValue {
            member: CgroupMember::CpuUsage as u32,
            reason: Reason::Denied as u16
        }),
        // A member of a newer version.
        value(60_000, 8),
    ];
    w.cgroup(&head, b"/", &all);
    w.cgroup(&CgroupMsg { id: 2, ..head }, b"/a\xff/b", &[]);
    w.cut(&build!(Cut { uid: 9 }));
    let bytes = w.finish(Done::default());
    let s = Stream::parse(bytes.as_bytes()).expect("it is whole");
    assert_eq!((s.len(), s.cuts().len(), s.cgroups().len()), (1, 1, 2));
    let list = s.cgroup_list().expect("there is one");
    assert_eq!((list.boottime_ns, list.left_out, list.most), (5, 3, 9));
    let found: Vec<_> = s.cgroups().collect();
    assert_eq!((found[0].path(), found[1].path()), (&b"/"[..], &b"/a\xff/b"[..]));
    assert_eq!((found[0].head(), found[1].head().id), (head, 2));
    let read: Vec<_> = found[0].values().map(|(m, e)| (m, *e.raw)).collect();
    let want = [CgroupMember::Memory, CgroupMember::PidsMax, CgroupMember::CpuUsage];
    assert_eq!(read, want.into_iter().zip(all).collect::<Vec<_>>());
    assert_eq!(found[1].values().count(), 0);
    // A stream without them is not one of a machine that has none.
    assert!(Stream::parse(sample()).is_ok_and(|s| s.cgroup_list().is_none()));
}

#[test]
fn damaged_control_groups_are_refused() {
    let list = || msg(MSG_CGROUP_LIST, CgroupList::default().as_bytes());
    let group = |attrs: &[u8]| msg(MSG_CGROUP, &[CgroupMsg::default().as_bytes(), attrs].concat());
    let path = blob_attr(A_CGROUP_NAME, 0, b"/a");
    let malformed_all = |messages: &[Vec<u8>], why| malformed(&stream(messages, 0), why);
    assert!(parse(&stream(&[list(), group(&path)], 0)).is_ok());
    malformed_all(&[msg(MSG_CGROUP_LIST, &[0; 40])], "CGROUP_LIST is too short");
    malformed_all(&[list(), list()], "there are two lists of control groups");
    malformed_all(&[group(&path)], "a control group is in no list");
    malformed_all(&[list(), msg(MSG_CGROUP, &[0; 16])], "CGROUP is too short");
    malformed_all(&[list(), group(&[])], "a control group has no path, or two");
    malformed_all(
        &[list(), group(&[&path[..], &path].concat())],
        "a control group has no path, or two",
    );
    malformed_all(&[list(), group(&[0; 8])], "attribute length is wrong");
    // A path that is only the beginning of one would be that of another group.
    let mut cut = path.clone();
    cut[16..20].copy_from_slice(&9u32.to_ne_bytes());
    malformed_all(&[list(), group(&cut)], "a control group has no path, or two");
    let values = |hdr: ArrayHdr, len| {
        let mut attr = attr(A_CGROUP_VALUE, &[&hdr.as_bytes()[4..], &vec![0; len]].concat());
        attr.extend_from_slice(&path);
        group(&attr)
    };
    let hdr = ArrayHdr { valid: 15, size: 16, count: 2, ..ArrayHdr::default() };
    assert!(parse(&stream(&[list(), values(hdr, 32)], 0)).is_ok());
    malformed_all(&[list(), values(hdr, 24)], "a list counts more than it has");
    let size = |size| ArrayHdr { size, count: 1, ..hdr };
    malformed_all(&[list(), values(size(8), 8)], "the size of a list's entries is wrong");
    assert!(parse(&stream(&[list(), values(size(24), 24)], 0)).is_ok());
}
