//! The largest process id of the machine, raised for the time of a test that needs more processes
//! than the default allows.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

const FILE: &str = "/proc/sys/kernel/pid_max";

/// Dropping the value puts the old limit back. So does a helper process, if this one is killed.
#[derive(Debug)]
pub struct PidMax(Child);

impl PidMax {
    /// Raises pid_max for this many additional processes. `None`: it was high enough before.
    ///
    /// # Errors
    /// Why this machine has no room for them.
    pub fn for_processes(count: usize) -> Result<Option<PidMax>, String> {
        // Leave room for ids of threads, and for ids that may not be used again yet.
        let want = count * 5 / 4 + 20_000;
        let text = std::fs::read_to_string(FILE).map_err(|e| format!("{FILE}: {e}"))?;
        let old = text.trim().to_owned();
        let now: usize = old.parse().map_err(|e| format!("{FILE}: {old}: {e}"))?;
        if now >= want {
            return Ok(None);
        }
        // The script waits until its input is closed, which also happens if this process is killed.
        let script = "trap '' INT TERM HUP; cat >/dev/null; echo \"$1\" >/proc/sys/kernel/pid_max";
        let mut helper = Command::new("sh");
        helper.args(["-c", script, "sh", &old]);
        helper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec only a system call.
        unsafe {
            helper.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            })
        };
        let helper = PidMax(helper.spawn().map_err(|e| format!("sh: {e}"))?);
        std::fs::write(FILE, want.to_string()).map_err(|e| format!("{FILE}: {e}"))?;
        Ok(Some(helper))
    }
}

impl Drop for PidMax {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
