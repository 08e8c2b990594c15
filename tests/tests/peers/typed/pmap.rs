//! Arguments of pmap.

/// A process whose program has a newline in its name.
pub const PMAP_OF_ODD_NAMES: &[&str] = &[
    "-p $(run pgrep -u 4243 -f 7041)",
    "-x $(run pgrep -u 4243 -f 7041)",
    "-d $(run pgrep -u 4243 -f 7041)",
];

pub const PMAP: &[&str] = &[
    "$PID_sleep",
    "1 $PID_sleep",
    "$PID_sleep 1",
    "$PID_memory",
    "-x $PID_sleep",
    "-x $PID_memory",
    "-x $PID_memory $PID_sleep",
    "-d $PID_sleep",
    "-d $PID_memory",
    "-q $PID_sleep",
    "-qx $PID_sleep",
    "-qd $PID_sleep",
    "-p $PID_sleep",
    "-xp $PID_memory",
    "-dp $PID_memory",
    "-X $PID_sleep",
    "-X $PID_memory",
    "-Xp $PID_sleep",
    "-Xq $PID_sleep",
    "-XX $PID_sleep",
    "-A 7f0000000000 $PID_sleep",
    "-A 0,7f0000000000 $PID_sleep",
    "-x 99999",
    "$PID_sleep 99999",
    "",
    "abc",
    "-x -d $PID_sleep",
    "-Z $PID_sleep",
    "/proc/$PID_sleep",
    "$PID_sleep -x",
    "--extended $PID_sleep",
    "--show-path --device $PID_sleep",
    "$PID_threads",
    "-x $PID_threads $PID_stopped",
    "-X $PID_threads",
    "-Xpq $PID_stopped",
    "-xpq $PID_creds",
    "-d $PID_creds 99999",
    "-x 1",
    "-X 1",
];

/// Without sums over pages, which BPF does not have.
pub const PMAP_BY_BPF: &[&str] = &[
    "$PID_sleep",
    "$PID_memory",
    "$PID_threads $PID_creds",
    "-d $PID_memory",
    "-p $PID_threads",
    "-dpq $PID_stopped",
    "99999",
];
