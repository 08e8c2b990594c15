//! Values of a fixed number of bytes that are not numbers: the id of a boot, and short texts. All
//! zeroes stand for a value that is not known. So the bytes are private, and `get()` is the only
//! way to them.

use std::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Text of at most `N` bytes. It ends at the first NUL. An empty one is not known.
///
/// ```
/// use taskdiag_wire::Fixed;
///
/// assert_eq!(Fixed::<8>::new(b"web1").get(), Some(&b"web1"[..]));
/// assert_eq!(Fixed::<8>::new(b"longer than that").get(), Some(&b"longer t"[..]));
/// assert_eq!(Fixed::<8>::default().get(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Fixed<const N: usize>([u8; N]);

impl<const N: usize> Fixed<N> {
    /// This text up to its first NUL. Bytes beyond `N` are left out.
    pub fn new(text: &[u8]) -> Fixed<N> {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(text.iter().take_while(|b| **b != 0)) {
            *to = *from;
        }
        Fixed(bytes)
    }
    /// The text, which may have any bytes but NUL. `None`: it is not known.
    pub fn get(&self) -> Option<&[u8]> {
        let len = self.0.iter().position(|b| *b == 0).unwrap_or(N);
        (len > 0).then(|| &self.0[..len])
    }
}

impl<const N: usize> Default for Fixed<N> {
    fn default() -> Fixed<N> {
        Fixed::new_zeroed()
    }
}

impl<const N: usize> fmt::Debug for Fixed<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(text) => write!(f, "\"{}\"", text.escape_ascii()),
            None => f.write_str("unknown"),
        }
    }
}

/// The id that the kernel gives each of its boots.
///
/// ```
/// use taskdiag_wire::BootId;
///
/// let text = "6a7dfd0c-0d4e-4d5a-8a3e-0b8f6c1c2d3e";
/// let id = BootId::parse(text.as_bytes()).expect("it is one");
/// assert_eq!((id.to_string(), BootId::parse(b"a boot")), (text.to_owned(), None));
/// assert_eq!(BootId::default().get(), None);
/// ```
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct BootId([u8; 16]);

impl BootId {
    /// From its 16 bytes.
    pub const fn new(bytes: [u8; 16]) -> BootId {
        BootId(bytes)
    }
    /// From text as in `/proc/sys/kernel/random/boot_id`: 32 hexadecimal digits, with a hyphen
    /// after digits 8, 12, 16 and 20. A line feed may follow.
    pub fn parse(text: &[u8]) -> Option<BootId> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.len() != 36 || [8, 13, 18, 23].iter().any(|at| text[*at] != b'-') {
            return None;
        }
        let mut digits = text.iter().filter(|b| **b != b'-').map(|b| char::from(*b).to_digit(16));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            *byte = (digits.next()?? << 4 | digits.next()??) as u8;
        }
        digits.next().is_none().then_some(BootId(bytes))
    }
    /// The bytes of the id. `None`: it is not known.
    pub fn get(&self) -> Option<[u8; 16]> {
        (self.0 != [0; 16]).then_some(self.0)
    }
    /// Whether both ids are of the same boot. `None`: one of them is not known.
    pub fn is_same(&self, other: &BootId) -> Option<bool> {
        Some(self.get()? == other.get()?)
    }
}

/// In the form of `/proc/sys/kernel/random/boot_id`.
impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&i) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(_) => fmt::Display::fmt(self, f),
            None => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_of_the_kernel_is_an_id_of_a_boot() {
        for wrong in [
            "6a7dfd0c-0d4e-4d5a-8a3e-0b8f6c1c2d3",
            "6a7dfd0c-0d4e-4d5a-8a3e-0b8f6c1c2d3e0",
            "6a7dfd0c00d4e-4d5a-8a3e-0b8f6c1c2d3e",
            "6a7dfd0c-0d4e-4d5a-8a3e-0b8f-c1c2d3e",
            "6a7dfd0c-0d4e-4d5a-8a3e-0b8f6c1c2dge",
            "",
        ] {
            assert_eq!(BootId::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let of = |last| BootId::parse(format!("6a7dfd0c-0d4e-4d5a-8a3e-{last}\n").as_bytes());
        let (a, b) = (of("0b8f6c1c2d3e").expect("one"), of("0b8f6c1c2d3f").expect("one"));
        assert_eq!((a.is_same(&a), a.is_same(&b)), (Some(true), Some(false)));
        assert_eq!((a.is_same(&BootId::default()), BootId::default().is_same(&a)), (None, None));
    }

    #[test]
    fn a_text_without_room_for_a_nul_is_whole() {
        let full = Fixed::<4>::new(b"abcd");
        assert_eq!(full.get(), Some(&b"abcd"[..]));
        assert_eq!(Fixed::<4>::new(b"a\0cd").get(), Some(&b"a"[..]));
        assert_eq!(Fixed::<4>::new(b"\0bcd").get(), None);
        assert_eq!(
            format!("{:?} {:?}", Fixed::<4>::new(b"a\x1b"), Fixed::<4>::default()),
            "\"a\\x1b\" unknown"
        );
    }
}
