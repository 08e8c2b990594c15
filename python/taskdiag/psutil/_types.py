# SPDX-License-Identifier: MIT OR Apache-2.0
"""What psutil's functions return and raise: named tuples, constants and exceptions.

The exceptions and enumerations are psutil's own where psutil is installed, so that `except psutil.NoSuchProcess` of
other code works. The tuples have the fields of psutil 7.2, whichever version is installed.
"""

import enum
import resource
import signal
from collections import namedtuple
from typing import Any

from taskdiag.psutil import _own

try:
    import psutil as _installed  # type: ignore[import-untyped]
except ImportError:
    _installed = None
real: Any = _installed

pcputimes = namedtuple("pcputimes", "user system children_user children_system iowait")
pmem = namedtuple("pmem", "rss vms shared text lib data dirty")
pfullmem = namedtuple("pfullmem", "rss vms shared text lib data dirty uss pss swap")
pio = namedtuple("pio", "read_count write_count read_bytes write_bytes read_chars write_chars")
pctxsw = namedtuple("pctxsw", "voluntary involuntary")
puids = namedtuple("puids", "real effective saved")
pgids = namedtuple("pgids", "real effective saved")
pthread = namedtuple("pthread", "id user_time system_time")
popenfile = namedtuple("popenfile", "path fd position mode flags")
pconn = namedtuple("pconn", "fd family type laddr raddr status")
addr = namedtuple("addr", "ip port")
pionice = namedtuple("pionice", "ioclass value")
pmmap_grouped = namedtuple("pmmap_grouped", "path rss size pss shared_clean shared_dirty private_clean private_dirty "
                                             "referenced anonymous swap")
pmmap_ext = namedtuple("pmmap_ext", "addr perms path rss size pss shared_clean shared_dirty private_clean private_dirty "
                                     "referenced anonymous swap")

# The letters of /proc/PID/stat.
STATUS = {
    "R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "tracing-stop", "Z": "zombie", "X": "dead",
    "x": "dead", "K": "wake-kill", "W": "waking", "I": "idle", "P": "parked",
}
CONSTANTS = {
    "STATUS_RUNNING": "running", "STATUS_SLEEPING": "sleeping", "STATUS_DISK_SLEEP": "disk-sleep",
    "STATUS_STOPPED": "stopped", "STATUS_TRACING_STOP": "tracing-stop", "STATUS_ZOMBIE": "zombie",
    "STATUS_DEAD": "dead", "STATUS_WAKING": "waking", "STATUS_IDLE": "idle", "STATUS_LOCKED": "locked",
    "STATUS_WAITING": "waiting", "STATUS_PARKED": "parked", "CONN_NONE": "NONE",
}
CONN = ("ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK",
        "LISTEN", "CLOSING")
CONSTANTS.update((f"CONN_{name}", name) for name in CONN)
LIMITS = {n: getattr(resource, n) for n in dir(resource) if n.startswith("RLIM")}

# A signal that ended a process, negative, with the name of the signal.
Negsignal: Any = enum.IntEnum("Negsignal", {s.name: -s.value for s in signal.Signals})  # type: ignore[misc]

_theirs: Any = _own if real is None else real
Error = _theirs.Error
NoSuchProcess = _theirs.NoSuchProcess
ZombieProcess = _theirs.ZombieProcess
AccessDenied = _theirs.AccessDenied
TimeoutExpired = _theirs.TimeoutExpired
IOPriority = _own.IOPriority if real is None else type(real.IOPRIO_CLASS_NONE)
