/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names: each path is resolved and written once in an answer, and is referred
 * to by a number after that. Paths are made as d_path() makes them, but with
 * loads that cannot fault. d_path() itself must not be used for another task's
 * path, because it follows dentries and mounts that nobody holds.
 *
 * Dentries, their names and mounts are freed by RCU. So everything on a path
 * stays valid for the whole run if its first dentry was in use during the run.
 * A rename during the climb can mix old and new components. So the climb is
 * repeated afterwards, and the text is made again if the way has changed.
 *
 * A path may be long, and a user may rename its directories all the time. So each component counts as work. If the time of the run
 * is over, the path is left to the next run, which has more time for it. That run tries PATH_TRIES times, whatever the clock says,
 * so that the walk advances. A path that changes at each try is BLOCKED.
 *
 * Not here: which task has which file.
 */
#ifndef TASKDIAG_NAMES_H
#define TASKDIAG_NAMES_H

#include "out.h"
#include "raw.h"
#include "room.h"
#include "shared.h"

/* The objects that a name was made from: equal keys mean equal names. */
struct name {
	u64 key[4];
	u64 chain;	/* for a path: a hash of the dentries on it */
	u32 number;
	u32 slice;	/* the run in which the name was written, or its chain last compared */
	u32 has_stat;	/* for a mapped file: its FILE_STAT entry is written */
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct name));
	__uint(max_entries, NAMES_MAX);
} names SEC(".maps");

#define NUMBER_ENGINE (2u << 28)

/* How often a path that changes meanwhile is made before the program gives up. */
enum { PATH_TRIES = 8 };

/* s_magic of file systems whose files have no path */
enum {
	MAGIC_ANON_INODE = 0x09041934,
	MAGIC_PIPE = 0x50495045,
	MAGIC_SOCK = 0x534f434b,
	MAGIC_NS = 0x6e736673,
	MAGIC_PID = 0x50494446,
	MAGIC_DMA_BUF = 0x444d4142,
};

/*
 * Returns the number of the name with the key st.key, or 0 if it is not in the table. st.slot is set to its slot, or to
 * the slot for a new name. If all slots for a key are taken, an older name is dropped from the table. If that one is
 * met again, it is written again with another number.
 */
GROUP_FN find_name(void)
{
	u32 i, h = mix(st.key[0] + mix(st.key[1] + mix(st.key[2] + mix(st.key[3]))));
	struct name *e;

	st.slot = (h + (st.names & 3)) & cfg.names_mask;
#pragma unroll
	for (i = 0; i < 4; i++) {
		u32 slot = (h + i) & cfg.names_mask;

		e = bpf_map_lookup_elem(&names, &slot);
		if (!e)
			return 0;
		if (!e->number || e->slice < st.first_slice) {
			st.slot = slot;
			return 0;
		}
		if (e->key[0] == st.key[0] && e->key[1] == st.key[1] && e->key[2] == st.key[2] &&
		    e->key[3] == st.key[3]) {
			st.slot = slot;
			return e->number;
		}
	}
	return 0;
}

/* Leave the path to the next run? */
static __always_inline bool is_path_late(u32 work)
{
	if (!is_late(work) || st.path_patient)
		return false;
	st.path_late = 1;
	return true;
}

/* Begin a path, and end it. */
static __always_inline void begin_path(void)
{
	st.path_late = st.path_tries = 0;
}

static __always_inline void end_path(void)
{
	st.path_patient = st.path_late;
}

/* Enter the name with the key st.key into the table and give it a number. */
static __always_inline u32 new_name(void)
{
	u32 slot = st.slot & cfg.names_mask;
	struct name *e = bpf_map_lookup_elem(&names, &slot);

	if (!e)
		return 0;
	__builtin_memcpy(e->key, st.key, sizeof(e->key));
	e->chain = st.chain;
	e->slice = st.slice;
	e->has_stat = 0;
	st.names++;
	e->number = NUMBER_ENGINE | st.names;
	st.new_name = slot + 1;
	return e->number;
}

/* Begin an entry that may get a name. */
static __always_inline void begin_entry(void)
{
	st.new_name = 0;
}

/*
 * Take back the name that was written for an entry, and the data after it, because the object that it
 * was read from is gone. The name may be that of another object. So it is cleared, and nothing refers to it.
 */
GROUP_FN take_back_name(void)
{
	u32 slot = (st.new_name - 1) & cfg.names_mask, len;
	struct name *e;
	char *from;

	if (!st.new_name)
		return 0;
	e = bpf_map_lookup_elem(&names, &slot);
	if (e) {
		e->number = 0;
		e->key[0] = e->key[1] = e->key[2] = e->key[3] = e->chain = 0;
	}
	len = st.off - st.new_name_off;
	st.off = st.new_name_off;
	st.list = st.new_name = 0;
	from = here();
	/* A read from no address clears the bytes. */
	if (from)
		bpf_probe_read_kernel(from, len & (2 * TEXT_SPAN - 1), NULL);
	return 0;
}

#define BLOB_DATA sizeof(struct task_diag_blob)
/* The text of the blob under construction: st.len bytes so far. */
#define TEXT_END() ((char *)at(st.off + BLOB_DATA + st.len))

/*
 * The end of the name under construction, which has st.len bytes so far. The name is built in st.text and copied to the
 * output when it is complete. To find the place in the output at each step would be much inlined code, and for each
 * such piece the kernel moves the rest of the program while it loads it.
 */
#define NAME_END() (st.text + (st.len & (TEXT_SPAN - 1)))
#define APPEND_LITERAL(text_) do {					\
	__builtin_memcpy(NAME_END(), text_, sizeof(text_) - 1);		\
	st.len += sizeof(text_) - 1;					\
} while (0)

static __always_inline void append(u64 from, u32 len)
{
	/* A cgroup directory may have a name of up to 4095 bytes, other files 255. */
	len &= 0xfff;
	if (!bpf_probe_read_kernel(NAME_END(), len, (void *)from))
		st.len += len;
}

/* A NUL-terminated string of at most 127 bytes. */
static __always_inline void append_string(u64 from)
{
	long n = bpf_probe_read_kernel_str(NAME_END(), 128, (void *)from);

	if (n > 0)
		st.len += (n - 1) & 0x7f;
}

static __always_inline void append_dentry(u64 dentry)
{
	append(RD(u64, dentry, DENTRY_NAME), RD(u32, dentry, DENTRY_LEN));
}

static __always_inline void append_number(u64 v)
{
	long n = bpf_snprintf(NAME_END(), 32, (const char *)cfg.number_format, &v, sizeof(v));

	if (n > 0)
		st.len += (n - 1) & 0x1f;
}

/* Go up one component, as prepend_path() does. */
STEP(climb, i)
{
	u64 d = st.up_dentry, mnt = st.up_mnt, up;
	u32 depth;

	if (is_path_late(1))
		return 1;
	if (d == st.root_dentry && mnt == st.root_mnt)
		return 1;
	if (d == RD(u64, mnt, VFSMOUNT_ROOT)) {
		u64 m = mnt - OFF(MOUNT_MNT);

		up = RD(u64, m, MOUNT_PARENT);
		if (!up || up == m)
			return 1;	/* the topmost mount, or a detached one */
		st.up_dentry = RD(u64, m, MOUNT_POINT);
		st.up_mnt = up + OFF(MOUNT_MNT);
		return 0;
	}
	up = RD(u64, d, DENTRY_PARENT);
	if (!up || up == d)
		return 1;
	st.chain = mix(st.chain + d) ^ RD(u64, d, DENTRY_HASH_LEN);
	depth = st.depth;
	if (depth >= DEPTH_MAX)
		return 1;
	st.up[depth & (DEPTH_MAX - 1)] = d;
	st.depth = depth + 1;
	st.up_dentry = up;
	return 0;
}
TURNS(climb)

/* Climb from st.path_mnt and st.path_dentry to the reader's root. st.up gets the dentries, and st.chain a hash of them,
 * of their names and of the inode number. */
static __always_inline void climb_path(void)
{
	st.depth = 0;
	st.chain = RD(u64, RD(u64, st.path_dentry, DENTRY_INODE), INODE_INO);
	st.up_dentry = st.path_dentry;
	st.up_mnt = st.path_mnt;
	LONG_LOOP(DEPTH_MAX + MOUNTS_DEEP_MAX, DEPTH_MAX + MOUNTS_DEEP_MAX, climb);
}

STEP(descend_path, i)
{
	u64 d = st.up[(st.depth - 1 - i) & (DEPTH_MAX - 1)];

	if (st.len > PATH_BYTES_MAX || is_path_late(1))
		return 1;
	APPEND_LITERAL("/");
	append_dentry(d);
	/* This is above PATH_BYTES_MAX, so the path is marked as cut. */
	if (st.len >= TEXT_SPAN)
		st.len = TEXT_SPAN - 1;
	return 0;
}
TURNS(descend_path)

/* A flag of append_path(): the path was different at each try. */
#define PATH_CHANGES (1u << 30)

/* Build the path of st.path_mnt and st.path_dentry in st.text, as d_path() does, but without " (deleted)" at the end.
 * Returns the flags of the blob, which tell whether it is deleted, or PATH_CHANGES. st.path_late is set afterwards if the path is
 * left to the next run. */
GROUP_FN append_path(u32 unlinked)
{
	u64 d = st.path_dentry, mnt = st.path_mnt, inode, ns, magic, chain;
	u32 flags = 0, try;

	st.len = 0;
	climb_path();
	if (st.path_late)
		return 0;
	if (RD(u64, d, DENTRY_PARENT) == d && RD(u64, mnt, VFSMOUNT_ROOT) != d) {
		/* The file system makes the name, with d_dname(). If only mappings are asked for, kinds that cannot be
		 * mapped are left out, so that the verifier has less to do. */
		inode = RD(u64, d, DENTRY_INODE);
		magic = RD(u64, RD(u64, d, DENTRY_SB), SB_MAGIC);
		if (magic == MAGIC_ANON_INODE) {
			APPEND_LITERAL("anon_inode:");
			append_dentry(d);
			return 0;
		}
		if (magic == MAGIC_DMA_BUF) {
			APPEND_LITERAL("/");
			append_dentry(d);
			APPEND_LITERAL(":");
			append_string(RD_MAY(u64, RD(u64, d, DENTRY_FSDATA), DMABUF_NAME));
			return 0;
		}
		if (WANT(TASK_DIAG_FD) && magic == MAGIC_PID) {
			APPEND_LITERAL("anon_inode:[pidfd]");
			return 0;
		}
		if (magic == MAGIC_SOCK) {
			APPEND_LITERAL("socket:[");
		} else if (WANT(TASK_DIAG_FD) && magic == MAGIC_PIPE) {
			APPEND_LITERAL("pipe:[");
		} else if (WANT(TASK_DIAG_FD) && magic == MAGIC_NS) {
			ns = RD(u64, inode, INODE_PRIVATE);
			append_string(RD_MAY(u64, RD_MAY(u64, ns, NS_OPS), NS_OPS_NAME));
			APPEND_LITERAL(":[");
		} else {
			APPEND_LITERAL("/");
			append_dentry(d);
			return TASK_DIAG_BLOB_DELETED;
		}
		append_number(RD(u64, inode, INODE_INO));
		APPEND_LITERAL("]");
		return 0;
	}
	/* The text is right if a second climb afterwards finds the same way as the first. */
	st.path_steady = 0;
	EACH(try, 0, PATH_TRIES, PATH_TRIES) {
		st.len = 0;
		GAP();
		if (!st.depth) {
			APPEND_LITERAL("/");
			st.path_steady = 1;
			break;
		}
		if (st.path_tries >= PATH_TRIES)
			break;
		st.path_tries++;
		LONG_LOOP(st.depth, DEPTH_MAX, descend_path);
		chain = st.chain;
		GAP();
		climb_path();
		if (st.path_late)
			return 0;
		if (st.chain == chain) {
			st.path_steady = 1;
			break;
		}
	}
	if (!st.path_steady)
		return PATH_CHANGES;
	if (st.depth >= DEPTH_MAX || st.len > PATH_BYTES_MAX)
		flags = TASK_DIAG_BLOB_CUT;
	if (unlinked)
		flags |= TASK_DIAG_BLOB_DELETED;
	return flags;
}

/* Write the name in st.text. Returns its number. */
GROUP_FN put_name(u32 flags)
{
	u32 number, len;
	struct task_diag_blob *b;

	close_list();
	len = name_room(&flags);
	number = new_name();
	st.new_name_off = st.off;
	b = begin_blob();
	if (!b)
		return 0;
	if (flags & PATH_CHANGES)
		len = 0;
	barrier_var(len);
	len &= TEXT_SPAN - 1;
	bpf_probe_read_kernel(b->data, len, st.text);
	is_late(4 + len / 128);
	end_blob(b, TASK_DIAG_A_NAME, number, len, 0, flags & PATH_CHANGES ? 0 : st.len, flags & ~PATH_CHANGES,
		 flags & PATH_CHANGES ? TASK_DIAG_R_BLOCKED : 0);
	return number;
}

/* Is the known name of the path with the key st.key still right? It is if it was checked in this run, or if the path
 * still leads over the same dentries. In a later run another dentry may be at the same address. */
GROUP_FN name_still_leads(void)
{
	u32 slot = st.slot & cfg.names_mask;
	struct name *e = bpf_map_lookup_elem(&names, &slot);

	if (!e)
		return 0;
	if (e->slice == st.slice)
		return 1;
	climb_path();
	if (st.path_late || e->chain != st.chain)
		return 0;
	e->slice = st.slice;
	return 1;
}

/* name_of_path() between the begin and the end of the path. */
static __always_inline u32 find_or_make_path(void)
{
	u64 d = st.path_dentry, inode = RD(u64, d, DENTRY_INODE);
	u32 number, flags;
	bool unlinked = !RD(u64, d, DENTRY_HASHED) && RD(u64, d, DENTRY_PARENT) != d;

	st.key[0] = st.path_mnt;
	st.key[1] = d;
	st.key[2] = RD(u64, d, DENTRY_HASH_LEN);
	/* Inodes are aligned, so the low bit is free. */
	st.key[3] = inode | unlinked;
	number = find_name();
	if (number && name_still_leads())
		return number;
	if (st.path_late)
		return 0;
	flags = append_path(unlinked);
	if (st.path_late)
		return 0;
	if (flags & TASK_DIAG_BLOB_CUT)
		st.is_cut = 1;
	if (flags & PATH_CHANGES) {
		st.is_blocked = 1;
		/* A key that no path has, so that the next use of this path resolves it again. */
		st.key[0] = 0;
		st.key[1] = st.names;
	}
	return put_name(flags);
}

/* Returns the number of the path st.path_mnt, st.path_dentry. A new name is written first. Returns 0 and sets st.path_late if the
 * path is left to the next run. */
GROUP_FN name_of_path(void)
{
	u32 number;

	begin_path();
	number = find_or_make_path();
	end_path();
	return number;
}

/* How name_of_text() makes a name of a text. */
enum {
	TEXT_PLAIN,
	TEXT_SHMEM,	/* a name of shared memory, which has brackets in /proc */
	TEXT_UNIX,	/* plus the length: the name of a unix socket */
};

/* Make the key of the text st.text, whose words after its end are 0. */
GROUP_FN key_of_text(void)
{
	u64 *word = (u64 *)st.text;
	u32 i;

	st.key[0] = 1;	/* differs from any path, whose first word is the address of a mount */
	st.key[1] = st.len;
	st.key[2] = st.key[3] = 0;
	EACH(i, 0, 18, 18) {
		u64 w = word[i & 31];

		st.key[2] = mix(st.key[2] + w);
		st.key[3] = (st.key[3] ^ w) * 0x9e3779b97f4a7c15ull + i;
	}
	return 0;
}

/* Returns the number of the text of up to 127 bytes at st.arg in kernel memory. Equal texts at different addresses are
 * one name. */
GROUP_FN name_of_text(u32 how)
{
	u64 *word = (u64 *)st.text;
	u32 i, number;
	u8 first = 1;

	/* Clear all words, because the key is made of all of them. */
#pragma unroll
	for (i = 0; i < 18; i++)
		word[i] = 0;
	st.len = 0;
	if (how == TEXT_SHMEM)
		APPEND_LITERAL("[anon_shmem:");
	if (WANT(TASK_DIAG_FD) && how > TEXT_UNIX) {
		bpf_probe_read_kernel(&first, 1, (void *)st.arg);
		if (!first) {
			/* an abstract name, which does not end with a NUL */
			append(st.arg, (how - TEXT_UNIX) & 0x7f);
			st.text[0] = '@';
		}
	}
	if (first)
		append_string(st.arg);
	if (how == TEXT_SHMEM)
		APPEND_LITERAL("]");
	key_of_text();
	number = find_name();
	return number ? number : put_name(0);
}

/* Find the reader's root directory, which paths are relative to. */
static __always_inline void set_up_names(struct task_struct *me)
{
	u64 fs = RD(u64, me, TASK_FS);

	st.root_mnt = RD(u64, fs, FS_ROOT_MNT);
	st.root_dentry = RD(u64, fs, FS_ROOT_DENTRY);
}

#endif
