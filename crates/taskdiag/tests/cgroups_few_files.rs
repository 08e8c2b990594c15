//! A session of cgroups in a program that may open few files. A test program of its own, because
//! the limit is that of the process.

use rustix::process::{Resource, getrlimit, setrlimit};
use taskdiag::cgroups::{Bounds, Files, Member, Session};

#[test]
fn a_session_that_may_open_no_more_files_keeps_none() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for n in 0..50 {
        let path = dir.path().join(format!("c{n}"));
        std::fs::create_dir(&path).expect("made");
        std::fs::write(path.join("cgroup.procs"), "1\n").expect("written");
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(40);
    setrlimit(Resource::Nofile, limit).expect("it may be lower");
    let session = Session::at(Some(dir.path()), &[], Files::PROCS, Bounds::default(), 1000);
    let mut session = session.expect("it is there");
    for _ in 0..2 {
        let all = session.list().expect("it needs few files at a time");
        let counted = all.list().iter().filter(|c| c.get(Member::Procs).number() == Some(1));
        assert_eq!(counted.count(), 50);
    }
    assert_eq!(session.open_descriptors(), 0);
    assert!(Session::descriptors() <= 20);
}
