//! Asks netlink's family `TASKSTATS` about a thread. It needs CAP_NET_ADMIN. It does not know which
//! threads there are.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use taskdiag_wire::Reason;

use super::parse::{self, DelayCounts};
use super::stop::Stop;

/// The family that knows the others, and its command and attribute (linux/genetlink.h).
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
    /// It can be asked.
    Open(OwnedFd, u16),
    /// It cannot be asked.
    None(Reason),
}

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
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let family = ask(
            &socket,
            GENL_ID_CTRL,
            CTRL_CMD_GETFAMILY,
            (CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0"),
            calls,
            parse::genl_family,
        );
        match family {
            Ok(Some(family)) => TaskStats::Open(socket, family),
            Ok(None) | Err(_) => TaskStats::None(Reason::Unsupported),
        }
    }

    /// The delays of a thread. A thread whose delays are not counted has none.
    pub(super) fn of(&mut self, tid: u32, calls: &mut u64) -> Result<DelayCounts, Stop> {
        if matches!(self, TaskStats::Closed) {
            *self = TaskStats::open(calls);
        }
        let (socket, family) = match self {
            TaskStats::Open(socket, family) => (socket, *family),
            TaskStats::None(reason) => return Err(Stop::Gap(*reason)),
            TaskStats::Closed => return Err(Stop::Gap(Reason::Unsupported)),
        };
        let attr = (TASKSTATS_CMD_ATTR_PID, &tid.to_ne_bytes()[..]);
        match ask(socket, family, TASKSTATS_CMD_GET, attr, calls, parse::taskstats) {
            Ok(Some(counts)) => Ok(counts),
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

/// Asks the kernel, whose answer is there when the question was sent.
fn ask<T>(
    socket: &OwnedFd,
    family: u16,
    command: u8,
    (kind, data): (u16, &[u8]),
    calls: &mut u64,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let len = 16 + 4 + 4 + data.len().next_multiple_of(4);
    let mut message = (len as u32).to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((4 + data.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(data);
    message.resize(len, 0);
    *calls += 2;
    let fd = socket.as_raw_fd();
    // SAFETY: the bytes are valid for the call.
    if unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buf = [0u8; 4096];
    let wait = libc::MSG_DONTWAIT;
    // SAFETY: the buffer is valid for the call.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), wait) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let Some((kind, payload)) = parse::nl_messages(&buf[..n as usize]).next() else {
        return Ok(None);
    };
    if i32::from(kind) != libc::NLMSG_ERROR {
        return Ok(parse(payload));
    }
    let error = payload.first_chunk().map_or(libc::EIO, |b| -i32::from_ne_bytes(*b));
    Err(io::Error::from_raw_os_error(error))
}
