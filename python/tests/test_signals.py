# SPDX-License-Identifier: MIT OR Apache-2.0
"""The GIL is released during a request, and a signal ends it."""

import ctypes
import mmap
import os
import signal
import threading
import time

import pytest

import taskdiag

# A request for the sums over these mappings takes a while: most machines read 100,000 of them in 0.1 to 1 s.
PAGES = 30_000
SLOW = "pid,address,rss,pss,perms"


@pytest.fixture(scope="module")
def many_mappings():
    """Processes with many mappings."""
    memory = mmap.mmap(-1, 2 * PAGES * mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i in range(PAGES):
        assert libc.mprotect(start + 2 * i * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ) == 0
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        children.append(pid)
    # The mappings of this process are not needed any longer.
    libc.mprotect(start, 2 * PAGES * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    yield children
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def ask(pids):
    return taskdiag.maps(pids, SLOW, engine="procfs")


def test_other_threads_run_meanwhile(many_mappings):
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before, begin = counted[0], time.monotonic()
        table = ask(many_mappings)
        after, took = counted[0], time.monotonic() - begin
    finally:
        stop.set()
        thread.join()
    assert len(table) > 8 * PAGES
    assert took > 0.1
    assert after - before > 10


class Alarm(Exception):
    pass


def test_a_signal_ends_a_request(many_mappings):
    begin = time.monotonic()
    ask(many_mappings)
    whole = time.monotonic() - begin

    def handler(*_):
        raise Alarm

    old = signal.signal(signal.SIGALRM, handler)
    returned = False
    begin = time.monotonic()
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, whole / 20)
            ask(many_mappings * 4)
            returned = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    took = time.monotonic() - begin
    assert not returned
    print(f"the whole takes {whole:.3f} s, and it ended after {took:.3f} s")
    # Nothing is broken by it.
    assert len(taskdiag.snapshot("pid", pids=os.getpid())) == 1


def test_ctrl_c_ends_a_request(many_mappings):
    killer = threading.Timer(0.06, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        killer.start()
        for _ in range(10_000):
            ask(many_mappings)
    killer.join()


def test_a_handler_that_does_not_raise_ends_nothing(many_mappings):
    seen = []
    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.05)
        table = ask(many_mappings)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        end = time.monotonic()
        signal.signal(signal.SIGALRM, old)
    assert table.errno == 0 and len(table) > 8 * PAGES
    assert seen and seen[0] < end


def test_a_session_goes_on_after_a_signal(many_mappings):
    def handler(*_):
        raise Alarm

    session = taskdiag.Session("pid,rss,pss,comm,args", engine="procfs")
    assert set(many_mappings) <= set(session.refresh()["pid"])
    old = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            for _ in range(10_000):
                session.refresh()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    for _ in range(2):
        table = session.refresh()
        assert table.errno == 0 and os.getpid() in table["pid"]
    assert os.getpid() in session.changes().stayed["pid"]


def test_requests_in_other_threads(many_mappings):
    """They run at the same time, and without a thread of their own."""
    results = []

    def work():
        for _ in range(20):
            results.append(os.getpid() in taskdiag.snapshot("pid,comm,rss")["pid"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [True] * 80
