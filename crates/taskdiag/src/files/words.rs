//! The words of lsof, ss and netstat for types of files, families, protocols and states.

use taskdiag_wire::FdType;

/// The types of files: the name in lsof, and a description.
pub const TYPES: &[(&str, &str)] = &[
    ("REG", "regular file, memfd"),
    ("DIR", "directory"),
    ("CHR", "character device"),
    ("BLK", "block device"),
    ("FIFO", "pipe, named or not"),
    ("LINK", "symbolic link (opened with O_PATH)"),
    ("IPv4", "socket"),
    ("IPv6", "socket"),
    ("unix", "socket"),
    ("netlink", "socket"),
    ("pack", "packet socket"),
    ("sock", "socket of another or an unknown family"),
    ("a_inode", "eventfd, epoll, timerfd, signalfd, inotify, pidfd, bpf, io_uring and the like"),
    ("PSXMQ", "POSIX message queue"),
    ("NS", "namespace"),
];

/// The type of a file that is not a socket, in the words of lsof.
pub(super) fn lsof_type(t: FdType) -> &'static str {
    match t {
        FdType::Reg | FdType::Memfd => "REG",
        FdType::Dir => "DIR",
        FdType::Chr => "CHR",
        FdType::Blk => "BLK",
        FdType::Fifo | FdType::Pipe => "FIFO",
        FdType::Lnk => "LINK",
        FdType::Socket => "sock",
        FdType::Mqueue => "PSXMQ",
        FdType::Ns => "NS",
        _ => "a_inode",
    }
}

/// The type of a socket, in the words of lsof.
pub(super) fn socket_type(family: u16) -> &'static str {
    match i32::from(family) {
        libc::AF_INET => "IPv4",
        libc::AF_INET6 => "IPv6",
        libc::AF_UNIX => "unix",
        libc::AF_NETLINK => "netlink",
        libc::AF_PACKET => "pack",
        _ => "sock",
    }
}

/// The name of an address family in lower case, or `None` if it has none here.
pub fn family_name(family: u16) -> Option<&'static str> {
    Some(match i32::from(family) {
        libc::AF_UNIX => "unix",
        libc::AF_INET => "inet",
        libc::AF_INET6 => "inet6",
        libc::AF_NETLINK => "netlink",
        libc::AF_PACKET => "packet",
        libc::AF_VSOCK => "vsock",
        libc::AF_ALG => "alg",
        libc::AF_BLUETOOTH => "bluetooth",
        libc::AF_CAN => "can",
        libc::AF_TIPC => "tipc",
        libc::AF_XDP => "xdp",
        libc::AF_KEY => "key",
        _ => return None,
    })
}

/// The name of a protocol of `AF_INET` and `AF_INET6`.
pub fn protocol_name(protocol: u16) -> Option<&'static str> {
    Some(match i32::from(protocol) {
        libc::IPPROTO_TCP => "TCP",
        libc::IPPROTO_UDP => "UDP",
        libc::IPPROTO_ICMP => "ICMP",
        libc::IPPROTO_ICMPV6 => "ICMPV6",
        libc::IPPROTO_IGMP => "IGMP",
        libc::IPPROTO_SCTP => "SCTP",
        libc::IPPROTO_DCCP => "DCCP",
        libc::IPPROTO_UDPLITE => "UDPLITE",
        libc::IPPROTO_RAW => "RAW",
        libc::IPPROTO_MPTCP => "MPTCP",
        _ => return None,
    })
}

const STATES: &[(u16, &str)] = &[
    (1, "ESTABLISHED"),
    (2, "SYN_SENT"),
    (3, "SYN_RECV"),
    (4, "FIN_WAIT1"),
    (5, "FIN_WAIT2"),
    (6, "TIME_WAIT"),
    (7, "CLOSE"),
    (8, "CLOSE_WAIT"),
    (9, "LAST_ACK"),
    (10, "LISTEN"),
    (11, "CLOSING"),
    (12, "NEW_SYN_RECV"),
];

/// The name of a state of a TCP socket.
pub fn state_name(state: u16) -> Option<&'static str> {
    STATES.iter().find(|(n, _)| *n == state).map(|(_, name)| *name)
}

/// The state with this name, in upper or lower case, with `-` or `_`.
pub fn state_number(name: &str) -> Option<u16> {
    let name = name.to_ascii_uppercase().replace('-', "_");
    let name = if name == "CLOSED" { "CLOSE" } else { &name };
    STATES.iter().find(|(_, n)| *n == name).map(|(n, _)| *n)
}

/// The name of a state of a unix socket.
pub(super) fn unix_state(state: u16) -> Option<&'static str> {
    Some(match state {
        1 => "CONNECTED",
        7 => "UNCONNECTED",
        10 => "LISTEN",
        _ => return None,
    })
}

/// The name of a type of socket, without `SOCK_`.
pub(super) fn socket_kind(kind: u16) -> Option<&'static str> {
    Some(match i32::from(kind) {
        libc::SOCK_STREAM => "STREAM",
        libc::SOCK_DGRAM => "DGRAM",
        libc::SOCK_RAW => "RAW",
        libc::SOCK_RDM => "RDM",
        libc::SOCK_SEQPACKET => "SEQPACKET",
        libc::SOCK_DCCP => "DCCP",
        10 => "PACKET",
        _ => return None,
    })
}

/// The name of a netlink protocol.
pub(super) fn netlink_name(protocol: u16) -> Option<&'static str> {
    const NAMES: [&str; 23] = [
        "ROUTE",
        "UNUSED",
        "USERSOCK",
        "FIREWALL",
        "SOCK_DIAG",
        "NFLOG",
        "XFRM",
        "SELINUX",
        "ISCSI",
        "AUDIT",
        "FIB_LOOKUP",
        "CONNECTOR",
        "NETFILTER",
        "IP6_FW",
        "DNRTMSG",
        "KOBJECT_UEVENT",
        "GENERIC",
        "",
        "SCSITRANSPORT",
        "ECRYPTFS",
        "RDMA",
        "CRYPTO",
        "SMC",
    ];
    NAMES.get(usize::from(protocol)).copied().filter(|n| !n.is_empty())
}

/// The name of a packet socket's protocol.
pub(super) fn ethertype_name(protocol: u16) -> Option<&'static str> {
    Some(match protocol {
        0x0003 => "ALL",
        0x0800 => "IP",
        0x0806 => "ARP",
        0x86dd => "IPV6",
        0x88cc => "LLDP",
        0x888e => "PAE",
        _ => return None,
    })
}

/// The names of signals, without `SIG`.
pub(super) const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The names of clocks.
pub(super) const CLOCKS: [&str; 12] = [
    "realtime",
    "monotonic",
    "process_cputime",
    "thread_cputime",
    "monotonic_raw",
    "realtime_coarse",
    "monotonic_coarse",
    "boottime",
    "realtime_alarm",
    "boottime_alarm",
    "sgi_cycle",
    "tai",
];
