//! `--budget` and `--max-rss`: how much of the machine's time an answer may take. Walking the
//! pages of a process takes milliseconds a GiB, for which it cannot change its mappings.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use taskdiag::Request;

/// What was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLimits {
    /// Time for all walks over pages together.
    pub budget: Option<Duration>,
    /// No walk over the pages of larger processes.
    pub max_rss: Option<NonZeroU64>,
}

impl PageLimits {
    /// The options.
    pub fn options() -> [Arg; 2] {
        [
            Arg::new("budget").long("budget").value_name("TIME").value_parser(duration).help(
                "Stop walking over pages after this time, such as 500ms or 2s. Processes that were not reached show ?. The \
                 last one may take a little longer.",
            ),
            Arg::new("max-rss")
                .long("max-rss")
                .value_name("SIZE")
                .value_parser(size)
                .help("Walk over no pages of processes larger than this, such as 2G or 500M"),
        ]
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> PageLimits {
        PageLimits {
            budget: m.get_one::<Duration>("budget").copied(),
            max_rss: m.get_one::<NonZeroU64>("max-rss").copied(),
        }
    }
    /// Make them part of a request.
    pub fn put_into(&self, request: &mut Request) {
        (request.budget, request.max_rss_bytes) = (self.budget, self.max_rss);
    }
}

/// A number and the unit behind it; `None`: not a number that makes sense.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok().filter(|n: &f64| *n > 0.0 && n.is_finite())?, unit))
}

/// `500ms`, `1.5s`, `2m`; without a unit, seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let scale = |unit: &str| {
        Some(match unit {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        })
    };
    number(text)
        .and_then(|(n, unit)| Duration::try_from_secs_f64(n * scale(unit)?).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| {
            "a time is a number above 0 with us, ms, s, m, h or d, such as 500ms".to_owned()
        })
}

/// `2G`, `500M`, `64KiB`: powers of 1024; without a unit, bytes.
pub fn size(text: &str) -> Result<NonZeroU64, String> {
    let scale = |unit: &str| {
        let unit = unit.trim_end_matches("iB").trim_end_matches('B');
        Some(match unit.to_ascii_uppercase().as_str() {
            "" => 1u64,
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            _ => return None,
        })
    };
    number(text)
        .and_then(|(n, unit)| NonZeroU64::new((n * scale(unit)? as f64) as u64))
        .ok_or_else(|| "a size is a number above 0 with K, M, G or T, such as 2G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, us) in [
            ("500ms", 500_000),
            ("1.5s", 1_500_000),
            ("2", 2_000_000),
            ("1m", 60_000_000),
            ("2d", 172_800_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for bad in ["", "ms", "-1s", "1x", "0", "1e9s", "99999999999999999999h", "0.0000001us"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("2G", 2 << 30), ("1.5K", 1536), ("64KiB", 65536), ("1MB", 1 << 20), ("7", 7)]
        {
            assert_eq!(size(text).map(NonZeroU64::get), Ok(bytes), "{text}");
        }
        for bad in ["", "G", "0", "0.1", "-1", "1X", "2 G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
