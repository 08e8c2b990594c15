# SPDX-License-Identifier: MIT OR Apache-2.0
"""Knows the lines that a healthy kernel does not print. tools/kernel-witness and the lab (tests/vm) use it."""

import re

COMPLAINTS = re.compile(
    r"Kernel panic|BUG: |BUG at |Oops: |Oops\[|WARNING: |general protection fault|Unable to handle kernel|KASAN: |UBSAN: "
    r"|possible circular locking|possible recursive locking|inconsistent lock state|suspicious RCU usage"
    r"|sleeping function called|self-detected stall|detected stalls|blocked for more than|soft lockup|hard LOCKUP"
    r"|unreferenced object|new suspected memory leaks|INFO: trying to register non-static key|list_(?:add|del) corruption"
    r"|scheduling while atomic|Unable to mount root|refcount_t: |int3: 0000 |stack guard page was hit|Bad page state"
    r"|rcu_.* kthread starved"
)
# Lines that begin so report faults of programs, or are usual for a stock kernel in software
# emulation. They are no faults of the kernel.
EXPECTED = re.compile(r"^traps: |\] traps: |WARNING: Spectre|WARNING: CPU MICROCODE|TSC .*unstable")


def is_complaint(line):
    """Whether the kernel says in this line that something is wrong with it."""
    return bool(COMPLAINTS.search(line)) and not EXPECTED.search(line)
