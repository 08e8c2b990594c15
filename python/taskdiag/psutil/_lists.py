# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attributes that are lists: threads, mappings, files, sockets. One answer has the lists of all
requested processes.

Each function takes one pid, or None for all, and returns the list or the exception for each pid.
"""

import os
import socket

import taskdiag
from taskdiag.psutil import _types as t
from taskdiag.psutil._columns import alive, lacking, stat

FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}
TYPES = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM, "STREAM": socket.SOCK_STREAM, "DGRAM": socket.SOCK_DGRAM,
         "SEQPACKET": socket.SOCK_SEQPACKET}
INET = {(f, p) for f in ("inet", "inet6") for p in ("TCP", "UDP")}
UNIX = {("unix", p) for p in ("STREAM", "DGRAM", "SEQPACKET")}
KINDS = {
    "all": INET | UNIX, "unix": UNIX, "inet": INET,
    "tcp": {("inet", "TCP"), ("inet6", "TCP")}, "tcp4": {("inet", "TCP")}, "tcp6": {("inet6", "TCP")},
    "udp": {("inet", "UDP"), ("inet6", "UDP")}, "udp4": {("inet", "UDP")}, "udp6": {("inet6", "UDP")},
    "inet4": {("inet", "TCP"), ("inet", "UDP")}, "inet6": {("inet6", "TCP"), ("inet6", "UDP")},
}


def check_kind(kind):
    """Is it a kind of connections?"""
    if kind not in KINDS:
        raise ValueError(f"invalid kind argument {kind!r}; valid ones are: {tuple(KINDS)}")


def _where(here):
    return {} if here.proc == "/proc" else {"proc": here.proc}


# For this number of threads, reading a file of each takes less time than loading a BPF program.
FEW_THREADS = 100


def threads(here, pid=None):
    """Threads and their CPU times."""
    more = {} if pid is None else {"pids": pid}
    # A directory has a link for each directory in it. Without this number, taskdiag assumes that a
    # process has a share of all threads of the machine, and loads a program for it.
    if pid is not None and os.stat(f"{here.proc}/{pid}/task").st_nlink - 2 <= FEW_THREADS:
        more["engine"] = "procfs"
    table = here.ask("pid,tid,usertime,systime", threads=True, **more)
    found = {}
    for tgid, *thread in sorted(table.rows()):
        # Without its times, the thread has ended meanwhile.
        if thread[1] is not None and thread[2] is not None:
            found.setdefault(tgid, []).append(t.pthread._make(thread))
    if pid is not None and pid not in found:
        found[pid] = t.NoSuchProcess(pid)
    return found


def maps(here, pid):
    """Mappings of one process."""
    columns = ["pid", "address", "end", "perms", "mapping", *t.pmmap_grouped._fields[1:]]
    table = taskdiag.maps(pid, columns, **_where(here))
    found = []
    lacks = table.lacks("address", True) or table.lacks("rss", True)
    for row, (_, begin, end, perms, path, *sums) in enumerate(table.rows()):
        if row in lacks:
            # Kernel threads and zombies have no such list.
            return [] if lacks[row] == "absent" else lacking(pid, None, lacks[row])
        found.append(t.pmmap_ext(f"{begin:08x}-{end:08x}", perms, alive(path), *sums))
    if not found and stat(here, pid)[0] == b"Z":
        return t.ZombieProcess(pid)
    return found


def grouped(maps):
    """The mappings of each path together."""
    sums = {}
    for m in maps:
        before = sums.get(m.path)
        sums[m.path] = m[3:] if before is None else tuple(map(int.__add__, before, m[3:]))
    return [t.pmmap_grouped(path, *numbers) for path, numbers in sums.items()]


def _files(here, pid, columns, where):
    """Rows of descriptors with their pid, and the exceptions by pid."""
    table = taskdiag.files(pid, ["pid", "fdnum", "task", "kind", *columns], **_where(here))
    found = {}
    lacks = table.lacks("fdnum", True)
    for row, (tgid, fd, task, kind, *rest) in enumerate(table.rows()):
        if row in lacks:
            # Zombies have none.
            found[tgid] = [] if lacks[row] == "absent" else lacking(tgid, None, lacks[row])
        elif not isinstance(entries := found.setdefault(tgid, []), Exception) and kind == where and not task:
            # A thread may have files of its own, which psutil does not look at.
            entries.append((fd, *rest))
    if pid is not None:
        found.setdefault(pid, [])
    return found


def open_files(here, pid=None):
    """Regular files that are open."""
    found = _files(here, pid, ["path"], "reg")
    for tgid, files in found.items():
        if not isinstance(files, Exception):
            found[tgid] = [f for f in (_open_file(here, tgid, *file) for file in sorted(files)) if f is not None]
    return found


def _open_file(here, pid, fd, path):
    """A descriptor in psutil's form. The flags are a number only in /proc."""
    if path is None or not path.startswith("/") or not os.path.isfile(path):
        return None
    try:
        with open(f"{here.proc}/{pid}/fdinfo/{fd}", "rb") as f:
            position = int(f.readline().split()[1])
            flags = int(f.readline().split()[1], 8)
    except (FileNotFoundError, ProcessLookupError, IndexError):
        # The file was closed meanwhile.
        return None
    return t.popenfile(path, fd, position, mode(flags), flags)


def mode(flags):
    """The mode of open() that gives these flags."""
    access = flags & os.O_ACCMODE
    if flags & os.O_APPEND:
        return {os.O_RDONLY: "r", os.O_WRONLY: "a", os.O_RDWR: "a+"}.get(access, "a+")
    return {os.O_RDONLY: "r", os.O_WRONLY: "w", os.O_RDWR: "r+"}.get(access, "r+")


def connections(here, pid, kind):
    """Sockets of a process, or of all."""
    kinds = KINDS[kind]
    columns = ["family", "protocol", "sockstate", "laddr", "lport", "raddr", "rport", "path"]
    found = _files(here, pid, columns, "socket")
    for tgid, sockets in found.items():
        if not isinstance(sockets, Exception):
            made = (_connection(*s) for s in sorted(sockets, key=lambda s: s[0]) if (s[1], s[2]) in kinds)
            found[tgid] = [c for c in made if c is not None]
    return found


def _connection(fd, family, protocol, state, laddr, lport, raddr, rport, path):
    kind = TYPES[protocol]
    if family == "unix":
        return t.pconn(fd, FAMILIES[family], kind, path or "", "", "NONE")
    if not lport or (protocol == "TCP" and state == "CLOSE"):
        # A socket that neither is connected nor listens is not in /proc/net, which psutil reads.
        return None
    # psutil leaves out the interface of a link-local address.
    local = t.addr(laddr.partition("%")[0], lport)
    remote = t.addr(raddr.partition("%")[0], rport) if rport else ()
    return t.pconn(fd, FAMILIES[family], kind, local, remote, (state or "NONE") if protocol == "TCP" else "NONE")

