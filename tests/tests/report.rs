//! `taskdiag report`: the data of the page compared with /proc, and the page in a browser.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use taskdiag::field::escape;
use taskdiag::wire::{A_CGROUP_PATH, Done, StreamWriter, TASK_KTHREAD, build};
use taskdiag::{
    Base, Cgroup, Cred, FdCount, Group, Groups, Io, Reason, Rollup, Stat, Statm, Strategy,
};
use taskdiag_tests::busy::{crowd, wait_for_sleep};
use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::{Ended, Mktask, skip};

/// Names of processes that try to break out of the page.
const HOSTILE: &[u8] =
    b"</script><img src=x onerror=alert(1)>\"'&lt;<!--\x1b[31m\xff\xe2\x80\xae\xe2\x80\xa8]]>\n${1}";

fn text(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    escape(&mut out, bytes);
    String::from_utf8(out).expect("escaped text is UTF-8")
}

/// The data of a page.
struct Page(Value);

impl Page {
    fn new(page: &str) -> Page {
        let start = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap().1;
        let data = start.split_once("</script>").unwrap().0;
        assert!(!data.contains('<'));
        Page(serde_json::from_str(data).expect("the data is JSON"))
    }
    fn rows(&self, table: &str) -> &[Value] {
        self.0[table]["rows"].as_array().expect("a table")
    }
    /// A value of a row: a number or a word. Absent if it is not known.
    fn value(&self, table: &str, row: &Value, name: &str) -> Value {
        let columns = self.0[table]["columns"].as_array().expect("a table");
        let at = columns.iter().position(|c| c["name"] == name);
        let at = at.unwrap_or_else(|| panic!("there is no column {name}"));
        match row[at].as_i64() {
            Some(-1) => Value::from("-"),
            Some(n) if n < -1 => {
                let reason = &self.0["reasons"][(-2 - n) as usize];
                Value::from(format!("? {}", reason.as_str().expect("a reason")))
            }
            Some(n) if columns[at]["kind"] == "text" => self.0["words"][n as usize].clone(),
            _ => row[at].clone(),
        }
    }
    fn process(&self, pid: u32) -> &Value {
        let mut rows = self.rows("tasks").iter();
        rows.find(|r| self.value("tasks", r, "pid") == pid)
            .unwrap_or_else(|| panic!("process {pid} is not in the page"))
    }
}

/// A process with hostile arguments, which sleeps.
fn sleeper() -> Ended {
    let mut command = Command::new("sleep");
    let child = command.arg0(OsStr::from_bytes(HOSTILE)).arg("300").stdin(Stdio::null()).spawn();
    let sleeper = Ended(child.expect("sleep runs"));
    wait_for_sleep(sleeper.id());
    sleeper
}

/// A file of /proc about a process.
fn proc(pid: u32, file: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/{file}")).expect("it lives")
}

#[test]
fn values_of_a_report_are_those_of_proc() {
    let odd = Mktask::start(&["odd-comm"]).expect("always possible");
    let threads = Mktask::start(&["threads", "5"]).expect("always possible");
    let sleeper = sleeper();
    let pids = [odd.pid(), threads.pid(), sleeper.id()];
    let is_root = euid() == 0;
    let resident = |pid: u32| -> u64 {
        let statm = String::from_utf8(proc(pid, "statm")).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * page_size()
    };
    for engine in ["auto", "procfs"] {
        let before = pids.map(resident);
        let title = "a </title><script>";
        let ran = Sandbox::new().run(&["report", "--engine", engine, "--title", title]);
        assert!(matches!(ran.code, Some(0 | 3)), "{ran}");
        let page = Page::new(&ran.stdout);
        assert_eq!(page.0["title"], title);
        for (pid, before) in pids.into_iter().zip(before) {
            let row = page.process(pid);
            let is = |name: &str, want: Value| {
                assert_eq!(page.value("tasks", row, name), want, "{name} of {pid}, {engine}");
            };
            let stat = String::from_utf8_lossy(&proc(pid, "stat")).into_owned();
            let words: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            is("s", words[0].into());
            is("ppid", words[1].parse::<u64>().unwrap().into());
            is("nlwp", words[17].parse::<u64>().unwrap().into());
            // The kernel may take pages of an idle process at any time.
            if resident(pid) == before {
                is("rss", before.into());
            }
            let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            is("fds", fds.into());
            let comm = proc(pid, "comm");
            is("comm", text(&comm[..comm.len() - 1]).into());
            let args = proc(pid, "cmdline");
            let args: Vec<String> = args[..args.len() - 1].split(|b| *b == 0).map(text).collect();
            is("args", args.join(" ").into());
            let io = String::from_utf8(proc(pid, "io")).unwrap();
            let line = io.lines().find_map(|l| l.strip_prefix("read_bytes: ")).unwrap();
            is("read_bytes", line.parse::<u64>().unwrap().into());
        }
        let lacking = page.0["gaps"].as_array().unwrap();
        assert_eq!(ran.code, Some(0), "{ran}");
        let said: Vec<&str> = lacking.iter().map(|l| l.as_str().unwrap()).collect();
        let printed: Vec<&str> =
            ran.stderr.lines().filter_map(|l| l.strip_prefix("taskdiag: ")).collect();
        assert!(said.iter().all(|l| printed.contains(l)), "{said:?} {printed:?}");
        if is_root {
            // A listening socket of this test.
            let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = here.local_addr().unwrap().port();
            let ran = Sandbox::new().run(&["report", "--engine", engine, "--files"]);
            let page = Page::new(&ran.stdout);
            let mut sockets = page.rows("sockets").iter();
            let own = sockets.find(|r| page.value("sockets", r, "lport") == port);
            let own = own.unwrap_or_else(|| panic!("no socket of port {port}: {ran}"));
            assert_eq!(page.value("sockets", own, "pid"), std::process::id());
            assert_eq!(page.value("sockets", own, "laddr"), "127.0.0.1");
            let files = page.rows("files").iter();
            let own = files.filter(|r| page.value("files", r, "pid") == std::process::id());
            assert!(own.count() > 2);
        }
    }
}

#[test]
fn arguments_and_pss_are_there_if_wanted() {
    let sleeper = sleeper();
    let pid = sleeper.id();
    let ran = Sandbox::new().run(&["report", "--no-args"]);
    assert!(!ran.stdout.contains("onerror=alert"), "{ran}");
    assert!(!ran.stdout.contains("\"name\":\"args\""), "{ran}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    fs::write(&file, "before").unwrap();
    let ran = Sandbox::new().run(&["report", "--pss", "-o", file.to_str().unwrap()]);
    assert!(matches!(ran.code, Some(0 | 3)) && ran.stdout.is_empty(), "{ran}");
    let page = Page::new(&fs::read_to_string(&file).unwrap());
    let rollup = String::from_utf8(proc(pid, "smaps_rollup")).unwrap();
    let pss = rollup.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap();
    let pss: u64 = pss.trim().trim_end_matches(" kB").parse().unwrap();
    let got = page.value("tasks", page.process(pid), "pss").as_u64().expect("it is known");
    // Other processes that begin or end change the share of the pages of the C library.
    assert!(got.abs_diff(pss * 1024) <= pss * 1024 / 2, "{got} and {pss} KiB");
    assert_eq!(page.0["memory"], "pss");
    // No other user can read it, and no other file is left.
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let ran = Sandbox::new().run(&["report", "-o", dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, Some(2), "{ran}");
    let nowhere = dir.path().join("not/there.html");
    // The file is looked at before the processes are.
    let words = ["report", "--engine", "kernel", "-o", dir.path().to_str().unwrap()];
    let ran = Sandbox::new().run(&words);
    assert!(ran.code == Some(2) && ran.stderr.contains("not a regular file"), "{ran}");
    let ran = Sandbox::new().run(&["report", "-o", nowhere.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("not/there.html: No such file"), "{ran}");
}

fn euid() -> u32 {
    // SAFETY: it only gives a number.
    unsafe { libc::geteuid() }
}

fn page_size() -> u64 {
    // SAFETY: it only gives a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// A process of a saved answer.
#[derive(Clone)]
struct Made {
    pid: u32,
    comm: Vec<u8>,
    cgroup: String,
    args: Vec<u8>,
    /// Memory in MiB. `None` if it was denied; a kernel thread has no value.
    mib: Option<u64>,
    is_kthread: bool,
    cpu_s: u64,
}

impl Made {
    fn new(pid: u32, comm: &str, cgroup: &str, mib: u64) -> Made {
        let args = format!("/usr/bin/{comm}\0--number\0{pid}\0").into_bytes();
        let (comm, cgroup) = (comm.as_bytes().to_vec(), cgroup.to_owned());
        Made {
            pid,
            comm,
            cgroup,
            args,
            mib: Some(mib),
            is_kthread: false,
            cpu_s: u64::from(pid) * 7,
        }
    }
}

/// A saved answer with these processes.
fn saved(all: &[Made]) -> Vec<u8> {
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    let groups = Groups::BASE
        | Groups::CRED
        | Groups::STAT
        | Groups::STATM
        | Groups::CMDLINE
        | Groups::CGROUP
        | Groups::FD_COUNT
        | Groups::IO
        | Groups::ROLLUP;
    info.show_flags = groups.bits();
    info.procfs_groups = groups.bits();
    info.dump_strategy = Strategy::All as u64;
    (info.realtime_ns, info.boottime_ns) = (1_767_268_800_000_000_000, 100_000_000_000_000);
    (info.mem_total_bytes, info.page_size, info.clk_tck, info.ncpus) = (16 << 30, 4096, 100, 8);
    w.info(&info);
    for m in all {
        w.begin_task(m.pid, m.pid);
        let mut base = Base::new();
        base.valid = Base::ALL_VALID;
        (base.ppid, base.state) = (u32::from(m.pid > 1), b'S');
        base.flags = if m.is_kthread { TASK_KTHREAD } else { 0 };
        base.start_time_ns = u64::from(m.pid) * 1_000_000_000;
        w.put_base(&base, &m.comm);
        w.put(&build!(Cred { valid: Cred::ALL_VALID, ..Cred::new() }));
        let mut stat = Stat::new();
        stat.valid = Stat::ALL_VALID;
        (stat.utime_ns, stat.num_threads) = (m.cpu_s * 1_000_000_000, 1 + m.pid % 5);
        w.put(&stat);
        w.put(&build!(Cgroup { valid: Cgroup::ALL_VALID, id: 1, ..Cgroup::new() }));
        let path = format!(":{}", m.cgroup);
        w.put_blob(A_CGROUP_PATH, 0, 0, path.as_bytes(), path.len());
        let fds = build!(FdCount { valid: FdCount::ALL_VALID, open: m.pid % 50, ..FdCount::new() });
        w.put(&fds);
        let mut io = Io::new();
        (io.valid, io.read_bytes) = (Io::ALL_VALID, u64::from(m.pid) * 4096);
        w.put(&io);
        match m.mib {
            _ if m.is_kthread => {
                let all = [Group::Statm, Group::Rollup, Group::Cmdline];
                all.into_iter().for_each(|g| w.missing(g, Reason::Absent));
            }
            None => {
                w.missing(Group::Statm, Reason::Denied);
                w.missing(Group::Rollup, Reason::Denied);
            }
            Some(mib) => {
                let mut statm = Statm::new();
                (statm.valid, statm.rss_bytes) = (Statm::ALL_VALID, mib << 21);
                w.put(&statm);
                let mut rollup = Rollup::new();
                (rollup.valid, rollup.pss_bytes) = (Rollup::ALL_VALID, mib << 20);
                w.put(&rollup);
            }
        }
        if !m.is_kthread {
            w.put_blob(Group::Cmdline as u16, 0, 0, &m.args, m.args.len());
        }
        w.end_task();
    }
    w.finish(Done::default()).as_bytes().to_vec()
}

/// A page of this answer, and the directory that it is in.
fn page_of(all: &[Made]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (from, page) = (dir.path().join("saved.tdg"), dir.path().join("page.html"));
    fs::write(&from, saved(all)).unwrap();
    let (from, to) = (from.to_str().unwrap(), page.to_str().unwrap());
    let ran = Sandbox::new().run(&["report", "--from", from, "-o", to]);
    // The answer has no open files, because they were not requested.
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains("does not hold open files"), "{ran}");
    (dir, page)
}

/// The text that a browser shows of the page, or `None` if there is no browser.
fn look(test: &str, page: &Path) -> Option<Value> {
    let has = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    if !["chromium", "chromium-browser", "google-chrome"].iter().any(has) {
        skip(test, "there is no Chromium: 'apt-get install chromium' as root");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("report/look");
    let mut command = Command::new("python3");
    command.arg(script).arg(page).arg((50.0 * crowd()).to_string());
    // A directory for pictures, for people who want to look at them.
    command.args(std::env::var_os("TASKDIAG_PICTURES"));
    let ran = command.output().expect("python3 runs");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    Some(serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {errors}")))
}

fn strings(v: &Value) -> Vec<String> {
    let all = v.as_array().unwrap_or_else(|| panic!("a list: {v}"));
    all.iter().map(|s| s.as_str().expect("a text").to_owned()).collect()
}

/// A small machine: three slices, four units, eight processes with memory.
fn machine() -> Vec<Made> {
    let web = "/system.slice/nginx.service";
    let session = "/user.slice/user-1000.slice/session-3.scope";
    let mut all = vec![
        Made::new(1, "systemd", "/init.scope", 60),
        Made { is_kthread: true, ..Made::new(2, "kthreadd", "/", 0) },
        Made::new(100, "nginx", web, 90),
        Made::new(101, "nginx", web, 120),
        Made::new(102, "nginx", web, 110),
        Made::new(200, "postgres", "/system.slice/db.service", 300),
        Made::new(300, "bash", session, 80),
        Made::new(301, "hostile", session, 140),
        Made { mib: None, ..Made::new(302, "secret", session, 0) },
    ];
    (all[7].args, all[7].comm) = ([HOSTILE, b"\0hostile\0"].concat(), b"<b>\xffx</b>\n".to_vec());
    all
}

#[test]
fn a_browser_shows_it() {
    let all = machine();
    let (_dir, page) = page_of(&all);
    let Some(seen) = look("report::a_browser_shows_it", &page) else { return };
    assert_eq!(seen["complaints"], serde_json::json!([]));
    assert_eq!(strings(&seen["requests"]), [format!("file://{}", page.display())]);
    assert_eq!(strings(&seen["title"]), ["Processes of a saved answer"; 2]);
    assert_eq!(seen["scripts"], 2);
    // Nothing of the names has become an element.
    let tags = strings(&seen["tags"]);
    for tag in ["img", "iframe", "a", "svg"] {
        assert!(!tags.iter().any(|t| t == tag), "{tag} in {tags:?}");
    }
    // Each slice, unit and process with memory has a box.
    let boxes = seen["boxes"].as_array().unwrap();
    let of = |kind: &str| boxes.iter().filter(|b| b["kind"] == kind).count();
    assert_eq!((of("slice"), of("unit"), of("process"), boxes.len()), (3, 4, 7, 14), "{boxes:#?}");
    let labels: Vec<&str> = boxes.iter().map(|b| b["label"].as_str().unwrap()).collect();
    assert!(labels.contains(&"slice system.slice: 620M, 4 processes"), "{labels:#?}");
    assert!(labels.contains(&"unit nginx.service: 320M, 3 processes"), "{labels:#?}");
    assert!(labels.contains(&"process postgres 200: 300M"), "{labels:#?}");
    let hostile = text(&all[7].comm);
    assert!(labels.contains(&format!("process {hostile} 301: 140M").as_str()), "{labels:#?}");
    let shown = seen["text"].as_str().unwrap();
    assert!(shown.contains("1 process not in the map, because the value is not known."), "{shown}");
    assert!(shown.contains("pss, rss, swap of 1 process were not shown"), "{shown}");
    assert!(shown.contains("≥ 900M"), "{shown}");
    // Rows are sorted by clicks; unknown values are last in both orders.
    assert_eq!(seen["rows"].as_array().unwrap().len(), all.len());
    let up = ["120M", "160M", "180M", "220M", "240M", "280M", "600M"];
    let down: Vec<&str> = up.iter().copied().rev().chain(["0", "?"]).collect();
    assert_eq!(strings(&seen["RSS first"]), down);
    let up: Vec<&str> = ["0"].into_iter().chain(up).chain(["?"]).collect();
    assert_eq!(strings(&seen["RSS second"]), up);
    assert_eq!(seen["RSS first sort"], "descending");
    assert_eq!(seen["RSS second sort"], "ascending");
    let mut names: Vec<String> = all.iter().map(|m| text(&m.comm)).collect();
    names.sort();
    assert_eq!(strings(&seen["NAME first"]), names);
    names.reverse();
    assert_eq!(strings(&seen["NAME second"]), names);
    assert_eq!(strings(&seen["TIME first"])[0], "00:35:14");
    // Hostile arguments are text, and are found by the filter.
    let filtered = seen["filtered"].as_array().unwrap();
    assert_eq!(filtered.len(), 1);
    let cells = strings(&filtered[0]);
    assert!(cells.contains(&hostile), "{cells:?}");
    assert!(cells.contains(&format!("{} hostile", text(HOSTILE))), "{cells:?}");
    // Zoom: in by a click, out by Esc, into the next box by keys.
    let path = strings(&seen["path"]);
    let top = " all 900M, 7 processes";
    assert_eq!(path[0], top);
    assert_eq!(path[1], "all \u{203a}  system.slice 620M, 4 processes");
    assert_eq!(path[2], top);
    assert_ne!(path[3], top);
    assert_eq!(seen["covered"], serde_json::json!([]));
    assert_eq!(seen["zoomed"].as_array().unwrap().len(), 2 + 4);
    assert!(seen["picked"].as_str().unwrap().contains("Process id"), "{}", seen["picked"]);
    // Neither a wide nor a narrow window scrolls sideways.
    assert_eq!(seen["overflow"], serde_json::json!([0, 0, 0, 0]));
}

#[test]
fn a_report_of_ten_thousand_processes_stays_small() {
    let one = |n: u32| {
        let cgroup = format!("/system.slice/job-{}.service", n % 60);
        let args = format!("/usr/lib/job-{n}/worker\0{}", "<\"\n\\>".repeat(200)).into_bytes();
        let mib = 1 + u64::from(n * 7919 % 300);
        Made { args, ..Made::new(n, &format!("worker-{}", n % 97), &cgroup, mib) }
    };
    let mut all: Vec<Made> = (1..=10_000).map(one).collect();
    all[5].comm = b"hostile</script>".to_vec();
    let (_dir, page) = page_of(&all);
    let size = fs::metadata(&page).unwrap().len();
    assert!(size <= 3 << 20, "the page has {size} bytes");
    let parsed = Page::new(&fs::read_to_string(&page).unwrap());
    assert_eq!(parsed.rows("tasks").len(), 10_000);
    let Some(seen) = look("report::a_report_of_ten_thousand_processes_stays_small", &page) else {
        return;
    };
    assert_eq!(seen["complaints"], serde_json::json!([]));
    assert_eq!(seen["rows"].as_array().unwrap().len(), 50);
    assert_eq!(strings(&seen["RSS first"])[0], "600M");
    let boxes = seen["boxes"].as_array().unwrap().len();
    assert!((61..=3100).contains(&boxes), "{boxes}");
    assert_eq!(seen["filtered"].as_array().unwrap().len(), 1);
    println!("{size} bytes, {boxes} boxes, loaded in {} s", seen["load_s"]);
}

#[test]
fn a_report_of_more_processes_than_rows_sums_the_others() {
    let one = |n: u32| {
        let cgroup = format!("/system.slice/job-{}.service", n % 7);
        let made = Made::new(n, "worker", &cgroup, 1 + u64::from(n % 50));
        Made { args: b"worker\0".to_vec(), ..made }
    };
    let mut all: Vec<Made> = (1..=30_000).map(one).collect();
    // These processes have no row, and belong to many units.
    let small = all.iter_mut().filter(|m| m.pid < 20_000 && m.mib == Some(1));
    small.for_each(|m| m.mib = None);
    let small = all.iter_mut().filter(|m| m.pid < 20_000 && matches!(m.mib, Some(2..=6)));
    let count = small.map(|m| m.cgroup = format!("/x.slice/u{}.service", m.pid)).count();
    assert!(count > 1500, "{count}");
    let (_dir, page) = page_of(&all);
    let size = fs::metadata(&page).unwrap().len();
    assert!(size <= 4 << 20, "the page has {size} bytes");
    let page = Page::new(&fs::read_to_string(&page).unwrap());
    let rows = page.rows("tasks");
    assert!((20_000..24_000).contains(&rows.len()), "{}", rows.len());
    // Processes without a row are in the sums.
    let others = page.0["others"].as_array().unwrap();
    assert_eq!(others.len(), 1001);
    let sum = |at: usize| others.iter().map(|o| o[at].as_u64().unwrap()).sum::<u64>();
    assert_eq!(rows.len() as u64 + sum(3), 30_000);
    let pss = |r: &Value| page.value("tasks", r, "pss").as_u64().unwrap_or(0);
    let whole: u64 = all.iter().map(|m| m.mib.unwrap_or(0) << 20).sum();
    assert_eq!(rows.iter().map(pss).sum::<u64>() + sum(5), whole);
    let unknown = all.iter().filter(|m| m.mib.is_none()).count();
    assert!(unknown > 300);
    assert_eq!(page.0["totals"]["pss"], serde_json::json!([whole, unknown]));
    let gaps = page.0["gaps"].to_string();
    assert!(gaps.contains(&format!("pss, rss, swap of {unknown} processes")), "{gaps}");
    // The process with the most CPU time has a row, whatever its memory is.
    assert_eq!(page.value("tasks", page.process(30_000), "time").as_f64(), Some(210_000.0));
}

#[test]
fn a_recording_has_a_timeline() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("recording");
    let dir = dir.to_str().unwrap();
    let ran = Sandbox::new().run(&["record", "--every", "200ms", "-n", "8", dir]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let ran = Sandbox::new().run(&["report", "--from", dir]);
    let page = Page::new(&ran.stdout);
    let timeline = &page.0["timeline"];
    let times = timeline["times"].as_array().unwrap_or_else(|| panic!("no timeline: {ran}"));
    assert_eq!((times.len(), &timeline["answers"]), (8, &Value::from(8)));
    assert_eq!(times[7], page.0["time"]);
    let values = |chart: usize, line: usize| -> Vec<Option<f64>> {
        let values = &timeline["charts"][chart]["lines"][line]["values"];
        values.as_array().expect("a line").iter().map(Value::as_f64).collect()
    };
    let lines = |chart: usize| timeline["charts"][chart]["lines"].as_array().unwrap().len();
    // The table shows the last moment.
    assert_eq!(values(3, 0)[7], page.0["totals"]["processes"].as_f64());
    assert_eq!(values(3, 1)[7], page.0["totals"]["nlwp"][0].as_f64());
    let rss: f64 = (0..lines(0)).filter_map(|line| values(0, line)[7]).sum();
    assert_eq!(Some(rss), page.0["totals"]["rss"][0].as_f64());
    // Use since the previous answer is not known before the second one.
    for line in 0..lines(1) {
        assert_eq!(values(1, line)[0], None);
    }
    assert!((1..8).any(|at| (0..lines(1)).any(|line| values(1, line)[at].is_some())));
    let file = Path::new(dir).join("page.html");
    fs::write(&file, &ran.stdout).unwrap();
    if let Some(seen) = look("report::a_recording_has_a_timeline", &file) {
        assert_eq!(seen["complaints"], serde_json::json!([]));
        let charts = seen["charts"].as_array().unwrap();
        let first = seen["charts at first"].as_array().unwrap();
        assert_eq!(charts.len(), timeline["charts"].as_array().unwrap().len());
        let processes = &page.0["totals"]["processes"];
        let line = strings(&charts[3])[2].replace('\u{202f}', "");
        assert_eq!(line, format!("processes\t{processes}"));
        // Nothing is known of CPU time at the first moment.
        assert_eq!(first[1].as_array().unwrap().len(), charts[1].as_array().unwrap().len());
        assert!(strings(&first[1])[2..].iter().all(|l| l.ends_with("\t?")), "{first:#?}");
        assert_ne!(strings(&first[1])[1], strings(&charts[1])[1]);
    }
    // An earlier answer ends the timeline, and a short time begins it later.
    let early = format!("@{}", times[7]);
    let ran = Sandbox::new().run(&["report", "--from", dir, "--at", &early, "--span", "400ms"]);
    let page = Page::new(&ran.stdout);
    let some = page.0["timeline"]["times"].as_array().unwrap().len();
    assert!((1..8).contains(&some), "{some}: {ran}");
}
