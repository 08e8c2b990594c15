//! Tests that the metrics in the alert rules, the dashboard and the document exist.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use crate::exporter::{Exporter, program};

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All names of metrics that a text has.
fn names(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let prefixes = [
        "namedprocess_",
        "taskdiag_",
        "process_cpu",
        "process_resident",
        "process_virtual",
        "process_start",
    ];
    let words = text.split(|c| !word(c)).filter(|w| prefixes.iter().any(|p| w.starts_with(p)));
    words.filter(|w| !w.ends_with('_')).map(str::to_owned).collect()
}

/// The families in the output, by their TYPE lines.
fn families() -> BTreeSet<String> {
    let exporter = Exporter::start(&[
        "--families",
        "groups,threads,wchan,units,slices,containers,states,top,pss,waits,deadlocks,network,gpu",
    ]);
    exporter.scrape();
    let (_, _, metrics) = exporter.get("/metrics", "");
    let of_type = metrics.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next());
    of_type.map(str::to_owned).collect()
}

#[test]
fn rules_are_accepted() {
    let Some(promtool) = program("rules_are_accepted", "promtool") else { return };
    let out = Command::new(promtool)
        .args(["check", "rules"])
        .arg(file("contrib/prometheus/taskdiag.rules.yml"))
        .output()
        .expect("it runs");
    let said =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("rules found"), "{said}");
}

#[test]
fn rules_and_dashboard_name_metrics_that_are_there() {
    let there = families();
    for path in ["contrib/prometheus/taskdiag.rules.yml", "contrib/grafana/taskdiag.json"] {
        let named = names(&text(path));
        assert!(named.len() > 4, "{path} names only {named:?}");
        let strange: Vec<_> = named.difference(&there).collect();
        assert!(strange.is_empty(), "{path} names {strange:?}, which are not there");
    }
}

#[test]
fn the_document_has_all_metrics() {
    let page = text("docs/operate/metrics.md");
    let there = families();
    let missing: Vec<_> = there.iter().filter(|n| !page.contains(&format!("`{n}`"))).collect();
    assert!(missing.is_empty(), "docs/operate/metrics.md lacks {missing:?}");
    let strange: Vec<_> = names(&page)
        .into_iter()
        .filter(|n| !there.contains(n) && page.contains(&format!("`{n}`")))
        .collect();
    assert!(strange.is_empty(), "docs/operate/metrics.md has {strange:?}, which are not there");
}

/// Each panel of the dashboard has expressions, and each expression is one that promtool's parser
/// takes.
#[test]
fn the_dashboard_is_whole() {
    let board: serde_json::Value =
        serde_json::from_str(&text("contrib/grafana/taskdiag.json")).expect("JSON");
    assert!(
        board["title"].is_string()
            && board["schemaVersion"].is_number()
            && board["uid"].is_string()
    );
    let panels = board["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut n = 0;
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_number(), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().expect("an expression");
            let expr = expr
                .replace("$__rate_interval", "5m")
                .replace("$groups", ".*")
                .replace("$instance", ".*");
            rules +=
                &format!("  - record: panel:{n}\n    expr: {}\n", serde_json::Value::from(expr));
            n += 1;
        }
    }
    assert!(panels.len() > 6 && n > 6, "{n} expressions");
    let Some(promtool) = program("the_dashboard_is_whole", "promtool") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("rules.yml");
    std::fs::write(&path, rules).expect("written");
    let out = Command::new(promtool).args(["check", "rules"]).arg(&path).output().expect("it runs");
    let said =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
}
