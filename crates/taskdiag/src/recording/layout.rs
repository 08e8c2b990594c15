//! The bytes of a day file and of its index: heads of fixed size with little-endian members.
//! Nothing here does I/O. docs/use/record.md describes the same for readers in other languages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The size of the head of a file, of the head of a frame, and of an entry of an index.
pub const HEAD: usize = 64;
/// The first bytes of a day file. As in PNG, a transfer that converts line ends changes them.
const FILE_MAGIC: [u8; 8] = *b"\x89TDREC\r\n";
/// The version of the format.
const VERSION: u32 = 1;
/// The first bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"TDfr";
/// The flag of the first frame that a writer wrote after its start.
const BEGINS: u32 = 1;
/// No stream is longer. The limit bounds the memory that a damaged or hostile file can make a
/// reader allocate.
pub const STREAM_MAX: u64 = 1 << 30;

/// The head of a file.
pub fn file_head(created: SystemTime) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&FILE_MAGIC);
    put(&mut head, 12, &VERSION.to_le_bytes());
    put(&mut head, 16, &unix_ns(created).to_le_bytes());
    seal(&mut head, 8);
    head
}

/// The meaning of the head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHead {
    /// A day file that can be read.
    Known,
    /// A day file of another version.
    Newer(u32),
    /// Something else, or damaged.
    Foreign,
}

/// Reads the head of a file.
pub fn read_file_head(head: &[u8]) -> FileHead {
    if head.len() < HEAD || head[..8] != FILE_MAGIC || !is_sealed(head, 8) {
        return FileHead::Foreign;
    }
    match u32_at(head, 12) {
        VERSION => FileHead::Known,
        other => FileHead::Newer(other),
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The offset of the frame in the file.
    pub at: u64,
    /// The offset of the key frame that its data refers to, which is its own offset if it is a key
    /// frame.
    pub key_at: u64,
    /// CLOCK_REALTIME of the stream, in ns since 1970.
    pub realtime_ns: u64,
    /// CLOCK_BOOTTIME of the stream.
    pub boottime_ns: u64,
    /// CRC32 of the compressed data.
    pub data_crc: u32,
    /// Bytes of compressed data after the head.
    pub data_len: u32,
    /// Bytes of the stream.
    pub stream_len: u32,
    /// The interval of the writer in ms.
    pub every_ms: u32,
    /// The number of tasks in the stream.
    pub tasks: u32,
    /// Whether it is the first frame of a writer.
    pub begins: bool,
}

impl FrameHead {
    /// Whether the frame can be read without another frame.
    pub fn is_key(&self) -> bool {
        self.key_at == self.at
    }
    /// The end of the frame in the file, where the next one begins.
    pub fn end(&self) -> u64 {
        self.at + HEAD as u64 + u64::from(self.data_len).next_multiple_of(8)
    }
    /// When the answer was begun.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.realtime_ns)
    }
    /// The bytes.
    pub fn to_bytes(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&FRAME_MAGIC);
        put(&mut head, 8, &self.at.to_le_bytes());
        put(&mut head, 16, &self.key_at.to_le_bytes());
        put(&mut head, 24, &self.realtime_ns.to_le_bytes());
        put(&mut head, 32, &self.boottime_ns.to_le_bytes());
        put(&mut head, 40, &self.data_crc.to_le_bytes());
        put(&mut head, 44, &self.data_len.to_le_bytes());
        put(&mut head, 48, &self.stream_len.to_le_bytes());
        put(&mut head, 52, &self.every_ms.to_le_bytes());
        put(&mut head, 56, &self.tasks.to_le_bytes());
        put(&mut head, 60, &if self.begins { BEGINS } else { 0 }.to_le_bytes());
        seal(&mut head, 4);
        head
    }
    /// From bytes. `None`: they are not the head of a frame, or are damaged.
    pub fn from_bytes(head: &[u8]) -> Option<FrameHead> {
        if head.len() < HEAD || head[..4] != FRAME_MAGIC || !is_sealed(head, 4) {
            return None;
        }
        let frame = FrameHead {
            at: u64_at(head, 8),
            key_at: u64_at(head, 16),
            realtime_ns: u64_at(head, 24),
            boottime_ns: u64_at(head, 32),
            data_crc: u32_at(head, 40),
            data_len: u32_at(head, 44),
            stream_len: u32_at(head, 48),
            every_ms: u32_at(head, 52),
            tasks: u32_at(head, 56),
            begins: u32_at(head, 60) & BEGINS != 0,
        };
        // A hostile file may have a right checksum, so the values are checked, too.
        let is_sane = frame.at >= HEAD as u64
            && frame.at < 1 << 62
            && frame.at % 8 == 0
            && frame.key_at <= frame.at
            && u64::from(frame.stream_len) <= STREAM_MAX
            && frame.stream_len % 8 == 0;
        is_sane.then_some(frame)
    }
}

/// Nanoseconds since 1970; 0 for a time before.
pub fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Writes the CRC32 of the bytes after offset `at + 4` to offset `at`.
fn seal(head: &mut [u8; HEAD], at: usize) {
    let crc = crc32fast::hash(&head[at + 4..]);
    put(head, at, &crc.to_le_bytes());
}

fn is_sealed(head: &[u8], at: usize) -> bool {
    crc32fast::hash(&head[at + 4..HEAD]) == u32_at(head, at)
}

fn put(head: &mut [u8; HEAD], at: usize, bytes: &[u8]) {
    head[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(head: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> FrameHead {
        FrameHead {
            at: 6400,
            key_at: 64,
            realtime_ns: 1_700_000_000_123_456_789,
            boottime_ns: 98_765,
            data_crc: 0xdead_beef,
            data_len: 1001,
            stream_len: 80_000,
            every_ms: 10_000,
            tasks: 1000,
            begins: true,
        }
    }

    #[test]
    fn a_head_comes_back_and_a_changed_one_does_not() {
        let bytes = frame().to_bytes();
        assert_eq!(FrameHead::from_bytes(&bytes), Some(frame()));
        assert_eq!(frame().end(), 6400 + 64 + 1008);
        for bit in 0..HEAD * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHead::from_bytes(&bad), None, "bit {bit}");
        }
        assert_eq!(FrameHead::from_bytes(&bytes[..63]), None);
    }

    #[test]
    fn a_head_with_a_right_sum_and_mad_members_is_refused() {
        for bad in [
            FrameHead { at: 6401, key_at: 64, ..frame() },
            FrameHead { at: 0, key_at: 0, ..frame() },
            FrameHead { at: u64::MAX - 7, ..frame() },
            FrameHead { key_at: 6408, ..frame() },
            FrameHead { stream_len: 1 << 31, ..frame() },
            FrameHead { stream_len: 12, ..frame() },
        ] {
            assert_eq!(FrameHead::from_bytes(&bad.to_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_changed_head_of_a_file_is_not_taken_for_ours() {
        let head = file_head(UNIX_EPOCH + Duration::from_secs(7));
        assert_eq!(read_file_head(&head), FileHead::Known);
        for byte in 0..HEAD {
            let mut bad = head;
            bad[byte] ^= 0x10;
            assert_eq!(read_file_head(&bad), FileHead::Foreign, "byte {byte}");
        }
        let mut newer = head;
        newer[12] = 9;
        seal(&mut newer, 8);
        assert_eq!(read_file_head(&newer), FileHead::Newer(9));
    }
}
