//! The details of descriptors of anonymous inodes, as values. `name` of [`files`](super::files) has
//! the same as text.

use taskdiag_wire::{Entry, FdDetail, FdDetailKind, FdType, Group, Groups};

use super::super::part::Part;
use super::super::*;
use crate::files;

/// The details of this kind that the row's descriptor has. `None`: it is of another type.
fn details<'a>(
    row: &Row<'a>,
    kind: FdDetailKind,
) -> Result<Option<Vec<&'a Entry<'a, FdDetail>>>, Value<'static>> {
    let Part::File(open) = row.part else { return Err(row.missing(Group::Fd)) };
    let of = match kind {
        FdDetailKind::Eventfd => FdType::Eventfd,
        FdDetailKind::Epoll => FdType::Epoll,
        FdDetailKind::Timerfd => FdType::Timerfd,
        FdDetailKind::Signalfd => FdType::Signalfd,
        FdDetailKind::Inotify => FdType::Inotify,
        FdDetailKind::Pidfd => FdType::Pidfd,
        FdDetailKind::BpfMap => FdType::BpfMap,
        FdDetailKind::BpfProg => FdType::BpfProg,
        FdDetailKind::BpfLink => FdType::BpfLink,
        _ => FdType::IoUring,
    };
    let Some(fd) = open.file.fd().filter(|_| open.file.fd_type() == Some(of)) else {
        return Ok(None);
    };
    let all = open.file.owner.details(fd.raw.fd).iter();
    Ok(Some(all.filter(|d| d.raw.kind == kind as u32).collect()))
}

/// A value of the one detail of this kind.
fn one<'a>(
    row: &Row<'a>,
    kind: FdDetailKind,
    get: impl FnOnce([u64; 5]) -> Value<'a>,
) -> Value<'a> {
    match details(row, kind) {
        Ok(Some(all)) => all.first().and_then(|d| d.value()).map_or(Value::UNKNOWN, get),
        Ok(None) => Value::ABSENT,
        Err(missing) => missing,
    }
}

/// The values of all details of this kind. There may be none.
fn many<'a>(
    row: &Row<'a>,
    kind: FdDetailKind,
    get: impl FnOnce(&[&Entry<'a, FdDetail>]) -> Value<'a>,
) -> Value<'a> {
    match details(row, kind) {
        // An entry without values stands for details that could not be read.
        Ok(Some(all)) if all.iter().any(|d| d.value().is_none()) => Value::UNKNOWN,
        Ok(Some(all)) => get(&all),
        Ok(None) => Value::ABSENT,
        Err(missing) => missing,
    }
}

fn count<'a>(row: &Row<'a>, kind: FdDetailKind) -> Value<'a> {
    many(row, kind, |all| Value::Uint(all.len() as u64))
}

fn text(text: String) -> Value<'static> {
    Value::Bytes { data: text.into_bytes().into(), cut: false }
}

const BPF: [FdDetailKind; 3] = [FdDetailKind::BpfMap, FdDetailKind::BpfProg, FdDetailKind::BpfLink];

/// A value of a map, program or link of BPF.
fn bpf<'a>(row: &Row<'a>, get: impl Fn(FdDetailKind, [u64; 5]) -> Value<'a>) -> Value<'a> {
    let mut values = BPF.into_iter().map(|kind| one(row, kind, |v| get(kind, v)));
    values.find(|v| *v != Value::ABSENT).unwrap_or(Value::ABSENT)
}

/// Memory. Links have none, and all ones mean that it is not known.
fn bpf_memory<'a>(kind: FdDetailKind, v: [u64; 5]) -> Value<'a> {
    match (kind, v) {
        (FdDetailKind::BpfMap, [.., u64::MAX, _]) => Value::UNKNOWN,
        (FdDetailKind::BpfMap, [.., bytes, _]) => Value::Uint(bytes),
        (FdDetailKind::BpfProg, [_, _, bytes, ..]) => Value::Uint(bytes),
        _ => Value::ABSENT,
    }
}

macro_rules! one {
    ($name:literal $header:literal $width:literal $kind:ident $unit:ident $text:ident $source:literal $what:literal
     $of:ident |$v:ident| $get:expr) => {
        row!($name $header $width Right [FD] $kind $unit $text, $source, $what, {},
            |_, row| one(row, FdDetailKind::$of, |$v| $get))
    };
}

pub const FIELDS: &[Field] = &[
    one!("eventfd_count" "EVENTS" 6 Integer Count Plain "/proc/PID/fdinfo eventfd-count"
        "Counter of an eventfd" Eventfd |v| Value::Uint(v[0])),
    one!("eventfd_id" "EVENTID" 7 Integer None Plain "/proc/PID/fdinfo eventfd-id"
        "Number of an eventfd, the same in each process that has it" Eventfd |v| Value::Uint(v[1])),
    row!("epoll_count" "TARGETS" 7 Right [FD] Integer Count Plain, "/proc/PID/fdinfo tfd",
        "Number of descriptors that an epoll waits for", {}, |_, row| count(row, FdDetailKind::Epoll)),
    row!("epoll_fds" "TARGETFDS" 9 Left [FD] IntegerList None Plain, "/proc/PID/fdinfo tfd",
    "Descriptors that an epoll waits for", {},
    |_, row| many(row, FdDetailKind::Epoll, |all| {
        Value::Ids(all.iter().map(|d| d.raw.value[0] as u32).collect())
    })),
    row!("timer_clock" "CLOCK" 9 Left [FD] Text None Plain, "/proc/PID/fdinfo clockid",
        "Clock of a timerfd", {},
        |_, row| one(row, FdDetailKind::Timerfd, |v| text(files::clock(v[0])))),
    one!("timer_ticks" "TICKS" 6 Integer Count Plain "/proc/PID/fdinfo ticks"
        "Expirations of a timerfd that were not read yet" Timerfd |v| Value::Uint(v[1])),
    one!("timer_left" "LEFT" 9 Number Seconds Millis "/proc/PID/fdinfo it_value"
        "Time until a timerfd expires, 0: it is off; text in ms" Timerfd |v| Value::Nanos(v[3])),
    one!("timer_interval" "INTERVAL" 9 Number Seconds Millis "/proc/PID/fdinfo it_interval"
        "Interval of a timerfd, 0: it expires once; text in ms" Timerfd |v| Value::Nanos(v[4])),
    row!("signalfd_mask" "SIGNALS" 16 Right [FD] Text None Signals, "/proc/PID/fdinfo sigmask",
        "Signals that a signalfd takes", {},
        |_, row| one(row, FdDetailKind::Signalfd, |v| Value::Mask(v[0]))),
    row!("inotify_count" "WATCHES" 7 Right [FD] Integer Count Plain, "/proc/PID/fdinfo inotify",
        "Number of files that an inotify watches", {}, |_, row| count(row, FdDetailKind::Inotify)),
    row!("inotify_inodes" "WATCHED" 12 Left [FD] TextList None Plain, "/proc/PID/fdinfo inotify",
    "Files that an inotify watches, major,minor:inode", {},
    |_, row| many(row, FdDetailKind::Inotify, |all| {
        let all: Vec<_> = all.iter().map(|d| **d).collect();
        let list: Vec<String> = files::watches(&all).collect();
        if list.is_empty() { return Value::ABSENT }
        Value::Args { data: list.join("\0").into_bytes().into(), cut: false }
    })),
    one!("pidfd_pid" "PIDFDPID" 8 Integer None Pid "/proc/PID/fdinfo Pid"
    "Process of a pidfd; none if it has ended" Pidfd |v| match v[0] {
        // It is in a pid namespace that is not visible.
        0 => Value::UNKNOWN,
        u64::MAX => Value::ABSENT,
        pid => Value::Uint(pid),
    }),
    row!("bpf_id" "BPFID" 6 Right [FD] Integer None Plain, "/proc/PID/fdinfo map_id, prog_id, link_id",
        "Number of a map, program or link of BPF", {}, |_, row| bpf(row, |_, v| Value::Uint(v[0]))),
    row!("bpf_type" "BPFTYPE" 12 Left [FD] Text None Plain, "/proc/PID/fdinfo map_type, prog_type, link_type",
        "Type of a map, program or link of BPF", {},
        |_, row| bpf(row, |kind, v| text(files::bpf_type(kind, v[1])))),
    row!("bpf_memory" "BPFMEM" 8 Right [FD] Integer Bytes Plain, "/proc/PID/fdinfo memlock",
        "Memory of a map or program of BPF; text in bytes", {}, |_, row| bpf(row, bpf_memory)),
    one!("uring_sq" "SQ" 6 Integer Count Plain "/proc/PID/fdinfo SqMask"
        "Entries of the submission queue of an io_uring" IoUring |v| Value::Uint(v[0])),
    one!("uring_cq" "CQ" 6 Integer Count Plain "/proc/PID/fdinfo CqMask"
        "Entries of the completion queue of an io_uring" IoUring |v| Value::Uint(v[1])),
];
