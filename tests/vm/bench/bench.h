// SPDX-License-Identifier: MIT OR Apache-2.0
/* Code that several programs of this directory need. */
#ifndef BENCH_H
#define BENCH_H

#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static inline int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

#ifdef __x86_64__
/*
 * Starts a thread that never uses its stack, because it only repeats pause(2). The stack is the
 * caller's. Returns its tid or a negative errno.
 */
static inline long start_thread(void)
{
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long ret;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 2f\n"
			 "1:\n\t"
			 "mov %[pause], %%eax\n\t"
			 "syscall\n\t"
			 "jmp 1b\n"
			 "2:"
			 : "=a"(ret)
			 : "a"((long)SYS_clone),
			   "D"((long)(CLONE_VM | CLONE_FS | CLONE_FILES |
				      CLONE_SIGHAND | CLONE_THREAD |
				      CLONE_SYSVSEM)),
			   "S"(0L), "d"(0L), "r"(r10), "r"(r8),
			   [pause] "i"(SYS_pause)
			 : "rcx", "r11", "memory");
	return ret;
}

struct load {
	pid_t parent;
	int end;	/* closed to end it */
};

/*
 * Processes of `threads` threads each, and their parent. It ends them one by one: each one that
 * ends with threads left searches all processes under tasklist_lock (mm_update_next_owner()), and
 * many at once take minutes.
 */
static inline struct load start(long processes, int threads)
{
	int ready[2], end[2];
	pid_t parent;
	char c = 0;

	if (pipe(ready) || pipe(end))
		err(1, "pipe");
	parent = fork();
	if (parent < 0)
		err(1, "fork");
	if (!parent) {
		pid_t *pids = calloc(processes, sizeof(*pids));

		close(end[1]);
		for (long i = 0; i < processes; i++) {
			pid_t pid = pids[i] = fork();

			if (pid < 0)
				err(1, "process %ld (raise kernel.pid_max and ulimit -u)", i);
			if (!pid) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				for (int t = 1; t < threads; t++)
					if (start_thread() < 0)
						_exit(1);
				for (;;)
					pause();
			}
		}
		sleep(2);
		if (write(ready[1], &c, 1) != 1 || read(end[0], &c, 1))
			_exit(1);
		for (long i = 0; i < processes; i++) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
		}
		_exit(0);
	}
	close(ready[1]);
	close(end[0]);
	if (read(ready[0], &c, 1) != 1)
		errx(1, "no processes, no measurement");
	close(ready[0]);
	return (struct load){ parent, end[1] };
}

static inline void stop(struct load load)
{
	close(load.end);
	waitpid(load.parent, NULL, 0);
}
#endif

#endif
