# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Arrow C interface: its rules by hand, and consumers as outside judges."""

import ctypes
import gc
import mmap
import os
import sys

import duckdb
import nanoarrow
import pandas
import polars
import pyarrow
import pytest

import taskdiag


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


class Stream(ctypes.Structure):
    pass


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
RELEASE_STREAM = ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))
Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", RELEASE_SCHEMA),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", RELEASE_ARRAY),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))),
    ("release", RELEASE_STREAM),
    ("private_data", ctypes.c_void_p),
]
GET = ctypes.pythonapi.PyCapsule_GetPointer
GET.restype, GET.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def stream_of(capsule):
    return ctypes.cast(GET(capsule, b"arrow_array_stream"), ctypes.POINTER(Stream))


def next_of(stream):
    array = Array()
    assert stream.contents.get_next(stream, ctypes.byref(array)) == 0
    return array


def own(columns="pid,rss,comm,args", **options):
    return taskdiag.snapshot(columns, pids=os.getpid(), **options)


def test_schema_by_hand():
    names = ["pid", "nice", "%cpu", "time", "start", "comm", "args", "supgid"]
    table = own(names)
    capsule = table.__arrow_c_schema__()
    schema = ctypes.cast(GET(capsule, b"arrow_schema"), ctypes.POINTER(Schema)).contents
    assert (schema.format, schema.n_children) == (b"+s", len(names))
    children = [schema.children[i].contents for i in range(len(names))]
    assert [c.name.decode() for c in children] == names
    formats = [b"L", b"l", b"g", b"tDn", b"tsu:UTC", b"u", b"+l", b"+l"]
    assert [c.format for c in children] == formats
    assert all(c.flags == 2 and c.release for c in children)
    assert [children[i].children[0].contents.format for i in (6, 7)] == [b"u", b"I"]
    schema.release(schema)
    assert not schema.release


def test_stream_by_hand():
    stream = stream_of(capsule := own().__arrow_c_stream__())
    schema = Schema()
    for _ in range(2):  # A consumer may ask for it as often as it likes.
        assert stream.contents.get_schema(stream, ctypes.byref(schema)) == 0
        assert schema.n_children == 4
        schema.release(schema)
    array = next_of(stream)
    assert (array.length, array.null_count, array.n_children, array.n_buffers) == (1, 0, 4, 1)
    pid = array.children[0].contents
    assert ctypes.cast(pid.buffers[1], ctypes.POINTER(ctypes.c_uint64))[0] == os.getpid()
    array.release(array)
    assert not array.release
    for _ in range(2):  # The end stays the end.
        assert not next_of(stream).release
    del capsule


def test_a_released_stream_is_not_released_again():
    capsule = own().__arrow_c_stream__()
    stream = stream_of(capsule)
    stream.contents.release(stream)
    assert not stream.contents.release
    del capsule  # Its destructor must not release it a second time.
    gc.collect()


def test_a_consumer_may_move_a_stream_out_of_its_capsule():
    capsule = own().__arrow_c_stream__()
    stream = stream_of(capsule)
    moved = Stream()
    ctypes.memmove(ctypes.byref(moved), stream, ctypes.sizeof(Stream))
    stream.contents.release = RELEASE_STREAM()
    del capsule
    gc.collect()
    array = next_of(ctypes.pointer(moved))
    assert array.length == 1
    moved.release(ctypes.pointer(moved))
    # The array outlives the stream.
    assert ctypes.cast(array.children[0].contents.buffers[1], ctypes.POINTER(ctypes.c_uint64))[0] == os.getpid()
    array.release(array)


def test_a_consumer_may_move_a_child_out_of_an_array():
    stream = stream_of(capsule := own("args,comm").__arrow_c_stream__())
    array = next_of(stream)
    child = Array()
    ctypes.memmove(ctypes.byref(child), array.children[0], ctypes.sizeof(Array))
    array.children[0].contents.release = RELEASE_ARRAY()
    array.release(array)
    del capsule
    gc.collect()
    offsets = ctypes.cast(child.buffers[1], ctypes.POINTER(ctypes.c_int32))
    with open("/proc/self/cmdline", "rb") as f:
        assert (offsets[0], offsets[1]) == (0, f.read().count(b"\0"))
    child.release(child)


def test_nothing_leaks():
    table = taskdiag.snapshot("pid,rss,comm,args,exe")

    def resident():
        gc.collect()
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def export(times):
        for _ in range(times):
            pyarrow.RecordBatchReader.from_stream(table).read_all()
            # These streams are dropped without being read, or half read.
            table.binary.__arrow_c_stream__()
            table.__arrow_c_schema__()
            pyarrow.RecordBatchReader.from_stream(table).read_next_batch()

    export(200)
    before = resident()
    export(3000)
    assert resident() - before < 8 << 20


def test_values_live_longer_than_the_table():
    table = taskdiag.snapshot("pid,comm,args")
    want = table["pid"]
    reader = pyarrow.RecordBatchReader.from_stream(table)
    del table
    gc.collect()
    batches = list(reader)
    del reader
    gc.collect()
    assert [p for b in batches for p in b.column(0).to_pylist()] == want


def test_a_requested_schema_must_be_a_schema():
    table = own()
    assert table.__arrow_c_stream__(table.__arrow_c_schema__())
    assert table.__arrow_c_stream__(requested_schema=None)
    with pytest.raises(TypeError):
        table.__arrow_c_stream__(7)
    with pytest.raises(ValueError, match="arrow_schema"):
        table.__arrow_c_stream__(table.__arrow_c_stream__())


# --- consumers ---

COLUMNS = "pid,ppid,user,s,nice,rss,%cpu,time,start,comm,args,exe,supgid"


def everything():
    table = taskdiag.snapshot(COLUMNS)
    assert len(table) > 3
    return table


def as_python(arrow):
    """Values as Table.rows() gives them."""
    rows = []
    for row in arrow.to_pylist():
        row["time"] = row["time"].value / 1e9 if hasattr(row["time"], "value") else row["time"].total_seconds()
        row["start"] = row["start"].timestamp()
        rows.append(tuple(row.values()))
    return rows


def test_pyarrow():
    table = everything()
    arrow = pyarrow.table(table)
    arrow.validate(full=True)
    assert arrow.num_rows == len(table) and arrow.column_names == table.columns
    assert str(arrow.schema.field("time").type) == "duration[ns]"
    assert str(arrow.schema.field("start").type) == "timestamp[us, tz=UTC]"
    assert arrow.schema.field("rss").metadata[b"taskdiag.unit"] == b"bytes"
    for mine, theirs in zip(table.rows(), as_python(arrow), strict=True):
        mine = tuple(_utf8(v) for v in mine)
        assert mine == theirs


def _utf8(value):
    """Text in Arrow's form."""
    if isinstance(value, str):
        return os.fsencode(value).decode("utf-8", "replace")
    if isinstance(value, list):
        return [_utf8(v) for v in value]
    return value


def test_null_is_null_in_pyarrow():
    table = everything()
    arrow = pyarrow.table(table)
    for name in table.columns:
        nulls = [v is None for v in table[name]]
        assert arrow[name].is_null().to_pylist() == nulls
        assert arrow[name].null_count == sum(nulls)


def test_bytes_in_pyarrow(start):
    odd = b"\xff\xfe-\xc3\xa4"
    child = start("import sys; print('ready', flush=True); sys.stdin.read()", odd)
    table = taskdiag.snapshot("args", pids=child.pid)
    arrow = pyarrow.table(table)
    arrow.validate(full=True)
    assert arrow["args"][0].as_py()[-1] == "\ufffd\ufffd-\xe4"
    exact = pyarrow.table(table.binary)
    assert exact["args"][0].as_py()[-1] == odd
    assert exact.schema.field("args").type == pyarrow.list_(pyarrow.field("item", pyarrow.binary(), nullable=False))


def test_polars():
    table = everything()
    frame = polars.DataFrame(table)
    assert frame.shape == (len(table), len(table.columns))
    assert frame["pid"].to_list() == table["pid"]
    assert frame["rss"].to_list() == table["rss"]
    assert frame["comm"].to_list() == [_utf8(v) for v in table["comm"]]
    assert frame["args"].to_list() == [_utf8(v) for v in table["args"]]
    assert frame["exe"].null_count() == table["exe"].count(None)
    by_user = frame.group_by("user").agg(polars.col("rss").sum()).to_dicts()
    assert sum(row["rss"] or 0 for row in by_user) == sum(r or 0 for r in table["rss"])


def test_duckdb():
    tasks = everything()
    ((count, rss),) = duckdb.sql("select count(*), sum(rss) from tasks").fetchall()
    assert (count, rss) == (len(tasks), sum(r or 0 for r in tasks["rss"]))
    ((mine,),) = duckdb.sql(f"select comm from tasks where pid = {os.getpid()}").fetchall()
    assert mine == own("comm")["comm"][0]


def test_pandas():
    table = everything()
    frame = pandas.DataFrame.from_arrow(table)
    assert list(frame["pid"]) == table["pid"]
    assert list(frame.columns) == table.columns


def test_nanoarrow():
    table = everything()
    array = nanoarrow.ArrayStream(table).read_all()
    assert len(array) == len(table)
    assert [row["pid"] for row in array.to_pylist()] == table["pid"]


def test_no_rows():
    tasks = taskdiag.snapshot(COLUMNS, where="pid == 0")
    assert len(tasks) == 0 and tasks.rows() == tasks.to_dicts() == []
    assert pyarrow.table(tasks).num_rows == 0
    assert polars.DataFrame(tasks).shape == (0, len(tasks.columns))
    assert duckdb.sql("select count(*) from tasks").fetchall() == [(0,)]


def test_several_batches():
    # This many mappings: neighbours with other rights are not one mapping.
    pages = 10_000
    memory = mmap.mmap(-1, 2 * pages * mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i in range(pages):
        assert libc.mprotect(start + 2 * i * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ) == 0
    table = taskdiag.maps(os.getpid(), "pid,address,end,path")
    assert len(table) > 2 * pages
    sizes = [batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(table)]
    assert sizes[:-1] == [8192] * (len(table) // 8192) and sum(sizes) == len(table)
    addresses = pyarrow.table(table)["address"].to_pylist()
    assert addresses == table["address"] == sorted(addresses)
    assert set(range(start, start + pages, mmap.PAGESIZE)) <= set(addresses)


def test_no_object_is_made_for_a_process():
    table = everything()
    before = sys.getallocatedblocks()
    capsules = [table.__arrow_c_stream__() for _ in range(50)]
    assert sys.getallocatedblocks() - before < 5 * len(capsules)
