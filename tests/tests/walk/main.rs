//! A random walk: makes processes with random properties (`tests/mktask/walk.c`), and compares what
//! the engines, the faces and the kernel itself say about them. A difference is printed with its
//! seed and the smallest list of properties that still has it.
//!
//! It runs for `TASKDIAG_WALK_SECONDS`. It begins with `TASKDIAG_WALK_SEED`, or with some fixed
//! seeds and then a new one. Without these variables, only the scenes that differed once are looked
//! at, because no long walk has ended without a difference yet. `TASKDIAG_WALK_SCENE="file=9
//! end=3"` looks at one scene only.

mod faces;
mod kernel;
mod python;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use taskdiag::{EngineId, Group, Groups, Processes, Request};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::busy::Patience;
use taskdiag_tests::compare::compare;
use taskdiag_tests::{Mktask, Source, engines, read, skip};

/// The seeds of the scenes that each run of the tests looks at, and a longer walk begins with.
const FIXED: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 93867408048127, 124487591221559];

/// The walk ends after this number of differences, because most further ones would be repetitions.
const MOST_REPORTS: usize = 20;

/// The state of a listener, of include/net/tcp_states.h.
const TCP_LISTEN: i32 = 10;

/// How long a smaller scene is looked for.
const SHRINK: Duration = Duration::from_secs(90);

/// The number of scenes that are looked at together, because each look costs the start of about 20
/// programs.
const TOGETHER: usize = 16;

/// The differences, each with the pid of its process.
pub type Found = BTreeSet<(u32, String)>;

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
            // Files have many kinds and states, so their properties come more often.
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
            legacy: found.iter().any(|d| d.contains("bpf-legacy and ")),
            about: found.to_vec(),
        };
        let kinds: BTreeSet<String> = found.iter().map(|d| kind(d)).collect();
        let differs = |scene: &Scene| {
            let found =
                if begin.elapsed() > SHRINK { Ok(Vec::new()) } else { look_at_one(scene, 2, &how) };
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

/// The process and all that descend from its supervisor. The kernel may leave a process out of the
/// list of children while another one of them ends (proc(5)), so the lists are read again for up to
/// a second. The process itself counts even if it is in no list.
fn family(m: &Mktask) -> Vec<u32> {
    let read_from = |first: Vec<u32>| {
        let mut found = first;
        let mut i = 0;
        while i < found.len() {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", found[i])).into_iter().flatten();
            let files = tasks.flatten().map(|t| t.path().join("children"));
            let texts: Vec<String> =
                files.filter_map(|f| std::fs::read_to_string(f).ok()).collect();
            found.extend(
                texts.join(" ").split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()),
            );
            i += 1;
        }
        found
    };
    let read = || read_from(vec![m.supervisor()]).split_off(1);
    let mut found = read();
    for _ in 0..100 {
        if found.contains(&m.pid()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        found = read();
    }
    if !found.contains(&m.pid()) {
        found.extend(read_from(vec![m.pid()]));
    }
    found
}

/// Waits until the process is in the state in which it is to be looked at.
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

/// The parts of a scene that are looked at.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// The BPF program for older kernels, too.
    legacy: bool,
    /// Look only at the subjects of these differences, or at everything if there are none.
    about: Vec<String>,
}

impl How {
    /// Whether these differences are of the two engines without the commands.
    fn has_engines(&self) -> bool {
        self.about.is_empty() || self.about.iter().any(|d| d.contains(" and procfs: "))
    }
    /// Whether this face is looked at.
    pub fn has_face(&self, name: &str) -> bool {
        self.about.is_empty() || self.about.iter().any(|d| d.starts_with(name))
    }
    fn has_faces(&self) -> bool {
        self.about.is_empty() || self.about.iter().any(|d| !d.contains(" and procfs: "))
    }
}

/// A scene that was made.
struct Made {
    m: Mktask,
    family: Vec<u32>,
    _dir: tempfile::TempDir,
}

/// Makes a scene. `Err` says why it cannot be made here.
fn make(scene: &Scene) -> Result<Made, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = std::fs::canonicalize(dir.path()).expect("it exists");
    let words: Vec<String> = scene.0.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let mut args = vec!["walk", path.to_str().expect("a plain path")];
    args.extend(words.iter().map(String::as_str));
    let m = Mktask::attempt(&args)?;
    arrive(&m);
    Ok(Made { family: family(&m), m, _dir: dir })
}

/// Makes these scenes together, and returns the differences in each.
fn look_at(scenes: &[Scene], attempts: u64, how: &How) -> Vec<Result<Vec<String>, String>> {
    let made: Vec<_> = scenes.iter().map(make).collect();
    let all: Vec<&Made> = made.iter().flatten().collect();
    let subjects: Vec<&Mktask> = all.iter().map(|one| &one.m).collect();
    let mut families: Vec<u32> = all.iter().flat_map(|one| one.family.iter().copied()).collect();
    families.sort_unstable();
    let (mut last, mut how) = (Found::new(), how.clone());
    for attempt in 0..if all.is_empty() { 0 } else { attempts } {
        std::thread::sleep(Duration::from_millis(100 * attempt));
        let mut found = Found::new();
        for pair in pairs(how.legacy).into_iter().filter(|_| how.has_engines()) {
            engines_differ(&families, pair, &mut found);
        }
        if how.has_faces() {
            let shown = faces::differ(&families, &how, &mut found);
            kernel::differs(&subjects, &shown, &mut found);
        }
        found.retain(|(_, d)| !is_explained(d));
        // A difference counts if it occurs twice.
        last = if attempt == 0 { found } else { last.intersection(&found).cloned().collect() };
        if last.is_empty() {
            break;
        }
        how.about = last.iter().map(|(_, d)| d.clone()).collect();
    }
    // A difference that is about none of these processes is reported with the first one.
    let first = all.first().map_or(0, |one| one.m.pid());
    let of = |one: &Made| {
        let is =
            |pid: &u32| one.family.contains(pid) || one.m.pid() == first && !families.contains(pid);
        last.iter().filter(|(pid, _)| is(pid)).map(|(_, d)| d.clone()).collect()
    };
    made.iter().map(|one| one.as_ref().map(of).map_err(String::clone)).collect()
}

/// Makes one scene and returns the differences.
fn look_at_one(scene: &Scene, attempts: u64, how: &How) -> Result<Vec<String>, String> {
    look_at(std::slice::from_ref(scene), attempts, how).remove(0)
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

/// The requests about these processes. If there are many, there is no request about each one,
/// because that takes too long.
fn requests(families: &[u32], groups: Groups) -> Vec<Request> {
    let (Some(first), Some(last)) = (families.first(), families.last()) else { return Vec::new() };
    let these = Processes { first: *first, last: *last };
    let lists = [Request::all_threads(groups), Request::all(groups)];
    let lists = lists.into_iter().map(|r| r.with_processes(these));
    let few = if families.len() > 6 { &[] } else { families };
    let both = |pid: &u32| [Request::threads(*pid, groups), Request::one(*pid, groups)];
    lists.chain(few.iter().flat_map(both)).collect()
}

fn engines_differ(families: &[u32], pair: [Source; 2], found: &mut Found) {
    let groups = both_have(pair);
    for request in requests(families, groups) {
        let ask = |s: Source| read(s, &request).ok();
        // A process may have ended, which is no difference.
        let (Some(a1), Some(b), Some(a2)) = (ask(pair[1]), ask(pair[0]), ask(pair[1])) else {
            continue;
        };
        for pid in families {
            let [of_a1, of_b, of_a2] = [&a1, &b, &a2].map(|a| a.pids_of(*pid));
            if of_a1 == of_a2 && of_a1 != of_b {
                found.insert((*pid, format!("{b} has {of_b:?}, {a1} has {of_a1:?}")));
            }
            for tid in of_b {
                let (Some(a1), Some(b), Some(a2)) = (a1.get(tid), b.get(tid), a2.get(tid)) else {
                    continue;
                };
                // An answer has the entry of a mapped file once, in any process that maps it.
                let elsewhere =
                    |d: &str| !request.strategy.takes_pid() && d.contains(" task_diag_file_stat: ");
                let gap = |d: &String| {
                    pair[0].id() == EngineId::Kernel && d.contains(": one does not know it of ")
                        || elsewhere(d)
                };
                let all = compare(&a1, &b, &a2).differences;
                let text = |d| (*pid, format!("{} and {}: {d}", pair[0], pair[1]));
                found.extend(all.into_iter().filter(|d| !gap(d)).map(text));
            }
        }
    }
}

/// The differences that no engine can avoid.
fn is_explained(d: &str) -> bool {
    // The memory of a map is known to the map only, which BPF does not ask.
    let of_map =
        d.contains(": name: bpf \"[bpf-map:") && d.ends_with('"') && d.contains(" memory=");
    // A removed control group has no directory that /proc could ask for its number.
    let removed =
        d.contains(" cgroup.id: Some(") && d.ends_with("elsewhere None before and None after");
    // Where the kernel lists no sockets of a protocol, /proc/net has less about them.
    let is = |member: &str| d.contains(&format!("{member}: one does not know it of "));
    let of = |key: &str| {
        let text = d.split_once(&format!("\"{key}\": ")).map_or("", |(_, rest)| rest);
        text.split([',', '}']).next().and_then(|n| n.parse::<i32>().ok()).unwrap_or(0)
    };
    let of_local = (is("peer_inode") || is("_queue_bytes")) && of("family") == libc::AF_UNIX;
    let of_inet = matches!(of("family"), libc::AF_INET | libc::AF_INET6);
    let of_mptcp = of_inet && of("protocol") == libc::IPPROTO_MPTCP;
    let in_list = if of_mptcp { libc::IPPROTO_TCP } else { of("protocol") };
    let has_less = is("ifindex") || is("send_queue_bytes") && of("state") == TCP_LISTEN;
    let unlisted = of_local && !kernel::lists_sockets(libc::AF_UNIX, 0)
        || of_inet && has_less && !kernel::lists_sockets(of("family"), in_list)
        // Asking the socket itself does not give more data about its connection.
        || of_mptcp && is("state") && !kernel::lists_sockets(of("family"), of("protocol"));
    // Before Linux 6.9, there is no descriptor of a thread, and that of a process has none of its
    // files once the first thread has ended. So a socket in no list cannot be asked.
    let is_bare = |group: &str, member: &str| {
        d.contains(&format!(" task_diag_{group} ")) && !d.contains(&format!("\"{member}\": "))
    };
    let unasked = is("")
        && (is_bare("socket", "state") || is_bare("net", "family"))
        && !kernel::has_pidfds_of_threads();
    of_map || removed || unlisted || unasked
}

/// The names of all properties.
fn names() -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let m = Mktask::start(&["walk", dir.path().to_str().expect("plain")])
        .expect("nothing is asked for");
    m.text("properties").split(',').map(str::to_owned).collect()
}

/// The kind of a difference: its text without ids and values.
fn kind(difference: &str) -> String {
    let end = [": Some(", ": None", ": bpf ", ", the kernel", ": one does"]
        .iter()
        .filter_map(|m| difference.find(m))
        .min();
    let head = &difference[..end.unwrap_or(difference.len())];
    head.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// A report of differences for people.
fn report(seed: u64, scene: &Scene, found: &[String]) -> String {
    let (small, left) = scene.shrunk(found);
    let text = left.join("\n");
    if small == *scene
        && look_at_one(scene, 4, &How { legacy: true, about: Vec::new() })
            .is_ok_and(|f| f.is_empty())
    {
        return format!(
            "TASKDIAG_WALK_SEED={seed} differed together with others, but not alone:\n{text}\n({scene})"
        );
    }
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
        let how = How { legacy: true, about: Vec::new() };
        let found = look_at_one(&scene, 4, &how).expect("this machine has it");
        assert!(found.is_empty(), "{scene}:\n{}", found.join("\n"));
        return;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64 >> 10;
    let given = number("TASKDIAG_WALK_SEED");
    let mut seeds: Vec<u64> = if given.is_some() { Vec::new() } else { FIXED.to_vec() };
    let seconds = number("TASKDIAG_WALK_SECONDS").unwrap_or(0);
    if given.is_some() || seconds > 0 {
        seeds.push(given.unwrap_or(now));
    }
    let (begin, mut looked, mut not) = (Instant::now(), 0, 0);
    let (mut bad, mut differ, mut said) = (Vec::new(), 0, Instant::now());
    let mut seen = BTreeSet::new();
    let last = seeds.len() - 1;
    // From the last one on, each seed follows from the previous one.
    let follows = |i: usize| Random(seeds[last].wrapping_add((i - last) as u64)).next() >> 16;
    let all = (0..).map(|i| seeds.get(i).copied().unwrap_or_else(|| follows(i)));
    let mut all = all.take(if seconds == 0 { seeds.len() } else { usize::MAX }).peekable();
    let is_over = |bad: &Vec<String>| bad.len() >= MOST_REPORTS;
    for round in 0.. {
        let over = looked > 0 && begin.elapsed() > Duration::from_secs(seconds);
        if is_over(&bad) || over || all.peek().is_none() {
            break;
        }
        let seeds: Vec<u64> = all.by_ref().take(TOGETHER).collect();
        let scenes: Vec<Scene> = seeds.iter().map(|s| Scene::random(*s, &names)).collect();
        let how = How { legacy: round % 4 == 0, about: Vec::new() };
        for ((seed, scene), result) in seeds.iter().zip(&scenes).zip(look_at(&scenes, 4, &how)) {
            match result {
                Ok(found) if found.is_empty() => looked += 1,
                Ok(found) => {
                    differ += 1;
                    eprintln!("seed {seed} differs: {scene}:\n{}", found.join("\n"));
                    // Each kind is reported once, because it takes long to find a smaller scene.
                    let kinds: Vec<String> = found.iter().map(|d| kind(d)).collect();
                    if !is_over(&bad) && !kinds.iter().all(|k| seen.contains(k)) {
                        bad.push(report(*seed, scene, &found));
                        eprintln!("{}", bad[bad.len() - 1]);
                    }
                    seen.extend(kinds);
                }
                Err(why) => {
                    not += 1;
                    eprintln!("seed {seed} cannot be made here: {why}: {scene}");
                }
            }
        }
        if said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            let seconds = begin.elapsed().as_secs();
            eprintln!("{seconds} s, {looked} scenes are right, {differ} differ");
        }
    }
    let seconds = begin.elapsed().as_secs();
    eprintln!("{seconds} s, {looked} scenes are right, {not} could not be made, {differ} differ");
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
    assert!(looked > 0, "no scene could be made");
    let asked = kernel::FILES_ASKED.load(Ordering::Relaxed);
    assert!(asked > looked, "only {asked} open files were compared with the kernel's word");
    if not > looked / 4 {
        skip(
            "scenes of the random walk",
            &format!("{not} of {} cannot be made here", looked + not),
        );
    }
}

/// Looks at one scene that differed in an earlier walk.
fn agrees(scene: &str) {
    match look_at_one(&Scene::parse(scene), 4, &How { legacy: true, about: Vec::new() }) {
        Ok(found) => assert!(found.is_empty(), "{scene}:\n{}", found.join("\n")),
        Err(why) => skip(&format!("the scene {scene}"), &why),
    }
}

#[test]
fn a_zombie_in_a_removed_cgroup_leaves_the_controllers_of_the_hierarchy_to_all() {
    agrees("cgroup=32");
}

#[test]
fn a_cgroup_with_a_name_of_more_than_255_bytes_has_all_of_it() {
    agrees("cgroup=2201947297");
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
fn a_socket_without_an_address_is_asked_through_a_living_thread() {
    agrees("end=3 socket=1");
}

#[test]
fn a_closed_socket_of_multipath_tcp_has_the_port_of_getsockname() {
    agrees("socket=1294327461");
}

#[test]
fn a_client_of_multipath_tcp_that_fell_back_to_tcp_keeps_its_protocol() {
    agrees("socket=8458757");
}

#[test]
fn a_bound_socket_of_tcp_has_its_counters_by_both_engines() {
    agrees("socket=2816193473");
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

#[test]
fn an_open_namespace_has_no_size() {
    agrees("file=853486976");
}

#[test]
fn a_process_in_a_tree_has_the_counts_of_all_its_threads() {
    agrees("thread=0");
}

#[test]
fn each_process_that_shares_a_table_of_files_has_its_count_in_the_metrics() {
    agrees("clone=2");
}
