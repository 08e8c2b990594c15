/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Writes one whole task: the sum over its threads, its groups in their order,
 * and the message around them. Both the snapshot program and its legacy form
 * use it.
 */
#ifndef TASKDIAG_TASK_H
#define TASKDIAG_TASK_H

#include "plain.h"
#include "touch.h"

/* ---- the sum over the threads of a process ---- */

enum { SUM_TRIES = 4, SUM_AGAIN_MAX = 64, SUMS_MAX = LEGACY_TURNS(1 << 23) };

static __always_inline void begin_sums(struct signal_struct *s, bool process)
{
	sum_begin(s, process);
#ifndef NO_MORE
	if (WANT(TASK_DIAG_DELAYS))
		begin_delays();
#endif
}

static __always_inline void add_one(struct task_struct *t)
{
	add_thread(t);
#ifndef NO_MORE
	if (WANT(TASK_DIAG_DELAYS)) {
		st.delay_task = (u64)t;
		add_delays();
	}
#endif
}

/* Add the thread at st.node of the list. Returns 1 after the last one, or if the time of this run is over. */
GROUP_FN sum_step(u32 turn)
{
	struct list_head *node = CAST(struct list_head, (void *)st.node);
	struct task_struct *t;

	if (st.node == st.arg || !st.node) {
		st.sum_tid = 0;
		return 1;
	}
	t = CAST(struct task_struct, (void *)(st.node - __builtin_preserve_field_info(
			((struct task_struct *)0)->thread_node, BPF_FIELD_BYTE_OFFSET)));
	if (AHEAD_THREADS)
		look_up_threads(R(t, pid));
	add_one(t);
	st.node = (u64)R(node, next);
	if ((is_late(3) || turn == SUMS_MAX - 1) && st.node != st.arg) {
		st.sum_tid = R(t, pid);
		st.sum_start = R(t, start_boottime);
		return 1;
	}
	return 0;
}

STEP_OF(sum_next, i, sum_step(i))
TURNS(sum_next)

/* Set st.node to the list node after the last thread that was added, or to 0 if that thread has ended. In that case its
 * times are by now in the process's sum of ended threads, which was read before, so the sum has to begin anew. */
GROUP_FN find_sum(void)
{
	struct task_struct *t = THIS, *last;
	u64 at;

	st.node = 0;
	/* Go through memory: the verifier treats a pointer that was stored and read back as a number. */
	*(volatile u64 *)&st.found = (u64)R(t, thread_pid, numbers[0].ns);
	st.n = st.sum_tid;
	find_pid();
	at = task_of(st.found);
	last = CAST(struct task_struct, (void *)at);
	if (at && R(last, start_boottime) == st.sum_start && R(last, signal) == R(t, signal))
		st.node = (u64)R(last, thread_node.next);
	return 0;
}

/*
 * Times and counts of the current task: of the thread, or of its process as the sum over its threads. A thread that ends
 * meanwhile adds its values to those of the process. The kernel counts such changes, and the sum is made again if there
 * was one. Returns 1 if the time of this run is over; the sum continues in the next run.
 */
GROUP_FN sum(void)
{
	struct task_struct *t = THIS;
	struct signal_struct *s = R(t, signal);
	u32 try, goes_on = 0;

	st.sum_lost = 0;
	if (!IS_PROCESS || R(s, nr_threads) <= 1) {
		begin_sums(s, IS_PROCESS);
		add_one(t);
		return 0;
	}
	st.arg = (u64)&s->thread_head;
	if (st.part == PART_SUM) {
		find_sum();
		goes_on = !!st.node;
		st.sum_again += !goes_on;
		if (st.sum_again > SUM_AGAIN_MAX) {
			/* The threads end faster than the walk over them advances. */
			st.sum_lost = 1;
			return 0;
		}
	} else {
		st.sum_again = 0;
	}
	EACH(try, 0, SUM_TRIES, SUM_TRIES) {
		if (!goes_on) {
			st.sum_seq = R(s, stats_lock.seqcount.seqcount.sequence);
			begin_sums(s, true);
			st.node = (u64)R(s, thread_head.next);
		}
		goes_on = 0;
		LONG_LOOP(SUMS_MAX, SUMS_MAX, sum_next);
		if (st.sum_tid)
			return 1;
		if (R(s, stats_lock.seqcount.seqcount.sequence) == st.sum_seq || ++st.sum_again >= SUM_TRIES)
			break;
	}
	return 0;
}

/* Load the memory of the current task together, instead of one after the other. It is a global function, because in the loop of
 * the walk the verifier takes a millisecond more for these loads. */
GROUP_FN touch(void)
{
	volatile u64 place;

	touch_task(THIS, &st.ahead[0], &place);
	return 0;
}

/*
 * Set st.nr and st.tgid to the ids of a task in the reader's pid namespace, or to 0 if the reader cannot see it, and st.pid to
 * its id in the initial one. This is done once for each task, before all else, because an exec gives a thread another id at any
 * moment. The id of a process never changes.
 */
static __always_inline void see_ids(struct task_struct *t, bool of_process)
{
	struct pid *pid;

	st.tgid = task_tgid_nr(t);
	if (of_process) {
		st.nr = st.tgid;
		st.pid = R(t, tgid);
	} else if (LEVEL) {
		pid = R(t, thread_pid);
		st.pid = pid ? R(pid, numbers[0].nr) : 0;
		st.nr = pid_nr(pid);
	} else {
		st.nr = st.pid = R(t, pid);
	}
}

/* Write the parts that are in the task's memory, in pieces from st.part on. Returns 1 if more is left. */
static __always_inline u32 put_memory_parts(void)
{
	if (WANT(TASK_DIAG_CMDLINE) && st.part == PART_CMDLINE && put_text(TASK_DIAG_CMDLINE))
		return 1;
#ifndef NO_MORE
	if (WANT(TASK_DIAG_ENVIRON) && st.part <= PART_ENVIRON) {
		if (st.part < PART_ENVIRON)
			st.cmd_offset = st.cmd_total = 0;
		st.part = PART_ENVIRON;
		if (put_text(TASK_DIAG_ENVIRON))
			return 1;
	}
	if (WANT(TASK_DIAG_VMA) && st.part <= PART_VMA) {
		if (st.part < PART_VMA)
			st.part_begun = 0;
		st.part = PART_VMA;
		if (put_vmas())
			return 1;
	}
#endif
	return 0;
}

/* Write the parts that may be long, in pieces from st.part on. Returns 1 if the room or the time of this run did not
 * suffice. */
static __always_inline u32 put_parts(void)
{
	u32 more;

#ifndef NO_MORE
	if (WANT(TASK_DIAG_PATHS) && st.part == PART_PATHS) {
		to_memory();
		more = put_paths();
		from_memory();
		if (more)
			return 1;
		st.part_begun = 0;
		st.part = PART_CMDLINE;
	}
#endif
	if (WANT(TASK_DIAG_CMDLINE) || WANT(TASK_DIAG_ENVIRON) || WANT(TASK_DIAG_VMA)) {
		to_memory();
		more = put_memory_parts();
		from_memory();
		if (more)
			return 1;
	}
#ifndef NO_MORE
	if (WANT(TASK_DIAG_FD) && st.part <= PART_FD) {
		if (st.part < PART_FD)
			st.part_begun = 0;
		st.part = PART_FD;
		to_memory();
		more = put_fds();
		from_memory();
		if (more)
			return 1;
	}
	if (WANT(TASK_DIAG_NET) && st.part <= PART_NET) {
		if (st.part < PART_NET)
			st.part_begun = 0;
		st.part = PART_NET;
		to_memory();
		more = put_fds();
		from_memory();
		if (more)
			return 1;
	}
#endif
	return 0;
}

/* Mark the unfinished parts of a task that has ended or become another program as vanished. */
GROUP_FN give_up_parts(void)
{
	u32 part = st.part;

	if (WANT(TASK_DIAG_PATHS) && part <= PART_PATHS)
		missing(TASK_DIAG_PATHS, TASK_DIAG_R_VANISHED);
	if (WANT(TASK_DIAG_CMDLINE) && part <= PART_CMDLINE)
		missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_VANISHED);
	if (WANT(TASK_DIAG_ENVIRON) && part <= PART_ENVIRON)
		missing(TASK_DIAG_ENVIRON, TASK_DIAG_R_VANISHED);
	if (WANT(TASK_DIAG_VMA) && part <= PART_VMA)
		missing(TASK_DIAG_VMA, TASK_DIAG_R_VANISHED);
	if (WANT(TASK_DIAG_FD) && part <= PART_FD)
		missing(TASK_DIAG_FD, TASK_DIAG_R_VANISHED);
	if (WANT(TASK_DIAG_NET) && part <= PART_NET)
		missing(TASK_DIAG_NET, TASK_DIAG_R_VANISHED);
	return 0;
}

#define HAS_PARTS (WANT(TASK_DIAG_PATHS) || WANT(TASK_DIAG_CMDLINE) || WANT(TASK_DIAG_ENVIRON) ||	\
		   WANT(TASK_DIAG_VMA) || WANT(TASK_DIAG_FD) || WANT(TASK_DIAG_NET))
/* The first of them. */
#define FIRST_PART (WANT(TASK_DIAG_PATHS) ? PART_PATHS : PART_CMDLINE)

/* A task counts once, however many of its values are blocked or cut. */
static __always_inline void count_gaps(void)
{
	if (HAS_PARTS || WANT(TASK_DIAG_FILE_STAT)) {
		st.blocked += st.is_blocked;
		st.truncated += st.is_cut;
		st.is_blocked = st.is_cut = 0;
	}
}

/* End the task that was begun and has ended since. */
GROUP_FN give_up(void)
{
	if (st.part > PART_SUM) {
		begin_message(st.nr, st.tgid, TASK_DIAG_FLAG_CONT);
		give_up_parts();
		end_task();
		count_gaps();
	} else if (st.part) {
		st.vanished++;
	}
	st.part = PART_NONE;
	return 0;
}

/* Note the values that same_program() compares before the task is continued. */
GROUP_FN remember_program(void)
{
	struct task_struct *t = THIS;

	st.part_start = R(t, start_boottime);
	st.part_exec = R(t, self_exec_id);
	return 0;
}

static __always_inline bool same_program(void)
{
	return R(THIS, start_boottime) == st.part_start && R(THIS, self_exec_id) == st.part_exec;
}

/* Write all of a task that is written at once: everything but its parts. */
GROUP_FN put_fixed(void)
{
	put_plain();
#ifndef NO_MORE
	if (WANT(TASK_DIAG_FILE_STAT)) {
		to_memory();
		put_file_stats();
		from_memory();
	}
#endif
	st.tasks++;
	return 0;
}

#define NEED_SUM (NEED_TIME || NEED_STAT(GUEST_NS) || NEED_STAT(MINFLT) || NEED_STAT(MAJFLT) || WANT(TASK_DIAG_SCHED) || WANT(TASK_DIAG_IO) || \
		  WANT(TASK_DIAG_DELAYS))

/* Can a task take longer than a run? */
#define CAN_PAUSE (HAS_PARTS || NEED_SUM)

/*
 * Write the task st.task, or the rest of it. It takes no reference, which would be half the cost of a listing.
 * Returns 1 if the room or the time of this run did not suffice; st.part is then where the task goes on. `t` is the same
 * task as the kernel's iterator gave it, which helpers of older kernels need.
 */
static __always_inline u32 write_task(struct task_struct *t)
{
	u32 more = 0;

	(void)t;
	if (WANT(TASK_DIAG_STAT) && !AHEAD_PROCESSES && !IS_LOADED)
		touch();
	if (!st.nr) {
		st.part = PART_NONE;
		return 0;
	}
	if (!CAN_PAUSE || st.part <= PART_SUM) {
		if (NEED_SUM && sum()) {
			st.part = PART_SUM;
			remember_program();
			return 1;
		}
		begin_message(st.nr, st.tgid, 0);
		if (HAS_PARTS || WANT(TASK_DIAG_PATHS) || WANT(TASK_DIAG_FILE_STAT))
			find_user();
		put_fixed();
#ifndef NO_MORE
		if (WANT(TASK_DIAG_WCHAN) || WANT(TASK_DIAG_KSTACK) || WANT(TASK_DIAG_WAIT))
			put_stack(t);
#endif
		if (CAN_PAUSE)
			st.part = HAS_PARTS ? FIRST_PART : PART_NONE;
		if (HAS_PARTS)
			st.part_begun = st.cmd_offset = st.cmd_total = 0;
	} else {
		begin_message(st.nr, st.tgid, TASK_DIAG_FLAG_CONT);
		if (!same_program()) {
			give_up_parts();
			st.part = PART_NONE;
		}
	}
	if (HAS_PARTS && st.part)
		more = put_parts();
	end_task();
	if (more) {
		remember_program();
		return 1;
	}
	if (HAS_PARTS)
		st.part = PART_NONE;
	count_gaps();
	return 0;
}

#endif
