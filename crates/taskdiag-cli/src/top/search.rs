//! The search for rows, and the row that the cursor follows.

use std::collections::HashSet;

use taskdiag::field::{self, Field, Row, Value};

use super::app::App;
use super::scan::Id;

/// Does a text have another one in it? Capital ASCII letters are like small ones, and the bytes
/// between arguments are like blanks.
fn has(text: &[u8], word: &[u8]) -> bool {
    let same = |a: &u8, b: &u8| {
        let a = if *a == 0 { b' ' } else { a.to_ascii_lowercase() };
        a == b.to_ascii_lowercase()
    };
    !word.is_empty()
        && text.windows(word.len()).any(|part| part.iter().zip(word).all(|(a, b)| same(a, b)))
}

/// The name of a task.
fn comm<'a>(row: &Row<'a>) -> &'a [u8] {
    row.comm.unwrap_or_default()
}

impl App {
    /// Goes to the next row that has the text of the search in its name or its arguments, or to the
    /// previous one. Never to this program itself, which shows the text.
    pub fn find_next(&mut self, back: bool) {
        let Some(text) = self.search.clone() else {
            self.message = Some(String::from("Nothing is searched yet: / begins a search."));
            return;
        };
        let word = text.as_bytes();
        let is_match = |bytes: &[u8]| has(bytes, word);
        let found = match self.shape.by.as_ref().map(|by| by.field) {
            Some(by) => self.find_sum(by, back, is_match),
            None => match self.scanner.with_arguments(is_match) {
                Ok(processes) => self.find_task(&processes, back, is_match),
                Err(why) => {
                    self.message = Some(format!("The arguments could not be read: {why}"));
                    return;
                }
            },
        };
        self.message = Some(match found {
            Some((row, all)) => {
                self.follow = None;
                self.move_to(row);
                let rows = if all == 1 { "row has" } else { "rows have" };
                format!("{all} {rows} '{text}'; F3 or & goes to the next one")
            }
            None => format!("No row has '{text}' in its name or arguments."),
        });
    }
    fn find_task(
        &mut self,
        processes: &HashSet<u32>,
        back: bool,
        is_match: impl Fn(&[u8]) -> bool,
    ) -> Option<(usize, usize)> {
        self.see();
        let frame = self.scanner.frame()?;
        let own = self.own_pid();
        let is_found = |task: u32| {
            frame.row(task as usize).is_some_and(|row| {
                let tgid = row.view.tgid();
                Some(tgid) != own && (processes.contains(&tgid) || is_match(comm(&row)))
            })
        };
        self.rows.find(&frame, &self.shape, self.cursor, back, is_found)
    }
    fn find_sum(
        &self,
        by: &Field,
        back: bool,
        is_match: impl Fn(&[u8]) -> bool,
    ) -> Option<(usize, usize)> {
        let column = self.shape.columns.iter().position(|c| std::ptr::eq(c.field, by))?;
        let cx = self.scanner.frame()?.cx;
        let is_found = |sum: &taskdiag::view::Sum| match sum.values.get(column) {
            Some(Value::Bytes { data, .. }) => is_match(data),
            Some(value) => {
                let mut text = Vec::new();
                field::text(&mut text, cx, by.text, None, value);
                is_match(&text)
            }
            None => false,
        };
        let sums = self.rows.sums.iter().enumerate();
        let places: Vec<usize> = sums.filter(|(_, s)| is_found(s)).map(|(at, _)| at).collect();
        let next = match back {
            false => places.iter().find(|p| **p > self.cursor).or(places.first()),
            true => places.iter().rev().find(|p| **p < self.cursor).or(places.last()),
        };
        next.map(|row| (*row, places.len()))
    }
    /// The pid of this program in the list.
    pub(super) fn own_pid(&self) -> Option<u32> {
        crate::this_program::pid().filter(|_| !self.scanner.is_replay())
    }
    /// The task with the cursor.
    pub fn id_at_cursor(&mut self) -> Option<Id> {
        // Keys that came at once with this one may have moved the cursor.
        self.see();
        let task = *self.visible.get(self.cursor.checked_sub(self.offset)?)?;
        self.scanner.frame()?.id(task)
    }
    /// Keeps the cursor on the task under it at each refresh, or stops that.
    pub fn toggle_follow(&mut self) {
        self.follow = match self.follow {
            Some(_) => None,
            None => self.id_at_cursor(),
        };
        self.message = Some(match self.follow {
            Some((pid, _)) => format!("The cursor follows {pid} until it is moved."),
            None => String::from("The cursor stays in its row."),
        });
    }
    /// Moves the cursor to the task that it follows, wherever that is now.
    pub fn keep_up(&mut self) {
        let Some(id) = self.follow else { return };
        let Some(frame) = self.scanner.frame() else { return };
        let task = (0..frame.snapshot.tasks().len() as u32)
            .find(|i| frame.row(*i as usize).is_some_and(|r| r.view.pid() == id.0))
            .filter(|i| frame.id(*i) == Some(id));
        let Some(task) = task else {
            self.message = Some(format!("{} has ended; the cursor follows it no longer.", id.0));
            self.follow = None;
            return;
        };
        // A filter may hide it for a while.
        let row = self.rows.place(&frame, &self.shape, task);
        if let Some(row) = row {
            self.move_to(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_across_arguments_and_in_any_case() {
        for (text, word, is_there) in [
            (b"python3\0-m\0Http.server".as_slice(), "-m http", true),
            (b"Xorg", "xo", true),
            (b"a", "ab", false),
            (b"abc", "", false),
            ("stra\u{df}e".as_bytes(), "a\u{df}e", true),
        ] {
            assert_eq!(has(text, word.as_bytes()), is_there, "{word}");
        }
    }
}
