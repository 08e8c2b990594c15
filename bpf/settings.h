/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * SETTINGS, PERSONA and NS_ID: what a task has set for itself or got from
 * others, and numbers of its namespaces that no later one gets.
 */
#ifndef TASKDIAG_SETTINGS_H
#define TASKDIAG_SETTINGS_H

#include "raw.h"

enum {
	MASK_WORDS = 128,		/* for 8192 processors, the most that x86-64 has */
	IOPRIO_CLASS_SHIFT = 13,
	MMF_DISABLE_THP = 24,		/* linux/mm_types.h, or linux/sched/coredump.h before 6.10 */
	BASE_EXTENTS = 5,		/* UID_GID_MAP_MAX_BASE_EXTENTS: more are elsewhere */
	EXTENTS_MAX = 340,		/* UID_GID_MAP_MAX_EXTENTS */
	EXTENT_SIZE = 12,
};

/* Write the first st.n bits of the mask st.arg. */
GROUP_FN put_mask(u32 attr)
{
	struct task_diag_blob *b;
	u32 words = (st.n + 63) / 64, rest = st.n & 63, len = words * 8;

	spill();
	b = begin_blob();
	if (!b || !words || words > MASK_WORDS)
		return 0;
	barrier_var(len);
	len &= 0x7ff;
	if (bpf_probe_read_kernel(b->data, len, (void *)st.arg))
		return 0;
	if (rest)
		((u64 *)b->data)[(words - 1) & (MASK_WORDS - 1)] &= (1ull << rest) - 1;
	end_blob(b, attr, 0, len, 0, len, 0, 0);
	return 0;
}

#define UNKNOWN(record, member) (a->valid &= ~(1u << (record##_##member)))

GROUP_FN put_settings(void)
{
	struct task_struct *t = THIS;
	struct task_diag_settings *a = here();
	u64 mm = R(t, flags) & PF_KTHREAD ? 0 : RD(u64, t, TASK_MM);
	u64 fs = RD(u64, t, TASK_FS), io = RD_MAY(u64, t, TASK_IO_CONTEXT), flags, core;
	u32 prio, umask;

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_SETTINGS);
	a->valid = ALL_OF(SETTINGS);
	a->ioprio = a->umask = a->seccomp_filters = a->thp_enabled = a->coredumping = a->reserved = 0;
	/* An io_context and an fs_struct are freed at once, so a value counts only if the object is still the task's. */
	prio = io ? RD_MAY(__u16, io, IO_CONTEXT_PRIO) : 0;
	if (HAVE(TASK_IO_CONTEXT) && HAVE(IO_CONTEXT_PRIO) && STILL_AT(t, TASK_IO_CONTEXT, io))
		a->ioprio = prio >> IOPRIO_CLASS_SHIFT ? prio : 0;
	else
		UNKNOWN(SETTINGS, IOPRIO);
	umask = fs ? RD(u32, fs, FS_UMASK) : 0;
	if (fs && STILL_AT(t, TASK_FS, fs))
		a->umask = umask;
	else
		UNKNOWN(SETTINGS, UMASK);
	if (HAVE(SECCOMP_FILTERS))
		a->seccomp_filters = RD(u32, t, SECCOMP_FILTERS);
	else
		UNKNOWN(SETTINGS, SECCOMP_FILTERS);
	flags = mm ? RD(u64, mm, MM_FLAGS) : 0;
	/* Since Linux 5.16, in the signal_struct. */
	core = HAVE(SIGNAL_CORE_STATE) ? RD(u64, RD(u64, t, TASK_SIGNAL), SIGNAL_CORE_STATE) :
	       mm ? RD_MAY(u64, mm, MM_CORE_STATE) : 0;
	if (mm && STILL_AT(t, TASK_MM, mm)) {
		a->thp_enabled = !(flags >> MMF_DISABLE_THP & 1);
		a->coredumping = !!core;
	} else {
		UNKNOWN(SETTINGS, THP_ENABLED);
		UNKNOWN(SETTINGS, COREDUMPING);
	}
	if (!cfg.has_thp) {
		a->thp_enabled = 0;
		UNKNOWN(SETTINGS, THP_ENABLED);
	}
	st.arg = (u64)t + OFF(TASK_CPUS);
	st.n = cfg.cpus;
	put_mask(TASK_DIAG_A_CPUS);
	if (HAVE(TASK_MEMS)) {
		st.arg = (u64)t + OFF(TASK_MEMS);
		st.n = cfg.nodes;
		put_mask(TASK_DIAG_A_MEMS);
	}
	is_late(8);
	return 0;
}

/* Write the struct uid_gid_map st.arg. The kernel sets it once, the number of its extents last. */
GROUP_FN put_id_map(u32 attr)
{
	struct task_diag_blob *b;
	u64 from = st.arg + OFF(ID_MAP_EXTENT);
	u32 n = RD(u32, st.arg, ID_MAP_COUNT), len;

	order();
	if (n > BASE_EXTENTS)
		from = RD(u64, st.arg, ID_MAP_FORWARD);
	if (n > EXTENTS_MAX)
		n = EXTENTS_MAX;
	spill();
	b = begin_blob();
	len = n * EXTENT_SIZE;
	barrier_var(len);
	len &= 0xfff;
	if (!b || (len && bpf_probe_read_kernel(b->data, len, (void *)from)))
		return 0;
	is_late(len / 256);
	end_blob(b, attr, 0, len, 0, len, 0, 0);
	return 0;
}

GROUP_FN put_persona(void)
{
	struct task_struct *t = THIS;
	struct task_diag_persona *a = here();
	u64 ns = RD(u64, RD(u64, t, TASK_REAL_CRED), CRED_USER_NS);

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_PERSONA);
	a->valid = ALL_OF(PERSONA);
	a->timer_slack_ns = RD(u64, t, TASK_TIMER_SLACK);
	a->personality = RD(u32, t, TASK_PERSONALITY);
	a->reserved = 0;
	/* A user_namespace lives as long as a cred that has it. */
	st.arg = ns + OFF(USER_NS_UID_MAP);
	put_id_map(TASK_DIAG_A_UID_MAP);
	st.arg = ns + OFF(USER_NS_GID_MAP);
	put_id_map(TASK_DIAG_A_GID_MAP);
	return 0;
}

/* The number of the namespace that the nsproxy has. */
#define ID_OF(member, type) RD_MAY(u64, RD_MAY(u64, ns, NSPROXY_##member), type##_NS_ID)

GROUP_FN put_ns_id(void)
{
	struct task_struct *t = THIS;
	struct task_diag_ns_id *a = here();
	/* The namespaces may be those of a living thread (to_memory()), but the pid is that of the task. */
	struct pid *pid = R(CAST(struct task_struct, (void *)st.own_task), thread_pid);
	u64 ns = RD(u64, t, TASK_NSPROXY);
	u32 level = pid ? R(pid, level) & 63 : 0, same;
	struct upid u = {};

	if (!a)
		return 0;
	if (!HAVE(UTS_NS_ID) || !HAVE(USER_NS_ID)) {
		missing(TASK_DIAG_NS_ID, TASK_DIAG_R_UNSUPPORTED);
		return 0;
	}
	PUT(a, TASK_DIAG_NS_ID);
	a->valid = ALL_OF(NS_ID);
	a->cgroup = a->ipc = a->mnt = a->net = a->pid = a->pid_for_children = a->time = a->time_for_children = 0;
	a->user = a->uts = 0;
	/* An nsproxy is freed at once, so what it pointed to is looked at only if it is still the task's. */
	if (ns && STILL_AT(t, TASK_NSPROXY, ns)) {
		a->cgroup = ID_OF(CGROUP, CGROUP);
		a->ipc = ID_OF(IPC, IPC);
		a->mnt = ID_OF(MNT, MNT);
		a->net = ID_OF(NET, NET);
		a->pid_for_children = ID_OF(CHILDREN, PID);
		a->time = ID_OF(TIME, TIME);
		a->time_for_children = ID_OF(TIME_CHILDREN, TIME);
		a->uts = ID_OF(UTS, UTS);
	}
	a->user = RD(u64, RD(u64, RD(u64, t, TASK_REAL_CRED), CRED_USER_NS), USER_NS_ID);
	if (pid && !bpf_probe_read_kernel(&u, sizeof(u), (char *)pid +
			__builtin_preserve_field_info(((struct pid *)0)->numbers, BPF_FIELD_BYTE_OFFSET) +
			level * sizeof(u)))
		a->pid = RD(u64, u.ns, PID_NS_ID);
	/* A namespace that has ended has something else where its number was. */
	same = STILL_AT(t, TASK_NSPROXY, ns);
	/* Without the barrier, the compiler leaves the comparison out where there is no nsproxy. */
	barrier_var(same);
	if (!same || !ns) {
		/* A zombie has only its pid and user namespaces left. */
		a->valid = 1 << NS_ID_PID | 1 << NS_ID_USER;
		a->cgroup = a->ipc = a->mnt = a->net = a->pid_for_children = a->time = a->time_for_children = 0;
		a->uts = 0;
	}
	/* 0 is no number. */
	if (!a->cgroup)
		UNKNOWN(NS_ID, CGROUP);
	if (!a->ipc)
		UNKNOWN(NS_ID, IPC);
	if (!a->mnt)
		UNKNOWN(NS_ID, MNT);
	if (!a->net)
		UNKNOWN(NS_ID, NET);
	if (!a->pid)
		UNKNOWN(NS_ID, PID);
	if (!a->pid_for_children)
		UNKNOWN(NS_ID, PID_FOR_CHILDREN);
	if (!a->time)
		UNKNOWN(NS_ID, TIME);
	if (!a->time_for_children)
		UNKNOWN(NS_ID, TIME_FOR_CHILDREN);
	if (!a->user)
		UNKNOWN(NS_ID, USER);
	if (!a->uts)
		UNKNOWN(NS_ID, UTS);
	return 0;
}

#endif
