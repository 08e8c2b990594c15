//! Templates of group names, as in the configuration of process-exporter: the part of Go's
//! text/template that names use. Any other part is an error, which lists the supported ones.

/// The values that templates can use.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    /// The command name.
    pub comm: &'a [u8],
    /// The last part of argv[0], or the command name where there are no arguments.
    pub exe_base: &'a [u8],
    /// argv[0], or the command name.
    pub exe_full: &'a [u8],
    /// Name of the effective user, or the uid.
    pub username: &'a [u8],
    /// Process id.
    pub pid: u32,
    /// When it started, ns since 1970.
    pub start_unix_ns: i128,
    /// Paths of its control groups.
    pub cgroups: &'a [&'a [u8]],
    /// Named groups of the regular expressions that matched.
    pub matches: &'a [(String, Vec<u8>)],
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Comm,
    ExeBase,
    ExeFull,
    Username,
    Pid,
    StartTime,
    Cgroups,
    Cgroup(usize),
    /// A named group of a match, and the text if there is no such group.
    Match(String, &'static str),
}

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Part>);

/// The variables that are allowed in `{{ }}`.
const KNOWN: &str = ".Comm .ExeBase .ExeFull .Username .PID .StartTime .Cgroups .Matches.NAME, \
    'index .Matches \"NAME\"' and 'index .Cgroups N'";

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// The part of the template that is wrong.
    pub fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        let mut trim_next = false;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inside, after) = after
                .split_once("}}")
                .ok_or_else(|| format!("{text:?}: a '{{{{' is not closed"))?;
            let mut before = if trim_next { before.trim_start() } else { before };
            let mut inside = inside;
            if let Some(more) =
                inside.strip_prefix('-').filter(|m| m.starts_with([' ', '\t', '\n']))
            {
                (before, inside) = (before.trim_end(), more);
            }
            trim_next = false;
            if let Some(less) = inside.strip_suffix('-').filter(|l| l.ends_with([' ', '\t', '\n']))
            {
                (trim_next, inside) = (true, less);
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let inside = inside.trim();
            if !(inside.starts_with("/*") && inside.ends_with("*/") && inside.len() >= 4) {
                let part = part(inside);
                parts.push(part.ok_or_else(|| {
                    format!("{text:?}: '{{{{{inside}}}}}' is not known here; there are {KNOWN}")
                })?);
            }
            rest = after;
        }
        let rest = if trim_next { rest.trim_start() } else { rest };
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template(parts))
    }
    /// Is the control group a part of the name?
    pub fn has_cgroups(&self) -> bool {
        self.0.iter().any(|p| matches!(p, Part::Cgroups | Part::Cgroup(_)))
    }
    /// The name. If it has a control group that the process does not have, it ends before that, as
    /// in process-exporter.
    pub fn fill(&self, v: &Values<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Comm => out.extend_from_slice(v.comm),
                Part::ExeBase => out.extend_from_slice(v.exe_base),
                Part::ExeFull => out.extend_from_slice(v.exe_full),
                Part::Username => out.extend_from_slice(v.username),
                Part::Pid => out.extend_from_slice(v.pid.to_string().as_bytes()),
                Part::StartTime => out.extend_from_slice(go_time(v.start_unix_ns).as_bytes()),
                Part::Cgroups => {
                    out.push(b'[');
                    out.extend_from_slice(&v.cgroups.join(&b' '));
                    out.push(b']');
                }
                Part::Cgroup(n) => match v.cgroups.get(*n) {
                    Some(path) => out.extend_from_slice(path),
                    None => return out,
                },
                Part::Match(name, without) => {
                    let found = v.matches.iter().rev().find(|(n, _)| n == name);
                    out.extend_from_slice(found.map_or(without.as_bytes(), |(_, text)| text));
                }
            }
        }
        out
    }
}

fn part(text: &str) -> Option<Part> {
    let is_name = |n: &str| !n.is_empty() && n.chars().all(|c| c.is_alphanumeric() || c == '_');
    if let Some(name) = text.strip_prefix(".Matches.").filter(|n| is_name(n)) {
        // Go's text for a missing key of a map.
        return Some(Part::Match(name.to_owned(), "<no value>"));
    }
    if let Some(rest) = text.strip_prefix("index").filter(|r| r.starts_with([' ', '\t'])) {
        let (of, key) = rest.trim().split_once([' ', '\t'])?;
        let key = key.trim();
        return match of {
            ".Cgroups" => Some(Part::Cgroup(key.parse().ok()?)),
            ".Matches" => {
                let quoted = |q| key.strip_prefix(q)?.strip_suffix(q);
                let name = quoted('"').or_else(|| quoted('`'))?;
                Some(Part::Match(name.to_owned(), ""))
            }
            _ => None,
        };
    }
    Some(match text {
        ".Comm" => Part::Comm,
        ".ExeBase" => Part::ExeBase,
        ".ExeFull" => Part::ExeFull,
        ".Username" => Part::Username,
        ".PID" => Part::Pid,
        ".StartTime" => Part::StartTime,
        ".Cgroups" => Part::Cgroups,
        _ => return None,
    })
}

/// A time in Go's format, in UTC, with hundredths of a second as in process-exporter.
fn go_time(unix_ns: i128) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000) as i64;
    let hundredths = unix_ns.rem_euclid(1_000_000_000) / 10_000_000;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let fraction = match hundredths {
        0 => String::new(),
        n => format!(".{n:02}").trim_end_matches('0').to_owned(),
    };
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}{fraction} +0000 UTC")
}

/// Year, month and day of a day since 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let (mut year, mut left) = (1970, days);
    let is_leap = |y: i64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    // Each period of 400 years has the same number of days.
    year += left.div_euclid(146_097) * 400;
    left = left.rem_euclid(146_097);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        (left, year) = (left - length, year + 1);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        (left, month) = (left - length, month + 1);
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let matches = [(String::from("Cfg"), b"a.yml".to_vec())];
        let values = Values {
            comm: b"bash",
            exe_base: b"bash5",
            exe_full: b"/bin/bash5",
            username: b"web",
            pid: 42,
            start_unix_ns: 951_782_400_120_000_000,
            cgroups: &[b"/a", b"/b"],
            matches: &matches,
        };
        let name = Template::parse(text).expect(text).fill(&values);
        String::from_utf8(name).expect("text")
    }

    #[test]
    fn templates_make_the_names_of_groups() {
        for (text, want) in [
            ("", ""),
            ("plain", "plain"),
            ("{{.Comm}}", "bash"),
            ("{{ .ExeFull }}:{{.Matches.Cfg}}", "/bin/bash5:a.yml"),
            ("{{.ExeBase}} - {{.Username}}", "bash5 - web"),
            ("a {{- .PID -}} b", "a42b"),
            ("{{/* note */}}x", "x"),
            (
                "{{.Matches.No}}|{{index .Matches \"No\"}}|{{index .Matches \"Cfg\"}}",
                "<no value>||a.yml",
            ),
            ("{{.Cgroups}}", "[/a /b]"),
            ("<{{index .Cgroups 1}}>", "</b>"),
            ("<{{index .Cgroups 2}}>", "<"),
            ("{{.StartTime}}", "2000-02-29 00:00:00.12 +0000 UTC"),
        ] {
            assert_eq!(filled(text), want, "{text}");
        }
    }

    #[test]
    fn unknown_templates_are_refused() {
        for text in [
            "{{.Comm",
            "{{.Nope}}",
            "{{if .Comm}}x{{end}}",
            "{{.Comm | len}}",
            "{{index .Cgroups x}}",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn days_since_1970_give_the_date() {
        for (days, want) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (20_780, (2026, 11, 23)),
            (-1, (1969, 12, 31)),
        ] {
            assert_eq!(date(days), want);
        }
    }
}
