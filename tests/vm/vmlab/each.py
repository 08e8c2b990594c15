# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks that the series builds after each of its patches, and boots, if that is asked for.

One tree goes from the plain source to the whole series, one patch at each step. A step compiles the files that any patch of the
series touches, as far as they exist, all of fs/proc, and the selftests of the directories that the step touches. Other files that
include a changed header are compiled only with the whole series, by every other build of the lab. A step fails if it does not
apply or compile, has a warning, or needs a symbol that only a later step makes. To boot a step, the
whole kernel is built, which takes three times as long.
"""

import re
import time

from . import build, common

# Without debug information, a build takes half of the time.
QUICK = "CONFIG_DEBUG_INFO_BTF=n\nCONFIG_DEBUG_INFO_DWARF5=n\nCONFIG_DEBUG_INFO_NONE=y\nCONFIG_KUNIT=y\n"
SELFTESTS = "tools/testing/selftests/"
WHOLE = "fs/proc/"


def walk(first=None, boot=None):
    """Runs all steps, or those from the patch whose name starts so. Returns how many failed. `boot(image)` returns what is wrong."""
    patches = build.series()
    names = [build.short(p) for p in patches]
    begin = next((i for i, n in enumerate(names) if n.startswith(first)), None) if first else 0
    if begin is None:
        raise common.Broken(f"no patch of the series is called {first}...")
    with common.locked("linux-each"):
        tree = build.Tree("each", *build.source())
        bad, symbols = 0, []
        fragments = [common.CONFIG / "test.config"]
        objects = sorted(n[:-2] + ".o" for n in build.touched(patches) if compiled(n))
        # The plain source is built first, so that its own warnings are not blamed on a patch, and
        # make has something to start from.
        for n in range(begin, len(patches) + 1):
            began, start = time.monotonic(), tree.log.stat().st_size
            name = names[n - 1] if n else "no patch"
            try:
                tree.apply(patches[:n])
                if n == begin or "Kconfig" in patches[n - 1].read_text(errors="replace"):
                    tree.configure(fragments, QUICK + build.options(patches[:n]))
                there = [o for o in objects if (tree.dir / o).with_suffix(".c").exists()]
                tree.make([WHOLE, *there])
                symbols.append((name, *of(tree, there)))
                if n > begin:
                    selftests(tree, patches[n - 1])
                if boot:
                    tree.make(["bzImage"])
                why = warnings(tree, start) or boot and boot(tree.dir / "arch/x86/boot/bzImage")
            except common.Broken as e:
                why = str(e)
            bad += said(name, why, began)
        bad += missing_symbols(symbols)
    print(f"test result: {'FAILED' if bad else 'ok'}. {len(names) - begin + 1 - bad} passed; {bad} failed; 0 ignored; lab each")
    return bad


def compiled(name):
    """Whether this file is compiled by itself. Tests of the kernel's library are not configured, and neither are security
    modules, which only the debug flavour has."""
    return name.endswith(".c") and not name.startswith(("tools/", WHOLE, "lib/test_", "security/"))


def said(name, why, began):
    """Prints a step as cargo does. Returns 1 if it failed."""
    print(f"test each: {name} ... {'FAILED' if why else 'ok'} ({time.monotonic() - began:.0f} s)", flush=True)
    if why:
        print(why)
    return bool(why)


def warnings(tree, start):
    """The warnings of the compiler in the log since then."""
    with open(tree.log, "rb") as f:
        f.seek(start)
        text = f.read().decode(errors="replace")
    return "\n".join(re.findall(r"^(?!\.config:).*\bwarning: .*$", text, re.M))


def of(tree, objects):
    """(symbols that these objects define, symbols that they need from others)"""
    files = [tree.dir / o for o in objects] + [tree.dir / WHOLE / "built-in.a"]
    has, wants = set(), set()
    for line in common.output("nm", "-g", *files).splitlines():
        kind, _, name = line[17:].partition(" ")
        (wants if kind in "Uvw" else has).add(name)
    return has, wants - has


def missing_symbols(symbols):
    """Counts steps that would not link, because their objects need a symbol that these files define only at the end."""
    last = symbols[-1][1] if symbols else set()
    bad = 0
    for name, _, wants in symbols:
        if early := sorted(wants & last):
            print(f"test each: {name}: needs {', '.join(early)}, which a later patch adds ... FAILED")
            bad += 1
    return bad


def selftests(tree, patch):
    """Builds the selftests of the directories that a patch touches."""
    found = (re.match(SELFTESTS + r"(.+)/[^/]+\.[ch]$", name) for name in build.touched([patch]))
    names = sorted({m[1] for m in found if m})
    if names:
        tree.make(["headers"])
        target = {"TARGETS": " ".join(names), "FORCE_TARGETS": 1}
        tree.make(["-C", SELFTESTS, "clean"], **target)
        tree.make(["-C", SELFTESTS], **target)
