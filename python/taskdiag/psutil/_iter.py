# SPDX-License-Identifier: MIT OR Apache-2.0
"""All processes: pids(), process_iter(), wait_procs().

process_iter() makes one request with the columns of its attributes, and one more for each attribute that is a list.
"""

import contextlib
import errno
import gc
import math
import os
import resource
import subprocess
import time
import weakref

from taskdiag.psutil import _ending, _lists, _process, _types as t
from taskdiag.psutil._columns import ATTRS, COMM, TICKS, Here, arguments, cut, values
from taskdiag.psutil._place import procfs_path
from taskdiag.psutil._process import Process

# Descriptors that wait_procs() leaves free.
SPARE = 16
# The objects of the last process_iter(). They are the same as long as their processes are.
pmap: dict = {}
# The objects that have given out long texts, as long as other code holds them. Objects in pmap
# share their state with these, but do not have the texts.
heavy: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def pids():
    """The process ids, in order."""
    return sorted(int(name) for name in os.listdir(procfs_path()) if name.isdigit())


def pid_exists(pid):
    """Is there a process with this id? A thread id is none."""
    if pid < 0 or pid >= 1 << 31:
        return False
    try:
        with open(f"{procfs_path()}/{pid}/status", "rb") as f:
            for line in f:
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1]) == pid
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        pass
    return pid in pids()


def process_iter(attrs=None, ad_value=None):
    """A Process for each process, in the order of their ids. With `attrs`, `info` of each has these attributes;
    `ad_value` stands for what is denied, or what a zombie has not."""
    here = Here(procfs_path())
    names = [] if attrs is None else _process.checked(attrs)
    columns = dict.fromkeys(["pid", "start_ticks"])
    for name in names:
        columns.update(dict.fromkeys(ATTRS[SAME.get(name, name)].needs if SAME.get(name, name) in ATTRS else ()))
    if "cpu_percent" in names:
        columns.update(dict.fromkeys(ATTRS["cpu_times"].needs))
    with _no_collection():
        ids, procs, infos, odd, short = _ask(here, list(columns), names)
    order = range(len(ids)) if ids == sorted(ids) else sorted(range(len(ids)), key=ids.__getitem__)
    if attrs is None:
        yield from (procs[row] for row in order)
        return
    for row in order:
        proc, info = procs[row], infos[row]
        # These objects last only as long as other code holds them.
        procs[row] = infos[row] = None
        # A list has the beginning of long texts. Each is read when its process is wanted.
        for name in short.get(row, ()):
            info[name] = _one(proc, name)
        if row in short and pmap.get(ids[row]) is proc:
            pmap[ids[row]] = proc._without_info()
            heavy[ids[row]] = proc
        if (row in odd or row in short) and not _settled(info, ad_value, attrs):
            pmap.pop(ids[row], None)
            continue
        proc._info = info
        del info
        yield proc
        del proc


@contextlib.contextmanager
def _no_collection():
    """Python's collector stays off for the block. It would go over all new objects several times, which was a sixth of the
    time with 10,000 processes, and there is no garbage among them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _ask(here, columns, names):
    """One answer: the pids, and for each the object, the attributes with these names, whether one is an exception, and
    which are only a beginning."""
    table = here.ask(columns)
    asked = time.monotonic()
    ids = table["pid"]
    kept = {}
    for pid, ticks in zip(ids, table["start_ticks"]):
        proc = pmap.get(pid)
        # Another start time is another process.
        if proc is None or proc._ident[1] != ticks / TICKS or pid in _process.reused:
            proc = Process._known(pid, ticks)
            heavy.pop(pid, None)
        kept[pid] = proc
    _process.reused.clear()
    pmap.clear()
    pmap.update(kept)
    procs = [heavy.get(pid, proc) for pid, proc in kept.items()] if heavy else list(kept.values())
    made = [_values(here, table, name, ids, procs, asked) for name in names]
    odd = {row for column in made if _has_exception(column)
           for row, value in enumerate(column) if isinstance(value, Exception)}
    short = {}
    for name in names:
        for row in cut(table, name):
            short.setdefault(row, []).append(name)
    return ids, procs, [dict(zip(names, row)) for row in zip(*made)], odd, short


def _cache_clear():
    """Forgets the objects of the last call."""
    pmap.clear()
    heavy.clear()


process_iter.cache_clear = _cache_clear  # type: ignore[attr-defined]

SAME = {"memory_percent": "memory_info", "cpu_percent": "cpu_times"}


def _has_exception(made):
    # A set of the types, because a step of Python for each value would take longer than the rest of
    # the call.
    return any(issubclass(kind, Exception) for kind in set(map(type, made)))


def _settled(info, ad_value, attrs):
    """Puts `ad_value` in the place of denied values. False: the process ended meanwhile."""
    for name, value in list(info.items()):
        if isinstance(value, (t.AccessDenied, t.ZombieProcess)):
            info[name] = ad_value
        elif isinstance(value, t.NoSuchProcess):
            return False
        elif isinstance(value, NotImplementedError):
            if attrs:
                raise value
            del info[name]
        elif isinstance(value, Exception):
            raise value
    return True


def _values(here, table, name, ids, procs, asked):
    """An attribute of all processes: the value or the exception for each."""
    if name == "pid":
        return ids
    if name == "name":
        return _names(here, table, procs)
    if name == "memory_percent":
        total = _process.memory_total(here.proc)
        return [v if isinstance(v, Exception) else v.rss / total * 100 for v in values(here, table, "memory_info")]
    if name == "cpu_percent":
        return [_percent(proc, times, asked) for proc, times in zip(procs, values(here, table, "cpu_times"))]
    if name == "exe":
        return [_exe(proc, exe) for proc, exe in zip(procs, values(here, table, "exe"))]
    if name == "create_time":
        made = values(here, table, name)
        for proc, moment in zip(procs, made):
            if proc._create_time is None:
                proc._create_time = moment
        return [proc._create_time for proc in procs]
    if name in ATTRS:
        return values(here, table, name)
    if name in LISTS:
        found = LISTS[name](here)
        # A process that is not in this answer ended between the two answers.
        return [found[pid] if pid in found else _absent(here, pid) for pid in ids]
    # Values from system calls, and large values, are read one process after the other.
    return [_one(proc, name) for proc in procs]


LISTS = {
    "threads": _lists.threads,
    "open_files": _lists.open_files,
    "net_connections": lambda here: _lists.connections(here, None, "inet"),
}


def _absent(here, pid):
    return [] if os.path.exists(f"{here.proc}/{pid}") else t.NoSuchProcess(pid)


def _one(proc, name):
    try:
        return getattr(proc, name)()
    except (t.Error, NotImplementedError) as e:
        return e


def _percent(proc, times, asked):
    if isinstance(times, Exception):
        return times
    before, proc._last = proc._last, (asked, times.user + times.system)
    return _process.percent(before, proc._last)


def _exe(proc, exe):
    if exe == "" or isinstance(exe, t.AccessDenied):
        # Process.exe() also looks at the arguments.
        return _one(proc, "exe")
    return exe


def _names(here, table, procs):
    """Names. If the kernel cuts off a name, the arguments may have its rest."""
    names = values(here, table, "name")
    ids = table["pid"]
    long = [row for row, name in enumerate(names) if len(name) >= COMM]
    if long:
        if "args" in table:
            args = dict(zip(ids, table["args"]))
        else:
            pids = [ids[row] for row in long]
            args = dict(here.ask("pid,args", pids=pids).rows())
        for row in long:
            names[row] = _process.whole_name(names[row], arguments(args.get(ids[row]) or []))
    for proc, name in zip(procs, names):
        proc._name = name
    return names


def wait_procs(procs, timeout=None, callback=None):
    """Waits until processes have ended, or the timeout. Returns (gone, alive); each that is gone has a `returncode`, and
    `callback` gets it at once."""
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be a positive integer, got {timeout}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback {callback!r} is not a callable")
    end = math.inf if timeout is None else time.monotonic() + timeout
    gone, fds, blind = [], {}, []
    # Some descriptors are left, for the files that are read here and for others in this process.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = math.inf if limit == resource.RLIM_INFINITY else limit - SPARE

    def leave(proc, code):
        proc.returncode = code
        gone.append(proc)
        if callback is not None:
            callback(proc)

    def look(proc, long):
        try:
            code = proc.wait(timeout=long)
        except (t.TimeoutExpired, subprocess.TimeoutExpired):
            return False
        leave(proc, code)
        return True

    try:
        for proc in dict.fromkeys(procs):
            fd = None
            try:
                fd = proc._pidfd()
            except (t.NoSuchProcess, ProcessLookupError, AttributeError):
                pass
            except OSError as e:
                if e.errno not in (errno.EINVAL, errno.ESRCH):
                    raise
            if fd is not None and fd >= most:
                # The kernel gives the lowest number that is free, so nearly all are in use.
                os.close(fd)
                fd = None
            if fd is None:
                blind.append(proc)
            else:
                fds[fd] = proc
        blind = [p for p in blind if not look(p, 0)]
        while fds or blind:
            left = end - time.monotonic()
            # Processes without a pidfd can only be looked at now and then.
            pause = 0.04 if blind else None if left == math.inf else left
            ready = _ending.ended(list(fds), None if pause is None else max(0, min(pause, left)))
            for fd in ready:
                proc = fds.pop(fd)
                os.close(fd)
                if not look(proc, 0):
                    blind.append(proc)
            blind = [p for p in blind if not look(p, 0)]
            if time.monotonic() >= end:
                break
    finally:
        for fd in fds:
            os.close(fd)
    return gone, [*fds.values(), *blind]
