//! The offsets that the programs use (`bpf/offsets.h`), and one other fact about this kernel, which
//! the programs cannot find out: the mapping that every process shows but no list of mappings has.
//!
//! Both are found once per process, when a request first needs them.

use std::fs;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use taskdiag_wire::{Group, Groups};

use crate::engine::found::Found;

use super::btf::{Btf, Wanted};

/// `OFFSETS_MAX`.
pub const OFFSETS_MAX: usize = 320;
/// `OFFSET_NONE`.
pub const OFFSET_NONE: u16 = 0xffff;

const FILE: &str = "/sys/kernel/btf/vmlinux";
const HEADER: &str = taskdiag_bpf::OFFSETS;

/// The oldest Linux whose kernels have all that the programs need.
pub const OLDEST: &str = "5.15";

/// One line of `offsets.h`.
#[derive(Clone, Copy, Debug)]
struct OffsetEntry<'a> {
    #[cfg_attr(
        not(feature = "testing"),
        allow(dead_code, reason = "the programs know it by its place")
    )]
    name: &'a str,
    need: Need<'a>,
    of: &'a str,
    path: &'a str,
}

/// The groups that are missing on a kernel without the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need<'a> {
    /// All groups that are read by offset.
    All,
    /// This group. The member is as old as the group: both came with this version of Linux.
    Since(Group, &'a str),
    /// Some members of the answer.
    Parts,
}

impl OffsetEntry<'_> {
    /// The alternatives of the entry. The first member that the kernel has counts.
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').map(str::trim)
    }
}

fn entries(header: &str) -> impl Iterator<Item = OffsetEntry<'_>> {
    header.lines().filter_map(|l| {
        let (macro_name, args) = l.strip_suffix(')')?.split_once('(')?;
        let mut args = args.split(',').map(str::trim);
        let (name, of, path) = (args.next()?, args.next()?, args.next()?);
        let need = match macro_name {
            "NEED" => Need::All,
            "SINCE" => Need::Since(group(args.next()?)?, args.next()?),
            "MAY" => Need::Parts,
            _ => return None,
        };
        Some(OffsetEntry { name, need, of, path })
    })
}

/// The group with this name in `task_diag.h`.
fn group(name: &str) -> Option<Group> {
    Group::ALL.iter().copied().find(|g| g.name().eq_ignore_ascii_case(name))
}

/// The struct and the member of each line of `offsets.h`.
#[cfg(test)]
pub fn members() -> Vec<(&'static str, &'static str)> {
    entries(HEADER).map(|e| (e.of, e.path)).collect()
}

/// The offsets of members on this kernel, and the groups that can be read with them.
#[derive(Debug)]
pub struct Offsets {
    /// In the order of the header.
    pub of: [u16; OFFSETS_MAX],
    /// The groups that this kernel cannot have, each with the version of Linux that it needs.
    lacking: Vec<(Group, &'static str)>,
}

impl Offsets {
    /// The groups that this kernel cannot have.
    pub fn lacking(&self) -> Groups {
        self.lacking.iter().map(|(g, _)| *g).collect()
    }

    /// The groups that this kernel cannot have, each with the version of Linux that it needs.
    pub fn needs(&self) -> impl Iterator<Item = (Group, String)> {
        self.lacking.iter().map(|(g, version)| (*g, format!("it needs Linux {version}")))
    }
}

static FOUND: Found<Result<Offsets, String>> = Found::new();

/// The offsets of this kernel, or why there are none.
pub fn offsets() -> Result<&'static Offsets, &'static str> {
    let none = "/sys/kernel/btf/vmlinux cannot be read, or is not understood";
    FOUND.get_or_find(|| find(kernel().ok_or(none)?)).as_ref().map_err(String::as_str)
}

/// The offsets, if an earlier request of this process has looked for them.
pub fn known() -> Option<&'static Offsets> {
    FOUND.get()?.as_ref().ok()
}

fn find(btf: &Btf<'_>) -> Result<Offsets, String> {
    let mut found = Offsets { of: [OFFSET_NONE; OFFSETS_MAX], lacking: Vec::new() };
    for (slot, e) in found.of.iter_mut().zip(entries(HEADER)) {
        let at = e.paths().find_map(|path| btf.offset(e.of, path));
        match (at.and_then(|o| u16::try_from(o).ok()), e.need) {
            (Some(o), _) => *slot = o,
            (None, Need::All) => {
                let (of, path) = (e.of, e.path);
                return Err(format!(
                    "this kernel has no {path} in its {of}; it needs Linux {OLDEST}"
                ));
            }
            (None, Need::Since(group, version)) => {
                if found.lacking.iter().all(|(g, _)| *g != group) {
                    found.lacking.push((group, version));
                }
            }
            (None, Need::Parts) => {}
        }
    }
    Ok(found)
}

/// The members that the programs read by offset and this kernel has, by their names in `offsets.h`,
/// with their sizes in bytes.
#[cfg(feature = "testing")]
pub fn widths() -> Vec<(&'static str, u32)> {
    let of = |btf: &Btf<'_>, e: OffsetEntry<'static>| {
        let width = e.paths().find_map(|path| btf.width(e.of, path))?;
        Some((e.name, width))
    };
    kernel().map_or(Vec::new(), |btf| entries(HEADER).filter_map(|e| of(btf, e)).collect())
}

/// Names workers. It came with Linux commit 2a1b02bcba78 ("workqueue: Refactor worker ID formatting
/// and make wq_worker_comm() use full ID string") (in v6.10).
const WORKER_NAME: &[u8] = b"format_worker_id";

/// Does /proc show the first 15 bytes of a worker's name only?
pub fn shortens_workers() -> bool {
    kernel().is_some_and(|btf| btf.function(WORKER_NAME).is_none())
}

/// The kernel's types, with an index of all that the programs and `offsets.h` name. Each process
/// makes it once, in one pass. `None` if the types cannot be read or understood, or if the kernel
/// has none.
pub fn kernel() -> Option<&'static Btf<'static>> {
    static TYPES: Found<Types> = Found::new();
    let find = || {
        let names = super::SKELETONS.iter().flat_map(|s| s.wanted());
        let (functions, types): (Vec<_>, Vec<_>) = names.partition(|n| n.ends_with(b"()"));
        let functions = functions.into_iter().map(|n| &n[..n.len() - 2]).chain([WORKER_NAME]);
        let types = types.into_iter().chain(entries(HEADER).map(|e| e.of.as_bytes()));
        let wanted =
            Wanted::new(types, functions).expecting(entries(HEADER).map(|e| e.of.as_bytes()));
        let bytes = bytes();
        // SAFETY: the bytes stay where they are when their owner moves. They live as long as
        // `Types`, which is never dropped and only lends the index.
        let text = bytes.as_ref().map(|b| unsafe { &*ptr::from_ref(b.get()) });
        Types { index: text.and_then(|text| Btf::parse(text, &wanted)), _bytes: bytes }
    };
    TYPES.get_or_find(find).index.as_ref()
}

/// The kernel's types.
struct Types {
    /// Declared first, so that the index is dropped before the bytes.
    index: Option<Btf<'static>>,
    _bytes: Option<Bytes>,
}

/// The bytes of a file.
enum Bytes {
    Mapped { at: NonNull<u8>, len: usize },
    Read(Vec<u8>),
}

// SAFETY: the mapping can be read, and is removed, by any thread.
unsafe impl Send for Bytes {}
// SAFETY: the mapping is never written to.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping is of this length and lives as long as the value; the kernel does
            // not change it.
            Bytes::Mapped { at, len } => unsafe { std::slice::from_raw_parts(at.as_ptr(), *len) },
            Bytes::Read(bytes) => bytes,
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Bytes::Mapped { at, len } = self {
            // SAFETY: the mapping is of this length, and there are no more references into it.
            unsafe { libc::munmap(at.as_ptr().cast(), *len) };
        }
    }
}

/// The file's bytes. They are mapped if the kernel allows it (since Linux 6.16), and read
/// otherwise.
fn bytes() -> Option<Bytes> {
    let file = fs::File::open(FILE).ok()?;
    let len = file.metadata().ok()?.len() as usize;
    // SAFETY: a fresh private mapping; the kernel chooses the address.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_POPULATE,
            file.as_raw_fd(),
            0,
        )
    };
    match NonNull::new(at) {
        Some(mapped) if at != libc::MAP_FAILED => Some(Bytes::Mapped { at: mapped.cast(), len }),
        _ => fs::read(FILE).ok().map(Bytes::Read),
    }
}

/// Start, end and permissions (`VMA_*`) of `[vsyscall]`, a mapping at a kernel address that each
/// process shows at the end of `/proc/PID/maps`, but that is in no list of mappings in the kernel.
/// A boot parameter decides whether there is one, and only `/proc/PID/maps` shows that.
pub fn gate() -> Option<(u64, u64, u32)> {
    static GATE: Found<Option<(u64, u64, u32)>> = Found::new();
    *GATE.get_or_find(|| {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        parse_gate(&fs::read("/proc/self/maps").ok()?)
    })
}

fn parse_gate(maps: &[u8]) -> Option<(u64, u64, u32)> {
    let maps = maps.strip_suffix(b"\n")?;
    let last = &maps[maps.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1)..];
    let line = std::str::from_utf8(last).ok()?.strip_suffix("[vsyscall]")?;
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let perms = rest.bytes().take(4).fold(0, |p, b| match b {
        b'r' => p | taskdiag_wire::VMA_READ,
        b'w' => p | taskdiag_wire::VMA_WRITE,
        b'x' => p | taskdiag_wire::VMA_EXEC,
        b's' => p | taskdiag_wire::VMA_SHARED,
        _ => p,
    });
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, perms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_that_the_kernel_has_counts() {
        let fs = entries(HEADER).find(|e| e.path.ends_with("/ fs")).unwrap();
        assert_eq!(fs.paths().collect::<Vec<_>>(), ["real_fs", "fs"]);
        let Some(btf) = kernel() else {
            // Written past the capture of test output, so that it is seen although the test passes.
            let text = b"SKIPPED offsets: /sys/kernel/btf/vmlinux cannot be read\n";
            std::io::Write::write_all(&mut std::io::stderr(), text).expect("standard error");
            return;
        };
        let n = entries(HEADER).position(|e| e.path == fs.path).unwrap();
        let real = btf.offset("task_struct", "real_fs").or(btf.offset("task_struct", "fs"));
        assert_eq!(find(btf).unwrap().of[n] as usize, real.unwrap() as usize);
    }

    #[test]
    fn each_line_of_the_header_is_an_entry() {
        let macros = ["NEED(", "SINCE(", "MAY("];
        let lines = HEADER.lines().filter(|l| macros.iter().any(|m| l.starts_with(m)));
        assert_eq!(entries(HEADER).count(), lines.count());
        assert!(entries(HEADER).count() <= OFFSETS_MAX);
        let first = entries(HEADER).next().unwrap();
        assert_eq!((first.need, first.of, first.path), (Need::All, "task_struct", "mm"));
        let since = entries(HEADER).find(|e| e.name == "MM_ROOT").unwrap();
        assert_eq!(since.need, Need::Since(Group::Vma, "6.1"));
    }

    #[test]
    fn the_gate_of_old_system_calls_is_found_in_maps() {
        let line = b"1000-2000 r--p 0 00:00 0 [heap]\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let gate = (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000, taskdiag_wire::VMA_EXEC);
        assert_eq!(parse_gate(line), Some(gate));
        assert_eq!(parse_gate(b"1000-2000 r--p 0 00:00 0 [heap]\n"), None);
    }
}
