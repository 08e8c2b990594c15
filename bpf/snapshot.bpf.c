/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The answer to one request, in one program: walk the tasks that the strategy
 * names and write each into the output. When that is full, the walk goes on
 * but only lists pids; later runs write these, each until the output is full.
 * User space takes what is there and runs again. So nothing is cut or
 * repeated, and the output need not hold the whole answer.
 *
 * It is an iterator program because only these may call bpf_d_path(), and a
 * sleepable one because command lines are in user memory. But it does its own
 * walk: on any first task it does a whole run, and answers "again" (1), which
 * read(2) reports as EAGAIN. So processes cost processes: the iterator never
 * steps through the threads.
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

/* Pids in the initial namespace of the tasks to write; length set before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 1);
} pids SEC(".maps");

/* Put a task on the list of those to write later. */
GROUP_FN list(u32 pid)
{
	u32 i = st.npids, *slot;

	st.npids = i + 1;
	if (cfg.count_only)
		return 0;
	slot = bpf_map_lookup_elem(&pids, &i);
	if (slot)
		*slot = pid;
	else
		st.overflow = 1;
	return 0;
}

/* A task that was begun, as if it had not been: it is written later. */
GROUP_FN take_back(u32 pid)
{
	st.chunk = st.chunk_before;
	st.off = st.off_before;
	st.used[st.chunk & (CHUNKS_MAX - 1)] = st.off;
	st.nmissing = 0;
	st.tasks--;
	return list(pid);
}

/* Is there room for a task of the walk, and is it so far? */
GROUP_FN goes_on(void)
{
	if (st.full || !room(cfg.reserve)) {
		st.full = 1;
		return 0;
	}
	st.chunk_before = st.chunk;
	st.off_before = st.off;
	return 1;
}

/* What needs a trusted task (paths, stacks), or may be long. */
#define NOT_AT_ONCE (1u << TASK_DIAG_PATHS | 1u << TASK_DIAG_VMA | 1u << TASK_DIAG_ENVIRON |	\
		     1u << TASK_DIAG_WCHAN | 1u << TASK_DIAG_KSTACK | 1u << TASK_DIAG_FILE_STAT)

#ifndef NO_MORE

/* The open files of a task of the walk. False: the output is full, and the task the first of the list, where
 * a later run goes on with it; who was the first, taken back before, is the last. No function: calls are as
 * deep as they may be. */
static __always_inline bool put_fds_now(u32 pid)
{
	u32 i, zero = 0, last = pid, *first;

	st.part = PART_FD;
	st.part_begun = 0;
	bpf_for(i, 0, CHUNKS_MAX) {
		if (!put_fds()) {
			st.part = 0;
			return true;
		}
		/* in the next chunk */
		if (st.chunk + 1 + cfg.reserve >= cfg.nchunks)
			break;
	}
	end_task();
	st.full = 1;
	first = bpf_map_lookup_elem(&pids, &zero);
	if (first && st.npids) {
		last = *first;
		*first = pid;
	}
	list(last);
	return false;
}

#else

static bool put_fds_now(u32 pid) { return pid; }

#endif

/* A task of the walk: it is written at once while there is room, since all about it is in the
 * CPU's cache now. Not with a command line that is not at hand. */
static __always_inline void visit(struct task_struct *t)
{
	struct task_struct *p = PLAIN(t);
	u32 pid = R(p, pid), now;

	if (pid == 0)
		return;
	if (cfg.strategy == TASK_DIAG_DUMP_CHILDREN && R(p, real_parent, tgid) != st.target)
		return;
	if (cfg.groups & NOT_AT_ONCE || cfg.count_only || !goes_on()) {
		list(pid);
		return;
	}
	if (!write_task(t))
		return;
	if (WANT(TASK_DIAG_CMDLINE)) {
		to_memory();
		now = put_cmdline_now();
		from_memory();
		if (!now) {
			take_back(pid);
			return;
		}
	}
	if (WANT(TASK_DIAG_FD) && !put_fds_now(pid))
		return;
	end_task();
}

/* The process that the request is about, by any of its threads' ids: sets st.target to its tgid
 * in the initial namespace, and lists it or its threads if these are what is asked for. */
static __always_inline void find_target(void)
{
	struct task_struct *t = NULL, *each;
	s32 pid = cfg.pid;

	if (LEVEL) {
		pid = 0;
		bpf_rcu_read_lock();
		bpf_for_each(task, each, NULL, BPF_TASK_ITER_ALL_THREADS)
			if (task_nr(PLAIN(each)) == cfg.pid) {
				pid = R(PLAIN(each), pid);
				break;
			}
		bpf_rcu_read_unlock();
	}
	if (pid)
		t = bpf_task_from_pid(pid);
	if (!t)
		return;
	st.target = R(PLAIN(t), tgid);
	if (R(PLAIN(t), pid) != st.target) {
		/* The iterator over threads goes on from the one it is given: give it the first. */
		bpf_task_release(t);
		t = bpf_task_from_pid(st.target);
		if (!t)
			return;
	}
	if (cfg.strategy == TASK_DIAG_DUMP_ONE) {
		list(st.target);
	} else if (cfg.strategy == TASK_DIAG_DUMP_THREAD) {
		bpf_rcu_read_lock();
		bpf_for_each(task, each, t, BPF_TASK_ITER_PROC_THREADS)
			visit(each);
		bpf_rcu_read_unlock();
	}
	bpf_task_release(t);
}

static __always_inline void walk(void)
{
	struct task_struct *t;
	u32 what = cfg.strategy == TASK_DIAG_DUMP_ALL_THREAD ? BPF_TASK_ITER_ALL_THREADS :
							       BPF_TASK_ITER_ALL_PROCS;

	if (cfg.pid) {
		find_target();
		if (cfg.strategy != TASK_DIAG_DUMP_CHILDREN || !st.target)
			return;
	}
	bpf_rcu_read_lock();
	bpf_for_each(task, t, NULL, what)
		visit(t);
	bpf_rcu_read_unlock();
}

/* Write task number st.cursor, or what is left of it. False: the output is full. */
static __always_inline bool put_task(void)
{
	u32 i = st.cursor, *pid;
	struct task_struct *t;
	bool more = false, seen;

	pid = bpf_map_lookup_elem(&pids, &i);
	if (!pid)
		return false;
	if (!room(cfg.reserve))
		return false;
	st.pid = *pid;
	t = bpf_task_from_pid(st.pid);
	if (!t) {
		if (st.part)
			st.truncated++;
		else
			st.vanished++;
		goto next;
	}
	bpf_rcu_read_lock();
	seen = write_task(t);
	bpf_rcu_read_unlock();
	if (seen) {
		more = put_parts(t);
		end_task();
	}
	bpf_task_release(t);
	if (more)
		return true;
next:
	next_task();
	st.cursor = i + 1;
	return true;
}

SEC("iter.s/task")
int snapshot(struct bpf_iter__task *ctx)
{
	u32 i;

	if (!ctx->task || st.done)
		return 0;
	set_up();
	if (!st.walked) {
		st.walked = 1;
		walk();
		if (st.overflow || cfg.count_only) {
			st.done = 1;
			return 1;
		}
	}
	bpf_for(i, 0, 8000000) {
		if (st.cursor >= st.npids) {
			st.done = 1;
			break;
		}
		if (!put_task())
			break;
	}
	return 1;
}
