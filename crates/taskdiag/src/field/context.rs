//! The data that a field needs in addition to the task: the clock and size of the machine that
//! answered, and names of users and terminals on the machine that reads. If both are the same
//! machine, its NUMA nodes, the names of its containers and the holders that threads wait for are
//! known, too.

use taskdiag_wire::{Info, Strategy};

use super::contained::ContainerLookup;
use super::held::HolderLookup;
use super::localtime::{Local, LocalTime};
use super::names::OwnerNames;
use super::nodes::Nodes;
use super::tty::Ttys;
use super::value::{Missing, Value};
use crate::calendar::since_boot;
use crate::snapshot::Snapshot;

/// Facts for reading and printing the tasks of one answer.
#[derive(Debug)]
pub struct Context {
    /// Head of the answer.
    pub info: Info,
    /// Is each task a thread?
    pub threads: bool,
    /// How long the answer took, counted from the time in its head, ns. `None`: not known.
    pub took_ns: Option<u64>,
    /// Names of users and groups.
    pub names: OwnerNames,
    pub(super) containers: ContainerLookup,
    pub(super) holders: HolderLookup,
    pub(super) ttys: Ttys,
    /// `None`: the answer may come from another machine.
    nodes: Option<Nodes>,
    pub(super) local: LocalTime,
    now_local: Local,
}

impl Context {
    /// The context of an answer with this head.
    pub fn new(info: &Info, threads: bool) -> Context {
        let local = LocalTime::default();
        let now_local = local.at((info.realtime_ns / 1_000_000_000) as i64);
        Context {
            info: *info,
            threads,
            took_ns: None,
            names: OwnerNames::default(),
            containers: ContainerLookup::default(),
            holders: HolderLookup::default(),
            ttys: Ttys::default(),
            nodes: None,
            local,
            now_local,
        }
    }
    /// The context of an answer that took this long. `threads`: each task is a thread.
    pub fn of(snapshot: &Snapshot, threads: bool) -> Context {
        let took = snapshot.took().map(|t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        // An answer that was just made is from this machine. A saved one may be from any machine.
        let nodes = took.map(|_| Nodes::default());
        let containers = ContainerLookup::of(snapshot);
        let new = Context::new(snapshot.stream().info(), threads);
        let holders = HolderLookup::of(snapshot);
        Context { took_ns: took, nodes, containers, holders, ..new }
    }
    /// The value for a task that shares something with no other process of the answer. It may share
    /// it with a process that was not requested, which is not known.
    pub(super) fn shared_with_nobody(&self) -> Value<'static> {
        match Strategy::from_number(self.info.dump_strategy) {
            Some(Strategy::All | Strategy::AllThread) => Value::ABSENT,
            _ => Value::Missing(Missing::NotAsked),
        }
    }
    /// An instant (ns since boot) in ns since 1970.
    pub fn unix_ns(&self, instant_ns: u64) -> i128 {
        let boot_ns = i128::from(self.info.realtime_ns) - i128::from(self.info.boottime_ns);
        boot_ns + i128::from(since_boot(instant_ns))
    }
    /// Name of a terminal by its device number, without `/dev/`; `?` for 0.
    pub fn tty_name(&self, dev: u32) -> Vec<u8> {
        let mut out = Vec::new();
        self.ttys.write(&mut out, dev);
        out
    }
    /// The NUMA node of a processor, from `/sys/devices/system/node`. `None` for a saved answer,
    /// which may be from another machine, and for a processor without a node.
    pub fn numa_node(&self, cpu: u32) -> Option<u32> {
        self.nodes.as_ref()?.of(cpu)
    }
    /// An instant in whole seconds since 1970. Boot time and instant are each rounded down first,
    /// as procps does, so that both show the same second.
    pub fn unix_seconds_floor(&self, instant_ns: u64) -> i64 {
        // Untrusted streams may have any number here. Numbers of a real clock are far from the
        // limits.
        let boot_ns = i128::from(self.info.realtime_ns) - i128::from(self.info.boottime_ns);
        boot_ns.div_euclid(1_000_000_000) as i64 + since_boot(instant_ns).div_euclid(1_000_000_000)
    }
    /// The moment of the answer in seconds since 1970.
    pub fn now(&self) -> i64 {
        (self.info.realtime_ns / 1_000_000_000) as i64
    }
    pub(super) fn now_local(&self) -> Local {
        self.now_local
    }
    /// How long ago an instant was, ns; 0 for one in the future.
    pub fn age_ns(&self, instant_ns: u64) -> u64 {
        let age = i128::from(self.info.boottime_ns) - i128::from(since_boot(instant_ns));
        u64::try_from(age.max(0)).unwrap_or(u64::MAX)
    }
}
