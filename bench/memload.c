/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes loads of memory for the benches.
 *
 *	memload vmas N		a process with N memory mappings, half of them touched
 *	memload maps N F	N processes that each map F library files in 4 parts, as the dynamic
 *				linker does
 *	memload swap KIND	a process with a mapping of 2 GiB, a page in 2 MiB of it touched; KIND:
 *				anon	anonymous memory, every other page of it swapped out
 *				shared	a memfd, the same
 *				in	a memfd, nothing swapped out
 *				read	a memfd, swapped out as above, mapped read-only and shared
 *				private	a memfd, swapped out as above, mapped writable and private
 *
 * Prints "ready PID" when everything is there. PID is the pid of the process, or of the first of N
 * processes. It ends, with all of them, when its standard input ends. If it is killed, they end by
 * PR_SET_PDEATHSIG.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define SIZE (2L << 30)
#define STRIDE (2L << 20)

static void fail(const char *what)
{
	fprintf(stderr, "memload: %s: %s\n", what, strerror(errno));
	kill(0, SIGKILL);
	exit(1);
}

static char *map(long size, int prot, int flags, int fd, long at)
{
	char *p = mmap(NULL, size, prot, flags, fd, at);

	if (p == MAP_FAILED)
		fail("mmap");
	return p;
}

/* Every other page is read-only, so that each page is a mapping of its own. */
static void vmas(long n)
{
	char *p = map(n * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (long i = 0; i < n; i += 2) {
		p[i * PAGE] = 1;
		if (i + 1 < n && mprotect(p + (i + 1) * PAGE, PAGE, PROT_READ))
			fail("mprotect (vm.max_map_count)");
	}
}

/* Map the first libraries that are large enough, and touch a page of each part. */
static void libraries(long files)
{
	static const int prot[] = { PROT_READ, PROT_READ | PROT_EXEC, PROT_READ,
				    PROT_READ | PROT_WRITE };
	static const char *const dirs[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
					    "/usr/lib64", "/usr/lib" };
	long part = 16 * PAGE, done = 0;

	for (size_t d = 0; d < sizeof(dirs) / sizeof(*dirs); d++) {
		DIR *dir = opendir(dirs[d]);
		struct dirent *e;

		while (dir && done < files && (e = readdir(dir))) {
			char path[512];
			struct stat st;
			int fd;

			snprintf(path, sizeof(path), "%s/%s", dirs[d], e->d_name);
			if (!strstr(e->d_name, ".so") || lstat(path, &st) || !S_ISREG(st.st_mode) ||
			    st.st_size < 4 * part || (fd = open(path, O_RDONLY)) < 0)
				continue;
			for (int i = 0; i < 4; i++) {
				volatile char *p = map(part, prot[i], MAP_PRIVATE, fd, i * part);

				(void)*p;
			}
			close(fd);
			done++;
		}
		if (dir)
			closedir(dir);
	}
	if (done < files) {
		errno = ENOENT;
		fail("libraries to map");
	}
}

static void touch(char *p, int out)
{
	for (long at = 0; at < SIZE; at += STRIDE)
		p[at] = 1;
	for (long at = 0; out && at < SIZE; at += 2 * STRIDE)
		if (madvise(p + at, PAGE, MADV_PAGEOUT))
			fail("MADV_PAGEOUT (is there swap space?)");
}

static void swap(const char *kind)
{
	int rw = PROT_READ | PROT_WRITE, fd;
	char *p;

	if (!strcmp(kind, "anon")) {
		p = map(SIZE, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		/* A huge page would take the place of 512 pages, of which only one is to be touched. */
		madvise(p, SIZE, MADV_NOHUGEPAGE);
		touch(p, 1);
		return;
	}
	fd = memfd_create("bench", 0);
	if (fd < 0 || ftruncate(fd, SIZE))
		fail("memfd");
	p = map(SIZE, rw, MAP_SHARED, fd, 0);
	touch(p, strcmp(kind, "in"));
	if (!strcmp(kind, "read")) {
		munmap(p, SIZE);
		map(SIZE, PROT_READ, MAP_SHARED, fd, 0);
	} else if (!strcmp(kind, "private")) {
		munmap(p, SIZE);
		map(SIZE, rw, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	long n = argc > 2 ? atol(argv[2]) : 0, files = argc > 3 ? atol(argv[3]) : 4;
	pid_t self = getpid(), first = self;
	char c;

	setpgid(0, 0);
	if (!strcmp(what, "vmas") && n > 0) {
		vmas(n);
	} else if (!strcmp(what, "swap")) {
		swap(argv[2]);
	} else if (!strcmp(what, "maps") && n > 0) {
		/* The children inherit them. */
		libraries(files);
		for (long i = 0; i < n; i++) {
			pid_t pid = fork();

			if (pid < 0)
				fail("fork (kernel.pid_max, ulimit -u)");
			if (!pid) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				close(0);
				while (getppid() == self)
					pause();
				_exit(0);
			}
			first = i ? first : pid;
		}
	} else {
		fprintf(stderr, "usage: memload vmas N | maps N FILES | swap KIND\n");
		return 2;
	}
	printf("ready %d\n", first);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	/* It leads its process group, which has only its children. */
	signal(SIGTERM, SIG_IGN);
	if (!strcmp(what, "maps"))
		kill(0, SIGTERM);
	while (wait(NULL) > 0)
		;
	return 0;
}
