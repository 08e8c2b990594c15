/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * WAIT: since when a thread waits, for which lock of the kernel, in which
 * system call and function. User space adds the kinds of waits that follow from
 * these two (engine/waits.rs), and replaces the address of a lock by a number.
 *
 * All values of a record describe one wait. The number of context switches is
 * the same before and after they are read, so the thread has slept in between.
 */
#ifndef TASKDIAG_WAIT_H
#define TASKDIAG_WAIT_H

#include "identity.h"
#include "raw.h"

enum { TASK_WAKING = 0x200 };
/* Low bits of task_struct.blocker (include/linux/hung_task.h). */
enum { BLOCKER_MUTEX, BLOCKER_SEMAPHORE, BLOCKER_READER, BLOCKER_WRITER, BLOCKER_TYPES = 3 };
/* Low bits of the owner of a mutex or an rwsem, and of an rt_mutex. */
enum { OWNER_FLAGS = 7, RWSEM_READERS = 1, RT_MUTEX_FLAGS = 1 };
/* A 32-bit system call: in thread_info.status of x86, and in thread_info.flags of arm64. */
enum { TS_COMPAT = 2, TIF_32BIT = 22 };
/* The policies of the fair scheduler: other, batch, idle. */
enum { FAIR_POLICIES = 1 << 0 | 1 << 3 | 1 << 5 };
/* The clock of a run queue is set at least once in this time while its CPU runs something. */
#define TICK_NS 10000000ull

#define KNOWN(bit) (1u << (WAIT_##bit))

/* The scheduler's clocks begin at another moment than the boot clock. Their difference is found by the clock of the run queue
 * that the reader is on. */
static __always_inline void set_up_clock(struct task_struct *me)
{
	u64 rq = 0, clock = 0;

	if (HAVE(TASK_CFS_RQ) && HAVE(CFS_RQ_RQ) && HAVE(RQ_CLOCK))
		rq = RD(u64, RD(u64, me, TASK_CFS_RQ), CFS_RQ_RQ);
	if (rq)
		clock = RD(u64, rq, RQ_CLOCK);
	else if (HAVE(TASK_EXEC_START))
		clock = RD(u64, me, TASK_EXEC_START);
	st.sched_begin = clock;
}

/* A time of the scheduler's clock as one of the reader's boot clock. */
static __always_inline u64 boot_time(u64 clock)
{
	return clock + (st.begin - st.sched_begin) + st.ns_boottime_ns;
}

/* A task that runs, or is about to, waits in no function. on_rq is a byte in Linux 7.3 and a small number in four of them in
 * 6.18 and before, so the first byte is read. */
static __always_inline bool is_asleep(struct task_struct *t)
{
	u32 state = R(t, __state);

	return state && state != TASK_WAKING && !RD(u8, t, TASK_ON_RQ);
}

/* on_cpu is 0 or 1, and as on_rq, a byte in Linux 7.3. */
static __always_inline bool is_on_cpu(struct task_struct *t)
{
	return HAVE(TASK_ON_CPU) && RD(u8, t, TASK_ON_CPU);
}

/* Has it left its CPU to sleep? Since Linux 6.12, a task may stay on the run queue for a while after that. */
static __always_inline bool has_gone_to_sleep(struct task_struct *t)
{
	bool is_delayed = HAVE(TASK_DELAYED) && (RD(u8, t, TASK_DELAYED) & 1);
	u32 state = R(t, __state);

	return (is_asleep(t) || (is_delayed && state && state != TASK_WAKING)) && !is_on_cpu(t);
}

/* The number of times that the task has left a CPU. */
static __always_inline u64 switches(struct task_struct *t)
{
	return R(t, nvcsw) + R(t, nivcsw);
}

/* Call this before reading anything that put_wait() uses. */
GROUP_FN begin_wait(void)
{
	st.wait_switches = switches(THIS);
	order();
	return 0;
}

/*
 * When the task last ran. The scheduler notes when it last got a CPU, and how long it has run since then, which is exact except for
 * interrupts in that time. exec_start is when it last left the CPU, on a clock that does not count interrupts and the time that a
 * hypervisor took away. So the true time lies between the two, and their difference is the error. A scheduler other than the fair one does
 * not note how long the last run was.
 */
static __always_inline void put_times(struct task_diag_wait *a, struct task_struct *t)
{
	u64 left = RD_MAY(u64, t, TASK_EXEC_START), last = left, ran = RD_MAY(u64, t, TASK_ARRIVAL), rq, lost;

	if (ran && HAVE(TASK_SUM_EXEC) && HAVE(TASK_PREV_SUM) && FAIR_POLICIES >> (R(t, policy) & 31) & 1)
		ran += RD(u64, t, TASK_SUM_EXEC) - RD(u64, t, TASK_PREV_SUM);
	a->ran_by = TASK_DIAG_RAN_EXEC_START;
	/* exec_start is 0 after the task was moved to another CPU. */
	if (ran > last && ran <= st.sched_begin) {
		last = ran;
		a->ran_by = TASK_DIAG_RAN_LAST_ARRIVAL;
	}
	if (!last || !st.sched_begin)
		return;
	if (!left)
		left = last;
	if (HAVE(TASK_CFS_RQ) && HAVE(CFS_RQ_RQ) && HAVE(RQ_CLOCK) && HAVE(RQ_CLOCK_TASK)) {
		rq = RD(u64, RD(u64, t, TASK_CFS_RQ), CFS_RQ_RQ);
		lost = RD(u64, rq, RQ_CLOCK) - RD(u64, rq, RQ_CLOCK_TASK);
		a->ran_error_ns = left + lost > last ? left + lost - last : 0;
		if (st.sched_begin > last && a->ran_error_ns > st.sched_begin - last)
			a->ran_error_ns = st.sched_begin - last;
		a->ran_error_ns += TICK_NS;
		a->valid |= KNOWN(RAN_ERROR_NS);
	}
	a->last_ran_ns = boot_time(last);
	a->valid |= KNOWN(LAST_RAN_NS) | KNOWN(RAN_BY);
}

/* Write the kind for a ready task: on a CPU, waiting for one, or its cgroup has no time left. */
static __always_inline void put_ready(struct task_diag_wait *a, struct task_struct *t)
{
	u64 queued = RD_MAY(u64, t, TASK_QUEUED);
	bool is_throttled = false;

	if (!HAVE(TASK_ON_CPU)) {
		a->kind = TASK_DIAG_WAIT_RUNNABLE;
		return;
	}
	if (is_on_cpu(t)) {
		a->kind = TASK_DIAG_WAIT_ON_CPU;
		a->last_ran_ns = st.begin + st.ns_boottime_ns;
		a->ran_error_ns = 0;
		a->ran_by = TASK_DIAG_RAN_NOW;
		a->valid |= KNOWN(LAST_RAN_NS) | KNOWN(RAN_ERROR_NS) | KNOWN(RAN_BY);
		return;
	}
	a->kind = TASK_DIAG_WAIT_CPU;
	if (HAVE(TASK_THROTTLED))
		is_throttled = RD(u8, t, TASK_THROTTLED) & 1;
	else if (HAVE(TASK_CFS_RQ) && HAVE(CFS_RQ_THROTTLED) && FAIR_POLICIES >> (R(t, policy) & 31) & 1)
		is_throttled = RD(u32, RD(u64, t, TASK_CFS_RQ), CFS_RQ_THROTTLED);
	if (is_throttled)
		a->kind = TASK_DIAG_WAIT_THROTTLED;
	if (queued && st.sched_begin) {
		a->ready_ns = boot_time(queued);
		a->valid |= KNOWN(READY_NS);
	}
}

static __always_inline void put_owner(struct task_diag_wait *a, u64 owner, u32 how)
{
	struct task_struct *o = CAST(struct task_struct, (void *)owner);

	a->owner_how = how;
	a->owner_tid = task_nr(o);
	a->owner_tgid = task_tgid_nr(o);
	a->valid |= KNOWN(OWNER_TID) | KNOWN(OWNER_TGID);
}

/* The owner that a lock names, if any. It may name the task itself for a moment, when it is given the lock. */
static __always_inline void put_lock_owner(struct task_diag_wait *a, struct task_struct *t, u64 owner)
{
	if (!owner || owner == (u64)t)
		a->owner_how = TASK_DIAG_OWNER_NONE;
	else
		put_owner(a, owner, TASK_DIAG_OWNER_LOCK);
}

static __always_inline void put_object(struct task_diag_wait *a, u64 object)
{
	a->object = object;
	a->valid |= KNOWN(OBJECT);
}

/*
 * The lock of the kernel that the task waits for, and its owner. The lock lives as long as a task waits for it. So its owner counts
 * only if the task waits for the same lock before and after the owner was read. That owner had not ended then, so its
 * task_struct stays until this run ends.
 */
GROUP_FN put_lock(void)
{
	struct task_diag_wait *a = at(st.off);
	struct task_struct *t = THIS;
	u64 blocker = RD_MAY(u64, t, TASK_BLOCKER), waiter, lock, owner = 0;
	u32 type = blocker & BLOCKER_TYPES;
	bool is_known = false;

	if (!a)
		return 0;
	if (blocker) {
		lock = blocker & ~(u64)BLOCKER_TYPES;
		if (type == BLOCKER_MUTEX && HAVE(MUTEX_OWNER)) {
			owner = RD(u64, lock, MUTEX_OWNER);
			is_known = true;
		} else if (type >= BLOCKER_READER && HAVE(RWSEM_OWNER)) {
			owner = RD(u64, lock, RWSEM_OWNER);
			is_known = true;
		}
		if (!STILL_AT(t, TASK_BLOCKER, blocker))
			return 0;
		put_object(a, lock);
		a->kind = type == BLOCKER_MUTEX ? TASK_DIAG_WAIT_MUTEX :
			  type == BLOCKER_SEMAPHORE ? TASK_DIAG_WAIT_SEMAPHORE :
			  type == BLOCKER_READER ? TASK_DIAG_WAIT_RWSEM_READ : TASK_DIAG_WAIT_RWSEM_WRITE;
		if (type == BLOCKER_SEMAPHORE)
			a->owner_how = TASK_DIAG_OWNER_NOT_KEPT;
		else if (is_known && type != BLOCKER_MUTEX && owner & RWSEM_READERS)
			a->owner_how = TASK_DIAG_OWNER_READERS;
		else if (is_known)
			put_lock_owner(a, t, owner & ~(u64)OWNER_FLAGS);
		return 0;
	}
	if (!HAVE(TASK_PI_BLOCKED) || !HAVE(RT_WAITER_LOCK) || !HAVE(RT_MUTEX_OWNER))
		return 0;
	waiter = RD(u64, t, TASK_PI_BLOCKED);
	if (!waiter)
		return 0;
	lock = RD(u64, waiter, RT_WAITER_LOCK);
	if (!STILL_AT(t, TASK_PI_BLOCKED, waiter))
		return 0;
	owner = RD(u64, lock, RT_MUTEX_OWNER);
	if (!STILL_AT(t, TASK_PI_BLOCKED, waiter))
		return 0;
	put_object(a, lock);
	a->kind = TASK_DIAG_WAIT_RT_MUTEX;
	put_lock_owner(a, t, owner & ~(u64)RT_MUTEX_FLAGS);
	return 0;
}

/* The system call that the task sleeps in, from the registers st.regs that it entered the kernel with: as /proc/PID/syscall. */
GROUP_FN put_syscall(void)
{
	u64 regs = st.regs;
	struct task_diag_wait *a = at(st.off);
	struct task_struct *t = THIS;
	bool is_compat;
	u32 nr, i;

	if (!a || !regs || !HAVE(REGS_NR) || !HAVE(REGS_SP) || !HAVE(REGS_PC))
		return 0;
	a->user_sp = RD(u64, regs, REGS_SP);
	a->user_pc = RD(u64, regs, REGS_PC);
	if (HAVE(REGS_BP)) {
		a->user_fp = RD(u64, regs, REGS_BP);
		a->valid |= KNOWN(USER_FP);
	} else if (HAVE(REGS_X)) {
		a->user_fp = RD_AT(u64, regs + OFF(REGS_X) + 29 * 8);
		a->user_lr = RD_AT(u64, regs + OFF(REGS_X) + 30 * 8);
		a->valid |= KNOWN(USER_FP) | KNOWN(USER_LR);
	}
	nr = RD(u32, regs, REGS_NR);
	/* A thread of the kernel has no user space, and its registers are zero. */
	if (R(t, flags) & PF_KTHREAD || (!a->user_sp && !a->user_pc)) {
		a->user_sp = a->user_pc = a->user_fp = a->user_lr = 0;
		nr = ~0u;
	}
	a->syscall_nr = nr;
	a->valid |= KNOWN(SYSCALL_NR) | KNOWN(USER_SP) | KNOWN(USER_PC);
	if ((s32)nr < 0)
		return 0;
	if (HAVE(TASK_STATUS))
		is_compat = RD(u32, t, TASK_STATUS) & TS_COMPAT;
	else
		is_compat = HAVE(TASK_THREAD_FLAGS) && (RD(u64, t, TASK_THREAD_FLAGS) >> TIF_32BIT & 1);
	if (is_compat)
		a->flags |= TASK_DIAG_WAIT_COMPAT;
	if (HAVE(REGS_ORIG_X0) && HAVE(REGS_X)) {
		a->args[0] = RD(u64, regs, REGS_ORIG_X0);
#pragma unroll
		for (i = 1; i < 6; i++)
			a->args[i] = RD_AT(u64, regs + OFF(REGS_X) + i * 8);
	} else if (!HAVE(REGS_DI) || !HAVE(REGS_SI) || !HAVE(REGS_DX) || !HAVE(REGS_R10) || !HAVE(REGS_R8) ||
		   !HAVE(REGS_R9) || !HAVE(REGS_BX) || !HAVE(REGS_CX) || !HAVE(REGS_BP)) {
		return 0;
	} else if (is_compat) {
		a->args[0] = (u32)RD(u64, regs, REGS_BX);
		a->args[1] = (u32)RD(u64, regs, REGS_CX);
		a->args[2] = (u32)RD(u64, regs, REGS_DX);
		a->args[3] = (u32)RD(u64, regs, REGS_SI);
		a->args[4] = (u32)RD(u64, regs, REGS_DI);
		a->args[5] = (u32)RD(u64, regs, REGS_BP);
	} else {
		a->args[0] = RD(u64, regs, REGS_DI);
		a->args[1] = RD(u64, regs, REGS_SI);
		a->args[2] = RD(u64, regs, REGS_DX);
		a->args[3] = RD(u64, regs, REGS_R10);
		a->args[4] = RD(u64, regs, REGS_R8);
		a->args[5] = RD(u64, regs, REGS_R9);
	}
	a->valid |= KNOWN(ARGS);
	return 0;
}

/* Clear a record, and set the only members that are known so far. */
static __always_inline void begin_record(struct task_diag_wait *a, u32 kind, u8 state)
{
	__builtin_memset(a, 0, sizeof(*a));
	a->valid = KNOWN(KIND) | KNOWN(FLAGS) | KNOWN(OWNER_HOW) | KNOWN(STATE);
	a->kind = kind;
	a->state = state;
}

/* Write WAIT of the task, whose registers are at st.regs, and whose stack is in st.up if `frames` is not 0. */
GROUP_FN put_wait(u32 frames)
{
	struct task_struct *t = THIS;
	struct task_diag_wait *a = at(st.off);
	u64 address = st.up[0];

	if (!a)
		return 0;
	begin_record(a, TASK_DIAG_WAIT_OTHER, state_letter(t));
	put_times(a, t);
	if (R(t, exit_state)) {
		a->kind = TASK_DIAG_WAIT_ENDED;
	} else if (!has_gone_to_sleep(t)) {
		put_ready(a, t);
	} else {
		if (a->state == 'D')
			a->flags |= TASK_DIAG_WAIT_UNINTERRUPTIBLE;
		if (frames && address) {
			bpf_snprintf(a->function, sizeof(a->function), (const char *)cfg.symbol_format, &address,
				     sizeof(address));
			a->valid |= KNOWN(FUNCTION);
		}
		put_syscall();
		put_lock();
		if (a->state == 't' && R(t, ptrace))
			put_owner(a, (u64)R(t, parent), TASK_DIAG_OWNER_TRACER);
		order();
		/* The task has run meanwhile, so the data may be of two waits. */
		if (switches(t) != st.wait_switches || !has_gone_to_sleep(t)) {
			begin_record(a, TASK_DIAG_WAIT_RUNNABLE, 'R');
			a->last_ran_ns = st.begin + st.ns_boottime_ns;
			a->ran_by = TASK_DIAG_RAN_NOW;
			a->valid |= KNOWN(LAST_RAN_NS) | KNOWN(RAN_ERROR_NS) | KNOWN(RAN_BY);
		} else {
			a->switches = st.wait_switches;
			a->valid |= KNOWN(SWITCHES);
		}
	}
	PUT(a, TASK_DIAG_WAIT);
	is_late(16);
	return 0;
}

#endif
