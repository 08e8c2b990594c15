/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads of kernel memory by offset (see offsets.h), and lists of entries. Both
 * are for the groups that need many kernel types; the others use R().
 */
#ifndef TASKDIAG_RAW_H
#define TASKDIAG_RAW_H

#include "out.h"
#include "room.h"

enum {
#define NEED(name, type, member) OFF_##name,
#define SINCE(name, type, member, group, version) OFF_##name,
#define MAY(name, type, member) OFF_##name,
#include "offsets.h"
#undef NEED
#undef SINCE
#undef MAY
	OFF_COUNT
};
_Static_assert(OFF_COUNT <= OFFSETS_MAX, "offsets do not fit");

#define OFF(name) ((u32)cfg.offsets[OFF_##name])
#define HAVE(name) (OFF(name) != OFFSET_NONE)

/* The value of type `t` at this address, or 0 if it cannot be read. */
#ifdef LEGACY
#define RD_AT(t, at) ({									\
	t v_ = 0;									\
	bpf_probe_read_kernel(&v_, sizeof(v_), (void *)(at));				\
	v_;										\
})
#else
/* A load takes a tenth of the helper's time and gives the verifier less to do. The verifier asks for a pointer to a known
 * type, so these are types that begin with a number of the right size. A smaller number is the beginning of a larger one,
 * and no member that is read here is the last of its type. */
#define RD_AT(t, at)									\
	(sizeof(t) == 8 ? (t)*(u64 *)CAST(struct timespec64, (void *)(at)) :		\
			  (t)*(u32 *)CAST(struct kref, (void *)(at)))
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the beginning of a number is its low end");
#endif
/* The member `name` of the struct at `p`. */
#define RD(t, p, name) RD_AT(t, (u64)(p) + OFF(name))
/* STILL() for a member that is read by offset. */
#define STILL_AT(p, name, object) ({			\
	u64 now_;					\
	GAP();						\
	now_ = RD(u64, p, name);			\
	barrier();					\
	now_ == (object);				\
})
/* As RD(), for a member that may not exist. */
#define RD_MAY(t, p, name) (HAVE(name) ? RD(t, p, name) : (t)0)

/* As new_encode_dev() of a dev_t in the kernel. */
static __always_inline u32 encode_dev(u32 dev)
{
	u32 major = dev >> 20, minor = dev & 0xfffff;

	return (minor & 0xff) | (major << 8) | ((minor & ~0xffu) << 12);
}

/* ---- lists ---- */

/* st.list is the place of the open list in the chunk plus one, or 0 if none is open. */
static __always_inline void close_list(void)
{
	struct task_diag_array *a;

	if (!st.list)
		return;
	a = at(st.list - 1);
	if (a) {
		a->count = st.list_n;
		a->nla.nla_len = st.off - (st.list - 1);
	}
	st.list = 0;
}

static __always_inline void open_list(u32 attr, u32 size, u32 valid)
{
	struct task_diag_array *a = here();

	if (!a)
		return;
	a->nla.nla_type = attr;
	a->valid = valid;
	a->size = size;
	a->count = 0;
	st.list = st.off + 1;
	st.list_n = 0;
	st.list_attr = attr;
	st.list_valid = valid;
	st.off += sizeof(*a);
}

/* Make sure that a list of such entries is open, with fewer than `max` entries in its attribute. */
GROUP_FN go_on_with_list(u32 attr, u32 size, u32 valid, u32 max)
{
	if (st.list_attr != attr || st.list_valid != valid || st.list_n >= max)
		close_list();
	if (!st.list)
		open_list(attr, size, valid);
	st.list_n++;
	st.list_any = 1;
	take_entry(size);
	return 0;
}

/* Where an entry of this type is made before it is known whether it belongs into the list. */
#define MADE(t) ({									\
	_Static_assert(sizeof(t) <= sizeof(st.made), "an entry has room");		\
	(t *)st.made;									\
})

/* The next entry of a list. The list is opened, or continues in another attribute, as needed. */
static __always_inline void *next_entry(u32 attr, u32 size, u32 valid)
{
	void *e;

	go_on_with_list(attr, size, valid, (TASK_DIAG_BLOB_MAX - sizeof(struct task_diag_array)) / size);
	e = here();
	st.off += size;
	return e;
}

/* End a list. An empty list is written, too, so that it differs from a missing one. */
static __always_inline void end_list(u32 attr, u32 size, u32 valid)
{
	if (!st.list_any)
		open_list(attr, size, valid);
	close_list();
}

#endif
