//! Columns: translates `-o` and the ready-made views into fields of the table.

use std::borrow::Cow;

use taskdiag::field::{
    Align, CGROUPS, CONTAINER_NAME_OR_ID, Field, POD_NAME_OR_UID, Set, TASKS, TextForm,
};

use crate::exit::Exit;
use crate::nearest;

/// A column of the output.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name as it was typed.
    pub name: String,
    /// The key in JSON and CSV: the field's own name, or the header that was asked for.
    pub key: String,
    /// The header of the text column. It may be empty.
    pub header: String,
    /// Least width of the text column.
    pub width: usize,
    /// Was the width given by the user?
    pub fixed: bool,
    /// The field.
    pub field: &'static Field,
    /// The form of its text.
    pub form: TextForm,
    /// Its alignment.
    pub align: Align,
    /// Does the next column follow without a blank?
    pub joined: bool,
}

/// The field for text between columns in a format such as `%p, %U`.
static LITERAL: Field = Field::drawn(
    "text between columns",
    "",
    0,
    "the command line",
    "Text that stands in each row as it is",
);

impl Column {
    /// A column with the same text in each row and in the header.
    pub fn literal(text: &str) -> Column {
        Column {
            name: text.to_owned(),
            key: text.to_owned(),
            header: text.to_owned(),
            width: text.chars().count(),
            fixed: true,
            field: &LITERAL,
            form: TextForm::Plain,
            align: Align::Left,
            joined: false,
        }
    }
    /// Is it only text between columns?
    pub fn is_literal(&self) -> bool {
        std::ptr::eq(self.field, &LITERAL)
    }
    /// Does the text begin at the left edge?
    pub fn is_left(&self) -> bool {
        self.align == Align::Left
    }
}

/// Columns of procps that do not exist here, and what to use instead.
const LACKING: &[(&[&str], &str)] = &[
    (&["nwchan"], "use wchan"),
    (&["cgname"], "use cgroup or cgroup_path"),
    (&["resident", "share"], "use rss and rss_shmem"),
    (&["utime"], "use usertime"),
    (&["docker"], "use container and runtime"),
    (&["seat"], "seats are not read"),
    (&["lim"], "use rlimit_rss"),
    (&["tty4"], "use tt, tty or tname"),
    (&["sgi_rss"], "use rss"),
    (&["zone"], "Linux has no zones"),
];

/// Forms of output, which are no columns.
const FORMS: &[&str] = &["json", "jsonl", "csv", "arrow", "parquet"];

/// The error for a name that is not a column of these rows. The name may be a column of other rows,
/// a column of procps, or a word for which there is another column. `to_do` says what the column
/// was for, such as " to sort by".
pub fn unknown(set: &Set, name: &str, to_do: &str) -> Exit {
    let lower = name.to_lowercase();
    let lacking = LACKING.iter().find(|(names, _)| names.contains(&name));
    Exit::Usage(match (set.meant(&lower), lacking, set.elsewhere(&lower)) {
        (Some(meant), ..) => format!("there is no column '{name}' here: {meant}"),
        (_, Some((_, instead)), _) if !std::ptr::eq(set, &CGROUPS) => {
            format!("ps's column '{name}' is not here: {instead}")
        }
        _ if FORMS.contains(&lower.as_str()) => format!(
            "there is no column '{name}' here: the form of the output is chosen with --json, --jsonl or --csv"
        ),
        (.., Some(other)) => {
            format!(
                "'{name}' is a column of 'taskdiag {}', not of {} here",
                other.command(),
                set.name
            )
        }
        _ => {
            let hint = nearest::hint(&lower, set.all_names().map(|n| n.name));
            format!("there is no column '{name}'{to_do}{hint}; 'taskdiag fields' lists them")
        }
    })
}

/// The column for one name.
fn column(set: &Set, name: &str) -> Result<Column, Exit> {
    let Some(named) = set.find(name) else {
        return Err(unknown(set, name, ""));
    };
    Ok(Column {
        name: name.to_owned(),
        key: key(name, named.field),
        header: named.header.to_owned(),
        // Columns of procps have the width that procps gives them, even if the header is wider.
        width: match std::ptr::eq(set, &TASKS) {
            true => named.field.width,
            false => named.field.width.max(named.header.len()),
        },
        fixed: false,
        field: named.field,
        form: named.field.text,
        align: named.field.align,
        joined: false,
    })
}

/// The name that a column has, whatever the case that was typed. A name that is a column as it was
/// typed stays so.
pub fn in_any_case<'n>(set: &Set, name: &'n str) -> Cow<'n, str> {
    let lower = name.to_lowercase();
    match set.find(name).is_none() && set.find(&lower).is_some() {
        true => Cow::Owned(lower),
        false => Cow::Borrowed(name),
    }
}

/// A list of columns with their usual names, in whatever case they were typed, and without blanks
/// next to its commas. A format of AIX, such as `%p, %U`, is left as it is.
pub fn tidied(set: &Set, list: &str) -> String {
    if list.contains('%') {
        return list.to_owned();
    }
    let item = |item: &str| {
        let item = item.trim_matches([' ', '\t']);
        let end = item.find([':', '=']).unwrap_or(item.len());
        let (name, rest) = item.split_at(end);
        let sign = name.len() - name.trim_start_matches(['-', '+']).len();
        let words = name[sign..].split([' ', '\t']).map(|name| in_any_case(set, name));
        format!("{}{}{rest}", &name[..sign], words.collect::<Vec<_>>().join(" "))
    };
    list.split(',').map(item).collect::<Vec<_>>().join(",")
}

/// The columns of `--by` that have an id where there is no name: the column with the name, that
/// with the id, and both in one. `--by container_id` and `--by pod_uid` are the ids alone.
static NAMES_OR_IDS: [(&str, &str, &Field); 2] =
    [("container_name", "container", &CONTAINER_NAME_OR_ID), ("pod_name", "pod", &POD_NAME_OR_UID)];

/// The column of `--by`.
pub fn by(set: &Set, name: &str) -> Result<Option<Column>, Exit> {
    let name = in_any_case(set, if name == "command" { "comm" } else { name });
    let both = NAMES_OR_IDS.iter().find(|(n, id, _)| name == *n || name == *id);
    let mut column = view(set, both.map_or(&name, |(name, ..)| name))?.pop();
    if let (Some(column), Some((.., field))) = (&mut column, both) {
        column.field = field;
    }
    Ok(column)
}

/// A condition that is true for the rows with this value of a column of [`by`]. `None`: with none.
#[cfg(feature = "top")]
pub fn condition(by: &Column, value: Option<&str>) -> String {
    let both = NAMES_OR_IDS.iter().find(|(.., field)| std::ptr::eq(by.field, *field));
    let names = both.map_or([Some(&*by.name), None], |(name, id, _)| [Some(name), Some(id)]);
    let all =
        |one: &dyn Fn(&str) -> String| names.into_iter().flatten().map(one).collect::<Vec<_>>();
    match value {
        Some(value) => all(&|n| format!("{n} == {value}")).join(" or "),
        None => all(&|n| format!("{n} missing")).join(" and "),
    }
}

/// The columns of one `-o` argument about tasks.
pub fn parse(spec: &str) -> Result<Vec<Column>, Exit> {
    parse_of(&TASKS, spec)
}

/// The columns of one `-o` argument: names with commas or blanks between them, each with an
/// optional `:width` and `=header`.
pub fn parse_of(set: &Set, spec: &str) -> Result<Vec<Column>, Exit> {
    exactly(set, &tidied(set, spec))
}

/// The columns of a list whose names are taken as they are.
fn exactly(set: &Set, spec: &str) -> Result<Vec<Column>, Exit> {
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
            if !h.is_empty() {
                c.key = h.to_owned();
            }
            c.width = c.width.max(h.chars().count());
        }
        if let Some(w) = width {
            (c.width, c.fixed) = (w, true);
        }
        out.push(c);
    }
    if out.is_empty() {
        return Err(Exit::Usage(
            "a list of columns needs at least one column, as in pid,comm".to_owned(),
        ));
    }
    Ok(out)
}

/// The key of a field, which does not depend on the alias that was typed. A field of the task has
/// `task.` before it if the rows of a list have another field with that name.
fn key(name: &str, field: &Field) -> String {
    match name.starts_with("task.") {
        true => format!("task.{}", field.name),
        false => field.name.to_owned(),
    }
}

/// The columns of one of taskdiag's own views. Their headers are for people and are not used as
/// keys.
pub fn view(set: &Set, spec: &str) -> Result<Vec<Column>, Exit> {
    let mut columns = exactly(set, spec)?;
    for c in &mut columns {
        c.key = key(&c.name, c.field);
    }
    Ok(columns)
}

/// Make the columns of ids wide enough for the largest of them.
pub fn fit_pids(columns: &mut [Column], largest: u32) {
    let digits = largest.checked_ilog10().map_or(1, |n| n as usize + 1);
    for c in columns.iter_mut().filter(|c| c.field.text == TextForm::Pid && !c.fixed) {
        c.width = c.width.max(digits);
    }
}

/// The default columns of `taskdiag ps`. For programs, the ids come first, and each time has only
/// one form.
pub fn default_view(threads: bool, programs: bool) -> Vec<Column> {
    let tid = if threads { "tid," } else { "" };
    let view = match programs {
        true => format!("pid,start_ticks,{tid}user,ppid,s,nlwp,time,rss,start,comm,args"),
        false => format!("user,pid,{tid}ppid,s,nlwp,time,rss,start_time,args"),
    };
    parse(&view).expect("the view names columns of the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cs: &[Column]) -> String {
        cs.iter().map(|c| c.header.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[cfg(feature = "top")]
    #[test]
    fn names_of_containers_are_conditions_with_their_ids() {
        for (name, value, want) in [
            ("container", Some("'a b'"), "container_name == 'a b' or container == 'a b'"),
            ("Container_Name", None, "container_name missing and container missing"),
            ("pod", Some("x"), "pod_name == x or pod == x"),
            ("container_id", Some("x"), "container_id == x"),
            ("command", Some("x"), "comm == x"),
        ] {
            let by = by(&TASKS, name).unwrap().expect("a column");
            assert_eq!(condition(&by, value), want);
        }
    }

    #[test]
    fn lists_headers_and_widths() {
        let c = parse("pid,comm=NAME user:20 ,args=").unwrap();
        assert_eq!(headers(&c), "PID NAME USER ");
        assert_eq!(c[2].width, 20);
        for bad in ["", " , ", "pid:x", "pid:0", "nosuch", "pid,"] {
            assert_eq!(parse(bad).is_ok(), bad == "pid,", "{bad:?}");
        }
        for (bad, word) in [("comand", "'command'"), ("lim:14", "rlimit_rss")] {
            let Err(Exit::Usage(text)) = parse(bad) else { panic!("{bad}") };
            assert!(text.contains(word), "{text}");
        }
        let c = parse("PID, Comm=NAME ,S,User:20").unwrap();
        assert_eq!(headers(&c), "PID NAME S USER");
        assert_eq!((c[2].field.name, c[3].width), ("s", 20));
        for (word, meant) in [("name", "comm"), ("threads", "nlwp"), ("json", "--json")] {
            let Err(Exit::Usage(text)) = parse(word) else { panic!("{word}") };
            assert!(text.contains(meant), "{text}");
        }
        for name in LACKING.iter().flat_map(|l| l.0) {
            assert!(TASKS.find(name).is_none(), "{name}");
        }
    }
}
