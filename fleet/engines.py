# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks one engine the questions in queries/ about a lake, and prints answers and times as JSON.

Each engine runs in a process of its own (`answers()` starts it), so that its memory and its caches do not count for another
engine.

    python engines.py duckdb LAKE QUESTION.json [TIMES]
"""

import atexit
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import cluster

HERE = pathlib.Path(__file__).resolve().parent
# The engine, and the Python package that it comes in. Ballista consists of programs that
# `tools/setup ballista` builds.
PACKAGES = {"duckdb": "duckdb", "datafusion": "datafusion", "clickhouse": "chdb"}
ENGINES = [*PACKAGES, "ballista"]
QUERIES = sorted(path.stem for path in (HERE / "queries").glob("*.sql"))


def installed():
    """The engines that are installed, and their versions."""
    versions = {
        engine: importlib.metadata.version(package)
        for engine, package in PACKAGES.items()
        if importlib.util.find_spec(package)
    }
    ballista = cluster.version()
    return {**versions, "ballista": ballista} if ballista else versions


def filled(text, values):
    """Replaces :NAME by its value, and leaves out comments."""
    text = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return re.sub(r":([a-z]+)\b", lambda m: str(values[m[1]]), text).strip()


def preamble(engine, lake):
    text = (HERE / "engines" / f"{engine}.sql").read_text()
    return [s.strip() for s in filled(text, {"lake": lake}).split(";") if s.strip()]


def duckdb(lake):
    import duckdb

    connection = duckdb.connect()
    connection.execute("set memory_limit = '4GB'; set TimeZone = 'UTC'")
    for statement in preamble("duckdb", lake):
        connection.execute(statement)

    def ask(sql):
        answer = connection.execute(sql)
        return [column[0] for column in answer.description], answer.fetchall()

    return ask


def datafusion(lake):
    import datafusion

    context = datafusion.SessionContext()
    for statement in preamble("datafusion", lake):
        context.sql(statement).collect()

    def ask(sql):
        answer = context.sql(sql)
        batches = answer.collect()
        rows = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns))]
        return answer.schema().names, rows

    return ask


def clickhouse(lake):
    from chdb.session import Session

    session = Session()
    session.query("set max_memory_usage = 6000000000")
    session.query("set output_format_json_quote_64bit_integers = 0")
    for statement in preamble("clickhouse", lake):
        session.query(statement)

    def ask(sql):
        answer = session.query(sql, "JSONCompactEachRowWithNames").bytes().decode()
        names, *rows = map(json.loads, answer.splitlines())
        return names, rows

    return ask


def ballista(lake):
    workers = cluster.Cluster()
    atexit.register(workers.close)
    return ballista_session(workers, lake)


def ballista_session(workers, lake, **options):
    """A client of a cluster that knows the tables."""
    tables = workers.directory / "tables"
    if not tables.exists():
        cluster.by_table(lake, tables)
    session = cluster.Session(workers, **options)
    for statement in preamble("ballista", tables):
        session.run(statement)
    return session


def plain(value):
    """A value of any engine as a number, a text or None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    number = int(value)
    if number != value:
        raise TypeError(f"{value!r} is no whole number")
    return number


def bytes_read():
    """How many bytes this process has read with system calls, from the page cache or not. Mapped files do not count."""
    fields = dict(line.split(": ") for line in open("/proc/self/io", encoding="ascii").read().splitlines())
    return int(fields["rchar"])


def peak_rss_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    engine, lake, question = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    times = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    begun = time.monotonic()
    ask = globals()[engine](lake)
    # Ballista has processes of its own, so it counts for itself.
    read_of = getattr(ask, "bytes_read", bytes_read)
    answer = {"open_s": time.monotonic() - begun, "queries": {}}
    for query in QUERIES:
        sql = filled((HERE / "queries" / f"{query}.sql").read_text(), question)
        if hasattr(ask, "prepare"):
            ask.prepare(sql)
        seconds = []
        for _ in range(times):
            read, begun = read_of(), time.monotonic()
            names, rows = ask(sql)
            seconds.append(round(time.monotonic() - begun, 4))
        rows = [[plain(value) for value in row] for row in rows]
        answer["queries"][query] = {"seconds": seconds, "read": read_of() - read, "columns": names, "rows": rows}
    answer["peak_rss_kib"] = getattr(ask, "peak_rss_kib", peak_rss_kib)()
    json.dump(answer, sys.stdout)


def answers(engine, lake, question, times=1, limit=900):
    """The answers of an engine, from a process of its own. Raises if it fails or takes longer than `limit` seconds."""
    command = [sys.executable, __file__, engine, str(lake), json.dumps(question), str(times)]
    with tempfile.TemporaryDirectory(prefix="taskdiag-fleet-", ignore_cleanup_errors=True) as directory:
        environment = {**os.environ, "TZ": "UTC", "TMPDIR": directory}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, env=environment)
    if done.returncode:
        raise RuntimeError(f"{engine} on {lake}: {done.stderr.decode()[-2000:]}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
