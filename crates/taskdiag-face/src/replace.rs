//! Writes a file so that no reader sees an incomplete one: it has another name until it is
//! complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The kernel also follows at most this many links.
const LINKS_MAX: usize = 40;

/// Calls `fill` to write a new file with this mode, and then gives it the name `path`. An existing
/// file is replaced. After an error, it is unchanged. A symbolic link stays a link, and the file
/// that it leads to is replaced.
///
/// # Errors
/// The error of the system or of `fill`, without the path. No other file is left then.
/// `InvalidInput`: the path is not a regular file, but for example a device, a pipe, or a link of
/// another user. It stays as it is.
pub fn replace(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let path = &target(path)?;
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    // In the same directory, because rename(2) works within one file system only. The end of the
    // name differs from that of `path`, because programs select files by their suffix:
    // node_exporter reads all *.prom.
    let mut part = name.to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    // An existing file was left by an earlier process with our pid, which was killed.
    let _ = fs::remove_file(&part);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
    let done = fill(&mut file).and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// Whether [`replace`] would refuse this path, for commands that read much before they write.
///
/// # Errors
/// As [`replace`], and if the directory is not there or its file system does not answer.
#[cfg(feature = "program")]
pub fn check(path: &Path) -> io::Result<()> {
    crate::aside::answers(path)?;
    let path = target(path)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(parent)?.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// The file that is replaced: `path`, or what it leads to if it is a link.
fn target(path: &Path) -> io::Result<PathBuf> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    // The kernel follows the links, because those in /proc/self/fd may lead to files without a
    // name.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return refused("it is not a regular file");
    }
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(there) = fs::symlink_metadata(&path) else { return Ok(path) };
        if !there.is_symlink() {
            return match there.is_file() {
                true => Ok(path),
                false => refused("it is not a regular file"),
            };
        }
        // Otherwise, a user who may create links in the directory could make root replace any file.
        if there.uid() != 0 && there.uid() != rustix::process::geteuid().as_raw() {
            return refused("it is a symbolic link of another user: remove it, or name its target");
        }
        let leads_to = fs::read_link(&path)?;
        path.pop();
        path.push(leads_to);
    }
    Err(rustix::io::Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, lchown, symlink};

    #[test]
    fn a_file_is_replaced_or_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.prom");
        for text in ["one", "two"] {
            replace(&path, 0o600, |f| f.write_all(text.as_bytes())).expect("it is written");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
            let mode = path.metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let failed = replace(&path, 0o600, |f| {
            f.write_all(b"three")?;
            Err(io::Error::other("no"))
        });
        assert_eq!(failed.expect_err("it fails").to_string(), "no");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "two");
        for wrong in [Path::new("/proc/a.prom"), dir.path(), Path::new("/")] {
            replace(wrong, 0o600, |f| f.write_all(b"x")).expect_err("no file can be there");
        }
        // No other file is left in the directory.
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
    }

    #[test]
    fn devices_and_pipes_are_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let (fifo, link) = (dir.path().join("fifo"), dir.path().join("link"));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a pipe");
        symlink("fifo", &link).expect("a link");
        for path in [&fifo, &link] {
            let failed = replace(path, 0o600, |f| f.write_all(b"x")).expect_err("it is no file");
            assert_eq!(failed.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(failed.to_string(), "it is not a regular file");
        }
        assert!(fifo.symlink_metadata().expect("it is there").file_type().is_fifo());
        assert!(link.symlink_metadata().expect("it is there").is_symlink());
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 2);
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, links) = (dir.path().join("sub/file"), ["a", "b"].map(|n| dir.path().join(n)));
        fs::create_dir(dir.path().join("sub")).expect("a directory");
        symlink("b", &links[0]).expect("a link");
        symlink("sub/file", &links[1]).expect("a link");
        // Once without the file, and once with it.
        for text in ["one", "two"] {
            replace(&links[0], 0o600, |f| f.write_all(text.as_bytes())).expect("it is written");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), text);
            for link in &links {
                assert!(link.symlink_metadata().expect("it is there").is_symlink());
            }
        }
        symlink("circle", dir.path().join("circle")).expect("a link");
        replace(&dir.path().join("circle"), 0o600, |_| Ok(())).expect_err("it leads nowhere");
        if rustix::process::geteuid().is_root() {
            lchown(&links[1], Some(65534), None).expect("root may");
            let failed = replace(&links[0], 0o600, |f| f.write_all(b"three"));
            let failed = failed.expect_err("it is the link of another user").to_string();
            assert!(failed.contains("of another user"), "{failed}");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), "two");
        }
    }
}
