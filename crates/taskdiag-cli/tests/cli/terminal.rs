//! On a terminal: width, colour, NO_COLOR, refusing binary. A pseudo-terminal is made by
//! `script`; without it the tests fail rather than pass on nothing.

use std::process::Command;

use super::common::{Saved, machine};

/// Run a shell command on a terminal of 60 columns and return what the terminal shows.
pub fn on_terminal(command: &str, env: &[(&str, &str)]) -> String {
    let o = Command::new("script")
        .args(["-qec", &format!("stty cols 60 rows 20; {command}"), "/dev/null"])
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env("TERM", "xterm")
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script (util-linux) is installed");
    String::from_utf8_lossy(&o.stdout).replace('\r', "")
}

fn ps(saved: &Saved, args: &str) -> String {
    format!("{} ps --from {} {args}", env!("CARGO_BIN_EXE_taskdiag"), saved.path().display())
}

#[test]
fn lines_end_at_the_edge() {
    let saved = Saved::tasks(&machine());
    let out = on_terminal(&ps(&saved, "--color never -o pid:50,args"), &[]);
    assert_eq!(out.lines().count(), 7, "{out}");
    assert!(out.lines().skip(1).all(|l| l.chars().count() <= 60), "{out}");
    assert!(out.lines().any(|l| l.ends_with(" /bin/init")), "{out}");
    // Columns that do not fit into a line get two, as with procps.
    let out = on_terminal(&ps(&saved, "--color never aux"), &[]);
    assert!(out.lines().any(|l| l.len() > 60), "{out}");
    let out = on_terminal(&ps(&saved, "--color never auxww"), &[]);
    assert!(out.lines().any(|l| l.ends_with("/bin/init -x")), "{out}");
    // Set in the command: a shell between us and it may set the variable itself.
    let out = on_terminal(&format!("COLUMNS=20 {}", ps(&saved, "--color never -o pid,args")), &[]);
    assert!(out.lines().all(|l| l.chars().count() <= 20), "{out}");
}

#[test]
fn colour_follows_the_option_the_environment_and_the_terminal() {
    let saved = Saved::tasks(&machine());
    let has =
        |args: &str, env: &[(&str, &str)]| on_terminal(&ps(&saved, args), env).contains('\x1b');
    assert!(has("", &[]));
    assert!(!has("", &[("NO_COLOR", "1")]));
    assert!(has("", &[("NO_COLOR", "")]));
    assert!(!has("", &[("TERM", "dumb")]));
    assert!(!has("--color never", &[]));
    assert!(has("--color always", &[("NO_COLOR", "1")]));
    // In a pipe, the output has no colours unless they are requested.
    assert!(!saved.ps(&[]).1.contains('\x1b'));
    assert!(saved.ps(&["--color", "always"]).1.contains('\x1b'));
}

#[test]
fn lines_of_a_tree_follow_the_locale() {
    let saved = Saved::tasks(&machine());
    let tree = |env| on_terminal(&ps(&saved, "--tree -o pid,args --color never"), env);
    assert!(tree(&[("LC_ALL", "C.UTF-8")]).contains("├─ "));
    assert!(tree(&[]).contains("\\_ "));
}

#[test]
fn binary_is_not_for_terminals() {
    let out = on_terminal(&format!("{} dump; echo code $?", env!("CARGO_BIN_EXE_taskdiag")), &[]);
    assert!(out.contains("binary") && out.contains("code 2"), "{out}");
    #[cfg(feature = "arrow")]
    for form in ["--arrow", "--parquet -"] {
        let saved = Saved::tasks(&machine());
        let out = on_terminal(&format!("{}; echo code $?", ps(&saved, form)), &[]);
        assert!(out.contains("binary") && out.contains("code 2"), "{out}");
    }
}
