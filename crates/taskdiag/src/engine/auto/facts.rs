//! What is known about this machine and a request before any engine is tried.

use taskdiag_wire::{Groups, Strategy};

use super::cost::{self, Facts};
use super::gaps;
use crate::engine::bpf;
use crate::engine::kernel::Kernel;
use crate::engine::procfs::Procfs;
use crate::engine::service;
use crate::engine::{Engine, estimate, mappings, numbering};
use crate::request::Request;

/// The groups that the kernel engine answers here as a whole, or `None` if it would leave out
/// processes of others that /proc shows.
fn kernel_groups(req: &Request) -> Option<Groups> {
    let kernel = Kernel::new().ok()?;
    // If one process is hidden, that is noticed, and another engine is used. If some threads of a
    // process are hidden, that is not noticed.
    let one = req.strategy == Strategy::One;
    (one || kernel.sees_all()).then(|| kernel.answers(req.members))
}

/// The facts that are known without trying an engine. This is cheap: it opens at most
/// /proc/loadavg, and two files of a process whose mappings are asked for.
///
/// If /proc belongs to another pid namespace, its process ids are not those that BPF gives. All
/// answers of a machine should have one numbering. The numbering of /proc is used, because procfs
/// has all groups, needs no rights, and agrees with other tools.
pub(super) fn facts(req: &Request) -> Facts {
    let strategy = req.strategy;
    let (processes, threads) = match strategy {
        // A few processes may have many threads, and each thread makes a listing of /proc slower.
        // So the threads are counted unless there are many processes. Then sysinfo(2) suffices,
        // although its count is modulo 65536.
        Strategy::All | Strategy::Children => {
            let processes = estimate::processes();
            (processes, (processes < 4096).then(estimate::threads))
        }
        Strategy::One => (1, Some(1)),
        Strategy::AllThread => (estimate::processes(), Some(estimate::threads())),
        Strategy::Thread => (1, Some(estimate::threads_of(req.pid).unwrap_or(1))),
    };
    let threads = threads.unwrap_or_else(|| usize::from(rustix::system::sysinfo().procs));
    let (processes, threads) = (processes as u64, threads.max(processes) as u64);
    let procfs = Procfs::new().ok().map(|p| p.support().groups);
    let is_whole = req.processes.is_all();
    let foreign_proc = procfs.is_some() && !numbering::proc_is_own();
    Facts {
        processes,
        threads,
        mappings: cost::many_mappings(req).and_then(|many| mappings::about(req.pid, many)),
        kernel: is_whole.then(|| kernel_groups(req)).flatten(),
        bpf: (bpf::IS_BUILT && !foreign_proc).then(|| bpf::groups(req.groups)),
        procfs,
        foreign_proc,
        service: (!foreign_proc && is_whole)
            .then(|| service::groups(strategy))
            .flatten()
            .map(|all| service::with_room(req, all)),
        denied: gaps::expected(req),
        is_session: false,
    }
}
