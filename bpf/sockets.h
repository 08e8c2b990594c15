/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * With FD: details of sockets, as sock_diag(7) has them, for sockets of any
 * network namespace.
 */
#ifndef TASKDIAG_SOCKETS_H
#define TASKDIAG_SOCKETS_H

#include "names.h"
#include "open.h"

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10, AF_NETLINK = 16, AF_PACKET = 17 };
enum { SOCK_STREAM = 1, SOCK_DGRAM = 2, IPPROTO_TCP = 6, IPPROTO_UDP = 17, IPPROTO_UDPLITE = 136, IPPROTO_MPTCP = 262 };
enum { TCP_CLOSE = 7, TCP_LISTEN = 10 };
enum { SOCK_DONE = 1 };		/* a bit of skc_flags: the FIN of the other end has come */

/* Sets of members as bits of `valid`. */
#define BIT(member) (1u << (SOCKET_##member))
enum {
	ANY_SOCKET = BIT(INODE) | BIT(FD),
	COMMON = ANY_SOCKET | BIT(NETNS) | BIT(FAMILY) | BIT(TYPE) | BIT(PROTOCOL) | BIT(STATE),
	PORTS = BIT(LOCAL_PORT) | BIT(PEER_PORT),
	ADDRS = BIT(LOCAL_ADDR) | BIT(PEER_ADDR),
	QUEUES = BIT(RECV_QUEUE_BYTES) | BIT(SEND_QUEUE_BYTES),
};

static __always_inline __u16 from_network(__u16 v)
{
	return (v >> 8) | (v << 8);
}

static __always_inline u32 wmem(u64 sk)
{
	/* The count begins at one, which the socket itself holds. */
	u32 v = RD(u32, sk, SK_WMEM);

	return v ? v - 1 : 0;
}

/* The name of a unix socket: its path, or '@' and an abstract name. */
static __always_inline u32 unix_name(u64 sk)
{
	u64 addr = RD_MAY(u64, sk, UNIX_ADDR);
	u32 len;

	if (!addr)
		return 0;
	/* The length includes the first two bytes of the sockaddr_un, which are the family. */
	len = RD_MAY(u32, addr, UNIX_ADDR_LEN);
	if (len <= 2)
		return 0;
	st.arg = addr + OFF(UNIX_ADDR_NAME) + 2;
	return name_of_text(TEXT_UNIX + len - 2);
}

/* Set the queues of the entry that is being made. Returns the bits of `valid` for those that are known. */
GROUP_FN queues(u64 sk)
{
	struct task_diag_socket *e = MADE(struct task_diag_socket);
	u32 v;

	if (e->state == TCP_LISTEN) {
		/* Connections to a listener with multipath TCP wait at its first subflow. */
		if (e->protocol == IPPROTO_MPTCP) {
			sk = RD_MAY(u64, sk, MPTCP_FIRST);
			GAP();
			if (!sk)
				return 0;
		}
		e->recv_queue_bytes = e->family == AF_UNIX ? RD(u32, sk, SK_QUEUE_LEN) :
							     RD(u32, sk, SK_BACKLOG);
		e->send_queue_bytes = RD(u32, sk, SK_MAX_BACKLOG);
		return QUEUES;
	}
	e->send_queue_bytes = wmem(sk);
	if (e->family == AF_UNIX) {
		v = RD(u32, sk, SK_QUEUE_LEN);
		if (v && e->type == SOCK_DGRAM)
			e->recv_queue_bytes = RD(u32, RD(u64, sk, SK_QUEUE_NEXT), SKB_LEN);
		else if (v)
			return BIT(SEND_QUEUE_BYTES);	/* the other is the sum over a list that may be long */
	} else if (e->type == SOCK_STREAM && e->protocol == IPPROTO_TCP) {
		v = RD_MAY(u32, sk, TCP_RCV_NXT) - RD_MAY(u32, sk, TCP_COPIED_SEQ);
		/* As ioctl(SIOCINQ), which /proc has to use because no list has closed sockets: the end of the data does not count. */
		if (e->state == TCP_CLOSE && HAVE(SKC_FLAGS))
			v -= RD(u64, sk, SKC_FLAGS) >> SOCK_DONE & 1;
		e->recv_queue_bytes = (s32)v > 0 ? v : 0;
		e->send_queue_bytes = RD_MAY(u32, sk, TCP_WRITE_SEQ) - RD_MAY(u32, sk, TCP_SND_UNA);
		if (!HAVE(TCP_RCV_NXT) || !HAVE(TCP_COPIED_SEQ) || !HAVE(TCP_WRITE_SEQ) ||
		    !HAVE(TCP_SND_UNA))
			return 0;
	} else {
		v = RD(u32, sk, SK_RMEM);
		if (e->protocol == IPPROTO_UDP || e->protocol == IPPROTO_UDPLITE)
			v -= RD_MAY(u32, sk, UDP_DEFICIT);
		e->recv_queue_bytes = v;
	}
	return QUEUES;
}

/* Write the entry of descriptor fd, whose file st.file is a socket. */
GROUP_FN put_socket(u32 fd)
{
	struct task_diag_socket *e, *s = MADE(struct task_diag_socket);
	u64 socket = RD(u64, st.file, FILE_PRIVATE), inode = RD(u64, st.file, FILE_INODE), sk, peer;
	u32 valid = COMMON;

	*s = (struct task_diag_socket){};
	s->fd = fd;
	begin_entry();
	if (!still_open())
		return 0;
	sk = RD(u64, socket, SOCKET_SK);
	s->inode = RD(u64, inode, INODE_INO);
	if (!still_open())
		return 0;
	if (!sk) {
		e = next_entry(TASK_DIAG_A_SOCKET, sizeof(*e), ANY_SOCKET);
		if (e)
			*e = *s;
		return 0;
	}
	s->family = RD(__u16, sk, SKC_FAMILY);
	s->type = RD(__u16, sk, SK_TYPE);
	s->protocol = RD(__u16, sk, SK_PROTOCOL);
	s->state = RD(u8, sk, SKC_STATE);
	if (HAVE(SKC_NET))
		s->netns = RD(u32, RD(u64, sk, SKC_NET), NET_INUM);
	else
		valid &= ~BIT(NETNS);
	switch (s->family) {
	case AF_INET:
	case AF_INET6:
		valid |= PORTS | BIT(IFINDEX) | ADDRS;
		s->local_port = HAVE(INET_SPORT) ? from_network(RD(__u16, sk, INET_SPORT)) :
						  RD(__u16, sk, SKC_NUM);
		s->peer_port = from_network(RD(__u16, sk, SKC_DPORT));
		s->ifindex = RD(u32, sk, SKC_BOUND_IF);
		/* Only the subflow of a multipath socket has the interface of a link-local address. */
		if (!s->ifindex && s->protocol == IPPROTO_MPTCP && s->state != TCP_CLOSE && HAVE(MPTCP_FIRST)) {
			peer = RD(u64, sk, MPTCP_FIRST);
			GAP();
			if (peer) {
				s->ifindex = RD(u32, peer, SKC_BOUND_IF);
				if (!STILL_AT(sk, MPTCP_FIRST, peer))
					valid &= ~BIT(IFINDEX);
			}
		}
		if (s->family == AF_INET) {
			*(u32 *)s->local_addr = RD(u32, sk, SKC_RCV_SADDR);
			*(u32 *)s->peer_addr = RD(u32, sk, SKC_DADDR);
		} else if (HAVE(SKC_V6_DADDR) && HAVE(SKC_V6_RCV_SADDR)) {
			bpf_probe_read_kernel(s->local_addr, 16, (void *)(sk + OFF(SKC_V6_RCV_SADDR)));
			bpf_probe_read_kernel(s->peer_addr, 16, (void *)(sk + OFF(SKC_V6_DADDR)));
		} else {
			valid &= ~ADDRS;
		}
		/* An address may be left over from a connection that failed or has ended. getpeername(2) returns none. */
		if (s->state == TCP_CLOSE) {
			s->peer_port = 0;
			__builtin_memset(s->peer_addr, 0, sizeof(s->peer_addr));
		}
		valid |= queues(sk);
		break;
	case AF_UNIX:
		if (HAVE(UNIX_ADDR) && HAVE(UNIX_ADDR_LEN) && HAVE(UNIX_ADDR_NAME)) {
			valid |= BIT(NAME);
			s->name = unix_name(sk);
		}
		if (HAVE(UNIX_PEER)) {
			valid |= BIT(PEER_INODE);
			peer = RD(u64, sk, UNIX_PEER);
			if (peer)
				peer = RD(u64, peer, SK_SOCKET);
			if (peer)
				s->peer_inode = RD(u64, peer + OFF(SOCKET_ALLOC_INODE), INODE_INO);
		}
		valid |= queues(sk);
		break;
	case AF_NETLINK:
		valid |= queues(sk);
		if (HAVE(NETLINK_PORTID)) {
			valid |= BIT(PORTID);
			s->portid = RD(u32, sk, NETLINK_PORTID);
		}
		break;
	case AF_PACKET:
		valid &= ~BIT(PROTOCOL);
		if (HAVE(PACKET_NUM) && HAVE(PACKET_IF)) {
			valid |= BIT(PROTOCOL) | BIT(IFINDEX);
			s->protocol = from_network(RD(__u16, sk, PACKET_NUM));
			s->ifindex = RD(u32, sk, PACKET_IF);
		}
		break;
	}
	if (!STILL_AT(socket, SOCKET_SK, sk) || !STILL_AT(st.file, FILE_PRIVATE, socket) || !still_open()) {
		take_back_name();
		return 0;
	}
	e = next_entry(TASK_DIAG_A_SOCKET, sizeof(*e), valid);
	if (e)
		*e = *s;
	return 0;
}

#endif
