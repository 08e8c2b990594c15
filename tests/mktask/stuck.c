/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tasks that something other than a lock holds up: a cgroup that is frozen or has used up its CPU
 * time, and waits that not every machine can have.
 */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <mntent.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Waits that not every kernel has. Each function returns only if it could not wait. */

/* Waits for the listener of its seccomp filter, which does not answer. */
static void seccomp_notification(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter) < 0)
		return;
	syscall(SYS_getppid);
}

static void page_without_handler(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register area = {
		.range = { .start = (uintptr_t)page, .len = 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (fd < 0 || page == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &area))
		return;
	*page = 1;
}

static void completion(void)
{
	struct io_uring_params p = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 4, &p);

	if (fd >= 0)
		syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

static void one_of_two_words(void)
{
#ifdef SYS_futex_waitv
	static uint32_t words[2];
	struct futex_waitv v[2] = {
		{ .uaddr = (uintptr_t)&words[0], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG },
		{ .uaddr = (uintptr_t)&words[1], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG },
	};

	syscall(SYS_futex_waitv, v, 2, 0, NULL, 0);
#else
	errno = ENOSYS;
#endif
}

static void message(void)
{
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	char text[8];
	mqd_t queue = mq_open("/mktask", O_RDONLY | O_CREAT | O_CLOEXEC, 0600, &attr);

	if (queue >= 0)
		mq_receive(queue, text, sizeof(text), NULL);
}

static void end_of_process(void)
{
	pid_t pid = spawn();
	siginfo_t info;

	if (pid == 0)
		forever();
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0)
		waitid(3 /* P_PIDFD */, fd, &info, WEXITED);
}

static void signal_by_file(void)
{
	struct signalfd_siginfo info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	read(must(signalfd(-1, &set, SFD_CLOEXEC)), &info, sizeof(info));
}

static const struct wait { const char *key, *kind, *syscall; void (*in)(void); } waits[] = {
	{ "seccomp", "seccomp", "getppid", seccomp_notification },
	{ "userfaultfd", "userfaultfd", "", page_without_handler },
	{ "io-uring", "io_uring", "io_uring_enter", completion },
	{ "futex-waitv", "futex", "futex_waitv", one_of_two_words },
	{ "mqueue", "mqueue", "mq_timedreceive", message },
	{ "pidfd", "pidfd", "waitid", end_of_process },
	{ "signalfd", "signalfd", "read", signal_by_file },
};
enum { WAITS = sizeof(waits) / sizeof(*waits) };

static int tids[WAITS], lacks[WAITS];

static void *waiter(void *arg)
{
	const struct wait *w = arg;

	__atomic_store_n(&tids[w - waits], (int)gettid(), __ATOMIC_SEQ_CST);
	w->in();
	__atomic_store_n(&lacks[w - waits], errno ? errno : EIO, __ATOMIC_SEQ_CST);
	forever();
}

static void rare_waits(int argc, char **argv)
{
	char key[64];

	/* A message queue stays until its namespace ends. */
	if (unshare(CLONE_NEWIPC))
		skip("unshare(CLONE_NEWIPC): %m");
	for (int i = 0; i < WAITS; i++) {
		int tid;

		thread(waiter, (void *)&waits[i]);
		while (!(tid = __atomic_load_n(&tids[i], __ATOMIC_SEQ_CST)))
			usleep(1000);
		await_sleep(tid, waits[i].key);
		snprintf(key, sizeof(key), "lacks-%s", waits[i].key);
		fact(key, "%d", __atomic_load_n(&lacks[i], __ATOMIC_SEQ_CST));
		snprintf(key, sizeof(key), "wait-%s", waits[i].key);
		fact(key, "%d", tid);
		snprintf(key, sizeof(key), "kind-%s", waits[i].key);
		fact(key, "%s", waits[i].kind);
		snprintf(key, sizeof(key), "call-%s", waits[i].key);
		fact(key, "%s", waits[i].syscall);
	}
	fact("pid", "%d", getpid());
	hold();
}

/* A new cgroup, in the first hierarchy that is mounted with this type and option. */
static char *new_cgroup(const char *type, const char *option)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	char *dir = NULL;
	struct mntent *m;

	if (!mounts)
		die("/proc/self/mounts: %m");
	while (!dir && (m = getmntent(mounts))) {
		if (strcmp(m->mnt_type, type) || (*option && !hasmntopt(m, option)))
			continue;
		if (asprintf(&dir, "%s/mktask-%d", m->mnt_dir, getpid()) < 0)
			die("out of memory");
		if (mkdir(dir, 0755))
			skip("mkdir(%s): %m", dir);
	}
	endmntent(mounts);
	if (!dir)
		skip("no %s %s is mounted", type, option);
	return dir;
}

static int try_write(const char *dir, const char *name, const char *text)
{
	char *path = in_dir(dir, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int is_done = fd >= 0 && write(fd, text, strlen(text)) >= 0, e = errno;

	if (fd >= 0)
		close(fd);
	free(path);
	errno = e;
	return is_done;
}

static void move(const char *dir, pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	if (!try_write(dir, "cgroup.procs", text))
		die("cgroup.procs: %m");
}

static int has_text(const char *dir, const char *name, const char *want)
{
	char text[4096], *path = in_dir(dir, name);
	int fd = must(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = must(read(fd, text, sizeof(text) - 1));

	close(fd);
	free(path);
	text[n] = 0;
	return strstr(text, want) != NULL;
}

/*
 * A process that removes the cgroup when its parent has ended, however that was. SIGKILL does not
 * end a task that cgroups version 1 has frozen, so it must be thawed.
 */
static void keep_clean(const char *dir, const char *file, const char *thaw, const char *turn_off)
{
	pid_t parent = getpid();
	sigset_t set;
	int got;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	if (must(fork()))
		return;
	must(sigprocmask(SIG_BLOCK, &set, NULL));
	must(prctl(PR_SET_PDEATHSIG, SIGTERM));
	if (getppid() == parent)
		sigwait(&set, &got);
	for (int i = 0; i < 5000; i++) {
		try_write(dir, file, thaw);
		if (!rmdir(dir))
			break;
		usleep(1000);
	}
	if (turn_off)
		try_write(turn_off, "cgroup.subtree_control", "-cpu");
	_exit(0);
}

static pid_t frozen_child(int n, const char *path)
{
	pid_t pid = spawn();

	if (pid)
		return pid;
	if (n == 0)
		must(flock(must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)), LOCK_EX));
	if (n == 1)
		sleep(1000000);
	if (n == 2)
		for (volatile int i = 0;; i++)
			;
	forever();
}

/*
 * v1|v2 DIRECTORY: three processes of a frozen cgroup. One has the lock of a file, for which a
 * process outside of the cgroup waits; one sleeps; one would run.
 */
static void frozen(int argc, char **argv)
{
	static const char *const keys[] = { "holder", "sleeper", "runner" };
	int is_v2 = argc > 1 && !strcmp(argv[1], "v2");
	const char *file = is_v2 ? "cgroup.freeze" : "freezer.state", *thaw = is_v2 ? "0" : "THAWED";
	pid_t pid[3], waiter;
	char *dir, *path;

	if (argc < 3)
		die("usage: frozen v1|v2 DIRECTORY");
	path = in_dir(argv[2], "held");
	dir = new_cgroup(is_v2 ? "cgroup2" : "cgroup", is_v2 ? "" : "freezer");
	keep_clean(dir, file, thaw, NULL);
	for (int i = 0; i < 3; i++) {
		pid[i] = frozen_child(i, path);
		if (i < 2)
			await_sleep(pid[i], keys[i]);
		move(dir, pid[i]);
	}
	if (!try_write(dir, file, is_v2 ? "1" : "FROZEN"))
		skip("%s: %m", file);
	for (int i = 0; !has_text(dir, is_v2 ? "cgroup.events" : file, is_v2 ? "frozen 1" : "FROZEN"); i++) {
		if (i > 10000)
			die("the cgroup is not frozen");
		usleep(1000);
	}
	waiter = spawn();
	if (waiter == 0) {
		flock(must(open(path, O_RDWR | O_CLOEXEC)), LOCK_EX);
		die("it did not wait");
	}
	await_sleep(waiter, "waiter");
	fact("pid", "%d", pid[0]);
	for (int i = 0; i < 3; i++)
		fact(keys[i], "%d", pid[i]);
	fact("waiter", "%d", waiter);
	for (int i = 0; i < 3; i++)
		fact_item("children", i == 0, pid[i]);
	fact("cgroup", "/mktask-%d", getpid());
	hold();
}

/* A process that wants to run all the time, in a cgroup that may run for a thousandth of it. */
static void throttled(int argc, char **argv)
{
	char *dir, *root = NULL;
	pid_t pid;
	int is_v1 = argc > 1 && !strcmp(argv[1], "v1");

	if (argc < 2)
		die("usage: throttled v1|v2");
	dir = new_cgroup(is_v1 ? "cgroup" : "cgroup2", is_v1 ? "cpu" : "");
	if (!is_v1) {
		root = strdup(dir);
		*strrchr(root, '/') = 0;
		if (has_text(root, "cgroup.subtree_control", "cpu ") || has_text(root, "cgroup.subtree_control", "cpu\n"))
			root = NULL;
		else
			try_write(root, "cgroup.subtree_control", "+cpu");
	}
	keep_clean(dir, "none", "", root);
	if (is_v1 ? !(try_write(dir, "cpu.cfs_period_us", "1000000") && try_write(dir, "cpu.cfs_quota_us", "1000"))
		  : !try_write(dir, "cpu.max", "1000 1000000"))
		skip("the limit of CPU time in %s: %m", dir);
	pid = spawn();
	if (pid == 0)
		for (volatile int i = 0;; i++)
			;
	move(dir, pid);
	for (int i = 0; has_text(dir, "cpu.stat", "nr_throttled 0\n"); i++) {
		if (i > 10000)
			die("it is not throttled");
		usleep(1000);
	}
	/* The name is not "pid", because the tests wait until a task of that name has slept or has run for
	 * long. */
	fact("throttled", "%d", pid);
	fact("cgroup", "/mktask-%d", getpid());
	hold();
}

const struct state stuck_states[] = {
	{ "rare-waits", rare_waits, "a thread for each kind of wait that not every kernel has" },
	{ "frozen", frozen, "v1|v2 DIRECTORY: processes of a frozen cgroup, and one that waits for them" },
	{ "throttled", throttled, "v1|v2: a process whose cgroup has used up its CPU time" },
	{ 0 }
};
