//! The value of an item, from the records of a task.

use std::collections::TryReserveError;
use std::ffi::CStr;

use taskdiag::field::Row;
use taskdiag::{Base, Blob, FdCount, Group, Io, Ns, Reason, Record, Rollup, Stat, Statm, TaskView};

use crate::arena::Arena;
use crate::item::Item;
use crate::memory::grow;
use crate::names;
use crate::proctext;
use crate::real::Version;
use crate::text::{BUFFER, COMM, Escape, docker_id, in_escaped_parts, in_one, in_parts};
use crate::tty::{self, Ttys};

/// A task in the answers.
#[derive(Debug)]
pub struct Task<'a> {
    row: Row<'a>,
    /// The task that has the texts: the process of the task.
    texts: TaskView<'a>,
    /// The values of the whole process. They exist for a thread if the real library shows sums of
    /// its process.
    stat: Option<Record<'a, Stat>>,
    io: Option<Record<'a, Io>>,
    /// Is the task read from the files of a process, instead of from the files of a thread?
    is_process: bool,
    /// Is it the calling thread? It counts as running, even if it waits for the threads of an
    /// engine.
    is_caller: bool,
    /// The number of threads of the process, if threads of an engine are among them.
    threads: Option<u32>,
}

impl<'a> Task<'a> {
    /// A task. `process`: its process, in an answer about processes.
    pub fn new(view: TaskView<'a>, process: Option<TaskView<'a>>, is_process: bool) -> Task<'a> {
        let row = Row::new(view);
        let whole = process.filter(|_| is_process).map(Row::new);
        // That answer lacks sums if they are not needed.
        let stat = whole.as_ref().and_then(|w| w.stat).or(row.stat);
        let io = whole.as_ref().and_then(|w| w.io).or(row.io);
        let texts = process.unwrap_or(view);
        Task { stat, io, texts, row, is_process, is_caller: false, threads: None }
    }
    /// Why there is no text, if the real library would show it as empty. If the first thread of a
    /// process has ended, another thread may still have the text.
    fn no_text(&self, reason: Option<Reason>) -> Option<()> {
        let is_same = self.texts.pid() == self.row.view.pid();
        match reason? {
            Reason::Denied => Some(()),
            Reason::Absent => is_same.then_some(()),
            _ => None,
        }
    }
    /// Sets the process that the task belongs to.
    #[must_use]
    pub fn own(self, own: &Own) -> Task<'a> {
        let is_caller = own.caller == Some(self.row.view.pid());
        Task { is_caller, threads: u32::try_from(own.threads.len()).ok(), ..self }
    }
    /// CPU time in clock ticks, and major and minor faults.
    pub fn used(&self, tick_ns: u64) -> Option<[u64; 3]> {
        let s = self.stat?;
        Some([s.utime_ns()? / tick_ns + s.stime_ns()? / tick_ns, s.majflt()?, s.minflt()?])
    }
    /// The state letter.
    pub fn state(&self) -> Option<u8> {
        if self.is_caller { Some(b'R') } else { self.row.state() }
    }
}

/// This process without the threads of an engine, which a user of ps did not start. The ids are
/// those in /proc.
#[derive(Debug, Default)]
pub struct Own {
    pub pid: Option<u32>,
    /// The calling thread.
    caller: Option<u32>,
    /// All of them.
    pub threads: Vec<u32>,
}

impl Own {
    /// Its current state.
    ///
    /// # Errors
    /// There is no memory for the list of its threads.
    pub fn now() -> Result<Own, TryReserveError> {
        use std::fs::{read_dir, read_link};
        let number = |path: &std::path::Path| path.file_name()?.to_str()?.parse().ok();
        let of = |link: &str| number(&read_link(link).ok()?);
        let mut threads = Vec::new();
        for entry in read_dir("/proc/self/task").into_iter().flatten().flatten() {
            grow(&mut threads, 1)?;
            threads.extend(number(&entry.path()));
        }
        Ok(Own { pid: of("/proc/self"), caller: of("/proc/thread-self"), threads })
    }
}

/// The data that all values of a fetch share.
#[derive(Debug)]
pub struct Common {
    pub version: Version,
    pub escape: Escape,
    pub ttys: Ttys,
    /// Clock ticks a second, and the length of one.
    pub hertz: u64,
    pub tick_ns: u64,
    pub page_bytes: u64,
    /// The time since boot in clock ticks.
    pub boot_ticks: u64,
    /// Does the real library read the name of the command for these items?
    pub has_comm: bool,
    /// Does a directory of open files have a size?
    pub fd_has_size: bool,
    /// Buffers.
    pub file: Vec<u8>,
    pub text: Vec<u8>,
    pub line: Vec<u8>,
}

/// All 16 digits of a mask of signals. Each ps asks for five of each task, so this is made by hand.
fn hexadecimal(mask: u64) -> [u8; 16] {
    let digit = |i: usize| taskdiag::field::HEX[(mask >> (60 - 4 * i)) as usize & 15];
    std::array::from_fn(digit)
}

/// The short name of a scheduling policy.
fn class(policy: u32) -> &'static [u8] {
    const NAMES: [&[u8]; 10] =
        [b"TS", b"FF", b"RR", b"B", b"ISO", b"IDL", b"DLN", b"#7", b"#8", b"#9"];
    NAMES.get(policy as usize).copied().unwrap_or(b"?")
}

/// A signed number, as it is stored.
fn int(n: i32) -> u64 {
    u64::from(n as u32)
}

fn real(n: f64) -> u64 {
    n.to_bits()
}

/// If the task has no such value, or the caller may not see it, the real library leaves a zero.
fn zero(row: &Row<'_>, group: Group) -> Option<u64> {
    matches!(row.view.reason(group), Some(Reason::Absent | Reason::Denied)).then_some(0)
}

fn statm(task: &Task<'_>, get: impl FnOnce(Record<'_, Statm>) -> Option<u64>) -> Option<u64> {
    task.row.statm.map_or_else(|| zero(&task.row, Group::Statm), get)
}

fn kib(task: &Task<'_>, get: impl FnOnce(Record<'_, Statm>) -> Option<u64>) -> Option<u64> {
    statm(task, get).map(|bytes| bytes / 1024)
}

fn io(task: &Task<'_>, get: impl FnOnce(Record<'_, Io>) -> Option<u64>) -> Option<u64> {
    task.io.map_or_else(|| zero(&task.row, Group::Io), get)
}

fn ns(task: &Task<'_>, get: impl FnOnce(Record<'_, Ns>) -> Option<u32>) -> Option<u64> {
    match task.row.ns {
        Some(ns) => get(ns).map(u64::from),
        None => zero(&task.row, Group::Ns),
    }
}

fn smap(task: &Task<'_>, get: impl FnOnce(Record<'_, Rollup>) -> Option<u64>) -> Option<u64> {
    let owner = task.row.view.owner(Group::Rollup)?;
    match owner.record::<Rollup>() {
        Some(rollup) => get(rollup).map(|bytes| bytes / 1024),
        None => zero(&Row::new(owner), Group::Rollup),
    }
}

/// The number of open files, which the real library takes from the size of the directory `fd`.
fn open_files(task: &Task<'_>) -> Option<u64> {
    let owner = task.row.view.owner(Group::FdCount)?;
    match owner.record::<FdCount>() {
        Some(count) => count.open().map(u64::from),
        None => zero(&Row::new(owner), Group::FdCount),
    }
}

/// Does that directory have a size? It has none before Linux 6.2.
pub fn fd_has_size() -> bool {
    std::fs::metadata("/proc/self/fd").is_ok_and(|fd| fd.len() > 0)
}

impl Common {
    /// The name of the command in the form of a result.
    fn comm(&mut self, task: &Task<'_>) -> Option<()> {
        self.text.clear();
        self.escape.append(&mut self.text, task.row.comm?, COMM);
        Some(())
    }

    /// Makes room for the values of the rows, whose buffers are as large as those of the real
    /// library.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn make_room(&mut self) -> Result<(), TryReserveError> {
        for buffer in [&mut self.file, &mut self.text, &mut self.line] {
            // A buffer that grew for a longer text shrinks again.
            if buffer.capacity() > 4 * BUFFER {
                *buffer = Vec::new();
            }
            buffer.clear();
            grow(buffer, 2 * BUFFER)?;
        }
        Ok(())
    }

    /// The first bytes of the arguments, as in /proc/PID/cmdline. Empty if there are none.
    fn arguments(&mut self, task: &Task<'_>, most: usize) -> Option<()> {
        let blob = task.texts.cmdline();
        self.put(task, Group::Cmdline, blob, c"cmdline", most)
    }

    /// The environment, as in /proc/PID/environ. Empty if there is none, or if the caller may not
    /// read it.
    fn environment(&mut self, task: &Task<'_>, most: usize) -> Option<()> {
        let blob = task.texts.environ();
        self.put(task, Group::Environ, blob, c"environ", most)
    }

    /// Copies a text to the buffer where it is converted to a value.
    fn put(
        &mut self,
        task: &Task<'_>,
        group: Group,
        blob: Option<Blob<'_>>,
        name: &CStr,
        most: usize,
    ) -> Option<()> {
        self.file.clear();
        let Some(blob) = blob else {
            return task.no_text(task.texts.reason(group));
        };
        match blob.reason {
            None if blob.is_cut() && blob.data.len() < most => {
                let start = task.texts.record::<Base>()?.start_time_ns()? / self.tick_ns;
                proctext::read(&mut self.file, task.texts.pid(), start, name, most)?;
            }
            None => {
                grow(&mut self.file, blob.data.len()).ok()?;
                self.file.extend_from_slice(&blob.data);
            }
            reason => task.no_text(reason)?,
        }
        Some(())
    }

    /// /proc/PID/cgroup.
    fn cgroups(&mut self, task: &Task<'_>) -> Option<()> {
        use std::io::Write as _;
        self.file.clear();
        for (hierarchy, path) in task.row.view.cgroups() {
            let _ = write!(self.file, "{hierarchy}:");
            self.file.extend_from_slice(path);
            self.file.push(b'\n');
        }
        (!self.file.is_empty()).then_some(())
    }

    /// `fill_cgroup_cvt`: the lines that do not end with a slash, with commas between them.
    fn cgroup(&mut self, task: &Task<'_>) -> Option<()> {
        self.cgroups(task)?;
        let n = in_one(&mut self.text, &self.file, 0);
        let out = &mut self.line;
        out.clear();
        for line in self.text[..n].split(|b| *b == 0) {
            if line.is_empty() || line.ends_with(b"/") || BUFFER - out.len() <= 1 {
                continue;
            }
            if !out.is_empty() {
                out.push(b',');
            }
            self.escape.append(out, line, BUFFER - out.len());
        }
        if out.is_empty() {
            out.push(b'-');
        }
        Some(())
    }

    /// `fill_cmdline_cvt`: arguments, or the name of the command in brackets.
    fn cmdline(&mut self, task: &Task<'_>) -> Option<()> {
        self.arguments(task, BUFFER)?;
        self.line.clear();
        if in_one(&mut self.text, &self.file, b' ') > 0 {
            self.escape.append(&mut self.line, &self.text, BUFFER);
        } else {
            self.line.push(b'[');
            if self.has_comm {
                self.comm(task)?;
                self.escape.append(&mut self.line, &self.text, BUFFER);
            } else {
                // The C library prints this for NULL.
                self.line.extend_from_slice(b"(null)");
            }
            self.line.push(b']');
            if self.has_comm && task.state()? == b'Z' {
                self.line.extend_from_slice(b" <defunct>");
            }
        }
        if self.line.is_empty() {
            self.line.push(if self.version.marks_empty_text() { b'-' } else { b'?' });
        }
        Some(())
    }

    fn strv(&mut self, arena: &mut Arena) -> Option<u64> {
        if self.file.is_empty() {
            return Some(arena.strv(b"-\0") as u64);
        }
        grow(&mut self.file, 1).ok()?;
        if self.version.escapes_lists() {
            self.text.clear();
            grow(&mut self.text, self.file.len() + 1).ok()?;
            in_escaped_parts(&mut self.text, &self.file, self.escape);
            return Some(arena.strv(&self.text) as u64);
        }
        in_parts(&mut self.file);
        Some(arena.strv(&self.file) as u64)
    }

    /// The first `digits` of the id of the task's Docker container.
    fn docker(&mut self, task: &Task<'_>, arena: &mut Arena, digits: usize) -> Option<u64> {
        self.cgroups(task)?;
        Some(arena.str(docker_id(&self.file).map_or(b"-", |id| &id[..digits])) as u64)
    }

    fn tty(&mut self, task: &Task<'_>, arena: &mut Arena, short: bool) -> Option<u64> {
        let at = match task.row.stat?.tty_nr()? {
            0 => arena.str(b"?"),
            dev => arena.str(&tty::name(self.ttys.path(dev)?, short)),
        };
        Some(at as u64)
    }

    fn supplementary(&mut self, task: &Task<'_>, arena: &mut Arena, named: bool) -> Option<u64> {
        let ids = task.row.view.groups()?;
        self.text.clear();
        for id in ids {
            if !self.text.is_empty() {
                self.text.push(b',');
            }
            if named {
                // SAFETY: the names are kept.
                let name = unsafe { CStr::from_ptr(names::group(id)?) }.to_bytes();
                grow(&mut self.text, name.len() + 1).ok()?;
                self.text.extend_from_slice(name);
            } else {
                grow(&mut self.text, 11).ok()?;
                self.text.extend_from_slice(id.to_string().as_bytes());
            }
        }
        if self.text.is_empty() {
            self.text.push(b'-');
        }
        Some(arena.str(&self.text) as u64)
    }

    fn elapsed(&self, task: &Task<'_>) -> Option<f64> {
        let start = task.row.base?.start_time_ns()? / self.tick_ns;
        if self.version.has_fine_uptime() {
            return Some((self.boot_ticks as f64 - start as f64).max(0.0));
        }
        // The real library treats a task that is younger than the fetch as very old.
        Some(self.boot_ticks.wrapping_sub(start) as f64)
    }

    fn utilization(&self, ticks: u64, elapsed: f64) -> u64 {
        // With the precision of the real library, which multiplies floats.
        real(if elapsed > 0.0 { f64::from(ticks as f32 * 100.0) / elapsed } else { 0.0 })
    }

    /// The value of an item, in its stored form. `None`: a part of it is not known.
    #[expect(clippy::too_many_lines, reason = "one line for each item")]
    pub fn value(&mut self, item: Item, task: &Task<'_>, arena: &mut Arena) -> Option<u64> {
        let row = &task.row;
        let view = row.view;
        let (base, cred, stat, signals) = (row.base, row.cred, task.stat, row.signals);
        let ticks = |ns: u64| ns / self.tick_ns;
        let user = || Some(ticks(stat?.utime_ns()?));
        let system = || Some(ticks(stat?.stime_ns()?));
        let user_c = || Some(ticks(stat?.cutime_ns()?));
        let system_c = || Some(ticks(stat?.cstime_ns()?));
        let all = || Some(user()? + system()?);
        let all_c = || Some(all()? + user_c()? + system_c()?);
        let seconds = |ticks: u64| real(ticks as f64 / self.hertz as f64);
        let pages = |bytes: u64| bytes / self.page_bytes;
        let mut hex = |mask: u64| Some(arena.str(&hexadecimal(mask)) as u64);
        Some(match item {
            Item::EXTRA => 0,
            Item::ID_PID | Item::ID_TID => u64::from(view.pid()),
            Item::ID_TGID => u64::from(view.tgid()),
            Item::ID_PPID => u64::from(base?.ppid()?),
            Item::ID_PGRP => u64::from(base?.pgid()?),
            Item::ID_SESSION => u64::from(base?.sid()?),
            Item::FLAGS => u64::from(base?.task_flags()?),
            Item::STATE => u64::from(task.state()?),
            Item::TICS_BEGAN => ticks(base?.start_time_ns()?),
            Item::TIME_START => seconds(ticks(base?.start_time_ns()?)),
            Item::TIME_ELAPSED => real(self.elapsed(task)? / self.hertz as f64),
            Item::CMD => {
                self.comm(task)?;
                arena.str(&self.text) as u64
            }
            Item::CMDLINE => {
                self.cmdline(task)?;
                arena.str(&self.line) as u64
            }
            Item::CMDLINE_V => {
                self.arguments(task, usize::MAX)?;
                self.strv(arena)?
            }
            Item::ENVIRON => {
                self.environment(task, BUFFER)?;
                in_one(&mut self.text, &self.file, b' ');
                self.line.clear();
                self.escape.append(&mut self.line, &self.text, BUFFER);
                arena.str(if self.line.is_empty() { b"-" } else { &self.line }) as u64
            }
            Item::ENVIRON_V => {
                self.environment(task, usize::MAX)?;
                self.strv(arena)?
            }
            Item::CGROUP | Item::CGNAME => {
                self.cgroup(task)?;
                let mut name = &self.line[..];
                if item == Item::CGNAME {
                    const MARK: &[u8] = b":name=";
                    let at = self.line.windows(MARK.len()).position(|w| w == MARK);
                    name = at
                        .map(|at| &self.line[at + MARK.len()..])
                        .filter(|n| !n.is_empty())
                        .unwrap_or(&self.line);
                }
                arena.str(name) as u64
            }
            Item::CGROUP_V => {
                self.cgroups(task)?;
                self.strv(arena)?
            }
            Item::DOCKER_ID => self.docker(task, arena, 12)?,
            Item::DOCKER_ID_64 => self.docker(task, arena, 64)?,
            Item::ID_EUID => u64::from(cred?.euid()?),
            Item::ID_EGID => u64::from(cred?.egid()?),
            Item::ID_RUID => u64::from(cred?.uid()?),
            Item::ID_RGID => u64::from(cred?.gid()?),
            Item::ID_SUID => u64::from(cred?.suid()?),
            Item::ID_SGID => u64::from(cred?.sgid()?),
            Item::ID_FUID => u64::from(cred?.fsuid()?),
            Item::ID_FGID => u64::from(cred?.fsgid()?),
            Item::ID_EUSER => names::user(cred?.euid()?)? as u64,
            Item::ID_RUSER => names::user(cred?.uid()?)? as u64,
            Item::ID_SUSER => names::user(cred?.suid()?)? as u64,
            Item::ID_FUSER => names::user(cred?.fsuid()?)? as u64,
            Item::ID_EGROUP => names::group(cred?.egid()?)? as u64,
            Item::ID_RGROUP => names::group(cred?.gid()?)? as u64,
            Item::ID_SGROUP => names::group(cred?.sgid()?)? as u64,
            Item::ID_FGROUP => names::group(cred?.fsgid()?)? as u64,
            Item::SUPGIDS => self.supplementary(task, arena, false)?,
            Item::SUPGROUPS => self.supplementary(task, arena, true)?,
            Item::ID_LOGIN => u64::from(row.login?.uid()?),
            // Threads do not have the file.
            Item::AUTOGRP_ID if !task.is_process => int(-1),
            Item::AUTOGRP_NICE if !task.is_process => 0,
            Item::AUTOGRP_ID | Item::AUTOGRP_NICE if row.autogroup.is_none() => {
                // The file of a thread of the kernel is empty.
                let none = zero(row, Group::Autogroup)?;
                if item == Item::AUTOGRP_ID { int(-1) } else { none }
            }
            Item::AUTOGRP_ID => row.autogroup?.id()? & 0xffff_ffff,
            Item::AUTOGRP_NICE => int(row.autogroup?.nice()?),
            Item::OOM_SCORE => u64::from(row.oom?.score()?),
            Item::OOM_ADJ => int(row.oom?.score_adj()?),
            Item::EXIT_SIGNAL => int(row.stat?.exit_signal()?),
            Item::FLT_MAJ => stat?.majflt()?,
            Item::FLT_MAJ_C => stat?.majflt()? + stat?.cmajflt()?,
            Item::FLT_MIN => stat?.minflt()?,
            Item::FLT_MIN_C => stat?.minflt()? + stat?.cminflt()?,
            Item::ID_TPGID => int(row.stat?.tty_pgrp()?),
            Item::NICE => int(row.stat?.nice()?),
            Item::PRIORITY => int(row.stat?.priority()?),
            Item::PRIORITY_RT => u64::from(row.stat?.rt_priority()?),
            Item::SCHED_CLASS => u64::from(row.stat?.policy()?),
            Item::SCHED_CLASSSTR => arena.str(class(row.stat?.policy()?)) as u64,
            Item::PROCESSOR => u64::from(row.stat?.processor()?),
            Item::OPEN_FILES if !self.fd_has_size => 0,
            Item::OPEN_FILES => open_files(task)?,
            Item::NLWP => u64::from(task.threads.or(row.stat?.num_threads())?.max(1)),
            Item::TTY => u64::from(row.stat?.tty_nr()?),
            Item::TTY_NAME => self.tty(task, arena, false)?,
            Item::TTY_NUMBER => self.tty(task, arena, true)?,
            Item::TICS_ALL => all()?,
            Item::TICS_ALL_C => all_c()?,
            Item::TICS_USER => user()?,
            Item::TICS_USER_C => user()? + user_c()?,
            Item::TICS_SYSTEM => system()?,
            Item::TICS_SYSTEM_C => system()? + system_c()?,
            Item::TIME_ALL => seconds(all()?),
            Item::TIME_ALL_C => seconds(all_c()?),
            Item::UTILIZATION => self.utilization(all()?, self.elapsed(task)?),
            Item::UTILIZATION_C => self.utilization(all_c()?, self.elapsed(task)?),
            Item::IO_READ_BYTES => io(task, |r| r.read_bytes())?,
            Item::IO_READ_CHARS => io(task, |r| r.rchar())?,
            Item::IO_READ_OPS => io(task, |r| r.syscr())?,
            Item::IO_WRITE_BYTES => io(task, |r| r.write_bytes())?,
            Item::IO_WRITE_CBYTES => io(task, |r| r.cancelled_write_bytes())?,
            Item::IO_WRITE_CHARS => io(task, |r| r.wchar())?,
            Item::IO_WRITE_OPS => io(task, |r| r.syscw())?,
            Item::NS_CGROUP => ns(task, |r| r.cgroup())?,
            Item::NS_IPC => ns(task, |r| r.ipc())?,
            Item::NS_MNT => ns(task, |r| r.mnt())?,
            Item::NS_NET => ns(task, |r| r.net())?,
            Item::NS_PID => ns(task, |r| r.pid())?,
            Item::NS_TIME => ns(task, |r| r.time())?,
            Item::NS_USER => ns(task, |r| r.user())?,
            Item::NS_UTS => ns(task, |r| r.uts())?,
            Item::CAPS_PERMITTED => hex(cred?.cap_permitted()?)?,
            Item::SIGBLOCKED => hex(signals?.blocked()?)?,
            Item::SIGCATCH => hex(signals?.caught()?)?,
            Item::SIGIGNORE => hex(signals?.ignored()?)?,
            Item::SIGPENDING => hex(signals?.pending()?)?,
            // For a thread, the real library shows the signals of that thread here, too.
            Item::SIGNALS if task.is_process => hex(signals?.shared_pending()?)?,
            Item::SIGNALS => hex(signals?.pending()?)?,
            Item::MEM_DATA => kib(task, |s| Some(s.data_bytes()? + s.stack_bytes()?))?,
            Item::MEM_DATA_PGS => pages(statm(task, |s| Some(s.data_bytes()? + s.stack_bytes()?))?),
            Item::MEM_RES | Item::VM_RSS => kib(task, |r| r.rss_bytes())?,
            Item::MEM_RES_PGS | Item::RSS => pages(statm(task, |r| r.rss_bytes())?),
            Item::MEM_SHR => kib(task, |s| s.rss_bytes()?.checked_sub(s.rss_anon_bytes()?))?,
            Item::MEM_SHR_PGS => {
                pages(statm(task, |s| s.rss_bytes()?.checked_sub(s.rss_anon_bytes()?))?)
            }
            Item::MEM_VIRT | Item::VM_SIZE => kib(task, |r| r.size_bytes())?,
            Item::MEM_VIRT_PGS => pages(statm(task, |r| r.size_bytes())?),
            Item::VSIZE_BYTES => statm(task, |r| r.size_bytes())?,
            Item::VM_DATA => kib(task, |r| r.data_bytes())?,
            Item::VM_EXE => kib(task, |r| r.text_bytes())?,
            Item::VM_LIB => kib(task, |r| r.lib_bytes())?,
            Item::VM_RSS_ANON => kib(task, |r| r.rss_anon_bytes())?,
            Item::VM_RSS_FILE => kib(task, |r| r.rss_file_bytes())?,
            Item::VM_RSS_LOCKED => kib(task, |r| r.locked_bytes())?,
            Item::VM_RSS_SHARED => kib(task, |r| r.rss_shmem_bytes())?,
            Item::VM_STACK => kib(task, |r| r.stack_bytes())?,
            Item::VM_SWAP => kib(task, |r| r.swap_bytes())?,
            Item::VM_USED => kib(task, |r| r.rss_bytes())? + kib(task, |r| r.swap_bytes())?,
            Item::SMAP_ANONYMOUS => smap(task, |r| r.anonymous_bytes())?,
            Item::SMAP_HUGE_ANON => smap(task, |r| r.anon_huge_bytes())?,
            Item::SMAP_HUGE_FILE => smap(task, |r| r.file_huge_bytes())?,
            Item::SMAP_HUGE_SHMEM => smap(task, |r| r.shmem_huge_bytes())?,
            Item::SMAP_HUGE_TLBPRV => smap(task, |r| r.private_hugetlb_bytes())?,
            Item::SMAP_HUGE_TLBSHR => smap(task, |r| r.shared_hugetlb_bytes())?,
            Item::SMAP_LAZY_FREE => smap(task, |r| r.lazyfree_bytes())?,
            Item::SMAP_LOCKED => smap(task, |r| r.locked_bytes())?,
            Item::SMAP_PRV_CLEAN => smap(task, |r| r.private_clean_bytes())?,
            Item::SMAP_PRV_DIRTY => smap(task, |r| r.private_dirty_bytes())?,
            Item::SMAP_PRV_TOTAL => {
                smap(task, |r| r.private_clean_bytes())? + smap(task, |r| r.private_dirty_bytes())?
            }
            Item::SMAP_PSS => smap(task, |r| r.pss_bytes())?,
            Item::SMAP_PSS_ANON => smap(task, |r| r.pss_anon_bytes())?,
            Item::SMAP_PSS_FILE => smap(task, |r| r.pss_file_bytes())?,
            Item::SMAP_PSS_SHMEM => smap(task, |r| r.pss_shmem_bytes())?,
            Item::SMAP_REFERENCED => smap(task, |r| r.referenced_bytes())?,
            Item::SMAP_RSS => smap(task, |r| r.rss_bytes())?,
            Item::SMAP_SHR_CLEAN => smap(task, |r| r.shared_clean_bytes())?,
            Item::SMAP_SHR_DIRTY => smap(task, |r| r.shared_dirty_bytes())?,
            Item::SMAP_SWAP => smap(task, |r| r.swap_bytes())?,
            Item::SMAP_SWAP_PSS => smap(task, |r| r.swap_pss_bytes())?,
            // Items that the fetch itself makes, or the real library.
            _ => return None,
        })
    }
}
