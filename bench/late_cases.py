# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases that measure how long a request keeps others off their CPU: how late a real-time task on each CPU runs at worst.

A real-time task is late for one of two reasons. Either it was awake and did not run, or the interrupt that wakes it came late.
bench/lateness.c tells the two apart, and looks every tenth of a millisecond at what runs while an awake task waits. The bar is for
the time in which somebody was seen running. The rest of a wait is time in which the CPU itself did not run, because the host did not
run this virtual machine, or in which interrupts were off. A program that never enters the kernel
cannot turn interrupts off, so its row shows how long the host takes the CPU. The time that the host
took (steal in /proc/stat) stands beside each row.
"""

import os
import subprocess
import time

from cases import TASKDIAG, case, ps
from measuring import OUT, Failed, RUN_TIMEOUT

# Each command is repeated for this time while the real-time tasks run, in seconds. A command that
# takes longer is run once.
SECONDS = 6
# How often the running task is sampled, in microseconds.
SAMPLE_US = 100
# The bar, in microseconds. A run of the BPF program takes 1 ms at most. The rest is for other work
# of the kernel, such as the end of a process.
LATE_US = 5_000

# A program that never enters the kernel.
SPINS = "nothing but user mode"
SPIN = ["timeout", str(SECONDS), "sh", "-c", "while :; do :; done"]

OURS = {
    "idle": None,
    SPINS: SPIN,
    "ps -eo pid,ppid": ps("-eo", "pid,ppid", engine="bpf"),
    "ps aux": ps("aux", engine="bpf"),
    "ps -eo pid,exe,cwd": ps("-eo", "pid,exe,cwd", engine="bpf"),
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
    "ps -T": ps("--threads", "-eo", "pid,tid,comm,stat,time", engine="bpf"),
    "ps aux": ps("aux", engine="bpf"),
    "files": [TASKDIAG, "files", "--engine", "bpf"],
}


def preemption():
    """The preemption model that the kernel reports: none, voluntary, lazy or full."""
    try:
        text = open("/sys/kernel/debug/sched/preempt").read()
        return next(w.strip("()") for w in text.split() if w.startswith("("))
    except (OSError, StopIteration):
        return "not known (/sys/kernel/debug is not mounted, or may not be read)"


def stolen_ms():
    """The total time, in milliseconds, for which the host has not run CPUs that had work."""
    with open("/proc/stat") as f:
        return int(f.readline().split()[8]) * 1_000 // os.sysconf("SC_CLK_TCK")


def lateness(b, label, command):
    """Measures real-time tasks while a command is repeated. Returns the worst lateness on any CPU, the longest wait of an awake task,
    the longest time in a wait in which somebody ran, and the longest one in which the CPU did not, in microseconds. The number of waits
    over 5 ms is the last one."""
    stolen = stolen_ms()
    watch = subprocess.Popen([OUT / "lateness", str(SECONDS), str(SAMPLE_US)], stdout=subprocess.PIPE, text=True)
    end, runs = time.monotonic() + SECONDS, 0
    try:
        while command and time.monotonic() < end:
            left = min(RUN_TIMEOUT, max(1.0, end - time.monotonic() + RUN_TIMEOUT / 4))
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=left)
            # 3 is our code for a partial answer. On a machine that hides something from root, every
            # answer is partial. lsof uses 1, and timeout 124.
            if done.returncode not in (0, 1, 3, 124):
                raise Failed(f"{' '.join(command)}: exit code {done.returncode}")
            runs += 1
        said, _ = watch.communicate(timeout=SECONDS + 60)
    except BaseException:
        watch.kill()
        watch.communicate()
        raise
    if watch.returncode:
        raise Failed("bench/lateness failed: a real-time task needs root")
    lines = said.splitlines()
    cpus = [tuple(map(int, line.split())) for line in lines if not line.startswith("#")]
    worst, waited, _, ran, gap = (max(column) for column in zip(*cpus))
    long, stolen = sum(cpu[2] for cpu in cpus), stolen_ms() - stolen
    b.note(f"  {label:<28} kept waiting {waited / 1e3:6.2f} ms, {long} times more than 5 ms; in one wait somebody ran for {ran / 1e3:6.2f} ms,"
           f" the CPU did not for {gap / 1e3:6.2f} ms; worst lateness {worst / 1e3:6.2f} ms   ({runs} runs; the host took {stolen} ms)")
    if ran > LATE_US:
        for line in lines:
            if line.startswith("#"):
                b.note(f"    {line}")
    return worst, waited, ran, gap, long


def settle(command):
    """Repeats a request for a while. After 100,000 processes have ended, the kernel keeps the address space of their stacks. Each time
    somebody frees a lot of memory of the kernel, as a request does with its maps, a worker gives a quarter of it back without a break,
    which takes 20 ms at first. That is the end of an earlier load. After some dozens of requests it is half a millisecond."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=RUN_TIMEOUT)


def table(b, commands, bars):
    b.note(f"  kernel preemption: {preemption()}")
    settle(commands["ps aux"])
    for label, command in commands.items():
        worst, waited, ran, gap, long = lateness(b, label, command)
        bar = {"at_most": LATE_US} if command and command is not SPIN and label in bars else {}
        b.figure(f"worst lateness, us, {label}", worst)
        b.figure(f"times kept waiting for more than 5 ms, {label}", long)
        b.figure(f"kept waiting, us, {label}", waited)
        b.figure(f"kept waiting while the CPU did not run, us, {label}", gap)
        b.figure(f"kept waiting while somebody ran, us, {label}", ran, **bar)


@case("late-1k", ("procs", 1_000))
def late_1k(b):
    """1,000 processes: how long a SCHED_FIFO task waits at worst during each request"""
    table(b, {**OURS, **PEERS}, OURS)


@case("late-10k", ("procs", 10_000))
def late_10k(b):
    """10,000 processes: how long a SCHED_FIFO task waits at worst"""
    table(b, {**OURS, **PEERS}, OURS)


@case("late-50k", ("procs", 50_000))
def late_50k(b):
    """50,000 processes: how long a SCHED_FIFO task waits at worst"""
    table(b, {**OURS, "procps: ps aux": PEERS["procps: ps aux"]}, OURS)


@case("late-100k", ("procs", 100_000))
def late_100k(b):
    """100,000 processes: how long a SCHED_FIFO task waits at worst"""
    table(b, OURS, OURS)


@case("late-threads", ("threads", 100_000, 1))
def late_threads(b):
    """100,000 threads of one process: how long a SCHED_FIFO task waits at worst"""
    table(b, THREADS, THREADS)
