/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The snapshot program for kernels before 6.8, whose verifiers cannot check the
 * other one. The kernel's iterator steps through all threads in order of their
 * ids and calls the program for each. Between two calls the kernel lets others
 * run. Members are read by helper calls. When the output is full, or one task
 * takes longer than a run may, the program returns 1 ("again") and is called
 * for the same task next time.
 *
 * A request about one pid takes two passes, of which the first finds its
 * process.
 */
#define LEGACY
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline bool asked_for(struct task_struct *t)
{
	if (IS_PROCESS && st.nr != st.tgid)
		return false;
	if (st.tgid < st.first || st.tgid > st.last)
		return false;
	if (cfg.strategy == TASK_DIAG_DUMP_CHILDREN)
		return R(t, real_parent, tgid) == st.target;
	return !cfg.pid || R(t, tgid) == st.target;
}

/* The number by which the iterator found the task. An exec gives the number of a process to the thread that
 * calls it, and the first thread gets the number of that thread, so the task may have another number by now. */
static __always_inline u32 number(struct bpf_iter__task *ctx)
{
	struct bpf_iter_seq_task_info *at = ctx->meta->seq->private;

	return R(at, tid);
}

SEC("iter/task")
int snapshot(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;

	/* The task that was begun has ended if the iterator gives another one, or none. */
	if (st.part && (!t || R(t, pid) != st.pid || R(t, start_boottime) != st.part_start)) {
		if (room(cfg.reserve)) {
			give_up();
		} else if (t) {
			st.full = 1;
			return 1;
		} else {
			/* This was the last task, so the kernel does not call again. */
			st.truncated++;
			st.part = PART_NONE;
		}
	}
	if (!t || (st.stop && !st.part))
		return 0;
	begin_run();
	set_up();
	if (!st.part) {
		GAP();
		see_ids(t, false);
		/* The iterator looks for the number again. If it continued, it would pass over the task that has it now. */
		if (st.nr != number(ctx))
			return 1;
	}
	if (cfg.pid && !st.walking) {
		if (st.nr == cfg.pid)
			st.target = R(t, tgid);
		return 0;
	}
	if (!asked_for(t))
		return 0;
	if (!st.part) {
		/* If tasks are made faster than this walk advances, a walk that followed them would not end. */
		if (cfg.strategy != TASK_DIAG_DUMP_ONE && R(t, start_boottime) > st.begin)
			return 0;
		/* The task that had this number before was begun, and has ended since. */
		if (st.nr <= st.process)
			return 0;
		st.counted++;
	}
	if (cfg.count_only) {
		st.process = st.nr;
		return 0;
	}
	if (!room(cfg.reserve)) {
		st.full = 1;
		st.counted--;
		return 1;
	}
	*(volatile u64 *)&st.task = (u64)t;
	st.process = st.nr;
	return write_task(t);
}
