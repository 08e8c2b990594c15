//! Loading a light skeleton: the kernel runs a loader program that creates the maps, relocates
//! the programs against the running kernel, and loads them. No libbpf, ELF or BTF parser is
//! needed here. `bpf/gen` makes the files; the layout of the loader's context is libbpf's
//! `skel_internal.h`.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::sys;

/// The step that fails where this kernel cannot run the programs.
pub const PROGRAMS: &str = "loading the programs";

/// A parsed `.lskel` file.
#[derive(Clone, Copy, Debug)]
pub struct Skeleton {
    names: &'static [u8],
    data: &'static [u8],
    insns: &'static [u8],
    maps: usize,
    programs: usize,
}

/// Set before the load, for the map of this name.
#[derive(Clone, Copy, Debug)]
pub struct MapInit<'a> {
    /// The map.
    pub name: &'a str,
    /// Length, or 0 for what the source says.
    pub max_entries: u32,
    /// Content of element 0 (for `.rodata`), or empty.
    pub value: &'a [u8],
}

/// What the loader made.
#[derive(Debug)]
pub struct Loaded {
    names: &'static [u8],
    maps: Vec<OwnedFd>,
    /// The programs, in the order of the source.
    pub programs: Vec<OwnedFd>,
}

/// `struct bpf_loader_ctx` in 8-byte words.
const CTX_WORDS: usize = 3;

impl Skeleton {
    /// Parse a file that `bpf/gen` made; it is part of this program, so it is well formed.
    pub const fn parse(file: &'static [u8]) -> Skeleton {
        let (magic, rest) = file.split_at(8);
        assert!(matches!(magic, b"TDLSKEL1"));
        let (head, rest) = rest.split_at(16);
        let (names, rest) = rest.split_at(16 * le32(head, 8));
        let (data, insns) = rest.split_at(le32(head, 0));
        assert!(insns.len() == le32(head, 4));
        Skeleton { names, data, insns, maps: le32(head, 8), programs: le32(head, 12) }
    }

    /// Load it. The error says which step failed, which is what tells a missing right from a
    /// missing feature.
    pub fn load(&self, init: &[MapInit<'_>]) -> Result<Loaded, (&'static str, io::Error)> {
        let step = |what| move |e| (what, e);
        let map = sys::array_of_one("__loader.map", self.data.len() as u32)
            .map_err(step("creating a map"))?;
        sys::update_first(&map, self.data).map_err(step("filling a map"))?;
        let loader =
            sys::load_loader(self.insns, &map).map_err(step("loading the loader program"))?;

        // The context: its size, then for each map {fd, max_entries, initial value}, then an fd
        // for each program.
        let bytes = CTX_WORDS * 8 + self.maps * 16 + self.programs * 4;
        let mut ctx = vec![0u64; bytes.div_ceil(8)];
        ctx[0] = bytes as u64;
        for i in init {
            // Not every program has every map.
            let Some(at) = position(self.names, i.name) else { continue };
            ctx[CTX_WORDS + at * 2] = u64::from(i.max_entries) << 32;
            if !i.value.is_empty() {
                ctx[CTX_WORDS + at * 2 + 1] = i.value.as_ptr().addr() as u64;
            }
        }
        let r = sys::test_run(&loader, &mut ctx, bytes).map_err(step("running the loader"))?;
        if r < 0 {
            return Err((PROGRAMS, io::Error::from_raw_os_error(-r)));
        }
        let fd = |n: u64| {
            // SAFETY: the loader returned success, so it made this fd for us and keeps none.
            unsafe { OwnedFd::from_raw_fd(n as u32 as i32) }
        };
        let maps = (0..self.maps).map(|i| fd(ctx[CTX_WORDS + i * 2])).collect();
        let programs = (0..self.programs)
            .map(|i| fd(ctx[CTX_WORDS + self.maps * 2 + i / 2] >> (i % 2 * 32)))
            .collect();
        Ok(Loaded { names: self.names, maps, programs })
    }
}

impl Loaded {
    /// The map of this name.
    pub fn map(&self, name: &str) -> &OwnedFd {
        &self.maps[position(self.names, name).expect("a map of the skeleton")]
    }
}

/// Names are up to 15 bytes; libbpf prefixes those of .rodata and .bss with the object's name.
fn position(names: &[u8], name: &str) -> Option<usize> {
    names.chunks_exact(16).position(|n| {
        let end = n.iter().position(|b| *b == 0).unwrap_or(16);
        n[..end].ends_with(name.as_bytes())
    })
}

const fn le32(b: &[u8], at: usize) -> usize {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]) as usize
}
