//! Requests that a program repeats without saying so: from the third time on, what they loaded stays loaded.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::choice::Choice;
use super::engines::Engines;
use super::kept::Kept;
use super::query_with;
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// How often a request is asked before a session is opened for it. `top -n1` asks twice, and to load programs for one more
/// answer costs more than it saves.
const ASKED_ALONE: u32 = 2;

/// How long after a request the next one still counts as a repetition.
const LONG: Duration = Duration::from_secs(60);

/// The most requests that a cache remembers. Each may have a session, which takes some descriptors and some 3 MB of kernel
/// memory.
const MOST: usize = 4;

/// A request that is asked again and again by a program which does not know that a [`Session`](super::Session) is opened
/// for it.
///
/// This is for libraries that have the interface of another one. The program may close descriptors that it does not know,
/// fork, give up rights or change its root, and none of this makes an answer wrong: a session is used and closed only while
/// its descriptors are what they were and the caller is the same.
#[derive(Debug, Default)]
pub struct Repeated {
    asked: u32,
    last: Option<Snapshot>,
    kept: Option<(Request, Choice, Kept)>,
    /// The program closed descriptors of a session, and would do so again.
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

    /// Says that all parts were asked for. It counts as one request: what is loaded stays loaded from the third time on.
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
            let kept = Kept::open(request.clone(), choice, engines)?;
            self.kept = Some((request.clone(), choice, kept));
        }
        let (_, _, kept) = self.kept.as_mut().expect("it was opened");
        kept.refresh(request)
    }

    /// The last answer, or `None` if the last request failed or there was none.
    pub fn answer(&self) -> Option<&Snapshot> {
        self.last.as_ref().or_else(|| self.kept.as_ref()?.2.snapshot())
    }

    /// Give the last answer away, so that its memory is not kept either.
    fn take(&mut self) -> Option<Snapshot> {
        self.last.take().or_else(|| self.kept.as_mut()?.2.take())
    }
}

/// Answers all requests of a program, and keeps sessions for those that the program repeats.
///
/// It remembers the last four kinds of requests about all tasks, for a minute each. One that comes the third time has its
/// BPF programs kept for the next time, as in [`Repeated`]. Files of /proc are not kept open, as the program may need its
/// descriptors itself. Any number of threads may ask, and a forked child may, too.
#[derive(Debug)]
pub struct SessionCache {
    known: Mutex<Vec<Known>>,
}

/// A request, and when it was asked last.
#[derive(Debug)]
struct Known {
    request: Request,
    choice: Choice,
    when: Instant,
    repeated: Repeated,
}

impl Known {
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
        // A program is loaded for one process, and the next request is seldom about the same one.
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

    /// What is known of a request. Nobody else has it until it is put back. `None`: another thread has the list, and in a
    /// child that was forked meanwhile has it for ever.
    fn take(&self, request: &Request, choice: Choice, now: Instant) -> Option<Known> {
        let (found, _old): (_, Vec<Known>) = {
            let mut all = self.known.try_lock().ok()?;
            let found = all.iter().position(|k| k.is_for(request, choice));
            let found = found.map(|at| all.swap_remove(at));
            (found, split_off(&mut all, |k| now.duration_since(k.when) > LONG))
        };
        Some(found.unwrap_or_else(|| Known {
            request: Request { watch: None, ..request.clone() },
            choice,
            when: now,
            repeated: Repeated { without_files: true, ..Repeated::default() },
        }))
    }

    fn put(&self, known: Known) {
        // What is left out is dropped when the list is free again, as that takes some time.
        let _out: Vec<Known> = {
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
fn split_off(all: &mut Vec<Known>, is_out: impl Fn(&Known) -> bool) -> Vec<Known> {
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
    /// The groups of each request that is known, and whether a session is open for it. The last one used is the last.
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
    fn what_is_old_is_forgotten() {
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
    fn nobody_waits_for_the_list() {
        let cache = SessionCache::new();
        let held = cache.known.lock().expect("nobody panics");
        let snapshot = cache.query(&all(Groups::BASE), PROCFS).expect("an answer");
        assert!(snapshot.tasks().len() > 0 && held.is_empty());
    }

    #[test]
    fn threads_share_it() {
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
