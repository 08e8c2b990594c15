# SPDX-License-Identifier: MIT OR Apache-2.0
"""The suites that run inside a machine, and the count of their results.

A suite puts files into the initramfs and lines into the job, and later reads its part of the output. Results are
printed as cargo's test runner does (`test result: ok. N passed; …`), so that tools/run-tests counts them with all
others. Skips go to the same file as all other skips.
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex

from . import arch as archs
from . import common, image

# Test programs of other packages that depend on the kernel. All programs of the package
# `taskdiag-tests` run, too.
OTHERS = ("procfs_live",)
# Test programs that read the checkout and not the kernel, or that need programs which the machines
# do not have: procps, setpriv and others of util-linux that busybox lacks, Prometheus, a browser,
# and a C compiler. Three more measure time or memory of the machine itself, or fork so often that
# emulation takes half an hour. The names of containers come from files. The other suites make many
# odd files or processes and read them several times with each engine and command, which was not
# tried in emulation yet; --only runs them there.
NOT_HERE = (
    "series", "dropin", "service", "export", "report", "runs", "fork", "bounds_faces", "units", "as_lsof", "exit_codes", "columns",
    "odd_names", "walk", "containers", "c_library",
)
# The limit for a test program, in seconds. A limit for each test, as on the machine itself, would
# start each test in a new process, and emulation is too slow for that.
PROGRAM_SECONDS = 1500


@dataclasses.dataclass
class Result:
    """The results of a suite."""

    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    skipped: list = dataclasses.field(default_factory=list)
    # The output of the tests that failed, by their names.
    said: dict = dataclasses.field(default_factory=dict)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


# bounded SECONDS COMMAND... runs the command in a session of its own, for at most that long. If the
# time was too short, the exit code is 124. A command that survives SIGTERM and SIGKILL waits in the
# kernel. The job continues without it, which `timeout` would not do.
BOUNDED = r"""
now() { read -r up _ </proc/uptime; up=${up%%.*}; }
# kill -0 would find a zombie, too.
runs() { read -r line 2>/dev/null <"/proc/$pid/stat" && case ${line##*) } in Z*) false ;; esac; }
ends() {
	now; end=$((up + $1))
	while runs; do
		now; [ "$up" -lt "$end" ] || return 1
		sleep 0.5
	done
}
bounded() {
	limit=$1; shift
	setsid "$@" & pid=$!
	if ends "$limit"; then wait "$pid"; return; fi
	kill -TERM "-$pid"
	ends 10 || { kill -KILL "-$pid"; ends 10; } || {
		echo "@@left process $pid cannot be ended; its threads wait here:"
		for task in /proc/$pid/task/*; do cat "$task/comm" "$task/wchan"; echo; cat "$task/stack"; done 2>/dev/null
	}
	return 124
}
"""


class Suite:
    """One part of a job. `timeout` is for a machine in software emulation on a busy host."""

    name = ""
    timeout = 300
    arch = archs.AMD64

    def files(self, tree):
        """Puts the files that it needs into the archive."""

    def script(self):
        """The lines that it adds to the job."""
        raise NotImplementedError

    def read(self, output, run):
        """Counts the results in its part of the output."""
        raise NotImplementedError


@functools.cache
def dropin():
    """The drop-in for libproc2, as it is installed, or the one that TASKDIAG_PROCPS_LIB names."""
    if given := os.environ.get("TASKDIAG_PROCPS_LIB"):
        return pathlib.Path(given)
    common.run(common.ROOT / "tools/with-rust", "cargo", "build", "-q", "--profile", "dropin", "-p", "taskdiag-procps", cwd=common.ROOT)
    return common.TARGET / "dropin" / "libtaskdiag_procps.so"


def program(arch=archs.AMD64, profile="release"):
    """The release program, or one of another profile, built by cargo, or the one that TASKDIAG_BIN names."""
    return pathlib.Path(given) if (given := os.environ.get("TASKDIAG_BIN")) else made("taskdiag-cli", "taskdiag", arch, profile)


def service(arch=archs.AMD64, profile="release"):
    """The service, as `program` is made, or the one that TASKDIAGD_BIN names."""
    return pathlib.Path(given) if (given := os.environ.get("TASKDIAGD_BIN")) else made("taskdiagd", "taskdiagd", arch, profile)


@functools.cache
def made(package, name, arch, profile):
    """A program that cargo builds."""
    cargo = [common.ROOT / "tools/with-rust", "cargo"]
    target, env = arch.cargo()
    try:
        common.run(*cargo, "build", "-q", "--profile", profile, "-p", package, *target, cwd=common.ROOT, env=env)
    except common.Broken as e:
        if "can't find crate for `core`" in str(e) or "can't find crate for `std`" in str(e):
            raise common.Unavailable(f"no Rust library for {arch.triple}: rustup target add {arch.triple}") from e
        raise
    return common.TARGET / arch.triple / profile / name


@functools.cache
def built(arch=archs.AMD64, only=None):
    """An optimized program, the test programs or only one of them, and mktask, built by cargo, as name → path."""
    common.say("building the tests" + (f" for {arch.name}" if arch.triple else ""))
    made = {"taskdiag": program(arch, "quick")}
    cargo = [common.ROOT / "tools/with-rust", "cargo"]
    target, env = arch.cargo()
    # The whole workspace is built, as in run-tests. A part of it would be built again with other
    # features.
    what = ["--package", "taskdiag-tests", "--test", only] if only else ["--workspace"]
    test = ["test", *what, "--no-run", "--message-format=json", *target]
    lines = common.output(*cargo, *test, cwd=common.ROOT, env=env)
    for message in map(json.loads, lines.splitlines()):
        if message.get("executable") and message["target"]["kind"] == ["test"]:
            name = message["target"]["name"]
            if name in OTHERS or pathlib.Path(message["manifest_path"]) == common.ROOT / "tests/Cargo.toml":
                made["test " + name] = message["executable"]
        if message["reason"] == "build-script-executed":
            made.update((k, v) for k, v in message["env"] if k == "MKTASK")
    lacking = [n for n in ("MKTASK", *(f"test {o}" for o in ([only] if only else OTHERS))) if n not in made]
    if lacking:
        raise common.Broken(f"cargo did not build {', '.join(lacking)}: run cargo test --no-run")
    return made


# The vDSO of User-Mode Linux has less than that of x86-64, and rustix, a crate that taskdiag uses,
# takes this for an error.
WITHOUT_VDSO = "export LD_PRELOAD=/lab/no_vdso.so"


def without_vdso(tree):
    """Adds the library that hides the vDSO."""
    source = common.VM / "no_vdso.c"
    library = common.cache("programs", f"no_vdso-{common.digest(source)}.so")
    if not library.exists():
        common.run("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source)
    tree.file(library, "/lab/no_vdso.so")


# Tests that run as long as a variable says: a test program, its arguments, and the variable.
LONG = {
    "walk": ("walk", "engines_faces --nocapture", "TASKDIAG_WALK_SECONDS"),
    "locks": ("lock_storm", "--nocapture", "TASKDIAG_WHY_SECONDS"),
}


def long_seconds():
    """The additional seconds of tests that run as long as a variable says."""
    return sum(int(os.environ.get(variable, 0)) for _, _, variable in LONG.values())


# Tasks of mktask that together have a value of each group, as in tests/tests/parity.rs.
STATES = (
    "settings", "mappings /lab/tmp/maps", "files /lab/tmp/files", "threads 3", "creds", "odd-names /lab/tmp/names", "odd-places /lab/tmp/places",
    "cgroup odd",
)  # fmt: skip


class Parity(Suite):
    """Runs the test programs of the machine on this kernel."""

    name = "parity"
    timeout = 3000
    beside = ()
    """Tasks of mktask that are there meanwhile."""

    def __init__(self, promised, only=None, filter="", before=":", arch=archs.AMD64, kept=True, without=()):
        self.promised, self.filter, self.before, self.arch, self.kept = promised, filter, before, arch, kept
        self.timeout = Parity.timeout + long_seconds()
        every = {n.removeprefix("test ") for n in self.built() if n.startswith("test ")}
        self.only = sorted(every - {*NOT_HERE, *without}) if only is None else only
        if unknown := sorted({*self.only, *without} - every):
            raise common.Broken(f"no test program is called {', '.join(unknown)}; there are {', '.join(sorted(every))}")

    def built(self):
        """The programs, by name."""
        return built(self.arch)

    def files(self, tree):
        programs = self.built()
        tree.program(programs["taskdiag"])
        tree.program(programs["MKTASK"], strip=True)
        if self.arch.name == "um":
            without_vdso(tree)
        for name in self.only:
            tree.program(programs[f"test {name}"], strip=True)

    def script(self):
        programs = self.built()
        # The older BPF program is tested by the older kernels of the list.
        settings = {
            "TASKDIAG_REQUIRE": ",".join(self.promised),
            "TASKDIAG_BIN": programs["taskdiag"],
            "TASKDIAG_LEGACY_BPF": 0,
            "TASKDIAG_KEPT_BPF": int(self.kept),
            "TASKDIAG_THREADS": 500,
            "TASKDIAG_EMULATED": 1,
            "NO_COLOR": 1,
        }
        given = ("TASKDIAG_WALK_SEED", "TASKDIAG_WALK_SCENE", "TASKDIAG_WHY_THREADS", *(variable for _, _, variable in LONG.values()))
        settings.update((k, shlex.quote(v)) for k, v in os.environ.items() if k in given)
        hides = [WITHOUT_VDSO] if self.arch.name == "um" else []
        lines = [BOUNDED, self.before, *hides, "export " + " ".join(f"{k}={v}" for k, v in settings.items())]
        if self.beside:
            # A task lives until its standard input ends, and writes a line when it is ready.
            lines.append("cd /lab/tmp; mkdir maps files names places; mkfifo hold")
            lines += [f"{programs['MKTASK']} {state} <hold >said.{at} &" for at, state in enumerate(self.beside)]
            lines.append(f"exec 9>hold; while [ \"$(cat said.* | wc -l)\" -lt {len(self.beside)} ]; do sleep 0.2; done; cut -c1-200 said.*")
        for name in self.only:
            program = programs["test " + name]
            lines.append(f"echo '@@program {name}'; bounded {PROGRAM_SECONDS + long_seconds()} {program} {self.filter}; echo \"@@status $?\"")
        # The programs collect their skips in the directory that they were built in, which differs
        # for another architecture.
        target = pathlib.Path(programs["test " + self.only[0]]).parents[2]
        lines.append(f"echo @@skips; cat {target}/taskdiag-skips.txt 2>/dev/null")
        return lines

    def read(self, output, run):
        result = Result()
        tests, _, skips = output.partition("@@skips\n")
        seen = []
        result.failed += re.findall(r"^error=.*", tests.partition("@@program ")[0], re.M)
        for part in tests.split("@@program ")[1:]:
            name, _, text = part.partition("\n")
            seen.append(name)
            # The sum counts, because text that tests write to stderr may run into their lines.
            result.passed += sum(int(n) for n in re.findall(r"^test result: .* (\d+) passed;", text, re.M))
            bad = [f"{name}: {t}" for t in re.findall(r"^test (.*) \.\.\. FAILED$", text, re.M)]
            status = re.search(r"^@@status (\d+)$", text, re.M)
            if status and status[1] == "124":
                bad += stuck(name, text)
            elif not bad and (status is None or status[1] != "0"):
                bad = [f"{name}: " + (f"exit code {status[1]}" if status else "did not end")]
            elif not bad and not re.search(r"^test result: .* \d+ passed;", text, re.M):
                bad = [f"{name}: ended without a result"]
            result.failed += bad
            says = re.findall(r"^---- ([^\n]*) stdout ----\n(.*?)(?=^---- |^failures:$|\Z)", text, re.M | re.S)
            result.said.update((f"{name}: {test}", words.strip()) for test, words in says)
        result.failed += [f"{name}: did not run" for name in self.only if name not in seen]
        result.skipped = sorted({s for s in skips.splitlines() if ": " in s})
        return result


class Long(Parity):
    """One of LONG alone. Only its program is built."""

    def __init__(self, name, promised, arch):
        self.name = name
        self.program, arguments, _ = LONG[name]
        super().__init__(promised, [self.program], arguments, arch=arch, kept=False)

    def built(self):
        return built(self.arch, self.program)

    def read(self, output, run):
        for line in re.findall(r"^\d+ s, \d+ scenes are right.*$", output, re.M)[-1:] + re.findall(r"^\w+: \d+ looks, .*$", output, re.M):
            common.say(line)
        result = super().read(output, run)
        text = "\n".join(line for line in output.splitlines() if not line.startswith("SKIPPED"))
        result.said = dict.fromkeys(result.failed, text)
        return result


class Memcg(Parity):
    """Programs of procps with the drop-in in a control group of 64 MiB. The machine has control groups of version 2, which many hosts have
    without memory."""

    name = "memcg"
    # In emulation, a start of the engine alone takes seconds.
    timeout = 1500
    programs = ("ps", "pgrep", "pkill", "pidwait", "top", "w", "dd")

    def __init__(self, promised, arch):
        give = "echo +memory >/sys/fs/cgroup/cgroup.subtree_control; export TERM=dumb PATH=/usr/bin:/bin TASKDIAG_PROCPS_LIB="
        tests = "programs_live_in_a_control_group --nocapture"
        super().__init__(promised, ["dropin"], tests, f"{give}{dropin()}", arch=arch)

    def built(self):
        return built(self.arch, "dropin")

    def files(self, tree):
        super().files(tree)
        tree.program(dropin())
        for name in self.programs:
            found = next((p for d in ("/usr/bin", "/bin") if os.path.exists(p := f"{d}/{name}")), None)
            if found is None:
                raise common.Unavailable(f"no {name}: install procps")
            # The programs have the names of busybox' applets, which they replace.
            tree.program(found, f"/bin/{name}")
        for terminal in ("/lib/terminfo/d/dumb", "/usr/share/terminfo/d/dumb"):
            if os.path.exists(terminal):
                tree.file(terminal)


def stuck(program, text):
    """The tests that a program was running when it exceeded its limit. They are those that libtest
    named because they took over a minute, without those that ended."""
    slow = re.findall(r"^test (\S+) has been running for over", text, re.M)
    ended = set(re.findall(r"^test (\S+) \.\.\. ", text, re.M))
    tests = [t for t in slow if t not in ended] or ["(no test of it had run for a minute)"]
    left = "; it cannot be ended" if "@@left" in text else ""
    return [f"{program}: {t} was stuck: the program was ended after {PROGRAM_SECONDS} s{left}" for t in tests]


class Support(Suite):
    """Finds what each engine provides on this kernel, for docs/use/support.md."""

    name = "support"
    timeout = 60
    answer = None

    def __init__(self, arch=archs.AMD64):
        self.arch = arch

    def files(self, tree):
        tree.program(built(self.arch)["taskdiag"])

    def script(self):
        return [f"timeout 60 {built(self.arch)['taskdiag']} engines --json; echo"]

    def read(self, output, run):
        result = Result()
        try:
            self.answer = json.loads(output)
            result.passed = 1
        except ValueError as e:
            result.failed = [f"taskdiag engines --json: {e}"]
        return result


class Command(Suite):
    """Runs any command, for people: `lab boot KERNEL -- COMMAND`."""

    name = "command"
    timeout = 600

    def __init__(self, command, programs=(), arch=archs.AMD64):
        self.command, self.programs, self.arch = command, programs, arch

    def files(self, tree):
        Parity((), (), arch=self.arch).files(tree)
        for p in self.programs:
            tree.program(os.path.abspath(p), "/lab/" + os.path.basename(p))

    def script(self):
        taskdiag = built(self.arch)["taskdiag"]
        return [f"export TASKDIAG_BIN={taskdiag} PATH=$PATH:/lab:{taskdiag.parent}", self.command]

    def read(self, output, run):
        return Result(passed=1)


def machine_for(suites, arch):
    """The initramfs for these suites. Each run writes a new one, because that is quick."""
    tree = image.base(image.Tree(arch))
    job = []
    for s in suites:
        s.files(tree)
        # Each suite has a separate shell, so that its settings do not affect the next one.
        job += [f"echo '@@suite {s.name}'", "(", *s.script(), ")", f"echo '@@done {s.name}'"]
    tree.data("/lab/job", "\n".join(job) + "\n")
    return tree


def part(output, name):
    """The output of a suite, or `None` if it did not come to its end."""
    found = re.search(rf"^@@suite {name}\n(.*?)^@@done {name}$", output, re.S | re.M)
    return found[1] if found else None
