//! Parses what DRM drivers add to /proc/PID/fdinfo (Documentation/gpu/drm-usage-stats.rst).

use taskdiag_wire::{Gpu, build};

use super::bit;
use super::number;
use super::small::complete_lines;

/// More engines and regions than any driver has.
const MOST: usize = 64;

macro_rules! bits {
    ($($member:ident)*) => { 0 $(| bit(Gpu::MEMBERS, stringify!($member)))* };
}

/// The data of a DRM client in an fdinfo file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrmClient {
    /// The number of the client, unique for the device. `None`: the driver has no counters.
    pub client: Option<u64>,
    /// The engines and memory regions of the client with the known members, in the order of the
    /// file. `client`, `driver` and `pdev` are set. If the file has neither engine nor region, one
    /// entry has only these three.
    pub entries: Vec<(u32, Gpu)>,
}

/// A name with NUL bytes after it, which is cut if it is too long.
fn fixed<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    let len = text.len().min(N - 1);
    all[..len].copy_from_slice(&text[..len]);
    all
}

/// A number with the unit `ns`, `KiB` or `MiB`. No unit, or an unknown one, changes nothing.
fn amount(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text.iter().position(|b| *b == b' ') {
        Some(at) => (&text[..at], text[at..].trim_ascii()),
        None => (text, &b""[..]),
    };
    let shift = match unit {
        b"KiB" => 10,
        b"MiB" => 20,
        _ => 0,
    };
    number(digits)?.checked_mul(1 << shift)
}

/// A member of an entry: the prefix of its key, its bit, and how it is set. A key that has the
/// prefix of another one comes first.
type Key = (&'static [u8], u32, fn(&mut Gpu, u64));

const KEYS: [Key; 8] = [
    (b"engine-capacity-", bits!(capacity), |g, v| g.capacity = u32::try_from(v).unwrap_or(1)),
    (b"engine-", bits!(busy_ns), |g, v| g.busy_ns = v),
    (b"cycles-", bits!(cycles), |g, v| g.cycles = v),
    (b"total-cycles-", bits!(total_cycles), |g, v| g.total_cycles = v),
    (b"total-", bits!(total_bytes), |g, v| g.total_bytes = v),
    (b"resident-", bits!(resident_bytes), |g, v| g.resident_bytes = v),
    // An older name of the same.
    (b"memory-", bits!(resident_bytes), |g, v| g.resident_bytes = v),
    (b"shared-", bits!(shared_bytes), |g, v| g.shared_bytes = v),
];

/// Parses the fdinfo file of a DRM device. `fd` and `dev` are not set.
pub fn drm(text: &[u8]) -> DrmClient {
    let (mut client, mut head, mut known) = (None, Gpu::default(), 0);
    let mut entries: Vec<(u32, Gpu)> = Vec::new();
    for line in complete_lines(text) {
        let Some(rest) = line.strip_prefix(b"drm-") else { continue };
        let Some(colon) = rest.iter().position(|b| *b == b':') else { continue };
        let (key, value) = (&rest[..colon], rest[colon + 1..].trim_ascii());
        match key {
            b"driver" => (head.driver, known) = (fixed(value), known | bits!(driver)),
            b"pdev" => (head.pdev, known) = (fixed(value), known | bits!(pdev)),
            b"client-id" => client = number(value),
            _ => {
                let of = |(prefix, ..): &&Key| key.starts_with(prefix);
                let Some((prefix, bit, set)) = KEYS.iter().find(of) else { continue };
                let (Some(v), name) = (amount(value), fixed(&key[prefix.len()..])) else {
                    continue;
                };
                let at = match entries.iter().position(|(_, g)| g.name == name) {
                    Some(at) => at,
                    None if entries.len() == MOST => continue,
                    None => {
                        entries.push((bits!(name), build!(Gpu { name, ..Gpu::default() })));
                        entries.len() - 1
                    }
                };
                let (has, gpu) = &mut entries[at];
                *has |= bit;
                set(gpu, v);
            }
        }
    }
    if let Some(id) = client {
        (head.client, known) = (id, known | bits!(client));
    }
    // For some engines, a driver may list nothing but their number.
    entries.retain(|(has, _)| has & !bits!(name capacity) != 0);
    if entries.is_empty() {
        entries.push((0, Gpu::default()));
    }
    for (has, gpu) in &mut entries {
        *has |= known;
        (gpu.client, gpu.driver, gpu.pdev) = (head.client, head.driver, head.pdev);
    }
    DrmClient { client, entries }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name and the known members of each entry, in the order of the struct.
    fn shown(text: &str) -> Vec<String> {
        let one = |(valid, g): &(u32, Gpu)| {
            let name = |n: &[u8]| String::from_utf8_lossy(n).trim_end_matches('\0').to_owned();
            let mut s = format!("{} {} {}", name(&g.driver), name(&g.pdev), name(&g.name));
            let members = [
                ("client", g.client),
                ("busy_ns", g.busy_ns),
                ("cycles", g.cycles),
                ("total_cycles", g.total_cycles),
                ("total_bytes", g.total_bytes),
                ("resident_bytes", g.resident_bytes),
                ("shared_bytes", g.shared_bytes),
                ("capacity", g.capacity.into()),
            ];
            for (member, v) in members {
                if valid & bit(Gpu::MEMBERS, member) != 0 {
                    s += &format!(" {member}={v}");
                }
            }
            s
        };
        drm(text.as_bytes()).entries.iter().map(one).collect()
    }

    #[test]
    fn drm_clients_of_each_driver_are_parsed() {
        let i915 = "pos:\t0\nflags:\t0100002\nmnt_id:\t21\nino:\t9\ndrm-driver:\ti915\ndrm-client-id:\t7\n\
            drm-pdev:\t0000:00:02.0\ndrm-total-system0:\t125 MiB\ndrm-shared-system0:\t16 MiB\n\
            drm-active-system0:\t110 MiB\ndrm-resident-system0:\t125 MiB\ndrm-purgeable-system0:\t2 MiB\n\
            drm-engine-render:\t25662044495 ns\ndrm-engine-copy:\t0 ns\ndrm-engine-video:\t0 ns\n\
            drm-engine-capacity-video:\t2\n";
        assert_eq!(
            shown(i915),
            [
                "i915 0000:00:02.0 system0 client=7 total_bytes=131072000 resident_bytes=131072000 shared_bytes=16777216",
                "i915 0000:00:02.0 render client=7 busy_ns=25662044495",
                "i915 0000:00:02.0 copy client=7 busy_ns=0",
                "i915 0000:00:02.0 video client=7 busy_ns=0 capacity=2",
            ]
        );
        // Older kernels have sizes by the old key, and newer ones by both.
        let amdgpu = "drm-driver:\tamdgpu\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\npasid:\t32770\n\
            drm-memory-vram:\t1024 KiB\ndrm-memory-gtt: \t0 KiB\namd-evicted-vram:\t9 KiB\n\
            drm-total-vram:\t2048 KiB\ndrm-resident-vram:\t1024 KiB\ndrm-engine-gfx:\t77 ns\n";
        assert_eq!(
            shown(amdgpu),
            [
                "amdgpu 0000:03:00.0 vram client=3 total_bytes=2097152 resident_bytes=1048576",
                "amdgpu 0000:03:00.0 gtt client=3 resident_bytes=0",
                "amdgpu 0000:03:00.0 gfx client=3 busy_ns=77",
            ]
        );
        let xe = "drm-driver:\txe\ndrm-client-id:\t4\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t0\n\
            drm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\ndrm-engine-capacity-ccs:\t4\n";
        assert_eq!(
            shown(xe),
            [
                "xe 0000:03:00.0 vram0 client=4 total_bytes=0",
                "xe 0000:03:00.0 rcs client=4 cycles=28257900 total_cycles=7655183225",
            ]
        );
        let panfrost = "drm-driver:\tpanfrost\ndrm-client-id:\t12\ndrm-engine-fragment:\t1846584880 ns\n\
            drm-cycles-fragment:\t1424359409\ndrm-maxfreq-fragment:\t799999987 Hz\ndrm-curfreq-fragment:\t799999987 Hz\n\
            drm-total-memory:\t290 MiB\n";
        assert_eq!(
            shown(panfrost),
            [
                "panfrost  fragment client=12 busy_ns=1846584880 cycles=1424359409",
                "panfrost  memory client=12 total_bytes=304087040",
            ]
        );
        let nouveau = "drm-driver:\tnouveau\ndrm-pdev:\t0000:01:00.0\ndrm-client-id:\t5\ndrm-total-vram:\t8 KiB\n";
        assert_eq!(shown(nouveau), ["nouveau 0000:01:00.0 vram client=5 total_bytes=8192"]);
        let msm = "drm-driver:\tmsm\ndrm-client-id:\t2\ndrm-engine-gpu:\t13 ns\ndrm-cycles-gpu:\t4\ndrm-maxfreq-gpu:\t5 Hz\n";
        assert_eq!(shown(msm), ["msm  gpu client=2 busy_ns=13 cycles=4"]);
        let v3d = "drm-driver:\tv3d\ndrm-client-id:\t31\ndrm-engine-bin:\t9 ns\nv3d-jobs-bin:\t3 jobs\ndrm-engine-render:\t8 ns\n";
        assert_eq!(shown(v3d), ["v3d  bin client=31 busy_ns=9", "v3d  render client=31 busy_ns=8"]);
        // A driver without counters, such as NVIDIA's own.
        assert_eq!(shown("pos:\t0\nflags:\t02\nmnt_id:\t30\nino:\t1\n"), ["  "]);
    }

    #[test]
    fn drm_values_that_are_cut_or_too_large_are_not_known() {
        assert_eq!(shown("drm-client-id:\t7\ndrm-engine-a:\t5"), ["   client=7"]);
        assert_eq!(shown("drm-total-a:\t99999999999999999 MiB\ndrm-engine-b: x ns\n"), ["  "]);
        let long =
            format!("drm-driver:\t{}\ndrm-engine-{}:\t1 ns\n", "d".repeat(50), "e".repeat(50));
        assert_eq!(shown(&long), [format!("{}  {} busy_ns=1", "d".repeat(19), "e".repeat(15))]);
        let many: String = (0..200).map(|n| format!("drm-engine-{n}:\t{n} ns\n")).collect();
        assert_eq!(drm(many.as_bytes()).entries.len(), MOST);
    }
}
