# SPDX-License-Identifier: MIT OR Apache-2.0
"""The exceptions of taskdiag. Each text says what went wrong and what to do about it.

A process that ends while it is read, or that denies something, is no error: its values are None, and the table says
why.
"""


class Error(Exception):
    """What is wrong with a request, or with the machine: the class of all exceptions of taskdiag."""

    __module__ = "taskdiag"


class NoSuchProcess(Error, ProcessLookupError):
    """The requested process does not exist, or you may not see it. `pid` is its number."""

    __module__ = "taskdiag"
    pid: int


class Hidden(Error):
    """The process exists, but this engine cannot see it. `pid` and `engine` have the details."""

    __module__ = "taskdiag"
    pid: int
    engine: str


class Unavailable(Error):
    """The engine does not work here. `cause` is for programs: no-permission, not-supported, limit, no-proc,
    turned-off or other."""

    __module__ = "taskdiag"
    engine: str
    cause: str


class Unsupported(Error):
    """The engine works, but does not provide these groups of values."""

    __module__ = "taskdiag"
    engine: str
    groups: str


class SettingError(Error, ValueError):
    """The environment variable TASKDIAG_ENGINE has an invalid value."""

    __module__ = "taskdiag"


class QueryError(Error, ValueError):
    """A column, condition or other argument is invalid. For a condition, the text marks the place."""

    __module__ = "taskdiag"


class SystemCallError(Error, OSError):
    """The system refused something. `errno` and `strerror` are those of OSError."""

    __module__ = "taskdiag"


class StreamError(Error):
    """The bytes of an answer are incomplete or malformed, which is a bug of taskdiag or of the kernel."""

    __module__ = "taskdiag"
