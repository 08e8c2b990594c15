//! Ctrl-C while a long answer is made: the first one ends the walk, and what is there is shown; a
//! second one, or one while the output is written, ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use taskdiag::Watch;

/// The exit code after Ctrl-C: 128 + SIGINT, as shells have it.
pub const CODE: u8 = 130;

static WATCH: Watch = Watch::new();
static ANSWERED: AtomicBool = AtomicBool::new(false);

fn on_signal() {
    if WATCH.is_stopped() || ANSWERED.load(Ordering::Relaxed) {
        signal_hook::low_level::exit(i32::from(CODE));
    }
    WATCH.stop();
}

/// From now on Ctrl-C ends the walk of a request that has this watch. Where no handler can be set,
/// Ctrl-C ends the program, as it does without one.
pub fn watch() -> &'static Watch {
    // SAFETY: the handler only touches atomics and calls _exit(), both safe in a signal handler.
    let _ = unsafe { signal_hook::low_level::register(SIGINT, on_signal) };
    &WATCH
}

/// The answer is there: from now on Ctrl-C ends the program.
pub fn answered() {
    ANSWERED.store(true, Ordering::Relaxed);
}

/// Did Ctrl-C end the walk?
pub fn was_stopped() -> bool {
    WATCH.is_stopped()
}
