/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sets a run up, and writes the groups of a task that need no trusted pointer.
 */
#ifndef TASKDIAG_PLAIN_H
#define TASKDIAG_PLAIN_H

#include "fill.h"
#include "rare.h"
#include "usermem.h"
#include "shared.h"
#include "room.h"
#ifndef NO_MORE
#include "raw.h"
#include "names.h"
#include "paths.h"
#include "filestat.h"
#include "vma.h"
#include "files.h"
#include "state.h"
#endif
#include "usertext.h"

#ifdef LEGACY

/* Find the offset of one CPU; st.arg is the per-CPU pointer of per_cpu. The address goes through memory, because the
 * verifier treats a pointer that was stored and read back as a number. */
static long find_cpu(u32 cpu, void *unused)
{
	u32 zero = 0;
	void *p = bpf_map_lookup_percpu_elem(&per_cpu, &zero, cpu);

	(void)unused;
	if (!p)
		return 1;
	*(volatile u64 *)&st.node = (u64)p;
	st.cpu_offset[cpu & (CPUS_MAX - 1)] = *(volatile u64 *)&st.node - st.arg;
	st.ncpus = cpu + 1;
	return 0;
}

static __always_inline void find_cpus(void)
{
	u64 base = 0;

	*(volatile u64 *)&st.arg = (u64)&per_cpu;
	bpf_probe_read_kernel(&base, sizeof(base), (void *)(*(volatile u64 *)&st.arg +
		__builtin_preserve_field_info(((struct bpf_array *)0)->pptrs, BPF_FIELD_BYTE_OFFSET)));
	st.arg = base;
	bpf_loop(CPUS_MAX, find_cpu, NULL, 0);
}

#endif

static __always_inline void set_up(void)
{
	struct task_struct *me = PLAIN(bpf_get_current_task_btf());
	struct pid *pid = R(me, thread_pid);
	struct upid u = {};
	u32 cpu __attribute__((unused)), zero __attribute__((unused)) = 0;

	if (st.set_up)
		return;
	st.set_up = 1;
	st.first_slice = st.slice;
	st.begin = bpf_ktime_get_boot_ns();
	st.level = cfg.first_ns ? 0 : R(pid, level);
	if (!cfg.first_ns && st.level > 0 && st.level <= 32 &&
	    !bpf_probe_read_kernel(&u, sizeof(u), (char *)pid +
			__builtin_preserve_field_info(((struct pid *)0)->numbers,
						      BPF_FIELD_BYTE_OFFSET) +
			st.level * sizeof(u)))
		st.ns = (u64)u.ns;
	st.ns_boottime_ns =
		R(me, nsproxy, time_ns, offsets.boottime.tv_sec) * 1000000000ull +
		R(me, nsproxy, time_ns, offsets.boottime.tv_nsec);
#ifndef NO_MORE
	if (WANT(TASK_DIAG_PATHS) || WANT(TASK_DIAG_VMA) || WANT(TASK_DIAG_FD))
		set_up_names(me);
	if (WANT(TASK_DIAG_WAIT))
		set_up_clock(me);
#endif
	if (WANT(TASK_DIAG_CMDLINE) || WANT(TASK_DIAG_ENVIRON))
		find_direct_map(me);
#ifdef LEGACY
	if (WANT(TASK_DIAG_STATM) && !bpf_core_field_exists(((struct mm_struct___array *)0)->rss_stat.count))
		find_cpus();
#else
	if (WANT(TASK_DIAG_STATM)) {
		u64 base = 0;

		bpf_probe_read_kernel(&base, sizeof(base), &CAST(struct bpf_array, &per_cpu)->pptrs);
		bpf_for(cpu, 0, CPUS_MAX) {
			void *p = bpf_map_lookup_percpu_elem(&per_cpu, &zero, cpu);

			if (!p)
				break;
			/* Pass it through memory, since the verifier treats a pointer that was stored and read back as a number. */
			*(volatile u64 *)&st.arg = (u64)p;
			st.cpu_offset[cpu & (CPUS_MAX - 1)] = *(volatile u64 *)&st.arg - base;
			st.ncpus = cpu + 1;
		}
	}
#endif
}

/*
 * The threads of a process share its memory, but the first thread may have ended before the others and then has no memory, and
 * no files, directories and namespaces either. So this sets st.task to a thread that lives, for the groups up to from_memory().
 * The list of threads begins with the first one. Only a few after it can be about to end and have no memory any more, so few
 * tries suffice.
 */
enum { LIVE_TRIES = 16 };

GROUP_FN to_memory(void)
{
	struct task_struct *t = THIS, *each;
	struct signal_struct *s = R(t, signal);
	struct list_head *node;
	u32 i;

	st.own_task = st.task;
	if (!IS_PROCESS || R(t, mm) || R(t, flags) & PF_KTHREAD || !R(t, exit_state) || R(s, nr_threads) < 2)
		return 0;
	st.arg = (u64)&s->thread_head;
	st.node = (u64)R(s, thread_head.next);
	EACH(i, 0, LIVE_TRIES, LIVE_TRIES) {
		if (st.node == st.arg)
			break;
		node = CAST(struct list_head, (void *)st.node);
		each = CAST(struct task_struct, (void *)(st.node - __builtin_preserve_field_info(
				((struct task_struct *)0)->thread_node, BPF_FIELD_BYTE_OFFSET)));
		if (R(each, mm)) {
			st.task = (u64)each;
			break;
		}
		st.node = (u64)R(node, next);
	}
	return 0;
}

static __always_inline void from_memory(void)
{
	st.task = st.own_task;
}

/* Write the groups that need no trusted pointer. */
GROUP_FN put_plain(void)
{
	if (WANT(TASK_DIAG_BASE))
		put_base();
	if (WANT(TASK_DIAG_CRED))
		put_cred();
	if (WANT(TASK_DIAG_STAT))
		put_stat();
	if (WANT(TASK_DIAG_IO))
		put_io();
	if (WANT(TASK_DIAG_SCHED))
		put_sched();
	if (WANT(TASK_DIAG_STATM) || WANT(TASK_DIAG_NS) || WANT(TASK_DIAG_CGROUP) || WANT(TASK_DIAG_FD_COUNT)) {
		to_memory();
		if (WANT(TASK_DIAG_STATM))
			put_statm();
		if (WANT(TASK_DIAG_NS))
			put_ns();
		if (WANT(TASK_DIAG_CGROUP))
			put_cgroup();
		if (WANT(TASK_DIAG_FD_COUNT))
			put_fd_count();
		from_memory();
	}
#ifndef NO_MORE
	put_states();
	if (WANT(TASK_DIAG_LAYOUT) || WANT(TASK_DIAG_NS_ID)) {
		to_memory();
		if (WANT(TASK_DIAG_LAYOUT))
			put_layout();
		if (WANT(TASK_DIAG_NS_ID))
			put_ns_id();
		from_memory();
	}
#endif
	return 0;
}

#endif
