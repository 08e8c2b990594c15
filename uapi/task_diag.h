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
 *  - unknown attributes and messages are skipped.
 *
 * The structs of groups and the entries of lists grow at their ends only, by
 * multiples of 8 bytes. A struct that is longer than the reader knows is newer:
 * read the known part and skip the rest. A shorter one is older: read zeroes
 * for the members that it lacks. No struct is shorter than it was in the first
 * version of the format. INFO and DONE grow in the same way. The heads of
 * messages, blobs and lists never change.
 *
 * Right after its nlattr each group struct has a __u32 `valid`. Bit i of it
 * stands for the i-th member that follows (padding and `reserved` members are
 * not counted). If the bit of a member is clear, the value is not known: the
 * member is zero, and the zero means nothing. The same holds for a member
 * beyond the end of a shorter struct. A new member comes after all others, or
 * in padding at the end, and has the next bit.
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
/* The most bytes of variable length in one attribute. */
#define TASK_DIAG_BLOB_MAX	32768

/* nlmsg_type. NLMSG_NOOP is filler, NLMSG_DONE ends a stream. */
enum task_diag_msg_type {
	TASK_DIAG_CMD_GET	= 16,	/* request: struct task_diag_req */
	TASK_DIAG_CMD_FEATURES	= 17,	/* request: no payload */
	TASK_DIAG_MSG_INFO	= 18,	/* first of a stream: struct task_diag_info */
	TASK_DIAG_MSG_TASK	= 19,	/* struct task_diag_msg, then attributes */
	TASK_DIAG_MSG_FEATURES	= 20,	/* struct task_diag_features */
	TASK_DIAG_MSG_CUT	= 21,	/* between tasks and NLMSG_DONE: struct task_diag_cut */
	TASK_DIAG_MSG_CONTAINER	= 22,	/* between tasks and NLMSG_DONE: blobs TASK_DIAG_A_CONTAINER */
	TASK_DIAG_MSG_CGROUP_LIST = 23,	/* between tasks and NLMSG_DONE: struct task_diag_cgroup_list */
	TASK_DIAG_MSG_CGROUP	= 24,	/* after it: struct task_diag_cgroup_msg, then attributes */
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
	TASK_DIAG_FD_COUNT	= 16,
	TASK_DIAG_ROLLUP	= 17,
	TASK_DIAG_SWAP		= 18,
	TASK_DIAG_WCHAN		= 19,
	TASK_DIAG_KSTACK	= 20,
	TASK_DIAG_FILE_STAT	= 21,
	TASK_DIAG_OOM		= 22,
	TASK_DIAG_LABEL		= 23,
	TASK_DIAG_AUTOGROUP	= 24,
	TASK_DIAG_LOGIN		= 25,
	TASK_DIAG_LAYOUT	= 26,
	TASK_DIAG_WAIT		= 27,
	TASK_DIAG_DELAYS	= 28,
	TASK_DIAG_NET		= 29,
	TASK_DIAG_GPU		= 30,
	TASK_DIAG_PIDFD		= 31,
	TASK_DIAG_SETTINGS	= 32,
	TASK_DIAG_PERSONA	= 33,
	TASK_DIAG_CPUSET	= 34,
	TASK_DIAG_NS_ID		= 35,
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
	TASK_DIAG_A_NAME	= 68,	/* with VMA and FD: blob, kind = number of the name,
					 * data the name itself; see struct task_diag_vma */
	TASK_DIAG_A_SHARED	= 69,	/* struct task_diag_shared */
	TASK_DIAG_A_SOCKET	= 70,	/* with FD: array of struct task_diag_socket */
	TASK_DIAG_A_FD_DETAIL	= 71,	/* with FD: array of struct task_diag_fd_detail */
	TASK_DIAG_A_COMM	= 72,	/* with BASE: blob, the command name where comm has no
				 * room for all of it */
	TASK_DIAG_A_CPUS	= 74,	/* with SETTINGS: blob, a bit for each processor that it may run
					 * on, the lowest bit of the first byte for number 0. Zeros at
					 * the end may be there or not */
	TASK_DIAG_A_MEMS	= 75,	/* with SETTINGS: the same for NUMA nodes that it may have memory of */
	TASK_DIAG_A_UID_MAP	= 76,	/* with PERSONA: blob of three __u32 for each range of ids of its
					 * user namespace: first there, first in the reader's, how many */
	TASK_DIAG_A_GID_MAP	= 77,	/* with PERSONA: the same for gids */
	TASK_DIAG_A_CONTAINER	= 73,	/* in MSG_CONTAINER: blob, kind = enum task_diag_container */
	TASK_DIAG_A_CGROUP_VALUE	= 78,	/* in MSG_CGROUP: array of struct task_diag_cgroup_value */
	TASK_DIAG_A_CGROUP_NAME	= 79,	/* in MSG_CGROUP: blob, its path from the root, with a / first */
};

/*
 * The request. Unknown trailing bytes must be zero; members that a shorter
 * request lacks (its nlmsg_len says so) are zero. The first 24 bytes must be
 * there.
 *
 * While VMA_STAT and ROLLUP are read, the task may have to wait for its own
 * memory, for milliseconds a GiB. Two limits keep that in bounds: a group that
 * is left out for them has the reason TASK_DIAG_R_OVER_BUDGET.
 *
 * BASE and STAT are read from many places in memory, which is most of the cost
 * of a long list. A reader can name the members that it does not need: an
 * answer may leave them out, with their bits of `valid` clear.
 */
struct task_diag_req {
	__u64 show_flags;
	__u64 dump_strategy;
	__u32 pid;
	__u32 reserved;		/* 0 */
	__u64 max_rss_bytes;	/* no VMA_STAT and ROLLUP of a larger process; 0: of any */
	__u64 budget_ns;	/* for all VMA_STAT and ROLLUP of the answer together; 0: no limit */
	__u32 skip_base;	/* bits of `valid` */
	__u32 skip_stat;	/* bits of `valid` */
};

struct task_diag_features {
	__u32 version;
	__u32 reserved;
	__u64 groups;		/* supported bits of show_flags */
	__u64 strategies;	/* bit n: strategy n is supported */
};

/* The request that is answered, and what a reader on another machine needs for printing. */
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
	/* The machine. Each is filled with zeroes, and is all zeroes where it is not known. */
	__u8  boot_id[16];	/* of this boot; /proc/sys/kernel/random/boot_id */
	char  nodename[64];	/* uname(2), in the UTS namespace of the reader */
	char  release[64];	/* of the kernel, uname(2) */
	char  machine[32];	/* architecture, uname(2) */
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
	__u64 over_budget; /* tasks that lack a group because of a limit in the request */
};

/*
 * What a recorder took out of the stream before it kept it, one message for
 * each user. It does so if the data of one user's tasks would leave no room for
 * those of others. A value that was cut has a flag that says so, too.
 */
#define TASK_DIAG_CUT_OTHERS	0xffffffff	/* as uid: of users without a message, or of several */

struct task_diag_cut {
	__u32 uid;	/* real uid of the tasks */
	__u32 cgroups;	/* control groups of this owner that are left out of the stream */
	__u64 tasks;	/* that are left out of the stream */
	__u64 cut_tasks; /* in the stream, with values that are cut or left out */
	__u64 cut_bytes; /* of such values */
	__u64 answers;	/* before this one that are left out altogether; of CUT_OTHERS only */
};

/*
 * The names of a container, as its runtime had them on disk when the stream
 * was kept. There is one message for each control group of a container or pod
 * whose path is in the stream. A value that is not known has its reason.
 */
enum task_diag_container {
	TASK_DIAG_CT_PATH	= 0,	/* of the control group, as after "controllers:" */
	TASK_DIAG_CT_RUNTIME	= 1,
	TASK_DIAG_CT_NAME	= 2,
	TASK_DIAG_CT_IMAGE	= 3,
	TASK_DIAG_CT_POD_NAME	= 4,
	TASK_DIAG_CT_POD_NAMESPACE = 5,
};

/*
 * The control groups of the machine when the stream was kept: one message for
 * the list, then one for each group. The message of a group comes after those
 * of the groups above it. Only recorders write them.
 */
#define TASK_DIAG_CG_HAS_V1	0x1	/* in task_diag_cgroup_list: version 1 was read, too */
#define TASK_DIAG_CG_IS_V2	0x1	/* in task_diag_cgroup_msg: version 2 has the group */
#define TASK_DIAG_CG_HAS_OWNER	0x2	/* in task_diag_cgroup_msg: uid is known */
#define TASK_DIAG_CG_UNLIMITED	0x1	/* in task_diag_cgroup_value: "max", there is no limit */

struct task_diag_cgroup_list {
	__u64 boottime_ns;	/* CLOCK_BOOTTIME when the first of them was read */
	__u64 left_out;	/* groups that were seen and not read, because there are too many */
	__u64 too_deep;	/* groups that were seen and not read, because they are too deep */
	__u64 no_room;	/* groups that a recorder took out of the stream, to keep room for other data */
	__u32 most;	/* groups that are read at most */
	__u32 levels;	/* below the root that are read at most */
	__u32 flags;	/* TASK_DIAG_CG_HAS_V1 */
	__u32 reserved;
};

struct task_diag_cgroup_msg {
	__u64 id;	/* inode number of its directory; 0: not known */
	__u64 after_ns;	/* when its files were read, counted from boottime_ns of the list; a recorder
			 * may round it down, so that a group without changes has the same bytes again */
	__u32 flags;	/* TASK_DIAG_CG_IS_V2, TASK_DIAG_CG_HAS_OWNER */
	__u32 uid;	/* with CG_HAS_OWNER: the owner of the outermost directory above it that is not
			 * the root's, who may have made it */
};

/* A value. One that was not asked for has no entry. */
struct task_diag_cgroup_value {
	__u64 value;
	__u32 member;	/* enum task_diag_cgroup_member */
	__u16 reason;	/* not 0: there is no value, enum task_diag_reason says why */
	__u16 flags;	/* TASK_DIAG_CG_UNLIMITED */
};

/*
 * Which value it is, with its file in version 2 and its unit. A value without
 * a unit is a count, as in the file. Numbers are never used again.
 */
enum task_diag_cgroup_member {
	TASK_DIAG_CGM_PROCS		= 0,	/* cgroup.procs: in it, without those below */
	TASK_DIAG_CGM_THREADS		= 1,	/* cgroup.threads: in it, without those below */
	TASK_DIAG_CGM_TYPE		= 2,	/* cgroup.type: 0 domain, 1 domain threaded, 2 domain invalid, 3 threaded */
	TASK_DIAG_CGM_POPULATED		= 3,	/* cgroup.events */
	TASK_DIAG_CGM_FROZEN		= 4,
	TASK_DIAG_CGM_FREEZE		= 5,	/* cgroup.freeze */
	TASK_DIAG_CGM_DESCENDANTS	= 6,	/* cgroup.stat */
	TASK_DIAG_CGM_DYING		= 7,
	TASK_DIAG_CGM_CPU_USAGE		= 8,	/* cpu.stat: ns */
	TASK_DIAG_CGM_CPU_USER		= 9,	/* ns */
	TASK_DIAG_CGM_CPU_SYSTEM	= 10,	/* ns */
	TASK_DIAG_CGM_PERIODS		= 11,
	TASK_DIAG_CGM_THROTTLES		= 12,
	TASK_DIAG_CGM_THROTTLED		= 13,	/* ns */
	TASK_DIAG_CGM_CPU_QUOTA		= 14,	/* cpu.max: ns */
	TASK_DIAG_CGM_CPU_PERIOD	= 15,	/* ns */
	TASK_DIAG_CGM_CPU_WEIGHT	= 16,	/* cpu.weight */
	TASK_DIAG_CGM_CPU_SHARES	= 17,	/* cpu.shares */
	TASK_DIAG_CGM_MEMORY		= 18,	/* memory.current: bytes */
	TASK_DIAG_CGM_MEMORY_PEAK	= 19,	/* memory.peak: bytes */
	TASK_DIAG_CGM_MEMORY_MIN	= 20,	/* memory.min: bytes */
	TASK_DIAG_CGM_MEMORY_LOW	= 21,	/* memory.low: bytes */
	TASK_DIAG_CGM_MEMORY_HIGH	= 22,	/* memory.high: bytes */
	TASK_DIAG_CGM_MEMORY_MAX	= 23,	/* memory.max: bytes */
	TASK_DIAG_CGM_SWAP		= 24,	/* memory.swap.current: bytes */
	TASK_DIAG_CGM_SWAP_MAX		= 25,	/* memory.swap.max: bytes */
	TASK_DIAG_CGM_EVENTS_LOW	= 26,	/* memory.events */
	TASK_DIAG_CGM_EVENTS_HIGH	= 27,
	TASK_DIAG_CGM_EVENTS_MAX	= 28,
	TASK_DIAG_CGM_EVENTS_OOM	= 29,
	TASK_DIAG_CGM_OOM_KILLS		= 30,
	TASK_DIAG_CGM_OOM_GROUP_KILLS	= 31,
	TASK_DIAG_CGM_ANON		= 32,	/* memory.stat: bytes */
	TASK_DIAG_CGM_FILE		= 33,	/* bytes */
	TASK_DIAG_CGM_KERNEL		= 34,	/* bytes */
	TASK_DIAG_CGM_SLAB		= 35,	/* bytes */
	TASK_DIAG_CGM_SOCK		= 36,	/* bytes */
	TASK_DIAG_CGM_SHMEM		= 37,	/* bytes */
	TASK_DIAG_CGM_FILE_MAPPED	= 38,	/* bytes */
	TASK_DIAG_CGM_FILE_DIRTY	= 39,	/* bytes */
	TASK_DIAG_CGM_FILE_WRITEBACK	= 40,	/* bytes */
	TASK_DIAG_CGM_FAULTS		= 41,
	TASK_DIAG_CGM_MAJOR_FAULTS	= 42,
	TASK_DIAG_CGM_PIDS		= 43,	/* pids.current */
	TASK_DIAG_CGM_PIDS_PEAK		= 44,	/* pids.peak */
	TASK_DIAG_CGM_PIDS_MAX		= 45,	/* pids.max */
	TASK_DIAG_CGM_READ_BYTES	= 46,	/* io.stat: bytes */
	TASK_DIAG_CGM_WRITE_BYTES	= 47,	/* bytes */
	TASK_DIAG_CGM_READS		= 48,
	TASK_DIAG_CGM_WRITES		= 49,
	TASK_DIAG_CGM_DISCARD_BYTES	= 50,	/* bytes */
	TASK_DIAG_CGM_CPU_SOME10	= 51,	/* cpu.pressure: hundredths of a percent */
	TASK_DIAG_CGM_CPU_SOME		= 52,	/* ns */
	TASK_DIAG_CGM_CPU_FULL10	= 53,	/* hundredths of a percent */
	TASK_DIAG_CGM_CPU_FULL		= 54,	/* ns */
	TASK_DIAG_CGM_MEMORY_SOME10	= 55,	/* memory.pressure: hundredths of a percent */
	TASK_DIAG_CGM_MEMORY_SOME	= 56,	/* ns */
	TASK_DIAG_CGM_MEMORY_FULL10	= 57,	/* hundredths of a percent */
	TASK_DIAG_CGM_MEMORY_FULL	= 58,	/* ns */
	TASK_DIAG_CGM_IO_SOME10		= 59,	/* io.pressure: hundredths of a percent */
	TASK_DIAG_CGM_IO_SOME		= 60,	/* ns */
	TASK_DIAG_CGM_IO_FULL10		= 61,	/* hundredths of a percent */
	TASK_DIAG_CGM_IO_FULL		= 62,	/* ns */
	TASK_DIAG_CGM_ALL_PROCS		= 63,	/* processes in it and below */
	TASK_DIAG_CGM_ALL_TASKS		= 64,	/* threads in it and below */
};

/* Why a group that was asked for is not there. */
enum task_diag_reason {
	TASK_DIAG_R_UNSUPPORTED	= 1,	/* the engine or kernel cannot tell */
	TASK_DIAG_R_DENIED	= 2,	/* the reader may not know */
	TASK_DIAG_R_VANISHED	= 3,	/* the task ended first */
	TASK_DIAG_R_BLOCKED	= 4,	/* would have waited for the task */
	TASK_DIAG_R_TRUNCATED	= 5,	/* did not fit */
	TASK_DIAG_R_ABSENT	= 6,	/* the task has none: kernel threads and zombies have no
					 * memory, and kernel threads have no exe */
	TASK_DIAG_R_OVER_BUDGET	= 7,	/* a limit in the request left it out */
	TASK_DIAG_R_STOPPED	= 8,	/* the reading of this group ended early, see DONE */
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
#define TASK_DIAG_BLOB_CUT	0x1	/* the rest of the value is left out */
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

/*
 * Lists: `count` entries of `size` bytes each, size a multiple of 8. A list
 * that is longer than TASK_DIAG_BLOB_MAX comes as several attributes of the
 * same type, in order; a list of none is one attribute with count 0. Bit i of
 * `valid` stands for the i-th member of each entry. Entries that are larger
 * than the reader knows are newer: read the known part of each.
 */
struct task_diag_array {
	struct nlattr nla;
	__u32 valid;
	__u32 size;
	__u32 count;
	/* entries follow */
};

/*
 * Names. A path or other name that many entries have is in the stream once, as
 * a TASK_DIAG_A_NAME blob among the attributes of some task, before or after
 * its uses. `kind` is its number, not 0 and the same through the whole stream;
 * two numbers may stand for equal names. The high 4 bits of a number tell
 * engines apart (1 kernel, 2 bpf, 3 procfs), so that streams can be joined.
 * TASK_DIAG_BLOB_DELETED: no longer in the directory tree.
 */

/*
 * The group's value is among the attributes of another task in this stream,
 * because the two share memory (VMA, VMA_STAT, ROLLUP, SWAP) or a file table
 * (FD, FD_COUNT).
 */
struct task_diag_shared {
	struct nlattr nla;
	__u32 group;	/* enum task_diag_group */
	__u32 pid;	/* of the message that has the value */
	__u32 reserved;
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
	char  comm[16];		/* as in /proc/PID/comm, ended by NUL and filled with NULs. Kernel
				 * threads may have a longer name: the first 15 bytes of it, and
				 * all in TASK_DIAG_A_COMM */
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
	__u64 guest_ns;		/* of utime_ns, for virtual processors (KVM) */
	__u64 cguest_ns;
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
	__u64 hugetlb_bytes;	/* pages of hugetlbfs, which rss_bytes does not count */
};

/* PATHS: blobs of this type, one of each kind. /proc/PID/{exe,cwd,root} */
enum task_diag_path {
	TASK_DIAG_PATH_EXE	= 0,
	TASK_DIAG_PATH_CWD	= 1,
	TASK_DIAG_PATH_ROOT	= 2,
};

/*
 * FILE_STAT: the files that a task uses without a descriptor, as a list of this
 * type: those of PATHS that it has, and mapped files if VMA is asked for, too. A
 * mapped file is in the stream once (or a few times), and dev and inode identify
 * it. stat(2) of /proc/PID/{exe,cwd,root} and map_files
 */
enum task_diag_file_use {
	TASK_DIAG_USE_EXE	= 0,
	TASK_DIAG_USE_CWD	= 1,
	TASK_DIAG_USE_ROOT	= 2,
	TASK_DIAG_USE_MAPPED	= 3,
};

struct task_diag_file_stat {
	__u32 as;		/* enum task_diag_file_use */
	__u32 dev;		/* new_encode_dev() of the file system; of VMA for a mapped file */
	__u64 inode;
	__u64 size_bytes;
	__u32 mode;		/* S_IF* and permissions, as in st_mode */
	__u32 nlink;
	__u32 mnt_id;		/* as in /proc/PID/mountinfo */
	__u32 rdev;		/* of a device file, else 0 */
	__u32 stat_dev;		/* st_dev of stat(2), which differs from dev for
				 * mapped files of btrfs and some overlays */
	__u32 reserved;
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
	__u64 run_delay_ns;	/* ready, waiting for a CPU; never of threads that have ended */
	__u64 timeslices;	/* never of threads that have ended */
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

/*
 * VMA: its memory mappings, as a list of this type. /proc/PID/maps
 */
#define TASK_DIAG_VMA_READ	0x1
#define TASK_DIAG_VMA_WRITE	0x2
#define TASK_DIAG_VMA_EXEC	0x4
#define TASK_DIAG_VMA_SHARED	0x8	/* may be shared: `s` in /proc/PID/maps */

/* VmFlags of /proc/PID/smaps */
#define TASK_DIAG_VMAF_GROWSDOWN	0x1	/* gd */
#define TASK_DIAG_VMAF_PFNMAP		0x2	/* pf */
#define TASK_DIAG_VMAF_LOCKED		0x4	/* lo */
#define TASK_DIAG_VMAF_IO		0x8	/* io */
#define TASK_DIAG_VMAF_SEQ_READ		0x10	/* sr */
#define TASK_DIAG_VMAF_RAND_READ	0x20	/* rr */
#define TASK_DIAG_VMAF_DONTCOPY		0x40	/* dc */
#define TASK_DIAG_VMAF_DONTEXPAND	0x80	/* de */
#define TASK_DIAG_VMAF_ACCOUNT		0x100	/* ac */
#define TASK_DIAG_VMAF_NORESERVE	0x200	/* nr */
#define TASK_DIAG_VMAF_HUGETLB		0x400	/* ht */
#define TASK_DIAG_VMAF_SYNC		0x800	/* sf */
#define TASK_DIAG_VMAF_WIPEONFORK	0x1000	/* wf */
#define TASK_DIAG_VMAF_DONTDUMP		0x2000	/* dd */
#define TASK_DIAG_VMAF_SOFTDIRTY	0x4000	/* sd */
#define TASK_DIAG_VMAF_MIXEDMAP		0x8000	/* mm */
#define TASK_DIAG_VMAF_HUGEPAGE		0x10000	/* hg */
#define TASK_DIAG_VMAF_NOHUGEPAGE	0x20000	/* nh */
#define TASK_DIAG_VMAF_MERGEABLE	0x40000	/* mg */
#define TASK_DIAG_VMAF_UFFD_MISSING	0x80000	/* um */
#define TASK_DIAG_VMAF_UFFD_WP		0x100000 /* uw */
#define TASK_DIAG_VMAF_UFFD_MINOR	0x200000 /* ui */
#define TASK_DIAG_VMAF_SEALED		0x400000 /* sl */
#define TASK_DIAG_VMAF_LOCKONFAULT	0x800000 /* lf; not in /proc */

enum task_diag_vma_kind {
	TASK_DIAG_VMA_ANON	= 0,	/* anonymous memory, without a name */
	TASK_DIAG_VMA_FILE	= 1,	/* of a file, the name is its path; also /memfd:..., /SYSV...,
					 * /dev/zero and [anon_shmem:...] */
	TASK_DIAG_VMA_HEAP	= 2,	/* [heap] */
	TASK_DIAG_VMA_STACK	= 3,	/* [stack] */
	TASK_DIAG_VMA_VDSO	= 4,	/* [vdso] */
	TASK_DIAG_VMA_NAMED	= 5,	/* anonymous: name is what prctl(PR_SET_VMA_ANON_NAME) gave it */
	TASK_DIAG_VMA_SPECIAL	= 6,	/* the kernel's own: name is as in /proc, with its brackets */
};

struct task_diag_vma {
	__u64 start;		/* first address */
	__u64 end;		/* first address after it */
	__u64 offset_bytes;	/* of start in the file */
	__u64 inode;		/* 0 without a file */
	__u32 dev;		/* new_encode_dev() of the file system */
	__u32 name;		/* number of a TASK_DIAG_A_NAME, 0: none */
	__u32 perms;		/* TASK_DIAG_VMA_* */
	__u32 flags;		/* TASK_DIAG_VMAF_* */
	__u32 kind;		/* enum task_diag_vma_kind */
	__u32 reserved;
};

/*
 * VMA_STAT: how much of each mapping is in memory, as a list of this type in the
 * order of addresses; ROLLUP: the sums over all mappings of the process.
 * /proc/PID/smaps, /proc/PID/smaps_rollup. All in bytes.
 */
struct task_diag_vma_stat {
	__u64 start;
	__u64 end;
	__u64 rss_bytes;
	__u64 pss_bytes;	/* each page divided by how many map it */
	__u64 pss_dirty_bytes;
	__u64 pss_anon_bytes;
	__u64 pss_file_bytes;
	__u64 pss_shmem_bytes;
	__u64 shared_clean_bytes;
	__u64 shared_dirty_bytes;
	__u64 private_clean_bytes;
	__u64 private_dirty_bytes;
	__u64 referenced_bytes;
	__u64 anonymous_bytes;
	__u64 ksm_bytes;
	__u64 lazyfree_bytes;
	__u64 anon_huge_bytes;
	__u64 shmem_huge_bytes;	/* ShmemPmdMapped */
	__u64 file_huge_bytes;	/* FilePmdMapped */
	__u64 shared_hugetlb_bytes;
	__u64 private_hugetlb_bytes;
	__u64 swap_bytes;
	__u64 swap_pss_bytes;
	__u64 locked_bytes;
	__u64 thp_eligible;	/* 1: it may have huge pages */
	__u64 protection_key;	/* pkeys(7); not known if the processor has no keys */
};

struct task_diag_rollup {
	struct nlattr nla;
	__u32 valid;
	__u64 rss_bytes;
	__u64 pss_bytes;	/* each page divided by how many map it */
	__u64 pss_dirty_bytes;
	__u64 pss_anon_bytes;	/* this and the next two: since Linux 5.14 */
	__u64 pss_file_bytes;
	__u64 pss_shmem_bytes;
	__u64 shared_clean_bytes;
	__u64 shared_dirty_bytes;
	__u64 private_clean_bytes;
	__u64 private_dirty_bytes;
	__u64 referenced_bytes;
	__u64 anonymous_bytes;
	__u64 ksm_bytes;
	__u64 lazyfree_bytes;
	__u64 anon_huge_bytes;
	__u64 shmem_huge_bytes;	/* ShmemPmdMapped */
	__u64 file_huge_bytes;	/* FilePmdMapped */
	__u64 shared_hugetlb_bytes;
	__u64 private_hugetlb_bytes;
	__u64 swap_bytes;
	__u64 swap_pss_bytes;
	__u64 locked_bytes;
};

/*
 * SWAP: how much of the process is swapped out, without a walk over its pages.
 * VmSwap of /proc/PID/status, and the swapped pages of the shared memory
 * objects that it maps, each within the mapped range. A page of a private
 * mapping that was written to is counted in anon_bytes, and not again if the
 * object has the same page in swap. If the engine cannot tell these apart,
 * shmem_bytes is too large by private_shmem_bytes at most.
 */
struct task_diag_swap {
	struct nlattr nla;
	__u32 valid;
	__u64 anon_bytes;
	__u64 shmem_bytes;
	__u64 private_shmem_bytes;
};

/* FD_COUNT: how many files are open. */
struct task_diag_fd_count {
	struct nlattr nla;
	__u32 valid;
	__u32 open;		/* open file descriptors */
	__u32 size;		/* of the table (FDSize of /proc/PID/status) */
};

/* FD: open files, as a list of this type in the order of fd. /proc/PID/{fd,fdinfo} */
enum task_diag_fd_type {
	TASK_DIAG_FD_OTHER	= 0,	/* an anonymous inode: name says which, as in /proc */
	TASK_DIAG_FD_REG	= 1,
	TASK_DIAG_FD_DIR	= 2,
	TASK_DIAG_FD_CHR	= 3,
	TASK_DIAG_FD_BLK	= 4,
	TASK_DIAG_FD_FIFO	= 5,	/* a named pipe */
	TASK_DIAG_FD_LNK	= 6,	/* a symbolic link, opened with O_PATH */
	TASK_DIAG_FD_SOCKET	= 7,	/* see struct task_diag_socket; also of a path, with O_PATH */
	TASK_DIAG_FD_PIPE	= 8,
	TASK_DIAG_FD_EVENTFD	= 9,
	TASK_DIAG_FD_EPOLL	= 10,
	TASK_DIAG_FD_TIMERFD	= 11,
	TASK_DIAG_FD_SIGNALFD	= 12,
	TASK_DIAG_FD_INOTIFY	= 13,
	TASK_DIAG_FD_FANOTIFY	= 14,
	TASK_DIAG_FD_PIDFD	= 15,
	TASK_DIAG_FD_MEMFD	= 16,	/* name: /memfd:NAME */
	TASK_DIAG_FD_IO_URING	= 17,
	TASK_DIAG_FD_BPF_MAP	= 18,
	TASK_DIAG_FD_BPF_PROG	= 19,
	TASK_DIAG_FD_BPF_LINK	= 20,
	TASK_DIAG_FD_USERFAULTFD = 21,
	TASK_DIAG_FD_PERF_EVENT	= 22,
	TASK_DIAG_FD_NS		= 23,	/* a namespace: name as in /proc, "net:[4026531840]" */
	TASK_DIAG_FD_MQUEUE	= 24,	/* a POSIX message queue */
};

struct task_diag_fd {
	__u32 fd;
	__u32 type;		/* enum task_diag_fd_type */
	__u64 pos_bytes;
	__u64 inode;
	__u32 dev;		/* new_encode_dev() of the file system */
	__u32 rdev;		/* of a device file, else 0 */
	__u32 flags;		/* O_*, O_CLOEXEC of the descriptor included */
	__u32 mode;		/* S_IF* and permissions, as in st_mode */
	__u32 mnt_id;		/* as in /proc/PID/mountinfo */
	__u32 name;		/* number of a TASK_DIAG_A_NAME, 0: none (sockets, pipes, and
				 * anonymous inodes that have a type of their own) */
	__u64 size_bytes;	/* of the file */
	__u32 nlink;
	__u32 reserved;
};

/* One open socket. Which members have a meaning depends on the family. */
struct task_diag_socket {
	__u64 inode;		/* as in struct task_diag_fd */
	__u32 fd;
	__u32 netns;		/* inode number of its network namespace */
	__u16 family;		/* AF_* */
	__u16 type;		/* SOCK_* */
	__u16 protocol;		/* IPPROTO_*, NETLINK_*; of AF_PACKET the ethertype */
	__u16 state;		/* TCP_*; for AF_UNIX, too: 1 connected, 7 unconnected, 10 listening */
	__u16 local_port;	/* AF_INET, AF_INET6; host byte order */
	__u16 peer_port;
	__u32 ifindex;		/* of a bound interface (SO_BINDTODEVICE, AF_PACKET), or 0 */
	__u8  local_addr[16];	/* AF_INET: the first 4 bytes; network byte order */
	__u8  peer_addr[16];
	__u64 peer_inode;	/* AF_UNIX: inode of the socket at the other end, or 0 */
	__u32 name;		/* AF_UNIX: path, or '@' and an abstract name */
	__u32 portid;		/* AF_NETLINK */
	__u64 recv_queue_bytes;
	__u64 send_queue_bytes;
};

/* What a descriptor of one kind has; a descriptor may have several of these, or none. */
enum task_diag_fd_detail_kind {
	TASK_DIAG_FDD_EVENTFD	= 1,	/* counter, id */
	TASK_DIAG_FDD_EPOLL	= 2,	/* a target: its fd, events, data, inode, dev */
	TASK_DIAG_FDD_TIMERFD	= 3,	/* clock, ticks, TFD_* flags, ns to expiration, interval ns */
	TASK_DIAG_FDD_SIGNALFD	= 4,	/* signal mask */
	TASK_DIAG_FDD_INOTIFY	= 5,	/* a watch: wd, inode, dev, mask */
	TASK_DIAG_FDD_PIDFD	= 6,	/* pid (0: not visible; all ones: has ended) */
	TASK_DIAG_FDD_BPF_MAP	= 7,	/* id, BPF_MAP_TYPE_*, max entries, memory in bytes (all
					 * ones: not known) */
	TASK_DIAG_FDD_BPF_PROG	= 8,	/* id, BPF_PROG_TYPE_*, memory in bytes */
	TASK_DIAG_FDD_BPF_LINK	= 9,	/* id, BPF_LINK_TYPE_*, id of the program */
	TASK_DIAG_FDD_IO_URING	= 10,	/* submission queue entries, completion queue entries */
};

struct task_diag_fd_detail {
	__u32 fd;
	__u32 kind;		/* enum task_diag_fd_detail_kind */
	__u64 value[5];		/* in the order of the kind's comment */
};

/*
 * NET: the traffic of its open sockets, as a list of this type in the order of
 * fd. drops is known for every family, and the other members for TCP. Multipath
 * TCP has only those in bytes, which count for the connection and not for a
 * subflow. UDP and raw sockets have no counters of bytes.
 * sock_diag(7): struct tcp_info, struct mptcp_info, SK_MEMINFO_DROPS
 */
struct task_diag_net {
	__u64 inode;		/* as in struct task_diag_fd */
	__u64 sent_bytes;	/* of data, including data that was sent again */
	__u64 acked_bytes;	/* the first packet of a connection counts as one */
	__u64 received_bytes;
	__u64 retrans_bytes;	/* sent again */
	__u64 rtt_ns;		/* smoothed; not known before the first measurement */
	__u64 rtt_var_ns;
	__u64 since_sent_ns;	/* since data was last sent, or since the connection was made */
	__u64 since_received_ns;
	__u32 fd;
	__u32 drops;		/* received packets that were thrown away for lack of room */
	__u32 sent_segs;
	__u32 received_segs;
	__u32 retrans_segs;
	__u32 cwnd_segs;	/* the congestion window */
	__u8  congestion[16];	/* name of the algorithm for it */
	__u16 family;		/* as in struct task_diag_socket */
	__u16 protocol;
	__u32 reserved;
};

/*
 * GPU: the use of graphics processors by its open descriptors of DRM devices, as
 * a list of this type in the order of fd. A client has an entry for each engine
 * and each memory region; dev and client identify it. Several descriptors may
 * belong to one client, also those of different tasks, and each task lists it
 * once. A driver without these counters has one entry, with fd and dev. An
 * engine has busy_ns, or cycles and total_cycles; a region has the sizes.
 * drm-* of /proc/PID/fdinfo, Documentation/gpu/drm-usage-stats.rst
 */
struct task_diag_gpu {
	__u64 client;		/* drm-client-id */
	__u32 fd;
	__u32 dev;		/* new_encode_dev() of the device file */
	__u64 busy_ns;		/* of the engine, for this client */
	__u64 cycles;		/* of the engine's clock in which it was busy */
	__u64 total_cycles;	/* of this clock */
	__u64 total_bytes;	/* of buffers in the region, in memory or not */
	__u64 resident_bytes;
	__u64 shared_bytes;	/* of buffers that others have, too */
	__u32 capacity;		/* how many engines have this name */
	char  driver[20];	/* names are filled with NULs, and cut at 19, 19 and 15 bytes */
	char  pdev[20];		/* address on the bus */
	char  name[16];		/* of the engine or the region */
	__u32 reserved;
};

/* LIMITS: by number of RLIMIT_*; all ones: unlimited. /proc/PID/limits */
struct task_diag_limits {
	struct nlattr nla;
	__u32 valid;
	__u64 soft[16];
	__u64 hard[16];
};

/* SIGNALS: bit n-1 stands for signal n. /proc/PID/status */
struct task_diag_signals {
	struct nlattr nla;
	__u32 valid;
	__u64 pending;		/* for the thread (SigPnd) */
	__u64 shared_pending;	/* for the process (ShdPnd) */
	__u64 blocked;
	__u64 ignored;
	__u64 caught;
	__u32 queued;		/* signals queued for the real uid (SigQ) */
	__u32 reserved;
};

/* WCHAN: a blob, the kernel function it sleeps in; empty: it runs. /proc/PID/wchan */
/* KSTACK: a blob, its kernel stack, a frame a line. /proc/PID/stack */

/* OOM: how soon it is killed when memory runs out. /proc/PID/{oom_score,oom_score_adj} */
struct task_diag_oom {
	struct nlattr nla;
	__u32 valid;
	__u32 score;		/* the kernel's: 0 to 2000, the highest is killed first */
	__s32 score_adj;	/* the user's: -1000 (never) to 1000 */
};

/*
 * LABEL: a blob, what the security module (SELinux, AppArmor, Smack) calls the
 * task's domain, without a newline or NUL at its end. /proc/PID/attr/current
 */

/* AUTOGROUP: with which others it gets its share of CPU time. /proc/PID/autogroup */
struct task_diag_autogroup {
	struct nlattr nla;
	__u32 valid;
	__u64 id;
	__s32 nice;		/* of the group */
	__u32 reserved;
};

/*
 * LOGIN: the user who logged in, and the audit session, whatever ids the task
 * has taken on since. All ones: it began without a login.
 * /proc/PID/{loginuid,sessionid}
 */
struct task_diag_login {
	struct nlattr nla;
	__u32 valid;
	__u32 uid;
	__u32 session;
};

/*
 * LAYOUT: addresses in its memory. /proc/PID/stat, which shows them only to
 * readers that may trace the task
 */
struct task_diag_layout {
	struct nlattr nla;
	__u32 valid;
	__u64 start_code;	/* of the program's code */
	__u64 end_code;
	__u64 start_stack;	/* where the first thread's stack began */
};

/*
 * WAIT: what a thread waits for, since when, and who keeps it waiting. For a
 * process, the first thread counts. /proc/PID/task/TID/{syscall,wchan,sched}
 */
enum task_diag_wait_kind {
	TASK_DIAG_WAIT_OTHER		= 0,	/* none of those below; `function` has its name */
	TASK_DIAG_WAIT_RUNNABLE		= 1,	/* on a CPU, or waits for one: /proc cannot tell */
	TASK_DIAG_WAIT_ON_CPU		= 2,
	TASK_DIAG_WAIT_CPU		= 3,	/* ready, waits for a CPU */
	TASK_DIAG_WAIT_ENDED		= 4,	/* a zombie: waits for its parent */
	TASK_DIAG_WAIT_IDLE		= 5,	/* a kernel thread without work */
	TASK_DIAG_WAIT_MUTEX		= 6,	/* of the kernel, as are the next four */
	TASK_DIAG_WAIT_RWSEM_READ	= 7,
	TASK_DIAG_WAIT_RWSEM_WRITE	= 8,
	TASK_DIAG_WAIT_SEMAPHORE	= 9,
	TASK_DIAG_WAIT_RT_MUTEX		= 10,
	TASK_DIAG_WAIT_FUTEX		= 11,	/* for what is not known: a lock, a condition, a thread */
	TASK_DIAG_WAIT_FUTEX_LOCK	= 12,
	TASK_DIAG_WAIT_FUTEX_CONDITION	= 13,
	TASK_DIAG_WAIT_FUTEX_PI		= 14,	/* a lock with priority inheritance */
	TASK_DIAG_WAIT_POSIX_LOCK	= 15,	/* of a file, fcntl(2), of a process */
	TASK_DIAG_WAIT_OFD_LOCK		= 16,	/* the same, of an open file */
	TASK_DIAG_WAIT_FLOCK		= 17,
	TASK_DIAG_WAIT_LEASE		= 18,	/* for the holder of a lease to give it up */
	TASK_DIAG_WAIT_PIPE_READ	= 19,	/* also of a FIFO */
	TASK_DIAG_WAIT_PIPE_WRITE	= 20,
	TASK_DIAG_WAIT_FIFO_OPEN	= 21,	/* for the other end */
	TASK_DIAG_WAIT_TTY_READ		= 22,
	TASK_DIAG_WAIT_TTY_WRITE	= 23,
	TASK_DIAG_WAIT_ACCEPT		= 24,	/* of a socket, as are the next three */
	TASK_DIAG_WAIT_CONNECT		= 25,
	TASK_DIAG_WAIT_RECEIVE		= 26,
	TASK_DIAG_WAIT_SEND		= 27,
	TASK_DIAG_WAIT_EPOLL		= 28,
	TASK_DIAG_WAIT_POLL		= 29,
	TASK_DIAG_WAIT_SELECT		= 30,
	TASK_DIAG_WAIT_EVENTFD		= 31,
	TASK_DIAG_WAIT_INOTIFY		= 32,	/* also of fanotify */
	TASK_DIAG_WAIT_SIGNALFD		= 33,
	TASK_DIAG_WAIT_TIMERFD		= 34,
	TASK_DIAG_WAIT_PIDFD		= 35,
	TASK_DIAG_WAIT_PAGE_IO		= 36,	/* a page of a file that is read or written */
	TASK_DIAG_WAIT_BLOCK_IO		= 37,	/* a block device */
	TASK_DIAG_WAIT_WRITEBACK	= 38,
	TASK_DIAG_WAIT_JOURNAL		= 39,	/* of a file system */
	TASK_DIAG_WAIT_FUSE		= 40,	/* the server of a FUSE file system */
	TASK_DIAG_WAIT_NETFS		= 41,	/* a server of NFS, SMB or another such file system */
	TASK_DIAG_WAIT_PAGE_FAULT	= 42,
	TASK_DIAG_WAIT_USERFAULTFD	= 43,
	TASK_DIAG_WAIT_CHILD		= 44,	/* for a child to change its state */
	TASK_DIAG_WAIT_VFORK		= 45,	/* for a child to exec or end */
	TASK_DIAG_WAIT_STOPPED		= 46,	/* by a signal */
	TASK_DIAG_WAIT_TRACED		= 47,	/* by its tracer */
	TASK_DIAG_WAIT_SECCOMP		= 48,	/* for the listener of seccomp notifications */
	TASK_DIAG_WAIT_FROZEN		= 49,	/* with its cgroup */
	TASK_DIAG_WAIT_THROTTLED	= 50,	/* its cgroup has used up its CPU time */
	TASK_DIAG_WAIT_MEMORY_HIGH	= 51,	/* its cgroup is above memory.high */
	TASK_DIAG_WAIT_RECLAIM		= 52,	/* for memory to be freed */
	TASK_DIAG_WAIT_SLEEP		= 53,	/* until a time */
	TASK_DIAG_WAIT_SIGNAL		= 54,
	TASK_DIAG_WAIT_IO_URING		= 55,
	TASK_DIAG_WAIT_SYSV_SEM		= 56,
	TASK_DIAG_WAIT_SYSV_MSG		= 57,
	TASK_DIAG_WAIT_MQUEUE		= 58,
	TASK_DIAG_WAIT_READ		= 59,	/* of another file */
	TASK_DIAG_WAIT_WRITE		= 60,	/* of another file */
	TASK_DIAG_WAIT_COREDUMP		= 61,	/* for a core dump of its process */
};

/* How it is known when the task last ran. */
enum task_diag_ran_by {
	TASK_DIAG_RAN_NOW		= 0,	/* it runs */
	TASK_DIAG_RAN_EXEC_START	= 1,	/* se.exec_start, when it last left a CPU */
	TASK_DIAG_RAN_LAST_ARRIVAL	= 2,	/* sched_info.last_arrival and how long it ran then */
};

/* How it is known who has what the task waits for. */
enum task_diag_owner_how {
	TASK_DIAG_OWNER_NOT_LOOKED_UP	= 0,	/* nobody looked */
	TASK_DIAG_OWNER_NOT_KEPT	= 1,	/* nobody keeps an owner: a condition, a futex without one */
	TASK_DIAG_OWNER_NONE		= 2,	/* nobody has it at this moment */
	TASK_DIAG_OWNER_READERS		= 3,	/* readers have it, and nobody keeps which */
	TASK_DIAG_OWNER_LOCK		= 4,	/* the owner that the kernel's lock names */
	TASK_DIAG_OWNER_TRACER		= 5,
	TASK_DIAG_OWNER_CHILD		= 6,
	TASK_DIAG_OWNER_FUTEX_WORD	= 7,	/* the thread id in the futex */
	TASK_DIAG_OWNER_PTHREAD		= 8,	/* the owner that glibc's mutex names */
	TASK_DIAG_OWNER_FILE_LOCK	= 9,	/* /proc/locks */
	TASK_DIAG_OWNER_OTHER_END	= 10,	/* the only one who has the other end open */
};

#define TASK_DIAG_WAIT_UNINTERRUPTIBLE	0x1	/* signals do not end it, but those that kill may */
#define TASK_DIAG_WAIT_COMPAT		0x2	/* the system call is one of a 32-bit program */

struct task_diag_wait {
	struct nlattr nla;
	__u32 valid;
	__u32 kind;		/* enum task_diag_wait_kind */
	__u32 flags;		/* TASK_DIAG_WAIT_UNINTERRUPTIBLE and others */
	__u64 last_ran_ns;	/* since boot, as start_time_ns */
	__u64 ran_error_ns;	/* last_ran_ns is this much too early or too late at most */
	__u64 ready_ns;		/* since when it waits for a CPU, since boot */
	__u64 object;		/* the same number if two tasks wait for the same thing; no address */
	__u32 ran_by;		/* enum task_diag_ran_by */
	__u32 owner_how;	/* enum task_diag_owner_how */
	__u32 owner_tid;	/* who has it */
	__u32 owner_tgid;
	__s32 syscall_nr;	/* of the machine; -1: it is in none */
	__u8  state;		/* as in BASE, when this was read */
	__u8  reserved[3];
	__u64 args[6];		/* of the system call, as they are in the registers */
	__u64 user_sp;		/* stack and program of user space; 0: it has none */
	__u64 user_pc;
	char  function[40];	/* as WCHAN, at most 39 bytes and filled with NULs */
	__u64 switches;		/* how often it has left a CPU, if it sleeps; same number: same wait */
	__u64 user_fp;		/* frame pointer and link register of user space; not in /proc */
	__u64 user_lr;		/* arm64 only */
};

/*
 * DELAYS: how long the process or thread has waited since it began, as the
 * delay accounting of the kernel counts it: netlink TASKSTATS. Those of a
 * process are sums over its live threads. The kernel counts only for tasks that
 * began while kernel.task_delayacct was on. Other tasks have no DELAYS, and
 * neither has a process with such a thread. max_ns and min_ns have the order of
 * the times before them.
 */
struct task_diag_delays {
	struct nlattr nla;
	__u32 valid;
	__u64 cpu_ns;		/* ready, waiting for a CPU */
	__u64 io_ns;		/* block I/O that it waits for */
	__u64 swapin_ns;	/* pages to come from swap */
	__u64 reclaim_ns;	/* memory to be freed */
	__u64 thrashing_ns;	/* pages that were dropped a moment ago */
	__u64 compact_ns;	/* memory to be compacted */
	__u64 wpcopy_ns;	/* copies of pages, as after fork(2) */
	__u64 irq_ns;		/* interrupts that took its time */
	__u64 cpu_count;	/* how often */
	__u64 io_count;
	__u64 swapin_count;
	__u64 reclaim_count;
	__u64 thrashing_count;
	__u64 compact_count;
	__u64 wpcopy_count;
	__u64 irq_count;
	__u64 max_ns[8];	/* the longest delay of each kind */
	__u64 min_ns[8];	/* the shortest; 0: there was none */
};

/*
 * PIDFD: inode numbers of the pidfds of a task, since Linux 6.9. No other task
 * gets the same number before the next boot. pidfd_open(2), fstat(2)
 */
struct task_diag_pidfd {
	struct nlattr nla;
	__u32 valid;
	__u64 ino;		/* of the thread; for a process, the same as process_ino */
	__u64 process_ino;	/* of its process */
};

/* SETTINGS: what it has set for itself, or was set for it. ioprio_get(2), /proc/PID/status */
struct task_diag_settings {
	struct nlattr nla;
	__u32 valid;
	__u32 ioprio;		/* IOPRIO_PRIO_VALUE(); 0: none is set, and nice decides */
	__u32 umask;
	__u32 seccomp_filters;	/* how many */
	__u32 thp_enabled;	/* 0: no transparent huge pages, as by PR_SET_THP_DISABLE */
	__u32 coredumping;	/* 1: it is writing a core dump */
	__u32 reserved;
};

/* PERSONA: how the kernel treats it. /proc/PID/{personality,timerslack_ns} */
struct task_diag_persona {
	struct nlattr nla;
	__u32 valid;
	__u64 timer_slack_ns;
	__u32 personality;	/* PER_* and flags, see personality(2) */
	__u32 reserved;
};

/* CPUSET: a blob, the path of its cpuset. /proc/PID/cpuset */

/*
 * NS_ID: numbers of its namespaces, since Linux 6.18. No other namespace gets
 * the same number before the next boot. ioctl_nsfs(2), NS_GET_ID
 */
struct task_diag_ns_id {
	struct nlattr nla;
	__u32 valid;
	__u64 cgroup;
	__u64 ipc;
	__u64 mnt;
	__u64 net;
	__u64 pid;
	__u64 pid_for_children;
	__u64 time;
	__u64 time_for_children;
	__u64 user;
	__u64 uts;
};

#endif /* _UAPI_LINUX_TASK_DIAG_H */
