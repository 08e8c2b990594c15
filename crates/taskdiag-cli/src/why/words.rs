//! Sentences about waits.

use taskdiag::WaitKind;
use taskdiag::field;
use taskdiag::why::{Frame, How, NoHolder, StackEnd, Wait, Waits};

/// A name that another user chose, with control characters escaped.
pub fn shown(name: &[u8]) -> String {
    let mut out = Vec::new();
    field::escape(&mut out, name);
    String::from_utf8_lossy(&out).into_owned()
}

/// `thread 4711 (worker-3)`, or `process 4711 (sh)` if it has no other threads.
pub fn who(waits: &Waits, wait: &Wait, is_process: bool) -> String {
    let is_process = is_process || waits.threads_of(wait.tgid) == 1;
    let (word, id) = if is_process { ("process", wait.tgid) } else { ("thread", wait.tid) };
    let word = if wait.is_kthread { "kernel thread" } else { word };
    format!("{word} {id} ({})", shown(&wait.comm))
}

/// The advice for a lack of rights.
pub fn way_to_see() -> &'static str {
    match rustix::process::geteuid().is_root() {
        false => "run as root",
        true => "a sandbox, a container or a security module hides it even from root",
    }
}

/// A function of a program, in the form that the kernel has for its own: `read+0x1d/0x9f
/// [libc.so.6]`. Without a name, the file and the address in it.
pub fn function(frame: &Frame) -> String {
    let file = frame.file.strip_suffix(b" (deleted)").unwrap_or(&frame.file);
    let file = shown(file.rsplit(|b| *b == b'/').next().unwrap_or(file));
    let file = file.trim_matches(['[', ']']);
    match &frame.function {
        Some(f) => format!("{}+{:#x}/{:#x} [{file}]", shown(&f.name), f.offset_bytes, f.size_bytes),
        None => format!("{file}+{:#x}", frame.address),
    }
}

/// Why the stack of a program ends, unless it is complete or there is none. `has_frames`: a part of
/// it is known.
pub fn stack_end(end: StackEnd, has_frames: bool) -> Option<String> {
    let what = if has_frames { "the rest of its stack" } else { "its stack in the program" };
    let why = match end {
        StackEnd::Complete | StackEnd::NoProgram => return None,
        StackEnd::Runs => return Some(String::from("it runs, so its stack changes")),
        StackEnd::Changed => return Some(String::from("it moved on, so its stack has changed")),
        StackEnd::NoRight => format!("no right to look: {}", way_to_see()),
        StackEnd::Blocked => String::from("its memory or a file does not come"),
        StackEnd::NotLookedAt => String::from("too much at once: name fewer processes"),
        StackEnd::OtherNumbers => String::from("/proc is of another pid namespace"),
        StackEnd::TooDeep => String::from("it is too deep"),
        StackEnd::OtherMachine => String::from("this is no 64-bit program of this machine"),
        StackEnd::NoFile => String::from("this code is in no file, as that of a JIT compiler"),
        StackEnd::OtherFile => String::from("the file with this code cannot be opened any more"),
        StackEnd::BadFile => String::from("the tables of the file with this code cannot be used"),
        StackEnd::NoTable => String::from("the file has no table for unwinding for this code"),
        StackEnd::NoRegister => {
            String::from("it depends on a register that only BPF can read, if at all")
        }
        StackEnd::NoMemory => String::from("its memory cannot be read"),
        StackEnd::NoCode => String::from("what follows is no code"),
        StackEnd::NotBuilt => String::from("this build lacks the feature user-stack"),
        _ => end.name().replace('_', " "),
    };
    Some(format!("{what} is not known: {why}"))
}

/// `92 s`. From two minutes on, without the smaller unit.
pub fn time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 if ns < 1_000_000 => String::from("less than 1 ms"),
        0 => format!("{} ms", ns / 1_000_000),
        1..10 => format!("{:.1} s", ns as f64 / 1e9),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

/// A number of things.
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Added if not all processes can be seen.
const UNSEEN: &str = " (and maybe one that you may not see)";

/// The object of a wait whose holder is known.
fn held(wait: &Wait, how: How, is_sure: bool, holder: &str) -> String {
    let file = wait.file.as_deref().map_or(String::from("a file"), shown);
    match how {
        How::Kernel => format!("{} that {holder} holds", object(wait)),
        How::FutexWord => format!("a lock with priority inheritance that {holder} holds"),
        How::Mutex => format!("a mutex that {holder} holds"),
        How::RwlockWriter => format!("a read-write lock that {holder} holds to write"),
        How::Thread => format!("the end of {holder}"),
        How::PosixLock | How::OpenFileLock | How::Flock => {
            format!("a lock on {file} that {holder} holds")
        }
        How::Writer if is_sure => format!("data in {}, which only {holder} can write", pipe(wait)),
        How::Reader if is_sure => format!("room in {}, which only {holder} reads", pipe(wait)),
        How::Writer => format!("data in {}, which {holder} can write{UNSEEN}", pipe(wait)),
        How::Reader => format!("room in {}, which {holder} reads{UNSEEN}", pipe(wait)),
        How::Sender | How::Receiver => format!("{}, whose other end {holder} has", object(wait)),
        How::Child => format!("its child, {holder}"),
        How::Tracer => format!("{holder}, which traces it"),
        How::Parent => format!("{holder}, its parent, to reap it"),
        _ => format!("{holder} ({})", how.name()),
    }
}

fn of_file(wait: &Wait) -> String {
    wait.file.as_deref().map_or(String::new(), |file| format!(", for {}", shown(file)))
}

/// The server that a thread waits for, by its mount.
pub fn server(wait: &Wait) -> String {
    let family = if wait.kind == Some(WaitKind::Fuse) { "FUSE" } else { "network" };
    match &wait.mount {
        Some(m) => {
            let (kind, source, point) = (shown(&m.kind), shown(&m.source), shown(&m.point));
            format!("the server of {point} ({kind} {source})")
        }
        None => format!("the server of a {family} file system"),
    }
}

fn pipe(wait: &Wait) -> String {
    match wait.file.as_deref() {
        Some(name) if !name.starts_with(b"pipe:") => shown(name),
        _ => String::from("a pipe"),
    }
}

/// A socket with its addresses or its path, as far as these are known.
fn socket(wait: &Wait) -> String {
    match wait.file.as_deref() {
        Some(name) if name.starts_with(b"socket:") => String::from("a socket"),
        Some(name) if name.contains(&b' ') => format!("the socket {}", shown(name)),
        // Without an address, the name is that of the family.
        Some(name) => format!("a {} socket", shown(name)),
        None => String::from("a socket"),
    }
}

/// The object of a wait.
pub fn object(wait: &Wait) -> String {
    use WaitKind::*;
    let Some(kind) = wait.kind else { return String::from("something unknown") };
    let text = match kind {
        Other if wait.function.is_empty() => "something in the kernel",
        Other => return format!("{} in the kernel", shown(&wait.function)),
        Runnable | OnCpu | Cpu => "a CPU",
        Ended => "its parent to reap it",
        Idle => "work",
        Mutex => "a mutex of the kernel",
        RwsemRead => "a read-write semaphore of the kernel, to read",
        RwsemWrite => "a read-write semaphore of the kernel, to write",
        Semaphore => "a semaphore of the kernel",
        RtMutex => "an rt_mutex of the kernel",
        Futex => "a futex",
        FutexLock => "a lock",
        FutexCondition => "a condition",
        FutexPi => "a lock with priority inheritance",
        PosixLock | OfdLock | Flock => "a lock on a file",
        Lease => "the end of a lease on a file",
        PipeRead => return format!("data in {}", pipe(wait)),
        PipeWrite => return format!("room in {}", pipe(wait)),
        FifoOpen => "the other end of a named pipe",
        TtyRead => "input from a terminal",
        TtyWrite => "a terminal to take output",
        Accept => return format!("a connection to {}", socket(wait)),
        Connect => return format!("the answer to the connection of {}", socket(wait)),
        Receive => return format!("data from {}", socket(wait)),
        Send => return format!("room in {}", socket(wait)),
        Epoll | Poll | Select => "one of several files",
        Eventfd => "an eventfd",
        Inotify => "an event of a file",
        Signalfd => "a signal",
        Timerfd => "a timer",
        Pidfd => "the end of a process",
        PageIo => "a page of a file from the disk",
        BlockIo => "the disk",
        Writeback => "dirty pages to be written",
        Journal => "the journal of a file system",
        Fuse | Netfs => return format!("{}{}", server(wait), of_file(wait)),
        PageFault => "a page of its memory",
        Userfaultfd => "the handler of a userfaultfd",
        Child => "a child",
        Vfork => "a child to run a program",
        Stopped => "a signal to continue",
        Traced => "its tracer",
        Seccomp => "an answer of its seccomp listener",
        Frozen => "its cgroup to be thawed",
        Throttled => "CPU time of its cgroup",
        MemoryHigh => "memory, as its cgroup is above memory.high",
        Reclaim => "memory to be freed",
        Sleep => "a time",
        Signal => "a signal",
        IoUring => "a completion of io_uring",
        SysvSem => "a System V semaphore",
        SysvMsg => "a System V message queue",
        Mqueue => "a POSIX message queue",
        Read => "data from a file",
        Write => "room in a file",
        Coredump => "the core dump of its process",
        _ => return format!("{} in the kernel", kind.name()),
    };
    let file = wait.file.as_deref().filter(|_| matches!(kind, PosixLock | OfdLock | Flock));
    file.map_or_else(|| text.to_owned(), |file| format!("a lock on {}", shown(file)))
}

/// Why no holder is named; empty if that needs no words.
fn why_none(wait: &Wait) -> String {
    use WaitKind::*;
    let is_about_locks = matches!(
        wait.kind,
        Some(
            Futex
                | FutexLock
                | FutexCondition
                | FutexPi
                | Mutex
                | RwsemRead
                | RwsemWrite
                | Semaphore
                | RtMutex
                | PosixLock
                | OfdLock
                | Flock
                | PipeRead
                | PipeWrite
                | SysvSem
                | Child
                | Vfork
        )
    );
    match wait.holder {
        Ok(_) | Err(NoHolder::Nobody) => String::new(),
        Err(NoHolder::NotKept) if !is_about_locks => String::new(),
        Err(NoHolder::NotKept) if matches!(wait.kind, Some(PipeRead | PipeWrite)) => {
            String::from(" (no other process has its other end)")
        }
        Err(NoHolder::NotKept) => String::from(" (no owner is kept)"),
        Err(NoHolder::Several(n))
            if matches!(wait.kind, Some(PipeRead | PipeWrite | Receive | Send)) =>
        {
            format!(" ({n} processes have its other end)")
        }
        Err(NoHolder::Several(n)) => format!(" ({n} processes have it)"),
        Err(NoHolder::NoRight) => format!(" (?, no right to look: {})", way_to_see()),
        Err(NoHolder::Blocked) => String::from(" (?, its memory or files do not come)"),
        Err(NoHolder::Changed) => String::from(" (it changed meanwhile)"),
        Err(NoHolder::NotLookedAt) => String::from(" (not looked at: too much at once)"),
        Err(NoHolder::OtherNumbers) => String::from(" (its owner is in another pid namespace)"),
        Err(NoHolder::NotKnown) if !is_about_locks => String::new(),
        Err(why) => format!(" ({})", why.name().replace('_', " ")),
    }
}

/// A predicate that says what a task does now: `has waited 92 s for ...`, `runs`.
pub fn does(waits: &Waits, wait: &Wait) -> String {
    use WaitKind::*;
    let since = wait.waited().map(time);
    let for_so_long = since.as_ref().map_or(String::new(), |s| format!(" for {s}"));
    match wait.kind {
        Some(Runnable | OnCpu) => return String::from("runs"),
        Some(Cpu) => return format!("has waited for a CPU{for_so_long}"),
        Some(Idle) => return String::from("is idle"),
        Some(Stopped) => {
            let is = if since.is_some() { "has been" } else { "is" };
            return format!("{is} stopped by a signal{for_so_long}");
        }
        // The task may have slept for long before its cgroup was frozen.
        Some(kind @ (Frozen | Throttled)) => {
            let how = if kind == Frozen {
                "frozen with its cgroup"
            } else {
                "out of CPU time of its cgroup"
            };
            let cgroup = wait.cgroup.as_deref().map_or(String::new(), |c| format!(" {}", shown(c)));
            let since = since.map_or(String::new(), |s| format!(", and has not run for {s}"));
            return format!("is {how}{cgroup}{since}");
        }
        None if wait.holder == Err(NoHolder::NoRight) => {
            return format!("waits for ? (no right to look: {})", way_to_see());
        }
        None if wait.holder == Err(NoHolder::Changed) => {
            return String::from("ended while it was looked at");
        }
        None if wait.state == b'R' => return String::from("runs"),
        None => return String::from("waits for something unknown"),
        _ => {}
    }
    let object = match &wait.holder {
        Ok(holder) => {
            let name = match waits.find(holder.tid) {
                _ if (holder.tid, holder.tgid) == (wait.tid, wait.tgid) => {
                    String::from("it itself")
                }
                Some(at) => who(waits, &waits.all()[at], holder.is_process),
                None => format!("thread {}", holder.tid),
            };
            held(wait, holder.how, holder.is_sure, &name)
        }
        Err(_) => object(wait) + &why_none(wait),
    };
    match since {
        Some(since) => format!("has waited {since} for {object}"),
        None => format!("waits for {object}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_one_unit() {
        let s = 1_000_000_000;
        for (ns, text) in [
            (s / 20, "50 ms"),
            (s * 3 / 2, "1.5 s"),
            (92 * s, "92 s"),
            (1000 * s, "16 min"),
            (10_000 * s, "2 h"),
            (1_000_000 * s, "11 days"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
