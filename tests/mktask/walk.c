/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * walk DIR PROPERTY=N...: a process with all of these properties, of which N chooses the variant.
 * They are made in the order of the table below, because some take away things that others need.
 * A property that this machine or the other properties do not allow is left out, and the fact
 * no_PROPERTY reports that. tests/tests/walk.rs has the values that the properties are compared
 * with.
 */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mntent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "walk.h"

static const char *dir, *props[64];
static unsigned int seq;
/* The actions that remain for the very end. */
static unsigned int ending;
enum { SLEEPS, STOPS, DIES, LEADER_DIES };

const char *odd(unsigned int n)
{
	static const char *const names[] = {
		"plain", "a b", " ", "new\nline", "tab\t", "(deleted)", "x (deleted)", "\xff\xfe", "\xc3\xa9", "\xf0\x9f\x99\x82",
		"back\\slash", "\\134", "\\x41", "semi;colon", "'", "\"", "\x1b[31m", "\xe2\x80\xae", "\xc2\x9b", "-rf", "socket:[1]",
		"pipe:[7]", "anon_inode:[x]", "memfd:y", "a) R 1 (b", "kworker/0:1", "\x7f\x01", ",{}=\"", "e\xcc\x81", "0",
	};
	static char long_name[256];

	n %= sizeof(names) / sizeof(*names) + 1;
	if (n < sizeof(names) / sizeof(*names))
		return names[n];
	return memset(long_name, 'n', 255);
}

/* A path for a file with an odd name, in a directory of its own. */
char *fresh(unsigned int n)
{
	char *path;

	if (asprintf(&path, "%s/%u", dir, seq++) < 0 || mkdir(path, 0755) ||
	    asprintf(&path, "%s/%s", path, odd(n)) < 0)
		die("a directory in %s: %m", dir);
	for (char *c = path + strlen(path) - strlen(odd(n)); *c; c++)
		if (*c == '/')
			*c = '-';
	return path;
}

/* ---- before all others: a new program ---- */

/* Executes the program again, from a copy with an odd name, with
 * odd arguments. The properties are passed in the environment. */
static int walk_exec(unsigned int n)
{
	char *args[] = { (char *)odd(n >> 3), (char *)odd(n >> 8), n & 1 ? "" : NULL, n & 1 ? "last" : NULL, NULL };
	char *envp[70] = { "MKTASK_AFTER_EXEC=walk" }, *path = fresh(n >> 5), *other;
	int in = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), out, i;
	struct stat st;

	must(fstat(in, &st));
	out = must(n & 2 ? memfd_create("walk (deleted)", MFD_CLOEXEC) : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
	for (off_t left = st.st_size; left > 0;)
		left -= must(sendfile(out, in, NULL, left));
	if (n & 2 && asprintf(&path, "/proc/self/fd/%d", out) < 0)
		die("out of memory");
	else if (!(n & 2))
		close(out);
	if (asprintf(&envp[1], "WALK_DIR=%s", dir) < 0 || asprintf(&envp[2], "WALK_UNLINK=%s", n & 4 && !(n & 2) ? path : "") < 0)
		die("out of memory");
	if (n & 16 && !(n & 2)) {	/* a hard link, of which the first name goes */
		other = fresh(n >> 9);
		must(link(path, other));
		must(unlink(path));
		path = other;
		if (asprintf(&envp[2], "WALK_UNLINK=%s", n & 4 ? path : "") < 0)
			die("out of memory");
	}
	for (i = 0; props[i]; i++)
		if (strncmp(props[i], "exec=", 5) && asprintf(&envp[3 + i], "WALK_%d=%s", i, props[i]) < 0)
			die("out of memory");
		else if (!strncmp(props[i], "exec=", 5))
			envp[3 + i] = "SKIPPED=";
	execve(path, args, envp);
	return -1;
}

/* ---- before namespaces ---- */

static int walk_zombie_child(unsigned int n)
{
	pid_t pid = spawn();

	if (pid == 0) {
		prctl(PR_SET_NAME, odd(n));
		if (n & 64)
			setsid();
		_exit(n);
	}
	return waitid(P_PID, pid, &(siginfo_t){}, WEXITED | WNOWAIT);
}

static int walk_cgroup(unsigned int n)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	int made = 0;

	if (!mounts)
		return -1;
	while ((m = getmntent(mounts)) && made < 2) {
		char path[700], procs[720], text[16];
		pid_t child;

		if (strcmp(m->mnt_type, "cgroup2") && (strcmp(m->mnt_type, "cgroup") || !hasmntopt(m, "pids")))
			continue;
		snprintf(path, sizeof(path), "%s/walk %d %s", m->mnt_dir, getpid(), strchr(odd(n), '\n') ? "" : odd(n));
		if (strlen(path) > 300 || mkdir(path, 0755))
			continue;
		snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
		snprintf(text, sizeof(text), "%d", getpid());
		made++;
		if (n & 32) {	/* a zombie in a removed group */
			child = spawn();
			if (child == 0) {
				snprintf(text, sizeof(text), "%d", getpid());
				write_file(procs, text);
				_exit(0);
			}
			must(waitid(P_PID, child, &(siginfo_t){}, WEXITED | WNOWAIT));
			for (int i = 0; i < 1000 && rmdir(path) && errno == EBUSY; i++)
				usleep(1000);
			continue;
		}
		clean_rmdir(path);
		write_file(procs, text);
	}
	endmntent(mounts);
	return made ? 0 : -1;
}

static int walk_session(unsigned int n)
{
	char name[64], nice[8];
	int fd;

	if (n & 1)
		return setpgid(0, 0);
	if (setsid() < 0)
		return -1;
	snprintf(nice, sizeof(nice), "%d", (int)(n >> 4) % 20);
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (n & 2 && fd >= 0 && write(fd, nice, strlen(nice)) < 0)
		errno = 0;	/* it may be too early for the next change */
	close(fd);
	if (!(n & 4))
		return 0;
	signal(SIGHUP, SIG_IGN);
	fd = posix_openpt(O_RDWR | (n & 8 ? O_NOCTTY : 0) | O_CLOEXEC);
	if (fd < 0 || grantpt(fd) || unlockpt(fd) || ptsname_r(fd, name, sizeof(name)))
		return -1;
	return open(name, O_RDWR | O_CLOEXEC);
}

/* ---- namespaces ---- */

static void write_maps(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	write_file(path, "0 50000 60000");
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	write_file(path, "0 60000 60000");
}

static int walk_userns(unsigned int n)
{
	int go[2], status;
	pid_t child, me = getpid();
	char c;

	must(pipe2(go, O_CLOEXEC));
	child = spawn();
	if (child == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) == 1 && !(n & 1))
			write_maps(me);
		_exit(0);
	}
	close(go[0]);
	if (!unshare(CLONE_NEWUSER))
		must(write(go[1], "", 1));
	else
		n = 1u << 31;
	close(go[1]);
	must(waitpid(child, &status, 0));
	if (n == 1u << 31)
		return -1;
	fact("uid_offset", "%d", n & 1 ? -1 : 50000);
	fact("gid_offset", "%d", n & 1 ? -1 : 60000);
	return 0;
}

/* A child makes the other properties, because these namespaces are only for children of the
 * task. */
static int into(int flag, const char *offsets)
{
	int fd, bad;

	if (unshare(flag))
		return -1;
	if (offsets) {
		fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
		bad = fd < 0 || write(fd, offsets, strlen(offsets)) < 0;
		close(fd);
		if (bad)
			return -1;
	}
	if (spawn())
		forever();
	return 0;
}

static int walk_timens(unsigned int n)
{
	static const char *const offsets[] = { NULL, "boottime 1000000 5\nmonotonic 7 999\n", "boottime -3000 0\n", "boottime -1 1\n" };

	return into(0x80 /* CLONE_NEWTIME */, offsets[n % 4]);
}

static int walk_pidns(unsigned int n)
{
	if (into(CLONE_NEWPID, NULL))
		return -1;
	if (n & 1 && spawn() == 0)
		forever();
	return n & 2 ? unshare(CLONE_NEWPID) : 0;	/* which is of its children only */
}

static int walk_namespace(unsigned int n)
{
	static const int flags[] = { CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWCGROUP, CLONE_NEWNS, 0x80 };
	int all = 0;

	for (int i = 0; i < 6; i++)
		if (n & 1u << i)
			all |= flags[i];
	if (unshare(all))
		return -1;
	if (all & CLONE_NEWUTS)
		sethostname("walk", 4);
	return 0;
}

static int walk_mounts(unsigned int n)
{
	const char *name = odd(n >> 6);
	char *at = fresh(n), *below;

	/* No path leads to a detached mount, so in /proc this name looks like a deleted one. */
	if (n & 128 && strstr(name, " (deleted)"))
		name = "plain";
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	must(mkdir(at, 0755));
	if (n & 32 ? mount("/proc", at, NULL, MS_BIND, NULL) : mount("walk", at, "tmpfs", 0, NULL))
		return -1;
	if (asprintf(&below, "%s/%s", at, n & 32 ? "version" : name) < 0)
		die("out of memory");
	/* A user without an id of its own in this namespace can make no file. */
	if (open(below, O_RDONLY | O_CLOEXEC | (n & 32 ? 0 : O_CREAT), 0600) < 0)
		return -1;
	if (n & 64)
		must(chdir(at));
	return n & 128 ? umount2(at, MNT_DETACH) : 0;
}

/* ---- values that are shared with others ---- */

static char *new_stack(void)
{
	char *p = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap: %m");
	return p + (64 << 10) - 64;
}

static int cloned(void *arg)
{
	die_with_parent();
	if ((uintptr_t)arg & 1)
		raise(SIGSTOP);
	forever();
}

static int walk_clone(unsigned int n)
{
	static const int flags[] = { CLONE_VM, CLONE_FILES, CLONE_FS, CLONE_SYSVSEM, CLONE_IO, CLONE_SIGHAND | CLONE_VM };
	int all = SIGCHLD;

	for (int i = 0; i < 6; i++)
		if (n & 1u << i)
			all |= flags[i];
	return clone(cloned, new_stack(), all, (void *)(uintptr_t)(n >> 6 & 1));
}

/* A child continues with our memory, and we wait in vfork(2). */
static int walk_vfork(unsigned int n)
{
	pid_t pid = syscall(SYS_clone, CLONE_VFORK | (n & 1 ? CLONE_FILES : 0) | (n & 2 ? CLONE_VM : 0) | SIGCHLD, 0, 0, 0, 0);

	if (pid > 0)
		forever();
	if (pid == 0)
		die_with_parent();
	return pid;
}

static atomic_uint threads_left;

static void *threaded(void *arg)
{
	unsigned int n = (uintptr_t)arg;
	struct sched_param param = { 0 };
	cpu_set_t set;

	die_with_parent();
	if (n & 1)
		prctl(PR_SET_NAME, odd(n >> 10));
	if (n & 2 && !unshare(CLONE_FS) && chdir(n & 4 ? "/" : dir))
		die("chdir: %m");
	if (n & 8 && !unshare(CLONE_FILES)) {
		open(fresh(n >> 12), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (n & 16)
			close(0);
	}
	if (n & 32)
		unshare(CLONE_NEWNET);
	if (n & 64)
		syscall(SYS_setresuid, 4005, -1, 4006);
	if (n & 128)
		setpriority(PRIO_PROCESS, 0, 7);
	if (n & 256)
		sched_setscheduler(0, SCHED_BATCH, &param);
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (n & 512)
		sched_setaffinity(0, sizeof(set), &set);
	atomic_fetch_sub(&threads_left, 1);
	forever();
}

static int walk_thread(unsigned int n)
{
	atomic_fetch_add(&threads_left, 1);
	thread(threaded, (void *)(uintptr_t)n);
	while (atomic_load(&threads_left))
		usleep(100);
	return 0;
}

/* ---- places ---- */

static int walk_cwd(unsigned int n)
{
	char *path = fresh(n);

	must(mkdir(path, 0755));
	if (chdir(path))
		return -1;
	return n & 32 ? rmdir(path) : 0;
}

static int walk_root(unsigned int n)
{
	char *path = fresh(n);

	must(mkdir(path, 0755));
	must(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (chroot(path))
		return -1;
	dir = "";	/* more files are made below the new root */
	return n & 32 ? chdir("/") : 0;	/* otherwise it is outside */
}

/* ---- numbers ---- */

static int walk_limit(unsigned int n)
{
	static const rlim_t values[] = { 0, 1, 4095, 1 << 20, 1ULL << 40, RLIM_INFINITY };
	struct rlimit now, to;
	int which = n % 16;

	must(getrlimit(which, &now));
	to.rlim_max = values[(n >> 4) % 6];
	if (to.rlim_max > now.rlim_max || which == RLIMIT_CPU)
		to.rlim_max = now.rlim_max;
	to.rlim_cur = values[(n >> 8) % 6];
	if (to.rlim_cur > to.rlim_max)
		to.rlim_cur = to.rlim_max;
	if (which == RLIMIT_CPU)
		to.rlim_cur = 3600 + n;
	return setrlimit(which, &to);
}

static int walk_sched(unsigned int n)
{
	static const int policies[] = { SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR };
	int policy = policies[n % 5], reset = n & 64 ? 0x40000000 : 0;
	struct sched_param param = { .sched_priority = policy == SCHED_FIFO || policy == SCHED_RR ? 1 + (n >> 8) % 99 : 0 };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((n >> 3) % sysconf(_SC_NPROCESSORS_ONLN), &set);
	if (n & 32)
		sched_setaffinity(0, sizeof(set), &set);
	if (sched_setscheduler(0, policy | reset, &param))
		return -1;
	return n & 128 ? setpriority(PRIO_PROCESS, 0, (int)(n >> 8) % 40 - 20) : 0;
}

static int walk_oom(unsigned int n)
{
	char text[16];
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	snprintf(text, sizeof(text), "%d", (int)(n % 2001) - 1000);
	return fd < 0 ? -1 : write(fd, text, strlen(text));
}

static int walk_comm(unsigned int n)
{
	return prctl(PR_SET_NAME, odd(n));
}

static void caught(int sig)
{
}

static int walk_signals(unsigned int n)
{
	int sig = 1 + n % 64;

	if (sig == SIGKILL || sig == SIGSTOP || sig == SIGCONT || sig == 32 || sig == 33 || sig == SIGSEGV)
		return 0;
	if (n & 64) {
		sigset_t set;

		sigemptyset(&set);
		sigaddset(&set, sig);
		sigprocmask(SIG_BLOCK, &set, NULL);
		if (n & 128)
			return n & 256 ? tgkill(getpid(), gettid(), sig) : kill(getpid(), sig);
		return 0;
	}
	return signal(sig, n & 128 ? SIG_IGN : caught) == SIG_ERR ? -1 : 0;
}

/* ---- rights; each step leaves fewer of them ---- */

static int walk_groups(unsigned int n)
{
	static gid_t list[65];

	for (unsigned int i = 0; i < n % 66; i++)
		list[i] = (n >> 8) % 1000 + 3 * i;
	return setgroups(n % 66, list);
}

static int walk_ids(unsigned int n)
{
	uid_t a = n % 60000, b = n & 1 ? a : n / 3 % 60000;

	if (n & 2 && setresgid(b, a, n & 4 ? b : a))
		return -1;
	if (n & 8)
		prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	return n & 16 ? 0 : setresuid(a, b, n & 4 ? a : b);
}

static int walk_caps(unsigned int n)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct cap[2];

	must(syscall(SYS_capget, &hdr, cap));
	if (n & 1)
		prctl(PR_CAPBSET_DROP, (n >> 8) % 40, 0, 0, 0);
	if (n & 2)
		prctl(PR_SET_SECUREBITS, (n >> 10 & 0x3f) | (n & 4 ? 0xc0 : 0));
	cap[0].permitted &= n * 0x9e3779b1u;
	cap[0].effective = cap[0].permitted & n;
	cap[0].inheritable = cap[0].permitted & ~n;
	cap[1].effective &= cap[1].permitted;
	if (syscall(SYS_capset, &hdr, cap))
		return -1;
	for (int i = 0; i < 32; i++)
		if (n & 8 && cap[0].permitted & cap[0].inheritable & 1u << i)
			prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0);
	return 0;
}

static int walk_prctl(unsigned int n)
{
	if (n & 1)
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (n & 2)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (n & 4)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (n & 8)
		prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	return 0;
}

/* The members of SETTINGS and PERSONA: priority of I/O, processors, umask, personality, timer
 * slack, huge pages. */
static int walk_setting(unsigned int n)
{
	static const unsigned long flags[] = { 0x40000, 0x1000000, 0x2000000, 0x4000000 };
	cpu_set_t cpus;

	switch (n % 6) {
	case 0:
		return syscall(SYS_ioprio_set, 1, 0, (1 + (n >> 3) % 3) << 13 | (n >> 5) % 8);
	case 1:
		CPU_ZERO(&cpus);
		CPU_SET((n >> 3) % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
		return sched_setaffinity(0, sizeof(cpus), &cpus);
	case 2:
		umask(n >> 3 & 0777);
		return 0;
	case 3:
		return personality(flags[(n >> 3) % 4]);
	case 4:
		return prctl(PR_SET_TIMERSLACK, 1 + (n >> 3) % 1000000);
	default:
		return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	}
}

static int walk_seccomp(unsigned int n)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { .len = 1, .filter = &allow };

	if (!(n & 1) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	for (unsigned int i = 0; i <= n % 3; i++)
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
			return -1;
	return 0;
}

static atomic_int rest_is_done;

static void *survivor(void *arg)
{
	die_with_parent();
	while (!atomic_load(&rest_is_done))
		usleep(1000);
	usleep(20000);	/* the first thread ends meanwhile */
	hold();
}

/* The thread is made here, because a limit may forbid it later. */
static int walk_end(unsigned int n)
{
	ending = n % 4;
	if (ending == LEADER_DIES)
		thread(survivor, NULL);
	return 0;
}

static const struct {
	const char *name;
	int (*make)(unsigned int n);
} table[] = {
	{ "exec", walk_exec }, { "zombie_child", walk_zombie_child }, { "cgroup", walk_cgroup }, { "session", walk_session },
	{ "oom", walk_oom }, { "userns", walk_userns }, { "timens", walk_timens }, { "pidns", walk_pidns },
	{ "namespace", walk_namespace }, { "mounts", walk_mounts }, { "vfork", walk_vfork }, { "end", walk_end },
	{ "file", walk_file }, { "memory", walk_memory },
	{ "pipe", walk_pipe }, { "socket", walk_socket }, { "unix", walk_unix }, { "event", walk_event }, { "lock", walk_lock },
	{ "map", walk_map }, { "descriptor", walk_descriptor }, { "clone", walk_clone }, { "thread", walk_thread },
	{ "cwd", walk_cwd }, { "root", walk_root }, { "sched", walk_sched }, { "signals", walk_signals }, { "limit", walk_limit },
	{ "groups", walk_groups }, { "ids", walk_ids }, { "caps", walk_caps }, { "prctl", walk_prctl }, { "comm", walk_comm },
	{ "setting", walk_setting },
	{ "seccomp", walk_seccomp },
};

/* Values that only the task itself can get from the kernel. */
static void own_words(void)
{
	uid_t u[3];
	gid_t g[3], list[70];
	int n = getgroups(70, list);

	must(getresuid(&u[0], &u[1], &u[2]));
	must(getresgid(&g[0], &g[1], &g[2]));
	fact("uids", "%u,%u,%u", u[0], u[1], u[2]);
	fact("gids", "%u,%u,%u", g[0], g[1], g[2]);
	for (int i = 0; i < n; i++)
		fact_item("groups", i == 0, list[i]);
	fact("no_new_privs", "%d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	fact("securebits", "%d", prctl(PR_GET_SECUREBITS));
	fact("seccomp", "%d", prctl(PR_GET_SECCOMP));
}

static void walk(int argc, char **argv)
{
	extern char **environ;
	static const char ends[] = "STZZ";
	char key[64], all[1024] = "";
	int n = 0;

	if (argc >= 0) {
		if (argc < 2)
			die("usage: walk DIRECTORY [PROPERTY=N...]");
		dir = argv[1];
		for (int i = 2; i < argc && n < 63; i++)
			props[n++] = argv[i];
	} else {
		for (char **e = environ; *e; e++) {
			if (!strncmp(*e, "WALK_DIR=", 9))
				dir = *e + 9;
			else if (!strncmp(*e, "WALK_UNLINK=/", 13))
				must(unlink(*e + 12));
			else if (!strncmp(*e, "WALK_", 5) && n < 63 && strchr("0123456789", (*e)[5]))
				props[n++] = strchr(*e, '=') + 1;
		}
		seq = 1000;
	}
	for (size_t t = 0; t < sizeof(table) / sizeof(*table); t++) {
		if (!strcmp(table[t].name, "file"))
			fact("pid", "%d", host_pid());	/* it is the process that stays, and not yet elsewhere */
		for (int i = 0; i < n; i++) {
			char *eq = strchr(props[i], '=');

			if (!eq || strncmp(props[i], table[t].name, eq - props[i]) || table[t].name[eq - props[i]])
				continue;
			if (table[t].make(strtoul(eq + 1, NULL, 0)) >= 0)
				continue;
			snprintf(key, sizeof(key), "no_%s", table[t].name);
			fact(key, "%d", errno);
		}
	}
	for (size_t t = 0; t < sizeof(table) / sizeof(*table); t++)
		strcat(strcat(all, t ? "," : ""), table[t].name);
	fact("properties", "%s", all);
	die_with_parent();	/* a change of rights forgets it */
	own_words();
	fact("ends", "%c", ends[ending]);
	switch (ending) {
	case STOPS:
		ready();
		raise(SIGSTOP);
		forever();
	case DIES:
		ready();
		usleep(20000);	/* the supervisor sees that it is ready, and not that it has ended */
		_exit(3);
	case LEADER_DIES:
		atomic_store(&rest_is_done, 1);
		pthread_exit(NULL);
	}
	hold();
}

const struct state walk_states[] = {
	{ "walk", walk, "DIRECTORY [PROPERTY=N...]: all of these properties together" },
	{ 0 }
};
