# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases and their bars. A case is a function that takes a Bench, and its docstring is its title."""

import pathlib

from measuring import OUT, load, median, one_run

TASKDIAG = "target/release/taskdiag"
CASES = {}


def ps(*args, engine=None):
    return [TASKDIAG, "ps", *(["--engine", engine] if engine else []), *args]


def case(letter, tasks):
    """Registers a case. `tasks` is the load that it needs."""

    def register(function):
        CASES[letter] = (function, tasks)
        return function

    return register


PROCS = ("procs", 50_000)
THREADS = ("threads", 100_000, 1)
THREAD_COLUMNS = "pid,tid,comm,stat,time"


@case("f", None)
def small(b):
    """a small machine: default view against ps aux, and with bpf forced"""
    r = b.compare({"taskdiag": ps(), "ps aux": ["ps", "aux"]}, rounds=25)
    b.ratio("wall, ps / taskdiag", r, "ps aux", "taskdiag", "wall_ns", at_least=1)
    b.ratio("cpu, ps / taskdiag", r, "ps aux", "taskdiag", "cpu_us", at_least=1)
    # auto does not pick bpf if loading costs more than reading. The case is shown because it is
    # unflattering.
    commands = {"taskdiag": ps(), "bpf forced": ps(engine="bpf"), "procfs forced": ps(engine="procfs")}
    r = b.compare(commands, rounds=15)
    b.ratio("wall, bpf forced / taskdiag", r, "bpf forced", "taskdiag", "wall_ns")
    b.ratio("wall, taskdiag / procfs forced", r, "taskdiag", "procfs forced", "wall_ns")


def with_a_big_one(b, command):
    """Times a list of the processes without, with, and again without a process of 100,000 threads."""
    without = b.compare({"without, before": command}, rounds=15)["without, before"]
    with load(THREADS):
        # ps runs afterwards instead of in turn with taskdiag, because ps would fill the caches of
        # the CPU. The runs without the threads are not alternated with ps either.
        r = b.compare({"with 100,000 threads": command}, rounds=15)
        b.compare({"ps, with": ["ps", "-eo", "pid,ppid,comm"]}, rounds=5)
        b.count("with 100,000 threads", command)
    without += b.compare({"without, after": command}, rounds=15)["without, after"]
    return {"with": r["with 100,000 threads"], "without": without}


@case("d", ("procs", 10_000))
def one_big_process(b):
    """10,000 processes, with and without one more that has 100,000 idle threads"""
    r = with_a_big_one(b, ps("-eo", "pid,ppid,comm"))
    b.ratio("wall, with / without", r, "with", "without", "wall_ns", at_most=1.3)
    b.ratio("cpu, with / without", r, "with", "without", "cpu_us")
    # The CPU time of a process is the sum over its threads, in the kernel as here.
    r = with_a_big_one(b, ps("-eo", "pid,ppid,comm,time"))
    b.ratio("wall, with / without, and cpu time", r, "with", "without", "wall_ns")


@case("d-small", None)
def one_big_process_alone(b):
    """a small machine, with and without a process of 100,000 idle threads; without it /proc would be read"""
    r = with_a_big_one(b, ps("-eo", "pid,ppid,comm", engine="bpf"))
    b.ratio("wall, with / without, bpf forced", r, "with", "without", "wall_ns", at_most=1.3)
    # This is unflattering: the comparison is with a few files of /proc, and bpf has to be loaded.
    r = with_a_big_one(b, ps("-eo", "pid,ppid,comm"))
    b.ratio("wall, with / without, auto", r, "with", "without", "wall_ns")


@case("e", ("procs", 10_000))
def procfs_engine(b):
    """10,000 processes, procfs engine against a C loop over the same files, and ps"""
    # The column `stat` would also need `status`, for the letter L.
    columns = "pid,ppid,s,time"
    sets = [
        ("stat", ps("-eo", columns, engine="procfs"), ["ps", "-eo", columns]),
        ("stat status cmdline", ps(engine="procfs"), ["ps", "aux"]),
    ]
    for files, ours, peer in sets:
        loop = [str(OUT.relative_to(OUT.parent.parent) / "cloop"), *files.split()]
        r = b.compare({f"taskdiag, {files}": ours, f"C loop, {files}": loop, " ".join(peer[:2]): peer},
                      rounds=9, same=(f"taskdiag, {files}", " ".join(peer[:2])))
        names = list(r)
        b.ratio(f"wall, taskdiag / C loop ({files})", r, names[0], names[1], "wall_ns", at_most=1.25)
        b.ratio(f"cpu, taskdiag / C loop ({files})", r, names[0], names[1], "cpu_us")
        b.ratio(f"wall, ps / taskdiag ({files})", r, names[2], names[0], "wall_ns", at_least=2)
        b.ratio(f"cpu, ps / taskdiag ({files})", r, names[2], names[0], "cpu_us")
        b.count(f"taskdiag, {files}", ours)
        b.count(f"C loop, {files}", loop)


@case("a", PROCS)
def ids(b):
    """50,000 processes: -eo pid,ppid against ps -eo pid,ppid"""
    ours, peer = ps("-eo", "pid,ppid"), ["ps", "-eo", "pid,ppid"]
    r = b.compare({"taskdiag": ours, "ps": peer}, rounds=5)
    b.ratio("wall, ps / taskdiag", r, "ps", "taskdiag", "wall_ns", at_least=30)
    b.ratio("cpu, ps / taskdiag", r, "ps", "taskdiag", "cpu_us", at_least=30)
    b.count("taskdiag", ours)
    b.count("ps", peer)
    b.peers("ids", r)


@case("b", PROCS)
def aux(b):
    """50,000 processes: the default view, with command lines, against ps aux"""
    ours, peer = ps(), ["ps", "aux"]
    r = b.compare({"taskdiag": ours, "ps": peer}, rounds=5)
    b.ratio("wall, ps / taskdiag", r, "ps", "taskdiag", "wall_ns", at_least=12)
    b.ratio("cpu, ps / taskdiag", r, "ps", "taskdiag", "cpu_us", at_least=12)
    b.count("taskdiag", ours)
    b.count("ps", peer)
    b.peers("aux", r)


@case("w", ("procs", 10_000))
def one_by_name(b):
    """10,000 processes: the default view of one, by name, against a list of all names"""
    # The name of this program. Only one or a few processes have it.
    name = pathlib.Path("/proc/self/comm").read_text().strip()
    commands = {
        "names of all": ps("-eo", "pid,comm"),
        "-C": ps("-C", name),
        "--where": ps("--where", f'comm == "{name}"'),
        "ps -C": ["ps", "-C", name],
        # This is unflattering: if all processes pass, the first of the two steps is wasted.
        "all": ps(),
        "--where, all pass": ps("--where", "pid >= 1"),
    }
    r = b.compare(commands, rounds=15)
    b.ratio("cpu, -C / names of all", r, "-C", "names of all", "cpu_us", at_most=1.1)
    b.ratio("cpu, --where / names of all", r, "--where", "names of all", "cpu_us", at_most=1.1)
    b.ratio("cpu, ps / taskdiag", r, "ps -C", "-C", "cpu_us")
    b.ratio("cpu, --where that all pass / all", r, "--where, all pass", "all", "cpu_us")


@case("h", ("procs", 10_000))
def inodes(b):
    """/proc inodes created by a bpf request, besides those of any start of the program"""
    # A first run leaves the inodes of the few files that exist once per boot, such as
    # /proc/sys/kernel/pid_max.
    _, start = b.count("start alone (--version)", [TASKDIAG, "--version"], warm=True)
    for label, command in {
        "ids": ps("-eo", "pid,ppid", engine="bpf"),
        "default view": ps(engine="bpf"),
        "threads": ps("--threads", "-eo", THREAD_COLUMNS, engine="bpf"),
    }.items():
        _, made = b.count(label, command, warm=True)
        known = None not in (made, start)
        b.figure(f"/proc inodes, {label}", made - start if known else None, at_most=0)
        b.count(f"{label}, cold", command)
    b.count("ps aux, for comparison, cold", ["ps", "aux"])


@case("g10k", ("threads", 10_000, 1))
def syscalls_small(b):
    """bpf engine: system calls of the whole run at 10,000 tasks"""
    b.kept["g10k"] = syscalls(b)


@case("g", THREADS)
def syscalls_large(b):
    """bpf engine: system calls of the whole run at 100,000 tasks, and how they grow"""
    for label, (calls, written) in syscalls(b).items():
        # A run of the program ends after a millisecond, so that it holds no CPU, and starting the
        # next run takes one or two calls. So there are a few hundred calls where /proc takes
        # millions, and their number grows with the time and not with the tasks.
        b.figure(f"system calls at 100,000, {label}", calls, at_most=300)
        small = b.kept.get("g10k", {}).get(label, (None, None))
        if None not in (calls, written, *small):
            more = (calls - written) - (small[0] - small[1])
            b.figure(f"more than at 10,000 besides writing, {label}", more, at_most=150)
            b.figure(f"more writes of the output than at 10,000, {label}", written - small[1])


def syscalls(b):
    commands = {
        "ids": ps("--threads", "-eo", "pid,tid", engine="bpf"),
        "times": ps("--threads", "-eo", THREAD_COLUMNS, engine="bpf"),
        "default view": ps("--threads", engine="bpf"),
    }
    counts = {}
    for label, command in commands.items():
        calls, _ = b.count(label, command)
        counts[label] = calls, b.writes(command)
    return counts


@case("c", THREADS)
def threads(b):
    """100,000 threads: --threads -eo pid,tid,comm,stat,time against ps -eLo of the same"""
    ours, peer = ps("--threads", "-eo", THREAD_COLUMNS), ["ps", "-eLo", THREAD_COLUMNS]
    r = b.compare({"taskdiag": ours, "ps": peer}, rounds=5)
    b.ratio("wall, ps / taskdiag", r, "ps", "taskdiag", "wall_ns", at_least=60)
    b.ratio("cpu, ps / taskdiag", r, "ps", "taskdiag", "cpu_us", at_least=60)
    b.count("taskdiag", ours)
    b.count("ps", peer)


@case("why", THREADS)
def waits(b):
    """100,000 threads: what all of them wait for, against ps with the function that each waits in"""
    commands = {
        "ps with wchan": ps("-e", "--threads", "-o", "pid,tid,comm,s,wchan", engine="bpf"),
        "ps without": ps("-e", "--threads", "-o", "pid,tid,comm,s", engine="bpf"),
        "why": [TASKDIAG, "why", "--engine", "bpf"],
    }
    r = b.compare(commands, rounds=9)
    b.ratio("wall, why / ps with wchan", r, "why", "ps with wchan", "wall_ns", at_most=1.5)
    b.ratio("cpu, why / ps with wchan", r, "why", "ps with wchan", "cpu_us", at_most=1.5)


@case("i", THREADS)
def memory(b):
    """peak memory at 100,000 threads against 2x the stream + 20 MB"""
    for label, groups, command in [
        ("times", "base,stat", ps("--threads", "-eo", THREAD_COLUMNS)),
        ("default view", "base,cred,stat,statm,cmdline", ps("--threads")),
    ]:
        stream = OUT / "stream"
        one_run([TASKDIAG, "dump", "--strategy", "all-thread", "--groups", groups], stream)
        size = stream.stat().st_size
        stream.unlink()
        r = b.compare({label: command}, rounds=3)
        peak = median(r[label], "peak_rss_kib") * 1024
        b.note(f"{label}: stream {size / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB")
        b.figure(f"peak / (2 x stream + 20 MB), {label}", peak / (2 * size + 20e6), at_most=1)


@case("j", PROCS)
def floor(b):
    """the bare walk of 50,000 processes: a BPF program that only counts, and BASE beside it"""
    if not b.rust:
        b.note("  not measured: bench/rust did not build")
        return
    out = OUT / "floor"
    one_run([f"{b.rust}/bench-floor"], out)
    ns = {k: int(v) for k, v in (word.split("=") for word in out.read_text().split())}
    tasks = ns["tasks"]
    count, base = ns["count"] - ns["count_load"], ns["base"] - ns["base_load"]
    b.note(f"  {tasks} processes: counting {count / 1e6:.2f} ms ({count / tasks:.0f} ns each)"
           f" + {ns['count_load'] / 1e6:.2f} ms to load;"
           f" BASE {base / 1e6:.2f} ms ({base / tasks:.0f} ns each)"
           f" + {ns['base_load'] / 1e6:.2f} ms to load")
    b.figure("BASE / bare walk, without loading", base / max(count, 1))
    b.figure("BASE / bare walk, with loading", ns["base"] / ns["count"])


# These modules register their cases, and use the functions above.
import memory_cases  # noqa: E402, F401
import file_cases  # noqa: E402, F401
import late_cases  # noqa: E402, F401
import session_cases  # noqa: E402, F401
import top_cases  # noqa: E402, F401
import record_cases  # noqa: E402, F401
import service_cases  # noqa: E402, F401
import wait_cases  # noqa: E402, F401
import python_cases  # noqa: E402, F401
import procps_cases  # noqa: E402, F401
import export_cases  # noqa: E402, F401
import before_cases  # noqa: E402, F401
import sql_cases  # noqa: E402, F401
import size_cases  # noqa: E402, F401
