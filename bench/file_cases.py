# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases about open files."""

import subprocess

from cases import PROCS, TASKDIAG, case
from measuring import OUT, load, median, one_run


def files(*args, engine=None):
    return [TASKDIAG, "files", *(["--engine", engine] if engine else []), *args]


LSOF = ["lsof", "-n", "-P"]


@case("p", ("files", 5_000, 3))
def open_files(b):
    """5,000 processes with 3 open files each: files against lsof -n -P and lsfd"""
    ours = files()
    # lsof also looks at cwd, rtd, txt and mem, and has rows for them. -d leaves them out.
    peers = {"lsof -n -P": LSOF, "lsof, descriptors only": [*LSOF, "-d", "0-65535"], "lsfd": ["lsfd"]}
    r = b.compare({"taskdiag": ours, **peers}, rounds=3)
    b.ratio("wall, lsof / taskdiag", r, "lsof -n -P", "taskdiag", "wall_ns", at_least=15)
    b.ratio("wall, lsof of descriptors only / taskdiag", r, "lsof, descriptors only", "taskdiag", "wall_ns")
    b.ratio("wall, lsfd / taskdiag", r, "lsfd", "taskdiag", "wall_ns", at_least=40)
    # Other processes of the machine are not in these numbers.
    b.ratio("cpu, lsof / taskdiag", r, "lsof -n -P", "taskdiag", "cpu_us")
    b.ratio("cpu, lsfd / taskdiag", r, "lsfd", "taskdiag", "cpu_us")
    r = {**r, **b.compare({"--paths --mem": files("--paths", "--mem")}, rounds=3)}
    b.ratio("wall, lsof / taskdiag with the same rows", r, "lsof -n -P", "--paths --mem", "wall_ns")
    # This case is for users who may not use BPF.
    r = {**r, **b.compare({"procfs forced": files(engine="procfs")}, rounds=3)}
    b.ratio("wall, lsof / taskdiag, procfs forced", r, "lsof -n -P", "procfs forced", "wall_ns")
    b.count("taskdiag", ours)
    b.count("lsof", LSOF)


@case("q", ("files", 5_000, 3))
def counts_of_files(b):
    """5,000 processes with 3 open files each: how many each has, against ls /proc/*/fd | wc"""
    counts(b)


@case("t", PROCS)
def counts_of_many(b):
    """50,000 processes: how many open files each has, against ls /proc/*/fd | wc"""
    counts(b)


def counts(b):
    ls = ["sh", "-c", "ls /proc/[0-9]*/fd 2> /dev/null | wc -l"]
    r = b.compare({"taskdiag": files("--count"), "ls": ls}, rounds=15, same=())
    b.ratio("wall, ls / taskdiag", r, "ls", "taskdiag", "wall_ns", at_least=20)
    b.ratio("cpu, ls / taskdiag", r, "ls", "taskdiag", "cpu_us")
    b.count("taskdiag", files("--count"))


# The time that lsof may take in case r, in seconds: for one size of the load, and for the whole
# load.
SHARE, WHOLE = 20, 60


@case("r", None)
def files_of_threads(b):
    """20,000 threads in 10 processes: files against lsof -n -P, which is stopped after a minute"""
    before = None
    for n in (625, 1_250, 2_500, 5_000, 10_000):
        with load(("threads", n, 10)):
            if (row := lsof_run(b, n, SHARE)) is None:
                break
            ours = b.compare({f"taskdiag, {n:,} threads": files()}, rounds=1)
            took = row["wall_ns"]
            b.figure(f"wall, lsof / taskdiag, {n:,} threads", took / median(*ours.values(), "wall_ns"))
            if before:
                b.figure(f"growth of lsof's time, {n // 2:,} to {n:,} threads", took / before)
            before = took
    with load(("threads", 20_000, 10)):
        r = b.compare({"taskdiag": files()}, rounds=5)
        row = lsof_run(b, 20_000, WHOLE)
        took = row["wall_ns"] if row else WHOLE * 1e9
        b.figure("wall, lsof / taskdiag" if row else f"wall, {WHOLE} s in which lsof does not finish / taskdiag",
                 took / median(r["taskdiag"], "wall_ns"), at_least=300)
        if row:
            b.ratio("cpu, lsof / taskdiag", {**r, "lsof": [row]}, "lsof", "taskdiag", "cpu_us")
        b.count("taskdiag", files())


def lsof_run(b, threads, seconds):
    """A row of lsof with this many threads, or None if it took too long."""
    out = OUT / "output"
    try:
        row = one_run(LSOF, out, timeout=seconds)
    except subprocess.TimeoutExpired:
        b.note(f"  lsof -n -P, {threads:,} threads: not done after {seconds} s, stopped")
        return None
    finally:
        out.unlink(missing_ok=True)
    label = f"lsof -n -P, {threads:,} threads"
    b.rows.append({"case": b.case, "command": label, "round": 1, **row})
    b.timing(label, [row])
    return row


@case("s", ("table", 4_096, 16_384))
def a_large_table(b):
    """4,096 threads that share 16,384 open files: files against find /proc/PID -path '*fd/*'"""
    pid = biggest()
    ours = files("-p", pid)
    # find would go through 4,096 copies of the directory. find gets 16 of these copies.
    some = ["sh", "-c", f"for t in $(ls /proc/{pid}/task | head -16); do"
                        f" find /proc/{pid}/task/$t -path '*fd/*'; done"]
    r = b.compare({"taskdiag": ours, "all processes": files(), "find, 16 threads of 4,096": some},
                  rounds=3, same=())
    rows = median(r["taskdiag"], "lines") - 1
    b.figure("rows besides one for each file", abs(rows - 16_384), at_most=0)
    b.ratio("wall, find of 16 threads / taskdiag", r, "find, 16 threads of 4,096", "taskdiag", "wall_ns")
    share = median(r["find, 16 threads of 4,096"], "wall_ns") / median(r["taskdiag"], "wall_ns")
    b.figure("wall, find / taskdiag, by proportion", share * 4_096 / 16)
    b.figure("peak memory, MB", median(r["taskdiag"], "peak_rss_kib") / 1e6 * 1024, at_most=100)
    _, start = b.count("start alone (--version)", [TASKDIAG, "--version"], warm=True)
    _, made = b.count("taskdiag", files("-p", pid, engine="bpf"), warm=True)
    known = None not in (made, start)
    b.figure("/proc inodes besides those of any start", made - start if known else None, at_most=0)


def biggest():
    """The process with the most open files, which belongs to the load while that is there."""
    out = OUT / "counts"
    one_run(files("--count", "--sort", "-fds", "--no-headers", "-o", "pid"), out)
    return out.read_text().split(maxsplit=1)[0]
