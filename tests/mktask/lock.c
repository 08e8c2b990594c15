/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasks that wait for each other, with the truth about who holds what. A fact `KIND=A,B` says that
 * thread A waits for what thread or process B holds. `KIND=A`
 * says that A waits, and that nothing records a holder. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Waits until a task of any process sleeps in this system call. */
static void await_call(int tid, long nr)
{
	char buf[256];

	for (int i = 0; i < 10000; i++) {
		read_proc(tid, "syscall", buf, sizeof(buf));
		if (buf[0] && buf[0] != 'r' && atol(buf) == nr)
			return;
		usleep(1000);
	}
	die("task %d did not reach system call %ld", tid, nr);
}

static void pair(const char *key, int waits, int holds)
{
	fact(key, "%d,%d", waits, holds);
}

/* A thread that takes a mutex, and then waits for another one. */
struct step {
	pthread_mutex_t *has, *wants;
	atomic_int tid, *go;
	const char *name;
};

static void *take_two(void *arg)
{
	struct step *s = arg;

	prctl(PR_SET_NAME, s->name);
	pthread_mutex_lock(s->has);
	atomic_store(&s->tid, gettid());
	while (!atomic_load(s->go))
		usleep(500);
	pthread_mutex_lock(s->wants);
	forever();
}

static int tid_of(atomic_int *tid)
{
	while (!atomic_load(tid))
		usleep(500);
	return atomic_load(tid);
}

static void abba(int argc, char **argv)
{
	static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
	static atomic_int go;
	static struct step one = { &a, &b, 0, &go, "one" }, two = { &b, &a, 0, &go, "two" };

	thread(take_two, &one);
	thread(take_two, &two);
	int first = tid_of(&one.tid), second = tid_of(&two.tid);

	atomic_store(&go, 1);
	await_call(first, SYS_futex);
	await_call(second, SYS_futex);
	fact("pid", "%d", getpid());
	pair("one", first, second);
	pair("two", second, first);
	hold();
}

struct across {
	pthread_mutex_t m[3];
	atomic_int go;
	struct step step[3];
};

static void across(int argc, char **argv)
{
	struct across *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attr;

	if (s == MAP_FAILED)
		die("mmap: %m");
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (int i = 0; i < 3; i++) {
		pthread_mutex_init(&s->m[i], &attr);
		s->step[i] = (struct step){ &s->m[i], &s->m[(i + 1) % 3], 0, &s->go, "ring" };
	}
	pid_t child = spawn();

	if (child == 0)
		take_two(&s->step[2]);
	thread(take_two, &s->step[0]);
	thread(take_two, &s->step[1]);
	int tid[3];

	for (int i = 0; i < 3; i++)
		tid[i] = tid_of(&s->step[i].tid);
	atomic_store(&s->go, 1);
	for (int i = 0; i < 3; i++)
		await_call(tid[i], SYS_futex);
	fact("pid", "%d", getpid());
	fact("child", "%d", child);
	for (int i = 0; i < 3; i++)
		pair((const char *[]){ "first", "second", "third" }[i], tid[i], tid[(i + 1) % 3]);
	hold();
}

/* All kinds of locks that keep an owner. The first thread holds them. */
static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive, checked, adaptive, robust, inherits;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_t main_thread;
static const char *const owned[] = {
	"normal", "recursive", "checked", "adaptive", "robust", "inherits", "timed", "reads", "writes", "joins",
};
enum { OWNED = sizeof(owned) / sizeof(*owned) };
static atomic_int tids[16];

static struct timespec far_away(void)
{
	struct timespec t;

	must(clock_gettime(CLOCK_REALTIME, &t));
	t.tv_sec += 100000;
	return t;
}

static void *wait_owned(void *arg)
{
	long kind = (long)arg;
	struct timespec t = far_away();

	atomic_store(&tids[kind], gettid());
	switch (kind) {
	case 0: pthread_mutex_lock(&normal); break;
	case 1: pthread_mutex_lock(&recursive); break;
	case 2: pthread_mutex_lock(&checked); break;
	case 3: pthread_mutex_lock(&adaptive); break;
	case 4: pthread_mutex_lock(&robust); break;
	case 5: pthread_mutex_lock(&inherits); break;
	case 6: pthread_mutex_timedlock(&normal, &t); break;
	case 7: pthread_rwlock_rdlock(&rwlock); break;
	case 8: pthread_rwlock_wrlock(&rwlock); break;
	case 9: pthread_join(main_thread, NULL); break;
	}
	return NULL;
}

static void init(pthread_mutex_t *m, int type, int is_robust, int protocol)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutexattr_setrobust(&attr, is_robust);
	pthread_mutexattr_setprotocol(&attr, protocol);
	pthread_mutex_init(m, &attr);
	pthread_mutex_lock(m);
}

static void owners(int argc, char **argv)
{
	main_thread = pthread_self();
	pthread_mutex_lock(&normal);
	init(&recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	pthread_mutex_lock(&recursive);
	init(&checked, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	init(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	init(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
	init(&inherits, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
	pthread_rwlock_wrlock(&rwlock);
	fact("pid", "%d", getpid());
	for (long i = 0; i < OWNED; i++) {
		thread(wait_owned, (void *)i);
		int tid = tid_of(&tids[i]);

		await_call(tid, SYS_futex);
		pair(owned[i], tid, getpid());
	}
	hold();
}

/* Waits that have no owner, among them some that look like locks that have one. */
static pthread_mutex_t with_condition = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static pthread_barrier_t barrier;
static pthread_rwlock_t read_locked = PTHREAD_RWLOCK_INITIALIZER;
/* A lock whose word is 2, followed by data like that in a mutex of the C library. */
static struct { unsigned int word, count, owner, users, kind, spins; void *list[2]; } own_lock, looks_alike;
static const char *const ownerless[] = {
	"condition", "timed-condition", "semaphore", "barrier", "readers", "own-lock", "by-hand",
};
enum { OWNERLESS = sizeof(ownerless) / sizeof(*ownerless) };

static void *wait_ownerless(void *arg)
{
	long kind = (long)arg;
	struct timespec t = far_away();

	atomic_store(&tids[kind], gettid());
	switch (kind) {
	case 0:
		pthread_mutex_lock(&with_condition);
		pthread_cond_wait(&condition, &with_condition);
		break;
	case 1:
		pthread_mutex_lock(&with_condition);
		pthread_cond_timedwait(&condition, &with_condition, &t);
		break;
	case 2: sem_wait(&semaphore); break;
	case 3: pthread_barrier_wait(&barrier); break;
	case 4: pthread_rwlock_wrlock(&read_locked); break;
	/* As the standard library of Rust does it. */
	case 5:
		syscall(SYS_futex, &own_lock.word, FUTEX_WAIT_BITSET_PRIVATE, 2, NULL, NULL, ~0u);
		break;
	/* As the runtime of Go does it. */
	case 6: syscall(SYS_futex, &looks_alike.word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0); break;
	}
	return NULL;
}

/* A futex with priority inheritance, by the program's own system call, from the same place as
 * looks_alike. */
static unsigned int inherits_by_hand;
static atomic_int tid_by_hand;

static void *wait_by_hand(void *unused)
{
	atomic_store(&tid_by_hand, gettid());
	syscall(SYS_futex, &inherits_by_hand, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0);
	return unused;
}

static void no_owners(int argc, char **argv)
{
	sem_init(&semaphore, 0, 0);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_rwlock_rdlock(&read_locked);
	own_lock.word = looks_alike.word = 2;
	own_lock.owner = looks_alike.owner = getpid();
	own_lock.users = looks_alike.users = 1;
	fact("pid", "%d", getpid());
	for (long i = 0; i < OWNERLESS; i++) {
		thread(wait_ownerless, (void *)i);
		int tid = tid_of(&tids[i]);

		await_call(tid, SYS_futex);
		fact(ownerless[i], "%d", tid);
	}
	/* The last thread is looked at first. */
	inherits_by_hand = getpid();
	thread(wait_by_hand, NULL);
	await_call(tid_of(&tid_by_hand), SYS_futex);
	fact("pi-by-hand", "%d", tid_of(&tid_by_hand));
	hold();
}

static int open_in(const char *dir, const char *name)
{
	return must(open(in_dir(dir, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

/* DIRECTORY: three processes. Each waits for the file lock of the next, except for the last one. */
static void lock_chain(int argc, char **argv)
{
	struct flock whole = { .l_type = F_WRLCK };
	pid_t pid[4];
	atomic_int *has = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (argc < 2)
		die("no directory");
	for (int i = 0; i < 4; i++) {
		pid[i] = spawn();
		if (pid[i])
			continue;
		int flock_fd = open_in(argv[1], "by-flock"), ofd = open_in(argv[1], "by-ofd");
		int posix = open_in(argv[1], "by-posix");

		prctl(PR_SET_NAME, (const char *[]){ "head", "flocks", "ofds", "posixes" }[i]);
		/* 0 has the flock; 1 has the OFD lock and wants it; 2 has the POSIX lock and wants that;
		 * 3 wants the last one. */
		if (i == 0) {
			must(flock(flock_fd, LOCK_EX));
			/* It has the open file, too, and so could give the lock back. */
			if (spawn() == 0)
				forever();
		}
		if (i == 1)
			must(fcntl(ofd, F_OFD_SETLK, &whole));
		if (i == 2)
			must(fcntl(posix, F_SETLK, &whole));
		atomic_store(&has[i], 1);
		for (int j = 0; j < 3; j++)
			while (!atomic_load(&has[j]))
				usleep(500);
		if (i == 1)
			must(flock(flock_fd, LOCK_EX));
		if (i == 2)
			must(fcntl(ofd, F_OFD_SETLKW, &whole));
		if (i == 3)
			must(fcntl(posix, F_SETLKW, &whole));
		forever();
	}
	await_call(pid[1], SYS_flock);
	await_call(pid[2], SYS_fcntl);
	await_call(pid[3], SYS_fcntl);
	fact("pid", "%d", pid[0]);
	pair("flock", pid[1], pid[0]);
	pair("ofd", pid[2], pid[1]);
	pair("posix", pid[3], pid[2]);
	hold();
}

/* A writer into a full pipe, a reader of an empty one, and a process that waits for a child. */
static void ends(int argc, char **argv)
{
	int full[2], empty[2];
	pid_t pid[5];

	must(pipe2(full, O_CLOEXEC));
	must(pipe2(empty, O_CLOEXEC));
	must(fcntl(full[1], F_SETPIPE_SZ, 4096));
	for (int i = 0; i < 4; i++) {
		pid[i] = spawn();
		if (pid[i])
			continue;
		char byte = 0, page[8192] = { 0 };

		/* 0 fills the pipe that 1 does not read; 2 reads the pipe into which 3 does not write. */
		for (int end = 0; end < 2; end++) {
			if (i != (end ? 0 : 1))
				close(full[end]);
			if (i != (end ? 3 : 2))
				close(empty[end]);
		}
		if (i == 0)
			for (;;)
				must(write(full[1], page, sizeof(page)));
		if (i == 2)
			must(read(empty[0], &byte, 1));
		forever();
	}
	for (int end = 0; end < 2; end++) {
		close(full[end]);
		close(empty[end]);
	}
	await_call(pid[0], SYS_write);
	await_call(pid[2], SYS_read);
	pid_t parent = spawn();

	if (parent == 0) {
		pid_t child = spawn();

		if (child == 0)
			forever();
		*(volatile pid_t *)&pid[4] = child;
		waitpid(child, NULL, 0);
		forever();
	}
	await_call(parent, SYS_wait4);
	fact("pid", "%d", getpid());
	pair("full", pid[0], pid[1]);
	pair("empty", pid[2], pid[3]);
	fact("parent", "%d", parent);
	hold();
}

/* NUMBER of threads wait for the mutex of the first one. */
static void *wait_in_crowd(void *arg)
{
	pthread_mutex_lock(&normal);
	return arg;
}

static void crowd(int argc, char **argv)
{
	pthread_mutex_lock(&normal);
	for (long n = arg_number(argc, argv, 1, 100); n > 0; n--)
		thread(wait_in_crowd, NULL);
	fact("pid", "%d", getpid());
	hold();
}

/* A mutex in memory whose pages never arrive, because no server provides them. */
static pthread_mutex_t *unanswered;

static void *wait_unanswered(void *arg)
{
	atomic_store(&tids[0], gettid());
	pthread_mutex_lock(unanswered);
	return arg;
}

static void no_memory(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		skip("userfaultfd: %m");
	unanswered = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_mutex_init(unanswered, NULL);
	pthread_mutex_lock(unanswered);
	thread(wait_unanswered, NULL);
	int tid = tid_of(&tids[0]);

	await_call(tid, SYS_futex);
	struct uffdio_register area = {
		.range = { .start = (unsigned long)unanswered, .len = 4096 },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	must(ioctl(fd, UFFDIO_REGISTER, &area));
	must(madvise(unanswered, 4096, MADV_DONTNEED));
	fact("pid", "%d", getpid());
	fact("waits", "%d", tid);
	hold();
}

/* Connections of the tasks of sockets(): each is between two of them. */
enum { READ, MUTUAL, SEND, CONNECTIONS };

/* A child that has these ends only, as bits 2 * connection + end. */
static pid_t child_with(int ends[CONNECTIONS][2], unsigned int mine)
{
	pid_t pid = spawn();

	for (int i = 0; !pid && i < 2 * CONNECTIONS; i++)
		if (!(mine >> i & 1))
			close(ends[i / 2][i % 2]);
	return pid;
}

/* Readers of sockets and a writer into a full one, and an idle task that has the other ends of two
 * of them. Two readers have the two ends of one connection. */
static void sockets(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int listens = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), ends[CONNECTIONS][2];
	int datagrams = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	pid_t idle, reads, mutual[2], sends, hears, accepts;
	char page[4096] = { 0 };

	must(bind(datagrams, (void *)&at, size));
	must(bind(listens, (void *)&at, size));
	must(listen(listens, 1));
	must(getsockname(listens, (void *)&at, &size));
	for (int i = READ; i <= MUTUAL; i++) {
		ends[i][0] = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
		must(connect(ends[i][0], (void *)&at, size));
		ends[i][1] = must(accept4(listens, NULL, NULL, SOCK_CLOEXEC));
	}
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[SEND]));
	if (!(idle = child_with(ends, 1 << 2 * READ | 2 << 2 * SEND)))
		forever();
	if (!(reads = child_with(ends, 2 << 2 * READ)))
		recv(ends[READ][1], page, 1, 0);
	else if (!(mutual[0] = child_with(ends, 1 << 2 * MUTUAL)))
		recv(ends[MUTUAL][0], page, 1, 0);
	else if (!(mutual[1] = child_with(ends, 2 << 2 * MUTUAL)))
		recv(ends[MUTUAL][1], page, 1, 0);
	else if (!(sends = child_with(ends, 1 << 2 * SEND)))
		while (send(ends[SEND][0], page, sizeof(page), 0) > 0)
			;
	else if (!(hears = child_with(ends, 0)))
		recv(datagrams, page, 1, 0);
	else if (!(accepts = child_with(ends, 0)))
		accept(listens, NULL, NULL);
	else {
		for (int i = 0; i < 2 * CONNECTIONS; i++)
			close(ends[i / 2][i % 2]);
		await_call(accepts, SYS_accept);
		await_call(sends, SYS_sendto);
		await_call(hears, SYS_recvfrom);
		await_call(reads, SYS_recvfrom);
		await_call(mutual[0], SYS_recvfrom);
		await_call(mutual[1], SYS_recvfrom);
		fact("pid", "%d", getpid());
		fact("port", "%d", ntohs(at.sin_port));
		pair("reads", reads, idle);
		pair("sends", sends, idle);
		pair("mutual", mutual[0], mutual[1]);
		fact("hears", "%d", hears);
		fact("accepts", "%d", accepts);
		hold();
	}
	forever();
}

const struct state lock_states[] = {
	{ "lock-abba", abba, "two threads wait for each other's mutex" },
	{ "lock-across", across, "three threads of two processes wait for each other in a ring" },
	{ "lock-owners", owners, "threads wait for locks of each kind that keep an owner" },
	{ "lock-no-owners", no_owners, "threads wait for objects that keep no owner" },
	{ "lock-files", lock_chain, "DIRECTORY: a chain of file locks" },
	{ "lock-sockets", sockets, "waits for sockets, whose other ends other processes have" },
	{ "lock-ends", ends, "a full pipe, an empty pipe, and a child that is waited for" },
	{ "lock-crowd", crowd, "[NUMBER]: this many threads wait for one mutex" },
	{ "lock-no-memory", no_memory, "a mutex in memory that does not come" },
	{ NULL, NULL, NULL },
};
