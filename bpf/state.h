/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * LIMITS, SIGNALS, WCHAN, KSTACK, WAIT, AUTOGROUP, LOGIN, PIDFD and LAYOUT:
 * limits and signals of a task, where it waits in the kernel, the groups and
 * login it belongs to, and where its code and stack are. wait.h has what WAIT
 * needs, delays.h has DELAYS, and settings.h has SETTINGS, PERSONA and NS_ID.
 */
#ifndef TASKDIAG_STATE_H
#define TASKDIAG_STATE_H

#include "delays.h"
#include "names.h"
#include "raw.h"
#include "settings.h"
#include "wait.h"

enum { SIGNALS_MAX = 64, UCOUNT_SIGPENDING = 2, FRAMES_MAX = 64 };

GROUP_FN put_limits(void)
{
	struct task_struct *t = THIS;
	struct task_diag_limits *a = here();
	u64 limits[32];
	u32 i;

	if (!a)
		return 0;
	/* As in /proc/PID/limits, which is empty for a task that has been reaped or is about to be. */
	if (!RD(u64, t, TASK_SIGHAND)) {
		missing(TASK_DIAG_LIMITS, TASK_DIAG_R_ABSENT);
		return 0;
	}
	bpf_probe_read_kernel(limits, sizeof(limits), (void *)(RD(u64, t, TASK_SIGNAL) + OFF(SIGNAL_RLIM)));
	PUT(a, TASK_DIAG_LIMITS);
	a->valid = ALL_OF(LIMITS);
#pragma unroll
	for (i = 0; i < 16; i++) {
		a->soft[i] = limits[i * 2];
		a->hard[i] = limits[i * 2 + 1];
	}
	return 0;
}

/* As proc_sched_autogroup_show_task(). A group is freed by RCU, with its task_group. */
GROUP_FN put_autogroup(void)
{
	struct task_struct *t = THIS;
	struct task_diag_autogroup *a = here();
	u64 signal = RD(u64, t, TASK_SIGNAL), group;

	if (!a)
		return 0;
	if (!HAVE(SIGNAL_AUTOGROUP) || !HAVE(AUTOGROUP_TG) || !HAVE(AUTOGROUP_ID) || !HAVE(AUTOGROUP_NICE) ||
	    !HAVE(GROUP_AUTOGROUP)) {
		missing(TASK_DIAG_AUTOGROUP, TASK_DIAG_R_UNSUPPORTED);
		return 0;
	}
	group = RD(u64, signal, SIGNAL_AUTOGROUP);
	/* The root group is no autogroup, and a task that has been reaped is in none. */
	if (!group || !RD(u64, t, TASK_SIGHAND) || !RD(u64, RD(u64, group, AUTOGROUP_TG), GROUP_AUTOGROUP)) {
		missing(TASK_DIAG_AUTOGROUP, TASK_DIAG_R_ABSENT);
		return 0;
	}
	PUT(a, TASK_DIAG_AUTOGROUP);
	a->valid = ALL_OF(AUTOGROUP);
	a->id = RD(u64, group, AUTOGROUP_ID);
	a->nice = RD(u32, group, AUTOGROUP_NICE);
	a->reserved = 0;
	return 0;
}

GROUP_FN put_login(void)
{
	struct task_struct *t = THIS;
	struct task_diag_login *a = here();

	if (!a)
		return 0;
	if (!HAVE(TASK_LOGINUID) || !HAVE(TASK_SESSIONID)) {
		missing(TASK_DIAG_LOGIN, TASK_DIAG_R_UNSUPPORTED);
		return 0;
	}
	PUT(a, TASK_DIAG_LOGIN);
	a->valid = ALL_OF(LOGIN);
	a->uid = RD(u32, t, TASK_LOGINUID);
	a->session = RD(u32, t, TASK_SESSIONID);
	return 0;
}

/* A pid that has no number yet is not shown to anyone. */
GROUP_FN put_pidfd(void)
{
	struct task_struct *t = THIS;
	struct task_diag_pidfd *a = here();
	struct pid *pid = R(t, thread_pid), *process = R(t, signal, pids[PIDTYPE_TGID]);

	if (!a)
		return 0;
	if (!HAVE(PID_INO)) {
		missing(TASK_DIAG_PIDFD, TASK_DIAG_R_UNSUPPORTED);
		return 0;
	}
	if (!pid || !process) {
		missing(TASK_DIAG_PIDFD, TASK_DIAG_R_VANISHED);
		return 0;
	}
	PUT(a, TASK_DIAG_PIDFD);
	a->valid = ALL_OF(PIDFD);
	a->process_ino = RD(u64, process, PID_INO);
	a->ino = IS_PROCESS ? a->process_ino : RD(u64, pid, PID_INO);
	return 0;
}

GROUP_FN put_layout(void)
{
	struct task_struct *t = THIS;
	struct task_diag_layout *a = here();
	u64 mm = RD(u64, t, TASK_MM);

	if (!a)
		return 0;
	if (!mm || R(t, flags) & PF_KTHREAD) {
		missing(TASK_DIAG_LAYOUT, TASK_DIAG_R_ABSENT);
		return 0;
	}
	a->valid = ALL_OF(LAYOUT);
	a->start_code = RD(u64, mm, MM_START_CODE);
	a->end_code = RD(u64, mm, MM_END_CODE);
	a->start_stack = RD(u64, mm, MM_START_STACK);
	/* An mm is freed at once, so the addresses count only if it is still the task's. */
	if (!STILL_AT(t, TASK_MM, mm)) {
		missing(TASK_DIAG_LAYOUT, RD(u64, t, TASK_MM) ? TASK_DIAG_R_VANISHED : TASK_DIAG_R_ABSENT);
		return 0;
	}
	PUT(a, TASK_DIAG_LAYOUT);
	return 0;
}

STEP(look_at_action, i)
{
	u64 handler = RD(u64, st.arg + i * OFF(ACTION_SIZE), ACTION_HANDLER);

	if (handler == 1)
		st.ignored |= 1ull << (i & 63);
	else if (handler)
		st.caught |= 1ull << (i & 63);
	return 0;
}

GROUP_FN put_signals(void)
{
	struct task_struct *t = THIS;
	struct task_diag_signals *a = here();
	u64 sighand = RD(u64, t, TASK_SIGHAND), signal = RD(u64, t, TASK_SIGNAL), ucounts;

	if (!a)
		return 0;
	PUT(a, TASK_DIAG_SIGNALS);
	a->valid = ALL_OF(SIGNALS);
	a->pending = a->shared_pending = a->blocked = a->ignored = a->caught = 0;
	a->queued = a->reserved = 0;
	/* A zombie has all zeros, as in /proc. */
	if (!sighand)
		return 0;
	a->pending = RD(u64, t, TASK_PENDING);
	a->shared_pending = RD(u64, signal, SIGNAL_PENDING);
	a->blocked = RD(u64, t, TASK_BLOCKED);
	if (HAVE(CRED_UCOUNTS) && HAVE(UCOUNTS_RLIMIT)) {
		ucounts = RD(u64, RD(u64, t, TASK_REAL_CRED), CRED_UCOUNTS);
		a->queued = RD(u32, ucounts + UCOUNT_SIGPENDING * 8, UCOUNTS_RLIMIT);
	} else {
		a->valid &= ~(1u << SIGNALS_QUEUED);
	}
	st.arg = sighand + OFF(SIGHAND_ACTION);
	st.ignored = st.caught = 0;
	LOOP(SIGNALS_MAX, look_at_action);
	a->ignored = st.ignored;
	a->caught = st.caught;
	is_late(8);
	/* A sighand_struct is freed with the last thread, and an exec may replace it. */
	if (!STILL_AT(t, TASK_SIGHAND, sighand)) {
		a->ignored = a->caught = 0;
		st.off -= sizeof(*a);
		missing(TASK_DIAG_SIGNALS, TASK_DIAG_R_VANISHED);
	}
	return 0;
}

/* ---- WCHAN, KSTACK and WAIT ---- */

/* Write one line of the stack in st.up, as in /proc/PID/stack. */
STEP(put_frame, i)
{
	u64 addr = st.up[i & (FRAMES_MAX - 1)];
	char *end = TEXT_END();
	long n;

	if (!end || !addr)
		return 1;
	n = bpf_snprintf(end, 512, (const char *)cfg.frame_format, &addr, sizeof(addr));
	is_late(8);
	if (n > 0)
		st.len += (n - 1) & 0x1ff;
	return 0;
}

/* Write the function that the task waits in, as get_wchan() returns it: the first of the stack, since the kernel
 * leaves the scheduler's own functions out of it. */
static __always_inline void put_waiting_in(void)
{
	u64 addr = st.up[0];
	char *end = TEXT_END();
	long n;

	if (!end || !addr)
		return;
	n = bpf_snprintf(end, 512, (const char *)cfg.symbol_format, &addr, sizeof(addr));
	if (n > 0)
		st.len = (n - 1) & 0x1ff;
}

static __always_inline void put_stack_of(struct task_struct *t)
{
	struct task_struct *p = PLAIN(t);
	struct task_diag_blob *b;
	bool waits;
	long size;
	u32 n;

	if (WANT(TASK_DIAG_WAIT))
		begin_wait();
	size = bpf_get_task_stack(t, st.up, FRAMES_MAX * 8, 0);
	n = size > 0 ? (size / 8) & 127 : 0;
	is_late(64);
	spill();
	if (WANT(TASK_DIAG_WAIT)) {
		/* Go through memory: the verifier treats a pointer that was stored and read back as a number. */
		*(volatile u64 *)&st.regs = bpf_task_pt_regs(t);
		put_wait(n);
	}
	waits = is_asleep(p);
	/* The helper has one buffer for each CPU, which another program may be using. An ended task has no stack. */
	if (size < 0 && !R(p, exit_state)) {
		if (WANT(TASK_DIAG_WCHAN))
			missing(TASK_DIAG_WCHAN, TASK_DIAG_R_BLOCKED);
		if (WANT(TASK_DIAG_KSTACK))
			missing(TASK_DIAG_KSTACK, TASK_DIAG_R_BLOCKED);
		return;
	}
	if (WANT(TASK_DIAG_WCHAN)) {
		b = begin_blob();
		if (!b)
			return;
		st.len = 0;
		if (n && waits)
			put_waiting_in();
		end_blob(b, TASK_DIAG_WCHAN, 0, st.len & 0x1ff, 0, st.len & 0x1ff, 0, 0);
	}
	if (WANT(TASK_DIAG_KSTACK)) {
		b = begin_blob();
		if (!b)
			return;
		st.len = 0;
		LOOP(n, put_frame);
		end_blob(b, TASK_DIAG_KSTACK, 0, st.len & 0x7fff, 0, st.len & 0x7fff, 0, 0);
	}
}

#ifdef LEGACY

/* The kernel's iterator holds the task that it gives. */
#define put_stack(t) put_stack_of(t)

#else

/* The helper for stacks needs a task that someone holds. So this takes a reference while the helper reads the stack. */
GROUP_FN put_held_stack(void)
{
	struct task_struct *t = bpf_task_from_pid(R(THIS, pid));

	if (t && (u64)t == st.task) {
		put_stack_of(t);
	} else {
		if (WANT(TASK_DIAG_WCHAN))
			missing(TASK_DIAG_WCHAN, TASK_DIAG_R_VANISHED);
		if (WANT(TASK_DIAG_KSTACK))
			missing(TASK_DIAG_KSTACK, TASK_DIAG_R_VANISHED);
		if (WANT(TASK_DIAG_WAIT))
			missing(TASK_DIAG_WAIT, TASK_DIAG_R_VANISHED);
	}
	if (t)
		bpf_task_release(t);
	return 0;
}
#define put_stack(t) put_held_stack()

#endif

/* Write the records of this file. */
static __always_inline void put_states(void)
{
	if (WANT(TASK_DIAG_LIMITS))
		put_limits();
	if (WANT(TASK_DIAG_SIGNALS))
		put_signals();
	if (WANT(TASK_DIAG_AUTOGROUP))
		put_autogroup();
	if (WANT(TASK_DIAG_LOGIN))
		put_login();
	if (WANT(TASK_DIAG_PIDFD))
		put_pidfd();
	if (WANT(TASK_DIAG_SETTINGS))
		put_settings();
	if (WANT(TASK_DIAG_PERSONA))
		put_persona();
	if (WANT(TASK_DIAG_DELAYS))
		put_delays();
}

#endif
