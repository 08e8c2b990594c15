//! The owner of a task, and its rights.

use taskdiag_wire::{Group, Groups};

use super::super::*;

fn supplementary(row: &Row<'_>) -> Result<Vec<u32>, Value<'static>> {
    match (row.view.groups(), row.cred) {
        (Some(ids), _) => Ok(ids),
        (None, Some(cred)) if cred.ngroups() == Some(0) => Ok(Vec::new()),
        (None, Some(_)) => Err(Value::UNKNOWN),
        (None, None) => Err(row.missing(Group::Cred)),
    }
}

/// The capabilities of linux/capability.h, in its order.
const CAPS: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The names of a set of capabilities, as in procps. A capability that has no name yet is shown as
/// a number.
fn cap_names(set: u64) -> Value<'static> {
    match set {
        0 => return Value::ABSENT,
        v if v == (1 << CAPS.len()) - 1 => return Value::Word("full"),
        _ => {}
    }
    let bits = (0..64).filter(|bit| set & 1 << bit != 0);
    let name = |bit: usize| CAPS.get(bit).map_or_else(|| bit.to_string(), |n| (*n).to_owned());
    let names: Vec<String> = bits.map(name).collect();
    Value::Bytes { data: names.join(",").into_bytes().into(), cut: false }
}

/// A number for which there is no word.
fn short(number: u64) -> Value<'static> {
    let mut s = Short::default();
    s.push_uint(number);
    Value::Short(s)
}

fn seccomp(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.cred.map(|c| c.seccomp()) {
        Some(Some(0)) => Value::Word("off"),
        Some(Some(1)) => Value::Word("strict"),
        Some(Some(2)) => Value::Word("filter"),
        Some(Some(other)) => short(other.into()),
        Some(None) => Value::UNKNOWN,
        None => row.missing(Group::Cred),
    }
}

macro_rules! id {
    ($name:literal $header:literal $what:literal $member:ident {$($alias:literal $ah:literal),*}) => {
        row!($name $header 5 Right [CRED($member)] Integer None Plain, "/proc/PID/status", $what,
            {$($alias $ah),*}, uint!(Cred cred.$member))
    };
}
macro_rules! named {
    ($name:literal $header:literal $what:literal $member:ident $wrap:ident {$($alias:literal $ah:literal),*}) => {
        row!($name $header 8 Left [CRED($member)] Text None Plain, "/proc/PID/status", $what,
            {$($alias $ah),*}, member!(Cred cred.$member, Value::$wrap))
    };
}
macro_rules! caps {
    ($name:literal $header:literal $what:literal $source:literal $member:ident {$($alias:literal $ah:literal),*}) => {
        row!($name $header 16 Right [CRED($member)] Text None Hex, $source, $what,
            {$($alias $ah),*}, member!(Cred cred.$member, Value::Mask))
    };
}

pub const FIELDS: &[Field] = &[
    named!("user" "USER" "Effective user" euid User {"euser" "EUSER", "uname" "USER"}),
    named!("ruser" "RUSER" "Real user" uid User {}),
    named!("suser" "SUSER" "Saved user" suid User {"svuser" "SVUSER"}),
    named!("fuser" "FUSER" "User for file access" fsuid User {"fsuser" "FSUSER"}),
    id!("uid" "UID" "Effective uid" euid {"euid" "EUID"}),
    id!("ruid" "RUID" "Real uid" uid {}),
    id!("suid" "SUID" "Saved uid" suid {"svuid" "SVUID"}),
    id!("fuid" "FUID" "Uid for file access" fsuid {"fsuid" "FSUID"}),
    named!("group" "GROUP" "Effective group" egid Group {"egroup" "EGROUP"}),
    named!("rgroup" "RGROUP" "Real group" gid Group {}),
    named!("sgroup" "SGROUP" "Saved group" sgid Group {"svgroup" "SVGROUP"}),
    named!("fgroup" "FGROUP" "Group for file access" fsgid Group {"fsgroup" "FSGROUP"}),
    id!("gid" "GID" "Effective gid" egid {"egid" "EGID"}),
    id!("rgid" "RGID" "Real gid" gid {}),
    id!("sgid" "SGID" "Saved gid" sgid {"svgid" "SVGID"}),
    id!("fgid" "FGID" "Gid for file access" fsgid {"fsgid" "FSGID"}),
    row!("supgid" "SUPGID" 20 Left [CRED(ngroups)] IntegerList None Plain, "/proc/PID/status Groups",
        "Supplementary gids", {}, |_, r| supplementary(r).map_or_else(|m| m, Value::Ids)),
    row!("supgrp" "SUPGRP" 40 Left [CRED(ngroups)] TextList None Plain, "/proc/PID/status Groups",
        "Supplementary groups", {}, |_, r| supplementary(r).map_or_else(|m| m, Value::GroupList)),
    caps!("cap_eff" "CAP_EFF" "Effective capabilities" "/proc/PID/status CapEff" cap_effective {}),
    caps!("cap_prm" "CAP_PRM" "Permitted capabilities" "/proc/PID/status CapPrm" cap_permitted
        {"pcap" "PCAP"}),
    row!("pcaps" "PCAPS" 16 Right [CRED(cap_permitted)] Text None Plain, "/proc/PID/status CapPrm",
    "Names of the permitted capabilities; full: all that Linux has", {}, |_, r| match r.cred {
        Some(cred) => cred.cap_permitted().map_or(Value::UNKNOWN, cap_names),
        None => r.missing(Group::Cred),
    }),
    caps!("cap_inh" "CAP_INH" "Inheritable capabilities" "/proc/PID/status CapInh" cap_inheritable {}),
    caps!("cap_bnd" "CAP_BND" "Capability bounding set" "/proc/PID/status CapBnd" cap_bounding {}),
    caps!("cap_amb" "CAP_AMB" "Ambient capabilities" "/proc/PID/status CapAmb" cap_ambient {}),
    row!("securebits" "SECUREBITS" 16 Right [CRED(securebits)] Text None Hex, "cred.securebits; not in /proc",
        "The SECBIT_* bits", {}, member!(Cred cred.securebits, |v| Value::Mask(u64::from(v)))),
    row!("nnp" "NNP" 3 Right [CRED(no_new_privs)] Integer None Plain, "/proc/PID/status NoNewPrivs",
        "1: no_new_privs is set", {"no_new_privs" "NNP"}, uint!(Cred cred.no_new_privs)),
    row!("seccomp" "SECCOMP" 7 Left [CRED(seccomp)] Text None Plain, "/proc/PID/status Seccomp",
        "System call filter: off, strict, filter", {}, seccomp),
    row!("tracer" "TRACER" 6 Right [CRED(tracer_pid)] Integer None Pid, "/proc/PID/status TracerPid",
        "Thread id of the ptracer, or 0", {}, uint!(Cred cred.tracer_pid)),
];
