//! The field table: every column that can be asked for, described once.
//!
//! A [`Field`] has its names (its own and those of `ps -o`), the [`Groups`] that it needs, its
//! unit, its source, and a function that gets its value from a task. All faces (text, JSON, CSV,
//! `taskdiag fields`, the man page) are made from [`all`]. The fields of a view decide which groups
//! are requested: see [`groups_of`].
//!
//! This module reads no task itself and prints nothing.

mod contained;
mod context;
mod format;
mod held;
mod localtime;
mod names;
mod nodes;
mod number;
mod part;
mod rate;
mod row;
mod set;
mod table;
mod tty;
mod value;

pub use crate::calendar::since_boot;
pub use context::Context;
pub use format::{escape, is_odd, text};
pub use names::{OwnerNames, name_service_is_slow};
pub use number::{HEX, digits_at_end, write_uint};
pub use part::{Map, OpenRow, Part};
pub use rate::Rate;
pub(crate) use rate::{GpuGrowth, NONE, RATES, SocketGrowth};
pub use row::Row;
pub use set::{CGROUPS, FILES, MAPS, MEMORY, SETS, Set, TASKS, TOP, nearest};
pub(crate) use table::gpu;
pub use table::gpu::{engines as gpu_engines, memory_once as gpu_memory_once};
pub use table::grouped::{LACKING, PROCS};
pub use table::places::{CONTAINER_NAME_OR_ID, POD_NAME_OR_UID};
pub use value::{Missing, Short, Value};

#[cfg(feature = "view")]
use std::collections::HashSet;

use taskdiag_wire::Groups;

use crate::cgroups::Files;
use crate::request::Members;

/// The sum of a column about objects that processes may share: sockets or clients of graphics
/// processors. Adds up the objects of a row that are not in `seen` yet, and adds them to `seen`.
/// `None`: the column is not about such objects.
#[cfg(feature = "view")]
pub(crate) fn sum_once<'s>(
    field: &Field,
    row: &Row<'_>,
    seen: impl FnOnce() -> &'s mut HashSet<u64>,
) -> Option<Value<'static>> {
    if field.groups.intersects(Groups::NET) {
        table::net::sum_once(field, row, seen())
    } else if field.groups.intersects(Groups::GPU) {
        gpu::sum_once(field, row, seen())
    } else {
        None
    }
}

/// Which side of a text column is ragged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text begins at the column's left edge.
    Left,
    /// Text ends at the column's right edge.
    Right,
}

/// Unit of the value, as the library and JSON give it. Text may show another one: see [`TextForm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// A plain value.
    None,
    /// Bytes.
    Bytes,
    /// Seconds, with a fraction.
    Seconds,
    /// Seconds since 1970-01-01 UTC, with a fraction.
    UnixSeconds,
    /// Per cent of one CPU, or of the memory of the machine.
    Percent,
    /// Occurrences.
    Count,
}

impl Unit {
    /// The name that users see; empty for [`Unit::None`].
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::UnixSeconds => "unix seconds",
            Unit::Percent => "percent",
            Unit::Count => "count",
        }
    }
}

/// Type of the value in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An integer that is never negative; a limit may also be the word `unlimited`.
    Integer,
    /// An integer that may be negative.
    Signed,
    /// True or false; text shows 1 or 0.
    Boolean,
    /// A number with a fraction.
    Number,
    /// A string. If the bytes are not UTF-8, JSON has all of them in base64 under `KEY_bytes`.
    Text,
    /// An array of [`Kind::Text`].
    TextList,
    /// An array of integers.
    IntegerList,
}

impl Kind {
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Integer | Kind::Signed => "integer",
            Kind::Boolean => "boolean",
            Kind::Number => "number",
            Kind::Text => "text",
            Kind::TextList => "list of text",
            Kind::IntegerList => "list of integers",
        }
    }
}

/// Type of the values of a field in the library. JSON has a [`Kind`] for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// A number: [`Value::Uint`], or [`Value::Unlimited`].
    U64,
    /// A number that may be negative: [`Value::Int`].
    I64,
    /// A number with a fraction: [`Value::Percent`].
    F64,
    /// A size in bytes: [`Value::Uint`], or [`Value::Unlimited`].
    Bytes,
    /// A duration in ns: [`Value::Nanos`].
    DurationNs,
    /// An instant in ns since boot: [`Value::Instant`].
    TimestampNs,
    /// True or false: [`Value::Bool`].
    Bool,
    /// A set of bits, or an address: [`Value::Mask`].
    Mask,
    /// Text of any bytes: [`Value::Bytes`], [`Value::Word`], [`Value::Short`], [`Value::User`],
    /// [`Value::Group`] or [`Value::Tty`].
    Text,
    /// A list of texts: [`Value::Args`] or [`Value::GroupList`].
    TextList,
    /// A list of numbers: [`Value::Ids`].
    U32List,
}

impl DataType {
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            DataType::U64 => "a number",
            DataType::I64 => "a number that may be negative",
            DataType::F64 => "a number with a fraction",
            DataType::Bytes => "a size in bytes",
            DataType::DurationNs => "a duration",
            DataType::TimestampNs => "a moment",
            DataType::Bool => "true or false",
            DataType::Mask => "a set of bits",
            DataType::Text => "text",
            DataType::TextList => "a list of texts",
            DataType::U32List => "a list of numbers",
        }
    }
    /// Whether a field of this type may have this value. Every field may have a missing value.
    pub fn admits(self, value: &Value<'_>) -> bool {
        use DataType::{
            Bool, Bytes, DurationNs, F64, I64, Mask, Text, TextList, TimestampNs, U32List, U64,
        };
        match value {
            Value::Missing(_) => true,
            Value::Uint(_) | Value::Unlimited => matches!(self, U64 | Bytes),
            Value::Int(_) => self == I64,
            Value::Percent(_) => self == F64,
            Value::Nanos(_) => self == DurationNs,
            Value::Instant(_) => self == TimestampNs,
            Value::Bool(_) => self == Bool,
            Value::Mask(_) => self == Mask,
            Value::Bytes { .. }
            | Value::Word(_)
            | Value::Short(_)
            | Value::User(_)
            | Value::Group(_)
            | Value::Tty(_) => self == Text,
            Value::Args { .. } | Value::GroupList(_) => self == TextList,
            Value::Ids(_) => self == U32List,
        }
    }
}

/// How a value looks as text. The forms are those of procps `ps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// As it is.
    Plain,
    /// A process or thread id: the column is wide enough for the largest that there can be.
    Pid,
    /// Bytes as KiB.
    Kib,
    /// Bytes with a letter for the unit, as 1.5G.
    Human,
    /// Bytes as pages.
    Pages,
    /// A duration as `[DD-]HH:MM:SS`.
    Clock,
    /// A duration as `M:SS`.
    Minutes,
    /// A duration as `[[DD-]HH:]MM:SS`.
    Elapsed,
    /// A duration in whole seconds.
    Seconds,
    /// A duration in milliseconds, with three decimals below a second.
    Millis,
    /// One decimal, cut.
    Percent,
    /// As `Percent`, but a row that cannot have a value shows none instead of 0.
    Share,
    /// A percentage without decimals, at most 99.
    Percent99,
    /// Tenths of a percent, at most 999.
    PerMille,
    /// A percentage with three decimals, at most 99.999.
    Percent3,
    /// An instant as `Sat Nov 21 00:43:22 2026`.
    Date,
    /// An instant as `HH:MM`, or `MonDD`, or the year.
    ShortDate,
    /// An instant as `HH:MM`, or `Mon DD` after a day.
    BsdDate,
    /// An instant as `HH:MM:SS`, or `Mon DD` after a day.
    StartDate,
    /// Octal digits.
    Octal,
    /// Sixteen hexadecimal digits.
    Hex,
    /// At least eight hexadecimal digits.
    Hex8,
    /// Unchanged, but cut to its column if another one follows.
    Cut,
    /// The first eight characters.
    Fname,
    /// A set of signals: sixteen hexadecimal digits, or fewer where there is no room.
    Signals,
    /// A command name.
    Comm,
    /// Arguments, or `[comm]` if there are none.
    Args,
}

/// Reads a field of a task.
pub type Get = for<'a> fn(&Context, &Row<'a>) -> Value<'a>;

/// One field.
#[derive(Debug)]
#[non_exhaustive]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its column header.
    pub header: &'static str,
    /// Least width of its text column.
    pub width: usize,
    /// Alignment of its text column.
    pub align: Align,
    /// The groups that it is made from. If it is empty, every answer has the value.
    pub groups: Groups,
    /// The members of BASE, CRED, STAT and STATM that it is made from.
    pub members: Members,
    /// The files of a cgroup that it is made from, if its rows are cgroups.
    pub cgroup_files: Files,
    /// Type of the value.
    pub kind: Kind,
    /// Unit of the value.
    pub unit: Unit,
    /// How it looks as text.
    pub text: TextForm,
    /// Its source: the kernel field or the file of /proc.
    pub source: &'static str,
    /// A description in one line.
    pub help: &'static str,
    /// Other names for it, each with the header it has under that name.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Its value for a task.
    pub get: Get,
}

impl Field {
    /// A column of text that a face fills in itself, with [`Item::With`](crate::view::Item::With):
    /// it needs no group, and has no value of its own. `source` and `help` are as in the members
    /// with these names.
    pub const fn drawn(
        name: &'static str,
        header: &'static str,
        width: usize,
        source: &'static str,
        help: &'static str,
    ) -> Field {
        Field {
            name,
            header,
            width,
            align: Align::Left,
            groups: Groups::NONE,
            members: Members::NONE,
            cgroup_files: Files::NONE,
            kind: Kind::Text,
            unit: Unit::None,
            text: TextForm::Plain,
            source,
            help,
            aliases: &[],
            get: |_, _| Value::ABSENT,
        }
    }
}

/// A field under one of its names.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Named {
    /// The field.
    pub field: &'static Field,
    /// The requested name.
    pub name: &'static str,
    /// The header that goes with the name.
    pub header: &'static str,
}

/// All fields of tasks, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Field> {
    TASKS.own()
}

/// Every name that [`find`] knows, with the field it stands for.
pub fn all_names() -> impl Iterator<Item = Named> {
    TASKS.all_names()
}

/// The field of tasks with this name or alias.
pub fn find(name: &str) -> Option<Named> {
    TASKS.find(name)
}

/// The groups that must be asked for to show these fields.
pub fn groups_of<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Groups {
    fields.into_iter().fold(Groups::NONE, |g, f| g | f.groups)
}

/// The files of cgroups that must be read to show these fields.
pub fn cgroup_files_of<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Files {
    fields.into_iter().fold(Files::NONE, |all, f| all.union(f.cgroup_files))
}

/// The members of BASE, CRED, STAT and STATM that must be asked for to show these fields.
pub fn members_of<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Members {
    fields.into_iter().fold(Members::NONE, |m, f| m.union(f.members))
}

impl Field {
    /// Type of its values.
    pub const fn data_type(&self) -> DataType {
        match (self.kind, self.unit) {
            (Kind::Boolean, _) => DataType::Bool,
            (Kind::Signed, _) => DataType::I64,
            (Kind::Integer, Unit::Bytes) => DataType::Bytes,
            (Kind::Integer, _) => DataType::U64,
            (Kind::Number, Unit::Seconds) => DataType::DurationNs,
            (Kind::Number, Unit::UnixSeconds) => DataType::TimestampNs,
            (Kind::Number, _) => DataType::F64,
            (Kind::Text, _) if matches!(self.text, TextForm::Hex | TextForm::Signals) => {
                DataType::Mask
            }
            (Kind::Text, _) => DataType::Text,
            (Kind::TextList, _) => DataType::TextList,
            (Kind::IntegerList, _) => DataType::U32List,
        }
    }
    /// Whether all threads of a process have the same value, because it belongs to the process: its
    /// memory, its table of open files, its number of threads, and the resources used by its
    /// children. Columns that need other members of STAT, too, are not among them.
    #[cfg(feature = "view")]
    pub(crate) fn is_of_process(&self) -> bool {
        const NAMES: &[&str] = &["num_threads", "cutime_ns", "cstime_ns", "cminflt", "cmajflt"];
        const MEMBERS: Members = Members::of(Groups::STAT, NAMES);
        self.groups.intersects(Groups::OF_PROCESS)
            || self.groups == Groups::STAT && self.members.union(MEMBERS) == MEMBERS
    }
    /// Whether its value may be [`Value::Unlimited`].
    pub fn is_limit(&self) -> bool {
        self.groups.intersects(Groups::LIMITS) || self.cgroup_files.intersects(Files::LIMITS)
    }
    /// Whether the values of several rows can be added up. This is true for amounts of memory and
    /// I/O, counts, CPU time and shares of it, and false for ages and the like.
    pub fn adds_up(&self) -> bool {
        match self.text {
            TextForm::Kib | TextForm::Human => true,
            TextForm::Plain => self.unit == Unit::Count,
            TextForm::Clock => self.unit == Unit::Seconds,
            TextForm::Percent => self.unit == Unit::Percent,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{
        AlignedBuf, Base, Cred, Done, Group, Info, Reason, Stat, Statm, Stream, StreamWriter, build,
    };

    fn filled<T: taskdiag_wire::GroupRecord>(fill: u8) -> T {
        T::read_from_prefix(&vec![fill; size_of::<T>()]).expect("the size is right").0
    }

    /// A stream with one task whose records are filled with this byte, or which has no record.
    fn stream(asked: Groups, fill: Option<u8>, why: Option<Reason>) -> Stream<AlignedBuf> {
        fn record<T: taskdiag_wire::GroupRecord>(w: &mut StreamWriter, fill: u8) {
            w.put(&filled::<T>(fill));
        }
        let mut w = StreamWriter::new();
        let extreme = fill.map_or(0, |b| u64::from_ne_bytes([b; 8]));
        w.info(&build!(Info {
            show_flags: asked.bits(),
            realtime_ns: extreme,
            mem_total_bytes: extreme,
            page_size: extreme as u32,
            ..StreamWriter::blank_info()
        }));
        w.begin_task(7, 7);
        if let Some(b) = fill {
            macro_rules! records {
                ($($t:ident)*) => { $(record::<taskdiag_wire::$t>(&mut w, b);)* };
            }
            taskdiag_wire::for_each_record!(records);
        }
        if let Some(why) = why {
            asked.iter().for_each(|g| w.missing(g, why));
        }
        w.end_task();
        Stream::parse(w.finish(Done::default())).expect("it is well formed")
    }

    fn each_field(stream: &Stream<AlignedBuf>, mut f: impl FnMut(&Field, &Value<'_>, String)) {
        let cx = Context::new(stream.info(), false);
        let row = Row::new(stream.get(0).expect("one task"));
        for field in TASKS.own().chain(MEMORY.own()) {
            let value = (field.get)(&cx, &row);
            let mut out = Vec::new();
            text(&mut out, &cx, field.text, Some(&row), &value);
            let is = field.data_type();
            assert!(is.admits(&value), "{} is {is:?}, and has {value:?}", field.name);
            f(field, &value, String::from_utf8(out).expect("text is UTF-8"));
        }
    }

    #[test]
    fn fields_accept_any_value() {
        for fill in [0, 1, 0x7f, 0x80, 0xff] {
            each_field(&stream(Groups::from_bits(u64::MAX), Some(fill), None), |f, _, text| {
                assert!(
                    !text.is_empty() || f.text == TextForm::Comm || f.name == "fname",
                    "{}",
                    f.name
                );
            });
        }
    }

    #[test]
    fn a_missing_value_has_a_reason() {
        let everything: Groups = Group::ALL.iter().copied().collect();
        each_field(&stream(Groups::NONE, None, None), |f, v, text| {
            if !f.groups.is_empty() {
                assert_eq!((v, text.as_str()), (&Value::Missing(Missing::NotAsked), "?"), "{f:?}");
            }
        });
        for why in [Reason::Denied, Reason::Blocked, Reason::Vanished, Reason::Unsupported] {
            each_field(&stream(everything, None, Some(why)), |f, v, text| {
                if !f.groups.is_empty() {
                    let want = &Value::Missing(Missing::Reason(why));
                    assert_eq!((v, text.as_str()), (want, "?"), "{f:?}");
                }
            });
        }
        each_field(&stream(everything, None, Some(Reason::Absent)), |f, v, text| {
            if !f.groups.is_empty() {
                assert_eq!(v, &Value::ABSENT, "{f:?}");
                assert!(["-", "0", "0.0", "[?]"].contains(&text.as_str()), "{} {text}", f.name);
            }
        });
    }

    /// The value and text of a field of a task whose BASE, CRED, STAT and STATM are filled with
    /// `fill`, and in which only these members are known. If there is no value, the text is that of
    /// the missing group.
    fn with_members(field: &Field, m: Members, fill: u8) -> String {
        let (skip_base, skip_stat) = m.skipped();
        let mut w = StreamWriter::new();
        let asked = Groups::BASE | Groups::CRED | Groups::STAT | Groups::STATM | field.groups;
        w.info(&build!(Info {
            show_flags: asked.bits(),
            page_size: 4096,
            ..StreamWriter::blank_info()
        }));
        w.begin_task(7, 7);
        let mut base: Base = filled(fill);
        (base.valid, base.state) = (Base::ALL_VALID & !skip_base, b'Z');
        base.comm =
            if base.known().comm().is_some() { *b"name\0\0\0\0\0\0\0\0\0\0\0\0" } else { [0; 16] };
        w.put(&base);
        let mut cred: Cred = filled(fill);
        cred.valid = Cred::ALL_VALID & m.cred;
        w.put(&cred);
        let mut stat: Stat = filled(fill);
        stat.valid = Stat::ALL_VALID & !skip_stat;
        w.put(&stat);
        let mut statm: Statm = filled(fill);
        statm.valid = Statm::ALL_VALID & m.statm;
        w.put(&statm);
        w.end_task();
        let stream = Stream::parse(w.finish(Done::default())).expect("it is well formed");
        let cx = Context::new(stream.info(), false);
        let row = Row::new(stream.get(0).expect("one task"));
        let value = (field.get)(&cx, &row);
        let mut out = Vec::new();
        text(&mut out, &cx, field.text, Some(&row), &value);
        format!("{value:?} {}", String::from_utf8_lossy(&out))
    }

    #[test]
    fn a_field_looks_at_its_members_only() {
        let mut fewer = 0;
        for field in all() {
            for fill in [0, 1, 0x7f] {
                let whole = with_members(field, Members::ALL, fill);
                assert_eq!(with_members(field, field.members, fill), whole, "{}", field.name);
            }
            let none =
                with_members(field, Members::NONE, 1) == with_members(field, Members::ALL, 1);
            let some = Groups::BASE | Groups::CRED | Groups::STAT | Groups::STATM;
            let said = !field.groups.intersects(some);
            assert!(none || !said, "{} looks at a member that it does not name", field.name);
            fewer += usize::from(field.members != Members::ALL && !none);
        }
        assert!(fewer > 30, "{fewer} fields name the members that they look at");
    }

    #[test]
    fn names_are_unique_and_described() {
        let mut seen = std::collections::HashSet::new();
        for set in SETS {
            seen.clear();
            for f in set.own() {
                assert!(!f.help.is_empty() && !f.source.is_empty(), "{}", f.name);
                for name in std::iter::once(f.name).chain(f.aliases.iter().map(|a| a.0)) {
                    assert!(seen.insert(name), "{name} is there twice");
                    assert!(!name.contains([',', ' ', '=', ':', '.']), "{name}");
                    assert!(std::ptr::eq(set.find(name).expect("its name").field, f), "{name}");
                }
            }
            assert!(set.all_names().all(|n| !n.header.is_empty()));
        }
        assert!(!std::ptr::eq(
            MAPS.find("rss").expect("of a mapping").field,
            MAPS.find("task.rss").expect("of the task").field
        ));
        assert!(find("pid").is_some_and(|n| n.field.groups.is_empty()));
        assert!(find("no such").is_none());
    }

    #[test]
    fn sizes_for_people_have_a_letter_for_the_unit() {
        let cx = Context::new(&StreamWriter::blank_info(), false);
        for (bytes, want) in [
            (0, "0"),
            (999, "999B"),
            (1023, "1.0K"),
            (4096, "4.0K"),
            (102_400, "100K"),
            (1_048_575, "1.0M"),
            (1_610_612_736, "1.5G"),
            (u64::MAX, "16384P"),
        ] {
            let mut out = Vec::new();
            text(&mut out, &cx, TextForm::Human, None, &Value::Uint(bytes));
            assert_eq!(String::from_utf8(out).expect("ASCII"), want);
        }
    }

    #[test]
    fn units_go_with_types() {
        for f in SETS.iter().flat_map(|s| s.own()) {
            let ok = match f.unit {
                Unit::Seconds | Unit::UnixSeconds | Unit::Percent => f.kind == Kind::Number,
                Unit::Bytes | Unit::Count => f.kind == Kind::Integer,
                Unit::None => f.kind != Kind::Number,
            };
            assert!(ok, "{} is {:?} in {:?}", f.name, f.kind, f.unit);
        }
    }
}
