// SPDX-License-Identifier: MIT OR Apache-2.0
//! An extension of osquery: tables of processes, threads, memory, mappings and open files that
//! taskdiag reads. osqueryd starts it and asks it over a socket; `docs/use/sql.md` explains how to
//! install it.

mod answer;
mod context;
mod tables;

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, Command, value_parser};
use osquery_rust_ng::Server;
use osquery_rust_ng::plugin::Plugin;
use taskdiag::{ByteLimits, Choice};
use taskdiag_face::elevated;

/// The name under which osquery lists the extension.
const NAME: &str = "taskdiag";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("taskdiag-osquery: {why}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let seconds = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("SECONDS")
            .value_parser(value_parser!(u64))
            .default_value("3")
    };
    Command::new("taskdiag-osquery")
        .args_override_self(true)
        .about("Tables of processes for osquery, which starts this program itself")
        .version(env!("CARGO_PKG_VERSION"))
        .arg(Arg::new("socket").long("socket").value_name("PATH").required(true).help("The socket of osquery's extensions"))
        .arg(seconds("timeout").help("For how long to wait for that socket"))
        .arg(seconds("interval").help("Given by osquery, and not used: every half second, the extension checks whether osquery still runs"))
        .arg(Arg::new("verbose").long("verbose").action(ArgAction::SetTrue).help("Print more on standard error"))
        .arg(
            Arg::new("engine")
                .long("engine")
                .value_name("ENGINE")
                .value_parser(|text: &str| text.parse::<Choice>())
                .help("The engine: auto, kernel, bpf, service, procfs"),
        )
        .arg(
            Arg::new("args")
                .long("args")
                .value_name("SIZE")
                .value_parser(text_size)
                .help("Read at most this much of the arguments and of the environment of each process, such as 1M, or all. \
                       Without this it is 128 KiB, and all of a process that a query names"),
        )
}

/// A size of text, or `all`, which is the most that a process can have.
fn text_size(text: &str) -> Result<u32, String> {
    let most = ByteLimits::ONE.text_bytes;
    let size = if text == "all" { Some(most.into()) } else { taskdiag::view::parse_size(text) };
    let bytes = size.map(|bytes| u32::try_from(bytes).unwrap_or(most).min(most));
    bytes.ok_or_else(|| "a size is a number with K, M, G or T, such as 1M, or all".to_owned())
}

fn run() -> Result<(), String> {
    let args = command().get_matches();
    if let Some(why) = elevated::reason() {
        return Err(format!(
            "this copy has more rights than the user who starts it ({why}), so it does nothing: take those rights from the file"
        ));
    }
    let level =
        if args.get_flag("verbose") { log::LevelFilter::Debug } else { log::LevelFilter::Info };
    log::set_max_level(level);
    log::set_boxed_logger(Box::new(ToStandardError)).map_err(|e| e.to_string())?;

    let socket: &String = args.get_one("socket").expect("clap requires it");
    let timeout = Duration::from_secs(*args.get_one("timeout").expect("it has a default"));
    let mut server = connect(socket, timeout)?;
    let choice = args.get_one::<Choice>("engine").copied().unwrap_or(Choice::Auto);
    let text_bytes = args.get_one::<u32>("args").copied();
    for table in &tables::TABLES {
        let asked = answer::QueriedTable { table, choice, text_bytes };
        server.register_plugin(Plugin::readonly_table(asked));
    }
    // The library listens next to osquery's socket, under the number that osquery assigned to the
    // extension. 0 means that osquery refused it, which the library does not report.
    let refused = format!("{socket}.0");
    let was_there = Path::new(&refused).exists();
    let handle = server.get_stop_handle();
    let watch = std::thread::spawn(move || {
        let until = Instant::now() + timeout;
        while handle.is_running() && Instant::now() < until {
            if !was_there && Path::new(&refused).exists() {
                handle.stop();
                return true;
            }
            sleep(Duration::from_millis(50));
        }
        false
    });
    server.run_with_signal_handling().map_err(|e| format!("osquery at {socket}: {e}"))?;
    match watch.join() {
        Ok(true) => Err(format!(
            "osquery at {socket} refused the extension; perhaps another copy of it is running"
        )),
        _ => Ok(()),
    }
}

/// osquery may start the extension before it listens.
fn connect(socket: &str, timeout: Duration) -> Result<Server<Plugin>, String> {
    let until = Instant::now() + timeout;
    loop {
        match Server::new(Some(NAME), socket) {
            Ok(server) => return Ok(server),
            Err(_) if Instant::now() < until => sleep(Duration::from_millis(50)),
            Err(e) => {
                return Err(format!(
                    "no osquery at {socket}: {e}; --extensions_socket of osqueryd says where it is"
                ));
            }
        }
    }
}

/// Messages go where osqueryd's own go.
struct ToStandardError;

impl log::Log for ToStandardError {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        eprintln!("taskdiag-osquery: {}", record.args());
    }
    fn flush(&self) {}
}
