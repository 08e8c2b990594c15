//! Structs and their bytes: the casts that users of this crate may rely on.
//!
//! The casts are made by the crate zerocopy, which proves them when this crate is compiled. No type
//! or trait of it is part of the interface: the structs implement its traits because the proof
//! needs that, and a later version of this crate may use another version of it, or none.

pub(crate) mod private {
    /// Implemented by the structs of the format and by nothing else.
    pub trait Sealed {}
}

/// A struct of the format. It has integers only and no padding, so any bytes of its size are a
/// valid one, in the byte order of the machine.
///
/// ```
/// use taskdiag_wire::{NlMsgHdr, Plain};
///
/// let sent = NlMsgHdr { len: 16, kind: taskdiag_wire::NLMSG_NOOP, ..NlMsgHdr::default() };
/// let (read, rest) = NlMsgHdr::read_from_prefix(sent.as_bytes()).expect("it is long enough");
/// assert_eq!((read, rest.len()), (sent, 0));
/// assert_eq!(NlMsgHdr::read_from_prefix(&[0; 15]), None);
/// ```
pub trait Plain: private::Sealed + Copy + 'static {
    /// The struct at the beginning of `bytes`, and the bytes after it. `None`: they are too few, or
    /// not aligned for it.
    fn ref_from_prefix(bytes: &[u8]) -> Option<(&Self, &[u8])>;
    /// A copy of the struct at the beginning of `bytes`, and the bytes after it. `None`: they are
    /// too few.
    fn read_from_prefix(bytes: &[u8]) -> Option<(Self, &[u8])>;
    /// The bytes of several adjacent structs.
    fn slice_as_bytes(all: &[Self]) -> &[u8];
    /// The bytes of the struct.
    fn as_bytes(&self) -> &[u8] {
        Self::slice_as_bytes(std::slice::from_ref(self))
    }
}

/// Implements [`Plain`] for a struct that zerocopy has proved to be one.
macro_rules! plain_by_zerocopy {
    ($name:ident) => {
        impl crate::plain::private::Sealed for $name {}
        impl crate::plain::Plain for $name {
            #[inline]
            fn ref_from_prefix(bytes: &[u8]) -> Option<(&Self, &[u8])> {
                zerocopy::FromBytes::ref_from_prefix(bytes).ok()
            }
            #[inline]
            fn read_from_prefix(bytes: &[u8]) -> Option<(Self, &[u8])> {
                zerocopy::FromBytes::read_from_prefix(bytes).ok()
            }
            #[inline]
            fn slice_as_bytes(all: &[Self]) -> &[u8] {
                zerocopy::IntoBytes::as_bytes(all)
            }
        }
    };
}
