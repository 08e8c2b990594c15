//! Namespaces and control groups.

use std::borrow::Cow;

use taskdiag_wire::{Group, Groups};

use super::super::*;

fn nspid(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.view.nspid() {
        Some(ids) => Value::Ids(ids),
        None => row.missing(Group::Ns),
    }
}

/// As in procps: the control groups below the root, with a comma between hierarchies, as `0::/path`
/// or `id:controllers:/path`.
fn cgroup<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    let mut out = Vec::new();
    for (id, entry) in row.view.cgroups() {
        // The root of a hierarchy carries no information.
        if entry.ends_with(b":/") {
            continue;
        }
        if !out.is_empty() {
            out.push(b',');
        }
        write_uint(&mut out, u64::from(id));
        out.push(b':');
        out.extend_from_slice(entry);
    }
    if out.is_empty() {
        return row.cgroup.map_or_else(|| row.missing(Group::Cgroup), |_| Value::ABSENT);
    }
    Value::Bytes { data: Cow::Owned(out), cut: false }
}

/// The path in the v2 hierarchy.
fn cgroup_path<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    let v2 = row.view.cgroups().find(|(id, _)| *id == 0);
    match v2.and_then(|(_, entry)| entry.strip_prefix(b":")) {
        Some(path) => Value::bytes(path),
        None if row.cgroup.is_some() => Value::ABSENT,
        None => row.missing(Group::Cgroup),
    }
}

macro_rules! ns {
    ($name:literal $header:literal $what:literal $source:literal $member:ident) => {
        row!($name $header 10 Right [BASE(state) NS] Integer None Plain, $source, $what, {},
            |_, row| match row.ns {
                Some(ns) => match ns.$member() {
                    Some(inode) => Value::Uint(u64::from(inode)),
                    // A task that has exited has left most of its namespaces.
                    None if row.is_zombie() => Value::ABSENT,
                    None => Value::UNKNOWN,
                },
                None => row.missing(Group::Ns),
            })
    };
}

macro_rules! ns_id {
    ($name:literal $header:literal $what:literal $source:literal $member:ident) => {
        row!($name $header 10 Right [BASE(state) NS_ID] Integer None Plain, $source,
            concat!("Number of its ", $what, ", which no other namespace gets until the next boot (Linux 6.18)"), {},
            |_, row| match row.ns_id {
                Some(ids) => match ids.$member() {
                    Some(id) => Value::Uint(id),
                    None if row.is_zombie() => Value::ABSENT,
                    None => Value::UNKNOWN,
                },
                None => row.missing(Group::NsId),
            })
    };
}

pub const FIELDS: &[Field] = &[
    ns!("cgroupns" "CGROUPNS" "Inode of its cgroup namespace" "/proc/PID/ns/cgroup" cgroup),
    ns!("ipcns" "IPCNS" "Inode of its ipc namespace" "/proc/PID/ns/ipc" ipc),
    ns!("mntns" "MNTNS" "Inode of its mount namespace" "/proc/PID/ns/mnt" mnt),
    ns!("netns" "NETNS" "Inode of its network namespace" "/proc/PID/ns/net" net),
    ns!("pidns" "PIDNS" "Inode of its pid namespace" "/proc/PID/ns/pid" pid),
    ns!("pidns_children" "PIDNSCH" "Inode of the pid namespace of its children"
        "/proc/PID/ns/pid_for_children" pid_for_children),
    ns!("timens" "TIMENS" "Inode of its time namespace" "/proc/PID/ns/time" time),
    ns!("timens_children" "TIMENSCH" "Inode of the time namespace of its children"
        "/proc/PID/ns/time_for_children" time_for_children),
    ns!("userns" "USERNS" "Inode of its user namespace" "/proc/PID/ns/user" user),
    ns!("utsns" "UTSNS" "Inode of its uts namespace" "/proc/PID/ns/uts" uts),
    ns_id!("cgroupns_id" "CGROUPNSID" "cgroup namespace" "NS_GET_ID of /proc/PID/ns/cgroup" cgroup),
    ns_id!("ipcns_id" "IPCNSID" "ipc namespace" "NS_GET_ID of /proc/PID/ns/ipc" ipc),
    ns_id!("mntns_id" "MNTNSID" "mount namespace" "NS_GET_ID of /proc/PID/ns/mnt" mnt),
    ns_id!("netns_id" "NETNSID" "network namespace" "NS_GET_ID of /proc/PID/ns/net" net),
    ns_id!("pidns_id" "PIDNSID" "pid namespace" "NS_GET_ID of /proc/PID/ns/pid" pid),
    ns_id!("timens_id" "TIMENSID" "time namespace" "NS_GET_ID of /proc/PID/ns/time" time),
    ns_id!("userns_id" "USERNSID" "user namespace" "NS_GET_ID of /proc/PID/ns/user" user),
    ns_id!("utsns_id" "UTSNSID" "uts namespace" "NS_GET_ID of /proc/PID/ns/uts" uts),
    row!("nspid" "NSPID" 8 Left [NS] IntegerList None Plain, "/proc/PID/status NSpid",
        "Its id in each pid namespace, the reader's first", {}, nspid),
    row!("cgroup" "CGROUP" 27 Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup",
        "Control groups of all hierarchies, except for roots, id:controllers:path", {}, cgroup),
    row!("cgroup_path" "CGROUP" 27 Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup",
        "Path of its v2 control group", {}, cgroup_path),
    row!("cgroupid" "CGROUPID" 8 Right [CGROUP(below_root)] Integer None Plain, "kernfs id of the cgroup",
        "Inode of the directory of its v2 control group", {}, uint!(Cgroup cgroup.id)),
];
