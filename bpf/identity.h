/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * BASE and CRED: the identity of a task, and its owner.
 */
#ifndef TASKDIAG_IDENTITY_H
#define TASKDIAG_IDENTITY_H

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

/* The comm is the task's whole name. */
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
	struct task_struct___kthread *old = (void *)t;

	k = bpf_core_field_exists(t->worker_private) ? R(t, worker_private) : R(old, set_child_tid);
	if (!k)
		return COMM_PLAIN;
	k = CAST(struct kthread, k);
	/* A worker shows its whole name since Linux commit 2a1b02bcba78 ("workqueue: Refactor worker ID formatting and make
	 * wq_worker_comm() use full ID string") (in v6.10). */
	if (bpf_core_field_exists(k->full_name) && R(k, full_name) && !(cfg.short_workers && R(t, flags) & PF_WQ_WORKER))
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
	/* Verifiers up to Linux 6.12 lose the bounds of n here. Without the barrier, the compiler, which still knows
	 * them, drops the mask that the verifier needs. */
	barrier_var(n);
	name = comm + (n & 31);
	more = bpf_probe_read_kernel_str(name, 32, &w->desc);
	/* A worker that ends gives its struct back at once, before its thread is gone. The name belongs to the worker only if the
	 * thread is still one and has this worker. Otherwise the bytes are cleared. */
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

#endif
