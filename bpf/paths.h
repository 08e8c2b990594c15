/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * PATHS: the program, working directory and root of a task, as the links in
 * /proc/PID have them.
 *
 * An fs_struct is freed at once, without RCU, when its last task ends or
 * leaves it. So its members are copied first, and they are followed only if
 * the task still has the fs_struct and its members are unchanged. Then dentry
 * and mount were in use in this run, and stay until it ends. All of this is
 * checked again after the text is made, so a path is never another task's.
 */
#ifndef TASKDIAG_PATHS_H
#define TASKDIAG_PATHS_H

#include "names.h"

/* How often a path is read if the task changes it meanwhile. */
enum { PATHS_TRIES = 4 };

/* Set st.path_mnt and st.path_dentry to the task's path of this kind. Returns 0 if there is none, or if it changed
 * meanwhile. */
GROUP_FN load_path(u32 kind)
{
	struct task_struct *t = THIS;
	u64 owner, file = 0, exec, at_mnt, at_dentry;
	bool same;

	exec = LOAD_AGAIN(t, self_exec_id);
	order();
	if (kind == TASK_DIAG_PATH_EXE) {
		owner = R(t, flags) & PF_KTHREAD ? 0 : RD(u64, t, TASK_MM);
		file = owner ? RD(u64, owner, MM_EXE_FILE) : 0;
		if (!STILL_AT(t, TASK_MM, owner) || !file)
			return 0;
		st.path_mnt = RD(u64, file, FILE_MNT);
		st.path_dentry = RD(u64, file, FILE_DENTRY);
		same = STILL_AT(owner, MM_EXE_FILE, file);
		return STILL_AT(t, TASK_MM, owner) && same && same_exec(t, exec);
	}
	owner = RD(u64, t, TASK_FS);
	if (!owner)
		return 0;
	at_mnt = owner + (kind == TASK_DIAG_PATH_CWD ? OFF(FS_PWD_MNT) : OFF(FS_ROOT_MNT));
	at_dentry = owner + (kind == TASK_DIAG_PATH_CWD ? OFF(FS_PWD_DENTRY) : OFF(FS_ROOT_DENTRY));
	st.path_mnt = RD_AT(u64, at_mnt);
	st.path_dentry = RD_AT(u64, at_dentry);
	GAP();
	same = RD_AT(u64, at_mnt) == st.path_mnt && RD_AT(u64, at_dentry) == st.path_dentry;
	return STILL_AT(t, TASK_FS, owner) && same;
}

/* Does the task have a path of this kind? */
static __always_inline bool has_path(u32 kind)
{
	struct task_struct *t = THIS;
	u64 mm, file;

	if (kind != TASK_DIAG_PATH_EXE)
		return RD(u64, t, TASK_FS);
	mm = R(t, flags) & PF_KTHREAD ? 0 : RD(u64, t, TASK_MM);
	if (!mm)
		return false;
	file = RD(u64, mm, MM_EXE_FILE);
	return STILL_AT(t, TASK_MM, mm) && file;
}

/* Make the text of one of the paths. Returns its flags, or the negative reason why there is none. st.path_late is set afterwards if
 * the path is left to the next run. */
GROUP_FN make_path(u32 kind)
{
	u64 d, mnt;
	u32 try, flags;

	begin_path();
	if (!has_path(kind))
		return -TASK_DIAG_R_ABSENT;
	EACH(try, 0, PATHS_TRIES, PATHS_TRIES) {
		if (!load_path(kind))
			continue;
		d = st.path_dentry;
		mnt = st.path_mnt;
		flags = append_path(!RD(u64, d, DENTRY_HASHED) && RD(u64, d, DENTRY_PARENT) != d);
		if (st.path_late)
			return 0;
		if (flags & PATH_CHANGES)
			return -TASK_DIAG_R_BLOCKED;
		if (load_path(kind) && st.path_dentry == d && st.path_mnt == mnt)
			return flags;
	}
	/* The task changed the path at each try, or has ended. */
	return has_path(kind) ? -TASK_DIAG_R_BLOCKED : -TASK_DIAG_R_VANISHED;
}

/* Write one of the paths. Returns 1 if it is left to the next run. */
GROUP_FN put_path(u32 kind)
{
	struct task_diag_blob *b;
	int flags = make_path(kind);
	u32 len, shown;

	end_path();
	if (st.path_late)
		return 1;
	is_late(8);
	spill();
	b = begin_blob();
	if (!b)
		return 0;
	if (flags < 0) {
		if (flags == -TASK_DIAG_R_BLOCKED)
			st.is_blocked = 1;
		end_blob(b, TASK_DIAG_PATHS, kind, 0, 0, 0, 0, -flags);
		return 0;
	}
	if (flags & TASK_DIAG_BLOB_CUT)
		st.is_cut = 1;
	/* The link in /proc ends like this, too. */
	if (flags & TASK_DIAG_BLOB_DELETED)
		APPEND_LITERAL(" (deleted)");
	shown = flags;
	len = name_room(&shown);
	bpf_probe_read_kernel(b->data, len, st.text);
	end_blob(b, TASK_DIAG_PATHS, kind, len, 0, st.len, shown, 0);
	return 0;
}

/* Write the paths after the first st.part_begun. Returns 1 if the time of this run did not suffice. */
static __always_inline u32 put_paths(void)
{
	if (st.part_begun < 1 && put_path(TASK_DIAG_PATH_EXE))
		return 1;
	if (st.part_begun < 1)
		st.part_begun = 1;
	if (st.part_begun < 2 && put_path(TASK_DIAG_PATH_CWD))
		return 1;
	if (st.part_begun < 2)
		st.part_begun = 2;
	return put_path(TASK_DIAG_PATH_ROOT);
}

#endif
