//! Signals, as sets of bits.

use taskdiag_wire::{Group, Groups};

use super::super::*;

macro_rules! signals {
    ($name:literal $header:literal $source:literal $what:literal $member:ident
     {$($alias:literal $ah:literal),*}) => {
        row!($name $header 16 Right [SIGNALS] Text None Signals, $source, $what, {$($alias $ah),*},
            member!(Signals signals.$member, Value::Mask))
    };
}

pub const FIELDS: &[Field] = &[
    signals!("pending" "PENDING" "/proc/PID/status ShdPnd" "Signals pending for the process"
        shared_pending {"sig" "PENDING", "sig_pend" "SIGNAL"}),
    signals!("tsig" "PENDING" "/proc/PID/status SigPnd" "Signals pending for the thread"
        pending {"thread_pending" "PENDING"}),
    signals!("blocked" "BLOCKED" "/proc/PID/status SigBlk" "Signals blocked"
        blocked {"sigmask" "BLOCKED", "sig_block" "BLOCKED"}),
    signals!("ignored" "IGNORED" "/proc/PID/status SigIgn" "Signals ignored"
        ignored {"sigignore" "IGNORED", "sig_ignore" "IGNORED"}),
    signals!("caught" "CAUGHT" "/proc/PID/status SigCgt" "Signals caught"
        caught {"sigcatch" "CAUGHT", "sig_catch" "CATCHED"}),
    row!("sigqueued" "SIGQ" 5 Right [SIGNALS] Integer Count Plain, "/proc/PID/status SigQ",
        "Signals queued for its real user", {},
        member!(Signals signals.queued, |v| Value::Uint(u64::from(v)))),
];
