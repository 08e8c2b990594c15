//! `taskdiag cgroups`: what each cgroup uses and may use, as a tree or as a list, now or in a
//! recording.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use taskdiag::cgroups::{Bounds, Cgroups, Session};
use taskdiag::field::{CGROUPS, Missing};
use taskdiag::view::{CgroupRows, Item, Query, Rows as _};
use taskdiag::{Error, Reason};

use crate::answer;
use crate::args::cgroups::CgroupsArgs;
use crate::columns::{self, Column};
use crate::exit::{Asked, Exit, Lack, say, shown};
use crate::forest::{LINES, PLAIN, Tree};
use crate::interrupt;
use crate::output::text;
use crate::output::{self, Form, Sink, Table, Tally, tally};
use crate::units::Units;

/// Run it.
pub fn run(args: &CgroupsArgs) -> Result<(), Exit> {
    let begin = Instant::now();
    let table = &args.table;
    let terminal = table.terminal();
    let is_tree = table.form == Form::Text && !args.flat;
    let kept = table.source.from.as_ref().map(|path| kept(args, path)).transpose()?;
    let has_rates = kept.as_ref().map_or(args.delay.is_some(), |kept| kept.has_rates);
    let mut columns = columns(args, is_tree, has_rates)?;
    let mut query = Query::new(&CGROUPS, columns.iter().map(|c| c.field));
    query.filter = table.filter.clone();
    query.sort = table.sort.clone();
    let filtered = query.filter.iter().flat_map(|filter| filter.fields());
    let sorted = query.sort.iter().map(|key| key.field);
    let mut fields = columns.iter().map(|c| c.field).chain(filtered).chain(sorted);
    if kept.is_some() && !has_rates && fields.any(|f| f.name.ends_with("_now")) {
        say(format_args!(
            "taskdiag: no earlier answer of the same boot has cgroups, so there are no rates (columns whose name ends in _now)"
        ));
    }
    let all = match kept {
        Some(kept) => kept.cgroups,
        None => list(args, &query)?,
    };
    let asked = Instant::now();
    let mut rows = CgroupRows::new(&query, &all)?;
    if table.columns.is_empty() {
        drop_unknown(&mut columns, &rows, all.kept_with().is_some());
    }
    if table.form == Form::Text {
        let units = if table.units == Units::Auto { Units::Human } else { table.units };
        units.apply(&mut columns);
    }
    let tree = is_tree.then(|| {
        let style = if terminal.lines { LINES } else { PLAIN };
        let mut tree = Tree::new(&rows.with_ancestors(), rows.snapshot(), style);
        rows.show(std::mem::take(&mut tree.rows));
        tree
    });
    let mut tally = Tally::new(columns.len());
    let mut sink = Sink::stdout();
    let all_rows = Table { cx: rows.cx(), columns: &columns, rows: &rows };
    let count = match table.form {
        Form::Text => {
            let options = text::Options::new(table.headers, terminal);
            text::header(&mut sink, &columns, &options);
            text::rows(&mut sink, &all_rows, tree.as_ref(), &options, &mut tally, None)?
        }
        _ => output::rows(&mut sink, &table.form, &all_rows, table.headers, &mut tally)?,
    };
    sink.finish()?;
    if let (0, Some((option, name))) = (count, &args.place) {
        say(format_args!(
            "taskdiag: no cgroup is that of a {option} with the name or id {name}; 'taskdiag cgroups --flat -o container_name,pod_name,path' \
             shows all"
        ));
    }
    if table.stats {
        crate::stats::print(rows.snapshot(), count, begin, asked);
    }
    let lack = |line| Lack { line, from: Asked::Named };
    let mut lacks: Vec<Lack> = all.remarks().into_iter().map(lack).collect();
    lacks.extend(tally::left_out(rows.left(), rows.snapshot()));
    lacks.extend(tally.lines(&columns, rows.snapshot()));
    let asked = match args.paths.is_empty() {
        _ if table.source.strict => Asked::Strict,
        true => Asked::All,
        false => Asked::Named,
    };
    answer::verdict_of(rows.snapshot(), count == 0, lacks, asked)
}

/// Cgroups of a saved answer.
struct SavedCgroups {
    cgroups: Cgroups,
    /// Is there an earlier answer to compare them with?
    has_rates: bool,
}

/// The cgroups of the saved answer at this path.
fn kept(args: &CgroupsArgs, path: &Path) -> Result<SavedCgroups, Exit> {
    let (snapshot, earlier) = args.table.source.read_with_earlier(path)?;
    let Some(mut cgroups) = Cgroups::of(&snapshot) else {
        return Err(Exit::Failed(format!(
            "{} has no cgroups: 'taskdiag record --cgroups DIR' records them, and 'taskdiag cgroups' without --from shows those of now",
            shown(path)
        )));
    };
    let earlier = earlier.as_ref().and_then(Cgroups::of);
    if let Some(earlier) = &earlier {
        cgroups.compare(earlier);
    }
    if !args.paths.is_empty() {
        cgroups.only(args.paths.iter().map(Vec::as_slice)).map_err(|e| match e {
            Error::Io { ref source, .. } if source.kind() == ErrorKind::NotFound => {
                not_there(args, e)
            }
            e => Exit::Usage(e.to_string()),
        })?;
    }
    Ok(SavedCgroups { cgroups, has_rates: earlier.is_some() })
}

/// The cgroups, after the delay if there is one.
fn list(args: &CgroupsArgs, query: &Query) -> Result<Cgroups, Exit> {
    let descriptors = args.delay.map_or(0, |_| {
        // Files that stay open are read faster. If the limit stays low, fewer files stay open.
        crate::commands::wait::allow_files(usize::MAX / 2);
        Session::descriptors()
    });
    let mut session = Session::new(query.cgroup_files(), Bounds::default(), descriptors)?;
    if !args.paths.is_empty() {
        let named = session.below(args.paths.iter().map(Vec::as_slice));
        session = named.map_err(|e| Exit::Usage(e.to_string()))?;
    }
    let Some(delay) = args.delay else {
        let all = session.once().map_err(|e| not_there(args, e))?;
        interrupt::answered();
        return Ok(all);
    };
    session.list().map_err(|e| not_there(args, e))?;
    interrupt::rest();
    std::thread::sleep(delay);
    interrupt::answered();
    session.list().map_err(|e| not_there(args, e))
}

/// The error for a named cgroup that does not exist. People try the name of a service or container,
/// which is not a path.
fn not_there(args: &CgroupsArgs, e: Error) -> Exit {
    match e {
        Error::Io { ref source, .. } if source.kind() == ErrorKind::NotFound => {
            let name = |path: &Vec<u8>| !path.contains(&b'/');
            match args.paths.iter().find(|path| name(path)).map(|n| String::from_utf8_lossy(n)) {
                Some(name) => say(format_args!(
                    "taskdiag: there is no cgroup /{name}: --unit {name} shows that of a service, and --where 'path ~ {name}' \
                     each with this in its path"
                )),
                None => say(format_args!("taskdiag: {e}; 'taskdiag cgroups --flat' lists all")),
            }
            Exit::NoMatch
        }
        e => e.into(),
    }
}

fn columns(args: &CgroupsArgs, is_tree: bool, has_rates: bool) -> Result<Vec<Column>, Exit> {
    if !args.table.columns.is_empty() {
        return Ok(args.table.columns.clone());
    }
    let text = args.table.form == Form::Text;
    // Most of the time is the kernel's for each file, so this view has one of PSI.
    let name = if is_tree { "branch" } else { "path" };
    let view = match (text, has_rates) {
        (true, false) => {
            format!("tasks,time,memory:7,memory_max,memory_some,throttled,oom_kills,{name}")
        }
        (true, true) => format!(
            "tasks,cpu_now,memory:7,memory_max,memory_some,throttled_now,read_now,write_now,oom_kills,{name}"
        ),
        (false, has_rates) => {
            let now = if has_rates { ",cpu_now,throttled_now,read_now,write_now" } else { "" };
            format!(
                "path,id,tasks,time,cpu_max,throttles,throttled,memory,memory_high,memory_max,swap,oom_kills,anon,file,kernel,\
                 read_bytes,write_bytes,cpu_some,memory_some,io_some{now}"
            )
        }
    };
    columns::view(&CGROUPS, &view)
}

/// Leaves out the columns of a view that no cgroup of this machine has, with a message.
fn drop_unknown(columns: &mut Vec<Column>, rows: &CgroupRows<'_>, is_kept: bool) {
    let unsupported = Some(Missing::Reason(Reason::Unsupported));
    let absent = Some(Missing::Reason(Reason::Absent));
    // A column that is absent in all rows is not left out, unless nothing more is known of it.
    let mut unknown = vec![false; columns.len()];
    let mut is_there = vec![false; columns.len()];
    let done = rows.each(&mut |item: Item<'_, '_>| {
        for (c, column) in columns.iter().enumerate() {
            let why = item.value(rows.cx(), column.field, c).missing();
            unknown[c] |= why == unsupported;
            is_there[c] |= why != unsupported && why != absent;
        }
        Ok(())
    });
    debug_assert!(done.is_ok(), "looking does not fail");
    let is_unknown = |c: usize| unknown[c] && !is_there[c];
    let names: Vec<&str> =
        (0..columns.len()).filter(|c| is_unknown(*c)).map(|c| columns[c].name.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let why = match is_kept {
        true => "the machine that was recorded does not have it",
        false => "no mounted hierarchy of cgroups has it, or this kernel is too old",
    };
    say(format_args!("taskdiag: {} left out: {why}", names.join(", ")));
    let mut c = 0;
    columns.retain(|_| {
        c += 1;
        !is_unknown(c - 1)
    });
}
