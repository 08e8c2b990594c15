//! Completion scripts of shells, made from the option tables. In addition to options, they know
//! columns, engines, users and process ids, and in bash and fish the names of commands. In bash,
//! `--where container==` is completed, too.

use std::collections::BTreeMap;
use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::shells;
use taskdiag::EngineId;
use taskdiag::field::{CGROUPS, FILES, MAPS, MEMORY, SETS, Set, TASKS, TOP};

/// The script for a shell, or `None` if there is none.
pub fn script(shell: &str, command: Command) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut command = with_values(command);
    match shell {
        "bash" => {
            clap_complete::generate(shells::Bash, &mut command, "taskdiag", &mut out);
            more_for_bash(&command, &mut out).ok()?;
        }
        "zsh" => {
            clap_complete::generate(shells::Zsh, &mut command, "taskdiag", &mut out);
            out = of_zsh(&String::from_utf8_lossy(&out)).into_bytes();
        }
        "fish" => {
            clap_complete::generate(shells::Fish, &mut command, "taskdiag", &mut out);
            more_for_fish(&command, &mut out);
        }
        _ => return None,
    }
    Some(out)
}

/// The columns that a command knows.
fn set_of(command: &str) -> &'static Set {
    match command {
        "files" => &FILES,
        "maps" => &MAPS,
        "memory" => &MEMORY,
        "top" => &TOP,
        "cgroups" => &CGROUPS,
        _ => &TASKS,
    }
}

fn names(set: &Set) -> Vec<&'static str> {
    let mut names: Vec<&str> = set.all_names().map(|n| n.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn engines() -> Vec<&'static str> {
    std::iter::once("auto").chain(EngineId::ALL.map(EngineId::name)).collect()
}

/// Is the value of this option columns?
fn takes_columns(arg: &Arg) -> bool {
    let name = arg.get_value_names().and_then(|names| names.first());
    name.is_some_and(|name| ["COLUMNS", "KEYS", "COLUMN"].contains(&name.as_str()))
}

/// The spellings of options as a pattern of bash. A spelling counts if `is` holds for it in most of
/// the commands that have it.
fn spellings(command: &Command, is: impl Fn(&Arg) -> bool) -> String {
    let mut commands: BTreeMap<String, i32> = BTreeMap::new();
    let all = command.get_subcommands().flat_map(Command::get_arguments);
    for arg in all.filter(|arg| arg.get_action().takes_values()) {
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        for word in short.into_iter().chain(arg.get_long().map(|name| format!("--{name}"))) {
            *commands.entry(word).or_default() += if is(arg) { 1 } else { -1 };
        }
    }
    let most = commands.into_iter().filter(|(_, more)| *more > 0);
    most.map(|(word, _)| word).collect::<Vec<_>>().join("|")
}

/// The commands that have a manual page.
fn pages(command: &Command) -> String {
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    shown.map(Command::get_name).collect::<Vec<_>>().join(" ")
}

/// The command with the values of engines and columns, which only the scripts need: they are too
/// many for `--help`.
fn with_values(command: Command) -> Command {
    // clap wants names that live as long as the program, which ends after the script.
    let name = |c: &Command| -> &'static str { c.get_name().to_owned().leak() };
    let subs: Vec<&str> = command.get_subcommands().map(name).collect();
    let pages = command.get_subcommands().filter(|c| !c.is_hide_set());
    let all: Vec<&str> = pages.map(name).collect();
    subs.into_iter().fold(command, |command, name| {
        let pages = all.clone();
        command.mut_subcommand(name, move |sub| {
            let of_sub = names(set_of(name));
            sub.mut_args(|arg: Arg| match arg.get_id().as_str() {
                "what" if name == "man" => {
                    arg.value_parser(PossibleValuesParser::new(pages.iter().copied()))
                }
                "engine" => arg.value_parser(PossibleValuesParser::new(engines())),
                _ if takes_columns(&arg) => {
                    arg.value_parser(PossibleValuesParser::new(of_sub.iter().copied()))
                }
                _ => arg,
            })
        })
    })
}

/// The script of clap cannot complete after a comma, and does not know users and processes.
fn more_for_bash(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    writeln!(out, "\n_taskdiag_list() {{")?;
    writeln!(out, "    local begin= last=\"${{cur##*,}}\"")?;
    writeln!(out, "    [[ $cur == *,* ]] && begin=\"${{cur%,*}},\"")?;
    writeln!(out, "    COMPREPLY=( $(compgen -P \"$begin\" \"$@\" -- \"$last\") )\n}}")?;
    out.extend_from_slice(THERE_IN_BASH.as_bytes());
    writeln!(out, "\n_taskdiag_with_values() {{")?;
    writeln!(
        out,
        "    local cur=\"${{COMP_WORDS[COMP_CWORD]}}\" prev=\"${{COMP_WORDS[COMP_CWORD-1]}}\" columns="
    )?;
    writeln!(out, "    case \"${{COMP_WORDS[1]}}\" in")?;
    for set in SETS.iter().filter(|set| !std::ptr::eq(**set, &TASKS)) {
        writeln!(out, "        {}) columns=\"{}\" ;;", set.name, names(set).join(" "))?;
    }
    writeln!(out, "        *) columns=\"{}\" ;;\n    esac", names(&TASKS).join(" "))?;
    writeln!(out, "    case \"$prev\" in")?;
    writeln!(out, "        --sort) _taskdiag_sort \"$columns\" ;;")?;
    let columns = spellings(command, takes_columns);
    writeln!(out, "        {columns}) _taskdiag_list -W \"$columns\" ;;")?;
    writeln!(out, "        --engine) _taskdiag_list -W \"{}\" ;;", engines().join(" "))?;
    let users = spellings(command, |arg| arg.get_value_hint() == ValueHint::Username);
    writeln!(out, "        {users}) _taskdiag_list -u ;;")?;
    writeln!(out, "        --group|--rgroup|-G) _taskdiag_list -g ;;")?;
    writeln!(
        out,
        "        -p|-q|--pid|--quick-pid|--ppid) _taskdiag_list -W \"$(cd /proc && echo [0-9]*)\" ;;"
    )?;
    writeln!(out, "        -C|-c|--command) _taskdiag_there comm ;;")?;
    for (option, column) in PLACES {
        writeln!(out, "        --{option}) _taskdiag_there {column} ;;")?;
    }
    writeln!(out, "        run) COMPREPLY=( $(compgen -c -- \"$cur\" | sort -u) ) ;;")?;
    writeln!(
        out,
        "        man) COMPREPLY=( $(compgen -W \"{}\" -- \"$cur\") ) ;;",
        pages(command)
    )?;
    writeln!(out, "        =|==) _taskdiag_there \"${{COMP_WORDS[COMP_CWORD-2]}}\" ;;")?;
    writeln!(out, "        *) _taskdiag_other \"$@\" ;;\n    esac\n}}")?;
    writeln!(out, "\ncomplete -F _taskdiag_with_values -o bashdefault -o default taskdiag")
}

/// Completes a key of `--sort`, which may have a sign, and a value that processes have now. Any
/// user can choose the name of a command, and a shell expands the words of `compgen -W`, so values
/// are compared one by one, and only plain ones are offered.
const THERE_IN_BASH: &str = r#"
_taskdiag_sort() {
    local sign= last="${cur##*,}"
    [[ $last == [-+]* ]] && sign="${last:0:1}"
    local begin="${cur%"$last"}$sign"
    COMPREPLY=( $(compgen -P "$begin" -W "$1" -- "${last#[-+]}") )
}

_taskdiag_there() {
    local begin= last="${cur##*,}" value
    [[ $1 =~ ^[a-z_]+$ ]] || return
    [[ $cur == *,* ]] && begin="${cur%,*},"
    [[ $cur == = || $cur == == ]] && last=
    COMPREPLY=()
    while IFS= read -r value; do
        [[ $value =~ ^[A-Za-z0-9][A-Za-z0-9_.:@+-]*$ && $value == "$last"* ]] && COMPREPLY+=( "$begin$value" )
    done < <(timeout 2 "${COMP_WORDS[0]}" ps -eo "$1=" 2>/dev/null | tr -d ' ' | sort -u | head -n 1000)
}

_taskdiag_other() {
    case "${COMP_WORDS[1]}:$cur" in
        why:[1-9]*|maps:[1-9]*|memory:[1-9]*|ps:[1-9]*|tree:[1-9]*|wait:[1-9]*)
            COMPREPLY=( $(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") ) ;;
        *) _taskdiag "$@" ;;
    esac
}
"#;

/// The options that name a place of processes, and the column with such names.
const PLACES: [(&str, &str); 3] =
    [("container", "container_name"), ("pod", "pod_name"), ("unit", "unit")];

/// zsh has a function for process ids.
fn of_zsh(script: &str) -> String {
    let is_pid = |line: &str| {
        ["--pid=[", "--quick-pid=[", "--ppid=["].iter().any(|o| line.contains(o))
            || line.contains("'*-p+[")
    };
    let line = |line: &str| match is_pid(line) {
        true => {
            line.replace(":LIST:_default", ":LIST:_pids").replace(":PID:_default", ":PID:_pids")
        }
        false => line.to_owned(),
    };
    script.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn more_for_fish(all: &Command, out: &mut Vec<u8>) {
    for (command, values) in [("run", "(__fish_complete_command)"), ("man", &pages(all))] {
        let line = format!(
            "complete -c taskdiag -n \"__fish_seen_subcommand_from {command}\" -x -a \"{values}\"\n"
        );
        out.extend_from_slice(line.as_bytes());
    }
    for command in ["why", "maps", "tree", "wait"] {
        let line = format!(
            "complete -c taskdiag -n \"__fish_seen_subcommand_from {command}\" -x -a \"(__fish_complete_pids)\"\n"
        );
        out.extend_from_slice(line.as_bytes());
    }
    for (option, column) in PLACES {
        let has = |c: &&Command| c.get_arguments().any(|a| a.get_id() == option);
        let names = all.get_subcommands().filter(has).map(Command::get_name);
        let line = format!(
            "complete -c taskdiag -n \"__fish_seen_subcommand_from {}\" -l {option} -x -a \"(taskdiag ps -eo {column}= 2>/dev/null | sort -u | string match -v -- - | head -n 1000)\"\n",
            names.collect::<Vec<_>>().join(" ")
        );
        out.extend_from_slice(line.as_bytes());
    }
    for command in ["ps", "files", "maps", "memory"] {
        let line = format!(
            "complete -c taskdiag -n \"__fish_seen_subcommand_from {command}\" -s p -l pid -x -a \"(__fish_complete_pids)\"\n"
        );
        out.extend_from_slice(line.as_bytes());
    }
    for (command, option) in [("ps", "s C"), ("memory", "s C"), ("files", "s c")] {
        let line = format!(
            "complete -c taskdiag -n \"__fish_seen_subcommand_from {command}\" -{option} -l command -x -a \"(taskdiag ps -eo comm= 2>/dev/null | sort -u | head -n 1000)\"\n"
        );
        out.extend_from_slice(line.as_bytes());
    }
}
