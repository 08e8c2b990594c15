# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs storms of tasks together with readers that use the BPF programs, on kernels that poison
freed memory.

If a BPF program follows a pointer into freed memory, a kernel with poison crashes, and one with KASAN complains.
`tests/vm/storm` makes the tasks. `storm_reader` of the package taskdiag-tests asks for them with one of the programs, and
checks each value of those tasks whose values are known.

In software emulation a reader makes only a few requests a second. An object is then hardly ever freed in the nanoseconds
between the load of a pointer and its use. So `--gap` runs the same programs with a longer gap between the two, and
`--known-bad` runs programs of an old commit that were wrong. The kernel must crash under the latter, which shows that a storm
finds such a mistake.
"""

import os
import re
import shutil

from . import bench, common, suites
from .build import NEWER

PROGRAMS = ("lite", "more", "snapshot", "legacy")
# This storm runs while one reader uses each of the programs.
MIXED = "mixed"
KERNELS = ("base-debug", "debian-newest")
PARTS = (
    "sentinels",
    "renames",
    "places",
    "leaves",
    "mounts",
    "things",
    "descriptors",
    "waits",
    "cgroups",
    "forks",
    "traces",
    "processor",
    "hunger",
)
# The parts that free the fs_struct of tasks, and do little else, so that the readers get answers
# soon.
FREEING = ("sentinels", "renames", "places", "leaves")
READERS = 3
# The readers have this time to load their programs.
LOAD_SECONDS = 240
# Rounds of the longer gap by default.
GAP = 2000
# A kernel without page_poison wipes freed pages because of init_on_free. KASAN keeps freed memory
# in a quarantine for long, and poisons it only when it leaves that. So with KASAN, memory is wiped
# at once instead, and the poison stays off, because it would turn the wiping off. slub_debug has no
# U, because recording the stacks of all allocations makes requests much slower.
POISON = "slub_debug=FZP page_poison=1 init_on_free=1"
WIPE = "slub_debug=FZ init_on_free=1 kasan.fault=panic"
# The last commit whose programs passed memory to bpf_d_path() that may be freed.
KNOWN_BAD = "797dcd3"


def has_kasan(kernel):
    return kernel.name.removesuffix(NEWER).endswith("-debug")


def boot_parameters(kernel):
    """The boot parameters that make a kernel poison or wipe freed memory."""
    return WIPE if has_kasan(kernel) else POISON


class Poison(suites.Suite):
    """Checks that freed memory was poisoned or wiped. If not, a storm shows nothing."""

    name = "poison"

    def __init__(self, kernel):
        self.wipes = has_kasan(kernel)

    def script(self):
        return ["cat /sys/kernel/slab/fs_cache/poison"]

    def read(self, output, run):
        wiped = re.search(r"mem auto-init: .*heap free:on", run.console) and output.strip() == "0"
        if wiped if self.wipes else output.strip() == "1":
            return suites.Result(passed=1)
        return suites.Result(failed=["this kernel does not poison freed memory, so the storms show nothing"])


class Storm(suites.Suite):
    """A storm together with readers: three with the same BPF program, or one with each program."""

    def __init__(self, program, seconds, seed, gap=None):
        self.name, self.seconds, self.seed, self.gap = f"storm-{program}", seconds, seed, gap
        self.programs = PROGRAMS if program == MIXED else (program,) * READERS
        self.timeout = seconds * 2 + 240 + LOAD_SECONDS

    def files(self, tree):
        tree.program(bench.compiled(common.VM / "storm"), "/lab/storm")
        tree.program(reader(self.gap), "/lab/storm_reader", strip=True)

    def script(self):
        limit = self.seconds + 180
        lines = [f"echo {self.name} >/dev/kmsg", "cd /lab; rm -f tmp/ready.*"]
        # Tasks have the times of DELAYS only if they begin after this.
        lines.append("echo 1 >/proc/sys/kernel/task_delayacct")
        for n, program in enumerate(self.programs):
            # All readers are on one processor. The storm leaves this tree to them, and continues in
            # the other one while they read.
            ask = f"--base /lab/tmp/storm --program {program} --seconds {self.seconds} --seed {self.seed + n} --processor 0"
            lines.append(f"timeout {limit + LOAD_SECONDS} ./storm_reader {ask} --ready /lab/tmp/ready.{n} & reader{n}=$!")
        lines += [
            # The storm begins after the programs are loaded, since the load may take as long as the
            # storm.
            f"n=0; while [ $(ls tmp | grep -c ready) -lt {len(self.programs)} ] && [ $n -lt {LOAD_SECONDS} ]; do"
            " sleep 1; n=$((n + 1)); done",
            'echo "programs are loaded after $n s"',
            f"timeout {limit} ./storm {self.seconds + 5} {self.seed} {' '.join(PARTS)} & storm=$!",
        ]
        for part in (*self.readers(), "storm"):
            lines.append(f'wait ${part}; echo "@@status {part} $?"')
        return lines

    def readers(self):
        return [f"reader{n}" for n in range(len(self.programs))]

    def read(self, output, run):
        result = suites.Result()
        for line in output.splitlines():
            if not line.startswith("@@"):
                print(f"  {self.name}: {line}")
            if line.startswith("SKIP "):
                result.skipped.append(f"{self.name}: {line.removeprefix('SKIP ')}")
        for part in (*self.readers(), "storm"):
            status = re.search(rf"^@@status {part} (\d+)$", output, re.M)
            if status and status[1] == "0":
                result.passed += 1
            else:
                result.failed.append(f"{part}: exit code {status[1] if status else 'none'}")
        if self.gap is not None and not has_gap():
            result.skipped.append(f"{self.name}: the BPF sources have no GAP(), so their programs did not wait")
        return result


def has_gap():
    """Whether the programs with a longer gap differ from those that are checked in."""
    made = sorted(gap_skeletons().glob("*.lskel"))
    return any(m.read_bytes() != (common.ROOT / "crates/taskdiag-bpf/skel" / m.name).read_bytes() for m in made)


def gap_skeletons():
    return common.cache("skel-gap", "lite.lskel").parent


def reader(gap):
    """The program storm_reader, with the BPF programs of the checkout or with those that have a longer gap."""
    cargo = [common.ROOT / "tools/with-rust", "cargo"]
    target, variables = common.TARGET, {}
    if gap is not None:
        need_clang()
        skeletons = gap_skeletons()
        options = ["--manifest-path", common.ROOT / "bpf/gen/Cargo.toml", "--", "--gap", str(gap), "--out", skeletons]
        common.run(*cargo, "run", "-q", *options, cwd=common.ROOT)
        # The program is built in a separate target directory, because otherwise each build would
        # replace the other one.
        target, variables = common.TARGET / "gap", {"TASKDIAG_SKEL_DIR": str(skeletons)}
    env = {**os.environ, "CARGO_TARGET_DIR": str(target), **variables}
    common.run(*cargo, "build", "-q", "--profile", "quick", "-p", "taskdiag-tests", "--bin", "storm_reader", cwd=common.ROOT, env=env)
    return target / "quick" / "storm_reader"


def need_clang():
    if not common.have("clang-19"):
        raise common.Unavailable("no clang-19 to build BPF programs with: run tools/setup bpf")


class KnownBad(suites.Suite):
    """A storm together with readers that use wrong BPF programs. The kernel must crash."""

    name = "known-bad"

    def __init__(self, seconds, seed):
        self.seconds, self.seed = seconds, seed
        self.timeout = seconds + 120

    def files(self, tree):
        tree.program(bench.compiled(common.VM / "storm"), "/lab/storm")
        tree.program(known_bad(), "/lab/taskdiag")

    def script(self):
        ask = "taskset 1 ./taskdiag dump -g base,paths --engine bpf >/dev/null && echo @@answer"
        return [
            f"cd /lab; ./storm {self.seconds} {self.seed} {' '.join(FREEING)} &",
            "while ! [ -e /lab/tmp/storm/truth ]; do sleep 1; done; echo @@beginning",
            *[f"(while [ -e /lab/tmp/storm/truth ]; do {ask}; done) &" for _ in range(READERS)],
            "n=0; while [ -e /lab/tmp/storm/truth ]; do sleep 1; n=$((n + 1)); echo @@second $n; done; wait",
        ]

    def read(self, output, run):
        # This is called only if the storm came to its end. fell_over() reports that.
        return suites.Result()


def known_bad():
    """The program `taskdiag` of the old commit, with the longer gap in its BPF programs."""
    patch = common.VM / "known-bad" / f"{KNOWN_BAD}.patch"
    home = common.cache("known-bad", common.digest(patch), "taskdiag").parent
    if not (home / "taskdiag").exists():
        need_clang()
        common.say(f"building commit {KNOWN_BAD} with a longer gap")
        tree, archive = home / "tree", home / "archive.tar"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        try:
            common.run("git", "-C", common.ROOT, "archive", "-o", archive, KNOWN_BAD)
        except common.Broken as e:
            raise common.Unavailable(f"commit {KNOWN_BAD} is not in this clone: {str(e).strip().splitlines()[-1]}") from e
        common.run("tar", "-xf", archive, "-C", tree)
        common.run("patch", "-p1", "-F0", "-s", "-d", tree, "-i", patch)
        cargo = [common.ROOT / "tools/with-rust", "cargo"]
        common.run(*cargo, "run", "-q", "--manifest-path", "bpf/gen/Cargo.toml", "--target-dir", tree / "target", cwd=tree)
        # That commit has no profile `quick`.
        quick = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
        env = {**os.environ, **quick, "CARGO_TARGET_DIR": str(tree / "target")}
        common.run(*cargo, "build", "-q", "--release", "-p", "taskdiag-cli", cwd=tree, env=env)
        shutil.copy2(tree / "target/release/taskdiag", home / "taskdiag.part")
        (home / "taskdiag.part").rename(home / "taskdiag")
        shutil.rmtree(tree)
        archive.unlink()
    return home / "taskdiag"


def fell_over(run):
    """(whether the kernel complained about the known mistake, a sentence about it)"""
    seconds = re.findall(r"^@@second (\d+)$", run.output, re.M)
    answers = run.output.count("@@answer")
    when = f"after {seconds[-1] if seconds else 0} s and {answers} answers"
    if run.complaints and "d_path" in run.console:
        return True, f"known bad programs: the kernel complained {when}, as it must: {run.complaints[0]}"
    if run.complaints:
        return False, f"known bad programs: the kernel complained {when}, but about something else: {run.complaints[0]}"
    return False, f"known bad programs: the kernel did not complain {when}, so the storm does not find their mistake"
