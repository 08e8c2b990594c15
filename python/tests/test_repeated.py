# SPDX-License-Identifier: MIT OR Apache-2.0
"""Repeated requests: from the third time on, their programs stay loaded. Only the time may show
that. Each test is a process of its own, since it does to itself what a program may do."""

import os
import subprocess
import sys

from conftest import skip

BEGIN = """
import os, sys
import taskdiag
engine = sys.argv[1]

def ask():
    return taskdiag.snapshot("pid,ppid,exe", engine=engine)

def kept():
    fds = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            fds.add(os.readlink(f"/proc/self/fd/{fd}") and fd)
        except OSError:
            pass  # that of the list itself
    return fds - {0, 1, 2}

before = len(kept())
for _ in range(4):
    assert os.getpid() in ask()["pid"]
# Programs stay loaded. Files of /proc do not stay open, as there may be thousands.
assert (len(kept()) > before) == (engine == "bpf"), kept()
"""


def run(engine, script):
    done = subprocess.run([sys.executable, "-c", BEGIN + script, engine], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_that_closes_everything(engine):
    run(engine, """
for fd in kept():
    os.close(fd)
ours = {os.memfd_create(str(n)) for n in range(64)}
for _ in range(4):
    assert os.getpid() in ask()["pid"]
for fd in ours:
    assert "memfd" in os.readlink(f"/proc/self/fd/{fd}"), "a file of the program was closed"
""")


def test_a_child_that_was_forked(engine):
    run(engine, """
child = os.fork()
if child == 0:
    for _ in range(4):
        assert os.getpid() in ask()["pid"]
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for _ in range(4):
    assert os.getpid() in ask()["pid"]
""")


def test_a_program_that_gives_up_its_rights(engine):
    if os.geteuid() != 0:
        skip("another user", "only root can become somebody else")
    out = run(engine, """
def others():
    rows = ask().rows()
    return sum(exe is not None for pid, ppid, exe in rows if pid == os.getppid())

assert others() == 1
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
try:
    print(others())
except taskdiag.Unavailable:
    print("unavailable")
""")
    assert out.strip() == {"procfs": "0", "bpf": "unavailable"}[engine]


def test_requests_that_are_not_repeated_are_not_kept(engine):
    run(engine, """
more = len(kept())
for _ in range(2):
    taskdiag.snapshot("pid,rss", engine=engine)
    taskdiag.snapshot("pid,comm", pids=[os.getpid()], engine=engine)
assert len(kept()) == more
""")
