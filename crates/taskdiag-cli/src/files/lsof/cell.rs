//! The texts of the columns about a file. The lines for programs (`-F`) and JSON use them, too.

use std::collections::HashSet;

use taskdiag::field::{self, Context, FILES, OpenRow, Part, Row, Value};
use taskdiag::files::{self, OpenFile, Owner};
use taskdiag::wire::{Reason, TaskView};
use taskdiag::{FdType, Group};

use super::ends::EndIndex;
use super::kernel::Kernel;
use super::record::{self, Record};
use super::safe::{self, Locale};
use super::{Cell, Ends, Layout, sockets};
use crate::exit::Exit;
use crate::files::Shown;
use crate::files::request::FilesArgs;

/// Everything that the texts are made from.
pub(super) struct Cells<'a> {
    pub all: &'a Shown<'a>,
    pub cx: &'a Context,
    pub args: &'a FilesArgs,
    pub layout: &'a Layout,
    pub locale: Locale,
    pub kernel: Kernel,
    pub hosts: super::hosts::Hosts,
    /// Whether only values that lsof knows are shown.
    pub strict: bool,
    ends: Option<EndIndex>,
}

/// A device.
pub(super) enum Device {
    /// The file has no device, or nothing is known.
    None,
    /// A text that lsof has in its place.
    Text(String),
    /// The device of the file system, and the device that the file itself stands for.
    Number(u32, Option<u32>),
}

/// The content of the column NODE.
pub(super) enum Node {
    None,
    Inode(u64),
    Protocol(String),
}

type Take<'t> = &'t mut dyn FnMut(&Record<'_>) -> Result<(), Exit>;

impl<'a> Cells<'a> {
    pub(super) fn new(
        all: &'a Shown<'a>,
        cx: &'a Context,
        args: &'a FilesArgs,
        layout: &'a Layout,
    ) -> Cells<'a> {
        let kernel = Kernel::new(args.table.source.from.is_some());
        let mut cells = Cells {
            all,
            cx,
            args,
            layout,
            locale: Locale::of_environment(),
            kernel,
            hosts: super::hosts::Hosts::default(),
            strict: args.strict.is_some(),
            ends: None,
        };
        if layout.ends != Ends::No {
            let rows = || all.opened.owners().flat_map(|owner| all.opened.files_of(owner));
            let list = layout.ends == Ends::Listed;
            let is_selected = |file: &OpenFile<'_>| cells.is_selected(file);
            cells.ends = Some(EndIndex::new(list, rows, is_selected));
        }
        cells
    }
    /// Are threads among the rows?
    pub(super) fn has_tasks(&self) -> bool {
        self.layout.tasks == Some(true) && !self.all.threads.is_empty()
    }
    /// Does it meet the conditions?
    fn is_selected(&self, file: &OpenFile<'_>) -> bool {
        let select = &self.args.select;
        // Without ends, the query has already left out all other files.
        self.layout.ends == Ends::No && self.layout.tasks != Some(true)
            || select.may_match(&file.owner.row) && select.matches(file)
    }
    fn is_shown(&self, file: &OpenFile<'_>) -> bool {
        let select = &self.args.select;
        let is_denied_row = || {
            let reason = file.path.and_then(|p| p.reason);
            let is_exe = file.label() == "txt";
            match reason {
                None => true,
                Some(_) if self.layout.quiet => false,
                Some(Reason::Denied) => true,
                // A kernel thread has no program, and lsof shows that.
                Some(Reason::Absent) => is_exe && file.owner.row.is_kthread(),
                Some(_) => false,
            }
        };
        let is_found = select.inet.is_empty()
            || !sockets::is_unknown(self, file)
            || select.matches_without_inet(file);
        is_found
            && is_denied_row()
            && !(record::is_unmapped(file) && (select.deleted || select.links_below.is_some()))
    }
    /// Gives all files of the list.
    pub(super) fn each(&self, take: Take<'_>) -> Result<(), Exit> {
        if self.layout.tasks == Some(true) {
            return self.each_of_tasks(take);
        }
        for owner in self.all.opened.owners() {
            self.give_denied(owner, (Group::Paths, &["cwd", "rtd", "txt"]), take)?;
            for file in self.all.opened.files_of(owner) {
                let is_end = || self.ends.as_ref().is_some_and(|e| e.is_listed(&file));
                if self.is_shown(&file) && (self.is_selected(&file) || is_end()) {
                    // A thread with files of its own.
                    let row = &owner.row;
                    let is_thread = row.view.pid() != row.view.tgid();
                    let task = (Some(row.view.pid()), row.comm.unwrap_or_default());
                    self.give(&file, is_thread.then_some(task), take)?;
                }
            }
            self.give_denied(owner, (Group::Fd, &["NOFD"]), take)?;
        }
        Ok(())
    }
    fn give(
        &self,
        file: &OpenFile<'_>,
        task: Option<(Option<u32>, &[u8])>,
        take: Take<'_>,
    ) -> Result<(), Exit> {
        let row = file.owner.row.with_part(Part::File(OpenRow::new(file, self.all.files)));
        take(&Record { row, file: Some(file), denied: "", task })
    }
    /// The rows of a process whose files may not be read here. lsof only shows that its descriptors
    /// are denied.
    fn give_denied(
        &self,
        owner: &Owner<'_>,
        (group, rows): (Group, &[&'static str]),
        take: Take<'_>,
    ) -> Result<(), Exit> {
        let select = &self.args.select;
        let key = (owner.row.view.tgid(), group);
        if self.layout.quiet || !owner.row.view.is_leader() || !self.all.denied.contains(&key) {
            return Ok(());
        }
        for denied in rows {
            // No condition can match NOFD. The other rows have names that conditions can match.
            let about_files = select.has_conditions_without_labels();
            let labelled = select.takes_label(denied);
            let taken = match select.and {
                true => select.takes_process(&owner.row) && !about_files && labelled != Some(false),
                false => {
                    let alone = !about_files && labelled.is_none() && !select.wants_processes();
                    let process = select.wants_processes() && select.takes_process(&owner.row);
                    alone || process || labelled == Some(true)
                }
            };
            if taken && !select.is_excluded(&owner.row) && !select.leaves_out(denied) {
                take(&Record { row: owner.row, file: None, denied, task: None })?;
            }
        }
        Ok(())
    }
    /// `-K`: each process, and then its threads with their files.
    fn each_of_tasks(&self, take: Take<'_>) -> Result<(), Exit> {
        let select = &self.args.select;
        let owners: Vec<_> = self.all.opened.owners().collect();
        let others = select.wants_processes() || select.has_file_condition();
        for of_process in owners.chunk_by(|a, b| a.row.view.tgid() == b.row.view.tgid()) {
            let Some(leader) = of_process.first() else { continue };
            let tgid = leader.row.view.tgid();
            let from = self.all.threads.partition_point(|t| t.tgid() < tgid);
            let threads = self.all.threads[from..].iter().take_while(|t| t.tgid() == tgid);
            let threads: Vec<&TaskView<'_>> = threads.collect();
            let main: &Owner<'_> = leader;
            for file in self.all.opened.files_of(main) {
                let is = if select.and { !threads.is_empty() } else { others };
                if is && self.is_shown(&file) && self.is_selected(&file) {
                    self.give(&file, Some((None, b"")), take)?;
                }
            }
            for thread in &threads {
                let own = of_process.iter().find(|o| o.row.view.pid() == thread.pid());
                let row = Row::new(**thread);
                let comm = row.comm.unwrap_or_default();
                let task = Some((Some(thread.pid()), comm));
                let is_of_task = |file: &OpenFile<'_>| {
                    // A thread owns only the lists that it does not share.
                    let of_own = own.is_some_and(|o| std::ptr::eq(*o, file.owner));
                    match file.fd() {
                        Some(_) => of_own == own.is_some_and(|o| o.table.is_some()),
                        None => {
                            let elsewhere = own.is_some_and(|o| o.has_own_paths());
                            let place = matches!(file.label().as_ref(), "cwd" | "rtd");
                            of_own == (elsewhere && place)
                        }
                    }
                };
                for owner in std::iter::once(&main).chain(own.filter(|o| !std::ptr::eq(**o, main)))
                {
                    for file in self.all.opened.files_of(owner).filter(is_of_task) {
                        let selected = if select.and { self.is_selected(&file) } else { true };
                        if self.is_shown(&file) && selected && !select.is_excluded(&file.owner.row)
                        {
                            self.give(&file, task, take)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A cell of the table.
    pub(super) fn cell(&self, cell: Cell, r: &Record<'_>, most: usize) -> Vec<u8> {
        match cell {
            Cell::Command => safe::command(&self.command(r), most),
            Cell::Pid => r.row.view.tgid().to_string().into(),
            Cell::Tid => {
                let tid = r.task.and_then(|(tid, _)| tid);
                tid.map_or(Vec::new(), |tid| tid.to_string().into())
            }
            Cell::TaskCommand => {
                let comm = r.task.map_or(&b""[..], |(_, comm)| comm);
                safe::command(&safe::one_line(comm), most)
            }
            Cell::Parent => self.field("task.ppid", &r.row),
            Cell::Group => self.field("task.pgid", &r.row),
            Cell::User => {
                let number = || Some(format!("{:8}", r.row.cred?.euid()?).into_bytes());
                self.user(&r.row).or_else(number).unwrap_or_default()
            }
            Cell::Fd => self.descriptor(r),
            Cell::Type => self.kind(r).map_or_else(|| b"0000".to_vec(), String::into_bytes),
            Cell::Flags => self.flags(r).unwrap_or_default().into_bytes(),
            Cell::Device => match self.device(r) {
                Device::None => Vec::new(),
                Device::Text(text) => text.into(),
                Device::Number(dev, rdev) => {
                    let (major, minor) = files::major_minor(rdev.unwrap_or(dev));
                    format!("{major},{minor}").into()
                }
            },
            Cell::Size => self.size(r).into_bytes(),
            Cell::Links => r.links().map_or(Vec::new(), |n| format!(" {n}").into()),
            Cell::Node => match self.node(r) {
                Node::None => Vec::new(),
                Node::Inode(n) => n.to_string().into(),
                Node::Protocol(name) => name.into(),
            },
            Cell::Name => {
                let mut out = self.name(r);
                if let Some(text) = sockets::state_cell(self, r) {
                    out.push(b' ');
                    out.extend_from_slice(text.as_bytes());
                }
                out
            }
        }
    }
    /// The name of the command, in one line, as lsof reads it.
    pub(super) fn command(&self, r: &Record<'_>) -> Vec<u8> {
        let comm = r.row.comm.unwrap_or_default();
        if self.strict { safe::one_line(comm) } else { comm.to_vec() }
    }
    /// The letter of access.
    pub(super) fn access(&self, r: &Record<'_>) -> u8 {
        match r.file.and_then(OpenFile::access) {
            Some(files::Access::Path) if !self.strict => b' ',
            _ => r.access(),
        }
    }
    pub(super) fn field(&self, name: &str, row: &Row<'_>) -> Vec<u8> {
        let field = FILES.find(name).expect("the table has it").field;
        let mut out = Vec::new();
        match (field.get)(self.cx, row) {
            Value::Missing(_) => {}
            value => field::text(&mut out, self.cx, field.text, Some(row), &value),
        }
        out
    }
    /// The name of the user.
    pub(super) fn user(&self, row: &Row<'_>) -> Option<Vec<u8>> {
        let uid = row.cred.and_then(|c| c.euid())?;
        if self.layout.numeric_users {
            return None;
        }
        self.cx.names.user(uid).map(|name| name.to_vec())
    }
    /// The letter of a lock; a blank if there is none.
    pub(super) fn lock(&self, r: &Record<'_>) -> u8 {
        if !r.is_descriptor() {
            return b' ';
        }
        self.field("lock", &r.row).first().copied().filter(u8::is_ascii_alphabetic).unwrap_or(b' ')
    }
    /// The descriptor with the letters of access and lock.
    fn descriptor(&self, r: &Record<'_>) -> Vec<u8> {
        let (access, lock) = (self.access(r), self.lock(r));
        let access = if access == b' ' && lock != b' ' { b'-' } else { access };
        let mut out = r.label().into_bytes();
        out.extend_from_slice(&[access, lock]);
        out
    }
    /// The type of the file; `None`: a NOFD row has none.
    pub(super) fn kind(&self, r: &Record<'_>) -> Option<String> {
        let Some(file) = r.file else {
            return Some("unknown".into()).filter(|_| r.denied != "NOFD");
        };
        if r.reason().is_some() {
            return Some("unknown".into());
        }
        if let Some(kind) = sockets::kind(self, file) {
            return Some(kind.into());
        }
        Some(match file.fd_type() {
            Some(FdType::Mqueue)
                if self.strict && file.dev().is_some_and(|d| self.kernel.is_of_queues(d)) =>
            {
                "PSXMQ".into()
            }
            // lsof does not know them.
            Some(FdType::Ns | FdType::Mqueue) if self.strict => "REG".into(),
            _ => file.lsof_type().into(),
        })
    }
    pub(super) fn device(&self, r: &Record<'_>) -> Device {
        let Some(file) = r.file else { return Device::None };
        if let Some(device) = sockets::device(self, file) {
            return device;
        }
        file.dev().map_or(Device::None, |dev| Device::Number(dev, file.rdev()))
    }
    pub(super) fn node(&self, r: &Record<'_>) -> Node {
        let Some(file) = r.file else { return Node::None };
        if let Some(protocol) = sockets::node(self, file) {
            return Node::Protocol(protocol);
        }
        file.inode().map_or(Node::None, Node::Inode)
    }
    /// An offset is decimal until it has too many digits.
    pub(super) fn offset(&self, offset: u64) -> String {
        let text = format!("0t{offset}");
        match self.layout.offset_digits {
            0 => text,
            most if text.len() > most + 2 => format!("0x{offset:x}"),
            _ => text,
        }
    }
    fn size(&self, r: &Record<'_>) -> String {
        match (r.size(), r.offset()) {
            (Some(size), _) if !self.layout.offset => match self.layout.human {
                true => human(size),
                false => size.to_string(),
            },
            (_, Some(offset)) if !self.layout.size => self.offset(offset),
            _ => String::new(),
        }
    }
    /// How the file was opened, in the words of lsof. `None` if there is nothing to show.
    pub(super) fn flags(&self, r: &Record<'_>) -> Option<String> {
        let flags = r.flags()?;
        match self.layout.numeric_flags {
            true => Some(format!("0x{flags:x};0x0")),
            false => Some(flag_words(flags)).filter(|words| !words.is_empty()),
        }
    }
    /// The name with its additions, as it can be printed. The state of a socket is not part of it.
    pub(super) fn name(&self, r: &Record<'_>) -> Vec<u8> {
        let mut out = self.locale.name(&self.raw_name(r));
        let added = match (r.file, &self.ends) {
            (Some(file), Some(ends)) => ends.text(self, file),
            _ => Vec::new(),
        };
        if !added.is_empty() {
            out.push(b' ');
            out.extend_from_slice(&self.locale.name(&added));
        }
        out
    }
    /// The name as reported by the kernel.
    pub(super) fn raw_name(&self, r: &Record<'_>) -> Vec<u8> {
        let pid = r.row.view.tgid();
        let link = |label: &str| match label {
            "rtd" => "root",
            "txt" => "exe",
            "NOFD" => "fd",
            _ => "cwd",
        };
        let Some(file) = r.file else {
            let call = if r.denied == "NOFD" { "opendir" } else { "readlink" };
            let link = link(r.denied);
            return format!("/proc/{pid}/{link} ({call}: Permission denied)").into();
        };
        if let Some(reason) = r.reason() {
            let why = match reason {
                Reason::Denied => " (readlink: Permission denied)",
                _ => "",
            };
            return format!("/proc/{pid}/{}{why}", link(&r.label())).into();
        }
        if record::is_unmapped(file) {
            return file.path.map_or(Vec::new(), |p| p.bytes.to_vec());
        }
        if let Some(name) = sockets::name(self, file) {
            return name;
        }
        let plain = || {
            let field = FILES.find("name").expect("the table has it").field;
            match (field.get)(self.cx, &r.row) {
                Value::Bytes { data, .. } => data.into_owned(),
                _ => Vec::new(),
            }
        };
        if !self.strict {
            return sockets::without_state(file, plain());
        }
        match file.fd_type() {
            Some(FdType::Pipe) => b"pipe".to_vec(),
            // The path alone, without the other ends.
            Some(FdType::Fifo) => {
                let mut path = file.path.map_or(Vec::new(), |p| p.bytes.to_vec());
                path.extend_from_slice(if file.has_mark() { b" (deleted)" } else { b"" });
                path
            }
            // As the kernel names them.
            Some(FdType::Inotify) => b"inotify".to_vec(),
            Some(FdType::BpfMap) => b"bpf-map".to_vec(),
            Some(FdType::BpfProg) => b"bpf-prog".to_vec(),
            Some(FdType::BpfLink) => b"bpf_link".to_vec(),
            Some(FdType::Epoll) => targets(file),
            // net:[4026531833]
            Some(FdType::Ns) => {
                let name = plain();
                name.split(|b| *b == b':').next().unwrap_or_default().to_vec()
            }
            // The name without details of the descriptor: `[eventfd:4] count=3`.
            _ if file.lsof_type() == "a_inode" => {
                let name = plain();
                // For files of a type unknown here, take the type from the name of the link.
                if let Some(kind) = name.strip_prefix(b"anon_inode:") {
                    return kind.to_vec();
                }
                let end = name.iter().position(|b| *b == b']').map_or(name.len(), |at| at + 1);
                name[..if name.starts_with(b"[") { end } else { name.len() }].to_vec()
            }
            _ => plain(),
        }
    }
}

/// More targets of an epoll are not named, as in lsof.
const TARGETS: usize = 32;

/// `[eventpoll:3,5]`: the descriptors that it watches, in the order of their numbers.
fn targets(file: &OpenFile<'_>) -> Vec<u8> {
    let fd = file.fd().expect("it is a descriptor");
    let details = file.owner.details(fd.raw.fd).iter();
    let kind = taskdiag::wire::FdDetailKind::Epoll as u32;
    let all = details.filter(|d| d.raw.kind == kind).filter_map(|d| d.value()).map(|v| v[0]);
    let mut first: Vec<u64> = all.take(TARGETS).collect();
    first.sort_unstable();
    let mut out = String::from("[eventpoll");
    for (i, target) in first.iter().enumerate() {
        out.push(if i == 0 { ':' } else { ',' });
        out.push_str(&target.to_string());
    }
    out.push_str(if first.len() == TARGETS { "...]" } else { "]" });
    out.into_bytes()
}

/// A size with one of the units of lsof.
fn human(size: u64) -> String {
    if size < 1024 {
        return format!("{size}B");
    }
    let exponent = (size.ilog2() / 10).min(6);
    let value = (size >> (10 * (exponent - 1))) as f64 / 1024.0;
    format!("{value:.1}{}", ["K", "M", "G", "T", "P", "E"][exponent as usize - 1])
}

/// `O_*` of open(2) in the words of lsof, in its order.
const FLAGS: &[(i32, &str)] = &[
    (libc::O_WRONLY, "W"),
    (libc::O_RDWR, "RW"),
    (libc::O_CREAT, "CR"),
    (libc::O_EXCL, "EXCL"),
    (libc::O_NOCTTY, "NTTY"),
    (libc::O_TRUNC, "TR"),
    (libc::O_APPEND, "AP"),
    (libc::O_NONBLOCK, "ND"),
    (libc::O_SYNC, "SYN"),
    (libc::O_ASYNC, "ASYN"),
    (libc::O_DIRECT, "DIR"),
    (libc::O_DIRECTORY, "DTY"),
    (libc::O_NOFOLLOW, "NFLK"),
    (libc::O_NOATIME, "NATM"),
    (libc::O_DSYNC, "DSYN"),
    // O_LARGEFILE. The C library defines it as 0 if all files may be large.
    (0o100_000, "LG"),
    (libc::O_CLOEXEC, "CX"),
    (libc::O_PATH, "PATH"),
    (libc::O_TMPFILE, "TMPF"),
];

fn flag_words(flags: u32) -> String {
    let mut left = flags as i32;
    let mut words = Vec::new();
    for (flag, word) in FLAGS {
        if left & flag != 0 {
            words.push((*word).to_owned());
            left &= !flag;
        }
    }
    if left != 0 {
        words.push(format!("0x{left:x}"));
    }
    words.join(",")
}

/// The processes whose descriptors or paths the caller may not see.
pub(in crate::files) fn denied(files: &files::Files<'_>) -> HashSet<(u32, Group)> {
    let gaps = files.gaps().iter().filter(|g| g.reason == Reason::Denied);
    gaps.map(|g| (g.task.tgid(), g.group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_flags_as_lsof_writes_them() {
        for (size, want) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (43888, "42.9K"),
            (1 << 20, "1.0M"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(human(size), want);
        }
        for (flags, want) in [
            (0o100_000, "LG"),
            (0o2_000_002, "RW,CX"),
            (libc::O_TMPFILE | libc::O_RDWR, "RW,DTY,TMPF"),
            (0, ""),
        ] {
            assert_eq!(flag_words(flags as u32), want);
        }
    }
}
