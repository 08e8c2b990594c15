//! The BPF programs of taskdiag, compiled, as data. The crate [`taskdiag`] loads them; you need
//! this crate only to look at them.
//!
//! Each program is a *light skeleton*: a small loader program that creates the maps and relocates
//! the real program against the types of the running kernel. The format of the files is described
//! at `light_skeleton()` in `bpf/gen/src/main.rs`. The C sources are in the directory `bpf` of this
//! crate. `make bpf-check` compiles them again and fails if one byte of the checked-in programs
//! differs.
//!
//! This crate has no code that runs. It does not decide which program is loaded, and it calls no
//! bpf(2).
//!
//! The compiled programs and their sources are licensed `GPL-2.0-only OR BSD-2-Clause`. The Rust
//! code is licensed `MIT OR Apache-2.0`, like the rest of taskdiag.
//!
//! [`taskdiag`]: https://docs.rs/taskdiag

/// Includes a file from the directory that `build.rs` names.
macro_rules! skeleton {
    ($file:literal) => {
        include_bytes!(concat!(env!("TASKDIAG_SKELETONS"), "/", $file))
    };
}

/// The program that answers all groups of the BPF engine. It needs Linux 6.8 or newer.
pub const SNAPSHOT: &[u8] = skeleton!("snapshot.lskel");

/// The snapshot program without paths, mappings, files, namespaces and control groups. It loads in
/// the shortest time.
pub const LITE: &[u8] = skeleton!("lite.lskel");

/// The snapshot program without namespaces and control groups, because their types are expensive to
/// look up.
pub const MORE: &[u8] = skeleton!("more.lskel");

/// The program for kernels from 5.15 to 6.7.
pub const LEGACY: &[u8] = skeleton!("legacy.lskel");

/// The header that lists the members of kernel structs that the programs read by offset
/// (`bpf/offsets.h`). The engine reads the same text, so both sides have the same members in the
/// same order.
pub const OFFSETS: &str = include_str!("../bpf/offsets.h");

/// The helpers that the programs may call, the memory that they read, and what keeps it alive
/// (`docs/operate/safety.md`). A test of `taskdiag` compares this list with the calls in the
/// programs.
pub const SAFETY: &str = include_str!("../safety.md");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_a_different_light_skeleton() {
        let all = [SNAPSHOT, LITE, MORE, LEGACY];
        for (n, program) in all.iter().enumerate() {
            assert!(program.starts_with(b"TDLSKEL2"), "program {n}");
            assert!(!all[..n].contains(program), "program {n} is there twice");
        }
    }

    #[test]
    fn the_package_has_offsets_and_rules() {
        assert!(OFFSETS.contains("NEED(") && SAFETY.contains("bpf_task_release"));
    }
}
