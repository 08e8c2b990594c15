//! The work of each fuzz target without the fuzzer, so that `cargo test` can replay seeds and past
//! findings with any compiler. A case fails by panicking.

use std::cell::OnceCell;
use std::hint::black_box;

use taskdiag::Snapshot;
use taskdiag::cgroup;
use taskdiag::cgroups::Cgroups;
use taskdiag::engine::procfs::parse;
use taskdiag::field::{Context, OpenRow, Part, Row};
use taskdiag::files::Files;
use taskdiag::service::{Ask, Reply};
use taskdiag::view::{Filter, Truth};
use taskdiag_cli::Shows;
use taskdiag_wire::decode::Command;
use taskdiag_wire::{
    A_CGROUP_PATH, A_CPUS, A_GID_MAP, A_GROUPS, A_NSPID, A_UID_MAP, AlignedBuf, Base, Cred, Done,
    FdDetail, FdType, Group, Groups, Io, PathKind, Rollup, Settings, Signals, Socket, Stat, Statm,
    Stream, StreamWriter, TaskView, Vma, VmaStat, Wait, decode_request, encode_features_request,
    encode_request,
};

pub mod seeds;

/// A case does something with arbitrary bytes and must not panic.
pub type Case = fn(&[u8]);

/// Every target by name.
pub const TARGETS: &[(&str, Case)] = &[
    ("stream", stream),
    ("output", output),
    ("request", request),
    ("procfs_parse", procfs_parse),
    ("filter", filter),
];

/// Takes untrusted bytes as a stream. It must be refused, or every view must work and its totals
/// must be right.
pub fn stream(data: &[u8]) {
    if let Ok(snapshot) = Snapshot::read_from(data) {
        black_box(Cgroups::of(&snapshot));
    }
    let whole = AlignedBuf::copy_of(&data[..data.len() / 8 * 8]);
    let Ok(stream) = Stream::parse(whole.as_bytes()) else { return };
    assert_eq!(stream.len() as u64, stream.done().tasks);
    black_box((stream.info(), stream.asked(), stream.strategy()));
    for (i, task) in stream.tasks().enumerate() {
        walk(&task);
        assert_eq!(stream.get(i).map(|t| t.pid()), Some(task.pid()));
    }
    assert!(stream.get(stream.len()).is_none());
    for group in stream.cgroups() {
        black_box((group.head(), group.path(), group.values().count()));
    }
    // Only DONE ends a stream, so no cut stream may pass.
    let cut = AlignedBuf::copy_of(&data[..whole.len() - 8]);
    assert!(Stream::parse(cut.as_bytes()).is_err());
}

/// Commands that show a saved answer: each kind of rows in each form, all columns, and all
/// operations on rows.
const COMMANDS: &[&[&str]] = &[
    &["ps"],
    &["ps", "-eT", "--columns", "40", "--color", "always"],
    &["ps", "--json", "--sort", "-pcpu,args", "-u", "root"],
    &["files", "--paths", "--mem"],
    &["files", "--csv", "-i", "--deleted", "/a", "--sort", "name"],
    &["files", "--count", "--jsonl"],
    &["maps"],
    &["maps", "-X", "--json"],
    &["maps", "--by", "path", "--csv"],
    &["memory", "--by", "user"],
    &["tree", "-p", "-a", "-u"],
    &["tree", "--json", "-s", "1"],
    &["report", "--files"],
    &["ps", "--where", "rss > 1M and not comm ~ '^k' or args ~ 'java.*kafka' or tty missing"],
    &["cgroups"],
    &["cgroups", "--csv", "--sort", "-memory,path", "--where", "tasks known or memory < 1G"],
    &["maps", "--where", "deleted or task.rss > 1M and size < 1G"],
    &["files", "--json", "--where", "type == REG and size > 1 or ends ~ x"],
];

thread_local! {
    static SHOWS: OnceCell<Vec<Shows>> = const { OnceCell::new() };
}

/// The commands, made once.
fn shows() -> Vec<Shows> {
    let from = |args: &[&str]| Shows::new(&[args, &["--from", "-"]].concat());
    let all_columns = |command: &str, set: &taskdiag::field::Set| {
        let names: Vec<&str> = set.own().map(|f| f.name).collect();
        ["--json", "--csv", "--no-headers"]
            .map(|form| from(&[command, form, "-o", &names.join(",")]))
    };
    use taskdiag::field::{CGROUPS, FILES, MAPS, MEMORY, TASKS};
    let sets = [
        ("ps", &TASKS),
        ("files", &FILES),
        ("maps", &MAPS),
        ("memory", &MEMORY),
        ("cgroups", &CGROUPS),
    ];
    let columns = sets.into_iter().flat_map(|(command, set)| all_columns(command, set));
    COMMANDS.iter().map(|args| from(args)).chain(columns).collect()
}

/// Takes untrusted bytes as a saved answer, and makes the text, JSON, CSV and messages that users
/// would see. Nothing is written.
pub fn output(data: &[u8]) {
    SHOWS.with(|all| {
        for show in all.get_or_init(shows) {
            // The answer may be complete, empty, partial or missing. The arguments are never wrong.
            let code = show.show(data);
            assert!(matches!(code, 0 | 1 | 3 | 4), "{code}: {show:?}");
        }
    });
}

thread_local! {
    /// The answers on which expressions are evaluated: one with everything, and one with many
    /// missing values.
    static ANSWERS: Vec<Snapshot> = seeds::of("stream")
        .iter()
        .map(|(name, bytes)| Snapshot::read_from(&bytes[..]).unwrap_or_else(|e| panic!("{name}: {e}")))
        .collect();
}

/// Takes any text as an expression about each kind of rows. It must be refused with a mark under
/// the text, or be evaluated, and its negation must give the opposite result.
pub fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for set in taskdiag::field::SETS {
        match Filter::parse(set, text) {
            Ok(filter) => {
                assert_eq!(filter.to_string(), text);
                // Parentheses may be too deep with these.
                let opposite = Filter::parse(set, &format!("not ({text})")).ok();
                ANSWERS
                    .with(|all| all.iter().for_each(|s| evaluate(s, &filter, opposite.as_ref())));
            }
            Err(e) => {
                let [what, line, mark] = e.lines();
                assert!(!what.is_empty() && mark.ends_with('^'));
                assert!(mark.trim_start().bytes().all(|b| b == b'^'), "{mark}");
                // An error at the end points after the text.
                assert!(mark.len() <= line.chars().count() + 1, "{line}\n{mark}");
                assert!(!line.chars().any(char::is_control) && !mark.chars().any(char::is_control));
            }
        }
    }
}

/// For every row of an answer: the result of a filter, and a check that its negation gives the
/// opposite.
fn evaluate(snapshot: &Snapshot, filter: &Filter, opposite: Option<&Filter>) {
    let cx = Context::of(snapshot, false);
    let look = |row: &Row<'_>| {
        let truth = filter.test(&cx, row);
        let other = opposite.map(|o| o.test(&cx, row));
        let agree = match (truth, other) {
            (_, None) => true,
            (Truth::True, Some(o)) => matches!(o, Truth::False),
            (Truth::False, Some(o)) => matches!(o, Truth::True),
            (Truth::Unknown(..), Some(o)) => matches!(o, Truth::Unknown(..)),
        };
        assert!(agree, "{truth:?} {other:?}");
    };
    for task in snapshot.tasks() {
        let row = Row::new(task);
        look(&row);
        let Ok(_) = row.each_map(|map| {
            look(map);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    let files = Files::new(snapshot);
    for owner in files.owners() {
        for file in files.of(owner) {
            look(&owner.row.with_part(Part::File(OpenRow::new(&file, &files))));
        }
    }
}

fn walk(task: &TaskView<'_>) {
    for (_, attr) in task.attrs() {
        assert!(attr.len() >= 4 && attr.len() % 8 == 0);
    }
    macro_rules! records {
        ($($t:ident)*) => { $(black_box(task.record::<taskdiag_wire::$t>());)* };
    }
    taskdiag_wire::for_each_record!(records);
    macro_rules! lists {
        ($($t:ident)*) => { $(
            for e in task.list::<taskdiag_wire::$t>().into_iter().flatten() {
                black_box(e.raw);
            }
        )* };
    }
    taskdiag_wire::for_each_list!(lists);
    for e in task.list::<Vma>().into_iter().flatten() {
        black_box(task.name(e.raw.name));
    }
    if let Some(comm) = task.comm() {
        assert!(!comm.contains(&0));
    }
    black_box((task.environ(), task.wchan(), task.kstack()));
    for group in Group::ALL {
        black_box((task.reason(*group), task.shared(*group)));
    }
    for kind in PathKind::ALL {
        black_box(task.path(*kind));
    }
    for attr in [A_CGROUP_PATH, A_GROUPS, A_NSPID, Group::Cmdline as u16, Group::Environ as u16] {
        for (header, piece) in task.blobs(attr) {
            assert_eq!(header.len as usize, piece.len());
        }
    }
    if let Some(line) = task.cmdline() {
        assert!(line.data.len() <= line.total);
        assert!(line.is_cut() || line.data.len() == line.total || line.reason.is_some());
    }
    black_box((task.groups(), task.nspid(), task.cgroups().count()));
    black_box((task.cpus(), task.mems(), task.id_map(A_UID_MAP), task.id_map(A_GID_MAP)));
}

/// Takes untrusted bytes as a request, as a question to the service, and as its reply. Each must be
/// refused, or be equal to the result of its encoding.
pub fn request(data: &[u8]) {
    if let Some(ask) = Ask::decode(data) {
        assert_eq!(ask.encode(), data);
        request(&ask.request);
    }
    if let Some(head) = data.first_chunk() {
        if let Some(reply) = Reply::decode(head) {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }
    for supported in [Groups::NONE, Groups::BASE | Groups::CRED, Groups::from_bits(u64::MAX)] {
        match decode_request(data, supported) {
            Ok(Command::Get(req)) => {
                let strategy = req.strategy().expect("only known ones are accepted");
                assert!(supported.contains(req.groups()));
                assert_eq!(strategy.takes_pid(), req.pid != 0);
                let again = decode_request(&encode_request(&req), supported);
                assert_eq!(again, Ok(Command::Get(req)));
            }
            Ok(Command::Features) => {
                let again = decode_request(&encode_features_request(), supported);
                assert_eq!(again, Ok(Command::Features));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Takes arbitrary text as each of the /proc files. The parsers must accept it, mark only known
/// members as known, and return records that make a valid stream. The files belong to other
/// people's processes, so names, paths and arguments in them are chosen by others.
pub fn procfs_parse(data: &[u8]) {
    let all = Groups::from_bits(u64::MAX);
    black_box((parse::pid(data), parse::ns_inode(data), parse::schedstat(data), parse::tgid(data)));
    black_box((parse::cgroup_lines(data).count(), parse::cgroup2_mounts(data)));

    let mut w = StreamWriter::new();
    w.info(&StreamWriter::blank_info());
    w.begin_task(1, 1);
    if let Some(file) = parse::stat(data, 10_000_000) {
        assert_eq!(file.base.valid & !Base::ALL_VALID, 0);
        assert_eq!(file.stat.valid & !Stat::ALL_VALID, 0);
        black_box((file.has_no_memory(), file.is_reaped(), file.comm()));
        w.put_base(&file.base, file.comm());
        w.put(&file.stat);
    }
    if let Some(io) = parse::io(data) {
        assert_eq!(io.valid & !Io::ALL_VALID, 0);
        w.put(&io);
    }
    let mut status = parse::StatusFile::default();
    status.parse(data, all);
    assert_eq!(status.cred.valid & !Cred::ALL_VALID, 0);
    assert_eq!(status.statm.valid & !Statm::ALL_VALID, 0);
    if let Some(n) = status.cred.known().ngroups() {
        assert_eq!(n as usize * 4, status.gids.len());
    }
    assert_eq!(status.settings.valid & !Settings::ALL_VALID, 0);
    w.put(&status.settings);
    w.put_blob(A_CPUS, 0, 0, &status.cpus, status.cpus.len());
    w.put(&status.cred);
    w.put(&status.statm);
    w.put_blob(A_GROUPS, 0, 0, &status.gids, status.gids.len());
    w.put_blob(A_NSPID, 0, 0, &status.nspid, status.nspid.len());
    w.end_task();
    w.begin_task(2, 2);
    mappings(data, &mut w);
    open_files(data, &mut w);
    if let Some(limits) = parse::limits(data) {
        w.put(&limits);
    }
    if let Some(call) = parse::syscall(data) {
        let mut wait = Wait::new();
        call.put(&mut wait);
        w.put(&wait);
    }
    black_box((parse::sched(data), parse::sleep(data), parse::lost_ticks(data)));
    black_box(parse::genl_family(data));
    if let Some(counts) = parse::taskstats(data) {
        w.put(&counts.with(counts).record());
    }
    if let Some(autogroup) = parse::autogroup(data) {
        w.put(&autogroup);
    }
    let label = parse::label(data);
    assert!(!label.ends_with(b"\n") && !label.ends_with(b"\0"));
    black_box((parse::lone_number::<u32>(data), parse::lone_number::<i32>(data)));
    black_box(parse::personality(data));
    if let Some(map) = parse::id_map(data) {
        assert_eq!(map.len() % 12, 0);
    }
    for line in parse::cgroup_lines(data) {
        cgroup_path(line.path);
    }
    cgroup_path(data);
    assert_eq!(status.signals.valid & !Signals::ALL_VALID, 0);
    w.put(&status.signals);
    w.end_task();
    let bytes = w.finish(Done::default());
    assert!(Stream::parse(bytes.as_bytes()).is_ok());

    // One buffer serves every task of a walk, so no data of the previous task may remain.
    let fresh = format!("{status:?}");
    status.parse(SOME_STATUS, all);
    status.parse(data, all);
    assert_eq!(format!("{status:?}"), fresh);
}

/// The results must be parts of the path.
fn cgroup_path(path: &[u8]) {
    let longest = |part: Option<&[u8]>| assert!(part.is_none_or(|p| p.len() <= path.len()));
    longest(cgroup::unit(path));
    longest(cgroup::user_unit(path));
    longest(cgroup::session(path));
    longest(cgroup::machine(path).as_deref());
    longest(cgroup::container(path).map(|c| c.id).as_deref());
    longest(cgroup::pod(path).as_deref());
    black_box((cgroup::slice(path), cgroup::owner(path)));
}

/// Parses maps, smaps, smaps_rollup and statm.
fn mappings(data: &[u8], w: &mut StreamWriter) {
    let mut vmas = Vec::new();
    for line in parse::maps_lines(data) {
        assert!(line.vma.start <= line.vma.end && line.vma.flags == 0);
        let name = line.name();
        assert!(name.is_none_or(|n| n.len() <= line.text.len()));
        black_box(line.is_deleted());
        vmas.push(line.vma);
    }
    w.put_list(Vma::ALL_VALID & !parse::NOT_IN_MAPS, &vmas);
    let mut stats = Vec::new();
    assert!(parse::whole_smaps_entries(data) <= data.len());
    for e in parse::smaps_entries(data) {
        assert_eq!(e.valid & !VmaStat::ALL_VALID, 0);
        assert_eq!((e.stat.start, e.stat.end), (e.line.vma.start, e.line.vma.end));
        stats.push(e.stat);
    }
    w.put_list(VmaStat::ALL_VALID, &stats);
    if let Some(r) = parse::rollup(data) {
        assert_eq!(r.valid & !Rollup::ALL_VALID, 0);
        w.put(&r);
    }
    let sizes = parse::statm(data, 4096);
    assert_eq!(sizes.valid & !Statm::ALL_VALID, 0);
    w.put(&sizes);
    black_box(parse::newlines(data));
}

/// Parses links and fdinfo of open files, and sockets in the forms of sock_diag(7) and
/// /proc/PID/net.
fn open_files(data: &[u8], w: &mut StreamWriter) {
    black_box((parse::fd_link(data), parse::fd(data)));
    let client = parse::drm(data);
    assert!(client.entries.iter().all(|(valid, _)| valid & !taskdiag::Gpu::ALL_VALID == 0));
    for kind in FdType::ALL {
        let info = parse::fdinfo(data, *kind);
        w.put_list(FdDetail::ALL_VALID, &info.details);
    }
    let payloads = parse::nl_messages(data).map(|(_, payload)| payload).chain([data]);
    let mut sockets = Vec::new();
    for b in payloads {
        let tcp = parse::inet_diag(b, libc_protocol::TCP);
        let raw = parse::inet_diag(b, libc_protocol::RAW);
        let mptcp = parse::inet_diag(b, libc_protocol::MPTCP);
        let others = [parse::unix_diag(b), parse::netlink_diag(b), parse::packet_diag(b)];
        for s in [tcp, raw, mptcp].into_iter().chain(others).flatten() {
            assert_eq!(s.valid & !Socket::ALL_VALID, 0);
            assert!(s.name.is_none_or(|n| n.len() <= b.len() + 1));
            sockets.push(s.record);
        }
    }
    for file in ["net/tcp", "net/udp6", "net/raw", "net/unix", "net/netlink", "net/packet"] {
        for s in parse::net_text(file, data) {
            assert_eq!(s.valid & !Socket::ALL_VALID, 0);
            assert!(s.name.is_none_or(|n| n.len() < data.len()));
            sockets.push(s.record);
        }
    }
    w.put_list(Socket::ALL_VALID, &sockets);
}

/// Numbers of IP protocols.
mod libc_protocol {
    pub const TCP: u16 = 6;
    pub const RAW: u16 = 255;
    pub const MPTCP: u16 = 262;
}

/// A status file that sets every member, to see whether a later file resets it.
const SOME_STATUS: &[u8] = b"Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t4 24 \nNSpid:\t9\t1\n\
    VmSize:\t 30 kB\nVmRSS:\t 17 kB\nThreads:\t2\nCapInh:\t0000000000000001\n\
    voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n";
