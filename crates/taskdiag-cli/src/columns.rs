//! Columns: what `-o` and the ready-made views mean in terms of the field table.

use taskdiag::field::{Align, Field, Set, TASKS, Text};

use crate::exit::Exit;
use crate::nearest;

/// A column of the output.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name as asked for: the key in JSON and CSV.
    pub name: String,
    /// The header of the text column; may be empty.
    pub header: String,
    /// Least width of the text column.
    pub width: usize,
    /// Was the width asked for?
    pub fixed: bool,
    /// The field.
    pub field: &'static Field,
    /// How it looks as text.
    pub form: Text,
}

impl Column {
    /// Does the text begin at the left edge?
    pub fn is_left(&self) -> bool {
        self.field.align == Align::Left
    }
}

/// Columns of procps that users may ask for in vain, and what to use.
const LACKING: &[(&[&str], &str)] = &[
    (&["nwchan"], "use wchan"),
    (&["eip", "esp", "stackp", "start_stack"], "addresses are not shown"),
    (&["cgname"], "use cgroup or cgroup_path"),
    (&["docker"], "use container and runtime"),
    (&["seat"], "seats are not read"),
    (&["numa"], "it is not read yet"),
    (&["lim"], "use rlimit_rss"),
];

/// The column for one name.
fn column(set: &Set, name: &str) -> Result<Column, Exit> {
    let Some(named) = set.find(name) else {
        if let Some((_, instead)) = LACKING.iter().find(|(names, _)| names.contains(&name)) {
            return Err(Exit::Usage(format!(
                "the column '{name}' of ps is not had here: {instead}"
            )));
        }
        let hint = nearest::hint(name, set.all_names().map(|n| n.name));
        return Err(Exit::Usage(format!(
            "there is no column '{name}'{hint}; 'taskdiag fields' lists them"
        )));
    };
    Ok(Column {
        name: name.to_owned(),
        header: named.header.to_owned(),
        width: named.field.width.max(named.header.len()),
        fixed: false,
        field: named.field,
        form: named.field.text,
    })
}

/// The columns of one `-o` argument about tasks.
pub fn parse(spec: &str) -> Result<Vec<Column>, Exit> {
    parse_of(&TASKS, spec)
}

/// The columns of one `-o` argument: names with commas or blanks between them, each with an
/// optional `:width` and `=header`.
pub fn parse_of(set: &Set, spec: &str) -> Result<Vec<Column>, Exit> {
    let mut out = Vec::new();
    for item in spec.split([',', ' ', '\t', '\n']).filter(|s| !s.is_empty()) {
        let (name, header) = match item.split_once('=') {
            Some((n, h)) => (n, Some(h)),
            None => (item, None),
        };
        let (name, width) = match name.split_once(':') {
            Some((n, w)) => match w.parse::<usize>() {
                Ok(w @ 1..=10_000) => (n, Some(w)),
                _ => {
                    return Err(Exit::Usage(format!(
                        "the width in '{item}' must be a number from 1 to 10000, as in {n}:20"
                    )));
                }
            },
            None => (name, None),
        };
        let mut c = column(set, name)?;
        if let Some(h) = header {
            c.header = h.to_owned();
            c.width = c.width.max(h.chars().count());
        }
        if let Some(w) = width {
            (c.width, c.fixed) = (w, true);
        }
        out.push(c);
    }
    if out.is_empty() {
        return Err(Exit::Usage("-o needs at least one column, as in -o pid,comm".to_owned()));
    }
    Ok(out)
}

/// Make the columns of ids wide enough for the largest of them.
pub fn fit_pids(columns: &mut [Column], largest: u32) {
    let digits = largest.checked_ilog10().map_or(1, |n| n as usize + 1);
    for c in columns.iter_mut().filter(|c| c.field.text == Text::Pid && !c.fixed) {
        c.width = c.width.max(digits);
    }
}

/// A ready-made set of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// What `taskdiag ps` shows.
    Default,
    /// `ps -e`.
    SysV,
    /// `ps -f`.
    Full,
    /// `ps -F`.
    ExtraFull,
    /// `ps -j`.
    Jobs,
    /// `ps -jf`.
    FullJobs,
    /// `ps -l`.
    Long,
    /// `ps -lf`.
    FullLong,
    /// `ps ax`.
    Bsd,
    /// `ps aux`.
    BsdUser,
    /// `ps axj`.
    BsdJobs,
    /// `ps axl`.
    BsdLong,
    /// `ps axv`.
    BsdMemory,
    /// `ps axs`.
    BsdSignals,
}

/// How threads show in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadColumns {
    /// Not at all.
    None,
    /// `-T`: a column with the thread's id after that of the process.
    Tid,
    /// `-L`: LWP, and NLWP where there is room.
    Lwp,
}

impl View {
    /// Its columns.
    pub fn columns(self, threads: ThreadColumns) -> Vec<Column> {
        // {T}: where a thread id goes; {N}: where -L puts the number of threads.
        let spec = match self {
            View::Default => "user,pid,{T},ppid,s,nlwp,time,rss,start_time,args",
            View::SysV => "pid,{T},tname,time,ucmd",
            View::Full => "uname=UID,pid,{T2},ppid,{L},c,{N},stime,tname,time,cmd",
            View::ExtraFull => "uname=UID,pid,{T2},ppid,{L},c,{N},sz,rss,psr,stime,tname,time,cmd",
            View::Jobs => "pid,{T},pgid,sid,tname,time,ucmd",
            View::FullJobs => "uname=UID,pid,{T2},ppid,pgid,sid,{L},c,{N},stime,tname,time,cmd",
            View::Long => {
                "f,s,uid,pid,{T2},ppid,{L},c,opri=PRI,ni,addr:1=ADDR,sz,wchan,tname,time,ucmd"
            }
            View::FullLong => {
                "f,s,uname=UID,pid,{T2},ppid,{L},c,{N},opri=PRI,ni,addr:1=ADDR,sz,wchan,stime,\
                 tname,time,cmd"
            }
            View::Bsd => "pid,{T},tname,stat,bsdtime=TIME,args",
            View::BsdUser => {
                "user,pid,{T},%cpu,{N},%mem,vsz,rss,tname,stat,start_time,bsdtime,args"
            }
            View::BsdJobs => "ppid,pid,{T},pgid,sid,tname,tpgid,stat,uid,bsdtime,args",
            View::BsdLong => "f,uid,pid,{T},ppid,priority,ni,vsz,rss,wchan,stat,tname,bsdtime,args",
            View::BsdSignals => {
                "uid,pid,{T},pending,blocked,ignored,caught,stat,tname,bsdtime,args"
            }
            View::BsdMemory => "pid,{T},tname,stat,bsdtime,maj_flt,trs,drs,rss,%mem,args",
        };
        let mut out = Vec::new();
        for item in spec.split(',') {
            let item = match (item, threads) {
                ("{T}", ThreadColumns::Tid) | ("{T2}", ThreadColumns::Tid) => "tid",
                ("{T}", ThreadColumns::Lwp) | ("{L}", ThreadColumns::Lwp) => "lwp",
                ("{N}", ThreadColumns::Lwp) => "nlwp",
                ("{T}" | "{T2}" | "{L}" | "{N}", _) => continue,
                (item, _) => item,
            };
            out.extend(parse(item).expect("the views name columns of the table"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cs: &[Column]) -> String {
        cs.iter().map(|c| c.header.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn views_are_those_of_procps() {
        let of = |v: View| headers(&v.columns(ThreadColumns::None));
        assert_eq!(of(View::BsdUser), "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND");
        assert_eq!(of(View::Full), "UID PID PPID C STIME TTY TIME CMD");
        assert_eq!(of(View::SysV), "PID TTY TIME CMD");
        assert_eq!(of(View::Bsd), "PID TTY STAT TIME COMMAND");
        assert_eq!(
            headers(&View::Full.columns(ThreadColumns::Lwp)),
            "UID PID PPID LWP C NLWP STIME TTY TIME CMD"
        );
        assert_eq!(of(View::Default), "USER PID PPID S NLWP TIME RSS START COMMAND");
    }

    #[test]
    fn lists_headers_and_widths() {
        let c = parse("pid,comm=NAME user:20 ,args=").unwrap();
        assert_eq!(headers(&c), "PID NAME USER ");
        assert_eq!(c[2].width, 20);
        for bad in ["", " , ", "pid:x", "pid:0", "nosuch", "pid,"] {
            assert_eq!(parse(bad).is_ok(), bad == "pid,", "{bad:?}");
        }
        for (bad, word) in [("comand", "'command'"), ("eip:14", "not shown")] {
            let Err(Exit::Usage(text)) = parse(bad) else { panic!("{bad}") };
            assert!(text.contains(word), "{text}");
        }
        for name in LACKING.iter().flat_map(|l| l.0) {
            assert!(TASKS.find(name).is_none(), "{name}");
        }
    }
}
