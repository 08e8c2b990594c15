/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The answer to one request, in one program: walk the tasks that the strategy
 * names and write each into the output. When that is full, the walk goes on
 * but only lists pids; later runs write these, each until the output is full.
 * User space takes what is there and runs again. So nothing is cut or
 * repeated, and the output need not hold the whole answer.
 *
 * It is an iterator program because only these may call bpf_d_path(), and a
 * sleepable one because command lines are in user memory. But it does its own
 * walk: on any first task it does a whole run, and answers "again" (1), which
 * read(2) reports as EAGAIN. So processes cost processes: the iterator never
 * steps through the threads.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#define TASK_DIAG_NO_INCLUDES
#include "../uapi/task_diag.h"
#include "snapshot.h"
#include "fill.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task,
			     unsigned int flags) __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;

/* Pids in the initial namespace of the tasks to write; length set before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 1);
} pids SEC(".maps");

/* A per-CPU object of ours: where it is on each CPU, less its per-CPU pointer, is what to add to
 * any per-CPU pointer. (The symbols that would tell are hidden without CONFIG_KALLSYMS_ALL.) */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 8);
	__uint(max_entries, 1);
} per_cpu SEC(".maps");

static __always_inline void set_up(void)
{
	struct task_struct *me = PLAIN(bpf_get_current_task_btf());
	struct pid *pid = me->thread_pid;
	struct upid u = {};
	u32 cpu, zero = 0;

	if (st.set_up)
		return;
	st.set_up = 1;
	st.level = pid->level;
	if (st.level > 0 && st.level <= 32 &&
	    !bpf_probe_read_kernel(&u, sizeof(u), (char *)pid +
			__builtin_preserve_field_info(((struct pid *)0)->numbers,
						      BPF_FIELD_BYTE_OFFSET) +
			st.level * sizeof(u)))
		st.ns = (u64)u.ns;
	st.ns_boottime_ns = me->nsproxy->time_ns->offsets.boottime.tv_sec * 1000000000ull +
			    me->nsproxy->time_ns->offsets.boottime.tv_nsec;
	if (WANT(TASK_DIAG_CGROUP))
		st.cgroup_root = (u64)me->nsproxy->cgroup_ns->root_cset->dfl_cgrp->kn;
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
}

#ifndef LITE

static __always_inline void put_path(const struct path *p, u32 kind)
{
	struct task_diag_blob *b = begin_blob();
	struct dentry *d = p->dentry;
	u32 flags = 0;
	long n;

	if (!b)
		return;
	n = bpf_d_path(p, b->data, 4096);
	if (n <= 0) {
		end_blob(b, TASK_DIAG_PATHS, kind, 0, 0, 0, 0, TASK_DIAG_R_TRUNCATED);
		return;
	}
	/* d_unlinked() */
	if (!d->d_hash.pprev && d->d_parent != d)
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

static __always_inline void put_paths(struct task_struct *t)
{
	struct mm_struct *mm = t->mm;
	struct file *exe = mm && !(t->flags & PF_KTHREAD) ? mm->exe_file : NULL;
	struct fs_struct *fs = t->fs;

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
}

#else

static void put_paths(struct task_struct *t) { (void)t; }

#endif

/* Groups that need no trusted pointer. */
GROUP_FN put_plain(void)
{
	if (WANT(TASK_DIAG_BASE))
		put_base();
	if (WANT(TASK_DIAG_CRED))
		put_cred();
	if (WANT(TASK_DIAG_STAT))
		put_stat();
	if (WANT(TASK_DIAG_STATM))
		put_statm();
	if (WANT(TASK_DIAG_IO))
		put_io();
	if (WANT(TASK_DIAG_SCHED))
		put_sched();
	if (WANT(TASK_DIAG_NS))
		put_ns();
	if (WANT(TASK_DIAG_CGROUP))
		put_cgroup();
	return 0;
}

static __always_inline void sum(struct task_struct *t)
{
	bool process = IS_PROCESS;
	struct signal_struct *s = PLAIN(t)->signal;
	struct task_struct *ref, *each;

	sum_begin(s, process);
	if (!process || s->nr_threads <= 1) {
		add_thread(PLAIN(t));
		return;
	}
	ref = bpf_task_acquire(t);
	if (!ref)
		return;
	bpf_for_each(task, each, ref, BPF_TASK_ITER_PROC_THREADS)
		add_thread(PLAIN(each));
	bpf_task_release(ref);
}

/* Open the message of st.task. False: the reader cannot see it. */
GROUP_FN begin_task(void)
{
	u32 nr = task_nr(THIS);

	if (nr)
		begin_message(nr, task_tgid_nr(THIS), st.cmd_offset ? TASK_DIAG_FLAG_CONT : 0);
	return nr;
}

/* All of a task but its command line, as an open message. Under RCU. No reference is taken: that
 * would be half the cost of a listing. False: the reader cannot see it. */
static __always_inline bool write_task(struct task_struct *t)
{
	st.task = (u64)t;
	if (!begin_task())
		return false;
	if (st.cmd_offset)
		return true;
	if (WANT(TASK_DIAG_STAT) || WANT(TASK_DIAG_SCHED) || WANT(TASK_DIAG_IO))
		sum(t);
	put_plain();
	if (WANT(TASK_DIAG_PATHS))
		put_paths(t);
	st.tasks++;
	return true;
}

/* Put a task on the list of those to write later. */
static __always_inline void list(u32 pid)
{
	u32 i = st.npids, *slot;

	st.npids = i + 1;
	if (cfg.count_only)
		return;
	slot = bpf_map_lookup_elem(&pids, &i);
	if (slot)
		*slot = pid;
	else
		st.overflow = 1;
}

/* A task of the walk: it is written at once while there is room, since all about it is in the
 * CPU's cache now. A command line may sleep, which the walk may not. */
static __always_inline void visit(struct task_struct *t)
{
	struct task_struct *p = PLAIN(t);
	u32 pid = p->pid;

	if (pid == 0)
		return;
	if (cfg.strategy == TASK_DIAG_DUMP_CHILDREN && p->real_parent->tgid != st.target)
		return;
	if (WANT(TASK_DIAG_CMDLINE) || cfg.count_only || st.npids || !room(CHUNKS_RESERVE)) {
		list(pid);
		return;
	}
	if (write_task(t))
		end_task();
}

/* The process that the request is about, by any of its threads' ids: sets st.target to its tgid
 * in the initial namespace, and lists it or its threads if these are what is asked for. */
static __always_inline void find_target(void)
{
	struct task_struct *t = NULL, *each;
	s32 pid = cfg.pid;

	if (st.level) {
		pid = 0;
		bpf_rcu_read_lock();
		bpf_for_each(task, each, NULL, BPF_TASK_ITER_ALL_THREADS)
			if (task_nr(PLAIN(each)) == cfg.pid) {
				pid = each->pid;
				break;
			}
		bpf_rcu_read_unlock();
	}
	if (pid)
		t = bpf_task_from_pid(pid);
	if (!t)
		return;
	st.target = t->tgid;
	if (t->pid != st.target) {
		/* The iterator over threads goes on from the one it is given: give it the first. */
		bpf_task_release(t);
		t = bpf_task_from_pid(st.target);
		if (!t)
			return;
	}
	if (cfg.strategy == TASK_DIAG_DUMP_ONE) {
		list(st.target);
	} else if (cfg.strategy == TASK_DIAG_DUMP_THREAD) {
		bpf_rcu_read_lock();
		bpf_for_each(task, each, t, BPF_TASK_ITER_PROC_THREADS)
			visit(each);
		bpf_rcu_read_unlock();
	}
	bpf_task_release(t);
}

static __always_inline void walk(void)
{
	struct task_struct *t;
	u32 what = cfg.strategy == TASK_DIAG_DUMP_ALL_THREAD ? BPF_TASK_ITER_ALL_THREADS :
							       BPF_TASK_ITER_ALL_PROCS;

	if (cfg.pid) {
		find_target();
		if (cfg.strategy != TASK_DIAG_DUMP_CHILDREN || !st.target)
			return;
	}
	bpf_rcu_read_lock();
	bpf_for_each(task, t, NULL, what)
		visit(t);
	bpf_rcu_read_unlock();
}

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

/* One piece of the command line from st.cmd_offset on. Returns true when there is more. */
__noinline int put_cmdline_piece(struct task_struct *t __arg_trusted)
{
	struct task_struct *p = PLAIN(t);
	struct mm_struct *mm = p->mm;
	struct task_diag_blob *b = here();
	u64 start, end;
	u32 total, off = st.cmd_offset, n;
	char last;

	if (!b)
		return 0;
	if (!mm || p->flags & PF_KTHREAD) {
		missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_ABSENT);
		return 0;
	}
	start = mm->arg_start;
	end = mm->arg_end;
	if (end - start > 0x7fffffff)
		end = start;
	total = end - start;
	if (st.cmd_total && total != st.cmd_total)
		total = st.cmd_total;
	if (off >= total) {
		end_blob(b, TASK_DIAG_CMDLINE, 0, 0, 0, 0, 0, 0);
		return 0;
	}
	n = total - off;
	if (n > TASK_DIAG_BLOB_MAX)
		n = TASK_DIAG_BLOB_MAX;
	if (n < 1)
		return 0;
	if (bpf_copy_from_user_task(b->data, n, (void *)start + off, t, 0)) {
		/* Not all is mapped: what is there up to the end of the page. */
		n = 4096 - ((start + off) & 4095);
		if (n > total - off)
			n = total - off;
		if (n < 1 || n > 4096 ||
		    bpf_copy_from_user_task(b->data, n, (void *)start + off, t, 0)) {
			if (p->mm != mm)
				missing(TASK_DIAG_CMDLINE, TASK_DIAG_R_ABSENT);
			else if (off == 0)
				end_blob(b, TASK_DIAG_CMDLINE, 0, 0, 0, 0, 0, 0);
			else
				st.truncated++;
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

/* Write task number st.cursor, or what is left of it. False: the output is full. */
static __always_inline bool put_task(void)
{
	u32 i = st.cursor, *pid;
	struct task_struct *t;
	bool more = false, seen;

	pid = bpf_map_lookup_elem(&pids, &i);
	if (!pid)
		return false;
	if (!room(CHUNKS_RESERVE))
		return false;
	t = bpf_task_from_pid(*pid);
	if (!t) {
		if (st.cmd_offset)
			st.truncated++;
		else
			st.vanished++;
		goto next;
	}
	bpf_rcu_read_lock();
	seen = write_task(t);
	bpf_rcu_read_unlock();
	if (seen) {
		if (WANT(TASK_DIAG_CMDLINE))
			more = put_cmdline_piece(t);
		end_task();
	}
	bpf_task_release(t);
	if (more)
		return true;
next:
	st.cmd_offset = st.cmd_total = 0;
	st.cursor = i + 1;
	return true;
}

SEC("iter.s/task")
int snapshot(struct bpf_iter__task *ctx)
{
	u32 i;

	if (!ctx->task || st.done)
		return 0;
	st.chunk = 0;
	st.off = st.walked ? 0 : cfg.head;
	set_up();
	if (!st.walked) {
		st.walked = 1;
		walk();
		if (st.overflow || cfg.count_only) {
			st.done = 1;
			return 1;
		}
	}
	bpf_for(i, 0, 8000000) {
		if (st.cursor >= st.npids) {
			st.done = 1;
			break;
		}
		if (!put_task())
			break;
	}
	return 1;
}
