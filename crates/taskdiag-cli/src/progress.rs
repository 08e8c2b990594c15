//! Shows the progress of a long answer on a terminal: nothing for the first moment, and then a line
//! on standard error that goes away when the answer is complete.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use taskdiag::Watch;

/// An answer that takes longer than this shows progress.
const QUIET: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(100);

/// Shows progress until it is dropped.
#[derive(Debug, Default)]
pub struct Progress {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Show the progress of the request with this watch. If standard error is not a terminal,
    /// nothing is shown.
    pub fn start(watch: Arc<Watch>) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::default();
        }
        let (end, ended) = channel::<()>();
        let show = move || {
            let mut wait = QUIET;
            let mut bar = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(wait) {
                wait = TICK;
                let (done, total) = watch.progress();
                let bar = bar.get_or_insert_with(|| bar_of(total));
                bar.set_length(total.max(done));
                bar.set_position(done);
                bar.tick();
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        };
        // If no thread can be started, no progress is shown. The answer is the same.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(show);
        Progress { thread: thread.ok().map(|t| (end, t)) }
    }
}

fn bar_of(total: u64) -> ProgressBar {
    let form = match total {
        0 => "{spinner} {elapsed} (Ctrl-C: show what was read)",
        _ => "{bar:30} {pos} of {len} processes, {elapsed} (Ctrl-C: show what was read)",
    };
    let style = ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // A panic in that thread does not affect the answer.
            let _ = thread.join();
        }
    }
}
