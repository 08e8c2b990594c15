//! `taskdiag dropin`: the drop-in for all programs of a machine that use libproc2.
//!
//! One file in `/etc/ld.so.conf.d` puts a directory first in the search path of the dynamic linker.
//! It has a [stub] of each libproc2 of the machine. To remove the drop-in, that file and the
//! directory are removed, and ldconfig runs again. No file of the distribution changes, so its
//! upgrades work as before.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::run::SONAMES;
use super::{elf, stub};
use crate::args::dropin::What;
use crate::exit::{Exit, say};

/// The line for the dynamic linker. It is read in the order of names, and the first directory
/// counts.
const CONF: &str = "/etc/ld.so.conf.d/00-taskdiag.conf";
/// The name of that file until it is complete. ldconfig does not read files with this name.
const CONF_NEW: &str = "/etc/ld.so.conf.d/00-taskdiag.conf.new";
/// The directory of the stubs, next to the library.
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

/// The libraries with one of our names that the dynamic linker knows. It takes the first one of
/// each name.
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

/// The library that the dynamic linker takes.
fn first<'a>(known: &'a [(&str, PathBuf)], soname: &str) -> Option<&'a PathBuf> {
    known.iter().find(|(name, _)| *name == soname).map(|(_, path)| path)
}

/// The symbol versions of a stub. A program does not start if it needs a version that the library
/// lacks. So the stub has those of the real library, and those that later versions of procps are
/// likely to add.
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

/// The content of [`CONF`].
#[derive(Debug, PartialEq, Eq)]
enum Installed {
    /// The configuration file does not exist.
    No,
    /// The file is empty; an interrupted `install` of an earlier version may have left it.
    Nowhere,
    /// The directory of the stubs.
    In(PathBuf),
}

impl Installed {
    fn look() -> Result<Installed, Exit> {
        match fs::read_to_string(CONF) {
            Ok(text) => Installed::of(&text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Installed::No),
            Err(e) => Err(failed(CONF, &e)),
        }
    }

    /// Parses the text of the file. `remove` deletes files in that directory, so only a directory
    /// that `install` makes is accepted.
    fn of(text: &str) -> Result<Installed, Exit> {
        let mut lines =
            text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let Some(line) = lines.next() else { return Ok(Installed::Nowhere) };
        let dir = PathBuf::from(line);
        match dir.is_absolute() && dir.ends_with(DIR) && lines.next().is_none() {
            true => Ok(Installed::In(dir)),
            false => Err(Exit::Failed(format!(
                "{CONF}: taskdiag has not written this: it writes one line with the path of a directory '{DIR}'; look at \
                 it, and delete it yourself if nobody needs it"
            ))),
        }
    }
}

/// Every program of the machine loads this file, so only root may be able to write to it or to a
/// directory above it.
fn only_roots(path: &Path) -> Result<(), Exit> {
    for part in path.ancestors() {
        let meta = part.metadata().map_err(|e| failed(part.display(), &e))?;
        let is_sticky = meta.is_dir() && meta.mode() & libc::S_ISVTX != 0;
        if meta.uid() != 0 || (meta.mode() & 0o022 != 0 && !is_sticky) {
            return Err(Exit::Failed(format!(
                "{}: users other than root may write to it, and all programs would load it: install taskdiag where only \
                 root can write, with 'sudo make install'",
                part.display()
            )));
        }
    }
    Ok(())
}

/// Programs of all users load this file. A program that cannot read it does not start at all.
fn readable(path: &Path) -> Result<(), Exit> {
    for part in path.ancestors() {
        let meta = part.metadata().map_err(|e| failed(part.display(), &e))?;
        let (wanted, letter) = if meta.is_dir() { (0o001, 'x') } else { (0o004, 'r') };
        if meta.mode() & wanted == 0 {
            let part = part.display();
            return Err(Exit::Failed(format!(
                "{part}: only some users may read it, and the programs of all others would not start: run 'chmod a+{letter} \
                 {part}', or install taskdiag elsewhere"
            )));
        }
    }
    Ok(())
}

fn install() -> Result<(), Exit> {
    only_root("install")?;
    match Installed::look()? {
        Installed::No => {}
        Installed::Nowhere => return Err(says_nothing()),
        Installed::In(dir) => {
            let dir = dir.display();
            return Err(Exit::Failed(format!(
                "the drop-in is installed already, in {dir}: run 'taskdiag dropin remove' first"
            )));
        }
    }
    if !stub::IS_KNOWN {
        return Err(Exit::Failed(String::from(
            "the drop-in does not support this kind of machine",
        )));
    }
    let library = super::library()?;
    only_roots(&library)?;
    readable(&library)?;
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
    make(&dir)?;
    let done = write(&dir, &files).and_then(|()| ldconfig()).and_then(|()| works(&dir));
    if let Err(e) = done {
        say(format_args!("taskdiag: it is removed again, because it does not work"));
        take_away(&dir)?;
        return Err(e);
    }
    let lines = reals.iter().map(|(soname, real)| {
        format!("installed: {} before {}\n", dir.join(soname).display(), real.display())
    });
    println(&lines.collect::<String>())
}

fn says_nothing() -> Exit {
    Exit::Failed(format!("{CONF} names no directory: run 'taskdiag dropin remove'"))
}

/// Creates the directory of the stubs. ldconfig takes every library in it, so an existing one must
/// belong to root.
fn make(dir: &Path) -> Result<(), Exit> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(dir.display(), &e));
        }
        _ => {}
    }
    let real = dir.canonicalize().map_err(|e| failed(dir.display(), &e))?;
    if real != dir || !real.is_dir() {
        return Err(Exit::Failed(format!(
            "{}: it is not a directory, and taskdiag has not made it; remove it",
            dir.display()
        )));
    }
    only_roots(dir)?;
    readable_by_all(dir, 0o755)
}

/// The programs of every user read it, so its mode does not depend on the umask of root.
fn readable_by_all(path: &Path, mode: u32) -> Result<(), Exit> {
    let done = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    done.map_err(|e| failed(path.display(), &e))
}

/// Writes the stubs and the line for the dynamic linker. The line comes last, and atomically.
fn write(dir: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<(), Exit> {
    let whole = |path: &Path, bytes: &[u8]| -> Result<(), Exit> {
        let at = |e: io::Error| failed(path.display(), &e);
        // An existing file may belong to another user, who could still write to it.
        gone(fs::remove_file(path)).map_err(at)?;
        let mut file = fs::File::create_new(path).map_err(at)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at);
        written.and_then(|()| readable_by_all(path, 0o644)).inspect_err(|_| {
            // `remove` would not recognize an incomplete stub.
            let _ = fs::remove_file(path);
        })
    };
    for (path, bytes) in files {
        whole(path, bytes)?;
    }
    let new = Path::new(CONF_NEW);
    whole(new, format!("{}\n", dir.display()).as_bytes())?;
    fs::rename(new, CONF).map_err(|e| failed(CONF, &e))
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
            true => "'ldconfig' may fix it",
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
    // The test program is killed if it takes long: with such a delay, every program of the machine
    // would start slowly.
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

/// A file that does not exist need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Is it a stub, of this version or of another one? Only stubs need their two libraries by path.
fn is_stub(path: &Path) -> Result<bool, Exit> {
    let linked = match elf::linked(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|e| failed(path.display(), &e))?,
    };
    Ok(linked.is_some_and(|l| {
        l.needed.len() == 2
            && l.needed.iter().all(|n| n.starts_with('/'))
            && l.soname.as_deref().map(OsStr::new) == path.file_name()
    }))
}

/// Removes everything that was installed. The file with the line goes first, so that no program
/// looks for a missing library. The stubs are removed even if ldconfig fails: if a library in the
/// cache of ldconfig is missing, the dynamic linker searches the usual directories.
fn take_away(dir: &Path) -> Result<(), Exit> {
    for conf in [CONF, CONF_NEW] {
        gone(fs::remove_file(conf)).map_err(|e| failed(conf, &e))?;
    }
    let noted = ldconfig();
    take_stubs(dir)?;
    noted
}

/// Removes the stubs and their directory, and nothing else.
fn take_stubs(dir: &Path) -> Result<(), Exit> {
    for path in SONAMES.map(|s| dir.join(s)) {
        if is_stub(&path)? {
            gone(fs::remove_file(&path)).map_err(|e| failed(path.display(), &e))?;
        }
    }
    match gone(fs::remove_dir(dir)) {
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Err(Exit::Failed(format!(
            "{}: the drop-in is removed, but the directory has other files, which stay",
            dir.display()
        ))),
        done => done.map_err(|e| failed(dir.display(), &e)),
    }
}

fn remove() -> Result<(), Exit> {
    only_root("remove")?;
    match Installed::look()? {
        Installed::No => println("the drop-in is not installed\n"),
        Installed::Nowhere => {
            fs::remove_file(CONF).map_err(|e| failed(CONF, &e))?;
            println(&format!("removed: {CONF}, which named no directory\n"))
        }
        Installed::In(dir) => {
            take_away(&dir)?;
            println(&format!("removed: {}\n", dir.display()))
        }
    }
}

fn status() -> Result<(), Exit> {
    let dir = match Installed::look()? {
        Installed::No => {
            println("the drop-in is not installed\n")?;
            return Err(Exit::NoMatch);
        }
        Installed::Nowhere => return Err(says_nothing()),
        Installed::In(dir) => dir,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    #[test]
    fn only_what_install_writes_is_believed() {
        assert_eq!(Installed::of("\n# a comment\n").ok(), Some(Installed::Nowhere));
        assert_eq!(Installed::of("").ok(), Some(Installed::Nowhere));
        let dir = PathBuf::from("/usr/lib/taskdiag/dropin");
        let text = "# a comment\n /usr/lib/taskdiag/dropin \n";
        assert_eq!(Installed::of(text).ok(), Some(Installed::In(dir)));
        for text in ["dropin\n", "/usr/lib\n", "/usr/lib/taskdiag/dropin\n/opt/lib\n", "."] {
            let said = format!("{:?}", Installed::of(text).expect_err(text));
            assert!(said.contains("delete it yourself"), "{said}");
        }
    }

    #[test]
    fn a_library_that_some_users_cannot_read_is_refused() {
        let top = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        let (dir, file) = (top.path().join("lib"), top.path().join("lib/a.so"));
        fs::create_dir(&dir).expect("made");
        fs::write(&file, "").expect("written");
        for (top_mode, dir_mode, file_mode, lacks) in [
            (0o755, 0o755, 0o644, None),
            (0o711, 0o711, 0o444, None),
            (0o700, 0o755, 0o644, Some((top.path(), "a+x"))),
            (0o755, 0o754, 0o644, Some((&*dir, "a+x"))),
            (0o755, 0o755, 0o640, Some((&*file, "a+r"))),
        ] {
            mode(top.path(), top_mode);
            mode(&dir, dir_mode);
            mode(&file, file_mode);
            match (readable(&file), lacks) {
                (Ok(()), None) => {}
                (Err(Exit::Failed(said)), Some((path, what))) => {
                    let wanted = format!("'chmod {what} {}'", path.display());
                    assert!(said.contains(&wanted), "{said}");
                }
                (other, _) => panic!("{top_mode:o} {dir_mode:o} {file_mode:o}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_directory_of_the_stubs_is_no_link() {
        let top = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        let (dir, other) = (top.path().join(DIR), top.path().join("other"));
        fs::create_dir(&other).expect("made");
        mode(&other, 0o700);
        std::os::unix::fs::symlink(&other, &dir).expect("made");
        assert!(make(&dir).is_err());
        assert_eq!(other.metadata().expect("it is there").mode() & 0o777, 0o700);
    }

    #[test]
    fn only_stubs_are_removed() {
        let top = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        let dir = top.path().join(DIR);
        fs::create_dir(&dir).expect("made");
        let versions = [String::from("LIBPROC_2")];
        let stub = |name: &str, needed| {
            fs::write(dir.join(name), stub::file(name, &versions, needed)).expect("written");
        };
        let there = || SONAMES.map(|s| dir.join(s).exists());
        stub(SONAMES[0], ["/a/its-own-name.so", "/b.so"]);
        stub(SONAMES[1], ["libsystemd.so.0", "libc.so.6"]);
        assert!(
            take_stubs(&dir).is_err_and(|e| format!("{e:?}").contains("other files, which stay"))
        );
        assert_eq!(there(), [false, true]);
        fs::write(dir.join(SONAMES[1]), "no library").expect("written");
        assert!(take_stubs(&dir).is_err());
        stub(SONAMES[1], ["/a.so", "/b.so"]);
        take_stubs(&dir).expect("it is empty now");
        assert!(!dir.exists());
        take_stubs(&dir).expect("it is gone already");
    }
}
