//! One instruction of a program: its parts, its targets, and the registers that it reads and
//! writes.

#[derive(Clone, Copy)]
pub(in crate::engine::bpf) struct Insn {
    pub(in crate::engine::bpf) code: u8,
    pub(in crate::engine::bpf) dst: u8,
    pub(in crate::engine::bpf) src: u8,
    pub(in crate::engine::bpf) off: i16,
    pub(in crate::engine::bpf) imm: i32,
}

pub(in crate::engine::bpf) const SIZE: usize = 8;
// Classes of instructions, and jumps.
pub(in crate::engine::bpf) const LD: u8 = 0;
pub(in crate::engine::bpf) const LDX: u8 = 1;
pub(in crate::engine::bpf) const ST: u8 = 2;
pub(in crate::engine::bpf) const STX: u8 = 3;
pub(in crate::engine::bpf) const ALU: u8 = 4;
pub(in crate::engine::bpf) const JMP: u8 = 5;
pub(in crate::engine::bpf) const JMP32: u8 = 6;
pub(in crate::engine::bpf) const ALU64: u8 = 7;
pub(in crate::engine::bpf) const REGISTER: u8 = 0x08;
pub(in crate::engine::bpf) const WIDE: u8 = 0x18;
pub(in crate::engine::bpf) const MEM: u8 = 0x60;
pub(in crate::engine::bpf) const ATOMIC: u8 = 0xc0;
pub(in crate::engine::bpf) const JA: u8 = 0x05;
pub(in crate::engine::bpf) const CALL: u8 = 0x85;
pub(in crate::engine::bpf) const EXIT: u8 = 0x95;
/// Values of `src` in a wide load or in a call.
pub(in crate::engine::bpf) const PSEUDO_CALL: u8 = 1;
pub(in crate::engine::bpf) const PSEUDO_FUNC: u8 = 4;
pub(in crate::engine::bpf) const MAP_IDX_VALUE: u8 = 6;

// Sets of registers: all, and those that a call takes and changes.
pub(in crate::engine::bpf) const ALL: u16 = 0x7ff;
pub(in crate::engine::bpf) const SCRATCH: u16 = 0x3f;

/// The instruction in these bytes, or `None` if it names registers that do not exist.
pub(in crate::engine::bpf) fn decode(b: &[u8]) -> Option<Insn> {
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
    pub(in crate::engine::bpf) fn class(&self) -> u8 {
        self.code & 7
    }
    pub(in crate::engine::bpf) fn is_wide(&self) -> bool {
        self.code == WIDE
    }
    /// Is the target of the instruction known? The targets of gotol, gotox, may_goto and unknown
    /// instructions are not known.
    pub(in crate::engine::bpf) fn is_known(&self) -> bool {
        match (self.class(), self.code & 0xf0) {
            (JMP, 0x00) => self.code == JA,
            (JMP, 0x80) => self.code == CALL,
            (JMP, 0x90) => self.code == EXIT,
            (JMP32, 0x00 | 0x80 | 0x90) | (JMP | JMP32, 0xe0 | 0xf0) => false,
            (LD, _) => self.is_wide(),
            _ => true,
        }
    }
    /// The target of this jump at `pc`, or `None` if it is not a jump.
    pub(in crate::engine::bpf) fn target(&self, pc: usize) -> Option<usize> {
        match self.code {
            CALL | EXIT => None,
            _ if matches!(self.class(), JMP | JMP32) => {
                (pc + 1).checked_add_signed(self.off.into())
            }
            _ => None,
        }
    }
    /// Does it have side effects? An instruction that names a function counts, because the function
    /// must be kept.
    pub(in crate::engine::bpf) fn has_effect(&self) -> bool {
        match self.class() {
            LD => self.src == PSEUDO_FUNC,
            LDX => self.code & 0xe0 != MEM,
            ALU | ALU64 => false,
            _ => true,
        }
    }
    /// The registers that it overwrites or makes undefined.
    pub(in crate::engine::bpf) fn writes(&self) -> u16 {
        match self.class() {
            LD | LDX | ALU | ALU64 => 1 << self.dst,
            _ if self.code == CALL => SCRATCH,
            // An atomic instruction may overwrite one, or not.
            _ => 0,
        }
    }
    /// The registers that it reads.
    pub(in crate::engine::bpf) fn reads(&self) -> u16 {
        let (dst, src) = (1 << self.dst, 1 << self.src);
        let operand = if self.code & REGISTER != 0 { src } else { 0 };
        match self.class() {
            LD => 0,
            LDX => src,
            ST => dst,
            STX => dst | src | 1,
            ALU | ALU64 if self.code & 0xf0 == 0xb0 => operand,
            ALU | ALU64 => dst | operand,
            // The number of arguments of a helper or function is not known, so all count.
            _ if self.code == CALL => SCRATCH & !1,
            _ if self.code == EXIT => 1,
            _ => dst | operand,
        }
    }
    /// The function that this instruction at `pc` calls or takes the address of.
    pub(in crate::engine::bpf) fn function(&self, pc: usize) -> Option<usize> {
        let is = self.code == CALL && self.src == PSEUDO_CALL
            || self.is_wide() && self.src == PSEUDO_FUNC;
        (pc + 1).checked_add_signed(self.imm as isize).filter(|_| is)
    }
}
