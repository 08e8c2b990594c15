//! Activity of one task between two answers. [`Rates`](crate::Rates) makes it.

/// A value that is not known.
pub(crate) const NONE: u64 = u64::MAX;
use std::collections::HashMap;

/// The number of counters.
pub(crate) const RATES: usize = 9;

/// Activity of a task since the previous answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate<'a> {
    interval_ns: u64,
    still_ns: u64,
    counters: [u64; RATES],
    sockets: &'a SocketGrowth,
    gpu: &'a GpuGrowth,
}

/// The bytes sent and received over each socket since the previous answer, by inode.
pub(crate) type SocketGrowth = HashMap<u64, [u64; 2]>;

/// The growth of the counters of each GPU engine of each client, by the key of the engine and
/// client.
pub(crate) type GpuGrowth = HashMap<u64, [u64; 3]>;

/// A getter of one counter.
macro_rules! counter {
    ($(#[$m:meta])* $name:ident $at:literal) => {
        $(#[$m])*
        pub fn $name(&self) -> Option<u64> {
            Some(self.counters[$at]).filter(|v| *v != NONE)
        }
    };
}

impl<'a> Rate<'a> {
    /// `counters` are in the order of the getters below; [`NONE`] is a value that is not known.
    pub(crate) fn new(
        interval_ns: u64,
        still_ns: u64,
        counters: [u64; RATES],
        sockets: &'a SocketGrowth,
        gpu: &'a GpuGrowth,
    ) -> Rate<'a> {
        Rate { interval_ns, still_ns, counters, sockets, gpu }
    }
    /// Bytes sent and received over the TCP connection with this inode. `None`: an answer lacks it.
    pub(crate) fn socket(&self, inode: u64) -> Option<[u64; 2]> {
        self.sockets.get(&inode).copied()
    }
    /// Busy time, cycles and all cycles of the engine with this key. `None`: an answer lacks it.
    pub(crate) fn gpu(&self, key: u64) -> Option<[u64; 3]> {
        self.gpu.get(&key).copied()
    }
    /// Time between the starts of the two answers, ns, even for a task that began in between. 0:
    /// there was no previous answer.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }
    /// The minimum time that the task has been in its state without using CPU time, ns: since the
    /// first answer that showed it so.
    pub fn still_ns(&self) -> u64 {
        self.still_ns
    }
    counter!(
        /// CPU time in user mode, ns. `None`, here and below: an answer lacks STAT.
        user_ns 0
    );
    counter!(
        /// CPU time in the kernel, ns.
        system_ns 1
    );
    counter!(
        /// Minor faults.
        minflt 2
    );
    counter!(
        /// Major faults.
        majflt 3
    );
    counter!(
        /// Bytes read from storage; needs IO.
        read_bytes 4
    );
    counter!(
        /// Bytes written to storage; needs IO.
        write_bytes 5
    );
    counter!(
        /// Voluntary context switches; needs SCHED.
        nvcsw 6
    );
    counter!(
        /// Involuntary context switches; needs SCHED.
        nivcsw 7
    );
    counter!(
        /// Time ready and waiting for a CPU, ns; needs SCHED.
        run_delay_ns 8
    );
    /// CPU time, ns.
    pub fn cpu_ns(&self) -> Option<u64> {
        Some(self.user_ns()?.saturating_add(self.system_ns()?))
    }
}
