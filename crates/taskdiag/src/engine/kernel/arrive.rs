//! Reads an answer of the kernel to its end, or until the caller stops it. Data beyond the limits
//! of the request is cut as it arrives.

use taskdiag_wire::AlignedBuf;

use super::head;
use super::stop::Arrival;
use super::trim::{LIMITED, Trim};
use crate::error::Error;
use crate::request::Request;

/// How much is read at once if the progress is watched, or data is cut.
const SMALL_READ: usize = 1 << 20;

/// The stream, and how many times `read` was called. `guess` bytes are expected. `uid` finds the
/// real user id of a task.
pub(super) fn answer(
    req: &Request,
    guess: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Error>,
    uid: impl Fn(u32) -> Option<u32>,
) -> Result<(AlignedBuf, u64), Error> {
    let mut progress = req.watch.as_ref().map(|_| Arrival::new(req));
    let mut trim = req.groups.intersects(LIMITED).then(|| Trim::new(req.limits, guess));
    let small = trim.is_some() || progress.is_some();
    // The largest message of the kernel has an eighth of this.
    let mut bytes = AlignedBuf::zeroed(if trim.is_some() { SMALL_READ } else { guess });
    let piece = if small { SMALL_READ } else { usize::MAX };
    let (mut len, mut reads) = (head::ROOM, 0);
    loop {
        if len == bytes.len() {
            bytes.grow(len * 2);
        }
        let end = bytes.len().min(len.saturating_add(piece));
        let n = read(&mut bytes.as_mut_bytes()[len..end])?;
        len += n;
        reads += 1;
        if reads == 1 {
            // The first read has all of INFO, which is short.
            len = head::complete(&mut bytes.as_mut_bytes()[..len]);
        }
        if n == 0 {
            break;
        }
        if let Some(trim) = &mut trim {
            let taken = trim.advance(&bytes.as_bytes()[..len], &uid);
            bytes.as_mut_bytes().copy_within(taken..len, 0);
            len -= taken;
        }
        if let Some(progress) = &mut progress {
            let stream = trim.as_ref().map_or(&bytes.as_bytes()[..len], Trim::stream);
            progress.advance(stream);
            if req.is_stopped() && !progress.is_done() {
                return Ok((progress.finish(stream), reads));
            }
        }
    }
    let stream = match trim {
        Some(trim) => trim.finish(&bytes.as_bytes()[..len]),
        None => {
            bytes.truncate(len);
            bytes
        }
    };
    Ok((stream, reads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ByteLimits;
    use taskdiag_wire::registry::{Shape, shape};
    use taskdiag_wire::{Done, Fd, Group, Groups, Info, Reason, Stream, StreamWriter, Vma, build};

    /// The answer to a request whose stream arrives in pieces of at most `piece` bytes.
    fn cut(
        parts: impl Iterator<Item = Vec<u8>>,
        piece: usize,
        groups: Groups,
        limits: ByteLimits,
        uid: impl Fn(u32) -> Option<u32>,
    ) -> Stream<AlignedBuf> {
        let (mut parts, mut rest, mut at) = (parts, Vec::new(), 0);
        let read = |to: &mut [u8]| {
            assert!(to.len() <= SMALL_READ, "a buffer of {} bytes", to.len());
            if at == rest.len() {
                (rest, at) = (parts.next().unwrap_or_default(), 0);
            }
            let n = (rest.len() - at).min(to.len()).min(piece);
            to[..n].copy_from_slice(&rest[at..at + n]);
            at += n;
            Ok(n)
        };
        let req = Request::all(groups).with_limits(limits);
        Stream::parse(answer(&req, 1000, read, uid).expect("it is read").0).expect("a stream")
    }

    fn begin(groups: Groups) -> Vec<u8> {
        let mut w = StreamWriter::new();
        w.info(&build!(Info { show_flags: groups.bits(), ..StreamWriter::blank_info() }));
        w.into_open().as_bytes().to_vec()
    }

    fn end(tasks: u64) -> Vec<u8> {
        let done = StreamWriter::new().finish(build!(Done { tasks }));
        done.as_bytes().to_vec()
    }

    /// The messages of a task, as the kernel writes them: a message has at most 128 KiB.
    fn task(pid: u32, mut write: impl FnMut(&mut StreamWriter, u32) -> bool) -> Vec<u8> {
        let mut w = StreamWriter::new();
        w.begin_task(pid, pid);
        for part in 0.. {
            if part > 0 {
                w.continue_task(pid, pid);
            }
            let is_more = write(&mut w, part);
            w.end_task();
            if !is_more {
                break;
            }
        }
        w.into_open().as_bytes().to_vec()
    }

    fn texts(lens: &[usize]) -> Vec<Vec<u8>> {
        let of_task = |(pid, len): (u32, &usize)| {
            let text: Vec<u8> = (0..*len).map(|i| i as u8).collect();
            task(pid, |w, _| {
                w.put_blob(Group::Cmdline as u16, 0, 0, &text, *len);
                w.put_blob(Group::Environ as u16, 0, 0, &text[..len / 2], len / 2);
                false
            })
        };
        let tasks = (1..).zip(lens).map(of_task);
        [begin(Groups::TEXTS)].into_iter().chain(tasks).chain([end(lens.len() as u64)]).collect()
    }

    #[test]
    fn texts_are_cut_as_they_arrive() {
        let lens = [0, 7, 1000, 4096, 4097, 65_000, 70_000, 300_000];
        for piece in [8, 1000, 65_536, 1 << 20] {
            let limits = ByteLimits { text_bytes: 4096, ..ByteLimits::LIST };
            let s = cut(texts(&lens).into_iter(), piece, Groups::TEXTS, limits, |_| None);
            assert_eq!(s.done().truncated, 4, "pieces of {piece}");
            for (task, len) in s.tasks().zip(lens) {
                for (blob, len) in [(task.cmdline(), len), (task.environ(), len / 2)] {
                    let blob = blob.expect("it is there");
                    assert_eq!((blob.data.len(), blob.total), (len.min(4096), len));
                    assert_eq!(blob.is_cut(), len > 4096);
                    assert!(blob.data.iter().enumerate().all(|(i, b)| *b == i as u8));
                }
            }
        }
    }

    #[test]
    fn texts_of_one_user_do_not_take_the_room_of_others() {
        let limits = ByteLimits { all_text_bytes: 1 << 20, ..ByteLimits::LIST };
        let uid = |pid| Some(if pid > 38 { 0 } else { 1000 });
        let s = cut(texts(&[60_000; 40]).into_iter(), 1 << 20, Groups::TEXTS, limits, uid);
        let cut = s.tasks().filter(|t| t.cmdline().is_some_and(|b| b.is_cut())).count();
        assert!((20..38).contains(&cut), "{cut}");
        assert!(s.tasks().skip(38).all(|t| !t.cmdline().expect("it is there").is_cut()));
    }

    /// Mappings in an attribute of the kernel.
    const AT_ONCE: u32 = 16;

    /// The text of a name.
    fn name(number: u32, len: usize) -> Vec<u8> {
        let text = format!("/{number}/");
        let mut text = text.repeat(len / text.len() + 1).into_bytes();
        text.truncate(len);
        text
    }

    /// A task with `count` mappings. Each has a name of its own, from `first` on.
    fn maps(pid: u32, first: u32, count: u32, len: usize) -> Vec<u8> {
        task(pid, |w, part| {
            let numbers = part * AT_ONCE..((part + 1) * AT_ONCE).min(count);
            numbers.clone().for_each(|n| w.put_name(first + n, 0, &name(first + n, len)));
            let entry = |n| build!(Vma { start: u64::from(n), name: first + n, ..Vma::default() });
            w.put_list(Vma::ALL_VALID, &numbers.clone().map(entry).collect::<Vec<_>>());
            numbers.end < count
        })
    }

    /// A crowd of one user with mappings of 80 MB of names, before two processes of root.
    #[test]
    fn mappings_of_a_crowd_end_early_and_those_of_others_are_whole() {
        const CROWD: u32 = 40;
        const COUNT: u32 = 2000;
        const LEN: usize = 1000;
        const MOST: usize = 8 << 20;
        let limits = ByteLimits { all_list_bytes: MOST as u64, ..ByteLimits::LIST };
        let first = |pid| (1 << 28) + pid * COUNT;
        let crowd = (1..=CROWD).map(|pid| maps(pid, first(pid), COUNT, LEN));
        let others = [CROWD + 1, CROWD + 2].map(|pid| maps(pid, first(pid), 60, LEN));
        let whole = [begin(Groups::VMA)].into_iter().chain(crowd).chain(others);
        let whole = whole.chain([end(u64::from(CROWD) + 2)]);
        let uid = |pid| Some(if pid > CROWD { 0 } else { 1000 });
        let s = cut(whole, 300_000, Groups::VMA, limits, uid);
        // The part that each list gets in any case does not count.
        let least = CROWD as usize * (16 * (size_of::<Vma>() + LEN) + 500);
        assert!(s.bytes().len() < MOST + least, "{} bytes", s.bytes().len());
        let mut ended = 0;
        for task in s.tasks() {
            let is_other = task.pid() > CROWD;
            let list: Vec<&Vma> = task.list::<Vma>().expect("it is there").map(|e| e.raw).collect();
            let (all, reason) = (if is_other { 60 } else { COUNT }, task.reason(Group::Vma));
            ended += u64::from(reason.is_some());
            assert!(list.len() >= 16 && list.len() <= all as usize, "{}", list.len());
            assert_eq!(list.len() < all as usize, reason == Some(Reason::Truncated));
            assert!(!is_other || reason.is_none(), "{} mappings of another user", list.len());
            for (n, vma) in (0..).zip(list) {
                assert_eq!((vma.start, vma.name), (u64::from(n), first(task.pid()) + n));
                let found = s.name(vma.name).unwrap_or_else(|| panic!("{} of {task:?}", vma.name));
                let full = name(vma.name, LEN);
                assert!(full.starts_with(&found.data) && found.data.len() >= 128);
                assert_eq!((found.total, found.is_cut()), (LEN, found.data.len() < LEN));
            }
        }
        assert!(ended > u64::from(CROWD) / 2, "{ended}");
        assert_eq!(s.done().truncated, ended);
        assert_eq!(s.name_numbers().filter(|n| *n >= first(CROWD + 1)).count(), 120);
    }

    #[test]
    fn a_name_that_was_left_out_is_known_to_be_missing() {
        let limits = ByteLimits { all_list_bytes: 1000, ..ByteLimits::LIST };
        let refers = |pid, number| {
            task(pid, |w, _| {
                w.put_list(Vma::ALL_VALID, &[build!(Vma { name: number, ..Vma::default() })]);
                false
            })
        };
        let last = 1000 + 99;
        let tasks = [maps(1, 1000, 100, 300), refers(2, last), refers(3, last), refers(4, 1000)];
        let whole = [begin(Groups::VMA)].into_iter().chain(tasks).chain([end(4)]);
        let s = cut(whole, 1 << 20, Groups::VMA, limits, |_| None);
        let lost = s.name(last).expect("it is there");
        assert_eq!((lost.reason, lost.data.len()), (Some(Reason::Truncated), 0));
        assert_eq!(s.name(1000).expect("it is there").data, name(1000, 300));
        // The one whose list ends early, and the first one that lacks a name.
        assert_eq!(s.done().truncated, 2);
    }

    #[test]
    fn paths_are_cut_once_there_is_no_room() {
        let limits = ByteLimits { all_list_bytes: 100_000, ..ByteLimits::LIST };
        let path = name(7, 4000);
        let paths = |pid| {
            task(pid, |w, _| {
                (0..3).for_each(|k| w.put_blob(Group::Paths as u16, k, 0, &path, path.len()));
                false
            })
        };
        let tasks = (1..=1000).map(paths);
        let whole = [begin(Groups::PATHS)].into_iter().chain(tasks).chain([end(1000)]);
        let s = cut(whole, 1 << 20, Groups::PATHS, limits, |_| Some(1000));
        let of = |i| s.get(i).expect("it is there").path(taskdiag_wire::PathKind::Cwd);
        let (first, last) = (of(0).expect("a path"), of(999).expect("a path"));
        assert_eq!((first.data.len(), first.is_cut()), (4000, false));
        assert_eq!((last.data.len(), last.total, last.is_cut()), (128, 4000, true));
        assert!(s.bytes().len() < 200_000 + 1000 * 600, "{}", s.bytes().len());
    }

    #[test]
    fn open_files_end_early_with_their_sockets() {
        let limits = ByteLimits { all_list_bytes: 5000, ..ByteLimits::LIST };
        let files = task(1, |w, part| {
            let fds: Vec<Fd> = (0..AT_ONCE)
                .map(|n| build!(Fd { fd: part * AT_ONCE + n, ..Fd::default() }))
                .collect();
            w.put_list(Fd::ALL_VALID, &fds);
            part < 999
        });
        let whole = [begin(Groups::FD), files, end(1)];
        let s = cut(whole.into_iter(), 1 << 20, Groups::FD, limits, |_| None);
        let task = s.get(0).expect("it is there");
        let fds: Vec<u32> = task.list::<Fd>().expect("files").map(|f| f.raw.fd).collect();
        assert!((16..80).contains(&fds.len()), "{}", fds.len());
        assert_eq!(fds, (0..fds.len() as u32).collect::<Vec<_>>());
        assert_eq!(task.reason(Group::Fd), Some(Reason::Truncated));
    }

    #[test]
    fn all_lists_have_a_limit() {
        for group in Group::ALL.iter().copied() {
            let is_list = matches!(shape(group as u16), Some(Shape::List(_)));
            assert!(!is_list || LIMITED.has(group), "{group:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_message_stay_for_the_parser() {
        for junk in [&[1; 8][..], &[0xff; 400]] {
            let mut parts = Some([begin(Groups::VMA), junk.to_vec()].concat()).into_iter();
            let req = Request::all(Groups::VMA);
            let read = |to: &mut [u8]| {
                let part = parts.next().unwrap_or_default();
                to[..part.len()].copy_from_slice(&part);
                Ok(part.len())
            };
            let (stream, _) = answer(&req, 1000, read, |_| None).expect("it is read");
            assert!(stream.as_bytes().ends_with(junk) && Stream::parse(stream).is_err());
        }
    }
}
