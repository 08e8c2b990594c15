//! A request that is repeated, and what changed between two answers.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use super::choice::Choice;
use super::engines::Engines;
use super::plan::{Planned, answer};
use crate::changes::Changes;
use crate::error::Error;
use crate::request::{Members, Processes, Request};
use crate::snapshot::Snapshot;
use crate::watch::Watch;
use taskdiag_wire::{Group, Groups};

/// A repeated request, and its last two answers.
///
/// Engines stay open, and BPF programs loaded, until it is dropped, so that only the first answer
/// pays for the load. The engine is chosen once, and chosen again when it fails. The brake
/// (`/etc/taskdiag.conf`) is checked each time.
///
/// ```
/// use taskdiag::{Choice, Groups, Request, Session};
///
/// # fn main() -> Result<(), taskdiag::Error> {
/// let mut session = Session::open(Request::all(Groups::BASE | Groups::STAT), Choice::Auto)?;
/// for _ in 0..2 {
///     session.refresh()?;
/// }
/// let changes = session.changes().expect("there are two answers");
/// println!("{} began, {} ended", changes.began.len(), changes.ended.len());
/// for task in &changes.stayed {
///     if let Some(cpus) = task.cpus(changes.interval) {
///         println!("{} used {:.1} % of a CPU", task.new.pid(), cpus * 100.0);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    request: Request,
    choice: Choice,
    engines: Engines,
    planned: Option<Planned>,
    now: Option<Snapshot>,
    before: Option<Snapshot>,
}

impl Session {
    /// Prepares a session. No request is made yet. The start times of tasks are added to the
    /// request, since a task is identified by its pid and start time.
    ///
    /// # Errors
    /// [`Error::Setting`] if the environment variable does not name an engine,
    /// [`Error::Unavailable`] if `choice` may not be used.
    pub fn open(request: Request, choice: Choice) -> Result<Session, Error> {
        Session::with(request, choice, Engines::kept())
    }

    /// A session with these engines.
    pub(super) fn with(
        request: Request,
        choice: Choice,
        engines: Engines,
    ) -> Result<Session, Error> {
        super::resolved(choice)?;
        let start = Members::of(Groups::BASE, &["start_time_ns"]);
        let members = match request.groups.has(Group::Base) {
            true => request.members.union(start),
            false => Members { base: start.base, ..request.members },
        };
        let request = Request { groups: request.groups | Groups::BASE, members, ..request };
        Ok(Session { request, choice, engines, planned: None, now: None, before: None })
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// How old an answer of the service may be from now on, as [`Request::max_age`].
    pub fn accept_age(&mut self, max_age: Duration) {
        self.request.max_age = max_age;
    }

    /// Makes the request again. The old [`snapshot`](Self::snapshot) becomes
    /// [`previous`](Self::previous).
    ///
    /// # Errors
    /// As [`query_with`](super::query_with). The last two answers stay as they are then, and the
    /// next call tries again.
    pub fn refresh(&mut self) -> Result<&Snapshot, Error> {
        let new = answer(&self.request, self.choice, &mut self.engines, &mut self.planned)?;
        let old = std::mem::replace(&mut self.before, self.now.take());
        if let Some(Ok(memory)) = old.map(|s| s.into_bytes().try_into_owned()) {
            self.engines.recycle(memory);
        }
        Ok(self.now.insert(new))
    }

    /// Ask for these processes. The memory of the last answer serves for the new one, so there is
    /// no [`previous`](Self::previous) one.
    pub(super) fn refresh_part(&mut self, processes: Processes) -> Result<&Snapshot, Error> {
        self.before = None;
        if let Some(Ok(memory)) = self.now.take().map(|s| s.into_bytes().try_into_owned()) {
            self.engines.recycle(memory);
        }
        self.request.processes = processes;
        let new = answer(&self.request, self.choice, &mut self.engines, &mut self.planned)?;
        Ok(self.now.insert(new))
    }

    /// The observer of the next answers.
    pub(super) fn set_watch(&mut self, watch: Option<Arc<Watch>>) {
        self.request.watch = watch;
    }

    /// Takes the last answer. There is no [`previous`](Self::previous) one until there are two new
    /// ones.
    pub(super) fn take(&mut self) -> Option<Snapshot> {
        self.before = None;
        self.now.take()
    }

    /// The last answer, or `None` before the first.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }

    /// The answer before the last one.
    pub fn previous(&self) -> Option<&Snapshot> {
        self.before.as_ref()
    }

    /// The file descriptors that are open between two answers: of BPF programs and maps, of files
    /// of /proc, and of the connection to the service. A library inside another program needs them,
    /// because the program may close all unknown descriptors and open its own files under the same
    /// numbers. Then this session must not be used or dropped any more ([`std::mem::forget`]),
    /// because it would use or close files of the program.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.engines.descriptors()
    }

    /// Changes between the last two answers, or `None` before there are two.
    pub fn changes(&self) -> Option<Changes<'_>> {
        Some(self.now.as_ref()?.since(self.before.as_ref()?))
    }
}
