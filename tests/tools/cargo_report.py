# SPDX-License-Identifier: MIT OR Apache-2.0
"""A plugin of pytest that reports in the form of cargo, which tools/run-tests counts: `-p cargo_report --cargo NAME`."""

import os
from pathlib import Path

import pytest

SKIPS = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target")) / "taskdiag-skips.txt"


class Cargo:
    """Prints results as cargo does."""

    def __init__(self, what):
        self.what = what
        self.passed, self.failed, self.skipped = 0, [], []

    def name(self, nodeid):
        return f"{self.what}::" + nodeid.rpartition("/")[2].replace(".py::", "::")

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
            f"test result: {verdict}. {self.passed} passed; {len(self.failed)} failed; 0 ignored; {self.what}",
            flush=True,
        )


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    what = config.getoption("--cargo")
    if what:
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        config.pluginmanager.unregister(terminal)
        config.pluginmanager.register(Cargo(what), "cargo")


def pytest_addoption(parser):
    parser.addoption("--cargo", metavar="NAME", help="print results as cargo does, with this name before each")
