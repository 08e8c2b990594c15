//! The properties of standard output: whether it is a terminal, its width, and whether colour is
//! wanted.

use std::io::{IsTerminal, stdout};

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` or `TERM=dumb` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to write text here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal {
    /// Cells in a line, or `None` if there is no limit.
    pub width: Option<usize>,
    /// Whether to use colour.
    pub color: bool,
    /// Can line-drawing characters be shown?
    pub lines: bool,
    /// Is it a terminal, so that a person reads it?
    pub person: bool,
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| !v.is_empty())
}

impl Terminal {
    /// Find out from standard output and the environment.
    pub fn detect(color: Color, wide: bool) -> Terminal {
        if !stdout().is_terminal() {
            return Terminal { color: color == Color::Always, ..Terminal::default() };
        }
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Terminal {
            width: if wide { None } else { width() },
            color: match color {
                Color::Auto => !is_set("NO_COLOR") && !dumb,
                Color::Always => true,
                Color::Never => false,
            },
            lines: !dumb && is_utf8(),
            person: true,
        }
    }
}

fn width() -> Option<usize> {
    let env = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c > 0);
    env.or_else(window_width)
}

/// The width that the terminal reports, or `None` if standard output is not a terminal or does not
/// report one.
pub fn window_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|c| *c > 0)
}

/// The first of these that is set decides, as in the C library.
pub fn is_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(|n| is_set(n));
    let value = set.and_then(|n| std::env::var(n).ok()).unwrap_or_default().to_lowercase();
    value.contains("utf-8") || value.contains("utf8")
}
