# SPDX-License-Identifier: MIT OR Apache-2.0
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, final, overload

from taskdiag._rows import Row

_Result = TypeVar("_Result")
_Names: TypeAlias = str | Sequence[str]
_Pids: TypeAlias = int | Sequence[int]
_Text: TypeAlias = int | Literal["all"]
_Engine: TypeAlias = Literal["auto", "kernel", "bpf", "service", "procfs"]
_Path: TypeAlias = str | PathLike[str]
_Rows: TypeAlias = Literal["tasks", "maps", "memory", "files", "cgroups"]
_Delta: TypeAlias = Literal["time", "faults", "io", "switches"]

__all__ = [
    "UNLIMITED",
    "__version__",
    "_changes",
    "_column",
    "_table",
    "Binary",
    "CgroupSession",
    "Changes",
    "Column",
    "Held",
    "Session",
    "Single",
    "Table",
    "cgroups",
    "columns",
    "files",
    "ioprio_get",
    "ioprio_set",
    "maps",
    "memory",
    "pid_in_proc",
    "snapshot",
    "tty_name",
]

__version__: Final[str]

UNLIMITED: Final = 18446744073709551615
"""What stands for "unlimited" in a column of numbers, such as a limit of resources."""

@final
class Column:
    """The type and the unit of a column."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def type(self) -> str:
        """The Arrow type of its values."""
    @property
    def unit(self) -> str | None:
        """The unit of its values, or None."""
    @property
    def source(self) -> str:
        """The source: a file of /proc, or a member of a struct of the kernel."""
    @property
    def help(self) -> str:
        """What it is."""
    @property
    def aliases(self) -> list[str]:
        """Other names for it, among them those of ps -o."""

@final
class Table:
    """Rows of an answer, in columns.

    table["rss"] is the list of a column, table[0] and table[-1] are rows, and table[:10] is a table of some rows. A table can be pickled,
    and a notebook shows its first rows.

    polars.DataFrame(table), pyarrow.table(table), pandas.DataFrame.from_arrow(table), duckdb.sql("from name_of_table") and
    nanoarrow.ArrayStream(table) read it as it lies in memory. Arrow has text as UTF-8, with U+FFFD for other bytes;
    `binary` has the bytes. table.to_pandas() makes a data frame, and keeps numbers whole where some are not known.

    As Python objects, durations are seconds, moments are seconds since 1970, and text that is not UTF-8 has lone
    surrogates, so that os.fsencode() gives its bytes back. None stands for a value that is not known, or that the task
    does not have: `why()` tells which.
    """

    def __copy__(self) -> Table: ...
    def __deepcopy__(self, _memo: Any, /) -> Table: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __contains__(self, name: object, /) -> bool:
        """Is there a column of this name?"""
    @overload
    def __getitem__(self, key: str, /) -> list[Any]: ...
    @overload
    def __getitem__(self, key: int, /) -> Row: ...
    @overload
    def __getitem__(self, key: slice, /) -> Table: ...
    def rows(self) -> list[Row]:
        """The rows as tuples, whose values also have the names of their columns: row.pid."""
    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
    def to_pandas(self) -> Any:
        """The table as a DataFrame of pandas, which must be installed. Numbers and truth values have types that can be NA, so that none
        becomes a fraction; durations and moments have the types of pandas."""
    def _repr_html_(self) -> str:
        """The first rows for a notebook."""
    def _beginning(self, rows: int, most: int) -> list[tuple[Any, ...]]: ...
    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
    @property
    def schema(self) -> list[Column]:
        """What the columns are: types and units."""
    @property
    def complete(self) -> bool:
        """Is the answer complete?"""
    @property
    def missing(self) -> dict[str, dict[str, int]]:
        """How many values are lacking in which column, and why: denied, vanished, blocked, truncated, unsupported ...
        What a task just does not have, such as the program of a kernel thread, is not among them."""
    def lacks(self, column: str, absent: bool = False) -> dict[int, str]:
        """Why rows lack the value of a column, or have only its beginning, by the number of the
        row. With `absent`, rows that have no such value are included."""
    def why(self, row: int, column: str) -> str | None:
        """Why a value is None or incomplete. None: it is complete."""
    @property
    def left_out(self) -> list[tuple[str, str, int]]:
        """Tasks that the condition leaves out because it is not known whether they match: (column, why, how many)."""
    @property
    def nobody(self) -> list[int]:
        """Requested process ids that do not exist."""
    @property
    def caveats(self) -> list[str]:
        """Remarks about the answer."""
    @property
    def served(self) -> list[tuple[str, str, str, float]]:
        """The engines that answered: (engine, groups of values, why this engine, seconds)."""
    @property
    def info(self) -> dict[str, Any]:
        """The machine that the rows are of, and when: host, kernel, arch, boot_id (of this boot), cpus, memory (bytes), time
        (seconds since 1970) and uptime (seconds). What is not known is None."""
    @property
    def errno(self) -> int:
        """The errno of a walk that ended early, so that rows are missing. 0: it did not."""
    @property
    def binary(self) -> Binary:
        """The same rows, but Arrow gets text as the kernel's bytes."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Binary:
    """A table whose text is bytes for Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Changes:
    """What changed between two answers of a session."""

    @property
    def began(self) -> Table:
        """The rows that are new."""
    @property
    def ended(self) -> Table:
        """The rows that are gone, with their last values."""
    @property
    def stayed(self) -> Table:
        """The rows that are in both, with their current values, and columns delta_... for the growth of counters."""
    @property
    def unknown(self) -> int:
        """How many tasks of one answer could not be searched for in the other one. Either their start time is not known, or
        the other answer ended early and does not have their pid."""
    @property
    def interval(self) -> float:
        """Seconds between the two answers."""

@final
class Session:
    """Repeats a request. The BPF programs stay loaded, so that only the first answer pays for loading them.

    `deltas` says which counters `changes()` compares: time (delta_time, delta_pcpu), faults (delta_minflt,
    delta_majflt), io (delta_read_bytes, delta_write_bytes), switches (delta_nvcsw, delta_nivcsw).

    `budget`, `max_rss` and `args` are those of `snapshot()`. A session holds two answers, so without `args` it reads only
    4096 bytes of the arguments, and of the environment, of each process.

    A session belongs to one thread at a time. After Ctrl-C in `refresh()` it starts again without answers.
    """

    def __new__(
        cls,
        columns: _Names | None = None,
        *,
        threads: bool = False,
        where: str | None = None,
        sort: _Names | None = None,
        deltas: _Delta | str | Sequence[_Delta] | None = None,
        engine: _Engine | None = None,
        budget: float | None = None,
        max_rss: int | None = None,
        args: _Text | None = None,
    ) -> Self: ...
    def refresh(self) -> Table:
        """Makes the request again, and returns the rows."""
    def changes(self) -> Changes | None:
        """What changed between the last two answers. None before there are two."""
    def close(self) -> None:
        """Closes the engines."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

def snapshot(
    columns: _Names | None = None,
    *,
    threads: bool = False,
    where: str | None = None,
    sort: _Names | None = None,
    pids: _Pids | None = None,
    engine: _Engine | None = None,
    budget: float | None = None,
    max_rss: int | None = None,
    args: _Text | None = None,
    proc: _Path | None = None,
) -> Table:
    """Processes, or with `threads` all threads.

    `columns` names the columns ("pid,rss,comm" or a list; `columns()` lists them). Only what they need is read.
    `where` is a condition, as "rss > 1G and user == web". `sort` names columns; "-rss" puts the largest value
    first. `pids` is one process id, which has to be there, or several; an empty list selects none. `engine` is
    kernel, bpf, service or procfs; without it, the fastest one that works here answers. `budget` (seconds) and `max_rss`
    (bytes) limit the sums over pages (pss, uss, swap). `args` is how many bytes of the arguments, and of the environment,
    of each process are read, or "all". Without it, these are 128 KiB, and all of a few processes that `pids` names. A value
    that was cut is "truncated" in `missing`. `proc` is another proc filesystem, or a directory tree like one,
    that the engine procfs reads.
    """

def maps(
    pids: _Pids | None = None,
    columns: _Names | None = None,
    *,
    where: str | None = None,
    sort: _Names | None = None,
    engine: _Engine | None = None,
    budget: float | None = None,
    max_rss: int | None = None,
    args: _Text | None = None,
    proc: _Path | None = None,
) -> Table:
    """Memory mappings of one process, of several, or of all. A process whose mappings are not known has one row with
    the reason."""

def memory(
    pids: _Pids | None = None,
    columns: _Names | None = None,
    *,
    where: str | None = None,
    sort: _Names | None = None,
    engine: _Engine | None = None,
    budget: float | None = None,
    max_rss: int | None = None,
    args: _Text | None = None,
) -> Table:
    """What processes have in memory and in swap, shared pages shared out (pss). Kernel threads and zombies have none
    and no row. The kernel walks over all pages of a process for it, which takes milliseconds a GiB."""

def files(
    pids: _Pids | None = None,
    columns: _Names | None = None,
    *,
    where: str | None = None,
    sort: _Names | None = None,
    paths: bool = False,
    mapped: bool = False,
    engine: _Engine | None = None,
    args: _Text | None = None,
    proc: _Path | None = None,
) -> Table:
    """Open files of one process, of several, or of all: descriptors, with `paths` also working and root directory and
    program, with `mapped` also mapped files. A table of descriptors that threads share is there once."""

def cgroups(
    paths: _Path | Sequence[_Path] | None = None,
    columns: _Names | None = None,
    *,
    where: str | None = None,
    sort: _Names | None = None,
    from_: _Path | None = None,
    at: datetime | float | None = None,
) -> Table:
    """Cgroups as rows: what each uses and may use, as `taskdiag cgroups` shows it.

    `paths` is the path of a cgroup, or a list of them, each with those below it; without it, all cgroups are rows. `columns`,
    `where` and `sort` are those of `snapshot()`, with the columns that `columns('cgroups')` lists. Only the files that they need
    are read.

    `from_` is a recording that `taskdiag record --cgroups` made, or a saved answer. `at`, which is a datetime or seconds since
    1970, chooses the last answer of a recording up to that time; without it, the newest one counts. `table.info` has its time and
    host. Columns whose names end in _now are rates since the previous answer. Without `from_`, they need a `CgroupSession`.
    """

@final
class CgroupSession:
    """Lists cgroups repeatedly. It keeps their files open, which makes a listing faster, and knows how much the counters
    have grown: columns whose names end in _now are rates since the previous listing, and None in the first one.

    The arguments are those of `cgroups()`. It uses at most half of the descriptors that the process may have, and not more
    than 8192; `descriptors` sets another limit. A session belongs to one thread at a time.
    """

    def __new__(
        cls,
        paths: _Path | Sequence[_Path] | None = None,
        columns: _Names | None = None,
        *,
        where: str | None = None,
        sort: _Names | None = None,
        descriptors: int | None = None,
    ) -> Self: ...
    def refresh(self) -> Table:
        """Lists the cgroups, and returns the rows."""
    def close(self) -> None:
        """Closes the files."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

def columns(of: _Rows = "tasks") -> list[Column]:
    """The columns that rows of a kind have. Mappings and files have those of their task, too."""

# For pickles.
def _table(form: int, specs: Any, columns: Any, lacks: Any, rest: Any) -> Table: ...
def _column(name: str, kind: str, unit: str | None, source: str, help: str, aliases: list[str]) -> Column: ...
def _changes(tables: tuple[Table, Table, Table], unknown: int, interval: float) -> Changes: ...

# For taskdiag.psutil.
def ioprio_get(pid: int) -> int: ...
def ioprio_set(pid: int, priority: int) -> None: ...
def pid_in_proc(pidfd: int) -> int | None: ...
@final
class Held:
    def __new__(cls, proc: str, pid: int) -> Self: ...
    def start_ticks(self) -> int: ...
    def has_own_number(self) -> bool: ...
    def send_signal(self, signal: int) -> None: ...
    def by_number(self, function: Callable[[int], _Result]) -> _Result: ...
def tty_name(device: int) -> str: ...
@final
class Single:
    def __new__(cls, proc: _Path, pid: int, start_ticks: int | None = None) -> Self: ...
    @property
    def start_ticks(self) -> int: ...
    def stat(self, proc: _Path) -> tuple[Any, ...] | None: ...
    def memory(self, proc: _Path) -> tuple[int, int, int, int, int, int, int] | None: ...
    def status(
        self, proc: _Path
    ) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int]] | None: ...
    def io(self, proc: _Path) -> tuple[int, int, int, int, int, int] | None: ...
    def exe(self, proc: _Path) -> str | None: ...
    def cwd(self, proc: _Path) -> str | None: ...
    def num_fds(self, proc: _Path) -> int | None: ...
