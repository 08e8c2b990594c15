//! The settings of top. The key `W` writes them to `taskdiag/top.toml` in the user's configuration
//! directory, and the next start on a screen reads them. Options of the command line take
//! precedence.

use std::time::Duration;

use super::views::{COMMANDS, VIEWS};
use crate::args::top::SET;
use crate::columns::{self, Column};
use crate::config;
use crate::exit::{Exit, shown};
use crate::order::{self, Key};

/// The name of the file.
const FILE: &str = "top.toml";

/// The content of the file.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The number of the view.
    pub view: Option<usize>,
    /// Columns that the user chose.
    pub columns: Option<Vec<Column>>,
    /// Sort keys.
    pub sort: Option<Vec<Key>>,
    /// The column to add up by.
    pub by: Option<Column>,
    /// The column of the command.
    pub command: Option<&'static str>,
    /// Time between two refreshes.
    pub delay: Option<Duration>,
    /// Threads instead of processes?
    pub threads: bool,
    /// Children below their parents?
    pub tree: bool,
    /// With the sums of subtrees?
    pub subtrees: bool,
    /// Without kernel threads?
    pub users_only: bool,
    /// Without idle tasks?
    pub busy_only: bool,
    /// Meters as bars?
    pub bars: Option<bool>,
    /// A meter for each CPU?
    pub per_cpu: Option<bool>,
}

/// Reads the saved settings, with a message if they cannot be used.
pub fn read() -> (Settings, Option<String>) {
    let Some(path) = config::directory().map(|dir| dir.join("taskdiag").join(FILE)) else {
        return (Settings::default(), None);
    };
    let text = match config::text(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return (Settings::default(), None),
        Err(why) => return (Settings::default(), Some(format!("{}: {why}", shown(&path)))),
    };
    match parse(&text) {
        Ok(settings) => (settings, None),
        Err(why) => {
            let wrong = format!("{}: {why}; the file is not used", shown(&path));
            (Settings::default(), Some(wrong))
        }
    }
}

fn parse(text: &str) -> Result<Settings, String> {
    let mut all = Settings::default();
    for (line, key, value) in config::pairs(text, "sort = \"-rss\"")? {
        take(&mut all, key, value).map_err(|why| format!("line {line}: {why}"))?;
    }
    Ok(all)
}

fn take(all: &mut Settings, key: &str, value: &str) -> Result<(), String> {
    let yes = || match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("{key} is yes or no, not {value}")),
    };
    let said = |e: Exit| match e {
        Exit::Usage(why) => why,
        _ => format!("{key} cannot be {value}"),
    };
    match key {
        "view" => {
            let view = VIEWS.iter().position(|v| v.name == value);
            all.view = Some(view.ok_or_else(|| format!("there is no view {value}"))?);
        }
        "columns" => {
            let columns = columns::view(SET, value).map_err(said)?;
            all.columns = Some(columns);
        }
        "sort" => {
            let keys = order::keys(SET, value.split(',').collect()).map_err(said)?;
            all.sort = Some(keys);
        }
        "by" => all.by = columns::by(SET, value).map_err(said)?,
        "command" => {
            let command = COMMANDS.iter().find(|c| **c == value);
            all.command = Some(command.ok_or("command is args, comm or exe")?);
        }
        "delay" => all.delay = Some(crate::limits::duration(value)?),
        "threads" => all.threads = yes()?,
        "tree" => all.tree = yes()?,
        "subtrees" => all.subtrees = yes()?,
        "userland" => all.users_only = yes()?,
        "busy" => all.busy_only = yes()?,
        "bars" => all.bars = Some(yes()?),
        "per_cpu" => all.per_cpu = Some(yes()?),
        _ => return Err(format!("there is no setting '{key}'")),
    }
    Ok(())
}

impl Settings {
    /// The file for them.
    fn text(&self) -> String {
        let mut out = String::from(
            "# Written by the key W of 'taskdiag top'. Without it, top has its defaults.\n",
        );
        let mut line = |key: &str, value: &str| out.push_str(&format!("{key} = \"{value}\"\n"));
        if let Some(view) = self.view {
            line("view", VIEWS[view].name);
        }
        if let Some(columns) = &self.columns {
            let width = |c: &Column| if c.fixed { format!(":{}", c.width) } else { String::new() };
            let spec = |c: &Column| format!("{}{}", c.field.name, width(c));
            line("columns", &columns.iter().map(spec).collect::<Vec<_>>().join(","));
        }
        if let Some(sort) = &self.sort {
            let key = |k: &Key| format!("{}{}", if k.descending { "-" } else { "" }, k.field.name);
            line("sort", &sort.iter().map(key).collect::<Vec<_>>().join(","));
        }
        if let Some(by) = &self.by {
            line("by", by.field.name);
        }
        if let Some(command) = self.command {
            line("command", command);
        }
        if let Some(delay) = self.delay {
            line("delay", &format!("{}s", delay.as_secs_f64()));
        }
        for (key, is_on) in [
            ("threads", Some(self.threads)),
            ("tree", Some(self.tree)),
            ("subtrees", Some(self.subtrees)),
            ("userland", Some(self.users_only)),
            ("busy", Some(self.busy_only)),
            ("bars", self.bars),
            ("per_cpu", self.per_cpu),
        ] {
            if let Some(is_on) = is_on {
                line(key, if is_on { "yes" } else { "no" });
            }
        }
        out
    }
    /// Writes them, and returns a message about it.
    pub fn save(&self) -> String {
        match config::write(FILE, self.text().as_bytes()) {
            Ok(path) => format!("Columns, order and view are kept in {}.", shown(&path)),
            Err(why) => format!("Nothing was saved: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_settings_are_read_again() {
        let mut columns = columns::view(SET, "pid:9,comm,rss").expect("good columns");
        let saved = Settings {
            view: Some(2),
            columns: Some(columns.clone()),
            sort: Some(order::keys(SET, vec!["-rss", "pid"]).expect("good keys")),
            by: columns.pop(),
            command: Some("exe"),
            delay: Some(Duration::from_millis(2500)),
            threads: true,
            busy_only: true,
            per_cpu: Some(false),
            ..Settings::default()
        };
        let again = parse(&saved.text()).expect("it was just written");
        // Headers of columns may differ, and are not written.
        let names = |s: &Settings| {
            let columns = s.columns.iter().flatten();
            columns.map(|c| (c.field.name, c.fixed, c.fixed.then_some(c.width))).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&again),
            [("pid", true, Some(9)), ("comm", false, None), ("rss", false, None)]
        );
        assert_eq!(again.text(), saved.text());
        assert!(again.threads && again.busy_only && !again.tree && again.bars.is_none());
        assert_eq!(parse("# nothing\n").map(|s| s.text()), Ok(Settings::default().text()));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, word) in [
            ("view = \"cpu\"\ncolumns = \"pid,nosuch\"", "line 2: "),
            ("sort = \"-nosuch\"", "line 1: "),
            ("by = \"nosuch\"", "line 1: "),
            ("tree = \"maybe\"", "yes or no"),
            ("delay = \"never\"", "line 1: "),
            ("colour = \"red\"", "no setting 'colour'"),
            ("view = \"nosuch\"", "no view"),
            ("command = \"rm\"", "args, comm or exe"),
            ("tree", "line 1: "),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
