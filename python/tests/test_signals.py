# SPDX-License-Identifier: MIT OR Apache-2.0
"""The GIL is released during a request, and a signal ends it."""

import ctypes
import mmap
import os
import signal
import threading

import pytest
from conftest import until

import taskdiag

# A request for the sums over these mappings takes a while: most machines read 100,000 of them in
# 0.1 to 1 s.
PAGES = 12_000
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


def bytes_read():
    """How many bytes this process has read. A request reads the same number each time, whatever else the machine does."""
    with open("/proc/self/io") as f:
        return int(f.readline().removeprefix("rchar:"))


@pytest.fixture(scope="module")
def whole(many_mappings):
    """How many bytes a whole request reads."""
    before = bytes_read()
    assert len(ask(many_mappings)) > 8 * PAGES
    return bytes_read() - before


class Observer:
    """Calls `act` in another thread while the request in this `with` is neither at its beginning
    nor near its end. The number of bytes that it has read shows its progress. Time would not,
    because it depends on the load of the machine."""

    def __init__(self, whole, act):
        self.whole, self.act, self.over = whole, act, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def is_amid(self):
        return self.whole / 8 < bytes_read() - self.before < self.whole * 0.9

    def run(self):
        while not self.over.wait(0.001):
            if self.is_amid() and not self.over.is_set():
                self.act()

    def __enter__(self):
        self.before = bytes_read()
        self.thread.start()
        return self

    def __exit__(self, *_):
        try:
            self.end()
        except BaseException:
            # The handler of a signal has raised here.
            self.end()
            raise

    def end(self):
        self.over.set()
        self.thread.join()


def test_other_threads_run_meanwhile(many_mappings, whole):
    def the_requests_run():
        seen = []
        with Observer(whole, lambda: seen.append(1)):
            table = ask(many_mappings)
        assert len(table) > 8 * PAGES
        return len(seen) > 2

    # On a busy machine the other thread may not get a processor in time.
    until(the_requests_run)


class Alarm(Exception):
    pass


def raises(*_):
    raise Alarm


@pytest.mark.parametrize(("number", "handler", "error"), [
    (signal.SIGALRM, raises, Alarm),
    # A shell ignores SIGINT in programs that it starts in the background, so Python would not set
    # its handler.
    (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
], ids=["alarm", "ctrl-c"])
def test_a_signal_ends_a_request(many_mappings, whole, number, handler, error):
    def the_request_ends():
        before, sent = bytes_read(), []

        def send():
            if not sent:
                sent.append(1)
                os.kill(os.getpid(), number)

        try:
            with Observer(whole, send):
                ask(many_mappings)
        except error:
            # The request reads whole processes, of which there are eight.
            return bytes_read() - before < whole * 0.95
        # The call was over before the other thread ran.
        return False

    old = signal.signal(number, handler)
    try:
        until(the_request_ends)
    finally:
        signal.signal(number, old)
    # Nothing is broken by it.
    assert len(taskdiag.snapshot("pid", pids=os.getpid())) == 1


def test_a_handler_that_does_not_raise_ends_nothing(many_mappings, whole):
    seen, observers = [], []

    def the_handler_runs_amid_the_request():
        with Observer(whole, lambda: os.kill(os.getpid(), signal.SIGALRM)) as observer:
            observers.append(observer)
            table = ask(many_mappings)
        assert table.errno == 0 and len(table) > 8 * PAGES
        return any(seen)

    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(observers[-1].is_amid()))
    try:
        until(the_handler_runs_amid_the_request)
    finally:
        signal.signal(signal.SIGALRM, old)


def test_a_session_continues_after_a_signal(many_mappings):
    session = taskdiag.Session("pid,rss,pss,comm,args", engine="procfs")
    assert set(many_mappings) <= set(session.refresh()["pid"])
    old = signal.signal(signal.SIGALRM, raises)
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
