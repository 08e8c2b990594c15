/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the snapshot program and its user-space half (engine/bpf) share: the
 * request as read-only data, the state in .bss, the shape of the output.
 */
#ifndef TASKDIAG_SNAPSHOT_H
#define TASKDIAG_SNAPSHOT_H

/* One chunk of output: messages up to a bit over CHUNK_FULL, never past CHUNK_SIZE. The slack
 * lets the verifier see that an attribute that starts below CHUNK_SPAN fits. */
#define CHUNK_SPAN	(1u << 19)
#define CHUNK_SLACK	(48u << 10)
#define CHUNK_SIZE	(CHUNK_SPAN + CHUNK_SLACK)
/* A message or a value of variable length begins in the next chunk from here on: one such value
 * and the fixed groups of a task end below CHUNK_SPAN. */
#define CHUNK_FULL	(CHUNK_SPAN - (64u << 10))
#define CHUNKS_MAX	256
/* More chunks that a task may need before its command line, which can be resumed: for 65,536 gids
 * and for the paths of its cgroups, 256 KiB each at most. */
#define CHUNKS_RESERVE	2
#define CPUS_MAX	1024
#define HIERARCHIES_MAX	32
#define CONTROLLERS_MAX	128

/* .rodata: set before the load, so the verifier drops what was not asked for. */
struct config {
	__u64 groups;
	__u32 strategy;
	__u32 pid;
	__u32 nchunks;
	__u32 count_only;	/* walk and count, write nothing: the floor that bench compares with */
	__u32 page_shift;
	__u32 reserved;
};

/* "controllers:" of a hierarchy, as /proc/PID/cgroup has it; len 0: not known yet. */
struct hierarchy {
	__u32 len;
	__u32 reserved;
	char text[CONTROLLERS_MAX];
};

/* .bss, mapped by user space. */
struct state {
	/* out, read after each run */
	__u32 done;		/* all tasks are written */
	__u32 overflow;		/* the list of pids was too short: start again with a longer one */
	__u32 npids;		/* tasks found by the walk */
	__u32 cursor;		/* next of them to write */
	__u32 used[CHUNKS_MAX];	/* bytes written to each chunk */
	__u64 tasks;
	__u64 vanished;
	__u64 truncated;
	/* between runs: where the command line of task `cursor` goes on; 0: not begun */
	__u32 cmd_offset;
	__u32 cmd_total;
	/* scratch */
	/* where the next attribute goes; set by user space before each run */
	__u32 chunk;
	__u32 off;
	__u32 msg;		/* in the chunk: where the message began */
	__u32 nmissing;
	__u32 reason[32];	/* of each missing group */
	__u32 level;		/* of the reader's pid namespace */
	__u32 set_up;
	__u32 walked;
	__u32 ncpus;		/* possible */
	/* counters of loops: in memory, since the verifier follows a value in a register through
	 * every turn of the loop */
	__u32 n, len;
	__u32 nr, tgid;		/* of the open message */
	__u32 zero;		/* 0, which the verifier does not know */
	__u32 target;		/* tgid of the process asked about, in the initial namespace */
	__u64 node;		/* legacy: of the list of threads */
	__u64 task, arg;	/* what the global functions are about */
	__u64 ns;		/* the reader's pid namespace */
	__u64 ns_boottime_ns;	/* offset of the reader's time namespace */
	/* page tables: see usermem.h */
	__u64 direct_map;	/* where the kernel sees physical address 0; 0: not known */
	__u64 pt_top, pt_addr, pt_leaf, pt_phys;
	__u32 pt_shift;		/* of the top table: 39 or 48 */
	__u32 full;		/* the walk only lists from now on */
	__u64 cgroup_root;	/* kernfs node that is "/" to the reader */
	__u64 kn[32];		/* path of a cgroup, from the leaf up */
	/* sums over the threads of a process */
	__u64 utime, stime, runtime, min_flt, maj_flt, nvcsw, nivcsw, run_delay, pcount;
	__u64 io[7];
	__u64 cpu_offset[CPUS_MAX];
	struct hierarchy hierarchy[HIERARCHIES_MAX];
};

#endif
