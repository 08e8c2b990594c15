//! Reads the lists of processors that sysfs has, such as `0-3,8`.
//!
//! These files are opened by the code that needs them.

use std::ops::RangeInclusive;

/// The ranges of a list, in its order. `None` if it is not such a list. The list of a NUMA node
/// without processors is empty, and has no range.
pub fn ranges(list: &[u8]) -> Option<Vec<RangeInclusive<u32>>> {
    let list = std::str::from_utf8(list).ok()?.trim();
    let one = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(first..=last)
    };
    if list.is_empty() {
        return Some(Vec::new());
    }
    list.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(ranges(b"0\n"), Some(vec![0..=0]));
        assert_eq!(ranges(b"0-3,8,10-11\n"), Some(vec![0..=3, 8..=8, 10..=11]));
        assert_eq!(ranges(b"\n"), Some(vec![]));
        for bad in [&b"x"[..], b"3-1", b"1,,2", b"0-4294967296", b"-1", b"\xff"] {
            assert_eq!(ranges(bad), None, "{bad:?}");
        }
    }
}
