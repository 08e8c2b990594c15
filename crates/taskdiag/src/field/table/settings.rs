//! Settings that a task made for itself, or that others made for it.

use std::fmt::Write as _;

use taskdiag_wire::{A_GID_MAP, A_UID_MAP, Group, Groups, Record, Settings, TaskView};

use super::super::*;

/// IOPRIO_CLASS_SHIFT of linux/ioprio.h.
const CLASS_SHIFT: u32 = 13;

fn ioclass(prio: u32) -> Value<'static> {
    match prio >> CLASS_SHIFT {
        0 => Value::Word("none"),
        1 => Value::Word("realtime"),
        2 => Value::Word("best-effort"),
        3 => Value::Word("idle"),
        _ => Value::UNKNOWN,
    }
}

fn iolevel(prio: u32) -> Value<'static> {
    match prio >> CLASS_SHIFT {
        1 | 2 => Value::Uint(u64::from(prio & 7)),
        _ => Value::ABSENT,
    }
}

/// A value that a task loses with its memory or directories. A kernel thread has no memory.
fn of_living(
    row: &Row<'_>,
    member: impl Fn(&Record<'_, Settings>) -> Option<u32>,
    wrap: impl Fn(u32) -> Value<'static>,
) -> Value<'static> {
    match row.settings.map(|settings| member(&settings)) {
        Some(Some(value)) => wrap(value),
        Some(None) if row.is_zombie() || row.is_kthread() => Value::ABSENT,
        Some(None) => Value::UNKNOWN,
        None => row.missing(Group::Settings),
    }
}

/// The numbers of the bits that are set, as in Cpus_allowed_list.
fn numbers(mask: &[u8]) -> String {
    let mut text = String::new();
    let is_set = |n: usize| mask.get(n / 8).is_some_and(|byte| byte >> (n % 8) & 1 != 0);
    let mut n = 0;
    while n < mask.len() * 8 {
        let first = n;
        while is_set(n) {
            n += 1;
        }
        if first == n {
            n += 1;
            continue;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{first}");
        if first + 1 < n {
            let _ = write!(text, "-{}", n - 1);
        }
    }
    text
}

fn mask<'a>(row: &Row<'a>, of: impl Fn(&TaskView<'a>) -> Option<Vec<u8>>) -> Value<'a> {
    match (of(&row.view), row.settings) {
        (Some(mask), _) => text(numbers(&mask)),
        (None, Some(_)) => Value::UNKNOWN,
        (None, None) => row.missing(Group::Settings),
    }
}

fn map<'a>(row: &Row<'a>, attr: u16) -> Value<'a> {
    match (row.view.id_map(attr), row.persona) {
        (Some(ranges), _) => {
            let range = |[inside, outside, count]: &[u32; 3]| format!("{inside}:{outside}:{count}");
            text(ranges.iter().map(range).collect::<Vec<_>>().join(","))
        }
        (None, Some(_)) => match row.view.blob(attr, 0).and_then(|b| b.reason) {
            Some(reason) => Value::Missing(Missing::Reason(reason)),
            None => Value::UNKNOWN,
        },
        (None, None) => row.missing(Group::Persona),
    }
}

fn text(text: String) -> Value<'static> {
    match text.is_empty() {
        true => Value::ABSENT,
        false => Value::Bytes { data: text.into_bytes().into(), cut: false },
    }
}

fn cpuset<'a>(row: &Row<'a>) -> Value<'a> {
    match row.view.blob(Group::Cpuset as u16, 0) {
        Some(path) => Value::Bytes { cut: path.is_cut(), data: path.data },
        None => row.missing(Group::Cpuset),
    }
}

pub const FIELDS: &[Field] = &[
    row!("ioclass" "IOCLASS" 11 Left [SETTINGS] Text None Plain, "ioprio_get(2), io_context.ioprio",
        "Class of its priority of I/O: realtime, best-effort, idle; none: nice and policy decide", {},
        member!(Settings settings.ioprio, ioclass)),
    row!("iolevel" "IOLEVEL" 7 Right [SETTINGS] Integer None Plain, "ioprio_get(2), io_context.ioprio",
        "Level of its priority of I/O in the classes realtime and best-effort: 0 is the highest, 7 the lowest", {},
        member!(Settings settings.ioprio, iolevel)),
    row!("cpus_allowed" "CPUS" 8 Left [SETTINGS] Text None Plain, "/proc/PID/status Cpus_allowed_list",
        "Numbers of the processors that it may run on", {"affinity" "CPUS"}, |_, r| mask(r, TaskView::cpus)),
    row!("mems_allowed" "MEMS" 8 Left [SETTINGS] Text None Plain, "/proc/PID/status Mems_allowed_list",
        "Numbers of the NUMA nodes that it may have memory of", {}, |_, r| mask(r, TaskView::mems)),
    row!("cpuset" "CPUSET" 20 Left [CPUSET] Text None Plain, "/proc/PID/cpuset",
        "Path of the control group that sets its processors and NUMA nodes", {}, |_, r| cpuset(r)),
    row!("umask" "UMASK" 5 Right [BASE(state flags) SETTINGS] Integer None Octal, "/proc/PID/status Umask",
        "Permissions that files which it creates do not get, octal", {},
        |_, r| of_living(r, |s| s.umask(), |v| Value::Uint(u64::from(v)))),
    row!("seccomp_filters" "FILTERS" 7 Right [SETTINGS] Integer Count Plain, "/proc/PID/status Seccomp_filters",
        "Number of its seccomp filters", {}, uint!(Settings settings.seccomp_filters)),
    row!("thp" "THP" 5 Right [BASE(state flags) SETTINGS] Boolean None Plain, "/proc/PID/status THP_enabled",
        "May it have transparent huge pages?", {},
        |_, r| of_living(r, |s| s.thp_enabled(), |v| Value::Bool(v != 0))),
    row!("coredumping" "COREDUMPING" 11 Right [BASE(state flags) SETTINGS] Boolean None Plain, "/proc/PID/status CoreDumping",
        "Is it writing a core dump?", {},
        |_, r| of_living(r, |s| s.coredumping(), |v| Value::Bool(v != 0))),
    row!("personality" "PERSONALITY" 11 Right [PERSONA] Text None Hex, "/proc/PID/personality",
        "Bits of personality(2)", {}, member!(Persona persona.personality, |v| Value::Mask(u64::from(v)))),
    row!("timer_slack" "SLACK" 7 Right [PERSONA] Number Seconds Millis, "/proc/PID/timerslack_ns",
        "By how much its timers may be late; text in ms", {},
        member!(Persona persona.timer_slack_ns, Value::Nanos)),
    row!("uid_map" "UIDMAP" 20 Left [PERSONA] Text None Plain, "/proc/PID/uid_map",
        "Uids of its user namespace, first there:first outside:number, with a comma between ranges", {},
        |_, r| map(r, A_UID_MAP)),
    row!("gid_map" "GIDMAP" 20 Left [PERSONA] Text None Plain, "/proc/PID/gid_map",
        "Gids of its user namespace, as uid_map", {}, |_, r| map(r, A_GID_MAP)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_lists_of_ranges() {
        for (mask, list) in [
            (&[][..], ""),
            (&[0, 0], ""),
            (&[1], "0"),
            (&[0b1011], "0-1,3"),
            (&[0x80, 1], "7-8"),
            (&[0xff, 0xff], "0-15"),
            (&[0, 0, 0, 0x80, 1, 0, 0, 0], "31-32"),
        ] {
            assert_eq!(numbers(mask), list, "{mask:?}");
        }
    }
}
