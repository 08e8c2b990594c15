//! Serves the calls of a loader program: bpf(2), and look-ups of kernel types. One pass over the
//! kernel's type information finds all types together. The kernel itself would search it for each
//! function that a program calls and for each type that it reads, which takes a third of the load
//! time. The kernel also gets only the parts of a program that the request needs, see `trim`.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};

use super::btf::{Btf, FUNC, Wanted};
use super::core::{self, RELOCATION_SIZE};
use super::machine::{Host, LoaderMemory};
use super::sys;
use super::trim::{self, Data};

/// Serves one loader.
#[derive(Debug)]
pub struct Resolver<'k> {
    /// The kernel's types, with an index of the types that programs look for.
    kernel: &'k Btf<'k>,
    /// The program's type information, once the loader has loaded it.
    local: Vec<u8>,
    open: BTreeMap<u32, OwnedFd>,
    /// The program's read-only data.
    data: Option<Data<'k>>,
    /// The last command that failed.
    pub failed: Option<i32>,
    /// Did the verifier look at the program that failed to load?
    pub refused: bool,
    /// The work on the program that was done here instead of in the kernel.
    pub done: LoaderWork,
}

/// The work that was done on a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderWork {
    /// Whether the program was relocated.
    pub relocated: bool,
    /// Dead code was removed.
    pub trimmed: bool,
}

// Places in `union bpf_attr`.
const BTF_AT: u64 = 0;
const BTF_SIZE_AT: u64 = 16;
const INSN_CNT_AT: u64 = 4;
const INSNS_AT: u64 = 8;
const LOG_LEVEL_AT: usize = 24;
const LOG_BUF_AT: usize = 32;
const FUNC_INFO_REC_SIZE_AT: u64 = 76;
const FUNC_INFO_AT: u64 = 80;
const FUNC_INFO_CNT_AT: u64 = 88;
const CORE_RELO_CNT_AT: u64 = 116;
const CORE_RELOS_AT: u64 = 128;
const CORE_RELO_REC_SIZE_AT: u64 = 136;

/// How often the load of a program is tried again after a signal. libbpf tries five times.
const LOAD_AGAIN: usize = 10;

impl<'k> Resolver<'k> {
    /// Serve one loader. `data` has the program's read-only data, if they are known.
    pub fn new(kernel: &'k Btf<'k>, data: Option<Data<'k>>) -> Resolver<'k> {
        Resolver {
            kernel,
            local: Vec::new(),
            open: BTreeMap::new(),
            data,
            failed: None,
            refused: false,
            done: LoaderWork::default(),
        }
    }
    /// An fd that is still open.
    pub fn take(&mut self, fd: u32) -> Option<OwnedFd> {
        self.open.remove(&fd)
    }
    fn remember(&mut self, memory: &LoaderMemory<'_>, attr: u64) -> Option<()> {
        let len = memory.number(attr + BTF_SIZE_AT, 4)? as usize;
        self.local = memory.get(memory.number(attr + BTF_AT, 8)?, len)?.to_vec();
        Some(())
    }
    /// Does the work before a command. If a part of it fails here, the kernel does or refuses that
    /// part.
    pub fn prepare(&mut self, cmd: i32, memory: &mut LoaderMemory<'_>, attr: u64) {
        match cmd {
            sys::BTF_LOAD => drop(self.remember(memory, attr)),
            sys::PROG_LOAD => {
                self.done.relocated = self.relocate(memory, attr).is_some();
                // Before the relocation, it is not known which code is dead.
                self.done.trimmed = self.done.relocated && self.trim(memory, attr).is_some();
            }
            _ => {}
        }
    }
    /// Relocates the program that is about to be loaded. `None` if it is left unchanged, for the
    /// kernel to relocate.
    fn relocate(&mut self, memory: &mut LoaderMemory<'_>, attr: u64) -> Option<()> {
        let count = memory.number(attr + CORE_RELO_CNT_AT, 4)? as usize;
        if count == 0 || memory.number(attr + CORE_RELO_REC_SIZE_AT, 4)? as usize != RELOCATION_SIZE
        {
            return None;
        }
        let at = memory.number(attr + CORE_RELOS_AT, 8)?;
        let relocations = memory.get(at, count * RELOCATION_SIZE)?.to_vec();
        let at = memory.number(attr + INSNS_AT, 8)?;
        let len = memory.number(attr + INSN_CNT_AT, 4)? as usize * 8;
        let mut insns = memory.get(at, len)?.to_vec();
        let local = Btf::parse(&self.local, &Wanted::new([], []))?;
        core::relocate(&mut insns, &relocations, &local, self.kernel).ok()?;
        memory.get_mut(at, len)?.copy_from_slice(&insns);
        memory.set(attr + CORE_RELO_CNT_AT, 4, 0)?;
        memory.set(attr + CORE_RELOS_AT, 8, 0)?;
        memory.set(attr + CORE_RELO_REC_SIZE_AT, 4, 0)
    }
    /// Removes dead code from the program. `None` if it is left unchanged.
    fn trim(&self, memory: &mut LoaderMemory<'_>, attr: u64) -> Option<()> {
        let insns_at = memory.number(attr + INSNS_AT, 8)?;
        let insns = memory.get(insns_at, memory.number(attr + INSN_CNT_AT, 4)? as usize * 8)?;
        let trimmed = trim::trim(insns, self.data?)?;
        // The first instruction of each function, and its type.
        let record = memory.number(attr + FUNC_INFO_REC_SIZE_AT, 4)? as usize;
        let count = memory.number(attr + FUNC_INFO_CNT_AT, 4)? as usize;
        let infos_at = memory.number(attr + FUNC_INFO_AT, 8)?;
        let infos = memory.get(infos_at, record.checked_mul(count)?)?;
        let mut kept = Vec::with_capacity(infos.len());
        for info in infos.chunks_exact(record) {
            let begin = u32::from_ne_bytes(info.get(..4)?.try_into().ok()?);
            if let Some(begin) = trimmed.place(begin) {
                kept.extend_from_slice(&begin.to_ne_bytes());
                kept.extend_from_slice(&info[4..]);
            }
        }
        memory.get_mut(insns_at, trimmed.insns.len())?.copy_from_slice(&trimmed.insns);
        memory.set(attr + INSN_CNT_AT, 4, trimmed.insns.len() as u64 / 8)?;
        memory.get_mut(infos_at, kept.len())?.copy_from_slice(&kept);
        // Line information would have to be corrected, too, but `bpf/gen` has removed it.
        memory.set(attr + FUNC_INFO_CNT_AT, 4, (kept.len() / record) as u64)
    }
}

/// Was it the verifier that refused this program? A security module refuses with the same error,
/// but before the verifier writes anything into its log. So the load is tried once more with a log.
fn is_refused(error: i64, attr: &mut [u8]) -> bool {
    if error != -i64::from(libc::EACCES) || attr.len() < LOG_BUF_AT + 8 {
        return false;
    }
    let mut log = [0u8; 4096];
    let mut set = |at: usize, bytes: &[u8]| attr[at..at + bytes.len()].copy_from_slice(bytes);
    set(LOG_LEVEL_AT, &1u32.to_ne_bytes());
    set(LOG_LEVEL_AT + 4, &(log.len() as u32).to_ne_bytes());
    set(LOG_BUF_AT, &(log.as_mut_ptr().expose_provenance() as u64).to_ne_bytes());
    let r = sys::bpf_bytes(sys::PROG_LOAD, attr);
    attr[LOG_LEVEL_AT..LOG_BUF_AT + 8].fill(0);
    if r >= 0 {
        // SAFETY: the command made this fd, which has no other owner. It is closed, since the first
        // call has failed.
        drop(unsafe { OwnedFd::from_raw_fd(r as i32) });
    }
    log[0] != 0
}

impl Host for Resolver<'_> {
    fn bpf(&mut self, cmd: u32, memory: &mut LoaderMemory<'_>, attr: u64, size: u32) -> i64 {
        self.prepare(cmd as i32, memory, attr);
        let Some(bytes) = memory.get_mut(attr, size as usize) else {
            return -i64::from(libc::EFAULT);
        };
        let mut r = sys::bpf_bytes(cmd as i32, bytes);
        // The verifier gives up when a signal comes.
        for _ in 0..LOAD_AGAIN {
            if r != -i64::from(libc::EAGAIN) || cmd as i32 != sys::PROG_LOAD {
                break;
            }
            r = sys::bpf_bytes(cmd as i32, bytes);
        }
        if r < 0 {
            self.failed = Some(cmd as i32);
            self.refused = cmd as i32 == sys::PROG_LOAD && is_refused(r, bytes);
        }
        if r >= 0 && sys::makes_fd(cmd as i32) {
            // SAFETY: the command made this fd, and nobody else has it.
            self.open.insert(r as u32, unsafe { OwnedFd::from_raw_fd(r as i32) });
        }
        r
    }
    fn find_type(&mut self, name: &[u8], kind: u32) -> i64 {
        let none = -i64::from(libc::ENOENT);
        if kind != FUNC {
            return none;
        }
        self.kernel.function(name).map_or(none, i64::from)
    }
    fn close(&mut self, fd: u32) {
        self.open.remove(&fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of loading a program of this kind, and whether the report blames the verifier.
    fn load(kind: u32, insns: &[u8]) -> (i64, bool) {
        let license = c"Dual BSD/GPL";
        let mut attr = [0u8; 144];
        let mut set = |at: usize, bytes: &[u8]| attr[at..at + bytes.len()].copy_from_slice(bytes);
        set(0, &kind.to_ne_bytes());
        set(INSN_CNT_AT as usize, &(insns.len() as u32 / 8).to_ne_bytes());
        set(INSNS_AT as usize, &(insns.as_ptr().expose_provenance() as u64).to_ne_bytes());
        set(16, &(license.as_ptr().expose_provenance() as u64).to_ne_bytes());
        let r = sys::bpf_bytes(sys::PROG_LOAD, &mut attr);
        (r, is_refused(r, &mut attr))
    }

    #[test]
    fn a_refusal_by_the_verifier_is_reported_as_one() {
        // A socket filter that returns an uninitialized register, and one without instructions.
        let unset = [0xbf, 0x50, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
        let (r, refused) = load(1, &unset);
        if r == -i64::from(libc::EPERM) {
            let text = b"SKIPPED a program that the verifier refuses: not allowed to load one\n";
            std::io::Write::write_all(&mut std::io::stderr(), text).expect("standard error");
            return;
        }
        assert_eq!((r, refused), (-i64::from(libc::EACCES), true));
        let (r, refused) = load(1, &[]);
        assert!(r < 0 && !refused, "{r}");
    }
}
