// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The cost of waiting for one child while N others have nothing to report.
 *
 * Usage: wait [ROUNDS [CASE...] [N...]]
 *                      (201 rounds; all cases; N = 1 10 20 100 500 1000 2000 3500 5000 8000)
 *
 * lab: instructions 51
 * lab: uml 101 fork_pid fork_any fork_wall poll_any trace_child 1 1000 8000
 *
 * Prints a row "case<TAB>n<TAB>value_ns" for each case and N; the value is the median
 * of ROUNDS, of ten times as many where nothing is forked. N counts the idle ones and the awaited
 * one, or the ten as one.
 *
 *   fork_pid       fork, the child exits, waitpid(pid)
 *   fork_any       the same with waitpid(-1)
 *   fork_wall      the same with waitpid(-1, __WALL)
 *   fork_untraced  the same with waitpid(-1, WUNTRACED), as a shell with job control
 *   fork_pgrp_all  the same with waitpid(0): all children are in the parent's group
 *   fork_pgrp_own  the same with waitpid(-pid): the child has a group of its own
 *   fork_ten       ten children have exited before the first of ten waitpid(-1)
 *   fork_continued fork_any, where all other children were stopped and continued once
 *   poll_any       waitid(P_ALL, WEXITED | WNOHANG), there is nothing to report
 *   poll_continued the same, where all children were stopped and continued once
 *   poll_stopped   the same, where all children are stopped
 *   poll_clone     the same, where all children but the last are zombies for __WCLONE
 *   poll_group     waitid(P_PGID), where all but the last are zombies of another group
 *   trace_child    PTRACE_INTERRUPT, waitpid(-1, __WALL), PTRACE_CONT of one of N
 *                  traced children
 *   trace_other    the same for tracees that are another process's children
 *   trace_continued  trace_child, where all tracees were stopped and continued once before
 *
 * Each N of a case has a parent process of its own, whose idle children sleep in
 * pause(2). These parents measure by turns, a few rounds at a time, so that a
 * disturbance of the machine affects a few rounds of every N, and not all of one N.
 * A case has one processor, and a tracer runs as SCHED_FIFO if it may. Otherwise, whether a child
 * runs next to its parent and stops before or after wait() has gone to sleep would change from time
 * to time, and these cases have different costs.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
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
#include "bench.h"

#define MAX_N 100000
#define TURNS 20
/* Operations at the start of each turn that are not counted. */
#define WARM_UP 3

static pid_t clone_child(int exit_signal)
{
	pid_t pid = syscall(SYS_clone, exit_signal, 0, 0, 0, 0);

	if (pid < 0)
		err(1, "fork (kernel.threads-max, kernel.pid_max?)");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static pid_t idle_child(void)
{
	return clone_child(SIGCHLD);
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
	if (!strcmp(name, "fork_continued"))
		name = "fork_any";
	if (!strcmp(name, "fork_pid")) {
		got = waitpid(pid, &status, 0);
	} else if (!strcmp(name, "fork_any")) {
		got = waitpid(-1, &status, 0);
	} else if (!strcmp(name, "fork_wall")) {
		got = waitpid(-1, &status, __WALL);
	} else if (!strcmp(name, "fork_untraced")) {
		got = waitpid(-1, &status, WUNTRACED);
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

/* Ten children, which are waited for when all have exited, and reported in the order of their forks. */
static void fork_ten(void)
{
	pid_t pids[10];
	siginfo_t info;

	for (int i = 0; i < 10; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			err(1, "fork");
		if (!pids[i])
			_exit(0);
	}
	for (int i = 0; i < 10; i++)
		if (waitid(P_PID, pids[i], &info, WEXITED | WNOWAIT))
			err(1, "waitid");
	for (int i = 0; i < 10; i++)
		if (waitpid(-1, NULL, 0) != pids[i])
			errx(1, "fork_ten: child %d was not reported in its turn", i);
}

static void poll_for(idtype_t type)
{
	siginfo_t info = { .si_pid = 0 };

	if (waitid(type, 0, &info, WEXITED | WNOHANG) || info.si_pid)
		errx(1, "poll: %d", info.si_pid);
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
		prctl(PR_SET_PDEATHSIG, SIGKILL);
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

/* One N of a case: a separate process, which is notified when it is its turn. */
struct parent {
	int n, rounds;	/* of all turns together */
	uint64_t *ns;	/* what they took, shared with main */
	pid_t pid;
	int turn, done; /* pipes to and from it */
};

static void one_round(const char *name, const pid_t *pids, int n)
{
	if (!strcmp(name, "poll_group"))
		poll_for(P_PGID);
	else if (!strncmp(name, "poll_", 5))
		poll_for(P_ALL);
	else if (!strcmp(name, "fork_ten"))
		fork_ten();
	else if (!strcmp(name, "trace_other"))
		trace_stop(pids[0]); /* last of ->ptraced */
	else if (!strncmp(name, "trace_", 6))
		trace_stop(pids[n - 1]); /* last of ->children */
	else
		fork_wait(name);
}

/* A byte through a pipe; 0 at its end. */
static int told(int fd)
{
	char c;
	ssize_t got = read(fd, &c, 1);

	if (got < 0)
		err(1, "read of a pipe");
	return got;
}

static void tell(int fd)
{
	if (write(fd, "", 1) != 1)
		err(1, "write to a pipe");
}

static void *shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "memory");
	return p;
}

static int ends_with(const char *name, const char *end)
{
	size_t len = strlen(name), n = strlen(end);

	return len >= n && !strcmp(name + len - n, end);
}

/* Prepares the idle processes before anything is measured. */
static void prepare(const char *name, pid_t *pids, int n)
{
	int stops = ends_with(name, "_stopped"), continues = ends_with(name, "_continued");
	int clones = ends_with(name, "_clone"), zombies = ends_with(name, "_group") || clones;
	siginfo_t info;

	for (int i = 0; i < n - zombies; i++) {
		if (clones) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
			pids[i] = clone_child(0);
		}
		if (zombies) {
			if (setpgid(pids[i], pids[0]))
				err(1, "setpgid");
			kill(pids[i], SIGKILL);
			if (waitid(P_PID, pids[i], &info, WEXITED | WNOWAIT | __WALL))
				err(1, "waitid");
		} else if (stops || continues) {
			kill(pids[i], SIGSTOP);
			if (waitid(P_PID, pids[i], &info, WSTOPPED | WNOWAIT))
				err(1, "waitid");
			if (continues)
				kill(pids[i], SIGCONT);
		}
	}
	/* The last child is the one that a wait is for. */
	if (clones) {
		kill(pids[n - 1], SIGKILL);
		waitpid(pids[n - 1], NULL, 0);
		pids[n - 1] = idle_child();
	}
}

/* The process of one N, until its pipe of turns ends. */
static void run_parent(const char *name, struct parent *p)
{
	int trace = !strncmp(name, "trace_", 6);
	/* fork_* count the child to come */
	int n = p->n - !strncmp(name, "fork_", 5);
	pid_t *pids = shared(MAX_N * sizeof(*pids));
	int at = 0;
	cpu_set_t one;
	pid_t helper;

	if (setpgid(0, 0))
		err(1, "setpgid");
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		warn("%s: sched_setaffinity", name);
	helper = start_idle(pids, n, !strcmp(name, "trace_other"));
	prepare(name, pids, n);
	for (int i = 0; trace && i < n; i++)
		if (ptrace(PTRACE_SEIZE, pids[i], 0, 0))
			err(1, "PTRACE_SEIZE");
	if (trace && sched_setscheduler(0, SCHED_FIFO,
					&(struct sched_param){ .sched_priority = 1 }))
		warn("%s: SCHED_FIFO", name);
	tell(p->done);
	while (told(p->turn)) {
		int end = at + (p->rounds + TURNS - 1) / TURNS;

		for (int i = 0; i < WARM_UP; i++)
			one_round(name, pids, n);
		for (; at < end && at < p->rounds; at++) {
			uint64_t start = now_ns();

			one_round(name, pids, n);
			p->ns[at] = now_ns() - start;
		}
		tell(p->done);
	}
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	if (helper)
		kill(helper, SIGKILL);
	while (waitpid(-1, NULL, __WALL) > 0)
		;
	_exit(0);
}

static void start_parent(const char *name, struct parent *p)
{
	int turn[2], done[2];

	p->ns = shared(p->rounds * sizeof(*p->ns));
	if (pipe2(turn, O_CLOEXEC) || pipe2(done, O_CLOEXEC))
		err(1, "pipe");
	p->pid = fork();
	if (p->pid < 0)
		err(1, "fork");
	if (!p->pid) {
		/* Close main's ends of the pipes; otherwise there would never be an end-of-file. */
		close(turn[1]);
		close(done[0]);
		p->turn = turn[0];
		p->done = done[1];
		run_parent(name, p);
	}
	close(turn[0]);
	close(done[1]);
	p->turn = turn[1];
	p->done = done[0];
	if (!told(p->done))
		errx(1, "%s with %d failed", name, p->n);
}

/* Measures a case for every N, and prints its rows. */
static void measure(const char *name, struct parent *parents, int count, int rounds)
{
	/* A case of microseconds could lie entirely within one disturbance. */
	if (strncmp(name, "fork_", 5))
		rounds *= 10;
	for (int i = 0; i < count; i++) {
		parents[i].rounds = rounds;
		start_parent(name, &parents[i]);
	}
	for (int turn = 0; turn < TURNS; turn++) {
		for (int i = 0; i < count; i++) {
			tell(parents[i].turn);
			if (!told(parents[i].done))
				errx(1, "%s with %d failed", name, parents[i].n);
		}
	}
	/* The last process is first: it and its children hold main's ends of the pipes of the earlier
	 * processes. */
	for (int i = count - 1; i >= 0; i--) {
		int status;

		close(parents[i].turn);
		close(parents[i].done);
		if (waitpid(parents[i].pid, &status, 0) != parents[i].pid || status)
			errx(1, "%s with %d failed", name, parents[i].n);
	}
	for (int i = 0; i < count; i++) {
		struct parent *p = &parents[i];

		qsort(p->ns, rounds, sizeof(*p->ns), by_value);
		printf("%s\t%d\t%llu\n", name, p->n, (unsigned long long)p->ns[rounds / 2]);
		munmap(p->ns, rounds * sizeof(*p->ns));
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const char *const cases[] = {
		"fork_pid",	  "fork_any",	   "fork_wall",	     "fork_untraced", "fork_pgrp_all",
		"fork_pgrp_own",  "fork_ten",	   "fork_continued", "poll_any",      "poll_continued",
		"poll_stopped",	  "poll_clone",	   "poll_group",     "trace_child",   "trace_other",
		"trace_continued",
	};
	static char *const sizes[] = { "1",    "10",   "20",   "100",  "500",
				       "1000", "2000", "3500", "5000", "8000" };
	const size_t all = sizeof(cases) / sizeof(*cases);
	int rounds = argc > 1 ? atoi(argv[1]) : 201;
	int wanted[sizeof(cases) / sizeof(*cases)] = { 0 }, some = 0;
	char *const *arg = sizes;
	struct parent *parents;
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
	parents = calloc(args, sizeof(*parents));
	if (!parents)
		err(1, "memory");
	for (i = 0; i < args; i++) {
		parents[i].n = atoi(arg[i]);
		if (parents[i].n < 1 || parents[i].n > MAX_N)
			errx(2, "N is 1 to %d, not %s", MAX_N, arg[i]);
	}
	for (size_t c = 0; c < all; c++)
		if (wanted[c] || !some)
			measure(cases[c], parents, args, rounds);
	return 0;
}
