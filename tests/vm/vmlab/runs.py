# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots kernels with suites, and reports the results. Each command of the lab is a function here."""

from . import build, common, denied as denials, each as each_patch, kernels, late, machine, selftests, storm, stress, suites, support

# Seconds for the boot itself, in software emulation on a busy host.
BOOT_SECONDS = 120
# Seconds of a storm with readers: for each BPF program; in the short run, which has no time to
# build a kernel with all checks; and until the kernel must have complained about wrong programs.
STORM = 600
STORM_FAST = 60
STORM_KNOWN_BAD = 300
# How much longer tests may take with all checks of the kernel on.
SLOWER = 4
# The test programs of the short run on a stock kernel. They test a live machine, odd surroundings,
# and leftovers. Linux 6.1 takes a second to verify a BPF program in software emulation, so all
# programs would take long.
FAST = ("usage", "live", "bad_input", "large", "leftover")
# The test program of a kernel of the list whose suite is short. It compares all groups of all tasks
# between the engines, and some tasks of mktask are there, so that each group has values. The others
# load hundreds of BPF programs, which takes minutes in software emulation. Programs that stay
# loaded are tested on the kernels with the full suite.
SHORT = ("live",)
# The test programs that the short run leaves out on our kernel. No test of the first five asks
# /proc/task_diag. The others take minutes in software emulation; `parity` compares the engines in
# the same states.
NOT_ABOUT_THE_SERIES = ("programs", "waits", "why", "delays", "traffic", "states", "record", "stuck", "bounds")
# The test programs for each step of the series. Such a kernel has no types, so BPF does not work,
# and only /proc and the files of the series are tested.
EACH = ("have", "live", "oracle")
# BPF does not work without the types of the kernel. The verifier takes most of the time in software
# emulation, so the short run on our kernel compares /proc/task_diag with /proc alone. The host and
# the stock kernels compare BPF with /proc.
WITHOUT_BPF = "mount --bind /dev/null /sys/kernel/btf/vmlinux"
# In most steps /proc/task_diag does not have all groups that the tests ask for. So it is read once
# and then hidden.
HALF_DONE = "cat /proc/task_diag 2>/dev/null; mount --bind /dev/null /proc/task_diag 2>/dev/null"


def go(kernel, parts, label, memory=machine.MEMORY_MB, append="", strict=True, counting=False, cpus=2, dump=None):
    """Boots a kernel with suites. Returns (Run, {suite name: Result}). If the machine crashed, the suites that it did not finish have failed."""
    image = kernels.get(kernel)
    ours = common.digest(common.ROOT, kernel.name, label)
    initramfs = common.cache("initramfs", f"{ours}.cpio")
    timeout = BOOT_SECONDS + sum(s.timeout for s in parts)
    log = common.LOGS / f"{kernel.name}-{label}"
    # Another lab on this checkout would overwrite both.
    with common.locked(f"run-{ours}"):
        tree = suites.machine_for(parts, kernel.arch)
        for module in image.modules:
            tree.file(module, f"/lib/modules/{module.name}")
        tree.write(initramfs)
        common.say(f"{kernel.name} ({image.version}): {', '.join(s.name for s in parts)}")
        run = machine.boot(kernel.arch, image.path, initramfs, log, timeout, memory, append, strict, counting, cpus, dump)
        if run.tripped:
            common.say(f"{kernel.name}: {run.why()}; that is the emulator's (see machine.py), so once more")
            run = machine.boot(kernel.arch, image.path, initramfs, log, timeout, memory, append, strict, counting, cpus, dump)
        initramfs.unlink()
    results = {}
    for s in parts:
        text = suites.part(run.output, s.name)
        if text is None:
            results[s.name] = suites.Result(failed=[f"{s.name} did not end: {run.why()}"])
        else:
            results[s.name] = s.read(text, run)
    if not run.well:
        results["machine"] = suites.Result(failed=[run.why()])
    return run, results


def report(kernel, run, results):
    """Prints results as cargo does. Returns how many failed."""
    total = suites.Result()
    for name, r in results.items():
        for f in r.failed:
            print(f"test vm {kernel.name}: {name}: {f} ... FAILED")
            if f in r.said:
                print(f"---- vm {kernel.name}: {name}: {f} stdout ----\n{r.said[f]}\n")
        total.add(r)
    for s in total.skipped:
        with open(common.TARGET / "taskdiag-skips.txt", "a") as out:
            out.write(f"vm {kernel.name}: {s}\n")
    word = "FAILED" if total.failed else "ok"
    print(
        f"test result: {word}. {total.passed} passed; {len(total.failed)} failed; 0 ignored; "
        f"vm {kernel.name}, {run.seconds:.0f} s, {len(total.skipped)} skipped\n",
        flush=True,
    )
    return len(total.failed)


def skip(name, why):
    """Reports that a kernel was not tested."""
    common.say(f"SKIPPED {name}: {why}")
    common.TARGET.mkdir(parents=True, exist_ok=True)
    with open(common.TARGET / "taskdiag-skips.txt", "a") as out:
        out.write(f"vm {name}: {why}\n")


def parity(chosen, only, filter, kept=True, without=()):
    """Runs the parity suite on each kernel, with kept BPF programs or without, and without some test programs. Returns the exit code."""
    bad = 0
    for k in chosen:
        is_short = k.suite == "short" and not only
        try:
            about = suites.Support(k.arch)
            programs = SHORT if is_short else only
            suite = suites.Parity(k.promised, programs, filter, arch=k.arch, kept=kept and not is_short, without=without)
            if is_short:
                suite.beside = suites.STATES
            run, results = go(k, [about, suite], "parity")
            bad += report(k, run, results)
            if not only and not filter and not without:
                if about.answer:
                    support.remember(k, kernels.get(k).version, about.answer, results)
                else:
                    support.forget(k)
        except common.Unavailable as e:
            skip(k.name, str(e))
    return bool(bad)


def long(kernel, name):
    """Runs one of suites.LONG on a kernel that poisons freed memory. Returns how many failed."""
    parts = [suites.Long(name, kernel.promised, kernel.arch)]
    if storm.has_kasan(kernel):
        parts.append(stress.Checks(True))
    return report(kernel, *go(kernel, parts, name, append=storm.boot_parameters(kernel)))


def denied(names):
    """Asks the programs on kernels that deny BPF. Returns how many scenes failed."""
    bad = 0
    for name in names or denials.KERNELS:
        kernel = kernels.named(name)
        for at, (append, scenes) in enumerate(denials.BOOTS.items()):
            try:
                bad += report(kernel, *go(kernel, [denials.Denied(scenes)], f"denied-{at}", append=append))
            except common.Unavailable as e:
                skip(f"{name}: denials of BPF", str(e))
    return bad


def memcg(kernel):
    """Runs programs with the drop-in in a small control group of version 2. Returns how many failed."""
    return report(kernel, *go(kernel, [suites.Memcg(kernel.promised, kernel.arch)], "memcg"))


def command(kernel, text, programs, append="", counting=False):
    """Runs one command and prints its output unchanged."""
    run, _ = go(kernel, [suites.Command(text, programs, kernel.arch)], "command", append=append, counting=counting)
    print(suites.part(run.output, "command") or "\n".join(run.console.splitlines()[-30:]))
    if not run.well:
        common.say(run.why())
    return not run.well


def built(name, parts, label, memory=machine.MEMORY_MB):
    """Runs suites on a kernel. Returns how many failed. A kernel that cannot be built here is skipped."""
    kernel = kernels.named(name)
    try:
        return report(kernel, *go(kernel, parts, label, memory))
    except common.Unavailable as e:
        skip(f"{name}: {', '.join(s.name for s in parts)}", str(e))
        return 0


def tests_of_the_series(kernel="ours"):
    """Runs selftests and KUnit. Returns how many failed. On another kernel, the selftests of the series run there."""
    return built(kernel, [selftests.Selftests(kernels.named(kernel))], "selftests")


def stress_of_the_series(seconds, seed, kernel="ours-debug"):
    """Runs fuzzing, storms and selftests on the kernel with all checks, or on another one. Returns how many failed."""
    parts = [stress.Program(name, seconds, seed) for name in ("fuzz_request", "storm")]
    checked = kernel.removesuffix(build.NEWER).endswith("-debug")
    parts.append(selftests.Selftests(kernels.named(kernel), SLOWER if checked else 1))
    parts.append(stress.Checks(checked))
    return built(kernel, parts, "stress", 4096)


def storms(names, programs, seconds, seed=stress.SEED, gap=None):
    """Runs storms together with readers with BPF programs. Returns how many failed."""
    bad = 0
    for name in names or storm.KERNELS:
        kernel = kernels.named(name)
        parts = [storm.Storm(p, seconds, seed, gap) for p in programs]
        parts.append(storm.Poison(kernel))
        if storm.has_kasan(kernel):
            parts.append(stress.Checks(True))
        try:
            label = "storm" if gap is None else "storm-gap"
            bad += report(kernel, *go(kernel, parts, label, 4096, storm.boot_parameters(kernel)))
        except common.Unavailable as e:
            skip(f"{name}: storm of BPF readers", str(e))
    return bad


def lateness(name, models, processes, seconds, kept=None, counting=False, stacks=False):
    """Measures how long requests keep real-time tasks waiting, under each preemption model. Returns how many failed."""
    kernel, bad, done = kernels.named(name), 0, {}
    for model in models:
        done[model] = late.Late(processes, seconds, counting, stacks)
        label = "-".join(["late", model, *(["instructions"] if counting else []), *(["stacks"] if stacks else [])])
        append = "" if model == late.REALTIME else f"preempt={model}"
        run, results = go(kernel, [done[model]], label, 4096, append, counting=counting)
        if done[model].model not in ("", model):
            results["model"] = suites.Result(failed=[f"the kernel is preempted as with {done[model].model}, not {model}"])
        bad += report(kernel, run, results)
    if kept:
        common.say(f"rows in {late.keep(kept, kernel, kernels.get(kernel).version, done)}")
    return bad


def known_bad(names, seconds, seed=stress.SEED):
    """Checks that the storms find a mistake that is known to be there. Returns how many kernels did not complain about it."""
    bad = 0
    for name in names or storm.KERNELS:
        kernel = kernels.named(name)
        try:
            run, _ = go(kernel, [storm.KnownBad(seconds, seed)], "known-bad", 4096, storm.boot_parameters(kernel))
        except common.Unavailable as e:
            skip(f"{name}: known bad BPF programs", str(e))
            continue
        found, word = storm.fell_over(run)
        common.say(f"{name}: {word}")
        result = suites.Result(passed=1) if found else suites.Result(failed=[word])
        bad += report(kernel, run, {"known-bad": result})
    return bad


def alone(names):
    """Builds a kernel with one series, or its first part, and nothing else, boots it, and runs the tests of these patches.
    Returns how many failed."""
    bad, every = 0, sorted((*build.SERIES, *build.PARTS))
    known = [*every, *(name + build.NEWER for name in every)]
    for name in names or every:
        if name not in known:
            common.die(f"no series {name}; there are {', '.join(known)}")
        bad += tests_of_the_series(name)
    return bad


def each(first=None, boots=False):
    """Builds the series patch by patch, and boots each step if asked. Returns how many steps failed."""

    def boot(path):
        """Returns what is wrong with a kernel."""
        _, results = go(kernels.named(str(path)), [suites.Parity(["procfs"], EACH, before=HALF_DONE)], "each")
        failed = [(f, r.said.get(f, "")) for r in results.values() for f in r.failed]
        return "\n".join(f"{f}\n{said}".strip() for f, said in failed)

    try:
        return each_patch.walk(first, boot if boots else None)
    except common.Unavailable as e:
        skip("each", str(e))
        return 0


def fast():
    """Runs the part of `make test`: a stock kernel and ours, in a few minutes. Returns the exit code."""
    bad = parity([kernels.named("debian-6.1")], FAST, "")
    ours = suites.Parity(["procfs", "kernel"], before=WITHOUT_BPF, kept=False, without=NOT_ABOUT_THE_SERIES)
    bad += report(kernels.named("ours"), *go(kernels.named("ours"), [ours], "parity"))
    bad += storms(["debian-newest"], [storm.MIXED], STORM_FAST)
    return bool(bad + tests_of_the_series())


def everything():
    """Runs `make test-vm`. Returns the exit code."""
    bad = tests_of_the_series() + stress_of_the_series(120, stress.SEED) + alone([]) + each(boots=True)
    bad += known_bad([], STORM_KNOWN_BAD) + storms([], storm.PROGRAMS, STORM) + storms([], [storm.MIXED], STORM, gap=storm.GAP)
    bad += denied([])
    bad += parity(kernels.listed(), None, "")
    support.write()
    return bool(bad)
