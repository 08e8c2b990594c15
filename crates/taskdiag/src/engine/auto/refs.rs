//! The references in a task's bytes to other places of the stream: numbers of names, and tasks with
//! which it shares values. They are rewritten in place, and no attribute changes its length.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::mem::offset_of;

use taskdiag_wire::registry::shape;
use taskdiag_wire::view::Attrs;
use taskdiag_wire::{A_NAME, A_SHARED, ArrayHdr, BlobHdr, Group, Plain, Shape, Shared, Stream};

/// The bits of a number that identify the engine that made it.
const ENGINE: u32 = 0xf000_0000;

/// The numbers of names that are in use in a joined stream.
#[derive(Debug, Default)]
pub(super) struct NameNumbers {
    used: HashSet<u32>,
    /// The highest number so far, for each engine.
    highest: HashMap<u32, u32>,
}

/// New numbers for the names of a stream. It is empty if the numbers can stay.
#[derive(Debug, Default)]
pub(super) struct Renumber(HashMap<u32, u32>);

/// The names of a joined stream, by their content.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    numbers: HashMap<(u32, u128), u32>,
    /// Two random keys for 128 bits of hash, so that no user can choose two names with the same
    /// hash.
    keys: [RandomState; 2],
}

impl KnownNames {
    /// The number of a name, and a key that is equal for equal names of one engine.
    fn key(&self, attr: &[u8]) -> (u32, (u32, u128)) {
        let (at, number) = (offset_of!(BlobHdr, kind), number_of(attr));
        let content = (&attr[..at], &attr[at + 4..]);
        let [a, b] = [0, 1].map(|n| u128::from(self.keys[n].hash_one(content)));
        (number, (number & ENGINE, a << 64 | b))
    }
    /// The names of a stream that the joined one has already: their numbers here and there.
    pub(super) fn of<B: AsRef<[u8]>>(&self, s: &Stream<B>) -> HashMap<u32, u32> {
        let names = s.tasks().flat_map(|t| t.attrs()).filter(|a| a.0 == A_NAME);
        let known = names.filter_map(|(_, attr)| {
            let (number, key) = self.key(attr);
            Some((number, *self.numbers.get(&key)?))
        });
        known.collect()
    }
    /// Adds a name that is written to the joined stream.
    pub(super) fn add(&mut self, attr: &[u8]) {
        let (number, key) = self.key(attr);
        self.numbers.entry(key).or_insert(number);
    }
}

/// The number of a name.
pub(super) fn number_of(attr: &[u8]) -> u32 {
    let at = offset_of!(BlobHdr, kind);
    u32::from_ne_bytes(attr[at..at + 4].try_into().expect("4 bytes"))
}

impl NameNumbers {
    /// Add the names of a stream. They get new numbers if one of their numbers is in use.
    pub(super) fn admit<B: AsRef<[u8]>>(&mut self, s: &Stream<B>) -> Renumber {
        let mut map = HashMap::new();
        if s.name_numbers().any(|n| self.used.contains(&n)) {
            for n in s.name_numbers() {
                let next = self.highest.entry(n & ENGINE).or_insert(n & ENGINE);
                *next += 1;
                map.insert(n, *next);
            }
            self.used.extend(map.values());
        } else {
            for n in s.name_numbers() {
                let highest = self.highest.entry(n & ENGINE).or_insert(n);
                *highest = n.max(*highest);
                self.used.insert(n);
            }
        }
        Renumber(map)
    }
}

/// The highest numbers of names in a stream that is written while it is made. In contrast to
/// [`NameNumbers`], it takes the same memory however many names there are.
#[derive(Debug, Default)]
pub(super) struct HighestNumbers(HashMap<u32, u32>);

impl HighestNumbers {
    /// Adds the names of a stream. A name whose number is not above all numbers so far gets a new
    /// number.
    pub(super) fn admit<B: AsRef<[u8]>>(&mut self, s: &Stream<B>) -> Renumber {
        let is_new = |n: u32| self.0.get(&(n & ENGINE)).is_none_or(|highest| n > *highest);
        let all_are_new = s.name_numbers().all(is_new);
        let mut map = HashMap::new();
        for n in s.name_numbers() {
            let highest = self.0.entry(n & ENGINE).or_insert(n & ENGINE);
            if all_are_new {
                *highest = n.max(*highest);
            } else {
                *highest += 1;
                map.insert(n, *highest);
            }
        }
        Renumber(map)
    }
}

impl Renumber {
    /// Replaces numbers of names by these.
    pub(super) fn with(mut self, known: &HashMap<u32, u32>) -> Renumber {
        self.0.extend(known);
        self
    }
    /// An attribute with the new numbers in it.
    pub(super) fn attr<'a>(&self, kind: u16, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        if let (false, Some(numbers)) = (self.0.is_empty(), Numbered::of(kind)) {
            self.patch(numbers, bytes.to_mut());
        }
        bytes
    }

    fn patch(&self, numbers: Numbered, attr: &mut [u8]) {
        let at = match numbers {
            Numbered::Name => return self.number(attr, offset_of!(BlobHdr, kind)),
            Numbered::Entries(at) => at,
        };
        let (hdr, _) = ArrayHdr::read_from_prefix(attr).expect("of a checked stream");
        for i in 0..hdr.count as usize {
            self.number(attr, size_of::<ArrayHdr>() + i * hdr.size as usize + at);
        }
    }

    fn number(&self, attr: &mut [u8], at: usize) {
        let place = &mut attr[at..at + 4];
        let old = u32::from_ne_bytes(place.try_into().expect("4 bytes"));
        if let Some(new) = self.0.get(&old) {
            place.copy_from_slice(&new.to_ne_bytes());
        }
    }
}

/// Where an attribute contains numbers of names.
#[derive(Clone, Copy)]
enum Numbered {
    /// The attribute is a name, whose head has the number.
    Name,
    /// The attribute is a list, each entry of which has the number of a name at this offset.
    Entries(usize),
}

impl Numbered {
    /// Where attributes of this type have numbers of names. `None`: they have no such numbers.
    fn of(kind: u16) -> Option<Numbered> {
        match shape(kind)? {
            Shape::Blob => (kind == A_NAME).then_some(Numbered::Name),
            Shape::List(entry) => {
                let name = entry.members.iter().find(|m| m.name == "name")?;
                Some(Numbered::Entries(name.offset))
            }
            _ => None,
        }
    }
}

/// An A_SHARED attribute of a checked stream.
pub(super) fn shared(attr: &[u8]) -> Shared {
    Shared::read_from_prefix(attr).expect("of a checked stream").0
}

/// The messages of a task with new numbers of names. Each task that it shares a group with is
/// replaced by `pid_of(group, task)`.
pub(super) fn patched<'a>(
    messages: &'a [u8],
    attrs: Attrs<'a>,
    map: &Renumber,
    pid_of: impl Fn(Group, u32) -> u32,
) -> Cow<'a, [u8]> {
    let mut out = Cow::Borrowed(messages);
    for (kind, attr) in attrs {
        let at = attr.as_ptr().addr() - messages.as_ptr().addr();
        if kind == A_SHARED {
            let s = shared(attr);
            let pid = Group::from_number(s.group).map_or(s.pid, |g| pid_of(g, s.pid));
            if pid != s.pid {
                let at = at + offset_of!(Shared, pid);
                out.to_mut()[at..at + 4].copy_from_slice(&pid.to_ne_bytes());
            }
        } else if let (false, Some(numbers)) = (map.0.is_empty(), Numbered::of(kind)) {
            map.patch(numbers, &mut out.to_mut()[at..at + attr.len()]);
        }
    }
    out
}
