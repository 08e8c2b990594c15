use std::process::{Child, Command};

use super::*;
use crate::args::top::{TopArgs, command};

/// Processes of this test, by pid.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn new(n: usize) -> Sleepers {
        let one = |_| Command::new("sleep").arg("60").spawn().expect("sleep is there");
        let mut all: Vec<Child> = (0..n).map(one).collect();
        all.sort_by_key(Child::id);
        Sleepers(all)
    }
    fn pid(&self, i: usize) -> u32 {
        self.0[i].id()
    }
    fn condition(&self) -> String {
        let pids: Vec<String> = self.0.iter().map(|c| c.id().to_string()).collect();
        format!("pid in ({})", pids.join(", "))
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Top after its first answer, with a screen of a few rows.
fn top(args: &[&str]) -> App {
    let all = [&["top", "--engine", "procfs"], args].concat();
    let matches = command().try_get_matches_from(all).expect("good arguments");
    let args = TopArgs::from_matches(&matches).expect("good arguments");
    let mut app = App::new(&args).expect("good arguments");
    app.scan().expect("/proc is there");
    app.page = 2;
    drawn(&mut app);
    app
}

/// The events that drawing the screen causes.
fn drawn(app: &mut App) {
    app.look();
    app.unseen = false;
}

fn press(app: &mut App, codes: &[KeyCode]) {
    for code in codes {
        let event = Event::Key(KeyEvent::new(*code, KeyModifiers::NONE));
        app.on(&event).expect("/proc is there");
    }
}

/// The task that a list of signals or a question is about.
fn asked(app: &App) -> Option<u32> {
    match &app.mode {
        Mode::Confirm(target, _) => Some(target.pid),
        Mode::List(List { kind: Kind::Signals(target), .. }) => Some(target.pid),
        Mode::Prompt(Prompt { what: For::Nice(target) | For::Cpus(target), .. }) => {
            Some(target.pid)
        }
        _ => None,
    }
}

#[test]
fn a_key_is_about_the_row_to_which_keys_before_it_moved() {
    let all = Sleepers::new(6);
    let mut app = top(&["--sort", "pid", "--where", &all.condition()]);
    press(&mut app, &[KeyCode::End, KeyCode::Char('k')]);
    assert_eq!(asked(&app), Some(all.pid(5)));
    press(&mut app, &[KeyCode::Esc, KeyCode::Home, KeyCode::Char('r'), KeyCode::Char('n')]);
    assert_eq!(asked(&app), Some(all.pid(5)), "the order is turned");
}

#[test]
fn a_key_is_about_rows_that_keys_before_it_have_asked_for() {
    let all = Sleepers::new(4);
    let mut app = top(&["-o", "pid,ni", "--sort", "-pid", "--where", &all.condition()]);
    // All have the same nice value, so the smallest pid is the first.
    let scans = app.scanner.scans;
    press(&mut app, &[KeyCode::Char('>'), KeyCode::Char('H'), KeyCode::Char('k')]);
    assert_eq!(app.scanner.scans, scans + 1);
    assert_eq!(asked(&app), Some(all.pid(0)));
    press(&mut app, &[KeyCode::Esc, KeyCode::Char('5'), KeyCode::Char('2')]);
    assert_eq!(app.scanner.scans, scans + 1, "these keys need no rows");
    assert!(app.stale);
}

#[test]
fn a_question_is_answered_after_it_was_seen() {
    let mut all = Sleepers::new(1);
    let mut app = top(&["--where", &all.condition()]);
    press(&mut app, &[KeyCode::Char('k'), KeyCode::Enter, KeyCode::Char('y')]);
    assert_eq!(asked(&app), Some(all.pid(0)), "it is still asked");
    assert!(app.message.is_none() && all.0[0].try_wait().expect("ours").is_none());
    drawn(&mut app);
    press(&mut app, &[KeyCode::Char('y')]);
    assert!(app.message.is_some_and(|m| m.contains("SIGTERM was sent")));
    all.0[0].wait().expect("it ends");
}

#[test]
fn a_number_for_a_task_is_taken_after_it_was_seen() {
    let all = Sleepers::new(1);
    let mut app = top(&["--where", &all.condition()]);
    press(&mut app, &[KeyCode::Char('n'), KeyCode::Char('1'), KeyCode::Char('9'), KeyCode::Enter]);
    let Mode::Prompt(prompt) = &app.mode else { panic!("it is still asked") };
    assert_eq!(prompt.text, "19");
    drawn(&mut app);
    press(&mut app, &[KeyCode::Enter]);
    assert!(app.message.is_some_and(|m| m.contains("has nice value 19")));
}

#[test]
fn a_click_on_a_column_that_is_gone() {
    let mut app = top(&["-o", "pid,comm,user"]);
    app.headers = (3, vec![(0..5, 0), (6..10, 1), (11..15, 2)]);
    app.shape.columns.truncate(1);
    let kind = MouseEventKind::Down(MouseButton::Left);
    let click = MouseEvent { kind, column: 12, row: 3, modifiers: KeyModifiers::NONE };
    assert!(app.on(&Event::Mouse(click)).is_ok());
}

fn control(app: &mut App, letter: char) -> Next {
    let event = Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    app.on(&event).expect("/proc is there")
}

#[test]
fn letters_with_control_are_no_letters() {
    let all = Sleepers::new(1);
    let mut app = top(&["--where", &all.condition()]);
    for letter in "abdefgijklmnopqrstuvwxy".chars() {
        assert_eq!(control(&mut app, letter), Next::Draw, "{letter}");
        assert!(matches!(app.mode, Mode::Table), "{letter}");
    }
    assert_eq!(control(&mut app, 'c'), Next::Quit);
    assert_eq!(control(&mut app, 'z'), Next::Suspend);
    press(&mut app, &[KeyCode::Char('/')]);
    let text = |app: &App| match &app.mode {
        Mode::Prompt(prompt) => prompt.text.clone(),
        other => panic!("{other:?}"),
    };
    control(&mut app, 'u');
    assert_eq!(text(&app), "");
    press(&mut app, &"rss > 1G".chars().map(KeyCode::Char).collect::<Vec<_>>());
    control(&mut app, 'a');
    control(&mut app, 'h');
    assert_eq!(text(&app), "rss > 1");
    control(&mut app, 'w');
    assert_eq!(text(&app), "rss > ");
    press(&mut app, &[KeyCode::Esc, KeyCode::Char('s'), KeyCode::Char('r'), KeyCode::Char('s')]);
    control(&mut app, 'u');
    assert!(matches!(&app.mode, Mode::List(list) if list.typed.is_empty() && list.shown.len() > 9));
}

/// A process of this test with this name.
fn named(dir: &tempfile::TempDir, name: &str) -> Child {
    let link = dir.path().join(name);
    std::os::unix::fs::symlink("/bin/sleep", &link).expect("a link");
    Command::new(link).arg("60").spawn().expect("sleep is there")
}

#[test]
fn a_sum_is_opened_within_the_condition() {
    let dir = tempfile::tempdir().expect("a directory");
    let names = ["plain", "a'b", "a\"b", "back\\slash", "both'\"", "t\tab"];
    for name in names {
        let first = named(&dir, name);
        let second = Command::new(dir.path().join(name)).arg("60").spawn().expect("it runs");
        let all = Sleepers(vec![first, second]);
        let mut app = top(&["--by", "comm", "--where", &format!("pid == {}", all.pid(1))]);
        assert_eq!(app.rows.len(), 1, "{name:?}");
        press(&mut app, &[KeyCode::Enter]);
        if ["both'\"", "t\tab"].contains(&name) {
            assert!(app.message.is_some_and(|m| m.contains("No expression can")), "{name:?}");
            continue;
        }
        assert!(app.stale && app.message.is_none(), "{name:?}: {:?}", app.message);
        app.scan().expect("/proc is there");
        drawn(&mut app);
        assert_eq!(app.rows.len(), 1, "{name:?}: {:?}", app.filter);
        press(&mut app, &[KeyCode::Char('k')]);
        assert_eq!(asked(&app), Some(all.pid(1)), "{name:?}");
    }
}

#[test]
fn a_delay_that_no_clock_reaches() {
    let mut app = top(&["-d", "10000000000000000000s"]);
    app.scan().expect("/proc is there");
    let now = std::time::Instant::now();
    assert!(crate::top::app::due(&app, now) > now + std::time::Duration::from_secs(3600));
}
