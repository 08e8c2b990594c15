/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The answer to one request, in one program: walk the tasks that the strategy
 * names and write each into the output. A run ends when the output is full, or
 * after a millisecond: a run is one read-side section of RCU, in which nothing
 * else runs on its CPU where the kernel is not preemptible. User space takes
 * what is there and runs the program again, and it goes on where it was.
 *
 * Where it was is known by the tasks that it has seen. The list of tasks only
 * grows at its end, so what comes after the last one seen that is still there
 * has not been seen, and what was seen after that one has ended: no task is
 * lost, and none comes twice.
 *
 * It is an iterator program, which may be run by read(2) from any context. But
 * it does its own walk: on any first task it does a whole run, and answers
 * "again" (1), which read(2) reports as EAGAIN. So processes cost processes: the
 * kernel's iterator never steps through the threads. Its first task is where
 * the walk begins, so what the kernel hides at the begin stays hidden.
 *
 * It only reads. It takes no lock and, but for stacks, no reference, it does not
 * sleep, and it makes no one wait (see docs/safety.md).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#define TASK_DIAG_NO_INCLUDES
#include "../uapi/task_diag.h"
#include "snapshot.h"
#include "fill.h"
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The tasks that the walk has seen, see note(); length set before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 8);
	__uint(max_entries, 1);
} seen SEC(".maps");

/* Runs of the loops below; what is beyond goes on in the next run. */
enum { STEPS_MAX = 8000000 };

/* A pid and the address of its task, which is a multiple of 64, in 8 bytes. That it is not the start time: this would
 * have one more cache line of each task loaded, which is a sixth of the time of a list of pids. */
enum { PID_SHIFT = 42 };
#define STAMP(pid, address) ((u64)(pid) << PID_SHIFT | ((u64)(address) >> 6 & ((1ull << PID_SHIFT) - 1)))

/* Note that the walk has seen the task at hand. False: there is no room. */
static __always_inline bool note(void)
{
	u32 i = st.nseen;
	u64 *e = bpf_map_lookup_elem(&seen, &i);

	if (!e) {
		st.overflow = st.done = 1;
		return false;
	}
	*e = STAMP(R(THIS, pid), st.task);
	st.nseen = i + 1;
	st.counted++;
	return true;
}

/* The task of a list node, as a number. */
#define TASK_AT(node, member)									\
	((u64)(node) - __builtin_preserve_field_info(((struct task_struct *)0)->member, BPF_FIELD_BYTE_OFFSET))

#define BY_THREADS (cfg.strategy == TASK_DIAG_DUMP_ALL_THREAD || cfg.strategy == TASK_DIAG_DUMP_THREAD)

/* From the task at st.walk to the next one; 0: that was the last. */
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
		s = R(t, signal);
		node = (u64)R(t, thread_node.next);
		if (node && node != (u64)&s->thread_head) {
			st.walk = TASK_AT(node, thread_node);
			return 0;
		}
		if (cfg.strategy == TASK_DIAG_DUMP_THREAD) {
			st.walk = 0;
			return 0;
		}
		t = R(t, group_leader);
	}
	node = (u64)R(t, tasks.next);
	st.walk = node ? TASK_AT(node, tasks) : 0;
	/* the list's head is the idle task, with pid 0 */
	if (st.walk && !R(CAST(struct task_struct, (void *)st.walk), pid))
		st.walk = 0;
	return 0;
}

/* Is the last task seen still there? Then it is at st.walk. Where another thread of its process has become the process
 * by an exec, that has its pid and its place in the list. A later process of the same pid began after the request. */
GROUP_FN last_seen(void)
{
	u32 i = st.nseen - 1;
	u64 *e = bpf_map_lookup_elem(&seen, &i), was, at;
	struct task_struct *t;

	st.walk = 0;
	if (!e)
		return 0;
	was = *e;
	t = bpf_task_from_pid(was >> PID_SHIFT);
	if (!t)
		return 0;
	/* through memory: a pointer that was stored is a number when it is read */
	*(volatile u64 *)&st.walk = (u64)t;
	at = *(volatile u64 *)&st.walk;
	if (STAMP(was >> PID_SHIFT, at) != was && R(PLAIN(t), start_boottime) > st.begin)
		st.walk = 0;
	/* it stays for the rest of the run without a reference */
	bpf_task_release(t);
	return !!st.walk;
}

/* Where the walk goes on, to st.walk: with the task that is begun, else after the last one seen that is still
 * there, else at `first`. False: the time is over, and the search goes on in the next run. */
static __always_inline bool find_place(u64 first)
{
	u32 i;

	bpf_for(i, 0, STEPS_MAX) {
		if (!st.nseen) {
			st.walk = first;
			return true;
		}
		if (last_seen()) {
			if (!CAN_PAUSE || !st.part)
				step();
			return true;
		}
		if (CAN_PAUSE && st.part) {
			if (!room(cfg.reserve)) {
				st.full = 1;
				return false;
			}
			give_up();
		}
		st.nseen--;
		if (is_late(2))
			return false;
	}
	return false;
}

/* The process that the request is about, by any of its threads' ids: sets st.target to its tgid in the initial
 * namespace. Returns where a walk over it or its threads begins; 0: it has ended. */
static __always_inline u64 find_target(void)
{
	struct task_struct *t, *p;
	u32 nr = st.walking ? st.target : cfg.pid;
	u64 at = 0;

	if (LEVEL && !st.walking) {
		st.found = st.ns;
		st.n = nr;
		find_pid();
		nr = st.found ? R(CAST(struct pid, (void *)st.found), numbers[0].nr) : 0;
	}
	t = bpf_task_from_pid(nr);
	if (!t)
		return 0;
	p = PLAIN(t);
	/* in a later run, a process that began after the request is another one */
	if (!st.walking || R(p, start_boottime) <= st.begin) {
		st.target = R(p, tgid);
		if (cfg.strategy == TASK_DIAG_DUMP_THREAD)
			at = TASK_AT(R(p, signal, thread_head.next), thread_node);
		else
			at = (u64)R(p, group_leader);
	}
	bpf_task_release(t);
	return at;
}

/* Is the task at hand one that the request is about? Once there are more than were expected, not one that began
 * after it: on a machine that forks faster than a walk goes on, that would not end. */
static __always_inline bool is_asked_for(void)
{
	struct task_struct *p = THIS;

	if (cfg.strategy == TASK_DIAG_DUMP_ONE)
		return true;
	if (st.nseen >= cfg.expected && R(p, start_boottime) > st.begin)
		return false;
	return cfg.strategy != TASK_DIAG_DUMP_CHILDREN || R(p, real_parent, tgid) == st.target;
}

/* The task at st.walk, or what is left of it. False: the run ends. */
static __always_inline bool visit(void)
{
	bool begun = CAN_PAUSE && st.part, wanted;

	if (!begun && st.stop) {
		st.done = 1;
		return false;
	}
	st.task = st.walk;
	/* first, so that its memory is waited for together with that of the task */
	step();
	wanted = !cfg.count_only && (begun || is_asked_for());
	if (wanted && !room(cfg.reserve)) {
		st.full = 1;
		return false;
	}
	if (!begun && !note())
		return false;
	/* more is left of it: the same task again */
	if (wanted && write_task(NULL))
		st.walk = st.task;
	return !is_late(wanted ? 16 : 2);
}

SEC("iter/task")
int snapshot(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	u64 first;
	u32 i;

	if (!t || st.done)
		return 0;
	begin_run();
	set_up();
	*(volatile u64 *)&st.arg = (u64)t;
	first = *(volatile u64 *)&st.arg;
	if (cfg.strategy == TASK_DIAG_DUMP_CHILDREN) {
		if (!st.walking)
			find_target();
	} else if (cfg.pid) {
		first = find_target();
	}
	st.walking = 1;
	if (cfg.pid && !st.target) {
		st.done = 1;
		return 1;
	}
	if (!find_place(first))
		return 1;
	bpf_for(i, 0, STEPS_MAX) {
		if (!st.walk) {
			st.done = 1;
			break;
		}
		if (!visit())
			break;
	}
	return 1;
}
