//! Keys for a recording: steps from frame to frame.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;

use super::app::{App, Mode, Next};
use super::prompt::{For, Prompt};
use crate::exit::Exit;

/// How many frames a large step has: ten minutes at the usual interval.
const LEAP: isize = 60;

impl App {
    /// The interval is over: refresh, or show the next frame of the recording.
    pub fn go_on(&mut self) -> Result<(), Exit> {
        if self.scanner.is_replay() && !self.turn_by(1) {
            return Ok(());
        }
        // Users who watch at the same time share the walks of the service. After a key, and for the
        // first rates, a new answer is requested.
        if self.scanner.scans >= 2 {
            self.scanner.max_age = self.interval() / 2;
        }
        let done = self.scan();
        self.scanner.max_age = Duration::ZERO;
        done
    }
    /// Goes this many frames forward or back in the recording. Returns false if there are no more,
    /// with a message.
    fn turn_by(&mut self, _frames: isize) -> bool {
        #[cfg(feature = "record")]
        if self.scanner.replay.as_mut().is_some_and(|r| !r.step(_frames)) {
            let end = if _frames > 0 { "last" } else { "first" };
            (self.message, self.paused) = (Some(format!("This is the {end} frame.")), true);
            return false;
        }
        true
    }
    /// Keys that only a recording has, and keys that do nothing in one.
    pub fn on_replay(&mut self, key: KeyCode) -> Option<Next> {
        let by = match key {
            KeyCode::Char(']') => 1,
            KeyCode::Char('[') => -1,
            KeyCode::Char('}') => LEAP,
            KeyCode::Char('{') => -LEAP,
            KeyCode::Char('g') => {
                let text = String::new();
                self.mode = Mode::Prompt(Prompt { what: For::Moment, text, wrong: None });
                return Some(Next::Draw);
            }
            KeyCode::Char('n') if self.search.is_some() => return None,
            KeyCode::Char('k' | 'n' | 'r' | 'a' | 'c' | 's' | 'l' | 'H') | KeyCode::F(7..=9) => {
                self.message = Some(String::from(
                    "This key does nothing in a recording, which is about the past.",
                ));
                return Some(Next::Draw);
            }
            KeyCode::Enter if self.shape.by.is_none() => return Some(Next::Draw),
            _ => return None,
        };
        Some(if self.turn_by(by) { Next::Scan } else { Next::Draw })
    }
    /// Go to a moment of the recording.
    pub fn go(&mut self, _text: &str) -> Result<(), String> {
        #[cfg(feature = "record")]
        if let Some(replay) = &mut self.scanner.replay {
            replay.go(_text.parse()?)?;
        }
        Ok(())
    }
}
