//! Gets the answer to a query, which is a saved one or one of this machine, and checks whether it
//! is complete.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use taskdiag::view::{Answered, Left, Plan, Query, Selection};
use taskdiag::wire::TaskView;
use taskdiag::{Choice, Group, Groups, Host, Reason, Snapshot};

use crate::columns::Column;
use crate::exit::{Asked, Exit, Lack, Partial, say};
use crate::interrupt;
use crate::limits::PageLimits;
use crate::output::{Tally, tally};
use crate::progress::Progress;

/// Where the answer comes from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// A saved stream instead of this machine; `-` is standard input.
    pub from: Option<PathBuf>,
    /// The chosen moment, if the answer comes from a recording.
    #[cfg(feature = "record")]
    pub at: Option<crate::moment::At>,
    /// Which engine answers.
    pub engine: Choice,
    /// Limits for the request.
    pub limits: PageLimits,
    /// Do not report requested processes that do not exist. lsof does not report them either.
    pub quiet: bool,
    /// Whether any missing data is a failure.
    pub strict: bool,
}

/// How exactly this selection names the subject of the answer.
fn asked(select: &Selection) -> Asked {
    let lists = [
        &select.ppids,
        &select.euids,
        &select.ruids,
        &select.rgids,
        &select.sids,
        &select.ttys,
        &select.pgids,
        &select.egids,
    ];
    if select.all || select.deselect {
        Asked::All
    } else if !select.pids.is_empty() {
        Asked::Pids
    } else if !select.commands.is_empty() || lists.iter().any(|list| !list.is_empty()) {
        Asked::Named
    } else {
        Asked::All
    }
}

impl Source {
    /// How exactly the caller names the subject of the answer, by this selection and `--strict`.
    pub fn asked(&self, select: &Selection) -> Asked {
        if self.strict { Asked::Strict } else { asked(select) }
    }
    /// The saved answer, or an answer of this machine to this query.
    pub fn get(&self, query: impl FnOnce() -> Query) -> Result<Snapshot, Exit> {
        match &self.from {
            Some(path) => {
                let (snapshot, select) = (self.read(path)?, query().select);
                let held = snapshot.stream().asked();
                // Without this group, no process would match the typed inode.
                if !held.contains(select.inodes.groups()) {
                    let how = crate::saved::how_to_make(held | Groups::PIDFD);
                    return Err(Exit::Failed(format!(
                        "the saved answer does not hold the inodes of pidfds: make it with {how}"
                    )));
                }
                Ok(snapshot)
            }
            None => self.ask(query().plan()),
        }
    }
    /// The answer in this file, or in this directory of a recording. Reports the machine of the
    /// answer, unless it is this one.
    fn read(&self, path: &Path) -> Result<Snapshot, Exit> {
        #[cfg(feature = "record")]
        let snapshot = crate::recorded::read(path, self.at)?;
        #[cfg(not(feature = "record"))]
        let snapshot = crate::saved::read(path).map_err(|e| crate::saved::unread(path, &e))?;
        say_host(&snapshot.host(), &Host::here());
        Ok(snapshot)
    }
    /// As [`read`](Self::read). A recording also gives the previous answer, if it has one.
    pub fn read_with_earlier(&self, path: &Path) -> Result<(Snapshot, Option<Snapshot>), Exit> {
        #[cfg(feature = "record")]
        let (snapshot, earlier) = crate::recorded::read_with_earlier(path, self.at)?;
        #[cfg(not(feature = "record"))]
        let (snapshot, earlier) = (self.read(path)?, None);
        say_host(&snapshot.host(), &Host::here());
        Ok((snapshot, earlier))
    }
    /// An answer of this machine to these requests. Shows progress if it takes long, and ends early
    /// at Ctrl-C.
    pub fn ask(&self, mut plan: Plan) -> Result<Snapshot, Exit> {
        let watch = interrupt::watch();
        plan.requests(|r| {
            self.limits.put_into(r);
            r.watch = Some(watch.clone());
        });
        // If nothing takes long, a thread for the progress would cost more than it is worth.
        let _progress = plan.groups().intersects(Groups::SLOW).then(|| Progress::start(watch));
        let Answered { snapshot, nobody, .. } = plan.ask(self.engine)?;
        interrupt::answered();
        if !self.quiet {
            say_missing(&nobody);
        }
        for caveat in snapshot.caveats().iter().filter(|c| !c.is_lack()) {
            say(format_args!("taskdiag: {caveat}"));
        }
        Ok(snapshot)
    }
}

/// Reports the machine of a saved answer, unless it is this machine in this boot. Another machine
/// may have other names for its users, and a saved answer has only their numbers.
fn say_host(host: &Host, here: &Host) {
    let is_here = host.name == here.name;
    if host.is_unknown() || (is_here && host.is_same_boot(here) != Some(false)) {
        return;
    }
    let whose = match is_here {
        true => ", before this boot",
        false => "; users and groups have the names that they have on this machine",
    };
    say(format_args!("taskdiag: the saved answer is of {host}{whose}"));
}

/// Reports requested pids that do not exist.
fn say_missing(pids: &[u32]) {
    for pid in pids {
        say(format_args!("taskdiag: there is no process {pid}"));
    }
}

/// The largest possible pid, which procps also uses for the width of columns. For a saved answer,
/// the largest pid in it.
pub fn largest_pid(snapshot: &Snapshot, saved: bool) -> u32 {
    match if saved { None } else { pid_max() } {
        Some(limit) => u32::saturating_sub(limit, 1),
        None => snapshot.tasks().map(|t| t.pid()).max().unwrap_or(0),
    }
}

/// The kernel's limit of pids. It is read with as few system calls as possible.
pub fn pid_max() -> Option<u32> {
    let mut text = [0; 16];
    let n = File::open("/proc/sys/kernel/pid_max").ok()?.read(&mut text).ok()?;
    std::str::from_utf8(&text[..n]).ok()?.trim().parse().ok()
}

/// Prints why requested pids have no memory to show.
pub fn say_no_memory(snapshot: &Snapshot, select: &Selection) {
    let in_proc = taskdiag::files::is_numbered_as_proc(snapshot);
    // A process may also lack a row because none of its mappings match the conditions.
    let has_none = |t: &TaskView<'_>| {
        let mut groups = [Group::Vma, Group::VmaStat, Group::Rollup, Group::Statm].into_iter();
        groups.any(|g| t.reason(g) == Some(Reason::Absent))
    };
    for pid in select.only_pids().unwrap_or_default() {
        if let Some(task) = snapshot.tasks().find(|t| t.pid() == *pid) {
            if !has_none(&task) {
                continue;
            }
            say(format_args!(
                "taskdiag: process {pid} has no memory: it is a kernel thread, or it has ended"
            ));
        } else if let Some(tgid) = process_of(*pid).filter(|tgid| in_proc && tgid != pid) {
            say(format_args!("taskdiag: {pid} is a thread of process {tgid}: name that process"));
        }
    }
}

/// The process that a live task belongs to.
fn process_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The message for the error in DONE of a walk that ended early. It should be a negative errno, but
/// a saved answer may have any number.
fn why_ended(error: i32) -> String {
    // MAX_ERRNO of the kernel.
    match error {
        -4095..0 => std::io::Error::from_raw_os_error(-error).to_string(),
        _ => format!("for an unknown reason ({error})"),
    }
}

/// How the program ends after this answer: complete, empty, or partial.
pub fn verdict(
    snapshot: &Snapshot,
    empty: bool,
    left: &[Left],
    tally: &Tally,
    columns: &[Column],
    asked: Asked,
) -> Result<(), Exit> {
    let mut lacks = tally::left_out(left, snapshot);
    lacks.extend(tally.lines(columns, snapshot));
    verdict_of(snapshot, empty, lacks, asked)
}

/// [`verdict`] with messages about missing data.
pub fn verdict_of(
    snapshot: &Snapshot,
    empty: bool,
    lacks: Vec<Lack>,
    asked: Asked,
) -> Result<(), Exit> {
    verdict_about(snapshot, snapshot.tasks().len() as u64, empty, lacks, asked)
}

/// As [`verdict_of`], for an answer of this many tasks that was made in parts. `summary` has the
/// totals of the whole.
pub fn verdict_of_parts(
    summary: &Snapshot,
    tasks: u64,
    lacks: Vec<Lack>,
    asked: Asked,
) -> Result<(), Exit> {
    verdict_about(summary, tasks, tasks == 0, lacks, asked)
}

fn verdict_about(
    snapshot: &Snapshot,
    there: u64,
    empty: bool,
    mut lacks: Vec<Lack>,
    asked: Asked,
) -> Result<(), Exit> {
    let caveats = snapshot.caveats();
    let hidden = caveats.iter().filter(|c| c.is_lack());
    lacks.extend(hidden.map(|c| Lack { line: c.to_string(), from: Asked::Pids }));
    let left_out = snapshot.stream().cuts().iter().map(|c| c.tasks).fold(0, u64::saturating_add);
    if left_out > 0 {
        let line = format!(
            "{left_out} tasks are not in this recorded answer, because their users took too much of its room"
        );
        lacks.push(Lack { line, from: Asked::Named });
    }
    if taskdiag::field::name_service_is_slow() {
        say(format_args!(
            "taskdiag: the name service of this machine (see /etc/nsswitch.conf) does not answer in time, so some names are shown as numbers"
        ));
    }
    let error = snapshot.stream().done().error;
    if error == -Errno::INTR.raw_os_error() && interrupt::was_stopped() {
        let line =
            format!("stopped by Ctrl-C: only what was read until then is shown, {there} processes");
        lacks.insert(0, Lack::always(line));
        return Err(Exit::Stopped(lacks));
    }
    if error != 0 {
        lacks.push(Lack::always(format!(
            "the list ended early, so tasks are missing: {}",
            why_ended(error)
        )));
    }
    match (lacks.is_empty(), empty) {
        (false, is_empty) => Err(Exit::Partial(Partial::new(lacks, asked, is_empty))),
        (true, true) => Err(Exit::NoMatch),
        (true, false) => Ok(()),
    }
}
