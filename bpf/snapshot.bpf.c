/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Answers one request in one program: it walks the tasks that the strategy
 * names and writes each into the output. A run is one read-side section of RCU,
 * and nothing else runs on its CPU meanwhile if the kernel is not preemptible.
 * So a run ends after a millisecond, or when the output is full. User space
 * takes the output and starts the next run, which continues where it ended.
 *
 * The program finds its place again by the tasks that it has seen. The list of
 * tasks only grows at its end. So tasks after the last seen one that is still
 * there have not been seen yet, and those that were seen after it have ended.
 * No task is lost, and none comes twice. Tasks that began after the request are
 * not in the answer: they could have the pid of a task that is in it, and on a
 * machine that forks faster than the walk advances, no answer would end.
 *
 * It is an iterator program, which read(2) may run from any context. But it
 * walks the list itself: it does a whole run when it is called for the first
 * task, and returns 1 ("again"), which read(2) reports as EAGAIN. So the
 * kernel's iterator never steps through the threads, and the cost depends on
 * the number of processes only. The walk begins at the iterator's first task,
 * so tasks that the kernel hides at the beginning of the list stay hidden.
 *
 * It only reads. It takes no lock and, except for stacks, no reference. It does
 * not sleep, and it makes no one wait (see docs/operate/safety.md).
 */
#include "task.h"
#include "walk.h"
#include "ahead.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { GONE, FOUND, CHANGING };

/*
 * The task with a pid, held, or 0. If another thread calls exec, the kernel gives it the pid of the first thread, which it then
 * releases. A search that had come to the old task by then holds nothing, although the pid is there. The next one finds the
 * new task.
 */
static __always_inline struct task_struct *hold_task(u32 nr)
{
	struct task_struct *t = bpf_task_from_pid(nr);

	return t ? t : bpf_task_from_pid(nr);
}

/* Is the last seen task still there? If so, st.walk is set to it. If another thread of its process has done an exec, that
 * thread now has its pid, its start time and its place in the list. A later task with the same pid began after the request. */
GROUP_FN last_seen(void)
{
	u32 *e = seen_at(st.nseen - 1), is;
	struct task_struct *t, *p;

	st.walk = 0;
	if (!e)
		return GONE;
	t = hold_task(*e);
	if (!t)
		return GONE;
	p = PLAIN(t);
	is = R(p, start_boottime) > st.begin ? GONE : FOUND;
	/* An exec gives a thread the pid first and the place in the list later. Until then the thread's links are those that
	 * it copied from its creator. */
	if (is == FOUND && IN_LIST && (u64)R(p, tasks.next, prev) != (u64)&p->tasks)
		is = CHANGING;
	/* Go through memory: the verifier treats a pointer that was stored and read back as a number. */
	if (is == FOUND)
		*(volatile u64 *)&st.walk = (u64)t;
	if (BY_THREADS)
		st.process = task_tgid_nr(p);
	/* RCU keeps the task for the rest of the run without a reference. */
	bpf_task_release(t);
	return is;
}

/* Set st.walk to the place where the walk continues: the task that is begun, else the one after the last seen task that is
 * still there, else `first`. Returns false if the time or the room of this run is used up, or if an exec is just moving that
 * task; the next run then continues with the search. */
static __always_inline bool find_place(u64 first)
{
	u32 i, is;

	bpf_for(i, 0, STEPS_MAX) {
		if (!st.nseen) {
			st.walk = first;
			return true;
		}
		/* The entry before this one was overwritten. */
		if (st.reached - st.nseen > cfg.seen_mask) {
			st.overflow = st.done = 1;
			return false;
		}
		is = last_seen();
		if (is == CHANGING)
			return false;
		if (is == FOUND) {
			if (!CAN_PAUSE || !st.part)
				step();
			return true;
		}
		if (CAN_PAUSE && st.part) {
			if (!room(cfg.reserve)) {
				st.full = 1;
				return false;
			}
			give_up();
		}
		st.nseen--;
		if (is_late(2))
			return false;
	}
	return false;
}

/* Find the process that the request is about by the id of any of its threads, and set st.target to its tgid in the
 * initial namespace. Returns where a walk over it or its threads begins, or 0 if it has ended. */
static __always_inline u64 find_target(void)
{
	struct task_struct *t, *p;
	u32 nr = st.walking ? st.target : cfg.pid;
	u64 at = 0;

	if (LEVEL && !st.walking) {
		st.found = st.ns;
		st.n = nr;
		find_pid();
		nr = st.found ? R(CAST(struct pid, (void *)st.found), numbers[0].nr) : 0;
	}
	t = hold_task(nr);
	if (!t)
		return 0;
	p = PLAIN(t);
	/* In a later run, a process with this id that began after the request is another one. */
	if (!st.walking || R(p, start_boottime) <= st.begin) {
		st.target = R(p, tgid);
		if (cfg.strategy == TASK_DIAG_DUMP_THREAD)
			at = TASK_AT(R(p, signal, thread_head.next), thread_node);
		else
			at = (u64)R(p, group_leader);
	}
	bpf_task_release(t);
	return at;
}

/* Is the request about the current task? */
static __always_inline bool is_asked_for(void)
{
	struct task_struct *p = THIS;

	if (st.tgid < st.first || st.tgid > st.last)
		return false;
	return cfg.strategy != TASK_DIAG_DUMP_CHILDREN || R(p, real_parent, tgid) == st.target;
}

/*
 * See which task st.walk is. Another thread of a process becomes its first one by an exec, with the pid and the place in the
 * list of tasks, while the walk is at one of the two. Where processes are walked and the walk has the old one, go to the new
 * one. Where threads are walked and the old one was seen, returns true for the new one, or the pid would be there twice.
 */
static __always_inline bool has_become_first(void)
{
	struct task_struct *t = CAST(struct task_struct, (void *)st.walk);

	if (!BY_THREADS) {
		if (cfg.strategy != TASK_DIAG_DUMP_ONE && R(t, pid) != R(t, tgid))
			st.walk = (u64)R(t, group_leader);
		see_ids(CAST(struct task_struct, (void *)st.walk), true);
		return false;
	}
	see_ids(t, false);
	if (st.process)
		return st.nr == st.process;
	st.process = st.nr;
	return false;
}

/* Did the task at st.walk begin after the request? Then all later tasks of its list did, too: a task has its start time
 * before it enters the list. So st.walk is set to the next process if it is a thread, else to 0. */
static __always_inline bool began_later(void)
{
	struct task_struct *t = CAST(struct task_struct, (void *)st.walk), *first;

	if (cfg.strategy == TASK_DIAG_DUMP_ONE || R(t, start_boottime) <= st.begin)
		return false;
	GAP();
	first = R(t, group_leader);
	/* If an exec has just made it the first thread of a process that began before the request, it has got the start time
	 * of that process before it became the first. Without this check the walk would end here. */
	barrier();
	if (R(t, start_boottime) <= st.begin)
		return false;
	st.walk = 0;
	if (cfg.strategy == TASK_DIAG_DUMP_ALL_THREAD && first != t)
		next_process(first);
	return true;
}

enum { END_RUN, GO_ON, WRITE };

/* Set st.task to the task at st.walk, and step to the next one. Returns what is to be done with the task. */
GROUP_FN come_to(void)
{
	bool begun = CAN_PAUSE && st.part, wanted, again;

	if (!begun && st.stop) {
		st.done = 1;
		return END_RUN;
	}
	again = !begun && has_become_first();
	if (!begun && began_later())
		return is_late(2) ? END_RUN : GO_ON;
	st.task = st.walk;
	if (AHEAD_PROCESSES && !begun)
		look_ahead();
	if (AHEAD_THREADS && !IS_PROCESS && !begun)
		look_up_threads(st.pid);
	/* Step first, so that the next task's memory is loaded together with that of this task. */
	step();
	if (again)
		return is_late(2) ? END_RUN : GO_ON;
	wanted = !cfg.count_only && (begun || is_asked_for());
	if (wanted && !room(cfg.reserve)) {
		st.full = 1;
		return END_RUN;
	}
	if (!begun)
		note();
	if (wanted)
		return WRITE;
	return is_late(2) ? END_RUN : GO_ON;
}

#ifdef NO_MORE
#define VISIT_FN GROUP_FN
#else
/* As a function of its own it would be one call too deep: the verifier allows eight. */
#define VISIT_FN static __always_inline int
#endif

/* Write the task at st.walk, or the rest of it. Returns END_RUN if the run has to end. */
VISIT_FN visit(void)
{
	u32 what = come_to();

	if (what != WRITE)
		return what;
	/* If more is left of it, visit the same task again. */
	if (write_task(NULL))
		st.walk = st.task;
	return is_late(16) ? END_RUN : GO_ON;
}

SEC("iter/task")
int snapshot(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	u64 first;
	u32 i;

	if (!t || st.done)
		return 0;
	begin_run();
	set_up();
	*(volatile u64 *)&st.arg = (u64)t;
	first = *(volatile u64 *)&st.arg;
	if (cfg.strategy == TASK_DIAG_DUMP_CHILDREN) {
		if (!st.walking)
			find_target();
	} else if (cfg.pid) {
		first = find_target();
	}
	st.walking = 1;
	if (cfg.pid && !st.target) {
		st.done = 1;
		return 1;
	}
	if (!find_place(first))
		return 1;
	if (AHEAD_PROCESSES)
		begin_ahead();
	if (AHEAD_THREADS)
		begin_threads(PLAIN(t));
	bpf_for(i, 0, STEPS_MAX) {
		if (!st.walk) {
			st.done = 1;
			break;
		}
		if (visit() == END_RUN)
			break;
	}
	return 1;
}
