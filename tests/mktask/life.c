/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States of living and dying: which tasks exist, which wait for others, and how many threads there
 * are. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *wait_thread(void *arg)
{
	forever();
}

static void idle(int argc, char **argv)
{
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	fact("pgid", "%d", getpgrp());
	fact("sid", "%d", getsid(0));
	fact("threads", "1");
	hold();
}

static void zombie(int argc, char **argv)
{
	pid_t pid = spawn();

	if (pid == 0) {
		must(prctl(PR_SET_NAME, "deadman"));
		_exit(7);
	}
	must(waitid(P_PID, pid, &(siginfo_t){}, WEXITED | WNOWAIT));
	fact("pid", "%d", pid);
	fact("ppid", "%d", getpid());
	fact("pgid", "%d", getpgrp());
	fact("sid", "%d", getsid(0));
	hold();
}

static atomic_int report_tids[8];

static void *tid_thread(void *arg)
{
	atomic_store(&report_tids[(intptr_t)arg], (int)gettid());
	forever();
}

static void *after_leader(void *arg)
{
	await_state(getpid(), getpid(), 'Z');
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	for (int i = 0; i < 2; i++) {
		while (!atomic_load(&report_tids[i]))
			usleep(100);
		fact_item("tids", i == 0, atomic_load(&report_tids[i]));
	}
	fact_item("tids", 0, gettid());
	fact("threads", "4");
	hold();
}

static void leader_gone(int argc, char **argv)
{
	thread(tid_thread, (void *)0);
	thread(tid_thread, (void *)1);
	thread(after_leader, NULL);
	pthread_exit(NULL);
}

static void *exec_thread_fn(void *arg)
{
	fact("gone_tid", "%d", gettid());
	exec_again(self_exe(), (char *[]){ "exec-from-thread", "x", NULL }, "exec-thread");
}

static void exec_thread(int argc, char **argv)
{
	if (argc < 0) {
		fact("pid", "%d", getpid());
		fact("tid", "%d", gettid());
		fact("ppid", "%d", getppid());
		fact("threads", "1");
		hold();
	}
	fact("old_start_ns", "%lld", now_ns(CLOCK_BOOTTIME));
	usleep(50000);
	thread(wait_thread, NULL);
	thread(exec_thread_fn, NULL);
	forever();
}

static void *exec_on_thread(void *arg)
{
	exec_again(self_exe(), (char *[]){ "exec-for-ever", NULL }, "exec-for-ever");
}

/* Each program has a few threads, and the last thread calls exec for the next program. */
static void exec_for_ever(int argc, char **argv)
{
	if (argc >= 0) {
		fact("pid", "%d", getpid());
		ready();
	}
	for (int i = 0; i < 3; i++)
		thread(wait_thread, NULL);
	thread(exec_on_thread, NULL);
	forever();
}

static void stopped(int argc, char **argv)
{
	pid_t pid = spawn();
	int status;

	if (pid == 0) {
		raise(SIGSTOP);
		forever();
	}
	must(waitpid(pid, &status, WUNTRACED));
	fact("pid", "%d", pid);
	fact("ppid", "%d", getpid());
	hold();
}

static void traced(int stop)
{
	pid_t pid = spawn();
	int status;

	if (pid == 0)
		forever();
	await_state(pid, pid, 'S');
	must(ptrace(PTRACE_SEIZE, pid, 0, 0));
	if (stop) {
		must(ptrace(PTRACE_INTERRUPT, pid, 0, 0));
		must(waitpid(pid, &status, __WALL));
	}
	fact("pid", "%d", pid);
	fact("ppid", "%d", getpid());
	fact("tracer", "%d", getpid());
	hold();
}

static void traced_running(int argc, char **argv)
{
	traced(0);
}

static void traced_stopped(int argc, char **argv)
{
	traced(1);
}

static void threads(int argc, char **argv)
{
	long n = arg_number(argc, argv, 1, 4000);

	for (long i = 0; i < n; i++)
		thread(wait_thread, NULL);
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	fact("threads", "%ld", n + 1);
	hold();
}

/* named-family: children and threads in turn, whose names sort among
 * each other. Each has the name that its parent had when it began. */
static void named_family(int argc, char **argv)
{
	static const char *const names[][2] = {
		{ "abc", "b" }, { "{bb}", "x" }, { "|pipe", "~q" }, { "\303\251", "b" }, { "{0}", "\377z" },
		{ "\377", "a" }, { "zz", "m" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		must(prctl(PR_SET_NAME, names[i][0]));
		if (spawn() == 0)
			forever();
		must(prctl(PR_SET_NAME, names[i][1]));
		thread(wait_thread, NULL);
	}
	must(prctl(PR_SET_NAME, "mktask"));
	ids();
	hold();
}

static const char *other_dir;

static void *unshared_thread(void *arg)
{
	must(unshare(CLONE_FILES | CLONE_FS));
	must(chdir(other_dir));
	must(open("/dev/zero", O_RDONLY));
	must(prctl(PR_SET_NAME, "unsharer"));
	fact("other_tid", "%d", gettid());
	fact_str("other_cwd", other_dir);
	fact_str("other_comm", "unsharer");
	hold();
}

static void unshared_files(int argc, char **argv)
{
	if (argc < 3)
		die("usage: unshared-files CWD OTHER-CWD");
	must(chdir(argv[1]));
	other_dir = argv[2];
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	fact_str("cwd", argv[1]);
	thread(unshared_thread, NULL);
	forever();
}

static void suspended_vfork(int argc, char **argv)
{
	pid_t pid;

	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	pid = vfork();
	if (pid == 0) {
		/* This uses only a few words of the parent's stack. */
		die_with_parent();
		fact("child", "%d", getpid());
		await_state(getppid(), getppid(), 'D');
		hold();
	}
	die("vfork returned");
}

/* The leader of its session and group is dead and reaped. */
static void orphan(int argc, char **argv)
{
	pid_t leader, top = getpid();
	int pipefd[2];
	char c;

	must(prctl(PR_SET_CHILD_SUBREAPER, 1));
	must(pipe2(pipefd, O_CLOEXEC));
	leader = spawn();
	if (leader == 0) {
		must(setsid());
		if (must(fork()) == 0) {
			close(pipefd[1]);
			must(read(pipefd[0], &c, 1));	/* until the leader is reaped */
			die_with_parent();
			if (getppid() != top)
				_exit(1);
			fact("pid", "%d", getpid());
			fact("ppid", "%d", getppid());
			fact("sid", "%d", getsid(0));
			fact("pgid", "%d", getpgrp());
			hold();
		}
		_exit(0);
	}
	must(waitpid(leader, NULL, 0));
	close(pipefd[0]);
	must(write(pipefd[1], "x", 1) == 1 ? 0 : -1);
	forever();
}

static atomic_int thread_child;

static void *forking_thread(void *arg)
{
	pid_t pid = spawn();

	if (pid == 0)
		forever();
	atomic_store(&thread_child, (int)pid);
	forever();
}

/* Children. One is the child of a thread, and one has a child of its own. */
static void family(int argc, char **argv)
{
	long n = arg_number(argc, argv, 1, 3);

	for (long i = 0; i < n; i++) {
		pid_t pid = spawn();

		if (pid == 0)
			forever();
		fact_item("children", i == 0, pid);
	}
	thread(forking_thread, NULL);
	while (!atomic_load(&thread_child))
		usleep(100);
	fact_item("children", 0, atomic_load(&thread_child));
	int *grandchild = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = spawn();

	if (pid == 0) {
		pid = spawn();
		if (pid)
			*(volatile int *)grandchild = pid;
		forever();
	}
	fact_item("children", 0, pid);
	while (!*(volatile int *)grandchild)
		usleep(100);
	fact("grandchild", "%d", *grandchild);
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	hold();
}

/* A child whose pid is lower than its parent's, as after the pids have wrapped. */
static void pid_wrap(int argc, char **argv)
{
	for (pid_t want = getpid() - 1; want > 300; want--) {
		struct clone_args args = {
			.exit_signal = SIGCHLD,
			.set_tid = (uintptr_t)&want,
			.set_tid_size = 1,
		};
		long pid = syscall(SYS_clone3, &args, sizeof(args));

		if (pid == 0) {
			die_with_parent();
			forever();
		}
		if (pid > 0) {
			fact("pid", "%ld", pid);
			fact("ppid", "%d", getpid());
			hold();
		}
		if (errno != EEXIST)
			skip("clone3 with set_tid: %m");
	}
	skip("no lower pid is free");
}

/* As pid-wrap, inside a pid namespace, by setting the counter of pids. */
static void pid_wrap_ns(int argc, char **argv)
{
	if (unshare(CLONE_NEWPID))
		skip("unshare(CLONE_NEWPID): %m");
	if (spawn())
		forever();
	write_file("/proc/sys/kernel/ns_last_pid", "30000");
	pid_t parent = spawn();

	if (parent)
		forever();
	int parent_host = host_pid(), parent_ns = getpid();

	write_file("/proc/sys/kernel/ns_last_pid", "99");
	if (spawn())
		forever();
	fact("pid", "%d", host_pid());
	fact("ppid", "%d", parent_host);
	fact("inner_pid", "%d", getpid());
	fact("inner_ppid", "%d", parent_ns);
	if (getpid() >= parent_ns)
		die("pid %d did not wrap below %d", getpid(), parent_ns);
	hold();
}

/* Short-lived processes and threads, until the end. */
static void *short_thread(void *arg)
{
	return arg;
}

static void storm(int argc, char **argv)
{
	fact("pid", "%d", getpid());
	ready();
	for (;;) {
		pid_t pid[8];

		for (int i = 0; i < 8; i++) {
			pid[i] = spawn();
			if (pid[i] == 0) {
				if (i % 4 == 1)
					thread(short_thread, NULL);
				if (i % 4 == 2)
					usleep(500);
				if (i % 4 == 3)
					execl("/bin/true", "true", NULL);
				_exit(0);
			}
		}
		for (int i = 0; i < 8; i++)
			must(waitpid(pid[i], NULL, 0));
	}
}

/* The number of programs that a new process runs in turn, and the length of
 * the arguments of each: so long that a reader is often in the middle of them. */
enum { NEW_PROGRAMS = 5, NEW_ARGS = 16, NEW_ARG_LEN = 100000 };

static void *exec_new(void *left)
{
	static char text[NEW_ARG_LEN];
	char *argv[NEW_ARGS + 2] = { (char *)left };

	memset(text, 'x', sizeof(text) - 1);
	for (int i = 1; i <= NEW_ARGS; i++)
		argv[i] = text;
	exec_again(self_exe(), argv, "new-programs");
}

/* Starts new processes all the time. In each, a thread
 * calls exec several times, and then the process ends. */
static void new_programs(int argc, char **argv)
{
	char left[16];

	if (argc < 0) {
		if (atoi(argv[0]) == 0)
			_exit(0);
		snprintf(left, sizeof(left), "%d", atoi(argv[0]) - 1);
		thread(exec_new, left);
		forever();
	}
	fact("pid", "%d", getpid());
	ready();
	snprintf(left, sizeof(left), "%d", NEW_PROGRAMS);
	for (;;) {
		pid_t pid[4];

		for (int i = 0; i < 4; i++) {
			pid[i] = spawn();
			if (pid[i] == 0)
				exec_new(left);
		}
		for (int i = 0; i < 4; i++)
			must(waitpid(pid[i], NULL, 0));
	}
}

const struct state life_states[] = {
	{ "idle", idle, "nothing odd" },
	{ "zombie", zombie, "ended, not waited for" },
	{ "leader-gone", leader_gone, "the leader called pthread_exit, three threads live on" },
	{ "exec-thread", exec_thread, "exec by a thread that is not the leader" },
	{ "exec-for-ever", exec_for_ever, "repeated exec by a thread that is not the leader" },
	{ "new-programs", new_programs, "short-lived processes that exec by a thread, all the time" },
	{ "stopped", stopped, "SIGSTOP" },
	{ "traced-running", traced_running, "ptraced, not stopped" },
	{ "traced-stopped", traced_stopped, "ptraced and stopped" },
	{ "named-family", named_family, "children and threads whose names sort among each other" },
	{ "threads", threads, "[N]: N idle threads and the leader" },
	{ "unshared-files", unshared_files, "CWD OTHER-CWD: a thread with its own files and directory" },
	{ "vfork", suspended_vfork, "waiting for a vfork child that does nothing" },
	{ "orphan", orphan, "its session and group leader is dead and reaped" },
	{ "family", family, "[N]: N + 2 children and a grandchild" },
	{ "pid-wrap", pid_wrap, "a lower pid than its parent" },
	{ "pid-wrap-ns", pid_wrap_ns, "the same in a pid namespace" },
	{ "storm", storm, "short-lived processes and threads all the time" },
	{ 0 }
};
