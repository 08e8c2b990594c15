/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * FILE_STAT: device, inode and size of the files that a task uses without a
 * descriptor. They are read from the inode, as for FD, so no file system is
 * asked.
 */
#ifndef TASKDIAG_FILESTAT_H
#define TASKDIAG_FILESTAT_H

#include "names.h"
#include "paths.h"

enum { S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFLNK = 0120000, S_IFREG = 0100000 };
enum { S_IFBLK = 0060000, S_IFDIR = 0040000, S_IFCHR = 0020000, S_IFIFO = 0010000 };

enum { MAGIC_BTRFS = 0x9123683E, MAGIC_OVERLAY = 0x794c7630, MAGIC_PROC = 0x9fa0 };

/* The device of a file as stat(2) has it. On btrfs it is the subvolume's, whose root the inode holds. A root that nobody holds
 * any more is freed at once, so callers compare afterwards whether the inode is still in use. */
GROUP_FN device_of(u64 inode)
{
	u64 sb = RD(u64, inode, INODE_SB), root = 0;

	if (HAVE(BTRFS_INODE) && HAVE(BTRFS_INODE_ROOT) && HAVE(BTRFS_DEV) &&
	    RD(u64, sb, SB_MAGIC) == MAGIC_BTRFS)
		root = RD(u64, inode - OFF(BTRFS_INODE), BTRFS_INODE_ROOT);
	return encode_dev(root ? RD(u32, root, BTRFS_DEV) : RD(u32, sb, SB_DEV));
}

/*
 * Members in which stat(2) may differ from the inode: the device of a file of an overlay (it may be that of a layer) or of a
 * btrfs whose types are in a module; the links of a directory of an overlay or of /proc (stat(2) adds processes or threads
 * there); and the size of /proc/PID/fd, which counts open files. User space asks stat(2) for these: see
 * engine/bpf/devices.rs.
 */
enum { IN_LAYER_DEV = 1, IN_LAYER_DIRECTORY = 2 };

GROUP_FN in_layer(u64 inode)
{
	u64 magic = RD(u64, RD(u64, inode, INODE_SB), SB_MAGIC);
	bool is_directory = (RD(__u16, inode, INODE_MODE) & S_IFMT) == S_IFDIR;

	if (magic == MAGIC_OVERLAY)
		return is_directory ? IN_LAYER_DIRECTORY : IN_LAYER_DEV;
	if (magic == MAGIC_PROC && is_directory)
		return IN_LAYER_DIRECTORY;
	if (magic == MAGIC_BTRFS && !(HAVE(BTRFS_INODE) && HAVE(BTRFS_INODE_ROOT) && HAVE(BTRFS_DEV)))
		return IN_LAYER_DEV;
	return 0;
}

/* Write the entry of the file at st.path_mnt and st.path_dentry. Its devices and inode are in st.file_dev, st.file_stat_dev and
 * st.file_inode. For a mapped file, st.file_dev and the inode are those of VMA, because the path may lead to another inode. */
GROUP_FN put_file_stat(u32 as)
{
	u64 inode = RD(u64, st.path_dentry, DENTRY_INODE);
	struct task_diag_file_stat *e;
	u32 mode = RD(__u16, inode, INODE_MODE), type = mode & S_IFMT, valid = ALL_OF(FILE_STAT), lacks;

	lacks = in_layer(inode);
	if (lacks == IN_LAYER_DIRECTORY) {
		valid &= ~(1u << FILE_STAT_NLINK | 1u << FILE_STAT_SIZE_BYTES);
	} else if (lacks) {
		valid &= ~(1u << FILE_STAT_STAT_DEV);
		/* The device of a mapped file is the one of VMA. */
		if (as != TASK_DIAG_USE_MAPPED)
			valid &= ~(1u << FILE_STAT_DEV);
	}
	if (lacks)
		close_list();
	e = next_entry(TASK_DIAG_FILE_STAT, sizeof(*e), valid);
	if (!e)
		return 0;
	e->as = as;
	e->dev = st.file_dev;
	e->inode = st.file_inode;
	e->size_bytes = RD(u64, inode, INODE_SIZE);
	e->mode = mode;
	e->nlink = RD(u32, inode, INODE_NLINK);
	e->mnt_id = RD(u32, st.path_mnt - OFF(MOUNT_MNT), MOUNT_ID);
	e->rdev = type == S_IFCHR || type == S_IFBLK ? encode_dev(RD(u32, inode, INODE_RDEV)) : 0;
	e->stat_dev = st.file_stat_dev;
	e->reserved = 0;
	return 0;
}

/* Write the entry of the mapped file whose name was just looked up, if it has none yet. */
GROUP_FN put_mapped_stat(void)
{
	u32 slot = st.slot & cfg.names_mask;
	struct name *e = bpf_map_lookup_elem(&names, &slot);

	if (!e || e->has_stat)
		return 0;
	e->has_stat = 1;
	return put_file_stat(TASK_DIAG_USE_MAPPED);
}

/* Write the entry of one of the paths of the task. Returns 1 if the task has the path but changed it at each try. */
GROUP_FN put_stat_of(u32 kind, u32 as)
{
	u64 d, inode;
	u32 try;

	EACH(try, 0, PATHS_TRIES, PATHS_TRIES) {
		if (!load_path(kind))
			continue;
		d = st.path_dentry;
		inode = RD(u64, d, DENTRY_INODE);
		st.file_dev = st.file_stat_dev = device_of(inode);
		st.file_inode = RD(u64, inode, INODE_INO);
		if (load_path(kind) && st.path_dentry == d) {
			put_file_stat(as);
			return 0;
		}
	}
	return has_path(kind);
}

/* Write the entries of the executable, the working directory and the root. */
GROUP_FN put_file_stats(void)
{
	u32 torn;

	spill();
	st.list_any = 0;
	torn = put_stat_of(TASK_DIAG_PATH_EXE, TASK_DIAG_USE_EXE);
	torn |= put_stat_of(TASK_DIAG_PATH_CWD, TASK_DIAG_USE_CWD);
	torn |= put_stat_of(TASK_DIAG_PATH_ROOT, TASK_DIAG_USE_ROOT);
	if (torn) {
		missing(TASK_DIAG_FILE_STAT, TASK_DIAG_R_BLOCKED);
		st.is_blocked = 1;
	} else if (!st.list_any) {
		missing(TASK_DIAG_FILE_STAT, TASK_DIAG_R_ABSENT);
	}
	close_list();
	return 0;
}

#endif
