//! Columns of NVIDIA's graphics processors, with a stand-in for the library of its driver. No
//! machine of ours has such a device: the processes of these tests only name its file.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag_tests::Ended;
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::skips::skip;

const NOBODY: u32 = 65534;
/// The major number of NVIDIA's devices.
const MAJOR: u32 = 195;

/// A directory that everyone may read, with the command, device files and a library.
struct Machine(tempfile::TempDir);

impl Machine {
    /// `None`: this test does not run as root, or cannot make device files.
    fn new(test: &str, options: &[&str]) -> Option<Machine> {
        // SAFETY: this reads a number.
        if unsafe { libc::geteuid() } != 0 {
            skip(test, "only root can make device files");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let machine = Machine(dir);
        // Another process makes the copy, see `cli.rs`.
        let status =
            Command::new("install").arg("-m755").arg(taskdiag()).arg(machine.0.path()).status();
        assert!(status.expect("install runs").success());
        for minor in [0, 1] {
            let path = machine.path(&format!("nvidia{minor}"));
            let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes());
            let dev = libc::makedev(MAJOR, minor);
            // SAFETY: a path that lives across the call.
            let made =
                unsafe { libc::mknod(path.expect("no NUL").as_ptr(), libc::S_IFCHR | 0o666, dev) };
            if made != 0 {
                skip(test, "no device files can be made here");
                return None;
            }
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvidia/standin.c");
        let processes = format!("-DPROCESSES=\"{}\"", machine.path("processes").display());
        let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", &processes])
            .args(options)
            .arg("-o")
            .arg(machine.path("libnvidia-ml.so.1"))
            .arg(source)
            .status();
        if status.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            skip(test, "there is no C compiler");
            return None;
        }
        assert!(status.expect("a C compiler").success(), "the stand-in does not compile");
        Some(machine)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// A process of an ordinary user that has this device open. There is no driver, so the device
    /// is open as a path only.
    fn user(&self, minor: u32) -> Ended {
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(self.path(&format!("nvidia{minor}")));
        let device: OwnedFd = open.expect("it can be named").into();
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::from(device)).uid(NOBODY).gid(NOBODY);
        Ended(command.spawn().expect("it starts"))
    }
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("taskdiag"));
        command.args(args).uid(NOBODY).gid(NOBODY).current_dir("/");
        command.env("TASKDIAG_NVML", self.path("libnvidia-ml.so.1"));
        command
    }
    /// The rows of these processes, by pid.
    fn rows(&self, users: &[&Ended], columns: &str) -> Vec<serde_json::Value> {
        let pids: Vec<String> = users.iter().map(|u| u.id().to_string()).collect();
        let args = ["ps", "--json", "-o", columns, "-p", &pids.join(",")];
        let out = self.command(&args).output().expect("it runs");
        let all: Vec<serde_json::Value> =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
        assert_eq!(all.len(), users.len(), "{out:?}");
        all
    }
    /// The helpers that run.
    fn helpers(&self) -> usize {
        let exe = self.path("taskdiag");
        let all = fs::read_dir("/proc").expect("it can be read").flatten();
        all.filter(|p| fs::read_link(p.path().join("exe")).is_ok_and(|e| e == exe)).count()
    }
    fn no_helper_stays(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.helpers() > 0 {
            assert!(Instant::now() < until, "a helper stays");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn values_are_those_of_the_library_of_nvidia() {
    let test = "values_are_those_of_the_library_of_nvidia";
    let Some(machine) = Machine::new(test, &[]) else { return };
    let (a, b, c) = (machine.user(1), machine.user(0), machine.user(0));
    // The devices 0 and 1 of the library have the files nvidia1 and nvidia0.
    let text = format!("0 {} 300 40\n1 {} -1 5\n", a.id(), b.id());
    fs::write(machine.path("processes"), text).expect("written");
    let unknown = serde_json::Value::Null;
    let look = || machine.rows(&[&a, &b, &c], "pid,gpu,gpu_mem,gpu_time");
    // On a busy machine, the helper may take too long to start.
    let is_there = |rows: &Vec<serde_json::Value>| rows.iter().any(|r| !r["gpu_mem"].is_null());
    let rows = (0..10).map(|_| look()).find(is_there).expect("it answers in time");
    let of = |user: &Ended| rows.iter().find(|r| r["pid"] == user.id()).expect("a row");
    assert_eq!(
        (&of(&a)["gpu"], &of(&a)["gpu_mem"]),
        (&"0000:11:00.0/nvidia".into(), &(300u64 << 20).into())
    );
    // Values that the library does not know are not 0: the memory of `b`, all of `c`, and the time.
    assert_eq!((&of(&b)["gpu"], &of(&b)["gpu_mem"]), (&"195:0/nvidia".into(), &unknown));
    assert_eq!((&of(&c)["gpu"], &of(&c)["gpu_mem"]), (&"195:0/nvidia".into(), &unknown));
    assert!([&a, &b, &c].iter().all(|user| of(user)["gpu_time"] == unknown), "{rows:?}");
    // The share of the GPU's time between two answers.
    let pid = a.id().to_string();
    let args = ["top", "-b", "-n", "3", "-d", "0.3", "-o", "pid,gpu_percent", "-p", &pid];
    let out = machine.command(&args).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut shares = text.lines().filter_map(|l| l.trim().strip_prefix(&pid)).map(str::trim);
    let share: f64 = shares.next_back().expect("a row").parse().expect("a number");
    // The times of the two answers are rounded, so the share is not exactly 40.
    assert!((39.0..=41.0).contains(&share), "{out:?}");
    machine.no_helper_stays();
    // Nobody else is asked, and no helper is started.
    let pid = std::process::id().to_string();
    let out = machine.command(&["ps", "-o", "pid,gpu_mem", "-p", &pid]).output().expect("it runs");
    assert!(!out.stdout.is_empty(), "{out:?}");
}

#[test]
fn a_library_of_nvidia_that_hangs_delays_no_answer() {
    let test = "a_library_of_nvidia_that_hangs_delays_no_answer";
    let Some(machine) = Machine::new(test, &["-DHANGS"]) else { return };
    let user = machine.user(0);
    let begin = Instant::now();
    let rows = machine.rows(&[&user], "pid,gpu,gpu_mem");
    assert_eq!(
        (&rows[0]["gpu"], &rows[0]["gpu_mem"]),
        (&"195:0/nvidia".into(), &serde_json::Value::Null)
    );
    assert!(begin.elapsed() >= Duration::from_secs(3), "it did not wait");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    machine.no_helper_stays();
}

#[test]
fn root_asks_no_library_that_the_environment_names() {
    let test = "root_asks_no_library_that_the_environment_names";
    let Some(machine) = Machine::new(test, &[]) else { return };
    let user = machine.user(1);
    fs::write(machine.path("processes"), format!("0 {} 300 40\n", user.id())).expect("written");
    let pid = user.id().to_string();
    let args = ["ps", "--json", "-o", "pid,gpu,gpu_mem", "-p", &pid];
    let out = machine.command(&args).uid(0).gid(0).output().expect("it runs");
    assert!(!String::from_utf8_lossy(&out.stdout).contains("314572800"), "{out:?}");
}
