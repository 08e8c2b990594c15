// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Random lives of children, and what waits report of them and cost. Two kernels must report the
 * same, and the second one must not take much longer than the first for any history.
 *
 * Usage: wait_history [HISTORIES [SEED]]     (40 histories, seeds from 1)
 *
 * lab: instructions 40
 *
 * Prints a row "history<TAB>seed<TAB>waits_ns<TAB>events_ns<TAB>reported" for each history, a process
 * with 1 to 1500 children: the time of all waits, the time of all events (the system calls that
 * fork, stop, continue, kill, trace and so on, without the time of other processes), and a hash of
 * all that was reported. `tests/vm/lab histories` compares the rows of two kernels.
 *
 * The children are in two process groups, some report their end by another signal than SIGCHLD, and
 * some belong to a second thread, which may leave them to the first. They are stopped, continued,
 * killed, traced by this process or by another one, let go, and make orphans, which this process
 * gets as a subreaper. They exec from a thread that becomes the leader, or their leader ends before
 * it. After each event the history continues when /proc shows its effect, and some time after that,
 * so that what is reported does not depend on how long things take.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench.h"

#define MAX_CHILDREN 4096
#define STEPS 300
/* The time that a child needs to get into its new state. A machine that counts instructions only
 * skips it. */
#define SETTLE_US 3000

/* The orders that a child takes, each a byte through its pipe. */
enum { ORPHAN = 'o', THREAD_EXEC = 'e', LEADER_ENDS = 'l' };

struct child {
	pid_t pid;
	int pipe;	/* to it; -1 if it takes no orders any more */
	char traced;	/* 0, 'u' by us, 'o' by another process */
	char stopped;
};

static struct child children[MAX_CHILDREN];
static int nr;
static pid_t group;
static uint64_t waits, events, reported;
static unsigned int seed;
/* The process that traces for us, and the thread that forks for us: orders and answers. */
static int tracer[2], forker[2];

/* The time of this process alone: what else runs in between is not what an event costs. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static unsigned int any(unsigned int below)
{
	return rand_r(&seed) % below;
}

static void put(int fd, const void *what, size_t size)
{
	if (write(fd, what, size) != (ssize_t)size)
		err(1, "write to a pipe");
}

/* 0 at the end of the pipe. */
static int get(int fd, void *what, size_t size)
{
	ssize_t n = read(fd, what, size);

	if (n < 0 || (n && n != (ssize_t)size))
		err(1, "read of a pipe");
	return n;
}

static char state_of(pid_t pid)
{
	char path[64], buf[512], *p;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	len = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (len <= 0)
		return 0;
	buf[len] = '\0';
	p = strrchr(buf, ')');
	return p && p[1] ? p[2] : 0;
}

static void until(pid_t pid, const char *states)
{
	char state;

	while ((state = state_of(pid)) && !strchr(states, state))
		usleep(200);
}

static void *sleeps(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static void *execs(void *arg)
{
	char fd[16];

	snprintf(fd, sizeof(fd), "%d", (int)(intptr_t)arg);
	execl("/proc/self/exe", "wait_history", "child", fd, NULL);
	_exit(1);
}

/* The life of a child that takes orders. */
static void child(int fd)
{
	pthread_t t;
	char order;

	while (get(fd, &order, 1)) {
		switch (order) {
		case ORPHAN:
			if (!fork())
				sleeps(NULL);
			_exit(0);
		case THREAD_EXEC:
			pthread_create(&t, NULL, execs, (void *)(intptr_t)fd);
			sleeps(NULL);
			break;
		case LEADER_ENDS:
			pthread_create(&t, NULL, sleeps, NULL);
			pthread_exit(NULL);
		}
	}
	_exit(0);
}

/* A child that takes orders, or one that is small and only sleeps. */
static pid_t start_child(int exit_signal, int *orders)
{
	int fds[2] = { -1, -1 };
	pid_t pid;

	if (orders && pipe(fds))
		err(1, "pipe");
	/* libc's state in the child of a bare clone is good enough for fork and threads. */
	pid = orders ? fork() : (pid_t)syscall(SYS_clone, exit_signal, 0, 0, 0, 0);
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!orders)
			sleeps(NULL);
		close(fds[1]);
		child(fds[0]);
	}
	if (orders) {
		close(fds[0]);
		fcntl(fds[1], F_SETFD, FD_CLOEXEC);
		*orders = fds[1];
	}
	return pid;
}

/* The thread that forks: how many, and it answers with their pids; it ends after 0. */
static void *forks(void *arg)
{
	int *fds = arg, n;

	while (get(fds[0], &n, sizeof(n)) && n) {
		pid_t pid = start_child(SIGCHLD, NULL);

		put(fds[1], &pid, sizeof(pid));
	}
	return NULL;
}

/* The process that traces: a pid to seize, or to let go if it is negative. */
static void traces(int in, int out)
{
	pid_t pid;

	while (get(in, &pid, sizeof(pid))) {
		char ok;

		if (pid > 0) {
			ok = !ptrace(PTRACE_SEIZE, pid, 0, 0);
		} else {
			siginfo_t info;

			ok = !ptrace(PTRACE_INTERRUPT, -pid, 0, 0) &&
			     !waitid(P_PID, -pid, &info, WEXITED | WSTOPPED | WNOWAIT | __WALL) &&
			     !ptrace(PTRACE_DETACH, -pid, 0, 0);
		}
		put(out, &ok, 1);
	}
	_exit(0);
}

static char ask_tracer(pid_t pid)
{
	char ok;

	put(tracer[1], &pid, sizeof(pid));
	get(tracer[0], &ok, 1);
	return ok;
}

static void add(pid_t pid, int orders)
{
	if (nr == MAX_CHILDREN)
		errx(1, "too many children");
	children[nr++] = (struct child){ .pid = pid, .pipe = orders };
}

static void fold(uint64_t value)
{
	reported = (reported ^ value) * 0x100000001b3ull;
}

/* Returns a child's number in the order of the starts, which is the same on two kernels, unlike its
 * pid. */
static int number_of(pid_t pid)
{
	for (int i = 0; i < nr; i++)
		if (children[i].pid == pid)
			return i;
	return -1;
}

static void gone(pid_t pid)
{
	int i = number_of(pid);

	if (i >= 0)
		children[i].pid = -1;
}

static void fork_one(void)
{
	uint64_t start = cpu_ns();
	pid_t pid;
	int orders = -1, n = 1;

	switch (any(4)) {
	case 0:
		put(forker[1], &n, sizeof(n));
		get(forker[0], &pid, sizeof(pid));
		break;
	case 1:
		pid = start_child(0, NULL);
		break;
	case 2:
		pid = start_child(SIGCHLD, &orders);
		break;
	default:
		pid = start_child(SIGCHLD, NULL);
	}
	events += cpu_ns() - start;
	add(pid, orders);
}

static void kill_one(struct child *c, int sig)
{
	uint64_t start = cpu_ns();

	kill(c->pid, sig);
	events += cpu_ns() - start;
}

static void change(struct child *c)
{
	uint64_t start;
	siginfo_t info;
	pid_t pid = c->pid;

	if (pid < 0)
		return;
	switch (any(14)) {
	case 0:
	case 1:
	case 2:
		kill_one(c, SIGSTOP);
		until(pid, "TtZX");
		break;
	case 3:
	case 4:
	case 5:
		kill_one(c, SIGCONT);
		until(pid, "SRDtZX");
		break;
	case 6:
		kill_one(c, SIGKILL);
		until(pid, "ZX");
		break;
	case 7:
		start = cpu_ns();
		(void)!setpgid(pid, any(2) ? group : 0);
		events += cpu_ns() - start;
		break;
	case 8:
	case 9:
		start = cpu_ns();
		if (!c->traced && !ptrace(PTRACE_SEIZE, pid, 0, 0))
			c->traced = 'u';
		else if (c->traced == 'u')
			(void)ptrace(PTRACE_INTERRUPT, pid, 0, 0);
		events += cpu_ns() - start;
		break;
	case 10: {
		int detach = any(2);

		start = cpu_ns();
		if (c->traced == 'u' && !ptrace(detach ? PTRACE_DETACH : PTRACE_CONT, pid, 0, 0) && detach)
			c->traced = 0;
		events += cpu_ns() - start;
		until(pid, "SRDTtZX");
		break;
	}
	case 11:
		if (!c->traced && ask_tracer(pid))
			c->traced = 'o';
		else if (c->traced == 'o' && ask_tracer(-pid))
			c->traced = 0;
		until(pid, "SRDTtZX");
		break;
	default:
		if (c->pipe < 0 || c->traced || state_of(pid) != 'S')
			break;
		{
			static const char orders[] = { ORPHAN, THREAD_EXEC, LEADER_ENDS };
			char order = orders[any(3)];

			put(c->pipe, &order, 1);
			if (order != THREAD_EXEC)
				until(pid, "ZX");
			usleep(SETTLE_US);
			if (order == ORPHAN || order == LEADER_ENDS) {
				close(c->pipe);
				c->pipe = -1;
			}
			/* The orphan is now a child without a number, and is reported as such. */
			if (order == ORPHAN)
				waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
		}
	}
}

/* One waitid that does not sleep, a few times if it takes nothing away. */
static void wait_once(void)
{
	static const int kinds[] = { WEXITED, WSTOPPED, WCONTINUED };
	int options = WNOHANG, times = 1, code;
	idtype_t type = P_ALL;
	siginfo_t info;
	id_t id = 0;

	while (!(options & (WEXITED | WSTOPPED | WCONTINUED)))
		for (int i = 0; i < 3; i++)
			if (any(2))
				options |= kinds[i];
	if (any(2)) {
		options |= WNOWAIT;
		times = 5;
	}
	switch (any(8)) {
	case 0:
	case 1:
	case 2:
		options |= __WALL;
		break;
	case 3:
		options |= __WCLONE;
		break;
	case 4:
		options |= __WNOTHREAD;
	}
	if (!any(3)) {
		type = P_PGID;
		id = any(2) ? (id_t)group : 0;
	}
	for (int i = 0; i < times; i++) {
		uint64_t start = now_ns();

		info.si_pid = 0;
		info.si_code = info.si_status = 0;
		code = waitid(type, id, &info, options) ? errno : 0;
		waits += now_ns() - start;
	}
	fold(code);
	if (code)
		return;
	fold(info.si_pid ? number_of(info.si_pid) + 2 : 0);
	fold(info.si_code);
	fold(info.si_status);
	if (info.si_pid && !(options & WNOWAIT) &&
	    (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED))
		gone(info.si_pid);
}

/* A member of the other group that is no child of ours. */
static void start_group(void)
{
	group = fork();
	if (group < 0)
		err(1, "fork");
	if (!group) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		sleeps(NULL);
	}
	setpgid(group, group);
}

static void start_tracer(void)
{
	int to[2], from[2];
	pid_t pid;

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		err(1, "pipe");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		traces(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	tracer[0] = from[0];
	tracer[1] = to[1];
}

static void start_forker(pthread_t *t)
{
	static int fds[2];
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		err(1, "pipe");
	fds[0] = to[0];
	fds[1] = from[1];
	forker[0] = from[0];
	forker[1] = to[1];
	if (pthread_create(t, NULL, forks, fds))
		errx(1, "no thread");
}

static void history(unsigned int s)
{
	static const int sizes[] = { 1, 3, 8, 20, 60, 200, 600, 1500 };
	int size = sizes[s % 8], none = 0, all;
	pthread_t t;

	seed = s;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setpgid(0, 0);
	start_group();
	start_tracer();
	start_forker(&t);
	while (nr < size)
		fork_one();
	/* Many histories begin with an event that affects all children. */
	all = any(4);
	for (int i = 0; all && i < nr; i++) {
		kill_one(&children[i], SIGSTOP);
		until(children[i].pid, "TZ");
		if (all == 2)
			kill_one(&children[i], SIGCONT);
		if (all == 3)
			kill_one(&children[i], SIGKILL);
	}
	for (int i = 0; i < STEPS; i++) {
		if (i == STEPS / 2) {
			/* The second thread leaves its children to the first. */
			put(forker[1], &none, sizeof(none));
			pthread_join(t, NULL);
			start_forker(&t);
			usleep(SETTLE_US);
		}
		if (!any(6) && nr < MAX_CHILDREN)
			fork_one();
		for (unsigned int n = any(3); n > 0; n--)
			change(&children[any(nr)]);
		usleep(SETTLE_US);
		wait_once();
	}
	printf("history\t%u\t%llu\t%llu\t%llu\n", s, (unsigned long long)waits, (unsigned long long)events,
	       (unsigned long long)(reported & INT64_MAX));
	fflush(stdout);
	/* The rest ends with this process, by PR_SET_PDEATHSIG or with its tracer. */
	for (int i = 0; i < nr; i++)
		if (children[i].pid > 0)
			kill(children[i].pid, SIGKILL);
	_exit(0);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 40, status;
	unsigned int first = argc > 2 ? atoi(argv[2]) : 1;

	if (argc == 3 && !strcmp(argv[1], "child"))
		child(atoi(argv[2]));
	if (count < 1)
		errx(2, "usage: wait_history [HISTORIES [SEED]]");
	for (unsigned int s = first; s < first + count; s++) {
		pid_t pid = fork();
		cpu_set_t one;

		if (pid < 0)
			err(1, "fork");
		CPU_ZERO(&one);
		CPU_SET(0, &one);
		if (!pid) {
			sched_setaffinity(0, sizeof(one), &one);
			history(s);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			errx(1, "history %u failed: %#x", s, status);
	}
	return 0;
}
