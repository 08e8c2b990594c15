//! The pids that a search by arguments leaves out: this program, and the programs that only run it,
//! such as sudo, timeout, and `sh -c`. All of them have the searched word in their own arguments.

use std::path::Path;

/// How many ancestors are looked at.
const ANCESTORS: usize = 16;

/// The pid of this program, unless /proc belongs to another pid namespace. There, another process
/// may have this number.
pub fn pid() -> Option<u32> {
    let pid = std::process::id();
    let shown = std::fs::read_link("/proc/self").ok()?;
    (shown == Path::new(&pid.to_string())).then_some(pid)
}

/// The pid of this program, and those of its ancestors that have its arguments among their own.
pub fn pids() -> Vec<u32> {
    let Some(own) = pid() else { return Vec::new() };
    let mut all = vec![own];
    let arguments = arguments(own).map(|text| match text.iter().position(|b| *b == 0) {
        Some(end) => bare(&text[end..]),
        None => Vec::new(),
    });
    let Some(arguments) = arguments.filter(|text| !text.is_empty()) else { return all };
    let mut next = parent(own);
    for _ in 0..ANCESTORS {
        let Some(pid) = next.filter(|pid| *pid > 1) else { break };
        if self::arguments(pid).is_some_and(|text| has(&bare(&text), &arguments)) {
            all.push(pid);
        }
        next = parent(pid);
    }
    all
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|w| w == part)
}

fn arguments(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/cmdline")).ok()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&stat[stat.iter().rposition(|b| *b == b')')? + 1..]);
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Arguments without what separates or quotes them. A shell has them as one text with quotes.
fn bare(text: &[u8]) -> Vec<u8> {
    let is_kept = |b: &u8| !b.is_ascii_whitespace() && !b"\0'\"\\;".contains(b);
    text.iter().copied().filter(is_kept).collect()
}
