//! Parses the files of a cgroup. Pure functions over their text.

use taskdiag_wire::Reason;

use super::members::{Form, Member};
use super::value::{Known, Values};
use crate::engine::procfs::parse::number;

/// From this number on, a limit of version 1 is none: the largest number of pages, in bytes. It
/// depends on the page size, so everything above half of it counts.
const NO_LIMIT: u64 = i64::MAX as u64 / 2;

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A number or `max`, multiplied.
fn limit(text: &[u8], by: u64) -> Option<Known> {
    match text {
        b"max" => Some(Known::Unlimited),
        digits => Some(Known::Number(number(digits)?.saturating_mul(by))),
    }
}

/// `12.34` in hundredths.
fn hundredths(text: &[u8]) -> Option<u64> {
    let dot = text.iter().position(|b| *b == b'.')?;
    let (whole, part) = (number(&text[..dot])?, &text[dot + 1..]);
    (part.len() == 2).then_some(())?;
    whole.checked_mul(100)?.checked_add(number(part)?)
}

/// The members of a form.
pub(super) fn members(form: Form, mut each: impl FnMut(Member)) {
    match form {
        Form::Number(m, _) | Form::Limit(m, _) | Form::Lines(m) | Form::Word(m, _) => each(m),
        Form::Keys(keys) => keys.iter().for_each(|key| each(key.1)),
        Form::Pressure(members) => members.into_iter().for_each(each),
        Form::CpuMax => [Member::CpuQuota, Member::CpuPeriod].into_iter().for_each(each),
        Form::IoStat => IO.iter().for_each(|(_, m)| each(*m)),
        Form::Blkio(ops) => ops.iter().for_each(|(_, m)| each(*m)),
    }
}

const IO: [(&[u8], Member); 5] = [
    (b"rbytes", Member::ReadBytes),
    (b"wbytes", Member::WriteBytes),
    (b"rios", Member::Reads),
    (b"wios", Member::Writes),
    (b"dbytes", Member::DiscardBytes),
];

/// The value of a key that is not in its file. `cpu.stat` has the keys about the limit only where
/// the controller is enabled.
fn without_key(member: Member) -> Known {
    Known::Missing(match member {
        Member::Periods | Member::Throttles | Member::Throttled => Reason::Absent,
        _ => Reason::Unsupported,
    })
}

/// Parses a file into `values`. This kernel does not have the keys that the file lacks.
pub(super) fn parse(form: Form, text: &[u8], values: &mut Values) {
    let mut put = |m: Member, known: Option<Known>| {
        values.put(m, known.unwrap_or(Known::Missing(Reason::Unsupported)));
    };
    let first = text.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
    match form {
        Form::Number(m, by) => put(m, limit(first, by)),
        Form::Limit(m, by) => put(
            m,
            match first.strip_prefix(b"-") {
                Some(digits) => number(digits).map(|_| Known::Unlimited),
                None => number(first).map(|n| match n > NO_LIMIT {
                    true => Known::Unlimited,
                    false => Known::Number(n.saturating_mul(by)),
                }),
            },
        ),
        Form::Lines(m) => put(m, Some(Known::Number(lines(text).count() as u64))),
        Form::Word(m, all) => {
            let index = all.iter().position(|word| word.as_bytes() == first);
            // Only FROZEN is 1; FREEZING is not frozen yet.
            let index =
                index.map(|i| if m == Member::Frozen { u64::from(i == 1) } else { i as u64 });
            put(m, index.map(Known::Number));
        }
        Form::Keys(keys) => {
            for (_, m, _) in keys {
                values.put(*m, without_key(*m));
            }
            for line in lines(text) {
                let mut words = words(line);
                let Some(key) = words.next() else { continue };
                let Some((_, m, by)) = keys.iter().find(|k| k.0.as_bytes() == key) else {
                    continue;
                };
                if let Some(n) = words.next().and_then(number) {
                    values.put(*m, Known::Number(n.saturating_mul(*by)));
                }
            }
        }
        Form::Pressure([some10, some, full10, full]) => {
            [some10, some, full10, full].into_iter().for_each(|m| put(m, None));
            for line in lines(text) {
                let mut words = words(line);
                let (share, total) = match words.next() {
                    Some(b"some") => (some10, some),
                    Some(b"full") => (full10, full),
                    _ => continue,
                };
                for word in words {
                    if let Some(n) = word.strip_prefix(b"avg10=").and_then(hundredths) {
                        values.put(share, Known::Number(n));
                    }
                    if let Some(us) = word.strip_prefix(b"total=").and_then(number) {
                        values.put(total, Known::Number(us.saturating_mul(1000)));
                    }
                }
            }
        }
        Form::CpuMax => {
            let mut words = words(first);
            put(Member::CpuQuota, words.next().and_then(|w| limit(w, 1000)));
            let period = words.next().and_then(number);
            put(Member::CpuPeriod, period.map(|us| Known::Number(us.saturating_mul(1000))));
        }
        Form::IoStat => {
            // A cgroup without I/O has no line.
            IO.iter().for_each(|(_, m)| put(*m, Some(Known::Number(0))));
            for word in lines(text).flat_map(words) {
                let Some(sign) = word.iter().position(|b| *b == b'=') else { continue };
                let member = IO.iter().find(|(key, _)| *key == &word[..sign]);
                if let (Some((_, m)), Some(n)) = (member, number(&word[sign + 1..])) {
                    values.add(*m, n);
                }
            }
        }
        Form::Blkio(ops) => {
            ops.iter().for_each(|(_, m)| put(*m, Some(Known::Number(0))));
            for line in lines(text) {
                // DEVICE OPERATION NUMBER; the last line is a total without a device.
                let mut words = words(line);
                let (Some(_), Some(op), Some(n)) = (words.next(), words.next(), words.next())
                else {
                    continue;
                };
                let member = ops.iter().find(|(key, _)| key.as_bytes() == op);
                if let (Some((_, m)), Some(n)) = (member, number(n)) {
                    values.add(*m, n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::{Files, V1, V2};
    use super::*;

    /// The values of a file with this text.
    fn of(sources: &[super::super::members::Source], name: &str, text: &str) -> Values {
        let source = sources.iter().find(|s| s.name.to_str() == Ok(name)).expect("a known file");
        let mut values = Values::missing(Files::ALL, |_| Reason::Denied);
        parse(source.form, text.as_bytes(), &mut values);
        values
    }

    const UNSUPPORTED: Known = Known::Missing(Reason::Unsupported);

    #[test]
    fn max_is_no_number() {
        for (text, want) in [
            ("max\n", Known::Unlimited),
            ("0\n", Known::Number(0)),
            ("18446744073709551615\n", Known::Number(u64::MAX)),
            ("18446744073709551616\n", UNSUPPORTED),
            ("", UNSUPPORTED),
            ("-1\n", UNSUPPORTED),
            ("1x\n", UNSUPPORTED),
        ] {
            assert_eq!(of(V2, "memory.max", text).get(Member::MemoryMax), want, "{text:?}");
        }
        let max = of(V2, "cpu.max", "max 100000\n");
        assert_eq!(max.get(Member::CpuQuota), Known::Unlimited);
        assert_eq!(max.get(Member::CpuPeriod), Known::Number(100_000_000));
        let half = of(V2, "cpu.max", "50000 100000\n");
        assert_eq!(half.get(Member::CpuQuota), Known::Number(50_000_000));
    }

    #[test]
    fn a_limit_of_version_1_may_be_none() {
        for (text, want) in [
            ("9223372036854771712\n", Known::Unlimited),
            ("4096\n", Known::Number(4096)),
            ("x\n", UNSUPPORTED),
        ] {
            let name = "memory.limit_in_bytes";
            assert_eq!(of(V1, name, text).get(Member::MemoryMax), want, "{text:?}");
        }
        let quota = |text| of(V1, "cpu.cfs_quota_us", text).get(Member::CpuQuota);
        assert_eq!((quota("-1\n"), quota("2000\n")), (Known::Unlimited, Known::Number(2_000_000)));
    }

    #[test]
    fn a_key_that_a_kernel_lacks_is_not_zero() {
        let stat = of(V2, "memory.stat", "anon 5\nfile_dirty 4096\nanon_thp 9\n");
        assert_eq!(stat.get(Member::Anon), Known::Number(5));
        assert_eq!(stat.get(Member::FileDirty), Known::Number(4096));
        assert_eq!(stat.get(Member::Kernel), UNSUPPORTED);
        // Without the controller, the limit does not exist.
        let cpu = of(V2, "cpu.stat", "usage_usec 7\nuser_usec 4\nsystem_usec 3\n");
        assert_eq!(cpu.get(Member::CpuUsage), Known::Number(7000));
        assert_eq!(cpu.get(Member::Throttled), Known::Missing(Reason::Absent));
    }

    #[test]
    fn devices_are_added_up() {
        let text = "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=3 dios=4\n\
                    259:0 \n253:0 rbytes=5 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.usage=9\n";
        let io = of(V2, "io.stat", text);
        let all = [Member::ReadBytes, Member::WriteBytes, Member::Reads, Member::DiscardBytes];
        assert_eq!(all.map(|m| io.get(m)), [15, 20, 2, 3].map(Known::Number));
        assert_eq!(of(V2, "io.stat", "").get(Member::ReadBytes), Known::Number(0));
        let text = "8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\n8:16 Read 1\nTotal 12289\n";
        let io = of(V1, "blkio.throttle.io_service_bytes_recursive", text);
        let both = [Member::ReadBytes, Member::WriteBytes].map(|m| io.get(m));
        assert_eq!(both, [Known::Number(4097), Known::Number(8192)]);
    }

    #[test]
    fn pressure_has_a_share_and_a_total() {
        let text = "some avg10=1.05 avg60=0.50 avg300=0.01 total=12\n\
                    full avg10=100.00 avg60=0.00 avg300=0.00 total=0\n";
        let cpu = of(V2, "cpu.pressure", text);
        let all = [Member::CpuSome10, Member::CpuSome, Member::CpuFull10, Member::CpuFull];
        assert_eq!(all.map(|m| cpu.get(m)), [105, 12_000, 10_000, 0].map(Known::Number));
        // Kernels before 5.13 have no second line for the CPU.
        let old = of(V2, "cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
        assert_eq!(old.get(Member::CpuFull), UNSUPPORTED);
    }

    #[test]
    fn types_and_states_are_words() {
        let of_type = |text| of(V2, "cgroup.type", text).get(Member::Type);
        assert_eq!(of_type("domain threaded\n"), Known::Number(1));
        assert_eq!(of_type("something new\n"), UNSUPPORTED);
        let frozen = |text| of(V1, "freezer.state", text).get(Member::Frozen);
        assert_eq!(
            ["THAWED\n", "FREEZING\n", "FROZEN\n"].map(frozen),
            [0, 0, 1].map(Known::Number)
        );
    }

    #[test]
    fn odd_files_of_cgroups_make_no_panic() {
        let long = "9".repeat(9999);
        for source in V2.iter().chain(V1) {
            for text in ["", "\n", " ", "max", "some", "some avg10=", "8:0 x=", &long, "a b c\n=\n"]
            {
                let mut values = Values::missing(Files::ALL, |_| Reason::Denied);
                parse(source.form, text.as_bytes(), &mut values);
                members(source.form, |m| assert_ne!(values.get(m), Known::NotAsked));
            }
        }
    }

    #[test]
    fn each_member_is_read_from_the_file_that_is_requested_for_it() {
        let mut seen = std::collections::HashSet::new();
        for source in V2.iter().chain(V1) {
            members(source.form, |m| {
                assert_eq!(Files::of(m), source.file, "{m:?} of {:?}", source.name);
                seen.insert(m);
            });
        }
        // Sums are made of the values of several cgroups.
        let others = Member::ALL.iter().filter(|m| !seen.contains(*m));
        assert_eq!(others.collect::<Vec<_>>(), [&Member::AllProcs, &Member::AllTasks]);
    }
}
