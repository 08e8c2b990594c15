//! `-J` and `-j`: JSON with the keys of lsof. As in lsof, and unlike the JSON of taskdiag, bytes
//! that are not valid UTF-8 are printed unchanged, and internet sockets have no addresses.

use super::cell::{Cells, Device, Node};
use super::record::Record;
use super::{VERSION, sockets};
use crate::exit::Exit;
use crate::files::letters::Fields;
use crate::output::Sink;

/// Writes one object for all files. Returns whether there was any file.
pub(super) fn object(cells: &Cells<'_>, sink: &mut Sink) -> Result<bool, Exit> {
    let fields = fields(cells);
    sink.buf()
        .extend_from_slice(format!("{{\"lsof_version\":\"{VERSION}\",\"processes\":[").as_bytes());
    let mut last = None;
    cells.each(&mut |r: &Record<'_>| {
        let out = sink.buf();
        let process = (r.row.view.tgid(), r.task.and_then(|(tid, _)| tid));
        match last.replace(process) {
            Some(before) if before == process => out.push(b','),
            before => {
                out.extend_from_slice(if before.is_some() { b"]},{" } else { b"{" });
                let mut object = Object { out, any: false };
                of_process(cells, r, &fields, &mut object);
                if object.any {
                    out.push(b',');
                }
                out.extend_from_slice(b"\"files\":[");
            }
        }
        out.push(b'{');
        of_file(cells, r, &fields, &mut Object { out, any: false });
        out.push(b'}');
        sink.settle().map_err(Exit::from)
    })?;
    sink.buf().extend_from_slice(if last.is_some() { b"]}]}\n" } else { b"]}\n" });
    Ok(last.is_some())
}

/// An object for each file. Returns whether there was any.
pub(super) fn lines(cells: &Cells<'_>, sink: &mut Sink) -> Result<bool, Exit> {
    let fields = fields(cells);
    let mut any = false;
    cells.each(&mut |r: &Record<'_>| {
        any = true;
        let out = sink.buf();
        out.push(b'{');
        let mut object = Object { out, any: false };
        of_process(cells, r, &fields, &mut object);
        of_file(cells, r, &fields, &mut object);
        out.extend_from_slice(b"}\n");
        sink.settle().map_err(Exit::from)
    })?;
    Ok(any)
}

/// The fields of `-F`; nearly all, if it names none.
fn fields(cells: &Cells<'_>) -> Fields {
    cells.layout.fields.clone().unwrap_or_else(|| Fields::of_lsof("").expect("none is right"))
}

/// The members of an object.
struct Object<'o> {
    out: &'o mut Vec<u8>,
    any: bool,
}

impl Object<'_> {
    fn key(&mut self, key: &str) {
        if self.any {
            self.out.push(b',');
        }
        self.any = true;
        self.out.extend_from_slice(format!("\"{key}\":").as_bytes());
    }
    fn text(&mut self, key: &str, text: &[u8]) {
        self.key(key);
        self.out.push(b'"');
        for b in text {
            match b {
                b'"' | b'\\' => self.out.extend_from_slice(&[b'\\', *b]),
                0x08 => self.out.extend_from_slice(b"\\b"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                0..0x20 => self.out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
                b => self.out.push(*b),
            }
        }
        self.out.push(b'"');
    }
    fn number(&mut self, key: &str, number: impl std::fmt::Display) {
        self.key(key);
        self.out.extend_from_slice(number.to_string().as_bytes());
    }
}

fn of_process(cells: &Cells<'_>, r: &Record<'_>, fields: &Fields, out: &mut Object<'_>) {
    if fields.has('p') {
        out.number("pid", r.row.view.tgid());
    }
    if let Some((Some(tid), comm)) = r.task {
        if fields.has('K') {
            out.number("tid", tid);
        }
        if fields.has('M') {
            out.text("task_cmd", &super::safe::one_line(comm));
        }
    }
    for (letter, key, field) in [('g', "pgid", "task.pgid"), ('R', "ppid", "task.ppid")] {
        let value = cells.field(field, &r.row);
        if fields.has(letter) && !value.is_empty() {
            out.number(key, String::from_utf8_lossy(&value));
        }
    }
    if fields.has('c') {
        out.text("command", &cells.command(r));
    }
    if let Some(uid) = r.row.cred.and_then(|c| c.euid()).filter(|_| fields.has('u')) {
        out.number("uid", uid);
    }
    if let Some(name) = cells.user(&r.row).filter(|_| fields.has('L')) {
        out.text("login", &name);
    }
}

fn of_file(cells: &Cells<'_>, r: &Record<'_>, fields: &Fields, out: &mut Object<'_>) {
    let mut text = |letter: char, key: &str, value: Option<Vec<u8>>| {
        if let Some(value) = value.filter(|_| fields.has(letter)) {
            out.text(key, &value);
        }
    };
    let letter = |b: u8| Some(vec![b]).filter(|_| b != b' ');
    text('f', "fd", Some(r.label().into()));
    text('a', "access", letter(cells.access(r)));
    text('l', "lock", letter(cells.lock(r)));
    text('t', "type", cells.kind(r).map(Into::into));
    match cells.device(r) {
        Device::None => {}
        Device::Text(device) => text('d', "device", Some(device.into())),
        Device::Number(dev, rdev) => {
            text('D', "device_number", Some(format!("0x{dev:x}").into()));
            text('r', "raw_device", rdev.map(|rdev| format!("0x{rdev:x}").into()));
        }
    }
    text('s', "size", r.size().map(|n| n.to_string().into()));
    text('o', "offset", r.offset().map(|n| n.to_string().into()));
    if let Node::Inode(inode) = cells.node(r) {
        text('i', "inode", Some(inode.to_string().into()));
    }
    if let Some(links) = r.links().filter(|_| fields.has('k')) {
        out.number("nlink", links);
    }
    let mut text = |letter: char, key: &str, value: Option<Vec<u8>>| {
        if let Some(value) = value.filter(|_| fields.has(letter)) {
            out.text(key, &value);
        }
    };
    if let Node::Protocol(protocol) = cells.node(r) {
        text('P', "protocol", Some(protocol.into()));
    }
    text('G', "flags", cells.flags(r).map(Into::into));
    if !r.file.is_some_and(|f| sockets::has_addresses(cells, f)) {
        text('n', "name", Some(cells.raw_name(r)));
    }
    if let Some(state) = sockets::state(cells, r).filter(|_| fields.has('T')) {
        out.key("tcp_info");
        out.out.push(b'{');
        let mut inner = Object { out: out.out, any: false };
        if !state.is_unix {
            if let Some(word) = state.state {
                inner.text("state", word.as_bytes());
            }
            if let Some((received, sent)) = state.queues {
                inner.number("recv_queue", received);
                inner.number("send_queue", sent);
            }
        }
        out.out.push(b'}');
    }
}
