/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Loads memory of tasks before it is needed: of the current task, all that the columns need together, and of the threads that
 * come next.
 *
 * The list of threads gives the next thread only when the thread before it was loaded. But threads mostly have numbers that
 * follow each other. So the next ones are looked up by number: entry of the number, struct pid, task. A processor stops at a
 * load that takes long, after about a hundred more instructions. So this is not done for each thread, but for sixteen at a
 * time, whose loads are few such stops. It is done when the walk comes to the first of sixteen numbers: the threads of the
 * next sixteen are loaded, and the struct pids of those after them. Where numbers do not follow each other, nothing is
 * looked up, and the walk waits as it would without it.
 *
 * Nothing that is loaded here is ever shown.
 */
#ifndef TASKDIAG_TOUCH_H
#define TASKDIAG_TOUCH_H

#include "out.h"

/* Does the walk load memory of the next processes early (ahead.h), and of the next threads? */
#ifdef LEGACY
#define AHEAD_PROCESSES 0
#define AHEAD_THREADS 0
#else
#define AHEAD_PROCESSES (IS_PROCESS && cfg.ahead & AHEAD_OF_PROCESSES)
#define AHEAD_THREADS (cfg.ahead & AHEAD_OF_THREADS)
#endif

/* Load a value. It is stored, too, or the compiler would leave the load out as unused. */
#define TOUCH(value) (*touched = sizeof(value) == 4 ? (u32)(u64)(value) : (u64)(value))

/* Load the memory for the members of BASE, CRED and STAT. */
static __always_inline void touch_task(struct task_struct *t, struct ahead *to, volatile u64 *touched)
{
	bool base = WANT(TASK_DIAG_BASE), mm = WANT(TASK_DIAG_STATM) || WANT(TASK_DIAG_CMDLINE);

	TOUCH(R(t, tgid));
	TOUCH(R(t, start_boottime));
	if (mm || (base && (NEED_BASE(COMM) || NEED_BASE(STATE) || NEED_BASE(FLAGS) || NEED_BASE(TASK_FLAGS))))
		TOUCH(R(t, flags));
	if (base && NEED_BASE(STATE))
		TOUCH(R(t, exit_state));
	if (base && NEED_BASE(COMM))
		TOUCH(R(t, comm[0]));
	if (base && NEED_BASE(PPID))
		TOUCH(R(t, real_parent));
	if (WANT(TASK_DIAG_CGROUP))
		TOUCH(R(t, cgroups));
	if (NEED_STAT(NICE) || NEED_STAT(PRIORITY))
		TOUCH(R(t, prio));
	if (NEED_STAT(POLICY))
		TOUCH(R(t, policy));
	if (NEED_TIME) {
		TOUCH(R(t, utime));
		TOUCH(R(t, se.sum_exec_runtime));
	}
	to->task = (u64)t;
	if (IS_PROCESS || NEED_SIGNAL || (base && (NEED_BASE(PGID) || NEED_BASE(SID))))
		to->signal = (u64)R(t, signal);
	if (WANT(TASK_DIAG_CRED)) {
		if (NEED_CRED(SECCOMP))
			TOUCH(R(t, seccomp.mode));
		if (NEED_CRED(NO_NEW_PRIVS))
			TOUCH(R(t, atomic_flags));
		to->cred = (u64)R(t, real_cred);
	}
	if (mm)
		to->mm = (u64)R(t, mm);
}

#ifdef LEGACY

#define look_up_threads(nr) 0
#define IS_LOADED 0

#else

/* The number of threads in a row that must have numbers near each other before the next ones are looked up. */
enum { IN_ORDER = 4 };

/* Was the memory of this thread loaded when the walk was at one before it? */
#define IS_LOADED (AHEAD_THREADS && st.in_order > 3 * TOGETHER)

/* The address of the entries of these numbers in the tree of the initial pid namespace, or 0. The leaf that has them is searched
 * for once for all its entries. A run is one read-side section of RCU, which keeps the leaf, and what is found through it. */
static __always_inline u64 entries_of(u32 nr)
{
	if (st.pid_leaf_of != nr >> XA_BITS) {
		st.found = st.first_pid_ns;
		st.n = nr;
		find_pid();
		st.pid_leaf_of = nr >> XA_BITS;
	}
	if (!st.pid_leaf)
		return 0;
	return st.pid_leaf + __builtin_preserve_field_info(((struct xa_node *)0)->slots, BPF_FIELD_BYTE_OFFSET) +
	       (nr & ((1 << XA_BITS) - TOGETHER)) * 8;
}

/* Load the memory of one thread for a walk over threads, or for a sum over them. */
static __always_inline void touch_thread(struct task_struct *t, volatile u64 *touched)
{
	TOUCH(R(t, thread_node.next));
	if (!IS_PROCESS) {
		touch_task(t, &st.ahead[0], touched);
		return;
	}
	TOUCH(R(t, pid));
	if (NEED_TIME)
		TOUCH(R(t, utime));
	if (NEED_TIME || WANT(TASK_DIAG_SCHED))
		TOUCH(R(t, se.sum_exec_runtime));
	if (NEED_STAT(MINFLT) || NEED_STAT(MAJFLT))
		TOUCH(R(t, min_flt));
	if (WANT(TASK_DIAG_SCHED)) {
		TOUCH(R(t, nvcsw));
		TOUCH(R(t, sched_info.run_delay));
	}
	if (WANT(TASK_DIAG_IO))
		TOUCH(R(t, ioac.rchar));
}

/* Load memory of the threads that probably come after the one with this number. The results go through our own memory.
 * Otherwise the verifier would treat them as pointers and allow less. A load from address 0 gives 0. */
GROUP_FN look_up_threads(u32 nr)
{
	volatile u64 *links = st.links, *pids = st.pids, place, *touched = &place;
	u64 at, link;
	u32 i;

	st.in_order = nr - st.last_pid - 1 < IN_ORDER ? st.in_order + 1 : 0;
	st.last_pid = nr;
	if (st.in_order < IN_ORDER || st.loaded == nr / TOGETHER)
		return 0;
	st.loaded = nr / TOGETHER;
	at = entries_of((st.loaded + 2) * TOGETHER);
	if (!at)
		return 0;
#pragma unroll
	for (i = 0; i < TOGETHER; i++)
		pids[i] = R(CAST(struct timespec64, (void *)(at + i * 8)), tv_sec);
#pragma unroll
	for (i = 0; i < TOGETHER; i++) {
		link = links[i];
		links[i] = (u64)R(CAST(struct pid, (void *)pids[i]), tasks[PIDTYPE_PID].first);
		link = (link - LINK_OF_TASK) & (u64)((s64)link >> 63);
		touch_thread(CAST(struct task_struct, (void *)link), touched);
	}
	return 0;
}

/* Begin a run. Threads that the run before has found may be gone. */
static __always_inline void begin_threads(struct task_struct *t)
{
#pragma unroll
	for (u32 i = 0; i < TOGETHER; i++)
		st.links[i] = 0;
	st.pid_leaf_of = st.loaded = ~0u;
	st.in_order = st.last_pid = 0;
	st.first_pid_ns = (u64)R(t, thread_pid, numbers[0].ns);
}

#endif

#endif
