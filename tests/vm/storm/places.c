// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Tasks that change their places: working directories, roots, mount namespaces, mounts, and names
 * of directories. The fs_struct, which has the directories of a task, is freed as soon as the last
 * task that shares it ends or leaves it. So these tasks share and leave as often as they can.
 */
#include "storm.h"

/* Long names are kept apart from the dentry, and freed when they change. Short ones are
 * overwritten. */
const struct level levels[LEVELS] = {
	{ { "up-aaaaaaaa", "up-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" }, 0 },
	{ { "left", "right-rrrrrrrrrr" }, 1 },
	{ { "mid-cc", "mid-dddddddddddddddddddddddddd" }, 0 },
};

const char *const rooms[ROOMS] = { "room-e", "room-ffffffffffff", "room-gggggggggggggggggggggggggggggggggggggggggggggggg" };

static int opened(int at, const char *name)
{
	int fd = openat(at, name, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(name);
	return fd;
}

int make_tree(void)
{
	int up, left;

	if (mkdir(levels[0].names[0], 0755))
		die(levels[0].names[0]);
	up = opened(AT_FDCWD, levels[0].names[0]);
	if (mkdirat(up, levels[1].names[0], 0755) || mkdirat(up, levels[1].names[1], 0755))
		die("directories of the sentinels");
	left = opened(up, levels[1].names[0]);
	if (mkdirat(left, levels[2].names[0], 0755))
		die(levels[2].names[0]);
	return opened(left, levels[2].names[0]);
}

/* Renames the directories above the sentinels, and moves one of them to and fro. */
long renames(void)
{
	int top = opened(AT_FDCWD, "."), up = opened(top, levels[0].names[0]), side[2];
	int name = 0, at = 0, mid = 0;
	long rounds = 0;

	side[0] = opened(up, levels[1].names[0]);
	side[1] = opened(up, levels[1].names[1]);
	for (; going(); rounds++) {
		int to = rnd() % 2, called = rnd() % 2;

		if (renameat(top, levels[0].names[name], top, levels[0].names[!name]))
			die("rename");
		name = !name;
		if (rnd() % 4 == 0)
			usleep(rnd() % 300);
		if ((to != at || called != mid) && renameat(side[at], levels[2].names[mid], side[to], levels[2].names[called]))
			die("rename to another directory");
		at = to;
		mid = called;
		usleep(rnd() % 500);
	}
	return rounds;
}

static void *leave(void *arg)
{
	usleep((uintptr_t)arg);
	unshare(CLONE_FS);
	if (chdir(rooms[(uintptr_t)arg % ROOMS]))
		return NULL;
	return arg;
}

/* Other tasks that share our place may have left the directory between two calls. */
static void must(int failed, const char *what)
{
	if (failed && errno != ENOENT)
		die(what);
}

/* A task that shares its place with others, changes it, leaves it, and ends. */
static void stay(int at)
{
	pthread_t t;

	for (int n = 1 + rnd() % 12; n > 0; n--) {
		switch (rnd() % 6) {
		case 0:
			unshare(CLONE_FS);
			break;
		case 1: /* its own table is freed at once */
			if (child(CLONE_FS) == 0)
				_exit(0);
			unshare(CLONE_FS);
			break;
		case 2:
			must(fchdir(at) || chroot(rooms[rnd() % ROOMS]), "chroot");
			break;
		case 3:
			pthread_create(&t, NULL, leave, (void *)(uintptr_t)(rnd() % 500));
			break;
		default:
			must(fchdir(at) || chdir(rooms[rnd() % ROOMS]), "chdir");
		}
		usleep(rnd() % 400);
	}
	_exit(0);
}

long places(void)
{
	char own[32];
	long rounds = 0;
	int at;

	snprintf(own, sizeof(own), "place-%d", getpid());
	if (mkdir(own, 0755) || chdir(own))
		die(own);
	at = opened(AT_FDCWD, ".");
	for (int i = 0; i < ROOMS; i++)
		if (mkdir(rooms[i], 0755))
			die(rooms[i]);
	for (; going(); rounds++) {
		for (int i = 0; i < 8; i++)
			if (child(rnd() % 2 ? CLONE_FS : 0) == 0)
				stay(at);
		while (waitpid(-1, NULL, __WALL) > 0)
			continue;
		/* The tasks that shared our place have changed it. */
		if (fchdir(at))
			die("back");
	}
	return rounds;
}

static int may_end;

/* A thread that keeps the place that its process had. */
static void *heir(void *arg)
{
	syscall(SYS_futex, &may_end, 0 /* FUTEX_WAIT */, 0, NULL);
	return arg;
}

/* Processes that change their place as often as possible, while the old one is freed. */
long leaves(void)
{
	long rounds = 0;
	pthread_t t;

	for (; going(); rounds++) {
		for (int i = 0; i < 20; i++) {
			may_end = 0;
			if (pthread_create(&t, NULL, heir, NULL) || unshare(CLONE_FS))
				die("unshare");
			__atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
			syscall(SYS_futex, &may_end, 1 /* FUTEX_WAKE */, 1);
			pthread_join(t, NULL);
		}
	}
	return rounds;
}

/* A mount namespace with mounts that come and go under the tasks in them. */
static void mounted(int outside)
{
	int inside;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("storm", "hall", "tmpfs", 0, NULL))
		die("mount");
	if (chdir("hall") || mkdir(rooms[0], 0755) || mkdir(rooms[1], 0755))
		die("hall");
	inside = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (inside < 0)
		die("/proc/self/ns/mnt");
	for (int n = 2 + rnd() % 4; n > 0; n--)
		if (child(0) == 0) {
			/* To and from our namespace, which resets the root and the working directory. */
			for (int i = rnd() % 4; i > 0; i--)
				if (setns(outside, CLONE_NEWNS) || setns(inside, CLONE_NEWNS))
					die("setns");
			usleep(rnd() % 2000);
			_exit(0);
		}
	if (rnd() % 2 == 0) {
		/* This changes the root of all tasks in here. The root of the machine cannot be changed, so we
		 * make our own first. */
		if (chroot(".") || chdir("/") || mount("storm", rooms[1], "tmpfs", 0, NULL) || chdir(rooms[1]) || mkdir("hall", 0755))
			die("a root of one's own");
		if (syscall(SYS_pivot_root, ".", "hall"))
			die("pivot_root");
		if (umount2("hall", MNT_DETACH))
			die("umount");
	} else {
		if (mount("storm", rooms[0], "tmpfs", 0, NULL) || chdir(rooms[0]))
			die("a second mount");
		usleep(rnd() % 500);
		if (umount2("..", MNT_DETACH) && umount2(".", MNT_DETACH))
			die("umount");
	}
	usleep(rnd() % 1000);
	_exit(0);
}

long mounts(void)
{
	int outside = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), status;
	long rounds = 0;

	if (mkdir("hall", 0755) || outside < 0)
		die("hall");
	for (; going(); rounds++) {
		for (int i = 0; i < 3; i++)
			if (child(0) == 0)
				mounted(outside);
		for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;)
			if (WIFEXITED(status) && WEXITSTATUS(status))
				return -1;
	}
	return rounds;
}
