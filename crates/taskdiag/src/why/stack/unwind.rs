//! From the registers of a function to those of its caller, by the table for unwinding.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, Evaluation,
    EvaluationResult, FrameDescriptionEntry, LittleEndian, Location, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection as _, Value, Vendor,
};

use super::StackEnd;
use super::elf::Elf;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The largest entry of a table that is interpreted, so that a made-up one does not take long.
const ENTRY: usize = 64 << 10;
/// The largest number of steps of an expression.
const STEPS: u32 = 1000;

/// Where the registers of a kind of processor are in the numbering of DWARF.
pub(super) struct Machine {
    stack: u16,
    frame: u16,
    /// The register with the address at which the caller continues. On x86-64 it is the program
    /// counter, which a call leaves on the stack.
    back: u16,
    /// Whether `back` is a register that a called function gets, as on arm64.
    has_link: bool,
    /// The registers that a function leaves as they were, if its table does not mention them.
    kept: &'static [u16],
    /// The bits of an address in a program. Others may be a signature.
    address: u64,
    vendor: Vendor,
}

const X86_64: Machine = Machine {
    stack: 7,
    frame: 6,
    back: 16,
    has_link: false,
    kept: &[3, 6, 12, 13, 14, 15],
    address: u64::MAX,
    vendor: Vendor::Default,
};
const AARCH64: Machine = Machine {
    stack: 31,
    frame: 29,
    back: 30,
    has_link: true,
    kept: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    address: (1 << 48) - 1,
    vendor: Vendor::AArch64,
};

/// That of this build. Files of other kinds are not read.
pub(super) const HERE: Machine = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };

/// The registers that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    values: [Option<u64>; 33],
    /// The address at which the function continues.
    pub(super) pc: u64,
    /// Whether a call is just before that address. Otherwise the thread was interrupted there.
    pub(super) is_after_call: bool,
}

impl Registers {
    /// Those of a thread that sleeps.
    pub(super) fn new(
        machine: &Machine,
        pc: u64,
        stack: u64,
        frame: Option<u64>,
        link: Option<u64>,
    ) -> Registers {
        let mut registers = Registers { values: [None; 33], pc, is_after_call: false };
        registers.set(machine.stack, Some(stack));
        registers.set(machine.frame, frame);
        if machine.has_link {
            registers.set(machine.back, link);
        } else {
            registers.set(machine.back, Some(pc));
        }
        registers
    }

    fn get(&self, register: u16) -> Result<u64, StackEnd> {
        let value = self.values.get(usize::from(register)).copied().flatten();
        value.ok_or(StackEnd::NoRegister)
    }

    fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(place) = self.values.get_mut(usize::from(register)) {
            *place = value;
        }
    }

    /// The address by which the function is found. A call may be the last instruction of a
    /// function.
    pub(super) fn place(&self) -> u64 {
        self.pc.wrapping_sub(u64::from(self.is_after_call))
    }
}

/// The memory of a process.
pub(super) trait Memory {
    /// The word at this address.
    fn word(&mut self, address: u64) -> Result<u64, StackEnd>;
}

/// The table is broken. Where it has nothing about the code, that is no error of the table.
fn broken(e: gimli::Error) -> StackEnd {
    match e {
        gimli::Error::NoUnwindInfoForAddress => StackEnd::NoTable,
        _ => StackEnd::BadFile,
    }
}

struct Step<'a, M> {
    machine: &'a Machine,
    registers: &'a Registers,
    /// How much higher than in the file the code is in memory.
    moved: u64,
    frames: EhFrame<Bytes<'a>>,
    encoding: gimli::Encoding,
    memory: &'a mut M,
}

/// The entry of a table about the function at this address.
fn entry<'a>(
    elf: &'a Elf,
    frames: &EhFrame<Bytes<'a>>,
    bases: &BaseAddresses,
    address: u64,
) -> Result<FrameDescriptionEntry<Bytes<'a>>, StackEnd> {
    let get = EhFrame::cie_from_offset;
    let found = if elf.index.bytes.is_empty() {
        frames.fde_for_address(bases, address, get).map_err(broken)?
    } else {
        let index = EhFrameHdr::new(&elf.index.bytes, LittleEndian);
        let index = index.parse(bases, 8).map_err(broken)?;
        let table = index.table().ok_or(StackEnd::BadFile)?;
        let at = table.lookup(address, bases).and_then(|at| at.direct()).map_err(broken)?;
        // gimli's own subtraction overflows if a wrong index leads to a place before the table.
        let offset = at.checked_sub(elf.frames.address).and_then(|at| usize::try_from(at).ok());
        let offset = EhFrameOffset(offset.ok_or(StackEnd::BadFile)?);
        frames.fde_from_offset(bases, offset, get).map_err(broken)?
    };
    if !found.contains(address) {
        return Err(StackEnd::NoTable);
    }
    let is_large = found.entry_len().max(found.cie().entry_len()) > ENTRY;
    if is_large { Err(StackEnd::BadFile) } else { Ok(found) }
}

/// The registers of the caller of a function. `None`: it has none.
pub(super) fn caller<M: Memory>(
    machine: &Machine,
    elf: &Elf,
    moved: u64,
    registers: &Registers,
    memory: &mut M,
) -> Result<Option<Registers>, StackEnd> {
    if elf.frames.bytes.is_empty() {
        return Err(StackEnd::NoTable);
    }
    let mut frames = EhFrame::new(&elf.frames.bytes, LittleEndian);
    frames.set_address_size(8);
    frames.set_vendor(machine.vendor);
    let bases = BaseAddresses::default()
        .set_eh_frame(elf.frames.address)
        .set_eh_frame_hdr(elf.index.address);
    let address = registers.place().wrapping_sub(moved);
    let entry = entry(elf, &frames, &bases, address)?;
    let mut context = UnwindContext::new();
    let row =
        entry.unwind_info_for_address(&frames, &bases, &mut context, address).map_err(broken)?;
    let encoding = entry.cie().encoding();
    let mut step = Step { machine, registers, moved, frames, encoding, memory };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(register.0)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => step.value(expression, None)?,
    };
    if entry.cie().return_address_register().0 != machine.back {
        return Err(StackEnd::BadFile);
    }
    let is_trampoline = entry.is_signal_trampoline();
    // On arm64, the table of a trampoline leads to the caller of the function that a signal has
    // interrupted, and leaves that function out.
    if is_trampoline && machine.has_link {
        return Err(StackEnd::NoTable);
    }
    let back = match row.register(Register(machine.back)) {
        // A function that has called another one has kept the address, unless it has no caller.
        RegisterRule::Undefined if machine.has_link && !registers.is_after_call => {
            registers.get(machine.back)?
        }
        RegisterRule::Undefined => return Ok(None),
        rule => step.register(machine.back, &rule, cfa)?,
    };
    let mut next =
        Registers { values: [None; 33], pc: back & machine.address, is_after_call: !is_trampoline };
    if next.pc == 0 {
        return Ok(None);
    }
    for register in machine.kept {
        next.set(*register, registers.get(*register).ok());
    }
    for (register, rule) in row.registers() {
        if usize::from(register.0) < next.values.len() {
            // A value that cannot be found matters only if a later frame needs it.
            next.set(register.0, step.register(register.0, rule, cfa).ok());
        }
    }
    if row.registers().all(|(register, _)| register.0 != machine.stack) {
        next.set(machine.stack, Some(cfa));
    }
    next.set(machine.back, Some(next.pc).filter(|_| !machine.has_link));
    // The callers of a function are further up, except that a handler of a signal may have a stack
    // of its own. A function that has not called another one may need no stack.
    let (from, to) = (registers.get(machine.stack)?, next.get(machine.stack)?);
    let is_up = to > from || to == from && machine.has_link && !registers.is_after_call;
    if to % 8 != 0 || !is_up && !is_trampoline {
        return Err(StackEnd::NoCode);
    }
    Ok(Some(next))
}

impl<M: Memory> Step<'_, M> {
    /// The value that a register has in the caller.
    fn register(
        &mut self,
        register: u16,
        rule: &RegisterRule<usize>,
        cfa: u64,
    ) -> Result<u64, StackEnd> {
        match rule {
            RegisterRule::SameValue => self.registers.get(register),
            RegisterRule::Offset(by) => self.memory.word(cfa.wrapping_add_signed(*by)),
            RegisterRule::ValOffset(by) => Ok(cfa.wrapping_add_signed(*by)),
            RegisterRule::Register(from) => self.registers.get(from.0),
            RegisterRule::Expression(expression) => {
                let address = self.value(expression, Some(cfa))?;
                self.memory.word(address)
            }
            RegisterRule::ValExpression(expression) => self.value(expression, Some(cfa)),
            RegisterRule::Constant(value) => Ok(*value),
            _ => Err(StackEnd::NoRegister),
        }
    }

    /// The result of an expression.
    fn value(
        &mut self,
        expression: &UnwindExpression<usize>,
        first: Option<u64>,
    ) -> Result<u64, StackEnd> {
        let code = expression.get(&self.frames).map_err(broken)?;
        let mut run: Evaluation<Bytes<'_>> = code.evaluation(self.encoding);
        run.set_max_iterations(STEPS);
        if let Some(first) = first {
            run.set_initial_value(first);
        }
        let mut now = run.evaluate().map_err(broken)?;
        for _ in 0..STEPS {
            now = match now {
                EvaluationResult::Complete => {
                    return match run.as_result() {
                        [piece] => match piece.location {
                            Location::Address { address } => Ok(address),
                            _ => Err(StackEnd::BadFile),
                        },
                        _ => Err(StackEnd::BadFile),
                    };
                }
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    let word = self.memory.word(address)?;
                    run.resume_with_memory(Value::Generic(word)).map_err(broken)?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = match register.0 {
                        r if r == self.machine.back && !self.machine.has_link => self.registers.pc,
                        r => self.registers.get(r)?,
                    };
                    run.resume_with_register(Value::Generic(value)).map_err(broken)?
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    let address = address.wrapping_add(self.moved);
                    run.resume_with_relocated_address(address).map_err(broken)?
                }
                _ => return Err(StackEnd::BadFile),
            };
        }
        Err(StackEnd::BadFile)
    }
}

#[cfg(test)]
mod tests {
    use super::super::elf::Table;
    use super::*;

    /// The words of a stack, from an address on.
    struct Words(u64, Vec<u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Result<u64, StackEnd> {
            let at = address.wrapping_sub(self.0) / 8;
            self.1.get(at as usize).copied().ok_or(StackEnd::NoMemory)
        }
    }

    /// A table with one function, from 0x1000 to 0x1100. `first` is the state at its beginning,
    /// `then` the rest.
    fn table(back: u8, first: &[u8], then: &[u8]) -> Elf {
        let mut bytes = Vec::new();
        let mut entry = |id: u32, body: &[&[u8]]| {
            let mut body = body.concat();
            body.resize(body.len().next_multiple_of(8) + 4, 0);
            bytes.extend_from_slice(&(body.len() as u32 + 4).to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&body);
            bytes.len() as u32
        };
        // Version 1, addresses as they are, a step of code 1, of data -8.
        let end = entry(0, &[&[1], b"zR\0", &[1, 0x78, back, 1, 0], first]);
        let range = [0x1000u64.to_le_bytes(), 0x100u64.to_le_bytes()].concat();
        entry(end + 4, &[&range, &[0], then]);
        bytes.extend_from_slice(&[0; 4]);
        let mut elf = Elf::default();
        elf.frames = Table { address: 0x2000, bytes };
        elf
    }

    /// The frame is at the stack pointer, and keeps the frame pointer and the link.
    fn arm64() -> Elf {
        let to_32 = [0x44, 0x0e, 32, 0x80 | 29, 4, 0x80 | 30, 3];
        table(30, &[0x0c, 31, 0], &to_32)
    }

    #[test]
    fn a_function_of_arm64_that_called_nobody_returns_to_its_link() {
        let (elf, mut none) = (arm64(), Words(0x8000, Vec::new()));
        let moved = 0x5000_0000;
        let of = |link| Registers::new(&AARCH64, moved + 0x1000, 0x8000, Some(7), link);
        let next = caller(&AARCH64, &elf, moved, &of(Some(0x1234)), &mut none);
        let next = next.expect("it is known").expect("a caller");
        assert_eq!((next.pc, next.is_after_call), (0x1234, true));
        assert_eq!(
            (next.get(31), next.get(29), next.get(30)),
            (Ok(0x8000), Ok(7), Err(StackEnd::NoRegister))
        );
        // Only BPF knows the link.
        let without = caller(&AARCH64, &elf, moved, &of(None), &mut none);
        assert_eq!(without, Err(StackEnd::NoRegister));
    }

    #[test]
    fn a_signed_address_of_arm64_loses_its_signature() {
        let mut words = Words(0x8000, vec![0x9000, 0x00ab_1111_2222_3334, 0, 0]);
        let mut at = Registers::new(&AARCH64, 0x1008, 0x8000, None, None);
        at.is_after_call = true;
        let next = caller(&AARCH64, &arm64(), 0, &at, &mut words).expect("it is known");
        let next = next.expect("a caller");
        assert_eq!(
            (next.pc, next.get(31), next.get(29)),
            (0x1111_2222_3334, Ok(0x8020), Ok(0x9000))
        );
    }

    #[test]
    fn a_frame_that_hangs_on_an_unknown_register_is_not_guessed() {
        // The frame pointer is where the frame is.
        let elf = table(16, &[0x0c, 7, 8, 0x80 | 16, 1], &[0x0c, 6, 16, 0x80 | 6, 2]);
        let mut words = Words(0x8000, vec![0, 0, 0x8100, 0x4321]);
        let of = |frame| Registers::new(&X86_64, 0x1010, 0x8000, frame, None);
        let without = caller(&X86_64, &elf, 0, &of(None), &mut words);
        assert_eq!(without, Err(StackEnd::NoRegister));
        let next = caller(&X86_64, &elf, 0, &of(Some(0x8010)), &mut words);
        let next = next.expect("it is known").expect("a caller");
        assert_eq!((next.pc, next.get(7), next.get(6)), (0x4321, Ok(0x8020), Ok(0x8100)));
        // A frame is never below the one that it called.
        let below = caller(&X86_64, &elf, 0, &of(Some(0x7ff0)), &mut Words(0x7000, vec![1; 999]));
        assert_eq!(below, Err(StackEnd::NoCode));
        let outside = caller(&X86_64, &elf, 0x9000, &of(Some(0x8010)), &mut words);
        assert_eq!(outside, Err(StackEnd::NoTable));
    }

    #[test]
    fn the_first_function_of_a_thread_has_no_caller() {
        // It says that the address to return to is undefined.
        let elf = table(16, &[0x0c, 7, 8, 0x80 | 16, 1], &[0x07, 16]);
        let at = Registers::new(&X86_64, 0x1010, 0x8000, None, None);
        let next = caller(&X86_64, &elf, 0, &at, &mut Words(0x8000, vec![5; 4]));
        assert_eq!(next, Ok(None));
    }

    #[test]
    fn an_expression_without_an_end_is_given_up() {
        // The address of the frame is an expression that jumps back to its beginning.
        let elf = table(16, &[0x0c, 7, 8, 0x80 | 16, 1], &[0x0f, 3, 0x2f, 0xfd, 0xff]);
        let at = Registers::new(&X86_64, 0x1010, 0x8000, None, None);
        let next = caller(&X86_64, &elf, 0, &at, &mut Words(0x8000, vec![5; 4]));
        assert_eq!(next, Err(StackEnd::BadFile));
    }
}
