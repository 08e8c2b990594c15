//! The procfs engine with too few file descriptors. Alone in its process, a task gets the whole
//! limit.

use taskdiag::engine::procfs::Procfs;
use taskdiag::{Engine, Error, Groups, Request};

#[test]
fn too_few_descriptors_are_an_error_and_no_short_list() {
    let mut engine = Procfs::new().unwrap();
    let req = Request::all(Groups::BASE);
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `old` is a valid rlimit to write to.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut old) }, 0);
    let set = |cur| {
        let new = libc::rlimit { rlim_cur: cur, rlim_max: old.rlim_max };
        // SAFETY: `new` is a valid rlimit to read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &new) }, 0);
    };
    let free = {
        use std::os::fd::AsRawFd;
        std::fs::File::open("/proc").unwrap().as_raw_fd() as libc::rlim_t
    };
    // No descriptor, then one for the directory and none for the files, then enough.
    let answers = [free, free + 1, free + 2, free + 64].map(|limit| {
        set(limit);
        engine.run(&req)
    });
    set(old.rlim_cur);
    for answer in &answers[..2] {
        let e = answer.as_ref().unwrap_err();
        assert!(matches!(e, Error::Io { .. }) && e.to_string().contains("ulimit -n"), "{e}");
    }
    assert!(answers[3].is_ok());
    // Two are enough for one thread; with many tasks there are several.
    if let Err(e) = &answers[2] {
        assert!(e.to_string().contains("ulimit -n"), "{e}");
    }
}
