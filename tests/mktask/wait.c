/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that wait, each for something else. The facts name each thread by the
 * object of its wait, and have the arguments of its system call if they are known.
 */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t word, pi_word;
static char *dir;
static int pi_holder_tid, pipe_read_fd, sem_id, msg_id;

static void futex(void)
{
	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void *pi_holder(void *arg)
{
	must(syscall(SYS_futex, &pi_word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	__atomic_store_n(&pi_holder_tid, (int)gettid(), __ATOMIC_SEQ_CST);
	forever();
}

static void futex_pi(void)
{
	while (!__atomic_load_n(&pi_holder_tid, __ATOMIC_SEQ_CST))
		usleep(1000);
	syscall(SYS_futex, &pi_word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0);
}

static void pipe_read(void)
{
	int fds[2];
	char c;

	must(pipe2(fds, O_CLOEXEC));
	__atomic_store_n(&pipe_read_fd, fds[0], __ATOMIC_SEQ_CST);
	read(fds[0], &c, 1);
}

static void pipe_write(void)
{
	static char much[1 << 20];
	int fds[2];

	must(pipe2(fds, O_CLOEXEC));
	write(fds[1], much, sizeof(much));
}

static void fifo_open(void)
{
	char *path = in_dir(dir, "fifo");

	must(mkfifo(path, 0600));
	open(path, O_RDONLY | O_CLOEXEC);
}

static void tty_read(void)
{
	int pt = must(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	char c;

	must(grantpt(pt));
	must(unlockpt(pt));
	read(must(open(ptsname(pt), O_RDWR | O_NOCTTY | O_CLOEXEC)), &c, 1);
}

static int listener(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	must(bind(fd, (struct sockaddr *)&at, sizeof(at.sun_family)));
	must(listen(fd, 1));
	return fd;
}

static void accept_one(void)
{
	accept(listener(), NULL, NULL);
}

static void receive(void)
{
	int fds[2];
	char c;

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	recv(fds[0], &c, 1, 0);
}

static void send_much(void)
{
	static char much[1 << 22];
	int fds[2];

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	send(fds[0], much, sizeof(much), 0);
}

static void epoll(void)
{
	struct epoll_event e;

	epoll_wait(must(epoll_create1(EPOLL_CLOEXEC)), &e, 1, -1);
}

static void poll_nothing(void)
{
	poll(NULL, 0, -1);
}

static void select_nothing(void)
{
	select(0, NULL, NULL, NULL, NULL);
}

static void event(void)
{
	eventfd_t n;

	eventfd_read(must(eventfd(0, EFD_CLOEXEC)), &n);
}

static void inotify(void)
{
	char c[256];
	int fd = must(inotify_init1(IN_CLOEXEC));

	must(inotify_add_watch(fd, "/", IN_DELETE_SELF));
	read(fd, c, sizeof(c));
}

static void timer(void)
{
	struct itimerspec far = { .it_value.tv_sec = 1000000 };
	int fd = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	uint64_t n;

	must(timerfd_settime(fd, 0, &far, NULL));
	read(fd, &n, sizeof(n));
}

static void nap(void)
{
	sleep(1000000);
}

static void signal_wait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigwaitinfo(&set, NULL);
}

static void child(void)
{
	pid_t pid = spawn();

	if (pid == 0)
		forever();
	waitpid(pid, NULL, __WNOTHREAD);
}

/* Another open file has the lock. */
static int locked(const char *name)
{
	char *path = in_dir(dir, name);
	int fd = must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));

	must(flock(fd, LOCK_EX));
	return must(open(path, O_RDWR | O_CLOEXEC));
}

static void flock_wait(void)
{
	flock(locked("flock"), LOCK_EX);
}

static void ofd_lock(void)
{
	struct flock all = { .l_type = F_WRLCK };
	char *path = in_dir(dir, "ofd");

	must(fcntl(must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)), F_OFD_SETLK, &all));
	fcntl(must(open(path, O_RDWR | O_CLOEXEC)), F_OFD_SETLKW, &all);
}

static void posix_lock(void)
{
	struct flock all = { .l_type = F_WRLCK };
	char *path = in_dir(dir, "posix");
	int fd = must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)), has[2];
	char c;

	must(pipe2(has, O_CLOEXEC));
	if (spawn() == 0) {
		must(fcntl(fd, F_SETLK, &all));
		must(write(has[1], "x", 1));
		forever();
	}
	must(read(has[0], &c, 1));
	fcntl(fd, F_SETLKW, &all);
}

static void sysv_sem(void)
{
	struct sembuf take = { .sem_op = -1 };

	semop(sem_id, &take, 1);
}

static void sysv_msg(void)
{
	struct { long type; char text[1]; } m;

	msgrcv(msg_id, &m, 1, 0, 0);
}

static const struct wait { const char *kind, *syscall; void (*in)(void); } waits[] = {
	{ "futex", "futex", futex }, { "futex-pi", "futex", futex_pi },
	{ "pipe-read", "read", pipe_read }, { "pipe-write", "write", pipe_write },
	{ "fifo-open", "openat", fifo_open }, { "tty-read", "read", tty_read },
	{ "accept", "accept", accept_one }, { "receive", "recvfrom", receive }, { "send", "sendto", send_much },
	{ "epoll", "epoll_wait", epoll }, { "poll", "poll", poll_nothing }, { "select", "select", select_nothing },
	{ "eventfd", "read", event }, { "inotify", "read", inotify }, { "timerfd", "read", timer },
	{ "sleep", "clock_nanosleep", nap }, { "signal", "rt_sigtimedwait", signal_wait },
	{ "child", "wait4", child },
	{ "flock", "flock", flock_wait }, { "ofd-lock", "fcntl", ofd_lock }, { "posix-lock", "fcntl", posix_lock },
	{ "sysv-sem", "semtimedop", sysv_sem }, { "sysv-msg", "msgrcv", sysv_msg },
};
enum { WAITS = sizeof(waits) / sizeof(*waits) };

static int tids[WAITS];

static void *waiter(void *arg)
{
	const struct wait *w = arg;

	__atomic_store_n(&tids[w - waits], (int)gettid(), __ATOMIC_SEQ_CST);
	w->in();
	die("%s: it did not wait: %m", w->kind);
}

static void many_waits(int argc, char **argv)
{
	char key[64];

	if (argc < 2)
		die("usage: waits DIRECTORY");
	dir = argv[1];
	/* Semaphores and queues stay until their namespace ends. */
	if (unshare(CLONE_NEWIPC))
		skip("unshare(CLONE_NEWIPC): %m");
	sem_id = must(semget(IPC_PRIVATE, 1, 0600));
	msg_id = must(msgget(IPC_PRIVATE, 0600));
	thread(pi_holder, NULL);
	for (int i = 0; i < WAITS; i++)
		thread(waiter, (void *)&waits[i]);
	for (int i = 0; i < WAITS; i++) {
		int tid;

		while (!(tid = __atomic_load_n(&tids[i], __ATOMIC_SEQ_CST)))
			usleep(1000);
		await_sleep(tid, waits[i].kind);
		snprintf(key, sizeof(key), "wait-%s", waits[i].kind);
		fact(key, "%d", tid);
		snprintf(key, sizeof(key), "call-%s", waits[i].kind);
		fact(key, "%s", waits[i].syscall);
	}
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	/* Only one thread reports facts. */
	fact("pi_holder", "%d", __atomic_load_n(&pi_holder_tid, __ATOMIC_SEQ_CST));
	fact("pipe_read_fd", "%d", __atomic_load_n(&pipe_read_fd, __ATOMIC_SEQ_CST));
	fact("futex_word", "%llu", (unsigned long long)(uintptr_t)&word);
	fact("asleep_ns", "%lld", now_ns(CLOCK_BOOTTIME));
	hold();
}

const struct state wait_states[] = {
	{ "waits", many_waits, "DIRECTORY: a thread for each kind of wait" },
	{ 0 }
};
