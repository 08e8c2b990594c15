# SPDX-License-Identifier: MIT OR Apache-2.0
"""What threads wait for, as drgn reads it from a dump of a machine and the debug information of its
kernel: `python drgn_waits.py DUMP VMLINUX VMCOREINFO`. It prints JSON, which vmlab/beside_drgn.py compares with
the answers of taskdiag.

It uses types and symbols of the debug information, so it shares neither code nor data with
taskdiag, which has the types of BTF, /proc and addresses of its own.
"""

import json
import re
import sys

import drgn
from drgn import cast
from drgn.helpers.linux.cpumask import for_each_possible_cpu
from drgn.helpers.linux.fs import for_each_file
from drgn.helpers.linux.list import hlist_for_each_entry, list_for_each_entry
from drgn.helpers.linux.percpu import per_cpu
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.printk import get_printk_records
from drgn.helpers.linux.sched import task_cpu

# Low bits of task_struct.blocker (include/linux/hung_task.h).
BLOCKERS = {0: "mutex", 1: "semaphore", 2: "rwsem-read", 3: "rwsem-write"}
# FL_OFDLCK, FL_POSIX and FL_FLOCK (include/linux/filelock.h).
FILE_LOCKS = {1024: "ofd-lock", 1: "posix-lock", 2: "flock"}
# Functions that are skipped to find where a thread waits: the sections of in_sched_functions().
SECTIONS = ("__sched_text_start", "__sched_text_end"), ("__lock_text_start", "__lock_text_end")


def program(dump, vmlinux, vmcoreinfo):
    with open(vmcoreinfo, "rb") as f:
        prog = drgn.Program(vmcoreinfo=f.read())
    prog.set_core_dump(dump)
    prog.load_debug_info([vmlinux])
    return prog


def owner(prog, word, flags):
    """The thread in the owner of a lock, or None."""
    task = drgn.Object(prog, "struct task_struct *", value=word & ~flags)
    return task.pid.value_() if task else None


def lock(prog, task):
    """(kind, owner, whether readers have it) of the lock of the kernel that a thread waits for."""
    blocker = task.blocker.value_()
    if blocker:
        kind, at = BLOCKERS[blocker & 3], blocker & ~3
        if kind == "mutex":
            return kind, owner(prog, drgn.Object(prog, "struct mutex *", value=at).owner.counter.value_(), 7), False
        if kind.startswith("rwsem"):
            word = drgn.Object(prog, "struct rw_semaphore *", value=at).owner.counter.value_()
            return kind, None if word & 1 else owner(prog, word, 7), bool(word & 1)
        return kind, None, False
    if task.pi_blocked_on:
        return "rt-mutex", owner(prog, cast("unsigned long", task.pi_blocked_on.lock.owner).value_(), 1), False
    return None, None, False


def file_locks(prog):
    """{"process that waits, kind": the processes that have such a file lock, for each wait}.

    A flock or OFD lock belongs to an open file, and so to all processes that have it. Of these, the one
    that took a flock counts. The kernel notes no threads."""
    found, files = {}, {}
    for task in for_each_task(prog):
        if task.pid.value_() == task.tgid.value_() and task.files:
            for _, file in for_each_file(task):
                files.setdefault(file.value_(), set()).add(task.tgid.value_())
    for cpu in for_each_possible_cpu(prog):
        held = per_cpu(prog["file_lock_list"], cpu).hlist
        for had in hlist_for_each_entry("struct file_lock_core", held.address_of_(), "flc_link"):
            waiting = [had]
            while waiting:
                above = waiting.pop()
                for below in list_for_each_entry("struct file_lock_core", above.flc_blocked_requests.address_of_(), "flc_blocked_member"):
                    flags = below.flc_flags.value_()
                    kind = next(name for bit, name in FILE_LOCKS.items() if flags & bit)
                    of = {above.flc_pid.value_()} if kind == "posix-lock" else files.get(above.flc_file.value_(), set())
                    if kind == "flock" and above.flc_pid.value_() in of:
                        of = {above.flc_pid.value_()}
                    found.setdefault(f"{below.flc_pid.value_()} {kind}", []).append(sorted(of))
                    waiting.append(below)
    return found


def frames(prog, task, sections):
    """The functions that a thread waits in without those of the scheduler, the innermost first: the names of each."""
    found = []
    for frame in prog.stack_trace(task):
        if frame.is_inline or (not found and any(a <= frame.pc < b for a, b in sections)):
            continue
        # The address after a call that does not return may be that of the next function.
        found.append(sorted(s.name for s in prog.symbols(frame.pc - (not frame.interrupted))))
    return found


def main(dump, vmlinux, vmcoreinfo):
    prog = program(dump, vmlinux, vmcoreinfo)
    sections = []
    for begin, end in SECTIONS:
        try:
            sections.append((prog.symbol(begin).address, prog.symbol(end).address))
        except LookupError:
            continue
    marks = {}
    for record in get_printk_records(prog):
        if mark := re.search(rb"drgn (\w+ \w+)$", record.text):
            marks[mark[1].decode()] = record.timestamp
    queues = [(cpu, per_cpu(prog["runqueues"], cpu)) for cpu in for_each_possible_cpu(prog)]
    # What the clock of tasks leaves out, such as the time of interrupts.
    lost = {cpu: (rq.clock - rq.clock_task).value_() for cpu, rq in queues}
    threads = {}
    for task in for_each_task(prog):
        kind, of, is_read = lock(prog, task)
        threads[task.pid.value_()] = {
            "pid": task.tgid.value_(),
            "comm": task.comm.string_().decode(errors="replace"),
            "runs": bool(task.on_cpu),
            "kind": kind,
            "owner": of,
            "readers": is_read,
            "arrived": task.sched_info.last_arrival.value_(),
            "left": task.se.exec_start.value_(),
            "lost": lost[task_cpu(task)],
            "frames": [] if task.on_cpu else frames(prog, task, sections),
        }
    json.dump({"marks": marks, "threads": threads, "file_locks": file_locks(prog)}, sys.stdout)


main(*sys.argv[1:])
