//! Declares the structs of [`layout`](crate::layout). A macro makes the Rust struct, getters that
//! respect `valid`, and a table of its members. The C compiler must agree with this table; the
//! decoder and the BPF constants are made from it.

use crate::plain::Plain;

/// A member of a C struct.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Member {
    /// The name of the struct in the C header.
    pub name: &'static str,
    /// `offsetof`, in bytes.
    pub offset: usize,
    /// `sizeof`, in bytes.
    pub size: usize,
    /// Is it a signed integer?
    pub signed: bool,
}

/// One C struct as the C compiler must see it.
#[derive(Debug)]
#[non_exhaustive]
pub struct CStruct {
    /// Name in the C header, without `struct`.
    pub name: &'static str,
    /// `sizeof`, in bytes.
    pub size: usize,
    /// Size in the first version of the format, in bytes. It never changes: an older writer's
    /// record or entry is at least as long as this. `tests/golden.rs` reads streams with structs of
    /// this size.
    pub least: usize,
    /// All members but padding, in order.
    pub members: &'static [Member],
    /// The members that own a bit of `valid`, in bit order. It is empty if there is no `valid`.
    pub valid: &'static [Member],
}

impl CStruct {
    /// The bits of `valid` that a record or entry of `len` bytes can have: a member that lies
    /// beyond its end is not known, whatever its `valid` says.
    pub fn valid_within(&self, len: usize) -> u32 {
        let fits = |m: &Member| m.offset + m.size <= len;
        (0..).zip(self.valid).filter(|(_, m)| fits(m)).fold(0, |bits, (i, _)| bits | 1u32 << i)
    }
    /// How many of the first `len` bytes of such a struct are whole members. A longer struct than
    /// ours is a newer one, and all of it counts.
    pub(crate) fn whole_within(&self, len: usize) -> usize {
        if len >= self.size {
            return len;
        }
        let ends = self.members.iter().map(|m| m.offset + m.size);
        ends.filter(|end| *end <= len).max().unwrap_or(0)
    }
}

/// The name of a member in C.
pub(crate) const fn c_name(rust: &'static str) -> &'static str {
    match rust.as_bytes() {
        [b'r', b'#', name @ ..] => match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        },
        _ => rust,
    }
}

/// A [`Member`] of a struct.
macro_rules! member {
    ($name:ident, $f:ident: $t:ty) => {
        Member {
            name: c_name(stringify!($f)),
            offset: std::mem::offset_of!($name, $f),
            size: size_of::<$t>(),
            signed: stringify!($t).as_bytes()[0] == b'i',
        }
    };
}

/// The constants of a struct whose members own bits of `valid`.
macro_rules! known {
    ($name:ident, $c:literal, $least:literal; $($f:ident: $t:ty,)*) => {
        impl $name {
            /// Attribute type.
            pub const TYPE: u16 = <$name as Attribute>::TYPE;
            /// `valid` with every member known.
            pub const ALL_VALID: u32 = ((1u64 << $name::MEMBERS.len()) - 1) as u32;
            /// Names of the members that own a bit of `valid`, in bit order.
            pub const MEMBERS: &'static [&'static str] = &[$(c_name(stringify!($f)),)*];
            const KNOWN: &'static [Member] = &[$(member!($name, $f: $t),)*];
        }
        const _: () = {
            assert!($name::MEMBERS.len() <= 32, "valid has 32 bits");
            assert!($least <= size_of::<$name>(), "a struct never gets shorter");
            assert!(size_of::<$name>() % 8 == 0 && $least % 8 == 0, "sizes are multiples of 8");
        };
    };
}

/// A plain struct of the header. `least` is its size in the first version of the format. The heads
/// of messages and attributes have no `least`, because they do not grow. A struct that may grow is
/// `#[non_exhaustive]`, because a new member must not break code that constructs it.
macro_rules! plain {
    ($(#[$m:meta])* $name:ident = $c:literal, least $least:literal { $($body:tt)* }) => {
        plain!(@table $(#[$m])* #[non_exhaustive] $name = $c, $least; { $($body)* });
    };
    ($(#[$m:meta])* $name:ident = $c:literal { $($body:tt)* }) => {
        plain!(@table $(#[$m])* $name = $c, size_of::<$name>(); { $($body)* });
    };
    (@table $(#[$m:meta])* $name:ident = $c:literal, $least:expr; { $($(#[$fm:meta])* $f:ident: $t:ty,)* }) => {
        plain!(@struct $(#[$m])* $name { $($(#[$fm])* $f: $t,)* });
        impl $name {
            /// Facts that the C compiler must confirm.
            pub const C: CStruct = CStruct {
                name: $c,
                size: size_of::<$name>(),
                least: $least,
                members: &[$(member!($name, $f: $t),)*],
                valid: &[],
            };
        }
    };
    // Users of the crate need not see the padding.
    (@struct $(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $f:ident: $t:ty,)* } $($p:ident: $pt:ty)?) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* $(pub(crate) $p: $pt,)? }
        plain_by_zerocopy!($name);
    };
}

/// The struct of a group, and the methods of [`Record`] that read it: an `nlattr`, the `valid`
/// mask, members that each own a bit of it, and padding between or after them. `least` is its size
/// in the first version of the format.
macro_rules! record {
    ($(#[$m:meta])* $name:ident = $c:literal, least $least:literal;
     { $($(#[$fm:meta])* $f:ident: $t:ty,)* } $(pad { $($p:ident: $pt:ty,)* } then { $($(#[$gm:meta])* $g:ident: $gt:ty,)* })?) => {
        record!(@emit $(#[$m])* $name = $c, least $least;
            [$($(#[$fm])* $f: $t,)*] [$($($p: $pt,)*)?] [$($($(#[$gm])* $g: $gt,)*)?]);
    };
    (@emit $(#[$m:meta])* $name:ident = $c:literal, least $least:literal;
     [$($(#[$fm:meta])* $f:ident: $t:ty,)*] [$($p:ident: $pt:ty,)*]
     [$($(#[$gm:meta])* $g:ident: $gt:ty,)*]) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[non_exhaustive]
        pub struct $name {
            /// Length and type of the attribute that this struct is.
            pub nla: NlAttr,
            /// Bit i: the i-th member below (padding not counted) is known.
            pub valid: u32,
            $($(#[$fm])* pub $f: $t,)*
            $(pub(crate) $p: $pt,)*
            $($(#[$gm])* pub $g: $gt,)*
        }
        plain_by_zerocopy!($name);
        known!($name, $c, $least; $($f: $t,)* $($g: $gt,)*);
        impl $name {
            /// Facts that the C compiler must confirm.
            pub const C: CStruct = CStruct {
                name: $c,
                size: size_of::<$name>(),
                least: $least,
                members: &[
                    member!($name, nla: NlAttr), member!($name, valid: u32),
                    $(member!($name, $f: $t),)* $(member!($name, $g: $gt),)*
                ],
                valid: $name::KNOWN,
            };
            /// An all-zero record of this type in which nothing is known yet.
            pub fn new() -> $name {
                let mut r: $name = zerocopy::FromZeros::new_zeroed();
                r.nla = NlAttr { len: size_of::<$name>() as u16, kind: Self::TYPE };
                r
            }
            /// The members that are known.
            #[inline]
            pub fn known(&self) -> Record<'_, $name> {
                Record::new(self)
            }
            /// Is the member with this name known? `None` if there is no such member.
            pub fn knows(&self, member: &str) -> Option<bool> {
                Self::MEMBERS.iter().position(|m| *m == member).map(|i| self.valid & (1 << i) != 0)
            }
        }
        impl Default for $name {
            fn default() -> $name { $name::new() }
        }
        impl GroupRecord for $name {
            fn valid(&self) -> u32 { self.valid }
        }
        record!(@getters $name, 0u32; [$($f: $t,)* $($g: $gt,)*]);
    };
    (@getters $name:ident, $bit:expr; []) => {};
    (@getters $name:ident, $bit:expr; [$f:ident: $t:ty, $($rest:ident: $rt:ty,)*]) => {
        impl Record<'_, $name> {
            #[doc = concat!("`", stringify!($f), "`, or `None` where it is not known.")]
            #[inline]
            pub fn $f(&self) -> Option<$t> {
                (self.raw.valid & (1 << ($bit)) != 0).then_some(self.raw.$f)
            }
        }
        record!(@getters $name, $bit + 1; [$($rest: $rt,)*]);
    };
}

/// An entry of a list: a plain struct, each member of which owns a bit of the list's `valid`.
/// `least` is its size in the first version of the format.
macro_rules! entry {
    ($(#[$m:meta])* $name:ident = $c:literal, least $least:literal;
     { $($(#[$fm:meta])* $f:ident: $t:ty,)* } $(pad { $p:ident: $pt:ty, })?) => {
        plain!(@struct $(#[$m])* #[non_exhaustive] $name { $($(#[$fm])* $f: $t,)* } $($p: $pt)?);
        known!($name, $c, $least; $($f: $t,)*);
        impl $name {
            /// The layout that the C compiler must agree with.
            pub const C: CStruct = CStruct {
                name: $c,
                size: size_of::<$name>(),
                least: $least,
                members: $name::KNOWN,
                valid: $name::KNOWN,
            };
        }
        impl ListEntry for $name {}
        entry!(@getters $name, 0u32; [$($f: $t,)*]);
    };
    (@getters $name:ident, $bit:expr; []) => {};
    (@getters $name:ident, $bit:expr; [$f:ident: $t:ty, $($rest:ident: $rt:ty,)*]) => {
        impl Entry<'_, $name> {
            #[doc = concat!("`", stringify!($f), "`, or `None` where it is not known.")]
            #[inline]
            pub fn $f(&self) -> Option<$t> {
                (self.valid & (1 << ($bit)) != 0).then_some(self.raw.$f)
            }
        }
        entry!(@getters $name, $bit + 1; [$($rest: $rt,)*]);
    };
}

/// A struct that is an attribute, or an entry of a list. The registry implements this trait, so a
/// struct that is not in it does not compile.
pub trait Attribute: Plain {
    /// Type of the attribute.
    const TYPE: u16;
    /// The members and sizes of the struct.
    const TABLE: &'static CStruct;
}

/// A struct that is an entry of lists.
pub trait ListEntry: Attribute {}

/// A record in a stream. Its methods return the members that are known, and have the names of the
/// members of [`raw`](Self::raw), which are zero where they are not known.
///
/// ```
/// use taskdiag_wire::{Record, Statm, build, layout::bit};
///
/// let valid = bit(Statm::MEMBERS, "rss_bytes");
/// let statm = build!(Statm { valid, rss_bytes: 4096 });
/// assert_eq!(Record::new(&statm).rss_bytes(), Some(4096));
/// assert_eq!(Record::new(&statm).swap_bytes(), None);
/// ```
///
/// A member cannot be taken for a value that is known:
///
/// ```compile_fail,E0615
/// let statm = taskdiag_wire::Statm::new();
/// let rss: u64 = taskdiag_wire::Record::new(&statm).rss_bytes;
/// ```
#[derive(Debug)]
pub struct Record<'a, T> {
    pub(crate) raw: &'a T,
}

impl<T> Clone for Record<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Record<'_, T> {}

impl<'a, T> Record<'a, T> {
    /// The view of a record.
    #[inline]
    pub fn new(raw: &'a T) -> Record<'a, T> {
        Record { raw }
    }
    /// The record as it is in the stream.
    #[inline]
    pub fn raw(&self) -> &'a T {
        self.raw
    }
}

/// An entry of a list in a stream. Its methods return the members that are known. It will never get
/// more members, so this struct can be constructed.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a, T> {
    /// Bit i: the i-th member is known.
    pub valid: u32,
    /// The entry as it is in the stream.
    pub raw: &'a T,
}

/// A fixed-size struct that is an attribute.
pub trait GroupRecord: Attribute {
    /// Bit i: the i-th member is known.
    fn valid(&self) -> u32;
}

/// The bit of `valid` for the member with this name.
///
/// # Panics
/// If there is no such member. In a constant, this is seen when the constant is compiled.
pub const fn bit(members: &[&str], name: &str) -> u32 {
    let mut i = 0;
    while i < members.len() {
        if is(members[i], name) {
            return 1 << i;
        }
        i += 1;
    }
    panic!("no such member")
}

const fn is(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
