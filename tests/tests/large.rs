//! Tasks whose values together are larger than what an engine writes in one go: no value is cut,
//! and none runs into the next.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use taskdiag::{Groups, Request};
use taskdiag_tests::answer::{engines, read};
use taskdiag_tests::skip;

/// The kernel's NGROUPS_MAX.
const GIDS: u32 = 65_536;
/// Two fill a chunk of the bpf engine's output; these are in one answer.
const TASKS: usize = 5;

struct Idle(Child);

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process with all the supplementary groups there can be.
fn start(gids: Vec<libc::gid_t>) -> std::io::Result<Idle> {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: setgroups is async-signal-safe as a plain system call, and the list is ready.
    let command = unsafe {
        command.pre_exec(move || match libc::setgroups(gids.len(), gids.as_ptr()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command.spawn().map(Idle)
}

#[test]
fn five_tasks_with_all_the_groups_there_can_be() {
    let gids: Vec<u32> = (1_000_000..1_000_000 + GIDS).collect();
    let tasks: Result<Vec<Idle>, _> = (0..TASKS).map(|_| start(gids.clone())).collect();
    let tasks = match tasks {
        Ok(tasks) => tasks,
        Err(e) => return skip("five_tasks_with_all_the_groups", &format!("setgroups: {e}")),
    };
    let groups = Groups::CRED | Groups::STAT | Groups::PATHS | Groups::CMDLINE | Groups::CGROUP;
    for engine in engines() {
        let answer =
            read(*engine, &Request::all(groups)).unwrap_or_else(|e| panic!("{engine}: {e}"));
        for task in &tasks {
            let pid = task.0.id();
            let view = answer.snapshot.tasks().find(|t| t.pid() == pid);
            let view = view.unwrap_or_else(|| panic!("{engine}: no task {pid}"));
            assert_eq!(view.groups().as_deref(), Some(&gids[..]), "{engine}: gids of {pid}");
            let cmdline = view.cmdline().unwrap_or_else(|| panic!("{engine}: cmdline of {pid}"));
            assert_eq!(&*cmdline.data, b"sleep\x00600\x00", "{engine}");
        }
    }
}
