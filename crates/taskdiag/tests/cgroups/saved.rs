//! The cgroups in a saved answer are the cgroups of the listing that was put into it.

use taskdiag::Snapshot;
use taskdiag::wire::{CgroupList, CgroupMsg, Done, StreamWriter};

use super::*;

/// An answer of no tasks.
fn answer() -> Snapshot {
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    Snapshot::parse(w.finish(Done::default())).expect("it is whole")
}

/// Everything that can be asked of a listing.
fn all_of(all: &Cgroups) -> Vec<String> {
    let one = |c: &Cgroup| {
        let values: Vec<Known> = Member::ALL.iter().map(|m| c.get(*m)).collect();
        let place = (c.level(), c.parent(), c.is_of_version_2());
        format!("{:?} {} {place:?} {values:?}", c.path(), c.id())
    };
    all.list().iter().map(one).collect()
}

#[test]
fn cgroups_of_an_answer_are_those_of_the_listing_value_by_value() {
    let laid = laid_out("cpu memory pids", &WHOLE);
    for (path, text) in [("a/b/cgroup.procs", "5\n"), ("a/b/pids.max", "max\n")] {
        laid.put(path, text);
    }
    for n in 0..3 {
        laid.put(&format!("c/{n}/cgroup.procs"), "1\n");
    }
    let bounds = |cgroups, levels| {
        let mut bounds = Bounds::default();
        (bounds.cgroups, bounds.levels) = (cgroups, levels);
        bounds
    };
    for bounds in [Bounds::default(), bounds(4, 100), bounds(100, 1)] {
        let live = laid.bounded(bounds).list().expect("it can be read");
        let kept = answer().with_cgroups(&live, Duration::from_millis(10)).expect("it had none");
        assert!(kept.with_cgroups(&live, Duration::ZERO).is_none(), "it has some");
        // As a reader elsewhere has it.
        let read = Snapshot::read_from(kept.stream().bytes()).expect("it is whole");
        let read = Cgroups::of(&read).expect("it has some");
        assert_eq!(all_of(&read), all_of(&live));
        assert_eq!(read.left_out(), live.left_out());
        assert_eq!(read.left_out_by_owner(), live.left_out_by_owner());
        let owners = |all: &Cgroups| all.list().iter().map(Cgroup::owner).collect::<Vec<_>>();
        assert_eq!(owners(&read), owners(&live));
        assert_eq!(read.remarks().len(), live.remarks().len());
        assert_eq!(read.has_version_1(), live.has_version_1());
    }
    assert!(Cgroups::of(&answer()).is_none());
    // What was not read is not in the answer.
    let few = Session::at(Some(laid.0.path()), &[], Files::CPU_STAT, Bounds::default(), 0);
    let few = few.expect("it is there").once().expect("it can be read");
    let kept = answer().with_cgroups(&few, Duration::ZERO).expect("it had none");
    let read = Cgroups::of(&kept).expect("it has some");
    assert_eq!(find(&read, "/a").get(Member::Memory), Known::NotAsked);
    assert_eq!(all_of(&read), all_of(&few));
    let values = kept.stream().cgroups().map(|c| c.values().count());
    assert_eq!(values.collect::<Vec<_>>(), vec![6; few.list().len()]);
}

#[test]
fn growth_between_two_answers_is_that_of_a_session() {
    let laid = laid_out("cpu memory pids", &WHOLE);
    laid.put("gone/cgroup.procs", "");
    let mut session = laid.v2();
    let kept = |all: &Cgroups| {
        let kept = answer().with_cgroups(all, Duration::from_nanos(1)).expect("it had none");
        Cgroups::of(&kept).expect("it has some")
    };
    let first = kept(&session.list().expect("it can be read"));
    std::thread::sleep(Duration::from_millis(20));
    laid.put("a/cpu.stat", "usage_usec 1005\nuser_usec 5\nsystem_usec 0\n");
    fs::remove_dir_all(laid.path("gone")).expect("removed");
    laid.put("gone2/cgroup.procs", "");
    fs::rename(laid.path("gone2"), laid.path("gone")).expect("moved");
    let live = session.list().expect("it can be read");
    let mut second = kept(&live);
    second.compare(&first);
    let (now, then) = (find(&second, "/a"), find(&live, "/a"));
    let want = then.growth(Member::CpuUsage).expect("two listings");
    assert_eq!((now.growth(Member::CpuUsage), want.0), (Some(want), 1_000_000));
    assert!(want.1 >= Duration::from_millis(20), "{want:?}");
    // Another cgroup with the path of one that was there, and another order.
    let of_gone = |all: &Cgroups| find(all, "/gone").growth(Member::Procs);
    assert_eq!(of_gone(&second), of_gone(&live));
    let mut first = first;
    first.compare(&second);
    assert_eq!(find(&first, "/a").growth(Member::CpuUsage), None, "time does not run back");
}

#[test]
fn a_part_of_the_cgroups_of_an_answer_is_that_of_a_session() {
    let laid = laid_out("cpu memory pids", &WHOLE);
    laid.put("a/b/cgroup.procs", "5\n");
    laid.put("ab/cgroup.procs", "6\n");
    let kept = answer().with_cgroups(&laid.list(), Duration::ZERO).expect("it had none");
    let only = |given: &[&str]| {
        let mut all = Cgroups::of(&kept).expect("it has some");
        all.only(given.iter().map(|p| p.as_bytes())).map(|()| paths(&all))
    };
    assert_eq!(only(&["/a/"]).expect("it is there"), ["/a", "/a/b"]);
    assert_eq!(only(&["a/b", "ab"]).expect("they are there"), ["/a/b", "/ab"]);
    assert_eq!(only(&["/"]).expect("it is there"), ["/", "/a", "/a/b", "/ab"]);
    for bad in ["/b", "a/../a"] {
        assert!(only(&[bad]).is_err(), "{bad}");
    }
}

#[test]
fn an_answer_with_countless_cgroups_gives_as_many_as_a_listing_has() {
    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    w.cgroup_list(&CgroupList::default());
    let most = Bounds::default().cgroups;
    for n in 0..most + 3 {
        w.cgroup(&CgroupMsg::default(), format!("/{n}").as_bytes(), &[]);
    }
    let answer = Snapshot::parse(w.finish(Done::default())).expect("it is whole");
    let all = Cgroups::of(&answer).expect("it has some");
    assert_eq!((all.list().len(), all.left_out().no_room), (most, 3));
    assert_eq!(all.remarks().len(), 1, "{:?}", all.remarks());
}
