//! Columns about the use of graphics processors through DRM devices.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use taskdiag_wire::{Entry, Gpu, Group, Groups};

use super::super::part::Part;
use super::super::*;

/// A number for an engine or a region of a client, the same for all descriptors and tasks of it.
/// `None`: the driver does not say which client it is, so each descriptor counts.
pub fn key(e: &Entry<'_, Gpu>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    (e.dev()?, e.client()?, e.name()).hash(&mut hasher);
    Some(hasher.finish())
}

/// The engines of graphics processors that work for a process. Each has the time of its work, ns,
/// and a number that is the same in all processes that share a client. Source: `drm-engine-*` of
/// `/proc/PID/fdinfo`. `None`: the answer or the driver does not have it.
pub fn engines(row: &Row<'_>) -> Option<Vec<(u64, u64)>> {
    let mut any = false;
    let known = list(row).ok()?.filter_map(|e| {
        any = true;
        Some((key(&e).unwrap_or_else(|| own_key(row, &e)), e.busy_ns()?))
    });
    let known: Vec<(u64, u64)> = known.collect();
    (!known.is_empty() || !any).then_some(known)
}

/// A number for an engine of a client that the driver does not name.
fn own_key(row: &Row<'_>, e: &Entry<'_, Gpu>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (row.view.pid(), e.fd(), e.name()).hash(&mut hasher);
    hasher.finish()
}

/// Memory for graphics processors, bytes: the sum over the regions of a process that are not in
/// `seen`. Adds these to `seen`. Source: `drm-resident-*` of `/proc/PID/fdinfo`. `None`: the answer
/// or the driver does not have it.
pub fn memory_once(row: &Row<'_>, seen: &mut HashSet<u64>) -> Option<u64> {
    match bytes_or_ns(row, SUMS[0].1, false, seen) {
        Value::Uint(bytes) => Some(bytes),
        _ => None,
    }
}

/// The counters of an engine: busy time, its cycles, and all cycles.
pub fn counters(e: &Entry<'_, Gpu>) -> Option<[u64; 3]> {
    match (e.busy_ns(), e.cycles(), e.total_cycles()) {
        (Some(ns), ..) => Some([ns, 0, 0]),
        (None, Some(cycles), Some(all)) => Some([0, cycles, all]),
        _ => None,
    }
}

fn list<'a>(row: &Row<'a>) -> Result<impl Iterator<Item = Entry<'a, Gpu>>, Value<'static>> {
    let is_shared = row.view.shared(Group::Gpu).is_some();
    if !is_shared && row.view.reason(Group::Gpu).is_some() {
        return Err(row.missing(Group::Gpu));
    }
    let list = row.view.owner(Group::Gpu).and_then(|t| t.list::<Gpu>());
    list.ok_or_else(|| row.missing(Group::Gpu))
}

fn text(name: &[u8]) -> &[u8] {
    &name[..name.iter().position(|b| *b == 0).unwrap_or(name.len())]
}

/// The devices: address on the bus or the number of the device file, and driver.
fn devices<'a>(row: &Row<'a>) -> Value<'a> {
    let all = match list(row) {
        Ok(all) => all,
        Err(why) => return why,
    };
    let mut data: Vec<u8> = Vec::new();
    for e in all {
        let mut one = match (e.pdev(), e.dev()) {
            (Some(pdev), _) => text(&pdev).to_vec(),
            (None, Some(dev)) => {
                let (major, minor) = taskdiag_wire::device::major_minor(dev);
                format!("{major}:{minor}").into_bytes()
            }
            (None, None) => continue,
        };
        if let Some(driver) = e.driver() {
            one.push(b'/');
            one.extend_from_slice(text(&driver));
        }
        if !data.split(|b| *b == b',').any(|have| have == one) {
            if !data.is_empty() {
                data.push(b',');
            }
            data.extend(one);
        }
    }
    if data.is_empty() { Value::ABSENT } else { Value::Bytes { data: data.into(), cut: false } }
}

/// A member that is added up.
type Member = fn(&Entry<'_, Gpu>) -> Option<u64>;

const SUMS: [(&str, Member); 2] =
    [("gpu_mem", |e| e.resident_bytes().or(e.total_bytes())), ("gpu_time", |e| e.busy_ns())];

/// The sum over the engines or regions that are not in `seen` yet; they are added to `seen`.
/// `None`: the process uses a device, and its driver does not have this value.
fn sum<N: std::iter::Sum>(
    row: &Row<'_>,
    get: impl Fn(&Entry<'_, Gpu>) -> Option<N>,
    seen: &mut HashSet<u64>,
) -> Result<Option<N>, Value<'static>> {
    let (mut is_known, mut any) = (false, false);
    let new = list(row)?.filter_map(|e| {
        any = true;
        let value = get(&e)?;
        is_known = true;
        key(&e).is_none_or(|k| seen.insert(k)).then_some(value)
    });
    let total = new.sum();
    Ok((is_known || !any).then_some(total))
}

fn bytes_or_ns(
    row: &Row<'_>,
    get: Member,
    is_time: bool,
    seen: &mut HashSet<u64>,
) -> Value<'static> {
    match sum(row, |e| get(e).map(u128::from), seen) {
        Ok(Some(n)) => {
            let n = u64::try_from(n).unwrap_or(u64::MAX);
            if is_time { Value::Nanos(n) } else { Value::Uint(n) }
        }
        Ok(None) => Value::UNKNOWN,
        Err(why) => why,
    }
}

/// Busy time of the engines since the previous answer, in percent of one engine.
fn percent(row: &Row<'_>, seen: &mut HashSet<u64>) -> Value<'static> {
    let rate = match row.part {
        Part::Rate(rate) if rate.interval_ns() > 0 => rate,
        _ => return Value::UNKNOWN,
    };
    let share = |e: &Entry<'_, Gpu>| {
        counters(e)?;
        let [busy_ns, cycles, all] = rate.gpu(key(e)?)?;
        Some(match all {
            0 => busy_ns as f64 / rate.interval_ns() as f64,
            all => cycles as f64 / all as f64,
        })
    };
    match sum(row, share, seen) {
        Ok(Some(share)) => Value::Percent(share * 100.0),
        Ok(None) => Value::UNKNOWN,
        Err(why) => why,
    }
}

/// The sum of a column over the engines and regions of a row that are not in `seen` yet; they are
/// added to `seen`. `None`: the column is not about graphics processors.
#[cfg(feature = "view")]
pub fn sum_once(field: &Field, row: &Row<'_>, seen: &mut HashSet<u64>) -> Option<Value<'static>> {
    if field.name == "gpu_percent" {
        return Some(percent(row, seen));
    }
    let (name, get) = SUMS.iter().find(|(name, _)| *name == field.name)?;
    Some(bytes_or_ns(row, *get, *name == "gpu_time", seen))
}

/// Columns of processes.
pub const FIELDS: &[Field] = &[
    row!("gpu" "GPU" 20 Left [GPU] Text None Plain, "/proc/PID/fdinfo drm-pdev, drm-driver",
        "Graphics processors that it has open: address on the bus and driver", {}, |_, row| devices(row)),
    row!("gpu_mem" "GPUMEM" 7 Right [GPU] Integer Bytes Human, "/proc/PID/fdinfo drm-resident-*, drm-memory-*, drm-total-*",
        "Memory for graphics processors: resident buffers of its clients in all regions", {},
        |_, row| bytes_or_ns(row, SUMS[0].1, false, &mut HashSet::new())),
    row!("gpu_time" "GPUTIME" 9 Right [GPU] Number Seconds Clock, "/proc/PID/fdinfo drm-engine-*",
        "Time in which engines of graphics processors worked for it; not known of drivers that count cycles", {},
        |_, row| bytes_or_ns(row, SUMS[1].1, true, &mut HashSet::new())),
];

/// Columns of activity. A single answer does not have them.
pub const RATES: &[Field] = &[
    row!("gpu_percent" "%GPU" 5 Right [BASE(start_time_ns) GPU] Number Percent Percent,
        "/proc/PID/fdinfo drm-engine-*, drm-cycles-*",
        "Time in which engines of graphics processors worked for it since the last refresh, in % of one engine", {},
        |_, row| percent(row, &mut HashSet::new())),
];
