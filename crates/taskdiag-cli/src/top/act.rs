//! Sends signals, sets nice values and CPUs, and words the results. The library makes sure that an
//! action reaches the process on the screen.

use std::path::Path;

use taskdiag::act::{Held, NotDone, has_own_numbers};

/// The task to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its process.
    pub pid: u32,
    /// The thread, if rows are threads.
    pub tid: Option<u32>,
    /// The start time of the process or thread, ns since boot.
    pub start_ns: u64,
    /// The command name of the target, escaped.
    pub comm: String,
    /// Are these the ids in /proc? BPF programs report the ids in our own pid namespace.
    pub has_number_of_proc: bool,
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

/// The possible actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this signal to the process.
    Signal(i32),
    /// Give the thread, or all threads of the process, this nice value.
    Nice(i32),
    /// Restrict the thread, or all threads of the process, to these CPUs.
    Cpus(Vec<usize>),
}

/// The signals that are offered.
pub const SIGNALS: &[(i32, &str)] = &[
    (libc::SIGTERM, "ask it to end; it may clean up first"),
    (libc::SIGKILL, "end at once"),
    (libc::SIGHUP, "its terminal is gone; many daemons reload their settings"),
    (libc::SIGINT, "as Ctrl-C"),
    (libc::SIGQUIT, "as Ctrl-\\: end with a core dump"),
    (libc::SIGSTOP, "stop until it is continued"),
    (libc::SIGCONT, "go on"),
    (libc::SIGUSR1, "the program decides"),
    (libc::SIGUSR2, "the program decides"),
    (libc::SIGABRT, "end with a core dump"),
];

/// The name of a signal, such as SIGTERM.
pub fn signal_name(number: i32) -> &'static str {
    signal_hook::low_level::signal_name(number).unwrap_or("a signal")
}

/// CPUs from text such as `0,2-3`.
pub fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is not a list of CPUs such as 0,2-3");
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

/// Acts, and returns a message about the result.
pub fn act(target: &Target, action: &Action) -> Result<String, String> {
    // The rows have pids of our own pid namespace. In a /proc of another namespace, these belong to
    // other processes.
    if !target.has_number_of_proc && !has_own_numbers(Path::new("/proc")) {
        return Err(String::from(
            "Nothing was done: the rows are not from /proc, which is of another pid namespace, so that no process can be \
             told for sure. Start top with --engine procfs.",
        ));
    }
    let why = |e| why(target, action, &e);
    let held = match target.tid {
        Some(tid) => Held::open_of_thread(target.pid, tid, target.start_ns),
        None => Held::open_started(target.pid, target.start_ns),
    };
    let held = held.map_err(why)?;
    let thread = target.tid.map(|tid| (tid, target.start_ns));
    match action {
        Action::Signal(number) => {
            held.send_signal(*number).map_err(why)?;
            Ok(format!("{} was sent to {target}", signal_name(*number)))
        }
        Action::Nice(value) => {
            held.set_nice(thread, *value).map_err(why)?;
            Ok(format!("{target} has nice value {value}"))
        }
        Action::Cpus(list) => {
            held.set_cpus(thread, list).map_err(why)?;
            Ok(format!("{target} runs on the CPUs that were named"))
        }
    }
}

/// The message for an action that failed.
fn why(target: &Target, action: &Action, e: &NotDone) -> String {
    match e {
        NotDone::Ended => format!("{target} has ended; nothing was done"),
        NotDone::Refused(e) => refused(action, e),
        NotDone::Partly { done, of, why, .. } => {
            format!("{}; it was done to {done} of {of} threads", refused(action, why))
        }
        e => format!("Nothing was done: {e}"),
    }
}

fn refused(action: &Action, e: &std::io::Error) -> String {
    match (action, e.raw_os_error()) {
        (Action::Nice(_), Some(libc::EACCES)) => String::from(
            "that is not permitted: only root may lower a nice value, and others as far as 'ulimit -e' says",
        ),
        (_, Some(libc::EPERM | libc::EACCES)) => {
            String::from("that is not permitted: only its owner or root may")
        }
        _ => format!("the kernel refused it: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use taskdiag::{Base, Choice, EngineId, Groups, Request};

    struct Sleeper(Child);
    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> (Sleeper, Target) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let request = Request::one(child.id(), Groups::BASE);
        let answer = taskdiag::query_with(&request, Choice::Only(EngineId::Procfs)).unwrap();
        let task = answer.task(child.id()).expect("it runs");
        let start_ns = task.record::<Base>().unwrap().start_time_ns().unwrap();
        let target = Target {
            pid: child.id(),
            tid: None,
            start_ns,
            comm: String::from("sleep"),
            has_number_of_proc: true,
        };
        (Sleeper(child), target)
    }

    #[test]
    fn the_very_process_is_signalled() {
        use std::os::unix::process::ExitStatusExt as _;
        let (mut sleeper, target) = sleeper();
        let later = target.start_ns + 20_000_000;
        let other = Target { start_ns: later, ..target.clone() };
        let why = act(&other, &Action::Signal(libc::SIGKILL)).expect_err("it is another process");
        assert!(why.contains("nothing was done"), "{why}");
        assert!(sleeper.0.try_wait().unwrap().is_none());
        act(&target, &Action::Signal(libc::SIGTERM)).expect("it is ours");
        assert_eq!(sleeper.0.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(act(&target, &Action::Signal(libc::SIGTERM)).is_err());
    }

    #[test]
    fn nice_values_and_cpus_of_a_process_are_set() {
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
    fn a_refused_action_is_explained() {
        let (_sleeper, target) = sleeper();
        let say = |action: &Action, e: NotDone| super::why(&target, action, &e);
        let system = |number| NotDone::Refused(std::io::Error::from_raw_os_error(number));
        let nice = Action::Nice(1);
        assert!(say(&nice, system(libc::EACCES)).contains("only root may lower a nice value"));
        assert!(say(&nice, system(libc::EPERM)).contains("only its owner or root may"));
        let cpus = Action::Cpus(vec![0]);
        assert!(say(&cpus, system(libc::EACCES)).contains("only its owner or root may"));
        assert!(say(&nice, NotDone::ForeignNumbers).contains("another pid namespace"));
        assert!(say(&Action::Signal(1), NotDone::Ended).contains("nothing was done"));
    }

    #[test]
    fn lists_of_cpus_are_read_and_wrong_ones_refused() {
        assert_eq!(cpus("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for wrong in ["", "a", "3-1", "0,", "99999"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }
}
