//! `taskdiagd`: shows the public part of /proc to every user, read by BPF programs that stay
//! loaded.
//!
//! [`mod@serve`] has the loop, [`caller`] checks callers, [`answers`] makes answers, [`text`] knows
//! which command lines are public, [`fair`] has the accounts of users, and [`accounts`] stores them
//! in a file. [`mod@threads`] looks at the threads of callers. `taskdiag::service::shown` defines
//! the data that may be shown.

mod accounts;
mod answers;
mod caller;
mod fair;
mod say;
mod serve;
mod text;
mod threads;

use std::ffi::OsString;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::accounts::Accounts;
use crate::say::say;
use crate::serve::{BACKLOG, CONNECTIONS, Server};

/// The mode of a socket of our own.
const EVERYONE: u32 = 0o666;

const HELP: &str = "\
Keep BPF programs loaded, and tell every user what /proc shows everyone.

Usage: taskdiagd [OPTIONS]

systemd starts it when somebody asks (taskdiagd.socket). To start it by hand:

  --socket PATH       listen there (everyone may connect; TASKDIAG_SOCKET=PATH makes taskdiag ask there)
  --idle-exit SECONDS end when nobody has asked for this long (default: 60 with a socket of systemd, else never)
  --help              this text
  --version           the version

It needs CAP_BPF and CAP_PERFMON and nothing else. docs/operate/service.md says what it shows to which callers.
";

#[derive(Debug, Default, PartialEq)]
struct Options {
    socket: Option<PathBuf>,
    idle: Option<Duration>,
}

enum Action {
    Serve(Options),
    Text(String),
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Action, String> {
    let mut options = Options::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        let (name, mut value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
            None => (text, None),
        };
        let mut value = || {
            let value = value.take().or_else(|| args.next());
            value.ok_or_else(|| format!("{name} needs a value; see taskdiagd --help"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Action::Text(HELP.to_owned())),
            "--version" | "-V" => {
                return Ok(Action::Text(format!("taskdiagd {}\n", env!("CARGO_PKG_VERSION"))));
            }
            "--socket" => options.socket = Some(value()?.into()),
            "--idle-exit" => {
                let value = value()?;
                let seconds = value.to_str().and_then(|v| v.parse().ok()).filter(|s| *s > 0);
                let seconds = seconds.ok_or("--idle-exit needs a number of seconds above 0")?;
                options.idle = Some(Duration::from_secs(seconds));
            }
            _ => return Err(format!("there is no option '{name}'; see taskdiagd --help")),
        }
    }
    Ok(Action::Serve(options))
}

/// The socket that systemd has opened for us, if it has.
fn from_systemd() -> Result<Option<OwnedFd>, String> {
    const FIRST: libc::c_int = 3;
    let var = |name| std::env::var(name).ok();
    if var("LISTEN_PID").as_deref() != Some(&std::process::id().to_string()) {
        return Ok(None);
    }
    if var("LISTEN_FDS").as_deref() != Some("1") {
        return Err(String::from(
            "systemd passes several sockets; taskdiagd.socket must have exactly one",
        ));
    }
    // SAFETY: the call only looks at a number.
    if unsafe { libc::fcntl(FIRST, libc::F_GETFD) } == -1 {
        return Err(String::from("LISTEN_FDS names a socket, and descriptor 3 is not open"));
    }
    // SAFETY: it is open, the environment names it for us, and it has not been used yet.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
    let kind = rustix::net::sockopt::socket_type(&fd);
    let domain = rustix::net::sockopt::socket_domain(&fd);
    let is_unix = domain == Ok(rustix::net::AddressFamily::UNIX);
    if !is_unix || kind != Ok(rustix::net::SocketType::STREAM) {
        return Err(String::from("the socket of systemd is not a ListenStream= with a path"));
    }
    rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::CLOEXEC).map_err(|e| e.to_string())?;
    Ok(Some(fd))
}

/// Creates a socket. An existing one is replaced if no process listens on it.
fn listen(path: &Path) -> Result<OwnedFd, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    match std::fs::symlink_metadata(path) {
        Ok(m) if !m.file_type().is_socket() => {
            return Err(format!("{} exists and is not a socket", path.display()));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(format!("another process listens on {} already", path.display()));
        }
        Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        Err(_) => {}
    }
    // The mode is set before the socket has its name, because another user could replace the file
    // between. bind(2) applies the umask to it.
    let kept = rustix::process::umask(Mode::from_raw_mode(0o777 & !EVERYONE));
    let bound = socket().and_then(|fd| {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(EVERYONE))?;
        rustix::net::bind(&fd, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(fd)
    });
    rustix::process::umask(kept);
    bound.map_err(|e| failed(e.into()))
}

fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Raises the limit of descriptors as far as possible, and returns the number of connections for
/// which it suffices.
fn raise_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write one struct. If they fail, fewer clients are served at a
    // time.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            let wanted = limit.rlim_max.min(8192).max(limit.rlim_cur);
            let more = libc::rlimit { rlim_cur: wanted, ..limit };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const more) == 0 {
                limit = more;
            }
        }
    }
    room(limit.rlim_cur)
}

/// The largest number of connections for this number of descriptors. Each connection takes six: its
/// socket, and five of the caller's process. The service itself takes about a hundred.
fn room(descriptors: u64) -> usize {
    let most = descriptors.saturating_sub(200) / 6;
    usize::try_from(most).map_or(CONNECTIONS, |most| most.clamp(1, CONNECTIONS))
}

fn serve(options: Options) -> Result<(), String> {
    let room = raise_limit();
    let accounts = Accounts::of(options.socket.as_deref());
    let (listener, idle) = match (options.socket, from_systemd()?) {
        (None, Some(fd)) => (fd, Some(options.idle.unwrap_or(Duration::from_secs(60)))),
        (Some(path), None) => (listen(&path)?, options.idle),
        (Some(_), Some(_)) => {
            return Err(String::from(
                "--socket and a socket of systemd cannot be combined: use one",
            ));
        }
        (None, None) => {
            return Err(String::from(
                "there is no socket: start taskdiagd.socket with systemctl, or name one with --socket PATH",
            ));
        }
    };
    let mut server =
        Server::new(listener, room, accounts).map_err(|e| format!("preparing to listen: {e}"))?;
    server.run(idle).map_err(|e| format!("waiting for requests: {e}"))
}

/// Makes the allocator return the memory of each large buffer to the system. It would otherwise
/// learn to keep buffers of up to 32 MiB, with gaps between them. This is called before there are
/// threads.
fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: this sets a number in the allocator. If the allocator refuses it, nothing changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20)
    };
}

fn main() -> ExitCode {
    return_large_buffers();
    let done = match parse(std::env::args_os().skip(1)) {
        Ok(Action::Text(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Ok(Action::Serve(options)) => serve(options),
        Err(e) => {
            say(format_args!("{e}"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(format_args!("{e}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        match parse(args.iter().map(OsString::from))? {
            Action::Serve(options) => Ok(options),
            Action::Text(text) => Err(text),
        }
    }

    #[test]
    fn options_are_read_or_refused() {
        let both = Options { socket: Some("/x".into()), idle: Some(Duration::from_secs(5)) };
        assert_eq!(options(&["--socket", "/x", "--idle-exit=5"]), Ok(both));
        assert_eq!(options(&[]), Ok(Options::default()));
        for bad in [&["--socket"][..], &["--idle-exit", "0"], &["--idle-exit", "x"], &["here"]] {
            assert!(options(bad).is_err(), "{bad:?}");
        }
        assert!(options(&["--help"]).is_err_and(|t| t.contains("--socket PATH")));
    }

    #[test]
    fn each_connection_has_its_descriptors() {
        assert_eq!((room(8192), room(1024), room(100)), (CONNECTIONS, 137, 1));
        assert_eq!(room(u64::MAX), CONNECTIONS);
    }

    #[test]
    fn a_socket_is_taken_over_only_if_nobody_listens() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let first = listen(&path).expect("it is free");
        assert!(listen(&path).is_err_and(|e| e.contains("already")));
        drop(first);
        listen(&path).expect("nobody listens there any more");
        let mode = std::fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, EVERYONE);
        std::fs::write(dir.path().join("file"), "x").expect("written");
        assert!(listen(&dir.path().join("file")).is_err_and(|e| e.contains("not a socket")));
    }
}
