# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cost of a list of cgroups."""

import subprocess

from cases import case
from measuring import RUN_TIMEOUT, Failed

NAME, COUNT, LISTS = "taskdiag-bench", 1_000, 15


def cgroups(b, *args):
    done = subprocess.run([f"{b.rust}/cgroups", *map(str, args)], capture_output=True, text=True, timeout=RUN_TIMEOUT)
    if done.returncode:
        raise Failed(done.stderr.strip())
    return done.stdout


@case("cgroups", None)
def thousand(b):
    """1,000 cgroups more, in all mounted hierarchies: a list with the files of the default columns"""
    if not b.rust:
        raise Failed("bench/rust did not build")
    try:
        cgroups(b, "make", NAME, COUNT)
        ms = {}
        for line in cgroups(b, LISTS).splitlines():
            what, how, count, calls, median, _ = line.split("\t")
            ms[what, how] = int(median.split()[0]) / 1e3
            b.note(f"  {what:<16} {how:<7} {count:>13} {calls:>12}  CPU {ms[what, how]:8.2f} ms")
        b.figure("CPU in ms, files that are opened", ms["default", "opened"], at_most=15)
        b.figure("CPU in ms, files that stay open", ms["default", "held"], at_most=5)
    finally:
        cgroups(b, "remove", NAME, COUNT)
