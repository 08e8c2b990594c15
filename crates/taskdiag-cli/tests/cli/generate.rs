//! The man page, the completions and the page of columns hold all that the program knows.

use super::common::{parts, run};

#[test]
fn the_man_page_is_complete() {
    let (code, man, _) = parts(&run(&["generate", "man"]));
    assert_eq!(code, 0);
    let man = man.replace("\\-", "-");
    let (_, help, _) = parts(&run(&["ps", "--help"]));
    let options = help.split_whitespace().filter_map(|w| w.strip_prefix("--"));
    let mut seen = 0;
    for option in options.map(|o| o.trim_end_matches("...")) {
        assert!(man.contains(&format!("--{option}")), "--{option}");
        seen += 1;
    }
    assert!(seen > 20, "only {seen} options");
    let (_, fields, _) = parts(&run(&["fields"]));
    for name in fields.lines().skip(1).take_while(|l| !l.is_empty()) {
        let name = name.split(' ').next().unwrap();
        assert!(man.contains(&format!("\\fB{name}\\fR")), "{name}");
    }
    assert!(man.contains(".SH EXIT STATUS"));
}

/// The names of the commands, and the long options of each.
fn commands() -> Vec<(String, Vec<String>)> {
    let (_, help, _) = parts(&run(&["--help"]));
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let lines = list.expect("there is a list of commands").lines();
    // A line that continues the one above begins with more blanks.
    let names =
        lines.filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|n| !n.is_empty()));
    let options = |name: &str| {
        let (_, help, _) = parts(&run(&[name, "--help"]));
        let options = help.lines().filter_map(|l| {
            l.trim_start().split_once("--").filter(|(before, _)| before.len() <= 4)
        });
        options
            .map(|(_, l)| {
                l.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap().to_owned()
            })
            .collect()
    };
    names.filter(|n| *n != "help").map(|n| (n.to_owned(), options(n))).collect()
}

#[test]
fn every_command_and_option_is_in_the_man_page_and_the_completions() {
    let commands = commands();
    for name in ["ps", "files", "report", "dump", "dropin"] {
        assert!(commands.iter().any(|(n, options)| n == name && !options.is_empty()), "{name}");
    }
    let (_, man, _) = parts(&run(&["generate", "man"]));
    let man = man.replace("\\-", "-");
    for (name, options) in &commands {
        let heading = format!(".SH TASKDIAG {}\n", name.to_uppercase());
        let section = man.split(&heading).nth(1).unwrap_or_else(|| panic!("man: {name}"));
        let section = section.split("\n.SH ").next().unwrap();
        for option in options {
            assert!(section.contains(&format!("--{option}")), "man: {name} --{option}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = parts(&run(&["generate", shell]));
        assert_eq!(code, 0);
        for (name, options) in &commands {
            assert!(out.contains(name.as_str()), "{shell}: {name}");
            for option in options {
                assert!(out.contains(option.as_str()), "{shell}: {name} --{option}");
            }
        }
    }
}

#[test]
fn the_page_of_columns_matches_the_field_table() {
    let (code, page, _) = parts(&run(&["generate", "columns"]));
    assert_eq!(code, 0);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/columns.md");
    let kept = std::fs::read_to_string(path).expect("docs/reference/columns.md");
    let differs = page.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(
        page == kept,
        "docs/reference/columns.md differs from the field table, run `make docs` and commit it; the first difference: {differs:?}"
    );
    // A row of each set of columns, so that an empty table cannot pass.
    for name in ["ppid", "inode", "procs", "peer_inode"] {
        assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
    }
}

#[test]
fn each_command_has_a_page_of_its_own() {
    let (_, names, _) = parts(&run(&["generate", "commands"]));
    assert!(names.lines().count() > 12, "{names}");
    for name in names.lines() {
        let (code, page, err) = parts(&run(&["man", name]));
        assert_eq!(code, 0, "{name}: {err}");
        let title = format!(".TH taskdiag-{name} 1");
        assert!(page.replace("\\-", "-").contains(&title), "{name}: {page}");
        assert!(page.contains(concat!("\"taskdiag ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
        assert!(page.contains(".SH OPTIONS") && page.contains(".SH NOTES"), "{name}: {page}");
    }
    let (code, _, err) = parts(&run(&["man", "filse"]));
    assert!(code == 2 && err.contains("did you mean 'files'"), "{err}");
}

/// Runs bash with the completion script, as if this line had been typed up to here, and returns the
/// suggestions.
fn offered(line: &[&str]) -> String {
    let typed = line.join(" ");
    let script = format!(
        ". <({} completions bash); COMP_WORDS=({typed}); COMP_CWORD={}; _taskdiag_with_values taskdiag \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_taskdiag"),
        line.len() - 1
    );
    let out = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn scripts_of_fish_and_zsh_know_programs_pages_and_names_of_commands() {
    let script = |shell| parts(&run(&["completions", shell])).1;
    let fish = script("fish");
    for (command, values) in [
        ("run", "(__fish_complete_command)"),
        ("man", "files maps memory cgroups why"),
        ("ps", "(taskdiag ps -eo comm= "),
        ("files", "(taskdiag ps -eo comm= "),
        ("why", "(__fish_complete_pids)"),
    ] {
        let mut lines = fish.lines().filter(|l| l.contains(&format!("_from {command}\"")));
        assert!(lines.any(|l| l.contains(values)), "{command}: {values}");
    }
    let units = fish.lines().find(|l| l.contains("-l unit -x ")).expect("units in fish");
    for command in ["ps", "files", "why", "cgroups"] {
        assert!(units.split([' ', '"']).any(|word| word == command), "{command}: {units}");
    }
    assert!(units.contains("ps -eo unit="), "{units}");
    let zsh = script("zsh");
    let what = zsh.lines().find(|l| l.starts_with("'::what -- Print the page")).expect("man");
    assert!(
        what.contains("(ps tree ") && what.contains(" files maps memory cgroups why "),
        "{what}"
    );
    let program = zsh.lines().find(|l| l.contains("::command -- Run this program")).expect("run");
    assert!(program.contains("_cmdambivalent"), "{program}");
}

#[test]
fn values_are_completed_in_bash() {
    for (line, want) in [
        (&["taskdiag", "ps", "-o", "pid,rss_"][..], "pid,rss_anon pid,rss_file pid,rss_shmem"),
        (&["taskdiag", "files", "--sort", "size_"], "size_off"),
        (&["taskdiag", "ps", "--engine", "b"], "bpf"),
        (&["taskdiag", "ps", "-u", "roo"], "root"),
        (&["taskdiag", "ps", "--ruser", "roo"], "root"),
        (&["taskdiag", "ps", "-O", "rss_an"], "rss_anon"),
        (&["taskdiag", "memory", "--un"], "--unit --units"),
        (&["taskdiag", "files", "--sort", "-size_"], "-size_off"),
        (&["taskdiag", "ps", "--sort", "user,-rss_s"], "user,-rss_shmem"),
        (&["taskdiag", "man", "file"], "files"),
        (&["taskdiag", "run", "sleep"], "sleep"),
    ] {
        assert_eq!(offered(line).trim(), want, "{line:?}");
    }
    // Values of processes. Users choose some of them.
    let dir = tempfile::tempdir().expect("a directory");
    let evil = dir.path().join("sl$(false)");
    std::os::unix::fs::symlink("/bin/sleep", &evil).expect("made");
    let mut children = [evil.as_path(), std::path::Path::new("sleep")]
        .map(|program| std::process::Command::new(program).arg("100").spawn().expect("it starts"));
    let taskdiag = env!("CARGO_BIN_EXE_taskdiag");
    for line in [
        &[taskdiag, "ps", "-C", "sle"][..],
        &[taskdiag, "files", "-c", "sle"],
        &[taskdiag, "ps", "--where", "comm", "==", "sle"],
    ] {
        assert_eq!(offered(line).trim(), "sleep", "{line:?}");
    }
    let all = offered(&[taskdiag, "ps", "-C", "\"\""]);
    assert!(all.contains("sleep") && !all.contains(['$', '(']), "{all}");
    for child in &mut children {
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
    for command in ["why", "maps", "tree", "wait"] {
        let own = std::process::id().to_string();
        let pids = offered(&["taskdiag", command, &own]);
        assert!(pids.split_whitespace().any(|p| p == own), "{command}: {pids}");
    }
    let pids = offered(&["taskdiag", "maps", "-p", "\"\""]);
    assert!(pids.split_whitespace().any(|p| p == "1"), "{pids}");
}

#[test]
fn the_version_names_commit_features_and_engines() {
    let (_, long, _) = parts(&run(&["--version"]));
    for line in
        ["taskdiag ", "commit: ", "features:", "engines: kernel bpf service procfs", "system: "]
    {
        assert!(long.lines().any(|l| l.starts_with(line)), "{line}: {long}");
    }
    assert_eq!(parts(&run(&["-V"])).1.lines().count(), 1);
}

#[cfg(feature = "export")]
#[test]
fn the_manifest_for_kubernetes_has_options_that_exist() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/kubernetes/taskdiag.yaml");
    let text = std::fs::read_to_string(path).expect("the manifest");
    let line = text.lines().find_map(|l| l.trim().strip_prefix("args: [")).expect("arguments");
    let words = line.trim_end_matches(']').split(", ").map(|w| w.trim_matches('"'));
    // It ends after one answer instead of listening.
    let args: Vec<&str> = words.filter(|w| !["--listen", ":9256"].contains(w)).collect();
    assert_eq!(args.len() + 2, line.split(", ").count(), "{line}");
    let (code, out, err) = parts(&run(&[&args[..], &["--once"]].concat()));
    assert!(code == 0 && out.contains("taskdiag_container_processes"), "{code}: {err}");
    for path in ["/-/healthy", "/-/ready"] {
        assert!(text.contains(&format!("path: {path},")), "{path}");
    }
}
