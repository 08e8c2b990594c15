# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases that measure the cost of a live view: taskdiag top compared with top, htop, atop and btop.

Each of them runs in a terminal of 200 by 50 cells that shows one frame a second, and that is read as fast as it writes.
What counts is its CPU time in some seconds after its start, from its own stat file.
"""

import contextlib
import fcntl
import os
import pty
import shutil
import signal
import struct
import termios
import threading
import time

from cases import case
from measuring import ROOT, Failed

WARM_S, SECONDS = 4, 15
TICK = os.sysconf("SC_CLK_TCK")


def used(pid):
    """CPU time of a process so far, in s, and its resident memory in MiB."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * os.sysconf("SC_PAGESIZE") / 2**20


@contextlib.contextmanager
def in_terminal(command):
    """Runs a command in a terminal, and ends it. Yields its pid and a list with the number of bytes it wrote."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8", HTOPRC="/dev/null")
        try:
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    written = [0]

    def read():
        with contextlib.suppress(OSError):
            while data := os.read(terminal, 1 << 16):
                written[0] += len(data)

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield pid, written
    finally:
        os.kill(pid, signal.SIGTERM)
        for _ in range(50):
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
            time.sleep(0.1)
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        reader.join(2)
        os.close(terminal)


def share(b, name, command):
    """The CPU time of a command in a terminal, in percent of one CPU."""
    with in_terminal(command) as (pid, written):
        time.sleep(WARM_S)
        before, begin, bytes_before = used(pid)[0], time.monotonic(), written[0]
        time.sleep(SECONDS)
        after, rss = used(pid)
        seconds = time.monotonic() - begin
    wrote = written[0] - bytes_before
    if wrote == 0:
        raise Failed(f"{name} drew nothing in {seconds:.0f} s")
    percent = (after - before) / seconds * 100
    b.note(f"  {name:<28} {percent:7.2f} % of a CPU   rss {rss:7.1f} MiB   {wrote / seconds / 1024:.1f} KiB/s to the terminal")
    return percent


def table(b, threads=False, **bars):
    ours = ["target/release/taskdiag", "top", "-d", "1", "--share", "100"]
    peers = {
        "top": ["top", "-d", "1"] + (["-H"] if threads else []),
        "htop": ["htop", "-d", "10"],
        "atop": ["atop", "1"],
        "btop": ["btop", "--utf-force"],
    }
    # The counts are made by turns, and the median of three is used.
    runs = {"taskdiag top": [], "top": []}
    for _ in range(3):
        runs["taskdiag top"].append(share(b, "taskdiag top", ours + (["-H"] if threads else [])))
        runs["top"].append(share(b, "top", peers["top"]))
    median = {name: sorted(all)[1] for name, all in runs.items()}
    for name in ("htop", "atop", "btop"):
        if shutil.which(peers[name][0]):
            median[name] = share(b, name, peers[name])
        else:
            b.note(f"  {name}: not installed, not measured")
    b.figure("CPU of taskdiag top, % of one CPU", median["taskdiag top"], at_most=bars.get("at_most"))
    for name in median:
        if name != "taskdiag top":
            bar = bars.get("at_least") if name == "top" else None
            b.figure(f"CPU, {name} / taskdiag top", median[name] / max(median["taskdiag top"], 0.01), at_least=bar)


@case("top-200", ("procs", 130))
def top_small(b):
    """about 200 processes: a live view, one frame a second"""
    table(b)


@case("top-10k", ("procs", 10_000))
def top_10k(b):
    """10,000 processes: a live view, one frame a second"""
    table(b, at_least=10)


@case("top-100k", ("threads", 100_000, 1))
def top_threads(b):
    """100,000 threads: a live view of threads, one frame a second"""
    table(b, threads=True, at_most=12)
