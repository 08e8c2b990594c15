# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures."""

import faulthandler
import os
import signal
import subprocess
import sys
import time

import pytest

import taskdiag

# A test that hangs is ended with a stack of each thread, as tools/test-runner ends those in Rust.
LIMIT_S = 120
# The end of a program that waits, for `start`.
WAITS = "print('ready', flush=True); sys.stdin.read()"
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


def cgroup_mounts():
    """The directories of the hierarchies of cgroups, by their controllers; that of version 2 has none."""
    with open("/proc/self/mountinfo") as f:
        lines = [line.split() for line in f]
    mounts = {}
    for words in lines:
        kind = words[words.index("-") + 1]
        if kind in ("cgroup", "cgroup2"):
            for controller in words[-1].split(",") if kind == "cgroup" else [""]:
                mounts.setdefault(controller, words[4])
    return mounts


class Cgroup:
    """A cgroup of the same path in each hierarchy, with a stopped process."""

    def __init__(self, pid):
        self.pid, self.path = pid, f"/taskdiag-python-{os.getpid()}"
        self.dirs = {}
        for controller, mount in cgroup_mounts().items():
            # A new cgroup of this hierarchy takes no process before it has processors and memory.
            if controller in ("cpuset", "rw"):
                continue
            try:
                os.makedirs(mount + self.path, exist_ok=True)
                with open(mount + self.path + "/cgroup.procs", "w") as f:
                    f.write(str(pid))
                self.dirs[controller] = mount + self.path
            except OSError:
                pass

    def text(self, *names):
        """The text of the first of these files that is there."""
        for name in names:
            for there in self.dirs.values():
                if os.path.exists(f"{there}/{name}"):
                    with open(f"{there}/{name}") as f:
                        return f.read().strip()
        return None

    def put(self, text, *names):
        """Writes the first of these files that is there."""
        found = [f"{d}/{n}" for n in names for d in self.dirs.values() if os.path.exists(f"{d}/{n}")]
        for name in found[:1]:
            with open(name, "w") as f:
                f.write(text)
        return bool(found)

    def remove(self):
        for there in set(self.dirs.values()):
            os.rmdir(there)


@pytest.fixture
def cgroup(start):
    """A cgroup with a stopped process, so that its values stay the same."""
    child = start("print('ready', flush=True); import sys; sys.stdin.read()")
    made = Cgroup(child.pid)
    if not made.dirs:
        skip("cgroups", "no cgroup can be made")
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: state(child.pid) == "T")
    yield made
    child.kill()
    child.wait()
    until(lambda: made.text("cgroup.procs") == "")
    made.remove()


def until(what, seconds=60):
    """Waits until something is true. Time counts for less on a busy machine."""
    last = time.monotonic()
    while not what():
        now = time.monotonic()
        seconds -= (now - last) / crowd()
        last = now
        assert seconds > 0, "it did not happen in time"
        time.sleep(0.01)
