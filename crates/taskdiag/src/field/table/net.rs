//! The traffic of open sockets: of one socket for a row of files, with the names of `ss -ti`, and
//! sums over sockets for a row of processes.

use std::collections::HashSet;

use taskdiag_wire::{Entry, FdType, Group, Groups, Net};

use super::super::part::Part;
use super::super::*;
use super::rates::each_second;

type Get = fn(&Entry<'_, Net>) -> Option<Value<'static>>;

/// Whether bytes go over the network here. Only TCP has counters of them.
fn is_network(e: &Entry<'_, Net>) -> bool {
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_PACKET];
    e.family().is_none_or(|f| families.contains(&i32::from(f)))
}

/// A value of the socket of a row of a list of files.
fn of_socket<'a>(row: &Row<'a>, get: Get) -> Value<'a> {
    let Part::File(open) = row.part else { return row.missing(Group::Fd) };
    if open.file.fd_type() != Some(FdType::Socket) {
        return Value::ABSENT;
    }
    let Some(e) = open.file.net() else { return open.file.owner.row.missing(Group::Net) };
    get(&e).unwrap_or_else(|| without(&e, open.file.socket().and_then(|s| s.state())))
}

/// Why a socket does not have a value.
fn without(e: &Entry<'_, Net>, state: Option<u16>) -> Value<'static> {
    const TCP_LISTEN: u16 = 10;
    let is_tcp = e.protocol().is_some_and(|p| i32::from(p) == libc::IPPROTO_TCP);
    match is_network(e) {
        // There is no connection, or it has not measured anything yet.
        true if is_tcp && (state == Some(TCP_LISTEN) || e.sent_bytes().is_some()) => Value::ABSENT,
        true => Value::UNKNOWN,
        false => Value::ABSENT,
    }
}

fn uint(v: impl Into<u64>) -> Value<'static> {
    Value::Uint(v.into())
}

fn congestion<'a>(row: &Row<'a>) -> Value<'a> {
    let text = |e: &Entry<'_, Net>| {
        let name = e.congestion()?;
        let len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(Value::Bytes { data: name[..len].to_vec().into(), cut: false })
    };
    of_socket(row, text)
}

macro_rules! socket {
    ($name:literal $header:literal $width:literal $kind:ident $unit:ident $text:ident $source:literal $what:literal $get:expr) => {
        row!($name $header $width Right [FD NET] $kind $unit $text, $source, $what, {},
            |_, row| of_socket(row, $get))
    };
}

/// Columns of a list of files.
pub const FILES: &[Field] = &[
    socket!("sent" "SENT" 8 Integer Bytes Plain "sock_diag(7) tcpi_bytes_sent"
        "Bytes of data sent over a TCP connection, with those sent again" |e| e.sent_bytes().map(uint)),
    socket!("acked" "ACKED" 8 Integer Bytes Plain "sock_diag(7) tcpi_bytes_acked"
        "Bytes that the other end has acknowledged; the first packet of a connection counts as one"
        |e| e.acked_bytes().map(uint)),
    socket!("received" "RECEIVED" 8 Integer Bytes Plain "sock_diag(7) tcpi_bytes_received"
        "Bytes of data received over a TCP connection" |e| e.received_bytes().map(uint)),
    socket!("retrans" "RETRANS" 7 Integer Bytes Plain "sock_diag(7) tcpi_bytes_retrans"
        "Bytes sent again" |e| e.retrans_bytes().map(uint)),
    socket!("segs_out" "SEGSOUT" 7 Integer Count Plain "sock_diag(7) tcpi_segs_out"
        "Segments sent" |e| e.sent_segs().map(uint)),
    socket!("segs_in" "SEGSIN" 7 Integer Count Plain "sock_diag(7) tcpi_segs_in"
        "Segments received" |e| e.received_segs().map(uint)),
    socket!("segs_retrans" "SEGSRE" 6 Integer Count Plain "sock_diag(7) tcpi_total_retrans"
        "Segments sent again" |e| e.retrans_segs().map(uint)),
    socket!("rtt" "RTT" 7 Number Seconds Millis "sock_diag(7) tcpi_rtt"
        "Round-trip time, smoothed; text in ms" |e| e.rtt_ns().map(Value::Nanos)),
    socket!("rttvar" "RTTVAR" 7 Number Seconds Millis "sock_diag(7) tcpi_rttvar"
        "Mean deviation of the round-trip time; text in ms" |e| e.rtt_var_ns().map(Value::Nanos)),
    socket!("cwnd" "CWND" 5 Integer Count Plain "sock_diag(7) tcpi_snd_cwnd"
        "Congestion window, in segments" |e| e.cwnd_segs().map(uint)),
    socket!("lastsnd" "LASTSND" 7 Number Seconds Millis "sock_diag(7) tcpi_last_data_sent"
        "Time since data was last sent, or since the connection was made; text in ms" |e| e.since_sent_ns().map(Value::Nanos)),
    socket!("lastrcv" "LASTRCV" 7 Number Seconds Millis "sock_diag(7) tcpi_last_data_recv"
        "Time since data was last received, or since the connection was made; text in ms"
        |e| e.since_received_ns().map(Value::Nanos)),
    row!("congestion" "CONG" 6 Left [FD NET] Text None Plain, "sock_diag(7) INET_DIAG_CONG",
        "Algorithm that makes the congestion window", {}, |_, row| congestion(row)),
    socket!("drops" "DROPS" 5 Integer Count Plain "sock_diag(7) SK_MEMINFO_DROPS"
        "Received packets that were dropped for lack of room, and other packets that the socket threw away"
        |e| e.drops().map(uint)),
];

/// A member that is added up.
type Member = fn(&Entry<'_, Net>) -> Option<u64>;

/// The columns of processes, each with its member.
const SUMS: [(&str, Member); 4] = [
    ("net_sent", |e| e.sent_bytes()),
    ("net_received", |e| e.received_bytes()),
    ("net_retrans", |e| e.retrans_bytes()),
    ("net_drops", |e| e.drops().map(u64::from)),
];

/// The member that a column of processes adds up.
#[cfg(feature = "view")]
fn summed(field: &Field) -> Option<Member> {
    SUMS.iter().find(|(name, _)| field.groups == Groups::NET && field.name == *name).map(|s| s.1)
}

/// The sum of a column over the sockets of a row that are not in `seen` yet; they are added to
/// `seen`. `None`: the column is not about traffic.
#[cfg(feature = "view")]
pub fn sum_once(field: &Field, row: &Row<'_>, seen: &mut HashSet<u64>) -> Option<Value<'static>> {
    match summed(field) {
        Some(get) => Some(sum(row, get, seen)),
        None => rate_once(field, row, seen),
    }
}

/// The sum over the open sockets of a process. A socket with several descriptors counts once.
fn sum(
    row: &Row<'_>,
    get: impl Fn(&Entry<'_, Net>) -> Option<u64>,
    seen: &mut HashSet<u64>,
) -> Value<'static> {
    if row.view.shared(Group::Net).is_none() && row.view.reason(Group::Net).is_some() {
        return row.missing(Group::Net);
    }
    let list = row.view.owner(Group::Net).and_then(|t| t.list::<Net>());
    let Some(list) = list else { return row.missing(Group::Net) };
    let (mut total, mut known, mut unknown) = (0u64, false, false);
    for e in list.filter(|e| is_network(e)) {
        match get(&e) {
            Some(_) if !seen.insert(e.raw.inode) => known = true,
            Some(n) => {
                total = total.saturating_add(n);
                known = true;
            }
            None => unknown = true,
        }
    }
    match unknown && !known {
        true => Value::UNKNOWN,
        false => Value::Uint(total),
    }
}

macro_rules! process {
    ($name:literal $header:literal $unit:ident $text:ident $source:literal $what:literal) => {
        row!($name $header 6 Right [NET] Integer $unit $text, $source, $what, {}, |_, row| {
            let is_it = |(name, _): &&(&str, Member)| *name == $name;
            match SUMS.iter().find(is_it) {
                Some((_, get)) => sum(row, *get, &mut HashSet::new()),
                None => Value::UNKNOWN,
            }
        })
    };
}

/// Columns of processes.
pub const FIELDS: &[Field] = &[
    process!("net_sent" "NETSENT" Bytes Human "sock_diag(7) tcpi_bytes_sent"
        "Bytes sent over the TCP connections that are open now, with those sent again; UDP has no such counter"),
    process!("net_received" "NETRECV" Bytes Human "sock_diag(7) tcpi_bytes_received"
        "Bytes received over the TCP connections that are open now; UDP has no such counter"),
    process!("net_retrans" "NETRETR" Bytes Human "sock_diag(7) tcpi_bytes_retrans"
        "Bytes sent again over the TCP connections that are open now"),
    process!("net_drops" "NETDROP" Count Plain "sock_diag(7) SK_MEMINFO_DROPS"
        "Received packets that its open network sockets have dropped"),
];

/// The columns with bytes over the network, in the order of the numbers of a socket.
#[cfg(feature = "view")]
const RATED: [&str; 2] = ["net_sent_now", "net_received_now"];

/// The bytes per second of one of these columns over the sockets that are not in `seen` yet; they
/// are added to `seen`. `None`: it is another column.
#[cfg(feature = "view")]
fn rate_once(field: &Field, row: &Row<'_>, seen: &mut HashSet<u64>) -> Option<Value<'static>> {
    let which = RATED.iter().position(|name| *name == field.name)?;
    Some(rate(row, which, seen))
}

fn rate(row: &Row<'_>, which: usize, seen: &mut HashSet<u64>) -> Value<'static> {
    let rate = match row.part {
        Part::Rate(rate) if rate.interval_ns() > 0 => rate,
        _ => return Value::UNKNOWN,
    };
    match sum(row, |e| Some(rate.socket(e.raw.inode)?[which]), seen) {
        Value::Uint(bytes) => each_second(bytes, &rate),
        why => why,
    }
}

macro_rules! rate {
    ($name:literal $header:literal $which:literal $source:literal $what:literal) => {
        row!($name $header 6 Right [BASE(start_time_ns) NET] Integer Bytes Human, $source, $what,
            {}, |_, row| rate(row, $which, &mut HashSet::new()))
    };
}

/// Columns of activity. A single answer does not have them.
pub const RATES: &[Field] = &[
    rate!("net_sent_now" "SENT/s" 0 "sock_diag(7) tcpi_bytes_sent"
        "Bytes sent per second over the TCP connections that are open now, with those sent again"),
    rate!("net_received_now" "RECV/s" 1 "sock_diag(7) tcpi_bytes_received"
        "Bytes received per second over the TCP connections that are open now"),
];
