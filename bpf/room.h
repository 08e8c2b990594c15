/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How much of each text, and how many entries of each list are written. Any
 * user can have any number of processes with megabytes of arguments each, at
 * no cost, because fork() shares them. So there is a limit for each text, and
 * one for the answer, which users share: a user gets whole texts while the room that is
 * left for all others is larger than the room that this user has taken. Further texts
 * are written in part. So one user can never use up the room, and others' arguments
 * stay whole. The part that each task always gets does not count. Lists and names have
 * a room of their own.
 *
 * engine/room.rs does the same for the engines in user space.
 */
#ifndef TASKDIAG_ROOM_H
#define TASKDIAG_ROOM_H

#include "out.h"

/* Set st.place to the place of this task's user. No user shares the place of root. */
GROUP_FN find_user(void)
{
	u32 uid = R(THIS, real_cred, uid.val);

	st.place = uid ? 1 + uid % (USERS_MAX - 1) : 0;
	return 0;
}

/* What the user of the current task has had. The compiler knows that the place is small enough, but the verifier does not. */
#define USED_BY(room) (*({							\
	u32 place_ = st.place;							\
	barrier_var(place_);							\
	&(room).used_by[place_ & (USERS_MAX - 1)];				\
}))

/* Set st.cmd_limit to how many bytes of a text of st.len bytes are written for this task. */
GROUP_FN find_room(void)
{
	u64 left, of = USED_BY(st.texts);
	u32 want = st.len;

	if (want > cfg.text_max)
		want = cfg.text_max;
	left = cfg.text_total > st.texts.used ? cfg.text_total - st.texts.used : 0;
	if (of + want > left) {
		if (want > TEXT_SMALL)
			want = TEXT_SMALL;
		if (of / 2 > left && want > TEXT_LEAST)
			want = TEXT_LEAST;
	}
	st.cmd_limit = want;
	if (want > TEXT_LEAST) {
		USED_BY(st.texts) = of + want;
		st.texts.used += want;
	}
	return 0;
}

#ifndef NO_MORE

/* Count this many bytes of a list or a name. */
static __always_inline void take_room(u32 bytes)
{
	st.lists.used += bytes;
	USED_BY(st.lists) += bytes;
}

/* Has the user of the current task had as much of lists and names as is left for all others? */
static __always_inline bool is_full(void)
{
	u64 left = cfg.list_total > st.lists.used ? cfg.list_total - st.lists.used : 0;

	return USED_BY(st.lists) >= left;
}

/* Is there no room for more of the current list? */
GROUP_FN list_is_full(void)
{
	if (st.list_count < LIST_LEAST || !is_full())
		return 0;
	st.list_cut = 1;
	return 1;
}

/* Count an entry of a list. This and name_room() are inline because the verifier allows no more than 8 frames. */
static __always_inline void take_entry(u32 size)
{
	if (++st.list_count > LIST_LEAST)
		take_room(size);
}

/* How much of the name or path in st.text, of st.len bytes, is written. The flags are those of its blob. */
static __always_inline u32 name_room(u32 *flags)
{
	u32 len = st.len & (TEXT_SPAN - 1);

	if (len > NAME_LEAST && is_full()) {
		*flags |= TASK_DIAG_BLOB_CUT;
		st.is_cut = 1;
		return NAME_LEAST;
	}
	if (len > NAME_LEAST || st.list_count > LIST_LEAST)
		take_room(sizeof(struct task_diag_blob) + len);
	return len;
}

#endif

#endif
