#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A test program like those of Rust's libtest, with tests that behave badly. tools/test-runner is tested with it.

FAKE_DIRECTORY is a directory for the files that they leave. FAKE_STUCK is a file below a mount whose server never answers.
FAKE_NUMBER is a number by which their processes are recognised.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(os.environ["FAKE_DIRECTORY"])
NUMBER = os.environ["FAKE_NUMBER"]


def passes():
    print("SKIPPED a part of it: for a reason")


def fails():
    print("one is not two")
    sys.exit(101)


def dies():
    os.kill(os.getpid(), signal.SIGABRT)


def runs_nothing():
    sys.exit(0)


def is_stuck():
    print("before it is stuck")
    sys.stdout.flush()
    time.sleep(600)


def ignores_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # This process ignores SIGTERM, too, and can be found only by its session.
    subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 601." + NUMBER])
    time.sleep(600)


def waits_in_the_kernel():
    os.stat(os.environ["FAKE_STUCK"])


def leaves_a_process():
    subprocess.Popen(["sleep", "602." + NUMBER], stdin=subprocess.DEVNULL)


def leaves_a_daemon():
    subprocess.Popen(["sleep", "603." + NUMBER], start_new_session=True)


def a_helper_ends_later():
    subprocess.Popen(["sleep", "0.5"])


def talks_a_lot():
    for _ in range(1000):
        print("x" * 10_000)


def never_stops_to_talk():
    while True:
        os.write(1, b"x" * 65536)


def alone():
    beside("alone")
    time.sleep(0.5)
    (HERE / "alone").unlink()


def beside_1():
    beside("beside")


def beside_2():
    beside("beside")


def beside(name):
    """Fails if another test runs at the same time as the test that must run alone."""
    assert not (HERE / "alone").exists()
    mine = HERE / f"{name}" if name == "alone" else HERE / f"{name}.{os.getpid()}"
    assert name != "alone" or not list(HERE.glob("beside.*"))
    mine.touch()
    if name != "alone":
        time.sleep(0.3)
        assert not (HERE / "alone").exists()
        mine.unlink()


TESTS = [
    passes, fails, dies, runs_nothing, is_stuck, ignores_sigterm, waits_in_the_kernel, leaves_a_process,
    leaves_a_daemon, a_helper_ends_later, talks_a_lot, never_stops_to_talk, alone, beside_1, beside_2,
]  # fmt: skip


def main():
    arguments = sys.argv[1:]
    if "--list" in arguments:
        for t in [] if "--ignored" in arguments else TESTS:
            print(f"{t.__name__}: test")
        if "--ignored" in arguments:
            print("never: test")
        return
    name = arguments[arguments.index("--exact") + 1]
    print("\nrunning 1 test")
    dict((t.__name__, t) for t in TESTS)[name]()
    print(f"test {name} ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored")


main()
