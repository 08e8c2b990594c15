# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a request keeps others off their CPU: the worst lateness of a real-time task on each CPU."""

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
    """The worst lateness in microseconds of any CPU beside a command that is run again and again, and the number of runs."""
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
    worst = [int(n) for n in said.split()]
    b.note(f"  {label:<28} worst lateness {max(worst) / 1e3:9.2f} ms   (each CPU: {', '.join(f'{w / 1e3:.2f}' for w in worst)};"
           f" {runs} runs)")
    return max(worst)


def table(b, commands, bars):
    b.note(f"  kernel preemption: {preemption()}")
    for label, command in commands.items():
        worst = lateness(b, label, command)
        bar = {"at_most": LATE_US} if command and label in bars else {}
        b.figure(f"worst lateness, us, {label}", worst, **bar)


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
