//! Writes a stream of made-up memory mappings, to measure and try the faces without any load on a
//! machine: `cargo run --release --example synthetic-maps -- 5000 25 > maps.tdg` for 5,000
//! processes of 25 mappings. It is not a test of any engine.

use std::io::Write;

use taskdiag::wire::{BLOB_DELETED, Done, StreamWriter, build};
use taskdiag::{Base, Groups, Strategy, Vma, VmaKind, VmaStat};

fn main() -> std::io::Result<()> {
    let arg = |n| std::env::args().nth(n).and_then(|n| n.parse().ok());
    let (processes, mappings): (u32, u32) = (arg(1).unwrap_or(5000), arg(2).unwrap_or(25));
    let groups = Groups::BASE | Groups::VMA | Groups::VMA_STAT;
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    info.show_flags = groups.bits();
    info.dump_strategy = Strategy::All as u64;
    info.page_size = 4096;
    info.procfs_groups = groups.bits();
    w.info(&info);
    for n in 1..=processes {
        w.begin_task(n, n);
        let base = build!(Base { valid: Base::ALL_VALID, ppid: 1, state: b'S', ..Base::new() });
        w.put_base(&base, b"worker");
        if n == 1 {
            for lib in 1..100 {
                let name = format!("/usr/lib/x86_64-linux-gnu/library-{lib}.so.{lib}.0");
                w.put_name(lib, if lib % 10 == 0 { BLOB_DELETED } else { 0 }, name.as_bytes());
            }
        }
        let (mut vmas, mut stats) = (Vec::new(), Vec::new());
        for i in 0..mappings {
            let start = 0x5555_0000_0000 + u64::from(i) * 0x40_0000;
            let end = start + 0x1000 * u64::from(1 + i % 200);
            let (name, kind) = match i % 5 {
                4 => (0, VmaKind::Anon),
                _ => (1 + i / 5 % 99, VmaKind::File),
            };
            vmas.push(build!(Vma {
                start,
                end,
                offset_bytes: u64::from(i % 5) * 0x1000,
                inode: u64::from(name) * 1000,
                dev: 0xfe00,
                name,
                perms: [1, 5, 1, 3, 3][i as usize % 5],
                kind: kind as u32,
                ..Vma::default()
            }));
            stats.push(build!(VmaStat {
                start,
                end,
                rss_bytes: (end - start) / 2,
                ..VmaStat::default()
            }));
        }
        w.put_list(Vma::ALL_VALID, &vmas);
        w.put_list(VmaStat::ALL_VALID, &stats);
        w.end_task();
    }
    std::io::stdout().write_all(w.finish(Done::default()).as_bytes())
}
