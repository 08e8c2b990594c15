// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shell, in a terminal that script(1) makes.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A shell in a terminal.
struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    /// All that was shown, and how much of it was waited for.
    shown: String,
    seen: usize,
}

impl Terminal {
    fn start(state: &Path) -> Terminal {
        let mut child = Command::new("script")
            .args(["-qec", env!("CARGO_BIN_EXE_taskdiag-sql"), "/dev/null"])
            .env("XDG_STATE_HOME", state)
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is script");
        let mut stdout = child.stdout.take().expect("a pipe");
        let (send, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = stdout.read(&mut piece) {
                if send.send(piece[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, output, shown: String::new(), seen: 0 }
    }
    /// Waits until this is shown, after the text that was awaited before.
    fn wait(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(300);
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("{text:?} is not shown: {}", self.shown),
            }
        }
    }
    fn send(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(keys.as_bytes()).expect("it reads");
        stdin.flush().expect("it reads");
    }
    /// Types a line when the shell asks for one.
    fn line(&mut self, prompt: &str, keys: &str) {
        self.wait(prompt);
        self.send(keys);
    }
    fn end(mut self) {
        assert!(self.child.wait().expect("it ends").success(), "{}", self.shown);
    }
}

/// The program in the terminal ends with it.
impl Drop for Terminal {
    fn drop(&mut self) {
        let script = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children"));
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in children.iter().flat_map(|c| c.split_whitespace()) {
            let _ = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn the_shell_runs_statements_completes_names_and_has_commands() {
    let state = tempfile::tempdir().expect("a directory");
    let mut shell = Terminal::start(state.path());
    shell.line("sql> ", "select 6 *\r");
    shell.line("  -> ", "7 as answer;\r");
    shell.wait("answer");
    shell.wait("    42");
    shell.wait("1 row");
    shell.line("sql> ", "select nosuch;\r");
    shell.wait("there is no column 'nosuch'");
    shell.line("sql> ", "select count(*) > 0 as some from proc\t;\r");
    shell.wait("from processes");
    shell.wait("true");
    shell.line("sql> ", ".output json\r");
    shell.line("sql> ", "select 'x' as y;\r");
    shell.wait("{\"y\": \"x\"}");
    shell.line("sql> ", ".nosuch\r");
    shell.wait("there is no such command");
    shell.line("sql> ", ".help\r");
    shell.wait("The tabulator completes names");
    shell.line("sql> ", ".quit\r");
    shell.end();
    let history = state.path().join("taskdiag/sql_history");
    let text = std::fs::read_to_string(&history).expect("it is kept");
    assert!(text.contains("select 'x' as y;"), "{text}");
    assert_eq!(history.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn ctrl_c_ends_a_query_and_not_the_shell() {
    let state = tempfile::tempdir().expect("a directory");
    let long =
        "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b;\r";
    let mut shell = Terminal::start(state.path());
    shell.line("sql> ", "select 1\x03");
    shell.line("sql> ", long);
    // The terminal is as it was before, so that Ctrl-C is a signal.
    shell.wait("\x1b[?2004l");
    shell.send("\x03");
    shell.wait("stopped by Ctrl-C");
    shell.line("sql> ", "select 'still' as here;\r");
    shell.wait("\nstill");
    shell.line("sql> ", "\x04");
    shell.end();
}
