# SPDX-License-Identifier: MIT OR Apache-2.0
"""Storms of tasks beside readers that use the BPF programs, on kernels that poison what is freed.

A BPF program that follows a pointer into memory that another task has freed makes a kernel with poison fall over, and one
with KASAN complain. `tests/vm/storm` makes the tasks; `storm_reader` of the package taskdiag-tests asks for them with one
of the programs and checks each value of tasks of which all is known.

Software emulation makes few requests a second, and meets a gap of nanoseconds between the load of a pointer and its use
hardly ever. So there are the same programs with the gap made longer (`--gap`), and those of an old commit that were wrong
(`--known-bad`), under which the kernel must fall over: it shows that a storm finds what it is for.
"""

import os
import re
import shutil

from . import bench, common, suites

PROGRAMS = ("lite", "more", "snapshot", "legacy")
# A storm beside one reader with each of them.
MIXED = "mixed"
KERNELS = ("base-debug", "debian-newest")
PARTS = ("sentinels", "renames", "places", "leaves", "mounts", "things", "cgroups", "forks", "traces", "processor", "hunger")
# Those that free the fs_struct of tasks, and little else: an answer is to be there soon.
FREEING = ("sentinels", "renames", "places", "leaves")
READERS = 3
# The first programs are loaded in so long at most.
LOAD_SECONDS = 240
# Rounds of the longer gap, if no other number is given.
GAP = 2000
# Where there is no page_poison, pages are wiped by init_on_free. With KASAN freed memory is kept aside for long, and poisoned
# when it leaves there; so it is wiped at once instead, which the poison of slabs and pages would turn off. Not U in
# slub_debug: the stacks of all who allocate and free cost many requests.
POISON = "slub_debug=FZP page_poison=1 init_on_free=1"
WIPE = "slub_debug=FZ init_on_free=1 kasan.fault=panic"
# The last commit whose programs gave bpf_d_path() what may be freed.
KNOWN_BAD = "797dcd3"


def has_kasan(kernel):
    return kernel.name.endswith("-debug")


def boot_parameters(kernel):
    """What makes a kernel poison what is freed."""
    return WIPE if has_kasan(kernel) else POISON


class Poison(suites.Suite):
    """Was what is freed poisoned, or wiped? Else a storm shows nothing."""

    name = "poison"

    def __init__(self, kernel):
        self.wipes = has_kasan(kernel)

    def script(self):
        return ["cat /sys/kernel/slab/fs_cache/poison"]

    def read(self, output, run):
        wiped = re.search(r"mem auto-init: .*heap free:on", run.console) and output.strip() == "0"
        if wiped if self.wipes else output.strip() == "1":
            return suites.Result(passed=1)
        return suites.Result(failed=["this kernel does not poison what is freed, so the storms show nothing"])


class Storm(suites.Suite):
    """A storm beside readers: three with one of the BPF programs, or one with each."""

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
        for n, program in enumerate(self.programs):
            # All on one processor: the storm leaves it to them, and goes on on the other one while they look.
            ask = f"--base /lab/tmp/storm --program {program} --seconds {self.seconds} --seed {self.seed + n} --processor 0"
            lines.append(f"timeout {limit + LOAD_SECONDS} ./storm_reader {ask} --ready /lab/tmp/ready.{n} & reader{n}=$!")
        lines += [
            # Programs are loaded before the storm begins, since that may take as long as the storm does.
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
    """Do the programs of a longer gap differ from those that are checked in?"""
    made = sorted(gap_skeletons().glob("*.lskel"))
    return any(m.read_bytes() != (common.ROOT / "crates/taskdiag-bpf/skel" / m.name).read_bytes() for m in made)


def gap_skeletons():
    return common.cache("skel-gap", "lite.lskel").parent


def reader(gap):
    """The program storm_reader, with the BPF programs of the checkout or with those of a longer gap."""
    cargo = [common.ROOT / "tools/with-rust", "cargo"]
    target, variables = common.TARGET, {}
    if gap is not None:
        need_clang()
        skeletons = gap_skeletons()
        options = ["--manifest-path", common.ROOT / "bpf/gen/Cargo.toml", "--", "--gap", str(gap), "--out", skeletons]
        common.run(*cargo, "run", "-q", *options, cwd=common.ROOT)
        # Beside the other build, which would be thrown away each time.
        target, variables = common.TARGET / "gap", {"TASKDIAG_SKEL_DIR": str(skeletons)}
    build(cargo, ["-p", "taskdiag-tests", "--bin", "storm_reader"], common.ROOT, target, **variables)
    return target / "release" / "storm_reader"


def build(cargo, what, where, target, **variables):
    """A release build without the optimization over all crates, which takes most of the time."""
    quick = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
    env = {**os.environ, **quick, "CARGO_TARGET_DIR": str(target), **variables}
    common.run(*cargo, "build", "-q", "--release", *what, cwd=where, env=env)


def need_clang():
    if not common.have("clang-19"):
        raise common.Unavailable("no clang-19 to make BPF programs with (tools/setup bpf)")


class KnownBad(suites.Suite):
    """A storm beside readers with BPF programs under which the kernel must fall over."""

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
        # Where it came to its end, which fell_over() tells of.
        return suites.Result()


def known_bad():
    """The program `taskdiag` as it was, with the longer gap in its BPF programs."""
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
        build(cargo, ["-p", "taskdiag-cli"], tree, tree / "target")
        shutil.copy2(tree / "target/release/taskdiag", home / "taskdiag.part")
        (home / "taskdiag.part").rename(home / "taskdiag")
        shutil.rmtree(tree)
        archive.unlink()
    return home / "taskdiag"


def fell_over(run):
    """(did the kernel complain of what the known bad programs do?, what to say of it)."""
    seconds = re.findall(r"^@@second (\d+)$", run.output, re.M)
    answers = run.output.count("@@answer")
    when = f"after {seconds[-1] if seconds else 0} s and {answers} answers"
    if run.complaints and "d_path" in run.console:
        return True, f"known bad programs: the kernel complained {when}, as it must: {run.complaints[0]}"
    if run.complaints:
        return False, f"known bad programs: the kernel complained {when}, but of something else: {run.complaints[0]}"
    return False, f"known bad programs: the kernel did not complain {when}: the storm does not find what it is for"
