# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases that measure a recorder and the conversion of its recording to Parquet: CPU time
and bytes of taskdiag record, of atop
where it is installed, and of taskdiag convert.

A recorder of processes that only sleep would write nearly nothing. So a tenth of the processes wake up ten times a second, and
new ones begin all the time.
"""

import contextlib
import pathlib
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from cases import TASKDIAG, case
from measuring import ROOT, RUN_TIMEOUT, Failed

EVERY_S, FRAMES = 10, 7
# Frames from one key frame to the next (docs/use/record.md).
CYCLE = 61
WAKING = """
import os, time
for n in range(100):
    if os.fork() == 0:
        while os.getppid() != 1:
            time.sleep(0.1)
        os._exit(0)
while True:
    os.waitpid(os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1"), 0)
"""
# The head of a frame, which an index has once for each.
HEAD = struct.Struct("<IIQQQQIIIIII")


@contextlib.contextmanager
def waking():
    """A hundred processes that wake up ten times a second, and a new one each second."""
    parent = subprocess.Popen([sys.executable, "-c", WAKING], start_new_session=True)
    try:
        time.sleep(1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            parent.send_signal(signal.SIGKILL)
        parent.wait()
        # The processes end when their parent has ended.
        time.sleep(0.3)


def cpu_s(pid):
    """CPU time of a process so far, to the nanosecond."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def run(command, files):
    """Runs a recorder for some frames. Returns the share of a CPU that it took after its first frame."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not any(f.stat().st_size for f in files()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if process.poll() is not None:
            raise Failed(f"{command[0]} ended with {process.returncode}")
        before, begin = cpu_s(process.pid), time.monotonic()
        time.sleep(EVERY_S * (FRAMES - 1))
        return (cpu_s(process.pid) - before) / (time.monotonic() - begin) * 100
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def ours(b, home):
    directory = home / "recording"
    share = run([TASKDIAG, "record", "--every", f"{EVERY_S}s", directory], lambda: directory.glob("*.idx"))
    heads = [
        HEAD.unpack(entry)
        for index in sorted(directory.glob("*.idx"))
        for entry in (lambda data: [data[i : i + 64] for i in range(0, len(data), 64)])(index.read_bytes())
    ]
    # A frame has two heads of 64 bytes, one in the file and one in the index.
    keys = [(h[7] + 128) / h[10] for h in heads if h[2] == h[3]]
    deltas = [(h[7] + 128) / h[10] for h in heads if h[2] != h[3]]
    if len(deltas) < FRAMES - 3:
        raise Failed(f"only {len(heads)} frames were recorded")
    key, delta = statistics.median(keys), statistics.median(deltas)
    each = (key + (CYCLE - 1) * delta) / CYCLE
    b.note(f"  {heads[-1][10]} processes; a key frame takes {key:.1f} bytes a process, another one {delta:.1f}")
    return share, each


@case("record-1k", ("procs", 900))
def record(b):
    """1,000 processes, a tenth of which wake up ten times a second: a recorder at 10 s"""
    with tempfile.TemporaryDirectory() as home, waking():
        home = pathlib.Path(home)
        share, each = ours(b, home)
        b.figure("CPU of taskdiag record, % of one CPU", share, at_most=0.5)
        b.figure("bytes for a process and frame", each, at_most=60)
        if not shutil.which("atop"):
            b.note("  atop: not installed, not measured")
            return
        raw = home / "atop.raw"
        command = ["atop", "-w", raw, str(EVERY_S), str(FRAMES)]
        begin = time.time()
        atop = run(command, lambda: [raw] if raw.exists() else [])
        frames = max((time.time() - begin) / EVERY_S, 1)
        b.figure("CPU, atop / taskdiag record", atop / max(share, 0.001))
        b.figure("bytes, atop / taskdiag record", raw.stat().st_size / frames / 1000 / each)


# The command with the feature arrow, in a separate directory, as in the tests.
ARROW = "target/arrow/release/taskdiag"


@case("convert-1k", ("procs", 900))
def convert(b):
    """1,000 processes, a tenth of which wake up ten times a second: a recording of a minute at 1 s becomes Parquet"""
    if not (ROOT / ARROW).exists():
        raise Failed(f"{ARROW} is not there: CARGO_TARGET_DIR=target/arrow cargo build --release -p taskdiag-cli --features arrow")
    with tempfile.TemporaryDirectory() as home, waking():
        recording = f"{home}/recording"
        recorder = subprocess.Popen([TASKDIAG, "record", "--every", "1s", recording], stderr=subprocess.DEVNULL)
        time.sleep(61)
        recorder.send_signal(signal.SIGTERM)
        recorder.wait()
        frames = sum(f.stat().st_size // 64 for f in pathlib.Path(recording).glob("*.idx"))
        if frames < 50:
            raise Failed(f"only {frames} frames were recorded")
        cpu = []
        for round in range(6):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [ROOT / ARROW, "convert", recording, f"{home}/lake-{round}"]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=RUN_TIMEOUT)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        # The first one is the warm-up.
        each = statistics.median(cpu[1:]) * 1000 / frames
        size = sum(f.stat().st_size for f in pathlib.Path(f"{home}/lake-0").rglob("*.parquet"))
        b.note(f"  {frames} frames, {size} bytes of Parquet; CPU of each run, ms: {', '.join(f'{c * 1000:.0f}' for c in cpu)}")
        b.figure("CPU of taskdiag convert, ms a frame", each)
        b.figure("CPU of taskdiag convert, % of one CPU, for a frame each 10 s", each / 10_000 * 100)
