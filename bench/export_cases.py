# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the case of taskdiag export: the CPU time of a scrape, compared with process-exporter with the same configuration."""

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

from cases import TASKDIAG, case
from measuring import ROOT, Failed

PEER = "prometheus-process-exporter"
# Each process that has arguments, by its command name, as the packages of process-exporter
# configure it.
CONFIG = "process_names:\n  - name: '{{.Comm}}'\n    cmdline: ['.+']\n"
ROUNDS = 9


def cpu_ms(pid):
    """CPU time of a process until now, in ms, of all threads, also of those that have ended: its CPU clock."""
    return time.clock_gettime((~pid << 3) | 2) * 1e3


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def exporter(command, port):
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if process.poll() is not None or time.monotonic() > until:
                raise Failed(f"{command[0]} does not listen")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def scrape(pid, port):
    """One scrape. Returns CPU time in ms, wall time in ms and the text."""
    before, begin = cpu_ms(pid), time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as reply:
        text = reply.read().decode()
    wall = (time.monotonic() - begin) * 1e3
    # Threads of Go continue for a moment.
    time.sleep(0.2)
    return cpu_ms(pid) - before, wall, text


def processes(text):
    """The sum of the processes of all groups."""
    lines = (line for line in text.splitlines() if line.startswith("namedprocess_namegroup_num_procs{"))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def against_peer(b, at_least=None):
    peer = shutil.which(PEER) or shutil.which(PEER, path=os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")) + "/prometheus/usr/bin")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as config, contextlib.ExitStack() as stack:
        config.write(CONFIG)
        config.flush()
        commands = {}
        for name, more in [("taskdiag", []), ("taskdiag, groups only", ["--families", "groups"]), ("taskdiag, /proc", ["--engine", "procfs"])]:
            port = free_port()
            options = ["--listen", f"127.0.0.1:{port}", "--share", "1us", "--config", config.name]
            commands[name] = ([TASKDIAG, "export", *options, *more], port)
        if peer:
            port = free_port()
            options = [f"-web.listen-address=127.0.0.1:{port}", "-config.path", config.name]
            commands[PEER] = ([peer, *options], port)
            port = free_port()
            options = [f"-web.listen-address=127.0.0.1:{port}", "-config.path", config.name, "-threads=false", "-gather-smaps=false"]
            commands[f"{PEER}, no threads, no smaps"] = ([peer, *options], port)
        else:
            b.note(f"  {PEER}: not there, not measured; tools/setup bench unpacks it")
        running = {name: (stack.enter_context(exporter(*it)), it[1]) for name, it in commands.items()}
        # The first two scrapes look at all processes for the first time.
        for _ in range(2):
            for it in running.values():
                scrape(*it)
        rows = {name: [] for name in running}
        for _ in range(ROUNDS):
            for name, it in running.items():
                rows[name].append(scrape(*it))
        median = {}
        for name, all in rows.items():
            median[name] = statistics.median(r[0] for r in all)
            wall = statistics.median(r[1] for r in all)
            text = all[-1][2]
            b.note(f"  {name:<52} cpu {median[name]:9.2f} ms  wall {wall:9.2f} ms a scrape   {len(text) / 1024:.0f} KiB,"
                   f" {processes(text):.0f} processes in groups")
        if not peer:
            return
        ours, theirs = (processes(rows[name][-1][2]) for name in ("taskdiag", PEER))
        # The exporters and a few others come and go.
        if abs(ours - theirs) > 10:
            raise Failed(f"taskdiag has {ours:.0f} processes in groups, {PEER} {theirs:.0f}")
        b.figure("CPU of a scrape, process-exporter / taskdiag", median[PEER] / median["taskdiag"], at_least=at_least)
        lean = median[f"{PEER}, no threads, no smaps"]
        b.figure("CPU of a scrape, the same without threads and smaps / taskdiag, groups only", lean / median["taskdiag, groups only"])
        b.figure("CPU of a scrape, process-exporter / taskdiag on /proc", median[PEER] / median["taskdiag, /proc"])


@case("export-200", ("procs", 130))
def export_small(b):
    """about 200 processes: a scrape of the exporter"""
    against_peer(b)


@case("export-10k", ("procs", 10_000))
def export_10k(b):
    """10,000 processes: a scrape of the exporter"""
    against_peer(b, at_least=20)
