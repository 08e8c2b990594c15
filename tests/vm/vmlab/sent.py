# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shows a fix of kernel/send: its selftests must fail on the newest kernel without it, and pass with it.

Both kernels are small ones (kernel/config/small.config), and the second is built in the tree of the first. The tests are the programs
that the patches add to tools/testing/selftests.
"""

import re

from . import build, common, kernels, runs, suites

# Rounds and seed, for tests that make random states.
ARGUMENTS = "60 1"


def programs(patches):
    """Compiles the selftests that patches add. Returns name → program."""
    made = {}
    for patch in patches:
        for name, body in re.findall(r"^--- /dev/null\n\+\+\+ b/tools/testing/selftests/\S+/(\S+)\.c\n@@ .*\n((?:\+.*\n)+)", patch.read_text(), re.M):
            text = re.sub("^[+]", "", body, flags=re.M)
            source = common.cache("programs", f"{name}-{common.digest(text)}.c")
            source.write_text(text)
            made[name] = source.with_suffix("")
            common.run("gcc", "-O2", "-Wall", "-static", "-o", made[name], source)
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


def show(name):
    """Boots both kernels. Returns the exit code."""
    flavour = f"send-{name}"
    if flavour not in build.FLAVOURS:
        common.die(f"no fix {name}; there are {', '.join(f.removeprefix('send-') for f in build.FLAVOURS if f.startswith('send-'))}")
    made = programs(build.patches_of(flavour))
    result = suites.Result()
    for kernel, due in ((build.SMALL, False), (flavour, True)):
        k, tests = kernels.named(kernel), Tests(made)
        run, results = runs.go(k, [tests], "sent")
        result.failed += [f for r in results.values() for f in r.failed]
        for test in made:
            code = tests.codes.get(test, -1)
            common.say(f"{kernel}: {test}: exit code {code}; {tests.said.get(test, 'it did not run')}")
            # 4 is a skip, which shows nothing.
            if (code == 0) == due and code in (0, 1):
                result.passed += 1
            else:
                result.failed.append(f"{test}: exit code {code} on {kernel}")
    if not made:
        result.failed.append(f"the patches of {name} add no selftest")
    return bool(runs.report(k, run, {"sent": result}))
