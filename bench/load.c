/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes a load of idle tasks for the benches: processes or threads that only
 * sleep and are as small as they can be, so that only their number differs.
 *
 *	load procs N		N child processes
 *	load threads N [P]	N threads, spread over P child processes (1)
 *	load files N F		N child processes with F open files each
 *	load table N F		a child process of N threads that share F open files
 *
 * Prints "ready" when all of them are there and sleep. It ends, with all of them, when
 * its standard input ends, so also when the driver dies in any way. If it is killed
 * itself, the children get SIGKILL by PR_SET_PDEATHSIG.
 *
 * This program does not raise limits. bench/limits.py raises and restores them.
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
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A thread runs one system call on it, and a signal never arrives. */
#define STACK 4096

static pid_t *children;
static long nchildren;

static void end(int status)
{
	for (long i = 0; i < nchildren; i++)
		kill(children[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	exit(status);
}

static void fail(const char *what, long made)
{
	fprintf(stderr, "load: %s after %ld: %s%s\n", what, made, strerror(errno),
		errno == EAGAIN ? " (kernel.pid_max, kernel.threads-max, ulimit -u, or "
				  "pids.max of the cgroup)" : "");
	end(1);
}

static int __attribute__((noreturn)) idle(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

/* These are not pthreads, because each pthread's stack is a mapping, and vm.max_map_count limits
 * these to 32,000. */
static void add_threads(long n)
{
	char *stacks = mmap(NULL, n * STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;

	if (stacks == MAP_FAILED)
		_exit(errno);
	for (long i = 0; i < n; i++)
		if (clone(idle, stacks + (i + 1) * STACK, flags, NULL) < 0)
			_exit(errno);
}

/* Make all descriptors below n open, and close all others but `keep`. */
static void open_files(long n, int keep)
{
	struct rlimit room = { n + 16, n + 16 };
	int to = n + 8;

	setrlimit(RLIMIT_NOFILE, &room);
	if (dup2(keep, to) != to)
		_exit(errno);
	for (int fd = 0; fd < to; fd++)
		close(fd);
	for (long i = 0; i < n; i++)
		if (open("/dev/null", O_RDWR) != i)
			_exit(errno);
	if (dup2(to, n) != n)
		_exit(errno);
	close(to);
}

/*
 * Start a child with `threads` threads in addition to its first, and `files` open files (-1: the
 * files of its parent). If it has threads or files to make, it writes a byte when they are there.
 */
static void add_child(long threads, long files, int done)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		fail("fork", nchildren);
	if (pid > 0) {
		children[nchildren++] = pid;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	close(0);
	if (files >= 0) {
		open_files(files, done);
		done = files;
	}
	if (threads)
		add_threads(threads);
	if ((threads || files >= 0) && write(done, "", 1) != 1)
		_exit(1);
	close(done);
	idle(NULL);
}

/* Wait until nothing else runs, because each new task runs once. On a busy machine this ends after
 * some seconds. */
static void settle(void)
{
	for (int i = 0; i < 1000; i++) {
		FILE *f = fopen("/proc/loadavg", "r");
		int running = 0;

		if (f && fscanf(f, "%*s %*s %*s %d/", &running) != 1)
			running = 0;
		if (f)
			fclose(f);
		if (running <= 1)
			return;
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? atol(argv[2]) : 0, p = argc > 3 ? atol(argv[3]) : 1;
	const char *what = argc > 1 ? argv[1] : "";
	int table = !strcmp(what, "table"), threads = table || !strcmp(what, "threads");
	int with_files = table || !strcmp(what, "files");
	long files = with_files ? p : -1;
	int done[2];
	char c;

	if (n < 1 || p < 1 || (!with_files && p > n) || (!threads && !with_files && strcmp(what, "procs"))) {
		fprintf(stderr, "usage: load procs N | load threads N [PROCESSES] |"
				" load files N FILES | load table N FILES\n");
		return 2;
	}
	if (table)
		p = 1;
	else if (!threads)
		p = n;
	children = calloc(p, sizeof(*children));
	if (!children || pipe(done))
		fail("start", 0);
	for (long i = 0; i < p; i++) {
		/* The first thread of a process is one of the N. */
		long share = threads ? n / p + (i < n % p) - 1 : 0;

		add_child(share, files, done[1]);
	}
	close(done[1]);
	for (long i = 0; (threads || with_files) && i < p; i++) {
		if (!with_files && n / p + (i < n % p) - 1 == 0)
			continue;
		if (read(done[0], &c, 1) != 1) {
			int status = 0;

			/* The child's exit code is its errno. */
			wait(&status);
			errno = WEXITSTATUS(status);
			fail(with_files ? "files or threads" : "clone", i);
		}
	}
	settle();
	puts("ready");
	fflush(stdout);
	ssize_t got;
	do
		got = read(0, &c, 1);
	while (got > 0 || (got < 0 && errno == EINTR));
	end(0);
}
