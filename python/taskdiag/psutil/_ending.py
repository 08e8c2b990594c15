# SPDX-License-Identifier: MIT OR Apache-2.0
"""Signals to a process, and waiting for its end: the part of psutil's Process that must not reach another process.

A pid can belong to a later process by the time it is used, and in a /proc of another pid namespace it is the number of another process
here. So a descriptor of its directory in that /proc is opened, and the start time compared through it, before anything is done by it.
"""

import errno
import math
import os
import select
import signal
import time

from taskdiag import _native
from taskdiag.psutil import _types as t
from taskdiag.psutil._columns import TICKS

UNSET = object()
# Seconds that poll(2) may wait at once: it takes a number of milliseconds that is less than 2^31.
LONGEST = 1_000_000
NOT_A_PROCESS = "the PID is the id of a thread"


class Ending:
    """The methods of Process for its signals and its end."""

    _exitcode = UNSET

    def _held(self):
        """A handle of exactly this process, for calls that change or query it. The kernel ties its descriptor to one process for ever."""
        self._raise_if_gone()
        held = _native.Held(self._here.proc, self._pid)
        if held.start_ticks() / TICKS != self._ident[1]:
            # Another process has this pid now. This raises the error for that.
            self._raise_if_gone()
            raise t.NoSuchProcess(self._pid, self._name)
        if not self._is_process():
            raise t.NoSuchProcess(self._pid, self._name, NOT_A_PROCESS)
        return held

    def _is_process(self):
        """A thread has a directory, too, and signals by it go to its process."""
        with open(f"{self._here.proc}/{self._pid}/status", "rb") as f:
            tgid = next((line for line in f if line.startswith(b"Tgid:")), None)
        return tgid is None or int(tgid.split()[1]) == self._pid

    def _pidfd(self):
        """A descriptor of this very process, which can be waited for. None if the kernel has no pidfds, or if its pid is the number
        of another process in our pid namespace."""
        if self._pid == 0:
            raise ValueError("there is no process 0: as a receiver of signals, it means your own process group")
        held = self._held()
        if not held.has_own_number():
            return None
        try:
            fd = held.by_number(os.pidfd_open)
        except OSError as e:
            if e.errno in (errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENODEV):
                return None
            if e.errno in (errno.EINVAL, errno.ENOENT):
                raise t.NoSuchProcess(self._pid, self._name, NOT_A_PROCESS) from e
            raise
        return fd

    def send_signal(self, sig):
        """Sends a signal to this process, and never to another one that reuses its pid."""
        if self._pid == 0:
            raise ValueError("there is no process 0: as a receiver of signals, it means your own process group")
        try:
            held = self._held()
            try:
                held.send_signal(int(sig))
            except OSError as e:
                if e.errno != errno.ENOSYS:
                    raise
                # A kernel or a sandbox without pidfd_send_signal(2). The number is checked before
                # and afterwards.
                held.by_number(lambda pid: os.kill(pid, sig))
        except (ProcessLookupError, FileNotFoundError) as e:
            self._gone = True
            raise t.NoSuchProcess(self._pid, self._name) from e
        except PermissionError as e:
            raise t.AccessDenied(self._pid, self._name, _why(e)) from e

    def suspend(self):
        """Stops it with SIGSTOP."""
        self.send_signal(signal.SIGSTOP)

    def resume(self):
        """Continues it with SIGCONT."""
        self.send_signal(signal.SIGCONT)

    def terminate(self):
        """Asks it to end, with SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """Ends it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=None):
        """Waits until it has ended. Returns the exit code of a child, and None for others."""
        if self._pid == 0:
            raise ValueError("can't wait for PID 0")
        if timeout is not None:
            if not isinstance(timeout, (int, float)):
                raise TypeError(f"timeout must be an int or float (got {type(timeout)})")
            if timeout < 0:
                raise ValueError(f"timeout must be positive or zero (got {timeout})")
        if self._exitcode is UNSET:
            try:
                self._exitcode = self._wait(timeout)
            except TimeoutError:
                raise t.TimeoutExpired(timeout, pid=self._pid, name=self._name) from None
        return self._exitcode

    def _wait(self, timeout):
        end = math.inf if timeout is None else time.monotonic() + timeout
        # This process was seen to be gone. The process that has its pid now may be a child of ours,
        # so its exit code must not be taken.
        if self._pid_reused or (self._gone and os.path.exists(f"{self._here.proc}/{self._pid}")):
            return None
        fd = None
        has_own_number = True
        if not self._gone:
            try:
                has_own_number = self._held().has_own_number()
                fd = self._pidfd() if has_own_number else None
            except (ProcessLookupError, FileNotFoundError):
                pass
            except t.NoSuchProcess:
                # Another process has its pid, so this one has ended and was reaped.
                return None
        if fd is not None:
            try:
                if not ended([fd], timeout):
                    raise TimeoutError
            finally:
                os.close(fd)
        # A child can be waited for now. Other processes stay zombies until their parents wait for
        # them.
        pause = 0.0001
        while True:
            try:
                # Otherwise a child of ours that happens to have this number would be reaped.
                if not has_own_number:
                    raise ChildProcessError
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    return exit_code(status)
            except ChildProcessError:
                if not self.is_running():
                    return None
            if time.monotonic() >= end:
                raise TimeoutError
            time.sleep(pause)
            pause = min(2 * pause, 0.04)


def _why(e):
    """The text of our own refusals, which have no number."""
    return str(e) if e.errno is None else None


def ended(fds, timeout):
    """The pidfds whose process has ended, as soon as there is one, or none after the timeout."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(0, end - time.monotonic())
        # A part of a millisecond is waited for, too.
        ready = poll.poll(-(-min(left, LONGEST) * 1000 // 1))
        if ready or left <= LONGEST:
            return [fd for fd, _ in ready]


def exit_code(status):
    """The status of waitpid() in the form of subprocess."""
    code = os.waitstatus_to_exitcode(status)
    try:
        return t.Negsignal(code) if code < 0 else code
    except ValueError:
        return code
