/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reading another process's memory without waiting for it.
 *
 * bpf_copy_from_user_task() takes the target's mmap lock and may fault its pages in: it costs a
 * microsecond, may sleep, and can wait for as long as someone holds that lock. Where the pages are
 * present, their contents are in the kernel's direct map. So the page tables are looked through
 * here, as get_user_pages_fast() and crash debuggers do, without a lock: a page that is mapped
 * at the same place before and after the copy, in an mm that the task still has, was the task's own
 * while it was copied. What is not present, or not understood, is left to the slow way.
 *
 * For x86-64 page tables. Whether they are that, and where the direct map is, is found by looking:
 * the entry for the page that the reader's own top table lies in must lead to that very page.
 */
#ifndef TASKDIAG_USERMEM_H
#define TASKDIAG_USERMEM_H

#define PTE_PRESENT	0x1ull
#define PTE_LARGE	0x80ull
/* accessed and dirty: they may change while the page stays */
#define PTE_VOLATILE	0x60ull
#define PTE_ADDRESS	0x000ffffffffff000ull
#define GIB		(1ull << 30)
/* The direct map begins on a multiple of 1 GiB, at most this many below a page table. */
#define DIRECT_MAP_MAX	4096

/* st.pt_addr in the tables below st.pt_top: its entry in st.pt_leaf, its physical address in
 * st.pt_phys. Returns 0 where no page is present. */
GROUP_FN translate(void)
{
	u64 table = st.pt_top, entry, page;
	u32 shift = st.pt_shift;

#pragma unroll
	for (int level = 0; level < 5; level++) {
		table += ((st.pt_addr >> (shift & 63)) & 511) * 8;
		/* any type of the kernel's that begins with a plain number */
		entry = CAST(struct timespec64, (void *)table)->tv_sec;
		if (!(entry & PTE_PRESENT))
			return 0;
		if (shift == 12 || (entry & PTE_LARGE && shift <= 30)) {
			page = (1ull << (shift & 63)) - 1;
			st.pt_phys = (entry & PTE_ADDRESS & ~page) | (st.pt_addr & page);
			st.pt_leaf = entry & ~PTE_VOLATILE;
			return 1;
		}
		table = st.direct_map + (entry & PTE_ADDRESS);
		shift -= 9;
	}
	return 0;
}

/* Set st.direct_map and st.pt_shift; st.direct_map stays 0 where the tables are not understood. */
static __always_inline void find_direct_map(struct task_struct *me)
{
	u64 top;
	u32 i, five;

	/* through memory: a pointer that was stored is a number when it is read */
	*(volatile u64 *)&st.pt_top = (u64)R(me, mm, pgd);
	top = *(volatile u64 *)&st.pt_top;
	if (!top)
		return;
	bpf_for(five, 0, 2) {
		bpf_for(i, 0, DIRECT_MAP_MAX) {
			st.pt_top = st.pt_addr = top;
			st.pt_shift = five ? 48 : 39;
			st.direct_map = (top & ~(GIB - 1)) - i * GIB;
			/* Not one of the kernel's addresses any more. */
			if (!(st.direct_map >> 63))
				break;
			if (translate() && st.direct_map + st.pt_phys == top)
				return;
		}
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
