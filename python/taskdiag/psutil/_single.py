# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attributes of one process that a short file of /proc has. A call reads that file and no other, in the extension module, which also
finds out whether it still is the same process. No request is made for it, as that takes several times as long.

If the file is denied or has an unusual form, a request follows, which knows more. Arguments, environment and sums over pages are always
requested, because reading them can wait for the process and needs another thread.
"""

import os
import pwd

from taskdiag._native import Single, tty_name
from taskdiag.psutil import _types as t
from taskdiag.psutil._columns import TICKS, alive, boot_time

_new = tuple.__new__
_ttys: dict = {}


def _terminal(proc, row):
    device = row[3]
    if not device:
        return None
    # There are few terminals, and their names do not change.
    name = _ttys.get(device)
    if name is None:
        name = _ttys[device] = f"/dev/{tty_name(device)}"
    return name if os.path.exists(name) else None


def _user(proc, row):
    uid = row[0][0]
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# For each attribute: the method that reads its file, and a function of the proc filesystem and of
# what was read. Several attributes of one method are read once within a oneshot().
QUICK = {
    "status": (Single.stat, lambda proc, row: t.STATUS.get(row[0], "?")),
    "ppid": (Single.stat, lambda proc, row: row[1]),
    "name": (Single.stat, lambda proc, row: row[2]),
    "terminal": (Single.stat, _terminal),
    "cpu_times": (Single.stat, lambda proc, row: _new(t.pcputimes, row[4:9])),
    "nice": (Single.stat, lambda proc, row: row[9]),
    "cpu_num": (Single.stat, lambda proc, row: row[10]),
    "num_threads": (Single.stat, lambda proc, row: row[11]),
    "create_time": (Single.stat, lambda proc, row: row[12] / TICKS + boot_time(proc)),
    "memory_info": (Single.memory, lambda proc, row: _new(t.pmem, row)),
    "uids": (Single.status, lambda proc, row: _new(t.puids, row[0])),
    "gids": (Single.status, lambda proc, row: _new(t.pgids, row[1])),
    "username": (Single.status, _user),
    "num_ctx_switches": (Single.status, lambda proc, row: _new(t.pctxsw, row[2])),
    "io_counters": (Single.io, lambda proc, row: _new(t.pio, row)),
    "exe": (Single.exe, lambda proc, path: alive(path)),
    "cwd": (Single.cwd, lambda proc, path: alive(path)),
    "num_fds": (Single.num_fds, lambda proc, number: number),
}
# Everyone may read these, so a process without them is gone.
OPEN_TO_ALL = frozenset([Single.stat, Single.memory, Single.status])
