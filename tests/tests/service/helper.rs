//! The actions of this program when a test starts it again. Each is a test that does nothing unless
//! a variable in the environment is set, so that the test runner can run it, too.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use taskdiag::service::{Ask, Reply, sock};
use taskdiag::wire::{Req, Strategy, encode_request};
use taskdiag::{Choice, EngineId, Groups, Request};
use taskdiag_tests::busy::crowd;

/// The variable with the task of the helper, and the arguments with which it is started.
pub const WHAT: &str = "TASKDIAG_TEST_HELPER";
pub const ARGS: &[&str] = &["--exact", "helper::run", "--nocapture", "--test-threads=1"];

#[test]
fn run() {
    match std::env::var(WHAT).unwrap_or_default().as_str() {
        "" => {}
        "ask" => ask(),
        "ask-in-thread" => ask_in_thread(),
        "change" => change(),
        "hide-args" => hide_args(),
        "good" => good(),
        "hostile" => hostile(),
        other => panic!("there is no helper {other}"),
    }
}

fn socket() -> PathBuf {
    std::env::var_os("TASKDIAG_SOCKET").expect("the test names it").into()
}

/// Asks without the checks that the engine makes first, and prints the reply of the service.
fn ask() {
    let stream = UnixStream::connect(socket()).expect("it listens");
    let request = encode_request(&Req::new(Strategy::All, 0, Groups::BASE));
    let question = Ask::new(Duration::ZERO, request).encode();
    sock::send(stream.as_fd(), &question, None).expect("it is sent");
    let mut head = [0; Reply::LEN];
    stream.set_read_timeout(Some(Duration::from_secs(20).mul_f64(crowd()))).expect("a limit");
    (&stream).read_exact(&mut head).expect("there is a reply");
    println!("reply: {:?}", Reply::decode(&head).expect("it is one"));
}

/// Connects, changes the named property for this thread only, which is not the first one of the
/// process, and asks.
fn ask_in_thread() {
    let stream = connect();
    let what = std::env::var("TASKDIAG_TEST_CHANGE").expect("the test says what to change");
    let root = c"/usr";
    // SAFETY: the calls take numbers, strings that live, and a program that lives.
    let rc = unsafe {
        match what.split_once('=') {
            Some(("threads", n)) => {
                for _ in 0..n.parse::<usize>().expect("a number") {
                    std::thread::spawn(std::thread::park);
                }
                0
            }
            _ if what == "no-new-privs" => libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            _ if what == "seccomp" => {
                let mut all = [libc::sock_filter {
                    code: (libc::BPF_RET | libc::BPF_K) as u16,
                    jt: 0,
                    jf: 0,
                    k: libc::SECCOMP_RET_ALLOW,
                }];
                let program = libc::sock_fprog { len: 1, filter: all.as_mut_ptr() };
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
            }
            _ if what == "mount-namespace" => libc::unshare(libc::CLONE_NEWNS),
            _ if what == "chroot" => libc::unshare(libc::CLONE_FS) | libc::chroot(root.as_ptr()),
            _ => panic!("what is {what}?"),
        }
    };
    assert_eq!(rc, 0, "{what}: {}", std::io::Error::last_os_error());
    println!("reply: {}", reply_on(&stream));
}

/// Asks, changes its own view, and asks again, in a process with one thread, so that the change
/// affects the whole process.
fn change() {
    // SAFETY: no other thread holds a lock that the child needs, as the only other one waits for
    // this test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(ask_twice);
        let _ = std::io::stdout().flush();
        // SAFETY: it ends this process.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn connect() -> UnixStream {
    let stream = UnixStream::connect(socket()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20).mul_f64(crowd()))).expect("a limit");
    stream
}

/// The reply of the service to a question on this connection.
fn reply_on(mut stream: &UnixStream) -> String {
    let request = encode_request(&Req::new(Strategy::All, 0, Groups::BASE));
    let question = Ask::new(Duration::ZERO, request).encode();
    // After a refusal the connection may be closed.
    if sock::send(stream.as_fd(), &question, None).is_err() {
        return String::from("closed");
    }
    let mut head = [0; Reply::LEN];
    match stream.read_exact(&mut head) {
        Err(_) => String::from("closed"),
        Ok(()) => {
            let reply = Reply::decode(&head).expect("it is one");
            if let Reply::Here(len) = reply {
                stream.read_exact(&mut vec![0; len as usize]).expect("it is whole");
            }
            format!("{reply:?}")
        }
    }
}

/// Starts a process in the namespaces and root of this one, which asks the service. When the parent
/// requests that through the returned socket, the process asks once more, prints the reply, and
/// closes the socket.
fn other() -> UnixStream {
    let (mut ours, mut its) = UnixStream::pair().expect("a pair");
    // SAFETY: this process has one thread.
    if unsafe { libc::fork() } == 0 {
        drop(ours);
        let done = std::panic::catch_unwind(move || {
            let stream = connect();
            assert!(reply_on(&stream) != "closed");
            its.write_all(b"!").expect("it is read");
            its.read_exact(&mut [0]).expect("the signal to continue");
            println!("other: {}", reply_on(&stream));
            std::io::stdout().flush().expect("it is read");
        });
        // SAFETY: it ends this process.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    drop(its);
    ours.read_exact(&mut [0]).expect("it has asked");
    ours
}

/// Asks, makes the change that the environment names, and asks twice on the same connection.
/// Another process also asks before and after.
fn ask_twice() {
    let mut other = other();
    let stream = connect();
    let ask = || reply_on(&stream);
    println!("before: {}", ask());
    let what = std::env::var("TASKDIAG_TEST_CHANGE").expect("the test says what to change");
    let path = |text: &str| std::ffi::CString::new(text).expect("no zeroes");
    let done = |what: &str, rc: libc::c_int| {
        assert_eq!(rc, 0, "{what}: {}", std::io::Error::last_os_error());
    };
    let mount = |on: &str| {
        let (none, on, kind) = (path("none"), path(on), path("tmpfs"));
        // SAFETY: the arguments are strings that live.
        unsafe { libc::mount(none.as_ptr(), on.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) }
    };
    // SAFETY: the calls take numbers, and strings that live.
    unsafe {
        for step in what.split(' ') {
            match step.split_once('=') {
                None if step == "nothing" => {}
                None if step == "no-new-privs" => {
                    done(step, libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
                }
                None if step == "mount-namespace" => done(step, libc::unshare(libc::CLONE_NEWNS)),
                None if step == "user-namespace" => done(step, libc::unshare(libc::CLONE_NEWUSER)),
                Some(("mount", on)) => done(step, mount(on)),
                Some(("umount", from)) => {
                    done(step, libc::umount2(path(from).as_ptr(), libc::MNT_DETACH));
                }
                Some(("chroot", to)) => done(step, libc::chroot(path(to).as_ptr())),
                Some(("child", on)) => {
                    let command = ["-t", "tmpfs", "none", on];
                    let status = std::process::Command::new("mount").args(command).status();
                    assert!(status.expect("mount runs").success());
                }
                None if step == "hidepid-elsewhere" => {
                    let command = ["--mount", "mount", "-o", "remount,hidepid=2", "/proc"];
                    let status = std::process::Command::new("unshare").args(command).status();
                    assert!(status.expect("unshare runs").success());
                }
                _ => panic!("what is {step}?"),
            }
        }
    }
    println!("after: {}", ask());
    println!("again: {}", ask());
    other.write_all(b"!").expect("it waits");
    // Its end.
    assert_eq!(other.read(&mut [0]).expect("it ends"), 0);
}

/// Makes its own arguments unreadable for itself, so that /proc/PID/cmdline does not show them any
/// more.
fn hide_args() {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("it can be read");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    // arg_start and arg_end are the 48th and 49th, and the first one here is the third.
    let at = |n: usize| fields[n - 3].trim().parse::<usize>().expect("a number");
    let (start, end) = (at(48), at(49));
    let page = 4096;
    let first = start / page * page;
    println!("hidden {}", std::process::id());
    std::io::stdout().flush().expect("it is read");
    // SAFETY: the pages hold arguments and environment, which are not used from here on.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let len = end.next_multiple_of(page) - first;
        assert_eq!(libc::mprotect(first as *mut libc::c_void, len, libc::PROT_NONE), 0);
        libc::alarm(120);
        libc::pause();
    }
}

fn seconds() -> Duration {
    let n = std::env::var("TASKDIAG_TEST_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    Duration::from_secs(n)
}

/// Many clients that keep to the protocol. Says how many answers they got, and how many refusals.
fn good() {
    let (until, me) = (Instant::now() + seconds(), std::process::id());
    let client = move |n: u64| {
        let (mut answers, mut refusals) = (0, Vec::new());
        while Instant::now() < until {
            let request =
                Request::all(Groups::BASE | Groups::STAT).with_max_age(Duration::from_secs(1));
            match taskdiag::query_with(&request, Choice::Only(EngineId::Service)) {
                Ok(s) => {
                    assert!(s.tasks().any(|t| t.pid() == me), "the answer has the caller");
                    answers += 1;
                }
                Err(e) => refusals.push(e.to_string()),
            }
            std::thread::sleep(Duration::from_millis(700 + n * 13 % 600));
        }
        (answers, refusals)
    };
    let clients = (0..56).map(|n| std::thread::spawn(move || client(n))).collect::<Vec<_>>();
    let (mut answers, mut refusals) = (0, Vec::new());
    for c in clients {
        let (a, r) = c.join().expect("no client fails");
        answers += a;
        refusals.extend(r);
    }
    println!("answers {answers} refusals {}", refusals.len());
    refusals.sort();
    refusals.dedup();
    refusals.iter().for_each(|r| println!("refusal: {r}"));
}

/// A number that differs for each caller, and needs no crate.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Many clients that do not keep to the protocol.
fn hostile() {
    let until = Instant::now() + seconds();
    let client = move |n: u64| {
        let mut state = 0x9E37_79B9_7F4A_7C15 ^ (n + 1) ^ u64::from(std::process::id()) << 32;
        let good =
            Ask::new(Duration::ZERO, encode_request(&Req::new(Strategy::All, 0, Groups::BASE)))
                .encode();
        let mut held = Vec::new();
        while Instant::now() < until {
            let Ok(stream) = UnixStream::connect(socket()) else { continue };
            let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
            let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
            let mut bytes = good.clone();
            match random(&mut state) % 7 {
                // Noise.
                0 => {
                    bytes =
                        (0..random(&mut state) % 600).map(|_| random(&mut state) as u8).collect()
                }
                // A good question with some bits changed.
                1 => {
                    for _ in 0..1 + random(&mut state) % 4 {
                        let at = random(&mut state) as usize % bytes.len();
                        bytes[at] ^= 1 << (random(&mut state) % 8);
                    }
                }
                // Half a question.
                2 => bytes.truncate(random(&mut state) as usize % bytes.len()),
                // Many questions in one message.
                3 => bytes = bytes.repeat(50),
                // A question with descriptors.
                4 => {
                    let file = std::fs::File::open("/proc/self/stat").expect("it is there");
                    let _ = sock::send(stream.as_fd(), &bytes, Some(file.as_fd()));
                    continue;
                }
                _ => {}
            }
            let _ = (&stream).write_all(&bytes);
            match random(&mut state) % 4 {
                // The client closes in the middle of a question.
                0 => {}
                // The client sends questions repeatedly and never reads.
                1 => {
                    for _ in 0..20 {
                        let _ = (&stream).write_all(&good);
                    }
                    held.push(stream);
                }
                2 => {
                    let mut some = [0; 10];
                    let _ = (&stream).read(&mut some);
                }
                _ => held.push(stream),
            }
            if held.len() > 2 {
                held.clear();
            }
        }
    };
    let clients = (0..40).map(|n| std::thread::spawn(move || client(n))).collect::<Vec<_>>();
    clients.into_iter().for_each(|c| c.join().expect("no client fails"));
}
