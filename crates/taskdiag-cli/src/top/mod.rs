//! `taskdiag top`: a live view of processes.
//!
//! `scan` makes requests, `rows` chooses and sorts, `app` has the state, `keys` handles input, and
//! `draw` draws the screen. `once` prints instead.

mod act;
mod app;
mod detail;
mod draw;
mod head;
mod keys;
mod list;
mod machine;
mod once;
mod prompt;
#[cfg(feature = "record")]
mod replay;
mod rows;
mod scan;
mod screen;
mod steps;
mod views;

use std::time::{Duration, Instant};

use crate::args::top::TopArgs;
use crate::exit::Exit;
use app::{App, Next, due};
use screen::{Screen, Stop, Wake};

/// Run it.
pub fn run(args: &TopArgs) -> Result<(), Exit> {
    let mut app = App::new(args)?;
    if args.once {
        return once::run(args, &mut app);
    }
    let mut screen = Screen::take()?;
    let end = watch(&mut app, &mut screen);
    // The terminal is restored before messages are printed.
    drop(screen);
    end
}

fn watch(app: &mut App, screen: &mut Screen) -> Result<(), Exit> {
    let mut asked = Instant::now();
    app.scan()?;
    loop {
        show(app, screen)?;
        let rest = match app.paused {
            true => Duration::from_secs(3600),
            false => due(app, asked).saturating_duration_since(Instant::now()),
        };
        match screen.wait(rest)? {
            Wake::Quit => return Ok(()),
            Wake::Time | Wake::Redraw => {}
            Wake::Events(events) => {
                for event in &events {
                    match app.on(event)? {
                        Next::Quit => return Ok(()),
                        Next::Suspend => screen.suspend(Stop::Group)?,
                        Next::Scan | Next::Draw => {}
                    }
                }
            }
        }
        if app.stale || !app.paused && Instant::now() >= due(app, asked) {
            asked = Instant::now();
            match app.stale {
                true => app.scan()?,
                false => app.go_on()?,
            }
        }
    }
}

fn show(app: &mut App, screen: &mut Screen) -> Result<(), Exit> {
    let size = screen.terminal.size()?;
    (app.width, app.page) = (size.width, draw::page(size.height));
    app.move_to(app.cursor);
    app.look();
    screen.terminal.draw(|frame| draw::draw(app, frame))?;
    app.unseen = false;
    Ok(())
}
