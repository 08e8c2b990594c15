//! Replaces a file at once, so that a reader sees the old text or the new one and never a part.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Puts this text into the file.
///
/// # Errors
/// What the system says.
pub fn replace(path: &Path, text: &[u8]) -> Result<(), String> {
    let failed = |what: &Path, e| format!("{}: {e}", crate::exit::shown(what));
    let name = path.file_name().ok_or_else(|| format!("{}: is no file", path.display()))?;
    // In the same directory, because a file can be renamed only within a file system. node_exporter reads *.prom only.
    let mut part = name.to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    // One that is there is of an earlier process with our id, which did not come to its end.
    let _ = fs::remove_file(&part);
    let open = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&part);
    let written = open.and_then(|mut file| file.write_all(text));
    let done = written
        .map_err(|e| failed(&part, e))
        .and_then(|()| fs::rename(&part, path).map_err(|e| failed(path, e)));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_or_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.prom");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).expect("it is written");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
        }
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
        assert!(replace(Path::new("/proc/a.prom"), b"x").is_err());
        assert!(replace(dir.path(), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
    }
}
