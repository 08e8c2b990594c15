//! Looks at the stack of one thread, and makes sure that it slept all the time.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use taskdiag_wire::{Groups, VMA_EXEC, VmaKind, Wait as WaitRecord};

use super::files::{BYTES, Files};
use super::unwind::{HERE, Memory, Registers, caller};
use super::{FRAMES, Frame, StackEnd, UserStack};
use crate::engine::EngineId;
use crate::engine::auto::resolved;
use crate::engine::procfs::parse::{self, MapLine, SyscallText};
use crate::why::patience::Patience;
use crate::why::task::Place;
use crate::why::{Limits, NoHolder, Wait};
use crate::{Choice, Request, query_with};

/// How often a thread that runs now and then is looked at.
const TRIES: usize = 3;
/// The largest number of files of a stack.
const FILES: usize = 16;
/// The size of the parts in which the stack is read, in bytes.
const PART: usize = 64 << 10;
/// The largest number of parts.
const PARTS: usize = 8;
/// The largest vDSO, which is a few pages.
const VDSO: u64 = 64 << 10;
/// A function may use this much memory below its stack pointer.
const BELOW: u64 = 128;

/// Reads the stacks of threads, and keeps what they have in common.
#[derive(Debug)]
pub struct Stacks {
    choice: Choice,
    limits: Limits,
    end: Instant,
    patience: Patience,
    files: Arc<Mutex<Files>>,
    /// How many bytes of files may still be read, also by threads that were left behind.
    left: Arc<AtomicU64>,
    /// Processes whose memory or files did not come in time.
    stuck: HashSet<u32>,
}

impl Stacks {
    /// For one answer. `choice` is whom the caller lets answer: BPF is asked for a register only if
    /// it may answer.
    pub fn new(choice: Choice, limits: Limits) -> Stacks {
        let left = Arc::new(AtomicU64::new(BYTES));
        Stacks {
            choice,
            limits,
            end: Instant::now() + limits.all,
            patience: Patience::default(),
            files: Arc::new(Mutex::new(Files::new(Arc::clone(&left)))),
            left,
            stuck: HashSet::new(),
        }
    }

    /// The stack of a thread in its program, if it still waits as it did. The time is limited.
    pub fn of(&mut self, wait: &Wait) -> UserStack {
        if wait.is_kthread {
            return UserStack::none(StackEnd::NoProgram);
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return UserStack::none(StackEnd::NotLookedAt);
        }
        if self.stuck.contains(&wait.tgid) {
            return UserStack::none(StackEnd::Blocked);
        }
        let limit = self.limits.each.min(left);
        let look = Look {
            place: Place { tgid: wait.tgid, tid: wait.tid },
            was: wait.call,
            choice: self.choice,
            end: Instant::now() + limit,
        };
        let files = Arc::clone(&self.files);
        let found = self.patience.within(limit, move || look.stack(&files));
        found.unwrap_or_else(|| {
            // The thread that was left behind keeps the old files, which count as before. Any user
            // can make a thread stay behind for each of many processes.
            self.files = Arc::new(Mutex::new(Files::new(Arc::clone(&self.left))));
            self.stuck.insert(wait.tgid);
            UserStack::none(StackEnd::Blocked)
        })
    }
}

/// What is looked at.
struct Look {
    place: Place,
    /// The system call in the answer.
    was: Option<crate::why::Call>,
    choice: Choice,
    end: Instant,
}

/// Frames so far.
type Frames = Vec<Frame>;

fn end_of(why: NoHolder) -> StackEnd {
    match why {
        NoHolder::NoRight => StackEnd::NoRight,
        NoHolder::OtherNumbers => StackEnd::OtherNumbers,
        NoHolder::Changed => StackEnd::Changed,
        NoHolder::Blocked => StackEnd::Blocked,
        _ => StackEnd::NoMemory,
    }
}

impl Look {
    fn stack(&self, files: &Mutex<Files>) -> UserStack {
        let mut last = UserStack::none(StackEnd::Changed);
        for _ in 0..TRIES {
            last = self.once(files).unwrap_or_else(UserStack::none);
            if !matches!(last.end, StackEnd::Changed | StackEnd::Runs) {
                break;
            }
        }
        last
    }

    /// The stack, if the thread has slept from the beginning to the end of this function.
    fn once(&self, files: &Mutex<Files>) -> Result<UserStack, StackEnd> {
        let (stand, text) = self.place.sleeps().map_err(end_of)?;
        let Some(SyscallText::Asleep { sp, pc, .. }) = text else { return Err(StackEnd::Runs) };
        if sp == 0 && pc == 0 {
            return Err(StackEnd::NoProgram);
        }
        if self.was.is_some_and(|was| (was.stack, was.code) != (sp, pc)) {
            return Err(StackEnd::Changed);
        }
        let maps = self.place.maps().map_err(end_of)?;
        let maps: Vec<MapLine<'_>> =
            parse::maps_lines(&maps).filter(|m| m.vma.perms & VMA_EXEC != 0).collect();
        let mut memory = Parts { place: self.place, parts: Vec::new() };
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut walk = |registers| self.walk(&maps, registers, &mut files, &mut memory);
        let (mut frames, mut end) = walk(Registers::new(&HERE, pc, sp, None, None));
        if end == StackEnd::NoRegister {
            if let Some((frame, link)) = self.saved_registers(sp, pc) {
                (frames, end) = walk(Registers::new(&HERE, pc, sp, frame, link));
            }
        }
        // The mappings may have changed while the thread slept, by another thread.
        let now = self.place.maps().map_err(end_of)?;
        let is_same = parse::maps_lines(&now)
            .filter(|m| m.vma.perms & VMA_EXEC != 0)
            .map(|m| (m.vma.start, m.vma.end, m.vma.dev, m.vma.inode))
            .eq(maps.iter().map(|m| (m.vma.start, m.vma.end, m.vma.dev, m.vma.inode)));
        self.place.is_still(&stand).map_err(end_of)?;
        if is_same { Ok(UserStack { frames, end }) } else { Err(StackEnd::Changed) }
    }

    /// The registers that only BPF knows: the frame pointer, and on arm64 the link.
    fn saved_registers(&self, sp: u64, pc: u64) -> Option<(Option<u64>, Option<u64>)> {
        // The environment or the brake of the machine may have chosen another engine.
        let only_bpf = Choice::Only(EngineId::Bpf);
        let chosen = resolved(self.choice).ok()?;
        if chosen != Choice::Fastest && chosen != only_bpf {
            return None;
        }
        let request = Request::threads(self.place.tid, Groups::WAIT);
        let answer = query_with(&request, only_bpf).ok()?;
        let task = answer.task(self.place.tid)?;
        let wait = task.record::<WaitRecord>()?;
        let is_same = wait.user_sp() == Some(sp) && wait.user_pc() == Some(pc);
        is_same.then(|| (wait.user_fp(), wait.user_lr()))
    }

    /// The frames from these registers on.
    fn walk(
        &self,
        maps: &[MapLine<'_>],
        mut registers: Registers,
        files: &mut Files,
        memory: &mut Parts,
    ) -> (Frames, StackEnd) {
        let mut frames = Vec::new();
        let mut seen = HashSet::new();
        let end = loop {
            if frames.len() == FRAMES {
                break StackEnd::TooDeep;
            }
            if Instant::now() >= self.end {
                break StackEnd::Blocked;
            }
            match self.frame(maps, &registers, files, memory, &mut seen, &mut frames) {
                Ok(Some(next)) => registers = next,
                Ok(None) => break StackEnd::Complete,
                Err(end) => break end,
            }
        };
        (frames, end)
    }

    /// Adds a frame. Returns the registers of its caller.
    fn frame(
        &self,
        maps: &[MapLine<'_>],
        registers: &Registers,
        files: &mut Files,
        memory: &mut Parts,
        seen: &mut HashSet<(u32, u64)>,
        frames: &mut Frames,
    ) -> Result<Option<Registers>, StackEnd> {
        let place = registers.place();
        let map = maps.iter().find(|m| (m.vma.start..m.vma.end).contains(&place));
        let map = map.ok_or(StackEnd::NoCode)?;
        let vma = &map.vma;
        let elf = match VmaKind::from_number(vma.kind) {
            Some(VmaKind::Vdso) if vma.end - vma.start <= VDSO => {
                let len = (vma.end - vma.start) as usize;
                files.of_memory(self.place.memory(vma.start, len).map_err(end_of)?)?
            }
            Some(VmaKind::File) if vma.inode != 0 => {
                seen.insert((vma.dev, vma.inode));
                if seen.len() > FILES {
                    return Err(StackEnd::NotLookedAt);
                }
                files.get(self.place, vma, &map.name().unwrap_or_default())?
            }
            _ => return Err(StackEnd::NoFile),
        };
        let of_file = |address: u64| elf.address(address - vma.start + vma.offset_bytes);
        let found = of_file(place).ok_or(StackEnd::NoCode)?;
        // A hostile file may place its code at the last addresses.
        let address = found.wrapping_add(registers.pc.wrapping_sub(place));
        // The name and the place of a call are those of the call, which is before the address.
        let function = elf.function(found).map(|mut f| {
            f.offset_bytes = f.offset_bytes.wrapping_add(registers.pc.wrapping_sub(place));
            f
        });
        frames.push(Frame { function, file: map.text.to_vec(), address });
        caller(&HERE, &elf, place.wrapping_sub(found), registers, memory)
    }
}

/// Parts of the memory of a process that were read.
struct Parts {
    place: Place,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Memory for Parts {
    fn word(&mut self, address: u64) -> Result<u64, StackEnd> {
        let find = |parts: &[(u64, Vec<u8>)]| {
            parts.iter().find_map(|(start, bytes)| {
                let at = usize::try_from(address.checked_sub(*start)?).ok()?;
                let word = bytes.get(at..at.checked_add(8)?)?;
                Some(u64::from_le_bytes(word.try_into().ok()?))
            })
        };
        if let Some(word) = find(&self.parts) {
            return Ok(word);
        }
        if self.parts.len() == PARTS {
            return Err(StackEnd::TooDeep);
        }
        let start = address.saturating_sub(BELOW);
        let bytes = self.place.memory(start, PART).map_err(end_of);
        // The memory below a stack may not be there.
        let part = match bytes {
            Err(StackEnd::NoMemory) => (address, self.place.memory(address, PART).map_err(end_of)?),
            bytes => (start, bytes?),
        };
        self.parts.push(part);
        find(&self.parts).ok_or(StackEnd::NoMemory)
    }
}
