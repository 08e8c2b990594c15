//! Removes dead code from a program before the kernel sees it. The program's read-only data decide
//! which code is dead.
//!
//! The verifier removes dead code, too, but only after passes over the whole program, and one range
//! at a time: each removal moves and corrects all instructions after it. A request needs between a
//! tenth and a half of a program. This module follows the values of registers from loads of the
//! read-only data through plain arithmetic to jumps. If a value is not known, both branches stay.
//! So it may find less dead code than the verifier does, but never more. Instructions whose result
//! is not used afterwards are removed, too, since the verifier would follow their values.
//!
//! This module is pure. A program with instructions that it does not know is left unchanged.
//!
//! `insn.rs` describes single instructions, `walk.rs` finds the reachable ones, and this file
//! writes the program without the others.

pub(super) mod insn;
mod walk;

use self::insn::{ALL, Insn, JA, SIZE, decode};
use self::walk::{FALLS, JUMPS, RUN, Walk};

/// A program without dead code.
#[derive(Debug)]
pub struct Trimmed {
    /// Its instructions.
    pub insns: Vec<u8>,
    /// How many of these there are at or after each old instruction.
    after: Vec<u32>,
    /// How each old instruction is reached.
    seen: Vec<u8>,
}

/// The read-only data: the number of its map in the program, and its content.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Number of the map.
    pub map: u32,
    /// Its content. The content beyond its end is not known.
    pub value: &'a [u8],
}

/// Trims a program. `None` if it has unknown instructions.
pub fn trim(insns: &[u8], data: Data<'_>) -> Option<Trimmed> {
    let all: Vec<Insn> = insns.chunks_exact(SIZE).map(decode).collect::<Option<_>>()?;
    let mut walk = Walk::new(&all, data)?;
    walk.run()?;
    emit(insns, &all, walk.seen)
}

impl Trimmed {
    /// The new number of the first instruction of a function, or `None` if it is dead.
    pub fn place(&self, old: u32) -> Option<u32> {
        let is_run = self.seen.get(old as usize)? & RUN != 0;
        is_run.then(|| self.after[0] - self.after[old as usize])
    }
}

/// The reachable instructions, with corrected jumps and calls.
fn emit(insns: &[u8], all: &[Insn], seen: Vec<u8>) -> Option<Trimmed> {
    // For each instruction, and one past the last, the kept one at or after it, counted from the
    // end.
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
    Some(Trimmed { insns: out, after, seen })
}

#[cfg(test)]
mod tests {
    use super::insn::{
        CALL, EXIT, LDX, MAP_IDX_VALUE, MEM, PSEUDO_CALL, PSEUDO_FUNC, REGISTER, WIDE,
    };
    use super::*;
    use crate::engine::bpf::machine::{self, Host, LoaderMemory};

    const DATA: [u8; 16] = [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
    const END: [u8; 8] = insn(EXIT, 0, 0, 0, 0);
    const HELPER: [u8; 8] = insn(CALL, 0, 0, 0, 181);

    const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
        let (o, i) = (off.to_ne_bytes(), imm.to_ne_bytes());
        [code, dst | src << 4, o[0], o[1], i[0], i[1], i[2], i[3]]
    }
    /// dst = the number of `size` at this place of the read-only data. dst holds the address
    /// before.
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
    fn jumps_that_constants_decide_are_removed() {
        // if (data[0] == 1) r0 = 5; else r0 = 6;
        let mut p = read(1, 0, WORD);
        p.extend([insn(0x55, 1, 0, 2, 1), mov(0, 5), insn(JA, 0, 0, 1, 0), mov(0, 6), END]);
        assert_eq!(codes(&trimmed(&p).unwrap()), [mov(0, 5), END]);
        // and the other way, where the jump is taken
        p[3] = insn(0x15, 1, 0, 2, 1);
        assert_eq!(codes(&trimmed(&p).unwrap()), [mov(0, 6), END]);
    }

    #[test]
    fn unused_values_are_removed() {
        let store = insn(0x7b, 10, 2, -8, 0);
        let load = insn(0x79, 3, 10, -8, 0);
        // First a value that is stored, loaded and partly used, then another value.
        let mut p = vec![mov(2, 4), store, load, insn(0x57, 3, 0, 0, 1), mov(3, 5)];
        p.extend([insn(0xbf, 0, 3, 0, 0), END]);
        let want = [mov(2, 4), store, mov(3, 5), insn(0xbf, 0, 3, 0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), want);
        // An argument of a call and its result; a register that the call keeps, and one that it
        // does not keep.
        let call = insn(CALL, 0, 0, 0, 5);
        let p = [mov(1, 1), mov(6, 6), mov(0, 2), call, insn(0x0f, 0, 6, 0, 0), END];
        let want = [mov(1, 1), mov(6, 6), call, insn(0x0f, 0, 6, 0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), want);
        // A register that is read on only one of two paths, and one that is read in the next
        // iteration of a loop.
        let p = [mov(2, 7), insn(0x15, 1, 0, 1, 0), mov(2, 8), insn(0xbf, 0, 2, 0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        let p = [mov(0, 0), insn(0x0f, 0, 2, 0, 0), mov(2, 3), insn(0xa5, 0, 0, -3, 9), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        // A jump over an instruction that was removed.
        let p = [insn(0x15, 1, 0, 1, 0), mov(2, 8), mov(0, 0), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), [mov(0, 0), END]);
    }

    #[test]
    fn functions_without_callers_are_removed() {
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
    fn values_that_differ_by_path_are_unknown() {
        // r1 = the argument ? 1 : 2; if (r1 == 1) ...
        let p =
            [mov(2, 1), insn(0x15, 1, 0, 1, 0), mov(2, 2), insn(0x15, 2, 0, 1, 1), mov(0, 5), END];
        assert_eq!(codes(&trimmed(&p).unwrap()), p);
        // a loop that changes the value that it compares; a call that may; beyond the data; another
        // map
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
    fn programs_with_unknown_instructions_are_unchanged() {
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
    fn trimmed_programs_do_the_same() {
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
