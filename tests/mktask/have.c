/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States with things that a task can have: a mapping and a file of each kind. */
#include "mktask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

enum { SIZE = 64 << 10, HUGE = 2 << 20 };

static int new_file(const char *path)
{
	int fd = must(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));

	must(ftruncate(fd, SIZE));
	return fd;
}

/* Makes a mapping that is not merged with a neighbour. The fact is its address. */
static char *at(const char *key, int prot, int flags, int fd)
{
	char *room = mmap(NULL, SIZE + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (room == MAP_FAILED)
		die("mmap: %m");
	p = mmap(room + 4096, SIZE, prot, flags | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap of %s: %m", key);
	fact(key, "%lu", (unsigned long)p);
	return p;
}

static void touch(char *p)
{
	for (int i = 0; i < SIZE; i += 4096)
		((volatile char *)p)[i] = 1;
}

/* Addresses in this program that the kernel remembers. */
static void layout(void)
{
	unsigned long long v[3];
	char line[1024] = "", *p;
	FILE *f = fopen("/proc/self/stat", "re");

	if (!f || !fgets(line, sizeof(line), f) || !(p = strrchr(line, ')')))
		die("reading /proc/self/stat: %m");
	fclose(f);
	/* p is in field 2, and field 26 is the first of the addresses. */
	for (int field = 2; field < 26; field++)
		if (!(p = strchr(p + 1, ' ')))
			die("/proc/self/stat is short");
	if (sscanf(p, "%llu %llu %llu", &v[0], &v[1], &v[2]) != 3)
		die("/proc/self/stat is odd");
	fact("start_code", "%llu", v[0]);
	fact("end_code", "%llu", v[1]);
	fact("start_stack", "%llu", v[2]);
}

/* mappings DIR: see the keys. */
static void mappings(int argc, char **argv)
{
	const int rw = PROT_READ | PROT_WRITE;
	char *name, *gone, *p;
	int fd, id, key;

	if (argc < 2)
		die("usage: mappings DIRECTORY");
	name = in_dir(argv[1], "a b\nc\\d (deleted)");
	gone = in_dir(argv[1], "gone");
	touch(at("anon", rw, MAP_PRIVATE | MAP_ANONYMOUS, -1));
	p = at("named", rw, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	touch(p);
	fact("has_names", "%d", !prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, SIZE, "mk task:1"));
	at("exec", PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	touch(at("shared_anon", rw, MAP_SHARED | MAP_ANONYMOUS, -1));
	p = at("locked", rw, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	touch(p);
	fact("is_locked", "%d", !mlock(p, SIZE));
	must(madvise(at("dontdump", rw, MAP_PRIVATE | MAP_ANONYMOUS, -1), SIZE, MADV_DONTDUMP));
	fd = new_file(name);
	touch(at("file_shared", rw, MAP_SHARED, fd));
	at("file_private", PROT_READ, MAP_PRIVATE, fd);
	fact_str("file_name", name);
	fact("file_inode", "%lu", ({ struct stat st; must(fstat(fd, &st)); (unsigned long)st.st_ino; }));
	close(fd);
	fd = new_file(gone);
	at("deleted", PROT_READ, MAP_PRIVATE, fd);
	fact_str("deleted_name", gone);
	must(unlink(gone));
	close(fd);
	fd = must(memfd_create("mk mem", MFD_CLOEXEC));
	must(ftruncate(fd, SIZE));
	touch(at("memfd", rw, MAP_SHARED, fd));
	close(fd);
	id = must(shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600));
	p = shmat(id, NULL, 0);
	must(shmctl(id, IPC_RMID, NULL));
	if (p == (void *)-1)
		die("shmat: %m");
	fact("sysv", "%lu", (unsigned long)p);
	p = mmap(NULL, SIZE, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	if (p == MAP_FAILED)
		die("mmap: %m");
	touch(p);
	fact("growsdown", "%lu", (unsigned long)p);
	/* There is no key if the processor has no protection keys. */
	key = pkey_alloc(0, 0);
	if (key > 0) {
		must(pkey_mprotect(at("keyed", rw, MAP_PRIVATE | MAP_ANONYMOUS, -1), SIZE, rw, key));
		fact("protection_key", "%d", key);
	}
	/* The pool of these pages may be empty, so the mapping is not touched. */
	p = mmap(NULL, HUGE, rw,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE | 21 << MAP_HUGE_SHIFT, -1, 0);
	if (p != MAP_FAILED) {
		fact("hugetlb", "%lu", (unsigned long)p);
		fact("huge", "%d", HUGE);
	}
	fact("heap", "%lu", (unsigned long)sbrk(0));
	fact("stack", "%lu", (unsigned long)__builtin_frame_address(0));
	fact("size", "%d", SIZE);
	layout();
	ids();
	hold();
}

static void file(const char *key, int fd)
{
	if (fd >= 0)
		fact(key, "%d", fd);
}

static void inode_fact(const char *key, int fd)
{
	struct stat st;

	must(fstat(fd, &st));
	fact(key, "%lu", (unsigned long)st.st_ino);
}

static void plain_files(const char *dir)
{
	char *path = in_dir(dir, "f\n\xff x"), *fifo = in_dir(dir, "fifo"), *link = in_dir(dir, "link");
	char *gone = in_dir(dir, "gone"), *sock = in_dir(dir, "sock");
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = new_file(path), pipes[2];

	must(lseek(fd, 5, SEEK_SET));
	must(fcntl(fd, F_SETFL, O_APPEND));
	file("reg", fd);
	inode_fact("reg_inode", fd);
	fact_str("reg_name", path);
	file("dir", must(open(dir, O_RDONLY | O_DIRECTORY)));
	file("chr", must(open("/dev/null", O_RDWR | O_CLOEXEC)));
	must(mkfifo(fifo, 0600));
	file("fifo", must(open(fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK)));
	must(symlink("nowhere", link));
	file("lnk", must(open(link, O_PATH | O_NOFOLLOW | O_CLOEXEC)));
	fd = new_file(gone);
	file("deleted", fd);
	fact_str("deleted_name", gone);
	must(unlink(gone));
	must(pipe2(pipes, O_CLOEXEC));
	file("pipe_read", pipes[0]);
	file("pipe_write", pipes[1]);
	inode_fact("pipe_inode", pipes[0]);
	file("memfd", must(memfd_create("mk mem", MFD_CLOEXEC)));
	file("ns", must(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)));
	fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", sock);
	must(bind(fd, (struct sockaddr *)&sun, sizeof(sun)));
	must(listen(fd, 3));
	file("unix_listen", fd);
	fact_str("unix_name", sun.sun_path);
}

/* A program that returns 0. */
static int bpf_prog(int type)
{
	struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K }, { .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = type, .insns = (unsigned long)code, .insn_cnt = 2,
		.license = (unsigned long)"GPL",
	};

	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

/* A link to a tracepoint that is never hit while this runs. */
static int bpf_link(void)
{
	union bpf_attr attr = { .raw_tracepoint.name = (unsigned long)"oom_score_adj_update" };
	int prog = bpf_prog(BPF_PROG_TYPE_RAW_TRACEPOINT), link;

	if (prog < 0)
		return -1;
	attr.raw_tracepoint.prog_fd = prog;
	link = syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &attr, sizeof(attr));
	close(prog);
	return link;
}

static void event_files(const char *dir)
{
	struct itimerspec when = { .it_value = { 100000, 0 }, .it_interval = { 5, 500 } };
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0x1234 };
	struct io_uring_params ring = { 0 };
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 10,
	};
	struct perf_event_attr perf = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(perf), .config = PERF_COUNT_SW_DUMMY,
	};
	sigset_t set;
	int event = must(eventfd(7, EFD_CLOEXEC)), fd;

	file("eventfd", event);
	fd = must(epoll_create1(EPOLL_CLOEXEC));
	must(epoll_ctl(fd, EPOLL_CTL_ADD, event, &ev));
	file("epoll", fd);
	fd = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	must(timerfd_settime(fd, 0, &when, NULL));
	file("timerfd", fd);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	file("signalfd", must(signalfd(-1, &set, SFD_CLOEXEC)));
	fd = must(inotify_init1(IN_CLOEXEC));
	must(inotify_add_watch(fd, dir, IN_CREATE | IN_DELETE));
	file("inotify", fd);
	file("fanotify", fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC, O_RDONLY));
	file("pidfd", syscall(SYS_pidfd_open, getppid(), 0));
	file("io_uring", syscall(SYS_io_uring_setup, 8, &ring));
	file("bpf_map", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof(map)));
	file("bpf_prog", bpf_prog(BPF_PROG_TYPE_SOCKET_FILTER));
	file("bpf_link", bpf_link());
	file("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
	file("perf_event", syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0));
	file("mqueue", mq_open("/mktask", O_RDWR | O_CREAT | O_EXCL, 0600, NULL));
	mq_unlink("/mktask");
}

/* Sockets with multipath TCP, as each server that is made with Go 1.24 or newer has. */
static void multipath(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP), client;

	if (fd < 0)
		return;
	must(bind(fd, (struct sockaddr *)&in, sizeof(in)));
	must(listen(fd, 7));
	must(getsockname(fd, (struct sockaddr *)&in, &len));
	file("mptcp_listen", fd);
	fact("mptcp_port", "%d", ntohs(in.sin_port));
	client = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP));
	must(connect(client, (struct sockaddr *)&in, sizeof(in)));
	file("mptcp_client", client);
	file("mptcp_server", must(accept4(fd, NULL, NULL, SOCK_CLOEXEC)));
	client = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP));
	must(connect(client, (struct sockaddr *)&in, sizeof(in)));
}

static void socket_files(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK };
	struct sockaddr_ll ll = {
		.sll_family = AF_PACKET, .sll_protocol = htons(3), .sll_ifindex = if_nametoindex("lo"),
	};
	socklen_t len = sizeof(in);
	int fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), pair[2], client;

	must(bind(fd, (struct sockaddr *)&in, sizeof(in)));
	must(listen(fd, 5));
	must(getsockname(fd, (struct sockaddr *)&in, &len));
	file("tcp_listen", fd);
	fact("tcp_port", "%d", ntohs(in.sin_port));
	client = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	must(connect(client, (struct sockaddr *)&in, sizeof(in)));
	file("tcp_client", client);
	file("tcp_server", must(accept4(fd, NULL, NULL, SOCK_CLOEXEC)));
	must(write(client, "12345", 5));
	/* Two that wait to be accepted. */
	must(connect(must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), (struct sockaddr *)&in, sizeof(in)));
	must(connect(must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), (struct sockaddr *)&in, sizeof(in)));
	fd = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	must(connect(fd, (struct sockaddr *)&in, sizeof(in)));
	file("udp_connected", fd);
	multipath();
	fd = must(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	len = sizeof(in6);
	if (!bind(fd, (struct sockaddr *)&in6, sizeof(in6))) {
		must(getsockname(fd, (struct sockaddr *)&in6, &len));
		file("udp6", fd);
		fact("udp6_port", "%d", ntohs(in6.sin6_port));
	}
	file("raw", socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	file("unix_a", pair[0]);
	file("unix_b", pair[1]);
	fd = must(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "mktask-%d", getpid());
	must(bind(fd, (struct sockaddr *)&sun, 3 + strlen(sun.sun_path + 1)));
	file("unix_abstract", fd);
	sun.sun_path[0] = '@';
	fact_str("abstract_name", sun.sun_path);
	fd = must(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
	must(bind(fd, (struct sockaddr *)&nl, sizeof(nl)));
	len = sizeof(nl);
	must(getsockname(fd, (struct sockaddr *)&nl, &len));
	file("netlink", fd);
	fact("netlink_portid", "%u", nl.nl_pid);
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(3));
	file("vsock", socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
	file("xdp", socket(44 /* AF_XDP */, SOCK_RAW | SOCK_CLOEXEC, 0));
	if (fd >= 0 && ll.sll_ifindex && !bind(fd, (struct sockaddr *)&ll, sizeof(ll))) {
		file("packet", fd);
		fact("packet_ifindex", "%d", ll.sll_ifindex);
	}
}

/* files DIR: a file of each type that this machine has. The facts are their descriptors. */
static void files(int argc, char **argv)
{
	if (argc < 2)
		die("usage: files DIRECTORY");
	plain_files(argv[1]);
	event_files(argv[1]);
	socket_files();
	ids();
	hold();
}

/* elsewhere UID: a user's process with sockets in a network namespace that the user may not enter.
 * */
static void elsewhere(int argc, char **argv)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	long uid = arg_number(argc, argv, 1, 65534);
	int fd;

	if (unshare(CLONE_NEWNET))
		skip("unshare(CLONE_NEWNET): %m");
	fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	must(bind(fd, (struct sockaddr *)&in, sizeof(in)));
	must(listen(fd, 5));
	file("tcp", fd);
	file("udp6", must(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
	file("unix", must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
	must(setresgid(uid, uid, uid));
	must(setresuid(uid, uid, uid));
	must(prctl(PR_SET_DUMPABLE, 1));
	ids();
	hold();
}

/* Sockets at a link-local address of the loopback interface of their own network namespace. */
static void link_local(int argc, char **argv)
{
	struct { struct in6_addr addr; unsigned int prefixlen; int ifindex; } set = { .prefixlen = 64, .ifindex = 1 };
	struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_scope_id = 1 };
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK };
	static const struct { const char *name; int protocol; } kinds[] = { { "tcp", 0 }, { "mptcp", 262 } };
	socklen_t len = sizeof(in);
	char name[40];
	int fd, client;

	set.addr.s6_addr[0] = 0xfe, set.addr.s6_addr[1] = 0x80, set.addr.s6_addr[15] = 0x77;
	in.sin6_addr = set.addr;
	if (unshare(CLONE_NEWNET))
		skip("unshare(CLONE_NEWNET): %m");
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &up) || ioctl(fd, SIOCSIFADDR, &set))
		skip("a link-local address: %m");
	/* The kernel takes the address into use a moment later. */
	for (unsigned int i = 0; bind(fd, (struct sockaddr *)&in, sizeof(in)); i++) {
		if (errno != EADDRNOTAVAIL || i == 1000)
			skip("bind(2) to a link-local address: %m");
		usleep(10000);
	}
	file("udp", fd);
	for (int i = 0; i < 2; i++) {
		fd = must(socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));
		must(bind(fd, (struct sockaddr *)&in, sizeof(in)));
		if (i)
			must(connect(fd, (struct sockaddr *)&in, sizeof(in)));
		file(i ? "raw_client" : "raw", fd);
	}
	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, kinds[i].protocol);
		if (fd < 0)
			continue;
		in.sin6_port = 0;
		must(bind(fd, (struct sockaddr *)&in, sizeof(in)));
		must(listen(fd, 5));
		must(getsockname(fd, (struct sockaddr *)&in, &len));
		in.sin6_scope_id = 1;
		file(kinds[i].name, fd);
		client = must(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, kinds[i].protocol));
		must(connect(client, (struct sockaddr *)&in, sizeof(in)));
		snprintf(name, sizeof(name), "%s_client", kinds[i].name);
		file(name, client);
		snprintf(name, sizeof(name), "%s_server", kinds[i].name);
		file(name, must(accept4(fd, NULL, NULL, SOCK_CLOEXEC)));
	}
	ids();
	hold();
}

const struct state have_states[] = {
	{ "link-local", link_local, "sockets at a link-local address" },
	{ "mappings", mappings, "DIRECTORY: a mapping of each kind" },
	{ "elsewhere", elsewhere, "[UID]: sockets in another network namespace" },
	{ "files", files, "DIRECTORY: an open file of each type" },
	{ 0 }
};
