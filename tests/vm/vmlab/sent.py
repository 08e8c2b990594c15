# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shows what kernel/send has for Linux itself: its selftests must not pass on the newest kernel without it, and pass with it.

Both kernels are small ones (kernel/config/small.config), and the second is built in the tree of the first. The tests are the programs
that the patches add to tools/testing/selftests. A fix has tests that fail without it. If the patches add an interface (a header of
include/uapi), its tests may be skipped without it.
"""

import re

from . import build, common, kernels, runs, suites

# Rounds and seed, for tests that make random states.
ARGUMENTS = "60 1"
TESTS, UAPI = "tools/testing/selftests", "include/uapi"


def after(name):
    """(the source, a directory of the files that the patches of kernel/send/NAME touch, as they are after them)."""
    flavour = f"send-{name}"
    patches = build.patches_of(flavour)
    version, tarball = build.source(build.FLAVOURS[flavour].base)
    source = build.pristine(version, tarball)
    home = common.cache("sent", f"{name}-{common.digest(version, *patches)}")
    with common.locked(f"sent-{name}"):
        if not home.exists():
            part = home.with_name(f"{home.name}.part")
            build.patched(source, patches, part)
            part.rename(home)
    return source, home


def programs(name):
    """Compiles the selftests that the patches add. Returns name → program."""
    made = {}
    source, home = after(name)
    for test in sorted(home.glob(f"{TESTS}/**/*.c")):
        where = test.relative_to(home)
        if (source / where).exists():
            continue
        made[test.stem] = test.with_suffix("")
        # The directory of the kernel's headers is searched last, because it also has headers that
        # this machine has.
        command = ["gcc", "-O2", "-Wall", "-static", "-pthread", "-I", source / where.parent, "-idirafter", home / UAPI]
        common.run(*command, "-o", made[test.stem], test)
    return made


class Tests(suites.Suite):
    name = "sent"
    timeout = 1200

    def __init__(self, made):
        self.made, self.codes, self.said = made, {}, {}

    def files(self, tree):
        for name, program in self.made.items():
            tree.program(program, f"/lab/{name}")

    def script(self):
        return [f'echo "@@test {name}"; /lab/{name} {ARGUMENTS}; echo "@@status $?"' for name in self.made]

    def read(self, output, run):
        for part in output.split("@@test ")[1:]:
            name, _, text = part.partition("\n")
            status = re.search(r"^@@status (\d+)$", text, re.M)
            self.codes[name] = int(status[1]) if status else -1
            self.said[name] = text.split("@@status")[0].strip()
        return suites.Result()


def show(name, uml=False):
    """Boots both kernels. Returns the exit code."""
    prefix = build.UML if uml else ""
    known = [f.removeprefix("send-") for f in build.FLAVOURS if f.startswith("send-")]
    if name not in known:
        common.die(f"kernel/send has no {name}; there are {', '.join(known)}")
    made = programs(name)
    adds = any(f.startswith(UAPI) for f in build.touched(build.patches_of(f"send-{name}")))
    result = suites.Result()
    # 4 is a skip, which shows nothing of a fix.
    for kernel, due in ((build.SMALL, (1, 4) if adds else (1,)), (f"send-{name}", (0,))):
        k, tests = kernels.named(prefix + kernel), Tests(made)
        run, results = runs.go(k, [tests], "sent")
        result.failed += [f for r in results.values() for f in r.failed]
        for test in made:
            code = tests.codes.get(test, -1)
            common.say(f"{k.name}: {test}: exit code {code}; {tests.said.get(test, 'it did not run')}")
            if code in due:
                result.passed += 1
            else:
                result.failed.append(f"{test}: exit code {code} on {k.name}")
    if not made:
        result.failed.append(f"the patches of {name} add no selftest")
    return bool(runs.report(k, run, {"sent": result}))
