//! One task, or an entry of one of its lists, with its records looked up: fields are read many at a
//! time, so the attributes of a task are walked once for all of them.

use taskdiag_wire::{
    A_CGROUP_PATH, A_COMM, BlobHdr, Group, GroupRecord, Plain, Reason, Record, TaskView, Vma,
    VmaStat,
};

use super::part::{Map, Part};
use super::value::{Missing, Value};
use crate::cgroup;
use crate::files::PathName;

fn cast<T: GroupRecord>(bytes: &[u8]) -> Option<Record<'_, T>> {
    T::ref_from_prefix(bytes).map(|(r, _)| Record::new(r))
}

/// The data of a blob in one piece.
fn blob(bytes: &[u8]) -> Option<&[u8]> {
    let (hdr, data) = BlobHdr::ref_from_prefix(bytes)?;
    data.get(..hdr.len as usize)
}

/// The path in a blob, if it is of the hierarchy of version 2 and whole.
fn unified(bytes: &[u8]) -> Option<&[u8]> {
    let (hdr, data) = BlobHdr::ref_from_prefix(bytes)?;
    let is_whole = hdr.kind == 0 && hdr.offset == 0 && hdr.len == hdr.total;
    data.get(..hdr.len as usize).filter(|_| is_whole).and_then(cgroup::path_of)
}

/// [`Row`], from the registry of groups.
macro_rules! row {
    ([] records { $($(#[$m:meta])* $r:ident = $n:literal $s:ident $c:ident $p:tt,)* } $($rest:tt)*) => {
        /// A task and its fixed-size groups.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub struct Row<'a> {
            /// The task.
            pub view: TaskView<'a>,
            /// The command name, where it is in the answer.
            pub comm: Option<&'a [u8]>,
            $(#[doc = concat!(stringify!($c), ", where the answer has it for this task itself.")]
              pub $s: Option<Record<'a, taskdiag_wire::$r>>,)*
            /// Which part of the task the row describes.
            pub part: Part<'a>,
            /// The path of its control group of version 2, if it is in the answer in one piece.
            pub(crate) unified: Option<&'a [u8]>,
        }

        impl<'a> Row<'a> {
            /// This row for another part of its task, such as an entry of a list.
            #[must_use]
            pub fn with_part(self, part: Part<'a>) -> Row<'a> {
                Row { part, ..self }
            }
            /// Find the records of a task.
            pub fn new(view: TaskView<'a>) -> Row<'a> {
                let mut row =
                    Row { view, comm: None, $($s: None,)* part: Part::Whole, unified: None };
                let mut long = None;
                for (kind, bytes) in view.attrs() {
                    match kind {
                        // The first attribute of each type counts.
                        $(taskdiag_wire::$r::TYPE => row.$s = row.$s.or(cast(bytes)),)*
                        A_COMM => long = long.or(blob(bytes)),
                        A_CGROUP_PATH => row.unified = row.unified.or_else(|| unified(bytes)),
                        _ => {}
                    }
                }
                row.comm = row.base.and_then(|base| taskdiag_wire::decode::comm(base, || long));
                row
            }
        }
    };
}
taskdiag_wire::registry!(row);

impl Row<'_> {
    /// The value of a field whose group is not in the answer.
    pub fn missing(&self, g: Group) -> Value<'static> {
        if !self.view.asked().has(g) {
            return Value::Missing(Missing::NotAsked);
        }
        Value::Missing(Missing::Reason(self.view.reason(g).unwrap_or(Reason::Unsupported)))
    }
    /// State letter, where it is known.
    pub fn state(&self) -> Option<u8> {
        self.base.and_then(|base| base.state())
    }
    /// A kernel thread? `false` where that is not known.
    pub fn is_kthread(&self) -> bool {
        self.base
            .and_then(|base| base.flags())
            .is_some_and(|f| f & taskdiag_wire::TASK_KTHREAD != 0)
    }
    /// A zombie? `false` where that is not known.
    pub fn is_zombie(&self) -> bool {
        self.state() == Some(b'Z')
    }
}

impl<'a> Row<'a> {
    /// Call `f` for each memory mapping of the task, with this row made one of that mapping.
    /// Rows of shared memory come from the task that has its value. `false`: the list is not in the
    /// answer, and `f` was not called.
    ///
    /// # Errors
    /// The error of `f`, which ends the list.
    pub fn each_map<E>(&self, mut f: impl FnMut(&Row<'a>) -> Result<(), E>) -> Result<bool, E> {
        let shared_with = self.view.shared(Group::Vma);
        let Some(view) = self.view.owner(Group::Vma) else { return Ok(false) };
        let Some(vmas) = view.list::<Vma>() else { return Ok(false) };
        let stats = view.list::<VmaStat>();
        let ended = || view.reason(Group::VmaStat).unwrap_or(Reason::Vanished);
        let without_stat = stats.is_some().then(ended);
        let mut stats = stats.into_iter().flatten().peekable();
        let mut row = *self;
        // Neighbours mostly have the same name.
        let mut last: (u32, Option<PathName<'a>>) = (0, None);
        for vma in vmas {
            let number = vma.raw.name;
            if number != last.0 {
                last = (number, PathName::find(&view, number));
            }
            while stats.next_if(|s| s.raw.start < vma.raw.start).is_some() {}
            let stat = stats.next_if(|s| s.raw.start == vma.raw.start && s.raw.end == vma.raw.end);
            row.part = Part::Map(Map { vma, stat, without_stat, name: last.1, shared_with });
            f(&row)?;
        }
        Ok(true)
    }
}
