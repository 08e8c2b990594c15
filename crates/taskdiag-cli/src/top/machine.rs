//! The machine as a whole: load, CPU time, memory. They come from five short files of /proc, not
//! from a request.

use std::fs;

use taskdiag::wire::Info;

/// The content of these files. `None`: it could not be read.
#[derive(Clone, Debug, Default)]
pub struct Machine {
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
    /// Memory in KiB, by the kernel's names.
    memory: Vec<(String, u64)>,
}

impl Machine {
    /// Read it.
    pub fn read() -> Machine {
        Machine::of(|name| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default())
    }
    /// From the texts of files in /proc, by name. An empty text is a file that cannot be read.
    fn of(text: impl Fn(&str) -> String) -> Machine {
        let (uptime, load, stat) = (text("uptime"), text("loadavg"), text("stat"));
        let mut machine = Machine {
            uptime_s: uptime.split('.').next().and_then(|s| s.parse().ok()),
            ..Machine::default()
        };
        let words: Vec<&str> = load.split_whitespace().collect();
        if let [one, five, fifteen, tasks, ..] = words[..] {
            machine.load = Some(format!("{one} {five} {fifteen}"));
            machine.threads = tasks.split_once('/').and_then(|t| t.1.parse().ok());
        }
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            match words.next().unwrap_or_default() {
                "cpu" => {
                    let mut times = [0; 8];
                    let mut given = words.map_while(|w| w.parse().ok());
                    times.iter_mut().for_each(|t| *t = given.next().unwrap_or(0));
                    machine.cpu = Some(times);
                }
                "processes" => machine.forks = words.next().and_then(|w| w.parse().ok()),
                name if name.starts_with("cpu") => {
                    machine.cpus = Some(machine.cpus.unwrap_or(0) + 1)
                }
                _ => {}
            }
        }
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
        let (new, old) = (self.cpu?, old.cpu?);
        let used: [u64; 8] = std::array::from_fn(|i| new[i].saturating_sub(old[i]));
        let all: u64 = used.iter().sum();
        (all > 0).then(|| used.map(|ticks| ticks as f64 * 100.0 / all as f64))
    }
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
