// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a list of all processes costs an ordinary user, by the files of /proc and by PROC_TASKS.
 *
 * Usage: proc_tasks [ROUNDS [PROCESSES...]]     (5, 10000 and 50000)
 *
 * lab: send task-ioctl
 * lab: memory 8192
 * lab: timeout 1800
 * lab: instructions 3 10000
 * lab: taskdiag always
 *
 * Rows are "case<TAB>n<TAB>value_ns<TAB>system calls", medians of the rounds, which alternate between
 * /proc and PROC_TASKS; n is the number of idle processes, beside which a few others are there:
 *  - list_proc, list_ioctl: pid, ppid, state, name, uid, times, start and resident memory of all
 *    processes: by getdents, and open, read and close of stat, status and statm of each, as ps does,
 *    parsed; and by BASE, CRED, STAT and STATM;
 *  - stat_proc, stat_ioctl: the same without uid, by stat alone, and by BASE and STAT;
 *  - args_proc, args_ioctl: pid and command line, by cmdline, and by CMDLINE;
 *  - ps_procps, ps_procfs, ps_ioctl: whole commands, whose output is thrown away: `ps -e` of procps, and
 *    `taskdiag ps -e` by the engine procfs and by the engine kernel; system calls 0: not counted. Where
 *    one of the programs is not there, these rows are left out.
 *
 * Both ways of a case must find the same processes with the same values, or nothing is measured.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <linux/proc_tasks.h>
#include "bench.h"

#define ROUNDS_MAX 101
#define USER 1000

static unsigned long syscalls;

/* What was seen of processes with a parent, so that kernel threads and those that come and go do not count. */
struct seen {
	uint64_t processes;
	uint64_t sum;
};

static pid_t load;	/* whose children are counted */
static int root;
static char buf[256 << 10], text[8192];

static void add(struct seen *s, uint64_t pid, uint64_t ppid, uint64_t state, const void *comm, size_t len,
		uint64_t uid, uint64_t start_ns)
{
	uint64_t sum = 0;

	if (ppid != (uint64_t)load)
		return;
	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + ((const uint8_t *)comm)[i];
	s->processes++;
	s->sum += sum + pid * 7 + state + uid + start_ns / 1000000;
}

static volatile uint64_t sink;

/* ---- /proc ---- */

static long slurp(const char *pid, const char *name)
{
	char path[64];
	long n;
	int fd;

	snprintf(path, sizeof(path), "%.20s/%s", pid, name);
	fd = openat(root, path, O_RDONLY);
	syscalls++;
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	syscalls += 2;
	text[n > 0 ? n : 0] = 0;
	return n;
}

static void by_files(struct seen *s, bool all, bool args)
{
	uint64_t tick = 1000000000 / sysconf(_SC_CLK_TCK);
	char *at = buf;
	long have = 0;

	lseek(root, 0, SEEK_SET);
	syscalls++;
	for (;;) {
		struct dirent64 *e = (void *)at;
		uint64_t uid = 0, f[25] = { 0 };
		char comm[64], *p, *end;
		char state;
		size_t len;

		if (at >= buf + have) {
			have = getdents64(root, buf, sizeof(buf));
			syscalls++;
			if (have <= 0)
				return;
			at = buf;
			continue;
		}
		at += e->d_reclen;
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		if (args) {
			long n = slurp(e->d_name, "cmdline");

			add(s, atol(e->d_name), n > 0 ? load : 0, 0, text, n > 0 ? n : 0, 0, 0);
			continue;
		}
		if (slurp(e->d_name, "stat") <= 0)
			continue;
		p = strchr(text, '(');
		end = strrchr(text, ')');
		if (!p || !end)
			errx(1, "stat of %s", e->d_name);
		len = end - p - 1;
		memcpy(comm, p + 1, len < sizeof(comm) ? len : sizeof(comm));
		state = end[2];
		p = end + 3;
		for (int i = 4; i <= 24; i++)
			f[i] = strtoull(p, &p, 10);
		if (all) {
			if (slurp(e->d_name, "status") <= 0)
				continue;
			p = strstr(text, "\nUid:");
			uid = p ? strtoull(p + 5, NULL, 10) : 0;
			if (slurp(e->d_name, "statm") <= 0)
				continue;
			strtoull(text, &p, 10);
			sink += strtoull(p, NULL, 10);
		}
		sink += f[14] + f[15];
		add(s, atol(e->d_name), f[4], state, comm, len, uid, f[22] * tick);
	}
}

/* ---- PROC_TASKS ---- */

static void by_ioctl(struct seen *s, uint64_t mask)
{
	struct proc_tasks_req r = { .mask = mask, .buf = (uintptr_t)buf, .buf_size = sizeof(buf) };

	do {
		syscalls++;
		if (ioctl(root, PROC_TASKS, &r) < 0)
			err(1, "PROC_TASKS");
		for (uint32_t at = 0; at < r.buf_used;) {
			struct proc_task *t = (void *)buf + at;
			struct proc_task_base *b = NULL;
			struct proc_task_cred *c = NULL;

			for (uint32_t in = sizeof(*t); in < t->size;) {
				struct proc_task_part *part = (void *)t + in;
				struct proc_task_stat *stat = (void *)part;
				struct proc_task_statm *statm = (void *)part;
				struct proc_task_cmdline *line = (void *)part;

				switch (part->type) {
				case PROC_TASKS_BASE:
					b = (void *)part;
					break;
				case PROC_TASKS_CRED:
					c = (void *)part;
					break;
				case PROC_TASKS_STAT:
					sink += stat->utime_ns + stat->stime_ns;
					break;
				case PROC_TASKS_STATM:
					sink += statm->resident_pages;
					break;
				case PROC_TASKS_CMDLINE:
					if (line->text_size)
						add(s, t->pid, load, 0, line->text, line->text_size, 0, 0);
					break;
				}
				in += part->size;
			}
			if (b)
				add(s, t->pid, b->ppid, b->state, b->comm, strlen((char *)b->comm), c ? c->ruid : 0,
				    b->start_ns);
			at += t->size;
		}
	} while (r.pid);
}

/* ---- cases ---- */

static void list_proc(struct seen *s)
{
	by_files(s, true, false);
}

static void list_ioctl(struct seen *s)
{
	by_ioctl(s, PROC_TASKS_BASE | PROC_TASKS_CRED | PROC_TASKS_STAT | PROC_TASKS_STATM);
}

static void stat_proc(struct seen *s)
{
	by_files(s, false, false);
}

static void stat_ioctl(struct seen *s)
{
	by_ioctl(s, PROC_TASKS_BASE | PROC_TASKS_STAT);
}

static void args_proc(struct seen *s)
{
	by_files(s, false, true);
}

static void args_ioctl(struct seen *s)
{
	by_ioctl(s, PROC_TASKS_CMDLINE);
}

static const struct {
	const char *name;
	void (*job)(struct seen *s);
} cases[][2] = {
	{ { "list_proc", list_proc }, { "list_ioctl", list_ioctl } },
	{ { "stat_proc", stat_proc }, { "stat_ioctl", stat_ioctl } },
	{ { "args_proc", args_proc }, { "args_ioctl", args_ioctl } },
};

static void measure(long n, int rounds)
{
	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		uint64_t ns[2][ROUNDS_MAX];
		unsigned long calls[2];
		struct seen seen[2];

		for (int i = -1; i < rounds; i++) { /* the first one warms up */
			for (int way = 0; way < 2; way++) {
				uint64_t start = now_ns();

				memset(&seen[way], 0, sizeof(seen[way]));
				syscalls = 0;
				cases[c][way].job(&seen[way]);
				if (i >= 0)
					ns[way][i] = now_ns() - start;
				calls[way] = syscalls;
			}
			if (memcmp(&seen[0], &seen[1], sizeof(*seen)) || seen[0].processes < (uint64_t)n)
				errx(1, "%s: %llu processes, and %llu by the other way, or other values", cases[c][0].name,
				     (unsigned long long)seen[0].processes, (unsigned long long)seen[1].processes);
		}
		for (int way = 0; way < 2; way++) {
			qsort(ns[way], rounds, sizeof(ns[way][0]), by_value);
			printf("%s\t%ld\t%llu\t%lu\n", cases[c][way].name, n, (unsigned long long)ns[way][rounds / 2],
			       calls[way]);
		}
		fflush(stdout);
	}
}

/* ---- commands ---- */

static bool runs(char *const argv[])
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		dup2(open("/dev/null", O_WRONLY), 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static void measure_commands(long n, int rounds)
{
	static const char *const names[] = { "ps_procps", "ps_procfs", "ps_ioctl" };
	static char *const commands[][6] = {
		{ "/usr/bin/ps", "-e" },	/* not busybox's, which is another program */
		{ "taskdiag", "ps", "-e", "--engine", "procfs" },
		{ "taskdiag", "ps", "-e", "--engine", "kernel" },
	};
	uint64_t ns[3][ROUNDS_MAX];

	for (int i = -1; i < rounds; i++) {
		for (int way = 0; way < 3; way++) {
			uint64_t start = now_ns();

			if (!runs(commands[way])) {
				fprintf(stderr, "%s is not measured: it does not work\n", names[way]);
				return;
			}
			if (i >= 0)
				ns[way][i] = now_ns() - start;
		}
	}
	for (int way = 0; way < 3; way++) {
		qsort(ns[way], rounds, sizeof(ns[way][0]), by_value);
		printf("%s\t%ld\t%llu\t0\n", names[way], n, (unsigned long long)ns[way][rounds / 2]);
	}
	fflush(stdout);
}

static void one(long n, int rounds)
{
	struct load processes = start(n, 1);
	pid_t pid = fork();
	int status;

	if (!pid) {
		load = processes.parent;
		if (setgroups(0, NULL) || setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
			err(1, "no other user");
		measure(n, rounds);
		measure_commands(n, rounds);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	stop(processes);
	if (status)
		errx(1, "nothing was measured");
}

int main(int argc, char **argv)
{
	struct proc_tasks_req r = { 0 };
	int rounds = argc > 1 ? atoi(argv[1]) : 5;

	if (rounds < 1 || rounds > ROUNDS_MAX)
		errx(2, "usage: proc_tasks [ROUNDS [PROCESSES...]]");
	root = open("/proc", O_RDONLY | O_DIRECTORY);
	if (root < 0 || ioctl(root, PROC_TASKS, &r)) {
		printf("this kernel has no PROC_TASKS\n");
		return 4;
	}
	if (argc < 3) {
		one(10000, rounds);
		one(50000, rounds);
	}
	for (int i = 2; i < argc; i++)
		one(atol(argv[i]), rounds);
	return 0;
}
