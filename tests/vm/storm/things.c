// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tasks that change their files, memory, user and cgroup, and tasks that leave the others little
 * time and memory. */
#include "storm.h"

static const char cgroup[] = "/sys/fs/cgroup";

static void files(int n)
{
	int fds[64];

	for (int i = 0; i < n; i++)
		fds[i] = open(rnd() % 2 ? "." : "/dev/null", O_RDONLY);
	for (int i = 0; i < n; i++)
		switch (rnd() % 4) {
		case 0: /* a larger table */
			dup2(fds[i], 100 + rnd() % 400);
			break;
		case 1:
			dup2(fds[rnd() % n], fds[i]);
			break;
		default:
			close(fds[i]);
		}
}

static void memory(int fd)
{
	char *maps[24];
	size_t page = 4096;

	for (int i = 0; i < 24; i++) {
		size_t size = (1 + rnd() % 8) * page;

		maps[i] = mmap(NULL, size, PROT_READ, MAP_PRIVATE | (rnd() % 2 ? MAP_ANONYMOUS : 0), fd, 0);
		if (maps[i] == MAP_FAILED)
			die("mmap");
	}
	for (int i = 0; i < 24; i++)
		switch (rnd() % 3) {
		case 0:
			mremap(maps[i], page, page * (1 + rnd() % 16), MREMAP_MAYMOVE);
			break;
		case 1:
			mprotect(maps[i], page, PROT_NONE);
			break;
		default:
			munmap(maps[i], page);
		}
}

static void *busy(void *arg)
{
	while (going())
		files(1 + rnd() % 8);
	return arg;
}

/* Processes and threads with files and memory of their own or of others. */
long things(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	long rounds = 0;

	if (fd < 0)
		die("/proc/self/exe");
	for (; going(); rounds++) {
		for (int i = 0; i < 4; i++)
			if (child(rnd() % 2 ? CLONE_FILES : 0) == 0) {
				pthread_t t;

				if (rnd() % 4 == 0)
					pthread_create(&t, NULL, busy, NULL);
				for (int n = rnd() % 8; n > 0; n--) {
					memory(fd);
					if (rnd() % 4 == 0)
						unshare(CLONE_FILES);
					files(1 + rnd() % 64);
					if (rnd() % 4 == 0 && setresuid(-1, rnd() % 2 ? 1000 : 0, -1))
						die("setresuid");
					usleep(rnd() % 500);
				}
				_exit(0);
			}
		while (waitpid(-1, NULL, __WALL) > 0)
			continue;
		/* A task that shared our table of files has changed it. */
		syscall(SYS_close_range, 3, ~0U, 0);
		fd = open("/proc/self/exe", O_RDONLY);
	}
	return rounds;
}

/* Cgroups that are made, joined, left and removed. */
long cgroups(void)
{
	char path[2][64], procs[2][96];
	long rounds = 0;

	snprintf(procs[0], sizeof(procs[0]), "%s/cgroup.procs", cgroup);
	if (access(procs[0], W_OK))
		return -2;
	for (; going(); rounds++) {
		for (int i = 0; i < 2; i++) {
			snprintf(path[i], sizeof(path[i]), "%s/storm-x-%d", cgroup, i);
			snprintf(procs[i], sizeof(procs[i]), "%s/cgroup.procs", path[i]);
			if (mkdir(path[i], 0755) && errno != EEXIST)
				die(path[i]);
		}
		for (int i = 0; i < 6; i++)
			if (child(0) == 0) {
				for (int n = rnd() % 8; n > 0; n--) {
					int fd = open(procs[rnd() % 2], O_WRONLY);

					if (fd < 0 || write(fd, "0", 1) != 1)
						die("moving to a cgroup");
					close(fd);
					usleep(rnd() % 500);
				}
				_exit(0);
			}
		while (waitpid(-1, NULL, __WALL) > 0)
			continue;
		rmdir(path[0]);
		rmdir(path[1]);
	}
	return rounds;
}

/* Leaves little time for the others. */
long processor(void)
{
	static volatile uint64_t count;
	long rounds = 0;

	for (; going(); rounds++)
		for (int i = 0; i < 10000000; i++)
			count += i;
	return rounds;
}

/* Leaves little memory for the others. */
long hunger(void)
{
	enum { SIZE = 128 << 20 };
	long rounds = 0;

	for (; going(); rounds++) {
		char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED)
			die("mmap");
		for (size_t i = 0; i < SIZE && going(); i += 4096)
			m[i] = 1;
		munmap(m, SIZE);
	}
	return rounds;
}
