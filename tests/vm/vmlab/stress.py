# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs fuzzing and storms on the kernel with all checks on, and then the selftests of the series.

The findings of the checks are on the console, and kmemleak is asked after each part. At the end the checks must still be on,
because lockdep and kmemleak turn themselves off when they run out of memory, and would find nothing from then on.
"""

import re

from . import bench, common, suites

# The seed is fixed, so that a failure can be repeated; `lab stress --seed` sets another one.
SEED = 20161


class Program(suites.Suite):
    """A C program of tests/vm, or a directory of its files, that runs for a number of seconds with
    a seed."""

    def __init__(self, name, seconds, seed=SEED):
        self.name, self.seconds, self.seed = name, seconds, seed
        # In software emulation under KASAN, the end may come late.
        self.timeout = seconds * 3 + 120

    def files(self, tree):
        source = common.VM / self.name
        tree.program(bench.compiled(source if source.is_dir() else source.with_suffix(".c")), f"/lab/{self.name}")

    def script(self):
        return [
            f"cd /lab; timeout {self.timeout} ./{self.name} {self.seconds} {self.seed}; echo \"@@status $?\"",
            "grep -E '^(proc_inode_cache|task_struct|filp|pid|cred_jar|mm_struct) ' /proc/slabinfo",
            *ask_for_leaks(),
        ]

    def read(self, output, run):
        result = suites.Result()
        status = re.search(r"^@@status (\d+)$", output, re.M)
        said = output.split("@@status")[0].strip()
        for line in said.splitlines():
            print(f"  {self.name}: {line}")
            if line.startswith("SKIP "):
                result.skipped.append(f"{self.name}: {line.removeprefix('SKIP ')}")
        if status and status[1] == "0":
            result.passed += 1
        elif not (status and status[1] == "4"):
            result.failed.append(f"{self.name}: exit code {status[1] if status else 'none'}")
        result.failed += leaks(output)
        return result


class Checks(suites.Suite):
    """Finds leaks of the parts that ran before, and whether the kernel's checks were on to the end."""

    name = "checks"

    def __init__(self, needed):
        self.needed = needed

    def script(self):
        return [*ask_for_leaks(), "grep -s debug_locks: /proc/lockdep_stats"]

    def read(self, output, run):
        result = suites.Result(failed=leaks(output))
        there = {
            "KASAN": "KernelAddressSanitizer initialized" in run.console,
            "lockdep": re.search(r"debug_locks: +1$", output, re.M),
            "kmemleak": "@@scanned 0" in output,
        }
        for name, on in there.items():
            if on:
                result.passed += 1
            elif self.needed:
                result.failed.append(f"{name} is not there, or was off at the end")
            else:
                result.skipped.append(f"{name}: not in this kernel, nothing was checked by it")
        return result


def ask_for_leaks():
    """The lines of a job. Memory that RCU is about to free is not a leak. Only memory that stays for some seconds is."""
    file = "/sys/kernel/debug/kmemleak"
    scan = f"echo scan >{file}"
    return [f"if [ -e {file} ]; then sleep 8; {scan}; sleep 8; {scan}; echo \"@@scanned $?\"; head -c 20000 {file}; fi"]


def leaks(output):
    """The reports of kmemleak, as a list of failures."""
    if "unreferenced object" not in output:
        return []
    first = output[output.index("unreferenced object") :].splitlines()[:16]
    return ["kmemleak: " + " ".join(line.strip() for line in first)]
