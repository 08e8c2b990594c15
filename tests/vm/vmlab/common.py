# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the paths, the cache outside of the checkout, and the messages of the lab."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
VM = ROOT / "tests" / "vm"
SERIES = ROOT / "kernel" / "series"
CONFIG = ROOT / "kernel" / "config"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
# Logs of the last run of each kernel, for people.
LOGS = TARGET / "vm"


class Unavailable(Exception):
    """This machine cannot do it, for example without network or QEMU. It is a skip that is reported loudly."""


class Broken(Exception):
    """Something failed that should have worked."""


def say(text):
    print(f"vm: {text}", flush=True)


def cache(*parts):
    """A path in the cache. Its directory exists."""
    base = os.environ.get("TASKDIAG_CACHE")
    if not base:
        base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        base = pathlib.Path(base) / "taskdiag"
    path = pathlib.Path(base).joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(name):
    """Keeps two labs on one cache from making the same thing at once. Programs that a killed lab has started keep the lock."""
    with open(cache("locks", name), "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        os.set_inheritable(f.fileno(), True)
        yield


def have(program):
    return shutil.which(program) is not None


def run(*args, quiet=True, log=None, **options):
    """Runs a command to its end. Raises Broken with the end of its output if it fails."""
    args = [str(a) for a in args]
    # The command inherits the locks that are held.
    options = {"close_fds": False, **options}
    if log is not None:
        with open(log, "ab") as f:
            status = subprocess.run(args, stdout=f, stderr=subprocess.STDOUT, **options)
        tail = pathlib.Path(log).read_bytes()[-3000:]
    else:
        out = subprocess.PIPE if quiet else None
        err = subprocess.STDOUT if quiet else None
        status = subprocess.run(args, stdout=out, stderr=err, **options)
        tail = (status.stdout or b"")[-3000:]
    if status.returncode != 0:
        text = tail.decode(errors="replace") if isinstance(tail, bytes) else tail
        raise Broken(f"{' '.join(args)}: exit code {status.returncode}\n{text}")
    return status


def output(*args, **options):
    """The output of a command as text. It is empty if the command fails."""
    status = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options)
    return status.stdout.decode(errors="replace") if status.returncode == 0 else ""


def digest(*parts):
    """A short hash of strings, bytes and the contents of files."""
    h = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, pathlib.Path) and part.is_file() else part
        data = data if isinstance(data, bytes) else str(data).encode()
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:16]


def die(text):
    print(f"vm: {text}", file=sys.stderr)
    sys.exit(2)
