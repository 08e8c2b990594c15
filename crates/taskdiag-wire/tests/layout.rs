//! Pins the Rust layouts to `uapi/task_diag.h`: the system's C compiler prints the place of each
//! member and the value of each constant, and both sides must name the same things. It does not
//! test the meaning of the members.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use taskdiag_wire::layout::{Member, c_structs};
use taskdiag_wire::registry::{ATTRIBUTES, STRUCTS, group_of};
use taskdiag_wire::*;

/// Members of the header that Rust has no field for: padding and flexible arrays.
const NOT_IN_RUST: &[&str] = &["reserved", "entries", "data"];

fn uapi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../uapi")
}

fn header() -> String {
    let text = std::fs::read_to_string(uapi().join("task_diag.h")).expect("the header is there");
    without_comments(&text)
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        let end = rest[start..].find("*/").expect("comments end");
        rest = &rest[start + end + 2..];
    }
    out + rest
}

/// Compile and run a C program that includes the header; its output as `name value`.
fn c_values(expressions: &[(String, String)]) -> BTreeMap<String, i64> {
    let mut c = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"task_diag.h\"\nint main(void){\n",
    );
    for (name, expr) in expressions {
        writeln!(c, "printf(\"{name} %lld\\n\", (long long)({expr}));").unwrap();
    }
    c.push_str("return 0;}\n");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (src, exe) = (dir.path().join("pin.c"), dir.path().join("pin"));
    std::fs::write(&src, c).expect("the source is written");
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let out = Command::new(&cc)
        .args(["-std=gnu11", "-Wall", "-Werror", "-I"])
        .arg(uapi())
        .arg("-o")
        .arg(&exe)
        .arg(&src)
        .output()
        .unwrap_or_else(|e| panic!("no C compiler {cc:?} ({e}): install gcc, or set CC"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = Command::new(&exe).output().expect("the program runs");
    String::from_utf8(out.stdout)
        .expect("text")
        .lines()
        .map(|l| {
            let (name, value) = l.split_once(' ').expect("name value");
            (name.to_string(), value.parse().expect("a number"))
        })
        .collect()
}

/// The C name of a Rust field.
fn c_member(c_struct: &str, rust: &str) -> String {
    match (c_struct, rust) {
        ("nlattr", "len") => "nla_len".into(),
        ("nlattr", "kind") => "nla_type".into(),
        ("nlmsghdr", "kind") => "nlmsg_type".into(),
        ("nlmsghdr", f) => format!("nlmsg_{f}"),
        (_, f) => f.into(),
    }
}

/// Structs of the header and their members, from its text.
fn header_structs() -> BTreeMap<String, Vec<String>> {
    let text = header();
    let mut out = BTreeMap::new();
    for part in text.split("\nstruct task_diag_").skip(1) {
        let (name, body) = part.split_once('{').expect("a definition");
        let body = body.split_once('}').expect("structs end").0;
        let mut members = Vec::new();
        for declaration in body.split(';').map(str::trim).filter(|d| !d.is_empty()) {
            let declaration = declaration.trim_start_matches("struct ");
            let names = declaration.split_once(char::is_whitespace).expect("type name").1;
            for n in names.split(',') {
                members.push(n.trim().split('[').next().expect("a name").to_string());
            }
        }
        out.insert(format!("task_diag_{}", name.trim()), members);
    }
    out
}

#[test]
fn every_struct_of_the_header_has_a_rust_table() {
    let rust: BTreeMap<_, _> = c_structs().map(|s| (s.name, s)).collect();
    let c = header_structs();
    assert!(c.len() >= 16, "the header was not understood: {c:?}");
    for (name, members) in &c {
        let Some(table) = rust.get(name.as_str()) else { panic!("{name} has no Rust struct") };
        let known: BTreeSet<_> = table.members.iter().map(|m| m.name).collect();
        for m in members {
            let not_in_rust = NOT_IN_RUST.contains(&m.as_str());
            assert!(known.contains(m.as_str()) || not_in_rust, "{name}.{m} is not in Rust");
        }
        for m in known {
            assert!(members.iter().any(|c| c == m), "{name}.{m} is not in the header");
        }
    }
    for name in rust.keys().filter(|n| n.starts_with("task_diag_")) {
        assert!(c.contains_key(*name), "{name} is not in the header");
    }
}

#[test]
fn sizes_and_offsets_are_those_of_the_c_compiler() {
    let mut ask = Vec::new();
    let mut want = BTreeMap::new();
    for s in c_structs() {
        ask.push((s.name.to_string(), format!("sizeof(struct {})", s.name)));
        want.insert(s.name.to_string(), s.size as i64);
        for Member { name, offset, size, .. } in s.members {
            let c = c_member(s.name, name);
            let key = format!("{}.{c}", s.name);
            ask.push((format!("{key}@"), format!("offsetof(struct {}, {c})", s.name)));
            ask.push((format!("{key}#"), format!("sizeof(((struct {} *)0)->{c})", s.name)));
            want.insert(format!("{key}@"), *offset as i64);
            want.insert(format!("{key}#"), *size as i64);
        }
        if s.name != "nlattr" {
            assert_eq!(s.size % 8, 0, "{} is not a multiple of 8", s.name);
        }
    }
    assert_eq!(c_values(&ask), want);
}

/// Every constant of the header, with its value in Rust.
fn constants() -> Vec<(String, i64)> {
    let mut t: Vec<(String, i64)> = [
        ("VERSION", VERSION as i64),
        ("MAGIC", MAGIC as i64),
        ("ALIGN", 8),
        ("BLOB_MAX", BLOB_MAX as i64),
        ("CMD_GET", CMD_GET as i64),
        ("CMD_FEATURES", CMD_FEATURES as i64),
        ("MSG_INFO", MSG_INFO as i64),
        ("MSG_TASK", MSG_TASK as i64),
        ("MSG_FEATURES", MSG_FEATURES as i64),
        ("MSG_CUT", MSG_CUT as i64),
        ("MSG_CONTAINER", MSG_CONTAINER as i64),
        ("MSG_CGROUP_LIST", MSG_CGROUP_LIST as i64),
        ("MSG_CGROUP", MSG_CGROUP as i64),
        ("CG_HAS_V1", CG_HAS_V1 as i64),
        ("CG_IS_V2", CG_IS_V2 as i64),
        ("CG_HAS_OWNER", CG_HAS_OWNER as i64),
        ("CG_UNLIMITED", CG_UNLIMITED as i64),
        ("CUT_OTHERS", i64::from(CUT_OTHERS)),
        ("VMA_READ", VMA_READ as i64),
        ("VMA_WRITE", VMA_WRITE as i64),
        ("VMA_EXEC", VMA_EXEC as i64),
        ("VMA_SHARED", VMA_SHARED as i64),
        ("FLAG_CONT", FLAG_CONT as i64),
        ("BLOB_CUT", BLOB_CUT as i64),
        ("BLOB_REWRITTEN", BLOB_REWRITTEN as i64),
        ("BLOB_DELETED", BLOB_DELETED as i64),
        ("TASK_KTHREAD", TASK_KTHREAD as i64),
        ("TASK_EXITING", TASK_EXITING as i64),
        ("SCHED_LIVE_ONLY", SCHED_LIVE_ONLY as i64),
        ("STAT_LOCKED", STAT_LOCKED as i64),
        ("WAIT_UNINTERRUPTIBLE", WAIT_UNINTERRUPTIBLE as i64),
        ("WAIT_COMPAT", WAIT_COMPAT as i64),
    ]
    .map(|(n, v)| (format!("TASK_DIAG_{n}"), v))
    .into();
    t.extend(ATTRIBUTES.iter().map(|(name, n)| (format!("TASK_DIAG_{name}"), i64::from(*n))));
    let upper = |s: &str| s.to_uppercase().replace('-', "_");
    t.extend(Group::ALL.iter().map(|g| (format!("TASK_DIAG_{}", upper(g.name())), *g as i64)));
    t.extend(
        Strategy::ALL.iter().map(|s| (format!("TASK_DIAG_DUMP_{}", upper(s.name())), *s as i64)),
    );
    t.extend(Reason::ALL.iter().map(|r| (format!("TASK_DIAG_R_{}", upper(r.name())), *r as i64)));
    t.extend(
        PathKind::ALL.iter().map(|p| (format!("TASK_DIAG_PATH_{}", upper(p.name())), *p as i64)),
    );
    macro_rules! named {
        ($($of:ident $prefix:literal),*) => { $(t.extend(
            $of::ALL.iter().map(|v| (format!("TASK_DIAG_{}_{}", $prefix, upper(v.name())), *v as i64)),
        );)* };
    }
    named!(VmaKind "VMA", FdType "FD", FdDetailKind "FDD", FileUse "USE", ContainerPart "CT", CgroupMember "CGM");
    named!(WaitKind "WAIT", RanBy "RAN", OwnerHow "OWNER");
    t.extend(VMA_FLAGS.iter().map(|f| (format!("TASK_DIAG_VMAF_{}", upper(f.name)), f.bit as i64)));
    t.push(("__TASK_DIAG_GROUP_MAX".into(), Group::ALL.len() as i64));
    t.push(("__TASK_DIAG_DUMP_MAX".into(), Strategy::ALL.len() as i64));
    t
}

#[test]
fn constants_are_those_of_the_header() {
    let mut want: BTreeMap<String, i64> = constants().into_iter().collect();
    // Constants of netlink that the header uses.
    want.insert("NLMSG_NOOP".into(), NLMSG_NOOP.into());
    want.insert("NLMSG_DONE".into(), NLMSG_DONE.into());
    let ask: Vec<_> = want.keys().map(|n| (n.clone(), n.clone())).collect();
    assert_eq!(c_values(&ask), want);
}

#[test]
fn every_constant_of_the_header_is_in_rust() {
    let text = header();
    let known: BTreeSet<String> = constants().into_iter().map(|c| c.0).collect();
    let mut defined = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        let word = line.strip_prefix("#define ").unwrap_or(line);
        let name: String =
            word.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        // An enumerator or a define with a value; a guard or a type is neither.
        let rest = word[name.len()..].trim_start();
        let has_value = if line.starts_with("#define") {
            !rest.is_empty()
        } else {
            rest.is_empty() || rest.starts_with(['=', ','])
        };
        if name.trim_start_matches('_').starts_with("TASK_DIAG_") && has_value {
            defined.insert(name);
        }
    }
    assert!(defined.len() >= 50, "the header was not understood: {defined:?}");
    let apart: Vec<_> = defined.symmetric_difference(&known).collect();
    assert!(apart.is_empty(), "in one of uapi/task_diag.h and Rust only: {apart:?}");
}

#[test]
fn a_bit_of_valid_stands_for_each_member_in_order() {
    let c = header_structs();
    let mut records = 0;
    for s in STRUCTS.iter().filter(|s| !s.table.valid.is_empty()) {
        let members: Vec<&str> = s.table.valid.iter().map(|m| m.name).collect();
        let mut want: Vec<&str> = if s.is_list { vec![] } else { vec!["nla", "valid"] };
        want.extend(&members);
        let all = c[s.table.name].iter().map(String::as_str);
        let in_header: Vec<&str> = all.filter(|m| !NOT_IN_RUST.contains(m)).collect();
        assert_eq!(in_header, want, "{}", s.table.name);
        assert_eq!(s.table.valid_within(s.table.size).count_ones() as usize, members.len());
        records += 1;
    }
    assert_eq!(records + 1, STRUCTS.len(), "all but Shared have bits of valid");
}

/// The header names the group of each attribute, and so does the registry. Both must agree. An
/// attribute for which the header names no group, or several, is not a part of a group's value.
#[test]
fn attributes_are_of_the_group_that_the_header_says() {
    for g in Group::ALL {
        assert_eq!(group_of(*g as u16), Some(*g), "{g}");
    }
    let header = include_str!("../../../uapi/task_diag.h");
    for (name, kind) in ATTRIBUTES {
        let said = header.split_once(&format!("TASK_DIAG_{name}\t")).expect("it is declared").1;
        let said =
            said.lines().next().and_then(|l| l.split_once("/* with ")?.1.split_once([':', ',']));
        let group = said.and_then(|(g, _)| Group::from_name(&g.to_lowercase()));
        assert_eq!(group_of(*kind), group, "{name}");
    }
    assert_eq!(group_of(A_SOCKET), Some(Group::Fd));
    assert_eq!(group_of(A_SHARED), None);
}
