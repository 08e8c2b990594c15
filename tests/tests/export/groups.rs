//! Processes and threads that change their group while they run: activity counts once, in the group
//! in which it happened.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use taskdiag_tests::skip;

use super::exporter::{Exporter, Metrics, config, end, wait};

/// A Python program that prints a line after each step, and then waits for a line.
struct Steps {
    child: Child,
    input: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Steps {
    /// Starts `code`, in which `step(text)` prints the text and waits. `None`: there is no python3.
    fn start(test: &str, code: &str, args: &[&str]) -> Option<Steps> {
        let step = "import os, sys, threading, time\n\
            def step(text):\n print(text, flush=True)\n if not sys.stdin.readline(): os._exit(0)\n";
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{step}{code}")]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            skip(test, "there is no python3");
            return None;
        };
        let input = child.stdin.take().expect("piped");
        let said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut steps = Steps { child, input, said };
        steps.hear();
        Some(steps)
    }
    fn hear(&mut self) -> String {
        self.said.next().expect("it says more").expect("it can be read")
    }
    /// Lets it take the next step.
    fn next(&mut self) -> String {
        self.input.write_all(b"\n").expect("it reads");
        self.hear()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

const ENGINES: [&[&str]; 2] = [&[], &["--engine", "procfs"]];

fn thread_cpu(metrics: &Metrics, group: &str, thread: &str) -> f64 {
    let labels = |mode| [("threadname", thread), ("mode", mode)];
    let of = |mode| metrics.group("thread_cpu_seconds_total", group, &labels(mode)).unwrap_or(0.0);
    of("user") + of("system")
}

/// The first thread of a process counts once, even if a second thread comes and goes.
#[test]
fn threads_count_once_while_others_come_and_go() {
    let test = "threads_count_once_while_others_come_and_go";
    let own = format!("flap-{}", std::process::id());
    let (_file, path) = config(&format!("process_names: [{{name: g, cmdline: ['{own}$']}}]"));
    let burn =
        "def burn():\n end = time.process_time() + 0.6\n while time.process_time() < end: pass\n";
    let code = format!(
        "{burn}open('/proc/self/comm', 'w').write('flap')\nstep('')\nburn()\nstep('')\n\
         while True:\n t = threading.Thread(target=step, args=('two',))\n t.start()\n t.join()\n step('one')\n"
    );
    for engine in ENGINES {
        // The second process keeps the account alive.
        for has_mate in [false, true] {
            let exporter = Exporter::start(&[&["--config", &path][..], engine].concat());
            let mate = "open('/proc/self/comm', 'w').write('flap')\n\
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nstep('')\n";
            let _mate = match has_mate {
                true => Steps::start(test, mate, &[&own]),
                false => None,
            };
            let Some(mut flapping) = Steps::start(test, &code, &[&own]) else { return };
            exporter.scrape();
            flapping.next();
            let cpu = |m: &Metrics| {
                let of = |mode| m.group("cpu_seconds_total", "g", &[("mode", mode)]);
                of("user").expect("it is known") + of("system").expect("it is known")
            };
            exporter.scrape();
            for round in 0..5 {
                for want in ["two", "one"] {
                    assert_eq!(flapping.next(), want);
                    // A thread that was joined may not have ended yet.
                    let threads = if want == "two" { 2 } else { 1 };
                    let tasks = format!("/proc/{}/task", flapping.child.id());
                    wait("the thread", || {
                        let found = std::fs::read_dir(&tasks).expect("it lives").count();
                        (found == threads).then_some(())
                    });
                    let m = exporter.scrape();
                    let (threads, all) = (thread_cpu(&m, "g", "flap"), cpu(&m));
                    assert!(threads >= 0.55, "round {round}: {threads} of {all} s");
                    assert!(threads <= all + 0.05, "round {round}: {threads} of {all} s");
                    let n = m.group("thread_count", "g", &[("threadname", "flap")]);
                    let of_mate = if has_mate { 2.0 } else { 0.0 };
                    assert_eq!(n, Some(if want == "two" { 2.0 } else { 0.0 } + of_mate));
                    let of_threads =
                        m.group("thread_minor_page_faults_total", "g", &[("threadname", "flap")]);
                    // Threads are read after processes.
                    let of_all = m.group("minor_page_faults_total", "g", &[]);
                    assert!(of_threads <= of_all.map(|n| n + 100.0), "{of_threads:?} {of_all:?}");
                }
            }
        }
    }
}

/// The threads of a process move with it to another group, and their earlier activity stays in the
/// old one.
#[test]
fn threads_move_with_their_process() {
    let test = "threads_move_with_their_process";
    let own = format!("move-{}", std::process::id());
    let (_file, path) =
        config(&format!("process_names: [{{name: '{{{{.Comm}}}}', cmdline: ['{own}$']}}]"));
    let code = "open('/proc/self/comm', 'w').write('old')\n\
        def run():\n open('/proc/thread-self/comm', 'w').write('wrk')\n time.sleep(600)\n\
        for _ in range(3): threading.Thread(target=run, daemon=True).start()\n\
        time.sleep(0.2)\nstep('')\nopen('/proc/self/comm', 'w').write('new')\nstep('')\n";
    for engine in ENGINES {
        let Some(mut moving) = Steps::start(test, code, &[&own]) else { return };
        let exporter = Exporter::start(&[&["--config", &path, "--recheck"][..], engine].concat());
        let count = |m: &Metrics, group| m.group("thread_count", group, &[("threadname", "wrk")]);
        assert_eq!(count(&exporter.scrape(), "old"), Some(3.0));
        moving.next();
        let m = exporter.scrape();
        assert_eq!((count(&m, "old"), count(&m, "new")), (None, Some(3.0)));
        assert_eq!(m.group("thread_count", "new", &[("threadname", "new")]), Some(1.0));
        assert_eq!(m.group("num_threads", "new", &[]), Some(4.0));
    }
}

/// Starts a program that, when told to, execs another one with the same command name.
fn two_lives(test: &str, own: &str) -> Option<Steps> {
    let code = "args = ['python3', '-c', 'import sys; print(flush=True); sys.stdin.readline()']\n\
        step('')\nos.execvp('python3', args + [sys.argv[1] + '-late'])\n";
    Steps::start(test, code, &[own])
}

fn procs(m: &Metrics, group: &str) -> f64 {
    m.group("num_procs", group, &[]).unwrap_or(0.0)
}

/// A process that is first seen before its exec moves to the group of the new program, although its
/// command name stays.
#[test]
fn a_new_process_is_named_by_the_program_that_it_becomes() {
    let test = "a_new_process_is_named_by_the_program_that_it_becomes";
    let own = format!("life-{}", std::process::id());
    let (_file, path) = config(&format!(
        "process_names: [{{name: worker, cmdline: ['{own}-late$']}}, {{name: boot, cmdline: ['{own}$']}}]"
    ));
    for engine in ENGINES {
        let exporter = Exporter::start(&[&["--config", &path][..], engine].concat());
        let Some(mut process) = two_lives(test, &own) else { return };
        let m = exporter.scrape();
        assert_eq!((procs(&m, "boot"), procs(&m, "worker")), (1.0, 0.0));
        process.next();
        let m = exporter.scrape();
        assert_eq!((procs(&m, "boot"), procs(&m, "worker")), (0.0, 1.0));
    }
}

/// With --recheck, changed arguments move a process at any time, whether it overwrote them or runs
/// another program.
#[test]
fn recheck_sees_other_arguments() {
    let test = "recheck_sees_other_arguments";
    let own = format!("again-{}", std::process::id());
    let (_file, path) =
        config(&format!("process_names: [{{name: worker, cmdline: ['{own}-late$']}}]"));
    for engine in ENGINES {
        for (options, want) in [(&["--recheck"][..], 1.0), (&[], 0.0)] {
            let exporter = Exporter::start(&[&["--config", &path][..], options, engine].concat());
            let Some(mut process) = two_lives(test, &own) else { return };
            for _ in 0..3 {
                assert_eq!(procs(&exporter.scrape(), "worker"), 0.0);
            }
            process.next();
            assert_eq!(procs(&exporter.scrape(), "worker"), want, "{options:?}");
        }
    }
}

/// A child without a rule is in the group of its parent.
#[test]
fn children_move_with_their_parent() {
    let test = "children_move_with_their_parent";
    let own = format!("kin-{}", std::process::id());
    let (_file, path) = config(&format!(
        "process_names: [{{name: worker, cmdline: ['{own}-late$']}}, {{name: boot, cmdline: ['{own}$']}}]"
    ));
    let code = "args = ['python3', '-c', 'import sys; print(flush=True); sys.stdin.readline()']\n\
        import subprocess\nchild = subprocess.Popen(['sleep', '600'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n\
        step('')\nos.execvp('python3', args + [sys.argv[1] + '-late'])\n";
    for engine in ENGINES {
        let exporter = Exporter::start(&[&["--config", &path, "--recheck"][..], engine].concat());
        let Some(mut process) = Steps::start(test, code, &[&own]) else { return };
        wait("the child", || {
            let m = exporter.scrape();
            (procs(&m, "boot") == 2.0).then_some(())
        });
        exporter.scrape();
        let children =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.child.id()));
        process.next();
        let m = exporter.scrape();
        for pid in children.expect("it lives").split_whitespace() {
            let _ = Command::new("kill").arg(pid).status();
        }
        assert_eq!((procs(&m, "boot"), procs(&m, "worker")), (0.0, 2.0));
    }
}
