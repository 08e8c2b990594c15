/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * task_diag: one binary request, one binary answer about tasks.
 *
 * This header is the ABI, and the only copy of it: the kernel series, the BPF
 * programs and the Rust crate taskdiag-wire use this file or are pinned to it
 * by a test.
 *
 * Framing is netlink's: struct nlmsghdr, then a payload, then attributes
 * (struct nlattr). Byte order is the host's. Three rules make a stream
 * readable without copying:
 *
 *  - every message and every attribute starts on a multiple of 8 bytes and its
 *    length is a multiple of 8;
 *  - the struct of a group begins with its own struct nlattr, so the attribute
 *    is the struct;
 *  - a longer struct than the reader knows is a newer one: the known part is
 *    read, the rest is skipped. Unknown attributes and messages are skipped.
 *
 * Right after its nlattr each group struct has a __u32 `valid`. Bit i of it
 * stands for the i-th member that follows (padding and `reserved` members are
 * not counted). A member whose bit is clear is not known; it is zero, and the
 * zero means nothing.
 *
 * Units: bytes, nanoseconds; pids as seen in the reader's pid namespace (0: not
 * visible from there), uids and gids in the reader's user namespace.
 */
#ifndef _UAPI_LINUX_TASK_DIAG_H
#define _UAPI_LINUX_TASK_DIAG_H

#ifndef TASK_DIAG_NO_INCLUDES	/* BPF programs bring their own types */
#include <linux/types.h>
#include <linux/netlink.h>
#endif

#define TASK_DIAG_VERSION	1
#define TASK_DIAG_MAGIC		0x47444154	/* "TADG" on a little-endian machine */
#define TASK_DIAG_ALIGN		8
/* Nothing that carries data of variable length puts more than this in one attribute. */
#define TASK_DIAG_BLOB_MAX	32768

/* nlmsg_type. NLMSG_NOOP is filler, NLMSG_DONE ends a stream. */
enum task_diag_msg_type {
	TASK_DIAG_CMD_GET	= 16,	/* request: struct task_diag_req */
	TASK_DIAG_CMD_FEATURES	= 17,	/* request: no payload */
	TASK_DIAG_MSG_INFO	= 18,	/* first of a stream: struct task_diag_info */
	TASK_DIAG_MSG_TASK	= 19,	/* struct task_diag_msg, then attributes */
	TASK_DIAG_MSG_FEATURES	= 20,	/* struct task_diag_features */
};

/* dump_strategy */
enum task_diag_strategy {
	TASK_DIAG_DUMP_ALL		= 0,	/* all processes; pid must be 0 */
	TASK_DIAG_DUMP_ONE		= 1,	/* the process that pid belongs to */
	TASK_DIAG_DUMP_ALL_THREAD	= 2,	/* all threads of all processes; pid must be 0 */
	TASK_DIAG_DUMP_CHILDREN		= 3,	/* processes whose parent is process pid */
	TASK_DIAG_DUMP_THREAD		= 4,	/* threads of the process that pid belongs to */
	__TASK_DIAG_DUMP_MAX
};

/* Groups: bit n of show_flags asks for attribute type n. */
enum task_diag_group {
	TASK_DIAG_BASE		= 0,
	TASK_DIAG_CRED		= 1,
	TASK_DIAG_VMA		= 2,
	TASK_DIAG_VMA_STAT	= 3,
	TASK_DIAG_STAT		= 4,
	TASK_DIAG_STATM		= 5,
	TASK_DIAG_CMDLINE	= 6,
	TASK_DIAG_PATHS		= 7,
	TASK_DIAG_IO		= 8,
	TASK_DIAG_SCHED		= 9,
	TASK_DIAG_NS		= 10,
	TASK_DIAG_CGROUP	= 11,
	TASK_DIAG_FD		= 12,
	TASK_DIAG_ENVIRON	= 13,
	TASK_DIAG_LIMITS	= 14,
	TASK_DIAG_SIGNALS	= 15,
	__TASK_DIAG_GROUP_MAX
};

/* Attribute types that are not a group of their own. */
enum task_diag_attr {
	TASK_DIAG_A_MISSING	= 64,	/* struct task_diag_missing */
	TASK_DIAG_A_GROUPS	= 65,	/* with CRED: blob of __u32, supplementary gids */
	TASK_DIAG_A_NSPID	= 66,	/* with NS: blob of __u32, the task's id in each pid
					 * namespace, the reader's first, the innermost last */
	TASK_DIAG_A_CGROUP_PATH	= 67,	/* with CGROUP: blob, kind = hierarchy id (0: v2),
					 * data "controllers:path" as in /proc/PID/cgroup */
};

/* The request. Unknown trailing bytes must be zero. */
struct task_diag_req {
	__u64 show_flags;
	__u64 dump_strategy;
	__u32 pid;
	__u32 reserved;		/* 0 */
};

struct task_diag_features {
	__u32 version;
	__u32 reserved;
	__u64 groups;		/* supported bits of show_flags */
	__u64 strategies;	/* bit n: strategy n is supported */
};

/* What the answer is an answer to, and what a reader far away needs to print it. */
struct task_diag_info {
	__u32 magic;		/* TASK_DIAG_MAGIC */
	__u32 version;		/* TASK_DIAG_VERSION */
	__u64 show_flags;	/* as asked */
	__u64 dump_strategy;
	__u32 pid;
	__u32 ncpus;		/* online CPUs */
	__u64 realtime_ns;	/* CLOCK_REALTIME at the start of the walk */
	__u64 boottime_ns;	/* CLOCK_BOOTTIME at the same moment */
	__u64 mem_total_bytes;	/* 0: not known */
	__u32 page_size;
	__u32 clk_tck;		/* ticks a second; times from procfs are multiples of one */
	/* which engine served which group */
	__u64 kernel_groups;
	__u64 bpf_groups;
	__u64 procfs_groups;
};

/*
 * One task. A task that does not fit goes on in the next message, which has
 * the same pid and TASK_DIAG_FLAG_CONT; all messages of a task are adjacent,
 * with nothing but filler between them.
 */
#define TASK_DIAG_FLAG_CONT	0x1

struct task_diag_msg {
	__u32 pid;	/* the thread's id (of the leader, for a process) */
	__u32 tgid;
	__u32 flags;	/* TASK_DIAG_FLAG_* */
	__u32 reserved;
};

/* The end. A stream without it is cut. */
struct task_diag_done {
	__s32 error;	/* 0, or a negative errno that ended the walk early */
	__u32 reserved;
	__u64 tasks;	/* in the stream */
	__u64 denied;	/* tasks in the stream that lack a group for want of rights */
	__u64 vanished;	/* tasks that ended during the walk: left out, or incomplete */
	__u64 blocked;	/* tasks that lack a group because reading it would have waited */
	__u64 truncated; /* tasks with a value that is cut */
};

/* Why a group that was asked for is not there. */
enum task_diag_reason {
	TASK_DIAG_R_UNSUPPORTED	= 1,	/* the engine or kernel cannot tell */
	TASK_DIAG_R_DENIED	= 2,	/* the reader may not know */
	TASK_DIAG_R_VANISHED	= 3,	/* the task ended first */
	TASK_DIAG_R_BLOCKED	= 4,	/* would have waited for the task */
	TASK_DIAG_R_TRUNCATED	= 5,	/* did not fit */
	TASK_DIAG_R_ABSENT	= 6,	/* the task has none: no memory of a kernel thread
					 * or a zombie, no exe of a kernel thread */
};

struct task_diag_missing_entry {
	__u32 group;	/* enum task_diag_group */
	__u32 reason;	/* enum task_diag_reason */
};

struct task_diag_missing {
	struct nlattr nla;
	__u32 count;
	struct task_diag_missing_entry entries[];
};

/*
 * Data of variable length: text, paths, lists. A value longer than
 * TASK_DIAG_BLOB_MAX comes as several blobs of the same type and kind, in
 * order. `len` bytes of data follow, then padding to a multiple of 8.
 */
#define TASK_DIAG_BLOB_CUT	0x1	/* the value ends here, though it is longer */
#define TASK_DIAG_BLOB_REWRITTEN 0x2	/* CMDLINE: the process wrote over its arguments */
#define TASK_DIAG_BLOB_DELETED	0x4	/* PATHS: no longer in the directory tree */

struct task_diag_blob {
	struct nlattr nla;
	__u32 kind;	/* PATHS: enum task_diag_path; CGROUP_PATH: hierarchy id; else 0 */
	__u32 len;	/* bytes of data in this attribute */
	__u32 offset;	/* of this data in the whole value */
	__u32 total;	/* bytes of the whole value */
	__u16 flags;	/* TASK_DIAG_BLOB_* */
	__u16 reason;	/* not 0: there is no value, enum task_diag_reason says why */
	char data[];
};

/* BASE: who it is. /proc/PID/stat */
#define TASK_DIAG_TASK_KTHREAD	0x1	/* a kernel thread */
#define TASK_DIAG_TASK_EXITING	0x2	/* in do_exit(), or a zombie */

struct task_diag_base {
	struct nlattr nla;
	__u32 valid;
	__u32 ppid;		/* of the process */
	__u32 pgid;
	__u32 sid;
	__u32 flags;		/* TASK_DIAG_TASK_* */
	__u32 task_flags;	/* PF_*, the kernel's own */
	__u8  state;		/* one of R S D T t X Z P I, as in /proc/PID/stat */
	__u8  reserved[3];
	__u64 start_time_ns;	/* since boot, suspended time included */
	char  comm[64];		/* NUL-terminated, as in /proc/PID/comm */
};

/* CRED: whose it is and who controls it. /proc/PID/status */
struct task_diag_cred {
	struct nlattr nla;
	__u32 valid;
	__u32 uid, euid, suid, fsuid;
	__u32 gid, egid, sgid, fsgid;
	__u32 tracer_pid;	/* tid of the ptracer, or 0 */
	__u32 securebits;	/* not in /proc */
	__u32 no_new_privs;	/* 0 or 1 */
	__u32 seccomp;		/* 0 off, 1 strict, 2 filter */
	__u64 cap_inheritable;
	__u64 cap_permitted;
	__u64 cap_effective;
	__u64 cap_bounding;
	__u64 cap_ambient;
	__u32 ngroups;		/* gids in the TASK_DIAG_A_GROUPS blob */
	__u32 reserved;
};

/*
 * STAT: what it has used and how it is scheduled. /proc/PID/stat. Faults and
 * times are of the whole process for ALL, ONE and CHILDREN, and of the thread
 * for THREAD and ALL_THREAD; the c* members are of the waited-for children.
 */
#define TASK_DIAG_STAT_LOCKED	0x1	/* has pages locked into memory */

struct task_diag_stat {
	struct nlattr nla;
	__u32 valid;
	__u64 minflt, majflt;
	__u64 cminflt, cmajflt;
	__u64 utime_ns, stime_ns;
	__u64 cutime_ns, cstime_ns;
	__s32 nice;
	__s32 priority;		/* as in /proc/PID/stat: 20 + nice, or negative for real time */
	__u32 rt_priority;
	__u32 policy;		/* SCHED_* */
	__u32 processor;	/* last run on */
	__u32 num_threads;	/* of the process */
	__u32 tty_nr;		/* new_encode_dev() of the controlling terminal, or 0 */
	__s32 tty_pgrp;		/* foreground process group of the terminal, or -1 */
	__s32 exit_signal;	/* sent to the parent; -1 for a thread */
	__u32 flags;		/* TASK_DIAG_STAT_*; not in /proc/PID/stat */
};

/* STATM: the address space, in bytes. /proc/PID/status */
struct task_diag_statm {
	struct nlattr nla;
	__u32 valid;
	__u64 size_bytes;	/* virtual */
	__u64 peak_size_bytes;
	__u64 rss_bytes;
	__u64 rss_anon_bytes;
	__u64 rss_file_bytes;
	__u64 rss_shmem_bytes;
	__u64 peak_rss_bytes;
	__u64 data_bytes;
	__u64 stack_bytes;
	__u64 text_bytes;
	__u64 lib_bytes;
	__u64 locked_bytes;
	__u64 pinned_bytes;
	__u64 page_tables_bytes;
	__u64 swap_bytes;
};

/* PATHS: blobs of this type, one of each kind. /proc/PID/{exe,cwd,root} */
enum task_diag_path {
	TASK_DIAG_PATH_EXE	= 0,
	TASK_DIAG_PATH_CWD	= 1,
	TASK_DIAG_PATH_ROOT	= 2,
};

/* IO: of the process or thread, as STAT. /proc/PID/io */
struct task_diag_io {
	struct nlattr nla;
	__u32 valid;
	__u64 rchar;		/* bytes through read calls */
	__u64 wchar;
	__u64 syscr;		/* read calls */
	__u64 syscw;
	__u64 read_bytes;	/* from storage */
	__u64 write_bytes;
	__u64 cancelled_write_bytes;
};

/* SCHED: of the process or thread, as STAT. /proc/PID/{schedstat,status} */
#define TASK_DIAG_SCHED_LIVE_ONLY 0x1	/* threads that have ended are not in the sums */

struct task_diag_sched {
	struct nlattr nla;
	__u32 valid;
	__u64 run_time_ns;	/* on a CPU */
	__u64 run_delay_ns;	/* ready, waiting for a CPU; always of live threads only */
	__u64 timeslices;	/* always of live threads only */
	__u64 nvcsw;		/* voluntary context switches */
	__u64 nivcsw;		/* involuntary */
	__u32 flags;		/* TASK_DIAG_SCHED_* */
	__u32 reserved;
};

/* NS: inode numbers of its namespaces. /proc/PID/ns, NSpid of /proc/PID/status */
struct task_diag_ns {
	struct nlattr nla;
	__u32 valid;
	__u32 cgroup;
	__u32 ipc;
	__u32 mnt;
	__u32 net;
	__u32 pid;
	__u32 pid_for_children;
	__u32 time;
	__u32 time_for_children;
	__u32 user;
	__u32 uts;
};

/* CGROUP: followed by one TASK_DIAG_A_CGROUP_PATH blob for each hierarchy. */
struct task_diag_cgroup {
	struct nlattr nla;
	__u32 valid;
	__u64 id;		/* of the v2 cgroup: the inode number of its directory */
};

#endif /* _UAPI_LINUX_TASK_DIAG_H */
