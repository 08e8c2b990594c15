//! Finds the reachable instructions of a program from known values of its registers.

use super::Data;
use super::insn::{
    ALU, ALU64, ATOMIC, CALL, EXIT, Insn, JA, JMP, JMP32, LD, LDX, MAP_IDX_VALUE, MEM, REGISTER,
    ST, STX,
};

// How an instruction is reached and left.
pub(super) const RUN: u8 = 1;
pub(super) const JUMPS: u8 = 2;
pub(super) const FALLS: u8 = 4;
pub(super) const TARGET: u8 = 8;

/// The known value of a register.
#[derive(Clone, Copy, PartialEq)]
enum RegisterValue {
    Unknown,
    Number(u64),
    /// The address of this byte of the read-only data.
    Address(u64),
}

use RegisterValue::{Address, Number, Unknown};

type Registers = [RegisterValue; 11];

/// In `Walk::state`: not reached yet.
const NOT_REACHED: u32 = u32::MAX;

/// A walk over all possible paths through the program.
pub(super) struct Walk<'a> {
    all: &'a [Insn],
    data: Data<'a>,
    /// For each instruction, how it is reached and left.
    pub(super) seen: Vec<u8>,
    /// For targets of jumps that were reached, the index of their registers in `states`. Most of a
    /// program is never reached, and memory for it would cost page faults.
    state: Vec<u32>,
    states: Vec<Registers>,
    todo: Vec<(usize, Registers)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(all: &'a [Insn], data: Data<'a>) -> Option<Walk<'a>> {
        let mut walk = Walk {
            all,
            data,
            seen: vec![0; all.len()],
            state: vec![NOT_REACHED; all.len()],
            states: Vec::new(),
            todo: Vec::new(),
        };
        walk.mark(0)?;
        let mut pc = 0;
        while pc < all.len() {
            let insn = all[pc];
            if !insn.is_known() {
                return None;
            }
            insn.target(pc).into_iter().chain(insn.function(pc)).try_for_each(|t| walk.mark(t))?;
            pc += 1 + usize::from(insn.is_wide());
        }
        Some(walk)
    }
    fn mark(&mut self, target: usize) -> Option<()> {
        *self.seen.get_mut(target)? |= TARGET;
        Some(())
    }
    pub(super) fn run(&mut self) -> Option<()> {
        self.todo.push((0, [Unknown; 11]));
        while let Some((pc, registers)) = self.todo.pop() {
            self.follow(pc, registers)?;
        }
        Some(())
    }
    /// Follows the program from here to an end, or to a place where the known registers do not
    /// change.
    fn follow(&mut self, mut pc: usize, mut r: Registers) -> Option<()> {
        loop {
            let insn = *self.all.get(pc)?;
            if self.seen[pc] & TARGET != 0 && !self.join(pc, &mut r) {
                return Some(());
            }
            self.seen[pc] |= RUN;
            if let Some(function) = insn.function(pc) {
                self.todo.push((function, [Unknown; 11]));
            }
            match insn.code {
                EXIT => return Some(()),
                CALL => r[..6].fill(Unknown),
                _ if matches!(insn.class(), JMP | JMP32) => {
                    let taken = match insn.code {
                        JA => Some(true),
                        _ => compare(&insn, &r),
                    };
                    let target = insn.target(pc)?;
                    if taken != Some(false) {
                        self.seen[pc] |= JUMPS;
                        self.todo.push((target, r));
                    }
                    if taken == Some(true) {
                        return Some(());
                    }
                    self.seen[pc] |= FALLS;
                }
                _ => step(&insn, self.all.get(pc + 1), self.data, &mut r)?,
            }
            pc += 1 + usize::from(insn.is_wide());
        }
    }
    /// Reduces the registers to the values that are known on all paths to `pc`. Returns false if
    /// nothing changed.
    fn join(&mut self, pc: usize, r: &mut Registers) -> bool {
        let Some(known) = self.states.get_mut(self.state[pc] as usize) else {
            self.state[pc] = self.states.len() as u32;
            self.states.push(*r);
            return true;
        };
        let mut changed = false;
        for (k, r) in known.iter_mut().zip(r) {
            if *k != Unknown && *k != *r {
                *k = Unknown;
                changed = true;
            }
            *r = *k;
        }
        changed
    }
}

/// The effect on registers of an instruction that is neither a jump nor a call.
fn step(insn: &Insn, next: Option<&Insn>, data: Data<'_>, r: &mut Registers) -> Option<()> {
    let size = [4, 2, 1, 8][usize::from(insn.code >> 3 & 3)];
    match insn.class() {
        LD if insn.is_wide() => {
            let high = next?.imm as u32;
            r[usize::from(insn.dst)] = match insn.src {
                0 => Number(u64::from(high) << 32 | u64::from(insn.imm as u32)),
                MAP_IDX_VALUE if insn.imm as u32 == data.map => Address(high.into()),
                _ => Unknown,
            };
        }
        LDX => {
            r[usize::from(insn.dst)] = match r[usize::from(insn.src)] {
                Address(at) if insn.code & 0xe0 == MEM => {
                    load(data.value, at.wrapping_add_signed(insn.off.into()), size)
                        .map_or(Unknown, Number)
                }
                _ => Unknown,
            };
        }
        ST => {}
        STX if insn.code & 0xe0 == ATOMIC => (r[usize::from(insn.src)], r[0]) = (Unknown, Unknown),
        STX => {}
        ALU | ALU64 => r[usize::from(insn.dst)] = arithmetic(insn, r),
        _ => return None,
    }
    Some(())
}

fn load(value: &[u8], at: u64, size: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(value.get(at..at.checked_add(size)?)?);
    Some(u64::from_ne_bytes(bytes))
}

fn operand(insn: &Insn, r: &Registers) -> RegisterValue {
    match insn.code & REGISTER {
        0 => Number(i64::from(insn.imm) as u64),
        _ => r[usize::from(insn.src)],
    }
}

fn arithmetic(insn: &Insn, r: &Registers) -> RegisterValue {
    let wide = insn.class() == ALU64;
    let (op, a, b) = (insn.code & 0xf0, r[usize::from(insn.dst)], operand(insn, r));
    // A sign-extending move, a signed division.
    if insn.off != 0 {
        return Unknown;
    }
    let cut = |n: u64| if wide { n } else { u64::from(n as u32) };
    match (op, a, b) {
        (0xb0, _, Number(b)) => Number(cut(b)),
        (0xb0, _, Address(b)) if wide => Address(b),
        (0x00, Address(a), Number(b)) if wide => Address(a.wrapping_add(b)),
        (_, Number(a), Number(b)) => {
            let (a, b) = (cut(a), cut(b));
            let shift = b as u32 & if wide { 63 } else { 31 };
            Number(cut(match op {
                0x00 => a.wrapping_add(b),
                0x10 => a.wrapping_sub(b),
                0x20 => a.wrapping_mul(b),
                0x40 => a | b,
                0x50 => a & b,
                0x60 => a << shift,
                0x70 => a >> shift,
                0xa0 => a ^ b,
                _ => return Unknown,
            }))
        }
        _ => Unknown,
    }
}

/// Is a conditional jump taken? `None` if that is not known.
fn compare(insn: &Insn, r: &Registers) -> Option<bool> {
    let (Number(a), Number(b)) = (r[usize::from(insn.dst)], operand(insn, r)) else { return None };
    let (a, b, x, y) = match insn.class() {
        JMP32 => (a as u32 as u64, b as u32 as u64, i64::from(a as i32), i64::from(b as i32)),
        _ => (a, b, a as i64, b as i64),
    };
    Some(match insn.code & 0xf0 {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => x > y,
        0x70 => x >= y,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => x < y,
        0xd0 => x <= y,
        _ => return None,
    })
}
