/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How much of each text is written. Any user can have any number of processes
 * with megabytes of arguments each, at no cost, because fork() shares them. So
 * there is a limit for each text, and one for the answer, which users share:
 * a user gets whole texts as long as what is left for all others is more than
 * what that user has had already. Of further texts, a part is written. So one
 * user can never use up the room, and others' arguments stay whole.
 *
 * engine/room.rs is the same for the engines in user space.
 */
#ifndef TASKDIAG_ROOM_H
#define TASKDIAG_ROOM_H

/* Set st.cmd_limit to how many bytes of a text of st.len bytes are written for this task. */
GROUP_FN find_room(void)
{
	u32 uid = R(THIS, real_cred, uid.val), place, want = st.len;
	u64 left, of;

	if (want > cfg.text_max)
		want = cfg.text_max;
	/* Nobody shares the place of root. */
	place = uid ? 1 + uid % (USERS_MAX - 1) : 0;
	/* The compiler knows that this is small enough, but the verifier does not. */
	barrier_var(place);
	place &= USERS_MAX - 1;
	of = st.text_used_by[place];
	left = cfg.text_total > st.text_used ? cfg.text_total - st.text_used : 0;
	if (of + want > left) {
		if (want > TEXT_SMALL)
			want = TEXT_SMALL;
		if (of / 2 > left && want > TEXT_LEAST)
			want = TEXT_LEAST;
	}
	st.text_used_by[place] = of + want;
	st.text_used += want;
	st.cmd_limit = want;
	return 0;
}

#endif
