//! Every field of every table has values of its declared type, for this test itself, read by
//! procfs, with each kind of open file and mapping that a process can easily have.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::File;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use taskdiag::field::{Context, FILES, Field, MAPS, MEMORY, OpenRow, Part, Row, Set, TASKS};
use taskdiag::files::{Files, Locks};
use taskdiag::{Choice, EngineId, Group, Groups, Request, query_with};

/// Fields that this process may have no value of.
const RARE: &[&str] = &[
    // The kernel or its configuration may lack them.
    "run_delay",
    "timeslices",
    // It has no such descriptors. The test of the columns in tests/cli/files.rs of the command has
    // most of them.
    "ifindex",
    "eventfd_count",
    "eventfd_id",
    "epoll_count",
    "epoll_fds",
    "timer_clock",
    "timer_ticks",
    "timer_left",
    "timer_interval",
    "signalfd_mask",
    "inotify_count",
    "inotify_inodes",
    "pidfd_pid",
    "bpf_id",
    "bpf_type",
    "bpf_memory",
    "uring_sq",
    "uring_cq",
    // It has not set one.
    "iolevel",
    // This task does not wait.
    "waits_for",
    "waits_for_comm",
    // Only with kernel.task_delayacct; tests/delays.rs has them.
    "delay_cpu",
    "delay_io",
    "delay_swapin",
    "delay_reclaim",
    "delay_thrashing",
    "delay_compact",
    "delay_wpcopy",
    "delay_irq",
    "kstack",
    "ksm",
    "swap_shmem",
    "swap_total",
    "thp_eligible",
    "protection_key",
    "pidns_children",
    "cgroup",
    "cgroup_path",
    "cgroupid",
    "wchan",
    "pss_dirty",
    // /proc does not have it, or not for processes.
    "securebits",
    "threads",
    // The task may have no security label and no login, and be in no unit, container or pod.
    "label",
    "luid",
    "audit_session",
    "unit",
    "uunit",
    "lsession",
    "machine",
    "ouid",
    "container",
    "runtime",
    "pod",
    "container_name",
    "image",
    "pod_name",
    "pod_namespace",
    "container_runtime",
    "lxc",
    "ag_id",
    "ag_nice",
    // The task runs under an ordinary policy.
    "rtprio",
    // No other task shares its tables.
    "sharers",
    "shared_with",
    // Always -, for scripts that expect the column.
    "addr",
    "timeout",
    "alarm",
    // Known only for all mappings together.
    "pss_anon",
    "pss_file",
    "pss_shmem",
    // Most machines have no graphics processor.
    "gpu",
    // It runs.
    "waited",
    "syscall",
];

struct Seen(HashSet<(&'static str, &'static str)>);

impl Seen {
    fn look<'f>(
        &mut self,
        set: &'static Set,
        fields: impl Iterator<Item = &'f Field>,
        cx: &Context,
        row: &Row<'_>,
    ) {
        for field in fields {
            let (is, value) = (field.data_type(), (field.get)(cx, row));
            assert!(is.admits(&value), "{} {} is {is:?}, and has {value:?}", set.name, field.name);
            if value.missing().is_none() {
                self.0.insert((set.name, field.name));
            }
        }
    }
}

#[test]
fn values_have_the_type_of_their_field() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    let file = File::create(path("f")).expect("made");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    std::fs::remove_file(path("f")).expect("removed");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let udp = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind("127.0.0.1:0"));
    let unix = UnixListener::bind(path("s")).expect("bound");
    let pair = UnixStream::pair().expect("a pair");
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().expect("it runs");
    let pipe = child.stdout.take();
    child.wait().expect("it ends");

    let all: Groups = Group::ALL.iter().copied().collect();
    let request = Request::one(std::process::id(), all - Groups::WCHAN - Groups::KSTACK);
    let snapshot = query_with(&request, Choice::Only(EngineId::Procfs)).expect("/proc is there");
    let cx = Context::of(&snapshot, false);
    let task = Row::new(snapshot.tasks().next().expect("this process"));
    let mut seen = Seen(HashSet::new());
    for set in [&TASKS, &MEMORY] {
        seen.look(set, set.own(), &cx, &task);
    }
    let Ok(there) = task.each_map(|row| {
        seen.look(&MAPS, MAPS.own(), &cx, row);
        Ok::<(), Infallible>(())
    });
    assert!(there);
    let mut files = Files::new(&snapshot);
    let fdinfo = |path: &str| std::fs::read(path).ok();
    files.locks = Some(Locks::find(&files, |_| true, None, fdinfo));
    for owner in files.owners() {
        for file in files.of(owner) {
            let part = Part::File(OpenRow::new(&file, &files));
            seen.look(&FILES, FILES.own(), &cx, &owner.row.with_part(part));
        }
    }
    drop((file, client, udp, unix, pair, pipe));
    let sets = [&TASKS, &MEMORY, &MAPS, &FILES];
    let all = sets.iter().flat_map(|set| set.own().map(|f| (set.name, f.name)));
    let never: Vec<_> = all.filter(|f| !seen.0.contains(f) && !RARE.contains(&f.1)).collect();
    assert!(never.is_empty(), "no value was seen of {never:?}");
}
