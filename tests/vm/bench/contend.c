// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The cost of forks, exits, waits and listings of /proc when several processors do them at the same
 * time.
 *
 * Usage: contend [ROUNDS [OPERATIONS]]
 *                      (5 rounds of 200 operations for each worker, with 1, 2, 4 and 8 workers)
 *
 * lab: processors 8
 * lab: timeout 2400
 *
 * Prints a row "case<TAB>workers<TAB>value_ns" for each case: the median of the time for one
 * operation of any worker, so with twice the workers it would be half as long if each had a
 * processor and none waited for another.
 *
 *   fork_exit      fork, the child exits, waitpid(pid); a worker is a process (will-it-scale has it as fork1)
 *   fork_any       the same with waitpid(-1), and each worker has 100 idle children
 *   fork_threads   fork_exit, but the workers are threads of one process
 *   poll_threads   waitid(P_ALL, WEXITED | WNOHANG) by threads of one process with 100 idle children
 *   thread         a thread begins and ends (threadspawn1)
 *   list           a listing of /proc with 200 idle processes
 *   fork_list      fork_exit, while as many others list /proc; an operation is a fork
 *
 * If the kernel has CONFIG_LOCK_STAT, there is a row "lock CASE LOCK<TAB>workers<TAB>ACQUIRED<TAB>CONTENDED<TAB>HELD_NS" for locks of
 * these paths: how often it was taken for 1,000 operations, how often somebody had to wait for it, and for how long it was held for
 * one operation. On an emulator with fewer real processors, times have no meaning of their own, and
 * counts say more.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"

enum { MOST = 8, IDLE = 100, LISTED = 200, ROUNDS_MAX = 101 };

/* Shared by all workers. */
static struct {
	atomic_int ready, go, done;
	atomic_int lister_stop;
} *shared;

static int operations = 200;

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void idle_children(int n)
{
	while (n--)
		if (!start())
			for (;;)
				pause();
}

static void fork_and_wait(int any)
{
	pid_t pid = fork(), got;

	if (pid < 0)
		err(1, "fork");
	if (!pid)
		_exit(0);
	got = waitpid(any ? -1 : pid, NULL, 0);
	if (got != pid)
		errx(1, "waited for %d, got %d", pid, got);
}

static void fork_exit(void)
{
	fork_and_wait(0);
}

static void fork_any(void)
{
	fork_and_wait(1);
}

static void poll_any(void)
{
	siginfo_t info = { .si_pid = 0 };

	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) || info.si_pid)
		errx(1, "waitid: %d", info.si_pid);
}

static void *nothing(void *arg)
{
	return arg;
}

static void thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL))
		errx(1, "pthread_create");
}

static void list(void)
{
	DIR *dir = opendir("/proc");
	int n = 0;

	if (!dir)
		err(1, "/proc");
	while (readdir(dir))
		n++;
	closedir(dir);
	if (n < LISTED)
		errx(1, "%d entries of /proc", n);
}

static const struct {
	const char *name;
	void (*operation)(void);
	/* How many operations count as one, where they are short. */
	int times;
	/* Idle children of each process of workers. */
	int idle;
	int as_threads, beside_lists;
} cases[] = {
	{ "fork_exit", fork_exit, 1, 0, 0, 0 },
	{ "fork_any", fork_any, 1, IDLE, 0, 0 },
	{ "fork_threads", fork_exit, 1, 0, 1, 0 },
	{ "poll_threads", poll_any, 50, IDLE, 1, 0 },
	{ "thread", thread, 1, 0, 0, 0 },
	{ "list", list, 1, 0, 0, 0 },
	{ "fork_list", fork_exit, 1, 0, 0, 1 },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* One worker: waits for the others, and does its operations in each round. */
static void work(int c, int rounds)
{
	for (int r = 0; r < rounds; r++) {
		atomic_fetch_add(&shared->ready, 1);
		while (atomic_load(&shared->go) <= r)
			usleep(200);
		for (int i = 0; i < operations * cases[c].times; i++)
			cases[c].operation();
		atomic_fetch_add(&shared->done, 1);
	}
}

struct job {
	int c, rounds;
};

static void *work_in_thread(void *arg)
{
	struct job *job = arg;

	work(job->c, job->rounds);
	return NULL;
}

/* A process with its workers as threads. Only the operations run at the same time. */
static void work_as_threads(struct job job, int n)
{
	pthread_t t[MOST];

	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, work_in_thread, &job))
			errx(1, "pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void wait_for(atomic_int *what, int n)
{
	while (atomic_load(what) < n) {
		usleep(500);
		/* A worker that failed has printed the reason. */
		if (waitpid(-1, NULL, WNOHANG | __WNOTHREAD) > 0)
			errx(1, "a worker ended early");
	}
}

static int of_interest(const char *lock)
{
	static const char *const some[] = { "tasklist_lock", "siglock", "wait_ready", "pidmap_lock", "wait_chldexit", "xa_lock" };

	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		if (strstr(lock, some[i]))
			return 1;
	return 0;
}

static int has_lock_stat(void)
{
	return !access("/proc/lock_stat", W_OK);
}

static void clear_lock_stat(void)
{
	FILE *f = fopen("/proc/lock_stat", "w");

	if (!f || fputs("0\n", f) < 0 || fclose(f))
		err(1, "/proc/lock_stat");
}

static void print_lock_stat(const char *name, int n, double total)
{
	FILE *f = fopen("/proc/lock_stat", "r");
	char line[512];

	if (!f)
		err(1, "/proc/lock_stat");
	while (fgets(line, sizeof(line), f)) {
		char *end = strrchr(line, ':'), *begin = line + strspn(line, " ");
		double v[12];

		if (!end)
			continue;
		*end = 0;
		/* Each time is in us. The numbers: con-bounces, contentions, four waits, acq-bounces, acquisitions, four holds. */
		if (sscanf(end + 1, "%lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5,
			   v + 6, v + 7, v + 8, v + 9, v + 10, v + 11) != 12)
			continue;
		if (of_interest(begin) && v[7] * 10 >= total)
			printf("lock %s %s\t%d\t%.0f\t%.0f\t%.0f\n", name, begin, n, v[7] * 1000 / total, v[1] * 1000 / total,
			       v[10] * 1000 / total);
	}
	fclose(f);
}

/* One case with n workers, in a process whose children are all its own. */
static void measure(int c, int n, int rounds)
{
	uint64_t took[ROUNDS_MAX];
	int processes = cases[c].as_threads ? 1 : n;
	double total = (double)n * operations * cases[c].times;

	memset(shared, 0, sizeof(*shared));
	for (int i = 0; i < processes; i++)
		if (!start()) {
			struct job job = { c, rounds };

			idle_children(cases[c].idle);
			if (cases[c].as_threads)
				work_as_threads(job, n);
			else
				work(c, rounds);
			for (;;)
				pause();
		}
	for (int i = 0; i < n && cases[c].beside_lists; i++)
		if (!start())
			for (;;)
				list();
	for (int r = 0; r < rounds; r++) {
		uint64_t begin;

		wait_for(&shared->ready, n * (r + 1));
		if (!r && has_lock_stat())
			clear_lock_stat();
		begin = now_ns();
		atomic_store(&shared->go, r + 1);
		wait_for(&shared->done, n * (r + 1));
		took[r] = now_ns() - begin;
	}
	if (has_lock_stat())
		print_lock_stat(cases[c].name, n, total * rounds);
	qsort(took, rounds, sizeof(*took), by_value);
	printf("%s\t%d\t%.0f\n", cases[c].name, n, took[rounds / 2] / total);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const int workers[] = { 1, 2, 4, MOST };
	int rounds = argc > 1 ? atoi(argv[1]) : 5, status;

	if (argc > 2)
		operations = atoi(argv[2]);
	if (rounds < 1 || rounds > ROUNDS_MAX || operations < 1)
		errx(2, "1 to %d rounds of at least one operation", ROUNDS_MAX);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
	idle_children(LISTED);
	for (size_t c = 0; c < N_CASES; c++)
		for (size_t w = 0; w < sizeof(workers) / sizeof(workers[0]); w++) {
			/* Its children end with it. */
			pid_t pid = start();

			if (!pid) {
				measure(c, workers[w], rounds);
				_exit(0);
			}
			if (waitpid(pid, &status, 0) != pid || status)
				errx(1, "%s with %d workers failed", cases[c].name, workers[w]);
		}
	return 0;
}
