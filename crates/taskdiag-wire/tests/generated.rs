//! Files that are made from the registry: `bpf/members.h`, the numbers of members for the BPF
//! programs, and which groups each program has. With `TASKDIAG_WRITE=1` it writes them; otherwise
//! it compares, so that a change of a record without an update of these files fails.

use std::fmt::Write as _;
use std::path::Path;

use taskdiag_wire::Groups;
use taskdiag_wire::registry::STRUCTS;

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
    for s in STRUCTS.iter().filter(|s| !s.table.valid.is_empty()) {
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
        let bits = groups.iter().map(|g| format!("1u << TASK_DIAG_{}", g.name().to_uppercase()));
        let bits: Vec<String> = bits.collect();
        let lines: Vec<String> = bits.chunks(3).map(|some| some.join(" | ")).collect();
        writeln!(h, "#define {name} (\\\n\t{})", lines.join(" | \\\n\t")).unwrap();
    }
    h.push_str("\n#endif\n");
    h
}

#[test]
fn the_bpf_programs_have_the_members_of_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/members.h");
    let want = members();
    if std::env::var_os("TASKDIAG_WRITE").is_some() {
        std::fs::write(&path, &want).expect("bpf/members.h is written");
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        have == want,
        "bpf/members.h is not what the registry gives: run TASKDIAG_WRITE=1 cargo test \
         -p taskdiag-wire --test generated, then make bpf"
    );
}
