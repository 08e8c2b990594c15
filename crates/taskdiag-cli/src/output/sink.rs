//! Standard output with a large buffer of our own: the standard library's is line-buffered and
//! would search every line's end again.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, retry_on_intr};

/// Collects bytes and writes them in large pieces.
#[derive(Debug)]
pub struct Sink {
    buf: Vec<u8>,
    /// Write when this much has come together.
    full: usize,
}

/// A first piece is out soon, and a large answer is not many system calls; nor do its pages cost
/// more than those, and most of it stays in the cache until it is written.
const FIRST: usize = 1 << 18;
const LARGEST: usize = 1 << 21;

impl Sink {
    /// Over standard output.
    pub fn stdout() -> Sink {
        Sink { buf: Vec::with_capacity(FIRST + (FIRST >> 2)), full: FIRST }
    }
    /// The buffer, to append to. Call [`Sink::settle`] now and then.
    pub fn buf(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }
    /// Write if much has come together.
    pub fn settle(&mut self) -> io::Result<()> {
        if self.buf.len() < self.full {
            return Ok(());
        }
        self.full = LARGEST.min(self.full * 2);
        self.finish()
    }
    /// Write all.
    pub fn finish(&mut self) -> io::Result<()> {
        write_all(&self.buf)?;
        self.buf.clear();
        Ok(())
    }
}

/// Is nothing to be written, by a harness that only wants the way to the output taken?
static SILENT: AtomicBool = AtomicBool::new(false);

/// Write nothing to standard output or error from now on.
pub fn be_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Is nothing to be written?
pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Write bytes to standard output.
pub fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    if is_silent() {
        return Ok(());
    }
    let out = io::stdout();
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::write(&out, bytes)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::AGAIN) => wait(&out)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// A non-blocking pipe is full: someone else set it so, and we just wait.
fn wait(out: &io::Stdout) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(out, PollFlags::OUT)];
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buf.extend_from_slice(bytes);
        self.settle()?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.finish()
    }
}
