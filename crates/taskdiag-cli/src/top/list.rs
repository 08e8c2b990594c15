//! A list to choose from: columns, or signals.

use taskdiag::field::{Field, TASKS};

use super::act::{Target, signal_name};
use super::prompt::erase;
use crate::args::top::SET;

/// The chosen entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Which columns are shown.
    Columns,
    /// The column to sort by.
    Sort,
    /// A signal for this process.
    Signals(Target),
}

/// A list.
#[derive(Clone, Debug)]
pub struct List {
    /// The chosen entries.
    pub kind: Kind,
    /// The columns, if it is a list of them.
    pub fields: Vec<&'static Field>,
    texts: Vec<String>,
    /// The text typed to find an entry.
    pub typed: String,
    /// The entries that match, as places in the list.
    pub shown: Vec<usize>,
    /// The entry with the cursor, as an index in `shown`.
    pub at: usize,
}

impl List {
    /// All columns.
    pub fn columns(kind: Kind) -> List {
        let mut fields: Vec<&'static Field> = SET.own().collect();
        let is_hidden = |f: &&Field| SET.own().any(|own| own.name == f.name);
        fields.extend(TASKS.own().filter(|f| !is_hidden(f)));
        let texts = fields.iter().map(|f| format!("{:<18} {}", f.name, f.help)).collect();
        List::new(kind, fields, texts)
    }
    /// These signals.
    pub fn signals(target: Target, signals: &[(i32, &str)]) -> List {
        let text = |(n, what): &(i32, &str)| format!("{n:>2} {:<8} {what}", signal_name(*n));
        List::new(Kind::Signals(target), Vec::new(), signals.iter().map(text).collect())
    }
    fn new(kind: Kind, fields: Vec<&'static Field>, texts: Vec<String>) -> List {
        let shown = (0..texts.len()).collect();
        List { kind, fields, texts, typed: String::new(), shown, at: 0 }
    }
    /// What is asked.
    pub fn title(&self) -> String {
        let typed = if self.typed.is_empty() { String::new() } else { format!(": {}", self.typed) };
        match &self.kind {
            Kind::Columns => {
                format!("Columns{typed} (type to find, Space shows or hides, Enter ends)")
            }
            Kind::Sort => format!("Sort by{typed} (type to find, Enter chooses, Esc leaves)"),
            Kind::Signals(target) => format!("Signal for {target} (Enter chooses, Esc leaves)"),
        }
    }
    /// The text of an entry.
    pub fn text(&self, entry: usize) -> &str {
        &self.texts[entry]
    }
    /// Move the cursor.
    pub fn step(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.shown.len().saturating_sub(1));
    }
    /// The entry with the cursor.
    pub fn chosen(&self) -> Option<usize> {
        self.shown.get(self.at).copied()
    }
    /// Adds a typed character, or removes the last one.
    pub fn search(&mut self, c: Option<char>) {
        match c {
            Some(c) => self.typed.push(c),
            None => _ = self.typed.pop(),
        }
        self.find();
    }
    /// Erases text as Ctrl with this letter does.
    pub fn erase(&mut self, letter: char) {
        let before = self.typed.len();
        erase(&mut self.typed, letter);
        if self.typed.len() != before {
            self.find();
        }
    }
    /// Show the entries that have the text that was typed.
    fn find(&mut self) {
        let typed = self.typed.to_lowercase();
        let has = |i: &usize| self.texts[*i].to_lowercase().contains(&typed);
        self.shown = (0..self.texts.len()).filter(has).collect();
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_what_is_typed() {
        let mut list = List::columns(Kind::Sort);
        let all = list.shown.len();
        "cpu_now".chars().for_each(|c| list.search(Some(c)));
        assert_eq!(list.fields[list.chosen().unwrap()].name, "cpu_now");
        assert!(list.shown.len() < all);
        "cpu_now".chars().for_each(|_| list.search(None));
        assert_eq!(list.shown.len(), all);
    }
}
