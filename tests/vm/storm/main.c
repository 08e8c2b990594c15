// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Makes storms of tasks that come, go and change while readers look at them. They are for kernels
 * that check themselves or poison freed memory, because these tell what went wrong. A storm is
 * bounded in time, and everything that it starts ends with it.
 *
 * usage: storm SECONDS SEED [PART...]
 *
 * Without names of parts, it is the storm for the kernel series, which has readers of its own. The
 * part `sentinels` makes tasks whose possible values are all known: see sentinels.c, and
 * tests/src/bin/storm_reader.rs, which reads them. It prints the seed and how often each part went
 * round. The exit code is 1 if a part never did, or saw something impossible.
 */
#include "storm.h"

#include <ftw.h>

char base[PATH_MAX / 2];
static uint64_t state;
static time_t end;

static const struct part {
	const char *name;
	long (*run)(void);
	int workers;
	/* Whether the storm that tests the kernel series has this part. */
	int series;
} parts[] = {
	{ "forks", forks, 3, 1 },
	{ "traces", traces, 2, 1 },
	{ "proc", proc, 2, 1 },
	{ "links", links, 2, 1 },
	{ "diag", diag, 2, 1 },
	{ "places", places, 3, 0 },
	{ "leaves", leaves, 3, 0 },
	{ "mounts", mounts, 1, 0 },
	{ "renames", renames, 1, 0 },
	{ "things", things, 2, 0 },
	{ "descriptors", descriptors, 2, 0 },
	{ "waits", waits, 1, 0 },
	{ "cgroups", cgroups, 1, 0 },
	{ "processor", processor, 1, 0 },
	{ "hunger", hunger, 1, 0 },
};
enum { PARTS = sizeof(parts) / sizeof(*parts), TURN_SECONDS = 3 };

/* The part that this process belongs to, if the parts take turns. */
static int turn = -1;

/* A third of the parts run at a time, each in one of three turns and always with others. If all ran
 * at once, none would make progress while a reader reads. */
static int is_off(void)
{
	long now = time(NULL) / TURN_SECONDS;

	return turn >= 0 && (now + turn + now / 3 * (turn / 3)) % 3;
}

int going(void)
{
	while (time(NULL) < end && is_off())
		usleep(50000);
	return time(NULL) < end;
}

uint64_t rnd(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

void seed_with(uint64_t seed)
{
	state = seed | 1;
}

void die(const char *what)
{
	fprintf(stderr, "storm: %s: %s\n", what, strerror(errno));
	_exit(1);
}

pid_t child(int flags)
{
	uint64_t seed = rnd();
	pid_t pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		seed_with(seed);
	}
	return pid;
}

/* The number of tasks that the machine has ever made, threads included. */
static long made(void)
{
	FILE *f = fopen("/proc/stat", "r");
	char line[4096];
	long n = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "processes %ld", &n);
	if (f)
		fclose(f);
	return n;
}

static int gone(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

/* Whether this part was requested. */
static int wanted(const char *name, int series, int n, char **names)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return 1;
	return n <= 0 && series;
}

static void make_base(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(base, sizeof(base), "%s/storm", tmp ? tmp : "/tmp");
	nftw(base, gone, 16, FTW_DEPTH | FTW_PHYS);
	if (mkdir(base, 0755) || chdir(base))
		die(base);
}

static int known(const char *name)
{
	for (int i = 0; i < PARTS; i++)
		if (!strcmp(parts[i].name, name))
			return 1;
	return !strcmp(name, "sentinels");
}

static long begin(const struct part *part, uint64_t seed)
{
	long n;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	seed_with(seed);
	n = part->run();
	fflush(stdout);
	return n;
}

/* The first processor is left to the readers and the sentinels, because there they would always
 * wait for one of our many tasks. So the storm continues while they read. */
static void leave_first_processor(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		die("sched_getaffinity");
	if (CPU_COUNT(&set) < 2)
		return;
	CPU_CLR(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 10, bad = 0, status, lost, sentinels = 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	long *rounds, before;
	pid_t pid;

	if (argc > 1 && !strcmp(argv[1], "--nothing"))
		return 0;
	if (argc > 3 && !strcmp(argv[0], "sentinel"))
		return sentinel(atoi(argv[1]), !strcmp(argv[2], "headless"));
	for (int i = 3; i < argc; i++)
		if (!known(argv[i])) {
			fprintf(stderr, "storm: no part is called %s\n", argv[i]);
			return 2;
		}
	printf("seed %llu, %d s\n", (unsigned long long)seed, seconds);
	fflush(stdout);
	signal(SIGUSR1, SIG_IGN);
	make_base();
	before = made();
	seed_with(seed);
	end = time(NULL) + seconds;
	rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (wanted("sentinels", 0, argc - 3, argv + 3)) {
		sentinels = start_sentinels(make_tree());
		leave_first_processor();
		/* Starting the parts took a while. */
		end = time(NULL) + seconds;
	}
	for (unsigned int i = 0; i < PARTS; i++) {
		if (!wanted(parts[i].name, parts[i].series, argc - 3, argv + 3))
			continue;
		for (int w = 0; w < parts[i].workers; w++) {
			if (fork() == 0) {
				long n;

				/* Directories are renamed all the time. */
				if (sentinels && parts[i].run != renames)
					turn = i;
				n = begin(&parts[i], seed * 64 + i * 8 + w);
				if (n < 0)
					__atomic_store_n(&rounds[i], n, __ATOMIC_RELAXED);
				else
					__atomic_add_fetch(&rounds[i], n, __ATOMIC_RELAXED);
				_exit(0);
			}
		}
	}
	while (time(NULL) < end)
		sleep(1);
	lost = sentinels ? end_sentinels() : 0;
	if (lost)
		printf("%d of %d sentinels had ended\n", lost, sentinels);
	while ((pid = wait(&status)) > 0)
		if (status) {
			printf("a part ended with status %#x\n", status);
			bad = 1;
		}
	for (unsigned int i = 0; i < PARTS; i++) {
		if (!wanted(parts[i].name, parts[i].series, argc - 3, argv + 3))
			continue;
		if (rounds[i] == -2)
			printf("SKIP %s: this kernel has not what it is about\n", parts[i].name);
		else
			printf("%s: %ld rounds\n", parts[i].name, rounds[i]);
		bad |= rounds[i] <= 0 && rounds[i] != -2;
	}
	printf("%ld tasks came and went\n", made() - before);
	if (chdir("/") == 0)
		nftw(base, gone, 16, FTW_DEPTH | FTW_PHYS);
	return bad || lost;
}
