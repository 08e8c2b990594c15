// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What it costs to wait for one child while N others have nothing to report.
 *
 * Usage: wait [ROUNDS [CASE...] [N...]]
 *                      (201 rounds; all cases; N = 1 20 100 500 1000 5000 8000)
 *
 * Prints a row "case<TAB>n<TAB>value_ns" for each case and N; the value is the median
 * of ROUNDS, of ten times as many where nothing is forked. N counts the idle ones and the one that is waited for.
 *
 *   fork_pid       fork, the child exits, waitpid(pid)
 *   fork_any       the same with waitpid(-1)
 *   fork_wall      the same with waitpid(-1, __WALL)
 *   fork_pgrp_all  the same with waitpid(0): all children are in the parent's group
 *   fork_pgrp_own  the same with waitpid(-pid): the child has a group of its own
 *   poll_any       waitid(P_ALL, WEXITED | WNOHANG), there is nothing to report
 *   trace_child    PTRACE_INTERRUPT, waitpid(-1, __WALL), PTRACE_CONT of one of N
 *                  traced children
 *   trace_other    the same for tracees that are another process's children
 *
 * Each case has a parent process of its own, whose idle children sleep in pause(2).
 * A case has one processor, and a tracer runs as SCHED_FIFO if it may: otherwise it
 * is decided from time to time anew whether a child runs beside its parent, and stops
 * before or after wait() has gone to sleep, and these are different costs.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_N 100000

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static pid_t idle_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork (kernel.threads-max, kernel.pid_max?)");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

/* One child that exits at once, forked and waited for. */
static void fork_wait(const char *name)
{
	pid_t pid = fork(), got;
	int status;

	if (pid < 0)
		err(1, "fork");
	if (!pid)
		_exit(0);
	if (!strcmp(name, "fork_pid")) {
		got = waitpid(pid, &status, 0);
	} else if (!strcmp(name, "fork_any")) {
		got = waitpid(-1, &status, 0);
	} else if (!strcmp(name, "fork_wall")) {
		got = waitpid(-1, &status, __WALL);
	} else if (!strcmp(name, "fork_pgrp_all")) {
		got = waitpid(0, &status, 0);
	} else {
		if (setpgid(pid, pid))
			err(1, "setpgid");
		got = waitpid(-pid, &status, 0);
	}
	if (got != pid)
		errx(1, "%s: waited for %d, got %d", name, pid, got);
}

static void poll_any(void)
{
	siginfo_t info = { .si_pid = 0 };

	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) || info.si_pid)
		errx(1, "poll_any: %d", info.si_pid);
}

static void trace_stop(pid_t pid)
{
	pid_t got;
	int status;

	if (ptrace(PTRACE_INTERRUPT, pid, 0, 0))
		err(1, "PTRACE_INTERRUPT");
	got = waitpid(-1, &status, __WALL);
	if (got != pid || !WIFSTOPPED(status))
		errx(1, "stopped %d, got %d", pid, got);
	if (ptrace(PTRACE_CONT, pid, 0, 0))
		err(1, "PTRACE_CONT");
}

/*
 * Starts @n idle processes into @pids: children of ours, or of a helper that is.
 * Returns the helper's pid, or 0.
 */
static pid_t start_idle(pid_t *pids, int n, int others)
{
	int ready[2];
	pid_t helper = 0;
	char c = 0;

	if (!others) {
		for (int i = 0; i < n; i++)
			pids[i] = idle_child();
		return 0;
	}
	if (pipe(ready))
		err(1, "pipe");
	helper = fork();
	if (helper < 0)
		err(1, "fork");
	if (!helper) {
		for (int i = 0; i < n; i++)
			pids[i] = idle_child();
		if (write(ready[1], &c, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		errx(1, "the helper died");
	close(ready[0]);
	return helper;
}

static uint64_t measure(const char *name, int n, int rounds)
{
	int trace = !strncmp(name, "trace_", 6);
	pid_t *pids = mmap(NULL, MAX_N * sizeof(*pids), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t *ns;
	cpu_set_t one;
	pid_t helper;

	/* What takes microseconds would be over within one disturbance. */
	if (strncmp(name, "fork_", 5))
		rounds *= 10;
	ns = calloc(rounds, sizeof(*ns));

	if (pids == MAP_FAILED || !ns)
		err(1, "memory");
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		warn("%s: sched_setaffinity", name);
	/* fork_* count the child to come */
	n -= !strncmp(name, "fork_", 5);
	helper = start_idle(pids, n, !strcmp(name, "trace_other"));
	for (int i = 0; trace && i < n; i++)
		if (ptrace(PTRACE_SEIZE, pids[i], 0, 0))
			err(1, "PTRACE_SEIZE");
	if (trace && sched_setscheduler(0, SCHED_FIFO,
					&(struct sched_param){ .sched_priority = 1 }))
		warn("%s: SCHED_FIFO", name);

	for (int i = -5; i < rounds; i++) {
		uint64_t start = now_ns();

		if (!strcmp(name, "poll_any"))
			poll_any();
		else if (!strcmp(name, "trace_child"))
			trace_stop(pids[n - 1]); /* last of ->children */
		else if (trace)
			trace_stop(pids[0]); /* last of ->ptraced */
		else
			fork_wait(name);
		if (i >= 0)
			ns[i] = now_ns() - start;
	}
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	if (helper)
		kill(helper, SIGKILL);
	while (waitpid(-1, NULL, __WALL) > 0)
		;
	qsort(ns, rounds, sizeof(*ns), by_value);
	return ns[rounds / 2];
}

int main(int argc, char **argv)
{
	static const char *const cases[] = {
		"fork_pid",	 "fork_any",	  "fork_wall", "fork_pgrp_all",
		"fork_pgrp_own", "poll_any",	  "trace_child", "trace_other",
	};
	static char *const sizes[] = { "1",    "20",   "100", "500",
				       "1000", "5000", "8000" };
	const size_t all = sizeof(cases) / sizeof(*cases);
	int rounds = argc > 1 ? atoi(argv[1]) : 201;
	int wanted[sizeof(cases) / sizeof(*cases)] = { 0 }, some = 0;
	char *const *arg = sizes;
	int args = sizeof(sizes) / sizeof(*sizes), i = 2;

	for (; i < argc && !atoi(argv[i]); i++) {
		size_t c = 0;

		while (c < all && strcmp(cases[c], argv[i]))
			c++;
		if (c == all)
			errx(2, "no case %s", argv[i]);
		wanted[c] = some = 1;
	}
	if (rounds < 1)
		errx(2, "usage: wait [ROUNDS [CASE...] [N...]]");
	if (i < argc) {
		arg = argv + i;
		args = argc - i;
	}
	for (i = 0; i < args; i++)
		if (atoi(arg[i]) < 1 || atoi(arg[i]) > MAX_N)
			errx(2, "N is 1 to %d, not %s", MAX_N, arg[i]);

	for (size_t c = 0; c < all; c++) {
		for (i = 0; i < args && (wanted[c] || !some); i++) {
			int status;
			pid_t pid = fork();

			if (pid < 0)
				err(1, "fork");
			if (!pid) {
				int n = atoi(arg[i]);

				if (setpgid(0, 0))
					err(1, "setpgid");
				printf("%s\t%d\t%llu\n", cases[c], n,
				       (unsigned long long)measure(cases[c], n,
								   rounds));
				fflush(stdout);
				_exit(0);
			}
			if (waitpid(pid, &status, 0) != pid || status)
				errx(1, "%s with %s failed", cases[c], arg[i]);
		}
	}
	return 0;
}
