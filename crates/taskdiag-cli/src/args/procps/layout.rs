//! Which columns and keys the arguments of procps `ps` mean.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::{Bsd, ForestStyle, Typed, TypedAs};
use crate::columns::{self, Column};
use crate::exit::Exit;
use crate::order::{self, Key};
use crate::output::text::{ALL_SIGNALS, SHORT_SIGNALS};
use taskdiag::field::Align::{self, Left, Right};
use taskdiag::field::{Field, TASKS, TextForm, Value};
use taskdiag::{Groups, Members};

/// Names that procps has for other columns than ours, or with another header.
const OWN: &[(&str, &str)] = &[
    ("addr_1", "addr:1=ADDR"),
    ("cgname", "cgroup:27=CGNAME"),
    ("uid_hack", "uname=UID"),
    ("zone", "label:31=ZONE"),
    ("cpuid", "psr:5=CPUID"),
    ("dsiz", "drs:4=DSIZ"),
    ("lim", "rlimit_rss:5=LIM"),
    ("m_drs", "drs:5=DRS"),
    ("m_trs", "trs:5=TRS"),
    ("m_size", "vsz_bytes:5=SIZE"),
    ("sgi_rss", "rss:4=RSS"),
    ("oomadj", "oomadj:5=OOMADJ"),
    ("thcount", "nlwp:5=THCNT"),
];

/// Columns that procps fills with `-` in each row, columns of other systems, and some that it does
/// not print: header, width (0: as for process ids) and alignment.
const EMPTY: &[(&str, &str, usize, Align)] = &[
    ("acflag", "ACFLG", 5, Right),
    ("acflg", "ACFLG", 5, Right),
    ("argc", "ARGC", 4, Right),
    ("bnd", "BND", 1, Right),
    ("cmaj_flt", "-", 1, Right),
    ("cmin_flt", "-", 1, Right),
    ("cnswap", "-", 1, Right),
    ("ctid", "CTID", 5, Right),
    ("cursig", "CURSIG", 6, Right),
    ("cutime", "-", 1, Right),
    ("cwd", "CWD", 3, Left),
    ("emul", "EMUL", 13, Left),
    ("end_code", "E_CODE", 16, Right),
    ("inblk", "INBLK", 5, Right),
    ("inblock", "INBLK", 5, Right),
    ("jid", "JID", 1, Right),
    ("jobc", "JOBC", 4, Right),
    ("ktrace", "KTRACE", 8, Right),
    ("ktracep", "KTRACEP", 8, Right),
    ("login", "LOGNAME", 8, Left),
    ("logname", "LOGNAME", 8, Left),
    ("luser", "LUSER", 8, Left),
    ("m_dt", "DT", 4, Right),
    ("m_lrs", "LRS", 5, Right),
    ("m_resident", "RES", 5, Right),
    ("m_share", "SHRD", 5, Right),
    ("m_swap", "SWAP", 5, Right),
    ("msgrcv", "MSGRCV", 6, Right),
    ("msgsnd", "MSGSND", 6, Right),
    ("mwchan", "MWCHAN", 6, Left),
    ("nivcsw", "IVCSW", 5, Right),
    ("nsignals", "NSIGS", 5, Right),
    ("nsigs", "NSIGS", 5, Right),
    ("nswap", "NSWAP", 5, Right),
    ("nvcsw", "VCSW", 5, Right),
    ("nwchan", "WCHAN", 6, Right),
    ("osz", "SZ", 2, Right),
    ("oublk", "OUBLK", 5, Right),
    ("oublock", "OUBLK", 5, Right),
    ("p_ru", "P_RU", 6, Right),
    ("paddr", "PADDR", 6, Right),
    ("poip", "-", 1, Right),
    ("prmgrp", "PRMGRP", 12, Right),
    ("prmid", "PRMID", 12, Right),
    ("project", "PROJECT", 12, Left),
    ("projid", "PROJID", 5, Right),
    ("pset", "PSET", 4, Right),
    ("psxpri", "PPR", 3, Right),
    ("re", "RE", 3, Right),
    ("resident", "RES", 5, Right),
    ("rlink", "RLINK", 8, Right),
    ("scnt", "SCNT", 4, Right),
    ("scount", "SC", 4, Right),
    ("seat", "SEAT", 11, Left),
    ("share", "-", 1, Right),
    ("sl", "SL", 3, Right),
    ("start_code", "S_CODE", 16, Right),
    ("status", "STATUS", 6, Right),
    ("systime", "SYSTEM", 6, Right),
    ("taskid", "TASKID", 0, Right),
    ("tdev", "TDEV", 4, Right),
    ("tsess", "TSESS", 0, Right),
    ("tsession", "TSESS", 0, Right),
    ("tsid", "TSID", 0, Right),
    ("u_procp", "UPROCP", 6, Right),
    ("umask", "UMASK", 5, Right),
    ("upr", "UPR", 3, Right),
    ("uprocp", "UPROCP", 8, Right),
    ("usertime", "USER", 4, Right),
    ("usrpri", "UPR", 3, Right),
    ("utime", "UTIME", 6, Right),
    ("vm_data", "DATA", 5, Right),
    ("vm_exe", "EXE", 5, Right),
    ("vm_lib", "LIB", 5, Right),
    ("vm_lock", "LCK", 3, Right),
    ("vm_stack", "STACK", 5, Right),
    ("xstat", "XSTAT", 5, Right),
    ("zone", "ZONE", 31, Left),
    ("zoneid", "ZONEID", 31, Right),
];

/// Views of other systems, whose names procps reads as a column.
const MACROS: &[(&str, &str)] = &[
    ("DFMT", "pid,tname,state,cputime,cmd"),
    ("DefBSD", "pid,tname,stat,bsdtime,args"),
    ("DefSysV", "pid,tname,time,cmd"),
    ("END_BSD", "state,tname,cputime,comm"),
    ("END_SYS5", "state,tname,time,command"),
    ("F5FMT", "uname,pid,ppid,c,start,tname,time,cmd"),
    ("FB_", "pid,tt,stat,time,command"),
    ("FB_j", "user,pid,ppid,pgid,sess,jobc,stat,tt,time,command"),
    ("FB_l", "uid,pid,ppid,cpu,pri,nice,vsz,rss,wchan,stat,tt,time,command"),
    ("FB_u", "user,pid,pcpu,pmem,vsz,rss,tt,stat,start,time,command"),
    ("FB_v", "pid,stat,time,sl,re,pagein,vsz,rss,lim,tsiz,pcpu,pmem,command"),
    ("FD_", "pid,tty,time,comm"),
    ("FD_f", "user,pid,ppid,start_time,tty,time,comm"),
    ("FD_fj", "user,pid,ppid,start_time,tty,time,pgid,sid,comm"),
    ("FD_j", "pid,tty,time,pgid,sid,comm"),
    ("FD_l", "flags,state,uid,pid,ppid,priority,nice,vsz,wchan,tty,time,comm"),
    ("FD_lj", "flags,state,uid,pid,ppid,priority,nice,vsz,wchan,tty,time,pgid,sid,comm"),
    ("FL5FMT", "f,state,uid,pid,ppid,pcpu,pri,nice,rss,wchan,start,time,command"),
    ("FLASK_context", "pid,context,command"),
    ("HP_", "pid,tty,time,comm"),
    ("HP_f", "user,pid,ppid,cpu,stime,tty,time,args"),
    ("HP_fl", "flags,state,user,pid,ppid,cpu,intpri,nice,addr,sz,wchan,stime,tty,time,args"),
    ("HP_l", "flags,state,uid,pid,ppid,cpu,intpri,nice,addr,sz,wchan,tty,time,comm"),
    ("J390", "pid,sid,pgrp,tname,atime,args"),
    ("JFMT", "user,pid,ppid,pgid,sess,jobc,state,tname,cputime,command"),
    ("L5FMT", "f,state,uid,pid,ppid,c,pri,nice,addr,sz,wchan,tt,time,ucmd"),
    ("LFMT", "uid,pid,ppid,cp,pri,nice,vsz,rss,wchan,state,tname,cputime,command"),
    ("OL_X", "pid,start_stack,esp,eip,timeout,alarm,stat,tname,bsdtime,args"),
    ("OL_j", "ppid,pid,pgid,sid,tname,tpgid,stat,uid,bsdtime,args"),
    ("OL_l", "flags,uid,pid,ppid,priority,nice,vsz,rss,wchan,stat,tname,bsdtime,args"),
    ("OL_m", "pid,tname,majflt,minflt,m_trs,m_drs,m_size,m_swap,rss,m_share,vm_lib,m_dt,args"),
    ("OL_s", "uid,pid,pending,sig_block,sig_ignore,caught,stat,tname,bsdtime,args"),
    ("OL_u", "user,pid,pcpu,pmem,vsz,rss,tname,stat,start_time,bsdtime,args"),
    ("OL_v", "pid,tname,stat,bsdtime,maj_flt,m_trs,m_drs,rss,pmem,args"),
    ("RD_", "pid,tname,state,bsdtime,comm"),
    ("RD_f", "uid,pid,ppid,start_time,tname,bsdtime,args"),
    ("RD_fj", "uid,pid,ppid,start_time,tname,bsdtime,pgid,sid,args"),
    ("RD_j", "pid,tname,state,bsdtime,pgid,sid,comm"),
    ("RD_l", "flags,state,uid,pid,ppid,priority,nice,wchan,tname,bsdtime,comm"),
    ("RD_lj", "flags,state,uid,pid,ppid,priority,nice,wchan,tname,bsdtime,pgid,sid,comm"),
    ("RUSAGE", "minflt,majflt,nswap,inblock,oublock,msgsnd,msgrcv,nsigs,nvcsw,nivcsw"),
    ("SCHED", "user,pcpu,pri,usrpri,nice,psxpri,psr,policy,pset"),
    ("SFMT", "uid,pid,cursig,sig,sigmask,sigignore,sigcatch,stat,tname,command"),
    ("Std_f", "uid_hack,pid,ppid,c,stime,tname,time,cmd"),
    ("Std_fl", "f,s,uid_hack,pid,ppid,c,opri,ni,addr,sz,wchan,stime,tname,time,cmd"),
    ("Std_l", "f,s,uid,pid,ppid,c,opri,ni,addr,sz,wchan,tname,time,ucmd"),
    ("THREAD", "user,pcpu,pri,scnt,wchan,usertime,systime"),
    ("UFMT", "uname,pid,pcpu,pmem,vsz,rss,tt,state,start,time,command"),
    ("VFMT", "pid,tt,state,time,sl,pagein,vsz,rss,pcpu,pmem,command"),
];

/// The common properties of the fields of [`EMPTY`].
const NOTHING: Field = Field::drawn(
    "a column of another system",
    "",
    1,
    "nothing",
    "Always -, for scripts that expect the column",
);

static NO_VALUE: Field = NOTHING;

/// The same with the width of process ids.
static NO_ID: Field = {
    let mut field = NOTHING;
    (field.text, field.width) = (TextForm::Pid, 5);
    field
};

/// What `%p` and its like stand for in a format of AIX.
const AIX: &[(char, &str)] = &[
    ('C', "pcpu=%CPU"),
    ('G', "group=GROUP"),
    ('P', "ppid=PPID"),
    ('U', "user=USER"),
    ('a', "args=COMMAND"),
    ('c', "comm=COMMAND"),
    ('g', "rgroup=RGROUP"),
    ('n', "nice=NI"),
    ('p', "pid=PID"),
    ('r', "pgid=PGID"),
    ('t', "etime=ELAPSED"),
    ('u', "ruser=RUSER"),
    ('x', "time=TIME"),
    ('y', "tty=TTY"),
    ('z', "vsz=VSZ"),
];

/// Keys of one letter, after the BSD letter O.
const SHORT: &[(char, &str)] = &[
    ('C', "pcpu"),
    ('G', "tpgid"),
    ('J', "cstime"),
    ('M', "maj_flt"),
    ('N', "cmaj_flt"),
    ('P', "ppid"),
    ('R', "rss"),
    ('S', "rss_shmem"),
    ('T', "start_time"),
    ('U', "uid"),
    ('c', "comm"),
    ('f', "flags"),
    ('g', "pgrp"),
    ('j', "cutime"),
    ('k', "usertime"),
    ('m', "min_flt"),
    ('n', "cmin_flt"),
    ('o', "session"),
    ('p', "pid"),
    ('r', "rss"),
    ('s', "size"),
    ('t', "tty"),
    ('u', "user"),
    ('v', "vsize"),
    ('y', "priority"),
];

fn usage<T>(text: &str) -> Result<T, Exit> {
    Err(Exit::Usage(text.to_owned()))
}

/// One column, NAME, NAME:WIDTH, NAME=HEADER.
fn item(text: &str) -> Result<Vec<Column>, Exit> {
    let (name, header) = match text.split_once('=') {
        Some((name, header)) => (name, Some(header)),
        None => (text, None),
    };
    let (bare, width) = match name.split_once(':') {
        Some((bare, width)) => {
            (bare, width.parse::<usize>().ok().filter(|w| (1..=10_000).contains(w)))
        }
        None => (name, None),
    };
    if let Some((_, usual, usually, align)) = EMPTY.iter().find(|(n, ..)| *n == bare) {
        if width.is_some() || bare == name {
            let mut c = Column::literal(header.unwrap_or(usual));
            (c.name, c.align) = (bare.to_owned(), *align);
            c.field = if *usually == 0 { &NO_ID } else { &NO_VALUE };
            let given = header.map_or(0, |h| h.chars().count());
            c.width = width.unwrap_or_else(|| given.max(*usually).max(c.field.width));
            c.fixed = width.is_some();
            return Ok(vec![c]);
        }
    }
    let own = match (OWN.iter().find(|(n, _)| *n == bare), width) {
        (Some((_, own)), None) if bare == name => Cow::Borrowed(*own),
        (Some((_, own)), Some(width)) => {
            let (column, header) = own.split_once('=').unwrap_or((own, own));
            let column = column.split(':').next().unwrap_or(column);
            Cow::Owned(format!("{column}:{width}={header}"))
        }
        _ => Cow::Borrowed(name),
    };
    let mut columns = columns::view(&TASKS, &own)?;
    if let (Some(header), [column]) = (header, &mut columns[..]) {
        column.header = header.to_owned();
        if !header.is_empty() {
            column.key = header.to_owned();
        }
        column.width = column.width.max(header.chars().count());
    }
    if bare == "sgi_rss" {
        columns.iter_mut().for_each(|c| c.align = Left);
    }
    if bare == "lim" {
        columns.iter_mut().for_each(|c| c.form = TextForm::Kib);
    }
    // Sets of signals have as many digits as there is room for. A width that the user gives counts
    // for the short form, and leaves blanks after it.
    for c in columns.iter_mut().filter(|c| c.form == TextForm::Signals && c.fixed) {
        c.width += ALL_SIGNALS - SHORT_SIGNALS;
        c.align = Left;
        if !c.header.is_empty() {
            c.header = format!("{:>ALL_SIGNALS$}", c.header);
        }
    }
    Ok(columns)
}

/// The columns of a list; a blank, comma or end must not follow another one.
fn list(text: &str) -> Result<Vec<Column>, Exit> {
    let text = text.strip_suffix([',', ' ', '\t', '\n']).unwrap_or(text);
    let read = || {
        let mut all = Vec::new();
        for word in text.split([',', ' ', '\t', '\n']) {
            if word.is_empty() {
                return usage("-o has an empty column name: give one name between two commas");
            }
            match MACROS.iter().find(|(name, _)| *name == word) {
                Some((_, view)) => all.extend(self::all(view)?),
                None => all.extend(item(word)?),
            }
        }
        Ok(all)
    };
    let is_aix = text.contains('%')
        && !["%cpu", "%mem"].iter().any(|w| {
            text.strip_prefix(w).is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ' ']))
        });
    read().or_else(|why| if is_aix { aix(text).map_err(|_| why) } else { Err(why) })
}

/// A format of AIX: `%p` is a column, all else stands between columns as it is.
fn aix(text: &str) -> Result<Vec<Column>, Exit> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('%') {
            let letter = after.chars().next();
            let Some((_, spec)) = AIX.iter().find(|(l, _)| Some(*l) == letter) else {
                return usage("each % is followed by a letter that stands for a column");
            };
            out.extend(item(spec)?);
            rest = &after[1..];
        } else {
            let end = rest.find('%').unwrap_or(rest.len());
            if !rest.starts_with(' ') {
                return usage("text between the columns of such a format begins with a blank");
            }
            out.push(Column::literal(&rest[..end]));
            rest = &rest[end..];
        }
    }
    // procps writes no blank between such a format and what follows it.
    if let Some(last) = out.last_mut() {
        last.joined = true;
    }
    Ok(out)
}

/// The keys of a list of letters, each with `-` before it for largest first. `None` if it is not
/// such a list.
fn short_keys(text: &str) -> Option<Vec<Key>> {
    let mut items = Vec::new();
    let mut sign = "";
    let mut seen = Vec::new();
    for c in text.chars() {
        match c {
            '+' | '-' if !sign.is_empty() => return None,
            '+' => sign = "+",
            '-' => sign = "-",
            _ => {
                let (_, name) = SHORT.iter().find(|(l, _)| *l == c)?;
                if std::mem::take(&mut sign).starts_with('-') {
                    items.push(format!("-{name}"));
                } else {
                    items.push((*name).to_owned());
                }
                if seen.contains(&c) {
                    return None;
                }
                seen.push(c);
            }
        }
    }
    if !sign.is_empty() || items.is_empty() {
        return None;
    }
    order::keys(&TASKS, items.iter().map(String::as_str).collect()).ok()
}

/// The columns and keys given with `-o`, `-O`, `O` and `--sort`. Without columns, a view has its
/// own.
pub fn specs(t: &Typed) -> Result<(Vec<Column>, Vec<Key>), Exit> {
    let mut columns: Vec<Column> = Vec::new();
    let mut keys: Vec<Key> = Vec::new();
    let among = |tail: &str, text: &str| -> Result<Vec<Column>, Exit> {
        let mut all = item("pid")?;
        all.extend(list(text)?);
        for name in tail.split(',') {
            all.extend(item(name)?);
        }
        Ok(all)
    };
    for (place, text) in &t.specs {
        match place {
            TypedAs::Columns => columns.extend(list(text)?),
            TypedAs::UnixAmong if !columns.is_empty() => {
                return usage("-O adds columns to the usual ones, so -o cannot stand before it");
            }
            TypedAs::UnixAmong => columns = among("state,tname,time,command", text)?,
            TypedAs::BsdAmong => match short_keys(text).filter(|_| keys.is_empty()) {
                Some(short) => keys = short,
                None if !columns.is_empty() => {
                    return usage("O adds columns to the usual ones, so o cannot stand before it");
                }
                None => columns = among("state,tname,cputime,comm", text)?,
            },
            TypedAs::Keys if !keys.is_empty() => {
                return usage("there are two lists of keys to sort by");
            }
            TypedAs::Keys => {
                let text = text.strip_suffix([',', ' ', '\t', '\n']).unwrap_or(text);
                let names = text.split([',', ' ', '\t', '\n']).map(key_here).collect::<Vec<_>>();
                keys = order::keys(&TASKS, names.iter().map(Cow::as_ref).collect())?;
            }
        }
    }
    Ok((columns, keys))
}

/// A key by which procps sorts, with the name that it has here.
fn key_here(key: &str) -> Cow<'_, str> {
    let name = key.trim_start_matches(['-', '+']);
    match OWN.iter().find(|(theirs, _)| *theirs == name) {
        Some((_, ours)) => {
            let sign = &key[..key.len() - name.len()];
            Cow::Owned(format!("{sign}{}", ours.split([':', '=']).next().unwrap_or(ours)))
        }
        None => Cow::Borrowed(key),
    }
}

/// Columns by whose text nobody expects the order, and the column by which procps sorts instead.
const SORTED_BY: &[(&[&str], &str)] = &[
    (&["f"], "task_flags"),
    (&["stat", "sgi_p"], "s"),
    (&["label"], "tgid"),
    (&["class", "cls"], "sched"),
    (&["pri", "opri", "pri_foo", "pri_bar", "pri_baz", "pri_api"], "priority"),
    (&["trs", "drs", "size", "vsz_bytes"], "vsz"),
];

/// The nice value that the kernel has, even if the policy makes no use of it.
static NICE: Field = {
    let mut field = NOTHING;
    (field.groups, field.members) = (Groups::STAT, Members::ALL);
    field.get = |_, row| {
        let nice = row.stat.and_then(|s| s.nice());
        nice.map_or(Value::UNKNOWN, |nice| Value::Int(nice.into()))
    };
    field
};

/// The arguments, or the name in brackets where there are none.
static ARGS: Field = {
    let mut field = NOTHING;
    (field.groups, field.members) = (Groups::BASE.union(Groups::CMDLINE), Members::ALL);
    field.get = |cx, row| {
        static USUAL: LazyLock<&Field> = LazyLock::new(|| TASKS.find("args").expect("it is").field);
        match ((USUAL.get)(cx, row), row.comm) {
            (Value::Missing(_), Some(comm)) => {
                Value::Bytes { data: Cow::Owned([b"[", comm, b"]"].concat()), cut: false }
            }
            (value, _) => value,
        }
    };
    field
};

/// Sorts by what procps sorts by for these columns.
pub fn sort_as_procps(keys: &mut [Key]) {
    for key in keys {
        let instead = SORTED_BY.iter().find(|(names, _)| names.contains(&key.field.name));
        key.field = match (key.field.name, instead) {
            ("ni", _) => &NICE,
            ("args", _) => &ARGS,
            (_, Some((_, name))) => TASKS.find(name).map_or(key.field, |named| named.field),
            _ => key.field,
        };
    }
}

/// For columns for which `ps` of procps shows `-`, shows the value, as taskdiag's own ps does. For
/// a column that only another system has, the error names a replacement.
pub fn fill(columns: &mut [Column]) -> Result<(), Exit> {
    let is_one = |c: &&mut Column| [&NO_VALUE, &NO_ID].iter().any(|f| std::ptr::eq(c.field, *f));
    for c in columns.iter_mut().filter(is_one) {
        let own = columns::parse(&c.name)?.remove(0);
        let usual = EMPTY.iter().find(|e| e.0 == c.name).map_or("", |e| e.1);
        if c.header == usual {
            (c.header, c.key) = (own.header, own.key);
        }
        if !c.fixed {
            c.width = own.width.max(c.header.chars().count());
        }
        (c.field, c.form, c.align) = (own.field, own.form, own.align);
    }
    Ok(())
}

/// Are columns changed that options of System V show?
fn is_modified(t: &Typed) -> bool {
    t.extra_full || t.with_rss || t.jobs || t.class || t.processor || t.label
}

/// Takes the columns of the variable `PS_FORMAT`, if no option asks for others.
///
/// # Errors
/// They are no list of columns.
pub fn take_format(t: &mut Typed, format: &str) -> Result<(), Exit> {
    let is_plain = !t.full && !t.long && !is_modified(t) && t.bsd_views.is_empty();
    if !is_plain || format.is_empty() || !specs(t).is_ok_and(|(columns, _)| columns.is_empty()) {
        return Ok(());
    }
    list(format)?;
    t.specs.push((TypedAs::Columns, format.to_owned()));
    Ok(())
}

/// The columns that are shown.
pub fn columns(t: &Typed) -> Result<Vec<Column>, Exit> {
    let (given, _) = specs(t)?;
    let unix_view = t.full || t.long;
    let modified = is_modified(t);
    let mut columns = if given.is_empty() {
        match t.bsd_views[..] {
            [] if t.with_rss && !t.long => {
                return usage("-y changes the columns of -l, so it needs -l");
            }
            [] => unix(t)?,
            [one] if !unix_view => bsd(t, one)?,
            _ => {
                return usage("each of these options shows columns of its own: choose one of them");
            }
        }
    } else if unix_view || !t.bsd_views.is_empty() {
        return usage("-o lists all columns: leave out the options that show others");
    } else if modified {
        return usage("-o lists all columns: leave out the options that add some");
    } else {
        given
    };
    for c in &mut columns {
        adapt(t, c)?;
    }
    Ok(columns)
}

/// What `n`, `c`, `e` and `S` make of a column.
fn adapt(t: &Typed, c: &mut Column) -> Result<(), Exit> {
    let number = |name: &str| match name {
        "user" => Some("uid"),
        "ruser" => Some("ruid"),
        "suser" => Some("suid"),
        "fuser" => Some("fuid"),
        "group" => Some("gid"),
        "rgroup" => Some("rgid"),
        "sgroup" => Some("sgid"),
        "fgroup" => Some("fgid"),
        _ => None,
    };
    let other = match c.field.name {
        name if t.numeric && number(name).is_some() => number(name),
        "args" if t.command_name && !t.environment => Some("ucmd"),
        "args" if !t.command_name && t.environment => Some("args_environ"),
        "args" | "comm" if t.environment => Some("comm_environ"),
        "bsdtime" if t.cumulative => Some("bsdtime_all"),
        "minflt" if t.cumulative => Some("minflt_all"),
        "majflt" if t.cumulative => Some("majflt_all"),
        "pcpu" | "c" | "cp" if t.cumulative => {
            // The same value with children in it, in the form of this column.
            c.field = item("cuc")?[0].field;
            return Ok(());
        }
        _ => None,
    };
    if let Some(name) = other {
        let with = item(name)?;
        (c.field, c.form, c.align) = (with[0].field, with[0].form, with[0].align);
    }
    if t.numeric && c.field.name == "wchan" {
        c.align = taskdiag::field::Align::Right;
    }
    Ok(())
}

fn all(spec: &str) -> Result<Vec<Column>, Exit> {
    let mut out = Vec::new();
    for name in spec.split(',') {
        out.extend(item(name)?);
    }
    Ok(out)
}

/// Put a column after the first of these headers that is in the list.
fn after(columns: &mut Vec<Column>, headers: &[&str], name: &str) -> Result<(), Exit> {
    let at = headers.iter().find_map(|h| columns.iter().position(|c| c.header == *h));
    if let Some(at) = at {
        columns.insert(at + 1, item(name)?.remove(0));
    }
    Ok(())
}

/// A BSD view, with the columns that other options add to it.
fn bsd(t: &Typed, view: Bsd) -> Result<Vec<Column>, Exit> {
    let mut columns = all(match view {
        Bsd::Jobs => "ppid,pid,pgid,sid,tname,tpgid,stat,uid,bsdtime,args",
        Bsd::Long => "flags,uid,pid,ppid,priority,nice,vsz,rss,wchan,stat,tname,bsdtime,args",
        Bsd::Signals => "uid,pid,pending,sig_block,sig_ignore,caught,stat,tname,bsdtime,args",
        Bsd::User => "user,pid,pcpu,pmem,vsz,rss,tname,stat,start_time,bsdtime,args",
        Bsd::Memory => "pid,tname,stat,bsdtime,maj_flt,m_trs,m_drs,rss,pmem,args",
        Bsd::Registers => "pid,stackp,esp,eip,timeout,alarm,stat,tname,bsdtime,args",
        Bsd::Context => "pid,context,command",
    })?;
    if t.with_rss {
        columns.retain(|c| c.header != "F");
    }
    if t.jobs {
        after(&mut columns, &["PPID", "PID"], "pgid")?;
        after(&mut columns, &["PGID"], "sid")?;
    }
    if t.class {
        columns.retain(|c| !["%CPU", "CPU", "CP", "C", "NI"].contains(&c.header.as_str()));
        after(&mut columns, &["PRI"], "class")?;
        columns.retain(|c| c.header != "PRI");
        after(&mut columns, &["CLS"], "pri")?;
    }
    if t.spid {
        after(&mut columns, &["PID"], "spid")?;
    }
    if t.lwp {
        after(&mut columns, &["SID", "SESS", "PGID", "PGRP", "PPID", "PID"], "lwp")?;
        after(&mut columns, &["%CPU"], "nlwp")?;
    }
    if t.label {
        columns.insert(0, item("label")?.remove(0));
    }
    Ok(columns)
}

/// The view to which letters of System V add columns. If only BSD words were typed, it has the
/// default columns of BSD.
fn unix(t: &Typed) -> Result<Vec<Column>, Exit> {
    let mut spec: Vec<&str> = Vec::new();
    let mut add = |when: bool, names: &[&'static str]| {
        if when {
            spec.extend(names);
        }
    };
    add(t.label, &["label"]);
    add(t.long && !t.with_rss, &["f"]);
    add(t.long, &["s"]);
    add(t.full, &["uid_hack"]);
    add(t.long && !t.full, &["uid"]);
    add(true, &["pid"]);
    add(t.spid, &["spid"]);
    add(t.full || t.long, &["ppid"]);
    add(t.jobs, &["pgid", "sid"]);
    add(t.lwp, &["lwp"]);
    add(t.processor, &["psr"]);
    add((t.full || t.long) && !t.class, &["c"]);
    add(t.lwp && t.full, &["nlwp"]);
    add(t.class, &["class", "pri"]);
    add(t.long && !t.class, &["opri", "ni"]);
    add(t.long && t.with_rss, &["rss"]);
    add(t.long && !t.with_rss, &["addr_1"]);
    add(t.extra_full || t.long, &["sz"]);
    add(t.long, &["wchan"]);
    add(t.extra_full && !(t.long && t.with_rss), &["rss"]);
    add(t.extra_full && !t.processor, &["psr"]);
    add(t.full, &["stime"]);
    add(true, &["tname"]);
    if t.bsd {
        add(!t.long, &["stat"]);
        add(true, &["bsdtime"]);
        add(t.full || t.long, &["cmd"]);
        add(!(t.full || t.long), &["args"]);
    } else {
        add(true, &["time"]);
        add(t.full, &["cmd"]);
        add(!t.full, &["ucmd"]);
    }
    all(&spec.join(","))
}

/// Siblings of a forest are in the order in which they began.
pub fn keys(t: &Typed) -> Result<Vec<Key>, Exit> {
    let (_, keys) = specs(t)?;
    match t.forest {
        Some(ForestStyle::Drawn | ForestStyle::Indented) if keys.is_empty() => {
            order::keys(&TASKS, vec!["start_time"])
        }
        _ => Ok(keys),
    }
}
