//! A program may fork at any time, also while one of its threads makes the program's first request.
//! The child has a copy of the unfinished state of that thread, and no thread that would finish it.

use std::time::{Duration, Instant};

use taskdiag::{Choice, EngineId, Groups, Request, query_with};
use taskdiag_tests::{engines, skip};

/// How often the program forks while each engine makes its first request. The first request finds
/// out facts for a few ms, of which a few µs may matter.
const TIMES: [(EngineId, u32); 2] = [(EngineId::Bpf, 500), (EngineId::Procfs, 100)];
/// A child that has not answered after this time waits for ever.
const LONG: Duration = Duration::from_secs(60);

fn ask(engine: EngineId) -> bool {
    // Sums over pages need more of these facts than other groups do.
    let groups = Groups::BASE | Groups::STAT | Groups::CMDLINE | Groups::STATM;
    let request = Request::one(std::process::id(), groups);
    query_with(&request, Choice::Only(engine)).is_ok_and(|a| a.tasks().len() == 1)
}

/// Runs `work` in a child, and returns its result. `None`: the child did not end in time, and was
/// killed.
fn in_child(work: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: the child runs `work`, which is what this test is about, and ends without running
    // anything else of the parent's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let is_good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: it takes no pointer.
        unsafe { libc::_exit(i32::from(!is_good)) }
    }
    let begin = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the status is alive during the call, and the child is ours.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if begin.elapsed() > LONG => {
                // SAFETY: it has not been waited for, so its pid is still its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as above.
                unsafe { libc::waitpid(child, &mut status, 0) };
                return None;
            }
            0 => std::thread::sleep(Duration::from_micros(500)),
            ended => {
                assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
                return Some(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
            }
        }
    }
}

/// Makes the first request of a process in a thread, and forks after a while. Does the child get an
/// answer?
fn first_request_and_fork(engine: EngineId, after: Duration) -> Option<bool> {
    in_child(move || {
        let first = std::thread::spawn(move || ask(engine));
        let begin = Instant::now();
        while begin.elapsed() < after {
            std::hint::spin_loop();
        }
        in_child(|| ask(engine)) == Some(true) && first.join().is_ok_and(|good| good)
    })
}

/// This process must not have made a request itself, so there is one test in this file.
#[test]
fn a_child_that_is_forked_in_a_first_request_gets_an_answer() {
    let test = "a_child_that_is_forked_in_a_first_request_gets_an_answer";
    for (engine, times) in TIMES {
        // This runs in a child, so that this process stays without known facts.
        let begin = Instant::now();
        let works = in_child(|| engines().iter().any(|e| e.id() == engine) && ask(engine));
        if works != Some(true) {
            skip(test, &format!("{} does not work here", engine.name()));
            continue;
        }
        let took = begin.elapsed().min(Duration::from_millis(200));
        for n in 0..times {
            // The offsets are tried out of order, so that the load of the machine affects all of
            // them.
            let after = took * (n * 7 % times) / times;
            let got = first_request_and_fork(engine, after);
            assert_eq!(got, Some(true), "{}, fork {n}, after {after:?}", engine.name());
        }
    }
}
