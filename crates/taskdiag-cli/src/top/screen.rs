//! The terminal: it is taken over at the start, and always restored at the end, even after a
//! signal, a panic or Ctrl-Z.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};

use crate::exit::Exit;
use crate::interrupt;

/// The terminal while the program uses it.
pub struct Screen {
    /// The terminal on which frames are drawn.
    pub terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    signals: Signals,
}

/// The reason for waking up.
#[derive(Debug)]
pub enum Wake {
    /// The time is over.
    Time,
    /// Keys, the mouse, another size.
    Events(Vec<Event>),
    /// The content of the terminal is not known, so everything must be drawn.
    Redraw,
    /// A signal, or the terminal is gone.
    Quit,
}

struct Signals {
    woken: UnixStream,
    quit: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
    redraw: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let flag = || Arc::new(AtomicBool::new(false));
        let (quit, stop, continued, redraw) = (flag(), flag(), flag(), flag());
        let kinds: [(&Arc<AtomicBool>, &[i32]); 4] = [
            (&quit, &[SIGTERM, SIGHUP, SIGINT, SIGQUIT]),
            (&stop, &[SIGTSTP]),
            (&continued, &[SIGCONT]),
            (&redraw, &[SIGWINCH]),
        ];
        for (flag, numbers) in kinds {
            for number in numbers {
                signal_hook::flag::register(*number, flag.clone())?;
                signal_hook::low_level::pipe::register(*number, wake.try_clone()?)?;
            }
        }
        Ok(Signals { woken, quit, stop, continued, redraw })
    }
    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!(io::Read::read(&mut &self.woken, &mut bytes), Ok(n) if n > 0) {}
    }
}

/// The reason if the terminal cannot be used.
fn refusal() -> Option<&'static str> {
    let term = std::env::var("TERM").unwrap_or_default();
    match () {
        () if !io::stdin().is_terminal() || !io::stdout().is_terminal() => {
            Some("standard input and output are not a terminal")
        }
        () if term.is_empty() || term == "dumb" => {
            Some("TERM does not name a terminal that can place text")
        }
        () => None,
    }
}

impl Screen {
    /// Takes over the terminal.
    pub fn take() -> Result<Screen, Exit> {
        if let Some(why) = refusal() {
            return Err(Exit::Usage(format!(
                "top uses the whole screen, but {why}: use 'taskdiag top --once'"
            )));
        }
        let signals = Signals::catch()?;
        interrupt::hand_over();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            give_back();
            before(why);
        }));
        let terminal = enter().inspect_err(|_| give_back())?;
        Ok(Screen { terminal, signals })
    }
    /// Waits for an event, at most for this time.
    pub fn wait(&mut self, time: Duration) -> io::Result<Wake> {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let stdin = io::stdin();
        let ready = {
            let mut fds = [
                PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.woken.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => fds[0].revents(),
                Err(e) => return Err(e.into()),
            }
        };
        self.signals.drain();
        let was = |flag: &AtomicBool| flag.swap(false, Ordering::Relaxed);
        if was(&self.signals.quit) || ready.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(Wake::Quit);
        }
        if was(&self.signals.stop) {
            self.suspend(Stop::Alone)?;
            return Ok(Wake::Redraw);
        }
        let is_continued = was(&self.signals.continued);
        if is_continued {
            // The program that stopped us may have left the terminal in another mode. The library
            // believes that it is in raw mode, so raw mode has to be turned off first.
            disable_raw_mode()?;
            enable_raw_mode()?;
        }
        let mut events = Vec::new();
        while event::poll(Duration::ZERO)? {
            events.push(event::read()?);
        }
        if was(&self.signals.redraw) || is_continued {
            self.terminal.clear()?;
            if events.is_empty() {
                return Ok(Wake::Redraw);
            }
        }
        Ok(if events.is_empty() { Wake::Time } else { Wake::Events(events) })
    }
    /// Restores the terminal, and stops until the shell continues the program. If no shell waits
    /// for it, continues at once.
    pub fn suspend(&mut self, who: Stop) -> io::Result<()> {
        give_back();
        stop(who);
        self.terminal = enter()?;
        for flag in [&self.signals.stop, &self.signals.continued, &self.signals.redraw] {
            flag.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Who is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This process, which got the signal.
    Alone,
    /// All processes of its group, as by Ctrl-Z in a terminal that is not in raw mode. A shell
    /// waits for the whole group.
    Group,
}

/// Stops by SIGTSTP. Unlike SIGSTOP, the kernel ignores this signal if no shell could continue the
/// group.
fn stop(who: Stop) {
    let group = if who == Stop::Group { 0 } else { std::process::id() as libc::pid_t };
    // SAFETY: all zeroes are a sigaction, with the default action and an empty mask. The calls read
    // and write these two, and the restored handler is the previous one.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(SIGTSTP, &raw const default, &raw mut before) == 0 {
            libc::kill(group, SIGTSTP);
            libc::sigaction(SIGTSTP, &raw const before, std::ptr::null_mut());
        }
    }
}

fn enter() -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
    enable_raw_mode()?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout());
    execute!(out, EnterAlternateScreen, EnableMouseCapture, Hide)?;
    let mut terminal = Terminal::new(CrosstermBackend::new(out))?;
    terminal.clear()?;
    Ok(terminal)
}

/// Restores the terminal. It may be called twice.
fn give_back() {
    let mut out = io::stdout();
    // If the terminal is gone, an error cannot be reported.
    let _ = execute!(out, DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = out.flush();
}
