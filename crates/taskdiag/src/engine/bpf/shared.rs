//! `bpf/snapshot.h` in Rust: the data that the program and its user-space half share. A test
//! compiles the header and compares the two.

use super::offsets::OFFSETS_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `CHUNK_SIZE`.
pub const CHUNK_SIZE: usize = (1 << 19) + (48 << 10);
/// `CHUNK_FULL`.
pub const CHUNK_FULL: usize = (1 << 19) - (64 << 10);
/// `CHUNKS_MAX`.
pub const CHUNKS_MAX: usize = 256;
/// `CHUNKS_RESERVE`.
pub const CHUNKS_RESERVE: usize = 2;
/// The largest size of the programs' table of names.
pub const NAMES_MAX: u32 = 32768;
/// The largest size of the programs' table of objects that several tasks share.
pub const SHARED_MAX: u32 = 16384;
/// `struct config`: the program's `.rodata`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Config {
    pub groups: u64,
    pub strategy: u32,
    pub pid: u32,
    pub nchunks: u32,
    pub count_only: u32,
    pub page_shift: u32,
    pub gate_perms: u32,
    pub skip_base: u32,
    pub skip_stat: u32,
    pub reserve: u32,
    pub first_ns: u32,
    pub names_mask: u32,
    pub shared_mask: u32,
    pub seen_mask: u32,
    pub ahead: u32,
    pub skip_statm: u32,
    pub skip_cred: u32,
    pub slice_ns: u64,
    pub ram_end: u64,
    pub pte_address: u64,
    pub gate_start: u64,
    pub gate_end: u64,
    pub text_total: u64,
    pub list_total: u64,
    pub text_max: u32,
    pub orders_loads: u32,
    pub skip_cgroup_roots: u32,
    pub jiffy_ns: u32,
    pub cpus: u32,
    pub nodes: u32,
    pub has_thp: u32,
    pub short_workers: u32,
    pub frame_format: [u8; 16],
    pub symbol_format: [u8; 8],
    pub number_format: [u8; 8],
    pub offsets: [u16; OFFSETS_MAX],
}

/// The beginning of `struct state`, which is the programs' `.bss`. User space reads and sets only
/// this part.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct State {
    pub done: u32,
    pub overflow: u32,
    pub nseen: u32,
    pub full: u32,
    pub used: [u32; CHUNKS_MAX],
    pub tasks: u64,
    pub vanished: u64,
    pub truncated: u64,
    pub blocked: u64,
    pub counted: u32,
    pub target: u32,
    pub part: u32,
    pub stop: u32,
    pub chunk: u32,
    pub off: u32,
    pub walking: u32,
    pub slice: u32,
    pub own: u64,
    pub first: u32,
    pub last: u32,
}

/// Bits of [`Config::ahead`]: `enum ahead_of`.
pub const AHEAD_OF_PROCESSES: u32 = 1;
pub const AHEAD_OF_THREADS: u32 = 2;

/// `sizeof(struct state)`, of which [`State`] is the beginning.
pub const STATE_SIZE: usize = 78136;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::room;
    use std::mem::offset_of;
    use std::process::Command;

    #[test]
    fn structs_shared_with_the_programs_are_those_of_the_header() {
        let expect = [
            ("sizeof(struct config)", size_of::<Config>()),
            ("offsetof(struct config, nchunks)", offset_of!(Config, nchunks)),
            ("offsetof(struct config, page_shift)", offset_of!(Config, page_shift)),
            ("offsetof(struct config, skip_stat)", offset_of!(Config, skip_stat)),
            ("offsetof(struct config, reserve)", offset_of!(Config, reserve)),
            ("offsetof(struct config, first_ns)", offset_of!(Config, first_ns)),
            ("offsetof(struct config, names_mask)", offset_of!(Config, names_mask)),
            ("offsetof(struct config, shared_mask)", offset_of!(Config, shared_mask)),
            ("offsetof(struct config, seen_mask)", offset_of!(Config, seen_mask)),
            ("offsetof(struct config, ahead)", offset_of!(Config, ahead)),
            ("offsetof(struct config, skip_statm)", offset_of!(Config, skip_statm)),
            ("offsetof(struct config, skip_cred)", offset_of!(Config, skip_cred)),
            ("offsetof(struct config, slice_ns)", offset_of!(Config, slice_ns)),
            ("offsetof(struct config, pte_address)", offset_of!(Config, pte_address)),
            ("offsetof(struct config, gate_end)", offset_of!(Config, gate_end)),
            ("offsetof(struct config, text_max)", offset_of!(Config, text_max)),
            ("USERS_MAX", room::USERS_MAX),
            ("TEXT_SMALL", room::TEXT_SMALL as usize),
            ("TEXT_LEAST", room::TEXT_LEAST as usize),
            ("offsetof(struct config, orders_loads)", offset_of!(Config, orders_loads)),
            ("offsetof(struct config, skip_cgroup_roots)", offset_of!(Config, skip_cgroup_roots)),
            ("LIST_LEAST", room::LIST_LEAST),
            ("NAME_LEAST", room::NAME_LEAST),
            ("offsetof(struct config, offsets)", offset_of!(Config, offsets)),
            ("OFFSETS_MAX", OFFSETS_MAX),
            ("NAMES_MAX", NAMES_MAX as usize),
            ("SHARED_MAX", SHARED_MAX as usize),
            ("OFFSET_NONE", usize::from(crate::engine::bpf::offsets::OFFSET_NONE)),
            ("offsetof(struct state, chunk)", offset_of!(State, chunk)),
            ("offsetof(struct state, off)", offset_of!(State, off)),
            ("offsetof(struct state, last) + 4", size_of::<State>()),
            ("sizeof(struct state)", STATE_SIZE),
            ("AHEAD_OF_PROCESSES", AHEAD_OF_PROCESSES as usize),
            ("AHEAD_OF_THREADS", AHEAD_OF_THREADS as usize),
            ("offsetof(struct state, used)", offset_of!(State, used)),
            ("offsetof(struct state, tasks)", offset_of!(State, tasks)),
            ("offsetof(struct state, blocked)", offset_of!(State, blocked)),
            ("offsetof(struct state, target)", offset_of!(State, target)),
            ("offsetof(struct state, stop)", offset_of!(State, stop)),
            ("offsetof(struct state, walking)", offset_of!(State, walking)),
            ("CHUNK_SIZE", CHUNK_SIZE),
            ("CHUNK_FULL", CHUNK_FULL),
            ("CHUNKS_MAX", CHUNKS_MAX),
            ("CHUNKS_RESERVE", CHUNKS_RESERVE),
        ];
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut c = format!(
            "#include <linux/types.h>\n#include <stddef.h>\n#include \"{root}/bpf/snapshot.h\"\n"
        );
        for (what, n) in expect {
            c += &format!("_Static_assert(({what}) == {n}, \"{what}\");\n");
        }
        let file = std::env::temp_dir().join(format!("taskdiag-layout-{}.c", std::process::id()));
        std::fs::write(&file, c).unwrap();
        let out = Command::new("cc").args(["-fsyntax-only"]).arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// Random numbers of all sizes, divided by the programs' function and in 128 bits. Most need
    /// the division by bits.
    const DIVISIONS: &str = r#"
#include <stdlib.h>
typedef unsigned int u32;
typedef unsigned long long u64;
#define __noinline
#define barrier_var(v) asm volatile("" : "+r"(v))
static struct { u64 div_high, div_low, divisor, quotient; } st;
static int loops;
#define STEP(name, i) static int name(u32 i)
#define LOOP(n, step) do {			\
	loops++;				\
	for (u32 i = 0; i < (n); i++)		\
		if (step(i))			\
			break;			\
} while (0)
#include "muldiv.h"
static u64 any(void)
{
	u64 v = (u64)random() << 42 ^ (u64)random() << 21 ^ random();

	return v >> random() % 64;
}
int main(void)
{
	for (int i = 0; i < 100000; i++) {
		u64 c = any(), b = any(), a = i % 4 ? any() : c - i % 3;

		if (a > c)
			a %= c + 1;
		if (mul_div(a, b, c) != (c ? (u64)((unsigned __int128)a * b / c) : 0))
			return 1;
	}
	return loops > 10000 ? 0 : 2;
}
"#;

    #[test]
    fn a_division_is_exact() {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("div.c"), dir.path().join("div"));
        std::fs::write(&source, DIVISIONS).unwrap();
        let bpf = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf");
        let cc = Command::new("cc").args(["-I", bpf, "-o"]).args([&program, &source]).output();
        let cc = cc.unwrap();
        assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
        let code = Command::new(&program).status().unwrap().code();
        assert_eq!(code, Some(0), "1: a wrong quotient, 2: too few divisions by bits");
    }
}
