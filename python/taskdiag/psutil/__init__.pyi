# SPDX-License-Identifier: MIT OR Apache-2.0
import enum
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from socket import AddressFamily, SocketKind
from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, overload

# What is not about processes is psutil's own, where that is installed.
def __getattr__(name: str) -> Any: ...

PROCFS_PATH: str
version_info: tuple[int, int, int]
__version__: str

_Status: TypeAlias = str
_Kind: TypeAlias = Literal[
    "all", "inet", "inet4", "inet6", "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix"
]

STATUS_RUNNING: Literal["running"]
STATUS_SLEEPING: Literal["sleeping"]
STATUS_DISK_SLEEP: Literal["disk-sleep"]
STATUS_STOPPED: Literal["stopped"]
STATUS_TRACING_STOP: Literal["tracing-stop"]
STATUS_ZOMBIE: Literal["zombie"]
STATUS_DEAD: Literal["dead"]
STATUS_WAKING: Literal["waking"]
STATUS_IDLE: Literal["idle"]
STATUS_LOCKED: Literal["locked"]
STATUS_WAITING: Literal["waiting"]
STATUS_PARKED: Literal["parked"]
CONN_NONE: Literal["NONE"]
CONN_ESTABLISHED: Literal["ESTABLISHED"]
CONN_SYN_SENT: Literal["SYN_SENT"]
CONN_SYN_RECV: Literal["SYN_RECV"]
CONN_FIN_WAIT1: Literal["FIN_WAIT1"]
CONN_FIN_WAIT2: Literal["FIN_WAIT2"]
CONN_TIME_WAIT: Literal["TIME_WAIT"]
CONN_CLOSE: Literal["CLOSE"]
CONN_CLOSE_WAIT: Literal["CLOSE_WAIT"]
CONN_LAST_ACK: Literal["LAST_ACK"]
CONN_LISTEN: Literal["LISTEN"]
CONN_CLOSING: Literal["CLOSING"]
RLIM_INFINITY: int
RLIMIT_AS: int
RLIMIT_CORE: int
RLIMIT_CPU: int
RLIMIT_DATA: int
RLIMIT_FSIZE: int
RLIMIT_MEMLOCK: int
RLIMIT_MSGQUEUE: int
RLIMIT_NICE: int
RLIMIT_NOFILE: int
RLIMIT_NPROC: int
RLIMIT_RSS: int
RLIMIT_RTPRIO: int
RLIMIT_RTTIME: int
RLIMIT_SIGPENDING: int
RLIMIT_STACK: int
LINUX: Literal[True]
POSIX: Literal[True]
BSD: Literal[False]
FREEBSD: Literal[False]
NETBSD: Literal[False]
OPENBSD: Literal[False]
MACOS: Literal[False]
OSX: Literal[False]
SUNOS: Literal[False]
WINDOWS: Literal[False]
AIX: Literal[False]

class IOPriority(enum.IntEnum):
    IOPRIO_CLASS_NONE = 0
    IOPRIO_CLASS_RT = 1
    IOPRIO_CLASS_BE = 2
    IOPRIO_CLASS_IDLE = 3

IOPRIO_CLASS_NONE: Literal[IOPriority.IOPRIO_CLASS_NONE]
IOPRIO_CLASS_RT: Literal[IOPriority.IOPRIO_CLASS_RT]
IOPRIO_CLASS_BE: Literal[IOPriority.IOPRIO_CLASS_BE]
IOPRIO_CLASS_IDLE: Literal[IOPriority.IOPRIO_CLASS_IDLE]

class Error(Exception):
    """What all exceptions here have in common. Where psutil is installed, they are psutil's own."""

    msg: str

class NoSuchProcess(Error):
    pid: int
    name: str | None
    def __init__(self, pid: int, name: str | None = None, msg: str | None = None) -> None: ...

class ZombieProcess(NoSuchProcess):
    ppid: int | None
    def __init__(
        self, pid: int, name: str | None = None, ppid: int | None = None, msg: str | None = None
    ) -> None: ...

class AccessDenied(Error):
    pid: int | None
    name: str | None
    def __init__(self, pid: int | None = None, name: str | None = None, msg: str | None = None) -> None: ...

class TimeoutExpired(Error):
    seconds: float
    pid: int | None
    name: str | None
    def __init__(self, seconds: float, pid: int | None = None, name: str | None = None) -> None: ...

class _CPUTimes(NamedTuple):
    user: float
    system: float
    children_user: float
    children_system: float
    iowait: float

class _Memory(NamedTuple):
    rss: int
    vms: int
    shared: int
    text: int
    lib: int
    data: int
    dirty: int

class _FullMemory(NamedTuple):
    rss: int
    vms: int
    shared: int
    text: int
    lib: int
    data: int
    dirty: int
    uss: int
    pss: int
    swap: int

class _IO(NamedTuple):
    read_count: int
    write_count: int
    read_bytes: int
    write_bytes: int
    read_chars: int
    write_chars: int

class _Switches(NamedTuple):
    voluntary: int
    involuntary: int

class _Ids(NamedTuple):
    real: int
    effective: int
    saved: int

class _Thread(NamedTuple):
    id: int
    user_time: float
    system_time: float

class _OpenFile(NamedTuple):
    path: str
    fd: int
    position: int
    mode: str
    flags: int

class _Address(NamedTuple):
    ip: str
    port: int

class _Connection(NamedTuple):
    fd: int
    family: AddressFamily
    type: SocketKind
    laddr: _Address | tuple[()] | str
    raddr: _Address | tuple[()] | str
    status: str

class _IONice(NamedTuple):
    ioclass: IOPriority
    value: int

class _Mapping(NamedTuple):
    path: str
    rss: int
    size: int
    pss: int
    shared_clean: int
    shared_dirty: int
    private_clean: int
    private_dirty: int
    referenced: int
    anonymous: int
    swap: int

class _MappingPart(NamedTuple):
    addr: str
    perms: str
    path: str
    rss: int
    size: int
    pss: int
    shared_clean: int
    shared_dirty: int
    private_clean: int
    private_dirty: int
    referenced: int
    anonymous: int
    swap: int

class Process:
    """A process. Without a pid it is this one. NoSuchProcess is raised if there is none with this pid."""

    info: dict[str, Any]
    """The attributes that `process_iter(attrs)` was asked for."""
    returncode: int | None
    """The exit code, after `wait_procs()`."""
    __hash__: ClassVar[Any]
    def __init__(self, pid: int | None = None) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    @property
    def pid(self) -> int: ...
    def oneshot(self) -> AbstractContextManager[None]: ...
    def as_dict(self, attrs: Collection[str] | None = None, ad_value: Any = None) -> dict[str, Any]: ...
    def is_running(self) -> bool: ...
    def ppid(self) -> int: ...
    def parent(self) -> Process | None: ...
    def parents(self) -> list[Process]: ...
    def children(self, recursive: bool = False) -> list[Process]: ...
    def name(self) -> str: ...
    def exe(self) -> str: ...
    def cmdline(self) -> list[str]: ...
    def cwd(self) -> str: ...
    def environ(self) -> dict[str, str]: ...
    def status(self) -> _Status: ...
    def username(self) -> str: ...
    def create_time(self) -> float: ...
    def uids(self) -> _Ids: ...
    def gids(self) -> _Ids: ...
    def terminal(self) -> str | None: ...
    def num_fds(self) -> int: ...
    def num_threads(self) -> int: ...
    def num_ctx_switches(self) -> _Switches: ...
    def io_counters(self) -> _IO: ...
    def cpu_num(self) -> int: ...
    def cpu_times(self) -> _CPUTimes: ...
    def cpu_percent(self, interval: float | None = None) -> float: ...
    def memory_info(self) -> _Memory: ...
    def memory_full_info(self) -> _FullMemory: ...
    def memory_percent(self, memtype: str = "rss") -> float: ...
    def threads(self) -> list[_Thread]: ...
    @overload
    def memory_maps(self, grouped: Literal[True] = True) -> list[_Mapping]: ...
    @overload
    def memory_maps(self, grouped: Literal[False]) -> list[_MappingPart]: ...
    def open_files(self) -> list[_OpenFile]: ...
    def net_connections(self, kind: _Kind = "inet") -> list[_Connection]: ...
    def connections(self, kind: _Kind = "inet") -> list[_Connection]: ...
    @overload
    def nice(self, value: None = None) -> int: ...
    @overload
    def nice(self, value: int) -> None: ...
    @overload
    def ionice(self, ioclass: None = None, value: None = None) -> _IONice: ...
    @overload
    def ionice(self, ioclass: int, value: int | None = None) -> None: ...
    @overload
    def rlimit(self, resource_: int, limits: None = None) -> tuple[int, int]: ...
    @overload
    def rlimit(self, resource_: int, limits: tuple[int, int]) -> None: ...
    @overload
    def cpu_affinity(self, cpus: None = None) -> list[int]: ...
    @overload
    def cpu_affinity(self, cpus: Iterable[int]) -> None: ...
    def send_signal(self, sig: int | signal.Signals) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int | None: ...

class Popen(Process):
    """subprocess.Popen with the methods of Process. Signals are sent as in Process, so they cannot
    reach another process."""

    args: str | bytes | Sequence[Any]
    stdin: Any
    stdout: Any
    stderr: Any
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, *args: type[BaseException] | BaseException | TracebackType | None
    ) -> None: ...
    # The rest is that of subprocess.Popen, such as communicate() and poll().
    def __getattr__(self, name: str) -> Any: ...

def pids() -> list[int]:
    """The process ids, in order."""

def pid_exists(pid: int) -> bool:
    """Is there a process with this id? A thread id is none."""

def process_iter(attrs: Collection[str] | None = None, ad_value: Any = None) -> Iterator[Process]:
    """A Process for each process, in the order of their ids. With `attrs`, `info` of each has these attributes;
    `ad_value` stands for what is denied, or what a zombie has not."""

def wait_procs(
    procs: Iterable[Process], timeout: float | None = None, callback: Callable[[Process], object] | None = None
) -> tuple[list[Process], list[Process]]:
    """Waits until processes have ended, or the timeout. Returns (gone, alive); each that is gone has a `returncode`, and
    `callback` gets it at once."""
