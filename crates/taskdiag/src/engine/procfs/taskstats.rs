//! Asks netlink's family `TASKSTATS` about a thread. It needs CAP_NET_ADMIN. It does not know which
//! threads there are.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use taskdiag_wire::Reason;

use super::parse::{self, DelayCounts};
use super::stop::Stop;

/// The control family of generic netlink, and its command and attribute (linux/genetlink.h).
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// linux/taskstats.h.
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_PID: u16 = 1;

/// The connection of a worker to the kernel's family of statistics.
#[derive(Debug, Default)]
pub(super) enum TaskStats {
    /// Nothing was asked yet.
    #[default]
    Closed,
    /// The kernel can be asked, through this connection and with this family number.
    Open(Connection, u16),
    /// The kernel cannot be asked, for this reason.
    None(Reason),
}

/// A connection to netlink.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    /// The number of the last question, which its answer has, too.
    sequence: u32,
}

/// The largest number of answers to earlier questions that are skipped. An answer stays unread if
/// reading it failed.
const STALE_MOST: u32 = 4;

impl TaskStats {
    fn open(calls: &mut u64) -> TaskStats {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        *calls += 2; // close, too
        // SAFETY: takes numbers, and returns a new descriptor without another owner.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) };
        if fd < 0 {
            return TaskStats::None(Reason::Unsupported);
        }
        // SAFETY: as above.
        let mut to = Connection { socket: unsafe { OwnedFd::from_raw_fd(fd) }, sequence: 0 };
        let attr = (CTRL_ATTR_FAMILY_NAME, &b"TASKSTATS\0"[..]);
        let family = to.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attr, calls, parse::genl_family);
        match family {
            Ok(Some(family)) => TaskStats::Open(to, family),
            Ok(None) | Err(_) => TaskStats::None(Reason::Unsupported),
        }
    }

    /// The delays of a thread of this process. A thread whose delays are not counted has none.
    pub(super) fn of(&mut self, tgid: u32, tid: u32, calls: &mut u64) -> Result<DelayCounts, Stop> {
        if matches!(self, TaskStats::Closed) {
            *self = TaskStats::open(calls);
        }
        let (to, family) = match self {
            TaskStats::Open(to, family) => (to, *family),
            TaskStats::None(reason) => return Err(Stop::Gap(*reason)),
            TaskStats::Closed => return Err(Stop::Gap(Reason::Unsupported)),
        };
        let attr = (TASKSTATS_CMD_ATTR_PID, &tid.to_ne_bytes()[..]);
        // The id may belong to another process by now. Linux before 5.18 does not say to which.
        let counts = |answer: &[u8]| match parse::taskstats_tgid(answer) {
            Some(other) if other != tgid => Some(Err(Stop::Gone)),
            _ => Some(parse::taskstats(answer).ok_or(Stop::Gap(Reason::Unsupported))),
        };
        match to.ask(family, TASKSTATS_CMD_GET, attr, calls, counts) {
            Ok(Some(counts)) => counts,
            Ok(None) => Err(Stop::Gap(Reason::Unsupported)),
            Err(e) => match e.raw_os_error() {
                Some(libc::ESRCH) => Err(Stop::Gone),
                Some(libc::EPERM | libc::EACCES) => {
                    *self = TaskStats::None(Reason::Denied);
                    Err(Stop::Gap(Reason::Denied))
                }
                _ => Err(Stop::Gap(Reason::Unsupported)),
            },
        }
    }
}

impl Connection {
    /// Sends a question to the kernel, which answers before the call that sends it returns.
    fn ask<T>(
        &mut self,
        family: u16,
        command: u8,
        (kind, data): (u16, &[u8]),
        calls: &mut u64,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.sequence = self.sequence.wrapping_add(1);
        let len = 16 + 4 + 4 + data.len().next_multiple_of(4);
        let mut message = (len as u32).to_ne_bytes().to_vec();
        message.extend(family.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend([command, 1, 0, 0]);
        message.extend((4 + data.len() as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(data);
        message.resize(len, 0);
        *calls += 1;
        let fd = self.socket.as_raw_fd();
        // SAFETY: the bytes are valid for the call.
        if unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        for _ in 0..=STALE_MOST {
            let mut buf = [0u8; 4096];
            let wait = libc::MSG_DONTWAIT;
            *calls += 1;
            // SAFETY: the buffer is valid for the call.
            let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), wait) };
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            let answer = &buf[..n as usize];
            let Some((kind, payload)) = parse::nl_messages(answer).next() else {
                return Ok(None);
            };
            if answer.get(8..12) != Some(&self.sequence.to_ne_bytes()) {
                continue;
            }
            if i32::from(kind) != libc::NLMSG_ERROR {
                return Ok(parse(payload));
            }
            let error = payload.first_chunk().map_or(libc::EIO, |b| -i32::from_ne_bytes(*b));
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_taskstats_belongs_to_its_question_and_its_process() {
        let (own, mut calls) = (std::process::id(), 0);
        let mut stats = TaskStats::open(&mut calls);
        let skip = |why| {
            // Not by eprintln!(), whose text the test harness keeps to itself.
            let text = format!("SKIPPED answers of taskstats: {why}\n");
            let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
        };
        let TaskStats::Open(to, family) = &mut stats else {
            return skip("the kernel has no TASKSTATS");
        };
        // An answer that has not been read yet.
        let mut stale = 24u32.to_ne_bytes().to_vec();
        stale.extend(family.to_ne_bytes());
        stale.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        stale.extend([0; 8]);
        stale.extend([TASKSTATS_CMD_GET, 1, 0, 0]);
        stale.extend([0; 4]);
        let fd = to.socket.as_raw_fd();
        // SAFETY: the bytes are valid for the call.
        let sent = unsafe { libc::send(fd, stale.as_ptr().cast(), stale.len(), 0) };
        assert_eq!(sent, 24);
        let attr = (TASKSTATS_CMD_ATTR_PID, &own.to_ne_bytes()[..]);
        let all = to.ask(*family, TASKSTATS_CMD_GET, attr, &mut calls, |b| Some(b.to_vec()));
        let Ok(Some(all)) = all else { return skip("an ordinary user is not answered") };
        let tgid = parse::taskstats_tgid(&all);
        assert!(tgid.is_none_or(|tgid| tgid == own), "{tgid:?}");
        if tgid.is_some() {
            assert!(matches!(stats.of(own + 1, own, &mut calls), Err(Stop::Gone)));
        }
    }
}
