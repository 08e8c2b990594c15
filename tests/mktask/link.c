/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States about the identity of open files: their links, their locks, and the mounts that their
 * paths lead through. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int opened(const char *dir, const char *name)
{
	return must(open(in_dir(dir, name), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
}

static const char *directory(int argc, char **argv)
{
	if (argc < 2)
		die("usage: %s DIRECTORY", argv[0]);
	return argv[1];
}

/* links DIR: files that lost a name, all names, or never had one. */
static void links(int argc, char **argv)
{
	const char *dir = directory(argc, argv);
	int fd = opened(dir, "one"), later;
	char self[64];

	fact("one_of_two", "%d", fd);
	must(ftruncate(fd, 4096));
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		die("mmap: %m");
	must(link(in_dir(dir, "one"), in_dir(dir, "two")));
	must(unlink(in_dir(dir, "one")));
	fact("gone", "%d", opened(dir, "gone"));
	must(unlink(in_dir(dir, "gone")));
	fact("replaced", "%d", opened(dir, "old"));
	close(opened(dir, "new"));
	must(rename(in_dir(dir, "new"), in_dir(dir, "old")));
	later = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (later >= 0) {
		fact("nameless", "%d", must(open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)));
		snprintf(self, sizeof(self), "/proc/self/fd/%d", later);
		must(linkat(AT_FDCWD, self, AT_FDCWD, in_dir(dir, "later"), AT_SYMLINK_FOLLOW));
		fact("named_later", "%d", later);
	}
	fd = syscall(447 /* memfd_secret */, O_CLOEXEC);
	if (fd >= 0) {
		must(ftruncate(fd, 4096));
		if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED)
			fact("secret", "%d", fd);
	}
	ids();
	hold();
}

/* locks DIR: a lock of each kind. */
static void locks(int argc, char **argv)
{
	const char *dir = directory(argc, argv);
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct flock part = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
	int fd = opened(dir, "ofd"), inherited, status;
	pid_t child;

	must(fcntl(fd, F_OFD_SETLK, &whole));
	fact("ofd", "%d", fd);
	fact("second", "%d", opened(dir, "ofd"));
	fd = opened(dir, "posix");
	must(fcntl(fd, F_SETLK, &part));
	fact("posix", "%d", fd);
	/* The process that took it has ended. */
	inherited = opened(dir, "inherited");
	child = must(fork());
	if (child == 0)
		_exit(flock(inherited, LOCK_EX));
	must(waitpid(child, &status, 0));
	fact("inherited", "%d", inherited);
	fd = must(open(in_dir(dir, "posix"), O_RDONLY | O_CLOEXEC));
	fact("free", "%d", fd);
	close(opened(dir, "lease"));
	fd = must(open(in_dir(dir, "lease"), O_RDONLY | O_CLOEXEC));
	if (!fcntl(fd, F_SETLEASE, F_RDLCK))
		fact("lease", "%d", fd);
	ids();
	hold();
}

/*
 * elsewhere-dir DIR: in a separate mount namespace with another file system at DIR, it has a file,
 * a mapping and its working directory there. For all other processes, these paths lead to other
 * files.
 */
static void elsewhere_dir(int argc, char **argv)
{
	const char *dir = directory(argc, argv);
	int fd;

	if (unshare(CLONE_NEWNS))
		skip("unshare(CLONE_NEWNS): %m");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	if (mount("mktask", dir, "tmpfs", 0, NULL))
		skip("mount of tmpfs: %m");
	fd = opened(dir, "file");
	must(ftruncate(fd, 4096));
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		die("mmap: %m");
	must(chdir(dir));
	fact("file", "%d", fd);
	ids();
	hold();
}

/* unmounted DIR: a file on a file system that was lazily unmounted from DIR, in the first mount
 * namespace. */
static void unmounted(int argc, char **argv)
{
	const char *dir = directory(argc, argv);

	if (mount("mktask", dir, "tmpfs", 0, NULL))
		skip("mount of tmpfs: %m");
	fact("file", "%d", opened(dir, "file"));
	must(umount2(dir, MNT_DETACH));
	ids();
	hold();
}

/* copied-mounts DIR: in a copy of our mount namespace, a file on a file system that is mounted
 * below DIR. */
static void copied_mounts(int argc, char **argv)
{
	char *below = in_dir(directory(argc, argv), "below");

	must(mkdir(below, 0755));
	if (mount("mktask", below, "tmpfs", 0, NULL))
		skip("mount of tmpfs: %m");
	clean_umount(below);
	must(unshare(CLONE_NEWNS));
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	fact("file", "%d", opened(below, "file"));
	ids();
	hold();
}

/* bound DIR: a unix socket that was bound to a file in DIR by a relative path. */
static void bound(int argc, char **argv)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX, .sun_path = "sock" };
	int fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	close(opened(directory(argc, argv), "elsewhere"));
	must(chdir(directory(argc, argv)));
	must(bind(fd, (struct sockaddr *)&sun, sizeof(sun)));
	must(listen(fd, 1));
	must(chdir("/"));
	fact("socket", "%d", fd);
	ids();
	hold();
}

static int sharer(void *arg)
{
	die_with_parent();
	forever();
}

/* sharers: two processes with one memory and one table of open files, and one with copies of both.
 * */
static void sharers(int argc, char **argv)
{
	enum { SIZE = 1 << 20 };
	char *stack = malloc(SIZE);
	pid_t copy;

	fact("sharer", "%d", must(clone(sharer, stack + SIZE, CLONE_VM | CLONE_FILES | SIGCHLD, NULL)));
	copy = spawn();
	if (copy == 0)
		forever();
	fact("copy", "%d", copy);
	ids();
	hold();
}

static void *wanderer(void *dir)
{
	must(unshare(CLONE_FS));
	must(chdir(dir));
	fact("thread", "%d", host_tid());
	ready();
	forever();
}

static void *bystander(void *arg)
{
	forever();
}

/* wanderer DIR [dead]: a thread with the working directory DIR, which differs from that of its
 * process. */
static void wandering(int argc, char **argv)
{
	const char *dir = directory(argc, argv);

	ids();
	must(chdir("/"));
	if (argc > 2)
		thread(bystander, NULL);
	thread(wanderer, (void *)dir);
	if (argc > 2)
		pthread_exit(NULL);
	forever();
}

const struct state link_states[] = {
	{ "links", links, "DIRECTORY: files with fewer names than they had" },
	{ "locks", locks, "DIRECTORY: a lock of each kind" },
	{ "elsewhere-dir", elsewhere_dir, "DIRECTORY: in a mount namespace with another file system there" },
	{ "unmounted", unmounted, "DIRECTORY: a file on a file system that is mounted nowhere" },
	{ "copied-mounts", copied_mounts, "DIRECTORY: a file below it in a copy of our mount namespace" },
	{ "bound", bound, "DIRECTORY: a socket bound by a relative path" },
	{ "sharers", sharers, "two processes with one memory and one table of files, and a copy" },
	{ "wanderer", wandering, "DIRECTORY [dead]: a thread with a working directory of its own" },
	{ 0 }
};
