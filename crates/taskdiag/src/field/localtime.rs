//! Seconds since 1970 as local calendar time.
//!
//! `localtime_r` takes a lock and searches the zone's transitions. An answer has tens of thousands
//! of start times within a few quarters of an hour, and no zone changes during a quarter. So the
//! last quarter that was converted is kept.

use std::cell::Cell;

/// A point in local time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Full year.
    pub year: i32,
    /// 0 to 11.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 is Sunday.
    pub weekday: u8,
    /// Day in the year, from 0.
    pub yearday: u16,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 60.
    pub second: u8,
}

/// The converter.
#[derive(Debug, Default)]
pub struct LocalTime {
    quarter: Cell<Option<(i64, Local)>>,
}

const QUARTER: i64 = 900;

impl LocalTime {
    /// `unix` in local time.
    pub fn at(&self, unix: i64) -> Local {
        let start = unix.div_euclid(QUARTER) * QUARTER;
        let base = match self.quarter.get() {
            Some((s, l)) if s == start => l,
            _ => {
                let l = convert(start);
                self.quarter.set(Some((start, l)));
                l
            }
        };
        let within = unix - start + i64::from(base.second) + i64::from(base.minute) * 60;
        if within >= 3600 {
            // The offset of the zone is not a multiple of a quarter, and this quarter crosses an
            // hour.
            return convert(unix);
        }
        Local { minute: (within / 60) as u8, second: (within % 60) as u8, ..base }
    }
}

fn convert(unix: i64) -> Local {
    // SAFETY: `tm` is a plain C struct of integers and one pointer; all zero is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // The type is time_t. Its name is not written because the crate libc deprecates it on musl.
    let t = unix as _;
    // SAFETY: both pointers are to live, properly typed locals; localtime_r writes only to `tm`.
    let ok = unsafe { libc::localtime_r(&t, &mut tm) };
    if ok.is_null() {
        return Local::default();
    }
    Local {
        year: tm.tm_year.saturating_add(1900),
        month: tm.tm_mon as u8,
        day: tm.tm_mday as u8,
        weekday: tm.tm_wday as u8,
        yearday: tm.tm_yday as u16,
        hour: tm.tm_hour as u8,
        minute: tm.tm_min as u8,
        second: tm.tm_sec as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_agrees_with_the_library() {
        let t = LocalTime::default();
        for unix in (1_600_000_000..1_600_090_000).step_by(37) {
            assert_eq!(t.at(unix), convert(unix), "{unix}");
        }
    }
}
