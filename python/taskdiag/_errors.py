# SPDX-License-Identifier: MIT OR Apache-2.0
"""The exceptions of taskdiag. Each text says what went wrong and what to do about it.

A process that ends while it is read, or that denies something, is no error: its values are None, and the table says
why.
"""


class Error(Exception):
    """Everything that taskdiag raises itself."""

    __module__ = "taskdiag"


class NoSuchProcess(Error, ProcessLookupError):
    """The one process that the call is about is not there, or may not be seen. `pid` is its number."""

    __module__ = "taskdiag"
    pid: int


class Hidden(Error):
    """The process is there, and this engine cannot see it. `pid` and `engine` say which."""

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
    """The engine works, and does not provide these groups of values."""

    __module__ = "taskdiag"
    engine: str
    groups: str


class SettingError(Error, ValueError):
    """The environment (TASKDIAG_ENGINE) says something that makes no sense."""

    __module__ = "taskdiag"


class QueryError(Error, ValueError):
    """A column, condition or other argument makes no sense. For a condition, the text shows the place."""

    __module__ = "taskdiag"


class SystemCallError(Error, OSError):
    """The system refused something. `errno` and `strerror` are those of OSError."""

    __module__ = "taskdiag"


class StreamError(Error):
    """The bytes of an answer are not complete and well formed, which is a fault of taskdiag or of the kernel."""

    __module__ = "taskdiag"
