// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C ends the statement that runs, and not the shell.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

/// What hears Ctrl-C. It also knows one that was pressed before somebody waits.
static LISTENER: Mutex<Option<Signal>> = Mutex::const_new(None);

/// What happens at Ctrl-C now.
fn action() -> Option<libc::sigaction> {
    // SAFETY: all of it may be zero, and the call only fills it in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGINT, std::ptr::null(), &mut now) == 0).then_some(now)
    }
}

/// Is Ctrl-C ignored, as for what a shell runs in the background? It stays so.
fn is_ignored() -> bool {
    action().is_some_and(|now| now.sa_sigaction == libc::SIG_IGN)
}

/// Does `what`, and puts the handler of Ctrl-C back, if that has set another one.
pub fn keep<T>(what: impl FnOnce() -> T) -> T {
    let before = action();
    let result = what();
    if let Some(before) = before {
        // SAFETY: it is the handler that was there, which is one for as long as the program runs.
        unsafe { libc::sigaction(libc::SIGINT, &before, std::ptr::null_mut()) };
    }
    result
}

/// From now on Ctrl-C does not end the program, and what was pressed before counts no more.
pub async fn catch() {
    if !is_ignored() {
        // Where no handler can be set, it ends the program as it does without one.
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
