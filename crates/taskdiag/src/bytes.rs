//! The bytes of a stream, in our own memory or in the memory that the BPF program wrote to, so that
//! a large answer is never copied.

use std::fmt;

use taskdiag_wire::{AlignedBuf, Done, Info};

/// Memory of an engine that holds a stream.
pub(crate) trait StreamMemory: AsRef<[u8]> + fmt::Debug + Send + Sync {
    /// Inserts messages before the end of the stream, and adds their groups and engines to its
    /// head. Changes nothing and returns false if there is no room.
    fn append(&mut self, messages: &[u8], totals: &Done, served: &Info) -> bool;
    /// The stream, to change values in place.
    #[cfg(feature = "bpf")]
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Makes the kernel allocate the pages of memory that is about to be written. One call for all of
/// them costs half of a fault for each page. It is a hint: kernels before 5.14 do not know it, and
/// make the pages when they are written.
pub(crate) fn populate<T>(memory: &mut [T]) {
    advise(memory, libc::MADV_POPULATE_WRITE);
}

/// Tells the kernel how this memory will be used. The advice must not change the content.
pub(crate) fn advise<T>(memory: &mut [T], advice: libc::c_int) {
    if memory.is_empty() {
        return;
    }
    let page = rustix::param::page_size();
    let begin = memory.as_mut_ptr() as usize & !(page - 1);
    let end = memory.as_mut_ptr_range().end as usize;
    // SAFETY: each page contains a byte of `memory`, so it is mapped, and its content is not
    // changed.
    unsafe { libc::madvise(begin as *mut _, end - begin, advice) };
}

/// The bytes of a stream, aligned to 8.
#[derive(Debug)]
pub struct Bytes(Storage);

#[derive(Debug)]
enum Storage {
    Owned(AlignedBuf),
    #[cfg_attr(
        not(feature = "bpf"),
        expect(dead_code, reason = "only the bpf engine has such memory")
    )]
    Mapped(Box<dyn StreamMemory>),
}

impl Bytes {
    /// The bytes in our own memory. They are copied if they were elsewhere.
    pub fn into_owned(self) -> AlignedBuf {
        match self.0 {
            Storage::Owned(b) => b,
            Storage::Mapped(m) => AlignedBuf::copy_of((*m).as_ref()),
        }
    }
    /// The bytes if they are in our own memory. Otherwise, the error returns them unchanged,
    /// without a copy.
    pub(crate) fn try_into_owned(self) -> Result<AlignedBuf, Bytes> {
        match self.0 {
            Storage::Owned(b) => Ok(b),
            mapped => Err(Bytes(mapped)),
        }
    }
    /// Whether messages may be added in place.
    pub(crate) fn may_grow(&self) -> bool {
        matches!(self.0, Storage::Mapped(_))
    }
    /// Adds messages in place. Returns false if that is not possible, and then nothing has changed.
    pub(crate) fn append(&mut self, messages: &[u8], totals: &Done, served: &Info) -> bool {
        match &mut self.0 {
            Storage::Owned(_) => false,
            Storage::Mapped(m) => m.append(messages, totals, served),
        }
    }
    /// The stream, to change values in place.
    #[cfg(feature = "bpf")]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Storage::Owned(b) => b.as_mut_bytes(),
            Storage::Mapped(m) => m.bytes_mut(),
        }
    }
    /// A stream in the memory of an engine.
    #[cfg(feature = "bpf")]
    pub(crate) fn of_memory(memory: impl StreamMemory + 'static) -> Bytes {
        Bytes(Storage::Mapped(Box::new(memory)))
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Storage::Owned(b) => b.as_bytes(),
            Storage::Mapped(m) => (**m).as_ref(),
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
        Bytes(Storage::Owned(b))
    }
}
