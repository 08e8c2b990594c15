# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables as Python programs use them: rows and slices, pickles, data frames, notebooks."""

import copy
import html.parser
import os
import pickle
import subprocess
import sys

import pandas
import pyarrow
import pytest
from conftest import crowd

import taskdiag

COLUMNS = ["pid", "comm", "rss", "start", "time", "pcpu", "exe", "args", "tty", "cgroup", "stack_limit", "nspid"]
NAMES = [name for name in COLUMNS if any(name in (c.name, *c.aliases) for c in taskdiag.columns())]


def table(**more):
    return taskdiag.snapshot(NAMES, sort="pid", **more)


def facts(t):
    """Everything that a table says."""
    of = [t.columns, [(c.name, c.type, c.unit, c.source, c.help) for c in t.schema], t.rows(), t.missing, t.left_out, t.nobody]
    return [*of, t.caveats, t.served, t.errno, t.info, t.complete, [t.lacks(name, True) for name in t.columns]]


def test_rows_have_the_names_of_their_columns():
    t = table(pids=os.getpid())
    row = t[0]
    assert row.pid == row[0] == os.getpid() and isinstance(row, tuple) and row == t.rows()[0] == next(iter(t))
    assert isinstance(row, taskdiag.Row) and row._fields == tuple(NAMES) and row._asdict() == t.to_dicts()[0]
    assert repr(row).startswith(f"Row(pid={os.getpid()}, ")
    again = pickle.loads(pickle.dumps(row))
    assert again == row and again.comm == row.comm
    # Names that are no attributes, or those of tuples.
    odd = taskdiag.snapshot("pid,%mem,%cpu", pids=os.getpid())[0]
    assert odd._asdict()["%mem"] == odd[1] and odd._fields[1] == "%mem"


def test_rows_are_found_by_number():
    t = table()
    rows = t.rows()
    assert t[0] == rows[0] and t[-1] == rows[-1] and t[len(t) - 1] == rows[-1]
    for beyond in (len(t), -len(t) - 1, 2**70, -(2**70)):
        with pytest.raises(IndexError, match=f"the table has {len(t)} rows"):
            t[beyond]
        with pytest.raises(IndexError):
            t.why(beyond, "pid")
    with pytest.raises(KeyError, match="no column 'nme'"):
        t["nme"]
    with pytest.raises(TypeError, match="the name of a column, the number of a row or a slice of rows, not 1.5"):
        t[1.5]
    assert "pid" in t and "nme" not in t and 5 not in t and None not in t


@pytest.mark.parametrize("cut", [slice(None), slice(3), slice(2, 7), slice(-3, None), slice(None, None, -1), slice(1, None, 5), slice(5, 5),
                                 slice(10**9, None), slice(-1, -8, -3)], ids=str)
def test_a_slice_is_a_table_of_these_rows(cut):
    t = table()
    part = t[cut]
    assert isinstance(part, taskdiag.Table) and part.columns == t.columns
    assert part.rows() == t.rows()[cut] and [part[n] for n in NAMES] == [t[n][cut] for n in NAMES]
    order = list(range(len(t)))[cut]
    for name in NAMES:
        assert [part.why(i, name) for i in range(len(part))] == [t.why(row, name) for row in order]
    whole = pyarrow.table(t).to_pylist()
    assert pyarrow.table(part).to_pylist() == [whole[row] for row in order]
    assert part.served == t.served and part.caveats == t.caveats


def test_a_slice_of_many_rows():
    t = taskdiag.maps(columns="pid,address,path", where="size > 0")
    assert t[::2].rows() == t.rows()[::2] and len(t[100:200]) == min(100, max(0, len(t) - 100))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_table_is_the_same(protocol):
    for t in (table(), table(where="rss > 1M and exe ~ python"), table(pids=[os.getpid(), 2**22 + 1]), table(pids=[])):
        again = pickle.loads(pickle.dumps(t, protocol))
        assert facts(again) == facts(t)
        assert pyarrow.table(again).equals(pyarrow.table(t)) and pyarrow.table(again).schema.metadata == pyarrow.table(t).schema.metadata
        assert pyarrow.table(again).schema.equals(pyarrow.table(t).schema, check_metadata=True)
        assert pyarrow.table(again.binary).equals(pyarrow.table(t.binary))
        assert copy.deepcopy(t) is t


def test_bytes_that_are_no_text_are_pickled(start):
    child = start("import sys; print('ready', flush=True); sys.stdin.read()", b"\xe9\xff", "\u20ac")
    t = table(pids=child.pid)
    assert os.fsencode(t["args"][0][-2]) == b"\xe9\xff"
    assert facts(pickle.loads(pickle.dumps(t))) == facts(t)


def test_columns_binaries_and_changes_are_pickled():
    t = table()
    binary = pickle.loads(pickle.dumps(t.binary))
    assert pyarrow.table(binary).equals(pyarrow.table(t.binary)) and repr(binary).startswith("<taskdiag.Binary of <taskdiag.Table")
    column = pickle.loads(pickle.dumps(taskdiag.columns()[0]))
    assert repr(column) == repr(taskdiag.columns()[0]) and column.aliases == taskdiag.columns()[0].aliases
    with taskdiag.Session("pid,comm", deltas="time,io") as session:
        session.refresh()
        session.refresh()
        changes = session.changes()
        again = pickle.loads(pickle.dumps(changes))
        assert again.stayed.rows() == changes.stayed.rows() and again.interval == changes.interval
        assert repr(again) == repr(changes) and "stayed>" in repr(again)
        assert repr(session) == "<taskdiag.Session of pid, comm, deltas time, io>"
        with pytest.raises(TypeError, match="cannot be pickled; pickle its tables"):
            pickle.dumps(session)
    assert repr(session).endswith("closed>")


def test_a_table_goes_to_another_process_and_back():
    code = "import pickle, sys; t = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write(pickle.dumps((len(t), t[0])))"
    t = table(pids=os.getpid())
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(t), capture_output=True, timeout=100 * crowd())
    assert run.stderr == b"" and pickle.loads(run.stdout) == (1, t[0])


def test_a_pickle_that_was_changed_is_refused():
    restore, (form, specs, columns, lacks, rest) = table().__reduce__()
    pid, comm = NAMES.index("pid"), NAMES.index("comm")

    def with_column(at, values):
        return [*columns[:at], values, *columns[at + 1 :]]

    def with_lacks(entries):
        return [entries, *lacks[1:]]

    bad = [
        (form + 1, specs, columns, lacks, rest),
        (form, specs, columns[1:], lacks, rest),
        (form, specs, with_column(pid, columns[pid][1:]), lacks, rest),
        (form, specs, with_column(pid, ["x"] * len(columns[pid])), lacks, rest),
        (form, specs, with_column(pid, [-1] * len(columns[pid])), lacks, rest),
        (form, specs, with_column(comm, ["text"] * len(columns[comm])), lacks, rest),
        (form, [("a\0b", *specs[0][1:]), *specs[1:]], columns, lacks, rest),
        (form, [(specs[0][0], "uint7", *specs[0][2:]), *specs[1:]], columns, lacks, rest),
        (form, specs, columns, with_lacks([(1, "denied"), (0, "denied")]), rest),
        (form, specs, columns, with_lacks([(0, "no reason")]), rest),
    ]
    for state in bad:
        with pytest.raises(ValueError, match="no table that was pickled by taskdiag"):
            restore(*state)
    assert len(restore(form, specs, columns, with_lacks([(2**31, "denied")]), rest)) == len(columns[0])


def test_pandas_has_the_names_of_the_columns():
    # Names of other processes may have bytes that pandas takes for no text.
    t = table(pids=[os.getpid(), os.getppid(), 1])
    frame = pandas.DataFrame(t)
    assert list(frame.columns) == NAMES and list(frame["pid"]) == t["pid"] and list(frame["comm"]) == t["comm"]
    assert list(pandas.DataFrame(t[:5]).columns) == NAMES
    assert list(pandas.DataFrame(t.rows()).columns) == NAMES


@pytest.mark.parametrize("arrow", [True, False], ids=["with pyarrow", "without pyarrow"])
def test_a_data_frame_keeps_every_value(arrow, monkeypatch, start):
    start("import sys; print('ready', flush=True); sys.stdin.read()", b"\xe9")
    t = taskdiag.snapshot("pid,comm,rss,start,time,pcpu,exe,args,read_bytes,tty")
    if not arrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    frame = t.to_pandas()
    assert list(frame.columns) == t.columns and len(frame) == len(t)
    assert [str(frame[n].dtype) for n in ("pid", "rss", "read_bytes")] == ["UInt64"] * 3
    assert str(frame["start"].dtype).startswith("datetime64[") and frame["start"].dt.tz is not None
    assert str(frame["time"].dtype).startswith("timedelta64[")
    for name in ("pid", "rss", "read_bytes", "comm"):
        ours = [None if pandas.isna(value) else value for value in frame[name]]
        # As in Arrow, bytes that are no text are U+FFFD.
        utf8 = [v.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(v, str) else v for v in t[name]]
        assert ours == utf8, name
    assert [list(value) for value in frame["args"] if value is not None][:5] == [a for a in t["args"] if a is not None][:5] or not arrow
    assert [a.timestamp() for a in frame["start"]] == t["start"]
    assert [b.total_seconds() for b in frame["time"]] == pytest.approx(t["time"], abs=1e-6)
    # Without rows, the columns and their types are there.
    empty = t[:0].to_pandas()
    assert list(empty.columns) == t.columns and str(empty["rss"].dtype) == "UInt64" and len(empty) == 0
    # The largest number is not rounded.
    limits = [c.name for c in taskdiag.columns() if c.name.startswith("limit") and c.type == "uint64"][:1]
    for name in limits:
        t = taskdiag.snapshot(["pid", name])
        assert [None if pandas.isna(v) else int(v) for v in t.to_pandas()[name]] == t[name]


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas.. needs pandas: pip install pandas"):
        table().to_pandas()


class Page(html.parser.HTMLParser):
    """The tags of a page and the texts of its cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_a_notebook_shows_the_first_rows():
    t = taskdiag.maps(columns="pid,address,size,path")
    page = Page(t._repr_html_())
    assert page.cells[:4] == t.columns and page.tags.count("tr") == 1 + min(50, len(t))
    assert (f"and {len(t) - 50:,} more rows" in t._repr_html_()) == (len(t) > 50)
    assert "1 row<" in t[:1]._repr_html_() and Page(t[:0]._repr_html_()).tags.count("tr") == 1


def test_a_notebook_gets_no_tag_of_a_process(start):
    """Arguments and names are of other users, who would run a script in the notebook of an administrator."""
    evil = "<script>alert(1)</script>\"'&\x1b[2J\u202e"
    child = start("import sys; print('ready', flush=True); sys.stdin.read()", evil, b"\xff", "x" * 100_000, "<b>" * 30_000)
    t = taskdiag.snapshot("pid,args,exe", pids=child.pid)
    made = t._repr_html_()
    assert set(Page(made).tags) == {"table", "caption", "thead", "tr", "th", "tbody", "td"}
    assert "<script" not in made and "\x1b" not in made and "\u202e" not in made and "\udcff" not in made
    # Little of 190 kB is shown.
    assert len(made) < 3000
    text = str(t)
    assert "\x1b" not in text and "\u202e" not in text and len(text) < 500 and len(text.splitlines()) == 3


def test_print_shows_the_first_rows():
    t = table()
    lines = str(t).splitlines()
    assert lines[0] == repr(t) and lines[1].split() == NAMES and len(lines) == 2 + 10 + 1
    assert lines[-1] == f"… and {len(t) - 10:,} more rows"
    assert str(t[:0]).splitlines()[1].split() == NAMES


def test_version():
    import importlib.metadata

    assert taskdiag.__version__ == importlib.metadata.version("taskdiag")
