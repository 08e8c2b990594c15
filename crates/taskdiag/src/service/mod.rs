//! The protocol between clients and the service `taskdiagd`, and the data that the service may
//! show.
//!
//! The service keeps BPF programs loaded and answers requests of processes that may not load any.
//! [`shown`] is the table of the data that it may show to everyone. Except for `sock`, this module
//! does no I/O. It decides nothing about callers; that is the job of the service.
//! `docs/operate/service.md` explains all of it.
//!
//! A question is one message on a stream socket: [`Ask`], which contains a request of the wire
//! format. The kernel adds the credentials of the sender. The service accepts no file descriptors,
//! because closing one may wait for a file system of the sender. The reply begins with a [`Reply`].
//! A short answer follows it. A long reply is in a file in memory, whose descriptor comes with the
//! reply: the service writes nothing more to the socket, so a client that does not read costs
//! nothing.

pub mod shown;
#[cfg(not(feature = "serve"))]
pub(crate) mod sock;
#[cfg(feature = "serve")]
pub mod sock;

use std::fmt;
use std::time::Duration;

use crate::error::Cause;

/// Where the service listens.
pub const SOCKET: &str = "/run/taskdiag/socket";
/// The environment variable that names another socket, for tests and for a service that was started
/// by hand.
pub const SOCKET_ENV: &str = "TASKDIAG_SOCKET";
/// A client asks only if it can open this file: then its own /proc shows the processes of others.
/// Process 1 exists in every pid namespace, and belongs to another user for nearly every caller.
/// The service does not rely on this check.
pub const PROOF: &str = "/proc/1/stat";
/// The longest answer that comes on the socket itself. The send buffer of a socket that is empty
/// has room for it.
pub const INLINE_MAX: usize = 64 << 10;
/// The longest question in bytes.
pub const ASK_MAX: usize = ASK_HEAD + 256;
/// The oldest answer that the service keeps for [`Ask::max_age`].
pub const MAX_AGE: Duration = Duration::from_secs(1);

const MAGIC: u32 = 0x5344_4154;
const ASK_HEAD: usize = 16;
const PROTOCOL: u16 = 1;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// The largest age of the answer: how long before the question its walk over the tasks may have
    /// begun. Callers who accept an older answer share one.
    pub max_age: Duration,
    /// A request in the wire format.
    pub request: Vec<u8>,
}

impl Ask {
    /// A question for an answer that is at most `max_age` old.
    pub fn new(max_age: Duration, request: Vec<u8>) -> Ask {
        Ask { max_age, request }
    }
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let age = u32::try_from(self.max_age.as_millis()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(ASK_HEAD + self.request.len());
        out.extend(MAGIC.to_ne_bytes());
        out.extend(PROTOCOL.to_ne_bytes());
        out.extend(0u16.to_ne_bytes());
        out.extend(age.to_ne_bytes());
        out.extend((self.request.len() as u32).to_ne_bytes());
        out.extend_from_slice(&self.request);
        out
    }
    /// The question in one message. `None`: the message is not exactly one question.
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        let (head, request) = bytes.split_at_checked(ASK_HEAD)?;
        let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let version = u16::from_ne_bytes([head[4], head[5]]);
        let is_ours = word(0) == MAGIC && version == PROTOCOL && head[6..8] == [0, 0];
        let is_whole = word(12) as usize == request.len() && bytes.len() <= ASK_MAX;
        let max_age = Duration::from_millis(word(8).into());
        (is_ours && is_whole).then(|| Ask { max_age, request: request.to_vec() })
    }
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// This many bytes of an answer follow.
    Here(u64),
    /// The answer has this many bytes. It is in the file whose descriptor is attached, which can be
    /// read for a few seconds.
    File(u64),
    /// There is no answer.
    Refused(Refusal),
}

impl Reply {
    /// Bytes of a head.
    pub const LEN: usize = 16;
    /// As bytes.
    pub fn encode(&self) -> [u8; Reply::LEN] {
        let (kind, why, len) = match self {
            Reply::Here(len) => (1u16, 0u16, *len),
            Reply::File(len) => (2, 0, *len),
            Reply::Refused(why) => (3, *why as u16, 0),
        };
        let mut out = [0; Reply::LEN];
        out[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        out[4..6].copy_from_slice(&kind.to_ne_bytes());
        out[6..8].copy_from_slice(&why.to_ne_bytes());
        out[8..].copy_from_slice(&len.to_ne_bytes());
        out
    }
    /// The head of a reply, or `None` if the bytes are not one.
    pub fn decode(bytes: &[u8; Reply::LEN]) -> Option<Reply> {
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let len = u64::from_ne_bytes(bytes[8..].try_into().expect("8 bytes"));
        if bytes[..4] != MAGIC.to_ne_bytes() {
            return None;
        }
        match half(4) {
            1 => Some(Reply::Here(len)),
            2 => Some(Reply::File(len)),
            3 => Refusal::from_number(half(6)).map(Reply::Refused),
            _ => None,
        }
    }
}

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident = $n:literal $cause:ident $why:literal,)*) => {
        /// Why the service does not answer. The caller reads /proc itself then.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Refusal {
            $($(#[doc = $doc])+ $name = $n,)*
        }
        impl Refusal {
            /// All of them.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name,)*];
            fn from_number(n: u16) -> Option<Refusal> {
                match n { $($n => Some(Refusal::$name),)* _ => None }
            }
            pub(crate) fn cause(self) -> Cause {
                match self { $(Refusal::$name => Cause::$cause,)* }
            }
        }
        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Refusal::$name => $why,)* })
            }
        }
    };
}

refusals! {
    /// The question is not one of this protocol, or has groups, a strategy or a pid that the
    /// service does not answer.
    BadRequest = 1 NotSupported
        "it does not answer such a request: it lists all processes or all threads, with the values that /proc shows to everyone",
    /// The kernel cannot identify the caller.
    UnknownCaller = 2 NotSupported
        "it cannot identify the caller: that needs Linux 6.5, and the process that connected must be the one that asks",
    /// The caller is in another pid namespace.
    PidNamespace = 3 NoPermission "this process is in another pid namespace than the service: read your own /proc",
    /// The caller is in another user namespace.
    UserNamespace = 4 NoPermission "this process is in another user namespace than the service: read your own /proc",
    /// The caller's /proc is not the one that shows everything to everyone.
    Mounts = 5 NoPermission
        "the /proc of this process is not the plain one of the service (hidepid, subset, another mount, a chroot): read your own /proc",
    /// The caller is confined.
    Confined = 6 NoPermission
        "this process is confined by a security module, by seccomp or by no_new_privs: read your own /proc",
    /// There are too many requests.
    Busy = 7 Limit "it is busy with other requests: read your own /proc, or ask later",
    /// The service may not use BPF.
    NoBpf = 8 Other "it cannot use BPF here; its journal says why (journalctl -u taskdiagd)",
    /// The administrator has turned it off.
    TurnedOff = 9 TurnedOff "/etc/taskdiag.conf turns all engines but procfs off",
    /// The caller is in a time namespace with another time since boot.
    TimeNamespace = 10 NoPermission
        "this process is in a time namespace whose time since boot differs from the service's: read your own /proc",
    /// The caller has more threads than the service looks at.
    Threads = 11 NoPermission
        "this process has too many threads to check that none of them is confined: read your own /proc",
    /// The answer would be too long for the service.
    TooLarge = 12 Limit "the answer would be longer than it may make: ask for fewer columns or for processes in place of threads, or read your own /proc",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_replies_survive() {
        let ask = Ask::new(Duration::from_millis(250), vec![7; 40]);
        assert_eq!(Ask::decode(&ask.encode()), Some(ask));
        let refused = Refusal::ALL.iter().map(|r| Reply::Refused(*r));
        for reply in refused.chain([Reply::Here(0), Reply::File(u64::MAX)]) {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn incomplete_messages_are_refused() {
        let good = Ask::new(Duration::ZERO, vec![1; 64]).encode();
        for end in 0..good.len() {
            assert_eq!(Ask::decode(&good[..end]), None, "{end}");
        }
        assert_eq!(Ask::decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(Ask::decode(&Ask::new(Duration::ZERO, vec![0; ASK_MAX]).encode()), None);
        for at in [0, 1, 4, 5, 6, 7, 12, 13] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(Ask::decode(&bad), None, "byte {at}");
        }
        for kind in [0u16, 4, 99] {
            let mut bad = Reply::Here(1).encode();
            bad[4..6].copy_from_slice(&kind.to_ne_bytes());
            assert_eq!(Reply::decode(&bad), None);
        }
    }
}
