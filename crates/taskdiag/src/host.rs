//! The machine that an answer comes from.

use std::fmt;

use taskdiag_wire::{BootId, Info};

use crate::engine::info::name_host;
use crate::field::escape;
use crate::snapshot::Snapshot;

/// The machine that an answer comes from, as the answer says. Answers that older versions have
/// saved do not name it.
///
/// ```
/// # fn main() -> Result<(), taskdiag::Error> {
/// use taskdiag::{Groups, Request};
///
/// let here = taskdiag::query(&Request::one(std::process::id(), Groups::BASE))?;
/// println!("{}", here.host()); // web1 (Linux 6.12.9 x86_64)
/// assert_eq!(here.host(), taskdiag::Host::here());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// The name of the host in the UTS namespace of the program that asked. It may be of any bytes.
    pub name: Option<Vec<u8>>,
    /// The release of its kernel.
    pub kernel: Option<Vec<u8>>,
    /// The architecture of the host, as `uname -m` prints it.
    pub arch: Option<Vec<u8>>,
    /// The boot, which the kernel gives another id each time.
    pub boot_id: Option<BootId>,
}

impl Host {
    /// The host that the head of an answer names.
    pub fn of(info: &Info) -> Host {
        Host {
            name: info.nodename.get().map(<[u8]>::to_vec),
            kernel: info.release.get().map(<[u8]>::to_vec),
            arch: info.machine.get().map(<[u8]>::to_vec),
            boot_id: info.boot_id.get().map(BootId::new),
        }
    }
    /// This machine, as this program sees it now.
    pub fn here() -> Host {
        let mut info = Info::default();
        name_host(&mut info);
        Host::of(&info)
    }
    /// Is nothing of it known?
    pub fn is_unknown(&self) -> bool {
        *self == Host::default()
    }
    /// Whether both are of the same boot of one machine. `None`: one of the hosts has no boot id.
    pub fn is_same_boot(&self, other: &Host) -> Option<bool> {
        Some(self.boot_id? == other.boot_id?)
    }
}

/// Text for people, such as `web1 (Linux 6.12.9 x86_64)`. Unprintable characters are escaped.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &[u8]| {
            let mut out = Vec::new();
            escape(&mut out, text);
            String::from_utf8_lossy(&out).into_owned()
        };
        let name = self.name.as_deref().map_or_else(|| String::from("an unknown host"), shown);
        let kernel = self.kernel.as_deref().map(|k| format!("Linux {}", shown(k)));
        let system: Vec<String> =
            kernel.into_iter().chain(self.arch.as_deref().map(shown)).collect();
        match system.is_empty() {
            true => f.write_str(&name),
            false => write!(f, "{name} ({})", system.join(" ")),
        }
    }
}

impl Snapshot {
    /// The machine that the answer comes from.
    pub fn host(&self) -> Host {
        Host::of(self.stream().info())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Fixed, build};

    #[test]
    fn a_host_is_shown_as_far_as_it_is_known() {
        let all = build!(Info {
            nodename: Fixed::new(b"web\x1b1"),
            release: Fixed::new(b"6.12.9"),
            machine: Fixed::new(b"x86_64"),
        });
        assert_eq!(Host::of(&all).to_string(), "web\\x1b1 (Linux 6.12.9 x86_64)");
        let some = build!(Info { machine: Fixed::new(b"arm64") });
        assert_eq!(Host::of(&some).to_string(), "an unknown host (arm64)");
        assert!(Host::of(&Info::default()).is_unknown());
        assert_eq!(Host::here().is_same_boot(&Host::here()), Some(true));
        assert_eq!(Host::here().is_same_boot(&Host::of(&all)), None);
    }
}
