//! Detects requests that a program repeats: from the third time on, their BPF programs stay loaded.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::choice::Choice;
use super::engines::Engines;
use super::guarded_session::GuardedSession;
use super::query_with;
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// How often a request is made before a session is opened for it. `top -n1` makes it twice, and
/// keeping programs for one more answer costs more than it saves.
const ASKED_ALONE: u32 = 2;

/// How long after a request the next one still counts as a repetition.
const LONG: Duration = Duration::from_secs(60);

/// The largest number of requests that a cache remembers. Each may have a session, which takes some
/// descriptors and about 3 MB of kernel memory.
const MOST: usize = 4;

/// A repeated request of a program that does not know that a [`Session`](super::Session) is opened
/// for it.
///
/// This is for libraries with the interface of another library. The program may close descriptors
/// that it does not know, fork, give up rights or change its root, and none of this makes an answer
/// wrong: a session is used and closed only while its descriptors and the caller are unchanged.
#[derive(Debug, Default)]
pub struct Repeated {
    asked: u32,
    last: Option<Snapshot>,
    kept: Option<(Request, Choice, GuardedSession)>,
    /// The program has closed descriptors of a session, and would do so again.
    was_robbed: bool,
    /// Do not keep files of /proc open between two answers.
    without_files: bool,
}

impl Repeated {
    /// Ask. Programs stay loaded from the third time on.
    ///
    /// # Errors
    /// As [`query_with`].
    pub fn ask(&mut self, request: &Request, choice: Choice) -> Result<&Snapshot, Error> {
        self.asked = self.asked.saturating_add(1);
        self.answer_next(request, choice, self.asked > ASKED_ALONE, self.without_files)
    }

    /// Ask for a part of a long list, see [`Request::with_processes`]. Programs stay loaded until
    /// [`end_parts`](Self::end_parts), and no more than one part is in memory.
    ///
    /// # Errors
    /// As [`query_with`].
    pub fn ask_part(&mut self, request: &Request, choice: Choice) -> Result<&Snapshot, Error> {
        self.answer_next(request, choice, true, true)
    }

    /// Reports that all parts were requested. Together they count as one request: programs stay
    /// loaded from the third request on.
    pub fn end_parts(&mut self) {
        self.asked = self.asked.saturating_add(1);
        self.last = None;
        if let Some((_, _, kept)) = &mut self.kept {
            self.was_robbed |= !kept.is_whole();
            kept.forget();
        }
        if self.asked < ASKED_ALONE || self.was_robbed {
            self.kept = None;
        }
    }

    fn answer_next(
        &mut self,
        request: &Request,
        choice: Choice,
        keep: bool,
        without_files: bool,
    ) -> Result<&Snapshot, Error> {
        self.last = None;
        if let Some((for_request, for_choice, kept)) = &self.kept {
            self.was_robbed |= !kept.is_whole();
            let like = for_request.clone().with_processes(request.processes);
            let is_for = like == *request && *for_choice == choice && kept.is_of_caller();
            if self.was_robbed || !is_for {
                self.kept = None;
            }
        }
        if !keep || self.was_robbed {
            return Ok(self.last.insert(query_with(request, choice)?));
        }
        if self.kept.is_none() {
            let engines = match without_files {
                true => Engines::kept().without_files(),
                false => Engines::kept(),
            };
            let kept = GuardedSession::open(request.clone(), choice, engines)?;
            self.kept = Some((request.clone(), choice, kept));
        }
        let (_, _, kept) = self.kept.as_mut().expect("it was opened");
        kept.refresh(request)
    }

    /// The last answer, or `None` if the last request failed or there was none.
    pub fn answer(&self) -> Option<&Snapshot> {
        self.last.as_ref().or_else(|| self.kept.as_ref()?.2.snapshot())
    }

    /// Takes the last answer, so that its memory is not kept, either.
    fn take(&mut self) -> Option<Snapshot> {
        self.last.take().or_else(|| self.kept.as_mut()?.2.take())
    }
}

/// Answers all requests of a program, and keeps sessions for those that the program repeats.
///
/// The cache remembers the last four kinds of requests about all tasks, for a minute each. From the
/// third time on, the BPF programs of a request are kept, as in [`Repeated`]. Files of /proc are
/// not kept open, as the program may need its descriptors itself. Any number of threads may ask,
/// and a forked child may, too.
#[derive(Debug)]
pub struct SessionCache {
    known: Mutex<Vec<CachedRequest>>,
}

/// A request, and the time of its last use.
#[derive(Debug)]
struct CachedRequest {
    request: Request,
    choice: Choice,
    when: Instant,
    repeated: Repeated,
}

impl CachedRequest {
    fn is_for(&self, request: &Request, choice: Choice) -> bool {
        self.request == *request && self.choice == choice
    }
}

impl Default for SessionCache {
    fn default() -> SessionCache {
        SessionCache::new()
    }
}

impl SessionCache {
    /// An empty one.
    pub const fn new() -> SessionCache {
        SessionCache { known: Mutex::new(Vec::new()) }
    }

    /// Answer a request as [`query_with`] does.
    ///
    /// # Errors
    /// As [`query_with`].
    pub fn query(&self, request: &Request, choice: Choice) -> Result<Snapshot, Error> {
        // The program is loaded for one process, and the next request is rarely about the same one.
        if request.strategy.takes_pid() {
            return query_with(request, choice);
        }
        let Some(mut known) = self.take(request, choice, Instant::now()) else {
            return query_with(request, choice);
        };
        let asked = known.repeated.ask(request, choice).map(drop);
        let snapshot = known.repeated.take();
        known.when = Instant::now();
        self.put(known);
        asked?;
        Ok(snapshot.expect("there is an answer"))
    }

    /// Takes the entry of a request out of the list until it is put back. `None`: another thread
    /// holds the list. A child that was forked at that moment never gets it.
    fn take(&self, request: &Request, choice: Choice, now: Instant) -> Option<CachedRequest> {
        let (found, _old): (_, Vec<CachedRequest>) = {
            let mut all = self.known.try_lock().ok()?;
            let found = all.iter().position(|k| k.is_for(request, choice));
            let found = found.map(|at| all.swap_remove(at));
            (found, split_off(&mut all, |k| now.duration_since(k.when) > LONG))
        };
        Some(found.unwrap_or_else(|| CachedRequest {
            request: Request { watch: None, ..request.clone() },
            choice,
            when: now,
            repeated: Repeated { without_files: true, ..Repeated::default() },
        }))
    }

    fn put(&self, known: CachedRequest) {
        // The removed entries are dropped after the lock is released, because that takes some time.
        let _out: Vec<CachedRequest> = {
            let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let mut out = split_off(&mut all, |k| k.is_for(&known.request, known.choice));
            if all.len() >= MOST {
                let oldest = (0..all.len()).min_by_key(|at| all[*at].when);
                out.extend(oldest.map(|at| all.swap_remove(at)));
            }
            all.push(known);
            out
        };
    }
}

/// Removes the entries for which `is_out` is true, and returns them.
fn split_off(
    all: &mut Vec<CachedRequest>,
    is_out: impl Fn(&CachedRequest) -> bool,
) -> Vec<CachedRequest> {
    let (out, rest) = std::mem::take(all).into_iter().partition(|k| is_out(k));
    *all = rest;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineId;
    use taskdiag_wire::Groups;

    const PROCFS: Choice = Choice::Only(EngineId::Procfs);

    fn all(groups: Groups) -> Request {
        Request::all(groups)
    }
    /// The groups of each known request, and whether a session is open for it, the last used one
    /// last.
    fn kept(cache: &SessionCache) -> Vec<(Groups, bool)> {
        let all = cache.known.lock().expect("nobody panics");
        all.iter().map(|k| (k.request.groups, k.repeated.kept.is_some())).collect()
    }

    #[test]
    fn the_third_time_opens_a_session() {
        let cache = SessionCache::new();
        for n in 1..6 {
            let snapshot = cache.query(&all(Groups::BASE), PROCFS).expect("an answer");
            assert!(snapshot.task(std::process::id()).is_some());
            assert_eq!(kept(&cache), [(Groups::BASE, n > ASKED_ALONE)], "after {n}");
        }
        // Requests about one process are not remembered.
        let one = Request::one(std::process::id(), Groups::BASE);
        cache.query(&one, PROCFS).expect("an answer");
        assert_eq!(kept(&cache).len(), 1);
    }

    #[test]
    fn the_oldest_makes_room() {
        let cache = SessionCache::new();
        let kinds = [Groups::BASE, Groups::STAT, Groups::CRED, Groups::STATM, Groups::IO];
        for groups in kinds {
            cache.query(&all(groups), PROCFS).expect("an answer");
        }
        let known: Vec<Groups> = kept(&cache).into_iter().map(|(g, _)| g).collect();
        assert_eq!(known.len(), MOST);
        assert!(!known.contains(&Groups::BASE), "{known:?}");
    }

    #[test]
    fn old_requests_are_forgotten() {
        let cache = SessionCache::new();
        for _ in 0..=ASKED_ALONE {
            cache.query(&all(Groups::BASE), PROCFS).expect("an answer");
        }
        assert_eq!(kept(&cache), [(Groups::BASE, true)]);
        let later = Instant::now() + LONG + Duration::from_secs(1);
        let other = cache.take(&all(Groups::STAT), PROCFS, later).expect("nobody has the list");
        assert!(other.repeated.kept.is_none() && kept(&cache).is_empty());
    }

    #[test]
    fn a_busy_list_is_not_waited_for() {
        let cache = SessionCache::new();
        let held = cache.known.lock().expect("nobody panics");
        let snapshot = cache.query(&all(Groups::BASE), PROCFS).expect("an answer");
        assert!(snapshot.tasks().len() > 0 && held.is_empty());
    }

    #[test]
    fn threads_share_a_cache_of_sessions() {
        let cache = SessionCache::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let snapshot = cache.query(&all(Groups::BASE), PROCFS).expect("an answer");
                        assert!(snapshot.task(std::process::id()).is_some());
                    }
                });
            }
        });
        assert_eq!(kept(&cache).len(), 1, "equal requests are known once");
    }

    #[test]
    fn descriptors_of_the_program_are_left_alone() {
        let mut repeated = Repeated::default();
        for _ in 0..=ASKED_ALONE {
            repeated.ask(&all(Groups::BASE | Groups::STAT), PROCFS).expect("an answer");
        }
        repeated.kept.as_mut().expect("a session").2.rob_for_test();
        let again = repeated.ask(&all(Groups::BASE | Groups::STAT), PROCFS);
        assert!(again.expect("an answer").tasks().len() > 0);
        assert!(repeated.kept.is_none() && repeated.was_robbed);
    }

    #[test]
    fn another_caller_gets_another_session() {
        let mut repeated = Repeated::default();
        for _ in 0..=ASKED_ALONE {
            repeated.ask(&all(Groups::BASE), PROCFS).expect("an answer");
        }
        repeated.kept.as_mut().expect("a session").2.change_caller_for_test();
        repeated.ask(&all(Groups::BASE), PROCFS).expect("an answer");
        let kept = &repeated.kept.as_ref().expect("a session").2;
        assert!(kept.is_of_caller() && !repeated.was_robbed);
    }
}
