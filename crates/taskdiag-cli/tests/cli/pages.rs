//! The commands that the documents show are commands that this program has.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// Commands that run for ever, need the library for procps, or change the machine. `--watch` also
/// runs for ever.
const NOT_RUN: [&str; 6] = ["run", "dropin", "export", "record", "wait", "man"];
/// Words that stand for something else.
const STAND_FOR: [&str; 6] = ["COMMAND", "WORD", "PID", "FILE", "DIR", "SHELL"];

/// The command lines of a page: in blocks of a shell, indented by four, or in backquotes.
fn commands(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut is_shell = None;
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_shell = match is_shell {
                None => Some(["sh", "console"].contains(&language)),
                Some(_) => None,
            };
        } else if is_shell == Some(true) {
            found.push(line.trim_start_matches("$ ").to_owned());
        } else if is_shell.is_none() {
            found.extend(line.strip_prefix("    ").map(str::to_owned));
            let code = line.split('`').skip(1).step_by(2);
            found.extend(code.map(|c| c.replace("\\|", "|")));
        }
    }
    let begins = |line: String| -> Option<String> {
        let line = line.trim_start_matches("sudo ").to_owned();
        let rest = line.strip_prefix("taskdiag ")?;
        // A dependency of a Cargo.toml is no command.
        (!rest.starts_with("= ")).then_some(line)
    };
    found.into_iter().filter_map(begins).collect()
}

#[test]
fn each_command_of_the_readme_and_of_the_pages_about_commands_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_BIN_EXE_taskdiag")).parent().expect("a directory");
    let path = format!("{}:/usr/bin:/bin", program.display());
    let dir = tempfile::tempdir().expect("a directory");
    let mut seen = HashSet::new();
    for (page, least) in [
        ("README.md", 12),
        ("docs/use/cheatsheet.md", 25),
        ("docs/use/cgroups.md", 6),
        ("docs/use/containers.md", 4),
        ("docs/use/why.md", 4),
    ] {
        let text = std::fs::read_to_string(root.join(page)).expect(page);
        let mut n = 0;
        for line in commands(&text) {
            let word = line.split_whitespace().nth(1).unwrap_or_default();
            let is_for_people = STAND_FOR.iter().any(|stands| line.contains(stands));
            if NOT_RUN.contains(&word) || is_for_people || line.contains("--watch") {
                continue;
            }
            // Without a terminal, top only prints.
            let prints = line.split_whitespace().any(|word| ["-b", "--once"].contains(&word));
            let line = line.split("  #").next().unwrap_or_default();
            let is_screen = word == "top" && !prints;
            let typed = if is_screen { format!("{line} --once") } else { line.to_owned() };
            n += 1;
            if !seen.insert(typed.clone()) {
                continue;
            }
            let out = Command::new("sh")
                .args(["-c", &typed])
                .env("PATH", &path)
                .current_dir(dir.path())
                .stdin(Stdio::null())
                .output()
                .expect("sh");
            // 1: nothing matches; 3: a named subject could not be shown; 5: there is a deadlock.
            let err = String::from_utf8_lossy(&out.stderr);
            assert!(
                out.status.code().is_some_and(|code| [0, 1, 3, 5].contains(&code)),
                "{page}: {typed}: {}: {err}",
                out.status
            );
        }
        assert!(n >= least, "{page} has {n} commands");
    }
}
