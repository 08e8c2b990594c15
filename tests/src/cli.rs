//! Runs the built `taskdiag` program in odd surroundings. Cargo gives a test only the paths of its
//! own crate's programs, so the program is built here, once, into the directory of this test.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::busy::crowd;
use crate::skips::target_dir;

/// The path of the program, which is built now if it is not up to date. On machines without cargo,
/// `TASKDIAG_BIN` names it.
///
/// # Panics
/// If it cannot be built.
pub fn taskdiag() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built(&["taskdiag-cli"], "taskdiag", "TASKDIAG_BIN", PROFILE))
}

/// The path of the service, which is built now if it is not up to date. On machines without cargo,
/// `TASKDIAGD_BIN` names it.
///
/// # Panics
/// If it cannot be built.
pub fn taskdiagd() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built(&["taskdiagd"], "taskdiagd", "TASKDIAGD_BIN", PROFILE))
}

/// The path of the drop-in for libproc2, which is built like the program. In a release it has a
/// separate profile, because a panic must not end the program that loads it. On machines without
/// cargo, `TASKDIAG_PROCPS_LIB` names it.
///
/// # Panics
/// If it cannot be built.
pub fn dropin() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        built(&LIBRARIES, "libtaskdiag_procps.so", "TASKDIAG_PROCPS_LIB", PROFILE_OF_LIBRARIES)
    })
}

/// The path of the library for C, which is built and linked now if it is not up to date. On
/// machines without cargo, `TASKDIAG_C_LIB` names it.
///
/// # Panics
/// If it cannot be built.
pub fn c_library() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("TASKDIAG_C_LIB") {
            return path.into();
        }
        let archive = built(&LIBRARIES, "libtaskdiag_c.a", "", PROFILE_OF_LIBRARIES);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/taskdiag-c");
        let (link, map) = (source.join("link"), source.join("taskdiag.map"));
        let path = archive.with_file_name("libtaskdiag.so.0");
        let when = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let newest = [&archive, &link, &map].into_iter().filter_map(|p| when(p)).max();
        if when(&path) <= newest {
            // Other tests may do the same at this moment.
            let part = path.with_extension(format!("part{}", std::process::id()));
            let status = Command::new(&link).arg(&archive).arg(&part).status().expect("it runs");
            assert!(status.success(), "{} fails", link.display());
            std::fs::rename(&part, &path).expect("it is renamed");
        }
        path
    })
}

/// The libraries for other programs. They are built together, so that code that they share is built
/// once.
const LIBRARIES: [&str; 2] = ["taskdiag-procps", "taskdiag-c"];
const PROFILE_OF_LIBRARIES: &str = if cfg!(debug_assertions) { "debug" } else { "dropin" };

/// The directory of the profile that the tests themselves are built with.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// The path that the variable names, or else of this file of packages of the workspace, which are
/// built.
fn built(packages: &[&str], file: &str, var: &str, profile: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(var) {
        return path.into();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "-q", "--target-dir"]).arg(target_dir());
    build.args(packages.iter().flat_map(|package| ["-p", package]));
    if profile != "debug" {
        build.args(["--profile", profile]);
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(status.success(), "{packages:?} do not build");
    let path = target_dir().join(profile).join(file);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

/// How the program ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The exit code, or `None` if a signal ended it. 126 means that the surroundings could not be
    /// made.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
    /// Its arguments.
    pub args: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "taskdiag {} exits with {:?}", self.args, self.code)?;
        let head: Vec<&str> = self.stdout.lines().take(20).collect();
        write!(f, "stdout: {}\nstderr: {}", head.join("\n"), self.stderr)
    }
}

/// Surroundings for a run of the program.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    limits: Vec<(u32, u64)>,
    /// A system call, its first argument, and the action of a filter for it.
    denied_commands: Vec<(u32, u32, u32)>,
    /// System calls, and the action of a filter for each.
    denied: Vec<(u32, u32)>,
    user: Option<u32>,
    proc: Proc,
    /// The process whose mount namespace the program enters.
    mounts_of: Option<u32>,
    env: Vec<(String, String)>,
    conf: Option<Conf>,
    /// The command that runs it.
    through: Vec<String>,
    interrupt_after: Option<Duration>,
}

/// A file `/etc/taskdiag.conf`.
#[derive(Clone, Debug)]
struct Conf {
    text: String,
    mode: u32,
    uid: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Proc {
    #[default]
    AsItIs,
    None,
    HidePid,
}

impl Sandbox {
    /// A sandbox with the same surroundings as the test itself.
    pub fn new() -> Sandbox {
        Sandbox::default()
    }
    /// With a resource limit (soft and hard).
    pub fn limit(mut self, resource: libc::__rlimit_resource_t, n: u64) -> Sandbox {
        self.limits.push((resource, n));
        self
    }
    /// With a system call that always fails with `errno`.
    pub fn deny(mut self, call: libc::c_long, errno: i32) -> Sandbox {
        self.denied.push((call as u32, libc::SECCOMP_RET_ERRNO | errno as u32));
        self
    }
    /// A system call fails with `errno` if its first argument is this one.
    pub fn deny_command(mut self, call: libc::c_long, first: u32, errno: i32) -> Sandbox {
        let action = libc::SECCOMP_RET_ERRNO | errno as u32;
        self.denied_commands.push((call as u32, first, action));
        self
    }
    /// Makes this system call end the program.
    pub fn deadly(mut self, call: libc::c_long) -> Sandbox {
        self.denied.push((call as u32, libc::SECCOMP_RET_KILL_PROCESS));
        self
    }
    /// Runs the program in the mount namespace of this process.
    pub fn mounts_of(mut self, pid: u32) -> Sandbox {
        self.mounts_of = Some(pid);
        self
    }
    /// Adds this variable to the environment.
    pub fn env(mut self, name: &str, value: &str) -> Sandbox {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
    /// /etc only has this file, as `/etc/taskdiag.conf`.
    pub fn conf(mut self, text: &str, mode: u32, uid: u32) -> Sandbox {
        self.conf = Some(Conf { text: text.to_owned(), mode, uid });
        self
    }
    /// Starts the program through another command, such as `unshare --pid --fork`, which gets the
    /// program and its arguments.
    pub fn through(mut self, command: &[&str]) -> Sandbox {
        self.through = command.iter().map(|s| (*s).to_owned()).collect();
        self
    }
    /// Interrupted (Ctrl-C) after this time.
    pub fn interrupt_after(mut self, time: Duration) -> Sandbox {
        self.interrupt_after = Some(time);
        self
    }
    /// As another user, without groups or capabilities.
    pub fn user(mut self, uid: u32) -> Sandbox {
        self.user = Some(uid);
        self
    }
    /// With no file system on /proc.
    pub fn without_proc(mut self) -> Sandbox {
        self.proc = Proc::None;
        self
    }
    /// With `hidepid=2` on /proc.
    pub fn hidepid(mut self) -> Sandbox {
        self.proc = Proc::HidePid;
        self
    }

    /// Runs `taskdiag` with these arguments, for at most a minute, or longer on a busy machine.
    ///
    /// # Panics
    /// If a copy for another user cannot be made.
    pub fn run(&self, args: &[&str]) -> Ran {
        // The checkout may lie in a place that other users cannot enter.
        let copy = self.user.map(|_| copy_for_everyone());
        let program = copy.as_ref().map_or(taskdiag().clone(), |dir| dir.path().join("taskdiag"));
        let inside = self.clone();
        let mounts = self.mounts_of.map(|pid| {
            File::open(format!("/proc/{pid}/ns/mnt")).expect("it lives, and we are root")
        });
        let mut filter = self.filter();
        let seconds = (60.0 * crowd()) as u32;
        let mut command = match self.through.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(args).env("NO_COLOR", "1").env("COLUMNS", "200");
        command.env_remove("TASKDIAG_ENGINE").envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec, `enter` makes system calls only, on memory made before.
        unsafe { command.pre_exec(move || inside.enter(mounts.as_ref(), &mut filter, seconds)) };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let args = args.join(" ");
        let interrupt = |child: Child| {
            if let Some(time) = self.interrupt_after {
                std::thread::sleep(time);
                // SAFETY: our own child, which nobody has waited for.
                unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
            }
            child.wait_with_output()
        };
        match command.spawn().and_then(interrupt) {
            Ok(out) => {
                let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
                Ran { code: out.status.code(), stdout, stderr, args }
            }
            Err(e) => Ran { code: Some(126), stdout: String::new(), stderr: e.to_string(), args },
        }
    }

    /// The seccomp program for the denied calls.
    fn filter(&self) -> Vec<libc::sock_filter> {
        let stmt =
            |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
        if self.denied.is_empty() && self.denied_commands.is_empty() {
            return Vec::new();
        }
        // seccomp_data.nr is its first member.
        let mut program = vec![stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
        for (call, action) in &self.denied {
            program.push(stmt(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call, 0, 1));
            program.push(stmt(libc::BPF_RET | libc::BPF_K, *action, 0, 0));
        }
        // The low half of the first argument is at offset 16.
        for (call, first, action) in &self.denied_commands {
            program.push(stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0));
            program.push(stmt(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call, 0, 3));
            program.push(stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16, 0, 0));
            program.push(stmt(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *first, 0, 1));
            program.push(stmt(libc::BPF_RET | libc::BPF_K, *action, 0, 0));
        }
        program.push(stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
        program
    }

    fn enter(
        &self,
        mounts: Option<&File>,
        filter: &mut [libc::sock_filter],
        seconds: u32,
    ) -> io::Result<()> {
        let proc = c"/proc".as_ptr();
        // SAFETY: system calls on strings and structs that outlive them.
        unsafe {
            // A run that hangs is killed, and has no exit code.
            libc::alarm(seconds);
            // SIGINT may be ignored if the test runs in the background of a shell.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            if let Some(mounts) = mounts {
                ok(libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS).into())?;
            }
            if self.proc != Proc::AsItIs || self.conf.is_some() {
                ok(libc::unshare(libc::CLONE_NEWNS).into())?;
                let private = libc::MS_REC | libc::MS_PRIVATE;
                let none = std::ptr::null();
                ok(libc::mount(none, c"/".as_ptr(), none, private, none.cast()).into())?;
            }
            if let Some(conf) = &self.conf {
                conf.put()?;
            }
            if self.proc != Proc::AsItIs {
                if self.proc == Proc::None {
                    ok(libc::umount2(proc, libc::MNT_DETACH).into())?;
                } else {
                    let data = c"hidepid=2".as_ptr().cast();
                    ok(libc::mount(c"proc".as_ptr(), proc, c"proc".as_ptr(), 0, data).into())?;
                }
            }
            for (resource, n) in &self.limits {
                let limit = libc::rlimit { rlim_cur: *n, rlim_max: *n };
                ok(libc::setrlimit(*resource as _, &limit).into())?;
            }
            if let Some(uid) = self.user {
                // These are the calls themselves, because the library's wrappers signal other
                // threads.
                ok(libc::syscall(libc::SYS_setgroups, 0, 0))?;
                ok(libc::syscall(libc::SYS_setresgid, uid, uid, uid))?;
                ok(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
            }
            if !filter.is_empty() {
                let program =
                    libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
                ok(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
                let mode = libc::SECCOMP_MODE_FILTER;
                ok(libc::prctl(libc::PR_SET_SECCOMP, mode, &program).into())?;
            }
        }
        Ok(())
    }
}

fn ok(rc: libc::c_long) -> io::Result<()> {
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Conf {
    /// Makes the file, on a file system of its own, by system calls only.
    fn put(&self) -> io::Result<()> {
        let (tmpfs, etc) = (c"tmpfs".as_ptr(), c"/etc".as_ptr());
        // SAFETY: system calls on strings that outlive them.
        unsafe {
            ok(libc::mount(tmpfs, etc, tmpfs, 0, c"mode=755".as_ptr().cast()).into())?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC;
            let fd = libc::open(c"/etc/taskdiag.conf".as_ptr(), flags, 0o600);
            ok(fd.into())?;
            ok(libc::write(fd, self.text.as_ptr().cast(), self.text.len()) as libc::c_long)?;
            ok(libc::fchown(fd, self.uid, 0).into())?;
            ok(libc::fchmod(fd, self.mode).into())?;
            ok(libc::close(fd).into())
        }
    }
}

fn copy_for_everyone() -> tempfile::TempDir {
    let everyone = std::fs::Permissions::from_mode(0o755);
    let dir =
        tempfile::Builder::new().permissions(everyone.clone()).tempdir().expect("a directory");
    // Another process makes the copy. A test that forks while we write would keep the file open for
    // writing, and such a file cannot be executed.
    let copied = Command::new("install").arg("-m755").arg(taskdiag()).arg(dir.path()).status();
    assert!(copied.expect("install runs").success(), "taskdiag is not copied");
    dir
}
