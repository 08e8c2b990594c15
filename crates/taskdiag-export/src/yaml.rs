//! A YAML text as a tree of nodes with line numbers. Scalars are kept as text, because
//! process-exporter takes `comm: [123]` as the name "123", and because errors should show the
//! original text.

use yaml_rust2::parser::{Event, MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

/// The largest number of nodes in a document, so that aliases of aliases cannot fill the memory.
const NODES: usize = 100_000;
/// The deepest nesting.
const DEPTH: usize = 32;

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The line of the node, from 1.
    pub line: usize,
    /// What it is.
    pub kind: NodeKind,
}

/// The content of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// Nothing, `null` or `~`.
    Null,
    /// A scalar of any type, as it was written.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in its order.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The name of its kind in an error.
    pub fn what(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Text(_) => "a text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a mapping",
        }
    }
    fn size(&self) -> usize {
        match &self.kind {
            NodeKind::Null | NodeKind::Text(_) => 1,
            NodeKind::List(list) => 1 + list.iter().map(Node::size).sum::<usize>(),
            NodeKind::Map(map) => 1 + map.iter().map(|(_, n)| n.size()).sum::<usize>(),
        }
    }
}

/// A list or mapping that is not complete. A mapping has a key whose value follows.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<String>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: Vec<(usize, Node)>,
    document: Option<Node>,
    nodes: usize,
    wrong: Option<String>,
}

impl Builder {
    fn refuse(&mut self, line: usize, why: &str) {
        self.wrong.get_or_insert_with(|| format!("line {line}: {why}"));
    }
    fn begin(&mut self, line: usize, kind: NodeKind, anchor: usize) {
        if self.open.len() >= DEPTH {
            return self.refuse(line, "it is nested too deeply");
        }
        self.open.push(Open { node: Node { line, kind }, anchor, key: None });
    }
    fn end(&mut self) {
        if let Some(done) = self.open.pop() {
            self.add(done.node, done.anchor);
        }
    }
    fn add(&mut self, node: Node, anchor: usize) {
        self.nodes += node.size();
        if self.nodes > NODES * 2 {
            return self.refuse(node.line, "the file is too large with its aliases");
        }
        if anchor != 0 {
            self.anchors.push((anchor, node.clone()));
        }
        let line = node.line;
        let Some(open) = self.open.last_mut() else {
            self.document = Some(node);
            return;
        };
        match (&mut open.node.kind, open.key.take()) {
            (NodeKind::List(list), _) => list.push(node),
            (NodeKind::Map(map), Some(key)) => {
                let twice = map.iter().any(|(k, _)| *k == key);
                map.push((key, node));
                if twice {
                    self.refuse(line, "the key is there twice");
                }
            }
            (NodeKind::Map(_), None) => match node.kind {
                NodeKind::Text(key) => open.key = Some(key),
                _ => self.refuse(line, "a key must be text"),
            },
            (NodeKind::Null | NodeKind::Text(_), _) => {}
        }
    }
}

impl MarkedEventReceiver for Builder {
    fn on_event(&mut self, event: Event, mark: Marker) {
        if self.wrong.is_some() {
            return;
        }
        let line = mark.line();
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == TScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = if is_null { NodeKind::Null } else { NodeKind::Text(text) };
                self.add(Node { line, kind }, anchor);
            }
            Event::SequenceStart(anchor, _) => self.begin(line, NodeKind::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => self.begin(line, NodeKind::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => match self.anchors.iter().rev().find(|(n, _)| *n == anchor) {
                Some((_, node)) => self.add(Node { line, ..node.clone() }, 0),
                None => self.refuse(line, "the alias is inside the node that it names"),
            },
            _ => {}
        }
    }
}

/// Reads a text with one document.
///
/// # Errors
/// What is wrong, with the line.
pub fn parse(text: &str) -> Result<Node, String> {
    let mut builder = Builder::default();
    let done = Parser::new_from_str(text).load(&mut builder, false);
    if let Some(why) = builder.wrong {
        return Err(why);
    }
    done.map_err(|e| format!("line {}: {}", e.marker().line(), e.info()))?;
    Ok(builder.document.unwrap_or(Node { line: 1, kind: NodeKind::Null }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_stay_text_and_aliases_are_copied() {
        let node = parse("a: [1, 0x10, yes, \"~\", ~]\nb: &x {c: d}\ne: *x\n").expect("it is YAML");
        let NodeKind::Map(map) = node.kind else { panic!("a mapping") };
        let NodeKind::List(list) = &map[0].1.kind else { panic!("a list") };
        let text = |t: &str| NodeKind::Text(t.to_owned());
        let kinds: Vec<NodeKind> = list.iter().map(|n| n.kind.clone()).collect();
        assert_eq!(kinds, [text("1"), text("0x10"), text("yes"), text("~"), NodeKind::Null]);
        assert_eq!((map[1].1.line, map[2].1.line), (2, 3));
        assert_eq!(map[1].1.kind, map[2].1.kind);
        assert_eq!(parse("# nothing\n").expect("it is YAML").kind, NodeKind::Null);
    }

    #[test]
    fn yaml_errors_have_their_line() {
        for (text, want) in [
            ("a: b\na: c\n", "line 2: the key is there twice"),
            ("a: [b\n", "line "),
            ("[x]: y\n", "a key must be text"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(want), "{text:?}: {why}");
        }
        let deep = "[".repeat(40) + &"]".repeat(40);
        assert!(parse(&deep).is_err_and(|e| e.contains("too deeply")));
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..9 {
            let before = format!("*a{}, ", n - 1).repeat(10);
            bomb.push_str(&format!("a{n}: &a{n} [{before}]\n"));
        }
        assert!(parse(&bomb).is_err_and(|e| e.contains("too large")));
    }
}
