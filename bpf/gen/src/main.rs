//! Compiles `bpf/*.bpf.c` and makes light skeletons of them. A light skeleton has the loader
//! program and its data as libbpf makes them, in one file that the crate taskdiag-bpf includes.
//! With `--check`, it compares with the files that are checked in instead of writing them. With
//! `--gap N --out DIR`, it makes programs for tests in DIR that wait for N rounds between the load
//! of a pointer and its use (`GAP()` in the sources).
//!
//! A light skeleton needs no libbpf, no ELF and no BTF parser at run time. The kernel itself can
//! run the loader program, which creates the maps, relocates against the running kernel and loads
//! the programs. Only one compiler gives the same bytes from the sources, so its version is fixed
//! here.

mod lines;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, ptr};

/// The compiler that made the checked-in output.
const CLANG: &str = "clang-19";

/// What to make.
#[derive(Default)]
struct Options {
    /// Compare with the checked-in files.
    check: bool,
    /// For storms: how many rounds the programs wait between the load of a pointer and its use.
    gap: Option<u32>,
    /// Another directory than that of the crate `taskdiag-bpf`.
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("bpf/").to_owned();
    match options(env::args().skip(1)).and_then(|o| run(&bpf, &o)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("taskdiag-bpf-gen: {e}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut o = Options::default();
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--check" => o.check = true,
            "--gap" => {
                o.gap = Some(value()?.parse().map_err(|e| format!("--gap: {e}; give a number"))?);
            }
            "--out" => o.out = Some(value()?.into()),
            _ => {
                return Err(format!(
                    "there is no option {name}; there are --check, --gap N, --out DIR"
                ));
            }
        }
    }
    if o.gap.is_some() && o.out.is_none() {
        return Err(
            "--gap needs --out DIR: programs that wait are for tests, not to be checked in".into(),
        );
    }
    Ok(o)
}

fn run(bpf: &Path, o: &Options) -> Result<(), String> {
    let mut sources: Vec<PathBuf> = fs::read_dir(bpf)
        .map_err(|e| format!("{}: {e}", bpf.display()))?
        .filter_map(|f| Some(f.ok()?.path()))
        .filter(|p| p.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    sources.sort();
    if sources.is_empty() {
        return Err(format!("no *.bpf.c in {}", bpf.display()));
    }
    let out = o.out.clone().unwrap_or_else(|| bpf.with_file_name("crates/taskdiag-bpf/skel"));
    for source in sources {
        let name = source.file_name().expect("a file").to_string_lossy().replace(".bpf.c", "");
        let mut object = compile(bpf, &name, o.gap)?;
        lines::strip(&mut object).map_err(|e| format!("{name}: {e}"))?;
        let made = light_skeleton(&object, &name)?;
        let path = out.join(format!("{name}.lskel"));
        if o.check {
            let have = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if have != made {
                return Err(format!(
                    "{} differs from the sources; run `make bpf` and commit it",
                    path.display()
                ));
            }
            println!("{name}: as checked in ({} bytes)", made.len());
        } else if fs::read(&path).is_ok_and(|have| have == made) {
            // The file is left unchanged, because a new time stamp would rebuild everything.
            println!("{name}: {} bytes, unchanged", made.len());
        } else {
            fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
            fs::write(&path, &made).map_err(|e| format!("{}: {e}", path.display()))?;
            println!("{name}: {} bytes", made.len());
        }
    }
    Ok(())
}

fn compile(bpf: &Path, name: &str, gap: Option<u32>) -> Result<Vec<u8>, String> {
    let object = env::temp_dir().join(format!("taskdiag-{}-{name}.bpf.o", std::process::id()));
    // It runs in bpf/ with relative names and mapped prefixes, so that no path of this machine is
    // in the object.
    let status = Command::new(CLANG)
        .current_dir(bpf)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-Wno-unused-function", "-Wno-sign-compare", "-Wno-missing-field-initializers"])
        .args(gap.map(|n| format!("-DTASKDIAG_GAP={n}")))
        .arg(format!("-ffile-prefix-map={}=.", bpf.display()))
        .arg(format!("-ffile-prefix-map={}=libbpf", env!("LIBBPF_INCLUDE")))
        .arg("-isystem")
        .arg(env!("LIBBPF_INCLUDE"))
        .arg("-c")
        .arg(format!("{name}.bpf.c"))
        .arg("-o")
        .arg(&object)
        .status()
        .map_err(|e| format!("{CLANG}: {e}; install it (Debian: apt-get install {CLANG})"))?;
    let bytes = fs::read(&object).map_err(|e| e.to_string());
    let _ = fs::remove_file(&object);
    if !status.success() {
        return Err(format!("{CLANG} failed on {name}.bpf.c"));
    }
    bytes
}

/// Makes a file. It has "TDLSKEL2", the lengths of data and instructions, the numbers of maps and
/// programs, and the length of the names, all as u32. Then come the name of each map in 16 bytes,
/// the data, the instructions, and the names that the program looks for in the kernel, each ended
/// by NUL. Names of functions end in "()". The order is that of `struct bpf_loader_ctx`, as the
/// loader expects it: maps, then programs.
fn light_skeleton(object: &[u8], name: &str) -> Result<Vec<u8>, String> {
    use libbpf_sys as sys;
    let err = |what: &str| format!("{name}: {what} failed: {}", std::io::Error::last_os_error());
    let cname = CString::new(name).expect("no NUL in a file name");
    // SAFETY: plain libbpf calls in its documented order; the object outlives all pointers taken
    // from it and is closed at the end.
    unsafe {
        let mut opts: sys::bpf_object_open_opts = std::mem::zeroed();
        opts.sz = size_of::<sys::bpf_object_open_opts>() as _;
        opts.object_name = cname.as_ptr();
        let obj = sys::bpf_object__open_mem(object.as_ptr().cast(), object.len() as _, &opts);
        if obj.is_null() {
            return Err(err("opening the object"));
        }
        let mut generated: sys::gen_loader_opts = std::mem::zeroed();
        generated.sz = size_of::<sys::gen_loader_opts>() as _;
        if sys::bpf_object__gen_loader(obj, &mut generated) != 0 {
            return Err(err("bpf_object__gen_loader"));
        }
        if sys::bpf_object__load(obj) != 0 {
            return Err(err("bpf_object__load"));
        }
        let mut maps = Vec::new();
        let mut map = sys::bpf_object__next_map(obj, ptr::null());
        while !map.is_null() {
            let mut field = [0u8; 16];
            let n = CStr::from_ptr(sys::bpf_map__name(map)).to_bytes();
            let n = &n[..n.len().min(15)];
            field[..n.len()].copy_from_slice(n);
            maps.push(field);
            let mut size = 0;
            let value = sys::bpf_map__initial_value(map, &mut size).cast::<u8>();
            if n.ends_with(b".rodata")
                && std::slice::from_raw_parts(value, size as usize).iter().any(|b| *b != 0)
            {
                return Err(format!(
                    "{name}: .rodata has a value outside of the configuration, and each load would overwrite that value"
                ));
            }
            map = sys::bpf_object__next_map(obj, map);
        }
        let (mut programs, mut names) = (0, kernel_names(sys::bpf_object__btf(obj)));
        let mut prog = sys::bpf_object__next_program(obj, ptr::null_mut());
        while !prog.is_null() {
            programs += 1;
            let section = CStr::from_ptr(sys::bpf_program__section_name(prog)).to_bytes();
            // This is the function that an iterator program is attached to.
            if let Some(of) = section.strip_prefix(b"iter/") {
                names.insert([b"bpf_iter_", of, b"()"].concat());
            }
            prog = sys::bpf_object__next_program(obj, prog);
        }
        let data =
            std::slice::from_raw_parts(generated.data.cast::<u8>(), generated.data_sz as usize);
        let insns =
            std::slice::from_raw_parts(generated.insns.cast::<u8>(), generated.insns_sz as usize);
        let insns = no_closes_beyond_stack(insns);
        let names: Vec<u8> = names.into_iter().flat_map(|n| [n, vec![0]].concat()).collect();
        let mut out = b"TDLSKEL2".to_vec();
        let lengths = [data.len(), insns.len(), maps.len(), programs, names.len()];
        for n in lengths.map(|n| n as u32) {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend(maps.iter().flatten());
        out.extend_from_slice(data);
        out.extend_from_slice(&insns);
        out.extend_from_slice(&names);
        sys::bpf_object__close(obj);
        Ok(out)
    }
}

/// The names of the structs and unions in a program's types, and of the kernel functions that it
/// calls, which get "()" appended. Each name is there once. libbpf makes those functions look like
/// functions of the program, but only they begin with "bpf_". Three underscores begin a suffix that
/// distinguishes variants of a type and is not part of its name.
///
/// # Safety
/// `btf` belongs to an open object.
unsafe fn kernel_names(btf: *const libbpf_sys::btf) -> BTreeSet<Vec<u8>> {
    use libbpf_sys as sys;
    const FUNC: u32 = 12;
    let mut names = BTreeSet::new();
    // SAFETY: ids below the count belong to types, whose names live as long as the object.
    unsafe {
        for id in 1..sys::btf__type_cnt(btf) {
            let t = &*sys::btf__type_by_id(btf, id);
            let kind = t.info >> 24 & 0x1f;
            let name = CStr::from_ptr(sys::btf__name_by_offset(btf, t.name_off)).to_bytes();
            let end = name.windows(3).skip(1).position(|w| w == b"___");
            let name = &name[..end.map_or(name.len(), |at| at + 1)];
            match kind {
                sys::BTF_KIND_STRUCT | sys::BTF_KIND_UNION if !name.is_empty() => {
                    names.insert(name.to_vec());
                }
                FUNC if name.starts_with(b"bpf_") => {
                    names.insert([name, b"()"].concat());
                }
                _ => {}
            }
        }
    }
    names
}

/// When it fails, the loader closes an fd for each function of the object, as if each were a
/// program. It takes them from a list on its stack that has room for 32, and the kernel refuses a
/// loader that reads beyond. Only the programs have an fd in the list, so
/// the reads of further entries are replaced by zeros, which are not closed.
fn no_closes_beyond_stack(insns: &[u8]) -> Vec<u8> {
    // r1 = *(u32 *)(r10 + off), r1 = 0
    const LOAD: [u8; 2] = [0x61, 0xa1];
    const ZERO: [u8; 8] = [0xb7, 0x01, 0, 0, 0, 0, 0, 0];
    let mut insns = insns.to_vec();
    for insn in insns.chunks_exact_mut(8) {
        if insn[..2] == LOAD && i16::from_le_bytes([insn[2], insn[3]]) >= 0 {
            insn.copy_from_slice(&ZERO);
        }
    }
    insns
}
