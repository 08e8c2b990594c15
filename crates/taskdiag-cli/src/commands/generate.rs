//! Man page, completions and the page of all columns (`docs/reference/columns.md`), made from the
//! option tables, the field table and the exit codes.

use std::io::{self, IsTerminal as _, Write};

use clap::{Arg, ArgMatches, Command};
use clap_mangen::Man;
use taskdiag::engine::auto;
use taskdiag::field::{SETS, Set};

use super::fields;
use crate::args::{self, procps};
use crate::exit::{self, Exit};
use crate::output::sink;

/// The options.
pub fn command() -> Command {
    Command::new("generate")
        .about("Print the man page, a completion script or the page of all columns")
        .hide(true)
        .arg(
            Arg::new("what")
                .required(true)
                .value_parser(["man", "bash", "zsh", "fish", "columns", "schema", "commands"])
                .help("What to print"),
        )
}

/// What to print.
pub fn from_matches(m: &ArgMatches) -> Result<String, Exit> {
    Ok(args::text(m, "what").unwrap_or_default())
}

/// `taskdiag completions`
pub fn completions() -> Command {
    Command::new("completions")
        .about("Print a completion script for a shell")
        .arg(
            Arg::new("what")
                .required(true)
                .value_name("SHELL")
                .value_parser(["bash", "zsh", "fish"])
                .hide_possible_values(true)
                .help("bash, zsh or fish"),
        )
        .after_help(exit::examples(&[
            ("source <(taskdiag completions bash)", "use it in this shell"),
            ("taskdiag completions zsh > ~/.zfunc/_taskdiag", "install it for a user"),
        ]))
}

/// `taskdiag man`
pub fn man_command() -> Command {
    Command::new("man")
        .about("Print the man page of the program, or of a command")
        .arg(Arg::new("what").value_name("COMMAND").help("Print the page of this command"))
        .after_help(exit::examples(&[
            ("taskdiag man | man -l -", "read the page of the program"),
            ("taskdiag man files | man -l -", "read the page of a command"),
        ]))
}

/// Prints it, made from the whole command line.
pub fn run(what: &str, command: Command) -> Result<(), Exit> {
    let mut out = Vec::new();
    match what {
        "bash" | "zsh" | "fish" => out = super::complete::script(what, command).unwrap_or_default(),
        "commands" => {
            for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
                writeln!(out, "{}", sub.get_name())?;
            }
        }
        "columns" => column_page(&mut out)?,
        "schema" => out = super::schema::schema().into_bytes(),
        _ => man(command, &mut out)?,
    }
    sink::write_all(&out)?;
    Ok(())
}

/// `taskdiag man [COMMAND]`: the page of the program, or of one command.
pub fn page(of: &str, command: Command) -> Result<(), Exit> {
    let mut out = Vec::new();
    match of {
        "" => man(command, &mut out)?,
        name => {
            let known = || command.get_subcommands().filter(|s| !s.is_hide_set());
            let Some(sub) = known().find(|s| s.get_name() == name) else {
                let hint = crate::nearest::hint(name, known().map(Command::get_name));
                return Err(Exit::Usage(format!(
                    "there is no command '{name}'{hint}; 'taskdiag --help' lists them"
                )));
            };
            page_of(sub, &mut out)?;
        }
    }
    sink::write_all(&out)?;
    if io::stdout().is_terminal() {
        let typed = format!("taskdiag man {of}");
        let typed = typed.trim_end();
        exit::say(format_args!(
            "taskdiag: this is the source of the page; '{typed} | man -l -' shows the page"
        ));
    }
    Ok(())
}

/// The page of a command.
fn page_of(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let name = command.get_name();
    let command = command.clone().bin_name(format!("taskdiag {name}")).disable_help_flag(false);
    // A name must be static; there is one page in the life of this process.
    let title: &'static str = format!("taskdiag-{name}").leak();
    let page = Man::new(command.clone().name(title)).section("1");
    let page = page.manual("User Commands").source(concat!("taskdiag ", env!("CARGO_PKG_VERSION")));
    page.render_title(out)?;
    page.render_name_section(out)?;
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n");
    writeln!(out, ".SH SYNOPSIS")?;
    for line in usage.lines() {
        writeln!(out, "{}\n.br", quoted(line.trim()))?;
    }
    if let Some(text) = command.get_before_help() {
        writeln!(out, ".SH DESCRIPTION\n{}", quoted(&text.to_string()))?;
    }
    let mut options = Vec::new();
    Man::new(command.clone()).render_options_section(&mut options)?;
    out.extend_from_slice(&options);
    if name == "ps" {
        letters(out)?;
    }
    // Examples and the other text at the end of --help, line by line.
    if let Some(text) = command.get_after_help() {
        writeln!(out, ".SH NOTES\n.nf\n{}\n.fi", quoted(&text.to_string()))?;
    }
    writeln!(
        out,
        ".SH SEE ALSO\ntaskdiag(1), which has the columns, exit codes, environment and files; taskdiagd(8)"
    )
}

/// Escapes text so that troff shows it unchanged.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let guard = |line: &str| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    };
    text.lines().map(guard).collect::<Vec<_>>().join("\n")
}

const CONF: &str = "\
Turns BPF off for a whole machine. With the line 'engine = procfs', only the files of /proc are read: no BPF program is \
loaded, whatever the user and TASKDIAG_ENGINE are, and another --engine is an error. Lines that begin with # are \
comments; 'engine = auto' has the same effect as no file. The file holds from the next request on. It must be a plain \
file that belongs to root and that nobody else may write to. Any other file, or one with other content, also turns BPF \
off, with a message on standard error, because reading /proc is always safe.";

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag ps", "All processes."),
    ("taskdiag ps aux", "The columns of ps aux. -ef, -eLf, axo pid,comm and -C name work, too."),
    (
        "taskdiag ps --threads -o pid,tid,comm,stat,time --sort -time",
        "All threads, the busiest first.",
    ),
    ("taskdiag ps --tree -u www", "The processes of a user as a tree."),
    ("taskdiag ps --json -o pid,args,rss,read_bytes", "For programs."),
    ("taskdiag dump > f; taskdiag ps --from f -o pid,cgroup", "Save an answer, and show it later."),
    #[cfg(feature = "record")]
    (
        "taskdiag record /var/lib/taskdiag; taskdiag ps --from /var/lib/taskdiag --at 03:10",
        "Record all processes, and show those of ten past three.",
    ),
    ("taskdiag maps 42", "The memory mappings of process 42, as in pmap. -x and -X show more."),
    ("taskdiag maps --by path --path libssl", "Who uses a library."),
    ("taskdiag maps --deleted --by path", "Deleted or replaced files that are still mapped."),
    ("taskdiag files -nP -iTCP -sTCP:LISTEN", "Listening sockets, with the options of lsof."),
    ("taskdiag files +D /srv", "The processes that use a file below a directory, in any way."),
    (
        "taskdiag files --deleted --sort -size",
        "Deleted files that are still open, the largest first.",
    ),
    ("taskdiag files --count --sort -fds", "How many files each process has open, the most first."),
    ("taskdiag tree -p -s 42", "Process 42 with its ancestors and all descendants."),
    ("taskdiag top --where 'cpu_now > 5'", "The busiest processes, on the whole screen."),
    ("taskdiag report -o now.html", "A page about all processes, for a browser."),
    #[cfg(feature = "export")]
    ("taskdiag export", "Metrics for Prometheus, on http://127.0.0.1:9256/metrics."),
    #[cfg(all(feature = "arrow", feature = "record"))]
    ("taskdiag convert /var/lib/taskdiag lake", "Parquet files of a recording."),
];

fn man(command: Command, out: &mut Vec<u8>) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let page = Man::new(command.clone()).section("1").manual("User Commands");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    writeln!(out, ".SH DESCRIPTION")?;
    writeln!(
        out,
        "{}",
        quoted(
            "taskdiag asks for all tasks in one request and gets one binary answer, from the \
             fastest source this machine has: the kernel's own interface if it is built in, \
             BPF task iterators, or the files of /proc. Only the values that the shown columns \
             need are asked for."
        )
    )?;
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        section(sub, out)?;
    }
    letters(&mut *out)?;
    for set in SETS {
        writeln!(out, ".SH COLUMNS OF {}", set.name.to_uppercase())?;
        columns(set, out)?;
    }
    writeln!(out, ".SH VALUES\n{}", quoted(fields::NOTES))?;
    writeln!(out, ".SH EXIT STATUS")?;
    for (code, what) in exit::CODES {
        writeln!(out, ".TP\n\\fB{code}\\fR\n{}", quoted(what))?;
    }
    writeln!(out, ".SH ENVIRONMENT")?;
    for (name, what) in [
        (
            auto::ENV,
            "auto, kernel, bpf, service or procfs: the engine that answers if --engine is not given. With \
             procfs, BPF is not used at all.",
        ),
        ("NO_COLOR", "If it is not empty, there is no colour, unless --color always is given."),
        ("COLUMNS", "The width of the terminal, in place of the width that the terminal reports."),
        ("TZ", "The time zone of start times, and of the times of --at."),
        (
            "TASKDIAG_SOCKET",
            "The socket of the service taskdiagd, if it is not /run/taskdiag/socket.",
        ),
        ("TASKDIAG_PROCPS_LIB", "The path of libtaskdiag-procps.so, for run and dropin."),
        (
            "TASKDIAG_STATS",
            "With 1, programs started by run print statistics of the library when they end.",
        ),
    ] {
        writeln!(out, ".TP\n\\fB{name}\\fR\n{}", quoted(what))?;
    }
    writeln!(out, ".SH FILES\n.TP\n\\fB{}\\fR\n{}", quoted(auto::CONF), quoted(CONF))?;
    writeln!(out, ".SH EXAMPLES")?;
    for (typed, what) in EXAMPLES {
        writeln!(out, ".TP\n\\fB{}\\fR\n{}", quoted(typed), quoted(what))?;
    }
    writeln!(out, ".SH SEE ALSO\ntaskdiagd(8), ps(1), lsof(8), pstree(1), top(1), proc(5), bpf(2)")
}

/// Writes the letters of BSD.
fn letters(out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(out, ".SH BSD\\-STYLE ARGUMENTS OF PS")?;
    writeln!(out, "{}", quoted(super::LETTERS))?;
    for (letter, help) in procps::bsd_letters() {
        writeln!(out, ".TP\n\\fB{letter}\\fR\n{}", quoted(help))?;
    }
    Ok(())
}

/// Writes the section of a command: its purpose, and its options under the headings of `--help`.
fn section(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let texts = [command.get_about(), command.get_before_help()];
    let about: Vec<String> = texts.into_iter().flatten().map(ToString::to_string).collect();
    let about = about.join(".\n\n");
    let name = command.get_name();
    writeln!(out, ".SH TASKDIAG {}\n{}", name.to_uppercase(), quoted(&about))?;
    let mut options = Vec::new();
    Man::new(command.clone()).render_options_section(&mut options)?;
    // On the page, the headings of a command's options are below that of the command.
    let options = String::from_utf8_lossy(&options).replace(".SH ", ".SS ");
    out.write_all(options.as_bytes())
}

/// `docs/reference/columns.md`.
fn column_page(out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(out, "# Columns\n")?;
    writeln!(
        out,
        "<!-- Made by `make docs` from the field table. Do not edit: change the table and run it again. -->\n"
    )?;
    writeln!(
        out,
        "Each column can be shown with `-o`, sorted by with `--sort`, and is a key of `--json`. *Groups* are what is asked of the \
         machine for it; `any` costs nothing. *Type* and *unit* are those of JSON and CSV. *Source* is the kernel's own name for the \
         value.\n"
    )?;
    for set in SETS {
        writeln!(out, "## Columns of {}\n", set.name)?;
        writeln!(out, "| name | other names | what | type | unit | groups | source |")?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        for f in set.own() {
            let code = |names: Vec<&str>| {
                names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" ")
            };
            let aliases = code(f.aliases.iter().map(|a| a.0).collect());
            let groups = fields::groups(f).join(", ");
            let cells = [f.help, f.kind.name(), f.unit.name(), &groups, f.source].map(cell);
            writeln!(out, "| `{}` | {aliases} | {} |", f.name, cells.join(" | "))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "## Values\n\n```text\n{}\n```", fields::NOTES)
}

/// Text in a cell of a Markdown table.
fn cell(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        if "|<*`\\[".contains(c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

fn columns(set: &Set, out: &mut Vec<u8>) -> io::Result<()> {
    for f in set.own() {
        let aliases: String = f.aliases.iter().map(|a| format!(", {}", a.0)).collect();
        writeln!(out, ".TP\n\\fB{}\\fR{}", quoted(f.name), quoted(&aliases))?;
        let unit = if f.unit.name().is_empty() { f.kind.name() } else { f.unit.name() };
        writeln!(out, "{} ({}; {})", quoted(f.help), quoted(unit), quoted(f.source))?;
    }
    Ok(())
}
