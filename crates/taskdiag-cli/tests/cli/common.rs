//! Shared by the tests of the command: runs it, and makes saved answers with known content.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use taskdiag::wire::{BLOB_REWRITTEN, Done, StreamWriter, TASK_EXITING, TASK_KTHREAD};
use taskdiag::{Base, Cred, Group, Groups, Reason, Stat, Statm, Strategy};

/// The program, with an environment that changes nothing.
pub fn taskdiag() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_taskdiag"));
    c.env_remove("NO_COLOR").env_remove("COLUMNS").env_remove("TASKDIAG_ENGINE").env("TZ", "UTC");
    c
}

/// Run with arguments.
pub fn run(args: &[&str]) -> Output {
    taskdiag().args(args).output().expect("the program runs")
}

/// The output of another program.
pub fn output(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).env_remove("TASKDIAG_ENGINE").output().unwrap()
}

/// Reports a skipped test in the list that `make test` prints at its end.
pub fn skip(test: &str, why: &str) {
    let required = std::env::var("TASKDIAG_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == "procps"), "procps is required, but {why}");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target");
    let list = File::options().create(true).append(true).open(target.join("taskdiag-skips.txt"));
    writeln!(list.expect("the target can be written"), "{test}: {why}").expect("written");
}

/// Exit code, output, error output.
pub fn parts(o: &Output) -> (i32, String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (o.status.code().expect("not killed"), text(&o.stdout), text(&o.stderr))
}

/// Waits until a child has become the program with this name and sleeps, or is stopped, or has
/// ended. `spawn()` returns before that.
pub fn wait_for_sleep(child: u32, name: &str) {
    let sleeps = format!("{child} ({name}) S ");
    for _ in 0..6000 {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).expect("it is a child");
        let is_idle = [") T ", ") Z "].iter().any(|state| stat.contains(state));
        if is_idle || stat.starts_with(&sleeps) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("process {child} does not become {name}");
}

/// A child process, which is killed when the value is dropped, even after a failed assertion.
pub struct Ended(pub Child);

impl Ended {
    /// Its pid, as an argument.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A task of a made-up answer.
#[derive(Clone)]
pub struct Task {
    pub pid: u32,
    pub tgid: u32,
    pub ppid: u32,
    pub uid: u32,
    pub state: u8,
    pub flags: u32,
    pub comm: Vec<u8>,
    /// `None` if it has none.
    pub args: Option<Vec<u8>>,
    pub rewritten: bool,
    pub rss: Option<u64>,
    pub cpu_ns: u64,
    pub start_s: u64,
    pub denied: Vec<Group>,
    /// The true length of the arguments, if it is longer than the text.
    pub args_total: Option<usize>,
}

impl Task {
    pub fn new(pid: u32, ppid: u32, comm: &str) -> Task {
        Task {
            pid,
            tgid: pid,
            ppid,
            uid: 0,
            state: b'S',
            flags: 0,
            comm: comm.into(),
            args: Some(format!("/bin/{comm}\0-x\0").into()),
            rewritten: false,
            rss: Some(u64::from(pid) << 20),
            cpu_ns: u64::from(pid) * 61_000_000_000,
            start_s: u64::from(pid),
            denied: Vec::new(),
            args_total: None,
        }
    }
    pub fn kthread(pid: u32, comm: &str) -> Task {
        let base = Task::new(pid, 2, comm);
        Task { args: None, rss: None, flags: TASK_KTHREAD, ..base }
    }
    pub fn zombie(pid: u32, ppid: u32, comm: &str) -> Task {
        let base = Task::new(pid, ppid, comm);
        Task { args: None, rss: None, state: b'Z', flags: TASK_EXITING, ..base }
    }
}

/// Groups of the made-up answers.
pub const GROUPS: Groups = Groups::BASE
    .union(Groups::CRED)
    .union(Groups::STAT)
    .union(Groups::STATM)
    .union(Groups::CMDLINE);

/// Now, in the made-up answers: Thu Jan 01 2026 12:00:00 UTC, 100,000 s after boot.
pub const NOW_S: u64 = 1_767_268_800;

/// The bytes of an answer.
pub fn stream(strategy: Strategy, tasks: &[Task], done: Done) -> Vec<u8> {
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    info.show_flags = GROUPS.bits();
    info.dump_strategy = strategy as u64;
    info.pid = u32::from(strategy.takes_pid());
    info.realtime_ns = NOW_S * 1_000_000_000;
    info.boottime_ns = 100_000 * 1_000_000_000;
    info.mem_total_bytes = 1 << 30;
    info.page_size = 4096;
    info.clk_tck = 100;
    info.procfs_groups = GROUPS.bits();
    w.info(&info);
    for t in tasks {
        w.begin_task(t.pid, t.tgid);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        (base.ppid, base.pgid, base.sid) = (t.ppid, t.tgid, t.tgid);
        (base.state, base.flags) = (t.state, t.flags);
        base.start_time_ns = t.start_s * 1_000_000_000;
        w.put_base(&base, &t.comm);
        let mut cred = Cred::new();
        cred.valid = Cred::ALL_VALID;
        (cred.uid, cred.euid) = (t.uid, t.uid);
        w.put(&cred);
        let mut stat = Stat::new();
        stat.valid = Stat::ALL_VALID;
        (stat.utime_ns, stat.num_threads, stat.priority, stat.tty_pgrp) = (t.cpu_ns, 1, 20, -1);
        w.put(&stat);
        match t.rss {
            _ if t.denied.contains(&Group::Statm) => w.missing(Group::Statm, Reason::Denied),
            None => w.missing(Group::Statm, Reason::Absent),
            Some(rss) => {
                let mut statm = Statm::new();
                statm.valid = Statm::ALL_VALID;
                (statm.rss_bytes, statm.size_bytes) = (rss, rss * 2);
                w.put(&statm);
            }
        }
        match &t.args {
            _ if t.denied.contains(&Group::Cmdline) => w.missing(Group::Cmdline, Reason::Denied),
            None => w.missing(Group::Cmdline, Reason::Absent),
            Some(a) => {
                let flags = if t.rewritten { BLOB_REWRITTEN } else { 0 };
                w.put_blob(Group::Cmdline as u16, 0, flags, a, t.args_total.unwrap_or(a.len()));
            }
        }
        w.end_task();
    }
    w.finish(done).as_bytes().to_vec()
}

/// A saved answer in a file that lasts as long as the value.
pub struct Saved {
    dir: tempfile::TempDir,
}

impl Saved {
    pub fn bytes(bytes: &[u8]) -> Saved {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("f"), bytes).expect("written");
        Saved { dir }
    }
    pub fn tasks(tasks: &[Task]) -> Saved {
        Saved::bytes(&stream(Strategy::All, tasks, Done::default()))
    }
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("f")
    }
    /// `taskdiag ps --from` it, with more arguments.
    pub fn ps(&self, args: &[&str]) -> (i32, String, String) {
        parts(&self.command(args).output().expect("the program runs"))
    }
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = taskdiag();
        c.arg("ps").arg("--from").arg(self.path()).args(args);
        c
    }
}

/// A small machine: init, a kernel thread, a shell with a child, a zombie.
pub fn machine() -> Vec<Task> {
    vec![
        Task::new(1, 0, "init"),
        Task { ppid: 0, ..Task::kthread(2, "kthreadd") },
        Task::kthread(3, "kworker/0:0"),
        Task { uid: 3_999_999_999, ..Task::new(10, 1, "sh") },
        Task::new(11, 10, "sleep"),
        Task::zombie(12, 10, "gone"),
    ]
}
