/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Threads that wait below functions with known names. A fact `KIND=A` names the thread. Below each
 * wait are the functions stack_inner, stack_middle and stack_outer, which no compiler may leave
 * out. */
#include "mktask.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noclone))
/* The call before it is not the last thing that the function does, so it is no jump. */
#define AFTER_CALL() __asm__ volatile("" ::: "memory")

enum { DEEP = 100 };
static int pipe_fd[2];

CALLED static void stack_inner(void (*wait)(void))
{
	wait();
	AFTER_CALL();
}

CALLED static void stack_middle(void (*wait)(void))
{
	stack_inner(wait);
	AFTER_CALL();
}

CALLED static void stack_outer(void (*wait)(void))
{
	stack_middle(wait);
	AFTER_CALL();
}

static void by_read(void)
{
	char byte;

	while (read(pipe_fd[0], &byte, 1) < 0)
		pause();
}

static void by_futex(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&mutex);
	pthread_mutex_lock(&mutex);
}

static void by_sleep(void)
{
	struct timespec day = { 86400, 0 };

	nanosleep(&day, NULL);
}

/* The size of the stack is not known to the compiler, so the function needs a frame pointer. It is
 * still in the register during the system call, and nowhere on the stack. */
CALLED static void stack_framed(size_t room)
{
	volatile char *bytes = __builtin_alloca(room);
	char byte;

	bytes[0] = 1;
	syscall(SYS_read, pipe_fd[0], &byte, 1);
	bytes[0] = 2;
}

static void by_frame(void)
{
	stack_framed(1000 + (size_t)getpid() % 16);
	AFTER_CALL();
}

CALLED static void stack_deep(int left)
{
	if (left)
		stack_deep(left - 1);
	else
		by_read();
	AFTER_CALL();
}

static void deeply(void)
{
	stack_deep(DEEP);
	AFTER_CALL();
}

static void on_signal(int number)
{
	by_read();
}

CALLED static void stack_signalled(void)
{
	pthread_kill(pthread_self(), SIGUSR1);
	AFTER_CALL();
}

static void by_signal(void)
{
	stack_t other = { .ss_sp = malloc(64 << 10), .ss_size = 64 << 10 };
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };

	must(sigaltstack(&other, NULL));
	must(sigaction(SIGUSR1, &act, NULL));
	stack_signalled();
}

/* Code that is in no file calls the first argument. */
static void by_made_code(void)
{
#if defined(__x86_64__)
	static const unsigned char code[] = { 0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3 };
#elif defined(__aarch64__)
	static const unsigned int code[] = { 0xa9bf7bfd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 };
#else
	static const unsigned char code[1];
	die("no code for this machine");
#endif
	void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made == MAP_FAILED)
		die("mmap: %m");
	memcpy(made, code, sizeof(code));
	must(mprotect(made, 4096, PROT_READ | PROT_EXEC));
	__builtin___clear_cache(made, (char *)made + sizeof(code));
	((void (*)(void (*)(void)))made)(by_read);
}

static struct kind {
	const char *name;
	void (*wait)(void);
	atomic_int tid;
} kinds[] = {
	{ "read", by_read, 0 },	  { "futex", by_futex, 0 }, { "sleep", by_sleep, 0 },
	{ "framed", by_frame, 0 }, { "deep", deeply, 0 },    { "signal", by_signal, 0 },
	{ "made", by_made_code, 0 },
};

static void *begin(void *arg)
{
	struct kind *kind = arg;

	prctl(PR_SET_NAME, kind->name);
	atomic_store(&kind->tid, gettid());
	stack_outer(kind->wait);
	return NULL;
}

static void stacks(int argc, char **argv)
{
	must(pipe(pipe_fd));
	fact("pid", "%d", getpid());
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		thread(begin, &kinds[i]);
		while (!atomic_load(&kinds[i].tid))
			usleep(500);
		await_sleep(atomic_load(&kinds[i].tid), kinds[i].name);
		fact(kinds[i].name, "%d", atomic_load(&kinds[i].tid));
	}
	hold();
}

/* The memory of the thread's stack is gone, and a handler that does not answer has to bring it
 * back. The thread never returns to it. */
static void no_memory(int argc, char **argv)
{
	enum { SIZE = 256 << 10 };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	void *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register area = {
		.range = { .start = (unsigned long)stack, .len = SIZE }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	pthread_attr_t attr;
	pthread_t t;

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		skip("userfaultfd: %m");
	if (stack == MAP_FAILED)
		die("mmap: %m");
	must(pipe(pipe_fd));
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, SIZE);
	if (pthread_create(&t, &attr, begin, &kinds[0]))
		die("pthread_create");
	while (!atomic_load(&kinds[0].tid))
		usleep(500);
	await_sleep(atomic_load(&kinds[0].tid), kinds[0].name);
	must(ioctl(fd, UFFDIO_REGISTER, &area));
	must(madvise(stack, SIZE, MADV_DONTNEED));
	fact("pid", "%d", getpid());
	fact("waits", "%d", atomic_load(&kinds[0].tid));
	hold();
}

const struct state stack_states[] = {
	{ "stacks", stacks, "threads wait below functions with known names" },
	{ "stack-no-memory", no_memory, "a thread waits whose stack does not come" },
	{ NULL, NULL, NULL },
};
