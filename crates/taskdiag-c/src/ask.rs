//! A query of a C program, and its answer as a table.

use std::ffi::c_int;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use taskdiag::columns::{Builder, Spec};
use taskdiag::field::{CGROUPS, FILES, Field, Part, Row, SETS, Set, TASKS, TOP};
use taskdiag::view::{Answered, Filter, Key, Plan, Query, View};
use taskdiag::{ByteLimits, Choice, Groups, Members, Rates, Request, SessionCache};

use crate::failure::Failure;
use crate::table::Table;

/// The numbers of options in `taskdiag.h`.
pub mod option {
    use std::ffi::c_int;

    pub const THREADS: c_int = 1;
    pub const PATHS: c_int = 2;
    pub const MAPPED: c_int = 3;
    pub const TEXT_BYTES: c_int = 4;
    pub const BUDGET_NS: c_int = 5;
    pub const MAX_RSS_BYTES: c_int = 6;
    pub const MAX_AGE_NS: c_int = 7;
}

/// A query that was checked.
#[derive(Clone, Debug)]
pub struct Ask {
    query: Query,
    specs: Vec<Spec>,
    choice: Choice,
    /// An empty list of processes was given, which selects none. An empty list in `query.select`
    /// selects all.
    of_none: bool,
    threads: bool,
    paths: bool,
    mapped: bool,
    text_bytes: Option<u32>,
    budget: Option<Duration>,
    max_rss: Option<NonZeroU64>,
    max_age: Duration,
}

/// The names in a text with commas or blanks between them.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t', '\n']).filter(|name| !name.is_empty())
}

/// The kind of rows that has this name.
pub fn set(rows: &str) -> Result<&'static Set, Failure> {
    // Cgroups are not read from tasks.
    let sets = || SETS.iter().copied().filter(|s| s.name != CGROUPS.name);
    sets().find(|s| s.name == rows).ok_or_else(|| {
        let known: Vec<&str> = sets().map(|s| s.name).collect();
        Failure::query(format!("there are no rows '{rows}'; there are {}", known.join(", ")))
    })
}

fn is_rate(field: &Field) -> bool {
    TOP.own().any(|f| std::ptr::eq(f, field))
}

fn flag(value: u64) -> Result<bool, Failure> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(Failure::argument("the value of this option is 0 or 1")),
    }
}

impl Ask {
    /// A query for these columns of all rows of a kind.
    pub fn new(rows: &str, columns: &str) -> Result<Ask, Failure> {
        let set = set(rows)?;
        let (mut fields, mut specs) = (Vec::new(), Vec::<Spec>::new());
        for name in names(columns) {
            let field = set.find(name).ok_or_else(|| Failure::query(set.no_column(name)))?.field;
            if specs.iter().any(|s| s.name == name) {
                return Err(Failure::query(format!("the column '{name}' is named twice")));
            }
            fields.push(field);
            specs.push(Spec::of(name, field));
        }
        if fields.is_empty() {
            return Err(Failure::query("no column is named, as in \"pid,comm\""));
        }
        Ok(Ask {
            query: Query::new(set, fields),
            specs,
            choice: Choice::Auto,
            of_none: false,
            threads: false,
            paths: false,
            mapped: false,
            text_bytes: None,
            budget: None,
            max_rss: None,
            max_age: Duration::ZERO,
        })
    }
    /// Only rows for which this condition is true.
    pub fn set_where(&mut self, condition: &str) -> Result<(), Failure> {
        let filter = Filter::parse(self.query.set, condition);
        let filter = filter.map_err(|e| Failure::query(e.to_string()))?;
        if let Some(rate) = filter.fields().find(|f| is_rate(f)) {
            return Err(Failure::query(format!(
                "the column '{}' needs two answers, so no condition can use it: \
                 compare its value in each row",
                rate.name
            )));
        }
        self.query.filter = Some(filter);
        Ok(())
    }
    /// The order of the rows.
    pub fn set_sort(&mut self, keys: &str) -> Result<(), Failure> {
        let set = self.query.set;
        let key = |item| match Key::parse(set, item) {
            None => Err(Failure::query(set.no_column(Key::name(item).1))),
            Some(key) if is_rate(key.field) => Err(Failure::query(format!(
                "the column '{}' needs two answers: sort the rows of the table by it",
                key.field.name
            ))),
            Some(key) => Ok(key),
        };
        self.query.sort = names(keys).map(key).collect::<Result<_, _>>()?;
        Ok(())
    }
    /// Only these processes.
    pub fn set_pids(&mut self, pids: &[u32]) {
        self.of_none = pids.is_empty();
        self.query.select.pids = pids.to_vec();
    }
    /// Who answers.
    pub fn set_engine(&mut self, name: &str) -> Result<(), Failure> {
        self.choice = name.parse().map_err(Failure::query)?;
        Ok(())
    }
    /// Sets the option with this number in `taskdiag.h`.
    pub fn set_option(&mut self, number: c_int, value: u64) -> Result<(), Failure> {
        let of = |sets: [&Set; 2]| match sets.iter().any(|s| s.name == self.query.set.name) {
            true => flag(value),
            false => Err(Failure::argument("rows of this kind do not have the option")),
        };
        match number {
            option::THREADS => self.threads = of([&TASKS, &TOP])?,
            option::PATHS => self.paths = of([&FILES; 2])?,
            option::MAPPED => self.mapped = of([&FILES; 2])?,
            option::TEXT_BYTES => {
                let most = ByteLimits::ONE.text_bytes;
                self.text_bytes = Some(u32::try_from(value).unwrap_or(most).min(most));
            }
            option::BUDGET_NS => self.budget = Some(Duration::from_nanos(value)),
            option::MAX_RSS_BYTES => {
                let text = "the largest resident memory is at least 1 byte";
                let bytes = NonZeroU64::new(value).ok_or_else(|| Failure::argument(text))?;
                self.max_rss = Some(bytes);
            }
            option::MAX_AGE_NS => self.max_age = Duration::from_nanos(value),
            _ => return Err(Failure::argument("there is no option with this number")),
        }
        Ok(())
    }
    fn limits(&self, limits: ByteLimits) -> ByteLimits {
        self.text_bytes.map_or(limits, |bytes| limits.with_texts_of(bytes))
    }
    fn put_limits(&self, request: &mut Request) {
        (request.budget, request.max_rss_bytes) = (self.budget, self.max_rss);
        (request.limits, request.max_age) = (self.limits(request.limits), self.max_age);
    }
    /// The query with its options. A task with rates is found again by its start time.
    fn query(&self, has_rates: bool) -> Query {
        let mut query = self.query.clone();
        query.threads = self.threads;
        if query.set.name == FILES.name {
            query = query.with_files(self.paths, self.mapped);
        }
        if has_rates {
            let start = Members::of(Groups::BASE, &["start_time_ns"]);
            query.groups |= Groups::BASE;
            query.members = query.members.union(start);
        }
        query
    }
    /// The plan of requests. With rates, tasks that the condition leaves out are requested, too.
    /// Otherwise a task would look new when the condition becomes true for it.
    fn plan(&self, query: &Query, has_rates: bool) -> Plan {
        let mut plan = match has_rates {
            true => Plan::new(query.groups(), &query.select, query.threads),
            false => query.plan(),
        };
        plan.requests(|r| {
            r.members = query.members();
            self.put_limits(r);
        });
        plan
    }
    /// A builder of columns. An answer has the name of a file once, and columns have a copy in each
    /// row, so the text of columns has a limit.
    fn builder(&self) -> Builder {
        let limits = self.limits(ByteLimits::LIST);
        let most = limits.all_list_bytes.max(limits.all_text_bytes);
        Builder::new(self.specs.clone())
            .with_text_limit(usize::try_from(most).unwrap_or(usize::MAX))
    }
    /// Makes the requests, and a table of the answer. `kept` is the state of a session.
    pub fn answer(&self, kept: Option<&mut SessionState>) -> Result<Table, Failure> {
        if self.of_none {
            return Ok(Table::new(self.builder()));
        }
        let has_rates = self.query.set.name == TOP.name;
        let query = self.query(has_rates);
        let plan = self.plan(&query, has_rates);
        let (answered, rates) = match kept {
            None => (plan.ask(self.choice)?, None),
            Some(kept) => (plan.ask_cached(self.choice, &kept.cache)?, Some(&mut kept.rates)),
        };
        let Answered { snapshot, nobody, .. } = answered;
        let mut view = query.view(&snapshot);
        if let Some(files) = view.files_mut() {
            // The names of sockets of our own namespace do without its number.
            let own = std::fs::metadata("/proc/self/ns/net").ok();
            files.own_netns = own.and_then(|m| u32::try_from(m.ino()).ok());
        }
        let mut builder = self.builder();
        match rates.filter(|_| has_rates) {
            None => rows(&view, &query, &mut builder),
            Some(rates) => {
                rates.update(&snapshot);
                rows_with(rates, &view, &snapshot, &query, &mut builder);
            }
        }
        let left = view.left();
        Ok(Table::of(builder, &snapshot, nobody, &left))
    }
}

/// The state that a session keeps between two answers.
#[derive(Debug, Default)]
pub struct SessionState {
    cache: SessionCache,
    rates: Rates,
}

/// Appends the rows. If the answer lacks the list of a task, a row says why.
fn rows(view: &View<'_>, query: &Query, builder: &mut Builder) {
    let done = view.rows(true, &mut |_, _, _| {}).each(&mut |item| {
        builder.push(view.cx(), |c| item.value(view.cx(), query.columns[c], c));
        Ok(())
    });
    debug_assert!(done.is_ok(), "taking a row does not fail");
}

/// Makes the rows, with the activity of each task.
fn rows_with(
    rates: &Rates,
    view: &View<'_>,
    snapshot: &taskdiag::Snapshot,
    query: &Query,
    builder: &mut Builder,
) {
    for i in view.tasks().iter().map(|i| *i as usize) {
        let Some(task) = snapshot.stream().get(i) else { continue };
        let row = Row::new(task);
        let row = rates.get(i).map_or(row, |rate| row.with_part(Part::Rate(rate)));
        builder.push(view.cx(), |c| (query.columns[c].get)(view.cx(), &row));
    }
}

/// A session: a query, and the state that makes its repetition cheap.
#[derive(Debug)]
pub struct Session {
    ask: Ask,
    kept: SessionState,
}

impl Session {
    pub fn new(ask: &Ask) -> Session {
        Session { ask: ask.clone(), kept: SessionState::default() }
    }
    pub fn answer(&mut self) -> Result<Table, Failure> {
        self.ask.answer(Some(&mut self.kept))
    }
}
