//! Limits the texts in an answer. Any user can have any number of processes with megabytes of
//! arguments each, at no cost, because fork() shares them. So there is a limit for each text, and
//! one for the answer, which users share: a user's texts are complete while the remaining space is
//! larger than the space that this user has taken. Further texts are written only in part. So one
//! user can never use up the space, and the arguments of others stay complete.
//!
//! `bpf/room.h` does the same for the BPF programs, with one difference: they know the user of each
//! task, so they count per user from the first byte. This module first gives out an eighth of the
//! space without looking at users.

use std::sync::atomic::{AtomicU64, Ordering};

use taskdiag_wire::{Group, Groups, Stream};

use crate::request::ByteLimits;

/// The number of accounts for users. Others share one.
pub(crate) const USERS_MAX: usize = 256;
/// After its share, a user gets this much of each further text.
pub(crate) const TEXT_SMALL: u32 = 4096;
/// A user who has two thirds of the space gets only this much of each further text. Every user
/// always gets this much. A task without any text is counted with this size.
pub(crate) const TEXT_LEAST: u32 = 256;

/// After its share of lists and names, a user gets this many entries of each further list, and this
/// much of each name.
pub(crate) const LIST_LEAST: usize = 16;
pub(crate) const NAME_LEAST: usize = 128;
/// If the lists of a task are longer than this, they count for its user even while there is much
/// space.
const MUCH: usize = 64 << 10;
/// The bytes that a reader may add before the other readers see them, for any number of readers.
const AT_ONCE: u64 = 16 << 20;

/// The remaining space for the texts of one answer, or for its lists and names. All reading threads
/// share it.
#[derive(Debug)]
pub(crate) struct Room {
    limits: ByteLimits,
    /// How many readers add lists at the same time.
    readers: u64,
    used: AtomicU64,
    used_by: [AtomicU64; USERS_MAX],
}

impl Room {
    /// How many bytes of lists and names a task may add: until the remaining space equals the space
    /// that its user has taken. Users are ignored while there is much space, because finding the
    /// user takes a read of a file in /proc.
    pub(crate) fn list_bytes(&self, uid: impl FnOnce() -> u32) -> usize {
        let is_roomy = self.used.load(Ordering::Relaxed) < self.limits.all_list_bytes / 8;
        let of = if is_roomy { 0 } else { self.used_by[place(uid())].load(Ordering::Relaxed) };
        let left = self.limits.all_list_bytes.saturating_sub(self.used.load(Ordering::Relaxed));
        let most = left.saturating_sub(of) / 2;
        // A list counts when it is complete, so each reader gets its part of the space.
        let most = most.min((most / self.readers).max(AT_ONCE));
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Accounts for bytes of a list or a name.
    pub(crate) fn take_list(&self, bytes: usize, uid: impl FnOnce() -> u32) {
        let used = self.used.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes > MUCH || used >= self.limits.all_list_bytes / 8 {
            self.used_by[place(uid())].fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Room {
    pub(crate) fn new(limits: ByteLimits) -> Room {
        let used_by = [const { AtomicU64::new(0) }; USERS_MAX];
        Room { limits, readers: 1, used: AtomicU64::new(0), used_by }
    }

    /// Sets the number of readers.
    pub(crate) fn with_readers(self, readers: usize) -> Room {
        Room { readers: readers.max(1) as u64, ..self }
    }

    /// The limit for one text, in bytes.
    pub(crate) fn most(&self) -> usize {
        self.limits.text_bytes as usize
    }

    /// Reserves space for a text of this length. Returns the number of bytes to write. `uid`
    /// returns the real user id of the task; it is only called if the text is long enough to
    /// matter.
    pub(crate) fn take(&self, len: usize, uid: impl FnOnce() -> u32) -> usize {
        let mut want = len.min(self.most()) as u64;
        // The minimum that each task gets does not count.
        if want <= u64::from(TEXT_LEAST) {
            return want as usize;
        }
        // Users are ignored while there is much space, because finding the user takes a read of a
        // file in /proc.
        if self.used.load(Ordering::Relaxed) + want < self.limits.all_text_bytes / 8 {
            self.used.fetch_add(want, Ordering::Relaxed);
            return want as usize;
        }
        let used_by = &self.used_by[place(uid())];
        let of = used_by.load(Ordering::Relaxed);
        let left = self.limits.all_text_bytes.saturating_sub(self.used.load(Ordering::Relaxed));
        if of + want > left {
            want = want.min(TEXT_SMALL.into());
            if of / 2 > left {
                return want.min(TEXT_LEAST.into()) as usize;
            }
        }
        used_by.fetch_add(want, Ordering::Relaxed);
        self.used.fetch_add(want, Ordering::Relaxed);
        want as usize
    }
}

/// The space of an answer that is joined from several requests.
#[derive(Debug)]
pub(crate) struct Several {
    left: u64,
    lists_left: u64,
    to_come: u64,
}

impl Several {
    /// The space for this many requests. `used` bytes of it are used already.
    pub(crate) fn new(limits: ByteLimits, requests: usize, used: u64) -> Several {
        // Something is left even then, because the missing texts may belong to other users.
        let least = limits.all_text_bytes / 8;
        let left = limits.all_text_bytes.saturating_sub(used).max(least);
        Several { left, lists_left: limits.all_list_bytes, to_come: requests as u64 }
    }
    /// The limits of the next request. A text takes at most an eighth of the space, or its part of
    /// it.
    pub(crate) fn next(&mut self, limits: ByteLimits) -> ByteLimits {
        let part = (self.left / self.to_come.max(1)).max(self.left / 8).max(TEXT_SMALL.into());
        let text_bytes = limits.text_bytes.min(u32::try_from(part).unwrap_or(u32::MAX));
        self.to_come = self.to_come.saturating_sub(1);
        let all_text_bytes = limits.all_text_bytes.min(self.left);
        let all_list_bytes = limits.all_list_bytes.min(self.lists_left);
        ByteLimits { text_bytes, all_text_bytes, all_list_bytes }
    }
    /// Accounts for an answer that keeps this many bytes.
    pub(crate) fn spend(&mut self, stream: &Stream<impl AsRef<[u8]>>, bytes: usize) {
        let text = bytes_of_text(stream);
        self.left = self.left.saturating_sub(text);
        let others = (bytes as u64).saturating_sub(text);
        self.lists_left = self.lists_left.saturating_sub(others);
    }
}

/// The bytes of arguments and environments in a stream.
pub(crate) fn bytes_of_text(stream: &Stream<impl AsRef<[u8]>>) -> u64 {
    if !stream.asked().intersects(Groups::TEXTS) {
        return 0;
    }
    let is_text = |kind: u16| kind == Group::Cmdline as u16 || kind == Group::Environ as u16;
    let attrs = stream.tasks().flat_map(|t| t.attrs().filter(|a| is_text(a.0)));
    attrs.map(|(_, bytes)| bytes.len() as u64).sum()
}

/// Root has an account of its own.
fn place(uid: u32) -> usize {
    if uid == 0 { 0 } else { 1 + uid as usize % (USERS_MAX - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn room() -> Room {
        Room::new(ByteLimits {
            text_bytes: 128 << 10,
            all_text_bytes: 32 << 20,
            ..ByteLimits::LIST
        })
    }

    #[test]
    fn one_user_cannot_use_up_the_room() {
        let room = room();
        let mut sum = 0;
        for _ in 0..10_000 {
            sum += room.take(6 * MIB, || 1000);
        }
        // Half of it complete, a sixth in small parts, and the least size for each.
        assert!((16 * MIB..32 * MIB).contains(&sum), "{sum}");
        assert_eq!(room.take(6 * MIB, || 1000), TEXT_LEAST as usize);
        for uid in [0, 1001, 65534] {
            assert_eq!(room.take(100 << 10, || uid), 100 << 10, "user {uid}");
            assert_eq!(room.take(6 * MIB, || uid), 128 << 10, "user {uid}");
        }
    }

    #[test]
    fn many_users_cannot_use_up_the_room_of_root() {
        let room = room();
        let mut sum = 0;
        for n in 0..100_000 {
            sum += room.take(6 * MIB, || 1 + n);
        }
        // A user without any text so far gets a small part of one, even if no space is left.
        let over = USERS_MAX * TEXT_SMALL as usize;
        assert!(sum < 32 * MIB + over + 100_000 * TEXT_LEAST as usize, "{sum}");
        assert!(room.take(64 << 10, || 0) >= TEXT_SMALL as usize);
    }

    #[test]
    fn lists_of_one_user_leave_room_for_others() {
        let room = room();
        let all = ByteLimits::LIST.all_list_bytes as usize;
        let mut sum = 0;
        for _ in 0..1000 {
            let bytes = room.list_bytes(|| 1000).min(8 * MIB);
            room.take_list(bytes, || 1000);
            sum += bytes;
        }
        assert!((all / 2 - 8 * MIB..=all / 2).contains(&sum), "{sum}");
        assert!(room.list_bytes(|| 1000) < MIB && room.list_bytes(|| 0) > all / 5);
    }

    #[test]
    fn readers_that_begin_together_do_not_take_the_room_of_each_other() {
        let all = ByteLimits::LIST.all_list_bytes as usize;
        for readers in 1..=8 {
            let room = room().with_readers(readers);
            let together: usize = (0..readers).map(|_| room.list_bytes(|| 1000)).sum();
            assert!((all / 4..=all / 2).contains(&together), "{readers} readers: {together}");
        }
        // Little room is not divided, because each list gets its least size anyway.
        let little = ByteLimits { all_list_bytes: 1 << 20, ..ByteLimits::LIST };
        assert_eq!(Room::new(little).with_readers(8).list_bytes(|| 1000), 1 << 19);
    }

    #[test]
    fn a_named_process_has_its_whole_text_and_many_share() {
        let of = |n| Several::new(ByteLimits::ONE, n, 0).next(ByteLimits::ONE).text_bytes;
        assert_eq!((of(1), of(4)), (6 << 20, 6 << 20));
        let sum = of(1000) as usize;
        assert!((128 << 10..=4 * MIB).contains(&sum), "{sum}");
        // Something is left for later requests even if the space is used up.
        let mut used_up = Several::new(ByteLimits::LIST, 1, 1 << 40);
        assert_eq!(used_up.next(ByteLimits::LIST).all_text_bytes, 4 << 20);
    }

    #[test]
    fn no_user_is_asked_for_while_there_is_much_room() {
        let room = room();
        for _ in 0..31 {
            assert_eq!(room.take(128 << 10, || unreachable!()), 128 << 10);
        }
        let mut is_asked = false;
        room.take(128 << 10, || {
            is_asked = true;
            0
        });
        assert!(is_asked);
    }

    #[test]
    fn a_short_text_is_whole_and_asks_for_no_user() {
        let room = Room::new(ByteLimits { all_text_bytes: 0, ..ByteLimits::LIST });
        assert_eq!(room.take(256, || unreachable!()), 256);
        assert_eq!(room.take(257, || 7), 257);
        assert_eq!(room.take(5000, || 7), TEXT_LEAST as usize);
    }
}
