//! How sizes look as text: with a letter, in KiB or in bytes. Every command with sizes has
//! `--units` and `--human`, and a person may choose a default for all of them in a file.
//!
//! Programs are not concerned: JSON, CSV and the like have bytes.

use std::path::Path;

use clap::{Arg, ArgMatches};
use taskdiag::field::{TextForm, Unit};

use crate::columns::Column;
use crate::config;
use crate::exit::{Exit, shown};

/// How sizes look as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Units {
    /// The usual form of the command.
    #[default]
    Auto,
    /// A number with a letter, such as 1.5G.
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
    /// The next of the forms that a screen goes through: with a letter, in KiB, in bytes.
    #[cfg(feature = "top")]
    pub fn next_on_screen(self) -> Units {
        match self {
            Units::Auto | Units::Human => Units::Kib,
            Units::Kib => Units::Bytes,
            Units::Bytes => Units::Human,
        }
    }
    /// The form of a size on a screen.
    #[cfg(feature = "top")]
    pub fn form_on_screen(self) -> TextForm {
        self.form().unwrap_or(TextForm::Human)
    }
    /// The form of a column on a screen. Without a choice, sizes have a letter, because people read
    /// it.
    #[cfg(feature = "top")]
    pub fn of_screen(self, column: &Column) -> TextForm {
        let is_size = column.field.unit == Unit::Bytes
            && matches!(column.form, TextForm::Kib | TextForm::Plain | TextForm::Human);
        if is_size { self.form_on_screen() } else { column.form }
    }
    /// Give the columns with sizes this form. Columns in pages, and columns that show something
    /// else for some rows, stay as they are.
    pub fn apply(self, columns: &mut [Column]) {
        let Some(form) = self.form() else { return };
        // The size or offset of a file is text, because an offset has letters before it.
        let is_size = |c: &Column| c.field.unit == Unit::Bytes || c.field.name == "size_off";
        for c in columns.iter_mut().filter(|c| is_size(c)) {
            if matches!(c.form, TextForm::Kib | TextForm::Plain | TextForm::Human) {
                c.form = form;
                // pmap's header names its unit.
                if form != TextForm::Kib && c.header == "Kbytes" {
                    c.header = String::from("Size");
                }
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

/// The name of a user's file in the configuration directory.
const OF_USER: &str = "taskdiag.toml";

/// The choice in the user's file, or else in the file of the machine.
fn default() -> Result<Units, Exit> {
    let of_user = config::directory().map(|dir| said_in(&dir.join(OF_USER))).transpose()?.flatten();
    Ok(match of_user {
        Some(units) => units,
        None => said_in(Path::new(config::OF_MACHINE))?.unwrap_or_default(),
    })
}

/// The units chosen in a file. `None` if it does not exist, or does not choose them.
fn said_in(path: &Path) -> Result<Option<Units>, Exit> {
    let wrong = |why: &str| Exit::Usage(format!("{}: {why}", shown(path)));
    let Some(text) = config::text(path).map_err(|why| wrong(&why))? else { return Ok(None) };
    parse(&text).map_err(|why| wrong(&why))
}

/// Parses the text of a units file. Its only key is `units`; any other key is an error.
fn parse(text: &str) -> Result<Option<Units>, String> {
    let mut units = None;
    for (line, key, value) in config::pairs(text, "units = \"human\"")? {
        if key != "units" {
            return Err(format!("line {line}: the only key is units"));
        }
        units = Some(Units::from_name(value).ok_or_else(|| {
            format!("line {line}: units are human, kib, bytes or auto, not {value}")
        })?);
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
