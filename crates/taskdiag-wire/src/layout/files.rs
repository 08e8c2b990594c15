//! The record and the entries of lists about the files that a process has in use.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::frame::NlAttr;
use crate::table::{Attribute, CStruct, Entry, GroupRecord, ListEntry, Member, Record, c_name};

record! {
    /// FD_COUNT: how many files are open. Source: `/proc/PID/fd`, `files_struct`.
    FdCount = "task_diag_fd_count", least 16;
    {
        /// Open file descriptors.
        open: u32,
        /// Size of the table.
        size: u32,
    }
}

entry! {
    /// FD: one open file. Source: `/proc/PID/fd`, `/proc/PID/fdinfo`, `struct file`.
    Fd = "task_diag_fd", least 64;
    {
        /// File descriptor.
        fd: u32,
        /// A [`FdType`](crate::names::FdType).
        r#type: u32,
        /// File position, bytes.
        pos_bytes: u64,
        /// Inode.
        inode: u64,
        /// Device number of the file system.
        dev: u32,
        /// Device number of a device file, else 0.
        rdev: u32,
        /// `O_*`, with `O_CLOEXEC` of the descriptor.
        flags: u32,
        /// `S_IF*` and permissions, as in `st_mode`.
        mode: u32,
        /// Mount, as in `/proc/PID/mountinfo`.
        mnt_id: u32,
        /// Number of its name ([`TaskView::name`](crate::TaskView::name)), 0: none.
        name: u32,
        /// Size of the file, bytes.
        size_bytes: u64,
        /// Hard links.
        nlink: u32,
    } pad { reserved: u32, }
}

entry! {
    /// FILE_STAT: a file that a task uses without a descriptor. Source: `stat(2)` of
    /// `/proc/PID/{exe,cwd,root}` and of mapped files, `struct inode`.
    FileStat = "task_diag_file_stat", least 40;
    {
        /// A [`FileUse`](crate::names::FileUse).
        r#as: u32,
        /// Device number of the file system. For a mapped file, it is the same as in
        /// [`Vma`](super::Vma).
        dev: u32,
        /// Inode.
        inode: u64,
        /// Size of the file, bytes.
        size_bytes: u64,
        /// `S_IF*` and permissions, as in `st_mode`.
        mode: u32,
        /// Hard links.
        nlink: u32,
        /// Mount, as in `/proc/PID/mountinfo`.
        mnt_id: u32,
        /// Device number of a device file, else 0.
        rdev: u32,
        /// Device number of the file system as in `st_dev`. On btrfs and on some overlays, `dev` of
        /// a mapped file is another one.
        stat_dev: u32,
    } pad { reserved: u32, }
}

entry! {
    /// One open socket. Source: `sock_diag(7)`, `/proc/PID/net`, `struct sock`.
    Socket = "task_diag_socket", least 96;
    {
        /// Inode, as in [`Fd`].
        inode: u64,
        /// File descriptor.
        fd: u32,
        /// Inode number of its network namespace.
        netns: u32,
        /// `AF_*`.
        family: u16,
        /// `SOCK_*`.
        r#type: u16,
        /// `IPPROTO_*`, `NETLINK_*`; for `AF_PACKET` the ethertype.
        protocol: u16,
        /// `TCP_*`, also for `AF_UNIX`: 1 connected, 7 unconnected, 10 listening.
        state: u16,
        /// Local port.
        local_port: u16,
        /// Remote port.
        peer_port: u16,
        /// Bound interface, or 0.
        ifindex: u32,
        /// Local address, network byte order; `AF_INET`: the first 4 bytes.
        local_addr: [u8; 16],
        /// Remote address.
        peer_addr: [u8; 16],
        /// `AF_UNIX`: inode of the other end, or 0.
        peer_inode: u64,
        /// `AF_UNIX`: number of its path, or of `@` and its abstract name.
        name: u32,
        /// `AF_NETLINK`: port id.
        portid: u32,
        /// Bytes not yet received by the process.
        recv_queue_bytes: u64,
        /// Bytes not yet sent or acknowledged.
        send_queue_bytes: u64,
    }
}

entry! {
    /// Details of one descriptor that are particular to its type. Source: `/proc/PID/fdinfo`.
    FdDetail = "task_diag_fd_detail", least 48;
    {
        /// File descriptor.
        fd: u32,
        /// A [`FdDetailKind`](crate::names::FdDetailKind), which defines the meaning of the values.
        kind: u32,
        /// Values.
        value: [u64; 5],
    }
}

entry! {
    /// NET: traffic of one open socket. Source: `sock_diag(7)` (`struct tcp_info`), `struct sock`.
    /// UDP and raw sockets have no counters of bytes.
    Net = "task_diag_net", least 120;
    {
        /// Inode, as in [`Fd`].
        inode: u64,
        /// Bytes of data that were sent, with those that were sent again.
        sent_bytes: u64,
        /// Bytes that the other end has acknowledged. The first packet of a connection counts as
        /// one.
        acked_bytes: u64,
        /// Bytes of data that were received.
        received_bytes: u64,
        /// Bytes that were sent again.
        retrans_bytes: u64,
        /// Smoothed round-trip time, ns.
        rtt_ns: u64,
        /// Its mean deviation, ns.
        rtt_var_ns: u64,
        /// Time since data was last sent, or since the connection was made, ns.
        since_sent_ns: u64,
        /// Time since data was last received, or since the connection was made, ns.
        since_received_ns: u64,
        /// File descriptor.
        fd: u32,
        /// Received packets that were dropped for lack of room.
        drops: u32,
        /// Segments sent.
        sent_segs: u32,
        /// Segments received.
        received_segs: u32,
        /// Segments sent again.
        retrans_segs: u32,
        /// Congestion window, segments.
        cwnd_segs: u32,
        /// Name of the congestion control algorithm, with NUL bytes after it.
        congestion: [u8; 16],
        /// `AF_*`.
        family: u16,
        /// `IPPROTO_*`, as in [`Socket`].
        protocol: u16,
    } pad { reserved: u32, }
}

entry! {
    /// GPU: an engine or a memory region of one DRM client, or a descriptor of a DRM device whose
    /// driver has no counters. Source: `drm-*` of `/proc/PID/fdinfo`.
    Gpu = "task_diag_gpu", least 128;
    {
        /// The client (`drm-client-id`), unique with `dev`.
        client: u64,
        /// File descriptor.
        fd: u32,
        /// Device number of the device file.
        dev: u32,
        /// Time in which the engine worked for the client, ns.
        busy_ns: u64,
        /// Cycles of the engine's clock in which it worked for the client.
        cycles: u64,
        /// All cycles of this clock.
        total_cycles: u64,
        /// Size of the client's buffers in the region, in memory or not.
        total_bytes: u64,
        /// The part of it that is in memory.
        resident_bytes: u64,
        /// The part of it that other clients have, too.
        shared_bytes: u64,
        /// How many engines have this name.
        capacity: u32,
        /// Driver, with NUL bytes after it.
        driver: [u8; 20],
        /// Address on the bus, with NUL bytes after it.
        pdev: [u8; 20],
        /// Name of the engine or of the region, with NUL bytes after it.
        name: [u8; 16],
    } pad { reserved: u32, }
}
