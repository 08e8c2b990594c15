//! Columns from the path of a task's control group: units of systemd, containers, pods.
//! [`crate::cgroup`] parses the path.

use std::borrow::Cow;

use taskdiag_wire::{Group, Groups};

use super::super::*;
use crate::cgroup::{self, Container};
use crate::containers::{ContainerNames, Named};

/// A value from the path that systemd uses.
fn of_systemd<'a>(row: &Row<'a>, get: impl FnOnce(&'a [u8]) -> Option<Cow<'a, [u8]>>) -> Value<'a> {
    if row.cgroup.is_none() {
        return row.missing(Group::Cgroup);
    }
    match cgroup::of_systemd(row.view.cgroups()).and_then(get) {
        Some(data) => Value::Bytes { data, cut: false },
        None => Value::ABSENT,
    }
}

/// A value from any of its paths, that of v2 first.
fn of_any<'a, T>(row: &Row<'a>, get: impl Fn(&'a [u8]) -> Option<T>) -> Result<T, Value<'static>> {
    if row.cgroup.is_none() {
        return Err(row.missing(Group::Cgroup));
    }
    if let Some(found) = row.unified.and_then(&get) {
        return Ok(found);
    }
    let v2 = row.view.cgroups().filter(|c| c.0 == 0 && row.unified.is_none());
    let others = row.view.cgroups().filter(|c| c.0 != 0);
    let paths = v2.chain(others).filter_map(|(_, entry)| cgroup::path_of(entry));
    paths.into_iter().find_map(get).ok_or(Value::ABSENT)
}

fn container<'a>(row: &Row<'a>, get: impl FnOnce(Container<'a>) -> Value<'a>) -> Value<'a> {
    of_any(row, cgroup::container).map_or_else(|missing| missing, get)
}

fn id(c: Container<'_>) -> Value<'_> {
    Value::Bytes { data: c.id, cut: false }
}

/// A name as a value.
pub fn value_of(name: &Named) -> Value<'static> {
    match name {
        Ok(name) => Value::Bytes { data: Cow::Owned(name.to_vec()), cut: false },
        Err(reason) => Value::Missing(Missing::Reason(*reason)),
    }
}

/// A name of the container or pod that the task is in.
fn named<'a>(cx: &Context, row: &Row<'a>, get: impl Fn(&ContainerNames) -> &Named) -> Value<'a> {
    let value = |names: &ContainerNames| value_of(get(names));
    of_any(row, |path| cx.containers.with(path, value)).unwrap_or_else(|missing| missing)
}

fn lxc(c: Container<'_>) -> Value<'_> {
    match c.runtime {
        Some("lxc") => Value::Bytes { data: c.id, cut: false },
        _ => Value::ABSENT,
    }
}

fn pod<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of_any(row, cgroup::pod)
        .map_or_else(|missing| missing, |data| Value::Bytes { data, cut: false })
}

fn owner(_: &Context, row: &Row<'_>) -> Value<'static> {
    if row.cgroup.is_none() {
        return row.missing(Group::Cgroup);
    }
    let uid = cgroup::of_systemd(row.view.cgroups()).and_then(cgroup::owner);
    uid.map_or(Value::ABSENT, |uid| Value::Uint(uid.into()))
}

macro_rules! systemd {
    ($name:literal $header:literal $width:literal $what:literal $get:expr) => {
        row!($name $header $width Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup", $what, {},
            |_, row| of_systemd(row, $get))
    };
}

/// The name, or the id where no name is known. Otherwise, containers without a name would be added
/// up with the processes of no container.
fn name_or<'a>(name: Value<'a>, id: impl FnOnce() -> Value<'a>) -> Value<'a> {
    match name {
        Value::Missing(_) => match id() {
            Value::Missing(_) => name,
            id => id,
        },
        name => name,
    }
}

/// Where names of containers come from.
const FILES: &str = "files of the runtime, found by /proc/PID/cgroup";

macro_rules! named {
    ($name:literal $header:literal $width:literal $what:literal $member:ident) => {
        row!($name $header $width Left [CGROUP(below_root)] Text None Plain, FILES, $what, {},
            |cx, row| named(cx, row, |n| &n.$member))
    };
}

/// What `--by container` adds up by.
pub static CONTAINER_NAME_OR_ID: Field = row!("container_name" "CNAME" 20 Left [CGROUP(below_root)] Text None Plain,
    FILES, "Name of its container, or the id if no name is known", {},
    |cx, row| name_or(named(cx, row, |n| &n.name), || container(row, id)));

/// What `--by pod` adds up by.
pub static POD_NAME_OR_UID: Field = row!("pod_name" "PODNAME" 30 Left [CGROUP(below_root)] Text None Plain,
    FILES, "Name of its Kubernetes pod, or the uid if no name is known", {},
    |cx, row| name_or(named(cx, row, |n| &n.pod_name), || pod(cx, row)));

pub const FIELDS: &[Field] = &[
    systemd!("unit" "UNIT" 31 "Unit of systemd" |p| cgroup::unit(p).map(Cow::Borrowed)),
    systemd!("uunit" "UUNIT" 31 "Unit of the user's own systemd"
        |p| cgroup::user_unit(p).map(Cow::Borrowed)),
    systemd!("slice" "SLICE" 31 "Slice of systemd; -.slice is the root of all"
        |p| Some(Cow::Borrowed(cgroup::slice(p)))),
    systemd!("lsession" "SESSION" 11 "Login session of systemd"
        |p| cgroup::session(p).map(Cow::Borrowed)),
    systemd!("machine" "MACHINE" 31 "Virtual machine or container, as known to systemd-machined"
        cgroup::machine),
    row!("ouid" "OWNER" 5 Left [CGROUP(below_root)] Integer None Plain, "/proc/PID/cgroup",
        "Uid of the user whose systemd slice it is in", {}, owner),
    row!("container" "CONTAINER" 12 Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup",
        "Id of its container, or the name if its runtime only has names",
        {"container_id" "CONTAINER"},
        |_, row| container(row, id)),
    row!("runtime" "RUNTIME" 10 Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup",
        "Runtime of its container: docker, podman, containerd, cri-o, lxc, nspawn, libvirt-lxc, buildkit, garden, kata, mesos, nomad, rkt", {},
        |_, row| container(row, |c| c.runtime.map_or(Value::UNKNOWN, Value::Word))),
    row!("pod" "POD" 36 Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup",
        "Uid of its Kubernetes pod", {"pod_uid" "POD"}, pod),
    named!("container_name" "CNAME" 20 "Name of its container" name),
    named!("image" "IMAGE" 30 "Name of the image of its container" image),
    named!("pod_name" "PODNAME" 30 "Name of its Kubernetes pod" pod_name),
    named!("pod_namespace" "NAMESPACE" 16 "Kubernetes namespace of its pod" pod_namespace),
    named!("container_runtime" "CRUNTIME" 10
        "Runtime of its container, also where only the files of the runtime tell it" runtime),
    row!("lxc" "LXC" 8 Left [CGROUP(below_root)] Text None Plain, "/proc/PID/cgroup",
        "Name of its LXC container", {}, |_, row| container(row, lxc)),
];
