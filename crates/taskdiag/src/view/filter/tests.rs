//! Tests expressions on a known task.

use taskdiag_wire::{
    AlignedBuf, Base, Cred, Done, Group, Info, Reason, Stat, Statm, Stream, StreamWriter, build,
};

use super::*;
use crate::field::{FILES, MAPS, Missing};

/// A task with all values that are tested, without these groups, which are missing for these
/// reasons.
fn stream(without: &[(Group, Reason)]) -> Stream<AlignedBuf> {
    let groups = Groups::BASE
        | Groups::CRED
        | Groups::STAT
        | Groups::STATM
        | Groups::CMDLINE
        | Groups::NS
        | Groups::LIMITS;
    let mut w = StreamWriter::new();
    w.info(&build!(Info {
        show_flags: groups.bits(),
        realtime_ns: 1_767_268_800 * 1_000_000_000,
        boottime_ns: 100_000 * 1_000_000_000,
        mem_total_bytes: 10 << 30,
        page_size: 4096,
        clk_tck: 100,
        ..StreamWriter::blank_info()
    }));
    w.begin_task(7, 7);
    let is_there = |g| !without.iter().any(|(missing, _)| *missing == g);
    let mut base = Base::new();
    base.valid = Base::ALL_VALID;
    (base.ppid, base.state) = (1, b'D');
    base.start_time_ns = (100_000 - 5_400) * 1_000_000_000;
    w.put_base(&base, b"java");
    if is_there(Group::Cred) {
        let mut cred = Cred::new();
        cred.valid = Cred::ALL_VALID & !(1 << 20);
        (cred.euid, cred.uid) = (0, 3_999_999_999);
        w.put(&cred);
    }
    let mut stat = Stat::new();
    stat.valid = Stat::ALL_VALID;
    (stat.nice, stat.num_threads, stat.utime_ns) = (-5, 20, 1_500_000_000);
    w.put(&stat);
    if is_there(Group::Statm) {
        let mut statm = Statm::new();
        statm.valid = Statm::ALL_VALID;
        statm.rss_bytes = 3 << 30;
        w.put(&statm);
    }
    let args = b"/bin/java\0-cp\0/opt/kafka/\xff.jar\0";
    if is_there(Group::Cmdline) {
        w.put_blob(Group::Cmdline as u16, 0, 0, args, args.len());
    } else if without.contains(&(Group::Cmdline, Reason::Truncated)) {
        w.put_blob(Group::Cmdline as u16, 0, 0, &args[..20], 5000);
    }
    for (group, why) in without.iter().filter(|m| m.1 != Reason::Truncated) {
        w.missing(*group, *why);
    }
    w.end_task();
    Stream::parse(w.finish(Done::default())).expect("it is well formed")
}

fn truth(stream: &Stream<AlignedBuf>, text: &str) -> Truth {
    let filter = Filter::parse(&TASKS, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let cx = Context::new(stream.info(), false);
    filter.test(&cx, &Row::new(stream.get(0).expect("one task")))
}

#[test]
fn conditions_on_known_values_hold() {
    let stream = stream(&[]);
    for text in [
        "comm == java",
        "comm == 'java'",
        "comm != \"Java\" and pid == 7",
        "rss > 1G and user == root and args ~ \"java.*kafka\"",
        "rss == 3G",
        "rss >= 3145728K",
        "rss < 3.5GiB",
        "%mem > 29.9 and %mem < 30.1%",
        "etime == 90m",
        "etime == 1h30m",
        "etime < 2h",
        "time == 1.5s",
        "time == 1500ms",
        "lstart == '2026-01-01 10:30Z'",
        "lstart > \"2025-12-31 00:00\"",
        "lstart == 1767263400",
        "state == D",
        "state == blocked",
        "s in (R, D)",
        "s not in (R, S)",
        "stat ~ '^D<'",
        "ni == -5",
        "ni < 0",
        "not ni >= 0",
        "! (ni >= 0)",
        "comm in (sh, java) && nlwp in (1, 20)",
        "comm == sh || comm == java",
        "user == 0",
        "uid == 0",
        "user in (0, nobody)",
        "ruser == 3999999999",
        "args ~ '/opt/kafka/.\\.jar$'",
        "args ~ '(?i)JAVA -CP'",
        "args !~ zookeeper",
        "comm missing or rss known",
        "exe missing",
        "tty missing and not tty known",
        "comm == sh and exe == x or pid == 7",
        "(comm == sh or pid == 7) and (pid == 7)",
        "NOT comm == sh AND pid == 7",
        "comm == java and(pid == 7)",
        "ppid == 0x1",
        "\n pid == 7\n",
    ] {
        assert!(truth(&stream, text).is_true(), "{text}: {:?}", truth(&stream, text));
        let opposite = format!("not ({text})");
        assert!(matches!(truth(&stream, &opposite), Truth::False), "{opposite}");
    }
}

#[test]
fn tests_of_missing_values_are_neither_true_nor_false() {
    let stream = stream(&[
        (Group::Statm, Reason::Denied),
        (Group::Cmdline, Reason::Truncated),
        (Group::Ns, Reason::Absent),
    ]);
    let denied = Missing::Reason(Reason::Denied);
    for text in
        ["rss > 1G", "rss < 1G", "rss == 0", "rss != 0", "not rss > 1G", "pid == 7 and rss > 0"]
    {
        match truth(&stream, text) {
            Truth::Unknown(f, why) => assert_eq!((f.name, why), ("rss", denied), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    for (text, want) in [
        ("pid == 7 or rss > 1G", Some(true)),
        ("rss > 1G or pid == 7", Some(true)),
        ("pid == 8 and rss > 1G", Some(false)),
        ("rss > 1G and pid == 8", Some(false)),
        ("rss missing", Some(true)),
        ("rss known", Some(false)),
        ("not rss missing", Some(false)),
        ("netns > 0", None),
        ("cgroup ~ x", None),
        // The arguments are cut after "/bin/java -cp /opt/".
        ("args ~ 'java -cp'", Some(true)),
        ("args ~ '^/bin/java.*'", Some(true)),
        ("args ~ 'opt/$'", None),
        // The text after the match decides about these.
        (r"args ~ 'opt/?\b'", None),
        ("args ~ 'opt/([^k]|$)'", None),
        (r"args ~ 'opt(\W|$)'", None),
        (r"args ~ '\bcp\b'", Some(true)),
        ("args ~ zookeeper", None),
        ("args !~ zookeeper", None),
        ("args == '/bin/java -cp /opt/kafka/x.jar'", None),
        ("args == '/bin/java'", Some(false)),
        ("args != '/bin/java'", Some(true)),
        ("args known", Some(true)),
    ] {
        let said = match truth(&stream, text) {
            Truth::True => Some(true),
            Truth::False => Some(false),
            Truth::Unknown(..) => None,
        };
        assert_eq!(said, want, "{text}");
    }
}

#[test]
fn limits_that_are_not_set_are_larger_than_all() {
    let mut w = StreamWriter::new();
    let show_flags = Groups::LIMITS.bits();
    w.info(&build!(Info { show_flags, ..StreamWriter::blank_info() }));
    w.begin_task(7, 7);
    let mut limits = taskdiag_wire::Limits::new();
    limits.valid = taskdiag_wire::Limits::ALL_VALID;
    (limits.soft[7], limits.hard[7]) = (1024, u64::MAX);
    w.put(&limits);
    w.end_task();
    let stream = Stream::parse(w.finish(Done::default())).expect("it is well formed");
    assert!(truth(&stream, "rlimit_nofile == 1024 and rlimit_nofile < unlimited").is_true());
    assert!(
        truth(&stream, "rlimit_nofile_hard > 1000000000 and rlimit_nofile_hard == unlimited")
            .is_true()
    );
}

#[test]
fn errors_mark_their_place() {
    for (text, what, mark) in [
        ("", "empty", "^"),
        ("rsss > 1G", "no column 'rsss' (did you mean 'rss'?)", "^^^^"),
        ("cpu_now > 5", "'cpu_now' is a column of 'taskdiag top', not of tasks here", "^^^^^^^"),
        ("threads > 5", "no column 'threads' here: the number of threads is nlwp", "^^^^^^^"),
        ("rss > 1X", "not such a value: write 'rss > 100M'", "      ^^"),
        ("rss > vsz", "not with another column", "      ^^^"),
        ("rss", "'rss' is a size in bytes: write 'rss > 100M'", "^^^"),
        ("rss = 1", "equality is written '=='", "    ^"),
        ("rss >", "a value must stand here", "     ^"),
        ("rss > and pid == 1", "a value must stand here", "      ^"),
        ("rss ~ x", "only text has matches", "    ^"),
        ("comm > x", "no order", "     ^"),
        ("comm == 'x", "the quote that ends this text is missing", "        ^"),
        ("comm ~ '('", "no regular expression: unclosed group", "       ^^^"),
        ("(pid == 1", "the ')' for this '(' is missing", "^"),
        ("pid == 1)", "there is no '(' for this ')'", "        ^"),
        ("pid == 1 comm == x", "'and' or 'or' must stand before this", "         ^"),
        ("(pid == 1 comm == x)", "'and', 'or' or ')' must stand before this", "          ^"),
        ("pid in 1", "a list must stand here", "       ^"),
        ("pid in (1 2)", "',' or ')' must stand here", "          ^"),
        ("pid in (1,", "a value of the list must stand here", "          ^"),
        ("s == Q", "there is no state 'Q'", "     ^"),
        ("etime > 5M", "'etime' is a duration", "        ^^"),
        ("== 1", "a column must stand here", "^"),
        ("é == 1", "a column must stand here", "^"),
        ("pid == 1 and\nrss > x", "'rss' is a size", "      ^"),
    ] {
        let Err(e) = Filter::parse(&TASKS, text) else { panic!("{text}") };
        let lines = e.lines();
        assert!(lines[0].contains(what), "{text}: {}", lines[0]);
        assert_eq!(lines[2], format!("  {mark}"), "{text}");
    }
    let deep = "(".repeat(5000);
    let Err(e) = Filter::parse(&TASKS, &deep) else { panic!("it has no end") };
    assert!(e.lines()[0].contains("use fewer"), "{e}");
    let Err(e) = Filter::parse(&TASKS, "comm == \u{1b}[2Jx") else { panic!("no value") };
    assert_eq!(e.lines()[1], "  comm == \\x1b[2Jx");
    let Err(e) = Filter::parse(&TASKS, "comm ~ '(x{999}){999}'") else { panic!("too large") };
    assert!(e.lines()[0].contains("memory"), "{e}");
    let Err(e) = Filter::parse(&MAPS, "procs > 2") else { panic!("of sums") };
    assert!(e.lines()[0].contains("added up"), "{e}");
}

#[test]
fn parts_about_the_task_are_told_apart() {
    let about = |set, text| {
        let filter = Filter::parse(set, text).unwrap_or_else(|e| panic!("{text}: {e}"));
        filter.parts().map(Part::is_about_task).collect::<Vec<_>>()
    };
    assert_eq!(about(&TASKS, "pid == 1 and (comm == x or rss > 1)"), [true, true]);
    assert_eq!(about(&MAPS, "pid == 1 and rss > 1 and task.rss > 1"), [true, false, true]);
    assert_eq!(about(&MAPS, "pid == 1 or deleted"), [false]);
    assert_eq!(about(&FILES, "user == root and deleted and not type == REG"), [true, false, false]);
    assert_eq!(about(&MEMORY, "swap > 1"), [true]);
    let filter = Filter::parse(&TASKS, "rss > 1 and args ~ x and rss < 9").expect("it is right");
    assert_eq!(filter.groups(), Groups::STATM | Groups::CMDLINE | Groups::BASE);
}
