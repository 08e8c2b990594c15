// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What /proc/task_diag costs against /proc, as in the mail that proposed it.
 *
 * Usage: task_diag [PROCESSES [THREADED [ROUNDS [LISTED]]]]     (30000, 10000, 5 and 50089)
 *
 * lab: memory 8192
 * lab: timeout 1800
 * lab: instructions 30000 10000 3
 * lab: uml 30000 10000 5
 * lab: taskdiag yes
 *
 * Rows are "case<TAB>n<TAB>value_ns<TAB>system calls", medians of the rounds; n is
 * the number of processes:
 *  - stat_proc, stat_task_diag: STAT of PROCESSES and of LISTED processes, by open, read and close of
 *    each /proc/PID/stat, and by one request for all of its members;
 *  - ps_procps, ps_dropin, ps_taskdiag: whole commands with LISTED processes, output
 *    thrown away: `ps ax -o pid,ppid`, the same program with the drop-in for its
 *    library, and `taskdiag ps -o pid,ppid`, both on the kernel engine; system calls
 *    0: not counted;
 *  - maps_proc, maps_task_diag: names and parents of all threads, and the mappings
 *    of all processes, with THREADED processes of 5 threads each: read and parsed
 *    from status and maps, as perf does, and by one request;
 *  - all_task_diag: all groups of all these threads, only counted.
 *
 * "case:allocations" is how often the kernel allocated for one such reading (events
 * kmem:kmalloc and kmem:kmem_cache_alloc of the process that reads), "case:kept" how many
 * bytes of kernel memory are accounted to it at the end of the answer, its file still open:
 * buffers, or the inodes and dentries of what was read.
 *
 * A row that cannot be measured here (no task_diag, no ps) is left out, with a message.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"
#include "task_diag.h"

#define FILE_NAME "/proc/task_diag"
#define ROUNDS_MAX 101

static unsigned long syscalls;

static void measure(const char *name, long n, int rounds, bool (*job)(void))
{
	uint64_t ns[ROUNDS_MAX];

	for (int i = -1; i < rounds; i++) {
		uint64_t start = now_ns();

		syscalls = 0;
		if (!job()) {
			fprintf(stderr, "%s: cannot be measured here\n", name);
			return;
		}
		if (i >= 0) /* the first one warms up */
			ns[i] = now_ns() - start;
	}
	qsort(ns, rounds, sizeof(ns[0]), by_value);
	printf("%s\t%ld\t%llu\t%lu\n", name, n, (unsigned long long)ns[rounds / 2], syscalls);
	fflush(stdout);
}

/* ---- allocations of the kernel ---- */

#define GROUP "/sys/fs/cgroup/reader"

/* The path at which the file of an answer is kept to be inspected before it is closed. */
static int *leave_open;

/* The number after a word in a file. */
static long number_in(const char *path, const char *word)
{
	char line[256];
	long n = -1;
	FILE *f = fopen(path, "r");

	while (f && n < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, word, strlen(word)))
			n = atol(line + strlen(word));
	if (n < 0)
		err(1, "%s has no %s", path, word);
	fclose(f);
	return n;
}

static void put(const char *path, const char *words)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, words, strlen(words)) < 0)
		err(1, "%s", path);
	close(fd);
}

/* Counts an event of this process from now on. */
static int event(const char *name)
{
	char path[96];
	struct perf_event_attr attr = { .type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr) };
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/tracing/events/kmem/%s/id", name);
	attr.config = number_in(path, "");
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		err(1, "perf_event_open of %s", name);
	return fd;
}

static uint64_t counted(int fd)
{
	uint64_t n;

	if (ioctl(fd, PERF_EVENT_IOC_DISABLE, 0) || read(fd, &n, sizeof(n)) != sizeof(n))
		err(1, "an event");
	close(fd);
	return n;
}

/* Kernel memory of the reader's group. It is summed up every two seconds. */
static long kernel_memory(void)
{
	sleep(3);
	return number_in(GROUP "/memory.stat", "kernel ");
}

/* This runs in a separate process and cgroup, without the inodes of earlier readings. */
static void count(const char *name, long n, bool (*job)(void))
{
	int file = -1, status;
	pid_t pid;

	if (access("/sys/kernel/tracing", F_OK)) {
		fprintf(stderr, "%s: this kernel has no events to count\n", name);
		return;
	}
	if (access("/sys/kernel/tracing/events", F_OK) &&
	    mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL))
		err(1, "tracefs");
	put("/proc/sys/vm/drop_caches", "2");
	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(GROUP, 0755))
		err(1, GROUP);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		int kmalloc, cache;
		long before;

		put(GROUP "/cgroup.procs", "0");
		leave_open = &file;
		before = kernel_memory();
		kmalloc = event("kmalloc");
		cache = event("kmem_cache_alloc");
		if (!job())
			_exit(4);
		printf("%s:allocations\t%ld\t%llu\n", name, n,
		       (unsigned long long)(counted(kmalloc) + counted(cache)));
		printf("%s:kept\t%ld\t%ld\n", name, n, kernel_memory() - before);
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || (status && WEXITSTATUS(status) != 4))
		errx(1, "%s: not counted", name);
	if (rmdir(GROUP))
		err(1, GROUP);
}

/* ---- /proc ---- */

static char text[1 << 20];

static long slurp(int dir, const char *path)
{
	long len = 0, n;
	int fd = openat(dir, path, O_RDONLY);

	syscalls++;
	if (fd < 0)
		return -1;
	do {
		n = read(fd, text + len, sizeof(text) - 1 - len);
		syscalls++;
		len += n > 0 ? n : 0;
	} while (n > 0 && len < 4096 * 4);
	text[len] = 0;
	close(fd);
	syscalls++;
	return len;
}

static bool stat_proc(void)
{
	char path[64], buf[4096];
	DIR *dir = opendir("/proc");
	struct dirent *e;

	while ((e = readdir(dir))) {
		int fd;

		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/stat", e->d_name);
		fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		if (read(fd, buf, sizeof(buf)) < 0)
			err(1, "%s", path);
		close(fd);
		syscalls += 3;
	}
	closedir(dir);
	return true;
}

static bool maps_proc(void)
{
	static unsigned long sum;
	DIR *dir = opendir("/proc"), *tasks;
	struct dirent *e, *t;
	char path[96];

	while ((e = readdir(dir))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/task", e->d_name);
		tasks = opendir(path);
		syscalls += 5;
		if (!tasks)
			continue;
		while ((t = readdir(tasks))) {
			char *name, *tgid, *ppid;

			if (t->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%.20s/status", t->d_name);
			if (slurp(dirfd(tasks), path) < 0)
				continue;
			name = strstr(text, "Name:");
			tgid = strstr(text, "Tgid:");
			ppid = strstr(text, "PPid:");
			if (name && tgid && ppid)
				sum += strtoul(tgid + 5, NULL, 10) + strtoul(ppid + 5, NULL, 10);
		}
		closedir(tasks);
		snprintf(path, sizeof(path), "/proc/%.20s/maps", e->d_name);
		if (slurp(AT_FDCWD, path) < 0)
			continue;
		for (char *line = text; line && *line; line = strchr(line, '\n'), line += !!line) {
			unsigned long start, end, offset, inode;
			unsigned int major, minor;
			char prot[5], file[4096] = "";

			if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %4095s", &start, &end, prot,
				   &offset, &major, &minor, &inode, file) >= 7)
				sum += end - start;
		}
	}
	closedir(dir);
	return true;
}

/* ---- task_diag ---- */

static bool ask(uint64_t groups, uint64_t strategy)
{
	struct {
		struct nlmsghdr h;
		struct task_diag_req r;
	} q = {
		.h = { .nlmsg_len = sizeof(q), .nlmsg_type = TASK_DIAG_CMD_GET },
		.r = { .show_flags = groups, .dump_strategy = strategy },
	};
	int fd = open(FILE_NAME, O_RDWR);
	struct nlmsghdr *last = NULL;
	long n, tasks = 0;

	syscalls += 3;
	if (fd < 0 || write(fd, &q, sizeof(q)) != sizeof(q)) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	/* A message is never in two buffers that are multiples of the kernel's own. */
	static char buf[1 << 20], left[1 << 17];
	size_t kept = 0;

	while ((n = read(fd, buf + kept, sizeof(buf) - kept)) > 0) {
		char *p = buf;
		size_t all = kept + n;

		syscalls++;
		while (all - (p - buf) >= sizeof(*last)) {
			struct nlmsghdr *h = (void *)p;

			if (h->nlmsg_len < sizeof(*h))
				errx(1, "a message of %u bytes", h->nlmsg_len);
			if (h->nlmsg_len > all - (p - buf))
				break;
			tasks += h->nlmsg_type == TASK_DIAG_MSG_TASK;
			last = h;
			p += h->nlmsg_len;
		}
		if (last && last->nlmsg_type == NLMSG_DONE)
			break;
		kept = all - (p - buf);
		if (kept > sizeof(left))
			errx(1, "a message is longer than the kernel's buffer");
		memcpy(left, p, kept);
		memcpy(buf, left, kept);
	}
	if (n <= 0 || !tasks)
		errx(1, "an answer without DONE or tasks");
	if (leave_open)
		*leave_open = fd;
	else
		close(fd);
	return true;
}

static bool stat_task_diag(void)
{
	return ask(1ull << TASK_DIAG_STAT, TASK_DIAG_DUMP_ALL);
}

static bool maps_task_diag(void)
{
	return ask(1ull << TASK_DIAG_BASE | 1ull << TASK_DIAG_VMA, TASK_DIAG_DUMP_ALL_THREAD);
}

/* The readings nearest to a dump of everything: each thread, each mapping measured, each open file.
 */
static bool all_task_diag(void)
{
	static const int groups[] = {
		TASK_DIAG_BASE, TASK_DIAG_CRED,	    TASK_DIAG_STAT,    TASK_DIAG_STATM, TASK_DIAG_VMA,
		TASK_DIAG_VMA_STAT, TASK_DIAG_CMDLINE, TASK_DIAG_PATHS, TASK_DIAG_IO, TASK_DIAG_SCHED,
		TASK_DIAG_NS,	TASK_DIAG_CGROUP,   TASK_DIAG_FD,
	};
	uint64_t flags = 0;

	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		flags |= 1ull << groups[i];
	return ask(flags, TASK_DIAG_DUMP_ALL_THREAD);
}

/* ---- commands ---- */

static bool command(char *const argv[])
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

static bool ps_procps(void)
{
	/* not busybox's, which is another program */
	char *const argv[] = { "/usr/bin/ps", "ax", "-o", "pid,ppid", NULL };

	return command(argv);
}

/* ps with the drop-in, which must not have passed anything on to the real library. */
static bool ps_dropin(void)
{
	char *const argv[] = { "taskdiag", "run", "--", "/usr/bin/ps", "ax", "-o", "pid,ppid", NULL };
	char said[4096];
	size_t have = 0;
	ssize_t n;
	int fds[2], status;
	pid_t pid;

	if (access(FILE_NAME, F_OK) || !getenv("TASKDIAG_PROCPS_LIB"))
		return false;
	if (pipe(fds))
		err(1, "pipe");
	pid = fork();
	if (!pid) {
		setenv("TASKDIAG_ENGINE", "kernel", 1);
		setenv("TASKDIAG_STATS", "1", 1);
		dup2(open("/dev/null", O_WRONLY), 1);
		dup2(fds[1], 2);
		close(fds[0]);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	while ((n = read(fds[0], said + have, sizeof(said) - 1 - have)) > 0)
		have += n;
	said[have] = 0;
	close(fds[0]);
	waitpid(pid, &status, 0);
	if (status || !strstr(said, "calls answered: 1") || !strstr(said, "from kernel"))
		errx(1, "ps with the drop-in: status %d: %s", status, said);
	return true;
}

static bool ps_taskdiag(void)
{
	char *const argv[] = { "taskdiag", "ps", "--engine", "kernel", "-o", "pid,ppid", NULL };

	return access(FILE_NAME, F_OK) == 0 && command(argv);
}

int main(int argc, char **argv)
{
	long processes = argc > 1 ? atol(argv[1]) : 30000;
	long threaded = argc > 2 ? atol(argv[2]) : 10000;
	int rounds = argc > 3 ? atoi(argv[3]) : 5;
	long listed = argc > 4 ? atol(argv[4]) : 50089;
	struct load load;

	if (processes < 1 || threaded < 1 || rounds < 1 || rounds > ROUNDS_MAX || listed < 1)
		errx(2, "usage: task_diag [PROCESSES [THREADED [ROUNDS [LISTED]]]]");
	load = start(processes, 1);
	measure("stat_proc", processes, rounds, stat_proc);
	measure("stat_task_diag", processes, rounds, stat_task_diag);
	count("stat_proc", processes, stat_proc);
	count("stat_task_diag", processes, stat_task_diag);
	stop(load);
	load = start(listed, 1);
	measure("stat_proc", listed, rounds, stat_proc);
	measure("stat_task_diag", listed, rounds, stat_task_diag);
	measure("ps_procps", listed, rounds, ps_procps);
	measure("ps_dropin", listed, rounds, ps_dropin);
	measure("ps_taskdiag", listed, rounds, ps_taskdiag);
	stop(load);
	load = start(threaded, 5);
	measure("maps_proc", threaded, rounds, maps_proc);
	measure("maps_task_diag", threaded, rounds, maps_task_diag);
	count("maps_proc", threaded, maps_proc);
	count("maps_task_diag", threaded, maps_task_diag);
	count("all_task_diag", threaded, all_task_diag);
	stop(load);
	return 0;
}
