/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * FD: the open files of a task. A table that several tasks share is walked
 * once, 64 descriptors at a time: first all files, then the details of the
 * sockets among them, then those of eventfds, epolls and the like. This order
 * makes each list of entries as long as possible. NET is a walk of its own over
 * the same table, because it is also asked for without FD.
 *
 * The table's lock is not taken, so a descriptor that is just being closed or
 * opened may be in the list or not, as in /proc. A table is freed at once when
 * its last task ends, and a struct file may become another one at any time. So
 * a pointer in a file is followed only if the task still has the table and the
 * table the file, and an entry is written only if both still hold after
 * everything was read.
 */
#ifndef TASKDIAG_FILES_H
#define TASKDIAG_FILES_H

#include "filestat.h"
#include "open.h"
#include "net.h"
#include "sockets.h"
#include "details.h"

/* A function of its own, because the verifier knows nothing about its result and so follows only one case after it. */
GROUP_FN file_type(u32 mode, u64 magic, u64 dentry, u64 mnt)
{
	u64 head = 0;

	switch (magic) {
	case MAGIC_ANON_INODE:
		return anon_type(dentry);
	case MAGIC_PID:
		return TASK_DIAG_FD_PIDFD;
	case MAGIC_NS:
		return TASK_DIAG_FD_NS;
	case MAGIC_PIPE:
		return TASK_DIAG_FD_PIPE;
	}
	switch (mode & S_IFMT) {
	case S_IFSOCK:
		return TASK_DIAG_FD_SOCKET;
	case S_IFLNK:
		return TASK_DIAG_FD_LNK;
	case S_IFBLK:
		return TASK_DIAG_FD_BLK;
	case S_IFDIR:
		return TASK_DIAG_FD_DIR;
	case S_IFCHR:
		return TASK_DIAG_FD_CHR;
	case S_IFIFO:
		return TASK_DIAG_FD_FIFO;
	case S_IFREG:
		if (magic == MAGIC_MQUEUE)
			return TASK_DIAG_FD_MQUEUE;
		if (RD(u64, dentry, DENTRY_PARENT) == dentry && RD(u64, mnt, VFSMOUNT_ROOT) != dentry) {
			bpf_probe_read_kernel_str(&head, 8, (void *)RD(u64, dentry, DENTRY_NAME));
			if ((head & 0xffffffffffffull) == (TEXT8("memfd:\0\0") & 0xffffffffffffull))
				return TASK_DIAG_FD_MEMFD;
		}
		return TASK_DIAG_FD_REG;
	default:
		return TASK_DIAG_FD_OTHER;
	}
}

/* Write the entry of descriptor fd, whose file is st.file. Returns its type; TASK_DIAG_FD_OTHER if it was closed
 * meanwhile, or is a socket that exists only as a path. */
GROUP_FN put_fd(u32 fd, u32 cloexec)
{
	struct task_diag_fd *e;
	u32 type, mode, name = 0, valid = ALL_OF(FD), lacks;
	u64 sb, magic, dentry, mnt;

	st.inode = FILE(u64, INODE);
	dentry = FILE(u64, DENTRY);
	mnt = FILE(u64, MNT);
	begin_entry();
	if (!st.inode || !still_open())
		return TASK_DIAG_FD_OTHER;
	sb = INODE(u64, SB);
	magic = RD(u64, sb, SB_MAGIC);
	mode = INODE(__u16, MODE);
	type = file_type(mode, magic, dentry, mnt);
	/* Since Linux 6.16 these inodes have a file type, which stat() does not show. */
	if (magic == MAGIC_ANON_INODE || magic == MAGIC_PID)
		mode &= ~S_IFMT;
	switch (type) {
	case TASK_DIAG_FD_SOCKET:
		if (magic == MAGIC_SOCK)
			break;
	case TASK_DIAG_FD_OTHER ... TASK_DIAG_FD_LNK:
	case TASK_DIAG_FD_MEMFD:
	case TASK_DIAG_FD_NS:
	case TASK_DIAG_FD_MQUEUE:
		st.path_mnt = mnt;
		st.path_dentry = dentry;
		name = name_of_path();
	}
	/* A struct file may become another one at any time, so its members are compared, too. */
	if (st.path_late || !STILL_AT(st.file, FILE_DENTRY, dentry) || !STILL_AT(st.file, FILE_INODE, st.inode) ||
	    !still_open()) {
		take_back_name();
		return TASK_DIAG_FD_OTHER;
	}
	/* A file in a layer has a separate list, whose missing members may be filled in later. */
	lacks = in_layer(st.inode);
	if (lacks) {
		close_list();
		valid &= lacks == IN_LAYER_DEV ? ~(1u << FD_DEV) : ~(1u << FD_NLINK | 1u << FD_SIZE_BYTES);
	}
	e = next_entry(TASK_DIAG_FD, sizeof(*e), valid);
	if (!e)
		return TASK_DIAG_FD_OTHER;
	e->fd = fd;
	e->type = type;
	e->pos_bytes = FILE(u64, POS);
	e->inode = INODE(u64, INO);
	e->dev = device_of(st.inode);
	e->rdev = type == TASK_DIAG_FD_CHR || type == TASK_DIAG_FD_BLK ?
		  encode_dev(INODE(u32, RDEV)) : 0;
	e->flags = (FILE(u32, FLAGS) & ~O_CLOEXEC) | (cloexec ? O_CLOEXEC : 0);
	e->mode = mode;
	e->mnt_id = RD(u32, mnt - OFF(MOUNT_MNT), MOUNT_ID);
	e->name = name;
	e->size_bytes = INODE(u64, SIZE);
	e->nlink = INODE(u32, NLINK);
	e->reserved = 0;
	return type == TASK_DIAG_FD_SOCKET && magic != MAGIC_SOCK ? TASK_DIAG_FD_OTHER : type;
}

static __always_inline u32 lowest(u64 bits)
{
	u64 low = bits & -bits;

	/* Without the barrier the compiler recognises the operation and uses a table in .rodata. */
	barrier_var(low);
	return __builtin_popcountll(low - 1) & 63;
}

/* Set st.open to a bit mask of the next 64 descriptors that are open. Returns 0 after the end of the table. */
GROUP_FN load_word(void)
{
	u32 w = st.fd_base / 64;
	u64 open, at_open, at_cloexec;

	/* Read again each time, because a table that grows is replaced. */
	st.fdt = RD(u64, st.files, FILES_FDT);
	if (!still_its_files() || st.fd_base >= RD(u32, st.fdt, FDT_MAX))
		return 0;
	at_open = RD(u64, st.fdt, FDT_OPEN) + w * 8;
	at_cloexec = RD(u64, st.fdt, FDT_CLOEXEC) + w * 8;
	if (!still_its_files())
		return 0;
	open = RD_AT(u64, at_open);
	st.cloexec = RD_AT(u64, at_cloexec);
	if (!still_its_files())
		return 0;
	/* If an earlier run began these 64 descriptors, keep only what it did not write. */
	st.open = st.word_begun ? st.open & open : open;
	st.sockets = st.word_begun ? st.sockets & open : 0;
	st.others = st.word_begun ? st.others & open : 0;
	/* The node at which an earlier run ended may be freed, so put_detail() finds the place again. */
	st.detail_node = 0;
	st.detail_done = st.word_begun ? st.detail_done : 0;
	st.word_begun = st.word_loaded = 1;
	return 1;
}

/* Set st.file to the file of descriptor st.fd_base + n. */
static __always_inline u64 load_file(u32 n)
{
	st.fd = st.fd_base + n;
	file_of(st.fd);
	st.file = st.found;
	return st.file;
}

/* Write one entry about one of the 64 descriptors, or continue with the next 64. */
LIST_FN put_one(void)
{
	u32 n, type;

	if (st.open) {
		n = lowest(st.open);
		st.open &= st.open - 1;
		if (!load_file(n))
			return 0;
		if (IN_NET) {
			put_net(st.fd_base + n);
			return 0;
		}
		type = put_fd(st.fd_base + n, st.cloexec >> n & 1);
		/* The path is left to the next run, and so is the descriptor. */
		if (st.path_late) {
			st.open |= 1ull << n;
			return 0;
		}
		if (type == TASK_DIAG_FD_SOCKET)
			st.sockets |= 1ull << n;
		else if (type >= TASK_DIAG_FD_EVENTFD && type <= TASK_DIAG_FD_BPF_LINK)
			st.others |= 1ull << n;
	} else if (st.sockets) {
		n = lowest(st.sockets);
		st.sockets &= st.sockets - 1;
		if (load_file(n))
			put_socket(st.fd_base + n);
	} else if (st.others) {
		n = lowest(st.others);
		if (load_file(n) && put_detail(st.fd_base + n)) {
			st.detail_done++;
		} else if (!st.path_late) {
			st.others &= st.others - 1;
			st.detail_node = st.detail_done = 0;
		}
	} else {
		st.fd_base += 64;
		st.word_loaded = st.word_begun = 0;
	}
	return 0;
}

STEP(fd_step, i)
{
	if (st.off >= CHUNK_FULL || st.gone || st.path_late || is_late(4))
		return 1;
	if (list_is_full() || (!st.word_loaded && !load_word())) {
		st.walk_done = 1;
		return 1;
	}
	put_one();
	return 0;
}
TURNS(fd_step)

/* Write the open files, or with NET the open sockets, from st.fd_base on. Returns 1 if the room or the time of this run did not
 * suffice. */
LIST_FN put_fds(void)
{
	struct task_struct *t = THIS;
	u32 group = IN_NET ? TASK_DIAG_NET : TASK_DIAG_FD;
	u64 files;

	spill();
	if (!st.part_begun) {
		files = file_table(group);
		if (!files)
			return 0;
		st.part_begun = 1;
		st.part_object = files;
		st.list_any = st.list_count = st.list_cut = 0;
		st.fd_base = 0;
		st.word_begun = 0;
	} else {
		files = RD(u64, t, TASK_FILES);
		if (files != st.part_object) {
			missing(group, TASK_DIAG_R_VANISHED);
			return 0;
		}
	}
	st.walk_done = st.word_loaded = st.gone = st.path_late = 0;
	st.files = files;
	LONG_LOOP(LIST_TURNS, LIST_TURNS, fd_step);
	if (IN_NET)
		end_list(TASK_DIAG_NET, sizeof(struct task_diag_net), ALL_OF(NET));
	else
		end_list(TASK_DIAG_FD, sizeof(struct task_diag_fd), ALL_OF(FD));
	if (st.gone) {
		missing(group, TASK_DIAG_R_VANISHED);
		return 0;
	}
	if (st.list_cut) {
		missing(group, TASK_DIAG_R_TRUNCATED);
		st.is_cut = 1;
	}
	return !st.walk_done;
}

#endif
