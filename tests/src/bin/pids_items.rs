//! Calls the functions of libproc2 about processes and prints every item of every task, for the
//! test `dropin`.
//!
//! The programs of procps request only some of the items, and show many of them rounded. The
//! library, and the drop-in in front of it, are in LD_PRELOAD, so that this program is the same for
//! both binary interfaces.
//!
//! usage: `pids_items` 0|1 \[ITEM...\], with the last digit of the soname, and names as in
//! `<libproc2/pids.h>` (by default all whose values do not change)

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;
use std::process::ExitCode;

/// The items of libproc2.so.1, in its order. `/s` is a string, `/v` a list of strings, and `+` is
/// not in libproc2.so.0.
const ITEMS: &str = "\
    noop extra ADDR_CODE_END ADDR_CODE_START ADDR_CURR_EIP ADDR_CURR_ESP ADDR_STACK_START AUTOGRP_ID AUTOGRP_NICE \
    CAPS_PERMITTED/s+ CGNAME/s CGROUP/s CGROUP_V/v CMD/s CMDLINE/s CMDLINE_V/v DOCKER_ID/s+ DOCKER_ID_64/s+ \
    ENVIRON/s ENVIRON_V/v EXE/s EXIT_SIGNAL FLAGS FLT_MAJ FLT_MAJ_C FLT_MAJ_DELTA FLT_MIN FLT_MIN_C FLT_MIN_DELTA \
    ID_EGID ID_EGROUP/s ID_EUID ID_EUSER/s ID_FGID ID_FGROUP/s ID_FUID ID_FUSER/s ID_LOGIN ID_PGRP ID_PID ID_PPID \
    ID_RGID ID_RGROUP/s ID_RUID ID_RUSER/s ID_SESSION ID_SGID ID_SGROUP/s ID_SUID ID_SUSER/s ID_TGID ID_TID ID_TPGID \
    IO_READ_BYTES IO_READ_CHARS IO_READ_OPS IO_WRITE_BYTES IO_WRITE_CBYTES IO_WRITE_CHARS IO_WRITE_OPS LXCNAME/s \
    MEM_CODE MEM_CODE_PGS MEM_DATA MEM_DATA_PGS MEM_RES MEM_RES_PGS MEM_SHR MEM_SHR_PGS MEM_VIRT MEM_VIRT_PGS NICE \
    NLWP NS_CGROUP NS_IPC NS_MNT NS_NET NS_PID NS_TIME NS_USER NS_UTS OOM_ADJ OOM_SCORE OPEN_FILES+ PRIORITY \
    PRIORITY_RT PROCESSOR PROCESSOR_NODE RSS RSS_RLIM SCHED_CLASS SCHED_CLASSSTR/s+ SD_MACH/s SD_OUID/s SD_SEAT/s \
    SD_SESS/s SD_SLICE/s SD_UNIT/s SD_UUNIT/s SIGBLOCKED/s SIGCATCH/s SIGIGNORE/s SIGNALS/s SIGPENDING/s \
    SMAP_ANONYMOUS SMAP_HUGE_ANON SMAP_HUGE_FILE SMAP_HUGE_SHMEM SMAP_HUGE_TLBPRV SMAP_HUGE_TLBSHR SMAP_LAZY_FREE \
    SMAP_LOCKED SMAP_PRV_CLEAN SMAP_PRV_DIRTY SMAP_PRV_TOTAL SMAP_PSS SMAP_PSS_ANON SMAP_PSS_FILE SMAP_PSS_SHMEM \
    SMAP_REFERENCED SMAP_RSS SMAP_SHR_CLEAN SMAP_SHR_DIRTY SMAP_SWAP SMAP_SWAP_PSS STATE SUPGIDS/s SUPGROUPS/s \
    TICS_ALL TICS_ALL_C TICS_ALL_DELTA TICS_BEGAN TICS_BLKIO TICS_GUEST TICS_GUEST_C TICS_SYSTEM TICS_SYSTEM_C \
    TICS_USER TICS_USER_C TIME_ALL TIME_ALL_C TIME_ELAPSED TIME_START TTY TTY_NAME/s TTY_NUMBER/s UTILIZATION \
    UTILIZATION_C VM_DATA VM_EXE VM_LIB VM_RSS VM_RSS_ANON VM_RSS_FILE VM_RSS_LOCKED VM_RSS_SHARED VM_SIZE VM_STACK \
    VM_SWAP VM_USED VSIZE_BYTES WCHAN_NAME/s";

/// Values that change from moment to moment, or with the pages of the C library that this program
/// itself uses. `RSS` comes from `stat`. Newer kernels count it less exactly there than in `statm`,
/// which the drop-in uses. No program of procps prints it.
const MOVING: [&str; 14] = [
    "RSS",
    "TIME_ELAPSED",
    "UTILIZATION",
    "UTILIZATION_C",
    "SMAP_PRV_CLEAN",
    "SMAP_PRV_DIRTY",
    "SMAP_PRV_TOTAL",
    "SMAP_PSS",
    "SMAP_PSS_ANON",
    "SMAP_PSS_FILE",
    "SMAP_PSS_SHMEM",
    "SMAP_SHR_CLEAN",
    "SMAP_SHR_DIRTY",
    "SMAP_SWAP_PSS",
];

const MODES: [(c_int, &str); 2] = [(0, "processes"), (1, "threads")];
const DESCENDING: c_int = -1;

#[repr(C)]
struct PidsResult {
    item: c_int,
    value: u64,
}

#[repr(C)]
struct Stack {
    head: *const PidsResult,
}

#[repr(C)]
struct Fetch {
    counts: *const c_int,
    stacks: *mut *mut Stack,
}

/// The functions, as the dynamic linker gives them to any program.
struct Library {
    new: unsafe extern "C" fn(*mut *mut c_void, *const c_int, c_int) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, c_int) -> *mut Stack,
    reap: unsafe extern "C" fn(*mut c_void, c_int) -> *mut Fetch,
    sort:
        unsafe extern "C" fn(*mut c_void, *mut *mut Stack, c_int, c_int, c_int) -> *mut *mut Stack,
    unref: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
}

impl Library {
    fn find() -> Option<Library> {
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the name is a string.
                let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, $name.as_ptr()) };
                if at.is_null() {
                    return None;
                }
                #[expect(
                    clippy::missing_transmute_annotations,
                    reason = "the type is that of the member"
                )]
                // SAFETY: in the header, the function of this name has the type of the member.
                unsafe {
                    std::mem::transmute(at)
                }
            }};
        }
        Some(Library {
            new: function!(c"procps_pids_new"),
            get: function!(c"procps_pids_get"),
            reap: function!(c"procps_pids_reap"),
            sort: function!(c"procps_pids_sort"),
            unref: function!(c"procps_pids_unref"),
        })
    }
}

/// An item: its number, name and kind.
struct Item {
    number: c_int,
    name: &'static str,
    kind: Option<char>,
}

/// The items of an interface.
fn items(is_new: bool) -> Vec<Item> {
    let words = ITEMS.split_whitespace().filter(|w| is_new || !w.ends_with('+'));
    let item = |(number, word): (c_int, &'static str)| {
        let word = word.trim_end_matches('+');
        let (name, kind) =
            word.split_once('/').map_or((word, None), |(n, k)| (n, k.chars().next()));
        Item { number, name, kind }
    };
    (0..).zip(words).map(item).collect()
}

/// A string that may be NULL, without line feeds.
///
/// # Safety
/// It is a string.
unsafe fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::from("NULL");
    }
    // SAFETY: the caller promises it.
    unsafe { CStr::from_ptr(at) }.to_bytes().escape_ascii().to_string()
}

/// Prints a task, a line for each item.
///
/// # Safety
/// The stack has the results of these items and the mark of the end.
unsafe fn print(out: &mut Vec<u8>, stack: *const Stack, items: &[&Item]) {
    // SAFETY: the caller promises it.
    let row = unsafe { std::slice::from_raw_parts((*stack).head, items.len() + 1) };
    let id = row[0].value;
    for (item, result) in items.iter().zip(row) {
        let value = match item.kind {
            None => format!("{:#x}", result.value),
            // SAFETY: it is a string.
            Some('s') => unsafe { text(result.value as *const c_char) },
            Some(_) => {
                let mut at = result.value as *const *const c_char;
                let mut parts = Vec::new();
                // SAFETY: it is a list of strings, which ends with NULL.
                while let Some(part) = unsafe { at.as_ref() }.filter(|p| !p.is_null()) {
                    // SAFETY: as above.
                    parts.push(unsafe { text(*part) });
                    at = at.wrapping_add(1);
                }
                format!("{parts:?}")
            }
        };
        let _ = writeln!(out, "{id} {} {} {value}", result.item, item.name);
    }
    let _ = writeln!(out, "{id} {} end", row[items.len()].item);
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let abi = arguments.next().unwrap_or_default();
    if !["0", "1"].contains(&abi.as_str()) {
        eprintln!("usage: pids_items 0|1 [ITEM...]");
        return ExitCode::from(2);
    }
    let Some(library) = Library::find() else {
        eprintln!("pids_items: libproc2 is not in LD_PRELOAD");
        return ExitCode::from(2);
    };
    // The library asks the locale which characters can be shown. SAFETY: an empty string, and there
    // is no other thread.
    unsafe { libc::setlocale(libc::LC_ALL, c"".as_ptr()) };
    let known = items(abi == "1");
    let names: Vec<String> = arguments.collect();
    let is_wanted = |i: &&Item| match names.is_empty() {
        true => !MOVING.contains(&i.name),
        false => names.iter().any(|n| n == i.name),
    };
    // The first one says which task it is.
    let first = known.iter().filter(|i| i.name == "ID_TID");
    let wanted: Vec<&Item> = first.chain(known.iter().filter(is_wanted)).collect();
    let numbers: Vec<c_int> = wanted.iter().map(|i| i.number).collect();
    let mut out = Vec::new();
    for (mode, name) in MODES {
        let mut info = std::ptr::null_mut();
        // SAFETY: the array has this many numbers.
        let made = unsafe { (library.new)(&mut info, numbers.as_ptr(), numbers.len() as c_int) };
        let _ = writeln!(out, "new: {made}");
        if made < 0 {
            break;
        }
        // The second answer has differences to the first.
        for _ in 0..2 {
            // SAFETY: the context is ours.
            let Some(fetch) = (unsafe { (library.reap)(info, mode).as_ref() }) else {
                let _ = writeln!(out, "reap {name}: NULL");
                continue;
            };
            let counts = if abi == "1" { 7 } else { 6 };
            // SAFETY: the header has this many numbers there.
            let counts = unsafe { std::slice::from_raw_parts(fetch.counts, counts) };
            let _ = writeln!(out, "reap {name}: {counts:?}");
            // SAFETY: the array has as many stacks as were counted, and their items include the
            // first one.
            let sorted =
                unsafe { (library.sort)(info, fetch.stacks, counts[0], numbers[0], DESCENDING) };
            let _ = writeln!(out, "sorted: {}", !sorted.is_null());
            for n in 0..counts[0] as usize {
                // SAFETY: as above.
                unsafe { print(&mut out, *fetch.stacks.add(n), &wanted) };
            }
        }
        let _ = writeln!(out, "get {name}");
        // SAFETY: the context is ours, and each stack is valid until the next call.
        while let Some(stack) = unsafe { (library.get)(info, mode).as_ref() } {
            // SAFETY: as above.
            unsafe { print(&mut out, stack, &wanted) };
        }
        // SAFETY: it is not used any more.
        unsafe { (library.unref)(&mut info) };
    }
    let _ = std::io::stdout().write_all(&out);
    ExitCode::SUCCESS
}
