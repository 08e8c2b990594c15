/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * VMA: the memory mappings of a task, read from the maple tree of its mm
 * without a lock. So a task is read even while someone holds its mmap lock.
 * Each mapping is compared with its range in the tree, and read again if the
 * two differ, as /proc/PID/maps does since Linux 6.17. This needs no helper
 * that older kernels lack.
 *
 * An mm and its tree are freed at once when the last task that has it ends,
 * but mappings and the nodes of a living tree are freed by RCU. So pointers in
 * a node or a mapping are followed only if the task still has the mm. A
 * mapping's file is closed after the mapping has left the tree, so what was
 * read from the file counts only if the tree still has the mapping afterwards.
 *
 * Not here: which pages of a mapping are in memory, which takes a walk over
 * its pages.
 */
#ifndef TASKDIAG_VMA_H
#define TASKDIAG_VMA_H

#include "filestat.h"
#include "names.h"

enum { VM_MAYSHARE = 0x80 };
/* FMODE_BACKING is bit 25 or, in newer and in some stable kernels, bit 24, and the other bit is another flag there. So a
 * file with either bit counts as a backing file only if what follows it in memory fits that, too. */
enum { FMODE_BACKING_MAYBE = 3 << 24 };
enum { MAPLE_LEAF_64 = 1, MAPLE_RANGE_64 = 2, MAPLE_ARANGE_64 = 3 };
enum { NODE_MASK = 255, RANGE_SLOTS = 16, ARANGE_SLOTS = 10 };
#define ADDRESS_MAX (~0ull)
/* How often a mapping that is being changed is read again. */
#define TORN_MAX 64

#define NODE(word) st.node_copy[(word) & 31]
#define VMA_MEMBER(name) (*(u64 *)((char *)st.vma + (OFF(name) & 0xf8)))

#define UFFD_MINOR_MAYBE (1ull << 37 | 1ull << 38 | 1ull << 41)

static __always_inline u32 vma_flags(u64 f)
{
	u32 v;

	/* These runs of VM_* bits are in the order of TASK_DIAG_VMAF_*. */
	v = (f >> 8) & 0x1;		/* GROWSDOWN */
	v |= (f >> 9) & 0x2;		/* PFNMAP */
	v |= (f >> 11) & 0xfc;		/* LOCKED to DONTEXPAND */
	v |= (f >> 12) & 0xf00;		/* ACCOUNT to SYNC */
	v |= (f >> 13) & 0x7f000;	/* WIPEONFORK to MERGEABLE */
	v |= (f << 10) & 0x80000;	/* UFFD_MISSING */
	v |= (f << 8) & 0x100000;	/* UFFD_WP */
	v |= (f << 4) & 0x800000;	/* LOCKONFAULT */
	/* Other bits have moved between kernels: SEALED from bit 63 to 42, UFFD_MINOR from 37 over 38 to 41. The latter
	 * bits have another meaning in mappings without a userfaultfd. */
	if (f & (1ull << 63 | 1ull << 42))
		v |= TASK_DIAG_VMAF_SEALED;
	if ((f & UFFD_MINOR_MAYBE) && HAVE(VMA_UFFD) && VMA_MEMBER(VMA_UFFD))
		v |= TASK_DIAG_VMAF_UFFD_MINOR;
	return v;
}

/* Set st.path_* and st.file_* to path, inode and device of the file st.arg. They are kept for the next mapping, which
 * often has the same file. */
GROUP_FN vma_file(void)
{
	u64 file = st.arg, inode, mnt, dentry, sb;

	if (file == st.file)
		return 0;
	st.file = file;
	st.path_mnt = RD(u64, file, FILE_MNT);
	st.path_dentry = RD(u64, file, FILE_DENTRY);
	inode = RD(u64, file, FILE_INODE);
	if (HAVE(BACKING_MNT) && RD(u32, file, FILE_MODE) & FMODE_BACKING_MAYBE) {
		mnt = RD(u64, file, BACKING_MNT);
		dentry = RD(u64, file, BACKING_DENTRY);
		sb = RD(u64, dentry, DENTRY_SB);
		if (sb && sb == RD(u64, mnt, VFSMOUNT_SB)) {
			/* a stacked file system: take the file that the user opened */
			st.path_mnt = mnt;
			st.path_dentry = dentry;
			inode = RD(u64, dentry, DENTRY_INODE);
		}
	}
	st.file_inode = RD(u64, inode, INODE_INO);
	st.file_dev = encode_dev(RD(u32, RD(u64, inode, INODE_SB), SB_DEV));
	if (WANT(TASK_DIAG_FILE_STAT))
		st.file_stat_dev = device_of(inode);
	st.file_name = 0;
	return 0;
}

/* Find the kind and the name of the mapping in st.vma, as get_vma_name() of fs/proc/task_mmu.c does. Returns the kind
 * and sets st.number to the number of the name. */
GROUP_FN vma_kind(void)
{
	u64 ops, name, start = VMA_MEMBER(VMA_START), end = VMA_MEMBER(VMA_END);
	u64 anon = HAVE(VMA_ANON_NAME) && HAVE(ANON_NAME_TEXT) ? VMA_MEMBER(VMA_ANON_NAME) : 0;
	char text[8] = {};

	st.number = 0;
	if (VMA_MEMBER(VMA_FILE)) {
		st.arg = anon + OFF(ANON_NAME_TEXT);
		/* Before Linux commit d09e8ca6cb93 ("mm: anonymous shared memory naming") (in v6.2) a
		 * mapping of a file had something else there. */
		if (anon && OFF(VMA_ANON_NAME) != OFF(VMA_SHARED)) {
			st.number = name_of_text(TEXT_SHMEM);
			return TASK_DIAG_VMA_FILE;
		}
		if (!st.file_name) {
			st.file_name = name_of_path();
			if (WANT(TASK_DIAG_FILE_STAT) && !st.path_late)
				put_mapped_stat();
		}
		st.number = st.file_name;
		return TASK_DIAG_VMA_FILE;
	}
	ops = VMA_MEMBER(VMA_OPS);
	if (ops && RD(u64, ops, VMOPS_NAME)) {
		/* a vm_special_mapping: no other mapping without a file has a name() */
		name = RD(u64, VMA_MEMBER(VMA_PRIVATE), SPECIAL_NAME);
		if (name && bpf_probe_read_kernel_str(text, sizeof(text), (void *)name) > 1) {
			if (*(u64 *)text == 0x005d6f7364765bull)	/* "[vdso]" */
				return TASK_DIAG_VMA_VDSO;
			st.arg = name;
			st.number = name_of_text(TEXT_PLAIN);
			return TASK_DIAG_VMA_SPECIAL;
		}
	}
	if (start < st.brk && end > st.start_brk)
		return TASK_DIAG_VMA_HEAP;
	if (start <= st.start_stack && end >= st.start_stack)
		return TASK_DIAG_VMA_STACK;
	if (anon) {
		st.arg = anon + OFF(ANON_NAME_TEXT);
		st.number = name_of_text(TEXT_PLAIN);
		return TASK_DIAG_VMA_NAMED;
	}
	return TASK_DIAG_VMA_ANON;
}

/*
 * Copy the members of a mapping that are needed to their places in st.vma. To
 * copy the whole struct, the helper takes as long as all the rest of a mapping.
 * So single words are loaded where the kernel allows loads by offset.
 */
static __always_inline bool copy_vma(u64 vma)
{
#ifdef LEGACY
	u32 size = OFF(VMA_SIZE);

	if (size > sizeof(st.vma))
		size = sizeof(st.vma);
	return !bpf_probe_read_kernel(st.vma, size, (void *)vma);
#else
	void *v = CAST(struct vm_area_struct, (void *)vma);

#define TAKE(name) (VMA_MEMBER(name) = *(volatile u64 *)(v + OFF(name)))
#define TAKE_MAY(name) do { if (HAVE(name)) TAKE(name); } while (0)
	TAKE(VMA_START);
	TAKE(VMA_END);
	TAKE(VMA_MM);
	TAKE(VMA_FLAGS);
	TAKE(VMA_OPS);
	TAKE(VMA_PGOFF);
	TAKE(VMA_FILE);
	TAKE(VMA_PRIVATE);
	TAKE_MAY(VMA_ANON_NAME);
	if (VMA_MEMBER(VMA_FLAGS) & UFFD_MINOR_MAYBE)
		TAKE_MAY(VMA_UFFD);
	return true;
#endif
}

#define PUT_VMA() next_entry(TASK_DIAG_VMA, sizeof(struct task_diag_vma), ALL_OF(VMA))

/* Does the task still have this mm? If not, none of its pointers may be followed any more. */
GROUP_FN still_its_mm(void)
{
	st.gone = !STILL_AT(THIS, TASK_MM, st.mm) || !same_exec(THIS, st.mm_exec);
	return !st.gone;
}

/*
 * Is the mapping still in its leaf, and is the leaf still in the tree of the task's mm? A node that has left the tree is
 * its own parent. Since Linux 6.15 the memory of a mapping may become another mapping at any time, so its end, its mm and its file
 * are compared, too.
 */
GROUP_FN still_mapped(u64 vma)
{
	u64 parent, slot, file, end, mm;

	GAP();
	file = RD(u64, vma, VMA_FILE);
	end = RD(u64, vma, VMA_END);
	mm = RD(u64, vma, VMA_MM);
	order();
	slot = RD_AT(u64, (void *)(st.tree_node + OFF(NODE_SLOT) + st.slot_next * 8));
	parent = RD_AT(u64, (void *)st.tree_node);
	return slot == vma && (parent & ~(u64)NODE_MASK) != st.tree_node && file == VMA_MEMBER(VMA_FILE) &&
	       end == VMA_MEMBER(VMA_END) && mm == st.mm && still_its_mm();
}

/* Write the mapping of a slot for the addresses first to last. Returns 0 if it is being
 * changed, or if its path is left to the next run; then st.path_late is set. This is inlined,
 * because the verifier allows eight call frames and the functions for a path need the rest of them. */
static __always_inline int put_vma(u64 vma, u64 first, u64 last)
{
	struct task_diag_vma *e;
	u64 flags, start;
	u32 kind;

	begin_entry();
	if (!copy_vma(vma))
		return 0;
	if (VMA_MEMBER(VMA_START) != first || VMA_MEMBER(VMA_END) - 1 != last ||
	    VMA_MEMBER(VMA_MM) != st.mm || !still_mapped(vma))
		return 0;
	flags = VMA_MEMBER(VMA_FLAGS);
	st.arg = VMA_MEMBER(VMA_FILE);
	if (st.arg)
		vma_file();
	if (st.arg && !st.file_name && !still_mapped(vma)) {
		st.file = 0;
		return 0;
	}
	kind = vma_kind();
	if (st.path_late || !still_mapped(vma)) {
		take_back_name();
		st.file = 0;
		return 0;
	}
	e = PUT_VMA();
	if (!e)
		return 0;
	/* The mapping may have grown down, or merged with its neighbour, after the one before it was written. */
	start = first < st.address ? st.address : first;
	e->start = start;
	e->end = last + 1;
	e->offset_bytes = e->inode = 0;
	e->dev = 0;
	if (VMA_MEMBER(VMA_FILE)) {
		e->offset_bytes = (VMA_MEMBER(VMA_PGOFF) << cfg.page_shift) + (start - first);
		e->inode = st.file_inode;
		e->dev = st.file_dev;
	}
	e->name = st.number;
	e->perms = (flags & 7) | (flags & VM_MAYSHARE ? TASK_DIAG_VMA_SHARED : 0);
	e->flags = vma_flags(flags);
	e->kind = kind;
	e->reserved = 0;
	return 1;
}

/* As ma_data_end(): the last used slot of the node in st.node_copy. */
static __always_inline u32 data_end(u32 type, u64 max)
{
	u64 last;

	if (type == MAPLE_ARANGE_64)
		return NODE(OFF(ANODE_META) / 8) & 0xff;
	last = NODE(OFF(NODE_PIVOT) / 8 + RANGE_SLOTS - 2);
	if (!last)
		return NODE(OFF(NODE_META) / 8) & 0xff;
	return last == max ? RANGE_SLOTS - 2 : RANGE_SLOTS - 1;
}

/* Go one level down the tree towards st.address, as mtree_range_walk() does. */
GROUP_FN descend_tree(void)
{
	u64 node = st.entry & ~(u64)NODE_MASK, pivot;
	u32 type = (st.entry >> 3) & 15, end, i, p, s;

	is_late(3);
	if (bpf_probe_read_kernel(st.node_copy, sizeof(st.node_copy), (void *)node))
		return 1;
	GAP();
	/* A node that has left the tree is its own parent. */
	if ((NODE(0) & ~(u64)NODE_MASK) == node || !still_its_mm())
		return 1;
	st.tree_node = node;
	end = data_end(type, st.node_max);
	if (type == MAPLE_LEAF_64) {
		st.leaf_end = end;
		st.leaf = 1;
		return 1;
	}
	if (type == MAPLE_RANGE_64) {
		p = OFF(NODE_PIVOT) / 8;
		s = OFF(NODE_SLOT) / 8;
	} else if (type == MAPLE_ARANGE_64) {
		p = OFF(ANODE_PIVOT) / 8;
		s = OFF(ANODE_SLOT) / 8;
	} else {
		return 1;
	}
	st.i = 0;
	EACH(i, 0, end, RANGE_SLOTS - 1) {
		pivot = NODE(p + i);
		if (pivot >= st.address) {
			st.node_max = pivot;
			break;
		}
		st.node_min = pivot + 1;
		st.i = i + 1;
	}
	st.entry = NODE(s + st.i);
	return !st.entry;
}

STEP_OF(descend_step, level, descend_tree())

/*
 * Copy the leaf with st.address to st.node_copy. The search always begins at the root: a node that was read before the
 * last leaf was written may have been replaced since, and mappings that only the new one has would be left out.
 */
static __always_inline bool find_leaf(void)
{
	st.leaf = 0;
	st.node_min = 0;
	st.node_max = ADDRESS_MAX;
	st.entry = RD(u64, st.mm, MM_ROOT);
	if (still_its_mm() && (st.entry & 3) == 2 && st.entry > 4096)
		LOOP(16, descend_step);
	st.slot_next = 0;
	return st.leaf;
}

/* Load the cache lines of all mappings of the leaf together. If they are loaded one by one, most of a mapping's cost is
 * waiting for memory. */
GROUP_FN warm_leaf(void)
{
#ifndef LEGACY
	u32 i, end = st.leaf_end + 1;
	u64 vma;
	void *v;

	EACH(i, 0, end, RANGE_SLOTS) {
		vma = NODE(OFF(NODE_SLOT) / 8 + i);
		v = CAST(struct vm_area_struct, (void *)vma);
		*(volatile u64 *)&st.warm = *(volatile u64 *)(v + OFF(VMA_FLAGS));
		*(volatile u64 *)&st.warm = *(volatile u64 *)(v + OFF(VMA_FILE));
	}
#endif
	return 0;
}

/* Write the mapping of the next slot, and find the next leaf after the last one. Returns 1 at the end of the tree, or if
 * the room or the time of this run did not suffice. */
GROUP_FN next_vma(void)
{
	u64 first, last, vma, root;
	u32 s, whole;

	if (st.off >= CHUNK_FULL || is_late(2)) {
		st.leaf = 0;
		return 1;
	}
	if (list_is_full()) {
		st.walk_done = 1;
		return 1;
	}
	if (!st.leaf && !find_leaf()) {
		if (st.gone)
			return 1;
		root = RD(u64, st.mm, MM_ROOT);
		if (!still_its_mm())
			return 1;
		/* There is no tree, or it changes while it is read. */
		if (root && st.torn++ < TORN_MAX)
			return 0;
		st.walk_torn = !!root;
		st.walk_done = 1;
		return 1;
	}
	s = st.slot_next;
	if (!s) {
		is_late(8);
		warm_leaf();
	}
	first = s ? NODE(OFF(NODE_PIVOT) / 8 + s - 1) + 1 : st.node_min;
	last = s < st.leaf_end && s < RANGE_SLOTS - 1 ? NODE(OFF(NODE_PIVOT) / 8 + s) : st.node_max;
	vma = NODE(OFF(NODE_SLOT) / 8 + s);
	if (vma && !(vma & 3) && last >= st.address && last > first) {
		whole = put_vma(vma, first, last);
		if (st.gone) {
			return 1;
		} else if (st.path_late) {
			st.leaf = 0;
			return 1;
		} else if (whole) {
			st.torn = 0;
		} else if (st.torn++ < TORN_MAX) {
			st.leaf = 0;
			return 0;
		} else {
			st.walk_torn = 1;
		}
	}
	st.slot_next = s + 1;
	if (last >= st.node_max || s >= st.leaf_end) {
		st.leaf = 0;
		last = st.node_max;
		if (last == ADDRESS_MAX) {
			st.walk_done = 1;
			return 1;
		}
	}
	if (last >= st.address)
		st.address = last + 1;
	return 0;
}

/* The work is in a global function, because the verifier follows that once, but a callback many times. */
STEP_OF(vma_step, i, next_vma())
TURNS(vma_step)

/* Write the page that the kernel maps for all processes. It is not in any tree, but is the last line of /proc/PID/maps. */
static __always_inline void put_gate(void)
{
	struct task_diag_vma *e;
	const char text[] = "[vsyscall]";
	struct task_diag_blob *b;
	u32 flags;

	if (!cfg.gate_start)
		return;
	flags = RD_MAY(u8, st.mm, MM_CONTEXT_FLAGS);
	/* MM_CONTEXT_HAS_VSYSCALL */
	if (!still_its_mm() || !(flags & 2))
		return;
	if (!st.gate_name) {
		close_list();
		b = begin_blob();
		if (!b)
			return;
		__builtin_memcpy(b->data, text, sizeof(text));
		st.names++;
		st.gate_name = NUMBER_ENGINE | st.names;
		end_blob(b, TASK_DIAG_A_NAME, st.gate_name, sizeof(text) - 1, 0, sizeof(text) - 1, 0, 0);
	}
	e = PUT_VMA();
	if (!e)
		return;
	__builtin_memset(e, 0, sizeof(*e));
	e->start = cfg.gate_start;
	e->end = cfg.gate_end;
	e->perms = cfg.gate_perms;
	e->name = st.gate_name;
	e->kind = TASK_DIAG_VMA_SPECIAL;
}

/* Write the mappings from st.address on. Returns 1 if the room or the time of this run did not suffice. */
LIST_FN put_vmas(void)
{
	struct task_struct *t = THIS;
	bool first = !st.part_begun;
	u32 users;
	u64 mm;

	spill();
	st.gone = st.path_late = 0;
	st.mm_exec = LOAD_AGAIN(t, self_exec_id);
	order();
	mm = RD(u64, t, TASK_MM);
	if (!first && mm != st.part_object) {
		/* The task has become another program, so the list ends. */
		missing(TASK_DIAG_VMA, TASK_DIAG_R_VANISHED);
		return 0;
	}
	if (!mm || R(t, flags) & PF_KTHREAD) {
		missing(TASK_DIAG_VMA, TASK_DIAG_R_ABSENT);
		return 0;
	}
	st.mm = mm;
	st.file = 0;
	st.leaf = 0;
	if (first) {
		/* In an answer about one process there is no other task to share with. */
		if (cfg.strategy != TASK_DIAG_DUMP_ONE) {
			users = RD(u32, mm, MM_USERS);
			if (!still_its_mm()) {
				missing(TASK_DIAG_VMA, TASK_DIAG_R_VANISHED);
				return 0;
			}
			st.arg = mm;
			if (users > 1 && put_shared(TASK_DIAG_VMA, OFF(TASK_MM)))
				return 0;
		}
		st.part_begun = 1;
		st.part_object = mm;
		st.list_any = st.list_count = st.list_cut = 0;
		st.address = 0;
		st.torn = st.walk_torn = 0;
	}
	st.walk_done = 0;
	st.brk = RD(u64, mm, MM_BRK);
	st.start_brk = RD(u64, mm, MM_START_BRK);
	st.start_stack = RD(u64, mm, MM_START_STACK);
	if (still_its_mm())
		LONG_LOOP(LIST_TURNS, LIST_TURNS, vma_step);
	if (st.walk_done && !st.list_cut)
		put_gate();
	end_list(TASK_DIAG_VMA, sizeof(struct task_diag_vma), ALL_OF(VMA));
	if (st.gone) {
		missing(TASK_DIAG_VMA, TASK_DIAG_R_VANISHED);
		return 0;
	}
	if (st.list_cut) {
		missing(TASK_DIAG_VMA, TASK_DIAG_R_TRUNCATED);
		st.is_cut = 1;
		return 0;
	}
	if (st.walk_done && st.walk_torn) {
		missing(TASK_DIAG_VMA, TASK_DIAG_R_BLOCKED);
		st.is_blocked = 1;
	}
	return !st.walk_done;
}

#endif
