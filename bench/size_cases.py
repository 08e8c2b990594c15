# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the case of the largest machine: how the cost of a list grows up to 400,000 threads, and what runs beside them."""

import time

from cases import TASKDIAG, THREAD_COLUMNS, case, ps
from late_cases import LATE_US, SPIN, SPINS, lateness, settle
from measuring import load, median, one_run
from service_cases import USER, as_user, service
from top_cases import share

SMALL, LARGE = 100_000, 400_000
PROCESSES = 4
# The growth of a cost over that of the number of threads.
GROWTH = 1.15
LIST = ps("--threads", "-eo", THREAD_COLUMNS, engine="bpf")


def beside(b):
    """What a list of all threads costs others, and what other programs of this project cost, beside the largest load."""
    settle(LIST)
    for label, command in {"idle": None, SPINS: SPIN, "ps --threads": LIST, "ps aux": ps("aux", engine="bpf")}.items():
        _, waited, ran, _, _ = lateness(b, label, command)
        bar = {"at_most": LATE_US} if command and command is not SPIN else {}
        b.figure(f"kept waiting, us, {label}", waited)
        b.figure(f"kept waiting while somebody ran, us, {label}", ran, **bar)
    share(b, "top", [TASKDIAG, "top", "-d", "1", "--share", "100"])
    share(b, "top with threads", [TASKDIAG, "top", "-H", "-d", "1", "--share", "100"])
    with service(b) as (it, directory):
        program = as_user(USER, "env", f"TASKDIAG_SOCKET={it.path}", f"{directory}/taskdiag", "ps", "--threads", "-eo", THREAD_COLUMNS)
        # The first answer has the estimate of later ones.
        one_run(program, "/dev/null")
        time.sleep(1)
        before = it.cpu_ms()
        r = b.compare({"ps --threads of an ordinary user, with the service": program}, rounds=3)
        b.figure("CPU of the service, ms an answer", (it.cpu_ms() - before) / len(*r.values()))


@case("size", None)
def size(b):
    """400,000 threads beside 100,000: time, memory, lateness, top and the service"""
    rows = {}
    for n in (SMALL, LARGE):
        with load(("threads", n, PROCESSES)):
            label = f"{n:,} threads"
            rows |= b.compare({label: LIST}, rounds=7)
            b.count(label, LIST)
            if n == LARGE:
                beside(b)
    for column in ("wall_ns", "cpu_us", "peak_rss_kib"):
        small, large = (median(rows[f"{n:,} threads"], column) for n in (SMALL, LARGE))
        bar = {} if column == "peak_rss_kib" else {"at_most": GROWTH}
        b.figure(f"growth of {column} / that of the threads", large / small / (LARGE / SMALL), **bar)
