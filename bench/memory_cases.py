# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases about memory: mappings, roll-ups, swap. Each makes its own load."""

import contextlib
import os
import statistics
import subprocess

from cases import TASKDIAG, case
from measuring import OUT, Failed, load, one_run, python_with_psutil, quiet


def psutil(b, rows, what, at_least):
    """Times psutil, which does `what` to each process `p`, compared with the label taskdiag of `rows`."""
    python = python_with_psutil()
    if not python:
        b.note("  psutil: not installed, not measured")
        return
    code = f"""import psutil
for p in psutil.process_iter():
    try:
        {what}
    except psutil.Error:
        pass"""
    r = {**rows, **b.compare({"psutil": [python, "-c", code]}, rounds=2)}
    b.ratio("wall, psutil / taskdiag", r, "psutil", "taskdiag", "wall_ns", at_least=at_least)
    b.ratio("cpu, psutil / taskdiag", r, "psutil", "taskdiag", "cpu_us")


@case("k", None)
def one_with_many(b):
    """one process with 60,000 mappings: maps against pmap, maps -X against pmap -X"""
    with load(("vmas", 60_000)) as pid:
        pid = str(pid)
        for ours, peer, bar in [(["maps", pid], ["pmap", pid], 2.5), (["maps", "-X", pid], ["pmap", "-X", pid], 6)]:
            label, other = " ".join(ours[:-1]), " ".join(peer[:-1])
            r = b.compare({label: [TASKDIAG, *ours], other: peer}, rounds=7)
            b.ratio(f"wall, {other} / {label}", r, other, label, "wall_ns", at_least=bar)
            b.ratio(f"cpu, {other} / {label}", r, other, label, "cpu_us", at_least=bar)
        # The time of the kernel for writing the same text. No reader of the text can be faster.
        for file in ("maps", "smaps"):
            b.compare({f"cat {file}": ["cat", f"/proc/{pid}/{file}"]}, rounds=5)


@case("l", None)
def all_mappings(b):
    """all mappings of 5,000 processes, about 25 each, against cat of /proc/*/maps, which parses nothing"""
    cat = "cat /proc/[0-9]*/maps 2>/dev/null"
    stream = [TASKDIAG, "dump", "--groups", "vma"]
    with load(("maps", 5_000, 4)):
        output = OUT / "output"
        lines = [one_run(c, output)["lines"] for c in ([TASKDIAG, "maps"], ["sh", "-c", f"{cat}; true"])]
        output.unlink()
        b.note(f"  {lines[0]:,} mappings; cat prints {lines[1]:,}")
        if abs(lines[0] - lines[1]) > 0.01 * lines[1]:
            raise Failed("not the same job")
        r = b.compare({"taskdiag": [TASKDIAG, "maps"], "stream": stream,
                       "cat > /dev/null": ["sh", "-c", f"{cat} >/dev/null; true"]}, rounds=7,
                      same=("taskdiag", "taskdiag"))
        b.ratio("wall, cat / printed", r, "cat > /dev/null", "taskdiag", "wall_ns", at_least=2)
        b.ratio("cpu, cat / printed", r, "cat > /dev/null", "taskdiag", "cpu_us", at_least=2)
        b.ratio("wall, cat / stream", r, "cat > /dev/null", "stream", "wall_ns", at_least=3)
        b.ratio("cpu, cat / stream", r, "cat > /dev/null", "stream", "cpu_us", at_least=3)
        b.count("taskdiag", [TASKDIAG, "maps"], warm=True)
        psutil(b, r, "for m in p.memory_maps(grouped=False): print(m.addr, m.perms, m.path)", 50)


@case("m", None)
def roll_up(b):
    """pss, uss and swap of 5,000 processes: memory against smem and psutil's memory_full_info"""
    with load(("maps", 5_000, 4)):
        r = b.compare({"taskdiag": [TASKDIAG, "memory"]}, rounds=5)
        if quiet(["smem", "--version"]) or quiet(["smem", "-h"]):
            r |= b.compare({"smem": ["smem"]}, rounds=2)
            b.ratio("wall, smem / taskdiag", r, "smem", "taskdiag", "wall_ns", at_least=15)
            b.ratio("cpu, smem / taskdiag", r, "smem", "taskdiag", "cpu_us")
        else:
            b.note("  smem: not installed, not measured")
        psutil(b, r, "print(p.memory_full_info())", 3)


@contextlib.contextmanager
def swap_space():
    """Provides 64 MiB of swap in a file for a while. Swap that was there before stays as it is."""
    file = OUT / "swap"
    file.unlink(missing_ok=True)
    fd = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(bytes(64 << 20))
        for command in ["mkswap", "swapon"]:
            done = subprocess.run([command, file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise Failed(f"{command}: {done.stderr.strip()}: no swap space to measure with")
        try:
            yield
        finally:
            subprocess.run(["swapoff", file], check=True)
    finally:
        file.unlink()


@case("n", None)
def shared_swap(b):
    """swap of a 2 GiB mapping with a page in 2 MiB, half swapped out, 100 times: shared memory against anonymous"""
    if not b.rust:
        raise Failed("bench/rust did not build")
    kinds = {"anon": "anonymous", "shared": "shared, half swapped out", "in": "shared, nothing swapped out",
             "read": "shared, read-only", "private": "private, writable, of a shared object"}
    words = {kind: [] for kind in kinds}
    with swap_space(), contextlib.ExitStack() as loads:
        pids = {kind: loads.enter_context(load(("swap", kind))) for kind in kinds}
        out = OUT / "output"
        for _ in range(15):
            for kind, pid in pids.items():
                one_run([f"{b.rust}/bench-swap", str(pid), "100"], out)
                words[kind].append({k: int(v) for k, v in (w.split("=") for w in out.read_text().split())})
        out.unlink()
    got = {kind: {k: statistics.median(w[k] for w in rows) for k in rows[0]} for kind, rows in words.items()}
    for kind, n in got.items():
        b.note(f"  {kinds[kind]:<40} {n['swap_ns'] / 1e6:8.2f} ms, CPU {n['swap_cpu_ns'] / 1e6:8.2f};"
               f" smaps {n['smaps_ns'] / 1e6:8.2f} ms, CPU {n['smaps_cpu_ns'] / 1e6:8.2f};"
               f" swapped {int(n['anon'] + n['shmem']) >> 10} KiB, smaps says {int(n['smaps']) >> 10}")
    # CPU time is compared, because threads that wait for a CPU are not a cost of the figure.
    for kind in ("shared", "in", "read"):
        b.figure(f"cpu, {kinds[kind]} / anonymous", got[kind]["swap_cpu_ns"] / got["anon"]["swap_cpu_ns"], at_most=1.1)
        # The cost of the same figure for a reader of smaps, for an anonymous mapping.
        b.figure(f"cpu, {kinds[kind]} / smaps of anonymous", got[kind]["swap_cpu_ns"] / got["anon"]["smaps_cpu_ns"])
    for kind, n in got.items():
        b.figure(f"bytes that differ from smaps, {kinds[kind]}", abs(n["shmem"] + n["anon"] - n["smaps"]), at_most=0)
    b.figure(f"cpu, {kinds['private']} / anonymous", got["private"]["swap_cpu_ns"] / got["anon"]["swap_cpu_ns"])
    for kind in kinds:
        b.figure(f"cpu, smaps / group swap, {kinds[kind]}", got[kind]["smaps_cpu_ns"] / got[kind]["swap_cpu_ns"])
