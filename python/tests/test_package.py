# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples of the README run, and the types are those that the stubs say."""

import ast
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest
from conftest import crowd

import taskdiag
import taskdiag._native

HERE = Path(__file__).parents[1]
READMES = (HERE / "README.md").read_text() + (HERE.parent / "README.md").read_text()
READMES += (HERE.parent / "docs/use/python.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", READMES, re.M | re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_readme(number, tmp_path, start):
    # Somebody always has a name that is not UTF-8, and a terminal that wants it.
    start("import sys; x = b'1' * (4 << 20); print('ready', flush=True); sys.stdin.read()", b"\xe9")
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-c", EXAMPLES[number]]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100 * crowd())
    assert (run.returncode, run.stderr) == (0, "")


def test_readme_has_examples():
    assert len(EXAMPLES) >= 4


def test_stubs_say_what_is_there(tmp_path):
    # Functions that are not about processes come from the installed psutil. Its exceptions have
    # more members than we use, and named tuples have private names.
    (tmp_path / "allowed").write_text("\n".join([
        r"taskdiag\.psutil\._\w+.*",
        # Each table has rows of its own class.
        r"taskdiag\._rows\.Row\.__getattr__",
        r"taskdiag\.psutil\.(%s)" % "|".join(sorted(THEIRS)),
        r"taskdiag\.psutil\.(%s)(\..*)?" % "|".join(JUDGED_BY_PSUTIL),
    ]))
    command = [sys.executable, "-m", "mypy.stubtest", "taskdiag", "--allowlist", "allowed", "--ignore-unused-allowlist"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110 * crowd())
    assert run.returncode == 0, run.stdout


# What `taskdiag.psutil` passes on, and what is psutil's own class there.
OURS = {"Process", "Popen", "pids", "pid_exists", "process_iter", "wait_procs", "PROCFS_PATH"}
THEIRS = {name for name in vars(psutil) if name not in OURS and not name.startswith("_")}
JUDGED_BY_PSUTIL = ["Error", "NoSuchProcess", "ZombieProcess", "AccessDenied", "TimeoutExpired", "IOPriority"]


def documented():
    """(name, what it is, its text) of everything in the stubs that has a text."""
    tree = ast.parse((HERE / "taskdiag/_native.pyi").read_text())

    def below(nodes, of, prefix):
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                there = inspect.getattr_static(of, node.name) if prefix else getattr(of, node.name)
                if ast.get_docstring(node):
                    yield prefix + node.name, there, ast.get_docstring(node)
                if isinstance(node, ast.ClassDef):
                    yield from below(node.body, there, f"{prefix}{node.name}.")

    return list(below(tree.body, taskdiag._native, ""))


def test_help_has_the_text_of_the_stubs():
    found = documented()
    assert {"snapshot", "Table", "Table.why", "Session.changes", "Column.type"} <= {name for name, _, _ in found}
    for name, there, text in found:
        # Slots such as __contains__ have a text of Python's own.
        if not name.endswith("__"):
            assert there.__doc__ is not None, f"{name} has no text"
            assert there.__doc__.split() == text.split(), name
    assert "a condition, as" in taskdiag.snapshot.__doc__ and taskdiag.snapshot.__text_signature__.startswith("(columns=None, *, threads=False")


def test_everything_public_has_a_text():
    for name in taskdiag.__all__:
        there = getattr(taskdiag, name)
        if callable(there):
            assert len(there.__doc__ or "") > 10, name
            if isinstance(there, type) and not issubclass(there, tuple):
                for member, of in vars(there).items():
                    if not member.startswith("_"):
                        assert getattr(of, "__doc__", None), f"{name}.{member}"


OF_PSUTIL = """
import taskdiag.psutil as psutil

total: int = 0
for p in psutil.process_iter(["pid", "name"]):
    try:
        total += p.memory_info().rss + p.info["pid"] + p.uids().real
        share: float = p.cpu_percent() + p.cpu_times().user
        parent: psutil.Process | None = p.parent()
    except (psutil.NoSuchProcess, psutil.AccessDenied) as e:
        print(e.pid, e.msg)
with psutil.Popen(["true"]) as child:
    code: int | None = child.wait(timeout=3)
paths: list[str] = [m.path for m in psutil.Process(1).memory_maps()]
ends: list[str] = [m.addr for m in psutil.Process(1).memory_maps(grouped=False)]
soft, hard = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)
print(psutil.virtual_memory(), psutil.Process().nice() + 1, psutil.STATUS_ZOMBIE == psutil.Process().status(), soft + hard)
"""


def test_users_are_type_checked(tmp_path):
    good = "import taskdiag\nrss: int = sum(r[1] or 0 for r in taskdiag.snapshot('pid,rss'))\nn: int = len(taskdiag.maps(1)) + len(taskdiag.waits(1, sort='-waited'))\nc: int = len(taskdiag.cgroups('/', columns=['path'], sort='-memory'))\n"
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text("import taskdiag\ntaskdiag.snapshot(thread=True)\ntaskdiag.maps(1).foo\n")

    def check(name):
        command = [sys.executable, "-m", "mypy", "--strict", name]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110 * crowd()).stdout

    assert check("good.py").startswith("Success"), check("good.py")
    (tmp_path / "of_psutil.py").write_text(OF_PSUTIL)
    assert check("of_psutil.py").startswith("Success"), check("of_psutil.py")
    (tmp_path / "bad_psutil.py").write_text("""import taskdiag.psutil as psutil
psutil.Process("1")
psutil.Process().memory_info().no_such_number
n: int = psutil.Process().name()
psutil.Process().net_connections("tpc")
""")
    wrong = check("bad_psutil.py")
    assert all(f"bad_psutil.py:{line}" in wrong for line in (2, 3, 4, 5)), wrong
    bad = check("bad.py")
    assert "bad.py:2" in bad and "bad.py:3" in bad


def test_metadata():
    meta = importlib.metadata.metadata("taskdiag")
    crate = tomllib.loads((HERE / "Cargo.toml").read_text())["package"]
    assert meta["Version"] == crate["version"]
    assert meta["Requires-Python"] == ">=3.11"
    # The wheel is self-contained.
    assert meta.get_all("Requires-Dist") is None
    installed = {str(f) for f in importlib.metadata.files("taskdiag")}
    assert "taskdiag/py.typed" in installed and "taskdiag/_native.pyi" in installed
    assert {n for n in taskdiag.__all__ if not hasattr(taskdiag, n)} == set()
