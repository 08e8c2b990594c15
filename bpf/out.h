/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Functions for all groups to write their values: how kernel members are read, the
 * output and its messages, values of variable length, and ids as the reader
 * sees them.
 */
#ifndef TASKDIAG_OUT_H
#define TASKDIAG_OUT_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#define TASK_DIAG_NO_INCLUDES
#include "../uapi/task_diag.h"
#include "snapshot.h"
#include "members.h"

const volatile struct config cfg;
struct state st;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, 4);
	__uint(value_size, CHUNK_SIZE);
	__uint(max_entries, CHUNKS_MAX);
} out SEC(".maps");

/* A per-CPU object of ours. Its address on a CPU minus its per-CPU pointer is the offset of that CPU for every per-CPU
 * pointer. (The kernel's symbols for these offsets are hidden without CONFIG_KALLSYMS_ALL.) */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 8);
	__uint(max_entries, 1);
} per_cpu SEC(".maps");

/* Which groups this build has: members.h has the lists, made from the registry. */
#ifdef NO_RARE
#define LEFT_OUT_RARE RARE_GROUPS
#else
#define LEFT_OUT_RARE 0
#endif
#ifdef NO_MORE
#define LEFT_OUT_MORE MORE_GROUPS
#else
#define LEFT_OUT_MORE 0
#endif
#define BUILT_IN(group) (!((LEFT_OUT_RARE | LEFT_OUT_MORE) & 1ull << (group)))
#define WANT(group) (BUILT_IN(group) && (cfg.groups & (1ull << (group))))
#define IS_PROCESS (cfg.strategy != TASK_DIAG_DUMP_ALL_THREAD && cfg.strategy != TASK_DIAG_DUMP_THREAD)
/* `valid` of a record or list if every member is known. */
#define ALL_OF(record) ((1u << record##__COUNT) - 1)

/* Does the request want the member of BASE, CRED, STAT or STATM with this bit of `valid`? */
#define NEED_BASE(bit) (!(cfg.skip_base & 1u << (BASE_##bit)))
#define NEED_CRED(bit) (!(cfg.skip_cred & 1u << (CRED_##bit)))
#define NEED_STAT(bit) (WANT(TASK_DIAG_STAT) && !(cfg.skip_stat & 1u << (STAT_##bit)))
#define NEED_STATM(bit) (WANT(TASK_DIAG_STATM) && !(cfg.skip_statm & 1u << (STATM_##bit)))
#define NEED_TIME (NEED_STAT(UTIME_NS) || NEED_STAT(STIME_NS))
/* Does STAT of a thread need the signal_struct? */
#define NEED_SIGNAL (NEED_STAT(NUM_THREADS) || NEED_STAT(TTY_NR) || NEED_STAT(TTY_PGRP) ||			\
		     NEED_STAT(CMINFLT) || NEED_STAT(CMAJFLT) || NEED_STAT(CUTIME_NS) || NEED_STAT(CSTIME_NS) ||		\
		     NEED_STAT(CGUEST_NS))
/* A member that is not wanted is not read and stays zero. */
#define IF_BASE(bit, value) (NEED_BASE(bit) ? (value) : 0)
#define IF_CRED(bit, value) (NEED_CRED(bit) ? (value) : 0)
#define IF_STAT(bit, value) (NEED_STAT(bit) ? (value) : 0)
#define IF_STATM(bit, value) (NEED_STATM(bit) ? (value) : 0)

/*
 * R(p, member, ...) reads p->member->...; EACH() is a bounded loop; CAST() makes a pointer of a
 * number. LEGACY is for kernels before 6.8, see legacy.bpf.c.
 */
#ifdef LEGACY

#define CAST(type, p) ((type *)(p))
#define PLAIN(t) (t)
/* BPF_CORE_READ treats every access in its arguments as one to a kernel type. So the pointer goes into a variable first. */
#define R(p, ...) ({ typeof(p) p_ = (p); BPF_CORE_READ(p_, __VA_ARGS__); })
#define EACH(i, from, to, max) for (i = (from); i < (max) && i < (to); i++)

#else

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;
#define CAST(type, p) ((type *)bpf_rdonly_cast(p, bpf_core_type_id_kernel(type)))
/*
 * A task pointer that is not trusted, for reading only. For each pointer that is loaded through a trusted one, the
 * verifier searches all of the kernel's BTF by name to see whether that one is trusted too, about 1 ms each time. It
 * does not search for pointers that are loaded through an untrusted one.
 */
#define PLAIN(t) CAST(struct task_struct, t)
#define R(p, ...) ___arrow((p), __VA_ARGS__)
#define EACH(i, from, to, max) bpf_for(i, from, to)

#endif

/*
 * LOOP() and LONG_LOOP() call a STEP() for the numbers below n, until it returns 1. They are bpf_loop(), which the verifier goes
 * through once or twice. Linux has it since 5.17. So the program for older kernels has plain loops instead. The verifier follows each
 * turn of them, so they are short: LOOP() has at most TURNS_MAX turns. LONG_LOOP() calls a function for each TURNS_MAX turns, which
 * TURNS() makes and the verifier follows once. `max` is the constant that n does not exceed. STEP_OF() is a step
 * that is done by a global function, because the verifier follows that once, but a callback several times.
 */
enum { TURNS_MAX = 64 };

#ifdef LEGACY

/* The largest number of turns of a loop in a run. If the time of a run ends sooner, the next run does the rest. */
#define LEGACY_TURNS(newer) (1 << 12)
/* A function of its own would be one call too deep: the verifier allows eight. */
#define LIST_FN static __always_inline int
#define STEP(name, i) __weak __noinline int name(u32 i __attribute__((unused)))
#define STEP_OF(name, i, work) static __always_inline int name(u32 i) { (void)i; return work; }
/* Without the barrier, the compiler joins the two comparisons into one, which the verifier does not understand. */
#define LOOP(n, turn) ({									\
	u32 n_ = (n), i_;									\
	for (i_ = 0; i_ < TURNS_MAX; i_++) {							\
		barrier_var(n_);								\
		if (i_ >= n_ || turn(i_))							\
			break;									\
	}											\
	i_;											\
})
#define TURNS(turn)										\
__noinline int turn##_turns(u32 from, u32 n)							\
{												\
	u32 i;											\
												\
	for (i = 0; i < TURNS_MAX; i++) {							\
		barrier_var(n);									\
		if (from + i >= n || turn(from + i))						\
			return 1;								\
	}											\
	return 0;										\
}
#define LONG_LOOP(n, max, turn) ({								\
	u32 n_ = (n), from_;									\
	for (from_ = 0; from_ < (max); from_ += TURNS_MAX)					\
		if (turn##_turns(from_, n_))							\
			break;									\
})

#else

#define LEGACY_TURNS(newer) (newer)
#define LIST_FN GROUP_FN
#define STEP(name, i) static long name(u32 i __attribute__((unused)), void *unused __attribute__((unused)))
#define STEP_OF(name, i, work)									\
STEP(name, i)											\
{												\
	u32 done = work;									\
												\
	/* The compiler knows that this is 0 or 1 and would drop the mask, but the verifier needs it. */	\
	barrier_var(done);									\
	return done & 1;									\
}
#define TURNS(turn)
#define LOOP(n, turn) bpf_loop(n, turn, NULL, 0)
#define LONG_LOOP(n, max, turn) LOOP(n, turn)

#endif

/* The largest number of turns of a loop over the entries of a list. */
enum { LIST_TURNS = LEGACY_TURNS(1 << 22) };

/* The task of a list node, as a number. */
#define TASK_AT(node, member)									\
	((u64)(node) - __builtin_preserve_field_info(((struct task_struct *)0)->member, BPF_FIELD_BYTE_OFFSET))

/*
 * A global function. The verifier checks it once and by itself, so the states of one group do not multiply with those
 * of the next. Such a function takes only numbers. So the task is passed as a number, in st.task.
 */
#define GROUP_FN __noinline int
#define THIS CAST(struct task_struct, (void *)st.task)

/*
 * Loads before this are done before those after it, by the compiler and by the processor. x86-64 keeps loads in their order. On
 * another processor, an atomic instruction that returns the old value is a full barrier: the kernel's JIT makes one of it that
 * acquires and releases, or adds a dmb (docs/operate/safety.md). BPF has an instruction for this alone only since Linux 6.15.
 */
static __always_inline void order(void)
{
	u64 old;

	barrier();
	if (cfg.orders_loads) {
		old = __sync_fetch_and_add(&st.fence, 1);
		/* Without a use of the old value, it would be an instruction that orders nothing. */
		asm volatile("" : : "r"(old) : "memory");
	}
}

/*
 * Does the task still have the object that was found at this member? Pointers in an object that may be freed at any
 * time are followed only after this check. If it holds, the object was the task's own when the pointers were read, and what the
 * object held then is not freed before this run ends (see docs/operate/safety.md). The member is loaded after all that was loaded
 * before this in the source, and before all that is loaded after it. `make bpf-check` looks at the instructions.
 */
#ifdef LEGACY
#define LOAD_AGAIN(t, member) R(t, member)
#else
#define LOAD_AGAIN(t, member) (*(typeof((t)->member) volatile *)&(t)->member)
#endif
#define STILL(t, member, object) ({				\
	typeof(object) now_;					\
	GAP();							\
	now_ = LOAD_AGAIN(t, member);				\
	barrier();						\
	now_ == (object);					\
})

/*
 * A test build runs a loop between the load of a pointer and its use. The delay leaves as
 * much time for the object to be freed as a busy machine would. See tests/vm/README.md.
 */
#ifdef TASKDIAG_GAP
static u64 gap_sink;

static long gap_step(u32 i, void *unused)
{
	(void)i;
	(void)unused;
	*(volatile u64 *)&gap_sink = bpf_ktime_get_ns();
	return 0;
}
#define GAP() ({ bpf_loop(TASKDIAG_GAP, gap_step, NULL, 0); order(); })
#else
#define GAP() order()
#endif

/* The task has called exec since its mm was found, so another mm may be at the same address by now. */
static __always_inline bool same_exec(struct task_struct *t, u64 exec)
{
	order();
	return LOAD_AGAIN(t, self_exec_id) == exec;
}

/* ---- time ---- */

/*
 * A program runs as one read-side section of RCU, and on a kernel without preemption nothing else runs on its CPU
 * meanwhile. So each loop that may be long asks whether the time of the run is over. The run then ends, and the next
 * one continues where it was. `work` is in units of about 0.1 us; the clock is read once in 256 units.
 */
static __always_inline bool is_late(u32 work)
{
	st.work += work;
	if (st.work < 256)
		return st.late;
	st.work = 0;
	if (bpf_ktime_get_ns() > st.deadline)
		st.late = 1;
	return st.late;
}

static __always_inline void begin_run(void)
{
	st.begun = bpf_ktime_get_ns();
	st.deadline = st.begun + cfg.slice_ns;
	st.late = st.work = st.full = 0;
	st.thread_head = 0;
	st.slice++;
	if (!st.chunk && !st.off)
		st.empty_slice = st.slice;
}

/* ---- the output ---- */

static __always_inline void *here(void)
{
	u32 i = st.chunk;
	char *c = bpf_map_lookup_elem(&out, &i);

	return c ? c + (st.off & (CHUNK_SPAN - 1)) : NULL;
}

static __always_inline void *at(u32 off)
{
	u32 i = st.chunk;
	char *c = bpf_map_lookup_elem(&out, &i);

	return c ? c + (off & (CHUNK_SPAN - 1)) : NULL;
}

#define PUT(a, attr) \
	((a)->nla.nla_len = sizeof(*(a)), (a)->nla.nla_type = (attr), st.off += sizeof(*(a)))

static __always_inline void missing(u32 group, u32 reason)
{
	st.reason[group & (GROUPS_MAX - 1)] = reason;
	st.nmissing++;
}

static __always_inline void begin_message(u32 pid, u32 tgid, u32 flags)
{
	struct { struct nlmsghdr h; struct task_diag_msg m; } *a = here();

	if (!a)
		return;
	st.msg = st.off;
	*(&a->h) = (struct nlmsghdr){ .nlmsg_type = TASK_DIAG_MSG_TASK };
	a->m.pid = pid;
	a->m.tgid = tgid;
	a->m.flags = flags;
	a->m.reserved = 0;
	st.off += sizeof(*a);
}

static __always_inline void end_message(void)
{
	struct nlmsghdr *h = at(st.msg);

	if (h)
		h->nlmsg_len = st.off - st.msg;
	if (st.chunk < CHUNKS_MAX)
		st.used[st.chunk & (CHUNKS_MAX - 1)] = st.off;
}

/* Called before a value of variable length: continues in the next chunk if this one is nearly full. room() keeps
 * chunks for that. */
GROUP_FN spill(void)
{
	if (st.off < CHUNK_FULL)
		return 0;
	end_message();
	st.chunk++;
	st.off = 0;
	begin_message(st.nr, st.tgid, TASK_DIAG_FLAG_CONT);
	return 0;
}

/* Is there room for a message in this chunk or in the next one, with `reserve` chunks left? */
static __always_inline bool room(u32 reserve)
{
	if (st.off >= CHUNK_FULL) {
		st.chunk++;
		st.off = 0;
	}
	return st.chunk + reserve < cfg.nchunks;
}

static __always_inline struct task_diag_blob *begin_blob(void)
{
	return here();
}

static __always_inline void end_blob(struct task_diag_blob *b, u32 attr, u32 kind, u32 len,
				     u32 offset, u32 total, u32 flags, u32 reason)
{
	u32 size = sizeof(*b) + ((len + 7) & ~7u);

	b->nla.nla_len = size;
	b->nla.nla_type = attr;
	b->kind = kind;
	b->len = len;
	b->offset = offset;
	b->total = total;
	b->flags = flags;
	b->reason = reason;
	/* Clear the padding in the last word. Data after the blob is not written yet. */
	*(u64 *)((char *)b + sizeof(*b) + (len & 0xffff)) = 0;
	st.off += size;
}

/* ---- pids ---- */

/* The level of the reader's pid namespace. */
#define LEVEL (cfg.first_ns ? 0 : st.level)

/* The number of the struct pid st.arg in the reader's pid namespace, or 0 if it is not visible there. */
GROUP_FN pid_nr_arg(void)
{
	struct pid *pid = CAST(struct pid, (void *)st.arg);
	struct upid u;
	u32 level = LEVEL, nr;

	if (!st.arg)
		return 0;
	if (level == 0) {
		nr = R(pid, numbers[0].nr);
		/* Without the barrier the compiler makes one load of this and of u.nr. */
		barrier_var(nr);
		return nr;
	}
	if (level > 32 || R(pid, level) < level)
		return 0;
	if (bpf_probe_read_kernel(&u, sizeof(u), (char *)pid +
				  __builtin_preserve_field_info(((struct pid *)0)->numbers,
								BPF_FIELD_BYTE_OFFSET) +
				  level * sizeof(u)))
		return 0;
	return (u64)u.ns == st.ns ? u.nr : 0;
}

static __always_inline u32 pid_nr(struct pid *pid)
{
	st.arg = (u64)pid;
	return pid_nr_arg();
}

/* In the initial namespace the numbers are read from the task itself, which saves the cache line of struct pid. */
static __always_inline u32 task_nr(struct task_struct *t)
{
	return LEVEL ? pid_nr(R(t, thread_pid)) : R(t, pid);
}

static __always_inline u32 task_tgid_nr(struct task_struct *t)
{
	return LEVEL ? pid_nr(R(t, signal, pids[PIDTYPE_TGID])) : R(t, tgid);
}

/*
 * Set st.found to the struct pid of the number st.n in the pid namespace st.found, or to 0 if there is none. As
 * idr_find(), it goes down the tree by six bits of the number at a time. If the tree shrinks meanwhile, the old root has
 * the mark XA_RETRY, and the search begins again. st.pid_leaf gets the node that has the entry of this number, and of all
 * that differ only in the last six bits, or 0 if there is none.
 */
GROUP_FN find_pid(void)
{
	u64 entry = XA_RETRY, node, ns = st.found;
	u32 i, shift, nr = st.n;
	bool top;

	st.found = st.pid_leaf = 0;
	st.pid_leaf_of = ~0u;
	/* A tree has four levels at most, and this is enough for it twice. */
	EACH(i, 0, 8, 8) {
		top = entry == XA_RETRY;
		if (top)
			entry = (u64)R(CAST(struct pid_namespace, (void *)ns), idr.idr_rt.xa_head);
		if ((entry & 3) != 2 || entry < XA_NODE_MIN)
			break;
		node = entry - 2;
		shift = R(CAST(struct xa_node, (void *)node), shift);
		if (top && nr >> (shift & 31) > 63)
			return 0;
		if (!shift)
			st.pid_leaf = node;
		entry = 0;
		bpf_probe_read_kernel(&entry, sizeof(entry), (char *)&CAST(struct xa_node, (void *)node)->slots +
				      (nr >> (shift & 31) & 63) * 8);
	}
	if (!(entry & 3))
		st.found = entry;
	return 0;
}

/* Where a task has the list node by which its struct pid finds it. */
#define LINK_OF_TASK __builtin_preserve_field_info(((struct task_struct *)0)->pid_links, BPF_FIELD_BYTE_OFFSET)

/* The task of a struct pid, or 0 if it has ended. */
static __always_inline u64 task_of(u64 pid)
{
	u64 link = pid ? (u64)R(CAST(struct pid, (void *)pid), tasks[PIDTYPE_PID].first) : 0;

	return link ? link - LINK_OF_TASK : 0;
}

/* ---- MISSING ---- */

STEP(put_reason, group)
{
	u32 reason = st.reason[group & (GROUPS_MAX - 1)], n = st.n & (GROUPS_MAX - 1);
	struct task_diag_missing *a;

	if (!reason)
		return 0;
	a = here();
	if (!a)
		return 1;
	a->entries[n].group = group;
	a->entries[n].reason = reason;
	st.n = n + 1;
	st.reason[group & (GROUPS_MAX - 1)] = 0;
	return 0;
}

GROUP_FN put_missing(void)
{
	struct task_diag_missing *a;
	u32 n;

	if (!st.nmissing)
		return 0;
	st.n = 0;
	LOOP(GROUPS_MAX, put_reason);
	a = here();
	if (!a)
		return 0;
	n = st.n & (GROUPS_MAX - 1);
	a->count = n;
	a->nla.nla_type = TASK_DIAG_A_MISSING;
	a->nla.nla_len = sizeof(*a) + n * sizeof(a->entries[0]);
	st.off += sizeof(*a) + n * sizeof(a->entries[0]);
	st.nmissing = 0;
	return 0;
}

/* Complete the message of a task. */
GROUP_FN end_task(void)
{
	put_missing();
	end_message();
	return 0;
}

#endif
