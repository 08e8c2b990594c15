# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fuzzing and storms on the kernel with all checks on. What they find is on the console; kmemleak is asked at the end."""

import re

from . import bench, common, suites

# Fixed, so that a failure comes again; another one by `lab stress --seed`.
SEED = 20161


class Program(suites.Suite):
    """A C program of tests/vm that runs for so many seconds with a seed."""

    def __init__(self, name, seconds, seed=SEED):
        self.name, self.seconds, self.seed = name, seconds, seed
        # Software emulation under KASAN: the end may come late.
        self.timeout = seconds * 3 + 120

    def files(self, tree):
        tree.program(bench.compiled(common.VM / f"{self.name}.c"), f"/lab/{self.name}")

    def script(self):
        leaks = "/sys/kernel/debug/kmemleak"
        return [
            f"cd /lab; timeout {self.timeout} ./{self.name} {self.seconds} {self.seed}; echo \"@@status $?\"",
            "grep -E '^(proc_inode_cache|task_struct|filp|pid|cred_jar|mm_struct) ' /proc/slabinfo",
            # What was freed by RCU is not a leak; only what stays for some seconds is.
            f"if [ -e {leaks} ]; then sleep 8; echo scan >{leaks}; sleep 8; echo scan >{leaks}; head -c 20000 {leaks}; fi",
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
        if "unreferenced object" in output:
            first = output[output.index("unreferenced object") :].splitlines()[:12]
            result.failed.append("kmemleak: " + " ".join(line.strip() for line in first))
        return result
