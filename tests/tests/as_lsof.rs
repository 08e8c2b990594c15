//! The command under the name lsof, tested with the cases of lsof 4.99.7's own tests, by both
//! engines, on files of this process and of its children, whose state is known. `peers` compares
//! the rest with the installed lsof, which is often an older one.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taskdiag_tests::{Ended, cli, engines, is_root, skip};

/// A directory with the link, and the engines that work here.
struct Lsof {
    dir: tempfile::TempDir,
    engines: Vec<&'static str>,
}

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Lsof {
    fn new() -> Lsof {
        let dir = tempfile::tempdir().expect("a temporary directory");
        symlink(cli::taskdiag(), dir.path().join("lsof")).expect("a new directory");
        let names = engines().iter().map(|e| e.id().name());
        let engines: Vec<_> = names.filter(|n| ["bpf", "procfs"].contains(n)).collect();
        if !engines.contains(&"bpf") {
            skip("as_lsof by bpf", "BPF cannot be used here");
        }
        Lsof { dir, engines }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn run(&self, engine: &str, args: &[&str]) -> Ran {
        let mut command = Command::new(self.path("lsof"));
        command.args(args).env("TASKDIAG_ENGINE", engine).env("LC_ALL", "C.UTF-8");
        let out = command.output().expect("lsof runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = out.status.code().expect("it ends by itself");
        // A sandbox may hide its first process from BPF, and the program reports that.
        let stderr = text(&out.stderr);
        let said = stderr.split_inclusive('\n').filter(|l| !l.contains("is hidden from BPF"));
        Ran { code, stdout: text(&out.stdout), stderr: said.collect() }
    }
    /// The expected output of each engine.
    fn each(&self, args: &[&str], check: impl Fn(&str)) {
        for engine in &self.engines {
            let ran = self.run(engine, args);
            assert_eq!(
                (ran.code, ran.stderr.as_str()),
                (0, ""),
                "{engine} {args:?} {}",
                ran.stdout
            );
            check(&ran.stdout);
        }
    }
    /// Checks the output of each engine about a descriptor of this process.
    fn of_own(&self, fd: RawFd, args: &[&str], check: impl Fn(&str)) {
        let (pid, fd) = (std::process::id().to_string(), fd.to_string());
        self.each(&[&["-nP", "-a", "-p", &pid, "-d", &fd], args].concat(), check);
    }
}

/// A program that has these descriptors of ours.
fn holder(fds: &[RawFd]) -> Ended {
    let fds = fds.to_vec();
    let mut sleep = Command::new("sleep");
    sleep.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: between fork and exec only a system call, on descriptors that are open.
    unsafe {
        sleep.pre_exec(move || {
            for fd in &fds {
                if libc::fcntl(*fd, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Ended(sleep.spawn().expect("sleep starts"))
}

fn owned(fd: RawFd) -> OwnedFd {
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was just made, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn eventfd() -> OwnedFd {
    // SAFETY: takes numbers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: two numbers are written.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    (owned(fds[0]), owned(fds[1]))
}

/// The name of the test's own process, as lsof shows it for the ends of pipes and sockets.
fn own_command() -> String {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", std::process::id()));
    comm.expect("we live").trim_end().chars().take(9).collect()
}

#[test]
fn the_field_o_has_the_offset_with_and_without_a_size() {
    let lsof = Lsof::new();
    let mut file = File::create(lsof.path("file")).expect("a new directory");
    file.write_all(b"12345").expect("written");
    lsof.of_own(file.as_raw_fd(), &["-Fo"], |out| assert!(out.ends_with("\no0t5\n"), "{out}"));
    lsof.of_own(file.as_raw_fd(), &["-Fos"], |out| assert!(out.ends_with("\ns5\no0t5\n"), "{out}"));
    file.seek(SeekFrom::Start(123_456_789_012)).expect("a file");
    lsof.of_own(file.as_raw_fd(), &["-Fo"], |out| {
        assert!(out.contains("\no0x1cbe991a14\n"), "{out}")
    });
    lsof.of_own(file.as_raw_fd(), &["-o0", "-o"], |out| {
        assert!(out.contains(" 0t123456789012 "), "{out}")
    });
}

#[test]
fn the_state_of_a_socket_is_in_t_and_not_in_its_name() {
    let lsof = Lsof::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let _waits = TcpStream::connect(address).expect("it listens");
    lsof.of_own(listener.as_raw_fd(), &["-FnT"], |out| {
        assert!(out.ends_with(&format!("\nn{address}\nTST=LISTEN\nTQR=1\nTQS=0\n")), "{out}");
    });
    lsof.of_own(listener.as_raw_fd(), &["-Tqs"], |out| {
        assert!(out.ends_with(&format!(" {address} (LISTEN QR=1 QS=0)\n")), "{out}");
    });
    lsof.of_own(listener.as_raw_fd(), &["-T"], |out| {
        assert!(out.ends_with(&format!(" TCP {address}\n")), "{out}");
    });
    let path = lsof.path("socket");
    let unix = UnixListener::bind(&path).expect("a new directory");
    let name = format!("{} type=STREAM", path.display());
    lsof.of_own(unix.as_raw_fd(), &["-FnT"], |out| {
        assert!(out.ends_with(&format!("\nn{name}\nTST=LISTEN\n")), "{out}");
    });
    let client = UnixStream::connect(&path).expect("it listens");
    lsof.of_own(client.as_raw_fd(), &["-Ts", "-U"], |out| {
        assert!(out.contains(" unix 0x") && out.ends_with(" type=STREAM (CONNECTED)\n"), "{out}");
    });
}

#[test]
fn a_udp_socket_with_a_peer_is_established() {
    let lsof = Lsof::new();
    let (a, b) = (
        UdpSocket::bind("127.0.0.1:0").expect("a port"),
        UdpSocket::bind("127.0.0.1:0").expect("a port"),
    );
    b.connect(a.local_addr().expect("bound")).expect("loopback");
    let (to, from) = (a.local_addr().expect("bound"), b.local_addr().expect("bound"));
    lsof.of_own(b.as_raw_fd(), &["-iUDP"], |out| {
        assert!(out.ends_with(&format!(" UDP {from}->{to} (ESTABLISHED)\n")), "{out}");
    });
}

#[test]
fn targets_of_an_epoll_are_in_the_order_of_their_numbers() {
    let lsof = Lsof::new();
    // SAFETY: takes a number.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    let mut targets: Vec<OwnedFd> = (0..8).map(|_| eventfd()).collect();
    targets.reverse();
    for fd in &targets {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event lives until the call returns.
        let added = unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        };
        assert_eq!(added, 0);
    }
    let mut numbers: Vec<RawFd> = targets.iter().map(AsRawFd::as_raw_fd).collect();
    numbers.sort_unstable();
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let name = format!("[eventpoll:{}]\n", numbers.join(","));
    lsof.of_own(epoll.as_raw_fd(), &["-Fn"], |out| assert!(out.ends_with(&name), "{out}"));
}

#[test]
fn other_ends_of_pipes_are_named_and_listed() {
    let lsof = Lsof::new();
    let (read, write) = pipe();
    let holder = holder(&[read.as_raw_fd()]);
    let (own, other) = (std::process::id(), holder.id());
    let (r, w) = (read.as_raw_fd(), write.as_raw_fd());
    let command = own_command();
    let with = |ends: &[String]| format!(" pipe {}\n", ends.join(" "));
    // The ends are in the order of the processes, without the file itself.
    let mut ends =
        vec![(own, format!("{own},{command},{r}r")), (other, format!("{other},sleep,{r}r"))];
    ends.sort();
    let ends: Vec<String> = ends.into_iter().map(|(_, end)| end).collect();
    lsof.of_own(w, &["-E"], |out| {
        assert!(out.ends_with(&with(&ends)), "{out}");
        assert_eq!(out.lines().count(), 2, "{out}");
    });
    lsof.of_own(w, &["+E"], |out| {
        assert_eq!(out.lines().count(), 4, "{out}");
        let row = out.lines().find(|l| l.starts_with("sleep ")).expect("it is listed");
        assert!(
            row.contains(&format!(" {r}r  FIFO "))
                && row.contains(&format!(" {own},{command},{w}w")),
            "{row}"
        );
    });
}

#[test]
fn other_ends_of_sockets_are_named() {
    let lsof = Lsof::new();
    let command = own_command();
    let own = std::process::id();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let to = listener.local_addr().expect("bound");
        let client = TcpStream::connect(to).expect("it listens");
        let (server, from) = listener.accept().expect("one waits");
        let end =
            format!(" TCP {from}->{to} {own},{command},{}u (ESTABLISHED)\n", server.as_raw_fd());
        lsof.of_own(client.as_raw_fd(), &["-E"], |out| assert!(out.ends_with(&end), "{end} {out}"));
        // A listener has no other end.
        lsof.of_own(listener.as_raw_fd(), &["+E"], |out| {
            assert!(out.ends_with(&format!(" TCP {to} (LISTEN)\n")), "{out}");
            assert_eq!(out.lines().count(), 2, "{out}");
        });
    }
    let (a, b) = UnixStream::pair().expect("sockets");
    lsof.of_own(a.as_raw_fd(), &["-E"], |out| {
        let end = format!(" {own},{command},{}u (CONNECTED)\n", b.as_raw_fd());
        assert!(out.contains(" type=STREAM ->INO=") && out.ends_with(&end), "{out}");
    });
}

#[test]
fn other_ends_of_terminals_and_eventfds_are_named() {
    let lsof = Lsof::new();
    let own = std::process::id();
    let command = own_command();
    // SAFETY: plain calls on a descriptor that was just opened.
    let master =
        owned(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) });
    let mut number: libc::c_uint = 0;
    // SAFETY: the kernel writes one number, and the other call takes none.
    unsafe {
        assert_eq!(libc::unlockpt(master.as_raw_fd()), 0);
        assert_eq!(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number), 0);
    }
    let path = format!("/dev/pts/{number}");
    let slave =
        File::options().read(true).custom_flags(libc::O_NOCTTY).open(&path).expect("unlocked");
    let end = format!(" ->{path} {own},{command},{}r\n", slave.as_raw_fd());
    lsof.of_own(master.as_raw_fd(), &["-E"], |out| assert!(out.ends_with(&end), "{end} {out}"));
    let end = format!(" {path} {own},{command},{}u\n", master.as_raw_fd());
    lsof.of_own(slave.as_raw_fd(), &["-E"], |out| assert!(out.ends_with(&end), "{end} {out}"));

    let event = eventfd();
    let holder = holder(&[event.as_raw_fd()]);
    let end = format!("] {},sleep,{}u\n", holder.id(), event.as_raw_fd());
    lsof.of_own(event.as_raw_fd(), &["+E"], |out| {
        let row = out.lines().find(|l| l.starts_with(&command)).expect("our own");
        assert!(format!("{row}\n").ends_with(&end), "{end} {out}");
        assert_eq!(out.lines().count(), 3, "{out}");
    });
}

#[test]
fn flags_of_open_are_words() {
    let lsof = Lsof::new();
    let open = |path: &Path, flags: i32| {
        File::options()
            .read(true)
            .write(flags & libc::O_TMPFILE == libc::O_TMPFILE)
            .custom_flags(flags)
            .open(path)
    };
    let row = |file: &File, words: &str| {
        let words = format!(" {words} ");
        lsof.of_own(file.as_raw_fd(), &["+fg"], |out| {
            assert!(out.contains(&words), "{words} {out}")
        });
    };
    row(&open(lsof.dir.path(), libc::O_PATH).expect("it is there"), "CX,PATH");
    row(&open(lsof.dir.path(), libc::O_DIRECTORY).expect("it is there"), "DTY,LG,CX");
    match open(lsof.dir.path(), libc::O_TMPFILE) {
        Ok(file) => {
            row(&file, "RW,DTY,LG,CX,TMPF");
            lsof.of_own(file.as_raw_fd(), &["-FG"], |out| {
                assert!(out.ends_with(";0x0\n"), "{out}")
            });
        }
        Err(e) => skip("as_lsof O_TMPFILE", &e.to_string()),
    }
}

#[test]
fn fd_stands_for_all_descriptors() {
    let lsof = Lsof::new();
    let pid = std::process::id().to_string();
    let labels = |out: &str| -> Vec<String> {
        out.lines().filter_map(|l| l.strip_prefix('f')).map(String::from).collect()
    };
    let is_number = |label: &String| label.bytes().all(|b| b.is_ascii_digit());
    lsof.each(&["-p", &pid, "-a", "-d", "fd", "-Ff"], |out| {
        assert!(labels(out).iter().all(is_number) && !labels(out).is_empty(), "{out}");
    });
    lsof.each(&["-p", &pid, "-a", "-d", "^fd", "-Ff"], |out| {
        assert!(!labels(out).iter().any(is_number) && labels(out).contains(&"txt".into()), "{out}");
    });
}

#[test]
fn a_file_that_is_not_found_ends_with_1_and_is_fine_with_q() {
    let lsof = Lsof::new();
    let missing = lsof.path("missing");
    let unused = lsof.path("unused");
    File::create(&unused).expect("a new directory");
    for engine in &lsof.engines {
        for path in [&missing, &unused] {
            let path = path.to_str().expect("ASCII");
            assert_eq!(lsof.run(engine, &[path]).code, 1);
            assert_eq!(lsof.run(engine, &["-Q", path]).code, 0);
        }
        let said = lsof.run(engine, &[missing.to_str().expect("ASCII")]).stderr;
        let want =
            format!("lsof: status error on {}: No such file or directory\n", missing.display());
        assert_eq!(said, want);
        let ran = lsof.run(engine, &["-V", "-c", "no such name", unused.to_str().expect("ASCII")]);
        let want = format!(
            "lsof: command not located: no such name\nlsof: no file use located: {}\n",
            unused.display()
        );
        assert_eq!((ran.code, ran.stdout), (1, want));
    }
}

#[test]
fn lists_are_repeated_as_often_as_was_asked_for() {
    let lsof = Lsof::new();
    let pid = std::process::id().to_string();
    for engine in &lsof.engines {
        let rows = |args: &[&str], marker: &str| {
            let ran = lsof.run(engine, &[args, &["-a", "-p", &pid, "-d", "cwd"]].concat());
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran.stdout.lines().filter(|l| *l == marker).count()
        };
        assert_eq!(rows(&["-r", "1c1"], "======="), 1);
        assert_eq!(rows(&["-r", "1c2"], "======="), 2);
        assert_eq!(rows(&["-r", "1c1m-- %%"], "-- %"), 1);
        assert_eq!(rows(&["-r1c1", "-F"], "m"), 1);
        assert_eq!(lsof.run(engine, &["+r1", "-c", "no such name"]).code, 1);
    }
}

#[test]
fn json_has_the_keys_of_lsof() {
    let lsof = Lsof::new();
    let pid = std::process::id().to_string();
    lsof.each(&["-J", "-p", &pid], |out| {
        let all: serde_json::Value = serde_json::from_str(out).expect("JSON");
        let process = &all["processes"][0];
        assert_eq!(process["pid"], std::process::id());
        assert!(all["lsof_version"].is_string() && process["files"][0]["fd"] == "cwd", "{out}");
    });
    lsof.each(&["-J", "-Fpcfn", "-p", &pid], |out| {
        let all: serde_json::Value = serde_json::from_str(out).expect("JSON");
        let file = all["processes"][0]["files"][0].as_object().expect("an object");
        let keys: Vec<&str> = file.keys().map(String::as_str).collect();
        assert_eq!(keys, ["fd", "name"], "{out}");
        assert!(all["processes"][0].get("uid").is_none());
    });
    lsof.each(&["-j", "-p", &pid], |out| {
        for line in out.lines() {
            let file: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(file["pid"] == std::process::id() && file["fd"].is_string(), "{line}");
        }
    });
    for engine in &lsof.engines {
        let none = lsof.run(engine, &["-J", "-p", "999999999"]);
        let all: serde_json::Value = serde_json::from_str(&none.stdout).expect("JSON");
        assert_eq!((none.code, all["processes"].as_array().map(Vec::len)), (1, Some(0)));
        assert_eq!(lsof.run(engine, &["-j", "-p", "999999999"]).stdout, "");
        assert!(["-j", "-t"].iter().all(|other| lsof.run(engine, &["-J", other]).code == 1));
    }
}

#[test]
fn names_neither_control_a_terminal_nor_look_like_others() {
    let lsof = Lsof::new();
    for (name, shown) in [
        ("a\u{9b}b", "a\\xc2\\x9bb"),
        ("line\nfeed", "line\\nfeed"),
        ("back\\nslash", "back\\\\nslash"),
        ("é\u{1}", "é^A"),
    ] {
        let file = File::create(lsof.path(name)).expect("a new directory");
        let end = format!("/{shown}\n");
        lsof.of_own(file.as_raw_fd(), &[], |out| assert!(out.ends_with(&end), "{out}"));
        lsof.of_own(file.as_raw_fd(), &["-Fn"], |out| assert!(out.ends_with(&end), "{out}"));
    }
    let name = b"taskdiag\0test";
    // SAFETY: the address has the given length, and lives until the call returns.
    let socket = unsafe {
        let socket = owned(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0));
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        let len = 2 + 1 + name.len();
        let bound =
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len as libc::socklen_t);
        assert_eq!(bound, 0);
        socket
    };
    lsof.of_own(socket.as_raw_fd(), &["-Fn"], |out| {
        assert!(out.ends_with("\nn@taskdiag@test type=STREAM\n"), "{out}");
    });
}

#[test]
fn an_ordinary_user_gets_rows_and_the_exit_code_of_lsof() {
    if !is_root() {
        return skip("as_lsof by an ordinary user", "only root can become another user");
    }
    let lsof = Lsof::new();
    let copied =
        Command::new("install").arg("-m755").arg(cli::taskdiag()).arg(lsof.path("copy")).status();
    assert!(copied.expect("install runs").success());
    std::fs::rename(lsof.path("copy"), lsof.path("lsof")).expect("one directory");
    std::fs::set_permissions(lsof.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("our own");
    let of_root = holder(&[]);
    let pid = of_root.id();
    let run = |args: &[&str]| {
        let mut command = Command::new(lsof.path("lsof"));
        command.args(args).uid(65534).gid(65534).env("TASKDIAG_ENGINE", "procfs").current_dir("/");
        let out = command.output().expect("lsof runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let text = pid.to_string();
    let lines = |letters: &str| {
        let of = |label: &str, rest: &str| {
            format!("f{label}\nn/proc/{pid}/{rest}: Permission denied)\n")
        };
        assert_eq!(letters, "-Fn");
        format!("p{pid}\n")
            + &of("cwd", "cwd (readlink")
            + &of("rtd", "root (readlink")
            + &of("txt", "exe (readlink")
            + &of("NOFD", "fd (opendir")
    };
    assert_eq!(run(&["-p", &text, "-Ffn"]), (Some(0), lines("-Fn"), String::new()));
    assert_eq!(run(&["-w", "-p", &text]), (Some(0), String::new(), String::new()));
    let mut own = Command::new("sleep");
    let own = Ended(own.arg("1000").uid(65534).gid(65534).spawn().expect("sleep starts"));
    assert_eq!(
        run(&["-t", "-c", "sleep", "-a", "-u", "65534", "-d", "0", "-p", &own.id().to_string()]),
        (Some(0), format!("{}\n", own.id()), String::new())
    );
}

#[test]
fn threads_are_listed_when_they_are_asked_for() {
    let lsof = Lsof::new();
    let (mut read, write) = pipe_files();
    let thread = std::thread::Builder::new().name("lsof's thread".into());
    let thread = thread.spawn(move || read.read(&mut [0]).map(drop)).expect("a thread");
    let pid = std::process::id().to_string();
    lsof.each(&["-K", "-a", "-p", &pid, "-d", "cwd", "-FKMf"], |out| {
        assert!(out.starts_with(&format!("p{pid}\nfcwd\np{pid}\nK")), "{out}");
        assert!(out.contains("\nMlsof's thread\nfcwd\n"), "{out}");
    });
    lsof.each(&["-K", "i", "-a", "-p", &pid, "-d", "cwd", "-FKf"], |out| {
        assert_eq!(out, format!("p{pid}\nfcwd\n"));
    });
    drop(write);
    thread.join().expect("it ends").expect("it read");
}

fn pipe_files() -> (File, File) {
    let (read, write) = pipe();
    (read.into(), write.into())
}

#[test]
fn commands_have_blanks_and_any_bytes() {
    let lsof = Lsof::new();
    let program = lsof.path("a b,c");
    std::fs::copy("/bin/sleep", &program).expect("a program");
    let mut command = Command::new(&program);
    let child = Ended(command.arg("1000").spawn().expect("it starts"));
    let found = format!("{}\n", child.id());
    for engine in &lsof.engines {
        // Between fork and exec it has the name of this process.
        let mut ran = lsof.run(engine, &["-t", "-c", "a b,c"]);
        for _ in 0..100 {
            if ran.code == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            ran = lsof.run(engine, &["-t", "-c", "a b,c"]);
        }
        assert_eq!((ran.code, ran.stdout), (0, found.clone()));
        assert_eq!(lsof.run(engine, &["-t", "-c", "a b,d"]).code, 1);
    }
}

#[test]
fn the_version_is_that_of_lsof_and_says_who_this_is() {
    let lsof = Lsof::new();
    let ran = lsof.run("procfs", &["-v"]);
    assert_eq!(ran.code, 0);
    assert!(
        ran.stderr.contains("\n    revision: 4.99.7\n") && ran.stderr.contains("taskdiag"),
        "{}",
        ran.stderr
    );
}

#[test]
fn sockets_without_an_address_are_listed_for_their_process_and_not_for_i() {
    // SAFETY: a system call that makes a descriptor.
    let unbound = owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) });
    let holder = holder(&[unbound.as_raw_fd()]);
    let pid = holder.id().to_string();
    let row = format!("{}u", unbound.as_raw_fd());
    let lsof = Lsof::new();
    let has_row = |ran: &Ran| {
        let labels = ran.stdout.lines().filter_map(|l| l.split_whitespace().nth(3));
        labels.filter(|l| **l == row).count()
    };
    for engine in &lsof.engines {
        let either = lsof.run(engine, &["-nP", "-i", "-p", &pid]);
        let ours = either.stdout.lines().filter(|l| l.contains(&format!(" {pid} ")));
        let unknown = ours.filter(|l| l.contains(&row) && l.ends_with("protocol: TCP"));
        assert_eq!(unknown.count(), 1, "{engine}: {}", either.stdout);
        let both = lsof.run(engine, &["-nP", "-i", "-a", "-p", &pid]);
        assert_eq!((both.code, has_row(&both)), (1, 0), "{engine}: {}", both.stdout);
    }
}

#[test]
fn a_deleted_file_that_is_mapped_is_del_and_not_mem() {
    let lsof = Lsof::new();
    let path = lsof.path("mapped-and-deleted");
    std::fs::write(&path, [7; 4096]).expect("a file");
    let file = File::open(&path).expect("it is there");
    let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping, which nothing here uses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, read, private, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    std::fs::remove_file(&path).expect("it is ours");
    let pid = std::process::id().to_string();
    for (label, is_listed) in [("mem", false), ("DEL", true), ("mem,DEL", true), ("^DEL", false)] {
        lsof.each(&["-nP", "-a", "-p", &pid, "-d", label], |out| {
            let mut labels = out.lines().filter_map(|l| l.split_whitespace().nth(3));
            assert_eq!(labels.any(|l| l == "DEL"), is_listed, "{label}: {out}");
        });
    }
    // SAFETY: the mapping made above, once.
    assert_eq!(unsafe { libc::munmap(at, 4096) }, 0);
}
