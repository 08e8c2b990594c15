//! `taskdiag top`: a live view of processes.
//!
//! `scan` asks, `rows` chooses and sorts, `app` has the state, `keys` handles keys, and `draw`
//! draws the screen. `search` finds rows, `subtree` adds up branches of the tree, and `settings`
//! keeps what was chosen. `groups` is the tree of cgroups. `once` prints instead.
//!
//! A frame does little for tasks that are not on the screen. For all tasks, top requests the values
//! by which rows are sorted, filtered and added up, and groups that cost little. A second request
//! gets the other values for the some 50 processes on the screen. `Rates` compares an answer with
//! arrays of counters from the previous one. A task is looked up by its pid only if it is not near
//! its old place and did not begin after the old answer. Sorting is a selection of the rows on the
//! screen (`select_nth_unstable`), by keys that are packed into one integer. Before an action on a
//! process, a pidfd of it is opened and its start time compared, so that it cannot be another
//! process. The terminal is given back by the destructor, by the panic hook, and by handlers that
//! only set flags.

mod act;
mod app;
mod detail;
mod draw;
mod groups;
mod head;
mod help;
mod keys;
mod list;
mod machine;
mod meters;
mod once;
mod prompt;
#[cfg(feature = "record")]
mod replay;
mod rows;
mod scan;
mod screen;
mod search;
mod settings;
mod steps;
mod subtree;
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
    let mut refreshes = 1;
    app.scan()?;
    loop {
        show(app, screen)?;
        if app.args.refreshes.is_some_and(|n| refreshes >= u64::from(n) && app.scanner.scans > 1) {
            return Ok(());
        }
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
                false => {
                    refreshes += u64::from(app.scanner.scans > 1);
                    app.go_on()?;
                }
            }
        }
    }
}

fn show(app: &mut App, screen: &mut Screen) -> Result<(), Exit> {
    let size = screen.terminal.size()?;
    (app.width, app.height) = (size.width, size.height);
    app.page = draw::page(app);
    app.move_to(app.cursor);
    app.look();
    screen.terminal.draw(|frame| draw::draw(app, frame))?;
    app.unseen = false;
    Ok(())
}
