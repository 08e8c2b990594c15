//! The public part of /proc: the table of data that the service may show, and the code that leaves
//! out the rest.
//!
//! A mount of /proc without `hidepid` shows the files of a process to every reader, but some files,
//! and some fields of others, only to those who may trace the process. The service shows only data
//! that /proc shows to every reader, in the same precision. A group is private unless its row of
//! the registry says that it is [`Public`], so a group that is added later is, too. A public group
//! has a row in [`TABLE`], which defines the parts that may be shown.
//!
//! The cited lines are from Linux 6.12. `S_IRUGO` there means that everyone may open the file. None
//! of the functions named calls `ptrace_may_access()`, unless the table notes it.

use taskdiag_wire::registry::group_of;
use taskdiag_wire::{
    A_MISSING, AlignedBuf, Attribute, Base, Blob, BootId, Cred, Done, Fixed, Group, Groups, Info,
    MissingEntry, MissingHdr, Plain, Reason, Stat, Statm, Strategy, Stream, StreamWriter, TaskView,
    build,
};

#[cfg(doc)]
use taskdiag_wire::properties::Public;

use crate::error::Error;
use crate::task_id::Tick;

/// A group that is shown to everyone.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shown {
    /// Which group.
    pub group: Group,
    /// Its record as everyone may see it, in ticks. `None`: the attribute is passed on as it is.
    reduce: Option<Reduce>,
    /// The files of a process that show it. The service shows the group only after it has read them
    /// for a process that is not its own.
    pub files: &'static [&'static str],
    /// The lines of the kernel that prove it.
    pub kernel: &'static str,
    /// Parts of the group that are left out or made coarser, and the reason.
    pub less: &'static str,
}

/// Writes a record without its private members.
type Reduce = fn(&mut StreamWriter, attr: &[u8], tick: Tick);

/// Everything that the service shows.
pub const TABLE: &[Shown] = &[
    Shown {
        group: Group::Base,
        reduce: Some(|w, attr, tick| w.raw_attr(base(attr, tick).as_bytes())),
        files: &["stat"],
        kernel: "fs/proc/base.c: ONE(\"stat\", S_IRUGO, proc_tgid_stat); fs/proc/array.c: do_task_stat() asks \
                 ptrace_may_access() for kstkesp, kstkeip, wchan, startcode to startstack, start_data to env_end and \
                 exit_code only, and none of these is in this group",
        less: "start_time_ns in ticks, as nsec_to_clock_t() gives it there",
    },
    Shown {
        group: Group::Cred,
        reduce: Some(|w, attr, _| w.raw_attr(cred(attr).as_bytes())),
        files: &["status"],
        kernel: "fs/proc/base.c: ONE(\"status\", S_IRUGO, proc_pid_status); fs/proc/array.c: task_state(), task_cap(), \
                 task_seccomp()",
        less: "no securebits, which no file of /proc shows",
    },
    Shown {
        group: Group::Stat,
        reduce: Some(|w, attr, tick| w.raw_attr(stat(attr, tick).as_bytes())),
        files: &["stat", "status"],
        kernel: "as BASE; the flag for locked pages is VmLck of status: fs/proc/task_mmu.c: task_mem()",
        less: "CPU times in ticks, as nsec_to_clock_t() gives them there",
    },
    Shown {
        group: Group::Statm,
        reduce: Some(|w, attr, _| w.raw_attr(statm(attr).as_bytes())),
        files: &["status"],
        kernel: "fs/proc/array.c: proc_pid_status() calls fs/proc/task_mmu.c: task_mem() for every reader",
        less: "in KiB, as SEQ_PUT_DEC() gives them there",
    },
    Shown {
        group: Group::Cmdline,
        reduce: None,
        files: &["cmdline"],
        kernel: "fs/proc/base.c: REG(\"cmdline\", S_IRUGO, proc_pid_cmdline_ops); get_mm_cmdline() reads with FOLL_ANON \
                 and without FOLL_FORCE: no mapped file, and nothing that the process itself may not read",
        less: "only text that the service has read from that file itself; other text is BLOCKED, and the client reads it",
    },
    Shown {
        group: Group::Limits,
        reduce: None,
        files: &["limits"],
        kernel: "fs/proc/base.c: ONE(\"limits\", S_IRUGO, proc_pid_limits)",
        less: "",
    },
    Shown {
        group: Group::Signals,
        reduce: None,
        files: &["status"],
        kernel: "fs/proc/array.c: proc_pid_status() calls task_sig() for every reader",
        less: "",
    },
    Shown {
        group: Group::Login,
        reduce: None,
        files: &["loginuid", "sessionid"],
        kernel: "fs/proc/base.c: REG(\"loginuid\", S_IWUSR|S_IRUGO, proc_loginuid_operations), REG(\"sessionid\", \
                 S_IRUGO, proc_sessionid_operations)",
        less: "",
    },
    Shown {
        group: Group::Sched,
        reduce: None,
        files: &["schedstat", "status"],
        kernel: "fs/proc/base.c: ONE(\"schedstat\", S_IRUGO, proc_pid_schedstat); fs/proc/array.c: \
                 task_context_switch_counts()",
        less: "not of processes: the sums of BPF have the threads that have ended, which no file of /proc shows",
    },
];

// A public group without a row would silently be left out of an answer.
const _: () = {
    let public = Groups::PUBLIC_OF_PROCESSES.union(Groups::PUBLIC_OF_THREADS);
    let (mut rows, mut n) = (0, 0);
    while n < TABLE.len() {
        rows |= 1 << TABLE[n].group as u64;
        n += 1;
    }
    assert!(rows == public.bits(), "TABLE has not the groups that are public in the registry");
};

/// The groups that the service may show for a strategy. It answers about all processes or all
/// threads only, because a program that is loaded serves these for every caller.
pub fn groups(strategy: Strategy) -> Groups {
    match strategy {
        Strategy::All => Groups::PUBLIC_OF_PROCESSES,
        Strategy::AllThread => Groups::PUBLIC_OF_THREADS,
        _ => Groups::NONE,
    }
}

/// The row of a group that may be shown, for an attribute that is its value or a part of it.
fn row_of(kind: u16, told: Groups) -> Option<&'static Shown> {
    let group = group_of(kind).filter(|g| told.has(*g))?;
    TABLE.iter().find(|s| s.group == group)
}

/// An answer about all tasks, with exactly `groups`, and only with data that /proc shows everyone.
/// Attributes that this code does not know are left out.
///
/// `is_public` is asked about each command line that is not empty, with the task and the text,
/// which may be cut. A text that it refuses is left out and marked as BLOCKED, so that the client
/// reads it from its own /proc.
///
/// # Errors
/// [`Error::Stream`] if `stream` is not a stream.
pub fn strip(
    stream: &[u8],
    groups: Groups,
    memory: AlignedBuf,
    is_public: &mut dyn FnMut(&TaskView<'_>, &Blob<'_>) -> bool,
) -> Result<AlignedBuf, Error> {
    let stream = Stream::parse(stream)?;
    let groups = groups & self::groups(stream.strategy());
    let tick = Tick::of(stream.info());
    let mut w = StreamWriter::reusing(memory);
    let info = stream.info();
    w.info(&build!(Info {
        show_flags: groups.bits(),
        kernel_groups: info.kernel_groups & groups.bits(),
        bpf_groups: info.bpf_groups & groups.bits(),
        procfs_groups: info.procfs_groups & groups.bits(),
        // The client knows its machine, and its UTS namespace may be another one.
        boot_id: BootId::default(),
        nodename: Fixed::default(),
        release: Fixed::default(),
        machine: Fixed::default(),
        ..*info
    }));
    let mut truncated = 0;
    for t in stream.tasks() {
        w.begin_task(t.pid(), t.tgid());
        let text = if groups.has(Group::Cmdline) { t.cmdline() } else { None };
        let hides_text = text.as_ref().is_some_and(|b| !b.data.is_empty() && !is_public(&t, b));
        let is_cut = text.is_some_and(|b| b.is_cut());
        truncated += u64::from(is_cut && !hides_text);
        for (kind, attr) in t.attrs() {
            if kind == A_MISSING {
                for (g, reason) in missing(attr).filter(|(g, _)| groups.has(*g)) {
                    if g != Group::Cmdline || !hides_text {
                        w.missing(g, reason);
                    }
                }
                continue;
            }
            let Some(row) = row_of(kind, groups) else { continue };
            match row.reduce {
                _ if row.group == Group::Cmdline && hides_text => {}
                // An attribute next to the record is passed on unchanged.
                Some(reduce) if kind == row.group as u16 => reduce(&mut w, attr, tick),
                _ => w.raw_attr(attr),
            }
        }
        if hides_text {
            w.missing(Group::Cmdline, Reason::Blocked);
        }
        w.end_task();
    }
    let d = stream.done();
    Ok(w.finish(build!(Done {
        error: d.error,
        vanished: d.vanished,
        truncated,
        ..Done::default()
    })))
}

/// The groups that are missing, and why.
fn missing(attr: &[u8]) -> impl Iterator<Item = (Group, Reason)> + '_ {
    let entries = attr.get(size_of::<MissingHdr>()..).unwrap_or_default();
    entries.chunks_exact(size_of::<MissingEntry>()).filter_map(|bytes| {
        let (entry, _) = MissingEntry::read_from_prefix(bytes)?;
        Some((Group::from_number(entry.group)?, Reason::from_number(entry.reason)?))
    })
}

/// A record that may be changed. The stream was made by this very program, so it has the length of
/// ours.
fn copy<T: Attribute + Default>(attr: &[u8]) -> T {
    T::read_from_prefix(attr).map(|(r, _)| r).unwrap_or_default()
}

fn base(attr: &[u8], tick: Tick) -> Base {
    let mut r: Base = copy(attr);
    r.start_time_ns = tick.floor(r.start_time_ns);
    r
}

fn cred(attr: &[u8]) -> Cred {
    const SECUREBITS: u32 = taskdiag_wire::layout::bit(Cred::MEMBERS, "securebits");
    let mut r: Cred = copy(attr);
    r.valid &= !SECUREBITS;
    r.securebits = 0;
    r
}

fn stat(attr: &[u8], tick: Tick) -> Stat {
    let mut r: Stat = copy(attr);
    for ns in [
        &mut r.utime_ns,
        &mut r.stime_ns,
        &mut r.cutime_ns,
        &mut r.cstime_ns,
        &mut r.guest_ns,
        &mut r.cguest_ns,
    ] {
        *ns = tick.floor(*ns);
    }
    r
}

fn statm(attr: &[u8]) -> Statm {
    let mut r: Statm = copy(attr);
    for bytes in [
        &mut r.size_bytes,
        &mut r.peak_size_bytes,
        &mut r.rss_bytes,
        &mut r.rss_anon_bytes,
        &mut r.rss_file_bytes,
        &mut r.rss_shmem_bytes,
        &mut r.peak_rss_bytes,
        &mut r.data_bytes,
        &mut r.stack_bytes,
        &mut r.text_bytes,
        &mut r.lib_bytes,
        &mut r.locked_bytes,
        &mut r.pinned_bytes,
        &mut r.page_tables_bytes,
        &mut r.swap_bytes,
        &mut r.hugetlb_bytes,
    ] {
        *bytes -= *bytes % 1024;
    }
    r
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{A_COMM, A_GROUPS, Io, Limits, Login, Ns, Sched, Vma};

    const SECOND: u64 = 1_000_000_000;

    /// An answer in which two tasks have a value of every group of the format.
    fn full(strategy: Strategy) -> AlignedBuf {
        let all = Group::ALL.iter().fold(Groups::NONE, |all, g| all | Groups::from(*g));
        let mut w = StreamWriter::new();
        w.info(&build!(Info {
            show_flags: all.bits(),
            dump_strategy: strategy as u64,
            bpf_groups: all.bits(),
            clk_tck: 100,
            nodename: Fixed::new(b"of the service"),
            ..StreamWriter::blank_info()
        }));
        for pid in [7, 9] {
            w.begin_task(pid, pid);
            let base = build!(Base { valid: Base::ALL_VALID, start_time_ns: SECOND + 1 });
            w.put_base(&base, b"a name that is longer than 15 bytes");
            w.put(&build!(Cred { valid: Cred::ALL_VALID, securebits: 1, uid: 5 }));
            w.put_blob(A_GROUPS, 0, 0, &[1, 0, 0, 0], 4);
            w.put(&build!(Stat { valid: Stat::ALL_VALID, utime_ns: SECOND + 9_999_999 }));
            w.put(&build!(Statm { valid: Statm::ALL_VALID, text_bytes: 4097 }));
            w.put_blob(Group::Cmdline as u16, 0, 0, b"secret\0", 7);
            w.put(&build!(Limits { valid: Limits::ALL_VALID }));
            w.put(&build!(Sched { valid: Sched::ALL_VALID }));
            w.put(&build!(Login { valid: Login::ALL_VALID }));
            w.put(&build!(Io { valid: Io::ALL_VALID, rchar: 3 }));
            w.put(&build!(Ns { valid: Ns::ALL_VALID }));
            w.put_name(1, 0, b"/a/private/name");
            w.put_list(Vma::ALL_VALID, &[Vma::default()]);
            w.put_blob(Group::Paths as u16, 0, 0, b"/bin/x", 6);
            w.put_blob(Group::Environ as u16, 0, 0, b"PASSWORD=x\0", 11);
            w.put_blob(Group::Wchan as u16, 0, 0, b"do_wait", 7);
            w.put_blob(Group::Kstack as u16, 0, 0, b"do_wait\n", 8);
            w.put_blob(Group::Label as u16, 0, 0, b"x", 1);
            w.shared(Group::Fd, 7);
            w.missing(Group::Rollup, Reason::Denied);
            w.missing(Group::Signals, Reason::Vanished);
            w.end_task();
        }
        w.finish(Done::default())
    }

    /// The attributes of a stripped answer to a request for everything.
    fn kinds(strategy: Strategy) -> Vec<u16> {
        let all = Groups::from_bits(u64::MAX);
        let s = strip(full(strategy).as_bytes(), all, AlignedBuf::new(), &mut |_, _| true);
        let s = Stream::parse(s.expect("a stream")).expect("a stream");
        assert_eq!(s.asked(), groups(strategy));
        assert_eq!((s.len(), s.done().denied), (2, 0));
        assert_eq!(s.info().nodename.get(), None);
        let mut kinds: Vec<u16> =
            s.tasks().flat_map(|t| t.attrs().map(|a| a.0).collect::<Vec<_>>()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    #[test]
    fn private_groups_are_left_out_whoever_asks_for_them() {
        let of = |g: Group| g as u16;
        let both = [Group::Base, Group::Cred, Group::Stat, Group::Statm].map(of);
        let mut wanted: Vec<u16> = both.to_vec();
        wanted.extend([
            of(Group::Cmdline),
            of(Group::Limits),
            of(Group::Login),
            A_MISSING,
            A_GROUPS,
            A_COMM,
        ]);
        wanted.sort_unstable();
        assert_eq!(kinds(Strategy::All), wanted);
        let mut wanted: Vec<u16> = both.to_vec();
        wanted.extend([
            of(Group::Sched),
            of(Group::Limits),
            of(Group::Login),
            A_MISSING,
            A_GROUPS,
            A_COMM,
        ]);
        wanted.sort_unstable();
        assert_eq!(kinds(Strategy::AllThread), wanted);
        for other in [Strategy::One, Strategy::Children, Strategy::Thread] {
            assert_eq!(groups(other), Groups::NONE);
        }
    }

    #[test]
    fn every_public_group_is_returned_or_missing() {
        for strategy in [Strategy::All, Strategy::AllThread] {
            let told = groups(strategy);
            assert!(!told.is_empty());
            let s = strip(full(strategy).as_bytes(), told, AlignedBuf::new(), &mut |_, _| true);
            let s = Stream::parse(s.expect("a stream")).expect("a stream");
            for (t, g) in s.tasks().flat_map(|t| told.iter().map(move |g| (t, g))) {
                let is_told = t.attrs().any(|(kind, _)| kind == g as u16);
                assert!(is_told || t.reason(g).is_some(), "{g} is left out silently");
            }
        }
    }

    #[test]
    fn values_are_as_coarse_as_in_proc() {
        let all = groups(Strategy::All);
        let full = full(Strategy::All);
        let s = strip(full.as_bytes(), all, AlignedBuf::new(), &mut |_, _| true).expect("a stream");
        let s = Stream::parse(s).expect("a stream");
        let t = s.get(0).expect("a task");
        assert_eq!(t.record::<Base>().and_then(|b| b.start_time_ns()), Some(SECOND));
        assert_eq!(t.comm(), Some(&b"a name that is longer than 15 bytes"[..]));
        assert_eq!(t.record::<Stat>().and_then(|b| b.utime_ns()), Some(SECOND));
        assert_eq!(t.record::<Statm>().and_then(|b| b.text_bytes()), Some(4096));
        let cred = t.record::<Cred>().expect("it is there");
        assert_eq!((cred.uid(), cred.securebits(), cred.raw().securebits), (Some(5), None, 0));
        assert_eq!(t.reason(Group::Signals), Some(Reason::Vanished));
        assert_eq!(t.cmdline().expect("it is there").data, &b"secret\0"[..]);
    }

    #[test]
    fn text_that_is_not_public_is_blocked() {
        let full = full(Strategy::All);
        let mut asked = Vec::new();
        let mut judge = |t: &TaskView<'_>, text: &Blob<'_>| {
            asked.push((t.pid(), text.data.to_vec()));
            t.pid() == 9
        };
        let s = strip(full.as_bytes(), Groups::CMDLINE, AlignedBuf::new(), &mut judge)
            .expect("a stream");
        assert!(!s.as_bytes().windows(8).any(|w| w == b"PASSWORD"));
        let s = Stream::parse(s).expect("a stream");
        assert_eq!(asked, [(7, b"secret\0".to_vec()), (9, b"secret\0".to_vec())]);
        let reasons: Vec<_> = s.tasks().map(|t| t.reason(Group::Cmdline)).collect();
        assert_eq!(reasons, [Some(Reason::Blocked), None]);
        assert_eq!(s.get(0).expect("a task").cmdline(), None);
        assert_eq!(s.done().blocked, 1);
    }

    #[test]
    fn text_is_returned_as_cut_if_that_part_is_public() {
        let mut w = StreamWriter::new();
        let groups = Groups::BASE | Groups::CMDLINE;
        w.info(&build!(Info {
            show_flags: groups.bits(),
            clk_tck: 100,
            nodename: Fixed::new(b"of the service"),
            ..StreamWriter::blank_info()
        }));
        for pid in [7, 9] {
            w.begin_task(pid, pid);
            w.put_blob(Group::Cmdline as u16, 0, 0, b"begin", 500);
            w.end_task();
        }
        let cut = w.finish(Done::default());
        let mut judge = |t: &TaskView<'_>, text: &Blob<'_>| &*text.data == b"begin" && t.pid() == 7;
        let s = strip(cut.as_bytes(), groups, AlignedBuf::new(), &mut judge).expect("a stream");
        let s = Stream::parse(s).expect("a stream");
        let told = s.get(0).and_then(|t| t.cmdline()).expect("it is shown");
        assert_eq!((told.is_cut(), told.total), (true, 500));
        assert_eq!(s.get(1).and_then(|t| t.reason(Group::Cmdline)), Some(Reason::Blocked));
        assert_eq!((s.done().blocked, s.done().truncated), (1, 1));
    }

    #[test]
    fn each_row_of_the_table_says_why() {
        for s in TABLE {
            assert!(
                !s.files.is_empty() && s.kernel.contains("fs/proc/") || s.kernel.starts_with("as "),
                "{s:?}"
            );
        }
    }
}
