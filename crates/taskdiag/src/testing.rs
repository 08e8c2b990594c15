//! What unit tests of several modules need.

use std::process::{Child, Command};

/// A child process, which ends with the test.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Ended {
    /// A process that sleeps.
    pub fn sleep() -> Ended {
        Ended(Command::new("sleep").arg("60").spawn().expect("sleep is there"))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An attribute of a netlink message.
pub fn attr(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut a = ((data.len() + 4) as u16).to_ne_bytes().to_vec();
    a.extend(kind.to_ne_bytes());
    a.extend(data);
    a.resize(a.len().next_multiple_of(4), 0);
    a
}
