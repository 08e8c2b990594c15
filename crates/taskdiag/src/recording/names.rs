//! The names of the files of a recording: `2026-11-22.000.tdr` is the first part of the day file of
//! that day, which begins at midnight UTC, and `2026-11-22.000.idx` is its index.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A part of the file of a day. Parts are in the order in which they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Days since 1970.
    pub day: u32,
    /// The number of this part of the day, from 0.
    pub number: u32,
}

impl Part {
    /// The first part of the day of this time.
    pub fn first_of(time: SystemTime) -> Part {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Part { day: u32::try_from(seconds / DAY).unwrap_or(u32::MAX), number: 0 }
    }
    /// The part after this one in the same day.
    pub fn next(self) -> Part {
        Part { number: self.number + 1, ..self }
    }
    /// When its day ends. It has no later frame.
    pub fn day_end(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs((u64::from(self.day) + 1) * DAY)
    }
    /// Parses the name of a day file. `None`: it is not one.
    pub fn from_name(name: &str) -> Option<Part> {
        let (date, number) = name.strip_suffix(".tdr")?.split_once('.')?;
        let mut ymd = date.split('-').map(|n| n.parse::<i32>().ok());
        let (year, month, day) = (ymd.next()??, ymd.next()??, ymd.next()??);
        let day = u32::try_from(days(year, month, day)?).ok()?;
        let part = Part { day, number: number.parse().ok()? };
        // Each part has exactly one valid name: no single digits, no signs, no 31st of February.
        (part.name() == name).then_some(part)
    }
    /// The name of the day file.
    pub fn name(self) -> String {
        let (year, month, day) = date(self.day);
        format!("{year:04}-{month:02}-{day:02}.{:03}.tdr", self.number)
    }
    /// The day file in this directory.
    pub fn data(self, dir: &Path) -> PathBuf {
        dir.join(self.name())
    }
    /// Its index.
    pub fn index(self, dir: &Path) -> PathBuf {
        dir.join(self.name()).with_extension("idx")
    }
}

fn date(days: u32) -> (i32, i32, i32) {
    let seconds = libc::time_t::from(days) * DAY as libc::time_t;
    // SAFETY: all of the struct may be zero, and the call writes to nothing else.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&seconds, &mut tm);
        tm
    };
    (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday)
}

fn days(year: i32, month: i32, day: i32) -> Option<i64> {
    if !(1970..=9999).contains(&year) {
        return None;
    }
    // SAFETY: all of the struct may be zero, and the call only reads and normalises it.
    let seconds = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        (tm.tm_year, tm.tm_mon, tm.tm_mday) = (year - 1900, month.checked_sub(1)?, day);
        libc::timegm(&mut tm)
    };
    Some(seconds / DAY as libc::time_t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_its_file_name() {
        for seconds in (0..4_000_000_000u64).step_by(7_777_777) {
            let first = Part::first_of(UNIX_EPOCH + Duration::from_secs(seconds));
            for part in [first, Part { number: 7, ..first }, Part { number: 12_345, ..first }] {
                assert_eq!(Part::from_name(&part.name()), Some(part), "{}", part.name());
            }
        }
        let leap = Part::from_name("2024-02-29.001.tdr").expect("it is a name");
        assert_eq!(leap.next().name(), "2024-02-29.002.tdr");
        assert_eq!(leap.index(Path::new("/d")), Path::new("/d/2024-02-29.001.idx"));
        assert_eq!(Part::first_of(leap.day_end()).name(), "2024-03-01.000.tdr");
    }

    #[test]
    fn names_of_other_files_are_no_parts() {
        for name in [
            "2024-02-30.000.tdr",
            "2024-2-3.000.tdr",
            "2024-02-03.0.tdr",
            "2024-02-03.+00.tdr",
            "2024-02-03.000.idx",
            "2024-02-03.000.tdr.gz",
            "2024-02-03-1.000.tdr",
            "1969-12-31.000.tdr",
            "writer.lock",
            ".tdr",
        ] {
            assert_eq!(Part::from_name(name), None, "{name}");
        }
    }
}
