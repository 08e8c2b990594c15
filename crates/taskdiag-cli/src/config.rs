//! Configuration files: `/etc/taskdiag.toml` for the machine, and files in the user's configuration
//! directory. They are read and written with bounds of size and time, and a file or directory of
//! another user is not trusted.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::aside;
use crate::exit::{say, shown};

/// The file of the machine.
pub const OF_MACHINE: &str = "/etc/taskdiag.toml";
/// The largest accepted size of a configuration file in bytes.
const MOST: u64 = 64 << 10;

/// The user's directory for such files, from the environment: `$XDG_CONFIG_HOME` or `~/.config`.
pub fn directory() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))
}

fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// The bytes of a file, or `None` if it does not exist or may not be read. The home of a user may
/// be on a file system that does not answer. So this process opens a file of a user only if all of
/// its path is in memory. Otherwise a child opens it, for which this process does not wait long.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let is_lacking = |e: std::io::ErrorKind| {
        use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        matches!(e, NotFound | NotADirectory | PermissionDenied)
    };
    let made = match openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(fd) => content(File::from(fd)),
        Err(e) if is_lacking(e.kind()) => return Ok(None),
        // /etc is on the file system of the programs, so it answers if programs can be started.
        Err(_) if path == Path::new(OF_MACHINE) => match opened(path) {
            Ok(file) => content(file),
            Err(e) if is_lacking(e.kind()) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        },
        Err(_) => {
            let (said, end) = aside::ask(|to| {
                // The first byte determines the meaning of the others.
                let (kind, bytes) = match content(opened(path)?) {
                    Ok(bytes) => (b'+', bytes),
                    Err(Refused::Foreign(uid)) => (b'u', uid.to_ne_bytes().to_vec()),
                    Err(Refused::Wrong(why)) => (b'-', why.into_bytes()),
                };
                to.write_all(&[kind])?;
                to.write_all(&bytes)
            });
            match end {
                Err(e) if is_lacking(e.kind()) => return Ok(None),
                Err(e) => return Err(e.to_string()),
                Ok(()) => match said.split_first() {
                    Some((b'+', bytes)) => Ok(bytes.to_vec()),
                    Some((b'u', uid)) => {
                        Err(Refused::Foreign(uid.try_into().map_or(0, u32::from_ne_bytes)))
                    }
                    Some((_, why)) => {
                        Err(Refused::Wrong(String::from_utf8_lossy(why).into_owned()))
                    }
                    None => return Ok(None),
                },
            }
        }
    };
    match made {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Refused::Wrong(why)) => Err(why),
        Err(Refused::Foreign(uid)) => {
            say(format_args!("taskdiag: {} belongs to uid {uid}, so it is not used", shown(path)));
            Ok(None)
        }
    }
}

/// Opens a file without waiting for a writer of a FIFO.
fn opened(path: &Path) -> std::io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Why a file is not used.
enum Refused {
    /// The file or directory belongs to another user.
    Foreign(u32),
    Wrong(String),
}

/// The bytes of an open file, if it may be trusted.
fn content(file: File) -> Result<Vec<u8>, Refused> {
    let wrong = |why: String| Err(Refused::Wrong(why));
    let failed = |e: std::io::Error| Refused::Wrong(e.to_string());
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return wrong(String::from("it is not a regular file: remove it, or make it one"));
    }
    let me = rustix::process::geteuid().as_raw();
    // With sudo, HOME may still be that of the caller. Root must not follow settings in a file of
    // another user.
    if meta.uid() != 0 && meta.uid() != me {
        return Err(Refused::Foreign(meta.uid()));
    }
    if meta.len() > MOST {
        return wrong(format!("it is larger than {} KiB", MOST >> 10));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST {
        return wrong(format!("it is larger than {} KiB", MOST >> 10));
    }
    Ok(bytes)
}

/// The text of a file. `None`: it is not there.
pub fn text(path: &Path) -> Result<Option<String>, String> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| String::from("it is not UTF-8"))
}

/// The lines `KEY = "VALUE"` of a text, each with its number. It is TOML with keys and texts only.
/// A whole parser of TOML would be larger than all that uses it.
pub fn pairs<'a>(text: &'a str, example: &str) -> Result<Vec<(usize, &'a str, &'a str)>, String> {
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let wrong = |why: String| Err(format!("line {}: {why}", n + 1));
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return wrong(format!("a line is KEY = \"VALUE\", such as {example}"));
        };
        let (key, value) = (key.trim(), value.trim());
        let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
        let Some((value, after)) = quote.and_then(|q| value[1..].split_once(q)) else {
            return wrong(format!("a value stands in quotation marks, as in {example}"));
        };
        let after = after.trim();
        if !(after.is_empty() || after.starts_with('#')) {
            return wrong(String::from("there is something after the value"));
        }
        if out.iter().any(|(_, other, _)| *other == key) {
            return wrong(format!("{key} is there twice"));
        }
        out.push((n + 1, key, value));
    }
    Ok(out)
}

/// Writes a file into `taskdiag/` of the user's directory: the old file is replaced only by a
/// complete new one. Each directory on the way must belong to the caller and be writable for nobody
/// else, so that root never writes into the home of another user. A child does it, because a home
/// may be on a file system that does not answer.
///
/// Returns the path, or a sentence that says why nothing was written.
#[cfg(feature = "top")]
pub fn write(name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    let (base, below): (PathBuf, &[&str]) = match (absolute("XDG_CONFIG_HOME"), absolute("HOME")) {
        (Some(base), _) => (base, &["taskdiag"]),
        (None, Some(home)) => (home, &[".config", "taskdiag"]),
        (None, None) => return Err(String::from("neither HOME nor XDG_CONFIG_HOME is set")),
    };
    let (said, end) = aside::ask(|to| match put(&base, below, name, bytes) {
        Ok(()) => Ok(()),
        Err(why) => to.write_all(why.as_bytes()),
    });
    let path = below.iter().fold(base, |path, name| path.join(name)).join(name);
    match end {
        Err(e) => Err(format!("{}: {e}", shown(&path))),
        Ok(()) if said.is_empty() => Ok(path),
        Ok(()) => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

#[cfg(feature = "top")]
fn put(base: &Path, below: &[&str], name: &str, bytes: &[u8]) -> Result<(), String> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
    let failed =
        |path: &Path, e: rustix::io::Errno| format!("{}: {}", shown(path), std::io::Error::from(e));
    // A link that root finds in a directory may be another user's. Below a directory that only the
    // caller can write to, links are the caller's own, as those of programs that manage dotfiles.
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut path = base.to_owned();
    let mut dir = openat(CWD, base, flags, Mode::empty()).map_err(|e| failed(base, e))?;
    is_own(&dir, &path)?;
    if rustix::process::geteuid().is_root() {
        flags |= OFlags::NOFOLLOW;
    }
    for part in below {
        path.push(part);
        match mkdirat(&dir, *part, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(failed(&path, e)),
        }
        dir = openat(&dir, *part, flags, Mode::empty()).map_err(|e| failed(&path, e))?;
        is_own(&dir, &path)?;
    }
    path.push(name);
    let part = format!(".{name}.{}.part", std::process::id());
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let write = || -> std::io::Result<()> {
        let mut file = File::from(openat(&dir, &part, new, Mode::RUSR | Mode::WUSR)?);
        file.write_all(bytes)?;
        file.sync_all()?;
        renameat(&dir, &part, &dir, name)?;
        Ok(())
    };
    // Remove a part file that a killed process with the same id has left.
    let _ = unlinkat(&dir, &part, AtFlags::empty());
    write().map_err(|e| {
        let _ = unlinkat(&dir, &part, AtFlags::empty());
        format!("{}: {e}", shown(&path))
    })
}

/// Does a directory belong to the caller, and may nobody else write to it?
#[cfg(feature = "top")]
fn is_own(dir: &std::os::fd::OwnedFd, path: &Path) -> Result<(), String> {
    let stat = rustix::fs::fstat(dir).map_err(|e| std::io::Error::from(e).to_string())?;
    let me = rustix::process::geteuid();
    if stat.st_uid != me.as_raw() {
        let hint = if me.is_root() { "; 'sudo -H' uses root's own home" } else { "" };
        return Err(format!("{} belongs to uid {}{hint}", shown(path), stat.st_uid));
    }
    // Many users have a group of their own, whose only member they are.
    let others = if me.is_root() { 0o022 } else { 0o002 };
    match stat.st_mode & others {
        0 => Ok(()),
        _ => Err(format!("others may write to {}", shown(path))),
    }
}

#[cfg(all(test, feature = "top"))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_file_is_replaced_whole_and_only_in_directories_of_the_caller() {
        let home = tempfile::tempdir().expect("a directory");
        let below = [".config", "taskdiag"];
        let file = home.path().join(".config/taskdiag/top.toml");
        for text in ["first", "second"] {
            put(home.path(), &below, "top.toml", text.as_bytes()).expect("it is ours");
            assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
        }
        let dir = file.parent().expect("it has one");
        assert_eq!(std::fs::read_dir(dir).expect("it is there").count(), 1);
        assert_eq!(std::fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
        let shared = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir, shared).expect("it is ours");
        let why = put(home.path(), &below, "top.toml", b"third").expect_err("others may write");
        assert!(why.contains("others may write to"), "{why}");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "second");
        if rustix::process::geteuid().is_root() {
            let foreign = tempfile::tempdir().expect("a directory");
            std::os::unix::fs::chown(foreign.path(), Some(4242), None).expect("root may");
            let why = put(foreign.path(), &below, "top.toml", b"x").expect_err("not ours");
            assert!(why.contains("belongs to uid 4242"), "{why}");
            assert_eq!(std::fs::read_dir(foreign.path()).expect("it is there").count(), 0);
            // A link in root's own home that leads elsewhere is not followed.
            let linked = tempfile::tempdir().expect("a directory");
            symlink(foreign.path(), linked.path().join(".config")).expect("a link");
            put(linked.path(), &below, "top.toml", b"x").expect_err("a link");
            assert_eq!(std::fs::read_dir(foreign.path()).expect("it is there").count(), 0);
        }
    }
}
