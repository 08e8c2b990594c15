# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a request keeps others off their CPU: the worst lateness of a real-time task on each CPU.

A lateness has two parts: the task was awake and something ran in its place, or the interrupt that wakes it came late. The second
is the machine's: a virtual machine whose host does not run it for a while. bench/lateness.c tells them apart, and the bar is on the
first."""

import subprocess
import time

from cases import TASKDIAG, case, ps
from measuring import OUT, Failed, RUN_TIMEOUT

# For how long each command is run again and again beside the real-time tasks, in seconds. A command that takes longer than
# this is run once, and the real-time tasks until it ends.
SECONDS = 6
# The bar, in microseconds. A run of the BPF program takes 1 ms at most; the rest is what the kernel does anyway, such as
# ending a process.
LATE_US = 5_000

OURS = {
    "idle": None,
    "ps -o pid,ppid": ps("-o", "pid,ppid", engine="bpf"),
    "ps aux": ps("aux", engine="bpf"),
    "ps -o pid,exe,cwd": ps("-o", "pid,exe,cwd", engine="bpf"),
    "dump base,stat,statm": [TASKDIAG, "dump", "--engine", "bpf", "-g", "base,stat,statm"],
    "files": [TASKDIAG, "files", "--engine", "bpf"],
    "maps": [TASKDIAG, "maps", "--engine", "bpf"],
    "procfs: ps aux": ps("aux", engine="procfs"),
}
PEERS = {"procps: ps aux": ["ps", "aux"], "lsof -n -P": ["lsof", "-n", "-P"]}
# With 100,000 threads.
THREADS = {
    "idle": None,
    "ps -T": ps("--threads", "-o", "pid,tid,comm,stat,time", engine="bpf"),
    "ps aux": ps("aux", engine="bpf"),
    "files": [TASKDIAG, "files", "--engine", "bpf"],
}


def preemption():
    """What the kernel says of itself: none, voluntary, lazy, full."""
    try:
        text = open("/sys/kernel/debug/sched/preempt").read()
        return next(w.strip("()") for w in text.split() if w.startswith("("))
    except (OSError, StopIteration):
        return "not said (/sys/kernel/debug is not mounted)"


def lateness(b, label, command):
    """In microseconds, beside a command that is run again and again: the longest wait of an awake task on any CPU."""
    watch = subprocess.Popen([OUT / "lateness", str(SECONDS)], stdout=subprocess.PIPE, text=True)
    end, runs = time.monotonic() + SECONDS, 0
    try:
        while command and time.monotonic() < end:
            left = min(RUN_TIMEOUT, max(1.0, end - time.monotonic() + RUN_TIMEOUT / 4))
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=left)
            # 3 is our "partial": on a machine that hides something from root, that is every answer. lsof says 1.
            if done.returncode not in (0, 1, 3):
                raise Failed(f"{' '.join(command)}: exit code {done.returncode}")
            runs += 1
        said, _ = watch.communicate(timeout=SECONDS + 60)
    except BaseException:
        watch.kill()
        watch.communicate()
        raise
    if watch.returncode:
        raise Failed("no real-time task can be run here")
    cpus = [tuple(map(int, line.split())) for line in said.splitlines()]
    worst, waited = (max(column) for column in zip(*cpus))
    each = ", ".join(f"{late / 1e3:.2f}, {wait / 1e3:.2f}" for late, wait in cpus)
    b.note(f"  {label:<28} kept waiting {waited / 1e3:7.2f} ms, worst lateness {worst / 1e3:7.2f} ms"
           f"   (each CPU: {each}; {runs} runs)")
    b.figure(f"worst lateness, us, {label}", worst)
    return waited


def table(b, commands, bars):
    b.note(f"  kernel preemption: {preemption()}")
    for label, command in commands.items():
        waited = lateness(b, label, command)
        bar = {"at_most": LATE_US} if command and label in bars else {}
        b.figure(f"kept waiting, us, {label}", waited, **bar)


@case("late-1k", ("procs", 1_000))
def late_1k(b):
    """1,000 processes: worst lateness of a SCHED_FIFO task beside each request"""
    table(b, {**OURS, **PEERS}, OURS)


@case("late-10k", ("procs", 10_000))
def late_10k(b):
    """10,000 processes: the same"""
    table(b, {**OURS, **PEERS}, OURS)


@case("late-50k", ("procs", 50_000))
def late_50k(b):
    """50,000 processes: the same"""
    table(b, {**OURS, "procps: ps aux": PEERS["procps: ps aux"]}, OURS)


@case("late-100k", ("procs", 100_000))
def late_100k(b):
    """100,000 processes: the same"""
    table(b, OURS, OURS)


@case("late-threads", ("threads", 100_000, 1))
def late_threads(b):
    """100,000 threads of one process: the same"""
    table(b, THREADS, THREADS)
