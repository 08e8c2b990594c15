//! Runs `mktask` and reads its facts. The task and all of its children end when the value is
//! dropped, or when the test is killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use crate::busy::{Patience, wait_for_sleep};
use crate::skip;

/// The process group of all tasks of this test. The kernel sends SIGHUP to a group with a stopped
/// process when the group becomes orphaned: no living process of it has a parent in another group
/// of the session. In the process group of the test, which may lead the session, a hangup would end
/// the test. The leader of the new group has ended and is never waited for, so that each task can
/// still begin a session of its own.
fn group() -> i32 {
    static LEADER: LazyLock<Child> = LazyLock::new(|| {
        let mut leader = Command::new(Mktask::PATH);
        leader.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        leader.spawn().expect("mktask was built")
    });
    i32::try_from(LEADER.id()).expect("a pid")
}

/// A task in a known state.
#[derive(Debug)]
pub struct Mktask {
    child: Child,
    state: String,
    facts: BTreeMap<String, String>,
}

impl Mktask {
    /// The program.
    pub const PATH: &'static str = env!("MKTASK");

    /// Makes a state. `Err` gives the reason why this machine cannot make it.
    ///
    /// # Panics
    /// If it fails for a reason that no machine should have.
    pub fn start(args: &[&str]) -> Result<Mktask, String> {
        let started = Mktask::attempt(args);
        started.map_err(|line| match line.strip_prefix("skip=") {
            Some(why) => why.to_owned(),
            None => panic!("mktask {}: {line:?}", args.join(" ")),
        })
    }
    /// Makes a state, or reports that this test is skipped, because the machine cannot make it.
    pub fn or_skip(test: &str, args: &[&str]) -> Option<Mktask> {
        Mktask::start(args).map_err(|why| skip(test, &why)).ok()
    }
    /// Starts the state, or reports a loud skip under the name of the state.
    pub fn if_possible(args: &[&str]) -> Option<Mktask> {
        Mktask::or_skip(args[0], args)
    }
    /// The same as [`Mktask::start`], but `Err` has the message of mktask for any failure.
    pub fn attempt(args: &[&str]) -> Result<Mktask, String> {
        let mut child = Command::new(Mktask::PATH)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ours is not inherited, because it may be a file that grows while a test looks at it.
            .stderr(Stdio::null())
            .process_group(group())
            .spawn()
            .expect("mktask was built");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("mktask says something");
        let line = line.trim_end();
        let mut m = Mktask { child, state: args.join(" "), facts: BTreeMap::new() };
        if line.is_empty() || line.starts_with("error=") || line.starts_with("skip=") {
            return Err(line.to_owned());
        }
        let pairs = line.split(' ').map(|kv| kv.split_once('=').expect("key=value"));
        m.facts = pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect();
        m.settle();
        Ok(m)
    }
    /// Waits until the task no longer runs: it has reported that it is ready, and then sleeps or
    /// stops, which takes a moment on a busy machine. A task that always runs is awaited until it
    /// has used some CPU time, because elapsed time means little if it gets no processor.
    fn settle(&self) {
        if !self.has("pid") {
            return;
        }
        let before = ticks(self.pid());
        let mut wait = Patience::new(Duration::from_secs(10));
        while runs(self.pid()) && ticks(self.pid()) < before + 20 && !wait.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    /// The state and its arguments.
    pub fn state(&self) -> &str {
        &self.state
    }
    /// Whether mktask reported a fact with this key.
    pub fn has(&self, key: &str) -> bool {
        self.facts.contains_key(key)
    }
    /// A fact as text.
    pub fn text(&self, key: &str) -> &str {
        self.facts.get(key).unwrap_or_else(|| panic!("mktask {} has no {key}", self.state))
    }
    /// A fact that is a number.
    pub fn num<T: FromStr>(&self, key: &str) -> T {
        let text = self.text(key);
        text.parse().unwrap_or_else(|_| panic!("{key}={text} is not such a number"))
    }
    /// A fact that is a list of numbers. It is empty if there is no such fact.
    pub fn list(&self, key: &str) -> Vec<u32> {
        let text = self.facts.get(key).map_or("", String::as_str);
        text.split(',').filter_map(|n| n.parse().ok()).collect()
    }
    /// A fact that is arbitrary bytes.
    pub fn bytes(&self, key: &str) -> Vec<u8> {
        let text = self.text(key);
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex");
        (0..text.len()).step_by(2).map(byte).collect()
    }
    /// The pid of the task in question.
    pub fn pid(&self) -> u32 {
        self.num("pid")
    }
    /// The pid of the supervisor, which is not in the state itself.
    pub fn supervisor(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Mktask {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let mut wait = Patience::new(Duration::from_secs(10));
        while !wait.is_over() {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a task runs or waits for a processor.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// The CPU time that a task has used, in clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    // utime and stime are the 14th and 15th, and the first one here is the third.
    fields.skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// A child process. Dropping the value ends it, also if an assertion fails.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Ended {
    /// A program that sleeps and has nothing open of ours.
    pub fn sleep() -> Ended {
        let mut sleep = Command::new("sleep");
        sleep.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Ended(sleep.spawn().expect("sleep runs"));
        wait_for_sleep(child.id());
        child
    }
    /// Its pid.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hash by which mktask reports a long value (FNV-1a, 64 bits).
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3))
}
