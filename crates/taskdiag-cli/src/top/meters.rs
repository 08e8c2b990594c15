//! Meters: bars of plain characters. Each part of a bar has a character of its own, so that it can
//! be read without colours.

/// A bar of this many cells, with a text at its right end. The parts are shares of 1.
pub fn bar(parts: &[(char, f64)], label: &str, cells: usize) -> String {
    let mut out = vec![' '; cells];
    let (mut at, mut sum) = (0, 0.0);
    for (sign, share) in parts {
        sum += share.max(0.0);
        let end = ((sum * cells as f64).round() as usize).min(cells);
        out[at.min(end)..end].fill(*sign);
        at = end.max(at);
    }
    let label: Vec<char> = label.chars().collect();
    let begin = cells.saturating_sub(label.len());
    out.splice(begin.., label.into_iter().take(cells));
    out.into_iter().collect()
}

/// The share of the time in which a CPU was busy, in percent.
fn busy(shares: &[f64; 8]) -> f64 {
    let [user, nice, system, _, _, irq, softirq, steal] = shares;
    user + nice + system + irq + softirq + steal
}

/// The bar of CPU time: user, kernel, stolen.
pub fn of_cpu(shares: &[f64; 8], cells: usize) -> String {
    let [user, nice, system, _, _, irq, softirq, steal] = shares;
    let parts = [('|', user + nice), ('#', system + irq + softirq), ('=', *steal)];
    bar(
        &parts.map(|(sign, percent)| (sign, percent / 100.0)),
        &format!("{:.1}", busy(shares)),
        cells,
    )
}

/// The narrowest and the widest meter of a CPU, with its number.
const CELL: (usize, usize) = (18, 50);

fn digits(cpus: usize) -> usize {
    cpus.max(1).ilog10() as usize + 1
}

fn per_line(cpus: usize, width: usize) -> usize {
    ((width + 1) / (CELL.0 + digits(cpus) + 1)).clamp(1, cpus.max(1))
}

/// How many lines the meters of this many CPUs take.
pub fn count(cpus: usize, width: usize) -> usize {
    cpus.div_ceil(per_line(cpus, width))
}

/// A meter for each CPU, with its number. If they do not fit into this many lines, each CPU is one
/// character: `.` below 5 %, or the tens of its percents.
pub fn lines(shares: &[(u32, Option<[f64; 8]>)], width: usize, room: usize) -> Vec<String> {
    let digits = shares.last().map_or(1, |(n, _)| digits(*n as usize));
    if room == 0 {
        return Vec::new();
    }
    if count(shares.len(), width) <= room {
        let per_line = per_line(shares.len(), width);
        let cells = ((width + 1) / per_line).saturating_sub(digits + 3).min(CELL.1);
        let one = |(number, shares): &(u32, Option<[f64; 8]>)| match shares {
            Some(shares) => format!("{number:>digits$}[{}]", of_cpu(shares, cells)),
            None => format!("{number:>digits$}[{}]", bar(&[], "?", cells)),
        };
        let line =
            |some: &[(u32, Option<[f64; 8]>)]| some.iter().map(one).collect::<Vec<_>>().join(" ");
        return shares.chunks(per_line).map(line).collect();
    }
    let per_line = (width.saturating_sub(digits + 7) / 10 * 10).max(10);
    let one = |(_, shares): &(u32, Option<[f64; 8]>)| match shares.as_ref().map(busy) {
        None => '?',
        Some(percent) if percent < 5.0 => '.',
        Some(percent) => char::from(b'0' + (percent / 10.0).min(9.0) as u8),
    };
    let chunks: Vec<_> = shares.chunks(per_line).collect();
    let line = |some: &&[(u32, Option<[f64; 8]>)]| {
        let first = some.first().map_or(0, |(n, _)| *n);
        format!("CPU {first:>digits$} {}", some.iter().map(one).collect::<String>())
    };
    let mut out: Vec<String> = chunks.iter().take(room).map(line).collect();
    let left = shares.len().saturating_sub(room * per_line);
    if let (true, Some(last)) = (left > 0, out.last_mut()) {
        *last =
            format!("and {} more CPUs, for which there is no room", left + chunks[room - 1].len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_bar_are_shares_of_its_cells() {
        assert_eq!(bar(&[('|', 0.5), ('#', 0.25)], "", 8), "||||##  ");
        assert_eq!(bar(&[('|', 0.5), ('#', 0.6)], "9.9", 8), "||||#9.9");
        assert_eq!(bar(&[('|', 2.0)], "12345678", 4), "1234");
        assert_eq!(bar(&[('|', f64::NAN), ('#', -1.0)], "?", 4), "   ?");
    }

    #[test]
    fn meters_of_any_number_of_cpus_fit_their_room() {
        for cpus in [1u32, 2, 7, 64, 500, 8192] {
            let shares: Vec<_> = (0..cpus)
                .map(|n| {
                    (n, (n != 3).then(|| [f64::from(n % 101), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
                })
                .collect();
            for width in [20, 80, 200] {
                for room in [0, 1, 4, 13] {
                    let lines = lines(&shares, width, room);
                    assert!(lines.len() <= room, "{cpus} {width} {room}");
                    assert!(
                        lines.iter().all(|l| l.chars().count() <= width.max(48)),
                        "{cpus} {width}: {lines:?}"
                    );
                    assert!(room == 0 || !lines.is_empty());
                }
            }
        }
        let two = [(0, Some([50.0, 0.0, 25.0, 25.0, 0.0, 0.0, 0.0, 0.0])), (1, None)];
        assert_eq!(lines(&two, 41, 4), ["0[|||||||||####75.0] 1[                ?]"]);
        let many: Vec<_> = (0..100).map(|n| (n, two[0].1)).collect();
        assert_eq!(lines(&many, 80, 4)[1], format!("CPU 70 {}", "7".repeat(30)));
    }
}
