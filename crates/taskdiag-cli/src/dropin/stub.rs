//! The file that replaces libproc2 for a whole machine.
//!
//! It is a library without code. It has the name and the symbol versions that programs look for,
//! and needs two libraries by path: first the drop-in, then the real libproc2. The dynamic linker
//! searches the three files in this order for each function, so it finds the functions of the
//! drop-in first, and all others in the real library. The file is made here and not with a linker,
//! so that it can name the paths of a machine without a compiler.

/// Bytes of the headers: the file's own, and three of segments.
const HEADERS: usize = 64 + 3 * 56;
const DYNAMIC_ENTRIES: usize = 12;

/// Machine numbers of ELF, by the architecture of this build.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    0
};

/// Is this architecture supported?
pub const IS_KNOWN: bool = MACHINE != 0 && cfg!(target_endian = "little");

/// Makes the file from its soname, its symbol versions, and the libraries that it needs.
pub fn file(soname: &str, versions: &[String], needed: [&str; 2]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut string = |text: &str| {
        let at = strings.len();
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at as u64
    };
    let name = string(soname);
    // The file itself counts as a version, too, and is the first one.
    let mut nodes = vec![(1_u16, soname, name)];
    nodes.extend(versions.iter().map(|v| (0, v.as_str(), string(v))));
    let libraries = needed.map(&mut string);

    // All parts follow each other, and the address of each is its offset in the file.
    let symbols_at = HEADERS;
    let hash_at = symbols_at + 24;
    let versions_at = hash_at + 16;
    let definitions_at = versions_at + 8;
    let strings_at = definitions_at + nodes.len() * 28;
    while (strings_at + strings.len()) % 8 != 0 {
        strings.push(0);
    }
    let dynamic_at = strings_at + strings.len();
    let len = dynamic_at + DYNAMIC_ENTRIES * 16;

    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for n in [3, MACHINE] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    put32(&mut out, &[1]);
    put64(&mut out, &[0, 64, 0]);
    put32(&mut out, &[0]);
    for n in [64_u16, 56, 3, 64, 0, 0] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    // The segment is writable because older linkers write addresses into the dynamic part.
    let (all, dynamic) = (len as u64, (DYNAMIC_ENTRIES * 16) as u64);
    segment(&mut out, 1, 0, all, 0x1000);
    segment(&mut out, 2, dynamic_at as u64, dynamic, 8);
    // The stack is not executable.
    segment(&mut out, 0x6474_e551, 0, 0, 16);
    // The symbol at the start of every table, and a hash table without other entries.
    out.extend_from_slice(&[0; 24]);
    put32(&mut out, &[1, 1, 0, 0]);
    out.extend_from_slice(&[0; 8]);
    for (index, (flags, text, at)) in (1_u16..).zip(&nodes) {
        for n in [1, *flags, index, 1] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        let next = if usize::from(index) < nodes.len() { 28 } else { 0 };
        put32(&mut out, &[hash(text), 20, next, *at as u32, 0]);
    }
    out.extend_from_slice(&strings);
    let entries: [(u64, u64); DYNAMIC_ENTRIES] = [
        (1, libraries[0]),
        (1, libraries[1]),
        (14, name),
        (4, hash_at as u64),
        (5, strings_at as u64),
        (6, symbols_at as u64),
        (10, strings.len() as u64),
        (11, 24),
        (0x6fff_fff0, versions_at as u64),
        (0x6fff_fffc, definitions_at as u64),
        (0x6fff_fffd, nodes.len() as u64),
        (0, 0),
    ];
    for (tag, value) in entries {
        put64(&mut out, &[tag, value]);
    }
    debug_assert_eq!(out.len(), len);
    out
}

fn put32(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

fn put64(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

/// A program header of a readable and writable part.
fn segment(out: &mut Vec<u8>, kind: u32, at: u64, len: u64, align: u64) {
    put32(out, &[kind, 6]);
    put64(out, &[at, at, at, len, len, align]);
}

/// The hash of a name, as defined by the ELF format.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0, |h: u32, b| {
        let h = (h << 4).wrapping_add(u32::from(b));
        let high = h & 0xf000_0000;
        (h ^ (high >> 24)) & !high
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropin::elf;

    #[test]
    fn a_stub_has_its_name_versions_and_libraries() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("libproc2.so.0");
        for versions in [&["LIBPROC_2"][..], &["LIBPROC_2", "LIBPROC_2.1", "LIBPROC_2.2"]] {
            let versions: Vec<String> = versions.iter().map(|v| (*v).to_owned()).collect();
            let bytes = file("libproc2.so.0", &versions, ["/a/b.so", "/c/d.so"]);
            std::fs::write(&path, bytes).expect("written");
            let linked = elf::linked(&path).expect("it is read").expect("it is an ELF file");
            assert_eq!(linked.soname.as_deref(), Some("libproc2.so.0"));
            assert_eq!(linked.needed, ["/a/b.so", "/c/d.so"]);
            assert_eq!(linked.versions, versions);
        }
    }

    #[test]
    fn names_have_the_hash_of_the_elf_format() {
        // The results for such a name and for an empty one in the generic ABI.
        assert_eq!((hash("printf"), hash("exit"), hash("")), (0x077_905a6, 0x0006_cf04, 0));
    }
}
