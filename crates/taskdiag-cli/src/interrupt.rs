//! Ctrl-C: while an answer is made that someone watches, the first one ends the walk, and what is there is
//! shown. A second one, or one at any other time, ends the program at once, and says what that means for
//! the output.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::SIGINT;
use taskdiag::Watch;

/// The exit code after Ctrl-C: 128 + SIGINT, as shells have it.
pub const CODE: u8 = 130;

static WATCH: OnceLock<Arc<Watch>> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
/// Nothing is there that could be shown.
const BEFORE: u8 = 0;
/// An answer is being made. The part of it that is there can be shown.
const ASKING: u8 = 1;
/// The answer is there, and may be half written.
const WRITING: u8 = 2;
/// One answer is written, and the next is not asked for yet.
const RESTING: u8 = 3;
/// Another handler answers Ctrl-C.
const HANDED_OVER: u8 = 4;

fn on_signal() {
    let word: &[u8] = match (PHASE.load(Ordering::Relaxed), WATCH.get()) {
        (ASKING, Some(watch)) if !watch.is_stopped() => return watch.stop(),
        (WRITING, _) => b"taskdiag: stopped by Ctrl-C: the output is cut\n",
        (RESTING, _) => b"",
        (HANDED_OVER, _) => return,
        _ => b"taskdiag: stopped by Ctrl-C: nothing is shown\n",
    };
    // SAFETY: write(2) of bytes that live for ever; safe in a signal handler.
    unsafe { libc::write(2, word.as_ptr().cast(), word.len()) };
    signal_hook::low_level::exit(i32::from(CODE));
}

/// From now on Ctrl-C is answered as this module says. Where it is ignored, as for what a shell runs in the
/// background, it stays so; where no handler can be set, it ends the program as it does without one.
pub fn catch() {
    if !is_ignored(SIGINT) {
        // SAFETY: the handler only touches atomics and calls write() and _exit(), all safe in one.
        let _ = unsafe { signal_hook::low_level::register(SIGINT, on_signal) };
    }
}

/// Is this signal ignored?
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all of it may be zero, and the call only fills it in.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

/// From now on Ctrl-C ends the walk of a request that has this watch.
pub fn watch() -> Arc<Watch> {
    let watch = WATCH.get_or_init(Arc::default);
    PHASE.store(ASKING, Ordering::Relaxed);
    watch.clone()
}

/// The answer is there: from now on Ctrl-C ends the program.
pub fn answered() {
    PHASE.store(WRITING, Ordering::Relaxed);
}

/// The output is whole until the next answer: Ctrl-C just ends the program.
pub fn rest() {
    PHASE.store(RESTING, Ordering::Relaxed);
}

/// From now on another handler answers Ctrl-C, which has to give the terminal back.
#[cfg(any(feature = "record", feature = "top"))]
pub fn hand_over() {
    PHASE.store(HANDED_OVER, Ordering::Relaxed);
}

/// Did Ctrl-C end the walk?
pub fn was_stopped() -> bool {
    WATCH.get().is_some_and(|watch| watch.is_stopped())
}
