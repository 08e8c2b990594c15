//! `taskdiag dropin`: the drop-in for all programs of a machine that use libproc2.
//!
//! One file in `/etc/ld.so.conf.d` puts a directory first in the search path of the dynamic linker. It has a [stub] of each
//! libproc2 of the machine. To remove the drop-in, that file and the directory are removed, and ldconfig runs again. No file of
//! the distribution changes, so its upgrades work as before.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::run::SONAMES;
use super::{elf, stub};
use crate::args::dropin::What;
use crate::exit::{Exit, say};

/// The line for the dynamic linker. It is read in the order of names, and the first directory counts.
const CONF: &str = "/etc/ld.so.conf.d/00-taskdiag.conf";
/// The directory of the stubs, beside the library.
const DIR: &str = "dropin";
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

/// The libraries that the dynamic linker knows by one of our names. It takes the first one of each name.
fn known() -> Result<Vec<(&'static str, PathBuf)>, Exit> {
    let out = Command::new("/sbin/ldconfig").arg("-p").stderr(Stdio::null()).output();
    let out = out.map_err(|e| failed("/sbin/ldconfig", &e))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let of_name = |line: &str| {
        let (name, path) = line.trim().split_once(" => ")?;
        let native = cfg!(target_pointer_width = "64") == name.contains("64");
        let soname = SONAMES.into_iter().find(|s| name.split_whitespace().next() == Some(*s))?;
        native.then(|| (soname, PathBuf::from(path)))
    };
    Ok(text.lines().filter_map(of_name).collect())
}

/// The one that the dynamic linker takes.
fn first<'a>(known: &'a [(&str, PathBuf)], soname: &str) -> Option<&'a PathBuf> {
    known.iter().find(|(name, _)| *name == soname).map(|(_, path)| path)
}

/// The symbol versions of a stub. A program does not start if it needs one that the file of this name lacks, so the stub has
/// those of the real library, and those that a later version of procps is likely to add.
fn versions(real: &Path) -> Result<Vec<String>, Exit> {
    let linked = elf::linked(real).map_err(|e| failed(real.display(), &e))?;
    let mut versions = linked.unwrap_or_default().versions;
    let expected =
        std::iter::once(String::from("LIBPROC_2")).chain((1..10).map(|n| format!("LIBPROC_2.{n}")));
    for version in expected {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    Ok(versions)
}

fn ldconfig() -> Result<(), Exit> {
    match Command::new("/sbin/ldconfig").status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Exit::Failed(format!("/sbin/ldconfig: {status}"))),
        Err(e) => Err(failed("/sbin/ldconfig", &e)),
    }
}

/// The directory of the stubs that are installed; `None`: there are none.
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
    let known = known()?;
    let reals: Vec<(&str, &PathBuf)> =
        SONAMES.into_iter().filter_map(|s| Some((s, first(&known, s)?))).collect();
    if reals.is_empty() {
        let names = SONAMES.join(" nor ");
        return Err(Exit::Failed(format!(
            "neither {names} is on this machine: no program here would use the drop-in"
        )));
    }
    let dir = library.parent().unwrap_or(Path::new("/")).join(DIR);
    let text = |p: &Path| {
        p.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Exit::Failed(format!("{}: it is no text", p.display())))
    };
    let mut files = Vec::new();
    for (soname, real) in &reals {
        let needed = [&*text(&library)?, &text(real)?];
        files.push((dir.join(soname), stub::file(soname, &versions(real)?, needed)));
    }
    let done = write(&dir, &files).and_then(|()| ldconfig()).and_then(|()| works(&dir));
    if let Err(e) = done {
        say(format_args!("taskdiag: it is removed again, because it does not work"));
        take_away(&dir)?;
        return Err(e);
    }
    let lines = reals.iter().map(|(soname, real)| {
        format!("installed: {} in front of {}\n", dir.join(soname).display(), real.display())
    });
    println(&lines.collect::<String>())
}

/// Writes the stubs and the line for the dynamic linker. Every user's programs read them, whatever the umask of root is.
fn write(dir: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<(), Exit> {
    let at = |path: &Path, done: io::Result<()>, mode| {
        let readable = || fs::set_permissions(path, fs::Permissions::from_mode(mode));
        done.and_then(|()| readable()).map_err(|e| failed(path.display(), &e))
    };
    at(dir, fs::create_dir_all(dir), 0o755)?;
    for (path, bytes) in files {
        at(path, fs::write(path, bytes), 0o644)?;
    }
    let conf = Path::new(CONF);
    at(conf, fs::write(conf, format!("{}\n", dir.display())), 0o644)
}

/// Checks that the linker takes the stubs, and that a program starts with them.
fn works(dir: &Path) -> Result<(), Exit> {
    let known = known()?;
    for soname in SONAMES {
        let (path, taken) = (dir.join(soname), first(&known, soname));
        let is_there = path.exists();
        if taken == Some(&path) || (taken.is_none() && !is_there) {
            continue;
        }
        let taken = taken.map_or_else(|| String::from("nothing"), |p| p.display().to_string());
        let what = match is_there {
            true => "'ldconfig' may mend it",
            false => {
                "it came later, so run 'taskdiag dropin remove' and then 'taskdiag dropin install'"
            }
        };
        return Err(Exit::Failed(format!(
            "the drop-in is installed in {}, but the dynamic linker takes {taken} for {soname}: {what}",
            dir.display()
        )));
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
    let stubs = SONAMES.into_iter().try_for_each(|s| gone(fs::remove_file(dir.join(s))));
    stubs.and_then(|()| gone(fs::remove_dir(dir))).map_err(|e| failed(dir.display(), &e))
}

fn remove() -> Result<(), Exit> {
    only_root("remove")?;
    match installed()? {
        None => println("the drop-in is not installed\n"),
        Some(dir) => {
            take_away(&dir)?;
            println(&format!("removed: {}\n", dir.display()))
        }
    }
}

fn status() -> Result<(), Exit> {
    let Some(dir) = installed()? else {
        println("the drop-in is not installed\n")?;
        return Err(Exit::NoMatch);
    };
    works(&dir)?;
    let stubs = SONAMES.into_iter().map(|s| dir.join(s)).filter(|p| p.exists());
    let names: Vec<String> = stubs.map(|p| p.display().to_string()).collect();
    if names.is_empty() {
        return Err(Exit::Failed(format!(
            "{CONF} names {}, but there is nothing: run 'taskdiag dropin remove'",
            dir.display()
        )));
    }
    println(&format!("installed: {}, and ps works with it\n", names.join(" and ")))
}

fn println(text: &str) -> Result<(), Exit> {
    Ok(crate::output::sink::write_all(text.as_bytes())?)
}
