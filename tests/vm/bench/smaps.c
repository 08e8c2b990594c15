// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The cost of smaps for mappings of a swapped shmem object: the four mappings of the 2015 mail on
 * smaps, and denser ones.
 *
 * A child owns nothing but the mapping, as the mail's program did; this program reads the child's
 * smaps repeatedly. All cases are set up first and then read in turn, so that a disturbance falls
 * on all of them alike. One page in every 2 MB is touched. Needs swap (it does not turn it on), and
 * prints
 *
 *	case<TAB>reads<TAB>value_ns	median time of one read of smaps
 *	case:percent<TAB>reads<TAB>value	of the time for anonymous memory
 *	case:swap<TAB>reads<TAB>bytes	what smaps said, to compare kernels by
 *
 * It fails if smaps shows another amount than was put into swap.
 *
 * anon           private anonymous memory: the yardstick
 * shared         shared, nothing of the object is in swap
 * shared_whole   shared, the whole of an object, half of whose pages are in swap
 * shared_swap    shared, all but one page of such an object
 * private_ro     private and read-only, all but one page of such an object
 * private_swap   private and writable, with copied pages, of such an object
 * dense_*        the same, an eighth as large, of an object that has every page,
 *                and every second one in swap
 *
 * usage: smaps [reads [MB]]
 * lab: instructions 21
 * lab: uml 100 2048
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define STRIDE (2UL << 20)

enum kind { ANON, SHARED, PRIVATE_RO, PRIVATE };

static const struct test {
	const char *name;
	enum kind kind;
	int swap;	/* put half of the object's pages into swap */
	int whole;	/* map the whole object, not all but a page */
	int dense;	/* the object has every page */
} tests[] = {
	{ "anon", ANON, 0, 1, 0 },
	{ "shared", SHARED, 0, 1, 0 },
	{ "shared_whole", SHARED, 1, 1, 0 },
	{ "shared_swap", SHARED, 1, 0, 0 },
	{ "private_ro", PRIVATE_RO, 1, 0, 0 },
	{ "private_swap", PRIVATE, 1, 1, 0 },
	{ "dense_anon", ANON, 0, 1, 1 },
	{ "dense_shared", SHARED, 1, 0, 1 },
	{ "dense_private", PRIVATE, 1, 1, 1 },
};
#define DENSE_ANON 6
#define TESTS (sizeof(tests) / sizeof(tests[0]))

static void die(const char *what)
{
	fprintf(stderr, "smaps: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *map(size_t len, int prot, int flags, int fd)
{
	void *p = mmap(NULL, len, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	/* Huge pages would leave nothing to read. */
	if (madvise(p, len, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("MADV_NOHUGEPAGE");
	return p;
}

/* An object of len bytes with one page per stride, or all. */
static int object(const struct test *t, size_t len)
{
	int fd = memfd_create("bench", 0);

	if (fd < 0 || ftruncate(fd, len))
		die("memfd");
	/* Written without a mapping: the mapping to be read would get the page tables of an earlier one,
	 * in another order. */
	for (size_t i = 0; i < len; i += t->dense ? PAGE : STRIDE)
		if (pwrite(fd, "", 1, i) != 1)
			die("pwrite");
	return fd;
}

/* Put every second page of the object that is in the mapping into swap. */
static void swap_out(const struct test *t, char *p, size_t len)
{
	size_t step = t->dense ? PAGE : STRIDE;

	for (size_t i = 0; i < len; i += step)
		(void)*(volatile char *)(p + i);
	for (size_t i = 0; i < len; i += 2 * step)
		if (madvise(p + i, PAGE, MADV_PAGEOUT))
			die("MADV_PAGEOUT");
}

/* The amount that smaps must show then. Nothing of it is copied, or read again. */
static unsigned long swapped(const struct test *t, size_t len)
{
	size_t step = t->dense ? PAGE : STRIDE;
	size_t mapped = t->whole ? len : len - PAGE;

	return t->swap ? (mapped + 2 * step - 1) / (2 * step) * PAGE : 0;
}

/*
 * MADV_PAGEOUT leaves out pages that wait in a batch of another processor to be
 * put on the LRU list: stay on the one that we are on.
 */
static void stay_here(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static void child(const struct test *t, size_t len, int ready)
{
	int fd = t->kind == ANON ? -1 : object(t, len);
	size_t mapped = t->whole ? len : len - PAGE;
	char *p = map(mapped, t->kind == PRIVATE_RO ? PROT_READ : PROT_READ | PROT_WRITE,
		      t->kind == ANON ? MAP_PRIVATE | MAP_ANONYMOUS :
		      t->kind == SHARED ? MAP_SHARED : MAP_PRIVATE, fd);

	if (t->swap)
		swap_out(t, p, mapped);
	/* As many pages as a dense mapping of an object has left after that. */
	for (size_t i = 0; t->kind == ANON && t->dense && i < len; i += 2 * PAGE)
		p[i] = 2;
	/*
	 * Then dirty a page of every stride. For a private mapping it is an odd page, half a stride
	 * further, so that the pages in swap stay there.
	 */
	for (size_t i = 0; i < mapped; i += STRIDE) {
		if (t->kind == ANON || (t->kind == SHARED && !t->swap))
			p[i] = 2;
		else if (t->kind == PRIVATE)
			p[i + STRIDE / 2 + PAGE] = 2;
	}
	if (write(ready, "", 1) != 1)
		die("write");
	for (;;)
		pause();
}

static char buf[1 << 16];

/* Time to read the whole file; the sum of its Swap lines in *swap. */
static long read_smaps(const char *path, unsigned long *swap)
{
	struct timespec a, b;
	size_t have = 0;
	ssize_t n;
	int fd;

	clock_gettime(CLOCK_MONOTONIC, &a);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		die(path);
	while ((n = read(fd, buf + have, sizeof(buf) - 1 - have)) > 0)
		have += n;
	if (n < 0)
		die(path);
	close(fd);
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (have == sizeof(buf) - 1)
		die("smaps longer than expected");
	buf[have] = 0;
	*swap = 0;
	for (char *s = buf; (s = strstr(s, "\nSwap:")); s++)
		*swap += strtoul(s + 6, NULL, 10) * 1024;
	return (b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int reads = argc > 1 ? atoi(argv[1]) : 100;
	size_t len = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1024) << 20;
	long *ns[TESTS];
	pid_t pids[TESTS];
	unsigned long swap[TESTS];
	char path[64], byte;

	if (reads < 1 || len < 16 * STRIDE) {
		fprintf(stderr, "usage: smaps [reads [MB]]\n");
		return 2;
	}
	for (unsigned int t = 0; t < TESTS; t++) {
		int pipefd[2];

		ns[t] = calloc(reads, sizeof(long));
		if (pipe(pipefd))
			die("pipe");
		pids[t] = fork();
		if (pids[t] < 0 || !ns[t])
			die("fork");
		if (!pids[t]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			stay_here();
			child(&tests[t], tests[t].dense ? len / 8 : len, pipefd[1]);
		}
		close(pipefd[1]);
		if (read(pipefd[0], &byte, 1) != 1) {
			fprintf(stderr, "smaps: %s could not be set up\n", tests[t].name);
			return 1;
		}
		close(pipefd[0]);
	}
	for (int r = 0; r < reads; r++)
		for (unsigned int t = 0; t < TESTS; t++) {
			snprintf(path, sizeof(path), "/proc/%d/smaps", pids[t]);
			ns[t][r] = read_smaps(path, &swap[t]);
		}
	for (unsigned int t = 0; t < TESTS; t++) {
		qsort(ns[t], reads, sizeof(long), compare);
		printf("%s\t%d\t%ld\n", tests[t].name, reads, ns[t][reads / 2]);
		kill(pids[t], SIGKILL);
		waitpid(pids[t], NULL, 0);
	}
	for (unsigned int t = 0; t < TESTS; t++) {
		unsigned int yardstick = tests[t].dense ? DENSE_ANON : 0;
		unsigned long want = swapped(&tests[t], tests[t].dense ? len / 8 : len);

		printf("%s:percent\t%d\t%ld\n", tests[t].name, reads,
		       100 * ns[t][reads / 2] / ns[yardstick][reads / 2]);
		printf("%s:swap\t%d\t%lu\n", tests[t].name, reads, swap[t]);
		if (swap[t] != want) {
			fprintf(stderr, "smaps: %s: smaps has %lu bytes in swap instead of %lu%s\n",
				tests[t].name, swap[t], want, swap[t] ? "" : ": is there any swap?");
			return 1;
		}
	}
	return 0;
}
