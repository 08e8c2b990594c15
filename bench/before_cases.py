# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cases that compare this program with an older build of it. Without such a build, they measure nothing and print how to get one."""

import os
import subprocess

from cases import PROCS, TASKDIAG, THREAD_COLUMNS, THREADS, case, ps
from measuring import Failed

# The bar, as new / old. The cost that the safety rules of the BPF programs may have.
SLOWER = 1.1

LISTS = {
    "ps -eo pid,ppid": ["ps", "--engine", "bpf", "-eo", "pid,ppid"],
    "ps": ["ps", "--engine", "bpf"],
    "ps -eo pid,exe,cwd": ["ps", "--engine", "bpf", "-eo", "pid,exe,cwd"],
    "dump base,stat,statm": ["dump", "--engine", "bpf", "-g", "base,stat,statm"],
    "files": ["files", "--engine", "bpf"],
    "maps": ["maps", "--engine", "bpf"],
}


def older(b):
    """The older program, which TASKDIAG_BEFORE names, or None, with a note that reports that."""
    program = os.environ.get("TASKDIAG_BEFORE")
    if not program:
        b.note("  not measured: TASKDIAG_BEFORE=PROGRAM names an older build of the command, from another worktree")
        return None
    if not os.access(program, os.X_OK):
        raise Failed(f"TASKDIAG_BEFORE={program}: there is no such program")
    return os.path.abspath(program)


def compare(b, name, before, now):
    old, new = f"{name}, before", f"{name}, now"
    r = b.compare({old: before, new: now}, rounds=11)
    b.ratio(f"wall, now / before: {name}", r, new, old, "wall_ns")
    b.ratio(f"cpu, now / before: {name}", r, new, old, "cpu_us", at_most=SLOWER)


def lists(b):
    if old := older(b):
        for name, arguments in LISTS.items():
            compare(b, name, [old, *arguments], [TASKDIAG, *arguments])


@case("before-10k", ("procs", 10_000))
def before_10k(b):
    """10,000 processes: each kind of request by this program and by an older build of it (TASKDIAG_BEFORE=PROGRAM)"""
    lists(b)


@case("before-50k", PROCS)
def before_50k(b):
    """50,000 processes: each kind of request by this program and by an older build of it (TASKDIAG_BEFORE=PROGRAM)"""
    lists(b)


@case("before-threads", THREADS)
def before_threads(b):
    """100,000 threads: their times by this program and by an older build of it (TASKDIAG_BEFORE=PROGRAM)"""
    old = older(b)
    if not old:
        return
    columns = ["--engine", "bpf", "-eo", THREAD_COLUMNS]
    # -T listed the threads of all processes before --threads existed.
    known = subprocess.run([old, "ps", "--threads", "-o", "pid"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    flag = "-T" if known.returncode == 2 else "--threads"
    compare(b, "ps --threads", [old, "ps", flag, *columns], ps("--threads", "-eo", THREAD_COLUMNS, engine="bpf"))
