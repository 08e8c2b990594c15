//! A running service, and callers of it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use taskdiag::EngineId;
use taskdiag_tests::busy::Patience;
use taskdiag_tests::cli::{taskdiag, taskdiagd};
use taskdiag_tests::{Source, engines, is_root, skip};

/// The error of a client if the service is too slow for it.
const TOO_LATE: [&str; 3] = [
    "it did not answer within",
    "it took back the answer",
    "too many clients are waiting to connect",
];

/// The user of the service, who owns no other processes.
const USER: &str = "65533";

/// A service with a socket of its own. Dropping the value ends it.
pub struct Daemon {
    dir: tempfile::TempDir,
    listener: UnixListener,
    child: Child,
}

impl Daemon {
    /// Starts one, or reports loudly why this machine cannot.
    pub fn start(test: &str) -> Option<Daemon> {
        if !is_root() {
            skip(test, "needs root, to be several users");
            return None;
        }
        if !engines().contains(&Source::Engine(EngineId::Bpf)) {
            skip(test, "no BPF here, so the service answers nobody");
            return None;
        }
        let everyone = std::fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().permissions(everyone).tempdir().expect("a directory");
        // Other users cannot enter the directory of the build, perhaps.
        let me = std::env::current_exe().expect("a test has an executable");
        for (program, name) in
            [(taskdiag(), "taskdiag"), (taskdiagd(), "taskdiagd"), (&me, "helper")]
        {
            let status = Command::new("install")
                .arg("-m755")
                .arg(program)
                .arg(dir.path().join(name))
                .status();
            assert!(status.expect("install runs").success(), "{name} is not copied");
        }
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(dir.path().join("socket"), all).expect("changed");
        // SAFETY: the call takes numbers. The standard library has a backlog of 128 only.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 4096) }, 0);
        // As with PassCredentials= of taskdiagd.socket. Without it, the identity of a caller that
        // asks before the service runs would be unknown.
        let (on, len): (libc::c_int, _) = (1, size_of::<libc::c_int>() as libc::socklen_t);
        let (fd, level) = (listener.as_raw_fd(), libc::SOL_SOCKET);
        // SAFETY: the kernel reads one int.
        let rc =
            unsafe { libc::setsockopt(fd, level, libc::SO_PASSCRED, (&raw const on).cast(), len) };
        assert_eq!(rc, 0);
        let child = spawn(dir.path(), &listener);
        Some(Daemon { dir, listener, child })
    }

    /// The directory with the programs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the service in a way that it cannot prevent.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
    }
    /// Starts it again on the same socket, as systemd does.
    pub fn restart(&mut self) {
        self.child = spawn(self.dir.path(), &self.listener);
    }
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// A command with the socket in its environment. The words come before the program, as
    /// `setpriv` does.
    pub fn command(&self, before: &[&str], program: &str, args: &[&str]) -> Command {
        let program = self.dir.path().join(program);
        let mut command = match before.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(args).env("TASKDIAG_SOCKET", self.socket()).env_remove("TASKDIAG_ENGINE");
        command.env("NO_COLOR", "1").env("COLUMNS", "200").stdin(Stdio::null());
        command
    }

    /// Runs `taskdiag`. A client waits two seconds for the service, which may be too short on a
    /// busy machine, but not each time.
    pub fn taskdiag(&self, before: &[&str], args: &[&str]) -> Output {
        let mut patience = Patience::new(Duration::from_secs(30));
        loop {
            let out = self.command(before, "taskdiag", args).output().expect("it runs");
            let said = text(&out.stderr);
            if !TOO_LATE.iter().any(|words| said.contains(words)) || patience.is_over() {
                return out;
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, listener: &UnixListener) -> Child {
    let fd = listener.as_raw_fd();
    let caps = "-all,+bpf,+perfmon";
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec setpriv \"$@\"", "sh"]);
    command.args([format!("--reuid={USER}"), format!("--regid={USER}")]).arg("--clear-groups");
    command.args(["inh-caps", "ambient-caps", "bounding-set"].map(|c| format!("--{c}={caps}")));
    command
        .args(["--no-new-privs", "--pdeathsig=KILL"])
        .arg(dir.join("taskdiagd"))
        .arg("--idle-exit=600");
    command.env("LISTEN_FDS", "1").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: between fork and exec, one or two system calls.
    unsafe {
        command.pre_exec(move || {
            // dup2() on itself would leave it to be closed.
            let rc = match fd {
                3 => libc::fcntl(3, libc::F_SETFD, 0),
                _ => libc::dup2(fd, 3),
            };
            if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    command.spawn().expect("setpriv runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As somebody without groups or capabilities.
pub const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
