# SPDX-License-Identifier: MIT OR Apache-2.0
"""A fork while a thread makes the first request of a program."""

import subprocess
import sys

from conftest import crowd

# The program makes no request itself. Each of its children makes its first one in a thread, and
# forks meanwhile.
CODE = """
import os, sys, threading, time
import taskdiag

engine, times, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

def ask():
    table = taskdiag.snapshot("pid,comm", pids=os.getpid(), engine=engine)
    assert table["pid"] == [os.getpid()], table

def fail():
    try:
        taskdiag.snapshot("no_such_column")
    except taskdiag.Error:
        return
    raise AssertionError("it did not fail")

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "it hangs"

def trial(work, after):
    first = threading.Thread(target=work)
    first.start()
    time.sleep(after)
    got = in_child(work)
    first.join()
    assert got == 0, (work, after, got)

begin = time.monotonic()
assert in_child(ask) == 0
took = min(0.1, time.monotonic() - begin)
for n in range(times):
    after = took * (n * 7 % times) / times
    got = in_child(lambda: trial(fail if n % 5 == 4 else ask, after))
    assert got == 0, (n, after, got)
print("none hangs")
"""


def test_a_child_that_is_forked_in_a_first_request_gets_an_answer(engine):
    limit = 20 * crowd()
    command = [sys.executable, "-W", "ignore", "-c", CODE, engine, "150", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "none hangs\n"), done.stderr
