//! Writes a file so that nobody sees a part of it: under another name first, and under its own when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Calls `fill` to write a new file with this mode, and then gives it the name `path`. A file that was there is replaced, and
/// stays as it was after an error.
///
/// # Errors
/// What the system or `fill` says, without the path. There is no other file left then.
pub fn replace(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    // In the same directory, because rename(2) works within one file system only. The end of the name differs from that of
    // `path`, since some directories are read by the ends of names: node_exporter reads all *.prom.
    let mut part = name.to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    // A file that is there was left by an earlier process with our pid, which was killed.
    let _ = fs::remove_file(&part);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
    let done = fill(&mut file).and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

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
        // Nothing is left beside it.
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
    }
}
