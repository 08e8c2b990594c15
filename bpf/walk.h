/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Steps of the walk over processes and threads, and the tasks that it has seen.
 */
#ifndef TASKDIAG_WALK_H
#define TASKDIAG_WALK_H

#include "out.h"

/*
 * The pids of the tasks that the walk saw last, in the initial namespace. User space sets the length, a power of two, before
 * the load. It is not as long as the list of tasks, because the kernel clears a map in one go. The place is lost only if
 * all tasks in it end between two runs. User space then starts again with a longer one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 1);
} seen SEC(".maps");

/* The largest number of turns of the loops below. The next run continues with the rest. */
enum { STEPS_MAX = 8000000 };

#define BY_THREADS (cfg.strategy == TASK_DIAG_DUMP_ALL_THREAD || cfg.strategy == TASK_DIAG_DUMP_THREAD)
/* Does the walk go along the list of processes? */
#define IN_LIST (cfg.strategy == TASK_DIAG_DUMP_ALL || cfg.strategy == TASK_DIAG_DUMP_CHILDREN)

/* The entry of `seen` for the task with this number in the walk. */
static __always_inline u32 *seen_at(u32 n)
{
	u32 at = n & cfg.seen_mask;

	return bpf_map_lookup_elem(&seen, &at);
}

/* Enter the current task into `seen`. */
static __always_inline void note(void)
{
	u32 *e = seen_at(st.nseen);

	if (e)
		*e = st.pid;
	st.nseen++;
	if (st.reached < st.nseen)
		st.reached = st.nseen;
	st.counted++;
}

/* Move st.walk from a process to the next one, or to 0 after the last one. */
static __always_inline void next_process(struct task_struct *t)
{
	u64 node = (u64)R(t, tasks.next);

	st.walk = node ? TASK_AT(node, tasks) : 0;
	st.process = 0;
	st.thread_head = 0;
	/* The head of the list is the idle task, with pid 0. */
	if (st.walk && !R(CAST(struct task_struct, (void *)st.walk), pid))
		st.walk = 0;
}

/* Move st.walk to the next task, or to 0 after the last one. */
GROUP_FN step(void)
{
	struct task_struct *t = CAST(struct task_struct, (void *)st.walk);
	struct signal_struct *s;
	u64 node;

	if (cfg.strategy == TASK_DIAG_DUMP_ONE) {
		st.walk = 0;
		return 0;
	}
	if (BY_THREADS) {
		/* All threads of a process have the same, so it is read only for the first one. */
		if (!st.thread_head) {
			s = R(t, signal);
			st.thread_head = (u64)&s->thread_head;
		}
		node = (u64)R(t, thread_node.next);
		if (node && node != st.thread_head) {
			st.walk = TASK_AT(node, thread_node);
			return 0;
		}
		if (cfg.strategy == TASK_DIAG_DUMP_THREAD) {
			st.walk = 0;
			return 0;
		}
		t = R(t, group_leader);
	}
	next_process(t);
	return 0;
}

#endif
