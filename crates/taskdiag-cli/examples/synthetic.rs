//! Writes a stream of made-up tasks, to measure and try the faces without any load on a machine:
//! `cargo run --release --example synthetic -- 50000 > tasks.tdg`. Not a test of any engine.

use std::io::Write;

use taskdiag::wire::{Done, StreamWriter};
use taskdiag::{Base, Cred, Group, Groups, Stat, Statm, Strategy};

fn main() -> std::io::Result<()> {
    let count: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let groups = Groups::BASE | Groups::CRED | Groups::STAT | Groups::STATM | Groups::CMDLINE;
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    info.show_flags = groups.bits();
    info.dump_strategy = Strategy::All as u64;
    info.realtime_ns = 1_800_000_000 * 1_000_000_000;
    info.boottime_ns = 100_000 * 1_000_000_000;
    info.mem_total_bytes = 32 << 30;
    info.page_size = 4096;
    info.clk_tck = 100;
    info.procfs_groups = groups.bits();
    w.info(&info);
    for n in 1..=count {
        w.begin_task(n, n);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        (base.ppid, base.pgid, base.sid, base.state) = (n / 8, n, n, b'S');
        base.start_time_ns = u64::from(n) * 1_900_000_000;
        w.put_base(&base, b"worker");
        let mut cred = Cred::new();
        cred.valid = Cred::ALL_VALID;
        (cred.uid, cred.euid) =
            ([0, 33, 65534, 1000][n as usize % 4], [0, 33, 65534, 1000][n as usize % 4]);
        w.put(&cred);
        let mut stat = Stat::new();
        stat.valid = Stat::ALL_VALID;
        (stat.utime_ns, stat.stime_ns) = (u64::from(n) * 12_345_678, u64::from(n) * 2_345_678);
        (stat.num_threads, stat.priority) = (1 + n % 7, 20);
        (stat.tty_nr, stat.tty_pgrp) = (if n % 3 == 0 { (136 << 8) | (n % 9) } else { 0 }, -1);
        w.put(&stat);
        if n % 50 == 0 {
            w.missing(Group::Statm, taskdiag::Reason::Absent);
            w.missing(Group::Cmdline, taskdiag::Reason::Absent);
        } else {
            let mut statm = Statm::new();
            statm.valid = Statm::ALL_VALID;
            (statm.size_bytes, statm.rss_bytes) = (u64::from(n) * 40_960, u64::from(n) * 4096);
            w.put(&statm);
            let args = format!(
                "/usr/lib/worker/worker\0--number={n}\0--config\0/etc/worker/worker.conf\0"
            );
            w.put_blob(Group::Cmdline as u16, 0, 0, args.as_bytes(), args.len());
        }
        w.end_task();
    }
    std::io::stdout().write_all(w.finish(Done::default()).as_bytes())
}
