//! Processes that stand still in separate namespaces, and a shell outside of them that runs the
//! tools inside, on a separate terminal.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use taskdiag_tests::{Mktask, cli, is_root};

/// The process id of each tool in the namespace.
pub const OWN_PID: u32 = 30_000;

/// How a tool ended.
#[derive(Clone, Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The processes and the shell. Dropping the value ends them.
pub struct World {
    shell: Child,
    /// Script for the shell. Closing it ends all processes.
    script: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    dir: tempfile::TempDir,
    _terminals: [OwnedFd; 2],
}

/// A new terminal: its master, and the path of the other side.
fn terminal() -> std::io::Result<(OwnedFd, String)> {
    // SAFETY: plain calls, on a descriptor that was just opened; the name goes to a buffer of that
    // size.
    unsafe {
        let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        if fd < 0 || libc::grantpt(fd) != 0 || libc::unlockpt(fd) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut name = [0; 64];
        if libc::ptsname_r(fd, name.as_mut_ptr(), name.len()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let path = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
        Ok((OwnedFd::from_raw_fd(fd), path))
    }
}

/// The program under the names that it answers to, in a directory to be put first in PATH. It is a
/// copy, for users who may not enter the checkout.
fn links(dir: &Path) {
    // Another process makes the copy, see `cli.rs`.
    let copied = Command::new("install").arg("-m755").arg(cli::taskdiag()).arg(dir).status();
    assert!(copied.expect("install runs").success(), "taskdiag is not copied");
    for name in ["ps", "pmap", "pstree", "lsof"] {
        std::os::unix::fs::symlink("taskdiag", dir.join(name)).expect("a new directory");
    }
}

impl World {
    /// Start the processes. `Err` says why that is not possible here.
    pub fn new() -> Result<World, String> {
        if !is_root() {
            return Err(String::from("a pid namespace with other users in it needs root"));
        }
        for tool in ["ps", "pmap", "lsof", "pstree", "unshare", "nsenter", "setpriv", "chrt", "ip"]
        {
            let found = Command::new("which").arg(tool).stdout(Stdio::null()).status();
            if !found.is_ok_and(|s| s.success()) {
                return Err(format!("{tool} is not installed: tools/setup test installs it"));
            }
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Other users look into it.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("our own");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("a new directory");
        fs::set_permissions(&bin, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("our own");
        links(&bin);
        let workload = dir.path().join("workload.sh");
        fs::write(&workload, include_str!("workload.sh")).expect("a new directory");
        let (own, own_path) = terminal().map_err(|e| format!("no terminal: {e}"))?;
        let (other, other_path) = terminal().map_err(|e| format!("no terminal: {e}"))?;
        // A test that leads a session must not get the terminal, which goes to the shell.
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let tty = options.open(&own_path).expect("unlocked");
        let tty = tty.as_raw_fd().to_owned();
        let mut bash = Command::new("bash");
        bash.arg("--norc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join("shell")).expect("a new directory"))
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("SCRATCH", dir.path())
            .env("BIN", &bin)
            .env("MKTASK", Mktask::PATH)
            .env("OTHER_TTY", other_path)
            .env("OWN_TTY", own_path.trim_start_matches("/dev/"));
        // Invocations name descriptors by their numbers. Descriptors that the test was started with
        // would shift these, so only the first three are kept.
        let at_exec = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
        // SAFETY: between fork and exec only system calls, on descriptors that are open here.
        unsafe {
            bash.pre_exec(move || {
                if libc::setsid() < 0
                    || libc::ioctl(tty, libc::TIOCSCTTY, 0) < 0
                    || libc::close_range(3, libc::c_uint::MAX, at_exec) < 0
                {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut shell = bash.spawn().map_err(|e| format!("bash does not start: {e}"))?;
        let script = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("piped"));
        let mut world = World { shell, script, answers, dir, _terminals: [own, other] };
        world.write(
            "trap 'kill -9 $unshare' EXIT\n\
             coproc W { exec unshare --mount --pid --net --ipc --fork --kill-child --mount-proc \
             sh -c 'bash $SCRATCH/workload.sh; exec sleep 100000 >/dev/null'; }\n\
             unshare=$W_PID; read -r ready <&${W[0]}; \
             ns=$(pgrep -P $unshare); \
             for f in memory threads stopped creds cmdline; do \
             declare PID_$f=$(tr ' ' '\\n' <$SCRATCH/facts.$f | sed -n 's/^pid=//p'); done; \
             PID_sleep=$(nsenter -t $ns -p -m pgrep -xf 'sleep 7001'); echo \"$ready\"\n",
        );
        let ready = world.line();
        if ready != "ready facts=6" {
            let errors = fs::read_to_string(world.dir.path().join("errors")).unwrap_or_default();
            return Err(format!("the processes do not start: {ready} {errors}"));
        }
        Ok(world)
    }
    fn write(&mut self, text: &str) {
        let script = self.script.as_mut().expect("it is open until the end");
        script.write_all(text.as_bytes()).expect("the shell lives");
    }
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the shell says something");
        line.trim_end().to_owned()
    }
    /// Starts one more process with this state of mktask. Its id is then in PID_`name`. Returns
    /// whether it is ready.
    pub fn add(&mut self, state: &str, name: &str) -> bool {
        self.write(&format!(
            "nsenter -t $ns -p -m -n -i sh -c 'cd $SCRATCH; (sleep 100000 | $MKTASK {state} >facts.{name}) \
             </dev/null >/dev/null 2>&1 &'; \
             for i in $(seq 600); do grep -q pid= $SCRATCH/facts.{name} && break; sleep 0.1; done; \
             PID_{name}=$(tr ' ' '\\n' <$SCRATCH/facts.{name} | sed -n 's/^pid=//p'); echo \"$PID_{name}\"\n"
        ));
        self.line().parse::<u32>().is_ok()
    }
    /// Write a file that is in $SCRATCH.
    pub fn write_file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).expect("a directory of our own");
    }
    /// Run a command line inside. Words of the shell may stand in it.
    pub fn run(&mut self, command: &str) -> Ran {
        let last = OWN_PID - 1;
        self.write(&format!(
            "nsenter -t $ns -p -m sh -c 'echo {last} >/proc/sys/kernel/ns_last_pid'; \
             run() {{ nsenter -t $ns -p -m -n \"$@\"; }}; \
             ( {command} ) >$SCRATCH/out 2>$SCRATCH/err </dev/null; echo $?\n"
        ));
        let code = self.line();
        let read = |name: &str| {
            let mut bytes = Vec::new();
            let file = File::open(self.dir.path().join(name));
            file.and_then(|mut f| f.read_to_end(&mut bytes)).expect("the shell made it");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let code = code.parse().unwrap_or_else(|_| panic!("{command}: {code:?} {}", read("shell")));
        Ran { code, stdout: read("out"), stderr: read("err") }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.script.take());
        let _ = self.shell.wait();
    }
}
