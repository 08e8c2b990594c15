/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures how late a real-time task runs. One SCHED_FIFO thread on each CPU sleeps 500 microseconds at a time and notes
 * by how much more than that it slept at worst. Only the kernel, and tasks that run in it without a break, can keep the
 * thread waiting.
 *
 *	lateness SECONDS
 *
 * Prints a line for each CPU: the worst lateness in microseconds, the longest time that the thread was awake and did not
 * run, which the kernel counts in schedstat, and how many of these times were longer than 5 ms. A task that runs in the
 * kernel without a break makes an awake thread wait. A lateness without such a wait means that the timer's interrupt
 * itself came late: the host did not run the virtual machine, or interrupts were off. A host that does not run the virtual
 * machine makes an awake thread wait, too, so these numbers mean something only beside those of a program that never
 * enters the kernel. It ends by itself. It needs root, for SCHED_FIFO.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_NS = 500000, LONG_NS = 5000000, CPUS_MAX = 1024, PRIORITY = 50 };

static long seconds;
static long worst_ns[CPUS_MAX], longest_wait_ns[CPUS_MAX];
static long long_waits[CPUS_MAX];
static int failed[CPUS_MAX];

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* How long this thread has been awake without running since it began. */
static long long waited_ns(int schedstat)
{
	char text[128];
	long long ran, waited;
	ssize_t n = pread(schedstat, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return -1;
	text[n] = 0;
	return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : -1;
}

static void *watch(void *cpu_at)
{
	long cpu = (long)cpu_at;
	struct sched_param p = { .sched_priority = PRIORITY };
	struct timespec t = { .tv_nsec = SLEEP_NS };
	long long end, before, late, waits, waited;
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) ||
	    pthread_setschedparam(pthread_self(), SCHED_FIFO, &p) || waited_ns(schedstat) < 0) {
		failed[cpu] = 1;
		return NULL;
	}
	end = now_ns() + seconds * 1000000000ll;
	waited = waited_ns(schedstat);
	while ((before = now_ns()) < end) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
		late = now_ns() - before - SLEEP_NS;
		if (late > worst_ns[cpu])
			worst_ns[cpu] = late;
		waits = waited_ns(schedstat);
		if (waits - waited > longest_wait_ns[cpu])
			longest_wait_ns[cpu] = waits - waited;
		long_waits[cpu] += waits - waited > LONG_NS;
		waited = waits;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[CPUS_MAX];
	cpu_set_t set;
	long cpu;

	seconds = argc == 2 ? atol(argv[1]) : 0;
	if (seconds < 1 || seconds > 600) {
		fprintf(stderr, "usage: lateness SECONDS (1 to 600)\n");
		return 2;
	}
	if (mlockall(MCL_CURRENT | MCL_FUTURE) || sched_getaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "lateness: %s\n", strerror(errno));
		return 1;
	}
	for (cpu = 0; cpu < CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &set) && pthread_create(&thread[cpu], NULL, watch, (void *)cpu)) {
			fprintf(stderr, "lateness: no thread for CPU %ld\n", cpu);
			return 1;
		}
	for (cpu = 0; cpu < CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &set)) {
			pthread_join(thread[cpu], NULL);
			if (failed[cpu]) {
				fprintf(stderr, "lateness: no SCHED_FIFO or no schedstat here; run it as root\n");
				return 1;
			}
			printf("%ld %ld %ld\n", worst_ns[cpu] / 1000, longest_wait_ns[cpu] / 1000, long_waits[cpu]);
		}
	return 0;
}
