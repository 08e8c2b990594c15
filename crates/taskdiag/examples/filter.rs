//! Rows that an expression selects, the largest first. Without an expression: processes above 1
//! MiB, such as this example. `cargo run --example filter -- 'rss > 10M and user == "root"'`

use std::io::Write;

use taskdiag::Choice;
use taskdiag::field::{TASKS, TextForm, text};
use taskdiag::view::{Filter, Key, Query};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let expression = std::env::args().nth(1).unwrap_or_else(|| String::from("rss > 1M"));
    let columns = ["pid", "user", "rss", "comm"].map(|name| TASKS.find(name).expect("a column"));
    let mut query = Query::new(&TASKS, columns.map(|c| c.field));
    // A wrong expression is refused before anything is read.
    query.filter = Some(Filter::parse(&TASKS, &expression)?);
    query.sort.extend(Key::parse(&TASKS, "-rss"));
    // The plan may first request the values for the conditions, and the rest only for rows that
    // pass.
    let snapshot = query.plan().ask(Choice::Auto)?.snapshot;
    let view = query.view(&snapshot);
    view.rows(false, &mut |_, _, _| {}).each(&mut |item| {
        let mut line = Vec::new();
        for (c, field) in query.columns.iter().enumerate() {
            let value = item.value(view.cx(), field, c);
            text(&mut line, view.cx(), TextForm::Plain, item.row(), &value);
            line.push(b'\t');
        }
        line.push(b'\n');
        std::io::stdout().write_all(&line)
    })?;
    for left in view.left() {
        println!("{left:?}");
    }
    Ok(())
}
