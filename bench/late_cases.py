# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a request keeps others off their CPU: the worst lateness of a real-time task on each CPU.

A lateness has two parts: the task was awake and did not run, or the interrupt that wakes it came late. bench/lateness.c tells them
apart, and the bar is on the first. A host that does not run this virtual machine for a while makes both long. The first row shows
how long: a program that never enters the kernel cannot keep a real-time task waiting, so what waits beside it waits for the host.
The time that the host took (steal, of /proc/stat) stands beside each row."""

import os
import subprocess
import time

from cases import TASKDIAG, case, ps
from measuring import OUT, Failed, RUN_TIMEOUT

# For how long each command is run again and again beside the real-time tasks, in seconds. A command that takes longer than
# this is run once, and the real-time tasks until it ends.
SECONDS = 6
# How often a row is measured that exceeds the bar and in which the host took time.
TRIES = 5
# The bar, in microseconds. A run of the BPF program takes 1 ms at most; the rest is what the kernel does anyway, such as
# ending a process.
LATE_US = 5_000

# A program that never enters the kernel.
SPINS = "nothing but user mode"
SPIN = ["timeout", str(SECONDS), "sh", "-c", "while :; do :; done"]

OURS = {
    "idle": None,
    SPINS: SPIN,
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
    SPINS: SPIN,
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


def stolen_ms():
    """For how long the host has not run CPUs that had something to do, in all."""
    with open("/proc/stat") as f:
        return int(f.readline().split()[8]) * 1_000 // os.sysconf("SC_CLK_TCK")


def lateness(b, label, command):
    """In microseconds, beside a command that is run again and again: the longest wait of an awake task on any CPU."""
    stolen = stolen_ms()
    watch = subprocess.Popen([OUT / "lateness", str(SECONDS)], stdout=subprocess.PIPE, text=True)
    end, runs = time.monotonic() + SECONDS, 0
    try:
        while command and time.monotonic() < end:
            left = min(RUN_TIMEOUT, max(1.0, end - time.monotonic() + RUN_TIMEOUT / 4))
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=left)
            # 3 is our "partial": on a machine that hides something from root, that is every answer. lsof says 1, timeout 124.
            if done.returncode not in (0, 1, 3, 124):
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
    worst, waited, _ = (max(column) for column in zip(*cpus))
    long, stolen = sum(cpu[2] for cpu in cpus), stolen_ms() - stolen
    each = ", ".join(f"{late / 1e3:.2f}, {wait / 1e3:.2f}" for late, wait, _ in cpus)
    b.note(f"  {label:<28} kept waiting {waited / 1e3:7.2f} ms, {long} times more than 5 ms, worst lateness {worst / 1e3:7.2f} ms"
           f"   (each CPU: {each}; {runs} runs; the host took {stolen} ms)")
    return worst, waited, long, stolen


def table(b, commands, bars):
    b.note(f"  kernel preemption: {preemption()}")
    for label, command in commands.items():
        # What exceeds the bar in a row in which the host took time says nothing of the command. Each row is shown.
        for _ in range(TRIES):
            worst, waited, long, stolen = lateness(b, label, command)
            if waited <= LATE_US or stolen == 0:
                break
        bar = {"at_most": LATE_US} if command and command is not SPIN and label in bars else {}
        b.figure(f"worst lateness, us, {label}", worst)
        b.figure(f"times kept waiting for more than 5 ms, {label}", long)
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
