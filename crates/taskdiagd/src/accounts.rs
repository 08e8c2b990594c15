//! Keeps the accounts of users in a file, so that they outlive the service. A user who makes the
//! service end, for example at its memory limit, is charged for that and does not start with a full
//! account.
//!
//! The file is in the unit's `RuntimeDirectory=`, which only the service can write to, or next to
//! the socket of a service that was started by hand. The file is replaced by rename, so it is
//! always complete. A file of another user, or one that cannot be parsed, is ignored. Times are
//! CLOCK_BOOTTIME, which continues while no service runs; the directory does not survive a reboot.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::fair::{BURST, Fair};
use crate::say::say;

/// The largest number of accounts that are kept. The lowest ones are kept.
const ACCOUNTS: usize = 4096;
/// The longest file. A line has at most 32 bytes.
const LONGEST: u64 = ACCOUNTS as u64 * 32 + 64;
/// The first line.
const MAGIC: &str = "taskdiagd accounts 1";

/// The path of the file.
#[derive(Debug, Default)]
pub struct Accounts {
    path: Option<PathBuf>,
    has_failed: bool,
}

impl Accounts {
    /// In systemd's directory, or next to a given socket.
    pub fn of(socket: Option<&Path>) -> Accounts {
        let named = std::env::var_os("RUNTIME_DIRECTORY").filter(|v| !v.is_empty());
        let beside = |socket: &Path| {
            let mut name = socket.as_os_str().to_owned();
            name.push(".accounts");
            PathBuf::from(name)
        };
        let path = match (socket, named) {
            (Some(socket), _) => Some(beside(socket)),
            (None, Some(dir)) => Some(Path::new(&dir).join("accounts")),
            (None, None) => None,
        };
        Accounts { path, has_failed: false }
    }

    /// Reads the accounts of an earlier service.
    pub fn load(&self, now: Instant) -> Fair {
        let mut fair = Fair::default();
        let Some(path) = &self.path else { return fair };
        let read = read(path).and_then(|text| {
            parse(&text, boottime_ms()).ok_or_else(|| io::Error::other("it cannot be parsed"))
        });
        match read {
            Ok(all) => all.into_iter().for_each(|(uid, balance)| fair.restore(uid, balance, now)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => say(format_args!("{}: {e}; users begin with full accounts", path.display())),
        }
        fair
    }

    /// Writes the accounts. `walks_for`: the user that caused a walk. If the service ends before it
    /// writes again, that user stays charged.
    pub fn save(&mut self, fair: &mut Fair, walks_for: Option<u32>, now: Instant) {
        let Some(path) = &self.path else { return };
        let mut all = fair.accounts(now);
        if let Some(uid) = walks_for {
            let charged = |balance: f64| balance - BURST.as_secs_f64();
            match all.iter_mut().find(|(u, _)| *u == uid) {
                Some((_, balance)) => *balance = charged(*balance),
                None => all.push((uid, charged(BURST.as_secs_f64()))),
            }
        }
        all.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
        all.truncate(ACCOUNTS);
        let written = write(path, &text(&all, boottime_ms()));
        if let Err(e) = &written {
            if !self.has_failed {
                say(format_args!("{}: {e}; accounts of users will not outlive it", path.display()));
            }
        }
        self.has_failed = written.is_err();
    }
}

fn text(all: &[(u32, f64)], at_ms: u64) -> String {
    let mut text = format!("{MAGIC}\n{at_ms}\n");
    for (uid, balance) in all {
        text.push_str(&format!("{uid} {}\n", (balance * 1e6) as i64));
    }
    text
}

/// Parses the users and their accounts, in seconds of CPU time, before the refill for the time
/// since.
fn parse(text: &str, now_ms: u64) -> Option<Vec<(u32, f64)>> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != MAGIC {
        return None;
    }
    let age = Duration::from_millis(now_ms.checked_sub(lines.next()?.parse().ok()?)?);
    let account = |line: &str| {
        let (uid, balance) = line.split_once(' ')?;
        let balance = balance.parse::<i64>().ok()? as f64 / 1e6;
        Some((uid.parse().ok()?, Fair::filled(balance, age)))
    };
    let all: Vec<_> = lines.map(account).collect::<Option<_>>()?;
    (all.len() <= ACCOUNTS).then_some(all)
}

/// Reads a file that only we can have written.
fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let there = file.metadata()?;
    let me = rustix::process::geteuid().as_raw();
    let is_ours = there.is_file() && there.uid() == me && there.mode() & 0o022 == 0;
    if !is_ours || there.len() > LONGEST {
        return Err(io::Error::other("it is not a file of this service"));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let make = || -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)
    };
    let mut file = match make() {
        // A service that ended during a write has left it.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(&new)?;
            make()?
        }
        made => made?,
    };
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}

fn boottime_ms() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dir: &tempfile::TempDir) -> Accounts {
        Accounts { path: Some(dir.path().join("accounts")), has_failed: false }
    }

    #[test]
    fn accounts_outlive_the_service() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut accounts, now) = (kept(&dir), Instant::now());
        let mut fair = accounts.load(now);
        fair.charge(1000, Duration::from_secs(3), now);
        fair.charge(0, Duration::from_millis(100), now);
        accounts.save(&mut fair, None, now);
        let mut again = kept(&dir).load(Instant::now());
        let wait = again.wait(1000, Instant::now()).expect("it has to wait");
        assert!(wait > Duration::from_secs(8), "{wait:?}");
        assert_eq!((again.wait(0, Instant::now()), again.wait(7, Instant::now())), (None, None));
    }

    #[test]
    fn a_user_who_ends_the_service_is_charged_each_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Instant::now();
        // The service ends within the walk each time.
        for _ in 0..5 {
            let mut accounts = kept(&dir);
            let mut fair = accounts.load(now);
            accounts.save(&mut fair, Some(1000), now);
        }
        let wait = kept(&dir).load(now).wait(1000, now).expect("it has to wait");
        assert!(wait > Duration::from_secs(6), "{wait:?}");
        // A walk that ends normally costs the user no such charge.
        let mut accounts = kept(&dir);
        let mut fair = Fair::default();
        accounts.save(&mut fair, Some(1000), now);
        accounts.save(&mut fair, None, now);
        assert_eq!(kept(&dir).load(now).wait(1000, now), None);
    }

    #[test]
    fn an_odd_file_of_accounts_is_ignored() {
        let dir = tempfile::tempdir().expect("a directory");
        let accounts = kept(&dir);
        let path = dir.path().join("accounts");
        let good = text(&[(1000, -9.0)], boottime_ms());
        let now = Instant::now();
        let waits = || accounts.load(now).wait(1000, now).is_some();
        write(&path, &good).expect("written");
        assert!(waits());
        let many = (0..=ACCOUNTS as u32).map(|uid| (uid, -9.0)).collect::<Vec<_>>();
        for bad in [
            String::new(),
            good[..good.len() - 1].to_owned(),
            good.replace("accounts 1", "accounts 2"),
            good.replace("1000 ", "1000"),
            format!("{good}x\n"),
            // The time of the file would be in the future.
            text(&[(1000, -9.0)], boottime_ms() + 1_000_000),
            text(&many, boottime_ms()),
        ] {
            write(&path, &bad).expect("written");
            assert!(!waits(), "{bad:.80}");
        }
        write(&path, &good).expect("written");
        let with = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, with).expect("it is ours");
        assert!(!waits(), "others may write to it");
        std::fs::remove_file(&path).expect("removed");
        write(&dir.path().join("other"), &good).expect("written");
        std::os::unix::fs::symlink("other", &path).expect("a link");
        assert!(!waits(), "a link");
        std::fs::remove_file(&path).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).expect("a pipe");
        assert!(!waits(), "a pipe does not block it");
        // Even the largest debt is paid off in the end.
        std::fs::remove_file(&path).expect("removed");
        write(&path, &text(&[(1000, -1e9)], boottime_ms())).expect("written");
        let wait = accounts.load(now).wait(1000, now).expect("it has to wait");
        assert!(wait < Duration::from_secs(300), "{wait:?}");
    }
}
