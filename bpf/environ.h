/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ENVIRON: a page of it a call, through the page tables where it is at hand
 * (usermem.h), else by waiting for a short while (is_at_hand() in task.h).
 */
#ifndef TASKDIAG_ENVIRON_H
#define TASKDIAG_ENVIRON_H

#ifdef LEGACY
#define copy_user_page(to, n, from) false
#endif

/* What of the environment is in the page of st.cmd_offset. Returns true when there is more. */
TASK_FN(put_environ_piece, 1u << TASK_DIAG_ENVIRON)
{
	struct task_struct *p = PLAIN(t);
	struct mm_struct *mm = R(p, mm);
	struct task_diag_blob *b;
	u64 start, end;
	u32 total, off = st.cmd_offset, n;

	spill();
	b = begin_blob();
	if (!b)
		return 0;
	if (!mm || R(p, flags) & PF_KTHREAD) {
		missing(TASK_DIAG_ENVIRON, off ? TASK_DIAG_R_VANISHED : WHY_NO_MEMORY);
		return 0;
	}
	start = R(mm, env_start);
	end = R(mm, env_end);
	if (end < start || end - start > 0x7fffffff)
		end = start;
	total = st.cmd_total ? st.cmd_total : end - start;
	if (off >= total) {
		end_blob(b, TASK_DIAG_ENVIRON, 0, 0, 0, 0, 0, 0);
		return 0;
	}
	n = 4096 - ((start + off) & 4095);
	if (n > total - off)
		n = total - off;
#ifndef LEGACY
	st.pt_top = (u64)R(mm, pgd);
#endif
	barrier_var(n);
	n &= 0x1fff;
	if (st.direct_map && copy_user_page(b->data, n, start + off))
		goto copied;
	if (!is_at_hand(t, start + off)) {
		missing(TASK_DIAG_ENVIRON, TASK_DIAG_R_BLOCKED);
		st.blocked++;
		return 0;
	}
	if (bpf_copy_from_user_task(b->data, n, (void *)start + off, t, 0)) {
		if (R(p, mm) != mm) {
			missing(TASK_DIAG_ENVIRON, TASK_DIAG_R_ABSENT);
			return 0;
		}
		/* not mapped: it ends here */
		end_blob(b, TASK_DIAG_ENVIRON, 0, 0, off, total, off ? TASK_DIAG_BLOB_CUT : 0, 0);
		st.truncated += !!off;
		return 0;
	}
copied:
	end_blob(b, TASK_DIAG_ENVIRON, 0, n, off, total, 0, 0);
	st.cmd_total = total;
	st.cmd_offset = off + n;
	return st.cmd_offset < total;
}

#endif
