//! Containers and pods by name in all outputs. The files of the runtimes are laid out here as they
//! lay them out, and the processes are in real control groups with the names that runtimes give
//! them. Podman is tried itself where it can run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag::field::{Context, Field, TASKS};
use taskdiag::recording::Recording;
use taskdiag::view::Query;
use taskdiag::{Choice, EngineId, Session};
use taskdiag_tests::busy::Patience;
use taskdiag_tests::{Source, cli, engines, needs_root, skip};

/// A secret that no output and no recording may contain.
const TOKEN: &str = "s3cr3t-token-of-a-container";
const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
const ROOT: &str = "TASKDIAG_HOST_ROOT";

fn id(n: usize) -> String {
    format!("{n:064x}")
}

fn put(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn docker(root: &Path, id: &str, name: &str, image: &str) {
    let text = format!(
        r#"{{"Config":{{"Env":["TOKEN={TOKEN}"],"Cmd":["--token={TOKEN}"],"Image":"{image}",
        "Labels":{{"token":"{TOKEN}"}}}},"Name":"/{name}"}}"#
    );
    put(root, &format!("var/lib/docker/containers/{id}/config.v2.json"), text);
}

fn wait(what: &str, mut f: impl FnMut() -> Option<()>) {
    let mut patience = Patience::new(Duration::from_secs(60));
    while f().is_none() {
        assert!(!patience.is_over(), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Control groups of version 2 below one of our own. Dropping the value ends the processes in them.
struct Groups {
    slice: String,
    dirs: Vec<String>,
    children: Vec<Child>,
}

impl Groups {
    fn new(test: &str, name: &str) -> Option<Groups> {
        if !needs_root(test) {
            return None;
        }
        let has = |d: &&&str| fs::exists(format!("{d}/cgroup.procs")).is_ok_and(|b| b);
        let Some(root) = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().find(has) else {
            skip(test, "there is no file system of control groups of version 2");
            return None;
        };
        let slice = format!("{root}/taskdiag{name}{}.slice", std::process::id());
        if let Err(e) = fs::create_dir(&slice) {
            skip(test, &format!("no control group can be made here: {e}"));
            return None;
        }
        Some(Groups { slice: slice.clone(), dirs: vec![slice], children: Vec::new() })
    }
    fn make(&mut self, path: &str) -> String {
        let dir = format!("{}/{path}", self.slice);
        let mut at = self.slice.clone();
        for part in path.split('/') {
            at = format!("{at}/{part}");
            if !fs::exists(&at).expect("it can be looked at") {
                fs::create_dir(&at).expect("root may make it");
                self.dirs.push(at.clone());
            }
        }
        dir
    }
    /// A process in this group.
    fn start(&mut self, path: &str) -> u32 {
        let dir = self.make(path);
        let child = run_in(&dir, "exec sleep 1000");
        let pid = child.id();
        self.children.push(child);
        wait("the process is in its group", || {
            let all = fs::read_to_string(format!("{dir}/cgroup.procs")).expect("its processes");
            all.lines().any(|l| l == pid.to_string()).then_some(())
        });
        pid
    }
}

fn run_in(dir: &str, script: &str) -> Child {
    let script = format!("echo $$ > {dir}/cgroup.procs; {script}");
    Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().expect("a shell")
}

/// Ends all processes in a group.
fn end_all(dir: &str) {
    let all = fs::read_to_string(format!("{dir}/cgroup.procs")).unwrap_or_default();
    for pid in all.lines().filter_map(|l| l.parse::<i32>().ok()).filter(|pid| *pid > 1) {
        // SAFETY: it takes two numbers. The process is one that this test put into the group.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for _ in 0..200 {
            self.dirs.iter().for_each(|dir| end_all(dir));
            self.children.iter_mut().for_each(|c| _ = c.try_wait());
            self.dirs.iter().rev().for_each(|dir| _ = fs::remove_dir(dir));
            if !fs::exists(&self.slice).unwrap_or(false) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn names_of_engines() -> Vec<&'static str> {
    let has =
        |name: &&str| engines().iter().any(|s| matches!(s, Source::Engine(e) if e.name() == *name));
    ["bpf", "procfs"].into_iter().filter(has).collect()
}

/// The output of the command, including standard error.
fn taskdiag(root: Option<&Path>, args: &[&str]) -> String {
    let mut command = Command::new(cli::taskdiag());
    command.args(args).stdin(Stdio::null()).env_remove(ROOT);
    if let Some(root) = root {
        command.env(ROOT, root);
    }
    let out = command.output().expect("it runs");
    assert!(matches!(out.status.code(), Some(0 | 1 | 3)), "{args:?}: {out:?}");
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(!text.contains(TOKEN), "{args:?}: {text}");
    assert!(!text.contains('\x1b'), "{args:?}: {text}");
    text
}

const COLUMNS: &str =
    "pid,container_runtime,container_name,image,pod_namespace,pod_name,container:64";

#[test]
fn names_are_in_every_output_and_in_recordings_and_secrets_in_none() {
    let test = "names_are_in_every_output_and_in_recordings_and_secrets_in_none";
    let Some(mut groups) = Groups::new(test, "names") else { return };
    let files = tempfile::tempdir().expect("a directory");
    let root = files.path();
    docker(root, &id(1), "web", "nginx:1.27");
    let annotations = format!(
        r#"{{"process":{{"env":["TOKEN={TOKEN}"]}},"annotations":{{"token":"{TOKEN}",
        "io.kubernetes.cri.container-name":"postgres","io.kubernetes.cri.image-name":"postgres:16",
        "io.kubernetes.cri.sandbox-name":"db-0","io.kubernetes.cri.sandbox-namespace":"shop"}}}}"#
    );
    let bundle = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
    put(root, &format!("{bundle}/{}/config.json", id(2)), annotations);
    let store = format!(
        "[{{\"id\":\"{}\",\"names\":[\"odd\\u001b[31m\"],\"metadata\":\"{{\\\"image-name\\\":\\\"img:1\\\",\\\"x\\\":\\\"{TOKEN}\\\"}}\"}}]",
        id(3)
    );
    put(root, "var/lib/containers/storage/overlay-containers/containers.json", store);
    let web = groups.start(&format!("docker-{}.scope", id(1)));
    let u = UID.replace('-', "_");
    let db = groups.start(&format!("kubepods-pod{u}.slice/cri-containerd-{}.scope", id(2)));
    let odd = groups.start(&format!("libpod-{}.scope/container", id(3)));
    let unknown = groups.start(&format!("docker-{}.scope", id(4)));
    let unit = format!("docker-{}.scope", id(1));

    let row = |text: &str, pid: u32| {
        let line = text.lines().find(|l| l.split_whitespace().next() == Some(&pid.to_string()));
        let line = line.unwrap_or_else(|| panic!("{pid} in {text}"));
        line.split_whitespace().skip(1).take(5).collect::<Vec<_>>().join(" ")
    };
    let check = |text: &str| {
        assert_eq!(row(text, web), "docker web nginx:1.27 - -");
        assert_eq!(row(text, db), "containerd postgres postgres:16 shop db-0");
        assert_eq!(row(text, odd), "podman odd\\x1b[31m img:1 - -");
        assert_eq!(row(text, unknown), "docker - - - -");
    };
    for (by, has) in [
        ("container", "postgres"),
        ("pod", "db-0"),
        ("image", "postgres:16"),
        ("unit", "docker-"),
        ("slice", "taskdiagnames"),
    ] {
        let text = taskdiag(Some(root), &["memory", "--by", by]);
        assert!(text.contains(has), "{by}: {text}");
    }
    // Rows of cgroups have these names, too, and can be selected by them.
    let of_cgroups = |more: &[&str]| {
        let columns = "container_runtime,container_name,image,pod_namespace,pod_name,path";
        let args = ["cgroups", "--flat", "--no-headers", "-o", columns];
        let text = taskdiag(Some(root), &[&args, more].concat());
        let values = |l: &str| l.split_whitespace().take(5).collect::<Vec<_>>().join(" ");
        text.lines().map(values).collect::<Vec<_>>()
    };
    let has = |rows: &[String], want: &str| rows.iter().any(|r| r == want);
    let all = of_cgroups(&[]);
    for want in [
        "docker web nginx:1.27 - -",
        "containerd postgres postgres:16 shop db-0",
        "podman odd\\x1b[31m img:1 - -",
        "docker - - - -",
        "- - - - -",
    ] {
        assert!(has(&all, want), "{want}: {all:?}");
    }
    for (option, name) in [("--container", "postgres"), ("--pod", "shop/db-0")] {
        let rows = of_cgroups(&[option, name]);
        assert!(has(&rows, "containerd postgres postgres:16 shop db-0"), "{rows:?}");
        assert!(!has(&rows, "docker web nginx:1.27 - -"), "{rows:?}");
    }
    let pids = [web, db, odd, unknown].map(|p| p.to_string()).join(",");
    assert!(names_of_engines().contains(&"procfs"));
    for (n, engine) in names_of_engines().into_iter().enumerate() {
        let run = |args: &[&str]| taskdiag(Some(root), &[args, &["--engine", engine]].concat());
        check(&run(&["ps", "-p", &pids, "-o", COLUMNS]));
        for form in ["--json", "--jsonl", "--csv"] {
            let text = run(&["ps", "-p", &pids, form, "-o", COLUMNS]);
            for word in ["\"web\"", "postgres:16", "shop", "db-0", "podman"] {
                assert!(text.contains(word.trim_matches('"')), "{form} {word}: {text}");
            }
        }
        // The options that select.
        let one = |args: &[&str]| {
            let text = run(&[&["ps", "-o", "pid="], args].concat());
            let is_pid = |l: &&str| l.bytes().all(|b| b.is_ascii_digit());
            text.lines().map(str::trim).filter(is_pid).map(str::to_owned).collect::<Vec<_>>()
        };
        for (args, want) in [
            (&["--container", "web"][..], vec![web]),
            (&["--container", &id(1)], vec![web]),
            (&["--container", "web,postgres"], vec![web, db]),
            (&["--pod", "shop/db-0"], vec![db]),
            (&["--pod", "db-0"], vec![db]),
            (&["--pod", UID], vec![db]),
            (&["--pod", "other/db-0"], vec![]),
            (&["--unit", &unit], vec![web]),
            (&["--container", "web", "--where", "pid == 1"], vec![]),
        ] {
            let want: Vec<String> = want.iter().map(u32::to_string).collect();
            assert_eq!(one(args), want, "{engine} {args:?}");
        }
        // The other faces make their rows from the same columns, so one engine is enough.
        if n > 0 {
            continue;
        }
        // The program may be that of busybox.
        let sleep = &["sleep", "busybox"][..];
        for (args, has) in [
            (&["top", "--once", "--by", "container", "--rows", "999"][..], &["postgres"][..]),
            (&["top", "--once", "--by", "pod"], &["db-0"]),
            (&["top", "--once", "--by", "image"], &["nginx:1.27"]),
            (&["maps", "--container", "postgres", "--by", "path"], sleep),
            (&["files", "--pod", "shop/db-0"], sleep),
            (&["tree", "--container", "web"], sleep),
        ] {
            let text = run(args);
            assert!(has.iter().any(|word| text.contains(word)), "{args:?}: {text}");
        }
        let labels = "unit,container,pod,namespace";
        let text =
            run(&["export", "--once", "--families", "groups,containers", "--group-labels", labels]);
        let want = format!(
            "namedprocess_namegroup_num_procs{{groupname=\"sleep\",unit=\"cri-containerd-{}.scope\",container=\"postgres\",pod=\"db-0\",namespace=\"shop\"}} 1",
            id(2)
        );
        assert!(text.contains(&want), "{want}: {text}");
        let want = "container_name=\"web\",image=\"nginx:1.27\",pod_name=\"\",namespace=\"\"} 1";
        assert!(text.contains(want), "{text}");

        // A recording has the names from when it was made, whatever is on disk now.
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path().join("recording");
        let at = place.to_str().expect("a plain path");
        run(&["record", at, "--count", "2", "--every", "100ms"]);
        let elsewhere = tempfile::tempdir().expect("a directory");
        for root in [None, Some(elsewhere.path())] {
            check(&taskdiag(root, &["ps", "--from", at, "-p", &pids, "-o", COLUMNS]));
            let text = taskdiag(root, &["ps", "--from", at, "--container", "web", "-o", "pid="]);
            assert_eq!(text.split_whitespace().next(), Some(web.to_string().as_str()), "{text}");
        }
        let has_token = |bytes: &[u8]| bytes.windows(TOKEN.len()).any(|w| w == TOKEN.as_bytes());
        let recording = Recording::open(&place).expect("a recording");
        assert_eq!(recording.len(), 2);
        for frame in recording.iter() {
            let frame = frame.expect("it is whole");
            assert!(frame.snapshot.stream().containers().len() >= 4);
            assert!(!has_token(frame.snapshot.stream().bytes()));
        }
        for file in fs::read_dir(&place).expect("its files") {
            assert!(!has_token(&fs::read(file.expect("one").path()).expect("its bytes")));
        }
        let page = elsewhere.path().join("page.html");
        let out = page.to_str().expect("a plain path");
        run(&["report", "-o", out]);
        assert!(!has_token(&fs::read(&page).expect("the page")));
    }
}

#[test]
fn containers_without_a_known_name_are_added_up_by_their_ids() {
    let test = "containers_without_a_known_name_are_added_up_by_their_ids";
    let Some(mut groups) = Groups::new(test, "nameless") else { return };
    let files = tempfile::tempdir().expect("a directory");
    docker(files.path(), &id(400_001), "web", "nginx:1.27");
    let named = groups.start(&format!("docker-{}.scope", id(400_001)));
    let nameless = groups.start(&format!("docker-{}.scope", id(400_002)));
    let pod = format!("pod{UID}/{}", id(400_003));
    let in_pod = groups.start(&format!("kubepods/{pod}"));
    let own = std::process::id();
    let pids = [named, nameless, in_pod, own].map(|pid| pid.to_string()).join(",");
    let (two, three) = (id(400_002), id(400_003));
    for engine in names_of_engines() {
        let keys = |args: &[&str], column: &str| {
            let text = taskdiag(Some(files.path()), &[args, &["--json"]].concat());
            let rows: Vec<serde_json::Value> =
                serde_json::from_str(&text[text.find('[').expect(&text)..]).expect(&text);
            let key = |row: &serde_json::Value| row[column].as_str().unwrap_or("-").to_owned();
            rows.iter().map(key).collect::<BTreeSet<_>>()
        };
        let of = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        let maps = ["maps", "-p", &pids, "--engine", engine, "--by"];
        for by in ["container", "container_name"] {
            let got = keys(&[&maps[..], &[by]].concat(), "container_name");
            assert_eq!(got, of(&["web", &two, &three, "-"]), "{engine} {by}");
        }
        let got = keys(&[&maps[..], &["pod"]].concat(), "pod_name");
        assert_eq!(got, of(&[UID, "-"]), "{engine}");
        let text = taskdiag(
            Some(files.path()),
            &["top", "--once", "--by", "container", "--rows", "999", "--engine", engine],
        );
        assert!(text.contains("web") && text.contains(&two), "{engine}: {text}");
    }
    let memory = ["memory", "-p", &pids, "--by", "container"];
    let text = taskdiag(Some(files.path()), &memory);
    assert!(text.contains(&two) && text.contains("web"), "{text}");
}

#[test]
fn a_group_in_a_directory_of_a_user_does_not_get_the_name_of_a_container_of_root() {
    let test = "a_group_in_a_directory_of_a_user_does_not_get_the_name_of_a_container_of_root";
    let Some(mut groups) = Groups::new(test, "foreign") else { return };
    let files = tempfile::tempdir().expect("a directory");
    docker(files.path(), &id(300_001), "bank", "bank:1");
    let service = groups.make("user.service");
    std::os::unix::fs::chown(&service, Some(31_337), Some(31_337)).expect("root may");
    let own = groups.start(&format!("docker-{}.scope", id(300_001)));
    let foreign = groups.start(&format!("user.service/docker-{}.scope", id(300_001)));
    for engine in names_of_engines() {
        let names = |pid: u32| {
            let pid = pid.to_string();
            let args = ["ps", "-p", &pid, "--engine", engine, "-o", "container_name=,image="];
            taskdiag(Some(files.path()), &args).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(own), "bank bank:1", "{engine}");
        assert_eq!(names(foreign), "- -", "{engine}");
    }
}

/// How long containers come and go.
fn churn_time() -> Duration {
    match std::env::var("TASKDIAG_LONG_CONTAINERS") {
        Ok(_) => Duration::from_secs(600),
        Err(_) => {
            eprintln!("TASKDIAG_LONG_CONTAINERS is not set: containers come and go for 3 s only");
            Duration::from_secs(3)
        }
    }
}

#[test]
fn each_of_fifty_containers_that_come_and_go_has_its_own_name() {
    let test = "each_of_fifty_containers_that_come_and_go_has_its_own_name";
    let Some(mut groups) = Groups::new(test, "churn") else { return };
    let files = tempfile::tempdir().expect("a directory");
    let root = files.path();
    let mut live: BTreeMap<usize, (u32, String)> = BTreeMap::new();
    // Tests run side by side, and each has ids of its own.
    let mut next = 100_000;
    let mut start = |groups: &mut Groups, live: &mut BTreeMap<usize, (u32, String)>| {
        docker(root, &id(next), &format!("c{next}"), &format!("img:{next}"));
        let group = format!("docker-{}.scope", id(next));
        let pid = groups.start(&group);
        live.insert(next, (pid, format!("{}/{group}", groups.slice)));
        next += 1;
    };
    for _ in 0..50 {
        start(&mut groups, &mut live);
    }
    let (begun, time) = (Instant::now(), churn_time());
    let mut rounds = 0;
    while begun.elapsed() < time || rounds < 3 {
        for engine in names_of_engines() {
            let columns = "pid=,container:64=,container_name=,image=";
            let args =
                ["ps", "-e", "--where", "container known", "--engine", engine, "-o", columns];
            let text = taskdiag(Some(root), &args);
            let lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
            let mut seen = BTreeSet::new();
            for line in lines {
                let Some(n) = live.iter().find(|(n, _)| line.get(1) == Some(&id(**n).as_str()))
                else {
                    continue;
                };
                let want = [format!("c{}", n.0), format!("img:{}", n.0)];
                assert_eq!(line[2..], want, "{engine}: {text}");
                seen.insert(*n.0);
            }
            assert!(live.keys().all(|n| seen.contains(n)), "{engine}: {seen:?} of {live:?}");
        }
        // Some containers end, and others begin.
        for _ in 0..10 {
            let (n, (_, dir)) = live.pop_first().expect("there are fifty");
            end_all(&dir);
            fs::remove_dir_all(root.join(format!("var/lib/docker/containers/{}", id(n))))
                .expect("it is removed");
            start(&mut groups, &mut live);
        }
        groups.children.iter_mut().for_each(|c| _ = c.try_wait());
        groups.dirs.retain(|dir| fs::remove_dir(dir).is_err());
        rounds += 1;
    }
    println!("{rounds} rounds, {} containers", next - 100_000);
}

#[test]
fn columns_of_places_ask_for_no_path_that_is_a_root() {
    let place = ["unit", "cgroup", "cgroup_path", "container", "container_name", "ouid"];
    let fields = place.map(|n| TASKS.find(n).expect("a column").field);
    let all = taskdiag::Request::all(taskdiag::Groups::CGROUP);
    let few = all.clone().with_members(taskdiag::field::members_of(fields));
    let is_bare = |(n, path): &(u32, String)| *n != 0 && path.ends_with(":/");
    for engine in names_of_engines() {
        let id = if engine == "bpf" { EngineId::Bpf } else { EngineId::Procfs };
        let paths = |request: &taskdiag::Request| -> BTreeMap<u32, Vec<(u32, String)>> {
            let mut session = Session::open(request.clone(), Choice::Only(id)).expect("a session");
            let answer = session.refresh().expect("an answer");
            let text = |(n, path): (u32, &[u8])| (n, String::from_utf8_lossy(path).into_owned());
            answer.tasks().map(|t| (t.pid(), t.cgroups().map(text).collect())).collect()
        };
        let (few, all) = (paths(&few), paths(&all));
        // Other processes may move meanwhile, but this process stays where it is.
        let own = std::process::id();
        let want: Vec<_> = all[&own].iter().filter(|p| !is_bare(p)).cloned().collect();
        assert_eq!(few[&own], want, "{engine}");
        assert!(!want.is_empty());
        assert!(!few.values().flatten().any(is_bare), "{engine}: {few:?}");
        let text = fs::read_to_string("/proc/self/cgroup").expect("our own");
        assert_eq!(all[&own].len(), text.lines().count(), "{engine}");
    }
}

/// More sets of cgroups than one run of the BPF program meets, in turn from task to task, so that
/// paths are copied from earlier runs. Then groups are removed and others made, whose sets get the
/// memory of the old ones.
#[test]
fn tasks_of_many_groups_in_turn_have_the_paths_of_their_own() {
    let test = "tasks_of_many_groups_in_turn_have_the_paths_of_their_own";
    let Some(mut groups) = Groups::new(test, "turn") else { return };
    let request = taskdiag::Request::all(taskdiag::Groups::CGROUP);
    let ids = names_of_engines();
    let mut sessions: Vec<Session> = ids
        .iter()
        .map(|name| if *name == "bpf" { EngineId::Bpf } else { EngineId::Procfs })
        .map(|id| Session::open(request.clone(), Choice::Only(id)).expect("a session"))
        .collect();
    let mut tasks: Vec<(String, u32)> = Vec::new();
    for generation in 0..3 {
        let dirs: Vec<String> =
            (0..100).map(|n| groups.make(&format!("{generation}-{n}/inner-{n}"))).collect();
        for _ in 0..8 {
            for dir in &dirs {
                let child = Command::new("sleep").arg("1000").spawn().expect("it starts");
                fs::write(format!("{dir}/cgroup.procs"), child.id().to_string()).expect("moved");
                tasks.push((dir.clone(), child.id()));
                groups.children.push(child);
            }
        }
        let texts: BTreeMap<u32, Vec<String>> = tasks
            .iter()
            .map(|(_, pid)| (*pid, fs::read_to_string(format!("/proc/{pid}/cgroup"))))
            .map(|(pid, text)| (pid, text.expect("it lives").lines().map(str::to_owned).collect()))
            .collect();
        for (name, session) in ids.iter().zip(&mut sessions) {
            let answer = session.refresh().expect("an answer");
            for (pid, want) in &texts {
                let task = answer.task(*pid).expect("it lives");
                let line =
                    |(n, path): (u32, &[u8])| format!("{n}:{}", String::from_utf8_lossy(path));
                assert_eq!(task.cgroups().map(line).collect::<Vec<_>>(), *want, "{name} {pid}");
            }
        }
        // The first of these groups end, and with them their sets.
        let ended: Vec<String> = dirs.into_iter().take(60).collect();
        ended.iter().for_each(|dir| end_all(dir));
        tasks.retain(|(dir, _)| !ended.contains(dir));
        wait("their processes have ended", || {
            groups.children.iter_mut().for_each(|child| _ = child.try_wait());
            ended
                .iter()
                .all(|dir| fs::remove_dir(dir).is_ok() || !Path::new(dir).exists())
                .then_some(())
        });
    }
    assert!(tasks.len() >= 3 * 40 * 8);
}

/// CPU time of this thread, which tells the cost also on a busy machine.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the value that it gets.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) }, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the CPU time for an answer with these columns and all values as text, the share of the
/// engine in it, and the number of rows.
fn answer(
    session: &mut Session,
    fields: &[&'static Field],
    query: &Query,
) -> ([Duration; 2], usize) {
    let begun = cpu_time();
    let snapshot = session.refresh().expect("an answer");
    let of_engine = cpu_time() - begun;
    let view = query.view(snapshot);
    let cx: &Context = view.cx();
    let mut out = Vec::new();
    let mut rows = 0;
    for i in view.tasks() {
        let row = taskdiag::field::Row::new(snapshot.stream().get(*i as usize).expect("a task"));
        for field in fields {
            let value = (field.get)(cx, &row);
            taskdiag::field::text(&mut out, cx, field.text, Some(&row), &value);
            out.push(b' ');
        }
        rows += 1;
    }
    assert!(!out.is_empty());
    ([cpu_time() - begun, of_engine], rows)
}

#[test]
fn names_cost_little_in_the_second_answer() {
    let test = "names_cost_little_in_the_second_answer";
    let Some(mut groups) = Groups::new(test, "cost") else { return };
    let (containers, each) = match std::env::var("TASKDIAG_LONG_CONTAINERS") {
        Ok(_) => (200, 50),
        Err(_) => {
            eprintln!("TASKDIAG_LONG_CONTAINERS is not set: 1,000 processes instead of 10,000");
            (50, 20)
        }
    };
    let files = tempfile::tempdir().expect("a directory");
    for n in 10_001..=10_000 + containers {
        docker(files.path(), &id(n), &format!("c{n}"), "img:1");
        let dir = groups.make(&format!("docker-{}.scope", id(n)));
        let script =
            format!("n=0; while [ $n -lt {each} ]; do sleep 1000 & n=$((n+1)); done; wait");
        let child = run_in(&dir, &script);
        groups.children.push(child);
    }
    wait("all processes have begun", || {
        let count = |dir: &String| {
            fs::read_to_string(format!("{dir}/cgroup.procs")).map_or(0, |t| t.lines().count())
        };
        (groups.dirs.iter().map(count).sum::<usize>() >= containers * each).then_some(())
    });
    taskdiag::containers::set_host_root(files.path());
    let engine = match names_of_engines().contains(&"bpf") {
        true => EngineId::Bpf,
        false => EngineId::Procfs,
    };
    let plain = "user,pid,ppid,s,nlwp,time,rss,start,args";
    let sets = [
        plain.to_owned(),
        format!("{plain},container"),
        format!("{plain},container_name,image,pod_name"),
    ];
    let mut all: Vec<_> = sets
        .iter()
        .map(|columns| {
            let fields: Vec<&'static Field> =
                columns.split(',').map(|n| TASKS.find(n).expect("a column").field).collect();
            let query = Query::new(&TASKS, fields.iter().copied());
            let taskdiag::view::Plan::One(request) = query.plan() else { panic!("one request") };
            let session = Session::open(request, Choice::Only(engine)).expect("a session");
            (session, fields, query, Vec::new())
        })
        .collect();
    for _ in 0..12 {
        for (session, fields, query, times) in &mut all {
            let (time, rows) = answer(session, fields, query);
            assert!(rows >= containers * each);
            times.push(time);
        }
    }
    // The first answer reads the files.
    let best = |times: &[[Duration; 2]], part: usize| {
        times[1..].iter().map(|t| t[part]).min().expect("there are some").as_secs_f64() * 1e3
    };
    let [without, ids, names] = [0, 1, 2].map(|n| [0, 1].map(|part| best(&all[n].3, part)));
    println!(
        "{engine:?}, {} processes in {containers} containers, ms of CPU time, and of the engine in it: \
         {without:.2?} without, {ids:.2?} with ids, {names:.2?} with names",
        containers * each
    );
    // The cost of names is the time that they add in the faces, because ids cost the engine the
    // same.
    let [own_ids, own_names] = [ids, names].map(|[all, engine]| all - engine);
    assert!(own_names < 2.0 * own_ids + 2.0, "{own_names} ms with names, {own_ids} ms with ids");
}

#[test]
fn containers_of_podman_have_the_names_that_podman_shows() {
    let test = "containers_of_podman_have_the_names_that_podman_shows";
    if !needs_root(test) {
        return;
    }
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !["podman", "runc", "cc"].iter().all(|p| has(p)) {
        return skip(test, "podman, runc and a compiler are not all installed");
    }
    // In mounts of its own, it sees control groups of version 2 only, as most machines have.
    let script = r#"
        mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup || exit 77
        cd "$1" && mkdir image && printf 'int pause(void); int main(void) { for (;;) pause(); }' > s.c
        cc -static -o image/s s.c && tar -C image -cf image.tar . || exit 77
        podman="podman --root $1/root --runroot $1/run --cgroup-manager cgroupfs --runtime runc"
        end() {
            $podman rm -af -t0 >/dev/null; $podman rmi -af >/dev/null
            find /sys/fs/cgroup/libpod_parent -depth -type d -exec rmdir {} + 2>/dev/null
        }
        trap end EXIT
        $podman import image.tar localhost/taskdiag:1 >/dev/null || exit 77
        for name in web db_2; do
            $podman run -d --privileged --network none --ulimit nofile=1024:1024 \
                --ulimit nproc=1000:1000 --pids-limit=-1 --name $name -e TOKEN=$3 \
                --annotation token=$3 localhost/taskdiag:1 /s >/dev/null || exit 77
        done
        mkdir -p host/etc/containers host/var/lib
        printf 'graphroot = "/root"\n' > host/etc/containers/storage.conf
        ln -s "$1/root" host/root
        echo "== podman"; $podman ps --no-trunc --format '{{.ID}} {{.Names}} {{.Image}}' | sort
        echo "== taskdiag"; TASKDIAG_HOST_ROOT="$1/host" $2 ps -e --where 'container_name known and comm == s' \
            -o container:64=,container_name=,image= | tr -s ' ' | sort
        $podman rename db_2 db_3
        echo "== renamed"; TASKDIAG_HOST_ROOT="$1/host" $2 ps --container db_3 -o container_name=
    "#;
    // This token is in the arguments of podman, which other tests may see.
    let token = "another-token";
    let dir = tempfile::tempdir().expect("a directory");
    let out = Command::new("timeout")
        .args(["120", "unshare", "-m", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(cli::taskdiag())
        .arg(token)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    if out.status.code() == Some(77) {
        let why = String::from_utf8_lossy(&out.stderr);
        return skip(test, &format!("podman cannot run here: {}", why.trim()));
    }
    let part = |from: &str, to: &str| {
        let begin = text.find(from).unwrap_or_else(|| panic!("{from}: {out:?}")) + from.len();
        let end = text[begin..].find(to).map_or(text.len(), |at| begin + at);
        text[begin..end].trim().lines().map(|l| l.trim().to_owned()).collect::<Vec<_>>()
    };
    assert!(out.status.success(), "{out:?}");
    let (theirs, ours) = (part("== podman", "== taskdiag"), part("== taskdiag", "== renamed"));
    assert_eq!(theirs.len(), 2, "{out:?}");
    assert_eq!(ours, theirs, "{out:?}");
    assert_eq!(part("== renamed", "\u{0}"), ["db_3"], "{out:?}");
    assert!(!text.contains(token), "{text}");
}
