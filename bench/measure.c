/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a command with its output to a file and prints its cost:
 *
 *	measure OUTPUT COMMAND [ARG...]
 *	-> wall_ns user_us system_us peak_rss_kib status
 *
 * It is a separate program because ru_maxrss starts at the size of the process that called exec().
 * Under a Python driver, no result could be less than the 10 MB of Python.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct timespec a, b;
	struct rusage use;
	int out, null, status;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: measure OUTPUT COMMAND [ARG...]\n");
		return 2;
	}
	out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (out < 0 || null < 0) {
		perror(argv[1]);
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	pid = vfork();
	if (pid < 0) {
		perror("vfork");
		return 1;
	}
	if (pid == 0) {
		dup2(null, 0);
		dup2(out, 1);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	if (wait4(pid, &status, 0, &use) != pid) {
		perror("wait4");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%lld %lld %lld %ld %d\n",
	       (b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec,
	       use.ru_utime.tv_sec * 1000000LL + use.ru_utime.tv_usec,
	       use.ru_stime.tv_sec * 1000000LL + use.ru_stime.tv_usec, use.ru_maxrss,
	       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return 0;
}
