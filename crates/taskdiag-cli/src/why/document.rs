//! The report for programs. `docs/use/why.md` has its members.

use std::io::Write as _;

use taskdiag::why::{Frame, StackEnd, Wait};

use super::{Both, Report};
use crate::output::{csv as cells, json};

/// The threads to explain, the threads on the chains to their heads, the threads in deadlocks, and,
/// for the whole machine, all threads that wait for one of these.
fn shown(report: &Report<'_>) -> Vec<usize> {
    let all = report.waits.all().len();
    if !report.args.is_of_machine() {
        return (0..all).filter(|at| report.concerns[*at]).collect();
    }
    let mut is_shown = vec![false; report.graph.len()];
    let mut todo = report.heads();
    todo.extend(report.cycles().flatten());
    todo.extend(report.stuck());
    while let Some(at) = todo.pop() {
        if !std::mem::replace(&mut is_shown[at], true) {
            todo.extend(report.graph.waiting(at));
            todo.extend(report.graph.next(at));
        }
    }
    (0..all).filter(|at| is_shown[*at]).collect()
}

fn key(out: &mut Vec<u8>, name: &str) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    json::text(out, name.as_bytes());
    out.push(b':');
}

fn number(out: &mut Vec<u8>, name: &str, n: impl std::fmt::Display) {
    key(out, name);
    write!(out, "{n}").expect("a vector takes all");
}

fn text(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    key(out, name);
    json::text(out, value);
}

fn seconds(out: &mut Vec<u8>, name: &str, ns: Option<u64>) {
    key(out, name);
    match ns {
        Some(ns) => json::seconds(out, i128::from(ns)),
        None => out.extend_from_slice(b"null"),
    }
}

fn frame(out: &mut Vec<u8>, frame: &Frame) {
    out.push(b'{');
    if let Some(f) = &frame.function {
        text(out, "function", &f.name);
        number(out, "offset", f.offset_bytes);
        number(out, "size", f.size_bytes);
    }
    text(out, "file", &frame.file);
    text(out, "address", format!("{:016x}", frame.address).as_bytes());
    out.push(b'}');
}

/// `None`: those of too many were asked for.
fn stacks(out: &mut Vec<u8>, both: Option<&Both>) {
    key(out, "kernel_stack");
    match both.and_then(|both| both.kernel.as_ref()) {
        Some(text) => {
            let all = text.split(|b| *b == b'\n').filter(|f| !f.is_empty());
            json::list(out, all, json::text);
        }
        None => out.extend_from_slice(b"null"),
    }
    key(out, "user_stack");
    json::list(out, both.into_iter().flat_map(|both| &both.user.frames), frame);
    let end = both.map_or(StackEnd::NotLookedAt, |both| both.user.end);
    text(out, "user_stack_end", end.name().as_bytes());
}

fn wait(out: &mut Vec<u8>, report: &Report<'_>, wait: &Wait) {
    out.push(b'{');
    number(out, "tid", wait.tid);
    number(out, "pid", wait.tgid);
    text(out, "comm", &wait.comm);
    text(out, "s", &[wait.state]);
    key(out, "waits_on");
    match wait.kind {
        Some(kind) => json::text(out, kind.name().as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    seconds(out, "waited", wait.waited_ns);
    if let Some(ns) = wait.waited_error_ns {
        seconds(out, "waited_error", Some(ns));
    }
    if !wait.function.is_empty() {
        text(out, "function", &wait.function);
    }
    if let Some(call) = wait.call {
        number(out, "syscall_nr", call.number);
        key(out, "args");
        json::list(out, call.args.iter(), |out, arg| {
            json::text(out, format!("{arg:016x}").as_bytes());
        });
    }
    if let Some(file) = &wait.file {
        text(out, "file", file);
    }
    if let Some(mount) = &wait.mount {
        text(out, "mount", &mount.point);
        text(out, "mount_type", &mount.kind);
        text(out, "mount_source", &mount.source);
    }
    if let Some(cgroup) = &wait.cgroup {
        text(out, "cgroup", cgroup);
    }
    match wait.holder {
        Ok(holder) => {
            number(out, "waits_for", holder.tid);
            number(out, "waits_for_pid", holder.tgid);
            number(out, "waits_for_process", holder.is_process);
            number(out, "is_sure", holder.is_sure);
            text(out, "how", holder.how.name().as_bytes());
        }
        Err(why) => {
            key(out, "waits_for");
            out.extend_from_slice(b"null");
            text(out, "why_none", why.name().as_bytes());
        }
    }
    if report.args.stack {
        stacks(out, report.stacks_of(wait).as_ref());
    }
    out.push(b'}');
}

/// One document.
pub fn json(out: &mut Vec<u8>, report: &Report<'_>) {
    let id = |at: usize| {
        let node = report.graph.node(at);
        let wait = &report.waits.all()[node.wait];
        if node.is_process { wait.tgid } else { wait.tid }
    };
    out.extend_from_slice(b"{");
    number(out, "version", 1);
    key(out, "deadlocks");
    json::list(out, report.cycles(), |out, cycle| {
        json::list(out, cycle.iter(), |out, at| {
            write!(out, "{}", id(*at)).expect("a vector takes all");
        });
    });
    let mut heads = report.heads();
    if !report.args.is_of_machine() {
        heads = report.graph.heads().into_iter().filter(|at| report.concerns[*at]).collect();
    }
    key(out, "heads");
    json::list(out, heads.into_iter(), |out, at| {
        let behind = report.graph.behind(at);
        out.push(b'{');
        number(out, "id", id(at));
        number(out, "is_process", report.graph.node(at).is_process);
        number(out, "behind", behind.tasks);
        number(out, "behind_unusual", behind.odd);
        let is_known = behind.longest_ns > 0 || !behind.has_unknown;
        seconds(out, "longest", Some(behind.longest_ns).filter(|_| is_known));
        out.push(b'}');
    });
    key(out, "threads");
    json::list(out, shown(report).into_iter(), |out, at| {
        wait(out, report, &report.waits.all()[at]);
    });
    out.extend_from_slice(b"}\n");
}

const HEADER: &str = "tid,pid,comm,s,waits_on,waited,waited_error,function,file,mount,cgroup,waits_for,waits_for_pid,waits_for_comm,how,why_none";

/// A row for each thread, after the names of the columns.
pub fn csv(out: &mut Vec<u8>, report: &Report<'_>, has_header: bool) {
    if has_header {
        out.extend_from_slice(HEADER.as_bytes());
        out.extend_from_slice(b"\n");
    }
    let mut writer = ::csv::WriterBuilder::new().from_writer(out);
    for at in shown(report) {
        let wait = &report.waits.all()[at];
        let mut row: Vec<Vec<u8>> = Vec::new();
        let seconds = |ns: Option<u64>| {
            let mut text = Vec::new();
            if let Some(ns) = ns {
                json::seconds(&mut text, i128::from(ns));
            }
            text
        };
        let number = |n: u32| n.to_string().into_bytes();
        row.extend([number(wait.tid), number(wait.tgid), cells::foreign_text(&wait.comm)]);
        row.extend([
            vec![wait.state],
            wait.kind.map_or("", |k| k.name()).into(),
            seconds(wait.waited_ns),
        ]);
        row.push(seconds(wait.waited_error_ns));
        row.push(cells::foreign_text(&wait.function));
        row.push(cells::foreign_text(wait.file.as_deref().unwrap_or_default()));
        row.push(cells::foreign_text(wait.mount.as_ref().map_or(&[], |m| &m.point)));
        row.push(cells::foreign_text(wait.cgroup.as_deref().unwrap_or_default()));
        match wait.holder {
            Ok(h) => {
                let comm = report.waits.find(h.tid).map(|i| &report.waits.all()[i].comm[..]);
                row.extend([number(h.tid), number(h.tgid)]);
                row.extend([cells::foreign_text(comm.unwrap_or_default()), h.how.name().into()]);
                row.push(Vec::new());
            }
            Err(why) => {
                row.extend(std::iter::repeat_n(Vec::new(), 4));
                row.push(why.name().into());
            }
        }
        writer.write_record(&row).expect("a vector takes all");
    }
    writer.flush().expect("a vector takes all");
}
