/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Loads memory of the next processes of a walk before it comes to them.
 *
 * Most of the time of a long list is waiting for memory, and much of that is one chain for each task: task, mm, four
 * levels of page tables, arguments. A processor waits for several loads at once only if none needs the result of another.
 * So each visit of a process takes one more step in the chains of the next seven processes. Each of the seven is at
 * another step, so none of the loads needs another. When the walk comes to a process, what it reads is in the cache.
 *
 * Nothing that is loaded here is ever shown. A pointer in an mm or in its page tables is followed only if the task still has the
 * mm after the pointer was read, as everywhere, and again at the visit that follows it (docs/operate/safety.md).
 */
#ifndef TASKDIAG_AHEAD_H
#define TASKDIAG_AHEAD_H

#include "fill.h"
#include "touch.h"
#include "usermem.h"

/* The process after t in the list, or 0. After the last one comes the idle task, and then the first one again. */
static __always_inline u64 after(struct task_struct *t)
{
	u64 node = (u64)R(t, tasks.next);

	return node ? TASK_AT(node, tasks) : 0;
}

static __always_inline void touch_objects(struct ahead *a, struct ahead *to, volatile u64 *touched)
{
	struct task_struct *t = CAST(struct task_struct, (void *)a->task);
	struct mm_struct *mm = CAST(struct mm_struct, (void *)a->mm);
	struct signal_struct *s = CAST(struct signal_struct, (void *)a->signal);
	const struct cred *c;

	TOUCH(R(s, nr_threads));
	if (WANT(TASK_DIAG_BASE) && NEED_BASE(PGID))
		TOUCH(R(s, pids[PIDTYPE_PGID]));
	if (WANT(TASK_DIAG_BASE) && NEED_BASE(SID))
		TOUCH(R(s, pids[PIDTYPE_SID]));
	if (NEED_TIME) {
		TOUCH(R(s, utime));
		TOUCH(R(s, prev_cputime.utime));
		TOUCH(R(s, sum_sched_runtime));
	}
	if (NEED_STAT(TTY_NR))
		TOUCH(R(s, tty));
	if (WANT(TASK_DIAG_CRED)) {
		c = CAST(struct cred, (void *)a->cred);
		TOUCH(R(c, uid.val));
		if (NEED_CRED(CAP_EFFECTIVE) || NEED_CRED(CAP_BOUNDING) || NEED_CRED(CAP_AMBIENT))
			TOUCH(R(c, cap_bset.val));
		if (NEED_CRED(NGROUPS))
			TOUCH(R(c, group_info));
	}
	if (!WANT(TASK_DIAG_STATM) && !WANT(TASK_DIAG_CMDLINE))
		return;
	if (WANT(TASK_DIAG_STATM)) {
		TOUCH(R(mm, total_vm));
		if (NEED_TEXT_SIZE)
			TOUCH(R(mm, start_code));
		if (NEED_STATM(PAGE_TABLES_BYTES))
			TOUCH(R(mm, pgtables_bytes.counter));
		if (NEED_STATM(HUGETLB_BYTES) && bpf_core_field_exists(mm->hugetlb_usage))
			TOUCH(R(mm, hugetlb_usage.counter));
	}
	if (NEED_COUNTERS) {
		TOUCH(R(mm, rss_stat[2].count));
		TOUCH(R(mm, rss_stat[3].counters));
		to->counters = (u64)R(mm, rss_stat[0].counters);
	}
	to->task = a->task;
	to->mm = a->mm;
	to->address = R(mm, arg_start);
	to->table = (u64)R(mm, pgd);
	if (!STILL(t, mm, mm))
		to->table = to->counters = 0;
}

/* For each CPU, the counters of an mm lie next to each other. More CPUs than these wait for each other less anyway. */
static __always_inline void touch_counters(u64 counters, volatile u64 *touched)
{
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		if (counters && i < st.ncpus)
			TOUCH(R(CAST(struct kref, (void *)(counters + st.cpu_offset[i])), refcount.refs.counter));
}

/* Does the task of this step still have the mm that was found one visit ago? Then the tables are those of a living mm. */
static __always_inline bool is_its_mm(struct ahead *a)
{
	return STILL(CAST(struct task_struct, (void *)a->task), mm, (struct mm_struct *)a->mm);
}

/* Go down one level of the page tables. An entry is followed under the same conditions as in translate(). */
static __always_inline void touch_table(struct ahead *a, struct ahead *to, u32 level)
{
	u64 at = a->table + (a->address >> ((st.pt_shift - 9 * level) & 63) & 511) * 8, entry, phys;

	to->task = a->task;
	to->mm = a->mm;
	to->address = a->address;
	to->table = 0;
	if (!a->table || !is_its_mm(a))
		return;
	entry = R(CAST(struct timespec64, (void *)at), tv_sec);
	phys = entry & cfg.pte_address;
	if ((entry & (PTE_PRESENT | PTE_LARGE | PTE_SPECIAL)) == PTE_PRESENT && phys < cfg.ram_end && is_its_mm(a))
		to->table = st.direct_map + phys;
}

/* Take a step for each of the next processes. */
GROUP_FN look_ahead(void)
{
	struct ahead *a = st.ahead;
	u64 t = st.ahead_at;
	volatile u64 place, *touched = &place;

	/* The steps go from the last to the first, since each makes room for the one before it. */
	if (WANT(TASK_DIAG_CMDLINE) && st.direct_map) {
		if (a[5].table && is_its_mm(&a[5]))
			TOUCH(R(CAST(struct timespec64, (void *)(a[5].table + (a[5].address & 0xff8))), tv_sec));
		touch_table(&a[4], &a[5], 3);
		touch_table(&a[3], &a[4], 2);
		touch_table(&a[2], &a[3], 1);
		touch_table(&a[1], &a[2], 0);
	}
	if (NEED_COUNTERS && is_its_mm(&a[1]))
		touch_counters(a[1].counters, touched);
	touch_objects(&a[0], &a[1], touched);
	if (!t)
		return 0;
	touch_task(CAST(struct task_struct, (void *)t), &a[0], touched);
	st.ahead_at = after(CAST(struct task_struct, (void *)t));
	return 0;
}

/* Begin a run: go as far ahead as there are steps. Objects that the run before has found may be gone. */
GROUP_FN begin_ahead(void)
{
	struct ahead *a = st.ahead;
	u64 t = st.walk;

#pragma unroll
	for (u32 i = 0; i < 6; i++)
		a[i].task = a[i].mm = a[i].signal = a[i].cred = a[i].counters = a[i].table = 0;
#pragma unroll
	for (u32 i = 0; i < 7; i++)
		if (t)
			t = after(CAST(struct task_struct, (void *)t));
	st.ahead_at = t;
	return 0;
}

#endif
