# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the programs of tests/vm/bench on the unpatched and the patched kernel by turns, for tables of before and after.

A program prints rows `case<TAB>n<TAB>value...`. A value is a time in ns or a count, and less is better. Numbers of a
machine in software emulation mean nothing alone. Only the ratio of two kernels in one run does.

With `--instructions`, the clock of the machine advances by a nanosecond with each instruction, so a
time is a number of instructions. What else runs on the host does not change it, and a second run
differs little. It knows nothing of caches, and a machine has one processor, so nothing waits for a
lock.

User-Mode Linux (`uml-base` and `uml-ours`) runs the kernel's code on the processor of this machine, so its times do mean something. It
has one processor. A fork, a system call and a page fault take several times as long in it, because this machine traces its processes.
"""

import collections
import datetime
import itertools
import json
import os
import pathlib
import re
import statistics

from . import common, kernels, runs, sent, suites

HOME = common.VM / "bench"
# A machine that counts instructions runs this many times longer.
COUNTING_SLOWER = 4
# A history of waits, or all events of it, may take this many times as long on the second kernel.
DEARER = 1.1


def programs(names, only=""):
    """The named programs, or all of them but those for a kernel of kernel/send, or those that have a line `lab: ONLY ARGUMENTS`. A program is
    a C source or a shell script."""
    found = {p.stem: p for p in sorted(HOME.iterdir()) if p.suffix in (".c", ".sh")}
    for n in names:
        if n not in found:
            common.die(f"no program {n} in tests/vm/bench; there are {', '.join(found) or 'none'}")
    if names:
        return [found[n] for n in names]
    return [p for p in found.values() if setting(p, "send", "none") == "none" and (not only or setting(p, only, "none") != "none")]


def setting(program, key, default):
    """The value of a line `lab: KEY VALUE` in a comment of the program."""
    found = re.search(rf"\blab: {key} (.+)$", program.read_text(errors="replace"), re.M)
    return type(default)(found[1].strip()) if found else default


class Bench(suites.Suite):
    """Runs all programs in one machine, one after the other."""

    name = "bench"

    def __init__(self, chosen, counting, arguments=None, memory=0, uml=False):
        self.chosen, self.counting, self.arguments, self.uml = chosen, counting, arguments, uml
        self.limits = {p: setting(p, "timeout", 900) * (COUNTING_SLOWER if counting else 1) for p in chosen}
        self.timeout = sum(self.limits.values())
        self.memory = memory or max([setting(p, "memory", 4096) for p in chosen])
        self.cpus = max([setting(p, "processors", 2) for p in chosen])
        # The rows of mail 004 in User-Mode Linux are those of the kernel alone. The drop-in is only
        # needed for them.
        self.dropin = not uml and any(setting(p, "taskdiag", "no") == "yes" for p in chosen)
        self.taskdiag = self.dropin or any(setting(p, "taskdiag", "no") == "always" for p in chosen)

    def files(self, tree):
        if self.taskdiag:
            tree.program(suites.program())
        if self.dropin:
            tree.program(suites.dropin())
        if self.uml:
            suites.without_vdso(tree)
        for p in self.chosen:
            if p.suffix == ".c":
                tree.program(compiled(p), f"/lab/{p.stem}")
            else:
                tree.file(p, f"/lab/{p.stem}")

    def script(self):
        lines = [
            "export PATH=/lab:$PATH",
            *([f"export PATH={suites.program().parent}:$PATH"] if self.taskdiag else []),
            *([f"export TASKDIAG_PROCPS_LIB={suites.dropin()}"] if self.dropin else []),
            *([suites.WITHOUT_VDSO] if self.uml else []),
            "echo 4194304 >/proc/sys/kernel/pid_max; echo 1000000 >/proc/sys/kernel/threads-max",
            "echo 1000000 >/proc/sys/vm/max_map_count; ulimit -n 1048576; ulimit -u unlimited",
        ]
        if self.counting:
            # With a random layout, each fork copies a page table more or less now and then,
            # independent of the patches.
            lines.append("echo 0 >/proc/sys/kernel/randomize_va_space")
        for p in self.chosen:
            run = f"/lab/{p.stem}" if p.suffix == ".c" else f"sh /lab/{p.stem}"
            if self.arguments is not None:
                run += " " + self.arguments
            elif self.counting:
                run += " " + setting(p, "instructions", "")
            elif self.uml:
                run += " " + setting(p, "uml", "")
            # A machine that counts has a clock of its own; the host ends it after `timeout`.
            limit = "" if self.counting else f"timeout {self.limits[p]} "
            lines.append(f'echo "@@program {p.stem}"; {limit}{run}; echo "@@status $?"')
        return lines

    def read(self, output, run):
        result = suites.Result()
        self.rows = []
        for part in output.split("@@program ")[1:]:
            name, _, text = part.partition("\n")
            status = re.search(r"^@@status (\d+)$", text, re.M)
            rows = [line.split("\t") for line in text.splitlines() if re.match(r"^[^\t]+\t\d+(\t-?\d+)+$", line)]
            self.rows += [(name, r[0], int(r[1]), [int(v) for v in r[2:]]) for r in rows]
            if status and status[1] == "0" and rows:
                result.passed += 1
            elif status and status[1] == "4":
                # As in the kernel's selftests, 4 means that it cannot be measured on this kernel.
                result.skipped.append(f"bench {name}: {text.strip().splitlines()[0]}")
            else:
                result.failed.append(f"{name}: exit code {status[1] if status else 'none'}, {len(rows)} rows")
        return result


def compiled(source):
    """A static program from a C file or from the C files of a directory, cached by their text."""
    files = sorted(source.glob("*.c")) if source.is_dir() else [source]
    home = source if source.is_dir() else source.parent
    headers = [*sorted(home.glob("*.h")), *sorted((common.ROOT / "uapi").glob("*.h"))]
    # Headers that patches of kernel/send add.
    added = []
    if patches := not source.is_dir() and setting(source, "send", ""):
        uapi = sent.after(patches)[1] / sent.UAPI
        added = ["-idirafter", uapi]
        headers += sorted(uapi.glob("**/*.h"))
    program = common.cache("programs", f"{source.stem}-{common.digest(*files, *headers)}")
    if not program.exists():
        flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-I", common.ROOT / "uapi", *added]
        common.run("gcc", *flags, "-o", program, *files)
    return program


def bench(names, rounds, keep, pair, counting=False, arguments=None, memory=0):
    """Boots both kernels by turns and prints the table. `arguments` and `memory` replace those that the programs ask for. Returns
    the exit code."""
    if counting:
        rounds = 1
    uml = all(kernels.named(name).arch.name == "um" for name in pair)
    chosen = programs(names, "uml" if uml else "")
    if not chosen:
        raise common.Unavailable("tests/vm/bench has no program yet")
    rows, bad, versions = [], 0, {}
    to = common.LOGS / "bench"
    if keep:
        to = common.ROOT / "bench" / "runs" / f"{datetime.date.today()}-{keep}"
    to.mkdir(parents=True, exist_ok=True)
    # Where the caches of a processor count, so does the order in which another program has left the
    # memory.
    machines = [[p] for p in chosen] if uml else [chosen]
    for n, programs_of_one, name in itertools.product(range(rounds), machines, pair):
        k = kernels.named(name)
        versions[name] = kernels.get(k).version
        suite = Bench(programs_of_one, counting, arguments, memory, uml)
        run, results = runs.go(k, [suite], f"bench-{n}", memory=suite.memory, counting=counting, cpus=suite.cpus)
        bad += runs.report(k, run, results)
        rows += [(name, n, *row) for row in getattr(suite, "rows", [])]
        # After each, because a run may take an hour, and something may end it.
        write(to, rows, versions, guest(counting, suite.cpus, uml), arguments)
    print(table(rows, pair))
    common.say(f"raw rows in {to}")
    return bool(bad)


def histories(keep, pair, count, seed):
    """Random histories of children on both kernels: each must report the same on both, and cost no more than `DEARER` times as much on
    the second. Returns the exit code."""
    arguments = f"{count} {seed}"
    if bench(["wait_history"], 1, keep, pair, True, arguments):
        return 1
    name = f"{datetime.date.today()}-{keep}" if keep else None
    to = common.ROOT / "bench" / "runs" / name if keep else common.LOGS / "bench"
    wrong = compared((to / "rows.tsv").read_text(), pair)
    print("\n".join(wrong) if wrong else f"{count} histories: the same is reported, and none costs more than {DEARER} times as much")
    return bool(wrong)


def compared(text, pair):
    """What is wrong with the rows of `wait_history`, in lines: histories that report something else, or cost more."""
    rows = {k: {} for k in pair}
    for line in text.splitlines()[1:]:
        kernel, _, _, case, n, *values = line.split("\t")
        if case == "history":
            rows[kernel][int(n)] = [int(v) for v in values]
    before, after = (rows[k] for k in pair)
    if not before or before.keys() != after.keys():
        return [f"{pair[0]} has {len(before)} histories and {pair[1]} has {len(after)}"]
    wrong = []
    for n, (waits, events, reported) in sorted(before.items()):
        if after[n][2] != reported:
            wrong.append(f"history {n}: {pair[1]} reports something else")
        for what, was, now in (("waits", waits, after[n][0]), ("events", events, after[n][1])):
            if now > DEARER * was:
                wrong.append(f"history {n}: {what} take {now / was:.3f} times as much, {now} and {was}")
    return wrong


def table(rows, pair):
    """The medians of each kernel, and their ratio if there are two, for each value of each row."""
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for kernel, _, program, case, n, numbers in rows:
        for i, v in enumerate(numbers):
            values[program, case, n, i][kernel].append(v)
    two = len(pair) == 2
    lines = [f"{'program':<14} {'case':<44} {'n':>8}" + "".join(f" {k:>14}" for k in pair) + (f" {'ratio':>8}" if two else "")]
    for (program, case, n, i), of in values.items():
        medians = [statistics.median(of[k]) if of.get(k) else None for k in pair]
        shown = "".join(f" {v:14.0f}" if v is not None else f" {'-':>14}" for v in medians)
        if two:
            before, after = medians
            shown += f" {before / after:8.2f}" if before is not None and after else f" {'-':>8}"
        label = case if i == 0 else f"{case} [{i + 1}]"
        lines.append(f"{program:<14} {label:<44} {n:>8}{shown}")
    if two:
        lines.append(f"ratio: {pair[0]} / {pair[1]}, of medians; above 1 {pair[1]} is better")
    return "\n".join(lines) + "\n"


def guest(counting, cpus=2, uml=False):
    """A description of the machine, for readers of the rows."""
    if uml:
        return "1 CPU, User-Mode Linux, which runs the kernel's own code on the CPU of the host"
    if counting:
        return "1 CPU, software emulation, a ns for each instruction (-icount shift=0)"
    return f"{cpus} CPUs, software emulation on {os.cpu_count()}"


def write(to, rows, versions, machine, arguments):
    """Writes the raw rows, the table, and a description of the machine."""
    lines = ["kernel\tround\tprogram\tcase\tn\tvalues\n"]
    lines += [f"{k}\t{r}\t{p}\t{c}\t{n}\t" + "\t".join(map(str, v)) + "\n" for k, r, p, c, n, v in rows]
    (to / "rows.tsv").write_text("".join(lines))
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    about = {
        "kernels": versions,
        "qemu": common.output("qemu-system-x86_64", "--version").split("\n")[0],
        "host_cpu": cpu[1] if cpu else "unknown",
        "commit": common.output("git", "-C", common.ROOT, "rev-parse", "HEAD").strip(),
        "guest": machine,
    }
    if arguments is not None:
        about["arguments"] = arguments
    (to / "run.json").write_text(json.dumps(about, indent=1) + "\n")
