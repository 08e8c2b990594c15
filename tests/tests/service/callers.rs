//! The service answers callers whose own /proc shows everything to everyone, and no others.

use std::os::unix::process::CommandExt;

use crate::daemon::{Daemon, NOBODY, text};
use crate::helper::{ARGS, WHAT};

/// The replies of the service to a caller that makes no checks itself. The words come before the
/// caller.
fn reply(daemon: &Daemon, before: &[&str]) -> String {
    let out = daemon.command(before, "helper", ARGS).env(WHAT, "ask").output().expect("it runs");
    let said = text(&out.stdout);
    let line = said.lines().find_map(|l| l.split_once("reply: "));
    line.map_or_else(|| panic!("{before:?}: {said} {}", text(&out.stderr)), |l| l.1.to_owned())
}

/// A shell that makes mounts in a separate namespace, then runs the rest of its arguments.
fn mounts(script: &str) -> Vec<String> {
    let private = format!("mount --make-rprivate / && {script} && exec \"$@\"");
    ["unshare", "--mount", "sh", "-c", &private, "sh"].map(String::from).to_vec()
}

#[test]
fn callers_with_a_plain_proc_are_answered() {
    let Some(daemon) = Daemon::start("callers_with_a_plain_proc_are_answered") else { return };
    let kinds: &[&[&str]] = &[
        &[],
        NOBODY,
        &["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"],
        &["setpriv", "--reuid=0", "--regid=4242", "--clear-groups", "--bounding-set=-all"],
        &["setpriv", "--reuid=65534", "--regid=0", "--groups=4,27"],
        &["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"],
        // A new time namespace whose clocks show the same.
        &["unshare", "--time", "--fork"],
    ];
    for before in kinds {
        let said = reply(&daemon, before);
        assert!(said.starts_with("Here(") || said.starts_with("File("), "{before:?}: {said}");
    }
}

#[test]
fn refused_callers_read_their_own_proc() {
    let Some(daemon) = Daemon::start("refused_callers_read_their_own_proc") else { return };
    let refused = |before: &[&str], why: &str| {
        assert_eq!(reply(&daemon, before), format!("Refused({why})"), "{before:?}");
    };
    let after = |mut first: Vec<String>, rest: &[&str]| {
        first.extend(rest.iter().map(|s| (*s).to_owned()));
        first
    };
    let all = |words: &[String], why: &str| {
        refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), why);
    };
    refused(&["unshare", "--pid", "--fork", "--mount-proc"], "PidNamespace");
    // The /proc of this caller belongs to the outer pid namespace.
    refused(&["unshare", "--pid", "--fork"], "PidNamespace");
    let user = &["unshare", "--user", "--map-root-user"][..];
    refused(&[NOBODY, user].concat(), "UserNamespace");
    refused(&[NOBODY, &["unshare", "--user"]].concat(), "UserNamespace");
    // The time since boot is another one there, and with it the start times of all tasks.
    let time = &["unshare", "--time", "--boottime", "1000000", "--fork"][..];
    refused(&[time, NOBODY].concat(), "TimeNamespace");
    refused(time, "TimeNamespace");
    for options in ["hidepid=1", "hidepid=2", "hidepid=4", "subset=pid", "gid=4,hidepid=2"] {
        let script = format!("mount -t proc -o {options} proc /proc");
        all(&after(mounts(&script), NOBODY), "Mounts");
        all(&mounts(&script), "Mounts");
    }
    // Another mount of the same pid namespace. It shows the same now, and could be changed without
    // our noticing.
    all(&after(mounts("mount -t proc proc /proc"), NOBODY), "Mounts");
    all(&after(mounts("mount -t tmpfs none /proc"), NOBODY), "Mounts");
    all(&after(mounts("mount -t tmpfs none /proc/1"), NOBODY), "Mounts");
    all(&after(mounts("umount -l /proc"), NOBODY), "Mounts");
    refused(&[NOBODY, &["--no-new-privs"]].concat(), "Confined");
}

/// Roots without a /proc, and one with the machine's.
#[test]
fn a_caller_in_a_chroot_is_answered_only_if_it_has_the_same_proc() {
    let Some(daemon) =
        Daemon::start("a_caller_in_a_chroot_is_answered_only_if_it_has_the_same_proc")
    else {
        return;
    };
    let new = tempfile::tempdir().expect("a directory");
    let new = new.path().to_str().expect("text");
    let socket = daemon.dir().to_str().expect("text");
    let root = |more: &str| {
        let script = format!("mount --bind / {new} && mount --bind {socket} {new}{socket} {more}");
        let mut words = mounts(&script);
        words.extend(["chroot", "--userspec=65534:65534", new].map(String::from));
        words
    };
    let words = root("");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(reply(&daemon, &words), "Refused(Mounts)");
    let words = root(&format!("&& mount --bind /proc {new}/proc"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = reply(&daemon, &words);
    assert!(said.starts_with("Here(") || said.starts_with("File("), "it is the same /proc: {said}");
}

/// A caller may change its view after it was answered once. Cached checks of this caller, or of
/// another caller with the same mounts, must not hide the change.
#[test]
fn a_caller_that_changes_its_view_is_checked_again() {
    let Some(daemon) = Daemon::start("a_caller_that_changes_its_view_is_checked_again") else {
        return;
    };
    let new = tempfile::tempdir().expect("a directory");
    let new = new.path().to_str().expect("text");
    let changed = |before: &[&str], what: &str| {
        // The caller has a separate mount namespace, and a second root is prepared.
        let prepared = mounts(&format!("mount --bind / {new} && mount --bind /proc {new}/proc"));
        let words: Vec<&str> =
            prepared.iter().map(String::as_str).chain(before.iter().copied()).collect();
        let mut command = daemon.command(&words, "helper", ARGS);
        let out = command.env(WHAT, "change").env("TASKDIAG_TEST_CHANGE", what).output();
        let out = out.expect("it runs");
        let said = text(&out.stdout);
        let line = |key: &str| {
            let found = said.lines().find_map(|l| l.split_once(key));
            found.map_or_else(|| panic!("{what}: {said} {}", text(&out.stderr)), |l| l.1.to_owned())
        };
        let is_answer = |reply: &str| reply.starts_with("Here(") || reply.starts_with("File(");
        assert!(is_answer(&line("before: ")), "{what}: {said}");
        let (after, again) = (line("after: "), line("again: "));
        match is_answer(&after) {
            true => assert!(is_answer(&again), "{what}: {said}"),
            // The caller would be refused again, so it is disconnected.
            false => assert_eq!(again, "closed", "{what}: {said}"),
        }
        let told = |reply: String| if is_answer(&reply) { String::from("answer") } else { reply };
        (told(after), told(line("other: ")))
    };
    let same = |said: &str| (said.to_owned(), said.to_owned());
    let alone = |said: &str| (said.to_owned(), String::from("answer"));
    for what in [
        "nothing",
        "chroot=/",
        "mount-namespace",
        "mount=/mnt",
        "umount=/dev/shm",
        "mount=/mnt umount=/mnt",
        &format!("chroot={new}"),
    ] {
        assert_eq!(changed(&[], what), same("answer"), "{what}");
    }
    // The kernel reports only once that a mount has changed, and both callers must be checked
    // again.
    for what in ["mount=/proc", "mount=/proc/1", "child=/proc/1", "umount=/proc"] {
        assert_eq!(changed(&[], what), same("Refused(Mounts)"), "{what}");
    }
    for what in [
        "chroot=/usr",
        &format!("chroot={new}/usr"),
        "mount-namespace mount=/proc",
        "mount-namespace umount=/proc",
        &format!("umount={new}/proc chroot={new}"),
        &format!("mount={new}/proc/1 chroot={new}"),
    ] {
        assert_eq!(changed(&[], what), alone("Refused(Mounts)"), "{what}");
    }
    assert_eq!(changed(NOBODY, "no-new-privs"), alone("Refused(Confined)"));
    assert_eq!(changed(NOBODY, "user-namespace"), alone("Refused(UserNamespace)"));
    assert_eq!(changed(NOBODY, "nothing"), same("answer"));
}

/// A process of another mount namespace may change the options of the same proc file system, and
/// the caller's table of mounts is not marked then. The service and its caller run in a pid
/// namespace of their own, so its /proc can be changed. A service of root sees the change in its
/// own table of mounts. A service without rights cannot read about its caller any more.
#[test]
fn a_proc_that_is_changed_from_elsewhere_is_noticed() {
    let Some(daemon) = Daemon::start("a_proc_that_is_changed_from_elsewhere_is_noticed") else {
        return;
    };
    let dir = daemon.dir().to_str().expect("text");
    let caps = ["inh", "ambient"].map(|c| format!("--{c}-caps=-all,+bpf,+perfmon")).join(" ");
    let without_rights = format!("setpriv --reuid=65533 --regid=65533 --clear-groups {caps}");
    for (name, rights, why_not) in
        [("root", "", "Mounts"), ("other", &without_rights, "UnknownCaller")]
    {
        let script = format!(
            "mount --make-rprivate / && umount -l /proc && mount -t proc proc /proc || exit 1; \
             mkdir $0/{name} && chown 65533 $0/{name} || exit 1; \
             {rights} $0/taskdiagd --socket $0/{name}/socket & \
             while ! test -S $0/{name}/socket; do sleep 0.01; done; \"$@\""
        );
        let words = ["unshare", "--pid", "--fork", "--mount", "sh", "-c", &script, dir];
        let mut command = daemon.command(&words, "helper", ARGS);
        command.env("TASKDIAG_SOCKET", daemon.dir().join(name).join("socket"));
        command.env(WHAT, "change").env("TASKDIAG_TEST_CHANGE", "hidepid-elsewhere");
        let out = command.output().expect("it runs");
        let (said, why) = (text(&out.stdout), text(&out.stderr));
        assert!(said.contains("before: Here("), "{name}: {said} {why}");
        assert!(said.contains(&format!("after: Refused({why_not})")), "{name}: {said} {why}");
    }
}

/// A seccomp filter may keep the caller from opening files. The filter here allows everything.
#[test]
fn callers_with_a_seccomp_filter_are_refused() {
    let Some(daemon) = Daemon::start("callers_with_a_seccomp_filter_are_refused") else { return };
    let mut command = daemon.command(&[], "helper", ARGS);
    command.env(WHAT, "ask");
    // SAFETY: between fork and exec, a system call on memory that lives.
    unsafe {
        command.pre_exec(|| {
            let mut all = [libc::sock_filter {
                code: (libc::BPF_RET | libc::BPF_K) as u16,
                jt: 0,
                jf: 0,
                k: libc::SECCOMP_RET_ALLOW,
            }];
            let program = libc::sock_fprog { len: 1, filter: all.as_mut_ptr() };
            match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let said = text(&command.output().expect("it runs").stdout);
    assert!(said.contains("reply: Refused(Confined)"), "{said}");
}

/// The kernel reports the process that asks, and not the thread. So one thread that is confined is
/// enough.
#[test]
fn a_confined_thread_of_a_free_process_is_not_answered() {
    let Some(daemon) = Daemon::start("a_confined_thread_of_a_free_process_is_not_answered") else {
        return;
    };
    for (what, want) in [
        ("threads=10", "Here("),
        ("threads=100", "Refused(Threads)"),
        ("no-new-privs", "Refused(Confined)"),
        ("seccomp", "Refused(Confined)"),
        ("mount-namespace", "Refused(Mounts)"),
        ("chroot", "Refused(Mounts)"),
    ] {
        let mut command = daemon.command(&[], "helper", ARGS);
        command.env(WHAT, "ask-in-thread").env("TASKDIAG_TEST_CHANGE", what);
        let out = command.output().expect("it runs");
        let said = text(&out.stdout);
        let reply = format!("reply: {want}");
        let is_file = want == "Here(" && said.contains("reply: File(");
        assert!(said.contains(&reply) || is_file, "{what}: {said} {}", text(&out.stderr));
    }
}

/// A connection belongs to the process that made it: a child that has it gets no answer.
#[test]
fn a_connection_is_for_one_process() {
    let Some(daemon) = Daemon::start("a_connection_is_for_one_process") else { return };
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use taskdiag::service::{Ask, Reply};
    use taskdiag::wire::{Req, Strategy, encode_request};
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.socket()).expect("it listens");
    let request = encode_request(&Req::new(Strategy::All, 0, taskdiag::Groups::BASE));
    let question = Ask::new(std::time::Duration::ZERO, request).encode();
    let fd = stream.as_raw_fd();
    let mut child = std::process::Command::new("true");
    // SAFETY: between fork and exec, a system call on memory that lives.
    unsafe {
        child.pre_exec(move || {
            libc::write(fd, question.as_ptr().cast(), question.len());
            Ok(())
        });
    }
    assert!(child.status().expect("it runs").success());
    let mut head = [0; Reply::LEN];
    stream.read_exact(&mut head).expect("there is a reply");
    let reply = format!("{:?}", Reply::decode(&head));
    assert_eq!(reply, "Some(Refused(UnknownCaller))");
}

/// The engine reports why the service does not answer, and `auto` reads /proc.
#[test]
fn a_refused_caller_gets_the_answer_of_proc() {
    let Some(daemon) = Daemon::start("a_refused_caller_gets_the_answer_of_proc") else { return };
    let ps = &["ps", "--stats", "-o", "pid,comm"][..];
    let bound = &[NOBODY, &["--no-new-privs"]].concat()[..];
    let out = daemon.taskdiag(bound, ps);
    assert!(
        out.status.success() && text(&out.stderr).contains("engine procfs"),
        "{}",
        text(&out.stderr)
    );
    let out = daemon.taskdiag(bound, &["ps", "--engine", "service"]);
    assert_eq!(out.status.code(), Some(4));
    assert!(text(&out.stderr).contains("read your own /proc"), "{}", text(&out.stderr));
    let hidden: Vec<String> = mounts("mount -t proc -o hidepid=2 proc /proc");
    let hidden: Vec<&str> =
        hidden.iter().map(String::as_str).chain(NOBODY.iter().copied()).collect();
    let out = daemon.taskdiag(&hidden, &["ps", "-e", "-o", "pid,uid", "--no-headers"]);
    let said = text(&out.stdout);
    assert!(out.status.success() && !said.is_empty(), "{}", text(&out.stderr));
    assert!(said.lines().all(|l| l.trim().ends_with("65534")), "only its own: {said}");
}
