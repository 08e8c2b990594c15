# SPDX-License-Identifier: MIT OR Apache-2.0
"""taskdiag.psutil returns the values of psutil, raises the same exceptions, and works without psutil."""

import copy
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import psutil as real
import pytest
from conftest import WAITS, crowd, until

import taskdiag
import taskdiag.psutil as psutil

# Values that do not change while both packages look.
STEADY = ["pid", "ppid", "name", "exe", "cmdline", "cwd", "environ", "uids", "gids", "username", "create_time", "terminal",
          "nice", "num_fds", "num_threads", "status", "cpu_affinity", "ionice", "open_files", "net_connections",
          "memory_info", "num_ctx_switches", "io_counters", "memory_percent"]


def equal(ours, theirs):
    """Both say the same, as soon as nothing changes meanwhile."""
    for _ in range(100):
        before = theirs()
        got = ours()
        if theirs() == before:
            assert got == before
            return
        time.sleep(0.05)
    pytest.fail("a process that waits does not come to rest")


def test_the_names_are_those_of_psutil():
    public = {n for n in dir(real.Process) if not n.startswith("_")}
    assert len(public) == 44
    assert public == {n for n in dir(psutil.Process) if not n.startswith("_")}
    assert set(real.__all__) <= set(psutil.__all__)
    assert all(hasattr(psutil, n) for n in real.__all__)


@pytest.mark.parametrize("code", [
    f"import sys; {WAITS}",
    f"import sys, threading, time; threading.Thread(target=time.sleep, args=[99], daemon=True).start(); {WAITS}",
    f"import os, sys; os.nice(7); f = open('/etc/hostname'); os.chdir('/usr'); {WAITS}",
    f"import os, sys; os.setgid(4242); os.setuid(4243); {WAITS}",
], ids=["plain", "threads", "nice", "user"])
def test_values_of_one_process_are_those_of_psutil(start, code):
    if "setuid" in code and os.geteuid():
        pytest.skip("root: only root makes a process of another user")
    child = start(code)
    ours, theirs = psutil.Process(child.pid), real.Process(child.pid)
    equal(lambda: ours.as_dict(STEADY), lambda: theirs.as_dict(STEADY))
    equal(lambda: {n: getattr(ours, n)() for n in STEADY[1:]}, lambda: {n: getattr(theirs, n)() for n in STEADY[1:]})
    times = lambda p: [*p.cpu_times()[:4], *(x for th in p.threads() for x in th)]
    # The kernel has nanoseconds, and /proc hundredths of a second.
    assert times(ours) == pytest.approx(times(theirs), abs=0.021, rel=0)
    # Shared memory changes with other processes.
    own = lambda maps: [m._replace(pss=0, shared_clean=0, private_clean=0) for m in maps]
    equal(lambda: own(ours.memory_maps()), lambda: own(theirs.memory_maps()))
    equal(lambda: own(ours.memory_maps(grouped=False)), lambda: own(theirs.memory_maps(grouped=False)))
    equal(lambda: ours.memory_full_info()._replace(uss=0, pss=0), lambda: theirs.memory_full_info()._replace(uss=0, pss=0))
    # Processes that map the same files have a share of it, and they come and go.
    assert ours.memory_full_info()[-3:] == pytest.approx(theirs.memory_full_info()[-3:], rel=0.5)


def test_values_of_all_processes_are_those_of_psutil(start):
    child = start(f"import sys; {WAITS}")
    info = lambda: next(p.info for p in psutil.process_iter(STEADY) if p.pid == child.pid)
    equal(info, lambda: real.Process(child.pid).as_dict(STEADY))
    kernel = [p.info for p in psutil.process_iter(["exe", "cmdline", "memory_info", "ppid"]) if p.info["cmdline"] == []]
    assert all(not info["exe"] and not info["memory_info"].rss for info in kernel if info["ppid"] == 2)
    attributes = ["pid", "name", "uids", "ppid", "create_time"]

    def differences():
        """Returns the differences between both for processes that have not changed meanwhile."""
        before, ours, after = ({p.pid: p.info for p in of.process_iter(attributes)} for of in (real, psutil, real))
        steady = [pid for pid in ours if pid in before and before[pid] == after.get(pid)]
        assert len(steady) > 3
        return [(ours[pid], before[pid]) for pid in steady if ours[pid] != before[pid]]

    # A process may have changed to and fro, so a difference counts if it stays.
    assert any(not differences() for _ in range(50)), differences()


def test_all_values_come_from_one_request(monkeypatch):
    asked = []
    true = taskdiag.snapshot
    monkeypatch.setattr(taskdiag, "snapshot", lambda columns, **more: asked.append(columns) or true(columns, **more))
    found = [p.info for p in psutil.process_iter(["pid", "username", "cpu_times", "memory_percent"])]
    assert len(found) > 3 and len(asked) == 1
    assert "args" not in asked[0] and "exe" not in asked[0]
    asked.clear()
    with psutil.Process().oneshot() as _, psutil.Process().oneshot():
        pass
    p = psutil.Process()
    with p.oneshot():
        assert p.environ() == p.environ() and p.name()
    assert len(asked) == 1
    asked.clear()
    assert set(p.as_dict(["name", "cmdline", "environ", "memory_info"])) == {"name", "cmdline", "environ", "memory_info"}
    assert len(asked) == 1


# Attributes that a short file of /proc has.
OF_A_FILE = ["ppid", "name", "exe", "cwd", "uids", "gids", "username", "create_time", "terminal", "nice", "num_threads", "status",
             "memory_info", "num_ctx_switches", "io_counters", "memory_percent", "cpu_num", "cpu_times", "cpu_percent"]


def test_a_file_of_one_process_needs_no_request(start, monkeypatch):
    child = start(f"import sys; {WAITS}")
    p, theirs = psutil.Process(child.pid), real.Process(child.pid)
    p.cpu_percent(), theirs.cpu_percent()
    monkeypatch.setattr(taskdiag, "snapshot", lambda *args, **more: pytest.fail("a request was made"))
    for name in OF_A_FILE:
        assert getattr(p, name)() == getattr(theirs, name)(), name
    with p.oneshot():
        assert {n: getattr(p, n)() for n in OF_A_FILE} == {n: getattr(theirs, n)() for n in OF_A_FILE}
    assert p.as_dict(OF_A_FILE) == theirs.as_dict(OF_A_FILE)


def test_values_of_another_process_with_the_pid_are_refused(start):
    child = start(f"import sys; {WAITS}")
    for name in ["ppid", "name", "exe", "cwd", "uids", "memory_info", "io_counters", "cpu_percent", "num_threads"]:
        p = psutil.Process(child.pid)
        stale = psutil.Process._known(child.pid, p._start_ticks() - 1)
        assert getattr(p, name)() is not None
        with pytest.raises(psutil.NoSuchProcess, match="PID has been reused"):
            getattr(stale, name)()
        # An object that was found to be stale stays so.
        assert not stale.is_running() and "PID reused" in str(stale)


def test_values_of_a_process_that_ended_are_refused(start):
    child = start(f"import sys; {WAITS}")
    p = psutil.Process(child.pid)
    assert p.memory_info().rss and p.cpu_times()
    child.kill()
    child.wait()
    for name in [n for n in OF_A_FILE if n not in ("exe", "create_time")] + ["cmdline", "num_fds"]:
        with pytest.raises(psutil.NoSuchProcess):
            getattr(p, name)()
    with pytest.raises(psutil.NoSuchProcess):
        p.as_dict(["memory_info"])


def test_a_zombie_has_and_lacks_the_same_as_in_psutil(start):
    child = start(f"import sys; {WAITS}")
    child.kill()
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)

    def outcome(process, name):
        try:
            return getattr(process, name)()
        except real.Error as e:
            return type(e).__name__

    ours, theirs = psutil.Process(child.pid), real.Process(child.pid)
    names = [n for n in STEADY if n not in ("pid", "num_fds")]
    assert {n: outcome(ours, n) for n in names} == {n: outcome(theirs, n) for n in names}
    assert ours.as_dict(names, ad_value="no") == theirs.as_dict(names, ad_value="no")
    info = next(p.info for p in psutil.process_iter(["environ", "cmdline"], ad_value="no") if p.pid == child.pid)
    assert info == theirs.as_dict(["environ", "cmdline"], ad_value="no")


def test_memory_is_that_of_the_process_where_its_first_thread_has_ended(start):
    # exit(2) ends the thread alone. It is 60 on x86_64, and 93 elsewhere.
    code = """
import ctypes, platform, sys, threading, time
threading.Thread(target=time.sleep, args=[99]).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""
    child = start(code)
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    p = psutil.Process(child.pid)
    listed = next(q.info["memory_info"] for q in psutil.process_iter(["memory_info"]) if q.pid == child.pid)
    for info in (p.memory_info(), listed):
        assert info.rss > 1 << 20 and info.vms > info.rss
    assert p.memory_info().rss == p.memory_full_info().rss
    with p.oneshot():
        assert p.memory_info().vms == listed.vms and p.memory_percent() > 0


def test_a_thread_is_no_process():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        p = psutil.Process(thread.native_id)
        for method in (p.name, p.memory_info, p.uids, p.cwd, p.cmdline):
            with pytest.raises(psutil.NoSuchProcess, match="id of a thread"):
                method()
        for method in (lambda: p.send_signal(0), p.threads):
            with pytest.raises(real.NoSuchProcess):
                method()
        assert not psutil.pid_exists(p.pid)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("bad", ["1", 1.5, None.__class__, b"1"])
def test_a_pid_must_be_a_number(bad):
    with pytest.raises(TypeError, match="pid must be an integer"):
        psutil.Process(bad)


def test_one_call_costs_no_more_than_in_psutil(start):
    """The bar is 1.2 times psutil's CPU time; about 0.6 was measured, so that another load does not
    decide it."""
    child = start(f"import sys; {WAITS}")

    def five(p):
        with p.oneshot():
            return p.name(), p.username(), p.status(), p.cpu_times(), p.memory_info()

    calls = {"memory_info": lambda p: p.memory_info(), "cpu_percent": lambda p: p.cpu_percent(), "oneshot of five": five}
    for name, call in calls.items():
        best = [float("inf")] * 2
        for _ in range(9):
            for which, of in enumerate((psutil, real)):
                p = of.Process(child.pid)
                begin = time.process_time_ns()
                for _ in range(500):
                    call(p)
                best[which] = min(best[which], time.process_time_ns() - begin)
        assert best[0] <= 1.2 * best[1], (name, best)


def test_the_same_objects_come_until_the_cache_is_cleared():
    first = {p.pid: p for p in psutil.process_iter()}
    second = {p.pid: p for p in psutil.process_iter(["name"])}
    assert second[os.getpid()] is first[os.getpid()]
    psutil.process_iter.cache_clear()
    third = {p.pid: p for p in psutil.process_iter()}
    assert third[os.getpid()] is not first[os.getpid()] and third[os.getpid()] == first[os.getpid()]
    assert list(third) == sorted(third)
    with pytest.raises(ValueError, match="'nme'"):
        list(psutil.process_iter(["nme"]))


def test_a_name_that_the_kernel_cuts_is_whole(start, tmp_path):
    program = tmp_path / "a-name-of-more-than-15"
    os.symlink(sys.executable, program)
    child = subprocess.Popen([program, "-c", "import time; time.sleep(99)"])
    try:
        until(lambda: open(f"/proc/{child.pid}/comm").read().startswith("a-name"))
        assert psutil.Process(child.pid).name() == program.name
        assert {p.pid: p.info["name"] for p in psutil.process_iter(["name"])}[child.pid] == program.name
    finally:
        child.kill()
        child.wait()


def test_zombies_and_ended_processes_raise_what_psutil_raises(start):
    child = start(f"import sys; {WAITS}")
    p = psutil.Process(child.pid)
    child.kill()
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    for method in (p.exe, p.cmdline, p.cwd, p.memory_maps):
        with pytest.raises(real.ZombieProcess):
            method()
    assert p.as_dict(["exe", "status"], ad_value="no") == {"exe": "no", "status": "zombie"}
    zombie = next(q for q in psutil.process_iter(["exe", "name"], ad_value="no") if q.pid == child.pid)
    assert zombie.info["exe"] == "no" and zombie.is_running()
    child.wait()
    for method in (p.name, p.exe, p.memory_info, p.threads, p.open_files, p.net_connections, p.memory_maps, p.nice,
                   p.ionice, p.cpu_affinity, p.parent, p.children, p.kill, p.environ, p.num_ctx_switches, p.cpu_percent):
        with pytest.raises(real.NoSuchProcess) as e:
            method()
        assert e.value.pid == child.pid
    assert not p.is_running() and p.wait() is None
    with pytest.raises(real.NoSuchProcess):
        psutil.Process(child.pid)


def test_denied_values_raise_access_denied():
    """Another user may not look into this process."""
    if os.geteuid():
        pytest.skip("root: only root becomes another user")
    code = f"""
import os, sys
import taskdiag.psutil as psutil
# The interpreter may be in a directory that other users may not enter.
os.setgroups([]); os.setgid(4242); os.setuid(4242)
p = psutil.Process({os.getpid()})
for method in (p.cwd, p.environ, p.io_counters, p.memory_full_info, p.open_files, p.memory_maps, p.kill):
    try:
        method()
        print(method.__name__, "is not denied")
    except psutil.AccessDenied as e:
        assert e.pid == p.pid
info = next(q.info for q in psutil.process_iter(["name", "cwd", "environ", "open_files"], ad_value=0) if q.pid == p.pid)
print("ready", info["name"] == p.name(), info["cwd"], info["environ"], info["open_files"])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=100 * crowd())
    assert (run.stderr, run.stdout) == ("", "ready True 0 0 0\n")


def test_parents_and_children_are_those_of_psutil(start):
    child = start(f"import sys; {WAITS}")
    me, p = psutil.Process(), psutil.Process(child.pid)
    assert p.parent() == me and me in p.parents() and p in me.children() and p in me.children(recursive=True)
    assert {q.pid for q in me.children()} == {q.pid for q in real.Process().children()}


def test_a_child_may_begin_in_the_tick_of_its_parent_but_not_before(monkeypatch):
    from taskdiag.psutil import _columns

    p, ticks = psutil.Process(), 0
    monkeypatch.setattr(psutil.Process, "_start_ticks", lambda self: ticks)
    table = type("Table", (), {"rows": lambda self: [(7, p.pid, ticks), (8, p.pid, ticks - 1)]})()
    monkeypatch.setattr(_columns.Here, "ask", lambda here, columns: table)
    for ticks in range(1, 10_000):
        p._ident = (p.pid, ticks / _columns.TICKS)
        # A process that began before its parent was adopted by it, or is the child of another
        # process with the same pid.
        assert [c.pid for c in p.children()] == [7], ticks


def test_connections_are_those_of_psutil():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix, socket.socket() as idle:
        unix.bind(b"\0taskdiag-%d" % os.getpid())
        for kind in ("all", "tcp", "inet4", "unix", "udp6"):
            ours, theirs = psutil.Process().net_connections(kind), real.Process().net_connections(kind)
            assert set(ours) == set(theirs), kind
        fds = {c.fd: c for c in psutil.Process().net_connections("all")}
        assert fds[client.fileno()].status == psutil.CONN_ESTABLISHED and idle.fileno() not in fds
        mine = {p.pid: p.info["net_connections"] for p in psutil.process_iter(["net_connections"])}[os.getpid()]
        assert set(mine) == set(real.Process().net_connections())


def test_cpu_percent_counts_from_the_previous_call(start):
    child = start("import sys; print('ready', flush=True)\nsys.stdin.readline()\nwhile True: pass")
    p = psutil.Process(child.pid)
    assert p.cpu_percent() == 0.0
    child.stdin.write(b"\n")
    child.stdin.flush()
    until(lambda: p.cpu_percent(0.1) > 0)
    list(psutil.process_iter(["cpu_percent"]))
    time.sleep(0.3)
    until(lambda: next(q.info["cpu_percent"] for q in psutil.process_iter(["cpu_percent"]) if q.pid == p.pid) > 0)


def test_another_directory_is_read_like_proc(start, tmp_path):
    """PROCFS_PATH may be a directory tree like /proc."""
    child = start(f"import sys; {WAITS}")
    copy = tmp_path / "4242"
    copy.mkdir()
    for name in ("stat", "status", "statm", "cmdline", "comm"):
        text = open(f"/proc/{child.pid}/{name}", "rb").read()
        (copy / name).write_bytes(text.replace(b"%d (" % child.pid, b"4242 (").replace(b"\t%d\n" % child.pid, b"\t4242\n"))
    for name in ("stat", "meminfo", "uptime"):
        (tmp_path / name).write_bytes(open(f"/proc/{name}", "rb").read())
    theirs = real.Process(child.pid).as_dict(["ppid", "name", "cmdline", "memory_info", "uids", "create_time"])
    before = real.PROCFS_PATH
    try:
        psutil.PROCFS_PATH = str(tmp_path)
        assert real.PROCFS_PATH == str(tmp_path)
        assert psutil.pids() == [4242] and psutil.pid_exists(4242) and not psutil.pid_exists(os.getpid())
        assert psutil.Process(4242).as_dict(list(theirs)) == theirs
        assert [p.info for p in psutil.process_iter(list(theirs))] == [theirs]
        with pytest.raises(real.NoSuchProcess):
            psutil.Process(os.getpid())
    finally:
        psutil.PROCFS_PATH = before
    with pytest.raises(taskdiag.QueryError, match="procfs"):
        taskdiag.snapshot("pid", proc="/proc", engine="bpf")


def test_io_waits_are_those_of_the_stat_file(start, monkeypatch, tmp_path):
    """Where the kernel counts them, they are those of /proc/PID/stat."""
    from taskdiag.psutil import _columns

    child = start(f"import sys; {WAITS}")
    with open(f"/proc/{child.pid}/stat") as f:
        words = f.read().split(" ")
    words[41] = "250"
    (tmp_path / str(child.pid)).mkdir()
    (tmp_path / str(child.pid) / "stat").write_text(" ".join(words))
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert psutil.Process(child.pid).cpu_times().iowait == 2.5
    monkeypatch.undo()
    monkeypatch.setattr(_columns, "counts_delays", lambda: True)
    real_stat = _columns.stat

    # A process that ends between the two readings has no times.
    def ended(here, pid):
        if pid == child.pid:
            raise FileNotFoundError
        return [*real_stat(here, pid)[:39], b"0"]

    monkeypatch.setattr(_columns, "stat", ended)
    pids = {p.pid for p in psutil.process_iter(["cpu_times", "cpu_percent"])}
    assert os.getpid() in pids and child.pid not in pids


def test_processes_work_without_psutil(tmp_path):
    """Everything about processes works, and the rest says what to do."""
    code = """
import sys
sys.modules["psutil"] = None
import os, taskdiag.psutil as psutil
p = psutil.Process()
info = p.as_dict()
assert info["pid"] == os.getpid() and len(info) == 30, len(info)
assert any(q.pid == p.pid for q in psutil.process_iter(["name", "cpu_percent", "ionice"]))
try:
    psutil.Process(2 ** 22 + 1)
except psutil.NoSuchProcess as e:
    print(e)
try:
    psutil.virtual_memory()
except AttributeError as e:
    print(e)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=100 * crowd())
    assert run.stderr == ""
    assert run.stdout.splitlines()[0] == "process PID not found (pid=4194305)"
    assert "pip install psutil" in run.stdout.splitlines()[1]


def test_names_beyond_processes_are_those_of_psutil_itself():
    assert psutil.virtual_memory().total == real.virtual_memory().total
    assert psutil.NoSuchProcess is real.NoSuchProcess
    with pytest.raises(AttributeError):
        psutil.no_such_thing


def test_a_process_can_be_pickled_at_any_time():
    p = psutil.Process()
    for _ in range(2):
        assert pickle.loads(pickle.dumps(p)) == p
        with p.oneshot():
            p.name()
            again = pickle.loads(pickle.dumps(p))
            assert again == p and again.name() == p.name()
    q = pickle.loads(pickle.dumps(p))
    with q.oneshot():
        assert q.ppid() == os.getppid()
    assert copy.copy(p) == p == copy.deepcopy(p)


def test_start_times_ignore_the_boot_time_of_a_container(tmp_path):
    """LXCFS shows in /proc/stat when a container was started. Start times of processes are not of that clock."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    code = "import taskdiag.psutil as psutil; print(psutil.Process().create_time())"
    with open("/proc/stat") as f:
        lines = f.read().splitlines()
    lines = [f"btime {int(line.split()[1]) + 3600}" if line.startswith("btime ") else line for line in lines]
    fake = tmp_path / "stat"
    fake.write_text("\n".join(lines) + "\n")
    script = 'mount --bind "$1" /proc/stat && exec "$2" -c "$3"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(fake), sys.executable, code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100 * crowd())
    assert run.returncode == 0, run.stderr
    assert abs(float(run.stdout) - time.time()) < 100 * crowd()
