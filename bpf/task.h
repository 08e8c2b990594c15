/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One task, whole: what needs more than reading its members (paths, the sum
 * over its threads, user memory), and the message around it. Shared by the
 * snapshot program and its legacy form.
 */
#ifndef TASKDIAG_TASK_H
#define TASKDIAG_TASK_H

/*
 * TASK_FN(name, groups): a global function, as GROUP_FN, with a task `t` that helpers take; called as
 * CALL(name, t). It looks that up again itself: arguments that the verifier trusts are since Linux commit
 * e2b3c4ff5d18 ("bpf: add __arg_trusted global func arg tag") (in v6.9). Where the task has gone meanwhile,
 * so have the groups; a function of no group returns true then.
 *
 * Paths are read under RCU: the verifier lets only such pointers be given to bpf_d_path().
 */
#ifdef LEGACY
#define TASK_FN(name, groups) static __always_inline int name(struct task_struct *t)
#define CALL(name, t) name(t)
/* Since Linux commit 9bb00b2895cb ("bpf: Add kfunc bpf_rcu_read_lock/unlock()") (in v6.2), which is
 * when they began to matter. */
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;
#define RCU_LOCK() do { if (bpf_ksym_exists(bpf_rcu_read_lock)) bpf_rcu_read_lock(); } while (0)
#define RCU_UNLOCK() do { if (bpf_ksym_exists(bpf_rcu_read_lock)) bpf_rcu_read_unlock(); } while (0)
#else
#define TASK_FN(name, groups)						\
static __always_inline int name##_of(struct task_struct *t);		\
GROUP_FN name(void)							\
{									\
	struct task_struct *t = bpf_task_from_pid(st.pid);		\
	int r = !(groups);						\
									\
	if (t && (u64)t == st.task)					\
		r = name##_of(t);					\
	else								\
		gone(groups);						\
	if (t)								\
		bpf_task_release(t);					\
	return r;							\
}									\
static __always_inline int name##_of(struct task_struct *t)
#define CALL(name, t) name()
#define RCU_LOCK() bpf_rcu_read_lock()
#define RCU_UNLOCK() bpf_rcu_read_unlock()
#endif

#ifndef LEGACY
#include "usermem.h"
#endif

#ifndef LEGACY

extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task,
			     unsigned int flags) __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;

#endif

/* A per-CPU object of ours: where it is on each CPU, less its per-CPU pointer, is what to add to
 * any per-CPU pointer. (The symbols that would tell are hidden without CONFIG_KALLSYMS_ALL.) */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 8);
	__uint(max_entries, 1);
} per_cpu SEC(".maps");

#ifndef LEGACY

/* Of a task that ended before these groups of it were read. */
static __always_inline void gone(u32 groups)
{
#pragma unroll
	for (u32 g = 0; g < 32; g++)
		if (groups & 1u << g && WANT(g))
			missing(g, TASK_DIAG_R_VANISHED);
}

#endif

#include "shared.h"

#ifndef NO_MORE
#include "raw.h"
#include "names.h"
#include "filestat.h"
#include "vma.h"
#include "files.h"
#include "state.h"
#endif

#ifdef LEGACY

/* Where one CPU has what per-CPU pointers point to, st.arg being the pointer of per_cpu. Through memory: a
 * pointer that was stored is a number when it is read. */
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
	if (WANT(TASK_DIAG_VMA) || WANT(TASK_DIAG_FD))
		set_up_names(me);
#endif
#ifdef LEGACY
	if (WANT(TASK_DIAG_STATM) && !bpf_core_field_exists(((struct mm_struct___array *)0)->rss_stat.count))
		find_cpus();
#else
	if (WANT(TASK_DIAG_CMDLINE) || WANT(TASK_DIAG_ENVIRON))
		find_direct_map(me);
	if (WANT(TASK_DIAG_STATM)) {
		u64 base = 0;

		bpf_probe_read_kernel(&base, sizeof(base), &CAST(struct bpf_array, &per_cpu)->pptrs);
		bpf_for(cpu, 0, CPUS_MAX) {
			void *p = bpf_map_lookup_percpu_elem(&per_cpu, &zero, cpu);

			if (!p)
				break;
			/* through memory: a pointer that was stored is a number when it is read */
			*(volatile u64 *)&st.arg = (u64)p;
			st.cpu_offset[cpu & (CPUS_MAX - 1)] = *(volatile u64 *)&st.arg - base;
			st.ncpus = cpu + 1;
		}
	}
#endif
}

#ifndef NO_RARE

static __always_inline void put_path(const struct path *p, u32 kind)
{
	struct task_diag_blob *b;
	struct dentry *d;
	u32 flags = 0;
	long n;

	spill();
	b = begin_blob();
	if (!b)
		return;
	n = bpf_d_path(p, b->data, 4096);
	if (n <= 0) {
		end_blob(b, TASK_DIAG_PATHS, kind, 0, 0, 0, 0, TASK_DIAG_R_TRUNCATED);
		return;
	}
	/* d_unlinked(), and a file that never had a name, which simple_dname() marks the same */
	d = R(CAST(struct path, p), dentry);
	if (R(d, d_parent) != d ? !R(d, d_hash.pprev) : !R(d, d_inode, i_nlink))
		flags = TASK_DIAG_BLOB_DELETED;
	n = (n - 1) & 0xfff;
	end_blob(b, TASK_DIAG_PATHS, kind, n, 0, n, flags, 0);
}

static __always_inline void no_path(u32 kind)
{
	struct task_diag_blob *b = begin_blob();

	if (b)
		end_blob(b, TASK_DIAG_PATHS, kind, 0, 0, 0, 0, TASK_DIAG_R_ABSENT);
}

TASK_FN(put_paths, 1u << TASK_DIAG_PATHS)
{
	struct mm_struct *mm;
	struct file *exe;
	struct fs_struct *fs;

	RCU_LOCK();
	mm = t->mm;
	fs = t->fs;
	exe = mm && !(R(PLAIN(t), flags) & PF_KTHREAD) ? mm->exe_file : NULL;
	if (exe)
		put_path(&exe->f_path, TASK_DIAG_PATH_EXE);
	else
		no_path(TASK_DIAG_PATH_EXE);
	if (fs) {
		put_path(&fs->pwd, TASK_DIAG_PATH_CWD);
		put_path(&fs->root, TASK_DIAG_PATH_ROOT);
	} else {
		no_path(TASK_DIAG_PATH_CWD);
		no_path(TASK_DIAG_PATH_ROOT);
	}
	RCU_UNLOCK();
	return 0;
}

#else

static int put_paths(void) { return 0; }

#endif

/*
 * The memory of a process is that of its threads, of which the first may have ended before others: then
 * st.task is one that lives, for the groups between this and from_memory(). The list of threads begins with
 * the first; few that follow can be about to end and have no memory any more.
 */
enum { LIVE_TRIES = 16 };

GROUP_FN to_memory(void)
{
	struct task_struct *t = THIS, *each;
	struct signal_struct *s = R(t, signal);
	struct list_head *node;
	u32 i;

	st.own_task = st.task;
	st.own_pid = st.pid;
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
			st.pid = R(each, pid);
			break;
		}
		st.node = (u64)R(node, next);
	}
	return 0;
}

/* Older helpers take only the task that the iterator gave. */
#ifdef LEGACY
#define WHY_NO_MEMORY (st.task == st.own_task ? TASK_DIAG_R_ABSENT : TASK_DIAG_R_UNSUPPORTED)
#else
#define WHY_NO_MEMORY TASK_DIAG_R_ABSENT
#endif

static __always_inline void from_memory(void)
{
	st.task = st.own_task;
	st.pid = st.own_pid;
}

/* Groups that need no trusted pointer. */
GROUP_FN put_plain(void)
{
	if (WANT(TASK_DIAG_BASE))
		put_base();
	if (WANT(TASK_DIAG_CRED))
		put_cred();
	if (WANT(TASK_DIAG_STAT))
		put_stat();
	if (WANT(TASK_DIAG_STATM)) {
		to_memory();
		put_statm();
		from_memory();
	}
	if (WANT(TASK_DIAG_IO))
		put_io();
	if (WANT(TASK_DIAG_SCHED))
		put_sched();
	if (WANT(TASK_DIAG_NS))
		put_ns();
	if (WANT(TASK_DIAG_CGROUP))
		put_cgroup();
	if (WANT(TASK_DIAG_FD_COUNT))
		put_fd_count();
#ifndef NO_MORE
	if (WANT(TASK_DIAG_LIMITS))
		put_limits();
	if (WANT(TASK_DIAG_SIGNALS))
		put_signals();
#endif
	return 0;
}

#ifdef LEGACY

static long sum_next(u32 i, void *unused)
{
	/* not st.node in R(): all of its argument is taken for kernel types */
	struct list_head *node = (void *)st.node;
	struct task_struct *t;

	(void)i;
	(void)unused;
	if (st.node == st.arg || !node)
		return 1;
	t = (void *)(st.node - __builtin_preserve_field_info(
			((struct task_struct *)0)->thread_node, BPF_FIELD_BYTE_OFFSET));
	add_thread(t);
	st.node = (u64)R(node, next);
	return 0;
}

static __always_inline void sum(struct task_struct *t)
{
	struct signal_struct *s = R(t, signal);
	u32 threads = R(s, nr_threads);

	sum_begin(s, IS_PROCESS);
	if (!IS_PROCESS || threads <= 1) {
		add_thread(t);
		return;
	}
	st.arg = (u64)&s->thread_head;
	st.node = (u64)R(s, thread_head.next);
	bpf_loop(threads + 64, sum_next, NULL, 0);
}

#else

/* What is there without a walk over threads. 0: there are more. */
GROUP_FN sum_own(void)
{
	struct task_struct *t = THIS;
	struct signal_struct *s = R(t, signal);

	sum_begin(s, IS_PROCESS);
	if (IS_PROCESS && R(s, nr_threads) > 1)
		return 0;
	add_thread(t);
	return 1;
}

static __always_inline void sum(struct task_struct *t)
{
	struct task_struct *ref, *each;

	if (sum_own())
		return;
	ref = bpf_task_acquire(t);
	if (!ref)
		return;
	bpf_for_each(task, each, ref, BPF_TASK_ITER_PROC_THREADS)
		add_thread(PLAIN(each));
	bpf_task_release(ref);
}

#endif

/* Have the cache lines that BASE and STAT read fetched together, not one after the other. Worth it
 * for many threads, whose process is in the cache already; and only as a global function: in the loop
 * of the walk the verifier takes a millisecond more for these loads. */
GROUP_FN touch(void)
{
	struct task_struct *t = THIS;
	volatile u64 *x = &st.arg;

	*x = R(t, flags);
	*x = R(t, exit_state);
	*x = (u64)R(t, real_parent);
	*x = (u64)R(t, signal);
	if (WANT(TASK_DIAG_BASE) && NEED_BASE(START))
		*x = R(t, start_boottime);
	if (WANT(TASK_DIAG_BASE) && NEED_BASE(COMM))
		*x = R(t, comm[0]);
	if (NEED_STAT(NICE) || NEED_STAT(PRIORITY))
		*x = R(t, prio);
	if (NEED_STAT(POLICY))
		*x = R(t, policy);
	if (NEED_TIME) {
		*x = R(t, utime);
		*x = R(t, se.sum_exec_runtime);
	}
	return 0;
}

/* Open the message of st.task. False: the reader cannot see it. */
GROUP_FN begin_task(void)
{
	st.nr = task_nr(THIS);
	st.tgid = task_tgid_nr(THIS);
	if (st.nr)
		begin_message(st.nr, st.tgid, st.part ? TASK_DIAG_FLAG_CONT : 0);
	return st.nr;
}

/* All of a task but its paths and command line, as an open message. Under RCU. No reference is taken: that
 * would be half the cost of a listing. False: the reader cannot see it. */
static __always_inline bool write_task(struct task_struct *t)
{
	st.task = (u64)t;
	if (WANT(TASK_DIAG_STAT))
		touch();
	if (!begin_task())
		return false;
	if (st.part)
		return true;
	if (NEED_TIME || NEED_STAT(MINFLT) || NEED_STAT(MAJFLT) || WANT(TASK_DIAG_SCHED) ||
	    WANT(TASK_DIAG_IO))
		sum(t);
	put_plain();
	st.tasks++;
	return true;
}

/* Does the mapping of an address lie in a file? Reading from there may wait for whoever serves it. */
static long look_at_mapping(struct task_struct *t, struct vm_area_struct *vma, void *unused)
{
	(void)t;
	(void)unused;
	st.locked = !!vma->vm_file;
	return 0;
}

/* How often to look whether the lock is free: for some 50 microseconds. */
#ifdef LEGACY
#define LOCK_TRIES 4
#else
#define LOCK_TRIES 256
#endif

/* Can the user address in st.arg be read without waiting for long: for the mmap lock, or for a page of
 * a file? That it can be for a page of a file in memory is not looked at: see usermem.h, which comes first. */
TASK_FN(at_hand, 0)
{
	u64 addr = st.arg;
	long r;
	u32 i;

	EACH(i, 0, LOCK_TRIES, LOCK_TRIES) {
		st.locked = 0;
		r = bpf_find_vma(t, addr, look_at_mapping, NULL, 0);
		if (r != -EBUSY)
			return !st.locked;
	}
	return 0;
}

#define is_at_hand(t, addr) (st.arg = (addr), CALL(at_hand, t))

/* How much of a NUL-terminated title, ended by its NUL, is in the first page of the arguments:
 * as get_mm_proctitle(). The text is copied to b->data; 0: none could be read. */
static __always_inline u32 title(struct task_struct *t, struct task_diag_blob *b, u64 start)
{
	char *tmp = (char *)b + sizeof(*b) + 8192;
	u32 size = 4096;
	long n;

	if (bpf_copy_from_user_task(b->data, 4096, (void *)start, t, 0)) {
		size = 4096 - (start & 4095);
		if (!size || bpf_copy_from_user_task(b->data, size & 0xfff, (void *)start, t, 0))
			return 0;
	}
	n = bpf_probe_read_kernel_str(tmp, 4096, b->data);
	if (n <= 0)
		return 0;
	if (n == 4096 && b->data[4095])
		return size;
	return n < size ? n : size;
}

#ifdef LEGACY

static __always_inline int put_cmdline_now(void) { return 0; }

#else

/* All of the command line, without waiting for anything. False: it takes put_cmdline_piece(). */
GROUP_FN put_cmdline_now(void)
{
	struct task_struct *t = THIS;
	struct mm_struct *mm = R(t, mm);
	struct task_diag_blob *b = here();
	u64 start, end;
	u32 total, first, rest;

	if (!b)
		return 0;
	if (!mm || R(t, flags) & PF_KTHREAD) {
		missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_ABSENT);
		return 1;
	}
	start = R(mm, arg_start);
	end = R(mm, arg_end);
	if (!st.direct_map || end <= start || end - start > 4096)
		return 0;
	total = end - start;
	first = 4096 - (start & 4095);
	if (first > total)
		first = total;
	rest = total - first;
	st.pt_top = (u64)R(mm, pgd);
	barrier_var(first);
	if (!copy_user_page(b->data, first & 0x1fff, start))
		return 0;
	barrier_var(rest);
	if (rest && !copy_user_page(b->data + (first & 0xfff), rest & 0xfff, start + first))
		return 0;
	/* Another mm: what was read may be of no one. Without a NUL at the end, the process wrote
	 * over its arguments, and where they end takes more reading. */
	barrier_var(total);
	if (R(t, mm) != mm || b->data[(total - 1) & 0xfff])
		return 0;
	end_blob(b, TASK_DIAG_CMDLINE, 0, total & 0x1fff, 0, total, 0, 0);
	return 1;
}

#endif

/* One piece of the command line from st.cmd_offset on. Returns true when there is more. */
TASK_FN(put_cmdline_piece, 1u << TASK_DIAG_CMDLINE)
{
	struct task_struct *p = PLAIN(t);
	struct mm_struct *mm = R(p, mm);
	struct task_diag_blob *b;
	u64 start, end;
	u32 total, off = st.cmd_offset, n;
	char last;

	spill();
	b = here();
	if (!b)
		return 0;
	if (!mm || R(p, flags) & PF_KTHREAD) {
		missing(TASK_DIAG_CMDLINE, WHY_NO_MEMORY);
		return 0;
	}
	start = R(mm, arg_start);
	end = R(mm, arg_end);
	if (end - start > 0x7fffffff)
		end = start;
	total = end - start;
	if (st.cmd_total && total != st.cmd_total)
		total = st.cmd_total;
	if (off >= total) {
		end_blob(b, TASK_DIAG_CMDLINE, 0, 0, 0, 0, 0, 0);
		return 0;
	}
	if (!is_at_hand(t, start + off) || !is_at_hand(t, end - 1)) {
		missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_BLOCKED);
		st.blocked++;
		return 0;
	}
	n = total - off;
	if (n > TASK_DIAG_BLOB_MAX - 8)
		n = TASK_DIAG_BLOB_MAX - 8;
	/* Old verifiers forget the bound; the compiler knows it and would drop a mask. */
	barrier_var(n);
	n &= 0x7fff;
	if (bpf_copy_from_user_task(b->data, n, (void *)start + off, t, 0)) {
		/* Not all is mapped: what is there up to the end of the page. */
		n = 4096 - ((start + off) & 4095);
		if (n > total - off)
			n = total - off;
		barrier_var(n);
		n &= 0x1fff;
		if (bpf_copy_from_user_task(b->data, n, (void *)start + off, t, 0)) {
			if (R(p, mm) != mm) {
				missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_ABSENT);
			} else if (off == 0) {
				/* There are some, and another task must bring them in (userfaultfd). */
				missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_BLOCKED);
				st.blocked++;
			} else {
				st.truncated++;
			}
			return 0;
		}
	}
	if (off == 0) {
		/* The last byte tells whether the process wrote over its arguments. */
		last = 0;
		if (n == total)
			last = b->data[(n - 1) & 0x7fff];
		else
			bpf_copy_from_user_task(&last, 1, (void *)end - 1, t, 0);
		if (last) {
			n = title(t, b, start) & 0x1fff;
			end_blob(b, TASK_DIAG_CMDLINE, 0, n, 0, n, TASK_DIAG_BLOB_REWRITTEN, 0);
			return 0;
		}
	}
	end_blob(b, TASK_DIAG_CMDLINE, 0, n, off, total, 0, 0);
	st.cmd_total = total;
	st.cmd_offset = off + n;
	return st.cmd_offset < total;
}

#ifndef NO_MORE
#include "environ.h"
#endif

/* Of put_parts(), what is of the task's memory. */
static __always_inline bool put_memory_parts(struct task_struct *t)
{
	(void)t;
	if (WANT(TASK_DIAG_CMDLINE) && st.part == PART_CMDLINE &&
	    (st.cmd_offset || !put_cmdline_now()) &&
	    CALL(put_cmdline_piece, t))
		return true;
#ifndef NO_MORE
	if (WANT(TASK_DIAG_ENVIRON) && st.part <= PART_ENVIRON) {
		if (st.part < PART_ENVIRON)
			st.cmd_offset = st.cmd_total = 0;
		st.part = PART_ENVIRON;
		if (CALL(put_environ_piece, t))
			return true;
	}
	if (WANT(TASK_DIAG_VMA) && st.part <= PART_VMA) {
		if (st.part < PART_VMA)
			st.part_begun = 0;
		st.part = PART_VMA;
		if (put_vmas())
			return true;
	}
#endif
	return false;
}

/* What may be long, or sleep: in pieces, from st.part on. True: more is left than fits. */
static __always_inline bool put_parts(struct task_struct *t)
{
	bool more;

	(void)t;
	if (st.part == PART_FIXED) {
		st.part = PART_CMDLINE;
		if (WANT(TASK_DIAG_PATHS))
			CALL(put_paths, t);
#ifndef NO_MORE
		if (WANT(TASK_DIAG_WCHAN) || WANT(TASK_DIAG_KSTACK))
			CALL(put_stack, t);
		if (WANT(TASK_DIAG_FILE_STAT))
			put_file_stats();
#endif
	}
	if (WANT(TASK_DIAG_CMDLINE) || WANT(TASK_DIAG_ENVIRON) || WANT(TASK_DIAG_VMA)) {
		to_memory();
		more = put_memory_parts(t);
		from_memory();
		if (more)
			return true;
	}
#ifndef NO_MORE
	if (WANT(TASK_DIAG_FD) && st.part <= PART_FD) {
		if (st.part < PART_FD)
			st.part_begun = 0;
		st.part = PART_FD;
		if (put_fds())
			return true;
	}
#endif
	return false;
}

/* The next task is a new one. */
static __always_inline void next_task(void)
{
	st.part = st.cmd_offset = st.cmd_total = 0;
}

#endif
