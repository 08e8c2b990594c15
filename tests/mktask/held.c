/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * States in which reading a task's memory waits, because its lock is held or a page
 * of it does not come. A file system of ours (FUSE) that never answers reads makes
 * them wait, in a mount namespace of its own. It ends with its server.
 */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void reply(int fuse, uint64_t unique, int error, const void *data, size_t len)
{
	char buf[512];
	struct fuse_out_header *out = (struct fuse_out_header *)buf;

	*out = (struct fuse_out_header){
		.len = sizeof(*out) + len, .error = error, .unique = unique,
	};
	memcpy(out + 1, data, len);
	if (write(fuse, buf, out->len) < 0 && errno == ENODEV)
		_exit(0);
}

/* The inodes in addition to the root: a file and a directory. */
#define FILE_NODE 2
#define DIR_NODE 3

static struct fuse_attr attr_of(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node, .nlink = 1, .blksize = 4096,
		.mode = node != FILE_NODE ? S_IFDIR | 0755 : S_IFREG | 0644,
		.size = node != FILE_NODE ? 0 : 4096,
	};
}

/* Whether somebody reads the file. The server shares this. */
static int *asked;

/*
 * A directory with a file and a directory "dir". A process that reads the file, lists "dir", or
 * looks for the name "lost" waits.
 */
static _Noreturn void serve(int fuse)
{
	static char buf[1 << 20];

	for (;;) {
		ssize_t n = read(fuse, buf, sizeof(buf));
		struct fuse_in_header *in = (struct fuse_in_header *)buf;

		if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		if (n < (ssize_t)sizeof(*in))
			_exit(0);
		switch (in->opcode) {
		case FUSE_INIT: {
			struct fuse_init_in *i = (struct fuse_init_in *)(in + 1);
			struct fuse_init_out o = {
				.major = FUSE_KERNEL_VERSION, .minor = i->minor < 31 ? i->minor : 31,
				.max_readahead = 4096, .max_write = 4096,
			};
			reply(fuse, in->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_LOOKUP: {
			const char *name = (const char *)(in + 1);
			uint64_t node = strcmp(name, "dir") ? FILE_NODE : DIR_NODE;
			struct fuse_entry_out o = {
				.nodeid = node, .entry_valid = 1000, .attr_valid = 1000,
				.attr = attr_of(node),
			};
			if (!strcmp(name, "lost"))
				break;	/* no answer */
			reply(fuse, in->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out o = { .attr_valid = 1000, .attr = attr_of(in->nodeid) };
			reply(fuse, in->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out o = { .fh = 1 };
			reply(fuse, in->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_READDIR:
		case FUSE_READDIRPLUS:
			if (in->nodeid != DIR_NODE)
				reply(fuse, in->unique, -ENOSYS, NULL, 0);
			break;	/* no answer */
		case FUSE_READ:
			__atomic_store_n(asked, 1, __ATOMIC_SEQ_CST);
			break;	/* no answer */
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;	/* no answer */
		default:
			reply(fuse, in->unique, -ENOSYS, NULL, 0);
		}
	}
}

/* Tells the kernel that the arguments are at `page`, and changes nothing else. */
static void move_arguments(void *page)
{
	unsigned long f[60] = { 0 };
	char buf[2048], *word;
	int fd = must(open("/proc/self/stat", O_RDONLY | O_CLOEXEC)), i = 3;
	ssize_t n = must(read(fd, buf, sizeof(buf) - 1));

	close(fd);
	buf[n] = 0;
	for (word = strtok(strrchr(buf, ')') + 1, " "); word && i < 60; word = strtok(NULL, " "))
		f[i++] = strtoul(word, NULL, 10);
	/* The numbers are those of the fields in proc_pid_stat(5). */
	struct prctl_mm_map map = {
		.start_code = f[26], .end_code = f[27], .start_data = f[45], .end_data = f[46],
		.start_brk = f[47], .brk = (unsigned long)sbrk(0), .start_stack = f[28],
		.arg_start = (unsigned long)page, .arg_end = (unsigned long)page + 4000,
		.env_start = f[50], .env_end = f[51], .exe_fd = -1,
	};

	if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0))
		skip("prctl(PR_SET_MM_MAP): %m");
}

/* Mounts it in a mount namespace of our own. */
static void mount_there(const char *dir)
{
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[128];

	if (fuse < 0)
		skip("/dev/fuse: %m");
	if (unshare(CLONE_NEWNS))
		skip("unshare(CLONE_NEWNS): %m");
	asked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (asked == MAP_FAILED)
		die("mmap: %m");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%d,group_id=%d",
		 fuse, (int)getuid(), (int)getgid());
	if (mount("mktask", dir, "fuse.mktask", MS_NOSUID | MS_NODEV, options))
		skip("mount of fuse: %m");
	if (spawn() == 0)
		serve(fuse);
	close(fuse);
}

/* A page of a file that is never read. */
static void *page_without_end(const char *dir)
{
	char path[4200];
	void *page;
	int fd;

	mount_there(dir);
	snprintf(path, sizeof(path), "%s/x", dir);
	fd = must(open(path, O_RDONLY | O_CLOEXEC));
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		die("mmap: %m");
	close(fd);
	return page;
}

static void *map_something(void *arg)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED)
		munmap(p, 4096);
	forever();
}

static int mapper_tid;
static void *mapper(void *arg)
{
	__atomic_store_n(&mapper_tid, (int)gettid(), __ATOMIC_SEQ_CST);
	while (!__atomic_load_n((int *)arg, __ATOMIC_SEQ_CST))
		usleep(1000);
	return map_something(arg);
}

/*
 * Another process reads the page, which does not come, through /proc/PID/mem, and holds the lock
 * for reading. (Since commit 7f7ccc2ccc2e in v4.17, the kernel does not read arguments from files.)
 * A thread wants to map something, so it waits for the lock, and all later readers wait for it.
 */
static void held_lock(int argc, char **argv)
{
	static int go;
	pid_t reader, me = getpid();
	void *page;

	if (argc < 2)
		die("usage: held-lock DIRECTORY");
	page = page_without_end(argv[1]);
	thread(mapper, &go);
	reader = spawn();
	if (reader == 0) {
		char path[64], buf[64];

		snprintf(path, sizeof(path), "/proc/%d/mem", me);
		pread(open(path, O_RDONLY | O_CLOEXEC), buf, sizeof(buf), (off_t)(uintptr_t)page);
		_exit(0);
	}
	fact("pid", "%d", me);
	fact("ppid", "%d", getppid());
	fact("reader", "%d", reader);
	for (int i = 0; !__atomic_load_n(asked, __ATOMIC_SEQ_CST); i++) {
		if (i > 10000)
			die("nobody reads the page");
		usleep(1000);
	}
	/* On a busy machine it may not have run yet. */
	while (!__atomic_load_n(&mapper_tid, __ATOMIC_SEQ_CST))
		usleep(1000);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	await_state(me, mapper_tid, 'D');
	hold();
}

/* The arguments are in a page that only userfaultfd(2) could bring in. */
static void uffd_arguments(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = {
		.range = { .start = (unsigned long)page, .len = 4096 },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		skip("userfaultfd: %m");
	move_arguments(page);
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	hold();
}

/* Other processes can enter the mount namespace of this task. */
static void stuck_mount(int argc, char **argv)
{
	if (argc < 2)
		die("usage: stuck-mount DIRECTORY");
	mount_there(argv[1]);
	fact("pid", "%d", getpid());
	fact("ppid", "%d", getppid());
	hold();
}

/* Waits until a process waits for an answer of the
 * server. At first, a signal can end such a wait. */
static void await_answer(pid_t pid)
{
	char text[64];

	for (int i = 0; i < 10000; i++) {
		read_proc(pid, "wchan", text, sizeof(text));
		if (!strcmp(text, "request_wait_answer"))
			return;
		usleep(1000);
	}
	die("process %d is in %s", pid, text);
}

/* Waits until one process waits for the lock of the other one, and tells the test of both. */
static void show_stuck(pid_t holder, pid_t waiter)
{
	await_state(waiter, waiter, 'D');
	fact("pid", "%d", waiter);
	fact("ppid", "%d", getpid());
	fact("holder", "%d", holder);
	hold();
}

/*
 * A process makes a directory with a name that the server does not answer about. Meanwhile it
 * holds the lock of the parent directory, and another process waits for that lock.
 */
static void stuck_lock(int argc, char **argv)
{
	pid_t holder, waiter;

	if (argc < 2)
		die("usage: stuck-lock DIRECTORY");
	mount_there(argv[1]);
	holder = spawn();
	if (holder == 0) {
		mkdir(in_dir(argv[1], "lost"), 0700);
		_exit(0);
	}
	await_answer(holder);
	waiter = spawn();
	if (waiter == 0) {
		mkdir(in_dir(argv[1], "other"), 0700);
		_exit(0);
	}
	show_stuck(holder, waiter);
}

/*
 * Two processes read one open file, whose position has a mutex. The first one waits for the server
 * and holds the mutex, and the second one waits for that.
 */
static void stuck_position(int argc, char **argv)
{
	pid_t holder, waiter;
	char byte;
	int fd;

	if (argc < 2)
		die("usage: stuck-position DIRECTORY");
	mount_there(argv[1]);
	fd = must(open(in_dir(argv[1], "x"), O_RDONLY | O_CLOEXEC));
	holder = spawn();
	if (holder == 0) {
		read(fd, &byte, 1);
		_exit(0);
	}
	for (int i = 0; !__atomic_load_n(asked, __ATOMIC_SEQ_CST); i++) {
		if (i > 10000)
			die("nobody reads the file");
		usleep(1000);
	}
	waiter = spawn();
	if (waiter == 0) {
		read(fd, &byte, 1);
		_exit(0);
	}
	show_stuck(holder, waiter);
}

const struct state held_states[] = {
	{ "stuck-position", stuck_position, "DIRECTORY: the lock of the position of an open file there is held" },
	{ "stuck-lock", stuck_lock, "DIRECTORY: the lock of a directory there is held" },
	{ "stuck-mount", stuck_mount, "DIRECTORY: a file system there that does not answer" },
	{ "held-lock", held_lock, "DIRECTORY: the lock of its memory is held" },
	{ "uffd-arguments", uffd_arguments, "arguments that never come" },
	{ 0 }
};
