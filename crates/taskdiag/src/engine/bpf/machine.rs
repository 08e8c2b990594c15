//! Runs the loader program of a light skeleton in this process instead of in the kernel. This is a
//! small interpreter for those BPF instructions that libbpf uses in loaders.
//!
//! The loader is simple code that fills in structs and makes bpf(2) calls. If it runs here, it need
//! not be loaded and verified itself, and its calls go through a [`Host`], which looks up types
//! faster than the kernel does.

use std::io;

/// The functions that a loader calls.
pub trait Host {
    /// bpf(2) with a `union bpf_attr` of `size` bytes at the address `attr`, whose pointers are
    /// real. Returns a new fd, 0, or a negative errno.
    fn bpf(&mut self, cmd: u32, memory: &mut LoaderMemory<'_>, attr: u64, size: u32) -> i64;
    /// The id of a type of the kernel by its name, or a negative errno.
    fn find_type(&mut self, name: &[u8], kind: u32) -> i64;
    /// Closes an fd that `bpf` returned.
    fn close(&mut self, fd: u32);
}

/// The memory that a loader may access. It is at its real addresses, because the loader passes them
/// on to the kernel.
#[derive(Debug)]
pub struct LoaderMemory<'a> {
    /// Its data.
    pub data: &'a mut [u8],
    /// Its argument.
    pub ctx: &'a mut [u8],
    /// Initial values of maps, which it may copy from.
    pub values: &'a [&'a [u8]],
    stack: [u8; STACK],
}

const STACK: usize = 512;

fn address(of: &[u8]) -> u64 {
    of.as_ptr().addr() as u64
}

/// The offset in `of` of these bytes of the address space.
fn within(of: &[u8], at: u64, len: usize) -> Option<usize> {
    let from = usize::try_from(at.checked_sub(address(of))?).ok()?;
    (from.checked_add(len)? <= of.len()).then_some(from)
}

impl<'a> LoaderMemory<'a> {
    /// The memory of a loader that is about to run.
    pub fn new(data: &'a mut [u8], ctx: &'a mut [u8], values: &'a [&'a [u8]]) -> LoaderMemory<'a> {
        LoaderMemory { data, ctx, values, stack: [0; STACK] }
    }
    /// Bytes to read.
    pub fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let own = [&*self.data, &*self.ctx, &self.stack];
        own.into_iter()
            .chain(self.values.iter().copied())
            .find_map(|r| within(r, at, len).map(|from| &r[from..from + len]))
    }
    /// Bytes for writing.
    pub fn get_mut(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let own = [&mut *self.data, &mut *self.ctx, &mut self.stack];
        own.into_iter().find_map(|r| within(r, at, len).map(|from| &mut r[from..from + len]))
    }
    /// Reads a number.
    pub fn number(&self, at: u64, len: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(self.get(at, len)?);
        Some(u64::from_ne_bytes(bytes))
    }
    /// Write a number.
    pub fn set(&mut self, at: u64, len: usize, n: u64) -> Option<()> {
        self.get_mut(at, len)?.copy_from_slice(&n.to_ne_bytes()[..len]);
        Some(())
    }
}

// Helpers, by their numbers.
const PROBE_READ_KERNEL: u32 = 113;
const COPY_FROM_USER: u32 = 148;
const SYS_BPF: u32 = 166;
const BTF_FIND_BY_NAME_KIND: u32 = 167;
const SYS_CLOSE: u32 = 168;

/// A limit for loops: more instructions than any loader runs.
const STEPS_MAX: usize = 1 << 20;

/// Runs a loader to its end and returns its result.
///
/// # Errors
/// If the loader does something unknown. Descriptors that it opened stay open then.
pub fn run(insns: &[u8], memory: &mut LoaderMemory<'_>, host: &mut impl Host) -> io::Result<i64> {
    let strange = || io::Error::other("an unknown kind of loader");
    let mut r = [0u64; 11];
    r[1] = address(memory.ctx);
    r[10] = address(&memory.stack) + STACK as u64;
    let mut pc = 0usize;
    for _ in 0..STEPS_MAX {
        let Some(i) = insns.get(pc * 8..pc * 8 + 8) else { return Err(strange()) };
        let (code, dst, src) = (i[0], usize::from(i[1] & 15), usize::from(i[1] >> 4));
        let off = i16::from_ne_bytes([i[2], i[3]]);
        let imm = i32::from_ne_bytes([i[4], i[5], i[6], i[7]]);
        let (wide, value) =
            (i64::from(imm), if code & 8 == 0 { i64::from(imm) as u64 } else { r[src] });
        if dst > 10 || src > 10 && code != 0x18 {
            return Err(strange());
        }
        pc += 1;
        let size = [4, 2, 1, 8][usize::from(code >> 3 & 3)];
        match code & 7 {
            // BPF_LD: a number of 64 bits, or an address in the data.
            0 if code == 0x18 => {
                let Some(next) = insns.get(pc * 8 + 4..pc * 8 + 8) else { return Err(strange()) };
                let high = u32::from_ne_bytes([next[0], next[1], next[2], next[3]]);
                pc += 1;
                r[dst] = match src {
                    0 => u64::from(high) << 32 | u64::from(imm as u32),
                    // BPF_PSEUDO_MAP_IDX_VALUE of the only map: the offset is in the second half.
                    6 if imm == 0 => address(memory.data) + u64::from(high),
                    _ => return Err(strange()),
                };
            }
            // BPF_LDX, BPF_ST, BPF_STX with BPF_MEM
            1 if code & 0xe0 == 0x60 => {
                let at = r[src].wrapping_add_signed(off.into());
                r[dst] = memory.number(at, size).ok_or_else(strange)?;
            }
            2 | 3 if code & 0xe0 == 0x60 => {
                let at = r[dst].wrapping_add_signed(off.into());
                let n = if code & 7 == 2 { wide as u64 } else { r[src] };
                memory.set(at, size, n).ok_or_else(strange)?;
            }
            4 | 7 => {
                let n = match code & 0xf0 {
                    0x00 => r[dst].wrapping_add(value),
                    0x40 => r[dst] | value,
                    0x50 => r[dst] & value,
                    0x60 => r[dst] << (value & 63),
                    0x70 if code & 7 == 7 => r[dst] >> (value & 63),
                    0xb0 => value,
                    _ => return Err(strange()),
                };
                r[dst] = if code & 7 == 4 { u64::from(n as u32) } else { n };
            }
            5 => {
                let (a, b) = (r[dst], value);
                let jump = match code & 0xf0 {
                    0x00 => true,
                    0x10 => a == b,
                    0x20 => a > b,
                    0x30 => a >= b,
                    0x40 => a & b != 0,
                    0x50 => a != b,
                    0x60 => a as i64 > b as i64,
                    0x70 => a as i64 >= b as i64,
                    0xc0 => (a as i64) < b as i64,
                    0xd0 => a as i64 <= b as i64,
                    0x80 if src == 0 => {
                        r[0] = call(imm as u32, &r, memory, host).ok_or_else(strange)? as u64;
                        false
                    }
                    0x90 => return Ok(r[0] as i64),
                    _ => return Err(strange()),
                };
                if jump {
                    pc = pc.checked_add_signed(off.into()).ok_or_else(strange)?;
                }
            }
            _ => return Err(strange()),
        }
    }
    Err(strange())
}

fn call(
    helper: u32,
    r: &[u64; 11],
    memory: &mut LoaderMemory<'_>,
    host: &mut impl Host,
) -> Option<i64> {
    match helper {
        SYS_BPF => Some(host.bpf(r[1] as u32, memory, r[2], r[3] as u32)),
        SYS_CLOSE => {
            host.close(r[1] as u32);
            Some(0)
        }
        BTF_FIND_BY_NAME_KIND => {
            let name = memory.get(r[1], r[2] as usize)?;
            let end = name.iter().position(|b| *b == 0)?;
            Some(host.find_type(&name[..end], r[3] as u32))
        }
        COPY_FROM_USER | PROBE_READ_KERNEL => {
            let from = memory.get(r[3], r[2] as usize).map(<[u8]>::to_vec);
            let to = memory.get_mut(r[1], r[2] as usize)?;
            match from {
                Some(from) => to.copy_from_slice(&from),
                // Loaders clear memory by a copy from NULL.
                None if r[3] == 0 => to.fill(0),
                None => return None,
            }
            Some(0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records its calls.
    #[derive(Default)]
    struct Log(Vec<String>);

    impl Host for Log {
        fn bpf(&mut self, cmd: u32, memory: &mut LoaderMemory<'_>, attr: u64, size: u32) -> i64 {
            self.0.push(format!("bpf {cmd} {:?}", memory.get(attr, size as usize)));
            7
        }
        fn find_type(&mut self, name: &[u8], kind: u32) -> i64 {
            self.0.push(format!("type {} {kind}", name.escape_ascii()));
            42
        }
        fn close(&mut self, fd: u32) {
            self.0.push(format!("close {fd}"));
        }
    }

    fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
        let (o, i) = (off.to_ne_bytes(), imm.to_ne_bytes());
        [code, dst | src << 4, o[0], o[1], i[0], i[1], i[2], i[3]]
    }

    fn run_it(insns: &[[u8; 8]], log: &mut Log) -> io::Result<i64> {
        let (mut data, mut ctx) = (*b"name\0\0\0\0", [5u8, 0, 0, 0, 0, 0, 0, 0]);
        run(insns.as_flattened(), &mut LoaderMemory::new(&mut data, &mut ctx, &[]), log)
    }

    #[test]
    fn instructions_have_their_effects() {
        let mut log = Log::default();
        let r = run_it(
            &[
                insn(0xbf, 6, 1, 0, 0), // r6 = ctx
                insn(0x18, 1, 6, 0, 0), // r1 = data
                insn(0, 0, 0, 0, 0),
                insn(0xb7, 2, 0, 0, 5),   // r2 = 5
                insn(0xb7, 3, 0, 0, 12),  // r3 = 12
                insn(0x85, 0, 0, 0, 167), // find the type
                insn(0x63, 10, 0, -4, 0), // on the stack
                insn(0x61, 7, 10, -4, 0), // and back
                insn(0x55, 7, 0, 1, 42),  // not 42: skip
                insn(0x62, 6, 0, 4, 9),   // ctx[4] = 9
                insn(0xb7, 1, 0, 0, 3),
                insn(0xbf, 2, 6, 0, 0),
                insn(0xb7, 3, 0, 0, 8),
                insn(0x85, 0, 0, 0, 166), // bpf(3, ctx, 8)
                insn(0xbf, 1, 0, 0, 0),
                insn(0x85, 0, 0, 0, 168), // close the returned descriptor
                insn(0xb7, 0, 0, 0, -1),
                insn(0x95, 0, 0, 0, 0),
            ],
            &mut log,
        );
        assert_eq!(r.unwrap(), -1);
        assert_eq!(log.0, ["type name 12", "bpf 3 Some([5, 0, 0, 0, 9, 0, 0, 0])", "close 7"]);
    }

    #[test]
    fn copies_from_null_are_zeros() {
        let clear_and_read = [
            insn(0x62, 10, 0, -8, 9),
            insn(0xbf, 1, 10, 0, 0),
            insn(0x07, 1, 0, 0, -8),
            insn(0xb7, 2, 0, 0, 8),
            insn(0xb7, 3, 0, 0, 0),
            insn(0x85, 0, 0, 0, 113),
            insn(0x79, 0, 10, -8, 0),
            insn(0x95, 0, 0, 0, 0),
        ];
        assert_eq!(run_it(&clear_and_read, &mut Log::default()).unwrap(), 0);
    }

    #[test]
    fn programs_that_leave_their_memory_or_never_end_are_refused() {
        for insns in [
            vec![insn(0x79, 0, 1, 8, 0), insn(0x95, 0, 0, 0, 0)], // beyond the argument
            vec![insn(0x7b, 10, 1, 0, 0), insn(0x95, 0, 0, 0, 0)], // beyond the stack
            vec![insn(0xb7, 1, 0, 0, 0), insn(0x61, 0, 1, 0, 0)], // NULL
            vec![insn(0x05, 0, 0, -2, 0)],                        // before the start
            vec![insn(0x05, 0, 0, -1, 0)],                        // for ever
            vec![insn(0x85, 0, 0, 0, 1)],                         // another helper
            vec![insn(0xb7, 0, 0, 0, 0)],                         // no end
            vec![insn(0x18, 0, 6, 0, 0)],                         // cut
        ] {
            assert!(run_it(&insns, &mut Log::default()).is_err(), "{insns:?}");
        }
    }
}
