/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names: each path is resolved and written once for a whole answer, and has a
 * number after that. Paths are made here as d_path() makes them, with loads
 * that cannot fault: d_path() follows dentries and mounts that nobody holds
 * where it is given another task's.
 *
 * Dentries, their names and mounts are freed by RCU, so all that a path leads
 * over stays for the whole run if its first dentry was in use during the run.
 * A rename during the climb can mix old and new components: the climb is done
 * again afterwards, and the text is made anew if it went another way.
 *
 * Not here: who has which file.
 */
#ifndef TASKDIAG_NAMES_H
#define TASKDIAG_NAMES_H

/* What a name was made of: the same key means the same name. */
struct name {
	u64 key[4];
	u64 chain;	/* of a path: the hash of what it leads over */
	u32 number;
	u32 slice;	/* the run in which it was last compared with that, or written */
	u32 has_stat;	/* of a mapped file: FILE_STAT has it */
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct name));
	__uint(max_entries, NAMES_MAX);
} names SEC(".maps");

#define NUMBER_ENGINE (2u << 28)

/* Times that a path is made that changes meanwhile. */
enum { PATH_TRIES = 8 };

/* s_magic of the file systems whose files have no path */
enum {
	MAGIC_ANON_INODE = 0x09041934,
	MAGIC_PIPE = 0x50495045,
	MAGIC_SOCK = 0x534f434b,
	MAGIC_NS = 0x6e736673,
	MAGIC_PID = 0x50494446,
	MAGIC_DMA_BUF = 0x444d4142,
};

/*
 * The number of the name with the key in st.key, or 0. st.slot is where it is, or where a new one goes.
 * When all slots for a key are taken, one name is forgotten, and written again with another
 * number if it comes again.
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

/* Note that the name with the key in st.key is written, and give it a number. */
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
	return e->number;
}

#define BLOB_DATA sizeof(struct task_diag_blob)
/* The text of the blob under construction: st.len bytes so far. */
#define TEXT_END() ((char *)at(st.off + BLOB_DATA + st.len))

/*
 * A name under construction: st.len bytes so far. It is copied to where it goes when it is whole: to look for
 * that at each step is much code, for which the kernel moves the rest of the program while it loads it.
 */
#define NAME_END() (st.text + (st.len & (TEXT_SPAN - 1)))
#define APPEND_LITERAL(text_) do {					\
	__builtin_memcpy(NAME_END(), text_, sizeof(text_) - 1);		\
	st.len += sizeof(text_) - 1;					\
} while (0)

static __always_inline void append(u64 from, u32 len)
{
	len &= 0xff;
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

/* One component up, as prepend_path() goes. */
static long climb(u32 i, void *unused)
{
	u64 d = st.up_dentry, mnt = st.up_mnt, up;
	u32 depth;

	(void)i;
	(void)unused;
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

/* From st.path_mnt, st.path_dentry up to the reader's root: the dentries to st.up, a hash of them, of their names and
 * of the inode number to st.chain. */
static __always_inline void climb_path(void)
{
	st.depth = 0;
	st.chain = RD(u64, RD(u64, st.path_dentry, DENTRY_INODE), INODE_INO);
	st.up_dentry = st.path_dentry;
	st.up_mnt = st.path_mnt;
	bpf_loop(DEPTH_MAX + MOUNTS_DEEP_MAX, climb, NULL, 0);
}

static long descend_path(u32 i, void *unused)
{
	u64 d = st.up[(st.depth - 1 - i) & (DEPTH_MAX - 1)];

	(void)unused;
	if (st.len > PATH_BYTES_MAX)
		return 1;
	APPEND_LITERAL("/");
	append_dentry(d);
	return 0;
}

/* The text of st.path_mnt, st.path_dentry to the blob under construction, as d_path() but for the
 * " (deleted)" at the end. Returns the flags, which say so. */
GROUP_FN append_path(u32 unlinked)
{
	u64 d = st.path_dentry, mnt = st.path_mnt, inode, ns, magic, chain;
	u32 flags = 0, try;

	st.len = 0;
	if (RD(u64, d, DENTRY_PARENT) == d && RD(u64, mnt, VFSMOUNT_ROOT) != d) {
		/* It has a d_dname(). What cannot be mapped is left out, for the verifier's sake, where
		 * only mappings are asked for. */
		climb_path();
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
	EACH(try, 0, PATH_TRIES, PATH_TRIES) {
		st.len = 0;
		climb_path();
		GAP();
		if (!st.depth) {
			APPEND_LITERAL("/");
			break;
		}
		bpf_loop(st.depth, descend_path, NULL, 0);
		chain = st.chain;
		climb_path();
		if (st.chain == chain)
			break;
	}
	if (st.depth >= DEPTH_MAX || st.len > PATH_BYTES_MAX)
		flags = TASK_DIAG_BLOB_CUT;
	if (unlinked)
		flags |= TASK_DIAG_BLOB_DELETED;
	return flags;
}

/* Write the name that is in st.text. Returns its number. */
GROUP_FN put_name(u32 flags)
{
	u32 number, len = st.len & (TEXT_SPAN - 1);
	struct task_diag_blob *b;

	close_list();
	number = new_name();
	b = begin_blob();
	if (!b)
		return 0;
	bpf_probe_read_kernel(b->data, len, st.text);
	end_blob(b, TASK_DIAG_A_NAME, number, len, 0, len, flags, 0);
	return number;
}

/* Was the path with the key in st.key found in this run, or does it still lead over the same dentries? In a later
 * run its dentry may be another one at the same address. */
GROUP_FN name_still_leads(void)
{
	u32 slot = st.slot & cfg.names_mask;
	struct name *e = bpf_map_lookup_elem(&names, &slot);

	if (!e)
		return 0;
	if (e->slice == st.slice)
		return 1;
	climb_path();
	if (e->chain != st.chain)
		return 0;
	e->slice = st.slice;
	return 1;
}

/* The number of the path st.path_mnt, st.path_dentry; the name is written first if it is new. */
GROUP_FN name_of_path(void)
{
	u64 d = st.path_dentry, inode = RD(u64, d, DENTRY_INODE);
	u32 number, flags;
	bool unlinked = !RD(u64, d, DENTRY_HASHED) && RD(u64, d, DENTRY_PARENT) != d;

	st.key[0] = st.path_mnt;
	st.key[1] = d;
	st.key[2] = RD(u64, d, DENTRY_HASH_LEN);
	/* inodes are aligned: the low bit is free */
	st.key[3] = inode | unlinked;
	number = find_name();
	if (number && name_still_leads())
		return number;
	flags = append_path(unlinked);
	if (flags & TASK_DIAG_BLOB_CUT)
		st.truncated++;
	return put_name(flags);
}

/*
 * The number of a text at st.arg of kernel memory, of up to 127 bytes. Equal texts are one name,
 * wherever they are. How it is made of the text:
 */
enum {
	TEXT_PLAIN,
	TEXT_SHMEM,	/* a name of shared memory, which has brackets in /proc */
	TEXT_UNIX,	/* and the length added to it: the name of a unix socket */
};

GROUP_FN name_of_text(u32 how)
{
	u64 *word = (u64 *)st.text;
	u32 i, number;
	u8 first = 1;

	/* Zeros first, as all words are compared. */
#pragma unroll
	for (i = 0; i < 18; i++)
		word[i] = 0;
	st.len = 0;
	if (how == TEXT_SHMEM)
		APPEND_LITERAL("[anon_shmem:");
	if (WANT(TASK_DIAG_FD) && how > TEXT_UNIX) {
		bpf_probe_read_kernel(&first, 1, (void *)st.arg);
		if (!first) {
			/* abstract: not ended by a NUL */
			append(st.arg, (how - TEXT_UNIX) & 0x7f);
			st.text[0] = '@';
		}
	}
	if (first)
		append_string(st.arg);
	if (how == TEXT_SHMEM)
		APPEND_LITERAL("]");
	st.key[0] = 1;	/* not the address of a mount */
	st.key[1] = st.len;
	st.key[2] = st.key[3] = 0;
	EACH(i, 0, 18, 18) {
		u64 w = word[i & 31];

		st.key[2] = mix(st.key[2] + w);
		st.key[3] = (st.key[3] ^ w) * 0x9e3779b97f4a7c15ull + i;
	}
	number = find_name();
	return number ? number : put_name(0);
}

/* The reader's root directory, below which paths are. */
static __always_inline void set_up_names(struct task_struct *me)
{
	u64 fs = RD(u64, me, TASK_FS);

	st.root_mnt = RD(u64, fs, FS_ROOT_MNT);
	st.root_dentry = RD(u64, fs, FS_ROOT_DENTRY);
}

#endif
