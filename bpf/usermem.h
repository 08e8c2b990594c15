/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads another process's memory without waiting for it.
 *
 * The kernel's helper for this takes the target's mmap lock and may fault its pages in. It costs a microsecond, may
 * sleep, and can wait for as long as someone holds that lock. But the contents of pages that are present are in the
 * kernel's direct map. So this file walks the page tables without a lock, as get_user_pages_fast() and crash debuggers
 * do. A page that is mapped at the same place before and after the copy, in an mm that the task still has, was the
 * task's own while it was copied. A page that is not present (swapped out, say) is BLOCKED, and user space may read it
 * from /proc.
 *
 * A page table may be freed and reused while it is read here. So an entry is followed only into the machine's ordinary
 * memory (below cfg.ram_end), never to devices, and not if it is special, as entries of device memory are. Data that was
 * read through a reused table is not shown, since the second walk finds another entry.
 *
 * This is for x86-64 page tables. Two checks show whether it reads such tables, and where the direct map is: the entry
 * for the page of the reader's own top table must lead to that page, and the page where the reader has mapped `st` must
 * have the content of `st`. The first of these alone is not enough: a wrong guess takes other memory for a table, where
 * any small number can look like the entry of a page of 1 GiB.
 */
#ifndef TASKDIAG_USERMEM_H
#define TASKDIAG_USERMEM_H

#include "out.h"

#define PTE_PRESENT	0x1ull
#define PTE_LARGE	0x80ull
/* a page that is present, but whose next use shall fault (NUMA balancing); its address is inverted */
#define PTE_PROTNONE	0x100ull
/* memory that the kernel does not manage, such as that of a device */
#define PTE_SPECIAL	0x200ull
/* the accessed bit and the two dirty bits, which may change while the page stays */
#define PTE_VOLATILE	(0x60ull | 1ull << 58)
#define GIB		(1ull << 30)
/* The direct map begins on a multiple of 1 GiB, at most this many GiB below a page table. */
#define DIRECT_MAP_MAX	4096

/* Look st.pt_addr up in the tables below st.pt_top. Sets st.pt_leaf to its entry and st.pt_phys to its physical address.
 * Returns 0 if no page of ordinary memory is there. */
GROUP_FN translate(void)
{
	u64 table = st.pt_top, entry = 0, page = 0, phys, inverted;

	/* Only tables of five levels have the first of these. Each level has code of its own, because with an unknown shift the
	 * verifier would also assume the shift of the last level. */
#pragma unroll
	for (int shift = 48; shift >= 12; shift -= 9) {
		if (shift == 48 && st.pt_shift != 48)
			continue;
		table += (st.pt_addr >> shift & 511) * 8;
		/* Any kernel type that begins with a number of 64 bits will do. */
		entry = R(CAST(struct timespec64, (void *)table), tv_sec);
		page = (1ull << shift) - 1;
		if (shift == 12)
			break;
		if (!(entry & PTE_PRESENT))
			return 0;
		if (shift <= 30 && entry & PTE_LARGE)
			break;
		phys = entry & cfg.pte_address;
		if (phys >= cfg.ram_end)
			return 0;
		table = st.direct_map + phys;
	}
	/* Only an entry of the last level can be not present here. */
	if (!(entry & (PTE_PRESENT | PTE_PROTNONE)) || entry & PTE_SPECIAL)
		return 0;
	inverted = (entry & PTE_PRESENT) - 1;
	barrier_var(inverted);
	phys = (entry ^ inverted) & cfg.pte_address;
	if (phys >= cfg.ram_end)
		return 0;
	st.pt_phys = (phys & ~page) | (st.pt_addr & page);
	st.pt_leaf = entry & ~PTE_VOLATILE;
	return st.pt_phys < cfg.ram_end;
}

/* Is the direct map this many GiB below the reader's top table? */
GROUP_FN try_direct_map(u32 below)
{
	u64 top = st.arg, begin = 0;

	st.pt_top = st.pt_addr = top;
	st.pt_shift = st.five_levels ? 48 : 39;
	st.direct_map = (top & ~(GIB - 1)) - below * GIB;
	if (!translate() || st.direct_map + st.pt_phys != top)
		return 0;
	/* No other memory has this start time at this place. */
	st.pt_addr = st.own + __builtin_offsetof(struct state, begin);
	if (!translate() || bpf_probe_read_kernel(&begin, sizeof(begin), (void *)(st.direct_map + st.pt_phys)))
		return 0;
	return begin == st.begin;
}

/* Returns 1 at the end of the search, and at an address that is not the kernel's any more. */
GROUP_FN direct_map_at(u32 below)
{
	st.n = try_direct_map(below);
	return st.n || !(st.direct_map >> 63);
}

STEP_OF(direct_map_step, below, direct_map_at(below))
TURNS(direct_map_step)

/* Set st.direct_map and st.pt_shift. st.direct_map is 0 afterwards if the tables are not understood. */
static __always_inline void find_direct_map(struct task_struct *me)
{
	u32 five;

	/* Go through memory: the verifier treats a pointer that was stored and read back as a number. */
	*(volatile u64 *)&st.arg = (u64)R(me, mm, pgd);
	if (!st.arg || !cfg.ram_end)
		return;
#pragma unroll
	for (five = 0; five < 2; five++) {
		st.five_levels = five;
		LONG_LOOP(DIRECT_MAP_MAX, DIRECT_MAP_MAX, direct_map_step);
		/* That may have taken long, so the next check of the time reads the clock. */
		is_late(255);
		if (st.n)
			return;
	}
	st.direct_map = 0;
}

/* Copy n bytes that do not cross a page. */
static __always_inline bool copy_user_page(void *to, u32 n, u64 from)
{
	u64 leaf;

	st.pt_addr = from;
	if (!translate())
		return false;
	leaf = st.pt_leaf;
	if (bpf_probe_read_kernel(to, n, (void *)(st.direct_map + st.pt_phys)))
		return false;
	return translate() && st.pt_leaf == leaf;
}

#endif
