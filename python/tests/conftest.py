# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures."""

import faulthandler
import os
import subprocess
import sys
import time

import pytest

import taskdiag

# A test that hangs is ended with a stack of each thread, as tools/test-runner ends those in Rust.
LIMIT_S = 120
REQUIRED = os.environ.get("TASKDIAG_REQUIRE", "").replace(",", " ").split()


def crowd():
    """How often the time of a test is stretched, as several tasks may want each processor. tools/test-runner counts in the same way.
    The mean of the last minute counts, too, because the limit of a test is set at its begin."""
    with open("/proc/loadavg") as f:
        words = f.read().split()
    running = max(float(words[0]), int(words[3].split("/")[0]))
    return min(10.0, max(1.0, running / os.cpu_count()))


def skip(name, why):
    """Says loudly that something was not tested. An engine that is required is a failure instead."""
    if name in REQUIRED:
        pytest.fail(f"TASKDIAG_REQUIRE names {name}, which cannot be used: {why}")
    pytest.skip(f"{name}: {why}")


@pytest.fixture(autouse=True)
def limit():
    faulthandler.dump_traceback_later(LIMIT_S * crowd(), exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=["procfs", "bpf"])
def engine(request):
    """Each engine that works here."""
    try:
        taskdiag.snapshot("pid", engine=request.param, pids=os.getpid())
    except taskdiag.Unavailable as e:
        skip(request.param, str(e))
    return request.param


def state(pid):
    with open(f"/proc/{pid}/stat", errors="replace") as f:
        return f.read().rpartition(")")[2].split()[0]


@pytest.fixture
def start():
    """Starts programs, and ends those that are left. A program has begun when it has written a line and waits."""
    children = []

    def begin(code, *args, **options):
        command = [sys.executable, "-c", code, *args]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        children.append(child)
        assert child.stdout.readline() == b"ready\n"
        until(lambda: state(child.pid) in "SZ")
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def until(what, seconds=60):
    """Waits until something is true. Time counts for less on a busy machine."""
    last = time.monotonic()
    while not what():
        now = time.monotonic()
        seconds -= (now - last) / crowd()
        last = now
        assert seconds > 0, "it did not happen in time"
        time.sleep(0.01)
