# SPDX-License-Identifier: MIT OR Apache-2.0
"""Errors have types, and say what to do."""

import inspect
import os
import subprocess
import sys

import pytest
from conftest import crowd

import taskdiag


def test_hierarchy():
    own = [getattr(taskdiag, n) for n in taskdiag.__all__]
    errors = [c for c in own if isinstance(c, type) and issubclass(c, Exception)]
    assert len(errors) == 9 and all(issubclass(e, taskdiag.Error) for e in errors)
    assert issubclass(taskdiag.NoSuchProcess, ProcessLookupError)
    assert issubclass(taskdiag.SystemCallError, OSError)
    assert issubclass(taskdiag.QueryError, ValueError)
    assert {e.__module__ for e in errors} == {"taskdiag"}


def test_a_process_that_is_not_there(start):
    gone = start("print('ready', flush=True)")
    gone.wait()
    for ask in (taskdiag.maps, taskdiag.files, lambda p: taskdiag.snapshot(pids=p)):
        with pytest.raises(taskdiag.NoSuchProcess, match=f"no process {gone.pid}") as e:
            ask(gone.pid)
        assert e.value.pid == gone.pid
        assert e.value.errno == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": "pid,comand"}, "did you mean 'command'"),
        ({"columns": "pid,threads"}, "the number of threads is nlwp"),
        ({"where": "threads > 5"}, "the number of threads is nlwp"),
        ({"columns": "address"}, "a column of maps"),
        ({"columns": ""}, "columns='pid,comm'"),
        ({"columns": "pid,pid"}, "named twice"),
        ({"columns": "pid", "sort": "-comand"}, "did you mean 'command'"),
        ({"columns": "pid", "where": "rss >"}, "a value must stand here.*\n.*rss >\n *\\^"),
        ({"columns": "pid", "where": "rsss > 1"}, "rss"),
        ({"columns": "pid", "engine": "bfp"}, "auto, kernel, bpf, service, procfs"),
        ({"columns": "pid", "budget": -1.0}, "seconds"),
        ({"columns": "pid", "max_rss": 0}, "bytes"),
        ({"columns": "pid", "max_rss": -5}, "bytes"),
        ({"columns": "pid", "max_rss": 2**70}, "bytes"),
        ({"columns": "pid", "args": -1}, "bytes"),
        ({"columns": "pid", "args": 2**70}, "bytes"),
        ({"columns": "pid", "pids": -1}, "-1 is not a process id"),
        ({"columns": "pid", "pids": 2**32}, "4294967296 is not a process id"),
        ({"columns": "pid", "pids": [1, -7]}, "-7 is not a process id"),
    ],
)
def test_arguments_that_make_no_sense(options, says):
    with pytest.raises(taskdiag.QueryError, match=says):
        taskdiag.snapshot(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": 7}, "columns, sort and deltas take names: 'pid,comm' or \\['pid', 'comm'\\], not 7 \\(int\\)"),
        ({"columns": [1]}, "take names: .* not 1 "),
        ({"columns": b"pid"}, "take names: .* not b'pid' "),
        ({"sort": 1.5}, "take names"),
        ({"pids": "x"}, "pids is a process id or a list of them, not 'x' "),
        ({"pids": [None]}, "pids is a process id or a list of them"),
        ({"pids": 1.5}, "pids is a process id or a list of them, not 1.5 "),
        ({"max_rss": "1G"}, "max_rss is a number of bytes from 1 on, below 2\\*\\*64, not '1G' "),
        ({"where": 1}, "where is a condition as text, as in where='rss > 1G', not 1 "),
        ({"engine": 1}, "engine is the name of an engine as text: kernel, bpf, service or procfs, not 1 "),
        ({"threads": 1}, "are True or False, not 1 "),
        ({"budget": "soon"}, "budget is a number of seconds, as in budget=0.5, not 'soon' "),
        ({"args": "1G"}, "args is a number of bytes from 0 on, or 'all', not '1G' "),
        ({"args": 1.5}, "args is a number of bytes from 0 on, or 'all', not 1.5 "),
        ({"proc": 1}, "proc is the path of a directory, as in proc='/proc', not 1 "),
    ],
)
def test_arguments_of_wrong_types(options, says):
    with pytest.raises(TypeError, match=says):
        taskdiag.snapshot(**options)


class Silent:
    def __repr__(self):
        raise RuntimeError("no text")


def test_errors_have_no_words_of_the_extension():
    """Whatever is passed for an argument: the error says what to pass, in words of Python."""
    words = ["extract", "Py", "convert", "instance of", "Sequence", "variant", "Vec", "Borrowed", "cast"]
    table = taskdiag.snapshot("pid", pids=os.getpid())
    functions = [taskdiag.snapshot, taskdiag.maps, taskdiag.memory, taskdiag.files, taskdiag.waits, taskdiag.columns]
    functions += [taskdiag.cgroups, taskdiag.CgroupSession, taskdiag.Session]
    calls = [(f, name) for f in functions for name in inspect.signature(f).parameters]
    calls += [(table.why, name) for name in ("row", "column")] + [(table.lacks, name) for name in ("column", "absent")]
    tried = 0
    for function, name in calls:
        # The arguments are as for snapshot(), and the table has something to show.
        more = {"row": 0, "column": "pid"} if function == table.why else {"column": "pid"} if function == table.lacks else {}
        for bad in (5, -1, 1.5, b"x", "\udcff", object(), {"a": 1}, [object()], "x" * 5000, Silent(), 10**400, "a\0b"):
            try:
                function(**{**more, name: bad})
            except Exception as e:  # noqa: BLE001
                tried += 1
                assert isinstance(e, (taskdiag.Error, TypeError, KeyError, IndexError)), (function, name, bad, repr(e))
                told = str(e).replace("PyBytes", "")
                assert not any(word in told for word in words), (function, name, str(e))
                assert not isinstance(e, TypeError) or len(str(e)) < 300, str(e)
    assert tried > 200
    for key in (None, 1.5, b"pid", object(), Silent(), ("pid",)):
        with pytest.raises(TypeError, match="the name of a column, the number of a row or a slice of rows"):
            table[key]


def test_a_condition_of_bytes_that_are_no_text():
    with pytest.raises(taskdiag.QueryError, match="lone surrogates"):
        taskdiag.snapshot("pid", where="comm == '\udcff'")


def test_deltas_are_names_like_columns():
    with taskdiag.Session("pid", deltas="time, io") as session:
        session.refresh(), session.refresh()
        assert "delta_read_bytes" in session.changes().stayed.columns
    with pytest.raises(taskdiag.QueryError, match="no delta 'tme'"):
        taskdiag.Session("pid", deltas="tme")


def test_an_engine_that_is_not_there():
    if os.path.exists("/proc/task_diag"):
        pytest.skip("this kernel has the engine")
    with pytest.raises(taskdiag.Unavailable, match="/proc/task_diag") as e:
        taskdiag.snapshot("pid", engine="kernel")
    assert (e.value.engine, e.value.cause) == ("kernel", "not-supported")


def child(code, **env):
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=100 * crowd())
    return run.stdout + run.stderr


def test_the_environment_names_no_engine():
    said = child("import taskdiag; taskdiag.snapshot('pid')", TASKDIAG_ENGINE="bfp")
    assert "taskdiag.SettingError: TASKDIAG_ENGINE=bfp" in said


def test_the_environment_names_an_engine():
    code = "import taskdiag; print({s[0] for s in taskdiag.snapshot('pid').served})"
    assert child(code, TASKDIAG_ENGINE="procfs") == "{'procfs'}\n"


def test_without_rights_bpf_says_what_it_needs():
    if os.getuid() != 0:
        pytest.skip("root: only root can give up rights")
    said = child("import os, taskdiag; os.setuid(65534); taskdiag.snapshot('pid', engine='bpf')")
    assert "taskdiag.Unavailable: the bpf engine cannot be used" in said


def test_a_table_refuses_what_it_does_not_have():
    table = taskdiag.snapshot("pid", pids=os.getpid())
    with pytest.raises(KeyError, match="no column 'rss'"):
        table["rss"]
    with pytest.raises(IndexError, match="1 rows"):
        table.why(1, "pid")
    with pytest.raises(TypeError, match="row is the number of a row, not 'a'"):
        table.why("a", "pid")
    with pytest.raises(TypeError, match="column is the name of a column as text, as in 'rss', not 5"):
        table.lacks(5)
    assert table.why(-1, "pid") is None
    assert "pid" in table and "rss" not in table
