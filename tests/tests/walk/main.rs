//! A random walk: makes processes with random properties (`tests/mktask/walk.c`), and compares the
//! results of the engines, the faces and the kernel itself for them. A difference is printed with
//! its seed and the smallest list of properties that still has it.
//!
//! It runs for `TASKDIAG_WALK_SECONDS`, and begins with `TASKDIAG_WALK_SEED`, or some fixed seeds
//! and then a new one. Without one of them only the scenes that differed once are looked at,
//! because no long walk has ended without a difference yet. `TASKDIAG_WALK_SCENE="file=9 end=3"`
//! looks at one scene only.

mod faces;
mod kernel;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use taskdiag::{EngineId, Group, Groups, Request, Strategy};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::busy::Patience;
use taskdiag_tests::compare::compare;
use taskdiag_tests::{Mktask, Source, engines, read, skip};

/// Seeds of scenes that differed once, or that make rare states.
const FIXED: [u64; 3] = [1, 2, 3];

/// After this many differences, the walk ends, because most of the others would be the same.
const MOST_REPORTS: usize = 20;

/// How long a smaller scene is looked for.
const SHRINK: Duration = Duration::from_secs(90);

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Properties, each with the number that chooses its variant.
#[derive(Clone, Debug, PartialEq)]
struct Scene(Vec<(String, u32)>);

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(|(name, n)| format!("{name}={n}")).collect();
        f.write_str(&all.join(" "))
    }
}

impl Scene {
    fn random(seed: u64, names: &[String]) -> Scene {
        let mut random = Random(seed);
        let of_files = names.iter().position(|n| n == "file").expect("mktask makes files");
        let count = 1 + random.below(14);
        let mut one = |_| {
            // Those of files have many kinds and states, so there are more of them.
            let from = if random.below(2) == 0 { &names[of_files..of_files + 9] } else { names };
            (from[random.below(from.len())].clone(), random.next() as u32)
        };
        Scene((0..count).map(&mut one).collect())
    }
    fn parse(text: &str) -> Scene {
        let one = |word: &str| {
            let (name, n) = word.split_once('=').expect("PROPERTY=N");
            (name.to_owned(), n.parse().expect("a number"))
        };
        Scene(text.split_whitespace().map(one).collect())
    }
    /// The smallest scene that still differs in one of these ways, which is looked for within a
    /// bounded time.
    fn shrunk(&self, found: &[String]) -> (Scene, Vec<String>) {
        let mut best = (self.clone(), found.to_vec());
        let begin = Instant::now();
        let how = How {
            legacy: found.iter().any(|d| d.starts_with("bpf-legacy")),
            faces: found.iter().any(|d| !d.contains(" and procfs: ")),
        };
        let kinds: BTreeSet<String> = found.iter().map(|d| kind(d)).collect();
        let differs = |scene: &Scene| {
            let found =
                if begin.elapsed() > SHRINK { Ok(Vec::new()) } else { look_at(scene, 2, how) };
            found.ok().filter(|all| all.iter().any(|d| kinds.contains(&kind(d))))
        };
        // Halves first, then quarters, down to single properties.
        let mut size = best.0.0.len().div_ceil(2);
        while size > 0 {
            let mut i = 0;
            while i < best.0.0.len() {
                let mut less = best.0.clone();
                less.0.drain(i..(i + size).min(less.0.len()));
                match differs(&less) {
                    Some(found) => best = (less, found),
                    None => i += size,
                }
            }
            size = if size > 1 { size.div_ceil(2) } else { 0 };
        }
        for i in 0..best.0.0.len() {
            for bit in (0..32).rev() {
                let mut less = best.0.clone();
                less.0[i].1 &= !(1 << bit);
                if less != best.0 {
                    if let Some(found) = differs(&less) {
                        best = (less, found);
                    }
                }
            }
        }
        best
    }
}

/// The process and all that descend from its supervisor.
fn family(m: &Mktask) -> Vec<u32> {
    let mut found = vec![m.supervisor()];
    let mut i = 0;
    while i < found.len() {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", found[i])).into_iter().flatten();
        let files = tasks.flatten().map(|t| t.path().join("children"));
        let texts: Vec<String> = files.filter_map(|f| std::fs::read_to_string(f).ok()).collect();
        found.extend(texts.join(" ").split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        i += 1;
    }
    found.remove(0);
    assert!(
        found.contains(&m.pid()),
        "/proc/PID/task/TID/children has no {} in {found:?}",
        m.pid()
    );
    found
}

/// Waits until the process is in the state that is to be compared.
fn arrive(m: &Mktask) {
    let letter = m.text("ends");
    let state = || std::fs::read(format!("/proc/{}/stat", m.pid())).unwrap_or_default();
    let mut wait = Patience::new(Duration::from_secs(20));
    while !wait.is_over() {
        let stat = state();
        let end = stat.iter().rposition(|b| *b == b')').unwrap_or(0);
        if stat.get(end + 2) == letter.as_bytes().first() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The parts of a scene that are compared.
#[derive(Clone, Copy)]
struct How {
    /// The BPF program for older kernels, too.
    legacy: bool,
    /// The commands and the kernel, too.
    faces: bool,
}

impl How {
    fn of(scene: &Scene) -> How {
        How { legacy: scene.0.len() % 4 == 0, faces: true }
    }
}

/// Makes the scene and returns what differs. `Err` gives the reason why it cannot be made here.
fn look_at(scene: &Scene, attempts: u64, how: How) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = std::fs::canonicalize(dir.path()).expect("it exists");
    let words: Vec<String> = scene.0.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let mut args = vec!["walk", path.to_str().expect("a plain path")];
    args.extend(words.iter().map(String::as_str));
    let m = Mktask::attempt(&args)?;
    arrive(&m);
    let family = family(&m);
    let mut last = BTreeSet::new();
    for attempt in 0..attempts {
        std::thread::sleep(Duration::from_millis(100 * attempt));
        let mut found = BTreeSet::new();
        for pair in pairs(how.legacy) {
            engines_differ(&family, pair, &mut found);
        }
        if how.faces {
            let shown = faces::differ(&family, &mut found);
            kernel::differs(&m, &shown, &mut found);
        }
        found.retain(|d| !is_explained(d));
        // A difference that appears twice is no accident.
        last = if attempt == 0 { found } else { last.intersection(&found).cloned().collect() };
        if last.is_empty() {
            break;
        }
    }
    Ok(last.into_iter().collect())
}

/// The engines that are compared, each with the one after it. Two ways of asking BPF are for some
/// scenes only.
fn pairs(every: bool) -> Vec<[Source; 2]> {
    let mut all = engines().to_vec();
    all.retain(|s| every || matches!(s, Source::Engine(_)));
    all.windows(2).map(|w| [w[0], w[1]]).collect()
}

/// The groups that two engines have.
fn both_have(pair: [Source; 2]) -> Groups {
    static WITH: OnceLock<Vec<(Group, Vec<Source>)>> = OnceLock::new();
    let with = WITH.get_or_init(|| Group::ALL.iter().map(|g| (*g, engines_with(*g))).collect());
    let groups = with.iter().filter(|(g, all)| pair.iter().all(|s| all.contains(s) && s.finds(*g)));
    groups.fold(Groups::BASE, |all, (g, _)| all | (*g).into())
}

fn engines_differ(family: &[u32], pair: [Source; 2], found: &mut BTreeSet<String>) {
    let groups = both_have(pair);
    for pid in family {
        for strategy in [Strategy::Thread, Strategy::One] {
            let ask = |s: Source| read(s, &Request::new(strategy, *pid, groups)).ok();
            // A process may have ended, which is no difference.
            let (Some(a1), Some(b), Some(a2)) = (ask(pair[1]), ask(pair[0]), ask(pair[1])) else {
                continue;
            };
            if a1.pids() != b.pids() {
                found.insert(format!("{b} has {:?}, {a1} has {:?}", b.pids(), a1.pids()));
            }
            for tid in b.pids() {
                let (Some(a1), Some(b), Some(a2)) = (a1.get(tid), b.get(tid), a2.get(tid)) else {
                    continue;
                };
                let gap = |d: &String| {
                    pair[0].id() == EngineId::Kernel && d.contains(": one does not know it of ")
                };
                let all = compare(&a1, &b, &a2).differences;
                found.extend(
                    all.into_iter()
                        .filter(|d| !gap(d))
                        .map(|d| format!("{} and {}: {d}", pair[0], pair[1])),
                );
            }
        }
    }
}

/// The differences that no engine can avoid.
fn is_explained(d: &str) -> bool {
    // A removed control group has no directory that /proc could ask for its number.
    // The memory of a map is known to the map only, which BPF does not ask.
    d.contains(": name: bpf \"[bpf-map:") && d.ends_with('"') && d.contains(" memory=")
        || d.contains(" cgroup.id: Some(") && d.ends_with("elsewhere None before and None after")
}

/// The names of all properties.
fn names() -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let m = Mktask::start(&["walk", dir.path().to_str().expect("plain")])
        .expect("nothing is asked for");
    m.text("properties").split(',').map(str::to_owned).collect()
}

/// The subject of a difference, without ids and values.
fn kind(difference: &str) -> String {
    let end = [": Some(", ": None", ": bpf ", ", the kernel", ": one does"]
        .iter()
        .filter_map(|m| difference.find(m))
        .min();
    let head = &difference[..end.unwrap_or(difference.len())];
    head.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// The difference, in words for people.
fn report(seed: u64, scene: &Scene, found: &[String]) -> String {
    let (small, left) = scene.shrunk(found);
    let text = left.join("\n");
    format!(
        "TASKDIAG_WALK_SEED={seed} differs. TASKDIAG_WALK_SCENE='{small}' is the smallest that does:\n{text}\n(all of it: '{scene}')"
    )
}

#[test]
fn engines_faces_and_kernel_agree_about_processes_with_random_properties() {
    let names = names();
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    if let Ok(text) = std::env::var("TASKDIAG_WALK_SCENE") {
        let scene = Scene::parse(&text);
        let found = look_at(&scene, 4, How::of(&scene)).expect("this machine has it");
        assert!(found.is_empty(), "{scene}:\n{}", found.join("\n"));
        return;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64 >> 10;
    let given = number("TASKDIAG_WALK_SEED");
    let mut seeds: Vec<u64> = if given.is_some() { Vec::new() } else { FIXED.to_vec() };
    seeds.push(given.unwrap_or(now));
    let Some(seconds) = number("TASKDIAG_WALK_SECONDS").or(given.map(|_| 0)) else {
        return skip(
            "the random walk",
            "it runs where TASKDIAG_WALK_SECONDS says for how long, as it still finds differences",
        );
    };
    let (begin, mut looked, mut not) = (Instant::now(), 0, 0);
    let mut bad = Vec::new();
    for i in 0.. {
        let last = seeds.len() - 1;
        // After the last one, each seed follows from the previous one.
        let seed = seeds
            .get(i)
            .copied()
            .unwrap_or_else(|| Random(seeds[last].wrapping_add((i - last) as u64)).next() >> 16);
        if bad.len() == MOST_REPORTS || i > last && begin.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        let scene = Scene::random(seed, &names);
        match look_at(&scene, 4, How::of(&scene)) {
            Ok(found) if found.is_empty() => looked += 1,
            Ok(found) => {
                eprintln!("seed {seed} differs: {scene}:\n{}", found.join("\n"));
                bad.push(report(seed, &scene, &found));
                eprintln!("{}", bad[bad.len() - 1]);
            }
            Err(why) => {
                not += 1;
                eprintln!("seed {seed} cannot be made here: {why}: {scene}");
            }
        }
    }
    eprintln!("{looked} scenes are right, {not} could not be made, {} differ", bad.len());
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
    assert!(looked > 0, "no scene could be made");
    if not > looked / 4 {
        skip(
            "scenes of the random walk",
            &format!("{not} of {} cannot be made here", looked + not),
        );
    }
}

/// Looks at a scene that differed once.
fn agrees(scene: &str) {
    match look_at(&Scene::parse(scene), 4, How { legacy: true, faces: true }) {
        Ok(found) => assert!(found.is_empty(), "{scene}:\n{}", found.join("\n")),
        Err(why) => skip(&format!("the scene {scene}"), &why),
    }
}

#[test]
fn a_zombie_in_a_removed_cgroup_leaves_the_controllers_of_the_hierarchy_to_all() {
    agrees("cgroup=32");
}

#[test]
fn the_queues_of_a_udp_lite_socket_are_known_to_both_engines() {
    agrees("socket=4086989935");
}

#[test]
fn a_process_whose_first_thread_has_ended_has_a_table_of_files_and_mapped_files() {
    agrees("end=3");
}

#[test]
fn a_netlink_socket_without_an_address_is_not_connected() {
    agrees("socket=227543920");
}

#[test]
fn a_bound_socket_of_multipath_tcp_is_not_its_subflow() {
    agrees("socket=2336450951");
}

#[test]
fn a_thread_in_another_network_namespace_has_the_sockets_of_its_process() {
    agrees("unix=0 thread=40");
}

#[test]
fn a_socket_that_is_not_connected_has_no_peer() {
    agrees("socket=2131795683");
}
