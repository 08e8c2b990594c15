# SPDX-License-Identifier: MIT OR Apache-2.0
"""What threads wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskdiag._native import Table, snapshot

if TYPE_CHECKING:
    from taskdiag._native import _Engine, _Names, _Path, _Pids

COLUMNS = "pid,tid,comm,s,waits_on,waited,waits_for,waits_for_comm,waits_for_how,syscall,wchan"
# Threads in state R run or could run, and workers of the kernel in state I wait for work.
WAITING = "s != R and s != I"


def waits(
    pids: _Pids | None = None,
    columns: _Names | None = None,
    *,
    where: str | None = None,
    sort: _Names | None = None,
    engine: _Engine | None = None,
    proc: _Path | None = None,
) -> Table:
    """Threads that wait: for what, since when (seconds), and who holds it, of one process, of several, or of all.

    `waits_for` is the id of the thread that holds what a thread waits for, or of the first thread of its process, and
    `waits_for_how` says how it is known, or why there is none, as in `taskdiag why`. The arguments are those of
    `snapshot`. It needs the rights to trace the processes; without them, values are None, and `missing` has the reason.
    """
    condition = f"({where}) and {WAITING}" if isinstance(where, str) else WAITING if where is None else where
    return snapshot(
        COLUMNS if columns is None else columns,
        threads=True,
        where=condition,
        sort=sort,
        pids=pids,
        engine=engine,
        proc=proc,
    )
