# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples of the README run, and the types are as declared in the stubs."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import crowd

import taskdiag

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
    # Many names there come from the installed psutil.
    (tmp_path / "allowed").write_text(r"taskdiag\.psutil\..*")
    command = [sys.executable, "-m", "mypy.stubtest", "taskdiag", "--allowlist", "allowed"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110 * crowd())
    assert run.returncode == 0, run.stdout


def test_users_are_type_checked(tmp_path):
    good = "import taskdiag\nrss: int = sum(r[1] or 0 for r in taskdiag.snapshot('pid,rss'))\nn: int = len(taskdiag.maps(1))\n"
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text("import taskdiag\ntaskdiag.snapshot(thread=True)\ntaskdiag.maps(1).foo\n")

    def check(name):
        command = [sys.executable, "-m", "mypy", "--strict", name]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110 * crowd()).stdout

    assert check("good.py").startswith("Success"), check("good.py")
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
