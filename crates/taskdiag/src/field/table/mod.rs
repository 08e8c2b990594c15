//! The rows of the field table, by topic. A row is data. A getter that needs more than a line is in
//! the same file as its row.

// The macros come first: the modules below use them.

/// One row. `[groups]` may be empty. After BASE, CRED, STAT and STATM, it names the members that it
/// reads, unless it reads all of them.
macro_rules! row {
    ($name:literal $header:literal $width:literal $align:ident [$($g:ident $(($($m:ident)*))?)*] $kind:ident $unit:ident
     $text:ident, $source:expr, $help:expr, {$($alias:literal $ah:literal),*}, $get:expr) => {
        Field {
            name: $name,
            header: $header,
            width: $width,
            align: Align::$align,
            groups: Groups::NONE$(.union(Groups::$g))*,
            members: Members::NONE$(.union(
                Members::of(Groups::$g, &[$($(stringify!($m)),*)?])
            ))*,
            cgroup_files: Files::NONE,
            kind: Kind::$kind,
            unit: Unit::$unit,
            text: TextForm::$text,
            source: $source,
            help: $help,
            aliases: &[$(($alias, $ah)),*],
            get: $get,
        }
    };
}

/// A getter of one member of one group's record.
macro_rules! member {
    ($group:ident $record:ident.$member:ident, $wrap:expr) => {
        |_, row| match row.$record {
            Some(record) => record.$member().map_or(Value::UNKNOWN, $wrap),
            None => row.missing(Group::$group),
        }
    };
}

/// As [`member`], for unsigned numbers.
macro_rules! uint {
    ($group:ident $record:ident.$member:ident) => {
        member!($group $record.$member, |v| Value::Uint(u64::from(v)))
    };
}

mod cgroups;
mod command;
mod cred;
mod details;
mod fds;
mod files;
pub mod gpu;
pub mod grouped;
mod host;
mod identity;
mod limits;
mod maps;
mod memory;
mod namespaces;
pub mod net;
pub mod places;
mod rates;
mod rollup;
mod settings;
mod signals;
mod tags;
mod time;
mod waiting;
mod work;

use super::Field;

/// Rows of tasks.
pub static TABLES: &[&[Field]] = &[
    identity::FIELDS,
    command::FIELDS,
    cred::FIELDS,
    time::FIELDS,
    memory::FIELDS,
    rollup::FIELDS,
    work::FIELDS,
    namespaces::FIELDS,
    signals::FIELDS,
    settings::FIELDS,
    waiting::FIELDS,
    limits::FIELDS,
    fds::FIELDS,
    net::FIELDS,
    gpu::FIELDS,
    tags::FIELDS,
    places::FIELDS,
    host::FIELDS,
];

/// Rows of memory mappings.
pub static MAPS: &[&[Field]] = &[maps::FIELDS, grouped::PROCESSES, grouped::MAPPINGS];

/// Rows of tasks together.
pub static MEMORY: &[&[Field]] = &[grouped::PROCESSES, rollup::MEMORY];

/// Rows of tasks, and their activity since the previous answer.
pub static TOP: &[&[Field]] = &[rates::FIELDS, net::RATES, gpu::RATES, grouped::PROCESSES];

/// Rows of cgroups.
pub static CGROUPS: &[&[Field]] =
    &[cgroups::IDENTITY, cgroups::USE, cgroups::MEMORY, cgroups::WAITING, cgroups::RATES];

/// Rows of files that are in use.
pub static FILES: &[&[Field]] =
    &[files::FIELDS, details::FIELDS, net::FILES, grouped::PROCESSES, grouped::FILES];
