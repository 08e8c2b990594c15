//! Where the bytes of a stream live: in memory of ours, or in the memory that the BPF program
//! wrote them to, so that a large answer is never copied.

use taskdiag_wire::AlignedBuf;

use crate::engine::bpf::Mapped;

/// The bytes of a stream, aligned to 8.
#[derive(Debug)]
pub struct Bytes(Kind);

#[derive(Debug)]
enum Kind {
    Owned(AlignedBuf),
    Mapped(Mapped),
}

impl Bytes {
    /// As memory of ours; copies if they are not.
    pub fn into_owned(self) -> AlignedBuf {
        match self.0 {
            Kind::Owned(b) => b,
            Kind::Mapped(m) => AlignedBuf::copy_of(m.as_bytes()),
        }
    }
    /// The bytes where they are ours, else the mapped memory, which is not copied.
    pub(crate) fn try_into_owned(self) -> Result<AlignedBuf, Mapped> {
        match self.0 {
            Kind::Owned(b) => Ok(b),
            Kind::Mapped(m) => Err(m),
        }
    }
    /// The mapped memory, or the bytes back where they are ours.
    pub(crate) fn into_mapped(self) -> Result<Mapped, AlignedBuf> {
        match self.0 {
            Kind::Owned(b) => Err(b),
            Kind::Mapped(m) => Ok(m),
        }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Kind::Owned(b) => b.as_bytes(),
            Kind::Mapped(m) => m.as_bytes(),
        }
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        AlignedBuf::copy_of(self.as_ref()).into()
    }
}

impl From<AlignedBuf> for Bytes {
    fn from(b: AlignedBuf) -> Bytes {
        Bytes(Kind::Owned(b))
    }
}

impl From<Mapped> for Bytes {
    fn from(m: Mapped) -> Bytes {
        Bytes(Kind::Mapped(m))
    }
}
