//! Removes code that is never run from a program, before the kernel sees it. The program's read-only data tell
//! which code that is.
//!
//! The verifier removes dead code, too, but only after passes over the whole program, and one range at a time: each
//! removal moves and corrects all that follows. A request needs between a tenth and a half of a program. This module
//! follows the values of registers from loads of the read-only data through plain arithmetic to jumps. Where a value
//! is not known, both ways stay. So it may find less dead code than the verifier does, but never more. Instructions
//! whose result is not used afterwards are removed, too, since the verifier would follow their values.
//!
//! This module is pure. A program with instructions that it does not know is left unchanged.

/// A program without the code that is never run.
#[derive(Debug)]
pub struct Trimmed {
    /// Its instructions.
    pub insns: Vec<u8>,
    /// For each old instruction its new number, or `None` if it is never run.
    place: Vec<Option<u32>>,
}

/// The read-only data: the number of its map in the program, and its content.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Number of the map.
    pub map: u32,
    /// Its content. Beyond its end nothing is known.
    pub value: &'a [u8],
}

#[derive(Clone, Copy)]
struct Insn {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

const SIZE: usize = 8;
// Classes of instructions, and jumps.
const LD: u8 = 0;
const LDX: u8 = 1;
const ST: u8 = 2;
const STX: u8 = 3;
const ALU: u8 = 4;
const JMP: u8 = 5;
const JMP32: u8 = 6;
const ALU64: u8 = 7;
const REGISTER: u8 = 0x08;
const WIDE: u8 = 0x18;
const MEM: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
const JA: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Values of `src` in a wide load or in a call.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;
const MAP_IDX_VALUE: u8 = 6;

/// What is known of a register.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    Unknown,
    Number(u64),
    /// The address of this byte of the read-only data.
    Address(u64),
}

use Value::{Address, Number, Unknown};

type Registers = [Value; 11];

// Sets of registers: all, and those that a call takes and changes.
const ALL: u16 = 0x7ff;
const SCRATCH: u16 = 0x3f;

// How an instruction is reached and left.
const RUN: u8 = 1;
const JUMPS: u8 = 2;
const FALLS: u8 = 4;
const TARGET: u8 = 8;

/// Trim a program. `None` if it is not understood.
pub fn trim(insns: &[u8], data: Data<'_>) -> Option<Trimmed> {
    let all: Vec<Insn> = insns.chunks_exact(SIZE).map(decode).collect::<Option<_>>()?;
    let mut walk = Walk::new(&all, data)?;
    walk.run()?;
    emit(insns, &all, &walk.seen)
}

impl Trimmed {
    /// The new number of an instruction that begins a function, or `None` if it is never run.
    pub fn place(&self, old: u32) -> Option<u32> {
        *self.place.get(old as usize)?
    }
}

fn decode(b: &[u8]) -> Option<Insn> {
    let insn = Insn {
        code: b[0],
        dst: b[1] & 15,
        src: b[1] >> 4,
        off: i16::from_ne_bytes([b[2], b[3]]),
        imm: i32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
    };
    (insn.dst <= 10 && insn.src <= 10).then_some(insn)
}

impl Insn {
    fn class(&self) -> u8 {
        self.code & 7
    }
    fn is_wide(&self) -> bool {
        self.code == WIDE
    }
    /// Is it known where the instruction leads? It is not for gotol, gotox, may_goto and unknown ones.
    fn is_known(&self) -> bool {
        match (self.class(), self.code & 0xf0) {
            (JMP, 0x00) => self.code == JA,
            (JMP, 0x80) => self.code == CALL,
            (JMP, 0x90) => self.code == EXIT,
            (JMP32, 0x00 | 0x80 | 0x90) | (JMP | JMP32, 0xe0 | 0xf0) => false,
            (LD, _) => self.is_wide(),
            _ => true,
        }
    }
    /// The target of this jump at `pc`, or `None` if it is no jump.
    fn target(&self, pc: usize) -> Option<usize> {
        match self.code {
            CALL | EXIT => None,
            _ if matches!(self.class(), JMP | JMP32) => {
                (pc + 1).checked_add_signed(self.off.into())
            }
            _ => None,
        }
    }
    /// Does it do more than compute a value? An instruction that names a function counts, because it keeps the function.
    fn has_effect(&self) -> bool {
        match self.class() {
            LD => self.src == PSEUDO_FUNC,
            LDX => self.code & 0xe0 != MEM,
            ALU | ALU64 => false,
            _ => true,
        }
    }
    /// The registers that it overwrites or makes undefined.
    fn writes(&self) -> u16 {
        match self.class() {
            LD | LDX | ALU | ALU64 => 1 << self.dst,
            _ if self.code == CALL => SCRATCH,
            // An atomic instruction may overwrite one, or not.
            _ => 0,
        }
    }
    /// The registers that it reads.
    fn reads(&self) -> u16 {
        let (dst, src) = (1 << self.dst, 1 << self.src);
        let operand = if self.code & REGISTER != 0 { src } else { 0 };
        match self.class() {
            LD => 0,
            LDX => src,
            ST => dst,
            STX => dst | src | 1,
            ALU | ALU64 if self.code & 0xf0 == 0xb0 => operand,
            ALU | ALU64 => dst | operand,
            // It is not known which arguments a helper or a function takes, so all count.
            _ if self.code == CALL => SCRATCH & !1,
            _ if self.code == EXIT => 1,
            _ => dst | operand,
        }
    }
    /// The function that this instruction at `pc` calls or takes the address of.
    fn function(&self, pc: usize) -> Option<usize> {
        let is = self.code == CALL && self.src == PSEUDO_CALL
            || self.is_wide() && self.src == PSEUDO_FUNC;
        (pc + 1).checked_add_signed(self.imm as isize).filter(|_| is)
    }
}

/// A walk over all ways through the program that may be taken.
struct Walk<'a> {
    all: &'a [Insn],
    data: Data<'a>,
    seen: Vec<u8>,
    /// For instructions that are reached in several ways, the index of their registers in `states`.
    state: Vec<u32>,
    states: Vec<Option<Registers>>,
    todo: Vec<(usize, Registers)>,
}

impl<'a> Walk<'a> {
    fn new(all: &'a [Insn], data: Data<'a>) -> Option<Walk<'a>> {
        let mut walk = Walk {
            all,
            data,
            seen: vec![0; all.len()],
            state: vec![0; all.len()],
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
        let seen = self.seen.get_mut(target)?;
        if *seen & TARGET == 0 {
            *seen |= TARGET;
            self.state[target] = self.states.len() as u32;
            self.states.push(None);
        }
        Some(())
    }
    fn run(&mut self) -> Option<()> {
        self.todo.push((0, [Unknown; 11]));
        while let Some((pc, registers)) = self.todo.pop() {
            self.follow(pc, registers)?;
        }
        Some(())
    }
    /// Follow the program from here to an end, or to a place where nothing new is known.
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
    /// Reduce the registers to what is known on all ways to `pc`. Returns false if that is the same as before.
    fn join(&mut self, pc: usize, r: &mut Registers) -> bool {
        let Some(known) = &mut self.states[self.state[pc] as usize] else {
            self.states[self.state[pc] as usize] = Some(*r);
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

/// The effect on the registers of an instruction that is no jump and no call.
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

fn operand(insn: &Insn, r: &Registers) -> Value {
    match insn.code & REGISTER {
        0 => Number(i64::from(insn.imm) as u64),
        _ => r[usize::from(insn.src)],
    }
}

fn arithmetic(insn: &Insn, r: &Registers) -> Value {
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

/// The instructions that are run, with their jumps and calls corrected.
fn emit(insns: &[u8], all: &[Insn], seen: &[u8]) -> Option<Trimmed> {
    // For each instruction, and one past the last, the kept one at or after it, counted from the end.
    let mut after = vec![0u32; all.len() + 1];
    let mut keep = vec![false; all.len()];
    let mut kept = 0;
    // For each instruction the registers that are read from there on.
    let mut live = vec![0u16; all.len() + 1];
    for pc in (0..all.len()).rev() {
        live[pc] = live[pc + 1];
        if seen[pc] & RUN != 0 {
            let insn = &all[pc];
            let wide = usize::from(insn.is_wide());
            if let Some(target) = insn.target(pc) {
                let ahead = target > pc;
                let there = if ahead { live[target] } else { ALL };
                let elsewhere = !ahead || after[target] != after[pc + 1];
                let jumps = seen[pc] & JUMPS != 0;
                let falls = seen[pc] & FALLS != 0;
                keep[pc] = jumps && elsewhere;
                live[pc] = match (jumps, falls) {
                    (true, true) if keep[pc] => live[pc + 1] | there | insn.reads(),
                    (true, false) => there,
                    _ => live[pc + 1],
                };
            } else if insn.has_effect() || live[pc + 1 + wide] & insn.writes() != 0 {
                keep[pc..=pc + wide].fill(true);
                live[pc] = live[pc + 1 + wide] & !insn.writes() | insn.reads();
            }
            kept += if keep[pc] { 1 + wide as u32 } else { 0 };
        }
        after[pc] = kept;
    }
    let number = |pc: usize| kept - after[pc];
    let mut out = Vec::with_capacity(kept as usize * SIZE);
    for (pc, insn) in all.iter().enumerate().filter(|(pc, _)| keep[*pc]) {
        let mut bytes: [u8; SIZE] = insns[pc * SIZE..][..SIZE].try_into().ok()?;
        let from = i64::from(number(pc)) + 1;
        let second = pc > 0 && all[pc - 1].is_wide() && seen[pc - 1] & RUN != 0;
        if second {
            // The second half of a wide number needs no change.
        } else if let Some(target) = insn.target(pc) {
            if seen[pc] & FALLS == 0 {
                bytes = [JA, 0, 0, 0, 0, 0, 0, 0];
            }
            let off = i16::try_from(i64::from(number(target)) - from).ok()?;
            bytes[2..4].copy_from_slice(&off.to_ne_bytes());
        } else if let Some(function) = insn.function(pc) {
            let imm = i32::try_from(i64::from(number(function)) - from).ok()?;
            bytes[4..8].copy_from_slice(&imm.to_ne_bytes());
        }
        out.extend_from_slice(&bytes);
    }
    let place = (0..all.len()).map(|pc| (seen[pc] & RUN != 0).then(|| number(pc))).collect();
    Some(Trimmed { insns: out, place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::bpf::machine::{self, Host, LoaderMemory};

    const DATA: [u8; 16] = [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
    const END: [u8; 8] = insn(EXIT, 0, 0, 0, 0);
    const HELPER: [u8; 8] = insn(CALL, 0, 0, 0, 181);

    const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
        let (o, i) = (off.to_ne_bytes(), imm.to_ne_bytes());
        [code, dst | src << 4, o[0], o[1], i[0], i[1], i[2], i[3]]
    }
    /// dst = the number of `size` at this place of the read-only data. dst holds the address before.
    fn read(dst: u8, at: i16, size: u8) -> Vec<[u8; 8]> {
        let base = i32::from(at / 2);
        vec![
            insn(WIDE, dst, MAP_IDX_VALUE, 0, 0),
            insn(0, 0, 0, 0, base),
            insn(LDX | MEM | size, dst, dst, at - base as i16, 0),
        ]
    }
    const WORD: u8 = 0;
    const BYTE: u8 = 0x10;
    const DOUBLE: u8 = 0x18;

    fn mov(dst: u8, n: i32) -> [u8; 8] {
        insn(0xb7, dst, 0, 0, n)
    }
    fn trimmed(insns: &[[u8; 8]]) -> Option<Trimmed> {
        trim(insns.as_flattened(), Data { map: 0, value: &DATA })
    }
    fn codes(t: &Trimmed) -> Vec<[u8; 8]> {
        t.insns.chunks_exact(8).map(|c| c.try_into().unwrap()).collect()
    }

    #[test]
    fn a_jump_that_the_data_decide_goes() {
        // if (data[0] == 1) r0 = 5; else r0 = 6;
        let mut p = read(1, 0, WORD);
        p.extend([insn(0x55, 1, 0, 2, 1), mov(0, 5), insn(JA, 0, 0, 1, 0), mov(0, 6), END]);
        assert_eq!(codes(&trimmed(&p).unwrap()), [mov(0, 5), END]);
        // and the other way, where the jump is taken
        p[3] = insn(0x15, 1, 0, 2, 1);
        assert_eq!(codes(&trimmed(&p).unwrap()), [mov(0, 6), END]);
    }

    #[test]
    fn values_that_nobody_looks_at_go() {
        let store = insn(0x7b, 10, 2, -8, 0);
        let load = insn(0x79, 3, 10, -8, 0);
        // First a stored and loaded value of which a part is used, then another value.
        let mut p = vec![mov(2, 4), store, load, insn(0x57, 3, 0, 0, 1), mov(3, 5)];
        p.extend([insn(0xbf, 0, 3, 0, 0), END]);
        let want = [mov(2, 4), store, mov(3, 5), insn(0xbf, 0, 3, 0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), want);
        // An argument of a call and its result; a register that the call keeps, and one that it does not keep.
        let call = insn(CALL, 0, 0, 0, 5);
        let p = [mov(1, 1), mov(6, 6), mov(0, 2), call, insn(0x0f, 0, 6, 0, 0), END];
        let want = [mov(1, 1), mov(6, 6), call, insn(0x0f, 0, 6, 0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), want);
        // A register that is read on one of two ways only, and one that is read in the next turn of a loop.
        let p = [mov(2, 7), insn(0x15, 1, 0, 1, 0), mov(2, 8), insn(0xbf, 0, 2, 0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        let p = [mov(0, 0), insn(0x0f, 0, 2, 0, 0), mov(2, 3), insn(0xa5, 0, 0, -3, 9), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        // A jump over an instruction that was removed.
        let p = [insn(0x15, 1, 0, 1, 0), mov(2, 8), mov(0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), [mov(0, 0), END]);
    }

    #[test]
    fn functions_that_nobody_calls_go() {
        let call = |n| insn(CALL, 0, PSEUDO_CALL, 0, n);
        let mut p = read(6, 4, BYTE); // 0: r6 = 2
        p.push(insn(0x15, 6, 0, 1, 2)); // 3: skip the first call
        p.push(call(5)); // 4
        p.push(call(6)); // 5
        p.push(insn(WIDE, 1, PSEUDO_FUNC, 0, 7)); // 6: the address of the third
        p.push(insn(0, 0, 0, 0, 0));
        p.extend([HELPER, END]); // 8
        p.extend([mov(0, 1), END]); // 10, only called by what is not run
        p.extend([mov(0, 2), END]); // 12
        p.extend([mov(0, 3), END]); // 14
        p.extend([call(-3), END]); // 16, not called
        let t = trimmed(&p).unwrap();
        let want = [
            &[call(4), insn(WIDE, 1, PSEUDO_FUNC, 0, 5), insn(0, 0, 0, 0, 0), HELPER, END][..],
            &[mov(0, 2), END, mov(0, 3), END],
        ]
        .concat();
        assert_eq!(codes(&t), want);
        let places: Vec<_> = [0, 10, 12, 14, 16, 99].iter().map(|at| t.place(*at)).collect();
        assert_eq!(places, [Some(0), None, Some(5), Some(7), None, None]);
    }

    #[test]
    fn what_differs_by_the_way_is_not_known() {
        // r1 = the argument ? 1 : 2; if (r1 == 1) ...
        let p =
            [mov(2, 1), insn(0x15, 1, 0, 1, 0), mov(2, 2), insn(0x15, 2, 0, 1, 1), mov(0, 5), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        // a loop that changes what it compares; a call that may; beyond the data; another map
        let p = [mov(2, 0), insn(0x07, 2, 0, 0, 1), insn(0xa5, 2, 0, -2, 9), mov(0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        let p = [mov(2, 0), insn(CALL, 0, 0, 0, 5), insn(0x15, 2, 0, 1, 0), mov(0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        let beyond = [&read(1, 12, DOUBLE)[..], &[insn(0x15, 1, 0, 1, 0), mov(0, 0), END]].concat();
        assert_eq!(codes(&trimmed(&beyond).unwrap()), beyond);
        let other = Data { map: 1, value: &DATA };
        let p = [&read(1, 0, WORD)[..], &[insn(0x15, 1, 0, 1, 0), mov(0, 0), END]].concat();
        assert_eq!(trim(p.as_flattened(), other).unwrap().insns, p.as_flattened());
    }

    #[test]
    fn what_is_not_known_is_left() {
        for p in [
            vec![insn(0x06, 0, 0, 0, 1), mov(0, 0), END], // gotol
            vec![insn(0xe5, 0, 0, 0, 0), END],            // may_goto
            vec![insn(0x8d, 1, 0, 0, 0), END],            // a call through a register
            vec![insn(JA, 0, 0, 5, 0), END],              // out of the program
            vec![insn(0x30, 0, 0, 0, 0), END],            // a load from a packet
            vec![mov(0, 0)],                              // no end
            vec![insn(WIDE, 1, 0, 0, 0)],                 // half a number
        ] {
            assert!(trimmed(&p).is_none(), "{p:?}");
        }
    }

    struct Nobody;
    impl Host for Nobody {
        fn bpf(&mut self, _: u32, _: &mut LoaderMemory<'_>, _: u64, _: u32) -> i64 {
            unreachable!()
        }
        fn find_type(&mut self, _: &[u8], _: u32) -> i64 {
            unreachable!()
        }
        fn close(&mut self, _: u32) {}
    }

    fn result(insns: &[u8]) -> Option<i64> {
        let (mut data, mut ctx) = (DATA, [7u8, 0, 0, 0, 0, 0, 0, 0]);
        machine::run(insns, &mut LoaderMemory::new(&mut data, &mut ctx, &[]), &mut Nobody).ok()
    }

    #[test]
    fn programs_do_what_they_did() {
        // Pseudo-random numbers by xorshift.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut any = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let (mut ended, mut shorter) = (0, 0);
        for _ in 0..2_000 {
            let mut p = vec![insn(LDX | MEM | DOUBLE, 6, 1, 0, 0)];
            p.extend((0..6).map(|r| mov(r, r.into())));
            // Every piece has three instructions, so that jumps lead to the beginning of one.
            for _ in 0..20 {
                let (dst, src, n) = (any(6) as u8, any(7) as u8, any(4) as i32);
                let ahead = 2 + 3 * any(4) as i16;
                let one = match any(8) {
                    0..3 => {
                        let size = [WORD, BYTE, DOUBLE][any(3) as usize];
                        p.extend(read(dst, any(8) as i16, size));
                        continue;
                    }
                    3 => mov(dst, n),
                    4 => {
                        let code = [0x07, 0x0f, 0x04, 0x57, 0x47, 0x67, 0x77, 0xbf, 0xbc, 0x5c];
                        insn(code[any(10) as usize], dst, src, 0, n)
                    }
                    5 => insn(JA, 0, 0, ahead, 0),
                    _ => {
                        let op = [0x15, 0x25, 0x35, 0x45, 0x55, 0x65, 0x75, 0xc5, 0xd5];
                        let code = op[any(9) as usize] | [0, REGISTER][any(2) as usize];
                        let (src, n) = if code & REGISTER != 0 { (src, 0) } else { (0, n) };
                        insn(code, dst, src, ahead, n)
                    }
                };
                p.extend([one, insn(0x07, 0, 0, 0, n), insn(0x0f, 0, dst, 0, 0)]);
            }
            p.extend([END; 16]);
            let t = trimmed(&p).expect("it is understood");
            let (before, after) = (result(p.as_flattened()), result(&t.insns));
            assert_eq!(before, after, "{p:?}");
            ended += usize::from(before.is_some());
            shorter += usize::from(t.insns.len() < p.as_flattened().len() - 16 * 8);
        }
        assert!(ended > 1_000 && shorter > 1_000, "{ended} ended, {shorter} became shorter");
    }
}
