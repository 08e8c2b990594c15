//! I/O, context switches and delays.

use taskdiag_wire::{Group, Groups};

use super::super::*;

macro_rules! io {
    ($name:literal $header:literal $unit:ident $source:literal $what:literal $member:ident
     {$($alias:literal $ah:literal),*}) => {
        row!($name $header 5 Right [IO] Integer $unit Plain, $source, $what,
            {$($alias $ah),*}, uint!(Io io.$member))
    };
}
macro_rules! delay {
    ($name:literal $header:literal $source:literal $what:literal $member:ident) => {
        row!($name $header 9 Right [DELAYS] Number Seconds Clock, concat!("taskstats ", $source),
            concat!($what, "; of live threads, with kernel.task_delayacct"), {},
            member!(Delays delays.$member, Value::Nanos))
    };
}
macro_rules! switches {
    ($name:literal $header:literal $source:literal $what:literal $member:ident) => {
        row!($name $header 5 Right [SCHED] Integer Count Plain, $source, $what, {},
            uint!(Sched sched.$member))
    };
}

pub const FIELDS: &[Field] = &[
    io!("rchar" "RCHARS" Bytes "/proc/PID/io rchar" "Bytes through read calls" rchar
        {"rchars" "RCHARS"}),
    io!("wchar" "WCHARS" Bytes "/proc/PID/io wchar" "Bytes through write calls" wchar
        {"wchars" "WCHARS"}),
    io!("syscr" "ROPS" Count "/proc/PID/io syscr" "Read calls" syscr {"rops" "ROPS"}),
    io!("syscw" "WOPS" Count "/proc/PID/io syscw" "Write calls" syscw {"wops" "WOPS"}),
    io!("read_bytes" "RBYTES" Bytes "/proc/PID/io read_bytes" "Bytes read from storage" read_bytes
        {"rbytes" "RBYTES"}),
    io!("write_bytes" "WBYTES" Bytes "/proc/PID/io write_bytes" "Bytes written to storage"
        write_bytes {"wbytes" "WBYTES"}),
    io!("cancelled_write_bytes" "WCBYTES" Bytes "/proc/PID/io cancelled_write_bytes"
        "Bytes whose write was cancelled by truncation" cancelled_write_bytes
        {"wcbytes" "WCBYTES"}),
    row!("run_time" "RUNTIME" 8 Right [SCHED] Number Seconds Clock, "/proc/PID/schedstat 1",
        "Time on a CPU, with that of threads that have ended", {}, member!(Sched sched.run_time_ns, Value::Nanos)),
    row!("run_delay" "RUNDELAY" 8 Right [SCHED] Number Seconds Clock, "/proc/PID/schedstat 2",
        "Time ready and waiting for a CPU; of live threads", {},
        member!(Sched sched.run_delay_ns, Value::Nanos)),
    delay!("delay_cpu" "D-CPU" "cpu_delay_total"
        "Time ready and waiting for a CPU" cpu_ns),
    delay!("delay_io" "D-IO" "blkio_delay_total"
        "Time waiting for block I/O" io_ns),
    delay!("delay_swapin" "D-SWAP" "swapin_delay_total"
        "Time waiting for pages to come from swap" swapin_ns),
    delay!("delay_reclaim" "D-RECL" "freepages_delay_total"
        "Time waiting for memory to be freed" reclaim_ns),
    delay!("delay_thrashing" "D-THRA" "thrashing_delay_total"
        "Time waiting for pages that were dropped a moment ago" thrashing_ns),
    delay!("delay_compact" "D-COMP" "compact_delay_total"
        "Time waiting for memory to be compacted" compact_ns),
    delay!("delay_wpcopy" "D-COPY" "wpcopy_delay_total"
        "Time waiting for copies of pages, as after fork(2)" wpcopy_ns),
    delay!("delay_irq" "D-IRQ" "irq_delay_total"
        "Time that interrupts took from it" irq_ns),
    switches!("timeslices" "SLICES" "/proc/PID/schedstat 3" "Times it got a CPU; of live threads"
        timeslices),
    switches!("nvcsw" "VCSW" "/proc/PID/status voluntary_ctxt_switches"
        "Voluntary context switches, with those of threads that have ended; if there were any, \
         they are unknown from /proc" nvcsw),
    switches!("nivcsw" "IVCSW" "/proc/PID/status nonvoluntary_ctxt_switches"
        "Involuntary context switches, with those of threads that have ended, as for nvcsw" nivcsw),
];
