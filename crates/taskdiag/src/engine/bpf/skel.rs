//! Loads a light skeleton. Its loader program creates the maps, relocates the programs for the
//! running kernel, and loads them. The kernel can run the loader, but it takes half of the time in
//! this process, see `machine` and `resolve`. No libbpf or ELF parser is needed. `bpf/gen` makes
//! the files; the layout of the loader's context is defined by libbpf's `skel_internal.h`.

use std::ffi::OsString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use zerocopy::IntoBytes;

use super::btf::Btf;
use super::machine::{self, LoaderMemory};
use super::offsets::kernel;
use super::resolve::Resolver;
use super::sys;
use super::trim::Data;

/// The step that failed, and the system's error.
pub type Failed = (&'static str, io::Error);

/// The step that fails where this kernel cannot run the programs.
pub const PROGRAMS: &str = "loading the programs";

/// The step that fails where the verifier refuses a program.
pub const REFUSED: &str = "the verifier";

/// With `0`, programs are loaded as they were compiled, so that a fault of trimming can be
/// distinguished from a fault of a program.
const TRIM_ENV: &str = "TASKDIAG_TRIM";

/// A parsed `.lskel` file.
#[derive(Clone, Copy, Debug)]
pub struct Skeleton {
    names: &'static [u8],
    data: &'static [u8],
    insns: &'static [u8],
    /// Names, each with a NUL at its end.
    wanted: &'static [u8],
    maps: usize,
    programs: usize,
}

/// The settings of one map before the load.
#[derive(Clone, Copy, Debug)]
pub struct MapInit<'a> {
    /// The map.
    pub name: &'a str,
    /// Number of entries, or 0 for that of the source.
    pub max_entries: u32,
    /// Content of element 0 (for `.rodata`), or empty.
    pub value: &'a [u8],
}

/// The maps and programs that the loader made.
#[derive(Debug)]
pub struct Loaded {
    names: &'static [u8],
    maps: Vec<OwnedFd>,
    /// The programs, in the order of the source.
    pub programs: Vec<OwnedFd>,
}

/// The map of the read-only data.
pub const RODATA: &str = ".rodata";

/// `struct bpf_loader_ctx` in 8-byte words.
const CTX_WORDS: usize = 3;

impl Skeleton {
    /// Parse a file that `bpf/gen` made. It is part of this program, so it is well formed.
    pub const fn parse(file: &'static [u8]) -> Skeleton {
        let (magic, rest) = file.split_at(8);
        assert!(matches!(magic, b"TDLSKEL2"));
        let (head, rest) = rest.split_at(20);
        let (names, rest) = rest.split_at(16 * le32(head, 8));
        let (data, rest) = rest.split_at(le32(head, 0));
        let (insns, wanted) = rest.split_at(le32(head, 4));
        assert!(wanted.len() == le32(head, 16));
        Skeleton { names, data, insns, wanted, maps: le32(head, 8), programs: le32(head, 12) }
    }

    /// The names that the program looks for in the kernel's types. Names of functions end in "()".
    pub fn wanted(&self) -> impl Iterator<Item = &'static [u8]> + use<> {
        self.wanted.split(|b| *b == 0).filter(|n| !n.is_empty())
    }

    /// Load it. The error names the step that failed, which distinguishes a missing right from a
    /// missing feature.
    pub fn load(&self, init: &[MapInit<'_>]) -> Result<Loaded, Failed> {
        let mut ctx = self.context(init);
        let here = |types| self.run_here(types, &mut ctx.clone(), init);
        if let Some(result) = kernel().and_then(here) {
            return result;
        }
        self.run_in_kernel(&mut ctx)
    }

    /// The loader's argument: its size, then for each map {fd, max_entries, initial value}, then an
    /// fd for each program.
    fn context(&self, init: &[MapInit<'_>]) -> Vec<u64> {
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
        ctx
    }

    /// The read-only data that the program will have, by which it is trimmed. `None` if
    /// `setting` turns trimming off, or if the data is not known.
    fn data_of<'a>(&self, init: &[MapInit<'a>], setting: Option<OsString>) -> Option<Data<'a>> {
        if setting.is_some_and(|s| s == "0") {
            return None;
        }
        let value = init.iter().find(|i| i.name == RODATA)?.value;
        Some(Data { map: position(self.names, RODATA)? as u32, value })
    }

    /// The maps and programs. `take` gives each fd by its number.
    fn loaded(&self, ctx: &[u64], mut take: impl FnMut(u32) -> Option<OwnedFd>) -> Option<Loaded> {
        let maps =
            (0..self.maps).map(|i| take(ctx[CTX_WORDS + i * 2] as u32)).collect::<Option<_>>()?;
        let programs = (0..self.programs)
            .map(|i| take((ctx[CTX_WORDS + self.maps * 2 + i / 2] >> (i % 2 * 32)) as u32))
            .collect::<Option<_>>()?;
        Some(Loaded { names: self.names, maps, programs })
    }

    /// Runs the loader in this process. `None` if it does something unknown.
    fn run_here(
        &self,
        types: &Btf<'_>,
        ctx: &mut [u64],
        init: &[MapInit<'_>],
    ) -> Option<Result<Loaded, Failed>> {
        let values: Vec<&[u8]> = init.iter().map(|i| i.value).collect();
        let mut data = self.data.to_vec();
        // Anyone may set this: a program as it was compiled takes longer to load, and its answer is
        // the same.
        let data_of_program = self.data_of(init, std::env::var_os(TRIM_ENV));
        let mut resolver = Resolver::new(types, data_of_program);
        let bytes = ctx[0] as usize;
        let r = {
            let ctx = ctx.as_mut_bytes().get_mut(..bytes)?;
            machine::run(self.insns, &mut LoaderMemory::new(&mut data, ctx, &values), &mut resolver)
                .ok()?
        };
        if r < 0 {
            let step = match resolver.failed {
                Some(sys::MAP_CREATE) => "creating a map",
                Some(sys::MAP_UPDATE_ELEM) => "filling a map",
                Some(sys::BTF_LOAD) => "loading the types of the programs",
                _ if resolver.refused => REFUSED,
                _ => PROGRAMS,
            };
            return Some(Err((step, io::Error::from_raw_os_error(-r as i32))));
        }
        self.loaded(ctx, |fd| resolver.take(fd)).map(Ok)
    }

    fn run_in_kernel(&self, ctx: &mut [u64]) -> Result<Loaded, Failed> {
        let step = |what| move |e| (what, e);
        let map = sys::array_of_one("__loader.map", self.data.len() as u32)
            .map_err(step("creating a map"))?;
        sys::update_first(&map, self.data).map_err(step("filling a map"))?;
        let loader =
            sys::load_loader(self.insns, &map).map_err(step("loading the loader program"))?;
        let bytes = ctx[0] as usize;
        let r = sys::test_run(&loader, ctx, bytes).map_err(step("running the loader"))?;
        if r < 0 {
            return Err((PROGRAMS, io::Error::from_raw_os_error(-r)));
        }
        // SAFETY: the loader returned success, so it made these fds for us and keeps none.
        let take = |fd| Some(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        Ok(self.loaded(ctx, take).expect("each is taken"))
    }
}

impl Loaded {
    /// All maps and programs.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.maps.iter().chain(&self.programs)
    }

    /// The map of this name.
    pub fn map(&self, name: &str) -> &OwnedFd {
        &self.maps[position(self.names, name).expect("a map of the skeleton")]
    }
}

/// The number of the map of this name. Names have up to 15 bytes; libbpf puts the object's name
/// before .rodata and .bss.
fn position(names: &[u8], name: &str) -> Option<usize> {
    names.chunks_exact(16).position(|n| {
        let end = n.iter().position(|b| *b == 0).unwrap_or(16);
        n[..end].ends_with(name.as_bytes())
    })
}

const fn le32(b: &[u8], at: usize) -> usize {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::btf::Wanted;
    use super::super::shared::Config;
    use super::super::{LEGACY, LITE, MORE, SNAPSHOT};
    use super::super::{core, offsets, order};
    use super::*;
    use crate::engine::bpf::machine::Host;
    use crate::engine::bpf::resolve::LoaderWork;
    use zerocopy::FromZeros;

    /// A dry run, which needs no rights: it finds types and relocates the program, but loads
    /// nothing.
    struct Dry<'k>(Resolver<'k>, LoaderWork, Vec<String>);

    impl Host for Dry<'_> {
        fn bpf(&mut self, cmd: u32, memory: &mut LoaderMemory<'_>, attr: u64, _: u32) -> i64 {
            self.0.prepare(cmd as i32, memory, attr);
            if cmd as i32 == sys::PROG_LOAD && self.0.done != self.1 {
                self.2.push(format!("{:?} instead of {:?}", self.0.done, self.1));
            }
            100 + i64::from(cmd)
        }
        fn find_type(&mut self, name: &[u8], kind: u32) -> i64 {
            let id = self.0.find_type(name, kind);
            if id <= 0 {
                self.2.push(format!("{} is not found", name.escape_ascii()));
            }
            id
        }
        fn close(&mut self, _: u32) {}
    }

    /// Loads all programs, as far as possible without rights, and compares the steps with the
    /// expected ones.
    fn load_all_dry(setting: Option<&str>, due: LoaderWork) {
        let Some(types) = kernel() else {
            // Written past the capture of test output, so that it is seen although the test passes.
            let text = b"SKIPPED relocation: /sys/kernel/btf/vmlinux cannot be read\n";
            io::Write::write_all(&mut io::stderr(), text).expect("standard error");
            return;
        };
        let config = Config::new_zeroed();
        let init = [MapInit { name: RODATA, max_entries: 0, value: config.as_bytes() }];
        for (name, s) in PROGRAMS_OF {
            let (mut ctx, mut data) = (s.context(&init), s.data.to_vec());
            let (bytes, values) = (ctx[0] as usize, [config.as_bytes()]);
            let ctx = &mut ctx.as_mut_bytes()[..bytes];
            let data_of_program = s.data_of(&init, setting.map(OsString::from));
            let mut dry = Dry(Resolver::new(types, data_of_program), due, Vec::new());
            let r =
                machine::run(s.insns, &mut LoaderMemory::new(&mut data, ctx, &values), &mut dry);
            assert!(dry.2.is_empty(), "{name}: {:?}", dry.2);
            assert_eq!(r.expect("it is understood"), 0, "{name}");
        }
    }

    #[test]
    fn nothing_is_left_to_this_kernel() {
        let all = LoaderWork { relocated: true, trimmed: true };
        load_all_dry(None, all);
        load_all_dry(Some("1"), all);
    }

    #[test]
    fn trim_0_leaves_programs_as_they_were_compiled() {
        load_all_dry(Some("0"), LoaderWork { relocated: true, trimmed: false });
    }

    /// The helpers and kernel functions that a program calls.
    fn called(it: &Shipped) -> BTreeSet<String> {
        let mut called = BTreeSet::new();
        for i in it.insns.chunks_exact(8) {
            let number = i32::from_ne_bytes([i[4], i[5], i[6], i[7]]);
            // A call: of a helper, of another function of the program, of the kernel's.
            match (i[0], i[1] >> 4) {
                (0x85, 0) => drop(called.insert(format!("helper {number}"))),
                (0x85, 1) => {}
                (0x85, 2) => {
                    let name = usize::try_from(number - 1).map(|n| &it.functions[n]);
                    called.insert(name.expect("a function").clone());
                }
                (0x85, other) => panic!("a call of kind {other}"),
                _ => {}
            }
        }
        called
    }

    /// `docs/operate/safety.md` lists each helper and kernel function that the shipped programs
    /// call, and what keeps the objects alive that it follows. The test fails if a program calls
    /// one that is not listed, or if a listed one is not called.
    #[test]
    fn programs_call_only_what_docs_safety_lists() {
        let listed: BTreeSet<String> = taskdiag_bpf::SAFETY
            .lines()
            .filter_map(|l| l.strip_prefix("| `")?.split_once("` ("))
            .filter_map(|(name, rest)| match rest.split_once(')')?.0 {
                "kfunc" => Some(name.to_owned()),
                helper => helper.starts_with("helper ").then(|| helper.to_owned()),
            })
            .collect();
        assert!(listed.len() > 5, "the table cannot be parsed: {listed:?}");
        let mut all = BTreeSet::new();
        for (name, s) in PROGRAMS_OF {
            let called = called(&shipped(s));
            assert!(called.contains("helper 113"), "{name}: no program was seen");
            let unlisted: Vec<_> = called.difference(&listed).collect();
            assert!(
                unlisted.is_empty(),
                "{name} calls what docs/operate/safety.md does not list: {unlisted:?}"
            );
            all.extend(called);
        }
        let gone: Vec<_> = listed.difference(&all).collect();
        assert!(gone.is_empty(), "docs/operate/safety.md lists what no program calls: {gone:?}");
    }

    /// The shipped program of a loader, and the targets of its relocations.
    #[derive(Default)]
    struct Shipped {
        types: Vec<u8>,
        functions: Vec<String>,
        insns: Vec<u8>,
        /// The instruction, the struct, and the path of members.
        names: Vec<(usize, String, String)>,
    }

    impl Host for Shipped {
        fn bpf(&mut self, cmd: u32, memory: &mut LoaderMemory<'_>, attr: u64, _: u32) -> i64 {
            let number = |at: u64, len| memory.number(attr + at, len).expect("a number");
            let bytes = |at: u64, len: u64| {
                memory.get(number(at, 8), len as usize).expect("memory of the loader").to_vec()
            };
            match cmd as i32 {
                sys::BTF_LOAD => self.types = bytes(0, number(16, 4)),
                sys::PROG_LOAD => {
                    self.insns = bytes(8, number(4, 4) * 8);
                    let relocations = bytes(128, number(116, 4) * core::RELOCATION_SIZE as u64);
                    let local = Btf::parse(&self.types, &Wanted::new([], [])).expect("types");
                    self.names = core::names(&relocations, &local);
                }
                _ => {}
            }
            100 + i64::from(cmd)
        }
        fn find_type(&mut self, name: &[u8], _: u32) -> i64 {
            self.functions.push(String::from_utf8_lossy(name).into_owned());
            self.functions.len() as i64
        }
        fn close(&mut self, _: u32) {}
    }

    fn shipped(s: &Skeleton) -> Shipped {
        let config = Config::new_zeroed();
        let init = [MapInit { name: RODATA, max_entries: 0, value: config.as_bytes() }];
        let (mut ctx, mut data) = (s.context(&init), s.data.to_vec());
        let (bytes, values) = (ctx[0] as usize, [config.as_bytes()]);
        let ctx = &mut ctx.as_mut_bytes()[..bytes];
        let mut it = Shipped::default();
        let r = machine::run(s.insns, &mut LoaderMemory::new(&mut data, ctx, &values), &mut it);
        assert_eq!(r.expect("it is understood"), 0);
        it
    }

    const PROGRAMS_OF: [(&str, &Skeleton); 4] =
        [("lite", &LITE), ("more", &MORE), ("all", &SNAPSHOT), ("legacy", &LEGACY)];

    /// The errors that `order` finds in the loads of a program, and the number of checks.
    fn order_of(
        s: &Skeleton,
        it: &Shipped,
        insns: &[u8],
        reorders: bool,
    ) -> (Vec<String>, BTreeSet<usize>) {
        let members = it.names.iter().filter(|n| !n.2.is_empty());
        let members: BTreeMap<usize, String> =
            members.map(|(pc, of, path)| (*pc, format!("{of}.{path}"))).collect();
        let member = |pc: usize| members.get(&pc).cloned();
        let first = std::mem::offset_of!(Config, offsets) as i64;
        let entries = offsets::members();
        let offset = |at: i64| {
            let n = usize::try_from(at.checked_sub(first)?).ok()? / 2;
            entries.get(n).map(|(of, path)| format!("{of}.{path}"))
        };
        let number = |name: &str| position(s.names, name).map_or(-1, |n| n as i32);
        let cast = it.functions.iter().position(|f| f == "bpf_rdonly_cast");
        let known = order::InsnFacts {
            member: &member,
            offset: &offset,
            rodata: number(RODATA),
            bss: number(".bss"),
            orders_loads: reorders.then_some(std::mem::offset_of!(Config, orders_loads) as i64),
            cast: cast.map(|n| n as i32 + 1),
        };
        order::check(insns, &known)
    }

    /// See `order` and `docs/operate/safety.md`. The same programs are for all processors.
    #[test]
    fn programs_load_in_the_order_that_docs_safety_states() {
        for (name, s) in PROGRAMS_OF {
            let it = shipped(s);
            for (processor, reorders) in [("x86-64", false), ("another processor", true)] {
                let (wrong, checks) = order_of(s, &it, &it.insns, reorders);
                assert!(wrong.is_empty(), "{name} on {processor}:\n{}", wrong.join("\n"));
                assert!(checks.len() >= 8, "{name}: only {} checks were found", checks.len());
            }
            // This program has everything that the others have, except for the one for older
            // kernels.
            if name != "all" {
                continue;
            }
            // Without one of its checks it would be wrong, unless the check is one of several after
            // the same loads.
            let (_, checks) = order_of(s, &it, &it.insns, false);
            let some: Vec<_> = checks.iter().step_by(2).collect();
            let matters = some.iter().filter(|pc| {
                let mut less = it.insns.clone();
                less[**pc * 8..**pc * 8 + 8].copy_from_slice(&[0x05, 0, 0, 0, 0, 0, 0, 0]);
                !order_of(s, &it, &less, false).0.is_empty()
            });
            let (matters, all) = (matters.count(), some.len());
            assert!(matters * 3 >= all * 2, "{name}: only {matters} of {all} checks matter");
        }
    }

    /// The table of `docs/operate/safety.md` lists each struct that the programs read, and what
    /// keeps it alive.
    #[test]
    fn docs_safety_names_each_struct_that_programs_read() {
        let begin = "## What the loads follow";
        let table = taskdiag_bpf::SAFETY.split_once(begin).expect("the table").1;
        let table = table.split_once("\n## ").expect("an end").0;
        let rows = table.lines().filter_map(|l| l.strip_prefix("| ")?.split_once(" | "));
        let told: BTreeSet<&str> = rows.flat_map(|r| r.0.split('`').skip(1).step_by(2)).collect();
        let mut read: BTreeSet<String> =
            offsets::members().into_iter().map(|(of, _)| of.to_owned()).collect();
        for (_, s) in PROGRAMS_OF {
            read.extend(shipped(s).names.into_iter().map(|n| n.1));
        }
        assert!(read.len() > 60, "{read:?}");
        let lacking: Vec<_> = read.iter().filter(|r| !told.contains(r.as_str())).collect();
        assert!(
            lacking.is_empty(),
            "docs/operate/safety.md does not name what keeps these alive: {lacking:?}"
        );
        let gone: Vec<_> = told.iter().filter(|t| !read.contains(**t)).collect();
        assert!(
            gone.is_empty(),
            "docs/operate/safety.md names fields that no program reads: {gone:?}"
        );
    }

    /// If a newer program did not load, the older one would be used. It gives the same answers,
    /// only more slowly, so no other test would notice.
    #[test]
    fn the_newer_programs_load_where_there_are_open_coded_loops() {
        use super::super::{GROUPS, LoadedProgram, Sizes};
        use crate::request::Request;
        let skip = |why: &str| {
            let text = format!("SKIPPED the newer programs: {why}\n");
            io::Write::write_all(&mut io::stderr(), text.as_bytes()).expect("standard error");
        };
        if kernel().is_none_or(|k| k.function(b"bpf_iter_num_new").is_none()) {
            return skip("the kernel has no open-coded loops, which they need");
        }
        let each = GROUPS.iter().map(taskdiag_wire::Groups::from);
        for groups in each.chain([GROUPS]) {
            for request in [Request::all_threads(groups), Request::one(1, groups)] {
                match LoadedProgram::start(
                    &request,
                    Sizes { chunks: 3, ..Sizes::estimate(&request, 0) },
                    false,
                    false,
                ) {
                    Ok(run) => assert!(!run.legacy, "{groups:?}"),
                    Err((_, e)) if e.raw_os_error() == Some(libc::EPERM) => {
                        return skip("not allowed to");
                    }
                    Err((step, e)) => panic!("{groups:?}: {step}: {e}"),
                }
            }
        }
    }
}
