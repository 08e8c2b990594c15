//! A control group with a limit of memory, as systemd makes one for a unit with `MemoryMax=`. A
//! process that needs more is killed, which the group counts.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A group below the group of this process. Dropping the value removes it, after all its processes
/// have ended.
pub struct Memcg {
    dir: PathBuf,
    /// Is it one of the first version of control groups?
    is_v1: bool,
}

impl Memcg {
    /// A group with this much memory.
    ///
    /// # Errors
    /// The reason why this machine lets us make no group.
    pub fn new(bytes: u64) -> Result<Memcg, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let path = |is_it: &dyn Fn(&str) -> bool| {
            let lines = own.lines().filter_map(|l| l.split_once(':')?.1.split_once(':'));
            lines.filter(|(names, _)| is_it(names)).map(|(_, path)| path.to_owned()).next()
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("taskdiag-test-{}-{n}", std::process::id());
        let mut why = String::from("no hierarchy of control groups has memory");
        if let Some(own) = path(&|names| names.split(',').any(|n| n == "memory")) {
            let root = Path::new("/sys/fs/cgroup/memory");
            let parents = [root.join(own.trim_start_matches('/')), root.to_owned()];
            for parent in parents.iter().filter(|p| p.join("memory.limit_in_bytes").exists()) {
                match Memcg::make(parent.join(&name), true, bytes) {
                    Ok(group) => return Ok(group),
                    Err(e) => why = format!("{}: {e}", parent.display()),
                }
            }
        } else if let Some(own) = path(&|names| names.is_empty()) {
            let root = Path::new("/sys/fs/cgroup");
            // A group that has processes of its own does not let its children limit memory. A group
            // above it may.
            let start = root.join(own.trim_start_matches('/'));
            let gives = |dir: &&Path| {
                let file = fs::read_to_string(dir.join("cgroup.subtree_control"));
                file.is_ok_and(|names| names.split_whitespace().any(|n| n == "memory"))
            };
            let above = start.ancestors().take_while(|p| p.starts_with(root));
            for parent in above.filter(gives) {
                match Memcg::make(parent.join(&name), false, bytes) {
                    Ok(group) => return Ok(group),
                    Err(e) => why = format!("{}: {e}", parent.display()),
                }
            }
        }
        Err(format!("no control group with a limit of memory can be made: {why}"))
    }

    fn make(dir: PathBuf, is_v1: bool, bytes: u64) -> io::Result<Memcg> {
        fs::create_dir(&dir)?;
        let group = Memcg { dir, is_v1 };
        let limit = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        group.write(limit, bytes)?;
        // Swap is limited, too; otherwise the limit of memory would be useless. Where there is no
        // swap, the file may be missing.
        if is_v1 {
            let _ = group.write("memory.memsw.limit_in_bytes", bytes);
        } else {
            let _ = group.write("memory.swap.max", 0);
        }
        Ok(group)
    }

    fn write(&self, file: &str, number: u64) -> io::Result<()> {
        fs::write(self.dir.join(file), number.to_string())
    }

    /// The version of control groups that limits its memory: 1 or 2.
    pub fn version(&self) -> u32 {
        if self.is_v1 { 1 } else { 2 }
    }

    /// Moves a process into it. Memory that it has already stays counted in its old group.
    pub fn take(&self, pid: u32) {
        self.write("cgroup.procs", u64::from(pid)).expect("the process lives");
    }

    /// Lets a command run in it from its first page on.
    pub fn run_in(&self, command: &mut Command) {
        let file = File::options().write(true).open(self.dir.join("cgroup.procs"));
        let file: OwnedFd = file.expect("the group is there").into();
        // SAFETY: the call gets a byte that is valid.
        let enter = move || match unsafe { libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) }
        {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: between fork and exec only a system call.
        unsafe { command.pre_exec(enter) };
    }

    /// How many of its processes the kernel has killed because there was no memory.
    pub fn killed(&self) -> u64 {
        let file = if self.is_v1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.dir.join(file)).expect("the group is there");
        let count = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        count.and_then(|n| n.trim().parse().ok()).expect("the kernel counts them")
    }
}

impl Drop for Memcg {
    fn drop(&mut self) {
        // Processes that have been killed may take a moment to leave it.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// `MemoryMax=` of a unit in `contrib/systemd`, in bytes.
pub fn memory_max(unit: &str) -> u64 {
    let value = directive(unit, "MemoryMax");
    let (digits, unit) = value.split_at(value.len() - 1);
    let scale = match unit {
        "M" => 1 << 20,
        "G" => 1 << 30,
        other => panic!("MemoryMax={value}: {other} is not known here"),
    };
    digits.parse::<u64>().expect("a number") * scale
}

/// The words of `ExecStart=` of a unit after the name of the program.
pub fn arguments(unit: &str) -> Vec<String> {
    directive(unit, "ExecStart").split_whitespace().skip(1).map(str::to_owned).collect()
}

fn directive(unit: &str, name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/systemd");
    let text = fs::read_to_string(Path::new(path).join(unit)).expect("the unit is there");
    let value = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("{unit} has no {name}")).to_owned()
}

/// Whether the kernel kills a process of the group that takes 512 MiB. On a machine whose kernel
/// never kills, such a test would prove nothing.
pub fn limits_memory(group: &Memcg) -> bool {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"]);
    command.stderr(std::process::Stdio::null());
    group.run_in(&mut command);
    let before = group.killed();
    command.status().is_ok_and(|status| !status.success()) && group.killed() > before
}
