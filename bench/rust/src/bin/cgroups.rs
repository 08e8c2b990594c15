//! Lists cgroups, from files that are opened each time and from files that stay open, and prints
//! the median and the least CPU time of each in us: `cgroups LISTS`. With a directory after it,
//! only that hierarchy of version 2 is read.
//!
//! `cgroups make NAME COUNT` makes COUNT cgroups below a new one in each hierarchy, and `cgroups
//! remove NAME COUNT` removes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use taskdiag::cgroups::{Bounds, Files, Session};

/// The files of the default columns of `taskdiag cgroups`.
const DEFAULT: Files = Files::CPU_STAT
    .union(Files::TASK_COUNT)
    .union(Files::MEMORY_CURRENT)
    .union(Files::MEMORY_MAX)
    .union(Files::MEMORY_EVENTS)
    .union(Files::MEMORY_PRESSURE);

fn groups(name: &str, count: usize) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let points = mounts.lines().filter(|l| l.contains(" - cgroup") && !l.contains("cpuset"));
    let mut all = Vec::new();
    for point in points.filter_map(|l| l.split(' ').nth(4)) {
        let top = PathBuf::from(point).join(name);
        all.push(top.clone());
        // As units are in slices: twenty in each.
        for n in 0..count {
            let slice = top.join(format!("s{}.slice", n / 20));
            if n % 20 == 0 {
                all.push(slice.clone());
            } else {
                all.push(slice.join(format!("u{n}.service")));
            }
        }
    }
    all
}

/// The CPU time of this process. Other programs make the time that passes longer.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let lists: usize = match words[..] {
        ["make", name, count] => {
            for dir in groups(name, count.parse().expect("a number")) {
                std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
                // In version 2, controllers are enabled from the top on.
                let control = dir.parent().expect("below the root").join("cgroup.subtree_control");
                for controller in ["+cpu", "+memory", "+pids", "+io"] {
                    let _ = std::fs::write(&control, controller);
                }
            }
            return;
        }
        ["remove", name, count] => {
            for dir in groups(name, count.parse().expect("a number")).iter().rev() {
                let _ = std::fs::remove_dir(dir);
            }
            return;
        }
        [lists] | [lists, _] => lists.parse().expect("a number"),
        _ => panic!("cgroups LISTS [DIR] | make NAME COUNT | remove NAME COUNT"),
    };
    for (what, files) in [
        ("directories", Files::NONE),
        ("cgroup.procs", Files::PROCS),
        ("cpu.stat", Files::CPU_STAT),
        ("memory.current", Files::MEMORY_CURRENT),
        ("memory.stat", Files::MEMORY_STAT),
        ("memory.pressure", Files::MEMORY_PRESSURE),
        ("default", DEFAULT),
        ("all", Files::ALL),
    ] {
        for (how, descriptors) in [("opened", 0), ("held", usize::MAX)] {
            let (bounds, most) = (Bounds::default(), descriptors.min(Session::descriptors()));
            let session = match words.get(1) {
                Some(dir) => Session::at(Some(Path::new(dir)), &[], files, bounds, most),
                None => Session::new(files, bounds, most),
            };
            let mut session = session.expect("cgroups are mounted");
            let (mut times, mut count, mut calls) = (Vec::new(), 0, 0);
            for turn in 0..=lists {
                let begin = cpu_time();
                let all = session.list().expect("it can be read");
                let time = cpu_time() - begin;
                (count, calls) = (all.list().len(), all.syscalls());
                // The first one opens the files.
                if turn > 0 {
                    times.push(time);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            times.sort();
            let us = |t: Duration| t.as_micros();
            let (median, least) = (us(times[times.len() / 2]), us(times[0]));
            println!(
                "{what}\t{how}\t{count} cgroups\t{calls} calls\t{median} us\t{least} us at least"
            );
        }
    }
}
