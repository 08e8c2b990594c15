/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The interface of the snapshot program and its user-space half (engine/bpf): the
 * request as read-only data, the state in .bss, the shape of the output.
 */
#ifndef TASKDIAG_SNAPSHOT_H
#define TASKDIAG_SNAPSHOT_H

/* A chunk of output holds messages up to a bit over CHUNK_FULL, never past CHUNK_SIZE. The slack shows the verifier that
 * an attribute that starts below CHUNK_SPAN fits. */
#define CHUNK_SPAN	(1u << 19)
#define CHUNK_SLACK	(48u << 10)
#define CHUNK_SIZE	(CHUNK_SPAN + CHUNK_SLACK)
/* Past this offset, a message or a value of variable length begins in the next chunk. So one such value and the fixed
 * groups of a task end below CHUNK_SPAN. */
#define CHUNK_FULL	(CHUNK_SPAN - (64u << 10))
#define CHUNKS_MAX	256
/* How many more chunks a task may need before its command line (a later run can continue that): for 65,536 gids and
 * for the paths of its cgroups, each of at most 256 KiB. */
#define CHUNKS_RESERVE	2
#define GROUPS_MAX	64
#define CPUS_MAX	1024
#define HIERARCHIES_MAX	32
/* How many css_sets an answer remembers: a power of two. */
#define SETS_MAX	1024
#define CONTROLLERS_MAX	128
#define OFFSETS_MAX	320
#define OFFSET_NONE	0xffffu	/* the kernel has no such member */
/* How many components a path may have, how many mounts it may cross, and about how many bytes it may have. */
#define DEPTH_MAX	512
#define MOUNTS_DEEP_MAX	64
#define PATH_BYTES_MAX	7900
/* TEXT_SPAN is a power of two above the length of such a path with a last component. TEXT_SLACK is what one write may
 * add. */
#define TEXT_SPAN	8192
#define TEXT_SLACK	4096
/* The largest sizes of the tables of names and of shared objects. */
#define NAMES_MAX	32768
#define SHARED_MAX	16384

/* The number of users that are told apart when the room for text is divided: a power of two. */
#define USERS_MAX	256
/* A user who has had a share of the room gets this many bytes of each further text, and later this few. */
#define TEXT_SMALL	4096
#define TEXT_LEAST	256
/* After the share of lists and names, a user gets this many entries of each further list, and this many bytes of each name. */
#define LIST_LEAST	16
#define NAME_LEAST	128

/* Threads whose memory is loaded at a time (touch.h): a power of two, and not more than a node of the tree of numbers has. */
#define TOGETHER	16

/* The list of processes (ahead.h), and the lists of threads (touch.h). */
enum ahead_of { AHEAD_OF_PROCESSES = 1, AHEAD_OF_THREADS = 2 };

/* .rodata: set before the load, so that the verifier removes the code for groups that were not requested. */
struct config {
	__u64 groups;
	__u32 strategy;
	__u32 pid;
	__u32 nchunks;
	__u32 count_only;	/* walk and count but write nothing: the least time that bench compares with */
	__u32 page_shift;
	__u32 gate_perms;
	/* members that need not be written, as in struct task_diag_req */
	__u32 skip_base;
	__u32 skip_stat;
	/* chunks to keep free for a task that is begun, at most CHUNKS_RESERVE */
	__u32 reserve;
	/* Is the reader in the initial pid namespace? Then the numbers in the task itself are right. */
	__u32 first_ns;
	/* sizes of the tables of names, of shared objects, and of tasks that were seen. They are powers of two, minus one. */
	__u32 names_mask;
	__u32 shared_mask;
	__u32 seen_mask;
	/* The tasks whose memory is loaded early, which pays for long lists (enum ahead_of). */
	__u32 ahead;
	/* members of STATM and CRED that need not be written */
	__u32 skip_statm;
	__u32 skip_cred;
	/* A run ends after this time to give the CPU back, and the next one continues where it ended. */
	__u64 slice_ns;
	/* Where the machine's memory ends (a physical address; 0: page tables are not read), and the
	 * bits of a page table entry that are an address. */
	__u64 ram_end;
	__u64 pte_address;
	/* the mapping at a kernel address that all processes have ([vsyscall]), or 0 if there is none */
	__u64 gate_start;
	__u64 gate_end;
	/* The limit in bytes for one text (CMDLINE, ENVIRON) of a task, and about the limit for all texts: see room.h. */
	__u64 text_total;
	/* about the limit for all lists (VMA, FD) with their names, and for all paths */
	__u64 list_total;
	__u32 text_max;
	/* Must the processor be kept from reordering loads (order())? */
	__u32 orders_loads;
	/* Are cgroup paths left out if they are the root of a version 1 hierarchy? */
	__u32 skip_cgroup_roots;
	__u32 jiffy_ns;		/* how long a tick of the kernel is */
	/* How many numbers processors and NUMA nodes may have. 0: that is not known. */
	__u32 cpus, nodes;
	__u32 has_thp;		/* Is it certain that the kernel has transparent huge pages? */
	__u32 short_workers;	/* Does /proc show the first 15 bytes of a worker's name only? */
	/* formats for bpf_snprintf(), which accepts them only from read-only memory */
	char frame_format[16];
	char symbol_format[8];
	char number_format[8];
	__u16 offsets[OFFSETS_MAX];	/* in the order of offsets.h */
};

/* "controllers:" of a hierarchy, as in /proc/PID/cgroup. A len of 0 means that it is not known yet. */
struct hierarchy {
	__u32 len;
	__u32 reserved;
	char text[CONTROLLERS_MAX];
};

/* The place of the cgroups of a css_set in a message. Tasks with the same cgroups have the same css_set. */
struct written_set {
	__u64 set;
	__u64 ids;		/* of the cgroups, mixed */
	__u32 made;		/* the run that wrote the message */
	__u32 slice;		/* the run that last compared the ids */
	__u32 chunk, off, len;
	__u32 reserved;
};

/* A task that the walk will come to: see ahead.h. */
struct ahead {
	__u64 task, mm, signal, cred, counters, table, address;
};

/* Bytes that were written: all of them, and those of the users with the same place. */
struct room {
	__u64 used;
	__u64 used_by[USERS_MAX];
};

/* .bss. User space maps its first page. */
struct state {
	/* results, which user space reads after each run */
	__u32 done;		/* all tasks are written */
	__u32 overflow;		/* `seen` was too short, so user space starts again with a longer one */
	__u32 nseen;		/* tasks before the place of the walk */
	__u32 full;		/* the output has no room for the next task */
	__u32 used[CHUNKS_MAX];	/* bytes written to each chunk */
	__u64 tasks;
	__u64 vanished;
	__u64 truncated;
	__u64 blocked;
	__u32 counted;		/* tasks that the walk has met */
	__u32 target;		/* tgid of the process asked about, in the initial namespace */
	/* the next part of the task that is begun (enum part), or 0 if none is begun */
	__u32 part;
	/* set by user space before a run */
	__u32 stop;		/* end after the task that is begun */
	__u32 chunk, off;	/* where the next attribute goes */
	__u32 walking;		/* the first run is over, or the legacy program knows its target */
	/* Number of this run. If a program stays loaded for the next answer, the number keeps growing, and user space
	 * clears everything else. */
	__u32 slice;
	__u64 own;		/* where user space has mapped this state */
	/* The processes that are written, by their ids in the reader's pid namespace: a program that stays loaded may write a long
	 * list in parts. */
	__u32 first, last;
	/* from here on, only the programs use the members */
	__u32 reached;		/* the largest nseen of this answer */
	__u32 first_slice;	/* of this answer; table entries of earlier runs belong to earlier answers */
	__u32 part_begun;
	/* where the command line or environment of the task continues, and how long it was at first */
	__u32 cmd_offset, cmd_total;
	__u32 cmd_limit;	/* how many bytes of it are written */
	__u32 is_cut;		/* a value of the current task is longer than what is written of it */
	__u32 msg;		/* where the message begins in the chunk */
	__u32 nmissing;
	__u32 reason[GROUPS_MAX]; /* of each missing group */
	__u32 level;		/* of the reader's pid namespace */
	__u32 set_up;
	__u32 ncpus;		/* possible */
	/* Counters of loops. They are in memory, because the verifier follows a value in a register through every turn
	 * of the loop. */
	__u32 n, len, count, count_reserved;
	__u32 nr, tgid;		/* of the open message */
	__u32 late;		/* the time of this run is over */
	__u32 work;		/* work since the clock was last read */
	__u32 pid;		/* of the task that see_ids() saw last, in the initial namespace */
	__u32 is_blocked;	/* a value of the current task could not be read without waiting */
	/* The time of this run was over, so a path is left to the next run, which makes it to the end, whatever it takes (names.h).
	 * The first is also set if the marks of an inotify file are left to the next run. */
	__u32 path_late, path_patient;
	__u32 path_tries, path_steady;
	/* the name that was written last, until its owner is known to be still there: its slot plus one, and where it begins in
	 * the chunk */
	__u32 new_name, new_name_off;
	__u64 begun;		/* when this run began, on the monotonic clock */
	__u64 mm_exec;		/* self_exec_id of the task when its mm was found */
	__u64 fence;		/* see order() */
	__u64 node;		/* a node of the list of threads */
	__u64 thread_head;	/* the end of the list that the walk is in, or 0 before its first step in this run */
	__s64 rss;		/* legacy: the sum of a counter */
	__u64 task, arg;	/* arguments of the global functions */
	__u64 found;		/* an address that one of them returns */
	__u64 own_task;		/* the task before to_memory(), which from_memory() restores */
	__u64 walk;		/* the next task of the walk; only valid during a run */
	__u64 deadline;		/* of this run, on the monotonic clock */
	__u64 begin;		/* when the walk began, on the boot clock */
	/* identity of the task that is begun, which continues only if all of this is unchanged */
	__u64 part_start, part_exec, part_object;
	/* the sum over its threads: the last thread in it, how often it began again, and whether it was abandoned */
	__u64 sum_start;
	__u32 sum_tid, sum_again, sum_seq, sum_lost;
	__u64 ns;		/* the reader's pid namespace */
	__u64 ns_boottime_ns;	/* offset of the reader's time namespace */
	/* page tables: see usermem.h */
	__u64 direct_map;	/* where physical address 0 is in the kernel's direct map, or 0 if not known */
	__u64 pt_top, pt_addr, pt_leaf, pt_phys;
	__u32 pt_shift;		/* of the top table: 39 or 48 */
	__u32 five_levels;	/* try tables of five levels */
	/* the next processes, each at the step with its number, and the one that the next begins with: see ahead.h */
	struct ahead ahead[6];
	__u64 ahead_at;
	/* The next threads: what their struct pid has of each, and the struct pids of those after them. See touch.h. */
	__u64 links[TOGETHER], pids[TOGETHER];
	__u64 first_pid_ns;	/* the initial pid namespace */
	__u64 pid_leaf;		/* a node of the tree of its numbers */
	__u32 pid_leaf_of;	/* the numbers that it has: without their last bits */
	__u32 loaded;		/* the numbers before those whose threads are loaded: without their last bits */
	__u32 in_order, last_pid;
	__u64 kn[32];		/* path of a cgroup, from the leaf up */
	/* sums over the threads of a process */
	__u64 utime, stime, gtime, runtime, min_flt, maj_flt, nvcsw, nivcsw, run_delay, pcount;
	__u64 div_high, div_low, divisor, quotient;
	__u64 io[7];
	__u64 cpu_offset[CPUS_MAX];
	struct hierarchy hierarchy[HIERARCHIES_MAX];
	struct written_set sets[SETS_MAX];
	__u64 set;		/* the css_set of the task, as a number */
	__u64 set_ids;		/* the ids of its cgroups, mixed: see ids_of_set() */
	__u32 empty_slice;	/* the last run that began with empty chunks: those of earlier runs are gone */
	__u32 set_place;	/* its place in sets */
	/* lists, names and paths: raw.h, names.h */
	__u32 list, list_n, list_any, list_attr, list_valid;
	__u32 names;		/* written so far */
	__u32 slot;
	/* pid of the process whose threads are walked, as the reader sees it; 0: the next one begins. Legacy: the last pid
	 * that was listed. */
	__u32 process;
	__u64 key[4];
	__u64 root_mnt, root_dentry;
	__u64 path_mnt, path_dentry;
	__u64 up_mnt, up_dentry;
	__u64 chain;	/* a hash of the dentries of a path and their names */
	__u64 up[DEPTH_MAX];
	__u32 depth;
	__u32 number;
	char text[TEXT_SPAN + TEXT_SLACK] __attribute__((aligned(8)));
	/* mappings: vma.h */
	__u64 mm, address, brk, start_brk, start_stack;
	__u64 entry, tree_node, node_min, node_max;
	__u64 node_copy[32];
	__u32 leaf, leaf_end, slot_next, i;
	__u32 torn, walk_torn, walk_done, gate_name, gone, reserved_vma;
	__u64 file, file_inode;
	__u32 file_dev, file_name, file_stat_dev, reserved_file;
	__u64 vma[32];
	__u64 warm;
	/* waits: wait.h */
	__u64 sched_begin;	/* the scheduler's clock when the walk began */
	__u64 wait_switches, regs;
	/* delays: delays.h. The thread that is added, and whether a thread has no delays */
	__u64 delay_task, delay_ns[8], delay_count[8], delay_max[8], delay_min[8];
	__u32 delays_lack, delays_known;
	/* signals: state.h */
	__u64 ignored, caught;
	/* An entry of a list while it is made. It is not on the stack, because the verifier follows the values there, and would
	 * go through the end of a function once for each way on which they differ. */
	__u64 made[16];
	/* open files: files.h */
	__u64 files, fdt, open, cloexec, inode, sockets, others, detail_node, detail_file;
	__u32 detail_done, detail_fd;
	__u32 skip_tries, skip_reserved;	/* how often the marks of an inotify file were skipped in vain */
	__u32 fd_base, word_loaded, word_begun, fd;
	/* the bytes that users have had: see room.h */
	struct room texts, lists;
	__u32 place;		/* of the user of the current task */
	__u32 list_count;	/* entries of the current list of that task, and whether it ended for lack of room */
	__u32 list_cut;
};

/* Where a task continues in a later run, in the order in which its parts are written. PART_SUM is the sum over
 * its threads, before anything is written. Everything between that and PART_PATHS is written at once. */
enum part { PART_NONE, PART_SUM, PART_PATHS, PART_CMDLINE, PART_ENVIRON, PART_VMA, PART_FD, PART_NET };

#endif
