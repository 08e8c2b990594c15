/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * NS and CGROUP, which take many types of the kernel to read. So they are not
 * in every program.
 */
#ifndef TASKDIAG_RARE_H
#define TASKDIAG_RARE_H

#include "out.h"
#include "shared.h"

#ifndef NO_RARE

/* ---- NS ---- */

#define NSPID_MAX 33
/* How often the cgroups of a task are read if it moves meanwhile. */
enum { CGROUP_TRIES = 4 };

GROUP_FN put_ns(void)
{
	struct task_struct *t = THIS;
	struct task_diag_ns *a = here();
	struct nsproxy *ns = R(t, nsproxy);
	/* The namespaces may be those of a living thread (to_memory()), but the ids are those of the task. */
	struct pid *pid = R(CAST(struct task_struct, (void *)st.own_task), thread_pid);
	struct task_diag_blob *b;
	struct cgroup_namespace *cgroup;
	struct ipc_namespace *ipc;
	struct mnt_namespace *mnt;
	struct net *net;
	struct pid_namespace *children, *pidns;
	struct time_namespace *time, *time_for_children;
	struct uts_namespace *uts;
	struct upid u;
	u32 i, from = LEVEL, levels, n;
	bool has;

	if (!a || !pid)
		return 0;
	PUT(a, TASK_DIAG_NS);
	levels = R(pid, level);
	if (levels >= NSPID_MAX)
		levels = NSPID_MAX - 1;
	cgroup = R(ns, cgroup_ns);
	ipc = R(ns, ipc_ns);
	mnt = R(ns, mnt_ns);
	net = R(ns, net_ns);
	children = R(ns, pid_ns_for_children);
	time = R(ns, time_ns);
	time_for_children = R(ns, time_ns_for_children);
	uts = R(ns, uts_ns);
	/* An nsproxy is freed at once, so its members are used only if it is still the task's. */
	has = STILL(t, nsproxy, ns) && ns;
	a->cgroup = has ? R(cgroup, ns.inum) : 0;
	a->ipc = has ? R(ipc, ns.inum) : 0;
	a->mnt = has ? R(mnt, ns.inum) : 0;
	a->net = has ? R(net, ns.inum) : 0;
	a->pid_for_children = has ? R(children, ns.inum) : 0;
	a->time = has ? R(time, ns.inum) : 0;
	a->time_for_children = has ? R(time_for_children, ns.inum) : 0;
	a->uts = has ? R(uts, ns.inum) : 0;
	a->user = R(t, real_cred, user_ns, ns.inum);
	/* Some of them are freed at once before Linux 6.18, so the numbers count only if the task still has the nsproxy. */
	has = STILL(t, nsproxy, ns) && has;
	/* A zombie has only its pid and user namespaces left. */
	a->valid = has ? ALL_OF(NS) : 1 << NS_PID | 1 << NS_USER;
	if (!has)
		a->cgroup = a->ipc = a->mnt = a->net = a->pid_for_children = a->time = a->time_for_children = a->uts = 0;
	is_late(8);
	a->pid = 0;
	b = begin_blob();
	if (!b)
		return 0;
	st.n = 0;
	EACH(i, from, levels + 1, NSPID_MAX) {
		n = st.n & 63;
		if (bpf_probe_read_kernel(&u, sizeof(u), (char *)pid +
				__builtin_preserve_field_info(((struct pid *)0)->numbers,
							      BPF_FIELD_BYTE_OFFSET) +
				i * sizeof(u)))
			break;
		((u32 *)b->data)[n] = u.nr;
		st.n = n + 1;
		pidns = CAST(struct pid_namespace, u.ns);
		a->pid = R(pidns, ns.inum);
	}
	n = (st.n & 63) * 4;
	end_blob(b, TASK_DIAG_A_NSPID, 0, n, 0, n, 0, 0);
	return 0;
}

/* ---- CGROUP ---- */

static __always_inline struct kernfs_node *kn_parent(struct kernfs_node *kn)
{
	struct kernfs_node___parent *old = (void *)kn;

	if (bpf_core_field_exists(old->parent))
		return R(old, parent);
	return R(kn, __parent);
}

/* Append a NUL-terminated kernel string of up to `max` bytes to text at st.len. */
#define APPEND(text, mask, max, from) do {						\
	long n_ = bpf_probe_read_kernel_str((text) + (st.len & (mask)), max, from);	\
	if (n_ > 0)									\
		st.len += n_ - 1;							\
} while (0)

/* Make the name of a hierarchy: "cpu,cpuacct:", "name=systemd:" or, for v2, ":". */
GROUP_FN name_hierarchy(u32 id)
{
	struct hierarchy *h = &st.hierarchy[id & (HIERARCHIES_MAX - 1)];
	struct cgroup_root *root = R(CAST(struct cgroup, (void *)st.arg), root);
	/* A removed group has no controllers any more, but the root of its hierarchy has them all. */
	struct cgroup *top = &root->cgrp;
	u32 i, mask = R(root, subsys_mask);
	char name[2];

	st.len = 0;
	EACH(i, 0, 16, 16) {
		struct cgroup_subsys_state *css;

		if (!id || !(mask & (1 << i)) ||
		    bpf_probe_read_kernel(&css, sizeof(css), (char *)&top->subsys + i * 8) || !css)
			continue;
		if (st.len)
			h->text[st.len++ & 0x3f] = ',';
		APPEND(h->text, 0x3f, 32, R(CAST(struct cgroup_subsys_state, css), ss, legacy_name));
	}
	if (id && bpf_probe_read_kernel_str(name, sizeof(name), &root->name) > 1) {
		if (st.len)
			h->text[st.len++ & 0x3f] = ',';
		__builtin_memcpy(h->text + (st.len & 0x3f), "name=", 5);
		st.len += 5;
		APPEND(h->text, 0x3f, 48, &root->name);
	}
	h->text[st.len & 0x7f] = ':';
	h->len = (st.len & 0x7f) + 1;
	return 0;
}

/* Write the path of a cgroup, after the controllers of its hierarchy. The path begins at the real root, so the engine
 * does not offer this group to a reader in a cgroup namespace. */
GROUP_FN put_cgroup_path(u32 id, u32 exiting)
{
	struct task_diag_blob *b;
	struct hierarchy *h = &st.hierarchy[id & (HIERARCHIES_MAX - 1)];
	struct cgroup *cg = CAST(struct cgroup, (void *)st.arg);
	u32 i, depth, cut = 0;
	u64 kn = (u64)R(cg, kn);
	char *data;

	if (id && cfg.skip_cgroup_roots && (exiting || !kn || !kn_parent(CAST(struct kernfs_node, (void *)kn))))
		return 0;
	spill();
	b = begin_blob();
	if (!b)
		return 0;
	data = b->data;
	bpf_probe_read_kernel(data, sizeof(h->text), h->text);
	st.len = h->len;
	st.n = 0;
	EACH(i, 0, 32, 32) {
		struct kernfs_node *up = kn ? kn_parent(CAST(struct kernfs_node, (void *)kn)) : NULL;

		if (!up)
			break;
		st.kn[st.n++ & 31] = kn;
		kn = (u64)up;
	}
	if (exiting && id != 0)
		st.n = 0;
	depth = st.n;
	if (depth == 0)
		data[st.len++ & 0x1fff] = '/';
	EACH(i, 0, depth, 32) {
		u64 p = st.kn[(depth - 1 - i) & 31];

		/* A directory of cgroups may have a name of up to 4095 bytes, and /proc has no longer path. */
		if (st.len >= 0xfff) {
			cut = TASK_DIAG_BLOB_CUT;
			break;
		}
		data[st.len++ & 0x1fff] = '/';
		APPEND(data, 0xfff, 4096, R(CAST(struct kernfs_node, (void *)p), name));
	}
	if (id == 0 && !(R(cg, self.flags) & CSS_ONLINE)) {
		__builtin_memcpy(data + (st.len & 0x1fff), " (deleted)", 10);
		st.len += 10;
	}
	is_late(4 + 2 * depth);
	/* There are more components above the written ones. */
	if (kn && kn_parent(CAST(struct kernfs_node, (void *)kn)))
		cut = TASK_DIAG_BLOB_CUT;
	end_blob(b, TASK_DIAG_A_CGROUP_PATH, id, st.len & 0x3fff, 0, st.len & 0x3fff, cut, 0);
	return 0;
}

/* The cgroup of a link between the task's css_set st.set and its cgroups, or 0 if the task has moved meanwhile. Links are
 * freed at once, so a link and its members are followed only if the task still has the set. */
static __always_inline struct cgroup *cgroup_of_link(struct task_struct *t, struct css_set *set, struct list_head *pos)
{
	struct cgrp_cset_link *l = CAST(struct cgrp_cset_link, (char *)pos -
		__builtin_preserve_field_info(((struct cgrp_cset_link *)0)->cgrp_link, BPF_FIELD_BYTE_OFFSET));
	struct cgroup *cg;

	if (!STILL(t, cgroups, set))
		return NULL;
	cg = R(l, cgrp);
	return STILL(t, cgroups, set) ? cg : NULL;
}

#ifndef LEGACY

/* A longer text is not copied. */
enum { SET_MAX = 0x3fff };

/* A set may be in one of so many places, or two sets of the same place would be made again and again in turn. */
enum { SET_PLACES = 4 };

/* Is what an entry has of a set still in the chunks? */
static __always_inline bool is_kept(struct written_set *w)
{
	return w->made >= st.first_slice && w->made >= st.empty_slice;
}

/* The place of the css_set st.set: its own if it has one, else one that is free, else that of another set. */
GROUP_FN find_set(void)
{
	u32 i, h = mix(st.set);

#pragma unroll
	for (i = 0; i < SET_PLACES; i++)
		if (st.sets[(h + i) & (SETS_MAX - 1)].set == st.set)
			return (h + i) & (SETS_MAX - 1);
#pragma unroll
	for (i = 0; i < SET_PLACES; i++)
		if (!is_kept(&st.sets[(h + i) & (SETS_MAX - 1)]))
			return (h + i) & (SETS_MAX - 1);
	return h & (SETS_MAX - 1);
}

/* The entry at st.set_place. The compiler knows what find_set() returns, and would leave out the bounds that the verifier needs. */
static __always_inline struct written_set *set_entry(void)
{
	u32 place = st.set_place;

	barrier_var(place);
	return &st.sets[place & (SETS_MAX - 1)];
}

/* Mix the ids of the cgroups of the css_set st.set. Returns 0 if the task has moved meanwhile. The id of a cgroup never becomes
 * that of another one. So two sets at the same address, one after the other, differ in one. */
GROUP_FN ids_of_set(void)
{
	struct task_struct *t = THIS;
	struct css_set *set = CAST(struct css_set, (void *)st.set);
	struct list_head *head = &set->cgrp_links, *pos = R(head, prev);
	u32 i;

	st.set_ids = 0;
	EACH(i, 0, HIERARCHIES_MAX, HIERARCHIES_MAX) {
		struct cgroup *cg;

		if (pos == head)
			break;
		cg = cgroup_of_link(t, set, pos);
		if (!cg)
			return 0;
		st.set_ids = mix(st.set_ids + R(cg, kn, id));
		pos = R(CAST(struct list_head, pos), prev);
	}
	is_late(8);
	return STILL(t, cgroups, set);
}

/*
 * Copies the cgroups of the css_set st.set from a message that is still in the chunks. Returns 0 if there is none. During a run
 * no other set can be at its address, because its memory is freed under RCU. Since an earlier run another one can be, so the
 * ids of its cgroups are compared once in each run.
 */
GROUP_FN copy_cgroups(void)
{
	struct written_set *w;
	u32 chunk, off, len;
	char *from, *to;

	st.set_place = find_set();
	w = set_entry();
	chunk = w->chunk;
	off = w->off;
	len = w->len & SET_MAX;
	if (w->set != st.set || !is_kept(w))
		return 0;
	if (w->slice != st.slice) {
		if (!ids_of_set() || st.set_ids != w->ids)
			return 0;
		w->slice = st.slice;
	}
	spill();
	from = bpf_map_lookup_elem(&out, &chunk);
	to = here();
	if (!from || !to || bpf_probe_read_kernel(to, len, from + (off & (CHUNK_SPAN - 1))))
		return 0;
	st.off += len;
	is_late(2);
	return 1;
}

static __always_inline void remember_cgroups(u32 chunk, u32 off)
{
	struct written_set *w = set_entry();

	if (st.chunk != chunk || st.off - off > SET_MAX)
		return;
	if (!ids_of_set())
		return;
	w->set = st.set;
	w->ids = st.set_ids;
	w->made = w->slice = st.slice;
	w->chunk = chunk;
	w->off = off;
	w->len = st.off - off;
}

#else

/* Here, others run between two tasks, so a new set may have the address of one that is gone. */
static int copy_cgroups(void) { return 0; }
static void remember_cgroups(u32 chunk, u32 off) { (void)chunk; (void)off; }

#endif

/* Write the paths of the cgroups of the task's css_set. Returns 0 if the task has moved to others meanwhile: the links
 * between a set and its cgroups are freed at once, so what was written may be wrong. */
GROUP_FN put_cgroups_of_set(void)
{
	struct task_struct *t = THIS;
	struct task_diag_cgroup *a;
	struct css_set *set = R(t, cgroups);
	u32 exiting = R(t, flags) & PF_EXITING;
	struct list_head *head, *pos;
	u32 i, chunk, off;

	/* The paths of a task that ends differ from those of its set. */
	st.set = (u64)set;
	if (!exiting && copy_cgroups())
		return 1;
	chunk = st.chunk;
	off = st.off;
	a = here();
	if (!a || !set)
		return 1;
	PUT(a, TASK_DIAG_CGROUP);
	a->valid = ALL_OF(CGROUP);
	a->id = R(set, dfl_cgrp, kn, id);
	head = &set->cgrp_links;
	/* Go backwards, which is the order of /proc/PID/cgroup. */
	pos = R(head, prev);
	EACH(i, 0, HIERARCHIES_MAX, HIERARCHIES_MAX) {
		struct cgroup *cg;
		u32 id;

		if (pos == head)
			break;
		cg = cgroup_of_link(t, set, pos);
		if (!cg)
			return 0;
		id = cg == R(set, dfl_cgrp) ? 0 : R(cg, root, hierarchy_id);
		if (id < HIERARCHIES_MAX) {
			st.arg = (u64)cg;
			if (!st.hierarchy[id].len)
				name_hierarchy(id);
			put_cgroup_path(id, exiting);
		}
		pos = R(CAST(struct list_head, pos), prev);
	}
	if (!STILL(t, cgroups, set))
		return 0;
	if (!exiting)
		remember_cgroups(chunk, off);
	return 1;
}

GROUP_FN put_cgroup(void)
{
	u32 off = st.off, chunk = st.chunk, msg = st.msg, try, i;

	EACH(try, 0, CGROUP_TRIES, CGROUP_TRIES) {
		if (put_cgroups_of_set())
			return 0;
		/* Take back the paths that were written. */
		st.chunk = chunk;
		st.off = off;
		st.msg = msg;
		/* The names of hierarchies may be of hierarchies that are gone, too. */
		EACH(i, 0, HIERARCHIES_MAX, HIERARCHIES_MAX)
			st.hierarchy[i & (HIERARCHIES_MAX - 1)].len = 0;
	}
	missing(TASK_DIAG_CGROUP, TASK_DIAG_R_VANISHED);
	return 0;
}

#else

static int put_ns(void) { return 0; }
static int put_cgroup(void) { return 0; }

#endif /* NO_RARE */

#endif
