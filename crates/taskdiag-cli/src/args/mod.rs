//! Arguments: one clap definition for each command. The parser, `--help`, the man page and the
//! completions are all made from it.

pub mod cgroups;
#[cfg(all(feature = "arrow", feature = "record"))]
pub mod convert;
pub mod dropin;
pub mod dump;
pub mod lists;
pub mod maps;
pub mod memory;
pub mod places;
pub mod pmap;
pub mod procps;
pub mod ps;
#[cfg(feature = "record")]
pub mod record;
pub mod report;
pub mod run;
pub mod table;
#[cfg(feature = "top")]
pub mod top;
pub mod tree;
pub mod version;
pub mod wait;
pub mod why;

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches};
pub use taskdiag_face::options::engine;

use crate::exit::Exit;

/// `--json` of a command that prints one document.
pub fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON document")
}

/// Whether `--json` is given.
pub fn json_flag(m: &ArgMatches) -> Result<bool, Exit> {
    Ok(m.get_flag("json"))
}

/// The names of other tools that are not commands here, and what to use instead.
const TOOLS: &[(&[&str], &str)] = &[
    (
        &["lsof"],
        "'taskdiag files' takes the options of lsof, and 'taskdiag --as lsof' prints what lsof prints",
    ),
    (&["fuser"], "'taskdiag files FILE' says who uses a file"),
    (&["smem"], "'taskdiag memory' shows what smem does"),
    #[cfg(not(feature = "top"))]
    (
        &["top"],
        "it was left out of this build (feature 'top'); 'taskdiag ps --sort -pcpu' shows who used the CPU",
    ),
    #[cfg(not(feature = "record"))]
    (
        &["record"],
        "it was left out of this build (feature 'record'); 'taskdiag dump' saves one answer",
    ),
    (&["atop", "atopsar"], "'taskdiag record' keeps what ran, and --from DIR --at TIME shows it"),
    #[cfg(not(all(feature = "arrow", feature = "record")))]
    (
        &["convert"],
        "it was left out of this build; 'cargo build --release -p taskdiag-cli --features arrow' makes one that has it",
    ),
    #[cfg(not(feature = "export"))]
    (&["export"], "it was left out of this build (feature 'export')"),
    (
        &["htop", "btop", "iotop", "pidstat", "glances"],
        "'taskdiag top' shows who uses CPU, memory and storage",
    ),
    (
        &["pgrep", "pidof"],
        "'taskdiag ps -C NAME -o pid=' prints the ids of processes with this name",
    ),
    (&["ss", "netstat"], "'taskdiag files -nP -i' shows sockets, and who has them open"),
    (
        &["systemd-cgtop", "systemd-cgls", "cgtop", "cgroup"],
        "'taskdiag cgroups -d 1s' shows what each cgroup uses and may use",
    ),
    (
        &["docker", "podman", "crictl", "container", "containers", "pod", "pods"],
        "'taskdiag ps --container NAME' shows the processes of a container, --pod those of a pod, and 'taskdiag memory --by \
         container' adds them up",
    ),
    (
        &["deadlock", "deadlocks", "locks", "lslocks", "pstack", "strace"],
        "'taskdiag why PID' says what a process waits for and who holds it, and 'taskdiag why' finds deadlocks",
    ),
];

/// The command to use if the first word is the name of another tool.
pub fn of_another_tool(word: &str) -> Option<String> {
    let instead = match word {
        "pmap" => {
            "'taskdiag maps' shows mappings, and 'taskdiag --as pmap' prints what pmap prints"
        }
        "pstree" => {
            "'taskdiag tree' takes the options of pstree, and 'taskdiag --as pstree' prints what pstree prints"
        }
        word => TOOLS.iter().find(|(tools, _)| tools.contains(&word))?.1,
    };
    Some(format!("there is no command '{word}': {instead}"))
}

/// Tools that someone may have linked to this program, though it cannot stand in for them.
pub const LINKED: &[&str] = &["fuser", "smem", "pgrep", "pidof"];

/// Why this program does not stand in for a tool, and what does its job.
pub fn no_stand_in(typed: &str, tool: &str, others: &str) -> Exit {
    let of_tool = TOOLS.iter().find(|(tools, _)| tools.contains(&tool));
    let more = of_tool.map_or(String::new(), |(_, instead)| format!("; {instead}"));
    Exit::Usage(format!("{typed}: taskdiag can stand in for {others}{more}"))
}

/// `--as NAME`: the name, and the arguments after it.
pub fn instead_of(argv: &[OsString]) -> Result<Option<(String, &[OsString])>, Exit> {
    let Some(first) = argv.get(1).and_then(|a| a.to_str()) else { return Ok(None) };
    if let Some(name) = first.strip_prefix("--as=") {
        return Ok(Some((name.to_owned(), &argv[2..])));
    }
    match (first, argv.get(2).and_then(|a| a.to_str())) {
        ("--as", Some(name)) => Ok(Some((name.to_owned(), &argv[3..]))),
        ("--as", None) => {
            Err(Exit::Usage(String::from("--as needs the name of a program, such as ps")))
        }
        _ => Ok(None),
    }
}

/// The value of an option as text.
pub fn text(m: &ArgMatches, id: &str) -> Option<String> {
    m.get_one::<String>(id).cloned()
}
