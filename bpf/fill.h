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
 * everything was read (see docs/safety.md).
 */
#ifndef TASKDIAG_FILL_H
#define TASKDIAG_FILL_H

#include "out.h"

/* ---- BASE ---- */

static __always_inline u8 state_letter(struct task_struct *t)
{
	u32 tsk = R(t, __state);
	u64 s = (tsk | R(t, exit_state)) & 0x7f;

	/* As __task_state_index() and "RSDTtXZPI" do: first TASK_IDLE, then RTLOCK_WAIT and FROZEN. */
	if ((tsk & 0x402) == 0x402)
		return 'I';
	if (tsk & 0x9000)
		return 'D';
	/* The highest bit selects a letter of "RSDTtXZP". There are no jumps, since the verifier follows both ways of
	 * each. Instead 2^n (n from 0 to 7) to the eighth power shifts the text by n letters. */
	s |= s >> 1;
	s |= s >> 2;
	s |= s >> 4;
	s++;
	s *= s;
	s *= s;
	s *= s;
	return 0x5253445474585a50 * s >> 56;
}

/* The task has no longer name than its comm. */
#define COMM_PLAIN 0xffffffffu

/* As proc_task_name(): a kernel thread has a longer name, and a worker adds what it works on. Returns the length. */
static __always_inline u32 kthread_name(struct task_struct *t, char *comm)
{
	struct kthread *k;
	struct worker *w;
	char *name, plus;
	bool has_pool;
	void *data;
	long n = -1, more;

	if (!bpf_core_field_exists(t->worker_private) || !R(t, worker_private))
		return COMM_PLAIN;
	k = CAST(struct kthread, R(t, worker_private));
	if (bpf_core_field_exists(k->full_name) && R(k, full_name))
		n = bpf_probe_read_kernel_str(comm, 64, R(k, full_name));
	if (n < 0)
		n = bpf_probe_read_kernel_str(comm, 64, &t->comm);
	if (n <= 0)
		return COMM_PLAIN;
	if (!(R(t, flags) & PF_WQ_WORKER) || n > 31)
		return n - 1;
	data = R(k, data);
	if (!data)
		return n - 1;
	w = CAST(struct worker, data);
	has_pool = R(w, pool);
	plus = R(w, current_work) ? '+' : '-';
	/* Verifiers up to Linux 6.12 lose the bounds of n here. The barrier keeps the compiler, which still knows them,
	 * from dropping the mask that the verifier needs. */
	barrier_var(n);
	name = comm + (n & 31);
	more = bpf_probe_read_kernel_str(name, 32, &w->desc);
	/* A worker that ends gives its struct back at once, before its thread is gone. The name is that of the worker only if the
	 * thread is still one and has this worker. Else the bytes are cleared. */
	if (!STILL(k, data, data) || more <= 1 || !has_pool || !(LOAD_AGAIN(t, flags) & PF_WQ_WORKER)) {
		bpf_probe_read_kernel(name, 32, NULL);
		name[-1] = 0;
		return n - 1;
	}
	name[-1] = plus;
	return n + more - 1;
}

/* Copy the task's comm, which has room for 15 bytes and a NUL. */
static __always_inline void put_comm(struct task_struct *t, u64 *comm)
{
#ifdef LEGACY
	bpf_core_read(comm, 16, &t->comm);
#else
	/* Two words are copied; single bytes would take thirty instructions. */
	struct timespec64 *words = CAST(struct timespec64, &t->comm);

	comm[0] = words->tv_sec;
	comm[1] = words->tv_nsec;
#endif
	((char *)comm)[15] = 0;
}

/* Write the name of a kernel thread: its first 15 bytes into BASE and, if it is longer, all of it after BASE. */
static __always_inline void put_kthread_comm(struct task_struct *t, u64 *comm)
{
	struct task_diag_blob *b = begin_blob();
	u64 *text;
	u32 len;

	if (!b)
		return;
	text = (u64 *)b->data;
	text[0] = text[1] = 0;
	len = kthread_name(t, b->data);
	if (len == COMM_PLAIN)
		return;
	comm[0] = text[0];
	comm[1] = text[1];
	((char *)comm)[15] = 0;
	len &= 63;
	if (len > 15)
		end_blob(b, TASK_DIAG_A_COMM, 0, len, 0, len, 0, 0);
}

GROUP_FN put_base(void)
{
	struct task_struct *t = THIS;
	struct task_diag_base *a = here();
	u64 *comm;

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_BASE);
	a->valid = ALL_OF(BASE) & ~cfg.skip_base;
	a->ppid = IF_BASE(PPID, task_tgid_nr(R(t, real_parent)));
	a->pgid = IF_BASE(PGID, pid_nr(R(t, signal, pids[PIDTYPE_PGID])));
	a->sid = IF_BASE(SID, pid_nr(R(t, signal, pids[PIDTYPE_SID])));
	a->flags = IF_BASE(FLAGS, (R(t, flags) & PF_KTHREAD ? TASK_DIAG_TASK_KTHREAD : 0) |
				  (R(t, flags) & PF_EXITING ? TASK_DIAG_TASK_EXITING : 0));
	a->task_flags = IF_BASE(TASK_FLAGS, R(t, flags));
	a->state = IF_BASE(STATE, state_letter(t));
	a->reserved[0] = a->reserved[1] = a->reserved[2] = 0;
	a->start_time_ns = IF_BASE(START_TIME_NS, R(t, start_boottime) + st.ns_boottime_ns);
	comm = (u64 *)a->comm;
	if (NEED_BASE(COMM)) {
		put_comm(t, comm);
		if (R(t, flags) & PF_KTHREAD)
			put_kthread_comm(t, comm);
	} else {
		comm[0] = comm[1] = 0;
	}
	return 0;
}

/* ---- CRED ---- */

/* Two u32 before Linux commit f122a08b197d ("capability: just use a 'u64' instead of a 'u32[2]'
 * array") (in v6.3): the same 8 bytes on little endian. */
#ifdef LEGACY
#define CAPS(c, set) ({ u64 v_ = 0; bpf_core_read(&v_, 8, &(c)->set); v_; })
#else
#define CAPS(c, set) R(c, set.val)
#endif

#define GIDS_MAX 8000	/* in one blob; more come in the next */

/* Write a part of the st.n groups that the struct group_info st.arg has: those from number `done` on. Returns 0 if they could
 * not be read. */
GROUP_FN put_gids(u32 done)
{
	struct task_diag_blob *b;
	u32 n = st.n, some = n - done;

	spill();
	b = begin_blob();
	if (some > GIDS_MAX)
		some = GIDS_MAX;
	some *= 4;
	barrier_var(some);
	some &= 0x7fff;
	if (!b || bpf_probe_read_kernel(b->data, some, (u32 *)&CAST(struct group_info, (void *)st.arg)->gid + done))
		return 0;
	is_late(some / 256);
	end_blob(b, TASK_DIAG_A_GROUPS, 0, some, done * 4, n * 4, 0, 0);
	return 1;
}

GROUP_FN put_cred(void)
{
	struct task_struct *t = THIS;
	const struct cred *c = R(t, real_cred);
	struct task_diag_cred *a = here();
	struct group_info *gi;
	u32 n, i;

	if (!a || !c)
		return 0;
	PUT(a, TASK_DIAG_CRED);
	a->valid = ALL_OF(CRED) & ~cfg.skip_cred;
	a->uid = IF_CRED(UID, R(c, uid.val));
	a->euid = IF_CRED(EUID, R(c, euid.val));
	a->suid = IF_CRED(SUID, R(c, suid.val));
	a->fsuid = IF_CRED(FSUID, R(c, fsuid.val));
	a->gid = IF_CRED(GID, R(c, gid.val));
	a->egid = IF_CRED(EGID, R(c, egid.val));
	a->sgid = IF_CRED(SGID, R(c, sgid.val));
	a->fsgid = IF_CRED(FSGID, R(c, fsgid.val));
	a->tracer_pid = IF_CRED(TRACER_PID, R(t, ptrace) ? task_nr(R(t, parent)) : 0);
	a->securebits = IF_CRED(SECUREBITS, R(c, securebits));
	a->no_new_privs = IF_CRED(NO_NEW_PRIVS, R(t, atomic_flags) & 1);
	a->seccomp = IF_CRED(SECCOMP, R(t, seccomp.mode));
	a->cap_inheritable = IF_CRED(CAP_INHERITABLE, CAPS(c, cap_inheritable));
	a->cap_permitted = IF_CRED(CAP_PERMITTED, CAPS(c, cap_permitted));
	a->cap_effective = IF_CRED(CAP_EFFECTIVE, CAPS(c, cap_effective));
	a->cap_bounding = IF_CRED(CAP_BOUNDING, CAPS(c, cap_bset));
	a->cap_ambient = IF_CRED(CAP_AMBIENT, CAPS(c, cap_ambient));
	a->ngroups = 0;
	a->reserved = 0;
	if (!NEED_CRED(NGROUPS))
		return 0;
	gi = R(c, group_info);
	n = R(gi, ngroups);
	a->ngroups = n;
	st.arg = (u64)gi;
	st.n = n;
	EACH(i, 0, 65536 / GIDS_MAX + 1, 65536 / GIDS_MAX + 1)
		if (i * GIDS_MAX >= n || !put_gids(i * GIDS_MAX))
			break;
	return 0;
}

/* ---- STAT, IO, SCHED: values of a thread, or sums over a process ---- */

static __always_inline void add_thread(struct task_struct *t)
{
	if (NEED_TIME) {
		st.utime += R(t, utime);
		st.stime += R(t, stime);
	}
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

#include "muldiv.h"

/* As cputime_adjust(), but the values that were shown last are not stored. */
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
 * foreground group, so it is compared after its number was read. */
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
		a->valid &= ~(1u << STAT_MINFLT | 1u << STAT_MAJFLT | 1u << STAT_UTIME_NS | 1u << STAT_STIME_NS);
	a->minflt = IF_STAT(MINFLT, st.min_flt);
	a->majflt = IF_STAT(MAJFLT, st.maj_flt);
	a->cminflt = IF_STAT(CMINFLT, R(s, cmin_flt));
	a->cmajflt = IF_STAT(CMAJFLT, R(s, cmaj_flt));
	a->utime_ns = IF_STAT(UTIME_NS, ut);
	a->stime_ns = IF_STAT(STIME_NS, stm);
	a->cutime_ns = IF_STAT(CUTIME_NS, R(s, cutime));
	a->cstime_ns = IF_STAT(CSTIME_NS, R(s, cstime));
	a->nice = IF_STAT(NICE, R(t, static_prio) - 120);
	a->priority = IF_STAT(PRIORITY, R(t, prio) - 100);
	a->rt_priority = IF_STAT(RT_PRIORITY, R(t, rt_priority));
	a->policy = IF_STAT(POLICY, R(t, policy));
	a->processor = IF_STAT(PROCESSOR, R(t, thread_info.cpu));
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

#include "rare.h"

#endif
