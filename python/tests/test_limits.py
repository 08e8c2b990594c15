# SPDX-License-Identifier: MIT OR Apache-2.0
"""How much of the arguments and of the environment of a process is read, and what says that a value was cut."""

import copy
import json
import os
import pickle
import resource
import subprocess
import sys

import psutil as real
import pytest

import taskdiag
import taskdiag.psutil as psutil

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
LONG = 100_000
LIST = 128 << 10
SESSION = 4096


@pytest.fixture
def process(start):
    """A process with 300 kB of arguments, and as much in its environment."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY and hard < 16 << 20:
        pytest.skip("stack: execve(2) takes a quarter of the limit for arguments, which is too little here")
    more = {f"LIMIT_{i}": "e" * LONG for i in range(3)}
    roomy = (min(64 << 20, hard) if hard != resource.RLIM_INFINITY else 64 << 20, hard)

    def room():
        resource.setrlimit(resource.RLIMIT_STACK, roomy)

    return start(WAIT, *["a" * LONG] * 3, env={**os.environ, **more}, preexec_fn=room)


def lengths(table, pid):
    """The bytes of the texts of a process as the kernel has them, and why they are incomplete."""
    row = table["pid"].index(pid)
    sizes = [sum(len(os.fsencode(one)) + 1 for one in table[name][row]) for name in ("args", "environ")]
    return sizes, [table.why(row, name) for name in ("args", "environ")]


def test_a_list_has_the_beginning_of_long_texts_and_says_so(engine, process):
    table = taskdiag.snapshot("pid,args,environ", engine=engine)
    sizes, whys = lengths(table, process.pid)
    assert all(LIST <= size <= LIST + 1 for size in sizes)
    assert whys == ["truncated", "truncated"]
    assert not table.complete
    assert table.missing["args"]["truncated"] >= 1


@pytest.mark.parametrize("args", [0, 1000, 200_000])
def test_args_is_the_most_of_each_text(engine, process, args):
    sizes, whys = lengths(taskdiag.snapshot("pid,args,environ", args=args, engine=engine), process.pid)
    assert all(args <= size <= args + 1 for size in sizes)
    assert whys == ["truncated", "truncated"]


@pytest.mark.parametrize("args", ["all", 6 << 20, 2**63])
def test_all_of_a_text_is_read_on_request(engine, process, args):
    sizes, whys = lengths(taskdiag.snapshot("pid,args,environ", args=args, engine=engine), process.pid)
    assert all(size > 3 * LONG for size in sizes)
    assert whys == [None, None]


def test_a_named_process_has_all_its_texts(engine, process):
    for pids in (process.pid, [process.pid, os.getpid()]):
        table = taskdiag.snapshot("pid,args,environ", pids=pids, engine=engine)
        sizes, whys = lengths(table, process.pid)
        assert all(size > 3 * LONG for size in sizes)
        assert whys == [None, None]
    named = taskdiag.snapshot("pid,args,environ", pids=process.pid, args=1000, engine=engine)
    assert lengths(named, process.pid)[1] == ["truncated", "truncated"]


def test_rows_of_lists_have_the_limit_of_their_process(engine, process):
    for of in (taskdiag.maps, taskdiag.files, taskdiag.memory):
        table = of(process.pid, "pid,args,environ", args=1000, engine=engine)
        sizes, whys = lengths(table, process.pid)
        assert all(1000 <= size <= 1001 for size in sizes), of
        assert whys == ["truncated", "truncated"], of


def test_a_session_reads_little_of_each_text(engine, process):
    for args, most in ((None, SESSION), (1000, 1000), (200_000, 200_000)):
        more = {} if args is None else {"args": args}
        with taskdiag.Session("pid,args,environ", engine=engine, **more) as session:
            sizes, whys = lengths(session.refresh(), process.pid)
            assert all(most <= size <= most + 1 for size in sizes)
            assert whys == ["truncated", "truncated"]
            sizes, whys = lengths(session.refresh(), process.pid)
            assert all(most <= size <= most + 1 for size in sizes)
    with taskdiag.Session("pid,args,environ", engine=engine, args="all") as session:
        assert lengths(session.refresh(), process.pid)[1] == [None, None]


def test_a_session_has_a_limit_for_sums_over_pages():
    with taskdiag.Session("pid,pss", max_rss=4096) as session:
        table = session.refresh()
        row = table["pid"].index(os.getpid())
        assert (table["pss"][row], table.why(row, "pss")) == (None, "over_budget")


def test_a_condition_on_a_text_that_was_cut_is_not_known(engine, process):
    table = taskdiag.snapshot("pid", where=f"pid == {process.pid} and args ~ nosuchword", args=1000, engine=engine)
    assert len(table) == 0
    assert ("args", "truncated", 1) in table.left_out


def test_psutil_has_all_of_long_texts_of_each_process(process):
    theirs = real.Process(process.pid)
    assert sum(map(len, theirs.cmdline())) > 3 * LONG
    info = next(p.info for p in psutil.process_iter(["cmdline", "environ", "name"]) if p.pid == process.pid)
    assert info == {"cmdline": theirs.cmdline(), "environ": theirs.environ(), "name": theirs.name()}
    ours = psutil.Process(process.pid)
    assert ours.cmdline() == theirs.cmdline() and ours.environ() == theirs.environ()
    assert ours.as_dict(["cmdline", "environ"]) == theirs.as_dict(["cmdline", "environ"])


def test_psutil_says_that_a_text_is_longer_than_it_reads(process, monkeypatch):
    true = taskdiag.snapshot
    monkeypatch.setattr(taskdiag, "snapshot", lambda columns, **more: true(columns, args=LONG, **more))
    ours = psutil.Process(process.pid)
    for method in (ours.cmdline, ours.environ):
        with pytest.raises(real.AccessDenied, match="too long"):
            method()
    info = next(p.info for p in psutil.process_iter(["cmdline"], ad_value="no") if p.pid == process.pid)
    assert info == {"cmdline": "no"}


# --- many processes with arguments of megabytes, which fork() shares

MANY = 60
MEGABYTES = 6_000_000
MOST = 128 << 20
CROWD = f"""
import os
reader, writer = os.pipe()
for _ in range({MANY}):
    if os.fork() == 0:
        # The child ends with its parent, which has the other end of the pipe.
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
"""
PEAK = """
def peak():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))
"""


@pytest.fixture
def crowd(start):
    """Processes that together have 360 MB of arguments, which take 6 MB of memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY:
        pytest.skip("stack: execve(2) takes a quarter of the limit for arguments, which is too little here")

    def room():
        resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))

    return start(CROWD + WAIT, *["a" * 119_999] * (MEGABYTES // 120_000), preexec_fn=room)


def answered(code, *args):
    """The JSON output of a program, parsed. It is another process, because this one may have used
    more memory before."""
    done = subprocess.run([sys.executable, "-c", PEAK + code, *args], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tables_of_a_crowd_take_little_memory_and_say_what_they_lack(engine, crowd):
    for ask in (
        'taskdiag.snapshot("pid,ppid,args,environ", engine=sys.argv[1])',
        'taskdiag.Session("pid,ppid,args,environ", engine=sys.argv[1]).refresh()',
        'taskdiag.memory(None, "pid,ppid,args,environ", engine=sys.argv[1])',
    ):
        got = answered(f"""
import json, sys, taskdiag
table = {ask}
rows = [row for row, ppid in enumerate(table["ppid"]) if ppid == int(sys.argv[2])]
print(json.dumps([len(rows), [table.why(row, "args") for row in rows],
                  table.missing["args"]["truncated"], table.complete, peak()]))
""", engine, str(crowd.pid))
        count, whys, cut, complete, peak = got
        assert (count, set(whys), complete) == (MANY, {"truncated"}, False), ask
        assert cut >= MANY, ask
        assert peak <= MOST, f"{ask}: {peak >> 20} MiB"


def test_process_iter_reads_all_of_long_texts_and_keeps_none(crowd):
    parent = str(crowd.pid)
    count, total, again, peak = answered("""
import json, sys
import taskdiag.psutil as psutil
count = total = 0
held = []
for turn in range(2):
    for p in psutil.process_iter(["cmdline", "ppid"]):
        if p.info["ppid"] == int(sys.argv[1]):
            count += 1
            total += sum(map(len, p.info["cmdline"]))
            if not held:
                held.append(p)
# An object that other code holds is given out again, with the data that was read last.
again = [p for p in psutil.process_iter(["cmdline"]) if p is held[0] and len(p.info["cmdline"]) > 10]
print(json.dumps([count, total, len(again), peak()]))
""", parent)
    assert (count, again) == (2 * MANY, 1)
    assert total > 2 * MANY * (MEGABYTES - 120_000)
    assert peak <= MOST, f"{peak >> 20} MiB"


def test_an_object_whose_texts_are_not_kept_is_the_same_process(crowd):
    for p in psutil.process_iter(["cmdline", "cpu_percent"]):
        if p.pid == crowd.pid:
            first, info = p, p.info
            break
    assert sum(map(len, info["cmdline"])) > MEGABYTES - 120_000
    second = next(p for p in psutil.process_iter() if p.pid == crowd.pid)
    assert second is first and second.info is info
    copies = pickle.loads(pickle.dumps(first)), copy.copy(first)
    assert all(c == first and c.info == info for c in copies)
    del p, first, second, copies
    # No code holds the object, so its texts are gone, but the known state of the process is kept.
    third = next(p for p in psutil.process_iter() if p.pid == crowd.pid)
    assert not hasattr(third, "info") and third._last is not None
