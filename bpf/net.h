/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * NET: the traffic of each open socket, as in struct tcp_info of sock_diag(7).
 * No lock of the socket is taken, so its counters may be from moments
 * that differ by a packet.
 */
#ifndef TASKDIAG_NET_H
#define TASKDIAG_NET_H

#include "open.h"
#include "names.h"
#include "sockets.h"

/* Is the walk over the table of open files made for NET? */
#define IN_NET (WANT(TASK_DIAG_NET) && (!WANT(TASK_DIAG_FD) || st.part == PART_NET))

enum { TCP_SYN_SENT = 2 };

#define NET_BIT(member) (1u << (NET_##member))
enum {
	NET_ANY = NET_BIT(INODE) | NET_BIT(FD),
	NET_BYTES = NET_BIT(SENT_BYTES) | NET_BIT(ACKED_BYTES) | NET_BIT(RECEIVED_BYTES) | NET_BIT(RETRANS_BYTES),
	NET_SEGS = NET_BIT(SENT_SEGS) | NET_BIT(RECEIVED_SEGS) | NET_BIT(RETRANS_SEGS),
	NET_TIMES = NET_BIT(SINCE_SENT_NS) | NET_BIT(SINCE_RECEIVED_NS),
	NET_RTT = NET_BIT(RTT_NS) | NET_BIT(RTT_VAR_NS),
};

/* The time since this tick, in whole milliseconds as tcp_get_info() has it. The kernel keeps 32 bits of the number of a tick. */
static __always_inline u64 since_tick(u32 tick)
{
	u64 ticks = (u32)((u32)bpf_jiffies64() - tick);

	return ticks * cfg.jiffy_ns / 1000000 * 1000000;
}

/* Set the members of a TCP connection, except for its algorithm. Returns the bits of the known ones. */
GROUP_FN tcp_values(u64 sk)
{
	struct task_diag_net *s = MADE(struct task_diag_net);
	u32 state = RD(u8, sk, SKC_STATE), valid = 0, srtt;

	if (HAVE(TCP_BYTES_SENT) && HAVE(TCP_BYTES_ACKED) && HAVE(TCP_BYTES_RECEIVED) && HAVE(TCP_BYTES_RETRANS)) {
		valid |= NET_BYTES;
		s->sent_bytes = RD(u64, sk, TCP_BYTES_SENT);
		s->acked_bytes = RD(u64, sk, TCP_BYTES_ACKED);
		s->received_bytes = RD(u64, sk, TCP_BYTES_RECEIVED);
		s->retrans_bytes = RD(u64, sk, TCP_BYTES_RETRANS);
	}
	/* A listener has no connection. Connections in its queue have separate sockets. */
	if (state == TCP_LISTEN)
		return valid;
	if (HAVE(TCP_SEGS_OUT) && HAVE(TCP_SEGS_IN) && HAVE(TCP_RETRANS)) {
		valid |= NET_SEGS;
		s->sent_segs = RD(u32, sk, TCP_SEGS_OUT);
		s->received_segs = RD(u32, sk, TCP_SEGS_IN);
		s->retrans_segs = RD(u32, sk, TCP_RETRANS);
	}
	if (HAVE(TCP_CWND)) {
		valid |= NET_BIT(CWND_SEGS);
		s->cwnd_segs = RD(u32, sk, TCP_CWND);
	}
	srtt = RD_MAY(u32, sk, TCP_SRTT) >> 3;
	if (srtt && HAVE(TCP_MDEV)) {
		valid |= NET_RTT;
		s->rtt_ns = srtt * 1000ull;
		s->rtt_var_ns = (RD(u32, sk, TCP_MDEV) >> 2) * 1000ull;
	}
	if (state != TCP_CLOSE && state != TCP_SYN_SENT && HAVE(TCP_SENT_AT) && HAVE(TCP_RECEIVED_AT)) {
		valid |= NET_TIMES;
		s->since_sent_ns = since_tick(RD(u32, sk, TCP_SENT_AT));
		s->since_received_ns = since_tick(RD(u32, sk, TCP_RECEIVED_AT));
	}
	return valid;
}

/* Set the members of a connection with multipath TCP. Its subflows have round-trip times, and it has none. */
GROUP_FN mptcp_values(u64 sk)
{
	struct task_diag_net *s = MADE(struct task_diag_net);

	if (!HAVE(MPTCP_BYTES_SENT) || !HAVE(MPTCP_BYTES_ACKED) || !HAVE(MPTCP_BYTES_RECEIVED) ||
	    !HAVE(MPTCP_BYTES_RETRANS))
		return 0;
	s->sent_bytes = RD(u64, sk, MPTCP_BYTES_SENT);
	s->acked_bytes = RD(u64, sk, MPTCP_BYTES_ACKED);
	s->received_bytes = RD(u64, sk, MPTCP_BYTES_RECEIVED);
	s->retrans_bytes = RD(u64, sk, MPTCP_BYTES_RETRANS);
	return NET_BYTES;
}

/* As sk_drops_read(). The two counters are a part of the socket. */
static __always_inline u32 drops_of(u64 sk)
{
	u64 two = RD_MAY(u64, sk, SK_DROP_COUNTERS);

	if (two && HAVE(DROPS_0) && HAVE(DROPS_1))
		return RD(u32, two, DROPS_0) + RD(u32, two, DROPS_1);
	return RD(u32, sk, SK_DROPS);
}

/* Write the entry of descriptor fd, whose file is st.file, if it is a socket. */
GROUP_FN put_net(u32 fd)
{
	struct task_diag_net *e, *s = MADE(struct task_diag_net);
	u64 inode = FILE(u64, INODE), socket = FILE(u64, PRIVATE), sb, sk, algorithm = 0;
	u32 valid = NET_ANY, family, protocol;

	*s = (struct task_diag_net){};
	s->fd = fd;
	if (!inode || !still_open())
		return 0;
	sb = RD(u64, inode, INODE_SB);
	if (!still_open() || RD(u64, sb, SB_MAGIC) != MAGIC_SOCK)
		return 0;
	s->inode = RD(u64, inode, INODE_INO);
	sk = RD(u64, socket, SOCKET_SK);
	if (!still_open())
		return 0;
	if (sk) {
		family = s->family = RD(__u16, sk, SKC_FAMILY);
		protocol = s->protocol = RD(__u16, sk, SK_PROTOCOL);
		/* A packet socket has its protocol elsewhere: see put_socket(). */
		valid |= NET_BIT(FAMILY) | (family == AF_PACKET ? 0 : NET_BIT(PROTOCOL));
		if ((family == AF_INET || family == AF_INET6) && RD(__u16, sk, SK_TYPE) == SOCK_STREAM) {
			if (protocol == IPPROTO_TCP) {
				valid |= tcp_values(sk);
				if (HAVE(TCP_CONGESTION) && HAVE(CONGESTION_NAME) &&
				    RD(u8, sk, SKC_STATE) != TCP_LISTEN)
					algorithm = RD(u64, sk, TCP_CONGESTION);
			} else if (protocol == IPPROTO_MPTCP) {
				valid |= mptcp_values(sk);
			}
		}
		if (HAVE(SK_DROPS)) {
			valid |= NET_BIT(DROPS);
			s->drops = drops_of(sk);
		}
	}
	if (!STILL_AT(socket, SOCKET_SK, sk) || !STILL_AT(st.file, FILE_PRIVATE, socket) || !still_open())
		return 0;
	/* The algorithm was the socket's own, so its module is not freed before this run ends. */
	if (algorithm) {
		bpf_probe_read_kernel(s->congestion, sizeof(s->congestion), (void *)(algorithm + OFF(CONGESTION_NAME)));
		valid |= NET_BIT(CONGESTION);
	}
	e = next_entry(TASK_DIAG_NET, sizeof(*e), valid);
	if (e)
		*e = *s;
	return 0;
}

#endif
