//! Reads the times of `--at`, and shows times of answers in local time.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taskdiag::calendar::{DateTime, Moments};

use crate::limits;

/// A time of `--at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A moment.
    Moment(SystemTime),
    /// A time of the day.
    Clock {
        /// Hours, minutes and seconds.
        time: (i64, i64, i64),
        /// In UTC instead of local time?
        is_utc: bool,
    },
    /// This long ago.
    Ago(Duration),
}

impl FromStr for At {
    type Err = String;
    fn from_str(text: &str) -> Result<At, String> {
        parse(text).unwrap_or_else(|| {
            Err(String::from(
                "a time is 03:10, 03:10:30 or '2026-11-22 03:10', in UTC with a Z at the end, or -5m for five minutes ago, \
                 or @ and seconds since 1970",
            ))
        })
    }
}

/// `None`: the text is not a time. A time that the local clock shows twice or never is an error.
fn parse(text: &str) -> Option<Result<At, String>> {
    if let Some(ago) = text.strip_prefix('-') {
        return Some(Ok(At::Ago(limits::duration(ago).ok()?)));
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = numbers(seconds, '.', 20)?;
        let [seconds] = seconds[..] else { return None };
        return Some(Ok(At::Moment(UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?)));
    }
    let (text, is_utc) = match text.strip_suffix('Z') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let Some((date, clock)) = text.split_once([' ', 'T']) else {
        return Some(Ok(At::Clock { time: clock(text)?, is_utc }));
    };
    let [year, month, day] = numbers(date, '-', 4)?[..] else { return None };
    let date = (year as i64, month as i64, day as i64);
    let written = DateTime::new(date, self::clock(clock)?).filter(|_| year >= 1970)?;
    match written.moment(is_utc) {
        Ok(unix) => Some(Ok(At::Moment(system_time(unix)?))),
        Err(why) => Some(Err(why)),
    }
}

/// Hours, minutes, and seconds if there are any.
fn clock(text: &str) -> Option<(i64, i64, i64)> {
    let (h, m, s) = match numbers(text, ':', 2)?[..] {
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return None,
    };
    (h < 24 && m < 60 && s < 60).then_some((h as i64, m as i64, s as i64))
}

/// Numbers of at most this many digits.
fn numbers(text: &str, sign: char, digits: usize) -> Option<Vec<u64>> {
    let is_number =
        |s: &str| (1..=digits).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_digit());
    text.split(sign).map(|s| is_number(s).then(|| s.parse().ok())?).collect()
}

fn system_time(unix: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(unix).ok()?))
}

fn unix(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) as i64
}

impl At {
    /// The moment that the user means. `newest` is the time of the last answer in the recording,
    /// and `every` the interval. A time of the day is the last such time before the end of the
    /// interval after `newest`.
    ///
    /// # Errors
    /// On that day, the local clock showed the time twice or never.
    pub fn moment(
        self,
        newest: SystemTime,
        every: Duration,
        now: SystemTime,
    ) -> Result<SystemTime, String> {
        match self {
            At::Moment(time) => Ok(time),
            At::Ago(ago) => Ok(now.checked_sub(ago).unwrap_or(UNIX_EPOCH)),
            At::Clock { time, is_utc } => {
                let last = unix(newest + every);
                let unix = match is_utc {
                    true => last_in_utc(time, last),
                    false => last_in_local(time, last)?,
                };
                Ok(system_time(unix).unwrap_or(UNIX_EPOCH))
            }
        }
    }
}

/// The last moment up to `last` when a clock in UTC showed this time of the day.
fn last_in_utc(time: (i64, i64, i64), last: i64) -> i64 {
    let on = |days_before| DateTime::in_utc(last).with_time(time, days_before).utc();
    if on(0) <= last { on(0) } else { on(1) }
}

/// As `last_in_utc`, with the local clock.
fn last_in_local(time: (i64, i64, i64), last: i64) -> Result<i64, String> {
    let end = DateTime::in_local(last);
    let mut days_before = 0;
    loop {
        let asked = end.with_time(time, days_before);
        match asked.local() {
            Moments::One(unix) | Moments::Two(unix, _) if unix > last => {}
            // The second time is in the future, or there is only one.
            Moments::Two(first, second) if second > last => return Ok(first),
            Moments::One(unix) => return Ok(unix),
            Moments::Two(first, second) => return Err(asked.twice(first, second)),
            Moments::Never(changed) if changed > last => {}
            Moments::Never(changed) => return Err(asked.never(changed)),
        }
        days_before += 1;
    }
}

/// A moment in local time: `2026-11-22 03:10:00`.
pub fn shown(time: SystemTime) -> String {
    DateTime::in_local(unix(time)).to_string()
}

/// A local time with the name of the time zone: `2026-11-22 03:10:00 CET`. Without the name, a user
/// who gave a time in UTC would read it as UTC.
pub fn zoned(time: SystemTime) -> String {
    // SAFETY: a struct of integers and a pointer that may be null.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // The type is time_t. Its name is not written because the crate libc deprecates it on musl.
    let t = unix(time) as _;
    // SAFETY: both are live and of the right type, and the call writes to nothing else.
    unsafe { libc::localtime_r(&t, &mut tm) };
    match tm.tm_zone.is_null() {
        true => shown(time),
        false => {
            // SAFETY: localtime_r() made it point to the name of a time zone, which stays valid
            // until another zone is set.
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
    fn each_form_of_a_time_is_parsed() {
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
            shown(
                text.parse::<At>()
                    .expect("it is one")
                    .moment(newest, every, newest + every)
                    .expect("one"),
            )
        };
        assert_eq!(of("03:09"), "2026-11-22 03:09:00");
        assert_eq!(of("03:10"), "2026-11-22 03:10:00");
        assert_eq!(of("03:10:06"), "2026-11-21 03:10:06");
        assert_eq!(of("00:00"), "2026-11-22 00:00:00");
        assert_eq!(of("-5s"), "2026-11-22 03:10:00");
        let utc = |text: &str| {
            text.parse::<At>().expect("it is one").moment(newest, every, newest).expect("one")
        };
        assert_eq!(utc("03:10:00Z"), at(1_795_317_000));
        assert_eq!(utc("23:59Z"), at(1_795_317_000 - 3 * 3600 - 11 * 60));
        assert_eq!(of("2026-01-01 00:00"), "2026-01-01 00:00:00");
    }

    #[test]
    fn lengths_of_time_are_written_in_two_units_at_most() {
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
