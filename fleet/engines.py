# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks one engine the questions in queries/ about a lake, and prints answers and times as JSON.

Each engine runs in a process of its own (`answers()` starts it), so that its memory and its caches do not count for another
engine.

    python engines.py duckdb LAKE QUESTION.json [TIMES]
"""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The engine, and the Python package that it comes in.
ENGINES = {"duckdb": "duckdb", "datafusion": "datafusion", "clickhouse": "chdb"}
QUERIES = sorted(path.stem for path in (HERE / "queries").glob("*.sql"))


def installed():
    """The engines that are installed, and their versions."""
    return {
        engine: importlib.metadata.version(package)
        for engine, package in ENGINES.items()
        if importlib.util.find_spec(package)
    }


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


def main():
    engine, lake, question = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    times = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    begun = time.monotonic()
    ask = globals()[engine](lake)
    answer = {"open_s": time.monotonic() - begun, "queries": {}}
    for query in QUERIES:
        sql = filled((HERE / "queries" / f"{query}.sql").read_text(), question)
        seconds = []
        for _ in range(times):
            read, begun = bytes_read(), time.monotonic()
            names, rows = ask(sql)
            seconds.append(round(time.monotonic() - begun, 4))
        rows = [[plain(value) for value in row] for row in rows]
        answer["queries"][query] = {"seconds": seconds, "read": bytes_read() - read, "columns": names, "rows": rows}
    answer["peak_rss_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    json.dump(answer, sys.stdout)


def answers(engine, lake, question, times=1, limit=900):
    """The answers of an engine, from a process of its own. Raises if it fails or takes longer than `limit` seconds."""
    command = [sys.executable, __file__, engine, str(lake), json.dumps(question), str(times)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, env={**os.environ, "TZ": "UTC"})
    if done.returncode:
        raise RuntimeError(f"{engine} on {lake}: {done.stderr.decode()[-2000:]}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
