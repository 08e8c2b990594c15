//! Sends signals, and sets nice values and CPUs. A pidfd and the start time make sure that it is the process on the screen.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use taskdiag::{Base, Choice, EngineId, Groups, Request};

/// The task that a key was pressed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its process.
    pub pid: u32,
    /// The thread, if rows are threads.
    pub tid: Option<u32>,
    /// The start time of the process or thread, ns since boot.
    pub start_ns: u64,
    /// Its command name, escaped.
    pub comm: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.tid {
            Some(tid) if tid != self.pid => {
                write!(f, "thread {tid} of process {} ({})", self.pid, self.comm)
            }
            _ => write!(f, "process {} ({})", self.pid, self.comm),
        }
    }
}

/// What can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this signal to the process.
    Signal(i32),
    /// Give the thread, or all threads of the process, this nice value.
    Nice(i32),
    /// Let the thread, or all threads of the process, run on these CPUs only.
    Cpus(Vec<usize>),
}

/// The signals that are offered.
pub const SIGNALS: &[(i32, &str)] = &[
    (libc::SIGTERM, "end, after it has put its things in order"),
    (libc::SIGKILL, "end at once"),
    (libc::SIGHUP, "its terminal is gone; many daemons read their settings again"),
    (libc::SIGINT, "as Ctrl-C"),
    (libc::SIGQUIT, "as Ctrl-\\: end with a core dump"),
    (libc::SIGSTOP, "stop until it is continued"),
    (libc::SIGCONT, "go on"),
    (libc::SIGUSR1, "what the program makes of it"),
    (libc::SIGUSR2, "what the program makes of it"),
    (libc::SIGABRT, "end with a core dump"),
];

/// Its name, such as SIGTERM.
pub fn signal_name(number: i32) -> &'static str {
    signal_hook::low_level::signal_name(number).unwrap_or("a signal")
}

/// CPUs from text such as `0,2-3`.
pub fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is no list of CPUs such as 0,2-3");
    let limit = libc::CPU_SETSIZE as usize;
    let mut out = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        let number = |t: &str| t.parse::<usize>().ok().filter(|n| *n < limit).ok_or_else(wrong);
        let (from, to) = (number(from)?, number(to)?);
        out.extend(from..=to);
    }
    if out.is_empty() { Err(wrong()) } else { Ok(out) }
}

/// Do it. Returns what was done, or why not.
pub fn act(target: &Target, action: &Action) -> Result<String, String> {
    let gone = || format!("{target} has ended; nothing was done");
    let pidfd = open(target)?.ok_or_else(gone)?;
    match action {
        Action::Signal(number) => {
            let signal = Signal::from_named_raw(*number).ok_or("there is no such signal")?;
            pidfd_send_signal(&pidfd, signal).map_err(|e| match e {
                Errno::SRCH => gone(),
                e => refused(e),
            })?;
            Ok(format!("{} was sent to {target}", signal_name(*number)))
        }
        Action::Nice(value) => {
            each_thread(target, &pidfd, |tid| nice(tid, *value), not_nice)?;
            Ok(format!("{target} has nice value {value}"))
        }
        Action::Cpus(list) => {
            each_thread(target, &pidfd, |tid| run_on(tid, list), refused)?;
            Ok(format!("{target} runs on the CPUs that were named"))
        }
    }
}

fn refused(e: Errno) -> String {
    match e {
        Errno::PERM | Errno::ACCESS => {
            String::from("that is not permitted: only its owner or root may")
        }
        e => format!("the kernel refused it: {}", std::io::Error::from(e)),
    }
}

/// Why a nice value was not set.
fn not_nice(e: Errno) -> String {
    match e {
        Errno::ACCESS => String::from(
            "that is not permitted: only root may lower a nice value, and others as far as 'ulimit -e' says",
        ),
        e => refused(e),
    }
}

/// A pidfd of the target, `None` if it has ended. First the pidfd is opened, then the start time is compared, then the
/// pidfd is asked whether the process lives. So the pid cannot have passed to another process in between.
fn open(target: &Target) -> Result<Option<OwnedFd>, String> {
    let pid = Pid::from_raw(target.pid as i32).ok_or("there is no such process")?;
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::SRCH) => return Ok(None),
        Err(e) => return Err(refused(e)),
    };
    let is_it = started(target).is_some_and(|ns| ns.abs_diff(target.start_ns) <= TICK_NS);
    Ok((is_it && lives(&fd)).then_some(fd))
}

/// The longest tick: /proc rounds start times down to one.
const TICK_NS: u64 = 10_000_000;

/// The start time of the task that has these ids now, ns since boot.
fn started(target: &Target) -> Option<u64> {
    let (request, id) = match target.tid {
        Some(tid) => (Request::threads(target.pid, Groups::BASE), tid),
        None => (Request::one(target.pid, Groups::BASE), target.pid),
    };
    let answer = taskdiag::query_with(&request, Choice::Only(EngineId::Procfs)).ok()?;
    answer.task(id)?.record::<Base>()?.start_time_ns()
}

/// Does the process still live? A zombie does not.
fn lives(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
}

/// Do something to each thread of the target. These calls take no pidfd. But if the process lives after them, its ids
/// cannot have been those of others before.
fn each_thread(
    target: &Target,
    pidfd: &OwnedFd,
    f: impl Fn(i32) -> Result<(), Errno>,
    why: impl Fn(Errno) -> String,
) -> Result<(), String> {
    let done = match target.tid {
        Some(tid) => of_all(&[tid as i32], f, why),
        None => threads(target.pid).and_then(|tids| of_all(&tids, f, why)),
    };
    match lives(pidfd) {
        true => done,
        false => Err(format!("{target} ended meanwhile")),
    }
}

/// Do something to these threads.
fn of_all(
    tids: &[i32],
    f: impl Fn(i32) -> Result<(), Errno>,
    why: impl Fn(Errno) -> String,
) -> Result<(), String> {
    let mut done = 0;
    for tid in tids {
        match f(*tid) {
            Ok(()) => done += 1,
            // A thread that ended meanwhile.
            Err(Errno::SRCH) => {}
            Err(e) if done == 0 => return Err(why(e)),
            Err(e) => {
                return Err(format!("{}; it was done to {done} of {} threads", why(e), tids.len()));
            }
        }
    }
    Ok(())
}

/// The threads of a process. There is at least one.
fn threads(pid: u32) -> Result<Vec<i32>, String> {
    let path = format!("/proc/{pid}/task");
    let failed =
        |why: String| format!("its threads cannot be listed, so nothing was done: {path}: {why}");
    let mut tids = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(|e| failed(e.to_string()))? {
        let name = entry.map_err(|e| failed(e.to_string()))?.file_name();
        tids.extend(name.to_str().and_then(|n| n.parse::<i32>().ok()));
    }
    if tids.is_empty() { Err(failed(String::from("it is empty"))) } else { Ok(tids) }
}

fn nice(tid: i32, value: i32) -> Result<(), Errno> {
    rustix::process::setpriority_process(Pid::from_raw(tid), value)
}

fn run_on(tid: i32, cpus: &[usize]) -> Result<(), Errno> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(Pid::from_raw(tid), &set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Sleeper(Child);
    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> (Sleeper, Target) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut target =
            Target { pid: child.id(), tid: None, start_ns: 0, comm: String::from("sleep") };
        target.start_ns = started(&target).expect("it runs");
        (Sleeper(child), target)
    }

    #[test]
    fn the_very_process_is_signalled() {
        use std::os::unix::process::ExitStatusExt as _;
        let (mut sleeper, target) = sleeper();
        let other = Target { start_ns: target.start_ns + 2 * TICK_NS, ..target.clone() };
        let why = act(&other, &Action::Signal(libc::SIGKILL)).expect_err("it is another process");
        assert!(why.contains("nothing was done"), "{why}");
        assert!(sleeper.0.try_wait().unwrap().is_none());
        act(&target, &Action::Signal(libc::SIGTERM)).expect("it is ours");
        assert_eq!(sleeper.0.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(act(&target, &Action::Signal(libc::SIGTERM)).is_err());
    }

    #[test]
    fn nice_values_and_cpus() {
        let (_sleeper, target) = sleeper();
        act(&target, &Action::Nice(7)).expect("it becomes nicer");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid)).unwrap();
        assert_eq!(stat.split(' ').nth(18), Some("7"), "{stat}");
        let allowed = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid)).unwrap();
            let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list:")).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        let before = allowed();
        let one = before.split(['-', ',']).next().unwrap().to_owned();
        act(&target, &Action::Cpus(cpus(&one).unwrap())).expect("a CPU that it may use");
        assert_eq!(allowed(), one);
    }

    #[test]
    fn why_nothing_was_done() {
        assert!(not_nice(Errno::ACCESS).contains("only root may lower a nice value"));
        assert!(not_nice(Errno::PERM).contains("only its owner or root may"));
        // There is no process 0.
        let target = Target { pid: 0, tid: None, start_ns: 0, comm: String::from("none") };
        let me = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("it lives");
        let why = each_thread(&target, &me, |_| Ok(()), refused).expect_err("there are no threads");
        assert!(why.contains("/proc/0/task") && why.contains("nothing was done"), "{why}");
        let second = |tid| if tid == 1 { Ok(()) } else { Err(Errno::ACCESS) };
        let why = of_all(&[1, 2, 3], second, not_nice).expect_err("only one is allowed");
        assert!(why.contains("done to 1 of 3 threads"), "{why}");
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for wrong in ["", "a", "3-1", "0,", "99999"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }
}
