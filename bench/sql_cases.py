# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases of taskdiag-sql: what a question in SQL costs beside the same list by the command."""

from cases import TASKDIAG, case
from measuring import ROOT, Failed

SQL = "target/sql/release/taskdiag-sql"
BUILD = "cargo build --locked --release --manifest-path sql/Cargo.toml --target-dir target/sql"
# The columns and the order that both are asked for. The command has no limit, so it prints all rows.
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
