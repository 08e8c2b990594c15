# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures, and a report in the form of cargo, which tools/run-tests counts."""

import faulthandler
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import taskdiag

# A test that hangs is ended with a stack of each thread, as tools/test-runner ends those in Rust.
LIMIT_S = 120
SKIPS = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target")) / "taskdiag-skips.txt"
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


class Cargo:
    """Prints results as cargo does."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    @staticmethod
    def name(nodeid):
        return "python::" + nodeid.rpartition("/")[2].replace(".py::", "::")

    def pytest_runtest_logreport(self, report):
        name = self.name(report.nodeid)
        if report.failed:
            if not self.failed or self.failed[-1][0] != name:
                print(f"test {name} ... FAILED", flush=True)
                self.failed.append((name, report.longreprtext + "".join(f"\n{t}" for _, t in report.sections)))
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append(f"{name}: {why.removeprefix('Skipped: ')}")
        elif report.when == "call":
            self.passed += 1
            print(f"test {name} ... ok", flush=True)

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.append((self.name(report.nodeid), report.longreprtext))
            print(f"test {self.name(report.nodeid)} ... FAILED", flush=True)

    def pytest_sessionfinish(self, session, exitstatus):
        if self.failed:
            print("\nfailures:\n")
            for name, text in self.failed:
                print(f"---- {name} stdout ----\n{text}\n")
        if self.skipped:
            with open(SKIPS, "a") as f:
                f.writelines(f"{line}\n" for line in self.skipped)
            for line in self.skipped:
                print(f"not tested: {line}")
        verdict = "FAILED" if self.failed else "ok"
        print(
            f"test result: {verdict}. {self.passed} passed; {len(self.failed)} failed; 0 ignored; the Python package",
            flush=True,
        )


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if config.getoption("--cargo"):
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        config.pluginmanager.unregister(terminal)
        config.pluginmanager.register(Cargo(), "cargo")


def pytest_addoption(parser):
    parser.addoption("--cargo", action="store_true", help="print results as cargo does")


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
