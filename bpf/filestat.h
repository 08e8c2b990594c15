/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * FILE_STAT: device, inode and size of the files that a task uses without a
 * descriptor. They are read of the inode, as FD is: no file system is asked.
 */
#ifndef TASKDIAG_FILESTAT_H
#define TASKDIAG_FILESTAT_H

enum { S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFLNK = 0120000, S_IFREG = 0100000 };
enum { S_IFBLK = 0060000, S_IFDIR = 0040000, S_IFCHR = 0020000, S_IFIFO = 0010000 };

/* The entry of the file st.path_mnt, st.path_dentry. Called under RCU. */
GROUP_FN put_file_stat(u32 as)
{
	u64 inode = RD(u64, st.path_dentry, DENTRY_INODE);
	struct task_diag_file_stat *e;
	u32 mode = RD(__u16, inode, INODE_MODE), type = mode & S_IFMT, dev;
	u64 ino;

	e = next_entry(TASK_DIAG_FILE_STAT, sizeof(*e), VALID_ALL(8));
	if (!e)
		return 0;
	e->as = as;
	ino = RD(u64, inode, INODE_INO);
	dev = encode_dev(RD(u32, RD(u64, inode, INODE_SB), SB_DEV));
	/* or the compiler makes one load of these and of those below */
	barrier_var(ino);
	barrier_var(dev);
	if (as == TASK_DIAG_USE_MAPPED) {
		/* as VMA has it: with a stacked file system, the path may lead to another inode */
		ino = st.file_inode;
		dev = st.file_dev;
	}
	e->dev = dev;
	e->inode = ino;
	e->size_bytes = RD(u64, inode, INODE_SIZE);
	e->mode = mode;
	e->nlink = RD(u32, inode, INODE_NLINK);
	e->mnt_id = RD(u32, st.path_mnt - OFF(MOUNT_MNT), MOUNT_ID);
	e->rdev = type == S_IFCHR || type == S_IFBLK ? encode_dev(RD(u32, inode, INODE_RDEV)) : 0;
	return 0;
}

/* The mapped file whose name was just made or found, if it has no entry yet. */
GROUP_FN put_mapped_stat(void)
{
	u32 slot = st.slot & cfg.names_mask;
	struct name *e = bpf_map_lookup_elem(&names, &slot);

	if (!e || e->has_stat)
		return 0;
	e->has_stat = 1;
	return put_file_stat(TASK_DIAG_USE_MAPPED);
}

/* Executable, working directory and root. */
GROUP_FN put_file_stats(void)
{
	struct task_struct *t = THIS;
	u64 exe = 0, fs;
	u64 mm;

	spill();
	st.list_any = 0;
	RCU_LOCK();
	mm = RD(u64, t, TASK_MM);
	if (mm && !(R(t, flags) & PF_KTHREAD))
		exe = RD(u64, mm, MM_EXE_FILE);
	if (exe) {
		st.path_mnt = RD(u64, exe, FILE_MNT);
		st.path_dentry = RD(u64, exe, FILE_DENTRY);
		put_file_stat(TASK_DIAG_USE_EXE);
	}
	fs = RD(u64, t, TASK_FS);
	if (fs) {
		st.path_mnt = RD(u64, fs, FS_PWD_MNT);
		st.path_dentry = RD(u64, fs, FS_PWD_DENTRY);
		put_file_stat(TASK_DIAG_USE_CWD);
		st.path_mnt = RD(u64, fs, FS_ROOT_MNT);
		st.path_dentry = RD(u64, fs, FS_ROOT_DENTRY);
		put_file_stat(TASK_DIAG_USE_ROOT);
	}
	RCU_UNLOCK();
	if (!st.list_any)
		missing(TASK_DIAG_FILE_STAT, TASK_DIAG_R_ABSENT);
	close_list();
	return 0;
}

#endif
