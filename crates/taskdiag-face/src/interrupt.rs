//! Ctrl-C: the first one during a request ends the walk, and the part that was read is shown. A
//! second one, or one at any other time, ends the program at once, with a message about the output.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::SIGINT;
use taskdiag::Watch;

/// The exit code after Ctrl-C: 128 + SIGINT, as in shells.
pub const CODE: u8 = 130;

static WATCH: OnceLock<Arc<Watch>> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
/// There is nothing to show yet.
const BEFORE: u8 = 0;
/// An answer is being made. The part that was read so far can be shown.
const ASKING: u8 = 1;
/// The answer is complete, and may be half written.
const WRITING: u8 = 2;
/// One answer is written, and the next one is not requested yet.
const RESTING: u8 = 3;
/// Another handler takes Ctrl-C.
const HANDED_OVER: u8 = 4;

fn on_signal() {
    let word: &[u8] = match (PHASE.load(Ordering::Relaxed), WATCH.get()) {
        (ASKING, Some(watch)) if !watch.is_stopped() => return watch.stop(),
        (WRITING, _) => b"taskdiag: stopped by Ctrl-C: the output is cut\n",
        (RESTING, _) => b"",
        (HANDED_OVER, _) => return,
        _ => b"taskdiag: stopped by Ctrl-C: nothing is shown\n",
    };
    // SAFETY: write(2) of static bytes, which is safe in a signal handler.
    unsafe { libc::write(2, word.as_ptr().cast(), word.len()) };
    signal_hook::low_level::exit(i32::from(CODE));
}

/// From now on, Ctrl-C does what this module describes. If it is ignored, as in background jobs of
/// a shell, it stays ignored. If no handler can be set, Ctrl-C just ends the program.
pub fn catch() {
    if !is_ignored(SIGINT) {
        // SAFETY: the handler only touches atomics and calls write() and _exit(), which are safe in
        // a signal handler.
        let _ = unsafe { signal_hook::low_level::register(SIGINT, on_signal) };
    }
}

/// Whether this signal is ignored.
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

/// The answer is complete: from now on, Ctrl-C ends the program.
pub fn answered() {
    PHASE.store(WRITING, Ordering::Relaxed);
}

/// The output is complete until the next answer: Ctrl-C just ends the program.
pub fn rest() {
    PHASE.store(RESTING, Ordering::Relaxed);
}

/// From now on, another handler takes Ctrl-C, because it has to restore the terminal.
pub fn hand_over() {
    PHASE.store(HANDED_OVER, Ordering::Relaxed);
}

/// Did Ctrl-C end the walk?
pub fn was_stopped() -> bool {
    WATCH.get().is_some_and(|watch| watch.is_stopped())
}
