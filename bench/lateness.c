/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures how late a real-time task runs. One SCHED_FIFO thread on each CPU sleeps 500
 * microseconds at a time and notes by how much more than that it slept at worst. Only the kernel,
 * and tasks that run in it without a break, can keep the thread waiting.
 *
 *	lateness SECONDS [SAMPLE_US]
 *
 * Prints a line for each CPU: the worst lateness in microseconds, the longest time that the thread
 * was awake and did not run, which the kernel counts in schedstat, and how many of these times were
 * longer than 5 ms. A task that runs in the kernel without a break makes an awake thread wait. A
 * lateness without such a wait means that the timer's interrupt itself came late: the host did not
 * run the virtual machine, or interrupts were off. A host that does not run the virtual machine
 * makes an awake thread wait, too, so these numbers mean something only in comparison with those of
 * a program that never enters the kernel. It ends by itself. It needs root, for SCHED_FIFO.
 *
 * With SAMPLE_US, it also prints which tasks ran during the waits. A timer of the kernel records
 * every SAMPLE_US microseconds what the CPU is doing. Each line then has two more numbers, in
 * microseconds:
 *
 * - The longest time in one wait in which samples saw a task run. Two threads of the kernel do
 *   not count. khungtaskd looks at each task of the machine every two minutes, and kdamond at
 *   samples of its pages all the time, whether there is a request or not. With 100,000
 *   processes, khungtaskd kept a CPU for 45 ms.
 * - The longest time in one wait without a sample. Then the CPU itself did not run, because the
 *   host of a virtual machine took it, or it ran with interrupts off.
 *
 * It also prints the longest waits of each CPU, with the stacks that were seen in each and how many
 * samples saw them. These lines begin with "#". Code that runs with interrupts off has no samples.
 * Its time is counted at the place where it turns them on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_NS = 500000, LONG_NS = 5000000, CPUS_MAX = 1024, PRIORITY = 50 };
/* How many of the longest waits are kept for each CPU, and how many samples of each. */
enum { KEPT = 4, STACKS_MAX = 64, FRAMES_MAX = 48, COMM = 16 };
/* Pages for the samples that one sleep can bring. A power of two. */
enum { RING_PAGES = 512 };

static long seconds, sample_us;
static long worst_ns[CPUS_MAX], longest_wait_ns[CPUS_MAX];
static long long_waits[CPUS_MAX];
static int failed[CPUS_MAX];
/* These values exist only with samples, see above. */
static long long longest_run_ns[CPUS_MAX], longest_gap_ns[CPUS_MAX];
static const char *const never_ours[] = { "khungtaskd", "kdamond" };

/* A stack that was seen during a wait, innermost function first. */
struct stack {
	long samples;
	int frames;
	char comm[COMM];
	unsigned long long frame[FRAMES_MAX];
};

/* A wait, and the end of it in the kernel's monotonic clock. */
struct wait {
	long long waited_ns, late_ns, end_ns;
	/* The number of samples in which a task ran that may serve a request. */
	long samples;
	/* The longest time in it without a sample, and when the last one was. */
	long long gap_ns, last_ns;
	int stacks;
	struct stack stack[STACKS_MAX];
};

struct sampler {
	int fd;
	char *ring;
	struct wait now, kept[KEPT];
};

static struct sampler *samplers[CPUS_MAX];

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

/* Begins to sample a CPU. Returns NULL if that is not possible. */
static struct sampler *sampler(int cpu)
{
	struct perf_event_attr a = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.size = sizeof(a),
		.sample_period = sample_us * 1000,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN,
		.exclude_callchain_user = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	struct sampler *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->fd = syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (s->fd < 0)
		return NULL;
	s->ring = mmap(NULL, (1 + RING_PAGES) * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	return s->ring == MAP_FAILED ? NULL : s;
}

/* Copies from the ring, whose end continues at its beginning. */
static void copy_out(struct sampler *s, unsigned long long at, void *to, size_t n)
{
	size_t page = sysconf(_SC_PAGESIZE), size = RING_PAGES * page;

	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = s->ring[page + (at + i) % size];
}

static void add_sample(struct wait *w, unsigned tid, const unsigned long long *ips, unsigned long long n)
{
	struct stack new = { .samples = 1 };
	char path[64];
	int fd;

	/* Numbers that look like addresses at the top mark user mode or the kernel. */
	for (unsigned long long i = 0; i < n && new.frames < FRAMES_MAX; i++)
		if (ips[i] < (unsigned long long)PERF_CONTEXT_MAX)
			new.frame[new.frames++] = ips[i];
	snprintf(path, sizeof(path), "/proc/%u/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t got = read(fd, new.comm, COMM - 1);

		new.comm[got > 0 ? got - 1 : 0] = 0;
		close(fd);
	}
	w->samples++;
	for (size_t i = 0; i < sizeof(never_ours) / sizeof(never_ours[0]); i++)
		w->samples -= !strncmp(new.comm, never_ours[i], strlen(never_ours[i]));
	for (int i = 0; i < w->stacks; i++)
		if (w->stack[i].frames == new.frames && !strcmp(w->stack[i].comm, new.comm) &&
		    !memcmp(w->stack[i].frame, new.frame, new.frames * sizeof(new.frame[0]))) {
			w->stack[i].samples++;
			return;
		}
	if (w->stacks < STACKS_MAX)
		w->stack[w->stacks++] = new;
}

static void sampled_at(struct wait *w, long long at)
{
	if (at - w->last_ns > w->gap_ns)
		w->gap_ns = at - w->last_ns;
	w->last_ns = at;
}

/* Takes all samples out of the ring, and keeps those of this wait if it is one of the longest. */
static void take_samples(long cpu, long long waited, long long late)
{
	struct sampler *s = samplers[cpu];
	struct perf_event_mmap_page *head = (void *)s->ring;
	unsigned long long at = head->data_tail, end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE);
	struct { unsigned pid, tid; unsigned long long time, n, ip[FRAMES_MAX * 2]; } sample;
	struct perf_event_header record;
	struct wait *shortest = &s->kept[0];

	for (int i = 1; i < KEPT; i++)
		if (s->kept[i].waited_ns < shortest->waited_ns)
			shortest = &s->kept[i];
	if (waited <= shortest->waited_ns && waited <= longest_run_ns[cpu] && waited <= longest_gap_ns[cpu])
		at = end;
	s->now = (struct wait){ .waited_ns = waited, .late_ns = late, .end_ns = now_ns() };
	s->now.last_ns = s->now.end_ns - late;
	while (at < end) {
		copy_out(s, at, &record, sizeof(record));
		if (record.type == PERF_RECORD_SAMPLE && record.size <= sizeof(record) + sizeof(sample)) {
			copy_out(s, at + sizeof(record), &sample, record.size - sizeof(record));
			if ((long long)sample.time >= s->now.last_ns && sample.tid != (unsigned)gettid()) {
				add_sample(&s->now, sample.tid, sample.ip, sample.n);
				sampled_at(&s->now, sample.time);
			}
		}
		at += record.size;
	}
	__atomic_store_n(&head->data_tail, end, __ATOMIC_RELEASE);
	sampled_at(&s->now, s->now.end_ns);
	if (s->now.gap_ns > waited)
		s->now.gap_ns = waited;
	if (s->now.samples * sample_us * 1000 > longest_run_ns[cpu])
		longest_run_ns[cpu] = s->now.samples * sample_us * 1000;
	if (s->now.gap_ns > longest_gap_ns[cpu])
		longest_gap_ns[cpu] = s->now.gap_ns;
	if (waited > shortest->waited_ns)
		*shortest = s->now;
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
	    pthread_setschedparam(pthread_self(), SCHED_FIFO, &p) || waited_ns(schedstat) < 0 ||
	    (sample_us && !(samplers[cpu] = sampler(cpu)))) {
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
		if (sample_us)
			take_samples(cpu, waits - waited, late);
		/* Time that the thread waits outside of its sleep does not count for the next sleep. */
		waited = sample_us ? waited_ns(schedstat) : waits;
	}
	if (sample_us)
		close(samplers[cpu]->fd);
	return NULL;
}

#define GONE "(gone)"

struct symbol {
	unsigned long long at;
	char name[64];
};

static struct symbol *symbols;
static size_t nsymbols;

static int by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static void read_symbols(void)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[512], name[64];
	unsigned long long at;
	size_t room = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx %*c %63s", &at, name) != 2 || !at)
			continue;
		if (nsymbols == room) {
			room = room ? room * 2 : 1 << 18;
			symbols = realloc(symbols, room * sizeof(*symbols));
			if (!symbols)
				exit(1);
		}
		symbols[nsymbols].at = at;
		memcpy(symbols[nsymbols++].name, name, sizeof(name));
	}
	if (f)
		fclose(f);
	qsort(symbols, nsymbols, sizeof(*symbols), by_address);
}

/* The name of a code address. A BPF program that was unloaded has no name, and its address is far
 * from all functions that have one. */
static const char *symbol(unsigned long long ip)
{
	size_t low = 0, high = nsymbols;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (symbols[middle].at <= ip)
			low = middle + 1;
		else
			high = middle;
	}
	return low && ip - symbols[low - 1].at < 0x10000 ? symbols[low - 1].name : GONE;
}

/* The names of a stack. Functions of unloaded programs count as one. */
static void name_stack(const struct stack *s, char *to, size_t room)
{
	const char *name, *before = "";
	size_t used = snprintf(to, room, "%s:", s->comm);

	for (int i = 0; i < s->frames && used < room; i++) {
		name = symbol(s->frame[i]);
		if (strcmp(name, before) || strcmp(name, GONE))
			used += snprintf(to + used, room - used, " %s", name);
		before = name;
	}
}

static void print_samples(int cpu, const struct sampler *s)
{
	static char names[STACKS_MAX][FRAMES_MAX * 64];

	for (int i = 0; i < KEPT; i++) {
		const struct wait *w = &s->kept[i];

		printf("# CPU %d waited %lld us, late %lld us, no sample for %lld us\n", cpu, w->waited_ns / 1000,
		       w->late_ns / 1000, w->gap_ns / 1000);
		for (int j = 0; j < w->stacks; j++)
			name_stack(&w->stack[j], names[j], sizeof(names[j]));
		for (int j = 0; j < w->stacks; j++) {
			long samples = 0;
			int first = 0;

			while (strcmp(names[first], names[j]))
				first++;
			if (first < j)
				continue;
			for (int k = j; k < w->stacks; k++)
				samples += strcmp(names[k], names[j]) ? 0 : w->stack[k].samples;
			printf("#  %ld %s\n", samples, names[j]);
		}
	}
}

int main(int argc, char **argv)
{
	pthread_t thread[CPUS_MAX];
	cpu_set_t set;
	long cpu;

	seconds = argc == 2 || argc == 3 ? atol(argv[1]) : 0;
	sample_us = argc == 3 ? atol(argv[2]) : 0;
	if (seconds < 1 || seconds > 600 || sample_us < 0 || (argc == 3 && sample_us < 1)) {
		fprintf(stderr, "usage: lateness SECONDS [SAMPLE_US] (1 to 600 seconds)\n");
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
				fprintf(stderr, "lateness: no SCHED_FIFO, no schedstat or no samples here; run it as root\n");
				return 1;
			}
			printf("%ld %ld %ld", worst_ns[cpu] / 1000, longest_wait_ns[cpu] / 1000, long_waits[cpu]);
			if (sample_us)
				printf(" %lld %lld", longest_run_ns[cpu] / 1000, longest_gap_ns[cpu] / 1000);
			printf("\n");
		}
	if (sample_us)
		read_symbols();
	for (cpu = 0; cpu < CPUS_MAX; cpu++)
		if (samplers[cpu])
			print_samples(cpu, samplers[cpu]);
	return 0;
}
