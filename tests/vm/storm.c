// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Storms of tasks that come, go and change, while readers look at them by every way there is: for the debugging
 * kernel, whose checks tell what went wrong. Bounded in time; everything it starts ends with it.
 *
 * usage: storm SECONDS SEED
 * Prints the seed and how often each part went round; exit code 1 where a part never did, or a read gave what cannot be.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "task_diag.h"

static uint64_t state;
static time_t end;

static uint64_t rnd(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

static int going(void)
{
	return time(NULL) < end;
}

static void *nap(void *arg)
{
	usleep((uintptr_t)arg);
	return NULL;
}

static void *exec_from_thread(void *arg)
{
	char *argv[] = { "storm", "--nothing", NULL };

	execv("/proc/self/exe", argv);
	return arg;
}

/* One short life, of one of many kinds. */
static void live(void)
{
	pthread_t t[8];
	int n = rnd() % 8, fd;

	switch (rnd() % 11) {
	case 0: { /* another program in our place */
		char *argv[] = { "storm", "--nothing", NULL };

		execv("/proc/self/exe", argv);
		break;
	}
	case 1: /* the exec comes from a thread, which takes the leader's pid */
		pthread_create(&t[0], NULL, exec_from_thread, NULL);
		pause();
		break;
	case 2: /* the leader goes first */
		for (int i = 0; i < n; i++)
			pthread_create(&t[i], NULL, nap, (void *)(uintptr_t)(rnd() % 3000));
		syscall(SYS_exit, 0);
		break;
	case 3: /* files of one's own, then changed */
		for (int i = 0; i < n; i++)
			pthread_create(&t[i], NULL, nap, (void *)(uintptr_t)(rnd() % 3000));
		unshare(CLONE_FILES | CLONE_FS);
		for (int i = 0; i < 50; i++) {
			fd = open("/dev/null", O_RDONLY);
			if (rnd() % 2)
				close(fd);
		}
		break;
	case 4: /* namespaces */
		unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC);
		if (fork() == 0) {
			if (mount("proc", "/proc", "proc", 0, rnd() % 2 ? "hidepid=2" : NULL) == 0)
				fd = open("/proc/self/stat", O_RDONLY);
			_exit(0);
		}
		wait(NULL);
		break;
	case 5: /* a user namespace, a session, another user */
		if (rnd() % 2)
			unshare(CLONE_NEWUSER);
		else if (setuid(1000 + rnd() % 5))
			break;
		setsid();
		break;
	case 6: /* an orphan, with children of its own */
		for (int i = 0; i < n; i++)
			if (fork() == 0) {
				usleep(rnd() % 2000);
				_exit(0);
			}
		break;
	case 7: { /* memory, mapped and gone, some of it swapped where there is swap */
		size_t size = (1 + rnd() % 64) * 65536;
		char *m = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       (rnd() % 2 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED)
			break;
		for (size_t i = 0; i < size; i += 4096)
			m[i] = 1;
		madvise(m, size, MADV_PAGEOUT);
		mprotect(m + size / 2, 4096, PROT_READ);
		munmap(m, size / 4);
		break;
	}
	case 8: { /* names */
		char name[16] = { 0 };

		for (int i = 0; i < 15; i++)
			name[i] = rnd();
		prctl(PR_SET_NAME, name);
		break;
	}
	case 9: { /* rights that go as soon as they are there, with few groups and many */
		gid_t groups[64];

		for (int i = 0; i < 64; i++)
			groups[i] = 1000 + rnd() % 1000;
		for (int i = 0; i < 100; i++)
			setgroups(1 + rnd() % 64, groups);
		break;
	}
	default:
		usleep(rnd() % 1000);
	}
	_exit(0);
}

/* Forks, and waits in every way there is. */
static long forks(void)
{
	long rounds = 0;

	for (; going(); rounds++) {
		int n = 1 + rnd() % 12;
		pid_t last = 0, group = 0;
		siginfo_t info;

		for (int i = 0; i < n; i++) {
			uint64_t seed = rnd();
			pid_t pid = fork();

			if (pid == 0) {
				state = seed | 1;
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (rnd() % 4 == 0)
					setpgid(0, 0);
				if (rnd() % 8 == 0)
					raise(SIGSTOP);
				live();
			}
			if (pid > 0) {
				last = pid;
				group = rnd() % 4 ? group : pid;
			}
		}
		for (int tries = 0; tries < 400; tries++) {
			pid_t pid;

			kill(-getpgrp(), SIGCONT);
			switch (rnd() % 6) {
			case 0:
				pid = waitpid(-1, NULL, WNOHANG | WUNTRACED | WCONTINUED);
				break;
			case 1:
				waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
				pid = waitpid(-1, NULL, WNOHANG | __WALL);
				break;
			case 2:
				pid = waitpid(last, NULL, WNOHANG | __WALL);
				break;
			case 3:
				pid = waitpid(group ? -group : 0, NULL, WNOHANG);
				if (pid < 0)
					pid = 0;
				break;
			case 4:
				pid = waitpid(-1, NULL, WNOHANG | __WNOTHREAD);
				break;
			default:
				pid = waitpid(-1, NULL, WNOHANG | __WCLONE);
				pid = 0;
			}
			if (pid < 0 && errno == ECHILD && waitpid(-1, NULL, WNOHANG | __WALL) < 0)
				break;
			if (pid == 0)
				usleep(200);
		}
	}
	return rounds;
}

/* Traces: attach, stop, wait, step, let go or kill. */
static long traces(void)
{
	long rounds = 0;

	for (; going(); rounds++) {
		pid_t kids[16];
		int status;

		for (int i = 0; i < 16; i++) {
			kids[i] = fork();
			if (kids[i] == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (i % 2)
					ptrace(PTRACE_TRACEME);
				for (int k = 0; k < 20; k++) {
					raise(i % 2 ? SIGSTOP : SIGUSR1);
					usleep(500);
				}
				_exit(0);
			}
			if (i % 2 == 0)
				ptrace(PTRACE_SEIZE, kids[i], 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXIT);
		}
		for (int n = 0; n < 200; n++) {
			pid_t pid = waitpid(rnd() % 4 ? -1 : kids[rnd() % 16], &status, __WALL | WNOHANG);

			if (pid <= 0) {
				if (pid < 0 && errno == ECHILD)
					break;
				usleep(100);
			} else if (WIFSTOPPED(status)) {
				if (rnd() % 16 == 0)
					ptrace(PTRACE_DETACH, pid, 0, SIGCONT);
				else
					ptrace(rnd() % 8 ? PTRACE_CONT : PTRACE_SYSCALL, pid, 0, 0);
			}
		}
		for (int i = 0; i < 16; i++)
			kill(kids[i], SIGKILL);
		/* A killed tracee still stops at its exit where that was asked for. */
		for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;)
			if (WIFSTOPPED(status))
				ptrace(PTRACE_CONT, pid, 0, 0);
	}
	return rounds;
}

/* Everything below a directory of /proc, as find and cat do it; through links to other directories of a task, too. */
static long walk(const char *dir, int depth)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	long n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d)) && going()) {
		char path[512], buf[4096];

		if (e->d_name[0] == '.')
			continue;
		/* Not the kernel's own logs, which block or never end. */
		if (depth == 0 && (e->d_name[0] < '0' || e->d_name[0] > '9') && strcmp(e->d_name, "self"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n++;
		if (e->d_type == DT_DIR && depth < 4) {
			n += walk(path, depth + 1);
		} else if (readlink(path, buf, sizeof(buf)) > 2) {
			if (depth && depth < 4 && !memcmp(buf, "../", 3) && rnd() % 2)
				n += walk(path, depth + 1);
		} else if (rnd() % 4 == 0) {
			int fd = open(path, O_RDONLY | O_NONBLOCK);

			if (fd >= 0 && read(fd, buf, sizeof(buf)) > 0)
				n++;
			if (fd >= 0)
				close(fd);
		}
	}
	closedir(d);
	return n;
}

static long proc(void)
{
	long rounds = 0;

	while (going())
		rounds += walk("/proc", 0) > 0;
	return rounds;
}

/* The same where directories that tasks share are links; -2 on a kernel without them. */
static long links(void)
{
	char dir[] = "/tmp/storm-XXXXXX";
	long rounds = 0;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || !mkdtemp(dir)) {
		perror("links");
		return -1;
	}
	if (mount("proc", dir, "proc", 0, "dupdirs=link")) {
		rmdir(dir);
		return -2;
	}
	while (going())
		rounds += walk(dir, 0) > 0;
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	return rounds;
}

/* /proc/task_diag by every strategy; -1 where a stream is malformed. */
static long diag(void)
{
	struct {
		struct nlmsghdr nlh;
		struct task_diag_req req;
	} r = { .nlh = { .nlmsg_len = sizeof(r), .nlmsg_type = TASK_DIAG_CMD_GET, .nlmsg_flags = NLM_F_REQUEST } };
	struct {
		struct nlmsghdr nlh;
		struct task_diag_features f;
	} *features;
	size_t size = 1 << 20, have;
	char *buf = malloc(size);
	int fd = open("/proc/task_diag", O_RDWR);
	uint64_t groups, strategies;
	long rounds = 0;

	if (fd < 0)
		return -2;
	r.nlh.nlmsg_type = TASK_DIAG_CMD_FEATURES;
	r.nlh.nlmsg_len = sizeof(r.nlh);
	features = (void *)buf;
	if (write(fd, &r, sizeof(r.nlh)) < 0 || read(fd, buf, size) < (ssize_t)sizeof(*features))
		return -1;
	groups = features->f.groups;
	strategies = features->f.strategies;
	r.nlh.nlmsg_type = TASK_DIAG_CMD_GET;
	r.nlh.nlmsg_len = sizeof(r);
	for (; going(); rounds++) {
		int done = 0, takes_pid;
		ssize_t got;

		r.req.show_flags = rnd() % 2 ? groups : groups & rnd();
		do
			r.req.dump_strategy = rnd() % __TASK_DIAG_DUMP_MAX;
		while (!(strategies & 1ULL << r.req.dump_strategy));
		takes_pid = r.req.dump_strategy != TASK_DIAG_DUMP_ALL && r.req.dump_strategy != TASK_DIAG_DUMP_ALL_THREAD;
		r.req.pid = !takes_pid ? 0 : rnd() % 2 ? (uint32_t)getppid() : (uint32_t)getpid() + rnd() % 200;
		if (write(fd, &r, sizeof(r)) < 0)
			continue; /* no such process, most likely */
		have = 0;
		/* A read may end anywhere in a message; the rest of it comes with the next. */
		while ((got = read(fd, buf + have, rnd() % 2 ? size - have : 1 + rnd() % 60000)) > 0) {
			char *p = buf;

			/* What is kept for the next read may be kept for long. */
			if (rnd() % 64 == 0)
				usleep(rnd() % 50000);
			have += got;
			for (; have - (p - buf) >= sizeof(struct nlmsghdr);) {
				struct nlmsghdr *m = (void *)p;

				if (m->nlmsg_len < sizeof(*m) || m->nlmsg_len % 8 || m->nlmsg_len > size / 2 || done) {
					printf("diag: a message of %u bytes, type %u\n", m->nlmsg_len, m->nlmsg_type);
					return -1;
				}
				if (m->nlmsg_len > have - (p - buf))
					break;
				done = m->nlmsg_type == NLMSG_DONE;
				p += m->nlmsg_len;
			}
			have -= p - buf;
			memmove(buf, p, have);
		}
		if (got == 0 && (!done || have)) {
			puts("diag: a stream without its end");
			return -1;
		}
	}
	free(buf);
	close(fd);
	return rounds;
}

static const struct part {
	const char *name;
	long (*run)(void);
	int workers;
} parts[] = {
	{ "forks", forks, 3 },
	{ "traces", traces, 2 },
	{ "proc", proc, 2 },
	{ "links", links, 2 },
	{ "diag", diag, 2 },
};

/* Tasks that the machine has ever made, threads too. */
static long made(void)
{
	FILE *f = fopen("/proc/stat", "r");
	char line[4096];
	long n = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "processes %ld", &n);
	if (f)
		fclose(f);
	return n;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 10, bad = 0, status;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	long *rounds, before;
	pid_t pid;

	if (argc > 1 && !strcmp(argv[1], "--nothing"))
		return 0;
	printf("seed %llu, %d s\n", (unsigned long long)seed, seconds);
	fflush(stdout);
	signal(SIGUSR1, SIG_IGN);
	before = made();
	end = time(NULL) + seconds;
	rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (unsigned int i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		for (int w = 0; w < parts[i].workers; w++) {
			if (fork() == 0) {
				long n;

				setpgid(0, 0);
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				prctl(PR_SET_CHILD_SUBREAPER, 1);
				state = (seed * 64 + i * 8 + w) | 1;
				n = parts[i].run();
				fflush(stdout);
				if (n < 0)
					__atomic_store_n(&rounds[i], n, __ATOMIC_RELAXED);
				else
					__atomic_add_fetch(&rounds[i], n, __ATOMIC_RELAXED);
				_exit(0);
			}
		}
	}
	while ((pid = wait(&status)) > 0)
		if (WIFSIGNALED(status)) {
			printf("a part ended by signal %d\n", WTERMSIG(status));
			bad = 1;
		}
	for (unsigned int i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (rounds[i] == -2)
			printf("SKIP %s: this kernel has not what is read there\n", parts[i].name);
		else
			printf("%s: %ld rounds\n", parts[i].name, rounds[i]);
		bad |= rounds[i] <= 0 && rounds[i] != -2;
	}
	printf("%ld tasks came and went\n", made() - before);
	return bad;
}
