#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Keeps sysctls raised. `limits.py kernel.pid_max=4194304 ...` raises each one that is lower, prints
"ready", and puts the old values back when its standard input ends.

It is a process of its own in a session of its own, so that the limits go back after Ctrl-C, an
error, and a driver that was killed. If it may not write, it says which limit could not be raised.
Whether the load fits shows when the load is made.
"""

import pathlib
import signal
import sys


def path(name):
    return pathlib.Path("/proc/sys", *name.split("."))


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    old = []
    for name, want in (arg.split("=") for arg in sys.argv[1:]):
        have = int(path(name).read_text())
        if have >= int(want):
            continue
        try:
            path(name).write_text(want)
            old.append((name, have))
        except OSError as e:
            print(f"bench: cannot raise {name} from {have} to {want}: {e.strerror}", file=sys.stderr)
    print("ready", flush=True)
    sys.stdin.read()
    for name, have in old:
        path(name).write_text(str(have))


if __name__ == "__main__":
    main()
