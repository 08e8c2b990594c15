# SPDX-License-Identifier: MIT OR Apache-2.0
"""The time that a Python program waits: the package taskdiag compared with psutil, in the environment of the package's tests."""

import os
import subprocess

from cases import case
from measuring import ROOT, RUN_TIMEOUT, Failed

# Each program prints the medians of the elapsed time and the CPU time of some calls, the shortest
# and the longest time, all in ns, and the number of tasks.
FRAME = """
import sys, time
{setup}
def ask():
    {ask}
ask()
wall, cpu = [], []
for _ in range(int(sys.argv[1])):
    begin, begin_cpu = time.perf_counter_ns(), time.process_time_ns()
    n = ask()
    wall.append(time.perf_counter_ns() - begin)
    cpu.append(time.process_time_ns() - begin_cpu)
wall.sort()
cpu.sort()
print(wall[len(wall) // 2], cpu[len(cpu) // 2], wall[0], wall[-1], n)
"""
# Twelve things, as ps -f and ps u show them.
ATTRS = ["pid", "ppid", "username", "name", "status", "num_threads", "cpu_times", "memory_info", "create_time", "nice",
         "terminal", "cmdline"]
COLUMNS = "pid,ppid,user,comm,s,nlwp,time,rss,vsz,start,nice,tty,args"
PROGRAMS = {
    "psutil process_iter": ("import psutil", f"return sum(1 for p in psutil.process_iter({ATTRS}))"),
    # The program is the same except for its import.
    "taskdiag.psutil process_iter": (
        "import taskdiag.psutil as psutil",
        f"return sum(1 for p in psutil.process_iter({ATTRS}))",
    ),
    "snapshot() to Arrow": (
        "import pyarrow, taskdiag",
        f"return pyarrow.table(taskdiag.snapshot('{COLUMNS}')).num_rows",
    ),
    "Session to Arrow": (
        f"import pyarrow, taskdiag\nsession = taskdiag.Session('{COLUMNS}')",
        "return pyarrow.table(session.refresh()).num_rows",
    ),
    "snapshot().to_dicts()": ("import taskdiag", f"return len(taskdiag.snapshot('{COLUMNS}').to_dicts())"),
}
# The times of all threads, for which psutil reads a file for each.
OF_EACH = "import {} as psutil\ndef of(p):\n    try:\n        return len(p.threads())\n    except psutil.Error:\n        return 0"
THREADS = {
    "psutil threads()": (
        OF_EACH.format("psutil"),
        "return sum(map(of, psutil.process_iter()))",
    ),
    "taskdiag.psutil threads()": (
        OF_EACH.format("taskdiag.psutil"),
        "return sum(map(of, psutil.process_iter()))",
    ),
    "taskdiag.psutil process_iter(threads)": (
        "import taskdiag.psutil as psutil",
        "return sum(len(p.info['threads']) for p in psutil.process_iter(['threads']))",
    ),
    "snapshot(threads=True) to Arrow": (
        "import pyarrow, taskdiag",
        "return pyarrow.table(taskdiag.snapshot('pid,tid,time', threads=True)).num_rows",
    ),
}


def python():
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    path = os.path.join(target, "python-venv", "bin", "python")
    done = subprocess.run([path, "-c", "import psutil, pyarrow, taskdiag"], capture_output=True, text=True) \
        if os.path.exists(path) else None
    if done is None or done.returncode:
        raise Failed("the package and its tests' environment are not there: make python")
    return path


def measured(b, programs, rounds, turns=3):
    """Runs the programs by turns. Returns the medians of the medians of each in ms (time, CPU time), and the tasks."""
    path, runs = python(), {}
    for _ in range(turns):
        for who, (setup, ask) in programs.items():
            n = rounds if who.startswith("psutil") else 5 * rounds
            # Settings of a terminal or shell must not decide where Python looks for modules.
            done = subprocess.run([path, "-I", "-c", FRAME.format(setup=setup, ask=ask), str(n)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT)
            if done.returncode:
                raise Failed(f"{who}: {done.stderr.strip()}")
            runs.setdefault(who, []).append(tuple(map(int, done.stdout.split())))
    middle = lambda got, i: sorted(g[i] for g in got)[len(got) // 2] / 1e6
    ms = {who: (middle(got, 0), middle(got, 1)) for who, got in runs.items()}
    for who, got in runs.items():
        extremes = f"{min(g[2] for g in got) / 1e6:.1f} to {max(g[3] for g in got) / 1e6:.1f}"
        b.note(f"  {who:<32} {ms[who][0]:10.3f} ms ({extremes}), CPU {ms[who][1]:10.3f} ms   {got[0][4]} tasks")
    counts = {who: got[0][4] for who, got in runs.items()}
    if max(counts.values()) > 1.02 * min(counts.values()) + 5:
        raise Failed(f"the answers differ in size: {counts}")
    return ms, min(counts.values())


def ratio(b, ms, peer, ours, at_least=None):
    """How many times as long psutil takes. The bar is on the time; on a machine that others use, CPU time tells more."""
    b.figure(f"{peer} / {ours}", ms[peer][0] / ms[ours][0], at_least=at_least)
    b.figure(f"CPU, {peer} / {ours}", ms[peer][1] / ms[ours][1])


def table(b, rounds):
    b.note(f"  load average {open('/proc/loadavg').read().split()[0]}")
    ms, tasks = measured(b, PROGRAMS, rounds)
    bar = lambda value: value if tasks >= 10_000 else None
    peer, ours = "psutil process_iter", "snapshot() to Arrow"
    ratio(b, ms, peer, "taskdiag.psutil process_iter", at_least=bar(12))
    ratio(b, ms, peer, ours, at_least=bar(60))
    b.figure(f"us a process, {ours}", ms[ours][0] / tasks * 1e3, at_most=bar(2))
    b.figure(f"CPU us a process, {ours}", ms[ours][1] / tasks * 1e3)
    ratio(b, ms, peer, "Session to Arrow", at_least=bar(80))
    ratio(b, ms, peer, "snapshot().to_dicts()")


@case("python-200", ("procs", 130))
def python_small(b):
    """about 200 processes, 12 columns in Python"""
    table(b, rounds=9)


@case("python-10k", ("procs", 10_000))
def python_10k(b):
    """10,000 processes, 12 columns in Python"""
    table(b, rounds=3)


@case("python-threads", ("threads", 100_000))
def python_threads(b):
    """100,000 threads and their times in Python"""
    threads(b, at_least=50)


@case("python-threads-2k", ("threads", 2_000))
def python_threads_small(b):
    """2,000 threads and their times in Python"""
    threads(b)


def threads(b, at_least=None):
    b.note(f"  load average {open('/proc/loadavg').read().split()[0]}")
    # The first requests of a program load BPF programs, which the later ones find loaded, so there
    # are more of the later ones.
    ms, _ = measured(b, THREADS, rounds=3)
    ratio(b, ms, "psutil threads()", "snapshot(threads=True) to Arrow", at_least=at_least)
    ratio(b, ms, "psutil threads()", "taskdiag.psutil process_iter(threads)")
    ratio(b, ms, "psutil threads()", "taskdiag.psutil threads()")


# Prints the medians of the CPU time of a call in us, by turns in one process: psutil's and ours.
ONE = """
import statistics, subprocess, sys, time
import psutil, taskdiag.psutil
rounds, calls = map(int, sys.argv[1:])
child = subprocess.Popen(["sleep", "1000"])

def five(p):
    with p.oneshot():
        return p.name(), p.username(), p.status(), p.cpu_times(), p.memory_info()

def cpu_us(call, p):
    begin = time.process_time_ns()
    for _ in range(calls):
        call(p)
    return (time.process_time_ns() - begin) / calls / 1e3

methods = ["memory_info", "cpu_percent", "cpu_times", "name", "username", "io_counters", "num_fds", "cwd", "nice", "cmdline"]
work = {name: lambda p, name=name: getattr(p, name)() for name in methods}
work["oneshot of five"] = five
work["Process()"] = lambda p: type(p)(p.pid)
try:
    for name, call in work.items():
        both = [psutil.Process(child.pid), taskdiag.psutil.Process(child.pid)]
        took = [[cpu_us(call, p) for p in both] for _ in range(rounds)]
        print(name, *(statistics.median(one) for one in zip(*took)), sep=",")
finally:
    child.kill()
    child.wait()
"""
# The calls of most programs that watch one process.
BARS = {"memory_info": 1.2, "cpu_percent": 1.2, "oneshot of five": 1.2}


@case("python-one", None)
def python_one(b):
    """one method of one process in Python, as in psutil"""
    b.note(f"  load average {open('/proc/loadavg').read().split()[0]}")
    # Seven rounds of 4,000 calls each.
    done = subprocess.run([python(), "-I", "-c", ONE, "7", "4000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=RUN_TIMEOUT)
    if done.returncode:
        raise Failed(f"one process: {done.stderr.strip()}")
    for line in done.stdout.splitlines():
        name, theirs, ours = line.split(",")
        b.note(f"  {name:<16} CPU of a call: psutil {float(theirs):8.2f} us, taskdiag.psutil {float(ours):8.2f} us")
        b.figure(f"CPU, taskdiag.psutil / psutil, {name}", float(ours) / float(theirs), at_most=BARS.get(name))
