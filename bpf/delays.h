/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * DELAYS: how long a task has waited for a CPU, disks and memory, from the
 * kernel's delay accounting. task->delays is set before others can see
 * the task and freed with it, so it lives as long as the task. It is NULL if
 * accounting was off when the task began.
 */
#ifndef TASKDIAG_DELAYS_H
#define TASKDIAG_DELAYS_H

#include "raw.h"

/* The places in max_ns and min_ns. */
enum { AT_CPU, AT_IO, AT_SWAPIN, AT_RECLAIM, AT_THRASHING, AT_COMPACT, AT_WPCOPY, AT_IRQ, DELAY_KINDS };

#define DELAY_KNOWN(bit) (1u << (DELAYS_##bit))

static __always_inline void begin_delays(void)
{
	u32 i;

	st.delays_lack = st.delays_known = 0;
#pragma unroll
	for (i = 0; i < DELAY_KINDS; i++)
		st.delay_ns[i] = st.delay_count[i] = st.delay_max[i] = st.delay_min[i] = 0;
}

static __always_inline void add_delay(u32 i, u64 ns, u64 count, u64 max, u64 min)
{
	st.delay_ns[i] += ns;
	st.delay_count[i] += count;
	if (max > st.delay_max[i])
		st.delay_max[i] = max;
	if (min && (!st.delay_min[i] || min < st.delay_min[i]))
		st.delay_min[i] = min;
}

/* Add one kind of delay of the task_delay_info at `d`, if the kernel has it. */
#define ADD_DELAY(name)									\
	do {										\
		if (HAVE(DELAY_##name) && HAVE(DELAY_##name##_COUNT)) {			\
			add_delay(AT_##name, RD(u64, d, DELAY_##name),			\
				  RD(u32, d, DELAY_##name##_COUNT),			\
				  RD_MAY(u64, d, DELAY_##name##_MAX),			\
				  RD_MAY(u64, d, DELAY_##name##_MIN));			\
			st.delays_known |= DELAY_KNOWN(name##_NS) | DELAY_KNOWN(name##_COUNT);	\
		}									\
	} while (0)

/* Add the delays of the thread st.delay_task. */
GROUP_FN add_delays(void)
{
	struct task_struct *t = CAST(struct task_struct, (void *)st.delay_task);
	u64 d;

	if (!HAVE(TASK_DELAYS))
		return 0;
	d = RD(u64, t, TASK_DELAYS);
	if (!d) {
		st.delays_lack = 1;
		return 0;
	}
	if (HAVE(TASK_RUN_DELAY) && HAVE(TASK_RUN_COUNT)) {
		add_delay(AT_CPU, RD(u64, t, TASK_RUN_DELAY), RD(u64, t, TASK_RUN_COUNT),
			  RD_MAY(u64, t, TASK_RUN_MAX), RD_MAY(u64, t, TASK_RUN_MIN));
		st.delays_known |= DELAY_KNOWN(CPU_NS) | DELAY_KNOWN(CPU_COUNT);
	}
	ADD_DELAY(IO);
	ADD_DELAY(SWAPIN);
	ADD_DELAY(RECLAIM);
	ADD_DELAY(THRASHING);
	ADD_DELAY(COMPACT);
	ADD_DELAY(WPCOPY);
	ADD_DELAY(IRQ);
	is_late(8);
	return 0;
}

GROUP_FN put_delays(void)
{
	struct task_diag_delays *a = here();
	u32 i;

	if (!a)
		return 0;
	/* Without delay accounting for one of its threads, a sum would be too small. */
	if (!HAVE(TASK_DELAYS) || st.delays_lack) {
		missing(TASK_DIAG_DELAYS, TASK_DIAG_R_UNSUPPORTED);
		return 0;
	}
	PUT(a, TASK_DIAG_DELAYS);
	a->valid = st.sum_lost ? 0 : st.delays_known;
	/* The kernel got these for all kinds at once. */
	if (!st.sum_lost && HAVE(TASK_RUN_MAX) && HAVE(DELAY_IO_MAX) && HAVE(DELAY_IRQ_MAX))
		a->valid |= DELAY_KNOWN(MAX_NS);
	if (!st.sum_lost && HAVE(TASK_RUN_MIN) && HAVE(DELAY_IO_MIN) && HAVE(DELAY_IRQ_MIN))
		a->valid |= DELAY_KNOWN(MIN_NS);
	a->cpu_ns = st.delay_ns[AT_CPU];
	a->io_ns = st.delay_ns[AT_IO];
	a->swapin_ns = st.delay_ns[AT_SWAPIN];
	a->reclaim_ns = st.delay_ns[AT_RECLAIM];
	a->thrashing_ns = st.delay_ns[AT_THRASHING];
	a->compact_ns = st.delay_ns[AT_COMPACT];
	a->wpcopy_ns = st.delay_ns[AT_WPCOPY];
	a->irq_ns = st.delay_ns[AT_IRQ];
	a->cpu_count = st.delay_count[AT_CPU];
	a->io_count = st.delay_count[AT_IO];
	a->swapin_count = st.delay_count[AT_SWAPIN];
	a->reclaim_count = st.delay_count[AT_RECLAIM];
	a->thrashing_count = st.delay_count[AT_THRASHING];
	a->compact_count = st.delay_count[AT_COMPACT];
	a->wpcopy_count = st.delay_count[AT_WPCOPY];
	a->irq_count = st.delay_count[AT_IRQ];
#pragma unroll
	for (i = 0; i < DELAY_KINDS; i++) {
		a->max_ns[i] = st.delay_max[i];
		a->min_ns[i] = st.delay_min[i];
	}
	return 0;
}

#endif
