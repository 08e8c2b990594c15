//! One memory mapping. Names follow /proc/PID/smaps in lower case; headers follow pmap.

use taskdiag_wire::device::major_minor;
use taskdiag_wire::{
    Entry, Group, Groups, VMA_EXEC, VMA_FLAGS, VMA_READ, VMA_SHARED, VMA_WRITE, Vma, VmaKind,
    VmaStat,
};

use super::super::part::{Map, Part};
use super::super::*;
use crate::files::never_linked;

/// The mapping of the row, or why there is none.
fn map<'a>(row: &Row<'a>) -> Result<Map<'a>, Value<'static>> {
    match row.part {
        Part::Map(map) => Ok(map),
        _ => Err(row.missing(Group::Vma)),
    }
}

fn vma(
    row: &Row<'_>,
    get: impl FnOnce(&Entry<'_, Vma>) -> Option<Value<'static>>,
) -> Value<'static> {
    match map(row) {
        Ok(m) => get(&m.vma).unwrap_or(Value::UNKNOWN),
        Err(missing) => missing,
    }
}

fn stat(row: &Row<'_>, get: impl FnOnce(&Entry<'_, VmaStat>) -> Option<u64>) -> Value<'static> {
    match map(row) {
        Ok(Map { stat: Some(s), .. }) => get(&s).map_or(Value::UNKNOWN, Value::Uint),
        Ok(Map { without_stat: Some(why), .. }) => Value::Missing(Missing::Reason(why)),
        Ok(_) => row.missing(Group::VmaStat),
        Err(missing) => missing,
    }
}

fn size(v: &Entry<'_, Vma>) -> Option<u64> {
    Some(v.end()?.saturating_sub(v.start()?))
}

fn letters(perms: u32, private: u8) -> Short {
    let mut s = Short::default();
    for (bit, letter) in [(VMA_READ, b'r'), (VMA_WRITE, b'w'), (VMA_EXEC, b'x')] {
        s.push(if perms & bit != 0 { letter } else { b'-' });
    }
    s.push(if perms & VMA_SHARED != 0 { b's' } else { private });
    s
}

/// As in pmap, whose fifth character is always `-` today.
fn mode(_: &Context, row: &Row<'_>) -> Value<'static> {
    vma(row, |v| {
        let mut s = letters(v.perms()?, b'-');
        s.push(b'-');
        Some(Value::Short(s))
    })
}

fn device(_: &Context, row: &Row<'_>) -> Value<'static> {
    vma(row, |v| {
        let dev = v.dev()?;
        let (major, minor) = major_minor(dev);
        let mut s = Short::default();
        s.push_hex(major.into(), 2);
        s.push(b':');
        s.push_hex(minor.into(), 2);
        Some(Value::Short(s))
    })
}

impl Map<'_> {
    /// The kind of mapping. `None`: not known.
    pub fn kind(&self) -> Option<VmaKind> {
        VmaKind::from_number(self.vma.kind()?)
    }
    /// Was its file deleted, or replaced by a newer one? `None`: not known.
    pub fn is_deleted(&self) -> Option<bool> {
        if self.kind()? != VmaKind::File {
            return Some(false);
        }
        let name = self.name?;
        Some(name.deleted && !never_linked(name.bytes))
    }
}

/// The last field of the line in /proc/PID/maps, or `[anon]` if it is empty.
fn mapping<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    let m = match map(row) {
        Ok(m) => m,
        Err(missing) => return missing,
    };
    match (m.kind(), m.name) {
        (Some(VmaKind::Anon), _) => Value::bytes(b"[anon]"),
        (Some(VmaKind::Heap), _) => Value::bytes(b"[heap]"),
        (Some(VmaKind::Stack), _) => Value::bytes(b"[stack]"),
        (Some(VmaKind::Vdso), _) => Value::bytes(b"[vdso]"),
        (Some(VmaKind::Named), Some(n)) => {
            Value::Bytes { data: [b"[anon:", n.bytes, b"]"].concat().into(), cut: n.cut }
        }
        (Some(VmaKind::File | VmaKind::Special), Some(n)) if n.deleted => {
            Value::Bytes { data: [n.bytes, b" (deleted)"].concat().into(), cut: n.cut }
        }
        (Some(VmaKind::File | VmaKind::Special), Some(n)) => {
            Value::Bytes { data: n.bytes.into(), cut: n.cut }
        }
        _ => Value::UNKNOWN,
    }
}

fn path<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    match map(row) {
        Err(missing) => missing,
        Ok(m) => match (m.kind(), m.name) {
            (Some(VmaKind::File), Some(n)) => Value::Bytes { data: n.bytes.into(), cut: n.cut },
            (Some(VmaKind::File), None) | (None, _) => Value::UNKNOWN,
            (Some(_), _) => Value::ABSENT,
        },
    }
}

fn deleted(_: &Context, row: &Row<'_>) -> Value<'static> {
    match map(row) {
        Ok(m) => m.is_deleted().map_or(Value::UNKNOWN, Value::Bool),
        Err(missing) => missing,
    }
}

fn kind(_: &Context, row: &Row<'_>) -> Value<'static> {
    match map(row) {
        Ok(m) => m.kind().map_or(Value::UNKNOWN, |k| Value::Word(k.name())),
        Err(missing) => missing,
    }
}

/// The letters of VmFlags, except for the four that show which permissions could be set (mr, mw,
/// me, ms).
fn vmflags(_: &Context, row: &Row<'_>) -> Value<'static> {
    let m = match map(row) {
        Ok(m) => m,
        Err(missing) => return missing,
    };
    let (Some(perms), Some(flags)) = (m.vma.perms(), m.vma.flags()) else { return Value::UNKNOWN };
    let set = [(VMA_READ, "rd"), (VMA_WRITE, "wr"), (VMA_EXEC, "ex"), (VMA_SHARED, "sh")];
    let first = set.iter().filter(|(bit, _)| perms & bit != 0).map(|(_, letters)| *letters);
    let rest = VMA_FLAGS.iter().filter(|f| flags & f.bit != 0).map(|f| f.letters);
    // Enough for most.
    let mut text = Vec::with_capacity(40);
    for word in first.chain(rest) {
        text.extend_from_slice(word.as_bytes());
        text.push(b' ');
    }
    match text.pop() {
        None => Value::ABSENT,
        Some(_) => Value::Bytes { data: text.into(), cut: false },
    }
}

macro_rules! vma {
    ($member:ident, $wrap:expr) => {
        |_, row| vma(row, |v| v.$member().map($wrap))
    };
}

/// A row of VMA_STAT: name, header, name in smaps, description, getter.
macro_rules! bytes {
    ($name:literal $header:literal $smaps:literal $what:literal $get:expr) => {
        row!($name $header 7 Right [VMA VMA_STAT] Integer Bytes Kib,
            $smaps, $what, {}, |_, row| stat(row, $get))
    };
}

pub const FIELDS: &[Field] = &[
    row!("address" "Address" 16 Left [VMA] Text None Hex, "/proc/PID/maps",
        "First address", {"start" "Start"}, vma!(start, Value::Mask)),
    row!("end" "End" 16 Left [VMA] Text None Hex, "/proc/PID/maps",
        "First address after the mapping", {}, vma!(end, Value::Mask)),
    row!("size" "Size" 7 Right [VMA] Integer Bytes Kib, "/proc/PID/smaps Size",
        "Length of its addresses; text in KiB", {"kbytes" "Kbytes"},
        |_, row| vma(row, |v| size(v).map(Value::Uint))),
    row!("mode" "Mode" 5 Left [VMA] Text None Plain, "/proc/PID/maps",
        "May be read, written, executed; s shared; in the form of pmap", {}, mode),
    row!("perms" "Perm" 4 Left [VMA] Text None Plain, "/proc/PID/maps",
        "May be read, written, executed; p private, s shared", {"perm" "Perm"},
        vma!(perms, |p| Value::Short(letters(p, b'p')))),
    row!("offset" "Offset" 8 Right [VMA] Integer Bytes Hex8, "/proc/PID/maps",
        "Where in the file it begins; text is hexadecimal", {}, vma!(offset_bytes, Value::Uint)),
    row!("device" "Device" 6 Right [VMA] Text None Plain, "/proc/PID/maps",
        "Device of the file system, major:minor in hexadecimal; stat(2) has another one on btrfs and \
         on some overlays", {"dev" "Device"}, device),
    row!("inode" "Inode" 7 Right [VMA] Integer None Plain, "/proc/PID/maps",
        "Inode of the file; 0: none", {}, vma!(inode, Value::Uint)),
    row!("kind" "Kind" 7 Left [VMA] Text None Plain, "/proc/PID/maps",
        "Kind: anon, file, heap, stack, vdso, named, special", {}, kind),
    row!("mapping" "Mapping" 7 Left [VMA] Text None Plain, "/proc/PID/maps",
        "The file, or the kernel's name for the mapping; [anon] if it has none", {"map" "Mapping"},
        mapping),
    row!("path" "Path" 20 Left [VMA] Text None Plain, "/proc/PID/maps",
        "The file alone", {"file" "File"}, path),
    row!("deleted" "Deleted" 7 Right [VMA] Boolean None Plain, "/proc/PID/maps",
        "The file has been deleted or replaced (not: memfd, System V and other unnamed memory)",
        {}, deleted),
    row!("shared_with" "Shared" 7 Right [VMA] Integer None Pid, "kcmp(2), task_struct.mm",
    "The process of the answer that shares this memory", {}, |cx, row| match map(row) {
        Ok(m) => m.shared_with.map_or(cx.shared_with_nobody(), |pid| Value::Uint(u64::from(pid))),
        Err(missing) => missing,
    }),
    row!("vmflags" "VmFlags" 14 Left [VMA] Text None Plain, "/proc/PID/smaps VmFlags",
        "Flags of the mapping, except for mr, mw, me, ms", {}, vmflags),
    bytes!("rss" "Rss" "/proc/PID/smaps Rss" "Resident; text in KiB" |s| s.rss_bytes()),
    bytes!("pss" "Pss" "/proc/PID/smaps Pss"
        "Resident, each page divided by the number of its users; text in KiB" |s| s.pss_bytes()),
    row!("uss" "Uss" 7 Right [VMA VMA_STAT] Integer Bytes Kib,
    "/proc/PID/smaps Private_Clean+Private_Dirty",
    "Resident, in this process only; text in KiB", {"private" "Private"},
    |_, row| stat(row, |s| {
        Some(s.private_clean_bytes()?.saturating_add(s.private_dirty_bytes()?))
    })),
    row!("dirty" "Dirty" 7 Right [VMA VMA_STAT] Integer Bytes Kib,
    "/proc/PID/smaps Shared_Dirty+Private_Dirty",
    "Resident and written to; text in KiB", {},
    |_, row| stat(row, |s| {
        Some(s.shared_dirty_bytes()?.saturating_add(s.private_dirty_bytes()?))
    })),
    bytes!("pss_dirty" "Pss_Dirty" "/proc/PID/smaps Pss_Dirty" "The dirty part of pss"
        |s| s.pss_dirty_bytes()),
    bytes!("pss_anon" "Pss_Anon" "/proc/PID/smaps_rollup Pss_Anon"
        "The anonymous part of pss" |s| s.pss_anon_bytes()),
    bytes!("pss_file" "Pss_File" "/proc/PID/smaps_rollup Pss_File"
        "The part of pss in pages of files" |s| s.pss_file_bytes()),
    bytes!("pss_shmem" "Pss_Shmem" "/proc/PID/smaps_rollup Pss_Shmem"
        "The part of pss that is shared memory" |s| s.pss_shmem_bytes()),
    bytes!("shared_clean" "Shared_Clean" "/proc/PID/smaps Shared_Clean"
        "Resident, in several processes, not written to" |s| s.shared_clean_bytes()),
    bytes!("shared_dirty" "Shared_Dirty" "/proc/PID/smaps Shared_Dirty"
        "Resident, in several processes, written to" |s| s.shared_dirty_bytes()),
    bytes!("private_clean" "Private_Clean" "/proc/PID/smaps Private_Clean"
        "Resident, in this process only, not written to" |s| s.private_clean_bytes()),
    bytes!("private_dirty" "Private_Dirty" "/proc/PID/smaps Private_Dirty"
        "Resident, in this process only, written to" |s| s.private_dirty_bytes()),
    bytes!("referenced" "Referenced" "/proc/PID/smaps Referenced"
        "Resident and used recently" |s| s.referenced_bytes()),
    bytes!("anonymous" "Anonymous" "/proc/PID/smaps Anonymous"
        "Resident anonymous memory" |s| s.anonymous_bytes()),
    bytes!("ksm" "KSM" "/proc/PID/smaps KSM" "Merged with equal pages" |s| s.ksm_bytes()),
    bytes!("lazyfree" "LazyFree" "/proc/PID/smaps LazyFree"
        "Released by madvise(MADV_FREE), but still there" |s| s.lazyfree_bytes()),
    bytes!("anon_huge" "AnonHugePages" "/proc/PID/smaps AnonHugePages"
        "Anonymous memory in huge pages" |s| s.anon_huge_bytes()),
    bytes!("shmem_huge" "ShmemPmdMapped" "/proc/PID/smaps ShmemPmdMapped"
        "Shared memory in huge pages" |s| s.shmem_huge_bytes()),
    bytes!("file_huge" "FilePmdMapped" "/proc/PID/smaps FilePmdMapped"
        "Pages of files in huge pages" |s| s.file_huge_bytes()),
    bytes!("shared_hugetlb" "Shared_Hugetlb" "/proc/PID/smaps Shared_Hugetlb"
        "Pages of hugetlbfs, in several processes" |s| s.shared_hugetlb_bytes()),
    bytes!("private_hugetlb" "Private_Hugetlb" "/proc/PID/smaps Private_Hugetlb"
        "Pages of hugetlbfs, in this process only" |s| s.private_hugetlb_bytes()),
    bytes!("swap" "Swap" "/proc/PID/smaps Swap" "Swapped out; text in KiB" |s| s.swap_bytes()),
    bytes!("swap_pss" "SwapPss" "/proc/PID/smaps SwapPss"
        "Swapped out, each page divided by the number of its users" |s| s.swap_pss_bytes()),
    bytes!("locked" "Locked" "/proc/PID/smaps Locked"
        "Locked into memory, each page divided by the number of its users" |s| s.locked_bytes()),
    row!("thp_eligible" "THPeligible" 11 Right [VMA VMA_STAT] Boolean None Plain,
    "/proc/PID/smaps THPeligible", "It may have huge pages", {},
    |_, row| match stat(row, |s| s.thp_eligible()) {
        Value::Uint(v) => Value::Bool(v != 0),
        missing => missing,
    }),
    row!("protection_key" "ProtectionKey" 13 Right [VMA VMA_STAT] Integer None Plain,
        "/proc/PID/smaps ProtectionKey", "Protection key of `pkeys(7)`, 0: none; only on processors with such keys", {},
        |_, row| stat(row, |s| s.protection_key())),
];
