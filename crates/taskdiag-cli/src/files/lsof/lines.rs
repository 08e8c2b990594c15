//! `-F`: a line for each value, which starts with the letter of the field. A process comes before
//! its files, and each set of values ends where the next begins.

use super::cell::{Cells, Device, Node};
use super::record::Record;
use super::sockets;
use crate::exit::Exit;
use crate::output::Sink;

/// Writes all lines. Returns whether there were any.
pub(super) fn write(cells: &Cells<'_>, sink: &mut Sink) -> Result<bool, Exit> {
    let fields = cells.layout.fields.as_ref().expect("-F was given");
    let end = if fields.is_nul() { 0 } else { b'\n' };
    let mut last = None;
    cells.each(&mut |r: &Record<'_>| {
        let out = sink.buf();
        let tid = r.task.and_then(|(tid, _)| tid);
        let process = (r.row.view.tgid(), tid);
        let mut put = |letter: char, value: Option<Vec<u8>>| {
            if let Some(value) = value.filter(|_| fields.has(letter)) {
                out.push(letter as u8);
                out.extend_from_slice(&value);
                out.push(end);
            }
        };
        if last.replace(process) != Some(process) {
            of_process(cells, r, &mut put);
            if fields.is_nul() {
                out.push(b'\n');
            }
        }
        let before = sink.buf().len();
        let out = sink.buf();
        let mut put = |letter: char, value: Option<Vec<u8>>| {
            if let Some(value) = value.filter(|_| fields.has(letter)) {
                out.push(letter as u8);
                out.extend_from_slice(&value);
                out.push(end);
            }
        };
        of_file(cells, r, &mut put);
        if fields.is_nul() && sink.buf().len() > before {
            sink.buf().push(b'\n');
        }
        sink.settle().map_err(Exit::from)
    })?;
    Ok(last.is_some())
}

fn text(value: impl ToString) -> Option<Vec<u8>> {
    Some(value.to_string().into())
}

fn of_process(cells: &Cells<'_>, r: &Record<'_>, put: &mut dyn FnMut(char, Option<Vec<u8>>)) {
    put('p', text(r.row.view.tgid()));
    if let Some((Some(tid), comm)) = r.task {
        put('K', text(tid));
        put('M', Some(super::safe::one_line(comm)));
    }
    put('g', Some(cells.field("task.pgid", &r.row)));
    put('R', Some(cells.field("task.ppid", &r.row)));
    put('c', Some(cells.locale.name(&cells.command(r))));
    put('u', r.row.cred.and_then(|c| c.euid()).and_then(text));
    put('L', cells.user(&r.row));
}

fn of_file(cells: &Cells<'_>, r: &Record<'_>, put: &mut dyn FnMut(char, Option<Vec<u8>>)) {
    put('f', text(r.label()));
    put('a', Some(vec![cells.access(r)]));
    put('l', Some(vec![cells.lock(r)]));
    put('t', cells.kind(r).and_then(text));
    // With -F, lsof prints the number, unless +fg asks for words.
    let words = cells.layout.flags && !cells.layout.numeric_flags;
    put(
        'G',
        match words {
            true => cells.flags(r).and_then(text),
            false => r.flags().and_then(|flags| text(format!("0x{flags:x};0x0"))),
        },
    );
    match cells.device(r) {
        Device::None => {}
        Device::Text(device) => put('d', text(device)),
        Device::Number(dev, rdev) => {
            put('D', text(format!("0x{dev:x}")));
            put('r', rdev.and_then(|rdev| text(format!("0x{rdev:x}"))));
        }
    }
    put('s', r.size().and_then(text));
    put('o', r.offset().and_then(|offset| text(cells.offset(offset))));
    if let Node::Inode(inode) = cells.node(r) {
        put('i', text(inode));
    }
    put('k', r.links().and_then(text));
    if let Node::Protocol(protocol) = cells.node(r) {
        put('P', text(protocol));
    }
    put('n', Some(cells.name(r)));
    if let Some(state) = sockets::state(cells, r) {
        put('T', state.state.and_then(|s| text(format!("ST={s}"))));
        if let Some((received, sent)) = state.queues {
            put('T', text(format!("QR={received}")));
            put('T', text(format!("QS={sent}")));
        }
    }
}
