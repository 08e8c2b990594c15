//! The options that select the tasks of a container, of a pod or of a unit of systemd. Each is a
//! condition on columns, as `--where` has them.

use clap::{Arg, ArgMatches};
use taskdiag::field::Set;
use taskdiag::view::Filter;
use taskdiag_face::options::{items, list};

use crate::exit::Exit;

/// `--container`, `--pod` and `--unit`.
pub fn options() -> [Arg; 3] {
    [
        list("container", "LIST", "Show processes of the containers with these names or ids"),
        list(
            "pod",
            "LIST",
            "Show processes of these pods of Kubernetes: NAMESPACE/NAME, NAME or uid",
        ),
        list("unit", "LIST", "Show processes of these units of systemd; sshd means sshd.service"),
    ]
}

/// The conditions of these options on rows of this set.
pub fn filters(m: &ArgMatches, set: &'static Set) -> Result<Vec<Filter>, Exit> {
    let mut all = Vec::new();
    for (option, condition) in CONDITIONS {
        let given = m.get_many::<String>(option).into_iter().flatten();
        let names: Vec<&str> = items(given).into_iter().collect();
        if names.is_empty() {
            if m.contains_id(option) {
                return Err(Exit::Usage(format!("--{option} needs at least one name")));
            }
            continue;
        }
        let mut any = Vec::new();
        for name in names {
            let has = |(column, _): &(&str, String)| set.find(column).is_some();
            any.extend(condition(name)?.into_iter().filter(has).map(|c| c.1));
        }
        all.push(Filter::parse(set, &any.join(" or ")).map_err(Exit::Where)?);
    }
    Ok(all)
}

/// Alternatives: a row is chosen if one of them is true. Each comes with the column that it needs.
type Any = Vec<(&'static str, String)>;
type Condition = fn(&str) -> Result<Any, Exit>;

const CONDITIONS: [(&str, Condition); 3] = [("container", container), ("pod", pod), ("unit", unit)];

/// Text in an expression, which has no escapes.
fn quoted(text: &str) -> Result<String, Exit> {
    match (text.contains('"'), text.contains('\'')) {
        (false, _) => Ok(format!("\"{text}\"")),
        (true, false) => Ok(format!("'{text}'")),
        (true, true) => Err(Exit::Usage(format!(
            "no container, pod or unit has the name {text}: it has both kinds of quotes"
        ))),
    }
}

/// The shortest start of an id that is taken for one. Docker and Podman show twelve digits.
const ID: usize = 6;

fn container(name: &str) -> Result<Any, Exit> {
    let text = quoted(name)?;
    let is_id = name.len() >= ID && name.bytes().all(|b| b.is_ascii_hexdigit());
    let id = match is_id {
        true => format!("container ~ \"^{name}\""),
        false => format!("container == {text}"),
    };
    Ok(vec![("container_name", format!("container_name == {text}")), ("container", id)])
}

fn pod(name: &str) -> Result<Any, Exit> {
    Ok(match name.split_once('/') {
        Some((namespace, name)) => {
            let (namespace, name) = (quoted(namespace)?, quoted(name)?);
            let both = format!("(pod_namespace == {namespace} and pod_name == {name})");
            vec![("pod_name", both)]
        }
        None => {
            let name = quoted(name)?;
            vec![("pod_name", format!("pod_name == {name}")), ("pod", format!("pod == {name}"))]
        }
    })
}

fn unit(name: &str) -> Result<Any, Exit> {
    let unit = match name.rsplit_once('.') {
        Some((_, "slice")) => return Ok(vec![("slice", format!("slice == {}", quoted(name)?))]),
        Some((_, "service" | "scope" | "socket" | "mount" | "swap")) => quoted(name)?,
        // As systemctl(1) does.
        _ => quoted(&format!("{name}.service"))?,
    };
    Ok(vec![("unit", format!("unit == {unit}")), ("uunit", format!("uunit == {unit}"))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::field::TASKS;

    #[test]
    fn each_name_becomes_a_condition_that_is_valid() {
        for (condition, name, want) in [
            (container as Condition, "web", r#"container_name == "web" or container == "web""#),
            (container, "c0ffee", r#"container_name == "c0ffee" or container ~ "^c0ffee""#),
            (container, "a\"b", "container_name == 'a\"b' or container == 'a\"b'"),
            (pod, "db-0", r#"pod_name == "db-0" or pod == "db-0""#),
            (pod, "shop/db-0", r#"(pod_namespace == "shop" and pod_name == "db-0")"#),
            (unit, "sshd", r#"unit == "sshd.service" or uunit == "sshd.service""#),
            (unit, "a@b.service", r#"unit == "a@b.service" or uunit == "a@b.service""#),
            (unit, "x.y", r#"unit == "x.y.service" or uunit == "x.y.service""#),
            (unit, "user.slice", r#"slice == "user.slice""#),
        ] {
            let any = condition(name).expect("a condition");
            let text = any.into_iter().map(|c| c.1).collect::<Vec<_>>().join(" or ");
            assert_eq!(text, want);
            Filter::parse(&TASKS, &text).expect("an expression");
        }
        assert!(container("a'\"").is_err());
    }
}
