// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * How often MADV_PAGEOUT leaves pages of a shmem object in memory, and whether
 * smaps has what cachestat(2) counts: 128 pages, one every 4 MB of an object of 512
 * MB, are put into swap through a private writable mapping.
 *
 *	free	the process runs where it is put
 *	moved	it is moved to the other processor while it fills the object
 *	pinned	it stays on a processor
 *
 *	case:few<TAB>rounds<TAB>rounds that left pages in memory
 *	case:left<TAB>rounds<TAB>the most pages that a round left
 *	case:differ<TAB>rounds<TAB>rounds in which smaps and cachestat differed
 *
 * Needs two processors and swap. usage: pageout [rounds]
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define STRIDE (2UL << 20)
#define LEN (512UL << 20)

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int c = 0; c < 2; c++)
		if (cpu < 0 || c == cpu)
			CPU_SET(c, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		exit(1);
}

static void *map(int flags, int fd)
{
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (p == MAP_FAILED)
		exit(1);
	madvise(p, LEN, MADV_NOHUGEPAGE);
	return p;
}

/* In pages. */
static long smaps_swap(const void *addr)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	char line[512];
	long kb = -1;
	int in = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = start == (unsigned long)addr;
		if (in && sscanf(line, "Swap: %ld", &kb) == 1)
			break;
	}
	fclose(f);
	return kb * 1024 / (long)PAGE;
}

static long evicted(int fd)
{
	unsigned long range[2] = { 0, 0 }, stat[5];

	if (syscall(451, fd, range, stat, 0))
		exit(4);
	return stat[3];
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "free", "moved", "pinned" };
	int rounds = argc > 1 ? atoi(argv[1]) : 100;

	for (int mode = 0; mode < 3; mode++) {
		long few = 0, differ = 0, most = 0, want = LEN / STRIDE / 2, left;

		for (int r = 0; r < rounds; r++) {
			int fd = memfd_create("pageout", 0);
			char *p;

			if (fd < 0 || ftruncate(fd, LEN))
				return 1;
			stay_on(mode ? r & 1 : -1);
			p = map(MAP_SHARED, fd);
			for (size_t i = 0; i < LEN; i += STRIDE) {
				if (mode == 1 && i == LEN / 2)
					stay_on(!(r & 1));
				p[i] = 1;
			}
			munmap(p, LEN);
			p = map(MAP_PRIVATE, fd);
			for (size_t i = 0; i < LEN; i += STRIDE)
				(void)*(volatile char *)(p + i);
			for (size_t i = 0; i < LEN; i += 2 * STRIDE)
				madvise(p + i, PAGE, MADV_PAGEOUT);
			for (size_t i = 0; i < LEN; i += STRIDE)
				p[i + STRIDE / 2 + PAGE] = 2;
			left = want - evicted(fd);
			few += left > 0;
			most = left > most ? left : most;
			differ += want - left != smaps_swap(p);
			munmap(p, LEN);
			close(fd);
		}
		printf("%s:few\t%d\t%ld\n", names[mode], rounds, few);
		printf("%s:left\t%d\t%ld\n", names[mode], rounds, most);
		printf("%s:differ\t%d\t%ld\n", names[mode], rounds, differ);
		fflush(stdout);
	}
	return 0;
}
