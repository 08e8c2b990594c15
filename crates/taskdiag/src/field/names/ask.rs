//! Asks the C library for names. It loads modules, and may talk to a server that does not answer.
//! So a thread asks it, and the wait for an answer is limited.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use super::FoundName;
use super::files::AccountKind;

/// The longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for all answers together. Later answers are used the next time.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(10);

static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// Did the name service of this machine not answer in time, so that numbers are shown instead of
/// names?
pub fn name_service_is_slow() -> bool {
    GAVE_UP.load(Ordering::Relaxed)
}

/// An id and its name.
pub type FoundEntry = (AccountKind, u32, FoundName);

/// The thread that asks, one in a process.
static ASKER: Mutex<Option<Asker>> = Mutex::new(None);

/// A thread that asks, and the channels to and from it.
#[derive(Debug)]
struct Asker {
    questions: Sender<(AccountKind, u32)>,
    answers: Receiver<FoundEntry>,
    /// Whether the last question has no answer yet.
    is_busy: bool,
    /// The process of the thread. After a fork, a child has a copy of this struct, but not the
    /// thread.
    pid: u32,
}

/// Asks for an id. Returns all answers that have arrived, which may be about earlier ids, and may
/// lack this one. `waited` is the sum of earlier waits.
pub fn ask(kind: AccountKind, id: u32, waited: &Cell<Duration>) -> Vec<FoundEntry> {
    let begun = Instant::now();
    let left = PATIENCE.min(PATIENCE_FOR_ALL.saturating_sub(waited.get()));
    // In a forked copy of a process whose thread held the lock, the lock is never released.
    let mut asker = loop {
        match ASKER.try_lock() {
            Ok(asker) => break asker,
            Err(TryLockError::Poisoned(e)) => break e.into_inner(),
            Err(TryLockError::WouldBlock) if begun.elapsed() < left => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => {
                GAVE_UP.store(true, Ordering::Relaxed);
                return Vec::new();
            }
        }
    };
    if asker.as_ref().is_none_or(|a| a.pid != std::process::id()) {
        *asker = start();
    }
    let Some(asker) = &mut *asker else { return vec![(kind, id, look_up(kind, id))] };
    let told = asker.ask(kind, id, left);
    // Other ids are looked up immediately, and do not count.
    if begun.elapsed() > Duration::from_millis(50) {
        waited.set(waited.get() + begun.elapsed());
    }
    told
}

impl Asker {
    fn ask(&mut self, kind: AccountKind, id: u32, left: Duration) -> Vec<FoundEntry> {
        let mut told = Vec::new();
        if self.is_busy {
            let Ok(late) = self.answers.try_recv() else { return told };
            self.is_busy = false;
            let is_it = (late.0, late.1) == (kind, id);
            told.push(late);
            if is_it {
                return told;
            }
        }
        let sent = self.questions.send((kind, id)).ok();
        match sent.and_then(|()| self.answers.recv_timeout(left).ok()) {
            Some(answer) => told.push(answer),
            None => {
                self.is_busy = true;
                GAVE_UP.store(true, Ordering::Relaxed);
            }
        }
        told
    }
}

/// A thread that asks. `None` if none can be started.
fn start() -> Option<Asker> {
    let (questions, asked) = channel::<(AccountKind, u32)>();
    let (tell, answers) = channel();
    let work = move || {
        for (kind, id) in asked {
            if tell.send((kind, id, look_up(kind, id))).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name(String::from("names")).spawn(work).ok()?;
    Some(Asker { questions, answers, is_busy: false, pid: std::process::id() })
}

fn look_up(kind: AccountKind, id: u32) -> FoundName {
    let name = match kind {
        AccountKind::User => uzers::get_user_by_uid(id).map(|u| u.name().to_owned()),
        AccountKind::Group => uzers::get_group_by_gid(id).map(|g| g.name().to_owned()),
    };
    // musl reads comments, and lines for the module "compat", as users.
    let is_line = |n: &[u8]| cfg!(not(target_env = "gnu")) && matches!(n[0], b'#' | b'+' | b'-');
    name.map(|n| n.as_bytes().to_vec()).filter(|n| !n.is_empty() && !is_line(n)).map(Into::into)
}
