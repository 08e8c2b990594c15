// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sends random and mutated requests to /proc/task_diag for a bounded time. Nothing may crash, hang
 * or leak; the kernel's own checks report that. It knows the format a little, so that it gets past
 * the first check.
 *
 * usage: fuzz_request SECONDS SEED
 * Prints the seed, the counts of accepted and refused requests, and the bytes read. The exit code
 * is 4 if there is no /proc/task_diag here, and 1 if no request at all was accepted, so that next
 * to nothing was tested.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "task_diag.h"

#define FILE_NAME "/proc/task_diag"
#define WORKERS 4

struct request {
	struct nlmsghdr nlh;
	struct task_diag_req req;
};

struct counts {
	long accepted, refused, reads, bytes, read_errors;
};

static uint64_t state;

/* The groups that the kernel reports. */
static uint64_t groups = ~0ULL;

static uint64_t rnd(void)
{
	/* xorshift64* */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

static uint64_t odd_number(void)
{
	static const uint64_t odd[] = {
		0, 1, 2, 3, 4, 5, 255, 32767, 65535, 4194303, 4194304, 0x7fffffff, 0x80000000, 0xffffffff,
		0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff,
	};

	return rnd() % 3 ? odd[rnd() % (sizeof(odd) / sizeof(*odd))] : rnd();
}

/* A request, often sound, often nearly so; its length. */
static size_t make(unsigned char *buf, size_t max)
{
	struct request r = { 0 };
	size_t len = sizeof(r);

	memset(buf, 0, max);
	if (rnd() % 16 == 0) {
		len = rnd() % max;
		for (size_t i = 0; i < len; i++)
			buf[i] = rnd();
		return len;
	}
	r.nlh.nlmsg_len = sizeof(r);
	r.nlh.nlmsg_type = rnd() % 16 ? TASK_DIAG_CMD_GET : TASK_DIAG_CMD_FEATURES;
	r.nlh.nlmsg_flags = NLM_F_REQUEST;
	if (rnd() % 8 == 0)
		r.req.budget_ns = odd_number();
	if (rnd() % 8 == 0)
		r.req.max_rss_bytes = odd_number();
	if (rnd() % 8 == 0)
		r.req.skip_base = odd_number();
	if (rnd() % 8 == 0)
		r.req.skip_stat = odd_number();
	/* Groups that mostly exist; strategies and pids in and out of range. */
	r.req.show_flags = rnd() % 8 ? rnd() & groups : odd_number();
	r.req.dump_strategy = rnd() % 8 ? rnd() % 5 : odd_number();
	if (rnd() % 8 == 0)
		r.req.pid = odd_number();
	else if (r.req.dump_strategy == 1 || r.req.dump_strategy == 3 || r.req.dump_strategy == 4)
		r.req.pid = rnd() % 2 ? (uint32_t)getpid() : rnd() % 400;
	memcpy(buf, &r, sizeof(r));
	switch (rnd() % 8) {
	case 0: /* bits flip */
		for (int n = rnd() % 8; n >= 0; n--)
			buf[rnd() % len] ^= 1 << rnd() % 8;
		break;
	case 1: /* cut */
		len = rnd() % len;
		break;
	case 2: /* more than there should be, zero or not */
		len += rnd() % (max - len);
		if (rnd() % 2)
			buf[rnd() % len] = rnd();
		if (rnd() % 2)
			((struct request *)buf)->nlh.nlmsg_len = len;
		break;
	case 3: /* a length that is not one */
		((struct request *)buf)->nlh.nlmsg_len = odd_number();
		break;
	case 4: /* another type */
		((struct request *)buf)->nlh.nlmsg_type = rnd();
		break;
	}
	return len;
}

static void ask_features(void)
{
	struct nlmsghdr ask = { .nlmsg_len = sizeof(ask), .nlmsg_type = TASK_DIAG_CMD_FEATURES,
				.nlmsg_flags = NLM_F_REQUEST };
	struct {
		struct nlmsghdr nlh;
		struct task_diag_features f;
	} answer;
	int fd = open(FILE_NAME, O_RDWR);

	if (write(fd, &ask, sizeof(ask)) == sizeof(ask) && read(fd, &answer, sizeof(answer)) == sizeof(answer))
		groups = answer.f.groups;
	close(fd);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* Read with odd sizes, into good and bad memory, to the end or not, with a signal now and then. */
static void drain(int fd, unsigned char *page, size_t size, struct counts *c)
{
	for (int n = rnd() % 60; n >= 0; n--) {
		size_t want = rnd() % 4 ? rnd() % size : rnd() % 64;
		unsigned char *to = page;
		ssize_t got;

		if (rnd() % 16 == 0) /* runs over the end of what is mapped */
			to = page + size - rnd() % 4096;
		if (rnd() % 16 == 0) {
			struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };

			poll(&p, 1, 0);
		}
		if (rnd() % 32 == 0)
			ualarm(1 + rnd() % 2000, 0);
		if (rnd() % 32 == 0)
			got = pread(fd, to, want, odd_number());
		else
			got = read(fd, to, want);
		c->reads++;
		if (got > 0)
			c->bytes += got;
		else if (got == 0)
			break;
		else
			c->read_errors++;
	}
	if (rnd() % 16 == 0)
		lseek(fd, odd_number(), rnd() % 5);
	if (rnd() % 64 == 0)
		mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
}

static void *second_reader(void *arg)
{
	char buf[5000];

	for (int i = 0; i < 20; i++)
		if (read(*(int *)arg, buf, sizeof(buf)) < 0 && errno != EINTR)
			break;
	return NULL;
}

static void work(uint64_t seed, time_t end, struct counts *c)
{
	size_t size = 1 << 20;
	unsigned char *page = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char request[512];
	struct sigaction act = { .sa_handler = on_alarm };

	mprotect(page + size, 4096, PROT_NONE);
	sigaction(SIGALRM, &act, NULL);
	state = seed;
	while (time(NULL) < end) {
		int fd = open(FILE_NAME, O_RDWR | (rnd() % 4 ? 0 : O_NONBLOCK));
		pthread_t other;
		int both;

		if (fd < 0)
			continue;
		for (int n = rnd() % 4; n >= 0; n--) {
			size_t len = make(request, sizeof(request));
			/* Sometimes the request extends into memory that is not mapped. */
			void *from = rnd() % 32 ? request : page + size - len / 2;

			if (write(fd, from, len) == (ssize_t)len) {
				c->accepted++;
			} else {
				c->refused++;
				/* A failed request has nothing to read. Try to read only
				 * occasionally. */
				if (rnd() % 16)
					continue;
			}
			both = rnd() % 8 == 0 && pthread_create(&other, NULL, second_reader, &fd) == 0;
			drain(fd, page, size, c);
			if (both)
				pthread_join(other, NULL);
		}
		close(fd);
	}
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 10;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	struct counts *c, sum = { 0 };

	if (access(FILE_NAME, F_OK)) {
		puts("SKIP this kernel has no " FILE_NAME);
		return 4;
	}
	c = mmap(NULL, WORKERS * sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ask_features();
	printf("seed %llu, %d s, %d workers, groups %#llx\n", (unsigned long long)seed, seconds, WORKERS,
	       (unsigned long long)groups);
	fflush(stdout);
	for (int i = 0; i < WORKERS; i++) {
		if (fork() == 0) {
			/* Half of them without rights. */
			if (i % 2 && (setgid(65534) || setuid(65534)))
				_exit(1);
			work(seed * WORKERS + i + 1, time(NULL) + seconds, &c[i]);
			_exit(0);
		}
	}
	for (int i = 0, status; i < WORKERS; i++) {
		wait(&status);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			printf("a worker ended with status %#x\n", status);
			return 1;
		}
	}
	for (int i = 0; i < WORKERS; i++) {
		sum.accepted += c[i].accepted;
		sum.refused += c[i].refused;
		sum.reads += c[i].reads;
		sum.bytes += c[i].bytes;
		sum.read_errors += c[i].read_errors;
	}
	printf("%ld requests accepted, %ld refused; %ld reads, %ld failed; %ld bytes\n", sum.accepted, sum.refused,
	       sum.reads, sum.read_errors, sum.bytes);
	return !(sum.accepted && sum.refused && sum.bytes);
}
