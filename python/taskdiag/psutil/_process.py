# SPDX-License-Identifier: MIT OR Apache-2.0
"""One process in psutil's shape.

A method reads the file of /proc that has its attribute (`_single`), or requests its columns, for this process only. Inside of
`oneshot()`, what was read is kept. A method that changes something affects exactly the process that the object was made
for, or no process. Signals and waiting are in `_ending`.
"""

import contextlib
import datetime
import errno
import os
import re
import resource
import subprocess
import threading
import time

import taskdiag
from taskdiag import _native
from taskdiag.psutil import _lists, _types as t
from taskdiag.psutil._columns import ATTRS, COMM, TICKS, Here, values
from taskdiag.psutil._ending import NOT_A_PROCESS, UNSET, Ending, _why
from taskdiag.psutil._place import procfs_path
from taskdiag.psutil._single import OPEN_TO_ALL, QUICK

# Pids that were found to be reused: process_iter() makes new objects for them.
reused: set = set()


class Shown:
    """What process_iter() shows of a process as `info`. It is outside of __dict__, which an object of the same process can share."""

    __slots__ = ("_info",)

    def __getattr__(self, name):
        if name == "info":
            try:
                return self._info
            except AttributeError:
                pass
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


class Process(Shown, Ending):
    """A process. Without a pid it is this one. NoSuchProcess is raised if there is none with this pid."""

    _name = None
    _ppid = None
    _exe = None
    _gone = False
    _pid_reused = False
    _cache = None
    _last = None
    _single = None

    def __init__(self, pid=None):
        self._init(pid)

    def _init(self, pid, _ignore_nsp=False):
        if pid is None:
            pid = own_pid()
        elif not hasattr(pid, "__index__"):
            raise TypeError(f"pid must be an integer (got {pid!r})")
        elif pid < 0:
            raise ValueError(f"pid must be a positive integer (got {pid})")
        elif pid >= 1 << 31:
            raise t.NoSuchProcess(pid, msg="process PID out of range")
        self._pid = pid
        self._create_time = None
        self._ident = (pid, None)
        try:
            with self._errors():
                self._single = _native.Single(procfs_path(), pid)
            self._ident = (pid, self._single.start_ticks / TICKS)
        except t.NoSuchProcess:
            if not _ignore_nsp:
                raise t.NoSuchProcess(pid, msg="process PID not found") from None
            self._gone = True

    @classmethod
    def _known(cls, pid, ticks):
        """A process in an answer."""
        self = object.__new__(cls)
        self._pid = pid
        self._create_time = None
        self._ident = (pid, ticks / TICKS)
        return self

    def _without_info(self):
        """An object of the same process that has all in common with this one but `info`."""
        other = object.__new__(type(self))
        other.__dict__ = self.__dict__
        return other

    def __getstate__(self):
        # A lock cannot be pickled, and answers of another process are of no use there.
        state = {k: v for k, v in self.__dict__.items() if k not in ("_its_lock", "_cache", "_last", "_single")}
        return (state, {"_info": self._info}) if hasattr(self, "_info") else state

    @property
    def _here(self):
        return Here(procfs_path())

    @property
    def _lock(self):
        return self.__dict__.setdefault("_its_lock", threading.RLock())

    def _start_ticks(self):
        """When it began, in clock ticks since boot."""
        with self._errors():
            return _native.Single(procfs_path(), self._pid).start_ticks

    def _get_ident(self):
        """The identity of the process until the next boot."""
        return (self._pid, self._start_ticks() / TICKS)

    @contextlib.contextmanager
    def _errors(self):
        """Exceptions of the system, converted to psutil's."""
        try:
            yield
        except PermissionError as e:
            raise t.AccessDenied(self._pid, self._name, _why(e)) from e
        except taskdiag.Hidden as e:
            raise t.AccessDenied(self._pid, self._name, str(e)) from e
        except (ProcessLookupError, FileNotFoundError) as e:
            raise t.NoSuchProcess(self._pid, self._name) from e

    # --- asking

    def _table(self, columns):
        columns = dict.fromkeys(["pid", *columns])
        with self._errors():
            table = self._here.ask(list(columns), pids=self._pid)
        if not len(table):
            raise t.NoSuchProcess(self._pid, self._name, NOT_A_PROCESS)
        return table

    def _attr(self, name):
        """The value of an attribute, from its file or from a request."""
        quick = QUICK.get(name)
        if quick is not None:
            source, make = quick
            proc = procfs_path()
            cache = self._cache
            row = None if cache is None else cache.get(source)
            if row is None:
                row = self._read(source, proc)
                if cache is not None:
                    cache[source] = row
            if row is not None:
                return make(proc, row)
        return self._requested(name)

    def _read(self, source, proc):
        """The value from a file, or None if only a request has it."""
        single = self._single
        if single is None:
            if self._ident[1] is None:
                return None
            single = self._single = _native.Single(proc, self._pid, round(self._ident[1] * TICKS))
        try:
            return source(single, proc)
        except ProcessLookupError as e:
            if e.errno is None:
                self._not_mine(str(e))
            gone = True
        except OSError as e:
            gone = isinstance(e, FileNotFoundError)
        if gone and source in OPEN_TO_ALL:
            raise t.NoSuchProcess(self._pid, self._name)
        return None

    def _not_mine(self, why):
        """The pid is that of another process or of a thread."""
        if why != NOT_A_PROCESS:
            self._pid_reused = True
            reused.add(self._pid)
        raise t.NoSuchProcess(self._pid, self._name, why)

    def _requested(self, name):
        """The value of an attribute that columns make."""
        cache, needs = self._cache, ATTRS[name].needs
        value = UNSET if cache is None else cache.get(name, UNSET)
        if value is UNSET:
            value = values(self._here, self._table(needs), name)[0]
            if cache is not None:
                cache[name] = value
        return self._found(value)

    @contextlib.contextmanager
    def oneshot(self):
        """Keeps answers until the end of the block, so that several methods need one."""
        with self._lock:
            if self._cache is not None:
                yield
                return
            self._cache = {}
            try:
                yield
            finally:
                self._cache = None

    def as_dict(self, attrs=None, ad_value=None):
        """Attributes by name. `ad_value` replaces denied values, and values that a zombie lacks."""
        names = checked(attrs)
        found = {}
        with self.oneshot():
            wanted = [a for a in names if a in ATTRS and a not in QUICK and a not in self._cache]
            if wanted:
                here = self._here
                table = self._table([column for a in wanted for column in ATTRS[a].needs])
                self._cache.update((a, values(here, table, a)[0]) for a in wanted)
            for name in names:
                try:
                    found[name] = self._pid if name == "pid" else getattr(self, name)()
                except (t.AccessDenied, t.ZombieProcess):
                    found[name] = ad_value
                except NotImplementedError:
                    if attrs:
                        raise
        return found

    @property
    def pid(self):
        """The process id."""
        return self._pid

    def __str__(self):
        said = {"pid": self._pid}
        if self._name:
            said["name"] = self._name
        with self.oneshot():
            if self._pid_reused:
                said["status"] = "terminated + PID reused"
            else:
                try:
                    said["name"] = self.name()
                    said["status"] = self.status()
                except t.ZombieProcess:
                    said["status"] = "zombie"
                except t.NoSuchProcess:
                    said["status"] = "terminated"
                except t.AccessDenied:
                    pass
        if self._exitcode not in (UNSET, None):
            said["exitcode"] = self._exitcode
        if self._create_time is not None:
            begin = datetime.datetime.fromtimestamp(self._create_time)
            today = time.time() - self._create_time < 24 * 60 * 60
            said["started"] = begin.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
        kind = type(self)
        return f"{kind.__module__}.{kind.__name__}({', '.join(f'{k}={v!r}' for k, v in said.items())})"

    __repr__ = __str__

    def __eq__(self, other):
        return self._ident == other._ident if isinstance(other, Process) else NotImplemented

    def __hash__(self):
        return hash(self._ident)

    # --- is it still the same?

    def is_running(self):
        """Does it exist, and is it the process for which this object was made? A zombie exists."""
        if self._gone or self._pid_reused:
            return False
        try:
            self._pid_reused = self._get_ident() != self._ident
        except t.NoSuchProcess:
            self._gone = True
            return False
        if self._pid_reused:
            reused.add(self._pid)
        return not self._pid_reused

    def _raise_if_gone(self):
        """A process that was found to be gone stays gone, even if another one has its pid by now."""
        if self.is_running():
            return
        if self._pid_reused:
            raise t.NoSuchProcess(self._pid, self._name, "process no longer exists and its PID has been reused")
        raise t.NoSuchProcess(self._pid, self._name)

    # --- family

    def ppid(self):
        """Process id of the parent."""
        if self._gone or self._pid_reused:
            self._raise_if_gone()
        return self._attr("ppid")

    def parent(self):
        """The parent; None if there is none, or none that may be seen."""
        ppid = self.ppid()
        if not ppid:
            return None
        begin = self._get_ident()[1]
        try:
            parent = Process(ppid)
        except t.NoSuchProcess:
            return None
        # A process that began later is another one, which has reused the pid of the parent.
        return parent if parent._ident[1] <= begin else None

    def parents(self):
        """The parent, its parent, and so on."""
        found = []
        proc = self.parent()
        while proc is not None:
            found.append(proc)
            proc = proc.parent()
        return found

    def children(self, recursive=False):
        """Its children, with `recursive` also theirs and so on."""
        self._raise_if_gone()
        # Whole ticks: seconds times ticks a second can be a little more, and a child may have begun
        # in the same tick.
        begin = self._start_ticks()
        table = self._here.ask(["pid", "ppid", "start_ticks"])
        by_parent = {}
        for pid, ppid, ticks in table.rows():
            if ticks >= begin:
                by_parent.setdefault(ppid, []).append((pid, ticks))
        found, parents, seen = [], [self._pid], {self._pid}
        while parents:
            for pid, ticks in by_parent.get(parents.pop(), ()):
                if pid not in seen:
                    seen.add(pid)
                    found.append(Process._known(pid, ticks))
                    if recursive:
                        parents.append(pid)
        return found

    # --- attributes that columns make

    def name(self):
        """Name of the program. Where the kernel has only the first 15 bytes, arguments may have the rest."""
        name = self._attr("name")
        if len(name) >= COMM:
            with contextlib.suppress(t.AccessDenied, t.ZombieProcess):
                name = whole_name(name, self.cmdline())
        self._name = name
        return name

    def exe(self):
        """Path of the program. It may be empty, and does not change."""
        if self._exe is None:
            try:
                exe = self._attr("exe")
            except t.AccessDenied:
                exe = guessed(self.cmdline())
                if exe is None:
                    raise
                return exe
            if not exe:
                with contextlib.suppress(t.AccessDenied):
                    exe = guessed(self.cmdline()) or ""
            self._exe = exe
        return self._exe

    def cmdline(self):
        """Its arguments."""
        return self._attr("cmdline")

    def cwd(self):
        """Its working directory."""
        return self._attr("cwd")

    def environ(self):
        """Its environment, as it was when the program started."""
        return self._attr("environ")

    def status(self):
        """One of the STATUS_ constants."""
        return self._attr("status")

    def username(self):
        """Name of its real user."""
        return self._attr("username")

    def create_time(self):
        """When it began, in seconds since 1970."""
        if self._create_time is None:
            self._create_time = self._attr("create_time")
        return self._create_time

    def uids(self):
        """Real, effective and saved uid."""
        return self._attr("uids")

    def gids(self):
        """Real, effective and saved gid."""
        return self._attr("gids")

    def terminal(self):
        """Its terminal, or None."""
        return self._attr("terminal")

    def num_fds(self):
        """The number of its open file descriptors."""
        return self._attr("num_fds")

    def num_threads(self):
        """The number of its threads."""
        return self._attr("num_threads")

    def num_ctx_switches(self):
        """Context switches of its first thread."""
        return self._attr("num_ctx_switches")

    def io_counters(self):
        """Its I/O counters."""
        return self._attr("io_counters")

    def cpu_num(self):
        """The CPU on which it ran last."""
        return self._attr("cpu_num")

    def cpu_times(self):
        """CPU time that it and its children used, in seconds."""
        return self._attr("cpu_times")

    def cpu_percent(self, interval=None):
        """Per cent of a CPU that it used in the interval, or since the last call."""
        if interval is not None and interval < 0:
            raise ValueError(f"interval is not positive (got {interval!r})")
        before = self._last
        if interval:
            before = self._used()
            time.sleep(interval)
        now = self._last = self._used()
        return percent(before, now)

    def _used(self):
        times = self.cpu_times()
        return time.monotonic(), times.user + times.system

    def memory_info(self):
        """Its memory in bytes."""
        return self._attr("memory_info")

    def memory_full_info(self):
        """As memory_info(), with uss, pss and swap."""
        return self._attr("memory_full_info")

    def memory_percent(self, memtype="rss"):
        """Per cent of the machine's memory."""
        if memtype not in t.pfullmem._fields:
            raise ValueError(f"invalid memtype {memtype!r}; valid types are {t.pfullmem._fields!r}")
        info = self.memory_info() if memtype in t.pmem._fields else self.memory_full_info()
        return getattr(info, memtype) / memory_total(self._here.proc) * 100

    # --- lists

    def _found(self, found):
        """What an answer has for this process: a value, or the exception to raise."""
        if isinstance(found, t.Error):
            found.name = self._name
        if isinstance(found, Exception):
            raise found
        return found

    def threads(self):
        """Its threads and their CPU times."""
        with self._errors():
            return self._found(_lists.threads(self._here, self._pid)[self._pid])

    def memory_maps(self, grouped=True):
        """Its memory mappings; grouped, each file once."""
        with self._errors():
            maps = self._found(_lists.maps(self._here, self._pid))
        return _lists.grouped(maps) if grouped else maps

    def open_files(self):
        """Regular files that it has open."""
        with self._errors():
            return self._found(_lists.open_files(self._here, self._pid)[self._pid])

    def net_connections(self, kind="inet"):
        """Its sockets."""
        _lists.check_kind(kind)
        with self._errors():
            return self._found(_lists.connections(self._here, self._pid, kind)[self._pid])

    def connections(self, kind="inet"):
        """The old name of net_connections()."""
        import warnings

        text = "connections() is deprecated and will be removed; use net_connections() instead"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.net_connections(kind)

    # --- methods that change the process

    def nice(self, value=None):
        """Its nice value, or sets it."""
        if value is None:
            return self._attr("nice")
        self._by_number(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, value))

    def _by_number(self, function):
        """Calls a function that only takes a pid for this process, and returns its result."""
        if self._pid == 0:
            # For such calls, pid 0 means the calling process.
            raise t.AccessDenied(0, self._name, "there is no process 0")
        with self._errors():
            return self._held().by_number(function)

    def ionice(self, ioclass=None, value=None):
        """Its I/O priority, or sets it."""
        if ioclass is None:
            if value is not None:
                raise ValueError("'ioclass' argument must be specified")
            number = self._by_number(_native.ioprio_get)
            return t.pionice(t.IOPriority(number >> 13), number & 0x1FFF)
        value = value or 0
        if value and ioclass in (0, 3):
            raise ValueError(f"{ioclass!r} ioclass accepts no value")
        if not 0 <= value <= 7:
            raise ValueError("value not in 0-7 range")
        self._by_number(lambda pid: _native.ioprio_set(pid, int(ioclass) << 13 | value))

    def rlimit(self, resource_, limits=None):
        """A limit (soft, hard), or sets it."""
        if limits is not None:
            if len(limits) != 2:
                raise ValueError(f"second argument must be a (soft, hard) tuple, got {limits!r}")
        if self._pid == 0:
            raise ValueError("can't use prlimit() against PID 0 process")
        if limits is None:
            return self._by_number(lambda pid: resource.prlimit(pid, resource_))
        self._by_number(lambda pid: resource.prlimit(pid, resource_, limits))

    def cpu_affinity(self, cpus=None):
        """Returns the CPUs on which it may run, or sets them. An empty list stands for all CPUs that it may have."""
        if cpus is None:
            return sorted(self._by_number(os.sched_getaffinity))
        cpus = list(set(cpus)) or self._eligible_cpus()
        try:
            self._by_number(lambda pid: os.sched_setaffinity(pid, cpus))
        except (OSError, ValueError, OverflowError) as e:
            if isinstance(e, OSError) and e.errno != errno.EINVAL:
                raise
            raise ValueError(f"invalid CPU among {cpus!r}; choose between {self._eligible_cpus()!r}") from e

    def _eligible_cpus(self):
        with self._errors(), open(f"{self._here.proc}/{self._pid}/status") as f:
            ranges = re.search(r"^Cpus_allowed_list:\t(.*)", f.read(), re.M)[1]
        ends = [part.split("-") for part in ranges.split(",")]
        return [cpu for e in ends for cpu in range(int(e[0]), int(e[-1]) + 1)]


def own_pid():
    """The pid of this process, in whatever pid namespace the proc filesystem is of."""
    try:
        return int(os.readlink(f"{procfs_path()}/self"))
    except (OSError, ValueError):
        return os.getpid()


def number_of_child(pid):
    """The pid of a child of ours, in whatever pid namespace /proc is of."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return pid
    try:
        return _native.pid_in_proc(fd) or pid
    finally:
        os.close(fd)


def whole_name(name, cmdline):
    """The full name if the kernel has cut it, from the arguments if they begin with it."""
    base = os.path.basename(cmdline[0]) if cmdline else ""
    return base if base.startswith(name) else name


def guessed(cmdline):
    """The program from the arguments, if they have it."""
    exe = cmdline[0] if cmdline else ""
    sure = os.path.isabs(exe) and os.path.isfile(exe) and os.access(exe, os.X_OK)
    return exe if sure else None


def percent(before, now):
    """Per cent of a CPU between two (time, CPU time)."""
    if before is None or now[0] <= before[0]:
        return 0.0
    return round(100 * (now[1] - before[1]) / (now[0] - before[0]), 1)


# The memory of the machine by proc filesystem, and until when that is believed.
_totals: dict = {}


def memory_total(proc):
    """Memory of the machine in bytes. It changes where memory is plugged, or by the limit of a container."""
    total, until = _totals.get(proc, (0, 0))
    now = time.monotonic()
    if now >= until:
        with open(f"{proc}/meminfo", "rb") as f:
            total = int(re.search(rb"^MemTotal:\s+(\d+)", f.read(), re.M)[1]) * 1024
        _totals[proc] = total, now + 1
    return total


NO_ATTRS = {"send_signal", "suspend", "resume", "terminate", "kill", "wait", "is_running", "as_dict", "parent", "parents",
            "children", "rlimit", "connections", "oneshot"}
ATTR_NAMES = {n for n in dir(Process) if not n.startswith("_")} - NO_ATTRS


def checked(attrs):
    """The attributes to show."""
    if attrs is None:
        return sorted(ATTR_NAMES)
    if not isinstance(attrs, (list, tuple, set, frozenset)):
        raise TypeError(f"invalid attrs type {type(attrs)}")
    wrong = [a for a in attrs if a not in ATTR_NAMES]
    if wrong:
        raise ValueError(f"invalid attr name{'s' if len(wrong) > 1 else ''} {', '.join(map(repr, wrong))}")
    return list(dict.fromkeys(attrs)) or sorted(ATTR_NAMES)


class Popen(Process):
    """subprocess.Popen with the methods of Process. Signals are sent as in Process, so they cannot
    reach another process."""

    def __init__(self, *args, **kwargs):
        self._subproc = subprocess.Popen(*args, **kwargs)
        self._init(number_of_child(self._subproc.pid), _ignore_nsp=True)

    def __dir__(self):
        return sorted({*dir(Popen), *dir(subprocess.Popen)})

    def __getattr__(self, name):
        # Attributes that Process lacks. This looks at the dictionary, because copy and pickle make
        # objects without __init__.
        subproc = self.__dict__.get("_subproc")
        try:
            return getattr(subproc, name)
        except AttributeError:
            raise AttributeError(f"{type(self)!r} has no attribute {name!r}") from None

    def __enter__(self):
        self._subproc.__enter__()
        return self

    def __exit__(self, *args):
        return self._subproc.__exit__(*args)

    def wait(self, timeout=None):
        """Waits until it has ended, and returns its exit code."""
        if self._subproc.returncode is None:
            self._subproc.returncode = super().wait(timeout)
        return self._subproc.returncode
