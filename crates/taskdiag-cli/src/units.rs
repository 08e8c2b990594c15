//! How sizes look as text: with a letter, in KiB or in bytes. Every command with sizes has
//! `--units` and `--human`, and a person may choose a default for all of them in a file.
//!
//! Programs are not concerned: JSON, CSV and the like have bytes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches};
use taskdiag::field::{TextForm, Unit};

use crate::aside;
use crate::columns::Column;
use crate::exit::{Exit, say, shown};

/// How sizes look as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Units {
    /// The usual form of the command.
    #[default]
    Auto,
    /// With a letter, such as 1.5G.
    Human,
    /// Whole KiB.
    Kib,
    /// Bytes.
    Bytes,
}

impl Units {
    const NAMES: [(&str, Units); 4] = [
        ("auto", Units::Auto),
        ("human", Units::Human),
        ("kib", Units::Kib),
        ("bytes", Units::Bytes),
    ];
    fn from_name(name: &str) -> Option<Units> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, units)| *units)
    }
    /// The form of the text of sizes. `None` leaves each column as it is.
    fn form(self) -> Option<TextForm> {
        match self {
            Units::Auto => None,
            Units::Human => Some(TextForm::Human),
            Units::Kib => Some(TextForm::Kib),
            Units::Bytes => Some(TextForm::Plain),
        }
    }
    /// The form of a column on a screen. Without a choice, sizes have a letter, because people read
    /// it.
    #[cfg(feature = "top")]
    pub fn of_screen(self, column: &Column) -> TextForm {
        let is_size = column.field.unit == Unit::Bytes
            && matches!(column.form, TextForm::Kib | TextForm::Plain | TextForm::Human);
        if is_size { self.form().unwrap_or(TextForm::Human) } else { column.form }
    }
    /// Give the columns with sizes this form. Columns in pages, and those that show something else
    /// for some rows, stay as they are.
    pub fn apply(self, columns: &mut [Column]) {
        let Some(form) = self.form() else { return };
        // The size or offset of a file is text, because an offset has letters before it.
        let is_size = |c: &Column| c.field.unit == Unit::Bytes || c.field.name == "size_off";
        for c in columns.iter_mut().filter(|c| is_size(c)) {
            if matches!(c.form, TextForm::Kib | TextForm::Plain | TextForm::Human) {
                c.form = form;
            }
        }
    }
}

/// `--units` and `--human`.
pub fn options() -> [Arg; 2] {
    [
        Arg::new("units")
            .long("units")
            .value_name("UNITS")
            .value_parser(Units::NAMES.map(|(name, _)| name))
            .hide_possible_values(true)
            .help("Print sizes as human (1.5G), kib, bytes, or auto: what this command has without the option"),
        Arg::new("human")
            .long("human")
            .action(clap::ArgAction::SetTrue)
            .overrides_with("units")
            .help("Print sizes with a letter, such as 1.5G, as --units human does"),
    ]
}

/// The choice made by an option, or else by a file.
pub fn from_matches(m: &ArgMatches) -> Result<Units, Exit> {
    if m.get_flag("human") {
        return Ok(Units::Human);
    }
    match m.get_one::<String>("units") {
        Some(name) => Ok(Units::from_name(name).unwrap_or_default()),
        None => default(),
    }
}

/// The file of the machine.
const OF_MACHINE: &str = "/etc/taskdiag.toml";
/// The name of a user's file in the directory for such files.
const OF_USER: &str = "taskdiag.toml";
/// The largest accepted size of such a file in bytes.
const MOST: u64 = 64 << 10;

/// The choice in the user's file, or else in the file of the machine.
fn default() -> Result<Units, Exit> {
    let of_user = user_file().map(|path| said_in(&path)).transpose()?.flatten();
    Ok(match of_user {
        Some(units) => units,
        None => said_in(Path::new(OF_MACHINE))?.unwrap_or_default(),
    })
}

fn user_file() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(directory?.join(OF_USER))
}

/// The units chosen in a file. `None` if it does not exist, or does not choose them.
fn said_in(path: &Path) -> Result<Option<Units>, Exit> {
    let wrong = |why: &str| Exit::Usage(format!("{}: {why}", shown(path)));
    let Some(text) = read(path).map_err(|why| wrong(&why))? else { return Ok(None) };
    let text = std::str::from_utf8(&text).map_err(|_| wrong("it is not UTF-8"))?;
    parse(text).map_err(|why| wrong(&why))
}

/// The bytes of a file. A file that is not there or may not be read has none. The home of a user
/// may be on a file system that does not answer. So a file of a user is opened here only if all of
/// its path is in memory, and else by a child that is not waited for long.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let is_lacking = |e: std::io::ErrorKind| {
        use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        matches!(e, NotFound | NotADirectory | PermissionDenied)
    };
    let made = match openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(fd) => content(File::from(fd)),
        Err(e) if is_lacking(e.kind()) => return Ok(None),
        // The file system of /etc is that of the programs, so without it nothing would run.
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
    /// It is another user's.
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
    // With sudo, HOME may still be the caller's. Root must not follow a file of another user.
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

/// The units chosen in such a text. It is TOML with one key, `units = "human"`. A full parser of
/// TOML would be larger than all of this, and an unknown key is an error in any case.
fn parse(text: &str) -> Result<Option<Units>, String> {
    let mut units = None;
    for (n, line) in text.lines().enumerate() {
        let wrong = |why: &str| Err(format!("line {}: {why}", n + 1));
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return wrong("a line is KEY = \"VALUE\", such as units = \"human\"");
        };
        if key.trim() != "units" {
            return wrong("the only key is units");
        }
        let value = value.trim();
        let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
        let quoted = quote.and_then(|q| value[1..].split_once(q));
        let Some((value, after)) = quoted else {
            return wrong("a value stands in quotation marks, as in units = \"human\"");
        };
        let after = after.trim();
        if !(after.is_empty() || after.starts_with('#')) {
            return wrong("there is something after the value");
        }
        let Some(named) = Units::from_name(value) else {
            return wrong("units are human, kib, bytes or auto");
        };
        if units.replace(named).is_some() {
            return wrong("units are there twice");
        }
    }
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_key_and_says_where_it_is_wrong() {
        for (text, units) in [
            ("", None),
            ("# nothing\n\n", None),
            ("units = \"human\"", Some(Units::Human)),
            (" units='bytes'  # as numbers\r\n", Some(Units::Bytes)),
            ("units = \"auto\"\n", Some(Units::Auto)),
        ] {
            assert_eq!(parse(text), Ok(units), "{text:?}");
        }
        for (text, line, word) in [
            ("\nunits", 2, "KEY"),
            ("unit = \"kib\"", 1, "only key"),
            ("[a]\nunits = \"kib\"", 1, "KEY"),
            ("units = kib", 1, "quotation"),
            ("units = \"kib", 1, "quotation"),
            ("units = \"kib\" x", 1, "after"),
            ("units = \"miles\"", 1, "human, kib"),
            ("units = \"kib\"\nunits = \"kib\"", 2, "twice"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(
                why.starts_with(&format!("line {line}: ")) && why.contains(word),
                "{text:?}: {why}"
            );
        }
    }
}
