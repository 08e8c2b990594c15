//! One task, or an entry of a list of it, with its records found: fields are read many at a time, so
//! the attributes of a task are walked once for all of them.

use taskdiag_wire::{
    A_COMM, Base, BlobHdr, Cgroup, Cred, FdCount, Group, GroupRecord, Io, Limits, Ns, Reason,
    Rollup, Sched, Signals, Stat, Statm, Swap, TaskView,
};

use zerocopy::FromBytes;

use super::part::Part;
use super::value::{Missing, Value};

/// A task and its fixed-size groups.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The task.
    pub view: TaskView<'a>,
    /// BASE, where it is in the answer.
    pub base: Option<&'a Base>,
    /// The command name, where it is in the answer.
    pub comm: Option<&'a [u8]>,
    /// CRED, where it is in the answer.
    pub cred: Option<&'a Cred>,
    /// STAT, where it is in the answer.
    pub stat: Option<&'a Stat>,
    /// STATM, where it is in the answer.
    pub statm: Option<&'a Statm>,
    /// IO, where it is in the answer.
    pub io: Option<&'a Io>,
    /// SCHED, where it is in the answer.
    pub sched: Option<&'a Sched>,
    /// NS, where it is in the answer.
    pub ns: Option<&'a Ns>,
    /// CGROUP, where it is in the answer.
    pub cgroup: Option<&'a Cgroup>,
    /// LIMITS, where it is in the answer.
    pub limits: Option<&'a Limits>,
    /// SIGNALS, where it is in the answer.
    pub signals: Option<&'a Signals>,
    /// ROLLUP, where it is in the answer.
    pub rollup: Option<&'a Rollup>,
    /// SWAP, where it is in the answer.
    pub swap: Option<&'a Swap>,
    /// FD_COUNT, where it is in the answer for this task itself.
    pub fd_count: Option<&'a FdCount>,
    /// What of the task the row is of.
    pub part: Part<'a>,
}

fn cast<T: GroupRecord>(bytes: &[u8]) -> Option<&T> {
    T::ref_from_prefix(bytes).ok().map(|(r, _)| r)
}

/// The data of a blob in one piece.
fn blob(bytes: &[u8]) -> Option<&[u8]> {
    let (hdr, data) = BlobHdr::ref_from_prefix(bytes).ok()?;
    data.get(..hdr.len as usize)
}

impl<'a> Row<'a> {
    /// Find the records of a task.
    pub fn new(view: TaskView<'a>) -> Row<'a> {
        let mut row = Row {
            view,
            base: None,
            comm: None,
            cred: None,
            stat: None,
            statm: None,
            io: None,
            sched: None,
            ns: None,
            cgroup: None,
            limits: None,
            signals: None,
            rollup: None,
            swap: None,
            fd_count: None,
            part: Part::Whole,
        };
        for (kind, bytes) in view.attrs() {
            match kind {
                Base::TYPE if row.base.is_none() => {
                    row.base = cast(bytes);
                    row.comm = row.base.and_then(taskdiag_wire::decode::comm);
                }
                A_COMM => row.comm = blob(bytes).or(row.comm),
                Cred::TYPE => row.cred = row.cred.or(cast(bytes)),
                Stat::TYPE => row.stat = row.stat.or(cast(bytes)),
                Statm::TYPE => row.statm = row.statm.or(cast(bytes)),
                Io::TYPE => row.io = row.io.or(cast(bytes)),
                Sched::TYPE => row.sched = row.sched.or(cast(bytes)),
                Ns::TYPE => row.ns = row.ns.or(cast(bytes)),
                Cgroup::TYPE => row.cgroup = row.cgroup.or(cast(bytes)),
                Limits::TYPE => row.limits = row.limits.or(cast(bytes)),
                Signals::TYPE => row.signals = row.signals.or(cast(bytes)),
                Rollup::TYPE => row.rollup = row.rollup.or(cast(bytes)),
                FdCount::TYPE => row.fd_count = row.fd_count.or(cast(bytes)),
                Swap::TYPE => row.swap = row.swap.or(cast(bytes)),
                _ => {}
            }
        }
        row
    }
    /// The value of a field whose group is not in the answer.
    pub fn missing(&self, g: Group) -> Value<'static> {
        if !self.view.asked().has(g) {
            return Value::Missing(Missing::NotAsked);
        }
        Value::Missing(Missing::Reason(self.view.reason(g).unwrap_or(Reason::Unsupported)))
    }
    /// State letter, where it is known.
    pub fn state(&self) -> Option<u8> {
        self.base.and_then(Base::state)
    }
    /// A kernel thread? `false` where that is not known.
    pub fn is_kthread(&self) -> bool {
        self.base.and_then(Base::flags).is_some_and(|f| f & taskdiag_wire::TASK_KTHREAD != 0)
    }
    /// A zombie? `false` where that is not known.
    pub fn is_zombie(&self) -> bool {
        self.state() == Some(b'Z')
    }
}
