//! Files that are made from the registry: `bpf/members.h`, the numbers of members for the BPF
//! programs, and which groups each program has; `go/layout.go`, the groups and structs for Go. With
//! `TASKDIAG_WRITE=1` it writes them. Otherwise it compares, so that a change of a record without
//! an update of these files fails.

use std::fmt::Write as _;
use std::path::Path;

use taskdiag_wire::registry::{STRUCTS, Struct, group_of};
use taskdiag_wire::{Group, Groups};

fn members() -> String {
    let mut h = String::from(
        "/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */\n\
         /*\n\
         \x20* The bit of `valid` for each member of each record and list, how many there are,\n\
         \x20* and the groups that only the larger programs have. Made from\n\
         \x20* crates/taskdiag-wire/src/registry.rs by\n\
         \x20* TASKDIAG_WRITE=1 cargo test -p taskdiag-wire --test generated\n\
         \x20*/\n\
         #ifndef TASKDIAG_MEMBERS_H\n\
         #define TASKDIAG_MEMBERS_H\n",
    );
    for s in of_tasks().filter(|s| !s.table.valid.is_empty()) {
        let prefix = s.table.name.trim_start_matches("task_diag_").to_uppercase();
        let mut line = String::new();
        writeln!(h, "\nenum {{").unwrap();
        let names = s.table.valid.iter().map(|m| m.name.to_uppercase());
        for name in names.chain(["_COUNT".into()]) {
            let word = format!("{prefix}_{name},");
            if line.len() + word.len() > 90 {
                writeln!(h, "\t{line}").unwrap();
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(&word);
        }
        writeln!(h, "\t{line}\n}};").unwrap();
    }
    h.push_str(
        "\n/*\n\
         \x20* The rare groups name kernel types that take long to find; the others are much code.\n\
         \x20* See lite.bpf.c and more.bpf.c.\n\
         \x20*/\n",
    );
    for (name, groups) in [("RARE_GROUPS", Groups::BPF_RARE), ("MORE_GROUPS", Groups::BPF_MORE)] {
        let bits = groups.iter().map(|g| format!("1ull << TASK_DIAG_{}", g.name().to_uppercase()));
        let bits: Vec<String> = bits.collect();
        let lines: Vec<String> = bits.chunks(3).map(|some| some.join(" | ")).collect();
        writeln!(h, "#define {name} (\\\n\t{})", lines.join(" | \\\n\t")).unwrap();
    }
    h.push_str("\n#endif\n");
    h
}

/// `rss_bytes` as Go writes it: `RssBytes`.
fn exported(name: &str) -> String {
    let word = |w: &str| w[..1].to_uppercase() + &w[1..];
    name.split('_').filter(|w| !w.is_empty()).map(word).collect()
}

fn go_layout() -> String {
    let mut go = String::from(
        "// SPDX-License-Identifier: MIT OR Apache-2.0\n\
         //\n\
         // Code generated from the registry of taskdiag-wire by TASKDIAG_WRITE=1 cargo test\n\
         // -p taskdiag-wire --test generated. DO NOT EDIT.\n\n\
         package taskdiag\n\n\
         // The groups. Each is a set of values that come from one source at one cost.\n\
         const (\n",
    );
    let longest = Group::ALL.iter().map(|g| exported(g.name()).len()).max().unwrap_or(0);
    for g in Group::ALL {
        writeln!(go, "\tGroup{:longest$} Group = {}", exported(g.name()), *g as u32).unwrap();
    }
    go.push_str(")\n\nvar groupNames = [...]string{\n");
    for g in Group::ALL {
        writeln!(go, "\t\"{}\",", g.name()).unwrap();
    }
    go.push_str("}\n\n// What the service shows of processes, and of threads.\nconst (\n");
    for (name, all) in [
        ("publicOfProcesses", Groups::PUBLIC_OF_PROCESSES),
        ("publicOfThreads  ", Groups::PUBLIC_OF_THREADS),
    ] {
        writeln!(go, "\t{name} Groups = {:#x}", all.bits()).unwrap();
    }
    go.push_str(")\n");
    for s in of_tasks() {
        let c = s.table;
        writeln!(
            go,
            "\n// {} is struct {} of uapi/task_diag.h. Each method returns a member, and whether it is known.",
            s.name, c.name
        )
        .unwrap();
        writeln!(go, "type {} struct{{ record }}\n", s.name).unwrap();
        let owned = if c.valid.is_empty() { c.members } else { c.valid };
        let mut methods = Vec::new();
        for (bit, m) in owned.iter().enumerate().filter(|(_, m)| m.name != "nla") {
            let bit = if c.valid.is_empty() { "always".into() } else { bit.to_string() };
            let (how, kind) = match (m.size, m.signed) {
                (1 | 2 | 4 | 8, false) => {
                    (format!("u{}", 8 * m.size), format!("uint{}", 8 * m.size))
                }
                (4 | 8, true) => (format!("i{}", 8 * m.size), format!("int{}", 8 * m.size)),
                _ => ("bytes".into(), "[]byte".into()),
            };
            let more = if how == "bytes" { format!(", {}", m.size) } else { String::new() };
            methods.push((
                format!("func (r {}) {}() ({kind}, bool)", s.name, exported(m.name)),
                format!("{{ return r.{how}({bit}, {}{more}) }}", m.offset),
            ));
        }
        // As gofmt aligns them.
        let longest = methods.iter().map(|(head, _)| head.len()).max().unwrap_or(0);
        methods.iter().for_each(|(head, body)| writeln!(go, "{head:longest$} {body}").unwrap());
        let call = if s.is_list { "list" } else { "one" };
        if s.is_list {
            let all = format!("{}s", s.name);
            writeln!(
                go,
                "\n// {all} is the list of this type; false if the task has none, which [Task.Missing] explains.\n\
                 func (t Task) {all}() ([]{}, bool) {{\n\
                 \tentries, there := t.{call}({})\n\
                 \tall := make([]{}, len(entries))\n\
                 \tfor i, e := range entries {{\n\t\tall[i].record = e\n\t}}\n\
                 \treturn all, there\n}}",
                s.name, s.kind, s.name
            )
            .unwrap();
        } else {
            writeln!(
                go,
                "\n// {} is the record of this type; false if the task has none, which [Task.Missing] explains.\n\
                 func (t Task) {}() ({}, bool) {{\n\
                 \tr, there := t.{call}({})\n\
                 \treturn {}{{r}}, there\n}}",
                s.name, s.name, s.name, s.kind, s.name
            )
            .unwrap();
        }
    }
    // One length for each struct, by the type of its attribute: the least that it may have.
    go.push_str("\nvar least = map[uint16]int{\n");
    let width = |n: u16| if n < 10 { 1 } else { 2 };
    for s in of_tasks().filter(|s| !s.is_list) {
        writeln!(go, "\t{}:{} {},", s.kind, " ".repeat(2 - width(s.kind)), s.table.least).unwrap();
    }
    go.push_str("}\n\nvar leastEntry = map[uint16]int{\n");
    for s in of_tasks().filter(|s| s.is_list) {
        writeln!(go, "\t{}:{} {},", s.kind, " ".repeat(2 - width(s.kind)), s.table.least).unwrap();
    }
    go.push_str("}\n");
    go
}

/// The structs that a task may have. The list of values of a control group is in recordings alone.
fn of_tasks() -> impl Iterator<Item = &'static Struct> {
    STRUCTS.iter().filter(|s| !s.is_list || group_of(s.kind).is_some())
}

/// Checks that the file is what the registry gives, or writes it.
fn holds(file: &str, want: &str, then: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("TASKDIAG_WRITE").is_some() {
        std::fs::write(&path, want).unwrap_or_else(|e| panic!("{file} is not written: {e}"));
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        have == want,
        "{file} is not what the registry gives: run TASKDIAG_WRITE=1 cargo test -p taskdiag-wire \
         --test generated{then}"
    );
}

#[test]
fn the_bpf_programs_have_the_members_of_the_registry() {
    holds("bpf/members.h", &members(), ", then make bpf");
}

#[test]
fn go_has_the_structs_of_the_registry() {
    holds("go/layout.go", &go_layout(), "");
}
