/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Threads of several processes that take locks of all kinds that keep an owner, wait for each
 * other, fork and end, all at random. Each records in memory that the test reads which lock it
 * wanted, and when it wanted, got and released it. So for any moment of the last seconds the log
 * has all tasks that can have held a lock.
 *
 * Locks are taken in the order of their numbers, so there is never a deadlock. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 4, ENTRIES = 128, LOCKS = 96, KINDS = 6, OWN = LOCKS / KINDS, NESTED = 3 };
enum kind { NORMAL, CHECKED, ROBUST, INHERITS, RWLOCK, FLOCK };

/* Times are of CLOCK_MONOTONIC in ns; 0: not yet. `want` is written last, and is 0 meanwhile. */
struct entry {
	_Atomic uint64_t want;		/* before the call that waits */
	_Atomic uint64_t lock;		/* its number, or END | the id of a thread or child */
	_Atomic uint64_t tid, pid;
	_Atomic uint64_t freed;		/* when the holder before began to give it back */
	_Atomic uint64_t got;		/* after that call */
	_Atomic uint64_t released;	/* after the call that gave it back */
	_Atomic uint64_t is_shared;	/* others can hold it at the same time, so it has no owner */
};
#define END (1ull << 32)

/* One task writes into a slot at a time. */
struct slot {
	_Atomic uint64_t count;
	uint64_t unused[7];
	struct entry entries[ENTRIES];
};

struct lock {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	_Atomic uint64_t freed;
};

static struct lock *locks;		/* shared; the last ones are for the processes' own mutexes */
static pthread_mutex_t own[OWN];	/* of this process alone */
static struct slot *slots;		/* one for each thread, then one for the tasks that it makes */
static atomic_int *running;
static int process, threads;
static const char *directory;

static uint64_t now(void)
{
	return (uint64_t)now_ns(CLOCK_MONOTONIC);
}

static struct entry *want(struct slot *slot, uint64_t lock, int is_shared)
{
	struct entry *e = &slot->entries[slot->count % ENTRIES];

	e->want = 0;
	e->freed = e->got = e->released = 0;
	e->lock = lock, e->is_shared = (uint64_t)is_shared;
	e->tid = (uint64_t)gettid(), e->pid = (uint64_t)getpid();
	e->want = now();
	slot->count++;
	return e;
}

static void pause_us(unsigned int *seed)
{
	int kind = rand_r(seed) % 10;

	if (kind == 0)
		usleep((unsigned int)(rand_r(seed) % 100000));
	else if (kind < 4)
		usleep((unsigned int)(rand_r(seed) % 2000));
	else
		for (volatile int i = rand_r(seed) % 20000; i > 0; i--)
			;
}

/* Takes locks from number `first` on, each inside of the previous one. */
static void take(struct slot *slot, unsigned int *seed, int first, int depth, int ends_with_it)
{
	int n = first + rand_r(seed) % (LOCKS - first), kind = n % KINDS, fd = -1, is_shared = 0;
	struct lock *lock = &locks[n];
	pthread_mutex_t *mutex = &lock->mutex;
	struct entry *e;

	/* A child of fork(2) has copies of these, which nobody would ever unlock. */
	if (kind == NORMAL && slot < slots + threads) {
		lock = &locks[LOCKS + process * OWN + n / KINDS];
		mutex = &own[n / KINDS];
	}
	if (kind == RWLOCK)
		is_shared = rand_r(seed) % 2;
	if (kind == FLOCK) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/lock-%d", directory, n);
		fd = must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	}
	e = want(slot, (uint64_t)(lock - locks), is_shared);
	if (kind == FLOCK)
		must(flock(fd, LOCK_EX));
	else if (kind == RWLOCK)
		is_shared ? pthread_rwlock_rdlock(&lock->rwlock) : pthread_rwlock_wrlock(&lock->rwlock);
	else if (pthread_mutex_lock(mutex) == EOWNERDEAD)
		pthread_mutex_consistent(mutex);
	e->freed = lock->freed;
	e->got = now();
	pause_us(seed);
	if (ends_with_it && kind == ROBUST)
		return;
	if (depth < NESTED && n + 1 < LOCKS && rand_r(seed) % 3 == 0)
		take(slot, seed, n + 1, depth + 1, 0);
	if (!is_shared)
		lock->freed = now();
	if (kind == FLOCK) {
		/* A child may have the same open file, so closing it does not unlock it. */
		must(flock(fd, LOCK_UN));
		close(fd);
	} else if (kind == RWLOCK) {
		pthread_rwlock_unlock(&lock->rwlock);
	} else {
		pthread_mutex_unlock(mutex);
	}
	e->released = now();
}

struct guest {
	struct slot *slot;
	unsigned int seed;
};

/* What a task does that another one waits for. */
static void *visit(void *arg)
{
	struct guest *g = arg;
	struct entry *e = want(g->slot, END | (uint64_t)gettid(), 0);

	e->got = e->want;
	pause_us(&g->seed);
	take(g->slot, &g->seed, 0, NESTED, rand_r(&g->seed) % 2);
	return NULL;
}

/* The last entries of a slot are of a task that has ended by now. */
static void ended(struct slot *slot, uint64_t from)
{
	for (uint64_t i = from; i < slot->count; i++)
		if (!slot->entries[i % ENTRIES].released)
			slot->entries[i % ENTRIES].released = now();
}

static void wait_for_end(struct slot *slot, struct slot *of, unsigned int *seed)
{
	struct guest guest = { of, (unsigned int)rand_r(seed) };
	uint64_t from = of->count;
	pthread_attr_t attr;
	struct entry *e;
	pthread_t t;

	if (rand_r(seed) % 4 == 0) {
		pid_t child = spawn();

		if (child == 0) {
			visit(&guest);
			_exit(0);
		}
		e = want(slot, END | (uint64_t)child, 1);
		must(waitpid(child, NULL, 0));
	} else {
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, 64 << 10);
		if (pthread_create(&t, &attr, visit, &guest))
			die("pthread_create: %m");
		pthread_attr_destroy(&attr);
		while (of->count == from)
			usleep(100);
		e = want(slot, of->entries[from % ENTRIES].lock, 1);
		pthread_join(t, NULL);
	}
	e->got = e->released = now();
	ended(of, from);
}

static void *live(void *arg)
{
	long n = (long)arg;
	unsigned int seed = (unsigned int)n * 7919 + 1;

	(*running)++;
	for (;;) {
		if (rand_r(&seed) % 20 == 0)
			wait_for_end(&slots[n], &slots[threads + n], &seed);
		else
			take(&slots[n], &seed, 0, 0, 0);
		pause_us(&seed);
	}
	return NULL;
}

static void init(struct lock *lock, int kind)
{
	pthread_mutexattr_t attr;
	pthread_rwlockattr_t shared;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (kind == CHECKED)
		pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	if (kind == ROBUST)
		pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (kind == INHERITS)
		pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lock->mutex, &attr);
	pthread_rwlockattr_init(&shared);
	pthread_rwlockattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	/* Otherwise so many readers would keep writers out for ever. */
	pthread_rwlockattr_setkind_np(&shared, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&lock->rwlock, &shared);
}

static void storm(int argc, char **argv)
{
	if (argc < 2)
		die("lock-storm DIRECTORY [THREADS]");
	directory = argv[1];
	threads = (int)arg_number(argc, argv, 2, 1000) / PROCESSES * PROCESSES;

	size_t log = sizeof(*slots) * 2 * (size_t)threads, all = LOCKS + PROCESSES * OWN;
	int fd = must(open(in_dir(directory, "log"), O_RDWR | O_CREAT | O_TRUNC, 0600));

	must(ftruncate(fd, (off_t)log));
	slots = mmap(NULL, log, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	locks = mmap(NULL, all * sizeof(*locks) + sizeof(*running), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (slots == MAP_FAILED || locks == MAP_FAILED)
		die("mmap: %m");
	close(fd);
	running = (atomic_int *)(locks + all);
	for (int i = 0; i < LOCKS; i++)
		init(&locks[i], i % KINDS);
	for (int i = 0; i < OWN; i++)
		pthread_mutex_init(&own[i], NULL);
	fact("pid", "%d", getpid());
	fact("threads", "%d", threads);
	fact("entries", "%d", ENTRIES);
	fact_item("pids", 1, getpid());
	for (int i = 1; i < PROCESSES; i++) {
		pid_t child = spawn();

		if (child == 0) {
			process = i;
			break;
		}
		fact_item("pids", 0, child);
	}
	for (long n = process; n < threads; n += PROCESSES)
		thread(live, (void *)n);
	if (process)
		forever();
	while (*running < threads)
		usleep(1000);
	hold();
}

const struct state storm_states[] = {
	{ "lock-storm", storm, "DIRECTORY [THREADS]: locks whose owners change all the time, with a log" },
	{ NULL, NULL, NULL },
};
