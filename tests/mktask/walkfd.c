/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The properties of the state `walk` that are open files and mappings. */
#include "mktask.h"

#include <arpa/inet.h>
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
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "walk.h"

/* The mktask's own descriptors begin here. */
enum { OURS = 200, SIZE = 64 << 10 };

static int an_open_one(unsigned int n)
{
	for (int i = 0; i < 100; i++) {
		int fd = (n + i) % 100;

		if (fcntl(fd, F_GETFD) >= 0)
			return fd;
	}
	return -1;
}

/* A regular file with its first name, with another name, with its name removed, with no name ever,
 * or named late. */
static int regular(unsigned int n, int flags)
{
	char *path = fresh(n >> 3), *other = fresh(n >> 8), self[64], *slash;
	int fd;

	if (n % 8 == 5 || n % 8 == 6) {
		slash = strrchr(path, '/');
		*slash = 0;
		fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
		*slash = '/';
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		if (fd >= 0 && n % 8 == 6)
			return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) ? -1 : fd;
		return fd;
	}
	close(must(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640)));
	must(truncate(path, SIZE));
	fd = open(path, O_RDWR | O_CLOEXEC | flags);
	if (fd < 0)
		return -1;
	switch (n % 8) {
	case 1:
		must(unlink(path));
		break;
	case 2:
		must(link(path, other));
		must(unlink(path));
		break;
	case 3:
		must(link(path, other));
		break;
	case 4:
		close(must(open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
		must(rename(other, path));
		break;
	case 7:
		must(rename(path, other));
	}
	return fd;
}

int walk_file(unsigned int n)
{
	static const int flags[] = { 0, O_APPEND, O_NONBLOCK, O_SYNC, O_DSYNC, O_NOATIME, O_DIRECT, O_PATH };
	static const char *const given[] = {
		"/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/net/tun", "/dev/fuse", "/dev/kvm", "/dev/kmsg", "/proc/self/maps",
		"/proc/1/status", "/proc/self/ns/net", "/proc/self/ns/pid", "/proc/self/ns/user", "/sys/kernel/mm", "/etc/passwd",
		"/dev/urandom", "/proc/self/exe", "/dev/shm", "/dev/full", "/proc/self/ns/time", "/proc/sys/kernel/pid_max",
	};
	char *path;
	int fd, how = flags[n >> 4 & 7] | (n & 8 && (n >> 4 & 7) < 6 ? flags[n >> 7 & 3] : 0);

	switch (n & 7) {
	case 0:
		fd = open(given[(n >> 7) % (sizeof(given) / sizeof(*given))],
			  (n & 128 ? O_RDONLY : O_RDWR) | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | (how & O_PATH));
		return fd;
	case 1:
		path = fresh(n >> 8);
		must(mkfifo(path, 0600));
		fd = open(path, O_RDWR | O_NONBLOCK | (how & O_PATH));
		return n & 8 ? unlink(path) : fd;
	case 2:
		path = fresh(n >> 8);
		if (symlink(odd(n >> 12), path))
			return -1;
		return open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	case 3:
		path = fresh(n >> 8);
		must(mkdir(path, 0700));
		fd = open(path, O_RDONLY | O_DIRECTORY | (how & O_PATH) | O_CLOEXEC);
		return n & 8 ? rmdir(path) : fd;
	default:
		fd = regular(n >> 8, how);
		if (fd >= 0 && !(how & O_PATH))
			lseek(fd, n & 128 ? n : 0, SEEK_SET);
		return fd;
	}
}

int walk_memory(unsigned int n)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/%u.%d", n, getpid());
	switch (n % 4) {
	case 0:
		fd = syscall(447 /* memfd_secret */, O_CLOEXEC);
		break;
	case 1:
		fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd < 0 || shm_unlink(name))
			return -1;
		break;
	default:
		snprintf(name, sizeof(name), "%.60s", odd(n >> 8));
		fd = memfd_create(name, MFD_CLOEXEC | (n & 16 ? MFD_ALLOW_SEALING : 0));
	}
	if (fd < 0 || ftruncate(fd, n & 32 ? SIZE : 0))
		return -1;
	if (n & 64 && mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		return -1;
	return n & 128 ? close(fd) : 0;
}

int walk_pipe(unsigned int n)
{
	int p[2];

	if (pipe2(p, (n & 1 ? O_NONBLOCK : 0) | (n & 2 ? O_DIRECT : 0) | (n & 4 ? O_CLOEXEC : 0)))
		return -1;
	if (n & 8)
		must(write(p[1], "pipe", 4));
	if (n & 16 && n & 32)
		close(p[n >> 6 & 1]);
	if (n & 128)
		fcntl(p[0], F_SETPIPE_SZ, 4096 << (n >> 8 & 3));
	return 0;
}

/* An internet socket in one of its states, and the other sockets that are needed for it. */
static int internet(unsigned int n)
{
	static const int types[][2] = {
		{ SOCK_STREAM, 0 }, { SOCK_STREAM, 262 /* MPTCP */ }, { SOCK_DGRAM, 0 }, { SOCK_DGRAM, 136 /* UDPLITE */ },
		{ SOCK_RAW, IPPROTO_ICMP }, { SOCK_RAW, 253 }, { SOCK_DGRAM, IPPROTO_ICMP }, { SOCK_STREAM, 132 /* SCTP */ },
	};
	int six = n >> 3 & 1, type = types[n % 8][0], fd, client, server = -1, on = n >> 4 & 1;
	int family = six ? AF_INET6 : AF_INET, protocol = types[n % 8][1];
	struct sockaddr_in6 a = { .sin6_family = family }, to;
	struct sockaddr_in *in = (struct sockaddr_in *)&a;
	socklen_t len = six ? sizeof(a) : sizeof(*in), room = sizeof(to);

	/* A client with multipath TCP, whose listener has none, falls back to TCP. */
	fd = socket(family, type | SOCK_CLOEXEC | (n & 32 ? SOCK_NONBLOCK : 0), protocol == 262 && n >> 21 & 1 ? 0 : protocol);
	if (fd < 0)
		return -1;
	if (n & 1u << 13)
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
	if (six && type == SOCK_STREAM)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if ((n >> 6) % 8 == 0)
		return fd;	/* bound to nothing */
	if (n & 1u << 14) {
		if (six)
			a.sin6_addr = in6addr_loopback;
		else
			in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	if (bind(fd, (struct sockaddr *)&a, len) || getsockname(fd, (struct sockaddr *)&to, &room))
		return -1;
	if (type != SOCK_STREAM) {
		struct sockaddr_in6 self = to;

		if (n & 64 && type == SOCK_DGRAM) {
			if (IN6_IS_ADDR_UNSPECIFIED(&self.sin6_addr) && six)
				self.sin6_addr = in6addr_loopback;
			connect(fd, (struct sockaddr *)&self, room);
			if (n & 128)
				send(fd, "to itself", 9, MSG_DONTWAIT);
		}
		return fd;
	}
	if (n & 64)
		return fd;	/* bound, and no listener */
	must(listen(fd, (n >> 7) % 5));
	if (n & 1u << 15)
		return fd;
	if (six && on == 0 && n & 1u << 16) {	/* its peer speaks IPv4 */
		family = AF_INET;
		room = sizeof(*in);
		*(struct sockaddr_in *)&to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = to.sin6_port,
								   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	}
	client = socket(family, type | SOCK_CLOEXEC, n & 1u << 17 ? 0 : protocol);
	if (client < 0 || fcntl(client, F_SETFL, O_NONBLOCK) || (connect(client, (struct sockaddr *)&to, room) && errno != EINPROGRESS))
		return -1;
	usleep(2000);
	if (n & 1u << 10 && poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 200) > 0)
		server = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (n & 1u << 11)
		send(client, "12345", 5, MSG_NOSIGNAL);
	if (n & 1u << 12)
		shutdown(client, n >> 18 & 1 ? SHUT_WR : SHUT_RDWR);
	else if (n & 1u << 19 && server >= 0)
		close(client);
	if (n & 1u << 20 && n & 1u << 19)
		close(fd);
	usleep(2000);
	return 0;
}

int walk_socket(unsigned int n)
{
	static const int others[][3] = {
		{ AF_VSOCK, SOCK_STREAM, 0 }, { 44 /* XDP */, SOCK_RAW, 0 }, { 38 /* ALG */, SOCK_SEQPACKET, 0 }, { 29 /* CAN */, SOCK_RAW, 1 },
		{ AF_NETLINK, SOCK_RAW, NETLINK_ROUTE }, { AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT }, { AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG },
		{ AF_PACKET, SOCK_RAW, 0 }, { AF_PACKET, SOCK_DGRAM, 0x0300 }, { AF_TIPC, SOCK_RDM, 0 }, { AF_NETLINK, SOCK_RAW, NETLINK_GENERIC },
		{ 15 /* KEY */, SOCK_RAW, 2 },
	};
	unsigned int i = (n >> 2) % (sizeof(others) / sizeof(*others));
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK, .nl_groups = n >> 8 & 1 };
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_protocol = htons(3), .sll_ifindex = n >> 8 & 1 };
	int fd;

	if (n & 3)
		return internet(n >> 2);
	fd = socket(others[i][0], others[i][1] | SOCK_CLOEXEC, others[i][2]);
	if (fd >= 0 && others[i][0] == AF_NETLINK && n & 128)
		return bind(fd, (struct sockaddr *)&nl, sizeof(nl));
	if (fd >= 0 && others[i][0] == AF_PACKET && n & 128)
		return bind(fd, (struct sockaddr *)&ll, sizeof(ll));
	return fd;
}

int walk_unix(unsigned int n)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	int type = types[n % 3], fd, client, pair[2], here = -1;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(a.sun_family);
	char *path = fresh(n >> 10), *slash;

	if ((n >> 2) % 5 == 0) {
		if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair))
			return -1;
		if (n & 1u << 8)
			must(write(pair[0], "unix", 4));
		return n & 1u << 9 ? close(pair[1]) : 0;
	}
	fd = must(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
	switch ((n >> 2) % 5) {
	case 1:	/* a relative path */
		slash = strrchr(path, '/');
		*slash = 0;
		here = must(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
		must(chdir(path));
		len += snprintf(a.sun_path, sizeof(a.sun_path), "%s", slash + 1) + !!(n & 32);
		break;
	case 2:	/* an abstract name */
		len += 1 + snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%d%s", getpid(), odd(n >> 10));
		break;
	case 3:
		len += snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) + !!(n & 32);
		break;	/* the fourth lets the kernel choose */
	}
	if (len > sizeof(a))
		len = sizeof(a);
	if (n & 64 || (n >> 2) % 5 != 4)
		if (bind(fd, (struct sockaddr *)&a, len))
			return -1;
	if (type != SOCK_DGRAM && n & 128)
		listen(fd, n >> 8 & 3);
	if (n & 256) {
		client = must(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		len = sizeof(a);
		must(getsockname(fd, (struct sockaddr *)&a, &len));
		if (!connect(client, (struct sockaddr *)&a, len) && type == SOCK_STREAM && n & 512)
			accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	if (n & 1u << 16 && (n >> 2) % 5 == 3)
		unlink(path);	/* a long name was cut */
	if (here >= 0) {
		must(fchdir(here));
		close(here);
	}
	return 0;
}

static int bpf_map(unsigned int n)
{
	union bpf_attr map = {
		.map_type = n & 1 ? BPF_MAP_TYPE_ARRAY : BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 8 << (n & 3), .max_entries = 1 + n % 50,
	};

	snprintf(map.map_name, sizeof(map.map_name), "walk%u", n % 100);
	return syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof(map));
}

static int marked(unsigned int n)
{
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | (n & 1 ? FAN_REPORT_FID : 0) | (n & 2 ? FAN_NONBLOCK : 0), O_RDONLY);

	for (unsigned int i = 0; fd >= 0 && i < (n >> 4) % 3; i++)
		fanotify_mark(fd, FAN_MARK_ADD | (n & 8 ? FAN_MARK_IGNORED_MASK : 0), FAN_OPEN | FAN_ACCESS, AT_FDCWD, fresh(0));
	if (fd >= 0 && n & 4)
		fanotify_mark(fd, FAN_MARK_ADD, FAN_CLOSE_WRITE, AT_FDCWD, ".");
	return fd;
}

static int watching(unsigned int n)
{
	int fd = inotify_init1(IN_CLOEXEC | (n & 1 ? IN_NONBLOCK : 0));

	for (unsigned int i = 0; fd >= 0 && i < n % 4; i++) {
		char *path = fresh(n >> 4);

		must(mkdir(path, 0700));
		must(inotify_add_watch(fd, path, IN_CREATE << i | IN_DELETE));
		if (n & 8)
			must(rmdir(path));	/* so the watch ends */
	}
	return fd;
}

int walk_event(unsigned int n)
{
	struct itimerspec when = { .it_value = { 100000 + n % 1000, n % 1000 }, .it_interval = { n % 7, 500 } };
	struct epoll_event ev = { .events = EPOLLIN | (n & 256 ? EPOLLET : 0), .data.u64 = n * 0x123456789ULL };
	struct perf_event_attr perf = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(perf), .config = PERF_COUNT_SW_DUMMY };
	struct io_uring_params ring = { .flags = n & 256 ? IORING_SETUP_CQSIZE : 0, .cq_entries = 64 };
	static const int clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM };
	unsigned int m = n >> 4;
	sigset_t set;
	int fd, to;
	pid_t pid;

	switch (n & 15) {
	case 0:
		return eventfd(m % 100000, (m & 1 ? EFD_SEMAPHORE : 0) | EFD_CLOEXEC | (m & 2 ? EFD_NONBLOCK : 0));
	case 1:
		fd = must(epoll_create1(EPOLL_CLOEXEC));
		for (unsigned int i = 0; i < m % 5; i++) {
			to = an_open_one(m + i * 7);
			epoll_ctl(fd, EPOLL_CTL_ADD, to, &ev);
		}
		to = must(eventfd(0, EFD_CLOEXEC));
		must(epoll_ctl(fd, EPOLL_CTL_ADD, to, &ev));
		return m & 8 ? close(to) : 0;
	case 2:
		fd = timerfd_create(clocks[m % 5], TFD_CLOEXEC | (m & 1 ? TFD_NONBLOCK : 0));
		return fd < 0 || !(m & 16) ? fd : timerfd_settime(fd, 0, &when, NULL);
	case 3:
		sigemptyset(&set);
		for (int i = 1; i < 32; i++)
			if (m & 1u << (i % 16))
				sigaddset(&set, i);
		return signalfd(-1, &set, SFD_CLOEXEC);
	case 4:
		return watching(m);
	case 5:
		return marked(m);
	case 6:
		pid = m & 1 ? spawn() : 0;
		if (m & 1 && pid == 0) {
			if (m & 2)
				_exit(0);
			forever();
		}
		fd = syscall(SYS_pidfd_open, pid ? pid : getpid(), m & 8 ? O_EXCL /* PIDFD_THREAD */ : 0);
		if (pid && m & 2 && m & 4)
			must(waitpid(pid, NULL, 0));	/* nobody is left */
		return fd;
	case 7:
		return syscall(SYS_io_uring_setup, 8, &ring);
	case 8:
		return bpf_map(m);
	case 9:
		return syscall(SYS_userfaultfd, O_CLOEXEC);
	case 10:
		return syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0);
	case 11: {
		char name[32];

		snprintf(name, sizeof(name), "/walk%d", getpid());
		fd = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
		mq_unlink(name);
		return fd;
	}
	case 12:
		return syscall(430 /* fsopen */, "tmpfs", 1);
	case 13:
		return syscall(428 /* open_tree */, AT_FDCWD, "/tmp", O_CLOEXEC | (m & 1));
	case 14:
		return syscall(444 /* landlock_create_ruleset */, &(unsigned long){ 4 }, sizeof(long), 0);
	default:
		return posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	}
}

int walk_lock(unsigned int n)
{
	struct flock whole = { .l_type = n & 16 ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET };
	struct flock part = { .l_type = n & 16 ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = n % 100, .l_len = 1 + n % 7 };
	int fd = regular((n >> 8) % 5, 0), again, status;
	char self[64];
	pid_t child;

	if (fd < 0)
		return -1;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	again = n & 32 ? must(open(self, O_RDWR | O_CLOEXEC)) : fd;
	switch (n & 15) {
	case 0:
	case 1:
		return flock(fd, n & 1 ? LOCK_SH : LOCK_EX);
	case 2:
		return fcntl(fd, F_SETLK, &whole);
	case 3:
		if (fcntl(fd, F_SETLK, &part))
			return -1;
		part.l_start += 50;
		part.l_type = F_RDLCK;
		return fcntl(again, F_SETLK, &part);
	case 4:
		return fcntl(fd, F_OFD_SETLK, &whole);
	case 5:
		return fcntl(again, F_OFD_SETLK, &part);
	case 6:
	case 7:	/* the process that took it has ended, or lives */
		child = spawn();
		if (child == 0) {
			if (n & 64 ? flock(fd, LOCK_EX) : fcntl(fd, F_OFD_SETLK, &part))
				_exit(1);
			if (n & 1)
				_exit(0);
			raise(SIGSTOP);
			forever();
		}
		return waitpid(child, &status, WUNTRACED);
	case 8:
		close(fd);
		fd = regular(0, 0);
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		if (n & 64)
			return fcntl(fd, F_SETLEASE, F_WRLCK);
		again = must(open(self, O_RDONLY | O_CLOEXEC));
		close(fd);
		return fcntl(again, F_SETLEASE, F_RDLCK);
	case 9:	/* both kinds on one file */
		return flock(fd, LOCK_EX) || fcntl(again, F_SETLK, &part) ? -1 : 0;
	case 10:	/* another one waits for it */
		must(flock(fd, LOCK_EX));
		if (spawn() == 0) {
			flock(must(open(self, O_RDWR | O_CLOEXEC)), LOCK_SH);
			forever();
		}
		return 0;
	case 11:	/* that of a child, of which we have the file only */
		child = spawn();
		if (child == 0) {
			if (fcntl(fd, F_SETLK, &whole))
				_exit(1);
			raise(SIGSTOP);
			forever();
		}
		return waitpid(child, &status, WUNTRACED);
	case 12:	/* through a name of /proc, on a file that nobody wrote to */
		return flock(must(open(self, O_RDONLY | O_CLOEXEC)), LOCK_SH);
	default:
		return fcntl(fd, F_NOTIFY, DN_CREATE) < 0 && errno == ENOTDIR ? flock(again, LOCK_EX) : 0;
	}
}

int walk_map(unsigned int n)
{
	static const int advice[] = { MADV_NORMAL, MADV_DONTFORK, MADV_WIPEONFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_RANDOM,
				      MADV_SEQUENTIAL, MADV_DONTDUMP };
	static const int protection[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE | PROT_EXEC };
	int prot = protection[n % 5], kind = (n >> 3) % 8, flags = n & 64 ? MAP_SHARED : MAP_PRIVATE, fd = -1, id;
	size_t size = SIZE << (n >> 7 & 1);
	char *p;

	switch (kind) {
	case 0:
	case 1:
		flags |= MAP_ANONYMOUS | (n & 128 && !(n & 64) ? MAP_GROWSDOWN : 0) | (n & 256 ? MAP_NORESERVE : 0);
		break;
	case 2:
		fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
		break;
	case 3:
		id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
		if (id < 0)
			return -1;
		p = shmat(id, NULL, 0);
		must(shmctl(id, IPC_RMID, NULL));
		return p == (void *)-1 ? -1 : 0;
	case 4:
		fd = memfd_create("mapped \\040 (deleted)", MFD_CLOEXEC);
		break;
	default:
		fd = regular(n >> 9, 0);
	}
	if (fd >= 0 && kind != 2)
		must(ftruncate(fd, SIZE));
	p = mmap(NULL, size, prot, flags, fd, fd >= 0 && kind > 3 && n & 1u << 20 ? 4096 : 0);
	if (fd >= 0 && n & 1u << 21)
		close(fd);
	if (p == MAP_FAILED)
		return -1;
	if (prot & PROT_WRITE)
		p[0] = 1;
	if (n & 1u << 22)
		mlock(p, 8192);
	if (n & 1u << 23 && kind < 2)
		prctl(0x53564d41 /* PR_SET_VMA */, 0, p, size, n & 1 ? "walk: name" : "a b(c)");
	if (n & 1u << 24)
		mprotect(p + 4096, 4096, PROT_NONE);
	if (n & 1u << 25)
		munmap(p + 8192, 4096);
	return madvise(p, size, advice[(n >> 26) % 9]) && 0;
}

/* A table of files with gaps, copies and far ends. */
int walk_descriptor(unsigned int n)
{
	struct rlimit limit = { 4096, 4096 };
	int fd = an_open_one(n >> 4);

	switch (n % 6) {
	case 0:
		return close(fd);
	case 1:
		setrlimit(RLIMIT_NOFILE, &limit);
		return fcntl(fd, n & 8 ? F_DUPFD : F_DUPFD_CLOEXEC, OURS + 10 + (n >> 8) % 3000);
	case 2:
		return fcntl(fd, F_SETFL, (fcntl(fd, F_GETFL) | (n & 8 ? O_NONBLOCK : O_APPEND)) & ~(n & 512 ? O_ASYNC : 0));
	case 3:
		return fcntl(fd, F_SETFD, n >> 8 & 1);
	case 4:
		return fcntl(fd, F_SETOWN, getpid()) < 0 ? -1 : fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
	default:
		return dup(fd);
	}
}
