/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures how late a real-time task runs. One SCHED_FIFO thread on each CPU sleeps 500 microseconds at a time and notes
 * by how much more than that it slept at worst. Only the kernel, and tasks that run in it without a break, can keep the
 * thread waiting.
 *
 *	lateness SECONDS
 *
 * Prints the worst lateness of each CPU in microseconds, one line for each. It ends by itself. It needs root, for SCHED_FIFO.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_NS = 500000, CPUS_MAX = 1024, PRIORITY = 50 };

static long seconds;
static long worst_ns[CPUS_MAX];
static int failed[CPUS_MAX];

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void *watch(void *cpu_at)
{
	long cpu = (long)cpu_at;
	struct sched_param p = { .sched_priority = PRIORITY };
	struct timespec t = { .tv_nsec = SLEEP_NS };
	long long end, before, late;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) ||
	    pthread_setschedparam(pthread_self(), SCHED_FIFO, &p)) {
		failed[cpu] = 1;
		return NULL;
	}
	end = now_ns() + seconds * 1000000000ll;
	while ((before = now_ns()) < end) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
		late = now_ns() - before - SLEEP_NS;
		if (late > worst_ns[cpu])
			worst_ns[cpu] = late;
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
				fprintf(stderr, "lateness: no SCHED_FIFO here; run it as root\n");
				return 1;
			}
			printf("%ld\n", worst_ns[cpu] / 1000);
		}
	return 0;
}
