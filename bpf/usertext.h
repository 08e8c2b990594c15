/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CMDLINE and ENVIRON: text in the task's own memory, read through its page
 * tables (usermem.h) in pieces of a page. Text that is not in memory, or no
 * longer the task's own, is reported as missing. Nothing is waited for.
 */
#ifndef TASKDIAG_USERTEXT_H
#define TASKDIAG_USERTEXT_H

#include "room.h"
#include "usermem.h"

/* Copy n bytes, a page at most, of the memory below st.pt_top to the data of the blob that begins here. */
GROUP_FN copy_user(u32 n, u64 from)
{
	struct task_diag_blob *b = here();
	u32 first = 4096 - (from & 4095), rest;

	if (!b)
		return 0;
	if (first > n)
		first = n;
	rest = n - first;
	/* Old verifiers forget the bounds. Without the barriers, the compiler, which knows them, drops the masks. */
	barrier_var(first);
	if (!copy_user_page(b->data, first & 0x1fff, from))
		return 0;
	barrier_var(rest);
	return !rest || copy_user_page(b->data + (first & 0xfff), rest & 0xfff, from + first);
}

/* Report why the text could not be read, which depends on whether the task still has the mm st.part_object. */
GROUP_FN no_text(u32 group)
{
	struct task_struct *t = THIS;
	u64 now = (u64)R(t, mm);

	if (now == st.part_object && same_exec(t, st.mm_exec)) {
		missing(group, TASK_DIAG_R_BLOCKED);
		st.is_blocked = 1;
	} else {
		missing(group, now ? TASK_DIAG_R_VANISHED : TASK_DIAG_R_ABSENT);
	}
	return 0;
}

/* Read a title that the process wrote over its arguments, up to a NUL and one page at most, as get_mm_proctitle() does.
 * The text goes to b->data. Returns its length, or 0 if it could not be read. */
static __always_inline u32 title(struct task_diag_blob *b, u64 start)
{
	char *tmp = (char *)b + sizeof(*b) + 8192;
	u32 size = 4096;
	long n;

	if (!copy_user(size, start)) {
		size = 4096 - (start & 4095);
		barrier_var(size);
		size &= 0xfff;
		if (!size || !copy_user_page(b->data, size, start))
			return 0;
	}
	n = bpf_probe_read_kernel_str(tmp, 4096, b->data);
	if (n <= 0)
		return 0;
	if (n == 4096 && b->data[4095])
		return size;
	return n < size ? n : size;
}

/*
 * Find the next piece of the text. Sets st.pt_top to the task's top table, st.arg to the address of the piece, st.n to its
 * length, and st.len to the length of the whole text, or returns 0 if there is none. It is a global function, and its results go
 * through memory, so that the verifier follows what comes after it once, and not once for each way through this.
 */
GROUP_FN find_text(u32 group)
{
	struct task_struct *t = THIS;
	struct mm_struct *mm;
	u64 start, end;
	u32 total, off = st.cmd_offset;

	st.mm_exec = LOAD_AGAIN(t, self_exec_id);
	order();
	mm = R(t, mm);
	if (!mm || R(t, flags) & PF_KTHREAD) {
		missing(group, off ? TASK_DIAG_R_VANISHED : TASK_DIAG_R_ABSENT);
		return 0;
	}
	/* If the task has become another program, a piece of its text would not fit those before. */
	if (off && (u64)mm != st.part_object) {
		missing(group, TASK_DIAG_R_VANISHED);
		return 0;
	}
	st.part_object = (u64)mm;
	start = group == TASK_DIAG_CMDLINE ? R(mm, arg_start) : R(mm, env_start);
	end = group == TASK_DIAG_CMDLINE ? R(mm, arg_end) : R(mm, env_end);
	st.pt_top = (u64)R(mm, pgd);
	if (!STILL(t, mm, mm) || !st.direct_map) {
		no_text(group);
		return 0;
	}
	if (end < start)
		end = start;
	if (end - start > 0x7fffffff)
		end = start + 0x7fffffff;
	total = st.cmd_total ? st.cmd_total : end - start;
	st.arg = start + off;
	st.len = total;
	st.n = off < total ? total - off : 0;
	if (st.n > 4096)
		st.n = 4096;
	return 1;
}

/* The last byte of the text, the first piece of which is in the output. 0 if it cannot be read. */
GROUP_FN last_byte(void)
{
	struct task_diag_blob *b = here();
	char last = 0;

	if (!b)
		return 0;
	if (st.n == st.len)
		return b->data[(st.n - 1) & 0xfff];
	return copy_user_page(&last, 1, st.arg + st.len - 1) ? last : 0;
}

/* Write the title that a process shows in place of its arguments. */
GROUP_FN put_title(void)
{
	struct task_diag_blob *b = here();
	u32 n, total, flags = TASK_DIAG_BLOB_REWRITTEN;

	if (!b)
		return 0;
	n = title(b, st.arg) & 0x1fff;
	if (!n || !STILL(THIS, mm, (struct mm_struct *)st.part_object) || !same_exec(THIS, st.mm_exec)) {
		no_text(TASK_DIAG_CMDLINE);
		return 0;
	}
	st.len = total = n;
	find_room();
	if (n > st.cmd_limit) {
		n = st.cmd_limit;
		flags |= TASK_DIAG_BLOB_CUT;
		st.is_cut = 1;
	}
	/* The compiler knows the bounds of n, but the verifier of Linux 6.1 does not. */
	barrier_var(n);
	n &= 0x1fff;
	end_blob(b, TASK_DIAG_CMDLINE, 0, n, 0, total, flags, 0);
	return 0;
}

/* Write the piece of st.n bytes that is in the output. Returns 1 if there is more. */
GROUP_FN end_text(u32 group)
{
	struct task_diag_blob *b = here();
	u32 n = st.n & 0x1fff, total = st.len, off = st.cmd_offset, flags = 0;
	bool is_last = off + n >= st.cmd_limit;

	if (!b)
		return 0;
	/* If the task no longer has this mm, its pages may have been anyone's while they were read. */
	if (!STILL(THIS, mm, (struct mm_struct *)st.part_object) || !same_exec(THIS, st.mm_exec)) {
		no_text(group);
		return 0;
	}
	is_late(16);
	if (is_last && off + n < total) {
		flags = TASK_DIAG_BLOB_CUT;
		st.is_cut = 1;
	}
	end_blob(b, group, 0, n, off, total, flags, 0);
	st.cmd_total = total;
	st.cmd_offset = off + n;
	return !is_last;
}

/* Write one piece of the text from st.cmd_offset on. Returns 1 if there is more. */
GROUP_FN put_text(u32 group)
{
	struct task_diag_blob *b;
	u32 n, off;

	spill();
	b = here();
	if (!b || !find_text(group))
		return 0;
	n = st.n;
	if (!n) {
		end_blob(b, group, 0, 0, 0, 0, 0, 0);
		return 0;
	}
	if (!copy_user(n, st.arg)) {
		no_text(group);
		return 0;
	}
	/* The last byte shows whether the process wrote over its arguments. */
	if (group == TASK_DIAG_CMDLINE && !st.cmd_offset && last_byte())
		return put_title();
	off = st.cmd_offset;
	if (!off)
		find_room();
	if (n > st.cmd_limit - off)
		st.n = st.cmd_limit - off;
	return end_text(group);
}

#endif
