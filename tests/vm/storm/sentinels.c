// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sentinels are tasks that change all their values all the time. Each value is one of a known set
 * that identifies the sentinel. So a reader can decide for each path whether this very task could
 * have had it.
 *
 * Sentinel 7 has the command name `prog-7`, and has only the following. There are two directories
 * s-7-a and s-7-b below those that are renamed, and its working directory and its root change
 * between them. Each has a program `prog-7`, which it executes repeatedly. It opens, maps,
 * closes and removes the files f-7-0 to f-7-7. Its cgroups are storm-7-a and storm-7-b, its user is
 * 0 or 10007, its command line is "sentinel 7 KIND a" or b, and its environment is SENTINEL=7.
 * Every third sentinel is a thread group whose leader has ended, and every third one has threads.
 * Their children come and go, and are checked like them.
 *
 * The file `truth` gives a reader the names and the sentinels that exist. It is removed before they
 * are ended.
 */
#include "storm.h"

enum { SENTINELS = 12, FILES = 8, MAPS = 8, THREADS = 3, DIR_FD = 10, CGROUP_FD = 12, FILE_FD = 20, PAGE = 4096 };
static const uid_t OTHER_USER = 10000;

static pid_t pids[SENTINELS];
static int number;
static char *maps[MAPS];

static const char *kind_of(int n)
{
	return n % 3 == 0 ? "headless" : n % 3 == 1 ? "threads" : "alone";
}

static void again(const char *kind)
{
	char n[16], program[32], env[32], *argv[] = { "sentinel", n, (char *)kind, rnd() % 2 ? "a" : "b", NULL };
	char *envp[] = { env, NULL };

	snprintf(n, sizeof(n), "%d", number);
	snprintf(program, sizeof(program), "prog-%d", number);
	snprintf(env, sizeof(env), "SENTINEL=%d", number);
	syscall(SYS_execveat, DIR_FD + rnd() % 2, program, argv, envp, 0);
	die(program);
}

static void touch_file(void)
{
	int n = rnd() % FILES, at = DIR_FD + rnd() % 2, fd;
	char name[32];

	snprintf(name, sizeof(name), "f-%d-%d", number, n);
	switch (rnd() % 4) {
	case 0:
		close(FILE_FD + n);
		break;
	case 1: /* A file that is still open or mapped is a deleted file then. */
		unlinkat(at, name, 0);
		/* fall through */
	default:
		fd = openat(at, name, O_RDWR | O_CREAT, 0644);
		if (fd < 0 || ftruncate(fd, 4 * PAGE))
			die(name);
		dup2(fd, FILE_FD + n);
		close(fd);
	}
}

static void unmapped(char *m)
{
	/* The number of pages is in the address. */
	size_t pages = (uintptr_t)m % PAGE;

	if (munmap(m - pages, pages * PAGE))
		die("munmap");
}

static void touch_memory(void)
{
	int n = rnd() % MAPS, pages = 1 + rnd() % 4;
	char *m = __atomic_exchange_n(&maps[n], NULL, __ATOMIC_ACQ_REL);

	if (m) {
		unmapped(m);
		return;
	}
	m = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, FILE_FD + rnd() % FILES, 0);
	if (m == MAP_FAILED)
		return; /* it is closed */
	m = mremap(m, 2 * PAGE, pages * PAGE, MREMAP_MAYMOVE);
	if (m == MAP_FAILED)
		die("mremap");
	m = __atomic_exchange_n(&maps[n], m + pages, __ATOMIC_ACQ_REL);
	if (m)
		unmapped(m); /* another thread put it there meanwhile */
}

/* Makes one of all possible changes. */
static void change(void)
{
	int one = rnd() % 2;

	switch (rnd() % 10) {
	case 0:
	case 1:
		if (fchdir(DIR_FD + one))
			die("fchdir");
		break;
	case 2:
		if (fchdir(DIR_FD + one) || chroot("."))
			die("chroot");
		break;
	case 3:
	case 4: /* A child takes over our fs_struct, which goes away with it. */
		if (child(CLONE_FS | (one ? CLONE_FILES : 0)) == 0) {
			usleep(rnd() % 300);
			_exit(0);
		}
		unshare(CLONE_FS | (one ? CLONE_FILES : 0));
		break;
	case 5: /* The other way round: a child leaves. */
		if (child(CLONE_FS) == 0) {
			unshare(CLONE_FS);
			if (fchdir(DIR_FD + one))
				die("fchdir");
			usleep(rnd() % 300);
			_exit(0);
		}
		break;
	case 6:
		if (syscall(SYS_setresuid, -1, OTHER_USER + number, -1) || syscall(SYS_setresuid, -1, 0, -1))
			die("setresuid");
		/* A process of another user does not get that signal. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		break;
	case 7:
		if (fcntl(CGROUP_FD, F_GETFD) >= 0 && write(CGROUP_FD + one, "0", 1) != 1 && errno != EOPNOTSUPP)
			die("cgroup.procs");
		break;
	case 8:
		touch_memory();
		break;
	default:
		touch_file();
	}
	while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		continue;
}

static void *run(void *arg)
{
	for (;;) {
		change();
		usleep(rnd() % 1500);
	}
	return arg;
}

/* A sentinel that has just been executed. */
int sentinel(int n, int is_headless)
{
	int is_alone = !is_headless && !strcmp(kind_of(n), "alone");
	pthread_t t;

	number = n;
	seed_with(time(NULL) ^ (uint64_t)getpid() << 20 ^ clock());
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; !is_alone && i < THREADS; i++)
		if (pthread_create(&t, NULL, run, NULL))
			die("pthread_create");
	if (is_headless)
		syscall(SYS_exit, 0);
	for (int i = 50 + rnd() % 200; i > 0; i--) {
		change();
		usleep(rnd() % 1500);
	}
	again(kind_of(n));
	return 1;
}

static void open_as(int at, const char *name, int flags, int want)
{
	int fd = openat(at, name, flags, 0644);

	if (fd < 0 || (fd != want && (dup2(fd, want) < 0 || close(fd))))
		die(name);
}

/* Makes the surroundings of a sentinel: two directories with a program and files, and two cgroups.
 * Nothing else is open. */
static void become(int n, int bottom)
{
	char name[64];

	number = n;
	signal(SIGUSR1, SIG_DFL);
	if (dup2(bottom, DIR_FD - 1) < 0 || syscall(SYS_close_range, DIR_FD, ~0U, 0) || syscall(SYS_close_range, 3, DIR_FD - 2, 0))
		die("close_range");
	bottom = DIR_FD - 1;
	for (int i = 0; i < 3; i++)
		open_as(AT_FDCWD, "/dev/null", O_RDWR, i);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "s-%d-%c", n, 'a' + i);
		open_as(bottom, name, O_RDONLY | O_DIRECTORY, DIR_FD + i);
		snprintf(name, sizeof(name), "/sys/fs/cgroup/storm-%d-%c/cgroup.procs", n, 'a' + i);
		if (access(name, W_OK) == 0)
			open_as(AT_FDCWD, name, O_WRONLY, CGROUP_FD + i);
	}
	close(bottom);
	if (access("/sys/fs/cgroup/cgroup.procs", W_OK) == 0 && write(CGROUP_FD, "0", 1) != 1)
		die("cgroup.procs");
	if (fchdir(DIR_FD) || chroot("."))
		die("chroot");
	again(kind_of(n));
}

/* Waits until it has the name of the program. */
static void wait_for(int n)
{
	char path[64], want[32], have[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", pids[n]);
	snprintf(want, sizeof(want), "prog-%d\n", n);
	for (int tries = 0; tries < 3000; tries++) {
		FILE *f = fopen(path, "r");
		int is = f && fgets(have, sizeof(have), f) && !strcmp(have, want);

		if (f)
			fclose(f);
		if (is)
			return;
		usleep(10000);
	}
	die("a sentinel does not begin");
}

static void write_truth(void)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	FILE *f = fopen("truth.part", "w");

	if (n < 0 || !f)
		die("truth");
	fprintf(f, "base %s\nexe %.*s\nparent %d\n", base, (int)n, exe, getpid());
	fprintf(f, "cgroups %d\n", access("/sys/fs/cgroup/cgroup.procs", W_OK) == 0);
	for (int i = 0; i < LEVELS; i++)
		fprintf(f, "level %s %s\n", levels[i].names[0], levels[i].names[1]);
	for (int i = 0; i < ROOMS; i++)
		fprintf(f, "room %s\n", rooms[i]);
	fprintf(f, "room hall\n");
	for (int i = 0; i < SENTINELS; i++)
		fprintf(f, "sentinel %d %d %s %u\n", i, pids[i], kind_of(i), OTHER_USER + i);
	if (fclose(f) || rename("truth.part", "truth"))
		die("truth");
}

/* Makes a copy on the same file system, so that links to it are possible. */
static void copy_self(void)
{
	char buf[65536];
	int from = open("/proc/self/exe", O_RDONLY), to = open("program", O_WRONLY | O_CREAT, 0755);
	ssize_t n;

	if (from < 0 || to < 0)
		die("program");
	while ((n = read(from, buf, sizeof(buf))) > 0)
		if (write(to, buf, n) != n)
			die("program");
	close(from);
	close(to);
}

int start_sentinels(int bottom)
{
	char name[64];

	copy_self();
	for (int i = 0; i < SENTINELS; i++) {
		for (int k = 0; k < 2; k++) {
			snprintf(name, sizeof(name), "s-%d-%c", i, 'a' + k);
			if (mkdirat(bottom, name, 0755))
				die(name);
			snprintf(name, sizeof(name), "s-%d-%c/prog-%d", i, 'a' + k, i);
			if (linkat(AT_FDCWD, "program", bottom, name, 0))
				die(name);
			snprintf(name, sizeof(name), "/sys/fs/cgroup/storm-%d-%c", i, 'a' + k);
			mkdir(name, 0755);
		}
	}
	for (int i = 0; i < SENTINELS; i++) {
		pids[i] = child(0);
		if (pids[i] == 0)
			become(i, bottom);
	}
	for (int i = 0; i < SENTINELS; i++)
		wait_for(i);
	write_truth();
	return SENTINELS;
}

int end_sentinels(void)
{
	char name[64];
	int lost = 0;

	unlink("truth");
	/* A reader that has just read the file has its answer by now, or sees that the file has gone. */
	sleep(1);
	for (int i = 0; i < SENTINELS; i++) {
		lost += waitpid(pids[i], NULL, WNOHANG) != 0;
		kill(pids[i], SIGKILL);
	}
	for (int i = 0; i < SENTINELS; i++) {
		waitpid(pids[i], NULL, 0);
		for (int k = 0; k < 2; k++) {
			snprintf(name, sizeof(name), "/sys/fs/cgroup/storm-%d-%c", i, 'a' + k);
			rmdir(name);
		}
	}
	return lost;
}
