//! `taskdiag run`: executes another program with the drop-in.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::elf::{self, Linked};
use crate::exit::{Exit, say};

/// The exit codes of a shell that does not find a program, or cannot run it.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// The sonames that the drop-in replaces. A machine may have both.
pub const SONAMES: [&str; 2] = ["libproc2.so.0", "libproc2.so.1"];

/// Run it. This does not return if it works.
pub fn run(argv: &[OsString]) -> Result<(), Exit> {
    let (name, args) = argv.split_first().expect("clap asks for one");
    let Some(program) = which(name) else {
        say(format_args!("taskdiag: run: there is no program {}", name.to_string_lossy()));
        return Err(Exit::Code(NOT_FOUND));
    };
    // Programs must work in a rescue shell without /proc, too.
    if let Some(why) = super::hindrance() {
        say(format_args!("taskdiag: run: without the drop-in: {why}"));
        return Err(exec(Command::new(&program).arg0(name).args(args), &program));
    }
    let library = super::library()?;
    if library.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':')) {
        let library = library.display();
        return Err(Exit::Failed(format!(
            "{library}: LD_PRELOAD cannot have blanks and colons in a path: copy the library to another place"
        )));
    }
    if let Some(why) = refusal(&program)? {
        return Err(Exit::Failed(format!("{}: {why}", program.display())));
    }
    let mut preload = library.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(&program);
    Err(exec(command.arg0(name).args(args).env("LD_PRELOAD", preload), &program))
}

/// Executes it. Returns only if that fails.
fn exec(command: &mut Command, program: &Path) -> Exit {
    // A signal that is ignored here would be ignored there, too.
    // SAFETY: this sets the default of a signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let e = command.exec();
    say(format_args!("taskdiag: run: {}: {e}", program.display()));
    Exit::Code(NOT_RUN)
}

/// The file of a program, as a shell finds it.
fn which(name: &OsStr) -> Option<PathBuf> {
    let is_program =
        |p: &Path| p.is_file() && rustix::fs::access(p, rustix::fs::Access::EXEC_OK).is_ok();
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|p| p.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| is_program(p))
}

/// Why the drop-in cannot work in this program, or `None` if no obstacle is known.
fn refusal(program: &Path) -> Result<Option<String>, Exit> {
    let cannot = |e: std::io::Error| Exit::Failed(format!("{}: {e}", program.display()));
    let meta = program.metadata().map_err(cannot)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let gains = (meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid)
        || (meta.mode() & libc::S_ISGID != 0 && meta.gid() != gid)
        || (uid != 0 && has_capabilities(program));
    if gains {
        let why = "it is setuid, setgid or has file capabilities, and such programs load no library that their caller names";
        return Ok(Some(why.to_owned()));
    }
    // If the file is executable but not readable, this check is skipped.
    let linked = elf::linked(program).unwrap_or_default();
    Ok(linked.and_then(|l| refusal_of(&l)))
}

fn has_capabilities(program: &Path) -> bool {
    rustix::fs::getxattr(program, c"security.capability", &mut [0_u8; 64][..]).is_ok()
}

/// Why the drop-in cannot work in a program that is linked like this.
fn refusal_of(linked: &Linked) -> Option<String> {
    if !linked.is_dynamic {
        return Some("it is linked statically, and loads no library".to_owned());
    }
    let other = linked.needed.iter().find(|n| {
        let is_known = SONAMES.contains(&n.as_str());
        n.starts_with("libprocps.so") || (n.starts_with("libproc2.so") && !is_known)
    })?;
    let known = SONAMES.join(" and ");
    Some(format!("it needs {other}, and the drop-in only replaces {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_which_the_drop_in_cannot_work_are_refused() {
        let with = |is_dynamic, needed: &[&str]| {
            let needed = needed.iter().map(|n| (*n).to_owned()).collect();
            refusal_of(&Linked { is_dynamic, needed, ..Linked::default() })
        };
        assert_eq!(with(true, &["libproc2.so.0", "libc.so.6"]), None);
        assert_eq!(with(true, &["libproc2.so.1", "libc.so.6"]), None);
        // A shell may start ps.
        assert_eq!(with(true, &["libc.so.6"]), None);
        assert!(with(false, &[]).expect("static").contains("statically"));
        assert!(with(true, &["libprocps.so.8"]).expect("old").contains("libprocps.so.8"));
        assert!(with(true, &["libproc2.so.2"]).expect("new").contains("libproc2.so.2"));
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(which(OsStr::new("sh")).expect("there is one").is_absolute());
        assert_eq!(which(OsStr::new("no-such-program-anywhere")), None);
        assert_eq!(which(OsStr::new("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(which(OsStr::new("/no/such")), None);
    }
}
