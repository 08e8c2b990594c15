# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command's --arrow and --parquet, read by pyarrow, DuckDB and polars, and compared with --json."""

import base64
import datetime
import json
import os
import pathlib
import signal
import subprocess
import time

import duckdb
import polars
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
import taskdiag
from conftest import state, until

COMMAND = os.environ.get("TASKDIAG_ARROW")
READY = "print('ready', flush=True); import sys; sys.stdin.read()"


def run(*args, ok=(0, 3)):
    assert COMMAND, "TASKDIAG_ARROW is not set: python/run-tests sets it"
    done = subprocess.run([COMMAND, *args], capture_output=True)
    assert done.returncode in ok, (args, done.returncode, done.stderr.decode())
    return done.stdout


@pytest.fixture
def frozen(start):
    """Three stopped processes: a plain one, one with odd arguments and files, and one with a name that is not UTF-8."""
    odd = "open('/etc/passwd'); import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
    name = "open('/proc/self/comm', 'wb').write(b'a\\xff\\n b'); "
    children = [start(READY), start(odd + READY, "", "two words", "line\nbreak", b"\xff\xfe"), start(name + READY)]
    for child in children:
        os.kill(child.pid, signal.SIGSTOP)
    until(lambda: all(state(child.pid) == "T" for child in children))
    return [c.pid for c in children]


def columns_of(what):
    """The columns of a table."""
    of = {"ps": "tasks"}.get(what, what)
    names = [f["name"] for f in json.loads(run("fields", "--json")) if f["of"] == of]
    # A saved answer has no locks.
    return [n for n in names if n not in ("pid", "lock", "fd_lock")]


def same(kind, arrow, plain):
    """Is a value of Arrow that of JSON?"""
    if arrow is None or plain is None:
        return arrow is plain
    if pyarrow.types.is_duration(kind):
        return abs(arrow.value / 1e9 - plain) < 1e-6
    if pyarrow.types.is_timestamp(kind):
        return arrow.timestamp() == plain
    if pyarrow.types.is_uint64(kind) and isinstance(plain, str):
        # Sets of bits are hexadecimal text in JSON.
        return plain == "unlimited" and arrow == 2**64 - 1 or arrow == int(plain.removeprefix("0x"), 16)
    if isinstance(arrow, float):
        return abs(arrow - plain) < 1e-3
    return arrow == plain


@pytest.mark.parametrize("what", ["ps", "files", "maps", "memory"])
def test_all_columns_are_those_of_json(what, frozen, tmp_path):
    columns = columns_of(what)
    # A saved answer, since values such as shared memory change all the time.
    saved, file = tmp_path / "saved", tmp_path / "parquet"
    saved.write_bytes(run("dump", "--groups", "all"))
    pids = ",".join(map(str, frozen))
    asked = [what, "--from", str(saved), "-o", ",".join(["pid", *columns]), "--pid", pids]
    run(*asked, "--parquet", str(file))
    stream = pyarrow.ipc.open_stream(run(*asked, "--arrow")).read_all()
    parquet = pyarrow.parquet.read_table(file)
    rows = json.loads(run(*asked, "--json"))
    assert parquet.schema.equals(stream.schema, check_metadata=True)
    assert parquet == stream
    assert stream.schema.names == ["pid", *columns]
    assert len(rows) == stream.num_rows >= 3
    assert {r["pid"] for r in rows} == set(frozen)
    wrong, known = [], set()
    for name in stream.schema.names:
        column = stream.column(name)
        kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
        for i, row in enumerate(rows):
            value = column[i] if pyarrow.types.is_duration(kind) and column[i].is_valid else column[i].as_py()
            known.update([name] if value is not None else [])
            if not same(kind, value, row.get(name)):
                wrong.append((name, str(kind), value, row.get(name)))
    assert not wrong
    # Most columns have a value somewhere, so that the comparison is one of values.
    assert len(known) > len(columns) * 0.5, set(columns) - known


def test_cgroups_are_those_of_json(cgroup, tmp_path):
    # Shares of the last ten seconds change by themselves.
    columns = [c for c in columns_of("cgroups") if "some" not in c and "full" not in c and c != "pressure"]
    asked = ["cgroups", cgroup.path, "-o", ",".join(columns)]
    file = tmp_path / "parquet"

    def alike():
        run(*asked, "--parquet", str(file))
        stream = pyarrow.ipc.open_stream(run(*asked, "--arrow")).read_all()
        [row] = json.loads(run(*asked, "--json"))
        assert stream.schema.names == columns and stream.num_rows == 1
        known = {c for c in columns if stream.column(c)[0].is_valid}
        assert known >= {"path", "name", "id", "level", "version", "own_procs", "procs", "time"}
        values = {c: stream.column(c)[0] for c in columns}
        plain = {c: v if pyarrow.types.is_duration(v.type) and v.is_valid else v.as_py() for c, v in values.items()}
        return pyarrow.parquet.read_table(file) == stream and all(
            same(values[c].type, plain[c], row.get(c)) for c in columns
        )

    until(alike)


def test_odd_text(frozen):
    table = pyarrow.ipc.open_stream(run("ps", "-o", "pid,comm,args", "--arrow", *map(str, frozen))).read_all()
    rows = {r["pid"]: r for r in table.to_pylist()}
    plain = {r["pid"]: r for r in json.loads(run("ps", "-o", "pid,comm,args", "--json", *map(str, frozen)))}
    assert rows[frozen[1]]["args"][-4:] == ["", "two words", "line\nbreak", "\ufffd\ufffd"]
    assert rows[frozen[2]]["comm"] == "a\ufffd\n b" == plain[frozen[2]]["comm"]
    assert base64.b64decode(plain[frozen[2]]["comm_bytes"]) == b"a\xff\n b"


def test_metadata():
    schema = pyarrow.ipc.open_stream(run("ps", "-o", "pid,rss,time,start", "--arrow")).read_all().schema
    assert schema.metadata[b"taskdiag.schema"] == b"1"
    assert abs(int(schema.metadata[b"taskdiag.realtime_ns"]) / 1e9 - time.time()) < 60
    assert schema.field("rss").metadata[b"taskdiag.unit"] == b"bytes"
    assert b"VmRSS" in schema.field("rss").metadata[b"taskdiag.source"]
    assert b"taskdiag.unit" not in schema.field("time").metadata
    assert schema.field("time").type == pyarrow.duration("ns")
    assert schema.field("start").type == pyarrow.timestamp("us", tz="UTC")


def test_engines_read_parquet(tmp_path, frozen):
    file = tmp_path / "ps.parquet"
    run("ps", "-o", "pid,ppid,comm,rss,start", "--parquet", str(file))
    pids = ",".join(map(str, frozen))
    found = duckdb.sql(f"select pid, ppid from '{file}' where pid in ({pids}) order by pid").fetchall()
    assert found == sorted((p, os.getpid()) for p in frozen)
    frame = polars.read_parquet(file).filter(polars.col("pid").is_in(frozen))
    assert sorted(frame["pid"]) == sorted(frozen)
    assert (frame["rss"] > 0).all()


def test_many_rows_are_several_batches(tmp_path):
    """The rows of maps of this process, many times over by its mappings of one page."""
    code = (
        "import mmap, ctypes, os, sys\n"
        "size = 9000 * 2 * 4096; m = mmap.mmap(-1, size); libc = ctypes.CDLL(None)\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "[libc.mprotect(ctypes.c_void_p(a + i * 8192), 4096, 1) for i in range(9000)]\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"ready\n"
        reader = pyarrow.ipc.open_stream(run("maps", str(child.pid), "--arrow"))
        batches = list(reader)
        assert len(batches) > 1
        addresses = [a for b in batches for a in b.column("address").to_pylist()]
        with open(f"/proc/{child.pid}/maps") as f:
            assert addresses == [int(line.partition("-")[0], 16) for line in f]
        file = tmp_path / "maps.parquet"
        run("maps", str(child.pid), "--parquet", str(file))
        assert pyarrow.parquet.read_table(file).num_rows == len(addresses)
    finally:
        child.kill()
        child.communicate()


def test_file_is_whole_or_not_there(tmp_path):
    file = tmp_path / "ps.parquet"
    file.write_bytes(b"before")
    run("ps", "-o", "pid", "--parquet", str(file))
    assert pyarrow.parquet.read_table(file).num_rows > 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["ps.parquet"]
    full = subprocess.run([COMMAND, "ps", "--parquet", "/dev/full"], capture_output=True, text=True)
    assert full.returncode == 1 and "/dev/full" in full.stderr, full
    none = subprocess.run([COMMAND, "ps", "--parquet", str(tmp_path / "no" / "x")], capture_output=True, text=True)
    assert none.returncode == 1 and "no/x" in none.stderr, none
    out = run("ps", "-o", "pid", "--parquet", "-")
    assert out[:4] == out[-4:] == b"PAR1"


def test_closed_pipe_is_quiet():
    child = subprocess.Popen([COMMAND, "ps", "-A", "--arrow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    child.wait()


def test_saved_answer(tmp_path):
    saved = tmp_path / "saved"
    saved.write_bytes(run("dump", "--groups", "ps"))
    table = pyarrow.ipc.open_stream(run("ps", "--from", str(saved), "-o", "pid,comm", "--arrow")).read_all()
    assert table.num_rows == len(json.loads(run("ps", "--from", str(saved), "-o", "pid,comm", "--json")))


def test_convert_gives_each_frame_again(tmp_path, start):
    """The query of docs/reference/arrow.md, with the last frame of a recording read by the command as the judge."""
    recording, lake = tmp_path / "recording", tmp_path / "lake"
    short = start(READY)
    recorder = subprocess.Popen([COMMAND, "record", "--every", "300ms", str(recording)], stderr=subprocess.DEVNULL)

    def recorded():
        """The pids of the last frame."""
        asked = subprocess.run([COMMAND, "ps", "--from", str(recording), "-o", "pid", "--no-headers"], capture_output=True, text=True)
        return {int(pid) for pid in asked.stdout.split()}

    until(lambda: short.pid in recorded())
    later = start(READY)
    short.kill()
    short.wait()
    until(lambda: later.pid in recorded() and short.pid not in recorded())
    recorder.terminate()
    assert recorder.wait() == 0
    run("convert", "--host", "web1", "-o", "comm,rss", str(recording), str(lake))
    rows = json.loads(run("ps", "--from", str(recording), "-o", "pid,comm,rss", "--json"))
    page = (pathlib.Path(__file__).parents[2] / "docs/reference/arrow.md").read_text()
    query = page.partition("```sql\n")[2].partition("```")[0].replace("DIR/", f"{lake}/")
    # The recording may be of two hours.
    query = query.replace("and date = '2026-11-22' and hour = 3 and ts <= '2026-11-22 03:10:00Z'", "and ts <= now()")
    assert "2026" not in query
    found = {(p, c, r) for p, c, r in duckdb.sql(query).fetchall()}
    assert found == {(r["pid"], r["comm"], r["rss"]) for r in rows}
    assert later.pid in {p for p, _, _ in found} and short.pid not in {p for p, _, _ in found}
    changes = duckdb.sql(f"select change, pid from '{lake}/**/*.parquet'").fetchall()
    assert ("ended", short.pid) in changes and ("new", later.pid) in changes


def test_recorded_cgroups_are_those_of_the_command(cgroup, tmp_path):
    recording, plain = str(tmp_path / "recording"), str(tmp_path / "plain")
    run("record", "--cgroups", "--every", "300ms", "-n", "3", recording)
    run("record", "-n", "1", plain)
    names = ["path", "id", "tasks", "memory", "memory_max", "cpu_now"]
    (want,) = json.loads(run("cgroups", cgroup.path, "--from", recording, "--json", "-o", ",".join(names)))
    table = taskdiag.cgroups(cgroup.path, names, from_=recording)
    (got,) = table.to_dicts()
    assert {name: got[name] for name in names[:4]} == {name: want.get(name) for name in names[:4]}
    # The process is stopped, so the rate since the previous answer is known, and it is 0.
    assert got["cpu_now"] == 0 and table.info["host"] == os.uname().nodename
    times = [table.info["time"]]
    for _ in range(2):
        earlier = taskdiag.cgroups(cgroup.path, names, from_=recording, at=times[-1] - 0.001)
        assert earlier["path"] == [cgroup.path] and earlier["tasks"] == [1]
        times.append(earlier.info["time"])
    assert times == sorted(times, reverse=True) and len(set(times)) == 3
    # There is none before the first one to compare with, and its time is the first that is known.
    assert earlier["cpu_now"] == [None]
    at = datetime.datetime.fromtimestamp(times[2] + 0.001)
    for moment in (at, at.astimezone(datetime.UTC)):
        assert taskdiag.cgroups("/", "path", from_=pathlib.Path(recording), at=moment).info["time"] == times[2]
    everything = taskdiag.cgroups(from_=recording, where=f"path == '{cgroup.path}'")
    assert everything["path"] == [cgroup.path]
    for options, says in (
        ({"from_": recording, "at": times[2] - 1}, "nothing was recorded before that time"),
        ({"from_": plain}, "has no cgroups: 'taskdiag record --cgroups'"),
        ({"from_": recording, "paths": "/none"}, "/none"),
        ({"from_": str(tmp_path / "none")}, "No such file"),
        ({"from_": str(tmp_path)}, "holds no recording"),
        ({"at": times[0]}, "name it with from_"),
        ({"from_": recording, "at": float("nan")}, "is no moment"),
    ):
        with pytest.raises((taskdiag.Error, OSError), match=says):
            taskdiag.cgroups(**options)
    with pytest.raises(TypeError, match="at is a number of seconds since 1970 or a datetime"):
        taskdiag.cgroups(from_=recording, at="noon")
    # An answer of 'dump' has no cgroups, and is one answer.
    saved = tmp_path / "saved"
    saved.write_bytes(run("dump", "--groups", "base"))
    with pytest.raises(taskdiag.Error, match="has no cgroups"):
        taskdiag.cgroups(from_=saved)
    with pytest.raises(taskdiag.Error, match="is not one"):
        taskdiag.cgroups(from_=saved, at=times[0])
