//! The engines that may answer, according to the caller's choice, the environment, and the brake of
//! the machine.
//!
//! The brake is the file [`CONF`]. It can only turn engines off, so a user who can write to it can
//! make requests slower and nothing else. A file that users other than root may write to, or that
//! cannot be read or parsed, counts as a pulled brake. Each request looks for the file again, which
//! costs one open(2), so the brake also works on programs that already run.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::engine::EngineId;
use crate::error::{Cause, Error};
use crate::snapshot::{ASKED_FOR, Caveat};

/// The environment variable that names an engine if the caller does not.
pub const ENV: &str = "TASKDIAG_ENGINE";
/// The file that turns all engines but procfs off for a whole machine, with the line `engine =
/// procfs`.
pub const CONF: &str = "/etc/taskdiag.conf";
/// The largest accepted size of that file in bytes.
const CONF_MAX: usize = 64 << 10;

/// Which engine may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// The engine that [`ENV`] names. If it names none, the fastest engine for each group.
    #[default]
    Auto,
    /// The fastest engine for each group; the environment is ignored.
    Fastest,
    /// Only this engine.
    Only(EngineId),
}

impl FromStr for Choice {
    type Err = String;
    /// `auto` means [`Choice::Fastest`], because an explicit `auto` overrides the environment.
    fn from_str(s: &str) -> Result<Choice, String> {
        if s == "auto" {
            return Ok(Choice::Fastest);
        }
        let names = || EngineId::ALL.map(EngineId::name).join(", ");
        EngineId::ALL
            .into_iter()
            .find(|e| e.name() == s)
            .map(Choice::Only)
            .ok_or_else(|| format!("there is no engine '{s}'; there are auto, {}", names()))
    }
}

/// The only engine allowed, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Only {
    pub(super) engine: EngineId,
    pub(super) why: String,
}

/// The rule for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ruled {
    /// The only engine that may answer, or `None` if the fastest one may.
    pub(super) only: Option<Only>,
    pub(super) caveat: Option<Caveat>,
}

/// Decides which engine may answer, from the caller's choice, the brake and the environment.
pub(super) fn rule(choice: Choice) -> Result<Ruled, Error> {
    ruled(choice, brake(), || if is_elevated() { None } else { std::env::var_os(ENV) })
}

fn ruled(
    choice: Choice,
    brake: Option<Brake>,
    env: impl FnOnce() -> Option<std::ffi::OsString>,
) -> Result<Ruled, Error> {
    let only = |engine, why| Ok(Ruled { only: Some(Only { engine, why }), caveat: None });
    match (brake, choice) {
        (Some(brake), Choice::Only(engine)) if engine != EngineId::Procfs => {
            Err(brake.refusal(engine))
        }
        (Some(brake), _) => {
            let one = Only { engine: EngineId::Procfs, why: brake.why() };
            Ok(Ruled { only: Some(one), caveat: brake.distrust.map(Caveat::Distrust) })
        }
        (None, Choice::Only(engine)) => only(engine, String::from(ASKED_FOR)),
        (None, Choice::Fastest) => Ok(Ruled { only: None, caveat: None }),
        (None, Choice::Auto) => {
            let Some(value) = env().filter(|v| !v.is_empty()) else {
                return Ok(Ruled { only: None, caveat: None });
            };
            let value = value.to_string_lossy();
            match value.parse().map_err(|e| Error::Setting(format!("{ENV}={value}: {e}")))? {
                Choice::Only(engine) => only(engine, format!("{ENV}={value} in the environment")),
                _ => Ok(Ruled { only: None, caveat: None }),
            }
        }
    }
}

/// Whether the program has more rights than its caller. Then the caller's environment is not
/// trusted.
fn is_elevated() -> bool {
    // SAFETY: this reads a number that the kernel gave to the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A pulled brake: only procfs may be used on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Brake {
    /// Why the file is not trusted, if the brake is pulled for that reason and not by its text.
    distrust: Option<String>,
}

impl Brake {
    fn why(&self) -> String {
        match &self.distrust {
            None => format!("{CONF} says 'engine = procfs'"),
            Some(why) => why.clone(),
        }
    }
    /// Why another engine may not be used.
    pub(super) fn refusal(&self, engine: EngineId) -> Error {
        let why = format!(
            "{}, which is for the whole machine: use --engine procfs, or leave --engine out",
            self.why()
        );
        Error::Unavailable { engine, cause: Cause::TurnedOff, why }
    }
}

/// Whether the brake is set.
pub(super) fn brake() -> Option<Brake> {
    brake_of(Path::new(CONF))
}

fn brake_of(path: &Path) -> Option<Brake> {
    // Without waiting, because it may not be a regular file, but a FIFO, for example.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let distrust =
        |why: String| Some(Brake { distrust: Some(format!("{}: {why}", path.display())) });
    match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(e) => distrust(format!("it cannot be read: {}", std::io::Error::from(e))),
        Ok(fd) => match text_of(&fd) {
            Err(why) => distrust(why),
            Ok(text) => match parse(&text) {
                Ok(true) => Some(Brake { distrust: None }),
                Ok(false) => None,
                Err(why) => distrust(why),
            },
        },
    }
}

/// The text of the file, if only root can have written it.
fn text_of(fd: &OwnedFd) -> Result<Vec<u8>, String> {
    let failed = |e: Errno| format!("it cannot be read: {}", std::io::Error::from(e));
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(String::from("it is not a regular file"));
    }
    if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
        return Err(format!(
            "users other than root may write to it (owner {}, mode {:o}): chown root and chmod 644 it",
            stat.st_uid,
            stat.st_mode & 0o7777
        ));
    }
    let mut text = vec![0; CONF_MAX];
    let mut len = 0;
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut text[len..]))
            .map_err(failed)?
        {
            0 if len == CONF_MAX => return Err(String::from("it is too long")),
            0 => break,
            n => len += n,
        }
    }
    text.truncate(len);
    Ok(text)
}

/// Whether the text sets the brake. `Err` if it has a line that is not allowed.
fn parse(text: &[u8]) -> Result<bool, String> {
    let mut pulled = false;
    for (i, line) in text.split(|b| *b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let mut parts = line.splitn(2, |b| *b == b'=').map(<[u8]>::trim_ascii);
        match (parts.next(), parts.next()) {
            (Some(b"engine"), Some(b"procfs")) => pulled = true,
            (Some(b"engine"), Some(b"auto")) => {}
            _ => {
                return Err(format!(
                    "line {} is neither 'engine = procfs' nor 'engine = auto'",
                    i + 1
                ));
            }
        }
    }
    Ok(pulled)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn only(r: Result<Ruled, Error>) -> Option<EngineId> {
        r.expect("it makes sense").only.map(|o| o.engine)
    }

    #[test]
    fn the_text_of_the_brake_is_understood_or_pulls_it() {
        for (text, pulled) in [
            ("", false),
            ("# engine = procfs\n\n", false),
            ("engine = auto\n", false),
            ("engine = procfs", true),
            (" engine=procfs \n# why: a kernel bug\n", true),
            ("engine = procfs\nengine = auto\n", true),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(pulled), "{text}");
        }
        for bad in ["engine = bpf", "engine", "engin = procfs", "engine = procfs off", "\u{0}"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_brake_wins_then_the_caller_then_the_environment() {
        let env = |v: &str| Some(OsString::from(v));
        let unset = || None;
        let pulled = || Some(Brake::default());
        let (bpf, procfs) = (Choice::Only(EngineId::Bpf), Choice::Only(EngineId::Procfs));
        assert_eq!(only(ruled(Choice::Auto, None, unset)), None);
        assert_eq!(only(ruled(Choice::Auto, None, || env("procfs"))), Some(EngineId::Procfs));
        assert_eq!(only(ruled(Choice::Auto, None, || env("auto"))), None);
        assert_eq!(only(ruled(Choice::Auto, None, || env(""))), None);
        assert_eq!(only(ruled(Choice::Fastest, None, || env("procfs"))), None);
        assert_eq!(only(ruled(bpf, None, || env("procfs"))), Some(EngineId::Bpf));
        assert_eq!(only(ruled(bpf, None, || env("nonsense"))), Some(EngineId::Bpf));
        for choice in [Choice::Auto, Choice::Fastest, procfs] {
            assert_eq!(only(ruled(choice, pulled(), || env("bpf"))), Some(EngineId::Procfs));
        }
        let refused = ruled(bpf, pulled(), unset).expect_err("bpf is off");
        assert!(refused.to_string().contains(CONF), "{refused}");
        let wrong = ruled(Choice::Auto, None, || env("bfp")).expect_err("no engine");
        assert!(wrong.to_string().contains("TASKDIAG_ENGINE=bfp"), "{wrong}");
    }

    #[test]
    fn a_file_that_others_may_write_to_is_the_brake() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("conf");
        assert_eq!(brake_of(&path), None);
        assert_eq!(brake_of(&path.join("below")), None);
        let put = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("changed");
            brake_of(&path)
        };
        // SAFETY: no arguments, cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        // A file of another user is not trusted at all.
        assert_eq!(put("engine = procfs", 0o644).map(|b| b.distrust.is_none()), Some(is_root));
        assert_eq!(put("engine = auto", 0o644).is_none(), is_root);
        assert_eq!(put("engine = bpf", 0o644).map(|b| b.distrust.is_some()), Some(true));
        for mode in [0o666, 0o664, 0o646] {
            let distrust = put("engine = auto", mode).expect("the safe choice").distrust;
            assert!(distrust.expect("a reason").contains("users other than root"), "{mode:o}");
        }
        let long = "#".repeat(CONF_MAX + 1);
        assert!(put(&long, 0o644).is_some());
        // A FIFO is not a regular file, and must not block.
        std::fs::remove_file(&path).expect("removed");
        let status = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(status.expect("mkfifo runs").success());
        assert!(brake_of(&path).is_some());
    }
}
