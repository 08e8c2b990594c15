//! The time of day in a format of strftime(3).

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

/// The longest text that a format may give.
const LONGEST: usize = 4096;

/// The current time in this format; empty if the format gives too much text, or no text.
pub(super) fn formatted(format: &OsStr) -> Vec<u8> {
    let Ok(format) = CString::new(format.as_bytes()) else { return Vec::new() };
    let mut out = vec![0u8; LONGEST];
    // SAFETY: `tm` is plain data that localtime_r fills in, and the length passed is the size of
    // the buffer.
    let len = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const now, &raw mut tm).is_null() {
            return Vec::new();
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), &raw const tm)
    };
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_gives_the_time() {
        let year = String::from_utf8(formatted(OsStr::new("==%Y"))).expect("digits");
        assert!(year.strip_prefix("==").is_some_and(|y| y.parse::<u32>().is_ok_and(|y| y > 2000)));
        assert!(formatted(OsStr::new("")).is_empty());
    }
}
