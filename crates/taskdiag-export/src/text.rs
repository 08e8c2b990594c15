//! Metrics as text, in the format of Prometheus (version 0.0.4) or of OpenMetrics (1.0.0). The two
//! differ little.

use std::fmt::Write as _;

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus 0.0.4.
    Prometheus,
    /// OpenMetrics in the requested version, 0.0.1 or 1.0.0. The text of both is the same.
    OpenMetrics(&'static str),
}

impl Format {
    /// The Content-Type.
    pub fn content_type(self) -> String {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8".into(),
            Format::OpenMetrics(version) => {
                format!("application/openmetrics-text; version={version}; charset=utf-8")
            }
        }
    }
}

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// It grows. Its name ends in `_total`.
    Counter,
    /// The value goes up and down.
    Gauge,
    /// process-exporter has counters without `_total`, which OpenMetrics does not allow.
    Unknown,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A fraction, such as seconds.
    Fraction(f64),
}

/// Receives metrics, one family after the other: this text, or a request to an OpenTelemetry
/// collector.
pub trait Sink {
    /// The head of a family. Its samples follow.
    fn family(&mut self, name: &'static str, kind: MetricType, help: &str);
    /// A value of the last family. `labels` are texts of [`label`]; empty ones are left out.
    fn put(&mut self, labels: &[&str], value: Value);
    /// A whole number.
    fn sample(&mut self, labels: &[&str], value: u64) {
        self.put(labels, Value::Count(value));
    }
    /// A fraction.
    fn fraction(&mut self, labels: &[&str], value: f64) {
        self.put(labels, Value::Fraction(value));
    }
    /// A value in seconds, of nanoseconds.
    fn seconds(&mut self, labels: &[&str], ns: u64) {
        self.fraction(labels, ns as f64 / 1e9);
    }
}

/// A text that is being written.
#[derive(Debug)]
pub struct Text {
    out: String,
    format: Format,
    name: &'static str,
}

impl Text {
    /// An empty one.
    pub fn new(format: Format, room: usize) -> Text {
        Text { out: String::with_capacity(room), format, name: "" }
    }
    fn begin(&mut self, labels: &[&str]) {
        self.out.push_str(self.name);
        let mut sign = '{';
        for part in labels.iter().filter(|l| !l.is_empty()) {
            self.out.push(sign);
            self.out.push_str(part);
            sign = ',';
        }
        self.out.push_str(if sign == ',' { "} " } else { " " });
    }
    /// The whole text.
    pub fn finish(mut self) -> Vec<u8> {
        if self.format != Format::Prometheus {
            self.out.push_str("# EOF\n");
        }
        self.out.into_bytes()
    }
}

impl Sink for Text {
    fn family(&mut self, name: &'static str, kind: MetricType, help: &str) {
        let is_open = self.format != Format::Prometheus;
        self.name = name;
        let of_counter =
            name.strip_suffix("_total").filter(|_| is_open && kind == MetricType::Counter);
        let name = of_counter.unwrap_or(name);
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Unknown if is_open => "unknown",
            MetricType::Unknown => "untyped",
        };
        // No help text has a character that would have to be escaped.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }
    fn put(&mut self, labels: &[&str], value: Value) {
        self.begin(labels);
        let _ = match value {
            Value::Count(value) => writeln!(self.out, "{value}"),
            Value::Fraction(value) => writeln!(self.out, "{value}"),
        };
    }
}

/// The longest value of a label, in bytes. Longer ones are cut.
const VALUE_MAX: usize = 512;

/// A label with its value, as written in braces. Names of processes are any bytes, and labels are
/// UTF-8. So invalid bytes and control characters become `\xHH`, and characters that are invisible
/// or change the direction of text become `\u{HHHH}`.
pub fn label(name: &str, value: &[u8]) -> String {
    let mut out = String::with_capacity(name.len() + value.len() + 3);
    out.push_str(name);
    out.push_str("=\"");
    let cut = &value[..value.len().min(VALUE_MAX)];
    for chunk in cut.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes).bytes().for_each(|b| hex(&mut out, b));
                }
                // Invisible and control characters are escaped as in all other outputs, because a
                // dashboard would show a different name.
                c if taskdiag::field::is_odd(c) => {
                    let _ = write!(out, "\\\\{}", &c.escape_unicode().to_string()[1..]);
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| hex(&mut out, *b));
    }
    if cut.len() < value.len() {
        out.push('…');
    }
    out.push('"');
    out
}

/// Parses a text of [`label`]s with commas between them. Returns names, and values without escapes.
pub fn pairs(mut labels: &str) -> Vec<(&str, String)> {
    let mut all = Vec::new();
    while let Some((name, rest)) = labels.split_once("=\"") {
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => value.extend(chars.next().map(|(_, c)| c)),
                Some((at, '"')) => break at + 1,
                Some((_, c)) => value.push(c),
                None => break rest.len(),
            }
        };
        all.push((name, value));
        labels = rest[end..].trim_start_matches(',');
    }
    all
}

fn hex(out: &mut String, byte: u8) {
    // The backslash of the escape is itself escaped, as every backslash in a value.
    let _ = write!(out, "\\\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_escape_invisible_characters_and_marks_of_direction() {
        for (c, shown) in [
            ('\u{202e}', "202e"),
            ('\u{200b}', "200b"),
            ('\u{e0041}', "e0041"),
            ('\u{feff}', "feff"),
        ] {
            assert_eq!(
                label("n", format!("a{c}b").as_bytes()),
                format!("n=\"a\\\\u{{{shown}}}b\"")
            );
        }
        assert_eq!(label("n", "ü日".as_bytes()), "n=\"ü日\"");
    }

    #[test]
    fn labels_of_any_bytes_are_escaped() {
        for (value, want) in [
            (&b"bash"[..], r#"n="bash""#),
            (b"", r#"n="""#),
            (b"a\"b\\c", r#"n="a\"b\\c""#),
            (b"a\nb\x1b", r#"n="a\\x0ab\\x1b""#),
            (b"\xff\xc3\xa9\xc3", "n=\"\\\\xff\u{e9}\\\\xc3\""),
        ] {
            assert_eq!(label("n", value), want, "{value:?}");
        }
        // Two names that differ only in a byte that is not UTF-8 stay different.
        assert_ne!(label("n", b"\xfe"), label("n", b"\xff"));
        let both = format!("{},{}", label("n", b"a\"b\\c,d=\"e"), label("m", b"\xff"));
        assert_eq!(
            pairs(&both),
            [("n", "a\"b\\c,d=\"e".to_owned()), ("m", "\\xff".to_owned())],
            "{both}"
        );
        assert_eq!(pairs(""), []);
        let long = label("n", &[b'a'; 5000]);
        assert!(long.len() < VALUE_MAX + 20 && long.ends_with("…\""), "{long}");
    }

    #[test]
    fn samples_are_written_in_both_text_formats() {
        let text = |format| {
            let mut t = Text::new(format, 0);
            t.family("a_total", MetricType::Counter, "A.");
            t.sample(&["x=\"1\"", "", "y=\"2\""], 3);
            t.seconds(&[], 1_250_000_000);
            t.family("b", MetricType::Unknown, "B.");
            t.sample(&[], u64::MAX);
            String::from_utf8(t.finish()).expect("text")
        };
        let samples = "a_total{x=\"1\",y=\"2\"} 3\na_total 1.25\n";
        let last = "b 18446744073709551615\n";
        assert_eq!(
            text(Format::Prometheus),
            format!(
                "# HELP a_total A.\n# TYPE a_total counter\n{samples}# HELP b B.\n# TYPE b untyped\n{last}"
            )
        );
        assert_eq!(
            text(Format::OpenMetrics("1.0.0")),
            format!(
                "# HELP a A.\n# TYPE a counter\n{samples}# HELP b B.\n# TYPE b unknown\n{last}# EOF\n"
            )
        );
    }
}
