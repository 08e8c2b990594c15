//! Rewrites the errors of clap in the style of this program: one sentence that says what to type
//! instead.

use std::num::ParseIntError;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::nearest;

/// Options and words that people type, and the replacement in this command: the command (empty:
/// any), the word, and the hint.
const HINTS: &[(&str, &str, &str)] = &[
    ("files", "--port", "'taskdiag files -i :PORT' shows who has a port open"),
    (
        "ps",
        "--by",
        "'taskdiag memory --by COLUMN' adds up memory, and 'taskdiag top --by COLUMN' what processes do",
    ),
    ("files", "--by", "'taskdiag files --count' shows how many files each process has open"),
    ("tree", "--by", "'taskdiag memory --by COLUMN' adds up memory by the values of a column"),
    (
        "cgroups",
        "--by",
        "'taskdiag memory --by unit' and --by container add up the memory of processes",
    ),
    ("cgroups", "--tree", "a tree is what it prints, and --flat prints a list"),
    ("cgroups", "--engine", "cgroups are read from /sys/fs/cgroup, whatever the engine"),
    ("cgroups", "-p", "'taskdiag ps -p PID -o pid,cgroup_path' shows the cgroup of a process"),
    ("cgroups", "--pid", "'taskdiag ps -p PID -o pid,cgroup_path' shows the cgroup of a process"),
    ("cgroups", "-u", "--unit NAME selects a unit of systemd"),
    (
        "why",
        "--from",
        "saved answers do not say who holds a lock; 'taskdiag ps --from FILE -o pid,wchan' says where each slept",
    ),
    ("dump", "--json", "a dump is binary; 'taskdiag ps --json' prints JSON"),
    ("report", "--json", "a report is HTML; 'taskdiag ps --json' prints JSON"),
    ("", "--user", "--where 'user == NAME' selects by user"),
    ("", "--output", "write into a file with '> FILE'"),
    ("", "--version", "'taskdiag --version' prints the version"),
    ("", "version", "'taskdiag --version' prints it"),
    ("", "-v", "'taskdiag --version' prints the version"),
    ("", "-V", "'taskdiag --version' prints the version"),
];

/// The sentence about an error. The first line is the error. The other lines come from clap.
pub fn sentence(e: &clap::Error) -> String {
    let get = |kind| e.get(kind);
    let text = |kind| match get(kind) {
        Some(ContextValue::String(s)) => Some(s.clone()),
        Some(ContextValue::Strings(all)) => Some(all.join(", ")),
        Some(ContextValue::StyledStr(s)) => Some(s.to_string()),
        _ => None,
    };
    let rendered = e.render().to_string();
    let command = command_of(&rendered);
    let help = match command.as_str() {
        "" => String::from("'taskdiag --help'"),
        command => format!("'taskdiag {command} --help'"),
    };
    let typed = text(ContextKind::InvalidArg).unwrap_or_default();
    // The option without the name of its value.
    let option = typed.split([' ', '=']).next().unwrap_or_default().to_owned();
    match e.kind() {
        ErrorKind::UnknownArgument => {
            let hint = HINTS
                .iter()
                .find(|(of, word, _)| *word == option && (of.is_empty() || *of == command));
            if let Some((.., hint)) = hint {
                return format!("there is no option '{option}' here: {hint}");
            }
            let near = match get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(near)) => format!(" (did you mean '{near}'?)"),
                _ => String::new(),
            };
            match option.starts_with('-') {
                true => format!("there is no option '{option}'{near}; {help} lists them"),
                false => format!("'{typed}' has no meaning here; {help} lists the allowed words"),
            }
        }
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            if let Some((.., hint)) =
                HINTS.iter().find(|(of, word, _)| of.is_empty() && *word == typed)
            {
                return format!("there is no command '{typed}': {hint}");
            }
            let near = text(ContextKind::SuggestedSubcommand);
            let near = near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
            format!("there is no command '{typed}'{near}; {help} lists them")
        }
        ErrorKind::InvalidValue => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let values: Vec<String> = match get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(all)) => all.clone(),
                _ => Vec::new(),
            };
            if value.is_empty() {
                return match values.is_empty() {
                    true => format!("{option} needs a value after it; {help} says which"),
                    false => format!("{option} needs a value after it: {}", values.join(", ")),
                };
            }
            let near = nearest::hint(&value, values.iter().map(String::as_str));
            format!("{option} takes {}, not '{value}'{near}", values.join(", "))
        }
        ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            match std::error::Error::source(e) {
                Some(why) if why.is::<ParseIntError>() => {
                    format!("{option} takes a whole number, not '{value}'")
                }
                Some(why) => match range(&why.to_string()) {
                    Some(range) => format!("{option} takes a whole number {range}, not '{value}'"),
                    None => format!("{option} {value}: {why}"),
                },
                None => format!("{option} cannot have the value '{value}'; {help} says which"),
            }
        }
        ErrorKind::ArgumentConflict => {
            let with = text(ContextKind::PriorArg).unwrap_or_default();
            let with: Vec<&str> = with.split(", ").filter_map(|w| w.split(' ').next()).collect();
            match with.first() {
                Some(with) if *with == option => format!("{option} may be given only once"),
                _ => format!("{option} does not go with {}", with.join(", ")),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let lacking = typed.replace(['<', '>'], "");
            let usage =
                rendered.lines().find_map(|l| l.strip_prefix("Usage: ")).unwrap_or_default();
            format!("{lacking} is needed: {usage}")
        }
        _ => {
            let first = rendered.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            format!("{first}; {help} lists the allowed words")
        }
    }
}

/// The range of whole numbers in a text of clap, which is "0 is not in 1..=100". The largest number
/// of a type is no limit that a person needs to know.
fn range(why: &str) -> Option<String> {
    let (first, last) = why.split_once(" is not in ")?.1.split_once("..=")?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let is_of_type = [u16::MAX.into(), u32::MAX.into(), i32::MAX as u64].contains(&last);
    Some(if is_of_type { format!("from {first} on") } else { format!("from {first} to {last}") })
}

/// The command of the line `Usage: taskdiag COMMAND …`; empty if it is about the program.
fn command_of(rendered: &str) -> String {
    let usage = rendered.lines().find_map(|l| l.strip_prefix("Usage: taskdiag "));
    let word = usage.and_then(|u| u.split(' ').next()).unwrap_or_default();
    let is_command = word.starts_with(|c: char| c.is_ascii_lowercase());
    if is_command { word.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subcommands::command;

    #[test]
    fn errors_of_clap_are_sentences_of_this_program() {
        for (line, want) in [
            (
                "memory --nosuch",
                "there is no option '--nosuch'; 'taskdiag memory --help' lists them",
            ),
            ("memory --sorts x", "(did you mean '--sort'?)"),
            ("files --port 8792", "-i :PORT"),
            ("nosuch", "there is no command 'nosuch'; 'taskdiag --help' lists them"),
            ("memori", "(did you mean 'memory'?)"),
            ("memory --color sometimes", "--color takes auto, always, never, not 'sometimes'"),
            ("memory --budget x", "--budget x: a time is a number above 0"),
            ("memory --json --csv", "does not go with"),
            ("memory --columns x", "--columns takes a whole number, not 'x'"),
            ("memory --columns 0", "--columns takes a whole number from 1 on, not '0'"),
            ("export --top 1001", "--top takes a whole number from 1 to 1000, not '1001'"),
            ("memory --units", "--units needs a value after it: auto, human"),
            ("memory --engine x", "there is no engine 'x'"),
            ("top --json", "--once is needed: taskdiag top"),
            ("dump --json", "binary"),
        ] {
            let words = ["taskdiag"].into_iter().chain(line.split(' '));
            let e = command().try_get_matches_from(words).expect_err(line);
            let text = sentence(&e);
            assert!(text.contains(want), "{line}: {text}");
            assert!(
                !text.contains("error:") && !text.contains("tip:") && !text.contains('\n'),
                "{line}: {text}"
            );
        }
    }
}
