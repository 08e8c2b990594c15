//! Values that move while tools are compared: ages, CPU time, and the share of the CPU.
//!
//! On a busy machine a second ends between any two runs for some row or other. So the peer runs
//! before ours and after it. If the peer itself prints a value differently in the two runs, our
//! value may be equal to one of them, or lie between. All else is compared to the byte.

/// A number, a percentage, or a duration, in thousandths (of a second). Such a value can lie
/// between two others.
fn measure(word: &str) -> Option<i64> {
    let digits = |w: &str| w.parse::<i64>().ok().filter(|_| w.bytes().all(|b| b.is_ascii_digit()));
    let (whole, fraction) = match word.split_once('.') {
        Some((whole, fraction)) if fraction.len() <= 3 => {
            (whole, digits(fraction)? * 10_i64.pow(3 - fraction.len() as u32))
        }
        Some(_) => return None,
        None => (word, 0),
    };
    let (days, clock) = match whole.split_once('-') {
        Some((days, clock)) => (digits(days)?, clock),
        None => (0, whole),
    };
    let mut parts = clock.split(':').rev();
    let mut seconds = digits(parts.next()?)?;
    for (part, unit) in parts.zip([60, 3600]) {
        seconds += digits(part)?.checked_mul(unit)?;
    }
    (clock.matches(':').count() <= 2)
        .then(|| {
            days.checked_mul(86_400)?.checked_add(seconds)?.checked_mul(1000)?.checked_add(fraction)
        })
        .flatten()
}

/// A word of a line, and where it begins.
type Word<'a> = (usize, &'a str);

fn words(line: &str) -> Vec<Word<'_>> {
    line.split_ascii_whitespace()
        .map(|w| (w.as_ptr() as usize - line.as_ptr() as usize, w))
        .collect()
}

fn is_line_between(before: &str, ours: &str, after: &str) -> bool {
    if ours == before || ours == after {
        return true;
    }
    let (a, b, c) = (words(before), words(ours), words(after));
    let is_between = |((a, b), c): ((&Word<'_>, &Word<'_>), &Word<'_>)| {
        // Columns are aligned on the left or on the right.
        let stands = |at: &Word<'_>| b.0 == at.0 || b.0 + b.1.len() == at.0 + at.1.len();
        let value = || {
            let (a, b, c) = (measure(a.1)?, measure(b.1)?, measure(c.1)?);
            Some(a.min(c) <= b && b <= a.max(c))
        };
        (stands(a) || stands(c))
            && (b.1 == a.1 || b.1 == c.1 || a.1 != c.1 && value() == Some(true))
    };
    a.len() == b.len() && b.len() == c.len() && a.iter().zip(&b).zip(&c).all(is_between)
}

/// Whether each line of ours matches the lines that the peer prints before or after it, except for
/// values that moved and lie between theirs.
pub fn is_between(before: &str, ours: &str, after: &str) -> bool {
    let lines = |text: &str| text.lines().count();
    let all = || before.lines().zip(ours.lines()).zip(after.lines());
    lines(before) == lines(ours)
        && lines(ours) == lines(after)
        && all().all(|((a, b), c)| is_line_between(a, b, c))
}

#[test]
fn only_what_moves_in_the_peer_may_differ() {
    let is = |a, b, c| is_between(a, b, c);
    assert!(is("1 00:59  0.0 x\n", "1 01:00  0.0 x\n", "1 01:02  0.0 x\n"));
    assert!(is("1 9  0.7\n", "1 10  0.6\n", "1 11  0.5\n"));
    assert!(is("1  59 x\n2 59 y\n", "1  60 x\n2 59 y\n", "1  60 x\n2 60 y\n"));
    // A value that is one second too large or too small, and a value that may not change.
    assert!(!is("1 00:59 0.0\n", "1 01:03 0.0\n", "1 01:02 0.0\n"));
    assert!(!is("1 00:59 0.0\n", "1 00:58 0.0\n", "1 01:02 0.0\n"));
    assert!(!is("1 00:59 0.0 S\n", "1 01:00 0.1 S\n", "1 01:01 0.0 S\n"));
    assert!(!is("1 00:59 0.0 S\n", "1 01:00 0.0 R\n", "1 01:01 0.0 S\n"));
    assert!(!is("1 00:59 x\n", "1  01:00  x\n", "1 01:01 x\n"));
    assert!(!is("1 00:59\n", "1 01:00\n2 01:00\n", "1 01:01\n"));
    assert!(!is("1 -\n", "1 5\n", "1 7\n"));
    assert_eq!(measure("1-02:03:04"), Some(93_784_000));
    assert_eq!(
        [measure("0.25"), measure("?"), measure("a:1"), measure("-1")],
        [Some(250), None, None, None]
    );
}
