//! A parsed stream, and where it came from.

use std::io::{self, Read, Write};

use taskdiag_wire::decode::Stream;
use taskdiag_wire::{AlignedBuf, Groups, TaskView};

use crate::bytes::Bytes;
use crate::engine::{Cost, EngineId};
use crate::error::Error;

/// One engine's share of an answer.
#[derive(Clone, Debug)]
pub struct Served {
    /// Who.
    pub engine: EngineId,
    /// Which groups.
    pub groups: Groups,
    /// Why this engine, in a few words for a person.
    pub why: String,
    /// What it cost.
    pub cost: Cost,
}

/// A complete answer: the bytes of a stream, checked and indexed, with zero-copy views.
#[derive(Clone, Debug)]
pub struct Snapshot {
    stream: Stream<Bytes>,
    served: Vec<Served>,
}

impl Snapshot {
    /// Check and index a stream.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Snapshot, Error> {
        Snapshot::with_served(bytes, Vec::new())
    }
    /// [`Snapshot::parse`], with a record of who served it.
    pub fn with_served(bytes: impl Into<Bytes>, served: Vec<Served>) -> Result<Snapshot, Error> {
        Ok(Snapshot { stream: Stream::parse(bytes.into())?, served })
    }
    /// Read a saved stream to its end.
    ///
    /// # Errors
    /// [`Error::Io`] where reading fails, [`Error::Stream`] where it is cut, foreign or malformed.
    pub fn read_from(mut r: impl Read) -> Result<Snapshot, Error> {
        let mut bytes = Vec::new();
        r.read_to_end(&mut bytes).map_err(|e| Error::io("reading the stream", e))?;
        if bytes.len() % 8 != 0 {
            // Padding would hide that it is cut: check the bytes that are there first.
            let whole = AlignedBuf::copy_of(&bytes[..bytes.len() / 8 * 8]);
            return match Stream::parse(whole) {
                Ok(s) => Err(taskdiag_wire::decode::Error::Trailing(s.bytes().len()).into()),
                Err(e) => Err(e.into()),
            };
        }
        Snapshot::parse(AlignedBuf::copy_of(&bytes))
    }
    /// Save the stream.
    pub fn write_to(&self, mut w: impl Write) -> io::Result<()> {
        w.write_all(self.stream.bytes())?;
        w.flush()
    }
    /// All tasks, in stream order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskView<'_>> + Clone {
        self.stream.tasks()
    }
    /// The stream below: info, totals, bytes.
    pub fn stream(&self) -> &Stream<Bytes> {
        &self.stream
    }
    /// The bytes, given back.
    pub fn into_bytes(self) -> Bytes {
        self.stream.into_bytes()
    }
    /// Which engine served which groups, why and at what cost; empty for a saved stream (its
    /// info has the engines).
    pub fn served(&self) -> &[Served] {
        &self.served
    }
}
