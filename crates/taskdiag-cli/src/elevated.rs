//! Is the program started with more rights than who starts it: setuid, setgid, or with file capabilities?
//! What it then reads (environments, open files, kernel memory) would be everyone's, so it does nothing.

use rustix::thread::{CapabilitySet, capabilities, capability_is_in_ambient_set};

/// Why it must not go on; `None`: it has the rights of its caller.
///
/// The kernel says so with AT_SECURE, but also where a security module changes the domain of a service, which
/// is no such start: then nothing was gained.
pub fn reason() -> Option<&'static str> {
    // SAFETY: reads a number that the kernel gave at the start.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return None;
    }
    let (uid, euid) = (rustix::process::getuid(), rustix::process::geteuid());
    let (gid, egid) = (rustix::process::getgid(), rustix::process::getegid());
    if uid != euid {
        return Some("it is setuid, or started by what is");
    }
    if gid != egid {
        return Some("it is setgid, or started by what is");
    }
    if euid.is_root() {
        return None;
    }
    // What is in the ambient set was the caller's.
    let caller_has = |c: CapabilitySet| capability_is_in_ambient_set(c).unwrap_or(false);
    let gained = |has: CapabilitySet| has.iter().any(|c| !caller_has(c));
    let has_more = capabilities(None).map_or(true, |c| gained(c.permitted));
    has_more.then_some("it has file capabilities")
}
