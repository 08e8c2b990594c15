//! What processes use of NVIDIA's graphics processors. Their driver has no counters in /proc, and
//! only NVIDIA's library `libnvidia-ml` knows them.
//!
//! The library may wait for the driver for ever, so it is never in this process. A program names a
//! helper with [`through`], which loads the library and answers over two pipes. It is started when
//! an answer first has a process with such a device open, and ends with this process. If it does
//! not answer in time, the values are not known, and after half a minute it is killed and not
//! started again. A program that names no helper, such as the service, has no values.
//!
//! The helper reads a byte for each question, and writes a line for each device and process: pid,
//! minor number, address on the bus, bytes of memory, and the busy and the whole time of the
//! device, us. `-` stands for a number that is not known. An empty line ends the answer.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taskdiag_wire::device::device;
use taskdiag_wire::{Gpu, build};

use super::parse::bit;

/// The major number of NVIDIA's devices, and the first minor number that is not a processor.
pub(super) const MAJOR: u32 = 195;
pub(super) const CONTROL: u32 = 254;
/// A directory that the driver has.
const DRIVER: &str = "/proc/driver/nvidia";
/// The variable with the path of another library, for tests. Root and programs with more rights
/// than their caller do not look at it.
pub const LIBRARY: &str = "TASKDIAG_NVML";

/// How long the first answer may take, which includes the start of the driver, and how long later
/// ones may take.
const FIRST: Duration = Duration::from_secs(3);
const LATER: Duration = Duration::from_millis(500);
/// The helper is given up if a question stays without an answer for this time.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The largest number of bytes of an answer.
const MOST: usize = 4 << 20;

/// The values of a process on one device, with the mask of those that are known.
type Values = HashMap<u32, Vec<(u32, Gpu)>>;

/// The values that the helper sent for the present answer.
pub(super) type Known = std::sync::OnceLock<Option<Values>>;

/// Starts the helper. It gets the environment that is set here, and no other one.
type Start = fn() -> Command;

#[derive(Debug)]
enum State {
    Unused,
    Running(Box<Helper>),
    /// It could not be started, ended, or did not answer.
    GivenUp,
}

#[derive(Debug)]
struct Helper {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    text: Vec<u8>,
    /// When the open question was asked.
    asked: Option<Instant>,
    has_answered: bool,
}

static THROUGH: Mutex<(Option<Start>, State)> = Mutex::new((None, State::Unused));

/// From now on, values of NVIDIA's graphics processors come from the program that this command
/// starts. The program must be such a helper as this module describes.
pub fn through(start: Start) {
    THROUGH.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(start);
}

/// The library that a variable of the environment names instead of the system's.
pub fn other_library() -> Option<std::ffi::OsString> {
    // SAFETY: these read numbers that the kernel gave to the process.
    let is_trusted = unsafe { libc::geteuid() == 0 || libc::getauxval(libc::AT_SECURE) != 0 };
    if is_trusted { None } else { std::env::var_os(LIBRARY) }
}

/// Is NVIDIA's driver there?
pub(super) fn is_there() -> bool {
    std::path::Path::new(DRIVER).exists() || other_library().is_some()
}

/// The processes that use the devices. `None`: it is not known.
pub(super) fn ask() -> Option<Values> {
    let mut through = THROUGH.lock().unwrap_or_else(PoisonError::into_inner);
    let (start, state) = &mut *through;
    if let State::Unused = state {
        *state = Helper::start((*start)?).map_or(State::GivenUp, |h| State::Running(Box::new(h)));
    }
    let State::Running(helper) = state else { return None };
    match helper.answer() {
        Ok(values) => values,
        Err(GaveUp) => {
            *state = State::GivenUp;
            None
        }
    }
}

/// There will be no answer any more.
struct GaveUp;

impl<E: std::error::Error> From<E> for GaveUp {
    fn from(_: E) -> GaveUp {
        GaveUp
    }
}

impl Helper {
    fn start(start: Start) -> Option<Helper> {
        use std::os::unix::process::CommandExt as _;
        let mut command = start();
        command.env_clear().process_group(0);
        if let Some(library) = other_library() {
            command.env(LIBRARY, library);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.current_dir("/").spawn().ok()?;
        let (to, from) = (child.stdin.take()?, child.stdout.take()?);
        Some(Helper { child, to, from, text: Vec::new(), asked: None, has_answered: false })
    }
    /// `None`: the answer has not come yet.
    fn answer(&mut self) -> Result<Option<Values>, GaveUp> {
        // A late answer belongs to an older question, so the question is asked again.
        let mut is_old = self.asked.is_some();
        let until = Instant::now() + if self.has_answered { LATER } else { FIRST };
        loop {
            if self.asked.is_none() {
                self.to.write_all(b"?")?;
                (self.asked, is_old) = (Some(Instant::now()), false);
            }
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left)?;
            let mut fds = [PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&wait)) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) if self.asked.is_some_and(|at| at.elapsed() >= GIVEN_UP) => {
                    return Err(GaveUp);
                }
                Ok(0) => return Ok(None),
                ready => ready?,
            };
            let mut piece = [0; 4096];
            let n = self.from.read(&mut piece)?;
            self.text.extend_from_slice(&piece[..n]);
            if n == 0 || self.text.len() > MOST {
                return Err(GaveUp);
            }
            if self.text == b"\n" || self.text.ends_with(b"\n\n") {
                let text = std::mem::take(&mut self.text);
                (self.asked, self.has_answered) = (None, true);
                if !is_old {
                    return Ok(Some(values(&text)));
                }
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Not even SIGKILL ends a process that waits in a driver, so it is not waited for.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

/// The values in an answer. A line that is not as it should be is left out.
fn values(text: &[u8]) -> Values {
    let mut all = Values::new();
    for line in text.split(|b| *b == b'\n').filter_map(|l| std::str::from_utf8(l).ok()) {
        let words: Vec<&str> = line.split(' ').collect();
        let [pid, minor, pdev, memory, busy, whole] = words[..] else { continue };
        let (Ok(pid), Ok(minor)) = (pid.parse::<u32>(), minor.parse::<u32>()) else { continue };
        let number = |word: &str| word.parse::<u64>().ok();
        let head = build!(Gpu {
            // The driver has no number for a client, so a process is one.
            client: pid.into(),
            dev: device(MAJOR, minor),
            driver: name(b"nvidia"),
            pdev: name(pdev.as_bytes()),
            ..Gpu::default()
        });
        let known = bits(&["client", "dev", "driver", "pdev"]);
        let entries = all.entry(pid).or_default();
        if let Some(resident_bytes) = number(memory) {
            let valid = known | bits(&["name", "resident_bytes"]);
            entries.push((valid, build!(Gpu { name: name(b"memory"), resident_bytes, ..head })));
        }
        if let (Some(cycles), Some(total_cycles)) = (number(busy), number(whole)) {
            let valid = known | bits(&["name", "cycles", "total_cycles"]);
            entries.push((valid, build!(Gpu { name: name(b"sm"), cycles, total_cycles, ..head })));
        }
    }
    all
}

fn bits(members: &[&str]) -> u32 {
    members.iter().fold(0, |all, member| all | bit(Gpu::MEMBERS, member))
}

/// The entry of a device that is open, of which nothing more is known.
pub(super) fn unknown(fd: u32, dev: u32) -> (u32, Gpu) {
    let driver = name(b"nvidia");
    (bits(&["fd", "dev", "driver"]), build!(Gpu { fd, dev, driver, ..Gpu::default() }))
}

/// A name with NUL bytes after it, which is cut if it is too long.
fn name<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    let len = text.len().min(N - 1);
    all[..len].copy_from_slice(&text[..len]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(script: &'static str) -> Helper {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is sh");
        let (to, from) = (child.stdin.take().expect("set"), child.stdout.take().expect("set"));
        Helper { child, to, from, text: Vec::new(), asked: None, has_answered: false }
    }

    #[test]
    fn lines_of_the_helper_are_values() {
        let all = values(
            b"7 0 0000:01:00.0 1048576 5 50\n7 1 0000:02:00.0 - 1 2\n8 0 x\n9 0 p - - -\n\n",
        );
        let of = |pid: u32| -> Vec<(u32, u64, u64, u64)> {
            let entries = all.get(&pid).into_iter().flatten();
            entries.map(|(_, g)| (g.dev, g.resident_bytes, g.cycles, g.total_cycles)).collect()
        };
        let (a, b) = (device(MAJOR, 0), device(MAJOR, 1));
        assert_eq!(of(7), [(a, 1 << 20, 0, 0), (a, 0, 5, 50), (b, 0, 1, 2)]);
        assert_eq!((of(8), of(9)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_helper_that_does_not_answer_is_not_waited_for() {
        let mut late = helper(
            "head -c1 >/dev/null; sleep 4; printf '1 0 p 1 - -\\n\\n'; head -c1 >/dev/null; printf '\\n'; cat",
        );
        let begin = Instant::now();
        assert!(late.answer().is_ok_and(|v| v.is_none()));
        assert!(begin.elapsed() >= FIRST && begin.elapsed() < FIRST * 10);
        std::thread::sleep(Duration::from_secs(2));
        // A late answer is not taken for the answer to the next question.
        let empty = (0..100).find_map(|_| late.answer().ok().expect("it runs"));
        assert_eq!(empty.map(|v| v.len()), Some(0));
        // A child that ends is abandoned, and so is a child that writes without end.
        assert!(helper("exit").answer().is_err());
        assert!(helper("yes").answer().is_err());
    }
}
