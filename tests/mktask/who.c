/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * States of the owner and the surroundings of a task: credentials, seccomp, namespaces,
 * terminal, directories, cgroup, scheduling policy.
 */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <mntent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Reports the values that the kernel gives the caller by system calls. */
static void cred_facts(void)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct cap[2];
	unsigned long long bounding = 0, ambient = 0;
	uid_t ruid, euid, suid;
	gid_t rgid, egid, sgid, list[256];
	int n;

	must(getresuid(&ruid, &euid, &suid));
	must(getresgid(&rgid, &egid, &sgid));
	fact("uid", "%u", ruid);
	fact("euid", "%u", euid);
	fact("suid", "%u", suid);
	fact("fsuid", "%d", setfsuid(-1));
	fact("gid", "%u", rgid);
	fact("egid", "%u", egid);
	fact("sgid", "%u", sgid);
	fact("fsgid", "%d", setfsgid(-1));
	n = must(getgroups(256, list));
	fact("ngroups", "%d", n);
	for (int i = 0; i < n; i++)
		fact_item("groups", i == 0, list[i]);
	must(syscall(SYS_capget, &hdr, cap));
	fact("cap_inheritable", "%llu", cap[1].inheritable * (1ULL << 32) + cap[0].inheritable);
	fact("cap_permitted", "%llu", cap[1].permitted * (1ULL << 32) + cap[0].permitted);
	fact("cap_effective", "%llu", cap[1].effective * (1ULL << 32) + cap[0].effective);
	for (int i = 0; i < 64 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
		bounding |= (unsigned long long)prctl(PR_CAPBSET_READ, i, 0, 0, 0) << i;
		ambient |= (unsigned long long)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) << i;
	}
	fact("cap_bounding", "%llu", bounding);
	fact("cap_ambient", "%llu", ambient);
	fact("securebits", "%d", must(prctl(PR_GET_SECUREBITS)));
	fact("no_new_privs", "%d", must(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)));
}

static void creds(int argc, char **argv)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct cap[2] = { 0 };
	gid_t list[40];

	(void)argc, (void)argv;
	if (geteuid())
		skip("changing ids needs root");
	for (int i = 0; i < 40; i++)
		list[i] = 100 + 7 * i;
	must(setgroups(40, list));
	must(prctl(PR_CAPBSET_DROP, CAP_SYS_MODULE, 0, 0, 0));
	must(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP));
	must(setresgid(4101, 4102, 4103));
	must(setresuid(4001, 4002, 4003));
	setfsgid(4104);
	setfsuid(4004);
	cap[0].permitted = 1u << CAP_NET_RAW | 1u << CAP_CHOWN | 1u << CAP_KILL;
	cap[0].effective = 1u << CAP_KILL;
	cap[0].inheritable = 1u << CAP_NET_RAW;
	must(syscall(SYS_capset, &hdr, cap));
	must(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0));
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	die_with_parent();	/* a change of ids forgets it */
	ids();
	cred_facts();
	fact("seccomp", "0");
	hold();
}

static void user(int argc, char **argv)
{
	long id = arg_number(argc, argv, 1, 65534);

	if (geteuid())
		skip("changing ids needs root");
	must(setgroups(0, NULL));
	must(setresgid(id, id, id));
	must(setresuid(id, id, id));
	/* Makes the process as inspectable as if its own user had started it. */
	must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	die_with_parent();
	ids();
	cred_facts();
	fact("seccomp", "0");
	hold();
}

/* A thread whose ids differ from those of its process. */
static void *other_ids(void *arg)
{
	(void)arg;
	must(syscall(SYS_setresuid, 4005, 4005, 4005));
	fact("other_tid", "%d", gettid());
	fact("other_uid", "4005");
	hold();
}

static void thread_creds(int argc, char **argv)
{
	(void)argc, (void)argv;
	if (geteuid())
		skip("changing ids needs root");
	ids();
	fact("uid", "%d", getuid());
	thread(other_ids, NULL);
	forever();
}

static void seccomp_filter(int argc, char **argv)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { .len = 1, .filter = &allow };

	(void)argc, (void)argv;
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		skip("seccomp filter: %m");
	ids();
	cred_facts();
	fact("seccomp", "2");
	hold();
}

/* Reports the caller's settings, as its own system calls return them, with `whose` before each
 * name. */
static void setting_facts(const char *whose)
{
	char name[32], text[64];
	cpu_set_t cpus;
	unsigned long long mask = 0;

#define setting(what, ...) (snprintf(name, sizeof(name), "%s" what, whose), fact(name, __VA_ARGS__))
	must(sched_getaffinity(0, sizeof(cpus), &cpus));
	for (int i = 0; i < 64; i++)
		mask |= (unsigned long long)!!CPU_ISSET(i, &cpus) << i;
	setting("tid", "%d", host_tid());
	setting("cpus", "%llu", mask);
	setting("ioprio", "%ld", must(syscall(SYS_ioprio_get, 1, 0)));
	setting("personality", "%d", personality(0xffffffff));
	/* prctl(2) returns an int. */
	setting("timer_slack", "%d", must(prctl(PR_GET_TIMERSLACK)));
	/* User-Mode Linux has no cpusets. */
	if (access("/proc/self/cpuset", F_OK))
		return;
	read_proc(host_tid(), "cpuset", text, sizeof(text));
	text[strcspn(text, "\n")] = 0;
	snprintf(name, sizeof(name), "%scpuset", whose);
	fact_str(name, text);
}

static void *other_settings(void *arg)
{
	must(syscall(SYS_ioprio_set, 1, 0, 3 << 13));
	must(prctl(PR_SET_TIMERSLACK, 777777));
	setting_facts("other_");
	pthread_barrier_wait(arg);
	forever();
}

/* settings: unusual values for all members of SETTINGS and PERSONA, and other ones for a thread. */
static void settings(int argc, char **argv)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { .len = 1, .filter = &allow };
	pthread_barrier_t made;
	pthread_t thread;
	cpu_set_t cpus, one;
	int cpu = CPU_SETSIZE;

	(void)argc, (void)argv;
	ids();
	must(pthread_barrier_init(&made, NULL, 2));
	if (pthread_create(&thread, NULL, other_settings, &made))
		die("pthread_create: %m");
	pthread_barrier_wait(&made);
	must(sched_getaffinity(0, sizeof(cpus), &cpus));
	while (!CPU_ISSET(--cpu, &cpus))
		;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	must(sched_setaffinity(0, sizeof(one), &one));
	must(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6));
	must(personality(ADDR_NO_RANDOMIZE | SHORT_INODE));
	must(prctl(PR_SET_TIMERSLACK, 123456));
	must(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	fact("thp_disabled", "%d", must(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)));
	umask(0027);
	fact("umask", "%d", 0027);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	for (int i = 0; i < 3; i++)
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
			skip("seccomp filter: %m");
	fact("seccomp_filters", "3");
	setting_facts("");
	hold();
}

static void seccomp_strict(int argc, char **argv)
{
	int pipefd[2];
	char c;

	(void)argc, (void)argv;
	must(pipe2(pipefd, O_CLOEXEC));
	ids();
	cred_facts();
	fact("seccomp", "1");
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0))
		skip("seccomp strict: %m");
	ready();
	for (;;)
		read(pipefd[0], &c, 1);
}

static void undumpable(int argc, char **argv)
{
	(void)argc, (void)argv;
	must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	ids();
	hold();
}

static void ns_facts(void)
{
	static const char *const names[] = { "cgroup", "ipc", "mnt", "net", "pid",
		"pid_for_children", "time", "time_for_children", "user", "uts" };
	char path[64], key[64];
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		snprintf(key, sizeof(key), "ns_%s", names[i]);
		if (stat(path, &st) == 0)
			fact(key, "%lu", (unsigned long)st.st_ino);
	}
}

static void namespaces(int argc, char **argv)
{
	(void)argc, (void)argv;
	if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP))
		skip("unshare: %m");
	if (unshare(0x80 /* CLONE_NEWTIME */))
		fact("no_time_ns", "1");
	ids();
	ns_facts();
	hold();
}

/* Two pid namespaces below the reader's. */
static void pidns(int argc, char **argv)
{
	int *middle = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	(void)argc, (void)argv;
	if (unshare(CLONE_NEWPID))
		skip("unshare(CLONE_NEWPID): %m");
	if (spawn())
		forever();
	/* This is the first process of the outer namespace. The third one unshares again. */
	for (int i = 0; i < 2; i++)
		if (spawn() == 0)
			forever();
	if (spawn())
		forever();
	must(unshare(CLONE_NEWPID));
	middle[1] = host_pid();
	pid = spawn();
	if (pid) {
		*(volatile int *)middle = pid;	/* as the outer namespace sees it */
		forever();
	}
	while (!*(volatile int *)middle)
		usleep(100);
	if (spawn() == 0)
		forever();
	fact("pid", "%d", host_pid());
	fact("ppid", "%d", middle[1]);
	fact_item("nspid", 1, host_pid());
	fact_item("nspid", 0, *middle);
	fact_item("nspid", 0, getpid());
	ns_facts();
	hold();
}

static void userns(int argc, char **argv)
{
	int go[2], pid, used = 0;
	char path[64], map[4000], c = 0;

	if (geteuid())
		skip("mapping ids needs root");
	must(pipe2(go, O_CLOEXEC));
	pid = spawn();
	if (pid == 0) {
		if (unshare(CLONE_NEWUSER))
			skip("unshare(CLONE_NEWUSER): %m");
		*(volatile char *)&c = 1;
		must(kill(getpid(), SIGSTOP));	/* until the ids are mapped */
		must(setresgid(3, 3, 3));
		must(setresuid(2, 2, 2));
		die_with_parent();
		fact("pid", "%d", getpid());
		fact("ppid", "%d", getppid());
		fact("uid", "%d", 50002);
		fact("gid", "%d", 60003);
		ns_facts();
		hold();
	}
	await_state(pid, pid, 'T');
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	for (long i = 0, n = arg_number(argc, argv, 1, 0); i < n; i++)
		used += snprintf(map + used, sizeof(map) - used, "%ld %ld 1\n", 2 * i, 50000 + 2 * i);
	write_file(path, used ? map : "0 50000 100");
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	write_file(path, "0 60000 100");
	must(kill(pid, SIGCONT));
	forever();
}

static void tty(int argc, char **argv)
{
	struct stat st;
	char name[64];
	pid_t pid;
	int master, slave;

	(void)argc, (void)argv;
	master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0)
		skip("no pseudo terminals: %m");
	must(grantpt(master));
	must(unlockpt(master));
	must(ptsname_r(master, name, sizeof(name)) ? -1 : 0);
	must(setsid());
	slave = must(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
	must(ioctl(slave, TIOCSCTTY, 0));
	must(fstat(slave, &st));
	pid = spawn();
	if (pid == 0)
		forever();
	must(setpgid(pid, pid));
	must(tcsetpgrp(slave, pid));
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	fact("pgid", "%d", getpgrp());
	fact("sid", "%d", getsid(0));
	fact("child", "%d", pid);
	fact("tty_pgrp", "%d", pid);
	fact("tty_nr", "%u", (minor(st.st_rdev) & 0xff) | major(st.st_rdev) << 8 |
			     (minor(st.st_rdev) & ~0xffu) << 12);
	fact_str("tty", name);
	hold();
}

static void cwd(int argc, char **argv)
{
	if (argc < 2)
		die("usage: cwd DIR");
	must(chdir(argv[1]));
	ids();
	fact_str("cwd", argv[1]);
	fact_str("root", "/");
	fact_str("exe", self_exe());
	hold();
}

static void cwd_deleted(int argc, char **argv)
{
	char shown[4096];

	if (argc < 2)
		die("usage: cwd-deleted DIR");
	must(chdir(argv[1]));
	must(rmdir(argv[1]));
	ids();
	/* This is the form in which the kernel shows it. */
	snprintf(shown, sizeof(shown), "%s (deleted)", argv[1]);
	fact_str("cwd", shown);
	hold();
}

static void root(int argc, char **argv)
{
	char *exe = strdup(self_exe());

	if (argc < 2)
		die("usage: root DIR");
	if (chroot(argv[1]))
		skip("chroot: %m");
	must(chdir("/"));
	ids();
	fact_str("root", argv[1]);
	fact_str("cwd", argv[1]);
	fact_str("exe", exe);
	hold();
}

/* cgroup [odd|long]: the long name has over 255 bytes, and is that of the working directory. */
static void cgroup(int argc, char **argv)
{
	/* The kernel takes no newline. */
	static const char odd[] = "mk\\012\\ \t\xff\u202e\xc2\x9b:task";
	static char name[1001] = "mktask";
	int is_long = argc > 1 && !strcmp(argv[1], "long");
	static const struct { const char *type, *option, *key; } want[] = {
		{ "cgroup2", "", "v2" }, { "cgroup", "pids", "pids" },
	};
	struct mntent *m;
	FILE *mounts;
	int any = 0;

	if (is_long)
		memset(name, 'n', sizeof(name) - 1);
	else if (argc > 1)
		strcpy(name, odd);
	ids();
	for (int i = 0; i < 2; i++) {
		mounts = setmntent("/proc/self/mounts", "re");
		if (!mounts)
			die("/proc/self/mounts: %m");
		while ((m = getmntent(mounts))) {
			char dir[1400], path[1500], pid[16];
			struct stat st;

			if (strcmp(m->mnt_type, want[i].type) ||
			    (*want[i].option && !hasmntopt(m, want[i].option)))
				continue;
			snprintf(dir, sizeof(dir), "%s/%s %d", m->mnt_dir, name, getpid());
			if (mkdir(dir, 0755))
				continue;
			clean_rmdir(dir);
			must(stat(dir, &st));
			snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
			snprintf(pid, sizeof(pid), "%d", getpid());
			write_file(path, pid);
			snprintf(path, sizeof(path), "/%s %d", name, getpid());
			fact_str(want[i].key, path);
			snprintf(path, sizeof(path), "%s_id", want[i].key);
			fact(path, "%lu", (unsigned long)st.st_ino);
			if (is_long && !any) {
				must(chdir(dir));
				fact_str("cwd", dir);
			}
			any = 1;
			break;
		}
		endmntent(mounts);
	}
	if (!any)
		skip("no cgroup can be made here");
	hold();
}

/* sched other|batch|idle|fifo|rr [PRIORITY or NICE]: it runs on the last CPU only. */
static void sched(int argc, char **argv)
{
	static const struct { const char *name; int policy; } policies[] = {
		{ "other", SCHED_OTHER }, { "batch", SCHED_BATCH }, { "idle", SCHED_IDLE },
		{ "fifo", SCHED_FIFO }, { "rr", SCHED_RR },
	};
	long number = arg_number(argc, argv, 2, 0), cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1;
	struct sched_param param = { 0 };
	cpu_set_t set;
	int policy = -1;

	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++)
		if (argc > 1 && !strcmp(argv[1], policies[i].name))
			policy = policies[i].policy;
	if (policy < 0)
		die("unknown policy");
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		cpu = -1;
	if (policy == SCHED_FIFO || policy == SCHED_RR)
		param.sched_priority = number;
	if (sched_setscheduler(0, policy, &param))
		skip("sched_setscheduler: %m");
	if (!param.sched_priority && setpriority(PRIO_PROCESS, 0, number))
		skip("setpriority: %m");
	ids();
	if (cpu >= 0)
		fact("processor", "%ld", cpu);
	fact("policy", "%d", policy);
	fact("rt_priority", "%d", param.sched_priority);
	errno = 0;
	fact("nice", "%d", getpriority(PRIO_PROCESS, 0));
	fact("priority", "%d",
	     param.sched_priority ? -1 - param.sched_priority : 20 + getpriority(PRIO_PROCESS, 0));
	hold();
}

const struct state who_states[] = {
	{ "creds", creds, "every id, capability set and flag changed" },
	{ "user", user, "[ID]: uid and gid ID" },
	{ "thread-creds", thread_creds, "a thread with another uid" },
	{ "seccomp-filter", seccomp_filter, "a seccomp filter" },
	{ "settings", settings, "its own I/O priority, processors, umask, filters, personality, timer slack; no huge pages" },
	{ "seccomp-strict", seccomp_strict, "seccomp strict mode" },
	{ "undumpable", undumpable, "PR_SET_DUMPABLE 0" },
	{ "namespaces", namespaces, "its own mnt, uts, ipc, net, cgroup, time namespaces" },
	{ "pidns", pidns, "two pid namespaces down" },
	{ "userns", userns, "[RANGES]: a user namespace with ids mapped" },
	{ "tty", tty, "a controlling terminal with another foreground group" },
	{ "cwd", cwd, "DIR: working directory" },
	{ "cwd-deleted", cwd_deleted, "DIR: a working directory that was removed" },
	{ "root", root, "DIR: chroot" },
	{ "cgroup", cgroup, "[odd|long]: its own cgroups (v2, v1 pids)" },
	{ "sched", sched, "POLICY [NUMBER]: policy and priority or nice, one CPU" },
	{ 0 }
};
