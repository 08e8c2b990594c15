// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The cost of listing /proc if a process has very many threads.
 *
 * Usage: readdir [THREADS [ROUNDS]]      (100000 and 51)
 *
 * lab: uml 100000 51
 *
 * Reads the whole of /proc by getdents64 into a buffer of 32 KiB, ROUNDS times:
 * without the threads, with each tenth more of them, and after they are gone. Prints a row
 * "case<TAB>n<TAB>value_ns" for each, n being the number of threads and the value
 * the median of the rounds.
 *
 * The threads sleep in pause(2) and own no memory in user space, so that 100,000 fit
 * into 3 GiB. kernel.pid_max and kernel.threads-max must allow them; this does not
 * raise limits.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"

enum { STEPS = 10 };

static void measure(const char *name, long threads, int rounds)
{
	static char buf[32768];
	uint64_t *ns = calloc(rounds, sizeof(*ns));
	int fd = open("/proc", O_RDONLY | O_DIRECTORY);
	int i;

	if (!ns || fd < 0)
		err(1, "/proc");
	for (i = -1; i < rounds; i++) {
		uint64_t start = now_ns();
		long len;

		while ((len = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
			;
		if (len < 0 || lseek(fd, 0, SEEK_SET))
			err(1, "getdents64");
		if (i >= 0) /* the first one makes the dentries */
			ns[i] = now_ns() - start;
	}
	close(fd);
	qsort(ns, rounds, sizeof(*ns), by_value);
	printf("%s\t%ld\t%llu\n", name, threads,
	       (unsigned long long)ns[rounds / 2]);
	fflush(stdout);
	free(ns);
}

/* Is the process with I of THREADS threads measured? So it is done for each tenth, and for all. */
static int is_step(long i, long threads)
{
	return i == threads || (threads >= STEPS && i % (threads / STEPS) == 0 && i + threads / STEPS <= threads);
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 100000;
	int rounds = argc > 2 ? atoi(argv[2]) : 51;
	int ready[2], go[2];
	char c = 0;
	pid_t pid;

	if (threads < 1 || rounds < 1)
		errx(2, "usage: readdir [THREADS [ROUNDS]]");
	if (pipe(ready) || pipe(go))
		err(1, "pipe");
	/* the process exists from the start: only its threads differ */
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		if (read(go[0], &c, 1) != 1)
			_exit(1);
		for (long i = 1; i <= threads; i++) {
			long tid = start_thread();

			if (tid < 0) {
				warnx("thread %ld: %s (raise kernel.pid_max and kernel.threads-max)",
				      i, strerror(-tid));
				_exit(1);
			}
			if (is_step(i, threads) &&
			    (write(ready[1], &c, 1) != 1 || read(go[0], &c, 1) != 1))
				_exit(1);
		}
		for (;;)
			pause();
	}
	close(ready[1]);
	measure("readdir_idle", 0, rounds);
	for (long i = 1; i <= threads; i++) {
		if (!is_step(i, threads))
			continue;
		if (write(go[1], &c, 1) != 1)
			err(1, "write");
		if (read(ready[0], &c, 1) != 1)
			errx(1, "no threads, no measurement");
		measure("readdir_threads", i, rounds);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	measure("readdir_after", 0, rounds);
	return 0;
}
