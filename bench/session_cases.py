# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases that measure repeated requests: a Session compared with new queries, and with peers that also keep running."""

import os
import subprocess

from cases import case
from measuring import OUT, RUN_TIMEOUT, Failed, gopsutil, python_with_psutil

ROUNDS = 21
PSUTIL = """
import psutil, sys, time
def ask():
    n = 0
    for p in psutil.process_iter(["pid", "ppid", "name", "status", "cpu_times", "memory_info"]):
        n += 1
    return n
ask()
times = []
for _ in range(int(sys.argv[1])):
    begin = time.process_time_ns()
    n = ask()
    times.append(time.process_time_ns() - begin)
times.sort()
print(times[len(times) // 2], n)
"""


def said(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command[:2]))}: {done.stderr.strip()}")
    ns, processes = map(int, done.stdout.split())
    return ns / 1e6, processes


def top(rounds):
    """The CPU time of one round of top -b in ms, without that of its start. Between two rounds it waits for 0.2 s."""
    def one(n):
        before = os.times()
        subprocess.run(["top", "-b", "-d", "0.2", "-n", str(n)], stdout=subprocess.DEVNULL, check=True, timeout=RUN_TIMEOUT)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system
    return (one(rounds + 1) - one(1)) / rounds * 1e3


def table(b, bar_ms, peers_rounds=5):
    if not b.rust:
        raise Failed("bench/rust did not build")
    program = f"{b.rust}/refresh"
    rows = {}
    # Each program runs three times, in turn. The median of the three medians counts.
    for _ in range(3):
        for who in ("session", "query", "session-procfs"):
            rows.setdefault(who, []).append(said([program, who, str(ROUNDS)]))
        rows.setdefault("held-open C loop over stat", []).append(said([str(OUT / "heldloop"), str(ROUNDS)]))
    for who in ("sysinfo", "procfs"):
        rows[f"{who} crate"] = [said([program, who, str(peers_rounds)])]
    if python_with_psutil():
        rows["psutil"] = [said([python_with_psutil(), "-c", PSUTIL, str(peers_rounds)])]
    else:
        b.note("  psutil: not installed, not measured")
    if gopsutil():
        rows["gopsutil"] = [said([gopsutil(), str(peers_rounds)])]
    else:
        b.note("  gopsutil: not built, not measured")
    ms = {}
    for who, runs in rows.items():
        runs.sort()
        ms[who] = runs[len(runs) // 2][0]
        b.note(f"  {who:<28} CPU a refresh {ms[who]:9.3f} ms   ({', '.join(f'{r[0]:.3f}' for r in runs)}; {runs[0][1]} processes)")
    ms["top -b"] = top(peers_rounds)
    b.note(f"  {'top -b':<28} CPU a refresh {ms['top -b']:9.3f} ms")
    b.figure("CPU of a refresh, ms", ms["session"], at_most=bar_ms)
    for who in ("query", "held-open C loop over stat", "sysinfo crate", "procfs crate", "psutil", "gopsutil", "top -b"):
        if who in ms:
            at_least = 1 if who.startswith("held") else None
            b.figure(f"CPU, {who} / session", ms[who] / ms["session"], at_least=at_least)
    b.figure("CPU, held-open C loop / session on procfs", ms["held-open C loop over stat"] / ms["session-procfs"])


@case("session-200", ("procs", 130))
def session_small(b):
    """about 200 processes: BASE, STAT and STATM, asked again and again"""
    table(b, bar_ms=0.4, peers_rounds=15)


@case("session-10k", ("procs", 10_000))
def session_10k(b):
    """10,000 processes: BASE, STAT and STATM, asked again and again"""
    table(b, bar_ms=13)


@case("session-50k", ("procs", 50_000))
def session_50k(b):
    """50,000 processes: BASE, STAT and STATM, asked again and again"""
    table(b, bar_ms=55, peers_rounds=3)
