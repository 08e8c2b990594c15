/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States of tasks that have used resources: CPU time, faults, switches, I/O, memory, swap. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/swap.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <linux/kvm.h>
#endif

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static void *region(size_t len, int flags)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap: %m");
	madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

static void touch(void *p, size_t len)
{
	for (size_t i = 0; i < len; i += 4096)
		((volatile char *)p)[i] = 1;
}

static long long timeval_ns(struct timeval t)
{
	return t.tv_sec * 1000000000LL + t.tv_usec * 1000LL;
}

/* Reports the values that the kernel gives the caller by system calls, just before it goes to
 * sleep. */
static void usage_facts(void)
{
	struct rusage self, children;

	must(getrusage(RUSAGE_CHILDREN, &children));
	must(getrusage(RUSAGE_SELF, &self));
	fact("minflt", "%ld", self.ru_minflt);
	fact("majflt", "%ld", self.ru_majflt);
	fact("nvcsw", "%ld", self.ru_nvcsw);
	fact("nivcsw", "%ld", self.ru_nivcsw);
	fact("cminflt", "%ld", children.ru_minflt);
	fact("cmajflt", "%ld", children.ru_majflt);
	fact("cutime_ns", "%lld", timeval_ns(children.ru_utime));
	fact("cstime_ns", "%lld", timeval_ns(children.ru_stime));
	fact("thread_cpu_ns", "%lld", now_ns(CLOCK_THREAD_CPUTIME_ID));
	fact("cpu_ns", "%lld", now_ns(CLOCK_PROCESS_CPUTIME_ID));
}

/* MS of CPU time, 1000 faults, 20 voluntary switches. */
static void burn(int argc, char **argv)
{
	long ms = arg_number(argc, argv, 1, 200);

	touch(region(1000 * 4096, MAP_PRIVATE), 1000 * 4096);
	for (int i = 0; i < 20; i++)
		usleep(100);
	burn_ns(CLOCK_PROCESS_CPUTIME_ID, ms * 1000000);
	ids();
	usage_facts();
	hold();
}

static void children(int argc, char **argv)
{
	long ms = arg_number(argc, argv, 1, 150);
	pid_t pid = spawn();

	if (pid == 0) {
		touch(region(500 * 4096, MAP_PRIVATE), 500 * 4096);
		burn_ns(CLOCK_PROCESS_CPUTIME_ID, ms * 1000000);
		_exit(0);
	}
	must(waitpid(pid, NULL, 0));
	ids();
	usage_facts();
	hold();
}

static atomic_int gone;

static void *burn_and_go(void *arg)
{
	touch(region(300 * 4096, MAP_PRIVATE), 300 * 4096);
	burn_ns(CLOCK_THREAD_CPUTIME_ID, (intptr_t)arg * 1000000);
	for (int i = 0; i < 30; i++)
		usleep(100);
	atomic_store(&gone, (int)gettid());
	return NULL;
}

static void *live_on(void *arg)
{
	burn_ns(CLOCK_THREAD_CPUTIME_ID, 50 * 1000000);
	fact("live_tid", "%d", gettid());
	fact("live_cpu_ns", "%lld", now_ns(CLOCK_THREAD_CPUTIME_ID));
	atomic_store(&gone, -1);
	forever();
}

static void await_thread_end(int tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d", tid);
	while (access(path, F_OK) == 0)
		usleep(1000);
}

/* A thread that has ended used most of its time. */
static void dead_threads(int argc, char **argv)
{
	thread(live_on, NULL);
	while (atomic_load(&gone) != -1)
		usleep(1000);
	thread(burn_and_go, (void *)arg_number(argc, argv, 1, 150));
	while (atomic_load(&gone) == -1)
		usleep(1000);
	await_thread_end(atomic_load(&gone));
	ids();
	usage_facts();
	hold();
}

static atomic_int io_step;

static void *io_thread(void *arg)
{
	long n = (long)(intptr_t)arg;
	static char buf[1000];
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	for (long i = 0; i < n; i++)
		must(read(zero, buf, sizeof(buf)));
	if (n == 7) {
		atomic_store(&gone, (int)gettid());
		return NULL;
	}
	fact("live_tid", "%d", gettid());
	fact("live_rchar", "%ld", n * 1000);
	fact("live_syscr", "%ld", n);
	atomic_store(&io_step, 1);
	forever();
}

/* Known reads and writes by the leader, by a thread that has ended, and by a living thread. */
static void io(int argc, char **argv)
{
	static char buf[1 << 16];
	int zero = must(open("/dev/zero", O_RDONLY | O_CLOEXEC));
	int null = must(open("/dev/null", O_WRONLY | O_CLOEXEC));

	for (int i = 0; i < 10; i++)
		must(read(zero, buf, 50000));
	for (int i = 0; i < 5; i++)
		must(write(null, buf, 30001));
	ids();
	thread(io_thread, (void *)(intptr_t)7);
	while (!atomic_load(&gone))
		usleep(1000);
	await_thread_end(atomic_load(&gone));
	thread(io_thread, (void *)(intptr_t)11);
	while (!atomic_load(&io_step))
		usleep(1000);
	fact("leader_rchar", "%d", 500000);
	fact("leader_wchar", "%d", 5 * 30001);
	fact("leader_syscr", "%d", 10);
	fact("leader_syscw", "%d", 5);
	fact("rchar", "%d", 500000 + 7000 + 11000);
	fact("wchar", "%d", 5 * 30001);
	fact("syscr", "%d", 10 + 7 + 11);
	fact("syscw", "%d", 5);
	hold();
}

static void memory(int argc, char **argv)
{
	enum { ANON = 24 << 20, PEAK = 16 << 20, SHMEM = 6 << 20, LOCKED = 256 << 10, RESERVED = 64 << 20 };
	void *peak, *locked;

	touch(region(ANON, MAP_PRIVATE), ANON);
	touch(region(SHMEM, MAP_SHARED), SHMEM);
	region(RESERVED, MAP_PRIVATE | MAP_NORESERVE);
	peak = region(PEAK, MAP_PRIVATE);
	touch(peak, PEAK);
	munmap(peak, PEAK);
	locked = region(LOCKED, MAP_PRIVATE);
	if (mlock(locked, LOCKED) == 0)
		fact("locked", "%d", LOCKED);
	ids();
	fact("anon", "%d", ANON);
	fact("shmem", "%d", SHMEM);
	fact("reserved", "%d", RESERVED);
	fact("peak", "%d", PEAK);
	hold();
}

/* If there is no swap, the named file becomes swap space as long as this runs. */
static void need_swap(int argc, char **argv)
{
	enum { FILE_SIZE = 64 << 20 };
	char line[512];
	int lines = 0;
	FILE *f = fopen("/proc/swaps", "re");

	while (f && fgets(line, sizeof(line), f))
		lines++;
	if (f)
		fclose(f);
	if (lines < 2) {
		if (argc < 2)
			skip("there is no swap, and no file to make it of");
		int fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		char *page = calloc(1, 4096);
		uint32_t *head = (uint32_t *)(page + 1024);

		if (fd < 0)
			skip("%s: %m", argv[1]);
		clean_swap(argv[1]);
		if (posix_fallocate(fd, 0, FILE_SIZE))
			skip("no room for %s", argv[1]);
		head[0] = 1;
		head[1] = FILE_SIZE / 4096 - 1;
		memcpy(page + 4086, "SWAPSPACE2", 10);
		must(pwrite(fd, page, 4096, 0));
		must(fsync(fd));
		close(fd);
		if (swapon(argv[1], 0))
			skip("swapon: %m");
	}
}

static void page_out(void *p, size_t len)
{
	for (int i = 0; i < 20; i++) {
		must(madvise(p, len, MADV_PAGEOUT));
		usleep(20000);
	}
}

/* swap FILE: anonymous memory and a shared object, half of each paged out. */
static void swap(int argc, char **argv)
{
	enum { SIZE = 8 << 20 };
	char *anon, *shm;

	need_swap(argc, argv);
	anon = region(SIZE, MAP_PRIVATE);
	shm = region(SIZE, MAP_SHARED);
	touch(anon, SIZE);
	touch(shm, SIZE);
	page_out(anon, SIZE / 2);
	page_out(shm, SIZE / 2);
	ids();
	fact("size", "%d", SIZE);
	fact("half", "%d", SIZE / 2);
	hold();
}

/*
 * swap-parts FILE: half of an object is paged out. It is mapped whole; a long and a short part of
 * it are mapped read-only; and it is mapped privately and writable, with copies of some pages, a
 * few of which are paged out, too. Another object without paged-out pages is mapped in parts and
 * privately.
 */
static void swap_parts(int argc, char **argv)
{
	enum { SIZE = 16 << 20, PAGE = 4096, SMALL = 64 * PAGE, COPIES = 200 };
	int rw = PROT_READ | PROT_WRITE, out, in;
	char *whole, *private, *other;

	need_swap(argc, argv);
	must(out = memfd_create("out", MFD_CLOEXEC));
	must(in = memfd_create("in", MFD_CLOEXEC));
	must(ftruncate(out, SIZE));
	must(ftruncate(in, SIZE));
	whole = mmap(NULL, SIZE, rw, MAP_SHARED, out, 0);
	private = mmap(NULL, SIZE, rw, MAP_PRIVATE, out, 0);
	other = mmap(NULL, SIZE, rw, MAP_PRIVATE, in, 0);
	if (whole == MAP_FAILED || private == MAP_FAILED || other == MAP_FAILED ||
	    mmap(NULL, SIZE / 2, PROT_READ, MAP_SHARED, out, SIZE / 4) == MAP_FAILED ||
	    mmap(NULL, SMALL, PROT_READ, MAP_PRIVATE, out, SIZE / 4) == MAP_FAILED ||
	    mmap(NULL, SIZE / 2, PROT_READ, MAP_SHARED, in, SIZE / 4) == MAP_FAILED)
		die("mmap: %m");
	madvise(whole, SIZE, MADV_NOHUGEPAGE);
	touch(whole, SIZE);
	for (int i = 0; i < COPIES; i++)
		private[i * 3 * PAGE] = 2;
	/* Two pages in a row, and one page that stays in memory. */
	private[PAGE] = private[SIZE - PAGE] = 2;
	for (int i = 0; i < SIZE / PAGE; i += 2)
		other[i * PAGE] = 1;
	page_out(private, SMALL);
	page_out(whole, SIZE / 2);
	ids();
	fact("half", "%d", SIZE / 2);
	fact("small", "%d", SMALL);
	fact("copied", "%d", (COPIES + 1) * PAGE);
	hold();
}

/* The n-th number of /proc/self/stat. */
static unsigned long long stat_number(int n)
{
	char text[1024], *at;

	read_proc(getpid(), "stat", text, sizeof(text));
	at = strrchr(text, ')');
	for (n -= 2; at && n > 0; n--)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

#ifdef __x86_64__
static void nothing(int signal)
{
}

/* Runs a virtual processor in an endless loop for a while. */
static void run_guest(void)
{
	struct kvm_userspace_memory_region memory = { .guest_phys_addr = 4096, .memory_size = 4096 };
	struct kvm_regs regs = { .rip = 4096, .rflags = 2 };
	struct itimerval often = { { 0, 10000 }, { 0, 10000 } };
	struct kvm_sregs sregs;
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm, cpu;
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *run;

	if (kvm < 0)
		skip("/dev/kvm: %m");
	memcpy(code, "\xeb\xfe", 2);	/* jmp to itself */
	memory.userspace_addr = (unsigned long)code;
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		skip("KVM_CREATE_VM: %m");
	must(ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000));
	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &memory));
	cpu = must(ioctl(vm, KVM_CREATE_VCPU, 0));
	run = mmap(NULL, must(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0)), PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
	if (run == MAP_FAILED)
		die("mmap: %m");
	must(ioctl(cpu, KVM_GET_SREGS, &sregs));
	sregs.cs.base = sregs.cs.selector = 0;
	must(ioctl(cpu, KVM_SET_SREGS, &sregs));
	must(ioctl(cpu, KVM_SET_REGS, &regs));
	signal(SIGALRM, nothing);
	siginterrupt(SIGALRM, 1);
	must(setitimer(ITIMER_REAL, &often, NULL));
	for (int i = 0; i < 100 && stat_number(43) < 20; i++)
		if (ioctl(cpu, KVM_RUN, 0) >= 0 || errno != EINTR)
			skip("KVM_RUN does not run an endless loop: %m");
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	if (stat_number(43) < 20)
		skip("this KVM counts no guest time: it emulates the loop, or the machine is too busy");
	close(cpu);
	close(vm);
	close(kvm);
}

/* guest: time of a virtual processor, in this process and in a child that was reaped. */
static void guest(int argc, char **argv)
{
	pid_t pid = spawn();
	int status;

	if (pid == 0) {
		run_guest();
		_exit(0);
	}
	must(waitpid(pid, &status, 0));
	if (status)
		forever();	/* the child has reported why */
	run_guest();
	ids();
	fact("guest_ticks", "%llu", stat_number(43));
	fact("cguest_ticks", "%llu", stat_number(44));
	hold();
}
#else
static void guest(int argc, char **argv)
{
	skip("the loop is for x86-64 only");
}
#endif

const struct state use_states[] = {
	{ "burn", burn, "[MS]: CPU time, 1000 faults" },
	{ "children", children, "[MS]: used by a child that was waited for" },
	{ "dead-threads", dead_threads, "[MS]: used by a thread that has ended" },
	{ "io", io, "known reads and writes, also by ended threads" },
	{ "memory", memory, "known mappings, shared, locked, reserved" },
	{ "swap", swap, "[FILE]: half of anonymous and shared memory swapped out" },
	{ "swap-parts", swap_parts, "[FILE]: parts and copies of an object that is half swapped out" },
	{ "guest", guest, "guest time by KVM, its own and that of a reaped child" },
	{ 0 }
};
