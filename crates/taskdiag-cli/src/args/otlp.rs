//! Where `taskdiag export --otlp` sends metrics, by its option and OpenTelemetry's variables.

use std::env;

use percent_encoding::percent_decode_str;
use ureq::http::{HeaderName, HeaderValue, Uri};

use crate::exit::Exit;

/// Where a collector listens if nothing else is said.
pub const DEFAULT: &str = "http://127.0.0.1:4318";
/// The path of metrics below the endpoint.
const PATH: &str = "/v1/metrics";

/// An OpenTelemetry collector, and what it is told about this host.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The whole URL that gets the metrics.
    pub url: String,
    /// Headers of each request, which may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Attributes of the resource that are added, or replace those of the host.
    pub resource: Vec<(String, String)>,
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|v| !v.is_empty())
}

/// The pairs of `a=b,c=d` with percent-encoded values, as OpenTelemetry's variables have them.
fn pairs(name: &str, text: &str) -> Result<Vec<(String, String)>, Exit> {
    let of_part = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
        Some((key.trim().to_owned(), value)).filter(|(key, _)| !key.is_empty())
    };
    let parts = text.split(',').filter(|p| !p.trim().is_empty());
    let all: Option<Vec<_>> = parts.map(of_part).collect();
    // The value is not shown: it may be a secret.
    all.ok_or_else(|| {
        Exit::Usage(format!("{name}: write NAME=VALUE,NAME=VALUE with %XX for other bytes"))
    })
}

/// The URL for metrics of an endpoint: the path is added if there is none.
fn url(endpoint: &str) -> Result<String, String> {
    let uri: Uri = endpoint.parse().map_err(|e| format!("{e}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(
                "TLS is not built in; send to a collector on this machine, which forwards with TLS"
                    .into(),
            );
        }
        _ => return Err(format!("write http://HOST:PORT, such as {DEFAULT}")),
    }
    let host = uri.host().unwrap_or("");
    let authority = uri.authority().map_or("", |a| a.as_str());
    if host.is_empty() || (!authority.ends_with(host) && uri.port_u16().is_none()) {
        return Err(format!(
            "there is no host or no port in it; write http://HOST:PORT, such as {DEFAULT}"
        ));
    }
    Ok(match uri.path() {
        "" | "/" => format!("{}{PATH}", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    })
}

impl Collector {
    /// From the option, where it has a value, and the variables.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn new(option: Option<&str>) -> Result<Collector, Exit> {
        let of_metrics = || variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        // This one is a base, below which each signal has its path.
        let of_all = || {
            let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}{PATH}", base.trim_end_matches('/')))
        };
        let (from, endpoint) = match option {
            Some(url) => ("--otlp", url.to_owned()),
            None => match of_metrics().or_else(of_all) {
                Some(url) => ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
                None => ("--otlp", DEFAULT.to_owned()),
            },
        };
        let url = url(&endpoint).map_err(|why| Exit::Usage(format!("{from} {endpoint}: {why}")))?;
        let mut headers = Vec::new();
        for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"] {
            for (key, value) in pairs(name, &variable(name).unwrap_or_default())? {
                let header =
                    HeaderName::try_from(&key).ok().zip(HeaderValue::try_from(&value).ok());
                let wrong = || Exit::Usage(format!("{name}: '{key}' and its value are no header"));
                headers.push(header.ok_or_else(wrong)?);
            }
        }
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource = pairs(name, &variable(name).unwrap_or_default())?;
        resource.extend(variable("OTEL_SERVICE_NAME").map(|v| ("service.name".into(), v)));
        Ok(Collector { url, headers, resource })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (endpoint, want) in [
            (DEFAULT, "http://127.0.0.1:4318/v1/metrics"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics"),
            ("http://h/api/v1/otlp/v1/metrics", "http://h/api/v1/otlp/v1/metrics"),
        ] {
            assert_eq!(url(endpoint).as_deref(), Ok(want));
        }
        for bad in ["", "h", "h:4318", "http://", "ftp://h", "https://h", "http://h:x"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables() {
        let all = pairs("V", "a=b, Authorization=Bearer%20x=,").ok();
        let want = [("a".into(), "b".into()), ("Authorization".into(), "Bearer x=".into())];
        assert_eq!(all.as_deref(), Some(&want[..]));
        for bad in ["a", "=b", "a=b,c", "a=%ff"] {
            assert!(pairs("V", bad).is_err(), "{bad}");
        }
    }
}
