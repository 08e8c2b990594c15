/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Writes the groups of one task into the output, in wire format. Each put_*()
 * reads what its group needs and nothing else.
 *
 * Everything is read without the locks that /proc takes, with loads that
 * cannot fault, in one read-side section of RCU. The task, its signal_struct,
 * credentials and pids live at least as long as that section. Its mm, nsproxy,
 * tty and others may not. So the program checks that the task still has such
 * an object before it follows the object's pointers, and again after
 * everything was read (see docs/operate/safety.md).
 */
#ifndef TASKDIAG_FILL_H
#define TASKDIAG_FILL_H

#include "out.h"
#include "identity.h"
#include "muldiv.h"

/* ---- STAT, IO, SCHED: values of a thread, or sums over a process ---- */

static __always_inline void add_thread(struct task_struct *t)
{
	if (NEED_TIME) {
		st.utime += R(t, utime);
		st.stime += R(t, stime);
	}
	if (NEED_STAT(GUEST_NS))
		st.gtime += R(t, gtime);
	if (NEED_STAT(MINFLT))
		st.min_flt += R(t, min_flt);
	if (NEED_STAT(MAJFLT))
		st.maj_flt += R(t, maj_flt);
	if (NEED_TIME || WANT(TASK_DIAG_SCHED))
		st.runtime += R(t, se.sum_exec_runtime);
	if (WANT(TASK_DIAG_SCHED)) {
		st.nvcsw += R(t, nvcsw);
		st.nivcsw += R(t, nivcsw);
		st.run_delay += R(t, sched_info.run_delay);
		st.pcount += R(t, sched_info.pcount);
	}
	if (WANT(TASK_DIAG_IO)) {
		st.io[0] += R(t, ioac.rchar);
		st.io[1] += R(t, ioac.wchar);
		st.io[2] += R(t, ioac.syscr);
		st.io[3] += R(t, ioac.syscw);
		st.io[4] += R(t, ioac.read_bytes);
		st.io[5] += R(t, ioac.write_bytes);
		st.io[6] += R(t, ioac.cancelled_write_bytes);
	}
}

static __always_inline void sum_begin(struct signal_struct *s, bool process)
{
	st.utime = st.stime = st.runtime = st.min_flt = st.maj_flt = st.nvcsw = st.nivcsw = 0;
	if (NEED_TIME) {
		st.utime = process ? R(s, utime) : 0;
		st.stime = process ? R(s, stime) : 0;
	}
	if (NEED_TIME || WANT(TASK_DIAG_SCHED))
		st.runtime = process ? R(s, sum_sched_runtime) : 0;
	if (NEED_STAT(GUEST_NS))
		st.gtime = process ? R(s, gtime) : 0;
	if (NEED_STAT(MINFLT))
		st.min_flt = process ? R(s, min_flt) : 0;
	if (NEED_STAT(MAJFLT))
		st.maj_flt = process ? R(s, maj_flt) : 0;
	if (WANT(TASK_DIAG_SCHED)) {
		st.nvcsw = process ? R(s, nvcsw) : 0;
		st.nivcsw = process ? R(s, nivcsw) : 0;
	}
	st.run_delay = st.pcount = 0;
	if (WANT(TASK_DIAG_IO)) {
		st.io[0] = process ? R(s, ioac.rchar) : 0;
		st.io[1] = process ? R(s, ioac.wchar) : 0;
		st.io[2] = process ? R(s, ioac.syscr) : 0;
		st.io[3] = process ? R(s, ioac.syscw) : 0;
		st.io[4] = process ? R(s, ioac.read_bytes) : 0;
		st.io[5] = process ? R(s, ioac.write_bytes) : 0;
		st.io[6] = process ? R(s, ioac.cancelled_write_bytes) : 0;
	}
}

/* As cputime_adjust(), but previously shown values are not stored. */
static __always_inline void adjust(u64 *ut, u64 *st_, u64 rtime, u64 prev_u, u64 prev_s)
{
	u64 utime = *ut, stime = *st_;

	if (prev_s + prev_u >= rtime) {
		*ut = prev_u;
		*st_ = prev_s;
		return;
	}
	if (stime == 0)
		stime = 0;
	else if (utime == 0)
		stime = rtime;
	else
		stime = mul_div(stime, rtime, stime + utime);
	if (stime > rtime)
		stime = rtime;
	if (stime < prev_s)
		stime = prev_s;
	utime = rtime - stime;
	if (utime < prev_u) {
		utime = prev_u;
		stime = rtime - utime;
	}
	*ut = utime;
	*st_ = stime;
}

/* The device number of a terminal, or 0 if the session no longer has this terminal. */
static __always_inline u32 tty_nr(struct signal_struct *s, struct tty_struct *tty)
{
	struct tty_driver *d = R(tty, driver);
	u32 major, minor, index = R(tty, index);
	bool same;

	if (!STILL(s, tty, tty))
		return 0;
	major = R(d, major);
	minor = R(d, minor_start) + index;
	/* Another terminal may be at the same address by now, so its driver and number are compared, too. */
	same = STILL(tty, driver, d) && R(tty, index) == index;
	if (!STILL(s, tty, tty) || !same)
		return 0;
	return (minor & 0xff) | (major << 8) | ((minor & ~0xffu) << 12);
}

static __always_inline struct pid *tty_pgrp(struct tty_struct *tty)
{
	if (bpf_core_field_exists(tty->ctrl.pgrp))
		return LOAD_AGAIN(tty, ctrl.pgrp);
	return LOAD_AGAIN((struct tty_struct___pgrp *)tty, pgrp);
}

/* The foreground group of the terminal. A group that only the terminal still has is freed at once when another becomes the
 * foreground group, so the pointer is read again after the number. */
static __always_inline void put_tty_pgrp(struct task_diag_stat *a, struct signal_struct *s, struct tty_struct *tty)
{
	struct pid *pgrp;
	bool same;
	u32 nr;

	a->tty_pgrp = -1;
	if (!tty)
		return;
	pgrp = tty_pgrp(tty);
	if (!STILL(s, tty, tty))
		return;
	nr = pid_nr(pgrp);
	GAP();
	same = tty_pgrp(tty) == pgrp;
	if (STILL(s, tty, tty) && same)
		a->tty_pgrp = nr;
	else
		a->valid &= ~(1u << STAT_TTY_PGRP);
}

static __always_inline u32 task_cpu(struct task_struct *t)
{
	struct task_struct___cpu *old = (void *)t;

	if (bpf_core_field_exists(old->cpu))
		return R(old, cpu);
	return R(t, thread_info.cpu);
}

GROUP_FN put_stat(void)
{
	bool process = IS_PROCESS;
	struct task_struct *t = THIS;
	struct task_diag_stat *a = here();
	struct signal_struct *s = process || NEED_SIGNAL ? R(t, signal) : NULL;
	struct tty_struct *tty;
	struct mm_struct *mm;
	u64 ut = st.utime, stm = st.stime, locked;

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_STAT);
	if (!NEED_TIME)
		;
	else if (process)
		adjust(&ut, &stm, st.runtime, R(s, prev_cputime.utime), R(s, prev_cputime.stime));
	else
		adjust(&ut, &stm, st.runtime, R(t, prev_cputime.utime), R(t, prev_cputime.stime));
	a->valid = ALL_OF(STAT) & ~cfg.skip_stat;
	if (st.sum_lost)
		a->valid &= ~(1u << STAT_MINFLT | 1u << STAT_MAJFLT | 1u << STAT_UTIME_NS | 1u << STAT_STIME_NS |
			      1u << STAT_GUEST_NS);
	a->minflt = IF_STAT(MINFLT, st.min_flt);
	a->majflt = IF_STAT(MAJFLT, st.maj_flt);
	a->cminflt = IF_STAT(CMINFLT, R(s, cmin_flt));
	a->cmajflt = IF_STAT(CMAJFLT, R(s, cmaj_flt));
	a->utime_ns = IF_STAT(UTIME_NS, ut);
	a->stime_ns = IF_STAT(STIME_NS, stm);
	a->cutime_ns = IF_STAT(CUTIME_NS, R(s, cutime));
	a->cstime_ns = IF_STAT(CSTIME_NS, R(s, cstime));
	a->guest_ns = IF_STAT(GUEST_NS, st.gtime);
	a->cguest_ns = IF_STAT(CGUEST_NS, R(s, cgtime));
	a->nice = IF_STAT(NICE, R(t, static_prio) - 120);
	a->priority = IF_STAT(PRIORITY, R(t, prio) - 100);
	a->rt_priority = IF_STAT(RT_PRIORITY, R(t, rt_priority));
	a->policy = IF_STAT(POLICY, R(t, policy));
	a->processor = IF_STAT(PROCESSOR, task_cpu(t));
	a->num_threads = IF_STAT(NUM_THREADS, R(s, nr_threads));
	a->tty_nr = a->tty_pgrp = 0;
	if (NEED_STAT(TTY_NR) || NEED_STAT(TTY_PGRP)) {
		tty = R(s, tty);
		a->tty_nr = IF_STAT(TTY_NR, tty ? tty_nr(s, tty) : 0);
		if (NEED_STAT(TTY_PGRP))
			put_tty_pgrp(a, s, tty);
	}
	a->exit_signal = IF_STAT(EXIT_SIGNAL, R(t, exit_signal));
	a->flags = 0;
	if (NEED_STAT(FLAGS)) {
		mm = R(t, mm);
		locked = mm && !(R(t, flags) & PF_KTHREAD) ? R(mm, locked_vm) : 0;
		if (STILL(t, mm, mm) && locked)
			a->flags = TASK_DIAG_STAT_LOCKED;
	}
	return 0;
}

GROUP_FN put_io(void)
{
	struct task_diag_io *a = here();

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_IO);
	a->valid = st.sum_lost ? 0 : ALL_OF(IO);
	a->rchar = st.io[0];
	a->wchar = st.io[1];
	a->syscr = st.io[2];
	a->syscw = st.io[3];
	a->read_bytes = st.io[4];
	a->write_bytes = st.io[5];
	a->cancelled_write_bytes = st.io[6];
	return 0;
}

GROUP_FN put_sched(void)
{
	struct task_diag_sched *a = here();

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_SCHED);
	a->valid = st.sum_lost ? 0 : ALL_OF(SCHED);
	a->run_time_ns = st.runtime;
	a->run_delay_ns = st.run_delay;
	a->timeslices = st.pcount;
	a->nvcsw = st.nvcsw;
	a->nivcsw = st.nivcsw;
	a->flags = 0;
	a->reserved = 0;
	return 0;
}

/* ---- STATM ---- */

/* The members that are sums of counters, which have a part for each CPU. */
#define NEED_COUNTERS (NEED_STATM(RSS_BYTES) || NEED_STATM(RSS_ANON_BYTES) || NEED_STATM(RSS_FILE_BYTES) ||	\
		       NEED_STATM(RSS_SHMEM_BYTES) || NEED_STATM(PEAK_RSS_BYTES) || NEED_STATM(SWAP_BYTES))
#define NEED_TEXT_SIZE (NEED_STATM(TEXT_BYTES) || NEED_STATM(LIB_BYTES))

#ifdef LEGACY

/* Add what one CPU holds of the counter whose per-CPU pointer is st.arg. */
static long add_cpu(u32 cpu, void *unused)
{
	int held = 0;

	(void)unused;
	bpf_probe_read_kernel(&held, sizeof(held), (void *)(st.arg + st.cpu_offset[cpu & (CPUS_MAX - 1)]));
	st.rss += held;
	return 0;
}

#endif

/* The type of a counter of an mm since Linux commit f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter") (in v6.2). */
static __always_inline struct percpu_counter *rss_counter(struct mm_struct *mm, int i)
{
	return CAST(struct percpu_counter, (char *)&mm->rss_stat + i * bpf_core_type_size(struct percpu_counter));
}

/* As get_mm_counter_sum(): the shared counts plus what each CPU has not yet added to them. */
static __always_inline void rss_counters(struct mm_struct *mm, s64 *sum)
{
	struct mm_struct___array *old = (void *)mm;
	char *held[RSS_COUNTERS] __attribute__((unused));
	u32 cpu __attribute__((unused));
	u64 off __attribute__((unused));
	int i;

	if (bpf_core_field_exists(old->rss_stat.count)) {
#pragma unroll
		for (i = 0; i < RSS_COUNTERS; i++)
			if (bpf_probe_read_kernel(&sum[i], 8, (char *)&old->rss_stat.count + i * 8))
				sum[i] = 0;
		return;
	}
#ifdef LEGACY
#pragma unroll
	for (i = 0; i < RSS_COUNTERS; i++) {
		st.rss = R(rss_counter(mm, i), count);
		st.arg = (u64)R(rss_counter(mm, i), counters);
		/* An mm is freed at once, so its pointer is followed only if the mm is still the task's. */
		if (st.arg && STILL(THIS, mm, mm))
			bpf_loop(st.ncpus, add_cpu, NULL, 0);
		sum[i] = st.rss;
	}
#else
#pragma unroll
	for (i = 0; i < RSS_COUNTERS; i++) {
		sum[i] = R(rss_counter(mm, i), count);
		held[i] = (char *)R(rss_counter(mm, i), counters);
	}
	/* An mm is freed at once, so its pointers are followed only if the mm is still the task's. All are of one allocation.
	 * One loop for all counters is faster than one for each, because each turn of a loop calls the kernel. */
	if (held[0] && STILL(THIS, mm, mm))
		bpf_for(cpu, 0, st.ncpus) {
			off = st.cpu_offset[cpu & (CPUS_MAX - 1)];
#pragma unroll
			for (i = 0; i < RSS_COUNTERS; i++)
				sum[i] += R(CAST(struct kref, held[i] + off), refcount.refs.counter);
		}
#endif
}

/* The number, or 0 if it is negative. There is no jump, since the verifier follows both ways of each. */
static __always_inline u64 not_negative(s64 v)
{
	s64 sign = v >> 63;

	barrier_var(sign);
	return v & ~sign;
}

/* The larger of two numbers below 2^63. */
static __always_inline u64 larger(u64 a, u64 b)
{
	return a + not_negative(b - a);
}

GROUP_FN put_statm(void)
{
	struct task_struct *t = THIS;
	struct mm_struct *mm = R(t, mm);
	struct task_diag_statm *a;
	u64 anon, file, shmem, rss, v, text, exec, page = 1ull << cfg.page_shift;
	s64 sum[RSS_COUNTERS] = {};

	if (!mm || R(t, flags) & PF_KTHREAD) {
		missing(TASK_DIAG_STATM, TASK_DIAG_R_ABSENT);
		return 0;
	}
	a = here();
	if (!a)
		return 0;
	if (NEED_COUNTERS)
		rss_counters(mm, sum);
	a->valid = ALL_OF(STATM) & ~cfg.skip_statm;
	anon = not_negative(sum[MM_ANONPAGES]);
	file = not_negative(sum[MM_FILEPAGES]);
	shmem = not_negative(sum[MM_SHMEMPAGES]);
	a->swap_bytes = not_negative(sum[MM_SWAPENTS]) << cfg.page_shift;
	rss = anon + file + shmem;
	a->rss_bytes = rss << cfg.page_shift;
	a->rss_anon_bytes = anon << cfg.page_shift;
	a->rss_file_bytes = file << cfg.page_shift;
	a->rss_shmem_bytes = shmem << cfg.page_shift;
	a->peak_rss_bytes = larger(rss, IF_STATM(PEAK_RSS_BYTES, R(mm, hiwater_rss))) << cfg.page_shift;
	v = R(mm, total_vm);
	a->size_bytes = v << cfg.page_shift;
	if (NEED_STATM(PEAK_SIZE_BYTES))
		v = larger(v, R(mm, hiwater_vm));
	a->peak_size_bytes = v << cfg.page_shift;
	a->data_bytes = IF_STATM(DATA_BYTES, (u64)R(mm, data_vm) << cfg.page_shift);
	a->stack_bytes = IF_STATM(STACK_BYTES, (u64)R(mm, stack_vm) << cfg.page_shift);
	a->text_bytes = a->lib_bytes = 0;
	if (NEED_TEXT_SIZE) {
		exec = (u64)R(mm, exec_vm) << cfg.page_shift;
		text = ((R(mm, end_code) + page - 1) & ~(page - 1)) - (R(mm, start_code) & ~(page - 1));
		if (text > exec)
			text = exec;
		a->text_bytes = text;
		a->lib_bytes = exec - text;
	}
	a->locked_bytes = IF_STATM(LOCKED_BYTES, (u64)R(mm, locked_vm) << cfg.page_shift);
	a->pinned_bytes = IF_STATM(PINNED_BYTES, (u64)R(mm, pinned_vm.counter) << cfg.page_shift);
	a->page_tables_bytes = IF_STATM(PAGE_TABLES_BYTES, R(mm, pgtables_bytes.counter));
	/* A kernel without CONFIG_HUGETLB_PAGE does not have this member. */
	if (!bpf_core_field_exists(mm->hugetlb_usage)) {
		a->hugetlb_bytes = 0;
		a->valid &= ~(1u << STATM_HUGETLB_BYTES);
	} else {
		a->hugetlb_bytes = IF_STATM(HUGETLB_BYTES, (u64)R(mm, hugetlb_usage.counter) << cfg.page_shift);
	}
	if (!STILL(t, mm, mm)) {
		/* The task has ended, or has become another program. */
		missing(TASK_DIAG_STATM, R(t, mm) ? TASK_DIAG_R_VANISHED : TASK_DIAG_R_ABSENT);
		return 0;
	}
	PUT(a, TASK_DIAG_STATM);
	return 0;
}

#endif
