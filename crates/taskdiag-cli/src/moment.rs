//! Reads the times of `--at`, and shows times of answers in local time.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::limits;

/// A time of `--at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A moment.
    Moment(SystemTime),
    /// A time of the day.
    Clock {
        /// Hours, minutes and seconds.
        time: (i32, i32, i32),
        /// In UTC instead of local time?
        is_utc: bool,
    },
    /// This long ago.
    Ago(Duration),
}

impl FromStr for At {
    type Err = String;
    fn from_str(text: &str) -> Result<At, String> {
        parse(text).ok_or_else(|| {
            String::from(
                "a time is 03:10, 03:10:30 or '2026-11-22 03:10', in UTC with a Z at the end, or -5m for five minutes ago, \
                 or @ and seconds since 1970",
            )
        })
    }
}

fn parse(text: &str) -> Option<At> {
    if let Some(ago) = text.strip_prefix('-') {
        return Some(At::Ago(limits::duration(ago).ok()?));
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = numbers(seconds, '.', 20)?;
        let [seconds] = seconds[..] else { return None };
        return Some(At::Moment(UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?));
    }
    let (text, is_utc) = match text.strip_suffix('Z') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let Some((date, clock)) = text.split_once([' ', 'T']) else {
        return Some(At::Clock { time: clock(text)?, is_utc });
    };
    let [year, month, day] = numbers(date, '-', 4)?[..] else { return None };
    let (h, m, s) = self::clock(clock)?;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut tm = blank();
    (tm.tm_year, tm.tm_mon, tm.tm_mday) = (year as i32 - 1900, month as i32 - 1, day as i32);
    (tm.tm_hour, tm.tm_min, tm.tm_sec) = (h, m, s);
    // The 31st of February is another day for the C library.
    let is_same_day = |tm: &libc::tm| tm.tm_mday == day as i32;
    let time = unix(&mut tm, is_utc)?;
    is_same_day(&tm).then_some(At::Moment(time))
}

/// Hours, minutes, and seconds if there are any.
fn clock(text: &str) -> Option<(i32, i32, i32)> {
    let (h, m, s) = match numbers(text, ':', 2)?[..] {
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return None,
    };
    (h < 24 && m < 60 && s < 60).then_some((h as i32, m as i32, s as i32))
}

/// Numbers of at most so many digits.
fn numbers(text: &str, sign: char, digits: usize) -> Option<Vec<u64>> {
    let is_number =
        |s: &str| (1..=digits).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_digit());
    text.split(sign).map(|s| is_number(s).then(|| s.parse().ok())?).collect()
}

fn blank() -> libc::tm {
    // SAFETY: a struct of integers and a pointer that may be null.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    tm.tm_isdst = -1;
    tm
}

/// The moment of a calendar time. The struct is normalised: the 32nd of a month becomes a day of the next one.
fn unix(tm: &mut libc::tm, is_utc: bool) -> Option<SystemTime> {
    // SAFETY: the calls only read and normalise the struct.
    let seconds = unsafe { if is_utc { libc::timegm(tm) } else { libc::mktime(tm) } };
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

fn calendar(time: SystemTime, is_utc: bool) -> libc::tm {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) as libc::time_t;
    let mut tm = blank();
    let convert = if is_utc { libc::gmtime_r } else { libc::localtime_r };
    // SAFETY: both are live and of the right type, and the call writes to nothing else.
    unsafe { convert(&seconds, &mut tm) };
    tm
}

impl At {
    /// The moment that is meant. `newest` is the time of the last answer in the recording, and `every` the interval. A
    /// time of the day is the last such time before the end of the interval after `newest`.
    pub fn moment(self, newest: SystemTime, every: Duration, now: SystemTime) -> SystemTime {
        match self {
            At::Moment(time) => time,
            At::Ago(ago) => now.checked_sub(ago).unwrap_or(UNIX_EPOCH),
            At::Clock { time: (hour, minute, second), is_utc } => {
                let last = newest + every;
                let on = |days_before: i32| {
                    let mut tm = calendar(last, is_utc);
                    (tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_isdst) = (hour, minute, second, -1);
                    tm.tm_mday -= days_before;
                    unix(&mut tm, is_utc)
                };
                on(0).filter(|time| *time <= last).or_else(|| on(1)).unwrap_or(UNIX_EPOCH)
            }
        }
    }
}

/// A moment in local time: `2026-11-22 03:10:00`.
pub fn shown(time: SystemTime) -> String {
    let tm = calendar(time, false);
    let (year, month) = (i64::from(tm.tm_year) + 1900, tm.tm_mon + 1);
    let (day, h, m, s) = (tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}")
}

/// The same with the name of the time zone: `2026-11-22 03:10:00 CET`. Whoever asked for a time in UTC would take it for that.
pub fn zoned(time: SystemTime) -> String {
    let tm = calendar(time, false);
    match tm.tm_zone.is_null() {
        true => shown(time),
        false => {
            // SAFETY: localtime_r() made it point to a name of a time zone, which stays until another zone is set.
            let zone = unsafe { std::ffi::CStr::from_ptr(tm.tm_zone) };
            format!("{} {}", shown(time), zone.to_string_lossy())
        }
    }
}

/// A length of time in its largest units: `50 s`, `20 min`, `3 h 20 min`, `5 days`.
pub fn length(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h {} min", s / 3600, s / 60 % 60),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_typed() {
        for (text, want) in [
            ("03:10", At::Clock { time: (3, 10, 0), is_utc: false }),
            ("3:10:07", At::Clock { time: (3, 10, 7), is_utc: false }),
            ("23:59:59Z", At::Clock { time: (23, 59, 59), is_utc: true }),
            ("-5m", At::Ago(Duration::from_secs(300))),
            // Without a unit it is seconds, as in other options.
            ("-5", At::Ago(Duration::from_secs(5))),
            ("-1d", At::Ago(Duration::from_secs(86_400))),
            ("@7", At::Moment(at(7))),
            ("2026-11-22 03:10:00Z", At::Moment(at(1_795_317_000))),
            ("2026-11-22T03:10Z", At::Moment(at(1_795_317_000))),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for bad in [
            "",
            "3",
            "03:60",
            "24:00",
            "03:10:60",
            "03:1O",
            "-",
            "--5m",
            "-5x",
            "@",
            "@x",
            "@1.5",
            "03:10z",
            "03:10ZZ",
            "Z",
            "2026-11-22",
            "2026-02-30 01:00",
            "2026-13-01 01:00",
            "1969-01-01 01:00",
            "2026-11-22 ",
            "2026-11-22 03",
            "22.11.2026 03:10",
            "noon",
            "@99999999999999999999999",
        ] {
            assert!(bad.parse::<At>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_of_the_day_is_the_last_one() {
        let At::Moment(newest) = "2026-11-22 03:09:55".parse().expect("it is one") else {
            panic!()
        };
        let every = Duration::from_secs(10);
        let of = |text: &str| {
            shown(text.parse::<At>().expect("it is one").moment(newest, every, newest + every))
        };
        assert_eq!(of("03:09"), "2026-11-22 03:09:00");
        assert_eq!(of("03:10"), "2026-11-22 03:10:00");
        assert_eq!(of("03:10:06"), "2026-11-21 03:10:06");
        assert_eq!(of("00:00"), "2026-11-22 00:00:00");
        assert_eq!(of("-5s"), "2026-11-22 03:10:00");
        let utc = |text: &str| text.parse::<At>().expect("it is one").moment(newest, every, newest);
        assert_eq!(utc("03:10:00Z"), at(1_795_317_000));
        assert_eq!(utc("23:59Z"), at(1_795_317_000 - 3 * 3600 - 11 * 60));
        assert_eq!(of("2026-01-01 00:00"), "2026-01-01 00:00:00");
    }

    #[test]
    fn lengths() {
        for (seconds, want) in [
            (7, "7 s"),
            (119, "119 s"),
            (1200, "20 min"),
            (12_000, "3 h 20 min"),
            (500_000, "5 days"),
        ] {
            assert_eq!(length(Duration::from_secs(seconds)), want);
        }
    }
}
