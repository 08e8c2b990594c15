//! Where `taskdiag export --otlp` sends metrics, by its option and OpenTelemetry's variables.

use std::env;

use percent_encoding::percent_decode_str;
use ureq::http::{HeaderName, HeaderValue, Uri};

use crate::exit::Exit;

/// The default endpoint of a collector.
pub const DEFAULT: &str = "http://127.0.0.1:4318";
/// The path of metrics below the endpoint.
const PATH: &str = "/v1/metrics";

/// An OpenTelemetry collector, and the attributes of this host that are sent to it.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The whole URL that gets the metrics. It may have a password, or a token in its query.
    pub url: String,
    /// The URL without possible secrets, for messages.
    pub shown: String,
    /// Headers of each request, which may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Attributes of the resource that are added, or replace those of the host.
    pub resource: Vec<(String, String)>,
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|v| !v.is_empty())
}

/// The pairs of `a=b,c=d` with percent-encoded values, the form of OpenTelemetry's variables.
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

/// A URL without its user, password and query, for messages. `None`: it is not a URL, so any part
/// of it may be secret.
fn shown(url: &str) -> Option<String> {
    let Ok(uri) = url.parse::<Uri>() else {
        return (!url.contains(['@', '?'])).then(|| url.to_owned());
    };
    let scheme = uri.scheme_str().map_or(String::new(), |s| format!("{s}://"));
    let authority = uri.authority().map_or("", |a| a.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = if uri.path() == "/" { "" } else { uri.path() };
    Some(format!("{scheme}{host}{path}"))
}

/// The URL for metrics of an endpoint. `is_base`: the path for metrics is added to the path of the
/// endpoint. Otherwise it is added only if the endpoint has no path.
fn url(endpoint: &str, is_base: bool) -> Result<String, String> {
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
    let path = match uri.path() {
        path if is_base => format!("{}{PATH}", path.trim_end_matches('/')),
        "" | "/" => PATH.to_owned(),
        path => path.to_owned(),
    };
    let query = uri.query().map_or(String::new(), |q| format!("?{q}"));
    Ok(format!("http://{authority}{path}{query}"))
}

impl Collector {
    /// From the option, if it has a value, and the variables.
    ///
    /// # Errors
    /// The settings contradict each other or cannot be used.
    pub fn new(option: Option<&str>) -> Result<Collector, Exit> {
        let (metrics, all) = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let (from, endpoint, is_base) = if let Some(url) = option {
            ("--otlp", url.to_owned(), false)
        } else if let Some(url) = variable(metrics) {
            (metrics, url, false)
        } else if let Some(url) = variable(all) {
            (all, url, true)
        } else {
            ("--otlp", DEFAULT.to_owned(), false)
        };
        let url = url(&endpoint, is_base).map_err(|why| {
            let shown = shown(&endpoint).map_or(String::new(), |s| format!(" {s}"));
            Exit::Usage(format!("{from}{shown}: {why}"))
        })?;
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"] {
            for (key, value) in pairs(name, &variable(name).unwrap_or_default())? {
                let header =
                    HeaderName::try_from(&key).ok().zip(HeaderValue::try_from(&value).ok());
                let wrong =
                    || Exit::Usage(format!("{name}: '{key}' and its value are not a valid header"));
                let header = header.ok_or_else(wrong)?;
                // A header for metrics replaces one of the same name for all signals.
                headers.retain(|(name, _)| *name != header.0);
                headers.push(header);
            }
        }
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource = pairs(name, &variable(name).unwrap_or_default())?;
        resource.extend(variable("OTEL_SERVICE_NAME").map(|v| ("service.name".into(), v)));
        let shown = shown(&url).unwrap_or_default();
        Ok(Collector { url, shown, headers, resource })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_metrics_is_added_to_an_endpoint() {
        for (endpoint, want, base) in [
            (DEFAULT, "http://127.0.0.1:4318/v1/metrics", "http://127.0.0.1:4318/v1/metrics"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics", "http://[::1]:4318/v1/metrics"),
            ("http://h/otlp/", "http://h/otlp/", "http://h/otlp/v1/metrics"),
            ("http://h?key=a/b", "http://h/v1/metrics?key=a/b", "http://h/v1/metrics?key=a/b"),
            ("http://u:p@h/x?k", "http://u:p@h/x?k", "http://u:p@h/x/v1/metrics?k"),
        ] {
            assert_eq!(url(endpoint, false).as_deref(), Ok(want));
            assert_eq!(url(endpoint, true).as_deref(), Ok(base));
        }
        for bad in ["", "h", "h:4318", "http://", "ftp://h", "https://h", "http://h:x"] {
            assert!(url(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_message_has_a_password() {
        for (url, want) in [
            ("http://u:secret@h:4318/v1/metrics?token=secret", Some("http://h:4318/v1/metrics")),
            ("https://secret@[::1]:4318", Some("https://[::1]:4318")),
            ("h:4318", Some("h:4318")),
            ("http://a b", Some("http://a b")),
            ("http://u:secret secret@h", None),
            ("http://h:x?secret", Some("http://h:x")),
        ] {
            assert_eq!(shown(url).as_deref(), want);
        }
    }

    #[test]
    fn variables_of_opentelemetry_are_read() {
        let all = pairs("V", "a=b, Authorization=Bearer%20x=,").ok();
        let want = [("a".into(), "b".into()), ("Authorization".into(), "Bearer x=".into())];
        assert_eq!(all.as_deref(), Some(&want[..]));
        for bad in ["a", "=b", "a=b,c", "a=%ff"] {
            assert!(pairs("V", bad).is_err(), "{bad}");
        }
    }
}
