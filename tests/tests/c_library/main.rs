//! The library for C: its functions are those of its header, C and C++ compilers take the header,
//! the example shows what /proc has, and the claims of `checks.c` hold for each engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use taskdiag_tests::{Mktask, Source, cli, engines, is_root, plain_dir, skip};

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/taskdiag-c");
const CHECKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c_library/checks.c");
const STRICT: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"];

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(CRATE).join(name)).expect(name)
}

fn ran(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn said(out: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}{}", text(&out.stdout), text(&out.stderr), out.status)
}

fn cc() -> Command {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.arg(format!("-I{CRATE}/include"));
    cc
}

/// A program in a directory that every user may enter, with the library beside it.
struct Built {
    _dir: tempfile::TempDir,
    program: PathBuf,
}

impl Built {
    /// Compiles a program, and links it with the library.
    fn new(name: &str, source: &Path, flags: &[&str]) -> Result<Built, String> {
        let (dir, path) = plain_dir();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        let lib = Path::new(&path).join("libtaskdiag.so.0");
        std::fs::copy(cli::c_library(), &lib).expect("it is copied");
        let program = Path::new(&path).join(name);
        let mut cc = cc();
        cc.args(STRICT).args(flags).arg("-o").arg(&program).arg(source).arg(&lib);
        let out = ran(cc.args(["-lm", "-pthread", "-Wl,-rpath,$ORIGIN"]));
        if out.status.success() { Ok(Built { _dir: dir, program }) } else { Err(said(&out)) }
    }
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("TASKDIAG_ENGINE").current_dir("/");
        command
    }
}

/// The checks, with the address sanitizer where the compiler has one.
fn checks() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    const SANITIZED: [&str; 3] = ["-D_GNU_SOURCE", "-g", "-fsanitize=address,undefined"];
    BUILT.get_or_init(|| {
        Built::new("checks", Path::new(CHECKS), &SANITIZED).unwrap_or_else(|why| {
            let missing =
                ["-lasan", "libasan", "-lubsan", "libubsan"].iter().any(|l| why.contains(l));
            assert!(missing, "{why}");
            skip("c_library with the address sanitizer", "the compiler has none");
            Built::new("checks", Path::new(CHECKS), &SANITIZED[..2])
                .unwrap_or_else(|why| panic!("{why}"))
        })
    })
}

/// Runs a case by the engine that the library chooses, and by each that works here.
fn hold(case: &str) {
    let named = engines().iter().filter_map(|source| match source {
        Source::Engine(engine) => Some(engine.name()),
        _ => None,
    });
    for engine in named.map(Some).chain([None]) {
        held(checks().command().arg(case).args(engine));
    }
}

fn held(command: &mut Command) {
    let out = ran(command);
    assert!(out.status.success() && out.stdout == b"held\n", "{command:?}: {}", said(&out));
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = read("include/taskdiag.h");
    let line = |line: &str| {
        let is_declaration = line.starts_with(|c: char| c.is_ascii_lowercase());
        let (before, _) = line.split_once('(').filter(|_| is_declaration)?;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    };
    header.lines().filter_map(line).collect()
}

/// The functions that the list of symbols has.
fn listed() -> BTreeSet<String> {
    let map = read("taskdiag.map");
    let line = |line: &str| Some(line.strip_prefix("\ttaskdiag_")?.strip_suffix(';')?.to_owned());
    map.lines().filter_map(line).map(|name| format!("taskdiag_{name}")).collect()
}

#[test]
fn the_c_library_has_the_functions_of_its_header_with_their_version_and_no_others() {
    assert!(listed().len() >= 35, "{:?}", listed());
    assert_eq!(declared(), listed(), "the functions of taskdiag.h and of taskdiag.map");
    let out = ran(Command::new("readelf")
        .args(["--wide", "--dyn-syms", "--dynamic"])
        .arg(cli::c_library()));
    let text = said(&out);
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, kind, "GLOBAL" | "WEAK", _, index, name] = words[..] else { return None };
        (index != "UND" && kind != "OBJECT").then(|| name.to_owned())
    };
    let exported: BTreeSet<String> = text.lines().filter_map(symbol).collect();
    let wanted = listed().into_iter().map(|name| format!("{name}@@TASKDIAG_0"));
    assert_eq!(exported, wanted.collect(), "what the library exports");
    assert!(text.contains("soname: [libtaskdiag.so.0]"), "{text}");
}

#[test]
fn compilers_of_c_and_cxx_take_the_header() {
    let example = Path::new(CRATE).join("examples/ps.c");
    let header = Path::new(CRATE).join("include/taskdiag.h");
    let c = |compiler: &str| (compiler.to_owned(), STRICT.to_vec(), "c", [&example, &header]);
    let cxx = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic"].to_vec();
    // The shared library is of the GNU C library, so a program for musl is compiled and not linked.
    let all = [c("gcc"), c("musl-gcc"), ("g++".to_owned(), cxx, "c++", [&header; 2])];
    for (compiler, flags, language, files) in all {
        if let Err(e) = Command::new(&compiler).arg("--version").output() {
            skip("c_library::compilers_of_c_and_cxx_take_the_header", &format!("{compiler}: {e}"));
            continue;
        }
        for file in files {
            let mut command = Command::new(&compiler);
            command.args(&flags).args(["-fsyntax-only", "-x", language]);
            let out = ran(command.arg(format!("-I{CRATE}/include")).arg(file));
            assert!(out.status.success(), "{command:?}: {}", said(&out));
        }
    }
}

/// The names of processes, by pid.
fn names() -> BTreeMap<u32, String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, comm.trim_end_matches('\n').to_owned()))
    };
    std::fs::read_dir("/proc").expect("/proc").filter_map(name).collect()
}

#[test]
fn the_example_in_c_is_short_and_shows_the_processes_of_proc() {
    let source = Path::new(CRATE).join("examples/ps.c");
    let text = read("examples/ps.c");
    assert!(text.lines().count() <= 40 && read("../../docs/use/c.md").contains(text.trim_end()));
    let example = Built::new("ps", &source, &[]).unwrap_or_else(|why| panic!("{why}"));
    let task = Mktask::start(&["idle"]).unwrap_or_else(|why| panic!("{why}"));
    for user in [None, Some(65534)].into_iter().filter(|user| user.is_none() || is_root()) {
        let before = names();
        let mut command = example.command();
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let out = ran(&mut command);
        assert!(out.status.success() && out.stderr.is_empty(), "{}", said(&out));
        let after = names();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let pid = words.next()?.parse::<u32>().ok()?;
            let rss = words.next()?.to_owned();
            Some((pid, (rss, line.to_owned())))
        };
        let rows: BTreeMap<u32, (String, String)> = text.lines().filter_map(row).collect();
        let lasting = before.iter().filter(|(pid, name)| after.get(pid) == Some(name));
        let mut compared = 0;
        for (pid, name) in lasting {
            let (_, line) = rows.get(pid).unwrap_or_else(|| panic!("{pid} {name}: {text}"));
            compared += 1;
            // A name may have any bytes.
            if name.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
                assert!(line.ends_with(&format!(" {name}")), "{line} is {name}");
            }
        }
        assert!(compared > 2, "{text}");
        let pid = task.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("it has memory");
        let kib: u64 = rss.trim().trim_end_matches(" kB").parse().expect("a number");
        let shown: u64 = rows[&pid].0.parse().unwrap_or_else(|_| panic!("{}", rows[&pid].1));
        assert!(shown.abs_diff(kib) <= 1024 && kib > 0, "{shown} KiB, and {kib} KiB in /proc");
    }
}

#[test]
fn the_c_library_refuses_what_is_wrong_and_says_why() {
    held(checks().command().arg("faults"));
}

#[test]
fn values_of_each_type_arrive_in_c() {
    if !is_root() {
        return skip("c_library::values_of_each_type_arrive_in_c", "it needs root to set groups");
    }
    for engine in [None, Some("procfs")] {
        let mut command = checks().command();
        // SAFETY: system calls only, in the child.
        unsafe {
            command.arg("values").args(engine.map(OsStr::new)).pre_exec(|| {
                let groups = [50_001, 50_002];
                let nofile = libc::rlimit { rlim_cur: 123, rlim_max: 123 };
                let done = libc::setsid() >= 0
                    && libc::setgroups(groups.len(), groups.as_ptr()) == 0
                    && libc::setrlimit(libc::RLIMIT_NOFILE, &nofile) == 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        held(&mut command);
    }
}

#[test]
fn rows_of_each_kind_arrive_in_c() {
    hold("rows");
}

#[test]
fn a_session_in_c_has_the_activity_between_two_answers() {
    hold("sessions");
}

#[test]
fn threads_and_children_of_a_program_in_c_use_sessions_at_once() {
    hold("threads");
}

#[test]
fn a_value_that_a_user_may_not_see_has_its_reason_in_c() {
    if !is_root() {
        return skip(
            "c_library::a_value_that_a_user_may_not_see_has_its_reason_in_c",
            "it needs root to be another user",
        );
    }
    held(checks().command().uid(65534).gid(65534).args(["denied", "procfs"]));
}
