//! The JSON Schema of the output of `--json`, made from the field tables:
//! `docs/reference/taskdiag-json-1.schema.json`. `docs/reference/json.md` says what it means, and
//! what may change without a new number.

use serde_json::{Map, Value, json};
use taskdiag::Reason;
use taskdiag::field::{CGROUPS, DataType, FILES, Field, MAPS, MEMORY, Set, TASKS, TOP};

/// The number in the schema's name. It has to change if something is removed or changes its
/// meaning.
const VERSION: u32 = 1;

/// How wide the lines of the schema are.
const WIDTH: usize = 160;

/// Which of `$defs` describes the values of a field.
fn kind(field: &Field) -> &'static str {
    match field.data_type() {
        DataType::U64 | DataType::Bytes if field.is_limit() => "limit",
        DataType::F64 | DataType::DurationNs | DataType::TimestampNs => "number",
        DataType::Bool => "boolean",
        DataType::Mask => "mask",
        DataType::Text => "text",
        DataType::TextList => "texts",
        DataType::U32List => "integers",
        _ => "integer",
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Adds keys for the values of these fields. Text that is not valid UTF-8 has its bytes in a key of
/// its own.
fn add<'f>(out: &mut Map<String, Value>, fields: impl Iterator<Item = &'f Field>, prefix: &str) {
    for field in fields {
        if matches!(field.data_type(), DataType::Text | DataType::TextList) {
            out.insert(format!("{prefix}{}_bytes", field.name), reference("bytes"));
        }
        out.insert(format!("{prefix}{}", field.name), reference(kind(field)));
    }
}

/// Does this column of tasks mean the same in the rows of every set that has those columns?
fn is_shared(column: &Field) -> bool {
    let mut others = [&FILES, &MAPS, &MEMORY, &TOP].into_iter().flat_map(|set| set.own());
    others.all(|f| f.name != column.name || kind(f) == kind(column))
}

/// A row of a set with these further keys. The columns of tasks are in the schema once, for all
/// sets that have them.
fn row(set: &Set, more: Map<String, Value>) -> Value {
    let (is_of_tasks, has_both) = (std::ptr::eq(set, &TASKS), set.has_task_columns());
    let mut keys = Map::new();
    if is_of_tasks || has_both {
        add(&mut keys, TASKS.own().filter(|f| !is_shared(f)), "");
    }
    add(&mut keys, set.own().filter(|f| !is_of_tasks || !is_shared(f)), "");
    keys.insert(String::from("missing"), reference("missing"));
    keys.extend(more);
    let mut out = json!({ "type": "object", "properties": keys, "unevaluatedProperties": false });
    if is_of_tasks || has_both {
        let prefixed = has_both.then(|| reference("prefixed_task_columns"));
        out["allOf"] = [reference("task_columns")].into_iter().chain(prefixed).collect();
    }
    out
}

/// Keys that a row may have, for `allOf`.
fn some<'f>(fields: impl Iterator<Item = &'f Field>, prefix: &str) -> Value {
    let mut keys = Map::new();
    add(&mut keys, fields, prefix);
    json!({ "properties": keys })
}

/// The schema.
pub fn schema() -> String {
    let mut reasons: Vec<&str> = Reason::ALL.iter().map(|r| r.name()).collect();
    reasons.retain(|r| *r != Reason::Absent.name());
    reasons.push("not_asked");
    let threads = json!({ "type": "array", "items": {
        "type": "object",
        "properties": { "tid": { "type": "integer" }, "comm": { "type": "string" } },
        "required": ["tid", "comm"],
        "additionalProperties": false,
    } });
    let tree = |more: Value| {
        let mut keys = Map::from_iter([(String::from("threads"), threads.clone())]);
        keys.extend(more.as_object().cloned().unwrap_or_default());
        row(&TASKS, keys)
    };
    let list = |of: &str| json!({ "type": "array", "items": reference(of) });
    let all = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("urn:taskdiag:json:{VERSION}"),
        "title": format!("taskdiag --json, version {VERSION}"),
        "description": "A document is one of ps, files, maps, memory, tree, flat, top or cgroups below; a line of --jsonl is one of its rows.",
        "anyOf": [reference("ps"), reference("files"), reference("maps"), reference("memory"), reference("tree"),
            reference("flat"), reference("top"), reference("cgroups")],
        "$defs": {
            "ps": list("task"),
            "files": list("file"),
            "maps": list("map"),
            "memory": list("process"),
            "tree": list("branch"),
            "flat": list("node"),
            "top": list("now"),
            "cgroups": list("cgroup"),
            "task": row(&TASKS, Map::new()),
            "file": row(&FILES, Map::new()),
            "map": row(&MAPS, Map::new()),
            "process": row(&MEMORY, Map::new()),
            "branch": tree(json!({ "children": { "type": "array", "items": reference("branch") }, "deeper": { "type": "integer" } })),
            "node": tree(json!({ "depth": { "type": "integer" } })),
            "task_columns": some(TASKS.own().filter(|f| is_shared(f)), ""),
            "prefixed_task_columns": some(TASKS.own(), "task."),
            "now": row(&TOP, Map::new()),
            "cgroup": row(&CGROUPS, Map::new()),
            "integer": { "type": ["integer", "null"] },
            "limit": { "anyOf": [{ "type": ["integer", "null"] }, { "enum": ["unlimited"] }] },
            "number": { "type": ["number", "null"] },
            "boolean": { "type": ["boolean", "null"] },
            "mask": { "anyOf": [{ "type": "null" }, { "type": "string", "pattern": "^[0-9a-f]{16}$" }] },
            "text": { "type": ["string", "null"] },
            "texts": { "type": ["array", "null"], "items": { "type": "string" } },
            "integers": { "type": ["array", "null"], "items": { "type": "integer" } },
            "bytes": { "anyOf": [
                { "type": "string", "contentEncoding": "base64" },
                { "type": "array", "items": { "type": "string", "contentEncoding": "base64" } },
            ] },
            "missing": { "type": "object", "minProperties": 1, "additionalProperties": { "enum": reasons } },
        },
    });
    filled(&all, 0) + "\n"
}

/// A value as JSON in lines of at most `WIDTH` columns, each with as many members as it has room
/// for. With a line for each member, the schema would be four times as long.
fn filled(value: &Value, indent: usize) -> String {
    let (open, close, members): (_, _, Vec<String>) = match value {
        Value::Object(all) => {
            let member = |(k, v): (&String, &Value)| {
                format!("{}: {}", Value::from(k.as_str()), filled(v, indent + 2))
            };
            ("{", "}", all.iter().map(member).collect())
        }
        Value::Array(all) => ("[", "]", all.iter().map(|v| filled(v, indent + 2)).collect()),
        other => return other.to_string(),
    };
    let one = format!("{open}{}{close}", members.join(", "));
    if !one.contains('\n') && indent + one.len() <= WIDTH {
        return one;
    }
    let margin = format!("\n{:1$}", "", indent + 2);
    let (mut out, mut column, mut fresh) = (String::from(open), WIDTH, true);
    for member in members {
        let joins = !fresh && !member.contains('\n') && column + member.len() + 2 < WIDTH;
        out += if out.len() > 1 { "," } else { "" };
        out += if joins { " " } else { &margin };
        column = if joins { column + 1 } else { indent + 2 } + member.len() + 1;
        fresh = member.contains('\n');
        out += &member;
    }
    format!("{out}\n{:1$}{close}", "", indent)
}
