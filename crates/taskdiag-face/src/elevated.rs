//! Does the program have more rights than the user who starts it, because it is setuid, setgid, or
//! has file capabilities? Then the program refuses to work, because every user could read
//! environments, open files and kernel memory through it.

use rustix::thread::{CapabilitySet, capabilities, capability_is_in_ambient_set};

/// Why the program must not continue, or `None` if it has only the rights of its caller.
///
/// The kernel reports a start with more rights with AT_SECURE. It also sets AT_SECURE when a
/// security module changes the domain of a service. That is allowed if no rights were gained.
pub fn reason() -> Option<&'static str> {
    // SAFETY: this reads a number that the kernel gave to the process at its start.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return None;
    }
    let (uid, euid) = (rustix::process::getuid(), rustix::process::geteuid());
    let (gid, egid) = (rustix::process::getgid(), rustix::process::getegid());
    if uid != euid {
        return Some("it is setuid, or a setuid program started it");
    }
    if gid != egid {
        return Some("it is setgid, or a setgid program started it");
    }
    if euid.is_root() {
        return None;
    }
    // Capabilities in the ambient set were the caller's.
    let caller_has = |c: CapabilitySet| capability_is_in_ambient_set(c).unwrap_or(false);
    let gained = |has: CapabilitySet| has.iter().any(|c| !caller_has(c));
    let has_more = capabilities(None).map_or(true, |c| gained(c.permitted));
    has_more.then_some("it has file capabilities")
}
