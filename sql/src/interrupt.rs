// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C ends the statement that runs, and not the shell.

use taskdiag_face::interrupt::is_ignored;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

/// Receives Ctrl-C, even if it was pressed before the wait for it.
static LISTENER: Mutex<Option<Signal>> = Mutex::const_new(None);

/// The current effect of Ctrl-C.
fn action() -> Option<libc::sigaction> {
    // SAFETY: all of it may be zero, and the call only fills it in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGINT, std::ptr::null(), &mut now) == 0).then_some(now)
    }
}

/// Runs a function, and restores the handler of Ctrl-C if the function has replaced it.
pub fn keep<T>(what: impl FnOnce() -> T) -> T {
    let before = action();
    let result = what();
    if let Some(before) = before {
        // SAFETY: it is the previous handler, which stays valid while the program runs.
        unsafe { libc::sigaction(libc::SIGINT, &before, std::ptr::null_mut()) };
    }
    result
}

/// From now on, Ctrl-C does not end the program, and earlier presses are forgotten. If it is
/// ignored, as in background jobs of a shell, it stays ignored.
pub async fn catch() {
    if !is_ignored(libc::SIGINT) {
        // If no handler can be set, Ctrl-C ends the program as usual.
        *LISTENER.lock().await = signal(SignalKind::interrupt()).ok();
    }
}

/// Waits for Ctrl-C.
pub async fn pressed() {
    match &mut *LISTENER.lock().await {
        Some(listener) => {
            listener.recv().await;
        }
        None => std::future::pending().await,
    }
}
