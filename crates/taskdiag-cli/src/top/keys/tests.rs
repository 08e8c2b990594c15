use std::process::{Child, Command, Stdio};

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
    press(&mut app, &[KeyCode::Esc, KeyCode::Home, KeyCode::Char('R'), KeyCode::Char('n')]);
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
fn a_click_on_a_column_that_is_gone_does_nothing() {
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
    press(&mut app, &[KeyCode::Char('\\')]);
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
    press(&mut app, &[KeyCode::Esc, KeyCode::F(6), KeyCode::Char('r'), KeyCode::Char('s')]);
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
fn a_delay_beyond_the_clock_is_a_long_wait() {
    let mut app = top(&["-d", "10000000000000000000s"]);
    app.scan().expect("/proc is there");
    let now = std::time::Instant::now();
    assert!(crate::top::app::due(&app, now) > now + std::time::Duration::from_secs(3600));
}

fn typed(app: &mut App, text: &str) {
    press(app, &text.chars().map(KeyCode::Char).collect::<Vec<_>>());
}

/// The process in the row with the cursor.
fn at_cursor(app: &mut App) -> Option<u32> {
    app.id_at_cursor().map(|id| id.0)
}

#[test]
fn a_search_goes_from_row_to_row_and_hides_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = Sleepers(["needle-a", "hay-b", "needle-c", "hay-d"].map(|n| named(&dir, n)).into());
    let mut app = top(&["--sort", "pid", "--where", &all.condition()]);
    app.page = 10;
    press(&mut app, &[KeyCode::Char('/')]);
    typed(&mut app, "NEEDLE");
    press(&mut app, &[KeyCode::Enter]);
    let needles: Vec<u32> = vec![all.pid(0), all.pid(2)];
    let mut seen = vec![at_cursor(&mut app).expect("a row")];
    for key in [KeyCode::F(3), KeyCode::Char('&')] {
        press(&mut app, &[key]);
        seen.push(at_cursor(&mut app).expect("a row"));
    }
    // The search begins after the first row, and wraps around.
    assert_eq!(seen, [needles[1], needles[0], needles[1]]);
    assert_eq!(app.rows.len(), 4);
    press(&mut app, &[KeyCode::Char('/')]);
    typed(&mut app, "nosuchword");
    press(&mut app, &[KeyCode::Enter]);
    assert!(app.message.as_ref().is_some_and(|m| m.contains("No row has")), "{:?}", app.message);
    assert_eq!(at_cursor(&mut app), Some(needles[1]));
}

#[test]
fn a_search_finds_arguments_but_never_this_program() {
    let all = Sleepers::new(3);
    let own = std::process::id();
    let condition = format!("{} or pid == {own}", all.condition());
    let mut app = top(&["-o", "pid,comm", "--sort", "-pid", "--where", &condition]);
    let args = std::fs::read(format!("/proc/{own}/cmdline")).expect("it is ours");
    let word = args.split(|b| *b == 0).next().expect("its name");
    app.search = Some(String::from_utf8(word.to_vec()).expect("a path"));
    app.find_next(false);
    assert!(app.message.as_ref().is_some_and(|m| m.contains("No row has")), "{:?}", app.message);
    app.search = Some(String::from("sleep 60"));
    app.find_next(true);
    assert!(
        app.message.as_ref().is_some_and(|m| m.starts_with("3 rows have")),
        "{:?}",
        app.message
    );
    assert!(at_cursor(&mut app).is_some_and(|pid| pid != own));
}

#[test]
fn the_cursor_follows_its_task() {
    let mut all = Sleepers::new(5);
    let mut app = top(&["--sort", "pid", "--where", &all.condition()]);
    press(&mut app, &[KeyCode::Down, KeyCode::Char('F'), KeyCode::Char('R')]);
    assert_eq!((app.cursor, at_cursor(&mut app)), (3, Some(all.pid(1))), "the order is turned");
    all.0[4].kill().expect("ours");
    all.0[4].wait().expect("it ends");
    app.scan().expect("/proc is there");
    assert_eq!((app.cursor, at_cursor(&mut app)), (2, Some(all.pid(1))));
    all.0[1].kill().expect("ours");
    all.0[1].wait().expect("it ends");
    app.scan().expect("/proc is there");
    assert!(app.follow.is_none() && app.message.as_ref().is_some_and(|m| m.contains("has ended")));
    press(&mut app, &[KeyCode::Char('F'), KeyCode::Up]);
    assert!(app.follow.is_none(), "a move ends it");
}

#[test]
fn a_signal_reaches_all_marked_tasks_and_no_other() {
    let mut all = Sleepers::new(3);
    let mut app = top(&["--sort", "pid", "--where", &all.condition()]);
    let keys = ['c', 'k'].map(KeyCode::Char);
    press(&mut app, &[keys[0], KeyCode::End, keys[0], KeyCode::Up, keys[1], KeyCode::Enter]);
    drawn(&mut app);
    press(&mut app, &[KeyCode::Char('y')]);
    assert!(app.message.as_ref().is_some_and(|m| m.contains("all 2 marked")), "{:?}", app.message);
    all.0[0].wait().expect("it ends");
    all.0[2].wait().expect("it ends");
    assert!(all.0[1].try_wait().expect("ours").is_none());
    assert!(app.marks.is_empty());
}

#[test]
fn help_ends_with_its_last_line() {
    let mut app = top(&["--once"]);
    app.page = 15;
    press(&mut app, &[KeyCode::Char('?'), KeyCode::End, KeyCode::PageDown, KeyCode::Up]);
    assert!(matches!(app.mode, Mode::Help(top) if top == HELP.len() - 15), "{:?}", app.mode);
    press(&mut app, &[KeyCode::Char('h')]);
    assert!(matches!(app.mode, Mode::Table));
}

#[test]
fn a_branch_of_the_tree_is_added_up_and_folded() {
    // The children of the shell end when the pipe is closed, at the end of the test.
    let script = "exec 3<&0; cat <&3 & cat <&3 & wait";
    let shell = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn();
    let all = Sleepers(vec![shell.expect("a shell")]);
    let pid = all.pid(0);
    let condition = format!("pid == {pid} or ppid == {pid}");
    let mut app = top(&["-t", "-o", "pid,nlwp,comm", "--sort", "pid", "--where", &condition]);
    while app.rows.len() < 3 {
        app.scan().expect("/proc is there");
    }
    app.page = 10;
    drawn(&mut app);
    let nlwp = SET.find("nlwp").expect("a column").field;
    assert!(app.rows.subtree(nlwp, 0).is_none(), "it is off at first");
    press(&mut app, &[KeyCode::Char('S')]);
    app.scan().expect("/proc is there");
    let sum = |app: &App, row| app.rows.subtree(nlwp, row).map(|(value, _)| value);
    assert_eq!((sum(&app, 0), sum(&app, 1)), (Some(Value::Uint(3)), Some(Value::Uint(1))));
    press(&mut app, &[KeyCode::Char('-')]);
    assert_eq!((app.rows.len(), sum(&app, 0)), (1, Some(Value::Uint(3))));
    assert_eq!(app.rows.art(0).as_deref(), Some("[+2] "));
    press(&mut app, &[KeyCode::Char('c')]);
    assert_eq!(app.marks.len(), 3, "all that is below, also what is folded");
    press(&mut app, &[KeyCode::Char('U'), KeyCode::Char('+')]);
    assert_eq!((app.rows.len(), app.marks.len()), (3, 0));
}

#[test]
fn top_s_letters_sort() {
    let mut app = top(&["--once"]);
    for (key, field, descending) in
        [('M', "pmem", true), ('T', "time", true), ('P', "cpu_now", true), ('N', "pid", false)]
    {
        press(&mut app, &[KeyCode::Char(key)]);
        let sort = &app.shape.sort[0];
        assert_eq!((sort.field.name, sort.descending), (field, descending), "{key}");
    }
    press(&mut app, &[KeyCode::Char('p')]);
    assert!(app.shape.columns.iter().any(|c| c.field.name == "comm"));
    press(&mut app, &[KeyCode::Tab]);
    assert!(app.shape.columns.iter().any(|c| c.field.name == "comm"), "it stays in other views");
}

#[test]
fn no_terminal_is_a_dash_and_not_unknown() {
    let child = Command::new("setsid").args(["sleep", "60"]).spawn().expect("setsid is there");
    let all = Sleepers(vec![child]);
    let mut app = top(&["--where", &all.condition()]);
    // The process still runs setsid until setsid has called exec.
    while !app.rows.states.is_empty() && app.target().is_none_or(|t| t.comm != "sleep") {
        app.scan().expect("/proc is there");
        drawn(&mut app);
    }
    press(&mut app, &[KeyCode::Enter]);
    let Mode::Detail(detail) = &app.mode else { panic!("{:?}", app.mode) };
    let line = detail.lines.iter().find(|l| l.starts_with("tty ")).expect("a line");
    assert_eq!(line.split_whitespace().nth(1), Some("-"), "{line}");
}

#[test]
fn the_tree_of_cgroups_leads_to_the_tasks_of_one() {
    let sleepers = Sleepers::new(1);
    let mut app = top(&["--where", &sleepers.condition()]);
    app.page = 1000;
    press(&mut app, &[KeyCode::Char('G')]);
    let Mode::Groups(groups) = &app.mode else { panic!("{:?} {:?}", app.mode, app.message) };
    let paths: Vec<&[u8]> = groups.rows.iter().map(|row| &row.path[..]).collect();
    assert_eq!(paths.first(), Some(&&b"/"[..]));
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("it is there");
    let own = own.lines().find_map(|l| l.strip_prefix("0::")).expect("there is version 2");
    let at = paths.iter().position(|p| *p == own.as_bytes()).expect("it is in the tree");
    // A scan refreshes the tree, and the cursor stays on its cgroup.
    press(&mut app, &vec![KeyCode::Down; at]);
    app.scan().expect("/proc is there");
    let Mode::Groups(groups) = &app.mode else { panic!("{:?}", app.mode) };
    assert_eq!(groups.chosen().map(|row| &row.path[..]), Some(own.as_bytes()));
    let cpu = groups.columns.iter().position(|c| c.field.name == "cpu_now").expect("there");
    assert_ne!(groups.rows[0].cells[cpu], "-", "the second listing has rates");
    for key in ['M', 'N', 'P'] {
        press(&mut app, &[KeyCode::Char(key)]);
        let Mode::Groups(groups) = &app.mode else { panic!("{:?}", app.mode) };
        assert_eq!(groups.chosen().map(|row| &row.path[..]), Some(own.as_bytes()), "{key}");
    }
    press(&mut app, &[KeyCode::Enter]);
    assert!(matches!(app.mode, Mode::Table), "{:?}", app.mode);
    app.scan().expect("/proc is there");
    drawn(&mut app);
    assert_eq!(at_cursor(&mut app), Some(sleepers.pid(0)));
    let is_root = own == "/";
    assert_eq!(app.filter.as_ref().is_some_and(|f| f.contains("cgroup_path")), !is_root);
    // A cgroup that no task is in.
    press(&mut app, &[KeyCode::Char('G'), KeyCode::Esc]);
    assert!(matches!(app.mode, Mode::Table));
}
