//! The program of a task: names, arguments, paths.

use std::borrow::Cow;

use taskdiag_wire::{Blob, Group, Groups, PathKind, Reason};

use super::super::*;

fn comm<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    match row.comm {
        Some(comm) => Value::bytes(comm),
        None if row.base.is_some() => Value::UNKNOWN,
        None => row.missing(Group::Base),
    }
}

fn args<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    let Some(blob) = row.view.cmdline() else { return row.missing(Group::Cmdline) };
    if let Some(why) = blob.reason {
        return Value::Missing(Missing::Reason(why));
    }
    let cut = blob.is_cut();
    let rewritten = blob.flags & taskdiag_wire::BLOB_REWRITTEN != 0;
    Value::Args { data: trim(blob.data, rewritten), cut }
}

/// Cuts the NUL that ends the last argument. With `all`, cuts all NULs at the end, because the
/// process wrote a title over its arguments and left the rest empty.
fn trim(data: Cow<'_, [u8]>, all: bool) -> Cow<'_, [u8]> {
    let end = match data.iter().rposition(|b| *b != 0) {
        Some(i) if all => i + 1,
        None if all => 0,
        _ => data.len() - usize::from(data.last() == Some(&0)),
    };
    match data {
        Cow::Borrowed(b) => Cow::Borrowed(&b[..end]),
        Cow::Owned(mut b) => {
            b.truncate(end);
            Cow::Owned(b)
        }
    }
}

fn environ<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    let Some(blob) = row.view.environ() else { return row.missing(Group::Environ) };
    match blob.reason {
        Some(why) => Value::Missing(Missing::Reason(why)),
        None => Value::Args { cut: blob.is_cut(), data: trim(blob.data, false) },
    }
}

/// Arguments and environment in one list, as for the letter e of procps.
fn args_environ<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    with_environ(args(cx, row), cx, row)
}

fn comm_environ<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    let comm = match comm(cx, row) {
        Value::Bytes { data, cut } => Value::Args { data, cut },
        other => other,
    };
    with_environ(comm, cx, row)
}

fn with_environ<'a>(first: Value<'a>, cx: &Context, row: &Row<'a>) -> Value<'a> {
    match (first, environ(cx, row)) {
        (Value::Args { data, cut }, Value::Args { data: more, cut: more_cut })
            if !data.is_empty() && !more.is_empty() =>
        {
            let data = [&data[..], &more[..]].join(&b'\0');
            Value::Args { data: Cow::Owned(data), cut: cut || more_cut }
        }
        (first, _) => first,
    }
}

fn path<'a>(row: &Row<'a>, kind: PathKind) -> Value<'a> {
    match row.view.path(kind) {
        Some(Blob { reason: Some(why), .. }) => Value::Missing(Missing::Reason(why)),
        Some(blob) => Value::Bytes { cut: blob.is_cut(), data: blob.data },
        None => match row.missing(Group::Paths) {
            // The group is there, but this path is missing.
            Value::Missing(Missing::Reason(Reason::Unsupported)) => Value::UNKNOWN,
            other => other,
        },
    }
}

pub const FIELDS: &[Field] = &[
    row!("comm" "COMMAND" 15 Left [BASE(comm)] Text None Comm, "/proc/PID/comm",
        "Command name", {"ucmd" "CMD", "ucomm" "COMMAND"}, comm),
    row!("fname" "COMMAND" 8 Left [BASE(comm)] Text None Fname, "/proc/PID/comm",
        "Command name; text ends after eight characters", {}, comm),
    row!("args" "COMMAND" 27 Left [BASE(comm state) CMDLINE] TextList None Args, "/proc/PID/cmdline",
        "Arguments; text shows [comm] where there are none",
        {"cmd" "CMD", "command" "COMMAND"}, args),
    row!("args_environ" "COMMAND" 27 Left [BASE(comm state) CMDLINE ENVIRON] TextList None Args, "/proc/PID/cmdline, environ",
        "Arguments, and after them the environment", {}, args_environ),
    row!("comm_environ" "COMMAND" 15 Left [BASE(comm) ENVIRON] TextList None Comm, "/proc/PID/comm, environ",
        "Command name, and after it the environment", {}, comm_environ),
    row!("environ" "ENVIRONMENT" 27 Left [ENVIRON] TextList None Plain, "/proc/PID/environ",
        "Its environment, as it was when the program started", {"env" "ENVIRONMENT"}, environ),
    row!("exe" "EXE" 27 Left [PATHS] Text None Plain, "/proc/PID/exe",
        "Path of the executable", {}, |_, r| path(r, PathKind::Exe)),
    row!("cwd" "CWD" 27 Left [PATHS] Text None Plain, "/proc/PID/cwd",
        "Working directory", {}, |_, r| path(r, PathKind::Cwd)),
    row!("root" "ROOT" 8 Left [PATHS] Text None Plain, "/proc/PID/root",
        "Root directory", {}, |_, r| path(r, PathKind::Root)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_removed() {
        let t = |b: &[u8], all| trim(Cow::Borrowed(b), all).into_owned();
        assert_eq!(t(b"a\0b\0", false), b"a\0b");
        assert_eq!(t(b"a\0\0", false), b"a\0");
        assert_eq!(t(b"a b", false), b"a b");
        assert_eq!(t(b"", false), b"");
        assert_eq!(t(b"\0", false), b"");
        assert_eq!(t(b"title\0\0\0", true), b"title");
        assert_eq!(t(b"\0\0", true), b"");
    }
}
