//! The procfs crate as a peer: `peer-procfs ids` prints what `ps -eo pid,ppid` does, `peer-procfs
//! aux` about what `ps aux` does, in the way that its documentation suggests.

use std::io::{self, BufWriter, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let aux = std::env::args().nth(1).is_some_and(|a| a == "aux");
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "PID PPID")?;
    // What ends midway gives an error for that process, and is left out.
    for process in procfs::process::all_processes()?.flatten() {
        let Ok(stat) = process.stat() else { continue };
        if !aux {
            writeln!(out, "{} {}", stat.pid, stat.ppid)?;
            continue;
        }
        let (Ok(status), Ok(cmdline)) = (process.status(), process.cmdline()) else { continue };
        writeln!(
            out,
            "{} {} {} {} {} {} {} {} {}",
            status.euid,
            stat.pid,
            stat.ppid,
            stat.state,
            stat.num_threads,
            stat.utime + stat.stime,
            status.vmrss.unwrap_or(0),
            stat.starttime,
            cmdline.join(" ")
        )?;
    }
    out.flush()?;
    Ok(())
}
