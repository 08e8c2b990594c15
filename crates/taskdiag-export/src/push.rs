//! Sends metrics to an OpenTelemetry collector by HTTP, and interprets its answers.

use std::io;
use std::time::Duration;

use serde_json::Value as Json;
use ureq::Agent;

use crate::collector::Collector;
use crate::exit::Exit;

/// How long a push may take, the usual time of OpenTelemetry's exporters.
const LIMIT: Duration = Duration::from_secs(10);
/// How much of an answer is read.
const ANSWER_MAX: u64 = 64 << 10;
/// How much of an answer is shown, in characters.
const SHOWN_MAX: usize = 300;

/// A connection to a collector, which is kept between pushes.
pub struct Push {
    agent: Agent,
    collector: Collector,
}

impl Push {
    /// A connection that is opened by the first push.
    pub fn new(collector: Collector) -> Push {
        let config = Agent::config_builder()
            .timeout_global(Some(LIMIT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The variables for a proxy are not used, because most collectors are on this machine.
            .proxy(None)
            .user_agent(concat!("taskdiag/", env!("CARGO_PKG_VERSION")))
            .build();
        Push { agent: config.into(), collector }
    }
    /// Sends a request. Returns a warning of the collector, if it has one.
    ///
    /// # Errors
    /// `Exit::Output` if a later push may succeed, because no collector answers or it is
    /// busy. `Exit::Failed` if the same push would fail again.
    pub fn send(&self, request: &Json) -> Result<Option<String>, Exit> {
        let Collector { url, shown, .. } = &self.collector;
        let failed = |why: &dyn std::fmt::Display| format!("--otlp {shown}: {why}");
        let later = |why: &dyn std::fmt::Display| Exit::Output(io::Error::other(failed(why)));
        let mut post = self.agent.post(url).header("Content-Type", "application/json");
        for (name, value) in &self.collector.headers {
            post = post.header(name, value);
        }
        let mut answer = post.send(request.to_string()).map_err(|e| match e {
            ureq::Error::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused => later(
                &format_args!("{e}; is a collector with an OTLP receiver for HTTP running there?"),
            ),
            e => later(&e),
        })?;
        let body = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        let body = body.unwrap_or_default();
        let code = answer.status();
        match code.as_u16() {
            200..=299 => Ok(partial(&body)),
            // The status codes after which OTLP allows another attempt, and the code of a request
            // that took too long.
            408 | 429 | 502..=504 => Err(later(&format_args!("the answer is {code}"))),
            404 => Err(Exit::Failed(failed(
                &"the answer is 404: the path of OTLP is usually /v1/metrics",
            ))),
            401 | 403 => Err(Exit::Failed(failed(&format_args!(
                "the answer is {code}: set the headers that it requires in OTEL_EXPORTER_OTLP_HEADERS, such as Authorization=Bearer%20TOKEN"
            )))),
            _ => Err(Exit::Failed(failed(&format_args!("the answer is {code}{}", said(&body))))),
        }
    }
}

/// The text of an answer, for an error message.
fn said(body: &str) -> String {
    let text = serde_json::from_str::<Json>(body).ok();
    let text = text.as_ref().and_then(|j| j["message"].as_str()).unwrap_or(body).trim();
    let cut: String = text.chars().take(SHOWN_MAX).collect();
    if cut.is_empty() { cut } else { format!(": {cut}") }
}

/// The data that the collector rejected, or its warning.
fn partial(body: &str) -> Option<String> {
    let body: Json = serde_json::from_str(body).ok()?;
    let partial = body.get("partialSuccess")?;
    let message = partial["errorMessage"].as_str().unwrap_or("");
    // A string in the encoding, but some write a number.
    let rejected = match &partial["rejectedDataPoints"] {
        Json::String(n) => n.parse().unwrap_or(0),
        n => n.as_u64().unwrap_or(0),
    };
    (rejected > 0 || !message.is_empty())
        .then(|| format!("the collector rejected {rejected} data points{}", said(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_points_and_messages_of_a_collector_are_read() {
        assert_eq!(partial(""), None);
        assert_eq!(partial("{}"), None);
        assert_eq!(partial(r#"{"partialSuccess":{}}"#), None);
        let some = partial(r#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"old"}}"#);
        assert_eq!(some.as_deref(), Some("the collector rejected 3 data points: old"));
        assert!(partial(r#"{"partialSuccess":{"errorMessage":"soon"}}"#).is_some());
        assert_eq!(said(""), "");
        assert_eq!(said(r#"{"code":3,"message":"no points"}"#), ": no points");
        assert_eq!(said(&"é".repeat(900)).chars().count(), SHOWN_MAX + 2);
    }
}
