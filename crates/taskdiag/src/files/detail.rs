//! Describes the details of a descriptor in words.

use std::fmt::Write as _;

use taskdiag_wire::{Entry, FdDetail, FdDetailKind, FdType};

use super::row::major_minor;
use super::words;

/// More targets or watches than this are counted instead of listed.
const LISTED: usize = 64;

/// Describes an anonymous inode with its details, such as `[eventfd:7] count=1`. `command` names a
/// process by its pid if the answer has that process.
pub(super) fn text(
    kind: FdType,
    details: &[Entry<'_, FdDetail>],
    command: impl Fn(u32) -> Option<String>,
) -> String {
    let v = details.first().map(|d| d.raw.value).unwrap_or_default();
    let first = details.first().and_then(|d| FdDetailKind::from_number(d.raw.kind));
    let mut out = String::new();
    match (kind, first) {
        (FdType::Eventfd, Some(FdDetailKind::Eventfd)) => {
            write(&mut out, format_args!("[eventfd:{}] count={}", v[1], v[0]));
        }
        (FdType::Epoll, _) => epoll(&mut out, details),
        (FdType::Timerfd, Some(FdDetailKind::Timerfd)) => timer(&mut out, v),
        (FdType::Signalfd, Some(FdDetailKind::Signalfd)) => {
            write(&mut out, format_args!("[signalfd] {}", signals(v[0])));
        }
        (FdType::Inotify, _) => inotify(&mut out, details),
        (FdType::Pidfd, Some(FdDetailKind::Pidfd)) => match v[0] {
            0 => out.push_str("[pidfd] of a process in another namespace"),
            u64::MAX => out.push_str("[pidfd] of a process that has ended"),
            pid => {
                write(&mut out, format_args!("[pidfd:{pid}]"));
                if let Some(name) = u32::try_from(pid).ok().and_then(command) {
                    write(&mut out, format_args!(" {name}"));
                }
            }
        },
        (FdType::BpfMap, Some(FdDetailKind::BpfMap)) => {
            let kind = bpf_type(FdDetailKind::BpfMap, v[1]);
            write(&mut out, format_args!("[bpf-map:{}] {kind} entries={}", v[0], v[2]));
            // A size that is not known is all ones.
            if v[3] != u64::MAX {
                write(&mut out, format_args!(" memory={}", v[3]));
            }
        }
        (FdType::BpfProg, Some(FdDetailKind::BpfProg)) => {
            let kind = bpf_type(FdDetailKind::BpfProg, v[1]);
            write(&mut out, format_args!("[bpf-prog:{}] {kind} memory={}", v[0], v[2]));
        }
        (FdType::BpfLink, Some(FdDetailKind::BpfLink)) => {
            let kind = bpf_type(FdDetailKind::BpfLink, v[1]);
            write(&mut out, format_args!("[bpf-link:{}] {kind} prog={}", v[0], v[2]));
        }
        (FdType::IoUring, Some(FdDetailKind::IoUring)) => {
            write(&mut out, format_args!("[io_uring] sq={} cq={}", v[0], v[1]));
        }
        _ => write(&mut out, format_args!("[{}]", kind.name().replace("bpf_", "bpf-"))),
    }
    out
}

/// The name of the clock of a timer, or its number.
pub fn clock(n: u64) -> String {
    named(&words::CLOCKS, n)
}

/// The name of the type of a map, program or link of BPF, or its number.
pub fn bpf_type(kind: FdDetailKind, n: u64) -> String {
    match kind {
        FdDetailKind::BpfMap => named(&MAP_TYPES, n),
        FdDetailKind::BpfProg => named(&PROG_TYPES, n),
        _ => named(&LINK_TYPES, n),
    }
}

/// The watches of an inotify descriptor, such as `8,1:1234`: device and inode.
pub fn watches<'a>(
    details: &'a [Entry<'a, FdDetail>],
) -> impl Iterator<Item = String> + Clone + use<'a> {
    details.iter().filter(|d| d.raw.kind == FdDetailKind::Inotify as u32).map(|d| {
        let (major, minor) = major_minor(d.raw.value[2] as u32);
        format!("{major},{minor}:{}", d.raw.value[1])
    })
}

/// Writing to a String cannot fail.
fn write(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// `[eventpoll:3,5]` names the descriptors that the epoll waits for. `?` stands for one or more
/// that could not be read.
fn epoll(out: &mut String, details: &[Entry<'_, FdDetail>]) {
    out.push_str("[eventpoll");
    let targets = details.iter().filter(|d| d.raw.kind == FdDetailKind::Epoll as u32);
    for (i, d) in targets.clone().take(LISTED).enumerate() {
        out.push(if i == 0 { ':' } else { ',' });
        match d.value() {
            Some(v) => write(out, format_args!("{}", v[0])),
            None => out.push('?'),
        }
    }
    more(out, targets.count());
    out.push(']');
}

/// `[inotify] 8,1:1234` names the device and the inode that are watched.
fn inotify(out: &mut String, details: &[Entry<'_, FdDetail>]) {
    out.push_str("[inotify]");
    for watch in watches(details).take(LISTED) {
        write(out, format_args!(" {watch}"));
    }
    more(out, watches(details).count());
}

fn more(out: &mut String, all: usize) {
    if all > LISTED {
        write(out, format_args!(" and {} more", all - LISTED));
    }
}

/// `[timerfd] monotonic in=1.5s every=2s`.
fn timer(out: &mut String, [clock, ticks, _, left, interval]: [u64; 5]) {
    write(out, format_args!("[timerfd] {}", self::clock(clock)));
    if left > 0 {
        write(out, format_args!(" in={}s", seconds(left)));
    }
    if interval > 0 {
        write(out, format_args!(" every={}s", seconds(interval)));
    }
    if left == 0 && interval == 0 {
        out.push_str(" off");
    }
    if ticks > 0 {
        write(out, format_args!(" ticks={ticks}"));
    }
}

/// Nanoseconds as seconds, without zeros at the end.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The signals of a mask as `INT,TERM,RT2`, or `-` if there are none.
fn signals(mask: u64) -> String {
    let name = |n: usize| match words::SIGNALS.get(n) {
        Some(name) => (*name).to_owned(),
        // The numbers are those of kill -l: the first real-time signal for programs is 34.
        None if n >= 33 => format!("RT{}", n - 33),
        None => (n + 1).to_string(),
    };
    let set = (0..64).filter(|n| mask & (1 << n) != 0).map(name);
    let all: Vec<String> = set.collect();
    if all.is_empty() { String::from("-") } else { all.join(",") }
}

fn named(names: &[&'static str], n: u64) -> String {
    let name = usize::try_from(n).ok().and_then(|n| names.get(n));
    name.map_or_else(|| n.to_string(), |name| (*name).to_owned())
}

/// `enum bpf_map_type` of the kernel's uapi, in its order.
const MAP_TYPES: [&str; 34] = [
    "unspec",
    "hash",
    "array",
    "prog_array",
    "perf_event_array",
    "percpu_hash",
    "percpu_array",
    "stack_trace",
    "cgroup_array",
    "lru_hash",
    "lru_percpu_hash",
    "lpm_trie",
    "array_of_maps",
    "hash_of_maps",
    "devmap",
    "sockmap",
    "cpumap",
    "xskmap",
    "sockhash",
    "cgroup_storage_deprecated",
    "reuseport_sockarray",
    "percpu_cgroup_storage",
    "queue",
    "stack",
    "sk_storage",
    "devmap_hash",
    "struct_ops",
    "ringbuf",
    "inode_storage",
    "task_storage",
    "bloom_filter",
    "user_ringbuf",
    "cgrp_storage",
    "arena",
];

/// `enum bpf_prog_type`.
const PROG_TYPES: [&str; 33] = [
    "unspec",
    "socket_filter",
    "kprobe",
    "sched_cls",
    "sched_act",
    "tracepoint",
    "xdp",
    "perf_event",
    "cgroup_skb",
    "cgroup_sock",
    "lwt_in",
    "lwt_out",
    "lwt_xmit",
    "sock_ops",
    "sk_skb",
    "cgroup_device",
    "sk_msg",
    "raw_tracepoint",
    "cgroup_sock_addr",
    "lwt_seg6local",
    "lirc_mode2",
    "sk_reuseport",
    "flow_dissector",
    "cgroup_sysctl",
    "raw_tracepoint_writable",
    "cgroup_sockopt",
    "tracing",
    "struct_ops",
    "ext",
    "lsm",
    "sk_lookup",
    "syscall",
    "netfilter",
];

/// `enum bpf_link_type`.
const LINK_TYPES: [&str; 15] = [
    "unspec",
    "raw_tracepoint",
    "tracing",
    "cgroup",
    "iter",
    "netns",
    "xdp",
    "perf_event",
    "kprobe_multi",
    "struct_ops",
    "netfilter",
    "tcx",
    "uprobe_multi",
    "netkit",
    "sockmap",
];

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::build;

    fn one(kind: FdType, detail: FdDetailKind, value: [u64; 5]) -> String {
        let raw = build!(FdDetail { fd: 3, kind: detail as u32, value });
        let entry = Entry { valid: FdDetail::ALL_VALID, raw: &raw };
        text(kind, &[entry], |pid| (pid == 42).then(|| String::from("sleep")))
    }

    #[test]
    fn each_kind_of_detail_has_its_words() {
        use FdDetailKind as D;
        use FdType as T;
        for (kind, detail, value, want) in [
            (T::Eventfd, D::Eventfd, [5, 7, 0, 0, 0], "[eventfd:7] count=5"),
            (T::Epoll, D::Epoll, [9, 1, 0, 0, 0], "[eventpoll:9]"),
            (
                T::Timerfd,
                D::Timerfd,
                [1, 0, 0, 1_500_000_000, 2_000_000_000],
                "[timerfd] monotonic in=1.5s every=2s",
            ),
            (T::Timerfd, D::Timerfd, [77, 3, 0, 0, 0], "[timerfd] 77 off ticks=3"),
            (
                T::Signalfd,
                D::Signalfd,
                [1 << 1 | 1 << 14 | 1 << 35, 0, 0, 0, 0],
                "[signalfd] INT,TERM,RT2",
            ),
            (T::Signalfd, D::Signalfd, [0; 5], "[signalfd] -"),
            (T::Inotify, D::Inotify, [1, 99, 0x801, 0, 0], "[inotify] 8,1:99"),
            (T::Pidfd, D::Pidfd, [42, 0, 0, 0, 0], "[pidfd:42] sleep"),
            (T::Pidfd, D::Pidfd, [u64::MAX, 0, 0, 0, 0], "[pidfd] of a process that has ended"),
            (T::BpfMap, D::BpfMap, [3, 1, 10, 4096, 0], "[bpf-map:3] hash entries=10 memory=4096"),
            (T::BpfMap, D::BpfMap, [3, 1, 10, u64::MAX, 0], "[bpf-map:3] hash entries=10"),
            (T::BpfProg, D::BpfProg, [3, 26, 8, 0, 0], "[bpf-prog:3] tracing memory=8"),
            (T::BpfLink, D::BpfLink, [3, 400, 8, 0, 0], "[bpf-link:3] 400 prog=8"),
            (T::IoUring, D::IoUring, [8, 16, 0, 0, 0], "[io_uring] sq=8 cq=16"),
            // The engine listed the descriptor without its details.
            (T::Eventfd, D::Pidfd, [0; 5], "[eventfd]"),
        ] {
            assert_eq!(one(kind, detail, value), want);
        }
        assert_eq!(text(T::BpfMap, &[], |_| None), "[bpf-map]");
        assert_eq!(text(T::Epoll, &[], |_| None), "[eventpoll]");
        let busy = build!(FdDetail { fd: 3, kind: D::Epoll as u32, value: [0; 5] });
        let entry = Entry { valid: 3, raw: &busy };
        assert_eq!(text(T::Epoll, &[entry], |_| None), "[eventpoll:?]");
    }
}
