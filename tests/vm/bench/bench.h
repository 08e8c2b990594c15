// SPDX-License-Identifier: MIT OR Apache-2.0
/* Code that several programs of this directory need. */
#ifndef BENCH_H
#define BENCH_H

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

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
#endif

#endif
