//! Turns the text of /proc files into wire records. It does no I/O, keeps no memory of its own, and
//! accepts any bytes.
//!
//! A member is known only if its text is whole. A number that is cut by the end of the data, or
//! that does not fit its type, leaves its `valid` bit clear. The text is never treated as UTF-8.
//!
//! It is public so that the fuzzer and the benches reach it, and is not part of the stable
//! interface.

mod drm;
mod fdinfo;
mod maps;
mod nettext;
mod small;
mod smaps;
mod sockdiag;
mod stat;
mod statm;
mod status;
mod taskstats;
mod waits;

pub use drm::drm;
pub use fdinfo::{FdInfo, FdLink, fd_link, fdinfo};
pub use maps::{MapLine, NOT_IN_MAPS, maps_lines, newlines};
pub use nettext::{interfaces, net_text, unix_addresses};
pub use small::*;
pub use smaps::{rollup, smaps_entries, whole_smaps_entries};
pub use sockdiag::{
    INET_DIAG_EXTENSIONS, Sock, Traffic, inet_diag, netlink_diag, nl_messages, packet_diag,
    sock_of_protocol, unix_diag, unix_vfs,
};
pub use stat::{StatFile, stat};
pub use statm::{statm, statm_sizes};
pub use status::{StatusFile, real_uid, tgid};
pub(super) use taskdiag_wire::layout::bit;
pub use taskstats::{DelayCounts, genl_family, taskstats, taskstats_tgid};
pub use waits::{SchedText, SleepText, SyscallText, lost_ticks, sched, sleep, syscall};

/// Sets a member of a record and its bit of `valid`, if there is a value.
macro_rules! set {
    ($rec:expr, $type:ident.$member:ident, $value:expr) => {
        if let Some(v) = $value {
            $rec.$member = v;
            $rec.valid |=
                const { $crate::engine::procfs::parse::bit($type::MEMBERS, stringify!($member)) };
        }
    };
}
pub(super) use set;

/// Numbers separated by blanks. A number counts only if something follows it: the kernel ends every
/// line, so a number at the very end has been cut.
#[derive(Clone, Copy)]
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(rest: &'a [u8]) -> Fields<'a> {
        Fields { rest }
    }
    /// The next field without the blanks around it. `None` at the end, or if the field is cut.
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|b| !is_blank(*b))?;
        let field = &self.rest[start..];
        let Some(len) = field.iter().position(|b| is_blank(*b)) else {
            self.rest = &[];
            return None;
        };
        self.rest = &field[len..];
        Some(&field[..len])
    }
    fn skip(&mut self, n: usize) {
        for _ in 0..n {
            self.next();
        }
    }
    /// The next field as a number. It is read in one pass, because most fields are numbers.
    #[inline]
    fn u64(&mut self) -> Option<u64> {
        let start = self.rest.iter().position(|b| !is_blank(*b))?;
        let field = &self.rest[start..];
        let mut n = 0u64;
        for (len, b) in field.iter().enumerate() {
            let d = b.wrapping_sub(b'0');
            if d > 9 || len == SAFE_DIGITS {
                if !is_blank(*b) {
                    break;
                }
                self.rest = &field[len..];
                return (len > 0).then_some(n);
            }
            n = n * 10 + u64::from(d);
        }
        // The field is long, or cut, or not a number.
        self.next().and_then(number)
    }
    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.u64().and_then(|n| u32::try_from(n).ok())
    }
    #[inline]
    fn i32(&mut self) -> Option<i32> {
        let field = self.next()?;
        match field.strip_prefix(b"-") {
            Some(digits) => {
                number(digits).and_then(|n| i32::try_from(-i64::try_from(n).ok()?).ok())
            }
            None => number(field).and_then(|n| i32::try_from(n).ok()),
        }
    }
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n')
}

/// A number with this many decimal digits always fits.
const SAFE_DIGITS: usize = 19;

/// Parses a decimal number that fills the whole field.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| {
        let d = b.wrapping_sub(b'0');
        (d <= 9).then_some(())?;
        n.checked_mul(10)?.checked_add(u64::from(d))
    })
}

/// Parses a hexadecimal number without a prefix that fills the whole field.
fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            b'a'..=b'f' => b - b'a' + 10,
            b'A'..=b'F' => b - b'A' + 10,
            _ => return None,
        };
        Some(n << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_or_refused_whole() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "18446744073709551616", "99999999999999999999", "-1", "1x", "x", "+1", " 1"]
        {
            assert_eq!(number(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(hex(b"000001fffeffffff"), Some(0x1ff_feff_ffff));
        assert_eq!(hex(b"ffffffffffffffff"), Some(u64::MAX));
        for bad in ["", "00000000000000000", "g", "+1"] {
            assert_eq!(hex(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn fields_are_numbers_that_fit_their_type() {
        let mut f = Fields::new(b" 1\t-2 2147483648 -2147483648 -2147483649 7");
        assert_eq!(f.u64(), Some(1));
        assert_eq!(f.i32(), Some(-2));
        assert_eq!(f.i32(), None);
        assert_eq!(f.i32(), Some(i32::MIN));
        assert_eq!(f.i32(), None);
        // The last number may be cut.
        assert_eq!(f.u64(), None);
        assert_eq!(f.u64(), None);
        let text = "9999999999999999999 18446744073709551615 18446744073709551616 1x x 5 ";
        let mut f = Fields::new(text.as_bytes());
        assert_eq!(f.u64(), Some(9999999999999999999));
        assert_eq!(f.u64(), Some(u64::MAX));
        assert_eq!((f.u64(), f.u64(), f.u64(), f.u64()), (None, None, None, Some(5)));
        for blank in ["", " ", "\n\n"] {
            assert_eq!(Fields::new(blank.as_bytes()).u64(), None);
        }
    }
}
