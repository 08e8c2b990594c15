# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes, threads, mappings, open files and cgroups of Linux, fast.

    >>> import taskdiag
    >>> table = taskdiag.snapshot("pid,rss,comm", where="rss > 1M", sort="-rss")

A table goes to polars, pandas, pyarrow or duckdb without a Python object for each process, and has rows as tuples or
dictionaries, too. A value that is not known is None, never 0, and `table.missing` says why.
"""

from taskdiag._errors import (
    Error,
    Hidden,
    NoSuchProcess,
    QueryError,
    SettingError,
    StreamError,
    SystemCallError,
    Unavailable,
    Unsupported,
)
from taskdiag._native import (
    UNLIMITED,
    Binary,
    CgroupSession,
    Changes,
    Column,
    Session,
    Table,
    __version__,
    cgroups,
    columns,
    files,
    maps,
    memory,
    snapshot,
)

from taskdiag._rows import Row
from taskdiag._waits import waits

__all__ = [
    "UNLIMITED",
    "Binary",
    "CgroupSession",
    "Changes",
    "Column",
    "Error",
    "Hidden",
    "NoSuchProcess",
    "QueryError",
    "Row",
    "Session",
    "SettingError",
    "StreamError",
    "SystemCallError",
    "Table",
    "Unavailable",
    "Unsupported",
    "__version__",
    "cgroups",
    "columns",
    "files",
    "maps",
    "memory",
    "snapshot",
    "waits",
]
