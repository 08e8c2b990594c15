/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * With FD: details of descriptors that are not files (eventfd, epoll, inotify
 * and others), as /proc/PID/fdinfo has them. Each call writes one entry, because
 * one epoll or inotify descriptor may have very many.
 */
#ifndef TASKDIAG_DETAILS_H
#define TASKDIAG_DETAILS_H

#include "names.h"
#include "open.h"

/* The type of a descriptor with an anonymous inode, by the name of its dentry. */
GROUP_FN anon_type(u64 dentry)
{
	u64 head = 0;

	bpf_probe_read_kernel_str(&head, 8, (void *)RD(u64, dentry, DENTRY_NAME));
	/* The helper copies 7 bytes and adds a NUL. */
	switch (head) {
	case TEXT8("[eventf\0"):
		return TASK_DIAG_FD_EVENTFD;
	case TEXT8("[eventp\0"):
		return TASK_DIAG_FD_EPOLL;
	case TEXT8("[timerf\0"):
		return TASK_DIAG_FD_TIMERFD;
	case TEXT8("[signal\0"):
		return TASK_DIAG_FD_SIGNALFD;
	case TEXT8("inotify\0"):
		return TASK_DIAG_FD_INOTIFY;
	case TEXT8("[fanoti\0"):
		return TASK_DIAG_FD_FANOTIFY;
	case TEXT8("[pidfd]\0"):
		return TASK_DIAG_FD_PIDFD;
	case TEXT8("[io_uri\0"):
		return TASK_DIAG_FD_IO_URING;
	case TEXT8("bpf-map\0"):
		return TASK_DIAG_FD_BPF_MAP;
	case TEXT8("bpf-pro\0"):
		return TASK_DIAG_FD_BPF_PROG;
	case TEXT8("bpf_lin\0"):
	case TEXT8("bpf-lin\0"): /* a link that was opened by its id or path */
		return TASK_DIAG_FD_BPF_LINK;
	case TEXT8("[userfa\0"):
		return TASK_DIAG_FD_USERFAULTFD;
	case TEXT8("[perf_e\0"):
		return TASK_DIAG_FD_PERF_EVENT;
	default:
		return TASK_DIAG_FD_OTHER;
	}
}

enum { IN_ALL_EVENTS = 0xfff, IN_EXCL_UNLINK = 0x04000000, IN_ONESHOT = 0x80000000 };
enum { MARK_EXCL_UNLINK = 0x10, MARK_ONESHOT = 0x20 };
enum { CLOCK_REALTIME_ALARM = 8, CLOCK_BOOTTIME_ALARM = 9 };
#define NOT_KNOWN (~0ull)
#define TREE_DEPTH_MAX 64

/* Steps of tree_next() from the node st.arg: down to the left, or up until it came from the left. */
STEP(go_left, i)
{
	u64 down = RD(u64, st.arg, RB_LEFT);

	if (!down)
		return 1;
	st.arg = down;
	return 0;
}

STEP(go_up, i)
{
	u64 node = st.arg;

	st.arg = RD(u64, node, RB_PARENT) & ~3ull;
	return !st.arg || RD(u64, st.arg, RB_RIGHT) != node;
}

/* The next node of a red-black tree in its order, or 0 after the last one. */
__noinline u64 tree_next(u64 node)
{
	u64 down = RD(u64, node, RB_RIGHT);

	st.arg = down ? down : node;
	if ((down ? LOOP(TREE_DEPTH_MAX, go_left) : LOOP(TREE_DEPTH_MAX, go_up)) >= TREE_DEPTH_MAX)
		return 0;
	return st.arg;
}

/* One level of epoll_after(): st.arg is the node, or 0 below the last one. */
STEP(search_epoll, i)
{
	u64 node = st.arg, p = node - OFF(EPI_NODE), file;

	if (!node)
		return 1;
	file = RD(u64, p, EPI_FILE);
	if (file > st.detail_file || (file == st.detail_file && RD(u32, p, EPI_FD) > st.detail_fd)) {
		st.found = node;
		st.arg = RD(u64, node, RB_LEFT);
	} else {
		st.arg = RD(u64, node, RB_RIGHT);
	}
	return 0;
}

/*
 * Find the first entry of an epoll file after st.detail_file and st.detail_fd, which an earlier run wrote last. Returns
 * 0 if there is none. The tree is sorted by these two, so the entries that were written, maybe a million, are not
 * visited again.
 */
__noinline u64 epoll_after(u64 ctx)
{
	st.arg = RD(u64, ctx, EP_ROOT);
	st.found = 0;
	LOOP(TREE_DEPTH_MAX, search_epoll);
	return st.found;
}

/* The rest of the time of a run is for the marks after the skipped ones. */
enum { SKIP_NS = 800000 };

static __always_inline bool skips_too_long(void)
{
	return bpf_ktime_get_ns() - st.begun > SKIP_NS;
}

STEP(skip_mark, i)
{
	st.detail_node = RD(u64, st.detail_node, LIST_NEXT);
	return !st.detail_node || st.detail_node == st.arg || (!(i & 255) && skips_too_long());
}
TURNS(skip_mark)

/*
 * Skip the marks of an inotify file that earlier runs wrote. The list is not sorted, so each mark has to be visited. To
 * hold the CPU only for a short time, at most MARKS_SKIP_MAX are skipped, and for 0.8 ms. That time passes even while the CPU
 * does something else, so the next runs try again before they give up on the marks after these. The answer then says that it
 * is truncated.
 */
enum { MARKS_SKIP_MAX = 16384, SKIP_TRIES = 4 };

static __always_inline bool skip_marks(u64 head)
{
	bool late;

	st.detail_node = head;
	if (!st.detail_done)
		return true;
	st.arg = head;
	if (st.detail_done <= MARKS_SKIP_MAX)
		LONG_LOOP(st.detail_done, MARKS_SKIP_MAX, skip_mark);
	late = skips_too_long();
	if (late && st.detail_done <= MARKS_SKIP_MAX && ++st.skip_tries < SKIP_TRIES) {
		st.path_late = 1;
		return false;
	}
	st.skip_tries = 0;
	if (late || st.detail_done > MARKS_SKIP_MAX) {
		missing(TASK_DIAG_FD, TASK_DIAG_R_TRUNCATED);
		st.is_cut = 1;
		return false;
	}
	is_late(256);
	return st.detail_node && st.detail_node != head;
}

/* Nanoseconds until the timer expires, as timerfd_get_remaining() computes them. */
static __always_inline u64 remaining(u64 ctx, u32 clock)
{
	bool alarm = clock == CLOCK_REALTIME_ALARM || clock == CLOCK_BOOTTIME_ALARM;
	u64 expires = alarm ? RD_MAY(u64, ctx, TIMERFD_ALARM_EXPIRES) : RD_MAY(u64, ctx, TIMERFD_EXPIRES);
	u64 base = alarm ? RD_MAY(u64, ctx, TIMERFD_ALARM_BASE) : RD_MAY(u64, ctx, TIMERFD_BASE);
	s64 left = expires - (bpf_ktime_get_ns() + RD_MAY(u64, base, CLOCK_OFFSET));

	return left < 0 ? 0 : left;
}

/* The inode of an inotify mark. */
static __always_inline u64 watched(u64 mark)
{
	u64 connector = RD(u64, mark, MARK_CONNECTOR), obj = RD_MAY(u64, connector, CONNECTOR_OBJ);

	if (!obj || !HAVE(INODE_MARKS))
		return 0;
	/* Since Linux 6.10 this is the inode. Before, it is the inode's member that points back to the connector. */
	if (RD(u64, obj, INODE_MARKS) == connector)
		return obj;
	return obj - OFF(INODE_MARKS);
}

static __always_inline void put_inode_of(struct task_diag_fd_detail *d, u32 at, u64 inode)
{
	d->value[at] = RD(u64, inode, INODE_INO);
	d->value[at + 1] = encode_dev(RD(u32, RD(u64, inode, INODE_SB), SB_DEV));
}

/* Write one entry about descriptor fd, whose file is st.file: the first, or the one after st.detail_node. Returns 1
 * if there may be more. */
GROUP_FN put_detail(u32 fd)
{
	struct task_diag_fd_detail *e, *d = MADE(struct task_diag_fd_detail);
	u64 inode = RD(u64, st.file, FILE_INODE), ctx = RD(u64, st.file, FILE_PRIVATE), p, magic;
	u32 type = TASK_DIAG_FD_PIDFD;

	*d = (struct task_diag_fd_detail){};
	d->fd = fd;
	if (!still_open())
		return 0;
	magic = RD(u64, RD(u64, inode, INODE_SB), SB_MAGIC);
	if (magic != MAGIC_PID)
		type = magic == MAGIC_ANON_INODE ? anon_type(RD(u64, st.file, FILE_DENTRY)) : 0;
	switch (type) {
	case TASK_DIAG_FD_EVENTFD:
		if (!HAVE(EVENTFD_COUNT))
			return 0;
		d->kind = TASK_DIAG_FDD_EVENTFD;
		d->value[0] = RD(u64, ctx, EVENTFD_COUNT);
		d->value[1] = RD_MAY(u32, ctx, EVENTFD_ID);
		break;
	case TASK_DIAG_FD_TIMERFD:
		if (!HAVE(TIMERFD_CLOCK) || !HAVE(CLOCK_OFFSET))
			return 0;
		d->kind = TASK_DIAG_FDD_TIMERFD;
		d->value[0] = RD(u32, ctx, TIMERFD_CLOCK);
		d->value[1] = RD_MAY(u64, ctx, TIMERFD_TICKS);
		d->value[2] = RD_MAY(__u16, ctx, TIMERFD_FLAGS);
		d->value[3] = remaining(ctx, d->value[0]);
		d->value[4] = RD_MAY(u64, ctx, TIMERFD_INTERVAL);
		break;
	case TASK_DIAG_FD_SIGNALFD:
		if (!HAVE(SIGNALFD_MASK))
			return 0;
		d->kind = TASK_DIAG_FDD_SIGNALFD;
		d->value[0] = ~RD(u64, ctx, SIGNALFD_MASK);
		break;
	case TASK_DIAG_FD_EPOLL:
		if (!HAVE(EP_FIRST) || !HAVE(EPI_NODE) || !HAVE(EPI_FILE) || !HAVE(EPI_FD) ||
		    !HAVE(EP_ROOT) || !HAVE(RB_PARENT))
			return 0;
		if (st.detail_node)
			st.detail_node = tree_next(st.detail_node);
		else
			st.detail_node = st.detail_done ? epoll_after(ctx) : RD(u64, ctx, EP_FIRST);
		if (!st.detail_node)
			return 0;
		p = st.detail_node - OFF(EPI_NODE);
		st.detail_file = RD(u64, p, EPI_FILE);
		st.detail_fd = RD(u32, p, EPI_FD);
		d->kind = TASK_DIAG_FDD_EPOLL;
		d->value[0] = st.detail_fd;
		d->value[1] = RD_MAY(u32, p, EPI_EVENTS);
		d->value[2] = RD_MAY(u64, p, EPI_DATA);
		put_inode_of(d, 3, RD(u64, st.detail_file, FILE_INODE));
		break;
	case TASK_DIAG_FD_INOTIFY:
		if (!HAVE(GROUP_MARKS) || !HAVE(MARK_LINK) || !HAVE(WATCH_WD) || !HAVE(MARK_CONNECTOR))
			return 0;
		p = ctx + OFF(GROUP_MARKS);
		if (!st.detail_node && !skip_marks(p))
			return 0;
		st.detail_node = RD(u64, st.detail_node, LIST_NEXT);
		if (!st.detail_node || st.detail_node == p)
			return 0;
		p = st.detail_node - OFF(MARK_LINK);
		d->kind = TASK_DIAG_FDD_INOTIFY;
		d->value[0] = RD(u32, p - OFF(WATCH_MARK), WATCH_WD);
		put_inode_of(d, 1, watched(p));
		d->value[3] = RD_MAY(u32, p, MARK_MASK) & IN_ALL_EVENTS;
		if (RD_MAY(u32, p, MARK_FLAGS) & MARK_EXCL_UNLINK)
			d->value[3] |= IN_EXCL_UNLINK;
		if (RD_MAY(u32, p, MARK_FLAGS) & MARK_ONESHOT)
			d->value[3] |= IN_ONESHOT;
		break;
	case TASK_DIAG_FD_PIDFD:
		if (!HAVE(PID_TASKS))
			return 0;
		p = magic == MAGIC_PID ? RD(u64, inode, INODE_PRIVATE) : ctx;
		d->kind = TASK_DIAG_FDD_PIDFD;
		d->value[0] = RD(u64, p, PID_TASKS) ? pid_nr((struct pid *)p) : NOT_KNOWN;
		break;
	case TASK_DIAG_FD_BPF_MAP:
		if (!HAVE(BPF_MAP_ID))
			return 0;
		d->kind = TASK_DIAG_FDD_BPF_MAP;
		d->value[0] = RD(u32, ctx, BPF_MAP_ID);
		d->value[1] = RD_MAY(u32, ctx, BPF_MAP_KIND);
		d->value[2] = RD_MAY(u32, ctx, BPF_MAP_LEN);
		d->value[3] = NOT_KNOWN;	/* only a function of the map's type could tell it */
		break;
	case TASK_DIAG_FD_BPF_PROG:
		if (!HAVE(BPF_PROG_AUX) || !HAVE(BPF_PROG_ID))
			return 0;
		d->kind = TASK_DIAG_FDD_BPF_PROG;
		d->value[0] = RD(u32, RD(u64, ctx, BPF_PROG_AUX), BPF_PROG_ID);
		d->value[1] = RD_MAY(u32, ctx, BPF_PROG_KIND);
		d->value[2] = (u64)RD_MAY(__u16, ctx, BPF_PROG_PAGES) << cfg.page_shift;
		break;
	case TASK_DIAG_FD_BPF_LINK:
		if (!HAVE(BPF_LINK_ID) || !HAVE(BPF_PROG_AUX) || !HAVE(BPF_PROG_ID))
			return 0;
		d->kind = TASK_DIAG_FDD_BPF_LINK;
		d->value[0] = RD(u32, ctx, BPF_LINK_ID);
		d->value[1] = RD_MAY(u32, ctx, BPF_LINK_KIND);
		p = RD_MAY(u64, ctx, BPF_LINK_PROG);
		d->value[2] = p ? RD(u32, RD(u64, p, BPF_PROG_AUX), BPF_PROG_ID) : 0;
		break;
	case TASK_DIAG_FD_IO_URING:
		if (!HAVE(RING_SQ) || !HAVE(RING_CQ))
			return 0;
		d->kind = TASK_DIAG_FDD_IO_URING;
		d->value[0] = RD(u32, ctx, RING_SQ);
		d->value[1] = RD(u32, ctx, RING_CQ);
		break;
	default:
		return 0;
	}
	if (!STILL_AT(st.file, FILE_INODE, inode) || !STILL_AT(st.file, FILE_PRIVATE, ctx) || !still_open())
		return 0;
	e = next_entry(TASK_DIAG_A_FD_DETAIL, sizeof(*e), ALL_OF(FD_DETAIL));
	if (e)
		*e = *d;
	return type == TASK_DIAG_FD_EPOLL || type == TASK_DIAG_FD_INOTIFY;
}

#endif
