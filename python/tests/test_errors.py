# SPDX-License-Identifier: MIT OR Apache-2.0
"""Errors have types, and say what to do."""

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


@pytest.mark.parametrize("options", [{"columns": 7}, {"pids": "x"}, {"pids": [None]}, {"pids": 1.5}, {"max_rss": "1G"}, {"args": "1G"}, {"args": 1.5},
                                     {"where": 1}, {"columns": [1]}])
def test_arguments_of_wrong_types(options):
    with pytest.raises((TypeError, OverflowError)):
        taskdiag.snapshot(**options)


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
    assert table.why(-1, "pid") is None
    assert "pid" in table and "rss" not in table
