//! `taskdiag --as pmap`: memory mappings in the form of procps `pmap`, byte by byte.
//!
//! `taskdiag maps` shows more, for more processes, and in other forms. This form is for people and
//! scripts that know pmap.

use std::io::Write as _;

use taskdiag::field::{self, Context, Field, MAPS, Map, Missing, Part, Row, TASKS, Value};
use taskdiag::wire::VmaKind;
use taskdiag::{Choice, Groups, Reason, Request, Snapshot, query_with};

use crate::args::pmap::{PmapArgs, PmapView};
use crate::exit::Exit;
use crate::output::{plain, sink};

/// pmap's exit code if a process does not exist.
const NOT_THERE: u8 = 42;

/// Run it.
pub fn run(args: &PmapArgs) -> Result<(), Exit> {
    if let Some(text) = &args.instead {
        return Ok(sink::write_all(text.as_bytes())?);
    }
    let stat = match args.view {
        PmapView::Plain | PmapView::Device => Groups::NONE,
        _ => Groups::VMA_STAT,
    };
    let groups = Groups::BASE | Groups::CMDLINE | Groups::VMA | stat;
    let mut code = 0;
    for pid in &args.pids {
        let snapshot = match query_with(&Request::one(*pid, groups), Choice::default()) {
            Err(taskdiag::Error::NoSuchProcess(_)) => {
                code |= NOT_THERE;
                continue;
            }
            other => other?,
        };
        let mut out = Vec::new();
        code |= u8::from(!process(&mut out, args, &snapshot));
        sink::write_all(&out)?;
    }
    if code == 0 { Ok(()) } else { Err(Exit::Code(code)) }
}

/// Writes one process. Returns false if its mappings cannot be read.
fn process(out: &mut Vec<u8>, args: &PmapArgs, snapshot: &Snapshot) -> bool {
    let Some(task) = snapshot.tasks().next() else { return false };
    let cx = Context::of(snapshot, false);
    let row = Row::new(task);
    field::write_uint(out, task.tgid().into());
    out.extend_from_slice(b":   ");
    let title = TASKS.find("args").expect("a field of the table").field;
    plain::text(out, &cx, title.text, Some(&row), &(title.get)(&cx, &row));
    out.push(b'\n');
    let there = match row.view.reason(taskdiag::Group::Vma) {
        None | Some(Reason::Absent | Reason::Vanished) => true,
        Some(_) => false,
    };
    if there {
        match args.view {
            PmapView::More | PmapView::Everything => everything(out, args, &cx, &row),
            _ => lines(out, args, &row),
        }
    }
    there
}

/// Text in which bytes that are not printable ASCII become `?`. A newline becomes the kernel's
/// escape for it.
fn ascii(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for b in bytes {
        match b {
            b'\n' => out.push_str("\\012"),
            0x20..=0x7e => out.push(char::from(*b)),
            _ => out.push('?'),
        }
    }
    out
}

/// The name at the end of the line in /proc/PID/maps.
fn name(map: &Map<'_>) -> String {
    let text = |n: &taskdiag::files::PathName<'_>| {
        let deleted = if n.deleted { " (deleted)" } else { "" };
        ascii(n.bytes) + deleted
    };
    match (map.kind(), &map.name) {
        (Some(VmaKind::Heap), _) => String::from("[heap]"),
        (Some(VmaKind::Stack), _) => String::from("[stack]"),
        (Some(VmaKind::Vdso), _) => String::from("[vdso]"),
        (Some(VmaKind::Named), Some(n)) => format!("[anon:{}]", ascii(n.bytes)),
        (_, Some(n)) => text(n),
        _ => String::new(),
    }
}

fn base(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some((_, "")) => "/",
        Some((_, base)) => base,
        None => name,
    }
}

/// The last column of the views that do not have smaps' names.
fn mapping(map: &Map<'_>, args: &PmapArgs) -> String {
    let name = name(map);
    if map.vma.dev() == Some(0) || !name.contains('/') {
        if let (true, false, Some(begin)) =
            (args.kernel_names && name.ends_with(']'), name.contains('/'), name.find('['))
        {
            return name[begin..].to_owned();
        }
        return match map.kind() {
            Some(VmaKind::Stack) => String::from("  [ stack ]"),
            _ if name.contains('/') => shown(&name, args).to_owned(),
            _ => String::from("  [ anon ]"),
        };
    }
    if let (true, Some(inode)) = (name.starts_with("/SYSV"), map.vma.inode()) {
        return format!("  [ shmid=0x{inode:x} ]");
    }
    shown(&name, args).to_owned()
}

fn shown<'a>(name: &'a str, args: &PmapArgs) -> &'a str {
    match args.paths {
        true => name,
        false => base(name),
    }
}

/// Sums in bytes.
#[derive(Default)]
struct Totals {
    all: u64,
    private_writable: u64,
    shared: u64,
    rss: u64,
    dirty: u64,
}

fn mode(map: &Map<'_>) -> [u8; 5] {
    use taskdiag::wire::{VMA_EXEC, VMA_READ, VMA_SHARED, VMA_WRITE};
    let perms = map.vma.perms().unwrap_or(0);
    let letter = |bit, letter| if perms & bit != 0 { letter } else { b'-' };
    [
        letter(VMA_READ, b'r'),
        letter(VMA_WRITE, b'w'),
        letter(VMA_EXEC, b'x'),
        letter(VMA_SHARED, b's'),
        b'-',
    ]
}

fn is_wanted(map: &Map<'_>, args: &PmapArgs) -> bool {
    let (start, end) = (map.vma.start().unwrap_or(0), map.vma.end().unwrap_or(0));
    end.wrapping_sub(1) >= args.range.0 && start <= args.range.1
}

/// Writes the views that have a line of text for each mapping.
fn lines(out: &mut Vec<u8>, args: &PmapArgs, row: &Row<'_>) {
    let mut sums = Totals::default();
    if !args.quiet {
        out.extend_from_slice(match args.view {
            PmapView::Extended => b"Address           Kbytes     RSS   Dirty Mode  Mapping\n",
            PmapView::Device => {
                b"Address           Kbytes Mode  Offset           Device    Mapping\n".as_slice()
            }
            _ => b"",
        });
    }
    let mut line = |row: &Row<'_>| {
        let Part::Map(map) = &row.part else { return Ok(()) };
        if !is_wanted(map, args) {
            return Ok(());
        }
        let (start, end) = (map.vma.start().unwrap_or(0), map.vma.end().unwrap_or(0));
        let size = end.saturating_sub(start);
        let mode = mode(map);
        sums.all += size;
        match (mode[3], mode[1]) {
            (b's', _) => sums.shared += size,
            (_, b'w') => sums.private_writable += size,
            _ => {}
        }
        let (kib, name) = (size / 1024, mapping(map, args));
        let mode = std::str::from_utf8(&mode).unwrap_or("-----");
        // A write into memory does not fail.
        let _ = match args.view {
            PmapView::Extended => {
                let (rss, dirty) = map.stat.as_ref().map_or((0, 0), |s| {
                    let dirty =
                        s.shared_dirty_bytes().unwrap_or(0) + s.private_dirty_bytes().unwrap_or(0);
                    (s.rss_bytes().unwrap_or(0), dirty)
                });
                sums.rss += rss;
                sums.dirty += dirty;
                writeln!(
                    out,
                    "{start:016x} {kib:>7} {:>7} {:>7} {mode} {name}",
                    rss / 1024,
                    dirty / 1024
                )
            }
            PmapView::Device => {
                let dev = map.vma.dev().unwrap_or(0);
                let (major, minor) = taskdiag::files::major_minor(dev);
                let offset = map.vma.offset_bytes().unwrap_or(0);
                writeln!(
                    out,
                    "{start:016x} {kib:>7} {mode} {offset:016x} {major:03x}:{minor:05x} {name}"
                )
            }
            _ => writeln!(out, "{start:016x} {kib:>6}K {mode} {name}"),
        };
        Ok::<(), ()>(())
    };
    let _ = row.each_map(&mut line);
    if args.quiet {
        return;
    }
    let kib = |bytes: u64| bytes / 1024;
    let _ = match args.view {
        PmapView::Extended => writeln!(
            out,
            "---------------- ------- ------- ------- \ntotal kB         {:>7} {:>7} {:>7}",
            kib(sums.all),
            kib(sums.rss),
            kib(sums.dirty)
        ),
        PmapView::Device => writeln!(
            out,
            "mapped: {}K    writeable/private: {}K    shared: {}K",
            kib(sums.all),
            kib(sums.private_writable),
            kib(sums.shared)
        ),
        _ => writeln!(out, " total {:>16}K", kib(sums.all)),
    };
}

/// Names in smaps, in its order, with the column that has the value, and whether `-X` shows it.
const SMAPS: &[(&str, &str, bool)] = &[
    ("Size", "size", true),
    ("KernelPageSize", "page size", false),
    ("MMUPageSize", "page size", false),
    ("Rss", "rss", true),
    ("Pss", "pss", true),
    ("Pss_Dirty", "pss_dirty", true),
    ("Shared_Clean", "shared_clean", false),
    ("Shared_Dirty", "shared_dirty", false),
    ("Private_Clean", "private_clean", false),
    ("Private_Dirty", "private_dirty", false),
    ("Referenced", "referenced", true),
    ("Anonymous", "anonymous", true),
    ("KSM", "ksm", true),
    ("LazyFree", "lazyfree", true),
    ("AnonHugePages", "anon_huge", false),
    ("ShmemPmdMapped", "shmem_huge", true),
    ("FilePmdMapped", "file_huge", true),
    ("Shared_Hugetlb", "shared_hugetlb", true),
    ("Private_Hugetlb", "private_hugetlb", true),
    ("Swap", "swap", true),
    ("SwapPss", "swap_pss", true),
    ("Locked", "locked", true),
    ("THPeligible", "thp_eligible", true),
    ("ProtectionKey", "protection_key", true),
];

/// A column of smaps.
struct Detail {
    header: &'static str,
    /// The field, or `None` for the size of a page.
    field: Option<&'static Field>,
    width: usize,
    total: u64,
}

impl Detail {
    /// The number in smaps.
    fn value(&self, cx: &Context, row: &Row<'_>) -> Result<u64, Missing> {
        let Some(field) = self.field else { return Ok(page_kib(cx, row)) };
        match (field.get)(cx, row) {
            Value::Uint(v) if field.text == field::TextForm::Kib => Ok(v / 1024),
            Value::Uint(v) => Ok(v),
            Value::Bool(b) => Ok(b.into()),
            other => Err(other.missing().unwrap_or(Missing::NotAsked)),
        }
    }
}

/// The size of a page in KiB. It is not read for each mapping: this is the machine's, which is
/// right except for hugetlbfs.
fn page_kib(cx: &Context, _: &Row<'_>) -> u64 {
    u64::from(cx.info.page_size) / 1024
}

fn cell(out: &mut Vec<u8>, text: &str, width: usize) {
    out.resize(out.len() + width.saturating_sub(text.chars().count()), b' ');
    out.extend_from_slice(text.as_bytes());
}

/// The cells of a mapping before and after those of smaps.
fn around(cx: &Context, row: &Row<'_>, args: &PmapArgs) -> ([String; 5], String, String) {
    let text = |name: &str| {
        let field = MAPS.find(name).expect("a field of the table").field;
        let mut out = Vec::new();
        field::text(&mut out, cx, field.text, Some(row), &(field.get)(cx, row));
        String::from_utf8_lossy(&out).into_owned()
    };
    let Part::Map(map) = &row.part else { return Default::default() };
    let start = format!("{:08x}", map.vma.start().unwrap_or(0));
    let name = name(map);
    let head = [start, text("perms"), text("offset"), text("device"), text("inode")];
    // Names are cut to the length that pmap reads.
    let name: String = name.chars().take(127).collect();
    (head, text("vmflags"), shown(&name, args).to_owned())
}

/// Writes the columns of smaps, each as wide as its content.
fn everything(out: &mut Vec<u8>, args: &PmapArgs, cx: &Context, row: &Row<'_>) {
    const HEADS: [&str; 5] = ["Address", "Perm", "Offset", "Device", "Inode"];
    let all = args.view == PmapView::Everything;
    let header_width = |text: &str| if args.quiet { 0 } else { text.len() };
    let mut details: Vec<Detail> = SMAPS
        .iter()
        .filter(|(_, _, always)| all || *always)
        .map(|(header, name, _)| {
            let field = MAPS.find(name).map(|n| n.field);
            Detail { header, field, width: header_width(header), total: 0 }
        })
        .collect();
    let mut widths = HEADS.map(header_width);
    let mut flags_width = header_width("VmFlags");
    let mut any = false;
    let _ = row.each_map(|row| {
        if !std::mem::replace(&mut any, true) {
            // Leave out the values that this kernel's smaps does not have.
            let unsupported = Err(Missing::Reason(Reason::Unsupported));
            details.retain(|d| d.value(cx, row) != unsupported);
        }
        let (head, flags, _) = around(cx, row, args);
        for (width, text) in widths.iter_mut().zip(&head) {
            *width = (*width).max(text.len());
        }
        flags_width = flags_width.max(flags.len());
        for d in &mut details {
            let value = d.value(cx, row).unwrap_or(0);
            d.total += value;
            if args.quiet {
                d.width = d.width.max(value.to_string().len());
            }
        }
        Ok::<(), ()>(())
    });
    if !any {
        return;
    }
    if !args.quiet {
        for d in &mut details {
            d.width = d.width.max(d.total.to_string().len());
        }
        for (text, width) in HEADS.iter().zip(widths) {
            cell(out, text, width);
            out.push(b' ');
        }
        for d in &details {
            cell(out, d.header, d.width);
            out.push(b' ');
        }
        if all {
            cell(out, "VmFlags", flags_width);
            out.push(b' ');
        }
        out.extend_from_slice(b"Mapping\n");
    }
    let _ = row.each_map(|row| {
        let (head, flags, name) = around(cx, row, args);
        for (i, (text, width)) in head.iter().zip(widths).enumerate() {
            if i > 0 {
                out.push(b' ');
            }
            cell(out, text, width);
        }
        for d in &details {
            out.push(b' ');
            let text = d.value(cx, row).map_or_else(|_| String::from("?"), |v| v.to_string());
            cell(out, &text, d.width);
        }
        if all {
            out.push(b' ');
            cell(out, &flags, flags_width);
        }
        out.push(b' ');
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
        Ok::<(), ()>(())
    });
    if args.quiet {
        return;
    }
    let gap = widths.iter().map(|w| w + 1).sum();
    cell(out, "", gap);
    for d in &details {
        out.resize(out.len() + d.width, b'=');
        out.push(b' ');
    }
    out.push(b'\n');
    cell(out, "", gap);
    for d in &details {
        cell(out, &d.total.to_string(), d.width);
        out.push(b' ');
    }
    out.extend_from_slice(b"KB \n");
}
