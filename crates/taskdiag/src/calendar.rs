//! Converts between dates and times of the day as people write them and the seconds that the kernel
//! counts.
//!
//! When a clock is set back, it shows an hour twice, and when it is set forward, it skips an hour.
//! In both cases, mktime(3) silently chooses a moment, and the user may mean the other one.

use std::fmt;

/// An instant in ns since boot. It is negative for tasks that began before the boot time of the
/// reader's time namespace: the kernel's numbers are unsigned and wrap.
pub fn since_boot(instant_ns: u64) -> i64 {
    instant_ns as i64
}

/// A date and a time of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// Seconds since 1970, if the time were UTC.
    seconds: i64,
}

/// When the local clock shows a time, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    /// Once.
    One(i64),
    /// Twice, because the clock is set back between the two.
    Two(i64, i64),
    /// Never, because the clock skips it at this moment.
    Never(i64),
}

const DAY: i64 = 86_400;
/// Clocks differ at most this much from UTC, including changes of the date line.
const FAR: i64 = 27 * 3600;

/// Days since 1970 of a date of the Gregorian calendar. The formula is Howard Hinnant's
/// `days_from_civil`: years begin in March, so that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

impl DateTime {
    /// `None`: there is no such date or time.
    pub fn new(
        (year, month, day): (i64, i64, i64),
        (h, m, s): (i64, i64, i64),
    ) -> Option<DateTime> {
        let is_time = (0..24).contains(&h) && (0..60).contains(&m) && (0..60).contains(&s);
        if !is_time || !(0..=9999).contains(&year) || !(1..=12).contains(&month) {
            return None;
        }
        let of_epoch = days(year, month, day);
        let is_date = (1..=31).contains(&day) && date(of_epoch) == (year, month, day);
        is_date.then_some(DateTime { seconds: of_epoch * DAY + h * 3600 + m * 60 + s })
    }
    /// The UTC time at a moment, in seconds since 1970.
    pub fn in_utc(unix: i64) -> DateTime {
        DateTime { seconds: unix }
    }
    /// The local time at a moment, in seconds since 1970.
    pub fn in_local(unix: i64) -> DateTime {
        DateTime { seconds: unix.saturating_add(offset(unix)) }
    }
    /// Another time of the day, this many days earlier.
    pub fn with_time(self, (h, m, s): (i64, i64, i64), days_before: i64) -> DateTime {
        let midnight = (self.seconds.div_euclid(DAY) - days_before) * DAY;
        DateTime { seconds: midnight + h * 3600 + m * 60 + s }
    }
    /// When a clock in UTC shows this, in seconds since 1970.
    pub fn utc(self) -> i64 {
        self.seconds
    }
    /// When the local clock shows this.
    pub fn local(self) -> Moments {
        self.moments(offset)
    }
    /// The one moment at which a clock shows this, in seconds since 1970.
    ///
    /// # Errors
    /// The local clock shows this twice or never. The text says what to write.
    pub fn moment(self, is_utc: bool) -> Result<i64, String> {
        if is_utc {
            return Ok(self.utc());
        }
        match self.local() {
            Moments::One(unix) => Ok(unix),
            Moments::Two(first, second) => Err(self.twice(first, second)),
            Moments::Never(changed) => Err(self.never(changed)),
        }
    }
    /// The error for a time that the clock shows twice, with a hint.
    pub fn twice(self, first: i64, second: i64) -> String {
        let (first, second) = (DateTime::in_utc(first), DateTime::in_utc(second));
        format!(
            "the local clock shows {self} twice, because it is set back in between: write '{first}Z' for the first time, or \
             '{second}Z' for the second"
        )
    }
    /// The error for a time that the clock never shows, with a hint.
    pub fn never(self, changed: i64) -> String {
        let (before, after) = (DateTime::in_local(changed - 1), DateTime::in_local(changed));
        let changed = DateTime::in_utc(changed);
        format!(
            "the local clock never shows {self}: after {before} comes {after}, which is '{changed}Z'; write a time before or after that"
        )
    }
    /// `offset` is how far the clock is ahead of UTC at a moment.
    fn moments(self, offset: impl Fn(i64) -> i64) -> Moments {
        // A clock that shows `seconds` does so at `seconds - offset`, so all offsets of these days
        // are tried.
        let mut offsets: Vec<i64> =
            (-FAR..=FAR).step_by(1800).map(|by| offset(self.seconds.saturating_add(by))).collect();
        offsets.sort_unstable();
        offsets.dedup();
        // The largest offset gives the earliest moment.
        let tried = offsets.iter().rev().map(|o| self.seconds.saturating_sub(*o));
        let mut found = tried.filter(|unix| unix + offset(*unix) == self.seconds);
        match (found.next(), found.last()) {
            (Some(one), None) => Moments::One(one),
            (Some(first), Some(last)) => Moments::Two(first, last),
            (None, _) => {
                let (mut low, mut high) = (self.seconds - FAR, self.seconds + FAR);
                // The clock shows less than this at `low`, and more at `high`.
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    match middle + offset(middle) < self.seconds {
                        true => low = middle,
                        false => high = middle,
                    }
                }
                Moments::Never(high)
            }
        }
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.seconds.div_euclid(DAY));
        let s = self.seconds.rem_euclid(DAY);
        let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}")
    }
}

/// How far local time is ahead of UTC at a moment, in seconds.
fn offset(unix: i64) -> i64 {
    // SAFETY: `tm` is a plain C struct of integers and one pointer; all zero is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // The type is time_t. Its name is not written because the crate libc deprecates it on musl.
    let t = unix as _;
    // SAFETY: both pointers are to live, properly typed locals; localtime_r writes only to `tm`.
    let ok = unsafe { libc::localtime_r(&t, &mut tm) };
    // The type of tm_gmtoff is a `long`, which is not i64 everywhere.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    if ok.is_null() { 0 } else { tm.tm_gmtoff as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(date: (i64, i64, i64), time: (i64, i64)) -> DateTime {
        DateTime::new(date, (time.0, time.1, 0)).expect("there is such a time")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, unix) in [
            (((1970, 1, 1), (0, 0)), 0),
            (((2000, 2, 29), (12, 0)), 951_825_600),
            (((2026, 11, 22), (3, 10)), 1_795_317_000),
            (((1969, 12, 31), (23, 59)), -60),
        ] {
            assert_eq!(at(text.0, text.1).utc(), unix);
        }
        for day in (-800_000..2_000_000).step_by(17) {
            let (y, m, d) = date(day);
            assert_eq!(days(y, m, d), day);
        }
        for (date, time) in [
            ((2026, 2, 29), (0, 0, 0)),
            ((2026, 4, 31), (0, 0, 0)),
            ((2026, 13, 1), (0, 0, 0)),
            ((2026, 1, 0), (0, 0, 0)),
            ((2026, 1, 1), (24, 0, 0)),
            ((2026, 1, 1), (0, 0, 60)),
        ] {
            assert_eq!(DateTime::new(date, time), None, "{date:?} {time:?}");
        }
        assert_eq!(at((2026, 1, 2), (3, 4)).to_string(), "2026-01-02 03:04:00");
    }

    /// A clock that goes from one offset to another at a moment.
    fn change(moment: i64, before: i64, after: i64) -> impl Fn(i64) -> i64 {
        move |unix| if unix < moment { before } else { after }
    }

    #[test]
    fn a_clock_that_is_set_back_shows_an_hour_twice() {
        // Berlin, at 01:00 UTC.
        let autumn = at((2026, 10, 25), (1, 0)).utc();
        let berlin = || change(autumn, 7200, 3600);
        let night = |h, m| at((2026, 10, 25), (h, m)).moments(berlin());
        assert_eq!(night(1, 59), Moments::One(autumn - 3660));
        assert_eq!(night(2, 0), Moments::Two(autumn - 3600, autumn));
        assert_eq!(night(2, 31), Moments::Two(autumn - 1740, autumn + 1860));
        assert_eq!(night(3, 0), Moments::One(autumn + 3600));
        // Lord Howe Island sets its clock by half an hour, at 15:00 UTC.
        let april = at((2026, 4, 4), (15, 0)).utc();
        let howe = || change(april, 11 * 3600, 37_800);
        let night = |h, m| at((2026, 4, 5), (h, m)).moments(howe());
        assert_eq!(night(1, 29), Moments::One(april - 31 * 60));
        assert_eq!(night(1, 45), Moments::Two(april - 15 * 60, april + 15 * 60));
        assert_eq!(night(2, 0), Moments::One(april + 1800));
    }

    #[test]
    fn a_clock_that_is_set_forward_skips_an_hour() {
        let spring = at((2026, 3, 29), (1, 0)).utc();
        let berlin = || change(spring, 3600, 7200);
        let night = |h, m| at((2026, 3, 29), (h, m)).moments(berlin());
        assert_eq!(night(1, 59), Moments::One(spring - 60));
        assert_eq!(night(2, 0), Moments::Never(spring));
        assert_eq!(night(2, 59), Moments::Never(spring));
        assert_eq!(night(3, 0), Moments::One(spring));
        // Samoa had no 30 December 2011.
        let samoa = at((2011, 12, 30), (10, 0)).utc();
        let dates = |d, h| at((2011, 12, d), (h, 0)).moments(change(samoa, -10 * 3600, 14 * 3600));
        assert_eq!(dates(30, 12), Moments::Never(samoa));
        assert_eq!(dates(31, 0), Moments::One(samoa));
        assert_eq!(dates(29, 23), Moments::One(samoa - 3600));
    }
}
