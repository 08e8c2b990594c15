//! The machine as a whole: its name, load, CPU time, memory, pressure. They come from short files
//! of /proc, not from a request.

use std::fs;
use std::time::Instant;

use taskdiag::wire::Info;

/// The resources for which the kernel measures pressure, as its files are called.
pub const PRESSURES: [&str; 3] = ["cpu", "memory", "io"];

/// How long tasks have waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// The time in which at least one task waited for it, since boot, us.
    some_us: u64,
    /// Time in which all tasks with work waited. The kernel does not have it for the CPUs of a
    /// whole machine.
    full_us: Option<u64>,
    /// The averages of the last ten seconds, in percent.
    some: f64,
    full: Option<f64>,
}

/// The content of the files about the machine. `None`: the file could not be read.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The host name of our own UTS namespace.
    pub host: Option<String>,
    /// Are we in another pid namespace than that of the whole machine? Then the counts of
    /// /proc/loadavg and /proc/stat are not those of the tasks that are shown.
    pub is_inner: bool,
    /// Time since boot, s.
    pub uptime_s: Option<u64>,
    /// The three load averages, as the kernel writes them.
    pub load: Option<String>,
    /// All threads.
    pub threads: Option<u64>,
    /// CPU time in ticks: user, nice, system, idle, iowait, irq, softirq, steal.
    pub cpu: Option<[u64; 8]>,
    /// CPUs that are on.
    pub cpus: Option<usize>,
    /// Processes and threads created since boot.
    pub forks: Option<u64>,
    /// The CPU times of each online CPU, with its number.
    pub each: Vec<(u32, [u64; 8])>,
    /// Memory in KiB, by the kernel's names.
    memory: Vec<(String, u64)>,
    /// Of [`PRESSURES`].
    pressures: [Option<Pressure>; 3],
    /// When this was read.
    at: Option<Instant>,
}

/// The number of the first pid namespace, PROC_PID_INIT_INO of the kernel.
const FIRST_PIDNS: &str = "pid:[4026531836]";

impl Machine {
    /// Read it.
    pub fn read() -> Machine {
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let pidns = fs::read_link("/proc/self/ns/pid");
        Machine {
            is_inner: pidns.is_ok_and(|ns| ns.as_os_str() != FIRST_PIDNS),
            at: Some(Instant::now()),
            ..Machine::of(text)
        }
    }
    /// From the texts of files in /proc, by name. An empty text is a file that cannot be read.
    fn of(text: impl Fn(&str) -> String) -> Machine {
        let (uptime, load, stat) = (text("uptime"), text("loadavg"), text("stat"));
        let mut host = Vec::new();
        // The root of a container may choose any bytes.
        taskdiag::field::escape(&mut host, text("sys/kernel/hostname").trim_end().as_bytes());
        let mut machine = Machine {
            host: String::from_utf8(host).ok().filter(|h| !h.is_empty()),
            uptime_s: uptime.split('.').next().and_then(|s| s.parse().ok()),
            pressures: PRESSURES.map(|name| pressure(&text(&format!("pressure/{name}")))),
            ..Machine::default()
        };
        let words: Vec<&str> = load.split_whitespace().collect();
        if let [one, five, fifteen, tasks, ..] = words[..] {
            machine.load = Some(format!("{one} {five} {fifteen}"));
            machine.threads = tasks.split_once('/').and_then(|t| t.1.parse().ok());
        }
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            if name == "processes" {
                machine.forks = words.next().and_then(|w| w.parse().ok());
            }
            let Some(number) = name.strip_prefix("cpu") else { continue };
            let mut times = [0; 8];
            let mut given = words.map_while(|w| w.parse().ok());
            times.iter_mut().for_each(|t| *t = given.next().unwrap_or(0));
            match number.parse() {
                Ok(number) => machine.each.push((number, times)),
                Err(_) if number.is_empty() => machine.cpu = Some(times),
                Err(_) => {}
            }
        }
        machine.cpus = Some(machine.each.len()).filter(|n| *n > 0);
        machine.memory = text("meminfo").lines().filter_map(memory_line).collect();
        machine
    }
    /// From the head of a recorded answer.
    pub fn recorded(info: &Info) -> Machine {
        let memory = (info.mem_total_bytes > 0)
            .then(|| (String::from("MemTotal"), info.mem_total_bytes / 1024));
        Machine {
            uptime_s: Some(info.boottime_ns / 1_000_000_000),
            cpus: (info.ncpus > 0).then_some(info.ncpus as usize),
            memory: memory.into_iter().collect(),
            ..Machine::default()
        }
    }
    /// An amount of memory by the kernel's name, in bytes.
    pub fn memory(&self, name: &str) -> Option<u64> {
        self.memory.iter().find(|(n, _)| n == name).map(|(_, kib)| kib * 1024)
    }
    /// An amount of CPU time as a share of all CPU time since `old`, in percent.
    pub fn shares(&self, old: &Machine) -> Option<[f64; 8]> {
        shares(self.cpu?, old.cpu?)
    }
    /// The shares of each CPU that is online now, with its number. `None`: the CPU was not online
    /// before, or no tick has passed.
    pub fn shares_of_each(&self, old: &Machine) -> Vec<(u32, Option<[f64; 8]>)> {
        let before = |number: u32| {
            // The CPUs are sorted by number.
            let at = old.each.binary_search_by_key(&number, |c| c.0).ok()?;
            Some(old.each[at].1)
        };
        self.each
            .iter()
            .map(|(n, new)| (*n, before(*n).and_then(|old| shares(*new, old))))
            .collect()
    }
    /// The share of the time since `old` in which some task waited for the i-th of [`PRESSURES`],
    /// and in which all did, in percent. Without an older value, these are the averages of ten
    /// seconds.
    pub fn pressure(&self, old: &Machine, i: usize) -> Option<(f64, Option<f64>)> {
        let new = self.pressures[i]?;
        let Some((old, (now, then))) = old.pressures[i].zip(self.at.zip(old.at)) else {
            return Some((new.some, new.full));
        };
        let passed_us = now.saturating_duration_since(then).as_micros() as f64;
        if passed_us < 1000.0 {
            return Some((new.some, new.full));
        }
        let share =
            |new: u64, old: u64| (new.saturating_sub(old) as f64 * 100.0 / passed_us).min(100.0);
        let full = new.full_us.zip(old.full_us).map(|(new, old)| share(new, old));
        Some((share(new.some_us, old.some_us), full))
    }
}

fn shares(new: [u64; 8], old: [u64; 8]) -> Option<[f64; 8]> {
    let used: [u64; 8] = std::array::from_fn(|i| new[i].saturating_sub(old[i]));
    let all: u64 = used.iter().sum();
    (all > 0).then(|| used.map(|ticks| ticks as f64 * 100.0 / all as f64))
}

/// A file of /proc/pressure, with lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure(text: &str) -> Option<Pressure> {
    let of = |kind: &str| {
        let words = text.lines().find_map(|l| l.strip_prefix(kind))?;
        let value = |key: &str| words.split(' ').find_map(|w| w.strip_prefix(key));
        Some((value("total=")?.parse().ok()?, value("avg10=")?.parse().ok()?))
    };
    let ((some_us, some), full) = (of("some ")?, of("full "));
    Some(Pressure { some_us, some, full_us: full.map(|f| f.0), full: full.map(|f| f.1) })
}

/// `MemTotal:  123 kB`
fn memory_line(line: &str) -> Option<(String, u64)> {
    let (name, rest) = line.split_once(':')?;
    Some((name.to_owned(), rest.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_cpu_time() {
        let machine = |cpu| Machine { cpu: Some(cpu), ..Machine::default() };
        let old = machine([10, 0, 10, 100, 0, 0, 0, 0]);
        let shares = machine([40, 0, 20, 160, 0, 0, 0, 0]).shares(&old).expect("time passed");
        assert_eq!(shares, [30.0, 0.0, 10.0, 60.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(old.shares(&old), None);
    }

    #[test]
    fn pressure_is_the_share_of_the_time_since_the_last_refresh() {
        let text = |total: u64| {
            format!(
                "some avg10=1.50 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.25 avg60=0 avg300=0 total=0\n"
            )
        };
        let now = Instant::now();
        let at = |total, ms| Machine {
            pressures: [None, pressure(&text(total)), pressure("")],
            at: Some(now + std::time::Duration::from_millis(ms)),
            ..Machine::default()
        };
        let (old, new) = (at(1_000_000, 0), at(1_500_000, 2000));
        assert_eq!(new.pressure(&old, 1), Some((25.0, Some(0.0))));
        assert_eq!(new.pressure(&Machine::default(), 1), Some((1.5, Some(0.25))));
        assert_eq!((new.pressure(&old, 0), new.pressure(&old, 2)), (None, None));
    }

    #[test]
    fn a_cpu_that_has_just_been_turned_on_has_no_share() {
        let machine = |each: &[(u32, u64)]| Machine {
            each: each.iter().map(|(n, t)| (*n, [*t, 0, 0, *t, 0, 0, 0, 0])).collect(),
            ..Machine::default()
        };
        let new = machine(&[(0, 20), (2, 20), (3, 5)]).shares_of_each(&machine(&[(0, 10), (3, 5)]));
        let user: Vec<_> = new.iter().map(|(n, s)| (*n, s.map(|s| s[0]))).collect();
        assert_eq!(user, [(0, Some(50.0)), (2, None), (3, None)]);
    }

    #[test]
    fn values_that_a_partial_proc_lacks_are_unknown() {
        let machine = Machine::of(|_| String::new());
        assert_eq!((machine.cpus, machine.uptime_s, machine.forks), (None, None, None));
        let stat = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nprocesses 9\n";
        let machine = Machine::of(|name| String::from(if name == "stat" { stat } else { "" }));
        assert_eq!((machine.cpus, machine.forks), (Some(1), Some(9)));
    }

    #[test]
    fn this_machine_has_memory_and_cpus() {
        let machine = Machine::read();
        assert!(machine.memory("MemTotal").is_some_and(|b| b > 0));
        assert!(machine.cpus.is_some_and(|n| n > 0));
        assert!(machine.uptime_s.is_some() && machine.load.is_some() && machine.forks.is_some());
    }
}
