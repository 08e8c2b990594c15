//! The rules that put processes into named groups: the configuration file of process-exporter
//! (`process_names`).
//!
//! The README of process-exporter describes the rules. A rule matches if all of its matchers do.
//! The first rule that matches wins. This file makes no requests.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use taskdiag::view::Pattern;

use super::template::{Template, Values};
use super::yaml::{self, Node, NodeKind};

/// The largest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// The properties of a process that rules and names use.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The command name.
    pub comm: Vec<u8>,
    /// The arguments.
    pub argv: Vec<Vec<u8>>,
    /// The effective user, by name or as a number.
    pub username: Vec<u8>,
    /// The process id.
    pub pid: u32,
    /// When it started, ns since 1970.
    pub start_unix_ns: i128,
    /// Paths of its control groups.
    pub cgroups: Vec<Vec<u8>>,
    /// The labels that the group of the process has in addition to the name.
    pub labels: String,
}

impl Process {
    /// A hash of everything here that can change while the process runs, which is all but the pid
    /// and the start time.
    pub fn looks(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.comm, &self.argv, &self.username, &self.cgroups, &self.labels).hash(&mut hasher);
        hasher.finish()
    }
}

/// An entry of `exe`: compared with the whole of argv[0] if it has a slash, else with its last
/// part.
#[derive(Debug)]
enum Exe {
    Base(Vec<u8>),
    Full(Vec<u8>),
}

#[derive(Debug)]
struct Rule {
    comm: Option<Vec<Vec<u8>>>,
    exe: Option<Vec<Exe>>,
    cmdline: Option<Vec<Pattern>>,
    name: Template,
}

/// The rules, in their order.
#[derive(Debug)]
pub struct Config {
    rules: Vec<Rule>,
    /// Warnings about unknown keys, which were ignored.
    pub remarks: Vec<String>,
}

/// The rule of process-exporter's packages: each process with arguments, by its command name.
const DEFAULT: &str = "process_names: [{name: '{{.Comm}}', cmdline: ['.+']}]";

impl Default for Config {
    fn default() -> Config {
        Config::parse(DEFAULT).expect("it is a configuration")
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, with the file and the line.
    pub fn read(path: &Path) -> Result<Config, String> {
        use std::io::Read as _;
        let shown = crate::exit::shown(path);
        let file = crate::aside::read(path).map_err(|e| format!("--config {shown}: {e}"))?;
        let mut text = String::new();
        file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|e| format!("{shown}: {e}"))?;
        if text.len() as u64 > FILE_MAX {
            return Err(format!("{shown}: the file is larger than {FILE_MAX} bytes"));
        }
        let mut config = Config::parse(&text).map_err(|e| format!("{shown}: {e}"))?;
        for remark in &mut config.remarks {
            *remark = format!("{shown}: {remark}");
        }
        Ok(config)
    }
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, with the line.
    pub fn parse(text: &str) -> Result<Config, String> {
        let root = yaml::parse(text)?;
        let mut config = Config { rules: Vec::new(), remarks: Vec::new() };
        let keys = match root.kind {
            NodeKind::Map(keys) => keys,
            _ => {
                return Err(String::from("it has no section process_names, which lists the rules"));
            }
        };
        let mut found = false;
        for (key, node) in keys {
            if key != "process_names" {
                config
                    .remarks
                    .push(format!("line {}: '{key}' is not known and is ignored", node.line));
                continue;
            }
            found = true;
            match node.kind {
                NodeKind::List(list) => {
                    for rule in list {
                        let rule = config.rule(rule)?;
                        config.rules.push(rule);
                    }
                }
                NodeKind::Null => {}
                _ => {
                    return Err(format!(
                        "line {}: process_names must be a list of rules",
                        node.line
                    ));
                }
            }
        }
        match found {
            true => Ok(config),
            false => Err(String::from("it has no section process_names, which lists the rules")),
        }
    }
    fn rule(&mut self, node: Node) -> Result<Rule, String> {
        let line = node.line;
        let NodeKind::Map(keys) = node.kind else {
            return Err(format!(
                "line {line}: a rule must be a mapping with comm, exe or cmdline, not {}",
                node.what()
            ));
        };
        let (mut comm, mut exe, mut cmdline, mut name) = (None, None, None, None);
        for (key, node) in keys {
            match key.as_str() {
                "name" => name = text(&node)?,
                "comm" => {
                    let all = list(&key, &node)?;
                    for name in all.iter().flatten().filter(|name| never_matches(name)) {
                        self.remarks.push(format!(
                            "line {}: comm '{name}' never matches, because the kernel keeps {COMM} bytes of a command name; \
                             write the first {COMM}, or use exe",
                            node.line
                        ));
                    }
                    comm = all.map(|l| l.into_iter().map(String::into_bytes).collect());
                }
                "exe" => exe = list(&key, &node)?.map(|l| l.into_iter().map(exe_of).collect()),
                "cmdline" => {
                    cmdline = list(&key, &node)?.map(|l| regexes(&l, node.line)).transpose()?
                }
                _ => self
                    .remarks
                    .push(format!("line {}: '{key}' is not known and is ignored", node.line)),
            }
        }
        if comm.is_none() && exe.is_none() && cmdline.is_none() {
            return Err(format!("line {line}: a rule needs comm, exe or cmdline"));
        }
        let name = name.filter(|n| !n.is_empty()).unwrap_or_else(|| "{{.ExeBase}}".to_owned());
        let name = Template::parse(&name).map_err(|e| format!("line {line}: name: {e}"))?;
        Ok(Rule { comm, exe, cmdline, name })
    }
    /// Does a name depend on control groups?
    pub fn needs_cgroups(&self) -> bool {
        self.rules.iter().any(|r| r.name.has_cgroups())
    }
    /// The name of the group of a process. `None`: no rule matches.
    pub fn name(&self, process: &Process) -> Option<Vec<u8>> {
        let line = process.argv.join(&b' ');
        self.rules.iter().find_map(|r| r.name(process, &line))
    }
}

impl Rule {
    fn name(&self, process: &Process, line: &[u8]) -> Option<Vec<u8>> {
        if self.comm.as_ref().is_some_and(|all| !all.contains(&process.comm)) {
            return None;
        }
        let program = process.argv.first();
        if let Some(all) = &self.exe {
            let program = program?;
            let is = |exe: &Exe| match exe {
                Exe::Base(base) => base == go_base(program),
                Exe::Full(full) => full == program,
            };
            if !all.iter().any(is) {
                return None;
            }
        }
        let mut matches = Vec::new();
        for regex in self.cmdline.iter().flatten() {
            let found = regex.captures(line)?;
            matches.extend(found.into_iter().map(|(name, text)| (name.to_owned(), text)));
        }
        let exe_full = program.unwrap_or(&process.comm);
        let cgroups: Vec<&[u8]> = process.cgroups.iter().map(Vec::as_slice).collect();
        Some(self.name.fill(&Values {
            comm: &process.comm,
            exe_base: program.map_or(&*process.comm, |p| go_base(p)),
            exe_full,
            username: &process.username,
            pid: process.pid,
            start_unix_ns: process.start_unix_ns,
            cgroups: &cgroups,
            matches: &matches,
        }))
    }
}

/// The kernel keeps this many bytes of a command name.
const COMM: usize = 15;

/// Is a command name too long to match any process? Names of kworkers may be longer.
fn never_matches(name: &str) -> bool {
    name.len() > COMM && !name.starts_with("kworker/")
}

/// The last part of a path, as in Go.
fn go_base(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return b".";
    }
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    match path[..end].iter().rposition(|b| *b == b'/') {
        Some(at) => &path[at + 1..end],
        None if end == 0 => b"/",
        None => &path[..end],
    }
}

fn exe_of(text: String) -> Exe {
    if text.contains('/') { Exe::Full(text.into()) } else { Exe::Base(text.into()) }
}

fn text(node: &Node) -> Result<Option<String>, String> {
    match &node.kind {
        NodeKind::Null => Ok(None),
        NodeKind::Text(text) => Ok(Some(text.clone())),
        _ => Err(format!("line {}: this must be text, not {}", node.line, node.what())),
    }
}

/// A list of texts. `None`: the key has no value.
fn list(key: &str, node: &Node) -> Result<Option<Vec<String>>, String> {
    match &node.kind {
        NodeKind::Null => Ok(None),
        NodeKind::List(items) => {
            let all: Result<Vec<_>, _> = items.iter().map(text).collect();
            Ok(Some(all?.into_iter().map(Option::unwrap_or_default).collect()))
        }
        // YAML libraries of Go take one text for a list of one.
        NodeKind::Text(one) => Ok(Some(vec![one.clone()])),
        NodeKind::Map(_) => Err(format!("line {}: {key} must be a list of texts", node.line)),
    }
}

fn regexes(all: &[String], line: usize) -> Result<Vec<Pattern>, String> {
    let compile = |text: &String| {
        Pattern::new(text, false).map_err(|why| {
            format!("line {line}: cmdline: the regular expression '{text}' is wrong: {why}")
        })
    };
    all.iter().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(comm: &str, argv: &[&str]) -> Process {
        Process {
            comm: comm.into(),
            argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            username: b"web".to_vec(),
            pid: 42,
            ..Process::default()
        }
    }
    fn named(config: &str, comm: &str, argv: &[&str]) -> Option<String> {
        let config = Config::parse(config).expect(config);
        config.name(&process(comm, argv)).map(|n| String::from_utf8(n).expect("text"))
    }

    /// The example of process-exporter's README.
    const README: &str = r#"
process_names:
  - comm:
    - bash
  - exe:
    - postgres
    - /usr/local/bin/prometheus
  - name: "{{.ExeFull}}:{{.Matches.Cfgfile}}"
    exe:
    - /usr/local/bin/process-exporter
    cmdline:
    - -config.path\s+(?P<Cfgfile>\S+)
"#;

    #[test]
    fn the_rules_of_the_readme_name_processes() {
        let name = |comm, argv: &[&str]| named(README, comm, argv);
        assert_eq!(name("bash", &["-bash"]).as_deref(), Some("-bash"));
        assert_eq!(name("bash", &[]).as_deref(), Some("bash"));
        assert_eq!(
            name("postgres", &["/usr/lib/postgresql/15/bin/postgres", "-D"]).as_deref(),
            Some("postgres")
        );
        assert_eq!(name("x", &["/usr/local/bin/prometheus"]).as_deref(), Some("prometheus"));
        // If the path has a slash, it must equal all of argv[0].
        assert_eq!(name("prometheus", &["prometheus"]), None);
        assert_eq!(name("prometheus", &["/opt/prometheus"]), None);
        let exporter = "/usr/local/bin/process-exporter";
        let argv = [exporter, "-config.path", "/etc/p.yml"];
        assert_eq!(name("process-exporte", &argv), Some(format!("{exporter}:/etc/p.yml")));
        // All matchers of a rule must match.
        assert_eq!(name("process-exporte", &[exporter]), None);
        // exe needs an argv[0].
        assert_eq!(name("postgres", &[]), None);
    }

    #[test]
    fn the_first_rule_wins_and_all_regexes_must_match() {
        let config = "process_names:\n- {name: first, comm: [a, b], cmdline: [x, y]}\n- {name: second, comm: [a]}\n";
        assert_eq!(named(config, "a", &["x", "y"]).as_deref(), Some("first"));
        assert_eq!(named(config, "a", &["x"]).as_deref(), Some("second"));
        assert_eq!(named(config, "b", &["x"]), None);
        // Both paths of one program count.
        let both = "process_names: [{exe: [/usr/bin/p, /usr/sbin/p]}]";
        assert_eq!(named(both, "p", &["/usr/bin/p"]).as_deref(), Some("p"));
        assert_eq!(named(both, "p", &["/usr/sbin/p"]).as_deref(), Some("p"));
    }

    #[test]
    fn without_a_file_groups_have_the_names_of_commands() {
        let config = Config::default();
        let name = |comm, argv: &[&str]| config.name(&process(comm, argv));
        assert_eq!(name("cat", &["/bin/cat"]), Some(b"cat".to_vec()));
        // A thread of the kernel has no arguments.
        assert_eq!(name("kswapd0", &[]), None);
    }

    #[test]
    fn a_name_is_made_from_captures_of_several_expressions() {
        let config = "process_names: [{name: '{{.Matches.a}}-{{.Matches.b}}-{{.Username}}', \
            cmdline: ['a=(?P<a>\\d+)', '(b=(?P<b>x))?$']}]";
        assert_eq!(named(config, "p", &["p", "a=12"]).as_deref(), Some("12--web"));
        assert_eq!(named(config, "p", &["p", "a=12", "b=x"]).as_deref(), Some("12-x-web"));
    }

    #[test]
    fn expressions_are_about_characters() {
        for regex in ["job=(?P<n>m.ller)", "(?i)job=(?P<n>MÜLLER)", "job=(?P<n>m[ü]ller)"] {
            let config =
                format!("process_names: [{{name: 'x{{{{.Matches.n}}}}', cmdline: ['{regex}']}}]");
            let named = named(&config, "p", &["p", "job=müller-straße-æ"]);
            assert_eq!(named.as_deref(), Some("xmüller"), "{regex}");
        }
    }

    #[test]
    fn values_of_other_types_become_texts_and_unknown_keys_remarks() {
        assert_eq!(named("process_names: [{comm: [7], name: 8}]", "7", &[]).as_deref(), Some("8"));
        assert_eq!(named("process_names: [{comm: seven}]", "seven", &[]).as_deref(), Some("seven"));
        assert_eq!(named("process_names: [{comm: []}]", "", &[]), None);
        assert_eq!(named("process_names:", "a", &["a"]), None);
        let odd =
            Config::parse("process_names: [{comm: [a], colour: red}]\nx: y\n").expect("it is one");
        assert_eq!(odd.remarks.len(), 2);
    }

    #[test]
    fn a_command_name_that_is_too_long_is_remarked() {
        let text = "process_names:\n- comm: [prometheus-node-exporter, taskdiag-before, kworker/0:1-mm_percpu_wq]\n";
        let config = Config::parse(text).expect("it is one");
        let [remark] = &config.remarks[..] else { panic!("{:?}", config.remarks) };
        for part in ["line 2", "'prometheus-node-exporter' never matches", "15 bytes"] {
            assert!(remark.contains(part), "{remark}");
        }
    }

    #[test]
    fn errors_in_a_configuration_have_a_reason_and_a_line() {
        for (text, want) in [
            ("", "process_names"),
            ("- a", "process_names"),
            ("other: 1", "process_names"),
            ("process_names: 7", "line 1"),
            ("process_names:\n- name: x\n", "line 2"),
            (
                "process_names:\n- {cmdline: ['(']}\n",
                "cmdline: the regular expression '(' is wrong: unclosed",
            ),
            ("process_names:\n- {comm: [a], name: '{{.Nope}}'}\n", ".ExeBase"),
            ("process_names:\n- {comm: {a: b}}\n", "list of texts"),
            ("process_names: [", "line "),
        ] {
            let why = Config::parse(text).expect_err(text);
            assert!(why.contains(want), "{text:?}: {why}");
        }
    }

    #[test]
    fn the_last_part_of_a_path_is_that_of_go() {
        for (path, want) in
            [("", "."), ("/", "/"), ("//", "/"), ("a", "a"), ("/a/b", "b"), ("/a/b//", "b")]
        {
            assert_eq!(go_base(path.as_bytes()), want.as_bytes(), "{path:?}");
        }
    }
}
