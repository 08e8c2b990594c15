//! Streams whose structs are shorter or longer than ours, for every struct of the registry and
//! every length.

use super::*;

#[test]
fn the_first_task_is_known_before_parsing() {
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    for pid in [5, 1, 7] {
        w.begin_task(pid, pid);
        w.end_task();
    }
    let bytes = w.finish(Done::default());
    assert_eq!(first_pid(bytes.as_bytes()), Some(5));
    assert_eq!(first_pid(&bytes.as_bytes()[..20]), None);
}

/// A stream with one task that has this attribute.
fn one(attr: &[u8]) -> AlignedBuf {
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    w.begin_task(7, 7);
    w.raw_attr(attr);
    w.end_task();
    w.finish(Done::default())
}

/// A record of `len` bytes, or a list of `count` entries of that many, full of this byte.
fn attr(s: &Struct, len: usize, count: usize, fill: u8) -> Vec<u8> {
    let (head, body) = if s.is_list { (16, len * count) } else { (4, len - 4) };
    let mut a = vec![fill; head + body];
    let nla = NlAttr { len: a.len() as u16, kind: s.kind };
    if s.is_list {
        let hdr = ArrayHdr { nla, valid: u32::MAX, size: len as u32, count: count as u32 };
        a[..16].copy_from_slice(hdr.as_bytes());
    } else {
        a[..4].copy_from_slice(nla.as_bytes());
    }
    a
}

/// All entries of the attributes of this type, with their `valid`.
fn entries(s: &Stream<AlignedBuf>, kind: u16) -> Vec<(u32, Vec<u8>)> {
    let attrs = s.get(0).expect("one task").attrs().filter(|a| a.0 == kind);
    attrs
        .flat_map(|(_, a)| {
            let (hdr, rest) = ArrayHdr::read_from_prefix(a).expect("checked");
            let all = rest.chunks_exact(hdr.size as usize).take(hdr.count as usize);
            all.map(|e| (hdr.valid, e.to_vec())).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_struct_that_was_shorter_is_read() {
    for s in registry::STRUCTS {
        let table = s.table;
        for cut in (8..table.size).step_by(8) {
            // Existing members are kept, and the rest is zero and not known.
            let mut want = vec![0xa5; cut];
            want.resize(table.size, 0);
            let known = table.valid_within(cut);
            let counts: &[usize] = if s.is_list { &[0, 1, 3, 32_000 / cut] } else { &[1] };
            for &count in counts {
                let old = one(&attr(s, cut, count, 0xa5));
                let checked = Checked { least: Some(8), ..Checked::default() };
                let new = Stream::parse_as(old.clone(), checked).expect("an older writer's");
                assert!(new.grown.is_some(), "{} of {cut} bytes", s.name);
                if s.is_list {
                    let all = entries(&new, s.kind);
                    assert_eq!(all.len(), count, "{} of {cut} bytes", s.name);
                    let right = |e: &(u32, Vec<u8>)| e.0 == known && e.1 == want;
                    assert!(all.iter().all(right), "{} of {cut} bytes", s.name);
                    assert!(new.get(0).expect("one").attrs().any(|a| a.0 == s.kind));
                } else {
                    let (_, got) = new.get(0).expect("one").attrs().next().expect("there");
                    assert_eq!((got.len(), &got[8..]), (table.size, &want[8..]), "{}", s.name);
                    let valid = u32::from_ne_bytes(got[4..8].try_into().expect("4"));
                    let was = u32::from_ne_bytes([0xa5; 4]);
                    let unmasked = table.valid.is_empty();
                    assert_eq!(valid, if unmasked { was } else { was & known }, "{}", s.name);
                }
                // A saved copy is a stream of today's sizes, and the original still exists.
                Stream::parse(AlignedBuf::copy_of(new.bytes())).expect("today's sizes");
                assert_eq!(new.into_bytes(), old);
            }
            assert_eq!(
                Stream::parse(one(&attr(s, cut, 1, 1))).is_ok(),
                cut >= table.least,
                "{} of {cut} bytes, and the least are {}",
                s.name,
                table.least
            );
        }
    }
}

#[test]
fn every_struct_that_is_longer_is_read() {
    for s in registry::STRUCTS {
        for more in [8, 24, 4096] {
            let old = Stream::parse(one(&attr(s, s.table.size, 2, 0x5a))).expect("ours");
            let len = s.table.size + more;
            let new = Stream::parse(one(&attr(s, len, 2, 0x5a))).expect("a newer writer's");
            assert!(new.grown.is_none(), "{}", s.name);
            if s.is_list {
                let ours = |e: (u32, Vec<u8>)| (e.0, e.1[..s.table.size].to_vec());
                let new: Vec<_> = entries(&new, s.kind).into_iter().map(ours).collect();
                assert_eq!(new, entries(&old, s.kind), "{}", s.name);
            }
        }
    }
    macro_rules! records {
        ($($t:ident)*) => { $({
            let s = registry::STRUCTS.iter().find(|s| s.kind == $t::TYPE).expect("registered");
            let new = Stream::parse(one(&attr(s, s.table.size + 16, 1, 0x5a))).expect("newer");
            let got: &$t = new.get(0).expect("one").record().expect("there").raw();
            assert_eq!(got.as_bytes()[4..], vec![0x5a; s.table.size - 4], "{}", s.name);
        })* };
    }
    for_each_record!(records);
}

#[test]
fn info_and_done_may_be_shorter_and_longer() {
    let mut whole = one(&[]);
    let bytes = whole.as_mut_bytes();
    let first = u32::from_ne_bytes(bytes[..4].try_into().expect("4")) as usize;
    bytes[HDR + Info::C.least..first].fill(7);
    let bytes = whole.as_bytes();
    let last = bytes.len() - HDR - size_of::<Done>();
    let message = |at: usize, len: usize, payload: usize| {
        let mut m = bytes[at..at + len.min(HDR + payload)].to_vec();
        m.resize(HDR + payload, 0xee);
        m[..4].copy_from_slice(&((HDR + payload) as u32).to_ne_bytes());
        m
    };
    for (info, end) in
        [(80, 56), (88, 48), (8, 16), (120, 56), (88, 72), (96, 64), (264, 56), (280, 64)]
    {
        let parts = [
            message(0, first, info),
            bytes[first..last].to_vec(),
            message(last, bytes.len() - last, end),
        ];
        let made = AlignedBuf::copy_of(&parts.concat());
        let checked = Checked { least: Some(8), ..Checked::default() };
        let s = Stream::parse_as(made.clone(), checked).expect("it may be shorter or longer");
        let short = info < size_of::<Info>() || end < size_of::<Done>();
        assert_eq!(s.grown.is_some(), short);
        assert_eq!((s.info().magic, s.done().tasks, s.len()), (MAGIC, 1, 1));
        // Members that the writer did not have are not known, whatever comes after INFO.
        assert_eq!(s.info().machine.get().is_some(), info >= size_of::<Info>());
        assert_eq!(s.info().boot_id.get().is_some(), info >= 88 + 16);
        let least = info >= Info::C.least && end >= Done::C.least;
        assert_eq!(Stream::parse(made.clone()).is_ok(), least, "no version wrote less");
        // The totals are found at the end, however long DONE is.
        assert_eq!(done(made.as_bytes()).map(|d| d.tasks), Some(1));
        let (w, done) = StreamWriter::reopen(made).expect("it has a DONE");
        let again = Stream::parse(w.finish(done));
        assert_eq!(again.is_ok(), info >= Info::C.least);
    }
    assert_eq!(done(&bytes[..last]), None);
    assert_eq!(done(&[]), None);
}
