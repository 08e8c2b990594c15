//! The cgroups that a walk is to read, in an order that is fair to their owners.
//!
//! The owner of a cgroup is the user who could have made it: the one to whom the outermost
//! directory above it belongs that is not the system's. So a user has one share, whatever uids of
//! theirs they give to directories below their own.
//!
//! Those of the system come first, because the directories of all users are below them, but at most
//! half of what may be read. Then it is always the turn of the owner of whom the fewest cgroups
//! have been read. Of that owner's cgroups, the one nearest to the root is read. If there are more
//! cgroups than may be read, the owner with the most loses the one farthest from the root. So a
//! user loses no cgroup while another user has more. If everything fits, all is read, in about the
//! same time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// A cgroup that is to be read.
#[derive(Debug)]
pub(super) struct Next {
    pub path: Vec<u8>,
    pub level: usize,
    pub id: Option<u64>,
    /// The number of its owner.
    pub owner: usize,
}

/// What is known of an owner.
#[derive(Debug, Default)]
struct Owner {
    uid: u32,
    /// Cgroups that were taken out to be read.
    read: usize,
    /// The bytes of the paths of these and of those that wait.
    bytes: usize,
    /// Those that wait, nearest to the root first.
    waiting: VecDeque<Next>,
    left_out: u64,
}

impl Owner {
    fn held(&self) -> usize {
        self.read + self.waiting.len()
    }
}

/// The cgroups that are to be read.
#[derive(Debug)]
pub(super) struct Queue {
    owners: Vec<Owner>,
    /// The numbers of owners by uid.
    numbers: HashMap<u32, usize>,
    /// When owners who have some waiting come next, as in `turn`, with their numbers.
    turns: BinaryHeap<Reverse<(usize, usize)>>,
    most: usize,
    most_bytes: usize,
    held: usize,
    bytes: usize,
    /// Since something was left out: the largest share of an owner then.
    full_at: u128,
}

impl Queue {
    /// A queue with its first cgroup. At most `most` cgroups with paths of `most_bytes` leave it.
    pub fn new(first: Next, most: usize, most_bytes: usize) -> Queue {
        let bytes = first.path.len();
        let system = Owner { bytes, waiting: VecDeque::from([first]), ..Owner::default() };
        Queue {
            owners: vec![system],
            numbers: HashMap::new(),
            turns: BinaryHeap::from([Reverse((0, 0))]),
            most: most.max(2),
            most_bytes: most_bytes.max(1),
            held: 1,
            bytes,
            full_at: u128::MAX,
        }
    }
    /// Has only the first cgroup been taken so far?
    pub fn is_first(&self) -> bool {
        self.numbers.is_empty()
    }
    /// Sets the owner of the directory of the first cgroup. This owner is the system.
    pub fn begin(&mut self, uid: u32) {
        self.owners[0].uid = uid;
        self.numbers.insert(uid, 0);
    }
    /// The uid of an owner.
    pub fn owner(&self, number: usize) -> u32 {
        self.owners[number].uid
    }
    /// The number of the owner of the cgroups below a cgroup of this owner, whose directory belongs
    /// to this user.
    pub fn owner_below(&mut self, number: usize, uid: u32) -> usize {
        if number != 0 || uid == self.owners[0].uid {
            return number;
        }
        let new = self.owners.len();
        let number = *self.numbers.entry(uid).or_insert(new);
        if number == new {
            self.owners.push(Owner { uid, ..Owner::default() });
        }
        number
    }
    /// The next one.
    pub fn pop(&mut self) -> Option<Next> {
        while let Some(Reverse((turn, number))) = self.turns.pop() {
            // An owner may have two turns: one from before it lost all its waiting cgroups, and one
            // from when it got more. Only the current one counts.
            if turn != self.turn(number) {
                continue;
            }
            let owner = &mut self.owners[number];
            let Some(next) = owner.waiting.pop_front() else { continue };
            owner.read += 1;
            if !owner.waiting.is_empty() {
                self.turns.push(Reverse((self.turn(number), number)));
            }
            return Some(next);
        }
        None
    }
    /// The place of an owner in the order of turns.
    fn turn(&self, number: usize) -> usize {
        match self.owners[number].read {
            read if number == 0 && read < self.most / 2 => read,
            read => self.most + read,
        }
    }
    /// Adds a cgroup, or leaves it or another one out.
    pub fn push(&mut self, next: Next) {
        let (number, bytes) = (next.owner, next.path.len());
        let is_over = self.held >= self.most || self.bytes + bytes > self.most_bytes;
        let (turn, has_share) = (self.turn(number), self.share(number) >= self.full_at);
        let owner = &mut self.owners[number];
        let is_farthest = owner.waiting.back().is_none_or(|last| last.level <= next.level);
        // An owner may have millions, so this must take no longer for more owners.
        if is_over && has_share && is_farthest {
            owner.left_out += 1;
            return;
        }
        if owner.waiting.is_empty() {
            self.turns.push(Reverse((turn, number)));
        }
        let at = owner.waiting.partition_point(|other| other.level <= next.level);
        owner.waiting.insert(at, next);
        owner.bytes += bytes;
        self.held += 1;
        self.bytes += bytes;
        while self.held > self.most || self.bytes > self.most_bytes {
            let with_some = (0..self.owners.len()).filter(|n| !self.owners[*n].waiting.is_empty());
            let Some(largest) = with_some.max_by_key(|n| self.share(*n)) else { break };
            let owner = &mut self.owners[largest];
            let gone = owner.waiting.pop_back().map_or(0, |gone| gone.path.len());
            owner.bytes -= gone;
            owner.left_out += 1;
            self.held -= 1;
            self.bytes -= gone;
            self.full_at = self.share(largest);
        }
    }
    /// The part of the room that an owner takes, the larger one of number and bytes.
    fn share(&self, number: usize) -> u128 {
        let owner = &self.owners[number];
        let of_number = owner.held() as u128 * self.most_bytes as u128;
        of_number.max(owner.bytes as u128 * self.most as u128)
    }
    /// The uids of the owners, each with how many of their cgroups were left out.
    pub fn left_out(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.owners.iter().map(|owner| (owner.uid, owner.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(owner: usize, level: usize, path: &str) -> Next {
        Next { path: path.into(), level, id: None, owner }
    }

    /// A queue for this many cgroups of the system and of user 1000.
    fn queue(most: usize, bytes: usize) -> Queue {
        let mut queue = Queue::new(next(0, 0, "/"), most, bytes);
        assert!(queue.is_first() && queue.pop().is_some());
        queue.begin(0);
        assert_eq!((queue.owner_below(0, 1000), queue.owner_below(1, 1001)), (1, 1));
        assert_eq!(queue.owner_below(0, 0), 0);
        queue
    }

    fn taken(queue: &mut Queue) -> [Vec<String>; 2] {
        let mut taken = [Vec::new(), Vec::new()];
        while let Some(next) = queue.pop() {
            taken[next.owner].push(String::from_utf8(next.path).expect("ours"));
        }
        taken
    }

    #[test]
    fn an_owner_with_many_cgroups_takes_no_room_of_others() {
        let mut queue = queue(10, 1000);
        (0..1000).for_each(|n| queue.push(next(1, 2, &format!("/u/{n}"))));
        (0..4).for_each(|n| queue.push(next(0, 5, &format!("/a/b/c/d/{n}"))));
        let [system, user] = taken(&mut queue);
        assert_eq!((system.len(), user.len()), (4, 5));
        assert_eq!(queue.left_out().collect::<Vec<_>>(), [(0, 0), (1000, 995)]);
    }

    #[test]
    fn an_owner_with_long_paths_takes_no_room_of_others() {
        let mut queue = queue(1000, 100);
        (0..3).for_each(|n| queue.push(next(1, 2, &format!("/{n}{}", "x".repeat(38)))));
        (0..4).for_each(|n| queue.push(next(0, 5, &format!("/a/b/c/d/{n}"))));
        let [system, user] = taken(&mut queue);
        assert_eq!((system.len(), user.len()), (4, 1));
        assert_eq!(queue.left_out().collect::<Vec<_>>(), [(0, 0), (1000, 2)]);
    }

    #[test]
    fn a_user_who_is_found_late_has_a_share() {
        let mut queue = queue(40, 10_000);
        (0..1000).for_each(|n| queue.push(next(1, 2, &format!("/u/{n}"))));
        (0..5).for_each(|n| queue.push(next(0, 3, &format!("/a/b/{n}"))));
        // The system has its turn first, although the user's cgroups have waited longer.
        (0..5).for_each(|n| assert_eq!(queue.pop().map(|next| next.owner), Some(0), "{n}"));
        let late = queue.owner_below(0, 1001);
        (0..30).for_each(|n| queue.push(next(late, 9, &format!("/v/{n}"))));
        let mut taken = [0; 3];
        while let Some(next) = queue.pop() {
            taken[next.owner] += 1;
        }
        assert_eq!(taken, [0, 17, 17]);
    }

    #[test]
    fn the_cgroups_nearest_to_the_root_stay() {
        let mut queue = queue(4, 1000);
        for (level, path) in [(5, "/1/2/3/4/5"), (2, "/1/2"), (1, "/1"), (3, "/1/2/3"), (2, "/1/3")]
        {
            queue.push(next(0, level, path));
        }
        assert_eq!(taken(&mut queue)[0], ["/1", "/1/2", "/1/3"]);
    }
}
