/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * mktask STATE [ARG...] makes a task in an odd state, prints the facts about it in
 * one line on stdout (key=value ...), and keeps it until stdin closes.
 *
 * A supervisor (this file) forks the subject, which makes the state, writes its
 * facts into a shared memory file and waits. So a subject need not do any I/O,
 * and everything dies with the supervisor. A line that begins with "skip=" means that the state is
 * impossible on this machine, and "error=" means that making the state failed. This program does
 * not know how the facts are compared.
 */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT (1 << 20)	/* 100,000 pids */
#define SHARED_FD 200	/* survives an exec */

static struct shared {
	atomic_int ready;
	unsigned int len;
	char rmdir[4][1500];
	char swap[512];
	char mounted[512];
	char text[TEXT];
} *shared;

static void append(const char *fmt, va_list ap)
{
	int room = TEXT - (int)shared->len, n;

	n = vsnprintf(shared->text + shared->len, room, fmt, ap);
	if (n > 0)
		shared->len += n < room ? n : room - 1;
}

static void appendf(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	append(fmt, ap);
	va_end(ap);
}

void fact(const char *key, const char *fmt, ...)
{
	va_list ap;

	appendf(" %s=", key);
	va_start(ap, fmt);
	append(fmt, ap);
	va_end(ap);
}

void fact_hex(const char *key, const void *data, size_t len)
{
	appendf(" %s=", key);
	for (size_t i = 0; i < len; i++)
		appendf("%02x", ((const unsigned char *)data)[i]);
}

void fact_str(const char *key, const char *text)
{
	fact_hex(key, text, strlen(text));
}

void fact_item(const char *key, int first, long value)
{
	if (first)
		appendf(" %s=%ld", key, value);
	else
		appendf(",%ld", value);
}

void ready(void)
{
	atomic_store(&shared->ready, 1);
}

_Noreturn void forever(void)
{
	for (;;)
		pause();
}

_Noreturn void hold(void)
{
	ready();
	forever();
}

static _Noreturn void instead(const char *key, const char *fmt, va_list ap)
{
	int e = errno;	/* for %m */

	shared->len = 0;
	appendf(" %s=", key);
	errno = e;
	append(fmt, ap);
	hold();
}

_Noreturn void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	instead("error", fmt, ap);
}

_Noreturn void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	instead("skip", fmt, ap);
}

void die_with_parent(void)
{
	must(prctl(PR_SET_PDEATHSIG, SIGKILL));
}

pid_t spawn(void)
{
	pid_t parent = getpid(), pid = must(fork());

	if (pid == 0) {
		die_with_parent();
		/* The parent may have died just before. It is not seen from a new pid namespace. */
		if (getppid() && getppid() != parent)
			_exit(1);
	}
	return pid;
}

int host_pid(void)
{
	char buf[32];
	ssize_t n = must(readlink("/proc/self", buf, sizeof(buf) - 1));

	buf[n] = 0;
	return atoi(buf);
}

int host_tid(void)
{
	char buf[64];
	ssize_t n = must(readlink("/proc/thread-self", buf, sizeof(buf) - 1));

	buf[n] = 0;
	return atoi(strrchr(buf, '/') + 1);
}

char *self_exe(void)
{
	static char path[4096];
	ssize_t n = must(readlink("/proc/self/exe", path, sizeof(path) - 1));

	path[n] = 0;
	return path;
}

_Noreturn void exec_again(const char *exe, char **argv, const char *what)
{
	char *envp[] = { NULL, "PADDING=0123456789abcdef0123456789abcdef", NULL };

	if (asprintf(&envp[0], "MKTASK_AFTER_EXEC=%s", what) < 0)
		die("out of memory");
	execve(exe, argv, envp);
	die("exec of %s: %m", exe);
}

void read_proc(int tid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", tid, file);
	fd = must(open(path, O_RDONLY | O_CLOEXEC));
	n = read(fd, text, size - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
}

void await_state(int pid, int tid, char state)
{
	char path[64], buf[512], *p;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	for (int i = 0; i < 10000; i++) {
		int fd = must(open(path, O_RDONLY | O_CLOEXEC));
		ssize_t n = must(read(fd, buf, sizeof(buf) - 1));

		close(fd);
		buf[n] = 0;
		p = strrchr(buf, ')');
		if (p && p[2] == state)
			return;
		usleep(1000);
	}
	die("task %d did not reach state %c", tid, state);
}

void await_sleep(int tid, const char *what)
{
	char text[200], last[200] = "";
	int same = 0;

	for (int i = 0; i < 10000 && same < 20; i++) {
		read_proc(tid, "syscall", text, sizeof(text));
		same = strncmp(text, "running", 7) && !strcmp(text, last) ? same + 1 : 0;
		strcpy(last, text);
		usleep(1000);
	}
	if (same < 20)
		die("%s does not wait", what);
}

void clean_rmdir(const char *path)
{
	for (int i = 0; i < 4; i++) {
		if (!shared->rmdir[i][0]) {
			snprintf(shared->rmdir[i], sizeof(shared->rmdir[i]), "%s", path);
			return;
		}
	}
	die("too many directories to clean");
}

void clean_umount(const char *path)
{
	snprintf(shared->mounted, sizeof(shared->mounted), "%s", path);
}

void clean_swap(const char *path)
{
	snprintf(shared->swap, sizeof(shared->swap), "%s", path);
}

long long now_ns(int clock)
{
	struct timespec ts;

	must(clock_gettime(clock, &ts));
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

void burn_ns(int clock, long long ns)
{
	while (now_ns(clock) < ns)
		for (volatile int i = 0; i < 20000; i++)
			;
}

long arg_number(int argc, char **argv, int i, long otherwise)
{
	return i < argc ? strtol(argv[i], NULL, 0) : otherwise;
}

struct start {
	void *(*fn)(void *);
	void *arg;
	sem_t running;
};

static void *started(void *arg)
{
	struct start *s = arg;
	void *(*fn)(void *) = s->fn;
	void *fn_arg = s->arg;

	sem_post(&s->running);
	return fn(fn_arg);
}

void thread(void *(*fn)(void *), void *arg)
{
	struct start s = { .fn = fn, .arg = arg };
	pthread_attr_t attr;
	pthread_t t;

	sem_init(&s.running, 0, 0);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	/* With a guard for each, 100,000 threads would need more mappings than a process may have. */
	pthread_attr_setguardsize(&attr, 0);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	errno = pthread_create(&t, &attr, started, &s);
	if (errno)
		die("pthread_create: %m");
	while (sem_wait(&s.running))
		;
	pthread_attr_destroy(&attr);
}

void ids(void)
{
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
}

char *in_dir(const char *dir, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		die("out of memory");
	return path;
}

void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die("writing '%s' to %s: %m", text, path);
	close(fd);
}

static const struct state *const tables[] = {
	life_states, name_states, who_states, use_states, held_states, have_states,
	link_states, lock_states, odd_states, walk_states, wait_states, stuck_states,
	stack_states, storm_states,
};

static const struct state *find(const char *name)
{
	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct state *s = tables[t]; s->name; s++)
			if (!strcmp(s->name, name))
				return s;
	return NULL;
}

static void usage(void)
{
	fprintf(stderr, "usage: mktask STATE [ARG...]\n");
	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct state *s = tables[t]; s->name; s++)
			fprintf(stderr, "  %-18s %s\n", s->name, s->help);
	exit(2);
}

static void map_shared(int fd)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED) {
		perror("mktask: mmap");
		exit(1);
	}
}

static void clean_up(pid_t subject)
{
	kill(subject, SIGKILL);
	waitpid(subject, NULL, __WALL);
	/* Orphans become our children, and each dies with its parent, so process 1 gets none. */
	for (int i = 0; i < 10000; i++) {
		pid_t pid = waitpid(-1, NULL, WNOHANG | __WALL);

		if (pid < 0)
			break;
		if (pid == 0)
			usleep(200);
	}
	for (int i = 0; i < 4 && shared->rmdir[i][0]; i++)
		for (int n = 0; n < 2000 && rmdir(shared->rmdir[i]) && errno == EBUSY; n++)
			usleep(1000);
	if (shared->mounted[0])
		umount2(shared->mounted, MNT_DETACH);
	if (shared->swap[0]) {
		swapoff(shared->swap);
		unlink(shared->swap);
	}
}

int main(int argc, char **argv)
{
	const char *again = getenv("MKTASK_AFTER_EXEC");
	const struct state *s;
	char buf[256];
	pid_t subject, supervisor = getpid();
	int fd;

	if (again) {
		map_shared(SHARED_FD);
		s = find(again);
		if (!s)
			die("no state %s", again);
		die_with_parent();	/* a thread that execs had none */
		s->run(-1, argv);
		die("state %s returned", again);
	}
	s = argc > 1 ? find(argv[1]) : NULL;
	if (!s)
		usage();
	fd = memfd_create("mktask", 0);
	if (fd < 0 || ftruncate(fd, sizeof(*shared)) || dup2(fd, SHARED_FD) < 0) {
		perror("mktask: memfd");
		return 1;
	}
	close(fd);
	map_shared(SHARED_FD);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* If the process that started us is killed, stdin closes, which is enough. */
	subject = fork();
	if (subject == 0) {
		die_with_parent();
		if (getppid() != supervisor)
			return 1;
		/* Only the supervisor answers, so no other process keeps these open. */
		close(0);
		close(1);
		must(open("/dev/null", O_RDONLY));
		must(open("/dev/null", O_WRONLY));
		s->run(argc - 1, argv + 1);
		die("state %s returned", s->name);
	}
	if (subject < 0) {
		perror("mktask: fork");
		return 1;
	}
	for (int i = 0; !atomic_load(&shared->ready); i++) {
		int status;

		if (i > 60000) {
			printf("error=state %s was not reached in a minute\n", s->name);
			clean_up(subject);
			return 1;
		}
		if (waitpid(subject, &status, WNOHANG) == subject) {
			printf("error=the subject ended with status %#x\n", status);
			return 1;
		}
		usleep(1000);
	}
	printf("%.*s\n", (int)shared->len - 1, shared->text + 1);
	fflush(stdout);
	while (read(0, buf, sizeof(buf)) > 0)
		;
	clean_up(subject);
	return 0;
}
