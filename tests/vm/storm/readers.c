// SPDX-License-Identifier: MIT OR Apache-2.0
/* Readers of the storm. They read /proc as find and cat do, and
 * /proc/task_diag if the kernel has it. */
#include "storm.h"
#include "task_diag.h"

/* Reads everything below a directory of /proc as find and cat do, also through links to other
 * directories of a task. */
static long walk(const char *dir, int depth)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	long n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d)) && going()) {
		char path[512], buf[4096];

		if (e->d_name[0] == '.')
			continue;
		/* The kernel's own logs are left out, because they block or never end. */
		if (depth == 0 && (e->d_name[0] < '0' || e->d_name[0] > '9') && strcmp(e->d_name, "self"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n++;
		if (e->d_type == DT_DIR && depth < 4) {
			n += walk(path, depth + 1);
		} else if (readlink(path, buf, sizeof(buf)) > 2) {
			if (depth && depth < 4 && !memcmp(buf, "../", 3) && rnd() % 2)
				n += walk(path, depth + 1);
		} else if (rnd() % 4 == 0) {
			int fd = open(path, O_RDONLY | O_NONBLOCK);

			if (fd >= 0 && read(fd, buf, sizeof(buf)) > 0)
				n++;
			if (fd >= 0)
				close(fd);
		}
	}
	closedir(d);
	return n;
}

long proc(void)
{
	long rounds = 0;

	while (going())
		rounds += walk("/proc", 0) > 0;
	return rounds;
}

/* Reads a mount on which directories that tasks share
 * are links. Returns -2 on a kernel without that option. */
long links(void)
{
	char dir[] = "/tmp/storm-XXXXXX";
	long rounds = 0;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || !mkdtemp(dir)) {
		perror("links");
		return -1;
	}
	if (mount("proc", dir, "proc", 0, "dupdirs=link")) {
		rmdir(dir);
		return -2;
	}
	while (going())
		rounds += walk(dir, 0) > 0;
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	return rounds;
}

/* Reads /proc/task_diag with every strategy. It returns -1 if a stream is malformed. */
long diag(void)
{
	struct {
		struct nlmsghdr nlh;
		struct task_diag_req req;
	} r = { .nlh = { .nlmsg_len = sizeof(r), .nlmsg_type = TASK_DIAG_CMD_GET, .nlmsg_flags = NLM_F_REQUEST } };
	struct {
		struct nlmsghdr nlh;
		struct task_diag_features f;
	} *features;
	size_t size = 1 << 20, have;
	char *buf = malloc(size);
	int fd = open("/proc/task_diag", O_RDWR);
	uint64_t groups, strategies;
	long rounds = 0;

	if (fd < 0)
		return -2;
	r.nlh.nlmsg_type = TASK_DIAG_CMD_FEATURES;
	r.nlh.nlmsg_len = sizeof(r.nlh);
	features = (void *)buf;
	if (write(fd, &r, sizeof(r.nlh)) < 0 || read(fd, buf, size) < (ssize_t)sizeof(*features))
		return -1;
	groups = features->f.groups;
	strategies = features->f.strategies;
	r.nlh.nlmsg_type = TASK_DIAG_CMD_GET;
	r.nlh.nlmsg_len = sizeof(r);
	for (; going(); rounds++) {
		int done = 0, takes_pid;
		ssize_t got;

		r.req.show_flags = rnd() % 2 ? groups : groups & rnd();
		do
			r.req.dump_strategy = rnd() % __TASK_DIAG_DUMP_MAX;
		while (!(strategies & 1ULL << r.req.dump_strategy));
		takes_pid = r.req.dump_strategy != TASK_DIAG_DUMP_ALL && r.req.dump_strategy != TASK_DIAG_DUMP_ALL_THREAD;
		r.req.pid = !takes_pid ? 0 : rnd() % 2 ? (uint32_t)getppid() : (uint32_t)getpid() + rnd() % 200;
		if (write(fd, &r, sizeof(r)) < 0)
			continue; /* no such process, most likely */
		have = 0;
		/* A read may end anywhere in a message. The rest comes with the next read. */
		while ((got = read(fd, buf + have, rnd() % 2 ? size - have : 1 + rnd() % 60000)) > 0) {
			char *p = buf;

			/* Data that the kernel keeps for the next read may be kept for long. */
			if (rnd() % 64 == 0)
				usleep(rnd() % 50000);
			have += got;
			for (; have - (p - buf) >= sizeof(struct nlmsghdr);) {
				struct nlmsghdr *m = (void *)p;

				if (m->nlmsg_len < sizeof(*m) || m->nlmsg_len % 8 || m->nlmsg_len > size / 2 || done) {
					printf("diag: a message of %u bytes, type %u\n", m->nlmsg_len, m->nlmsg_type);
					return -1;
				}
				if (m->nlmsg_len > have - (p - buf))
					break;
				done = m->nlmsg_type == NLMSG_DONE;
				p += m->nlmsg_len;
			}
			have -= p - buf;
			memmove(buf, p, have);
		}
		if (got == 0 && (!done || have)) {
			puts("diag: a stream without its end");
			return -1;
		}
	}
	free(buf);
	close(fd);
	return rounds;
}
