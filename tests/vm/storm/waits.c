// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tasks that wait for locks of the kernel and of each other, and holders that end meanwhile. */
#include "storm.h"

#include <sys/file.h>

enum { LOCKS = 6, TASKS = 6 };

struct shared {
	pthread_mutex_t inherits[LOCKS];	/* a waiter is boosted through the kernel's rt_mutex */
	int pipes[2];
};

/* Takes a lock once. Returns whether this task now has to end with it. If it took another one, two
 * tasks could wait for each other for ever. */
static int holds(struct shared *s)
{
	static char bytes[3 * 4096];
	char name[2][32], path[PATH_MAX];
	pthread_mutex_t *mutex = &s->inherits[rnd() % LOCKS];
	int fd;

	switch (rnd() % 5) {
	case 0:
		if (pthread_mutex_lock(mutex) == EOWNERDEAD)
			pthread_mutex_consistent(mutex);
		usleep(rnd() % 300);
		if (rnd() % 4 == 0)
			return 1;
		pthread_mutex_unlock(mutex);
		break;
	case 1: /* the lock of a pipe, which is full now and then */
		if (write(s->pipes[1], bytes, 1 + rnd() % sizeof(bytes)) < 0 && errno != EAGAIN)
			die("write to a pipe");
		if (read(s->pipes[0], bytes, 1 + rnd() % sizeof(bytes)) < 0 && errno != EAGAIN)
			die("read from a pipe");
		break;
	case 2: /* the lock of a directory */
		for (int i = 0; i < 2; i++)
			snprintf(name[i], sizeof(name[i]), "waits-%d", (int)(rnd() % 4));
		fd = open(name[0], O_CREAT | O_RDWR, 0600);
		rename(name[0], name[1]);
		unlink(name[0]);
		if (fd >= 0)
			close(fd);
		break;
	case 3: /* the lock of an address space, with threads that fault */
		for (int n = rnd() % 8; n > 0; n--) {
			size_t size = (1 + rnd() % 32) * 4096;
			char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (m == MAP_FAILED)
				die("mmap");
			memset(m, 1, size);
			munmap(m, size);
		}
		break;
	default:
		snprintf(path, sizeof(path), "%s/waits-lock-%d", base, (int)(rnd() % 2));
		fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
		if (fd < 0)
			die(path);
		flock(fd, LOCK_EX);
		usleep(rnd() % 300);
		close(fd);
	}
	return 0;
}

static void *holds_often(void *arg)
{
	for (int n = rnd() % 16; n > 0; n--)
		if (holds(arg))
			return arg;
	return NULL;
}

long waits(void)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attr;
	long rounds = 0;

	if (s == MAP_FAILED)
		die("mmap");
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	for (int i = 0; i < LOCKS; i++)
		if (pthread_mutex_init(&s->inherits[i], &attr))
			die("pthread_mutex_init");
	if (syscall(SYS_pipe2, s->pipes, O_NONBLOCK | O_CLOEXEC))
		die("pipe2");
	for (; going(); rounds++) {
		for (int i = 0; i < TASKS; i++)
			if (child(0) == 0) {
				pthread_t t[4];
				int n = 1 + rnd() % 4;

				/* The C library does not know the number of the task that child() makes, so
				 * that one takes none. */
				for (int k = 0; k < n; k++)
					pthread_create(&t[k], NULL, holds_often, s);
				/* Otherwise, the threads end wherever they are, with what they hold. */
				if (rnd() % 4)
					for (int k = 0; k < n; k++)
						pthread_join(t[k], NULL);
				else
					usleep(rnd() % 1000);
				_exit(0);
			}
		while (waitpid(-1, NULL, __WALL) > 0)
			continue;
	}
	return rounds;
}
