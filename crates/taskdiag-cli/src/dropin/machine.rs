//! `taskdiag dropin`: the drop-in for all programs of a machine that use libproc2.
//!
//! One file in `/etc/ld.so.conf.d` puts a directory with a [stub] of libproc2 first in the search path of the dynamic linker. To
//! remove the drop-in, that file and the directory are removed, and ldconfig runs again. No file of the distribution changes, so
//! its upgrades work as before.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::run::SONAME;
use super::stub;
use crate::args::dropin::What;
use crate::exit::{Exit, say};

/// The line for the dynamic linker. It is read in the order of names, and the first directory counts.
const CONF: &str = "/etc/ld.so.conf.d/00-taskdiag.conf";
/// The directory of the stub, beside the library.
const DIR: &str = "dropin";
const VERSION: &str = "LIBPROC_2";
/// How long `ps` may take to list one process.
const PATIENCE: Duration = Duration::from_secs(30);

/// Run it.
pub fn run(what: What) -> Result<(), Exit> {
    match what {
        What::Install => install(),
        What::Remove => remove(),
        What::Status => status(),
    }
}

fn failed(what: impl std::fmt::Display, e: &io::Error) -> Exit {
    Exit::Failed(format!("{what}: {e}"))
}

fn only_root(verb: &str) -> Result<(), Exit> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(Exit::Failed(format!(
            "only root may {verb} the drop-in for all programs; 'taskdiag run PROGRAM' needs no root"
        ))),
    }
}

/// The libraries of this name that the dynamic linker knows. It takes the first one.
fn known() -> Result<Vec<PathBuf>, Exit> {
    let out = Command::new("/sbin/ldconfig").arg("-p").stderr(Stdio::null()).output();
    let out = out.map_err(|e| failed("/sbin/ldconfig", &e))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let of_name = |line: &str| {
        let (name, path) = line.trim().split_once(" => ")?;
        let native = cfg!(target_pointer_width = "64") == name.contains("64");
        (name.split_whitespace().next() == Some(SONAME) && native).then(|| PathBuf::from(path))
    };
    Ok(text.lines().filter_map(of_name).collect())
}

fn ldconfig() -> Result<(), Exit> {
    match Command::new("/sbin/ldconfig").status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Exit::Failed(format!("/sbin/ldconfig: {status}"))),
        Err(e) => Err(failed("/sbin/ldconfig", &e)),
    }
}

/// The directory of the stub that is installed; `None`: there is none.
fn installed() -> Result<Option<PathBuf>, Exit> {
    match fs::read_to_string(CONF) {
        Ok(text) => {
            let line = text.lines().find(|l| !l.trim().is_empty() && !l.starts_with('#'));
            Ok(Some(PathBuf::from(line.unwrap_or_default().trim())))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(CONF, &e)),
    }
}

/// Every program of the machine loads this, so nobody but root may write to it or to a directory above it.
fn trusted(path: &Path) -> Result<(), Exit> {
    for part in path.ancestors() {
        let meta = part.metadata().map_err(|e| failed(part.display(), &e))?;
        let is_sticky = meta.is_dir() && meta.mode() & libc::S_ISVTX != 0;
        if meta.uid() != 0 || (meta.mode() & 0o022 != 0 && !is_sticky) {
            return Err(Exit::Failed(format!(
                "{}: others than root may write to it, and all programs would load it: install taskdiag where only \
                 root can write, with 'sudo make install'",
                part.display()
            )));
        }
    }
    Ok(())
}

fn install() -> Result<(), Exit> {
    only_root("install")?;
    if let Some(dir) = installed()? {
        let dir = dir.display();
        return Err(Exit::Failed(format!(
            "the drop-in is installed already, in {dir}: run 'taskdiag dropin remove' first"
        )));
    }
    if !stub::IS_KNOWN {
        return Err(Exit::Failed(String::from(
            "it is not known how a library looks on this kind of machine",
        )));
    }
    let library = super::library()?;
    trusted(&library)?;
    let real = known()?.into_iter().next().ok_or_else(|| {
        Exit::Failed(format!(
            "{SONAME} is not on this machine: no program here would use the drop-in"
        ))
    })?;
    let dir = library.parent().unwrap_or(Path::new("/")).join(DIR);
    let path = dir.join(SONAME);
    let text = |p: &Path| {
        p.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Exit::Failed(format!("{}: it is no text", p.display())))
    };
    let file = stub::file(SONAME, VERSION, [&text(&library)?, &text(&real)?]);
    // Every user's programs read these, whatever the umask of root is.
    let readable = |p: &Path, mode| fs::set_permissions(p, fs::Permissions::from_mode(mode));
    let written = fs::create_dir_all(&dir)
        .and_then(|()| readable(&dir, 0o755))
        .and_then(|()| fs::write(&path, file))
        .and_then(|()| readable(&path, 0o644))
        .and_then(|()| fs::write(CONF, format!("{}\n", dir.display())))
        .and_then(|()| readable(Path::new(CONF), 0o644))
        .map_err(|e| failed(path.display(), &e));
    let done = written.and_then(|()| ldconfig()).and_then(|()| works(&path));
    if let Err(e) = done {
        say(format_args!("taskdiag: it is removed again, because it does not work"));
        take_away(&dir)?;
        return Err(e);
    }
    println(&format!("installed: {} in front of {}\n", path.display(), real.display()))
}

/// Checks that the linker takes the stub, and that a program starts with it.
fn works(path: &Path) -> Result<(), Exit> {
    let first = known()?.into_iter().next();
    if first.as_deref() != Some(path) {
        let first = first.unwrap_or_default();
        return Err(Exit::Failed(format!("the dynamic linker takes {} first", first.display())));
    }
    let pid = std::process::id().to_string();
    let mut ps = Command::new("ps");
    ps.args(["-o", "pid=", "-p", &pid]).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ps = ps.spawn().map_err(|e| failed("ps", &e))?;
    // It is killed if it takes long, because then all programs of the machine would take long.
    let until = Instant::now() + PATIENCE;
    while ps.try_wait().map_err(|e| failed("ps", &e))?.is_none() {
        if Instant::now() > until {
            let _ = ps.kill();
            let _ = ps.wait();
            let seconds = PATIENCE.as_secs();
            return Err(Exit::Failed(format!("ps has not ended with it after {seconds} seconds")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let out = ps.wait_with_output().map_err(|e| failed("ps", &e))?;
    if String::from_utf8_lossy(&out.stdout).trim() != pid {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        return Err(Exit::Failed(format!("ps does not work with it: {said}")));
    }
    Ok(())
}

/// Removes everything that was installed. The file with the line goes first, so that no program looks for a missing library.
fn take_away(dir: &Path) -> Result<(), Exit> {
    let gone = |r: io::Result<()>| match r {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    gone(fs::remove_file(CONF)).map_err(|e| failed(CONF, &e))?;
    ldconfig()?;
    let removed = gone(fs::remove_file(dir.join(SONAME))).and_then(|()| gone(fs::remove_dir(dir)));
    removed.map_err(|e| failed(dir.display(), &e))
}

fn remove() -> Result<(), Exit> {
    only_root("remove")?;
    match installed()? {
        None => println("the drop-in is not installed\n"),
        Some(dir) => {
            take_away(&dir)?;
            println(&format!("removed: {}\n", dir.join(SONAME).display()))
        }
    }
}

fn status() -> Result<(), Exit> {
    let known = known()?;
    let Some(dir) = installed()? else {
        println("the drop-in is not installed\n")?;
        return Err(Exit::NoMatch);
    };
    let path = dir.join(SONAME);
    if known.first() != Some(&path) {
        let first = known.first().map_or_else(|| String::from("none"), |p| p.display().to_string());
        return Err(Exit::Failed(format!(
            "the drop-in is installed in {}, but the dynamic linker takes {first}: 'ldconfig' may mend it",
            dir.display()
        )));
    }
    works(&path)?;
    println(&format!("installed: {}, and ps works with it\n", path.display()))
}

fn println(text: &str) -> Result<(), Exit> {
    Ok(crate::output::sink::write_all(text.as_bytes())?)
}
