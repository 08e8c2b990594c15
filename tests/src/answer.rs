//! Answers as plain values: one map of named fields for each task, from any engine. A member that
//! is added to the format is then compared without a change here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use taskdiag::engine::auto::query_kernel_first;
use taskdiag::engine::bpf::Bpf;
use taskdiag::engine::kernel::Kernel;
use taskdiag::wire::registry::shape;
use taskdiag::wire::{self, Done, GroupRecord, ListEntry};
use taskdiag::{
    Blob, Choice, Engine, EngineId, Error, Group, Groups, PathKind, Reason, Request, Snapshot,
    Strategy, TaskView, query_with,
};

use crate::rows::{self, Row};
use crate::skips;

pub use taskdiag::engine::GROUPS;

/// A value of a field.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number, sign-extended.
    Num(i128),
    /// Text, a path, or the bytes of a list.
    Bytes(Vec<u8>),
    /// No value, and why.
    Missing(Reason),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Num(n) => write!(f, "{n}"),
            Value::Bytes(b) if b.len() > 200 => {
                write!(f, "{}... ({} bytes)", b[..200].escape_ascii(), b.len())
            }
            Value::Bytes(b) => write!(f, "\"{}\"", b.escape_ascii()),
            Value::Missing(r) => write!(f, "<{r}>"),
        }
    }
}

/// The known values of one task: `group.member` and its value.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// Fields by name.
    pub fields: BTreeMap<String, Value>,
    /// Sorted lists, by the group that they come with and the name of their entry in C.
    pub lists: BTreeMap<(Group, &'static str), Vec<Row>>,
}

impl Task {
    /// A field, or `None` if the answer does not have it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key)
    }
    /// A number that must exist.
    pub fn num(&self, key: &str) -> i128 {
        match self.get(key) {
            Some(Value::Num(n)) => *n,
            other => panic!("{key} of task {} is {other:?}", self.pid),
        }
    }
    /// Bytes that must exist.
    pub fn bytes(&self, key: &str) -> &[u8] {
        match self.get(key) {
            Some(Value::Bytes(b)) => b,
            other => panic!("{key} of task {} is {other:?}", self.pid),
        }
    }
    /// Why a group or value is missing, or `None` if it is not missing or not mentioned.
    pub fn missing(&self, key: &str) -> Option<Reason> {
        match self.get(key) {
            Some(Value::Missing(r)) => Some(*r),
            _ => None,
        }
    }
    /// Pid and start time (in ticks), which identify a thread or process.
    pub fn identity(&self) -> (u32, i128) {
        let start = self.fields.get("base.start_time_ns");
        let start = if let Some(Value::Num(n)) = start { *n } else { 0 };
        (self.pid, start / 10_000_000)
    }

    fn of(view: &TaskView<'_>) -> Task {
        let mut t = Task { pid: view.pid(), tgid: view.tgid(), ..Task::default() };
        macro_rules! records {
            ($($r:ident)*) => { $(t.record::<wire::$r>(view);)* };
        }
        wire::for_each_record!(records);
        macro_rules! lists {
            ($($l:ident)*) => { $(t.list::<wire::$l>(view);)* };
        }
        wire::for_each_list!(lists);
        if let Some(comm) = view.comm() {
            t.fields.insert("base.comm".into(), Value::Bytes(comm.to_vec()));
        }
        for g in Group::ALL {
            if let Some(reason) = view.reason(*g) {
                t.fields.insert(g.name().into(), Value::Missing(reason));
            }
        }
        let is_blob = |g: &&Group| matches!(shape(**g as u16), Some(wire::Shape::Blob));
        for g in Group::ALL.iter().filter(is_blob).filter(|g| **g != Group::Paths) {
            t.blob(g.name(), view.blob(*g as u16, 0));
        }
        for kind in PathKind::ALL {
            t.blob(&format!("paths.{kind}"), view.path(*kind));
        }
        t.join_missing_paths();
        let ids = |v: Vec<u32>| Value::Bytes(format!("{v:?}").into_bytes());
        if let Some(groups) = view.groups() {
            t.fields.insert("cred.groups".into(), ids(groups));
        }
        if let Some(pids) = view.nspid() {
            t.fields.insert("ns.nspid".into(), ids(pids));
        }
        let ids = |map: Vec<[u32; 3]>| Value::Bytes(format!("{map:?}").into_bytes());
        for (key, map) in [("uid_map", wire::A_UID_MAP), ("gid_map", wire::A_GID_MAP)] {
            if let Some(map) = view.id_map(map) {
                t.fields.insert(format!("persona.{key}"), ids(map));
            }
        }
        for (key, mask) in [("cpus", view.cpus()), ("mems", view.mems())] {
            if let Some(mask) = mask {
                t.fields.insert(format!("settings.{key}"), Value::Bytes(mask));
            }
        }
        for (hierarchy, path) in view.cgroups() {
            t.fields.insert(format!("cgroup.{hierarchy}"), Value::Bytes(path.to_vec()));
        }
        t
    }

    fn record<T: GroupRecord>(&mut self, view: &TaskView<'_>) {
        let group = Group::from_number(T::TYPE.into()).expect("records are groups");
        // A value that threads share is in the stream once.
        let Some(record) = view.owner(group).and_then(|o| o.record::<T>()) else { return };
        let bytes = record.raw().as_bytes();
        let known =
            (0..).zip(T::TABLE.valid).filter(|(bit, _)| record.raw().valid() & (1u32 << bit) != 0);
        for (_, m) in known {
            let raw = &bytes[m.offset..m.offset + m.size];
            let value = match m.size {
                1 => Value::Num(raw[0].into()),
                4 if m.signed => Value::Num(i32::from_ne_bytes(raw.try_into().expect("4")).into()),
                4 => Value::Num(u32::from_ne_bytes(raw.try_into().expect("4")).into()),
                8 => Value::Num(u64::from_ne_bytes(raw.try_into().expect("8")).into()),
                _ => Value::Bytes(raw.to_vec()),
            };
            self.fields.insert(format!("{group}.{}", m.name), value);
        }
    }

    fn list<T: ListEntry>(&mut self, view: &TaskView<'_>) {
        // Sockets and details are attributes in addition to FD.
        let group = Group::from_number(T::TYPE.into()).unwrap_or(Group::Fd);
        let Some(owner) = view.owner(group).filter(|o| o.list::<T>().is_some()) else { return };
        let mut rows = rows::rows::<T>(&owner);
        rows.sort();
        self.lists.insert((group, T::TABLE.name), rows);
    }

    /// If all three paths are missing for one reason, this is the same as a missing group.
    fn join_missing_paths(&mut self) {
        let keys = PathKind::ALL.iter().map(|k| format!("paths.{k}"));
        let reasons: Vec<_> = keys.clone().map(|k| self.missing(&k)).collect();
        if let Some(reason) = reasons[0].filter(|r| reasons.iter().all(|o| *o == Some(*r))) {
            keys.for_each(|k| drop(self.fields.remove(&k)));
            self.fields.insert(Group::Paths.name().into(), Value::Missing(reason));
        }
    }

    fn blob(&mut self, key: &str, blob: Option<Blob<'_>>) {
        let Some(b) = blob else { return };
        if let Some(reason) = b.reason {
            self.fields.insert(key.into(), Value::Missing(reason));
            return;
        }
        self.fields.insert(key.into(), Value::Bytes(b.data.to_vec()));
        self.fields.insert(format!("{key}.flags"), Value::Num(b.flags.into()));
        self.fields.insert(format!("{key}.total"), Value::Num(b.total as i128));
    }
}

/// An engine's answer to a request. A task becomes values only when it is asked for, because a
/// machine has many tasks that a test does not need.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The engine that gave it.
    pub source: Source,
    /// The strategy of the request.
    pub strategy: Strategy,
    /// The totals.
    pub done: Done,
    /// The answer as it came.
    pub snapshot: Snapshot,
    /// Thread id → process id, place in the stream.
    index: BTreeMap<u32, (u32, usize)>,
}

impl Answer {
    /// Thread ids, in order.
    pub fn pids(&self) -> Vec<u32> {
        self.index.keys().copied().collect()
    }
    /// Thread ids of a process.
    pub fn pids_of(&self, tgid: u32) -> Vec<u32> {
        self.index.iter().filter(|i| i.1.0 == tgid).map(|i| *i.0).collect()
    }
    /// Is there such a task?
    pub fn has(&self, pid: u32) -> bool {
        self.index.contains_key(&pid)
    }
    /// A task.
    pub fn get(&self, pid: u32) -> Option<Task> {
        let (_, i) = self.index.get(&pid)?;
        self.snapshot.stream().get(*i).map(|view| Task::of(&view))
    }
    /// A task that must exist.
    pub fn task(&self, pid: u32) -> Task {
        self.get(pid).unwrap_or_else(|| panic!("{self} has no task {pid}"))
    }
    /// All tasks.
    pub fn tasks(&self) -> BTreeMap<u32, Task> {
        self.snapshot.tasks().map(|view| (view.pid(), Task::of(&view))).collect()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.strategy)
    }
}

/// The engine that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An engine as users get it.
    Engine(EngineId),
    /// The bpf engine with its program for kernels before 6.8, which newer ones accept too.
    LegacyBpf,
    /// The second answer of a bpf engine that keeps its program loaded, as in a session. It looks
    /// ahead, as in a long list.
    KeptBpf,
}

impl Source {
    /// The engine.
    pub fn id(self) -> EngineId {
        match self {
            Source::Engine(id) => id,
            Source::LegacyBpf | Source::KeptBpf => EngineId::Bpf,
        }
    }
    /// Does it find this group of other tasks at all? The BPF programs know page tables of x86-64
    /// only, so texts in the memory of a task are BLOCKED on other processors.
    pub fn finds(self, group: Group) -> bool {
        let is_text = matches!(group, Group::Cmdline | Group::Environ);
        cfg!(target_arch = "x86_64") || !is_text || self.id() != EngineId::Bpf
    }
    /// The answer as the library gives it. The groups that `PROC_TASKS` lacks come from procfs, as
    /// in answers of `auto`.
    ///
    /// # Errors
    /// As [`query_with`].
    pub fn query(self, req: &Request) -> Result<Snapshot, Error> {
        match self {
            Source::Engine(EngineId::Kernel) if by_proc_tasks() => query_kernel_first(req),
            Source::Engine(id) => query_with(req, Choice::Only(id)),
            Source::LegacyBpf => Snapshot::parse(Bpf::legacy().run(req)?.stream),
            Source::KeptBpf => {
                let mut kept = Bpf::untried().keeping().looking_ahead();
                kept.run(req)?;
                Snapshot::parse(kept.run(req)?.stream)
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Engine(id) => id.fmt(f),
            Source::LegacyBpf => f.pad("bpf-legacy"),
            Source::KeptBpf => f.pad("bpf-kept"),
        }
    }
}

/// Ask one engine.
///
/// # Panics
/// If the answer has a task twice. Pids are unique at a moment, and a walk that was resumed must
/// not return a task again.
pub fn read(source: Source, req: &Request) -> Result<Answer, Error> {
    Ok(indexed(source, req.strategy, source.query(req)?))
}

/// Makes an [`Answer`] of a snapshot.
///
/// # Panics
/// As [`read`].
pub fn indexed(source: Source, strategy: Strategy, snapshot: Snapshot) -> Answer {
    let done = *snapshot.stream().done();
    assert_eq!(done.error, 0, "{source}: the walk ended early");
    let mut index = BTreeMap::new();
    for (i, view) in snapshot.tasks().enumerate() {
        let again = index.insert(view.pid(), (view.tgid(), i));
        assert!(again.is_none(), "{source}: task {} is there twice", view.pid());
    }
    Answer { source, strategy, done, snapshot, index }
}

/// The engines that work here, the slowest last. An engine that does not work is a loud skip, or a
/// failure if `TASKDIAG_REQUIRE` names it.
pub fn engines() -> &'static [Source] {
    static ENGINES: OnceLock<Vec<Source>> = OnceLock::new();
    ENGINES.get_or_init(|| {
        // A kernel may accept the BPF code for BASE, but not that for other groups. So more is
        // asked for.
        let some = Groups::BASE | Groups::CMDLINE | Groups::PATHS;
        let works = |source: &Source| match read(*source, &Request::one(std::process::id(), some)) {
            Ok(_) => true,
            Err(e) if skips::is_required(source.id().name()) => {
                panic!("TASKDIAG_REQUIRE names {source}: {e}")
            }
            Err(e) => {
                skips::skip(&format!("everything on the {source} engine"), &e.to_string());
                false
            }
        };
        let id = Source::Engine;
        let all = [
            id(EngineId::Kernel),
            id(EngineId::Bpf),
            Source::KeptBpf,
            Source::LegacyBpf,
            id(EngineId::Procfs),
        ];
        let found: Vec<Source> = all.into_iter().filter(works).filter(worth_it).collect();
        assert!(!found.is_empty(), "no engine works here: nothing can be tested");
        found
    })
}

/// Members that no record of `PROC_TASKS` has.
const NOT_IN_PROC_TASKS: &[&str] = &[
    "cred.tracer_pid",
    "cred.no_new_privs",
    "cred.seccomp",
    "cred.ngroups",
    "cred.groups",
    "statm.peak_size_bytes",
    "statm.rss_file_bytes",
    "statm.rss_shmem_bytes",
    "statm.peak_rss_bytes",
    "statm.data_bytes",
    "statm.stack_bytes",
    "statm.text_bytes",
    "statm.lib_bytes",
    "statm.locked_bytes",
    "statm.pinned_bytes",
    "statm.page_tables_bytes",
    "statm.hugetlb_bytes",
];

/// Whether the kernel engine asks `PROC_TASKS` here, and not `/proc/task_diag`.
pub fn by_proc_tasks() -> bool {
    static SEEN: OnceLock<bool> = OnceLock::new();
    *SEEN.get_or_init(|| !std::path::Path::new("/proc/task_diag").exists() && Kernel::new().is_ok())
}

/// Whether this is the kernel engine, which asks `PROC_TASKS`.
pub fn is_by_proc_tasks(source: Source) -> bool {
    source.id() == EngineId::Kernel && by_proc_tasks()
}

/// Whether this is a member that one of the engines here can never know.
pub fn is_not_in_proc_tasks(key: &str) -> bool {
    by_proc_tasks() && NOT_IN_PROC_TASKS.contains(&key)
}

/// Is this further way to use BPF tested? `TASKDIAG_LEGACY_BPF=0` and `TASKDIAG_KEPT_BPF=0` leave
/// the older program and kept programs out. Slow virtual machines set these variables, because the
/// host and other machines test these ways. The older program is also left out where every request
/// uses it.
fn worth_it(source: &Source) -> bool {
    let wanted = |name| std::env::var_os(name).is_none_or(|v| v != "0");
    match source {
        Source::LegacyBpf => wanted("TASKDIAG_LEGACY_BPF") && !Bpf::fell_back(),
        Source::KeptBpf => wanted("TASKDIAG_KEPT_BPF"),
        Source::Engine(_) => true,
    }
}

/// The groups of [`GROUPS`] that an engine answers here. The others are a loud skip.
pub fn groups_of(source: Source) -> Groups {
    static SEEN: OnceLock<Vec<(Source, Groups)>> = OnceLock::new();
    let all = SEEN.get_or_init(|| {
        let ask = |s: &Source| {
            let mut groups = GROUPS;
            while let Err(Error::Unsupported { groups: not, .. }) =
                s.query(&Request::one(std::process::id(), groups))
            {
                skips::skip(&format!("{not} on the {s} engine"), "the engine does not provide it");
                assert!(not.intersects(groups), "{s} refuses what was not asked for: {not}");
                groups = groups - not;
            }
            (*s, groups)
        };
        engines().iter().map(ask).collect()
    });
    all.iter().find(|(s, _)| *s == source).map_or(Groups::NONE, |(_, g)| *g)
}

/// The engines that answer a group here. Each of the others is a loud skip.
pub fn engines_with(group: Group) -> Vec<Source> {
    static SEEN: OnceLock<Vec<(Source, Groups)>> = OnceLock::new();
    let all = SEEN.get_or_init(|| {
        let me = std::process::id();
        // Each request to BPF loads programs, so one request has all groups.
        let groups = |s: &Source| {
            let mut groups = Group::ALL.iter().fold(Groups::NONE, |all, g| all | (*g).into());
            while let Err(Error::Unsupported { groups: not, .. }) =
                s.query(&Request::one(me, groups))
            {
                assert!(not.intersects(groups), "{s} refuses what was not asked for: {not}");
                groups = groups - not;
            }
            groups
        };
        engines().iter().map(|s| (*s, groups(s))).collect()
    });
    let (with, without): (Vec<_>, Vec<_>) = all.iter().partition(|(_, groups)| groups.has(group));
    for (source, _) in without {
        skips::skip(&format!("{group} on the {source} engine"), "the engine does not provide it");
    }
    with.into_iter().map(|(source, _)| source).collect()
}
