/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reading another process's memory without waiting for it.
 *
 * A helper that does so takes the target's mmap lock and may fault its pages in: it costs a microsecond, may
 * sleep, and can wait for as long as someone holds that lock. Where the pages are present, their contents are
 * in the kernel's direct map. So the page tables are looked through here, as get_user_pages_fast() and crash
 * debuggers do, without a lock: a page that is mapped at the same place before and after the copy, in an mm
 * that the task still has, was the task's own while it was copied. A page that is not present (swapped out, say)
 * is BLOCKED, and user space may read it from /proc.
 *
 * A page table may be freed and used for something else while it is read here. So what an entry leads to is
 * read only if it lies in the machine's ordinary memory (cfg.ram_end), not where devices are, and not if the
 * entry is special, as those of device memory are. What was read by way of such a table is not shown, since the
 * second look finds another entry.
 *
 * For x86-64 page tables. Whether they are that, and where the direct map is, is found by looking: the entry
 * for the page that the reader's own top table lies in must lead to that very page.
 */
#ifndef TASKDIAG_USERMEM_H
#define TASKDIAG_USERMEM_H

#define PTE_PRESENT	0x1ull
#define PTE_LARGE	0x80ull
/* a page that is there, but whose next use is to be noticed (NUMA balancing); its address is inverted */
#define PTE_PROTNONE	0x100ull
/* no memory that the kernel looks after: of a device, say */
#define PTE_SPECIAL	0x200ull
/* accessed and dirty, the latter in two places: they may change while the page stays */
#define PTE_VOLATILE	(0x60ull | 1ull << 58)
#define GIB		(1ull << 30)
/* The direct map begins on a multiple of 1 GiB, at most this many below a page table. */
#define DIRECT_MAP_MAX	4096

/* st.pt_addr in the tables below st.pt_top: its entry in st.pt_leaf, its physical address in
 * st.pt_phys. Returns 0 where no page of ordinary memory is there. */
GROUP_FN translate(void)
{
	u64 table = st.pt_top, entry, page, phys;
	u32 shift = st.pt_shift;

#pragma unroll
	for (int level = 0; level < 5; level++) {
		table += ((st.pt_addr >> (shift & 63)) & 511) * 8;
		/* any type of the kernel's that begins with a plain number */
		entry = R(CAST(struct timespec64, (void *)table), tv_sec);
		phys = entry;
		if (!(entry & PTE_PRESENT)) {
			if (shift != 12 || !(entry & PTE_PROTNONE))
				return 0;
			phys = ~entry;
		}
		phys &= cfg.pte_address;
		if (phys >= cfg.ram_end)
			return 0;
		if (shift == 12 || (entry & PTE_LARGE && shift <= 30)) {
			if (entry & PTE_SPECIAL)
				return 0;
			page = (1ull << (shift & 63)) - 1;
			st.pt_phys = (phys & ~page) | (st.pt_addr & page);
			st.pt_leaf = entry & ~PTE_VOLATILE;
			return st.pt_phys < cfg.ram_end;
		}
		table = st.direct_map + phys;
		shift -= 9;
	}
	return 0;
}

/* Is the direct map this many GiB below the reader's top table? */
GROUP_FN try_direct_map(u32 below)
{
	u64 top = st.arg;

	st.pt_top = st.pt_addr = top;
	st.pt_shift = st.five_levels ? 48 : 39;
	st.direct_map = (top & ~(GIB - 1)) - below * GIB;
	return translate() && st.direct_map + st.pt_phys == top;
}

static long direct_map_step(u32 below, void *unused)
{
	u32 found = try_direct_map(below);

	(void)unused;
	barrier_var(found);
	st.n = found & 1;
	/* not one of the kernel's addresses any more */
	return (found & 1) || !(st.direct_map >> 63);
}

/* Set st.direct_map and st.pt_shift; st.direct_map stays 0 where the tables are not understood. */
static __always_inline void find_direct_map(struct task_struct *me)
{
	u32 five;

	/* through memory: a pointer that was stored is a number when it is read */
	*(volatile u64 *)&st.arg = (u64)R(me, mm, pgd);
	if (!st.arg || !cfg.ram_end)
		return;
#pragma unroll
	for (five = 0; five < 2; five++) {
		st.five_levels = five;
		bpf_loop(DIRECT_MAP_MAX, direct_map_step, NULL, 0);
		if (st.n)
			return;
	}
	st.direct_map = 0;
}

/* Copy what does not cross a page. */
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
