//! The output of `--json` conforms to the JSON Schema in `docs/`.

use serde_json::{Value, json};

use super::common::{Saved, Task, machine, parts, run};

/// The part of JSON Schema that the file uses. Unknown words are an error, so that none is skipped.
fn check(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{place}: {what}: {value}"));
    let is = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        other => panic!("{other:?} is no type"),
    };
    for (word, rule) in schema.as_object().expect("a schema is an object") {
        match word.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "contentEncoding" => {}
            "$ref" => {
                let name = rule.as_str().and_then(|r| r.strip_prefix("#/$defs/")).expect("of ours");
                check(root, &root["$defs"][name], value, place)?;
            }
            "anyOf" => {
                let all = rule.as_array().expect("a list");
                let tried: Vec<_> = all.iter().map(|s| check(root, s, value, place)).collect();
                if tried.iter().all(Result::is_err) {
                    return wrong(&format!("none of {tried:?}"));
                }
            }
            "enum" if rule.as_array().is_some_and(|all| all.contains(value)) => {}
            "enum" => return wrong("not one of the words"),
            "type" => {
                let fits = rule.as_array().map_or_else(|| is(rule), |all| all.iter().any(is));
                if !fits {
                    return wrong(&format!("not of type {rule}"));
                }
            }
            "pattern" => {
                let regex = regex::Regex::new(rule.as_str().expect("text")).expect("valid");
                if value.as_str().is_some_and(|s| !regex.is_match(s)) {
                    return wrong("not in this form");
                }
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{place}[{i}]"))?;
                }
            }
            "required" => {
                let mut keys = rule.as_array().expect("a list").iter().filter_map(Value::as_str);
                if let Some(key) = keys.find(|k| value.get(k).is_none()) {
                    return wrong(&format!("no {key}"));
                }
            }
            "minProperties" => {
                let n = value.as_object().map_or(0, |o| o.len() as u64);
                if Some(n) < rule.as_u64() {
                    return wrong("too few members");
                }
            }
            "properties" => {
                for (key, rule) in rule.as_object().expect("rules by key") {
                    if let Some(member) = value.get(key) {
                        check(root, rule, member, &format!("{place}.{key}"))?;
                    }
                }
            }
            "allOf" => {
                for rule in rule.as_array().expect("a list") {
                    check(root, rule, value, place)?;
                }
            }
            "additionalProperties" | "unevaluatedProperties" => {
                for (key, member) in value.as_object().into_iter().flatten() {
                    let place = format!("{place}.{key}");
                    match knows(root, schema, key) {
                        true => {}
                        false if rule == &json!(false) => {
                            return Err(format!("{place}: unknown key"));
                        }
                        false => check(root, rule, member, &place)?,
                    }
                }
            }
            other => panic!("the schema has the word {other}, which this test does not know"),
        }
    }
    Ok(())
}

/// Is this key in a schema, or in one that it includes?
fn knows(root: &Value, schema: &Value, key: &str) -> bool {
    let taken_in = schema["allOf"].as_array().into_iter().flatten();
    let taken_in = taken_in.filter_map(|s| s["$ref"].as_str()?.strip_prefix("#/$defs/"));
    schema["properties"].get(key).is_some()
        || taken_in.into_iter().any(|name| knows(root, &root["$defs"][name], key))
}

fn schema() -> Value {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/taskdiag-json-1.schema.json");
    let kept = std::fs::read_to_string(path).expect("the schema is there");
    let (code, made, _) = parts(&run(&["generate", "schema"]));
    assert_eq!(code, 0);
    assert!(
        made == kept,
        "the schema differs from the field tables: run `make docs` and commit it"
    );
    serde_json::from_str(&kept).expect("valid JSON")
}

fn as_(root: &Value, name: &str, value: &Value) -> Result<(), String> {
    check(root, &root["$defs"][name], value, name)
}

/// Names of all columns of a set, as the program lists them.
fn columns(set: &str) -> String {
    let all: Value =
        serde_json::from_slice(&run(&["fields", "--json"]).stdout).expect("valid JSON");
    let all = all.as_array().expect("a list");
    let of = all.iter().filter(|f| f["of"] == set);
    let names: Vec<&str> = of.filter_map(|f| f["name"].as_str()).collect();
    assert!(!names.is_empty(), "{set}");
    names.join(",")
}

#[test]
fn json_output_is_valid_by_the_schema() {
    let root = schema();
    let odd = Task {
        comm: b"a\xff".to_vec(),
        args: Some(b"x\0\xfe\0".to_vec()),
        ..Task::new(99, 1, "x")
    };
    let mut tasks = machine();
    tasks.push(odd);
    let saved = Saved::tasks(&tasks);
    let all = columns("tasks");
    let of_cgroups = columns("cgroups");
    let own = std::process::id().to_string();
    let mut rows = 0;
    for (name, args) in [
        ("ps", vec!["ps", "--json"]),
        ("ps", vec!["ps", "--json", "-e", "-o", &all]),
        ("ps", vec!["ps", "--json", "-ef"]),
        ("ps", vec!["ps", "--json", "--threads"]),
        ("files", vec!["files", "--json", "--paths", "--mem", "-p", &own]),
        ("maps", vec!["maps", "--json", "-X", &own]),
        ("maps", vec!["maps", "--json", "--by", "path", &own]),
        ("memory", vec!["memory", "--json", "-p", &own]),
        ("tree", vec!["tree", "--json"]),
        ("flat", vec!["tree", "--flat"]),
        ("flat", vec!["tree", "--json", "--flat", "-T", "-o", &all]),
        ("cgroups", vec!["cgroups", "--json"]),
        ("cgroups", vec!["cgroups", "--json", "-d", "10ms", "-o", &of_cgroups]),
    ] {
        let (code, out, err) = parts(&run(&args));
        assert!(matches!(code, 0 | 3), "{args:?}: {err}");
        let document: Value = serde_json::from_str(&out).expect("valid JSON");
        as_(&root, name, &document).unwrap_or_else(|e| panic!("{args:?}: {e}"));
        rows += document.as_array().map_or(0, Vec::len);
    }
    let (_, out, _) = saved.ps(&["--json", "-o", &all]);
    let document: Value = serde_json::from_str(&out).expect("valid JSON");
    as_(&root, "ps", &document).unwrap_or_else(|e| panic!("{e}"));
    assert!(document[6].get("comm_bytes").is_some() && rows > 20, "{rows}");
}

/// One saved answer is enough for each command, in each of its usual views.
#[test]
fn one_dump_serves_every_command() {
    let own = std::process::id().to_string();
    // The test requests its own process, because data about other processes may be denied.
    let dump = run(&["dump", "--pid", &own]);
    assert_eq!(parts(&dump).0, 0, "{}", parts(&dump).2);
    let saved = Saved::bytes(&dump.stdout);
    let path = saved.path();
    let path = path.to_str().expect("a path of ours");
    let all = Saved::bytes(&run(&["dump"]).stdout);
    let path_of_all = all.path();
    let path_of_all = path_of_all.to_str().expect("a path of ours");
    for line in [
        "ps",
        "ps -e",
        "ps -ef",
        "ps -elF",
        "ps -ej",
        "ps -efc",
        "ps axu",
        "ps axl",
        "ps axj",
        "ps axs",
        "ps axv",
        "ps axf",
        "ps --json",
        "ps -o pid,exe,cgroup,rbytes,netns",
        "files",
        "files --paths --mem",
        "files --count",
        "files --json",
        "files -F",
        "files -t",
        "maps",
        "maps --by pid",
        "maps --json",
        "memory",
        "memory --by pid",
        "memory --csv",
        "tree -p",
        "tree -alp",
        "tree --json",
        "tree --flat",
    ] {
        let args: Vec<&str> = line.split(' ').chain(["--from", path]).collect();
        let (code, out, err) = parts(&run(&args));
        assert_eq!((code, err.as_str()), (0, ""), "{line}: {out}");
        // In ps, a question mark also stands for a missing terminal.
        let unknown = |word: &str| word == "?" && !line.starts_with("ps");
        assert!(out.contains(&own) && !out.contains(":null"), "{line}: {out}");
        assert!(!out.split([' ', ',', '\n']).any(unknown), "{line}: {out}");
        // The answer about all processes has the same groups. Other processes may have sockets
        // whose protocol no engine knows.
        let args: Vec<&str> = line.split(' ').chain(["--from", path_of_all]).collect();
        let (code, out, err) = parts(&run(&args));
        assert!(matches!(code, 0 | 3) && out.contains(&own), "{line}: {out} {err}");
        assert!(!err.contains("not hold"), "{line}: {err}");
    }
    // Values that need a walk over the pages of each mapping are saved on request, and the message
    // says how.
    for (line, group) in [("maps -x", "vma_stat"), ("ps -o environ", "environ")] {
        let args: Vec<&str> = line.split(' ').chain(["--from", path]).collect();
        let (code, _, err) = parts(&run(&args));
        let said = err.contains(&format!("'taskdiag dump --groups default,{group}'"));
        assert!(code == 3 && said, "{line}: {err}");
        let list = format!("default,{group}");
        let dump = run(&["dump", "--pid", &own, "--groups", &list]);
        let more = Saved::bytes(&dump.stdout);
        let mut args: Vec<&str> = line.split(' ').collect();
        let path = more.path();
        args.extend(["--from", path.to_str().expect("a path of ours")]);
        assert_eq!(parts(&run(&args)).0, 0, "{line}");
    }
}

/// `--groups` takes the name of a command and then reads only the groups that the command shows.
#[test]
fn a_dump_for_one_command_is_enough_for_it() {
    let own = std::process::id().to_string();
    for (groups, command, lacks) in [
        ("memory", "memory", "does not hold open files"),
        ("tree", "tree -p", "does not hold open files"),
        ("maps", "maps", "does not hold open files"),
        ("ps", "ps -el", "does not hold open files"),
        ("ps,files", "files --mem", ""),
    ] {
        let dump = run(&["dump", "--pid", &own, "--groups", groups]);
        let saved = Saved::bytes(&dump.stdout);
        let path = saved.path();
        let path = path.to_str().expect("a path of ours");
        let args: Vec<&str> = command.split(' ').chain(["--from", path]).collect();
        let (code, out, err) = parts(&run(&args));
        assert!(code == 0 && err.is_empty() && out.contains(&own), "{groups}: {out} {err}");
        let (_, _, err) = parts(&run(&["files", "--from", path]));
        assert!(err.contains(lacks) && err.is_empty() == lacks.is_empty(), "{groups}: {err}");
    }
    let (code, _, err) = parts(&run(&["dump", "--pid", &own, "--groups", "all"]));
    // Some kernels cannot report all values.
    assert!(code == 0 || !err.contains("denied"), "{err}");
}

#[test]
fn wrong_documents_are_invalid_by_the_schema() {
    let root = schema();
    for wrong in [
        json!({"pid": 1}),
        json!([{"pid": "1"}]),
        json!([{"pid": 1.5}]),
        json!([{"nosuch": 1}]),
        json!([{"rss": null, "missing": {"rss": "absent"}}]),
        json!([{"missing": {}}]),
        json!([{"cap_eff": "12"}]),
        json!([{"args": ["a", 1]}]),
        json!([{"comm": {"bytes": "/w=="}}]),
        json!([{"rlimit_cpu": "much"}]),
        json!([{"read_bytes": "12"}]),
        json!([{"pid_bytes": "MQ=="}]),
    ] {
        assert!(as_(&root, "ps", &wrong).is_err(), "{wrong}");
    }
    let right = json!([{"pid": 1, "rlimit_cpu": "unlimited", "comm": "a", "comm_bytes": "/w==", "read_bytes": 5}]);
    as_(&root, "ps", &right).unwrap();
    // `blocked` is a mask of signals, and a time in the rows of top.
    for (name, blocked) in [("ps", json!("0000000000000000")), ("top", json!(1.5))] {
        as_(&root, name, &json!([{"pid": 1, "blocked": blocked}])).unwrap();
    }
    let cut = json!([{"pid": 1, "children": [], "deeper": 3}]);
    as_(&root, "tree", &cut).unwrap();
    assert!(as_(&root, "flat", &cut).is_err());
    as_(&root, "flat", &json!([{"pid": 1, "ppid": 0, "depth": 0}])).unwrap();
    assert!(as_(&root, "tree", &json!([{"pid": 1, "children": [], "deeper": "3"}])).is_err());
    as_(&root, "tree", &json!([{"pid": 1, "children": [{"pid": 2, "children": []}]}])).unwrap();
}
