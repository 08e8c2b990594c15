/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States with names that are hard to read, with characters that are special in the kernel's text
 * files, on terminals, or in our output. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* In the text of maps, the first two look the same. */
static const char *const names[] = {
	"a\nb", "a\\012b", "\\012", "\n", "both\n\\012\n", "\\134012", "back\\slash", "tail\\", "12345",
	"\xff\xfe", "cut\xc3", "bidi\u202e", "csi\xc2\x9b" "31m", "\x1b[31mred", " lead", "trail ", "t\tab",
	"[heap]", "[anon:x]", "(deleted)", "x (deleted)", "nl\n (deleted)", "lit\\012 (deleted)", "#hash", "nul\\0",
};
enum { NAMES = sizeof(names) / sizeof(names[0]), SIZE = 4096 };

static void nth(const char *key, int i, unsigned long value)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%d", key, i);
	fact(name, "%lu", value);
}

static void nth_str(const char *key, int i, const char *text)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%d", key, i);
	fact_str(name, text);
}

/* Maps the file alone, so that no neighbour is merged with it. */
static unsigned long mapped(int fd)
{
	char *room = mmap(NULL, SIZE * 3, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (room == MAP_FAILED)
		die("mmap: %m");
	must(ftruncate(fd, SIZE));
	p = mmap(room + SIZE, SIZE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap: %m");
	return (unsigned long)p;
}

static void *named(void *name)
{
	must(prctl(PR_SET_NAME, name));
	forever();
}

/*
 * odd-names DIR: for each name, a file in DIR that is open and mapped, and one that is deleted;
 * memory with that name; and a thread. Two names of one file look the same in maps. With
 * `elsewhere`, all of it is in another mount namespace, with another file system at DIR.
 */
static void odd_names(int argc, char **argv)
{
	char *path;
	int fd;

	if (argc < 2)
		die("usage: odd-names DIRECTORY [elsewhere]");
	if (argc > 2) {
		if (unshare(CLONE_NEWNS))
			skip("unshare(CLONE_NEWNS): %m");
		must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		if (mount("mktask", argv[1], "tmpfs", 0, NULL))
			skip("mount of tmpfs: %m");
	}
	must(mkdir(in_dir(argv[1], "gone"), 0755));
	for (int i = 0; i < NAMES; i++) {
		path = in_dir(argv[1], names[i]);
		fd = must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640));
		nth("fd", i, fd);
		nth("map", i, mapped(fd));
		nth_str("name", i, path);
		path = in_dir(in_dir(argv[1], "gone"), names[i]);
		fd = must(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640));
		nth("gonefd", i, fd);
		nth("gonemap", i, mapped(fd));
		must(unlink(path));
		fd = must(memfd_create(names[i], MFD_CLOEXEC));
		nth("memfd", i, fd);
		nth("memmap", i, mapped(fd));
		nth_str("bare", i, names[i]);
		thread(named, (void *)names[i]);
	}
	/* One file with two names. */
	must(link(in_dir(argv[1], "a\nb"), in_dir(argv[1], "c\nd")));
	must(link(in_dir(argv[1], "a\nb"), in_dir(argv[1], "c\\012d")));
	nth_str("name", NAMES, in_dir(argv[1], "c\nd"));
	nth_str("name", NAMES + 1, in_dir(argv[1], "c\\012d"));
	for (int i = NAMES; i < NAMES + 2; i++) {
		fd = must(open(in_dir(argv[1], i == NAMES ? "c\nd" : "c\\012d"), O_RDWR | O_CLOEXEC));
		nth("fd", i, fd);
		nth("map", i, mapped(fd));
	}
	fact("names", "%d", NAMES);
	ids();
	hold();
}

/* odd-places DIR: its working directory, a mount, the program and unix sockets have odd names; in a
 * mount namespace of its own. */
static void odd_places(int argc, char **argv)
{
	static const char odd[] = "m\n\\012\\ \t#\xff\u202e\xc2\x9b" "1";
	char *mounted, *below;
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd;

	if (argc < 2)
		die("usage: odd-places DIRECTORY");
	if (unshare(CLONE_NEWNS))
		skip("unshare(CLONE_NEWNS): %m");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mounted = in_dir(argv[1], odd);
	must(mkdir(mounted, 0755));
	if (mount("mk\\012 task", mounted, "tmpfs", 0, NULL))
		skip("mount of tmpfs: %m");
	below = in_dir(mounted, odd);
	must(mkdir(below, 0755));
	must(chdir(below));
	fact_str("cwd", below);
	fd = must(open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0640));
	fact("file", "%d", fd);
	fact("map", "%lu", mapped(fd));
	fact_str("file_name", in_dir(below, "file"));
	fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	strcpy(sun.sun_path, odd);
	must(bind(fd, (struct sockaddr *)&sun, sizeof(sun)));
	fact("socket", "%d", fd);
	fact_str("socket_name", odd);
	fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	sun.sun_path[0] = 0;
	snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "%s %d", odd, getpid());
	must(bind(fd, (struct sockaddr *)&sun,
		  offsetof(struct sockaddr_un, sun_path) + 1 + strlen(sun.sun_path + 1)));
	must(prctl(PR_SET_NAME, odd));
	fact_hex("comm", odd, 15);
	ids();
	hold();
}

const struct state odd_states[] = {
	{ "odd-names", odd_names, "DIRECTORY [elsewhere]: files, mappings and threads with odd names" },
	{ "odd-places", odd_places, "DIRECTORY: a mount, a directory and sockets with odd names" },
	{ 0 }
};
