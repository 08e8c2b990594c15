# SPDX-License-Identifier: MIT OR Apache-2.0
"""The contract of an extension of osquery, and the values of its tables compared with /proc."""

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from conftest import UUID, Osqueryd, until

# BPF alone does not have all that these ask for.
ALL_GROUPS = pytest.mark.parametrize("osqueryd", ["procfs", "auto"], indirect=True)


def status(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


def test_the_registration_is_what_osquery_expects(osqueryd):
    assert osqueryd.info.name == "taskdiag"
    tables = osqueryd.registry["table"]
    assert sorted(tables) == [
        "taskdiag_cgroups", "taskdiag_memory", "taskdiag_memory_map", "taskdiag_open_files", "taskdiag_processes",
        "taskdiag_threads", "taskdiag_waits",
    ]
    assert not any(osqueryd.registry[other] for other in osqueryd.registry if other != "table")
    for name, columns in tables.items():
        assert len(columns) <= 63, name
        assert {c["id"] for c in columns} == {"column"}
        assert {c["type"] for c in columns} <= {"TEXT", "INTEGER", "BIGINT", "DOUBLE"}
        # Only for the process id, reading one row at a time is cheap.
        assert [c["name"] for c in columns if c["op"] != "0"] == ([] if name == "taskdiag_cgroups" else ["pid"])
    with osqueryd.extension() as client:
        # osquery treats a missing code as 0.
        assert not client.ping().code
        answer = client.call("table", "taskdiag_threads", {"action": "columns"})
        assert answer.response == tables["taskdiag_threads"]


def test_values_are_those_of_proc(osqueryd):
    me = os.getpid()
    [row] = osqueryd.sql(f"select ppid, s, comm, args, exe, cwd, uid, rgid, nlwp, start, usertime from taskdiag_processes where pid = {me}")
    ppid, state, comm, args, exe, cwd, uid, rgid, nlwp, start, usertime = row
    known = status(me)
    assert (ppid, comm, state in "RSD") == (os.getppid(), known["Name"], True)
    assert args == Path(f"/proc/{me}/cmdline").read_text()[:-1].replace("\0", " ")
    assert (exe, cwd) == (os.readlink("/proc/self/exe"), os.getcwd())
    assert (uid, rgid, nlwp) == (os.geteuid(), os.getgid(), int(known["Threads"]))
    fields = Path(f"/proc/{me}/stat").read_text().rpartition(")")[2].split()
    [boot] = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")]
    assert abs(start - int(boot.split()[1]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")) <= 2
    assert 0 < usertime <= os.times().user + 0.02
    # Only values that the query needs are requested, and only for this process.
    [(table, context)] = osqueryd.requests
    assert table == "taskdiag_processes" and context["constraints"][0]["name"] == "pid"
    answer = osqueryd.generate(table, context)
    assert [sorted(r) for r in answer] == [sorted(context["colsUsed"])]


def test_all_processes_are_there(osqueryd):
    child = subprocess.Popen(["sleep", "600"])
    try:
        found = dict(osqueryd.sql("select pid, comm from taskdiag_processes"))
        assert found[child.pid] in ("sleep", "python", Path(sys.executable).name[:15]) and os.getpid() in found
        [(count,)] = osqueryd.sql("select count(*) from taskdiag_processes")
        # Other processes come and go.
        assert abs(count - len(found)) <= len(found) / 2 + 10
        mine = osqueryd.sql(f"select pid from taskdiag_processes where ppid = {os.getpid()}")
        assert (child.pid,) in mine
        assert osqueryd.sql("select pid from taskdiag_processes where pid = 1 and pid = 2") == []
        assert osqueryd.sql("select pid from taskdiag_processes where pid = -1") == []
        assert osqueryd.sql("select pid from taskdiag_processes where pid = 99999999999") == []
    finally:
        child.kill()
        child.wait()


def test_unknown_values_are_null(osqueryd):
    child = subprocess.Popen(["true"])
    try:
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        row = osqueryd.sql(f"select s, exe, cwd, rss, wchan is null or wchan = '' from taskdiag_processes where pid = {child.pid}")
        # A zombie has no program, and no memory, so its memory is 0.
        assert [r[:4] for r in row] == [("Z", None, None, 0)]
        # A condition on an amount counts it as SQLite does.
        same = f"select pid from taskdiag_processes where rss = 0 and pid = {child.pid}"
        assert osqueryd.sql(same) == [(child.pid,)]
    finally:
        child.wait()


def test_long_arguments_are_cut_and_a_named_process_has_all(osqueryd):
    child = subprocess.Popen(["sh", "-c", "read x", *["x" * 100_000] * 3], stdin=subprocess.PIPE)
    try:
        until(lambda: Path(f"/proc/{child.pid}/cmdline").stat().st_size == 0 and len(Path(f"/proc/{child.pid}/cmdline").read_bytes()) > 300_000)
        whole = len(Path(f"/proc/{child.pid}/cmdline").read_bytes()) - 1
        rows = dict(osqueryd.sql(f"select pid, length(args) from taskdiag_processes where ppid = {os.getpid()}"))
        assert abs(rows[child.pid] - (128 << 10)) <= 1
        assert osqueryd.sql(f"select length(args) from taskdiag_processes where pid = {child.pid}") == [(whole,)]
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


MANY = 60
CROWD = f"""
import os, sys
reader, writer = os.pipe()
for _ in range({MANY}):
    if os.fork() == 0:
        # The child ends with its parent, which has the other end of the pipe.
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_crowd_with_long_arguments_takes_little_memory(osqueryd):
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY:
        pytest.skip("stack: execve(2) takes a quarter of the limit for arguments, which is too little here")
    long = ["a" * 119_999] * 50
    crowd = subprocess.Popen(
        [sys.executable, "-c", CROWD, *long], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (hard, hard)),
    )
    try:
        assert crowd.stdout.readline() == b"ready\n"
        rows = osqueryd.sql(f"select length(args), pid from taskdiag_processes where ppid = {crowd.pid}")
        assert len(rows) == MANY
        assert all(args <= 128 << 10 for args, _ in rows)
        # All other processes are read, too.
        assert len(osqueryd.sql("select pid, args from taskdiag_processes")) > MANY
        [(whole,)] = osqueryd.sql(f"select length(args) from taskdiag_processes where pid = {crowd.pid}")
        assert whole >= 50 * 120_000
        peak = osqueryd.peak()
        assert peak <= 128 << 20, f"{peak >> 20} MiB"
        said = osqueryd.said()
        assert "args of " in said and "cut short or NULL: a query with pid = N has all of it" in said, said
    finally:
        crowd.kill()
        crowd.communicate()


NAMES = 9_500
MAPS = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_ssize_t
os.chdir(sys.argv[1])
for _ in range(19):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
maps = []
for i in range({NAMES}):
    fd = os.open(f"{{i:0100d}}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 4096)
    # Python's own object would keep a descriptor.
    maps.append(libc.mmap(None, 4096, 1, 2, fd, 0))
    os.close(fd)
assert -1 not in maps
print("ready", flush=True)
sys.stdin.read()
"""


def test_cut_lists_are_reported(osqueryd, tmp_path):
    maps = subprocess.Popen([sys.executable, "-c", MAPS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert maps.stdout.readline() == b"ready\n"
        # SQLite looks at this condition itself, so the request names no process.
        of_list = f"select count(*), max(length(path)) from taskdiag_memory_map where pid + 0 = {maps.pid} and path like '%/ddd%'"
        [(count, longest)] = osqueryd.sql(of_list)
        assert 16 <= count < NAMES and longest > 3_900
        # The list of a process that is named has the limit of an answer, too.
        [(named, _)] = osqueryd.sql(of_list.replace("pid + 0", "pid"))
        assert 16 <= named < NAMES
        said = osqueryd.said()
        # The message may be about more processes, because other processes could have long lists.
        assert "taskdiag_memory_map: not all rows of " in said, said
        assert "because a list was cut: 'taskdiag maps -p PID' reads more of it" in said and "has all of it" not in said, said
    finally:
        maps.kill()
        maps.communicate()


def test_joins_ask_for_one_process_at_a_time(osqueryd):
    text = f"""select p.comm, f.fdnum, f.path from taskdiag_processes p join taskdiag_open_files f on f.pid = p.pid
        where p.pid = {os.getpid()} and f.path like '%/osquery/TEST%'"""
    here = Path(__file__)
    with open(here) as file:
        [(comm, fdnum, path)] = osqueryd.sql(text.replace("TEST", "tests/test_ext"))
        assert (comm, fdnum, path) == (status(os.getpid())["Name"], file.fileno(), str(here.resolve()))
    assert all({"op": 2, "expr": str(os.getpid())} in c["constraints"][0]["list"] for _, c in osqueryd.requests)


def test_sockets_have_their_ports(osqueryd):
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = f"select fdnum, sockstate, laddr, lport from taskdiag_open_files where pid = {os.getpid()} and protocol = 'TCP'"
        assert (server.fileno(), "LISTEN", "127.0.0.1", server.getsockname()[1]) in osqueryd.sql(text)


@ALL_GROUPS
def test_memory_and_mappings_are_counted(osqueryd):
    me = os.getpid()
    [(rss, pss, uss)] = osqueryd.sql(f"select rss, pss, uss from taskdiag_memory where pid = {me}")
    assert 0 < uss <= pss <= rss
    [(of_maps, mappings)] = osqueryd.sql(f"select sum(pss), count(*) from taskdiag_memory_map where pid = {me}")
    assert mappings > 10 and abs(of_maps - pss) < pss / 4
    [(deleted, size)] = osqueryd.sql(f"select max(deleted), sum(size) from taskdiag_memory_map where pid = {me} and path like '%/libc.so.6'")
    assert deleted == 0 and size > 0


def test_threads_have_rows_of_their_own(osqueryd):
    tids = {tid for (tid,) in osqueryd.sql(f"select tid from taskdiag_threads where pid = {os.getpid()}")}
    # The server answers in a thread of its own, which may have ended.
    assert os.getpid() in tids and len(tids & set(map(int, os.listdir("/proc/self/task")))) >= 2


@ALL_GROUPS
def test_waits_have_the_holder_of_a_pipe(osqueryd):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
        sql = f"select waits_on, waits_for, waits_for_how from taskdiag_waits where pid = {cat.pid}"
        until(lambda: osqueryd.sql(sql) == [("pipe-read", os.getpid(), "writer")])
        cat.stdin.close()


def test_cgroups_have_the_values_of_their_files(osqueryd):
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    pids = next((m[4] for m in mounts if m[m.index("-") + 1] == "cgroup" and "pids" in m[-1].split(",")), None)
    pids = pids or next((m[4] for m in mounts if m[m.index("-") + 1] == "cgroup2"), None)
    made = Path(f"{pids}/taskdiag-osquery-{os.getpid()}")
    try:
        made.mkdir()
    except OSError as e:
        pytest.skip(f"cgroups: none can be made: {e}")
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
            (made / "cgroup.procs").write_text(str(cat.pid))
            sql = f"select path, id, procs, tasks, populated is null or populated from taskdiag_cgroups where path = '/{made.name}'"
            assert osqueryd.sql(sql) == [(f"/{made.name}", made.stat().st_ino, 1, 1, 1)]
            if (made / "pids.max").exists():
                # "No limit" is larger than any number.
                limited = f"select pids_max from taskdiag_cgroups where name = '{made.name}' and pids_max > 10"
                assert osqueryd.sql(limited) == [(2**63 - 1,)]
                (made / "pids.max").write_text("12")
                assert osqueryd.sql(limited) == [(12,)]
                (made / "pids.max").write_text("7")
                assert osqueryd.sql(limited) == []
            cat.stdin.close()
    finally:
        until(lambda: (made / "cgroup.procs").read_text() == "")
        made.rmdir()


def test_bytes_that_are_no_text_are_replaced(osqueryd, tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff\n", "w"):
        rows = osqueryd.sql(f"select path from taskdiag_open_files where pid = {os.getpid()} and type = 'REG'")
    assert (f"{tmp_path}/\ufffd\n",) in rows


@ALL_GROUPS
def test_requests_that_make_no_sense_are_answered(osqueryd):
    with osqueryd.extension() as client:
        for context in ["", "{", "[]", '{"constraints": 1, "colsUsed": {}}', '{"constraints":[{"name":"pid","list":[{}]}]}']:
            answer = client.call("table", "taskdiag_processes", {"action": "generate", "context": context})
            assert answer.status.code == 0 and len(answer.response) > 1
        assert client.call("table", "taskdiag_processes", {"action": "generate"}).status.code == 0
        assert client.call("table", "taskdiag_processes", {"action": "nonsense"}).status.code == 1
        assert client.call("table", "taskdiag_processes", {"action": "delete", "id": "1"}).response[0]["status"] == "readonly"
        with pytest.raises(Exception, match="nosuch"):
            client.call("table", "nosuch", {"action": "generate"})
        assert not client.ping().code


def test_the_extension_ends_with_osquery_and_cleans_up(tmp_path, run):
    manager = Osqueryd(str(tmp_path / "em"))
    child = run(manager.socket)
    assert manager.registered.wait(60)
    until(lambda: manager.pings > 1)
    with manager.extension() as client:
        client.shutdown()
    assert child.wait(60) == 0 and manager.deregistered == UUID
    assert not Path(f"{manager.socket}.{UUID}").exists()
    for number in (signal.SIGTERM, signal.SIGINT):
        manager.registered.clear()
        child = run(manager.socket)
        assert manager.registered.wait(60)
        until(lambda: Path(f"{manager.socket}.{UUID}").exists())
        child.send_signal(number)
        assert child.wait(60) == 0


def test_a_refusal_is_reported(tmp_path, run):
    manager = Osqueryd(str(tmp_path / "em"), code=1)
    child = run(manager.socket)
    assert child.wait(60) == 1
    assert "refused the extension" in child.stderr.read()


def test_without_osquery_it_says_so(tmp_path, run):
    child = run(tmp_path / "nosuch", "--timeout", "1")
    assert child.wait(60) == 1
    assert "no osquery at" in child.stderr.read()


def test_osquery_refuses_a_wrong_query(osqueryd):
    with pytest.raises(apsw.SQLError):
        osqueryd.sql("select nosuch from taskdiag_processes")
