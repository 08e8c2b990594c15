//! `taskdiag top` in a terminal: tmux shows its screen, types keys and changes its size. Rows
//! belong to processes that these tests start, so their text is known.

use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::time::Duration;

use super::busy::Patience;
use super::common::{parts, run, wait_for_sleep};
use super::terminal::on_terminal;

/// An awaited event comes within this time, counted as on an idle machine. It is a little less than
/// the limit of a test, so that a failure shows the screen.
const LIMIT: Duration = Duration::from_secs(50);

/// Processes with known names. Dropping the value ends them.
struct Workload {
    dir: tempfile::TempDir,
    children: Vec<Child>,
}

impl Workload {
    fn new() -> Workload {
        Workload { dir: tempfile::tempdir().unwrap(), children: Vec::new() }
    }
    /// A process with this name, which sleeps. Its pid. It has loaded its libraries, which takes
    /// CPU time.
    fn sleeper(&mut self, name: &str) -> u32 {
        let link = self.dir.path().join(name);
        symlink("/bin/sleep", &link).unwrap();
        let pid = self.start(Command::new(link).arg("3000"));
        wait_for_sleep(pid, name);
        pid
    }
    fn start(&mut self, command: &mut Command) -> u32 {
        let child = command.process_group(0).spawn().unwrap();
        self.children.push(child);
        self.children.last().unwrap().id()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        for child in &mut self.children {
            // SAFETY: a signal to a group of our own, whose leader was not waited for yet.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
        }
    }
}

/// A terminal of tmux.
pub struct Tmux {
    dir: tempfile::TempDir,
}

impl Tmux {
    /// A terminal of this size with this shell command in it.
    pub fn new(width: u32, height: u32, command: &str) -> Tmux {
        let tmux = Tmux { dir: tempfile::tempdir().unwrap() };
        let (x, y) = (width.to_string(), height.to_string());
        tmux.call(&["new-session", "-d", "-x", &x, "-y", &y, command]);
        tmux
    }
    /// A terminal in which top runs with these arguments. Its exit code is shown afterwards.
    fn top(width: u32, height: u32, env: &str, args: &str) -> Tmux {
        let program = env!("CARGO_BIN_EXE_taskdiag");
        let shell = format!(
            "echo before; env LC_ALL=C {env} {program} top -d 300ms {args}; echo code $?; exec cat"
        );
        Tmux::new(width, height, &shell)
    }
    fn call(&self, args: &[&str]) -> String {
        let o = Command::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(self.dir.path().join("socket"))
            .args(args)
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .env_remove("TASKDIAG_ENGINE")
            .output()
            .expect("tmux is installed, tools/setup test does it");
        assert!(o.status.success(), "{args:?}: {}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8_lossy(&o.stdout).into_owned()
    }
    pub fn keys(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }
    /// The content of the screen.
    fn screen(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }
    /// The screen as soon as this is true of it.
    pub fn until(&self, what: &str, is_true: impl Fn(&str) -> bool) -> String {
        let mut patience = Patience::new(LIMIT);
        loop {
            let screen = self.screen();
            if is_true(&screen) {
                return screen;
            }
            assert!(!patience.is_over(), "{what} did not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    pub fn until_has(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }
    /// Wait until the rows are these.
    fn until_rows(&self, rows: &[String]) {
        self.until(&format!("{rows:#?}"), |screen| table(screen) == rows);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(self.dir.path().join("socket"))
            .arg("kill-server")
            .output();
    }
}

/// The rows of the table on a screen: those between the line of headers and the last line, which
/// has keys or a message.
fn table(screen: &str) -> Vec<String> {
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    let head = lines.iter().position(|l| l.contains("PID") && l.contains("COMMAND"));
    let Some(head) = head else { return Vec::new() };
    let rows = &lines[head + 1..lines.len() - 1];
    rows.iter().filter(|l| !l.is_empty()).map(|l| (*l).to_owned()).collect()
}

const COLUMNS: &str = "-o pid:9,s,nlwp,comm";

fn row(pid: u32, rest: &str) -> String {
    format!("{pid:>9} {rest}")
}

#[test]
fn a_word_filters_and_is_searched() {
    let mut workload = Workload::new();
    let word = format!("find-{}", std::process::id());
    let pid = workload.sleeper(&word);
    let tmux = Tmux::top(80, 24, "", COLUMNS);
    tmux.until_has("COMMAND");
    tmux.keys(&["F4"]);
    tmux.keys(&[&word, "Enter"]);
    tmux.until_rows(&[row(pid, &format!("S    1 {word}"))]);
    tmux.keys(&["Escape"]);
    tmux.until("all rows", |s| table(s).len() > 1);
    tmux.keys(&["/"]);
    tmux.keys(&[&word, "Enter"]);
    let screen = tmux.until_has(&format!("1 row has '{word}'"));
    assert!(table(&screen).contains(&row(pid, &format!("S    1 {word}"))), "{screen}");
}

#[test]
fn rows_are_sorted_filtered_and_chosen() {
    let mut workload = Workload::new();
    let pids = ["alpha", "beta", "gamma"].map(|name| (workload.sleeper(name), name));
    let rows = pids.map(|(pid, name)| row(pid, &format!("S    1 {name}")));
    let mine = pids.map(|(pid, _)| pid.to_string()).join(",");
    let tmux = Tmux::top(80, 24, "", &format!("{COLUMNS} --sort comm --where 'pid in ({mine})'"));
    tmux.until_rows(&rows);
    let screen = tmux.screen();
    for text in
        ["Up ", "load ", "Tasks ", "CPU % ", "Memory ", "Ended", "Rows 3, view own, where pid in"]
    {
        assert!(screen.contains(text), "{text}:\n{screen}");
    }
    assert!(screen.lines().last().unwrap().starts_with("q quit"), "{screen}");
    tmux.keys(&["R"]);
    let mut turned = rows.clone();
    turned.reverse();
    tmux.until_rows(&turned);
    // The column before the command has the same value everywhere, and ids decide. The key > goes
    // back.
    tmux.keys(&["<"]);
    tmux.keys(&[">"]);
    tmux.until_rows(&rows);
    tmux.keys(&["F4"]);
    tmux.keys(&[" and comm ~ \"eta", "Enter"]);
    tmux.until_has("^");
    tmux.keys(&["\"", "Enter"]);
    tmux.until_rows(&rows[1..2]);
    tmux.keys(&["f"]);
    tmux.until_has("Columns (type to find");
    tmux.keys(&["start_ticks"]);
    tmux.until_has("[ ] start_ticks");
    tmux.keys(&["Space", "Enter"]);
    tmux.until_has("TICKS COMMAND");
    tmux.keys(&["Escape"]);
    tmux.until("all rows", |s| s.contains("Rows ") && !s.contains("where"));
    tmux.keys(&["?"]);
    tmux.until_has("Keys (Esc closes)");
}

#[test]
fn a_click_on_a_header_sorts() {
    let mut workload = Workload::new();
    let pids = ["gamma", "alpha", "beta"].map(|name| (name, workload.sleeper(name)));
    let mine = pids.map(|(_, pid)| pid.to_string()).join(",");
    let line = |i: usize| row(pids[i].1, &format!("S    1 {}", pids[i].0));
    let tmux = Tmux::top(80, 24, "", &format!("{COLUMNS} --sort -comm --where 'pid in ({mine})'"));
    tmux.until_rows(&[line(0), line(2), line(1)]);
    let screen = tmux.screen();
    let (y, header) = screen.lines().enumerate().find(|(_, l)| l.contains("COMMAND")).unwrap();
    let x = header.find("COMMAND").unwrap();
    // The bytes that a terminal sends for a press and a release of the left button; cells count
    // from 1.
    let click = format!("\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m", x = x + 2, y = y + 1);
    tmux.keys(&["-l", &click]);
    tmux.until_rows(&[line(1), line(2), line(0)]);
    tmux.keys(&["-l", &click]);
    tmux.until_rows(&[line(0), line(2), line(1)]);
}

#[test]
fn children_are_below_their_parents() {
    let mut workload = Workload::new();
    let link = workload.dir.path().join("delta");
    symlink("/bin/sleep", &link).unwrap();
    let shell = format!("{} 3000; exit", link.display());
    let parent = workload.start(Command::new("/bin/sh").args(["-c", &shell]));
    let mut patience = Patience::new(LIMIT);
    let children = format!("/proc/{parent}/task/{parent}/children");
    let child = loop {
        let text = std::fs::read_to_string(&children).unwrap();
        if let Ok(pid) = text.trim().parse::<u32>() {
            break pid;
        }
        assert!(!patience.is_over(), "the shell starts no child");
        std::thread::sleep(Duration::from_millis(5));
    };
    let condition = format!("--where 'pid == {parent} or pid == {child}' --sort pid");
    let tmux = Tmux::top(80, 24, "", &format!("{COLUMNS} {condition}"));
    tmux.until_rows(&[row(parent, "S    1 sh"), row(child, "S    1 delta")]);
    tmux.keys(&["t"]);
    tmux.until_rows(&[row(parent, "S    1 sh"), row(child, "S    1  \\_ delta")]);
}

#[test]
fn the_screen_follows_its_size() {
    let mut workload = Workload::new();
    let pid = workload.sleeper("epsilon");
    let tmux = Tmux::top(300, 50, "", &format!("--where 'pid == {pid}'"));
    tmux.until_has("epsilon 3000");
    for (width, height) in [(200u32, 50u32), (80, 24), (60, 12)] {
        let (x, y) = (width.to_string(), height.to_string());
        tmux.call(&["resize-window", "-x", &x, "-y", &y]);
        let fits = |s: &str| {
            let last = s.lines().last().unwrap_or_default();
            s.lines().count() == height as usize
                && last.starts_with("q quit")
                && s.contains(&pid.to_string())
        };
        let screen = tmux.until(&format!("{width}x{height}"), fits);
        assert!(screen.lines().all(|l| l.chars().count() <= width as usize), "{screen}");
    }
    tmux.call(&["resize-window", "-x", "30", "-y", "8"]);
    tmux.until_has("The terminal is too small.");
}

#[test]
fn a_signal_is_sent_after_a_question() {
    let mut workload = Workload::new();
    let pid = workload.sleeper("zeta");
    let tmux = Tmux::top(80, 24, "", &format!("-d 2s {COLUMNS} --where 'pid == {pid}'"));
    tmux.until_rows(&[row(pid, "S    1 zeta")]);
    let question = format!("Send SIGTERM to process {pid} (zeta)?");
    tmux.keys(&["k", "Enter"]);
    tmux.until_has(&question);
    tmux.keys(&["n"]);
    tmux.until_has("Nothing was done.");
    assert!(workload.children[0].try_wait().unwrap().is_none());
    tmux.keys(&["k"]);
    tmux.until_has("SIGSTOP");
    tmux.keys(&["Enter"]);
    tmux.until_has(&question);
    tmux.keys(&["y"]);
    tmux.until_has("SIGTERM was sent");
    assert_eq!(workload.children[0].wait().unwrap().signal(), Some(libc::SIGTERM));
    tmux.until("its end", |s| table(s).is_empty() && s.contains("Rows 0"));
}

#[test]
fn ended_tasks_are_named() {
    let mut workload = Workload::new();
    let null = std::fs::File::create("/dev/null").unwrap();
    let pid = workload.start(Command::new("yes").stdout(null));
    // The process uses some CPU time first, because tasks that used most come first.
    let mut patience = Patience::new(LIMIT);
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let field = |n: usize| stat.split(' ').nth(n).unwrap().parse::<u64>().unwrap();
        field(13) + field(14)
    };
    while ticks() < 50 {
        assert!(!patience.is_over(), "it gets no CPU");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The ended task is named in two answers, so that a busy machine has ten seconds to show one of
    // them.
    let tmux = Tmux::top(1000, 12, "", &format!("-d 5s --where 'pid == {pid}'"));
    tmux.until("its row", |s| table(s).iter().any(|row| row.contains(" yes")));
    workload.children[0].kill().unwrap();
    workload.children[0].wait().unwrap();
    tmux.until_has(&format!(" yes {pid} "));
}

#[test]
fn a_nice_value_is_set() {
    let mut workload = Workload::new();
    let pid = workload.sleeper("eta");
    let tmux = Tmux::top(80, 24, "", &format!("-o pid:9,ni,comm --where 'pid == {pid}'"));
    // SAFETY: a plain system call about a process of our own.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, pid) };
    tmux.until_rows(&[row(pid, &format!("{now:>3} eta"))]);
    tmux.keys(&["n"]);
    tmux.until_has("Nice value of process");
    tmux.keys(&["99", "Enter"]);
    tmux.until_has("a nice value is a number from -20 to 19");
    tmux.keys(&["BSpace", "BSpace", "19", "Enter"]);
    tmux.until_rows(&[row(pid, " 19 eta")]);
}

#[test]
fn enter_shows_all_values_of_the_task_at_the_cursor() {
    let mut workload = Workload::new();
    let pid = workload.sleeper("theta");
    let tmux = Tmux::top(100, 40, "", &format!("--where 'pid == {pid}'"));
    tmux.until_has("theta 3000");
    tmux.keys(&["Enter"]);
    tmux.until_has(&format!("process {pid} (theta)"));
    tmux.until("the values", |s| s.contains("rss_anon") || s.contains("Process id"));
    for (key, text) in [
        ("2", "SIZE/OFF NAME"),
        ("3", "[stack]"),
        ("4", &*format!("thread {pid} (theta), state S")),
        ("5", "rlimit_nofile"),
        ("6", "PATH="),
    ] {
        tmux.keys(&[key]);
        tmux.until_has(text);
    }
    tmux.keys(&["q"]);
    tmux.until_has("view cpu");
}

#[test]
fn top_has_no_colour_with_no_color() {
    let mut workload = Workload::new();
    let link = workload.dir.path().join("busy");
    symlink("/usr/bin/yes", &link).unwrap();
    let null = std::fs::File::create("/dev/null").unwrap();
    let pid = workload.start(Command::new(link).stdout(null));
    let args = format!("{COLUMNS} --where 'pid == {pid}'");
    let colour = regex::Regex::new("\x1b\\[([0-9;]*;)?(3[0-7]|38;5;[0-9]+)m").unwrap();
    let coloured = |s: &str| colour.is_match(s);
    for (env, is_coloured) in [("", true), ("NO_COLOR=1", false)] {
        let tmux = Tmux::top(80, 24, env, &args);
        tmux.until("a running task", |s| table(s) == [row(pid, "R    1 busy")]);
        let seen = tmux.until("colour", |_| {
            coloured(&tmux.call(&["capture-pane", "-e", "-p"])) == is_coloured
        });
        assert!(seen.contains("busy"));
    }
    let out = on_terminal(
        &format!("{} top; echo code $?", env!("CARGO_BIN_EXE_taskdiag")),
        &[("TERM", "dumb")],
    );
    assert!(out.contains("--once") && out.contains("code 2"), "{out}");
}

#[test]
fn the_terminal_is_given_back() {
    let restored = |tmux: &Tmux, code: &str| {
        let screen = tmux.until_has(code);
        assert!(screen.starts_with("before\n"), "{screen}");
        let modes = tmux.call(&[
            "display-message",
            "-p",
            "#{alternate_on} #{mouse_any_flag} #{cursor_flag}",
        ]);
        assert_eq!(modes.trim(), "0 0 1");
        // The line discipline echoes and waits for whole lines again: cat repeats its input.
        tmux.keys(&["echoed", "Enter"]);
        tmux.until("echo", |s| s.matches("echoed").count() == 2);
    };
    for key in ["q", "C-c"] {
        let tmux = Tmux::top(80, 24, "", "");
        tmux.until_has("view cpu");
        tmux.keys(&[key]);
        restored(&tmux, "code 0");
    }
    let program = env!("CARGO_BIN_EXE_taskdiag");
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let file = file.to_str().unwrap();
        let shell = format!(
            "echo before; sh -c 'echo $$ > {file}; exec {program} top'; echo code $?; exec cat"
        );
        let tmux = Tmux::new(80, 24, &shell);
        tmux.until_has("view cpu");
        let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        // SAFETY: a signal to the program that was started here.
        unsafe { libc::kill(pid, signal) };
        restored(&tmux, "code 0");
    }
}

#[test]
fn top_can_be_stopped_and_continued() {
    let tmux = Tmux::new(80, 24, "env PS1='$ ' bash --norc -i");
    tmux.until_has("$");
    let program = env!("CARGO_BIN_EXE_taskdiag");
    tmux.keys(&[&format!("{program} top"), "Enter"]);
    tmux.until_has("view cpu");
    tmux.keys(&["C-z"]);
    let screen = tmux.until_has("Stopped");
    assert!(!screen.contains("view cpu"), "{screen}");
    tmux.keys(&["echo st''ill here", "Enter"]);
    tmux.until_has("still here");
    tmux.keys(&["fg", "Enter"]);
    tmux.until_has("view cpu");
    // A stop from outside, which cannot be caught. The shell puts the terminal into its own mode.
    let shell = tmux.call(&["display-message", "-p", "#{pane_pid}"]);
    let children = format!("/proc/{0}/task/{0}/children", shell.trim());
    let top: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let tty = tmux.call(&["display-message", "-p", "#{pane_tty}"]);
    let is_raw = || {
        let modes = Command::new("stty").args(["-a", "-F", tty.trim()]).output().unwrap();
        let modes = String::from_utf8(modes.stdout).unwrap();
        modes.contains("-icanon") && modes.contains("-echo ")
    };
    assert!(is_raw());
    // SAFETY: a signal to the program that was started here.
    unsafe { libc::kill(top, libc::SIGSTOP) };
    // A shell that edits lines uses raw mode, too, so the test waits for its last word.
    tmux.until("the shell", |s| s.trim_end().ends_with('$'));
    tmux.keys(&["stty sane; fg", "Enter"]);
    tmux.until("raw mode", |_| is_raw());
    tmux.keys(&["?"]);
    tmux.until_has("Keys (Esc closes)");
    tmux.keys(&["q"]);
    tmux.until_has("view cpu");
    tmux.keys(&["q"]);
    tmux.until_has("still here");
}

/// The shell that starts top here does not wait for stopped children, so nothing would continue
/// top.
#[test]
fn top_ignores_a_stop_without_a_shell_to_continue_it() {
    let tmux = Tmux::top(80, 24, "", "");
    tmux.until_has("view cpu");
    tmux.keys(&["C-z"]);
    tmux.keys(&["?"]);
    tmux.until_has("Keys (Esc closes)");
    tmux.keys(&["q"]);
    tmux.keys(&["q"]);
    tmux.until_has("code 0");
}

#[test]
fn top_once_prints_text_and_json() {
    let mut workload = Workload::new();
    let pids = ["iota", "kappa"].map(|name| workload.sleeper(name));
    let condition = format!("pid in ({}, {})", pids[0], pids[1]);
    let top = |args: &[&str]| {
        let all = [&["top", "--once", "-d", "200ms", "--where", &condition], args].concat();
        parts(&run(&all))
    };
    let (code, out, err) = top(&["--json", "--sort", "comm", "-o", "pid,comm,cpu_now,still,args"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.iter().map(|r| r["pid"].as_u64().unwrap() as u32).collect::<Vec<_>>(), pids);
    for row in rows {
        assert_eq!(row["cpu_now"].as_f64(), Some(0.0), "{row}");
        assert!(row["still"].as_f64().unwrap() >= 0.2, "{row}");
        assert_eq!(row["args"][1], "3000");
    }
    let (code, out, _) = top(&["-n", "1", "--sort", "-comm", "-o", "pid,comm"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("Up "), "{out}");
    assert!(out.contains("kappa") && !out.contains("iota"), "{out}");
    let (code, out, _) = top(&["--by", "ppid", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, rows.as_array().unwrap().len()), (0, 1), "{out}");
    assert_eq!((rows[0]["procs"].as_u64(), rows[0]["nlwp"].as_u64()), (Some(2), Some(2)), "{out}");
    assert_eq!(rows[0]["ppid"].as_u64(), Some(u64::from(std::process::id())));
    let (code, _, _) = top(&["--where", "comm == nosuch"]);
    assert_eq!(code, 1);
}

#[test]
fn a_busy_process_is_shown() {
    let mut workload = Workload::new();
    let null = std::fs::File::create("/dev/null").unwrap();
    let pid = workload.start(Command::new("yes").stdout(null));
    let condition = format!("pid == {pid} and cpu_now > 0.5");
    let args = [
        "top",
        "--once",
        "-d",
        "2s",
        "--json",
        "-o",
        "cpu_now,user_now,sys_now",
        "--where",
        &condition,
    ];
    // On a busy machine it may get too little of a processor in these two seconds.
    let mut patience = Patience::new(LIMIT);
    let (out, rows) = loop {
        let (code, out, err) = parts(&run(&args));
        let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
        if (code, rows.as_array().unwrap().len()) == (0, 1) {
            break (out, rows);
        }
        assert!(!patience.is_over(), "{code}: {out}\n{err}");
    };
    let share = |key: &str| rows[0][key].as_f64().unwrap();
    assert!(share("cpu_now") < 101.0, "{out}");
    assert!((share("cpu_now") - share("user_now") - share("sys_now")).abs() < 0.01, "{out}");
}

/// The output of top after each delay, and its exit code.
fn batch(args: &[&str]) -> (i32, String) {
    let (code, out, _) = parts(&run(&[&["top", "-b", "-d", "0.2"], args].concat()));
    (code, out)
}

#[test]
fn batch_mode_prints_as_often_as_it_should() {
    let mut workload = Workload::new();
    let pids = ["lambda", "mu"].map(|name| workload.sleeper(name));
    let list = format!("{},{}", pids[0], pids[1]);
    let (code, out) = batch(&["-n", "3", "-p", &list, "-o", "pid,comm", "-w", "40"]);
    assert_eq!(
        (code, out.matches("\nCPU % ").count(), out.matches("lambda").count()),
        (0, 3, 3),
        "{out}"
    );
    assert!(out.lines().all(|l| l.chars().count() <= 40 || !l.contains("lambda")), "{out}");
    // Idle tasks are left out; as nothing is left, the answer is empty.
    let (code, out) = batch(&["-n", "1", "-i", "-p", &list]);
    assert_eq!((code, out.contains("lambda")), (1, false), "{out}");
    // A single name is the order.
    let (code, out) = batch(&["-n", "1", "-o", "-PID", "-p", &list]);
    let places = ["lambda", "mu 3000"].map(|name| out.find(name).expect(name));
    assert_eq!((code, places[0] < places[1]), (0, pids[0] < pids[1]), "{out}");
    let (code, _) = batch(&["-n", "1", "-p", "4194304"]);
    assert_eq!(code, 1);
}

#[test]
fn choices_are_kept_in_the_home_of_the_user() {
    let mut workload = Workload::new();
    let pid = workload.sleeper("nu");
    let home = tempfile::tempdir().unwrap();
    let env = format!("XDG_CONFIG_HOME= HOME={}", home.path().display());
    let where_ = format!("--where 'pid == {pid}'");
    let file = home.path().join(".config/taskdiag/top.toml");
    let tmux = Tmux::top(80, 24, &env, &format!("{where_} {COLUMNS} --sort -rss"));
    tmux.until_rows(&[row(pid, "S    1 nu")]);
    tmux.keys(&["W"]);
    tmux.until_has("are kept in");
    tmux.keys(&["q"]);
    tmux.until_has("code 0");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("columns = \"pid:9,s,nlwp,comm\"") && text.contains("sort = \"-rss\""),
        "{text}"
    );
    Tmux::top(80, 24, &env, &where_).until_rows(&[row(pid, "S    1 nu")]);
    // Printed output does not depend on the saved settings, and a message names a wrong line.
    let o = Command::new(env!("CARGO_BIN_EXE_taskdiag"))
        .args(["top", "--once", "-d", "100ms", "-p", &pid.to_string()])
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&o.stdout).contains("%CPU"), "{o:?}");
    std::fs::write(&file, "colour = \"red\"\n").unwrap();
    Tmux::top(120, 24, &env, &where_).until_has("line 1: there is no setting 'colour'");
    // Settings are not saved in the home of another user. SAFETY: a plain system call.
    if unsafe { libc::geteuid() } == 0 {
        std::fs::remove_dir_all(home.path().join(".config")).unwrap();
        std::os::unix::fs::chown(home.path(), Some(4242), Some(4242)).unwrap();
        let tmux = Tmux::top(120, 24, &env, &where_);
        tmux.until_has("view cpu");
        tmux.keys(&["W"]);
        tmux.until_has("belongs to uid 4242");
        assert!(!home.path().join(".config").exists());
    }
}

/// A pid namespace has its own time since its start and its own threads.
#[test]
fn top_shows_the_age_and_threads_of_its_own_pid_namespace() {
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let script = format!("hostname inner; {program} top -b -n 1 -d 0.2 -w");
    let o = Command::new("unshare")
        .args(["-Upfru", "--kill-child", "--mount-proc", "sh", "-c", &script])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    if err.contains("unshare") && o.stdout.is_empty() {
        panic!("this test needs user namespaces: {err}");
    }
    let first = out.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("Up 00:00 (machine ") && first.contains(" on inner,"),
        "{out}\n{err}"
    );
    assert!(first.contains("(whole machine)"), "{first}");
    let tasks = out.lines().find(|l| l.starts_with("Tasks ")).expect("a line");
    let threads = tasks.split("; ").find_map(|p| p.strip_suffix(" threads")).expect("a number");
    assert!(threads.parse::<u32>().is_ok_and(|n| (2..20).contains(&n)), "{tasks}");
}

#[test]
fn help_of_top_shows_that_there_is_more_of_it() {
    let tmux = Tmux::top(80, 24, "", "");
    tmux.until_has("view cpu");
    tmux.keys(&["?"]);
    let screen = tmux.until_has("more below");
    assert!(!screen.contains("more above"), "{screen}");
    tmux.keys(&["PageDown"]);
    tmux.until_has("more above");
    tmux.keys(&["End"]);
    tmux.until("the end", |s| s.contains("slowed") && !s.contains("more below"));
}

#[cfg(feature = "record")]
#[test]
fn a_recording_is_stepped_through() {
    let replayed = super::record::Replayed::new();
    let args = format!("--replay {} --at 12:00:10 -o pid,cpu_now,comm", replayed.path().display());
    let tmux = Tmux::top(130, 30, "TZ=UTC", &args);
    let screen = tmux.until_has("2026-01-01 12:00:10, frame 2 of 5");
    assert!(screen.contains("1010") && screen.contains("Ended worker 1000"), "{screen}");
    assert!(screen.contains("CPU % 50.0 of one CPU"), "{screen}");
    for (key, want) in [
        ("]", "12:00:20, frame 3 of 5"),
        ("]", "12:00:30, frame 4 of 5"),
        ("]", "12:10:00, frame 5 of 5, the first after 9 min without any"),
        ("]", "This is the last frame."),
        ("[", "12:00:30, frame 4 of 5"),
        ("{", "12:00:00, frame 1 of 5"),
        ("[", "This is the first frame."),
        ("}", "12:10:00, frame 5 of 5"),
        ("k", "This key does nothing in a recording"),
    ] {
        tmux.keys(&[key]);
        tmux.until_has(want);
    }
    // A time that the recording does not have stays in the input line.
    tmux.keys(&["g"]);
    tmux.until_has("Go to: 03:10");
    tmux.keys(&["-l", "11:00"]);
    tmux.keys(&["Enter"]);
    tmux.until_has("the recording begins at 2026-01-01 12:00:00");
    tmux.keys(&["BSpace", "BSpace", "BSpace", "BSpace", "BSpace"]);
    tmux.keys(&["-l", "12:00:21"]);
    tmux.keys(&["Enter"]);
    tmux.until_has("12:00:20, frame 3 of 5");
    // The replay runs to the end, one frame in each delay.
    tmux.keys(&["Space"]);
    tmux.until_has("This is the last frame.");
    tmux.until_has("frame 5 of 5");
    tmux.keys(&["q"]);
    tmux.until_has("code 0");
}

/// A session keeps files of processes open. If the program around it has used up the descriptors,
/// it keeps fewer.
#[test]
fn top_works_with_few_descriptors() {
    // Without arguments: somebody's may be so long that they are cut, which is another exit code.
    let script = "ulimit -n 64; for i in $(seq 35); do exec {fd}</dev/null; done; exec \"$0\" top --once -d 200ms --engine procfs -o pid,comm,cpu_now";
    let sleepers: Vec<Child> =
        (0..40).map(|_| Command::new("sleep").arg("300").spawn().unwrap()).collect();
    let ran = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_taskdiag")]).output();
    for mut sleeper in sleepers {
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
    let ran = ran.unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}");
    assert!(!stderr.contains("files"), "{stderr}");
}
