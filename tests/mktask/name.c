/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States of the names of a task: comm, arguments, executable. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* The hash FNV-1a, so that a long value need not be a fact. */
static uint64_t hash(const unsigned char *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325;

	while (n--)
		h = (h ^ *p++) * 0x100000001b3;
	return h;
}

static char *args_begin(char **argv)
{
	return argv[0];
}

/* The address after the NUL of the last argument, where the environment begins. */
static char *args_end(char **argv)
{
	char *end = argv[0];

	for (int i = 0; argv[i]; i++)
		end = argv[i] + strlen(argv[i]) + 1;
	return end;
}

static void cmdline_facts(const char *data, size_t len)
{
	fact("len", "%zu", len);
	fact("hash", "%llu", (unsigned long long)hash((const unsigned char *)data, len));
	if (len <= 4096)
		fact_hex("cmdline", data, len);
}

static void odd_comm(int argc, char **argv)
{
	static const char comm[] = "a) R 1\n(\xff\x01)\t";

	must(prctl(PR_SET_NAME, comm));
	ids();
	fact_hex("comm", comm, strlen(comm));
	hold();
}

/* The program is executed from a copy that is then unlinked. */
static void exe_deleted(int argc, char **argv)
{
	static char path[4096];
	struct stat st;
	int in, out;

	if (argc < 0) {
		must(unlink(argv[1]));
		ids();
		fact_str("exe", strcat(strcpy(path, argv[1]), " (deleted)"));
		fact_hex("cmdline", args_begin(argv), args_end(argv) - args_begin(argv));
		hold();
	}
	if (argc < 2)
		die("usage: exe-deleted DIR");
	snprintf(path, sizeof(path), "%s/gone \n exe", argv[1]);
	in = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	out = must(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
	must(fstat(in, &st));
	for (off_t left = st.st_size; left > 0;)
		left -= must(sendfile(out, in, NULL, left));
	close(out);
	exec_again(path, (char *[]){ "gone", path, NULL }, "exe-deleted");
}

/* The program is executed from a memory file, which never had a name. */
static void exe_memfd(int argc, char **argv)
{
	char path[32];
	struct stat st;
	int in, out;

	if (argc < 0) {
		ids();
		fact_str("exe", "/memfd:no name (deleted)");
		hold();
	}
	in = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	out = memfd_create("no name", MFD_CLOEXEC);
	if (out < 0)
		skip("memfd_create: %m");
	must(fstat(in, &st));
	for (off_t left = st.st_size; left > 0;)
		left -= must(sendfile(out, in, NULL, left));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", out);
	exec_again(path, (char *[]){ "memfd", NULL }, "exe-memfd");
}

/* Arguments of BYTES in total, in pieces below the limit for one. */
static void cmdline(int argc, char **argv)
{
	enum { PIECE = 100000 };
	static char *args[1024];
	long total, n = 0;

	if (argc < 0) {
		ids();
		cmdline_facts(args_begin(argv), args_end(argv) - args_begin(argv));
		hold();
	}
	total = arg_number(argc, argv, 1, 64 << 10);
	args[n++] = "long";
	for (long left = total - 5; left > 0 && n < 1023; n++) {
		long piece = left < PIECE ? left : PIECE;

		args[n] = malloc(piece);
		for (long i = 0; i < piece; i++)
			args[n][i] = " \xe9\n;abcdefghijklmnopqrstuvwxyz"[(i * 7 + n) % 30];
		args[n][piece - 1] = 0;
		left -= piece;
	}
	exec_again(self_exe(), args, "cmdline");
}

/* Processes of one user with arguments of BYTES and an environment of ENVIRON. They share the
 * memory, so it costs the user as much as one process. */
static void crowd(int argc, char **argv)
{
	enum { PIECE = 120000 };
	static char *args[1024];
	char *envp[] = { "MKTASK_AFTER_EXEC=crowd", "PADDING=0123456789abcdef", NULL };
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	long bytes, count, n = 0;
	uid_t uid;
	pid_t pid;

	if (argc < 0) {
		for (n = 0; argv[n]; n++)
			;
		if (sscanf(argv[n - 1], "%ld %u", &count, &uid) != 2)
			die("%s is not a number and a user", argv[n - 1]);
		setrlimit(RLIMIT_NPROC, &unlimited);
		must(setresgid(uid, uid, uid));
		must(setresuid(uid, uid, uid));
		/* A change of credentials makes the process undumpable, and it no longer dies with its parent. */
		must(prctl(PR_SET_DUMPABLE, 1));
		die_with_parent();
		ids();
		fact("len", "%ld", (long)(args_end(argv) - args_begin(argv)));
		for (n = 0; n < count; n++) {
			pid = spawn();
			if (!pid)
				forever();
			fact_item("crowd", n == 0, pid);
		}
		hold();
	}
	bytes = arg_number(argc, argv, 1, 1 << 20);
	count = arg_number(argc, argv, 2, 10);
	/* A quarter of the limit of the stack is the limit of arguments. */
	if (setrlimit(RLIMIT_STACK, &unlimited))
		skip("arguments of %ld bytes need a stack without a limit: %m", bytes);
	args[n++] = "crowd";
	for (long left = bytes; left > 0 && n < 1022; n++) {
		long piece = left < PIECE ? left : PIECE;

		args[n] = malloc(piece);
		memset(args[n], 'a' + n % 26, piece);
		args[n][piece - 1] = 0;
		left -= piece;
	}
	args[n] = malloc(64);
	snprintf(args[n], 64, "%ld %ld", count, arg_number(argc, argv, 3, getuid()));
	bytes = arg_number(argc, argv, 4, 0);
	if (bytes > 0) {
		envp[1] = malloc(bytes);
		memset(envp[1], 'e', bytes);
		memcpy(envp[1], "PADDING=", 8);
		envp[1][bytes - 1] = 0;
	}
	execve(self_exe(), args, envp);
	die("exec: %m");
}

static char *must_cwd(char *to, size_t room)
{
	if (!getcwd(to, room))
		die("getcwd: %m");
	return to;
}

/* A process and N children that each have opened and mapped the same FILES files below DIR, with
 * paths of 4000 bytes. */
static void long_names(int argc, char **argv)
{
	enum { LEN = 4000, NAME = 200 };
	struct rlimit files = { 1 << 20, 1 << 20 };
	char name[NAME + 1], own[LEN + 1];
	long count = arg_number(argc, argv, 2, 100), children = arg_number(argc, argv, 3, 1);
	long open_count = 0;
	pid_t pid;

	if (argc < 2)
		die("long-names needs a directory");
	must(chdir(argv[1]));
	memset(name, 'd', NAME);
	name[NAME] = 0;
	while (strlen(must_cwd(own, sizeof(own))) + 2 * (NAME + 1) < LEN) {
		must(mkdir(name, 0700));
		must(chdir(name));
	}
	/* The last directory and the file together fill it up. */
	name[LEN - strlen(own) - NAME - 2] = 0;
	must(mkdir(name, 0700));
	must(chdir(name));
	setrlimit(RLIMIT_NOFILE, &files);
	getrlimit(RLIMIT_NOFILE, &files);
	for (long i = 0; i < count; i++) {
		int fd;

		memset(name, 'f', NAME);
		name[NAME] = 0;
		snprintf(name, sizeof(name), "%08ld", i);
		name[8] = 'f';
		fd = must(open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
		must(ftruncate(fd, 4096));
		if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			skip("%ld files cannot be mapped: %m", i);
		/* Some descriptors are left for the facts. */
		if ((rlim_t)fd + 64 > files.rlim_cur)
			close(fd);
		else
			open_count++;
	}
	ids();
	fact("files", "%ld", open_count);
	for (long n = 0; n < children; n++) {
		pid = spawn();
		if (!pid)
			forever();
		fact_item("crowd", n == 0, pid);
	}
	hold();
}

/* argc 0, which newer kernels turn into one empty argument. */
static void argc0(int argc, char **argv)
{
	if (argc < 0) {
		ids();
		fact("argc", "%d", argv[0] ? 1 : 0);
		fact_hex("cmdline", "", argv[0] ? 1 : 0);
		hold();
	}
	exec_again(self_exe(), (char *[]){ NULL }, "argc0");
}

/* Tell the kernel that the arguments are these bytes. */
static void set_arguments(unsigned long long start, unsigned long long end)
{
	struct prctl_mm_map map = { .exe_fd = -1 };
	FILE *f = fopen("/proc/self/stat", "re");
	unsigned long long v[52];
	char *line = NULL, *p;
	size_t room = 0;

	if (!f || getline(&line, &room, f) < 0 || !(p = strrchr(line, ')')))
		die("reading /proc/self/stat: %m");
	fclose(f);
	strtok(p + 2, " ");	/* field 3, the state */
	for (int i = 4; i < 52; i++)
		v[i] = strtoull(strtok(NULL, " "), NULL, 10);
	map.start_code = v[26];
	map.end_code = v[27];
	map.start_stack = v[28];
	map.start_data = v[45];
	map.end_data = v[46];
	map.start_brk = v[47];
	map.brk = (uintptr_t)sbrk(0);
	map.arg_start = start ? start : v[48];
	map.arg_end = start ? end : v[48];
	map.env_start = v[50];
	map.env_end = v[51];
	if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0))
		skip("prctl(PR_SET_MM_MAP): %m");
}

/* The process itself sets its arguments to nothing in the kernel. */
static void cmdline_none(int argc, char **argv)
{
	set_arguments(0, 0);
	ids();
	fact("len", "0");
	fact_hex("cmdline", "", 0);
	hold();
}

/* The process names a whole mapping as its arguments, which may be larger than all memory. Only its
 * start and end are in memory. */
static void cmdline_mapped(int argc, char **argv)
{
	size_t len = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, there = 8 << 20;
	int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	char *text;

	if (len < there)
		die("cmdline-mapped: BYTES must be 8 MiB or more");
	text = mmap(NULL, len, PROT_READ | PROT_WRITE, how, -1, 0);
	if (text == MAP_FAILED)
		skip("mmap: %m");
	memset(text, 'x', there);
	text[len - 1] = 0;
	set_arguments((uintptr_t)text, (uintptr_t)text + len);
	ids();
	hold();
}

/* The arguments are zeroed, not removed. */
static void cmdline_wiped(int argc, char **argv)
{
	if (argc < 0) {
		char *begin = args_begin(argv);
		size_t len = args_end(argv) - begin;

		memset(begin, 0, len);
		ids();
		cmdline_facts(begin, len);
		hold();
	}
	exec_again(self_exe(), (char *[]){ "soon", "all", "gone", NULL }, "cmdline-wiped");
}

/* As with setproctitle(3), with a text that is longer than the arguments and extends into the
 * environment. */
static void cmdline_rewritten(int argc, char **argv)
{
	static const char title[] = "title: 15 jobs, 3 idle; long";

	if (argc < 0) {
		char *begin = args_begin(argv);

		if (args_end(argv) != environ[0] || args_end(argv) - begin >= (long)sizeof(title))
			die("the stack is not as expected");
		memcpy(begin, title, sizeof(title));
		ids();
		cmdline_facts(begin, sizeof(title));
		fact("rewritten", "1");
		hold();
	}
	exec_again(self_exe(), (char *[]){ "daemon", "--fg", NULL }, "cmdline-rewritten");
}

/* As cmdline-rewritten, with a title that fits. The rest of the arguments are NULs. */
static void cmdline_titled(int argc, char **argv)
{
	if (argc < 0) {
		char *begin = args_begin(argv);
		size_t len = args_end(argv) - begin;

		memset(begin, 0, len);
		memcpy(begin, "short title", 11);
		ids();
		cmdline_facts(begin, len);
		hold();
	}
	exec_again(self_exe(), (char *[]){ "daemon", "--with", "many", "arguments", NULL },
		   "cmdline-titled");
}

const struct state name_states[] = {
	{ "odd-comm", odd_comm, "comm with ), newline and bytes that are not UTF-8" },
	{ "exe-deleted", exe_deleted, "DIR: the executable was unlinked" },
	{ "exe-memfd", exe_memfd, "the executable is a memfd" },
	{ "cmdline", cmdline, "[BYTES]: long arguments" },
	{ "crowd", crowd, "[BYTES] [N] [UID] [ENVIRON]: N + 1 processes of a user that share long arguments" },
	{ "long-names", long_names, "DIR [FILES] [N]: N + 1 processes with FILES that are open and mapped" },
	{ "argc0", argc0, "exec with argc 0" },
	{ "cmdline-none", cmdline_none, "arg_start = arg_end" },
	{ "cmdline-mapped", cmdline_mapped, "BYTES: a mapping of this size is the arguments" },
	{ "cmdline-wiped", cmdline_wiped, "arguments zeroed" },
	{ "cmdline-rewritten", cmdline_rewritten, "setproctitle beyond the arguments" },
	{ "cmdline-titled", cmdline_titled, "setproctitle within the arguments" },
	{ 0 }
};
