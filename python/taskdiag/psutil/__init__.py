# SPDX-License-Identifier: MIT OR Apache-2.0
"""The processes of psutil, read by taskdiag.

    >>> import taskdiag.psutil as psutil
    >>> for p in psutil.process_iter(["pid", "name", "memory_info"]):
    ...     print(p.info)

It has the shape of psutil 7.2. `process_iter()` with attributes makes one request for all processes instead of opening
several files of each. What is not about processes (memory, disks and sensors of the machine) is psutil's own, if that is
installed.
"""

import os
import sys
import types

from taskdiag.psutil import _types
from taskdiag.psutil._iter import pid_exists, pids, pmap as _pmap, process_iter, wait_procs
from taskdiag.psutil._process import Popen, Process
from taskdiag.psutil._types import AccessDenied, Error, IOPriority, NoSuchProcess, TimeoutExpired, ZombieProcess

_real = _types.real

PROCFS_PATH = "/proc"
"""The proc filesystem. If a program sets it, the engine procfs reads that one."""

LINUX = POSIX = True
BSD = FREEBSD = NETBSD = OPENBSD = MACOS = OSX = SUNOS = WINDOWS = AIX = False
globals().update(_types.CONSTANTS)
globals().update(_types.LIMITS)
globals().update(IOPriority.__members__)

__all__ = [
    "AccessDenied",
    "Error",
    "NoSuchProcess",
    "PROCFS_PATH",
    "Popen",
    "Process",
    "TimeoutExpired",
    "ZombieProcess",
    "pid_exists",
    "pids",
    "process_iter",
    "wait_procs",
]
if _real is not None:
    __all__ += [name for name in _real.__all__ if name not in __all__]
    version_info, __version__ = _real.version_info, _real.__version__
    PROCFS_PATH = _real.PROCFS_PATH
else:
    version_info, __version__ = (7, 2, 2), "7.2.2"


def __getattr__(name):
    if _real is not None:
        return getattr(_real, name)
    if name.startswith("__"):
        raise AttributeError(name)
    about = "only psutil may have it, which is not installed: pip install psutil"
    raise AttributeError(f"taskdiag.psutil has no {name}: {about}")


def __dir__():
    return sorted({*globals(), *([] if _real is None else dir(_real))})


class _Module(types.ModuleType):
    """Passes the directory of the proc filesystem that a program sets here on to psutil."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "PROCFS_PATH" and _real is not None and _real is not self:
            _real.PROCFS_PATH = value


sys.modules[__name__].__class__ = _Module
