# SPDX-License-Identifier: MIT OR Apache-2.0
"""taskdiag.psutil acts on processes, and waits for them, as psutil does. It never acts on another process with the pid."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import psutil as real
import pytest
from conftest import WAITS, crowd, state, until

import taskdiag.psutil as psutil


def test_another_process_gets_no_signal(start):
    child = start(f"import sys; {WAITS}")
    p = psutil.Process(child.pid)
    p._ident = (p.pid, p._ident[1] - 1)
    for method in (p.kill, p.suspend, lambda: p.nice(3), lambda: p.cpu_affinity([0]), lambda: p.ionice(3), p.children):
        with pytest.raises(real.NoSuchProcess, match="reused"):
            method()
    assert child.poll() is None and p.wait() is None


def test_an_object_of_an_ended_process_does_nothing_to_the_next_one_with_its_pid():
    """An object whose process was seen to be gone does nothing to the next process with that pid."""
    if os.geteuid():
        pytest.skip("root: only root makes a pid namespace and says what the next pid is")
    code = """
import subprocess
import taskdiag.psutil as psutil

first = subprocess.Popen(["sleep", "99"])
p = psutil.Process(first.pid)
first.kill()
first.wait()
assert not p.is_running()
with open("/proc/sys/kernel/ns_last_pid", "w") as f:
    f.write(str(first.pid - 1))
second = subprocess.Popen(["sleep", "99"])
assert second.pid == first.pid
changes = [lambda: p.send_signal(0), p.kill, p.suspend, lambda: p.nice(3), lambda: p.ionice(3), lambda: p.cpu_affinity([0]),
           lambda: p.rlimit(psutil.RLIMIT_CORE, (0, 0)), p.children, p.ppid]
for number, change in enumerate(changes):
    try:
        change()
        print("not refused:", number)
    except psutil.NoSuchProcess as e:
        assert e.pid == first.pid
assert p.wait(9) is None
print("the other one:", second.poll(), psutil.Process(second.pid).nice())
second.kill()
"""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100 * crowd())
    assert (run.stdout, run.stderr) == (f"the other one: None {os.nice(0)}\n", "")


FOREIGN = """
import os, subprocess, sys, time
from taskdiag import psutil

def refused(what, error):
    try:
        print("not refused:", what())
    except error as e:
        if "pid namespace" not in str(e):
            print("no reason:", e)

def until(is_true):
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)

# /proc is of a namespace below. Each of these numbers is that of a child of ours, too, which
# nothing may happen to.
for pid in range(3, 7):
    p = psutil.Process(pid)
    if p.name() != "sleep" or p.cmdline() != ["sleep", "3002"]:
        print("odd:", p)
    for call in [p.nice, p.ionice, p.cpu_affinity]:
        if call != p.nice:
            refused(call, psutil.AccessDenied)
    for change in [lambda: p.nice(3), lambda: p.ionice(3), lambda: p.cpu_affinity([0]),
                   lambda: p.rlimit(psutil.RLIMIT_CORE, (0, 0)), lambda: p.rlimit(psutil.RLIMIT_CORE)]:
        refused(change, psutil.AccessDenied)
p = psutil.Process(3)
p.suspend()
until(lambda: p.status() == psutil.STATUS_STOPPED)
p.resume()
until(lambda: p.status() != psutil.STATUS_STOPPED)
try:
    psutil.Process(3).wait(0.1)
    print("it has not ended")
except psutil.TimeoutExpired:
    pass
p.terminate()
until(lambda: not p.is_running() or p.status() == psutil.STATUS_ZOMBIE)
gone, alive = psutil.wait_procs([psutil.Process(4)], timeout=0.1)
assert not gone and len(alive) == 1
psutil.Process(4).kill()
print("done", psutil.pid_exists(5))
"""


def test_nothing_reaches_a_process_with_the_same_number():
    """In the pid namespace of one container, with the mounts of another: the numbers of /proc are those of other processes here."""
    inner = "for i in 1 2 3 4 5 6 7 8; do sleep 3002 & done; exec sleep 3003"
    outer = """
import os, subprocess, sys, time
victims = [subprocess.Popen(["sleep", "3001"]) for _ in range(8)]
unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", sys.argv[1]]
box = subprocess.Popen(unshare)
def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return f.read().split()
while not children(box.pid) or len(children(children(box.pid)[0])) < 8:
    time.sleep(0.01)
time.sleep(0.2)
nsenter = ["nsenter", "--mount=/proc/" + children(box.pid)[0] + "/ns/mnt"]
code = subprocess.run([*nsenter, sys.executable, "-c", sys.argv[2]]).returncode
def stat(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()
print(code, [v.poll() for v in victims], {(stat(v.pid)[0], stat(v.pid)[16]) for v in victims})
box.kill()
for v in victims:
    v.kill()
"""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", outer, inner, FOREIGN]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100 * crowd())
    assert (run.stdout, run.stderr) == (f"done True\n0 {[None] * 8} { {('S', str(os.nice(0)))} }\n", "")


def test_with_the_proc_of_the_outer_namespace_a_child_is_found():
    code = """
import os, sys
from taskdiag import psutil
me = psutil.Process()
assert me.pid != os.getpid() and me.cmdline()[-1] == "here", me
child = psutil.Popen(["sleep", "3004"])
assert child.cmdline() == ["sleep", "3004"], child.cmdline()
child.terminate()
print(child._subproc.wait())
"""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", code, "here"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100 * crowd())
    assert (run.stdout, run.stderr) == ("-15\n", "")


def test_waits_return_how_processes_ended(start):
    children = [start(f"import sys; {WAITS}") for _ in range(3)]
    procs = [psutil.Process(c.pid) for c in children]
    gone, alive = psutil.wait_procs(procs, timeout=0.05)
    assert gone == [] and alive == procs
    with pytest.raises(real.TimeoutExpired):
        procs[0].wait(0.01)
    seen = []
    procs[1].terminate()
    gone, alive = psutil.wait_procs(procs[1:2], callback=seen.append)
    assert gone == seen == procs[1:2] and gone[0].returncode == -signal.SIGTERM and alive == []
    threading.Timer(0.1, procs[0].kill).start()
    assert procs[0].wait(20) == -signal.SIGKILL == procs[0].wait()
    popen = psutil.Popen([sys.executable, "-c", "raise SystemExit(5)"], stdout=subprocess.PIPE)
    assert popen.wait(20) == popen.returncode == 5
    assert popen.stdout.read() == b""
    popen.stdout.close()


@pytest.mark.parametrize("long", [30 * 86400, 1e300, float("inf")])
def test_a_timeout_may_be_longer_than_poll_can_wait(start, long):
    """Also those that are longer than poll(2) can wait."""
    children = [start(f"import sys; {WAITS}") for _ in range(2)]
    p, q = (psutil.Process(c.pid) for c in children)
    threading.Timer(0.1, p.kill).start()
    assert p.wait(long) == -signal.SIGKILL
    threading.Timer(0.1, q.kill).start()
    assert psutil.wait_procs([q], long) == ([q], []) and q.returncode == -signal.SIGKILL


def test_a_wait_of_several_polls_takes_its_whole_time(start, monkeypatch):
    from taskdiag.psutil import _ending

    monkeypatch.setattr(_ending, "LONGEST", 0.01)
    child = start(f"import sys; {WAITS}")
    begin = time.monotonic()
    with pytest.raises(real.TimeoutExpired):
        psutil.Process(child.pid).wait(0.1)
    assert time.monotonic() - begin >= 0.1
    threading.Timer(0.1, child.kill).start()
    assert psutil.Process(child.pid).wait(20) == -signal.SIGKILL


def test_more_processes_than_descriptors_can_be_waited_for():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    children = [subprocess.Popen(["sleep", "99"]) for _ in range(60)]
    procs = [psutil.Process(c.pid) for c in children]
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 40, limits[1]))
    try:
        assert psutil.wait_procs(procs, 0.05) == ([], procs)
        for c in children:
            c.kill()
        gone, alive = psutil.wait_procs(procs, 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for c in children:
            c.kill()
            c.wait()
    assert set(gone) == set(procs) and alive == [] and {p.returncode for p in gone} == {-signal.SIGKILL}


def test_waits_for_objects_of_subprocess(start):
    children = [start(f"import sys; {WAITS}") for _ in range(2)]
    children[1].kill()
    until(lambda: state(children[1].pid) == "Z")
    gone, alive = psutil.wait_procs(children, 0.5)
    assert gone == children[1:] and alive == children[:1] and gone[0].returncode == -signal.SIGKILL


def test_a_zombie_of_another_parent_is_not_gone(start):
    """A zombie of another parent is not gone until that parent has waited for it."""
    middle = start("import subprocess, sys; c = subprocess.Popen(['sleep', '99']); print('ready', flush=True); "
                   "sys.stdin.readline(); c.wait(); sys.stdin.read()")
    p = psutil.Process(middle.pid).children()[0]
    p.kill()
    with pytest.raises(real.TimeoutExpired):
        p.wait(0.05)
    threading.Timer(0.1, lambda: (middle.stdin.write(b"\n"), middle.stdin.flush())).start()
    assert p.wait(20) is None and not p.is_running()


def test_changes_reach_the_process(start):
    child = start(f"import sys; {WAITS}")
    p, theirs = psutil.Process(child.pid), real.Process(child.pid)
    p.nice(9)
    p.ionice(psutil.IOPRIO_CLASS_BE, 6)
    p.cpu_affinity([0])
    p.rlimit(psutil.RLIMIT_NOFILE, (100, 200))
    assert (theirs.nice(), theirs.ionice(), theirs.cpu_affinity()) == (9, (2, 6), [0])
    assert p.ionice().ioclass is real.IOPRIO_CLASS_BE
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == p.rlimit(psutil.RLIMIT_NOFILE) == (100, 200)
    p.suspend()
    until(lambda: p.status() == psutil.STATUS_STOPPED)
    p.resume()
    until(lambda: p.status() != psutil.STATUS_STOPPED)
    with pytest.raises(ValueError, match="choose between"):
        p.cpu_affinity([10_000])
