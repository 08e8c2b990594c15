// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a look through all of /proc leaves behind where one process has many
 * threads and open files: the case of the 2018 mail on shared directories.
 *
 * A child with that many threads and files is made; every directory of a proc
 * mount is listed, as find(1) does; then the child is killed. Once on a mount
 * as it is by default ("default"), then on one with dupdirs=link ("shared"),
 * and on one with nordirplus besides ("listed"); these are as by default, too, if
 * the kernel does not have the options. Needs root and a mount namespace. Prints
 *
 *	default_inodes<TAB>threads<TAB>count	inodes that the look has made
 *	default_own<TAB>threads<TAB>count	those of the process among them
 *	default_find<TAB>threads<TAB>value_ns	time that it took
 *	default_exit<TAB>threads<TAB>value_ns	from the signal to the end of wait
 *
 * and the same for the others. The exit without a look before is "exit_alone".
 *
 * usage: procdirs [threads [files]]
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

static int threads = 512, files = 2048;

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

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd < 0 || write(fd, "2", 1) != 1)
		die("drop_caches");
	close(fd);
}

/* List a directory and those in it. Tasks may go away, and some are closed. */
static void walk(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	struct dirent *entry;
	DIR *d;

	if (fd < 0)
		return;
	d = fdopendir(fd);
	if (!d)
		die("fdopendir");
	while ((entry = readdir(d)))
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") &&
		    strcmp(entry->d_name, ".."))
			walk(fd, entry->d_name);
	closedir(d);
}

static void *sleeper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static pid_t spawn(void)
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

			if (pthread_create(&t, &attr, sleeper, NULL))
				_exit(1);
		}
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		sleeper(NULL);
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

static void end(const char *name, pid_t pid)
{
	long t = now();

	kill(pid, SIGKILL);
	if (waitpid(pid, NULL, 0) != pid)
		die("waitpid");
	printf("%s\t%d\t%ld\n", name, threads, now() - t);
	fflush(stdout);
}

/* Whether proc could be mounted with these options. */
static int measure(const char *name, const char *options)
{
	char path[] = "/tmp/procdirs-XXXXXX", pid_name[16], row[32];
	long before, own, t;
	pid_t pid;
	int dir;

	if (!mkdtemp(path))
		die("mkdtemp");
	if (mount("proc", path, "proc", 0, options)) {
		rmdir(path);
		return 0;
	}
	pid = spawn();
	dir = open(path, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		die(path);
	drop_caches();
	before = inodes();
	t = now();
	snprintf(pid_name, sizeof(pid_name), "%d", pid);
	walk(dir, pid_name);
	own = inodes() - before;
	walk(dir, ".");
	printf("%s_find\t%d\t%ld\n", name, threads, now() - t);
	printf("%s_own\t%d\t%ld\n", name, threads, own);
	printf("%s_inodes\t%d\t%ld\n", name, threads, inodes() - before);
	snprintf(row, sizeof(row), "%s_exit", name);
	end(row, pid);
	close(dir);
	umount2(path, MNT_DETACH);
	rmdir(path);
	return 1;
}

int main(int argc, char **argv)
{
	struct rlimit limit;

	if (argc > 1)
		threads = atoi(argv[1]);
	if (argc > 2)
		files = atoi(argv[2]);
	if (threads < 1 || files < 16) {
		fprintf(stderr, "usage: procdirs [threads [files]]\n");
		return 2;
	}
	limit.rlim_cur = limit.rlim_max = files + 16;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("RLIMIT_NOFILE");
	if (unshare(CLONE_NEWNS) ||
	    (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) && errno != EINVAL))
		die("mount namespace");
	end("exit_alone", spawn());
	if (!measure("default", NULL))
		die("mount proc");
	if (!measure("shared", "dupdirs=link") && !measure("shared", NULL))
		die("mount proc");
	if (!measure("listed", "dupdirs=link,nordirplus") && !measure("listed", NULL))
		die("mount proc");
	return 0;
}
