# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values of processes whose state is known, against /proc and psutil."""

import os
import pwd
import resource
import signal
import subprocess
import threading
import time

import psutil
import pytest
from conftest import until

import taskdiag

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


def one(columns, pid=None, **options):
    table = taskdiag.snapshot(columns, pids=pid or os.getpid(), **options)
    assert len(table) == 1
    return table.to_dicts()[0]


def test_this_process_against_proc(engine):
    row = one("pid,ppid,uid,user,comm,nlwp,args,exe,cwd", engine=engine)
    with open("/proc/self/cmdline", "rb") as f:
        args = [os.fsdecode(a) for a in f.read().split(b"\0")[:-1]]
    with open("/proc/self/comm") as f:
        comm = f.read().rstrip("\n")
    assert row["pid"] == os.getpid()
    assert row["ppid"] == os.getppid()
    assert (row["uid"], row["user"]) == (os.getuid(), pwd.getpwuid(os.getuid()).pw_name)
    assert (row["comm"], row["args"]) == (comm, args)
    assert (row["exe"], row["cwd"]) == (os.readlink("/proc/self/exe"), os.getcwd())
    # The request has a thread of its own, so that a signal can end it.
    assert threading.active_count() <= row["nlwp"] <= len(os.listdir("/proc/self/task")) + 8


def test_child_against_psutil(engine, start):
    child = start(WAIT + "  # \xe4 b", "one two", "")
    judge = psutil.Process(child.pid)
    row = one("pid,ppid,comm,args,exe,cwd,nlwp,rss,vsz,nice,start,s,pgid,sid,euid,egid", child.pid, engine=engine)
    assert row["ppid"] == judge.ppid() == os.getpid()
    assert row["comm"] == judge.name()
    assert row["args"] == judge.cmdline()
    assert (row["exe"], row["cwd"]) == (judge.exe(), judge.cwd())
    assert row["nlwp"] == judge.num_threads() == 1
    memory = judge.memory_info()
    assert row["vsz"] == memory.vms
    # The kernel adds up rss from counters per CPU, and each file of /proc in another way.
    assert abs(row["rss"] - memory.rss) < 4 << 20
    assert row["nice"] == judge.nice()
    assert row["s"] in ("S", "R", "D")
    assert abs(row["start"] - judge.create_time()) <= 2
    assert (row["pgid"], row["sid"]) == (os.getpgid(child.pid), os.getsid(child.pid))
    assert (row["euid"], row["egid"]) == (judge.uids().effective, judge.gids().effective)


def test_cpu_time_is_between_two_readings(engine):
    # Counts its own CPU time, because a busy machine may give it little of a processor.
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass

    def used():
        u = resource.getrusage(resource.RUSAGE_SELF)
        return u.ru_utime + u.ru_stime

    before = used()
    time_s = one("time", engine=engine)["time"]
    after = used()
    # /proc tells ticks, and rounds down.
    assert before - 0.03 <= time_s <= after + 0.03
    assert time_s > 0.2


def test_bytes_that_are_not_utf8(engine, start):
    odd = b"\xff\xfe-\xc3\xa4"
    child = start(WAIT, odd)
    table = taskdiag.snapshot("pid,args", pids=child.pid, engine=engine)
    assert os.fsencode(table["args"][0][-1]) == odd


def test_a_zombie_has_no_program_and_no_memory(engine, start):
    child = start("print('ready', flush=True)")
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    table = taskdiag.snapshot("pid,s,rss,exe,args", pids=child.pid, engine=engine)
    (row,) = table.to_dicts()
    assert (row["s"], row["rss"], row["args"]) == ("Z", 0, [])
    assert row["exe"] is None
    assert table.why(0, "exe") in ("absent", "denied")
    assert table.why(0, "s") is None


def test_denied_values_are_none_and_not_zero(start):
    if os.getuid() != 0:
        pytest.skip("root: only root can start a process as another user, who then may not look at us")
    script = (
        "import os, taskdiag; os.setgid(65534); os.setuid(65534)\n"
        "t = taskdiag.snapshot('pid,read_bytes,exe,rss', pids=os.getppid(), engine='procfs')\n"
        "print('ready', flush=True)\n"
        "print(t.rows()[0][1:3], t.why(0, 'read_bytes'), t.why(0, 'exe'), t.rows()[0][3] > 0, t.complete, t.missing)"
    )
    child = start(script)
    line = child.stdout.readline().decode()
    want = "(None, None) denied denied True False {'read_bytes': {'denied': 1}, 'exe': {'denied': 1}}\n"
    assert line == want


def test_threads(engine, start):
    child = start(
        "import threading, sys\n"
        "stop = threading.Event()\n"
        "all = [threading.Thread(target=stop.wait) for _ in range(5)]\n"
        "[t.start() for t in all]; print('ready', flush=True); sys.stdin.read(); stop.set()"
    )
    table = taskdiag.snapshot("pid,tid,nlwp", threads=True, pids=child.pid, engine=engine)
    tids = {int(t) for t in os.listdir(f"/proc/{child.pid}/task")}
    assert set(table["tid"]) == tids and len(table) == 6
    assert set(table["pid"]) == {child.pid}
    assert set(table["nlwp"]) == {6}


def test_all_processes_that_live_all_the_time(engine):
    def all_processes():
        """Pids with the times at which their processes began, because a pid may be used again."""
        for pid in psutil.pids():
            try:
                with open(f"/proc/{pid}/stat", errors="replace") as f:
                    yield pid, int(f.read().rpartition(")")[2].split()[19])
            except (FileNotFoundError, ProcessLookupError):
                pass

    before = set(all_processes())
    found = taskdiag.snapshot("pid", engine=engine)["pid"]
    after = set(all_processes())
    assert len(found) == len(set(found))
    # Some sandboxes hide process 1 from BPF, and the table reports that.
    lacking = {pid for pid, _ in before & after} - set(found)
    assert lacking <= {1}
    assert not lacking or engine == "bpf"
    assert os.getpid() in found


def test_conditions_and_order(start):
    children = [start(WAIT, f"n{i}") for i in range(3)]
    pids = sorted(c.pid for c in children)
    where = f"ppid == {os.getpid()} and args ~ '^.*n[0-2]$'"
    table = taskdiag.snapshot(["pid", "args"], where=where, sort="-pid")
    assert table["pid"] == pids[::-1]
    assert taskdiag.snapshot("pid", where=f"{where} and pid == {pids[0]}")["pid"] == pids[:1]


def test_maps_against_proc(engine, start):
    child = start(WAIT)

    def of_proc():
        with open(f"/proc/{child.pid}/maps") as f:
            return [tuple(int(a, 16) for a in line.split()[0].split("-")) for line in f]

    before = of_proc()
    table = taskdiag.maps(child.pid, "address,end,size,perms,path", engine=engine)
    assert before == of_proc()
    # /proc adds a page of the kernel, which is no mapping of the process.
    wanted = [m for m in before if m[0] < 1 << 63]
    found = [m for m in zip(table["address"], table["end"]) if m[0] < 1 << 63]
    assert found == wanted and len(found) > 10
    assert [b - a for a, b in found] == table["size"][: len(found)]
    assert os.path.realpath(f"/proc/{child.pid}/exe") in table["path"]


def test_waits_have_the_holder_of_a_pipe(engine):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
        until(lambda: taskdiag.waits(cat.pid, engine=engine)["waits_on"] == ["pipe-read"])
        row = taskdiag.waits(cat.pid, engine=engine)[0]
        assert (row.tid, row.waits_for, row.waits_for_how) == (cat.pid, os.getpid(), "writer")
        assert row.waited is not None and taskdiag.waits(cat.pid, "tid", where="waits_on == mutex")["tid"] == []
        cat.stdin.close()


def test_cgroups_against_their_files(cgroup):
    limits = {
        "memory_max": cgroup.put(str(64 << 20), "memory.max", "memory.limit_in_bytes"),
        "pids_max": cgroup.put("77", "pids.max"),
    }
    names = ["path", "id", "procs", "tasks", "time", "memory", "memory_max", "pids_max", "cpu_now"]
    row = taskdiag.cgroups(cgroup.path, names)[0]
    assert (row.path, row.procs, row.tasks) == (cgroup.path, 1, 1)
    assert row.id in [os.stat(there).st_ino for there in cgroup.dirs.values()]
    if limits["memory_max"]:
        assert row.memory_max == 64 << 20
        assert row.memory == int(cgroup.text("memory.current", "memory.usage_in_bytes"))
    if limits["pids_max"]:
        assert row.pids_max == 77
    usage = cgroup.text("cpuacct.usage")
    stat = dict(line.split() for line in cgroup.text("cpu.stat").splitlines())
    ns = int(usage) if usage else 1000 * int(stat["usage_usec"])
    assert abs(row.time * 1e9 - ns) <= 1000
    # Columns without a limit, and columns that need two listings.
    assert row.cpu_now is None
    cgroup.put("max" if cgroup.text("memory.max") else "-1", "memory.max", "memory.limit_in_bytes")
    cgroup.put("max", "pids.max")
    there = taskdiag.cgroups([cgroup.path, "/"], "path,memory_max,pids_max", where=f"path == '{cgroup.path}'")
    assert len(there) == 1
    for name in (name for name, is_there in limits.items() if is_there):
        assert there[name] == [taskdiag.UNLIMITED], name
    everything = taskdiag.cgroups(columns="path,procs", sort="-procs")
    assert cgroup.path in everything["path"] and everything["path"][0] == "/"
    assert taskdiag.cgroups("/sys/fs/cgroup" + cgroup.path, "path")["path"] == [cgroup.path]
    with pytest.raises(OSError, match="/none: No such file"):
        taskdiag.cgroups(cgroup.path + "/none")


def test_a_session_of_cgroups_has_rates(cgroup, start):
    busy = start("print('ready', flush=True); import sys; sys.stdin.readline()\nwhile True: pass")
    cgroup.put(str(busy.pid), "cgroup.procs")
    for there in cgroup.dirs.values():
        with open(there + "/cgroup.procs", "w") as f:
            f.write(str(busy.pid))
    with taskdiag.CgroupSession(cgroup.path, "path,procs,cpu_now") as session:
        first = session.refresh()[0]
        assert (first.procs, first.cpu_now) == (2, None)
        busy.stdin.write(b"go\n")
        busy.stdin.flush()
        until(lambda: session.refresh()[0].cpu_now > 1)
        # Its files stay open.
        mine = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
        assert any(name.startswith(there) for there in cgroup.dirs.values() for name in mine)
        busy.kill()
        busy.wait()
        until(lambda: session.refresh()[0].procs == 1)
    with pytest.raises(taskdiag.Error, match="closed"):
        session.refresh()


def test_memory_against_proc(start):
    child = start(f"x = b'1' * (8 << 20); {WAIT}")

    def rollup():
        with open(f"/proc/{child.pid}/smaps_rollup") as f:
            return {line.split(":")[0]: int(line.split()[1]) << 10 for line in f if line.endswith("kB\n")}

    # Other processes that map the same files change what is shared. So this is repeated until
    # nothing changes meanwhile.
    answers = []

    def is_quiet():
        before = rollup()
        answers.append((before, taskdiag.memory(child.pid).to_dicts()))
        return before == rollup()

    until(is_quiet)
    before, (row,) = answers[-1]
    assert row["uss"] == before["Private_Clean"] + before["Private_Dirty"] >= 8 << 20
    assert row["rss"] == before["Rss"]
    assert row["swap"] in (None, before["Swap"])
    # The shares of pages that others map change with them.
    assert row["uss"] <= row["pss"] <= row["rss"]


def test_files_against_proc(engine, start, tmp_path):
    path = tmp_path / "a file"
    path.write_text("12345")
    child = start(f"import sys; f = open({str(path)!r}); print('ready', flush=True); sys.stdin.read()")
    table = taskdiag.files(child.pid, "pid,fd,type,size,path,name", engine=engine)
    links = {os.readlink(f"/proc/{child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child.pid}/fd")}
    rows = table.to_dicts()
    assert len(rows) == len(os.listdir(f"/proc/{child.pid}/fd"))
    (mine,) = [r for r in rows if r["path"] == str(path)]
    assert str(path) in links
    assert mine["size"] == 5
    assert {r["pid"] for r in rows} == {child.pid}
    more = taskdiag.files(child.pid, "fd,path", paths=True, engine=engine)
    assert os.readlink(f"/proc/{child.pid}/cwd") in more["path"]
    assert len(more) > len(rows)


def test_a_limit_that_is_none_is_unlimited(start):
    resource_of = resource.getrlimit(resource.RLIMIT_CPU)
    row = one("rlimit_cpu")
    want = taskdiag.UNLIMITED if resource_of[0] == resource.RLIM_INFINITY else resource_of[0]
    assert row["rlimit_cpu"] == want


@pytest.mark.parametrize("ask", [
    lambda: taskdiag.snapshot("pid", pids=[]),
    lambda: taskdiag.snapshot("pid", pids=[], threads=True, where="pid > 0", sort="-pid"),
    lambda: taskdiag.snapshot("pid", pids=[], proc="/proc"),
    lambda: taskdiag.maps([], "pid"),
    lambda: taskdiag.memory([], "pid"),
    lambda: taskdiag.files([], "pid", paths=True, mapped=True),
], ids=["snapshot", "threads", "proc", "maps", "memory", "files"])
def test_no_pids_are_no_processes(ask):
    table = ask()
    assert (len(table), table.columns, table["pid"], table.rows()) == (0, ["pid"], [], [])
    assert table.complete and table.missing == {} and table.nobody == [] and table.served == []


def test_several_pids_of_which_one_is_not_there(start):
    answers = []

    def its_pid_is_free():
        gone = start(WAIT)
        gone.kill()
        gone.wait()
        answers.append((gone, taskdiag.snapshot("pid", pids=[os.getpid(), gone.pid])))
        # A pid may be used again at once, if others begin processes all the time.
        return not os.path.exists(f"/proc/{gone.pid}")

    until(its_pid_is_free)
    gone, table = answers[-1]
    assert table["pid"] == [os.getpid()]
    assert table.nobody == [gone.pid]
    assert not table.complete


def test_stopped_child(engine, start):
    child = start(WAIT)
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
    assert one("s", child.pid, engine=engine)["s"] == "T"


@pytest.mark.parametrize("of", ["tasks", "maps", "memory", "files"])
def test_each_column_is_described(of):
    all_columns = taskdiag.columns(of)
    assert len(all_columns) > 2
    for column in all_columns:
        assert column.name and column.help and column.source
        assert column.unit in (None, "bytes", "seconds", "unix seconds", "percent", "count")


def test_each_column_can_be_asked_for():
    names = [c.name for c in taskdiag.columns()]
    table = taskdiag.snapshot(names, pids=os.getpid())
    assert table.columns == names
    (row,) = table.rows()
    types = {
        "uint64": int,
        "int64": int,
        "float64": float,
        "bool": bool,
        "duration[ns]": float,
        "timestamp[us, UTC]": float,
        "utf8": str,
        "list<utf8>": list,
        "list<uint32>": list,
    }
    known = 0
    for column, value in zip(table.schema, row):
        assert value is None or type(value) is types[column.type], column
        known += value is not None
    assert known > len(names) * 2 / 3


def test_aliases_are_names_too():
    table = taskdiag.snapshot("%cpu,pmem,rss", pids=os.getpid())
    assert table.columns == ["%cpu", "pmem", "rss"]


def test_info_names_this_machine(engine):
    info = taskdiag.snapshot("pid", pids=os.getpid(), engine=engine).info
    here = os.uname()
    assert (info["host"], info["kernel"], info["arch"]) == (here.nodename, here.release, here.machine)
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert info["boot_id"] == file.read().strip()
    assert info["cpus"] >= 1 and info["memory"] > 0
    assert abs(info["time"] - time.time()) < 60 and info["uptime"] > 0
    # No request was made, so nothing is known.
    assert set(taskdiag.snapshot("pid", pids=[]).info.values()) == {None}


@pytest.mark.parametrize("table, column", [(taskdiag.files, "sharers"), (taskdiag.maps, "shared_with")])
def test_sharing_with_processes_that_were_not_read_is_not_asked(table, column):
    alone = table(columns=f"pid,{column}", pids=os.getpid())
    assert len(alone) > 0
    for row in range(len(alone)):
        assert (alone[column][row], alone.why(row, column)) == (None, "not_asked")
