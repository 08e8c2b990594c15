/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a command while a BPF program that is a security module refuses each call of bpf(2).
 *
 *	deny_bpf ERRNO COMMAND...
 *
 * The calls fail with this error. The exit code is that of the command, or 99 if the kernel has no
 * such programs (CONFIG_BPF_LSM, and `bpf` in /sys/kernel/security/lsm). It needs root. It reads
 * the kernel's types itself, so that it needs no libbpf.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NONE = 99, TYPES_MAX = 64 << 20 };

struct header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t hdr_len, type_off, type_len, str_off, str_len;
};

struct type {
	uint32_t name, info, size;
};

/* The number of bytes after a type of this kind with this many members. */
static size_t more(unsigned kind, size_t members)
{
	switch (kind) {
	case 1: case 14: case 17: return 4;
	case 3: return 12;
	case 4: case 5: case 15: case 19: return members * 12;
	case 6: case 13: return members * 8;
	default: return 0;
	}
}

/* The number of the function in the kernel's types, or 0. */
static uint32_t function(const char *name)
{
	static char bytes[TYPES_MAX];
	size_t len = 0, got;
	FILE *f = fopen("/sys/kernel/btf/vmlinux", "r");

	while (f && (got = fread(bytes + len, 1, sizeof(bytes) - len, f)) > 0)
		len += got;
	const struct header *head = (const void *)bytes;
	if (len < sizeof(*head))
		return 0;
	const char *names = bytes + head->hdr_len + head->str_off;
	const char *at = bytes + head->hdr_len + head->type_off, *end = at + head->type_len;
	for (uint32_t id = 1; at < end; id++) {
		const struct type *t = (const void *)at;
		unsigned kind = t->info >> 24 & 0x1f;

		if (kind == 12 && !strcmp(names + t->name, name))
			return id;
		at += sizeof(*t) + more(kind, t->info & 0xffff);
	}
	return 0;
}

static int bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int none(const char *what)
{
	fprintf(stderr, "deny_bpf: %s: %s\n", what, strerror(errno));
	return NONE;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return fprintf(stderr, "usage: deny_bpf ERRNO COMMAND...\n"), 2;
	/* r0 = -ERRNO; exit */
	struct bpf_insn insns[] = { { .code = 0xb7, .imm = -atoi(argv[1]) }, { .code = 0x95 } };
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_LSM, .expected_attach_type = BPF_LSM_MAC, .insn_cnt = 2,
		.insns = (uintptr_t)insns, .license = (uintptr_t)"GPL", .attach_btf_id = function("bpf_lsm_bpf"),
	};
	union bpf_attr attach = { 0 };
	int status, program = load.attach_btf_id ? bpf(BPF_PROG_LOAD, &load) : (errno = ENOENT, -1);

	if (program < 0)
		return none("loading a security module");
	attach.raw_tracepoint.prog_fd = program;
	if (bpf(BPF_RAW_TRACEPOINT_OPEN, &attach) < 0)
		return none("attaching it");
	/* Where `bpf` is no security module of this machine, nothing calls it. */
	union bpf_attr nothing = { 0 };
	if (bpf(BPF_MAP_CREATE, &nothing) != -1 || errno != atoi(argv[1]))
		return none("it refuses nothing");
	pid_t child = fork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
