//! Opens the files of a recording. All of them are opened here, so that a named pipe cannot block a
//! program: opening one waits for the other end, unless the flag `O_NONBLOCK` is set.
//!
//! A writer only changes files in a directory that no other user can change. It often runs as root.
//! Another user who can create names in the directory could put a link to a file of root there,
//! which the writer would truncate and append to. Readers change nothing, so they follow links and
//! accept files of any user.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::Error;

/// The bits of a mode that let the group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Does a file of this user belong to us, or to root, who may do everything anyway?
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Checks that no other user can create names in a directory for written files.
/// [`Writer::open`](super::Writer::open) calls this, and programs that write other private files
/// should call it, too.
///
/// # Errors
/// [`Error::Recording`] if a user other than root and this one can, [`Error::Io`] if the
/// directory cannot be read.
pub fn check_owner(dir: &Path) -> Result<(), Error> {
    let shown = dir.display();
    let there = dir.metadata().map_err(|e| Error::io(format!("opening {shown}"), e))?;
    if !is_ours(there.uid()) {
        return Err(Error::Recording(format!(
            "{shown} belongs to another user (uid {}), who could make this program overwrite other files: name a directory of yours",
            there.uid()
        )));
    }
    if there.mode() & OTHERS_WRITE != 0 {
        return Err(Error::Recording(format!(
            "other users may write to {shown}, and could make this program overwrite other files: run 'chmod go-w' on it, or name \
             a directory in it, which is made"
        )));
    }
    Ok(())
}

/// Opens a file to read and write, and creates it if it does not exist. `is_new`: it must not
/// exist.
///
/// # Errors
/// The error of the system. It is also an error if the file is a link, not a regular file,
/// or belongs to another user. The message has no path.
pub(super) fn open(path: &Path, is_new: bool) -> io::Result<File> {
    // A pipe that is opened so does not wait for the other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o640).create(!is_new).create_new(is_new).truncate(false);
    let file = match options.custom_flags(flags.bits() as i32).open(path) {
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(refused(path, "is a symbolic link"));
        }
        other => other?,
    };
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(refused(path, "is not a regular file"));
    }
    if !is_ours(there.uid()) {
        return Err(refused(path, &format!("belongs to another user (uid {})", there.uid())));
    }
    Ok(file)
}

/// Opens a file to read.
///
/// # Errors
/// The error of the system, and [`io::ErrorKind::Unsupported`] if it is not a regular
/// file. The message has no directory.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => {
            let why = refused(path, "is not a regular file").to_string();
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    io::Error::other(format!("{name} {why}: remove it, or name another directory"))
}
