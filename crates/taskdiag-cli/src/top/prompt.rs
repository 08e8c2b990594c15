//! An input line: for a condition, a user, a number.

use super::act::Target;

/// The purpose of an input line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum For {
    /// The text of a search.
    Search,
    /// The condition.
    Filter,
    /// The user.
    User,
    /// The time between two answers.
    Delay,
    /// A moment of the recording.
    Moment,
    /// A nice value.
    Nice(Target),
    /// A list of CPUs.
    Cpus(Target),
}

/// An input line.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its purpose.
    pub what: For,
    /// The text.
    pub text: String,
    /// The error in it.
    pub wrong: Option<String>,
}

/// Erases as a shell does: Ctrl-U all of a text, Ctrl-W its last word.
pub fn erase(text: &mut String, letter: char) {
    match letter {
        'u' => text.clear(),
        'w' => {
            let words = text.trim_end();
            let end = words.rfind(char::is_whitespace);
            let end = end.map_or(0, |i| i + words[i..].chars().next().map_or(0, char::len_utf8));
            text.truncate(end);
        }
        _ => {}
    }
}

impl Prompt {
    /// Whether it is for an action on one task.
    pub fn is_about_task(&self) -> bool {
        matches!(self.what, For::Nice(_) | For::Cpus(_))
    }
    /// What is asked.
    pub fn title(&self) -> String {
        match &self.what {
            For::Search => String::from("Search names and arguments for"),
            For::Filter => String::from("Only rows with this word, or where (empty: all)"),
            For::User => String::from("Only tasks of user (empty: all)"),
            For::Delay => String::from("Time between two refreshes, such as 500ms or 5s"),
            For::Moment => String::from("Go to: 03:10, '2026-11-22 03:10', -5m"),
            For::Nice(target) => format!("Nice value of {target}, -20 to 19"),
            For::Cpus(target) => format!("CPUs for {target}, such as 0,2-3"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_erased() {
        let after = |text: &str, letter| {
            let mut text = text.to_owned();
            erase(&mut text, letter);
            text
        };
        assert_eq!(after("rss > 1G", 'u'), "");
        for (text, left) in
            [("rss > 1G", "rss > "), ("rss  ", ""), ("a\u{2003}b ", "a\u{2003}"), ("", "")]
        {
            assert_eq!(after(text, 'w'), left, "{text:?}");
        }
        assert_eq!(after("rss > 1G", 'a'), "rss > 1G");
    }
}
