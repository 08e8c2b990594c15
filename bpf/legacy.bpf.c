/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The snapshot program for kernels before 6.8, which have no open-coded task
 * iterators: the kernel's iterator steps through all threads in order of
 * their ids and the program is called for each. Members are read by helper
 * calls, as the verifier does not know the pointers. When the output is full
 * the program answers "again" (1) and is called for the same task next time.
 *
 * A request about one pid takes two passes: the first finds its process.
 */
#define LEGACY
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#define TASK_DIAG_NO_INCLUDES
#include "../uapi/task_diag.h"
#include "snapshot.h"
#include "fill.h"
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline bool asked_for(struct task_struct *t)
{
	u32 pid = R(t, pid), tgid = R(t, tgid);

	if (IS_PROCESS && pid != tgid)
		return false;
	if (cfg.strategy == TASK_DIAG_DUMP_CHILDREN)
		return R(t, real_parent, tgid) == st.target;
	return !cfg.pid || tgid == st.target;
}

SEC("iter.s/task")
int snapshot(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	bool more;

	/* The task that was to go on has ended: the next one comes, or none. */
	if (st.part && (!t || R(t, pid) != st.part_pid)) {
		st.truncated++;
		next_task();
	}
	if (!t)
		return 0;
	set_up();
	if (cfg.pid && !st.walked) {
		if (task_nr(t) == cfg.pid)
			st.target = R(t, tgid);
		return 0;
	}
	if (!asked_for(t))
		return 0;
	st.npids++;
	if (cfg.count_only)
		return 0;
	if (!room(cfg.reserve))
		return 1;
	if (!write_task(t))
		return 0;
	more = put_parts(t);
	end_task();
	if (!more)
		next_task();
	st.part_pid = R(t, pid);
	return more;
}
