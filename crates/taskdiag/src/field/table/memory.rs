//! The address space.

use taskdiag_wire::{Group, Groups, Record, Statm};

use super::super::*;

fn sum(
    row: &Row<'_>,
    f: impl FnOnce(Record<'_, Statm>) -> Option<u64>,
    wrap: impl FnOnce(u64) -> Value<'static>,
) -> Value<'static> {
    match row.statm {
        Some(m) => f(m).map_or(Value::UNKNOWN, wrap),
        None => row.missing(Group::Statm),
    }
}

fn pmem(cx: &Context, row: &Row<'_>) -> Value<'static> {
    let total = cx.info.mem_total_bytes;
    if total == 0 && row.statm.is_some() {
        return Value::UNKNOWN;
    }
    let percent = |v| Value::Percent((v as f64 * 100.0 / total as f64).min(99.9));
    sum(row, |r| r.rss_bytes(), percent)
}

/// The bytes of the program's code.
fn code(row: &Row<'_>) -> Result<u64, Value<'static>> {
    let Some(layout) = row.layout else { return Err(row.missing(Group::Layout)) };
    let ends = layout.start_code().zip(layout.end_code());
    let (start, end) = ends.ok_or(Value::UNKNOWN)?;
    end.checked_sub(start).ok_or(Value::UNKNOWN)
}

fn data(_: &Context, row: &Row<'_>) -> Value<'static> {
    match code(row) {
        Ok(code) => sum(row, |m| Some(m.size_bytes()?.saturating_sub(code)), Value::Uint),
        Err(why) => why,
    }
}

macro_rules! mem {
    ($name:literal $header:literal $width:literal $source:literal $what:literal $member:ident
     {$($alias:literal $ah:literal),*}) => {
        row!($name $header $width Right [STATM($member)] Integer Bytes Kib, $source, $what,
            {$($alias $ah),*}, uint!(Statm statm.$member))
    };
}

pub const FIELDS: &[Field] = &[
    mem!("vsz" "VSZ" 6 "/proc/PID/stat 23 or status VmSize" "Virtual size; text in KiB" size_bytes
        {"vsize" "VSZ"}),
    row!("vsz_bytes" "SIZE" 5 Right [STATM(size_bytes)] Integer Bytes Plain, "/proc/PID/stat 23 or status VmSize",
        "Virtual size; text in bytes", {}, uint!(Statm statm.size_bytes)),
    mem!("rss" "RSS" 5
        "/proc/PID/statm 2 or status VmRSS; not stat 24, which leaves out what CPUs hold back since Linux 6.2"
        "Resident memory; text in KiB" rss_bytes {"rssize" "RSS", "rsz" "RSZ"}),
    row!("pmem" "%MEM" 4 Right [STATM(rss_bytes)] Number Percent Percent, "/proc/PID/statm 2 or status VmRSS",
        "Resident memory over the memory of the machine", {"%mem" "%MEM"}, pmem),
    row!("sz" "SZ" 5 Right [STATM(size_bytes)] Integer Bytes Pages, "/proc/PID/stat 23 or status VmSize",
        "Virtual size; text in pages", {}, uint!(Statm statm.size_bytes)),
    row!("size" "SIZE" 5 Right [STATM(data_bytes stack_bytes)] Integer Bytes Kib, "/proc/PID/status VmData+VmStk",
        "Data and stack; text in KiB", {},
        |_, r| sum(r, |m| Some(m.data_bytes()?.saturating_add(m.stack_bytes()?)), Value::Uint)),
    row!("trs" "TRS" 4 Right [LAYOUT] Integer Bytes Kib, "/proc/PID/stat 27-26",
        "Program code, from its first byte to its last; text in KiB",
        {"tsiz" "TSIZ", "trss" "TRSS"}, |_, r| code(r).map_or_else(|why| why, Value::Uint)),
    row!("drs" "DRS" 5 Right [LAYOUT STATM(size_bytes)] Integer Bytes Kib, "/proc/PID/stat 23-27+26",
        "Virtual size without program code; text in KiB", {"dsiz" "DSIZ"}, data),
    row!("stackp" "STACKP" 16 Right [LAYOUT] Text None Hex, "/proc/PID/stat 28",
    "Where the stack of the first thread began", {"start_stack" "STACKP"},
    |_, r| match r.layout.map(|r| r.start_stack()) {
        Some(v) => v.map_or(Value::UNKNOWN, Value::Mask),
        None => r.missing(Group::Layout),
    }),
    mem!("vm_text" "TEXT" 5 "/proc/PID/status VmExe" "Pages with program code; text in KiB"
        text_bytes {}),
    mem!("peak_vsz" "PEAKVSZ" 7 "/proc/PID/status VmPeak" "Peak virtual size; text in KiB"
        peak_size_bytes {}),
    mem!("peak_rss" "PEAKRSS" 7 "/proc/PID/status VmHWM" "Peak resident memory; text in KiB"
        peak_rss_bytes {"hwm" "HWM"}),
    mem!("rss_anon" "ANON" 6 "/proc/PID/statm 2-3 or status RssAnon" "Resident anonymous memory; text in KiB"
        rss_anon_bytes {}),
    mem!("rss_file" "FILE" 6 "/proc/PID/status RssFile" "Resident file mappings; text in KiB"
        rss_file_bytes {}),
    mem!("rss_shmem" "SHMEM" 6 "/proc/PID/status RssShmem" "Resident shared memory; text in KiB"
        rss_shmem_bytes {}),
    mem!("vm_data" "DATA" 6 "/proc/PID/status VmData" "Private data mappings; text in KiB"
        data_bytes {}),
    mem!("vm_stack" "STACK" 5 "/proc/PID/status VmStk" "Stack; text in KiB" stack_bytes {}),
    mem!("vm_lib" "LIB" 5 "/proc/PID/status VmLib" "Text of libraries; text in KiB" lib_bytes {}),
    mem!("locked" "LCK" 5 "/proc/PID/status VmLck" "Locked memory; text in KiB" locked_bytes
        {"vm_lock" "LCK"}),
    mem!("pinned" "PIN" 5 "/proc/PID/status VmPin" "Pinned memory; text in KiB" pinned_bytes {}),
    mem!("pagetables" "PTE" 5 "/proc/PID/status VmPTE" "Page tables; text in KiB"
        page_tables_bytes {}),
    mem!("swap" "SWAP" 5 "/proc/PID/status VmSwap" "Swapped-out anonymous memory; text in KiB"
        swap_bytes {}),
    mem!("hugetlb" "HUGETLB" 7 "/proc/PID/status HugetlbPages"
        "Pages of hugetlbfs, which are not in rss; text in KiB" hugetlb_bytes {}),
];
