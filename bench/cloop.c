/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C loop shows the cost of a plain C program that opens, reads and closes the
 * given files of every process and does nothing else. It parses nothing and prints
 * only the number of processes, so no reader of the same files can cost less.
 *
 *	cloop stat
 *	cloop stat status cmdline
 *
 * Paths are relative to an open descriptor of /proc, which is faster.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char buf[256 * 1024];

/* Returns 0 if the process has ended, or may not be read. */
static int read_whole(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf));
	close(fd);
	return n >= 0;
}

int main(int argc, char **argv)
{
	unsigned long processes = 0, files = 0;
	char path[64];
	struct dirent *e;
	DIR *proc = opendir("/proc");

	if (!proc) {
		perror("cloop: /proc");
		return 1;
	}
	for (int i = 1; i < argc; i++) {
		if (strlen(argv[i]) > 32) {
			fprintf(stderr, "cloop: no file of a process: %s\n", argv[i]);
			return 2;
		}
	}
	while ((e = readdir(proc))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		processes++;
		for (int i = 1; i < argc; i++) {
			snprintf(path, sizeof(path), "%.20s/%s", e->d_name, argv[i]);
			files += read_whole(dirfd(proc), path);
		}
	}
	closedir(proc);
	printf("%lu processes, %lu files\n", processes, files);
	return 0;
}
