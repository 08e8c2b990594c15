# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints as JSON what taskdiag.snapshot() has of processes with each engine, and the values in
which taskdiag.psutil and psutil differ."""

import json
import os
import sys

import psutil

import taskdiag
import taskdiag.psutil as ours

# Columns that the commands show in the same way. Times and other columns that change are not here.
COLUMNS = (
    "pid,ppid,pgid,sid,tpgid,tty,s,start_ticks,comm,args,exe,cwd,root,user,ruid,uid,suid,fuid,rgid,gid,sgid,supgid,supgrp,"
    "cap_eff,cap_prm,cap_inh,cap_bnd,cap_amb,nnp,tracer,ni,rtprio,sched,nlwp,exit_signal,vsz_bytes,rss,swap,pagetables,"
    "cgroupns,ipcns,mntns,netns,pidns,timens,userns,utsns,nspid,cgroup,unit,slice,container,pending,blocked,ignored,caught,"
    "rlimit_nofile,rlimit_nofile_hard,rlimit_stack,rlimit_core,fds,fdsize,read_bytes,write_bytes,rchar,wchar"
)

# Methods of both packages whose values stay the same while a process sleeps.
METHODS = (
    "ppid name exe cmdline environ cwd username status terminal uids gids nice ionice num_threads num_fds cpu_affinity "
    "create_time memory_info memory_full_info io_counters num_ctx_switches open_files net_connections "
    "threads children memory_maps is_running"
).split()


def plain(value):
    if isinstance(value, str):
        return os.fsencode(value).decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (int, float, bool)) or value is None:
        return value
    return str(value)


def said(module, pid, method):
    """The result or the exception of a method, in a form that both modules have."""
    try:
        got = getattr(module.Process(pid), method)()
    except module.Error as e:
        return type(e).__name__
    if method == "children":
        return sorted(p.pid for p in got)
    if method == "net_connections":
        got = [g._replace(status="") if is_multipath(pid, g.fd) else g for g in got]
    if method in ("open_files", "net_connections", "memory_maps", "threads"):
        if method == "threads":
            got = [t.id for t in got]
        if method == "memory_maps":
            # psutil loses blanks at the ends of paths.
            got = [m._replace(path=m.path.strip()) for m in got]
        # psutil shows the escapes of /proc.
        return sorted(repr(g).replace("\\\\012", "\\n") for g in got)
    return repr(got)


def is_multipath(pid, fd):
    """Whether a socket speaks MPTCP. psutil shows the state of one of its subflows, from
    /proc/net/tcp, and taskdiag that of the socket itself."""
    try:
        return os.getxattr(f"/proc/{pid}/fd/{fd}", "system.sockprotoname").startswith(b"MPTCP")
    except OSError:
        return False


def has_dead_leader(pid):
    """Whether only the first thread of a process has ended. psutil takes it for a zombie (docs/use/python.md)."""
    try:
        p = psutil.Process(pid)
        return p.status() == psutil.STATUS_ZOMBIE and p.num_threads() > 1
    except psutil.Error:
        return False


def is_in_our_network(pid):
    """psutil reads the sockets of its own network namespace only."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")
    except OSError:
        return False


def differences(pid):
    for method in () if has_dead_leader(pid) else METHODS:
        if not hasattr(psutil.Process, method):
            continue
        if method == "net_connections" and not is_in_our_network(pid):
            continue
        before, now, after = said(psutil, pid, method), said(ours, pid, method), said(psutil, pid, method)
        if before == after != now:
            yield pid, plain(f"{method}: {now}, psutil {before}")


def main():
    pids, engines = [int(p) for p in sys.argv[1].split(",")], sys.argv[2].split(",")
    tables = {}
    for engine in engines:
        rows = taskdiag.snapshot(COLUMNS, pids=pids, engine=engine).to_dicts()
        tables[engine] = [{k: plain(v) for k, v in row.items()} for row in rows]
    # The many calls of psutil take long, so of many processes it looks at every fourth.
    some = pids if len(pids) <= 12 else pids[::4]
    json.dump({"snapshot": tables, "psutil": [d for pid in some for d in differences(pid)]}, sys.stdout)


main()
