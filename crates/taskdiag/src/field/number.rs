//! Writes numbers as text. Long tables have millions of them, so this is written by hand.

/// The hexadecimal digits.
pub const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes a number in decimal at the end of `cell`, which must have room for it (20 digits are
/// always enough). Returns where the number begins.
#[inline]
pub fn digits_at_end(cell: &mut [u8], mut v: u64) -> usize {
    let mut at = cell.len();
    loop {
        at -= 1;
        cell[at] = b'0' + (v % 10) as u8;
        v /= 10;
        if v == 0 {
            return at;
        }
    }
}

/// Appends a number in decimal.
pub fn write_uint(out: &mut Vec<u8>, v: u64) {
    let mut cell = [0u8; 20];
    let at = digits_at_end(&mut cell, v);
    out.extend_from_slice(&cell[at..]);
}

/// At least `least` hexadecimal digits of a number, the highest first.
pub(super) fn hex_digits(v: u64, least: u32) -> impl Iterator<Item = u8> {
    let digits = v.checked_ilog2().map_or(1, |bit| bit / 4 + 1).max(least);
    (0..digits).rev().map(move |i| HEX[(v >> (i * 4) & 15) as usize])
}
