/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CMDLINE and ENVIRON: text in the task's own memory, read through its page
 * tables (usermem.h) in pieces of a page. Text that is not in memory, or no
 * longer the task's own, is reported as missing. Nothing is waited for.
 */
#ifndef TASKDIAG_USERTEXT_H
#define TASKDIAG_USERTEXT_H

/* How much of a text is read. execve() takes no more, but any process can name a larger range of its memory (PR_SET_MM). */
#define TEXT_MAX (6u << 20)

/* Copy n bytes, a page at most, of the memory below st.pt_top to b->data. */
#define COPY_USER(b, n, from) ({							\
	u64 from_ = (from);								\
	u32 first_ = 4096 - (from_ & 4095), rest_;					\
	bool ok_;									\
											\
	if (first_ > (n))								\
		first_ = (n);								\
	rest_ = (n) - first_;								\
	/* Old verifiers forget the bounds. The barriers keep the compiler, which knows them, from dropping the masks. */ \
	barrier_var(first_);								\
	ok_ = copy_user_page((b)->data, first_ & 0x1fff, from_);			\
	barrier_var(rest_);								\
	if (ok_ && rest_)								\
		ok_ = copy_user_page((b)->data + (first_ & 0xfff), rest_ & 0xfff, from_ + first_); \
	ok_;										\
})

/* Report why the text could not be read, which depends on whether the task still has this mm. */
static __always_inline void no_text(u32 group, u64 mm)
{
	u64 now = (u64)R(THIS, mm);

	if (now == mm) {
		missing(group, TASK_DIAG_R_BLOCKED);
		st.is_blocked = 1;
	} else {
		missing(group, now ? TASK_DIAG_R_VANISHED : TASK_DIAG_R_ABSENT);
	}
}

/* Read a title that the process wrote over its arguments, up to a NUL and one page at most, as get_mm_proctitle() does.
 * The text goes to b->data. Returns its length, or 0 if it could not be read. */
static __always_inline u32 title(struct task_diag_blob *b, u64 start)
{
	char *tmp = (char *)b + sizeof(*b) + 8192;
	u32 size = 4096;
	long n;

	if (!COPY_USER(b, size, start)) {
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

/* Write one piece of the text from st.cmd_offset on. Returns 1 if there is more. */
GROUP_FN put_text(u32 group)
{
	struct task_struct *t = THIS;
	struct mm_struct *mm = R(t, mm);
	struct task_diag_blob *b;
	u64 start, end;
	u32 total, off = st.cmd_offset, n;
	char last = 0;

	spill();
	b = here();
	if (!b)
		return 0;
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
	GAP();
	if (!st.direct_map || !STILL(t, mm, mm)) {
		no_text(group, (u64)mm);
		return 0;
	}
	if (end < start)
		end = start;
	if (end - start > 0x7fffffff)
		end = start + 0x7fffffff;
	total = st.cmd_total ? st.cmd_total : end - start;
	if (off >= total) {
		end_blob(b, group, 0, 0, 0, 0, 0, 0);
		return 0;
	}
	n = total - off;
	if (n > 4096)
		n = 4096;
	if (!COPY_USER(b, n, start + off)) {
		no_text(group, (u64)mm);
		return 0;
	}
	/* The last byte tells whether the process wrote over its arguments. */
	if (group == TASK_DIAG_CMDLINE && off == 0) {
		barrier_var(n);
		if (n == total)
			last = b->data[(n - 1) & 0xfff];
		else if (!copy_user_page(&last, 1, end - 1))
			last = 0;
		if (last) {
			n = title(b, start) & 0x1fff;
			if (!n || !STILL(t, mm, mm)) {
				no_text(group, (u64)mm);
				return 0;
			}
			end_blob(b, group, 0, n, 0, n, TASK_DIAG_BLOB_REWRITTEN, 0);
			return 0;
		}
	}
	/* If the task no longer has this mm, its pages may have been anyone's while they were read. */
	if (!STILL(t, mm, mm)) {
		no_text(group, (u64)mm);
		return 0;
	}
	is_late(16);
	barrier_var(n);
	n &= 0x1fff;
	end_blob(b, group, 0, n, off, total, 0, 0);
	st.cmd_total = total;
	st.cmd_offset = off + n;
	/* A text that ends before its total is one that was cut. */
	return st.cmd_offset < total && st.cmd_offset < TEXT_MAX;
}

#endif
