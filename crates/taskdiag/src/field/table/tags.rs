//! Data that other subsystems keep about a task: its OOM score, security label, autogroup and
//! login.

use taskdiag_wire::{Group, Groups, Login, Record};

use super::super::*;

/// A number of LOGIN. All ones mean that the task belongs to no login.
fn login(row: &Row<'_>, get: impl FnOnce(Record<'_, Login>) -> Option<u32>) -> Value<'static> {
    match row.login.map(get) {
        Some(Some(u32::MAX)) => Value::ABSENT,
        Some(Some(v)) => Value::Uint(v.into()),
        Some(None) => Value::UNKNOWN,
        None => row.missing(Group::Login),
    }
}

fn label<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    match row.view.blob(Group::Label as u16, 0) {
        Some(b) => Value::Bytes { cut: b.is_cut(), data: b.data },
        None => row.missing(Group::Label),
    }
}

pub const FIELDS: &[Field] = &[
    row!("oom_score" "OOM" 4 Right [OOM] Integer None Plain, "/proc/PID/oom_score",
        "The kernel's score for killing it when memory runs out, 0 to 2000", {"oom" "OOM"},
        uint!(Oom oom.score)),
    row!("oom_score_adj" "OOMADJ" 6 Right [OOM] Signed None Plain, "/proc/PID/oom_score_adj",
        "Adjustment of that score, -1000 (never kill) to 1000", {"oomadj" "OOMADJ"},
        member!(Oom oom.score_adj, |v| Value::Int(v.into()))),
    row!("label" "LABEL" 31 Left [LABEL] Text None Plain, "/proc/PID/attr/current",
        "Security label of SELinux, AppArmor or Smack", {"context" "CONTEXT"}, label),
    row!("ag_id" "AGID" 5 Right [AUTOGROUP] Integer None Plain, "/proc/PID/autogroup",
        "Id of its autogroup, whose members share CPU time", {}, uint!(Autogroup autogroup.id)),
    row!("ag_nice" "AGNI" 4 Right [AUTOGROUP] Signed None Plain, "/proc/PID/autogroup",
        "Nice value of its autogroup", {}, member!(Autogroup autogroup.nice, |v| Value::Int(v.into()))),
    row!("luid" "LUID" 5 Right [LOGIN] Integer None Plain, "/proc/PID/loginuid",
        "Uid of the login, even if its uid has changed; - if there is none", {"loginuid" "LUID"},
        |_, row| login(row, |r| r.uid())),
    row!("audit_session" "AUDSESS" 7 Right [LOGIN] Integer None Plain, "/proc/PID/sessionid",
        "Audit session of that login; - if there is none", {"sessionid" "AUDSESS"},
        |_, row| login(row, |r| r.session())),
];
