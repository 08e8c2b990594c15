//! The machine of an answer: its name, kernel, architecture and boot, live and saved.

use std::process::Command;

use taskdiag::wire::{BootId, Done, Fixed, Info, NlMsgHdr, Plain};
use taskdiag::{Host, Strategy};

use crate::common::{Saved, Task, parts, run, stream, taskdiag};

const HDR: usize = size_of::<NlMsgHdr>();

/// A saved answer of such a machine.
fn of(change: impl FnOnce(&mut Info)) -> Saved {
    let mut bytes = stream(Strategy::All, &[Task::new(1, 0, "init")], Done::default());
    let (mut info, _) = Info::read_from_prefix(&bytes[HDR..]).expect("it begins with INFO");
    change(&mut info);
    bytes[HDR..HDR + size_of::<Info>()].copy_from_slice(info.as_bytes());
    Saved::bytes(&bytes)
}

/// One of another machine.
fn elsewhere() -> Saved {
    of(|info| {
        info.nodename = Fixed::new(b"web\x1b1");
        info.release = Fixed::new(b"6.12.9-test");
        info.machine = Fixed::new(b"riscv64");
        info.boot_id = BootId::new([0xab; 16]);
    })
}

#[test]
fn a_saved_answer_of_another_machine_names_it() {
    let saved = elsewhere();
    let from = saved.path().display().to_string();
    let name = r"web\x1b1 (Linux 6.12.9-test riscv64)";
    let said = format!(
        "taskdiag: the saved answer is of {name}; users and groups have the names that they have on this machine\n"
    );
    for command in ["ps", "tree"] {
        let (code, out, err) = parts(&run(&[command, "--from", &from]));
        assert_eq!((code, err), (0, said.clone()), "{command}: {out}");
    }
    let columns = ["-o", "pid,host,kernel,arch,boot_id"];
    let (code, out, _) = parts(&run(&[&["ps", "--from", &from, "--csv"], &columns[..]].concat()));
    let id = "abababab-abab-abab-abab-abababababab";
    assert_eq!(code, 0);
    let row = out.lines().nth(1).expect("a row");
    assert_eq!(row, format!("1,web\\x1b1,6.12.9-test,riscv64,{id}"), "{out}");
    let page = saved.path().with_file_name("page.html");
    let file = page.display().to_string();
    let (code, _, err) = parts(&run(&["report", "--from", &from, "-o", &file]));
    assert!(code == 0 || code == 3, "{code} {err}");
    let page = std::fs::read_to_string(page).expect("the page is there");
    assert!(page.contains(r"Processes of web\\x1b1"), "the title");
    assert!(page.contains("6.12.9-test riscv64") && page.contains(id));
}

#[test]
fn a_saved_answer_of_an_older_version_says_that_its_machine_is_not_known() {
    let saved = Saved::tasks(&[Task::new(1, 0, "init")]);
    let from = saved.path().display().to_string();
    let (code, _, err) = parts(&run(&["ps", "--from", &from]));
    assert_eq!((code, err.as_str()), (0, ""));
    let (_, out, err) =
        parts(&run(&["ps", "--strict", "--from", &from, "--json", "-o", "pid,host"]));
    let rows: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(rows[0]["host"], serde_json::Value::Null);
    assert_eq!(rows[0]["missing"]["host"], "unsupported", "{out} {err}");
}

#[test]
fn an_earlier_boot_of_this_machine_is_not_mistaken_for_this_one() {
    let here = Host::here();
    let name = here.name.clone().expect("it has a name");
    let before = of(|info| {
        info.nodename = Fixed::new(&name);
        info.boot_id = BootId::new([0xab; 16]);
    });
    let from = before.path().display().to_string();
    let (code, _, err) = parts(&run(&["ps", "--from", &from]));
    let name = String::from_utf8_lossy(&name);
    let said = format!("taskdiag: the saved answer is of {name}, before this boot\n");
    assert_eq!((code, err), (0, said));
    let now = of(|info| {
        info.nodename = Fixed::new(name.as_bytes());
        info.boot_id = here.boot_id.expect("it has an id");
    });
    let (code, _, err) = parts(&run(&["ps", "--from", &now.path().display().to_string()]));
    assert_eq!((code, err.as_str()), (0, ""));
}

/// Runs a shell in a UTS namespace of its own. `None`: that needs root.
fn in_uts(script: &str) -> Option<(i32, String, String)> {
    if !rustix::process::geteuid().is_root() {
        println!("not root, so there is no UTS namespace");
        return None;
    }
    let mut shell = Command::new("unshare");
    shell.args([
        "-u",
        "sh",
        "-c",
        &format!("printf elsewhere > /proc/sys/kernel/hostname; {script}"),
    ]);
    Some(parts(&shell.env_remove("TASKDIAG_ENGINE").output().expect("unshare(1) is there")))
}

#[test]
fn each_engine_gives_the_name_that_its_caller_has() {
    let program = env!("CARGO_BIN_EXE_taskdiag");
    for engine in ["procfs", "bpf", "auto"] {
        let Some((code, out, err)) = in_uts(&format!(
            "{program} ps --engine {engine} -p $$ -o host=,boot_id=,arch=,kernel="
        )) else {
            return;
        };
        if engine == "bpf" && code == 4 {
            println!("there is no BPF here: {err}");
            continue;
        }
        let system = rustix::system::uname();
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is there");
        let words: Vec<&str> = out.split_whitespace().collect();
        let [machine, release] =
            [system.machine(), system.release()].map(|t| t.to_str().expect("text"));
        assert_eq!(words, ["elsewhere", id.trim(), machine, release], "{engine}: {err}");
    }
}

#[test]
fn a_dump_is_of_the_host_where_it_was_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("f").display().to_string();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let Some((code, _, err)) = in_uts(&format!("{program} dump --groups base > {file}")) else {
        return;
    };
    assert_eq!(code, 0, "{err}");
    let out = taskdiag().args(["ps", "--from", &file, "-p", "1", "-o", "host="]).output();
    let (code, out, err) = parts(&out.expect("the program runs"));
    assert_eq!((code, out.trim()), (0, "elsewhere"), "{err}");
    assert!(err.starts_with("taskdiag: the saved answer is of elsewhere (Linux "), "{err}");
}

#[test]
fn engines_name_this_machine() {
    let (code, out, err) = parts(&run(&["engines", "--json"]));
    assert_eq!(code, 0, "{err}");
    let all: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    let (name, host) = (rustix::system::uname(), &all["host"]);
    assert_eq!(host["name"], name.nodename().to_str().expect("text"));
    assert_eq!(host["kernel"], name.release().to_str().expect("text"));
    assert_eq!(host["boot_id"], Host::here().boot_id.expect("it has one").to_string());
}
