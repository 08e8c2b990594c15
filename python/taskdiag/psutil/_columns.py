# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which columns of taskdiag an attribute of psutil is made of, and how.

An attribute is made for all rows of a table at once, because a step of Python for each value would cost more than the
reading. Rows that lack a value are few, and are looked at one by one: each gets a value or the exception that psutil
has for it.
"""

import os
import pwd
import re
import time
from itertools import repeat

import taskdiag
from taskdiag import _native
from taskdiag.psutil import _types as t

TICKS = os.sysconf("SC_CLK_TCK")
# Names of programs end after 15 bytes.
COMM = 15
TEXT = frozenset(["comm", "s", "tty", "exe", "cwd"])
LISTS = frozenset(["args", "environ"])


class Here:
    """Data that all rows of an answer share. `proc` is the directory of the proc filesystem."""

    def __init__(self, proc):
        self.proc = proc
        self.users = Users()

    @property
    def boot(self):
        """When the machine was started, in seconds since 1970."""
        return boot_time(self.proc)

    def ask(self, columns, **more):
        """A table of processes."""
        if self.proc != "/proc":
            more["proc"] = self.proc
        return taskdiag.snapshot(columns, **more)


# When the machine was started, for each proc filesystem: the time in its file, and the clocks when
# the file was read.
_boots: dict = {}


def boot_time(proc):
    """When the machine was started, in seconds since 1970."""
    # The file has a line for each interrupt, so it is read again only after somebody has set the
    # clock.
    by_clocks = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    boot, then = _boots.get(proc, (None, 0))
    if boot is None or abs(by_clocks - then) > 0.1:
        with open(f"{proc}/stat", "rb") as f:
            boot = float(re.search(rb"^btime (\d+)", f.read(), re.M)[1])
        # In a container, LXCFS writes when that was started, but start times of processes begin
        # with the boot of the machine.
        if proc == "/proc" and abs(boot - by_clocks) > 2:
            boot = float(int(by_clocks))
        _boots[proc] = boot, by_clocks
    return boot


class Users(dict):
    """Names of users: each is looked up once."""

    def __missing__(self, uid):
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        self[uid] = name
        return name


class Attr:
    """An attribute: its columns, and a function from lists of their values to the list of its
    values. `absent` is the value of a process that just has nothing of the kind. Without `absent`,
    the function handles None. `zombie` says that zombies have none, and psutil raises
    ZombieProcess."""

    def __init__(self, columns, make, zombie=False, **absent):
        self.columns = columns.split()
        self.make = make
        self.zombie = zombie
        self.absent = absent
        self.needs = self.columns + ["s"] * (zombie and "s" not in self.columns)


def tuples(kind, *lists):
    """A named tuple of each row. `kind._make` is a function of Python, which takes twice as long as this."""
    return list(map(tuple.__new__, repeat(kind), zip(*lists)))


def _memory(here, pids, vms, rss, anon, text, data):
    # The kernel has had no numbers for "lib" and "dirty" since Linux 2.6. Shared memory is all that
    # is not anonymous, as in /proc/PID/statm.
    shared = [r - a if r > a else 0 for r, a in zip(rss, anon)]
    return tuples(t.pmem, rss, vms, shared, text, repeat(0), data, repeat(0))


def _full_memory(here, pids, vms, rss, anon, text, data, uss, huge, pss, swap):
    basic = _memory(here, pids, vms, rss, anon, text, data)
    return [t.pfullmem(*b, u + h, p, s) for b, u, h, p, s in zip(basic, uss, huge, pss, swap)]


def _cpu_times(here, pids, *times):
    if not counts_delays():
        return tuples(t.pcputimes, *times, repeat(0.0))
    waits = [_io_wait(here, pid) for pid in pids]
    return [row[-1] if isinstance(row[-1], Exception) else t.pcputimes._make(row) for row in zip(*times, waits)]


def counts_delays():
    """Does the kernel count how long tasks wait for disks?"""
    try:
        with open("/proc/sys/kernel/task_delayacct", "rb") as f:
            return f.read().strip() != b"0"
    except OSError:
        # Before Linux 5.14, a boot parameter decides whether delays are counted, which is on by
        # default.
        return True


def stat(here, pid):
    """The words of /proc/PID/stat from the state on."""
    with open(f"{here.proc}/{pid}/stat", "rb") as f:
        return f.read().rpartition(b")")[2].split()


def _io_wait(here, pid):
    try:
        return int(stat(here, pid)[39]) / TICKS
    except OSError:
        # The process ended after it was asked for its times. psutil would not have got the times.
        return t.NoSuchProcess(pid)


def _terminal(here, pids, ttys):
    known = {None: None}
    for tty in set(ttys) - {None}:
        known[tty] = f"/dev/{tty}" if os.path.exists(f"/dev/{tty}") else None
    return [known[tty] for tty in ttys]


def _nice(here, pids, values):
    if None not in values:
        return values
    return [v if v is not None else _priority(here, pid) for pid, v in zip(pids, values)]


def _priority(here, pid):
    # For a real-time process, psutil shows the nice value that it would have otherwise, and
    # taskdiag has none.
    try:
        return _native.Held(here.proc, pid).by_number(lambda number: os.getpriority(os.PRIO_PROCESS, number))
    except (ProcessLookupError, FileNotFoundError):
        return t.NoSuchProcess(pid)
    except PermissionError as e:
        return t.AccessDenied(pid, msg=str(e))


def alive(path):
    """A path without the mark of a deleted file, as in psutil."""
    if path.endswith(" (deleted)") and not os.path.exists(path):
        return path[: -len(" (deleted)")]
    return path


def arguments(args):
    """Arguments as in psutil: programs that change their title separate them by blanks."""
    return args[0].split(" ") if len(args) == 1 and " " in args[0] else args


def _environ(text):
    env = {}
    for entry in text:
        if not entry:
            break
        name, equals, value = entry.partition("=")
        if name and equals:
            env[name] = value
    return env


def _context_switches(here, pids):
    # psutil has the context switches of the first thread. The column of taskdiag is the sum over
    # all threads.
    return [_switches_of(here, pid) for pid in pids]


def _switches_of(here, pid):
    try:
        with open(f"{here.proc}/{pid}/status", "rb") as f:
            found = re.findall(rb"ctxt_switches:\t(\d+)", f.read())
    except PermissionError:
        return t.AccessDenied(pid)
    except OSError:
        return t.NoSuchProcess(pid)
    return t.pctxsw(int(found[0]), int(found[1]))


def _same(here, pids, values):
    return values


MEMORY = "vsz rss rss_anon vm_text size"
ATTRS = {
    "ppid": Attr("ppid", _same),
    "name": Attr("comm", _same),
    "exe": Attr("exe", lambda here, pids, v: list(map(alive, v)), zombie=True, exe=""),
    "cwd": Attr("cwd", lambda here, pids, v: list(map(alive, v)), zombie=True, cwd=""),
    # This is arguments(), without a call for each process.
    "cmdline": Attr("args", lambda here, pids, v: [a[0].split(" ") if len(a) == 1 and " " in a[0] else a for a in v],
                    zombie=True, args=[]),
    "environ": Attr("environ", lambda here, pids, v: list(map(_environ, v)), zombie=True, environ={}),
    "status": Attr("s", lambda here, pids, v: [t.STATUS.get(s, "?") for s in v]),
    "username": Attr("ruid", lambda here, pids, v: [here.users[uid] for uid in v]),
    "uids": Attr("ruid uid suid", lambda here, pids, *v: tuples(t.puids, *v)),
    "gids": Attr("rgid gid sgid", lambda here, pids, *v: tuples(t.pgids, *v)),
    "create_time": Attr("start_ticks", lambda here, pids, v: [n / TICKS + boot for boot in [here.boot] for n in v]),
    "terminal": Attr("tty", _terminal),
    "nice": Attr("ni", _nice),
    "cpu_num": Attr("psr", _same),
    "num_threads": Attr("nlwp", _same),
    "num_fds": Attr("fds", _same, fds=0),
    "num_ctx_switches": Attr("", _context_switches),
    "cpu_times": Attr("usertime systime cutime cstime", _cpu_times),
    "memory_info": Attr(MEMORY, _memory),
    "memory_full_info": Attr(f"{MEMORY} uss htprv pss map_swap", _full_memory, uss=0, htprv=0, pss=0, map_swap=0),
    "io_counters": Attr("syscr syscw read_bytes write_bytes rchar wchar",
                        lambda here, pids, *v: tuples(t.pio, *v)),
}


def cut(table, attr):
    """The rows of a table whose value of this attribute is only a beginning."""
    a = ATTRS.get(attr)
    if a is None or not LISTS.intersection(a.columns):
        return []
    return [row for column in a.columns for row, why in table.lacks(column, False).items() if why == "truncated"]


def _has_environ(here, pid):
    # For a zombie, psutil has an empty environment before Linux 6.16. Since then, the kernel does
    # not open the file.
    try:
        open(f"{here.proc}/{pid}/environ", "rb").close()
    except OSError:
        return False
    return True


def lacking(pid, name, why):
    """The exception for a missing value."""
    if why == "truncated":
        return t.AccessDenied(pid, name, "it is too long: taskdiag reads the first 6 MiB")
    if why == "vanished":
        return t.NoSuchProcess(pid, name)
    if why == "unsupported":
        return NotImplementedError("this kernel does not provide it")
    if why == "denied":
        return t.AccessDenied(pid, name)
    return t.AccessDenied(pid, name, f"taskdiag could not read it: {why}")


def values(here, table, attr):
    """The value of the attribute for each row of a table, or the exception."""
    a = ATTRS[attr]
    lists, odd = [], {}
    pids = table["pid"]
    for column in a.columns:
        got = table[column]
        # For a column without an entry in `absent`, a process that cannot have the value has 0 or
        # None. `make` handles both.
        for row, why in table.lacks(column, column in a.absent).items():
            odd.setdefault(row, {})[column] = why
            if got[row] is None:
                got[row] = "" if column in TEXT else [] if column in LISTS else 0
        lists.append(got)
    made = a.make(here, pids, *lists)
    states = table["s"] if odd and a.zombie else None
    for row, whys in odd.items():
        why = next((w for w in whys.values() if w != "absent"), None)
        if states is not None and states[row] == "Z" and not (attr == "environ" and _has_environ(here, pids[row])):
            made[row] = t.ZombieProcess(pids[row])
        elif why is not None:
            made[row] = lacking(pids[row], None, why)
        elif "absent" in whys.values() and len(a.columns) == 1:
            made[row] = a.absent[a.columns[0]]
    return made
