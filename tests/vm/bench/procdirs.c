// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The effect of a complete read of /proc on kernel memory if one process has many threads and open
 * files: the case of the 2018 mail on shared directories.
 *
 * A child with that many threads and files is made; every directory of a proc
 * mount is listed, as find(1) does; then the child is killed. The options of the mount, and what
 * the threads did before:
 *
 *	default		as they are by default
 *	shared		dupdirs=link
 *	listed		dupdirs=link and nordirplus
 *	plain		nordirplus alone
 *	setxid		dupdirs=link; libc's setresuid() has given each thread the same
 *			ids, and so credentials of its own that say the same
 *	keepcaps	dupdirs=link; each thread but the first has set PR_SET_KEEPCAPS,
 *			and so has credentials of its own with the same ids
 *	nonewprivs	dupdirs=link; each thread but the first has set
 *			PR_SET_NO_NEW_PRIVS, which is no matter of credentials
 *
 * find(1) looks up nothing but directories. lsof(8) reads the link of each file of
 * each thread, which makes an inode on any mount; this is done instead in
 *
 *	lsof		as it is by default
 *	lsof_shared	dupdirs=link
 *	lsof_plain	nordirplus alone
 *
 * If the kernel lacks the options of a case, its mount has the default ones; if cases are named,
 * such a case is left out. Needs root and a mount namespace. Prints, for each,
 *
 *	default_inodes<TAB>threads<TAB>count	inodes that the look has made
 *	default_own<TAB>threads<TAB>count	those of the process among them
 *	default_dirs<TAB>threads<TAB>count	directories that the process had
 *	default_slab<TAB>threads<TAB>bytes	memory of the kernel that it took
 *	default_find<TAB>threads<TAB>value_ns	time that the look took
 *	default_exit<TAB>threads<TAB>value_ns	from the signal to the end of wait
 *
 * The exit without a look before is "exit_alone". With more than one size, the
 * number of files is in the names of the cases ("default_exit:4096").
 *
 * usage: procdirs [threads files]... [case]...	512 2048 and all cases
 * lab: instructions 128 512
 * lab: uml 512 2048 default shared listed plain
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum creds { ONE, SETXID, KEEPCAPS, NONEWPRIVS };

static const struct test {
	const char *name, *options;
	enum creds creds;
	int lsof;
} tests[] = {
	{ "default", NULL, ONE, 0 },
	{ "shared", "dupdirs=link", ONE, 0 },
	{ "listed", "dupdirs=link,nordirplus", ONE, 0 },
	{ "plain", "nordirplus", ONE, 0 },
	{ "setxid", "dupdirs=link", SETXID, 0 },
	{ "keepcaps", "dupdirs=link", KEEPCAPS, 0 },
	{ "nonewprivs", "dupdirs=link", NONEWPRIVS, 0 },
	{ "lsof", NULL, ONE, 1 },
	{ "lsof_shared", "dupdirs=link", ONE, 1 },
	{ "lsof_plain", "nordirplus", ONE, 1 },
};
#define TESTS (sizeof(tests) / sizeof(tests[0]))

static int threads, files;
/* The suffix of the names of rows. */
static char size[16];

static void die(const char *what)
{
	fprintf(stderr, "procdirs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static long inodes(void)
{
	FILE *f = fopen("/proc/sys/fs/inode-nr", "r");
	long n;

	if (!f || fscanf(f, "%ld", &n) != 1)
		die("/proc/sys/fs/inode-nr");
	fclose(f);
	return n;
}

/* Memory in slabs. */
static long slab_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];
	long kb = -1;

	while (f && kb < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "Slab: %ld kB", &kb);
	if (kb < 0)
		die("/proc/meminfo");
	fclose(f);
	return kb * 1024;
}

static void row(const char *name, const char *what, long value)
{
	printf("%s%s%s\t%d\t%ld\n", name, what, size, threads, value);
	fflush(stdout);
}

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd < 0 || write(fd, "2", 1) != 1)
		die("drop_caches");
	close(fd);
}

/*
 * List a directory and those in it, and count them. Tasks may go away, and some
 * are closed.
 */
static long walk(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	struct dirent *entry;
	long n = 1;
	DIR *d;

	if (fd < 0)
		return 0;
	d = fdopendir(fd);
	if (!d)
		die("fdopendir");
	while ((entry = readdir(d)))
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") &&
		    strcmp(entry->d_name, ".."))
			n += walk(fd, entry->d_name);
	closedir(d);
	return n;
}

/* Read the links of the files of all threads, and count the directories. */
static long read_links(int dir, const char *pid)
{
	char path[64], target[256];
	struct dirent *task, *file;
	DIR *tasks, *fds;
	long n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/task", pid);
	fd = openat(dir, path, O_RDONLY | O_DIRECTORY);
	tasks = fd < 0 ? NULL : fdopendir(fd);
	if (!tasks)
		die(path);
	while ((task = readdir(tasks))) {
		if (task->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%.32s/fd", task->d_name);
		fd = openat(dirfd(tasks), path, O_RDONLY | O_DIRECTORY);
		fds = fd < 0 ? NULL : fdopendir(fd);
		if (!fds)
			die(path);
		while ((file = readdir(fds)))
			if (file->d_name[0] != '.' &&
			    readlinkat(dirfd(fds), file->d_name, target, sizeof(target)) < 0)
				die("readlink");
		closedir(fds);
		n++;
	}
	closedir(tasks);
	return n;
}

static atomic_int unlike;

static void *sleeper(void *arg)
{
	enum creds creds = *(enum creds *)arg;

	if ((creds == KEEPCAPS && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)) ||
	    (creds == NONEWPRIVS && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))
		_exit(1);
	unlike++;
	for (;;)
		pause();
	return NULL;
}

static pid_t spawn(enum creds creds)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		pthread_attr_t attr;
		int null = open("/dev/null", O_RDONLY);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int fd = 0; fd < files; fd++)
			if (fd != ready[1] && dup2(null, fd) < 0)
				die("dup2");
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, 64 << 10);
		for (int i = 1; i < threads; i++) {
			pthread_t t;

			if (pthread_create(&t, &attr, sleeper, &creds))
				_exit(1);
		}
		while (unlike < threads - 1)
			sched_yield();
		if (creds == SETXID) {
			if (setresuid(1000, 1000, 1000))
				_exit(1);
			/* A change of ids has taken it back. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		}
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		fprintf(stderr, "procdirs: could not make %d threads with %d files\n",
			threads, files);
		exit(1);
	}
	close(ready[0]);
	return pid;
}

static void end(const char *name, const char *what, pid_t pid)
{
	long t = now();

	kill(pid, SIGKILL);
	if (waitpid(pid, NULL, 0) != pid)
		die("waitpid");
	row(name, what, now() - t);
}

static void measure(const struct test *test, int named)
{
	char path[] = "/tmp/procdirs-XXXXXX", name[16];
	long before, slab, own, dirs, t;
	pid_t pid;
	int dir;

	if (!mkdtemp(path))
		die("mkdtemp");
	if (mount("proc", path, "proc", 0, test->options)) {
		if (named) {
			rmdir(path);
			return;
		}
		if (mount("proc", path, "proc", 0, NULL))
			die("mount proc");
	}
	pid = spawn(test->creds);
	dir = open(path, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		die(path);
	drop_caches();
	before = inodes();
	slab = slab_bytes();
	t = now();
	snprintf(name, sizeof(name), "%d", pid);
	dirs = test->lsof ? read_links(dir, name) : walk(dir, name);
	own = inodes() - before;
	if (!test->lsof)
		walk(dir, ".");
	row(test->name, "_find", now() - t);
	row(test->name, "_own", own);
	row(test->name, "_inodes", inodes() - before);
	row(test->name, "_dirs", dirs);
	row(test->name, "_slab", slab_bytes() - slab);
	end(test->name, "_exit", pid);
	close(dir);
	umount2(path, MNT_DETACH);
	rmdir(path);
}

static int usage(void)
{
	fprintf(stderr, "usage: procdirs [threads files]... [case]...\n");
	return 2;
}

int main(int argc, char **argv)
{
	static char *by_default[] = { "512", "2048" };
	int sizes = 0, chosen;
	struct rlimit limit;
	char **of = argv + 1;

	while (sizes + 1 < argc && atoi(argv[sizes + 1]) > 0)
		sizes++;
	chosen = sizes + 1;
	for (int c = chosen; c < argc; c++) {
		unsigned int known = 0;

		while (known < TESTS && strcmp(argv[c], tests[known].name))
			known++;
		if (known == TESTS)
			return usage();
	}
	if (!sizes) {
		of = by_default;
		sizes = 2;
	}
	if (sizes % 2)
		return usage();
	if (unshare(CLONE_NEWNS) ||
	    (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) && errno != EINVAL))
		die("mount namespace");
	for (int s = 0; s < sizes; s += 2) {
		threads = atoi(of[s]);
		files = atoi(of[s + 1]);
		if (files < 16)
			return usage();
		if (sizes > 2)
			snprintf(size, sizeof(size), ":%d", files);
		limit.rlim_cur = limit.rlim_max = files + 16;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			die("RLIMIT_NOFILE");
		end("exit_alone", "", spawn(ONE));
		for (unsigned int t = 0; t < TESTS; t++) {
			int named = chosen == argc;

			for (int c = chosen; c < argc; c++)
				named |= !strcmp(argv[c], tests[t].name);
			if (named)
				measure(&tests[t], chosen < argc);
		}
	}
	return 0;
}
