# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cost of waiting until processes end, compared with other ways to wait."""

import os
import pathlib
import resource
import subprocess

from cases import case, TASKDIAG
from measuring import OUT, RUN_TIMEOUT, Failed, python_with_psutil

# How many processes end in a run, and how often each run is made.
ENDS, RUNS = 301, 5
FEW, MANY, MOST = (100, 1_000), 8_000, 50_000
# A command waits for this number of processes, and all of them end. Before that, it has this many
# seconds to start watching them.
ALL, BEGINS_S = 2_000, 2
PSUTIL = """
import psutil, sys
processes = [psutil.Process(int(pid)) for pid in sys.argv[1:]]
gone, alive = psutil.wait_procs(processes)
assert not alive
"""


def allowed_files():
    """The hard limit of open files. A wait needs one file for each process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def more_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed_files(), allowed_files()))


def ends(program, who, processes, *cold):
    """CPU time of `who` until it knows which of `processes` has ended: the median, in microseconds."""
    command = [program, who, str(processes), str(ENDS), *cold]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT, preexec_fn=more_files)
    if done.returncode:
        raise Failed(done.stderr.strip())
    return int(done.stdout.split()[0]) / 1e3


@case("wait", None)
def one_of_many(b):
    """the end of one process of many: Waiter against waitpid(-1)"""
    if not b.rust:
        raise Failed("bench/rust did not build")
    most = min(MOST, allowed_files() - 1_000)
    if most < MOST:
        b.note(f"  {most} processes instead of {MOST}, because the limit of open files allows no more")
    rows = {(who, n): [] for n in (*FEW, MANY, most) for who in ("waiter", "waitpid") if n != most or who == "waiter"}
    # Before each time, other memory evicts the caches.
    rows |= {("waiter", n, "cold"): [] for n in (*FEW, MANY, most)}
    for _ in range(RUNS):
        for who in rows:
            rows[who].append(ends(f"{b.rust}/waits", *who))
    us = {}
    for (who, n, *cold), runs in rows.items():
        us[who, n, *cold] = sorted(runs)[len(runs) // 2]
        label = " ".join((who, *cold))
        b.note(f"  {label:<11} of {n:>6} processes: CPU {us[who, n, *cold]:9.1f} us   ({', '.join(f'{r:.1f}' for r in runs)})")
    for name, cold in (("an end with cold caches", ("cold",)), ("an end", ())):
        least = min(us["waiter", n, *cold] for n in FEW)
        for n in (MANY, most):
            b.figure(f"CPU of {name}, {n} processes / few", us["waiter", n, *cold] / least, at_most=1.2)
    b.figure(f"CPU of an end of {MANY}, waitpid(-1) / Waiter", us["waitpid", MANY] / us["waiter", MANY])


def cpu_ms(command, pids):
    """CPU time of a command that waits for processes which all end while it waits."""
    load = subprocess.Popen([str(OUT / "load"), "procs", str(ALL)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        load.stdout.readline()
        children = pathlib.Path(f"/proc/{load.pid}/task/{load.pid}/children").read_text().split()
        before = os.times()
        waits = subprocess.Popen(command + (children if pids else [str(load.pid)]), stdout=subprocess.DEVNULL)
        # Until it has looked at all of them.
        try:
            waits.wait(BEGINS_S)
            raise Failed(f"{command[0]} did not wait")
        except subprocess.TimeoutExpired:
            pass
        load.stdin.close()
        waits.wait(RUN_TIMEOUT)
        after = os.times()
    finally:
        load.kill()
        load.wait()
    # The load is waited for after the times are taken.
    return (after.children_user + after.children_system - before.children_user - before.children_system) * 1e3


@case("wait-all", None)
def all_of_them(b):
    """2,000 processes that end: taskdiag wait against pidwait and psutil.wait_procs"""
    commands = {"taskdiag wait": ([TASKDIAG, "wait"], True), "pidwait -P": (["pidwait", "-P"], False)}
    if python_with_psutil():
        commands["psutil.wait_procs"] = ([python_with_psutil(), "-c", PSUTIL], True)
    rows = {who: [] for who in commands}
    for _ in range(3):
        for who, (command, pids) in commands.items():
            rows[who].append(cpu_ms(command, pids))
    ms = {who: sorted(runs)[1] for who, runs in rows.items()}
    for who, runs in rows.items():
        b.note(f"  {who:<20} CPU {ms[who]:9.1f} ms   ({', '.join(f'{r:.1f}' for r in runs)})")
    for who in ms:
        if who != "taskdiag wait":
            b.figure(f"CPU, {who} / taskdiag wait", ms[who] / ms["taskdiag wait"])
