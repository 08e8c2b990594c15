//! Computes how much room a frame may take, so that a recording with a limited size always covers a
//! minimum time.
//!
//! Files that are younger than that time are never removed. So the free space has to last until a
//! file is old enough, and a frame may take the free space divided by the number of frames in that
//! time. Space that a frame does not take is saved for later ones, up to a bound, because key
//! frames are larger than others and machines are busy at times. The room shrinks as space is used.
//! So frames that always use their whole share settle at half of the size limit for each such time,
//! and never use it up. Nothing here does I/O.

use std::time::{Duration, SystemTime};

/// Frames can save unused room of at least this many frames.
const FRAMES: u64 = 128;
/// This part of the free space is the limit instead, if it is larger.
const PART: u64 = 4;

/// The room for frames.
#[derive(Debug, Default)]
pub struct Room {
    /// Bytes that the next frame may take. `None`: nothing was recorded yet.
    left: Option<u64>,
    /// The largest amount that may be saved.
    most: u64,
    at: Option<SystemTime>,
}

impl Room {
    /// The bytes that a frame at this moment may take. `free`: the free bytes until the next file
    /// is old enough to be removed. `floor`: the time that the recording has to cover.
    pub fn next(&mut self, free: u64, floor: Duration, every: Duration, now: SystemTime) -> u64 {
        let frames = (floor.as_nanos() / every.as_nanos().max(1)).max(1);
        let each = u64::try_from(u128::from(free) / frames).unwrap_or(free).max(1);
        self.most = (each.saturating_mul(FRAMES)).max(free / PART).min(free);
        // Setting the clock has at most the effect of a pause.
        let since = self.at.map_or(every, |at| now.duration_since(at).unwrap_or(every));
        let passed = (since.as_nanos() / every.as_nanos().max(1)).clamp(1, u128::from(FRAMES));
        let more = each.saturating_mul(passed as u64);
        let left = self.left.map_or(self.most, |left| left.saturating_add(more).min(self.most));
        (self.left, self.at) = (Some(left), Some(now));
        left
    }
    /// Is the saved room at its maximum, so that waiting does not help?
    pub fn is_full(&self) -> bool {
        self.left == Some(self.most)
    }
    /// A frame took this much.
    pub fn take(&mut self, bytes: u64) {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const EVERY: Duration = Duration::from_secs(10);
    const DAY: Duration = Duration::from_secs(86_400);

    fn at(frame: u64) -> SystemTime {
        UNIX_EPOCH + EVERY * frame as u32
    }

    #[test]
    fn frames_that_take_all_they_may_never_use_up_what_is_free() {
        let (mut room, max) = (Room::default(), 2_000_000_000u64);
        let mut taken: Vec<u64> = Vec::new();
        // Five days with the bytes of each.
        for n in 0..5 * 8640usize {
            let there: u64 = taken[n.saturating_sub(8640)..].iter().sum();
            let may = room.next(max - there, DAY, EVERY, at(n as u64));
            assert!(may + there <= max && may > 20_000, "{n}: {may} of {}", max - there);
            room.take(may);
            taken.push(may);
        }
    }

    #[test]
    fn room_that_is_not_taken_is_there_for_a_key_frame() {
        let mut room = Room::default();
        let first = room.next(1 << 30, DAY, EVERY, at(0));
        assert_eq!(first, 1 << 28, "a quarter at once");
        room.take(first);
        let next = room.next(1 << 30, DAY, EVERY, at(1));
        assert!(next < 200_000 && !room.is_full(), "{next}");
        let later = room.next(1 << 30, DAY, EVERY, at(61));
        assert!(later > 60 * next / 2, "{later}");
        // The clock is set back, or far ahead.
        let back = room.next(1 << 30, DAY, EVERY, at(3));
        let ahead = room.next(1 << 30, DAY, EVERY, at(1_000_000));
        assert!(back > later && ahead <= later + 129 * next, "{back} {ahead}");
    }
}
