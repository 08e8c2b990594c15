# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases of taskdiag-sql and of the extension of osquery: the cost of a question in SQL compared with the same list by the command."""

import subprocess
import tempfile

from cases import TASKDIAG, case
from measuring import ROOT, RUN_TIMEOUT, Failed, median

SQL = "target/sql/release/taskdiag-sql"
BUILD = "cargo build --locked --release --manifest-path sql/Cargo.toml --target-dir target/sql"
# The columns and the order that both programs are asked for. The command has no limit, so it prints
# all rows.
LIST = [TASKDIAG, "ps", "-eo", "pid,comm,rss", "--sort=-rss"]


def beside_ps(b, rounds, at_most=None):
    if not (ROOT / SQL).exists():
        raise Failed(f"{SQL} is not there: {BUILD}")
    sql = lambda text, *options: [SQL, *options, "-c", text]
    columns = "select pid, name, resident_size from processes order by resident_size desc"
    r = b.compare({
        "taskdiag ps": LIST,
        "sql, the ten largest": sql("select pid, comm, rss from processes order by rss desc limit 10"),
        "sql --osquery, the ten largest": sql(f"{columns} limit 10", "--osquery"),
        "sql --osquery, all, as csv": sql(columns, "--osquery", "-o", "csv"),
        "sql, the start alone": sql("select 1"),
    }, rounds=rounds, same=("taskdiag ps", "sql --osquery, all, as csv"))
    for label in ("sql, the ten largest", "sql --osquery, the ten largest", "sql --osquery, all, as csv"):
        bar = at_most if "ten" in label else None
        b.ratio(f"wall, {label} / taskdiag ps", r, label, "taskdiag ps", "wall_ns", at_most=bar)
        b.ratio(f"cpu, {label} / taskdiag ps", r, label, "taskdiag ps", "cpu_us", at_most=bar)


@case("sql-200", ("procs", 130))
def sql_small(b):
    """about 200 processes: the ten largest in SQL, and the start of taskdiag-sql"""
    beside_ps(b, rounds=25)


@case("sql-50k", ("procs", 50_000))
def sql_large(b):
    """50,000 processes: the ten largest in SQL against taskdiag ps of all"""
    beside_ps(b, rounds=9, at_most=1.5)


EXTENSION = "target/osquery/release/taskdiag-osquery"
VENV = "target/osquery-venv/bin/python"
# Asks the extension as osqueryd would, and prints its CPU time for each request in ns, and the
# rows.
ASK = """
import os, subprocess, sys
program, socket, rounds = sys.argv[1:4]
os.environ["TASKDIAG_OSQUERY"] = program
sys.path.insert(0, "sql/osquery/tests")
from conftest import Osqueryd
osqueryd = Osqueryd(socket)
child = subprocess.Popen([program, "--socket", socket, "--timeout", "20"], stderr=subprocess.DEVNULL)
assert osqueryd.registered.wait(60)
def cpu():
    tasks = f"/proc/{child.pid}/task"
    return sum(int(open(f"{tasks}/{tid}/schedstat").read().split()[0]) for tid in os.listdir(tasks))
for round in range(int(rounds) + 1):
    before = cpu()
    rows = osqueryd.generate("taskdiag_processes", {"constraints": [], "colsUsed": sys.argv[4].split(",")})
    # The first one is the warm-up.
    round and print(cpu() - before, len(rows))
child.kill()
"""


@case("osquery-50k", ("procs", 50_000))
def osquery(b):
    """50,000 processes: all of them by the extension of osquery against taskdiag ps"""
    for path, how in ((EXTENSION, "cargo build --locked --release --manifest-path sql/osquery/Cargo.toml --target-dir target/osquery"),
                      (VENV, "make osquery")):
        if not (ROOT / path).exists():
            raise Failed(f"{path} is not there: {how}")
    rounds = 9
    with tempfile.TemporaryDirectory() as directory:
        command = [VENV, "-c", ASK, EXTENSION, f"{directory}/osquery.em", str(rounds), "pid,comm,rss"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=RUN_TIMEOUT)
    lines = [line.split() for line in done.stdout.splitlines()]
    its = sorted(int(ns) for ns, _ in lines)[rounds // 2] / 1e6
    b.note(f"  the extension: {its:.1f} ms of CPU a request, {lines[-1][1]} rows")
    r = b.compare({"taskdiag ps": LIST}, rounds=rounds)
    b.figure("cpu, the extension / taskdiag ps", its / (median(r["taskdiag ps"], "cpu_us") / 1e3))
