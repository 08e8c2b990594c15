// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tasks that open sockets and files of the kernel's other kinds, use them, replace them and close
 * them. The programs follow pointers from such files to objects that the last close frees. */
#include "storm.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

enum { FILES = 24 };

/* Connects two sockets over the loopback device, and leaves some bytes in their queues. Nothing
 * here waits, since another task may have put another file in the place of these. */
static void connected(int fds[2], int family, int protocol)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in at4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_storage bound;
	socklen_t len = family == AF_INET ? sizeof(at4) : sizeof(at), size = sizeof(bound);
	int listens = socket(family, SOCK_STREAM | SOCK_NONBLOCK, protocol);
	char bytes[700] = "";

	fds[0] = fds[1] = -1;
	if (listens < 0)
		return;
	if (bind(listens, family == AF_INET ? (void *)&at4 : (void *)&at, len) == 0 &&
	    listen(listens, 4) == 0 && getsockname(listens, (void *)&bound, &size) == 0) {
		fds[0] = socket(family, SOCK_STREAM | SOCK_NONBLOCK, protocol);
		if (connect(fds[0], (void *)&bound, size) == 0 || errno == EINPROGRESS) {
			if (rnd() % 4)
				fds[1] = accept(listens, NULL, NULL);
			send(fds[0], bytes, rnd() % sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
		}
	}
	if (rnd() % 4)
		close(listens);
	if (rnd() % 4 == 0 && fds[1] >= 0)
		shutdown(fds[rnd() % 2], rnd() % 3);
}

static int datagrams(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd >= 0 && bind(fd, (void *)&at, size) == 0 && getsockname(fd, (void *)&at, &size) == 0)
		for (int n = rnd() % 4; n > 0; n--)
			sendto(fd, "storm", 5, MSG_DONTWAIT, (void *)&at, size);
	return fd;
}

/* Sockets with names in the abstract namespace, one of which has the other one as its peer. */
static void named(int fds[2], int n)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t size = sizeof(at.sun_family) + 1;

	size += snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "storm-%d-%d", getpid(), n);
	fds[0] = socket(AF_UNIX, SOCK_DGRAM, 0);
	fds[1] = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (bind(fds[0], (void *)&at, size) == 0 && connect(fds[1], (void *)&at, size) == 0)
		send(fds[1], "storm", 5, MSG_DONTWAIT);
}

/* Opens something, and puts one or two descriptors, or -1, into `fds`. */
static void open_one(int fds[2], int n)
{
	const struct itimerspec later = { { 0, 0 }, { 100, 0 } };
	struct epoll_event event = { .events = EPOLLIN };
	sigset_t signals;

	fds[1] = -1;
	switch (rnd() % 15) {
	case 0:
	case 1:
		connected(fds, AF_INET, 0);
		break;
	case 2:
		connected(fds, AF_INET6, 0);
		break;
	case 3:
		connected(fds, AF_INET, IPPROTO_MPTCP);
		break;
	case 4:
		fds[0] = datagrams();
		break;
	case 5:
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
			fds[0] = fds[1] = -1;
		break;
	case 6:
		named(fds, n);
		break;
	case 7:
		fds[0] = socket(AF_NETLINK, SOCK_RAW, rnd() % 2 ? 0 : 15);
		break;
	case 8:
		fds[0] = socket(AF_PACKET, SOCK_RAW, 0);
		fds[1] = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
		break;
	case 9: /* it watches the next one, and itself is watched by nothing */
		fds[0] = epoll_create1(0);
		fds[1] = eventfd(1, 0);
		epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[1], &event);
		break;
	case 10:
		fds[0] = timerfd_create(CLOCK_MONOTONIC, 0);
		timerfd_settime(fds[0], 0, &later, NULL);
		break;
	case 11:
		fds[0] = inotify_init1(0);
		inotify_add_watch(fds[0], base, IN_CREATE);
		inotify_add_watch(fds[0], "/dev", IN_CREATE);
		break;
	case 12:
		sigemptyset(&signals);
		sigaddset(&signals, SIGUSR1);
		fds[0] = signalfd(-1, &signals, 0);
		fds[1] = syscall(SYS_memfd_create, "storm", 0);
		break;
	case 13:
		fds[0] = syscall(SYS_pidfd_open, getppid(), 0);
		break;
	default:
		if (pipe(fds))
			fds[0] = fds[1] = -1;
		else
			fcntl(fds[1], F_SETPIPE_SZ, 4096 << rnd() % 5);
	}
}

static void use(int *fds)
{
	int pair[2];

	for (int i = 0; i + 1 < FILES; i += 2)
		open_one(fds + i, i);
	for (int i = 0; i < FILES; i++) {
		int a = fds[rnd() % FILES], b = fds[rnd() % FILES];

		if (a >= 0 && b >= 0 && a != b && rnd() % 2)
			dup2(a, b);
	}
	/* A file in a message has no descriptor until it is received, or for ever. */
	if (fds[0] >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
		char control[CMSG_SPACE(sizeof(int))] = "", byte = 0;
		struct iovec data = { &byte, 1 };
		struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
					  .msg_controllen = sizeof(control) };
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);

		head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), fds, sizeof(int));
		sendmsg(pair[0], &message, MSG_DONTWAIT);
		close(pair[0]);
		close(pair[1]);
	}
	usleep(rnd() % 500);
	for (int i = 0; i < FILES; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void *uses(void *arg)
{
	int fds[FILES];

	for (int n = rnd() % 4; n > 0 && going(); n--)
		use(fds);
	return arg;
}

long descriptors(void)
{
	long rounds = 0;

	for (; going(); rounds++) {
		for (int i = 0; i < 3; i++)
			if (child(rnd() % 2 ? CLONE_FILES : 0) == 0) {
				pthread_t t;

				/* A network namespace that ends with the task and its sockets. */
				if (rnd() % 8 == 0)
					unshare(CLONE_NEWNET);
				if (rnd() % 4 == 0)
					pthread_create(&t, NULL, uses, NULL);
				uses(NULL);
				_exit(0);
			}
		while (waitpid(-1, NULL, __WALL) > 0)
			continue;
		/* A task that shared our table of files may have ended before its last close. */
		syscall(SYS_close_range, 3, ~0U, 0);
	}
	return rounds;
}
