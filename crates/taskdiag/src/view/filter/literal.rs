//! Values in expressions: sizes, durations, times, numbers. All numbers are compared in billionths,
//! so that `1.5` and `200ms` are exact.

use std::time::Duration;

use crate::calendar::{DateTime, Moments};

/// The number 1 in billionths.
pub(super) const ONE: i128 = 1_000_000_000;

/// A number may have this many digits. No field has longer ones.
const DIGITS: usize = 24;

/// A number at the start of `text` in billionths, and the text after it. Digits after the ninth
/// decimal place are ignored.
fn number(text: &str) -> Option<(i128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > DIGITS || !is_number(part) || digits.ends_with('.') {
        return None;
    }
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    Some((whole.parse::<i128>().ok()? * ONE + part.parse::<i128>().ok()?, rest))
}

/// A plain number, which may be negative or hexadecimal. If `percent` is true, a `%` may follow it.
pub(super) fn plain(text: &str, percent: bool) -> Option<i128> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return Some(i128::from(u64::from_str_radix(hex, 16).ok()?) * ONE);
    }
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, text),
    };
    match number(text)? {
        (n, "") => Some(sign * n),
        (n, "%") if percent => Some(sign * n),
        _ => None,
    }
}

/// A size in bytes: `100M`, `1.5G`, `64KiB`. The units are powers of 1024.
pub(super) fn size(text: &str) -> Option<i128> {
    let (n, unit) = number(text)?;
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let unit = unit.strip_suffix('I').unwrap_or(unit);
    let power = match unit {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    n.checked_mul(1 << (10 * power))
}

/// The bytes of a size as written in expressions, such as `2G`, `1.5M` or `64KiB`. The units are
/// powers of 1024, and part of a byte is left out. `None`: it is not such a size.
pub fn parse_size(text: &str) -> Option<u64> {
    u64::try_from(size(text)? / ONE).ok()
}

/// A duration as written in expressions, such as `500ms`, `1.5s` or `1h30m`. A plain number means
/// seconds. `None`: it is not such a duration.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let ns = duration(text)?;
    let whole = u64::try_from(ns / ONE).ok()?;
    Some(Duration::new(whole, (ns % ONE) as u32))
}

/// A duration: `10s`, `5m`, `2h`, `3d`, `1h30m`. A plain number means seconds.
pub(super) fn duration(text: &str) -> Option<i128> {
    let mut total: i128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (n, tail) = number(rest)?;
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (unit_ns, ns) = match unit {
            "ns" => (1, ONE),
            "us" | "µs" => (1_000, ONE),
            "ms" => (1_000_000, ONE),
            "s" => (1, 1),
            "" if rest.len() == text.len() => (1, 1),
            "m" | "min" => (60, 1),
            "h" => (3_600, 1),
            "d" => (86_400, 1),
            "w" => (604_800, 1),
            _ => return None,
        };
        total = total.checked_add(n.checked_mul(unit_ns)? / ns)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// A time in ns since 1970. It is written as a number of seconds, or as `YYYY-MM-DD`, which may be
/// followed by a blank or a T and `HH:MM` or `HH:MM:SS`. It is local time, or UTC with a Z at the
/// end. A date without a time is the moment when that day begins. `None`: it is not a time.
///
/// # Errors
/// The local clock shows this twice or never.
pub(super) fn moment(text: &str) -> Option<Result<i128, String>> {
    if let Some(seconds) = plain(text, false) {
        return Some(Ok(seconds));
    }
    let (text, utc) = match text.strip_suffix('Z') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let numbers = |text: &str, sign: char| -> Option<Vec<i64>> {
        let is_number =
            |s: &str| !s.is_empty() && s.len() <= 4 && s.bytes().all(|b| b.is_ascii_digit());
        text.split(sign).map(|s| is_number(s).then(|| s.parse().ok())?).collect()
    };
    let [year, month, day] = numbers(date, '-')?[..] else { return None };
    let clock = match numbers(time.unwrap_or("00:00"), ':')?[..] {
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return None,
    };
    let written = DateTime::new((year, month, day), clock)?;
    let unix = match (time, written.moment(utc)) {
        // In some zones, the clock is changed at midnight.
        (None, Err(_)) => match written.local() {
            Moments::One(unix) | Moments::Two(unix, _) | Moments::Never(unix) => Ok(unix),
        },
        (_, moment) => moment,
    };
    Some(unix.map(|unix| i128::from(unix) * ONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_exactly() {
        for (text, want) in [
            ("0", Some(0)),
            ("7", Some(7 * ONE)),
            ("-20", Some(-20 * ONE)),
            ("1.5", Some(ONE * 3 / 2)),
            ("0x10", Some(16 * ONE)),
            ("0.0000000019", Some(1)),
            ("", None),
            (".5", None),
            ("5.", None),
            ("1e3", None),
            ("1.2.3", None),
            ("0x", None),
            ("9999999999999999999999999", None),
        ] {
            assert_eq!(plain(text, false), want, "{text}");
        }
        assert_eq!((plain("5%", true), plain("5%", false)), (Some(5 * ONE), None));
    }

    #[test]
    fn sizes_are_parsed_with_units() {
        for (text, bytes) in [
            ("7", 7),
            ("2G", 2 << 30),
            ("1.5k", 1536),
            ("64KiB", 65536),
            ("1MB", 1 << 20),
            ("3Ti", 3 << 40),
        ] {
            assert_eq!(size(text), Some(bytes * ONE), "{text}");
        }
        for bad in ["", "G", "-1", "1X", "1KK", "1s"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_are_parsed_with_units() {
        for (text, ms) in [
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("2", 2_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("3d", 259_200_000),
            ("250ms", 250),
        ] {
            assert_eq!(duration(text), Some(ms * ONE / 1000), "{text}");
        }
        assert_eq!(duration("7us"), Some(7_000));
        for bad in ["", "s", "1x", "1h30", "5M", "-1s", "1 h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_parsed_as_dates_and_times() {
        for (text, seconds) in [
            ("1767268800", 1_767_268_800),
            ("2026-01-01 12:00Z", 1_767_268_800),
            ("2026-01-01T12:00:01Z", 1_767_268_801),
            ("1970-01-01Z", 0),
        ] {
            assert_eq!(moment(text), Some(Ok(seconds * ONE)), "{text}");
        }
        // Local time is within a day of UTC.
        let local = moment("2026-01-01 12:00").expect("a time").expect("one moment") / ONE;
        assert!(local.abs_diff(1_767_268_800) <= 86_400);
        assert!(moment("2024-02-29 23:59:59").is_some());
        for bad in [
            "",
            "2026-13-01",
            "2026-01-32",
            "2026-02-30",
            "2026-02-29Z",
            "2026-04-31 12:00",
            "2026-01-01 24:00",
            "2026-01-01 12:60",
            "2026-01-01 12:00:60",
            "2026-01",
            "x",
        ] {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }
}
