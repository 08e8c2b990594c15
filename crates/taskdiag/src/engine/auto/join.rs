//! Putting streams together: several answers one after the other, or the groups of one engine
//! added to the tasks of another. Works on bytes, so what the engines wrote stays as it is.

use std::collections::{HashMap, HashSet};

use taskdiag_wire::{
    A_MISSING, AlignedBuf, Base, Done, Group, Info, Reason, Stream, StreamWriter, TaskView,
};

use crate::bytes::Bytes;
use crate::error::Error;

/// The totals of two streams over different tasks.
fn sum(a: &Done, b: &Done) -> Done {
    Done {
        error: if a.error != 0 { a.error } else { b.error },
        reserved: 0,
        tasks: a.tasks + b.tasks,
        denied: a.denied + b.denied,
        vanished: a.vanished + b.vanished,
        blocked: a.blocked + b.blocked,
        truncated: a.truncated + b.truncated,
        over_budget: a.over_budget + b.over_budget,
    }
}

fn both_infos(a: &Info, b: &Info) -> Info {
    Info {
        show_flags: a.show_flags | b.show_flags,
        kernel_groups: a.kernel_groups | b.kernel_groups,
        bpf_groups: a.bpf_groups | b.bpf_groups,
        procfs_groups: a.procfs_groups | b.procfs_groups,
        ..*a
    }
}

/// All tasks of `streams`, in order; a pid that an earlier one has is left out.
pub fn concat(streams: Vec<AlignedBuf>) -> Result<AlignedBuf, Error> {
    let mut seen = HashSet::new();
    let mut w = StreamWriter::new();
    let mut done = Done::default();
    let parsed: Vec<Stream<AlignedBuf>> =
        streams.into_iter().map(Stream::parse).collect::<Result<_, _>>()?;
    if let Some(info) = parsed.iter().map(|s| *s.info()).reduce(|a, b| both_infos(&a, &b)) {
        w.info(&info);
    }
    for s in &parsed {
        let mut d = *s.done();
        for t in s.tasks() {
            if seen.insert(t.pid()) {
                w.raw(t.messages());
            } else {
                d.tasks -= 1;
            }
        }
        done = sum(&done, &d);
    }
    Ok(w.finish(done))
}

/// Append the tasks of `more` to `main`, in place. They must be other tasks.
pub fn append(main: Bytes, more: &[u8]) -> Result<Bytes, Error> {
    let more = Stream::parse(more)?;
    let messages: Vec<u8> = more.tasks().flat_map(|t| t.messages()).copied().collect();
    let main = match main.into_mapped() {
        Ok(mut m) => {
            if m.append(&messages, more.done(), more.info().procfs_groups) {
                return Ok(m.into());
            }
            Bytes::from(m).into_owned()
        }
        Err(owned) => owned,
    };
    let Some((mut w, done)) = StreamWriter::reopen(main) else {
        return Err(taskdiag_wire::Error::Cut(0).into());
    };
    w.mark_served(more.info());
    w.raw(&messages);
    Ok(w.finish(sum(&done, more.done())).into())
}

/// The tasks of `main`, each with the groups that `more` has of the same task. A task that `more`
/// does not have, or only has with another start time (a new process with the same pid), gets
/// `more`'s groups as vanished.
pub fn add_groups(main: &[u8], more: &[u8]) -> Result<AlignedBuf, Error> {
    let (main, more) = (Stream::parse(main)?, Stream::parse(more)?);
    let by_pid: HashMap<u32, TaskView<'_>> = more.tasks().map(|t| (t.pid(), t)).collect();
    let start = |t: &TaskView<'_>| t.record::<Base>().and_then(Base::start_time_ns);
    // Start times of /proc are in ticks: equal to within one.
    let tick = 1_000_000_000 / u64::from(main.info().clk_tck.max(1));
    let mut w = StreamWriter::with_capacity(main.bytes().len() + more.bytes().len());
    w.info(&both_infos(main.info(), more.info()));
    for t in main.tasks() {
        w.raw(t.messages());
        let same = by_pid.get(&t.pid()).filter(|o| match (start(&t), start(o)) {
            (Some(a), Some(b)) => a.abs_diff(b) <= tick,
            _ => true,
        });
        w.continue_task(t.pid(), t.tgid());
        match same {
            Some(o) => {
                for (kind, bytes) in o.attrs() {
                    let known = kind == Base::TYPE && main.asked().has(Group::Base);
                    if kind != A_MISSING && !known {
                        w.raw_attr(bytes);
                    }
                }
                for g in (more.asked() - main.asked()).iter() {
                    if let Some(reason) = o.reason(g) {
                        w.missing(g, reason);
                    }
                }
            }
            None => {
                for g in (more.asked() - main.asked()).iter() {
                    w.missing(g, Reason::Vanished);
                }
            }
        }
        w.end_task();
    }
    Ok(w.finish(*main.done()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Groups, Io};

    fn stream(groups: Groups, tasks: &[(u32, u64)], io: Option<u64>) -> AlignedBuf {
        let mut w = StreamWriter::new();
        w.info(&Info { show_flags: groups.bits(), clk_tck: 100, ..StreamWriter::blank_info() });
        for (pid, start) in tasks {
            w.begin_task(*pid, *pid);
            let mut b = Base::new();
            b.valid = Base::ALL_VALID;
            b.start_time_ns = *start;
            w.put(&b);
            match io {
                Some(rchar) => {
                    let mut i = Io::new();
                    i.valid = 1;
                    i.rchar = rchar;
                    w.put(&i);
                }
                None if groups.has(Group::Io) => w.missing(Group::Io, Reason::Denied),
                None => {}
            }
            w.end_task();
        }
        w.finish(Done::default())
    }

    #[test]
    fn groups_are_added_to_the_same_task_only() {
        let main = stream(Groups::BASE, &[(1, 5_000_000), (2, 70_000_000), (3, 0)], None);
        // 1 within a tick, 2 another process, 3 gone, 4 new
        let more = stream(Groups::BASE | Groups::IO, &[(1, 0), (2, 0), (4, 0)], Some(9));
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        assert_eq!(s.len(), 3);
        assert_eq!(s.asked(), Groups::BASE | Groups::IO);
        let t: Vec<_> = s.tasks().collect();
        assert_eq!(t[0].record::<Io>().unwrap().rchar(), Some(9));
        assert_eq!(t[0].record::<Base>().unwrap().start_time_ns, 5_000_000);
        assert_eq!(t[0].attrs().filter(|a| a.0 == Base::TYPE).count(), 1);
        for gone in &t[1..] {
            assert!(gone.record::<Io>().is_none());
            assert_eq!(gone.reason(Group::Io), Some(Reason::Vanished));
        }
    }

    #[test]
    fn reasons_are_carried_over() {
        let main = stream(Groups::BASE, &[(1, 0)], None);
        let more = stream(Groups::BASE | Groups::IO, &[(1, 0)], None);
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        assert_eq!(s.get(0).unwrap().reason(Group::Io), Some(Reason::Denied));
        assert_eq!(s.done().denied, 1);
    }

    #[test]
    fn appending_adds_tasks_and_who_served_them() {
        let a = stream(Groups::BASE, &[(2, 0), (3, 0)], None);
        let mut w = StreamWriter::new();
        w.info(&Info { procfs_groups: 1, ..StreamWriter::blank_info() });
        w.begin_task(1, 1);
        w.end_task();
        let s =
            Stream::parse(append(a.into(), w.finish(Done::default()).as_bytes()).unwrap()).unwrap();
        assert_eq!(s.tasks().map(|t| t.pid()).collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!(s.info().procfs_groups, 1);
        assert_eq!(s.asked(), Groups::BASE);
    }

    #[test]
    fn concatenation_keeps_each_task_once() {
        let a = stream(Groups::BASE, &[(1, 0), (2, 0)], None);
        let b = stream(Groups::BASE, &[(2, 0), (3, 0)], None);
        let s = Stream::parse(concat(vec![a, b]).unwrap()).unwrap();
        assert_eq!(s.tasks().map(|t| t.pid()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(s.done().tasks, 3);
    }
}
