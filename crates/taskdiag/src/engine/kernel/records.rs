//! The request and the records of `PROC_TASKS`, and what they are in the format. It does no I/O.
//!
//! The structs are those of `include/uapi/linux/proc_tasks.h`, which the patches in
//! `kernel/send/task-ioctl` add. A part may be longer than its struct here, if the kernel is newer,
//! and unknown parts are skipped.

use taskdiag_wire::layout::bit;
use taskdiag_wire::{Base, Cred, Group, Groups, Stat, Statm, TASK_EXITING, TASK_KTHREAD, build};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::request::Members;

/// The request is about threads.
pub(super) const THREADS: u32 = 1;
/// The most bytes of a command line in a record.
pub(super) const CMDLINE_MAX: usize = 4096;
/// The caller may only know that the task exists.
const DENIED: u32 = 1;
/// The process has written a title over its command line.
pub(super) const TITLE: u32 = 1;
/// The kernel's flags of a task that is in `do_exit()`, and of a kernel thread.
const PF_EXITING: u32 = 0x4;
const PF_KTHREAD: u32 = 0x20_0000;

/// `struct proc_tasks_req`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct TasksReq {
    pub(super) mask: u64,
    pub(super) supported_mask: u64,
    pub(super) buf: u64,
    pub(super) buf_size: u32,
    pub(super) buf_used: u32,
    pub(super) pid: u32,
    pub(super) flags: u32,
    pub(super) cmdline_max: u32,
    pub(super) reserved: u32,
}

/// A part of a record.
pub(super) trait Part: FromBytes + KnownLayout + Immutable {
    /// Its bit in the mask.
    const BIT: u64;
}

/// The structs of records. The macro gives each part its bit.
macro_rules! structs {
    ($($(#[$about:meta])* $name:ident $(= $bit:literal)? { $($member:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $member: $type),* }
        $(impl Part for $name { const BIT: u64 = 1 << $bit; })?
    )* };
}

structs! {
    /// `struct proc_task`.
    RecordHead { size: u32, pid: u32, tgid: u32, flags: u32 }
    /// `struct proc_task_part`.
    PartHead { kind: u64, size: u32, reserved: u32 }
    /// `struct proc_task_base`.
    BasePart = 0 {
        head: PartHead,
        ppid: u32, pgid: u32, sid: u32, tty_nr: u32, tty_pgrp: i32, num_threads: u32, flags: u32,
        state: u8, reserved: [u8; 3], start_ns: u64, comm: [u8; 64],
    }
    /// `struct proc_task_cred`.
    CredPart = 1 {
        head: PartHead,
        ruid: u32, euid: u32, suid: u32, fsuid: u32, rgid: u32, egid: u32, sgid: u32, fsgid: u32,
        cap_inheritable: u64, cap_permitted: u64, cap_effective: u64, cap_bounding: u64,
        cap_ambient: u64,
    }
    /// `struct proc_task_stat`.
    StatPart = 2 {
        head: PartHead,
        utime_ns: u64, stime_ns: u64, cutime_ns: u64, cstime_ns: u64, gtime_ns: u64,
        cgtime_ns: u64, min_flt: u64, maj_flt: u64, cmin_flt: u64, cmaj_flt: u64,
        priority: i32, nice: i32, rt_priority: u32, policy: u32, processor: u32, exit_signal: i32,
    }
    /// `struct proc_task_statm`.
    StatmPart = 3 {
        head: PartHead,
        size_pages: u64, resident_pages: u64, shared_pages: u64, text_pages: u64, data_pages: u64,
        swap_pages: u64,
    }
    /// `struct proc_task_cmdline`, without its text.
    CmdlinePart = 4 { head: PartHead, total: u64, text_size: u32, flags: u32 }
}

/// The parts about memory, which a first thread loses when it ends.
pub(super) const MEMORY: u64 = StatmPart::BIT | CmdlinePart::BIT;

/// The largest size of a record with these parts.
pub(super) fn record_size(mask: u64) -> usize {
    let of = |bit, size| if mask & bit != 0 { size } else { 0 };
    size_of::<RecordHead>()
        + of(BasePart::BIT, size_of::<BasePart>())
        + of(CredPart::BIT, size_of::<CredPart>())
        + of(StatPart::BIT, size_of::<StatPart>())
        + of(StatmPart::BIT, size_of::<StatmPart>())
        + of(CmdlinePart::BIT, size_of::<CmdlinePart>() + CMDLINE_MAX)
}

/// The parts for these groups. All of them need [`BasePart`], which tells why others are missing.
pub(super) fn mask(groups: Groups) -> u64 {
    let of = |group, bit| if groups.contains(group) { bit } else { 0 };
    BasePart::BIT
        | of(Groups::CRED, CredPart::BIT)
        | of(Groups::STAT, StatPart::BIT)
        | of(Groups::STATM, StatmPart::BIT)
        | of(Groups::CMDLINE, CmdlinePart::BIT)
}

/// The groups that a kernel with these parts answers.
pub(super) fn groups(supported: u64) -> Groups {
    let all = [Groups::BASE, Groups::CRED, Groups::STAT, Groups::STATM, Groups::CMDLINE];
    let has = |group: &Groups| mask(*group) & !supported == 0;
    all.into_iter().filter(has).fold(Groups::NONE, |all, group| all | group)
}

const CRED_LACKS: u32 = bit(Cred::MEMBERS, "tracer_pid")
    | bit(Cred::MEMBERS, "securebits")
    | bit(Cred::MEMBERS, "no_new_privs")
    | bit(Cred::MEMBERS, "seccomp")
    | bit(Cred::MEMBERS, "ngroups");
const STAT_LACKS: u32 = bit(Stat::MEMBERS, "flags");
const STATM_HAS: u32 = bit(Statm::MEMBERS, "size_bytes")
    | bit(Statm::MEMBERS, "rss_bytes")
    | bit(Statm::MEMBERS, "rss_anon_bytes")
    | bit(Statm::MEMBERS, "swap_bytes");

/// What the records lack, for people.
pub(super) fn notes() -> Vec<(Group, String)> {
    let lack = "tracer, securebits, no_new_privs, seccomp and groups are not in PROC_TASKS";
    [
        (Group::Cred, lack),
        (Group::Stat, "locked pages are not in PROC_TASKS"),
        (Group::Statm, "size, rss, rss_anon and swap are in PROC_TASKS"),
        (Group::Cmdline, "texts of up to 4096 bytes"),
    ]
    .map(|(group, note)| (group, note.to_owned()))
    .into()
}

/// The groups that records have only a part of, if these members are wanted. A request for all of
/// STAT does not need its flags, which /proc/PID/stat does not have, either.
pub(super) fn incomplete(wanted: Members) -> Groups {
    let none_if = |whole, group| if whole { Groups::NONE } else { group };
    none_if(wanted.cred & CRED_LACKS == 0, Groups::CRED)
        | none_if(wanted.stat == u32::MAX || wanted.stat & STAT_LACKS == 0, Groups::STAT)
        | none_if(wanted.statm & Statm::ALL_VALID & !STATM_HAS == 0, Groups::STATM)
}

/// A record in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) head: RecordHead,
    parts: &'a [u8],
}

/// The complete records at the beginning of these bytes.
pub(super) fn records(mut rest: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let (head, _) = RecordHead::read_from_prefix(rest).ok()?;
        let size = head.size as usize;
        // Nothing follows a record that is malformed.
        let parts = rest.get(size_of::<RecordHead>()..size)?;
        rest = &rest[size..];
        Some(Record { head, parts })
    })
}

impl<'a> Record<'a> {
    /// Whether the caller may not know any value of the task.
    pub(super) fn is_denied(&self) -> bool {
        self.head.flags & DENIED != 0
    }
    /// A part, and the bytes after its struct. `None`: the record has no such part.
    fn find<T: Part>(&self) -> Option<(T, &'a [u8])> {
        let mut rest = self.parts;
        while let Ok((head, _)) = PartHead::read_from_prefix(rest) {
            let (part, more) = rest.split_at_checked(head.size as usize)?;
            if head.kind == T::BIT {
                return T::read_from_prefix(part).ok();
            }
            if part.is_empty() {
                return None;
            }
            rest = more;
        }
        None
    }
    pub(super) fn part<T: Part>(&self) -> Option<T> {
        self.find().map(|(part, _)| part)
    }
    /// The beginning of the command line, and what is known about it.
    pub(super) fn cmdline(&self) -> Option<(CmdlinePart, &'a [u8])> {
        let (part, text) = self.find::<CmdlinePart>()?;
        Some((part, text.get(..part.text_size as usize)?))
    }
}

impl BasePart {
    pub(super) fn name(&self) -> &[u8] {
        self.comm.split(|b| *b == 0).next().unwrap_or_default()
    }
    /// Whether the task has no memory for certain: it is a kernel thread, or it has ended.
    pub(super) fn has_no_memory(&self) -> bool {
        self.our_flags() != 0
    }
    /// Whether it is a first thread that has ended before others of its process.
    pub(super) fn is_dead_leader(&self) -> bool {
        self.state == b'Z' && self.num_threads > 1
    }
    fn our_flags(&self) -> u32 {
        let of = |is, flag| if is { flag } else { 0 };
        let ended = self.flags & PF_EXITING != 0 || matches!(self.state, b'Z' | b'X');
        of(self.flags & PF_KTHREAD != 0, TASK_KTHREAD) | of(ended, TASK_EXITING)
    }
    /// BASE, without the name.
    pub(super) fn base(&self) -> Base {
        build!(Base {
            valid: Base::ALL_VALID,
            ppid: self.ppid,
            pgid: self.pgid,
            sid: self.sid,
            flags: self.our_flags(),
            task_flags: self.flags,
            state: self.state,
            start_time_ns: self.start_ns,
        })
    }
}

impl CredPart {
    pub(super) fn cred(&self) -> Cred {
        build!(Cred {
            valid: Cred::ALL_VALID & !CRED_LACKS,
            uid: self.ruid,
            euid: self.euid,
            suid: self.suid,
            fsuid: self.fsuid,
            gid: self.rgid,
            egid: self.egid,
            sgid: self.sgid,
            fsgid: self.fsgid,
            cap_inheritable: self.cap_inheritable,
            cap_permitted: self.cap_permitted,
            cap_effective: self.cap_effective,
            cap_bounding: self.cap_bounding,
            cap_ambient: self.cap_ambient,
        })
    }
}

impl StatPart {
    /// STAT. Some of its members are in the part `base`.
    pub(super) fn stat(&self, base: &BasePart) -> Stat {
        build!(Stat {
            valid: Stat::ALL_VALID & !STAT_LACKS,
            minflt: self.min_flt,
            majflt: self.maj_flt,
            cminflt: self.cmin_flt,
            cmajflt: self.cmaj_flt,
            utime_ns: self.utime_ns,
            stime_ns: self.stime_ns,
            cutime_ns: self.cutime_ns,
            cstime_ns: self.cstime_ns,
            nice: self.nice,
            priority: self.priority,
            rt_priority: self.rt_priority,
            policy: self.policy,
            processor: self.processor,
            num_threads: base.num_threads,
            tty_nr: base.tty_nr,
            tty_pgrp: base.tty_pgrp,
            exit_signal: self.exit_signal,
            guest_ns: self.gtime_ns,
            cguest_ns: self.cgtime_ns,
        })
    }
}

impl StatmPart {
    /// STATM. The numbers for text and data are left out: those of `statm` are not those of
    /// `status`.
    pub(super) fn statm(&self, page_size: u64) -> Statm {
        build!(Statm {
            valid: STATM_HAS,
            size_bytes: self.size_pages * page_size,
            rss_bytes: self.resident_pages * page_size,
            rss_anon_bytes: self.resident_pages.saturating_sub(self.shared_pages) * page_size,
            swap_bytes: self.swap_pages * page_size,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The bytes of a record with these parts. They may be longer than their structs.
    pub(in crate::engine::kernel) fn record(pid: u32, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let size = (size_of::<RecordHead>() + body.len()) as u32;
        [RecordHead { size, pid, tgid: pid, flags }.as_bytes(), &body].concat()
    }

    pub(in crate::engine::kernel) fn base(pid: u32) -> BasePart {
        let head =
            PartHead { kind: BasePart::BIT, size: size_of::<BasePart>() as u32, reserved: 0 };
        let mut comm = [0; 64];
        comm[..5].copy_from_slice(b"a (b)");
        BasePart {
            head,
            ppid: pid + 1,
            pgid: pid + 2,
            sid: pid + 3,
            tty_nr: 0x8801,
            tty_pgrp: -1,
            num_threads: 3,
            flags: 0x40_0000,
            state: b'S',
            reserved: [0; 3],
            start_ns: 70_000_000,
            comm,
        }
    }

    /// The sizes of the first version, which never get smaller.
    #[test]
    fn structs_have_the_sizes_of_the_header() {
        let parts = [size_of::<BasePart>(), size_of::<CredPart>(), size_of::<StatPart>()];
        assert_eq!((size_of::<TasksReq>(), size_of::<RecordHead>()), (48, 16));
        assert_eq!(parts, [120, 88, 120]);
        assert_eq!((size_of::<StatmPart>(), size_of::<CmdlinePart>()), (64, 32));
    }

    #[test]
    fn unknown_parts_and_longer_parts_are_passed_over() {
        let mut longer = base(7).as_bytes().to_vec();
        longer[8..12].copy_from_slice(&(size_of::<BasePart>() as u32 + 16).to_ne_bytes());
        longer.extend([0xee; 16]);
        let unknown = PartHead { kind: 1 << 40, size: 24, reserved: 0 };
        let unknown = [unknown.as_bytes(), &[0xee; 8]].concat();
        let head = PartHead { kind: StatmPart::BIT, size: 64, reserved: 0 };
        let pages = [100u64, 23, 3, 4, 5, 6];
        let statm = [head.as_bytes(), pages.as_bytes()].concat();
        let bytes = [record(7, 0, &[&longer, &unknown, &statm]), record(9, DENIED, &[])].concat();
        let all: Vec<Record<'_>> = records(&bytes).collect();
        let [first, second] = all[..] else { panic!("{all:?}") };
        assert_eq!((first.head.pid, first.is_denied()), (7, false));
        let base = first.part::<BasePart>().expect("it is there");
        assert_eq!((base.ppid, base.name(), base.has_no_memory()), (8, &b"a (b)"[..], false));
        let statm = first.part::<StatmPart>().expect("it is there").statm(4096);
        let known = statm.known();
        assert_eq!((known.size_bytes(), known.rss_bytes()), (Some(100 << 12), Some(23 << 12)));
        assert_eq!((known.rss_anon_bytes(), known.swap_bytes()), (Some(20 << 12), Some(6 << 12)));
        assert_eq!((known.text_bytes(), known.peak_rss_bytes()), (None, None));
        assert!(first.part::<CredPart>().is_none());
        assert_eq!((second.head.pid, second.is_denied()), (9, true));
        assert!(second.part::<BasePart>().is_none());
    }

    #[test]
    fn bytes_that_are_no_record_are_no_task() {
        for junk in [&[0; 64][..], &[0xff; 64], &[1; 15], &[40, 0, 0, 0, 7, 0, 0, 0]] {
            assert!(records(junk).all(|r| r.part::<BasePart>().is_none()), "{junk:?}");
            assert!(records(junk).count() <= 1, "{junk:?}");
        }
        // A part that ends after its record, and one without a size.
        for size in [0, 8, 4000] {
            let part = PartHead { kind: StatPart::BIT, size, reserved: 0 };
            let bytes = record(7, 0, &[part.as_bytes()]);
            let first = records(&bytes).next().expect("a record");
            assert!(first.part::<StatPart>().is_none() && first.part::<BasePart>().is_none());
        }
    }

    #[test]
    fn groups_are_complete_if_no_lacking_member_is_wanted() {
        let of = |group, names: &[&str]| incomplete(Members::of(group, names));
        let whole = Groups::CRED | Groups::STATM;
        assert_eq!(incomplete(Members::ALL), whole);
        assert_eq!(of(Groups::STATM, &["rss_bytes", "size_bytes", "swap_bytes"]), Groups::NONE);
        assert_eq!(of(Groups::STATM, &["rss_bytes", "peak_rss_bytes"]), Groups::STATM);
        assert_eq!(of(Groups::CRED, &["uid", "egid", "cap_effective"]), Groups::NONE);
        for lacking in ["tracer_pid", "seccomp", "no_new_privs", "ngroups", "securebits"] {
            assert_eq!(of(Groups::CRED, &["uid", lacking]), Groups::CRED, "{lacking}");
        }
        assert_eq!(of(Groups::STAT, &["utime_ns", "flags"]), Groups::STAT);
        assert_eq!(groups(0b1_1111), whole | Groups::BASE | Groups::STAT | Groups::CMDLINE);
        // Each part needs BASE.
        assert_eq!((groups(0b100), groups(0b101)), (Groups::NONE, Groups::BASE | Groups::STAT));
    }
}
