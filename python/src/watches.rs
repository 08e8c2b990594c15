// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches for requests. A request has its watch for ever, so a watch is used again after an answer that nobody stopped.

use std::sync::{Mutex, PoisonError};

use taskdiag::Watch;

static FREE: Mutex<Vec<&'static Watch>> = Mutex::new(Vec::new());

/// A watch that nobody else has.
pub fn take() -> &'static Watch {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    free.unwrap_or_else(|| Box::leak(Box::new(Watch::new())))
}

/// Gives a watch back. One that was stopped cannot be used again.
pub fn give(watch: &'static Watch) {
    if !watch.is_stopped() {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
    }
}
