# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sessions: what began, ended and grew between two answers."""

import mmap
import os
import threading
import time

import pytest

import taskdiag

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_began_and_ended(engine, start):
    first = start(WAIT)
    with taskdiag.Session("pid,comm,args", engine=engine) as session:
        assert session.changes() is None
        assert first.pid in session.refresh()["pid"]
        assert session.changes() is None
        second = start(WAIT, "second")
        first.kill()
        first.wait()
        table = session.refresh()
        changes = session.changes()
    assert second.pid in table["pid"] and first.pid not in table["pid"]
    assert second.pid in changes.began["pid"] and second.pid not in changes.stayed["pid"]
    assert first.pid in changes.ended["pid"] and first.pid not in changes.stayed["pid"]
    (row,) = [r for r in changes.began.to_dicts() if r["pid"] == second.pid]
    assert row["args"][-1] == "second"
    assert os.getpid() in changes.stayed["pid"]
    assert changes.unknown == 0
    assert sorted(changes.stayed["pid"] + changes.began["pid"]) == sorted(table["pid"])


def test_growth_of_counters(engine):
    session = taskdiag.Session("pid", deltas=["time", "faults", "switches"], engine=engine)
    session.refresh()
    begin, begin_s = time.process_time(), time.monotonic()
    burn(0.2)
    memory = mmap.mmap(-1, 4 << 20)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages = len(memory) // mmap.PAGESIZE
    for i in range(pages):
        memory[i * mmap.PAGESIZE] = 1
    for _ in range(5):
        time.sleep(0.001)
    used, took = time.process_time() - begin, time.monotonic() - begin_s
    session.refresh()
    changes = session.changes()
    assert changes.stayed.columns == [
        "pid",
        "delta_time",
        "delta_pcpu",
        "delta_minflt",
        "delta_majflt",
        "delta_nvcsw",
        "delta_nivcsw",
    ]
    (row,) = [r for r in changes.stayed.to_dicts() if r["pid"] == os.getpid()]
    # The answer itself takes CPU time, too, and /proc tells ticks.
    assert used - 0.03 <= row["delta_time"] <= used + 3
    assert changes.interval >= took
    assert row["delta_pcpu"] == pytest.approx(100 * row["delta_time"] / changes.interval)
    assert row["delta_minflt"] >= pages
    # /proc has no switches of threads that have ended. Other tests may have left such threads.
    if engine == "procfs" and row["delta_nvcsw"] is None:
        assert taskdiag.snapshot("nvcsw", pids=os.getpid(), engine=engine).why(0, "nvcsw") == "unsupported"
    else:
        assert row["delta_nvcsw"] >= 5


def test_bytes_of_storage_are_bytes(tmp_path):
    session = taskdiag.Session("pid", deltas=["io"])
    session.refresh()
    with open(tmp_path / "f", "wb") as f:
        f.write(b"x" * (1 << 20))
        os.fsync(f.fileno())
    session.refresh()
    stayed = session.changes().stayed
    (row,) = [r for r in stayed.to_dicts() if r["pid"] == os.getpid()]
    # A filesystem in memory has no storage.
    assert row["delta_write_bytes"] in (0, None) or row["delta_write_bytes"] >= 1 << 20
    assert stayed.schema[stayed.columns.index("delta_write_bytes")].unit == "bytes"


def test_threads_and_conditions(start):
    session = taskdiag.Session("pid,tid", threads=True, where=f"pid == {os.getpid()}", sort="tid")
    session.refresh()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        table = session.refresh()
        began = session.changes().began
    finally:
        stop.set()
        thread.join()
    assert set(table["pid"]) == {os.getpid()}
    assert thread.native_id in began["tid"] and thread.native_id in table["tid"]
    assert set(session.changes().stayed["pid"]) == {os.getpid()}


def test_a_closed_session_says_so():
    session = taskdiag.Session("pid")
    session.refresh()
    session.close()
    with pytest.raises(taskdiag.Error, match="closed"):
        session.refresh()
    session.close()


def test_one_thread_at_a_time():
    session = taskdiag.Session("pid,comm,args")
    session.refresh()
    errors = []

    def refresh():
        for _ in range(50):
            try:
                assert len(session.refresh()) > 0
            except taskdiag.Error as e:
                errors.append(str(e))

    threads = [threading.Thread(target=refresh) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all("another thread" in e for e in errors)
    assert len(session.refresh()) > 0


def test_a_forked_child_may_continue():
    session = taskdiag.Session("pid")
    session.refresh()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if os.getpid() in session.refresh()["pid"] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert child not in session.refresh()["pid"]


def test_unknown_deltas_are_refused():
    with pytest.raises(taskdiag.QueryError, match="time, faults, io, switches"):
        taskdiag.Session("pid", deltas=["tiem"])
