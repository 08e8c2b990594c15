/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which task's message has a value that several tasks share; and FD_COUNT, how
 * many files are open. FD_COUNT is in all builds, so that a list of processes
 * with that number does not load the code for lists of files.
 */
#ifndef TASKDIAG_SHARED_H
#define TASKDIAG_SHARED_H

#include "out.h"

/* ---- values that tasks share ---- */

struct shared_with {
	u64 object;
	u64 task;	/* the task whose message has the object's group */
	u64 start;	/* when that task started, to tell it from a later one at the same address */
	u32 group;
	u32 pid;
	u32 slice;	/* the run in which this entry was made */
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct shared_with));
	__uint(max_entries, SHARED_MAX);
} shared SEC(".maps");

static __always_inline u64 mix(u64 v)
{
	v ^= v >> 29;
	v *= 0xbf58476d1ce4e5b9ull;
	return v ^ (v >> 32);
}

/* The slot of the object for a group: its own if it has one, else a free one, else that of another object. */
GROUP_FN find_shared(u64 object, u32 group)
{
	u32 i, h = mix(object ^ group), slot;
	struct shared_with *e;

	EACH(i, 0, 4, 4) {
		slot = (h + i) & cfg.shared_mask;
		e = bpf_map_lookup_elem(&shared, &slot);
		if (!e)
			break;
		if (!e->object || e->slice < st.first_slice || (e->object == object && e->group == group))
			return slot;
	}
	return h & cfg.shared_mask;
}

/*
 * Does another task's message have the group of the object st.arg (an mm or files_struct) already? If so, writes which
 * one and returns 1. If not, enters this task as the task whose message has it. When the table is full, an older object
 * is dropped from it and maybe written twice, which only makes the answer longer.
 */
GROUP_FN put_shared(u32 group, u32 member)
{
	struct task_struct *t = THIS;
	u64 object = st.arg;
	struct task_diag_shared *a;
	struct shared_with *e;
	u32 slot = find_shared(object, group);
	struct task_struct *o;
	u64 now = 0;

	e = bpf_map_lookup_elem(&shared, &slot);
	if (!e)
		return 0;
	if (e->object == object && e->group == group && e->task != st.task && e->slice >= st.first_slice) {
		o = CAST(struct task_struct, (void *)e->task);
		bpf_probe_read_kernel(&now, 8, (void *)(e->task + (member & 0xffff)));
		/* Another object may be at the same address by now. */
		if (R(o, start_boottime) == e->start && now == object) {
			a = here();
			if (!a)
				return 0;
			PUT(a, TASK_DIAG_A_SHARED);
			a->group = group;
			a->pid = e->pid;
			a->reserved = 0;
			return 1;
		}
	}
	e->object = object;
	e->task = st.task;
	e->start = R(t, start_boottime);
	e->group = group;
	e->pid = st.nr;
	e->slice = st.slice;
	return 0;
}

/* The file table of the task, or 0 if it has none or if another message has its group. */
static __always_inline u64 file_table(u32 group)
{
	struct task_struct *t = THIS;
	struct files_struct *files = R(t, files);
	int users;

	/* A task that ends has its files until it has given back its memory, which may take seconds. */
	if (!files) {
		missing(group, TASK_DIAG_R_ABSENT);
		return 0;
	}
	users = R(files, count.counter);
#ifndef LEGACY
	/* Load the cache lines of the files_struct together. Most file tables are inside of that struct. */
	if (group == TASK_DIAG_FD_COUNT)
		*(volatile u64 *)&st.arg = R(files, next_fd);
#endif
	if (!STILL(t, files, files)) {
		missing(group, TASK_DIAG_R_VANISHED);
		return 0;
	}
	st.arg = (u64)files;
	if (users > 1 &&
	    put_shared(group, __builtin_preserve_field_info(((struct task_struct *)0)->files,
							    BPF_FIELD_BYTE_OFFSET)))
		return 0;
	return (u64)files;
}

/* ---- FD_COUNT ---- */

/* A table for more than 2 Mi descriptors is not counted, because a run must not take long. */
enum { WORDS_MAX = 1 << 15 };

/* Count the bits of eight words of st.up. */
STEP(count_words, i)
{
	u32 n;

#pragma unroll
	for (n = 0; n < 8; n++)
		st.n += __builtin_popcountll(st.up[(i * 8 + n) & (DEPTH_MAX - 1)]);
	return 0;
}

/* Count a page of the bits. All of its words are copied together, because a call of the helper takes as long as the copy of
 * about thirty words. */
STEP(count_page, i)
{
	u32 words = st.count - i * DEPTH_MAX;

	if (words > DEPTH_MAX)
		words = DEPTH_MAX;
	barrier_var(words);
	words &= 2 * DEPTH_MAX - 1;
	if (words > DEPTH_MAX || bpf_probe_read_kernel(st.up, words * 8, (void *)(st.arg + i * 8ull * DEPTH_MAX)))
		return 1;
	/* The last eight may not all be there. */
	if (words & 7)
		bpf_probe_read_kernel(st.up + words, (8 - (words & 7)) * 8, NULL);
	LOOP((words + 7) / 8, count_words);
	is_late(8 + words / 8);
	return 0;
}

GROUP_FN put_fd_count(void)
{
	struct task_diag_fd_count *a;
	struct fdtable *fdt;
	u64 files, open = 0;
	u32 size, words;

	files = file_table(TASK_DIAG_FD_COUNT);
	if (!files)
		return 0;
	fdt = R(CAST(struct files_struct, (void *)files), fdt);
	if (!STILL(THIS, files, (struct files_struct *)files)) {
		missing(TASK_DIAG_FD_COUNT, TASK_DIAG_R_VANISHED);
		return 0;
	}
	size = R(fdt, max_fds);
	st.arg = (u64)R(fdt, open_fds);
	/* A table is freed at once when its last task ends, so its pointer is followed only if the task still has it. */
	if (!STILL(THIS, files, (struct files_struct *)files)) {
		missing(TASK_DIAG_FD_COUNT, TASK_DIAG_R_VANISHED);
		return 0;
	}
	st.n = 0;
	words = size / 64;
	if (words > WORDS_MAX)
		words = WORDS_MAX;
	/* Most tables have one word, which is next to the table. */
	if (words <= 1) {
		bpf_probe_read_kernel(&open, 8, (void *)st.arg);
		st.n = __builtin_popcountll(open);
	} else {
		st.count = words;
		LOOP((words + DEPTH_MAX - 1) / DEPTH_MAX, count_page);
	}
	if (!STILL(THIS, files, (struct files_struct *)files)) {
		missing(TASK_DIAG_FD_COUNT, TASK_DIAG_R_VANISHED);
		return 0;
	}
	a = here();
	if (!a)
		return 0;
	PUT(a, TASK_DIAG_FD_COUNT);
	a->valid = size / 64 > WORDS_MAX ? ALL_OF(FD_COUNT) & ~(1u << FD_COUNT_OPEN) : ALL_OF(FD_COUNT);
	a->open = st.n;
	a->size = size;
	return 0;
}

#endif
