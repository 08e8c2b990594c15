# SPDX-License-Identifier: MIT OR Apache-2.0
"""Exceptions and the enumeration of psutil, for where psutil is not installed."""

import enum


class Error(Exception):
    """What all exceptions here have in common."""

    __module__ = "taskdiag.psutil"
    _names: tuple[str, ...] = ("pid", "ppid", "name", "seconds")
    msg = ""

    def _said(self, quote):
        said = [f"{n}={quote(getattr(self, n))}" for n in self._names if getattr(self, n, None)]
        return f"({', '.join(said)})" if said else ""

    def __str__(self):
        return " ".join(filter(None, [self.msg, self._said(repr)]))

    def __repr__(self):
        about = self._said(repr)[1:-1]
        return f"taskdiag.psutil.{type(self).__name__}({', '.join(filter(None, [about, f'msg={self.msg!r}']))})"


class NoSuchProcess(Error):
    """There is no process with this pid, or not any more."""

    __module__ = "taskdiag.psutil"

    def __init__(self, pid, name=None, msg=None):
        super().__init__(pid, name, msg)
        self.pid, self.name, self.msg = pid, name, msg or "process no longer exists"


class ZombieProcess(NoSuchProcess):
    """The process has ended, and its parent has not waited for it."""

    __module__ = "taskdiag.psutil"

    def __init__(self, pid, name=None, ppid=None, msg=None):
        super().__init__(pid, name, msg or "PID still exists but it's a zombie")
        self.ppid = ppid


class AccessDenied(Error):
    """The system does not permit it."""

    __module__ = "taskdiag.psutil"

    def __init__(self, pid=None, name=None, msg=None):
        super().__init__(pid, name, msg)
        self.pid, self.name, self.msg = pid, name, msg or ""


class TimeoutExpired(Error):
    """The process did not end in time."""

    __module__ = "taskdiag.psutil"

    def __init__(self, seconds, pid=None, name=None):
        super().__init__(seconds, pid, name)
        self.seconds, self.pid, self.name = seconds, pid, name
        self.msg = f"timeout after {seconds} seconds"


class IOPriority(enum.IntEnum):
    """Classes of I/O priority."""

    IOPRIO_CLASS_NONE = 0
    IOPRIO_CLASS_RT = 1
    IOPRIO_CLASS_BE = 2
    IOPRIO_CLASS_IDLE = 3
