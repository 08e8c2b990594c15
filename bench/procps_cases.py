# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases of the drop-in for libproc2: the same program of procps with it and without it, by turns."""

import os

from cases import PROCS, THREADS, case
from measuring import ROOT, Failed

TARGET = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
# A relative path, as for all commands: runs are kept, and the path on this machine has no meaning
# elsewhere. They run in ROOT.
LIBRARY = os.path.relpath(os.path.join(TARGET, "dropin", "libtaskdiag_procps.so"), ROOT)


def both(b, command, at_least, rounds=5, **same):
    """Compares a command with itself. `env` starts both, so that both pay for it."""
    if not os.path.exists(os.path.join(ROOT, LIBRARY)):
        raise Failed("the drop-in is not built: make build")
    with_it = ["env", f"LD_PRELOAD={LIBRARY}", *command]
    name = " ".join(command)
    r = b.compare({"with": with_it, name: ["env", *command]}, rounds=rounds, **same)
    b.ratio("wall, without / with", r, name, "with", "wall_ns", at_least=at_least)
    b.ratio("cpu, without / with", r, name, "with", "cpu_us")
    return r


@case("procps-ids", PROCS)
def ids(b):
    """50,000 processes: ps -eo pid,ppid of procps with the drop-in and without it"""
    both(b, ["ps", "-eo", "pid,ppid"], at_least=5)


@case("procps-aux", PROCS)
def aux(b):
    """50,000 processes: ps aux of procps with the drop-in and without it"""
    both(b, ["ps", "aux"], at_least=None)


@case("procps-pgrep", PROCS)
def pgrep(b):
    """50,000 processes: pgrep -x nosuch with the drop-in and without it"""
    # pgrep finds nothing and exits with code 1, which is no failure here.
    both(b, ["sh", "-c", "pgrep -x nosuch; [ $? = 1 ]"], at_least=6)


@case("procps-threads", THREADS)
def threads(b):
    """100,000 threads: ps -eLf of procps with the drop-in and without it"""
    both(b, ["ps", "-eLf"], at_least=8)


@case("procps-top", ("threads", 50_000, 1))
def top(b):
    """50,000 threads: top -b -n1 -H with the drop-in and without it"""
    both(b, ["env", "TERM=dumb", "top", "-b", "-n1", "-H"], at_least=4)


@case("procps-small", None)
def small(b):
    """a small machine: ps aux, pgrep and top with the drop-in and without it; at most 2 ms slower"""
    for command in (["ps", "aux"], ["sh", "-c", "pgrep -x nosuch; [ $? = 1 ]"],
                    ["env", "TERM=dumb", "top", "-b", "-n1"]):
        r = both(b, command, at_least=None, rounds=25)
        name = " ".join(command)
        middle = lambda rows: sorted(row["wall_ns"] for row in rows)[len(rows) // 2]
        b.figure(f"ms more with it, {name}", (middle(r["with"]) - middle(r[name])) / 1e6, at_most=2)
