# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the kernel's selftests inside the kernel of the series, and reads the results of KUnit from its boot.

The directories are those that the series touches and those of `tests/vm/selftests`.
"""

import re
import shutil

from . import build, common, suites


def directories(flavour):
    """Directory → the tests of it that are left out, for the series of a flavour."""
    found = {}
    for line in (common.VM / "selftests").read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            found[words[0]] = set(words[1:])
    for path in build.touched(build.patches_of(flavour)):
        part = re.match(r"tools/testing/selftests/(.+)/[^/]+$", path)
        # The list of all directories does not count, and neither does a directory without tests.
        if part and path.rsplit("/", 1)[1] != "config":
            found.setdefault(part[1], set())
    return found


def installed(flavour):
    """The directory of the tests of a flavour's series, built in its tree."""
    names = sorted(directories(flavour))
    patches = build.patches_of(flavour)
    version, tarball = build.source(build.FLAVOURS[flavour].base)
    key = common.digest(version, *patches, *names)
    home = common.cache("selftests", key)
    with common.locked(f"linux-{build.tree_of(flavour)}"):
        if not home.exists():
            common.say(f"building the selftests {' '.join(names)}")
            tree = build.Tree(build.tree_of(flavour), version, tarball)
            tree.apply(patches)
            tree.make(["headers"])
            part = home.with_name(f"{home.name}.{flavour}.part")
            shutil.rmtree(part, ignore_errors=True)
            # Tests built for another state of the series must not be used for this one.
            target = {"TARGETS": " ".join(names), "INSTALL_PATH": part, "FORCE_TARGETS": 1}
            tree.make(["-C", "tools/testing/selftests", "clean"], **target)
            tree.make(["-C", "tools/testing/selftests", "install"], **target)
            if home.exists():
                shutil.rmtree(part)
            else:
                part.rename(home)
    return home


class Selftests(suites.Suite):
    """Runs the tests one by one. A program that speaks TAP counts its own tests, and any other counts as one."""

    name = "selftests"

    def __init__(self, kernel, slower=1):
        # A kernel of a series must also have run its KUnit suites. On any other one, the tests of
        # all series run.
        self.kunit = build.patches_of(kernel.where) if kernel.series else []
        newer = kernel.source == "build" and kernel.where.endswith(build.NEWER)
        self.flavour = kernel.where if kernel.series else "ours" + (build.NEWER if newer else "")
        self.left_out = directories(self.flavour)
        self.limit = 120 * slower
        self.timeout = 600 * slower

    def tests(self):
        listing = (installed(self.flavour) / "kselftest-list.txt").read_text().split()
        named = [t.rsplit(":", 1) for t in listing]
        return [(d, t) for d, t in named if t not in self.left_out.get(d, ())]

    def files(self, tree):
        home = installed(self.flavour)
        for path in sorted(home.rglob("*")):
            to = f"/lab/selftests/{path.relative_to(home)}"
            if path.is_file():
                elf = path.read_bytes()[:4] == b"\x7fELF"
                (tree.program if elf else tree.file)(path, to)

    def script(self):
        run = f"echo \"@@test $1:$2\"; (cd /lab/selftests/$1 && /bin/timeout {self.limit} ./$2); echo \"@@status $?\""
        return [f"one() {{ {run}; }}", *(f"one {d} {t}" for d, t in self.tests())]

    def read(self, output, run):
        result = suites.Result()
        due = [f"{d}:{t}" for d, t in self.tests()]
        for part in output.split("@@test ")[1:]:
            name, _, text = part.partition("\n")
            if name in due:
                due.remove(name)
            status = re.search(r"^@@status (\d+)$", text, re.M)
            code = int(status[1]) if status else -1
            result.add(tap(name, text, code))
        result.failed += [f"{name}: did not run" for name in due]
        for d, names in self.left_out.items():
            result.skipped += [f"selftest {d}:{t}: fails on the unpatched kernel in this machine, too" for t in names]
        result.add(kunit(run.console, kunit_suites(self.kunit)))
        return result


def tap(name, text, code):
    """Counts the results of one test program. Exit code 4 means that all of it is skipped."""
    result = suites.Result()
    if code == 4:
        why = re.search(r"SKIP\S*\s*(.*)", text)
        result.skipped.append(f"selftest {name}: {why[1] if why and why[1] else 'cannot run here'}")
        return result
    for bad, title in re.findall(r"^(not )?ok \d+ ?-? ?(.*)$", text, re.M):
        skip = re.search(r"# SKIP ?(.*)", title)
        if skip:
            result.skipped.append(f"selftest {name}: {title}")
        elif bad:
            result.failed.append(f"{name}: {title}")
        else:
            result.passed += 1
    if code != 0 and not result.failed:
        said = [line for line in text.splitlines() if not line.startswith("@@")]
        result.failed.append(f"{name}: exit code {code}" + "".join(f"; {line.strip()}" for line in said[-2:]))
    plan = re.search(r"^1\.\.(\d+)$", text, re.M)
    ran = len(re.findall(r"^(?:not )?ok \d+", text, re.M))
    if plan and ran < int(plan[1]) and not result.failed:
        result.failed.append(f"{name}: {ran} of {plan[1]} tests ran")
    if code == 0 and not result.passed and not result.skipped:
        result.passed = 1
    return result


def kunit_suites(patches):
    """The names of the suites that these patches add."""
    suite = re.compile(r"^\+\s*\.name\s*=\s*\"([^\"]+)\",\n\+\s*\.test_cases\b", re.M)
    return [name for p in patches for name in suite.findall(p.read_text(errors="replace"))]


def kunit(console, suites_due):
    """The cases of the KUnit suites that are built in: KTAP on the console, cases indented by four blanks.

    A suite that is due and is not there, ended early or had no case has failed.
    """
    result = suites.Result()
    plain = re.sub(r"^\[ *\d+\.\d+\] ?", "", console.replace("\r", ""), flags=re.M)
    cases = re.compile(r"^    (not )?ok \d+ (?:- )?(.*)$", re.M)
    for bad, title in cases.findall(plain):
        if "# SKIP" in title:
            result.skipped.append(f"KUnit {title}")
        elif bad:
            result.failed.append(f"KUnit {title}")
        else:
            result.passed += 1
    for name in suites_due:
        said = re.search(rf"^    # Subtest: {re.escape(name)}$(.*?)^(not )?ok \d+ (?:- )?{re.escape(name)}\b", plain, re.S | re.M)
        plan = said and re.search(r"^    1\.\.(\d+)$", said[1], re.M)
        ran = len(cases.findall(said[1])) if said else 0
        if not said:
            result.failed.append(f"KUnit {name}: did not run, or not to its end")
        elif not ran or not plan or ran != int(plan[1]):
            result.failed.append(f"KUnit {name}: {ran} of {plan[1] if plan else 'no'} cases ran")
        elif said[2] and not result.failed:
            result.failed.append(f"KUnit {name}")
    return result
