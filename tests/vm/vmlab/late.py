# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures in a machine how long a request keeps a real-time task waiting, under each preemption model that its kernel has.

`bench/late_cases.py` measures the same on this machine, whose kernel has one model. Stock kernels take another one at boot
(`preempt=`). In software emulation a program of ours does a hundredth of the work in a run, but its runs end by the clock, so they
may not be longer than elsewhere. The host does not always run the machine, which makes an awake task wait, too. So each request is
compared with a program that stays in user mode.

With `--instructions`, the clock of the machine advances by a nanosecond with each instruction. Then
a wait is a number of instructions, and neither the emulator nor the host has a part in it. Such a
machine has one processor, so each request shares it with the real-time task. With `--stacks`,
`bench/lateness.c` also tells what ran during the longest waits.
"""

import datetime
import re
import sys

from . import bench, common, suites

sys.path.append(str(common.ROOT / "bench"))
from short_json import short_json  # noqa: E402

MODELS = ("none", "voluntary", "full", "lazy")
# The model of a kernel with PREEMPT_RT, which has no other.
REALTIME = "rt"
PROCESSES = 2000
# Each request is repeated for this time, in seconds.
SECONDS = 20
# A request may keep a real-time task waiting for this long, in microseconds. The bar on a machine
# of its own is 5 ms. Here the host adds one time slice of its own.
LATE_US = 10_000
# The bar in a machine that counts instructions, to which the host adds nothing. A microsecond of
# this machine is a thousand instructions, which a processor executes in a third of a microsecond to
# one.
COUNTED_LATE_US = 5_000
# In a machine that counts instructions, each request is repeated for this time in seconds. The
# machine is several times slower.
COUNTED_SECONDS = 5
# How often the running task is noted, in microseconds. True: a machine that counts instructions.
# Any other machine would have no time for its work if it noted tasks that often.
STACKS_US = {True: 100, False: 2_000}

SPINS = "nothing but user mode"
COMMANDS = {
    "idle": None,
    SPINS: "while :; do :; done",
    "ps -o pid,ppid": "taskdiag ps -o pid,ppid --engine bpf",
    "ps aux": "taskdiag ps aux --engine bpf",
    "ps -o pid,exe,cwd": "taskdiag ps -o pid,exe,cwd --engine bpf",
    "files": "taskdiag files --engine bpf",
    "maps": "taskdiag maps --engine bpf",
    "procfs: ps aux": "taskdiag ps aux --engine procfs",
}


class Late(suites.Suite):
    """Real-time tasks during each request."""

    name = "late"

    def __init__(self, processes, seconds=None, counting=False, stacks=False):
        self.processes, self.seconds = processes, seconds or (COUNTED_SECONDS if counting else SECONDS)
        self.counting, self.stacks = counting, stacks
        # A request that has begun continues to its end, and programs are loaded before.
        self.timeout = (600 + len(COMMANDS) * (self.seconds + 120)) * (bench.COUNTING_SLOWER if counting else 1)
        self.rows, self.model = {}, ""

    def files(self, tree):
        tree.program(suites.program())
        for name in ("lateness", "load"):
            tree.program(bench.compiled(common.ROOT / "bench" / f"{name}.c"), f"/lab/{name}")

    def script(self):
        lines = [
            f"export PATH={suites.program().parent}:$PATH; cd /lab/tmp",
            "echo 4194304 >/proc/sys/kernel/pid_max; ulimit -u unlimited",
            "if grep -qx 1 /sys/kernel/realtime; then echo '@@preempt (rt)'; else sed 's/^/@@preempt /' /sys/kernel/debug/sched/preempt; fi",
            # The load ends when its standard input does.
            f"mkfifo hold; /lab/load procs {self.processes} <hold >ready & exec 9>hold",
            "while ! grep -q ready ready; do sleep 1; done",
        ]
        watch = f"/lab/lateness {self.seconds}" + (f" {STACKS_US[self.counting]}" if self.stacks else "")
        for label, command in COMMANDS.items():
            lines.append(f"echo '@@case {label}'; {watch} & late=$!; runs=0")
            if label == SPINS:
                lines.append(f"timeout {self.seconds} sh -c '{command}'")
            elif command:
                # 3 is a partial answer.
                lines.append(
                    f"while kill -0 $late 2>/dev/null; do {command} >out 2>err; code=$?; runs=$((runs + 1));"
                    ' case $code in 0|3) ;; *) echo "@@failed $code"; cat err; break;; esac; done'
                )
            lines.append('wait $late; echo "@@runs $runs"')
        return [*lines, "exec 9>&-; wait"]

    def read(self, output, run):
        result = suites.Result()
        if model := re.search(r"^@@preempt .*\((\w+)\)", output, re.M):
            self.model = model[1]
        for part in output.split("@@case ")[1:]:
            label, _, text = part.partition("\n")
            cpus = [tuple(map(int, m)) for m in re.findall(r"^(\d+) (\d+) (\d+)(?: \d+ \d+)?$", text, re.M)]
            runs = re.search(r"^@@runs (\d+)$", text, re.M)
            if not cpus or not runs or "@@failed" in text or (COMMANDS[label] and label != SPINS and runs[1] == "0"):
                result.failed.append(f"{label}: {text.strip()}")
                continue
            late, waited, _ = (max(column) for column in zip(*cpus))
            self.rows[label] = {"late_us": late, "waited_us": waited, "over_5_ms": sum(cpu[2] for cpu in cpus), "runs": int(runs[1])}
            allowed = max(COUNTED_LATE_US if self.counting else LATE_US, *(self.rows[n]["waited_us"] for n in ("idle", SPINS) if n in self.rows))
            print(f"  {self.model}: {label:<24} kept waiting {waited / 1e3:7.2f} ms, worst lateness {late / 1e3:7.2f} ms, {runs[1]} runs")
            if stacks := re.findall(r"^# *(.*)$", text, re.M):
                self.rows[label]["stacks"] = stacks
                print("\n".join(f"    {line}" for line in stacks))
            if COMMANDS[label] and waited > allowed:
                result.failed.append(f"{label}: kept a real-time task waiting for {waited / 1e3:.1f} ms, and {allowed / 1e3:.1f} are allowed")
            else:
                result.passed += 1
        return result


def keep(name, kernel, version, suites_run):
    """Writes the rows of all models to bench/runs/DATE-NAME.json. Returns the path."""
    path = common.ROOT / "bench" / "runs" / f"{datetime.date.today()}-{name}.json"
    rows = {s.model or model: s.rows for model, s in suites_run.items()}
    one = next(iter(suites_run.values()))
    sizes = {"processes": one.processes, "seconds": one.seconds, "guest": bench.guest(one.counting)}
    path.write_text(short_json({"kernel": kernel.name, "version": version, **sizes, "models": rows}) + "\n")
    return path
