//! The procfs crate as a peer, used as its documentation suggests: `peer-procfs ids` prints the
//! same as `ps -eo pid,ppid`, and `peer-procfs aux` about the same as `ps aux`.

use std::io::{self, BufWriter, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let aux = std::env::args().nth(1).is_some_and(|a| a == "aux");
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "PID PPID")?;
    // A process that ends during the walk gives an error, and is left out.
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
